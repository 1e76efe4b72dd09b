"""Task g: optimized weights of the router's scorers, the gain confirmed on fresh seeds."""

import sys

import spillway
from spillway import instance, router, workload

TRIALS, SEEDS, FRESH = (8, 1, 2) if "--quick" in sys.argv else (40, 3, 8)
clients = [
    workload.Client(
        name=f"group {n}",
        rate_fraction=1 / n,
        prefix_group=f"group {n}",
        prefix_tokens=2048,
        input_tokens=workload.Lognormal(mu=6, sigma=0.8, max_tokens=6000),
        output_tokens=workload.Lognormal(mu=4.5, sigma=0.6, max_tokens=1000),
    )
    for n in range(1, 13)
]
scorers = [
    router.QueueDepth(weight=2),
    router.KvUtilization(weight=2),
    router.PrefixAffinity(weight=3),
]
base = spillway.Simulation(
    workload=workload.Synthetic(requests_per_s=150, num_requests=2000, clients=clients),
    slo_classes=[workload.SloClass(name="standard", target_ttft_s=0.15)],
    router=router.Weighted(scorers=scorers),
    instances=instance.Server(model="llama-3.1-8b", gpu="h100", max_model_len=16384).group.replace(
        count=4
    ),
)
study = spillway.Study(
    base,
    {f"router.scorers[{kind}].weight": (0, 10) for kind in ("queue_depth", "prefix_affinity")},
    "goodput",
    seeds=SEEDS,
)
study.optimize(TRIALS)
print(study)
print(study.confirm(2, FRESH))
print(study.importance())
