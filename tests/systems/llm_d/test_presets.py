"""Flow control of llm-d."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spillway import ConfigError, Simulation, gateway, router, signals, simulate, workload
from spillway.files.deployments import import_
from spillway.systems.llm_d import presets as llm_d

if TYPE_CHECKING:
    from pathlib import Path

PARAMETERS: dict[str, dict[str, Any]] = {
    "llm-d-flow-control": {
        "version": "2026-05",
        "priorities": [4, 3, -2],
        "detector": "concurrency",
        "fairness": "round_robin",
        "ordering": "edf",
        "usage_limit": {"kind": "priority_holdback", "min_ceiling": 0.4},
        "evicts_in_flight": True,
    },
    "llm-d-prefill-decode": {"min_uncached_tokens": 512, "min_prompt_tokens": 1024},
}
OUT_OF_RANGE: list[tuple[str, str, Any]] = [
    ("llm-d-flow-control", "priorities", 4),
    ("llm-d-flow-control", "detector", "smoke"),
    ("llm-d-flow-control", "fairness", 0),
    ("llm-d-flow-control", "ordering", "random"),
    ("llm-d-flow-control", "evicts_in_flight", "yes"),
    ("llm-d-prefill-decode", "min_uncached_tokens", -1),
    ("llm-d-prefill-decode", "min_prompt_tokens", 1.5),
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


SAMPLE = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: prefix-cache-scorer
- type: queue-scorer
- type: prefill-filter
- type: decode-filter
- type: max-score-picker
- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 16}}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}
schedulingProfiles:
- name: prefill
  plugins: &of
  - {pluginRef: prefill-filter}
  - {pluginRef: prefix-cache-scorer, weight: 2}
  - {pluginRef: queue-scorer, weight: 1}
  - {pluginRef: max-score-picker}
- name: decode
  plugins:
  - {pluginRef: decode-filter}
  - {pluginRef: prefix-cache-scorer, weight: 2}
  - {pluginRef: queue-scorer, weight: 1}
  - {pluginRef: max-score-picker}
"""
SERVERS = """\
decode: {replicas: 2, containers: [{command: [vllm, serve, Qwen/Qwen3-8B]}]}
prefill: {replicas: 1, containers: [{command: [vllm, serve, Qwen/Qwen3-8B]}]}
"""


@pytest.mark.filterwarnings("ignore:vllm-.* is newer than the rules")
def test_prefill_decode_is_the_sample_of_llm_d(tmp_path: Path) -> None:
    (tmp_path / "epp.yaml").write_text(SAMPLE.replace(" &of", ""))
    (tmp_path / "values.yaml").write_text(SERVERS)
    found = import_([tmp_path / "values.yaml", tmp_path / "epp.yaml"], gpu="h100").simulation
    ours = llm_d.prefill_decode().apply(found)
    assert (ours.router, ours.disaggregation) == (found.router, found.disaggregation)
    assert ours.signals == found.signals


def test_prefill_decode_sends_long_prompts_through_both_pools() -> None:
    roles: list[Any] = [{"role": "prefill"}, {"role": "decode"}]
    lengths = {"kind": "uniform", "min_tokens": 1, "max_tokens": 1000}
    pools = Simulation(
        workload={"kind": "synthetic", "num_requests": 100, "clients": [{"input_tokens": lengths}]},
        instances=roles,
    )
    simulation = llm_d.prefill_decode(min_uncached_tokens=500).apply(pools)
    requests = simulate(simulation).requests
    is_long = requests["input_tokens"] >= 500
    assert 0 < is_long.sum() < 100
    assert (requests["prefill_instance"] >= 0).tolist() == is_long.tolist()
    with_gate = llm_d.flow_control().apply(simulation)
    assert with_gate.disaggregation == simulation.disaggregation
    assert simulate(with_gate).ledger["legs"]["transfers_ended"] == is_long.sum()
    always = llm_d.prefill_decode(min_uncached_tokens=None)
    assert always.disaggregation.decider == router.AlwaysRemote()
