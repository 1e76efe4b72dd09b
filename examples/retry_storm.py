"""A retry storm: a burst of 15 s after which the fleet never recovers, and a budget that helps.

Clients withdraw a request that has no first token after 5 s. Whether they retry, and by which
rules, decides how long the effects of the burst last.
"""

from __future__ import annotations

import spillway
from spillway import instance, workload

BURST_S = (60, 75)
RULES = {
    "no retries": [],
    "up to 4 retries": [workload.Retry(max_attempts=5)],
    "up to 4, budget of 10%": [workload.Retry(max_attempts=5, budget_ratio=0.1)],
}


def simulation(retries: list[workload.Retry]) -> spillway.Simulation:
    """Two servers at three quarters of their capacity, and the burst."""
    start_s, end_s = BURST_S
    return spillway.Simulation(
        workload=workload.Synthetic(
            clients=[
                workload.Client(name="usual", requests_per_s=70, duration_s=240),
                workload.Client(
                    name="burst", requests_per_s=140, start_s=start_s, duration_s=end_s - start_s
                ),
            ]
        ),
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=1)],
        reaction=workload.Reaction(first_token_timeout_s=5, retries=retries),
        router="least_loaded",
        instances=instance.InstanceGroup(count=2),
    )


def main() -> None:
    """Runs the three rules on the same requests."""
    print(f"Share of requests in time; a burst from {BURST_S[0]} s to {BURST_S[1]} s.\n")
    header = f"{'before':>8}{'during':>8}{'after':>8}{'recovery':>10}{'attempts per request':>22}"
    print(f"{'':26}{header}")
    for name, retries in RULES.items():
        result = spillway.simulate(simulation(retries))
        found = result.recovery(*BURST_S)
        shares = (found.before, found.during or 0, found.after)
        took = "never" if found.recovered_after_s is None else f"{found.recovered_after_s:.0f} s"
        attempts = result.ledger["attempts"] / result.ledger["logical_requests"]
        print(f"{name:26}{''.join(f'{share:8.0%}' for share in shares)}{took:>10}{attempts:22.2f}")


if __name__ == "__main__":
    main()
