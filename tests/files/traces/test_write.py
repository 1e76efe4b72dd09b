"""What is written is read back unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.traces import prompts_of

from spillway import read_trace
from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.files.traces import TraceError, trace, write_csv
from spillway.systems.mooncake.write import write_mooncake

if TYPE_CHECKING:
    from pathlib import Path

    from spillway._core.workload import Trace

NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6
)


@st.composite
def requests(draw: st.DrawFn, *, groups: bool) -> dict[str, Any]:
    """Arguments of `trace`, with exact times in nanoseconds."""
    rows = draw(st.integers(1, 30))

    def column(values: st.SearchStrategy[Any], *, unique: bool = False) -> list[Any]:
        return draw(st.lists(values, min_size=rows, max_size=rows, unique=unique))

    most_ns = draw(st.sampled_from([10, 10**9, 10**15]))  # doubles hold these in seconds
    found: dict[str, Any] = {
        "arrival_s": [ns / 1e9 for ns in sorted(column(st.integers(0, most_ns)))],
        "input_tokens": column(st.integers(1, draw(st.sampled_from([40, MAX_TOKENS])))),
        "output_tokens": column(st.integers(0, MAX_TOKENS)),
    }
    if draw(st.booleans()):
        found["tenant"] = column(st.sampled_from(draw(st.lists(NAMES, min_size=1, max_size=3))))
        found["slo_class"] = column(st.sampled_from(["standard", "batch"]))
    if draw(st.booleans()):
        found["request_id"] = column(NAMES, unique=True)
    if groups and draw(st.booleans()):
        found["prefix_group"] = column(st.sampled_from(["", "a", "b"]))
        found["prefix_tokens"] = [draw(st.integers(0, most)) for most in found["input_tokens"]]
    return found


def content_of(found: Trace) -> dict[str, Any]:
    """The columns, with shared segments numbered in order of appearance."""
    columns = {
        name: value if isinstance(value, list) else value.tolist()
        for name, value in found._columns().items()
        if not isinstance(value, str)
    }
    number: dict[int, int] = {}
    columns["segment_content"] = [
        number.setdefault(content, len(number)) for content in columns["segment_content"]
    ]
    if not number:
        columns["segment_begin"] = []
    return columns


@given(requests(groups=True))
def test_csv_is_lossless(tmp_path_factory: pytest.TempPathFactory, given: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "lossless.csv"
    written = trace(**given)
    write_csv(written, path)
    assert content_of(read_trace(path)) == content_of(written)


@given(requests(groups=False), st.sampled_from([16, 512]))
def test_mooncake_is_lossless(
    tmp_path_factory: pytest.TempPathFactory, given: dict[str, Any], size: int
) -> None:
    given["input_tokens"] = [tokens % 2000 + 1 for tokens in given["input_tokens"]]
    ids = [[7, *range(100 * row, 100 * row + 199)] for row in range(len(given["input_tokens"]))]
    counts = [-(-tokens // size) for tokens in given["input_tokens"]]
    given["hash_ids"] = [blocks[:count] for blocks, count in zip(ids, counts, strict=True)]
    path = tmp_path_factory.getbasetemp() / "lossless.jsonl"
    written = trace(**given, block_size_tokens=size)
    write_mooncake(written, path, block_size_tokens=size)
    found = read_trace(path, block_size_tokens=size, unit="ms")
    assert content_of(found) == content_of(written)
    assert found.sha256 == written.sha256


def test_the_latest_arrival_is_exact(tmp_path: Path) -> None:
    source = tmp_path / "source.csv"
    last = f"{LONGEST_SPAN_S - 1}.999999999"
    source.write_text(f"arrival_s,input_tokens,output_tokens\n0.000000001,5,1\n{last},5,1\n")
    found = read_trace(source)
    for write, name in ((write_csv, "a.csv"), (write_mooncake, "a.jsonl")):
        write(found, tmp_path / name)
        again = read_trace(tmp_path / name)._columns()["arrival_ns"]
        assert again.tolist() == found._columns()["arrival_ns"].tolist()


def test_csv_holds_one_segment_per_prompt(tmp_path: Path) -> None:
    blocks = trace(
        arrival_s=[0, 0],
        input_tokens=[20, 20],
        output_tokens=[1, 1],
        hash_ids=[[1, 2], [1, 3]],
        block_size_tokens=16,
    )
    with pytest.raises(TraceError, match="request 1 begins like another and shares several segmen"):
        write_csv(blocks, tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())
    plain = trace(arrival_s=[0], input_tokens=[20], output_tokens=[1])
    with pytest.raises(TraceError, match="cannot be written: No such file"):
        write_csv(plain, tmp_path / "missing" / "a.csv")


def test_csv_holds_conversations(tmp_path: Path) -> None:
    turns = trace(
        arrival_s=[0, 1, 2, 2],
        input_tokens=[16, 40, 20, 7],
        output_tokens=[1, 1, 1, 1],
        hash_ids=[[1], [1, 2, 3], [4, 5], [6]],
        block_size_tokens=16,
    )
    write_csv(turns, tmp_path / "a.csv")
    rows = [line.split(",")[-2:] for line in (tmp_path / "a.csv").read_text().splitlines()[1:]]
    assert rows == [["1", "16"], ["1", "40"], ["4", "20"], ["6", "7"]]
    assert prompts_of(read_trace(tmp_path / "a.csv"))[:2] == [[(0, 16)], [(0, 16), (0, 24)]]
