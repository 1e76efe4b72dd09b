"""A finding: what is wrong, the figures that show it, and the settings to try."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""From the worst on. high: the targets are missed, requests are lost, or a setting cannot work;
medium: it costs something; low: a mechanism without effect; info: how far the figures go."""

MOST_SHOWN = 5
"""How many findings are shown unless all are asked for."""


class Evidence(NamedTuple):
    """A figure that shows a finding, and what it means."""

    figure: str
    """Name with its unit, such as `share_of_pairs`."""
    value: float
    meaning: str
    """What the figure is, as a phrase."""


class Finding(NamedTuple):
    """What a diagnosis found in a configuration, or in a run."""

    path: str
    """Path of the setting that it concerns most, such as `gateway.sensor.window_s`, or empty."""
    text: str
    """The finding as a sentence, with the values that show it."""
    name: str = ""
    """Name of the diagnosis, such as `hot_spot`."""
    severity: Severity = "medium"
    """high, medium, low or info."""
    evidence: tuple[Evidence, ...] = ()
    """The figures behind it."""
    remedies: tuple[Mapping[str, Any], ...] = ()
    """What to try: settings by path, each as `Simulation.with_` takes it."""
    is_refused: bool = False
    """Whether `spillway check` fails because of it."""

    def __str__(self) -> str:
        if not self.path or self.text.startswith(self.path):
            return self.text
        return f"{self.path}: {self.text}"


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first; those of equal severity in the order of the diagnoses."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def shown(findings: Iterable[Finding]) -> list[str]:
    """The first findings as sentences, and how many more there are."""
    texts = [finding.text for finding in findings]
    if (more := len(texts) - MOST_SHOWN) > 0:
        texts[MOST_SHOWN:] = [f"{more} more; result.findings() lists all."]
    return texts
