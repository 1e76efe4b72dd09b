"""What is wrong with a configuration, and which of the remedies help: paired runs of each."""

from __future__ import annotations

import dataclasses
import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.config import files
from spillway.config.classes import config_error
from spillway.config.formatting import number, table, wrapped
from spillway.config.messages import checked
from spillway.data.intervals import Interval, interval
from spillway.data.targets import has_targets
from spillway.findings.explanation import Explanation, SavedCauses, as_settings
from spillway.findings.finding import MOST_SHOWN, Evidence, Finding
from spillway.findings.why import Why
from spillway.loading import as_simulation
from spillway.simulate import run_many, simulate

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from spillway._core.cluster import Simulation
    from spillway.config.progress import Progress
    from spillway.loading import Configuration
    from spillway.result import Result

__all__ = ["Diagnosis", "Trial", "Why", "diagnose"]

_MOST_TRIALS = 16
_LEAST_SEEDS = 2
_CONFIDENCE = 0.95
_TYPICAL = 0.9
_DIAGNOSIS = "diagnosis"
_TAILS = ("p99_ttft_ms", "p99_tpot_ms", "p99_e2el_ms")
_UNKNOWN = dict.fromkeys(_TAILS, math.nan)


@dataclass(frozen=True)
class Trial:
    """A remedy that was tried.

    Attributes
    ----------
    finding
        Name of the finding that proposes it.
    settings
        The remedy: settings by path.
    gain
        Difference of the share of requests in time, paired by seed, with an interval that holds
        together with those of the other remedies.
    in_time, lost
        Share of the requests in time, and of those that were lost, in the mean over the seeds.
    tails_ms
        The figures p99_ttft_ms, p99_tpot_ms and p99_e2el_ms in the mean over the seeds, and with
        several classes those of each, such as p99_ttft_ms[gold].
    refused
        Why it could not be tried; empty if it was.
    """

    finding: str
    settings: Mapping[str, Any]
    gain: Interval | None
    in_time: float
    lost: float
    tails_ms: Mapping[str, float]
    refused: str = ""

    @property
    def helps(self) -> bool:
        """Whether the share in time rises significantly."""
        if self.gain is None:
            return False
        return (self.gain.mean if self.gain.low is None else self.gain.low) > 0


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What is wrong with a configuration, and what helps.

    Attributes
    ----------
    explanation
        Findings and causes of the run under the first seed.
    trials
        The remedies that were tried, the best first: those with most requests in time, and of
        equals those with the lowest p99_e2el_ms. Empty unless asked for.
    in_time, lost, tails_ms
        The same as of a trial, as it is; NaN without trials.
    seeds
        The seeds of the paired runs.
    has_targets
        Whether `in_time` is goodput. Otherwise, as no class has a target, it is the share of the
        requests that are as fast as nine in ten of them are now, in TTFT and in time per token.
    """

    explanation: Explanation
    trials: tuple[Trial, ...]
    in_time: float
    lost: float
    tails_ms: Mapping[str, float]
    seeds: tuple[int, ...]
    has_targets: bool

    def text(self, most: int | None = MOST_SHOWN) -> str:
        """Findings (at most `most`; None: all), causes, and the ranking of what was tried."""
        text = self.explanation.text(most)
        if not self.trials:
            return text
        rows = [["rank", "in time", "gain", "lost", *_TAILS, "for"]]
        rows.append(
            ["as is", f"{self.in_time:.1%}", "", f"{self.lost:.1%}", *_numbers(self.tails_ms), ""]
        )
        rows += [
            [
                str(i),
                f"{trial.in_time:.1%}",
                _shown(trial.gain),
                f"{trial.lost:.1%}",
                *_numbers(trial.tails_ms),
                trial.finding,
            ]
            for i, trial in enumerate(self.trials, 1)
        ]
        settings = [
            f"{i}: {trial.refused or as_settings(trial.settings)}{self._of_classes(trial)}"
            for i, trial in enumerate(self.trials, 1)
        ]
        meaning = (
            "in time: within all targets of their class (goodput)"
            if self.has_targets
            else "in time: as fast as nine in ten requests are now, because no class has a target"
        )
        best = self.trials[0]
        conclusion = "None of the remedies that were tried helps."
        if best.helps:
            conclusion = (
                f"Set {as_settings(best.settings)}: {best.in_time:.1%} of the requests are in time "
                f"instead of {self.in_time:.1%}, p99 TTFT is {_ms(best, 'p99_ttft_ms')} instead of "
                f"{_ms(self, 'p99_ttft_ms')}."
            )
        head = (
            f"remedies, {len(self.seeds)} paired seeds, intervals of 95% together; {meaning}; "
            "lost: of all attempts"
        )
        return "\n".join([text, "", wrapped(conclusion), "", head, table(rows), "", *settings])

    def _of_classes(self, trial: Trial) -> str:
        """What a remedy does to each class, below its settings; empty without classes."""
        names = [name for name in trial.tails_ms if name.startswith("p99_ttft_ms[")]
        texts = [f"{name} {_ms(trial, name)} instead of {_ms(self, name)}" for name in names]
        return "".join(f"\n   {text}" for text in texts)

    def __repr__(self) -> str:
        return self.text()

    def to_dict(self) -> dict[str, Any]:
        """Everything as data, as `spillway diagnose --json` prints it."""
        return {
            **self.explanation.to_dict(),
            "seeds": list(self.seeds),
            "in_time": self.in_time,
            "lost": self.lost,
            "tails_ms": dict(self.tails_ms),
            "has_targets": self.has_targets,
            "trials": [
                {
                    "finding": trial.finding,
                    "settings": dict(trial.settings),
                    "in_time": trial.in_time,
                    "lost": trial.lost,
                    "tails_ms": dict(trial.tails_ms),
                    "gain": trial.gain
                    and {name: getattr(trial.gain, name) for name in ("mean", "low", "high")},
                    "helps": trial.helps,
                    "refused": trial.refused,
                }
                for trial in self.trials
            ],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the diagnosis as JSON. Raises ConfigError if the file cannot be written."""
        causes = self.explanation.causes
        content = {
            **self.to_dict(),
            "trials": [dataclasses.asdict(trial) for trial in self.trials],
            "causes_text": "" if isinstance(causes, str) else repr(causes),
        }
        files.save_results(path, _DIAGNOSIS, content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Diagnosis:
        """Reads what `save` wrote; causes are then a table. Raises ConfigError for another file."""
        known = files.load_results(path, _DIAGNOSIS, "Diagnosis.save")
        causes = known["causes"]
        if not isinstance(causes, str):
            causes = SavedCauses(causes, known["causes_text"])
        findings = tuple(
            Finding(
                **{
                    **of,
                    "evidence": tuple(Evidence(*entry) for entry in of["evidence"]),
                    "remedies": tuple(of["remedies"]),
                }
            )
            for of in known["findings"]
        )
        trials = tuple(
            Trial(**{**of, "gain": None if of["gain"] is None else Interval(**of["gain"])})
            for of in known["trials"]
        )
        return cls(
            Explanation(findings, causes), trials, known["in_time"], known["lost"],
            known["tails_ms"], tuple(known["seeds"]), known["has_targets"],
        )  # fmt: skip


def _ms(of: Trial | Diagnosis, figure: str) -> str:
    value = of.tails_ms[figure]
    return "unknown" if math.isnan(value) else f"{number(value)} ms"


def _shown(gain: Interval | None) -> str:
    if gain is None:
        return "-"
    ends = "" if gain.low is None else f" ({gain.low:+.1%} to {gain.high:+.1%})"
    return f"{gain.mean:+.1%}{ends}"


def diagnose(
    simulation: Configuration,
    seed: int = 0,
    *,
    tries: bool = False,
    seeds: int = 4,
    threads: int | None = None,
    progress: Progress = False,
) -> Diagnosis:
    """Runs a simulation and says what is wrong with it, and with `tries` what helps.

    Parameters
    ----------
    simulation
        The simulation, or the path of a configuration file.
    seed
        Seed of the run that is explained; the first of the paired runs.
    tries
        Whether to run the remedies of the findings, at most 16, each under the same seeds as the
        configuration itself, and to rank them by the share of requests in time.
    seeds
        Number of seeds of each, >= 2.
    threads
        Number of concurrent runs; None: one per CPU.
    progress
        As for `run_many`.

    Raises
    ------
    ConfigError
        If the simulation cannot be run, or an argument is out of range.

    Examples
    --------
    >>> import spillway
    >>> bucket = {"kind": "token_bucket", "capacity_tokens": 10, "refill_tokens_per_s": 1}
    >>> simulation = spillway.Simulation(gateway={"admission": bucket})
    >>> spillway.diagnose(simulation).explanation.findings[0].name
    'bucket_below_prompt'
    """
    known = as_simulation(simulation)
    _check(known, checked("tries", tries, bool, "True or False"), operator.index(seeds))
    result = simulate(known, seed, progress=progress)
    explanation = result.explain()
    is_promised = result.summary()["goodput"] is not None
    if not tries:
        return Diagnosis(explanation, (), math.nan, math.nan, _UNKNOWN, (seed,), is_promised)
    if not (is_promised or result.has_requests):
        raise _without_targets()
    used = tuple(range(seed, seed + seeds))
    candidates, refused = _candidates(known, explanation)
    systems = [known, *(changed for _, _, changed in candidates)]
    runs = run_many(systems, used, threads=threads, keep_requests=True, progress=progress)
    bounds = None if is_promised else _typical(runs[0][0])
    scores = [np.array([_in_time(run, bounds) for run in known]) for known in runs]
    losses = [float(np.mean([_lost(run) for run in known])) for known in runs]
    tails = [_tails_ms(known) for known in runs]
    level = 1 - (1 - _CONFIDENCE) / max(len(candidates), 1)
    trials = [
        Trial(
            name,
            settings,
            interval(list(scores[i] - scores[0]), level, is_share=True, is_difference=True),
            float(scores[i].mean()),
            losses[i],
            tails[i],
        )
        for i, (name, settings, _) in enumerate(candidates, 1)
    ]
    trials.sort(key=lambda trial: (-round(trial.in_time, 3), trial.tails_ms["p99_e2el_ms"]))
    mean = float(scores[0].mean())
    return Diagnosis(explanation, (*trials, *refused), mean, losses[0], tails[0], used, is_promised)


def _check(simulation: Simulation, tries: bool, seeds: int) -> None:
    """Refuses what cannot be tried before anything is run."""
    if not tries:
        return
    if seeds < _LEAST_SEEDS:
        raise config_error([("seeds", str(seeds), f"must be >= {_LEAST_SEEDS}")])
    if simulation.metrics.streaming and not any(map(has_targets, simulation.slo_classes)):
        raise _without_targets()


def _without_targets() -> Exception:
    allowed = (
        "must be false to try remedies where no class with traffic has a latency target: they are "
        "ranked by the latencies of single requests then; or set a target, e.g. "
        "slo_classes[standard].target_ttft_s"
    )
    return config_error([("metrics.streaming", "true", allowed)])


def _candidates(
    simulation: Simulation, explanation: Explanation
) -> tuple[list[tuple[str, Mapping[str, Any], Simulation]], list[Trial]]:
    """The different remedies with the changed simulations, and those that are not valid."""
    from spillway._core.sim import ConfigError

    found: list[tuple[str, Mapping[str, Any], Simulation]] = []
    refused = []
    for finding in explanation.findings:
        for remedy in finding.remedies:
            if any(remedy == known for _, known, _ in found) or len(found) == _MOST_TRIALS:
                continue
            try:
                found.append((finding.name, remedy, simulation.with_(remedy)))
            except ConfigError as error:
                nothing = (None, math.nan, math.nan, _UNKNOWN)
                refused.append(Trial(finding.name, remedy, *nothing, str(error)))
    return found, refused


def _typical(result: Result) -> tuple[float, float]:
    """The TTFT and the time per token of nine in ten: bounds where no class has a target."""
    columns = result._columns()
    bounds = []
    for name in ("ttft_s", "tpot_s"):
        values = columns[name][~np.isnan(columns[name])]
        bounds.append(float(np.quantile(values, _TYPICAL)) if len(values) else math.inf)
    return bounds[0], bounds[1]


def _in_time(result: Result, bounds: tuple[float, float] | None) -> float:
    """Goodput, or the share of the requests that are within the bounds."""
    summary = result.summary()
    if bounds is None:
        return float(summary["goodput"] or 0.0)
    columns = result._columns()
    ttft_s, tpot_s = columns["ttft_s"], columns["tpot_s"]
    within = ~np.isnan(columns["e2e_s"]) & (ttft_s <= bounds[0] * (1 + 1e-9))
    within &= np.isnan(tpot_s) | (tpot_s <= bounds[1] * (1 + 1e-9))
    return float(within.mean()) if len(within) else 0.0


def _tails_ms(runs: Sequence[Result]) -> dict[str, float]:
    summaries: list[dict[str, Mapping[str, Any]]] = [
        {"": run.summary(), **{f"[{name}]": of for name, of in run.by_class().items()}}
        for run in runs
    ]
    populations = list(summaries[0]) if len(summaries[0]) > 2 else [""]
    found = {}
    for population in populations:
        for name in _TAILS:
            values = [of.get(population, {}).get(name) for of in summaries]
            known = [math.nan if value is None else value for value in values]
            found[f"{name}{population}"] = float(np.mean(known))
    return found


def _numbers(tails_ms: Mapping[str, float]) -> list[str]:
    return ["-" if math.isnan(tails_ms[name]) else number(tails_ms[name]) for name in _TAILS]


def _lost(result: Result) -> float:
    attempts = result.ledger["attempts"]
    return sum(result.activity["not_completed"].values()) / attempts if attempts else 0.0
