"""Messages to the caller: warnings, and errors about arguments."""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from spillway import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway._core.cluster import Simulation


T = TypeVar("T")

_PACKAGE = __name__.partition(".")[0]


def note(text: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line that called the package."""
    depth, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, category, stacklevel=depth)


class AlikeNotes:
    """Notes on several files, of which those that say the same of each become one."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, set[str]]] = {}  # without its file → the first, the files

    def add(self, file: object, text: str) -> None:
        """Keep a note on a file."""
        _, files = self._found.setdefault(text.replace(str(file), ""), (text, set()))
        files.add(str(file))

    @contextlib.contextmanager
    def of(self, file: object) -> Iterator[None]:
        """Keep the notes within the block, as those on a file."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            self.add(file, str(warning.message))

    def tell(self) -> None:
        """Warn of each; what is said of several files names the first, and how many they are."""
        for text, files in self._found.values():
            note(f"{text} (the same in {len(files)} files)" if len(files) > 1 else text)


def checked(name: str, value: T, wanted: Any, allowed: str) -> T:
    """`value` if it is of the class `wanted`; otherwise a TypeError that names the argument.

    `allowed`: description of the valid values.
    """
    if isinstance(value, wanted):
        return value
    raise TypeError(f"{name} must be {allowed}, not {value!r:.60}")


def checked_simulation(value: Simulation) -> Simulation:
    """`value` if it is a simulation; otherwise a TypeError."""
    return checked("simulation", value, _core.cluster.Simulation, "a Simulation")
