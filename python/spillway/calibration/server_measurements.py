"""The measurements of a server: from files or from memory, and whose they are."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.calibration.histograms import Scraped
from spillway.config.messages import note
from spillway.data.recording import Recording, ServerFacts, StepLog
from spillway.files.evidence import read as evidence_of
from spillway.files.traces import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def read(
    data: object, server: Mapping[str, object] | None, **reading: Any
) -> tuple[list[Recording], list[StepLog], list[Scraped]]:
    """What paths hold and what is given itself, by kind, with what is stated of the server.

    Raises TraceError if a file is invalid, there is nothing, or a stated fact does not exist.
    """
    given = [data] if isinstance(data, str | os.PathLike | _Kinds) else list(data)  # type: ignore[call-overload]
    found: list[Recording | StepLog | Scraped] = []
    for item in given:
        found += [item] if isinstance(item, _Kinds) else _of_path(Path(item), reading)
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


def _of_path(path: Path, reading: Mapping[str, Any]) -> list[Recording | StepLog]:
    evidence = evidence_of(path, **reading)
    for text in evidence.notes:
        note(text)
    found: list[Recording | StepLog] = [*evidence.step_logs, *evidence.recordings]
    if not found:
        offers = ", ".join(evidence.offers)
        raise TraceError(f"{path}: gives {offers}; a fit takes recordings or logs of steps")
    return found


def check_completeness(runs: Iterable[Recording], *, allow_mismatch: bool) -> None:
    """Raises TraceError if a run is a sample, or its tool reports other figures."""
    for run in runs:
        if run.is_sample:
            raise TraceError(
                f"{run.source}: a sample of {run.num_requests:,} of "
                f"{run.num_requests + run.counts.unlisted:,} requests; its load is not known"
            )
        if run.mismatches and not allow_mismatch:
            raise TraceError(
                f"{run.source}, {run.name}: {'; '.join(map(str, run.mismatches))}; "
                "allow_mismatch=True (--allow-mismatch) uses it all the same"
            )


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
