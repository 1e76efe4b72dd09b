"""A concurrency limit that is learned, against AIMD tuned with as many runs.

An evolution strategy (CMA-ES, of the package cmaes) trains a linear function: every second it looks
at the fleet and its tenants, and sets the limit. AIMD, which looks at TTFT, is tuned over its
target, its steps and its bounds. Both then serve traffic of seeds that neither has seen.

    pip install 'spillway-sim[study,rl]'
    python examples/learned_limit.py --generations 40
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import spillway
from spillway import gateway, instance, study, workload
from spillway.data.intervals import interval
from spillway.envs import GatewayEnv

try:
    import cmaes
except ImportError:
    raise SystemExit("cmaes is missing: pip install 'spillway-sim[study,rl]'") from None

CAP = "gateway.limit.max_in_flight"
CAPS = (8, 256)
TRAINING_SEEDS = range(3)
FRESH_SEEDS = range(1000, 1020)
POPULATION = 8


def simulation() -> spillway.Simulation:
    """One server under a load that swings about its capacity; now and then come long prompts."""
    swing = [workload.RatePoint(at_s=0, factor=0.4), workload.RatePoint(at_s=20, factor=1.6)]
    chat = workload.Client(
        name="chat",
        requests_per_s=14,
        rate_profile=swing,
        rate_period_s=40,
        input_tokens=workload.Lognormal(mu=6.5, sigma=0.8, max_tokens=8000),
        output_tokens=workload.Exponential(mean_tokens=150, max_tokens=1000),
    )
    documents = workload.Client(
        name="documents",
        requests_per_s=1.2,
        arrivals=workload.Mmpp(),
        input_tokens=workload.Uniform(min_tokens=8_000, max_tokens=20_000),
        output_tokens=workload.Exponential(mean_tokens=200, max_tokens=1000),
    )
    return spillway.Simulation(
        workload=workload.Synthetic(clients=[chat, documents], duration_s=120),
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=2)],
        gateway=gateway.Gateway(
            limit=gateway.FixedLimit(max_in_flight=64),
            bands=gateway.Band(queue=gateway.Queue(timeout_s=2)),
        ),
        instances=instance.Server(model="llama-3.1-8b", gpu="h100"),
    )


def features(observation: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """What the learned limit looks at, each about 1, and a constant."""
    seen = dict(zip(names, observation, strict=True))
    arriving = seen["default: submitted_per_s"]
    return np.array([
        1.0,
        seen["waiting_per_instance"] / 10,
        seen["running_per_instance"] / 50,
        seen["kv_utilization"],
        seen["default: good_per_s"] / max(arriving, 1),
        seen["default: queued"] / 20,
    ])  # fmt: skip


def served(weights: np.ndarray, seed: int) -> spillway.Result:
    """A run whose limit follows the weights."""
    env = GatewayEnv(simulation(), {CAP: CAPS}, interval_s=1)
    observation, _ = env.reset(options={"simulation_seed": seed})
    over = False
    while not over:
        action = math.tanh(float(weights @ features(observation, env.features)))
        observation, _, over, _, _ = env.step(np.array([action], dtype=np.float32))
    return env.result()


def learned(generations: int) -> np.ndarray:
    """The mean of the last generation."""
    strategy = cmaes.CMA(np.zeros(6), sigma=0.5, seed=1, population_size=POPULATION)
    for generation in range(generations):
        trials = []
        for _ in range(POPULATION):
            weights = strategy.ask()
            goodputs = [served(weights, seed).summary()["goodput"] for seed in TRAINING_SEEDS]
            trials.append((weights, -float(np.mean(goodputs))))
        strategy.tell(trials)
        if generation % 10 == 0:
            print(f"generation {generation}: best goodput {-min(score for _, score in trials):.3f}")
    return np.asarray(strategy.mean)


def tuned(trials: int) -> spillway.Simulation:
    """The best AIMD of a study."""
    start = simulation().with_({
        "gateway.controller": gateway.Aimd(target_s=1),
        "gateway.sensor.tick_s": 1,
        "gateway.guard.floor": CAPS[0],
        "gateway.guard.ceiling": CAPS[1],
    })  # fmt: skip
    space = {
        CAP: CAPS,
        "gateway.controller.target_s": (0.1, 4),
        "gateway.controller.band": (0, 0.5),
        "gateway.controller.increase_step": (1, 32),
        "gateway.controller.decrease_factor": (0.3, 0.98),
        "gateway.guard.floor": (1, 64),
    }
    search = study.Study(start, space, "goodput", seeds=TRAINING_SEEDS)
    return search.optimize(trials).best


def main() -> None:
    """Trains, tunes, and compares on fresh seeds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--generations", type=int, default=40)
    options = parser.parse_args()
    weights = learned(options.generations)
    aimd = tuned(options.generations * POPULATION)
    static = study.Study(simulation(), {CAP: CAPS}, "goodput", seeds=TRAINING_SEEDS)
    fixed = static.optimize(min(32, options.generations * POPULATION)).best
    goodput = {
        "learned": [served(weights, seed).summary()["goodput"] for seed in FRESH_SEEDS],
        "AIMD, tuned": of(aimd),
        "fixed, tuned": of(fixed),
    }
    print(f"\ngoodput on {len(FRESH_SEEDS)} fresh seeds, mean and 95% interval")
    for name, values in goodput.items():
        print(f"{name:14} {interval(values)}")
    for name in ("AIMD, tuned", "fixed, tuned"):
        paired = np.subtract(goodput["learned"], goodput[name]).tolist()
        print(f"learned less {name}: {interval(paired)}")


def of(one: spillway.Simulation) -> list[float]:
    """Goodput under each fresh seed."""
    return [run.summary()["goodput"] for run in spillway.simulate(one, seeds=FRESH_SEEDS)]


if __name__ == "__main__":
    main()
