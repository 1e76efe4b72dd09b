"""Figures as long tables: one row per figure, with its unit and its population."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, Any

from spillway._core.sim import build_info
from spillway.config import filesystem
from spillway.config.extras import require
from spillway.data.figures import FIGURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from spillway.data.intervals import Interval


SCHEMA = 1
"""Version of the long tables and of the files of studies, sweeps and comparisons."""


def provenance(
    *, seeds: Sequence[int], fingerprint: str | Sequence[str | None] | None
) -> dict[str, Any]:
    """What identifies the runs behind numbers: schema, version, seeds, digest of the settings."""
    return {
        "schema": SCHEMA,
        "version": build_info["version"],
        "seeds": list(seeds),
        "fingerprint": fingerprint if isinstance(fingerprint, str | None) else list(fingerprint),
    }


def described(figure: str, value: Interval | float | None) -> dict[str, Any]:
    """The columns of a row: figure, value, low, high, n, unit, population.

    `n`: number of runs. Functions of a result have neither unit nor population.
    """
    known = FIGURES.get(figure)
    mean, low, high, n = value, None, None, 1
    if value is not None and not isinstance(value, int | float):
        mean, low, high, n = value.mean, value.low, value.high, value.n
    return {
        "figure": figure,
        "value": mean,
        "low": low,
        "high": high,
        "n": n,
        "unit": None if known is None else known.unit,
        "population": None if known is None else known.population,
    }


def long_rows(
    summary: Mapping[str, Interval | float | None],
    by_class: Mapping[str, Mapping[str, Interval | float | None]],
    by_tenant: Mapping[str, Mapping[str, Interval | float | None]],
) -> Iterator[dict[str, Any]]:
    """A row per figure with a value: of all requests, of each class, of each tenant."""
    groups = [("all", "", summary)]
    groups += [("slo_class", name, figures) for name, figures in by_class.items()]
    groups += [("tenant", name, figures) for name, figures in by_tenant.items()]
    for by, name, figures in groups:
        for figure, value in figures.items():
            if value is not None and figure != "approximate":
                yield {"by": by, "name": name, **described(figure, value)}


def frame(rows: Iterable[Mapping[str, Any]], attrs: Mapping[str, Any]) -> pd.DataFrame:
    """The rows as a pandas DataFrame with the provenance in `attrs` (extra `frames`)."""
    made: pd.DataFrame = require("pandas", "frames").DataFrame(list(rows))
    made.attrs.update(attrs)
    return made


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Writes mappings with the same keys as a CSV file (RFC 4180); spaces separate seeds."""
    with (
        filesystem.replacing(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as stream,
    ):
        writer = csv.writer(stream)
        names = list(dict.fromkeys(key for row in rows for key in row))
        writer.writerow(names)
        writer.writerows([_cell(row.get(name)) for name in names] for row in rows)


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, tuple):
        return " ".join(_cell(item) for item in value)
    return repr(value) if isinstance(value, float) else str(value)
