"""JSONL files with a JSON object per line, each a request."""

from __future__ import annotations

import decimal
import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config import filesystem, yaml
from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS
from spillway.interop.traces.error import TraceError
from spillway.interop.traces.table import ROWS_AT_ONCE, Table

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from spillway.interop.traces.format import Format
    from spillway.interop.traces.table import Int64s

__all__ = ["JsonlTable", "columns_in", "tables_of"]


def __dir__() -> list[str]:
    return __all__


_UNIT_NS = {"ms": 1_000_000, "s": 1_000_000_000}
_EXACT = decimal.Context(prec=60)


@dataclass(frozen=True)
class JsonlTable(Table):
    """Consecutive objects of a JSONL file; numbers with a fraction are `Decimal`."""

    objects: Sequence[dict[str, Any]]

    def cell(self, row: int, column: str) -> Any:
        """Return the value of a key; "" if the object does not have it."""
        return self.objects[row].get(column, "")

    def shown(self, row: int, column: str) -> str:
        """Return the value of a key for errors."""
        value = self.cell(row, column)
        text = str(value) if isinstance(value, decimal.Decimal) else repr(value)
        return text[:100]

    def values(self, key: str) -> list[Any]:
        """Return the values of a key; "" where an object does not have it."""
        return [one.get(key, "") for one in self.objects]

    def texts(self, key: str) -> list[str]:
        """Return the texts of a key; "" where an object does not have it."""
        texts = self.values(key)
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                self.refuse(row, key, "must be text")
        return texts

    def whole(self, key: str, *, at_least: int = 0, at_most: int = MAX_TOKENS) -> Int64s:
        """Return the whole numbers of a key."""
        values = self.values(key)
        for row, value in enumerate(values):
            if type(value) is not int or not at_least <= value <= at_most:
                self.refuse(row, key, f"must be a whole number >= {at_least} and <= {at_most}")
        return np.array(values, dtype=np.int64)

    def times_ns(self, key: str, unit: str) -> Int64s:
        """Return the exact times of a key in nanoseconds; `unit`: ms or s."""
        scale_ns = _UNIT_NS[unit]
        highest = LONGEST_SPAN_S * 1_000_000_000 // scale_ns
        times_ns = []
        for row, value in enumerate(self.values(key)):
            if type(value) not in (int, decimal.Decimal) or not 0 <= value <= highest:
                self.refuse(row, key, f"must be a number >= 0 and <= {highest} ({unit})")
            exact = _EXACT.multiply(value, scale_ns)
            times_ns.append(int(exact.to_integral_value(context=_EXACT)))
        return np.array(times_ns, dtype=np.int64)


def tables_of(path: Path, form: Format) -> Generator[JsonlTable, None, None]:
    """Read a file of a format in pieces; empty lines are skipped.

    Raises TraceError if the file cannot be read, is not text, or a line is not an object of the
    format.
    """
    try:
        with filesystem.open_text(path) as stream:
            rows = ((number, text) for number, text in enumerate(stream, start=1) if text.strip())
            while piece := list(itertools.islice(rows, ROWS_AT_ONCE)):
                yield _table(path, form, piece)
    except OSError as error:
        raise TraceError(str(filesystem.cannot("read", path, error))) from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not a text file; must be JSONL in UTF-8") from error


def columns_in(line: str) -> list[str]:
    """Return the keys of an object; nothing if the line is not one."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(value) if isinstance(value, dict) else []


def _table(path: Path, form: Format, rows: Sequence[tuple[int, str]]) -> JsonlTable:
    objects = []
    for number, text in rows:
        place = f"{path} line {number}"
        objects.append(_object(text, place))
        form.check_columns(objects[-1], place)
    keys = tuple(dict.fromkeys(itertools.chain.from_iterable(objects)))
    return JsonlTable(path, keys, [number for number, _ in rows], objects)


def _object(text: str, place: str) -> dict[str, Any]:
    try:
        # Exact times.
        values = json.loads(text, parse_float=decimal.Decimal, object_pairs_hook=yaml.unique_keys)
    except (json.JSONDecodeError, yaml.UnreadableError) as error:
        raise TraceError(f"{place}: not valid JSON: {error}") from error
    except RecursionError as error:
        raise TraceError(f"{place}: not valid JSON: nested too deeply") from error
    except (ValueError, decimal.InvalidOperation) as error:
        raise TraceError(f"{place}: not valid JSON: a number has too many digits") from error
    if not isinstance(values, dict):
        raise TraceError(f"{place}: must be a JSON object, not {text.strip()[:60]}")
    return values
