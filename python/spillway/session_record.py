"""What a session keeps of the changes that it makes, and a file of them as a simulation."""

from __future__ import annotations

import json
import re
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._core.sim import ConfigError, UsageError
from spillway.config.classes import config_error

if TYPE_CHECKING:
    from spillway._core.cluster import Simulation


def checked_changes(begin: Simulation, changes: list[Any]) -> Simulation:
    """The simulation with these changes; an error names the setting instead of its place."""
    try:
        return begin.replace(changes=changes)
    except ConfigError as error:
        place = re.compile(
            r"changes\[\d+\]\.(?:set\[(.*)\]|(?:submit|hand_off|faults)\[\d+\]\.(\w+))"
        )
        raise config_error(
            [(place.sub(r"\1\2", path), value, why) for path, value, why in error.violations]
        ) from None


def recorded(path: str | Path) -> Simulation:
    """The simulation that a session has recorded in a file, with its changes so far.

    Parameters
    ----------
    path : path
        The `record` of the session.

    Raises
    ------
    ConfigError
        If the file is not a record.

    """
    from spillway._core.cluster import Simulation

    try:
        with Path(path).open(encoding="utf-8") as lines:
            first = json.loads(next(lines))
            changes = [json.loads(line) for line in lines]
        begin = Simulation.from_dict(first["simulation"])
    except (StopIteration, KeyError, TypeError, ValueError) as error:
        allowed = f"must be the record of a session ({error})"
        raise config_error([("record", str(path), allowed)]) from None
    return begin.replace(changes=[*begin.changes, *changes])


class Record:
    """What a session keeps of its changes: see `spillway.start`."""

    def __init__(self, record: str | int | Path, simulation: Simulation) -> None:
        number = record if isinstance(record, int) and not isinstance(record, bool) else 0
        if record == "" or not (isinstance(record, str | Path) or number >= 1):
            allowed = "must be all, none, a number of changes >= 1, or the path of a file"
            raise config_error([("record", repr(record), allowed)])
        self.is_whole = record == "all"
        self.forgets = not self.is_whole
        self.keeps_some = number > 0
        self.recent: deque[dict[str, Any]] = deque(maxlen=number)
        self.path: Path | None = None
        self._file: Any = None
        if isinstance(record, int) or record in ("all", "none"):
            return
        self.path = Path(record)
        self._file = self.path.open("x", encoding="utf-8")
        self._write({"simulation": simulation.to_dict()})

    def add(self, change: dict[str, Any]) -> None:
        """Keeps a change."""
        if self._file is None:
            self.recent.append(change)
            return
        line = dict(change)
        for name in ("submit", "hand_off", "faults"):
            if name in change:
                line[name] = [item.to_dict() for item in change[name]]
        self._write(line)

    def must_be_whole(self, what: str) -> None:
        """Raises UsageError, naming what needs them, unless all changes are kept in memory."""
        if not self.is_whole:
            raise UsageError(
                f"{what}: needs all changes of the session: start it with record='all'"
            )

    def close(self) -> None:
        """No further change comes."""
        if self._file is not None:
            self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
