"""JSON documents in pieces: the same as `json` reads, whatever the pieces are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway import TraceError
from spillway.files.recordings import streams

if TYPE_CHECKING:
    from collections.abc import Sequence

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


class Pieces:
    """A text that is read in pieces of a size."""

    path = Path("run.json")

    def __init__(self, text: str, size: int) -> None:
        self.left = text
        self.size = size

    def read(self, _: int) -> str:
        found, self.left = self.left[: self.size], self.left[self.size :]
        return found


def walked(text: str, path: Sequence[str], size: int = 7) -> list[tuple[Any, Any]]:
    return list(streams.items(Pieces(text, size), path))  # type: ignore[arg-type]


@given(
    rows=st.lists(VALUES, max_size=5), size=st.integers(1, 40), indent=st.sampled_from([None, 1])
)
def test_items_of_an_array(rows: list[Any], size: int, indent: int | None) -> None:
    found = walked(json.dumps(rows, indent=indent), (), size)
    assert found == [((), []), *(((at,), row) for at, row in enumerate(rows))]


@given(
    before=VALUES,
    lists=st.lists(st.dictionaries(st.text(max_size=3), st.lists(VALUES, max_size=3)), max_size=3),
    after=VALUES,
    size=st.integers(1, 40),
)
def test_items_of_lists_within(
    before: Any, lists: list[dict[str, Any]], after: Any, size: int
) -> None:
    path = ("runs", streams.ANY, "rows", streams.ANY)
    runs = [{"id": at, "rows": rows, "end": after} for at, rows in enumerate(lists)]
    text = json.dumps({"before": before, "runs": runs, "after": after})
    found = walked(text, path, size)
    items = [(place, value) for place, value in found if len(place) == 5]
    assert items == [
        (("runs", at, "rows", key, number), row)
        for at, run in enumerate(runs)
        for key, rows in run["rows"].items()
        for number, row in enumerate(rows)
    ]
    shortened = [
        run | {"rows": {key: rows[:1] for key, rows in run["rows"].items()}} for run in runs
    ]
    whole = streams.without_items(found, path)
    assert whole == {"before": before, "runs": shortened, "after": after}


@given(
    value=st.lists(VALUES, min_size=1) | st.dictionaries(st.text(max_size=3), VALUES, min_size=1)
)
def test_the_outline_of_a_whole_document_is_all_of_it(value: Any) -> None:
    assert streams.outline(json.dumps(value)) == value
    assert streams.outline(json.dumps(value) + "\n[1]") == value


@pytest.mark.parametrize("cut", range(12, 70))
def test_the_outline_of_a_cut_document_is_what_is_complete(cut: int) -> None:
    text = '{"name": "a, [b", "rows": [{"x": 1.5, "y": [1, 2]}, {"x": 2}], "end": true}'
    found = streams.outline(text[:cut])
    assert set(found) <= {"name", "rows", "end"}
    if cut > 40:
        assert found["rows"][0]["x"] == 1.5


@pytest.mark.parametrize("text", ["", "x", "]", '{"a" 1}', "[1 2]"])
def test_what_is_no_document_has_no_outline(text: str) -> None:
    assert streams.outline(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[{"a": 1}, {"a": }]',
            r"run\.json: not valid JSON: (Expecting value|the document is cut off)",
        ),
        ('[{"a": 1}, {"a"', "not valid JSON: the document is cut off"),
        ('[{"a": 1} {"a": 2}]', "not valid JSON: expecting a comma or the end"),
        ("[1, 2", "not valid JSON: the document is cut off"),
        ('["\\ud800"]', "half of a surrogate pair"),
        ("[" * 200_000, "nested too deeply"),
    ],
)
def test_what_is_not_valid_is_refused(text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        walked(text, (), 50)
