"""Limits: the number in flight, by the requests' timestamps; no request waits needlessly."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import often, trials
from support.runs import SECOND, fixed, flat, order, outcomes, peak, run, ways
from support.specimens import at, examples

from spillway import Result, gateway, instance, metrics, signals, workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from support.runs import Way


def limited(*limits: Any, **settings: Any) -> gateway.Gateway:
    return gateway.Gateway(limit=list(limits), **settings)


def check(result: Result, allows: Callable[[Way, Sequence[Way]], bool]) -> int:
    """Each request was allowed among those in flight, and one that waited had not been before.

    `allows` states whether a request may join others. First come, first served. Returns the number
    of requests that waited.
    """
    them = ways(result)
    assert {way.outcome for way in them} == {"completed"}
    rows = order(result)
    assert rows == sorted(rows)
    waited = 0
    for row, way in enumerate(them):
        now = way.dispatched
        assert allows(way, [other for other in them[:row] if other.in_flight(now)]), row
        if now > way.arrived:
            waited += 1
            # The end or dispatch of another request made room at this very instant.
            blocked = [other for other in them[:row] if other.in_flight(now - 1)]
            is_next = row == 0 or them[row - 1].dispatched < now
            assert not is_next or not allows(way, blocked), row
    return waited


def random_limit(name: str, rng: random.Random) -> tuple[list[Any], Any, int]:
    """The limits, the check of what they allow, and the number of instances."""
    most, count = rng.randint(1, 6), rng.randint(1, 3)
    budget, assumed = rng.choice((50, 200, 1000)), rng.choice((0, 20))
    tokens = gateway.TokenBudget(max_tokens_in_flight=budget, assumed_output_tokens=assumed)
    predicted = tokens.replace(output_length="predicted")
    per_worker = gateway.WorkerBudget(cap_per_worker=most)

    def within_budget(joining: Way, others: Sequence[Way]) -> bool:
        inside = [joining, *others]
        return len(inside) == 1 or sum(way.input_tokens + assumed for way in inside) <= budget

    def within_predicted_budget(joining: Way, others: Sequence[Way]) -> bool:
        inside = [joining, *others]
        whole = sum(way.input_tokens + max(way.output_tokens, 1) for way in inside)
        return len(inside) == 1 or whole <= budget

    limits, allows = {
        "fixed": ([fixed(most)], lambda _, others: len(others) < most),
        "workers": ([per_worker.replace(workers=2)], lambda _, others: len(others) < 2 * most),
        "fleet": ([per_worker], lambda _, others: len(others) < count * most),
        "tokens": ([tokens], within_budget),
        "predicted tokens": ([predicted], within_predicted_budget),
        "several": (
            [per_worker, fixed(3), tokens],
            lambda joining, others: (
                len(others) < min(3, most * count) and within_budget(joining, others)
            ),
        ),
    }[name]
    return limits, allows, count


@pytest.mark.parametrize(
    "name", ["fixed", "workers", "fleet", "tokens", "predicted tokens", "several"]
)
def test_limit_holds_and_wastes_nothing(name: str) -> None:
    waited = 0
    for seed in trials(30):
        rng = random.Random(seed)
        limits, allows, count = random_limit(name, rng)
        n = 40
        result = run(
            np.cumsum([rng.choice((0, 0.05, 0.3)) for _ in range(n)]).tolist(),
            input_tokens=[rng.choice((1, 20, 150, 400)) for _ in range(n)],
            output_tokens=[rng.randint(1, 200) for _ in range(n)],
            instances=flat(reference_output_tokens=100).replace(count=count),
            gateway=limited(*limits),
        )
        waited += check(result, allows)
    assert waited > often(200)


@pytest.mark.parametrize("seed", trials(20))
def test_tenants_have_permits_of_their_own(seed: int) -> None:
    rng = random.Random(seed)
    n, limits = 60, {"a": 1, "b": 2, "c": 4}
    result = run(
        np.cumsum([rng.choice((0, 0.02, 0.1)) for _ in range(n)]).tolist(),
        output_tokens=[rng.randint(1, 100) for _ in range(n)],
        tenant=[rng.choice("abc") for _ in range(n)],
        tenants=[
            workload.Tenant(name="a", max_in_flight=limits["a"]),
            workload.Tenant(name="b"),
            workload.Tenant(name="c", max_in_flight=limits["c"]),
        ],
        instances=flat(reference_output_tokens=100),
        # A request without a permit is skipped.
        gateway=limited(
            gateway.PerTenant(max_in_flight=limits["b"]),
            bands=[gateway.Band(fairness=gateway.TenantRoundRobin())],
        ),
    )
    them = ways(result)
    for tenant, most in limits.items():
        mine = [way for way in them if way.tenant == tenant]
        for way in mine:
            assert sum(other.in_flight(way.dispatched) for other in mine) <= most
            if way.dispatched > way.arrived:
                # A permit of its own tenant came back, whatever the others left idle.
                assert sum(other.in_flight(way.dispatched - 1) for other in mine) == most


def test_oversized_request_goes_alone() -> None:
    result = run(
        [0, 0.1, 0.2, 0.3],
        input_tokens=[40, 500, 40, 40],
        gateway=limited(gateway.TokenBudget(max_tokens_in_flight=100)),
    )
    assert [way.dispatched for way in ways(result)] == [0, SECOND, 2 * SECOND, 2 * SECOND]


@pytest.mark.parametrize(
    "limit",
    [
        gateway.FixedLimit(max_in_flight=0),
        gateway.WorkerBudget(cap_per_worker=0),
        gateway.WorkerBudget(cap_per_worker=0, resize="verbatim"),
        gateway.WorkerBudget(workers=0),
        gateway.PerTenant(max_in_flight=0),
        gateway.TokenBudget(max_tokens_in_flight=0),
        gateway.DualLimit(max_in_flight=0),
        gateway.DualLimit(max_awaiting_first_token=0),
    ],
    ids=lambda limit: type(limit).__name__,
)
@pytest.mark.parametrize("dispatch", ["all", "one_per_attempt"])
@pytest.mark.parametrize("fairness", examples("Band.fairness"), ids=lambda policy: policy.kind)
def test_a_limit_of_zero_dispatches_nothing(limit: Any, dispatch: str, fairness: Any) -> None:
    settings = limited(limit, dispatch=dispatch, bands=[gateway.Band(fairness=fairness)])
    forever = run([0, 0.1, 0.2], tenant=["a", "b", "a"], gateway=settings)
    assert outcomes(forever) == ["queued"] * 3
    impatient = gateway.Band(fairness=fairness, queue=gateway.Queue(timeout_s=1))
    until = run([0, 0.1, 0.2], tenant=["a", "b", "a"], gateway=settings.replace(bands=[impatient]))
    assert outcomes(until) == ["expired"] * 3
    assert until.ledger["dispatched"] == 0


def test_a_tenant_without_permits_waits_alone() -> None:
    result = run(
        [0, 0.1, 0.2],
        tenant=["a", "b", "a"],
        tenants=[workload.Tenant(name="a", max_in_flight=0), workload.Tenant(name="b")],
        gateway=limited(gateway.PerTenant(), bands=[gateway.Band(fairness="round_robin")]),
    )
    assert outcomes(result) == ["queued", "completed", "queued"]


CONTROLLERS = [controller for each in at("Gateway.controller") for controller in each.cutting]


@pytest.mark.parametrize("controller", CONTROLLERS, ids=lambda policy: type(policy).__name__)
@pytest.mark.parametrize("start", [0, 8])
def test_a_controller_may_cut_to_nothing(controller: Any, start: int) -> None:
    """Every controller meets a limit of 0, from the start or by a cut, and the run ends."""
    result = run(
        np.arange(0, 60, 0.05).tolist(),
        gateway=limited(
            fixed(start),
            controller=controller,
            guard=gateway.Guard(floor=0, ceiling=8),
            sensor=signals.Sensor(tick_s=1, window_s=5, min_samples=1),
        ),
        metrics=metrics.Metrics(timeline_step_s=0.5),
    )
    settings = np.asarray(result.control["setting"])
    assert np.isfinite(settings).all()
    assert 0 <= settings.min() <= settings.max() <= 8
    if isinstance(controller, gateway.Aimd | gateway.Mimd):
        assert settings[-1] == 0
        assert outcomes(result)[-1] == "queued"
    if isinstance(controller, gateway.EnvoyGradient):
        assert settings.max() > 0  # it measures at min_concurrency


def test_a_ceiling_of_zero_lets_nothing_rise() -> None:
    result = run(
        [0.1 * i for i in range(100)],
        gateway=limited(fixed(0), controller="concur", guard=gateway.Guard(floor=0, ceiling=0)),
    )
    assert set(result.control["setting"]) == {0}
    assert set(outcomes(result)) == {"queued"}


def test_limit_on_first_tokens_binds_prefill_apart_from_streams() -> None:
    """First tokens come after 0.25 s, last ones after 1 s; every arrival looks for permits."""
    result = run(
        [0.1 * i for i in range(30)],
        gateway=limited(gateway.DualLimit(max_in_flight=100, max_awaiting_first_token=2)),
    )
    them = ways(result)
    awaiting = [
        sum(other.dispatched <= way.dispatched < other.first_token for other in them)
        for way in them
    ]
    assert max(awaiting) == 2
    assert peak(result) > 4


@pytest.mark.parametrize(("streams", "prefills"), [(3, 10), (3, 3), (1, 1)])
def test_dual_limit_also_binds_streams(streams: int, prefills: int) -> None:
    dual = gateway.DualLimit(max_in_flight=streams, max_awaiting_first_token=prefills)
    burst = [0.0] * 10
    plain = run(burst, gateway=limited(fixed(streams)))
    result = run(burst, gateway=limited(dual))
    assert peak(result) == streams
    assert ways(result) == ways(plain)


# --- saturation -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("ceiling", "expected"), [(1, 6), (0.5, 3), (0.51, 4), (2, 12)])
@pytest.mark.parametrize("count", [1, 3])
def test_concurrency_saturates_at_the_ceiling(ceiling: float, expected: int, count: int) -> None:
    detector = gateway.Saturation(detector="concurrency", max_concurrency=6 / count)
    result = run(
        [0.0] * 20,
        instances=flat().replace(count=count),
        gateway=limited(detector, bands=[gateway.Band(ceiling=ceiling)]),
    )
    assert peak(result) == expected
    assert set(outcomes(result)) == {"completed"}


def test_lower_band_leaves_room_for_the_upper() -> None:
    bands = [gateway.Band(priority=3, ceiling=1), gateway.Band(ceiling=0.5)]
    result = run(
        [0.0] * 8 + [0.1] * 8,
        slo_class=["batch"] * 8 + ["critical"] * 8,
        gateway=limited(gateway.Saturation(detector="concurrency", max_concurrency=6), bands=bands),
        horizon_s=0.5,
    )
    dispatched = [way.dispatched for way in ways(result)]
    assert dispatched == [0] * 3 + [None] * 5 + [SECOND // 10] * 3 + [None] * 5


@pytest.mark.parametrize(("threshold", "expected"), [(1.0, 14), (0.5, 5), (0.25, 3)])
def test_memory_in_use_saturates(threshold: float, expected: int) -> None:
    """101 to 110 blocks each: the n-th goes if the others hold less than the threshold. Nine never
    quite fill the memory; then five that wait for blocks saturate the engine's queue."""
    result = run(
        [0.1 * i for i in range(20)],
        input_tokens=1600,
        output_tokens=400,
        instances=instance.InstanceGroup(num_kv_blocks=1000, max_num_seqs=64),
        gateway=limited(gateway.Saturation(kv_utilization_threshold=threshold)),
        horizon_s=1.9,
    )
    assert peak(result) == expected


@pytest.mark.parametrize(
    ("settings", "most"), [({}, 4), ({"bands": [gateway.Band(ceiling=0.5)]}, 3)]
)
def test_queue_of_the_engine_saturates(settings: dict[str, Any], most: int) -> None:
    """One seat: the first is served, and three more wait before the fourth sees saturation."""
    result = run(
        [0.01 * i for i in range(10)],
        output_tokens=1000,
        instances=instance.InstanceGroup(max_num_seqs=1),
        gateway=limited(gateway.Saturation(queue_depth_threshold=3), **settings),
        horizon_s=0.2,
    )
    assert peak(result) == most


def test_saturation_is_the_mean_over_the_instances() -> None:
    """Two instances of one seat each and a threshold of 2: ten requests a hundredth apart go as
    long as the waiting ones are fewer than two per instance on average."""
    result = run(
        [0.01 * i for i in range(12)],
        output_tokens=1000,
        instances=instance.InstanceGroup(max_num_seqs=1, count=2),
        gateway=limited(gateway.Saturation(queue_depth_threshold=2)),
        horizon_s=0.3,
    )
    assert peak(result) == 6


@pytest.mark.parametrize("when_stale", ["hold", "fail_open", "fail_closed"])
def test_stale_signals_saturate(when_stale: str) -> None:
    """Scraped once, at 0.05 s, and stale from 0.35 s on, whatever stands for the value: what came
    before the first scrape waits, and so does what comes after 0.35 s."""
    scraped = signals.Scraped(period_s=100, phase_s=0.05, stale_after_s=0.3, when_stale=when_stale)
    result = run(
        [0, 0.1, 0.2, 0.34, 0.36, 0.5],
        output_tokens=1000,
        signals=scraped,
        instances=instance.InstanceGroup(),
        gateway=limited(gateway.Saturation()),
        horizon_s=2,
    )
    dispatched = [way.dispatched for way in ways(result)]
    tenth = SECOND // 10
    assert dispatched == [tenth // 2, tenth, 2 * tenth, 34 * tenth // 10, None, None]


def test_saturation_sees_what_was_scraped() -> None:
    """With a scrape a second a burst passes as a whole, which fresh signals would have held."""
    arrivals = [1 + 0.01 * i for i in range(20)]
    settings = {
        "output_tokens": 1000,
        "instances": instance.InstanceGroup(max_num_seqs=1),
        "gateway": limited(gateway.Saturation(queue_depth_threshold=1)),
        "horizon_s": 1.5,
    }
    assert peak(run(arrivals, **settings)) == 2
    assert peak(run(arrivals, signals=signals.Scraped(period_s=1), **settings)) == 20


# --- a budget that moves --------------------------------------------------------------------------


def moved(
    arrivals: Sequence[float], resize: str, e2e_s: float, horizon_s: float, cooldown_ticks: int = 0
) -> Result:
    """A budget of 100 is cut to 50 where first tokens come late, and grows by 10 where they do not.

    Those of the first ten inside take 0.5 s, the others' 1 ms; a tick a second looks back as long.
    """
    plant = instance.ProcessorSharing(
        concurrency=[10, 11], e2e_s=[e2e_s, e2e_s], ttft_s=[0.5, 0.001]
    )
    return run(
        arrivals,
        instances=instance.InstanceGroup(plant=plant),
        gateway=limited(
            gateway.WorkerBudget(cap_per_worker=50, workers=2, resize=resize),
            controller=gateway.Aimd(target_s=0.1, increase_step=5, decrease_factor=0.5),
            guard=gateway.Guard(cooldown_ticks=cooldown_ticks),
            sensor=signals.Sensor(
                aggregation="mean", tick_s=1, tick_drift_s=0, window_s=1, min_samples=1
            ),
        ),
        metrics=metrics.Metrics(timeline_step_s=1),
        horizon_s=horizon_s,
    )


@pytest.mark.parametrize(("resize", "expected"), [("corrected", 50), ("verbatim", 100)])
def test_shrink_does_not_bind_idle_permits_unless_corrected(resize: str, expected: int) -> None:
    """Ten of 100 are in flight as the budget falls to 50."""
    result = moved([0.0] * 10 + [1.5] * 200, resize, e2e_s=1000, horizon_s=1.9)
    assert result.timeline["permits"].tolist() == [100, 50]
    assert peak(result) == expected


@pytest.mark.parametrize(("resize", "expected"), [("corrected", 60), ("verbatim", 110)])
def test_growth_comes_on_top_of_a_shrink_unless_corrected(resize: str, expected: int) -> None:
    """After that shrink, with eleven in flight, the budget grows to 60."""
    result = moved([0.0] * 10 + [1.2] + [2.5] * 200, resize, e2e_s=1000, horizon_s=2.9)
    assert result.timeline["permits"].tolist() == [100, 50, 60]
    assert peak(result) == expected


def test_permits_that_return_pay_for_a_shrink() -> None:
    """Of the 100 in flight after a cut to 50, ten end at 3 s and 90 at 4.5 s: 50 go on."""
    arrivals = [0.0] * 10 + [1.5] * 200
    result = moved(arrivals, "verbatim", e2e_s=3, horizon_s=5, cooldown_ticks=100)
    assert peak(result) == 100
    after = [peak(result, [int(at * SECOND)]) for at in (2.9, 3, 4.4, 4.5, 4.9)]
    assert after == [100, 90, 90, 50, 50]
    corrected = moved(arrivals, "corrected", e2e_s=3, horizon_s=5, cooldown_ticks=100)
    after = [peak(corrected, [int(at * SECOND)]) for at in (2.9, 3, 4.4, 4.5, 4.9)]
    assert after == [50] * 5
