"""Tables of points whose columns the caller names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from support.recordings import MEASURED, values

import spillway
from spillway.data.recording import ServerFacts
from spillway.files.recordings import TraceError, read_points

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {
    "concurrency": "users",
    "ttft_s": "first_ms",
    "itl_s": "token_ms",
    "input_tokens": "prompt",
    "output_tokens": "answer",
}
TABLE = """\
users,first_ms,token_ms,prompt,answer
8,80,12,512,128
2,40,10.5,512,128
2,90,11,2048,128
"""


def written(folder: Path, text: str = TABLE) -> Path:
    path = folder / "points.csv"
    path.write_text(text)
    return path


def test_columns_are_named(tmp_path: Path) -> None:
    short, long = read_points(written(tmp_path), columns=COLUMNS)
    assert (short.input_tokens, short.output_tokens) == (512, 128)
    assert values(short.concurrency) == [2, 8]
    assert values(short.ttft_s) == [0.04, 0.08]
    assert values(short.itl_s) == [0.0105, 0.012]
    assert values(long.concurrency) == [2]
    assert short.format == "points"
    (same, _) = spillway.read(written(tmp_path), columns=COLUMNS).points_of_servers
    assert values(same.ttft_s) == values(short.ttft_s)
    named = read_points(written(tmp_path), columns=COLUMNS, server={"gpu": "H100"})
    assert named[0].server == ServerFacts(gpu="H100")


def test_units_and_lengths_are_stated(tmp_path: Path) -> None:
    path = written(tmp_path, "n,first,token\n4,250000,9000\n")
    columns = {"concurrency": "n", "ttft_s": "first", "itl_s": "token"}
    columns |= {"input_tokens": "236", "output_tokens": "343"}
    (points,) = read_points(path, columns=columns, units={"first": "us", "token": "us"})
    assert (points.input_tokens, points.output_tokens) == (236, 343)
    assert values(points.ttft_s) == [0.25]
    with pytest.raises(TraceError, match=r"'first': the name states no unit; state it"):
        read_points(path, columns=columns)
    with pytest.raises(TraceError, match=r"time per token is 9000 s .*: probably another unit"):
        read_points(path, columns=columns, units={"first": "us", "token": "s"})


def test_servers_are_not_mixed(tmp_path: Path) -> None:
    """Rows with other texts, or other facts of the server, are other groups."""
    text = """\
chip,tp,model,users,first_ms,token_ms,prompt,answer,rate_per_s
H100,1,llama,2,40,10,512,128,9.5
H100,1,llama,4,50,11,512,128,12.5
H100,2,llama,2,30,8,512,128,11
A100,1,llama,2,60,15,512,128,7
"""
    with pytest.warns(UserWarning, match="unused columns: rate_per_s"):
        groups = read_points(written(tmp_path, text), columns=COLUMNS | {"gpu": "chip"})
    assert sorted(values(points.concurrency) for points in groups) == [[2], [2], [2, 4]]
    assert {(points.server.gpu, points.server.tensor_parallel_size) for points in groups} == {
        ("H100", 1),
        ("H100", 2),
        ("A100", 1),
    }
    assert {points.server.model for points in groups} == {"llama"}


LOADS = """\
load_kind,load,first_ms,token_ms
users,1,30,10
requests_per_s,5,50,12
requests_per_s,inf,900,30
concurrency,64,,
"""


def test_loads_of_two_kinds(tmp_path: Path) -> None:
    columns = {"concurrency": "load", "requests_per_s": "load"}
    columns |= {"ttft_s": "first_ms", "itl_s": "token_ms"}
    columns |= {"input_tokens": "236", "output_tokens": "343"}
    path = written(tmp_path, LOADS)
    with (
        pytest.warns(UserWarning, match=r"1 points are left out: .* no latency \(line 5\)"),
        pytest.warns(UserWarning, match=r"2 points state the rate .* in flight \(line 3\)"),
    ):
        (points,) = read_points(path, columns=columns)
    assert values(points.concurrency) == [0, 0, 1]
    assert points.requests_per_s is not None
    assert values(points.requests_per_s) == [5, math.inf, math.inf]
    # A rate is never taken for requests in flight.
    del columns["requests_per_s"]
    with (
        pytest.warns(UserWarning, match="1 points are left out: they have no latency"),
        pytest.warns(UserWarning, match="2 points are left out: they state no load that is read"),
    ):
        (points,) = read_points(path, columns=columns)
    assert values(points.concurrency) == [1]
    written(tmp_path, LOADS.replace("users", "clients"))
    with pytest.raises(TraceError, match="line 2, load_kind = 'clients': must be one of concurr"):
        read_points(path, columns=columns)


def test_other_statistics_than_means_are_said(tmp_path: Path) -> None:
    text = TABLE.replace("first_ms", "ttft_p50_ms")
    with pytest.warns(UserWarning, match="ttft_p50_ms: the p50 of each run is taken as its mean"):
        read_points(written(tmp_path, text), columns=COLUMNS | {"ttft_s": "ttft_p50_ms"})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "columns: missing; e.g. --columns concurrency=users"),
        (COLUMNS | {"send_s": "users"}, "columns, send_s = 'users': not a meaning; must be"),
        (
            {"concurrency": "users", "ttft_s": "first_ms"},
            "columns: input_tokens, output_tokens mis",
        ),
        (
            {"ttft_s": "first_ms", "input_tokens": "8", "output_tokens": "8"},
            "must name a load: con",
        ),
        (
            {"concurrency": "users", "input_tokens": "8", "output_tokens": "8"},
            "name a latency: ttf",
        ),
        (COLUMNS | {"concurrency": "n"}, "concurrency = 'n': the header row has no such column"),
        (COLUMNS | {"itl_s": 5}, "columns, itl_s = 5: must be the name of a column"),
    ],
)
def test_invalid_columns_are_named(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_points(written(tmp_path), columns=columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("8,80", "8.5,80"), r"line 2, users = '8.5': must be a whole number >= 1"),
        (("8,80", "0,80"), r"line 2, users = '0': must be a whole number >= 1"),
        (("8,80", "8,-1"), r"line 2, first_ms = '-1': must be a number >= 0 or empty"),
        (("8,80", "8,nan"), r"line 2, first_ms = 'nan': must be a number >= 0"),
        (("12,512", "12,"), r"line 2, prompt = '': must be a number of tokens >= 1"),
        (("12,512", "12,many"), r"line 2, prompt = 'many': must be a number of tokens"),
    ],
)
def test_invalid_values_are_named(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_points(written(tmp_path, TABLE.replace(*change, 1)), columns=COLUMNS)


def test_columns_are_of_this_format_alone(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="columns: only for files of the format points, not of si"):
        read_points(written(tmp_path), "silicon", columns=COLUMNS)
    with pytest.raises(TraceError, match="units: only for files of the format points"):
        read_points(written(tmp_path), units={"first_ms": "s"})


@pytest.mark.filterwarnings("ignore")
def test_published_points_are_read() -> None:
    path = MEASURED / "accelmark" / "points.csv"
    if not path.is_file():
        pytest.skip(f"{path} is missing: it is not part of the repository")
    columns = {"concurrency": "load", "requests_per_s": "load"}
    columns |= {"ttft_s": "ttft_p50_ms", "itl_s": "tpot_p50_ms", "gpu": "chip"}
    columns |= {"engine": "framework", "engine_version": "version"}
    columns |= {"input_tokens": "236", "output_tokens": "343"}
    groups = read_points(path, columns=columns)
    found = sum(len(points.ttft_s) for points in groups)
    with path.open() as file:
        lines = file.read().splitlines()[1:]
    assert found == sum(",interactive," in line or ",online," in line for line in lines)
    assert all(points.server.model for points in groups)
