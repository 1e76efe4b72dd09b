"""Runs of several systems under the same seeds, with verdicts after each look."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

from spillway.comparison.comparison import Comparison
from spillway.comparison.verdict import Verdict, checked_share, judge
from spillway.config.classes import config_error
from spillway.config.files import fingerprint
from spillway.config.messages import checked
from spillway.config.provenance import is_unvalidated
from spillway.config.randomness import note_on_copies, num_blocks
from spillway.data.figures import FIGURES, of_group, populations
from spillway.data.intervals import fewest
from spillway.simulate import run_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway._core.cluster import Simulation
    from spillway.config.progress import Progress
    from spillway.loading import Configuration
    from spillway.result import Result


DEFAULT_FIGURES = (
    "goodput",
    "mean_ttft_ms",
    "p99_ttft_ms",
    "mean_e2el_ms",
    "p99_e2el_ms",
    "rejected",
)
"""The figures that `compare` compares by default; those without values are left out."""

_GUARDS = (
    *("p99_ttft_ms", "p99_tpot_ms", "p99_e2el_ms", "goodput", "rejected", "expired"),
    "jain_tenant",
)
"""Headline figures that are watched even where they are not compared."""


_LEAST_SEEDS = 2


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
        Keys of `Result.summary` for which higher or lower is better, also of a class or tenant:
        "p99_ttft_ms[gold]". None: those of `DEFAULT_FIGURES` that have values.
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

    Headline figures (p99 of TTFT, of the time per token and of the latency, goodput, rejected and
    expired requests, fairness) that are not compared are watched: a note names one that worsens
    significantly, with a constraint for searches.

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
    simulations = [loading.as_simulation(known) for known in configurations.values()]
    checked_share("confidence", confidence, 0.5)
    first = _checked_seeds(seeds)
    looks = _planned_looks(len(first), half_width, max_seeds)
    chosen = None if figures is None else _checked_figures(figures)
    judges_all = checked("all_pairs", all_pairs, bool, "True or False")
    every = itertools.combinations(range(len(names)), 2)
    pairs = [(i, j) for i, j in every if judges_all or i == 0]
    blocks = fewest(num_blocks(simulation) for simulation in simulations)
    if blocks is not None and half_width is not None:
        allowed = (
            "must be None if seeds are resamples of a trace: more of them do not narrow an "
            "interval, a longer trace does"
        )
        raise config_error([("half_width", f"{half_width:g}", allowed)])

    used: list[int] = []
    values: list[list[Mapping[str, Any]]] = [[] for _ in simulations]
    groups: list[dict[str, list[Mapping[str, Any]]]] = [{} for _ in simulations]
    is_replicated = [False] * len(simulations)
    verdicts: tuple[Verdict, ...] = ()
    level = confidence
    reached: bool | None = None
    for look in looks:
        following = itertools.count(max(used, default=0) + 1)
        extra = list(itertools.islice(following, look - len(used))) if used else first
        results = run_many(simulations, extra, threads=threads, progress=progress)
        for i, runs in enumerate(results):
            values[i] += [result.summary() for result in runs]
            for group in dict.fromkeys(of_group(figure)[1] for figure in chosen or ()):
                found = [_population(result, group) for result in runs]
                groups[i].setdefault(group, []).extend(found)
            is_replicated[i] = is_replicated[i] or runs.is_replicated
        used += extra
        if chosen is None:
            chosen = _with_values(DEFAULT_FIGURES, values)
        level = 1 - (1 - confidence) / (len(chosen) * len(pairs) * len(looks))
        verdicts = tuple(
            judge(
                figure,
                (names[i], names[j]),
                groups[i].get(of_group(figure)[1], values[i]),
                groups[j].get(of_group(figure)[1], values[j]),
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
            reached = all(_is_narrow(verdict, half_width) for verdict in verdicts)
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
            *_notes_on_guards(
                names,
                pairs,
                chosen or (),
                values,
                confidence,
                is_random=is_replicated,
                blocks=blocks,
            ),
            *_notes_on_saturation(names, simulations, first[0], threads),
        ),
        unvalidated=tuple(itertools.compress(names, map(is_unvalidated, simulations))),
        fingerprints=tuple(map(fingerprint, simulations)),
    )


def watch(
    before: Configuration,
    after: Configuration,
    *,
    seeds: Iterable[int],
    known: Iterable[str] = (),
    confidence: float = 0.95,
    threads: int | None = None,
    progress: Progress = False,
) -> list[str]:
    """Headline figures, other than those that are `known`, that worsen significantly: a line each.

    For the result of a search, `known` are its objectives and constraints. Other arguments are
    those of `compare`.
    """
    from spillway import loading

    simulations = [loading.as_simulation(given) for given in (before, after)]
    results = run_many(simulations, list(seeds), threads=threads, progress=progress)
    return _notes_on_guards(
        ("the current configuration", "the best one"),
        [(0, 1)],
        list(known),
        [[run.summary() for run in runs] for runs in results],
        confidence,
        is_random=[runs.is_replicated for runs in results],
        blocks=fewest(num_blocks(simulation) for simulation in simulations),
        remark="nothing asks for it: constrain it",
    )


def _is_narrow(verdict: Verdict, half_width: float) -> bool:
    if not verdict.before or verdict.sd == 0:
        return True
    half = verdict.relative_half_width
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
    if any(simulation.workload != simulations[0].workload for simulation in simulations[1:]):
        notes.append(
            "the workloads differ, so the systems do not see the same requests, and a difference "
            "is also that of the workloads; allow_different_workloads (in a shell "
            "--allow-different-workloads) judges it nevertheless."
        )
    return notes


def _notes_on_guards(
    names: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    compared: Sequence[str],
    values: Sequence[Sequence[Mapping[str, Any]]],
    confidence: float,
    *,
    is_random: Sequence[bool],
    blocks: float | None,
    remark: str = "is not compared: compare it, or constrain it in a search",
) -> list[str]:
    """Headline figures that are not compared and worsen; the intervals hold together."""
    known = [
        name
        for name in _GUARDS
        if name not in compared and all(run[name] is not None for runs in values for run in runs)
    ]
    level = 1 - (1 - confidence) / max(len(known) * len(pairs), 1)
    notes = []
    for i, j in pairs:
        for name in known:
            verdict = judge(
                name, (names[i], names[j]), values[i], values[j], level,
                is_random=is_random[i] or is_random[j], blocks=blocks, allowed=False,
                same_workload=True,
            )  # fmt: skip
            if verdict.outcome != "worse" or not any(is_random):
                continue
            relation = ">=" if FIGURES[name].better == "higher" else "<="
            notes.append(
                f"{name} is worse with {names[j]} than with {names[i]}, {verdict.after:.4g} "
                f"instead of {verdict.before:.4g}, and {remark}: "
                f"{{{name}: '{relation}{verdict.before:.4g}'}}."
            )
    return notes


def _notes_on_saturation(
    names: Sequence[str], simulations: Sequence[Simulation], seed: int, threads: int | None
) -> list[str]:
    """Which systems do not keep up with their load, by one run of each with its requests."""
    kept = run_many(simulations, [seed], threads=threads, keep_requests=True)
    verdicts = {
        name: run.saturation() for name, (run,) in zip(names, kept, strict=True) if run.has_requests
    }
    return [
        f"{name}, seed {seed}: {saturation}."
        for name, saturation in verdicts.items()
        if saturation.verdict != "unsaturated" and saturation.drift_per_s is not None
    ]


def _with_values(
    figures: Iterable[str], values: Sequence[Sequence[Mapping[str, Any]]]
) -> tuple[str, ...]:
    """The figures that have a value in every run of every system, in order."""
    summaries = list(itertools.chain.from_iterable(values))
    known = tuple(name for name in figures if all(run[name] is not None for run in summaries))
    if not known:
        raise config_error([("figures", "None", f"must be given: no run has {', '.join(figures)}")])
    return known


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
        listed = list(range(operator.index(seeds)))
    else:
        listed = list(checked("seeds", seeds, Iterable, "a whole number, or several"))
    if len(listed) < _LEAST_SEEDS:
        raise config_error([("seeds", f"{seeds!r}", f"must be at least {_LEAST_SEEDS} seeds")])
    return listed


def _population(result: Result, group: str) -> Mapping[str, Any]:
    """The figures of all requests, or of those of a class or tenant."""
    if not group:
        return result.summary()
    tables = {"class": result.by_class(), "tenant": result.by_tenant()}
    found = populations(group, tables)
    if len(found) == 1:
        return found[0]
    known = ", ".join(dict.fromkeys(name for table in tables.values() for name in table))
    allowed = f"no such class or tenant; one of {known}"
    if found:
        allowed = f"a class and a tenant; use [class={group}] or [tenant={group}]"
    raise config_error([("figures", f"[{group}]", allowed)])


def _checked_figures(figures: Iterable[str]) -> tuple[str, ...]:
    if isinstance(figures, str):
        raise TypeError(f"figures must be several names, not {figures!r}")
    names = tuple(dict.fromkeys(figures))
    allowed = [name for name, figure in FIGURES.items() if figure.better != "neither"]
    problems = [
        (f"figures[{i}]", repr(name), f"must be one of {', '.join(allowed)}")
        for i, name in enumerate(names)
        if of_group(name)[0] not in allowed
    ][:1]
    if not names:
        problems = [("figures", "()", "must name at least one figure")]
    if problems:
        raise config_error(problems)
    return names
