"""Runs of the best trials and the baseline on seeds that the search has not seen."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any

from spillway._core.sim import ConfigError, UsageError
from spillway._deprecated import moved
from spillway.config import filesystem, text
from spillway.config.files import fingerprint
from spillway.config.provenance import notes_on_servers
from spillway.config.randomness import REPLICATION, note_on_copies
from spillway.data import frames, statistics
from spillway.data.statistics import Interval, fewest, interval
from spillway.study.feasibility import doubts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from spillway._core.cluster import Simulation
    from spillway._core.workload import Synthetic, Trace
    from spillway.analysis.stationarity import Verdict
    from spillway.study.data import StudyData
    from spillway.study.evaluation import Evaluator, Measured
    from spillway.study.records import Trial
    from spillway.study.space import BoundSpace, Parameter, Point

__all__ = ["Candidate", "Cliff", "Confirmation", "Reverted", "confirm", "neighbors", "reversals"]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Returns a name that has changed."""
        return moved(__name__, name)


_MEANING = {
    "transient": "its backlog fills or drains during the runs, so a longer warm-up is needed",
    "undecided": "the runs are too short to show whether it keeps up with its load",
    "saturated": "its backlog grows until the last arrival, so a longer run would be worse",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One trial on fresh seeds.

    `gain` is the paired difference from the baseline, positive if better; its interval is widened
    so that the intervals of all candidates hold simultaneously. `constraints` are the means of the
    constrained figures with their intervals. `saturation`: whether the system keeps up with its
    load on the fresh seeds (see `Result.saturation`); None if unknown. `failure` is the reason if
    it has none of these.
    """

    number: int
    point: Point
    value: Interval | None = None
    gain: Interval | None = None
    constraints: tuple[Interval, ...] = ()
    is_feasible: bool = False
    saturation: Verdict | None = None
    failure: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cliff:
    """The worst configuration nearby: one parameter moved by up to the requested share.

    `gain` is its paired difference from the winner, negative if worse. It `is_steep` if it is
    significantly worse than the winner and loses all that the winner gained, or violates a
    constraint.
    """

    parameter: str
    value: Any
    is_steep: bool
    gain: Interval | None = None
    failure: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reverted:
    """The winner with one parameter reverted to its current value.

    `gain` is the paired difference from the winner: how much is lost without this one change,
    negative if it matters. `failure` is the reason if it could not be run.
    """

    parameter: str
    value: Any
    gain: Interval | None = None
    failure: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The results of the best trials on fresh seeds.

    `winner` is the number of the candidate that is feasible and whose interval of the gain excludes
    zero, the best if there are several; None if there is none. `reason` explains the verdict.
    `reverted` shows which of its changes matter, the most important first.
    """

    objective: str
    seeds: tuple[int, ...]
    confidence: float
    baseline: Candidate
    candidates: tuple[Candidate, ...]
    winner: int | None
    reason: str
    best: Simulation
    cliff: Cliff | None
    reverted: tuple[Reverted, ...]
    doubts: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The content of confirmation.json."""
        attrs = frames.provenance(seeds=self.seeds, fingerprint=fingerprint(self.best))
        found = attrs | {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("best", "baseline", "candidates", "cliff", "reverted")
        }
        found["baseline"] = dataclasses.asdict(self.baseline)
        found["candidates"] = [dataclasses.asdict(one) for one in self.candidates]
        found["reverted"] = [dataclasses.asdict(one) for one in self.reverted]
        found["cliff"] = None if self.cliff is None else dataclasses.asdict(self.cliff)
        return found

    def write(self, path: Path) -> None:
        """Writes confirmation.json."""
        with filesystem.replacing(path) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    def __repr__(self) -> str:
        rows = [["trial", self.objective, "gain over the baseline", "constraints"]]
        for one in (self.baseline, *self.candidates):
            name = "baseline" if one is self.baseline else str(one.number)
            if one.failure is not None:
                rows.append([name, one.failure, "", ""])
                continue
            gain = "" if one.gain is None else _shown(one.gain)
            holds = "hold" if one.is_feasible else "violated"
            rows.append([name, _shown(one.value), gain, holds])
        lines = [
            f"{len(self.seeds)} fresh seeds, {self.confidence:.0%} confidence intervals",
            "",
            text.table(rows),
            "",
            self.reason,
        ]
        if self.reverted:
            changes = [["reverted", "to", f"{self.objective} changes by"]]
            for back in self.reverted:
                change = _shown(back.gain) if back.failure is None else "cannot be run"
                changes.append([back.parameter, text.setting(back.value), change])
            lines += ["", text.table(changes), ""]
        if self.cliff is not None:
            lines.append(_cliff_line(self.cliff))
        notes = (*self._on_saturation(), *self.doubts, *notes_on_servers([self.best]))
        lines += [f"note: {one}" for one in notes]
        return "\n".join(lines)

    def _on_saturation(self) -> Iterator[str]:
        """What the winner's verdict means, unless it keeps up."""
        chosen = [one for one in self.candidates if one.number == self.winner]
        for one in chosen:
            if one.saturation not in (None, "unsaturated"):
                yield f"trial {one.number} is {one.saturation}: {_MEANING[one.saturation]}."


def _shown(value: Interval | None) -> str:
    if value is None:
        return ""
    if value.low is None:
        return f"{value.mean:.4g}"
    return f"{value.mean:.4g} [{value.low:.4g}, {value.high:.4g}]"


def _cliff_line(cliff: Cliff) -> str:
    where = f"{cliff.parameter} = {text.setting(cliff.value)}"
    if cliff.failure is not None:
        return f"cliff: with {where} it cannot be run: {cliff.failure}"
    word = "cliff" if cliff.is_steep else "worst neighbor"
    return f"{word}: with {where} the objective changes by {_shown(cliff.gain)}"


def confirm(
    study: StudyData,
    evaluator: Evaluator,
    *,
    top: int,
    seeds: Sequence[int],
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
    ranked = {one.number: one for one in (*first, *study.feasible) if not one.is_baseline}
    trials = list(ranked.values())[:top]
    if not trials:
        raise UsageError("no feasible trial to confirm except the baseline")
    simulations = [study.simulation, *(study.simulation_of(one) for one in trials)]
    if workload is not None:
        simulations = _held_out(simulations, workload)
    found = evaluator.measure_all(simulations, seeds)
    made = [one for one in found if one.failure is None]
    if made and not any(one.is_replicated for one in made):
        raise UsageError(
            f"fresh seeds confirm nothing: {note_on_copies(simulations)} {REPLICATION}"
        )
    judge = _Judge(study, objective, confidence, len(trials))
    base = judge.candidate(study.baseline, found[0], None)
    candidates = [
        judge.candidate(trial, one, found[0]) for trial, one in zip(trials, found[1:], strict=True)
    ]
    winner, reason = judge.verdict(base, candidates)
    chosen = next((i for i, one in enumerate(candidates) if one.number == winner), None)
    cliff: Cliff | None = None
    reverted: tuple[Reverted, ...] = ()
    if chosen is not None:
        near = neighbors(study.bound, trials[chosen].point, within) if within > 0 else []
        back = reversals(study.bound, trials[chosen].point)
        others = [place[-1] for place in (*near, *back)]
        if workload is not None:
            others = [one.replace(workload=workload) for one in others]
        moved = evaluator.measure_all(others, seeds)
        optimum = found[1 + chosen]
        cliff = judge.cliff(near, moved[: len(near)], optimum, found[0])
        reverted = judge.reverted(back, moved[len(near) :], optimum)
    best = study.simulation if chosen is None else study.simulation_of(trials[chosen])
    shown = {"the baseline": base.value}
    for one in candidates:
        shown |= {f"trial {one.number}": one.value, f"the gain of trial {one.number}": one.gain}
    return Confirmation(
        objective=study.objectives[objective].name,
        seeds=tuple(seeds),
        confidence=confidence,
        baseline=base,
        candidates=tuple(candidates),
        winner=winner,
        reason=reason,
        best=best,
        cliff=cliff,
        reverted=reverted,
        doubts=(*doubts(best), *statistics.doubts(shown)),
    )


def _held_out(simulations: Sequence[Simulation], workload: Synthetic | Trace) -> list[Simulation]:
    """The simulations with another workload, which none of them may have changed itself."""
    searched = simulations[0].workload
    if any(one.workload != searched for one in simulations):
        raise UsageError("workload: the study searched settings of the workload; it must be kept")
    return [one.replace(workload=workload) for one in simulations]


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

    def _interval(
        self, values: Sequence[float], confidence: float, metric: int, *measured: Measured
    ) -> Interval:
        """The interval of values that derive from a metric, given by its position."""
        return interval(
            values,
            confidence,
            is_replicated=any(one.is_replicated for one in measured),
            num_blocks=fewest(one.num_blocks for one in measured),
            doubt=next(
                (one.doubts[metric] for one in measured if one.doubts and one.doubts[metric]), ""
            ),
        )

    def gains(self, found: Measured, reference: Measured) -> list[float]:
        """The improvement over the reference, by seed."""
        rows = zip(found.values[self._objective], reference.values[self._objective], strict=True)
        return [self._sign * (mine - other) for mine, other in rows]

    def violations(self, found: Measured) -> list[list[float]]:
        """The signed violations of each constraint, by seed."""
        start = len(self._study.objectives)
        rows = found.values[start : start + len(self._study.constraints)]
        pairs = zip(self._study.constraints, rows, strict=True)
        return [[constraint.violation(value) for value in row] for constraint, row in pairs]

    def is_feasible(self, found: Measured) -> bool:
        """Whether the constraints hold in the mean."""
        return all(sum(row) <= 0 for row in self.violations(found))

    def candidate(self, trial: Trial, found: Measured, base: Measured | None) -> Candidate:
        """A trial with its intervals."""
        if found.failure is not None:
            return Candidate(number=trial.number, point=trial.point, failure=found.failure)
        start = len(self._study.objectives)
        rows = found.values[start : start + len(self._study.constraints)]
        has_gain = base is not None and base.failure is None
        return Candidate(
            number=trial.number,
            point=trial.point,
            value=self._interval(
                found.values[self._objective], self._confidence, self._objective, found
            ),
            gain=self._interval(self.gains(found, base), self._each, self._objective, found, base)
            if has_gain and base
            else None,
            constraints=tuple(
                self._interval(row, self._confidence, start + i, found)
                for i, row in enumerate(rows)
            ),
            is_feasible=self.is_feasible(found),
            saturation=found.saturation,
        )

    def verdict(self, base: Candidate, candidates: Sequence[Candidate]) -> tuple[int | None, str]:
        """The winner, and the reason for it or for the absence of one."""
        feasible = [one for one in candidates if one.is_feasible]
        if not feasible:
            return None, "no winner: on fresh seeds no candidate satisfies the constraints"
        if not base.is_feasible:
            # The baseline is not an alternative, so there is nothing to beat.
            best = self._best(feasible)
            why = base.failure or "it violates a constraint"
            return best.number, f"trial {best.number} wins: the baseline is out ({why})"
        better = [one for one in feasible if one.gain and one.gain.low and one.gain.low > 0]
        if not better:
            return None, "no winner: no candidate's gain over the baseline excludes zero"
        best = self._best(better)
        return (
            best.number,
            f"trial {best.number} wins: {_shown(best.gain)} better than the baseline",
        )

    def _best(self, candidates: Sequence[Candidate]) -> Candidate:
        return max(candidates, key=lambda one: self._sign * one.value.mean if one.value else 0)

    def reverted(
        self,
        places: Sequence[tuple[Parameter, Any, Simulation]],
        moved: Sequence[Measured],
        optimum: Measured,
    ) -> tuple[Reverted, ...]:
        """The worth of each change of the winner, the largest first."""
        found = []
        for (parameter, value, _), one in zip(places, moved, strict=True):
            gain = None
            if one.failure is None:
                gain = self._interval(
                    self.gains(one, optimum), self._confidence, self._objective, one, optimum
                )
            found.append(
                Reverted(parameter=parameter.name, value=value, gain=gain, failure=one.failure)
            )
        return tuple(
            sorted(found, key=lambda one: -math.inf if one.gain is None else one.gain.mean)
        )

    def cliff(
        self,
        places: Sequence[tuple[Parameter, Any, Simulation]],
        around: Sequence[Measured],
        optimum: Measured,
        base: Measured,
    ) -> Cliff | None:
        """The worst neighbor: one that cannot be run, else one that is steep."""
        found = []
        for (parameter, value, _), one in zip(places, around, strict=True):
            where = {"parameter": parameter.name, "value": value}
            if one.failure is not None:
                found.append((-math.inf, Cliff(**where, is_steep=True, failure=one.failure)))
                continue
            gain = self._interval(
                self.gains(one, optimum), self._confidence, self._objective, one, optimum
            )
            is_out = not self.is_feasible(one)
            if gain.high is not None and gain.high < 0 and base.failure is None:
                is_out |= self.is_feasible(base) and sum(self.gains(one, base)) <= 0
            found.append((gain.mean, Cliff(**where, is_steep=is_out, gain=gain)))
        if not found:
            return None
        return min(found, key=lambda pair: (not pair[1].is_steep, pair[0]))[1]


def reversals(bound: BoundSpace, point: Point) -> list[tuple[Parameter, Any, Simulation]]:
    """A point with each changed parameter in turn reverted to the simulation's value."""
    current = bound.current()
    found = []
    for one in bound:
        if one.name not in current or one.name not in point:
            continue
        value = current[one.name]
        if value == point[one.name]:
            continue
        try:
            simulation = bound.apply(bound.complete(point | {one.name: value}))
        except ConfigError:
            continue
        found.append((one, value, simulation))
    return found


def neighbors(
    bound: BoundSpace, point: Point, within: float
) -> list[tuple[Parameter, Any, Simulation]]:
    """The point with each number in turn decreased and increased by a share of itself.

    Integers move by at least one; a value of 0 moves by that share of its range. No value moves to
    0 or past it, where the meaning of a setting may change. Invalid configurations are left out.
    """
    found = []
    for one in bound:
        if one.name not in point or not one.is_numeric:
            continue
        value = point[one.name]
        span = abs(value) * within or (one.high - one.low) * within
        if one.kind == "int":
            span = max(1, round(span))
        for changed in (value - span, value + span):
            inside = min(max(changed, one.valid_low), one.valid_high)
            if inside == value or (value != 0 and inside * value <= 0):
                continue
            try:
                simulation = bound.apply(point | {one.name: inside})
            except ConfigError:
                continue
            found.append((one, inside, simulation))
    return found
