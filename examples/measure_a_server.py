"""Writes `measured_runs/`: what a benchmark client would record of a server.

The server is simulated, so its coefficients are known. Three loads with different lengths identify
them; a single load would leave most of them open.
"""

import csv
import json
from pathlib import Path

from spillway import Simulation, instance, simulate, workload

OUTPUT = Path("measured_runs")
SERVER = {
    "model": "example-8b",
    "gpu": "simulated",
    "vllm_version": "0.20.0",
    "max_num_seqs": 64,
    "max_num_batched_tokens": 2048,
    "num_gpu_blocks": 20000,
    "block_size": 16,
}
LATENCY = instance.Roofline(
    alpha0_us=4000, constant_us=2000, weights_us=12_000, token_us=60, norm=4, decode_us=40,
    decode_context_us=0.08, prefill_context_us=0.003,
)  # fmt: skip
GROUP = instance.InstanceGroup(
    max_num_seqs=64, max_num_batched_tokens=2048, max_model_len=0, num_kv_blocks=20_000,
    kv_cache={"reserve_full_prompt": True}, latency=LATENCY, async_scheduling=True,
)  # fmt: skip
RUNS = {  # requests/s, tokens of prompt and output from … to …
    "chat": (4, (100, 900), (20, 200)),
    "short": (9, (20, 200), (20, 120)),
    "documents": (3, (800, 3000), (10, 120)),
}


def main() -> None:
    """Writes the folder."""
    OUTPUT.mkdir(exist_ok=True)
    for seed, (name, (rate, prompts, outputs)) in enumerate(RUNS.items()):
        client = workload.Client(
            name=name,
            input_tokens=workload.Uniform(min_tokens=prompts[0], max_tokens=prompts[1]),
            output_tokens=workload.Uniform(min_tokens=outputs[0], max_tokens=outputs[1]),
        )
        requests = workload.Synthetic(requests_per_s=rate, num_requests=300, clients=[client])
        result = simulate(Simulation(workload=requests, instances=[GROUP]), seed).requests
        with (OUTPUT / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["send_s", "input_tokens", "output_tokens", "ttft_ms", "e2e_ms"])
            columns = ("arrival_s", "input_tokens", "output_tokens", "ttft_s", "e2e_s")
            for at, prompt, output, ttft_s, e2e_s in zip(
                *(result[c] for c in columns), strict=True
            ):
                row = [f"{at:.6f}", prompt, output, f"{1e3 * ttft_s:.3f}", f"{1e3 * e2e_s:.3f}"]
                writer.writerow(row)
    described = {"server": SERVER, "runs": [{"run": name} for name in RUNS]}
    (OUTPUT / "runs.json").write_text(json.dumps(described, indent=2) + "\n")
    print(f"{len(RUNS)} runs of {SERVER['model']} written to {OUTPUT.name}/")


if __name__ == "__main__":
    main()
