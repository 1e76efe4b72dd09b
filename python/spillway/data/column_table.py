"""Read-only columns of one length, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.config.extras import require

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


class Table(Mapping[str, "NDArray[Any]"]):
    """Read-only columns by name; the length of one of them (`_key`) is the number of rows."""

    _key: ClassVar[str]

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self[self._key])} rows, columns {', '.join(self)}>"

    def to_arrow(self) -> pa.Table:
        """The columns as a pyarrow Table (extra `frames`).

        NaN is null. A column with several values per row, such as one per tenant, is a column of
        lists of fixed size.
        """
        arrow = require("pyarrow", "frames")
        columns = {}
        for name, values in self.items():
            flat = arrow.array(values.reshape(-1), from_pandas=True)
            if values.ndim == 2:
                flat = arrow.FixedSizeListArray.from_arrays(flat, values.shape[1])
            columns[name] = flat
        table: pa.Table = arrow.table(columns)
        return table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule protocol, by which Polars, DuckDB and others read the columns."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)
