"""Task a: limits for one server of a 70B model with p99 TTFT < 1 s, and servers needed without.

python examples/tasks/capacity.py [TRACE …]: each trace is a tenant; examples/requests.csv without.
"""

import sys
from pathlib import Path

import spillway
from spillway import gateway, instance, study, traffic, workload
from spillway.files import traces

QUICK = "--quick" in sys.argv
TRIALS, SEEDS, FRESH = (8, 2, 2) if QUICK else (40, 4, 8)
paths = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]

parts = [
    traffic.applied(
        traffic.transformed(
            spillway.read_trace(path),
            workload.Window(start_s=0, duration_s=5 if QUICK else 600),
            workload.Relabel(slo_class="standard", tenant=path.stem),
        )
    )
    for path in paths or [Path(__file__).parents[1] / "requests.csv"]
]
traces.write_csv(traffic.merged(*parts), "mine.csv")
trace = spillway.read_trace("mine.csv")
print(traffic.describe(trace))

server = instance.Server(model="llama-3.1-70b", gpu="h100", tp=4)
base = spillway.Simulation(
    workload=trace,
    slo_classes=[workload.SloClass(name="standard", target_ttft_s=1)],
    router="least_loaded",
    instances=server.group,
)
print(spillway.simulate(base))
constraints = {"p99_ttft_ms": "<1000", "shed": "<=0.01"}
print(study.min_instances_for_rate(base, constraints, seeds=1))

limited = base.replace(
    gateway=gateway.Gateway(
        limit=gateway.DualLimit(max_in_flight=128, max_awaiting_first_token=8),
        bands=[gateway.Band(queue=gateway.Queue(timeout_s=0.5))],
    )
)
resampled = limited.replace(workload=traffic.resampled(trace))  # a trace alone is one sample
found = spillway.Study(
    resampled,
    {
        "gateway.limit[dual_limit].max_in_flight": (16, 512),
        "gateway.limit[dual_limit].max_awaiting_first_token": (1, 32),
        "gateway.bands[0].queue.timeout_s": (0.05, 1.0),
    },
    "goodput",
    {"p99_ttft_ms[worst tenant]": "<=1000"},  # the pooled p99 hides that of the worst
    seeds=SEEDS,
)
found.optimize(TRIALS)
print(found)
confirmed = found.confirm(2, FRESH)
print(confirmed)
if confirmed.winner is None:
    print("no trial meets the target and beats the baseline; the first guess stays")
decision = limited if confirmed.winner is None else confirmed.best.replace(workload=trace)
print(spillway.simulate(decision))
spillway.dump(decision, "decision.yaml")
interval = spillway.simulate(decision, uncertainty=SEEDS)["p99_ttft_ms"]
print("p99 TTFT (ms), 90% over servers:", interval)
