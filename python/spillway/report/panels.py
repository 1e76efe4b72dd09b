"""A run at a glance as HTML: its verdict, headline figures against targets, charts over time.

The charts are data; a script in the page draws them, shows values under the pointer and zooms.
"""

from __future__ import annotations

import html
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config.formatting import counted, number
from spillway.data.figures import SHED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from spillway.data.result_data import ResultData

_BINS = 120
_FEWEST = 5  # latencies of a bin, for a percentile
_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2el"}
_NAMES = {"ttft": "TTFT", "tpot": "time per output token", "e2e": "E2E latency"}
_DIGITS = 5  # of numbers in charts

STYLE = """
.verdict { font-size: 1.15rem; } .verdict, li, code { overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.2rem, 1fr)); gap: .7rem; }
.card { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .7rem; }
.card b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.card.missed b { color: #c4432b; } .card.met b { color: #1a8a5a; }
@media (prefers-color-scheme: dark) {
  .card.missed b { color: #ff8a70; } .card.met b { color: #4cc38a; } }
.card span { font-size: .85rem; opacity: .8; }
figure { margin: 1.1rem 0; } figcaption { font-weight: 600; }
figure svg { width: 100%; height: 180px; touch-action: pan-y; }
figure p { margin: 0; font-size: .85rem; } figure i { font-style: normal; font-weight: 600; }
details { margin: .8rem 0; } summary { cursor: pointer; font-weight: 600; }
@media print { .card, figure { break-inside: avoid; } body { max-width: none; } }
"""

SCRIPT = """
const charts = [...document.querySelectorAll("svg[data-chart]")].map((svg) => ({
  svg, legend: svg.nextElementSibling, data: JSON.parse(svg.dataset.chart) }));
const colors = ["#0a84c8", "#d55e00", "#009e73"];
const last = Math.max(0, ...charts.map((chart) => chart.data.time_s.at(-1) ?? 0));
let span = [0, last], pointer = null, anchor = null;
const short = (value) => value == null ? "-" : Number(value.toPrecision(3)).toLocaleString("en");
function steps(low, high, count) {
  const rough = (high - low) / count || 1, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((size) => size >= rough), found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return found;
}
function draw({ svg, legend, data }) {
  const W = svg.clientWidth || 720, H = 180, left = 52, bottom = 22, [from, to] = span;
  const inside = data.time_s.map((t, i) => i).filter((i) => data.time_s[i] >= from
                                                         && data.time_s[i] <= to);
  const values = data.lines.flatMap((line) => inside.map((i) => line.values[i]));
  const top = Math.max(...values.filter((v) => v != null), data.target ?? 0, 1e-9) * 1.08;
  const x = (t) => left + (t - from) / (to - from || 1) * (W - left - 6);
  const y = (v) => (H - bottom) - v / top * (H - bottom - 6);
  let out = "";
  for (const v of steps(0, top, 4))
    out += `<line x1="${left}" x2="${W - 6}" y1="${y(v)}" y2="${y(v)}" stroke="currentColor"
      opacity=".15"/><text x="${left - 6}" y="${y(v) + 4}" text-anchor="end">${short(v)}</text>`;
  for (const t of steps(from, to, Math.max(2, W / 110)))
    out += `<text x="${x(t)}" y="${H - 5}" text-anchor="middle">${short(t)} s</text>`;
  for (const [begin, end] of data.faults.filter(([a, b]) => b > from && a < to)) {
    const low = Math.max(begin, from), high = Math.min(end, to);
    out += `<rect x="${x(low)}" y="6" width="${Math.max(x(high) - x(low), 1)}"
      height="${H - bottom - 6}" fill="#d55e00" opacity=".18"/>`;
  }
  if (data.target != null)
    out += `<line x1="${left}" x2="${W - 6}" y1="${y(data.target)}" y2="${y(data.target)}"
      stroke="currentColor" stroke-dasharray="5 4"/>`;
  data.lines.forEach((line, k) => {
    let path = "", pen = "M";
    for (const i of inside) {
      if (line.values[i] == null) { pen = "M"; continue; }
      path += `${pen}${x(data.time_s[i]).toFixed(1)} ${y(line.values[i]).toFixed(1)}`;
      pen = "L";
    }
    out += `<path d="${path}" fill="none" stroke="${colors[k]}" stroke-width="1.8"/>`;
  });
  let at = -1;
  if (pointer != null && inside.length) {
    const t = from + (pointer - left) / (W - left - 6) * (to - from);
    at = inside.reduce((best, i) =>
      Math.abs(data.time_s[i] - t) < Math.abs(data.time_s[best] - t) ? i : best, inside[0]);
    const place = x(data.time_s[at]);
    out += `<line x1="${place}" x2="${place}" y1="0" y2="${H - bottom}" stroke="currentColor"/>`;
    if (anchor != null)
      out += `<rect x="${Math.min(anchor, pointer)}" y="0" width="${Math.abs(pointer - anchor)}"
        height="${H - bottom}" fill="currentColor" opacity=".12"/>`;
  }
  svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
  svg.innerHTML = out;
  const parts = data.lines.map((line, k) =>
    `<i style="color:${colors[k]}">${line.name}</i>${at < 0 ? "" : " " + short(line.values[at])}`);
  if (data.target != null) parts.push(`dashed: ${data.of_target} ${short(data.target)}`);
  if (data.faults.length) parts.push("shaded: an instance or gateway had failed, or was slow");
  if (at >= 0) parts.push(`at ${short(data.time_s[at])} s`);
  legend.innerHTML = parts.join(" · ");
}
const all = () => charts.forEach(draw);
for (const { svg } of charts) {
  const place = (event) => event.clientX - svg.getBoundingClientRect().left;
  svg.addEventListener("pointermove", (event) => { pointer = place(event); all(); });
  svg.addEventListener("pointerleave", () => { pointer = anchor = null; all(); });
  svg.addEventListener("pointerdown", (event) => { anchor = place(event); });
  svg.addEventListener("pointerup", (event) => {
    const width = svg.clientWidth - 58, at = (p) =>
      span[0] + Math.min(Math.max((p - 52) / width, 0), 1) * (span[1] - span[0]);
    const ends = [anchor ?? 0, place(event)].sort((a, b) => a - b);
    if (anchor != null && ends[1] - ends[0] > 8) span = ends.map(at);
    anchor = null; all();
  });
  svg.addEventListener("dblclick", () => { span = [0, last]; all(); });
}
addEventListener("resize", all); all();
"""


def name_of(run: ResultData) -> str:
    """A name for a run that has none: what it serves, on what."""
    servers = sum(group.count for group in run.simulation.instances)
    requests = counted(run.ledger["logical_requests"], "request")
    return f"{requests} on {counted(servers, 'server')}"


def verdict(run: ResultData, first: str) -> str:
    """Whether the targets are met, in a sentence, and the worst finding, if it is severe."""
    summary, ledger = run.summary(), run.ledger
    if not summary["offered"]:
        return "No request arrived in the measured time."
    goodput = summary["goodput"]
    of_all = 1 - (summary["completed"] or 0) / summary["offered"]
    rest = f"{of_all:.1%} of the {counted(int(summary['offered']), 'request')} did not complete"
    if goodput is None:
        text = f"No class with traffic has a latency target; {rest}."
    else:
        late = [card for card in _targets(run) if card[3]]
        text = f"{goodput:.1%} of the requests were within all targets of their class, and {rest}."
        worst = late[0] if late else None
        if worst is not None:
            text += f" {worst[0]} is {worst[1]}, {worst[2]}."
    if ledger["attempts"] != ledger["logical_requests"]:
        text += f" Clients made {counted(ledger['attempts'], 'attempt')}."
    return f"{text} {first}".strip()


def _targets(run: ResultData) -> list[tuple[str, str, str, bool]]:
    """Of each latency with targets: name, value, target, whether it is missed; worst class each.

    The most missed comes first.
    """
    by_class, found = run.by_class(), []
    for metric, figure in _LATENCIES.items():
        worst: tuple[float, str, float, float] | None = None
        for known in run.simulation.slo_classes:
            target_s = getattr(known, f"target_{metric}_s")
            if target_s is None or known.name not in by_class:
                continue
            value_ms = by_class[known.name][f"p99_{figure}_ms"]
            if value_ms is None:
                continue
            over = float(value_ms) / (target_s * 1e3)
            if worst is None or over > worst[0]:
                worst = over, known.name, float(value_ms), target_s * 1e3
        if worst is not None:
            over, name, value_ms, target_ms = worst
            of = f" of {name}" if len(by_class) > 1 else ""
            shown = (f"p99 {_NAMES[metric]}{of}", f"{number(value_ms)} ms")
            found.append((over, (*shown, f"target {number(target_ms)} ms", over > 1)))
    return [card for _, card in sorted(found, key=lambda pair: -pair[0])]


def cards(run: ResultData) -> str:
    """At most six headline figures, against their targets where there are any."""
    summary = run.summary()
    shown: list[tuple[str, str, str, bool | None]] = []
    if summary["goodput"] is not None:
        shown.append(("goodput", f"{summary['goodput']:.1%}", "within all targets", None))
    shown += _targets(run)
    for metric, figure in _LATENCIES.items():
        value = summary[f"p99_{figure}_ms"]
        if value is not None and not any(f"p99 {_NAMES[metric]}" in card[0] for card in shown):
            shown.append((f"p99 {_NAMES[metric]}", f"{number(value)} ms", "no target", None))
    if summary["offered"]:
        refused = sum(int(summary[name] or 0) for name in SHED) / summary["offered"]
        shown.append(("shed", f"{refused:.1%}", "rejected, expired, evicted", None))
    throughput = number(summary["output_throughput"])
    shown.append(("throughput", throughput, "output tokens/s", None))
    states = {None: "", True: " missed", False: " met"}
    return (
        '<div class="cards">'
        + "".join(
            f'<div class="card{states[missed]}"><span>{html.escape(name)}</span>'
            f"<b>{html.escape(value)}</b><span>{html.escape(note)}</span></div>"
            for name, value, note, missed in shown[:6]
        )
        + "</div>"
    )


def charts(run: ResultData) -> str:
    """Offered and shed requests, those in flight, p99 of TTFT, KV memory and pools over time."""
    if not run.has_requests:
        return ""
    faults_s = [
        (fault["began_s"], run.end_s if fault["ended_s"] is None else fault["ended_s"])
        for fault in run.faults
        if fault["began_s"] < run.end_s
    ]
    return "".join(_chart(**chart, faults_s=faults_s) for chart in _over_time(run))


def _over_time(run: ResultData) -> Iterator[dict[str, Any]]:
    columns = run._columns()
    arrival_s, ttft_ms = columns["arrival_s"], columns["ttft_s"] * 1e3
    if not len(arrival_s):
        return
    edges_s = np.linspace(0.0, float(arrival_s.max()) or 1.0, _BINS + 1)
    middle_s, width_s = (edges_s[1:] + edges_s[:-1]) / 2, edges_s[1]
    outcomes = run._names()["outcomes"]
    shed = np.isin(columns["outcome"], [i for i, name in enumerate(outcomes) if name in SHED])
    offered, lost = (np.histogram(at, edges_s)[0] / width_s for at in (arrival_s, arrival_s[shed]))
    yield {
        "title": "Requests per second, by arrival",
        "time_s": middle_s,
        "lines": {"offered": offered, "shed": lost},
    }
    which = np.clip(np.searchsorted(edges_s, arrival_s, side="right") - 1, 0, _BINS - 1)
    known = ~np.isnan(ttft_ms)
    p99 = np.full(_BINS, np.nan)
    for i in range(_BINS):
        values = ttft_ms[known & (which == i)]
        if len(values) >= _FEWEST:
            p99[i] = np.quantile(values, 0.99)
    used = set(np.unique(columns["slo_class"]).tolist())
    names = run._names()["slo_classes"]
    targets = [
        (slo_class.target_ttft_s * 1e3, slo_class.name)
        for slo_class in run.simulation.slo_classes
        if slo_class.target_ttft_s is not None
        and any(names[code] == slo_class.name for code in used)
    ]
    target_ms, of_class = min(targets, default=(None, ""))
    yield {
        "title": "p99 of the time to first token (ms), by arrival",
        "time_s": middle_s,
        "lines": {"p99 TTFT": p99},
        "target": target_ms,
        "of_target": f"target of {of_class}",
    }
    if run.simulation.metrics.timeline_step_s is None:
        return
    timeline = run.timeline
    time_s = timeline["time_s"]
    if len(time_s) < 2:
        return
    every = -(-len(time_s) // (2 * _BINS))
    lines = {"in flight": timeline["in_flight"], "limit": timeline["permits"]}
    lines = {name: values for name, values in lines.items() if not np.isnan(values).all()}
    yield {
        "title": "Requests in flight",
        "time_s": time_s[::every],
        "lines": {name: values[::every] for name, values in lines.items()},
    }
    memory = {"KV blocks": timeline["kv_utilization"]}
    if timeline.pools:
        waiting = {f"{pool} pool": timeline[f"{pool}_waiting"] for pool in timeline.pools}
        waiting["transfers"] = timeline["transfers"]
        yield {
            "title": "Requests waiting in the pools, and prompts on the way between them",
            "time_s": time_s[::every],
            "lines": {name: values[::every] for name, values in waiting.items()},
        }
        memory = {f"{pool} pool": timeline[f"{pool}_kv_utilization"] for pool in timeline.pools}
    yield {
        "title": "KV memory in use (%)",
        "time_s": time_s[::every],
        "lines": {name: 100 * values[::every] for name, values in memory.items()},
    }


def _chart(
    title: str,
    time_s: NDArray[Any],
    lines: dict[str, NDArray[Any]],
    target: float | None = None,
    of_target: str = "",
    *,
    faults_s: Sequence[tuple[float, float]] = (),
) -> str:
    data = {
        "time_s": _plain(time_s),
        "lines": [{"name": name, "values": _plain(values)} for name, values in lines.items()],
        "target": target,
        "of_target": html.escape(of_target),
        "faults": faults_s,
    }
    text = html.escape(json.dumps(data, allow_nan=False, separators=(",", ":")))
    name = html.escape(title)
    return (
        f'<figure><figcaption>{name}</figcaption><svg role="img" aria-label="{name}" '
        f'font-size="11" fill="currentColor" data-chart="{text}"></svg><p></p></figure>'
    )


def _plain(values: NDArray[Any]) -> list[float | None]:
    return [
        float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None for value in values.tolist()
    ]
