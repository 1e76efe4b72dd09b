"""Messages to the caller: warnings, and errors about arguments."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from spillway import _core

if TYPE_CHECKING:
    from spillway._core.cluster import Simulation


T = TypeVar("T")

_PACKAGE = __name__.partition(".")[0]


def note(text: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line that called the package."""
    depth, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, category, stacklevel=depth)


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
