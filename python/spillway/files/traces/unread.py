"""What the columns that no format reads say of the requests of a log: their names and models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config.formatting import sample
from spillway.config.messages import note
from spillway.files.traces.jsonl_table import JsonlTable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from spillway.files.traces.table import Table


_IDS = ("request_id", "requestId", "x_request_id", "req_id", "id", "span_id", "spanId")
_MODELS = ("model", "Model", "model_name", "model_id")
_MOST_MODELS = 5
_FEWEST = 5  # requests; a file of fewer is an example


class Unread:
    """The names and the models of the requests of a log, table by table."""

    def __init__(self, read: Collection[str]) -> None:
        self._read = read  # the columns that the caller names
        self._id = ""
        self._ids: list[np.ndarray[Any, Any]] = []
        self._models: dict[str, None] = {}
        self._requests = 0

    def add(self, table: Table) -> None:
        """Add the requests of a table."""
        self._requests += len(table)
        if column := self._column(table, _IDS):
            self._id = column
            texts = _texts(table, column)
            self._ids.append(np.fromiter(map(hash, filter(None, texts)), np.int64))
        if (column := self._column(table, _MODELS)) and len(self._models) <= _MOST_MODELS:
            self._models |= dict.fromkeys(filter(None, _texts(table, column)))

    def tell(self, path: Path) -> None:
        """Warn of requests with one name, and of several models."""
        if self._requests < _FEWEST:
            return
        if self._ids:
            ids = np.concatenate(self._ids)
            if repeated := len(ids) - len(np.unique(ids)):
                note(
                    f"{path}: {self._id} of {repeated:,} of {len(ids):,} requests is that of "
                    "another: the log has retries, or lists requests twice; each is read as a "
                    "request"
                )
        if len(self._models) > 1:
            names = [sample(name) for name in self._models][:_MOST_MODELS]
            more = ", …" if len(self._models) > _MOST_MODELS else ""
            note(
                f"{path}: requests of several models ({', '.join(names)}{more}) are read as those "
                "of one fleet; to tell them apart, name the columns, with model=… for instances of "
                "their own (instances[].models), or tenant=…"
            )

    def _column(self, table: Table, names: Sequence[str]) -> str | None:
        found = (name for name in names if name in table.columns and name not in self._read)
        return next(found, None)


def _texts(table: Table, column: str) -> list[str]:
    if not isinstance(table, JsonlTable):
        return list(table.texts(column))
    if table.arrays:  # the objects of such a table would be decoded for this alone
        array = table.array(column, "string")
        return [] if array is None else array.to_pylist()
    return [value if isinstance(value, str) else "" for value in table.values(column)]
