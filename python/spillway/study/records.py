"""The record of a trial, and its form in Optuna's trials."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from spillway.data.intervals import spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optuna.trial import FrozenTrial

    from spillway._core.cluster import Simulation
    from spillway.analysis.stationarity import Verdict
    from spillway.study.space import Point


Rows = tuple[tuple[float, ...], ...]
"""A row of values per figure, one per seed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
    """A configuration that a study asks for, see `Study.ask`.

    `number` is that of its trial, `point` the values of its parameters, `simulation` what to run
    under each of `seeds`.
    """

    number: int
    point: Point
    simulation: Simulation
    seeds: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """One configuration, evaluated or failed.

    `point` holds the parameters of the run, after the order constraints; `objectives`,
    `constraints` and `metrics` hold a row per figure with a value per seed; `values` and `ses` the
    means and standard errors that the search uses (NaN with one seed; over resamples of a trace,
    those of the mean over resamples, which all trials share); `violations` and
    `violation_ses` the same for the signed violations of the constraints, as shares of their
    bounds, <= 0 where they hold. `is_replicated`: whether the runs differ; if all seeds give the
    same run, its values are repeated for each seed and the errors are 0. `saturation`: whether the
    system keeps up with its load, judged from all seeds together (see `Result.saturation`); None if
    it is not known. A failed trial has a `failure` and no values.
    """

    number: int
    point: Point
    seeds: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    ses: tuple[float, ...] = ()
    violations: tuple[float, ...] = ()
    violation_ses: tuple[float, ...] = ()
    objectives: Rows = ()
    constraints: Rows = ()
    metrics: Rows = ()
    is_replicated: bool = True
    saturation: Verdict | None = None
    fingerprint: str = ""
    duplicate_of: int | None = None
    failure: str | None = None
    warnings: tuple[str, ...] = ()
    is_baseline: bool = False

    @property
    def has_values(self) -> bool:
        """Whether it was evaluated, or equals a trial that was."""
        return bool(self.values)

    @property
    def is_exact(self) -> bool:
        """Whether there are several seeds and all give the same run."""
        return len(self.seeds) > 1 and not self.is_replicated

    @property
    def num_runs(self) -> int:
        """Number of different runs behind its values."""
        return 1 if self.is_exact else len(self.seeds)

    @property
    def is_feasible(self) -> bool:
        """Whether it was evaluated and its constraints hold."""
        return self.has_values and all(violation <= 0 for violation in self.violations)

    @property
    def violation(self) -> float:
        """The sum of the violations of its constraints; 0 if they hold."""
        return math.fsum(max(violation, 0.0) for violation in self.violations)

    @property
    def state(self) -> str:
        """`complete`, `infeasible`, `duplicate` or `failed`."""
        if not self.has_values:
            return "failed"
        if self.duplicate_of is not None:
            return "duplicate"
        return "complete" if self.is_feasible else "infeasible"


_RECORDED = (
    *("seeds", "values", "violations", "is_replicated", "saturation", "fingerprint", "warnings"),
    *("objectives", "constraints", "metrics"),
)


_WITHOUT_RECORD = "its values came through Optuna instead of `study.tell`, so its runs are unknown"


def attributes(trial: Trial) -> dict[str, Any]:
    """The trial as Optuna user attributes, which any storage can hold.

    They must be written in this order: a process that dies in between leaves no record.
    """
    found: dict[str, Any] = {}
    if trial.has_values:
        if not trial.is_exact:
            found["num_runs"] = trial.num_runs
        found["objective_se"] = list(trial.ses)
        found["constraints_se"] = list(trial.violation_ses)
    for name in ("duplicate_of", "failure"):
        if getattr(trial, name) is not None:
            found[name] = getattr(trial, name)
    record = {name: _as_lists(getattr(trial, name)) for name in _RECORDED}
    found["record"] = {"point": trial.point, **record}
    return found


def from_optuna(frozen: FrozenTrial) -> Trial | None:
    """The trial recorded in one of Optuna's; None if that is still running."""
    if not frozen.state.is_finished():
        return None
    held = frozen.user_attrs
    of_abandoned = attributes(Trial(number=frozen.number, point=dict(frozen.params)))
    record: Mapping[str, Any] = held.get("record", of_abandoned["record"])
    unrecorded = "it was abandoned" if frozen.state.name == "FAIL" else _WITHOUT_RECORD
    return Trial(
        number=frozen.number,
        point=dict(record["point"]),
        ses=tuple(held.get("objective_se", ())),
        violation_ses=tuple(held.get("constraints_se", ())),
        duplicate_of=held.get("duplicate_of"),
        failure=held.get("failure", None if record["values"] else unrecorded),
        is_baseline=bool(held.get("baseline", False)),
        **{name: _as_tuples(record[name]) for name in _RECORDED},
    )


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean, with a correctly rounded sum."""
    return math.fsum(values) / len(values)


def standard_error(values: Sequence[float], *, are_resamples: bool = False) -> float:
    """The standard error of the mean of independent values; NaN with fewer than two.

    `are_resamples`: they are values of resamples of one trace, and the error is that of the mean
    over such traces, which is their standard deviation.
    """
    n = len(values)
    if n < 2:
        return math.nan
    if are_resamples:
        return spread(values)
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (n - 1) / n)
