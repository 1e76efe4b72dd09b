"""Agreement with the busy monitor of Dynamo 1.6.1, as its own code answered."""

from __future__ import annotations

from typing import Any

import pytest
from support.paths import vectors

from spillway import signals, testing

CASES = vectors("dynamo/busy_monitor")
VALUES = ("active_decode_blocks", "kv_used_blocks", "active_prefill_tokens")

pytestmark = pytest.mark.skipif(not CASES, reason="needs recorded answers of Dynamo")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"case-{case['id']}")
def test_worker_is_overloaded_after_the_same_reports(case: dict[str, Any]) -> None:
    """A worker that has declared no ranks has those that have reported, and no known capacity."""
    declared = case["declared_ranks"]
    monitor = testing.BusyMonitor(
        signals.BusyMonitor(
            active_decode_blocks_threshold=case["active_decode_blocks_threshold"],
            active_prefill_tokens_threshold=case["active_prefill_tokens_threshold"],
            active_prefill_tokens_threshold_frac=case["active_prefill_tokens_threshold_frac"],
        )
    )
    capacity = (
        {}
        if declared is None
        else {
            "kv_total_blocks": case["total_kv_blocks"],
            "max_num_batched_tokens": case["max_num_batched_tokens"],
        }
    )
    ranks: list[int] = list(range(declared or 0))
    for event in case["events"]:
        rank = event["rank"]
        if declared is None and rank not in ranks:
            ranks.append(rank)
        loads = [testing.RankLoad(**capacity) for _ in ranks]
        if rank in ranks:
            values = {name: event[name] for name in VALUES}
            loads[ranks.index(rank)] = testing.RankLoad(**capacity, **values)
        assert monitor.report(loads) == event["overloaded"]
