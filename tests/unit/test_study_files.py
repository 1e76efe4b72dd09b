"""Studies and sweeps from files and from the shell, and their figures."""

from __future__ import annotations

import csv
import json
import math
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pytest
import yaml
from study_problems import SMALL_SPACE, overloaded

import spillway
from spillway import Study, UsageError, cli, load
from spillway.study import Kinds
from spillway.study.files import read_study

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT, TIMEOUT = SMALL_SPACE
STUDY: dict[str, Any] = {
    "simulation": "base.yaml",
    "space": {LIMIT: [1, 64], TIMEOUT: {"low": 0.05, "high": 10, "log": True}},
    "maximize": "goodput",
    "constraints": {"shed": "<=0.5"},
    "seeds": 2,
    "trials": 8,
    "check": False,
    "confirm": {"top": 1, "seeds": 4},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    spillway.dump(overloaded(), tmp_path / "base.yaml")
    return tmp_path


def written(folder: Path, **changes: Any) -> str:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(STUDY | changes, sort_keys=False))
    return str(path)


def test_optimize_leaves_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "results"
    assert cli.main(["optimize", written(folder), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    names = {path.name for path in out.iterdir()}
    assert names == {
        "study.yaml", "trials.csv", "best.yaml", "confirmation.json", "journal.log",
    }  # fmt: skip
    with (out / "trials.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    same = Study(
        overloaded(), STUDY["space"], "goodput", {"shed": "<=0.5"}, seeds=2
    ).optimize(8, check=False)  # fmt: skip
    assert [float(row["goodput"]) for row in rows] == [one.values[0] for one in same.records]
    assert rows[0]["is_baseline"] == "True"
    read = json.loads((out / "confirmation.json").read_text())
    assert read["seeds"] == [2, 3, 4, 5]
    expected = same.best if read["winner"] is not None else overloaded()
    assert load(out / "best.yaml") == expected
    assert read["reason"] in printed
    # The folder stands alone, and a second call goes on with its trials.
    (folder / "base.yaml").unlink()
    again = ["optimize", str(out / "study.yaml"), "--out", str(out), "--trials", "10"]
    assert cli.main(again) == 0
    with (out / "trials.csv").open() as stream:
        more = list(csv.DictReader(stream))
    assert more[:8] == rows
    assert len(more) == 10


def test_impossible_study_ends_with_the_nearest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(folder, constraints={"p99_ttft_ms": "<=1"}, trials=4)
    assert cli.main(["optimize", path, "--out", str(folder / "out")]) == 1
    assert "no feasible configuration found; the nearest is trial" in capsys.readouterr().err
    assert not (folder / "out" / "best.yaml").exists()
    assert (folder / "out" / "trials.csv").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spase": {}}, "did you mean 'space'"),
        ({"space": {}}, "must name at least one path"),
        ({"maximize": 3}, "must be a figure, or a mapping"),
        ({"maximize": []}, "maximize: must be given, or minimize"),
        ({"trials": 0}, "must be a whole number >= 1"),
        ({"seeds": "many"}, "must be their number, or a list"),
        ({"sampler": "best"}, "must be one of tpe, cmaes"),
        ({"sampler": {"name": "tpe", "speed": 3}}, "speed"),
        ({"racing": {"first": 3}}, "racing"),
        ({"simulation": "none.yaml"}, "cannot be read"),
        ({"constraints": {"shed": 0.5}}, "must be a relation and a number"),
    ],
)
def test_what_is_wrong_with_a_study_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    assert cli.main(["optimize", written(folder, **changes)]) == cli.BAD_INPUT
    assert message in capsys.readouterr().err


def test_file_says_all_that_a_study_can(folder: Path) -> None:
    path = written(
        folder,
        simulation={},
        scenario="noisy-neighbor",
        space={"gateway.controller": {"kinds": {"aimd": {"band": "auto"}, "static": None}}},
        order=[],
        maximize=["goodput", {"jain": 1.0, "shed": -0.5}],
        minimize="p99_ttft_ms[worst tenant]",
        racing={"first_seeds": 4},
        sampler={"name": "tpe", "n_startup_trials": 3},
        metrics=["shed"],
        seeds=[4, 5],
        confirm=False,
    )
    stated = read_study(path)
    study = stated.study()
    assert study.simulation == spillway.scenarios.get("noisy-neighbor").apply()
    assert [one.direction for one in study.objectives] == ["maximize", "maximize", "minimize"]
    assert study.seeds == (4, 5)
    assert study.bound.is_conditional
    assert stated.confirm is None
    assert study.optuna.user_attrs["made_of"]["sampler"]["n_startup_trials"] == 3


@pytest.mark.parametrize("kind", ["grid", "isolation", "sobol", "one_at_a_time"])
def test_sweep_from_a_file(folder: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    space = {LIMIT: [1, 64]}
    stated: dict[str, Any] = {
        "grid": {LIMIT: [4, 8, 16]},
        "isolation": {"few": {LIMIT: 4}},
        "sobol": {"space": space, "n": 4},
        "one_at_a_time": {"space": space, "points": 3},
    }
    rows = {"grid": 3, "isolation": 2, "sobol": 4, "one_at_a_time": 4}
    path = folder / "sweep.yaml"
    content = {"simulation": "base.yaml", "seeds": 2, "metrics": ["goodput"], kind: stated[kind]}
    path.write_text(yaml.safe_dump(content))
    assert cli.main(["sweep", str(path), "--out", str(folder / "out"), "--threads", "1"]) == 0
    assert "2 seeds, means with 95 % confidence intervals" in capsys.readouterr().out
    with (folder / "out" / "sweep.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == rows[kind]


def test_solver_from_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "sweep.yaml"
    slo = {"goodput": ">=0.9"}
    solver = {"slo": slo, "tolerance": 0.2}
    content = {"simulation": "base.yaml", "seeds": 2, "max_rate_under_slo": solver}
    path.write_text(yaml.safe_dump(content))
    assert cli.main(["sweep", str(path), "--out", str(folder / "out")]) == 0
    found = json.loads((folder / "out" / "solution.json").read_text())
    assert found["feasible"] < found["infeasible"] <= 1.2 * found["feasible"]
    assert "broken at" in capsys.readouterr().out
    path.write_text(yaml.safe_dump(content | {"grid": {}}))
    assert cli.main(["sweep", str(path)]) == cli.BAD_INPUT
    assert "must hold one of" in capsys.readouterr().err
    solver["tolerence"] = 1
    path.write_text(yaml.safe_dump(content))
    assert cli.main(["sweep", str(path)]) == cli.BAD_INPUT
    assert "did you mean 'tolerance'" in capsys.readouterr().err


# --- frame and figures ----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_windows() -> Iterator[None]:
    before = mpl.get_backend()
    mpl.use("Agg")
    yield
    mpl.pyplot.close("all")
    mpl.use(before)


@pytest.fixture(scope="module")
def study() -> Study:
    space = {**SMALL_SPACE, "router": ["round_robin", "least_loaded"]}
    found = Study(
        overloaded(), space, "goodput", {"shed": "<=0.4"}, seeds=3, metrics=["p99_ttft_ms"]
    )
    return found.optimize(20, check=False)


def test_frame_has_a_row_per_trial(study: Study) -> None:
    frame = study.trials
    assert list(frame["trial"]) == list(range(20))
    assert list(frame["state"]) == [one.state for one in study.records]
    for row, one in zip(frame.to_dict("records"), study.records, strict=True):
        assert {name: row[name] for name in one.point} == one.point
        assert row["goodput"] == one.values[0] == pytest.approx(np.mean(row["goodput_per_seed"]))
        se = np.std(row["shed_per_seed"], ddof=1) / math.sqrt(3)
        assert row["shed_se"] == pytest.approx(se)
        assert row["n"] == len(row["p99_ttft_ms_per_seed"]) == 3


def test_importance_knows_what_matters(study: Study) -> None:
    shares = study.importance()
    assert set(shares) == {LIMIT, TIMEOUT, "router"}
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares, key=lambda name: shares[name]) == "router"  # one instance: no choice
    with pytest.raises(UsageError, match="at least 8 different trials"):
        Study(overloaded(), SMALL_SPACE, "goodput", seeds=1).optimize(3, check=False).importance()


def test_history_shows_every_trial_and_the_best_so_far(study: Study) -> None:
    axes = study.plot.history()
    best = next(line for line in axes.lines if line.get_label() == "best so far")
    feasible = [one for one in study.records if one.is_feasible]
    running = np.maximum.accumulate([one.values[0] for one in feasible])
    drawn = np.asarray(best.get_ydata(), dtype=float)
    assert drawn[: len(running)] == pytest.approx(running)
    points = sum(len(bars[0].get_xdata()) for bars in axes.containers)  # type: ignore[index]
    assert points == len({one.fingerprint for one in study.records})


def test_slices_have_a_panel_per_parameter(study: Study) -> None:
    figure = study.plot.slices()
    names = [axes.get_xlabel() for axes in figure.axes]
    assert names[0].startswith(LIMIT)
    assert names[1] == f"{TIMEOUT} (s)"
    assert figure.axes[1].get_xscale() == "log"
    ticks = [label.get_text() for label in figure.axes[2].get_xticklabels()]
    assert ticks == ["round_robin", "least_loaded"]
    with pytest.raises(ValueError, match="is no parameter of this study"):
        study.plot.slices(["nope"])


def test_contour_and_importance_are_drawn(study: Study) -> None:
    axes = study.plot.contour(LIMIT, TIMEOUT)
    assert axes.get_yscale() == "log"
    with pytest.raises(ValueError, match="must both be numbers"):
        study.plot.contour(LIMIT, "router")
    bars = study.plot.importance().patches
    widths = sorted(bar.get_width() for bar in bars)  # type: ignore[attr-defined]
    assert widths == pytest.approx(sorted(study.importance().values()))


def test_front_of_two_objectives() -> None:
    two = Study(overloaded(), SMALL_SPACE, ["goodput", "output_throughput"], seeds=1)
    two.optimize(12, check=False)
    axes = two.plot.pareto()
    front = next(line for line in axes.lines if line.get_label() == "front")
    drawn = set(zip(front.get_xdata(), front.get_ydata(), strict=True))  # type: ignore[arg-type]
    assert drawn == {one.values for one in two.pareto}
    with pytest.raises(UsageError, match="no front"):
        Study(overloaded(), SMALL_SPACE, "goodput").plot.pareto()


def test_conditional_study_runs_and_draws() -> None:
    kinds = Kinds({"fixed": {"max_in_flight": (1, 64)}, "token_budget": {}})
    found = Study(overloaded(), {"gateway.limit": kinds, TIMEOUT: (0.1, 9)}, "goodput", seeds=1)
    found.optimize(16, check=False)
    assert {one.point["gateway.limit"] for one in found.records} == {"fixed", "token_budget"}
    assert all(one.has_values for one in found.records)
    assert len(found.plot.slices().axes) == 3
    assert set(found.importance()) == {"gateway.limit", TIMEOUT}


def test_study_tells_where_it_stands(study: Study) -> None:
    text = repr(study)
    assert text.startswith("20 trials: ")
    assert f"trial {study.best_trial.number}" in text
    assert "0 (current)" in text
    assert repr(Study(overloaded(), SMALL_SPACE, "goodput")) == "0 trials"
