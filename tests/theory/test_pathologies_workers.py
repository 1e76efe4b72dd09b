"""How the protection of workers goes wrong, each time beside what cures it (Dynamo's rules)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import Result, Simulation, gateway, instance, router, signals, simulate, workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

BUSY = gateway.Gateway(admission=gateway.BusyThreshold())


# ---- P14: all or nothing -------------------------------------------------------------------------

PERIOD_S = 2.0


def overloaded(**changes: Any) -> Result:
    """Four workers before about twice what they can serve, for a minute."""
    client = workload.Client(
        name="client",
        tenant="tenant",
        requests_per_s=140,
        duration_s=60,
        input_tokens=workload.Gaussian(
            mean_tokens=1000, std_dev_tokens=400, min_tokens=16, max_tokens=4000
        ),
        output_tokens=workload.Fixed(tokens=32),
    )
    simulation = Simulation(
        workload=workload.Synthetic(clients=[client], num_requests=None),
        gateway=BUSY,
        router=router.LeastLoaded(),
        instances=instance.InstanceGroup(count=4),
        signals=signals.Scraped(period_s=PERIOD_S),
        busy_monitor=signals.BusyMonitor(active_prefill_tokens_threshold=8000),
    )
    return simulate(simulation.with_(changes), 1)


def admitted_shares(result: Result) -> NDArray[np.float64]:
    """Per period of the scrapes, without the first."""
    requests = result.requests
    period = np.floor(requests["arrival_s"] / PERIOD_S).astype(int)
    return np.array([requests["admitted"][period == k].mean() for k in range(1, int(period.max()))])
