"""Folders with runs.json and a CSV file per run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config.formatting import quoted
from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.recordings.csv_columns import recognized, request_rows
from spillway.files.recordings.server import facts
from spillway.files.recordings.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.files.recordings.rows import Rows, Settings


INDEX = "runs.json"
"""The file of a folder that describes its runs."""


def _detect(source: Source) -> bool:
    runs = source.outline.get("runs") if isinstance(source.outline, dict) else source.outline
    return (
        isinstance(runs, list)
        and bool(runs)
        and all(isinstance(run, dict) and isinstance(run.get("run"), str) for run in runs)
    )


def _read(source: Source, settings: Settings) -> list[Rows]:
    """The columns of a run are those of `csv`.

    Counts of requests and errors in runs.json are compared with the file.
    """
    document = source.whole()
    shared = document if isinstance(document, dict) else {}
    runs = shared.get("runs", document)
    return [_run(source, f"runs[{at}]", run, shared, settings) for at, run in enumerate(runs)]


def run_of(source: Source, settings: Settings) -> Rows | None:
    """Return the run of a CSV file as runs.json beside describes it; None if that does not."""
    beside = source.path.with_name(INDEX)
    if not beside.is_file() or not _detect(index := Source(beside)):
        return None
    document = index.whole()
    shared = document if isinstance(document, dict) else {}
    runs = shared.get("runs", document)
    for at, run in enumerate(runs):
        if source.path.name == f"{run['run']}.csv":
            return _run(index, f"runs[{at}]", run, shared, settings)
    return None


def _run(
    index: Source,
    place: str,
    run: Mapping[str, Any],
    shared: Mapping[str, Any],
    settings: Settings,
) -> Rows:
    name = run["run"]
    if "/" in name or "\\" in name or name in ("", ".", ".."):
        index.refuse(f"{place}.run", name, "must be the name of a CSV file beside, without .csv")
    source = Source(index.path.parent / f"{name}.csv")
    columns = recognized(source.columns["csv"])
    if columns is None:
        raise TraceError(
            f"{source.path}: must have columns with times of sending, input_tokens, output_tokens "
            "and latencies, e.g. send_time_us, ttft_us, e2e_us; it begins with "
            f"{quoted(source.first_line)}"
        )
    numbers = {name: run.get(name, shared.get(name)) for name in _COUNTS}
    for key, number in numbers.items():
        if number is not None and (type(number) is not int or number < 1):
            index.refuse(f"{place}.{key}", number, "must be a whole number >= 1")
    rows = request_rows(
        source,
        columns,
        settings,
        name=name,
        server=facts(f"{index.path}, {place}", *_statements(run), *_statements(shared)),
        **numbers,
        beside=[index],
    )
    failed, left_out = int(np.sum(rows.failed)), rows.counts.skipped + rows.counts.warm_up
    counts = {"requests": len(rows.places), "errors": failed, "ok": len(rows.places) - failed}
    if not left_out:
        for key, count in counts.items():
            _check_count(index, place, run, key, count)
    return rows


_COUNTS = ("client_max_in_flight", "num_replicas")


def _check_count(index: Source, place: str, run: Mapping[str, Any], name: str, found: int) -> None:
    if name in run and run[name] != found:
        index.refuse(f"{place}.{name}", run[name], f"must be {found}, as in {run['run']}.csv")


def _statements(run: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings that describe the server, the most exact one first."""
    for path in (
        ("meta", "engine_kwargs"),
        ("meta", "kv_cache"),
        ("meta",),
        ("meta", "resolved_config", "scheduler_config"),
        ("server",),
        ("config",),
        (),
        ("meta", "hardware"),
    ):
        found: Any = run
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, dict):
            yield found


FORMAT = Format(
    name="folder",
    doc="a folder with runs.json (a list of runs, or an object with `runs`, each with its name "
    "`run` and its server) and `<run>.csv`",
    gives=("recordings",),
    detect=_detect,
    read=_read,
)
