"""A noisy neighbor, without and with a gateway in front of the fleet: the demo of `make demo`.

The tenants are those of noisy_neighbor.yaml, with a burst that lasts a minute. Both runs have the
same requests and servers, which serve in order of arrival. Only the gateway differs.
"""

from __future__ import annotations

import argparse
import itertools
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import spillway
from spillway import gateway, workload
from spillway.report import plots, tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RATES = {"chat": 24, "search": 24, "crawler": 12}  # requests/s by client
BURST_RATE, BURST_START_S, BURST_END_S = 96, 60, 120  # of the crawler, on top
DURATION_S = 240
STEP_S = 5  # of the picture
WIDTH = 87  # of the text
INKS = {"light": "#1f2328", "dark": "#e6edf3"}  # the color of text and axes, by the page

Runs = dict[str, spillway.Result]  # by a name of the configuration


def simulations() -> dict[str, spillway.Simulation]:
    """The same requests and fleet, without and with the gateway."""
    example = spillway.load(Path(__file__).parent / "noisy_neighbor.yaml")
    assert isinstance(example.workload, workload.Synthetic)
    *usual, burst = example.workload.clients
    clients = [
        client.replace(rate_fraction=1, requests_per_s=RATES[client.name], duration_s=DURATION_S)
        for client in usual
    ]
    burst = burst.replace(
        requests_per_s=BURST_RATE,
        start_s=BURST_START_S,
        duration_s=BURST_END_S - BURST_START_S,
    )
    without = example.replace(
        workload=workload.Synthetic(clients=[*clients, burst]), gateway=gateway.Gateway()
    ).with_({"instances[0].scheduler": "fcfs"})

    # At most 48 concurrent requests per server. The others wait, at most 50 of each tenant, and
    # the tenants take turns.
    protected = without.replace(
        tenants=[tenant.replace(queue_max=50) for tenant in example.tenants],
        gateway=gateway.Gateway(
            limit=gateway.WorkerBudget(cap_per_worker=48),
            bands=[gateway.Band(fairness="deficit_round_robin")],
        ),
    )
    return {"without a gateway": without, "with the gateway": protected}


def table(runs: Runs) -> str:
    """The figures of each tenant, the runs side by side."""
    columns = ["in time", "p50 TTFT", "p99 TTFT", "shed"]
    by_tenant = [result.by_tenant() for result in runs.values()]
    rows = [["tenant", "requests", *columns * len(runs)]]
    for name, figures in by_tenant[0].items():
        rows.append([name, tables.number(figures["offered"])])
        for of in (figures[name] for figures in by_tenant):
            latencies = [seconds(of[f"{quantile}_ttft_ms"]) for quantile in ("p50", "p99")]
            rows[-1] += [percent(of["goodput"]), *latencies, percent(shed(of))]
    lines = tables.table(rows).splitlines()
    # A line above has the name of each run over its columns.
    above = ""
    for name in runs:
        start = lines[0].index(columns[0], len(above))
        end = lines[0].index(columns[-1], start) + len(columns[-1])
        above = above.ljust(start) + f" {name} ".center(end - start, "-")
    return "\n".join([above, *lines])


def findings(runs: Runs) -> list[str]:
    """The findings of the table, in sentences."""
    before, after = (result.by_tenant() for result in runs.values())
    groups: dict[str, list[str]] = {"raises": [], "lowers": [], "hardly changes": []}
    for name in before:
        was, now = before[name]["goodput"] or 0, after[name]["goodput"] or 0
        verb = "raises" if now > was + 0.01 else "lowers" if now < was - 0.01 else "hardly changes"
        groups[verb].append(f"{name} ({percent(was)} → {percent(now)})")
    changes = [f"{verb} that of {listed(names)}" for verb, names in groups.items() if names]
    changes[0] = changes[0].replace("that of", "the share in time of", 1)
    found = [f"The gateway {listed(changes)}."]

    turned_away = [f"{percent(shed(of))} of {name}'s" for name, of in after.items() if shed(of)]
    found.append(
        f"It sheds {listed(turned_away)} requests." if turned_away else "It sheds nothing."
    )

    of_all = [percent(result.summary()["goodput"]) for result in runs.values()]
    found.append(f"Of all requests, {of_all[0]} are in time without it and {of_all[1]} with it.")
    return found


def pictures(runs: Runs, folder: Path) -> list[Path]:
    """Draws the runs as SVG, for light and for dark pages.

    Each picture contains the table as its description. One that has these figures already is kept:
    delete it to have it drawn again.
    """
    import matplotlib as mpl

    paths = []
    for theme, ink in INKS.items():
        paths.append(folder / f"noisy_neighbor_{theme}.svg")
        if paths[-1].exists() and table(runs) in paths[-1].read_text(encoding="utf-8"):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        inked = ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color")
        with mpl.rc_context({**dict.fromkeys(inked, ink), "svg.hashsalt": "spillway"}):
            metadata = {"Description": table(runs), "Creator": None, "Date": None}
            picture(runs, ink).savefig(paths[-1], transparent=True, metadata=metadata)
    return paths


def picture(runs: Runs, ink: str) -> Figure:
    """Latency, load and shedding over time: a column for each run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.2), layout="constrained")
    axes = figure.subplots(2, len(runs), sharex=True, sharey="row", height_ratios=(3, 2))
    for (latency, load), (name, result) in zip(axes.T, runs.items(), strict=True):
        latency.set_title(f"{name}: {percent(result.summary()['goodput'])} in time")
        for style, tenant in zip(itertools.cycle(plots.STYLES), result.by_tenant()):
            draw(latency, load, result, tenant, style)
        for panel in (latency, load):
            panel.axvspan(BURST_START_S, BURST_END_S, color=ink, alpha=0.1, linewidth=0)
            panel.grid(alpha=0.3)
            panel.spines[["top", "right"]].set_visible(False)
        load.set(xlabel="time of arrival (s)", xlim=(0, DURATION_S), ylim=(0, None))
    axes[0, 0].set(ylabel="p95 of the time to first token (s)", yscale="log")
    axes[0, 0].yaxis.set_major_formatter("{x:g}")
    axes[0, 0].minorticks_off()
    axes[1, 0].set(ylabel="offered requests/s")
    axes[0, 1].legend(loc="upper right", fontsize="small", framealpha=0)
    axes[1, 1].legend(loc="upper right", fontsize="small", framealpha=0)
    return figure


def draw(
    latency: Axes, load: Axes, result: spillway.Result, tenant: str, style: Mapping[str, Any]
) -> None:
    """One tenant of one run."""
    requests = result.requests
    mine = requests["tenant"] == tenant
    edges = np.arange(0, DURATION_S + STEP_S, STEP_S)
    step = np.digitize(requests["arrival_s"], edges) - 1
    served = mine & ~np.isnan(requests["ttft_s"])
    p95 = [
        np.percentile(ttft_s, 95)
        if len(ttft_s := requests["ttft_s"][served & (step == i)])
        else np.nan
        for i in range(len(edges) - 1)
    ]
    latency.plot(edges[:-1] + STEP_S / 2, p95, label=tenant, **style)
    arrivals = np.histogram(requests["arrival_s"][mine], edges)[0] / STEP_S
    load.stairs(arrivals, edges, baseline=None, **style)
    rejected = requests["arrival_s"][mine & (requests["outcome"] == "rejected")]
    if len(rejected):
        rate = np.histogram(rejected, edges)[0] / STEP_S
        load.stairs(
            rate, edges, fill=True, alpha=0.3, color=style["color"], label=f"{tenant}: shed"
        )


def shed(figures: Mapping[str, Any]) -> float:
    """The share of a tenant's requests that was rejected."""
    return float(figures["rejected"] / figures["offered"]) if figures["offered"] else 0.0


def percent(share: float | None) -> str:
    """A share for display."""
    return "-" if share is None else f"{share:.0%}" if share in (0, 1) else f"{share:.1%}"


def seconds(ms: float | None) -> str:
    """A latency for display."""
    return "-" if ms is None else f"{ms / 1000:.2f} s"


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def main() -> None:
    """Runs both, and prints and draws the figures of each tenant."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--pictures", type=Path, default=Path(), metavar="DIR", help="default: the current folder"
    )
    options = parser.parse_args()
    runs = {
        name: spillway.simulate(simulation, options.seed)
        for name, simulation in simulations().items()
    }
    more = (RATES["crawler"] + BURST_RATE) / RATES["crawler"]
    print(
        f"Three tenants share four servers. From {BURST_START_S} s to {BURST_END_S} s, bronze "
        f"sends {more:.0f} times its usual load."
    )
    print()
    print(table(runs))
    print()
    print(
        "in time: first token within the target of the tenant's class, as a share of all its "
        "requests"
    )
    print()
    print(textwrap.fill(" ".join(findings(runs)), width=WIDTH))
    print()
    try:
        paths = pictures(runs, options.pictures)
    except ImportError:
        print("No picture: it needs matplotlib; install it with: pip install 'spillway-sim[plot]'")
    else:
        print(f"Pictures: {listed([str(path) for path in paths])}")


if __name__ == "__main__":
    main()
