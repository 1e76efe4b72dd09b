"""A result as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING, Any

from spillway._core.sim import build_info
from spillway.config import files
from spillway.config.text import number
from spillway.config.yaml import to_yaml
from spillway.data.figures import FIGURES
from spillway.report import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.data.result import ResultData

__all__ = ["page"]


def __dir__() -> list[str]:
    return __all__


_DPI = 130

_STYLE = """
:root { color-scheme: light dark; --line: #8885; --soft: #8882; }
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1rem; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
th { cursor: pointer; white-space: nowrap; } th[aria-sort]::after { content: " ▲"; }
th[aria-sort=descending]::after { content: " ▼"; }
tbody tr:nth-child(even) { background: var(--soft); }
img { max-width: 100%; height: auto; }
pre { overflow-x: auto; background: var(--soft); padding: .7rem; font-size: .85rem; }
li { margin: .2rem 0; }
@media (prefers-color-scheme: dark) { img { filter: invert(1) hue-rotate(180deg); } }
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


def page(result: ResultData, remarks: Sequence[str], title: str = "") -> str:
    """The whole page: figures, tables that sort, remarks, pictures and the configuration.

    Everything is inside, in light and dark: styles, a few lines of script, pictures as PNG. Text of
    the configuration is escaped. Pictures need the extra `plot`, and requests that were kept.
    """
    summary = result.summary()
    name = title or f"Spillway: {result.fingerprint[:12]}, seed {result.seed}"
    parts = [
        f"<h1>{html.escape(name)}</h1>",
        f"<p>{html.escape(tables.ledger_line(result.ledger))}.</p>",
        _table(
            ["figure", "value", "unit"],
            *(
                [key.replace("_", " "), number(summary[key]), one.unit]
                for key, one in FIGURES.items()
                if one.is_main and summary.get(key) is not None
            ),
        ),
    ]
    if remarks:
        lines = "".join(f"<li>{html.escape(one)}</li>" for one in remarks)
        parts.append(f"<h2>Notes</h2><ul>{lines}</ul>")
    parts += ["<h2>Latencies in ms</h2>", _table(*tables.latency_rows(summary))]
    for heading, populations in (("Classes", result.by_class()), ("Tenants", result.by_tenant())):
        if len(populations) > 1:
            parts += [f"<h2>{heading}</h2>", _table(*tables.population_rows("name", populations))]
    parts += [
        f'<h2>{heading}</h2><img alt="{heading}" src="data:image/png;base64,{picture}">'
        for heading, picture in _pictures(result)
    ]
    settings = html.escape(to_yaml(result.simulation.to_dict()))
    parts.append(
        "<h2>Configuration</h2><details><summary>All settings, as a file for `spillway run`"
        f"</summary><pre>schema: {files.SCHEMA}\nprofile: {html.escape(result.profile)}\n"
        f"{settings}</pre></details><p>Spillway {html.escape(build_info['version'])}, fingerprint "
        f"{html.escape(result.fingerprint)}, seed {result.seed}.</p>"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(name)}</title><style>{_STYLE}</style></head><body>"
        f"{''.join(parts)}<script>{_SCRIPT}</script></body></html>\n"
    )


def _table(header: Sequence[str], *rows: Sequence[str]) -> str:
    head = "".join(f"<th>{html.escape(one)}</th>" for one in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(one)}</td>" for one in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def _pictures(result: ResultData) -> list[tuple[str, str]]:
    """Titles and base64 of the pictures that the result has data for."""
    if not result.has_requests:
        return []
    try:
        from spillway.report import plots
    except ImportError:
        return []
    from matplotlib.figure import Figure

    def distribution() -> Figure:
        figure = Figure(figsize=(7.5, 4))
        plots.latency_cdf(result, "ttft_s", log=True, ax=figure.add_subplot())
        return figure

    drawn: list[tuple[str, Callable[[], Any]]] = [
        ("Outcomes over time", lambda: plots.outcomes_over_time(result)),
        ("Time to first token", distribution),
    ]
    if result.simulation.metrics.timeline_step_s is not None:
        drawn.append(("Gateway and fleet over time", lambda: plots.gateway(result)))
    found = []
    for title, draw in drawn:
        try:
            figure = draw()
        except (ValueError, LookupError):  # nothing to draw
            continue
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=_DPI, bbox_inches="tight")
        found.append((title, base64.b64encode(buffer.getvalue()).decode("ascii")))
    return found
