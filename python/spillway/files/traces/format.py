"""Trace formats: the layout of their files, how to read them, and their options."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeAlias

from spillway.files.traces.error import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from spillway.files.traces.table import Int64s


HIGHEST_ID = 2**64 - 1
BLOCK_SIZE_TOKENS = 512  # that of the published Mooncake traces

Layout: TypeAlias = Literal["csv", "jsonl"]

_KINDS: dict[type, tuple[Any, str]] = {
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    str: (str, "text"),
}


@dataclass(frozen=True)
class Option:
    """An option of a format: a keyword of `read_trace` and `--trace-…` on the command line.

    Attributes
    ----------
    name : str
        The name with its unit, e.g. "spread_s".
    type : type
        int, float or str.
    default : int, float or str
        The value if the option is not given.
    doc : str
        A description as a phrase, in lower case, without a period.
    choices : tuple of str
        The valid values of a text.
    at_least, at_most : float, optional
        The range of a number, bounds included.

    """

    name: str
    type: type[int | float | str]
    default: float | str
    doc: str
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None

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
        if isinstance(value, bool) or not isinstance(value, kind):
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


class Lists(NamedTuple):
    """Lists of whole numbers as arrays: the numbers of all lists, and how many each list has."""

    values: np.ndarray[tuple[int], np.dtype[np.uint64]]
    counts: Int64s


@dataclass(frozen=True)
class Rows:
    """The requests of consecutive rows of a file, in the order of the file.

    Attributes
    ----------
    arrival_ns : array of int64
        Arrivals in nanoseconds.
    input_tokens, output_tokens : array of int64
        Length of the whole prompt (>= 1) and of the output (>= 0; 0: the call failed), in tokens.
    tenant, slo_class : sequence of str
        "" is the default tenant or class; an empty sequence is the default for all rows.
    request_id : sequence of str
        Names of the requests; all "", or an empty sequence, if they have no names.
    prefix_group, prefix_tokens : sequence of str, array of int64
        The prompts of a group begin with the same `prefix_tokens` tokens, two with different
        numbers with the smaller one; "" is no group.
    hash_ids : sequence of sequences of int, or Lists
        The content of each prompt in blocks of `block_size_tokens`, instead of prefix groups.
    block_size_tokens : int
        Tokens per hash id; the last block of a prompt may be shorter.

    """

    arrival_ns: Int64s
    input_tokens: Int64s
    output_tokens: Int64s
    tenant: Sequence[str] = ()
    slo_class: Sequence[str] = ()
    request_id: Sequence[str] = ()
    prefix_group: Sequence[str] = ()
    prefix_tokens: Int64s | None = None
    hash_ids: Sequence[Sequence[int]] | Lists = ()
    block_size_tokens: int = 0


@dataclass(frozen=True)
class Format:
    """A format of traces: a table whose rows are requests.

    The command line imports the module of every format at startup, so such a module imports NumPy
    and readers only inside its functions.

    Attributes
    ----------
    name : str
        The name for `read_trace(format=…)`.
    doc : str
        A description with the columns, on one line.
    layout : {"csv", "jsonl"}
        `csv`: a header row, then a row per request; its tables are `CsvTable`. `jsonl`: a JSON
        object per line; its tables are `JsonlTable`, whose columns are the objects' keys.
    required : tuple of str
        The columns that every file of the format has, and that a reader cannot do without.
    arrival : str
        The column with the arrivals, which ascend unless the trace is sorted (see `sorts`).
    rows : callable
        `rows(table, **options)` returns the `Rows` of some consecutive rows of a file.
    optional : tuple of str or None
        Further columns that are read. A warning names those of a file that are neither required nor
        optional. None: files have many other columns, and there is no warning.
    precedence : int
        Of the formats that detect their columns, the one with the highest number is chosen, among
        equals the one with the most required columns.
    suffixes : tuple of str
        File name suffixes, e.g. ".jsonl", which select the format if no format detects its columns
        in the first line.
    options : tuple of Option
        Facts about a file that the file itself does not state.
    expand : callable, optional
        `expand(table)` returns the table of the requests of some lines that hold several each;
        `arrival` is one of its columns.
    select : callable, optional
        `select(table)` returns which rows are requests; by default all.
    joined : bool
        Whether `rows` gets all rows of a file at once, because they depend on each other; malformed
        ones cannot be skipped.
    sorts : bool
        Whether files are always sorted on reading, because they are not in order of arrival.
    retime : callable, optional
        `retime(path, arrival_ns, **options)` replaces the ascending arrivals of the whole trace;
        the result must ascend too. `since_first` if times do not count from the start of the trace,
        such as dates.
    notes : str
        Further remarks for users; part of the documentation of `read_trace`.

    """

    name: str
    doc: str
    layout: Layout
    required: tuple[str, ...]
    arrival: str
    rows: Callable[..., Rows]
    optional: tuple[str, ...] | None = ()
    precedence: int = 0
    suffixes: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    expand: Callable[..., Any] | None = None
    select: Callable[..., Sequence[bool]] | None = None
    joined: bool = False
    sorts: bool = False
    retime: Callable[..., Int64s] | None = None
    notes: str = ""

    def detect(self, columns: Mapping[Layout, Collection[str]]) -> bool:
        """Whether a file is of the format, judged by the columns in its first line per layout."""
        return not self.missing(columns[self.layout])

    def missing(self, columns: Collection[str]) -> list[str]:
        """Return the required columns that are not among these."""
        return [name for name in self.required if name not in columns]

    def check_columns(self, columns: Collection[str], place: str) -> None:
        """Raise TraceError if a required column is missing; `place`: file, or file and line."""
        if missing := self.missing(columns):
            raise TraceError(
                f"{place}: not of the format {self.name}: {', '.join(missing)} missing ({self.doc})"
            )


def since_first(_path: Path, arrival_ns: Int64s, **_options: Any) -> Int64s:
    """Return arrivals since the first one; the `retime` of formats."""
    first: Int64s = arrival_ns - arrival_ns[0]
    return first
