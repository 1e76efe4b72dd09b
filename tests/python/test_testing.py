"""Policies without a run: by hand, against models in many examples, and against runs."""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import specimens
from support.effort import examples

from spillway import (
    ConfigError,
    Result,
    Simulation,
    UsageError,
    _core,
    gateway,
    instance,
    metrics,
    router,
    signals,
    simulate,
    testing,
    trace,
    workload,
)
from spillway.testing import InstanceSignals, Reading, Request, build, checks
from spillway.testing._seams import seams
from spillway.testing.policies import BUILT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXAMPLES = examples(200)

TENANTS = [workload.Tenant(name="gold", weight=2), workload.Tenant(name="free")]
A_AND_B = [workload.Tenant(name="a"), workload.Tenant(name="b")]


def loads(*waiting: int) -> list[InstanceSignals]:
    """Instances with these numbers of waiting requests."""
    return [InstanceSignals(waiting=number) for number in waiting]


def nanoseconds(seconds: Any) -> list[int]:
    return [int(instant) for instant in np.rint(seconds * 1e9)]


# ---- admission -----------------------------------------------------------------------------------


def test_token_bucket_by_hand() -> None:
    bucket = build(gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=10))
    assert bucket.decide(Request(input_tokens=80), now_s=0.0) == testing.Decision(True, "")
    refused = bucket.decide(Request(input_tokens=80), now_s=5.9)  # 79 tokens
    assert refused == testing.Decision(False, "insufficient_tokens")
    assert bucket.decide(Request(input_tokens=80), now_s=6.0).admitted
    assert not bucket.decide(Request(input_tokens=101), now_s=1000).admitted


# Steps of 1/8 s and whole tokens: the sums are exact.
ARRIVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 300)), max_size=40)


@EXAMPLES
@given(arrivals=ARRIVALS, capacity=st.integers(0, 400), refill_per_s=st.integers(0, 100))
def test_token_bucket_equals_a_model(
    arrivals: list[tuple[int, int]], capacity: int, refill_per_s: int
) -> None:
    policy = gateway.TokenBucket(capacity_tokens=capacity, refill_tokens_per_s=8 * refill_per_s)
    bucket = build(policy)
    now_s, tokens = 0.0, float(capacity)
    for steps, size in arrivals:
        now_s, tokens = now_s + steps / 8, min(capacity, tokens + steps * refill_per_s)
        admitted = tokens >= size
        tokens -= size if admitted else 0
        assert bucket.decide(Request(input_tokens=size), now_s=now_s).admitted == admitted


def test_decision_that_is_not_committed_charges_nothing() -> None:
    bucket = build(gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0))
    request = Request(input_tokens=80)
    assert bucket.decide(request, commit=False).admitted
    assert bucket.decide(request).admitted
    assert not bucket.decide(request).admitted


def test_chain_charges_only_what_all_admit() -> None:
    charged = gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=0)
    chain = build([charged, gateway.SloGated(standard_threshold=3)])
    request = Request(input_tokens=60)
    loaded = chain.decide(request, instances=loads(3))
    assert loaded == testing.Decision(False, "slo_gated")
    assert chain.decide(request, instances=loads(2)).admitted
    assert chain.decide(request, instances=loads(3)).reason == "insufficient_tokens"


def test_signals_stay_until_others_are_given() -> None:
    policy = build(gateway.SloGated(standard_threshold=3))
    assert policy.decide(Request(), instances=loads(0, 0)).admitted
    assert not policy.decide(Request(), instances=loads(4, 0)).admitted
    assert not policy.decide(Request()).admitted


def test_busy_workers_are_scripted() -> None:
    policy = build(gateway.BusyThreshold())
    busy, free = InstanceSignals(is_busy=True), InstanceSignals()
    assert policy.decide(Request(), instances=[busy, free]).admitted
    assert policy.decide(Request(), instances=[busy, busy]).reason == "all_workers_busy"
    assert policy.decide(Request(), instances=[free, free]).admitted
    assert policy.decide(Request(), has_workers=False).reason == "no_workers"


def predictive(**changes: Any) -> gateway.PredictiveTtft:
    """One prompt token takes 1 ms, a step nothing else."""
    return gateway.PredictiveTtft(
        estimator="token_backlog",
        budgets=[gateway.TtftBudget(slo_class="standard", budget_s=0.25)],
        headroom=1,
        beta0_us=0,
        beta_prefill_us=1000,
        beta_decode_us=0,
    ).replace(**changes)


def test_outstanding_work_follows_the_notices() -> None:
    policy = build(predictive())
    first, second = Request(input_tokens=200), Request(input_tokens=100)
    assert policy.decide(first).admitted
    assert not policy.decide(second).admitted  # 200 + 100 ms, in the queue
    policy.dispatched(first)
    assert not policy.decide(second).admitted  # in the instance
    policy.first_token(first, now_s=0.2)
    assert policy.decide(second).admitted
    policy.finished(second, outcome="expired")  # from the queue
    assert policy.decide(Request(input_tokens=250)).admitted


def test_prefixes_that_were_sent_count_less() -> None:
    def asks() -> Request:
        return Request(input_tokens=320, prefix_group="system", prefix_tokens=160)

    policy = build(predictive())
    assert not policy.decide(asks()).admitted
    teacher = Request(input_tokens=160, prefix_group="system", prefix_tokens=160)
    assert policy.decide(teacher).admitted
    policy.dispatched(teacher)
    policy.first_token(teacher)
    assert policy.decide(asks()).admitted  # 160 ms
    other = Request(input_tokens=320, prefix_group="other", prefix_tokens=160)
    assert not policy.decide(other).admitted


def test_exact_knowledge_is_scripted() -> None:
    policy = build(predictive(estimator="exact"))
    for at_s, is_admitted in ((1.2, True), (1.3, False), (None, False)):
        seen = [InstanceSignals(exact_first_token_s=at_s)]
        assert policy.decide(Request(), now_s=1, instances=seen).admitted == is_admitted


def test_choice_of_the_router_is_scripted() -> None:
    policy = build(predictive(estimator="exact", instance="routed"))
    seen = [InstanceSignals(exact_first_token_s=9), InstanceSignals(exact_first_token_s=0.1)]
    assert not policy.decide(Request(), instances=seen, next_choice=0).admitted
    assert policy.decide(Request(), instances=seen, next_choice=1).admitted
    with pytest.raises(ConfigError, match=r"next_choice = None: must be the instance"):
        policy.decide(Request(), instances=seen)
    with pytest.raises(ConfigError, match=r"instance = 2: must be >= 0 and < 2"):
        policy.decide(Request(), instances=seen, next_choice=2)


OVERLOAD = Simulation(
    workload=workload.Synthetic(
        requests_per_s=40,
        num_requests=400,
        clients=[
            workload.Client(name="a", tenant="gold", slo_class="standard"),
            workload.Client(name="b", tenant="free", slo_class="sheddable", rate_fraction=2),
        ],
    ),
    tenants=TENANTS,
    instances=[instance.InstanceGroup(max_num_seqs=16)],
)


def life(result: Result) -> list[tuple[float, str, int]]:
    """What happens in a run of a gateway without limits or delays: instant, call, row."""
    columns = result.requests
    order = ("finished", "first_token", "decide")
    events = []
    for row, at_s in enumerate(columns["arrival_s"]):
        events.append((at_s, "decide", row))
        if columns["outcome"][row] == "completed":
            events.append((at_s + columns["ttft_s"][row], "first_token", row))
            events.append((at_s + columns["e2e_s"][row], "finished", row))
    return sorted(events, key=lambda event: (event[0], order.index(event[1])))


ADMISSION = specimens.at("Gateway.admission")
BY_EVENTS = [specimen.by_events for specimen in ADMISSION if specimen.by_events]


@pytest.mark.parametrize("policy", BY_EVENTS, ids=lambda policy: policy.kind)
def test_verdicts_are_those_of_a_run(policy: Any) -> None:
    targets = [
        {"name": "standard", "priority": 3, "target_ttft_s": 0.3},
        {"name": "sheddable", "priority": -1, "target_ttft_s": 0.2},
    ]
    simulation = OVERLOAD.with_({"gateway.admission": [policy], "slo_classes": targets})
    result = simulate(simulation, 7)
    columns = result.requests
    outcomes = Counter(columns["outcome"].tolist())
    assert set(outcomes) <= {"completed", "rejected"}
    built = build(policy, simulation=simulation, seed=7)
    asked = [
        Request(
            input_tokens=int(columns["input_tokens"][row]),
            output_tokens=int(result._offered()["output_tokens"][row]),
            tenant=str(columns["tenant"][row]),
            slo_class=str(columns["slo_class"][row]),
        )
        for row in range(columns.num_rows)
    ]
    for at_s, call, row in life(result):
        if call == "decide":
            decision = built.decide(asked[row], now_s=at_s)
            assert decision.admitted == columns["admitted"][row], row
            assert decision.reason == columns["reason"][row]
            if decision.admitted:
                built.dispatched(asked[row])
        else:
            getattr(built, call)(asked[row], now_s=at_s)
    if policy.to_dict().keys() > {"kind"}:
        assert min(outcomes["completed"], outcomes["rejected"]) > 20


# ---- router --------------------------------------------------------------------------------------


def test_weighted_router_by_hand() -> None:
    policy = router.Weighted(scorers=[router.QueueDepth(weight=1), router.KvUtilization(weight=3)])
    seen = [
        InstanceSignals(waiting=0, kv_utilization=0.5),
        InstanceSignals(waiting=4, kv_utilization=0.1),
        InstanceSignals(waiting=2, kv_utilization=0.7),
    ]
    choice = build(policy).decide(Request(), instances=seen)
    assert choice.instance == 1
    assert choice.rank is None
    assert choice.scores == pytest.approx([0.25 + 0.75 * 0.5, 0.75 * 0.9, 0.125 + 0.75 * 0.3])


SIGNALS = st.builds(
    InstanceSignals,
    waiting=st.integers(0, 9),
    running=st.integers(0, 9),
    in_flight=st.integers(0, 9),
    kv_utilization=st.integers(0, 8).map(lambda eighths: eighths / 8),
    cached_blocks=st.integers(0, 3),
)
FLEETS = st.lists(SIGNALS, min_size=1, max_size=6)


def load(seen: InstanceSignals) -> int:
    return seen.waiting + seen.running + seen.in_flight


@EXAMPLES
@given(fleet=FLEETS, ties=st.sampled_from(["first", "random"]), seed=st.integers(0, 99))
def test_least_loaded_picks_a_minimum(fleet: list[InstanceSignals], ties: Any, seed: int) -> None:
    choice = build(router.LeastLoaded(ties=ties), seed=seed).decide(Request(), instances=fleet)
    all_loads = [load(seen) for seen in fleet]
    assert all_loads[choice.instance] == min(all_loads)
    if ties == "first":
        assert choice.instance == all_loads.index(min(all_loads))
    assert choice.scores == ()


def test_random_ties_reach_all_of_them() -> None:
    policy = build(router.LeastLoaded(ties="random"))
    seen = loads(1, 0, 0, 0)
    chosen = Counter(policy.decide(Request(), instances=seen).instance for _ in range(3000))
    assert set(chosen) == {1, 2, 3}
    assert min(chosen.values()) > 900


def test_round_robin_learns() -> None:
    policy = build(router.RoundRobin())
    seen = loads(0, 0, 0)
    turns = [policy.decide(Request(), instances=seen).instance for _ in range(4)]
    assert turns == [0, 1, 2, 0]
    again = [policy.decide(Request(), learn=False).instance for _ in range(2)]
    assert again == [1, 1]


def test_router_remembers_prefixes() -> None:
    policy = build(router.Weighted(scorers=[router.PrefixAffinity(), router.QueueDepth()]))

    def asks() -> Request:
        return Request(input_tokens=320, prefix_group="system", prefix_tokens=320)

    assert policy.decide(asks(), instances=loads(1, 0, 1)).instance == 1
    assert policy.decide(asks(), instances=loads(1, 1, 1)).scores == (0.5, 1.0, 0.5)
    assert policy.decide(Request(), instances=loads(0, 1, 1)).instance == 0


def test_cost_of_kv_blocks_follows_the_notices() -> None:
    blocks = Simulation(prefix_index=signals.PrefixIndex(block_size_tokens=10))
    policy = build(router.KvCost(), simulation=blocks)
    first = Request(input_tokens=100)
    choice = policy.decide(first, instances=[InstanceSignals(cached_blocks=4), InstanceSignals()])
    assert choice == testing.RoutingDecision(0, 0, (-16.0, -20.0))  # 6 + 10, 10 + 10
    rated = [InstanceSignals(), InstanceSignals()]
    small = Request(input_tokens=10)
    assert policy.decide(small, instances=rated, learn=False).scores == (-18.0, -2.0)
    policy.first_token(first)
    assert policy.decide(small, learn=False).scores == (-12.0, -2.0)
    policy.finished(first)
    assert policy.decide(small, learn=False).scores == (-2.0, -2.0)


# By its definition in the documentation, with the smallest value the best where it is relative.
def relative(values: list[int]) -> list[float]:
    low, high = min(values), max(values)
    return [1.0 if low == high else (high - value) / (high - low) for value in values]


MODELS: dict[str, tuple[Any, Callable[[list[InstanceSignals]], list[float]]]] = {
    "queue_depth": (router.QueueDepth(), lambda fleet: relative([seen.waiting for seen in fleet])),
    "kv": (router.KvUtilization(), lambda fleet: [1 - seen.kv_utilization for seen in fleet]),
    "load_balance": (router.LoadBalance(), lambda fleet: [1 / (1 + load(seen)) for seen in fleet]),
    "running": (router.RunningRequests(), lambda fleet: relative([seen.running for seen in fleet])),
    "cache": (
        router.PrecisePrefixCache(),
        lambda fleet: relative([-s.cached_blocks for s in fleet]),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_scorer_equals_its_definition(name: str) -> None:
    policy, model = MODELS[name]

    @EXAMPLES
    @given(fleet=FLEETS)
    def check(fleet: list[InstanceSignals]) -> None:
        scores = build(policy).decide(Request(), instances=fleet)
        assert scores == pytest.approx(model(fleet))

    check()


def test_scorer_learns() -> None:
    cold = build(router.NoHitLru())
    request = Request()
    assert cold.decide(request, instances=loads(0, 0, 0)) == (1.0, 0.5, 0.0)
    cold.learn(request, instance=0)
    assert cold.decide(Request()) == (0.0, 1.0, 0.5)


def test_filter_keeps_what_is_not_full() -> None:
    policy = build(router.UtilizationFilter(queue_depth_threshold=5))
    assert policy.decide(Request(), instances=loads(4, 5, 0)) == (0, 2)
    assert policy.decide(Request(), instances=loads(5, 5, 9)) == (0, 1, 2)
    sticky = build(router.PrefixCacheAffinity(threshold=1, exploration=0))
    first, again = (Request(prefix_group="a", prefix_tokens=100) for _ in range(2))
    assert sticky.decide(first, instances=loads(0, 0)) == (0, 1)
    sticky.learn(first, instance=1)
    assert sticky.decide(again) == (1,)


@EXAMPLES
@given(scores=st.lists(st.integers(0, 20).map(float), min_size=1, max_size=6))
def test_pickers_pick_what_they_may(scores: list[float]) -> None:
    assert scores[build(router.Best(ties="random")).decide(scores)] == max(scores)
    assert 0 <= build(router.Random()).decide(scores) < len(scores)
    weighted = build(router.WeightedRandom()).decide(scores)
    assert scores[weighted] > 0 or max(scores) == 0
    # The better of two can only be the worst of all if there is none worse.
    better = build(router.PowerOfTwo()).decide(scores)
    assert sum(score <= scores[better] for score in scores) >= min(2, len(scores))


def test_softmax_follows_its_probabilities() -> None:
    picker = build(router.Softmax(temperature=0.5))
    chosen = Counter(picker.decide([0.0, 0.5]) for _ in range(10_000))
    assert chosen[1] / 10_000 == pytest.approx(math.e / (1 + math.e), abs=0.015)


@pytest.mark.parametrize(
    "policy",
    [
        router.RoundRobin(),
        router.LeastLoaded(ties="random"),
        router.AlwaysBusiest(),
        router.Weighted(scorers=[router.QueueDepth(), router.KvUtilization()]),
        router.Weighted(
            scorers=[router.ActiveRequests(), router.LoadBalance()],
            filters=[router.UtilizationFilter(queue_depth_threshold=2)],
            picker=router.Softmax(temperature=0.1),
        ),
    ],
    ids=str,
)
def test_choices_are_those_of_a_run(policy: Any) -> None:
    fleet = 3
    servers = instance.InstanceGroup(count=fleet, max_num_seqs=4)
    traced = metrics.Metrics(traced_candidates=fleet)
    simulation = OVERLOAD.with_({"router": policy, "instances": [servers], "metrics": traced})
    result = simulate(simulation, 3)
    log = result.decisions
    assert log["row"].tolist() == list(range(result.requests.num_rows))
    built = build(policy, simulation=simulation, seed=3)
    for i in range(len(log["row"])):
        seen = {
            int(log["candidate_instance"][i, k]): InstanceSignals(
                waiting=int(log["candidate_waiting"][i, k]),
                running=int(log["candidate_running"][i, k]),
                in_flight=int(log["candidate_in_flight"][i, k]),
                kv_utilization=float(log["candidate_kv_utilization"][i, k]),
            )
            for k in range(fleet)
        }
        choice = built.decide(Request(tenant="gold"), instances=[seen[k] for k in range(fleet)])
        assert choice.instance == log["instance"][i]
        if choice.scores:
            assert choice.scores[choice.instance] == log["score"][i]
    is_even = not isinstance(policy, router.AlwaysBusiest)
    assert len(set(log["instance"].tolist())) == (fleet if is_even else 1)


# ---- fairness ------------------------------------------------------------------------------------


def names(requests: Sequence[Request | None]) -> list[str]:
    return [request.tenant if request else "" for request in requests]


def test_turns_by_hand() -> None:
    turns = build(gateway.DeficitRoundRobin(), tenants=TENANTS)
    for _ in range(3):
        turns.joined(Request(tenant="gold"))
        turns.joined(Request(tenant="free"))
    served = names([turns.decide() for _ in range(7)])
    assert served == ["gold", "gold", "free", "gold", "free", "free", ""]


def test_fifo_goes_in_order_and_waits_for_its_head() -> None:
    queue = build(gateway.GlobalFifo(), tenants=TENANTS)
    first, second = Request(tenant="free"), Request(tenant="gold")
    queue.joined(first, now_s=1)
    queue.joined(second, now_s=2)
    assert queue.decide(may_start=["gold"]) is None
    assert queue.decide(may_start=[]) is None
    queue.left(first)
    assert queue.decide(may_start=["gold"]) is second
    assert queue.decide() is None


def test_tokens_are_charged_as_they_come() -> None:
    cost = gateway.Cost(unit="weighted_tokens", output_weight=1, charge_at="token")
    turns = build(gateway.VirtualTokenCounter(cost=cost), tenants=A_AND_B)
    for _ in range(3):
        turns.joined(Request(tenant="a"))
        turns.joined(Request(tenant="b"))
    first = turns.decide()
    assert first is not None
    second = turns.decide()
    assert second is not None
    assert {first.tenant, second.tenant} == {"a", "b"}
    turns.emitted(first, tokens=150)  # more than the prompt of another request
    assert names([turns.decide() for _ in range(3)]) == [second.tenant, second.tenant, first.tenant]


def test_settled_charges_follow_completions() -> None:
    cost = gateway.Cost(unit="weighted_tokens", output_weight=1, settles=True)
    turns = build(gateway.VirtualTokenCounter(cost=cost), tenants=A_AND_B)
    for _ in range(3):
        turns.joined(Request(tenant="a", output_tokens=150))
        turns.joined(Request(tenant="b", output_tokens=1))
    for request in (turns.decide(), turns.decide()):
        assert request is not None
        turns.first_token(request, now_s=1)
        turns.finished(request)
    assert names([turns.decide(), turns.decide()]) == ["b", "b"]


@EXAMPLES
@given(
    weights=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    quantum=st.integers(1, 4),
    dispatches=st.integers(1, 60),
)
def test_shares_of_deficit_round_robin_keep_within_a_quantum(
    weights: list[int], quantum: int, dispatches: int
) -> None:
    tenants = [workload.Tenant(name=f"t{i}", weight=weight) for i, weight in enumerate(weights)]
    turns = build(gateway.DeficitRoundRobin(quantum=quantum), tenants=tenants)
    for tenant in tenants:
        for _ in range(dispatches):
            turns.joined(Request(tenant=tenant.name))
    served: Counter[str] = Counter()
    for _ in range(dispatches):
        request = turns.decide()
        assert request is not None
        served[request.tenant] += 1
        shares = [served[tenant.name] / tenant.weight for tenant in tenants]
        assert max(shares) - min(shares) <= quantum


COST = gateway.Cost(unit="weighted_tokens", charge_at="completion")


FAIRNESS = [
    policy.replace(cost=COST) if "cost" in policy.to_dict() else policy
    for policy in specimens.examples("Band.fairness")
]


@pytest.mark.parametrize("policy", FAIRNESS, ids=str)
def test_turns_are_those_of_a_run(policy: Any) -> None:
    size = 60
    rng = np.random.default_rng(5)
    tenant = rng.choice(["gold", "free"], size, p=[0.3, 0.7]).tolist()
    input_tokens, output_tokens = rng.integers(1, 400, size), rng.integers(1, 50, size)
    lengths = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    simulation = Simulation(
        workload=trace(arrival_s=[0.0] * size, tenant=tenant, **lengths),
        tenants=TENANTS,
        gateway={"bands": [{"fairness": policy}], "limit": gateway.FixedLimit(max_in_flight=1)},
    )
    columns = simulate(simulation).requests
    assert set(columns["outcome"]) == {"completed"}
    order = np.argsort(columns["queue_s"], kind="stable")
    turns = build(policy, simulation=simulation)
    asked = [
        Request(input_tokens=int(i), output_tokens=int(o), tenant=t)
        for i, o, t in zip(input_tokens, output_tokens, tenant, strict=True)
    ]
    for row, request in enumerate(asked):
        turns.joined(request)
        # The first permit is taken at once; the others wait for it.
        served = turns.decide(may_start=None if row == 0 else [])
        assert (served is request) == (row == 0)
    for row, following in itertools.pairwise(order):
        turns.first_token(asked[row], now_s=columns["ttft_s"][row])
        turns.finished(asked[row], now_s=columns["e2e_s"][row])
        assert turns.decide() is asked[following]


# ---- limits --------------------------------------------------------------------------------------


def test_fixed_limit_by_hand() -> None:
    limit = build(gateway.FixedLimit(max_in_flight=2))
    first, second, third = (Request() for _ in range(3))
    allowed = testing.LimitDecision(True, True, setting=2.0, permits=2.0, saturation=0.0)
    assert limit.decide(first) == allowed
    limit.started(first)
    limit.started(second)
    closed = limit.decide(third)
    assert (closed.may_start, closed.is_open) == (False, False)
    limit.ended(first)
    assert limit.decide(third) == allowed
    limit.resize(1)
    assert not limit.decide(third).may_start


def test_limits_that_look_at_the_request() -> None:
    tokens = build(gateway.TokenBudget(max_tokens_in_flight=100, assumed_output_tokens=10))
    tokens.started(Request(input_tokens=50))
    assert tokens.decide(Request(input_tokens=30)).may_start
    large = tokens.decide(Request(input_tokens=31))
    assert (large.may_start, large.is_open, large.permits) == (False, True, None)

    own = build(gateway.PerTenant(max_in_flight=1), tenants=TENANTS)
    own.started(Request(tenant="free"))
    assert not own.decide(Request(tenant="free")).may_start
    assert own.decide(Request(tenant="gold")).may_start


def test_first_token_frees_a_dual_limit() -> None:
    limit = build(gateway.DualLimit(max_in_flight=2, max_awaiting_first_token=1))
    first, second = Request(), Request()
    limit.started(first)
    assert not limit.decide(second).may_start
    limit.first_token(first)
    assert limit.decide(second).may_start


def test_saturation_is_of_the_instances() -> None:
    limit = build(gateway.Saturation(queue_depth_threshold=4))
    half = limit.decide(Request(), instances=loads(4, 0), ceiling=0.5)
    assert (half.may_start, half.saturation) == (False, 0.5)
    assert limit.decide(Request(), ceiling=0.6).may_start


def test_budget_follows_the_workers() -> None:
    limit = build(gateway.WorkerBudget(cap_per_worker=4))
    assert limit.decide(Request()).permits == 4
    limit.set_workers(3)
    assert limit.decide(Request()).permits == 12


def test_limits_must_agree() -> None:
    both = build([gateway.FixedLimit(max_in_flight=5), gateway.DualLimit(max_in_flight=1)])
    assert both.decide(Request()).permits == 1
    both.started(Request())
    assert not both.decide(Request()).may_start


@EXAMPLES
@given(steps=st.lists(st.booleans(), max_size=60), most=st.integers(0, 5))
def test_fixed_limit_counts(steps: list[bool], most: int) -> None:
    limit = build(gateway.FixedLimit(max_in_flight=most))
    inside: list[Request] = []
    for starts in steps:
        request = Request()
        assert limit.decide(request).may_start == (len(inside) < most)
        if starts and len(inside) < most:
            limit.started(request)
            inside.append(request)
        elif inside and not starts:
            limit.ended(inside.pop(0))


def test_permits_are_those_of_a_run() -> None:
    policy = gateway.TokenBudget(max_tokens_in_flight=2000, assumed_output_tokens=100)
    simulation = OVERLOAD.with_({"gateway.limit": [policy]})
    result = simulate(simulation, 2)
    columns = result.requests
    assert set(columns["outcome"]) == {"completed"}
    limit = build(policy, simulation=simulation)
    asked = [
        Request(input_tokens=int(tokens), tenant=str(tenant))
        for tokens, tenant in zip(columns["input_tokens"], columns["tenant"], strict=True)
    ]
    dispatched = nanoseconds(columns["arrival_s"] + columns["queue_s"])
    ended = nanoseconds(columns["arrival_s"] + columns["e2e_s"])
    # At one instant permits return first; then requests go as they came, while they may.
    returns = [(at, -1, row) for row, at in enumerate(ended)]
    events = sorted([*returns, *((at, row, row) for row, at in enumerate(dispatched))])
    queued_at = nanoseconds(columns["arrival_s"])
    has_waited = 0
    for at, order, row in events:
        if order < 0:
            limit.ended(asked[row])
            continue
        assert limit.decide(asked[row]).may_start
        limit.started(asked[row])
        following = row + 1
        if following < len(asked) and queued_at[following] <= at < dispatched[following]:
            assert not limit.decide(asked[following]).may_start
            has_waited += 1
    assert has_waited > 20


# ---- usage limits --------------------------------------------------------------------------------

BANDS = Simulation(gateway={"bands": [{"priority": priority} for priority in (2, 0, -1)]})


def test_ceilings_by_hand() -> None:
    held_back = build(gateway.PriorityHoldback(min_ceiling=0.5), simulation=BANDS)
    assert held_back.decide(0.2) == held_back.decide(1.5) == (1.0, 0.75, 0.5)
    own = Simulation(gateway=gateway.Gateway(bands=[{"ceiling": 0.8}]))
    assert build(gateway.StaticCeilings(), simulation=own).decide(0.1) == (0.8,)
    reflective = build(gateway.SoftReflective(), simulation=BANDS)
    assert reflective.decide(0.25) == (1.0, 0.875, 0.75)
    # At 0.75 every third drain is open to all.
    shut = (1.0, 0.625, 0.25)
    assert [reflective.decide(0.75) for _ in range(4)] == [shut, shut, (1.0, 1.0, 1.0), shut]
    # At the lowest ceiling every drain is.
    assert build(gateway.SoftReflective(), simulation=BANDS).decide(0.5) == (1.0, 1.0, 1.0)


@EXAMPLES
@given(saturations=st.lists(st.floats(0, 2), max_size=30))
def test_ceilings_fall_from_band_to_band(saturations: list[float]) -> None:
    policy = build(gateway.SoftReflective(), simulation=BANDS)
    for saturation in saturations:
        ceilings = policy.decide(saturation)
        assert list(ceilings) == sorted(ceilings, reverse=True)
        assert ceilings[0] == 1


# ---- controllers ---------------------------------------------------------------------------------


def test_aimd_by_hand() -> None:
    controller = build(gateway.Aimd(target_s=2, band=0.2, decrease_factor=0.5))
    assert controller.limit == 256
    controller.resize(16)
    raised = testing.ControlDecision("increase", 17.0)
    assert controller.decide(Reading(value=1.5, in_flight=8)) == raised
    assert controller.decide(Reading(value=1.5)).action == "hold"  # no demand
    assert controller.decide(Reading(value=2.5)) == testing.ControlDecision("decrease", 8.0)
    assert controller.decide(Reading(in_flight=8)).action == "no_signal"


def test_controller_starts_from_the_limit_and_guard_of_its_surroundings() -> None:
    limit = gateway.FixedLimit(max_in_flight=10)
    around = Simulation(gateway={"limit": limit, "guard": {"floor": 9}})
    controller = build(gateway.Aimd(decrease_factor=0.5), simulation=around)
    assert controller.decide(Reading(value=9)).limit == 9


def test_samples_reach_a_controller() -> None:
    controller = build(gateway.EnvoyGradient(fixed_min_rtt_s=1))
    controller.resize(64)
    assert controller.decide(Reading(in_flight=64), now_s=1).action == "hold"
    controller.sample(1.25, dispatched_s=1, now_s=1.5)
    assert controller.decide(Reading(in_flight=64), now_s=2).limit == 72


@pytest.mark.parametrize(
    "policy", specimens.examples("Gateway.controller"), ids=lambda policy: policy.kind
)
def test_limit_keeps_within_its_guard(policy: Any) -> None:
    limit = gateway.FixedLimit(max_in_flight=10)
    around = Simulation(gateway={"limit": limit, "guard": {"floor": 4, "ceiling": 40}})
    readings = st.builds(
        Reading,
        value=st.none() | st.floats(0, 10),
        in_flight=st.integers(0, 50),
        kv_utilization=st.floats(0, 1),
        hit_rate=st.floats(0, 1),
    )

    @EXAMPLES
    @given(st.lists(readings, max_size=10))
    def check(seen: list[Reading]) -> None:
        controller = build(policy, simulation=around)
        for now_s, reading in enumerate(seen):
            before = controller.limit
            step = controller.decide(reading, now_s=now_s)
            assert 4 <= step.limit <= 40
            assert step.limit == controller.limit
            assert step.action != "decrease" or step.limit <= before
            assert step.action != "increase" or step.limit >= before
            assert step.action in ("increase", "decrease") or step.limit == before

    check()


def test_steps_are_those_of_a_run() -> None:
    policy = gateway.Aimd(target_s=0.3, decrease_factor=0.8)
    simulation = OVERLOAD.with_(
        {
            "gateway.limit": [gateway.FixedLimit(max_in_flight=30)],
            "gateway.controller": policy,
            "gateway.sensor": {"tick_s": 0.25, "window_s": 1, "min_samples": 5},
            "gateway.guard": {"cooldown_ticks": 1},
        }
    )
    log = simulate(simulation, 1).control
    controller = build(policy, simulation=simulation)
    for i in range(len(log["time_s"])):
        value = float(log["value"][i])
        reading = Reading(
            value=None if math.isnan(value) else value,
            samples=int(log["samples"][i]),
            in_flight=int(log["in_flight"][i]),
        )
        step = controller.decide(reading, now_s=float(log["time_s"][i]))
        action = _core.cluster.control_actions[log["action"][i]]
        assert step == testing.ControlDecision(action, float(log["setting"][i]))
    assert len(set(log["action"])) >= 4


# ---- what is refused -----------------------------------------------------------------------------

RANKED = Simulation(instances=[{"data_parallel_size": 2}])


def bucket() -> testing.Admission:
    return build(gateway.TokenBucket())


def fifo() -> testing.Fairness:
    return build(gateway.GlobalFifo())


def fixed() -> testing.Limit:
    return build(gateway.FixedLimit())


def test_time_does_not_go_backwards() -> None:
    bucket = build(gateway.TokenBucket())
    bucket.decide(Request(), now_s=2)
    with pytest.raises(ConfigError, match=r"now_s = 1\.5: must be >= 2, the instant of the call"):
        bucket.decide(Request(), now_s=1.5)
    bucket.decide(Request(), now_s=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Request(input_tokens=0), r"input_tokens = 0: must be a whole number >= 1 and <="),
        (lambda: Request(input_tokens="9"), r"input_tokens = '9': must be a whole number"),
        (lambda: Request(output_tokens=-1), r"output_tokens = -1: must be a whole number >= 0"),
        (lambda: Request(tenant=5), r"tenant = 5: must be text"),
        (lambda: Request(slo_class=None), r"slo_class = None: must be text"),
        (lambda: Request(arrival_s=-1), r"arrival_s = -1: must be a number >= 0"),
        (lambda: Request(prefix_group=1), r"prefix_group = 1: must be text"),
        (lambda: Request(prefix_group="a"), r"prefix_tokens = 0: must be a whole number >= 1"),
        (lambda: Request(prefix_tokens=5), r"prefix_tokens = 5: must be 0 without a prefix_group"),
        (lambda: InstanceSignals(waiting=-1), r"waiting = -1: must be a whole number >= 0"),
        (lambda: InstanceSignals(running=0.5), r"running = 0\.5: must be a whole number"),
        (lambda: InstanceSignals(kv_utilization=2), r"kv_utilization = 2: must be a number >= 0"),
        (lambda: InstanceSignals(kv_utilization=math.nan), r"kv_utilization = nan: must be"),
        (lambda: InstanceSignals(free_blocks=-1), r"free_blocks = -1: must be"),
        (lambda: InstanceSignals(prefill_tokens=-1), r"prefill_tokens = -1: must be"),
        (lambda: InstanceSignals(prefix_hits=-1), r"prefix_hits = -1: must be"),
        (lambda: InstanceSignals(prefix_lookups=-1), r"prefix_lookups = -1: must be"),
        (lambda: InstanceSignals(measured_s=-1), r"measured_s = -1: must be"),
        (lambda: InstanceSignals(in_flight=-1), r"in_flight = -1: must be"),
        (lambda: InstanceSignals(is_busy=1), r"is_busy = 1: must be True or False"),
        (lambda: InstanceSignals(cached_blocks=-1), r"cached_blocks = -1: must be"),
        (lambda: InstanceSignals(exact_first_token_s="a"), r"exact_first_token_s = 'a': must be"),
        (lambda: Reading(value=-1), r"value = -1: must be a number >= 0"),
        (lambda: Reading(samples=-1), r"samples = -1: must be"),
        (lambda: Reading(in_flight=-1), r"in_flight = -1: must be"),
        (lambda: Reading(queued=-1), r"queued = -1: must be"),
        (lambda: Reading(max_in_flight=-1), r"max_in_flight = -1: must be"),
        (lambda: Reading(shed=-1), r"shed = -1: must be"),
        (lambda: Reading(kv_utilization=2), r"kv_utilization = 2: must be"),
        (lambda: Reading(hit_rate=2), r"hit_rate = 2: must be"),
        (lambda: bucket().decide(Request(tenant="x")), r"tenant = 'x': must be one of 'default'"),
        (lambda: bucket().decide(Request(slo_class="x")), r"slo_class = 'x': must be one of 'crit"),
        (
            lambda: bucket().decide(Request(arrival_s=2), now_s=1),
            r"arrival_s = 2: must be <= now",
        ),
        (lambda: bucket().decide(Request(), now_s=-1), r"now_s = -1: must be >= 0"),
        (lambda: bucket().decide(Request(), instances=[]), r"instances = \[\]: must hold at least"),
        (lambda: build(router.Best()).decide([]), r"scores = \[\]: must hold at least one"),
        (lambda: build(router.Best()).decide([1, -1]), r"scores\[1\] = -1: must be >= 0"),
        (lambda: fifo().decide(may_start=["x"]), r"may_start = 'x': must be one of 'default'"),
        (lambda: fifo().emitted(Request(), tokens=-1), r"tokens = -1: must be"),
        (lambda: fixed().decide(Request(), ceiling=math.nan), r"ceiling = nan: must be a number"),
        (lambda: fixed().resize(-1), r"setting = -1: must be a number >= 0"),
        (lambda: fixed().set_workers(-1), r"workers = -1: must be"),
        (lambda: build(gateway.StaticCeilings()).decide(-1), r"saturation = -1: must be"),
        (lambda: build(gateway.Aimd()).resize(-1), r"limit = -1: must be"),
        (lambda: build(gateway.Aimd()).sample(-1), r"value = -1: must be"),
        (lambda: build(gateway.RejectAll(), seed=-1), r"seed = -1: must be a whole number >= 0"),
        (lambda: build([]), r"policy = \[\]: must hold at least one policy"),
        (lambda: build("token_bucket"), r"policy = 't': must be a policy"),
        (lambda: build(gateway.Queue()), r"policy = Queue\(\): must be a policy"),
        (lambda: build(instance.Fcfs()), r"policy = Fcfs\(\): cannot decide without a run"),
        (
            lambda: build([gateway.TokenBucket(), gateway.FixedLimit()]),
            r"policy\[1\] = FixedLimit\(\): must be of the same setting as the first, Gateway.adm",
        ),
        (lambda: build([router.LeastLoaded()] * 2), r"policy = 2 policies: router takes one"),
        (
            lambda: build(gateway.TenantBudget(budgets=[{"tenant": "x"}])),
            r"gateway.admission\[0\].budgets\[0\].tenant = 'x': must be one of the tenants",
        ),
        (
            lambda: build(gateway.Aimd(), simulation=Simulation()),
            r"gateway.controller = 'aimd': requires a limit that can be moved",
        ),
        (
            lambda: build(router.KvCost(), simulation=RANKED),
            r"instances\[0\].data_parallel_size = 2: must be 1 in a test: ranks cannot be scripted",
        ),
        (
            lambda: build(router.PrefixAffinity()).decide(
                Request(input_tokens=32), instances=[InstanceSignals(sent_blocks=3)]
            ),
            r"instances\[0\].sent_blocks = 3: must be <= 2, the full blocks of the prompt",
        ),
        (
            lambda: build(router.PrefixAffinity()).decide(
                Request(input_tokens=32, prefix_group="a", prefix_tokens=16),
                instances=[InstanceSignals(sent_blocks=1)],
            ),
            r"instances\[0\].sent_blocks = 1: must be unset with a prefix_group",
        ),
    ],
)
def test_invalid_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


def test_signals_are_stale_by_script_or_by_age() -> None:
    aging = Simulation(signals=signals.Scraped(stale_after_s=0.2))
    policy = build(gateway.GaieLegacy(), simulation=aging)
    spare = [Request(slo_class="batch") for _ in range(4)]
    aged = [InstanceSignals(measured_s=1.0)]
    assert policy.decide(spare[0], instances=aged, now_s=1.1999).admitted
    assert not policy.decide(spare[1], instances=aged, now_s=1.2).admitted
    assert not policy.decide(spare[2], instances=[InstanceSignals(is_stale=True)]).admitted
    assert policy.decide(spare[3], instances=[InstanceSignals()]).admitted


def test_parts_of_a_prompt_are_where_the_script_says() -> None:
    scorer = build(router.PrefixAffinity())
    seen = [InstanceSignals(sent_blocks=blocks) for blocks in (0, 1, 3, 4, 1)]
    for _ in range(2):  # a prompt is its own
        assert scorer.decide(Request(input_tokens=64), instances=seen) == (0, 0.25, 0.75, 1, 0.25)


def test_number_of_instances_stays() -> None:
    policy = build(gateway.SloGated())
    policy.decide(Request(), instances=loads(0, 0))
    with pytest.raises(ConfigError, match=r"instances = 3 of them: must be as many as in the fir"):
        policy.decide(Request(), instances=loads(0, 0, 0))
    around = Simulation(instances=[{"count": 2}, {"count": 1}])
    policy = build(gateway.SloGated(), simulation=around)
    policy.decide(Request())
    policy.decide(Request(), instances=loads(0, 0, 0))


def test_capacities_are_those_of_the_surroundings() -> None:
    """A budget of half of the seats: 1 + 3 + 3 of the last group."""
    around = Simulation(instances=[{"max_num_seqs": 1}, {"max_num_seqs": 3}])
    budget = build(gateway.TenantBudget(default_share=0.5), simulation=around)
    budget.decide(Request(), instances=loads(0, 0, 0))
    admitted = 0
    for now_s in range(1, 10):
        request = Request(slo_class="sheddable")
        if budget.decide(request, now_s=now_s).admitted:
            budget.dispatched(request)
            admitted += 1
    assert admitted == 4  # the fourth at 3 <= 3.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bucket().decide(5), "request must be a Request, not 5"),
        (lambda: bucket().decide(Request(), instances=5), "must be several InstanceSignals, not 5"),
        (
            lambda: bucket().decide(Request(), instances=[5]),
            r"instances must be several InstanceSignals, not \[5\]",
        ),
        (lambda: build(gateway.Aimd()).decide(5), "reading must be a Reading, not 5"),
        (lambda: bucket().decide(Request(), now_s="a"), "now_s must be a number of seconds, not"),
        (lambda: build(gateway.TokenBucket(), tenants=["gold"]), "tenants must be several Tenant"),
        (lambda: build(gateway.Aimd(), simulation=5), "simulation must be a Simulation, not 5"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def misused(message: str, call: Callable[..., object], *arguments: Any, **settings: Any) -> None:
    with pytest.raises(UsageError, match=message):
        call(*arguments, **settings)


def test_calls_out_of_order_are_refused() -> None:
    admission = build(gateway.EarlyRejection())
    request = Request()
    misused("has not seen the request before", admission.dispatched, request)
    admission.decide(request, commit=False)
    misused("must be one that was admitted and has not been dispa", admission.dispatched, request)
    admission.decide(request)
    misused("must be one that was dispatched and awaits its first", admission.first_token, request)
    with pytest.raises(ConfigError, match=r"instance = 1: must be >= 0 and < 1"):
        admission.dispatched(request, instance=1)
    admission.dispatched(request)
    admission.first_token(request)
    misused("awaits its first token", admission.first_token, request)
    with pytest.raises(ConfigError, match=r"outcome = 'done': must be how a request ends"):
        admission.finished(request, outcome="done")
    admission.finished(request)
    misused("was admitted and has not finished", admission.finished, request)

    limit = fixed()
    limit.started(request)
    misused("is not in flight", limit.started, request)
    limit.ended(request)
    misused("is in flight", limit.ended, request)
    misused("cannot be moved", build(gateway.Unlimited()).resize, 5)

    turns = fifo()
    turns.joined(request)
    misused("was dispatched", turns.finished, request)
    turns.left(request)
    misused("waits in its queue", turns.left, request)

    scorer = build(router.NoHitLru())
    scorer.decide(request)
    scorer.learn(request, instance=0)
    misused("has not been sent to an instance yet", scorer.learn, request, instance=0)

    policy = build(router.RoundRobin())
    policy.decide(request, learn=False)
    misused("was routed and awaits its first token", policy.first_token, request)
    policy.decide(request)
    policy.finished(request)
    misused("was routed and has not finished", policy.finished, request)


def test_requests_are_equal_to_themselves_alone() -> None:
    assert Request() != Request()
    assert InstanceSignals(waiting=1) == InstanceSignals(waiting=1)
    assert repr(build(gateway.FixedLimit())) == "<testing.Limit of FixedLimit()>"


# ---- batteries -----------------------------------------------------------------------------------

POLICIES = [
    specimens.specimens()[name].policy
    for name, seam in seams().items()
    if name in specimens.specimens()
    and seam.name not in ("Simulation.workload", "Trace.transforms")
]


@pytest.mark.parametrize("cls", POLICIES, ids=lambda cls: cls.__name__)
def test_every_policy_passes(cls: type[Any]) -> None:
    testing.check_policy(cls())


def test_every_built_seam_has_policies() -> None:
    assert {seam.name for seam in seams().values()} >= set(BUILT)


def test_battery_takes_surroundings() -> None:
    bands = [{"priority": 1}, {"priority": -1}]
    around = Simulation(gateway={"bands": bands, "limit": gateway.Saturation()})
    testing.check_policy(gateway.SoftReflective(), simulation=around)


def test_battery_says_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class TokenBucket(gateway.TokenBucket):  # type: ignore[misc]
        def __repr__(self) -> str:
            return "TokenBucket(capacity_tokens=1)"

    with pytest.raises(AssertionError, match=r"the check that its repr is code that recreates"):
        testing.check_policy(TokenBucket())

    class FixedLimit(gateway.FixedLimit):  # type: ignore[misc]
        def __reduce__(self) -> Any:
            return gateway.FixedLimit, ()

    with pytest.raises(AssertionError, match=r"equal: its copy by pickling is FixedLimit\(\)"):
        testing.check_policy(FixedLimit(max_in_flight=3))

    with pytest.raises(ConfigError, match=r"policy = Queue\(\): must be a policy"):
        testing.check_policy(gateway.Queue())

    policy = router.LeastLoaded(ties="random")
    seeds = itertools.count()
    monkeypatch.setattr(
        checks, "build", lambda policy, **around: build(policy, seed=next(seeds), **around)
    )
    with pytest.raises(AssertionError, match=r"decision \d+ differs: RoutingDecision"):
        testing.check_policy(policy)
    monkeypatch.undo()

    monkeypatch.setattr(
        checks, "simulate", lambda around, _seed, **_: simulate(around, next(seeds))
    )
    with pytest.raises(AssertionError, match=r"with a light load: run again, it gives a diff"):
        testing.check_policy(policy)
    monkeypatch.undo()

    def fail(_result: Result) -> None:
        raise RuntimeError("no sum")

    monkeypatch.setattr(checks, "check_conservation", fail)
    with pytest.raises(AssertionError, match=r"with a light load: RuntimeError\('no sum'\)"):
        testing.check_policy(policy)


MIXED = OVERLOAD.replace(
    gateway=gateway.Gateway(
        admission=gateway.TokenBucket(capacity_tokens=9000, refill_tokens_per_s=12_000),
        limit=gateway.FixedLimit(max_in_flight=12),
        bands=[{"queue": {"timeout_s": 0.3}}],
    ),
    instances=[instance.InstanceGroup(count=2, max_num_seqs=8)],
)


def test_results_add_up() -> None:
    result = simulate(MIXED)
    outcomes = Counter(result.requests["outcome"].tolist())
    assert min(outcomes[name] for name in ("completed", "rejected", "expired")) > 10
    testing.check_conservation(result)
    streamed = simulate(MIXED.with_({"metrics.streaming": True}))
    testing.check_conservation(streamed)
    retried = MIXED.with_({"reaction": {"timeout_s": 0.5, "retries": [{"max_attempts": 3}]}})
    testing.check_conservation(simulate(retried))


def altered(result: Result, column: str, row: int, value: Any) -> Result:
    """The result with another value in one place."""
    output = copy.copy(result._output)
    if column.startswith("ledger."):
        output["ledger"] = {**output["ledger"], column.removeprefix("ledger."): value}
    else:
        columns = dict(output["columns"])
        columns[column] = columns[column].copy()
        columns[column][row] = value
        output["columns"] = columns
    return Result(result.simulation, result.seed, output)


# An outcome, a column of which the first such row is changed, its value, and what is then wrong.
WRONG: list[tuple[str, str, Any, str]] = [
    ("completed", "ledger.dispatched", 3, r"ledger: 3 dispatched, but \d+ completed make"),
    ("completed", "ledger.admitted", 3, r"3 admitted, but \d+ dispatched \+ \d+ expired make"),
    ("completed", "ledger.attempts", 3, r"3 attempts, but \d+ admitted \+ \d+ rejected make"),
    ("completed", "ledger.logical_requests", 9999, r"ledger: 400 attempts at 9999 requests"),
    ("completed", "ledger.logical_requests", 9999, r"400 requests, but 9999 in the ledger"),
    ("completed", "outcome", 4, r"1 requests are failed, but 0 in the ledger"),
    ("completed", "reason", 1, r"1 requests are completed and have a reason, the first in row"),
    ("rejected", "reason", 0, r"1 requests are rejected without a reason, the first in row"),
    ("completed", "instance", -1, r"1 requests are completed and were never routed"),
    ("completed", "instance", -1, r"instance \d completed \d+ requests, but \d+ name it"),
    ("completed", "output_tokens", 10**6, r"1 requests got more tokens than requested"),
    ("completed", "output_tokens", 0, r"1 requests are completed without all their tokens"),
    ("completed", "arrival_s", 10**6, r"1 requests arrived before the one above"),
    ("completed", "arrival_s", 10**6, r"1 requests ended after the run"),
    ("completed", "ttft_s", -1, r"1 requests have a negative ttft_s"),
    ("completed", "ttft_s", 10**6, r"1 requests ended before their first token"),
    ("completed", "queue_s", 10**6, r"1 requests got their first token before dispatch"),
    ("completed", "e2e_s", math.nan, r"1 requests are completed without e2e_s"),
    ("expired", "admitted", False, r"1 requests went on without being admitted"),
]


@pytest.mark.parametrize(("outcome", "column", "value", "message"), WRONG)
def test_what_does_not_add_up_is_named(outcome: str, column: str, value: Any, message: str) -> None:
    result = simulate(MIXED)
    row = int(np.flatnonzero(result.requests["outcome"] == outcome)[0])
    with pytest.raises(AssertionError, match=message) as raised:
        testing.check_conservation(altered(result, column, row, value))
    assert str(raised.value).startswith("the result does not add up:\n")
