"""Formats of recordings: detected, refused, documented."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import examples, few_of
from support.paths import ROOT
from support.recordings import FILES, FORMAT_OF, GATEWAY, check_refused, run_of
from support.tools import modules_with

import spillway
from spillway.data.recording import ServerFacts
from spillway.files import recordings
from spillway.files.recordings import (
    FORMATS,
    TraceError,
    format_of,
    read_histograms,
    read_points,
    read_recordings,
    read_step_logs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*unused columns")

READERS: Mapping[str, Callable[..., list[Any]]] = {
    "recordings": read_recordings,
    "step_logs": read_step_logs,
    "histograms": read_histograms,
    "points": read_points,
}


def test_every_format_has_a_file() -> None:
    assert {*FORMAT_OF.values(), "columns", "points"} == set(FORMATS)
    found = {
        str(path.relative_to(FILES))
        for path in FILES.rglob("*")
        if path.is_file() and path.suffix not in (".md", ".yaml")
    }
    assert found == {*FORMAT_OF, "gateway.csv"}


@pytest.mark.parametrize("name", FORMAT_OF)
def test_exactly_one_format_detects_a_file(name: str) -> None:
    source = recordings.reading.Source(FILES / name)
    assert [
        form.name for form in FORMATS.values() if any(form.detects(source, c) for c in form.gives)
    ] == [FORMAT_OF[name]]
    assert format_of(FILES / name).name == FORMAT_OF[name]


@pytest.mark.filterwarnings("ignore::UserWarning")  # notes on what was read
@pytest.mark.parametrize("name", FORMAT_OF)
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_file_of_another_format_is_refused(name: str, form: Any) -> None:
    """Every pair: a format reads its own files, and no other, even when it is named."""
    reader = READERS[form.gives[-1]]
    if form.name == FORMAT_OF[name]:
        by_content, by_name = reader(FILES / name), reader(FILES / name, form.name)
        assert len(by_content) == len(by_name) >= 1
        assert {run.format for run in by_content} == {form.name}
        assert all(len(run.sha256) == 64 for run in by_content)
    else:
        options = GATEWAY if form.name == "columns" else {}
        with pytest.raises(TraceError):
            reader(FILES / name, form.name, **options)


@pytest.mark.parametrize("name", FORMAT_OF)
@pytest.mark.parametrize("kind", READERS)
def test_the_right_reader_is_named(name: str, kind: str) -> None:
    form = FORMATS[FORMAT_OF[name]]
    if kind not in form.gives:
        readers = " or ".join(f"read_{content}" for content in form.gives)
        gives = rf"gives .*, not .*; `spillway read` shows them \({readers} in Python\)"
        with pytest.raises(TraceError, match=rf"{name}.*: {form.name} \(.*\) {gives}"):
            READERS[kind](FILES / name)
        with pytest.raises(TraceError, match=f"format = '{form.name}': {gives}"):
            READERS[kind](FILES / name, form.name)


def test_formats_are_documented() -> None:
    for form in FORMATS.values():
        assert f"- `{form.name}`: " in (READERS[form.gives[-1]].__doc__ or "")
    assert spillway.read_recordings is read_recordings


def test_unknown_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_recordings(path)
    for content, message in (
        (b"", "file: empty$"),
        (b"a,b\n1,2\n", r"unknown format: a,b\nFormats tried:\n(.*\n)*  recordings: .*folder"),
        (b"\xff\xfe\x00", "unknown format: not a text file"),
        (b"[" * 100_000, r"unknown format: \[\["),
    ):
        path.write_bytes(content)
        with pytest.raises(TraceError, match=message):
            read_recordings(path)
    with pytest.raises(TraceError, match="format = 'toy': must be one of aiperf, aiperf_po"):
        read_recordings(path, "toy")
    with pytest.raises(TraceError, match="holds no file of a known format"):
        read_recordings(tmp_path)
    with pytest.raises(TraceError, match=r"holds no runs\.json"):
        read_recordings(tmp_path, "folder")


def test_the_files_of_a_folder_are_read(tmp_path: Path) -> None:
    for name in ("vllm_bench.json", "requests.csv", "serve.log", "metrics.prom", "README.md"):
        shutil.copy(FILES / name, tmp_path)
    assert [run.name for run in read_recordings(tmp_path)] == ["requests", "vllm_bench"]
    assert [run.name for run in read_recordings(tmp_path / "requests.csv")] == ["requests"]
    assert [log.name for log in read_step_logs(tmp_path)] == ["000", "001"]
    assert len(read_histograms(tmp_path)) == 1


def test_the_caller_completes_the_server() -> None:
    run = run_of(
        "vllm_bench.json", server={"gpu": "H100", "max_num_seqs": 64}, client_max_in_flight=8
    )
    assert run.server == ServerFacts(model="Qwen/Qwen3-14B", gpu="H100", max_num_seqs=64)
    assert run.client_max_in_flight == 8
    assert run_of("vllm_bench.json", server=ServerFacts(name="mine")).server.key == "mine"
    for server, message in (
        ({"gpus": 2}, r"vllm_bench\.json, server\.gpus = 2: not a fact; must be one of name, mode"),
        ({"max_num_seqs": 0}, "server: max_num_seqs = 0: must be a whole number >= 1"),
        ({"model": 5}, "model = 5: must be text"),
        ({"prefix_caching": 1}, "prefix_caching = 1: must be True or False"),
    ):
        with pytest.raises(TraceError, match=message):
            run_of("vllm_bench.json", server=server)
    with pytest.raises(TraceError, match="client_max_in_flight = 0: must be a whole number >= 1"):
        run_of("vllm_bench.json", client_max_in_flight=0)


def test_what_replaces_a_statement_is_said() -> None:
    chat = ROOT / "examples" / "measured_runs" / "chat.csv"
    other = {"max_num_seqs": 32, "engine": "sglang"}
    with pytest.warns(UserWarning, match="replaces that") as caught:
        (run,) = read_recordings(
            chat, server={**other, "num_kv_blocks": 20_000, "prefix_caching": True}
        )
    (text,) = (str(warning.message) for warning in caught)
    assert text.startswith(f"{chat}, server: states max_num_seqs = 64, engine = 'vllm'; ")
    assert text.endswith("replaces that: max_num_seqs = 32, engine = 'sglang'")
    assert (run.server.max_num_seqs, run.server.engine) == (32, "sglang")
    assert (run.server.num_kv_blocks, run.server.prefix_caching) == (20_000, True)


def test_a_limit_that_replaces_that_of_the_tool_is_said(tmp_path: Path) -> None:
    text = (FILES / "vllm_bench.json").read_text()
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**json.loads(text), "max_concurrency": 8}))
    message = "states client_max_in_flight = 8; .* replaces that: client_max_in_flight = 4"
    with pytest.warns(UserWarning, match=message):
        (run,) = read_recordings(path, client_max_in_flight=4, num_replicas=2)
    assert (run.client_max_in_flight, run.num_replicas) == (4, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_recordings(path, client_max_in_flight=8, num_replicas=2)


REFUSED = [
    (name, *row)
    for tests in modules_with("REFUSED", "recording")
    for name, rows in tests.REFUSED.items()
    for row in rows
]


@pytest.mark.parametrize(("name", "old", "new", "message"), REFUSED)
def test_an_invalid_value_is_named(
    name: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    check_refused(name, (old, new), message, tmp_path)


TOKENS = ["null", "-1", "1e999", '"x"', "[]", "{}", "NaN", "", str(10**21), "1.5", "\0", "\n", ","]


@pytest.mark.filterwarnings("ignore::UserWarning")  # notes on what was read
@pytest.mark.parametrize("name", few_of(list(FORMAT_OF), 2))
@examples(600)
@given(data=st.data())
def test_a_broken_file_is_read_or_refused(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tokens replaced at random places: the only error is a TraceError."""
    text = (FILES / name).read_text()
    for _ in range(data.draw(st.integers(1, 2))):
        places = list(re.finditer(r"[-\w.+]+|\"[^\"]*\"|\[[^\[\]]*\]|\{[^{}]*\}", text))
        if not places:
            break
        place = places[data.draw(st.integers(0, len(places) - 1))]
        text = text[: place.start()] + data.draw(st.sampled_from(TOKENS)) + text[place.end() :]
    path = tmp_path_factory.getbasetemp() / "broken" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("runs.json"):
            shutil.copytree((FILES / name).parent, path.parent, dirs_exist_ok=True)
    path.write_text(text)
    for kind, reader in READERS.items():
        forms = [None, FORMAT_OF[name]] if kind in FORMATS[FORMAT_OF[name]].gives else [None]
        for form in forms:
            with contextlib.suppress(TraceError), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a latency below 0
                assert reader(path, form)
