"""Formats of recordings: how to detect and read their files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


Kind: TypeAlias = Literal["recordings", "step_logs", "histograms", "points"]


@dataclass(frozen=True)
class Format:
    """A format of recordings.

    Attributes
    ----------
    name : str
        The name for `read_recordings(format=…)`.
    doc : str
        A description on one line: the tool, its option, and the file.
    kind : str
        The content, which names the reader: `read_recordings`, `read_step_logs`, `read_histograms`
        or `read_points`.
    detect : callable
        `detect(source)` returns whether a file is of the format. At most one format detects a file.
    read : callable
        `read(source, settings)` returns the contents of the file, one per run, engine or group.
    notes : str
        Further remarks for users; part of the documentation of the reader.

    """

    name: str
    doc: str
    kind: Kind
    detect: Callable[[Source], bool]
    read: Callable[[Source, Settings], Sequence[Any]]
    notes: str = ""
