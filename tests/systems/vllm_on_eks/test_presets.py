"""The named gateways and servers, against the published table, transcribed independently."""

from __future__ import annotations

from typing import Any

import pytest

from spillway import (
    ConfigError,
    Simulation,
    gateway,
    instance,
    presets,
    signals,
    simulate,
    workload,
)
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

PARAMETERS: dict[str, dict[str, Any]] = {
    "vllm-on-eks-pre": {"semantics": "corrected", "workers": None},
    "vllm-on-eks-post4": {"semantics": "corrected", "workers": 3},
    "vllm-on-eks-post5": {"semantics": "corrected", "workers": 4},
    "vllm-on-eks-static-caps": {"caps": [4, 2, 4], "timeout_s": 5},
    "vllm-on-eks-l4": {"workers": 3},
}
OUT_OF_RANGE: list[tuple[str, str, Any]] = [
    ("vllm-on-eks-post5", "workers", -1),
    ("vllm-on-eks-post5", "workers", "two"),
    ("vllm-on-eks-static-caps", "caps", [1, 2]),
    ("vllm-on-eks-static-caps", "timeout_s", 0),
    ("vllm-on-eks-l4", "workers", 0),
]
PRESETS = {"pre": vllm_on_eks.pre, "post4": vllm_on_eks.post4, "post5": vllm_on_eks.post5}
each_preset = pytest.mark.parametrize("name", PRESETS)
each_semantics = pytest.mark.parametrize("semantics", ["verbatim", "corrected"])
# Row by row as published: pre (blog), post4 (2dca487), post5 (0c78403).
TABLE: dict[str, tuple[Any, Any, Any]] = {
    "num_workers": (2, 2, 2),
    "cap_per_worker": (16, 64, 64),
    "acquire_timeout_s": (30, 30, 1),
    "target_p99_ttft_s": (2, 2, 2),
    "tick_s": (5, 5, 5),
    "window_s": (30, 30, 10),
    "cap_per_worker_min": (1, 16, 32),
    "cap_per_worker_max": (64, 128, 256),
    "target_band_pct": (0, 0.2, 0.2),
    "cooldown_ticks": (0, 3, 3),
    "increase": (1, 1, 1),
    "decrease": (("factor", 0.5), ("step", 4), ("factor", 0.75)),
    "weights": ((2, 1, 1), (2, 1, 1), (2, 1, 1)),
    "queue_max": ((16, 16, 16), (8, 2, 2), (2, 1, 1)),
}


def asked_by(tenant: str) -> workload.Synthetic:
    return workload.Synthetic(clients=[workload.Client(tenant=tenant)])


@each_semantics
@each_preset
def test_values_are_those_that_were_published(name: str, semantics: Any) -> None:
    preset = PRESETS[name](semantics=semantics)
    ours = preset.gateway
    (band,) = ours.bands
    (limit,) = ours.limit
    control = ours.controller
    assert isinstance(band.fairness, gateway.DeficitRoundRobin)
    assert isinstance(limit, gateway.WorkerBudget)
    assert isinstance(control, gateway.Aimd)
    how_much = control.decrease_factor if control.decrease == "factor" else control.decrease_step
    values = {
        "num_workers": limit.workers,
        "cap_per_worker": limit.cap_per_worker,
        "acquire_timeout_s": band.queue.timeout_s,
        "target_p99_ttft_s": control.target_s,
        "tick_s": ours.sensor.tick_s,
        "window_s": ours.sensor.window_s,
        "cap_per_worker_min": ours.guard.floor,
        "cap_per_worker_max": ours.guard.ceiling,
        "target_band_pct": control.band,
        "cooldown_ticks": ours.guard.cooldown_ticks,
        "increase": control.increase_step,
        "decrease": (control.decrease, how_much),
        "weights": tuple(tenant.weight for tenant in preset.tenants),
        "queue_max": tuple(tenant.queue_max for tenant in preset.tenants),
    }
    which = list(PRESETS).index(name)
    assert values == {row: columns[which] for row, columns in TABLE.items()}
    assert preset.name == f"vllm-on-eks-{name}"
    assert [tenant.name for tenant in preset.tenants] == ["A", "B", "C"]


@each_semantics
@each_preset
def test_the_rest_is_as_that_gateway_does_it(name: str, semantics: Any) -> None:
    ours = PRESETS[name](semantics=semantics).gateway
    (band,) = ours.bands
    # Each request costs one credit, of which a visit brings as many as the weight.
    assert (band.fairness.quantum, band.fairness.cost.unit) == (1, "requests")
    assert (band.queue.max_requests, band.queue.ordering, band.queue.drop) == (None, "fcfs", "tail")
    assert ours.admission == (gateway.AlwaysAdmit(),)
    sensor = ours.sensor
    assert (sensor.source, sensor.aggregation, sensor.quantile) == (
        "ttft",
        "bucketed_quantile",
        0.99,
    )
    assert (sensor.min_samples, sensor.scope, sensor.tick_drift_s) == (10, "pooled", 0.001)
    # Any answer of a worker counts (the time to its first byte, whatever its status).
    assert sensor.includes_refusals
    assert not signals.Sensor().includes_refusals
    assert ours.guard.demand_gate
    assert ours.guard.demand == "in_flight_or_queued"
    assert ours.guard.rounding == "floor"


@each_preset
def test_semantics_are_three_settings(name: str) -> None:
    verbatim, corrected = (PRESETS[name](semantics=mode) for mode in ("verbatim", "corrected"))
    assert PRESETS[name]() == verbatim
    switches = {
        "bands[0].fairness.semantics": "corrected",
        "limit[0].resize": "corrected",
        "guard.clamps": "corrected",
    }
    assert verbatim.gateway.with_(switches) == corrected.gateway
    assert verbatim.tenants == corrected.tenants
    fairness = verbatim.gateway.bands[0].fairness
    assert (fairness.semantics, verbatim.gateway.limit[0].resize) == ("verbatim", "verbatim")
    assert verbatim.gateway.guard.clamps == "verbatim"


def test_unknown_semantics_are_refused() -> None:
    with pytest.raises(ConfigError, match="verbatim"):
        vllm_on_eks.post4(semantics="faithful")  # type: ignore[arg-type]


@each_preset
def test_workers_may_follow_the_fleet(name: str) -> None:
    simulation = PRESETS[name](workers=None).apply(
        Simulation(instances={"count": 3}, metrics={"timeline_step_s": 1}, workload=asked_by("A"))
    )
    assert simulation.gateway.limit[0].workers is None
    cap = TABLE["cap_per_worker"][list(PRESETS).index(name)]
    assert simulate(simulation).timeline["permits"][0] == 3 * cap


def test_static_caps() -> None:
    preset = vllm_on_eks.static_caps()
    assert [(tenant.name, tenant.max_in_flight) for tenant in preset.tenants] == [
        ("A", 64),
        ("B", 8),
        ("C", 64),
    ]
    assert preset.gateway.limit == (gateway.PerTenant(),)
    assert preset.gateway.controller == gateway.StaticLimit()
    (band,) = preset.gateway.bands
    assert band.queue.timeout_s == 30
    assert band.queue.max_requests is None
    assert {tenant.queue_max for tenant in preset.tenants} == {None}
    other = vllm_on_eks.static_caps(caps=(1, 2, 3), timeout_s=5)
    assert [tenant.max_in_flight for tenant in other.tenants] == [1, 2, 3]
    assert other.gateway.bands[0].queue.timeout_s == 5
    for bad in [(1, 2), (1, 2, 0), (1, 2, 3.5), (1, True, 2), "abc", 5]:
        with pytest.raises(ConfigError, match=r"^caps = .*: must be three whole numbers >= 1"):
            vllm_on_eks.static_caps(caps=bad)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="timeout_s"):
        vllm_on_eks.static_caps(timeout_s=0)


def test_toy_plant_has_the_published_figures() -> None:
    group = vllm_on_eks.toy_plant().instances
    assert group.count == 1
    assert isinstance(group.plant, instance.ProcessorSharing)
    table = zip(group.plant.concurrency, group.plant.e2e_s, group.plant.ttft_s, strict=True)
    assert list(table) == [
        (0, 7.6, 0.2),
        (8, 8.3, 0.3),
        (16, 8.7, 0.35),
        (32, 10.5, 0.5),
        (64, 14.4, 0.7),
        (128, 21.8, 1),
        (160, 27, 1.6),
        (200, 34, 6),
        (256, 46, 16),
        (400, 75, 45),
    ]
    # Whatever the outputs: the published requests were all alike.
    assert group.plant.reference_output_tokens is None


def test_l4_fleet_is_what_was_deployed() -> None:
    group = vllm_on_eks.l4().instances
    assert (group.count, group.max_model_len) == (2, 8192)
    # Defaults of vLLM 0.19.1 for a server on a GPU of this size.
    assert (group.max_num_seqs, group.max_num_batched_tokens) == (256, 2048)
    assert group.kv_cache.prefix_caching
    assert group.latency == instance.Linear.preset("qwen2.5-7b-l4")
    assert isinstance(group.plant, instance.StepLoop)
    assert vllm_on_eks.l4(workers=3).instances == group.replace(count=3)
    # Below what 90 % of 22 GiB leave beside 14.2 GiB of weights.
    block_bytes = group.block_size_tokens * 57_344
    assert 2 * 2**30 < group.num_kv_blocks * block_bytes < (0.9 * 22 - 14.2) * 2**30
    for workers in (0, 1.5, "2", True):
        with pytest.raises(ConfigError, match=r"^workers = .*: must be a whole number >= 1$"):
            vllm_on_eks.l4(workers=workers)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*PRESETS, "static-caps"])
def test_apply_changes_nothing_else(name: str) -> None:
    preset = {**PRESETS, "static-caps": vllm_on_eks.static_caps}[name]()
    before = presets.get("toy-plant").apply(Simulation(instances=vllm_on_eks.toy_plant().instances))
    after = preset.apply(before)
    assert (after.gateway, after.tenants) == (preset.gateway, preset.tenants)
    assert after.replace(gateway=before.gateway, tenants=before.tenants) == before
    assert [(tenant.name, tenant.weight) for tenant in after.tenants] == [
        (tenant.name, tenant.weight) for tenant in before.tenants
    ]
    assert preset.doc.endswith(".")
    assert simulate(after.replace(horizon_s=30)).ledger["completed"] > 0


def test_tenants_that_the_preset_does_not_name_stay() -> None:
    preset = vllm_on_eks.post4()
    tenants = [workload.Tenant(name="other", weight=5), workload.Tenant(name="B", weight=7)]
    after = preset.apply(Simulation(tenants=tenants, workload=asked_by("other")))
    assert after.tenants == (*preset.tenants, tenants[0])
