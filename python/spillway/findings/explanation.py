"""The findings of a run with the causes of its latencies, as text and as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.config.formatting import number, setting, without_keys, wrapped
from spillway.findings.finding import MOST_SHOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.analysis.causes import TimeByCause
    from spillway.findings.finding import Finding


@dataclass(frozen=True, repr=False)
class SavedCauses:
    """Time by cause as it was saved: as data and as text."""

    content: Mapping[str, Any]
    shown: str

    def to_dict(self) -> dict[str, Any]:
        """Mean seconds by group and cause."""
        return dict(self.content)

    def __repr__(self) -> str:
        return self.shown


@dataclass(frozen=True, repr=False)
class Explanation:
    """What is wrong with a run, what to try, and what its requests spent their time on.

    It prints with the five worst findings; `text(most=None)` has all.

    Attributes
    ----------
    findings
        The worst first.
    causes
        Time by cause (of a loaded diagnosis, its table), or why it is unknown.
    """

    findings: tuple[Finding, ...]
    causes: TimeByCause | SavedCauses | str

    def text(self, most: int | None = MOST_SHOWN) -> str:
        """The explanation with at most `most` findings; None: all."""
        lines = []
        for i, finding in enumerate(self.findings[:most], 1):
            lines.append(wrapped(f"{i}. {finding.severity}, {finding.name}: {finding}"))
            lines += [
                f"     {number(evidence.value)}  {evidence.figure}: {evidence.meaning}"
                for evidence in finding.evidence
            ]
            lines += [f"     try {as_settings(remedy)}" for remedy in finding.remedies]
        if not self.findings:
            lines.append("nothing was found")
        if (more := len(self.findings) - len(self.findings[:most])) > 0:
            lines.append(f"{more} more of lower rank")
        known = isinstance(self.causes, str)
        lines += ["", f"time by cause is unknown: {self.causes}" if known else repr(self.causes)]
        return without_keys("\n".join(lines))

    def __repr__(self) -> str:
        return self.text()

    def to_dict(self) -> dict[str, Any]:
        """The findings, and seconds by cause or why they are unknown."""
        causes = self.causes if isinstance(self.causes, str) else self.causes.to_dict()
        return {"findings": [finding._asdict() for finding in self.findings], "causes": causes}


def as_settings(remedy: Mapping[str, Any]) -> str:
    """A remedy as settings in one line, to be copied."""
    return ", ".join(f"{path} = {setting(value, None)}" for path, value in remedy.items())
