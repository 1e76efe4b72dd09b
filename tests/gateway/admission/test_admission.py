"""Admission policies: every verdict by a plain restatement of its rule, and what follows."""

from __future__ import annotations

import functools
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.admission_policies import POLICIES
from support.effort import scaled, trials
from support.runs import MS, SECOND, fixed, flat, ns, outcomes, run, steady, ways
from support.twins import admission as plain

from spillway import (
    ConfigError,
    Result,
    Simulation,
    fleet,
    gateway,
    instance,
    metrics,
    signals,
    simulate,
    workload,
)
from spillway import trace as recorded

STEP = SECOND // 100
BLOCKS = 100
TENANTS = [
    workload.Tenant(name="a", weight=1),
    workload.Tenant(name="b", weight=2.5),
    workload.Tenant(name="c", weight=0.5),
]
CLASSES = [
    plain.Class("critical", 4, ttft_s=0.5, e2e_s=1.2),
    plain.Class("standard", 3, ttft_s=0.9, tpot_s=0.0101),
    plain.Class("open", 0),
    plain.Class("batch", -1, ttft_s=0.4, tpot_s=0.019, e2e_s=1.0),
    plain.Class("sheddable", -2, ttft_s=0.25),
]
SLO_CLASSES = [
    workload.SloClass(
        name=one.name,
        priority=one.priority,
        target_ttft_s=one.ttft_s,
        target_tpot_s=one.tpot_s,
        target_e2e_s=one.e2e_s,
    )
    for one in CLASSES
]


# --- every verdict --------------------------------------------------------------------------------


def one_seat(count: int) -> instance.InstanceGroup:
    """What the oracle's fleet is: one request at a time, a hundredth of a second per token."""
    return instance.InstanceGroup(
        count=count, max_num_seqs=1, num_kv_blocks=BLOCKS, latency=steady(STEP / MS)
    )


class Trial:
    """A random overload before a random gateway with one policy: as simulated and as restated."""

    def __init__(self, name: str, seed: int) -> None:
        rng = random.Random(seed)
        self.policy = POLICIES[name](rng)
        n, count = 150, rng.choice((1, 2, 3))
        # Nothing else happens at an instant of these.
        mean_gap = rng.choice((0.05, 0.1)) / count * SECOND
        arrivals = np.cumsum([rng.randrange(1, int(2 * mean_gap)) for _ in range(n)]).tolist()
        self.requests = [
            plain.Request(
                row=row,
                arrival=at,
                prompt=rng.choice((1, 60, 300, 900)),
                output=rng.choice((1, 2, 10, 30)),
                tenant=rng.randrange(len(TENANTS)),
                slo_class=k,
                priority=CLASSES[k].priority,
            )
            for row, at in enumerate(arrivals)
            for k in [rng.randrange(len(CLASSES))]
        ]
        permits = rng.choice((None, None, 4)) if name not in ("Dagor", "Bouncer") else 3
        timeout_s = rng.choice((None, 0.31)) if permits else None
        self.simulation = Simulation(
            workload=recorded(
                arrival_s=[one.arrival / SECOND for one in self.requests],
                input_tokens=[one.prompt for one in self.requests],
                output_tokens=[one.output for one in self.requests],
                tenant=[TENANTS[one.tenant].name for one in self.requests],
                slo_class=[CLASSES[one.slo_class].name for one in self.requests],
            ),
            tenants=TENANTS,
            slo_classes=SLO_CLASSES,
            gateway=gateway.Gateway(
                admission=self.policy,
                bands=gateway.Band(queue=gateway.Queue(timeout_s=timeout_s)),
                limit=fixed(permits) if permits else "unlimited",
            ),
            router="round_robin",
            instances=one_seat(count),
            metrics=metrics.Metrics(traced_candidates=count),
        )
        self.fleet = plain.Fleet(count, STEP, BLOCKS)
        rule = plain.RULES[name](self.policy, self.fleet, TENANTS, CLASSES)
        timeout = None if timeout_s is None else round(timeout_s * SECOND)
        self.gateway = plain.Gateway(rule, permits, timeout, seed)
        self.seed = seed

    def compare(self) -> Counter[str] | None:
        """What became of the requests; none if a verdict hangs on rounding."""
        try:
            self.gateway.run(self.requests)
        except plain.UnclearError:
            return None
        result = simulate(self.simulation, self.seed)
        columns = result.requests
        assert columns["outcome"].tolist() == [one.outcome for one in self.requests]
        assert ns(columns["ttft_s"]) == [
            -1 if one.dispatched is None else one.first_token - one.arrival for one in self.requests
        ]
        reasons = {reason["name"] for reason in type(self.policy)._describe()["reasons"]}
        refused = columns["outcome"] == "rejected"
        assert set(columns["reason"][refused].tolist()) <= reasons
        self.check_fleet(result)
        return Counter(columns["outcome"].tolist())

    def check_fleet(self, result: Result) -> None:
        """The oracle's fleet is in the state that routing saw, where nothing else happens then."""
        seen = result.decisions
        for k, row in enumerate(seen["row"].tolist()):
            now = self.requests[row].dispatched
            assert now is not None
            if now != self.requests[row].arrival:
                continue
            for c in range(self.fleet.count):
                i = int(seen["candidate_instance"][k][c])
                there = [one for one in self.fleet.sent[i] if one.dispatched < now]
                before = plain.Fleet(self.fleet.count, STEP, BLOCKS)
                before.sent[i] = there
                assert seen["candidate_waiting"][k][c] == len(before.waiting(i, now))
                assert seen["candidate_running"][k][c] == len(before.running(i, now))
                assert seen["candidate_in_flight"][k][c] == before.in_flight(i, now)
                assert seen["candidate_kv_utilization"][k][c] == before.kv_utilization(i, now)


@pytest.mark.parametrize("name", POLICIES)
def test_verdicts_are_those_of_the_rule(name: str) -> None:
    told = [Trial(name, seed).compare() for seed in trials(25)]
    assert told.count(None) < max(2, scaled(5))
    total = sum((one for one in told if one is not None), Counter[str]())
    assert total["rejected"] > scaled(100)
    assert total["completed"] > scaled(500)


def test_every_policy_is_restated() -> None:
    kinds = {cls.__name__ for cls in vars(gateway).values() if hasattr(cls, "_describe")}
    assert set(POLICIES) == set(plain.RULES)
    assert set(POLICIES) < kinds


# --- what follows from the rules ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "power", "s"), [(300, 5, 0.15), (300, 5, 0.25), (1, 1, 0.3), (2, 2, 0.5), (300, 5, 0.4)]
)
def test_probabilistic_refuses_its_share(k: float, power: float, s: float) -> None:
    """100 long streams hold the saturation; short ones come and go one by one."""
    n, long = 4000, 100
    result = run(
        [0.0] * long + [1 + 0.02 * i for i in range(n)],
        output_tokens=[10**7] * long + [1] * n,
        slo_class=["critical"] * long + ["sheddable"] * n,
        seed=7,
        instances=flat(reference_output_tokens=100),
        gateway=gateway.Gateway(
            admission=gateway.Probabilistic(
                k=k, power=power, detector="concurrency", max_concurrency=long / s
            )
        ),
        horizon_s=100,
    )
    refused = np.array(outcomes(result)[long:]) == "rejected"
    p = min(1, k * s**power)
    assert abs(refused.mean() - p) <= 4 * (p * (1 - p) / n) ** 0.5


def test_token_bucket_is_sized_as_its_guide_says() -> None:
    """10,000 tokens and 1,000/s pass a burst of 19 prompts of 512, then 1.95/s."""
    bucket = gateway.Gateway(
        admission=gateway.TokenBucket(capacity_tokens=10_000, refill_tokens_per_s=1000)
    )
    burst = run([0.0] * 40, input_tokens=512, gateway=bucket)
    assert outcomes(burst) == ["completed"] * 19 + ["rejected"] * 21
    long = run(np.arange(0, 1000, 0.25).tolist(), input_tokens=512, gateway=bucket)
    admitted = outcomes(long).count("completed")
    assert (admitted - 19) / 1000 == pytest.approx(1.95, abs=0.1)


@pytest.mark.parametrize("seed", trials(10))
def test_bucket_of_a_single_tenant_is_the_plain_one(seed: int) -> None:
    rng = random.Random(seed)
    sizes = {
        "capacity_tokens": rng.uniform(500, 3000),
        "refill_tokens_per_s": rng.uniform(300, 2500),
    }
    n = 300
    arrivals = np.cumsum([rng.expovariate(10) for _ in range(n)]).tolist()
    prompts = [rng.randint(1, 900) for _ in range(n)]

    def told(policy: Any) -> list[str]:
        admission = gateway.Gateway(admission=policy)
        return outcomes(run(arrivals, input_tokens=prompts, gateway=admission))

    plainly = told(gateway.TokenBucket(**sizes))
    assert told(gateway.TenantTokenBucket(**sizes)) == plainly
    assert 50 < plainly.count("rejected") < 250


def test_buckets_share_by_weight_and_owners_take_no_part() -> None:
    """All ask for ten times what there is, in prompts of 10 tokens."""
    n, names = 3000, ("a", "b", "c")
    result = run(
        [0.01 * (i // 3) for i in range(n)],
        input_tokens=10,
        tenant=[names[i % 3] for i in range(n)],
        tenants=[
            workload.Tenant(name="a", weight=1),
            workload.Tenant(name="b", weight=3),
            workload.Tenant(name="c", weight=50),
        ],
        gateway=gateway.Gateway(
            admission=gateway.TenantTokenBucket(
                capacity_tokens=400,
                refill_tokens_per_s=400,
                own=[
                    gateway.TenantRate(tenant="c", capacity_tokens=20, refill_tokens_per_s=10),
                ],
            )
        ),
    )
    columns = result.requests
    admitted = Counter(columns["tenant"][columns["outcome"] == "completed"].tolist())
    # Over 9.99 s: bursts of 100, 300 and 20 tokens, then 100, 300 and 10 tokens/s.
    assert admitted == {"a": 109, "b": 329, "c": 11}


def test_class_leaves_its_reserve_to_the_others() -> None:
    """Ten prompts of 100 tokens fit; sheddable ones may take six of them."""
    policy = gateway.TenantTokenBucket(
        capacity_tokens=1000,
        refill_tokens_per_s=0,
        reserves=[gateway.ClassReserve(slo_class="sheddable", share=0.4)],
    )
    result = run(
        [0.1 * i for i in range(30)],
        input_tokens=100,
        slo_class=["sheddable"] * 15 + ["critical"] * 15,
        gateway=gateway.Gateway(admission=policy),
    )
    assert [row for row, one in enumerate(outcomes(result)) if one == "completed"] == [
        *range(6),
        *range(15, 19),
    ]


def test_burst_at_one_instant_passes_a_tenant_budget() -> None:
    """As in the published policy, a dispatch counts once its instant is over."""
    result = run(
        [0.0] * 5 + [0.1] * 5,
        slo_class="sheddable",
        gateway=gateway.Gateway(admission=gateway.TenantBudget(default_share=0)),
    )
    assert outcomes(result) == ["completed"] * 5 + ["rejected"] * 5


def test_tenant_budget_is_a_share_of_all_seats() -> None:
    """A tenth of 2·20 seats is 4: a fifth is let in while there are no more than 4."""
    policy = gateway.TenantBudget(budgets=[gateway.TenantShare(tenant="a", share=0.1)])
    result = run(
        [0.01 * i for i in range(20)],
        tenant=["a", "b"] * 10,
        slo_class="batch",
        gateway=gateway.Gateway(admission=policy),
        instances=flat().replace(count=2, max_num_seqs=20),
    )
    assert outcomes(result)[::2] == ["completed"] * 5 + ["rejected"] * 5
    assert outcomes(result)[1::2] == ["completed"] * 10


def test_presets_are_the_published_variants() -> None:
    presets = gateway.SloGated.presets()
    told = {
        name: (one.signal, one.standard_threshold, one.sheddable_threshold)
        for name, one in presets.items()
    }
    assert told == {
        "max_waiting": ("max_waiting", 10, 5),
        "mean_effective_load": ("mean_effective_load", None, 8),
        "total_waiting": ("total_waiting", None, 100),
    }


def test_stale_signals_saturate() -> None:
    """Before the first scrape there are none; a stale instance counts as saturated."""
    result = run(
        [0.1, 0.9, 1.5],
        slo_class="batch",
        gateway=gateway.Gateway(admission=gateway.GaieLegacy()),
        signals=signals.Scraped(period_s=10, phase_s=0.8, stale_after_s=0.5),
    )
    assert outcomes(result) == ["rejected", "completed", "rejected"]


def overloaded(policy: Any, seed: int = 0) -> Result:
    """Twice what ten permits serve, of four classes alike and two hundred tenants."""
    rng = random.Random(seed)
    n = 6000
    return run(
        np.cumsum([rng.expovariate(20) for _ in range(n)]).tolist(),
        tenant=[f"t{rng.randrange(200)}" for _ in range(n)],
        slo_class=[rng.choice(("critical", "standard", "batch", "sheddable")) for _ in range(n)],
        seed=seed,
        gateway=gateway.Gateway(admission=policy, limit=fixed(10)),
    )


def share_of(result: Result, slo_class: str, after_s: float = 50) -> float:
    columns = result.requests
    mine = (columns["slo_class"] == slo_class) & (columns["arrival_s"] > after_s)
    return float(np.mean(columns["outcome"][mine] == "completed"))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("user", ["tenant", "request"])
def test_dagor_admits_what_is_served_and_the_important_first(user: str, seed: int) -> None:
    """Half of what comes could be served; the level sways, so that it is somewhat less."""
    result = overloaded(gateway.Dagor(threshold_s=0.5, user=user), seed)
    critical, standard, batch, sheddable = shares = [
        share_of(result, name) for name in ("critical", "standard", "batch", "sheddable")
    ]
    assert critical > 0.8
    assert critical > standard + 0.15
    assert standard > batch + 0.15
    assert batch > sheddable + 0.05
    assert 0.37 < sum(shares) / 4 < 0.51
    queue_s = result.requests["queue_s"]
    assert np.nanmean(queue_s[result.requests["arrival_s"] > 50]) < 3


@pytest.mark.parametrize("seed", range(3))
def test_dagor_swings_if_one_level_is_everybody(seed: int) -> None:
    """A single level cannot be halved: all or nothing, window by window."""
    coarse = gateway.Dagor(threshold_s=0.5, user_levels=1, window_s=5)
    fine = coarse.replace(user="request", user_levels=128)

    def swing(policy: gateway.Dagor) -> float:
        rng = random.Random(seed)
        n = 6000
        result = run(
            np.cumsum([rng.expovariate(20) for _ in range(n)]).tolist(),
            gateway=gateway.Gateway(admission=policy, limit=fixed(10)),
        )
        columns = result.requests
        second = columns["arrival_s"].astype(int)
        refused = columns["outcome"] == "rejected"
        return float(np.std([refused[second == s].mean() for s in range(100, 290)]))

    assert swing(coarse) > 0.35
    assert swing(fine) < 0.25


@pytest.mark.parametrize("seed", range(3))
def test_bouncer_keeps_the_target_and_starves_nobody(seed: int) -> None:
    """The hasty class passes only while the queue is empty, or by its share."""
    classes = [
        workload.SloClass(name="critical", priority=4, target_ttft_s=3.0),
        workload.SloClass(name="batch", priority=-1, target_ttft_s=0.3),
    ]

    def told(min_share: float) -> tuple[float, float]:
        rng = random.Random(seed)
        n = 4000
        result = run(
            np.cumsum([rng.expovariate(20) for _ in range(n)]).tolist(),
            slo_class=[rng.choice(("critical", "batch")) for _ in range(n)],
            slo_classes=classes,
            gateway=gateway.Gateway(
                admission=gateway.Bouncer(min_share=min_share), limit=fixed(10)
            ),
        )
        critical = result.requests["slo_class"] == "critical"
        ttft_s = result.requests["ttft_s"][critical]
        assert np.nanquantile(ttft_s, 0.9) < 3.3
        return share_of(result, "critical"), share_of(result, "batch")

    starved = told(0)
    served = told(0.1)
    assert starved[1] < 0.05
    assert served[1] == pytest.approx(0.1, abs=0.03)
    assert starved[0] > 0.9


def test_bouncer_forgets_who_was_withdrawn() -> None:
    """One at a time, each for 1 s; a target of 3 s leaves room for two in the queue."""
    arrivals = [
        *(0, 2),  # the first is measured, the second holds the permit
        *(2.1, 2.2, 2.3, 2.4),  # three queue until they are withdrawn, the fourth is refused
        2.9,  # to an empty queue
        5,  # withdrawn in flight
        *(6, 6.1, 6.2, 6.3, 6.4),  # as before: one in flight, three queue
    ]
    hasty = workload.Tenant(name="hasty", reaction=workload.Reaction(timeout_s=0.5))
    result = run(
        arrivals,
        tenant=[*"aa", *["hasty"] * 4, "a", "hasty", *"aaaaa"],
        tenants=[hasty],
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=3)],
        gateway=gateway.Gateway(
            admission=gateway.Bouncer(min_samples=1, min_share=0), limit=fixed(1)
        ),
    )
    went, withdrawn, refused = "completed", "cancelled", "rejected"
    assert outcomes(result) == [
        *(went, went),
        *(withdrawn, withdrawn, withdrawn, refused),
        went,
        withdrawn,
        *(went, went, went, went, refused),
    ]


def test_system_is_empty_once_clients_have_withdrawn_all() -> None:
    """An impossible target: only an empty system admits, once anything is known."""
    result = run(
        [0, 0.1, 0.2, 0.3, 10, 10.1, 20],
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=1e-3)],
        reaction=workload.Reaction(timeout_s=0.5),
        gateway=gateway.Gateway(admission=gateway.EarlyRejection(), limit=fixed(1)),
    )
    # Before the first token all are admitted, two of them to the queue.
    assert outcomes(result) == [
        *("cancelled", "cancelled", "cancelled"),
        *("rejected", "cancelled", "rejected", "cancelled"),
    ]


def test_who_asks_again_draws_anew() -> None:
    """Half are refused, and half of those once more."""
    n, long = 2000, 100
    result = run(
        [0.0] * long + [1 + 0.02 * i for i in range(n)],
        output_tokens=[10**7] * long + [1] * n,
        slo_class=["critical"] * long + ["sheddable"] * n,
        instances=flat(reference_output_tokens=1000),
        reaction=workload.Reaction(retries=[workload.Retry(max_attempts=2, jitter="none")]),
        gateway=gateway.Gateway(
            admission=gateway.Probabilistic(
                k=1, power=1, detector="concurrency", max_concurrency=2 * long
            )
        ),
        horizon_s=100,
    )
    again = result.requests["attempts"][long:] == 2
    refused = np.array(outcomes(result)[long:]) == "rejected"
    assert abs(again.mean() - 0.5) < 4 * (0.25 / n) ** 0.5
    assert abs(refused[again].mean() - 0.5) < 4 * (0.25 / again.sum()) ** 0.5


@pytest.mark.parametrize(
    ("policy", "arrivals"),
    [
        # The last one comes after delays of 2 s on average, and again after a window without any.
        (
            gateway.Dagor(threshold_s=0.1, user_levels=1, decrease=1),
            [0, 0, 0, 0, 0, 4.5],
        ),
        # The last one comes to a queue of one, and again when it is empty.
        (gateway.Bouncer(min_samples=1, min_share=0), [0, 1.5, 1.6, 1.7]),
    ],
)
def test_lone_client_gets_in_once_the_overload_is_over(policy: Any, arrivals: list[float]) -> None:
    """Nobody else comes who would move the policy on."""
    result = run(
        arrivals,
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=0.3)],
        reaction=workload.Reaction(retries=[workload.Retry(backoff_s=2, jitter="none")]),
        gateway=gateway.Gateway(admission=policy, limit=fixed(1)),
    )
    assert set(outcomes(result)) == {"completed"}
    assert result.requests["attempts"].tolist() == [1] * (len(arrivals) - 1) + [2]


@pytest.mark.parametrize("detector", ["utilization", "concurrency"])
@pytest.mark.parametrize("policy", [gateway.GaieLegacy(), gateway.Probabilistic(k=1)])
def test_empty_fleet_is_saturated(policy: Any, detector: str) -> None:
    """No instance is ready from second 5 to second 20."""
    schedule = [fleet.FleetChange(at_s=5, instances=0), fleet.FleetChange(at_s=15, instances=1)]
    result = run(
        [0, 6, 7, 19, 21],
        slo_class=["batch", "batch", "standard", "batch", "batch"],
        gateway=gateway.Gateway(admission=policy.replace(detector=detector)),
        fleet=fleet.Fleet(schedule=schedule, startup_s=5),
    )
    assert outcomes(result) == ["completed", "rejected", "completed", "rejected", "completed"]


@pytest.mark.parametrize("seed", trials(5))
@pytest.mark.parametrize(
    "policy", [gateway.EarlyRejection(decode_load="current"), gateway.LatencySlo()]
)
def test_time_per_token_is_a_line_over_the_streams(policy: Any, seed: int) -> None:
    """Every verdict from the stamps of what went before, with many streams on two instances."""
    rng = random.Random(seed)
    n, target_s = 300, 0.05
    half_life, cold = rng.choice((5, 100)), {"cold_kv_utilization": 0}
    is_early = isinstance(policy, gateway.EarlyRejection)
    result = run(
        np.cumsum([rng.randrange(1, 10**8) / 1e9 for _ in range(n)]).tolist(),
        output_tokens=[rng.choice((1, 20, 60, 100)) for _ in range(n)],
        slo_classes=[workload.SloClass(name="standard", priority=-1, target_tpot_s=target_s)],
        instances=instance.InstanceGroup(
            count=2,
            plant=instance.ProcessorSharing(
                concurrency=[0, 100], e2e_s=[2, 22], ttft_s=[0.2, 1], reference_output_tokens=100
            ),
        ),
        router="round_robin",
        gateway=gateway.Gateway(
            admission=policy.replace(half_life_samples=half_life, **({} if is_early else cold))
        ),
    )
    them = ways(result)
    of = result.requests["instance"].tolist()

    def streams(i: int, now: int) -> list[int]:
        mine = [k for k in range(n) if of[k] == i and them[k].first_token is not None]
        return [k for k in mine if them[k].first_token <= now < them[k].ended]

    @functools.cache
    def load_seen(k: int) -> tuple[float, float]:
        """Streams beside it, on average over its own, and its time per token."""
        began, ended = them[k].first_token, them[k].ended
        shared = sum(
            max(0, min(ended, other.ended) - max(began, other.first_token))
            for j, other in enumerate(them)
            if of[j] == of[k]
        )
        return shared / (ended - began), (ended - began) / 1e9 / (them[k].output_tokens - 1)

    for row, way in enumerate(them):
        now = way.arrived
        before = [k for k in range(row) if them[k].outcome == "completed"]
        done = sorted((k for k in before if them[k].ended < now), key=lambda k: them[k].ended)
        line = plain.Line(half_life)
        line.samples = [load_seen(k) for k in done if them[k].output_tokens > 1]
        inside = [k for k in before if them[k].ended > now]
        running = [len(streams(i, now)) for i in (0, 1)]
        if is_early:
            predicted = [line.at((sum(running) + 1) / 2)]
            is_idle = not inside
        else:
            predicted = [line.at(count + 1) for count in running]
            is_idle = len({of[k] for k in inside}) < 2
        goes = is_idle or any(one is None or one <= target_s for one in predicted)
        assert way.outcome == ("completed" if goes else "rejected"), row
    assert 20 < outcomes(result).count("rejected") < 280


def test_envoy_refuses_nobody_while_all_succeed() -> None:
    result = run(
        [0.05 * i for i in range(200)],
        gateway=gateway.Gateway(admission=gateway.EnvoyAdmission(success_threshold=1)),
    )
    assert set(outcomes(result)) == {"completed"}


def test_envoy_lets_some_try_and_recovers() -> None:
    """A queue that times out everybody for 60 s, then light load: 20 % find out that it is over."""
    policy = gateway.EnvoyAdmission(window_s=10)
    heavy = [0.02 * i for i in range(3000)]
    light = [60 + 2.0 * i for i in range(100)]
    result = run(
        heavy + light,
        gateway=gateway.Gateway(
            admission=policy,
            bands=gateway.Band(queue=gateway.Queue(timeout_s=1)),
            limit=fixed(1),
        ),
    )
    told = outcomes(result)
    refused = np.array(told[500:3000]) == "rejected"
    assert refused.mean() == pytest.approx(0.8, abs=0.03)
    assert set(told[3030:]) == {"completed"}


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        (
            {"kind": "tenant_budget", "budgets": [{"tenant": "a"}, {"tenant": "a"}]},
            "budgets[1].tenant",
        ),
        (
            {"kind": "tenant_token_bucket", "own": [{"tenant": "a"}, {"tenant": "a"}]},
            "own[1].tenant",
        ),
        ({"kind": "tenant_token_bucket", "reserves": [{}, {}]}, "reserves[1].slo_class"),
    ],
)
def test_nobody_is_named_twice(settings: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        gateway.Gateway(admission=settings)
    assert caught.value.violations[0][0] == f"admission[0].{path}"
