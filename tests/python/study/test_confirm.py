"""Racing, dead parameters, confirmation and cliffs."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from scipy import stats
from support.study_problems import SMALL_SPACE, overloaded

from spillway import Simulation, Study, UsageError, gateway, run_many, simulate
from spillway.analysis.stationarity import VERDICTS
from spillway.study import Constraint, Kinds, Objective, Racing, evaluation
from spillway.study.confirmation import neighbors
from spillway.study.liveness import dead_parameters
from spillway.study.objective import Custom
from spillway.study.racing import referred

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from spillway import Result


small = partial(Study, overloaded(), SMALL_SPACE, objective="goodput", seeds=8)


# --- racing ---------------------------------------------------------------------------------------


def test_stages_double_what_has_been_run() -> None:
    assert Racing(3).stages(range(16)) == [
        (0, 1, 2), (3, 4, 5), (6, 7, 8, 9, 10, 11), (12, 13, 14, 15),
    ]  # fmt: skip
    assert Racing(4).stages(range(3)) == [(0, 1, 2)]


@pytest.mark.parametrize("n", [2, 3, 8])
def test_test_is_a_one_sided_t_test(n: int) -> None:
    draw = random.Random(n)
    for _ in range(50):
        values = [draw.gauss(0.6, 1) for _ in range(n)]
        p = stats.ttest_1samp(values, 0, alternative="greater").pvalue
        assert Racing(p=0.1).is_more(values) == (p <= 0.1)
    assert Racing().is_more([1.0, 1.0])
    assert not Racing().is_more([0.0, 0.0])


def test_losers_are_spared_seeds_and_survivors_get_all() -> None:
    raced, full = small(seed=2), small(seed=2)
    raced.optimize(24, racing=Racing(3), check=False)
    full.optimize(24, check=False)
    n = [len(trial.seeds) for trial in raced.records]
    assert set(n) <= {3, 6, 8}
    assert n[:4] == [8] * 4  # there was nothing to lose against yet
    assert 3 in n[4:]
    assert 8 in n[4:]
    for trial in raced.records:
        results = simulate(raced.simulation_of(trial), seeds=trial.seeds)
        assert trial.objectives[0] == tuple(r.summary()["goodput"] for r in results)
    assert len(raced.best_trial.seeds) == 8
    assert sum(n) < 0.7 * 8 * 24


def test_spared_trial_is_surely_worse_than_the_best_of_its_time() -> None:
    study = small(seed=2).optimize(24, racing=Racing(3, p=0.05), check=False)
    spared = [trial for trial in study.records if len(trial.seeds) < 8]
    assert spared
    for trial in spared:
        earlier = [e for e in study.records[: trial.number // 4 * 4] if len(e.seeds) == 8]
        leader = max(earlier, key=lambda e: (e.values[0], -e.number))
        mine, best = trial.objectives[0], leader.objectives[0][: len(trial.seeds)]
        gaps = [b - m for b, m in zip(best, mine, strict=True)]
        if len(set(gaps)) > 1:
            assert stats.ttest_1samp(gaps, 0, alternative="greater").pvalue <= 0.05
        # The value reported to the search does not profit from seeds that happen to be easy.
        expected = leader.values[0] - sum(gaps) / len(gaps)
        assert trial.values[0] == pytest.approx(expected, abs=1e-12)
        assert trial.values[0] < leader.values[0]


def test_referred_mean_uses_the_pairs() -> None:
    value, error = referred([1.0, 3.0], [2.0, 5.0, 11.0])
    assert value == 6 - 1.5
    assert error == pytest.approx(math.hypot(0.5, stats.sem([2, 5, 11])))


def test_racing_counts_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, tuple[int, ...]]] = []

    def noted(simulations: Any, seeds: Any, **options: Any) -> Any:
        calls.append((len(simulations), tuple(seeds)))
        return run_many(simulations, seeds, **options)

    study = small().optimize(4, check=False)
    monkeypatch.setattr(evaluation, "finished_runs", noted)
    study.optimize(4, racing=True)
    first, *others = calls
    assert first == (4, (0, 1, 2))
    assert [seeds for _, seeds in others] == [(3, 4, 5), (6, 7)][: len(others)]
    assert sum(n * len(seeds) for n, seeds in calls) == sum(
        len(trial.seeds) for trial in study.records[4:]
    )


def test_racing_takes_one_objective() -> None:
    with pytest.raises(UsageError, match="one objective"):
        small(objective=["goodput", "shed"], seeds=4).optimize(4, racing=True)
    with pytest.raises(ValueError, match="first_seeds = 1"):
        Racing(1)


# --- dead parameters ------------------------------------------------------------------------------


def test_parameters_that_change_nothing_are_named() -> None:
    space = {
        **SMALL_SPACE,
        "gateway.sensor.window_s": "auto",  # there is no controller to look
        "gateway.guard.floor": "auto",  # nor to be kept from anything
    }
    study = Study(overloaded(), space, "goodput", seeds=2)
    with pytest.warns(RuntimeWarning, match="window_s, gateway.guard.floor changed no run"):
        study.optimize(2)
    assert study.dead == ("gateway.sensor.window_s", "gateway.guard.floor")


def test_what_lives_only_elsewhere_in_the_space_is_found_alive() -> None:
    # The window matters to a controller only, and the present configuration has none.
    space = {"gateway.controller": ["static", "aimd"], "gateway.sensor.window_s": (1, 60)}
    study = Study(overloaded(), space, "goodput", seeds=1)
    assert dead_parameters(study.bound, (0,)) == ()
    alone = Study(overloaded(), {"gateway.sensor.window_s": (1, 60)}, "goodput", seeds=1)
    assert dead_parameters(alone.bound, (0,)) == ("gateway.sensor.window_s",)


def test_parameters_of_another_kind_are_checked_with_that_kind() -> None:
    kinds = Kinds(
        {"fixed": {"max_in_flight": (1, 64)}, "per_tenant": {"max_in_flight": (1000, 2000)}}
    )
    study = Study(overloaded(), {"gateway.limit": kinds}, "goodput", seeds=1)
    assert dead_parameters(study.bound, (0,)) == ("gateway.limit[per_tenant].max_in_flight",)


# --- confirmation ---------------------------------------------------------------------------------


def test_confirmation_is_paired_and_on_fresh_seeds() -> None:
    study = small(seeds=3).optimize(24, check=False)
    confirmation = study.confirm(2, 6)
    assert confirmation.seeds == tuple(range(3, 9))
    assert len(confirmation.candidates) == 2
    base = simulate(overloaded(), seeds=confirmation.seeds)
    for candidate, trial in zip(confirmation.candidates, study.feasible, strict=False):
        assert candidate.number == trial.number
        mine = simulate(study.simulation_of(trial), seeds=confirmation.seeds)
        expected = mine.minus(base, confidence=1 - 0.05 / 2)["goodput"]
        assert candidate.gain.mean == pytest.approx(expected.mean)
        assert candidate.gain.low == pytest.approx(expected.low)
    winner = next(
        candidate
        for candidate in confirmation.candidates
        if candidate.number == confirmation.winner
    )
    assert winner.gain
    assert winner.gain.low
    assert winner.gain.low > 0
    assert confirmation.best == study.simulation_of(confirmation.winner)
    assert f"trial {confirmation.winner} wins" in repr(confirmation)


def test_no_winner_without_a_real_difference() -> None:
    # Nothing but the name of the objective to choose by: all configurations do the same.
    space = {"gateway.sensor.window_s": (1, 60)}
    study = Study(overloaded(), space, "goodput", seeds=2, sampler="random")
    study.optimize(4, check=False)
    confirmation = study.confirm(3, 4)
    assert confirmation.winner is None
    assert "no candidate's gain over the baseline excludes zero" in confirmation.reason
    assert confirmation.best == overloaded()
    assert all(candidate.gain and candidate.gain.mean == 0 for candidate in confirmation.candidates)


def test_luck_of_the_search_does_not_win() -> None:
    # An objective of pure noise: the best of many trials is the luckiest.
    study = Study(
        overloaded(),
        {"gateway.sensor.window_s": (1, 60)},
        Objective(noise, "maximize"),
        seeds=2,
        sampler="random",
    ).optimize(40, check=False)
    assert study.best_trial.values[0] > study.baseline.values[0] + 0.5
    assert study.confirm(3, 8).winner is None


def noise(result: Result) -> float:
    text = f"{result.seed} {result.simulation.gateway.sensor.window_s}"
    return random.Random(text).gauss(0, 1)


def test_winner_keeps_the_constraints_on_fresh_seeds() -> None:
    study = small(constraints={"shed": "<=0.15"}, seeds=2).optimize(24, check=False)
    confirmation = study.confirm(5, 8)
    for candidate in confirmation.candidates:
        assert candidate.is_feasible == (candidate.constraints[0].mean <= 0.15)
    winner = [
        candidate
        for candidate in confirmation.candidates
        if candidate.number == confirmation.winner
    ]
    assert all(candidate.is_feasible for candidate in winner)


def strict(result: Result) -> float:
    """Holds in the search, whose seeds are small, and afterwards only for the given limits."""
    permits = result.simulation.gateway.limit[0].max_in_flight
    return 0.0 if result.seed < 2 or permits == 32 else 2.0


def never(result: Result) -> float:
    return 0.0 if result.seed < 2 else 2.0


@pytest.mark.parametrize("figure", [strict, never])
def test_best_keeps_the_constraints_if_nothing_wins(figure: Callable[[Result], float]) -> None:
    constraint = Constraint(Custom(figure, "figure"), "<=", 1)
    study = small(constraints=[constraint], seeds=2, sampler="random").optimize(4, check=False)
    confirmation = study.confirm(2, 3)
    assert confirmation.winner is None
    assert confirmation.reason.startswith(
        "no winner: on fresh seeds no candidate satisfies the constr"
    )
    if figure is strict:
        assert confirmation.best == overloaded()
        assert confirmation.reason.endswith("; the baseline does")
        return
    assert confirmation.choice is None
    assert confirmation.to_dict()["fingerprint"] is None
    assert "figure = 2 [2, 2] breaks <= 1" in repr(confirmation)
    with pytest.raises(UsageError, match=r"^no feasible configuration: no winner: .* = 2 \[2, 2\]"):
        _ = confirmation.best


def test_infeasible_baseline_need_not_be_beaten() -> None:
    shed, bounds = Objective("shed", "minimize"), {"p99_ttft_ms": "<=2500"}
    study = small(objective=shed, constraints=bounds, seeds=2).optimize(24, check=False)
    assert study.baseline.state == "infeasible"
    confirmation = study.confirm(3, 6)
    assert confirmation.winner is not None
    (broken,) = confirmation.baseline.broken
    assert broken.value == confirmation.baseline.constraints[0]
    assert f"the baseline is out ({broken})" in confirmation.reason
    assert str(broken).startswith(f"p99_ttft_ms = {broken.value.mean:.4g} [")
    assert str(broken).endswith("breaks <= 2500")


def test_seeds_of_the_search_confirm_nothing() -> None:
    study = small(seeds=3).optimize(4, check=False)
    with pytest.raises(ValueError, match=r"\[2\] were part of the search"):
        study.confirm(1, [2, 7, 8])


def test_confirmation_can_be_written(tmp_path: Path) -> None:
    confirmation = small(seeds=3).optimize(8, check=False).confirm(2, 3)
    confirmation.write(tmp_path / "confirmation.json")
    read = json.loads((tmp_path / "confirmation.json").read_text())
    assert read["seeds"] == [3, 4, 5]
    assert read["winner"] == confirmation.winner
    assert read["candidates"][0]["gain"]["mean"] == confirmation.candidates[0].gain.mean


def test_a_winner_that_does_not_keep_up_is_named() -> None:
    rate = {"workload.num_requests": 1200}
    study = Study(overloaded().with_(rate), SMALL_SPACE, "goodput", seeds=2, sampler="random")
    study.optimize(8, check=False)
    assert {trial.saturation for trial in study.records} <= set(VERDICTS)
    assert study.baseline.saturation == "unsaturated"
    assert study.trials["saturation"].tolist() == [trial.saturation for trial in study.records]
    confirmation = study.confirm(1, 4)
    (candidate,) = confirmation.candidates
    assert candidate.saturation == "unsaturated"  # the limit sheds what it cannot serve
    assert "unsaturated" not in repr(confirmation)
    for verdict in ("transient", "undecided", "saturated"):
        other = dataclasses.replace(candidate, saturation=verdict)
        changed = dataclasses.replace(confirmation, candidates=(other,), winner=candidate.number)
        assert f"note: trial {candidate.number} is {verdict}: " in repr(changed)
    assert confirmation.to_dict()["candidates"][0]["saturation"] == "unsaturated"


def test_saturated_trials_are_named_in_the_table() -> None:
    base = Simulation().with_({"workload.num_requests": 1500, "workload.requests_per_s": 500.0})
    space = {"instances[0].max_num_seqs": (64, 2048)}
    study = Study(base, space, "request_throughput", seeds=2, sampler="random")
    study.optimize(3, check=False)
    assert {trial.saturation for trial in study.records} == {"saturated"}
    assert "3 of 3 trials are saturated" in repr(study)
    assert repr(study).splitlines()[2].split()[-1] == "saturation"


def test_changes_of_the_winner_are_put_back_one_by_one() -> None:
    study = small(seeds=3).optimize(24, check=False)
    confirmation = study.confirm(1, 6)
    best = study.simulation_of(confirmation.winner)
    limit, timeout = SMALL_SPACE
    assert {change.parameter: change.value for change in confirmation.reverted} == {
        limit: 32,
        timeout: 5,
    }
    there = simulate(best, seeds=confirmation.seeds)
    for change in confirmation.reverted:
        back = simulate(best.with_({change.parameter: change.value}), seeds=confirmation.seeds)
        expected = back.minus(there)["goodput"]
        assert (change.gain.mean, change.gain.low) == pytest.approx((expected.mean, expected.low))
    losses = [change.gain.mean for change in confirmation.reverted if change.gain]
    assert losses == sorted(losses)
    assert f"{confirmation.reverted[0].parameter}" in repr(confirmation)


def test_a_change_that_keeps_a_constraint_is_shown_as_such() -> None:
    limit, _ = SMALL_SPACE
    permits = Custom(permitted, "permits")
    study = Study(
        overloaded(), {limit: (1, 64)}, "goodput", [Constraint(permits, "<=", 12)], seeds=2
    ).optimize(16, check=False)
    confirmation = study.confirm(1, 4)
    (back,) = confirmation.reverted
    (broken,) = back.broken
    assert (broken.figure, broken.value.mean, broken.is_certain) == ("permits", 32, True)
    assert "permits = 32 [32, 32] breaks <= 12" in repr(confirmation)


# --- cliffs ---------------------------------------------------------------------------------------


def permitted(result: Result) -> float:
    return float(result.simulation.gateway.limit[0].max_in_flight)


def rising(result: Result) -> float:
    return permitted(result) + result.seed / 100


def fixed(**search: Any) -> Study:
    """A study of the limit alone, in which more is better."""
    return Study(
        overloaded(gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=4))),
        {"gateway.limit[0].max_in_flight": (1, 30)},
        Objective(rising, "maximize", name="permits"),
        seeds=2,
        sampler="tpe",
        **search,
    )


def test_a_broken_constraint_is_a_cliff_and_is_stated() -> None:
    limits = [Constraint(Custom(permitted, "used"), "<=", 20)]
    study = fixed(constraints=limits).optimize(40, check=False)
    confirmation = study.confirm(1, 4)
    assert confirmation.best.gateway.limit[0].max_in_flight == 20
    near = confirmation.cliff
    assert near.is_steep
    assert near.gain.mean == pytest.approx(2)
    assert not near.is_improvement
    assert confirmation.better_neighbor is None
    assert (
        "cliff: with gateway.limit[0].max_in_flight = 22 used = 22 [22, 22] breaks <= 20, "
        "permits is better by 2 [2, 2]"
    ) in repr(confirmation)
    assert confirmation.to_dict()["cliff"]["broken"][0]["figure"] == "used"


def test_a_better_neighbor_is_no_cliff() -> None:
    study = fixed().optimize(4, check=False)
    confirmation = study.confirm(1, 4)
    assert study.best_trial.point["gateway.limit[0].max_in_flight"] < 30
    assert not confirmation.cliff.is_steep
    better = confirmation.better_neighbor
    assert better.is_improvement
    assert better.value > study.best_trial.point["gateway.limit[0].max_in_flight"]
    shown = repr(confirmation)
    assert (
        f"worst neighbor: with {better.parameter} = {confirmation.cliff.value} permits is worse"
        in shown
    )
    assert f"better neighbor: with {better.parameter} = {better.value} permits is better" in shown
    assert "the optimum may lie further on" in shown


@pytest.mark.parametrize(("spread", "verb"), [(1, "breaks"), (100, "may break")])
def test_a_constraint_that_its_interval_leaves_open_is_no_cliff(spread: float, verb: str) -> None:
    def noisy(result: Result) -> float:
        beyond = permitted(result) - 20
        return beyond + (spread * beyond * (-1) ** result.seed if beyond > 0 else 0) / 10

    limits = [Constraint(Custom(noisy, "beyond"), "<=", 0)]
    confirmation = fixed(constraints=limits).optimize(40, check=False).confirm(1, 4)
    assert (confirmation.cliff.value, confirmation.cliff.is_steep) == (22, verb == "breaks")
    assert "22 beyond = 2 [" in repr(confirmation)
    assert f"] {verb} <= 0" in repr(confirmation)
    assert confirmation.better_neighbor is None


def test_neighbors_move_one_parameter_by_the_share() -> None:
    study = small()
    limit, timeout = SMALL_SPACE
    places = neighbors(study.bound, {limit: 30, timeout: 2.0}, 0.1)
    assert [(parameter.name, value) for parameter, value, _ in places] == [
        (limit, 27), (limit, 33), (timeout, 1.8), (timeout, 2.2),
    ]  # fmt: skip
    small_ones = neighbors(study.bound, {limit: 1, timeout: 0.05}, 0.1)
    assert [value for parameter, value, _ in small_ones if parameter.name == limit] == [2]
    for parameter, value, simulation in places:
        point = {limit: 30, timeout: 2.0, parameter.name: value}
        assert simulation == study.bound.apply(point)


def edge(result: Result) -> float:
    """Falls from 20 to nothing beyond a limit of 20."""
    permits = result.simulation.gateway.limit[0].max_in_flight
    return permits + result.seed / 100 if permits <= 20 else result.seed / 100


def test_cliff_beside_the_optimum_is_found() -> None:
    study = Study(
        overloaded(gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=4))),
        {"gateway.limit[0].max_in_flight": (1, 30)},
        Objective(edge, "maximize"),
        seeds=2,
        sampler="tpe",
    ).optimize(40, check=False)
    confirmation = study.confirm(1, 4)
    assert study.best_trial.point["gateway.limit[0].max_in_flight"] == 20
    assert (confirmation.cliff.parameter, confirmation.cliff.value) == (
        "gateway.limit[0].max_in_flight",
        22,
    )
    assert confirmation.cliff.is_steep
    assert confirmation.cliff.gain.mean == pytest.approx(-20)
    assert "cliff: with gateway.limit[0].max_in_flight = 22" in repr(confirmation)
    assert study.confirm(1, 4, within=0).cliff is None


def test_a_share_that_is_gained_equally_under_every_seed_has_no_interval() -> None:
    """Goodput is 1 or 0 under all seeds: seven signs show the gain, three do not."""
    served = Simulation(slo_classes=[{"name": "standard", "target_ttft_s": 1000}])
    study = Study(
        served.with_({"gateway.admission": "reject_all"}),
        {"gateway.admission": ["reject_all", "always_admit"]},
        "goodput",
        seeds=1,
    )
    study.optimize(8)
    sure, unsure = study.confirm(top=1, seeds=7), study.confirm(top=1, seeds=3)
    (candidate,) = sure.candidates
    assert (candidate.gain.mean, candidate.gain.low, candidate.gain.high) == (1, None, None)
    assert sure.winner == candidate.number
    assert "1 in all 7 runs better than the baseline" in str(sure)
    assert "[1, 1]" not in str(sure)
    assert unsure.winner is None
