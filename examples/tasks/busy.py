"""Task e: what NVIDIA Dynamo's busy thresholds 0.5, 0.85 and 0.95 reject, and which to choose."""

import sys

import spillway
from spillway import instance, presets, workload

SEEDS = 2 if "--quick" in sys.argv else 4
base = spillway.Simulation(
    workload=workload.Synthetic(
        requests_per_s=5,
        num_requests=1500,
        clients=[
            workload.Client(
                input_tokens=workload.Lognormal(mu=8.0, sigma=0.7, max_tokens=14_000),
                output_tokens=workload.Lognormal(mu=5.5, sigma=0.6, max_tokens=1500),
            )
        ],
    ),
    slo_classes=[workload.SloClass(name="standard", target_ttft_s=2)],
    instances=instance.Server(model="llama-3.1-8b", gpu="l40s", max_model_len=16384).group.replace(
        count=2
    ),
)
systems = {"none": presets.get("dynamo-1.3").apply(base)}
for share in (0.5, 0.85, 0.95):
    busy = presets.get("dynamo-1.3", active_decode_blocks_threshold=share)
    systems[f"{share}"] = busy.apply(base)
for name, system in systems.items():
    results = spillway.simulate(system, seeds=range(SEEDS))
    of = results.summary()
    requests = results[0].requests
    out = requests["outcome"] == "rejected"
    print(name, {key: str(of[key]) for key in ("goodput", "rejected", "p99_ttft_ms")})
    if out.any():
        tokens = requests["input_tokens"]
        print("  mean prompt, rejected:", tokens[out].mean(), "others:", tokens[~out].mean())
        print("  ", results[0].admission_regret().summary())
order = {name: systems[name] for name in ("0.85", "0.5", "0.95")}
print(spillway.compare(order, seeds=range(10, 10 + 2 * SEEDS), figures=["goodput"]))
