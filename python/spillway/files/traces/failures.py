"""Which requests of a file failed, by columns that say so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spillway.config.formatting import quoted, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spillway.files.traces.table import Booleans


_SUCCESS = {
    *("success", "succeeded", "successful", "is_success", "is_successful"),
    *("ok", "is_ok", "completed", "is_completed"),
}
_ERROR = {
    *("error", "errors", "err", "is_error", "has_error", "errored", "error_message", "error_msg"),
    *("error_type", "error_code", "error_str", "exception", "failed", "failure", "is_failed"),
    *("is_failure", "timed_out", "timeout_error", "aborted", "cancelled", "canceled", "rejected"),
}
_STATE = {"status", "state", "outcome", "request_status", "final_status", "result_status"}
_CODE = {
    *("http_code", "http_status", "http_status_code", "status_code", "response_code"),
    *("response_status", "response_status_code", "http_response_code"),
}

_KINDS = (("success", _SUCCESS), ("error", _ERROR), ("state", _STATE), ("code", _CODE))

_TRUE = {"true", "t", "yes", "y", "1", "1.0"}
_FALSE = {"false", "f", "no", "n", "0", "0.0"}
_NO_ERROR = {*_FALSE, "", "none", "null", "nan", "n/a", "-", "ok", "success", "[]", "{}"}
_WELL = {
    "",
    *("ok", "success", "succeeded", "successful", "complete", "completed", "done", "finished"),
    *("incomplete", "length", "stop", "status_code_ok", "status_code_unset", "unset"),
}
_BADLY = re.compile(
    r"(status_code_)?(err|fail|unsuccess|timeout|timed|time.?out|cancel|abort|reject|refus|drop|shed|"
    r"throttl|rate.?limit|exception|expired|evict|killed|unavailable|overload|disconnect|denied)"
)
_HTTP = re.compile(r"([0-9]{1,3})(?:\.0)?(?:\s.*)?")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class Failed(NamedTuple):
    """Which requests failed.

    `unclear`: the row, column and text of the first cell that says neither; such a request
    completed.
    """

    rows: Booleans
    columns: tuple[str, ...]
    unclear: tuple[int, str, str] | None


def kind_of(column: str) -> str:
    """Return what a column of this name says: success, error, state, code; "" for other names."""
    spelled = (
        "_".join(_WORD.findall(name)).lower() for name in (column, column.rpartition(".")[2])
    )
    return next((kind for name in spelled for kind, names in _KINDS if name in names), "")


def columns_among(columns: Iterable[str], used: Iterable[str] = ()) -> list[str]:
    """Return the columns that say whether a request failed, but none that is used otherwise."""
    others = set(used)
    return [name for name in columns if name not in others and kind_of(name)]


def failed_in(columns: Sequence[str], texts: Callable[[str], Sequence[str]], rows: int) -> Failed:
    """Return which of some rows failed, by any of the columns, whose cells are `texts(column)`."""
    failed = np.zeros(rows, dtype=bool)
    unclear = None
    for column in columns:
        kind = kind_of(column) or "any"
        cells = texts(column)
        says = {text: _says_failed(kind, text.strip().lower()) for text in set(cells)}
        failed |= np.fromiter((bool(says[text]) for text in cells), bool, rows)
        if unclear is None and None in says.values():
            unclear = next(
                (row, column, text) for row, text in enumerate(cells) if says[text] is None
            )
    return Failed(failed, tuple(columns), unclear)


def notes_of(found: Failed) -> dict[str, int]:
    """Return what is assumed of failed requests, as notes of `Rows`."""
    notes = {}
    if number := int(found.rows.sum()):
        by = _literal(", ".join(map(sample, found.columns)))
        what = "they are requests without output, which fail in a run, too"
        notes[f"{{n}} calls failed by {by}: {what}"] = number
    if found.unclear:
        _, column, text = found.unclear
        cell = _literal(f"{sample(column)} = {quoted(text)}")
        notes[
            f"{cell} is understood neither as failed nor as completed, so such requests count as "
            "completed; --trace-columns failed=… (columns in Python) names the column that says so"
        ] = 1
    return notes


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _says_failed(kind: str, text: str) -> bool | None:
    """Return whether the cell of a column says that a request failed; None if that is unclear."""
    if kind == "error":
        return text not in _NO_ERROR
    if kind == "success":
        is_well, is_badly = text in _TRUE or text == "ok", text in _FALSE
    else:
        match = _HTTP.fullmatch(text)
        code = int(match[1]) if match else -1
        is_well = 200 <= code < 300 or text in _WELL
        is_badly = 400 <= code < 600 or _BADLY.match(text) is not None
        if kind == "code":
            is_badly |= code == 0  # no response
        elif kind == "state":
            is_well, is_badly = is_well or text in _TRUE, is_badly or text == "false"
        else:
            is_well, is_badly = is_well or text in _NO_ERROR, is_badly or text in _TRUE
    return False if is_well else True if is_badly else None
