"""`spillway compare A B`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import spillway
from spillway.cli import configuration, output, reading
from spillway.config.classes import config_error

if TYPE_CHECKING:
    import argparse

    from spillway._core.cluster import Simulation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "configs", type=Path, nargs="+", metavar="CONFIG",
        help="configuration files, at least two; the first is the baseline",
    )  # fmt: skip
    configuration.add_trace(parser)
    reading.add_arguments(parser)
    parser.add_argument(
        "--traffic", action="append", default=[], metavar="CHANGE",
        help="change the traffic of all systems, as in `spillway run`, e.g. 'B: rate x5 for 60s'; "
        "may be repeated",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument(
        "--seeds", type=int, default=16, metavar="N", help="seeds of each system (default 16)"
    )
    parser.add_argument(
        "--figures", metavar="NAME,…",
        help="figures of the summary, also of a class or tenant: p99_ttft_ms[gold] (default: "
        "goodput, mean and p99 of TTFT and E2E latency, rejected)",
    )  # fmt: skip
    parser.add_argument(
        "--all-pairs",
        action="store_true",
        help="judge every pair of systems, not only each against the first",
    )
    parser.add_argument(
        "--confidence", type=float, default=0.95, metavar="P",
        help="probability with which all intervals hold together (default 0.95)",
    )  # fmt: skip
    parser.add_argument(
        "--half-width",
        metavar="SHARE",
        help="add seeds until every interval is this narrow, as a share of the baseline, e.g. 2%%",
    )
    parser.add_argument(
        "--max-seeds", type=int, metavar="N",
        help="most seeds with --half-width (default: 8 times --seeds)",
    )  # fmt: skip
    parser.add_argument(
        "--allow-different-populations",
        action="store_true",
        help="judge latencies even if the systems serve different numbers of requests",
    )
    parser.add_argument(
        "--allow-different-workloads",
        action="store_true",
        help="judge systems that do not see the same requests",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="concurrent runs (default: CPUs)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE",
        help="write the comparison as JSON, which Comparison.load reads",
    )  # fmt: skip
    output.add_json(parser, "verdicts, names, seeds, confidence, looks, notes …")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a forest plot there")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write verdicts and plot as one HTML file"
    )


def run(options: argparse.Namespace) -> int:
    """Compares configurations and prints the verdicts."""
    paths: list[Path] = options.configs
    stems = [path.stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    if len(set(names)) < len(names):
        raise config_error([("CONFIG", " ".join(names), "must be different files")])
    output.check_at_least(options, 1, "threads")
    output.check_at_least(options, 0, "seed")
    found = spillway.compare(
        dict(zip(names, _systems(options), strict=True)),
        seeds=_seeds(options),
        figures=None if options.figures is None else options.figures.split(","),
        all_pairs=options.all_pairs,
        confidence=options.confidence,
        half_width=_share(options.half_width),
        max_seeds=options.max_seeds,
        allow_different_populations=options.allow_different_populations,
        allow_different_workloads=options.allow_different_workloads,
        threads=options.threads,
        progress=True,
    )
    output.save(found, options.out)
    if options.plot is not None:
        from spillway.report.style import axes_or_new, save

        save(found.plot(axes_or_new(None)).figure, options.plot)
    if options.html is not None:
        found.report(options.html)
        output.say(f"wrote {options.html}")
    output.show(options, found, found.to_dict)
    return 0


def _seeds(options: argparse.Namespace) -> int | range:
    if options.seed == 0:
        return int(options.seeds)
    return range(options.seed, options.seed + options.seeds)


def _systems(options: argparse.Namespace) -> list[Path] | list[Simulation]:
    """The files, or with --trace and --traffic the simulations with that traffic."""
    from spillway import loading

    reading.refuse_without_file(options)
    if options.trace is None:
        if not options.traffic:
            return list(options.configs)
        return [
            loading.with_traffic(loading.as_simulation(path), options.traffic)
            for path in options.configs
        ]

    trace = configuration.read_trace(options)
    found = []
    for path in options.configs:
        simulation = loading.from_settings(path, read_trace=False).replace(workload=trace)
        changes = [*loading.traffic_changes(path), *options.traffic]
        found.append(loading.with_traffic(simulation, changes))
    return found


def _share(text: str | None) -> float | None:
    """A share such as 0.02 or 2%."""
    if text is None:
        return None
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return float(text)
    except ValueError:
        allowed = "must be a share, e.g. 0.02 or 2%"
        raise config_error([("--half-width", repr(text), allowed)]) from None
