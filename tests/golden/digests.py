"""Digests that are the same on every machine: scenarios, golden logs, functions, random runs.

    python tests/golden/digests.py [--random N] [--renew]

Compares them with `digests.json`; `--renew` replaces that file, as `tests/golden/regenerate.py`
does too. Any compiler, level of optimization, Python and C library gives these digests
(`make portability`). Exit status 1: some differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import scenarios
from golden import regenerate
from support.random_simulations import PRESSURES, VARIANTS, random_simulation

from spillway import simulate, traffic, workload
from spillway._core import sim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FILE = Path(__file__).with_name("digests.json")
SCENARIO_REQUESTS = 400
RANDOM_RUNS = 300


def scenario(name: str) -> str:
    """Of a scenario of the benchmarks with few requests."""
    return simulate(scenarios.make(name, SCENARIO_REQUESTS)).outcome_digest


def log(name: str) -> str:
    """Of a golden log of decisions."""
    return hashlib.sha256(regenerate.decision_log(name).encode()).hexdigest()


def random_run(name: str) -> str:
    """Of a random simulation, with each alternative of the policies in turn."""
    index = int(name)
    simulation = random_simulation(
        ("digests", index),
        force=list(VARIANTS)[index % len(VARIANTS)],
        pressure=PRESSURES[index % len(PRESSURES)],
    ).simulation
    return simulate(simulation, index).outcome_digest


_RANGES = {
    "exp": (-745, 709),
    "exp2": (-1074, 1023),
    "expm1": (-40, 40),
    "log": (0, 10),
    "log1p": (-1, 10),
    "sin": (-1, 1),
    "gamma": (1, 22),
    "normal_probability": (-9, 9),
}


def function(name: str) -> str:
    """Of 20,000 values of a function of the core."""
    rng = random.Random(name)
    hasher = hashlib.sha256()
    for _ in range(20_000):
        if name == "pow":
            value = sim.pow(rng.uniform(0, 10), rng.uniform(-20, 20))
        else:
            value = getattr(sim, name)(rng.uniform(*_RANGES[name]))
        hasher.update(struct.pack("<d", value))
    return hasher.hexdigest()


def _sent(arrivals: workload.Poisson | workload.Weibull, seed: int) -> str:
    client = workload.Client(
        arrivals=arrivals,
        input_tokens=workload.Fixed(tokens=10),
        output_tokens=workload.Lognormal(mu=5, sigma=1),
    )
    load = workload.Synthetic(requests_per_s=0.1, num_requests=5000, clients=[client])
    return traffic.generated(load, seed).sha256


def _lengths() -> str:
    """Lognormal lengths between two whole numbers: of 9548.5 and the like."""
    rows = []
    for tokens in range(9000, 10_000):
        length = workload.Lognormal(mu=sim.log(tokens + 0.5), sigma=0, max_tokens=20_000)
        client = workload.Client(input_tokens=length, output_tokens=workload.Fixed(tokens=1))
        load = workload.Synthetic(requests_per_s=1, num_requests=1, clients=[client])
        rows.append(traffic.generated(load).sha256)
    return hashlib.sha256("".join(rows).encode()).hexdigest()


LAST_BITS: dict[str, Callable[[], str]] = {
    "poisson": lambda: _sent(workload.Poisson(), 287),
    "weibull": lambda: _sent(workload.Weibull(cv=1.7), 304),
    "weibull 740": lambda: _sent(workload.Weibull(cv=1.7), 740),
    "lognormal": _lengths,
}
"""Runs in which the last bit of the C library's functions showed."""

KINDS: dict[str, tuple[Callable[[str], str], Iterable[str]]] = {
    "scenario": (scenario, scenarios.SCENARIOS),
    "log": (log, regenerate.RUNS),
    "function": (function, (*_RANGES, "pow")),
    "last bit": (lambda name: LAST_BITS[name](), LAST_BITS),
    "random": (random_run, map(str, range(RANDOM_RUNS))),
}
NAMES = [f"{kind} {name}" for kind, (_, names) in KINDS.items() for name in names]


def digest(name: str) -> str:
    """The digest of an entry of NAMES."""
    kind = next(kind for kind in KINDS if name.startswith(f"{kind} "))
    return KINDS[kind][0](name.removeprefix(f"{kind} "))


def recorded() -> dict[str, str]:
    """The digests of the file."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def renew() -> None:
    """Replaces the file."""
    digests = {name: digest(name) for name in NAMES}
    FILE.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Command line; 1 if a digest differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=RANDOM_RUNS, help="random runs to compare")
    parser.add_argument("--renew", action="store_true", help="replace the file")
    options = parser.parse_args()
    if options.renew:
        renew()
        return 0
    expected = recorded()
    left_out = {f"random {i}" for i in range(options.random, RANDOM_RUNS)}
    names = [name for name in NAMES if name not in left_out]
    differ = [name for name in names if digest(name) != expected.get(name)]
    for name in differ:
        print(f"differs: {name}")
    print(f"{len(names) - len(differ)} of {len(names)} digests are the recorded ones")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
