"""Routing decisions and the candidates that the router saw."""

from __future__ import annotations

from typing import Any

import numpy as np

from spillway.data.column_table import Table


class Rows(Table):
    """Read-only columns about some of the requests; `row` is a request's position among all."""

    _key = "row"

    def of(self, row: int) -> dict[str, Any] | None:
        """The values of the request in a row; None if there are none."""
        found = np.flatnonzero(self["row"] == row)
        if not found.size:
            return None
        return {name: column[found[0]] for name, column in self._columns.items()}


class Decisions(Rows):
    """One row per routing decision in order of time, as read-only columns.

    row (position of the request in order of arrival), time_s, instance (the chosen one), rank (of
    that instance), score (its score), regret (how much better the best score was). Columns of shape
    (decisions, candidates) hold the best candidates of each decision, best first:
    candidate_instance, candidate_rank (-1 if the policy rates whole instances rather than their
    data-parallel ranks), candidate_score; and, of the candidate's instance, candidate_waiting,
    candidate_running, candidate_in_flight, candidate_kv_utilization, candidate_age_s (age of the
    report). A score is the policy's own, or minus the effective load if the policy does not rate
    instances; minus infinity for an instance that a filter removed. Where there are fewer
    candidates than logged columns, candidate_instance is -1.

    With prefill and decode pools a request may have two decisions, each among the instances of one
    pool; is_prefill (bool) marks those of the prefill pool.
    """
