"""Options of reading: a keyword of the readers in Python, and an argument of the command line."""

from __future__ import annotations

import numbers
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from spillway.config.messages import note
from spillway.files.error import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


_KINDS: dict[type, tuple[Any, str]] = {
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    str: (str, "text"),
    bool: (bool, "True or False"),
}


@dataclass(frozen=True)
class Option:
    """An option of a reader or of a format.

    Attributes
    ----------
    name : str
        The keyword of `read_trace`, with its unit, e.g. "spread_s".
    type : type
        int, float, str or bool.
    default : int, float, str or bool, optional
        The value if the option is not given.
    doc : str
        A description as a phrase, in lower case, without a period.
    choices : tuple of str
        The valid values of a text.
    at_least, at_most : float, optional
        The range of a number, bounds included.
    spelled : tuple of str
        The spellings on the command line, if it is not `--trace-…`.
    metavar : str
        What stands for the value there, if not the name of the type.

    """

    name: str
    type: type[int | float | str]
    default: float | str | None
    doc: str
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    spelled: tuple[str, ...] = ()
    metavar: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """The spellings on the command line."""
        return self.spelled or (f"--trace-{self.name.replace('_', '-')}",)

    @property
    def allowed(self) -> str:
        """The valid values as text; empty if all values of the type are valid."""
        if self.choices:
            return " or ".join(self.choices)
        bounds = ((">=", self.at_least), ("<=", self.at_most))
        return " and ".join(f"{sign} {bound}" for sign, bound in bounds if bound is not None)

    def checked(self, value: Any) -> float | str:
        """Return `value` as the option's type.

        Raises TraceError if it is of another type or out of range.
        """
        kind, words = _KINDS[self.type]
        if isinstance(value, bool) is not (self.type is bool) or not isinstance(value, kind):
            self._refuse(value, f"must be {words}")
        is_chosen = not self.choices or value in self.choices
        is_high = self.at_least is None or value >= self.at_least
        is_low = self.at_most is None or value <= self.at_most
        if not (is_chosen and is_high and is_low):  # false for NaN
            self._refuse(value, f"must be {self.allowed}")
        convert: Callable[[Any], float | str] = self.type
        return convert(value)

    def _refuse(self, value: Any, allowed: str) -> NoReturn:
        raise TraceError(f"{self.name} = {value!r:.40}: {allowed}")


AUTO = "auto"
ISO = "iso"
UNITS = ("s", "ms", "us", "ns")

TIME_UNIT = Option(
    "time_unit",
    str,
    AUTO,
    "unit of the column of arrival_s (with --trace-columns; default: by the name of the column, "
    "then by the size of the first value)",
    choices=(AUTO, *UNITS, ISO),
)

TIME_ZONE = Option(
    "time_zone",
    str,
    AUTO,
    "zone of times without one, e.g. Europe/Berlin or +05:30; auto is UTC (also of the times of "
    "--trace-columns, with a warning)",
    metavar="ZONE",
)
"""An option of formats with dates, and of `columns`."""

_UNIT_OF_WORD = {
    word: unit
    for unit, words in {
        "s": "s sec secs second seconds",
        "ms": "ms msec msecs milli millis millisecond milliseconds",
        "us": "us usec usecs micro micros microsecond microseconds \u00b5s \u03bcs",
        "ns": "ns nsec nsecs nano nanos nanosecond nanoseconds",
    }.items()
    for word in words.split()
}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[0-9]+")
_BRACKETED = re.compile(r"[(\[]\s*(\w+)\s*[)\]]")
_SINCE = ("since", "after", "from")
_NO_UNITS = ("utc", "gmt", "unix", "epoch", "time", "timestamp", "ts", "offset")


def unit_in(column: str) -> str | None:
    """Return the unit that the name of a column of times states; None if it states none.

    Examples: `sent_ms`, `offsetMillis`, `startTimeUnixNano`, `Time (s)`, `ms_since_start`.
    """
    for word in reversed(_BRACKETED.findall(column)):
        if unit := _UNIT_OF_WORD.get(word.lower()):
            return unit
    words = [word.lower() for word in _WORD.findall(column)]
    for since in _SINCE:
        if since in words[1:]:
            return _UNIT_OF_WORD.get(words[words.index(since, 1) - 1])
    shortened = words
    while len(shortened) > 1 and shortened[-1] in _NO_UNITS:
        shortened = shortened[:-1]
    unit = _UNIT_OF_WORD.get(shortened[-1]) if shortened else None
    is_letter = shortened != words and shortened[-1] == "s"
    return None if len(words) == 1 or is_letter else unit


_NO_TOKENS = frozenset(
    {"char", "chars", "character", "characters", "byte", "bytes", "word", "words"}
)


def note_lengths(path: Path, columns: Mapping[str, str]) -> None:
    """Warn of columns of tokens whose names say that they count something else."""
    for meaning in ("input_tokens", "output_tokens", "cached_tokens"):
        column = columns.get(meaning, "")
        if words := _NO_TOKENS & {word.lower() for word in _WORD.findall(column)}:
            note(f"{path}: {meaning} = {column}: {min(words)} are read as tokens")


READING: tuple[Option, ...] = (
    Option(
        "format",
        str,
        None,
        "format of the file",
        spelled=("--trace-format", "--format"),
        metavar="F",
    ),
    Option(
        "columns",
        str,
        None,
        "the columns of a file of another format, e.g. arrival_s=ts,"
        "input_tokens=usage.prompt_tokens,output_tokens=usage.completion_tokens,tenant=user; with "
        "latencies send_s=t0,input_tokens=prompt,output_tokens=completion,ttft_s=ttft_ms,"
        "e2e_s=total_ms and completed=success or failed=error",
        spelled=("--trace-columns", "--columns"),
        metavar="MEANING=COLUMN,…",
    ),
    TIME_UNIT,
    Option(
        "units",
        str,
        None,
        "units of columns with times: s, ms, us or ns, where the name does not end in one",
        spelled=("--units",),
        metavar="COLUMN=UNIT,…",
    ),
    Option("skip_bad", bool, False, "skip malformed rows, and count them", spelled=("--skip-bad",)),
    Option("sort", bool, False, "sort the requests by arrival time", spelled=("--sort",)),
    Option(
        "run",
        str,
        None,
        "which run, of a file or folder with several: its name, or its number from 1",
        spelled=("--trace-run", "--run"),
        metavar="RUN",
    ),
    Option(
        "client_max_in_flight",
        int,
        None,
        "the most requests that the measuring client kept in flight, if the file does not say",
        at_least=1,
        spelled=("--client-max-in-flight",),
    ),
    Option(
        "num_replicas",
        int,
        None,
        "how many replicas of the server shared the requests, if the file does not say (default 1)",
        at_least=1,
        spelled=("--num-replicas",),
    ),
    Option(
        "check_units",
        bool,
        True,
        "accept times that probably have another unit",
        spelled=("--no-check-units",),
    ),
)
"""The options of reading a file of any format. Those of a format are in its `options`."""
