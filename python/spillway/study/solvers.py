"""Solvers for one number: the highest rate, or the fewest instances, that meet the SLO."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any

from spillway import loading, traffic
from spillway._core.fleet import Crash
from spillway._core.sim import UsageError
from spillway._core.workload import Synthetic
from spillway.analysis import stationarity
from spillway.config import formatting
from spillway.config.files import fingerprint
from spillway.config.messages import note
from spillway.config.progress import reporting
from spillway.config.provenance import notes_on_servers
from spillway.config.randomness import note_on_copies
from spillway.data import frames
from spillway.study import verdicts
from spillway.study.evaluation import Evaluator, as_seeds
from spillway.study.feasibility import offered_per_s
from spillway.study.objective import Constraint, as_constraints, rewards_shedding
from spillway.study.records import mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from spillway._core.cluster import Simulation
    from spillway.analysis.stationarity import Growth, Verdict
    from spillway.config.progress import Progress, Report
    from spillway.study.measurements import Measured


_DEFAULT_REQUESTS = 1000
"""Requests of a workload without a stated number or duration."""
_ERROR = 0.025
"""Probability of error of the verdict on each end of the answer."""
MAX_REQUESTS = 100_000
"""Maximum length of a run, in requests."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe:
    """One evaluated value.

    `violations` are the means over the seeds of the signed violations, as shares of the bounds;
    `figures` the means of the constrained figures. `verdict`: whether the SLO holds, by confidence
    bounds over `num_seeds` seeds; of a run that is still to be lengthened, by the means alone.
    `num_requests` is the expected number of requests of each run; `growth` the growth of the number
    of requests in the system, and `saturation` the verdict on it (see `Result.saturation`), from
    all seeds together; None if unknown. `is_final`: whether a longer run is impossible or not
    allowed; `fills_up`: whether the SLO is met in the longest run, but the system is filling up, so
    that it is undecided. `failure` is the reason if there are no figures.
    """

    value: float
    verdict: verdicts.Verdict
    num_seeds: int
    num_requests: int
    is_final: bool
    violations: tuple[float, ...] = ()
    figures: tuple[float, ...] = ()
    growth: Growth | None = None
    saturation: Verdict | None = None
    fills_up: bool = False
    failure: str | None = None

    @property
    def worst(self) -> float:
        """The largest violation; infinite for a failure."""
        return max(self.violations, default=math.inf)


@dataclasses.dataclass(frozen=True, repr=False)
class Solution:
    """The boundary between the values that meet the SLO and those that violate it.

    `feasible` is the hardest value shown to meet the SLO: the highest rate, or the fewest
    instances. `infeasible` is the easiest value shown to violate it. Either is None if there is no
    such value within the searched bounds. Each verdict is wrong with a probability of 2.5% at most.
    `undecided` are values between them at which the budget of seeds does not show whether the SLO
    is met, or it is met in the longest run while the number of requests in the system still grows.
    `first_breach` is the constraint that is violated first, with its figure. `simulation` is the
    configuration at `feasible`, with a workload of the original length.
    """

    quantity: str
    unit: str
    feasible: float | None
    infeasible: float | None
    undecided: tuple[float, ...]
    first_breach: str | None
    probes: tuple[Probe, ...]
    simulation: Simulation | None
    seeds: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The interval that holds the answer: rates, or numbers of instances, both inclusive."""
        if self.unit == "instances":
            return None if self.infeasible is None else self.infeasible + 1, self.feasible
        return self.feasible, self.infeasible

    def to_dict(self) -> dict[str, Any]:
        """The content of solution.json."""
        best = None if self.simulation is None else fingerprint(self.simulation)
        attrs = frames.provenance(seeds=self.seeds, fingerprint=[best])
        content = dataclasses.asdict(dataclasses.replace(self, simulation=None))
        del content["simulation"]
        return attrs | {"interval": self.interval} | content

    def __repr__(self) -> str:
        columns = (
            *("largest violation", "verdict", "seeds", "requests", "backlog grows by"),
            "saturation",
        )
        rows = [[f"{self.quantity} ({self.unit})", *columns]]
        for probe in self.probes:
            shown = probe.failure or f"{probe.worst:+.2%}"
            grows = "-" if probe.growth is None else f"{probe.growth.mean:+.2%}"
            if probe.growth is not None and not probe.growth.is_growing:
                grows = f"({grows})"
            counts = [str(probe.num_seeds), formatting.number(probe.num_requests)]
            cells = [probe.verdict, *counts, grows]
            rows.append([f"{probe.value:.6g}", shown, *cells, probe.saturation or "-"])
        ends = [f"feasible at {formatting.number(self.feasible)}"]
        if self.undecided:
            ends.append(f"undecided at {', '.join(formatting.number(v) for v in self.undecided)}")
        ends.append(f"infeasible at {formatting.number(self.infeasible)}")
        breach = f": {self.first_breach}" if self.first_breach else ""
        blocks = [formatting.table(rows), f"{', '.join(ends)}{breach}"]
        if self.notes:
            blocks.append("\n".join(f"note: {note}" for note in self.notes))
        return "\n\n".join(blocks)


def max_rate_under_slo(
    simulation: loading.Configuration,
    slo: str | Mapping[str, Any] | Sequence[str | Constraint],
    *,
    low: float | None = None,
    high: float | None = None,
    tolerance: float = 0.05,
    max_requests: int = MAX_REQUESTS,
    seeds: int | Iterable[int] = 4,
    max_seeds: int | None = None,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Progress = False,
    journal: str | Path | None = None,
) -> Solution:
    """The highest request rate at which the SLO is met in the mean over the seeds.

    The search doubles or halves the current rate until it has a rate that meets the SLO and one
    that violates it, then bisects. All clients' rates change by the same factor, or the arrival
    times of a trace (see `workload.ScaleRate`). Different rates see the same requests, only closer
    together.

    The answer is an interval: `feasible` is shown to meet the SLO and `infeasible` to violate it,
    by confidence bounds. Seeds are added where these leave it open, up to `max_seeds` per rate, so
    most are spent near the answer; what remains open is between the ends.

    A short run can meet an SLO that a longer one violates: just above its capacity a fleet fills up
    slowly. So both ends of the answer are run again with `max_requests`, the search continues from
    these results, and a rate is feasible only if the number of requests in the system does not grow
    during these runs (see `spillway.analysis.stationarity`). A rate at which runs that cannot be
    lengthened, such as those of a trace, are saturated is undecided, too.

    Parameters
    ----------
    simulation
        The simulation. With a trace, the rate is that from its first arrival to its last;
        `spillway.traffic.resampled` makes its seeds differ.
    slo
        The constraints, e.g. "p99_ttft_ms[critical] <= 200", as for a study.
    low, high
        Bounds of the total rate of all clients, in requests/s; None: a thousandth and a thousand
        times the current one.
    tolerance
        Final distance of the two ends, as a share of the rate, 0 < tolerance < 1; where rates
        between them are undecided, half of it is their distance from these.
    max_requests
        Maximum length of a run, in requests; a workload that is already longer keeps its length. A
        workload with an end (clients with their own duration_s or num_requests, a horizon_s,
        settings that change at stated times) is never lengthened, and the notes say so.
    seeds, threads, executor
        As for a study.
    max_seeds
        The most seeds of a rate; None: eight times `seeds`.
    progress
        As for `run_many`, with the runs of one probe after the other.
    journal
        As for `grid`: the file keeps the measurements of the probes.

    Raises
    ------
    ConfigError
        If a trace has max_in_flight, where arrivals follow the served requests.
    UsageError
        If a trace holds no requests, only their digest.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
    >>> slo = {"p99_ttft_ms": "<=200", "shed": "<=0.01"}
    >>> found = spillway.study.max_rate_under_slo(simulation, slo, max_requests=2000, seeds=2)
    >>> found.feasible < found.infeasible
    True
    """
    simulation = loading.as_simulation(simulation)
    rate = rate_of(simulation)
    low, high = low or rate / 1000, high or rate * 1000
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance = {tolerance}: must be > 0 and < 1")
    if not 0 < low < high:
        raise ValueError(f"low = {low}, high = {high}: must be 0 < low < high")
    prober = _Prober(
        lambda value: traffic.at_rate(simulation, value / rate),
        slo,
        "requests/s",
        seeds=seeds,
        max_requests=max_requests,
        max_seeds=max_seeds,
        threads=threads,
        executor=executor,
        journal=journal,
    )

    def search() -> None:
        prober.probe(min(max(rate, low), high))
        value = min(prober.values)
        while prober.feasible is None and value > low:
            value = max(value / 2, low)
            prober.probe(value)
        value = max(prober.values)
        while prober.infeasible is None and value < high:
            value = min(value * 2, high)
            prober.probe(value)
        while gap := prober.gap(lambda a, b, share: b > a * (1 + tolerance * share)):
            prober.probe(math.sqrt(gap[0] * gap[1]))

    prober.settle(search, progress)
    return prober.solution("rate")


def min_instances_for_rate(
    simulation: loading.Configuration,
    slo: str | Mapping[str, Any] | Sequence[str | Constraint],
    rate_per_s: float | None = None,
    *,
    group: int = 0,
    survive: int = 0,
    most: int = 1024,
    max_requests: int = MAX_REQUESTS,
    seeds: int | Iterable[int] = 4,
    max_seeds: int | None = None,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Progress = False,
    journal: str | Path | None = None,
) -> Solution:
    """The fewest instances with which the SLO is met in the mean over the seeds.

    The search doubles from one instance, then bisects. `feasible` of the solution is that number
    and `infeasible` the largest number that is shown to be insufficient. Both are run again with
    `max_requests` and judged with added seeds, as in `max_rate_under_slo`; a trace is never
    lengthened.

    Parameters
    ----------
    simulation
        The simulation whose number of instances changes.
    slo
        The constraints, as for `max_rate_under_slo`.
    rate_per_s
        Total rate of all clients, or of the trace, in requests/s; None: the current one.
    group
        Index of the group of `instances` that grows.
    survive
        How many of the group's instances crash at the beginning of the window (`warm_up_s`), and
        are not started again: with 1, the answer keeps the SLO with one instance less. Requests
        sent there before the crash is detected (`fleet.health`) count in every figure. Those in
        the instances at the crash arrived before the window, and count in none.
    most
        Maximum number of instances.
    max_requests
        As for `max_rate_under_slo`.
    seeds, threads, executor
        As for a study.
    max_seeds
        The most seeds of a number of instances; None: eight times `seeds`.
    progress
        As for `run_many`, with the runs of one probe after the other.
    journal
        As for `grid`: the file keeps the measurements of the probes.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
    >>> slo = {"p99_ttft_ms": "<=200", "shed": "<=0.01"}
    >>> found = spillway.study.min_instances_for_rate(
    ...     simulation, slo, 100, max_requests=2000, seeds=2
    ... )
    >>> found.feasible - found.infeasible
    1
    """
    simulation = loading.as_simulation(simulation)
    if survive < 0:
        raise ValueError(f"survive = {survive}: must be >= 0")
    if rate_per_s is not None:
        simulation = traffic.at_rate(simulation, rate_per_s / rate_of(simulation))

    def with_count(count: int) -> Simulation:
        grown = simulation.with_({f"instances[{group}].count": count})
        if survive == 0:
            return grown
        before = sum(other.count for other in grown.instances[:group])
        faults = [Crash(instance=before + count - 1 - number) for number in range(survive)]
        crash = {"at_s": grown.warm_up_s, "faults": faults}
        return grown.replace(changes=[*grown.changes, crash])

    # More instances make it easier, so the negative count is harder as it grows.
    prober = _Prober(
        lambda value: with_count(round(-value)),
        slo,
        "instances",
        seeds=seeds,
        max_requests=max_requests,
        max_seeds=max_seeds,
        threads=threads,
        executor=executor,
        journal=journal,
    )

    def search() -> None:
        prober.probe(-1 - survive)
        count = -round(min(prober.values))
        while prober.feasible is None and count < most:
            count = min(2 * count, most)
            prober.probe(-count)
        while gap := prober.gap(lambda a, b, _: b - a > 1):
            prober.probe(math.ceil(sum(gap) / 2))

    prober.settle(search, progress)
    solution = prober.solution("count", sign=-1)
    if survive == 0:
        return solution
    note = (
        "requests in the instances at the crash arrived before warm_up_s, and count in no figure."
    )
    return dataclasses.replace(solution, notes=(*solution.notes, note))


class _Prober:
    """Evaluates values and keeps the results; larger values are harder.

    `options`: those of the `Evaluator`.
    """

    def __init__(
        self,
        make: Callable[[float], Simulation],
        slo: str | Mapping[str, Any] | Sequence[str | Constraint],
        unit: str,
        *,
        seeds: int | Iterable[int],
        max_seeds: int | None,
        max_requests: int,
        **options: Any,
    ) -> None:
        self._constraints = as_constraints(slo, "slo")
        if not self._constraints:
            raise UsageError("slo: must hold at least one constraint")
        if max_requests < 1:
            raise ValueError(f"max_requests = {max_requests}: must be >= 1")
        if rewards_shedding((), self._constraints):
            note(
                "these constraints apply only to served requests, so rejecting most traffic would "
                "satisfy them; add e.g. {'shed': '<=0.01'}",
                RuntimeWarning,
            )
        self._make = make
        self._seeds = as_seeds(seeds)
        self._stages = verdicts.portions(self._seeds, max_seeds)
        self._max_requests = max_requests
        metrics = [constraint.metric for constraint in self._constraints]
        self._evaluator = Evaluator(metrics, is_judging=True, **options)
        self._unit = unit
        self._report: Report | None = None
        self._num_probes = 0
        self._probes: dict[float, Probe] = {}
        self._is_thorough = False
        self._is_random = len(self._seeds) == 1

    @property
    def values(self) -> list[float]:
        return sorted(self._probes)

    def probe(self, value: float) -> None:
        if value not in self._probes:
            self._run(value)

    def settle(self, search: Callable[[], None], progress: Progress) -> None:
        """Searches until the longest runs confirm both ends."""
        with reporting(progress, "runs") as self._report:
            search()
            while short := [
                end
                for end in (self.feasible, self.infeasible)
                if end is not None and not self._probes[end].is_final
            ]:
                self._is_thorough = True
                for value in short:
                    self._run(value)
                search()

    def _run(self, value: float) -> None:
        simulation = self._make(value)
        length = _num_requests(simulation)
        is_final = _end_of(simulation) is not None or length >= self._max_requests
        if self._is_thorough and not is_final:
            simulation = _lengthened(simulation, self._max_requests / length)
            length, is_final = self._max_requests, True
        if self._report is not None:
            remark = f"probe {self._num_probes + 1}: {abs(value):.4g} {self._unit}"
            self._evaluator.report = functools.partial(_remarked, self._report, remark)
        self._num_probes += 1
        said: verdicts.Verdict | None = None  # not before the runs have their length
        seeds = self._seeds
        if is_final:
            found, each, seeds = verdicts.spend(
                self._evaluator, simulation, self._constraints, self._stages, _ERROR
            )
            said = verdicts.together(each)
        else:
            found = self._evaluator.measure_all([simulation], seeds)[0]
        self._is_random |= found.is_replicated
        self._probes[value] = self._probed(value, found, said, len(seeds), length)

    def _probed(
        self,
        value: float,
        found: Measured,
        said: verdicts.Verdict | None,
        num_seeds: int,
        length: int,
    ) -> Probe:
        known: dict[str, Any] = {"value": value, "num_seeds": num_seeds, "num_requests": length}
        if found.failure is not None:
            # E.g. no request was served: the SLO is violated.
            return Probe(**known, failure=found.failure, is_final=True, verdict="breaks")
        rows = found.distinct
        violations = tuple(
            mean([constraint.violation(figure) for figure in row])
            for constraint, row in zip(self._constraints, rows, strict=True)
        )
        growth, saturation = found.growth, found.saturation
        is_growing = saturation == "saturated"
        if growth is not None and _end_of(self._make(value)) is None:
            is_growing |= growth.is_growing  # a longer run would decide
        fills_up = said == "holds" and is_growing
        by_means: verdicts.Verdict = "holds" if max(violations) <= 0 else "breaks"
        return Probe(
            **known,
            violations=violations,
            figures=tuple(mean(row) for row in rows),
            verdict="undecided" if fills_up else said or by_means,
            growth=growth,
            saturation=saturation,
            is_final=said is not None,
            fills_up=fills_up,
        )

    @property
    def feasible(self) -> float | None:
        """The hardest value at which the SLO holds, and at no easier one breaks."""
        end = math.inf if self.infeasible is None else self.infeasible
        return max((value for value in self._that("holds") if value < end), default=None)

    @property
    def infeasible(self) -> float | None:
        return min(self._that("breaks"), default=None)

    @property
    def undecided(self) -> list[float]:
        """The undecided values between the ends."""
        low = -math.inf if self.feasible is None else self.feasible
        high = math.inf if self.infeasible is None else self.infeasible
        return [value for value in self._that("undecided") if low < value < high]

    def _that(self, said: verdicts.Verdict) -> list[float]:
        return [value for value in self.values if self._probes[value].verdict == said]

    def gap(self, is_wide: Callable[[float, float, float], bool]) -> tuple[float, float] | None:
        """Two neighboring values that the next probe should separate; None if there are none.

        They are the two ends, or one end and the next undecided value; `is_wide` also gets the
        share of the tolerance that is for this gap.
        """
        ends, between = (self.feasible, self.infeasible), self.undecided
        gaps = [(ends[0], between[0]), (between[-1], ends[1])] if between else [ends]
        for low, high in gaps:
            if low is not None and high is not None and is_wide(low, high, 1 / len(gaps)):
                return low, high
        return None

    def solution(self, quantity: str, sign: int = 1) -> Solution:
        probes = [self._probes[value] for value in self.values]
        feasible, infeasible = self.feasible, self.infeasible
        undecided = self.undecided
        return Solution(
            quantity=quantity,
            unit=self._unit,
            feasible=None if feasible is None else sign * feasible,
            infeasible=None if infeasible is None else sign * infeasible,
            undecided=tuple(sign * value for value in undecided),
            first_breach=None if infeasible is None else self._breach(self._probes[infeasible]),
            probes=tuple(dataclasses.replace(probe, value=sign * probe.value) for probe in probes),
            simulation=None if feasible is None else self._make(feasible),
            seeds=self._seeds,
            notes=tuple(self._notes(undecided)),
        )

    def _breach(self, probe: Probe) -> str:
        if probe.failure is not None:
            return probe.failure
        worst = probe.violations.index(probe.worst)
        constraint = self._constraints[worst]
        return (
            f"{constraint.name} = {probe.figures[worst]:.4g}, "
            f"must be {constraint.relation} {constraint.bound:g}"
        )

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
                    "at the feasible value, the number of requests in the system grows during the "
                    "run: a longer run might violate the SLO."
                )
        if best is not None and best.growth is None:
            yield (
                "whether the system keeps up was not checked: that takes at least "
                f"{stationarity.LEAST_ARRIVALS} requests after the warm-up, and metrics.streaming "
                "off."
            )
        if any(not self._probes[value].fills_up for value in undecided):
            most = max(self._probes[value].num_seeds for value in undecided)
            yield (
                f"undecided: {most} seeds do not show whether the SLO is met; a larger max_seeds "
                "would narrow the interval."
            )
        undecided = [value for value in undecided if self._probes[value].fills_up]
        if undecided and end is None:
            yield (
                f"undecided: the SLO is met over {self._max_requests:,} requests, but the "
                "number of requests in the system still grows; a larger max_requests would decide."
            )
        elif undecided:
            yield (
                "undecided: the SLO is met, but the runs are saturated (the number of requests in "
                "the system grows until the last arrival), so a longer run would violate it."
            )
        yield from notes_on_servers(simulations)


def _remarked(report: Report, remark: str, done: float, total: float, _: str = "", /) -> None:
    report(done, total, remark)


def rate_of(simulation: Simulation) -> float:
    """Requests per second of all clients, or of a trace from its first arrival to its last."""
    if isinstance(simulation.workload, Synthetic):
        return offered_per_s(simulation)
    return traffic.rate_per_s(simulation.workload)


def _end_of(simulation: Simulation) -> str | None:
    """Why runs cannot be lengthened; None if they can."""
    workload = simulation.workload
    if not isinstance(workload, Synthetic):
        return "the trace is finite"
    if any(client.duration_s or client.num_requests for client in workload.clients):
        return "clients have their own duration_s or num_requests"
    if simulation.horizon_s is not None:
        return f"horizon_s = {simulation.horizon_s:g} ends it"
    if simulation.changes:
        return "settings change at stated times"
    return None


def _num_requests(simulation: Simulation) -> int:
    """The number of requests of a run; for a workload with a duration, its expectation."""
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
    """The simulation with `factor` times as many requests."""
    workload = simulation.workload
    assert isinstance(workload, Synthetic)
    if workload.duration_s is not None:
        workload = workload.replace(duration_s=workload.duration_s * factor)
    if workload.num_requests is not None or workload.duration_s is None:
        count = workload.num_requests or _DEFAULT_REQUESTS
        workload = workload.replace(num_requests=round(count * factor))
    return simulation.replace(workload=workload)
