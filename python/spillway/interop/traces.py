"""Traces: recorded requests from CSV or JSONL files or from arrays."""

from __future__ import annotations

import csv
import decimal
import difflib
import itertools
import json
import operator
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from spillway import _core
from spillway._core.sim import ConfigError
from spillway.config import filesystem, yaml
from spillway.config.classes import config_error
from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.config.messages import note
from spillway.data import export
from spillway.interop.formats import FORMATS, TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

__all__ = [
    "Int64s",
    "Table",
    "Violation",
    "read_columns",
    "read_trace",
    "tables",
    "trace",
    "write_mooncake",
]


def __dir__() -> list[str]:
    return __all__


# The columns without which a file is not of the format. The first match wins, so the more demanding
# come first.
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "blis": (
        "request_id",
        "tenant_id",
        "slo_class",
        "prefix_group",
        "input_tokens",
        "output_tokens",
        "arrival_time_us",
        "send_time_us",
    ),
    "reference": (
        "request_id",
        "tenant_id",
        "slo_class",
        "prefix_group",
        "prefix_length",
        "input_tokens",
        "output_tokens",
        "arrival_time_us",
    ),
    "columns": ("arrival_s", "input_tokens", "output_tokens"),
}

_MOONCAKE_KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
# What else is read of the formats in which a person may have added a column or key.
_OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "azure": ("tenant", "slo_class"),
    "columns": ("request_id", "tenant", "slo_class", "prefix_group", "prefix_tokens"),
    "mooncake": ("request_id", "tenant", "slo_class"),
}
_UNIT_NS = {"ms": 1_000_000, "s": 1_000_000_000}
_BLOCK_SIZE_TOKENS = 512  # that of the published Mooncake traces
_HIGHEST_ID = 2**64 - 1
# A trace is called crowded if that many requests or more arrive at an instant on average.
_CROWDED = 2
_CROWDED_ROWS = 100

_DEFAULT_TENANT = "default"
_DEFAULT_CLASS = "standard"
_MOST_NAMES = 65535  # the core indexes tenants and classes with 16 bits
_ROWS_AT_ONCE = 4096

Int64s = np.ndarray[tuple[int], np.dtype[np.int64]]
Violation = tuple[str, str, str]  # path, value, what is allowed


# --- CSV tables -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Consecutive rows of a CSV file, with the number of the line that each row stands on."""

    path: Path
    header: tuple[str, ...]
    lines: Sequence[int]
    cells: Mapping[str, Sequence[str]]

    def __len__(self) -> int:
        return len(self.lines)

    def texts(self, column: str) -> Sequence[str]:
        """Return the cells of a column; all empty if the file has none of that name."""
        return self.cells[column] if column in self.cells else [""] * len(self)

    def parsed(
        self, column: str, parse: Callable[[str], int], allowed: str, *, empty: str = ""
    ) -> Int64s:
        """Return the cells of a column as integers; `empty` stands for empty ones.

        Raises TraceError with `allowed` for the first cell that `parse` refuses with a ValueError.
        """
        texts = [text or empty for text in self.texts(column)]
        try:
            return np.array([parse(text) for text in texts], dtype=np.int64)
        except ValueError:
            self.refuse(
                next(row for row, text in enumerate(texts) if _fails(parse, text)), column, allowed
            )

    def refuse(self, row: int, column: str, allowed: str) -> NoReturn:
        """Raise the TraceError of one cell."""
        value = self.texts(column)[row]
        raise TraceError(f"{self.path} line {self.lines[row]}, {column} = {value!r}: {allowed}")


def tables(path: str | Path) -> Iterator[Table]:
    """Read a CSV file in pieces, the first of which holds no row; empty lines are skipped.

    Raises TraceError if the file cannot be read, is empty, is no text, or a row does not fit the
    header.
    """
    path = Path(path)
    try:
        with filesystem.open_text(path, newline="") as stream:
            reader = csv.reader(stream, skipinitialspace=True)
            rows = ((reader.line_num, row) for row in reader if row and row != [""])
            _, first = next(rows, (0, None))
            if first is None:
                raise TraceError(f"{path}: is empty; a header row and some requests are needed")
            header = tuple(name.strip() for name in first)
            yield Table(path, header, [], {})
            while piece := list(itertools.islice(rows, _ROWS_AT_ONCE)):
                yield _table(path, header, piece)
    except OSError as error:
        raise TraceError(str(filesystem.cannot("read", path, error))) from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: is no text file; a CSV file in UTF-8 is needed") from error
    except csv.Error as error:
        raise TraceError(f"{path} line {reader.line_num}: is no CSV: {error}") from error


def _fails(parse: Callable[[str], int], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return True
    return False


def _table(path: Path, header: tuple[str, ...], rows: Sequence[tuple[int, list[str]]]) -> Table:
    for line, row in rows:
        if len(row) != len(header):
            raise TraceError(
                f"{path} line {line}: holds {len(row)} fields; the header row names {len(header)}"
            )
    lines = [line for line, _ in rows]
    columns: Iterable[Sequence[str]] = zip(*(row for _, row in rows), strict=True)
    return Table(path, header, lines, dict(zip(header, columns, strict=False)))


# --- cells ----------------------------------------------------------------------------------------

_WHOLE = re.compile(r"\s*[0-9]{1,18}\s*")
_DECIMAL = re.compile(r"\s*[0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]{1,3})?\s*")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:Z|([-+][0-9]{2}):?([0-9]{2}))?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EXACT = decimal.Context(prec=60)


def _whole(lowest: int, highest: int) -> tuple[Callable[[str], int], str]:
    """Return a parser of whole numbers and the words for what it allows."""

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise ValueError
        value = int(text)
        if not lowest <= value <= highest:
            raise ValueError
        return value

    return parse, f"must be a whole number >= {lowest} and <= {highest}"


def _seconds_to_ns(text: str) -> int:
    # Decimal, not float: a trace's instants are taken as written.
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    try:
        value = _EXACT.create_decimal(text.strip())
    except decimal.InvalidOperation as error:
        raise ValueError from error
    if value > LONGEST_SPAN_S:
        raise ValueError
    return int(value.scaleb(9, _EXACT).to_integral_value(context=_EXACT))


def _timestamp_to_ns(text: str) -> int:
    """Return nanoseconds since 1970."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if not match:
        raise ValueError
    date, time, fraction, hours, minutes = match.groups()
    instant = datetime.fromisoformat(f"{date}T{time}{hours or '+00'}:{minutes or '00'}")
    seconds = (instant - _EPOCH) // timedelta(seconds=1)
    if not 0 <= seconds < LONGEST_SPAN_S:
        raise ValueError
    return seconds * 1_000_000_000 + int((fraction or "").ljust(9, "0"))


_INPUT = _whole(1, MAX_TOKENS)
_TOKENS = _whole(0, MAX_TOKENS)
_MICROSECONDS = _whole(0, LONGEST_SPAN_S * 1_000_000)
_SECONDS_ALLOWED = f"must be a decimal number of seconds >= 0 and <= {LONGEST_SPAN_S}"
_TIMESTAMP_ALLOWED = (
    "must be an instant between 1970 and 2070 such as 2023-11-16 18:15:46.6805900, "
    "with or without a time zone"
)


# --- formats --------------------------------------------------------------------------------------


class _Names:
    """Names as indices in order of first appearance."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def codes(self, names: Iterable[str], default: str) -> list[int]:
        index = self.index
        return [index.setdefault(name or default, len(index)) for name in names]

    def group_codes(self, names: Iterable[str]) -> list[int]:
        """Return the same with -1 for an empty name."""
        index = self.index
        return [index.setdefault(name, len(index)) if name else -1 for name in names]


class _Columns:
    """The columns of a trace, gathered piece by piece."""

    def __init__(self) -> None:
        self.arrival_ns: list[Int64s] = []
        self.input_tokens: list[Int64s] = []
        self.output_tokens: list[Int64s] = []
        self.tenant: list[int] = []
        self.slo_class: list[int] = []
        self.prefix_group: list[int] = []
        self.prefix_tokens: list[Int64s] = []
        self.line_of: dict[str, int] = {}  # of each request_id
        self.tenants = _Names()
        self.slo_classes = _Names()
        self.prefix_groups = _Names()

    def add_ids(self, table: Table) -> None:
        for row, (name, line) in enumerate(
            zip(table.texts("request_id"), table.lines, strict=True)
        ):
            if not name:
                table.refuse(row, "request_id", "must not be empty")
            if (first := self.line_of.setdefault(name, line)) != line:
                table.refuse(
                    row, "request_id", f"must be unique; it stands on line {first} as well"
                )

    def add_names(self, table: Table, tenant: str, slo_class: str) -> None:
        self.tenant += self.tenants.codes(table.texts(tenant), _DEFAULT_TENANT)
        self.slo_class += self.slo_classes.codes(table.texts(slo_class), _DEFAULT_CLASS)
        for column, names in ((tenant, self.tenants), (slo_class, self.slo_classes)):
            if len(names.index) > _MOST_NAMES:
                raise TraceError(
                    f"{table.path}: {column} has more than {_MOST_NAMES} different values"
                )

    def add_groups(self, table: Table, prefix_tokens: str) -> Int64s:
        """Add who shares what; return the number of shared tokens per row."""
        groups = np.array(
            self.prefix_groups.group_codes(table.texts("prefix_group")), dtype=np.int64
        )
        if prefix_tokens not in table.header and (groups >= 0).any():
            table.refuse(
                int((groups >= 0).argmax()),
                "prefix_group",
                f"needs a column {prefix_tokens}, which says how many tokens the group shares",
            )
        shared = table.parsed(prefix_tokens, *_TOKENS, empty="0")
        self.prefix_group += groups.tolist()
        self.prefix_tokens.append(shared)
        return np.where(groups >= 0, shared, 0)

    def as_arguments(self, path: Path, *, sort: bool) -> dict[str, Any]:
        """Return the arguments of the core's make_trace."""
        arrival = np.concatenate(self.arrival_ns)
        columns: dict[str, Any] = {
            "arrival_ns": arrival,
            "input_tokens": np.concatenate(self.input_tokens).astype(np.int32),
            "output_tokens": np.concatenate(self.output_tokens).astype(np.int32),
            "tenant": np.array(self.tenant, dtype=np.uint16),
            "slo_class": np.array(self.slo_class, dtype=np.uint16),
        }
        groups = np.array(self.prefix_group, dtype=np.int64)
        shared = np.concatenate(self.prefix_tokens or [arrival[:0]])
        request_id = list(self.line_of)
        if sort:
            order = np.argsort(arrival, kind="stable")
            columns = {name: column[order] for name, column in columns.items()}
            if groups.size:
                groups, shared = groups[order], shared[order]
            request_id = [request_id[row] for row in order] if request_id else []
        segments = _group_segments(groups, shared) if self.prefix_groups.index else _no_segments()
        return (
            columns
            | segments
            | {
                "tenants": list(self.tenants.index),
                "slo_classes": list(self.slo_classes.index),
                "request_id": request_id,
                "file": str(path),
            }
        )


def _no_segments() -> dict[str, Any]:
    """Return the core's columns of shared segments where no prompt shares anything."""
    return _segments([], [], [])


def _segments(
    begin: npt.ArrayLike, content: npt.ArrayLike, tokens: npt.ArrayLike
) -> dict[str, Any]:
    return {
        "segment_begin": np.asarray(begin, dtype=np.uint32),
        "segment_content": np.asarray(content, dtype=np.uint64),
        "segment_tokens": np.asarray(tokens, dtype=np.uint32),
    }


def _group_segments(groups: Int64s, shared: Int64s) -> dict[str, Any]:
    """Return the same for prompts that begin with `shared` tokens of their group; -1: no group."""
    found = (groups >= 0) & (shared > 0)
    return _segments(np.append(0, np.cumsum(found)), groups[found], shared[found])


def _block_segments(
    hash_ids: Sequence[Sequence[int]], input_tokens: Sequence[int] | Int64s, block_size_tokens: int
) -> dict[str, Any]:
    """Return the same for prompts cut into blocks, of which only the last may be shorter."""
    counts = np.array([len(ids) for ids in hash_ids], dtype=np.int64)
    begin = np.append(0, np.cumsum(counts))
    tokens = np.full(begin[-1], block_size_tokens, dtype=np.int64)
    tokens[begin[1:] - 1] = np.asarray(input_tokens) - block_size_tokens * (counts - 1)
    return _segments(begin, list(itertools.chain.from_iterable(hash_ids)), tokens)


def _num_blocks(tokens: int, block_size_tokens: int) -> int:
    return -(-tokens // block_size_tokens)


def _read_azure(table: Table, columns: _Columns) -> None:
    columns.arrival_ns.append(table.parsed("TIMESTAMP", _timestamp_to_ns, _TIMESTAMP_ALLOWED))
    columns.input_tokens.append(table.parsed("ContextTokens", *_INPUT))
    columns.output_tokens.append(table.parsed("GeneratedTokens", *_TOKENS))
    columns.add_names(table, "tenant", "slo_class")


def _read_blis(table: Table, columns: _Columns) -> None:
    columns.arrival_ns.append(table.parsed("arrival_time_us", *_MICROSECONDS) * 1000)
    columns.output_tokens.append(table.parsed("output_tokens", *_TOKENS))
    columns.add_names(table, "tenant_id", "slo_class")
    columns.add_ids(table)
    shared = columns.add_groups(table, "prefix_length")
    # Without a group the server's own count of the prompt is the better one; with one, input_tokens
    # is the suffix.
    suffix = table.parsed("input_tokens", *_TOKENS)
    server = table.parsed("server_input_tokens", *_TOKENS, empty="0")
    grouped = np.array([group != "" for group in table.texts("prefix_group")], dtype=bool)
    prompt = shared + np.where(~grouped & (server > 0), server, suffix)
    wrong = (prompt < 1) | (prompt > MAX_TOKENS)
    if wrong.any():
        table.refuse(
            int(wrong.argmax()),
            "input_tokens",
            f"the prompt must have >= 1 and <= {MAX_TOKENS} tokens",
        )
    columns.input_tokens.append(prompt)


def _read_columns(table: Table, columns: _Columns) -> None:
    columns.arrival_ns.append(table.parsed("arrival_s", _seconds_to_ns, _SECONDS_ALLOWED))
    prompt = table.parsed("input_tokens", *_INPUT)
    columns.input_tokens.append(prompt)
    columns.output_tokens.append(table.parsed("output_tokens", *_TOKENS))
    columns.add_names(table, "tenant", "slo_class")
    if "request_id" in table.header:
        columns.add_ids(table)
    if "prefix_group" in table.header:
        too_long = columns.add_groups(table, "prefix_tokens") > prompt
        if too_long.any():
            row = int(too_long.argmax())
            table.refuse(row, "prefix_tokens", f"must be <= input_tokens ({prompt[row]})")


_READERS: Mapping[str, Callable[[Table, _Columns], None]] = {
    "azure": _read_azure,
    "blis": _read_blis,
    "reference": _read_blis,
    "columns": _read_columns,
}
_ARRIVAL_COLUMN = {
    "azure": "TIMESTAMP",
    "blis": "arrival_time_us",
    "reference": "arrival_time_us",
    "columns": "arrival_s",
}


def read_trace(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    sort: bool = False,
    unit: str = "ms",
    block_size_tokens: int = _BLOCK_SIZE_TOKENS,
    spread_s: float = 0,
    seed: int = 0,
) -> _core.workload.Trace:
    """Read recorded requests from a CSV file or a Mooncake JSONL file.

    Parameters
    ----------
    path : str or Path
        The file: UTF-8. CSV has a header row; columns and keys are found by name, further ones are
        ignored.
    format : str, optional
        One of `FORMATS`; by default the extension .jsonl, the header row or the first line's keys
        tell.

        - `columns`: `arrival_s` (decimal seconds, exact to the nanosecond, further digits rounded),
          `input_tokens` (the whole prompt) and `output_tokens`; optionally `request_id`, `tenant`,
          `slo_class`, and `prefix_group` with `prefix_tokens`: requests of a group begin with the
          same tokens.
        - `azure`: times count from the first request; a timestamp without a time zone is UTC.
          `tenant` and `slo_class` are read too if someone has added them.
        - `blis`, `reference`: times as in the file; `send_time_us` is ignored.
        - `mooncake`: `timestamp` (see `unit`), `input_length` and `output_length` in tokens, and
          `hash_ids`, one for each `block_size_tokens` of the prompt, the last block perhaps
          shorter: prompts that begin with the same ids begin with the same tokens. `request_id`,
          `tenant` and `slo_class` (text) are read too if someone has added them.
    sort : bool
        Sort the requests by time, those of one instant in the order of the file.
    unit : {"ms", "s"}
        Of a `mooncake` file: what its timestamps count. The published traces count milliseconds;
        the documentation of GuideLLM shows seconds. The file cannot tell.
    block_size_tokens : int
        Of a `mooncake` file: tokens per hash id, >= 1: 512 in the published traces, 16 or 64 in
        others.
    spread_s : float
        Of a `mooncake` file: its timestamps are rounded to steps (about 3 s in the published
        conversation trace), so that played as they are they make bursts that nobody measured. Each
        request arrives at a random time in the `spread_s` seconds that follow its timestamp, and
        before the next timestamp of the file; the order stays. 0: as in the file, with a warning if
        many requests share their instant.
    seed : int
        Of those random times, >= 0: the same seed gives the same trace.

    An empty tenant means "default", an empty class "standard". A `request_id` names one request.

    Raises
    ------
    TraceError
        The file cannot be read, holds no requests, or a value is not allowed. Without `sort`, also
        if a request is earlier than the one before.

    Warns
    -----
    UserWarning
        Two or more requests of a `mooncake` file per instant on average, and `spread_s` is 0. Of a
        `columns`, `azure` or `mooncake` file: columns or keys that are not used, apart from those
        that Spillway itself writes into requests.csv.

    """
    path = Path(path)
    _check_format(format)
    if format == "mooncake" or (format is None and _is_mooncake(path)):
        options = _MooncakeOptions(unit, block_size_tokens, spread_s, seed)
        return _core.workload.make_trace(**_read_mooncake(path, options, sort=sort))
    if (unit, block_size_tokens, spread_s) != ("ms", _BLOCK_SIZE_TOKENS, 0):
        raise TraceError(
            f"{path}: unit, block_size_tokens and spread_s are for traces of the format mooncake"
        )
    return _core.workload.make_trace(**read_columns(path, format=format, sort=sort))


def read_columns(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    sort: bool = False,
) -> dict[str, Any]:
    """Read a CSV file as arguments of the core's make_trace, for callers that change some."""
    path = Path(path)
    _check_format(format)
    pieces = tables(path)
    head = next(pieces)
    form = format or _detect(head)
    _check_header(head, form)
    if form in _OPTIONAL:
        _note_unused(path, head.header, form, (*_REQUIRED[form], *export.REQUEST_COLUMNS))
    columns = _Columns()
    previous: tuple[int, str, int] | None = None  # arrival, as written, line
    for table in pieces:
        _READERS[form](table, columns)
        if not sort:
            previous = _check_order(table, columns.arrival_ns[-1], _ARRIVAL_COLUMN[form], previous)
    if not columns.arrival_ns:
        raise TraceError(f"{path}: holds no requests, only a header row")
    arguments = columns.as_arguments(path, sort=sort)
    if form == "azure":
        arguments["arrival_ns"] = arguments["arrival_ns"] - arguments["arrival_ns"][0]
    return arguments


def _check_format(format: str | None) -> None:  # noqa: A002
    if format is not None and format not in FORMATS:
        raise TraceError(f"format = {format!r}: must be one of {', '.join(sorted(FORMATS))}")


def _detect(table: Table) -> str:
    for name, required in _REQUIRED.items():
        if set(required) <= set(table.header):
            return name
    seen = ",".join(table.header)
    known = "\n".join(f"  {name}: {doc}" for name, doc in FORMATS.items())
    raise TraceError(
        f"{table.path}: the header row is of no known format: {seen[:200]}"
        f"{'…' if len(seen) > 200 else ''}\nKnown formats:\n{known}"
    )


def _check_header(table: Table, format: str) -> None:  # noqa: A002
    missing = [name for name in _REQUIRED[format] if name not in table.header]
    if missing:
        raise TraceError(
            f"{table.path}: lacks {', '.join(missing)}, so it is not of the format {format} "
            f"({FORMATS[format]})"
        )
    twice = sorted({name for name in table.header if name and table.header.count(name) > 1})
    if twice:
        raise TraceError(f"{table.path}: the header row names {', '.join(twice)} more than once")


def _note_unused(
    path: Path, names: Iterable[str], format: str, known: Sequence[str]  # noqa: A002
) -> None:  # fmt: skip
    """Warn of columns or keys that are not read, which may be misspelt."""
    optional = _OPTIONAL[format]
    unused = []
    for name in names:
        if name and name not in known and name not in optional:
            near = difflib.get_close_matches(name, optional, n=1, cutoff=0.75)
            unused.append(name + (f" (did you mean {near[0]}?)" if near else ""))
    if unused:
        note(f"{path}: not used: {', '.join(unused)}; optional are {', '.join(optional)}")


def _check_order(
    table: Table, arrival_ns: Int64s, column: str, previous: tuple[int, str, int] | None
) -> tuple[int, str, int]:
    """Check that nobody arrives before the one before; return the last row for the next piece."""
    texts = table.texts(column)
    first = [] if previous is None else [previous[0]]
    backward = np.diff(arrival_ns, prepend=np.array(first, dtype=np.int64)) < 0
    if backward.any():
        at = int(backward.argmax())
        row = at if previous is not None else at + 1
        before = previous[1:] if previous and row == 0 else (texts[row - 1], table.lines[row - 1])
        table.refuse(
            row,
            column,
            f"is earlier than {before[0]!r} on line {before[1]}; --sort (sort=True in Python) "
            "sorts the requests by time",
        )
    return int(arrival_ns[-1]), texts[-1], table.lines[-1]


# --- Mooncake JSONL -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _MooncakeOptions:
    unit: str
    block_size_tokens: int
    spread_s: float
    seed: int

    def __post_init__(self) -> None:
        if self.unit not in _UNIT_NS:
            raise TraceError(f"unit = {self.unit!r}: must be ms or s")
        _check_block_size(self.block_size_tokens)
        if not 0 <= self.spread_s <= LONGEST_SPAN_S:
            raise TraceError(f"spread_s = {self.spread_s}: must be >= 0 and <= {LONGEST_SPAN_S}")
        if self.seed < 0:
            raise TraceError(f"seed = {self.seed}: must be >= 0")


class _MooncakeRow(NamedTuple):
    arrival_ns: int
    input_tokens: int
    output_tokens: int
    hash_ids: list[int]
    request_id: str
    tenant: str
    slo_class: str


def _check_block_size(block_size_tokens: int) -> None:
    if not 1 <= block_size_tokens <= MAX_TOKENS:
        raise TraceError(
            f"block_size_tokens = {block_size_tokens}: must be >= 1 and <= {MAX_TOKENS}"
        )


def _is_mooncake(path: Path) -> bool:
    if path.suffix == ".jsonl":
        return True
    try:
        with filesystem.open_text(path) as stream:
            first = json.loads(next((line for line in stream if line.strip()), ""))
    except (OSError, ValueError, RecursionError):
        return False  # what reads it as CSV says what is wrong
    return isinstance(first, dict) and set(_MOONCAKE_KEYS) <= set(first)


def _read_mooncake(path: Path, options: _MooncakeOptions, *, sort: bool) -> dict[str, Any]:
    """Return the arguments of the core's make_trace."""
    rows: list[_MooncakeRow] = []
    before: tuple[int, Any] = (0, None)  # line, timestamp
    keys: dict[str, None] = {}
    line_of: dict[str, int] = {}  # of each request_id
    for line in _json_lines(path):
        keys |= dict.fromkeys(line.values)
        row = _mooncake_row(line, options)
        timestamp = line.values["timestamp"]
        if not sort and rows and row.arrival_ns < rows[-1].arrival_ns:
            line.refuse(
                "timestamp",
                f"is earlier than {before[1]} on line {before[0]}; --sort (sort=True in Python) "
                "sorts the requests by time",
            )
        if rows and (row.request_id == "") != (rows[-1].request_id == ""):
            raise TraceError(
                f"{path} line {line.number}: request_id must stand on every line or on none"
            )
        if (first := line_of.setdefault(row.request_id, line.number)) != line.number and (
            row.request_id
        ):
            line.refuse("request_id", f"must be unique; it stands on line {first} as well")
        rows.append(row)
        before = (line.number, timestamp)
    if not rows:
        raise TraceError(f"{path}: holds no requests")
    _note_unused(path, keys, "mooncake", _MOONCAKE_KEYS)
    if sort:
        rows.sort(key=lambda row: row.arrival_ns)
    tenants, slo_classes = _Names(), _Names()
    tenant = tenants.codes((row.tenant for row in rows), _DEFAULT_TENANT)
    slo_class = slo_classes.codes((row.slo_class for row in rows), _DEFAULT_CLASS)
    for key, names in (("tenant", tenants), ("slo_class", slo_classes)):
        if len(names.index) > _MOST_NAMES:
            raise TraceError(f"{path}: {key} has more than {_MOST_NAMES} different values")
    arrival = np.array([row.arrival_ns for row in rows], dtype=np.int64)
    prompt = np.array([row.input_tokens for row in rows], dtype=np.int64)
    return {
        "arrival_ns": _spread(path, arrival, options),
        "input_tokens": prompt.astype(np.int32),
        "output_tokens": np.array([row.output_tokens for row in rows], dtype=np.int32),
        "tenant": np.array(tenant, dtype=np.uint16),
        "tenants": list(tenants.index),
        "slo_class": np.array(slo_class, dtype=np.uint16),
        "slo_classes": list(slo_classes.index),
        **_block_segments([row.hash_ids for row in rows], prompt, options.block_size_tokens),
        "request_id": [row.request_id for row in rows] if rows[0].request_id else [],
        "file": str(path),
    }


@dataclass(frozen=True)
class _JsonLine:
    path: Path
    number: int
    values: dict[str, Any]

    def refuse(self, key: str, allowed: str) -> NoReturn:
        value = self.values[key]
        shown = str(value) if isinstance(value, decimal.Decimal) else repr(value)
        raise TraceError(f"{self.path} line {self.number}, {key} = {shown[:100]}: {allowed}")

    def whole(self, key: str, lowest: int, highest: int) -> int:
        value = self.values[key]
        if type(value) is not int or not lowest <= value <= highest:
            self.refuse(key, f"must be a whole number >= {lowest} and <= {highest}")
        return value

    def text(self, key: str) -> str:
        """Return the text of an optional key; "" if it is not there."""
        value = self.values.get(key, "")
        if not isinstance(value, str):
            self.refuse(key, "must be text")
        return value


def _json_lines(path: Path) -> Iterator[_JsonLine]:
    """Read the objects of a JSONL file one by one; empty lines are skipped."""
    try:
        with filesystem.open_text(path) as stream:
            for number, text in enumerate(stream, start=1):
                if text.strip():
                    yield _JsonLine(path, number, _json_object(text, f"{path} line {number}"))
    except OSError as error:
        raise TraceError(str(filesystem.cannot("read", path, error))) from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: is no text file; JSONL in UTF-8 is needed") from error


def _json_object(text: str, place: str) -> dict[str, Any]:
    try:
        # Instants are taken as written.
        values = json.loads(text, parse_float=decimal.Decimal, object_pairs_hook=yaml.unique_keys)
    except (json.JSONDecodeError, yaml.UnreadableError) as error:
        raise TraceError(f"{place}: is no JSON: {error}") from error
    except RecursionError as error:
        raise TraceError(f"{place}: is no JSON: nested too deeply") from error
    except (ValueError, decimal.InvalidOperation) as error:
        raise TraceError(f"{place}: is no JSON: a number of too many digits") from error
    if not isinstance(values, dict):
        raise TraceError(f"{place}: must be a JSON object, not {text.strip()[:60]}")
    if missing := [key for key in _MOONCAKE_KEYS if key not in values]:
        raise TraceError(
            f"{place}: lacks {', '.join(missing)}, so it is not of the format mooncake "
            f"({FORMATS['mooncake']})"
        )
    return values


def _mooncake_row(line: _JsonLine, options: _MooncakeOptions) -> _MooncakeRow:
    block = options.block_size_tokens
    prompt = line.whole("input_length", 1, MAX_TOKENS)
    ids = line.values["hash_ids"]
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i <= _HIGHEST_ID for i in ids):
        line.refuse("hash_ids", f"must be a list of whole numbers >= 0 and <= {_HIGHEST_ID}")
    if len(ids) != (needed := _num_blocks(prompt, block)):
        raise TraceError(
            f"{line.path} line {line.number}, hash_ids = {len(ids)} ids: must be {needed}, one per "
            f"{block} tokens of input_length ({prompt}); --trace-block-size-tokens "
            "(block_size_tokens in Python) says how many tokens an id stands for"
        )
    return _MooncakeRow(
        arrival_ns=_timestamp_ns(line, options.unit),
        input_tokens=prompt,
        output_tokens=line.whole("output_length", 0, MAX_TOKENS),
        hash_ids=ids,
        request_id=line.text("request_id"),
        tenant=line.text("tenant"),
        slo_class=line.text("slo_class"),
    )


def _timestamp_ns(line: _JsonLine, unit: str) -> int:
    value = line.values["timestamp"]
    scale_ns = _UNIT_NS[unit]
    highest = LONGEST_SPAN_S * 1_000_000_000 // scale_ns
    if type(value) not in (int, decimal.Decimal) or not 0 <= value <= highest:
        line.refuse("timestamp", f"must be a number >= 0 and <= {highest} ({unit})")
    if type(value) is int:
        return value * scale_ns
    return int(_EXACT.multiply(value, scale_ns).to_integral_value(context=_EXACT))


def _spread(path: Path, arrival_ns: Int64s, options: _MooncakeOptions) -> Int64s:
    """Spread the requests of each instant, in order, over what follows it."""
    instants, at = np.unique(arrival_ns, return_inverse=True)
    spread_ns = round(options.spread_s * 1e9)
    if spread_ns == 0:
        if len(at) >= max(_CROWDED_ROWS, _CROWDED * len(instants)):
            note(
                f"{path}: its {len(at)} requests arrive at only {len(instants)} instants, as "
                "rounded timestamps do; --trace-spread-s (spread_s in Python) spreads them"
            )
        return arrival_ns
    room = np.minimum(np.diff(instants, append=instants[-1] + spread_ns), spread_ns)[at]
    # NumPy promises the numbers of a bit generator, though not those of its distributions.
    share = (np.random.PCG64(options.seed).random_raw(len(at)) >> np.uint64(11)) * 2.0**-53
    later = np.minimum((share * room).astype(np.int64), room - 1)
    spread: Int64s = np.sort(arrival_ns + later)
    return spread


def write_mooncake(
    trace: _core.workload.Trace,
    path: str | Path,
    *,
    block_size_tokens: int = _BLOCK_SIZE_TOKENS,
) -> None:
    """Write a trace as Mooncake JSONL, timestamps in milliseconds with all their digits.

    Parameters
    ----------
    trace : Trace
        Its prompts share whole blocks, as those of a Mooncake trace do, or nothing. What a prompt
        shares with nobody gets ids of its own.
    path : str or Path
        The file; it takes the place of another.
    block_size_tokens : int
        Tokens per hash id, >= 1.

    A line also has `tenant` and `slo_class` where they are not "default" and "standard", and
    `request_id` if the trace names its requests; other readers of the format ignore them.

    Raises
    ------
    UsageError
        The trace holds no requests, only their digest.
    TraceError
        A prompt shares something else than whole blocks of that size (the message names the
        request), or the file cannot be written.

    """
    path = Path(path)
    _check_block_size(block_size_tokens)
    if not trace.has_requests:
        raise _core.sim.UsageError("the trace holds no requests, only their digest: read it again")
    lines = _mooncake_lines(trace._columns(), block_size_tokens)
    try:
        with (
            filesystem.replacing(path) as temporary,
            temporary.open("w", encoding="utf-8") as stream,
        ):
            stream.writelines(lines)
    except ConfigError as error:
        raise TraceError(str(error)) from error


def _mooncake_lines(columns: Mapping[str, Any], block_size_tokens: int) -> Iterator[str]:
    contents = columns["segment_content"].tolist()
    lengths = columns["segment_tokens"].tolist()
    used = set(contents)
    unused = (number for number in itertools.count() if number not in used)
    arrivals, prompts, outputs = (
        columns[name].tolist() for name in ("arrival_ns", "input_tokens", "output_tokens")
    )
    begin = columns["segment_begin"].tolist() or [0] * (len(prompts) + 1)
    for row, prompt in enumerate(prompts):
        shared = slice(begin[row], begin[row + 1])
        ids, tokens = contents[shared], lengths[shared]
        count = _num_blocks(prompt, block_size_tokens)
        whole = [min(block_size_tokens, prompt - block_size_tokens * i) for i in range(len(tokens))]
        if tokens != whole:
            raise TraceError(
                f"request {row} shares segments of {', '.join(map(str, tokens[:8]))} tokens: must "
                f"be blocks of {block_size_tokens}; only the last of a prompt may be shorter"
            )
        ids += itertools.islice(unused, count - len(ids))
        tenant = columns["tenants"][columns["tenant"][row]]
        slo_class = columns["slo_classes"][columns["slo_class"][row]]
        names = {}
        if columns["request_id"]:
            names["request_id"] = columns["request_id"][row]
        if tenant != _DEFAULT_TENANT:
            names["tenant"] = tenant
        if slo_class != _DEFAULT_CLASS:
            names["slo_class"] = slo_class
        values = {"input_length": prompt, "output_length": outputs[row], "hash_ids": ids, **names}
        yield f'{{"timestamp": {_milliseconds(arrivals[row])}, {json.dumps(values)[1:]}\n'


def _milliseconds(ns: int) -> str:
    whole, rest = divmod(ns, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)


# --- arrays ---------------------------------------------------------------------------------------


def trace(
    *,
    arrival_s: npt.ArrayLike,
    input_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    tenant: str | Iterable[str] | None = None,
    slo_class: str | Iterable[str] | None = None,
    request_id: Iterable[str] | None = None,
    prefix_group: Iterable[str | None] | None = None,
    prefix_tokens: npt.ArrayLike | None = None,
    hash_ids: Iterable[Sequence[int]] | None = None,
    block_size_tokens: int = _BLOCK_SIZE_TOKENS,
) -> _core.workload.Trace:
    """Build a trace from arrays, one entry per request in order of arrival.

    Parameters
    ----------
    arrival_s : array-like of float
        Arrivals in seconds, ascending; rounded to the nanosecond.
    input_tokens, output_tokens : array-like of int
        Length of the whole prompt (>= 1) and of the output (>= 0), in tokens.
    tenant, slo_class : str or sequence of str, optional
        One for all requests or one each; "default" and "standard" if left out or empty.
    request_id : sequence of str, optional
        Names of the requests, all different; their positions if left out.
    prefix_group, prefix_tokens : sequences, optional
        The prompts of a group begin with the same `prefix_tokens` tokens; None or "" is no group.
    hash_ids : sequence of sequences of int, optional
        The content of each prompt, block by block: prompts that begin with the same ids begin with
        the same tokens. Instead of prefix groups.
    block_size_tokens : int
        Tokens per hash id, >= 1; the last block of a prompt may be shorter.

    Raises
    ------
    ConfigError
        A value is out of range, not whole, not finite, earlier than the one before, or an array is
        of another length than `arrival_s`.
    TypeError
        An argument is not one-dimensional or not of the type given above.

    """
    arrival = _numbers("arrival_s", arrival_s).astype(np.float64)
    rows = len(arrival)
    if rows == 0:
        raise config_error([("arrival_s", "[]", "must hold at least one request")])
    violations: list[Violation] = []
    violations += _first_outside("arrival_s", arrival, 0, LONGEST_SPAN_S, whole=False)
    prompt = _tokens("input_tokens", input_tokens, 1, rows, violations)
    output = _tokens("output_tokens", output_tokens, 0, rows, violations)
    tenants, tenant_codes = _coded("tenant", tenant, _DEFAULT_TENANT, rows, violations)
    classes, class_codes = _coded("slo_class", slo_class, _DEFAULT_CLASS, rows, violations)
    ids = [] if request_id is None else _unique("request_id", request_id, rows, violations)
    segments = _no_segments()
    if (prefix_group is None) != (prefix_tokens is None):
        raise TypeError("prefix_group and prefix_tokens belong together: give both or neither")
    if prefix_group is not None and hash_ids is not None:
        raise TypeError("prefix_group and hash_ids exclude each other: give one of them")
    if hash_ids is not None:
        blocks = _blocks(hash_ids, prompt, block_size_tokens, violations)
        if not violations:
            segments = _block_segments(blocks, prompt, block_size_tokens)
    if prefix_group is not None and prefix_tokens is not None:
        names = _texts(
            "prefix_group",
            ["" if name is None else name for name in prefix_group],
            rows,
            violations,
        )
        groups = np.array(_Names().group_codes(names), dtype=np.int64)
        shared = _tokens("prefix_tokens", prefix_tokens, 0, rows, violations)
        if not violations and (too_long := (groups >= 0) & (shared > prompt)).any():
            row = int(too_long.argmax())
            violations.append(
                (
                    f"prefix_tokens[{row}]",
                    str(shared[row]),
                    f"must be <= input_tokens[{row}] ({prompt[row]})",
                )
            )
        if not violations:
            segments = _group_segments(groups, shared)
    backward = np.diff(arrival) < 0
    if not violations and backward.any():
        row = int(backward.argmax()) + 1
        violations.append(
            (
                f"arrival_s[{row}]",
                str(arrival[row]),
                f"must be >= arrival_s[{row - 1}] ({arrival[row - 1]})",
            )
        )
    if violations:
        raise config_error(violations)
    return _core.workload.make_trace(
        arrival_ns=np.rint(arrival * 1e9).astype(np.int64),
        input_tokens=prompt.astype(np.int32),
        output_tokens=output.astype(np.int32),
        tenant=np.array(tenant_codes, dtype=np.uint16),
        tenants=tenants,
        slo_class=np.array(class_codes, dtype=np.uint16),
        slo_classes=classes,
        **segments,
        request_id=ids,
        file="",
    )


def _blocks(
    hash_ids: Iterable[Sequence[int]],
    prompt: Int64s,
    block_size_tokens: int,
    violations: list[Violation],
) -> list[list[int]]:
    """Return the hash ids of each prompt as lists of int."""
    if not 1 <= block_size_tokens <= MAX_TOKENS:
        allowed = f"must be >= 1 and <= {MAX_TOKENS}"
        violations.append(("block_size_tokens", str(block_size_tokens), allowed))
    try:
        blocks = [[operator.index(one) for one in ids] for ids in hash_ids]
    except TypeError as error:
        raise TypeError("hash_ids must be a sequence of sequences of int") from error
    if not _check_length("hash_ids", len(blocks), len(prompt), violations) or violations:
        return []
    for row, ids in enumerate(blocks):
        needed = _num_blocks(int(prompt[row]), block_size_tokens)
        if not all(0 <= one <= _HIGHEST_ID for one in ids):
            allowed = f"must be >= 0 and <= {_HIGHEST_ID} each"
        elif len(ids) != needed:
            allowed = (
                f"must have {needed}, one per {block_size_tokens} tokens of input_tokens[{row}] "
                f"({prompt[row]})"
            )
        else:
            continue
        violations.append((f"hash_ids[{row}]", f"{ids!r:.60}", allowed))
        break
    return blocks


def _numbers(name: str, values: npt.ArrayLike) -> np.ndarray[tuple[int], np.dtype[Any]]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise TypeError(f"{name} must be a one-dimensional sequence of numbers") from error
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise TypeError(
            f"{name} must be a one-dimensional sequence of numbers, not {array.ndim}-dimensional "
            f"of {array.dtype}"
        )
    return array


def _check_length(name: str, length: int, rows: int, violations: list[Violation]) -> bool:
    if length != rows:
        violations.append(
            (name, f"{length} values", f"must be as long as arrival_s ({rows} values)")
        )
    return length == rows


def _first_outside(
    name: str,
    values: np.ndarray[tuple[int], np.dtype[Any]],
    lowest: int,
    highest: int,
    *,
    whole: bool,
) -> list[Violation]:
    good = (values >= lowest) & (values <= highest)  # false for NaN
    if whole:
        good &= values == np.floor(values)
    if good.all():
        return []
    row = int((~good).argmax())
    allowed = f"must be {'whole, ' if whole else ''}>= {lowest} and <= {highest}"
    return [(f"{name}[{row}]", str(values[row]), allowed)]


def _tokens(
    name: str, values: npt.ArrayLike, lowest: int, rows: int, violations: list[Violation]
) -> Int64s:
    array = _numbers(name, values)
    before = len(violations)
    if _check_length(name, len(array), rows, violations):
        violations += _first_outside(name, array, lowest, MAX_TOKENS, whole=True)
    return np.zeros(rows, dtype=np.int64) if len(violations) > before else array.astype(np.int64)


def _texts(name: str, values: Iterable[str], rows: int, violations: list[Violation]) -> list[str]:
    if isinstance(values, str):
        raise TypeError(f"{name} must be a sequence of str, not one str")
    texts = list(values)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{row}] must be a str, not {text!r}")
    _check_length(name, len(texts), rows, violations)
    return [str(text) for text in texts]  # numpy's own str type becomes Python's


def _unique(name: str, values: Iterable[str], rows: int, violations: list[Violation]) -> list[str]:
    texts = _texts(name, values, rows, violations)
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        if (before := first.setdefault(text, row)) != row:
            allowed = f"must be unique; {name}[{before}] is the same"
            violations.append((f"{name}[{row}]", repr(text), allowed))
            break
    return texts


def _coded(
    name: str,
    values: str | Iterable[str] | None,
    default: str,
    rows: int,
    violations: list[Violation],
) -> tuple[list[str], list[int]]:
    if values is None or isinstance(values, str):
        return [values or default], [0] * rows
    names = _Names()
    codes = names.codes(_texts(name, values, rows, violations), default)
    if len(names.index) > _MOST_NAMES:
        violations.append((name, f"{len(names.index)} different ones", f"must be <= {_MOST_NAMES}"))
        codes = [0] * rows
    return list(names.index), codes
