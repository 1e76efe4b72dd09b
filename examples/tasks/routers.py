"""Task c: round robin, least loaded and a weighted router compared over 8 seeds.

It draws the differences: routers.png.
"""

import sys

import spillway
from spillway import instance, router, workload

SEEDS, REQUESTS = (3, 1500) if "--quick" in sys.argv else (8, 3000)
base = spillway.Simulation(
    workload=workload.Synthetic(
        requests_per_s=60,
        num_requests=REQUESTS,
        clients=[
            workload.Client(
                input_tokens=workload.Lognormal(mu=6.8, sigma=1.0, max_tokens=12_000),
                output_tokens=workload.Lognormal(mu=4.8, sigma=0.8, max_tokens=1000),
            )
        ],
    ),
    slo_classes=[workload.SloClass(name="standard", target_ttft_s=0.3)],
    instances=instance.Server(model="llama-3.1-8b", gpu="h100", max_model_len=16384).group.replace(
        count=4
    ),
)
systems = {
    "round robin": base.with_({"router": "round_robin"}),
    "least loaded": base.with_({"router": "least_loaded"}),
    "weighted": base.with_({"router": router.Weighted(scorers=["queue_depth", "kv_utilization"])}),
}
figures = ["goodput", "p99_ttft_ms"]
found = spillway.compare(systems, seeds=SEEDS, figures=figures)
print(found)
found.plot().figure.savefig("routers.png")
# The table compares with the baseline only: the winner against the runner-up, on fresh seeds.
best = {name: systems[name] for name in ("least loaded", "weighted")}
print(spillway.compare(best, seeds=range(100, 100 + SEEDS), figures=figures))
