"""Studies and sweeps from files and from the shell, and their figures."""

from __future__ import annotations

import csv
import json
import math
import warnings
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import yaml
from support.study_problems import SMALL_SPACE, overloaded

import spillway
from spillway import ConfigError, Simulation, Study, UsageError, cli, instance, load, workload
from spillway.study import Kinds, grid, max_rate_under_slo
from spillway.study.files import read_study

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT, TIMEOUT = SMALL_SPACE
SPACE = {"space": {LIMIT: [1, 8]}}
SLO = {"slo": {"shed": "<=1"}}
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


def refused(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """The line with which a command refuses its input."""
    assert cli.main(list(command)) == cli.BAD_INPUT
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    return printed


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as stream:
        return list(csv.DictReader(stream))


def test_optimize_leaves_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "results"
    assert cli.main(["optimize", written(folder), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    names = {path.name for path in out.iterdir()}
    assert names == {
        "study.yaml", "trials.csv", "best.yaml", "confirmation.json", "journal.log",
        "search_history.json",
    }  # fmt: skip
    rows = table(out / "trials.csv")
    same = Study(overloaded(), STUDY["space"], "goodput", {"shed": "<=0.5"}, seeds=2)
    same.optimize(8, check=False)
    assert [float(row["goodput"]) for row in rows] == [trial.values[0] for trial in same.records]
    assert json.loads((out / "search_history.json").read_text()) == same.search_history()
    assert rows[0]["is_baseline"] == "True"
    read = json.loads((out / "confirmation.json").read_text())
    assert read["seeds"][:4] == [2, 3, 4, 5]  # more, as long as its constraint is undecided
    expected = same.best if read["winner"] is not None else overloaded()
    assert load(out / "best.yaml") == expected
    assert read["reason"] in printed
    # The folder stands alone, and a second call goes on with its trials.
    (folder / "base.yaml").unlink()
    again = ["optimize", str(out / "study.yaml"), "--out", str(out), "--trials", "10"]
    assert cli.main(again) == 0
    more = table(out / "trials.csv")
    assert more[:8] == rows
    assert len(more) == 10


def test_optimize_names_figures_that_it_wrecks(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**STUDY, "minimize": "p99_ttft_ms", "trials": 6}
    del settings["maximize"], settings["constraints"]
    file = folder / "latency.yaml"
    file.write_text(yaml.safe_dump(settings))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only latencies of served requests count")
        assert cli.main(["optimize", str(file), "--html", str(folder / "out.html"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["confirmation"]["winner"] is not None
    assert any(line.startswith("expired is worse") for line in found["guards"]), found
    assert all("nothing asks for it: constrain it: {" in line for line in found["guards"])
    assert not any(line.startswith("p99_ttft_ms") for line in found["guards"])
    assert found["confirmation"]["guards"] == found["guards"]
    page = (folder / "out.html").read_text()
    assert page.index("Set gateway") < page.index("<table")
    path = written(folder, trials=6)
    assert cli.main(["optimize", path, "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out)["guards"], list)


def test_nothing_infeasible_is_written_as_the_best(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The constraint holds in the only seed of the search, and in no fresh one.
    runs = spillway.simulate(overloaded(), seeds=range(6))
    spans = {run.seed: float(run.summary()["duration"] or 0) for run in runs}
    first, second, *_ = sorted(spans, key=lambda seed: spans[seed])
    path = written(
        folder,
        space={"gateway.sensor.window_s": [1, 60]},
        constraints={"duration": f"<={(spans[first] + spans[second]) / 2}"},
        seeds=[first],
        trials=2,
        check=False,
        confirm={"top": 1, "seeds": [seed for seed in spans if seed != first]},
    )
    out = folder / "out"
    out.mkdir()
    (out / "best.yaml").write_text("stale")
    assert cli.main(["optimize", path, "--out", str(out), "--json"]) == 1
    captured = capsys.readouterr()
    reason = "on fresh seeds no candidate satisfies the constraints, nor does the baseline"
    assert f"no {out / 'best.yaml'}: no winner: {reason} (duration = " in captured.err
    assert json.loads(captured.out)["best"] is None
    assert not (out / "best.yaml").exists()


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
        ({"space": {}}, "space = {}: must be a mapping of at least one entry"),
        ({"maximize": 3}, "must be a figure, or a mapping"),
        ({"maximize": []}, "maximize: must be given, or minimize"),
        ({"trials": 0}, "must be a whole number >= 1"),
        ({"seeds": "many"}, "must be their number, or a list"),
        ({"sampler": "best"}, "must be one of tpe, cmaes"),
        ({"sampler": {"name": "tpe", "speed": 3}}, "speed"),
        ({"racing": {"first": 3}}, "racing"),
        ({"simulation": "none.yaml"}, "cannot be read"),
        ({"constraints": {"shed": 0.5}}, "must be a figure, <= or >=, and a number"),
        ({"constraints": ["a"]}, "constraints = 'a': must be a figure"),
        ({"space": ["a"]}, "space = ['a']: must be a mapping of at least one entry"),
        ({"space": {LIMIT: {"low": "a", "high": 3}}}, f"space.{LIMIT}.low = 'a': must be a finite"),
        ({"space": {LIMIT: {"low": 1, "high": 3, "log": 3}}}, f"space.{LIMIT}.log = 3: must be"),
        ({"space": {LIMIT: {"low": 1, "high": 3, "step": 0}}}, f"space.{LIMIT}.step = 0: must be"),
        ({"space": {LIMIT: {"choices": 5}}}, f"space.{LIMIT}.choices = 5: must be a list"),
        ({"space": {LIMIT: {"choices": [1, 1]}}}, f"space.{LIMIT} = [1, 1]: two options"),
        ({"space": {"router": {"kinds": ["aimd"]}}}, "space.router.kinds = ['aimd']: must be a m"),
        ({"space": {"router": {"kinds": {"aimd": 3}}}}, "kinds.aimd = 3: must be a mapping of a"),
        ({"space": {"instances[²].count": [1, 2]}}, "no such setting in this simulation"),
        ({"order": 3}, "order = 3: must be like `a <= b`, or a list of such"),
        ({"order": [3]}, "order[0] = 3: must be text"),
        ({"maximize": {"goodput": "abc"}}, "maximize.goodput = 'abc': must be a finite number"),
        ({"maximize": {"goodput": math.nan}}, "maximize.goodput = nan: must be a finite number"),
        ({"maximize": [["goodput"]]}, "maximize = ['goodput']: must be a figure, or a mapping"),
        ({"maximize": {}}, "maximize = {}: must be a mapping of at least one entry"),
        ({"minimize": {"mean_ttft_ms": True}}, "minimize.mean_ttft_ms = True: must be a finite"),
        ({"batch_size": 0}, "batch_size = 0: must be a whole number >= 1"),
        ({"batch_size": "x"}, "batch_size = 'x': must be a whole number >= 1"),
        ({"trials": True}, "trials = True: must be a whole number >= 1"),
        ({"sampler": ["tpe"]}, "sampler = ['tpe']: must be a name, or a mapping"),
        ({"sampler": {"name": ["tpe"]}}, "sampler = ['tpe']: must be one of tpe, cmaes"),
        ({"sampler": {"name": "tpe", "n_startup_trials": "x"}}, "sampler.n_startup_trials = 'x': "),
        ({"sampler": {"name": "qmc", "scramble": 3}}, "sampler.scramble = 3: must be true or fal"),
        ({"sampler": {"name": "qmc", "qmc_type": "x"}}, "sampler.qmc = {'qmc_type': 'x'}: "),
        ({"seed": -1}, "seed = -1: must be a whole number >= 0"),
        ({"seed": "x"}, "seed = 'x': must be a whole number >= 0"),
        ({"confirm": "maybe"}, "confirm = 'maybe': must be true, false, or a mapping of top"),
        ({"confirm": {"x": 1}}, "confirm: x: unknown key"),
        ({"confirm": {"seeds": "x"}}, "confirm.seeds = 'x': must be their number, or a list"),
        ({"confirm": {"confidence": 2}}, "confirm.confidence = 2: must be a finite number > 0"),
        ({"metrics": 5}, "metrics = 5: must be a list"),
        ({"metrics": "goodput"}, "metrics = 'goodput': must be a list"),
        ({"metrics": [5]}, "metrics[0] = 5: must be a figure"),
        ({"seeds": 1_000_000_000_000}, "seeds = 1000000000000: must be their number"),
        ({"seeds": [-1]}, "seeds[0] = -1: must be a whole number >= 0"),
        ({"seeds": [1, 1]}, "seeds = [1, 1]: must hold different seeds"),
        ({"seeds": [2**64]}, "seeds[0] = 18446744073709551616: must be a whole number"),
        ({"racing": "x"}, "racing = 'x': must be true, false, or a mapping of first_seeds and p"),
        ({"racing": {"p": 0.7}}, "racing.p = 0.7: must be a finite number > 0 and < 0.5"),
        ({"check": "maybe"}, "check = 'maybe': must be true or false"),
        ({"schema": 2}, "schema = 2: must be 1"),
        ({"presets": ["basline"]}, "presets[0] = 'basline': unknown preset; did you mean"),
        ({"simulation": 3}, "simulation = 3: must be a file or a mapping"),
    ],
)
def test_what_is_wrong_with_a_study_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    assert message in refused(capsys, "optimize", written(folder, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {LIMIT: 5}}, f"grid.{LIMIT} = 5: must be a list"),
        ({"grid": {LIMIT: []}}, f"{LIMIT} = []: must be a list of at least one value"),
        ({"grid": 5}, "grid = 5: must be a mapping"),
        (
            {"grid": {f"path{i}": list(range(1000)) for i in range(3)}},
            "grid = 1,000,000,000 configurations under 2 seeds: must be <= 1,000,000 runs",
        ),
        ({"isolation": {"a": 1}}, "isolation.a = 1: must be a mapping"),
        ({"sobol": {**SPACE, "n": -1}}, "sobol.n = -1: must be a whole number >= 1"),
        ({"sobol": {**SPACE, "n": 10**12}}, "sobol.n = 1000000000000: must be"),
        ({"sobol": {**SPACE, "n": 10**6}}, "sobol = 1,000,000 configurations under 2 seeds: must"),
        ({"sobol": {"n": 4}}, "sobol.space: must be given"),
        ({"one_at_a_time": {**SPACE, "points": 1}}, "one_at_a_time.points = 1: "),
        ({"one_at_a_time": {**SPACE, "points": 10**6}}, "one_at_a_time = 1,000,001 configuration"),
        ({"max_rate_under_slo": {"slo": ["a"]}}, "max_rate_under_slo.slo = 'a': must be a figure"),
        ({"max_rate_under_slo": {**SLO, "low": "x"}}, "slo.low = 'x': must be a"),
        ({"max_rate_under_slo": {**SLO, "low": 5, "high": 4}}, "low < high"),
        ({"min_instances_for_rate": {**SLO, "most": 0}}, "most = 0: must be"),
        ({"min_instances_for_rate": {**SLO, "group": 3}}, "instances[3].count: "),
        ({"min_instances_for_rate": {**SLO, "rate_per_s": 0}}, "rate_per_s = 0: "),
        ({"metrics": 3, "grid": {LIMIT: [1]}}, "metrics = 3: must be a list"),
    ],
)
def test_what_is_wrong_with_a_sweep_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({"simulation": "base.yaml", "seeds": 2} | changes))
    assert message in refused(capsys, "sweep", str(path))


def test_too_many_seeds_are_refused_before_they_are_listed() -> None:
    with pytest.raises(ValueError, match="seeds: 1,000,000,000,000 seeds; must be <= 1,000,000"):
        Study(overloaded(), SMALL_SPACE, "goodput", seeds=10**12)
    with pytest.raises(ConfigError, match="nan: must be a finite number"):
        Study(overloaded(), SMALL_SPACE, {"goodput": math.nan})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("journal.log", b"garbage\n"),
        ("journal.log", b"\x00\xff"),
        ("journal.log", None),
        ("study.yaml", None),
    ],
)
def test_results_folder_that_cannot_be_used_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None
) -> None:
    out = folder / "out"
    out.mkdir()
    if content is None:
        (out / name).mkdir()
    else:
        (out / name).write_bytes(content)
    printed = refused(capsys, "optimize", written(folder), "--out", str(out))
    assert printed.startswith(f"spillway: {out / name}")


def test_file_says_all_that_a_study_can(folder: Path) -> None:
    path = written(
        folder,
        simulation={},
        presets="noisy-neighbor",
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
    study_file = read_study(path)
    study = study_file.study()
    assert study.simulation == spillway.presets.get("noisy-neighbor").apply()
    assert [objective.direction for objective in study.objectives] == [
        "maximize",
        "maximize",
        "minimize",
    ]
    assert study.seeds == (4, 5)
    assert study.bound.is_conditional
    assert study_file.confirm is None
    assert study.optuna.user_attrs["made_of"]["sampler"]["n_startup_trials"] == 3


@pytest.mark.parametrize(
    ("kind", "settings", "num_rows"),
    [
        ("grid", {LIMIT: [4, 8, 16]}, 3),
        ("isolation", {"few": {LIMIT: 4}}, 2),
        ("sobol", {"space": {LIMIT: [1, 64]}, "n": 4}, 4),
        ("one_at_a_time", {"space": {LIMIT: [1, 64]}, "points": 3}, 4),
    ],
)
def test_sweep_from_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: str, settings: Any, num_rows: int
) -> None:
    path = folder / "sweep.yaml"
    content = {"simulation": "base.yaml", "seeds": 2, "metrics": ["goodput"], kind: settings}
    path.write_text(yaml.safe_dump(content))
    assert cli.main(["sweep", str(path), "--out", str(folder / "out"), "--threads", "1"]) == 0
    assert "2 seeds, means with 95% confidence intervals" in capsys.readouterr().out
    assert len(table(folder / "out" / "sweep.csv")) == num_rows


@pytest.mark.slow
def test_solver_from_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "sweep.yaml"
    slo = {"goodput": ">=0.9"}
    solver = {"slo": slo, "tolerance": 0.2}
    content = {"simulation": "base.yaml", "seeds": 2, "max_rate_under_slo": solver}
    path.write_text(yaml.safe_dump(content))
    assert cli.main(["sweep", str(path), "--out", str(folder / "out")]) == 0
    document = json.loads((folder / "out" / "solution.json").read_text())
    assert document["feasible"] < document["infeasible"] <= 1.2 * document["feasible"]
    assert "infeasible at" in capsys.readouterr().out
    path.write_text(yaml.safe_dump(content | {"grid": {}}))
    assert "must hold one of" in refused(capsys, "sweep", str(path))
    solver["tolerence"] = 1
    path.write_text(yaml.safe_dump(content))
    assert "did you mean 'tolerance'" in refused(capsys, "sweep", str(path))


# --- frame and figures ----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_windows() -> Iterator[None]:
    before = mpl.get_backend()
    mpl.use("Agg")
    yield
    plt.close("all")
    mpl.use(before)


@pytest.fixture(scope="module")
def study() -> Study:
    space = {**SMALL_SPACE, "router": ["round_robin", "least_loaded"]}
    study = Study(
        overloaded(), space, "goodput", {"shed": "<=0.4"}, seeds=3, metrics=["p99_ttft_ms"]
    )
    return study.optimize(20, check=False)


def test_frame_has_a_row_per_trial(study: Study) -> None:
    frame = study.trials
    assert list(frame["trial"]) == list(range(20))
    assert list(frame["state"]) == [trial.state for trial in study.records]
    for row, recorded in zip(frame.to_dict("records"), study.records, strict=True):
        assert {name: row[name] for name in recorded.point} == recorded.point
        assert (
            row["goodput"] == recorded.values[0] == pytest.approx(np.mean(row["goodput_per_seed"]))
        )
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
    feasible = [trial for trial in study.records if trial.is_feasible]
    running = np.maximum.accumulate([trial.values[0] for trial in feasible])
    drawn = np.asarray(best.get_ydata(), dtype=float)
    assert drawn[: len(running)] == pytest.approx(running)
    points = sum(len(bars[0].get_xdata()) for bars in axes.containers)
    assert points == len({trial.fingerprint for trial in study.records})


def test_slices_have_a_panel_per_parameter(study: Study) -> None:
    figure = study.plot.slices()
    names = [axes.get_xlabel() for axes in figure.axes]
    assert names[0].startswith(LIMIT)
    assert names[1] == f"{TIMEOUT} (s)"
    assert figure.axes[1].get_xscale() == "log"
    ticks = [label.get_text() for label in figure.axes[2].get_xticklabels()]
    assert ticks == ["round_robin", "least_loaded"]
    with pytest.raises(ValueError, match="unknown parameter"):
        study.plot.slices(["nope"])


def test_contour_and_importance_are_drawn(study: Study) -> None:
    axes = study.plot.contour(LIMIT, TIMEOUT)
    assert axes.get_yscale() == "log"
    with pytest.raises(ValueError, match="must both be numbers"):
        study.plot.contour(LIMIT, "router")
    bars = study.plot.importance().patches
    widths = sorted(bar.get_width() for bar in bars)
    assert widths == pytest.approx(sorted(study.importance().values()))


def test_tables_say_that_servers_are_unvalidated() -> None:
    load_ = workload.Synthetic(num_requests=300, requests_per_s=5)
    server = instance.Server(model="llama-3.1-8b", gpu="mi300x")
    classes = [{"name": "standard", "target_ttft_s": 1}]
    computed = Simulation(workload=load_, instances=server, slo_classes=classes)
    space = {"instances[0].max_num_seqs": (8, 2048)}

    def texts(simulation: Simulation) -> Iterator[str]:
        yield repr(spillway.simulate(simulation))
        yield repr(spillway.simulate(simulation, seeds=range(2)))
        yield repr(grid(simulation, {"router": ["round_robin", "least_loaded"]}, seeds=2))
        study = Study(simulation, space, "goodput", seeds=2)
        study.optimize(2, check=False)
        yield repr(study)
        yield repr(study.confirm(seeds=2))
        bound = {"p99_ttft_ms": "<=1000", "shed": "<=0.1"}
        yield repr(max_rate_under_slo(simulation, bound, low=4, high=5, max_requests=300, seeds=1))

    for provenance, is_said in ({}, True), ({"instances[0].provenance": ""}, False):
        for text in texts(computed.with_(provenance)):
            assert ("unvalidated" in text) == is_said, text


def test_figures_of_studies_mark_unvalidated_servers(study: Study) -> None:
    server = instance.Server(model="llama-3.1-8b", gpu="mi300x")
    base = overloaded().replace(instances=[server.group])
    computed = Study(base, SMALL_SPACE, ["goodput", "shed"], seeds=1).optimize(8, check=False)
    for plot, marks in ((computed.plot, 1), (study.plot, 0)):
        figures = [plot.history().figure, plot.slices(), plot.importance().figure]
        figures.append(plot.contour(LIMIT, TIMEOUT).figure)
        if marks:
            figures.append(plot.pareto().figure)
        for figure in figures:
            texts = [label.get_text() for axes in figure.axes for label in axes.texts]
            assert texts.count("step times: unvalidated") == marks


def test_front_of_two_objectives() -> None:
    two = Study(overloaded(), SMALL_SPACE, ["goodput", "output_throughput"], seeds=1)
    two.optimize(12, check=False)
    axes = two.plot.pareto()
    front = next(line for line in axes.lines if line.get_label() == "front")
    drawn = set(zip(front.get_xdata(), front.get_ydata(), strict=True))
    assert drawn == {trial.values for trial in two.pareto}
    with pytest.raises(UsageError, match="no Pareto front"):
        Study(overloaded(), SMALL_SPACE, "goodput").plot.pareto()


def test_conditional_study_runs_and_draws() -> None:
    kinds = Kinds({"fixed": {"max_in_flight": (1, 64)}, "token_budget": {}})
    study = Study(overloaded(), {"gateway.limit": kinds, TIMEOUT: (0.1, 9)}, "goodput", seeds=1)
    study.optimize(16, check=False)
    assert {trial.point["gateway.limit"] for trial in study.records} == {"fixed", "token_budget"}
    assert all(trial.has_values for trial in study.records)
    assert len(study.plot.slices().axes) == 3
    assert set(study.importance()) == {"gateway.limit", TIMEOUT}


def test_study_shows_its_progress(study: Study) -> None:
    text = repr(study)
    assert text.startswith("20 trials: ")
    assert f"trial {study.best_trial.number}" in text
    assert "0 (current)" in text
    assert repr(Study(overloaded(), SMALL_SPACE, "goodput")) == "0 trials"


def test_search_history_has_aiperf_fields() -> None:
    study = Study(
        overloaded(), {LIMIT: [1, 64]}, "p99_ttft_ms", {"request_throughput": ">=1"}, seeds=2
    ).optimize(6, check=False)  # fmt: skip
    history = study.search_history()
    config = history["config"]
    assert config["objectives"] == [
        {"metric": "time_to_first_token", "stat": "p99", "direction": "MINIMIZE", "threshold": None}
    ]
    assert config["sla_filters"] == [
        {"metric_tag": "request_throughput", "stat": "avg", "op": "ge", "threshold": 1.0}
    ]
    assert config["search_space"] == [{"path": LIMIT, "lo": 1, "hi": 64, "kind": "int"}]
    assert [iteration["iteration_idx"] for iteration in history["iterations"]] == list(range(6))
    for iteration, trial in zip(history["iterations"], study.records, strict=True):
        assert iteration["objective_values"] == list(trial.values)
        assert iteration["variation_values"] == trial.point
        assert iteration["feasible"] == trial.is_feasible
        assert np.mean(iteration["per_seed"][0]) == pytest.approx(iteration["objective_values"][0])
        assert iteration["seeds"] == [0, 1]
    (best,) = history["best_trials"]
    assert best["objective_values"] == list(study.best_trial.values)
    assert best["feasible_count"] == sum(trial.is_feasible for trial in study.records)
    tried = {trial.point[LIMIT]: trial.is_feasible for trial in study.records}
    boundary = history["boundary_summary"]
    assert boundary["swept_dim_path"] == LIMIT
    assert boundary["feasible_max"]["value"] == max(at for at, good in tried.items() if good)
    assert boundary["infeasible_min"] is None


def test_search_history_of_trials_that_break_a_constraint() -> None:
    study = Study(overloaded(), {LIMIT: [1, 64]}, "goodput", {"p99_ttft_ms": "<=0.001"}, seeds=1)
    with pytest.warns(RuntimeWarning, match="no feasible configuration found"):
        study.optimize(3, check=False)
    history = study.search_history()
    assert {iteration["feasible"] for iteration in history["iterations"]} == {False}
    assert {iteration["se"] for iteration in history["iterations"]} == {None}
    (best,) = history["best_trials"]
    assert best["feasible_count"] == 0
    least = history["boundary_summary"]["infeasible_min"]
    assert least["value"] == min(trial.point[LIMIT] for trial in study.records)
    assert least["first_breach"]["metric_tag"] == "time_to_first_token"
    assert least["first_breach"]["observed"] > least["first_breach"]["threshold"] == 0.001
    json.dumps(history, allow_nan=False)
