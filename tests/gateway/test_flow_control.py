"""Flow control of llm-d: one dispatch per attempt, ceilings, capacity, eviction from instances."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.effort import often, trials
from support.runs import MS, SECOND, concurrency, fixed, flat, outcomes, peak, run, ways
from support.twins import flow_control as plain

from spillway import ConfigError, Result, Simulation, gateway, instance, simulate, workload

CLASSES = {"urgent": 4, "plain": 3, "spare": -1, "scrap": -2}
SLO_CLASSES = [workload.SloClass(name=name, priority=rank) for name, rank in CLASSES.items()]


def one_at_a_time(*limits: Any, **settings: Any) -> gateway.Gateway:
    limit = list(limits) or [gateway.Unlimited()]
    return gateway.Gateway(dispatch="one_per_attempt", limit=limit, **settings)


def dispatched_ms(result: Result) -> list[float | None]:
    return [None if way.dispatched is None else way.dispatched / MS for way in ways(result)]


# --- against a plain model ------------------------------------------------------------------------


def random_control(rng: random.Random, num_tenants: int) -> plain.FlowControl:
    bands = [
        plain.Band(
            priority=priority,
            ceiling=rng.choice((1, 1, 0.8, 0.5, 1.3)),
            most=rng.choice((None, None, 2, 6)),
            most_of_tenant=rng.choice((None, None, 1, 3)),
            timeout=rng.choice((None, None, 25 * MS, 90 * MS + 1)),
            in_turns=rng.random() < 0.5,
        )
        for priority in sorted(rng.sample((5, 4, 3, 0, -1, -2), rng.randint(1, 4)), reverse=True)
    ]
    return plain.FlowControl(
        bands,
        num_tenants,
        capacity=rng.choice((1.0, 2.0, 3.5, 8.0)),
        permits=rng.choice((None, None, 2, 5)),
        one_per_attempt=rng.random() < 0.7,
        period=rng.choice((1, 1, 2, 7)) * MS,
        most=rng.choice((None, 4, 10)),
        sheds=rng.random() < 0.5,
        usage_limit=rng.choice(("static", "static", "holdback_rank", "holdback_value", "soft")),
        lowest_ceiling=rng.choice((0.5, 0.25)),
        max_victims=rng.choice((0, 0, 1, 2, 5)),
        grace=rng.choice((0, 3 * MS, 30 * MS)),
        timeout=rng.choice((1, 5 * MS)),
    )


def random_requests(rng: random.Random, num_tenants: int) -> list[plain.Request]:
    now, requests = 0, []
    for row in range(rng.randint(1, 60)):
        now += rng.choice((0, 0, 500_000, MS, 10 * MS, rng.randrange(20 * MS)))
        requests.append(
            plain.Request(
                row,
                now,
                rng.randrange(num_tenants),
                rng.choice(list(CLASSES.values())),
                rng.choice((1, 1, 2, 5)),
            )
        )
    return requests


def simulated(control: plain.FlowControl, requests: list[plain.Request]) -> Result:
    low = control.lowest_ceiling
    usage_limit = {
        "static": gateway.StaticCeilings(),
        "soft": gateway.SoftReflective(),
        "holdback_rank": gateway.PriorityHoldback(min_ceiling=low),
        "holdback_value": gateway.PriorityHoldback(min_ceiling=low, domain="value"),
    }[control.usage_limit]
    fairness = {True: gateway.TenantRoundRobin(), False: gateway.GlobalFifo()}
    names = {priority: name for name, priority in CLASSES.items()}
    return run(
        [request.arrival / SECOND for request in requests],
        output_tokens=[request.tokens for request in requests],
        tenant=[f"t{request.tenant}" for request in requests],
        slo_class=[names[request.priority] for request in requests],
        tenants=[workload.Tenant(name=f"t{i}") for i in range(control.num_tenants)],
        slo_classes=SLO_CLASSES,
        instances=flat(1, 0.001, reference_output_tokens=100),
        gateway=gateway.Gateway(
            bands=[
                gateway.Band(
                    priority=band.priority,
                    ceiling=band.ceiling,
                    max_requests=band.most,
                    fairness=fairness[band.in_turns],
                    queue=gateway.Queue(
                        max_requests=band.most_of_tenant,
                        timeout_s=None if band.timeout is None else band.timeout / SECOND,
                    ),
                )
                for band in control.bands
            ],
            max_queued=control.most,
            queue_shedding=control.sheds,
            dispatch="one_per_attempt" if control.one_per_attempt else "all",
            attempt_period_s=control.period / SECOND,
            limit=[
                concurrency(control.capacity),
                *([] if control.permits is None else [fixed(control.permits)]),
            ],
            usage_limit=usage_limit,
            eviction=gateway.Eviction(
                max_victims=control.max_victims,
                grace_s=control.grace / SECOND,
                timeout_s=max(control.timeout, 1) / SECOND,
            ),
        ),
    )


def endings(result: Result) -> list[tuple[str, str, int | None, int | None]]:
    return [
        (way.outcome, reason, way.dispatched, way.ended)
        for way, reason in zip(ways(result), result.requests["reason"].tolist(), strict=True)
    ]


def expected(requests: list[plain.Request]) -> list[tuple[str, str, int | None, int | None]]:
    return [
        # A request that leaves its instance unfinished has no end-to-end latency.
        (
            request.outcome,
            request.reason,
            request.dispatched,
            request.ended if request.outcome == "completed" else None,
        )
        for request in requests
    ]


def test_gateway_equals_its_plain_model() -> None:
    seen: Counter[str] = Counter()
    for seed in trials(1500):
        rng = random.Random(seed)
        num_tenants = rng.randint(1, 3)
        control = random_control(rng, num_tenants)
        requests = random_requests(rng, num_tenants)
        result = simulated(control, requests)
        control.run(requests)
        assert endings(result) == expected(requests), (seed, control)
        seen.update(
            {request.reason for request in requests} | {request.outcome for request in requests}
        )
        seen[control.usage_limit] += 1
        mode = "one" if control.one_per_attempt else "all"
        if any(o.dispatched is not None and o.dispatched > o.arrival for o in requests):
            seen[mode] += 1
    reasons = ("queue_full", "queue_timeout", "in_flight_eviction")
    for word in (*reasons, "evicted", "rejected", "soft", "one", "all"):
        assert seen[word] > often(100), (word, seen)


# --- one dispatch per attempt ---------------------------------------------------------------------


def test_one_goes_when_one_joins_and_one_every_period() -> None:
    """The fleet is full until 1 s. Those that wait then go one by one, those that join at once."""
    result = run(
        [0, 0.1, 0.2, 0.3, 1.0, 1.0025], gateway=one_at_a_time(fixed(100), bands=[gateway.Band()])
    )
    assert dispatched_ms(result) == [0, 100, 200, 300, 1000, 1002.5]
    # A permit for each of four returns at 1 s, 1.1 s and so on; four wait at 0.3 s.
    waits = run([0, 0, 0, 0, 0.1, 0.2, 0.3, 0.4], gateway=one_at_a_time(fixed(4)))
    # The first attempt by the clock came at 101 ms.
    assert dispatched_ms(waits) == [0, 0, 0, 0, 1000, 1001, 1002, 1003]
    assert [way.ended for way in ways(waits)[:4]] == [SECOND] * 4


def test_a_released_permit_alone_dispatches_no_request() -> None:
    """The series began at 100.25 ms, so the attempt after 1 s comes at 1,000.25 ms. The permit then
    given returns at the very instant of an attempt, which sees it."""
    arrivals = [0, 0.10025, 0.10025]
    assert dispatched_ms(run(arrivals, gateway=one_at_a_time(fixed(1)))) == [0, 1000.25, 2000.25]
    drained = run(arrivals, gateway=one_at_a_time(fixed(1)).replace(dispatch="all"))
    assert dispatched_ms(drained) == [0, 1000, 2000]


@pytest.mark.parametrize("period_s", [0.001, 0.01, 0.25])
def test_no_more_than_a_dispatch_per_period_beyond_the_arrivals(period_s: float) -> None:
    result = run(
        [0.0] + [0.5] * 50,
        gateway=one_at_a_time(gateway.FixedLimit(max_in_flight=1), attempt_period_s=period_s),
        horizon_s=1.2,
    )
    assert sum(at is not None for at in dispatched_ms(result)) == 2
    free = run(
        [0.0] * 30,
        gateway=one_at_a_time(concurrency(10), attempt_period_s=period_s),
        instances=flat(1).replace(count=1),
        horizon_s=4,
    )
    at = np.array([way.dispatched for way in ways(free) if way.dispatched is not None])
    assert (at == 0).sum() == 10
    assert set(np.diff(at[10:20]).tolist()) == {round(period_s * SECOND)}


def test_attempts_that_cannot_come_to_anything_are_left_out() -> None:
    """Two hundred requests wait for an hour on a permit: a few events each, not 3.6 million."""
    held = {"arrival_s": [0.0, *[0.1] * 200], "instances": flat(3600), "horizon_s": 3599.0}
    idle = run(**held, gateway=one_at_a_time(fixed(1)))
    counted = run(**held, gateway=one_at_a_time(concurrency(1)))
    assert idle.ledger["queued"] == counted.ledger["queued"] == 200
    assert max(idle.events, counted.events) < 1500
    # The order of dispatch does not depend on the instants of the attempts.
    both = [
        run([0, 0.5, 0.5, 1.0, 2.5], gateway=one_at_a_time(limit, attempt_period_s=0.003))
        for limit in (fixed(1), gateway.TokenBudget(max_tokens_in_flight=1))
    ]
    assert dispatched_ms(both[0]) == dispatched_ms(both[1]) == [0, 1000, 2000, 3002, 4004]


def test_nothing_is_attempted_where_nothing_waits_or_can_change() -> None:
    served = run([0, 3600.0], gateway=one_at_a_time(gateway.Saturation()))
    assert set(outcomes(served)) == {"completed"}
    assert served.events < 50
    # Nothing is in flight, and the reports that are to come are all known.
    shut = run([0.0], gateway=one_at_a_time(gateway.Saturation(), bands=[gateway.Band(ceiling=0)]))
    assert outcomes(shut) == ["queued"]
    assert shut.events < 50


def test_jumps_make_no_difference() -> None:
    seen = set()
    for seed in trials(40):
        rng = random.Random(seed)
        settings = {
            "workload": workload.Synthetic(
                num_requests=80,
                requests_per_s=rng.choice((50, 300, 2000)),
                clients=[
                    workload.Client(name=name, tenant=name, slo_class=slo_class)
                    for name, slo_class in (("a", "critical"), ("b", "standard"), ("c", "batch"))
                ],
            ),
            "instances": instance.InstanceGroup(
                count=rng.choice((1, 3)), max_num_seqs=rng.choice((2, 8)), num_kv_blocks=400
            ),
            "gateway": one_at_a_time(
                rng.choice((concurrency(6), gateway.Saturation(queue_depth_threshold=2))),
                bands=[gateway.Band(priority=4), gateway.Band(priority=3), gateway.Band()],
                usage_limit=rng.choice(
                    (gateway.SoftReflective(), gateway.PriorityHoldback(min_ceiling=0.3))
                ),
                eviction=gateway.Eviction(max_victims=rng.choice((0, 2)), grace_s=0.01),
            ),
        }
        simulation = Simulation(**settings)
        jumps = simulate(simulation, seed)
        assert jumps.digest == simulate(simulation, seed, reference=True).digest, seed
        seen.update(outcomes(jumps))
    assert {"completed"} <= seen


def test_drain_latency_does_not_go_with_attempts() -> None:
    with pytest.raises(ConfigError, match=r"drain_latency_s.*one_per_attempt"):
        run([0], gateway=one_at_a_time(drain_latency_s=0.001))


# --- ceilings -------------------------------------------------------------------------------------


FIVE = [gateway.Band(priority=priority) for priority in (4, 3, 1, 0, -1)]


@pytest.mark.parametrize(
    ("holdback", "bands", "expected"),
    [
        ({"min_ceiling": 0.2}, FIVE, [100, 80, 60, 40, 20]),
        ({"min_ceiling": 0.5, "max_ceiling": 0.9}, FIVE, [90, 80, 70, 60, 50]),
        ({"min_ceiling": 0.5, "domain": "value"}, FIVE, [100, 90, 70, 60, 50]),
        ({"min_ceiling": 0.2}, FIVE[:1], [100]),
    ],
)
@pytest.mark.parametrize("dispatch", ["all", "one_per_attempt"])
def test_holdback_is_linear(
    holdback: dict[str, Any], bands: list[gateway.Band], expected: list[int], dispatch: str
) -> None:
    """A band by itself fills the fleet up to its ceiling, here in hundredths."""
    for band, most in zip(bands, expected, strict=True):
        result = run(
            [0.0] * 120,
            slo_class="only",
            slo_classes=[workload.SloClass(name="only", priority=band.priority)],
            gateway=gateway.Gateway(
                bands=bands,
                dispatch=dispatch,
                limit=[concurrency(100)],
                usage_limit=gateway.PriorityHoldback(**holdback),
            ),
            horizon_s=0.5,
        )
        assert peak(result) == most


def test_holdback_takes_the_place_of_the_bands_own_ceilings() -> None:
    bands = [gateway.Band(ceiling=0.1)]
    result = run(
        [0.0] * 20,
        gateway=gateway.Gateway(
            bands=bands, limit=[concurrency(10)], usage_limit=gateway.PriorityHoldback()
        ),
        horizon_s=0.5,
    )
    assert peak(result) == 10


def test_ceilings_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"min_ceiling.*max_ceiling"):
        run([0], gateway={"usage_limit": gateway.PriorityHoldback(max_ceiling=0.3)})


def test_soft_ceiling_lets_a_trickle_through() -> None:
    """With nine of twelve places taken the lower of two bands is past its ceiling of 1 - 0.75 and
    open at every third call; with ten, at every fifth; with eleven, at every eleventh."""
    result = run(
        [0.0] * 9 + [0.1] * 5,
        slo_class=["urgent"] * 9 + ["scrap"] * 5,
        slo_classes=SLO_CLASSES,
        gateway=one_at_a_time(
            concurrency(12),
            bands=[gateway.Band(priority=0), gateway.Band()],
            usage_limit=gateway.SoftReflective(),
        ),
        horizon_s=0.9,
    )
    # Calls 1 to 3 belong to the seventh to ninth request, which found half and more in use, and 4
    # to 8 to the five later ones: the sixth is open. Those by the clock begin at 101 ms: the tenth
    # is open to the next, the eleventh to one more. Then all is closed.
    assert dispatched_ms(result)[9:] == [100, 102, 103, None, None]


def test_soft_ceilings_are_open_below_half() -> None:
    result = run(
        [0.0] * 8,
        slo_class="scrap",
        slo_classes=SLO_CLASSES,
        gateway=one_at_a_time(
            concurrency(10),
            bands=[gateway.Band(priority=0), gateway.Band()],
            usage_limit=gateway.SoftReflective(),
        ),
    )
    # From a half on calls are counted: the first finds round(0.5 / 0.5), the second
    # round(0.6 / 0.4) and the third round(0.7 / 0.3), of which it is no multiple.
    at = dispatched_ms(result)
    assert at[:7] == [0] * 7
    assert at[7] == 1


# --- capacity -------------------------------------------------------------------------------------


def held(capacity: dict[str, Any], bands: list[gateway.Band] | None = None) -> gateway.Gateway:
    """One request goes; the others wait."""
    return gateway.Gateway(limit=[fixed(1)], bands=bands or [gateway.Band()], **capacity)


def lost(result: Result) -> dict[int, tuple[str, str]]:
    reasons = result.requests["reason"].tolist()
    ends = outcomes(result)
    return {row: (ends[row], reasons[row]) for row in range(len(ends)) if ends[row] != "completed"}


REFUSED = ("rejected", "queue_full")
DISPLACED = ("evicted", "queue_full")


def test_band_is_bounded_over_all_tenants() -> None:
    result = run(
        [0.0] * 8,
        tenant=list("aabcdabc"),
        slo_class=["urgent"] * 5 + ["scrap"] * 3,
        slo_classes=SLO_CLASSES,
        gateway=held({}, [gateway.Band(priority=0, max_requests=2), gateway.Band(max_requests=1)]),
    )
    assert lost(result) == dict.fromkeys((3, 4, 6, 7), REFUSED)
    assert result.ledger["rejected"] == {"queue_full": 4}


def test_gateway_is_bounded_over_all_bands() -> None:
    bands = [gateway.Band(priority=0), gateway.Band()]
    result = run(
        [0.0] * 6,
        slo_class=["urgent", "scrap", "urgent", "scrap", "urgent", "scrap"],
        slo_classes=SLO_CLASSES,
        gateway=held({"max_queued": 3}, bands),
    )
    assert lost(result) == dict.fromkeys((4, 5), REFUSED)


@pytest.mark.parametrize("ordering", ["fcfs", "lifo"])
def test_shedding_displaces_the_newest_of_the_least(ordering: str) -> None:
    """Three places, taken by scrap, scrap and spare. A request that is not sheddable is never
    displaced, nor is any request by its equals."""
    classes = ["plain", "scrap", "scrap", "spare", "scrap", "urgent", "spare", "plain", "urgent"]
    queue = gateway.Queue(ordering=ordering)
    bands = [gateway.Band(priority=0, queue=queue), gateway.Band(queue=queue)]
    result = run(
        [0.01 * i for i in range(9)],
        slo_class=classes,
        slo_classes=SLO_CLASSES,
        tenant=list("aabababab"),
        gateway=held({"max_queued": 3, "queue_shedding": True}, bands),
    )
    assert lost(result) == {
        4: REFUSED,  # scrap finds its equal
        2: DISPLACED,  # by 5, urgent: the newer of both scraps
        1: DISPLACED,  # by 6, spare
        6: DISPLACED,  # by 7, plain: the newer spare
        3: DISPLACED,  # by 8, urgent
    }
    assert result.ledger["evicted"] == 4
    assert result.ledger["rejected"] == {"queue_full": 1}


def test_only_sheddable_ones_are_displaced() -> None:
    result = run(
        [0.0] * 4,
        slo_class=["plain", "plain", "plain", "urgent"],
        slo_classes=SLO_CLASSES,
        gateway=held({"max_queued": 2, "queue_shedding": True}),
    )
    assert lost(result) == {3: REFUSED}


def test_place_that_a_tenant_makes_counts_for_all() -> None:
    """The queue of the tenant drops its head: the band and the gateway are no fuller."""
    band = gateway.Band(queue=gateway.Queue(max_requests=1, drop="head"), max_requests=1)
    assert lost(run([0.0] * 3, gateway=held({"max_queued": 1}, [band]))) == {1: DISPLACED}


# --- eviction from the instances ------------------------------------------------------------------


def evicting(
    capacity: float, bands: list[gateway.Band], dispatch: str = "one_per_attempt", **settings: Any
) -> gateway.Gateway:
    return gateway.Gateway(
        bands=bands,
        dispatch=dispatch,
        limit=[concurrency(capacity)],
        eviction=gateway.Eviction(**({"max_victims": 2} | settings)),
    )


TWO = [gateway.Band(priority=0), gateway.Band()]


def evicted(result: Result) -> list[int]:
    """The requests evicted from an instance."""
    reasons = result.requests["reason"].tolist()
    rows = [row for row, reason in enumerate(reasons) if reason == "in_flight_eviction"]
    ends = outcomes(result)
    assert all(ends[row] == "evicted" for row in rows)
    assert result.ledger["evicted"] >= len(rows) == result.ledger["evicted_in_flight"]
    return rows


def test_eviction_makes_room_for_one_at_a_time() -> None:
    """Ten scraps fill the fleet. The newest is evicted for the first urgent request, which the next
    attempt dispatches; the others follow after half a second of grace each."""
    result = run(
        [0.0] * 10 + [0.1] * 3,
        slo_class=["scrap"] * 10 + ["urgent"] * 3,
        slo_classes=SLO_CLASSES,
        instances=flat(5),
        gateway=evicting(10, TWO),
        horizon_s=2,
    )
    assert evicted(result) == [7, 8, 9]
    assert dispatched_ms(result)[10:] == [100, 601, 1101]
    assert result.ledger["running"] == 10


@pytest.mark.parametrize(("max_victims", "expected"), [(1, 1), (2, 2), (3, 3), (9, 4), (0, 0)])
def test_as_many_are_taken_as_bring_the_surplus(max_victims: int, expected: int) -> None:
    """Eight in flight of eight, and a ceiling of a half: each eviction is to free an eighth."""
    bands = [gateway.Band(priority=0, ceiling=0.5), gateway.Band()]
    result = run(
        [0.0] * 8 + [0.1],
        slo_class=["scrap"] * 8 + ["urgent"],
        slo_classes=SLO_CLASSES,
        instances=flat(5),
        gateway=evicting(8, bands, "all", max_victims=max_victims),
        horizon_s=0.5,
    )
    assert evicted(result) == list(range(8 - expected, 8))


def test_victims_are_the_least_important_and_then_the_newest() -> None:
    bands = [gateway.Band(priority=0, ceiling=0.5), gateway.Band()]
    classes = ["plain", "plain", "urgent", "spare", "scrap", "scrap", "spare", "spare"]

    def taken(until_s: float) -> list[int]:
        result = run(
            [0.0] * 8 + [0.1] * 5,
            slo_class=classes + ["urgent"] * 5,
            slo_classes=SLO_CLASSES,
            instances=flat(50),
            gateway=evicting(8, bands, "all", max_victims=3),
            horizon_s=until_s,
        )
        return evicted(result)

    # Three of a surplus of four; the fourth half a second later, and one more, as a fleet that is
    # half in use is closed to a ceiling of a half.
    assert taken(0.2) == [4, 5, 7]
    assert taken(0.7) == [4, 5, 6, 7]
    assert taken(40) == [3, 4, 5, 6, 7]


def test_no_request_is_evicted_for_its_own_band() -> None:
    for bands in ([gateway.Band()], [gateway.Band(priority=5), gateway.Band(priority=-2)]):
        result = run(
            [0.0] * 3 + [0.1],
            slo_class=["scrap"] * 3 + ["urgent"],
            slo_classes=SLO_CLASSES,
            gateway=evicting(3, bands),
        )
        assert not evicted(result)


def test_eviction_needs_a_saturation_limit() -> None:
    with pytest.raises(ConfigError, match=r"max_victims.*saturation"):
        run([0], gateway={"eviction": gateway.Eviction(max_victims=1)})


def test_next_decision_waits_for_victims_but_not_forever() -> None:
    """Requests take two seconds to reach the instance, where alone they can be evicted."""
    settings = {
        "arrival_s": [0.0] * 4 + [0.1],
        "slo_class": ["scrap"] * 4 + ["urgent"],
        "slo_classes": SLO_CLASSES,
        "instances": flat(50),
    }
    bands = [gateway.Band(priority=0, ceiling=0.25), gateway.Band()]

    def taken(until_s: float, timeout_s: float) -> list[int]:
        control = evicting(4, bands, "all", timeout_s=timeout_s, max_victims=1)
        control = control.replace(routing_latency_s=2)
        return evicted(run(**settings, gateway=control, horizon_s=until_s))

    assert taken(1.99, 10) == []
    assert taken(2.2, 10) == [3]
    assert taken(2.6, 10) == [2, 3]
    # Each half second another one is condemned.
    assert taken(2.01, 0.5) == [0, 1, 2, 3]


def test_evicted_requests_return_what_they_hold() -> None:
    """Steps, memory, permits and books add up, at any state in which a victim is evicted."""
    seen: Counter[str] = Counter()
    for seed in trials(60):
        rng = random.Random(seed)
        simulation = Simulation(
            workload=workload.Synthetic(
                num_requests=150,
                requests_per_s=rng.choice((100, 400, 3000)),
                clients=[
                    workload.Client(name=name, tenant=name, slo_class=slo_class)
                    for name, slo_class in (("a", "critical"), ("b", "batch"), ("c", "sheddable"))
                ],
            ),
            instances=instance.InstanceGroup(
                count=rng.choice((1, 3)),
                max_num_seqs=rng.choice((2, 8)),
                num_kv_blocks=rng.choice((150, 400)),
                data_parallel_size=rng.choice((1, 2)),
            ),
            gateway=evicting(
                rng.choice((4, 9)),
                [gateway.Band(priority=0), gateway.Band()],
                rng.choice(("all", "one_per_attempt")),
                grace_s=rng.choice((0, 0.02)),
            ).with_(
                {
                    "limit[0].detector": rng.choice(("utilization", "concurrency")),
                    "limit[0].queue_depth_threshold": 2,
                    "routing_latency_s": rng.choice((0, 0.003)),
                    "usage_limit": gateway.PriorityHoldback(min_ceiling=0.6),
                }
            ),
            metrics={"timeline_step_s": 0.01},
        )
        result = simulate(simulation, seed)
        seen.update(outcomes(result))
        assert simulate(simulation, seed, reference=True).digest == result.digest, seed
        evicted(result)
        assert set(outcomes(result)) <= {"completed", "evicted", "rejected"}, seed
        assert result.timeline["in_flight"][-1] >= 0
        streamed = simulate(simulation.with_({"metrics.streaming": True}), seed)
        assert streamed.ledger == result.ledger, seed
    assert seen["evicted"] > often(200)
    assert seen["completed"] > often(2000)


# --- cycles ---------------------------------------------------------------------------------------


def cycles(*limits: Any, **settings: Any) -> gateway.Gateway:
    return one_at_a_time(*limits, **settings).replace(dispatch="one_per_cycle")


def test_cycles_come_at_whole_periods() -> None:
    """Permits return at 1,000 ms; four wait since 100.25 ms."""
    arrivals = [0, 0, 0.10025, 0.10025]
    assert dispatched_ms(run(arrivals, gateway=cycles(fixed(2)))) == [0, 0, 1000, 1001]
    slower = cycles(fixed(2), attempt_period_s=0.3)
    assert dispatched_ms(run(arrivals, gateway=slower)) == [0, 0, 1200, 1500]


def test_a_refused_request_makes_a_cycle() -> None:
    """The second waits from 0.1 s on; at 1.5 ms after the permit has returned, a third comes."""
    control = cycles(fixed(1), attempt_period_s=1.7, bands=[gateway.Band(max_requests=1)])
    result = run([0, 0.1, 1.0015], gateway=control)
    assert outcomes(result) == ["completed", "completed", "rejected"]
    assert dispatched_ms(result) == [0, 1001.5, None]


def test_turns_begin_again_with_the_first_tenant() -> None:
    """b is served, and cycles find its band empty. Then a more important request takes the second
    permit, until the first one returns at 1 s."""
    settings: dict[str, Any] = {
        "arrival_s": [0, 0.5, 0.6, 0.7],
        "tenant": ["b", "b", "c", "a"],
        "slo_class": ["plain", "urgent", "plain", "plain"],
        "tenants": [workload.Tenant(name=name) for name in "abc"],
        "slo_classes": SLO_CLASSES,
    }
    bands = [
        gateway.Band(priority=priority, fairness=gateway.TenantRoundRobin()) for priority in (4, 0)
    ]
    again = run(**settings, gateway=cycles(fixed(2), bands=bands))
    assert dispatched_ms(again) == [0, 500, 1500, 1000]
    goes_on = run(**settings, gateway=one_at_a_time(fixed(2), bands=bands))
    assert dispatched_ms(goes_on) == [0, 500, 1000, 1500]


def test_expired_requests_keep_their_places_until_the_next_search() -> None:
    """One server and one place to wait. The second expires after 0.3 s, the third finds its place
    taken, the fourth comes at 0.5 s, when the search has made room."""
    band = gateway.Band(max_requests=1, queue=gateway.Queue(timeout_s=0.3))
    control = gateway.Gateway(limit=fixed(1), bands=[band], expiry_period_s=0.5)
    settings: dict[str, Any] = {"instances": flat(5, 1)}
    result = run([0, 0.11, 0.45, 0.5, 0.9], gateway=control, **settings)
    assert outcomes(result) == ["completed", "expired", "rejected", "expired", "rejected"]
    at_once = run([0, 0.11, 0.45, 0.5, 0.9], gateway=control.replace(expiry_period_s=0), **settings)
    assert outcomes(at_once) == ["completed", "expired", "expired", "rejected", "expired"]


def test_an_expired_request_may_still_be_dispatched() -> None:
    band = gateway.Band(queue=gateway.Queue(timeout_s=0.3))
    control = gateway.Gateway(limit=fixed(1), bands=[band], expiry_period_s=10)
    assert outcomes(run([0, 0.1], gateway=control)) == ["completed"] * 2


def test_timeouts_of_classes_come_before_those_of_the_queue() -> None:
    """By deadline, with edf; the queue's timeout holds for the others."""
    classes = [
        workload.SloClass(name="hasty", queue_timeout_s=0.4),
        workload.SloClass(name="plain"),
    ]
    band = gateway.Band(queue=gateway.Queue(timeout_s=2, ordering="edf"))
    settings: dict[str, Any] = {
        "slo_class": ["plain", "plain", "hasty", "hasty"],
        "slo_classes": classes,
        "instances": flat(1, 0.5),
    }
    control = gateway.Gateway(limit=fixed(1), bands=[band])
    result = run([0, 0.2, 0.3, 0.7], gateway=control, **settings)
    assert outcomes(result) == ["completed", "completed", "expired", "completed"]
    assert dispatched_ms(result) == [0, 2000, None, 1000]
