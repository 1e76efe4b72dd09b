"""Figures of a run against plain recomputation from its requests."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import examples, often, trials
from support.engine_trials import random_scheduler
from support.runs import ns, run, steady

from spillway import Result, Simulation, gateway, instance, metrics, router, simulate, workload
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Mapping


Figure = float | int | None


# Figures of a run

FITNESS = {
    "throughput": ("request_throughput", 100),
    "tokens_per_sec": ("output_throughput", 10_000),
    "mean_ttft": ("mean_ttft_ms", None),
    "p50_ttft": ("p50_ttft_ms", None),
    "p99_ttft": ("p99_ttft_ms", None),
    "mean_e2e": ("mean_e2el_ms", None),
    "p50_e2e": ("p50_e2el_ms", None),
    "p99_e2e": ("p99_e2el_ms", None),
}


def random_class(rng: random.Random, name: str) -> workload.SloClass:
    return workload.SloClass(
        name=name,
        priority=rng.randint(-2, 4),
        weight=rng.choice((0, 1, rng.uniform(0, 5))),
        target_ttft_s=rng.choice((None, 0.1, 0.5)),
        target_tpot_s=rng.choice((None, 0.012, 0.03)),
        target_e2e_s=rng.choice((None, 0.5, 3)),
    )


def random_client(rng: random.Random, index: int) -> workload.Client:
    return workload.Client(
        name=f"client {index}",
        tenant=rng.choice(("gold", "silver", "new")),
        slo_class=rng.choice(("a", "b")),
        rate_fraction=rng.uniform(0.2, 2),
        arrivals=workload.Gamma(cv=rng.choice((0.5, 1, 3))),
        input_tokens=workload.Exponential(mean_tokens=200, max_tokens=1700),
        output_tokens=workload.Exponential(
            mean_tokens=rng.choice((2, 20, 200)), min_tokens=0, max_tokens=400
        ),
    )


def random_simulation(rng: random.Random) -> Simulation:
    """An overloaded fleet with everything that the figures depend on."""
    warm_up_s = rng.choice((0, 0, 0.5, 2))
    return Simulation(
        workload=workload.Synthetic(
            requests_per_s=rng.choice((5, 50, 500)),
            num_requests=rng.randint(1, 150),
            clients=tuple(random_client(rng, i) for i in range(rng.randint(1, 4))),
        ),
        # "new" is no tenant here but in the workload; "idle" the other way round.
        tenants=tuple(
            workload.Tenant(name=name, weight=rng.choice((1, rng.uniform(0.1, 9))))
            for name in ("idle", "gold", "silver", "new")
        ),
        slo_classes=(random_class(rng, "a"), random_class(rng, "b")),
        gateway=gateway.Gateway(
            admission=rng.choice(
                (
                    gateway.AlwaysAdmit(),
                    gateway.TokenBucket(capacity_tokens=3000, refill_tokens_per_s=5000),
                )
            ),
            limit=rng.choice((gateway.Unlimited(), gateway.FixedLimit(max_in_flight=12))),
        ),
        router=rng.choice((router.RoundRobin(), router.LeastLoaded(), router.AlwaysBusiest())),
        instances=(
            BLIS_SERVER.replace(
                count=rng.choice((1, 2, 3)),
                max_num_seqs=rng.choice((1, 4, 256)),
                max_model_len=rng.choice((0, 400)),
                num_kv_blocks=135,
                scheduler=random_scheduler(rng),
            ),
            BLIS_SERVER.replace(max_num_seqs=2, scheduler=random_scheduler(rng)),
        ),
        metrics=metrics.Metrics(
            fitness=tuple(
                metrics.FitnessTerm(metric=metric, weight=rng.uniform(-1, 2))
                for metric in rng.sample(sorted(FITNESS), rng.randint(1, 4))
            )
        ),
        horizon_s=rng.choice((None, None, warm_up_s + 1)),
        warm_up_s=warm_up_s,
    )


def seconds(column: np.ndarray) -> list[float | None]:
    return [None if math.isnan(value) else value for value in column.tolist()]


def has_targets(slo_class: workload.SloClass) -> bool:
    targets = (slo_class.target_ttft_s, slo_class.target_tpot_s, slo_class.target_e2e_s)
    return any(target is not None for target in targets)


def is_good(row: Mapping[str, Any], targets: workload.SloClass) -> bool:
    if row["outcome"] != "completed":
        return False
    measured = (
        (targets.target_ttft_s, row["ttft"]),
        (targets.target_tpot_s, row["tpot"]),
        (targets.target_e2e_s, row["e2e"]),
    )
    # An output of one token has no time per further token, so it meets that target.
    return all(target is None or value is None or value <= target for target, value in measured)


def rows_of(result: Result) -> list[dict[str, Any]]:
    columns = {
        name.removesuffix("_s"): seconds(values) if name.endswith("_s") else values.tolist()
        for name, values in result.requests.items()
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def ratio(numerator: float, denominator: float | None) -> float | None:
    return numerator / denominator if denominator else None


def distribution(name: str, values: list[float]) -> dict[str, Figure]:
    ms = [value * 1e3 for value in values]
    ranks = (50, 90, 95, 99)
    names = [
        f"mean_{name}_ms",
        f"std_{name}_ms",
        *(f"{end}_{name}_ms" for end in ("min", "max")),
        *(f"p{rank}_{name}_ms" for rank in ranks),
    ]
    figures: list[Figure] = [None] * len(names)
    if ms:
        figures = [np.mean(ms), np.std(ms), min(ms), max(ms), *np.percentile(ms, ranks)]
    return {f"num_{name}": len(ms), **dict(zip(names, figures, strict=True))}


def expected_figures(
    rows: list[dict[str, Any]], window_s: float, classes: dict[str, workload.SloClass]
) -> dict[str, Figure]:
    completed = [row for row in rows if row["outcome"] == "completed"]
    input_tokens = sum(row["input_tokens"] for row in completed)
    output_tokens = sum(row["output_tokens"] for row in completed)
    duration = None
    if completed:
        last = max(row["arrival"] + row["e2e"] for row in completed)
        duration = last - min(row["arrival"] for row in rows)
    promised = [row for row in rows if has_targets(classes[row["slo_class"]])]
    good = sum(is_good(row, classes[row["slo_class"]]) for row in promised)
    figures: dict[str, Figure] = {
        "offered": len(rows),
        "completed": len(completed),
        "rejected": sum(row["outcome"] == "rejected" for row in rows),
        "unfinished": sum(row["outcome"] in ("queued", "running", "in_transit") for row in rows),
        "total_input_tokens": input_tokens,
        "total_output_tokens": output_tokens,
        "duration": duration,
        "request_throughput": ratio(len(completed), duration),
        "output_throughput": ratio(output_tokens, duration),
        "total_token_throughput": ratio(input_tokens + output_tokens, duration),
        "goodput": ratio(good, len(promised)),
        "request_goodput": ratio(good, max(0, window_s)) if promised else None,
    }
    for name, column in (
        ("ttft", "ttft"),
        ("tpot", "tpot"),
        ("e2el", "e2e"),
        ("queue", "queue"),
        ("scheduling_delay", "scheduling_delay"),
    ):
        figures |= distribution(name, [row[column] for row in rows if row[column] is not None])
    if not figures["unfinished"]:
        # Every gap between tokens is known by the sum over its request.
        gaps = sum(max(row["output_tokens"] - 1, 0) for row in completed)
        decoding = math.fsum(row["e2e"] - row["ttft"] for row in completed)
        figures |= {"num_itl": gaps, "mean_itl_ms": decoding * 1e3 / gaps if gaps else None}
    return figures


def weighted_goodput(
    rows: list[dict[str, Any]], classes: dict[str, workload.SloClass]
) -> float | None:
    """The mean of the classes' goodputs, weighted by weight and number of requests."""
    above = below = 0.0
    for name, slo_class in classes.items():
        of_class = [row for row in rows if row["slo_class"] == name]
        goodput = expected_figures(of_class, 1, classes)["goodput"]
        if goodput is not None:
            above += slo_class.weight * len(of_class) * goodput
            below += slo_class.weight * len(of_class)
    return ratio(above, below)


def jain(rows: list[dict[str, Any]], tenants: tuple[workload.Tenant, ...]) -> float | None:
    """Over the tenants with requests."""
    asked = {row["tenant"] for row in rows}
    service = [
        sum(
            row["input_tokens"] + row["output_tokens"]
            for row in rows
            if row["tenant"] == tenant.name and row["outcome"] == "completed"
        )
        / tenant.weight
        for tenant in tenants
        if tenant.name in asked
    ]
    return ratio(sum(service) ** 2, len(service) * sum(tokens**2 for tokens in service))


def inversions(result: Result, rows: list[dict[str, Any]]) -> int:
    """Pairs in one instance's queue of which the less important is scheduled first.

    Nothing leaves a queue unscheduled here.
    """
    simulation = result.simulation
    priority = {slo_class.name: slo_class.priority for slo_class in simulation.slo_classes}
    latency = [group.latency for group in simulation.instances for _ in range(group.count)]
    stays = []  # priority, instance, entered, scheduled or None
    for row in rows:
        if row["queue"] is None or row["instance"] < 0:
            continue
        model = latency[row["instance"]]
        delay_ns = int((model.alpha0_us + model.alpha_input_us * row["input_tokens"]) * 1e3)
        (arrival_ns, queue_ns) = ns([row["arrival"], row["queue"]])
        entered = arrival_ns + queue_ns + delay_ns
        scheduled = None
        if row["scheduling_delay"] is not None:
            scheduled = arrival_ns + ns([row["scheduling_delay"]])[0]
        elif row["outcome"] != "running":
            continue
        stays.append((priority[row["slo_class"]], row["instance"], entered, scheduled))
    return sum(
        low[0] < high[0]
        and low[1] == high[1]
        and low[3] is not None
        and high[2] <= low[3]
        and (high[3] is None or low[3] < high[3])
        for low, high in permutations(stays, 2)
    )


def blocked_instances(result: Result) -> int:
    waiting = [server["mean_waiting"] for server in result.instances]
    return sum(count > 2 * np.mean(waiting) for count in waiting) if len(waiting) > 1 else 0


def fitness(result: Result, figures: Mapping[str, Figure]) -> float | None:
    """The score; None if no request has the figure of a term."""
    total = 0.0
    for term in result.simulation.metrics.fitness:
        name, half = FITNESS[term.metric]
        value = figures[name]
        if value is None:
            return None
        total += term.weight * (1 / (1 + value) if half is None else value / (value + half))
    return total


def assert_figures(ours: Mapping[str, Figure], expected: Mapping[str, Figure]) -> None:
    for name, value in expected.items():
        if value is None or isinstance(value, int):
            assert ours[name] == value, name
        else:
            assert ours[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


def assert_recomputed(result: Result) -> dict[str, int]:
    """Compares everything; returns the counts of rare events."""
    simulation = result.simulation
    classes = {slo_class.name: slo_class for slo_class in simulation.slo_classes}
    every = rows_of(result)
    rows = [row for row in every if row["arrival"] >= simulation.warm_up_s]
    end_s = simulation.horizon_s or max((row["arrival"] for row in every), default=0)
    window_s = end_s - simulation.warm_up_s
    expected = expected_figures(rows, window_s, classes)
    summary = result.summary()
    assert_figures(summary, expected)
    whole = {
        "weighted_goodput": weighted_goodput(rows, classes),
        "jain_tenant": jain(rows, simulation.tenants),
        "preemptions": sum(row["preemptions"] for row in every),
        "priority_inversions": inversions(result, every),
        "head_of_line_blocking": blocked_instances(result),
    }
    assert_figures(summary, whole)
    score = fitness(result, expected)
    assert_figures(summary, {"fitness": score})

    assert set(result.by_class()) == {row["slo_class"] for row in rows}
    for name, figures in result.by_class().items():
        group = [row for row in rows if row["slo_class"] == name]
        assert_figures(figures, expected_figures(group, window_s, classes))
    assert list(result.by_tenant()) == [tenant.name for tenant in simulation.tenants]
    for name, figures in result.by_tenant().items():
        group = [row for row in rows if row["tenant"] == name]
        assert_figures(figures, expected_figures(group, window_s, classes))
    return {
        "inverted": int(whole["priority_inversions"] > 0),
        "blocked": int(whole["head_of_line_blocking"] > 0),
        "preempted": int(whole["preemptions"] > 0),
        "partly good": int(0 < (expected["goodput"] or 0) < 1),
        "weighted": int(whole["weighted_goodput"] not in (None, expected["goodput"])),
        "unfair": int(0 < (whole["jain_tenant"] or 0) < 0.8),
        "unfinished": int(bool(expected["unfinished"])),
        "rejected": int(bool(expected["rejected"])),
        "scored": int(score is not None),
        "not scored": int(score is None),
        "nothing counted": int(not rows),
    }


@examples(200)
@given(rng=st.randoms(use_true_random=False))
def test_figures_are_those_of_the_requests(rng: random.Random) -> None:
    assert_recomputed(simulate(random_simulation(rng), seed=rng.randint(0, 100)))


def test_seeded_runs_reach_what_they_are_meant_to() -> None:
    reached: Counter[str] = Counter()
    for seed in trials(150):
        reached.update(assert_recomputed(simulate(random_simulation(random.Random(seed)), seed)))
    assert min(reached.values()) >= often(4.5), reached


def test_fitness_of_nothing() -> None:
    none_served = Simulation(
        gateway=gateway.Gateway(admission=gateway.RejectAll()), instances=BLIS_SERVER
    )
    assert simulate(none_served).summary()["fitness"] is None
    # BLIS takes a figure without a population for zero: full score for latencies, none for rates.
    terms = {metric: float(2**i) for i, metric in enumerate(FITNESS)}
    blis = metrics.Metrics(
        accounting="blis",
        fitness=tuple(metrics.FitnessTerm(metric=m, weight=w) for m, w in terms.items()),
    )
    full = sum(terms[metric] for metric, (_, half) in FITNESS.items() if half is None)
    assert simulate(none_served.replace(metrics=blis)).summary()["fitness"] == full


# Inversions of priority

BY_PRIORITY = instance.PriorityFcfs(priority="slo_class")


def one_seat(
    arrival_s: list[float],
    classes: list[str],
    output_tokens: list[int],
    *,
    scheduler: Any = "fcfs",
    tenant: list[str] | None = None,
    **settings: Any,
) -> Result:
    """One request at a time, a hundredth of a second per token."""
    return run(
        arrival_s,
        output_tokens=output_tokens,
        slo_class=classes,
        tenant=tenant or "default",
        instances=BLIS_SERVER.replace(max_num_seqs=1, latency=steady(10), scheduler=scheduler),
        **settings,
    )


def inversions_of(*args: Any, **settings: Any) -> Figure:
    return one_seat(*args, **settings).summary()["priority_inversions"]


# The first is served for half a second; what comes meanwhile waits for it.
MEANWHILE: tuple[list[float], list[str], list[int]] = (
    [0, 0.1, 0.2, 0.3],
    ["standard", "sheddable", "critical", "standard"],
    [50, 10, 10, 10],
)


def test_service_in_order_of_arrival_inverts_priorities() -> None:
    assert inversions_of(*MEANWHILE) == 2, "the sheddable one goes before two others"
    assert inversions_of(*MEANWHILE, scheduler=BY_PRIORITY) == 0
    reverse = instance.ReversePriority(priority="slo_class")
    assert inversions_of(*MEANWHILE, scheduler=reverse) == 3, "and a standard one before critical"


def test_equal_priorities_and_other_times_are_no_inversion() -> None:
    _, classes, tokens = MEANWHILE
    assert inversions_of(MEANWHILE[0], ["standard"] * 4, tokens) == 0
    assert inversions_of([0, 1, 2, 3], classes, tokens) == 0, "none of them waits"


def test_requests_of_one_instant_can_be_inverted() -> None:
    assert inversions_of([0, 0], ["sheddable", "critical"], [10, 10]) == 1


def test_a_request_that_still_waits_at_the_end_has_been_overtaken() -> None:
    assert inversions_of(*MEANWHILE, horizon_s=0.55) == 2


@pytest.mark.parametrize(("timeout_s", "expected"), [(0.2, 1), (0.35, 2)])
def test_a_request_that_gives_up_was_overtaken_before(timeout_s: float, expected: int) -> None:
    """The critical one does before or after the sheddable one is scheduled at 0.5 s."""
    result = one_seat(
        *MEANWHILE,
        tenant=["default", "default", "hasty", "default"],
        tenants=[workload.Tenant(name="hasty", reaction={"timeout_s": timeout_s})],
    )
    assert result.requests["outcome"].tolist().count("cancelled") == 1
    assert result.summary()["priority_inversions"] == expected


def test_every_attempt_counts_by_itself() -> None:
    """The sheddable one is scheduled at 0.5 s, gives up at 0.55 s and returns to an idle seat."""
    again = {"on": ["timeout"], "max_attempts": 2, "backoff_s": 5, "jitter": "none"}
    hasty = workload.Tenant(name="hasty", reaction={"timeout_s": 0.45, "retries": [again]})
    result = one_seat(
        *MEANWHILE, tenant=["default", "hasty", "default", "default"], tenants=[hasty]
    )
    assert result.requests["attempts"].tolist() == [1, 2, 1, 1]
    assert result.summary()["priority_inversions"] == 2


def test_a_preempted_request_counts_where_it_is_first_scheduled() -> None:
    """The sheddable one leaves its seat to the critical one and returns before the standard one."""
    result = one_seat(
        [0, 0.1, 0.2],
        ["sheddable", "critical", "standard"],
        [50, 50, 10],
        scheduler=BY_PRIORITY.replace(preemption_margin=3),
    )
    assert result.requests["preemptions"].tolist() == [1, 0, 0]
    assert result.summary()["priority_inversions"] == 0


def test_blis_counts_late_ends_within_a_class() -> None:
    blis = metrics.Metrics(accounting="blis")
    apart = ([0, 10, 20, 30], ["critical", "sheddable"] * 2, [50, 5, 5, 5])
    assert inversions_of(*apart, scheduler=BY_PRIORITY) == 0, "they never meet"
    assert inversions_of(*apart, scheduler=BY_PRIORITY, metrics=blis) == 1
    assert inversions_of(*MEANWHILE, metrics=blis) == 0, "not scheduled by priority"
