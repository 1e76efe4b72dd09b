"""What the figures of a summary are, by the core's descriptors."""

from __future__ import annotations

from spillway._core.metrics import figures

FIGURES = {one.name: one for one in figures}
"""By key, in the order of a summary."""

LATENCIES = tuple(dict.fromkeys(one.latency for one in figures if one.latency))
"""Those of which a summary gives statistics."""

STATISTICS = tuple(dict.fromkeys(one.statistic for one in figures if one.statistic))
"""What it gives of each: num, mean, std, percentiles."""
