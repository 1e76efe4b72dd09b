"""The verdict on a figure of two systems, from its values under the same seeds."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from spillway.config import formatting
from spillway.config.classes import config_error
from spillway.data import effective
from spillway.data.figures import FIGURES, is_share, of_group
from spillway.data.intervals import Interval, interval, spread, student_t_quantile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


Outcome = Literal["better", "worse", "same", "undecided", "not comparable"]
"""What a comparison says of a figure of the second system."""


_MEAN_TOLERANCE = 0.01


_MOST_SEEDS = 10**6


_POWER = 0.9


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One figure of one challenger against a baseline: the first system, or another of the pair.

    Attributes
    ----------
    figure, challenger, baseline
        The key of the figure in `Result.summary`, and the names of the two systems.
    outcome
        "better" or "worse" if the interval of the difference excludes zero, or a share differs by
        the same amount under so many seeds that their signs alone show it; "same" if the
        difference is exactly zero under every seed; "undecided" otherwise. "not comparable": the
        figure is over different numbers of requests (see `populations`), or the systems have
        different workloads.
    before, after
        Means over the seeds of the baseline and of the challenger, in the unit of the figure.
    difference
        Mean of `after - before`, paired by seed, with its interval at the level of
        `Comparison.level`, in the unit of the figure. A share that differs by the same amount
        under every seed has none.
    sd
        Standard deviation of the paired differences; None with fewer than two.
    level
        Confidence of this interval alone; all intervals hold together with that of the comparison.
    populations
        Mean number of requests (for `itl`: gaps) behind a latency in the baseline and in the
        challenger; None for figures over all requests.
    more_seeds
        How many more seeds find a true difference as large as the one observed, with a probability
        of 90%. None if the outcome is not "undecided", or if no number of seeds does.
    note
        What limits the verdict; empty if nothing does.
    """

    figure: str
    challenger: str
    baseline: str
    outcome: Outcome
    before: float
    after: float
    difference: Interval
    sd: float | None
    level: float
    populations: tuple[float, float] | None
    more_seeds: int | None
    note: str = ""

    @property
    def relative(self) -> float | None:
        """The difference as a share of the baseline; None if the baseline is zero."""
        return self.difference.mean / abs(self.before) if self.before else None

    @property
    def relative_half_width(self) -> float | None:
        """Half the width of the interval as a share of the baseline; None without either."""
        half = self.difference.half_width
        return None if half is None or not self.before else half / abs(self.before)

    def seeds_for(self, relative_difference: float, power: float = _POWER) -> int | None:
        """How many seeds in total find a true difference of this size.

        Parameters
        ----------
        relative_difference
            The size as a share of the baseline, > 0: 0.02 is 2%.
        power
            The probability of finding it, 0.5 <= power < 1.

        Returns
        -------
        The number of seeds at which `(t(level) + t(power)) * sd / sqrt(n)` falls to the difference,
        with the quantiles of Student's t. The standard deviation is an estimate, so the number is
        too. None if the baseline is zero, if there is no interval, or above a million.
        """
        if not relative_difference > 0:
            raise config_error([("relative_difference", f"{relative_difference:g}", "must be > 0")])
        checked_share("power", power, 0.5)
        if self.sd is None or self.difference.low is None or not self.before:
            return None
        return _seeds_for(abs(relative_difference * self.before), self.sd, self.level, power)


def judge(
    figure: str,
    names: tuple[str, str],
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    level: float,
    *,
    is_random: bool,
    blocks: float | None,
    allowed: bool,
    same_workload: bool,
) -> Verdict:
    """Judges one figure from the figures of its population under the same seeds."""
    baseline, challenger = names
    name, _ = of_group(figure)
    pairs = [(old[name], new[name]) for old, new in zip(before, after, strict=True)]
    known = [(float(old), float(new)) for old, new in pairs if None not in (old, new)]
    if not known:
        needed = f"must have values in both {baseline} and {challenger} under the same seed"
        raise config_error([("figures", repr(figure), needed)])
    gaps = [new - old for old, new in known]
    caveats = () if blocks is None else (effective.caveat(name, runs) for runs in (before, after))
    difference = interval(
        gaps,
        level,
        is_replicated=is_random,
        is_share=is_share(figure),
        is_difference=True,
        num_blocks=blocks,
        caveat=next(filter(None, caveats), ""),
    )
    mean = difference.mean
    sd = None if difference.n < 2 else spread(gaps)
    means = [math.fsum(values) / len(known) for values in zip(*known, strict=True)]
    counts = _populations(name, before, after)
    notes = []
    if difference.caveat:
        notes.append(f"the interval of {figure} is doubtful: {difference.caveat}.")
    if len(known) < len(pairs):
        notes.append(
            f"{figure} has a value in both systems under {len(known)} of {len(pairs)} seeds; the "
            "verdict holds for these."
        )

    outcome: Outcome = "undecided"
    if is_random and not any(gaps):
        outcome = "same"
    elif difference.excludes_zero(level):
        is_better = (mean > 0) == (FIGURES[name].better == "higher")
        outcome = "better" if is_better else "worse"
    if counts is not None and _differ(name, counts):
        latency = FIGURES[name].latency
        ours, theirs = map(formatting.number, counts)
        what = (
            f"{latency} is that of {ours} {FIGURES[f'num_{latency}'].unit} per run in {baseline} "
            f"and of {theirs} in {challenger}"
        )
        if allowed:
            notes.append(f"{what}; the difference includes that of the populations.")
        else:
            outcome = "not comparable"
            notes.append(f"{what}; compare goodput, or allow different populations.")
    if not same_workload:
        outcome = "not comparable"
    more = None
    if outcome == "undecided" and sd and mean and blocks is None:
        total = _seeds_for(abs(mean), sd, level, _POWER)
        more = None if total is None else max(total - len(known), 1)
    return Verdict(
        figure=figure,
        challenger=challenger,
        baseline=baseline,
        outcome=outcome,
        before=means[0],
        after=means[1],
        difference=difference,
        sd=sd,
        level=level,
        populations=counts,
        more_seeds=more,
        note=" ".join(notes),
    )


def _populations(
    figure: str, before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> tuple[float, float] | None:
    latency = FIGURES[figure].latency
    if not latency:
        return None
    old, new = (math.fsum(run[f"num_{latency}"] for run in runs) for runs in (before, after))
    return old / len(before), new / len(after)


def _differ(figure: str, counts: tuple[float, float]) -> bool:
    """Whether the sizes of two populations are too different for this statistic."""
    statistic = FIGURES[figure].statistic
    tolerance = _MEAN_TOLERANCE
    if statistic.startswith("p"):
        tolerance = (1 - float(statistic[1:]) / 100) / 10
    return abs(counts[0] - counts[1]) > tolerance * max(counts)


def _seeds_for(difference: float, sd: float, level: float, power: float) -> int | None:
    """The least number of paired seeds that find a difference with this probability."""

    def suffices(n: int) -> bool:
        dof = min(n - 1, 100)  # beyond, Student's t is within 2% of its limit, and slow
        reach = student_t_quantile(0.5 + level / 2, dof) + student_t_quantile(power, dof)
        return reach * sd <= difference * math.sqrt(n)

    numbers = range(2, _MOST_SEEDS + 1)
    place = bisect.bisect_left(numbers, True, key=suffices)
    return numbers[place] if place < len(numbers) else None


def checked_share(name: str, value: float, least: float) -> None:
    """Raises ConfigError unless `least` <= value < 1."""
    if not least <= value < 1:
        raise config_error([(name, f"{value:g}", f"must be >= {least:g} and < 1")])
