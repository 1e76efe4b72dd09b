"""Figures, objectives and constraints, against the summaries that they come from."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
from support.study_problems import overloaded

from spillway import ConfigError, Simulation, simulate, workload
from spillway.data import bounds
from spillway.study import Figure, NoFigureError, Objective
from spillway.study.objective import WeightedSum, as_constraints, as_objectives, rewards_shedding

RESULT = simulate(overloaded())
SUMMARY, CLASSES, TENANTS = RESULT.summary(), RESULT.by_class(), RESULT.by_tenant()


def shed(figures: Any) -> float:
    lost = figures["rejected"] + figures["expired"] + figures["evicted"]
    return float(lost / figures["offered"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("goodput", SUMMARY["goodput"]),
        (" p99_ttft_ms[ critical ]", CLASSES["critical"]["p99_ttft_ms"]),
        ("p99_ttft_ms[b]", TENANTS["b"]["p99_ttft_ms"]),
        ("goodput[class=sheddable]", CLASSES["sheddable"]["goodput"]),
        ("goodput[tenant=a]", TENANTS["a"]["goodput"]),
        ("jain[tenant]", SUMMARY["jain_tenant"]),
        ("jain", SUMMARY["jain_tenant"]),
        ("shed", shed(SUMMARY)),
        ("shed[b]", shed(TENANTS["b"])),
        ("goodput[worst tenant]", min(group["goodput"] for group in TENANTS.values())),
        ("p99_ttft_ms[worst class]", max(group["p99_ttft_ms"] for group in CLASSES.values())),
    ],
)
def test_figures(text: str, value: float) -> None:
    assert Figure(text).of(RESULT) == value


def test_shed_counts_what_the_ledger_does() -> None:
    ledger = RESULT.ledger
    lost = sum(ledger["rejected"].values()) + ledger["expired"] + ledger["evicted"]
    assert 0 < Figure("shed").of(RESULT) == lost / ledger["logical_requests"]


def test_name_of_both_a_class_and_a_tenant_must_say_which() -> None:
    base = overloaded(
        tenants=(workload.Tenant(name="critical"), workload.Tenant(name="b")),
        workload=workload.Synthetic(
            num_requests=10,
            clients=[
                workload.Client(name="x", tenant="critical", slo_class="critical"),
                workload.Client(name="y", tenant="b", slo_class="critical"),
            ],
        ),
    )
    result = simulate(base)
    with pytest.raises(ConfigError, match=r"use \[class=critical\] or \[tenant=critical\]"):
        Figure("goodput[critical]").of(result)
    offered = Figure("offered[tenant=critical]").of(result)
    assert offered == result.by_tenant()["critical"]["offered"]
    assert offered < Figure("offered[class=critical]").of(result)


@pytest.mark.parametrize("text", ["", "goodput[", "goodput[a][b]", "1/goodput", "goodput[a] + 1"])
def test_what_is_no_figure(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a figure, optionally with a selector"):
        Figure(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("godput", "did you mean 'goodput'"),
        ("goodput[gold]", "unknown class or tenant 'gold'"),
        ("goodput[zone=a]", "must be a class, a tenant"),
    ],
)
def test_what_there_is_not(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Figure(text).of(RESULT)


def test_no_population_is_distinguished_from_no_target() -> None:
    silent = simulate(overloaded().with_({"gateway.limit[0].max_in_flight": 1, "horizon_s": 0.1}))
    with pytest.raises(NoFigureError, match="no request of its population has one"):
        Figure("p99_e2el_ms").of(silent)
    plain = simulate(Simulation())
    assert plain.summary()["goodput"] is None
    with pytest.raises(ConfigError, match="no class of these requests has a target"):
        Figure("goodput").of(plain)


# --- objectives -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("goodput", "maximize"),
        ("jain[tenant]", "maximize"),
        ("output_throughput", "maximize"),
        ("p99_ttft_ms[critical]", "minimize"),
        ("shed", "minimize"),
        ({"goodput": 1, "jain": 0.5}, "maximize"),
        ({"goodput": 1, "shed[b]": -0.5}, "maximize"),
        ({"shed": 1, "p99_ttft_ms": 0.01}, "minimize"),
    ],
)
def test_direction_that_goes_without_saying(metric: Any, direction: str) -> None:
    assert Objective(metric).direction == direction


@pytest.mark.parametrize("metric", ["offered", {"goodput": 1, "shed": 1}, lambda _: 1.0])
def test_direction_that_must_be_said(metric: Any) -> None:
    with pytest.raises(ConfigError, match="must state a direction"):
        Objective(metric)
    assert Objective(metric, "minimize").sign == -1


def test_weighted_sum() -> None:
    objective = Objective({"goodput": 1, "shed": -0.5})
    assert isinstance(objective.metric, WeightedSum)
    goodput = SUMMARY["goodput"]
    assert objective.metric.of(RESULT) == pytest.approx(goodput - 0.5 * shed(SUMMARY), abs=1e-15)
    assert objective.name == "goodput -0.5 shed"


def test_several_objectives() -> None:
    objectives = as_objectives(["goodput", Objective("shed")])
    assert [objective.name for objective in objectives] == ["goodput", "shed"]
    with pytest.raises(ConfigError):
        as_objectives([])


# --- constraints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "value", "violation"),
    [
        ("<=200", 300, 0.5),
        ("<= 200", 100, -0.5),
        ("<200", 200, 0),
        (">=0.9", 0.45, 0.5),
        (">= 9e-1", 0.99, -0.1),
        ("<=0", 0.25, 0.25),
        (">=-2", -3, 0.5),
    ],
)
def test_violation_is_signed_and_in_shares_of_the_bound(
    bound: str, value: float, violation: float
) -> None:
    (constraint,) = as_constraints({"shed": bound})
    assert constraint.violation(value) == pytest.approx(violation)


@pytest.mark.parametrize("bound", ["200", "=200", "<=", "<=a", "<=1,000", "<=200 <=300", 200])
def test_what_is_no_constraint(bound: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        as_constraints({"goodput": ">=0.5", "shed": bound})
    assert caught.value.violations == (
        ("constraints.shed", repr(f"shed {bound}"), f"must be {bounds.FORM}"),
    )


@pytest.mark.parametrize(
    ("text", "constraint"),
    [
        ("p99_ttft_ms[gold] <= 500", "p99_ttft_ms[gold] <= 500"),
        ("p99_ttft_ms[ worst class ]<0.5s", "p99_ttft_ms[worst class] <= 500"),
        ("p99_ttft_ms <= 500ms", "p99_ttft_ms <= 500"),
        ("duration <= 2min", "duration <= 120"),
        ("goodput[tenant=gold] >= 99%", "goodput[tenant=gold] >= 0.99"),
        ("shed <= 1 %", "shed <= 0.01"),
        ("jain > .9", "jain >= 0.9"),
        ("request_throughput >= 2e1 rps", "request_throughput >= 20"),
    ],
)
def test_one_form_states_figure_scope_relation_value_and_unit(text: str, constraint: str) -> None:
    figure, _, bound = text.partition("<" if "<" in text else ">")
    relation = text[len(figure)]
    for form in (text, [text], {figure: relation + bound}):
        assert list(map(str, as_constraints(form))) == [constraint]


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("p99_ttft_ms <= 5%", "must be one of: us, µs, ms, s, min"),
        ("goodput >= 1s", "must be one of: %"),
        ("request_throughput >= 1s", "must be one of: requests/s, req/s, rps"),
        ("completed >= 1k", "must be one of: requests"),
        ("shed <= 1e999", "must have a finite bound"),
        ("goodput", "must be a figure, <= or >=, and a number"),
        ("<= 5", "must be a figure, <= or >=, and a number"),
        ("ttfb:500", "must be a figure, <= or >=, and a number"),
        ("ttft:500 shed:1", "must be a figure, <= or >=, and a number"),
    ],
)
def test_bounds_that_are_refused(text: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=allowed):
        as_constraints([text])
    with pytest.raises(ConfigError, match=r"constraints\[1\]"):
        as_constraints(["shed <= 1", text])


def test_targets_of_load_generators_become_bounds_of_percentiles() -> None:
    with pytest.warns(UserWarning, match="is a target of single requests") as said:
        found = as_constraints("ttft:500 p95_inter_token_latency:50.5,e2el:9000")
    assert list(map(str, found)) == [
        "p99_ttft_ms <= 500", "p95_tpot_ms <= 50.5", "p99_e2el_ms <= 9000"
    ]  # fmt: skip
    assert len(said) == 2  # p95 is stated


@pytest.mark.parametrize(
    ("text", "expected", "notes"),
    [
        (
            "gold: p99 ttft < 2 s, tpot < 80 ms",
            ["p99_ttft_ms[gold] <= 2000", "p99_tpot_ms[gold] <= 80"],
            1,
        ),
        ("ttft <= 0.5s", ["p99_ttft_ms <= 500"], 1),
        ("all: mean e2e < 9s, p50 itl < 30, goodput >= 99%", [
            "mean_e2el_ms <= 9000", "p50_itl_ms <= 30", "goodput >= 0.99"
        ], 0),
        ("class a b: shed <= 1%", ["shed[class=a b] <= 0.01"], 0),
        ('tenant "a:b": p95_ttft_ms < 1s', ["p95_ttft_ms[tenant=a:b] <= 1000"], 0),
        ("p99_ttft_ms[a:b,c] <= 5", ["p99_ttft_ms[a:b,c] <= 5"], 0),
    ],
)  # fmt: skip
def test_slos_in_words(text: str, expected: list[str], notes: int) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert list(map(str, as_constraints(text))) == expected
    assert ["states no statistic" in str(warning.message) for warning in said] == [True] * notes


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("gold: p99 ttft < 2 s,", "must be a figure"),
        ("gold: p99_ttft_ms[silver] < 2 s", "must name the group once"),
        ("gold: p99 ttft < 2 %", "the unit of p99_ttft_ms must be one of"),
    ],
)
def test_slos_that_are_refused(text: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=allowed):
        as_constraints(text)


def test_latencies_alone_reward_shedding() -> None:
    latency, goodput = as_objectives("p99_ttft_ms"), as_objectives("goodput")
    assert rewards_shedding(latency, [])
    assert rewards_shedding(latency, as_constraints({"p50_e2el_ms": "<=1"}))
    assert not rewards_shedding(latency, as_constraints({"shed": "<=0.1"}))
    assert not rewards_shedding(goodput, as_constraints({"p99_ttft_ms": "<=1"}))
    assert math.isfinite(goodput[0].sign)
