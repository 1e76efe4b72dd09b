"""Reading traces with PyArrow and without it, which must give the same."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa  # files of any size are read with it when it is already imported
import pytest

from spillway.files.traces import TraceError, arrow

if TYPE_CHECKING:
    from collections.abc import Callable

_Value = TypeVar("_Value")


def without_pyarrow(patch: pytest.MonkeyPatch) -> None:
    """Reads row by row."""
    patch.setattr(arrow, "_loaded", lambda *_: None)


def alike(read: Callable[[], _Value]) -> _Value:
    """What a function gives or raises, in both ways, with the same warnings."""
    assert arrow._loaded() is pa
    outcomes = []
    error = None
    for is_fast in (True, False):
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            if not is_fast:
                without_pyarrow(patch)
            value = None
            error = None
            try:
                value = read()
            except TraceError as refused:
                error = refused
        outcomes.append((value, str(error), [str(warning.message) for warning in notes]))
    fast, slow = outcomes
    assert fast == slow
    if error is not None:
        raise error
    return value  # type: ignore[return-value]
