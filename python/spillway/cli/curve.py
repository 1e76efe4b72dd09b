"""`spillway curve CONFIG`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.cli import configuration, executors, output, verdicts
from spillway.config.classes import config_error

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    configuration.add_arguments(parser)
    parser.add_argument(
        "--rates", metavar="RATE,…",
        help="rates in requests/s (default: eleven, up to five quarters of the largest throughput)",
    )  # fmt: skip
    verdicts.add_slo(parser)
    parser.add_argument(
        "--seeds", type=int, default=4, metavar="N", help="seeds of each rate (default 4)"
    )
    executors.add_arguments(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the curve as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it, e.g. curve.png")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write table and picture as one HTML file"
    )
    output.add_json(
        parser,
        "verdict, points [{rate_per_s, figures {NAME: {mean, low, high}}, saturation, verdict}], "
        "knee_per_s, saturated_from_per_s, slo, holds_to_per_s, seeds, notes",
    )


def run(options: argparse.Namespace) -> int:
    """Runs a configuration at several rates; prints latencies and the knee."""
    from spillway.study.rate_curve import curve  # slow to import, and `--help` does not need it

    output.check_at_least(options, 1, "seeds")
    simulation = configuration.load(options)
    with executors.opened(options) as where:
        found = curve(
            simulation,
            rates=_rates(options.rates),
            slo=[*options.slo, *options.goodput],
            seeds=options.seeds,
            progress=True,
            **where,
        )
    output.save(found, options.out)
    if options.plot is not None:
        output.save_picture(found.plot().figure, options.plot)
    if options.html is not None:
        found.report(options.html)
        output.say(f"wrote {options.html}")
    output.show(options, found, found.to_dict)
    return 0


def _rates(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        allowed = "must be numbers with commas between them, e.g. 10,20,40"
        raise config_error([("--rates", repr(text), allowed)]) from None
