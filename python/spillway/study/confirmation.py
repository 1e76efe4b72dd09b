"""Runs of the best trials and the baseline on seeds that the search has not seen."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import TYPE_CHECKING, Any

from spillway._core.sim import ConfigError, UsageError
from spillway.comparison.paired_runs import watch
from spillway.config import formatting
from spillway.config.files import fingerprint
from spillway.config.provenance import notes_on_servers
from spillway.config.randomness import REPLICATION, is_resampled, note_on_copies
from spillway.data import frames, intervals
from spillway.study import verdicts
from spillway.study.feasibility import caveats
from spillway.study.json_lines import write_json
from spillway.study.measurements import interval_of
from spillway.study.objective import figures_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from spillway._core.cluster import Simulation
    from spillway._core.workload import Synthetic, Trace
    from spillway.analysis.stationarity import Verdict as Saturation
    from spillway.config.progress import Progress
    from spillway.data.intervals import Interval
    from spillway.study.evaluation import Evaluator
    from spillway.study.measurements import Measured
    from spillway.study.records import Trial
    from spillway.study.space import BoundSpace, Parameter, Point
    from spillway.study.study_data import StudyData
    from spillway.study.verdicts import Verdict

    Place = tuple[Parameter, Any, Simulation]
    """A configuration that differs from the winner in one parameter, and its value there."""


_MEANING = {
    "transient": "its backlog fills or drains during the runs, so a longer warm-up is needed",
    "undecided": "the runs are too short to show whether it keeps up with its load",
    "saturated": "its backlog grows until the last arrival, so a longer run would be worse",
}


_OLD_TRAFFIC = (
    "the fresh seeds are resamples of the trace that was searched on, not new traffic; "
    "confirm(workload=…) takes traffic that the search has not seen."
)

_OF_SIGNS = 0.95
"""Confidence of a gain that is equal under all seeds, and so has no interval."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BrokenConstraint:
    """A constraint that is not shown to hold in the mean over the fresh seeds.

    `figure` is the constrained figure, `bound` its relation and limit, e.g. "<= 1000", and `value`
    the mean with its interval. `is_certain`: whether it is shown to break, by its confidence bound;
    otherwise it is undecided.
    """

    figure: str
    bound: str
    value: Interval
    is_certain: bool

    def __str__(self) -> str:
        verb = "breaks" if self.is_certain else "may break"
        return f"{self.figure} = {_shown(self.value)} {verb} {self.bound}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One trial on fresh seeds.

    `gain` is the paired difference from the baseline, positive if better; its interval is widened
    so that the intervals of all candidates hold simultaneously. `constraints` are the means of the
    constrained figures with their intervals, `verdicts` whether each `holds`, `breaks` or is
    `undecided`, `broken` those that are not shown to hold. It `is_feasible` if all hold.
    `saturation`: whether the system keeps up with its load on the fresh seeds (see
    `Result.saturation`); None if unknown. `failure` is the reason if it has none of these.
    """

    number: int
    point: Point
    value: Interval | None = None
    gain: Interval | None = None
    constraints: tuple[Interval, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    broken: tuple[BrokenConstraint, ...] = ()
    is_feasible: bool = False
    saturation: Saturation | None = None
    failure: str | None = None

    @property
    def is_out(self) -> bool:
        """Whether it cannot be run, or is shown to break a constraint."""
        return self.failure is not None or "breaks" in self.verdicts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """The winner with another value of one parameter.

    `gain` is the paired difference from the winner, negative if worse. `broken` are the constraints
    that are not shown to hold. `failure` is the reason if it could not be run.
    """

    parameter: str
    value: Any
    gain: Interval | None = None
    broken: tuple[BrokenConstraint, ...] = ()
    failure: str | None = None

    @property
    def mean_gain(self) -> float:
        """The mean of the gain; -inf if it could not be run."""
        return -math.inf if self.gain is None else self.gain.mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class Neighbor(Variant):
    """A configuration near the winner: one parameter moved by up to the requested share.

    It `is_steep`, a cliff, if it cannot be run, if a constraint is certainly broken, or if it is
    significantly worse than the winner and loses all that the winner gained over a feasible
    baseline.
    """

    is_steep: bool

    @property
    def is_improvement(self) -> bool:
        """Whether it is significantly better than the winner and keeps the constraints."""
        gain = self.gain
        is_better = gain is not None and gain.mean > 0 and gain.excludes_zero(_OF_SIGNS)
        return is_better and not self.broken


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The results of the best trials on fresh seeds.

    `winner` is the number of the candidate that is feasible and whose interval of the gain excludes
    zero, the best if there are several; None if there is none. `reason` explains the verdict.
    `choice` is the configuration of the winner or, without a winner, of the baseline; None if that
    is shown to violate a constraint on the fresh seeds, too. `seeds` are those that were spent.
    `cliff` is the worst configuration near the winner, `better_neighbor` the best that is
    significantly better than the winner and keeps the constraints: the optimum may then lie further
    on. `reverted` has the winner with each of its changes undone, which shows how much they matter,
    the most important first. `guards`: headline figures that the study does not ask for and that
    are significantly worse with the winner than with the baseline, a sentence each with a
    constraint.
    """

    objective: str
    seeds: tuple[int, ...]
    confidence: float
    baseline: Candidate
    candidates: tuple[Candidate, ...]
    winner: int | None
    reason: str
    choice: Simulation | None
    cliff: Neighbor | None
    better_neighbor: Neighbor | None
    reverted: tuple[Variant, ...]
    caveats: tuple[str, ...]
    guards: tuple[str, ...] = ()

    @property
    def best(self) -> Simulation:
        """The winner's configuration or, without a winner, the baseline's; ready to simulate.

        Raises UsageError if on the fresh seeds neither a candidate nor the baseline satisfies the
        constraints.
        """
        if self.choice is None:
            raise UsageError(f"no feasible configuration: {self.reason}")
        return self.choice

    @property
    def verdict(self) -> str:
        """What was confirmed, in a sentence."""
        won = next((of for of in self.candidates if of.number == self.winner), None)
        if won is None:
            return self.reason[:1].upper() + self.reason[1:] + "."
        changes = ", ".join(f"{name} = {formatting.setting(v)}" for name, v in won.point.items())
        before = _shown(self.baseline.value) or "none"
        return f"Set {changes}: {self.objective} is {_shown(won.value)} instead of {before}."

    def to_dict(self) -> dict[str, Any]:
        """The content of confirmation.json."""
        digest = None if self.choice is None else fingerprint(self.choice)
        attrs = frames.provenance(seeds=self.seeds, fingerprint=digest)
        content = dataclasses.asdict(dataclasses.replace(self, choice=None))
        del content["choice"]
        return attrs | content

    def write(self, path: Path) -> None:
        """Writes confirmation.json."""
        write_json(self.to_dict(), path)

    def __repr__(self) -> str:
        rows = [["trial", self.objective, "gain over the baseline", "constraints"]]
        for candidate in (self.baseline, *self.candidates):
            name = "baseline" if candidate is self.baseline else str(candidate.number)
            if candidate.failure is not None:
                rows.append([name, candidate.failure, "", ""])
                continue
            gain = "" if candidate.gain is None else _shown(candidate.gain)
            rows.append([name, _shown(candidate.value), gain, _listed(candidate.broken) or "hold"])
        head = f"{len(self.seeds)} fresh seeds, {self.confidence:.0%} confidence intervals"
        lines = [head, "", formatting.table(rows), "", self.reason]
        if self.reverted:
            changes = [["reverted", "to", "gain over the winner", "constraints"]]
            for back in self.reverted:
                change = _shown(back.gain) if back.failure is None else "cannot be run"
                holds = _listed(back.broken) or ("hold" if back.failure is None else "")
                changes.append([back.parameter, formatting.setting(back.value), change, holds])
            lines += ["", formatting.table(changes), ""]
        lines += self._on_neighbors()
        servers = [] if self.choice is None else [self.choice]
        notes = (*self._on_saturation(), *self.guards, *self.caveats, *notes_on_servers(servers))
        lines += [f"note: {note}" for note in notes]
        return "\n".join(lines)

    def _on_neighbors(self) -> Iterator[str]:
        """The worst neighbor of the winner, and one that is better."""
        better, worst = self.better_neighbor, self.cliff
        if worst is not None and not worst.is_improvement:
            yield _cliff_line(worst, self.objective)
        if better is not None:
            where = f"{better.parameter} = {formatting.setting(better.value)}"
            change = _change(self.objective, better.gain)
            yield f"better neighbor: with {where} {change}; the optimum may lie further on"

    def _on_saturation(self) -> Iterator[str]:
        """What the winner's verdict means, unless it keeps up."""
        for candidate in self.candidates:
            verdict = candidate.saturation
            if candidate.number == self.winner and verdict not in (None, "unsaturated"):
                yield f"trial {candidate.number} is {verdict}: {_MEANING[verdict]}."


def _shown(value: Interval | None) -> str:
    if value is None:
        return ""
    if value.low is None:
        return f"{value.mean:.4g}" + (f" in all {value.n} runs" if value.n > 1 else "")
    return f"{value.mean:.4g} [{value.low:.4g}, {value.high:.4g}]"


def _listed(broken: Iterable[BrokenConstraint]) -> str:
    return ", ".join(map(str, broken))


def _cliff_line(near: Neighbor, objective: str) -> str:
    word = "cliff" if near.is_steep else "worst neighbor"
    where = f"{word}: with {near.parameter} = {formatting.setting(near.value)}"
    if near.failure is not None:
        return f"{where} it cannot be run: {near.failure}"
    return f"{where} {', '.join([*map(str, near.broken), _change(objective, near.gain)])}"


def _change(objective: str, gain: Interval | None) -> str:
    if gain is None or gain.mean == 0:
        return f"{objective} does not change"
    if gain.mean > 0:
        return f"{objective} is better by {_shown(gain)}"
    loss = dataclasses.replace(
        gain,
        mean=-gain.mean,
        low=None if gain.high is None else -gain.high,
        high=None if gain.low is None else -gain.low,
    )
    return f"{objective} is worse by {_shown(loss)}"


def confirm(
    study: StudyData,
    evaluator: Evaluator,
    *,
    top: int,
    seeds: Sequence[int],
    max_seeds: int | None,
    confidence: float,
    within: float,
    objective: int,
    workload: Synthetic | Trace | None,
) -> Confirmation:
    """See `Study.confirm`."""
    overlap = sorted(set(seeds) & set(study.seeds)) if workload is None else []
    if overlap:
        raise ValueError(f"seeds: {overlap} were part of the search; use others")
    if len(seeds) < 2:
        raise ValueError("seeds: give at least two; one seed has no interval")
    first = [study.recommended] if len(study.objectives) == 1 else []
    ranked = {trial.number: trial for trial in (*first, *study.feasible) if not trial.is_baseline}
    trials = list(ranked.values())[:top]
    if not trials:
        raise UsageError("no feasible trial to confirm except the baseline")
    simulations = [study.simulation, *(study.simulation_of(trial) for trial in trials)]
    if workload is not None:
        simulations = _held_out(simulations, workload)
    judge = _Judge(study, objective, confidence, len(trials))
    found, seeds = judge.spend(evaluator, simulations, verdicts.portions(seeds, max_seeds))
    made = [measurement for measurement in found if measurement.failure is None]
    if made and not any(measurement.is_replicated for measurement in made):
        raise UsageError(
            f"fresh seeds confirm nothing: {note_on_copies(simulations)} {REPLICATION}"
        )
    base = judge.candidate(study.baseline, found[0], None)
    candidates = [
        judge.candidate(trial, measurement, found[0])
        for trial, measurement in zip(trials, found[1:], strict=True)
    ]
    winner, reason = judge.verdict(base, candidates)
    chosen = next((i for i, candidate in enumerate(candidates) if candidate.number == winner), None)
    choice = None if base.is_out else study.simulation
    cliff = better = None
    reverted: list[Variant] = []
    if chosen is not None:
        choice = study.simulation_of(trials[chosen])
        near = neighbors(study.bound, trials[chosen].point, within) if within > 0 else []
        back = reversals(study.bound, trials[chosen].point)
        others = [simulation for *_, simulation in (*near, *back)]
        if workload is not None:
            others = [simulation.replace(workload=workload) for simulation in others]
        moved = evaluator.measure_all(others, seeds)
        optimum = found[1 + chosen]
        judge.error = 1 - confidence  # one look
        around = judge.neighbors(near, moved[: len(near)], optimum, found[0])
        cliff = min(around, key=_steepness, default=None)
        improvements = [neighbor for neighbor in around if neighbor.is_improvement]
        better = max(improvements, key=lambda neighbor: neighbor.mean_gain, default=None)
        reverted = [
            Variant(**judge.variant(place, measurement, optimum))
            for place, measurement in zip(back, moved[len(near) :], strict=True)
        ]
    shown = {"the baseline": base.value}
    for candidate in candidates:
        shown[f"trial {candidate.number}"] = candidate.value
        shown[f"the gain of trial {candidate.number}"] = candidate.gain
    return Confirmation(
        objective=study.objectives[objective].name,
        seeds=tuple(seeds),
        confidence=confidence,
        baseline=base,
        candidates=tuple(candidates),
        winner=winner,
        reason=reason,
        choice=choice,
        cliff=cliff,
        better_neighbor=better,
        reverted=tuple(sorted(reverted, key=lambda variant: variant.mean_gain)),
        caveats=(
            *([_OLD_TRAFFIC] if workload is None and is_resampled(study.simulation) else []),
            *(() if choice is None else caveats(choice)),
            *intervals.caveats(shown),
        ),
    )


def guards(
    study: StudyData,
    found: Confirmation,
    *,
    workload: Synthetic | Trace | None,
    threads: int | None,
    progress: Progress,
) -> tuple[str, ...]:
    """See `Confirmation.guards`; runs baseline and winner once more, for all of their figures."""
    if found.winner is None or found.choice is None:
        return ()
    metrics = [objective.metric for objective in study.objectives]
    metrics += [constraint.metric for constraint in study.constraints]
    known = {figure.parts[0] for metric in metrics for figure in figures_of(metric)}
    if "shed" in known:
        known |= {"rejected", "expired"}
    systems = [study.simulation, found.choice]
    before, after = systems if workload is None else _held_out(systems, workload)
    lines = watch(
        before, after, seeds=found.seeds, known=known, confidence=found.confidence,
        threads=threads, progress=progress,
    )  # fmt: skip
    return tuple(lines)


def _steepness(neighbor: Neighbor) -> tuple[bool | float, ...]:
    """Orders a neighbor that cannot be run or breaks a constraint first, then by its loss."""
    is_out = any(broken.is_certain for broken in neighbor.broken)
    is_legal = not neighbor.broken
    return neighbor.failure is None, not is_out, not neighbor.is_steep, is_legal, neighbor.mean_gain


def _held_out(simulations: Sequence[Simulation], workload: Synthetic | Trace) -> list[Simulation]:
    """The simulations with another workload, which none of them may have changed itself."""
    searched = simulations[0].workload
    if any(simulation.workload != searched for simulation in simulations):
        raise UsageError("workload: the study searched settings of the workload; it must be kept")
    return [simulation.replace(workload=workload) for simulation in simulations]


class _Judge:
    """Turns the measurements into intervals and a verdict."""

    def __init__(
        self, study: StudyData, objective: int, confidence: float, n_candidates: int
    ) -> None:
        self._study = study
        self._objective = objective
        self._confidence = confidence
        # Bonferroni: all intervals hold simultaneously with the requested confidence.
        self._each = 1 - (1 - confidence) / n_candidates
        self._sign = study.objectives[objective].sign
        self.error = 1 - confidence
        """Probability of error of a verdict on a constraint."""

    def _gain(self, confidence: float, found: Measured, reference: Measured) -> Interval:
        """The interval of the improvement over the reference."""
        gains, name = self.gains(found, reference), self._study.objectives[self._objective].name
        return interval_of(gains, confidence, name, self._objective, found, reference)

    def gains(self, found: Measured, reference: Measured) -> list[float]:
        """The improvement over the reference, by seed."""
        rows = zip(found.values[self._objective], reference.values[self._objective], strict=True)
        return [self._sign * (value - base) for value, base in rows]

    def spend(
        self,
        evaluator: Evaluator,
        simulations: Sequence[Simulation],
        stages: Sequence[tuple[int, ...]],
    ) -> tuple[list[Measured], tuple[int, ...]]:
        """Measures under one portion of seeds after the other, and says under which.

        It ends when the constraints of all are decided.
        """
        found: list[Measured] = []
        used: tuple[int, ...] = ()
        for portion, share in zip(
            stages, verdicts.errors(stages, 1 - self._confidence), strict=True
        ):
            self.error = share / (len(simulations) - 1)
            measured = evaluator.measure_all(simulations, portion)
            pairs = zip(found, measured, strict=True)
            found = [known.followed_by(more) for known, more in pairs] if found else measured
            used += portion
            if not any(map(self._is_open, found)):
                break
        return found, used

    def verdicts(self, found: Measured) -> tuple[Verdict, ...]:
        """Whether each constraint holds."""
        start = len(self._study.objectives)
        rows = found.values[start : start + len(self._study.constraints)]
        pairs = zip(self._study.constraints, rows, strict=True)
        return tuple(
            verdicts.verdict(constraint, row, found, self.error) for constraint, row in pairs
        )

    def _is_open(self, found: Measured) -> bool:
        """Whether further seeds may decide on its constraints."""
        said = () if found.failure else self.verdicts(found)
        return verdicts.can_learn(found) and verdicts.together(said) == "undecided"

    def is_feasible(self, found: Measured) -> bool:
        """Whether the constraints are shown to hold."""
        return verdicts.together(self.verdicts(found)) == "holds"

    def constrained(self, found: Measured) -> tuple[Interval, ...]:
        """The constrained figures."""
        start = len(self._study.objectives)
        return tuple(
            self._mean(constraint.name, start + i, found)
            for i, constraint in enumerate(self._study.constraints)
        )

    def _mean(self, figure: str, column: int, found: Measured) -> Interval:
        return interval_of(found.values[column], self._confidence, figure, column, found)

    def broken(self, found: Measured) -> tuple[BrokenConstraint, ...]:
        """The constraints that are not shown to hold."""
        values, said = self.constrained(found), self.verdicts(found)
        return tuple(
            BrokenConstraint(
                figure=constraint.name,
                bound=f"{constraint.relation} {constraint.bound:g}",
                value=value,
                is_certain=known == "breaks",
            )
            for constraint, value, known in zip(self._study.constraints, values, said, strict=True)
            if known != "holds"
        )

    def candidate(self, trial: Trial, found: Measured, base: Measured | None) -> Candidate:
        """A trial with its intervals."""
        if found.failure is not None:
            return Candidate(number=trial.number, point=trial.point, failure=found.failure)
        name = self._study.objectives[self._objective].name
        return Candidate(
            number=trial.number,
            point=trial.point,
            value=self._mean(name, self._objective, found),
            gain=None if base is None or base.failure else self._gain(self._each, found, base),
            constraints=self.constrained(found),
            verdicts=self.verdicts(found),
            broken=self.broken(found),
            is_feasible=self.is_feasible(found),
            saturation=found.saturation,
        )

    def verdict(self, base: Candidate, candidates: Sequence[Candidate]) -> tuple[int | None, str]:
        """The winner, and the reason for it or for the absence of one."""
        feasible = [candidate for candidate in candidates if candidate.is_feasible]
        why = base.failure or _listed(base.broken)
        if not feasible:
            reason = "no winner: on fresh seeds no candidate satisfies the constraints"
            open_ones = [str(known.number) for known in candidates if not known.is_out]
            if open_ones:
                reason += f" for sure (undecided: trial {', '.join(open_ones)})"
            if base.is_feasible:
                return None, f"{reason}; the baseline does"
            if not base.is_out:
                return None, f"{reason}, nor does the baseline for sure ({why})"
            return None, f"{reason}, nor does the baseline ({why})"
        if base.is_out:
            # The baseline is not an alternative, so there is nothing to beat.
            best = self._best(feasible)
            return best.number, f"trial {best.number} wins: the baseline is out ({why})"
        better = [
            candidate
            for candidate in feasible
            if (gain := candidate.gain) and gain.mean > 0 and gain.excludes_zero(self._each)
        ]
        if not better:
            return None, "no winner: no candidate's gain over the baseline excludes zero"
        best = self._best(better)
        lead = f"{_shown(best.gain)} better than the baseline"
        return best.number, f"trial {best.number} wins: {lead}"

    def _best(self, candidates: Sequence[Candidate]) -> Candidate:
        return max(
            candidates, key=lambda known: self._sign * known.value.mean if known.value else 0
        )

    def variant(self, place: Place, found: Measured, optimum: Measured) -> dict[str, Any]:
        """The fields of a `Variant`."""
        parameter, value, _ = place
        known = {"parameter": parameter.name, "value": value}
        if found.failure is not None:
            return known | {"failure": found.failure}
        gain = self._gain(self._confidence, found, optimum)
        return known | {"gain": gain, "broken": self.broken(found)}

    def neighbors(
        self, places: Sequence[Place], around: Sequence[Measured], optimum: Measured, base: Measured
    ) -> list[Neighbor]:
        """The configurations near the winner, and which of them are steep."""
        neighbors = []
        for place, measurement in zip(places, around, strict=True):
            neighbor = Neighbor(**self.variant(place, measurement, optimum), is_steep=False)
            gain = neighbor.gain
            is_steep = gain is None or any(broken.is_certain for broken in neighbor.broken)
            if gain and gain.mean < 0 and gain.excludes_zero(self._confidence) and not base.failure:
                is_steep |= self.is_feasible(base) and sum(self.gains(measurement, base)) <= 0
            neighbors.append(dataclasses.replace(neighbor, is_steep=is_steep))
        return neighbors


def reversals(bound: BoundSpace, point: Point) -> list[Place]:
    """A point with each changed parameter in turn reverted to the simulation's value."""
    current = bound.current()
    places = []
    for parameter in bound:
        name = parameter.name
        if name in current and name in point and current[name] != point[name]:
            reverted = bound.complete(point | {name: current[name]})
            with contextlib.suppress(ConfigError):
                places.append((parameter, current[name], bound.apply(reverted)))
    return places


def neighbors(bound: BoundSpace, point: Point, within: float) -> list[Place]:
    """The point with each number in turn decreased and increased by a share of itself.

    Integers move by at least one; a value of 0 moves by that share of its range. No value moves to
    0 or past it, where the meaning of a setting may change. Invalid configurations are left out.
    """
    places = []
    for parameter in bound:
        if parameter.name not in point or not parameter.is_numeric:
            continue
        value = point[parameter.name]
        span = abs(value) * within or (parameter.high - parameter.low) * within
        if parameter.kind == "int":
            span = max(1, round(span))
        for changed in (value - span, value + span):
            inside = min(max(changed, parameter.valid_low), parameter.valid_high)
            if inside == value or (value != 0 and inside * value <= 0):
                continue
            with contextlib.suppress(ConfigError):
                places.append((parameter, inside, bound.apply(point | {parameter.name: inside})))
    return places
