"""The ready instances of a production system over time, as changes of a simulation's fleet."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING

from spillway._core.cluster import Change
from spillway.config.classes import config_error
from spillway.config.filesystem import read_text

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from spillway._core.cluster import Simulation

COLUMNS = ("time_s", "group", "ready")
_MOST_READY = 100_000
_MOST_DIGITS = 20


def with_workers(
    simulation: Simulation, path: str | os.PathLike[str], notes: list[str]
) -> Simulation:
    """The simulation with the instances that were ready, at the times of a file.

    The file has the columns `time_s` (seconds since the first recorded request, ascending), `group`
    (position in `instances`, from 0) and `ready` (instances from then on). Each group needs a row
    at or before 0. An instance that leaves finishes its requests, so a crash is stated in
    `changes[].faults`. `notes` gets what is replaced.

    Raises ConfigError for an invalid file, and for counts that the fleet cannot have: its instances
    join in listed order and leave in reverse order.
    """
    path = Path(path)
    over_time = counts_of(path, len(simulation.instances))
    most = [max(counts[group] for _, counts in over_time) for group in range(len(over_time[0][1]))]
    sizes = [max(own.count, ready) for own, ready in zip(simulation.instances, most, strict=True)]
    for group, (own, size) in enumerate(zip(simulation.instances, sizes, strict=True)):
        if size > own.count:
            notes.append(
                f"instances[{group}].count is {size} instead of {own.count}: {path} has as many"
            )
    for time_s, counts in over_time:
        _check_order(path, time_s, counts, sizes)
    if (autoscaler := simulation.fleet.autoscaler) != type(simulation.fleet)().autoscaler:
        notes.append(f"fleet.autoscaler = {autoscaler.kind} is not used: {path} has its results")
    (_, first), *later = over_time
    changes = [
        Change(at_s=time_s, set={"fleet.target_instances": sum(counts)}) for time_s, counts in later
    ]
    states = {
        **{f"instances[{group}].count": size for group, size in enumerate(sizes)},
        "fleet.initial_instances": sum(first),
        "fleet.target_instances": sum(first),
        "fleet.autoscaler": "none",
        "fleet.startup_s": 0.0,
        "fleet.reported_ready_after_s": None,
    }
    ordered = sorted([*simulation.changes, *changes], key=lambda change: change.at_s)
    return simulation.with_(states).replace(changes=ordered)


def counts_of(path: Path, groups: int) -> list[tuple[float, tuple[int, ...]]]:
    """The instances of every group from each time on, the first time being 0."""
    reader = csv.DictReader(io.StringIO(read_text(path, "must be CSV")))
    try:
        header = [name.strip() for name in reader.fieldnames or ()]
    except csv.Error as error:
        raise config_error([(str(path), "", f"is no CSV: {error}")]) from None
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        allowed = f"must have the columns {', '.join(COLUMNS)}; {', '.join(missing)} missing"
        raise config_error([(str(path), f"{', '.join(header)!r:.60}", allowed)])
    reader.fieldnames = header
    now: dict[int, int] = {}
    found: list[tuple[float, tuple[int, ...]]] = []
    last_s = -math.inf
    for row in _rows(reader, path):
        place = f"{path}, line {reader.line_num}"
        time_s = _number(place, "time_s", row["time_s"])
        group = _whole(place, "group", row["group"], groups - 1)
        ready = _whole(place, "ready", row["ready"], _MOST_READY)
        if time_s < last_s:
            allowed = f"must be >= {last_s:g}, the time of the row before"
            raise config_error([(f"{place}, time_s", f"{time_s:g}", allowed)])
        if time_s > 0 and len(now) < groups:
            absent = ", ".join(str(each) for each in range(groups) if each not in now)
            allowed = f"must follow a row at or before 0 for each group; none for {absent}"
            raise config_error([(f"{place}, time_s", f"{time_s:g}", allowed)])
        last_s = time_s
        now[group] = ready
        if len(now) == groups:
            at_s = max(0.0, time_s)
            if found and found[-1][0] == at_s:
                found.pop()
            found.append((at_s, tuple(now[each] for each in range(groups))))
    if not found:
        absent = ", ".join(str(each) for each in range(groups) if each not in now)
        allowed = f"must have a row at or before 0 for each group; none for {absent}"
        raise config_error([(str(path), "", allowed)])
    return found


def _rows(reader: csv.DictReader[str], path: Path) -> Iterator[dict[str, str | None]]:
    try:
        yield from reader
    except csv.Error as error:
        raise config_error(
            [(f"{path}, line {reader.line_num}", "", f"is no CSV: {error}")]
        ) from None


def _check_order(path: Path, time_s: float, counts: tuple[int, ...], sizes: list[int]) -> None:
    """Raises ConfigError unless each group before one with instances is ready as a whole."""
    last = max((group for group, ready in enumerate(counts) if ready), default=0)
    for group in range(last):
        if counts[group] < sizes[group]:
            allowed = (
                f"must be {sizes[group]} while group {last} has ready instances: they join in "
                "listed order and leave in reverse order"
            )
            where = f"{path}, time_s = {time_s:g}, group {group}, ready"
            raise config_error([(where, str(counts[group]), allowed)])


def _number(place: str, name: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise config_error([(f"{place}, {name}", f"{text!r:.40}", "must be a number (s)")])
    return value


def _whole(place: str, name: str, text: str | None, most: int) -> int:
    stripped = (text or "").strip()
    is_number = stripped.isascii() and stripped.isdigit() and len(stripped) <= _MOST_DIGITS
    if not (is_number and int(stripped) <= most):
        allowed = f"must be a whole number >= 0 and <= {most}"
        raise config_error([(f"{place}, {name}", f"{text!r:.40}", allowed)])
    return int(stripped)
