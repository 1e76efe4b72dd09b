"""Task d: a retry storm that outlives its trigger, and the setting that cures it."""

import spillway
from spillway import instance, workload

START_S, END_S = 40, 55
base = spillway.Simulation(
    workload=workload.Synthetic(
        clients=[
            workload.Client(name="usual", requests_per_s=70, duration_s=140),
            workload.Client(
                name="burst", requests_per_s=140, start_s=START_S, duration_s=END_S - START_S
            ),
        ]
    ),
    slo_classes=[workload.SloClass(name="standard", target_ttft_s=1)],
    router="least_loaded",
    instances=instance.InstanceGroup(count=2),
)
patient = workload.Reaction(first_token_timeout_s=5, retries=[workload.Retry(max_attempts=5)])
stormy = base.replace(reaction=patient)
remedies = {
    "storm": {},
    "budget 10%": {"reaction.retries[0].budget_ratio": 0.1},
    "limit 256": {
        "gateway.limit": {"kind": "fixed", "max_in_flight": 256},
        "gateway.bands[0].queue.timeout_s": 1,
    },
}
for name, change in remedies.items():
    result = spillway.simulate(stormy.with_(change))
    print(name, result.recovery(start_s=START_S, end_s=END_S))
    print(*result.notes(), sep="\n")
