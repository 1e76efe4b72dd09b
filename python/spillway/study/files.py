"""Studies and sweeps as YAML files, and what they leave behind in a folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from spillway import files, scenarios
from spillway._config import config_error
from spillway.study import solvers, sweeps
from spillway.study.objective import Objective
from spillway.study.racing import Racing
from spillway.study.space import Space
from spillway.study.study import Study
from spillway.study.sweeps import Sweep, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway._core.cluster import Simulation
    from spillway.study.confirmation import Confirmation
    from spillway.study.solvers import Solution

_BASE_KEYS = ("schema", "simulation", "scenario", "seeds", "metrics")
_STUDY_KEYS = (
    *_BASE_KEYS, "space", "order", "maximize", "minimize", "constraints", "sampler", "seed",
    "trials", "batch_size", "racing", "check", "confirm",
)  # fmt: skip
_SWEEPS: dict[str, tuple[str, ...]] = {
    "grid": (),
    "isolation": (),
    "sobol": ("space", "order", "n", "seed"),
    "one_at_a_time": ("space", "order", "points"),
    "max_rate_under_slo": ("slo", "low", "high", "tolerance", "max_requests"),
    "min_instances_for_rate": ("slo", "rate_per_s", "group", "most", "max_requests"),
}
_DEFAULT_TRIALS = 40


@dataclasses.dataclass(frozen=True)
class StudyFile:
    """What a study's file says: the problem, and how it is to be searched.

    `confirm` holds the arguments of `Study.confirm`; None: do not confirm.
    """

    simulation: Simulation
    settings: Mapping[str, Any]
    trials: int
    optimize: Mapping[str, Any]
    confirm: Mapping[str, Any] | None

    def study(self, storage: str | Path | None = None) -> Study:
        """The study, new or as far as it has come in its storage."""
        return Study(
            self.simulation,
            Space(self.settings["space"], self.settings.get("order")),
            _objectives(self.settings),
            self.settings.get("constraints"),
            storage=storage,
            **{key: _given(self.settings, key) for key in _PLAIN if key in self.settings},
        )

    def write(self, path: Path) -> None:
        """Writes the file with the whole simulation in it, so that it stands alone."""
        settings = {
            "schema": files.SCHEMA,
            "simulation": files.to_settings(self.simulation, path.parent),
            **{
                key: value
                for key, value in self.settings.items()
                if key not in ("simulation", "scenario")
            },
        }
        with files.replacing(path) as temporary:
            temporary.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")


_PLAIN = ("seeds", "sampler", "seed", "metrics")


def read_study(path: str | Path) -> StudyFile:
    """Reads a study's file.

    `simulation`: a configuration file or its settings; `scenario`: a named workload instead of its
    own; `space` and `order`, see `Space`; `maximize` or `minimize`: a figure, a mapping of figures
    to weights, or a list of such; `constraints`; `seeds`: their number or a list; `sampler`,
    `seed`, `trials`, `batch_size`, `metrics`; `racing`: true or {first_seeds, p}; `check`;
    `confirm`: true, false or {top, seeds, confidence, within}.

    Raises ConfigError with what is wrong.
    """
    path = Path(path)
    settings = files.read_settings(path)
    _check_keys(settings, _STUDY_KEYS, path)
    if "space" not in settings:
        raise config_error([("space", "", "must name the paths to vary")])
    racing = settings.get("racing", False)
    confirm = settings.get("confirm", True)
    trials = settings.get("trials", _DEFAULT_TRIALS)
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise config_error([("trials", repr(trials), "must be a whole number >= 1")])
    if isinstance(racing, Mapping):
        racing = _called(Racing, racing, "racing")
    simulation = _simulation(settings, path.parent)
    files.note_gaps(settings, path)
    return StudyFile(
        simulation=simulation,
        settings=settings,
        trials=trials,
        optimize={
            "racing": racing,
            "check": settings.get("check", True),
            "batch_size": settings.get("batch_size", 4),
        },
        confirm=None if confirm is False else {} if confirm is True else confirm,
    )


def write_results(study: Study, folder: Path, confirmation: Confirmation | None) -> None:
    """Writes trials.csv, best.yaml and, if it was confirmed, confirmation.json.

    best.yaml holds the winner of the confirmation, and the current configuration if none won;
    without a confirmation the best trial. It is not written if nothing is feasible.
    """
    write_rows(study.rows(), folder / "trials.csv")
    if confirmation is not None:
        confirmation.write(folder / "confirmation.json")
        files.dump(confirmation.best, folder / "best.yaml")
    elif len(study.objectives) == 1 and study.feasible:
        files.dump(study.best, folder / "best.yaml")


def run_sweep(path: str | Path, *, threads: int | None = None) -> Sweep | Solution:
    """Runs what a sweep's file says.

    Beside `simulation`, `scenario`, `seeds` and `metrics` it holds one of: `grid` ({path: values}),
    `isolation` ({name: {path: value}}), `sobol` ({space, order, n, seed}), `one_at_a_time` ({space,
    order, points}), `max_rate_under_slo` ({slo, low, high, tolerance, max_requests}) and
    `min_instances_for_rate` ({slo, rate_per_s, group, most, max_requests}).

    Raises ConfigError with what is wrong.
    """
    path = Path(path)
    settings = files.read_settings(path)
    _check_keys(settings, (*_BASE_KEYS, *_SWEEPS), path)
    kinds = [key for key in _SWEEPS if key in settings]
    if len(kinds) != 1:
        raise config_error([(str(path), "", f"must hold one of {', '.join(_SWEEPS)}")])
    kind = kinds[0]
    stated = settings[kind]
    if not isinstance(stated, Mapping):
        raise config_error([(kind, repr(stated), "must be a mapping")])
    simulation = _simulation(settings, path.parent)
    files.note_gaps(settings, path)
    common: dict[str, Any] = {"threads": threads}
    if "seeds" in settings:
        common["seeds"] = _given(settings, "seeds")
    function: Callable[..., Sweep | Solution] = getattr(
        solvers if "slo" in _SWEEPS[kind] else sweeps, kind
    )
    if "metrics" in settings and "slo" not in _SWEEPS[kind]:
        common["metrics"] = settings["metrics"]
    if not _SWEEPS[kind]:
        return function(simulation, stated, **common)
    arguments = dict(stated)
    _check_keys(arguments, _SWEEPS[kind], kind)
    first = "slo" if "slo" in _SWEEPS[kind] else "space"
    if first not in arguments:
        raise config_error([(f"{kind}.{first}", "", "must be given")])
    main = arguments.pop(first)
    if first == "space":
        main = Space(main, arguments.pop("order", None))
    found: Sweep | Solution = _called(function, {**arguments, **common}, kind, simulation, main)
    return found


def write_sweep(found: Sweep | Solution, folder: Path) -> None:
    """Writes sweep.csv, or solution.json of a solver."""
    if isinstance(found, Sweep):
        found.write(folder / "sweep.csv")
        return
    with files.replacing(folder / "solution.json") as temporary:
        temporary.write_text(json.dumps(found.to_dict(), indent=2) + "\n", encoding="utf-8")


def _simulation(settings: Mapping[str, Any], base: Path) -> Simulation:
    stated = settings.get("simulation", {})
    if isinstance(stated, str):
        base = (base / stated).parent
        path = base / Path(stated).name
        stated = files.read_settings(path)
        files.note_gaps(stated, path)
    elif not isinstance(stated, Mapping):
        raise config_error([("simulation", repr(stated), "must be a file or a mapping")])
    if "scenario" in settings:
        stated = {**stated, **scenarios.get(settings["scenario"]).to_dict()}
    return files.from_settings(stated, base=base)


def _objectives(settings: Mapping[str, Any]) -> list[Objective]:
    found: list[Objective] = []
    for direction in ("maximize", "minimize"):
        stated = settings.get(direction, [])
        many = stated if isinstance(stated, list) else [stated]
        found += [_objective(one, direction) for one in many]
    if not found:
        raise config_error([("maximize", "", "must be given, or minimize, e.g. maximize: goodput")])
    return found


def _objective(stated: Any, direction: Any) -> Objective:
    if not isinstance(stated, str | Mapping):
        allowed = "must be a figure, or a mapping of figures to weights"
        raise config_error([(direction, repr(stated), allowed)])
    return Objective(stated, direction)


def _given(settings: Mapping[str, Any], key: str) -> Any:
    value = settings[key]
    if key != "seeds":
        return value
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    many = value if is_list else [value]
    if not many or not all(isinstance(v, int) and not isinstance(v, bool) for v in many):
        raise config_error([("seeds", repr(value), "must be their number, or a list of seeds")])
    if not is_list and value < 1:
        raise config_error([("seeds", repr(value), "must be >= 1")])
    return value


def _check_keys(settings: Mapping[str, Any], known: Sequence[str], where: str | Path) -> None:
    import difflib

    for key in settings:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(known)}"
            raise config_error([(f"{where}: {key}", "", f"is no known key; {hint}")])


def _called(function: Any, arguments: Mapping[str, Any], where: str, *first: Any) -> Any:
    try:
        return function(*first, **arguments)
    except (TypeError, ValueError) as error:
        if hasattr(error, "violations"):
            raise
        raise config_error([(where, "", str(error))]) from error
