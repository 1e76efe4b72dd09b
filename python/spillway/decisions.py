"""What the router decided, and what it saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.report import tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spillway.results import Result

_CANDIDATE = "candidate_"


class Decisions(Mapping[str, "NDArray[Any]"]):
    """One row per routing decision in order of time, as read-only columns.

    row (position of the request in order of arrival), time_s, instance (the chosen one), score (its
    score), regret (how much better the best score was). The best candidates of each decision stand
    in columns of shape (decisions, candidates), the best first: candidate_instance,
    candidate_score, candidate_waiting, candidate_running, candidate_in_flight,
    candidate_kv_utilization, candidate_age_s (of what the instance reported). A score is the
    policy's own, or minus the effective load for a policy that does not rate.
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"<Decisions: {len(self['row'])} rows, columns {', '.join(self)}>"

    def of(self, row: int) -> dict[str, Any] | None:
        """The decision about the request of a row: a value per column; None if there was none."""
        found = np.flatnonzero(self["row"] == row)
        if not found.size:
            return None
        return {name: column[found[0]] for name, column in self._columns.items()}


def explain(result: Result, request_id: str) -> str:
    """What became of a request and why, as text. Raises KeyError if there is no such request."""
    requests = result.requests
    rows = np.flatnonzero(requests["request_id"] == request_id)
    if not rows.size:
        raise KeyError(request_id)
    row = int(rows[0])
    reason = str(requests["reason"][row])
    outcome = str(requests["outcome"][row]) + (f" ({reason})" if reason else "")
    who = f"tenant {requests['tenant'][row]}, class {requests['slo_class'][row]}"
    arrival = f"{requests['arrival_s'][row]:.6f} s with {requests['input_tokens'][row]}"
    lines = [
        f"request {request_id} of {who}: {outcome}",
        f"arrived at {arrival} input tokens",
    ]
    times = [
        f"{name.removesuffix('_s')} {float(requests[name][row]) * 1e3:.3f} ms"
        for name in ("queue_s", "scheduling_delay_s", "ttft_s", "e2e_s")
        if not np.isnan(requests[name][row])
    ]
    if times:
        lines.append(", ".join(times))
    decision = result.decisions.of(row)
    if decision is None:
        lines.append("it was never routed")
        return "\n".join(lines)
    lines.append(
        f"routed at {decision['time_s']:.6f} s to instance {decision['instance']}, "
        f"score {decision['score']:.6g}, regret {decision['regret']:.6g}"
    )
    names = [name for name in decision if name.startswith(_CANDIDATE)]
    header = [name.removeprefix(_CANDIDATE).replace("_", " ") for name in names]
    body = [
        [tables.number(value.item()) for value in values]
        for values in zip(*(decision[name] for name in names), strict=True)
    ]
    return "\n".join([*lines, "", tables.table([header, *body])])
