"""Servers that do not notice that clients have left: after a burst they compute in vain for good.

Clients withdraw a request that has no first token after 5 s, and try once more. A server that
notices takes the request out of its batch or queue. A server that does not serves it to the end,
beside the second attempt, and this work keeps the requests that wait from being served in time.
"""

from __future__ import annotations

import spillway
from spillway import instance, workload

BURST_S = (60, 75)
NOTICES: dict[str, float | None] = {"at once": 0, "after 2 s": 2, "after 20 s": 20, "never": None}


def simulation(notices_after_s: float | None) -> spillway.Simulation:
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
        reaction=workload.Reaction(
            first_token_timeout_s=5, retries=[workload.Retry(max_attempts=2)]
        ),
        router="least_loaded",
        instances=instance.InstanceGroup(count=2, notices_departure_after_s=notices_after_s),
    )


def main() -> None:
    """Runs the servers on the same requests."""
    print(f"Share of requests in time; a burst from {BURST_S[0]} s to {BURST_S[1]} s.\n")
    print(
        f"{'they notice':14}{'before':>8}{'during':>8}{'after':>8}{'recovery':>10}{'in vain':>12}"
    )
    for name, notices_after_s in NOTICES.items():
        result = spillway.simulate(simulation(notices_after_s))
        found = result.recovery(*BURST_S)
        shares = (found.before, found.during or 0, found.after)
        took = "never" if found.recovered_after_s is None else f"{found.recovered_after_s:.0f} s"
        summary = result.summary()
        useful = summary["total_input_tokens"] + summary["total_output_tokens"]
        wasted = summary["wasted_tokens"] / (useful + summary["wasted_tokens"])
        print(f"{name:14}{''.join(f'{share:8.0%}' for share in shares)}{took:>10}{wasted:12.0%}")


if __name__ == "__main__":
    main()
