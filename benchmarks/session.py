"""The cost of a held run: looking at it, changing it, and ticks of learning controllers.

`python benchmarks/session.py` measures all of it; `--smoke` at the smallest size. A tick is an
interval between two decisions. That of plain `simulate` is a tick of its controller at the same
interval: the reference, in the same process, for the ticks of `GatewayVectorEnv`, which runs on all
cores. The limits that are set seldom bind, like those of the controller, so that both serve the
same load in the same way.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import spillway
from spillway import gateway, instance, signals, workload
from spillway.envs import GatewayVectorEnv
from spillway.simulate import processors

if TYPE_CHECKING:
    from collections.abc import Callable

CAP = "gateway.limit.max_in_flight"
LIMITS = (192, 512)
INTERVAL_S = 1.0
RUNS_PER_CORE = 8
TARGET_SHARE = 0.5
"""Of the ticks of plain runs on all cores, by the environments."""


def fleet(duration_s: float) -> spillway.Simulation:
    """Eight instances under the load of W8, two tenants, and a limit that a controller moves."""
    return spillway.Simulation(
        workload=workload.Synthetic(
            requests_per_s=96,
            duration_s=duration_s,
            clients=[workload.Client(name="a", tenant="gold"), workload.Client(name="b")],
        ),
        tenants=[workload.Tenant(name="gold"), workload.Tenant(name="default")],
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=2)],
        gateway=gateway.Gateway(
            limit=gateway.FixedLimit(max_in_flight=256),
            controller=gateway.Aimd(),
            sensor=signals.Sensor(tick_s=INTERVAL_S),
        ),
        instances=instance.InstanceGroup(count=8),
        router="least_loaded",
    )


def times_s(action: Callable[[], Any]) -> np.ndarray:
    """Wall time and processor time (all threads) of the action (s)."""
    start = time.perf_counter(), time.process_time()
    action()
    return np.array([time.perf_counter() - start[0], time.process_time() - start[1]])


def microseconds(action: Callable[[int], Any], times: int) -> float:
    """Processor time of one call; the minimum of five batches."""
    batches = [times_s(lambda: [action(i) for i in range(times)])[1] for _ in range(5)]
    return 1e6 * float(min(batches)) / times


def calls(times: int) -> dict[str, float]:
    """The cost of single calls, in µs."""
    simulation = fleet(20).with_({"gateway.controller": "static"})
    session = spillway.start(simulation).advance(10)
    caps = [{CAP: 200 + i % 2} for i in range(times)]
    return {
        "observe": microseconds(lambda _: session.observe(), times),
        "observe(oracle=True)": microseconds(lambda _: session.observe(oracle=True), times),
        "set": microseconds(lambda i: session.set(caps[i]), times),
        "submit": microseconds(
            lambda _: session.submit(input_tokens=512, output_tokens=128), times
        ),
    }


def ticks(ticks_per_run: int, rounds: int) -> dict[str, float]:
    """Ticks per second of plain runs on one core and of environments on all; median of rounds.

    `cpu_share`: the same share in ticks per second of processor time, which other processes disturb
    less. It is what the environments reach if their threads never wait for each other.
    """
    simulation = fleet(ticks_per_run * INTERVAL_S)
    env = GatewayVectorEnv(
        simulation.with_({"gateway.controller": "static"}),
        {CAP: LIMITS},
        RUNS_PER_CORE * processors(),
        interval_s=INTERVAL_S,
    )
    rng = np.random.default_rng(0)
    shape = (ticks_per_run - 1, *env.action_space.shape)
    actions = rng.uniform(-1, 1, shape).astype(np.float32)
    plain, envs = [], []
    for seed in range(rounds):
        elapsed_s = times_s(lambda seed=seed: spillway.simulate(simulation, seed))
        plain.append(ticks_per_run / elapsed_s)
        env.reset(seed=seed)
        elapsed_s = times_s(lambda: [env.step(action) for action in actions])
        envs.append(len(actions) * env.num_envs / elapsed_s)
    env.close()
    shares = np.median(np.divide(envs, plain), axis=0)
    return {
        "cores": processors(),
        "simulate": float(np.median(plain, axis=0)[0]),
        "GatewayVectorEnv": float(np.median(envs, axis=0)[0]),
        "share": float(shares[0]) / processors(),
        "cpu_share": float(shares[1]),
    }


def main() -> None:
    """Prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="at the smallest size")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    found = {
        "calls_us": calls(5 if options.smoke else 200),
        "ticks_per_s": ticks(*((5, 1) if options.smoke else (300, 5))),
    }
    if options.json:
        print(json.dumps(found))
        return
    for name, us in found["calls_us"].items():
        print(f"{name:22s}{us:10.1f} us")
    rates = found["ticks_per_s"]
    print(f"simulate              {rates['simulate']:10,.0f} ticks/s on one core")
    print(f"GatewayVectorEnv      {rates['GatewayVectorEnv']:10,.0f} ticks/s on {rates['cores']}")
    print(
        f"share of simulate on all cores: {rates['share']:.2f} (target >= {TARGET_SHARE}), "
        f"by processor time {rates['cpu_share']:.2f}"
    )


if __name__ == "__main__":
    main()
