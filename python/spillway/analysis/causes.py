"""What the requests of a run spent their time on."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import _core
from spillway.config import formatting, memory
from spillway.config.extras import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from spillway.data.result_data import ResultData

MEANINGS: Mapping[str, str] = {
    "client": "earlier attempts of the client, and its pauses",
    "admission": "before a queue of the gateway",
    "gateway_queue": "in the queues of the gateway, for a permit",
    "ingress": "from its dispatch to the queue of the engine",
    "step_under_way": "until the step under way ended",
    "seats": "for a seat in the batch (max_num_seqs)",
    "kv_memory": "for KV memory (num_kv_blocks)",
    "token_budget": "for tokens of a step (max_num_batched_tokens)",
    "prefill_own": "in steps with its own prompt",
    "handoff": "from the end of its prefill to its transfer, for blocks of the decode server",
    "transfer": "to move its KV blocks to the decode server",
    "prefill_of_others": "added to its steps by prompts of others",
    "decode": "in steps without prompts",
    "lockstep": "added to its steps by other ranks",
    "preemption": "in the queue again, after a preemption",
    "recomputation": "to compute again what a preemption had discarded",
    "service": "on a server without steps",
    "failure": "until a server that failed, or another one, had brought it as far as before",
}
"""The causes in the order in which a request meets them."""

_SLOWEST = 0.01
_ALL = "all"


class TimeByCause:
    """The latencies of the completed requests of a run, divided into causes that add up to them.

    A wait for the engine belongs to the first check of its scheduler that refused: the tokens of a
    step, memory after a preemption, seats, memory. Of a step with tokens of a request's own prompt
    all is `prefill_own`; of any other, `prefill_of_others` is what prompts added to it and the rest
    `decode`. Drafts of speculative decoding count as prompts in steps that have prompts.

    To `failure` belongs the time in which the server where a request is, or to which it has been
    sent, does not serve because of a crash or hang. If the request then goes on at another server,
    all belongs to it until the end of the step after which as many of its tokens are in memory as
    it has lost, or, if none are lost, until it joins the queue there. What an attempt cost that
    failed is `client`; a slow server takes longer for `prefill_own` and `decode`.

    Attributes
    ----------
    names
        The causes.
    ns
        Nanoseconds, whole numbers: a row per offered request, a column per cause; zeros for
        requests that did not complete.
    fleet_s
        Seconds of all engines with steps by `prefill`, `decode`, `lockstep` and `idle`, up to the
        last event; empty if none has steps.
    """

    def __init__(
        self, result: ResultData, names: tuple[str, ...], ns: NDArray[np.int64], engines: Any
    ) -> None:
        self.names = names
        self.ns = ns
        self._result = result
        groups = result.simulation.instances
        has_steps = np.repeat(
            [group.plant.kind == "step_loop" for group in groups],
            [group.count * group.data_parallel_size for group in groups],
        )
        self.fleet_s: dict[str, float] = {}
        if has_steps.any():
            prefill, decode, lockstep = (float(value) / 1e9 for value in engines.sum(axis=0))
            whole = result.end_s * int(has_steps.sum())
            self.fleet_s = {
                "prefill": prefill,
                "decode": decode,
                "lockstep": lockstep,
                "idle": max(whole - prefill - decode - lockstep, 0.0),
            }

    @functools.cached_property
    def _rows(self) -> NDArray[np.bool_]:
        rows: NDArray[np.bool_] = self.ns.sum(axis=1) > 0
        return rows

    def seconds(self, row: int) -> dict[str, float]:
        """The causes of one request that took time, in order, in seconds."""
        pairs = zip(self.names, self.ns[row].tolist(), strict=True)
        return {name: value / 1e9 for name, value in pairs if value}

    def column_s(self, name: str) -> NDArray[np.float64]:
        """The seconds of a cause, of each offered request."""
        seconds: NDArray[np.float64] = self.ns[:, self.names.index(name)] / 1e9
        return seconds

    def mean_s(self, rows: NDArray[np.bool_] | None = None) -> dict[str, float]:
        """Mean seconds per completed request by cause, of all requests or of some rows."""
        chosen = self._rows if rows is None else self._rows & rows
        count = max(int(chosen.sum()), 1)
        sums = self.ns[chosen].sum(axis=0)
        return {name: float(sums[i]) / count / 1e9 for i, name in enumerate(self.names)}

    def share(self, rows: NDArray[np.bool_] | None = None) -> dict[str, float]:
        """The share of each cause in the latencies, of all requests or of some rows."""
        means = self.mean_s(rows)
        total = sum(means.values()) or 1.0
        return {name: value / total for name, value in means.items()}

    def slowest(self) -> NDArray[np.bool_]:
        """The slowest hundredth of the completed requests, at least one."""
        total = self.ns.sum(axis=1)
        chosen = np.zeros(len(total), dtype=bool)
        most = max(1, int(_SLOWEST * int(self._rows.sum())))
        chosen[np.argsort(total, kind="stable")[len(total) - most :]] = True
        return chosen & self._rows

    def groups(self) -> dict[str, dict[str, float]]:
        """Mean seconds by cause of all requests, of each class and of each tenant."""
        found = {_ALL: self.mean_s()}
        requests = self._result.requests
        for column in ("slo_class", "tenant"):
            names = requests[column]
            for name in dict.fromkeys(names[self._rows].tolist()):
                found[f"{column} {name}"] = self.mean_s(names == name)
        return found

    def to_frame(self) -> pd.DataFrame:
        """Mean seconds: a row per group, a column per cause (extra `frames`)."""
        pandas = require("pandas", "frames")
        frame: pd.DataFrame = pandas.DataFrame.from_dict(self.groups(), orient="index")
        return frame.rename_axis("group").reset_index()

    def to_dict(self) -> dict[str, Any]:
        """Mean seconds by group and cause, of the slowest hundredth, and seconds of the fleet."""
        return {
            "mean_s": self.groups(),
            "slowest_s": self.mean_s(self.slowest()),
            "fleet_s": self.fleet_s,
        }

    def rows(self) -> list[list[str]]:
        """The causes that took time as a table, below a header."""
        means, shares = self.mean_s(), self.share()
        slow_s, slow = self.mean_s(self.slowest()), self.share(self.slowest())
        header = ["cause", "mean ms", "share", "slowest 1%: ms", "share", "where"]
        return [
            header,
            *(
                [
                    name,
                    formatting.number(means[name] * 1e3),
                    f"{shares[name]:.1%}",
                    formatting.number(slow_s[name] * 1e3),
                    f"{slow[name]:.1%}",
                    MEANINGS[name],
                ]
                for name in self.names
                if means[name] or slow_s[name]
            ),
        ]

    def __repr__(self) -> str:
        whole = sum(self.fleet_s.values()) or 1.0
        fleet = ", ".join(f"{name} {value / whole:.1%}" for name, value in self.fleet_s.items())
        return f"{formatting.table(self.rows())}\n\nservers: {fleet or 'without steps'}"


def time_by_cause(result: ResultData) -> TimeByCause:
    """See `Result.time_by_cause`."""
    simulation = result.simulation
    result._columns()  # raises if the requests were not kept
    if simulation.metrics.accounting != "clock":
        raise _core.sim.UsageError(
            "causes are times between events: they need metrics.accounting = clock, and this run "
            f"has {simulation.metrics.accounting}"
        )
    with memory.explained([simulation]):
        output, names, ns, engines = _core.cluster.time_by_cause(simulation, result.seed)
    if type(result)(simulation, result.seed, output).outcome_digest != result.outcome_digest:
        raise _core.sim.UsageError(
            "the run cannot be repeated: the same settings and seed give other outcomes here, as "
            "after a change of version, or with a policy that is not deterministic"
        )
    return TimeByCause(result, names, ns, engines)
