"""Every public measurement at hand, predicted: errors by server, load and metric.

Writes README.md and errors.svg. `--data` is a folder with the measurements that `split.py` names,
which are not part of this repository; what is missing there is said and left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import common
from experiments.common.points import Measured, server_of
from experiments.fidelity_ledger.split import FITTED_UP_TO, MIXTURES, SPLITS, Split
from spillway import ConfigError, calibrate, simulate
from spillway.calibration.latencies import measured, simulated
from spillway.calibration.points import PointPart, means, parts_of
from spillway.calibration.replay import Replay
from spillway.files.recordings import read_points, read_recordings
from spillway.report import style
from spillway.simulate import run_many
from spillway.validation import real

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spillway.calibration import Profile
    from spillway.data.recording import LatencyPoints, Recording

INTRODUCTION = """# Fidelity ledger

What Spillway predicts of servers that others measured, beside their measurements: every public run
at hand, by server, load and metric. `split.py` states what is fitted and what is predicted, and was
fixed before the first fit. Signed errors in percent, simulated against measured.

*Fit*: the verdict on the fit (`spillway.calibration.Verdict`). *Hull*: whether the batch was in
the fitted states for 95% of the time. *Held*: of mean TTFT, p99 of TTFT, mean ITL and mean E2E,
those in the 90% interval over 20 draws from the fit. *Edge*: the client was at its limit, and the
run is replayed in a closed loop; which users fall into step there is decided by fractions of a
percent of the step time, so E2E and capacity are scored, and TTFT is not.
"""

MISSES = """
## What misses, and why

- *Memory not stated*, TTFT off by up to 26% at 1 request/s: it is mostly the wait for memory, and
  the simulated capacity is 2 to 4% low there. The size itself is found: 2,425 blocks, where a scan
  by hand had found 2,400.
- *Conversations at high rates*: up to 1 request/s every prompt is found in the cache, so the fitted
  runs say nothing of the size of the memory, and the verdict says so ("not identified"). From 1.25
  on some prompts are computed again: p99 of TTFT is measured in seconds, and the means follow it.
  Accelerator and memory of these servers are not published.
- *Conversations on one server*: runs of 10, 31 and 58 requests; the fit misses the median ITL of
  one by 24% and is refused ("poor").
- *Llama-2-7B*, ITL and E2E off by 4%: fitted at one load of one length. The verdict is `usable`,
  and names prompts of other lengths as what to measure.
- *Qwen3-30B-A3B*, TTFT off by 6%: two data-parallel ranks; not explained.
- Intervals of conversations do not hold what their runs say nothing of.
"""

PEERS = """## Peers

What others publish of their own campaigns, none of it on these cells: AISimulate (snapshot of
2026, TPOT/TTFT MAPE by model: GLM-5 8/39, MiniMax-M2.5 12/38, DeepSeek-R1 18/56, Kimi-K2.5 34/65,
gpt-oss-120b 44/60), Frontier (gate of November 2026, dense on H200: TTFT 1.2 to 1.8, TPOT 0.4 to
0.9, E2E 0.3 to 0.8; mixture of 235B: 0.3 to 3.6 and 0.1 to 9.6), LLMServingSim 2.0 (its four runs:
means within 0.3 to 4), LLM-Emu (at most 4.8 in TPOT, 10.4 in TTFT), BLIS (E2E 11.8, TTFT 22.8).
"""

_KIND = "kind"
_DRAWS = 20
_TAILS = (5, 95)
_HELD = {"ttft": 0, "ttft p99": 4, "itl": 5, "e2e": 10}
"""Positions in the statistics of `calibration.latencies`."""


@dataclass(frozen=True)
class Cell:
    """A predicted run of a server."""

    split: Split
    load: float
    report: real.RunReport
    held: tuple[bool, ...]

    def error(self, metric: str, statistic: str = "mean") -> float:
        """In percent."""
        return self.report.error_percent(metric, statistic)


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="the folder of the measurements")
    source.add_argument("--smoke", type=Path, metavar="RUNS", help="one folder of runs, by halves")
    parser.add_argument("--tables", type=int, default=16, help="tables of mixtures of experts")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("README.md"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # of what is assumed of each file
    if options.smoke:
        names = tuple(run.name for run in read_recordings(options.smoke))
        splits: Sequence[Split] = [Split("example", "", names[:2], names[2:], "dense")]
        data = options.smoke
    else:
        splits, data = SPLITS, options.data
    text, cells, missing = [INTRODUCTION], [], []
    for split in splits:
        if not (data / split.folder).is_dir():
            missing.append(f"- {split.name}: {split.folder} is missing")
            continue
        found = list(predicted(data / split.folder, split))
        cells += found
        for cell in found:
            common.say(f"{split.name}, {cell.report.run}: E2E {cell.error('e2e'):+.1f}")
    text += ["## Fitted\n", table(cells), "", summary(cells)]
    points = data / "silicon_sample.csv"
    if points.is_file():
        text += ["\n## Means of mixtures of experts at 4 times the fitted concurrency\n"]
        text += [of_mixtures(read_points(points), options.tables)]
    if missing:
        text += ["\nLeft out:\n", *missing]
    if not options.smoke:
        text.append(MISSES)
    draw(cells, options.output.with_name("errors.svg"))
    text += ["\n![Errors by load](errors.svg)\n", PEERS]
    common.publish("\n".join(text), options.output)


def predicted(folder: Path, split: Split) -> Iterator[Cell]:
    """The cells of a server."""
    by_halves = not split.fitted
    known = {run.name: run for run in runs_of(folder, split)}
    fitted = [known[name] for name in split.fitted or split.predicted]
    rows = first_half if by_halves else None
    profile = calibrate(fitted, rows=rows, allow_unidentified=True)
    most = max(map(rate_of, fitted))
    for name in split.predicted:
        run = known[name]
        replay = Replay(run, profile.turnaround_s, warms=profile.warms)
        chosen = replay.compared & (~first_half(run) if by_halves else True)
        report = real.predict(replay, profile, chosen)
        yield Cell(split, rate_of(run) / most, report, held(replay, profile, chosen))


def runs_of(folder: Path, split: Split) -> Iterator[Recording]:
    """The runs of a folder, with what is published of their server."""
    if (folder / "runs.json").is_file():
        found = {run.name: run for run in read_recordings(folder)}
    else:
        names = (*split.fitted, *split.predicted)
        found = {name: read_recordings(folder / name)[0] for name in names}
    for name, run in found.items():
        yield dataclasses.replace(run, name=name, server=run.server.replace(**split.facts))


def first_half(run: Recording) -> np.ndarray:
    """The requests of the first half of a run."""
    return np.arange(run.num_requests) < run.num_requests // 2


def rate_of(run: Recording) -> float:
    """Requests per s."""
    return float((run.num_requests - 1) / run.send_s[-1])


def held(replay: Replay, profile: Profile, rows: np.ndarray) -> tuple[bool, ...]:
    """Which measured figures lie in the interval over draws from the fit."""
    drawn = run_many(
        [replay.simulation(group) for group in profile.draws(_DRAWS)], keep_requests=True
    )
    logs = np.array([simulated(results[0], rows).logs() for results in drawn])
    real_logs = measured(replay, rows).logs()
    low, high = np.percentile(logs, _TAILS, axis=0, method="weibull")
    return tuple(bool(low[k] <= real_logs[k] <= high[k]) for k in _HELD.values())


def table(cells: Sequence[Cell]) -> str:
    """A row per cell."""
    head = ("server", "run", "load", "requests", "fit", "hull", "TTFT mean", "p50", "p99",
            "ITL mean", "E2E mean", "capacity", "held", "noise")  # fmt: skip
    rows = []
    for cell in cells:
        report = cell.report
        verdict = report.profile.verdict
        edge = report.closed_loop
        rows.append([
            cell.split.name, report.run, f"{cell.load:.2f} x", str(report.requests),
            verdict.kind if verdict else "", "in" if report.in_range else "out",
            *("edge" if edge else f"{cell.error('ttft', name):+.1f}"
              for name in ("mean", "p50", "p99")),
            f"{cell.error('itl'):+.1f}", f"{cell.error('e2e'):+.1f}",
            f"{cell.error('capacity', ''):+.1f}", f"{sum(cell.held)} of {len(cell.held)}",
            cell.split.noise,
        ])  # fmt: skip
    return common.markdown(head, rows)


def summary(cells: Sequence[Cell]) -> str:
    """Mean and largest absolute errors by kind of server."""
    rows = []
    for kind in dict.fromkeys(cell.split.kind for cell in cells):
        same = [cell for cell in cells if cell.split.kind == kind]
        free = [cell for cell in same if not cell.report.closed_loop]
        row = [kind, str(len(same))]
        for metric, among in (("itl", same), ("e2e", same), ("ttft", free)):
            errors = np.abs([cell.error(metric) for cell in among])
            row += [f"{errors.mean():.1f}", f"{errors.max():.1f}"] if len(errors) else ["", ""]
        for k in range(len(_HELD)):
            row.append(f"{np.mean([cell.held[k] for cell in same]):.0%}")
        rows.append(row)
    head = ("kind", "cells", "ITL mean", "largest", "E2E mean", "largest", "TTFT mean", "largest",
            *(f"held {name}" for name in _HELD))  # fmt: skip
    return common.markdown(head, rows)


def of_mixtures(tables: Sequence[LatencyPoints], count: int) -> str:
    """Fitted at low concurrency, predicted at 4 times that; errors of the mean TPOT and TTFT."""
    rows, errors = [], []
    known = [points for points in tables if _is_eligible(points)]
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(known), min(count, len(known)), replace=False)
    for points in [known[which] for which in sorted(chosen.tolist())]:
        parts = list(parts_of(_with_facts(points)))
        few = [part for part in parts if part.users <= FITTED_UP_TO]
        far = [part for part in parts if 3 * FITTED_UP_TO <= part.users <= 4 * FITTED_UP_TO]
        profile = calibrate([part.alone for part in few], allow_unidentified=True)
        found = [errors_of(part, profile) for part in far]
        errors += found
        common.say(f"{points.server.key}: {np.round(found, 1).tolist()}")
        rows.append([
            Measured.of(points).name, f"{points.input_tokens}/{points.output_tokens}",
            " ".join(str(part.users) for part in few), " ".join(str(part.users) for part in far),
            profile.verdict.kind if profile.verdict else "", _prior_of(points),
            " ".join(f"{tpot:+.1f}" for tpot, _ in found),
            " ".join(f"{ttft:+.1f}" for _, ttft in found),
        ])  # fmt: skip
    if not rows:
        return "No points.\n"
    tpot, ttft = np.abs(np.array(errors)).T
    of_kind = np.array([row[5] == _KIND for row in rows])
    text = (
        "A fit begins with the catalog's physics. *Start*: whether its efficiencies were fitted to "
        "points of this accelerator and type of weights (*own*), the predicted ones among them, or "
        f"are the prior of their kind (*{_KIND}*).\n\n"
        f"{len(rows)} of {len(known)} tables, drawn by a seed. Median absolute error of "
        f"{len(errors)} points: TPOT {np.median(tpot):.1f}, TTFT "
        f"{np.median(ttft):.1f}; of {int(of_kind.sum())} tables with the prior of their kind "
        f"TPOT {np.median(tpot[of_kind]):.1f}, TTFT {np.median(ttft[of_kind]):.1f}.\n"
    )
    head = ("server", "tokens", "fitted at", "predicted at", "fit", "start", "TPOT", "TTFT")
    return "\n".join([text, common.markdown(head, rows)])


def _prior_of(points: LatencyPoints) -> str:
    """Whether the catalog's efficiencies were fitted to points of such servers."""
    try:
        source = server_of(points, FITTED_UP_TO).knowledge.source
    except ConfigError:
        return "none"
    return "own" if source.startswith("fitted") else _KIND


def _is_eligible(points: LatencyPoints) -> bool:
    """Points of one replica of vLLM, two of them to fit and one to predict."""
    server, users = points.server, points.concurrency
    few = np.unique(users[users <= FITTED_UP_TO])
    far = (users >= 3 * FITTED_UP_TO) & (users <= 4 * FITTED_UP_TO)
    is_single = server.engine == "vllm" and (server.data_parallel_size or 1) == 1
    return is_single and server.model in MIXTURES and len(few) >= 2 and bool(far.any())


def _with_facts(points: LatencyPoints) -> LatencyPoints:
    """The points with the limits that the scripts of these measurements set."""
    try:
        server = server_of(points, FITTED_UP_TO)
    except ConfigError:
        return points
    group = server.group
    facts: dict[str, Any] = {
        name: getattr(group, name)
        for name in ("max_num_seqs", "max_num_batched_tokens", "num_kv_blocks", "max_model_len")
    }
    facts["max_num_seqs"] = max(facts["max_num_seqs"], 4 * FITTED_UP_TO)
    return dataclasses.replace(points, server=points.server.replace(**facts))


def errors_of(part: PointPart, profile: Profile) -> tuple[float, float]:
    """Of TPOT and TTFT, in percent."""
    itl_s, ttft_s = means(simulate(part.simulation(profile.group)))
    return 100 * (itl_s / part.itl_s - 1), 100 * (ttft_s / part.ttft_s - 1)


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Errors of E2E and TTFT by load, relative to the highest fitted one."""
    figure = style.pyplot().figure(figsize=(10, 4.5), layout="constrained")
    for axes, metric, label in zip(
        figure.subplots(1, 2), ("e2e", "ttft"), ("mean E2E latency", "mean TTFT"), strict=True
    ):
        kinds = dict.fromkeys(cell.split.kind for cell in cells)
        for kind, look in zip(kinds, itertools.cycle(style.STYLES), strict=False):
            same = [cell for cell in cells if cell.split.kind == kind]
            if metric == "ttft":
                same = [cell for cell in same if not cell.report.closed_loop]
            x, y = [cell.load for cell in same], [cell.error(metric) for cell in same]
            axes.plot(x, y, "o", color=look["color"], label=kind, alpha=0.8)
        axes.axhspan(-5, 5, color="#7F7F7F", alpha=0.15)
        axes.axhline(0, color="#7F7F7F", linewidth=0.8)
        axes.set_xlabel("load / highest fitted load")
        axes.set_ylabel(f"error of {label} in %")
        axes.set_yscale("symlog", linthresh=10)
    axes.legend(fontsize="small", frameon=False)
    style.save(figure, path)


if __name__ == "__main__":
    main()
