"""Read-only columns of one length, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Table"]


def __dir__() -> list[str]:
    return __all__


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
