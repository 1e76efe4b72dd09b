"""What recovery after the crash of a server costs in peace, and what it saves.

Writes README.md and harmed.svg.
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments import common
from experiments.common import exceeds, markdown, paired, shown
from spillway import Simulation, fleet, instance, router, run_many, traffic, workload
from spillway.data.intervals import interval
from spillway.report import style
from spillway.study import solvers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spillway.data.intervals import Interval
    from spillway.result import Result

_RESULT = Path(__file__).with_name("README.md")
_TARGET_TTFT_S, _TARGET_TPOT_S = 1.0, 0.05
_DETECTED_S = 5.0
_DOWN_S, _STARTUP_S = 20.0, 40.0
_MOST_IN_FLIGHT = 250
_FIRST_SEED = 100
_LAST_SHARE = 0.1
"""The end of a run, in which the crash should have no effect anymore."""


class Recovery(NamedTuple):
    """A way to recover: settings, and servers in addition to those that the load needs."""

    name: str
    settings: Mapping[str, Any] = {}
    spare: int = 0


class Fleet(NamedTuple):
    """Servers, how requests are spread over them, and loads as shares of what a crash leaves."""

    servers: int
    spread: str
    loads: tuple[float, ...]


_MIGRATE = {"fleet.migration.limit": 3}
_RETRY = workload.Retry(on=["instance_lost"], max_attempts=3, backoff_s=0.1)
_LIMIT = {
    "router": router.Weighted(
        filters=[router.Thresholds(max_in_flight=_MOST_IN_FLIGHT, if_none="reject")],
        scorers=[router.LoadBalance()],
    )
}
NOTHING = Recovery("nothing")
MIGRATED = Recovery("migration", _MIGRATE)
LIMITED = Recovery("limit", _LIMIT)
BOTH = Recovery("migration and limit", _MIGRATE | _LIMIT)
SPARE = Recovery("a server more", spare=1)
SPARE_TOO = Recovery("migration and a server more", _MIGRATE, spare=1)
RECOVERIES = (
    NOTHING,
    Recovery("detection at once", {"fleet.health.detected_after_s": 0.0}),
    Recovery("retries by clients", {"reaction": workload.Reaction(retries=[_RETRY])}),
    Recovery("retries before the first token", {**_MIGRATE, "fleet.migration.answered": False}),
    MIGRATED,
    LIMITED,
    BOTH,
    SPARE,
    SPARE_TOO,
)
_DRAWN = (NOTHING, MIGRATED, LIMITED, BOTH, SPARE)
FLEETS = (
    Fleet(4, "least requests", (0.8, 0.95, 1.1, 1.2, 1.25)),
    Fleet(4, "in turn", (0.8, 1.25)),
    Fleet(8, "least requests", (0.8, 0.95, 1.07)),
)
_SPREADS: Mapping[str, Any] = {
    "least requests": router.Weighted(scorers=[router.LoadBalance()]),
    "in turn": "round_robin",
}


def _server() -> instance.InstanceGroup:
    server = instance.Server(model="llama-3.1-8b", gpu="h100")
    return server.group.replace(engine_rules=instance.EngineRules())


def offered(requests_per_s: float, num_requests: int, servers: int) -> Simulation:
    """A load of requests of one length on servers that are watched and never fail."""
    client = workload.Client(
        input_tokens=workload.Fixed(tokens=1000), output_tokens=workload.Fixed(tokens=300)
    )
    return Simulation(
        workload=workload.Synthetic(
            requests_per_s=requests_per_s, num_requests=num_requests, clients=[client]
        ),
        slo_classes=[
            workload.SloClass(
                name="standard", target_ttft_s=_TARGET_TTFT_S, target_tpot_s=_TARGET_TPOT_S
            )
        ],
        instances=[_server().replace(count=servers)],
        router=_SPREADS["least requests"],
        fleet=fleet.Fleet(startup_s=_STARTUP_S, health=fleet.Health(detected_after_s=_DETECTED_S)),
    )


@functools.cache
def capacity_per_s() -> float:
    """The most requests per second for which a server meets the targets of 99 % of them."""
    found = solvers.max_rate_under_slo(offered(10, 4000, 1), {"goodput": ">=0.99"}, seeds=4)
    if found.feasible is None:
        raise ValueError(f"no rate keeps the targets: {found}")
    return found.feasible


def harmed(result: Result) -> float:
    """Offered requests that failed, were refused or missed a target."""
    figures = result.summary()
    return float((1 - figures["goodput"]) * figures["offered"])


def late_harm(result: Result) -> float:
    """Of requests that arrived near the end of the run, those that were not served in time."""
    columns = result.requests
    arrival_s = np.asarray(columns["arrival_s"])
    bad = (
        (np.asarray(columns["outcome"]) != "completed")
        | (np.asarray(columns["ttft_s"]) > _TARGET_TTFT_S)
        | (np.asarray(columns["tpot_s"]) > _TARGET_TPOT_S)
    )
    return float(bad[arrival_s > (1 - _LAST_SHARE) * arrival_s.max()].sum())


class Cell(NamedTuple):
    """Requests per run, by seed: harmed in peace and by the crash, lost, and harmed at the end."""

    peace: list[float]
    crash: list[float]
    lost: list[float]
    late: list[float]


def measure(
    kind: Fleet,
    recoveries: Iterable[Recovery],
    load: float,
    *,
    seeds: range,
    num_requests: int,
    threads: int | None,
) -> dict[str, Cell]:
    """What a crash harms at a load relative to the capacity of the servers left, by recovery."""
    requests_per_s = load * (kind.servers - 1) * capacity_per_s()
    at_s = num_requests / requests_per_s / 4
    words = f"instance 0 crashes at {at_s:g}s for {_DOWN_S:g}s"
    found = {}
    for recovery in recoveries:
        base = offered(requests_per_s, num_requests, kind.servers + recovery.spare)
        whole = base.with_({"router": _SPREADS[kind.spread]} | dict(recovery.settings))
        peace, crash = run_many(
            [whole, traffic.changed(whole, words)], seeds, threads=threads, keep_requests=True
        )
        quiet = [harmed(result) for result in peace]
        found[recovery.name] = Cell(
            peace=quiet,
            crash=[harmed(r) - calm for r, calm in zip(crash, quiet, strict=True)],
            lost=[float(r.ledger["failed"]) for r in crash],
            late=[late_harm(r) - late_harm(q) for r, q in zip(crash, peace, strict=True)],
        )
    return found


def _mean(numbers: Sequence[float]) -> str:
    return shown(interval(list(numbers)), 0)


def saved(found: Mapping[str, Cell], by: Recovery, without: Recovery) -> Interval:
    """How many fewer requests the crash harms with a recovery."""
    return paired(found[without.name].crash, found[by.name].crash)


def draw(loads: Sequence[float], runs: Sequence[Mapping[str, Cell]], path: Path) -> None:
    """Harmed requests per crash, by load."""
    figure = style.pyplot().figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for recovery in _DRAWN:
        means = [float(np.mean(found[recovery.name].crash)) for found in runs]
        axes.plot(loads, means, marker="o", label=recovery.name)
    axes.axvline(1, color="#888888", linestyle=":")
    axes.set_yscale("symlog", linthresh=10)
    most = max(float(np.mean(cell.crash)) for found in runs for cell in found.values())
    axes.set_ylim(-1, 2 * most)
    axes.set_xlabel("load relative to the capacity that is left")
    axes.set_ylabel("harmed requests per crash")
    style.legend_above(axes)
    style.save(figure, path)


_TEXT = """# What recovery after a crash costs, and what it saves

Written by `make experiments NAME=server_failure`.

**Question.** One of {servers} servers crashes and is back after {away:g} s. What does each way to
recover cost while no server fails, and how many requests does it save when one does?

**Answer.** {answer}

| | |
|---|---|
| servers | {servers}: Llama 3.1 8B on an H100 each |
| capacity | the most requests/s that meet the targets: {capacity:.1f} per server |
| requests | {num_requests:,} of 1,000 prompt and 300 output tokens, as a Poisson process |
| crash | after a quarter of the run; detected after {detected:g} s |
| restart | {down:g} s down, {startup:g} s of loading |
| targets | first token within {ttft:g} s, at most {tpot:g} ms per output token |
| harmed | failed, refused or above a target; less those of the same run without a crash |
| limit | at most {most} requests in a server, of 100 to 250 the best of a trial with seeds 1, 2 |
| seeds | {num_seeds} from {first_seed} on, paired; 95 % intervals |

## Harmed requests per crash

By load, relative to the capacity of the servers that are left. The last column is of runs without a
crash, at the highest load.

{table}

![Harmed requests by load](harmed.svg)

Of which failed:

{lost}

- The streams that break are fewer than the requests that are sent to the dead server until its
  crash is detected: it has the fewest in flight, so the router chooses it for each arrival.
  Detection at once, or a retry of requests without a token, saves this part, and migration the
  rest.
- A failed request is load that is gone. Above the capacity that is left, what saves it adds to a
  queue in which all miss their targets. With a limit the excess is refused, and migration saves
  again what it saves below that capacity.
- Clients that try again after {backoff:g} s meet the same dead server. Each attempt counts as
  failed.

## Other fleets

{others}

## Threats

- Migration takes no time here but that of the prefill.
- Requests have one length and arrive as a Poisson process. Bursts leave less capacity.
- The limit was set for these servers and requests. A limit on the whole fleet, or an adaptive
  limit, was not tried.
- Marked with *: in the last tenth of a run, requests are still harmed.
- Step times come from datasheets.
"""


def _cell(found: Mapping[str, Cell], recovery: Recovery) -> str:
    cell = found[recovery.name]
    mark = "*" if max(np.abs(cell.late)) > 0 else ""
    return _mean(cell.crash) + mark


def _answer(loads: Sequence[float], runs: Sequence[Mapping[str, Cell]]) -> str:
    low, high = runs[0], runs[-1]

    def mean(found: Mapping[str, Cell], recovery: Recovery) -> str:
        return f"{np.mean(found[recovery.name].crash):,.0f}"

    costly = {
        recovery.name
        for recovery in RECOVERIES
        for found in runs
        if not recovery.spare and found[recovery.name].peace != found[NOTHING.name].peace
    }
    peace = "None but the server more costs anything while no server fails."
    if costly:
        peace = f"In peace, these harm: {', '.join(sorted(costly))}."
    below = {
        "confirmed": f"migration leaves {mean(low, MIGRATED)}",
        "refuted": f"more with migration, {mean(low, MIGRATED)}",
        "undecided": "it is undecided whether fewer with migration",
    }[exceeds(saved(low, MIGRATED, NOTHING))]
    above = {
        "confirmed": f"more with migration, {mean(high, MIGRATED)}",
        "refuted": f"migration leaves {mean(high, MIGRATED)}",
        "undecided": "it is undecided whether more with migration",
    }[exceeds(saved(high, NOTHING, MIGRATED))]
    return (
        f"{peace} At {loads[0]:g} of the capacity that is left a crash harms "
        f"{mean(low, NOTHING)} requests; {below}. At {loads[-1]:g} it harms "
        f"{mean(high, NOTHING)}; {above}. There, a limit of requests per server leaves "
        f"{mean(high, LIMITED)}, with migration {mean(high, BOTH)}, and a server more "
        f"{mean(high, SPARE)}, with migration {mean(high, SPARE_TOO)}."
    )


def report(
    fleets: Sequence[Fleet] = FLEETS,
    *,
    num_requests: int,
    num_seeds: int,
    threads: int | None,
    folder: Path,
) -> str:
    """Runs the experiment, draws its figure into a folder and returns its page.

    All recoveries are tried on the first fleet, and what the answer is about on the others.
    """
    seeds = range(_FIRST_SEED, _FIRST_SEED + num_seeds)
    found_of = {}
    for kind in fleets:
        common.say(f"{kind.servers} servers, {kind.spread}")
        tried = RECOVERIES if kind is fleets[0] else (NOTHING, MIGRATED, LIMITED, BOTH)
        found_of[kind] = [
            measure(kind, tried, load, seeds=seeds, num_requests=num_requests, threads=threads)
            for load in kind.loads
        ]
    first = fleets[0]
    runs = found_of[first]
    draw(first.loads, runs, folder / "harmed.svg")
    header = ("", *(f"{load:g}" for load in first.loads))
    rows = [
        [
            recovery.name,
            *(_cell(found, recovery) for found in runs),
            f"{first.servers + recovery.spare}",
            _mean(runs[-1][recovery.name].peace),
        ]
        for recovery in RECOVERIES
    ]
    lost = [
        [recovery.name, *(_mean(found[recovery.name].lost) for found in runs)]
        for recovery in RECOVERIES
    ]
    others = []
    for kind, each in found_of.items():
        for load, found in zip(kind.loads, each, strict=True):
            alone = saved(found, MIGRATED, NOTHING)
            # The limit has a router of its own.
            limited = saved(found, BOTH, LIMITED) if kind.spread == first.spread else None
            line = [f"{kind.servers}, {kind.spread}", f"{load:g}", _cell(found, NOTHING)]
            others.append([*line, shown(alone, 0), exceeds(alone), shown(limited, 0)])
    return _TEXT.format(
        answer=_answer(first.loads, runs),
        servers=first.servers,
        away=_DOWN_S + _STARTUP_S,
        capacity=capacity_per_s(),
        num_requests=num_requests,
        detected=_DETECTED_S,
        down=_DOWN_S,
        startup=_STARTUP_S,
        ttft=_TARGET_TTFT_S,
        tpot=1e3 * _TARGET_TPOT_S,
        most=_MOST_IN_FLIGHT,
        backoff=_RETRY.backoff_s,
        num_seeds=num_seeds,
        first_seed=_FIRST_SEED,
        table=markdown((*header, "servers", "harmed in peace"), rows),
        lost=markdown(header, lost),
        others=markdown(
            (
                "servers",
                "load",
                "harmed with nothing",
                "saved by migration",
                "above 0",
                "saved by migration under the limit",
            ),
            others,
        ),
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    common.add_options(parser, _RESULT, seeds=10)
    parser.set_defaults(requests=30_000)
    options = parser.parse_args()
    text = report(
        num_requests=options.requests,
        num_seeds=options.seeds,
        threads=options.threads,
        folder=options.output.parent,
    )
    common.publish(text, options.output)


if __name__ == "__main__":
    main()
