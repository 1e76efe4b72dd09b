"""One number at a time: the highest rate, or the fewest instances, that keep the promises."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from spillway import loading
from spillway._core.sim import UsageError
from spillway._core.workload import Synthetic
from spillway.analysis import stationarity
from spillway.config import text
from spillway.config.classes import config_error
from spillway.config.messages import note
from spillway.config.randomness import note_on_copies
from spillway.study.evaluation import Evaluator, as_seeds
from spillway.study.feasibility import offered_per_s
from spillway.study.objective import Constraint, as_constraints, rewards_shedding
from spillway.study.records import mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from spillway._core.cluster import Simulation
    from spillway.analysis.stationarity import Growth
    from spillway.result import Result
    from spillway.study.evaluation import Measured

__all__ = [
    "MAX_REQUESTS",
    "Probe",
    "Solution",
    "isotonic",
    "max_rate_under_slo",
    "min_instances_for_rate",
]


def __dir__() -> list[str]:
    return __all__


_DEFAULT_REQUESTS = 1000
"""Of a workload that states neither a number nor a duration."""
MAX_REQUESTS = 100_000
"""How long a run may get, in requests."""


@dataclasses.dataclass(frozen=True)
class Probe:
    """One value that was tried.

    `violations` are the means over the seeds of the signed violations, in shares of the bounds;
    `smoothed` the largest of them after smoothing, <= 0 where the promises are kept; `figures` the
    means of the constrained figures. `num_requests`: of each run, as far as the workload tells;
    `growth` of the number of requests in the system, None if unknown. `is_final`: whether a longer
    run could say nothing else, or must not be made; `is_undecided`: whether the promises hold in
    the longest run, but the system is filling up. `failure` tells why there are no figures.
    """

    value: float
    violations: tuple[float, ...]
    figures: tuple[float, ...]
    smoothed: float
    num_requests: int
    growth: Growth | None
    is_final: bool
    is_undecided: bool
    failure: str | None = None

    @property
    def worst(self) -> float:
        """The largest violation; infinite for a failure."""
        return max(self.violations, default=math.inf)

    @property
    def is_kept(self) -> bool:
        """Whether the promises hold, and nothing speaks against their holding for longer."""
        return self.smoothed <= 0 and not self.is_undecided


@dataclasses.dataclass(frozen=True, repr=False)
class Solution:
    """Between which values the promises begin to be broken.

    `feasible` is the hardest value at which they are shown to be kept: the highest rate, or the
    fewest instances; `infeasible` the easiest at which they are shown to be broken; None if there
    is no such within the bounds that were searched. `undecided` are values between them at which
    the promises hold in the longest run, while the number of requests in the system still grows.
    `first_breach` names the promise that is broken first and its figure. `simulation` is the
    configuration at `feasible`, with a workload as long as it was given.
    """

    quantity: str
    unit: str
    feasible: float | None
    infeasible: float | None
    undecided: tuple[float, ...]
    first_breach: str | None
    probes: tuple[Probe, ...]
    simulation: Simulation | None
    notes: tuple[str, ...]

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
            "undecided": list(self.undecided),
            "first_breach": self.first_breach,
            "notes": list(self.notes),
            "probes": [dataclasses.asdict(one) for one in self.probes],
        }

    def __repr__(self) -> str:
        header = f"{self.quantity} ({self.unit})"
        rows = [[header, "largest violation", "smoothed", "requests", "backlog grows by"]]
        for one in self.probes:
            shown = one.failure or f"{one.worst:+.2%}"
            grows = "-" if one.growth is None else f"{one.growth.mean:+.2%}"
            if one.growth is not None and not one.growth.is_growing:
                grows = f"({grows})"
            requests = text.number(one.num_requests)
            rows.append([f"{one.value:.6g}", shown, f"{one.smoothed:+.2%}", requests, grows])
        ends = [f"kept at {text.number(self.feasible)}"]
        if self.undecided:
            ends.append(f"undecided at {', '.join(text.number(v) for v in self.undecided)}")
        ends.append(f"broken at {text.number(self.infeasible)}")
        breach = f": {self.first_breach}" if self.first_breach else ""
        blocks = [text.table(rows), f"{', '.join(ends)}{breach}"]
        if self.notes:
            blocks.append("\n".join(f"note: {note}" for note in self.notes))
        return "\n\n".join(blocks)


def max_rate_under_slo(
    simulation: loading.Configuration,
    slo: Mapping[str, Any] | Sequence[Constraint],
    *,
    low: float | None = None,
    high: float | None = None,
    tolerance: float = 0.05,
    max_requests: int = MAX_REQUESTS,
    seeds: int | Iterable[int] = 4,
    threads: int | None = None,
    executor: Executor | None = None,
) -> Solution:
    """The highest rate of requests at which the promises hold in the mean over the seeds.

    From the present rate up or down by factors of two until the promises break and hold, then by
    bisection. All clients' rates change by the same factor. Neighboring rates meet the same
    requests, only closer together, and what noise is left is smoothed: violations cannot fall as
    the rate grows.

    A short run keeps promises that a longer one breaks: above its capacity a fleet fills up as
    slowly as one likes. So both ends of the answer are run again with `max_requests`, the search
    goes on from what these runs show, and a rate counts as kept only if the number of requests in
    the system does not grow over them (see `spillway.analysis.stationarity`).

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
    max_requests
        How long a run may get, in requests; one that is longer as given is made as it is. A
        workload that ends by itself (clients with a duration_s or num_requests of their own, a
        horizon_s, a fleet with a schedule) is never lengthened, and the notes say so.
    seeds, threads, executor
        As for a study.

    Raises
    ------
    ConfigError
        If the workload is no synthetic one.
    """
    simulation = loading.as_simulation(simulation)
    rate = _rate(simulation)
    low, high = low or rate / 1000, high or rate * 1000
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance = {tolerance}: must be > 0 and < 1")
    if not 0 < low < high:
        raise ValueError(f"low = {low}, high = {high}: must be 0 < low < high")
    prober = _Prober(
        lambda value: _with_rate(simulation, value / rate),
        slo,
        seeds=seeds,
        max_requests=max_requests,
        threads=threads,
        executor=executor,
    )
    prober.probe(min(max(rate, low), high))

    def search() -> None:
        value = min(prober.values)
        while prober.feasible is None and value > low:
            value = max(value / 2, low)
            prober.probe(value)
        value = max(prober.values)
        while prober.too_hard is None and value < high:
            value = min(value * 2, high)
            prober.probe(value)
        while prober.gap_is_more_than(tolerance):
            prober.probe(math.sqrt(prober.feasible * prober.too_hard))  # type: ignore[operator]

    prober.settle(search)
    return prober.solution("rate", "requests/s")


def min_instances_for_rate(
    simulation: loading.Configuration,
    slo: Mapping[str, Any] | Sequence[Constraint],
    rate_per_s: float | None = None,
    *,
    group: int = 0,
    most: int = 1024,
    max_requests: int = MAX_REQUESTS,
    seeds: int | Iterable[int] = 4,
    threads: int | None = None,
    executor: Executor | None = None,
) -> Solution:
    """The fewest instances with which the promises hold in the mean over the seeds.

    By doubling from one on, then by bisection. `feasible` of the solution is that number and
    `infeasible` the largest that does not do; violations cannot grow with the number. Both are run
    again with `max_requests`, as in `max_rate_under_slo`; a trace is never lengthened.

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
    max_requests
        As for `max_rate_under_slo`.
    seeds, threads, executor
        As for a study.
    """
    simulation = loading.as_simulation(simulation)
    if rate_per_s is not None:
        simulation = _with_rate(simulation, rate_per_s / _rate(simulation))
    # More instances make it easier, so the negative count is what gets harder as it grows.
    prober = _Prober(
        lambda value: simulation.with_({f"instances[{group}].count": round(-value)}),
        slo,
        seeds=seeds,
        max_requests=max_requests,
        threads=threads,
        executor=executor,
    )
    prober.probe(-1)

    def search() -> None:
        count = -round(min(prober.values))
        while prober.feasible is None and count < most:
            count = min(2 * count, most)
            prober.probe(-count)
        while (
            prober.feasible is not None
            and prober.too_hard is not None
            and prober.too_hard - prober.feasible > 1
        ):
            prober.probe(math.ceil((prober.feasible + prober.too_hard) / 2))

    prober.settle(search)
    return prober.solution("count", "instances", sign=-1)


@dataclasses.dataclass(frozen=True)
class _Growth:
    """The growth of the number of requests in the system, or its variance, as a metric."""

    name: str
    part: int
    needs_requests: bool = True

    def of(self, result: Result) -> float:
        """NaN if the requests are not kept, or too few."""
        if not result.has_requests:
            return math.nan
        counts = stationarity.backlog(result.requests, result.simulation.warm_up_s)
        return stationarity.of_run(counts)[self.part]


_GROWTH = (_Growth("growth", 0), _Growth("variance of the growth", 1))


class _Prober:
    """Runs values, and keeps what is known of them; larger values are harder."""

    def __init__(
        self,
        make: Callable[[float], Simulation],
        slo: Mapping[str, Any] | Sequence[Constraint],
        *,
        seeds: int | Iterable[int],
        max_requests: int,
        threads: int | None,
        executor: Executor | None,
    ) -> None:
        self._constraints = as_constraints(slo)
        if not self._constraints:
            raise UsageError("slo: name at least one promise")
        if max_requests < 1:
            raise ValueError(f"max_requests = {max_requests}: must be >= 1")
        if rewards_shedding((), self._constraints):
            note(
                "only latencies of requests that get through are promised, and refusing most keeps "
                "them; add a promise such as {'shed': '<=0.01'}",
                RuntimeWarning,
            )
        self._make = make
        self._seeds = as_seeds(seeds)
        self._max_requests = max_requests
        self._evaluator = Evaluator(
            [*(one.metric for one in self._constraints), *_GROWTH],
            threads=threads,
            executor=executor,
        )
        self._probes: dict[float, Probe] = {}
        self._is_thorough = False
        self._is_random = len(self._seeds) == 1

    @property
    def values(self) -> list[float]:
        return sorted(self._probes)

    def probe(self, value: float) -> None:
        if value not in self._probes:
            self._run(value)

    def settle(self, search: Callable[[], None]) -> None:
        """Searches until the longest runs show both ends to be what shorter ones made of them."""
        while True:
            search()
            ends = [one for one in (self.feasible, self.infeasible) if one is not None]
            short = [one for one in ends if not self._probes[one].is_final]
            if not short:
                return
            self._is_thorough = True
            for value in short:
                self._run(value)

    def _run(self, value: float) -> None:
        simulation = self._make(value)
        length = _num_requests(simulation)
        is_final = _end_of(simulation) is not None or length >= self._max_requests
        if self._is_thorough and not is_final:
            simulation = _lengthened(simulation, self._max_requests / length)
            length, is_final = self._max_requests, True
        found = self._evaluator.measure_all([simulation], self._seeds)[0]
        self._is_random |= found.is_replicated
        self._probes[value] = self._probed(value, found, length, is_final)
        ordered = [self._probes[one] for one in self.values]
        for one, level in zip(ordered, isotonic([p.worst for p in ordered]), strict=True):
            self._probes[one.value] = dataclasses.replace(one, smoothed=level)

    def _probed(self, value: float, found: Measured, length: int, is_final: bool) -> Probe:
        if found.failure is not None:
            # Nothing got through, say: no promise is kept.
            return Probe(value, (), (), math.inf, length, None, True, False, found.failure)
        rows = found.distinct[: len(self._constraints)]
        violations = tuple(
            mean([constraint.violation(figure) for figure in row])
            for constraint, row in zip(self._constraints, rows, strict=True)
        )
        growth = stationarity.growth(zip(*found.distinct[-2:], strict=True))
        is_growing = growth is not None and growth.is_growing
        is_kept = max(violations) <= 0
        return Probe(
            value,
            violations,
            tuple(mean(row) for row in rows),
            math.nan,
            length,
            growth,
            is_final,
            is_final and is_growing and is_kept and _end_of(self._make(value)) is None,
        )

    @property
    def feasible(self) -> float | None:
        return max((v for v, one in self._probes.items() if one.is_kept), default=None)

    @property
    def infeasible(self) -> float | None:
        return min((v for v, one in self._probes.items() if one.smoothed > 0), default=None)

    @property
    def too_hard(self) -> float | None:
        """The easiest value beyond `feasible` that is not shown to be kept."""
        least = self.feasible if self.feasible is not None else -math.inf
        hard = (v for v, one in self._probes.items() if v > least and not one.is_kept)
        return min(hard, default=None)

    def gap_is_more_than(self, share: float) -> bool:
        if self.feasible is None or self.too_hard is None:
            return False
        return self.too_hard > self.feasible * (1 + share)

    def solution(self, quantity: str, unit: str, sign: int = 1) -> Solution:
        probes = [self._probes[value] for value in self.values]
        feasible, infeasible = self.feasible, self.infeasible
        undecided = sorted(
            one.value
            for one in probes
            if one.is_undecided
            and (feasible is None or one.value > feasible)
            and (infeasible is None or one.value < infeasible)
        )
        return Solution(
            quantity=quantity,
            unit=unit,
            feasible=None if feasible is None else sign * feasible,
            infeasible=None if infeasible is None else sign * infeasible,
            undecided=tuple(sign * value for value in undecided),
            first_breach=None if infeasible is None else self._breach(self._probes[infeasible]),
            probes=tuple(dataclasses.replace(one, value=sign * one.value) for one in probes),
            simulation=None if feasible is None else self._make(feasible),
            notes=tuple(self._notes(undecided)),
        )

    def _breach(self, probe: Probe) -> str:
        if probe.failure is not None:
            return probe.failure
        worst = probe.violations.index(probe.worst)
        return f"{self._constraints[worst]}, but it is {probe.figures[worst]:.4g}"

    def _notes(self, undecided: Sequence[float]) -> Iterator[str]:
        simulations = [self._make(value) for value in self.values]
        if not self._is_random:
            yield note_on_copies(simulations)
        end = _end_of(simulations[0])
        best = None if self.feasible is None else self._probes[self.feasible]
        if end is not None:
            yield f"no run was lengthened: {end}."
            if best is not None and best.growth is not None and best.growth.is_growing:
                yield (
                    "at the value that is kept, the number of requests in the system grows over "
                    "the run: a longer one might break the promises."
                )
        if best is not None and best.growth is None:
            yield (
                "whether the system keeps up was not checked: that takes at least "
                f"{stationarity.LEAST_ARRIVALS} requests after the warm-up, and metrics.streaming "
                "off."
            )
        if undecided:
            yield (
                f"undecided: the promises hold over {self._max_requests:,} requests, but the "
                "number of requests in the system still grows; a larger max_requests decides."
            )


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


def _end_of(simulation: Simulation) -> str | None:
    """Why the runs are as long as they are; None if the workload could go on."""
    workload = simulation.workload
    if not isinstance(workload, Synthetic):
        return "the trace is finite"
    if any(one.duration_s or one.num_requests for one in workload.clients):
        return "clients have a duration_s or num_requests of their own"
    if simulation.horizon_s is not None:
        return f"horizon_s = {simulation.horizon_s:g} ends it"
    if simulation.fleet.schedule:
        return "the fleet changes by its schedule"
    return None


def _num_requests(simulation: Simulation) -> int:
    """How many requests a run has; of a workload with a duration, in the mean."""
    workload = simulation.workload
    if not isinstance(workload, Synthetic):
        return workload.rows
    counts = []
    if workload.num_requests is not None:
        counts.append(workload.num_requests)
    if workload.duration_s is not None:
        counts.append(max(1, round(offered_per_s(simulation) * workload.duration_s)))
    return min(counts, default=_DEFAULT_REQUESTS)


def _lengthened(simulation: Simulation, factor: float) -> Simulation:
    """The simulation with so many times as many requests."""
    workload = simulation.workload
    assert isinstance(workload, Synthetic)
    if workload.duration_s is not None:
        workload = workload.replace(duration_s=workload.duration_s * factor)
    if workload.num_requests is not None or workload.duration_s is None:
        count = workload.num_requests or _DEFAULT_REQUESTS
        workload = workload.replace(num_requests=round(count * factor))
    return simulation.replace(workload=workload)
