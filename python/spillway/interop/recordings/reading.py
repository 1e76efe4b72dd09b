"""Reads recordings: finds the format, reads it, checks the units."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.interop.recordings import csv_runs, units, vllm_bench
from spillway.interop.traces import TraceError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from spillway.data.recording import Recording

__all__ = ["read_recordings"]


def __dir__() -> list[str]:
    return __all__


def read_recordings(
    path: str | os.PathLike[str], *, columns: Mapping[str, str] | None = None
) -> list[Recording]:
    """Reads the measured runs of a file or folder.

    Parameters
    ----------
    path : str or path-like
        One of:

        - a folder with `runs.json` (the servers) and a CSV file per run;
        - a CSV file with a row per request: a time of sending, `input_tokens`, `output_tokens`, and
          TTFT and E2E latency, either as spans or as the times of the first and last token. The
          ending of a column is its unit (`_s`, `_ms`, `_us`, `_ns`);
        - a JSON file of `vllm bench serve --save-result --save-detailed` (vLLM 0.6 or later).
    columns : mapping, optional
        Names of the columns of a CSV file: keys are `send`, `ttft`, `e2e`, `first_token`,
        `last_token`, `input_tokens`, `output_tokens` or `error`.

    Raises
    ------
    TraceError
        The file is not of these formats, or a value is invalid or has an implausible magnitude; the
        message names file, field, value, and the suspected unit.

    """
    path = Path(path)
    if not path.exists():
        raise TraceError(f"{path}: does not exist")
    if path.is_dir():
        runs = csv_runs.read_folder(path)
    elif path.suffix == ".json":
        runs = [vllm_bench.read(path)]
    else:
        runs = [csv_runs.read_file(path, columns or {})]
    for run in runs:
        units.check(run)
    return runs
