"""Coverage of the intervals over resamples of a trace.

Writes README.md, which states the hypotheses, the traffic and how often the intervals hold the
truth. The page is written anew after every 50 traces.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import spillway
from experiments import common
from spillway import instance, traffic, workload
from spillway.data.intervals import student_t_quantile
from spillway.simulate import run_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

FIGURES = (
    "mean_ttft_ms",
    "p90_ttft_ms",
    "p99_ttft_ms",
    "mean_e2el_ms",
    "goodput",
    "request_throughput",
    "output_throughput",
)
LOADS = (0.6, 0.85)
CAPACITY_PER_S = 108.8
"""Requests per second that the server completes when all are there at once."""
LOW, HIGH = 0.93, 0.97

SIMULATION = spillway.Simulation(
    instances=instance.InstanceGroup(max_num_seqs=4),
    slo_classes=[workload.SloClass(name="standard", target_ttft_s=0.06)],
)


# --- traffic --------------------------------------------------------------------------------------

_DWELL_REQUESTS = 10
_TURNS = 4
_GAP_REQUESTS = 10


def poisson(rng: np.random.Generator, rate: float, length_s: float) -> workload.Trace:
    """Independent requests."""
    return _trace(rng, np.sort(rng.uniform(0, length_s, rng.poisson(rate * length_s))))


def mmpp(rng: np.random.Generator, rate: float, length_s: float) -> workload.Trace:
    """A Poisson process that switches between 0.4 and 1.6 of its rate, after exponential times."""
    times, start, is_high = [np.zeros(0)], 0.0, bool(rng.random() < 0.5)
    while start < length_s:
        end = start + rng.exponential(_DWELL_REQUESTS / rate)
        until = min(end, length_s)
        count = rng.poisson((1.6 if is_high else 0.4) * rate * (until - start))
        times.append(np.sort(rng.uniform(start, until, count)))
        start, is_high = end, not is_high
    return _trace(rng, np.concatenate(times))


def sessions(rng: np.random.Generator, rate: float, length_s: float) -> workload.Trace:
    """Conversations that start independently, with exponential gaps between their turns.

    The number of turns is geometric. The trace is a window of traffic that began long before.
    """
    lead_s = 12 * _TURNS * _GAP_REQUESTS / rate
    count = rng.poisson(rate / _TURNS * (lead_s + length_s))
    turns = rng.geometric(1 / _TURNS, count)
    first = np.cumsum(turns) - turns
    gaps = rng.exponential(_GAP_REQUESTS / rate, turns.sum())
    since = np.cumsum(gaps)
    at = since - np.repeat(since[first], turns)
    at += np.repeat(rng.uniform(-lead_s, length_s, count), turns)
    session = np.repeat(np.arange(count), turns)
    order = np.argsort(at, kind="stable")
    order = order[(at[order] >= 0) & (at[order] < length_s)]
    names = [str(name) for name in session[order]]
    found = _trace(rng, at[order], prefix_group=names, prefix_tokens=[16] * len(order))
    return found.replace(session_segments=1)


def _trace(
    rng: np.random.Generator, arrival_s: NDArray[np.float64], **columns: object
) -> workload.Trace:
    n = len(arrival_s)
    lengths = {"input_tokens": rng.integers(50, 400, n), "output_tokens": rng.integers(1, 6, n)}
    return spillway.trace(arrival_s=arrival_s, **lengths, **columns)


TRAFFIC: dict[str, Callable[[np.random.Generator, float, float], workload.Trace]] = {
    "Poisson": poisson,
    "MMPP": mmpp,
    "sessions": sessions,
}


# --- coverage -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Held:
    """Whether the interval of one figure from one trace holds the truth.

    `plain`: whether mean ± t·SD of the resamples, without corrections, does. `marked`: whether the
    result says that the interval is doubtful.
    """

    low: bool
    high: bool
    plain: bool
    marked: bool

    @property
    def holds(self) -> bool:
        """Neither end lies on the wrong side of the truth."""
        return not (self.low or self.high)


@dataclasses.dataclass
class Cell:
    """One kind of traffic at one load: `kind` and `load` are positions."""

    kind: int
    load: int
    requests: int
    seed: int
    truth: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """Mean and standard deviation over independent traces."""
    held: dict[str, list[Held]] = dataclasses.field(
        default_factory=lambda: {n: [] for n in FIGURES}
    )
    blocks: list[float] = dataclasses.field(default_factory=list)

    @property
    def name(self) -> str:
        """Traffic and load."""
        return f"{list(TRAFFIC)[self.kind]}, load {LOADS[self.load]:g}"

    def _trace(self, purpose: int, number: int) -> workload.Trace:
        """An independent trace of this traffic."""
        rng = np.random.default_rng([self.seed, purpose, self.kind, self.load, number])
        rate = LOADS[self.load] * CAPACITY_PER_S
        return list(TRAFFIC.values())[self.kind](rng, rate, self.requests / rate)

    def find_truth(self, traces: int) -> None:
        """The mean over independent traces."""
        rows: list[list[float]] = []
        for number in range(traces):
            one = SIMULATION.replace(workload=self._trace(0, number))
            summary = run_many([one], threads=1)[0][0].summary()
            rows.append([float(summary[name] or 0) for name in FIGURES])
        means, sds = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1)
        self.truth = {
            name: (float(mean), float(sd))
            for name, mean, sd in zip(FIGURES, means, sds, strict=True)
        }

    def replicate(self, number: int, resamples: int) -> None:
        """The intervals of one more trace, compared with the truth."""
        trace = traffic.resampled(self._trace(1, number))
        seeds = range(number * resamples, (number + 1) * resamples)
        (found,) = run_many([SIMULATION.replace(workload=trace)], seeds, threads=1)
        self.blocks.append(found.num_blocks or math.nan)
        summary = found.summary()
        for name, (truth, _) in self.truth.items():
            one = summary[name]
            values = [float(run.summary()[name] or 0) for run in found]
            mean, reach = np.mean(values), _t95(resamples) * np.std(values, ddof=1)
            if one is None or one.low is None or one.high is None:
                raise RuntimeError(f"{self.name}: no interval of {name}")
            self.held[name].append(
                Held(
                    low=one.high < truth,
                    high=one.low > truth,
                    plain=bool(abs(mean - truth) <= reach),
                    marked=bool(one.caveat),
                )
            )


def _t95(resamples: int) -> float:
    return student_t_quantile(0.975, resamples - 1)


# --- the page -------------------------------------------------------------------------------------

_FEWEST = 100  # intervals behind a coverage that is judged


def _share(values: Iterable[bool]) -> str:
    many = list(values)
    return f"{100 * sum(many) / len(many):.1f}" if many else "-"


def _row(cell: Cell, name: str) -> list[str]:
    held = cell.held[name]
    unmarked = [case for case in held if not case.marked]
    truth, sd = cell.truth[name]
    return [
        f"{cell.name}: {name}",
        f"{truth:.4g}",
        f"{100 * sd / truth:.1f}",
        _share(case.marked for case in held),
        _share(case.holds for case in unmarked),
        _share(case.low for case in unmarked),
        _share(case.high for case in unmarked),
        _share(case.holds for case in held if case.marked),
        _share(case.holds for case in held),
        _share(case.plain for case in held),
    ]


def _is_claimed(held: Sequence[Held]) -> bool:
    """Whether at least half of the intervals of a figure in a cell are unmarked."""
    return 2 * sum(case.marked for case in held) <= len(held)


def _holds(held: Sequence[Held]) -> float:
    return sum(case.holds for case in held) / len(held)


def _shown(held: Sequence[Held]) -> str:
    """A coverage with two standard errors, in percent."""
    share = _holds(held)
    return f"{100 * share:.1f} ± {200 * math.sqrt(share * (1 - share) / len(held)):.1f}%"


def _hypotheses(cells: Sequence[Cell]) -> str:
    held = {f"{cell.name}: {name}": many for cell in cells for name, many in cell.held.items()}
    judged = {name: many for name, many in held.items() if len(many) >= _FEWEST}
    unmarked = {
        name: [case for case in many if not case.marked]
        for name, many in judged.items()
        if _is_claimed(many)
    }
    outside = [name for name, many in unmarked.items() if not LOW <= _holds(many) <= HIGH]
    bad = [name for name, many in judged.items() if _holds(many) < LOW]
    missed = [name for name in bad if _is_claimed(judged[name])]
    every = [case for many in held.values() for case in many]
    sure = [case.holds for case in every if not case.marked]
    doubtful = [case.holds for case in every if case.marked]
    third = sure and doubtful and sum(sure) / len(sure) > sum(doubtful) / len(doubtful)
    answers = [
        (
            not outside,
            f"{len(unmarked) - len(outside)} of {len(unmarked)} claimed figures are within",
            [f"{name} ({_shown(unmarked[name])})" for name in outside],
        ),
        (not missed, f"{len(bad) - len(missed)} of {len(bad)} such figures are marked", missed),
        (
            bool(third),
            (
                f"unmarked intervals hold the truth in {_share(sure)}% ({len(sure):,} of them), "
                f"marked ones in {_share(doubtful)}% ({len(doubtful):,})"
            ),
            [],
        ),
    ]
    lines = []
    for i, (is_true, what, exceptions) in enumerate(answers, 1):
        word = ("confirmed" if is_true else "refuted") if judged else "not judged"
        but = f"; not {'; '.join(exceptions)}" if exceptions else ""
        lines.append(f"{i}. **{word}**: {what}{but}.")
    return "\n".join(lines)


_TEXT = """# Coverage of intervals over resamples of a trace

Written by `make experiments NAME=trace_bootstrap`.

How often does the interval of a figure over {resamples} resamples of one trace
(`spillway.traffic.resampled`, blocks of the default length) hold the mean of the figure over
independent traces of the same length?

## Hypotheses, written before the run

1. Every *claimed* figure, one that is unmarked in at least half of the traces of a cell, is held in
   {low:.0%} to {high:.0%} of the traces where it is unmarked. Nominal is 95%.
2. The marks find what is wrong: every figure whose intervals hold the truth in less than {low:.0%}
   of all traces of a cell is marked in more than half of them.
3. Marked intervals hold the truth less often than unmarked ones.

A figure with fewer than {fewest} traces is not judged.

## Design

- **Traffic.** *Poisson*; *MMPP*: two states at 0.4 and 1.6 of the rate, with exponential dwell
  times of 10 requests on average; *sessions*: Poisson starts, a geometric number of turns (mean 4),
  exponential gaps of 10 requests at the mean rate. Prompts have 50 to 399 tokens, outputs 1 to 5.
- **Length.** {requests:,} requests on average: {lengths}.
  Runs begin empty, and end when all requests are served.
- **System.** A default instance with `max_num_seqs` 4, which completes {capacity} requests/s at
  most; loads are shares of that. A request is good if its first token takes at most 60 ms.
- **Truth.** The mean over {truths:,} independent traces. Its standard error is {truth_error:.1f}%
  of the standard deviation between traces.
- **Replications.** {replications:,} other traces of each kind at each load. The standard error of a
  coverage of 95% is {error:.1f} points.
- **Seeds.** The corrections were chosen on other seeds: 400 traces of each kind at each load, with
  12, 24 and 60 resamples of each.

## Result

{hypotheses}

± is two standard errors. Shares in percent. *SD*: between traces, relative to the truth. *marked*:
of all traces. *holds*, *too low*, *too high*: of unmarked intervals. *marked holds*: of marked
ones. *all hold*: of all. *plain*: mean ± t · SD of the same resamples, without the corrections of
`data.intervals.of_resamples`, of all. Blocks per trace on average: {blocks}.

{table}
"""


def _page(cells: Sequence[Cell], options: argparse.Namespace) -> str:
    header = ["figure", "truth", "SD", "marked", "holds", "too low", "too high"]
    header += ["marked holds", "all hold", "plain"]
    return _TEXT.format(
        resamples=options.resamples,
        low=LOW,
        high=HIGH,
        fewest=_FEWEST,
        replications=len(cells[0].blocks),
        error=100 * math.sqrt(0.95 * 0.05 / len(cells[0].blocks)),
        requests=options.requests,
        lengths=" and ".join(
            f"{options.requests / (load * CAPACITY_PER_S):.0f} s at load {load:g}" for load in LOADS
        ),
        capacity=CAPACITY_PER_S,
        truths=options.truths,
        truth_error=100 / math.sqrt(options.truths),
        hypotheses=_hypotheses(cells),
        blocks=", ".join(f"{np.mean(cell.blocks):.0f} ({cell.name})" for cell in cells),
        table=common.markdown(header, [_row(cell, name) for cell in cells for name in FIGURES]),
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    path = Path(__file__).with_name("README.md")
    add = parser.add_argument
    add("--replications", type=int, default=1000, help="traces per cell; default: 1,000")
    add("--truths", type=int, default=2000, help="traces behind a truth; default: 2,000")
    add("--resamples", type=int, default=12, help="of a trace; default: 12")
    add("--requests", type=int, default=8000, help="per trace; default: 8,000")
    add("--seed", type=int, default=1, help="of all traffic; default: 1")
    add("--output", type=Path, default=path, help=f"default: {path.name}")
    options = parser.parse_args()
    cells = [
        Cell(kind, load, options.requests, options.seed)
        for load in range(len(LOADS))
        for kind in range(len(TRAFFIC))
    ]
    for cell in cells:
        cell.find_truth(options.truths)
        common.say(f"truth: {cell.name}")
    for done in range(options.replications):
        for cell in cells:
            cell.replicate(done, options.resamples)
        if done % 50 == 49:
            common.say(f"{done + 1} traces")
            options.output.write_text(_page(cells, options), encoding="utf-8")
    common.publish(_page(cells, options), options.output)


if __name__ == "__main__":
    main()
