"""Traces as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.config.classes import config_error
from spillway.files.traces import write_csv
from spillway.systems.mooncake.write import write_mooncake

if TYPE_CHECKING:
    from spillway._core.workload import Trace


def write(trace: Trace, path: str | Path) -> None:
    """Writes the requests of a trace to a file, from which `read_trace` reads the same ones.

    Parameters
    ----------
    trace
        The requests. Transforms are settings that files do not hold: `applied` applies them.
    path
        `….csv`: columns with exact times (see `files.traces.write_csv`). `….jsonl`: Mooncake's
        format, with times in milliseconds and prompts as hash ids (see
        `systems.mooncake.write`). The file is replaced if it exists.

    Raises
    ------
    ConfigError
        For another ending, a trace that the format cannot hold, or a file that cannot be written.

    """
    writers = {".csv": write_csv, ".jsonl": write_mooncake}
    ending = Path(path).suffix
    if ending not in writers:
        raise config_error([("path", repr(str(path)), "must end in .csv or .jsonl")])
    writers[ending](trace, path)
