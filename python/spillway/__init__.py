"""Simulator for overload control in LLM serving.

Compose a `Simulation` from nouns (`workload`, `gateway`, `router`, `signals`, `instance`,
`metrics`), run it with the one verb `simulate`, look at the `Result`, change one thing with
`simulation.with_({"router": "least_loaded"})`.
"""

from spillway import _config as _config  # completes the classes of the core before anyone uses them
from spillway import (
    fleet,
    gateway,
    instance,
    metrics,
    presets,
    profiles,
    router,
    scenarios,
    signals,
    study,
    workload,
)
from spillway._core.cluster import Simulation
from spillway._core.sim import (
    ConfigError,
    InvariantError,
    LivelockError,
    UsageError,
    build_info,
)
from spillway._statistics import Interval
from spillway.files import dump, fingerprint, load
from spillway.interop.traces import TraceError, read_trace, trace
from spillway.results import Result, Results
from spillway.simulate import run_many, simulate
from spillway.study import Space, Study

__version__: str = build_info["version"]

__all__ = [
    "ConfigError",
    "Interval",
    "InvariantError",
    "LivelockError",
    "Result",
    "Results",
    "Simulation",
    "Space",
    "Study",
    "TraceError",
    "UsageError",
    "build_info",
    "dump",
    "fingerprint",
    "fleet",
    "gateway",
    "instance",
    "load",
    "metrics",
    "presets",
    "profiles",
    "read_trace",
    "router",
    "run_many",
    "scenarios",
    "signals",
    "simulate",
    "study",
    "trace",
    "workload",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
