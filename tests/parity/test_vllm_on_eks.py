"""A controlled budget of streams in front of a plant with measured latencies.

The code of the gateway of vllm-on-eks (2dca487, 0c78403) was once run on a virtual clock before the
plant of `vllm_on_eks.toy_plant`, under the load of the scenario toy-plant, with one seed. Its
figures stand in the tables below. Ours are medians over 25 seeds and must be within a quarter.
Single runs differ more where few permits are out: those of a wave come back together, so that it
matters where in a wave a tenant begins. What is proved beside the figures is their order and what
absorbs a limit; closed forms follow at the end.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from spillway import Result, Simulation, gateway, presets, simulate
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

SEEDS = range(25)
PLANT = vllm_on_eks.toy_plant().instances.plant
TARGET_S, BAND = 2.0, 0.2
# When caps were read, and when the percentiles' warm-up ended.
CAPS_AT_S = (30, 60, 120, 180, 300)
WARM_UP_S = 90
HORIZON_S = 300


@dataclass(frozen=True)
class Setup:
    """The settings that differ between the rows of the tables."""

    start: int
    queue_max: tuple[int, int]
    timeout_s: float
    controller: Any = "static"
    floor: float = 1
    ceiling: float = 128
    cooldown_ticks: int = 0
    window_s: float = 30
    seeds: tuple[int, ...] = tuple(SEEDS)


def halving(band: float) -> gateway.Aimd:
    return gateway.Aimd(band=band, decrease_factor=0.5)


AISD = gateway.Aimd(band=BAND, decrease="step", decrease_step=4)
TO_THREE_QUARTERS = gateway.Aimd(band=BAND, decrease_factor=0.75)


LOADED = presets.get("toy-plant").apply(
    Simulation(instances=vllm_on_eks.toy_plant().instances, horizon_s=HORIZON_S)
)


def configured(setup: Setup) -> Simulation:
    simulation = vllm_on_eks.post4().apply(LOADED)
    limits = dict(zip("AB", setup.queue_max, strict=True))
    tenants = [
        tenant.replace(queue_max=limits.get(tenant.name, tenant.queue_max))
        for tenant in simulation.tenants
    ]
    return simulation.replace(tenants=tenants).with_(
        {
            "gateway.limit[0].cap_per_worker": setup.start,
            "gateway.bands[0].queue.timeout_s": setup.timeout_s,
            "gateway.controller": setup.controller,
            "gateway.guard.floor": setup.floor,
            "gateway.guard.ceiling": setup.ceiling,
            "gateway.guard.cooldown_ticks": setup.cooldown_ticks,
            "gateway.sensor.window_s": setup.window_s,
        }
    )


@functools.cache
def runs(setup: Setup) -> tuple[Result, ...]:
    return tuple(simulate(configured(setup), seeds=setup.seeds))


def caps(result: Result) -> list[float]:
    """Caps per worker when they were read."""
    control = result.control
    rows = np.searchsorted(control["time_s"], CAPS_AT_S, side="right") - 1
    return [float(cap) for cap in control["setting"][rows]]


def median_caps(setup: Setup) -> list[float]:
    return [float(cap) for cap in np.median([caps(result) for result in runs(setup)], axis=0)]


def timely(setup: Setup) -> float:
    """Requests with a first token within 2 s."""
    counts = [np.count_nonzero(r.requests["ttft_s"] <= TARGET_S) for r in runs(setup)]
    return float(np.median(counts))


def ttft_s(results: tuple[Result, ...], tenant: str, percent: float, after_s: float = -1) -> float:
    """A percentile over the tenant's requests that arrived later and had a first token."""
    figures = []
    for result in results:
        requests = result.requests
        counts = (requests["tenant"] == tenant) & (requests["arrival_s"] > after_s)
        figures.append(np.nanpercentile(requests["ttft_s"][counts], percent))
    return float(np.median(figures))


def p99_s(setup: Setup, tenant: str) -> float:
    return ttft_s(runs(setup), tenant, 99, after_s=WARM_UP_S)


# --- the published rows ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Published:
    caps: tuple[float, ...]
    p99_s: tuple[float, float]
    timely: int


SPIRAL = Setup(16, (16, 16), 30, halving(0), ceiling=64)
FLOORED = Setup(16, (16, 16), 30, halving(BAND), floor=16, ceiling=64, cooldown_ticks=3)
POST4 = Setup(64, (8, 2), 30, AISD, floor=16, cooldown_ticks=3)
POST4_FROM_16 = Setup(16, (8, 2), 30, AISD, floor=16, cooldown_ticks=3)
POST4_SHORT_WAIT = Setup(16, (8, 2), 1, AISD, floor=16, cooldown_ticks=3)
HALVING_SHORT_WAIT = Setup(16, (16, 16), 1, halving(BAND), ceiling=64)
POST5 = Setup(
    64, (2, 1), 1, TO_THREE_QUARTERS, floor=32, ceiling=256, cooldown_ticks=3, window_s=10
)

CONTROLLED: dict[str, tuple[Setup, Published]] = {
    "death spiral": (SPIRAL, Published((2, 1, 1, 1, 1), (29.7, 30.2), 33)),
    "floor, band and cooldown": (FLOORED, Published((16,) * 5, (10.0, 19.1), 36)),
    "post4": (POST4, Published((69, 74, 64, 52, 28), (7.3, 6.4), 1085)),
    "post4 from 16": (POST4_FROM_16, Published((16,) * 5, (6.6, 5.4), 366)),
    "post4 from 16, 1 s": (POST4_SHORT_WAIT, Published((20, 24, 24, 24, 24), (1.59, 1.60), 1149)),
    "halving, 1 s": (HALVING_SHORT_WAIT, Published((19, 22, 22, 22, 22), (1.57, 1.57), 1100)),
    "post5": (POST5, Published((69, 74, 59, 59, 59), (1.88, 1.84), 1735)),
}
each_row = pytest.mark.parametrize("row", CONTROLLED)


@each_row
def test_caps_are_those_that_were_published(row: str) -> None:
    setup, published = CONTROLLED[row]
    assert median_caps(setup) == pytest.approx(published.caps, rel=0.25)


@each_row
def test_timely_requests_are_as_many_as_were_published(row: str) -> None:
    setup, published = CONTROLLED[row]
    assert timely(setup) == pytest.approx(published.timely, rel=0.25)


@each_row
def test_latencies_are_those_that_were_published(row: str) -> None:
    setup, published = CONTROLLED[row]
    assert [p99_s(setup, tenant) for tenant in "AB"] == pytest.approx(published.p99_s, rel=0.25)


def test_presets_are_rows_of_the_table() -> None:
    for preset, setup in (
        (vllm_on_eks.pre(), SPIRAL),
        (vllm_on_eks.post4(), POST4),
        (vllm_on_eks.post5(), POST5),
    ):
        for seed, result in zip(SEEDS, runs(setup), strict=True):
            ours = simulate(preset.apply(LOADED), seed)
            assert caps(ours) == caps(result)
            assert np.array_equal(
                ours.requests["ttft_s"], result.requests["ttft_s"], equal_nan=True
            )


def test_limit_is_absorbed_at_its_floor_in_every_run() -> None:
    for setup in (SPIRAL, FLOORED, POST4_FROM_16):
        for result in runs(setup):
            assert caps(result)[1:] == [setup.floor] * 4
    # At the floor of 1 the plant is almost idle, and every served request has waited for half a
    # minute.
    for result in runs(SPIRAL):
        assert np.count_nonzero(result.requests["outcome"] == "completed") < 150
    assert min(p99_s(SPIRAL, tenant) for tenant in "AB") > 15


def test_short_waits_free_the_limit_in_every_run() -> None:
    for setup in (HALVING_SHORT_WAIT, POST4_SHORT_WAIT, POST5):
        for result in runs(setup):
            assert caps(result)[-1] > setup.floor


def test_order_of_the_controllers() -> None:
    order = ["death spiral", "post4 from 16", "post4", "post5"]
    counts = [timely(CONTROLLED[row][0]) for row in order]
    assert counts == sorted(counts)
    assert timely(FLOORED) < timely(POST4_FROM_16)
    assert timely(HALVING_SHORT_WAIT) < timely(POST5)
    assert timely(POST4_SHORT_WAIT) < timely(POST5)
    assert timely(POST4_FROM_16) < timely(POST4_SHORT_WAIT)
    # Setups with short waits meet the target; setups with long ones miss it by far.
    for tenant in "AB":
        for setup in (HALVING_SHORT_WAIT, POST4_SHORT_WAIT, POST5):
            assert p99_s(setup, tenant) < TARGET_S
        for setup in (SPIRAL, FLOORED, POST4, POST4_FROM_16):
            assert p99_s(setup, tenant) > TARGET_S * (1 + BAND)


def test_the_same_requests_were_offered() -> None:
    """A published run had 2,758."""
    offered = [result.requests.num_rows for result in runs(SPIRAL)]
    assert abs(np.mean(offered) - 2760) < 4 * math.sqrt(2760 / len(offered))


# --- without a controller -------------------------------------------------------------------------

# Cap per worker: p99 of A and B in s, timely requests.
UNCONTROLLED = {
    16: (6.6, 5.4, 366),
    32: (4.0, 2.6, 578),
    64: (3.8, 3.0, 1175),
    128: (21, 19, 452),
    256: (48, 47, 452),
}


def uncontrolled(cap: int) -> Setup:
    return Setup(cap, (8, 2), 30)


@pytest.mark.parametrize("cap", UNCONTROLLED)
def test_static_caps_have_the_published_figures(cap: int) -> None:
    *latencies, count = UNCONTROLLED[cap]
    setup = uncontrolled(cap)
    assert [p99_s(setup, tenant) for tenant in "AB"] == pytest.approx(latencies, rel=0.25)
    assert timely(setup) == pytest.approx(count, rel=0.25)
    assert all(len(result.control["time_s"]) == 0 for result in runs(setup))


def test_latency_over_static_caps_is_a_u() -> None:
    for tenant in "AB":
        figures = [p99_s(uncontrolled(cap), tenant) for cap in UNCONTROLLED]
        assert figures[0] > figures[1]
        assert figures[2] < figures[3] < figures[4]
        assert min(figures) == min(figures[1:3])
    counts = [timely(uncontrolled(cap)) for cap in UNCONTROLLED]
    assert max(counts) == counts[2]
    assert counts[0] < counts[1] < counts[2]


# --- how long to wait -----------------------------------------------------------------------------

# Acquire timeout in s: final cap, timely requests.
TIMEOUTS = {
    0.25: (72, 1522),
    0.5: (67, 1520),
    0.75: (41, 1391),
    1.0: (24, 1154),
    2.0: (16, 609),
    5.0: (16, 353),
}


def waiting(timeout_s: float) -> Setup:
    return Setup(16, (8, 2), timeout_s, TO_THREE_QUARTERS, floor=16, cooldown_ticks=3)


@pytest.mark.parametrize("timeout_s", TIMEOUTS)
def test_timeouts_have_the_published_figures(timeout_s: float) -> None:
    cap, count = TIMEOUTS[timeout_s]
    setup = waiting(timeout_s)
    assert median_caps(setup)[-1] == pytest.approx(cap, rel=0.25)
    assert timely(setup) == pytest.approx(count, rel=0.25)


def test_the_longer_the_wait_the_lower_the_limit() -> None:
    finals = [median_caps(waiting(timeout_s))[-1] for timeout_s in TIMEOUTS]
    assert finals == sorted(finals, reverse=True)
    counts = [timely(waiting(timeout_s)) for timeout_s in TIMEOUTS]
    assert counts == sorted(counts, reverse=True)
    for timeout_s in (2.0, 5.0):
        assert all(caps(result)[-1] == 16 for result in runs(waiting(timeout_s)))


# --- semaphores per tenant ------------------------------------------------------------------------


def static_caps(preset: presets.Preset) -> tuple[Result, ...]:
    loaded = presets.get("static-caps").apply(
        Simulation(instances=vllm_on_eks.toy_plant().instances)
    )
    return tuple(simulate(preset.apply(loaded), seeds=SEEDS))


def failures(results: tuple[Result, ...], tenant: str) -> float:
    tables = [result.requests for result in results]
    failed = [(table["tenant"] == tenant) & (table["outcome"] != "completed") for table in tables]
    return float(np.median([np.count_nonzero(rows) for rows in failed]))


def test_semaphores_per_tenant_protect_the_others_from_a_burst() -> None:
    """Published: 603 ms for A, 472 for C, 16.9 s (median) and 30.5 s for B, 404 of whose 450
    requests failed; without caps 33.2, 34.3 and 32.4 s and no failure. C's is a third higher here:
    to the plant, the requests of A and C are equal."""
    capped = static_caps(vllm_on_eks.static_caps())
    assert ttft_s(capped, "A", 99) == pytest.approx(0.603, rel=0.25)
    assert 0.472 < ttft_s(capped, "C", 99) < 0.7
    assert ttft_s(capped, "B", 50) == pytest.approx(16.9, rel=0.25)
    assert ttft_s(capped, "B", 99) == pytest.approx(30.5, rel=0.05)
    assert failures(capped, "B") == pytest.approx(404, rel=0.05)
    assert failures(capped, "A") == failures(capped, "C") == 0

    free = static_caps(vllm_on_eks.static_caps(caps=(1000, 1000, 1000)))
    # The figures of the plant end at 400 requests; that run had 649.
    assert min(ttft_s(free, tenant, 99) for tenant in "ABC") > 30
    assert failures(free, "B") == 0
    for tenant in "AC":
        assert ttft_s(free, tenant, 99) > 50 * ttft_s(capped, tenant, 99)


# --- closed forms ---------------------------------------------------------------------------------


def upstream_ttft_s(budget: float) -> float:
    return float(np.interp(budget, PLANT.concurrency, PLANT.ttft_s))


def throughput(budget: float) -> float:
    return budget / float(np.interp(budget, PLANT.concurrency, PLANT.e2e_s))


def predicted_wait_s(setup: Setup) -> dict[str, float]:
    """A full queue, emptied at the tenant's share of the throughput.

    A visit serves as many as the weight, 2 or 1, but no more than wait.
    """
    rate = throughput(2 * setup.start)
    limits = dict(zip("AB", setup.queue_max, strict=True))
    per_visit = {"A": min(2, limits["A"]), "B": 1}
    return {
        tenant: min(setup.timeout_s, most * sum(per_visit.values()) / (per_visit[tenant] * rate))
        for tenant, most in limits.items()
    }


FLOORS = (8, 16, 24, 32, 48, 64)
QUEUES = ((1, 1), (2, 1), (4, 1), (8, 2), (16, 16))


def at_the_floor(floor: int, queue_max: tuple[int, int]) -> Setup:
    return Setup(
        floor,
        queue_max,
        30,
        TO_THREE_QUARTERS,
        floor=floor,
        ceiling=256,
        cooldown_ticks=3,
        seeds=tuple(range(10)),
    )


@pytest.mark.parametrize("queue_max", QUEUES)
@pytest.mark.parametrize("floor", FLOORS)
def test_floor_absorbs_if_its_wait_exceeds_the_band(floor: int, queue_max: tuple[int, int]) -> None:
    """Sufficient, not necessary: permits come back in bursts, so the slowest wait longer."""
    setup = at_the_floor(floor, queue_max)
    predicted_s = max(predicted_wait_s(setup).values()) + upstream_ttft_s(2 * floor)
    stays = [
        bool((r.control["setting"][r.control["time_s"] > 100] == floor).all()) for r in runs(setup)
    ]
    if predicted_s > TARGET_S * (1 + BAND):
        assert all(stays)
    # No tenant's mean wait is much longer than in a queue that is always full.
    for result in runs(setup):
        requests = result.requests
        for tenant, most_s in predicted_wait_s(setup).items():
            served = (requests["tenant"] == tenant) & (requests["arrival_s"] > 100)
            wait_s = requests["queue_s"][served & np.isfinite(requests["ttft_s"])]
            assert wait_s.mean() <= 1.05 * most_s


def test_the_grid_of_floors_has_both_ends() -> None:
    predicted = {
        (floor, queue_max): max(predicted_wait_s(at_the_floor(floor, queue_max)).values())
        + upstream_ttft_s(2 * floor)
        for floor in FLOORS
        for queue_max in QUEUES
    }
    absorbed = [where for where, wait_s in predicted.items() if wait_s > TARGET_S * (1 + BAND)]
    assert len(absorbed) == 14
    # The shortest queues let it go in most runs.
    for floor in (24, 32):
        assert predicted[floor, (1, 1)] < TARGET_S * (1 - BAND)
        finals = [caps(result)[-1] for result in runs(at_the_floor(floor, (1, 1)))]
        assert np.mean([final > floor for final in finals]) > 0.5


def frozen(timeout_s: float) -> list[Result]:
    """Long enough for a limit that climbs by one per tick to reach its final value."""
    simulation = configured(waiting(timeout_s))
    clients = [client.replace(start_s=0, duration_s=900) for client in simulation.workload.clients]
    return list(
        simulate(simulation.with_({"workload.clients": clients, "horizon_s": 900}), seeds=SEEDS)
    )


@pytest.mark.parametrize("timeout_s", [0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0])
def test_limit_freezes_where_timeout_and_upstream_enter_the_band(timeout_s: float) -> None:
    """The deadband trap: the least budget B with T + U(B) >= 0.8 of the target."""
    budget = next(
        b for b in range(32, 401) if timeout_s + upstream_ttft_s(b) >= TARGET_S * (1 - BAND)
    )
    finals = []
    for result in frozen(timeout_s):
        last = result.control["time_s"] > 700
        finals.append(result.control["setting"][last].mean())
        # Where nothing held it, it would rise by 40.
        assert np.ptp(result.control["setting"][last]) <= 4
    assert np.median(finals) == pytest.approx(budget / 2, rel=0.16)


def test_trap_sheds_more_than_half() -> None:
    """Published: more than 60 %; ours is 58 %, with a wait of 0.25 s 45 %."""
    shares = {}
    for timeout_s in (0.25, 1.0):
        results = runs(waiting(timeout_s))
        shares[timeout_s] = np.median(
            [np.isin(r.requests["outcome"], ["rejected", "expired"]).mean() for r in results]
        )
    assert shares[1.0] > 0.55
    assert shares[0.25] < 0.5


def test_trap_costs_a_fifth_of_the_timely_requests() -> None:
    """A wait so short that T + U stays below the band at the budget of 128 costs none."""
    assert 0.25 + upstream_ttft_s(128) < TARGET_S * (1 - BAND) < 1.0 + upstream_ttft_s(128)
    assert timely(waiting(1.0)) < 0.8 * timely(waiting(0.25))
