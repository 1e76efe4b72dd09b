"""Requests of a generator, and tenants of unequal size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from spillway import _core
from spillway._core.cluster import Simulation
from spillway._core.workload import Client, SloClass, Synthetic, Trace
from spillway.config import memory
from spillway.config.classes import config_error
from spillway.config.limits import MAX_NAMES
from spillway.config.messages import checked

if TYPE_CHECKING:
    from collections.abc import Sequence


def generated(synthetic: Synthetic, seed: int = 0) -> Trace:
    """The open-loop requests that a synthetic workload sends under `seed`, as a trace.

    The trace has no file. Arrivals are in whole nanoseconds, as in a run with the default
    `quantum_ns`.

    Raises ConfigError for a client with `closed_loop` arrivals, whose requests depend on the
    service, for more tenants or classes than a run takes, and for more requests than memory holds;
    ValueError unless 0 <= seed < 2**64.
    """
    checked("synthetic", synthetic, Synthetic, "a workload.Synthetic")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed = {seed}: must be >= 0 and < 2**64")
    for i, client in enumerate(synthetic.clients):
        if client.arrivals.kind == "closed_loop":
            allowed = "must be an open process: the requests of users depend on the service"
            raise config_error([(f"clients[{i}].arrivals", "closed_loop", allowed)])
    classes = [SloClass(name=name) for name in {client.slo_class for client in synthetic.clients}]
    memory.check([Simulation(workload=synthetic, slo_classes=classes)])  # before it is generated
    found: Trace = _core.workload._generated(synthetic, seed)  # type: ignore[attr-defined]
    return found


def zipf_clients(
    count: int, *, exponent: float = 1.0, client: Client | None = None
) -> Sequence[Client]:
    """Clients of `count` tenants whose shares of the rate follow Zipf's law.

    The tenant of rank k has the `rate_fraction` 1 / k**exponent.

    Parameters
    ----------
    count
        Number of tenants, >= 1 and <= 65535.
    exponent
        0: all equal; the larger, the more the first tenants dominate. Finite and >= 0.
    client
        What the clients have in common; None: `workload.Client()`. Its name and tenant get the
        suffixes -1, -2, …

    Raises ConfigError for values out of range, and for a client with `requests_per_s`.
    """
    violations = []
    if not 1 <= count <= MAX_NAMES:
        violations.append(("count", str(count), f"must be >= 1 and <= {MAX_NAMES}"))
    if not (math.isfinite(exponent) and exponent >= 0):
        violations.append(("exponent", f"{exponent:g}", "must be finite and >= 0"))
    shared = Client() if client is None else client
    if shared.requests_per_s is not None:
        allowed = "must be unset: the clients share the rate of the workload"
        violations.append(("client.requests_per_s", f"{shared.requests_per_s:g}", allowed))
    if violations:
        raise config_error(violations)
    return tuple(
        shared.replace(
            name=f"{shared.name}-{rank}",
            tenant=f"{shared.tenant}-{rank}",
            rate_fraction=rank**-exponent,
        )
        for rank in range(1, count + 1)
    )
