"""The measurements of a server: from files or from memory, and whose they are."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.calibration.histograms import Scraped
from spillway.data.recording import Recording, ServerFacts, StepLog
from spillway.files.recordings import FORMATS, format_of, read_recordings, read_step_logs
from spillway.files.recordings.source import Source
from spillway.files.traces import TraceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def read(
    data: object, server: Mapping[str, object] | None
) -> tuple[list[Recording], list[StepLog], list[Scraped]]:
    """What paths hold and what is given itself, by kind, with what is stated of the server.

    Raises TraceError if a file is invalid, there is nothing, or a stated fact does not exist.
    """
    given = [data] if isinstance(data, str | os.PathLike | _Kinds) else list(data)  # type: ignore[call-overload]
    found: list[Recording | StepLog | Scraped] = []
    for item in given:
        found += [item] if isinstance(item, _Kinds) else _of_path(Path(item))
    if not found:
        raise TraceError("there is nothing to fit: give files, folders or recordings")
    known = {field.name for field in dataclasses.fields(ServerFacts)}
    if unknown := sorted(set(server or {}) - known):
        raise TraceError(f"server: {unknown[0]!r} is not one of {', '.join(sorted(known))}")
    measured = [_stating(item, server or {}) for item in found]
    return (
        [item for item in measured if isinstance(item, Recording)],
        [item for item in measured if isinstance(item, StepLog)],
        [item for item in measured if isinstance(item, Scraped)],
    )


_Kinds = Recording | StepLog | Scraped


def _stating(item: Any, server: Mapping[str, Any]) -> Any:
    """The measurements with further facts of their server."""
    if isinstance(item, Scraped):
        return dataclasses.replace(item, histograms=_stating(item.histograms, server))
    return dataclasses.replace(item, server=item.server.replace(**server))


def _of_path(path: Path) -> list[Recording | StepLog]:
    if not path.is_dir():
        if "step_logs" in format_of(path).gives:
            return [*read_step_logs(path)]
        return [*read_recordings(path)]
    sources = [Source(file) for file in sorted(path.iterdir()) if file.is_file()]
    contents = {
        content
        for source in sources
        for form in FORMATS.values()
        for content in form.gives
        if form.detects(source, content)
    }
    logs = read_step_logs(path) if "step_logs" in contents else []
    return [*logs, *(read_recordings(path) if "recordings" in contents or not logs else [])]


def facts_of(
    runs: Sequence[Recording], logs: Sequence[StepLog], scraped: Sequence[Scraped] = ()
) -> ServerFacts:
    """The one server of all; logs and histograms complete what the runs do not state.

    Raises TraceError if they are of several servers.
    """
    keys = sorted({run.server.key for run in runs})
    if len(keys) > 1:
        raise TraceError("the runs are of several servers; fit each by itself:\n" + "\n".join(keys))
    measured: list[Any] = [*runs[:1], *logs, *(scrape.histograms for scrape in scraped)]
    facts: ServerFacts = measured[0].server
    for measurement in measured[1:]:
        known = dataclasses.asdict(measurement.server)
        known = {name: value for name, value in known.items() if value is not None}
        for name, value in known.items():
            other = getattr(facts, name)
            if other not in (None, value):
                raise TraceError(
                    f"{measurement.source}: its server has {name} = {value!r}, but another file "
                    f"states {other!r}; fit each server by itself, or state {name} with --server"
                )
        facts = dataclasses.replace(facts, **known)
    return facts
