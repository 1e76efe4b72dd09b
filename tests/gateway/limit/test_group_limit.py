"""A limit of some tenants or classes together, and its control by the latency of others."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from support.effort import trials
from support.runs import SECOND, fixed, flat, run, ways

from spillway import ConfigError, Result, Simulation, gateway, signals, simulate, workload


def group(permits: int, **names: list[str]) -> gateway.GroupLimit:
    return gateway.GroupLimit(max_in_flight=permits, **names)


@pytest.mark.parametrize("fairness", ["global_fifo", "round_robin"])
def test_what_the_group_holds_is_overtaken(fairness: str) -> None:
    result = run(
        [0, 0.1, 0.2, 0.3],
        tenant=["a", "a", "b", "b"],
        gateway=gateway.Gateway(
            limit=group(1, tenants=["a"]), bands=[gateway.Band(fairness=fairness)]
        ),
    )
    dispatched = [way.dispatched for way in ways(result)]
    assert dispatched == [0, SECOND, SECOND // 5, 3 * SECOND // 10]


@pytest.mark.parametrize("seed", trials(20))
def test_a_group_is_its_tenants_and_classes(seed: int) -> None:
    rng = random.Random(seed)
    n, most = 60, rng.randint(1, 4)
    tenants = [rng.choice("abc") for _ in range(n)]
    classes = [rng.choice(("standard", "batch")) for _ in range(n)]
    names: dict[str, Any] = {
        "tenants": rng.choice(([], ["a"], ["a", "b"])),
        "slo_classes": rng.choice(([], ["batch"])),
    }
    result = run(
        np.cumsum([rng.choice((0, 0.02, 0.1)) for _ in range(n)]).tolist(),
        output_tokens=[rng.randint(1, 100) for _ in range(n)],
        tenant=tenants,
        slo_class=classes,
        instances=flat(reference_output_tokens=100),
        gateway=gateway.Gateway(
            limit=group(most, **names),
            bands=[gateway.Band(), gateway.Band(priority=0)],
        ),
    )
    mine = [
        way
        for way, tenant, slo_class in zip(ways(result), tenants, classes, strict=True)
        if tenant in (names["tenants"] or "abc")
        and slo_class in (names["slo_classes"] or ["standard", "batch"])
    ]
    for way in mine:
        assert way.dispatched is not None
        assert sum(other.in_flight(way.dispatched) for other in mine) <= most
    # What waits, waits for the group, or behind a request of its tenant and band that does.
    alone = set(tenants) - set(names["tenants"] or "abc")
    for way in ways(result):
        if way.tenant in alone:
            assert way.dispatched == way.arrived


def test_a_band_that_waits_for_its_group_does_not_stop_those_below() -> None:
    result = run(
        [0, 0.1, 0.2],
        tenant=["a", "a", "b"],
        slo_class=["standard", "standard", "batch"],
        gateway=gateway.Gateway(
            limit=group(1, slo_classes=["standard"]),
            bands=[gateway.Band(priority=0), gateway.Band()],
        ),
    )
    assert [way.dispatched for way in ways(result)] == [0, SECOND, SECOND // 5]


def test_a_band_that_waits_for_all_stops_those_below() -> None:
    result = run(
        [0, 0.1, 0.2],
        tenant=["a", "a", "b"],
        slo_class=["standard", "standard", "batch"],
        gateway=gateway.Gateway(
            limit=[fixed(1), group(9, slo_classes=["standard"])],
            bands=[gateway.Band(priority=0), gateway.Band()],
        ),
    )
    assert [way.dispatched for way in ways(result)] == [0, SECOND, 2 * SECOND]


def test_names_must_be_known() -> None:
    with pytest.raises(ConfigError, match=r"gateway.limit\[0\].tenants\[0\] = 'x': must be one of"):
        Simulation(gateway=gateway.Gateway(limit=group(1, tenants=["x"])))
    with pytest.raises(ConfigError, match=r"gateway.limit\[0\].slo_classes\[0\] = 'x'"):
        Simulation(gateway=gateway.Gateway(limit=group(1, slo_classes=["x"])))
    with pytest.raises(ConfigError, match=r"gateway.sensor.slo_class = 'x'"):
        controlled(sensor={"scope": "slo_class", "slo_class": "x"})


def controlled(**changes: Any) -> Simulation:
    """Interactive requests beside background work, of which a controller moves the limit."""

    def client(name: str, requests_per_s: float, output_tokens: int) -> workload.Client:
        return workload.Client(
            name=name,
            tenant=name,
            slo_class="critical" if name == "interactive" else "batch",
            requests_per_s=requests_per_s,
            input_tokens=workload.Fixed(tokens=200),
            output_tokens=workload.Fixed(tokens=output_tokens),
        )

    settings = {"controller": gateway.Aimd(target_s=0.15, decrease_factor=0.7)} | changes
    sensor = {
        "scope": "slo_class",
        "slo_class": "critical",
        "aggregation": "exact_quantile",
        "quantile": 0.9,
        "tick_s": 1,
        "window_s": 5,
        "min_samples": 5,
    } | settings.pop("sensor", {})
    return Simulation(
        workload=workload.Synthetic(
            duration_s=60, clients=[client("interactive", 4, 50), client("background", 12, 400)]
        ),
        gateway=gateway.Gateway(
            limit=group(200, slo_classes=["batch"]),
            sensor=signals.Sensor(**sensor),
            **settings,
        ),
        instances={"count": 1, "max_num_seqs": 32},
        horizon_s=60,
    )


def p99_s(result: Result, tenant: str) -> float:
    columns = result.requests
    rows = (columns["tenant"] == tenant) & (columns["arrival_s"] > 20)
    return float(np.nanquantile(columns["ttft_s"][rows], 0.99))


def test_the_latency_of_one_class_moves_the_limit_of_another() -> None:
    """llm-d batch-gateway#491: AIMD on background work beats a fixed limit for all."""
    free = simulate(controlled(controller="static"))
    moved = simulate(controlled())
    assert p99_s(free, "interactive") > 2
    assert p99_s(moved, "interactive") < 0.3 * p99_s(free, "interactive")
    # The limit of background work follows the other latency, and that work goes on.
    assert moved.control["setting"].min() < 40
    background = moved.by_tenant()["background"]
    assert background["completed"] > 100


def test_only_samples_of_the_scope_count() -> None:
    loop = controlled(sensor={"scope": "slo_class", "slo_class": "batch"})
    own = simulate(loop)
    other = simulate(controlled())
    assert own.control["samples"].sum() != other.control["samples"].sum()
    by_tenant = simulate(controlled(sensor={"scope": "tenant", "tenant": "interactive"}))
    assert by_tenant.outcome_digest == other.outcome_digest
