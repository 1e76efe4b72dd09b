"""Searches that the caller steers: `ask`, `tell`, queued points, ends, searches in pieces."""

from __future__ import annotations

import math
import re
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import optuna
import pytest
from support.study_problems import SMALL_SPACE, overloaded

from spillway import ConfigError, Study, UsageError, simulate
from spillway.study import samplers

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.study import Trial


LIMIT, TIMEOUT = SMALL_SPACE
small = partial(Study, overloaded(), SMALL_SPACE, objective="goodput", seeds=2, sampler="random")


def trials_of(study: Study) -> list[Any]:
    return [(trial.number, trial.point, trial.values) for trial in study.records]


# --- runs by the caller ---------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
def test_asked_trials_are_those_of_optimize(tmp_path: Path, kept: bool) -> None:
    options = {"storage": tmp_path / "journal.log"} if kept else {}
    study = small(constraints="shed <= 90%", metrics=["jain"], **options)
    for _ in range(5):
        asked = study.ask()
        trial = study.tell(asked, simulate(asked.simulation, seeds=asked.seeds))
        assert (trial.number, trial.point) == (asked.number, asked.point)
    whole = small(constraints="shed <= 90%", metrics=["jain"]).optimize(5, check=False)
    assert study.records == whole.records
    assert study.best_params == whole.best_params == dict(whole.best_trial.point)


def test_the_first_configuration_is_the_current_one_even_outside_the_space() -> None:
    study = Study(overloaded(), {LIMIT: (1, 8)}, "goodput", seeds=1, sampler="random")
    with pytest.warns(RuntimeWarning, match="outside the space"):
        asked = study.ask()
    assert asked.simulation == overloaded()
    assert study.tell(asked, simulate(overloaded(), seeds=1)).is_baseline
    assert study.baseline.has_values
    assert study.ask().simulation != overloaded()


def test_values_may_come_from_elsewhere() -> None:
    study = small(constraints={"shed": "<=0.1"}, metrics=["jain"])
    first, second, third = (study.ask() for _ in range(3))
    study.tell(second, {"goodput": [0.5, 0.7], "shed": [0.0, 0.1]})
    study.tell(first.number, {"goodput": [0.5, 0.6], "shed": [0.0, 0.1], "jain": [1, 1]})
    study.tell(third, "the cluster was down")
    assert study.best_trial.number == second.number
    assert study.best_trial.values == (pytest.approx(0.6),)
    assert study.best_trial.is_feasible
    assert math.isnan(study.best_trial.metrics[0][0])
    assert study.records[2].failure == "the cluster was down"


@pytest.mark.parametrize(
    ("results", "problem"),
    [
        ({"goodput": [1, 1]}, "shed is missing"),
        ({"goodput": [1, 1], "shed": [0, 0], "jain": [1, 1]}, "jain is not recorded"),
        ({"goodput": [1], "shed": [0, 0]}, "goodput has 1 values; there are 2 seeds"),
        ({"goodput": [1, math.nan], "shed": [0, 0]}, "must be finite"),
    ],
)
def test_values_that_are_refused(results: Any, problem: str) -> None:
    study = small(constraints={"shed": "<=0.1"})
    asked = study.ask()
    with pytest.raises(UsageError, match=problem):
        study.tell(asked, results)
    study.tell(asked, {"goodput": [1, 1], "shed": [0, 0]})
    with pytest.raises(UsageError, match="trial 0 is not one that this study has asked for"):
        study.tell(asked, {"goodput": [1, 1], "shed": [0, 0]})


def test_runs_of_other_seeds_or_of_another_configuration_are_refused() -> None:
    study = small()
    study.ask()
    asked = study.ask()
    with pytest.raises(UsageError, match="another configuration"):
        study.tell(asked, simulate(overloaded(), seeds=2))
    with pytest.raises(UsageError, match=re.escape("the seeds (1, 2); the trial has (0, 1)")):
        study.tell(asked, simulate(asked.simulation, seeds=[1, 2]))


def test_trials_finished_in_optuna_say_so() -> None:
    study = small().optimize(1, check=False)
    trial = study.optuna.ask()
    study.bound.ask(trial)
    study.optuna.tell(trial, 1.0)
    assert study.records[1].failure is not None
    assert "instead of `study.tell`" in study.records[1].failure
    assert study.best_trial.number == 0


# --- queued points --------------------------------------------------------------------------------


def test_queued_points_run_next_after_the_current_configuration() -> None:
    study = small()
    study.enqueue({LIMIT: 12, TIMEOUT: 0.5})
    study.enqueue({LIMIT: 7})
    study.optimize(4, check=False)
    assert study.records[0].is_baseline
    assert study.records[1].point == {LIMIT: 12, TIMEOUT: 0.5}
    assert study.records[2].point[LIMIT] == 7
    assert TIMEOUT in study.records[2].point


@pytest.mark.parametrize(
    ("point", "problem"),
    [
        ({"gateway.limit[0].max_in_fligh": 3}, "is not searched; did you mean"),
        ({LIMIT: 65}, "must be a whole number >= 1 and <= 64"),
        ({LIMIT: 2.5}, "must be a whole number"),
        ({TIMEOUT: "5"}, "must be a number >= 0.05 and <= 10"),
    ],
)
def test_queued_points_are_checked(point: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        small().enqueue(point)


def test_a_queued_parameter_of_a_kind_needs_the_kind() -> None:
    space = {"gateway.controller": {"kinds": {"aimd": {"band": "auto"}, "static": None}}}
    study = Study(overloaded(), space, "goodput", seeds=1, sampler="random")
    name = "gateway.controller[aimd].band"
    for point in ({name: 0.1}, {name: 0.1, "gateway.controller": "static"}):
        with pytest.raises(ConfigError, match=r"needs gateway.controller = 'aimd' beside it"):
            study.enqueue(point)
    study.enqueue({"gateway.controller": "aimd", name: 0.1})


# --- ends -----------------------------------------------------------------------------------------


def test_a_search_ends_by_time_and_by_callbacks() -> None:
    study = small().optimize(100, check=False, timeout_s=1e-9)
    assert (len(study.records), study.stopped_by) == (0, "timeout_s = 1e-09")
    seen: list[int] = []

    def watch(known: Study, trial: Trial) -> None:
        seen.append(trial.number)
        if trial.number == 5:
            known.stop()

    study.optimize(100, check=False, callbacks=[watch])
    assert seen == [trial.number for trial in study.records] == list(range(8))
    assert study.stopped_by == "a callback"
    assert study.optimize(1, check=False).stopped_by == ""


def test_a_search_ends_when_little_is_expected_of_the_next_trial() -> None:
    study = Study(overloaded(), {LIMIT: (1, 64)}, "goodput", seeds=2, sampler="gp")
    assert math.isnan(study.expected_gain())
    study.optimize(200, check=False, min_gain=0.001)
    assert 8 <= len(study.records) < 100
    assert "the expected gain" in study.stopped_by
    assert study.expected_gain() < 0.001
    assert not any(trial.duplicate_of for trial in study.records)
    both = small(objective=["goodput", "shed"])
    with pytest.raises(UsageError, match="min_gain takes one objective"):
        both.optimize(1, min_gain=0.1)


# --- pieces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [name for name in samplers.SAMPLERS if name != "cmaes"])
def test_a_search_in_pieces_is_the_search_as_a_whole(tmp_path: Path, sampler: str) -> None:
    whole = small(sampler=sampler).optimize(14, check=False)
    pieces = small(sampler=sampler)
    for n in (7, 1, 6):
        pieces.optimize(n, check=False)
    assert trials_of(pieces) == trials_of(whole)
    for total in (7, 14):
        kept = small(sampler=sampler, storage=tmp_path / "journal.log")
        kept.optimize(total, total=True, check=False)
    assert trials_of(kept) == trials_of(whole)


def test_another_sampler_on_resume_is_said(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    small(storage=journal).optimize(2, check=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(storage=journal)
    with pytest.warns(RuntimeWarning, match="another sampler than it had: name random → gp"):
        small(storage=journal, sampler="gp")
    with pytest.warns(RuntimeWarning, match="seed 0 → 3"):
        small(storage=journal, sampler="gp", seed=3)


def test_a_journal_opens_in_optuna_itself(tmp_path: Path) -> None:
    """As `optuna-dashboard` does."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = tmp_path / "journal.log"
    study = small(storage=path).optimize(3, check=False)
    opened = JournalStorage(JournalFileBackend(str(path)))
    again = optuna.load_study(study_name="spillway", storage=opened)
    values = [trial.value for trial in again.trials if trial.state.is_finished()]
    assert values == [trial.values[0] for trial in study.records]
