"""`spillway traffic describe TRACE` and `spillway traffic fit TRACE -o workload.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.cli import configuration, output, reading

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    shown = actions.add_parser("describe", help="rate, burstiness, lengths and tenants of a trace")
    shown.add_argument("trace", type=Path, metavar="TRACE", help="a trace or recording")
    reading.add_arguments(shown)
    output.add_json(shown, "requests, length_s, requests_per_s, gap_cv, dispersion, input_tokens …")
    shown.set_defaults(act=_describe)
    fitted = actions.add_parser(
        "fit",
        help="a generator of such traffic, and where it differs",
        description="Fits a generator to a trace, compares traces from it with the trace, and "
        "writes it as a configuration for `spillway run`.",
    )
    fitted.add_argument("trace", type=Path, metavar="TRACE", help="a trace or recording")
    reading.add_arguments(fitted)
    fitted.add_argument(
        "-o", "--output", type=Path, default=Path("workload.yaml"), metavar="FILE",
        help="the configuration with the generator (default: workload.yaml)",
    )  # fmt: skip
    fitted.add_argument("--plot", type=Path, metavar="FILE", help="write a figure, e.g. fit.png")
    fitted.add_argument(
        "--arrivals", metavar="KIND,…",
        help="arrival processes to choose from (default: poisson,gamma,hawkes,mmpp)",
    )  # fmt: skip
    fitted.add_argument(
        "--sessions", action="store_true",
        help="users that wait for answers, with the trace's sessions and shared prefixes",
    )  # fmt: skip
    for name, text in (("ttft", "from a turn to its first token"), ("tpot", "per further token")):
        fitted.add_argument(
            f"--{name}-s", type=float, default=0.0, metavar="S",
            help=f"with --sessions: seconds that the traced system took {text} (default: 0)",
        )  # fmt: skip
    fitted.add_argument("--seed", type=int, default=0, help="seed of the generated traces")
    output.add_json(fitted, "workload, clients or sessions, checks, notes")
    fitted.set_defaults(act=_fit)


def run(options: argparse.Namespace) -> int:
    """Describes a trace or fits a generator to it."""
    status: int = options.act(options)
    return status


def _describe(options: argparse.Namespace) -> int:
    import spillway
    from spillway.traffic import describe

    found = describe(spillway.read_trace(options.trace, **reading.given(options)))
    output.show(options, found.text(), lambda: found)
    return 0


def _fit(options: argparse.Namespace) -> int:
    import spillway
    from spillway.config.classes import config_error
    from spillway.config.filesystem import replacing
    from spillway.config.yaml import to_yaml
    from spillway.traffic import Fit, SessionFit, fit, fit_sessions

    trace = spillway.read_trace(options.trace, **reading.given(options))
    output.say(configuration.totals(options.trace, trace))
    found: Fit | SessionFit
    if options.sessions:
        if options.arrivals is not None:
            allowed = "not together with --sessions: users have no arrival process"
            raise config_error([("--arrivals", options.arrivals, allowed)])
        latencies = {"ttft_s": options.ttft_s, "tpot_s": options.tpot_s}
        found = fit_sessions(trace, **latencies, seed=options.seed, progress=True)
    else:
        chosen = {} if options.arrivals is None else {"arrivals": options.arrivals.split(",")}
        found = fit(trace, **chosen, seed=options.seed, progress=True)
    output.replaced([options.output])
    with replacing(options.output) as path:
        path.write_text(to_yaml({"workload": found.workload.to_dict()}), encoding="utf-8")
    output.show(options, found.text(), lambda: found)
    output.say(f"wrote {options.output}")
    if options.plot is not None:
        output.save_picture(found.plot(), options.plot)
    return 0
