"""Small files of traces, and what is read from them."""

from __future__ import annotations

import functools
import itertools
import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.paths import SHARED
from support.tools import modules_with

from spillway import read_trace
from spillway.files.traces import TraceError, format_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from spillway.workload import Trace

SHARED_TRACES = SHARED / "data" / "traces"


def written(folder: Path, *lines: Any, end: str = "\n", encoding: str = "utf-8") -> Path:
    """A file of lines, objects as JSON."""
    path = folder / "trace.csv"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_bytes("".join(text + end for text in texts).encode(encoding))
    return path


def requests_of(folder: Path, name: str, *lines: Any) -> list[tuple[int, int, int]]:
    """Arrival in ns and lengths of the requests of a file, which is detected as the format."""
    path = written(folder, *lines)
    assert format_of(path).name == name
    columns = read_trace(path)._columns()
    numbers = (columns[key].tolist() for key in ("arrival_ns", "input_tokens", "output_tokens"))
    return list(zip(*numbers, strict=True))


def refusal(folder: Path, *lines: Any, **options: Any) -> str:
    """The error of a file, which is a line and begins with its name, without that name."""
    path = written(folder, *lines)
    with pytest.raises(TraceError) as caught:
        read_trace(path, **options)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text.removeprefix(str(path)).lstrip(" ,:")


@functools.cache
def files_of_tools() -> dict[str, tuple[list[Any], list[tuple[int, int, int]]]]:
    """The lines of a file of each format, and its requests, from the tests of the tools."""
    return {
        name: file for tests in modules_with("FILES", "trace") for name, file in tests.FILES.items()
    }


def malformed_lines() -> Iterator[tuple[str, Any, str]]:
    """The format of a file, a line that it must not have, and the error."""
    for tests in modules_with("FILES", "trace"):
        for line, message, *name in tests.MALFORMED:
            yield (*name, *tests.FILES)[0], line, message


def columns_in(folder: Path, *lines: Any, **options: Any) -> dict[str, Any]:
    """The columns of a file."""
    return columns_of(read_trace(written(folder, *lines), **options))


def columns_of(found: Trace) -> dict[str, Any]:
    """The columns as lists; for prompts of at most one segment also its group and length."""
    columns = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in found._columns().items()
    }
    begin, content, tokens = (columns[f"segment_{name}"] for name in ("begin", "content", "tokens"))
    if all(later - first <= 1 for first, later in itertools.pairwise(begin)):
        spans = list(itertools.pairwise(begin))
        columns["prefix_group"] = [content[a] if b > a else -1 for a, b in spans]
        columns["prefix_tokens"] = [tokens[a] if b > a else 0 for a, b in spans]
    return columns


def prompts_of(found: Trace) -> list[list[tuple[int, int]]]:
    """The segments of each prompt: content and tokens."""
    columns = columns_of(found)
    segments = list(zip(columns["segment_content"], columns["segment_tokens"], strict=True))
    return [segments[a:b] for a, b in itertools.pairwise(columns["segment_begin"])]


def counting_calls(action: Callable[[], Any]) -> tuple[Any, int]:
    """What an action returns, and the number of calls it makes: its work on any machine."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return action(), calls
    finally:
        sys.setprofile(before)
