"""Servers fitted to measured runs.

`calibrate` fits one; the `Profile` says what is known about it, and its `Verdict` whether it is a
server (`UnidentifiedError`: it is not); `intervals` gives the answers of a
simulation with it as intervals. `fit_step_logs` fits the step times alone, to logs of single steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway._lazy import lazy_names

if TYPE_CHECKING:
    from spillway.calibration.histograms import Scraped
    from spillway.calibration.procedure import calibrate
    from spillway.calibration.profile import Profile, UnidentifiedError
    from spillway.calibration.step_log import fit_step_logs
    from spillway.calibration.uncertainty import intervals
    from spillway.calibration.verdict import Verdict

__all__ = [
    "Profile",
    "Scraped",
    "UnidentifiedError",
    "Verdict",
    "calibrate",
    "fit_step_logs",
    "intervals",
]

_HOMES = {
    "Profile": "profile",
    "Scraped": "histograms",
    "UnidentifiedError": "profile",
    "Verdict": "verdict",
    "calibrate": "procedure",
    "fit_step_logs": "step_log",
    "intervals": "uncertainty",
}

if not TYPE_CHECKING:  # or a type checker would take any name for one of the package's
    __getattr__, __dir__ = lazy_names(globals(), _HOMES)
