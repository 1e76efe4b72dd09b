"""Results as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.config.formatting import counted, number, table
from spillway.data.figures import FIGURES, LATENCIES, SMALL_SAMPLE, STATISTICS, group_rows
from spillway.data.replications import Intervals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.data.replications import Replications
    from spillway.data.result_data import ResultData


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


_UNTABLED = ("num", "std", "min", "max")


def latency_rows(values: Mapping[str, Any]) -> list[list[str]]:
    """Latencies in ms below a header; `*` marks a p99 of fewer than 1,000 values."""
    statistics = [statistic for statistic in STATISTICS if statistic not in _UNTABLED]
    rows = [["latency (ms)", *statistics, "n"]]
    for name in LATENCIES:
        n = values[f"num_{name}"]
        cells = [number(values[f"{statistic}_{name}_ms"]) for statistic in statistics]
        if 0 < n < SMALL_SAMPLE:
            cells[-1] += "*"
        rows.append([name, *cells, number(n)])
    return rows


def ledger_line(ledger: Mapping[str, Any]) -> str:
    """The outcomes of the requests, in one line; the parts add up to the attempts."""
    whole = counted(ledger["logical_requests"], "request")
    if ledger["attempts"] != ledger["logical_requests"]:
        whole += f" in {counted(ledger['attempts'], 'attempt')}"
    in_vain = ledger.get("completed_in_vain", 0)
    notes = {"cancelled": f" ({number(in_vain)} completed in vain)"} if in_vain else {}
    parts = [
        f"{number(ledger[outcome])} {outcome.replace('_', ' ')}{notes.get(outcome, '')}"
        for outcome in _OUTCOMES
        if ledger[outcome] or outcome == "completed"
    ]
    for stage in ("rejected", "worker_rejected", "router_rejected", "handoff_rejected"):
        words = stage.replace("_", " ")
        counts = ledger.get(stage, {}).items()
        parts += [f"{number(count)} {words} ({reason})" for reason, count in counts]
    return f"{whole}: {', '.join(parts)}"


def result(run: ResultData, remarks: Sequence[str]) -> str:
    """The printed form of the result of a run, with remarks at its end."""
    summary = run.summary()
    rates = (
        f"duration {number(summary['duration'])} s",
        f"{number(summary['request_throughput'])} requests/s",
        f"{number(summary['output_throughput'])} output tokens/s",
        f"goodput {number(summary['goodput'])}",
        f"Jain {number(summary['jain_tenant'])}",
    )
    head = [
        f"profile {run.profile}, seed {run.seed}, fingerprint {run.fingerprint[:12]}",
        ledger_line(run.ledger),
        ", ".join(rates),
    ]
    anomalies = []
    if rate := summary["cache_hit_rate"]:
        anomalies.append(f"{number(rate)} of the full prompt blocks were in the prefix cache")
    if preemptions := summary["preemptions"]:
        anomalies.append(counted(int(preemptions), "preemption"))
    if blocked := summary["head_of_line_blocking"]:
        anomalies.append(f"{counted(int(blocked), 'instance')} with head-of-line blocking")
    if anomalies:
        head.append(", ".join(anomalies))
    blocks = ["\n".join(head), table(latency_rows(summary))]
    # The figures of a single class or tenant equal those of all requests.
    for title, populations in (("class", run.by_class()), ("tenant", run.by_tenant())):
        if len(populations) > 1:
            blocks.append(table(group_rows(title, populations)))
    if run.faults:
        blocks.append(table(fault_rows(run)))
    if remarks:
        blocks.append("\n".join(f"note: {remark}" for remark in remarks))
    return "\n\n".join(blocks)


def fault_rows(run: ResultData, most: int = 20) -> list[list[str]]:
    """What each fault cost below a header: the `most` that lost most requests."""
    worst = sorted(run.faults, key=lambda fault: -fault["lost_requests"])[:most]
    header = ["fault", "instance", "began s", "noticed s", "served again s", "out of service s",
              "requests lost", "of these went on", "tokens lost"]  # fmt: skip
    rows = []
    for fault in sorted(worst, key=lambda fault: float(fault["began_s"])):
        ended_s = fault["ended_s"]
        # A fault may begin after the last event of the requests.
        span_s = max(0.0, (run.end_s if ended_s is None else ended_s) - fault["began_s"])
        serves = fault["kind"] in ("slowdown", "kv_loss")
        rows.append(
            [
                fault["kind"],
                f"gateway {fault['gateway']}" if "gateway" in fault else str(fault["instance"]),
                number(fault["began_s"]),
                "-" if fault["detected_s"] is None else number(fault["detected_s"]),
                "-" if ended_s is None else number(ended_s),
                "-" if serves else ("" if ended_s is not None else "> ") + number(span_s),
                number(fault["lost_requests"]),
                number(fault.get("migrated_requests", 0)),
                number(fault["lost_tokens"]),
            ]
        )
    if len(run.faults) > most:
        rows.append([f"and {len(run.faults) - most:,} more", *[""] * (len(header) - 1)])
    return [header, *rows]


Parts = tuple[str, list[list[list[str]]], list[str]]
"""A line, tables whose first row is the header, and notes."""


def joined(parts: Parts) -> str:
    """The parts as text."""
    head, blocks, remarks = parts
    lines = [head, *map(table, blocks)]
    if remarks:
        lines.append("\n".join(f"note: {remark}" for remark in remarks))
    return "\n\n".join(lines)


def results(runs: Replications[ResultData]) -> str:
    """Means of the main figures over seeds, with 95% confidence intervals if the runs differ."""
    return joined(results_parts(runs))


def results_parts(runs: Replications[ResultData]) -> Parts:
    """The text of `results` in parts."""
    if not runs:
        return "no runs", [], []
    summary = runs.summary().items()
    shown = Intervals((name, mean) for name, mean in summary if FIGURES[name].is_main)
    head = f"{len(runs)} seeds, 95% confidence intervals of the mean"
    if runs.is_resampled:
        head = (
            f"{len(runs)} resamples of the trace, 95% confidence intervals of the mean over traces "
            "of this length"
        )
    remarks = runs.notes()
    if not runs.is_replicated:
        head, *remarks = remarks or ["1 seed: no confidence interval"]
    return head, [shown.rows()], remarks
