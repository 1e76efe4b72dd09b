"""The loop of a study: batches, reproducibility, the first trial, failures, the best."""

from __future__ import annotations

import contextlib
import json
import math
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
import pytest
from support.paths import ROOT
from support.study_problems import SMALL_SPACE, overloaded

import spillway
from spillway import ConfigError, Space, Study, UsageError, run_many, simulate, workload
from spillway.study import Objective, evaluation, samplers
from spillway.study import files as study_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway import Results, Simulation


small = partial(Study, overloaded(), SMALL_SPACE, objective="goodput", seeds=2, sampler="random")


class Calls:
    """Stands in for run_many and notes what it is called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, tuple[int, ...]]] = []

    def __call__(
        self, simulations: Iterable[Simulation], seeds: Iterable[int], **options: Any
    ) -> list[Results]:
        many, seeds = list(simulations), tuple(seeds)
        self.calls.append((len(many), seeds))
        return run_many(many, seeds, **options)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made = Calls()
    monkeypatch.setattr(evaluation, "finished_runs", made)
    return made


# --- batches --------------------------------------------------------------------------------------


def test_each_batch_is_one_call_over_configurations_and_seeds(calls: Calls) -> None:
    study = small(seeds=[3, 5, 8])
    study.optimize(10, batch_size=4, check=False)
    assert calls.calls == [(4, (3, 5, 8)), (4, (3, 5, 8)), (2, (3, 5, 8))]
    assert len(study.records) == 10


def test_first_trial_is_the_current_configuration() -> None:
    study = small().optimize(3)
    first = study.records[0]
    assert first.is_baseline
    assert study.baseline is first
    assert study.simulation_of(0) == overloaded()
    goodput = [simulate(overloaded(), seed).summary()["goodput"] for seed in range(2)]
    assert first.objectives == (tuple(goodput),)
    assert not any(trial.is_baseline for trial in study.records[1:])


def test_what_a_trial_holds_is_what_its_simulation_gives() -> None:
    study = small(
        constraints={"p99_ttft_ms[critical]": "<=900"}, seeds=3, metrics=["shed"]
    ).optimize(5)
    for trial in study.records:
        results = simulate(study.simulation_of(trial), seeds=range(3))
        goodput = [float(r.summary()["goodput"]) for r in results]
        p99 = [float(r.by_class()["critical"]["p99_ttft_ms"]) for r in results]
        assert trial.objectives[0] == tuple(goodput)
        assert trial.constraints[0] == tuple(p99)
        assert trial.values[0] == pytest.approx(sum(goodput) / 3, abs=1e-15)
        interval = results.summary()["goodput"]
        assert interval.half_width == pytest.approx(trial.ses[0] * 4.302652729911275)
        assert trial.violations[0] == pytest.approx((sum(p99) / 3 - 900) / 900)
        offered = [r.summary() for r in results]
        lost = [(f["rejected"] + f["expired"] + f["evicted"]) / f["offered"] for f in offered]
        assert trial.metrics[0] == tuple(lost)


def test_optuna_carries_what_samplers_of_others_need() -> None:
    study = small(constraints={"shed": "<=0.5"}, seeds=3).optimize(4)
    for frozen, trial in zip(study.optuna.trials, study.records, strict=True):
        assert frozen.values == list(trial.values)
        assert frozen.user_attrs["objective_se"] == list(trial.ses)
        assert frozen.user_attrs["constraints"] == list(trial.violations)
        assert frozen.user_attrs["constraints_se"] == list(trial.violation_ses)
        assert trial.fingerprint == spillway.fingerprint(study.simulation_of(trial))
    made_of = study.optuna.user_attrs["made_of"]
    assert made_of["optuna"] == optuna.__version__
    assert made_of["sampler"] == {"name": "random", "seed": 0}


def test_standard_error_is_unknown_with_one_seed() -> None:
    study = small(seeds=1).optimize(2)
    assert math.isnan(study.optuna.trials[0].user_attrs["objective_se"][0])


def test_proposals_of_a_batch_know_of_each_other() -> None:
    seen: list[list[dict[str, Any]]] = []

    class Looking(optuna.samplers.RandomSampler):
        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
            running = study.get_trials(states=(optuna.trial.TrialState.RUNNING,))
            seen.append([other.params for other in running if other.number != trial.number])
            return super().sample_relative(study, trial, search_space)

    study = small(sampler=Looking(seed=1)).optimize(3, batch_size=3, check=False)
    params = [trial.params for trial in study.optuna.trials]
    assert seen[-1] == params[:2]
    assert all(len(point) == 2 for point in params)


# --- reproducibility ------------------------------------------------------------------------------


def trials_of(study: Study) -> list[Any]:
    return [(trial.number, trial.point, trial.objectives) for trial in study.records]


@pytest.mark.parametrize("sampler", samplers.SAMPLERS)
def test_trials_do_not_depend_on_the_threads(sampler: str) -> None:
    studies = [small(sampler=sampler, seed=4).optimize(24, threads=n) for n in (1, 3)]
    assert trials_of(studies[0]) == trials_of(studies[1])
    other = small(sampler=sampler, seed=5).optimize(24)
    assert trials_of(studies[0]) != trials_of(other)


def test_trials_are_proposed_alike_however_optimize_is_called() -> None:
    whole = small(sampler="tpe").optimize(16, batch_size=4)
    parts = small(sampler="tpe").optimize(8, batch_size=4).optimize(8, batch_size=4)
    assert trials_of(whole) == trials_of(parts)


def test_seeds_are_those_of_all_trials() -> None:
    study = small(seeds=2).optimize(2, seeds=3)
    assert all(trial.seeds == (0, 1, 2) for trial in study.records)
    study.optimize(2, seeds=range(3))
    with pytest.raises(UsageError, match=r"used the seeds \(0, 1, 2\)"):
        study.optimize(2, seeds=4)


def test_total_counts_what_is_there() -> None:
    study = small().optimize(5).optimize(7, total=True)
    assert len(study.records) == 7
    assert len(study.optimize(3, total=True).records) == 7


# --- samplers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("name", samplers.SAMPLERS)
def test_a_sampler_can_do_what_it_states(name: str, constrained: bool, several: bool) -> None:
    sampler = samplers.SAMPLERS[name]
    asked = {"constraints": constrained, "several_objectives": several}
    lacks = [name for name, is_asked in asked.items() if is_asked and not getattr(sampler, name)]

    def made() -> Study:
        objective: Any = ["goodput", "output_throughput"] if several else "goodput"
        constraints = {"shed": "<=0.9"} if constrained else None
        space: Any = {**SMALL_SPACE, "router": {"kinds": {"round_robin": {}, "weighted": {}}}}
        return Study(overloaded(), space, objective, constraints, seeds=1, sampler=name)

    if not lacks:
        assert all(trial.has_values for trial in made().optimize(14, check=False).records)
        return
    with pytest.raises(ConfigError) as caught:
        made()
    assert len(caught.value.violations) == len(lacks)
    for violation, ability in zip(caught.value.violations, lacks, strict=True):
        able = [other for other, known in samplers.SAMPLERS.items() if getattr(known, ability)]
        what = f"cannot search with {ability.replace('_', ' ')}; use one of {', '.join(able)}"
        assert violation == ("sampler", name, what)
        assert "tpe" in able
        assert name not in able


def test_every_sampler_is_documented() -> None:
    tour = (ROOT / "docs" / "guides" / "tour.md").read_text(encoding="utf-8")
    for name in samplers.SAMPLERS:
        assert re.search(rf"\b{name}\b", Study.__doc__)
        assert f"`{name}`" in tour


def test_a_new_sampler_works_in_a_study_and_a_study_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halton = samplers.Sampler(
        load=lambda: optuna.samplers.QMCSampler,
        arguments={"qmc_type": "halton", "scramble": True, "warn_independent_sampling": False},
        constraints=True,
        several_objectives=False,
    )
    with pytest.raises(ConfigError, match="sampler = 'halton': must be one of tpe, cmaes"):
        small(sampler="halton")
    monkeypatch.setitem(samplers.SAMPLERS, "halton", halton)
    study = small(sampler="halton").optimize(8, check=False)
    assert trials_of(study) == trials_of(small(sampler="halton").optimize(8, check=False))
    assert trials_of(study) != trials_of(small(sampler="qmc").optimize(8, check=False))
    assert study.optuna.user_attrs["made_of"]["sampler"] == {
        "name": "halton",
        "seed": 0,
        **halton.arguments,
    }
    spillway.dump(overloaded(), tmp_path / "simulation.yaml")
    (tmp_path / "study.yaml").write_text(
        json.dumps(
            {
                "simulation": "simulation.yaml",
                "space": SMALL_SPACE,
                "maximize": "goodput",
                "seeds": 2,
                "sampler": {"name": "halton", "scramble": True},
            }
        )
    )
    again = study_files.read_study(tmp_path / "study.yaml").study(None)
    assert trials_of(again.optimize(8, check=False)) == trials_of(study)
    with pytest.raises(ConfigError, match=r"sampler = halton: cannot search with several objec"):
        small(objective=["goodput", "output_throughput"], sampler="halton")


# --- the best -------------------------------------------------------------------------------------


def test_search_finds_better_than_the_baseline_and_it_runs() -> None:
    study = small(sampler="tpe", seeds=3).optimize(30)
    best = study.best_trial
    assert best.values[0] == max(trial.values[0] for trial in study.records)
    assert best.values[0] > study.baseline.values[0] + 0.1
    again = [simulate(study.best, seed).summary()["goodput"] for seed in range(3)]
    assert again == list(best.objectives[0])


def test_minimising_picks_the_least() -> None:
    study = small(
        objective=Objective("p99_ttft_ms"), constraints={"shed": "<=1"}, seeds=4
    ).optimize(8)
    assert study.best_trial.values[0] == min(trial.values[0] for trial in study.records)


def test_best_satisfies_the_constraints() -> None:
    study = small(constraints={"shed": "<=0.2"}, sampler="tpe").optimize(24)
    states = {trial.state for trial in study.records}
    assert states == {"complete", "infeasible"}
    assert study.best_trial.violations[0] <= 0
    shed = [sum(trial.constraints[0]) / 2 for trial in study.feasible]
    assert shed
    assert max(shed) <= 0.2


def test_impossible_constraint_ends_with_the_nearest() -> None:
    study = small(constraints={"p99_ttft_ms": "<=1"}, sampler="tpe")
    with pytest.warns(RuntimeWarning, match="no feasible configuration found; the nearest is"):
        study.optimize(8)
    with pytest.raises(UsageError, match="no feasible configuration found") as error:
        _ = study.best
    nearest = min(study.records, key=lambda trial: trial.violations[0])
    assert f"trial {nearest.number} with p99_ttft_ms = " in str(error.value)
    assert "instead of <= 1" in str(error.value)


def test_several_objectives_leave_a_front() -> None:
    study = small(objective=["goodput", "output_throughput"], sampler="tpe").optimize(16)
    front = study.pareto
    assert {trial.number for trial in front} == {trial.number for trial in study.optuna.best_trials}
    assert study.feasible[0] in front
    with pytest.raises(UsageError, match=r"study\.pareto"):
        _ = study.best


# --- what goes wrong ------------------------------------------------------------------------------


def test_invalid_combination_is_recorded_and_the_search_goes_on() -> None:
    base = overloaded().with_({"gateway.controller": "aimd", "gateway.guard.ceiling": 64})
    study = Study(
        base,
        {"gateway.guard.floor": (1, 100), "gateway.guard.ceiling": (1, 100)},
        "goodput",
        seeds=1,
        sampler="random",
    ).optimize(20, check=False)
    failed = [trial for trial in study.records if trial.state == "failed"]
    assert 0 < len(failed) < 19
    for trial in failed:
        with pytest.raises(ConfigError) as error:
            study.bound.apply(trial.point)
        assert trial.failure == str(error.value)
        assert trial.point["gateway.guard.floor"] > trial.point["gateway.guard.ceiling"]
        assert study.optuna.trials[trial.number].state == optuna.trial.TrialState.FAIL
    assert all(trial.has_values for trial in study.records if trial not in failed)


def test_the_model_proposes_no_invalid_combination() -> None:
    base = overloaded().with_({"gateway.controller": "aimd", "gateway.guard.ceiling": 64})
    study = Study(
        base,
        {"gateway.guard.floor": (1, 100), "gateway.guard.ceiling": (1, 100)},
        "goodput",
        seeds=1,
        sampler={"name": "gp", "n_startup_trials": 8},
    ).optimize(24, check=False)
    failed = [trial.number for trial in study.records if trial.state == "failed"]
    valid = [trial.number for trial in study.records if trial.has_values]
    assert failed
    assert max(failed) < valid[8]


def test_goodput_without_targets_is_an_error_rather_than_zero() -> None:
    classes = [workload.SloClass(name="critical"), workload.SloClass(name="sheddable")]
    base = overloaded(slo_classes=classes)
    study = Study(base, SMALL_SPACE, "goodput", seeds=2)
    with pytest.raises(ConfigError, match="no class of these requests has a target"):
        study.optimize(4)
    assert all(trial.state == "failed" for trial in study.records)


def test_unknown_figure_is_an_error() -> None:
    with pytest.raises(ConfigError, match="did you mean 'p99_ttft_ms'"):
        small_with("p99_tft_ms").optimize(2)
    with pytest.raises(ConfigError, match="unknown class or tenant 'gold'"):
        small_with("p99_ttft_ms[gold]").optimize(2)


def small_with(figure: str) -> Study:
    return small(objective=Objective(figure, "minimize"), constraints={"shed": "<=1"}, seeds=1)


def test_latency_alone_is_warned_of() -> None:
    with pytest.warns(RuntimeWarning, match="rejecting most requests is best"):
        small(objective="p99_ttft_ms")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(objective="p99_ttft_ms", constraints={"shed": "<=0.1"})


def test_parameter_without_a_sound_value_is_warned_of() -> None:
    base = overloaded().with_({"gateway.controller": "aimd", "gateway.sensor.window_s": 9})
    space = {
        "gateway.guard.cooldown_ticks": (0, 3),
        "gateway.sensor.window_s": (6, 9.5),
        "gateway.bands[0].queue.timeout_s": (0.4, 6),
    }
    study = Study(base, space, "goodput", seeds=1)
    shares = study.caveats()
    assert shares["gateway.sensor.window_s"] == 1
    assert 0 < shares["gateway.bands[0].queue.timeout_s"] < 1
    assert 0 < shares["gateway.guard.cooldown_ticks"] < 1
    with pytest.warns(RuntimeWarning) as caught:
        study.optimize(1)
    said = [str(warning.message) for warning in caught]
    # All these windows span a single tick, so that it does not matter which it is.
    assert any("gateway.sensor.window_s changed no run:" in text for text in said)
    assert any("the whole space is doubtful for gateway.sensor.window_s:" in text for text in said)
    assert any("less than two ticks" in text for text in study.baseline.warnings)


def test_same_configuration_is_run_once(calls: Calls) -> None:
    space = {"gateway.limit[0].max_in_flight": [8, 16, 32]}
    study = Study(overloaded(), space, "goodput", seeds=2, sampler="random")
    study.optimize(12, check=False)
    assert sum(n for n, _ in calls.calls) == 3
    duplicates = [trial for trial in study.records if trial.state == "duplicate"]
    assert len(duplicates) == 9
    for trial in duplicates:
        original = study.records[trial.duplicate_of]
        assert original.duplicate_of is None
        assert original.number < trial.number
        assert (trial.fingerprint, trial.values) == (original.fingerprint, original.values)
    assert len(study.feasible) == 3


def test_current_configuration_outside_the_space_is_still_the_first_trial() -> None:
    space = Space({"gateway.limit[0].max_in_flight": (1, 16)})
    study = Study(overloaded(), space, "goodput", seeds=2, sampler="tpe")
    with pytest.warns(RuntimeWarning, match=r"outside the space .*max_in_flight = 32"):
        study.optimize(6)
    assert len(study.records) == 6
    first = study.baseline
    assert first.number == 0
    assert study.simulation_of(first) == overloaded()
    assert first.values[0] == pytest.approx(
        sum(float(simulate(overloaded(), s).summary()["goodput"]) for s in range(2)) / 2
    )


def test_function_of_a_result_as_objective() -> None:
    def steps(result: spillway.Result) -> float:
        return result.summary()["completed"] or 0

    study = small(objective=Objective(steps, "maximize"), seeds=1).optimize(3)
    assert study.baseline.values[0] == simulate(overloaded()).summary()["completed"]


def test_interruption_keeps_what_was_over(monkeypatch: pytest.MonkeyPatch) -> None:
    study = small().optimize(4)

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "finished_runs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        study.optimize(4)
    assert [trial.state for trial in study.records] == 4 * ["complete"]


@pytest.mark.parametrize("racing", [False, True])
@pytest.mark.parametrize("threads", [None, 2])
def test_exception_of_an_objective_fails_its_own_trial_alone(
    racing: bool, threads: int | None
) -> None:
    whole = small(objective=Objective(completed, "maximize"), seeds=4, sampler="tpe")
    whole.optimize(12, racing=racing, check=False)
    broken = whole.simulation_of(5)

    def fragile(result: spillway.Result) -> float:
        if result.simulation == broken:
            raise ZeroDivisionError("no time has passed")
        return completed(result)

    study = small(objective=Objective(fragile, "maximize"), seeds=4, sampler="tpe")
    with ThreadPoolExecutor(2) if threads else contextlib.nullcontext() as executor:
        with pytest.raises(ZeroDivisionError, match="no time has passed"):
            study.optimize(12, racing=racing, executor=executor, check=False)
        failures = [trial.failure for trial in study.records]
        assert failures == 5 * [None] + ["ZeroDivisionError('no time has passed')"] + 2 * [None]
        for trial, expected in zip(study.records, whole.records, strict=False):
            assert trial.point == expected.point
            assert trial.number == 5 or trial.objectives == expected.objectives
        study.optimize(12, total=True, racing=racing, executor=executor, check=False)
    assert len(study.records) == 12
    assert all(trial.has_values for trial in study.records if trial.number != 5)


def completed(result: spillway.Result) -> float:
    return result.summary()["completed"] or 0


def test_missing_extra_is_named() -> None:
    text = (
        "import sys; sys.modules['optuna'] = None\n"
        "import spillway\n"
        "try:\n"
        "    spillway.Study(spillway.Simulation(), {'instances[0].max_num_seqs': 'auto'}, 'shed')\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    root = Path(spillway.__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, "-c", text],
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "spillway-sim[study]" in ended.stdout
