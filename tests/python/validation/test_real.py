"""Predictions for measured runs: how runs are split, what is scored, and what is refused."""

from __future__ import annotations

import csv
import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.measured_runs import measured_run, three_runs
from support.paths import SHARED

from spillway import TraceError, cli, read_recordings
from spillway.validation import real

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from spillway.data.recording import Recording

SERVER = {
    "model": "test", "vllm_version": "0.20.0", "max_num_seqs": 64, "max_num_batched_tokens": 2048,
    "block_size": 16, "num_gpu_blocks": 20_000,
}  # fmt: skip


def write(folder: Path, runs: Iterable[Recording], **described: Any) -> Path:
    folder.mkdir()
    names = []
    for run in runs:
        names.append({"run": run.name})
        with (folder / f"{run.name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["send_s", "input_tokens", "output_tokens", "ttft_s", "e2e_s", "error"])
            columns = (run.send_s, run.input_tokens, run.output_tokens, run.ttft_s, run.e2e_s)
            rows.writerows(zip(*columns, run.failed.astype(int), strict=True))
    (folder / "runs.json").write_text(json.dumps({"server": SERVER, "runs": names} | described))
    return folder


@pytest.fixture(scope="module")
def of_others(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Recording], real.Report]:
    """Runs that were not fitted, and their predictions: usual, too much, and with a limit."""
    folder = tmp_path_factory.mktemp("runs")
    fit = write(folder / "fit", three_runs())
    runs = [
        measured_run("other", 5, (200, 1500), (30, 150), seed=9),
        measured_run("flood", 60, (800, 1500), (30, 150), seed=4),
        measured_run("limited", 90, (100, 300), (30, 60), max_in_flight=16),
    ]
    score = write(folder / "score", runs)
    described = json.loads((score / "runs.json").read_text())
    described["runs"][2]["client_max_in_flight"] = 16
    (score / "runs.json").write_text(json.dumps(described))
    return runs, real.validate(fit, score, norms=(4.0,))  # that of these servers


@pytest.mark.slow
def test_other_runs_are_predicted(of_others: tuple[list[Recording], real.Report]) -> None:
    (other, *_), report = of_others
    predicted, beyond, _ = report.runs
    assert (predicted.run, predicted.requests, predicted.in_range) == ("other", 400, True)
    assert predicted.fitted_on == ("slow", "short", "long")
    for metric in ("ttft", "itl", "e2e"):
        assert abs(predicted.error_percent(metric, "mean")) < 2
        assert predicted.statistics[metric]["mean_real"] == pytest.approx(
            np.nanmean(getattr(other, f"{metric}_s"))
        )
        assert predicted.statistics[metric]["median_ape_percent"] < 7
    assert abs(predicted.error_percent("capacity", "")) < 2
    assert not beyond.in_range
    table = report.table()
    assert "other" in table
    assert " out " in table


@pytest.mark.slow
def test_each_run_is_predicted_from_the_others(tmp_path: Path) -> None:
    fit = write(tmp_path / "fit", three_runs(requests=100))
    report = real.validate(fit, norms=(4.0,))
    assert [(run.run, run.fitted_on) for run in report.runs] == [
        ("slow", ("short", "long")),
        ("short", ("slow", "long")),
        ("long", ("slow", "short")),
    ]


@pytest.mark.slow
def test_halves_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "fit", three_runs()[1:2])
    assert cli.main(["validate", "real", "--fit", str(folder), "--half", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["run"], run["requests"]) == ("short", 200)
    assert set(run["ttft"]) == {
        *(f"{figure}_{way}" for figure in ("mean", "p50", "p90", "p99") for way in ("real", "sim")),
        "median_ape_percent",
    }
    assert run["e2e"]["mean_sim"] == pytest.approx(run["e2e"]["mean_real"], rel=0.03)
    assert set(run["capacity"]) == {"real", "sim"}
    # Without another run of the server, halves are what is left to predict.
    assert cli.main(["validate", "real", "--fit", str(folder)]) == 0
    assert "short" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_at_the_clients_limit_has_no_errors_of_single_requests(
    of_others: tuple[list[Recording], real.Report],
) -> None:
    run = of_others[1].runs[2]
    assert (run.run, run.closed_loop) == ("limited", True)
    assert run.statistics["e2e"]["median_ape_percent"] is None
    assert abs(run.error_percent("capacity", "")) < 3


def test_a_server_without_a_run_to_fit_is_refused(tmp_path: Path) -> None:
    runs = [measured_run("a", 3, (20, 90), (5, 20), requests=30)]
    fit = write(tmp_path / "fit", runs)
    other = write(tmp_path / "score", runs, server=SERVER | {"num_gpu_blocks": 7})
    with pytest.raises(TraceError, match=r"there is no run in .* to fit this server"):
        real.validate(fit, other)
    with pytest.raises(TraceError, match="give either runs to score or half"):
        real.validate(fit, other, half=True)


def test_the_command_names_a_missing_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", "real", "--fit", "nowhere"]) == cli.BAD_INPUT
    assert "nowhere: cannot be read" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of columns that are not read
def test_real_runs_are_predicted(tmp_path: Path) -> None:
    """Those of dense models. The bound is loose: `experiments/real_servers` states the errors."""
    folder = SHARED / "data" / "llmservingsim"
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing")
    for path in folder.glob("*.csv"):
        shutil.copyfile(path, tmp_path / path.name)
    runs = json.loads((folder / "runs.json").read_text())
    runs = [run for run in runs if "a3b" not in run["run"]]
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    dense = real.validate(tmp_path, half=True).runs
    assert len(dense) == 3
    for run in dense:
        assert run.in_range
        for metric in ("ttft", "itl", "e2e"):
            assert abs(run.error_percent(metric, "mean")) < 4, (run.run, metric)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of what is not read
def test_every_real_folder_is_read() -> None:
    for folder in ("vllm_h100", "vllm_h100_qwen3_14b", "llmservingsim"):
        if not (SHARED / "data" / folder).is_dir():
            pytest.skip(f"{SHARED / 'data' / folder} is missing")
        assert read_recordings(SHARED / "data" / folder)
