"""Comparison with recorded runs of BLIS v0.6.14, request by request.

`spillway.systems.blis.runs` describes the recordings.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.config.progress import reporting
from spillway.data.figures import FIGURES
from spillway.simulate import simulate
from spillway.systems.blis.runs import Recording, recordings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spillway.config.progress import Progress
    from spillway.result import Result

__all__ = ["Report", "ScenarioReport", "validate"]


_MOST_DIFFERENCES = 5
_RELATIVE_TOLERANCE = 1e-9  # BLIS sums means in another order

# Figure of a request → column of the run in seconds, tolerance in microseconds. The conversion of
# whole microseconds to seconds and back errs by far less than the first tolerance; the second is
# half of the last recorded digit.
_COLUMNS = {
    "ttft_us": ("ttft_s", 1e-3),
    "e2e_us": ("e2e_s", 1e-3),
    "scheduling_delay_us": ("scheduling_delay_s", 1e-3),
    "itl_mean_us": ("itl_mean_s", 5e-4 + 1e-6),
}

# Key of `aggregate` → key of the summary.
_AGGREGATE = {figure.blis: name for name, figure in FIGURES.items() if figure.blis}


@dataclass(frozen=True)
class ScenarioReport:
    """The comparison of one scenario.

    Attributes
    ----------
    name : str
        The folder, relative to the given one.
    requests, exact : int
        Offered requests, and those with equal results in both: completed with equal figures on the
        same instance, or not completed.
    unsupported : str or None
        Features of the scenario that Spillway lacks; the scenario is not run then.
    aggregate_mismatches : tuple of str
        Aggregate figures that differ, as text.
    first_differences : tuple of str
        The first requests that differ, as text.

    """

    name: str
    requests: int
    exact: int
    unsupported: str | None = None
    aggregate_mismatches: tuple[str, ...] = ()
    first_differences: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether the scenario was run and everything is equal."""
        is_exact = self.exact == self.requests and not self.aggregate_mismatches
        return self.unsupported is None and is_exact


@dataclass(frozen=True)
class Report:
    """The comparison of all scenarios."""

    scenarios: tuple[ScenarioReport, ...]

    @property
    def agrees(self) -> bool:
        """Whether every scenario was run and agrees entirely."""
        return bool(self.scenarios) and all(scenario.agrees for scenario in self.scenarios)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts and lists."""
        scenarios = [asdict(scenario) for scenario in self.scenarios]
        for scenario in scenarios:
            del scenario["first_differences"]
        return {"scenarios": scenarios}

    def table(self) -> str:
        """Return the report as text: one line per scenario, differences below it."""
        width = max(map(len, ("scenario", *(scenario.name for scenario in self.scenarios))))
        lines = [f"{'scenario':<{width}}  {'requests':>8}  {'exact':>8}  result"]
        for scenario in self.scenarios:
            if scenario.unsupported is not None:
                exact, result = "-", f"unsupported: {scenario.unsupported}"
            else:
                exact, result = str(scenario.exact), "agrees" if scenario.agrees else "differs"
            lines.append(f"{scenario.name:<{width}}  {scenario.requests:>8}  {exact:>8}  {result}")
            differences = (*scenario.first_differences, *scenario.aggregate_mismatches)
            lines += [f"    {text}" for text in differences]
        return "\n".join(lines)


def validate(directory: str | Path, *, progress: Progress = False) -> Report:
    """Run every scenario in a folder, at any depth, and compare the results with the recorded ones.

    Latencies must be equal to the microsecond (mean gaps between tokens to a nanosecond), instances
    equal, aggregate figures equal to 1e-9 of their value. `progress`: as for `run_many`, with
    finished scenarios.

    Raises
    ------
    TraceError
        The folder holds no scenario, or one of them is incomplete or cannot be read.

    """
    directory = Path(directory)
    found = list(recordings(directory))
    reports: list[ScenarioReport] = []
    with reporting(progress, "scenarios") as report:
        for scenario in found:
            reports.append(_compared(scenario, directory))
            if report is not None:
                report(len(reports), len(found), reports[-1].name)
    return Report(tuple(reports))


def _compared(recording: Recording, directory: Path) -> ScenarioReport:
    folder = recording.folder
    name = folder.resolve().name if folder == directory else str(folder.relative_to(directory))
    ids = recording.columns["request_id"]
    expected = recording.requests()
    settings, unsupported = recording.settings()
    rows = len(ids)
    if unsupported:
        return ScenarioReport(name, rows, 0, unsupported="; ".join(unsupported))
    result = simulate(recording.simulation(settings))
    differences = list(_differences(ids, expected, result))
    return ScenarioReport(
        name,
        rows,
        rows - len(differences),
        aggregate_mismatches=tuple(_aggregate_mismatches(recording, result)),
        first_differences=tuple(differences[:_MOST_DIFFERENCES]),
    )


def _differences(
    ids: Sequence[str], expected: Mapping[str, Mapping[str, Any]], result: Result
) -> Iterator[str]:
    """One text per request that differs."""
    columns = result.requests
    outcomes = columns["outcome"].tolist()
    for row, request_id in enumerate(ids):
        # A horizon may end the run before the last arrival.
        outcome = outcomes[row] if row < len(outcomes) else "not offered"
        recorded = expected.get(request_id)
        if outcome != "completed" or recorded is None:
            if outcome == "completed":
                yield f"request {request_id}: completed here, but not in the recording"
            elif recorded is not None:
                yield f"request {request_id}: completed in the recording, {outcome} here"
            continue
        parts = []
        for name, (column, tolerance_us) in _COLUMNS.items():
            value_us = float(columns[column][row]) * 1e6
            if not abs(value_us - recorded[name]) <= tolerance_us:
                parts.append(f"{name} {recorded[name]:.12g} recorded, {value_us:.12g} here")
        instance = f"instance_{columns['instance'][row]}"
        if instance != recorded["instance"]:
            parts.append(f"{recorded['instance']} recorded, {instance} here")
        if parts:
            yield f"request {request_id}: {'; '.join(parts)}"


def _aggregate_mismatches(recording: Recording, result: Result) -> Iterator[str]:
    """One text per aggregate figure that differs."""
    for name, value in _aggregate_of(result).items():
        recorded = recording.aggregate.get(name)
        if isinstance(recorded, bool) or not isinstance(recorded, (int, float)):
            yield f"{name}: {recorded!r} recorded, {value} here"
        elif not math.isclose(recorded, value, rel_tol=_RELATIVE_TOLERANCE, abs_tol=0):
            yield f"{name}: {recorded} recorded, {value} here"
    # BLIS prints them only if they are not zero.
    if (failures := recording.aggregate.get("kv_allocation_failures", 0)) != 0:
        yield f"kv_allocation_failures: {failures} recorded, 0 here"

    text = recording.text
    for name, printed in _printed_of(result).items():
        # BLIS does not print blocks of figures that are all zero.
        absent = None
        if name in _ANOMALIES and "=== Anomaly Counters ===" not in text:
            absent = "0"
        elif name == "Cache Hit Rate" and "=== KV Cache Metrics ===" not in text:
            absent = "0.0000"
        if text.get(name, absent) != printed:
            yield f"{name}: {text.get(name)} recorded, {printed} here"
    targets = {name: count for name, count in text.items() if name.startswith("instance_")}
    routed = Counter(instance for instance in result.requests["instance"].tolist() if instance >= 0)
    ours = {f"instance_{instance}": str(count) for instance, count in routed.items()}
    if targets != ours:
        yield f"target distribution: {_words(targets)} recorded, {_words(ours)} here"


def _aggregate_of(result: Result) -> dict[str, float]:
    """Return the run's figures under the names of `aggregate`; figures without values are 0."""
    summary = result.summary()
    columns = result.requests
    figures = {name: summary[key] or 0 for name, key in _AGGREGATE.items()}
    in_engine = columns["outcome"] == "running"
    running = int((in_engine & (columns["scheduling_delay_s"] >= 0)).sum())  # NaN: never
    queued = int(in_engine.sum()) - running
    unservable = result.ledger["worker_rejected"].get("unservable", 0)
    return figures | {
        "still_queued": queued,
        "still_running": running,
        "dropped_unservable": unservable,
        "injected_requests": result.ledger["completed"] + queued + running + unservable,
        "length_capped_requests": 0,
        "timed_out_requests": 0,
    }


_ANOMALIES = (
    "Priority Inversions",
    "HOL Blocking Events",
    "Rejected Requests (Admission)",
    "Rejected Requests (Routing)",
    "Dropped Unservable",
    "Length-Capped Requests",
)


def _printed_of(result: Result) -> dict[str, str]:
    """Return the run's figures as BLIS prints them."""
    summary = result.summary()
    ledger = result.ledger
    rejected = sum(ledger["rejected"].values())
    unservable = ledger["worker_rejected"].get("unservable", 0)
    anomalies = (summary["priority_inversions"], summary["head_of_line_blocking"])
    counters = (*anomalies, rejected, 0, unservable, 0)
    return {
        "Score": f"{summary['fitness']:.6f}",
        **{name: str(count) for name, count in zip(_ANOMALIES, counters, strict=True)},
        "Cache Hit Rate": f"{summary['cache_hit_rate'] or 0:.4f}",
        "Mean Regret": f"{summary['mean_regret'] or 0:.6f}",
        "Max Regret": f"{summary['max_regret'] or 0:.6f}",
        "Total Decisions": str(ledger["admitted"] + rejected),
        "Admitted": str(ledger["admitted"]),
        "Rejected": str(rejected),
    }


def _words(counts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {counts[name]}" for name in sorted(counts)) or "nothing"
