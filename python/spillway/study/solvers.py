"""One number at a time: the highest rate, or the fewest instances, that keep the promises."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import TYPE_CHECKING, Any

from spillway._config import config_error
from spillway._core.sim import UsageError
from spillway._core.workload import Synthetic
from spillway.report import tables
from spillway.study.evaluation import Evaluator, as_seeds
from spillway.study.feasibility import offered_per_s
from spillway.study.objective import Constraint, as_constraints, rewards_shedding
from spillway.study.records import mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from spillway._core.cluster import Simulation
    from spillway.study.evaluation import Measured


@dataclasses.dataclass(frozen=True)
class Probe:
    """One value that was tried.

    `violations` are the means over the seeds of the signed violations, in shares of the bounds;
    `smoothed` the largest of them after smoothing, <= 0 where the promises are kept; `figures` the
    means of the constrained figures. `failure` tells why there are none.
    """

    value: float
    violations: tuple[float, ...]
    figures: tuple[float, ...]
    smoothed: float
    failure: str | None = None

    @property
    def worst(self) -> float:
        """The largest violation; infinite for a failure."""
        return max(self.violations, default=math.inf)


@dataclasses.dataclass(frozen=True, repr=False)
class Solution:
    """Between which values the promises begin to be broken.

    `feasible` is the hardest value that keeps them: the highest rate, or the fewest instances;
    `infeasible` the easiest that does not; None if there is no such within the bounds that were
    searched. `first_breach` names the promise that gives way there and its figure. `simulation` is
    the configuration at `feasible`.
    """

    quantity: str
    unit: str
    feasible: float | None
    infeasible: float | None
    first_breach: str | None
    probes: tuple[Probe, ...]
    simulation: Simulation | None

    @property
    def feasible_max(self) -> float | None:
        """`feasible` by its name where larger values are harder, as rates are."""
        return self.feasible

    @property
    def infeasible_min(self) -> float | None:
        """`infeasible` by its name where larger values are harder, as rates are."""
        return self.infeasible

    def to_dict(self) -> dict[str, Any]:
        """The content of solution.json."""
        return {
            "quantity": self.quantity,
            "unit": self.unit,
            "feasible": self.feasible,
            "infeasible": self.infeasible,
            "first_breach": self.first_breach,
            "probes": [dataclasses.asdict(one) for one in self.probes],
        }

    def __repr__(self) -> str:
        rows = [[f"{self.quantity} ({self.unit})", "largest violation", "smoothed"]]
        for one in self.probes:
            shown = one.failure or f"{one.worst:+.2%}"
            rows.append([f"{one.value:.6g}", shown, f"{one.smoothed:+.2%}"])
        ends = [
            f"kept at {tables.number(self.feasible)}",
            f"broken at {tables.number(self.infeasible)}",
        ]
        breach = f": {self.first_breach}" if self.first_breach else ""
        return f"{tables.table(rows)}\n\n{', '.join(ends)}{breach}"


def max_rate_under_slo(
    simulation: Simulation,
    slo: Mapping[str, Any] | Sequence[Constraint],
    *,
    low: float | None = None,
    high: float | None = None,
    tolerance: float = 0.05,
    seeds: int | Iterable[int] = 4,
    threads: int | None = None,
    executor: Executor | None = None,
) -> Solution:
    """The highest rate of requests at which the promises hold in the mean over the seeds.

    From the present rate up or down by factors of two until the promises break and hold, then by
    bisection. All clients' rates change by the same factor. Neighbouring rates meet the same
    requests, only closer together, and what noise is left is smoothed: violations cannot fall as
    the rate grows.

    Parameters
    ----------
    simulation
        With a synthetic workload.
    slo
        The promises, e.g. {"p99_ttft_ms[critical]": "<=200"}.
    low, high
        Rates of all clients together not to go beyond, in requests/s; None: a thousandth and a
        thousand times the present one.
    tolerance
        How close the two ends come to each other, as a share of the rate, 0 < tolerance < 1.
    seeds, threads, executor
        As for a study.

    Raises
    ------
    ConfigError
        If the workload is no synthetic one.
    """
    rate = _rate(simulation)
    low, high = low or rate / 1000, high or rate * 1000
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance = {tolerance}: must be > 0 and < 1")
    if not 0 < low < high:
        raise ValueError(f"low = {low}, high = {high}: must be 0 < low < high")
    prober = _Prober(
        lambda value: _with_rate(simulation, value / rate), slo, seeds, threads, executor
    )
    value = min(max(rate, low), high)
    prober.probe(value)
    while prober.feasible is None and value > low:
        value = max(value / 2, low)
        prober.probe(value)
    value = max(prober.values)
    while prober.infeasible is None and value < high:
        value = min(value * 2, high)
        prober.probe(value)
    while prober.gap_is_more_than(tolerance):
        prober.probe(math.sqrt(prober.feasible * prober.infeasible))  # type: ignore[operator]
    return prober.solution("rate", "requests/s")


def min_instances_for_rate(
    simulation: Simulation,
    slo: Mapping[str, Any] | Sequence[Constraint],
    rate_per_s: float | None = None,
    *,
    group: int = 0,
    most: int = 1024,
    seeds: int | Iterable[int] = 4,
    threads: int | None = None,
    executor: Executor | None = None,
) -> Solution:
    """The fewest instances with which the promises hold in the mean over the seeds.

    By doubling from one on, then by bisection. `feasible` of the solution is that number and
    `infeasible` the largest that does not do; violations cannot grow with the number.

    Parameters
    ----------
    simulation
        What the instances are counted in.
    slo
        The promises, as for `max_rate_under_slo`.
    rate_per_s
        Rate of all clients together to provide for, in requests/s; None: the present one.
    group
        Which group of `instances` grows.
    most
        Give up beyond so many.
    seeds, threads, executor
        As for a study.
    """
    if rate_per_s is not None:
        simulation = _with_rate(simulation, rate_per_s / _rate(simulation))
    # More instances make it easier, so the negative count is what gets harder as it grows.
    prober = _Prober(
        lambda value: simulation.with_({f"instances[{group}].count": round(-value)}),
        slo,
        seeds,
        threads,
        executor,
    )
    count = 1
    prober.probe(-count)
    while prober.feasible is None and count < most:
        count = min(2 * count, most)
        prober.probe(-count)
    while (
        prober.feasible is not None
        and prober.infeasible is not None
        and prober.infeasible - prober.feasible > 1
    ):
        prober.probe(math.ceil((prober.feasible + prober.infeasible) / 2))
    return prober.solution("count", "instances", sign=-1)


class _Prober:
    """Runs values, and keeps what is known of them; larger values are harder."""

    def __init__(
        self,
        make: Callable[[float], Simulation],
        slo: Mapping[str, Any] | Sequence[Constraint],
        seeds: int | Iterable[int],
        threads: int | None,
        executor: Executor | None,
    ) -> None:
        self._constraints = as_constraints(slo)
        if not self._constraints:
            raise UsageError("slo: name at least one promise")
        if rewards_shedding((), self._constraints):
            warnings.warn(
                "only latencies of requests that get through are promised, and refusing most keeps "
                "them; add a promise such as {'shed': '<=0.01'}",
                RuntimeWarning,
                stacklevel=4,
            )
        self._make = make
        self._seeds = as_seeds(seeds)
        self._evaluator = Evaluator(
            [one.metric for one in self._constraints], threads=threads, executor=executor
        )
        self._probes: dict[float, Probe] = {}

    @property
    def values(self) -> list[float]:
        return sorted(self._probes)

    def probe(self, value: float) -> None:
        if value not in self._probes:
            found = self._evaluator.measure_all([self._make(value)], self._seeds)[0]
            self._probes[value] = self._probed(value, found)
        ordered = [self._probes[one] for one in self.values]
        for one, level in zip(ordered, isotonic([p.worst for p in ordered]), strict=True):
            self._probes[one.value] = dataclasses.replace(one, smoothed=level)

    def _probed(self, value: float, found: Measured) -> Probe:
        if found.failure is not None:
            # Nothing got through, say: no promise is kept.
            return Probe(value, (), (), math.inf, found.failure)
        violations = tuple(
            mean([constraint.violation(figure) for figure in row])
            for constraint, row in zip(self._constraints, found.values, strict=True)
        )
        return Probe(value, violations, tuple(mean(row) for row in found.values), math.nan)

    @property
    def feasible(self) -> float | None:
        return max((v for v, one in self._probes.items() if one.smoothed <= 0), default=None)

    @property
    def infeasible(self) -> float | None:
        return min((v for v, one in self._probes.items() if one.smoothed > 0), default=None)

    def gap_is_more_than(self, share: float) -> bool:
        if self.feasible is None or self.infeasible is None:
            return False
        return self.infeasible > self.feasible * (1 + share)

    def solution(self, quantity: str, unit: str, sign: int = 1) -> Solution:
        probes = [self._probes[value] for value in self.values]
        feasible, infeasible = self.feasible, self.infeasible
        return Solution(
            quantity,
            unit,
            None if feasible is None else sign * feasible,
            None if infeasible is None else sign * infeasible,
            None if infeasible is None else self._breach(self._probes[infeasible]),
            tuple(dataclasses.replace(one, value=sign * one.value) for one in probes),
            None if feasible is None else self._make(feasible),
        )

    def _breach(self, probe: Probe) -> str:
        if probe.failure is not None:
            return probe.failure
        worst = probe.violations.index(probe.worst)
        return f"{self._constraints[worst]}, but it is {probe.figures[worst]:.4g}"


def isotonic(values: Sequence[float]) -> list[float]:
    """The non-decreasing sequence with the least squared distance (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        blocks.append((value, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, n), (b, m) = blocks[-2:]
            blocks[-2:] = [((a * n + b * m) / (n + m), n + m)]
    return [level for level, n in blocks for _ in range(n)]


def _rate(simulation: Simulation) -> float:
    if not isinstance(simulation.workload, Synthetic):
        allowed = "must be synthetic: the requests of a trace come when they come"
        raise config_error([("workload", simulation.workload.kind, allowed)])
    return offered_per_s(simulation)


def _with_rate(simulation: Simulation, factor: float) -> Simulation:
    """The simulation with the rates of all clients times `factor`."""
    workload = simulation.workload
    assert isinstance(workload, Synthetic)
    clients = tuple(
        one
        if one.requests_per_s is None
        else one.replace(requests_per_s=one.requests_per_s * factor)
        for one in workload.clients
    )
    return simulation.replace(
        workload=workload.replace(requests_per_s=workload.requests_per_s * factor, clients=clients)
    )
