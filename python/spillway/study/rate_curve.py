"""Latency and throughput over the rate of requests, with the knee."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from spillway import loading, traffic
from spillway._core.workload import Synthetic
from spillway.config import files
from spillway.config.classes import config_error
from spillway.config.formatting import number, table
from spillway.data.intervals import Interval
from spillway.report import page
from spillway.study.objective import as_constraints, check_figures
from spillway.study.solvers import rate_of
from spillway.study.sweeps import run_plan
from spillway.study.verdicts import by_interval, together

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from matplotlib.axes import Axes

    from spillway._core.cluster import Simulation
    from spillway.config.progress import Progress
    from spillway.study.objective import Constraint
    from spillway.study.verdicts import Verdict

_FIGURES = (
    "request_throughput",
    "mean_e2el_ms",
    "p99_ttft_ms",
    "p99_tpot_ms",
    "p99_e2el_ms",
    "shed",
)
_SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1, 1.25)
"""The rates, as shares of the largest throughput."""
_GAIN = 1.05
_FULL = 0.8
_MOST_DOUBLINGS = 30
_CURVE = "curve"


@dataclasses.dataclass(frozen=True)
class Point:
    """One rate: its figures in the mean over the seeds, and whether the system keeps up.

    `verdict`: whether the SLO holds, by the intervals; None without one.
    """

    rate_per_s: float
    figures: Mapping[str, Interval]
    saturation: str | None
    verdict: Verdict | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Curve:
    """Figures over the rate of requests.

    Attributes
    ----------
    points
        In the order of their rates.
    knee_per_s
        The rate at which throughput divided by mean E2E latency is largest (Kleinrock's power):
        below it more load costs little latency, above it latency grows faster than throughput. None
        if no request completed.
    saturated_from_per_s
        The lowest rate at which the system does not keep up; None: it does at all of them.
    slo
        The bounds that were judged.
    holds_to_per_s
        The highest rate up to which all hold at every rate; None: they do not at the lowest.
    seeds
        Of each rate.
    notes
        Remarks.
    """

    points: tuple[Point, ...]
    knee_per_s: float | None
    saturated_from_per_s: float | None
    slo: tuple[str, ...]
    holds_to_per_s: float | None
    seeds: tuple[int, ...]
    notes: tuple[str, ...]

    def text(self) -> str:
        """The knee in a sentence, and a row per rate."""
        names = list(self.points[0].figures)
        rows = [["requests/s", *names, "saturation", *(["SLO"] if self.slo else [])]]
        for point in self.points:
            cells = [str(point.figures[name]) if name in point.figures else "-" for name in names]
            last = [str(point.verdict)] if self.slo else []
            rows.append([number(point.rate_per_s), *cells, point.saturation or "-", *last])
        blocks = [self.verdict, table(rows)]
        if self.notes:
            blocks.append("\n".join(f"note: {note}" for note in self.notes))
        return "\n\n".join(blocks)

    def __repr__(self) -> str:
        return self.text()

    @property
    def verdict(self) -> str:
        """Knee, saturation and SLO in a sentence each."""
        texts = ["No request completed."]
        if self.knee_per_s is not None:
            texts = [f"The knee is at {number(self.knee_per_s)} requests/s."]
        if self.saturated_from_per_s is not None:
            rate = number(self.saturated_from_per_s)
            texts.append(f"From {rate} requests/s on the system does not keep up.")
        if self.slo:
            slo = ", ".join(self.slo)
            end = self.holds_to_per_s
            until = "at none of these rates" if end is None else f"up to {number(end)} requests/s"
            texts.append(f"{slo}: {until}.")
        return " ".join(texts)

    def to_dict(self) -> dict[str, Any]:
        """Everything as data, as `spillway curve --json` prints it."""
        return {"verdict": self.verdict, **dataclasses.asdict(self)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the curve as JSON. Raises ConfigError if the file cannot be written."""
        files.save_results(path, _CURVE, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Curve:
        """Reads what `save` wrote. Raises ConfigError for another file."""
        content = files.load_results(path, _CURVE, "Curve.save")
        known = {field.name: content[field.name] for field in dataclasses.fields(cls)}
        for name in ("slo", "seeds", "notes"):
            known[name] = tuple(known[name])
        known["points"] = tuple(
            Point(**{**of, "figures": {key: Interval(**own) for key, own in of["figures"].items()}})
            for of in known["points"]
        )
        return cls(**known)

    def plot(self, *figures: str, ax: Axes | None = None) -> Axes:
        """Draws latencies over the rate, with the knee (extra `plot`).

        Parameters
        ----------
        *figures
            Figures of one unit; by default the p99 of TTFT and the mean E2E latency.
        ax
            Axes to draw into; default: those of a new figure.

        Raises KeyError for a figure that the curve does not have.
        """
        from spillway.report.curves import draw_curves, name_seeds
        from spillway.report.style import axes_or_new, ink

        chosen = figures or ("p99_ttft_ms", "mean_e2el_ms")
        for name in chosen:
            if not any(name in point.figures for point in self.points):
                raise KeyError(f"{name!r}: must be one of {', '.join(self.points[0].figures)}")
        axes = axes_or_new(ax)
        curves = {
            name: [(point.rate_per_s, point.figures.get(name)) for point in self.points]
            for name in chosen
        }
        label = chosen[0] if len(chosen) == 1 else "latency (ms)"
        draw_curves(axes, curves, setting="requests per s", figure=label, log="y")
        name_seeds(axes, [len(self.seeds)], 0.95)
        for rate, style, text in (
            (self.knee_per_s, "--", "knee"),
            (self.saturated_from_per_s, ":", "saturated"),
        ):
            if rate is not None:
                axes.axvline(rate, color=ink(axes), linestyle=style, linewidth=1, label=text)
        axes.legend(fontsize="small")
        return axes

    def report(self, path: str | os.PathLike[str], title: str = "Latency over the rate") -> None:
        """Writes the curve as one HTML file. Raises ConfigError if that fails."""
        names = list(self.points[0].figures)
        rows = [
            [
                number(point.rate_per_s),
                *(str(point.figures.get(name, "-")) for name in names),
                point.saturation or "-",
                point.verdict or "-",
            ]
            for point in self.points
        ]
        page.save(
            path,
            title,
            [
                page.verdict(self.verdict),
                page.chart("Latency over the rate", lambda axes: self.plot(ax=axes)),
                page.table(["requests/s", *names, "saturation", "SLO"], *rows),
                page.notes(self.notes),
            ],
        )


def curve(
    simulation: loading.Configuration,
    *,
    rates: Iterable[float] | None = None,
    slo: str | Mapping[str, Any] | Sequence[str | Constraint] = (),
    seeds: int | Iterable[int] = 4,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Progress = False,
) -> Curve:
    """Latencies, throughput and shed requests over the rate of requests, and the knee.

    Parameters
    ----------
    simulation
        The simulation, or the path of its file. The rates of all clients change by the same factor,
        or the arrival times of a trace.
    rates
        Total rates in requests/s; None: eleven from a tenth to five quarters of the largest
        throughput, which is found by doubling the rate until that gains hardly any.
    slo
        Bounds to judge at each rate, as for a study, e.g. "gold: p99 ttft < 2 s" or "ttft:500".
    seeds, threads, executor, progress
        As for `grid`.

    Raises
    ------
    ConfigError
        For users that wait for answers, whose rate follows what is served; for a rate that is not
        positive, or another form of bound.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
    >>> found = spillway.study.curve(simulation, seeds=2)
    >>> found.points[0].rate_per_s < found.knee_per_s < found.points[-1].rate_per_s
    True
    """
    simulation = loading.as_simulation(simulation)
    _check_open(simulation)
    base = rate_of(simulation)
    bounds = as_constraints(slo, "slo")
    check_figures(constraint.metric for constraint in bounds)
    if rates is None:
        largest = _largest_throughput(simulation)
        rates = [share * largest for share in _SHARES]
    chosen = sorted(set(map(float, rates)))
    for i, rate in enumerate(chosen):
        if not 0 < rate < math.inf:
            raise config_error([(f"rates[{i}]", f"{rate:g}", "must be > 0 and finite")])
    if not chosen:
        raise config_error([("rates", "[]", "must hold at least one rate")])
    metrics = list(dict.fromkeys([*_FIGURES, *(constraint.name for constraint in bounds)]))
    plan = [
        (f"{rate:.6g}/s", {"rate_per_s": rate}, traffic.at_rate(simulation, rate / base))
        for rate in chosen
    ]
    sweep = run_plan(plan, seeds, metrics, threads=threads, executor=executor, progress=progress)
    points = []
    for rate, row in zip(chosen, sweep.rows, strict=True):
        known = {} if row.failure else {name: sweep.interval(row.name, name) for name in metrics}
        figures = {name: value for name, value in known.items() if value is not None}
        said = together(by_interval(of, figures.get(of.name)) for of in bounds) if bounds else None
        points.append(Point(rate, figures, row.saturation, said))
    powers = {of.rate_per_s: power for of in points if (power := _power(of))}
    holding = [of.rate_per_s for of in _first(points, "holds")]
    return Curve(
        points=tuple(points),
        knee_per_s=max(powers, key=powers.__getitem__, default=None),
        saturated_from_per_s=next(
            (of.rate_per_s for of in points if of.saturation == "saturated"), None
        ),
        slo=tuple(map(str, bounds)),
        holds_to_per_s=max(holding, default=None),
        seeds=sweep.seeds,
        notes=(*_notes(points), *(note for note in sweep.notes() if "saturated" not in note)),
    )


def _check_open(simulation: Simulation) -> None:
    workload = simulation.workload
    if isinstance(workload, Synthetic):
        for i, client in enumerate(workload.clients):
            if client.arrivals.kind == "closed_loop":
                allowed = "users that wait for answers have no rate: sweep the number of users"
                raise config_error([(f"workload.clients[{i}].arrivals", "closed_loop", allowed)])


def _largest_throughput(simulation: Simulation) -> float:
    """The throughput at which doubling the rate gains hardly any more."""
    factor, largest = 1.0, 0.0
    for _ in range(_MOST_DOUBLINGS):
        changed = traffic.at_rate(simulation, factor)
        (row,) = run_plan([("", {}, changed)], 1, ["request_throughput"], progress=False).rows
        if row.failure is not None:
            raise config_error([("rates", "None", f"must be given: {row.failure}")])
        throughput = row.values[0][0]
        if throughput < _GAIN * largest:
            break
        largest = max(largest, throughput)
        factor *= 2
    return largest


def _notes(points: Sequence[Point]) -> list[str]:
    """That clients send only some of the time, if the requests that arrive are far fewer."""
    first = points[0]
    served = first.figures.get("request_throughput")
    lost = first.figures.get("shed")
    if served is None or lost is None or lost.mean or served.mean >= _FULL * first.rate_per_s:
        return []
    return ["the rates are those while all clients send; some send only part of the time."]


def _power(point: Point) -> float | None:
    served, latency_ms = (
        point.figures.get(name) for name in ("request_throughput", "mean_e2el_ms")
    )
    if served is None or latency_ms is None or latency_ms.mean <= 0:
        return None
    return served.mean / latency_ms.mean


def _first(points: Sequence[Point], verdict: Verdict) -> list[Point]:
    """The points from the lowest rate on that have a verdict."""
    end = next((i for i, of in enumerate(points) if of.verdict != verdict), len(points))
    return list(points[:end])
