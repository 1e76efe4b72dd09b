"""What is known of the errors of servers, in a line each."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from spillway._core.sim import ConfigError
from spillway.config import acceptance, yaml
from spillway.config.formatting import counted
from spillway.config.provenance import notes_on_verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway._core.cluster import Simulation
    from spillway._core.instance import InstanceGroup

_KINDS = re.compile(r"server (.*): (physics|fitted|table)\b.*", re.DOTALL)


def notes(simulation: Simulation) -> list[str]:
    """Sentences on the servers: where they come from, their errors, and verdicts of recordings."""
    lines = []
    for group in simulation.instances:
        origin = group.provenance or "step times as the configuration states them"
        lines.append(f"{group.count} x {group.latency.kind}: {origin}")
        known = dict.fromkeys(_errors(group))
        lines += [f"  {text}" for text in known if f"  {text}" not in lines]
        if not acceptance.is_judged(group):
            lines.append("  no recording has judged this server: spillway validate recording")
    return [*lines, *notes_on_verdicts([simulation])]


def _errors(group: InstanceGroup) -> Iterator[str]:
    found = _KINDS.fullmatch(group.provenance)
    if found is None:
        yield "errors of its step times are not known"
        return
    source, kind = found.groups()
    try:
        yield from {"physics": _of_physics, "fitted": _of_fit, "table": _of_table}[kind](
            source, group
        )
    except (ConfigError, OSError) as error:
        yield f"errors of its step times are not known: {error}"


def _of_physics(source: str, group: InstanceGroup) -> Iterator[str]:
    from spillway.servers.server import Server

    server = Server(**yaml.parse(source, "provenance"))
    if server.group.latency != group.latency:
        yield "errors of its step times are not known: they are not those of the catalog"
        return
    widths = server.knowledge.widths
    shown = ", ".join(
        f"{what} ±{_percent(width)}"
        for what, width in (
            ("memory bandwidth", widths.memory),
            ("arithmetic", widths.arithmetic),
            ("KV bandwidth", widths.kv),
        )
    )
    yield f"computed; one standard deviation of the reached share of {shown}"


def _of_fit(source: str, group: InstanceGroup) -> Iterator[str]:
    from spillway.calibration.profile import Profile

    profile = Profile.load(Path(source))
    if profile.group.latency != group.latency:
        yield f"errors of its step times are not known: they are not those of {source}"
        return
    if profile.verdict is not None:
        yield from profile.verdict.text().splitlines()
    of_figure: dict[str, list[float]] = {}
    for run in profile.runs:
        for name, error in run.errors_percent.items():
            of_figure.setdefault(name, []).append(error)
    if of_figure:
        shown = ", ".join(f"{name} {_range(errors)}" for name, errors in of_figure.items())
        count = counted(len(profile.runs), "fitted run")
        yield f"errors of the {count} in %, simulated against measured: {shown}"
    for log in profile.logs:
        yield f"{log.name}: {log.steps:,} steps, errors of {log.error_percent:.1f}%"


def _of_table(_source: str, _group: InstanceGroup) -> Iterator[str]:
    yield "errors of its step times are not known: its table was computed, not measured"


def _range(errors: list[float]) -> str:
    low, high = min(errors), max(errors)
    return f"{low:+.1f}" if low == high else f"{low:+.1f} to {high:+.1f}"


def _percent(width: float) -> str:
    return f"{100 * math.expm1(width):.0f}%"
