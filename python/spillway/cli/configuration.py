"""The configuration of a command line: a file, --set, --trace, --traffic-rate, --traffic."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spillway
from spillway.cli import completion, output, reading
from spillway.config.classes import config_error

if TYPE_CHECKING:
    import argparse

    from spillway._core.cluster import Simulation
    from spillway._core.workload import Trace
    from spillway.checking import Finding


def add_arguments(
    parser: argparse.ArgumentParser,
    metavar: str = "CONFIG",
    text: str = "configuration file (YAML or JSON)",
) -> None:
    """Adds the arguments that `load` reads; `text` is the help of the file."""
    parser.add_argument("config", type=Path, metavar=metavar, help=text)
    add_trace(parser)
    reading.add_arguments(parser)
    parser.add_argument(
        "--traffic-rate", type=float, metavar="FACTOR",
        help="this many times the request rate: the rates of all clients, or the arrival times of "
        "the trace",
    )  # fmt: skip
    parser.add_argument(
        "--traffic", action="append", default=[], metavar="CHANGE",
        help="change whose traffic, how and when, e.g. 'B: rate x5 from 60s to 120s' or 'all: "
        "prompts x2'; may be repeated",
    )  # fmt: skip
    change = parser.add_argument(
        "--set", action="append", default=[], dest="changes", metavar="PATH=VALUE",
        help="change one setting, e.g. gateway.admission[0].capacity_tokens=5000, or presets=NAME "
        "for the settings of a preset; may be repeated",
    )  # fmt: skip
    completion.completes(change, completion.changes)


def add_trace(parser: argparse.ArgumentParser) -> None:
    """Adds --trace."""
    parser.add_argument(
        "--trace", type=Path, metavar="FILE",
        help="replay these requests instead of the workload's; - is standard input",
    )  # fmt: skip


def read_trace(options: argparse.Namespace, *, streams: bool = False) -> Trace:
    """The requests of --trace, whose totals are printed."""
    trace = spillway.read_trace(
        options.trace, stream="auto" if streams else False, **reading.given(options)
    )
    output.say(totals(options.trace, trace))
    return trace


def load(options: argparse.Namespace) -> Simulation:
    """The simulation from the configuration file, --set, --trace and --traffic."""
    from spillway import loading

    reading.refuse_without_file(options)
    simulation = loading.from_settings(options.config, read_trace=options.trace is None)
    changes = dict(_parse_change(change) for change in options.changes)
    if options.trace is not None:
        for path in changes:
            if path.partition(".")[0] == "workload":
                allowed = "not beside --trace, which replaces the workload; state both in a file: "
                allowed += "workload: {kind: trace, file: …}"
                raise config_error([(f"--set {path}", "", allowed)])
    if "presets" in changes:
        from spillway.presets import by_name

        simulation = by_name.apply(changes.pop("presets"), simulation)
    simulation = _changed(simulation, changes)
    texts = list(options.traffic)
    if options.trace is not None:
        texts = [*loading.traffic_changes(options.config), *texts]
        is_plain = options.traffic_rate is None and not texts
        trace = read_trace(options, streams=simulation.metrics.streaming and is_plain)
        simulation = simulation.replace(workload=trace)
    if options.traffic_rate is not None:
        simulation = _at_rate(simulation, options.traffic_rate)
    return loading.with_traffic(simulation, texts)


def given_changes(options: argparse.Namespace) -> list[str]:
    """The options that change the file, as they are spelled."""
    given = {
        "--trace": options.trace is not None,
        "--traffic-rate": options.traffic_rate is not None,
        "--traffic": bool(options.traffic),
        "--set": bool(options.changes),
    }
    return [flag for flag, is_given in given.items() if is_given]


def report_findings(simulation: Simulation) -> list[Finding]:
    """Prints the settings that cannot work to standard error, a line each; returns them."""
    found = spillway.check(simulation)
    for finding in found:
        output.warn(finding)
    return found


def _at_rate(simulation: Simulation, factor: float) -> Simulation:
    from spillway import traffic

    if not 1e-6 <= factor <= 1e6:
        allowed = "must be >= 1e-06 and <= 1e+06"
        raise config_error([("--traffic-rate", f"{factor:g}", allowed)])
    return traffic.at_rate(simulation, factor)


def totals(path: Path, trace: Trace) -> str:
    """The number of requests and tokens of a trace, in a line."""
    if not trace.has_requests:
        return f"{path}: {trace.rows:,} requests, read while they are simulated"
    columns = trace._columns()
    tokens = [int(columns[name].sum(dtype="int64")) for name in ("input_tokens", "output_tokens")]
    span_s = int(columns["arrival_ns"][-1] - columns["arrival_ns"][0]) / 1e9
    return (
        f"{path}: {trace.rows:,} requests in {span_s:,.3f} s, {tokens[0]:,} input tokens, "
        f"{tokens[1]:,} output tokens"
    )


def _changed(simulation: Simulation, changes: dict[str, Any]) -> Simulation:
    """All changes at once, because some are only valid together; otherwise one after the other."""
    try:
        return simulation.with_(changes)
    except spillway.ConfigError:
        with contextlib.suppress(spillway.ConfigError):
            for path, value in changes.items():
                simulation = simulation.with_({path: value})
            return simulation
        _explain_kind(simulation, changes)
        raise


def _explain_kind(simulation: Simulation, changes: dict[str, Any]) -> None:
    """Raises ConfigError if a changed setting is one of another kind of policy than is there."""
    from spillway.config.describe import descriptor

    for path in changes:
        place, _, name = path.rpartition(".")
        try:
            field = descriptor(place)
        except spillway.ConfigError:
            continue
        if "alternatives" not in field:
            continue
        try:
            simulation.with_({path: None})
        except spillway.ConfigError as error:
            if "unknown setting" not in str(error):
                continue
        else:
            continue
        kinds = [alternative["kind"] for alternative in field["alternatives"]
                 if any(known["name"] == name for known in alternative["fields"])]  # fmt: skip
        if kinds:
            example = f"--set '{place}={{kind: {kinds[0]}, {name}: …}}'"
            allowed = f"a setting of {', '.join(kinds)}; set the kind too: {example}"
            raise config_error([(path, "", allowed)])


def _parse_change(change: str) -> tuple[str, Any]:
    from spillway.config import yaml

    path, separator, value = change.partition("=")
    if not separator or not path:
        raise config_error([("--set", repr(change), "must be PATH=VALUE")])
    return path, yaml.parse(value, f"--set {path}")
