"""Settings of Dynamo's versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway import Simulation, gateway, router, signals, simulate
from spillway.systems.dynamo import presets as dynamo

if TYPE_CHECKING:
    from spillway.presets.preset import Preset

_V1: dict[str, Any] = {
    "active_decode_blocks_threshold": 0.7,
    "active_prefill_tokens_threshold": 5000,
    "active_prefill_tokens_threshold_frac": 3,
    "engine_request_limit": 8,
    "queue_size": 4,
    "track_output_blocks": True,
    "router_queue_threshold": 2,
    "router_queue_policy": "wspt",
}
PARAMETERS: dict[str, dict[str, Any]] = {
    "dynamo-1.2": _V1,
    "dynamo-1.3": _V1,
    "dynamo-1.4": _V1,
    "dynamo-1.5": _V1,
    "dynamo-1.6": _V1,
    "dynamo-dev-b": {
        "engine_request_limit": 4,
        "request_queue_timeout_s": None,
        "adaptive_lifo": False,
        "active_decode_blocks_threshold": 0.7,
        "active_prefill_tokens_threshold": 5000,
        "active_prefill_tokens_threshold_frac": 3,
        "track_output_blocks": True,
    },
    "dynamo-dev-c": {
        "request_limit": 9,
        "wait_limit": 3,
        "queue_size": 7,
        "active_decode_blocks_threshold": 0.7,
        "active_prefill_tokens_threshold": 5000,
        "active_prefill_tokens_threshold_frac": 3,
        "track_output_blocks": True,
    },
    "dynamo-prefill-decode": {
        "policy": "isl_bounding",
        "eff_isl_threshold": 1024,
        "eff_isl_ratio_threshold": 0.5,
        "prefill_busy_threshold": 2,
        "decode_busy_threshold": 0.9,
        "bootstrap": True,
    },
}
OUT_OF_RANGE: list[tuple[str, str, Any]] = [
    ("dynamo-1.2", "active_decode_blocks_threshold", 1.5),
    ("dynamo-1.2", "active_prefill_tokens_threshold", 5.5),
    ("dynamo-1.2", "router_queue_threshold", None),
    ("dynamo-1.3", "active_prefill_tokens_threshold_frac", -1),
    ("dynamo-1.3", "queue_size", 0),
    ("dynamo-1.3", "track_output_blocks", "no"),
    ("dynamo-1.3", "router_queue_threshold", -1),
    ("dynamo-1.6", "router_queue_policy", "sjf"),
    ("dynamo-dev-b", "adaptive_lifo", 2),
    ("dynamo-dev-c", "request_limit", 0),
    ("dynamo-dev-c", "wait_limit", 0),
    ("dynamo-dev-c", "queue_size", -1),
    ("dynamo-prefill-decode", "bootstrap", 1),
]


def test_router_queues_by_version() -> None:
    defaults = {dynamo.v1_2(): 4, dynamo.v1_3(): 16, dynamo.v1_6(router_queue_threshold=3): 3}
    for preset, threshold in defaults.items():
        configured = preset.apply().gateway
        assert configured.limit == (gateway.PrefillBusy(threshold=threshold),)
        (band,) = configured.bands
        assert band.fairness == gateway.PolicyClasses()
    for preset in (dynamo.v1_4(), dynamo.v1_5(), dynamo.v1_6()):
        assert preset.apply().gateway.limit == (gateway.Unlimited(),)


def test_thresholds_by_version() -> None:
    """Those that are not given: 10 batches in 1.2; filled in by 1.3 if another is; else none."""
    decode = {"active_decode_blocks_threshold": 0.7}

    def thresholds(preset: Preset) -> tuple[float | None, ...]:
        monitor = preset.busy_monitor
        return (
            monitor.active_decode_blocks_threshold,
            monitor.active_prefill_tokens_threshold,
            monitor.active_prefill_tokens_threshold_frac,
        )

    assert thresholds(dynamo.v1_2()) == (1, 10_000_000, 10)
    assert thresholds(dynamo.v1_2(**decode)) == (0.7, 10_000_000, 10)
    assert not dynamo.v1_2().busy_monitor.decode_latch
    assert thresholds(dynamo.v1_3(**decode)) == (0.7, 10_000_000, 64)
    assert thresholds(dynamo.v1_3(active_prefill_tokens_threshold=5)) == (1, 5, 64)
    for preset in (dynamo.v1_4, dynamo.v1_5, dynamo.v1_6):
        assert thresholds(preset(**decode)) == (0.7, None, None)
    for preset in (dynamo.v1_3, dynamo.v1_4):
        assert preset().busy_monitor == signals.BusyMonitor()


def test_prefill_decode_goes_with_a_version() -> None:
    groups = [{"role": "prefill"}, {"role": "decode"}]
    pools = Simulation(instances=groups, workload={"kind": "synthetic", "num_requests": 50})
    plain = dynamo.prefill_decode().apply(dynamo.v1_6().apply(pools))
    assert plain.disaggregation == router.Disaggregation()
    assert plain.router == dynamo.v1_6().router
    legs = simulate(plain).ledger["legs"]
    assert (legs["transfers_ended"], legs["local"]) == (50, 0)
    short = dynamo.prefill_decode(policy="prefill_load", prefill_busy_threshold=0)
    legs = simulate(short.apply(plain)).ledger["legs"]
    assert legs["local"] > 0
    assert dynamo.prefill_decode(bootstrap=True).disaggregation.handoff == "at_dispatch"
