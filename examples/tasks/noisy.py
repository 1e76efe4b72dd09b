"""Task b: a noisy neighbor among three tenants, with deficit round robin and an AIMD limit.

It draws the gateway over time: gateway.png.
"""

import sys
from pathlib import Path

import spillway
from spillway import gateway, signals, workload

LENGTH_S = 15 if "--quick" in sys.argv else 60
base = spillway.load(Path(__file__).parents[1] / "noisy_neighbor.yaml").with_(
    {"gateway": gateway.Gateway(), "metrics.timeline_step_s": 0.5}
)
rates = {"chat": 24, "search": 24, "crawler": 12}
clients = [
    client.replace(rate_fraction=1, requests_per_s=rates[client.name], duration_s=LENGTH_S)
    for client in base.workload.clients
    if client.name in rates
]
burst = clients[-1].replace(
    name="burst", requests_per_s=96, start_s=LENGTH_S / 3, duration_s=LENGTH_S / 3
)
base = base.replace(workload=workload.Synthetic(clients=[*clients, burst]))
fair = base.replace(
    gateway=gateway.Gateway(
        bands=[
            gateway.Band(
                fairness=gateway.DeficitRoundRobin(cost={"unit": "prompt_tokens"}),
                queue=gateway.Queue(timeout_s=0.2),
            )
        ],
        limit=gateway.FixedLimit(max_in_flight=192),
        controller=gateway.Aimd(target_s=0.4),
        guard=gateway.Guard(floor=64, ceiling=512, cooldown_ticks=2),
        sensor=signals.Sensor(source="ttft", quantile=0.95, window_s=5, tick_s=1),
    )
)
for name, simulation in {"no gateway": base, "drr + aimd": fair}.items():
    result = spillway.simulate(simulation)
    print(name)
    print(result)
result.plot.gateway().savefig("gateway.png")
