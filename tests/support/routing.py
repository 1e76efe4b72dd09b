"""What routers see and choose, and the formulas of the scorers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from support.runs import MS, ROUTER_STREAM, run_ns, steady
from support.specimens import examples

from spillway import Result, _core, router, workload
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def chosen(result: Result) -> list[int]:
    return result.requests["instance"].tolist()


# --- ties and random numbers ----------------------------------------------------------------------


APART = [i * 10**9 for i in range(60)]  # every request finds idle servers, so all are tied
FOUR: dict[str, Any] = {"instances": {"count": 4, "latency": steady(10)}}


# --- weighted: scorers ----------------------------------------------------------------------------


def drawn(seed: int, rows: Sequence[int]) -> list[int]:
    return [_core.sim.Draws(seed=seed, stream=ROUTER_STREAM, entity=row).below(4) for row in rows]


# Requests with sizes, gaps and servers so unequal that all signals take many values.
SKEWED: dict[str, Any] = {
    "arrival_ns": np.cumsum([(row * 7919) % 40 * MS for row in range(150)]).tolist(),
    "input_tokens": [16 + (row * 389) % 900 for row in range(150)],
    "output_tokens": [1 + (row * 101) % 60 for row in range(150)],
}
UNEQUAL = [
    BLIS_SERVER.replace(max_num_seqs=2, num_kv_blocks=200, latency=steady(30)),
    BLIS_SERVER.replace(max_num_seqs=3, num_kv_blocks=150, latency=steady(15, entry_ms=20)),
    BLIS_SERVER.replace(max_num_seqs=1, num_kv_blocks=300, latency=steady(8)),
    BLIS_SERVER.replace(max_num_seqs=9, num_kv_blocks=400, latency=steady(60)),
]


def weighted(*scorers: Any, picker: Any = "best") -> router.Weighted:
    return router.Weighted(scorers=scorers, picker=picker)


@dataclass
class Seen:
    """What every decision saw of every instance: one row per decision, one column per instance."""

    waiting: Floats
    running: Floats
    in_flight: Floats
    kv_utilization: Floats
    age_s: Floats
    score: Floats
    instance: list[int]


def seen(result: Result) -> Seen:
    """The log of a run that traced all candidates; NaN for instances that were not candidates."""
    log = result._output["decisions"]
    asked, place = np.nonzero(log["candidate_instance"] >= 0)
    at = log["candidate_instance"][asked, place]
    shape = (len(log["row"]), len(result.instances))
    assert log["candidate_instance"].shape == shape

    def column(name: str) -> Floats:
        values = np.full(shape, np.nan)
        values[asked, at] = log[f"candidate_{name}"][asked, place]
        return values

    return Seen(
        waiting=column("waiting"),
        running=column("running"),
        in_flight=column("in_flight"),
        kv_utilization=column("kv_utilization"),
        age_s=column("age_s"),
        score=column("score"),
        instance=log["instance"].tolist(),
    )


def watched(
    policy: Any, instances: Any = UNEQUAL, *, seed: int = 0, **settings_: Any
) -> tuple[Result, Seen]:
    """A run of SKEWED, unless `settings_` say otherwise, and what its router saw."""
    result = run_ns(
        **{**SKEWED, **settings_},
        router=policy,
        instances=instances,
        metrics={"traced_candidates": 1000},
        seed=seed,
    )
    return result, seen(result)


def fewest(values: Floats) -> Floats:
    """1 for the fewest, 0 for the most, all 1 if they are equal."""
    least, most = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    width = np.where(most == least, 1, most - least)
    return np.where(most == least, 1.0, (most - values) / width)


def fewest_in_flight(now: Seen) -> Floats:
    most = now.in_flight.max(axis=1, keepdims=True)
    return np.where(now.in_flight == 0, 1.0, ((most - now.in_flight) / np.maximum(most, 1)))


def effective_load(now: Seen) -> Floats:
    return now.waiting + now.running + now.in_flight


def every_router() -> list[Any]:
    """Routers with every alternative that settings alone make."""
    parts = [examples(f"Weighted.{part}") for part in ("scorers", "filters", "picker")]
    rows = [[part[i % len(part)] for part in parts] for i in range(max(map(len, parts)))]
    each = [router.Weighted(scorers=[a], filters=[b], picker=c) for a, b, c in rows]
    return [*examples("Simulation.router"), *each]


def client(name: str, fraction: float, tokens: int, answer: int, group: str) -> workload.Client:
    return workload.Client(
        name=name,
        rate_fraction=fraction,
        input_tokens=workload.Exponential(mean_tokens=tokens),
        output_tokens=workload.Exponential(mean_tokens=answer),
        prefix_group=group,
        prefix_tokens=100 if group else 0,
    )


# Short and long requests: turns of equal number are turns of unequal work.
WORKLOADS = {
    "skewed": workload.Synthetic(
        requests_per_s=60,
        num_requests=200,
        clients=[client("short", 0.7, 60, 10, "A"), client("long", 0.3, 1500, 300, "")],
    ),
    "sparse": workload.Synthetic(requests_per_s=1, num_requests=100),
    "burst": workload.Synthetic(requests_per_s=5000, num_requests=200),
    "groups": workload.Synthetic(
        requests_per_s=100,
        num_requests=200,
        clients=[client(name, 1, 200, 50, name) for name in "ABCDE"],
    ),
}
