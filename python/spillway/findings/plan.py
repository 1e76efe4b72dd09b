"""What arrives in a simulation, and how fast its servers are at best: bounds without a run."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spillway import _core
from spillway._core.cluster import Simulation
from spillway.config import memory

if TYPE_CHECKING:
    from spillway._core.instance import InstanceGroup


class Plan:
    """A simulation before its run."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    @functools.cached_property
    def demand(self) -> Demand:
        """Bounds on what arrives."""
        return Demand(self.simulation)

    @functools.cached_property
    def alone(self) -> dict[str, Alone]:
        """The least latencies of each class, from requests alone at an idle server."""
        shortest = self.demand.shortest.items()
        return {name: _alone(self.simulation, tokens) for name, tokens in shortest}


class Shortest(NamedTuple):
    """Lower bounds of the tokens of the requests of a class, without shared prefixes."""

    input_tokens: int
    output_tokens: int


class Alone(NamedTuple):
    """Lower bounds of the latencies of a class, from requests alone at an idle server."""

    ttft_s: float
    tpot_s: float
    e2e_s: float
    request: str

    def of(self, metric: str) -> float:
        """The latency of this name."""
        value: float = getattr(self, f"{metric}_s")
        return value


class Demand:
    """Bounds on the requests of a workload: their tokens, their number, their concurrency."""

    def __init__(self, simulation: Simulation) -> None:
        self.shortest: dict[str, Shortest] = {}  # by class
        self.least_prompt: dict[tuple[str, str], int] = {}  # by tenant and class
        self.tenants: dict[str, set[str]] = {}
        self.max_tokens = 0
        self.max_concurrent = math.inf
        self.concurrent_by = ""
        workload = simulation.workload
        if workload.kind == "trace":
            self._add_trace(workload)
        else:
            self._add_clients(workload)

    def _add(self, slo_class: str, tenant: str, shortest: Shortest) -> None:
        known = self.shortest.get(slo_class, shortest)
        self.shortest[slo_class] = Shortest(*map(min, zip(known, shortest, strict=True)))
        self.tenants.setdefault(tenant, set()).add(slo_class)

    def _add_prompt(self, tenant: str, slo_class: str, tokens: int) -> None:
        known = self.least_prompt.get((tenant, slo_class), tokens)
        self.least_prompt[tenant, slo_class] = min(known, tokens)

    def _add_clients(self, workload: Any) -> None:
        users, is_closed = 0, True
        for client in workload.clients:
            inputs, outputs = _bounds(client.input_tokens), _bounds(client.output_tokens)
            self._add(client.slo_class, client.tenant, Shortest(inputs[0], outputs[0]))
            self._add_prompt(client.tenant, client.slo_class, inputs[0] + client.prefix_tokens)
            turns = 1
            if client.arrivals.kind == "closed_loop":
                users += client.arrivals.users
                turns = client.arrivals.turns
            else:
                is_closed = False
            longest = client.prefix_tokens + turns * (inputs[1] + outputs[1])
            self.max_tokens = max(self.max_tokens, longest)
        if is_closed:
            self.max_concurrent = users
            self.concurrent_by = f"the closed-loop clients have {users:,} users"
        elif workload.num_requests is not None and not users:
            self.max_concurrent = workload.num_requests
            self.concurrent_by = f"the workload has {workload.num_requests:,} requests"

    def _add_trace(self, workload: Any) -> None:
        columns = workload._columns()
        # Empty if the requests were not read.
        if workload.transforms or not columns:
            return
        inputs, outputs = columns["input_tokens"], columns["output_tokens"]
        self.max_tokens = int((inputs.astype(np.int64) + outputs).max())
        shares = bool(workload.session_segments) or len(columns["segment_tokens"]) > 0
        codes = columns["slo_class"].astype(np.int64) << 32 | columns["tenant"].astype(np.int64)
        for code in np.unique(codes).tolist():
            rows = codes == code
            least = 1 if shares else int(inputs[rows].min())
            shortest = Shortest(max(least, 1), max(int(outputs[rows].min()), 1))
            name, tenant = columns["slo_classes"][code >> 32], columns["tenants"][code & 0xFFFFFFFF]
            self._add(name, tenant, shortest)
            self._add_prompt(tenant, name, int(inputs[rows].min()))
        self.max_concurrent = workload.rows
        self.concurrent_by = f"the trace has {workload.rows:,} requests"
        if workload.max_in_flight and workload.max_in_flight < workload.rows:
            self.max_concurrent = workload.max_in_flight
            self.concurrent_by = f"workload.max_in_flight is {workload.max_in_flight:,}"


def _bounds(tokens: Any) -> tuple[int, int]:
    """The least and the most tokens that a distribution yields."""
    if tokens.kind == "fixed":
        return tokens.tokens, tokens.tokens
    if tokens.kind == "empirical":
        return min(tokens.values), max(tokens.values)
    return tokens.min_tokens, tokens.max_tokens


def _alone(simulation: Simulation, shortest: Shortest) -> Alone:
    """The least latencies over the groups of instances; 0 if step times are random."""
    found = []
    for group in dict.fromkeys(
        group.replace(count=1, ingress="open", scheduler="fcfs") for group in simulation.instances
    ):
        if group.latency.kind == "jittered":
            return Alone(0, 0, 0, "")
        ttft_s, e2e_s = _latencies_s(simulation, group, shortest)
        # Overheads of a whole request cancel in the difference. Tokens only get slower as the
        # context grows, so the second one bounds the mean of all.
        two, three = (
            _latencies_s(simulation, group, shortest._replace(output_tokens=num))[1]
            for num in (2, 3)
        )
        rounding_s = 2e-9 * simulation.quantum_ns
        found.append((ttft_s, max(three - two - rounding_s, 0.0), e2e_s))
    with np.errstate(all="ignore"):
        best = np.nan_to_num(np.fmin.reduce(found), nan=0.0)
    text = (
        f"a request alone, with the least of {shortest.input_tokens:,} input and "
        f"{shortest.output_tokens:,} output tokens, takes at least"
    )
    ttft_s, tpot_s, e2e_s = best.tolist()
    return Alone(ttft_s, tpot_s, e2e_s, text)


def _latencies_s(
    simulation: Simulation, group: InstanceGroup, request: Shortest
) -> tuple[float, float]:
    """TTFT and E2E of one request without latencies of the gateway; NaN: refused."""
    tokens = {
        f"{name}_tokens": {"kind": "fixed", "tokens": getattr(request, f"{name}_tokens")}
        for name in ("input", "output")
    }
    single = Simulation(
        workload={"kind": "synthetic", "num_requests": 1, "clients": [tokens]},
        instances=group.replace(role="both"),
        metrics={"accounting": simulation.metrics.accounting},
        quantum_ns=simulation.quantum_ns,
    )
    with memory.explained([simulation]):
        record = _core.cluster.run(single, 0)["record"]
    return float(record.column("ttft_s")[0]), float(record.column("e2e_s")[0])
