"""Studies and sweeps as YAML files, and their output folders."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway import loading
from spillway._core.sim import ConfigError
from spillway.config import files, filesystem, yaml
from spillway.config.classes import config_error
from spillway.data.frames import write_rows
from spillway.presets import by_name
from spillway.study import solvers, sweeps
from spillway.study.checks import (
    MOST_RUNS,
    Check,
    anything,
    by_type,
    check_keys,
    items,
    keys,
    mapping,
    number,
    objectives,
    seeds,
    text,
    truth,
    whole,
)
from spillway.study.json_lines import write_json
from spillway.study.objective import Direction, Objective, as_constraints, as_metric, check_figures
from spillway.study.racing import Racing
from spillway.study.space import Space
from spillway.study.study import Study
from spillway.study.sweeps import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from spillway._core.cluster import Simulation
    from spillway.config.messages import T
    from spillway.config.progress import Progress
    from spillway.study.confirmation import Confirmation
    from spillway.study.solvers import Solution


_COUNT = whole(1, MOST_RUNS)
_DEFAULT_TRIALS = 40
_DEFAULT_BATCH = 4
_FIGURES = items(by_type({str: text, Mapping: mapping(number())}, "must be a figure"))
_BOUNDS = by_type(
    {str: text, list: items(text), Mapping: mapping(anything, may_be_empty=False)},
    "must be a bound like `p99_ttft_ms <= 500`, a list of such, or a mapping by figure",
)
_MAX_REQUESTS = whole(1, 10**9)
_RACING = keys({"first_seeds": whole(2, MOST_RUNS), "p": number(above=0, below=0.5)})
_CONFIRM = keys(
    {
        "top": _COUNT,
        "seeds": seeds,
        "max_seeds": _COUNT,
        "confidence": number(above=0, below=1),
        "within": number(above=0, below=1, or_equal=True),
        "objective": whole(0, MOST_RUNS),
    }
)


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of a file: the check of its values, its meaning, its default, an example."""

    check: Check
    doc: str
    default: str
    example: str

    def __call__(self, path: str, value: Any) -> None:
        """Raises ConfigError for an invalid value."""
        self.check(path, value)


_SPACE = {
    "space": Key(
        mapping(anything, may_be_empty=False),
        "By dotted path, the values to search: auto (the range that `spillway describe` shows), "
        "[low, high], {low, high, log, step}, a list of choices, {choices: […]}, or {kinds: …} for "
        "a policy whose kind opens its own parameters.",
        "required",
        "  gateway.limit[0].max_in_flight: [16, 256]\n"
        "  router: {choices: [round_robin, least_loaded]}",
    ),
    "order": Key(
        by_type({str: text, list: items(text)}, "must be like `a <= b`, or a list of such"),
        "Parameters that must not decrease, or a list of such.",
        "none",
        "gateway.guard.floor <= gateway.guard.ceiling",
    ),
}
_BASE = {
    "schema": Key(files.check_schema, "Version of the file.", str(files.SCHEMA), str(files.SCHEMA)),
    "simulation": Key(
        by_type({str: text, Mapping: mapping(anything)}, "must be a file or a mapping of settings"),
        "A configuration file, by its path from this file, or its settings.",
        "all defaults",
        "experiment.yaml",
    ),
    "presets": Key(
        anything,
        "Presets whose settings replace the simulation's own (`spillway describe presets`).",
        "none",
        "[noisy-neighbor, llm-d-flow-control]",
    ),
    "seeds": Key(
        seeds, "Seeds of the runs of every configuration: their number, or a list.", "4", "8"
    ),
    "metrics": Key(
        _FIGURES,
        "Further figures to record: keys of the summary (`spillway describe figures`), `shed`, or "
        "these of one class or tenant. A sweep without them records "
        f"{', '.join(sweeps.DEFAULT_METRICS)}.",
        "none",
        '["p99_ttft_ms[critical]", shed]',
    ),
}
_STUDY = {
    **_BASE,
    **_SPACE,
    "maximize": Key(
        objectives,
        "A figure, a mapping of figures to weights, or a list of these for several objectives.",
        "this or minimize is required",
        "goodput",
    ),
    "minimize": Key(
        objectives, "The same, to be small.", "this or maximize is required", "p99_e2e_ms"
    ),
    "constraints": Key(
        _BOUNDS,
        "Bounds like `goodput[critical] >= 90%`, a list of such, or by figure a relation and a "
        "number; they must hold in the mean over the seeds.",
        "none",
        '["goodput[critical] >= 90%", "p99_ttft_ms <= 0.5s"]',
    ),
    "sampler": Key(
        by_type(
            {str: text, Mapping: mapping(anything)},
            "must be a name, or a mapping of name and arguments",
        ),
        "What proposes configurations: tpe, cmaes, nsga2, random, qmc, gp, or a mapping of `name` "
        "and the sampler's arguments.",
        "tpe",
        "gp",
    ),
    "seed": Key(whole(0, 2**32 - 1), "Seed of the sampler.", "0", "1"),
    "trials": Key(
        _COUNT,
        "Total number of configurations; the current one is the first.",
        str(_DEFAULT_TRIALS),
        "100",
    ),
    "batch_size": Key(_COUNT, "Trials that are proposed together.", str(_DEFAULT_BATCH), "8"),
    "racing": Key(
        by_type(
            {bool: truth, Mapping: _RACING},
            "must be true, false, or a mapping of first_seeds and p",
        ),
        "Whether trials that are significantly worse get no further seeds: true, false, or "
        "{first_seeds, p}.",
        "false",
        "{first_seeds: 2, p: 0.05}",
    ),
    "timeout_s": Key(
        number(above=0), "Seconds after which no further batch begins.", "none", "600"
    ),
    "min_gain": Key(
        number(above=0),
        "The search ends when the expected gain of the next trial is less, in the unit of the "
        "objective.",
        "none",
        "0.001",
    ),
    "check": Key(truth, "Whether to look first for parameters without effect.", "true", "false"),
    "confirm": Key(
        by_type(
            {bool: truth, Mapping: _CONFIRM},
            "must be true, false, or a mapping of top, seeds, max_seeds, confidence, within and "
            "objective",
        ),
        "Whether to run the best trials again on fresh seeds: true, false, or {top, seeds, "
        "max_seeds, confidence, within, objective}.",
        "true",
        "{top: 3, seeds: 16}",
    ),
}
_SWEEPS = {
    "grid": Key(
        mapping(items(anything)),
        "Every combination: by dotted path, a list of values.",
        "none",
        "  router: [round_robin, least_loaded]\n  instances[0].count: [2, 4]",
    ),
    "isolation": Key(
        mapping(mapping(anything)),
        "The simulation, each component alone, all together, all but one: by name, a mapping of "
        "paths to values.",
        "none",
        "  limit: {gateway.limit: {kind: fixed, max_in_flight: 64}}\n"
        "  routing: {router: least_loaded}",
    ),
    "sobol": Key(
        keys({**_SPACE, "n": _COUNT, "seed": whole(0, 2**32 - 1)}, required=["space"]),
        "Points that fill a space evenly: space and order as in a study, n (64), seed (0).",
        "none",
        "  space:\n    gateway.limit[0].max_in_flight: [16, 256]\n  n: 32",
    ),
    "one_at_a_time": Key(
        keys({**_SPACE, "points": whole(2, MOST_RUNS)}, required=["space"]),
        "Each parameter along its range, the others unchanged: space and order as in a study, "
        "points (5).",
        "none",
        "  space:\n    gateway.limit[0].max_in_flight: [16, 256]\n  points: 3",
    ),
    "max_rate_under_slo": Key(
        keys(
            {
                "slo": _BOUNDS,
                "low": number(above=0),
                "high": number(above=0),
                "tolerance": number(above=0, below=1),
                "max_requests": _MAX_REQUESTS,
                "max_seeds": _COUNT,
            },
            required=["slo"],
        ),
        "The highest request rate that meets an SLO: slo (like `constraints` of a study), low, "
        "high (requests/s; a thousandth and a thousand times the current rate), tolerance (0.05), "
        "max_requests (100,000) of one run, max_seeds (8 times seeds) of one rate.",
        "none",
        '{slo: {goodput: ">=0.99"}, tolerance: 0.02}',
    ),
    "min_instances_for_rate": Key(
        keys(
            {
                "slo": _BOUNDS,
                "rate_per_s": number(above=0),
                "group": whole(0, MOST_RUNS),
                "survive": whole(0, 1000),
                "most": whole(1, 100_000),
                "max_requests": _MAX_REQUESTS,
                "max_seeds": _COUNT,
            },
            required=["slo"],
        ),
        "The fewest instances that meet an SLO: slo, rate_per_s (the current rate), group (0) of "
        "the instances, survive (0) crashes of them, most (1,024), max_requests (100,000) of one "
        "run, max_seeds (8 times seeds) of one number.",
        "none",
        '{slo: {goodput: ">=0.99"}, rate_per_s: 200}',
    ),
}
KEYS: Mapping[str, Mapping[str, Key]] = {"study": _STUDY, "sweep": {**_BASE, **_SWEEPS}}
"""The keys of the files, by kind of file."""
_SOLVERS = ("max_rate_under_slo", "min_instances_for_rate")


@dataclasses.dataclass(frozen=True)
class StudyFile:
    """The content of a study file: the problem, and how to search it.

    `confirm` holds the arguments of `Study.confirm`; None: do not confirm.
    """

    simulation: Simulation
    settings: Mapping[str, Any]
    trials: int
    optimize: Mapping[str, Any]
    confirm: Mapping[str, Any] | None

    def study(self, storage: str | Path | None = None) -> Study:
        """The study, new or resumed from its storage. Raises ConfigError for an unknown figure."""
        study = Study(
            self.simulation,
            Space(self.settings["space"], self.settings.get("order")),
            _objectives(self.settings),
            self.settings.get("constraints"),
            storage=storage,
            **{key: self.settings[key] for key in _PLAIN if key in self.settings},
        )
        check_figures(objective.metric for objective in study.objectives)
        check_figures(constraint.metric for constraint in study.constraints)
        check_figures(study.metrics)
        return study

    def carried_by(self, target: str) -> tuple[StudyFile, tuple[str, ...]]:
        """The study of what a system can carry, and a line for each part that is missing.

        Raises ConfigError for an unknown system, and if it can carry nothing of the space.
        """
        from spillway.study.carried import carried  # loads every system

        found = carried(
            Space(self.settings["space"], self.settings.get("order")), self.simulation, target
        )
        settings = {**self.settings, "space": found.space.to_dict()}
        return (
            dataclasses.replace(self, simulation=found.simulation, settings=settings),
            found.left_out,
        )

    def write(self, path: Path) -> None:
        """Writes a self-contained file with the whole simulation."""
        settings = {
            "schema": files.SCHEMA,
            "simulation": files.to_settings(self.simulation, path.parent),
            **{
                key: value
                for key, value in self.settings.items()
                if key not in ("simulation", "presets")
            },
        }
        with filesystem.replacing(path) as temporary:
            temporary.write_text(yaml.to_yaml(settings), encoding="utf-8")


_PLAIN = ("seeds", "sampler", "seed", "metrics")


def read_study(path: str | Path) -> StudyFile:
    """Reads a study file.

    `simulation`: a configuration file or its settings; `presets`: presets whose settings replace
    its own (see `spillway.presets`); `space` and `order`, see `Space`; `maximize` or `minimize`: a
    figure, a mapping of figures to weights, or a list of such; `constraints`; `seeds`: their number
    or a list; `sampler`, `seed`, `trials`, `batch_size`, `metrics`; `racing`: true or
    {first_seeds, p}; `timeout_s`; `min_gain`; `check`; `confirm`: true, false or {top, seeds,
    confidence, within}.

    Raises ConfigError for invalid values.
    """
    path = Path(path)
    settings = files.read_settings(path, "study")
    check_keys(settings, _STUDY, path)
    if "space" not in settings:
        raise config_error([(str(path), "", "must hold space, the paths to vary")])
    racing = settings.get("racing", False)
    confirm = settings.get("confirm", True)
    return StudyFile(
        simulation=_simulation(settings, path.parent),
        settings=settings,
        trials=settings.get("trials", _DEFAULT_TRIALS),
        optimize={
            "racing": Racing(**racing) if isinstance(racing, Mapping) else racing,
            "check": settings.get("check", True),
            "batch_size": settings.get("batch_size", _DEFAULT_BATCH),
            **{key: settings[key] for key in ("timeout_s", "min_gain") if key in settings},
        },
        confirm=None if confirm is False else {} if confirm is True else confirm,
    )


def write_results(study: Study, folder: Path, confirmation: Confirmation | None) -> None:
    """Writes trials.csv, search_history.json, best.yaml and, if confirmed, confirmation.json.

    best.yaml holds the winner of the confirmation, or the current configuration if there is no
    winner; without a confirmation, the best trial. There is none, not even an earlier one, if that
    does not satisfy the constraints.
    """
    with filesystem.together():
        write_rows(study.rows(), folder / "trials.csv")
        write_json(study.search_history(), folder / "search_history.json", allow_nan=False)
        best: Simulation | None = None
        if confirmation is not None:
            confirmation.write(folder / "confirmation.json")
            best = confirmation.choice
        elif len(study.objectives) == 1 and study.feasible:
            best = study.best
        if best is None:
            with filesystem.replacing(folder / "best.yaml") as temporary:
                temporary.unlink()
        else:
            files.dump(best, folder / "best.yaml")


@dataclasses.dataclass(frozen=True)
class SweepFile:
    """The content of a sweep file: a simulation, and one kind of sweep or solver."""

    simulation: Simulation
    kind: str
    settings: Mapping[str, Any]

    def check(self) -> tuple[int, list[str]]:
        """Number of configurations (0: a solver chooses them), and why some of them are invalid.

        Raises ConfigError for arguments that no run can have.
        """
        if self.kind in _SOLVERS:
            slo = as_constraints(self.settings[self.kind]["slo"], f"{self.kind}.slo")
            check_figures(constraint.metric for constraint in slo)
            return 0, []
        check_figures(map(as_metric, self.settings.get("metrics", ())))
        plan = self._call(getattr(sweeps, f"plan_{self.kind}"), self._seeds())
        invalid = [
            f"{name}: {planned}".replace("\n", "; ")
            for name, _, planned in plan
            if isinstance(planned, ConfigError)
        ]
        return len(plan), invalid

    def run(
        self,
        *,
        threads: int | None = None,
        executor: Executor | None = None,
        progress: Progress = False,
        journal: str | Path | None = None,
    ) -> Sweep | Solution:
        """Runs the configurations, or solves; the options are those of `spillway.study.grid`."""
        common: dict[str, Any] = {
            "threads": threads,
            "executor": executor,
            "progress": progress,
            "journal": journal,
            **self._seeds(),
        }
        if "metrics" in self.settings and self.kind not in _SOLVERS:
            common["metrics"] = self.settings["metrics"]
        module = solvers if self.kind in _SOLVERS else sweeps
        function: Callable[..., Sweep | Solution] = getattr(module, self.kind)
        return self._call(function, common)

    def _seeds(self) -> dict[str, Any]:
        return {"seeds": self.settings["seeds"]} if "seeds" in self.settings else {}

    def _call(self, function: Callable[..., T], common: Mapping[str, Any]) -> T:
        options = self.settings[self.kind]
        if self.kind in ("grid", "isolation"):
            return function(self.simulation, options, **common)
        arguments = dict(options)
        main: Any
        if self.kind in _SOLVERS:
            main = as_constraints(arguments.pop("slo"), f"{self.kind}.slo")
        else:
            main = Space(arguments.pop("space"), arguments.pop("order", None))
        try:
            return function(self.simulation, main, **arguments, **common)
        except ValueError as error:
            if hasattr(error, "violations"):
                raise
            raise config_error([(self.kind, "", str(error))]) from error


def read_sweep(path: str | Path) -> SweepFile:
    """Reads a sweep file.

    Beside `simulation`, `presets`, `seeds` and `metrics` it holds one of: `grid` ({path: values}),
    `isolation` ({name: {path: value}}), `sobol` ({space, order, n, seed}), `one_at_a_time`
    ({space, order, points}), `max_rate_under_slo` ({slo, low, high, tolerance, max_requests}) and
    `min_instances_for_rate` ({slo, rate_per_s, group, survive, most, max_requests}).

    Raises ConfigError for invalid values.
    """
    path = Path(path)
    settings = files.read_settings(path, "sweep")
    check_keys(settings, KEYS["sweep"], path)
    kinds = [key for key in _SWEEPS if key in settings]
    if len(kinds) != 1:
        raise config_error([(str(path), "", f"must hold one of {', '.join(_SWEEPS)}")])
    return SweepFile(_simulation(settings, path.parent), kinds[0], settings)


def run_sweep(path: str | Path, *, threads: int | None = None) -> Sweep | Solution:
    """Runs a sweep file, see `read_sweep`.

    Raises ConfigError for invalid values.
    """
    return read_sweep(path).run(threads=threads)


def write_sweep(found: Sweep | Solution, folder: Path) -> None:
    """Writes sweep.csv, or solution.json of a solver."""
    if isinstance(found, Sweep):
        found.write(folder / "sweep.csv")
        return
    write_json(found.to_dict(), folder / "solution.json")


def _simulation(settings: Mapping[str, Any], base: Path) -> Simulation:
    """The simulation that the content of a file in the folder `base` holds or names."""
    given = settings.get("simulation", {})
    if isinstance(given, str):
        given = base / given
    else:
        given = {"schema": settings.get("schema", files.SCHEMA), **given}
    simulation = loading.from_settings(given, base=base)
    return by_name.apply(settings.get("presets", []), simulation)


def _objectives(settings: Mapping[str, Any]) -> list[Objective]:
    objectives: list[Objective] = []
    directions: tuple[Direction, ...] = ("maximize", "minimize")
    for direction in directions:
        written = settings.get(direction, [])
        metrics = written if isinstance(written, list) else [written]
        objectives += [Objective(metric, direction) for metric in metrics]
    if not objectives:
        raise config_error([("maximize", "", "must be given, or minimize, e.g. maximize: goodput")])
    return objectives
