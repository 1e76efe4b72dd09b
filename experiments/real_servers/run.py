"""Predictions of measured runs of real vLLM servers.

Writes README.md. `--data` is a folder of folders with runs (`spillway.read_recordings`); those in
`split.py` are split as stated there, the others by half. The measurements are not part of this
repository.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import common
from experiments.real_servers import mgk
from experiments.real_servers.split import FITTED
from spillway.calibration.latencies import measured, simulated
from spillway.calibration.replay import Replay
from spillway.files.recordings import read_recordings
from spillway.files.traces import TraceError
from spillway.simulate import run_many
from spillway.validation import real

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway import instance
    from spillway.data.recording import Recording
    from spillway.validation.real import Report

_HEAD = (
    "run", "requests", "range", "TTFT mean", "p50", "p99", "ITL mean", "E2E mean", "p99",
    "capacity", "per request: TTFT", "E2E",
)  # fmt: skip

INTRODUCTION = """# Real servers

How well does a server that was fitted to some measured runs predict others? Signed errors in
percent, simulated against measured. A prediction uses send times and lengths only; a run in which
the client reached its limit on requests in flight is replayed in a closed loop from there on.
*In range*: the batch was in the hull of the fitted states for 95% of the time, and at most 1% of
the requests failed. Every predicted run is listed.

A server whose version of vLLM is known, from 0.19 on, follows the rules of its scheduler
(`instance.EngineRules`). With the simulator's own rules instead, the errors of vLLM 0.19 were the
same in every digit (`llmservingsim`), and those of vLLM 0.23 these:

| run | rules | TTFT mean | p50 | p99 | ITL mean | E2E mean | capacity |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
| w5_agg6 | own | -0.9 | -1.2 | +5.0 | +0.0 | +0.0 | -0.0 |
| w5_agg6 | vllm-0.23 | -1.2 | -1.5 | +2.5 | -0.1 | -0.1 | -0.0 |
| w5_agg18 | own | +23.2 | -2.2 | +49.8 | -2.5 | -1.7 | +1.4 |
| w5_agg18 | vllm-0.23 | +27.9 | -1.1 | +50.5 | -2.7 | -1.7 | +1.5 |
| sweep_tenants_3T_agg_6rps | own | +1.2 | +0.5 | +3.4 | +1.4 | +1.4 | -0.0 |
| sweep_tenants_3T_agg_6rps | vllm-0.23 | +0.8 | +0.3 | +3.0 | +1.3 | +1.3 | -0.0 |

`w5_agg18` is at the limit of its client; see *Scaled step times*.

`split.py` states which runs are fitted. It was fixed before the first prediction. After it, with
its errors known, these parts of the method changed: closed-loop replay starts where the limit was
reached (before, recorded times were lower bounds); TTFT of closed-loop runs counts a quarter; the
hull includes states with up to 1.5 times more or less context (before, the states of a single
workload were a line, and no other workload was in range); where the version leaves the scheduling
open, one step ahead is preferred within one standard error; iterations, width of the differences
and ridge of the fit (about ten settings were tried). Runs that were not available here will show
what that is worth.

Repeated runs of the same load, as published with the Qwen3-14B measurements, differ by 1.3% in
mean TTFT, 1.1% in its p50, 2.4% in its p99 and 0.7% in mean E2E latency.

Baselines, each in a table of its own: *linear*, a linear step time (`norm: 1`) and scheduling step
by step, fitted in the same way; *no prefixes*, fitted and predicted as if no prompt were cached,
where prompts repeat; *M/G/k*, a queue with the fitted step time (`mgk.py`), for runs with
independent arrivals.

*Intervals*: whether the measured value lies in the central 90% of 40 predictions with coefficients
drawn from the fit's uncertainty. They hold the noise of the measurements and the spread of the
fitted runs' errors, not what differs between fitted and predicted runs. On 300 synthetic servers,
where nothing differs, they hold 90% of mean TTFT, 90% of p99 TTFT, 94% of mean ITL and 94% of mean
E2E latency (`tests/python/calibration/test_coverage.py`).
Until these tables were written again, the k-th of 40 ordered draws stood for the share (k - 1) / 39
instead of k / 41. It was found on the synthetic servers, of which intervals of 20 draws held 86%,
85%, 90% and 91% that way.

*Scaled step times*: in a closed loop with outputs of one length, requests that finish in one step
are replaced in one step and stay together for good. How many, and with that the TTFT, is decided
while the client approaches its limit. Near saturation that hangs on fractions of a percent of the
step time: the table shows the errors with all fitted times scaled.
"""

_DRAWS = 40
_FACTORS = (0.98, 0.99, 0.995, 1.0, 1.005, 1.01, 1.02, 1.03)
_LEVEL = 90
_FIGURES = {"TTFT mean": 0, "TTFT p99": 4, "ITL mean": 5, "E2E mean": 10}
"""Positions in the statistics of `calibration.latencies`."""


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of folders with runs")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("README.md"))
    options = parser.parse_args()
    folders = sorted(path.parent for path in options.data.glob("*/runs.json"))
    if not folders:
        parser.error(f"{options.data}: no folder in it has a runs.json")
    text = [INTRODUCTION]
    for folder in folders:
        common.say(folder.name)
        text.append(f"## {folder.name}\n")
        text.append(section(folder))
    common.publish("\n".join(text), options.output)


def section(folder: Path) -> str:
    """The tables of a folder."""
    fitted = FITTED.get(folder.name)
    if fitted is None:
        split = "The first half of the requests of each run is fitted, the second predicted."
    else:
        split = f"Fitted: {', '.join(fitted)}."
    ours = predicted(folder, fitted)
    linear = predicted(folder, fitted, norms=(1.0,), ahead=False)
    recordings = {run.name: run for run in read_recordings(folder)}
    replays = {run.run: Replay(recordings[run.run], run.profile.turnaround_s) for run in ours.runs}
    text = [f"{split}\n", table(ours), "\nLinear:\n", table(linear)]
    if any(replay.period is not None for replay in replays.values()):
        text += ["\nNo prefixes:\n", table(predicted(folder, fitted, repeats=False))]
    rows = {
        name: replay.compared & (_second_half(replay.recording) if fitted is None else True)
        for name, replay in replays.items()
    }
    text += ["\nM/G/k:\n", queues(ours, replays, rows)]
    text += ["\nIntervals:\n", intervals(ours, replays, rows)]
    if any(replay.is_closed_loop for replay in replays.values()):
        text += ["\nScaled step times, in closed loops:\n", sensitivity(ours, replays, rows)]
    return "\n".join([*text, ""])


def _second_half(run: Recording) -> np.ndarray:
    return np.arange(run.num_requests) >= run.num_requests // 2


def queues(report: Report, replays: Mapping[str, Replay], rows: Mapping[str, np.ndarray]) -> str:
    """Signed errors of the queue in percent, a row per run with independent arrivals."""
    lines = []
    for run in report.runs:
        replay, chosen = replays[run.run], rows[run.run]
        if replay.is_closed_loop:
            continue
        ttft_s, e2e_s = mgk.latencies(replay, run.profile.group)
        real = measured(replay, chosen)
        pairs = [
            (np.mean(ttft_s[chosen]), np.mean(real.ttft_s)),
            *((np.percentile(ttft_s[chosen], q), np.percentile(real.ttft_s, q)) for q in (50, 99)),
            (np.mean(e2e_s[chosen]), np.mean(real.e2e_s)),
        ]
        lines.append([run.run, *(f"{100 * (value / other - 1):+.1f}" for value, other in pairs)])
    return common.markdown(("run", "TTFT mean", "p50", "p99", "E2E mean"), lines)


def sensitivity(
    report: Report, replays: Mapping[str, Replay], rows: Mapping[str, np.ndarray]
) -> str:
    """Signed errors of the closed-loop runs in percent, with all step times scaled."""
    lines = []
    for run in report.runs:
        replay, chosen = replays[run.run], rows[run.run]
        if not replay.is_closed_loop:
            continue
        real = measured(replay, chosen).logs()
        groups = [scaled(run.profile.group, factor) for factor in _FACTORS]
        results = run_many([replay.simulation(group) for group in groups], keep_requests=True)
        for factor, result in zip(_FACTORS, results, strict=True):
            logs = simulated(result[0], chosen).logs()
            errors = [100 * np.expm1(logs[k] - real[k]) for k in _FIGURES.values()]
            lines.append([run.run, f"{factor - 1:+.1%}", *(f"{error:+.1f}" for error in errors)])
    return common.markdown(("run", "step times", *_FIGURES), lines)


def scaled(group: instance.InstanceGroup, factor: float) -> instance.InstanceGroup:
    """The server with all its times multiplied by a factor."""
    latency = group.latency
    times = {
        name: factor * getattr(latency, name)
        for name in dir(latency)
        if name.endswith("_us") and isinstance(getattr(latency, name), float)
    }
    return group.replace(latency=latency.replace(**times))


def intervals(report: Report, replays: Mapping[str, Replay], rows: Mapping[str, np.ndarray]) -> str:
    """Whether the measured value lies in the interval, and the share of runs in range."""
    lines, inside = [], []
    for run in report.runs:
        replay, chosen = replays[run.run], rows[run.run]
        drawn = run_many(
            [replay.simulation(group) for group in run.profile.draws(_DRAWS)], keep_requests=True
        )
        logs = np.array([simulated(results[0], chosen).logs() for results in drawn])
        real = measured(replay, chosen).logs()
        tails = [(100 - _LEVEL) / 2, (100 + _LEVEL) / 2]
        low, high = np.percentile(logs, tails, axis=0, method="weibull")
        held = [(low[k] <= real[k] <= high[k], low[k], high[k]) for k in _FIGURES.values()]
        if run.in_range:
            inside.append([interval[0] for interval in held])
        lines.append([
            run.run, "in" if run.in_range else "out",
            *(
                f"{'yes' if holds else 'no'} ({100 * np.expm1(a - real[k]):+.1f} to "
                f"{100 * np.expm1(b - real[k]):+.1f})"
                for (holds, a, b), k in zip(held, _FIGURES.values(), strict=True)
            ),
        ])  # fmt: skip
    if inside:
        lines.append(["held in range", "", *(f"{share:.0%}" for share in np.mean(inside, axis=0))])
    return common.markdown(("run", "range", *_FIGURES), lines)


def predicted(folder: Path, fitted: tuple[str, ...] | None, **form: Any) -> Report:
    """Predictions for all runs but the fitted ones, or for the second half of each."""
    if fitted is None:
        return real.validate(folder, half=True, **form)
    with tempfile.TemporaryDirectory() as scratch:
        parts = [part(folder, Path(scratch) / kind, fitted, kind) for kind in ("fit", "score")]
        return real.validate(*parts, **form)


def part(folder: Path, to: Path, fitted: tuple[str, ...], kind: str) -> Path:
    """A folder with the fitted runs, or with the others."""
    described = json.loads((folder / "runs.json").read_text())
    runs = described["runs"] if isinstance(described, dict) else described
    known = {run["run"] for run in runs}
    if missing := sorted(set(fitted) - known):
        raise TraceError(f"{folder}: {missing[0]} is missing")
    chosen = [run for run in runs if (run["run"] in fitted) == (kind == "fit")]
    to.mkdir()
    for run in chosen:
        (to / f"{run['run']}.csv").symlink_to((folder / f"{run['run']}.csv").resolve())
    document = described | {"runs": chosen} if isinstance(described, dict) else chosen
    (to / "runs.json").write_text(json.dumps(document))
    return to


def table(report: Report) -> str:
    """Signed errors in percent, a row per run."""
    rows = []
    for run in report.runs:
        own = [run.statistics[metric]["median_ape_percent"] for metric in ("ttft", "e2e")]
        rows.append([
            run.run, str(run.requests), "in" if run.in_range else "out",
            *(f"{run.error_percent('ttft', figure):+.1f}" for figure in ("mean", "p50", "p99")),
            f"{run.error_percent('itl', 'mean'):+.1f}",
            *(f"{run.error_percent('e2e', figure):+.1f}" for figure in ("mean", "p99")),
            f"{run.error_percent('capacity', ''):+.1f}",
            *("-" if value is None else f"{value:.1f}" for value in own),
        ])  # fmt: skip
    return common.markdown(_HEAD, rows)


if __name__ == "__main__":
    main()
