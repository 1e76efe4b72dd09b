"""`spillway run CONFIG`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spillway
from spillway.cli import configuration, output, verdicts
from spillway.config.classes import config_error
from spillway.files.export import FILES, SUMMARIES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from spillway._core.cluster import Simulation
    from spillway.study.objective import Constraint


_FORMAT = "csv"
_LEAST_SEEDS = 2
_SAMPLES = 240


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    configuration.add_arguments(parser)
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of every random stream (default 0)"
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N",
        help="run N seeds from --seed on and print means with 95%% confidence intervals",
    )  # fmt: skip
    parser.add_argument(
        "--plot", type=Path, metavar="FILE",
        help="draw the gateway and the fleet over time, e.g. out.png; sets metrics.timeline_step_s",
    )  # fmt: skip
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write tables and pictures as one HTML file"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR",
        help="write summary.json and requests.csv there; with --seeds: means with intervals "
        "(summary.csv), figures of each seed (seeds.csv) and both (summary.json)",
    )  # fmt: skip
    parser.add_argument(
        "--out-format", choices=("csv", "parquet", "vllm_bench", "aiperf", "benchmark_report"),
        help="requests.csv (default; with --seeds there are no requests unless this asks for them, "
        "in a folder per seed); requests.parquet; vllm_bench.json, the result of `vllm bench serve "
        "--save-detailed`; profile_export_aiperf.json of AIPerf; or benchmark_report_v0.2.yaml of "
        "llm-d-benchmark",
    )  # fmt: skip
    verdicts.add_arguments(parser)
    output.add_json(
        parser,
        "the content of summary.json, or with --seeds: seeds, figures {NAME: {mean, low, high}}",
    )
    parser.add_argument(
        "--allow-python", action="store_true",
        help="import the policies written in Python that the configuration names, which runs their "
        "code; modules beside the configuration file are found",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Runs a simulation and prints its results."""
    if not 0 <= options.seed < 2**64:
        raise config_error([("--seed", str(options.seed), "must be >= 0 and < 2**64")])
    simulation = configuration.load(options)
    if options.allow_python:
        simulation = _with_python(simulation, options.config.parent.resolve())
    configuration.report_findings(simulation)
    asserted = verdicts.assertions(options)
    if options.seeds is not None:
        return _run_seeds(simulation, options, asserted)
    simulation = _with_timeline(simulation, options)
    result = spillway.simulate(simulation, options.seed, progress=True)
    if options.plot is not None:
        output.save_picture(result.plot.gateway(), options.plot)
    if options.html is not None:
        result.report(options.html, options.config.stem.replace("_", " "))
        output.say(f"wrote {options.html}")
    if options.out is not None:
        names = ("summary.json", FILES[options.out_format or _FORMAT])
        output.replaced(options.out / name for name in names)
        result.write(options.out, requests=options.out_format or _FORMAT)
    output.show(options, result, result.to_dict)
    return verdicts.status(options, asserted, [result])


def _run_seeds(
    simulation: Simulation, options: argparse.Namespace, asserted: Sequence[Constraint]
) -> int:
    """Prints means over seeds."""
    if options.seeds < _LEAST_SEEDS:
        allowed = f"must be >= {_LEAST_SEEDS}; --seed selects a single one"
        raise config_error([("--seeds", str(options.seeds), allowed)])
    for name in ("plot", "html"):
        if getattr(options, name) is not None:
            raise config_error([(f"--{name}", "", "is of one run: not together with --seeds")])
    seeds = range(options.seed, options.seed + options.seeds)
    results = spillway.simulate(simulation, seeds=seeds, progress=True)
    if options.out is not None:
        output.replaced(options.out / name for name in SUMMARIES)
        results.write(options.out, requests=options.out_format)

    def document() -> dict[str, Any]:
        figures = {
            name: interval and {key: getattr(interval, key) for key in ("mean", "low", "high")}
            for name, interval in results.summary().items()
        }
        return {"seeds": len(results), "figures": figures}

    output.show(options, results, document)
    return verdicts.status(options, asserted, results)


def _with_timeline(simulation: Simulation, options: argparse.Namespace) -> Simulation:
    """The simulation, with samples over time if a picture needs them and it has none."""
    wants = options.plot is not None or options.html is not None
    if not wants or simulation.metrics.timeline_step_s is not None:
        return simulation
    first = spillway.simulate(simulation, options.seed, progress=True)
    span_s = first.summary()["duration"] or 1.0
    return simulation.with_({"metrics.timeline_step_s": max(1e-3, span_s / _SAMPLES)})


def _with_python(simulation: Simulation, folder: Path) -> Simulation:
    """The simulation with its Python policies imported, also from `folder`."""
    from spillway import policies

    sys.path.insert(0, str(folder))
    try:
        return policies.load(simulation)
    finally:
        sys.path.remove(str(folder))
