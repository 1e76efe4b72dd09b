"""Traffic as a material: traces with transforms, replications of a trace, and generators.

The transforms of a trace are settings of it (`workload.Trace.transforms`, such as
`workload.ScaleRate`), which the core applies before a run. So configuration files and studies
remember them, a study can search them (`workload.transforms[0].factor`), and random ones draw anew
for each seed. `changed` makes them, or other rates and lengths of a generator, by words such as
`B: rate x5 from 60s to 120s`.

`fit` makes a generator of a trace, a `workload.Synthetic`, and compares what both send;
`fit_sessions` does the same for sessions and shared prefixes, with users that wait for answers;
`describe` shows the statistics of a trace alone. `generated` returns the requests of a generator as
a trace, and `zipf_clients` makes tenants of unequal size. `read_load` makes a generator of a
configuration of a load generator, `read_client_pool` one of a client pool of ServeGen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway._lazy import lazy_names

if TYPE_CHECKING:
    from spillway.systems.servegen.load import read_client_pool
    from spillway.traffic.changes import changed
    from spillway.traffic.fitting import ClientFit, Fit, fit
    from spillway.traffic.generation import generated, zipf_clients
    from spillway.traffic.loads import read_load
    from spillway.traffic.replication import (
        applied,
        at_rate,
        block_length_s,
        halves,
        merged,
        rate_per_s,
        resampled,
        transformed,
    )
    from spillway.traffic.sessions import PrefixGroup, SessionFit, fit_sessions
    from spillway.traffic.trace_statistics import Check, Description, describe
    from spillway.traffic.writing import write

__all__ = [
    "Check",
    "ClientFit",
    "Description",
    "Fit",
    "PrefixGroup",
    "SessionFit",
    "applied",
    "at_rate",
    "block_length_s",
    "changed",
    "describe",
    "fit",
    "fit_sessions",
    "generated",
    "halves",
    "merged",
    "rate_per_s",
    "read_client_pool",
    "read_load",
    "resampled",
    "transformed",
    "write",
    "zipf_clients",
]

_HOMES = {
    **dict.fromkeys(__all__, "replication"),  # all but these:
    **dict.fromkeys(("ClientFit", "Fit", "fit"), "fitting"),
    **dict.fromkeys(("generated", "zipf_clients"), "generation"),
    "changed": "changes",
    "read_load": "loads",
    "write": "writing",
    **dict.fromkeys(("PrefixGroup", "SessionFit", "fit_sessions"), "sessions"),
    **dict.fromkeys(("Check", "Description", "describe"), "trace_statistics"),
    "read_client_pool": "spillway.systems.servegen.load",
}

if not TYPE_CHECKING:  # or a type checker would take any name for one of the package's
    __getattr__, __dir__ = lazy_names(globals(), _HOMES)
