"""The configuration that a command line describes: a file, --set, --trace and --scenario."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spillway
from spillway.config.classes import config_error
from spillway.interop.formats import FORMATS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from spillway._core.cluster import Simulation

__all__ = ["add_arguments", "load", "warnings_as_lines"]


def __dir__() -> list[str]:
    return __all__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `load` reads."""
    parser.add_argument(
        "config", type=Path, metavar="CONFIG", help="configuration file (YAML or JSON)"
    )
    offered = parser.add_mutually_exclusive_group()
    offered.add_argument(
        "--trace", type=Path, metavar="FILE", help="replay these requests instead of the workload's"
    )
    offered.add_argument(
        "--scenario",
        metavar="NAME",
        help="a named workload with its tenants and classes instead of the configuration's; "
        "`spillway describe scenarios` lists them",
    )
    parser.add_argument(
        "--trace-format",
        choices=sorted(FORMATS),
        metavar="F",
        help="format of the trace: "
        + ", ".join(sorted(FORMATS))
        + " (default: told by the file itself)",
    )
    parser.add_argument(
        "--trace-unit",
        choices=("ms", "s"),
        default="ms",
        help="what the timestamps of a mooncake trace count (default ms)",
    )
    parser.add_argument(
        "--trace-block-size-tokens",
        type=int,
        default=512,
        metavar="N",
        help="tokens per hash id of a mooncake trace (default 512)",
    )
    parser.add_argument(
        "--trace-spread-s",
        type=float,
        default=0,
        metavar="S",
        help="spread the requests of each instant of a mooncake trace over S seconds (default 0)",
    )
    parser.add_argument("--sort", action="store_true", help="sort the trace by arrival time")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="changes",
        metavar="PATH=VALUE",
        help="change one setting, e.g. gateway.admission[0].capacity_tokens=5000; may be repeated",
    )


def load(options: argparse.Namespace) -> Simulation:
    """The simulation that the configuration file, --set and --trace describe together."""
    with warnings_as_lines():
        return _read(options)


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Prints each warning as a line of its own to standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: print(
            f"spillway: warning: {message}", file=sys.stderr
        )
        yield


def _read(options: argparse.Namespace) -> Simulation:
    from spillway import loading
    from spillway.config import files

    settings = files.read_settings(options.config)
    stated = dict(settings)
    if options.scenario is not None:
        settings |= spillway.scenarios.get(options.scenario).to_dict()
    changes = dict(_parse_change(change) for change in options.changes)
    simulation = loading.from_settings(
        settings, base=options.config.parent, read_trace=options.trace is None
    )
    simulation = _changed(simulation, changes)
    files.note_empty(stated, options.config)
    if options.trace is not None:
        trace = spillway.read_trace(
            options.trace,
            format=options.trace_format,
            sort=options.sort,
            unit=options.trace_unit,
            block_size_tokens=options.trace_block_size_tokens,
            spread_s=options.trace_spread_s,
        )
        simulation = simulation.replace(workload=trace)
    return simulation


def _changed(simulation: Simulation, changes: dict[str, Any]) -> Simulation:
    """All changes at once, since they may only be valid together; else one upon the other."""
    try:
        return simulation.with_(changes)
    except spillway.ConfigError:
        try:
            for path, value in changes.items():
                simulation = simulation.with_({path: value})
        except spillway.ConfigError:
            pass
        else:
            return simulation
        raise


def _parse_change(change: str) -> tuple[str, Any]:
    from spillway.config import yaml

    path, separator, value = change.partition("=")
    if not separator or not path:
        raise config_error([("--set", repr(change), "must be PATH=VALUE")])
    return path, yaml.parse(value, f"--set {path}")
