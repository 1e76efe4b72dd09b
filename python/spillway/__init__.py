"""Simulator for overload control in LLM serving.

Build a `Simulation` from `workload`, `gateway`, `router`, `signals`, `instance` and `metrics`, run
it with `simulate`, look at the `Result`, and change one thing with `simulation.with_({"router":
"least_loaded"})`.
"""

import importlib
from typing import TYPE_CHECKING

# The modules of settings come first: they make the classes of the core.
from spillway import fleet, gateway, instance, metrics, router, signals, workload
from spillway._core.cluster import Simulation
from spillway._core.sim import ConfigError, InvariantError, LivelockError, UsageError, build_info

# Imported now: a later import of the module would hide the function of the same name.
from spillway.simulate import run_many, simulate

if TYPE_CHECKING:
    from spillway import presets, study
    from spillway._core.cluster import Change
    from spillway.advice.procedure import advise
    from spillway.calibration import calibrate
    from spillway.checking import check
    from spillway.comparison import compare
    from spillway.config import profiles
    from spillway.config.files import dump, fingerprint
    from spillway.data.intervals import Interval
    from spillway.diagnosis import diagnose
    from spillway.files.evidence import read
    from spillway.files.recordings import read_recordings
    from spillway.files.traces import TraceError, read_trace, trace
    from spillway.loading import load
    from spillway.result import Result, Results
    from spillway.session import Session, start
    from spillway.study import Space, Study

__version__: str = build_info["version"]

__all__ = [
    "Change",
    "ConfigError",
    "Interval",
    "InvariantError",
    "LivelockError",
    "Result",
    "Results",
    "Session",
    "Simulation",
    "Space",
    "Study",
    "TraceError",
    "UsageError",
    "advise",
    "build_info",
    "calibrate",
    "check",
    "compare",
    "diagnose",
    "dump",
    "fingerprint",
    "fleet",
    "gateway",
    "instance",
    "load",
    "metrics",
    "presets",
    "profiles",
    "read",
    "read_recordings",
    "read_trace",
    "router",
    "run_many",
    "signals",
    "simulate",
    "start",
    "study",
    "trace",
    "workload",
]

_HOMES = {
    "Change": "spillway._core.cluster",
    "Interval": "spillway.data.intervals",
    "Result": "spillway.result",
    "Results": "spillway.result",
    "Session": "spillway.session",
    "Space": "spillway.study",
    "Study": "spillway.study",
    "TraceError": "spillway.files.traces",
    "advise": "spillway.advice.procedure",
    "calibrate": "spillway.calibration",
    "compare": "spillway.comparison",
    "check": "spillway.checking",
    "diagnose": "spillway.diagnosis",
    "dump": "spillway.config.files",
    "fingerprint": "spillway.config.files",
    "load": "spillway.loading",
    "read": "spillway.files.evidence",
    "read_recordings": "spillway.files.recordings",
    "read_trace": "spillway.files.traces",
    "start": "spillway.session",
    "trace": "spillway.files.traces",
}


_MODULES = {"profiles": "spillway.config.profiles"}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if not TYPE_CHECKING:  # or a type checker would take any name for one of the package's

    def __getattr__(name: str) -> object:
        """Imports a name of `_HOMES` or a module when it is first used."""
        if home := _HOMES.get(name):
            value = getattr(importlib.import_module(home), name)
            globals()[name] = value
            return value
        module = _MODULES.get(name, f"spillway.{name}")
        if not name.startswith("_"):
            try:
                return importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise
        raise AttributeError(f"module 'spillway' has no attribute {name!r}", name=name)
