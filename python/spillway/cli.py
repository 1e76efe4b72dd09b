"""The command line: `spillway run|check|describe|init|optimize|sweep|validate`.

Each command imports what it needs, so that none waits for the others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spillway
from spillway.config.classes import config_error
from spillway.interop.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spillway._core.cluster import Simulation

__all__ = ["BAD_INPUT", "main"]


def __dir__() -> list[str]:
    return __all__


BAD_INPUT = 2
"""Exit status for settings, files or arguments that are wrong."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    try:
        try:
            options = _parser().parse_args(arguments)
            status: int = options.command(options)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # what cannot be written is to be known here, not at exit
    except (
        spillway.ConfigError,
        spillway.LivelockError,
        spillway.TraceError,
        spillway.UsageError,
    ) as error:
        print(f"spillway: {error}", file=sys.stderr)
        return BAD_INPUT
    except MemoryError as error:
        print(f"spillway: {error or 'there is not enough memory'}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # The reader of the output has gone (e.g. `| head`); say nothing more, not even at exit.
        sys.stdout = None
        return 0
    except OSError as error:
        sys.stdout = None
        from spillway.config import filesystem

        what = error.filename or "the output"
        print(f"spillway: {what}: cannot be written: {filesystem.reason(error)}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("spillway: interrupted", file=sys.stderr)
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spillway",
        description="Simulator for overload control in LLM serving.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"spillway {spillway.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a simulation and print its tables")
    _add_config(run)
    run.add_argument("--seed", type=int, default=0, help="seed of every random stream (default 0)")
    run.add_argument(
        "--out", type=Path, metavar="DIR", help="write summary.json and requests.csv there"
    )
    run.add_argument(
        "--json", action="store_true", help="print the content of summary.json instead of tables"
    )
    run.set_defaults(command=_run)

    check = commands.add_parser("check", help="check a configuration file")
    _add_config(check)
    check.set_defaults(command=_check)

    explain = commands.add_parser("describe", help="explain a setting, a policy or the scenarios")
    explain.add_argument(
        "path",
        nargs="?",
        default="",
        help="e.g. gateway.admission.token_bucket, or scenarios for the named workloads",
    )
    explain.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of configuration files"
    )
    explain.set_defaults(command=_describe)

    init = commands.add_parser("init", help="write a commented configuration file to start from")
    init.add_argument(
        "file", type=Path, nargs="?", help="where to write it (default: standard output)"
    )
    init.set_defaults(command=_init)

    _add_optimize(commands.add_parser("optimize", help="search for better settings"))
    _add_sweep(commands.add_parser("sweep", help="run configurations side by side, or solve"))

    validate = commands.add_parser(
        "validate", help="compare with another system's recorded results"
    )
    systems = validate.add_subparsers(title="systems", required=True, metavar="SYSTEM")
    against = systems.add_parser("blis", help="BLIS v0.6.14, exact to the microsecond")
    against.add_argument("directory", type=Path, help="scenario folders, at any depth")
    against.add_argument("--json", action="store_true", help="print JSON instead of a table")
    against.set_defaults(command=_validate_blis)
    return parser


def _add_optimize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", type=Path, metavar="STUDY", help="study file (YAML or JSON)")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write study.yaml, trials.csv, best.yaml and confirmation.json there; the trials are "
        "kept in its journal.log as they end, and a second call goes on with them",
    )
    parser.add_argument("--trials", type=int, metavar="N", help="how many in all (default: STUDY)")
    parser.add_argument("--threads", type=int, metavar="N", help="runs at a time (default: CPUs)")
    parser.set_defaults(command=_optimize)


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep", type=Path, metavar="SWEEP", help="sweep file (YAML or JSON)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write sweep.csv, or solution.json, there"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="runs at a time (default: CPUs)")
    parser.set_defaults(command=_sweep)


def _add_config(parser: argparse.ArgumentParser) -> None:
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


def _load(options: argparse.Namespace) -> Simulation:
    """The simulation that the configuration file, --set and --trace describe together."""
    with _warnings_as_lines():
        return _read(options)


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
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


def _run(options: argparse.Namespace) -> int:
    if not 0 <= options.seed < 2**64:
        raise config_error([("--seed", str(options.seed), "must be >= 0 and < 2**64")])
    result = spillway.simulate(_load(options), options.seed)
    if options.out is not None:
        result.write(options.out)
    print(json.dumps(result.to_dict(), indent=2) if options.json else result)
    return 0


def _check(options: argparse.Namespace) -> int:
    simulation = _load(options)
    print(f"{options.config}: ok, profile {spillway.profiles.name_of(simulation)}, "
          f"fingerprint {spillway.fingerprint(simulation)[:12]}")  # fmt: skip
    return 0


def _describe(options: argparse.Namespace) -> int:
    from spillway import scenarios
    from spillway.config import describe, schema

    if options.schema:
        print(json.dumps(schema.json_schema(), indent=2))
    elif options.path == "scenarios":
        print(scenarios.table())
    else:
        print(describe.describe(options.path))
    return 0


def _init(options: argparse.Namespace) -> int:
    from spillway.config import describe, filesystem

    text = describe.starter()
    if options.file is None:
        print(text, end="")
        return 0
    try:
        with options.file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise config_error(
            [(str(options.file), "", "exists already; it was left as it is")]
        ) from error
    except OSError as error:
        raise filesystem.cannot("written", options.file, error) from error
    print(f"wrote {options.file}; run it with: spillway run {options.file}")
    return 0


def _optimize(options: argparse.Namespace) -> int:
    from spillway.config import filesystem
    from spillway.study import files as study_files

    for name in ("trials", "threads"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise config_error([(f"--{name}", str(getattr(options, name)), "must be >= 1")])
    with _warnings_as_lines():
        stated = study_files.read_study(options.study)
        storage = None
        if options.out is not None:
            filesystem.make_folder(options.out)
            stated.write(options.out / "study.yaml")
            storage = options.out / "journal.log"
        study = stated.study(storage)
        is_over = False
        with contextlib.suppress(KeyboardInterrupt):
            n_trials = options.trials or stated.trials
            study.optimize(n_trials, total=True, threads=options.threads, **stated.optimize)
            is_over = True
        print(study)
        confirmation = None
        if is_over and study.feasible and stated.confirm is not None:
            try:
                confirmation = study.confirm(threads=options.threads, **stated.confirm)
            except spillway.UsageError as error:
                print(f"\nnot confirmed: {error}")
            else:
                print(f"\n{confirmation}")
        if options.out is not None:
            study_files.write_results(study, options.out, confirmation)
    if not is_over:
        raise KeyboardInterrupt
    return 0 if study.feasible else 1


def _sweep(options: argparse.Namespace) -> int:
    from spillway.config import filesystem
    from spillway.study import files as study_files

    with _warnings_as_lines():
        found = study_files.run_sweep(options.sweep, threads=options.threads)
        if options.out is not None:
            filesystem.make_folder(options.out)
            study_files.write_sweep(found, options.out)
    print(found)
    return 0


def _validate_blis(options: argparse.Namespace) -> int:
    from spillway.validation import blis

    report = blis.validate(options.directory)
    print(json.dumps(report.to_dict(), indent=2) if options.json else report.table())
    return 0 if report.agrees else 1


if __name__ == "__main__":
    sys.exit(main())
