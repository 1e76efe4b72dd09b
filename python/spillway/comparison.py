"""Comparisons of systems under common random numbers, with simultaneous intervals."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from spillway.config import text
from spillway.config.classes import config_error
from spillway.config.files import fingerprint
from spillway.config.messages import checked
from spillway.config.provenance import is_unvalidated
from spillway.config.randomness import note_on_copies, num_blocks
from spillway.data import effective, frames
from spillway.data.figures import FIGURES, is_share
from spillway.data.statistics import Interval, fewest, interval, student_t_quantile
from spillway.report import page
from spillway.report.tables import joined
from spillway.simulate import run_many

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes

    from spillway._core.cluster import Simulation
    from spillway.config.progress import Progress
    from spillway.loading import Configuration
    from spillway.report.tables import Parts

__all__ = ["DEFAULT_FIGURES", "Comparison", "Outcome", "Verdict", "compare"]


DEFAULT_FIGURES = (
    "goodput",
    "mean_ttft_ms",
    "p99_ttft_ms",
    "mean_e2el_ms",
    "p99_e2el_ms",
    "rejected",
)
"""The figures that `compare` compares by default; those without values are left out."""

Outcome = Literal["better", "worse", "same", "undecided", "not comparable"]

_LEAST_SEEDS = 2
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
        _checked_share("power", power, 0.5)
        if self.sd is None or self.difference.low is None or not self.before:
            return None
        return _seeds_for(abs(relative_difference * self.before), self.sd, self.level, power)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Systems compared with a baseline, or all with each other, figure by figure.

    Attributes
    ----------
    verdicts
        One per figure and pair of systems, by pair, then figure.
    names
        The systems in order; the first is the baseline, unless all pairs are compared.
    seeds
        The seeds of the runs of every system.
    confidence
        Probability with which all intervals hold together, over all figures, pairs and looks.
    level
        Confidence of each interval: `1 - (1 - confidence) / (verdicts * looks)` (Bonferroni).
    looks
        After how many seeds a sequential comparison may stop; one number otherwise.
    reached_half_width
        Whether every interval is as narrow as `half_width`; None if none was given.
    notes
        Remarks on the comparison as a whole, as sentences. A system that does not keep up with its
        load under the first seed is among them (see `Result.saturation`).
    unvalidated
        The systems with servers whose step times are computed, not measured.
    fingerprints
        Digests of the systems' settings and Spillway's version, in the order of the names.
    """

    verdicts: tuple[Verdict, ...]
    names: tuple[str, ...]
    seeds: tuple[int, ...]
    confidence: float
    level: float
    looks: tuple[int, ...]
    reached_half_width: bool | None
    notes: tuple[str, ...]
    unvalidated: tuple[str, ...]
    fingerprints: tuple[str, ...]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The compared systems: the baseline of each pair and its challenger."""
        return tuple(dict.fromkeys((one.baseline, one.challenger) for one in self.verdicts))

    @property
    def _is_all_pairs(self) -> bool:
        return any(baseline != self.names[0] for baseline, _ in self.pairs)

    def __getitem__(self, key: tuple[str, str] | tuple[str, str, str]) -> Verdict:
        """The verdict of (challenger, figure) against the first system.

        With all pairs also that of (challenger, baseline, figure); of a pair, the system that is
        named first in `names` is the baseline. KeyError if there is none.
        """
        challenger, *against, figure = key
        wanted = (challenger, against[0] if against else self.names[0], figure)
        for one in self.verdicts:
            if (one.challenger, one.baseline, one.figure) == wanted:
                return one
        raise KeyError(key)

    def __str__(self) -> str:
        return joined(self._parts())

    def _repr_html_(self) -> str:
        return page.tables(*self._parts())

    def report(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Writes the comparison as one HTML file: verdicts, notes and the forest plot.

        The file needs nothing else. The picture needs the extra `plot`.

        Raises ConfigError if the file cannot be written.
        """
        pieces = [
            page.tables(*self._parts()),
            page.chart(
                f"Differences from {self._reference}",
                self.plot,
                height=1.5 + 0.35 * len(self.verdicts),
            ),
        ]
        prints = ", ".join(map("{} {}".format, self.names, self.fingerprints))
        pieces.append(page.provenance(prints, self.seeds))
        page.save(path, title or f"Spillway: {' against '.join(self.names)}", pieces)

    @property
    def _reference(self) -> str:
        return "the baseline of each pair" if self._is_all_pairs else self.names[0]

    def _parts(self) -> Parts:
        which = "all pairs" if self._is_all_pairs else f"baseline {self.names[0]}"
        head = (
            f"{which}, {len(self.seeds)} seeds, paired; all intervals hold "
            f"together with {self.confidence:.4g} confidence ({self.level:.6g} each)"
        )
        blocks = []
        for baseline, challenger in self.pairs:
            title = f"{challenger} against {baseline}" if self._is_all_pairs else challenger
            header = [title, "baseline", "mean", "difference", "low", "high", "", "verdict"]
            own = (v for v in self.verdicts if (v.baseline, v.challenger) == (baseline, challenger))
            blocks.append([header, *([one.figure, *_cells(one)] for one in own)])
        remarks = [*self.notes, *(dict.fromkeys(v.note for v in self.verdicts if v.note))]
        if self.unvalidated:
            names = ", ".join(self.unvalidated)
            remarks.append(f"step times are computed, not measured (unvalidated): {names}.")
        return head, blocks, remarks

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """The comparison as numbers, texts and lists, for JSON."""
        found = frames.provenance(seeds=self.seeds, fingerprint=self.fingerprints)
        found |= dataclasses.asdict(self)
        del found["fingerprints"]
        for row, one in zip(found["verdicts"], self.verdicts, strict=True):
            row["relative"] = one.relative
        return found

    def to_frame(self) -> pd.DataFrame:
        """The verdicts as a long pandas DataFrame (extra `frames`).

        One row per verdict: figure, value (the mean paired difference), low, high, n, unit,
        population, the other attributes of `Verdict`, with `sizes` for its `populations`, and
        `relative`. `attrs` holds schema, version, seeds and the fingerprint of each system.
        """
        rows = []
        for one in self.verdicts:
            row = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
            row["sizes"] = row.pop("populations")
            shown = frames.described(one.figure, row.pop("difference"))
            rows.append({**shown, **row, "relative": one.relative})
        attrs = frames.provenance(seeds=self.seeds, fingerprint=self.fingerprints)
        return frames.frame(rows, attrs)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Forest plot: relative differences from the baseline with their intervals, in percent.

        Verdicts whose baseline is zero, or that have no interval, are left out. Draws into `ax`, or
        else into new axes (extra `plot`).
        """
        from spillway.report.style import STYLES, UNVALIDATED, axes_or_new, ink, mark

        axes = axes_or_new(ax)
        colors = {"better": STYLES[2]["color"], "worse": STYLES[1]["color"]}
        shown = [one for one in self.verdicts if one.relative_half_width is not None]

        def label(one: Verdict) -> str:
            name = FIGURES[one.figure].label
            if self._is_all_pairs:
                return f"{name}, {one.challenger} against {one.baseline}"
            return f"{name}, {one.challenger}" if len(self.names) > 2 else name

        for place, one in enumerate(shown):
            percent = 100 / abs(one.before)
            axes.errorbar(
                percent * one.difference.mean,
                place,
                xerr=[[percent * reach] for reach in one.difference.reaches],
                color=colors.get(one.outcome, "#777777"),
                marker="o" if one.outcome in colors else "s",
                markerfacecolor=None if one.outcome in colors else axes.get_facecolor(),
                capsize=3,
            )
        axes.axvline(0, color=ink(axes), linewidth=0.8)
        axes.set_yticks(range(len(shown)), list(map(label, shown)))
        axes.invert_yaxis()
        axes.set_xlabel(f"difference from {self._reference} (%)")
        if self.unvalidated:
            mark(axes, UNVALIDATED)
        return axes


def compare(
    systems: Mapping[str, Configuration],
    *,
    seeds: int | Iterable[int] = 16,
    figures: Iterable[str] | None = None,
    all_pairs: bool = False,
    confidence: float = 0.95,
    half_width: float | None = None,
    max_seeds: int | None = None,
    allow_different_populations: bool = False,
    allow_different_workloads: bool = False,
    threads: int | None = None,
    progress: Progress = False,
) -> Comparison:
    """Compares systems with the first of them, or all with each other, paired by seed.

    Systems that share a workload see the same requests under the same seed, so noise that they
    share cancels in the difference. All intervals hold together with the given confidence: the
    error is divided evenly among figures, pairs and looks (Bonferroni).

    With `half_width` the number of seeds doubles until every interval is that narrow. The looks are
    planned in advance, and each gets its share of the error, so stopping early does not raise it.

    Parameters
    ----------
    systems
        Simulations, or paths of configuration files, by name; at least two. The first is the
        baseline.
    seeds
        How many seeds, >= 2 (0, 1, …), or the seeds themselves. With `half_width` those of the
        first look; later looks add seeds that follow the largest.
    figures
        Keys of `Result.summary` for which higher or lower is better. None: those of
        `DEFAULT_FIGURES` that have values.
    all_pairs
        Whether to judge every pair of systems, e.g. the best against the runner-up, which is known
        only afterwards. Of k systems there are k (k - 1) / 2 pairs instead of k - 1, so intervals
        are wider. The system that is named earlier is the baseline of its pair.
    confidence
        Probability, 0.5 <= confidence < 1, with which all intervals hold together.
    half_width
        Half the width of every interval at which a sequential comparison stops, as a share of the
        mean of the baseline, > 0: 0.02 is 2%. Figures whose baseline is zero do not count, nor do
        those whose difference is the same under every seed.
    max_seeds
        Largest number of seeds with `half_width`; None: 8 times the first look.
    allow_different_populations
        Whether to judge latencies over different numbers of requests. Latencies cover only
        requests that were served: a system that rejects more looks faster. False: the verdict is
        "not comparable" if the numbers differ by more than a tenth of the tail that a percentile
        cuts off (p99: 0.1%), or by more than 1% for means.
    allow_different_workloads
        Whether to judge systems whose workloads differ: the difference is then also that of the
        requests. False: the verdict is "not comparable".
    threads
        Number of concurrent runs; None: one per CPU. The comparison does not depend on it.
    progress
        As for `run_many`, once per look.

    Raises
    ------
    ConfigError
        If an argument is out of range, a figure is unknown or has no better direction, no figure
        has values, or a system cannot be run. Also with `half_width` if the seeds are resamples of
        a trace: more of them do not narrow an interval.

    Notes
    -----
    The intervals are those of Student's t on paired differences. Law, *Simulation Modeling and
    Analysis*, 5th ed., sections 10.2.1 (paired t), 10.4 (several systems, with a baseline or all
    pairs) and 11.2 (common random numbers).

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(
    ...     workload={"kind": "synthetic", "num_requests": 300, "requests_per_s": 20}
    ... )
    >>> limit = {"kind": "fixed", "max_in_flight": 4}
    >>> systems = {"open": simulation, "limited": simulation.with_({"gateway.limit": limit})}
    >>> comparison = spillway.compare(systems, seeds=4)
    >>> comparison["limited", "mean_ttft_ms"].outcome
    'worse'
    """
    from spillway import loading

    configurations = checked("systems", systems, Mapping, "a mapping of names to simulations")
    if len(configurations) < 2:
        raise config_error([("systems", f"{len(configurations)} systems", "must be at least two")])
    names = tuple(str(name) for name in configurations)
    simulations = [loading.as_simulation(one) for one in configurations.values()]
    _checked_share("confidence", confidence, 0.5)
    first = _checked_seeds(seeds)
    looks = _planned_looks(len(first), half_width, max_seeds)
    chosen = None if figures is None else _checked_figures(figures)
    judges_all = checked("all_pairs", all_pairs, bool, "True or False")
    pairs = [
        (i, j) for i, j in itertools.combinations(range(len(names)), 2) if judges_all or i == 0
    ]
    blocks = fewest(num_blocks(one) for one in simulations)
    if blocks is not None and half_width is not None:
        allowed = (
            "must be None if seeds are resamples of a trace: more of them do not narrow an "
            "interval, a longer trace does"
        )
        raise config_error([("half_width", f"{half_width:g}", allowed)])

    used: list[int] = []
    values: list[list[Mapping[str, Any]]] = [[] for _ in simulations]
    is_replicated = [False] * len(simulations)
    verdicts: tuple[Verdict, ...] = ()
    level = confidence
    reached: bool | None = None
    for look in looks:
        extra = first if not used else _following(used, look - len(used))
        many = run_many(simulations, extra, threads=threads, progress=progress)
        for i, runs in enumerate(many):
            values[i] += [result.summary() for result in runs]
            is_replicated[i] = is_replicated[i] or runs.is_replicated
        used += extra
        if chosen is None:
            chosen = _with_values(DEFAULT_FIGURES, values)
        level = 1 - (1 - confidence) / (len(chosen) * len(pairs) * len(looks))
        verdicts = tuple(
            _verdict(
                figure,
                (names[i], names[j]),
                values[i],
                values[j],
                level,
                is_random=is_replicated[i] or is_replicated[j],
                blocks=blocks,
                allowed=allow_different_populations,
                same_workload=allow_different_workloads
                or simulations[i].workload == simulations[j].workload,
            )
            for i, j in pairs
            for figure in chosen
        )
        if half_width is not None:
            reached = all(_is_narrow(one, half_width) for one in verdicts)
            if reached or not any(is_replicated):
                break
    return Comparison(
        verdicts=verdicts,
        names=names,
        seeds=tuple(used),
        confidence=confidence,
        level=level,
        looks=looks,
        reached_half_width=reached,
        notes=(
            *_notes(simulations, is_replicated, resampled=blocks is not None),
            *_notes_on_saturation(names, simulations, first[0], threads),
        ),
        unvalidated=tuple(
            name for name, one in zip(names, simulations, strict=True) if is_unvalidated(one)
        ),
        fingerprints=tuple(map(fingerprint, simulations)),
    )


def _verdict(
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
    """Judges one figure from its values under the same seeds."""
    baseline, challenger = names
    pairs = [(one[figure], two[figure]) for one, two in zip(before, after, strict=True)]
    known = [(float(one), float(two)) for one, two in pairs if None not in (one, two)]
    if not known:
        raise config_error(
            [
                (
                    "figures",
                    repr(figure),
                    f"must have values in both {baseline} and {challenger} under the same seed",
                )
            ]
        )
    gaps = [two - one for one, two in known]
    doubts = () if blocks is None else (effective.doubt(figure, runs) for runs in (before, after))
    difference = interval(
        gaps,
        level,
        is_replicated=is_random,
        is_share=is_share(figure),
        num_blocks=blocks,
        doubt=next(filter(None, doubts), ""),
    )
    mean = difference.mean
    sd = None if difference.n < 2 else _sd(gaps)
    means = [math.fsum(one) / len(known) for one in zip(*known, strict=True)]
    counts = _populations(figure, before, after)
    notes = []
    if difference.doubt:
        notes.append(f"the interval of {figure} is doubtful: {difference.doubt}.")
    if len(known) < len(pairs):
        notes.append(
            f"{figure} has a value in both systems under {len(known)} of {len(pairs)} seeds; the "
            "verdict holds for these."
        )

    outcome: Outcome = "undecided"
    if is_random and not any(gaps):
        outcome = "same"
    elif difference.excludes_zero(level):
        is_better = (mean > 0) == (FIGURES[figure].better == "higher")
        outcome = "better" if is_better else "worse"
    if counts is not None and _differ(figure, counts):
        unit = FIGURES[f"num_{FIGURES[figure].latency}"].unit
        what = (
            f"{FIGURES[figure].latency} is that of {text.number(counts[0])} {unit} per run in "
            f"{baseline} and of {text.number(counts[1])} in {challenger}"
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


def _cells(one: Verdict) -> list[str]:
    gap = one.difference
    share = "" if one.relative is None else f"{one.relative:+.1%}"
    outcome: str = one.outcome
    if one.more_seeds is not None:
        outcome += f"; {one.more_seeds:,} more seeds"
    numbers = (one.before, one.after, gap.mean, gap.low, gap.high)
    return [*(text.number(value) for value in numbers), share, outcome]


def _populations(
    figure: str, before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> tuple[float, float] | None:
    latency = FIGURES[figure].latency
    if not latency:
        return None
    one, two = (
        math.fsum(values[f"num_{latency}"] for values in runs) / len(runs)
        for runs in (before, after)
    )
    return one, two


def _differ(figure: str, counts: tuple[float, float]) -> bool:
    """Whether the sizes of two populations are too different for this statistic."""
    statistic = FIGURES[figure].statistic
    tolerance = _MEAN_TOLERANCE
    if statistic.startswith("p"):
        tolerance = (1 - float(statistic[1:]) / 100) / 10
    return abs(counts[0] - counts[1]) > tolerance * max(counts)


def _sd(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((one - mean) ** 2 for one in values) / (len(values) - 1))


def _seeds_for(difference: float, sd: float, level: float, power: float) -> int | None:
    """The least number of paired seeds that find a difference with this probability."""

    def suffices(n: int) -> bool:
        dof = min(n - 1, 100)  # beyond, Student's t is within 2% of its limit, and slow
        reach = student_t_quantile(0.5 + level / 2, dof) + student_t_quantile(power, dof)
        return reach * sd <= difference * math.sqrt(n)

    high = _LEAST_SEEDS
    while not suffices(high):
        high *= 2
        if high > _MOST_SEEDS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if middle > 1 and suffices(middle) else (middle, high)
    return high


def _is_narrow(one: Verdict, half_width: float) -> bool:
    if not one.before or one.sd == 0:
        return True
    half = one.relative_half_width
    return half is not None and half <= half_width


def _notes(
    simulations: Sequence[Simulation], is_replicated: Sequence[bool], *, resampled: bool
) -> list[str]:
    if not any(is_replicated):
        return [
            note_on_copies(simulations),
            "The differences are those of this one run; they say nothing about other traffic.",
        ]
    notes = []
    if resampled:
        notes.append(
            "seeds are resamples of a trace: the intervals are those over traces of this length, "
            "and more seeds do not narrow them."
        )
    if any(one.workload != simulations[0].workload for one in simulations[1:]):
        notes.append(
            "the workloads differ, so the systems do not see the same requests, and a difference "
            "is also that of the workloads; allow_different_workloads (in a shell "
            "--allow-different-workloads) judges it nevertheless."
        )
    return notes


def _notes_on_saturation(
    names: Sequence[str], simulations: Sequence[Simulation], seed: int, threads: int | None
) -> list[str]:
    """Which systems do not keep up with their load, by one run of each with its requests."""
    kept = run_many(simulations, [seed], threads=threads, keep_requests=True)
    found = []
    for name, (result,) in zip(names, kept, strict=True):
        if result.has_requests:
            saturation = result.saturation()
            if saturation.verdict != "unsaturated" and saturation.drift_per_s is not None:
                found.append(f"{name}, seed {seed}: {saturation}.")
    return found


def _with_values(
    figures: Iterable[str], values: Sequence[Sequence[Mapping[str, Any]]]
) -> tuple[str, ...]:
    """The figures that have a value in every run of every system, in order."""
    found = tuple(
        name for name in figures if all(run[name] is not None for runs in values for run in runs)
    )
    if not found:
        raise config_error([("figures", "None", f"must be given: no run has {', '.join(figures)}")])
    return found


def _following(used: Sequence[int], count: int) -> list[int]:
    start = max(used) + 1
    return list(range(start, start + count))


def _planned_looks(first: int, half_width: float | None, most: int | None) -> tuple[int, ...]:
    if half_width is None:
        if most is not None:
            raise config_error([("max_seeds", str(most), "must be None without half_width")])
        return (first,)
    if not 0 < half_width < math.inf:
        raise config_error([("half_width", f"{half_width:g}", "must be > 0")])
    most = 8 * first if most is None else operator.index(most)
    if most < first:
        raise config_error([("max_seeds", str(most), f"must be >= {first}, the first look")])
    looks = [first]
    while 2 * looks[-1] <= most:
        looks.append(2 * looks[-1])
    return tuple(looks) if looks[-1] == most else (*looks, most)


def _checked_seeds(seeds: int | Iterable[int]) -> list[int]:
    if isinstance(seeds, SupportsIndex):
        count = operator.index(seeds)
        many = list(range(max(count, 0)))
    else:
        many = list(checked("seeds", seeds, Iterable, "a whole number, or several"))
    if len(many) < _LEAST_SEEDS:
        raise config_error([("seeds", f"{seeds!r}", f"must be at least {_LEAST_SEEDS} seeds")])
    return many


def _checked_figures(figures: Iterable[str]) -> tuple[str, ...]:
    if isinstance(figures, str):
        raise TypeError(f"figures must be several names, not {figures!r}")
    many = tuple(dict.fromkeys(figures))
    allowed = [name for name, one in FIGURES.items() if one.better != "neither"]
    problems = [
        (f"figures[{i}]", repr(name), f"must be one of {', '.join(allowed)}")
        for i, name in enumerate(many)
        if name not in allowed
    ]
    if not many:
        problems = [("figures", "()", "must name at least one figure")]
    if problems:
        raise config_error(problems)
    return many


def _checked_share(name: str, value: float, least: float) -> None:
    if not least <= value < 1:
        raise config_error([(name, f"{value:g}", f"must be >= {least:g} and < 1")])
