"""A first run: an overloaded fleet, and how large a token bucket should be.

Four servers get 250 requests/s, more than they can serve. A token bucket in front of them sheds the
excess. How many tokens per second should it admit?
"""

from __future__ import annotations

import spillway
from spillway import gateway, instance, workload

SEEDS = range(4)
REFILLS = (80_000, 100_000, 120_000)  # tokens/s


def simulation() -> spillway.Simulation:
    """The fleet without a bucket."""
    return spillway.Simulation(
        workload=workload.Synthetic(requests_per_s=250, num_requests=10_000),
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=0.5)],
        router="least_loaded",
        instances=instance.InstanceGroup(count=4),
    )


def main() -> None:
    """Runs the fleet without a bucket and with three different ones, on the same requests."""
    fleet = simulation()
    configurations = {"everything is admitted": fleet}
    for refill in REFILLS:
        bucket = gateway.TokenBucket(capacity_tokens=50_000, refill_tokens_per_s=refill)
        configurations[f"bucket of {refill:,} tokens/s"] = fleet.with_(
            {"gateway.admission": bucket}
        )
    print(f"{'':28}{'in time':>18}{'shed':>8}{'p99 TTFT':>12}")
    runs = spillway.run_many(list(configurations.values()), SEEDS)
    for name, results in zip(configurations, runs, strict=True):
        figures = results.summary()
        shed = figures["rejected"].mean / figures["offered"].mean
        goodput = figures["goodput"]
        in_time = f"{goodput.mean:.1%} ± {goodput.half_width:.1%}"
        print(f"{name:28}{in_time:>18}{shed:>8.1%}{figures['p99_ttft_ms'].mean / 1000:>10.2f} s")
    print(f"\nMeans over {len(SEEDS)} seeds with 95% confidence intervals.")
    print("In time: first token within 0.5 s of arrival, as a share of all requests.")


if __name__ == "__main__":
    main()
