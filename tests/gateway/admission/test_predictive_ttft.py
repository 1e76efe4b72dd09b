"""Predictive admission: every verdict, restated in plain Python from the requests' timestamps."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.changes import targets
from support.effort import often, trials
from support.routing import every_router
from support.runs import ns, run, simulated
from support.twins.predictive_ttft import PRIORITY, Twin, Way, ways

from spillway import (
    ConfigError,
    Result,
    Simulation,
    UsageError,
    gateway,
    instance,
    router,
    signals,
    simulate,
    workload,
)
from spillway import trace as recorded
from spillway.config.profiles import BLIS_SERVER
from spillway.testing import InstanceSignals, Request, build

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PLAIN = instance.Linear(alpha0_us=0, alpha_input_us=0, alpha_output_us=0)
TRIALS = trials(30)
COEFFICIENTS = {
    "avg_step_s": 0.007,
    "beta0_us": 6910.42,
    "beta_prefill_us": 17.67,
    "beta_decode_us": 2.84,
}
ESTIMATORS = ("queue_depth", "priority_aware", "token_backlog", "seats_and_memory")


def predictive(budgets_s: Mapping[str, float], **settings: Any) -> gateway.Gateway:
    """A gateway with predictive admission; `budgets_s` are by class."""
    budgets = [gateway.TtftBudget(slo_class=name, budget_s=s) for name, s in budgets_s.items()]
    settings = COEFFICIENTS | settings
    return gateway.Gateway(admission=gateway.PredictiveTtft(budgets=budgets, **settings))


# --- random configurations ------------------------------------------------------------------------


def random_policy(rng: random.Random, estimator: str, priced: str) -> gateway.PredictiveTtft:
    learns = estimator in ("token_backlog", "seats_and_memory") and rng.random() < 0.5
    return gateway.PredictiveTtft(
        estimator=estimator,
        instance=priced,
        budgets=[
            gateway.TtftBudget(slo_class=name, budget_s=rng.choice((0.03, 0.08, 0.15, 0.3)))
            for name in rng.sample(list(PRIORITY), rng.randint(1, 4))
        ],
        headroom=rng.choice((1, 0.7, 1.5)),
        protected_priority=rng.choice((4, 4, 3, None)),
        avg_step_s=rng.choice((0.007, 0.012)),
        beta0_us=6910.42,
        beta_prefill_us=rng.choice((17.67, 25)),
        beta_decode_us=2.84,
        ahead=rng.choice(("same_or_higher", "all")),
        corrects_staleness=rng.random() < 0.6,
        margin=gateway.TtftMargin(quantile=rng.choice((None, 0.5, 0.9)), step_s=0.004),
        calibration=gateway.TtftCalibration(forgetting=rng.choice((0.9, 0.99)) if learns else None),
        exploration=rng.choice((0, 0, 0.1)),
        cold_start=gateway.ColdStart(
            floor_per_s=rng.choice((None, 1, 4)),
            floor_burst=rng.choice((1, 3)),
            bonus_requests=rng.choice((0, 0, 3)),
            group_memory_s=rng.choice((600, 0.3)),
            warming_share=rng.choice((0, 0.4)),
            warming_match=rng.choice((0.2, 0.5)),
            largest_share=rng.choice((1, 0.05)),
        ),
    )


def random_run(
    seed: int, estimator: str, priced: str = "best"
) -> tuple[Simulation, Result, list[Way]]:
    rng = random.Random(f"{estimator} {seed}")
    n, rate, timeout_s = 220, rng.choice((100, 200, 400)), rng.choice((None, 0.1))
    arrivals = np.cumsum([rng.expovariate(rate) for _ in range(n)])
    sizes = {"p": 64, "q": 160, "r": 400}
    groups = [rng.choice((None, "p", "q", "r")) for _ in range(n)]
    prefix = [sizes[group] if group else 0 for group in groups]
    requests = recorded(
        arrival_s=arrivals,
        input_tokens=[tokens + rng.randint(1, 300) for tokens in prefix],
        output_tokens=[rng.randint(1, 40) for _ in range(n)],
        slo_class=[rng.choice(list(PRIORITY)) for _ in range(n)],
        prefix_group=groups,
        prefix_tokens=prefix,
    )
    simulation = Simulation(
        workload=requests,
        slo_classes=[
            workload.SloClass(name=name, priority=priority, target_ttft_s=target_s)
            for (name, priority), target_s in zip(
                PRIORITY.items(), (0.1, None, 0.2, 0.05, None), strict=True
            )
        ],
        gateway=gateway.Gateway(
            admission=random_policy(rng, estimator, priced),
            bands=[gateway.Band(queue=gateway.Queue(timeout_s=timeout_s))],
            limit=rng.choice(("unlimited", gateway.FixedLimit(max_in_flight=rng.randint(20, 60)))),
        ),
        router=rng.choice(
            (
                router.LeastLoaded(),
                router.Weighted(scorers=[router.PrefixAffinity(weight=2), "queue_depth"]),
            )
        )
        if priced == "best"
        else router.RoundRobin(),
        signals=rng.choice(
            (signals.Live(), signals.Scraped(period_s=0.05), signals.Scraped(period_s=0.4))
        ),
        instances=[
            BLIS_SERVER.replace(
                count=rng.choice((1, 2, 3)),
                latency=PLAIN,
                max_num_seqs=rng.choice((8, 64)),
                max_num_batched_tokens=rng.choice((256, 1024)),
                scheduler=rng.choice(("fcfs", instance.PriorityFcfs(priority="slo_class"))),
            )
        ],
    )
    result = simulate(simulation, seed)
    return simulation, result, ways(result, groups, prefix, timeout_s)


@pytest.mark.parametrize("priced", ["best", "routed"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_verdict_is_the_documented_one(estimator: str, priced: str) -> None:
    rejected = 0
    for seed in TRIALS:
        simulation, result, them = random_run(seed, estimator, priced)
        twin = Twin(simulation, them, seed)
        for way in them:
            assert twin.admits(way) == way.admitted, (seed, way)
        reasons = set(result.requests["reason"].tolist())
        assert reasons <= {"", "predicted_ttft", "queue_timeout"}
        rejected += sum(not way.admitted for way in them)
    assert often(500) < rejected < 220 * len(TRIALS) - often(500)


# --- every setting counts -------------------------------------------------------------------------

TOKENS = {"estimator": "token_backlog"}
LEARNING = TOKENS | {"calibration.forgetting": 0.99}
FLOOR = {"cold_start.floor_per_s": 2}
# By setting: what it needs beside itself, and another value of it.
CHANGES: dict[str, tuple[dict[str, Any], Any]] = {
    "estimator": ({}, "token_backlog"),
    "instance": ({}, "routed"),
    "budgets.slo_class": ({}, "batch"),
    "budgets.budget_s": ({}, 0.02),
    "headroom": ({}, 0.5),
    "protected_priority": ({}, None),
    "avg_step_s": ({}, 0.02),
    "beta0_us": ({}, 20000),
    "beta_prefill_us": ({}, 60),
    "beta_decode_us": (TOKENS, 2000),
    "ahead": (TOKENS, "all"),
    "corrects_staleness": ({}, False),
    "margin.quantile": ({}, 0.9),
    "margin.step_s": ({"margin.quantile": 0.9}, 0.02),
    "calibration.forgetting": (TOKENS, 0.9),
    "calibration.initial_variance": (LEARNING, 1e-3),
    "calibration.largest_trace": (LEARNING, 1e-3),
    "calibration.outlier_sigmas": (LEARNING, 0.5),
    "exploration": ({}, 0.2),
    "cold_start.floor_per_s": ({}, 2),
    "cold_start.floor_burst": (FLOOR, 8),
    "cold_start.bonus_requests": ({}, 100),
    "cold_start.group_memory_s": (FLOOR, 0.02),
    "cold_start.warming_share": ({}, 0.5),
    "cold_start.warming_match": ({"cold_start.warming_share": 0.5}, 0.1),
    "cold_start.largest_share": (FLOOR, 0.01),
}


def settings_of(description: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for field in description["fields"]:
        if field["type"] == "struct":
            yield from settings_of(field["of"], f"{path}{field['name']}.")
        else:
            yield path + field["name"]


def test_every_setting_is_tried() -> None:
    assert set(settings_of(gateway.PredictiveTtft._describe())) == set(CHANGES)


@pytest.mark.parametrize("name", CHANGES)
def test_every_setting_changes_some_run(name: str) -> None:
    needs, value = CHANGES[name]
    rng = random.Random(1)
    n = 600
    groups = [rng.choice((None, "p", "q", "r")) for _ in range(n)]
    prefix = [320 if group else 0 for group in groups]
    simulation = Simulation(
        workload=recorded(
            arrival_s=np.cumsum([rng.expovariate(300) for _ in range(n)]),
            input_tokens=[tokens + rng.randint(1, 400) for tokens in prefix],
            output_tokens=[rng.randint(1, 60) for _ in range(n)],
            slo_class=[
                rng.choice(("critical", "standard", "sheddable", "batch")) for _ in range(n)
            ],
            prefix_group=groups,
            prefix_tokens=prefix,
        ),
        gateway=predictive({"critical": 0.1, "standard": 0.08, "sheddable": 0.05}),
        router=router.LeastLoaded(),
        signals=signals.Scraped(period_s=0.1),
        instances=[BLIS_SERVER.replace(count=2, latency=PLAIN, max_num_batched_tokens=512)],
    )

    def path(setting: str) -> str:
        return "gateway.admission[0]." + setting.replace("budgets.", "budgets[1].")

    base = simulation.with_({path(setting): of for setting, of in needs.items()})
    assert simulate(base).digest != simulate(base.with_({path(name): value})).digest


# --- particular cases -----------------------------------------------------------------------------


def test_rules_that_span_settings() -> None:
    twice = [gateway.TtftBudget(), gateway.TtftBudget(budget_s=1)]
    with pytest.raises(ConfigError, match=r"budgets\[1\].slo_class = 'standard': must differ"):
        gateway.PredictiveTtft(budgets=twice)
    learning = gateway.TtftCalibration(forgetting=0.99)
    with pytest.raises(ConfigError, match=r"calibration.forgetting = 0.99: requires an estimator"):
        gateway.PredictiveTtft(calibration=learning)
    gateway.PredictiveTtft(calibration=learning, estimator="token_backlog")


@pytest.mark.parametrize("name", ["standard", "gold"])
def test_the_default_policy_takes_the_targets_of_any_classes(name: str) -> None:
    """By default there are no budgets, so no class has to exist."""
    classes = [workload.SloClass(name=name, target_ttft_s=0.05)]
    client = workload.Client(slo_class=name, input_tokens=workload.Fixed(tokens=2000))
    simulation = Simulation(
        workload=workload.Synthetic(requests_per_s=100, num_requests=500, clients=[client]),
        slo_classes=classes,
        gateway=gateway.Gateway(admission=gateway.PredictiveTtft(estimator="token_backlog")),
    )
    assert simulation.gateway.admission[0].budgets == ()
    assert 0 < simulate(simulation).summary()["rejected"] < 500
    default = simulation.with_({"gateway.admission": ["predictive_ttft"]})
    assert default.gateway.admission[0] == gateway.PredictiveTtft()
    simulate(default)


def test_full_memory_adds_the_time_to_the_next_release() -> None:
    """Of two requests that fit, each needs most memory; ends 0.7 s apart are known by then."""
    blocks, prompt = 100, 16 * 60

    def admitted(estimator: str, budget_s: float) -> bool:
        result = simulated(
            workload=recorded(
                arrival_s=[0, 0.5, 1, 5, 5.2],
                input_tokens=[16, 16, 16, prompt, prompt],
                output_tokens=[100, 100, 100, 300, 10],
            ),
            gateway=predictive({"standard": budget_s}, estimator=estimator),
            instances=[BLIS_SERVER.replace(latency=PLAIN, num_kv_blocks=blocks)],
        )
        assert result.requests["admitted"][:4].all()
        return bool(result.requests["admitted"][4])

    # 7 ms a step, at most 17 ms for the prompt.
    assert admitted("token_backlog", 0.04)
    assert not admitted("seats_and_memory", 0.04)
    assert admitted("seats_and_memory", 1)


def test_admission_by_group_age_counts_requests() -> None:
    groups = ["a", "a", None, "a", "b", "b", "a", "b", "c"]
    simulation = Simulation(
        workload=recorded(
            arrival_s=[0, 0.5, 0.6, 1.2, 2.1, 2.2, 2.3, 3.5, 3.9],
            input_tokens=[100] * 9,
            output_tokens=[1] * 9,
            prefix_group=groups,
            prefix_tokens=[50 if group else 0 for group in groups],
        ),
        # Six prompts go in, and then none.
        gateway=gateway.Gateway(
            admission=gateway.TokenBucket(capacity_tokens=650, refill_tokens_per_s=0)
        ),
        instances=BLIS_SERVER,
    )
    result = simulate(simulation)
    table = result.admission_by_group_age(step_s=1, new_for_s=1)
    assert table["start_s"].tolist() == [0, 1, 2, 3]
    assert table["new_offered"].tolist() == [2, 0, 2, 1]
    assert table["new_admitted"].tolist() == [2, 0, 2, 0]
    assert table["established_offered"].tolist() == [0, 1, 1, 1]
    assert table["established_admitted"].tolist() == [0, 1, 0, 0]
    assert table["new_ratio"].tolist()[::2] == [1, 1]
    assert np.isnan(table["ratio"]).all()
    whole = result.admission_by_group_age(step_s=10, new_for_s=1)
    assert whole["ratio"].tolist() == [4 / 5 / (1 / 3)]
    with pytest.raises(UsageError, match="step_s = 0: must be finite and > 0"):
        result.admission_by_group_age(step_s=0)


def test_streamed_runs_decide_alike() -> None:
    """Where the numbers of requests that have left are given to others."""
    simulation = Simulation(
        workload=workload.Synthetic(
            num_requests=3000,
            requests_per_s=150,
            clients=[
                workload.Client(name=name, slo_class=name, prefix_group="g", prefix_tokens=200)
                for name in ("critical", "standard", "sheddable")
            ],
        ),
        gateway=predictive(
            {"standard": 0.06, "sheddable": 0.03},
            estimator="seats_and_memory",
            margin=gateway.TtftMargin(quantile=0.9),
            calibration=gateway.TtftCalibration(forgetting=0.99),
            cold_start=gateway.ColdStart(floor_per_s=1),
        ),
        signals=signals.Scraped(period_s=0.1),
        instances=BLIS_SERVER,
    )
    kept = simulate(simulation).ledger
    assert simulate(simulation.with_({"metrics.streaming": True})).ledger == kept
    rejected = kept["rejected"]
    assert 100 < sum(rejected.values()) < 2500, "neither all nor none"


# --- the exact estimate ---------------------------------------------------------------------------


def random_fleet(rng: random.Random, count: int = 1) -> instance.InstanceGroup:
    latency = instance.Linear(beta_context_us=rng.choice((0, 0.01)))
    return BLIS_SERVER.replace(
        count=count,
        latency=rng.choice((latency, instance.Jittered(mean=latency, cv=0.2))),
        max_num_seqs=rng.choice((3, 8, 64)),
        max_num_batched_tokens=rng.choice((64, 256, 2048)),
        long_prefill_token_threshold=rng.choice((0, 0, 50)),
        num_kv_blocks=rng.choice((60, 90, 10000)),
        kv_cache=instance.KvCache(
            prefix_caching=rng.random() < 0.7,
            allocation=rng.choice(("check_then_act", "roll_back")),
            reserve_full_prompt=False,
        ),
        scheduler=rng.choice(("fcfs", "sjf", instance.PriorityFcfs(priority="slo_class"))),
        completion=rng.choice(("step_end", "step_end", "step_start")),
        preemption=rng.choice(("keep_emitted", "restart")),
    )


EVERY_ROUTER = every_router()


@pytest.mark.parametrize("seed", trials(60))
def test_the_exact_estimate_is_right_to_the_nanosecond_if_no_other_follows(seed: int) -> None:
    """Each last request is admitted with a budget of what it really takes, not with 1 ns less.

    On a fleet that holds for the instance that the router chooses, so it must be the one priced.
    """
    rng = random.Random(seed)
    n, rate = 60, rng.choice((20, 60, 200))
    arrivals = np.cumsum([rng.expovariate(rate) for _ in range(n)])
    groups = [rng.choice((None, "p", "q")) for _ in range(n)]
    prefix = [100 if group else 0 for group in groups]
    inputs = [tokens + rng.randint(1, 300) for tokens in prefix]
    outputs = [rng.randint(0, 60) for _ in range(n)]
    classes = [rng.choice(("standard", "batch")) for _ in range(n)]
    probe = workload.SloClass(name="probe", priority=rng.choice((3, -1, 9)))
    is_alone = seed % 2 == 0
    fleet = random_fleet(rng, count=1 if is_alone else rng.randint(2, 4))
    routing = rng.choice(EVERY_ROUTER)

    def run(length: int, admission: Any) -> Result:
        return simulated(
            seed,
            workload=recorded(
                arrival_s=arrivals[:length],
                input_tokens=inputs[:length],
                output_tokens=outputs[:length],
                slo_class=[*classes[: length - 1], "probe"],
                prefix_group=groups[:length],
                prefix_tokens=prefix[:length],
            ).replace(empty_outputs="served"),
            slo_classes=[*Simulation(instances=BLIS_SERVER).slo_classes, probe],
            gateway=gateway.Gateway(admission=admission),
            router=routing,
            instances=[fleet],
        )

    for length in rng.sample(range(2, n + 1), 8):
        took_ns = ns(run(length, gateway.AlwaysAdmit()).requests["ttft_s"])[-1]
        for budget_ns, admitted in ((took_ns, True), (took_ns - 1, False)):
            exact = gateway.PredictiveTtft(
                estimator="exact",
                instance="best" if is_alone else "routed",
                protected_priority=None,
                budgets=[gateway.TtftBudget(slo_class="probe", budget_s=budget_ns / 1e9)],
            )
            assert bool(run(length, exact).requests["admitted"][-1]) is admitted


PUBLISHED_BUDGETS_S = {"critical": 0.2, "standard": 0.5, "sheddable": 0.3}

# --- which instance is priced ---------------------------------------------------------------------


def crowded(**settings: Any) -> Simulation:
    """Two classes of prompts in groups, more of them than the fleet can serve."""
    clients = [
        workload.Client(
            name=f"{name} {group}",
            slo_class=name,
            prefix_group=f"{group}",
            prefix_tokens=320,
            input_tokens=workload.Exponential(mean_tokens=200, max_tokens=1500),
            output_tokens=workload.Exponential(mean_tokens=40, max_tokens=200),
        )
        for name in ("standard", "sheddable")
        for group in range(6)
    ]
    base = Simulation(
        workload=workload.Synthetic(requests_per_s=300, num_requests=500, clients=clients),
        instances=[BLIS_SERVER.replace(count=4, max_num_seqs=16, num_kv_blocks=800)],
    )
    return base.replace(**settings)


@pytest.mark.parametrize("number", range(len(EVERY_ROUTER)))
@pytest.mark.parametrize(
    "read",
    [signals.Live(), signals.OnRead(period_s=0.02), signals.Scraped(period_s=0.05, jitter=0.5)],
    ids=lambda gate: gate.to_dict()["kind"],
)
def test_to_ask_the_router_changes_nothing(number: int, read: Any) -> None:
    admits_all = gateway.PredictiveTtft(
        instance="routed", headroom=1000, budgets=[], protected_priority=None
    )
    generous = [
        workload.SloClass(name=name, priority=priority, target_ttft_s=1e6)
        for name, priority in PRIORITY.items()
    ]
    base = crowded(
        router=EVERY_ROUTER[number],
        signals=read,
        slo_classes=generous,
        metrics={"traced_candidates": 4},
    )

    def run(admission: Any) -> Result:
        limit = gateway.FixedLimit(max_in_flight=48)
        return simulate(base.replace(gateway=gateway.Gateway(admission=admission, limit=limit)), 3)

    plain, asked = run(gateway.AlwaysAdmit()), run(admits_all)
    assert asked.ledger == plain.ledger
    for name, column in plain.requests.items():
        np.testing.assert_array_equal(asked.requests[name], column, err_msg=name)
    for name, column in plain.decisions.items():
        np.testing.assert_array_equal(asked.decisions[name], column, err_msg=name)


@pytest.mark.parametrize("estimator", [*ESTIMATORS, "exact"])
def test_a_worse_instance_is_priced_where_the_router_chooses_it(estimator: str) -> None:
    """The router takes the busiest instance: only `routed` sees the queue there."""
    simulation = Simulation(
        workload=recorded(
            arrival_s=[0, 0.001, 0.002, 0.003],
            input_tokens=[4000] * 4,
            output_tokens=[10] * 4,
            slo_class=["critical"] * 3 + ["standard"],
        ),
        gateway=predictive({"standard": 0.2}, estimator=estimator, avg_step_s=0.1, ahead="all"),
        router=router.AlwaysBusiest(),
        instances=[BLIS_SERVER.replace(count=4, latency=PLAIN)],
    )
    path = "gateway.admission[0].instance"
    admitted = {
        priced: simulate(simulation.with_({path: priced})).requests["admitted"].tolist()
        for priced in ("best", "routed")
    }
    assert admitted == {"best": [True] * 4, "routed": [True, True, True, False]}
    idle = simulation.with_({"router": router.LeastLoaded(), path: "routed"})
    assert simulate(idle).requests["admitted"].all(), "the router chooses the best one"


@pytest.mark.parametrize("estimator", [*ESTIMATORS, "exact"])
def test_on_one_instance_the_best_is_the_routed(estimator: str) -> None:
    simulation = crowded(
        gateway=predictive(PUBLISHED_BUDGETS_S, estimator=estimator, protected_priority=None),
        instances=[BLIS_SERVER.replace(max_num_seqs=16, num_kv_blocks=800)],
    )
    best = simulate(simulation)
    routed = simulate(simulation.with_({"gateway.admission[0].instance": "routed"}))
    assert 0 < best.summary()["rejected"] < 500
    for name, column in best.requests.items():
        np.testing.assert_array_equal(routed.requests[name], column, err_msg=name)


def test_the_routed_instance_is_priced_among_those_that_are_ready() -> None:
    """After an instance has left, positions among the others are not numbers of the fleet."""
    simulation = crowded(
        router=router.AlwaysBusiest(),
        changes=targets((0.2, 2), (0.6, 3)),
        gateway=predictive(PUBLISHED_BUDGETS_S, instance="routed", protected_priority=None),
    )
    assert 0 < simulate(simulation).summary()["rejected"] < 500


# --- coefficients ---------------------------------------------------------------------------------


def admitted_alone(latency: Any, budget_s: float, **settings: Any) -> bool:
    """Whether a prompt of 512 tokens passes at an idle fleet."""
    budgets = [gateway.TtftBudget(slo_class="standard", budget_s=budget_s)]
    policy = gateway.PredictiveTtft(budgets=budgets, **settings)
    fleet = Simulation(instances=[BLIS_SERVER.replace(latency=latency)])
    return build(policy, simulation=fleet).decide(Request(input_tokens=512)).admitted


@pytest.mark.parametrize("estimator", ["queue_depth", "token_backlog"])
@pytest.mark.parametrize("beta_prefill_us", [5, 50])
def test_coefficients_are_those_of_the_fleet(estimator: str, beta_prefill_us: float) -> None:
    linear = PLAIN.replace(beta0_us=3000, beta_prefill_us=beta_prefill_us)
    due_s = (3000 + 512 * beta_prefill_us) / 1e6
    for latency in (linear, instance.Jittered(mean=linear)):
        assert admitted_alone(latency, 1.01 * due_s, estimator=estimator)
        assert not admitted_alone(latency, 0.99 * due_s, estimator=estimator)
    low = {"estimator": estimator, "beta0_us": 100.0, "beta_prefill_us": 1.0}
    assert admitted_alone(linear, 0.99 * due_s, **low)


def test_coefficients_of_a_server_that_is_not_linear() -> None:
    """The default server's step for that prompt, without what surrounds it."""
    simulation = Simulation(
        workload=recorded(arrival_s=[0.0], input_tokens=[512], output_tokens=[1])
    )
    ttft_s = float(simulate(simulation).requests["ttft_s"][0])
    latency = simulation.instances[0].latency
    assert admitted_alone(latency, 1.0 * ttft_s)
    assert not admitted_alone(latency, 0.5 * ttft_s)


def test_a_refusal_says_what_it_compared() -> None:
    """100 tokens of 1 ms each and an empty step of 1 ms, on the instance with the shorter queue."""
    settings = {
        "estimator": "queue_depth",
        "avg_step_s": 0.1,
        "beta0_us": 1000,
        "beta_prefill_us": 1000,
        "beta_decode_us": 1,
        "budgets": [gateway.TtftBudget(slo_class="standard", budget_s=0.25)],
    }
    built = build(gateway.PredictiveTtft(**settings))
    queues = [InstanceSignals(waiting=3), InstanceSignals(waiting=2)]
    refused = built.decide(Request(input_tokens=100), instances=queues)
    assert refused.detail == "predicted 0.301 s on instance 1, budget 0.25 s"
    assert built.decide(Request(input_tokens=100), instances=[InstanceSignals()] * 2).detail == ""


def test_why_says_what_a_refusal_compared(tmp_path: Path) -> None:
    result = run(
        [0.0, 0.001],
        gateway=predictive({"standard": 0.0001}),
        metrics={"traced_candidates": 1},
    )
    detail = result.refusal_detail(0)
    assert re.fullmatch(r"predicted [\d.]+ s on instance 0, budget 0\.0001 s", detail)
    assert f"refused: {detail}" in result.why(0)
    result.save(tmp_path / "run.npz")
    assert Result.load(tmp_path / "run.npz").refusal_detail(0) == detail
