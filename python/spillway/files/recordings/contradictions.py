"""What the fields of a request say of each other: times in order, sums that agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.config.messages import note

if TYPE_CHECKING:
    from pathlib import Path


_FEW = 0.01
"""Share of the requests of which clocks and races may contradict each other."""


class Contradictions:
    """The requests of a run whose fields contradict each other, by what is wrong."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, int]] = {}  # the place of the first, how many

    def check(self, holds: bool, place: str, wrong: str) -> None:
        """Count a request of which something does not hold; `wrong` says what."""
        if not holds:
            first, count = self._found.get(wrong, (place, 0))
            self._found[wrong] = first, count + 1

    def tell(self, path: Path, requests: int) -> None:
        """Warn of what is wrong in more than a few of the requests."""
        for wrong, (first, count) in self._found.items():
            if count > _FEW * requests:
                note(
                    f"{path} {first}: {wrong}, as in {count:,} of {requests:,} requests: one of "
                    "these fields holds something else, or has another unit"
                )
