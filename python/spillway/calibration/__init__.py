"""Servers fitted to measured runs.

`calibrate` fits one; the `Profile` says what is known about it; `intervals` gives the answers of a
simulation with it as intervals. `fit_step_logs` fits the step times alone, to logs of single steps.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spillway.calibration.histograms import Scraped
    from spillway.calibration.procedure import calibrate
    from spillway.calibration.profile import Profile
    from spillway.calibration.step_log import fit_step_logs
    from spillway.calibration.uncertainty import intervals

__all__ = ["Profile", "Scraped", "calibrate", "fit_step_logs", "intervals"]

_HOMES = {
    "Profile": "profile",
    "Scraped": "histograms",
    "calibrate": "procedure",
    "fit_step_logs": "step_log",
    "intervals": "uncertainty",
}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # or a type checker would take any name for one of the package's

    def __getattr__(name: str) -> object:
        """Imports a name of `_HOMES` when it is first used."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
