"""Capacity: the highest rate that a fleet serves in time, and the smallest fleet for a rate.

The target: a p99 of the time to first token of at most 500 ms, and nothing shed.
"""

from __future__ import annotations

import spillway
from spillway import instance, study, workload

SLO = {"p99_ttft_ms": "<=500", "shed": "<=0"}
RATE_PER_S = 200
SETTINGS = {"max_requests": 10_000, "seeds": 2}


def simulation() -> spillway.Simulation:
    """Chat traffic to one server."""
    chat = workload.Client(
        input_tokens=workload.Lognormal(mu=6, sigma=0.7, max_tokens=4000),
        output_tokens=workload.Lognormal(mu=4.6, sigma=0.6, max_tokens=1000),
    )
    return spillway.Simulation(
        workload=workload.Synthetic(requests_per_s=50, num_requests=2000, clients=[chat]),
        router="least_loaded",
        instances=instance.InstanceGroup(count=1),
    )


def main() -> None:
    """Solves for the rate, then for the number of servers."""
    fleet = simulation()
    rate = study.max_rate_under_slo(fleet, SLO, **SETTINGS)
    print(f"One server sustains {rate.feasible:.0f} requests/s.")
    print(f"At {rate.infeasible:.0f} it misses the target: {rate.first_breach}.\n")
    servers = study.min_instances_for_rate(fleet, SLO, RATE_PER_S, **SETTINGS)
    print(f"{RATE_PER_S} requests/s need {servers.feasible:.0f} servers.")
    print(f"{servers.infeasible:.0f} miss the target: {servers.first_breach}.\n")
    print(rate)


if __name__ == "__main__":
    main()
