"""Where the runs of a command are made: --threads, --executor."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from spillway.cli import output
from spillway.config.classes import config_error
from spillway.config.extras import require

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


_DASK = re.compile(r"dask://(?P<address>(\[[0-9a-fA-F:]+\]|[\w.-]+):\d+)")
_TIMEOUT_S = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --threads and --executor."""
    parser.add_argument("--threads", type=int, metavar="N", help="concurrent runs (default: CPUs)")
    parser.add_argument(
        "--executor", metavar="dask://HOST:PORT",
        help="make the runs on the workers of this Dask scheduler (extra dask)",
    )  # fmt: skip


@contextlib.contextmanager
def opened(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The arguments `threads` or `executor` of searches and sweeps."""
    output.check_at_least(options, 1, "threads")
    if options.executor is None:
        yield {"threads": options.threads}
        return
    if options.threads is not None:
        allowed = "not beside --threads: the workers decide on theirs"
        raise config_error([("--executor", options.executor, allowed)])
    found = _DASK.fullmatch(options.executor)
    if found is None:
        allowed = "must be dask://HOST:PORT, the address of a scheduler"
        raise config_error([("--executor", repr(options.executor), allowed)])
    distributed = require("distributed", "dask")
    try:
        client = distributed.Client(f"tcp://{found['address']}", timeout=_TIMEOUT_S)
    except OSError as error:
        allowed = f"no scheduler answers within {_TIMEOUT_S} s"
        raise config_error([("--executor", options.executor, allowed)]) from error
    with client:
        if not client.nthreads():
            output.say(f"{options.executor}: has no workers yet; the runs wait for them")
        yield {"executor": client.get_executor()}
