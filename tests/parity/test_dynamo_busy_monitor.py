"""Agreement with the busy monitor of Dynamo 1.6.1, as its own code answered."""

from __future__ import annotations

from typing import Any

import pytest
from support.paths import vectors

from spillway import ConfigError, Simulation, signals, testing

CASES = vectors("dynamo/busy_monitor")
CONFIGURATIONS = vectors("dynamo/busy_threshold_config")
THRESHOLDS = (
    "active_decode_blocks_threshold",
    "active_prefill_tokens_threshold",
    "active_prefill_tokens_threshold_frac",
)
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


# ---- which thresholds it takes -------------------------------------------------------------------

SETTINGS = [case for case in CONFIGURATIONS if "config" in case]
UPDATES = [case for case in CONFIGURATIONS if "update" in case]
MUCH = testing.RankLoad(
    active_decode_blocks=10**9,
    kv_total_blocks=100,
    active_prefill_tokens=10**9,
    max_num_batched_tokens=100,
)


@pytest.mark.parametrize("case", SETTINGS, ids=lambda case: f"settings-{case['id']}")
def test_the_same_thresholds_are_valid_and_have_an_effect(case: dict[str, Any]) -> None:
    if case["error"] is not None:
        name = case["error"].split()[0]
        with pytest.raises(ConfigError, match=name):
            Simulation(busy_monitor=case["config"])
        return
    settings = Simulation(busy_monitor=case["config"]).busy_monitor
    assert testing.BusyMonitor(settings).report([MUCH]) == case["configured"]


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: f"update-{case['id']}")
def test_an_update_leaves_what_it_does_not_name(case: dict[str, Any]) -> None:
    """The text has the thresholds before the update and those that it names."""
    before, named = (
        {
            name: float(value) if "." in value else int(value)
            for name, value in zip(THRESHOLDS, text.split(", "), strict=True)
            if value != "-"
        }
        for text in case["update"].split(" then ")
    )
    changes = {f"busy_monitor.{name}": value for name, value in named.items()}
    after = Simulation(busy_monitor=before).with_(changes).busy_monitor
    assert {name: getattr(after, name) for name in THRESHOLDS} == case["result"]
