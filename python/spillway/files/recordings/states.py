"""Whether requests completed, by columns of one's own files and what they hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
        *("exception", "failure_reason"),
    ),
    "state": ("status", "outcome", "state", "result", "request_status"),
    "code": (
        *("status_code", "http_status", "http_code", "http_status_code", "response_code"),
        *("response_status", "code"),
    ),
    "end": ("finish_reason", "stop_reason", "finish_reasons"),
}
_KINDS: Mapping[str, Kind] = {name: kind for kind, names in _NAMES.items() for name in names}
_WEAK = ("result", "code", "state", "error_code")  # may hold other things, and then are not read

_TRUE = {"true", "1", "1.0", "yes", "y", "t"}
_FALSE = {"false", "0", "0.0", "no", "n", "f"}
_NOTHING = {"", "none", "null", "nan", "n/a", "-"}
_COMPLETED = {
    *("ok", "success", "succeeded", "successful", "completed", "complete", "done", "finished"),
    *("pass", "passed", "served"),
}
_FAILED = {
    *("error", "errored", "failed", "failure", "fail", "timeout", "timed_out", "timed out"),
    *("cancelled", "canceled", "aborted", "abort", "rejected", "shed", "dropped", "refused"),
    *("expired", "exception", "rate_limited", "throttled", "incomplete", "interrupted"),
}
_ENDS = {
    *("stop", "length", "eos", "eos_token", "tool_calls", "function_call", "content_filter"),
    *("end_turn", "max_tokens", "stop_sequence", "tool_use"),
}
_CODE = re.compile(r"([1-5])[0-9]{2}(?:\.0*)?")
_CODE_AND_TEXT = re.compile(r"([1-5])[0-9]{2}(?:\.0*)?(?:[ _].*)?")

Verdict: TypeAlias = "bool | None"
"""Whether a value says that its request completed; None if it does not say."""


def kind_of(column: str) -> Kind | None:
    """Return what a column says by its name; None if it is not one of states."""
    return _KINDS.get(re.sub(r"[^a-z0-9]+", "_", _snake(column)).strip("_"))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def is_weak(column: str) -> bool:
    """Whether a column of this name often holds other things than states."""
    return _snake(column) in _WEAK


def verdicts(kind: Kind, values: Iterable[str]) -> dict[str, Verdict]:
    """Return what the different values of a column of a kind say."""
    found = {value: _verdict(kind, _word(value)) for value in values}
    if kind == "state" and True in found.values():
        # Of states of which some are known, others are failures, but for numbers.
        for value, said in found.items():
            if said is None and not _word(value).isdecimal():
                found[value] = False
    return found


def guessed(kind: Kind, said: Mapping[str, Verdict]) -> list[str]:
    """Return the values that only their column makes failures."""
    if kind not in ("state", "end"):
        return []
    failures = [value for value, completed in said.items() if completed is False]
    return [
        value
        for value in failures
        if _word(value) not in _FAILED and not _CODE_AND_TEXT.fullmatch(_word(value))
    ]


def _word(value: str) -> str:
    return " ".join(value.lower().split())


def _verdict(kind: Kind, word: str) -> Verdict:
    pattern = _CODE if kind in ("failed", "error", "completed") else _CODE_AND_TEXT
    code = pattern.fullmatch(word)
    if word in _COMPLETED or (code and code[1] == "2"):
        return True
    if word in _FAILED or code:
        return False
    if kind in ("failed", "error"):  # other texts are errors
        return word in _NOTHING or word in _FALSE
    if word in _COMPLETING.get(kind, ()):
        return True
    is_number = re.fullmatch(r"-?[0-9]+(?:\.0*)?", word) is not None
    return False if word in _FAILING.get(kind, ()) or (kind == "code" and is_number) else None


# Words of one kind of column alone.
_COMPLETING: Mapping[Kind, set[str]] = {"completed": _TRUE, "end": _ENDS}
_FAILING: Mapping[Kind, set[str]] = {"completed": _FALSE, "end": _NOTHING, "code": _NOTHING}
