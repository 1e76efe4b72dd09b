"""Client pools of ServeGen as generators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spillway import ConfigError, traffic, workload

if TYPE_CHECKING:
    from pathlib import Path

TRACE = "0,2.0,1.5,Gamma,0.4,1.1\n600,0.0,0.0,,0,0\n1200,6.0,0.5,Weibull,2.1,0.2\n"
SHORT = {"input_tokens": "{10: 0.5, 20: 0.5}", "output_tokens": "{0: 1.0}"}
LONG = {"input_tokens": "{20: 0.25, 400: 0.75}", "output_tokens": "{7: 1}", "image": "{}"}
DATASET = {"0": SHORT, "1200": LONG}


def write(folder: Path, number: int, trace: str = TRACE, dataset: Any = DATASET) -> Path:
    (folder / f"chunk-{number}-trace.csv").write_text(trace)
    content = dataset if isinstance(dataset, str) else json.dumps(dataset)
    (folder / f"chunk-{number}-dataset.json").write_text(content)
    return folder


def test_a_chunk_is_a_client(tmp_path: Path) -> None:
    write(tmp_path, 12, "0,0,0,,0,0\n600,0,0,,0,0\n1200,0,0,,0,0\n")  # sends nothing
    found = traffic.read_client_pool(write(tmp_path, 3))
    (client,) = found.clients
    assert (client.name, found.duration_s, client.duration_s) == ("chunk-3", 1800, 1800)
    assert client.requests_per_s == pytest.approx(8 / 3)
    assert client.arrivals == workload.Weibull(cv=0.75)
    assert client.input_tokens == workload.Empirical(
        values=[10, 20, 400], weights=[600, 1500, 2700]
    )
    assert client.output_tokens == workload.Empirical(values=[0, 7], weights=[1200, 3600])
    times_s = traffic.generated(found, seed=1)._columns()["arrival_ns"] / 1e9
    counts = np.histogram(times_s, [0, 600, 1200, 1800])[0]
    assert counts.tolist() == [pytest.approx(1200, rel=0.15), 0, pytest.approx(3600, rel=0.1)]


def test_a_part_of_a_pool(tmp_path: Path) -> None:
    found = traffic.read_client_pool(write(tmp_path, 3), begin_s=300, end_s=1000)
    (client,) = found.clients
    assert (found.duration_s, client.arrivals) == (700, workload.Gamma(cv=1.5))
    assert client.input_tokens == workload.Empirical(values=[10, 20], weights=[300, 300])
    times_s = traffic.generated(found, seed=1)._columns()["arrival_ns"] / 1e9
    assert times_s.max() < 300
    assert len(times_s) == pytest.approx(600, rel=0.2)
    with pytest.raises(ConfigError, match="must hold clients with requests"):
        traffic.read_client_pool(tmp_path, begin_s=600, end_s=1200)
    with pytest.raises(ConfigError, match="begin_s = 5: must be >= 0 and before end_s"):
        traffic.read_client_pool(tmp_path, begin_s=5, end_s=5)


@pytest.mark.parametrize(
    ("trace", "dataset", "message"),
    [
        ("0,1,1\n", DATASET, "chunk-3-trace.csv line 1 = '0,1,1': must hold 6 fields"),
        ("", DATASET, "chunk-3-trace.csv line 1 = '': must hold windows"),
        ("x,1,1,Gamma,1,1\n", DATASET, "chunk-3-trace.csv line 1, window = 'x': must be a number"),
        (TRACE + "600,1,1,Gamma,1,1\n", DATASET, "line 4, window = '600': must be whole seconds"),
        ("0,-1,1,Gamma,1,1\n", DATASET, "line 1, rate = '-1': must be a number >= 0 and <= 1e+09"),
        ("0,1,nan,Gamma,1,1\n", DATASET, "line 1, cv = 'nan': must be a number >= 0"),
        ("0,1,1,Pareto,1,1\n", DATASET, "line 1, process = 'Pareto': must be Gamma or Weibull"),
        (TRACE, "{", "chunk-3-dataset.json: not valid JSON"),
        (TRACE, [], "must be an object of windows in whole seconds"),
        (TRACE, {"x": SHORT}, "must be an object of windows in whole seconds"),
        (TRACE, {"0": {}}, "chunk-3-dataset.json 0.input_tokens = None: must be text such as"),
        (
            TRACE,
            {"0": SHORT | {"input_tokens": "__import__('os').abort()"}},
            "0.input_tokens = \"__import__('os').abort()\": must be text such as",
        ),
        (TRACE, {"0": SHORT | {"output_tokens": "{-1: 1}"}}, "0.output_tokens = '{-1: 1}': must"),
        (TRACE, {"0": SHORT | {"output_tokens": "{1: 'x'}"}}, "0.output_tokens = "),
        (TRACE, {"0": SHORT | {"output_tokens": "(" * 500}}, "0.output_tokens = '((("),
    ],
)
def test_a_malformed_file_gives_one_clear_error(
    trace: str, dataset: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        traffic.read_client_pool(write(tmp_path, 3, trace, dataset))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_pool(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must hold clients with requests: chunk-N-trace"):
        traffic.read_client_pool(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        traffic.read_client_pool(tmp_path / "missing")
    (tmp_path / "chunk-0-trace.csv").write_text(TRACE)
    with pytest.raises(ConfigError, match=r"chunk-0-dataset\.json: cannot be read"):
        traffic.read_client_pool(tmp_path)
