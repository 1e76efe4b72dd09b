"""The figures of a summary: their descriptions from the core, and their values."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from spillway._core.metrics import figures
from spillway.config import formatting

Figure = float | int | None
"""The value of a figure; None if it has no population."""

FIGURES = {figure.name: figure for figure in figures}
"""Descriptions of figures by key, in the order of a summary."""

LATENCIES = tuple(dict.fromkeys(figure.latency for figure in figures if figure.latency))
"""Latencies for which a summary has statistics."""

SMALL_SAMPLE = 1000
"""Percentiles p99 of fewer values than this are flagged."""

STATISTICS = tuple(dict.fromkeys(figure.statistic for figure in figures if figure.statistic))
"""Statistics of latencies: num, mean, std, percentiles."""


SHED = ("rejected", "expired", "evicted")
"""The outcomes of requests that the gateway sheds."""

_SHED = (
    "it is a figure of studies and sweeps, (rejected + expired + evicted) / offered: "
    "spillway.study.Figure('shed').of(result), of several seeds results.interval(Figure('shed').of)"
)


_RARE = ("expired", "evicted", "failed", "cancelled")  # outcomes without a column if none occur


def of_group(name: str) -> tuple[str, str]:
    """The figure, and the class or tenant that it is of: `p99_ttft_ms[gold]`; empty: of all."""
    figure, _, group = name.partition("[")
    return figure, group.removesuffix("]")


def populations(selector: str, tables: Mapping[str, Groups]) -> list[Figures]:
    """What has this name in the tables of classes and tenants: `gold`, `class=gold`."""
    of, _, name = selector.rpartition("=")
    return [
        table[name.strip()]
        for kind, table in tables.items()
        if of in ("", kind) and name.strip() in table
    ]


def is_share(name: str) -> bool:
    """Whether a figure is a share, from 0 to 1: goodput, `shed`, a hit rate; also of a group."""
    name, _ = of_group(name)
    return name == "shed" or (name in FIGURES and FIGURES[name].unit.startswith("share "))


def is_signed(name: str) -> bool:
    """Whether a figure can be negative: the fitness score, and what is no figure of a summary."""
    name, _ = of_group(name)
    return name == "fitness" or not (name == "shed" or name in FIGURES)


_SKEWNESS_OF_LATENCIES, _SKEWNESS_OF_GOODPUT = 0.5, -0.25


def usual_skewness(name: str) -> float:
    """The skewness of a figure between traces; 0 of figures that have no usual one.

    Requests are late together, so traces with far larger latencies than most are more frequent than
    those with far smaller ones. The values lie in the middle of those that
    `experiments/trace_bootstrap` found.
    """
    name, _, _ = name.partition("[")  # of a class or tenant
    if name == "goodput":
        return _SKEWNESS_OF_GOODPUT
    figure = FIGURES.get(name)
    is_latency = figure is not None and figure.latency and figure.statistic != "num"
    return _SKEWNESS_OF_LATENCIES if is_latency else 0.0


def unknown(name: object, known: Iterable[str]) -> str:
    """Says that a summary has no such figure, and where it is or which is meant."""
    if name == "shed":
        return f"unknown figure 'shed'; {_SHED}"
    near = difflib.get_close_matches(str(name), list(known), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`spillway describe figures` lists all"
    return f"unknown figure {name!r}; {hint}"


def group_rows(title: str, groups: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """One row per class or tenant below a header, with every outcome that occurs."""
    keys = [
        name
        for name, figure in FIGURES.items()
        if figure.in_group_tables or (name in _RARE and any(of.get(name) for of in groups.values()))
    ]
    header = [title, *(key.replace("_", " ") for key in keys)]
    return [
        header,
        *([name, *(formatting.number(p[key]) for key in keys)] for name, p in groups.items()),
    ]


class FiguresByName(Mapping[str, dict[str, Figure]]):
    """The figures of the classes or tenants of a run, derived when they are first asked for."""

    def __init__(self, derive: Callable[[], dict[str, dict[str, Figure]]]) -> None:
        self._derive = derive

    @functools.cached_property
    def _known(self) -> dict[str, dict[str, Figure]]:
        return self._derive()

    def __getitem__(self, name: str) -> dict[str, Figure]:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __reduce__(self) -> tuple[type, tuple[dict[str, dict[str, Figure]]]]:
        return dict, (self._known,)


class Figures(dict[str, Figure]):
    """Named figures of one population; None where a figure has no population.

    Keys follow `vllm bench serve`: `p99_ttft_ms`, `mean_tpot_ms`, `request_throughput`, `goodput`.
    `num_ttft` and similar keys count the requests (for `itl`: the gaps) behind a percentile.
    """

    def __missing__(self, name: str) -> Figure:
        raise KeyError(unknown(name, self))

    def __repr__(self) -> str:
        return formatting.figures(self)


class Groups(dict[str, Figures]):
    """The figures of each class or tenant, shown as a table of the main ones."""

    def __missing__(self, name: str) -> Figures:
        raise KeyError(f"unknown class or tenant {name!r}; one of {', '.join(self)}")

    def __repr__(self) -> str:
        return formatting.table(group_rows("name", self))
