"""Figures of a result, and the objectives and constraints that use them."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from spillway._core.sim import ConfigError
from spillway.config.classes import config_error
from spillway.data import bounds
from spillway.data.figures import FIGURES, SHED, populations
from spillway.study.checks import mapping, number

if TYPE_CHECKING:
    from spillway.data.figures import Figures
    from spillway.result import Result


Direction = Literal["maximize", "minimize"]

_EXPRESSION = re.compile(r"^\s*(?P<figure>[a-z][a-z0-9_]*)\s*(?:\[(?P<selector>[^\[\]]+)\])?\s*$")
_SHORT = {"jain": "jain_tenant"}
_DIRECTIONS: dict[str, Direction] = {"higher": "maximize", "lower": "minimize"}


class NoFigureError(ValueError):
    """A figure has no value, because its population is empty."""


class Metric(Protocol):
    """One named number per run."""

    @property
    def name(self) -> str:
        """The name in tables."""

    def of(self, result: Result) -> float:
        """The value; NoFigureError if there is none."""


@dataclass(frozen=True)
class Figure:
    """A figure of the summary, of all requests or of one class or tenant.

    `text` is a key of `Result.summary()`, as `goodput` or `p99_ttft_ms`, or `shed`, the share of
    the offered requests that were rejected, expired or evicted. A selector may follow: `[critical]`
    or `[gold]` is the class or the tenant of that name, `[class=…]` and `[tenant=…]` distinguish
    them if both have the name, `[worst class]` and `[worst tenant]` are those with the worst value.
    `jain[tenant]` is `jain_tenant`.
    """

    text: str

    def __post_init__(self) -> None:
        if not _EXPRESSION.match(self.text):
            allowed = "must be a figure, optionally with a selector, e.g. p99_ttft_ms[critical]"
            raise config_error([("metric", repr(self.text), allowed)])

    @property
    def name(self) -> str:
        """The name in tables: its text without spaces."""
        figure, selector = self.parts
        return figure if selector is None else f"{figure}[{selector}]"

    @property
    def parts(self) -> tuple[str, str | None]:
        """The figure and the selector."""
        found = _EXPRESSION.match(self.text)
        assert found is not None
        selector = found["selector"]
        return found["figure"], None if selector is None else " ".join(selector.split())

    @property
    def direction(self) -> Direction | None:
        """The direction in which the figure is better, if that is obvious.

        Raises ConfigError if there is no such figure.
        """
        figure, _ = self.parts
        if figure == "shed":
            return "minimize"
        figure = _SHORT.get(figure, figure)
        if figure not in FIGURES:
            raise self._no_such(figure, FIGURES)
        return _DIRECTIONS.get(FIGURES[figure].better)

    def of(self, result: Result) -> float:
        """The value in one run.

        Raises NoFigureError if it has no population, ConfigError if there is no such figure, class
        or tenant, or if it is the goodput of requests without targets.
        """
        figure, selector = self.parts
        if (figure, selector) == ("jain", "tenant"):
            selector = None
        figure = _SHORT.get(figure, figure)
        if selector is None:
            return self._value(figure, result.summary())
        if selector in ("worst class", "worst tenant"):
            return self._worst(figure, result, selector)
        return self._value(figure, self._population(result, selector))

    def _worst(self, figure: str, result: Result, selector: str) -> float:
        groups = result.by_class() if selector == "worst class" else result.by_tenant()
        populations = [group for group in groups.values() if group["offered"]]
        values = [self._value(figure, group) for group in populations]
        if not values:
            raise NoFigureError(f"{self.name} has no value: no requests arrived")
        return min(values) if self.direction == "maximize" else max(values)

    def _population(self, result: Result, selector: str) -> Figures:
        of, _, name = selector.rpartition("=")
        groups = {"class": result.by_class(), "tenant": result.by_tenant()}
        if of and of not in groups:
            allowed = "must be a class, a tenant, worst class or worst tenant"
            raise self._unknown(f"[{selector}]: {allowed}")
        name = name.strip()
        named = populations(selector, groups)
        if len(named) == 1:
            return named[0]
        if named:
            raise self._unknown(f"a class and a tenant; use [class={name}] or [tenant={name}]")
        known = ", ".join([*groups["class"], *groups["tenant"]])
        raise self._unknown(f"unknown class or tenant {name!r}; one of {known}")

    def _value(self, figure: str, figures: Figures) -> float:
        if figure == "shed":
            if not figures["offered"]:
                raise NoFigureError(f"{self.name} has no value: no requests arrived")
            lost = sum(figures[key] or 0 for key in SHED)
            return float(lost / figures["offered"])
        if figure not in figures:
            raise self._no_such(figure, figures)
        value = figures[figure]
        if value is None or not math.isfinite(value):
            if FIGURES[figure].needs_targets and figures["offered"]:
                raise self._unknown(
                    "has no value: no class of these requests has a target; set one, e.g. "
                    "slo_classes[standard].target_ttft_s"
                )
            raise NoFigureError(f"{self.name} has no value: no request of its population has one")
        return float(value)

    def _no_such(self, figure: str, known: Mapping[str, object]) -> Exception:
        near = difflib.get_close_matches(figure, [*known, "shed", "jain"], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return self._unknown(f"unknown figure{hint}")

    def _unknown(self, problem: str) -> Exception:
        return config_error([("metric", repr(self.text), problem)])


@dataclass(frozen=True)
class WeightedSum:
    """A sum of figures, each times its weight."""

    terms: tuple[tuple[Figure, float], ...]

    @property
    def name(self) -> str:
        """The name in tables."""
        parts = [f"{weight:+g} {figure.name}" for figure, weight in self.terms]
        return " ".join(parts).removeprefix("+").replace("1 ", "", 1) if parts else ""

    def of(self, result: Result) -> float:
        """The value; NoFigureError if one of the figures has none."""
        return math.fsum(weight * figure.of(result) for figure, weight in self.terms)


@dataclass(frozen=True)
class Custom:
    """A function of a result."""

    function: Callable[[Result], float]
    name: str

    def of(self, result: Result) -> float:
        """The return value of the function; NoFigureError unless it is a finite number."""
        value = self.function(result)
        if value is None or not math.isfinite(value):
            raise NoFigureError(f"{self.name} returned {value!r}")
        return float(value)


class Noted:
    """A metric whose value is optional: NaN if it has none.

    `needs_targets`: whether it is an error if no class has the targets of the figure.
    """

    def __init__(self, metric: Metric, *, needs_targets: bool = True) -> None:
        self.metric = metric
        self.name = metric.name
        self.needs_targets = needs_targets

    def of(self, result: Result) -> float:
        """The value, or NaN."""
        missing = NoFigureError if self.needs_targets else (NoFigureError, ConfigError)
        try:
            return self.metric.of(result)
        except missing:
            return math.nan


class Objective:
    """A metric to maximize or minimize.

    Parameters
    ----------
    metric
        A figure (`"goodput"`, `"p99_ttft_ms[critical]"`, see `Figure`), a mapping of figures to
        weights (a weighted sum), or a function of a `Result`. With an executor of processes the
        function must be importable.
    direction
        "maximize" or "minimize"; None: the obvious direction of the figure, e.g. maximize for
        goodput and minimize for latencies.
    name
        Its name in tables.
    """

    def __init__(
        self,
        metric: str | Mapping[str, float] | Callable[[Result], float],
        direction: Direction | None = None,
        name: str | None = None,
    ) -> None:
        self.metric = as_metric(metric, name)
        self.direction: Direction = _checked_direction(direction, self.metric)

    @property
    def name(self) -> str:
        """The name in tables."""
        return self.metric.name

    @property
    def sign(self) -> float:
        """1 if larger is better, -1 if smaller is."""
        return 1.0 if self.direction == "maximize" else -1.0

    def to_dict(self) -> dict[str, Any]:
        """The objective in the form of a study file; only the name of a function."""
        return {self.direction: _written(self.metric)}

    def __repr__(self) -> str:
        return f"Objective({_written(self.metric)!r}, {self.direction!r})"


@dataclass(frozen=True)
class Constraint:
    """A figure with a bound that must hold in the mean over the seeds."""

    metric: Metric
    relation: Literal["<=", ">="]
    bound: float

    @property
    def name(self) -> str:
        """The name of the figure in tables."""
        return self.metric.name

    def violation(self, value: float) -> float:
        """The excess of the value over the bound, as a share of the bound; <= 0 if it holds."""
        beyond = value - self.bound if self.relation == "<=" else self.bound - value
        return beyond / (abs(self.bound) or 1.0)

    def __str__(self) -> str:
        return f"{self.name} {self.relation} {self.bound:g}"


def as_metric(
    metric: str | Mapping[str, float] | Callable[[Result], float] | Metric, name: str | None = None
) -> Metric:
    """A figure, a weighted sum or a function as a metric."""
    if isinstance(metric, Figure | WeightedSum | Custom):
        return metric
    if isinstance(metric, str):
        return Figure(metric)
    if isinstance(metric, Mapping):
        if not metric:
            raise config_error([("objective", "{}", "must have at least one figure")])
        mapping(number())("objective", metric)
        return WeightedSum(tuple((Figure(text), float(w)) for text, w in metric.items()))
    if callable(metric):
        own_name = getattr(metric, "__name__", type(metric).__name__)
        return Custom(metric, name or str(own_name))
    allowed = "must be a figure, a mapping of figures to weights, or a function of a result"
    raise config_error([("objective", repr(metric), allowed)])


def identity(metric: Metric) -> str:
    """What identifies a metric of figures. Raises ConfigError for a function."""
    if isinstance(metric, Noted):
        optional = "NaN" if metric.needs_targets else "NaN without targets"
        return f"{identity(metric.metric)} or {optional}"
    if isinstance(metric, Figure | WeightedSum):
        return repr(metric)
    allowed = "must be a figure where a journal keeps the values: a function may have changed"
    raise config_error([("metrics", repr(metric.name), allowed)])


def check_figures(metrics: Iterable[Metric]) -> None:
    """Raises ConfigError for a figure that no summary has."""
    for metric in metrics:
        for figure in figures_of(metric):
            _ = figure.direction


def as_objectives(objective: Any) -> tuple[Objective, ...]:
    """One objective or several, in any of their forms."""
    if isinstance(objective, Sequence) and not isinstance(objective, str):
        if not objective:
            raise config_error([("objective", "[]", "must name at least one")])
        return tuple(member for item in objective for member in as_objectives(item))
    return (objective if isinstance(objective, Objective) else Objective(objective),)


def as_constraints(
    constraints: str | Mapping[str, Any] | Sequence[str | Constraint] | None,
    where: str = "constraints",
) -> list[Constraint]:
    """Constraints in any form: "p99_ttft_ms[critical] <= 200", a list of such, or by figure.

    By figure: {"p99_ttft_ms[critical]": "<=200"}. `spillway.data.bounds` has the form of the text,
    everywhere. Raises ConfigError about `where` for another form.
    """
    if constraints is None:
        return []
    if isinstance(constraints, str):
        constraints = [constraints]
    written: list[tuple[str, str | Constraint]]
    if isinstance(constraints, Mapping):
        written = [(f"{where}.{key}", f"{key} {bound}") for key, bound in constraints.items()]
    elif len(constraints) == 1:
        written = [(where, constraints[0])]
    else:
        written = [(f"{where}[{i}]", given) for i, given in enumerate(constraints)]
    found: list[Constraint] = []
    for place, given in written:
        if isinstance(given, Constraint):
            found.append(given)
        else:
            for figure, relation, limit in bounds.parse(given, place):
                found.append(Constraint(Figure(figure), relation, limit))
    return found


def rewards_shedding(objectives: Sequence[Objective], constraints: Sequence[Constraint]) -> bool:
    """Whether only latencies of served requests count, so that rejecting most is best."""
    metrics = [known.metric for known in objectives] + [known.metric for known in constraints]
    figures = [figure for metric in metrics for figure in figures_of(metric)]
    latencies = {name for name, figure in FIGURES.items() if figure.unit == "ms"}
    return bool(figures) and all(figure.parts[0] in latencies for figure in figures)


def figures_of(metric: Metric) -> list[Figure]:
    """The figures of a metric; none of a function."""
    if isinstance(metric, Figure):
        return [metric]
    if isinstance(metric, WeightedSum):
        return [figure for figure, _ in metric.terms]
    return []


def _checked_direction(direction: str | None, metric: Metric) -> Direction:
    for known in _DIRECTIONS.values():
        if direction == known:
            return known
    if direction is not None:
        raise config_error([("direction", repr(direction), "must be 'maximize' or 'minimize'")])
    if isinstance(metric, Figure) and metric.direction:
        return metric.direction
    if isinstance(metric, WeightedSum):
        wanted = {
            None if figure.direction is None else (figure.direction == "maximize") == (weight > 0)
            for figure, weight in metric.terms
        }
        if wanted in ({True}, {False}):
            return "maximize" if wanted == {True} else "minimize"
    allowed = "must state a direction: Objective(…, 'maximize') or Objective(…, 'minimize')"
    raise config_error([("objective", repr(metric.name), allowed)])


def _written(metric: Metric) -> Any:
    if isinstance(metric, Figure):
        return metric.text
    if isinstance(metric, WeightedSum):
        return {figure.text: weight for figure, weight in metric.terms}
    return metric.name
