"""Agreement with golden vectors of BLIS v0.6.14: twelve requests under five configurations.

The trace has empty outputs, a prompt of whole cached blocks, simultaneous arrivals and shared
prefixes; two of the configurations preempt.
"""

from __future__ import annotations

from typing import Any

import pytest

import spillway
from spillway import loading

BIG = 132139
"""Blocks of the cache where it is never full."""

# Arrival (µs), SLO class, tenant, prefix group, prefix tokens, suffix tokens, output tokens.
TRACE = (
    (0, "critical", "tA", "g1", 64, 100, 12),
    (1000, "standard", "tB", "", 0, 300, 8),
    (1000, "sheddable", "tC", "g1", 64, 37, 20),
    (9000, "standard", "tA", "", 0, 900, 1),
    (9500, "batch", "tC", "g2", 48, 16, 30),
    (20000, "critical", "tA", "g1", 64, 100, 0),
    (30000, "standard", "tB", "g2", 48, 200, 15),
    (30000, "background", "tC", "", 0, 15, 40),
    (45000, "sheddable", "tB", "g1", 64, 160, 25),
    (60000, "critical", "tA", "", 0, 2500, 5),
    (60500, "standard", "tB", "g2", 48, 0, 10),  # three whole blocks
    (200000, "critical", "tA", "g1", 64, 80, 6),
)

# TTFT and E2E in µs by request.
# fmt: off
ONE_INSTANCE = (
    (13789, 185417), (26787, 156401), (26787, 262590), (43378, 43378), (18287, 341323),
    (32378, 32378), (35926, 202382), (35926, 421829), (20926, 276050), (70896, 105852),
    (12356, 135161), (15447, 59083),
)
FEW_BLOCKS = (
    (13789, 177279), (26787, 148269), (26787, 262734), (43378, 43378), (18287, 341467),
    (32378, 32378), (35926, 202526), (35926, 421973), (20926, 276194), (112621, 147552),
    (12356, 135296), (15591, 59227),
)
WEIGHTED = (
    (13789, 115260), (16670, 142474), (20356, 190962), (32617, 32617), (32117, 335295),
    (16955, 16955), (22067, 188379), (14136, 357091), (15800, 225147), (70839, 105743),
    (12321, 135022), (16392, 59997),
)
LEAST_LOADED = (
    (13789, 115053), (16670, 144662), (20356, 190751), (32617, 32617), (32117, 334957),
    (31430, 31430), (16751, 138894), (16751, 358278), (16173, 269693), (73027, 107931),
    (14509, 137210), (14173, 57778),
)
ALL_LIMITS = (
    (13789, 141188), (26787, 109363), (26787, 234880), (50300, 50300), (18287, 331584),
    (39300, 39300), (40020, 165089), (40020, 419012), (62479, 307807), (334079, 368951),
    (67757, 173228), (231185, 274775),
)
# fmt: on
WEIGHTED_ROUTE = "010110100111"
LEAST_LOADED_ROUTE = "010111001110"

FEW_BLOCKS_SUMMARY = {
    "mean_e2el_ms": 187.35608333333334,
    "p90_e2el_ms": 334.9397,
    "p95_e2el_ms": 377.6947,
    "p99_e2el_ms": 413.11734,
    "mean_ttft_ms": 32.896,
    "p90_ttft_ms": 42.6328,
    "p95_ttft_ms": 74.53735,
    "p99_ttft_ms": 105.00427,
    "mean_itl_ms": 11.512552795031056,
    "p90_itl_ms": 17.002,
    "p95_itl_ms": 26.396,
    "p99_itl_ms": 44.784,
    "p99_scheduling_delay_ms": 87.36394,
    "duration": 0.379773,
    "request_throughput": 31.597822910001497,
    "total_input_tokens": 4872,
    "total_output_tokens": 161,
}


def run(
    instances: int = 1,
    ids: tuple[int, ...] = tuple(range(len(TRACE))),
    router: dict[str, Any] | None = None,
    **group: Any,
) -> spillway.Result:
    """Run some of the requests."""
    rows = [TRACE[i] for i in ids]
    trace = spillway.trace(
        arrival_s=[arrival_us * 1e-6 for arrival_us, *_ in rows],
        slo_class=[row[1] for row in rows],
        tenant=[row[2] for row in rows],
        prefix_group=[row[3] for row in rows],
        prefix_tokens=[row[4] for row in rows],
        input_tokens=[row[4] + row[5] for row in rows],
        output_tokens=[row[6] for row in rows],
        request_id=[f"request_{i}" for i in ids],
    )
    simulation = loading.from_settings(
        {
            "profile": "blis_0_6",
            "horizon_s": 100,
            "router": router or {"kind": "round_robin"},
            "signals": {"kind": "live"},
            "prefix_index": {"block_size_tokens": 16},
            "instances": [
                {
                    "count": instances,
                    "num_kv_blocks": BIG,
                    "block_size_tokens": 16,
                    "max_num_seqs": 256,
                    "max_num_batched_tokens": 2048,
                    "scheduler": {"kind": "fcfs"},
                    "latency": {
                        "kind": "linear",
                        "alpha0_us": 1601.35,
                        "alpha_input_us": 3.51,
                        "alpha_output_us": 1805.54,
                        "beta0_us": 6910.42,
                        "beta_prefill_us": 17.67,
                        "beta_decode_us": 2.84,
                    },
                    **group,
                }
            ],
        }
    )
    return spillway.simulate(simulation.replace(workload=trace), seed=0)


def latencies_us(result: spillway.Result) -> list[tuple[float, float]]:
    """Return TTFT and E2E by request; a whole number of microseconds survives the rounding."""
    columns = result.requests
    assert set(columns["outcome"].tolist()) == {"completed"}
    return [
        (round(float(ttft_s) * 1e6, 3), round(float(e2e_s) * 1e6, 3))
        for ttft_s, e2e_s in zip(columns["ttft_s"], columns["e2e_s"], strict=True)
    ]


@pytest.mark.parametrize(
    ("group", "expected", "preemptions"),
    [
        ({}, ONE_INSTANCE, 0),
        ({"num_kv_blocks": 200}, FEW_BLOCKS, 1),
        ({"num_kv_blocks": 158, "max_num_batched_tokens": 512, "max_num_seqs": 6}, ALL_LIMITS, 1),
    ],
    ids=["S1", "S2", "S5"],
)
def test_one_instance(
    group: dict[str, Any], expected: tuple[tuple[int, int], ...], preemptions: int
) -> None:
    result = run(**group)
    assert latencies_us(result) == list(expected)
    assert result.summary()["preemptions"] == preemptions


def test_aggregate_of_few_blocks() -> None:
    summary = run(num_kv_blocks=200).summary()
    figures = {name: summary[name] for name in FEW_BLOCKS_SUMMARY}
    assert figures == pytest.approx(FEW_BLOCKS_SUMMARY, rel=1e-12, abs=0)
    assert f"{summary['cache_hit_rate']:.4f}" == "0.3274"


def test_two_instances_with_weighted_scorers() -> None:
    scorers = {"prefix_affinity": 3, "queue_depth": 2, "kv_utilization": 2}
    router = {
        "kind": "weighted",
        "picker": {"kind": "best", "ties": "first"},  # as the recorded draws happen to fall
        "scorers": [{"kind": kind, "weight": weight} for kind, weight in scorers.items()],
    }
    result = run(instances=2, router=router)
    assert "".join(map(str, result.requests["instance"].tolist())) == WEIGHTED_ROUTE
    assert latencies_us(result) == list(WEIGHTED)
    assert result.summary()["preemptions"] == 0


@pytest.mark.parametrize(
    ("route", "expected"),
    [(WEIGHTED_ROUTE, WEIGHTED), (LEAST_LOADED_ROUTE, LEAST_LOADED)],
    ids=["S3", "S4"],
)
def test_two_instances_along_the_recorded_route(
    route: str, expected: tuple[tuple[int, int], ...]
) -> None:
    # Random ties of the router are not reproduced, but instances meet nowhere else.
    for instance in "01":
        ids = tuple(i for i, target in enumerate(route) if target == instance)
        result = run(ids=ids)
        assert latencies_us(result) == [expected[i] for i in ids]
        assert result.summary()["preemptions"] == 0
