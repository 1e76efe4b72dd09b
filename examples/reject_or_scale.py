"""Rejecting before, at or after the trigger of the autoscaler: a limit can hide the load.

The fleet grows by the requests in flight per server, and a server takes 40 s to load. A limit per
server below the scaler's target lets the scaler never see more than it wants to see: the fleet
stays small and rejects. A limit above it rejects only what the fleet cannot serve meanwhile.
"""

from __future__ import annotations

import spillway
from spillway import fleet, gateway, instance, workload

TARGET = 100
"""Requests in flight per server at which the scaler wants no other fleet."""
LIMITS = {"before": 80, "at": 100, "after": 160, "no limit": 100_000}


def simulation(cap_per_worker: int) -> spillway.Simulation:
    """One server of at most four, and traffic that triples after a minute."""
    return spillway.Simulation(
        workload=workload.Synthetic(
            clients=[
                workload.Client(name="usual", requests_per_s=30, duration_s=600),
                workload.Client(name="more", requests_per_s=60, start_s=60, duration_s=540),
            ]
        ),
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=1)],
        gateway=gateway.Gateway(
            limit=gateway.WorkerBudget(cap_per_worker=cap_per_worker),
            bands=[gateway.Band(queue=gateway.Queue(max_requests=20))],
        ),
        router="least_loaded",
        instances=instance.InstanceGroup(count=4, cost_per_hour=1),
        fleet=fleet.Fleet(
            initial_instances=1, autoscaler=fleet.TargetScaler(metric="in_flight", target=TARGET)
        ),
    )


def main() -> None:
    """Runs the four limits on the same requests."""
    print(f"The scaler wants {TARGET} requests in flight per server.\n")
    print(f"{'limit per server':22}{'in time':>9}{'rejected':>10}{'server-hours':>14}")
    for name, cap in LIMITS.items():
        result = spillway.simulate(simulation(cap))
        summary = result.summary()
        rejected = summary["rejected"] / summary["offered"]
        shares = f"{summary['goodput']:9.0%}{rejected:10.0%}"
        print(f"{f'{name} ({cap:,})':22}{shares}{summary['cost']:14.2f}")


if __name__ == "__main__":
    main()
