"""Studies and sweeps as YAML files, and their output folders."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway import loading
from spillway.catalog import by_name
from spillway.config import files, filesystem, yaml
from spillway.config.classes import config_error
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
from spillway.study.objective import Direction, Objective
from spillway.study.racing import Racing
from spillway.study.space import Space
from spillway.study.study import Study
from spillway.study.sweeps import Sweep, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway._core.cluster import Simulation
    from spillway.study.confirmation import Confirmation
    from spillway.study.solvers import Solution

__all__ = ["StudyFile", "read_study", "run_sweep", "write_results", "write_sweep"]


def __dir__() -> list[str]:
    return __all__


_COUNT = whole(1, MOST_RUNS)
_MOST_REQUESTS = 10**9
_FIGURES = items(by_type({str: text, Mapping: mapping(number())}, "must be a figure"))
_BOUNDS = mapping(anything, may_be_empty=False)
_SPACE: dict[str, Check] = {
    "space": mapping(anything, may_be_empty=False),
    "order": by_type({str: text, list: items(text)}, "must be like `a <= b`, or a list of such"),
}
_RACING = keys({"first_seeds": whole(2, MOST_RUNS), "p": number(above=0, below=0.5)})
_CONFIRM = keys(
    {
        "top": _COUNT,
        "seeds": seeds,
        "confidence": number(above=0, below=1),
        "within": number(above=0, below=1, or_equal=True),
        "objective": whole(0, MOST_RUNS),
    }
)
_BASE: dict[str, Check] = {
    "schema": whole(files.SCHEMAS[0], files.SCHEMAS[-1]),
    "simulation": by_type(
        {str: text, Mapping: mapping(anything)}, "must be a file or a mapping of settings"
    ),
    "scenario": text,
    "presets": anything,
    "seeds": seeds,
    "metrics": _FIGURES,
}
_STUDY: dict[str, Check] = {
    **_BASE,
    **_SPACE,
    "maximize": objectives,
    "minimize": objectives,
    "constraints": mapping(anything),
    "sampler": by_type(
        {str: text, Mapping: mapping(anything)},
        "must be a name, or a mapping of name and arguments",
    ),
    "seed": whole(0, 2**32 - 1),
    "trials": _COUNT,
    "batch_size": _COUNT,
    "racing": by_type(
        {bool: truth, Mapping: _RACING}, "must be true, false, or a mapping of first_seeds and p"
    ),
    "check": truth,
    "confirm": by_type(
        {bool: truth, Mapping: _CONFIRM},
        "must be true, false, or a mapping of top, seeds, confidence, within and objective",
    ),
}
_SWEEPS: dict[str, Check] = {
    "grid": mapping(items(anything)),
    "isolation": mapping(mapping(anything)),
    "sobol": keys({**_SPACE, "n": _COUNT, "seed": whole(0, 2**32 - 1)}, required=["space"]),
    "one_at_a_time": keys({**_SPACE, "points": whole(2, MOST_RUNS)}, required=["space"]),
    "max_rate_under_slo": keys(
        {
            "slo": _BOUNDS,
            "low": number(above=0),
            "high": number(above=0),
            "tolerance": number(above=0, below=1),
            "max_requests": whole(1, _MOST_REQUESTS),
        },
        required=["slo"],
    ),
    "min_instances_for_rate": keys(
        {
            "slo": _BOUNDS,
            "rate_per_s": number(above=0),
            "group": whole(0, MOST_RUNS),
            "most": whole(1, 100_000),
            "max_requests": whole(1, _MOST_REQUESTS),
        },
        required=["slo"],
    ),
}
_SOLVERS = ("max_rate_under_slo", "min_instances_for_rate")
_DEFAULT_TRIALS = 40


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
        """The study, new or resumed from its storage."""
        return Study(
            self.simulation,
            Space(self.settings["space"], self.settings.get("order")),
            _objectives(self.settings),
            self.settings.get("constraints"),
            storage=storage,
            **{key: self.settings[key] for key in _PLAIN if key in self.settings},
        )

    def write(self, path: Path) -> None:
        """Writes a self-contained file with the whole simulation."""
        settings = {
            "schema": files.SCHEMA,
            "simulation": files.to_settings(self.simulation, path.parent),
            **{
                key: value
                for key, value in self.settings.items()
                if key not in ("simulation", "scenario", "presets")
            },
        }
        with filesystem.replacing(path) as temporary:
            temporary.write_text(yaml.to_yaml(settings), encoding="utf-8")


_PLAIN = ("seeds", "sampler", "seed", "metrics")


def read_study(path: str | Path) -> StudyFile:
    """Reads a study file.

    `simulation`: a configuration file or its settings; `scenario`: a named workload that replaces
    its own; `presets`: presets whose settings replace its own (see `spillway.catalog`); `space` and
    `order`, see `Space`; `maximize` or `minimize`: a figure, a mapping of figures to weights, or a
    list of such; `constraints`; `seeds`: their number or a list; `sampler`, `seed`, `trials`,
    `batch_size`, `metrics`; `racing`: true or {first_seeds, p}; `check`; `confirm`: true, false or
    {top, seeds, confidence, within}.

    Raises ConfigError for invalid values.
    """
    path = Path(path)
    settings = files.read_settings(path)
    check_keys(settings, _STUDY, path)
    if "space" not in settings:
        raise config_error([("space", "", "must name the paths to vary")])
    racing = settings.get("racing", False)
    confirm = settings.get("confirm", True)
    if isinstance(racing, Mapping):
        racing = Racing(**racing)
    simulation = _simulation(settings, path.parent)
    files.note_empty(settings, path)
    return StudyFile(
        simulation=simulation,
        settings=settings,
        trials=settings.get("trials", _DEFAULT_TRIALS),
        optimize={
            "racing": racing,
            "check": settings.get("check", True),
            "batch_size": settings.get("batch_size", 4),
        },
        confirm=None if confirm is False else {} if confirm is True else confirm,
    )


def write_results(study: Study, folder: Path, confirmation: Confirmation | None) -> None:
    """Writes trials.csv, search_history.json, best.yaml and, if confirmed, confirmation.json.

    best.yaml holds the winner of the confirmation, or the current configuration if there is no
    winner; without a confirmation, the best trial. It is not written if no trial is feasible.
    """
    write_rows(study.rows(), folder / "trials.csv")
    with filesystem.replacing(folder / "search_history.json") as temporary:
        history = json.dumps(study.search_history(), indent=2, allow_nan=False)
        temporary.write_text(history + "\n", encoding="utf-8")
    if confirmation is not None:
        confirmation.write(folder / "confirmation.json")
        files.dump(confirmation.best, folder / "best.yaml")
    elif len(study.objectives) == 1 and study.feasible:
        files.dump(study.best, folder / "best.yaml")


def run_sweep(path: str | Path, *, threads: int | None = None) -> Sweep | Solution:
    """Runs a sweep file.

    Beside `simulation`, `scenario`, `presets`, `seeds` and `metrics` it holds one of: `grid`
    ({path: values}), `isolation` ({name: {path: value}}), `sobol` ({space, order, n, seed}),
    `one_at_a_time` ({space, order, points}), `max_rate_under_slo` ({slo, low, high, tolerance,
    max_requests}) and `min_instances_for_rate` ({slo, rate_per_s, group, most, max_requests}).

    Raises ConfigError for invalid values.
    """
    path = Path(path)
    settings = files.read_settings(path)
    check_keys(settings, _BASE | _SWEEPS, path)
    kinds = [key for key in _SWEEPS if key in settings]
    if len(kinds) != 1:
        raise config_error([(str(path), "", f"must hold one of {', '.join(_SWEEPS)}")])
    kind = kinds[0]
    simulation = _simulation(settings, path.parent)
    files.note_empty(settings, path)
    common: dict[str, Any] = {"threads": threads}
    if "seeds" in settings:
        common["seeds"] = settings["seeds"]
    is_solver = kind in _SOLVERS
    function: Callable[..., Sweep | Solution] = getattr(solvers if is_solver else sweeps, kind)
    if "metrics" in settings and not is_solver:
        common["metrics"] = settings["metrics"]
    if kind in ("grid", "isolation"):
        return function(simulation, settings[kind], **common)
    arguments = dict(settings[kind])
    if is_solver:
        main = arguments.pop("slo")
    else:
        main = Space(arguments.pop("space"), arguments.pop("order", None))
    try:
        return function(simulation, main, **arguments, **common)
    except ValueError as error:
        if hasattr(error, "violations"):
            raise
        raise config_error([(kind, "", str(error))]) from error


def write_sweep(found: Sweep | Solution, folder: Path) -> None:
    """Writes sweep.csv, or solution.json of a solver."""
    if isinstance(found, Sweep):
        found.write(folder / "sweep.csv")
        return
    with filesystem.replacing(folder / "solution.json") as temporary:
        temporary.write_text(json.dumps(found.to_dict(), indent=2) + "\n", encoding="utf-8")


def _simulation(settings: Mapping[str, Any], base: Path) -> Simulation:
    stated = settings.get("simulation", {})
    if isinstance(stated, str):
        base = (base / stated).parent
        path = base / Path(stated).name
        stated = files.read_settings(path)
        files.note_empty(stated, path)
    elif "schema" in settings:
        stated = {"schema": settings["schema"], **stated}
    if "scenario" in settings:
        stated = by_name.with_scenario(stated, settings["scenario"])
    return by_name.apply(settings.get("presets", []), loading.from_settings(stated, base=base))


def _objectives(settings: Mapping[str, Any]) -> list[Objective]:
    found: list[Objective] = []
    directions: tuple[Direction, ...] = ("maximize", "minimize")
    for direction in directions:
        stated = settings.get(direction, [])
        many = stated if isinstance(stated, list) else [stated]
        found += [Objective(one, direction) for one in many]
    if not found:
        raise config_error([("maximize", "", "must be given, or minimize, e.g. maximize: goodput")])
    return found
