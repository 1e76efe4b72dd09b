"""Whether requests completed, by columns of one's own files and what they hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from spillway.config.formatting import quoted, sample
from spillway.files.error import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.files.traces.table import Booleans


Kind: TypeAlias = Literal["completed", "failed", "error", "state", "code", "end"]
"""What a column says: whether a request completed, or failed; its error, its state, the code of
HTTP, or why the output ended."""

_NAMES: Mapping[Kind, tuple[str, ...]] = {
    "completed": (
        *("success", "succeeded", "successful", "ok", "completed", "passed"),
        *("is_success", "is_successful", "is_ok", "is_completed", "was_successful"),
    ),
    "failed": (
        *("failed", "failure", "is_failed", "is_failure", "is_error", "has_error", "errored"),
        *("timed_out", "cancelled", "canceled", "was_cancelled", "aborted", "rejected"),
    ),
    "error": (
        *("error", "errors", "err", "error_message", "error_msg", "error_type", "error_code"),
        *("error_str", "timeout_error", "exception", "failure_reason"),
    ),
    "state": (
        *("status", "outcome", "state", "result", "request_status", "final_status"),
        "result_status",
    ),
    "code": (
        *("status_code", "http_status", "http_code", "http_status_code", "response_code"),
        *("response_status", "response_status_code", "http_response_code", "code", "http"),
    ),
    "end": ("finish_reason", "stop_reason", "finish_reasons"),
}
_KINDS: Mapping[str, Kind] = {name: kind for kind, names in _NAMES.items() for name in names}
_WEAK = ("result", "code", "state", "error_code")  # may hold other things, and then are not read

_TRUE = {"true", "1", "1.0", "yes", "y", "t"}
_FALSE = {"false", "0", "0.0", "no", "n", "f"}
_NOTHING = {"", "none", "null", "nan", "n/a", "-", "[]", "{}", "\\n", "<na>", "nat", "nil"}
_COMPLETED = {
    *("ok", "success", "succeeded", "successful", "completed", "complete", "done", "finished"),
    *("pass", "passed", "served", "status_code_ok", "status_code_unset", "unset"),
}
_FAILED = re.compile(
    r"(status_code_)?(err|fail|unsuccess|timeout|timed|time.?out|cancel|abort|reject|refus|drop|shed|"
    r"throttl|rate.?limit|exception|expired|evict|killed|unavailable|overload|disconnect|denied|"
    r"incomplete|interrupt)"
)
_ENDS = {
    *("stop", "length", "eos", "eos_token", "tool_calls", "function_call", "content_filter"),
    *("end_turn", "max_tokens", "stop_sequence", "tool_use"),
}
_CODE = re.compile(r"([1-5])[0-9]{2}(?:\.0*)?")
_CODE_AND_TEXT = re.compile(r"([1-5])[0-9]{2}(?:\.0*)?(?:[ _].*)?")
_FRACTION = re.compile(r"-?[0-9]*\.[0-9]*[1-9][0-9]*(?:e[-+]?[0-9]+)?")
_NUMBER = re.compile(r"-?[0-9]+(?:\.0*)?")

Verdict: TypeAlias = "bool | None"
"""Whether a value says that its request completed; None if it does not say."""


# --- names of columns -----------------------------------------------------------------------------


def kind_of(column: str) -> Kind | None:
    """Return what a column says by its name, or by its last part; None if it is none of states."""
    spelled = (_spelled(name) for name in (column, column.rpartition(".")[2]))
    return next((_KINDS[name] for name in spelled if name in _KINDS), None)


def _spelled(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", _snake(name)).strip("_")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def is_weak(column: str) -> bool:
    """Whether a column of this name often holds other things than states."""
    return _snake(column) in _WEAK


def mapped_kind(meaning: str, column: str) -> Kind:
    """Return what a column says that the caller names `failed` or `completed`.

    Raises TraceError if its name says the opposite.
    """
    kind = kind_of(column)
    opposite = {"completed": "failed", "failed": "completed"}[meaning]
    others: tuple[Kind, ...] = ("failed", "error") if meaning == "completed" else ("completed",)
    if kind in others:
        raise TraceError(
            f"columns, {meaning} = {column!r}: the name says the opposite; write "
            f"--columns {opposite}={column} (columns={{{opposite!r}: {column!r}, …}} in Python)"
        )
    return kind or ("completed" if meaning == "completed" else "failed")


_MARK = re.compile(r"((is|was)_)?warm_?up(_request)?")
_PHASES = ("phase", "benchmark_phase", "run_phase", "phase_name", "stage")
_WARM_UP = re.compile(r"(is_|pre)?warm(ing)?_?(up)?(_phase)?")


def marks_among(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that may mark requests as warm-up."""
    spelled = ((name, _spelled(name)) for name in columns)
    return tuple(name for name, text in spelled if _MARK.fullmatch(text) or text in _PHASES)


def is_warm_up(column: str, value: str) -> bool | None:
    """Return whether a value of such a column marks warm-up; None if it does not say."""
    word = _word(value)
    if _spelled(column) in _PHASES:
        return bool(_WARM_UP.fullmatch(_spelled(word)))
    return True if word in _TRUE else False if word in _FALSE | _NOTHING else None


# --- what columns hold ----------------------------------------------------------------------------


def verdict(kind: Kind, value: str) -> Verdict:
    """Return what a value of a column of a kind says."""
    word = _word(value)
    pattern = _CODE if kind in ("failed", "error", "completed") else _CODE_AND_TEXT
    code = pattern.fullmatch(word)
    if word in _COMPLETED or (code and code[1] == "2"):
        return True
    if code or _FAILED.match(word):
        return False
    if kind in ("failed", "error"):  # other texts are errors, but no measured numbers
        if _FRACTION.fullmatch(word):
            return None
        return word in _NOTHING or word in _FALSE
    if word in _COMPLETING.get(kind, ()):
        return True
    is_failed = word in _FAILING.get(kind, ()) or (kind == "code" and _NUMBER.fullmatch(word))
    return False if is_failed else None


# Words of one kind of column alone.
_COMPLETING: Mapping[Kind, set[str]] = {
    "completed": _TRUE,
    "state": {"true", *_ENDS},
    "end": _ENDS,
}
_FAILING: Mapping[Kind, set[str]] = {
    "completed": _FALSE,
    "state": {"false"},
    "end": _NOTHING,
    "code": _NOTHING,
}


def _word(value: str) -> str:
    return " ".join(value.lower().split())


def verdicts(kind: Kind, values: Iterable[str]) -> dict[str, Verdict]:
    """Return what all the different values of a column of a kind say."""
    found = {value: verdict(kind, value) for value in values}
    if kind == "state" and True in found.values():
        # Of states of which some are known, others are failures, but for numbers.
        for value, said in found.items():
            if said is None and not _word(value).isdecimal():
                found[value] = False
    return found


def guessed(kind: Kind, said: Mapping[str, Verdict]) -> list[str]:
    """Return the values that only their column makes failures."""
    return [
        value
        for value, completed in said.items()
        if completed is False
        and (verdict(kind, value) is None or (kind == "end" and not _FAILED.match(_word(value))))
    ]


# --- the calls of a trace -------------------------------------------------------------------------


class Failed(NamedTuple):
    """Which requests failed.

    `unclear`: the row, column and text of the first cell that says neither; such a request
    completed.
    """

    rows: Booleans
    columns: tuple[str, ...]
    unclear: tuple[int, str, str] | None


def columns_among(columns: Iterable[str], used: Iterable[str] = ()) -> list[str]:
    """Return the columns that say whether a request failed, but none that is used otherwise."""
    others = set(used)
    return [name for name in columns if name not in others and kind_of(name) not in (None, "end")]


def failed_in(
    columns: Sequence[str],
    texts: Callable[[str], Sequence[str]],
    rows: int,
    kinds: Mapping[str, Kind] | None = None,
) -> Failed:
    """Return which of some rows failed, by any of the columns, whose cells are `texts(column)`.

    `kinds`: what columns say, if their names do not say it.
    """
    import numpy as np  # the command line imports this module at startup

    failed = np.zeros(rows, dtype=bool)
    unclear = None
    for column in columns:
        kind = (kinds or {}).get(column) or kind_of(column) or "failed"
        cells = texts(column)
        said = {text: verdict(kind, text) for text in set(cells)}
        failed |= np.fromiter((said[text] is False for text in cells), bool, rows)
        unknown = {text for text, found in said.items() if found is None and text.strip()}
        if unclear is None and unknown:
            unclear = next((row, column, text) for row, text in enumerate(cells) if text in unknown)
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
            "completed; --columns failed=… or completed=… (columns in Python) names the column "
            "that says so"
        ] = 1
    return notes


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
