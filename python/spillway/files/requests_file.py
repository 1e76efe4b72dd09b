"""A file of a run's requests for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.data.result_data import ResultData


@dataclass(frozen=True)
class RequestsFile:
    """A format of such a file.

    `name`: that of the format; `file`: that of the file; `text`: its content for a run.
    """

    name: str
    file: str
    text: Callable[[ResultData], str]
