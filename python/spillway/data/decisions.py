"""What the router decided and what it saw."""

from __future__ import annotations

from typing import Any

import numpy as np

from spillway.data.columns import Table

__all__ = ["Decisions", "Rows"]


def __dir__() -> list[str]:
    return __all__


class Rows(Table):
    """Read-only columns about some of the requests; `row` is a request's position among all."""

    _key = "row"

    def of(self, row: int) -> dict[str, Any] | None:
        """What the columns say of the request of a row; None if nothing."""
        found = np.flatnonzero(self["row"] == row)
        if not found.size:
            return None
        return {name: column[found[0]] for name, column in self._columns.items()}


class Decisions(Rows):
    """One row per routing decision in order of time, as read-only columns.

    row (position of the request in order of arrival), time_s, instance (the chosen one), rank (of
    that instance), score (its score), regret (how much better the best score was). The best
    candidates of each decision stand in columns of shape (decisions, candidates), the best first:
    candidate_instance, candidate_rank (-1 where the policy rates instances as a whole rather than
    their data-parallel ranks), candidate_score; and, of the candidate's instance,
    candidate_waiting, candidate_running, candidate_in_flight, candidate_kv_utilization,
    candidate_age_s (of what the instance reported). A score is the policy's own, or minus the
    effective load for a policy that does not rate; minus infinity for an instance that a filter
    left out. Where fewer came into question than are logged, candidate_instance is -1.
    """
