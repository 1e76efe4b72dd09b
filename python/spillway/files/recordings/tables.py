"""Files with a row per request, CSV or JSON, as tables of text whose columns the caller names."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.traces.csv_table import CsvTable, csv_tables
from spillway.files.traces.jsonl_table import at_path, tables_of, text_of
from spillway.files.traces.lines import opened

if TYPE_CHECKING:
    from collections.abc import Collection, Generator
    from pathlib import Path

    from spillway.files.traces.lines import Lines
    from spillway.files.traces.table import Skipped


def tables(
    path: Path, wanted: Collection[str], skipped: Skipped
) -> Generator[CsvTable, None, None]:
    """Yield a table without rows, which has the names of the columns, then the rows of the file.

    Of JSON, the tables hold the `wanted` columns; a name with dots leads into an object. Raises
    TraceError if the file cannot be read.
    """
    with opened(path) as lines:
        lines.enter(lambda found: any(at_path(found, name) != "" for name in wanted))
        if lines.is_json:
            yield from _of_json(lines, wanted, skipped)
            return
    with contextlib.closing(csv_tables(path, skipped)) as found:
        yield from found


def _of_json(
    lines: Lines, wanted: Collection[str], skipped: Skipped
) -> Generator[CsvTable, None, None]:
    header: tuple[str, ...] = ()
    form = Format(name="columns", doc="", layout="jsonl")
    for table in tables_of(lines, form, skipped):
        cells = {name: list(map(text_of, table.values(name))) for name in wanted}
        if not header:
            nested = [name for name in wanted if name not in table.columns and any(cells[name])]
            header = (*table.columns, *nested)
            yield CsvTable(lines.path, header, [], {}, unit=table.unit)
        yield CsvTable(lines.path, header, table.lines, cells, unit=table.unit)
    if not header:
        raise TraceError(f"{lines.path}: holds no requests")
