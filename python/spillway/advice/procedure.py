"""The steps of `advise`, each of which is a command, and the verdict."""

from __future__ import annotations

import contextlib
import html
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway import loading
from spillway.advice.advice import COMPUTED, Advice, Judged, Scenario, Servers, with_all
from spillway.advice.problem import FOLDER, Problem, Replicate, posed, reading_options
from spillway.comparison import compare
from spillway.config import acceptance, files, filesystem, yaml
from spillway.config.differences import differences
from spillway.config.provenance import is_unvalidated
from spillway.data import bounds
from spillway.diagnosis import diagnose
from spillway.files import deployments
from spillway.findings.explanation import as_settings
from spillway.report import page, panels
from spillway.simulate import simulate
from spillway.study import judge
from spillway.study.files import StudyFile, SweepFile
from spillway.study.objective import Constraint, Figure
from spillway.study.records import mean
from spillway.study.solvers import Solution
from spillway.study.verdicts import by_interval, together

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from spillway._core.cluster import Simulation
    from spillway.comparison import Comparison
    from spillway.config.differences import Difference
    from spillway.config.progress import Progress
    from spillway.data.intervals import Interval
    from spillway.diagnosis import Diagnosis
    from spillway.files.deployments import Export
    from spillway.study import Study
    from spillway.study.records import Trial

_SEED = 100
"""The first seed of what is judged: the search and its confirmation have not seen it."""
_SEEDS = 8
_FIGURES = ("p99_ttft_ms", "p99_tpot_ms", "p99_e2el_ms", "rejected", "expired", "jain_tenant")
_SAMPLES = 240
_MOST_FINDINGS = 3
_MOST_CANDIDATES = 3
_STEPS = 6
"""Steps from a trial that keeps the SLO to one that rejects less."""
_MOST_LOSSES = 5
_ERROR = 0.05


def advise(
    log: str | os.PathLike[str],
    slo: str | Sequence[str] = (),
    *,
    goodput: str | Sequence[str] = (),
    server: Mapping[str, Any] | None = None,
    calibrated: str | os.PathLike[str] | None = None,
    count: int = 1,
    today: str | os.PathLike[str] | None = None,
    what_if: str | Sequence[str] = (),
    target: str | None = None,
    replicate: Replicate = "resample",
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Progress = False,
    **reading: Any,
) -> Advice:
    """From a log of requests to the limit, or the number of servers, with which an SLO holds.

    The log is read, and resampled, replayed or fitted. Today's settings are judged under its
    traffic and under each what-if. Unless they keep the SLO and reject nothing, a limit on the
    requests in flight (of all, or of each tenant if there are several), and how many others wait
    for it or how long, are searched: as little as possible is rejected while latencies are a fifth
    below their bounds, with all what-ifs together. The best are judged on seeds that the search has
    not seen, and steps from the first that keeps the SLO towards settings that reject less; the
    last that keeps it is compared with today's settings, and exported. With a target, the verdict
    is on the system as its files configure it. How many servers would do with today's settings is
    solved for. Each step is a command, and the result lists them.

    Parameters
    ----------
    log
        Any file of requests that `read` takes.
    slo
        What must hold: bounds of figures, e.g. "gold: p99 ttft < 2 s, p99 tpot < 80 ms", one or
        several; `data.bounds` has their form.
    goodput
        The same as load generators write it: "ttft:500 tpot:50", in ms.
    server
        The parameters of `instance.Server`, e.g. {"model": "llama-3.1-8b", "gpu": "h100"}.
    calibrated
        In place of `server`: the file of a server that `calibrate` fitted.
    count
        The number of these servers.
    today
        A configuration file with the gateway, router and servers that run today, as `spillway
        import` writes it. By default nothing is limited, and requests go round.
    what_if
        Changes of traffic and failures of instances that the settings must withstand, as
        `traffic.changed` takes them: "all: rate x2 for 60s", "instance 3 crashes at 300s for 200s",
        one or several.
    target
        The system that the result is for, as `files.deployments.export` names it: only what its
        files hold is searched.
    replicate
        "resample": each seed sees another resample of the log, in blocks; "fit": another draw of a
        generator that is fitted to it; "replay": the log as it is, a single run without intervals.
    out
        A folder for all files and report.html; None: nothing is written.
    threads
        Number of concurrent runs; None: one per CPU.
    progress
        As for `run_many`, for each step.
    **reading
        Options of `read`, e.g. columns={"arrival_s": "time", …}.

    Raises
    ------
    ConfigError
        Without an SLO or a server; for a group, a change of traffic or a target that does not
        exist; for a target that has no limit.
    TraceError
        If the log cannot be read, or has no tokens: the message names the columns.

    Examples
    --------
    >>> import spillway
    >>> from spillway import traffic
    >>> calls = [i / 4 for i in range(400)]
    >>> lengths = {"input_tokens": [400] * 400, "output_tokens": [8] * 400}
    >>> traffic.write(spillway.trace(arrival_s=calls, **lengths), "calls.csv")
    >>> server = {"model": "llama-3.1-8b", "gpu": "h100"}
    >>> spillway.advise("calls.csv", "p99 ttft < 2 s", server=server, replicate="replay").outcome
    'holds'
    """
    texts = _texts(slo)
    for given in _texts(goodput):
        texts += [
            f"{of.figure} {of.relation} {of.limit:g}" for of in bounds.parse(given, "goodput")
        ]
    problem = posed(
        Path(log),
        slo=texts,
        server=server,
        calibrated=None if calibrated is None else Path(calibrated),
        count=count,
        today=None if today is None else Path(today),
        what_if=_texts(what_if),
        replicate=replicate,
        folder=FOLDER if out is None else Path(out),
        reading=reading,
    )
    steps = _Steps(problem, target, {"threads": threads, "progress": progress})
    steps.take()
    advice = steps.advice()
    if out is not None:
        steps.write(advice)
    return advice


def _is_of_log(note: str) -> bool:
    """Whether a note asks for longer or further runs, which a log does not give."""
    return "no run was lengthened" in note or "max_seeds" in note


def _basis(simulation: Simulation) -> str:
    """That step times are not measured, or refuted, as clauses; empty if they are measured."""
    found = ""
    if is_unvalidated(simulation):
        _, _, source = simulation.instances[0].provenance.rpartition("unvalidated")
        found = f", {COMPUTED}{source.partition(';')[0]}"
    if any(map(acceptance.rejection, simulation.instances)):
        found += ", refuted by a recording"
    return found


def _rounded(simulation: Simulation, before: Simulation) -> Simulation:
    """The settings that differ from others, with three digits."""
    changes = differences(before.to_dict(), simulation.to_dict())
    return simulation.with_(
        {of.path: float(f"{of.after:.3g}") for of in changes if isinstance(of.after, float)}
    )


def _has_ends(value: Interval | None) -> bool:
    return value is not None and value.low is not None


@contextlib.contextmanager
def _without_copies() -> Iterator[None]:
    """A replay has one run, which is known."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "seeds change nothing", UserWarning)
        yield


def _texts(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


class _Candidate(NamedTuple):
    """Settings, the same as the target runs them with its files, and the verdicts on them."""

    wanted: Simulation
    deployed: Simulation
    export: Export | None
    judged: list[Scenario]
    origin: str

    @property
    def rank(self) -> int:
        """0 if the SLO holds in every scenario, 1 if that is undecided, otherwise 2."""
        return ("holds", "undecided", "breaks").index(together(of.verdict for of in self.judged))

    @property
    def shed(self) -> float:
        """The largest share of the requests that is rejected in a scenario."""
        return max(of.shed or 0.0 for of in self.judged)


def _runs(trial: Trial) -> tuple[object, ...]:
    """The same for two trials whose runs are the same."""
    return trial.values, trial.constraints


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _at(change: Difference, share: float) -> float:
    """The value at a share of the way from one to the other, in logarithms."""
    value = float(change.before ** (1 - share) * change.after**share)
    return round(value) if isinstance(change.before, int) else float(f"{value:.3g}")


def _reason(judged: Sequence[Scenario]) -> str:
    """The first bound that is not kept, with what is rejected."""
    scenario = next(of for of in judged if of.verdict != "holds")
    figure = next((of for of in scenario.figures if of.verdict != "holds"), scenario.figures[0])
    shed = "" if scenario.shed is None else f" (shed {scenario.shed:.1%})"
    return f"{figure} {figure.bound} {figure.verdict}{shed}"


class _Steps:
    """The steps, in order, with what each found."""

    def __init__(self, problem: Problem, target: str | None, options: Mapping[str, Any]) -> None:
        self._problem = problem
        self._target = target
        self._options = options
        self._study_settings: dict[str, Any] = {}
        self._left_out: list[str] = []
        if target is not None:
            self._study_settings, self._left_out = problem.study(target)  # refuses it early
        self._wanted: Simulation | None = None
        self._advised: Simulation | None = None  # the same as the target runs it
        self._study: Study | None = None
        self._comparison: Comparison | None = None
        self._export: Export | None = None
        self._notes: list[str] = []

    def take(self) -> None:
        problem = self._problem
        self._diagnosis: Diagnosis = diagnose(problem.today, progress=self._options["progress"])
        self._scenarios = self._judged("today", problem.today)
        if not (self._keeps() and self._carries_today()):
            self._search()
        self._solve()
        if self._advised is not None and self._advised != problem.today:
            self._comparison = compare(
                {
                    "today": problem.stressed(),
                    "advised": loading.with_traffic(self._advised, problem.what_if),
                },
                seeds=range(_SEED, _SEED + _SEEDS),
                figures=self._compared(),
                allow_different_populations=True,
                **self._options,
            )

    # ---- steps ----

    def _judged(self, name: str, simulation: Simulation, error: float = _ERROR) -> list[Scenario]:
        """Whether settings keep the SLO, under today's traffic and each what-if."""
        groups = [*self._problem.groups, *self._problem.others]
        sheds = [Figure("shed"), *(Figure(f"shed[{group}]") for group in groups)]
        slo = [*self._problem.slo, *(Constraint(figure, "<=", 1.0) for figure in sheds)]
        count = _SEEDS if self._problem.is_random else 2
        seeds = range(_SEED, _SEED + count)
        found = []
        for change, changed in self._problem.scenarios(simulation).items():
            with _without_copies():
                judgment = judge(
                    changed,
                    slo,
                    seeds=seeds,
                    max_seeds=count,
                    confidence=1 - error,
                    **self._options,
                )
            known = judgment.bounds[: len(self._problem.slo)]
            shares = [
                None if of.value is None else of.value.mean for of in judgment.bounds[len(known) :]
            ]
            figures = tuple(
                Judged(
                    of.figure,
                    of.bound,
                    by_interval(constraint, of.value) if _has_ends(of.value) else of.verdict,
                    *(getattr(of.value, key, None) for key in ("mean", "low", "high")),
                )
                for constraint, of in zip(self._problem.slo, known, strict=True)
            )
            said = together(of.verdict for of in figures)
            failure = judgment.failure or ""
            of_groups = dict(zip(groups, shares[1:], strict=True))
            of_groups = {group.removeprefix("tenant="): share for group, share in of_groups.items()}
            found.append(
                Scenario(name, change, said, figures, shares[0], count, failure, of_groups)
            )
        return found

    def _keeps(self) -> bool:
        """Whether today's settings keep the SLO in all scenarios and reject nothing."""
        return all(known.verdict == "holds" and known.shed == 0 for known in self._scenarios)

    def _carries_today(self) -> bool:
        """Whether today's settings keep the SLO as the target runs them; if so, they stay."""
        today = self._problem.today
        if self._target is not None and not deployments.unchecked(today, self._target).files:
            self._notes.append(f"{self._target}: no file is needed, as nothing is limited")
            self._advised = today
            return True
        deployed, export = self._deployed(today)
        if export is not None and deployed != today:
            judged = self._judged("advised", deployed)
            if any(known.verdict != "holds" for known in judged):
                return False
            self._scenarios += judged
        self._advised, self._wanted, self._export = deployed, today, export
        return True

    def _search(self) -> None:
        """The limit that keeps the SLO and rejects least; none if today's settings are as good."""
        problem = self._problem
        if not self._study_settings:
            self._study_settings, _ = problem.study(None)
        settings = self._study_settings
        study_file = StudyFile(
            simulation=problem.stressed(),
            settings=settings,
            trials=settings["trials"],
            optimize={"check": settings["check"], "batch_size": 4},
            confirm=None,
        )
        if self._target is not None:
            study_file, _ = study_file.carried_by(self._target)
        study = study_file.study()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            study.optimize(study_file.trials, total=True, **self._options, **study_file.optimize)
        said = [str(warning.message) for warning in caught]
        self._notes += [f"search: {text}" for text in said if "lies outside the space" not in text]
        self._study = study
        candidates = self._candidates(study)
        tried: list[_Candidate] = []
        for number in candidates:
            wanted = self._settings_of(study, number)
            origin = f"the settings of trial {number} of the search"
            tried.append(self._candidate(wanted, origin, _ERROR / 2 / _MOST_CANDIDATES))
            if tried[-1].rank == 0:
                break
        if not tried:
            return
        best = min(tried, key=lambda candidate: candidate.rank)
        if best.rank == 0:
            number = candidates[tried.index(best)]
            beyond = tried[0].wanted if best is not tried[0] else self._beyond(study, number)
            best = best if beyond is None else self._between(best, beyond)
        self._wanted, self._advised, self._export = best.wanted, best.deployed, best.export
        self._scenarios += best.judged
        self._notes.append(f"advised.yaml has {best.origin}.")
        if tried[0].rank > 0 and best is not tried[0]:
            self._notes.append(f"not advised: {tried[0].origin}: {_reason(tried[0].judged)}.")

    def _candidate(self, wanted: Simulation, origin: str, error: float) -> _Candidate:
        deployed, export = self._deployed(wanted)
        judged = self._judged("advised", deployed, error)
        return _Candidate(wanted, deployed, export, judged, origin)

    def _settings_of(self, study: Study, number: int) -> Simulation:
        """The settings of a trial under today's traffic."""
        today = self._problem.today
        return _rounded(study.simulation_of(number).replace(workload=today.workload), today)

    def _beyond(self, study: Study, number: int) -> Simulation | None:
        """The settings of the trial that rejected a little less than this one; None: none did."""
        shed = {
            trial.number: trial.values[0]
            for trial in study.records
            if trial.has_values and not trial.is_baseline
        }
        less = [other for other, share in shed.items() if share < shed[number]]
        return self._settings_of(study, max(less, key=shed.__getitem__)) if less else None

    def _between(self, kept: _Candidate, beyond: Simulation) -> _Candidate:
        """What keeps the SLO as near as possible to settings that reject less.

        In equal steps, in logarithms, up to the first that does not keep it. Where larger steps are
        riskier, only the first that is wrong can be accepted wrongly: each has half of the error,
        and the trials together the other half.
        """
        changes = differences(kept.wanted.to_dict(), beyond.to_dict())
        if not all(_is_positive(of.before) and _is_positive(of.after) for of in changes):
            return kept
        best = kept
        for step in range(1, _STEPS):
            wanted = kept.wanted.with_({of.path: _at(of, step / _STEPS) for of in changes})
            if wanted in (best.wanted, beyond):
                continue
            found = self._candidate(
                wanted,
                f"settings between {kept.origin} and those of one that rejects less",
                _ERROR / 2,
            )
            if found.rank > 0:
                break
            if found.shed <= best.shed:
                best = found
        return best

    def _candidates(self, study: Study) -> list[int]:
        """The trials that reject least of those that keep the bounds of the search.

        If there are none, of those that keep the SLO with its margin, then of those that keep it in
        the mean. Of many, the two that reject least, and one that rejects more than half of them;
        none that runs as another or as today's settings do.
        """
        found = list(study.feasible)
        known = [trial for trial in study.records if trial.has_values]
        for slo in (self._problem.slo_with_margin, self._problem.slo):
            if found:
                break
            found = sorted(
                (
                    trial
                    for trial in known
                    if all(
                        constraint.violation(mean(row)) <= 0
                        for constraint, row in zip(slo, trial.constraints, strict=False)
                    )
                ),
                key=lambda trial: trial.values,
            )
        as_today = {_runs(trial) for trial in known if trial.is_baseline}
        different = {_runs(trial): trial.number for trial in reversed(found)}
        numbers = [number for run, number in reversed(different.items()) if run not in as_today]
        if len(numbers) > _MOST_CANDIDATES:
            return [*numbers[: _MOST_CANDIDATES - 1], numbers[len(numbers) // 2]]
        return numbers

    def _solve(self) -> None:
        """The fewest servers that keep the SLO with today's settings."""
        settings = self._problem.solver()
        sweep = SweepFile(self._problem.stressed(), "min_instances_for_rate", settings)
        with _without_copies():
            found = sweep.run(**self._options)
        assert isinstance(found, Solution)
        self._servers = Servers(
            today=self._problem.today.instances[0].count,
            enough=None if found.feasible is None else int(found.feasible),
            too_few=None if found.infeasible is None else int(found.infeasible),
            undecided=tuple(map(int, found.undecided)),
        )
        if any(known.verdict == "breaks" for known in self._scenarios if known.settings == "today"):
            self._servers = self._servers.without_today()
        self._notes += [f"servers: {note}" for note in found.notes if not _is_of_log(note)]

    def _deployed(self, simulation: Simulation) -> tuple[Simulation, Export | None]:
        """A configuration as the target runs it."""
        if self._target is None:
            return simulation, None
        found = deployments.export(simulation, self._target)
        return found.deployed, found

    def _compared(self) -> list[str]:
        """Headline figures that have values in a run of today's settings."""
        summary = simulate(self._problem.stressed(), _SEED).summary()
        return [name for name in _FIGURES if summary[name] is not None]

    # ---- results ----

    def commands(self) -> list[str]:
        """The steps as commands that repeat them."""
        problem = self._problem
        folder = problem.folder

        def at(name: str) -> str:
            return shlex.quote(str(folder / name))

        reading = " ".join(["", *reading_options(problem.reading)])
        found = [
            f"spillway read {shlex.quote(str(problem.log))}{reading} --write {at('trace.csv')}"
        ]
        if problem.replicate == "fit":
            found.append(f"spillway traffic fit {at('trace.csv')} -o {at('workload.yaml')}")
        found.append(f"spillway diagnose {at('today.yaml')}")
        if self._study is not None:
            target = "" if self._target is None else f" --target {shlex.quote(self._target)}"
            found.append(f"spillway optimize {at('search.yaml')}{target} --out {at('search')}")
        found.append(f"spillway sweep {at('servers.yaml')} --out {at('servers')}")
        bounds = "".join(f" --assert {shlex.quote(str(known))}" for known in problem.slo)
        seeds = f"--seed {_SEED} --seeds {_SEEDS if problem.is_random else 2}"
        for known in self._scenarios:
            change = f" --traffic {shlex.quote(known.traffic)}" if known.traffic else ""
            found.append(f"spillway run {at(known.settings + '.yaml')} {seeds}{change}{bounds}")
        if self._comparison is not None:
            figures = ",".join(dict.fromkeys(of.figure for of in self._comparison.verdicts))
            changes = "".join(f" --traffic {shlex.quote(of)}" for of in problem.what_if)
            found.append(
                f"spillway compare {at('today.yaml')} {at('advised.yaml')}{changes} --seed {_SEED} "
                f"--seeds {_SEEDS} --figures {figures} --allow-different-populations"
            )
        if self._export is not None:
            target = shlex.quote(str(self._target))
            name = "advised.yaml" if problem.today != self._advised else "today.yaml"
            found.append(f"spillway export {at(name)} --to {target} --out {at('deploy')}")
        return found

    def advice(self) -> Advice:
        problem, export = self._problem, self._export
        changed = [] if self._wanted is None else self._changes(self._wanted)
        if export is not None:
            losses = [f"{export.target} does not carry {loss}" for loss in export.losses]
            self._notes += losses[:_MOST_LOSSES]
            if (more := len(losses) - _MOST_LOSSES) > 0:
                others = ", ".join(loss.path for loss in export.losses[_MOST_LOSSES:])
                self._notes.append(f"{export.target} does not carry {more} more: {others}")
            self._notes += [f"{export.target}: {note}" for note in export.notes]
        self._notes = [*self._left_out, *self._notes] if self._study is not None else self._notes
        explained = self._diagnosis.explanation
        return Advice(
            log=str(problem.log),
            traffic=_traffic(problem),
            fleet=f"{problem.server}{_basis(problem.today)}",
            slo=tuple(map(str, problem.slo)),
            what_if=tuple(problem.what_if),
            target=None if export is None else export.target,
            settings={of.path: of.after for of in changed},
            is_found=self._advised is not None,
            scenarios=tuple(self._scenarios),
            servers=self._servers,
            findings=tuple(
                f"{known.severity}: {known}"
                + "".join(f"; try {as_settings(remedy)}" for remedy in known.remedies[:1])
                for known in explained.findings[:_MOST_FINDINGS]
                if known.severity in ("high", "medium")
            ),
            search="" if self._study is None else str(self._study),
            comparison="" if self._comparison is None else str(self._comparison),
            files={} if export is None else dict(export.files),
            commands=tuple(self.commands()),
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _changes(self, wanted: Simulation) -> list[Difference]:
        before, after = self._problem.today.to_dict(), wanted.to_dict()
        return [of for of in differences(before, after) if not of.path.startswith("workload")]

    def write(self, advice: Advice) -> None:
        """All files, and report.html."""
        from spillway import traffic

        problem = self._problem
        folder = problem.folder
        settings = dict(problem.settings)
        texts: dict[str, str] = {"today.yaml": yaml.to_yaml(settings)}
        if problem.what_if:
            stressed = {**settings, "traffic": list(problem.what_if)}
            texts["stressed.yaml"] = yaml.to_yaml(stressed)
        if problem.replicate == "fit":
            texts["workload.yaml"] = yaml.to_yaml({"workload": settings["workload"]})
        if self._study is not None:
            texts["search.yaml"] = yaml.to_yaml(self._study_settings)
        if self._advised is not None and self._advised != problem.today:
            texts["advised.yaml"] = yaml.to_yaml(self._advised_settings(self._advised))
        texts["servers.yaml"] = yaml.to_yaml(problem.solver())
        texts["commands.sh"] = "\n".join(advice.commands) + "\n"
        with filesystem.together():
            filesystem.make_folder(folder)
            traffic.write(problem.trace, folder / "trace.csv")
            for name, text in texts.items():
                with filesystem.replacing(folder / name) as path:
                    path.write_text(text, encoding="utf-8")
            if self._export is not None:
                self._export.write(folder / "deploy")
            advice.save(folder / "advice.json")
            page.save(
                folder / "report.html",
                f"Advice for {problem.log.stem}",
                advice.parts(self._charts()),
            )

    def _advised_settings(self, advised: Simulation) -> dict[str, Any]:
        """Those of today.yaml, but for the sections that differ."""
        problem = self._problem
        before, after = (
            files.to_settings(of, problem.folder, brief=True) for of in (problem.today, advised)
        )
        kept = {
            key: value
            for key, value in problem.settings.items()
            if before.get(key) == after.get(key)
        }
        return kept | {key: value for key, value in after.items() if before.get(key) != value}

    def _charts(self) -> str:
        """The traffic over time with today's settings, and with those that are advised."""
        found = []
        problem = self._problem
        beside = with_all(problem.what_if)
        shown = {f"Today's settings{beside}": problem.stressed()}
        if self._advised is not None and self._advised != problem.today:
            advised = loading.with_traffic(self._advised, problem.what_if)
            shown[f"The advised settings{beside}"] = advised
        for heading, simulation in shown.items():
            run = simulate(simulation, _SEED)
            step_s = max(1e-3, (run.summary()["duration"] or 1.0) / _SAMPLES)
            run = simulate(simulation.with_({"metrics.timeline_step_s": step_s}), _SEED)
            found.append(f"<h2>{html.escape(heading)}</h2>{panels.cards(run)}{panels.charts(run)}")
        return "".join(found)


def _traffic(problem: Problem) -> str:
    how = {
        "resample": "resampled in blocks, another resample per seed",
        "fit": "as drawn from a generator that is fitted to it",
        "replay": "replayed as it is, one run without intervals",
    }
    return f"{problem.trace.rows:,} requests, {how[problem.replicate]}"
