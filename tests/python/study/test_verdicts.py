"""Verdicts on bounds: how often they are wrong or open, what they spend, and what they see."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import binom
from support.study_problems import SMALL_SPACE, overloaded

from spillway import ConfigError, Simulation, Study, UsageError, simulate, workload
from spillway.data.intervals import mean_bounds
from spillway.study import judge
from spillway.study.measurements import Measured
from spillway.study.objective import as_constraints
from spillway.study.verdicts import errors, portions, spend, together, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BOUND = "p99_ttft_ms <= 500"
DRAWS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "normal": lambda random, n: random.normal(size=n),
    # Of skewness 0.9, more than that of the latencies of most runs.
    "skewed": lambda random, n: (np.exp(random.normal(size=n) * 0.29) - 1.043) / 0.309,
}


class Drawn:
    """Stands for an evaluator: values with a mean, in standard errors of the first seeds."""

    def __init__(self, law: str, at: float, random: np.random.Generator, first: int) -> None:
        self._draw, self._at, self._random = DRAWS[law], at, random
        self._sd = 20.0
        self._se = self._sd / math.sqrt(first)

    def measure_all(self, _: Sequence[Any], seeds: Sequence[int]) -> list[Measured]:
        values = 500 + self._at * self._se + self._sd * self._draw(self._random, len(seeds))
        return [Measured((tuple(values.tolist()),))]


def said(law: str, at: float, seed: int) -> str:
    stages = portions(range(4), None)
    drawn = Drawn(law, at, np.random.default_rng(seed), 4)
    _, verdicts, used = spend(drawn, Simulation(), as_constraints(BOUND), stages, 0.05)  # type: ignore[arg-type]
    assert len(used) == 32 or "undecided" not in verdicts
    return together(verdicts)


@pytest.mark.parametrize("law", DRAWS)
def test_verdicts_are_seldom_wrong_and_seldom_open(law: str) -> None:
    n = 250
    for at in (-2, -1, 1, 2):
        verdicts = [said(law, at, seed) for seed in range(n)]
        wrong = verdicts.count("holds" if at > 0 else "breaks")
        # Not significantly more than 5%, at level 0.01.
        assert wrong <= binom.ppf(0.99, n, 0.05), (at, wrong)
        if abs(at) == 2:
            assert verdicts.count("undecided") <= 0.2 * n


@pytest.mark.long
@pytest.mark.parametrize("law", DRAWS)
def test_verdicts_at_the_bound_itself_keep_their_error(law: str) -> None:
    n = 4000
    verdicts = [said(law, 0, seed) for seed in range(n)]
    for wrong in ("holds", "breaks"):
        assert verdicts.count(wrong) <= binom.ppf(0.99, n, 0.05), wrong


@pytest.mark.long
def test_verdicts_on_runs_are_seldom_wrong() -> None:
    """At one and two standard errors of four seeds from the truth, the mean of 2,000 runs."""
    simulation = overloaded()
    runs = simulate(simulation, seeds=range(10_000, 12_000))
    values = [run.by_class()["critical"]["p99_ttft_ms"] for run in runs]
    truth, se = float(np.mean(values)), float(np.std(values, ddof=1)) / 2
    n = 125
    for at in (-2, -1, 1, 2):
        bound = f"p99_ttft_ms[critical] <= {truth - at * se}"
        seeds = (range(100 * i, 100 * i + 4) for i in range(n))
        verdicts = [judge(simulation, bound, seeds=few).verdict for few in seeds]
        wrong = verdicts.count("holds" if at > 0 else "breaks")
        assert wrong <= binom.ppf(0.99, n, 0.05), (at, wrong)
        if abs(at) == 2:
            assert verdicts.count("undecided") <= 0.2 * n


def test_bounds_of_a_mean_are_those_of_student_without_skewness() -> None:
    low, high = mean_bounds([1.0, 2.0, 3.0], 0.025)
    assert (low, high) == pytest.approx((2 - 2.4841377, 2 + 2.4841377))
    skewed = mean_bounds([1.0, 1.0, 4.0], 0.025)
    assert skewed[1] - 2 > 2 - skewed[0]  # further to the side of the tail


def test_looks_share_the_error() -> None:
    stages = portions([3, 5], 11)
    assert stages == [(3, 5), (6, 7), (8, 9, 10, 11), (12, 13, 14)]
    shares = errors(stages, 0.05)
    assert sum(shares) == pytest.approx(0.05)
    assert shares == sorted(shares)
    with pytest.raises(ValueError, match="max_seeds = 1: must be >= 2"):
        portions([3, 5], 1)


@pytest.mark.parametrize(
    ("values", "copies", "expected"),
    [
        ((400.0,), False, "undecided"),
        ((400.0, 400.0), True, "holds"),
        ((600.0, 600.0), True, "breaks"),
        ((400.0,) * 4, False, "undecided"),  # 1 in 16 is more than 5%
        ((400.0,) * 5, False, "holds"),
        ((500.0,) * 5, False, "holds"),
        ((600.0,) * 5, False, "breaks"),
        ((100.0, 900.0), False, "undecided"),
        ((100.0, 101.0, 102.0, 103.0), False, "holds"),
    ],
)
def test_single_verdicts(values: tuple[float, ...], copies: bool, expected: str) -> None:
    (constraint,) = as_constraints(BOUND)
    assert (
        verdict(constraint, values, Measured((values,), is_replicated=not copies), 0.05) == expected
    )


def test_resamples_of_a_trace_are_no_further_evidence() -> None:
    (constraint,) = as_constraints(BOUND)
    values = tuple(np.random.default_rng(0).normal(490, 20, size=64).tolist())
    assert verdict(constraint, values, Measured((values,)), 0.05) == "holds"
    resampled = Measured((values,), num_blocks=50.0)
    assert verdict(constraint, values, resampled, 0.05) == "undecided"


def test_clear_bounds_cost_few_seeds_and_tight_ones_the_budget() -> None:
    simulation = overloaded()
    mean = simulate(simulation, seeds=32).by_class()["critical"]["p99_ttft_ms"].mean
    clear = judge(simulation, f"p99_ttft_ms[critical] <= {1.5 * mean}")
    assert (clear.verdict, len(clear.seeds)) in (("holds", 4), ("holds", 8))
    assert judge(simulation, f"p99_ttft_ms[critical] <= {mean / 2}").verdict == "breaks"
    tight = judge(simulation, f"p99_ttft_ms[critical] <= {mean}", max_seeds=16)
    assert (tight.verdict, tight.seeds) == ("undecided", tuple(range(16)))
    assert "undecided (95% confidence), after 16 seeds" in repr(tight)
    assert tight.to_dict()["bounds"][0]["verdict"] == "undecided"


def test_without_figures_bounds_break_and_the_reason_is_kept() -> None:
    silent = overloaded(horizon_s=0.1).with_({"gateway.limit[0].max_in_flight": 1})
    found = judge(silent, "p99_e2el_ms <= 1")
    assert (found.verdict, found.bounds[0].value) == ("breaks", None)
    assert "no request of its population" in (found.failure or "")
    assert found.failure in repr(found)


def test_nothing_random_is_decided_at_once_and_said() -> None:
    client = workload.Client(
        name="a",
        arrivals=workload.Constant(),
        input_tokens={"kind": "fixed", "tokens": 10},
        output_tokens={"kind": "fixed", "tokens": 5},
    )
    fixed = Simulation(workload=workload.Synthetic(num_requests=5, clients=client))
    with pytest.warns(UserWarning, match="seed"):
        found = judge(fixed, "completed >= 5", seeds=2)
    assert (found.verdict, found.seeds) == ("holds", (0, 1))


@pytest.mark.parametrize(
    ("constraints", "options", "error", "problem"),
    [
        ([], {}, UsageError, "at least one"),
        ("goodput", {}, ConfigError, "must be a figure"),
        ("godput >= 1", {}, ConfigError, "did you mean"),
        ("goodput >= 1", {"confidence": 0.5}, ValueError, "confidence = 0.5"),
        ("goodput >= 1", {"seeds": 4, "max_seeds": 3}, ValueError, "max_seeds = 3"),
    ],
)
def test_what_cannot_be_judged(
    constraints: Any, options: dict[str, Any], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        judge(overloaded(), constraints, **options)


def test_a_confirmation_spends_seeds_until_its_constraints_are_decided() -> None:
    study = Study(
        overloaded(), SMALL_SPACE, "goodput", "shed <= 90%", seeds=2, sampler="random"
    ).optimize(6, check=False)
    clear = study.confirm(seeds=4)
    assert {"holds"} == {known for trial in clear.candidates for known in trial.verdicts}
    at = np.mean([np.mean(trial.constraints[0].mean) for trial in clear.candidates[:1]])
    tight = Study(
        overloaded(), SMALL_SPACE, "goodput", f"shed <= {at}", seeds=2, sampler="random"
    ).optimize(6, check=False)
    found = tight.confirm(top=6, seeds=4, max_seeds=8, within=0)
    assert len(found.seeds) == 8
    for candidate in found.candidates:
        assert candidate.is_feasible == (set(candidate.verdicts) == {"holds"})
        assert [broken.is_certain for broken in candidate.broken] == [
            known == "breaks" for known in candidate.verdicts if known != "holds"
        ]
