"""The command line: `spillway COMMAND`.

Each command is a module of this package with two functions, `add_arguments(parser)` and
`run(options)`, which returns the exit status. Each is imported only when it is called, so that no
command waits for the imports of others.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import re
import sys
from typing import TYPE_CHECKING, Protocol

import spillway
from spillway.cli import completion, output
from spillway.config import filesystem
from spillway.config.extras import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

NOT_MET = 1
"""Exit status if a check that was asked for is not met."""

BAD_INPUT = 2
"""Exit status for invalid settings, files or arguments."""

NOT_IDENTIFIED = 3
"""Exit status if the data do not decide what was asked."""

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

STATUSES: Mapping[int, str] = {
    0: "done, also if the result is empty or undecided",
    NOT_MET: "a check that was asked for is not met: no feasible setting (optimize), runs that "
    "differ and recordings that are not met (validate), --strict or --assert (run), nothing that "
    "keeps the SLO (advise)",
    BAD_INPUT: "the input is refused, and nothing is written: in Python ConfigError, TraceError, "
    "UsageError, LivelockError, MissingExtraError, OSError or MemoryError",
    NOT_IDENTIFIED: "the data do not identify what was asked (calibrate), or do not decide it "
    "(validate recording)",
    INTERRUPTED: "interrupted by Ctrl-C: in Python KeyboardInterrupt",
}
"""The exit statuses of all commands."""

COMMANDS: Mapping[str, str] = {
    "run": "run a simulation and print its results",
    "compare": "compare systems, paired by seed",
    "diagnose": "say what is wrong with a configuration, and what helps",
    "why": "explain one request of a run",
    "advise": "from a log of requests to settings that keep an SLO",
    "check": "check a configuration file",
    "describe": "explain a setting, a policy or a preset",
    "init": "write a commented configuration file to start from",
    "examples": "list the example files, or write them into a folder",
    "optimize": "search for better settings",
    "sweep": "run configurations side by side, or solve",
    "curve": "latency over the rate of requests, with the knee",
    "read": "say what a file of requests or measurements is, holds and lacks",
    "traffic": "describe a trace, or fit a generator to it",
    "diff": "compare two configuration files, setting by setting",
    "export": "write the configuration files of vLLM, llm-d, Dynamo, Envoy …",
    "import": "read such files as a configuration",
    "servers": "show a model server: memory, limits, step times, how sure they are",
    "serve": "serve a simulated fleet behind an OpenAI-compatible API",
    "calibrate": "fit a server to measured runs",
    "validate": "compare with recorded results, of production or of another system",
    "completion": "print the completion of a shell",
}
"""The commands and their descriptions, in the order of `spillway --help`."""


class Interruption(Protocol):
    """What the program knows of Ctrl-C."""

    has_arrived: bool

    def settle(self) -> None:
        """The command counts as done from now on; raises KeyboardInterrupt if it is too late."""


def main(
    arguments: Sequence[str] | None = None, *, interruption: Interruption | None = None
) -> int:
    """Runs the command line; returns the exit status.

    A command writes its files under temporary names, and all get their own names after its last
    line: a command that fails, or that Ctrl-C ends, has written nothing.
    """
    try:
        with filesystem.together():
            try:
                status = _printed(sys.argv[1:] if arguments is None else arguments)
            except Exception:
                if interruption is not None and interruption.has_arrived:
                    raise KeyboardInterrupt from None  # which became another exception on its way
                raise
            if interruption is not None:
                interruption.settle()
    except (
        MissingExtraError,
        spillway.ConfigError,
        spillway.LivelockError,
        spillway.TraceError,
        spillway.UsageError,
    ) as error:
        output.error(error)
        return BAD_INPUT
    except MemoryError as error:
        output.error(error or "not enough memory")
        return BAD_INPUT
    except OSError as error:
        sys.stdout = None
        what = error.filename or "the output"
        output.error(f"{what}: cannot be written: {filesystem.reason(error)}")
        return BAD_INPUT
    except KeyboardInterrupt:
        output.error("interrupted")
        return INTERRUPTED
    return status


def _printed(arguments: Sequence[str]) -> int:
    try:
        try:
            return _run(arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # so that write errors appear here, not at exit
    except BrokenPipeError:
        # The reader of the output is gone (e.g. `| head`): print nothing more, not even at exit.
        sys.stdout = None
        return 0


class _Parser(argparse.ArgumentParser):
    """A parser whose errors suggest the command, or another choice, that was probably meant."""

    def error(self, message: str) -> NoReturn:
        if found := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message):
            choices = re.findall(r"[^\s',]+", found[2])
            near = difflib.get_close_matches(found[1], choices, n=1)
            message += f"; did you mean {near[0]!r}?" if near else ""
        elif message.endswith("required: COMMAND"):
            message += f"; {self.prog} --help lists the commands"
        super().error(message)


def _run(arguments: Sequence[str]) -> int:
    parser = _Parser(
        prog="spillway",
        description="Simulator for overload control in LLM serving.",
        epilog="exit status: " + "; ".join(f"{key} {text}" for key, text in STATUSES.items()),
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"spillway {spillway.__version__}")
    output.add_color(parser, "auto")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    completed = completion.words()
    called = next((word for word in completed or arguments if word in COMMANDS), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name == called:
            module = importlib.import_module(f"spillway.cli.{name}")
            module.add_arguments(command)
            output.add_color(command, argparse.SUPPRESS)
            command.set_defaults(run=module.run)
    if completed is not None:
        completion.complete(parser)
    options = parser.parse_args(arguments)
    output.use_color(options.color)
    with output.warnings_as_lines():
        status: int = options.run(options)
    return status
