"""The header beside a TraceV2 of BLIS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spillway.files.traces import TraceError
from spillway.systems.blis.header import Header, header_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trace_version: 2\nwarm_up_requests: 0", Header(is_there=True)),
        ("trace_version: 3\nsession_context_growth: ''", Header(is_there=True)),
        (
            "trace_version: 3\nsession_context_growth: accumulate\nwarm_up_requests: 5",
            Header(is_there=True, accumulates=True, warm_up_requests=5),
        ),
    ],
)
def test_a_header_is_read(tmp_path: Path, text: str, expected: Header) -> None:
    assert header_of(tmp_path / "t.csv") == Header()
    (tmp_path / "t.yaml").write_text(text)
    assert header_of(tmp_path / "t.csv") == expected


@pytest.mark.parametrize("text", ["some: other file", "- 1"])
def test_a_file_that_is_no_header_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.yaml").write_text(text)
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"t\.yaml: not read, as it is no header of t\.csv"):
            assert header_of(tmp_path / "t.csv") == Header()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("session_context_growth: shrink", ", session_context_growth = 'shrink': must be empty or"),
        ("warm_up_requests: -1", ", warm_up_requests = -1: must be a whole number >= 0"),
        ("warm_up_requests: true", ", warm_up_requests = True: must be a whole number >= 0"),
        ("a: [", " line 3: not valid YAML"),
    ],
)
def test_a_bad_header_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(f"trace_version: 3\n{line}\n")
    with pytest.raises(TraceError) as caught:
        header_of(tmp_path / "t.csv")
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_header_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(TraceError, match=r"t\.yaml: not a text file"):
        header_of(tmp_path / "t.csv")
