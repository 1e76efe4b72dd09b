"""Settings of a simulation that cannot work, found from the configuration alone."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spillway import _core
from spillway._core.cluster import Simulation
from spillway.config import memory
from spillway.config.formatting import setting
from spillway.loading import as_simulation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway._core.instance import InstanceGroup
    from spillway.loading import Configuration

__all__ = ["BUCKET_EDGES_S", "Finding", "check"]


class Finding(NamedTuple):
    """A setting that cannot work: its dotted path, and the reason as a sentence."""

    path: str
    """Path of the setting, such as `gateway.sensor.window_s`."""
    text: str
    """Why it cannot work, with the values that show it."""
    is_refused: bool = False
    """Whether `spillway check` fails because of it."""

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def check(simulation: Configuration) -> list[Finding]:
    """The settings of a simulation that cannot work; empty if none was found.

    `simulation` is a Simulation or the path of a configuration file. The checks compare settings
    with each other and with requests that arrive alone at an idle server. They are bounds: each
    finding holds for every run of the simulation, under any seed; one that needs a load says so. An
    empty list does not show that the settings are good ones. The checks cover

    - a sensor of histograms whose window is shorter than the interval of the controller;
    - a controller whose band lies beyond the buckets of the histogram, or within one of them;
    - a floor of the limit at which the controller has no signal to raise the limit again;
    - a target of a controller, a class or a predictor below the latency of a request alone, and a
      predictor without any;
    - a controller of latencies since arrival that cuts at less than the timeout of the queue: under
      overload the wait alone exceeds its target, and cuts prolong the wait;
    - a client timeout below the latency of a request alone;
    - a token bucket or a rate limit that no request passes (`is_refused`);
    - a limit above the number of requests that can be in the system at once, or of their tokens;
    - a part of a dual limit that its other part never lets bind;
    - a threshold of the KV utilization that `max_num_seqs` requests cannot fill;
    - a threshold of `busy_monitor` that the requests in flight cannot exceed. The gateway's count
      of blocks includes requests that wait in the engine: `max_num_seqs` does not bound it.

    Raises ConfigError or TraceError if the file is invalid, TypeError for anything else.

    Examples
    --------
    >>> import spillway
    >>> spillway.check(spillway.Simulation())
    []
    """
    simulation = as_simulation(simulation)
    demand = _Demand(simulation)
    alone = {name: _alone(simulation, shortest) for name, shortest in demand.shortest.items()}
    return [
        *_sensor_window(simulation),
        *_band(simulation),
        *_floor(simulation, alone),
        *_controller_target(simulation, alone),
        *_queue_timeout(simulation),
        *_class_targets(simulation, alone),
        *_predictor_budgets(simulation, alone),
        *_token_limits(simulation, demand),
        *_client_timeouts(simulation, demand, alone),
        *_limits(simulation, demand),
        *_kv_thresholds(simulation, demand),
        *_busy_thresholds(simulation, demand),
    ]


# ---- what arrives --------------------------------------------------------------------------------


class _Shortest(NamedTuple):
    """Lower bounds of the tokens of the requests of a class, without shared prefixes."""

    input_tokens: int
    output_tokens: int


class _Alone(NamedTuple):
    """Lower bounds of the latencies of a class, from requests alone at an idle server."""

    ttft_s: float
    tpot_s: float
    e2e_s: float
    request: str

    def of(self, metric: str) -> float:
        """The latency of this name."""
        value: float = getattr(self, f"{metric}_s")
        return value


class _Demand:
    """Bounds on the requests of a workload: their tokens, their number, their concurrency."""

    def __init__(self, simulation: Simulation) -> None:
        self.shortest: dict[str, _Shortest] = {}  # by class
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

    def _add(self, slo_class: str, tenant: str, shortest: _Shortest) -> None:
        known = self.shortest.get(slo_class, shortest)
        self.shortest[slo_class] = _Shortest(*map(min, zip(known, shortest, strict=True)))
        self.tenants.setdefault(tenant, set()).add(slo_class)

    def _add_prompt(self, tenant: str, slo_class: str, tokens: int) -> None:
        known = self.least_prompt.get((tenant, slo_class), tokens)
        self.least_prompt[tenant, slo_class] = min(known, tokens)

    def _add_clients(self, workload: Any) -> None:
        users, is_closed = 0, True
        for client in workload.clients:
            inputs, outputs = _bounds(client.input_tokens), _bounds(client.output_tokens)
            self._add(client.slo_class, client.tenant, _Shortest(inputs[0], outputs[0]))
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
            shortest = _Shortest(max(least, 1), max(int(outputs[rows].min()), 1))
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


def _alone(simulation: Simulation, shortest: _Shortest) -> _Alone:
    """The least latencies over the groups of instances; 0 if step times are random."""
    found = []
    for group in dict.fromkeys(
        group.replace(count=1, ingress="open", scheduler="fcfs") for group in simulation.instances
    ):
        if group.latency.kind == "jittered":
            return _Alone(0, 0, 0, "")
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
    return _Alone(ttft_s, tpot_s, e2e_s, text)


def _latencies_s(
    simulation: Simulation, group: InstanceGroup, request: _Shortest
) -> tuple[float, float]:
    """TTFT and E2E of one request without latencies of the gateway; NaN: refused."""
    tokens = {
        f"{name}_tokens": {"kind": "fixed", "tokens": getattr(request, f"{name}_tokens")}
        for name in ("input", "output")
    }
    single = Simulation(
        workload={"kind": "synthetic", "num_requests": 1, "clients": [tokens]},
        instances=group,
        metrics={"accounting": simulation.metrics.accounting},
        quantum_ns=simulation.quantum_ns,
    )
    with memory.explained([simulation]):
        record = _core.cluster.run(single, 0)["record"]
    return float(record.column("ttft_s")[0]), float(record.column("e2e_s")[0])


# ---- controllers ---------------------------------------------------------------------------------

# Controllers that do nothing while the sensor has no value.
_NEED_A_SIGNAL = ("aimd", "mimd", "pid", "vegas", "gradient2")
# Sources that have a value without requests, and to which aggregation and window do not apply.
_READ_AT_TICKS = ("kv_utilization", "hit_rate")

BUCKET_EDGES_S = (
    *(0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5),
    *(7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 450, 600),
)
"""Upper edges of the buckets of a `bucketed_quantile` sensor, in seconds; those of the core."""


def _reads_samples(simulation: Simulation) -> bool:
    gateway = simulation.gateway
    return gateway.controller.kind in _NEED_A_SIGNAL and gateway.sensor.source not in _READ_AT_TICKS


def _sensor_window(simulation: Simulation) -> Iterator[Finding]:
    sensor = simulation.gateway.sensor
    interval_s = sensor.tick_s + sensor.tick_drift_s
    if not _reads_samples(simulation) or sensor.aggregation != "bucketed_quantile":
        return
    if sensor.window_s < interval_s:
        yield Finding(
            "gateway.sensor.window_s",
            f"the controller never has a signal: the window of {setting(sensor.window_s)} s is "
            f"shorter than the interval between ticks, tick_s + tick_drift_s = "
            f"{interval_s:g} s, so the histogram at its start is always the one at its end.",
        )


def _band(simulation: Simulation) -> Iterator[Finding]:
    gateway = simulation.gateway
    controller = gateway.controller
    if controller.kind not in ("aimd", "mimd") or not _reads_samples(simulation):
        return
    if gateway.sensor.aggregation != "bucketed_quantile":
        return
    low_s = controller.target_s * (1 - controller.band)
    high_s = controller.target_s * (1 + controller.band)
    band = (
        f"target_s {controller.target_s:g} and band {controller.band:g} hold the limit from "
        f"{low_s:g} to {high_s:g} s"
    )
    if high_s >= BUCKET_EDGES_S[-1]:
        yield Finding(
            "gateway.controller.target_s",
            f"the controller never cuts the limit: {band}, and no quantile of the histogram "
            f"exceeds its highest edge, {BUCKET_EDGES_S[-1]:g} s.",
        )
        return
    edges = (0.0, *BUCKET_EDGES_S)
    for lower_s, upper_s in itertools.pairwise(edges):
        if lower_s < low_s and high_s < upper_s:
            yield Finding(
                "gateway.controller.band",
                f"the sensor cannot resolve the band: {band}, inside one bucket of the histogram, "
                f"{lower_s:g} to {upper_s:g} s; where a reading lies within a bucket is "
                "interpolated.",
            )


def _floor(simulation: Simulation, alone: dict[str, _Alone]) -> Iterator[Finding]:
    gateway, guard = simulation.gateway, simulation.gateway.guard
    sensor = gateway.sensor
    if not _reads_samples(simulation) or sensor.includes_refusals:
        return
    floor = guard.floor
    if guard.rounding != "none":
        floor = math.floor(floor if guard.rounding == "floor" else floor + 0.5)
    if floor < 1 and (floor == 0 or guard.rounding != "none"):
        yield Finding(
            "gateway.guard.floor",
            f"the floor is absorbing: {guard.floor:g} permits, rounding {guard.rounding}, let the "
            f"limit fall to 0; then no request gives the sensor a value (source {sensor.source}), "
            "and nothing raises the limit again.",
        )
        return
    least_s = _least_hold_s(simulation, alone)
    kinds = {limit.kind for limit in gateway.limit}
    if kinds != {"fixed"} or least_s <= 0 or sensor.scope == "max_over_tenants":
        return
    permits = math.ceil(floor)
    most = permits * gateway.replicas * (math.floor(sensor.window_s / least_s) + 1)
    if most < sensor.min_samples:
        yield Finding(
            "gateway.guard.floor",
            f"the floor is absorbing: at {permits:,} permits, each held for at least "
            f"{least_s:.4g} s, a window of {sensor.window_s:g} s has at most {most:,} samples, "
            f"fewer than min_samples = {sensor.min_samples:,}, and nothing raises the limit again.",
        )


def _least_hold_s(simulation: Simulation, alone: dict[str, _Alone]) -> float:
    """The least time between two samples of a permit."""
    least_s = min((latencies.ttft_s for latencies in alone.values()), default=0.0)
    # A request that ends early leaves its permit after its first token at any time.
    if not _ends_early(simulation):
        least_s += min(
            (latencies.e2e_s - latencies.ttft_s for latencies in alone.values()), default=0.0
        )
    return least_s


def _ends_early(simulation: Simulation) -> bool:
    """Whether a request in flight may end before its last token."""
    reactions = [simulation.reaction, *(tenant.reaction for tenant in simulation.tenants)]
    return simulation.gateway.eviction.max_victims > 0 or any(
        reaction is not None
        and (reaction.timeout_s, reaction.first_token_timeout_s, reaction.deadline_s)
        != (None, None, None)
        for reaction in reactions
    )


def _controller_target(simulation: Simulation, alone: dict[str, _Alone]) -> Iterator[Finding]:
    gateway = simulation.gateway
    source = gateway.sensor.source
    controller = gateway.controller
    if controller.kind not in ("aimd", "mimd") or source not in ("ttft", "e2e"):
        return
    if not alone or gateway.sensor.includes_refusals or gateway.sensor.quantile == 0:
        return
    shortest = min(alone.values(), key=lambda latencies: latencies.of(source))
    least_s = shortest.of(source)
    high_s = controller.target_s * (1 + controller.band)
    # A reading of a histogram is no lower than the lower edge of the bucket of its least sample.
    if gateway.sensor.aggregation == "bucketed_quantile":
        floor_s = max((edge_s for edge_s in BUCKET_EDGES_S if edge_s < least_s), default=0.0)
    else:
        floor_s = least_s
    if floor_s > high_s:
        yield Finding(
            "gateway.controller.target_s",
            f"the controller always cuts the limit, down to guard.floor = "
            f"{gateway.guard.floor:g}: it cuts above {high_s:g} s, and {shortest.request} "
            f"{least_s:.4g} s ({source}).",
        )


def _queue_timeout(simulation: Simulation) -> Iterator[Finding]:
    """Controllers to which the wait that their own cuts cause looks like slow servers."""
    gateway = simulation.gateway
    controller, sensor = gateway.controller, gateway.sensor
    if controller.kind not in ("aimd", "mimd") or sensor.source not in ("ttft", "e2e"):
        return
    is_least = sensor.aggregation == "min" or (
        sensor.aggregation.endswith("quantile") and sensor.quantile == 0
    )
    if is_least or gateway.limit[0].kind == "unlimited":
        return
    # A bound on the queue also bounds the wait, by an amount that the settings do not show.
    if gateway.max_queued is not None or any(
        tenant.queue_max is not None for tenant in simulation.tenants
    ):
        return
    high_s = controller.target_s * (1 + controller.band)
    for i, band in enumerate(gateway.bands):
        queue = band.queue
        is_bounded = queue.max_requests is not None or queue.codel_target_s is not None
        if is_bounded or "lifo" in queue.ordering or queue.timeout_s is None:
            continue
        if queue.timeout_s > high_s:
            yield Finding(
                "gateway.controller.target_s",
                "under overload the controller cuts the limit whatever the servers do: it cuts "
                f"above {high_s:g} s ({sensor.source}, which includes the wait in the gateway), "
                f"and requests wait up to gateway.bands[{i}].queue.timeout_s = "
                f"{queue.timeout_s:g} s. Each cut prolongs the wait, down to guard.floor = "
                f"{gateway.guard.floor:g}.",
            )
            return


# ---- targets and timeouts ------------------------------------------------------------------------


def _class_targets(simulation: Simulation, alone: dict[str, _Alone]) -> Iterator[Finding]:
    for slo_class in simulation.slo_classes:
        if slo_class.name not in alone:
            continue
        least = alone[slo_class.name]
        for metric in ("ttft", "tpot", "e2e"):
            target_s = getattr(slo_class, f"target_{metric}_s")
            if target_s is not None and target_s < least.of(metric):
                yield Finding(
                    f"slo_classes[{slo_class.name}].target_{metric}_s",
                    f"no request meets the target of {target_s:g} s: {least.request} "
                    f"{least.of(metric):.4g} s.",
                )


def _predictor_budgets(simulation: Simulation, alone: dict[str, _Alone]) -> Iterator[Finding]:
    for i, policy in enumerate(simulation.gateway.admission):
        if policy.kind != "predictive_ttft":
            continue
        budgets = {budget.slo_class for budget in policy.budgets}
        budgets |= {
            slo_class.name
            for slo_class in simulation.slo_classes
            if slo_class.target_ttft_s is not None
        }
        if alone and budgets.isdisjoint(alone):
            yield Finding(
                f"gateway.admission[{i}].budgets",
                "every request is admitted: no class with requests has a budget or, without one, a "
                f"target_ttft_s ({', '.join(sorted(alone))}).",
            )
        for budget in policy.budgets:
            least = alone.get(budget.slo_class)
            if least is not None and budget.budget_s < least.ttft_s:
                yield Finding(
                    f"gateway.admission[{i}].budgets[{budget.slo_class}].budget_s",
                    f"no request meets the budget of {budget.budget_s:g} s: {least.request} "
                    f"{least.ttft_s:.4g} s to its first token.",
                )


def _token_limits(simulation: Simulation, demand: _Demand) -> Iterator[Finding]:
    """Buckets and windows that hold less than every prompt."""
    prompts = demand.least_prompt
    for i, policy in enumerate(simulation.gateway.admission):
        path = f"gateway.admission[{i}]"
        if policy.kind == "token_bucket" and prompts:
            least = min(prompts.values())
            if policy.capacity_tokens < least:
                yield Finding(
                    f"{path}.capacity_tokens",
                    f"no request is admitted: the bucket holds {policy.capacity_tokens:,g} tokens, "
                    f"and every prompt has at least {least:,}.",
                    is_refused=True,
                )
        elif policy.kind == "tenant_token_bucket":
            for j, own in enumerate(policy.own):
                least_own = min(
                    (tokens for (tenant, _), tokens in prompts.items() if tenant == own.tenant),
                    default=0,
                )
                if own.capacity_tokens < least_own:
                    yield Finding(
                        f"{path}.own[{j}].capacity_tokens",
                        f"no request of tenant {own.tenant} is admitted: its bucket holds "
                        f"{own.capacity_tokens:,g} tokens, and every prompt has at least "
                        f"{least_own:,}.",
                        is_refused=True,
                    )
        elif policy.kind == "rate_limit" and policy.charge == "reserve" and policy.max_tokens:
            reserved = {entry.slo_class: entry.output_tokens for entry in policy.reserved_of_class}
            least = min(
                (
                    (policy.tokens != "output") * tokens
                    + (policy.tokens != "prompt")
                    * reserved.get(slo_class, policy.reserved_output_tokens)
                    for (_, slo_class), tokens in prompts.items()
                ),
                default=0,
            )
            if not policy.own and policy.max_tokens < least:
                yield Finding(
                    f"{path}.max_tokens",
                    f"no request is admitted: a window has {policy.max_tokens:,} tokens, and every "
                    f"request reserves at least {least:,} (reserved_output_tokens included).",
                    is_refused=True,
                )


def _client_timeouts(
    simulation: Simulation, demand: _Demand, alone: dict[str, _Alone]
) -> Iterator[Finding]:
    reactions = {tenant.name: tenant.reaction for tenant in simulation.tenants}
    for tenant, slo_classes in demand.tenants.items():
        reaction, where = reactions.get(tenant), f"tenants[{tenant}].reaction"
        if reaction is None:
            reaction, where = simulation.reaction, "reaction"
        limits = (("timeout_s", "e2e"), ("first_token_timeout_s", "ttft"), ("deadline_s", "e2e"))
        for name, metric in limits:
            limit_s = getattr(reaction, name)
            least = min(
                (alone[slo_class] for slo_class in slo_classes),
                key=lambda latencies: latencies.of(metric),
            )
            if limit_s is not None and limit_s < least.of(metric):
                yield Finding(
                    f"{where}.{name}",
                    f"every client of tenant {tenant} gives up: after {limit_s:g} s, and "
                    f"{least.request} {least.of(metric):.4g} s.",
                )


# ---- limits and thresholds -----------------------------------------------------------------------


def _limits(simulation: Simulation, demand: _Demand) -> Iterator[Finding]:
    gateway = simulation.gateway
    if gateway.usage_limit.kind != "static":
        return
    controlled = gateway.controller.kind != "static"
    share = min(1.0, *(band.ceiling for band in gateway.bands))
    for i, limit in enumerate(gateway.limit):
        path = f"gateway.limit[{i}]"
        for name, moves, per_permit, meaning in _permits(simulation, limit, demand):
            value = getattr(limit, name)
            least = min(value, gateway.guard.floor if controlled and moves else math.inf)
            if least * per_permit * share >= demand.max_concurrent:
                floor = f", and no less than guard.floor = {gateway.guard.floor:g}"
                yield Finding(
                    f"{path}.{name}",
                    f"the limit cannot bind: it is {setting(value)}{meaning}"
                    f"{floor if controlled and moves else ''}, and {demand.concurrent_by}.",
                )
        if limit.kind == "dual_limit" and not controlled:
            first, total = limit.max_awaiting_first_token, limit.max_in_flight
            if total <= first < demand.max_concurrent:
                yield Finding(
                    f"{path}.max_awaiting_first_token",
                    f"the limit cannot bind: it is {first:,}, and max_in_flight is {total:,}.",
                )


def _permits(
    simulation: Simulation, limit: Any, demand: _Demand
) -> Iterator[tuple[str, bool, float, str]]:
    """The settings of a limit: name, whether a controller moves it, requests per unit, remark."""
    if limit.kind in ("fixed", "per_tenant", "dual_limit"):
        yield "max_in_flight", True, 1, ""
    if limit.kind == "dual_limit":
        yield "max_awaiting_first_token", False, 1, ""
    if limit.kind == "token_budget" and demand.max_tokens:
        tokens = demand.max_tokens + limit.assumed_output_tokens
        remark = f" tokens for requests of at most {tokens:,} (assumed_output_tokens included)"
        yield "max_tokens_in_flight", True, 1 / tokens, remark
    workers = _num_instances(simulation)
    if limit.kind == "worker_budget":
        workers = workers if limit.workers is None else limit.workers
        if workers is not None:
            yield "cap_per_worker", True, workers, f" x {workers:,} workers"
    elif limit.kind == "saturation" and limit.detector == "concurrency" and workers is not None:
        yield "max_concurrency", False, workers, f" x {workers:,} instances"


def _num_instances(simulation: Simulation) -> int | None:
    """The number of instances; None if it changes during the run."""
    fleet = simulation.fleet
    sizes = (fleet.initial_instances, fleet.target_instances)
    changes = any("fleet.target_instances" in change.set for change in simulation.changes)
    if fleet.autoscaler.kind != "none" or sizes != (None, None) or changes:
        return None
    return sum(group.count for group in simulation.instances)


def _kv_thresholds(simulation: Simulation, demand: _Demand) -> Iterator[Finding]:
    if not demand.max_tokens:
        return
    highest, arithmetic = 0.0, ""
    for group in simulation.instances:
        if group.plant.kind != "step_loop":
            return
        tokens = min(demand.max_tokens, group.max_model_len or demand.max_tokens)
        blocks = -(-tokens // group.block_size_tokens)
        share = group.max_num_seqs * blocks / group.num_kv_blocks
        if share > highest:
            highest = share
            arithmetic = (
                f"max_num_seqs {group.max_num_seqs:,} x {blocks:,} blocks (at most {tokens:,} "
                f"tokens in blocks of {group.block_size_tokens}) fill at most {share:.1%} of "
                f"{group.num_kv_blocks:,} blocks"
            )
    for path, threshold in _thresholds(simulation):
        if threshold > highest:
            yield Finding(
                path, f"the KV threshold {threshold:g} is never reached by requests: {arithmetic}."
            )


def _thresholds(simulation: Simulation) -> Iterator[tuple[str, float]]:
    """The thresholds of the KV utilization, with their paths."""
    gateway = simulation.gateway
    for name in ("admission", "limit"):
        for i, policy in enumerate(getattr(gateway, name)):
            if getattr(policy, "detector", "") == "utilization":
                yield (
                    f"gateway.{name}[{i}].kv_utilization_threshold",
                    policy.kv_utilization_threshold,
                )
    if gateway.controller.kind == "concur":
        yield "gateway.controller.high_kv_utilization", gateway.controller.high_kv_utilization
    for i, filter_ in enumerate(getattr(simulation.router, "filters", ())):
        if filter_.kind == "utilization":
            path = f"router.filters[{i}].kv_utilization_threshold"
            yield path, filter_.kv_utilization_threshold * (1 + filter_.headroom)


def _busy_thresholds(simulation: Simulation, demand: _Demand) -> Iterator[Finding]:
    most, why = _most_in_flight(simulation, demand)
    if not demand.max_tokens or most == math.inf:
        return
    share, arithmetic = max(
        (
            most * -(-demand.max_tokens // group.block_size_tokens) / group.num_kv_blocks,
            group.num_kv_blocks,
        )
        for group in simulation.instances
    )
    for path, threshold in _busy_thresholds_over_time(simulation):
        if threshold is not None and threshold >= share:
            yield Finding(
                path,
                f"no rank ever exceeds the threshold {threshold:g}: {why}, and {most:,} requests "
                f"of at most {demand.max_tokens:,} tokens are at most {share:.1%} of "
                f"{arithmetic:,} blocks.",
            )


def _busy_thresholds_over_time(simulation: Simulation) -> Iterator[tuple[str, float | None]]:
    """The threshold of KV blocks at the start and as it is changed to, with their paths."""
    path = "busy_monitor.active_decode_blocks_threshold"
    yield path, simulation.busy_monitor.active_decode_blocks_threshold
    for i, change in enumerate(simulation.changes):
        yield f"changes[{i}].set[{path}]", change.set.get(path)


def _most_in_flight(simulation: Simulation, demand: _Demand) -> tuple[float, str]:
    """The most requests that the gateway has sent to instances at once, and why."""
    gateway = simulation.gateway
    most, why = demand.max_concurrent, demand.concurrent_by
    if gateway.controller.kind != "static" or _ends_early(simulation):
        return most, why
    for i, limit in enumerate(gateway.limit):
        if limit.kind in ("fixed", "dual_limit"):
            permits = limit.max_in_flight * gateway.replicas
            if permits < most:
                most, why = permits, f"gateway.limit[{i}].max_in_flight is {limit.max_in_flight:,}"
                if gateway.replicas > 1:
                    why += f" in each of {gateway.replicas:,} replicas"
    return most, why
