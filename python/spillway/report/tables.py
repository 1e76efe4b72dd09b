"""Results as plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spillway._figures import FIGURES, LATENCIES, STATISTICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.results import Result, Results
    from spillway.study.study import Study

SMALL_SAMPLE = 1000
"""A 99th percentile of fewer values than this is flagged."""

_LONGEST_SETTING = 60  # characters
_EXACT = 1e15  # whole numbers below this are shown in full
_OUTCOMES = (
    "completed",
    "queued",
    "running",
    "in_transit",
    "at_admission",
    "expired",
    "evicted",
    "cancelled",
    "failed",
)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned, the first to the left, the others to the right; row one is the header."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join(lines)


def number(value: float | None) -> str:
    """A figure for reading, `-` for none; as many decimals as its size calls for."""
    if value is None:
        return "-"
    if value == 0 or isinstance(value, int):
        return f"{int(value):,}"
    size = abs(value)
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 4
    return f"{value:,.{decimals}f}"


def figures(values: Mapping[str, Any]) -> str:
    """Every figure on a line of its own."""
    return table([["figure", "value"], *([name, number(value)] for name, value in values.items())])


def latency_table(values: Mapping[str, Any]) -> str:
    """Latencies in ms with their populations; `*` marks a p99 of fewer than 1,000 values."""
    statistics = [one for one in STATISTICS if one not in ("num", "std")]
    rows = [["latency (ms)", *statistics, "n"]]
    for name in LATENCIES:
        n = values[f"num_{name}"]
        cells = [number(values[f"{statistic}_{name}_ms"]) for statistic in statistics]
        if 0 < n < SMALL_SAMPLE:
            cells[-1] += "*"
        rows.append([name, *cells, number(n)])
    return table(rows)


def population_table(title: str, populations: Mapping[str, Mapping[str, Any]]) -> str:
    """One row per class or tenant."""
    keys = [name for name, one in FIGURES.items() if one.in_group_tables]
    header = [title, *(key.replace("_", " ") for key in keys)]
    return table(
        [header, *([name, *(number(p[key]) for key in keys)] for name, p in populations.items())]
    )


def ledger_line(ledger: Mapping[str, Any]) -> str:
    """Where the requests went, in one line; the parts add up to the attempts."""
    whole = f"{number(ledger['logical_requests'])} requests"
    if ledger["attempts"] != ledger["logical_requests"]:
        whole += f" in {number(ledger['attempts'])} attempts"
    parts = [
        f"{number(ledger[outcome])} {outcome.replace('_', ' ')}"
        for outcome in _OUTCOMES
        if ledger[outcome] or outcome == "completed"
    ]
    for stage in ("rejected", "worker_rejected"):
        words = stage.replace("_", " ")
        parts += [f"{number(count)} {words} ({reason})" for reason, count in ledger[stage].items()]
    return f"{whole}: {', '.join(parts)}"


def result(one: Result) -> str:
    """The whole result of a run as it is printed."""
    summary = one.summary()
    rates = (
        f"duration {number(summary['duration'])} s",
        f"{number(summary['request_throughput'])} requests/s",
        f"{number(summary['output_throughput'])} output tokens/s",
        f"goodput {number(summary['goodput'])}",
        f"Jain {number(summary['jain_tenant'])}",
    )
    head = [
        f"profile {one.profile}, seed {one.seed}, fingerprint {one.fingerprint[:12]}",
        ledger_line(one.ledger),
        ", ".join(rates),
    ]
    anomalies = [
        f"{number(summary[key])} {text}"
        for key, text in (
            ("preemptions", "preemptions"),
            ("head_of_line_blocking", "instances with head-of-line blocking"),
        )
        if summary[key]
    ]
    if anomalies:
        head.append(", ".join(anomalies))
    blocks = ["\n".join(head), latency_table(summary)]
    # A single class or tenant has the figures of the whole.
    for title, populations in (("class", one.by_class()), ("tenant", one.by_tenant())):
        if len(populations) > 1:
            blocks.append(population_table(title, populations))
    if remarks := one.notes():
        blocks.append("\n".join(f"note: {remark}" for remark in remarks))
    return "\n\n".join(blocks)


def results(many: Results) -> str:
    """Means of the main figures over seeds with their 95 % confidence intervals, if there are."""
    if not many:
        return "no runs"
    shown = {name for name, one in FIGURES.items() if one.is_main}
    rows = [["figure", "mean", "low", "high", "runs"]]
    for name, interval in many.summary().items():
        if interval is None or name not in shown:
            continue
        cells = [number(interval.mean), number(interval.low), number(interval.high)]
        rows.append([name, *cells, str(interval.n)])
    head = f"{len(many)} seeds, 95 % confidence intervals of the mean"
    if not many.is_replicated:
        head = "; ".join(many.notes()) or "1 seed: no confidence interval"
    return f"{head}\n\n{table(rows)}"


def study(one: Study) -> str:
    """Where a study stands, and the best of it."""
    states = [trial.state for trial in one.records]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    head = f"{len(states)} trials" + (f": {counts}" if counts else "")
    rows = [["trial", *(objective.name for objective in one.objectives), "se", "state"]]
    best = one.feasible[:5]
    current = [trial for trial in one.records if trial.is_baseline]
    for trial in (*best, *(trial for trial in current if trial not in best)):
        name = f"{trial.number} (current)" if trial.is_baseline else str(trial.number)
        values = [f"{value:.4g}" for value in trial.values] or ["-"] * len(one.objectives)
        ses = "-" if trial.is_exact else ", ".join(f"{se:.2g}" for se in trial.ses)
        rows.append([name, *values, ses, trial.state])
    if len(rows) == 1:
        return head
    blocks = [f"{head}; best first", table(rows)]
    if best:
        shown = (*current, best[0]) if current and best[0] is not current[0] else best[:1]
        names = ["current" if trial.is_baseline else f"trial {trial.number}" for trial in shown]
        settings = [["parameter", *names]]
        for name in one.bound.parameters:
            values = [trial.point.get(name, "-") for trial in shown]
            settings.append([name, *(setting(value) for value in values)])
        blocks.append(table(settings))
    blocks += [f"note: {note}" for note in one.notes()]
    return "\n\n".join(blocks)


def setting(value: Any) -> str:
    """The value of any setting for reading, as a configuration file would have it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < _EXACT else f"{value:.4g}"
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{name}: {setting(one)}" for name, one in value.items()) + "}"
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(setting(one) for one in value) + "]"
    else:
        return str(value)
    return text if len(text) <= _LONGEST_SETTING else text[: _LONGEST_SETTING - 1] + "…"


def point(values: Mapping[str, Any]) -> str:
    """Settings with their values, in one line."""
    return ", ".join(f"{name} = {setting(value)}" for name, value in values.items())
