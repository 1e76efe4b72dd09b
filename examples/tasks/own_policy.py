"""Task j: the policy of shed_policy.py, checked and compared with a fixed limit."""

import sys
from pathlib import Path

from shed_policy import ShedLongest

import spillway
from spillway import policies, testing

SEEDS = 2 if "--quick" in sys.argv else 4
path = Path(__file__).with_name("shed.yaml")
fixed = spillway.load(path).with_({"gateway.admission": "always_admit"})
print(testing.check_policy(ShedLongest))
print(testing.check_policy(ShedLongest, simulation=fixed))
own = policies.load(spillway.load(path))
bounded = fixed.with_({"gateway.bands[0].queue.timeout_s": 0.5})
systems = {"fixed limit": fixed, "limit + timeout": bounded, "shed longest": own}
for name, system in systems.items():
    result = spillway.simulate(system)
    print(name, result.ledger["rejected"], *result.notes())
print(spillway.compare(systems, seeds=SEEDS, figures=["goodput", "request_throughput"]))
