"""Task k: the decision of task a as files of llm-d and vLLM, read back and compared.

python examples/tasks/deploy.py [DECISION]: the file that capacity.py wrote, or decision.yaml here.
"""

import sys
from pathlib import Path

import spillway
from spillway import gateway, router
from spillway.files import deployments

QUICK = "--quick" in sys.argv
paths = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]

decision = spillway.load(paths[0] if paths else Path(__file__).with_name("decision.yaml"))
lost = deployments.export(decision, to="llm-d", allow_lossy=True)
print("as it was found, llm-d loses:", [loss.path for loss in lost.losses])
for name, simulation in {"wanted": decision, "deployed": lost.deployed}.items():
    of = spillway.simulate(simulation).summary()
    print(f"  {name}: goodput {of['goodput']:.3f}, p99 TTFT {of['p99_ttft_ms']:,.0f} ms")

# The same in terms of llm-d: a limit by concurrency, and a time to live.
found = []
for concurrency in (8, 24) if QUICK else (8, 12, 16, 24, 32, 48):
    for timeout_s in (0.2,) if QUICK else (0.1, 0.2, 0.4):
        one = decision.replace(
            router=router.Weighted(),
            gateway=gateway.Gateway(
                limit=gateway.Saturation(detector="concurrency", max_concurrency=concurrency),
                bands=[gateway.Band(priority=3, queue=gateway.Queue(timeout_s=timeout_s))],
            ),
        )
        of = spillway.simulate(one).summary()
        if of["p99_ttft_ms"] <= 1000:
            found.append((of["goodput"], concurrency, timeout_s, one))
if not found:
    raise SystemExit("no concurrency meets the target")
best = max(found, key=lambda each: each[:3])
print(best[:3])
spillway.dump(best[3], "today.yaml")
for system in ("llm-d", "vllm"):
    export = deployments.export(best[3], to=system, allow_lossy=True)
    print(system, [f"{loss.path}: {loss.reason}" for loss in export.losses])
    print("  deployed: goodput", spillway.simulate(export.deployed).summary()["goodput"])
