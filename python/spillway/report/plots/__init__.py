"""Results as matplotlib figures (extra `plot`).

Every function draws into the given axes or else into a new figure, and returns those axes or that
figure; the caller shows or saves it. Every figure states its population. Replications under several
seeds (`Results`) are pooled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.data.replications import Replications
from spillway.report.plots.across_runs import heat_map, intervals, sweep, sweeps
from spillway.report.plots.admission import admission_by_length, admitted_tokens, outcomes_over_time
from spillway.report.plots.causes import causes
from spillway.report.plots.counted_runs import Grouping
from spillway.report.plots.gateway_panels import gateway
from spillway.report.plots.latency import METRICS, Population, latency_cdf
from spillway.report.plots.over_time import over_time
from spillway.report.plots.service import instances, placement, requests
from spillway.report.style import STYLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from spillway._core.gateway import TokenBucket
    from spillway.data.result_data import ResultData

__all__ = [
    "METRICS",
    "STYLES",
    "Grouping",
    "Plots",
    "Population",
    "admission_by_length",
    "admitted_tokens",
    "gateway",
    "heat_map",
    "instances",
    "intervals",
    "latency_cdf",
    "outcomes_over_time",
    "over_time",
    "placement",
    "requests",
    "sweep",
    "sweeps",
]


class Plots:
    """The figures of one result, or of replications, as `result.plot`.

    Of replications, distributions pool the requests and rates are averaged; figures of single
    requests, of instances and of the gateway over time show the first run.
    """

    def __init__(self, result: ResultData | Replications[Any]) -> None:
        self._result = result

    @property
    def _run(self) -> ResultData:
        if isinstance(self._result, Replications):
            first: ResultData = self._result[0]
            return first
        return self._result

    def latency_cdf(
        self,
        metric: str = "ttft_s",
        by: Grouping = "slo_class",
        *,
        population: Population = "measured",
        log: bool = False,
        ax: Axes | None = None,
    ) -> Axes:
        """Distribution of a latency per class or tenant; see `plots.latency_cdf`."""
        return latency_cdf(self._result, metric, by, population=population, log=log, ax=ax)

    def outcomes_over_time(
        self,
        by: Grouping = "tenant",
        *,
        bins: int | Sequence[float] = 60,
        figure: Figure | SubFigure | None = None,
    ) -> Figure | SubFigure:
        """Outcomes by time of arrival; see `plots.outcomes_over_time`."""
        return outcomes_over_time(self._result, by, bins=bins, figure=figure)

    def over_time(
        self,
        quantity: str = "goodput",
        by: Grouping | None = None,
        *,
        bins: int | Sequence[float] = 60,
        log: bool = False,
        ax: Axes | None = None,
    ) -> Axes:
        """One quantity over time, e.g. goodput or permits; see `plots.over_time`."""
        return over_time(self._result, quantity, by, bins=bins, log=log, ax=ax)

    def admitted_tokens(self, bucket: TokenBucket | None = None, *, ax: Axes | None = None) -> Axes:
        """Cumulative prompt tokens offered and admitted; see `plots.admitted_tokens`."""
        return admitted_tokens(self._run, bucket, ax=ax)

    def admission_by_length(
        self, *, bins: int = 20, label: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """Share of admitted requests by prompt length; see `plots.admission_by_length`."""
        return admission_by_length(self._result, bins=bins, label=label, ax=ax)

    def causes(self, *, ax: Axes | None = None) -> Axes:
        """Mean latency by cause, of all requests, of classes and tenants, and of the slowest 1%.

        `Result.time_by_cause` says what each cause is; it repeats the run.
        """
        run: Any = self._run
        found = run.time_by_cause()
        return causes({**found.groups(), "slowest 1%": found.mean_s(found.slowest())}, ax=ax)

    def requests(
        self, start_s: float = 0, end_s: float | None = None, *, ax: Axes | None = None
    ) -> Axes:
        """A bar per request of a span of time, by phase; see `plots.requests`."""
        return requests(self._run, start_s, end_s, ax=ax)

    def instances(
        self, *, bins: int | Sequence[float] = 120, figure: Figure | SubFigure | None = None
    ) -> Figure | SubFigure:
        """The requests in each instance over time; see `plots.instances`."""
        return instances(self._run, bins=bins, figure=figure)

    def placement(self, by: Grouping = "tenant", *, ax: Axes | None = None) -> Axes:
        """Which instance served the requests of each tenant; see `plots.placement`."""
        return placement(self._result, by, ax=ax)

    def gateway(
        self, *, step_s: float | None = None, figure: Figure | SubFigure | None = None
    ) -> Figure | SubFigure:
        """Demand, limit, signals and engines over time; see `plots.gateway`."""
        return gateway(self._run, step_s=step_s, figure=figure)
