"""Task h: a trace of conversations, prefix-aware against least-loaded routing.

python examples/tasks/mooncake.py [TRACE]: examples/requests.csv without, which shares no prefixes.
"""

import sys
from pathlib import Path

import spillway
from spillway import instance, router, traffic, workload

QUICK = "--quick" in sys.argv
paths = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]
path = paths[0] if paths else Path(__file__).parents[1] / "requests.csv"

options = {"spread_s": 3} if path.suffix == ".jsonl" else {}  # Mooncake's instants are coarse
trace = spillway.read_trace(path, **options)
trace = traffic.transformed(
    trace,
    workload.Window(start_s=0, duration_s=10 if QUICK else 900),
    workload.Relabel(slo_class="standard"),
)
base = spillway.Simulation(
    workload=trace,
    slo_classes=[workload.SloClass(name="standard", target_ttft_s=2)],
    instances=instance.Server(model="llama-3.1-8b", gpu="h100").group.replace(count=4),
)
systems = {
    "least loaded": base.with_({"router": "least_loaded"}),
    "prefix-aware": base.with_({"router": router.Weighted()}),
}
for name, system in systems.items():
    print(name)
    print(spillway.simulate(system))
resampled = {
    name: system.replace(workload=traffic.resampled(trace)) for name, system in systems.items()
}
figures = ["goodput", "p99_ttft_ms"]
print(spillway.compare(resampled, seeds=3 if QUICK else 6, figures=figures))
