"""Sweeps: predefined configurations, all run under the same seeds."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import loading
from spillway._core.cluster import Simulation
from spillway._core.sim import ConfigError, build_info
from spillway.analysis.stationarity import note_on_saturation
from spillway.config import formatting
from spillway.config.extras import require
from spillway.config.files import fingerprint
from spillway.config.progress import reporting
from spillway.config.provenance import notes_on_servers
from spillway.data import frames
from spillway.data.frames import write_rows
from spillway.data.intervals import caveats
from spillway.report import page
from spillway.report.tables import joined
from spillway.study.checks import check_runs, refusal
from spillway.study.evaluation import Evaluator, as_seeds
from spillway.study.measurements import Measured, interval_of, notes_on_copies
from spillway.study.objective import Noted, as_metric
from spillway.study.records import mean, standard_error
from spillway.study.space import as_space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Executor
    from pathlib import Path

    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from spillway.config.progress import Progress
    from spillway.data.intervals import Interval
    from spillway.report.tables import Parts
    from spillway.result import Result
    from spillway.study.space import Space


DEFAULT_METRICS = ("weighted_goodput", "request_throughput", "p50_ttft_ms", "p99_ttft_ms", "shed")
"""Metrics of a sweep that names none; NaN if a run has no such figure."""

_SHOWN_ROWS = 40

Planned = tuple[str, dict[str, Any], Simulation | ConfigError]
"""A configuration of a sweep: its name, its settings, and itself or why it is invalid."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(Measured):
    """One configuration of a sweep: its name, its settings, and its measurements."""

    name: str
    settings: dict[str, Any]


@dataclasses.dataclass(frozen=True, repr=False)
class Sweep:
    """Configurations that ran under the same seeds, in order."""

    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    seeds: tuple[int, ...]
    simulations: tuple[Simulation | None, ...]
    """The configurations; None for an invalid combination."""

    def interval(self, name: str, metric: str, confidence: float = 0.95) -> Interval | None:
        """Mean of a metric over the seeds for one row; None if it has none."""
        return self._mean(self._row(name), self._column(metric), confidence)

    def difference(
        self, name: str, metric: str, reference: str | None = None, confidence: float = 0.95
    ) -> Interval | None:
        """Mean paired difference from another row, the first one unless `reference` names it."""
        column = self._column(metric)
        row, base = self._row(name), self._row(reference or self.rows[0].name)
        gaps = [a - b for a, b in zip(row.values[column], base.values[column], strict=True)]
        return self._interval(gaps, confidence, column, row, base)

    def to_rows(self) -> list[dict[str, Any]]:
        """One mapping per row.

        Name, settings, per metric the mean, `…_se` and `…_per_seed`, saturation, failure, the
        fingerprint of the configuration and Spillway's version. `…_se` is the standard error of the
        mean over the seeds; over resamples of a trace, that of the mean over traces of this length,
        which is the standard deviation of the resamples.
        """
        lines = []
        for row, digest in zip(self.rows, self._fingerprints, strict=True):
            line: dict[str, Any] = {"name": row.name, **row.settings}
            for i, metric in enumerate(self.metrics):
                values = row.distinct[i] if row.values else ()
                known = [value for value in values if not math.isnan(value)]
                line[metric] = mean(known) if known else math.nan
                line[f"{metric}_se"] = standard_error(
                    known, are_resamples=row.num_blocks is not None
                )
                line[f"{metric}_per_seed"] = values
            line |= {"saturation": row.saturation, "failure": row.failure, "fingerprint": digest}
            lines.append(line | {"version": build_info["version"]})
        return lines

    def to_frame(self) -> pd.DataFrame:
        """The metrics as a long pandas DataFrame (extra `frames`).

        One row per configuration and metric: name, a column per setting, figure, value, low, high
        (95% interval), n, unit, population, saturation. Failed rows are left out; `to_rows` has
        them. `attrs` holds schema, version, seeds and the fingerprint of each configuration.
        """
        lines = [
            {
                "name": row.name,
                **row.settings,
                **frames.described(self.metrics[i], self._mean(row, i)),
                "saturation": row.saturation,
            }
            for row in self.rows
            for i in range(len(row.values))
        ]
        attrs = frames.provenance(seeds=self.seeds, fingerprint=self._fingerprints)
        return frames.frame(lines, attrs)

    def array(
        self, metric: str | None = None, *, at: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, list[Any]], NDArray[np.float64]]:
        """The means of a metric as an array with one axis per setting, and its coordinates.

        Parameters
        ----------
        metric
            One of `metrics`; None: the first.
        at
            Values of settings, by path: only the rows that have them, without axes for these.

        Returns
        -------
        The values of each setting in the order of the rows, by path; the array, in which a
        combination without a row, or whose row failed, is NaN.

        Raises KeyError for an unknown metric, ValueError if rows have other settings than the rest,
        as in `isolation`, several rows have the same ones, or no row has what `at` states.

        Examples
        --------
        >>> import spillway
        >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
        >>> values = {"workload.requests_per_s": [5, 10], "instances[0].count": [1, 2, 4]}
        >>> sweep = spillway.study.grid(simulation, values, metrics=["completed"], seeds=1)
        >>> coordinates, means = sweep.array()
        >>> coordinates["instances[0].count"], means.shape
        ([1, 2, 4], (2, 3))
        """
        column = self._column(metric or self.metrics[0])
        fixed = dict(at or {})
        rows = [row for row in self.rows if fixed.items() <= row.settings.items()]
        if not rows:
            raise ValueError(f"no row has {formatting.point(fixed)}")
        paths = [path for path in rows[0].settings if path not in fixed]
        coordinates: dict[str, list[Any]] = {path: [] for path in paths}
        for row in rows:
            if row.settings.keys() - fixed.keys() != coordinates.keys():
                raise ValueError(f"{row.name} has other settings than {rows[0].name}")
            for path, known in coordinates.items():
                if row.settings[path] not in known:
                    known.append(row.settings[path])
        means = np.full([len(known) for known in coordinates.values()], np.nan)
        cells = set()
        for row in rows:
            cell = tuple(known.index(row.settings[path]) for path, known in coordinates.items())
            if cell in cells:
                raise ValueError(f"several rows are {row.name}")
            cells.add(cell)
            if row.failure is None and (found := self._mean(row, column)) is not None:
                means[cell] = found.mean
        return coordinates, means

    def heat_map(
        self,
        metric: str | None = None,
        *,
        at: Mapping[str, Any] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draws the means of a metric over two settings (extra `plot`).

        `metric` and `at` as for `array`; two settings must be left. What failed is blank.

        Raises KeyError for an unknown metric, ValueError unless two settings are left.
        """
        from spillway.study import study_plots

        chosen = metric or self.metrics[0]
        coordinates, means = self.array(chosen, at=at)
        if len(coordinates) != 2:
            left = ", ".join(coordinates) or "none"
            raise ValueError(f"a heat map has two settings, not {left}; `at` fixes the others")
        return study_plots.heat_map(
            coordinates,
            means,
            chosen,
            seeds=len(self.seeds),
            simulations=[simulation for simulation in self.simulations if simulation is not None],
            ax=ax,
        )

    @property
    def _fingerprints(self) -> list[str | None]:
        return [None if known is None else fingerprint(known) for known in self.simulations]

    def plot(
        self, metric: str | None = None, setting: str | None = None, *, ax: Axes | None = None
    ) -> Axes:
        """Draws a metric over a numeric setting with 95% intervals (extra `plot`).

        There is a line for each combination of the other settings. Rows that failed or lack the
        setting are left out.

        Parameters
        ----------
        metric
            One of `metrics`; None: the first.
        setting
            Path of the setting on the x axis; None: the first that is a number in every row.
            Without one, as in `isolation`, each row has a line of its own.
        ax
            Axes to draw into; default: those of a new figure.

        Raises KeyError for an unknown metric, ValueError if no row can be drawn.

        """
        from spillway.study import study_plots

        chosen = metric or self.metrics[0]
        self._column(chosen)
        ran = [row for row in self.rows if row.failure is None]
        return study_plots.sweep(
            [(row.name, row.settings, self.interval(row.name, chosen)) for row in ran],
            chosen,
            setting,
            seeds=len(self.seeds),
            simulations=[simulation for simulation in self.simulations if simulation is not None],
            ax=ax,
        )

    def write(self, path: Path) -> None:
        """Writes the rows as a CSV file."""
        write_rows(self.to_rows(), path)

    def _row(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"unknown row {name!r}; one of {[row.name for row in self.rows]}")

    def _column(self, metric: str) -> int:
        if metric not in self.metrics:
            raise KeyError(f"{metric!r} was not recorded; one of {', '.join(self.metrics)}")
        return self.metrics.index(metric)

    def __repr__(self) -> str:
        return joined(self._parts())

    def _repr_html_(self) -> str:
        return page.tables(*self._parts())

    def _parts(self) -> Parts:
        keeps_up = all(row.saturation in (None, "unsaturated") for row in self.rows)
        last = [] if keeps_up else ["saturation"]
        lines = [["configuration", *self.metrics, *last]]
        for row in self.rows[:_SHOWN_ROWS]:
            if row.failure is not None:
                lines.append([row.name, *["failed"] * len(self.metrics), *["-"] * len(last)])
                continue
            shown = (self._mean(row, i) for i in range(len(row.values)))
            cells = ["-" if value is None else str(value) for value in shown]
            lines.append([row.name, *cells, *[row.saturation or "-"] * len(last)])
        head = f"{len(self.seeds)} seeds, means with 95% confidence intervals"
        if len(self.seeds) == 1:
            head = "1 seed: no confidence intervals"
        hidden = len(self.rows) - _SHOWN_ROWS
        more = [f"{hidden:,} more rows: to_frame() and write() have them"] if hidden > 0 else []
        return head, [lines], [*more, *self.notes()]

    def notes(self) -> list[str]:
        """Remarks: copies, doubtful intervals, saturated systems, unvalidated servers."""
        ran = [simulation for simulation in self.simulations if simulation is not None]
        intervals = {
            f"{self.metrics[i]} of {row.name}": self._mean(row, i)
            for row in self.rows
            for i in range(len(row.values))
        }
        verdicts = [row.saturation for row in self.rows if row.failure is None]
        pairs = zip(self.rows, self.simulations, strict=True)
        copied = [known for row, known in pairs if known is not None and not row.is_replicated]
        return [
            *notes_on_copies(copied if len(self.seeds) > 1 else [], len(verdicts), "rows"),
            *caveats(intervals),
            *note_on_saturation(verdicts, "configurations"),
            *notes_on_servers(ran),
        ]

    def _mean(self, row: Row, column: int, confidence: float = 0.95) -> Interval | None:
        return self._interval(row.values[column], confidence, column, row)

    def _interval(
        self, values: Sequence[float], confidence: float, column: int, *rows: Row
    ) -> Interval | None:
        known = [value for value in values if not math.isnan(value)]
        return (
            interval_of(known, confidence, self.metrics[column], column, *rows) if known else None
        )


def grid(
    simulation: loading.Configuration,
    values: Mapping[str, Sequence[Any]],
    *,
    seeds: int | Iterable[int] = 4,
    metrics: Sequence[str | Callable[[Result], float]] = DEFAULT_METRICS,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Progress = False,
    journal: str | Path | None = None,
) -> Sweep:
    """Runs every combination of values of several settings.

    `values`: the values by dotted path; the last path varies fastest. `progress`: as for
    `run_many`, here and in all sweeps. `journal`: a file that keeps what is measured, for a sweep
    after one that was interrupted: it runs only the configurations that the file lacks, and gives
    what an uninterrupted sweep gives. With a journal, metrics must be figures.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
    >>> path = "workload.requests_per_s"
    >>> sweep = spillway.study.grid(simulation, {path: [5, 10]}, metrics=["request_throughput"])
    >>> [row.name for row in sweep.rows]
    ['workload.requests_per_s = 5', 'workload.requests_per_s = 10']
    """
    plan = plan_grid(simulation, values, seeds=seeds)
    return run_plan(
        plan, seeds, metrics, threads=threads, executor=executor, progress=progress, journal=journal
    )


def plan_grid(
    simulation: loading.Configuration,
    values: Mapping[str, Sequence[Any]],
    *,
    seeds: int | Iterable[int] = 4,
) -> list[Planned]:
    """The configurations of `grid`."""
    for path, options in values.items():
        if not isinstance(options, Sequence) or isinstance(options, str) or not options:
            raise refusal(path, options, "must be a list of at least one value")
    simulation = loading.as_simulation(simulation)
    check_runs("grid", math.prod(len(options) for options in values.values()), len(as_seeds(seeds)))
    points = [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
    return [(formatting.point(point), point, _valid(simulation.with_, point)) for point in points]


def sobol(
    simulation: loading.Configuration,
    space: Space | Mapping[str, Any],
    n: int = 64,
    *,
    seed: int = 0,
    seeds: int | Iterable[int] = 4,
    metrics: Sequence[str | Callable[[Result], float]] = DEFAULT_METRICS,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Progress = False,
    journal: str | Path | None = None,
) -> Sweep:
    """Runs `n` configurations that fill a space evenly: a scrambled Sobol sequence.

    `n` should be a power of two. `seed` is that of the scrambling.
    """
    plan = plan_sobol(simulation, space, n, seed=seed, seeds=seeds)
    return run_plan(
        plan, seeds, metrics, threads=threads, executor=executor, progress=progress, journal=journal
    )


def plan_sobol(
    simulation: loading.Configuration,
    space: Space | Mapping[str, Any],
    n: int = 64,
    *,
    seed: int = 0,
    seeds: int | Iterable[int] = 4,
) -> list[Planned]:
    """The configurations of `sobol`."""
    simulation = loading.as_simulation(simulation)
    if n < 1:
        raise ValueError(f"n = {n}: must be >= 1")
    check_runs("sobol", n, len(as_seeds(seeds)))
    bound = as_space(space).bind(simulation)
    qmc = require("scipy.stats", "study").qmc
    engine = qmc.Sobol(len(bound), rng=np.random.default_rng(seed))
    shares = engine.random_base2(math.ceil(math.log2(n)))[:n] if n > 1 else engine.random(1)
    points = [bound.at(row.tolist()) for row in shares]
    return [(str(i), point, _valid(bound.apply, point)) for i, point in enumerate(points)]


def one_at_a_time(
    simulation: loading.Configuration,
    space: Space | Mapping[str, Any],
    points: int = 5,
    *,
    seeds: int | Iterable[int] = 4,
    metrics: Sequence[str | Callable[[Result], float]] = DEFAULT_METRICS,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Progress = False,
    journal: str | Path | None = None,
) -> Sweep:
    """Runs the current configuration, then varies each parameter alone across its range.

    `points`: number of values of a numeric parameter, including its ends, >= 2; a choice takes
    every option.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
    >>> space = {"workload.requests_per_s": (5, 20)}
    >>> sweep = spillway.study.one_at_a_time(simulation, space, 3, metrics=["request_throughput"])
    >>> [row.name for row in sweep.rows[1:]]
    ['workload.requests_per_s = 5', 'workload.requests_per_s = 10', 'workload.requests_per_s = 20']
    """
    plan = plan_one_at_a_time(simulation, space, points, seeds=seeds)
    return run_plan(
        plan, seeds, metrics, threads=threads, executor=executor, progress=progress, journal=journal
    )


def plan_one_at_a_time(
    simulation: loading.Configuration,
    space: Space | Mapping[str, Any],
    points: int = 5,
    *,
    seeds: int | Iterable[int] = 4,
) -> list[Planned]:
    """The configurations of `one_at_a_time`."""
    if points < 2:
        raise ValueError(f"points = {points}: must be >= 2 (the ends of the range)")
    simulation = loading.as_simulation(simulation)
    bound = as_space(space).bind(simulation)
    num_values = sum(points if known.is_numeric else len(known.options) for known in bound)
    check_runs("one_at_a_time", 1 + num_values, len(as_seeds(seeds)))
    plan: list[Planned] = [("current", {}, simulation)]
    shares = [i / (points - 1) for i in range(points)]
    for parameter in bound:
        opening = {} if parameter.opens_with is None else dict([parameter.opens_with])
        for value in dict.fromkeys(parameter.values(shares)):
            settings = {**opening, parameter.name: value}
            point = bound.complete(bound.current() | settings)
            plan.append((formatting.point(settings), settings, _valid(bound.apply, point)))
    return plan


def isolation(
    simulation: loading.Configuration,
    components: Mapping[str, Mapping[str, Any] | Simulation],
    *,
    seeds: int | Iterable[int] = 4,
    metrics: Sequence[str | Callable[[Result], float]] = DEFAULT_METRICS,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Progress = False,
    journal: str | Path | None = None,
) -> Sweep:
    """Runs named configurations side by side: each component alone, and with the others.

    `simulation` has none of the components and is the row `base`. `components`: by name, the
    changes that add one, as for `Simulation.with_`, or a whole simulation. If all are changes and
    there are several, none of which sets what another sets, the rows `all` and, of three or more,
    `all but …` follow.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
    >>> components = {"limit": {"gateway.limit": {"kind": "fixed", "max_in_flight": 4}},
    ...               "routing": {"router": "least_loaded"}}
    >>> sweep = spillway.study.isolation(simulation, components, metrics=["request_throughput"])
    >>> [row.name for row in sweep.rows]
    ['base', 'limit', 'routing', 'all']
    """
    plan = plan_isolation(simulation, components, seeds=seeds)
    return run_plan(
        plan, seeds, metrics, threads=threads, executor=executor, progress=progress, journal=journal
    )


def plan_isolation(
    simulation: loading.Configuration,
    components: Mapping[str, Mapping[str, Any] | Simulation],
    *,
    seeds: int | Iterable[int] = 4,
) -> list[Planned]:
    """The configurations of `isolation`."""
    simulation = loading.as_simulation(simulation)
    plan: list[Planned] = [("base", {}, simulation)]
    for name, component in components.items():
        if isinstance(component, Simulation):
            plan.append((name, {}, component))
        else:
            plan.append((name, dict(component), _valid(simulation.with_, dict(component))))
    changes = {
        name: component for name, component in components.items() if isinstance(component, Mapping)
    }
    touched = [path for component in changes.values() for path in component]
    if len(changes) == len(components) > 1 and len(set(touched)) == len(touched):
        for left_out in (None, *changes) if len(changes) > 2 else (None,):
            parts = [component for name, component in changes.items() if name != left_out]
            together = {path: value for part in parts for path, value in part.items()}
            title = "all" if left_out is None else f"all but {left_out}"
            plan.append((title, together, _valid(simulation.with_, together)))
    check_runs("isolation", len(plan), len(as_seeds(seeds)))
    return plan


def run_plan(
    plan: Sequence[Planned],
    seeds: int | Iterable[int],
    metrics: Sequence[str | Callable[[Result], float]],
    *,
    progress: Progress,
    **options: Any,
) -> Sweep:
    """Runs a plan; `options` are those of the `Evaluator`."""
    seed_list = as_seeds(seeds)
    valid = [planned for _, _, planned in plan if isinstance(planned, Simulation)]
    is_default = metrics is DEFAULT_METRICS
    noted = [Noted(as_metric(metric), needs_targets=not is_default) for metric in metrics]
    with reporting(progress, "runs") as report:
        evaluator = Evaluator(noted, report=report, is_judging=True, **options)
        measured = iter(evaluator.measure_all(valid, seed_list))
    rows = tuple(
        Row(name=name, settings=settings, failure=str(planned))
        if isinstance(planned, ConfigError)
        else Row(**vars(next(measured)), name=name, settings=settings)
        for name, settings, planned in plan
    )
    return Sweep(
        rows,
        tuple(metric.name for metric in noted),
        seed_list,
        tuple(planned if isinstance(planned, Simulation) else None for _, _, planned in plan),
    )


def _valid(
    make: Callable[[dict[str, Any]], Simulation], at: dict[str, Any]
) -> Simulation | ConfigError:
    try:
        return make(at)
    except ConfigError as error:
        return error
