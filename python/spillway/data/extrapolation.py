"""Remarks on runs that leave what their servers were fitted to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spillway.data.result_data import ResultData


MOST_OUTSIDE = 0.05
"""A run may spend this share of its time outside the fitted batch states without a remark."""


def extrapolations(result: ResultData) -> list[str]:
    """The groups that ran too long outside the batch states of the fit of their server."""
    found = []
    for row in result.fitted_states:
        if row["outside"] <= MOST_OUTSIDE * row["states"]:
            continue
        corners = result.simulation.instances[row["group"]].fitted_states
        requests = max(corner.running_requests for corner in corners)
        tokens = max(corner.kv_tokens for corner in corners)
        found.append(
            f"instances[{row['group']}] ran {row['outside'] / row['states']:.0%} of its time "
            "outside the batches that its step times were fitted to: at most "
            f"{requests:,.0f} requests and {tokens:,.0f} tokens in KV memory, here "
            f"{row['most_running_requests']:,.0f} and {row['most_kv_tokens']:,.0f}; "
            "its latencies there are extrapolated."
        )
    return found
