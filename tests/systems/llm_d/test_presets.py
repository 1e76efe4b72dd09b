"""Flow control of llm-d."""

from __future__ import annotations

from typing import Any

import pytest

from spillway import ConfigError, Simulation, gateway, signals, simulate, workload
from spillway.systems.llm_d import presets as llm_d

PARAMETERS: dict[str, dict[str, Any]] = {
    "llm-d-flow-control": {
        "version": "2026-05",
        "priorities": [4, 3, -2],
        "detector": "concurrency",
        "fairness": "round_robin",
        "ordering": "edf",
        "usage_limit": {"kind": "priority_holdback", "min_ceiling": 0.4},
        "evicts_in_flight": True,
    }
}
OUT_OF_RANGE: list[tuple[str, str, Any]] = [
    ("llm-d-flow-control", "priorities", 4),
    ("llm-d-flow-control", "detector", "smoke"),
    ("llm-d-flow-control", "fairness", 0),
    ("llm-d-flow-control", "ordering", "random"),
    ("llm-d-flow-control", "evicts_in_flight", "yes"),
]


def asked_by(tenant: str) -> workload.Synthetic:
    return workload.Synthetic(clients=[workload.Client(tenant=tenant)])


def test_flow_control_has_the_defaults_of_llm_d() -> None:
    preset = llm_d.flow_control()
    ours = preset.gateway
    assert [band.priority for band in ours.bands] == [4, 3, -1, -2, -3, 0]
    assert {band.ceiling for band in ours.bands} == {1}
    assert {band.max_requests for band in ours.bands} == {5000}
    assert {band.queue.timeout_s for band in ours.bands} == {60}
    assert {band.fairness for band in ours.bands} == {gateway.GlobalFifo(order="ordering")}
    assert {band.queue.ordering for band in ours.bands} == {"fcfs"}
    assert (ours.dispatch, ours.attempt_period_s) == ("one_per_cycle", 0.001)
    assert ours.expiry_period_s == 1
    (limit,) = ours.limit
    assert limit == gateway.Saturation(
        queue_depth_threshold=5, kv_utilization_threshold=0.8, max_concurrency=100
    )
    assert ours.usage_limit == gateway.StaticCeilings()
    assert ours.max_queued is None
    assert ours.eviction == gateway.Eviction(max_victims=0, grace_s=0.5, timeout_s=10)
    assert llm_d.flow_control(evicts_in_flight=True).gateway.eviction.max_victims == 2
    assert (preset.signals.period_s, preset.signals.stale_after_s) == (0.05, 0.2)


def test_flow_control_of_may_waits_forever() -> None:
    older = llm_d.flow_control(version="2026-05").gateway
    newer = llm_d.flow_control(version="2026-08").gateway
    assert {band.queue.timeout_s for band in older.bands} == {None}
    assert (older.dispatch, older.expiry_period_s) == ("one_per_attempt", 0)
    assert {band.fairness for band in older.bands} == {gateway.GlobalFifo()}
    bands = [
        band.with_({"queue.timeout_s": 60, "fairness.order": "ordering"}) for band in older.bands
    ]
    bands.append(bands[0].replace(priority=0))
    changes = {"bands": bands, "dispatch": "one_per_cycle", "expiry_period_s": 1}
    assert older.with_(changes) == newer
    las = gateway.LeastAttainedService(half_life_s=5)
    (band, _) = llm_d.flow_control(priorities=[4], fairness=las).gateway.bands
    assert band.fairness == las.replace(decay="always", scope="gateway")
    (band,) = llm_d.flow_control(version="2026-05", priorities=[4], fairness=las).gateway.bands
    assert band.fairness == las
    with pytest.raises(ConfigError, match="2026-05"):
        llm_d.flow_control(version="2025-01")  # type: ignore[arg-type]


def test_flow_control_brings_its_signals() -> None:
    preset = llm_d.flow_control(priorities=(0,))
    before = Simulation(tenants=[workload.Tenant(name="x")], workload=asked_by("x"))
    after = preset.apply(before)
    assert after.signals == preset.signals
    assert after.tenants == before.tenants
    assert after.prefix_index == preset.prefix_index == signals.PrefixIndex(capacity_blocks=31_250)
    others = {name: getattr(before, name) for name in ("gateway", "signals", "prefix_index")}
    assert after.replace(**others) == before
    assert simulate(after.replace(horizon_s=5)).ledger["completed"] > 0
