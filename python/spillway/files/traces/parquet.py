"""Parquet files, by PyArrow (extra `frames`)."""

from __future__ import annotations

import decimal
import io
import json
from typing import TYPE_CHECKING, Any, BinaryIO

from spillway.config import extras
from spillway.files.error import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


MAGIC = b"PAR1"

_ROWS_AT_ONCE = 1 << 14


def opened(path: Path, stream: BinaryIO) -> tuple[str, Iterator[dict[str, Any]]]:
    """Return an object with the columns of a file as keys, as JSON, and its rows as objects.

    Raises TraceError without PyArrow, or if the file is damaged.
    """
    try:
        arrow = extras.require("pyarrow", "frames")
        parquet = extras.require("pyarrow.parquet", "frames")
    except ImportError as error:
        raise TraceError(f"{path}: a Parquet file: {error}") from error
    damaged = (arrow.ArrowException, OSError)
    try:
        file = parquet.ParquetFile(stream if stream.seekable() else io.BytesIO(stream.read()))
        names = file.schema_arrow.names
    except damaged as error:
        raise TraceError(f"{path}: damaged Parquet file: {error}") from error
    return json.dumps(dict.fromkeys(names)), _rows(path, file, arrow, damaged)


def _rows(
    path: Path, file: Any, arrow: Any, damaged: tuple[type[Exception], ...]
) -> Iterator[dict[str, Any]]:
    batches = file.iter_batches(batch_size=_ROWS_AT_ONCE)
    while True:
        try:
            batch = next(batches, None)
            rows = [] if batch is None else _table(arrow, batch).to_pylist()
        except damaged as error:
            raise TraceError(f"{path}: damaged Parquet file: {error}") from error
        if not rows:
            return
        yield from map(_exact, rows)


def _table(arrow: Any, batch: Any) -> Any:
    """Return a table whose instants are texts, and whose names of few values are, too."""
    table = arrow.Table.from_batches([batch])
    for at, column in enumerate(table.schema):
        if arrow.types.is_temporal(column.type) or arrow.types.is_dictionary(column.type):
            table = table.set_column(at, column.name, table.column(at).cast(arrow.string()))
    return table


def _exact(value: Any) -> Any:
    """Return a value with the decimal numbers that its floats are written as."""
    if isinstance(value, float):
        return decimal.Decimal(repr(value)) if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _exact(inner) for key, inner in value.items()}
    return value
