"""The processor-sharing plant against closed forms and a plain model in exact fractions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.effort import examples
from support.runs import SECOND, ns, run_ns, simulated

from spillway import (
    ConfigError,
    Result,
    Simulation,
    gateway,
    instance,
    router,
    signals,
    simulate,
    trace,
    workload,
)
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Sequence


DEFAULT = instance.ProcessorSharing()


def shared_server(service_s: float, **settings_: Any) -> instance.ProcessorSharing:
    """One server whose work is shared equally: with n requests inside each takes n times longer."""
    return instance.ProcessorSharing(
        concurrency=[1, 1_000_000],
        e2e_s=[service_s, 1_000_000 * service_s],
        ttft_s=[service_s / 10, service_s / 10],
        **settings_,
    )


def run(
    arrival_ns: Sequence[int],
    output_tokens: Sequence[int] | int = 10,
    *,
    plant: instance.ProcessorSharing = DEFAULT,
    group: dict[str, Any] | None = None,
    **settings_: Any,
) -> Result:
    """A run of given requests; `settings_` are those of the simulation."""
    instances = instance.InstanceGroup(plant=plant, **(group or {}))
    return run_ns(arrival_ns, output_tokens=output_tokens, instances=instances, **settings_)


# --- closed forms ---------------------------------------------------------------------------------


def test_default_is_the_table_of_the_two_workers() -> None:
    table = zip(DEFAULT.concurrency, DEFAULT.e2e_s, strict=True)
    published = {8: 0.96, 16: 1.84, 32: 3.05, 64: 4.44, 128: 5.87, 160: 5.93, 200: 5.88}
    published |= {256: 5.57, 400: 5.33}
    assert {n: n / e2e_s for n, e2e_s in table if n} == pytest.approx(published, abs=0.006)


@pytest.mark.parametrize("n", [1, 4, 8, 12, 64, 100, 400, 500])
def test_requests_that_enter_together_leave_together(n: int) -> None:
    result = run([SECOND] * n)
    e2e_s = np.interp(n, DEFAULT.concurrency, DEFAULT.e2e_s)
    ttft_s = np.interp(np.arange(1, n + 1), DEFAULT.concurrency, DEFAULT.ttft_s)
    assert ns(result.requests["e2e_s"]) == [math.ceil(e2e_s * SECOND - 1e-3)] * n
    expected = np.ceil(np.minimum(ttft_s, e2e_s) * SECOND - 1e-3).astype(np.int64)
    assert ns(result.requests["ttft_s"]) == expected.tolist()
    assert result.ledger["completed"] == n


def test_second_request_slows_the_first() -> None:
    """Alone 4 s, two 6 s each. The first has done 1/4 when the second enters; both then progress by
    1/6 a second, for 4.5 s; the second has 1/4 left, which alone takes 1 s."""
    plant = instance.ProcessorSharing(concurrency=[1, 2], e2e_s=[4, 6], ttft_s=[1, 2])
    requests = run([0, SECOND], plant=plant).requests
    assert ns(requests["e2e_s"]) == [5_500_000_000, 5_500_000_000]
    assert ns(requests["ttft_s"]) == [SECOND, 2 * SECOND]


def test_first_token_does_not_come_after_the_last() -> None:
    plant = instance.ProcessorSharing(concurrency=[0], e2e_s=[2], ttft_s=[5])
    requests = run([0, SECOND], plant=plant).requests
    assert ns(requests["ttft_s"]) == ns(requests["e2e_s"]) == [2 * SECOND, 2 * SECOND]


def test_work_is_in_proportion_to_output_tokens() -> None:
    plant = instance.ProcessorSharing(
        concurrency=[0], e2e_s=[8], ttft_s=[1], reference_output_tokens=100
    )
    requests = run([0] * 4, [0, 25, 100, 250], plant=plant).requests
    # No output takes as long as one token, with which the prompt ends.
    assert ns(requests["e2e_s"]) == [80_000_000, 2 * SECOND, 8 * SECOND, 20 * SECOND]
    assert ns(requests["ttft_s"]) == [80_000_000, SECOND, SECOND, SECOND]


@pytest.mark.parametrize("n", [8, 64, 128, 256])
def test_saturated_limit_gives_the_throughput_of_the_table(n: int) -> None:
    e2e_s = dict(zip(DEFAULT.concurrency, DEFAULT.e2e_s, strict=True))[n]
    horizon_s = 44 * e2e_s
    simulation = Simulation(
        workload=workload.Synthetic(requests_per_s=20, num_requests=int(20 * horizon_s)),
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=n)),
        instances=instance.InstanceGroup(plant=DEFAULT),
        horizon_s=horizon_s,
    )
    requests = simulate(simulation, 1).requests
    finished_s = requests["arrival_s"] + requests["e2e_s"]
    served = np.count_nonzero((finished_s > 4 * e2e_s) & (finished_s <= 44 * e2e_s))
    assert served / (40 * e2e_s) == pytest.approx(n / e2e_s, rel=0.02)


# --- the plain model ------------------------------------------------------------------------------


@dataclass
class Inside:
    number: int
    left: Fraction
    first_token_ns: int


def figure(table: Sequence[float], concurrency: Sequence[float], n: int) -> Fraction:
    """Nanoseconds at n requests."""
    xs = [Fraction(str(x)) for x in concurrency]
    ys = [Fraction(str(y)) * SECOND for y in table]
    if n <= xs[0]:
        return ys[0]
    for x0, x1, y0, y1 in zip(xs, xs[1:], ys, ys[1:], strict=False):
        if n <= x1:
            return y0 + (n - x0) / (x1 - x0) * (y1 - y0)
    return ys[-1]


def modelled(
    arrival_ns: Sequence[int],
    output_tokens: Sequence[int],
    plant: instance.ProcessorSharing,
    quantum_ns: int,
) -> tuple[list[int], list[int]]:
    """Instants of first tokens and completions: what is left of every request, from event to
    event. Events come at whole quanta; at one instant completions precede entries."""

    def rounded_up(span: Fraction) -> int:
        return math.ceil(span / quantum_ns) * quantum_ns

    reference = plant.reference_output_tokens
    inside: list[Inside] = []
    waiting = list(range(len(arrival_ns)))
    first_token_ns = [-1] * len(arrival_ns)
    finished_ns = [-1] * len(arrival_ns)
    now = 0
    while inside or waiting:
        e2e = figure(plant.e2e_s, plant.concurrency, len(inside))
        candidates = [now + rounded_up(request.left * e2e) for request in inside]
        if waiting:
            candidates.append(arrival_ns[waiting[0]])
        elapsed = min(candidates) - now
        now += elapsed
        for request in inside:
            request.left -= elapsed / e2e
        for request in [request for request in inside if request.left <= 0]:
            finished_ns[request.number] = now
            first_token_ns[request.number] = min(request.first_token_ns, now)
            inside.remove(request)
        while waiting and arrival_ns[waiting[0]] == now:
            number = waiting.pop(0)
            work = Fraction(max(output_tokens[number], 1), reference) if reference else Fraction(1)
            ttft = figure(plant.ttft_s, plant.concurrency, len(inside) + 1)
            inside.append(Inside(number, work, now + rounded_up(ttft)))
    return first_token_ns, finished_ns


FIGURES = st.sampled_from([0.001, 0.25, 0.7, 1.0, 1.3, 2.5, 8.3]) | st.floats(0.01, 9).map(
    lambda x: round(x, 6)
)


@st.composite
def plants(draw: st.DrawFn) -> instance.ProcessorSharing:
    concurrency = draw(
        st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True).map(sorted)
    )
    size = len(concurrency)
    return instance.ProcessorSharing(
        concurrency=concurrency,
        e2e_s=draw(st.lists(FIGURES, min_size=size, max_size=size)),
        ttft_s=draw(st.lists(FIGURES, min_size=size, max_size=size)),
        reference_output_tokens=draw(st.sampled_from([None, 1, 7, 10, 30])),
    )


@examples(200)
@given(
    plant=plants(),
    gaps=st.lists(
        st.sampled_from([0, 1, SECOND // 1000, SECOND // 4]) | st.integers(0, 3 * SECOND // 1000),
        min_size=1,
        max_size=25,
    ),
    output_tokens=st.lists(st.integers(0, 40), min_size=25, max_size=25),
    quantum_ns=st.sampled_from([1, 1000]),
)
@example(plant=DEFAULT, gaps=[0] * 25, output_tokens=[10] * 25, quantum_ns=1)
@example(plant=shared_server(1), gaps=[SECOND // 1000] * 9, output_tokens=[9] * 25, quantum_ns=1000)
def test_plant_equals_the_plain_model(
    plant: instance.ProcessorSharing, gaps: list[int], output_tokens: list[int], quantum_ns: int
) -> None:
    arrival_ns = (np.cumsum(gaps) * quantum_ns).tolist()
    output_tokens = output_tokens[: len(gaps)]
    result = run(arrival_ns, output_tokens, plant=plant, quantum_ns=quantum_ns)
    first_token_ns, finished_ns = modelled(arrival_ns, output_tokens, plant, quantum_ns)
    ttft_ns = np.array(first_token_ns) - arrival_ns
    e2e_ns = np.array(finished_ns) - arrival_ns
    within = 2 if quantum_ns == 1 else quantum_ns
    assert np.abs(ttft_ns - ns(result.requests["ttft_s"])).max() <= within
    assert np.abs(e2e_ns - ns(result.requests["e2e_s"])).max() <= within
    assert result.ledger["completed"] == len(gaps)
    # The tokens after the first come evenly, and their gaps add up.
    summary = result.summary()
    later = np.maximum(np.array(output_tokens) - 1, 0)
    assert summary["num_itl"] == later.sum()
    if later.sum():
        spans_ms = (result.requests["e2e_s"] - result.requests["ttft_s"])[later > 0] * 1e3
        assert summary["mean_itl_ms"] * later.sum() == pytest.approx(spans_ms.sum(), abs=1e-5)


def test_gaps_between_tokens_are_even() -> None:
    plant = instance.ProcessorSharing(concurrency=[0], e2e_s=[2], ttft_s=[1])
    summary = run([0], [4], plant=plant).summary()  # 3 gaps of 333,333,333 or 333,333,334 ns
    assert summary["num_itl"] == 3
    assert summary["mean_itl_ms"] == pytest.approx(1000 / 3, abs=1e-9)
    assert summary["p50_itl_ms"] == pytest.approx(333.333333, abs=1e-9)
    assert summary["p99_itl_ms"] == pytest.approx(333.333334, abs=1e-7)


# --- theory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("utilization", [0.5, 0.7])
@pytest.mark.parametrize("work", ["fixed", "exponential"])
def test_mean_sojourn_of_a_shared_server(work: str, utilization: float) -> None:
    """M/G/1 processor sharing: a request with work x stays x/(1-rho) on average, whatever the
    distribution of the work (Kleinrock, Queueing Systems II, section 4.4)."""
    service_s, tokens = 0.1, 1000
    client = workload.Client(
        output_tokens=workload.Fixed(tokens=tokens)
        if work == "fixed"
        else workload.Exponential(mean_tokens=tokens, max_tokens=10**6)
    )
    simulation = Simulation(
        workload=workload.Synthetic(
            requests_per_s=utilization / service_s, num_requests=200_000, clients=[client]
        ),
        instances=instance.InstanceGroup(
            plant=shared_server(service_s, reference_output_tokens=tokens)
        ),
    )
    requests = simulate(simulation, 5).requests
    work_s = requests["output_tokens"] / tokens * service_s
    rho = work_s.sum() / requests["arrival_s"][-1]
    assert rho == pytest.approx(utilization, rel=0.02)
    assert requests["e2e_s"].mean() == pytest.approx(work_s.mean() / (1 - rho), rel=0.03)
    slowdown = requests["e2e_s"] / work_s
    for low, high in ((0, 25), (25, 50), (50, 75), (75, 100)):
        of_size = (work_s >= np.percentile(work_s, low)) & (work_s <= np.percentile(work_s, high))
        assert slowdown[of_size].mean() == pytest.approx(1 / (1 - rho), rel=0.04)


# --- the contract of an instance ------------------------------------------------------------------


def busy(**settings_: Any) -> Simulation:
    """Two plants that several dozen requests share."""
    plant = instance.ProcessorSharing(
        concurrency=[0, 10, 50], e2e_s=[0.5, 1, 4], ttft_s=[0.05, 0.1, 1],
        reference_output_tokens=40,
    )  # fmt: skip
    lengths: dict[str, Any] = {
        "input_tokens": workload.Lognormal(mu=5, sigma=1, max_tokens=3000),
        "output_tokens": workload.Exponential(mean_tokens=40, max_tokens=300),
    }
    return Simulation(
        **{
            "workload": workload.Synthetic(
                requests_per_s=30, num_requests=1500, clients=[workload.Client(**lengths)]
            ),
            "instances": instance.InstanceGroup(count=2, plant=plant),
            **settings_,
        }
    )


@pytest.mark.parametrize("quantum_ns", [1, 1_000_000])
def test_streaming_gives_the_same_figures(quantum_ns: int) -> None:
    exact = simulate(busy(quantum_ns=quantum_ns, warm_up_s=5), 2)
    streamed = simulate(busy(quantum_ns=quantum_ns, warm_up_s=5, metrics={"streaming": True}), 2)
    assert exact.ledger == streamed.ledger
    ours, theirs = streamed.summary(), exact.summary()
    for name, value in theirs.items():
        if value is None or name in ("priority_inversions", "fitness"):
            continue
        within: dict[str, Any] = (
            {"rel": 5e-3, "abs": 1e-6} if name.startswith("p") else {"rel": 1e-9, "abs": 1e-6}
        )
        assert ours[name] == pytest.approx(value, **within), name


@pytest.mark.parametrize("horizon_s", [0.3, 1.0, 7.7, 30.0])
def test_horizon_cuts_a_run(horizon_s: float) -> None:
    whole = simulate(busy(), 3).requests
    cut = simulate(busy(horizon_s=horizon_s), 3)
    entered = cut.requests["arrival_s"] <= horizon_s
    count = np.count_nonzero(entered)
    finished = (whole["arrival_s"] + whole["e2e_s"])[:count] <= horizon_s
    assert np.array_equal(cut.requests["outcome"][:count] == "completed", finished)
    assert cut.ledger["completed"] + cut.ledger["running"] == count
    assert cut.ledger["running"] == count - finished.sum() > 0
    emitted = cut.requests["output_tokens"][:count]
    first = (whole["arrival_s"] + whole["ttft_s"])[:count] <= horizon_s
    assert np.array_equal(emitted[finished], whole["output_tokens"][:count][finished])
    assert (emitted[~first] == 0).all()
    under_way = first & ~finished
    assert (emitted[under_way] <= whole["output_tokens"][:count][under_way]).all()
    assert (emitted[under_way & (whole["output_tokens"][:count] > 0)] >= 1).all()


def test_tokens_of_a_request_that_the_horizon_cuts() -> None:
    """After 5.5 of 10 s, with the first of 10 tokens at 1 s, half of the other nine have come."""
    plant = instance.ProcessorSharing(concurrency=[0], e2e_s=[10], ttft_s=[1])
    assert run([0], [10], plant=plant, horizon_s=5.5).requests["output_tokens"].tolist() == [5]
    assert run([0], [10], plant=plant, horizon_s=0.5).requests["output_tokens"].tolist() == [0]


@pytest.mark.parametrize(
    "transport", [signals.Live(), signals.Scraped(period_s=0.05, phase_s=0.0004)]
)
def test_signals_show_the_number_inside(transport: Any) -> None:
    simulation = busy(
        signals=transport,
        router=router.Weighted(scorers=[router.RunningRequests(), router.KvUtilization()]),
        metrics={"traced_candidates": 2},
    )
    result = simulate(simulation, 4)
    log, requests = result.decisions, result.requests
    entered_s = requests["arrival_s"]
    finished_s = entered_s + requests["e2e_s"]
    assert (requests["scheduling_delay_s"] == 0).all()
    most = 0
    for number, (at, ages, instances, waiting, running) in enumerate(
        zip(
            log["time_s"],
            log["candidate_age_s"],
            log["candidate_instance"],
            log["candidate_waiting"],
            log["candidate_running"],
            strict=True,
        )
    ):
        assert not waiting.any()
        for server, age, reported in zip(instances, ages, running, strict=True):
            if np.isnan(age):
                assert reported == 0
                continue
            here = requests["instance"] == server
            here[number:] = False
            inside = (entered_s[here] <= at - age).sum() - (finished_s[here] <= at - age).sum()
            assert reported == inside
            most = max(most, reported)
    assert most > 10


def test_reported_latencies_are_those_of_the_clock() -> None:
    clock = simulate(busy(), 6)
    reported = simulate(busy(metrics={"accounting": "blis"}), 6)
    for name in ("ttft_s", "e2e_s", "tpot_s", "scheduling_delay_s"):
        assert ns(reported.requests[name]) == ns(clock.requests[name]), name


def test_settings_of_the_step_loop_are_not_used() -> None:
    group = {
        "max_num_seqs": 1,
        "max_num_batched_tokens": 1,
        "max_model_len": 2,
        "num_kv_blocks": 1,
        "scheduler": "reverse_priority",
        "completion": "step_start",
        "preemption": "restart",
        "output_overhead": "reported",
        "latency": instance.Linear(alpha0_us=1e6, beta0_us=1e6),
    }
    arrival_ns = list(range(0, 40 * SECOND, SECOND))
    plain, changed = run(arrival_ns), run(arrival_ns, group=group)
    assert ns(plain.requests["e2e_s"]) == ns(changed.requests["e2e_s"])
    assert ns(plain.requests["ttft_s"]) == ns(changed.requests["ttft_s"])
    assert plain.ledger == changed.ledger
    assert plain.summary()["priority_inversions"] == changed.summary()["priority_inversions"] == 0


def test_ranks_are_plants_of_their_own() -> None:
    plant = instance.ProcessorSharing(concurrency=[1, 2], e2e_s=[4, 6], ttft_s=[1, 2])
    requests = run([0] * 3, plant=plant, group={"data_parallel_size": 2}).requests
    assert requests["rank"].tolist() == [0, 1, 0]
    assert ns(requests["e2e_s"]) == [6 * SECOND, 4 * SECOND, 6 * SECOND]


def test_plants_of_both_kinds_in_one_fleet() -> None:
    mixed = busy(instances=[BLIS_SERVER, instance.InstanceGroup(plant="processor_sharing")])
    result = simulate(mixed, 7)
    assert result.ledger["completed"] == 1500
    slow = result.requests["instance"] == 1
    assert result.requests["e2e_s"][slow].min() >= 0.2
    assert simulate(mixed, 7).digest == result.digest


def test_completion_precedes_a_scrape_of_the_same_instant() -> None:
    result = run(
        [0, 1_200_000_000],
        plant=instance.ProcessorSharing(concurrency=[0], e2e_s=[1], ttft_s=[0.5]),
        signals=signals.Scraped(period_s=0.5),
        router=router.Weighted(scorers=[router.RunningRequests()]),
        metrics={"traced_candidates": 1},
    )
    assert ns(result.decisions["candidate_age_s"][1]) == [SECOND // 5]
    assert result.decisions["candidate_running"][1].tolist() == [0]


def test_router_sees_completions() -> None:
    """Completed requests do not count against an instance."""
    result = run(
        [0, 2 * SECOND, 4 * SECOND],
        plant=instance.ProcessorSharing(concurrency=[0], e2e_s=[1], ttft_s=[0.5]),
        group={"count": 2},
        router=router.Weighted(scorers=[router.ActiveRequests()]),
    )
    assert result.requests["instance"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(("ttft_s", "is_told"), [(0.5, True), (5, False)])
def test_router_sees_first_tokens(ttft_s: float, is_told: bool) -> None:
    """The first prompt is the longer one; it weighs less than the second if it is computed."""
    plant = instance.ProcessorSharing(concurrency=[0], e2e_s=[10], ttft_s=[ttft_s])
    requests = trace(
        arrival_s=[0, 0.8, 0.9], input_tokens=[2000, 1500, 16], output_tokens=[10, 10, 10]
    )
    result = simulated(
        workload=requests,
        instances=instance.InstanceGroup(count=2, plant=plant),
        router=router.KvCost(),
    )
    first, second, third = result.requests["instance"].tolist()
    assert first != second
    assert third == (first if is_told else second)


def test_gaps_of_the_warm_up_do_not_count() -> None:
    assert run([0, SECOND], [4, 7], warm_up_s=0.5).summary()["num_itl"] == 6


@pytest.mark.parametrize(
    ("settings_", "path", "clue"),
    [
        ({"concurrency": []}, "concurrency", "must not be empty"),
        (
            {"concurrency": [0, 2, 2], "e2e_s": [1] * 3, "ttft_s": [1] * 3},
            "concurrency[2]",
            "must be > the value before it (2)",
        ),
        (
            {"e2e_s": [1, 2]},
            "e2e_s",
            "must have one figure for each of the 10 values of concurrency",
        ),
        ({"ttft_s": []}, "ttft_s", "must have one figure for each of the 10 values of concurrency"),
        ({"e2e_s": [0]}, "e2e_s[0]", "must be >= 1e-09"),
        ({"concurrency": [-1]}, "concurrency[0]", "must be >= 0"),
    ],
)
def test_senseless_tables_are_refused(settings_: dict[str, Any], path: str, clue: str) -> None:
    with pytest.raises(ConfigError) as caught:
        instance.ProcessorSharing(**settings_)
    violations = {path: allowed for path, _, allowed in caught.value.violations}
    assert clue in violations[path]
