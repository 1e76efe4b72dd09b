"""Whether bounds hold in the mean over seeds: confidence bounds, and seeds added until decided."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

from spillway import loading
from spillway._core.sim import UsageError
from spillway.config import formatting
from spillway.config.messages import note
from spillway.config.progress import reporting
from spillway.config.randomness import note_on_copies
from spillway.data.figures import usual_skewness
from spillway.data.intervals import mean_bounds, of_resamples
from spillway.study.evaluation import Evaluator, as_seeds
from spillway.study.measurements import interval_of
from spillway.study.objective import as_constraints, check_figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from spillway._core.cluster import Simulation
    from spillway.config.progress import Progress
    from spillway.data.intervals import Interval
    from spillway.study.measurements import Measured
    from spillway.study.objective import Constraint


Verdict = Literal["holds", "breaks", "undecided"]
"""Whether a bound holds: its confidence bound says so, or says the contrary, or neither."""

_LEAST_ERROR_OF_EQUALS = 0.05
TIMES = 8
"""The default budget of seeds, as a multiple of those that are given."""


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on several bounds that must all hold."""
    known = set(verdicts)
    if "breaks" in known:
        return "breaks"
    return "undecided" if "undecided" in known else "holds"


def by_interval(constraint: Constraint, value: Interval | None) -> Verdict:
    """The verdict that a two-sided interval shows; that of the mean if there is none."""
    if value is None:
        return "breaks"
    ends = (value.mean,) if value.low is None or value.high is None else (value.low, value.high)
    beyond = [constraint.violation(end) for end in ends]
    if max(beyond) <= 0:
        return "holds"
    return "breaks" if min(beyond) > 0 else "undecided"


def portions(seeds: Sequence[int], max_seeds: int | None) -> list[tuple[int, ...]]:
    """The seeds, then further ones that double their number, up to the budget.

    Raises ValueError for a budget that the seeds already exceed.
    """
    most = TIMES * len(seeds) if max_seeds is None else max_seeds
    if most < len(seeds):
        raise ValueError(f"max_seeds = {most}: must be >= {len(seeds)}, the number of seeds")
    found, used, following = [tuple(seeds)], len(seeds), max(seeds) + 1
    while used < most:
        size = min(used, most - used)
        found.append(tuple(range(following, following + size)))
        used, following = used + size, following + size
    return found


def errors(stages: Sequence[Sequence[int]], error: float) -> list[float]:
    """The probability of error of each look, in proportion to the seeds there are by then.

    They sum to `error`, so that the looks together have it at most. An early look decides what is
    clear, and leaves nearly all of the error to those that know the spread.
    """
    totals = [sum(map(len, stages[: i + 1])) for i in range(len(stages))]
    return [error * total / sum(totals) for total in totals]


def verdict(
    constraint: Constraint, values: Sequence[float], found: Measured, error: float
) -> Verdict:
    """The verdict from the values of a figure, one per seed.

    "holds" and "breaks" are each wrong with a probability of `error` at most: the mean is compared
    with a one-sided confidence bound, which is corrected for skewness. Where seeds change nothing
    the value decides; equal values of n seeds decide if 2 ** -n, the probability that all of them
    are on one side by chance, is at most that.
    """
    beyond = [constraint.violation(value) for value in values]
    if not found.is_replicated and len(values) > 1:
        return "holds" if beyond[0] <= 0 else "breaks"
    if len(values) < 2:
        return "undecided"
    if min(beyond) == max(beyond):
        if 2.0 ** -len(beyond) > max(error, _LEAST_ERROR_OF_EQUALS):
            return "undecided"
        return "holds" if beyond[0] <= 0 else "breaks"
    skewness = usual_skewness(constraint.name) * (1 if constraint.relation == "<=" else -1)
    if found.num_blocks is None:
        low, high = mean_bounds(beyond, error, skewness)
    else:
        interval = of_resamples(beyond, 1 - 2 * error, found.num_blocks, skewness)
        assert interval.low is not None
        assert interval.high is not None
        low, high = interval.low, interval.high
    if high <= 0:
        return "holds"
    return "breaks" if low > 0 else "undecided"


def can_learn(found: Measured) -> bool:
    """Whether further seeds show more.

    Those of identical runs do not. Those of resamples of one trace add no requests, and show only
    whether the values of a few are equal by chance.
    """
    if found.failure is not None:
        return False
    if found.num_blocks is not None:
        return any(
            min(values) == max(values) and 2.0 ** -len(values) > _LEAST_ERROR_OF_EQUALS
            for values in found.values
        )
    return found.is_replicated or len(found.values[0]) == 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """A bound and the verdict on it.

    `value`: the mean of the figure with its two-sided interval; None if it has none, for the reason
    of the judgment's `failure`.
    """

    figure: str
    bound: str
    verdict: Verdict
    value: Interval | None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Judgment:
    """The verdicts on the bounds of one configuration.

    `seeds`: those that were spent. `failure`: why there are no figures, e.g. because no request was
    served; the bounds then break.
    """

    bounds: tuple[Judged, ...]
    seeds: tuple[int, ...]
    confidence: float
    failure: str | None = None

    @property
    def verdict(self) -> Verdict:
        """That on all bounds together."""
        return together(judged.verdict for judged in self.bounds)

    def to_dict(self) -> dict[str, Any]:
        """The verdicts as plain values."""
        return {"verdict": self.verdict, **dataclasses.asdict(self)}

    def __repr__(self) -> str:
        rows = [["figure", "mean", "bound", "verdict"]]
        rows += [[of.figure, str(of.value or "-"), of.bound, of.verdict] for of in self.bounds]
        head = f"{self.verdict} ({self.confidence:.0%} confidence), after {len(self.seeds)} seeds"
        tail = [self.failure] if self.failure else []
        return "\n\n".join([head, formatting.table(rows), *tail])


def judge(
    simulation: loading.Configuration,
    constraints: str | Mapping[str, Any] | Sequence[str | Constraint],
    *,
    seeds: int | Iterable[int] = 4,
    max_seeds: int | None = None,
    confidence: float = 0.95,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Progress = False,
) -> Judgment:
    """Whether bounds hold in the mean over seeds: `holds`, `breaks`, or `undecided`.

    The seeds double until every bound is decided, up to `max_seeds` (8 times their number). A
    verdict `holds` or `breaks` is wrong with a probability of at most 1 - `confidence`, all looks
    together, whatever the distance from the bound.

    Parameters
    ----------
    simulation
        The simulation, or the path of its file.
    constraints
        Bounds of figures, as for a study, e.g. "p99_ttft_ms[gold] <= 500".
    seeds, max_seeds
        The first seeds, or their number, and the most that are spent.
    confidence
        Of each verdict, > 0.5 and < 1.
    threads, executor, progress
        As for a study.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
    >>> spillway.study.judge(simulation, ["p99_ttft_ms <= 0.5s", "p50_ttft_ms <= 1ms"]).verdict
    'breaks'
    """
    simulation = loading.as_simulation(simulation)
    given = as_constraints(constraints)
    check_figures(constraint.metric for constraint in given)
    if not given:
        raise UsageError("constraints: must hold at least one")
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence = {confidence:g}: must be > 0.5 and < 1")
    evaluator = Evaluator(
        [constraint.metric for constraint in given], threads=threads, executor=executor
    )
    with reporting(progress, "runs") as evaluator.report:
        found, verdicts, used = spend(
            evaluator, simulation, given, portions(as_seeds(seeds), max_seeds), 1 - confidence
        )
    if found.failure is None and len(used) > 1 and not found.is_replicated:
        note(note_on_copies([simulation]))
    values: list[Interval | None] = [None] * len(given)
    if found.failure is None:
        values = [
            interval_of(row, confidence, constraint.name, i, found)
            for i, (constraint, row) in enumerate(zip(given, found.values, strict=True))
        ]
    judged = zip(given, verdicts, values, strict=True)
    return Judgment(
        bounds=tuple(
            Judged(figure=c.name, bound=f"{c.relation} {c.bound:g}", verdict=said, value=value)
            for c, said, value in judged
        ),
        seeds=used,
        confidence=confidence,
        failure=found.failure,
    )


def spend(
    evaluator: Evaluator,
    simulation: Simulation,
    constraints: Sequence[Constraint],
    stages: Sequence[tuple[int, ...]],
    error: float,
) -> tuple[Measured, list[Verdict], tuple[int, ...]]:
    """Measures one portion of seeds after the other, until every bound is decided.

    The evaluator's first metrics are those of the constraints. Of several bounds, one that breaks
    decides, and has its share of the error. Returns the measurements, the verdict on each bound,
    and the seeds spent; without figures all break.
    """
    found: Measured | None = None
    said: list[Verdict] = []
    for i, (portion, share) in enumerate(zip(stages, errors(stages, error), strict=True)):
        (measured,) = evaluator.measure_all([simulation], portion)
        found = measured if found is None else found.followed_by(measured)
        used = tuple(seed for stage in stages[: i + 1] for seed in stage)
        if found.failure is not None:
            return found, ["breaks"] * len(constraints), used
        allowed = share if can_learn(found) else error
        rows = found.values[: len(constraints)]
        said = [
            verdict(constraint, row, found, allowed)
            for constraint, row in zip(constraints, rows, strict=True)
        ]
        if "breaks" in said and len(constraints) > 1:
            strict = [
                verdict(constraint, row, found, allowed / len(constraints))
                for constraint, row in zip(constraints, rows, strict=True)
            ]
            said = [
                "undecided" if known == "breaks" != sure else known
                for known, sure in zip(said, strict, strict=True)
            ]
        if together(said) != "undecided" or not can_learn(found):
            break
    assert found is not None
    return found, said, used
