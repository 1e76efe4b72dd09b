"""Figures as long tables, and the origin that they and the files carry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import spillway
from spillway import Simulation, Study, run_many, simulate, workload
from spillway.config.files import fingerprint
from spillway.data.figures import FIGURES

if TYPE_CHECKING:
    from pathlib import Path

pd = pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")

COLUMNS = ["by", "name", "figure", "value", "low", "high", "n", "unit", "population"]


def simulation() -> Simulation:
    clients = [workload.Client(name="x", tenant="gold"), workload.Client(name="y", tenant="b")]
    synthetic = workload.Synthetic(requests_per_s=50, num_requests=200, clients=clients)
    return Simulation(workload=synthetic)


def test_a_result_has_a_row_per_figure_and_population() -> None:
    result = simulate(simulation(), 3)
    frame = result.to_frame()
    assert list(frame) == [*COLUMNS, "seed"]
    assert set(frame["seed"]) == {3}
    for by, name, figures in (
        ("all", "", result.summary()),
        ("tenant", "gold", result.by_tenant()["gold"]),
        ("slo_class", "standard", result.by_class()["standard"]),
    ):
        mine = frame[(frame["by"] == by) & (frame["name"] == name)].set_index("figure")
        known = {key: value for key, value in figures.items() if value is not None}
        known.pop("approximate", None)
        assert mine["value"].to_dict() == pytest.approx(known)
        assert mine["unit"].to_dict() == {key: FIGURES[key].unit for key in known}
        assert mine["population"].to_dict() == {key: FIGURES[key].population for key in known}
    assert frame["low"].isna().all()
    assert frame.attrs == {
        "schema": 1,
        "version": spillway.__version__,
        "seeds": [3],
        "fingerprint": fingerprint(result.simulation),
    }


def test_results_have_intervals() -> None:
    results = simulate(simulation(), seeds=range(3))
    frame = results.to_frame(0.9)
    assert list(frame) == COLUMNS
    row = frame[(frame["by"] == "all") & (frame["figure"] == "mean_ttft_ms")].iloc[0]
    expected = results.summary(0.9)["mean_ttft_ms"]
    assert expected is not None
    values = (row["value"], row["low"], row["high"], row["n"])
    assert values == (expected.mean, expected.low, expected.high, 3)
    assert frame.attrs["seeds"] == [0, 1, 2]


def test_results_write_means_and_the_figures_of_each_seed(tmp_path: Path) -> None:
    results = simulate(simulation(), seeds=[4, 7])
    results.write(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "seeds.csv", "summary.csv", "summary.json",
    ]  # fmt: skip
    frame = results.to_frame()
    means = pd.read_csv(tmp_path / "out" / "summary.csv", keep_default_na=False, na_values=[""])
    assert list(means) == [*COLUMNS, "version", "fingerprint"]
    for name in ("value", "low", "high", "n"):
        assert means[name].tolist() == pytest.approx(frame[name].tolist(), nan_ok=True)
    assert set(means["fingerprint"]) == {results[0].fingerprint}
    single = pd.read_csv(tmp_path / "out" / "seeds.csv")
    for result in results:
        mine = single[(single["seed"] == result.seed) & (single["by"] == "all")].set_index("figure")
        assert mine["value"]["mean_ttft_ms"] == pytest.approx(result.summary()["mean_ttft_ms"])
    document = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (document["seeds"], document["version"]) == ([4, 7], spillway.__version__)
    metrics = [result.to_dict()["metrics"] for result in results]
    assert [run["metrics"] for run in document["runs"]] == metrics
    assert [row["value"] for row in document["figures"]] == frame["value"].tolist()
    results.write(tmp_path / "out", requests="csv")
    for result in results:
        result.write(tmp_path / "one")
        for name in ("summary.json", "requests.csv"):
            there = tmp_path / "out" / f"seed_{result.seed}" / name
            assert there.read_text() == (tmp_path / "one" / name).read_text()
    with pytest.raises(spillway.ConfigError, match="requests = 'txt': must be one of csv"):
        results.write(tmp_path / "none", requests="txt")
    with pytest.raises(spillway.UsageError, match="no runs"):
        spillway.Results([]).write(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_runs_that_are_identical_are_written_once(tmp_path: Path) -> None:
    trace = spillway.trace(arrival_s=[0, 0.1], input_tokens=[100] * 2, output_tokens=[5] * 2)
    simulate(Simulation(workload=trace), seeds=3).write(tmp_path, requests="csv")
    assert set(pd.read_csv(tmp_path / "seeds.csv")["seed"]) == {0}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["seed_0"]
    document = json.loads((tmp_path / "summary.json").read_text())
    assert (document["seeds"], len(document["runs"])) == ([0, 1, 2], 1)
    assert document["notes"][0].startswith("seeds change nothing")


def test_a_study_has_a_row_per_trial_and_figure() -> None:
    pytest.importorskip("optuna")
    path = "instances[0].max_num_seqs"
    study = Study(
        simulation(), {path: (1, 2048)}, "mean_e2el_ms", {"shed": "<=1"}, seeds=2,
        sampler="random", metrics=["request_throughput"],
    ).optimize(3, check=False)  # fmt: skip
    frame = study.to_frame()
    assert frame["role"].tolist() == ["objective", "constraint", "metric"] * 3
    assert frame["figure"].tolist() == ["mean_e2el_ms", "shed", "request_throughput"] * 3
    trial = study.records[1]
    row = frame[(frame["trial"] == 1) & (frame["role"] == "objective")].iloc[0]
    assert row["value"] == pytest.approx(trial.values[0])
    assert (row[path], row["unit"], row["n"]) == (trial.point[path], "ms", 2)
    assert row["low"] < row["value"] < row["high"]
    assert row["fingerprint"] == trial.fingerprint
    assert frame.attrs["fingerprint"] == fingerprint(study.simulation)
    assert {line["version"] for line in study.rows()} == {spillway.__version__}


def test_requests_as_a_frame_have_categories_and_text() -> None:
    (results,) = run_many([simulation()], [0], keep_requests=True)
    requests = results[0].requests
    frame = requests.to_frame()
    assert list(frame) == list(requests)
    for name in ("outcome", "reason", "tenant", "slo_class"):
        assert isinstance(frame[name].dtype, pd.CategoricalDtype)
    for name in requests:
        column = requests[name]
        is_float = column.dtype.kind == "f"
        assert np.array_equal(frame[name].to_numpy(), column, equal_nan=is_float)


def test_files_carry_their_provenance(tmp_path: Path) -> None:
    result = simulate(simulation(), 5)
    origin = {
        "schema": 1,
        "version": spillway.__version__,
        "seeds": [5],
        "fingerprint": result.fingerprint,
    }
    result.write(tmp_path, requests="parquet")
    metadata = parquet.read_schema(tmp_path / "requests.parquet").metadata
    assert json.loads(metadata[b"spillway"]) == origin
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["version"], summary["fingerprint"]) == (
        origin["version"],
        origin["fingerprint"],
    )
    result.save(tmp_path / "result.npz")
    with np.load(tmp_path / "result.npz") as archive:
        document = json.loads(str(archive["document"]))
    assert (document["version"], document["fingerprint"]) == (
        origin["version"],
        origin["fingerprint"],
    )
