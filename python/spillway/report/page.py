"""Results as HTML: one file that needs nothing else, and pieces for notebooks."""

from __future__ import annotations

import base64
import html
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway._core.sim import UsageError, build_info
from spillway.config import files, interruption
from spillway.config.extras import require
from spillway.config.filesystem import replacing
from spillway.config.formatting import number, without_keys
from spillway.config.yaml import to_yaml
from spillway.data.figures import FIGURES, group_rows
from spillway.report import panels
from spillway.report import tables as texts

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from spillway._core.cluster import Simulation
    from spillway.data.result_data import ResultData


_DPI = 130
_MOST = 5  # findings that are shown
_NUMBER = re.compile(r"[-+<>= ]*[0-9.].*|-?")

_STYLE = """
:root { color-scheme: light dark; --line: #8885; --soft: #8882; }
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1rem; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.scroll { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, .words { text-align: left; }
th { cursor: pointer; white-space: nowrap; } th[aria-sort]::after { content: " ▲"; }
th[aria-sort=descending]::after { content: " ▼"; }
tbody tr:nth-child(even) { background: var(--soft); }
img { max-width: 100%; height: auto; }
pre { overflow-x: auto; background: var(--soft); padding: .7rem; font-size: .85rem; }
li { margin: .2rem 0; } p, h1, summary { overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  th, td { padding: .2rem .35rem; font-size: .85rem; white-space: nowrap; } }
@media (prefers-color-scheme: dark) { img { filter: invert(1) hue-rotate(180deg); } }
@media print {
  h1, h2, summary { break-after: avoid; } img, tr { break-inside: avoid; }
  .scroll { overflow: visible; } table { font-size: .75rem; } pre { white-space: pre-wrap; } }
"""

_SCRIPT = """
for (const head of document.querySelectorAll("th")) {
  const sort = () => {
    const row = head.parentNode, body = head.closest("table").tBodies[0];
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of row.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (line) => {
      const text = line.cells[head.cellIndex].textContent.replace(/[,*]/g, "");
      return text !== "" && !isNaN(text) ? Number(text) : text;
    };
    const order = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0)
                          : typeof a === "number" ? -1 : 1;
    const lines = Array.from(body.rows).sort((a, b) => order(value(a), value(b)));
    body.append(...(up ? lines : lines.reverse()));
  };
  head.tabIndex = 0;
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
}
"""


def document(title: str, parts: Iterable[str]) -> str:
    """A whole page of pieces of HTML. Its styles and its script are inside."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}{panels.STYLE}</style></head><body>"
        f"<h1>{html.escape(title)}</h1>{without_keys(''.join(parts))}"
        f"<script>{_SCRIPT}{panels.SCRIPT}</script></body></html>\n"
    )


def save(path: str | os.PathLike[str], title: str, parts: Iterable[str]) -> None:
    """Writes a page. Raises ConfigError if the file cannot be written."""
    with replacing(Path(path)) as temporary:
        temporary.write_text(document(title, parts), encoding="utf-8")


# ---- pieces --------------------------------------------------------------------------------------


def table(header: Sequence[str], *rows: Sequence[str]) -> str:
    """A table that sorts in a page, with words to the left. Its text is escaped."""
    kinds = [
        "" if all(map(_NUMBER.fullmatch, cells)) else ' class="words"'
        for cells in zip(*rows, strict=True)
    ] or [""] * len(header)

    def line(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(kinds, cells, strict=True)
        return "".join(f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for kind, cell in pairs)

    head, body = line("th", header), "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def tables(head: str, blocks: Iterable[Sequence[Sequence[str]]], remarks: Sequence[str]) -> str:
    """A line, tables whose first row is the header, and notes."""
    found = "".join(table(*block) for block in blocks)
    return f"<p>{html.escape(head)}</p>{found}{notes(remarks)}"


def verdict(text: str) -> str:
    """The sentence with which a page begins."""
    return f'<p class="verdict">{html.escape(text)}</p>'


def preformatted(text: str) -> str:
    """A text as it is printed; empty if it is."""
    return f"<pre>{html.escape(text)}</pre>" if text else ""


def notes(remarks: Sequence[str]) -> str:
    """A list of remarks; empty if there are none."""
    if not remarks:
        return ""
    lines = "".join(f"<li>{html.escape(remark)}</li>" for remark in remarks)
    return f"<h2>Notes</h2><ul>{lines}</ul>"


def picture(title: str, draw: Callable[[], Figure | SubFigure | None]) -> str:
    """A figure under its title; empty if there is nothing to draw, or without the extra `plot`."""
    buffer = io.BytesIO()
    # Ctrl-C can be lost within Matplotlib: in callbacks of weak references, and in compiled code.
    with interruption.deferred():
        try:
            figure: Any = draw()
        except (ImportError, LookupError, ValueError, UsageError):
            return ""
        figure.savefig(buffer, format="png", dpi=_DPI, bbox_inches="tight")
        # Without this a notebook would show it as well.
        require("matplotlib.pyplot", "plot").close(figure)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    name = html.escape(title)
    return f'<h2>{name}</h2><img alt="{name}" src="data:image/png;base64,{data}">'


def chart(title: str, draw: Callable[[Axes], object], *, height: float = 4) -> str:
    """What is drawn into axes of this height in inches, as `picture`."""

    def figure() -> Figure:
        drawn: Figure = require("matplotlib.figure", "plot").Figure(figsize=(7.5, height))
        draw(drawn.add_subplot())
        return drawn

    return picture(title, figure)


def configuration(name: str, simulation: Simulation, profile: str) -> str:
    """All settings, folded, as a file for `spillway run`."""
    settings = html.escape(to_yaml(simulation.to_dict()))
    return (
        f"<details><summary>{html.escape(name)}</summary><pre>schema: {files.SCHEMA}\n"
        f"profile: {html.escape(profile)}\n{settings}</pre></details>"
    )


# ---- results -------------------------------------------------------------------------------------


def summary(run: ResultData, remarks: Sequence[str]) -> str:
    """The main figures of a run and its notes."""
    figures = run.summary()
    rows = [
        [key.replace("_", " "), number(figures[key]), figure.unit]
        for key, figure in FIGURES.items()
        if figure.is_main and figures.get(key) is not None
    ]
    ledger = html.escape(texts.ledger_line(run.ledger))
    return f"<p>{ledger}.</p>{table(['figure', 'value', 'unit'], *rows)}{notes(remarks)}"


class Remark(NamedTuple):
    """A finding for a page: its sentence, the figures behind it, the settings to try."""

    severity: str
    text: str
    evidence: Sequence[str]
    remedies: Sequence[str]


def result(
    run: ResultData, remarks: Sequence[Remark], causes: Sequence[Sequence[str]] | str
) -> list[str]:
    """A run for a person: verdict, headline figures, time, causes, findings, faults, populations.

    `causes` is a table below its header, or why there is none. The rest is folded. Pictures need
    the extra `plot`, and requests that were kept.
    """
    worst = next((known.text for known in remarks if known.severity == "high"), "")
    parts = [
        verdict(panels.verdict(run, worst)),
        panels.cards(run),
        panels.charts(run),
        "<h2>Where the time goes</h2>",
        f"<p>Unknown: {html.escape(causes)}</p>" if isinstance(causes, str) else table(*causes),
        _findings(remarks),
    ]
    if run.faults:
        parts += ["<h2>Failures of instances and gateways</h2>", table(*texts.fault_rows(run))]
    for heading, populations in (("Classes", run.by_class()), ("Tenants", run.by_tenant())):
        if len(populations) > 1:
            parts += [f"<h2>{heading}</h2>", table(*group_rows("name", populations))]
    return [
        *parts,
        folded("All figures", summary(run, ()) + table(*texts.latency_rows(run.summary()))),
        folded("Pictures", "".join(_pictures(run))),
        configuration("All settings, as a file for `spillway run`", run.simulation, run.profile),
        provenance(run.fingerprint, [run.seed]),
    ]


def folded(heading: str, inside: str) -> str:
    """Details that a click shows; empty if there are none."""
    if not inside:
        return ""
    return f"<details><summary>{html.escape(heading)}</summary>{inside}</details>"


def _findings(remarks: Sequence[Remark]) -> str:
    """The worst findings as a list, with what to try, and the rest folded."""
    items = []
    for known in remarks:
        lines = [f"<b>{known.severity}</b>: {html.escape(known.text)}"]
        lines += [f"<li>{html.escape(text)}</li>" for text in known.evidence]
        lines += [f"<li>try <code>{html.escape(text)}</code></li>" for text in known.remedies]
        items.append(f"<li>{lines[0]}<ul>{''.join(lines[1:])}</ul></li>")
    if not items:
        return "<h2>Findings</h2><p>Nothing was found.</p>"
    more = folded(f"{len(items) - _MOST} more", f"<ul>{''.join(items[_MOST:])}</ul>")
    shown = f"<h2>Findings</h2><ol>{''.join(items[:_MOST])}</ol>"
    return shown + (more if len(items) > _MOST else "")


def provenance(fingerprint: str, seeds: Sequence[int]) -> str:
    """Where the numbers come from: version, fingerprint of the settings, seeds."""
    line = f"Spillway {build_info['version']}, fingerprint {fingerprint}, "
    line += f"seed {seeds[0]}." if len(seeds) == 1 else f"{len(seeds)} seeds from {min(seeds)} on."
    return f"<p>{html.escape(line)}</p>"


def _pictures(run: ResultData) -> list[str]:
    if not run.has_requests:
        return []

    from spillway.report import plots

    found = [
        picture("Outcomes over time", lambda: plots.outcomes_over_time(run)),
        chart("Time to first token", lambda axes: plots.latency_cdf(run, log=True, ax=axes)),
    ]
    if run.simulation.metrics.timeline_step_s is not None:
        found.append(picture("Gateway and fleet over time", lambda: plots.gateway(run)))
    return found
