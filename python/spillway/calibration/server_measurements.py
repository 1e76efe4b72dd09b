"""The measurements of a server: from files or from memory, and whose they are."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.calibration.histograms import Scraped
from spillway.config.messages import AlikeNotes, note
from spillway.data.recording import LatencyPoints, Recording, ServerFacts, StepLog
from spillway.files.evidence import read as evidence_of
from spillway.files.recordings.rows import OTHER_FIGURES
from spillway.files.recordings.server import merged
from spillway.files.traces import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Measurements(NamedTuple):
    """What is given to a fit, by kind."""

    runs: list[Recording]
    logs: list[StepLog]
    scraped: list[Scraped]
    points: list[LatencyPoints]


def read(data: object, server: Mapping[str, object] | None, **reading: Any) -> Measurements:
    """What paths hold and what is given itself, by kind, with what is stated of the server.

    Raises TraceError if a file is invalid, there is nothing, or a stated fact does not exist.
    """
    given = [data] if isinstance(data, str | os.PathLike | _Kinds) else list(data)  # type: ignore[call-overload]
    known = {field.name for field in dataclasses.fields(ServerFacts)}
    if unknown := sorted(set(server or {}) - known):
        raise TraceError(f"server: {unknown[0]!r} is not one of {', '.join(sorted(known))}")
    found: list[Recording | StepLog | Scraped | LatencyPoints] = []
    notes = AlikeNotes()
    for item in given:
        if isinstance(item, _Kinds):
            with notes.of(getattr(item, "source", "")):
                found.append(_stating(item, server))
        else:
            found += _of_path(Path(item), {"server": server, **reading}, notes)
    notes.tell()
    if not found:
        raise TraceError("there is nothing to fit: give files, folders or recordings")
    return Measurements(
        [item for item in found if isinstance(item, Recording)],
        [item for item in found if isinstance(item, StepLog)],
        [item for item in found if isinstance(item, Scraped)],
        [item for item in found if isinstance(item, LatencyPoints)],
    )


_Kinds = Recording | StepLog | Scraped | LatencyPoints


def _stating(item: Any, server: Mapping[str, Any] | None) -> Any:
    """The measurements with further facts of their server."""
    if isinstance(item, Scraped):
        return dataclasses.replace(item, histograms=_stating(item.histograms, server))
    place = item.source or getattr(item, "name", "points")
    return dataclasses.replace(item, server=merged(item.server, server, place))


def _of_path(
    path: Path, reading: Mapping[str, Any], notes: AlikeNotes
) -> list[Recording | StepLog | LatencyPoints]:
    evidence = evidence_of(path, **reading)
    for text in evidence.notes:
        if OTHER_FIGURES not in text:  # see `check_completeness`
            notes.add(path, text)
    found: list[Recording | StepLog | LatencyPoints]
    found = [*evidence.step_logs, *evidence.recordings] or [*evidence.points_of_servers]
    if not found:
        offers = ", ".join(evidence.offers)
        raise TraceError(f"{path}: gives {offers}; a fit takes recordings, points or logs of steps")
    return found


def check_completeness(runs: Iterable[Recording], *, allow_mismatch: bool) -> None:
    """Raises TraceError if a run is a sample, or its tool reports other figures."""
    for run in runs:
        if run.is_sample:
            raise TraceError(
                f"{run.source}: a sample of {run.num_requests:,} of "
                f"{run.num_requests + run.counts.unlisted:,} requests; its load is not known"
            )
        if not run.mismatches:
            continue
        shown = f"{run.source}, {run.name}: {OTHER_FIGURES}: {'; '.join(map(str, run.mismatches))}"
        if not allow_mismatch:
            raise TraceError(
                f"{shown}; --allow-mismatch (allow_mismatch=True in Python) uses it all the same"
            )
        note(shown)


def facts_of(given: Measurements) -> ServerFacts:
    """The one server of all; logs and histograms complete what runs and points do not state.

    Raises TraceError if they are of several servers.
    """
    runs, points = given.runs, given.points
    keys = sorted({run.server.key for run in runs}) or sorted({key_of(of) for of in points})
    if len(keys) > 1:
        what = "runs" if runs else "points"
        raise TraceError(
            f"the {what} are of several servers; fit each by itself, or state with --server what "
            "they state differently of one:\n" + "\n".join(keys)
        )
    histograms = [scrape.histograms for scrape in given.scraped]
    measured: list[Any] = [*runs[:1], *given.logs, *histograms, *points[:1]]
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


def key_of(points: LatencyPoints) -> str:
    """The server of points, with what else its table states of it."""
    others = [f"{name}={text}" for name, text in points.group.items() if name not in _LENGTHS]
    return " ".join([points.server.key, *others])


_LENGTHS = frozenset({"isl", "osl", "input_tokens", "output_tokens"})
