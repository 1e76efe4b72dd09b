"""The space of a study: dotted paths of a simulation, and the values of each."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.config import formatting
from spillway.config.classes import config_error
from spillway.config.messages import checked, checked_simulation
from spillway.study import descriptors
from spillway.study.checks import anything, by_type, keys, mapping, number, refusal, truth

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optuna.trial import BaseTrial

    from spillway._core.cluster import Simulation


Point = dict[str, Any]
"""A value for each open parameter, by name."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, both inclusive, in the unit of the field.

    log
        Whether the scale is logarithmic; None: as in the field's own search range.
    step
        Only low, low + step, low + 2 step, …; not together with `log`.
    """

    low: float
    high: float
    log: bool | None = None
    step: float | None = None


@dataclasses.dataclass(frozen=True, init=False)
class Choice:
    """One of several values, without an order among them.

    A mapping names the values; policies without a name are named by their kind.
    """

    options: tuple[tuple[Any, Any], ...]

    def __init__(self, options: Sequence[Any] | Mapping[str, Any]) -> None:
        if isinstance(options, Mapping):
            named = tuple(options.items())
        else:
            named = tuple((_label(option), option) for option in options)
        if not named:
            raise ValueError("a choice needs at least one option")
        if len({(type(label), label) for label, _ in named}) < len(named):
            raise ValueError(f"two options of a choice have the same name: {named!r}")
        object.__setattr__(self, "options", named)


@dataclasses.dataclass(frozen=True, init=False)
class Kinds:
    """One of several kinds of policy, each of which opens its own parameters.

    `Kinds({"aimd": {"band": "auto"}, "pid": {"kp": (0, 1)}})`: other fields keep their value in the
    simulation, or else their default. A plain value fixes a field.
    """

    kinds: tuple[tuple[str, Mapping[str, Any]], ...]

    def __init__(self, kinds: Mapping[str, Mapping[str, Any] | None]) -> None:
        if not kinds:
            raise ValueError("there must be at least one kind")
        named = tuple((kind, dict(fields or {})) for kind, fields in kinds.items())
        object.__setattr__(self, "kinds", named)


class Space:
    """Dotted paths of a simulation, each with its possible values.

    Parameters
    ----------
    dimensions
        By path (`gateway.controller.band`, `tenants[A].weight`): `"auto"` for the field's own
        search range; (low, high) or `Range`; a list of other than two numbers or `Choice`; `Kinds`
        for a policy whose kind opens its own parameters. In a file `Range` is {low, high, log,
        step}, `Choice` is {choices: […]} and `Kinds` is {kinds: {…}}.
    order
        Parameters that must not decrease, e.g. "gateway.guard.floor <= gateway.guard.ceiling". A
        point that violates the order is replaced by the one with these values sorted. Paths outside
        the space take part with their value in the simulation.

    Examples
    --------
    >>> import spillway
    >>> space = spillway.Space(
    ...     {
    ...         "gateway.limit[0].max_in_flight": (8, 128),
    ...         "router": ["round_robin", "least_loaded", "random"],
    ...     }
    ... )
    >>> simulation = spillway.Simulation(gateway={"limit": {"kind": "fixed", "max_in_flight": 64}})
    >>> space.bind(simulation).current()
    {'gateway.limit[0].max_in_flight': 64, 'router': 'round_robin'}
    """

    def __init__(
        self, dimensions: Mapping[str, Any], order: str | Sequence[str] | None = None
    ) -> None:
        allowed = "a mapping of dotted paths to ranges or choices"
        if not checked("dimensions", dimensions, Mapping, allowed):
            raise config_error([("space", "", "must name at least one path to vary")])
        self.dimensions = {
            str(path): _as_dimension(path, written) for path, written in dimensions.items()
        }
        chains = [order] if isinstance(order, str) else list(order or ())
        self.order = tuple(_chain(line) for line in chains)

    def bind(self, simulation: Simulation) -> BoundSpace:
        """The parameters with their ranges for this simulation.

        Raises ConfigError for an unknown path or an invalid range.
        """
        return BoundSpace(self, checked_simulation(simulation))

    def to_dict(self) -> dict[str, Any]:
        """The space in the form of a study file."""
        return {path: _written(dimension) for path, dimension in self.dimensions.items()}

    def order_lines(self) -> list[str]:
        """The order constraints in the form of a study file."""
        return [" <= ".join(chain) for chain in self.order]

    def __repr__(self) -> str:
        order = f", order={self.order_lines()!r}" if self.order else ""
        return f"Space({self.to_dict()!r}{order})"


def as_space(space: Space | Mapping[str, Any]) -> Space:
    """A space, or the one with these dimensions."""
    return space if isinstance(space, Space) else Space(space)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One dimension of a search.

    `kind` is "float", "int" or "choice"; `opens_with` names the parameter and its value that open
    this one.
    """

    name: str
    kind: str
    unit: str = ""
    low: float = math.nan
    high: float = math.nan
    log: bool = False
    step: float | None = None
    options: tuple[tuple[Any, Any], ...] = ()
    opens_with: tuple[str, str] | None = None
    valid_low: float = -math.inf
    valid_high: float = math.inf

    @property
    def is_numeric(self) -> bool:
        """Whether its values are numbers between `low` and `high`."""
        return self.kind != "choice"

    @property
    def labels(self) -> tuple[Any, ...]:
        """The names of a choice's options."""
        return tuple(label for label, _ in self.options)

    def has(self, value: Any) -> bool:
        """Whether the value is in the range or among the options."""
        if not self.is_numeric:
            return any(type(label) is type(value) and label == value for label in self.labels)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and self.low <= value <= self.high

    def is_on_step(self, value: Any) -> bool:
        """Whether the value in the range is one that the search can propose."""
        distribution = self.distribution()
        return bool(distribution._contains(distribution.to_internal_repr(value)))

    @property
    def allowed(self) -> str:
        """The values of the parameter, in words."""
        if not self.is_numeric:
            return f"one of {', '.join(map(repr, self.labels))}"
        step = f" in steps of {self.step:g}" if self.step else ""
        number = "a whole number" if self.kind == "int" else "a number"
        return f"{number} >= {self.low:g} and <= {self.high:g}{step}"

    def suggest(self, trial: BaseTrial) -> Any:
        """Asks an Optuna trial for a value."""
        if not self.is_numeric:
            return trial.suggest_categorical(self.name, self.labels)
        suggest = trial.suggest_int if self.kind == "int" else trial.suggest_float
        return suggest(self.name, **self._limits())

    def distribution(self) -> Any:
        """The parameter as an Optuna distribution."""
        from optuna import distributions

        if not self.is_numeric:
            return distributions.CategoricalDistribution(self.labels)
        if self.kind == "int":
            return distributions.IntDistribution(**self._limits())
        return distributions.FloatDistribution(**self._limits())

    def _limits(self) -> dict[str, Any]:
        if self.kind == "float":
            return {"low": self.low, "high": self.high, "log": self.log, "step": self.step}
        step = 1 if self.step is None else int(self.step)
        return {"low": int(self.low), "high": int(self.high), "log": self.log, "step": step}

    def at(self, share: float) -> Any:
        """The value at `share` in [0, 1] of the range or the options."""
        if not self.is_numeric:
            return self.labels[min(int(share * len(self.options)), len(self.options) - 1)]
        if self.kind == "int" and not self.log:
            # Every integer gets the same share.
            value = self.low + math.floor(share * (self.high - self.low + 1))
            return self._on_step(min(value, self.high))
        return self._on_step(min(max(self.number_at(share), self.low), self.high))

    def values(self, shares: Iterable[float]) -> list[Any]:
        """The different values at these shares of the range, or all options."""
        if not self.is_numeric:
            return list(self.labels)
        return list(dict.fromkeys(map(self.at, shares)))

    def number_at(self, share: float) -> float:
        """The number at `share` of the range, whatever the step: the inverse of `share_of`."""
        if self.log:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + share * (self.high - self.low)

    def share_of(self, value: float) -> float:
        """The position of a number in the range: 0 at its low end, 1 at its high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / ((self.high - self.low) or 1)

    def nearest(self, value: float) -> Any:
        """The nearest valid value between `low` and `high`."""
        clipped = min(max(value, self.low), self.high)
        return round(clipped) if self.kind == "int" else float(clipped)

    def _on_step(self, value: float) -> Any:
        if self.step is not None:
            value = min(self.low + round((value - self.low) / self.step) * self.step, self.high)
        return round(value) if self.kind == "int" else float(value)


class _Place(NamedTuple):
    """A path of the simulation with its dimension, and the kind of policy that opens it."""

    name: str
    field: Mapping[str, Any]
    dimension: Any
    value: Any
    opens_with: tuple[str, str] | None


def _equal(known: Any, value: Any) -> bool:
    return type(known) is type(value) and known == value


class BoundSpace:
    """A space bound to one simulation: types, ranges, current values."""

    def __init__(self, space: Space, simulation: Simulation) -> None:
        self.space = space
        self.simulation = simulation
        self._nouns: dict[str, dict[str, dict[str, Any]]] = {}
        self._fields: dict[str, tuple[str, str]] = {}
        self._current: Point = {}
        self._outside: Point = {}  # unchanged values of the simulation
        found: dict[str, Parameter] = {}
        for path, dimension in space.dimensions.items():
            field, value = descriptors.lookup(simulation, path)
            for parameter in self._open(_Place(path, field, dimension, value, None)):
                found[parameter.name] = parameter
        self.parameters = self._narrowed(found)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters.values())

    def __len__(self) -> int:
        return len(self.parameters)

    @property
    def is_conditional(self) -> bool:
        """Whether some parameters are open only for some values of others."""
        return any(parameter.opens_with for parameter in self)

    def ask(self, trial: BaseTrial) -> Point:
        """Asks an Optuna trial for a value of each parameter that is open."""
        point: Point = {}
        for parameter in self:
            if self._is_open(parameter, point):
                point[parameter.name] = parameter.suggest(trial)
        return point

    def at(self, shares: Sequence[float]) -> Point:
        """The point at these positions in [0, 1] of the ranges, one per parameter."""
        point: Point = {}
        for parameter, share in zip(self, shares, strict=True):
            if self._is_open(parameter, point):
                point[parameter.name] = parameter.at(share)
        return self.ordered(point)

    def current(self) -> Point:
        """The simulation's own values; a value outside its range or options is left out."""
        point: Point = {}
        for parameter in self:
            if self._is_open(parameter, point) and self._has_current(parameter):
                point[parameter.name] = self._current[parameter.name]
        return point

    def outside(self) -> dict[str, Any]:
        """The parameters whose value in the simulation is outside the space."""
        point = self.current()
        opened = {parameter.name for parameter in self if self._is_open(parameter, point)}
        return {name: self._outside.get(name) for name in opened if name not in point}

    def _has_current(self, parameter: Parameter) -> bool:
        return parameter.name in self._current and parameter.has(self._current[parameter.name])

    def complete(self, point: Point) -> Point:
        """`point` with its missing values: the simulation's own, or the middle of the range."""
        full: Point = {}
        for parameter in self:
            if self._is_open(parameter, full):
                has_current = self._has_current(parameter)
                fallback = self._current[parameter.name] if has_current else parameter.at(0.5)
                full[parameter.name] = point.get(parameter.name, fallback)
        return full

    def checked(self, point: Mapping[str, Any]) -> Point:
        """Some or all parameters of a point, which must be open, in range and in order.

        Raises ConfigError otherwise.
        """
        chosen = dict(point)
        for name, value in chosen.items():
            if name not in self.parameters:
                near = difflib.get_close_matches(name, self.parameters, n=1)
                hint = (
                    f"did you mean {near[0]!r}?" if near else f"one of {', '.join(self.parameters)}"
                )
                raise config_error([(name, "", f"is not searched; {hint}")])
            parameter = self.parameters[name]
            if not self._is_open(parameter, chosen):
                parent, kind = parameter.opens_with or ("", "")
                raise config_error([(name, repr(value), f"needs {parent} = {kind!r} beside it")])
            if not parameter.has(value) or not parameter.is_on_step(value):
                raise config_error([(name, repr(value), f"must be {parameter.allowed}")])
        if self.ordered(chosen) != chosen:
            lines = ", ".join(self.space.order_lines())
            raise config_error([("point", formatting.point(chosen), f"must satisfy {lines}")])
        return chosen

    def ordered(self, point: Point) -> Point:
        """`point` with its values sorted by the order constraints."""
        for chain in self.space.order:
            members = [self.parameters[name] for name in chain if name in point]
            values = [point[parameter.name] for parameter in members]
            if values != sorted(values):
                repaired = zip(members, sorted(values), strict=True)
                point = point | {known.name: known.nearest(value) for known, value in repaired}
        return point

    def apply(self, point: Point) -> Simulation:
        """The simulation at a point; ConfigError if the combination is invalid."""
        changes = {
            parameter.name: self._value(parameter, point)
            for parameter in self
            if parameter.opens_with is None and parameter.name in point
        }
        return self.simulation.with_(changes)

    def _value(self, parameter: Parameter, point: Point) -> Any:
        chosen = point[parameter.name]
        if parameter.name not in self._nouns:
            if parameter.is_numeric:
                return chosen
            return next(value for key, value in parameter.options if _equal(key, chosen))
        noun = dict(self._nouns[parameter.name][chosen])
        for name, (parent, field) in self._fields.items():
            child = self.parameters[name]
            if parent == parameter.name and name in point and child.opens_with == (parent, chosen):
                noun[field] = self._value(child, point)
        return noun

    def _is_open(self, parameter: Parameter, point: Point) -> bool:
        opens_with = parameter.opens_with
        return opens_with is None or point.get(opens_with[0]) == opens_with[1]

    def _open(self, place: _Place) -> Iterator[Parameter]:
        """The parameter of a dimension, and those that it opens."""
        name, field, dimension, value, opens_with = place
        self._outside[name] = value
        if isinstance(dimension, Kinds):
            yield from self._open_kinds(place, dimension)
        elif isinstance(dimension, Choice):
            self._remember_choice(place, dimension)
            yield Parameter(name, "choice", options=dimension.options, opens_with=opens_with)
        elif field["type"] in ("bool", "choice") and dimension == "auto":
            self._current[name] = value
            options = tuple((choice, choice) for choice in field.get("choices", (False, True)))
            yield Parameter(name, "choice", options=options, opens_with=opens_with)
        else:
            self._current[name] = value
            yield _numeric(name, field, dimension, opens_with)

    def _open_kinds(self, place: _Place, dimension: Kinds) -> Iterator[Parameter]:
        name, field, _, value, opens_with = place
        if field["type"] != "variant":
            raise config_error([(name, "", "has no kinds; give it a range or a choice")])
        present = value[0] if isinstance(value, list) and len(value) == 1 else value
        kind_now = present["kind"] if isinstance(present, dict) else None
        self._current[name] = kind_now
        self._nouns[name] = {}
        kinds = tuple((kind, kind) for kind, _ in dimension.kinds)
        yield Parameter(name, "choice", options=kinds, opens_with=opens_with)
        for kind, fields in dimension.kinds:
            description = descriptors.alternative(field, kind, name)
            noun = dict(present) if kind == kind_now else {"kind": kind}
            self._nouns[name][kind] = noun
            for inner, as_written in fields.items():
                inner_name = f"{name}[{kind}].{inner}"
                inner_field = descriptors.field_of(description, inner, inner_name)
                inner_dimension = _as_dimension(inner_name, as_written, may_fix=True)
                if isinstance(inner_dimension, _Fixed):
                    noun[inner] = inner_dimension.value
                    continue
                self._fields[inner_name] = (name, inner)
                inside = noun.get(inner, inner_field.get("default"))
                opening = (name, kind)
                yield from self._open(
                    _Place(inner_name, inner_field, inner_dimension, inside, opening)
                )

    def _remember_choice(self, place: _Place, dimension: Choice) -> None:
        name, field, _, value, opens_with = place
        is_policy = opens_with is None and field["type"] in ("struct", "variant")
        same = itertools.chain(
            # A policy may have a short form; it is the current one if it changes nothing.
            (
                label
                for label, option in dimension.options
                if is_policy and self._keeps(name, option)
            ),
            (label for label, option in dimension.options if _equal(option, value)),
        )
        for label in itertools.islice(same, 1):
            self._current[name] = label

    def _keeps(self, name: str, option: Any) -> bool:
        return self.simulation.with_({name: option}) == self.simulation

    def _narrowed(self, found: dict[str, Parameter]) -> dict[str, Parameter]:
        """The parameters, limited by the order constraints with paths outside the space."""
        for chain in self.space.order:
            fixed: dict[int, float] = {}
            for i, name in enumerate(chain):
                if name not in found:
                    fixed[i] = self._fixed_value(name)
                elif not found[name].is_numeric:
                    raise config_error([(name, "", "not a number, so it cannot be ordered")])
            searched = [name for name in chain if name in found]
            for name in searched:
                i, parameter = chain.index(name), found[name]
                low = max([parameter.low, *(v for j, v in fixed.items() if j < i)])
                high = min([parameter.high, *(v for j, v in fixed.items() if j > i)])
                if low > high:
                    allowed = f"cannot be satisfied: must have {low} <= {name} <= {high}"
                    raise config_error([(" <= ".join(chain), "", allowed)])
                found[name] = dataclasses.replace(parameter, low=low, high=high)
            for before, after in itertools.pairwise(found[name] for name in searched):
                if before.low > after.high:
                    allowed = f"cannot be satisfied: {before.name} always exceeds {after.name}"
                    raise config_error([(" <= ".join(chain), "", allowed)])
        return found

    def _fixed_value(self, path: str) -> float:
        _, value = descriptors.lookup(self.simulation, path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise config_error([(path, repr(value), "not a number, so it cannot be ordered")])
        return value


@dataclasses.dataclass(frozen=True)
class _Fixed:
    value: Any


def _label(option: Any) -> Any:
    if option is None or isinstance(option, bool | int | float | str):
        return option
    kind = option.get("kind") if isinstance(option, Mapping) else getattr(option, "kind", None)
    return str(kind) if kind else repr(option)


_UNSET = {type(None): anything}
_LIMIT = by_type({int: number(), float: number()}, "must be a finite number")
_STEP = by_type({**dict.fromkeys((int, float), number(above=0)), **_UNSET}, "must be a number > 0")
_RANGE = keys(
    {
        "low": _LIMIT,
        "high": _LIMIT,
        "log": by_type({bool: truth, **_UNSET}, "must be true or false"),
        "step": _STEP,
    }
)
_FIELDS = "must be a mapping of a kind's parameters, or empty"
_KINDS = mapping(by_type({Mapping: mapping(anything), **_UNSET}, _FIELDS), may_be_empty=False)


def _as_dimension(path: str, written: Any, *, may_fix: bool = False) -> Any:
    """A dimension in any of its forms, as `"auto"`, Range, Choice or Kinds."""
    if written == "auto" or isinstance(written, Range | Choice | Kinds):
        return written
    where = f"space.{path}"
    if isinstance(written, Mapping):
        if set(written) == {"kinds"}:
            _KINDS(f"{where}.kinds", written["kinds"])
            return Kinds(written["kinds"])
        if set(written) == {"choices"}:
            options = written["choices"]
            is_list = isinstance(options, Sequence | Mapping) and not isinstance(options, str)
            if not is_list or not options:
                raise refusal(f"{where}.choices", options, "must be a list of at least one value")
            return _choice(where, options)
        if {"low", "high"} <= set(written) <= {"low", "high", "log", "step"}:
            _RANGE(where, written)
            return Range(**written)
    elif isinstance(written, Sequence) and not isinstance(written, str):
        numbers = [v for v in written if isinstance(v, int | float) and not isinstance(v, bool)]
        if written:
            is_range = len(written) == len(numbers) == 2
            return Range(*written) if is_range else _choice(where, written)
    elif may_fix:
        return _Fixed(written)
    allowed = (
        "must be auto, two numbers [low, high], a list of choices, "
        "{low, high, log, step}, {choices: […]} or {kinds: {…}}"
    )
    raise config_error([(where, repr(written), allowed)])


def _choice(path: str, options: Any) -> Choice:
    try:
        return Choice(options)
    except ValueError as error:
        raise refusal(path, options, str(error)) from error


def _written(dimension: Any) -> Any:
    if isinstance(dimension, Range):
        settings = dataclasses.asdict(dimension)
        return {key: value for key, value in settings.items() if value is not None}
    if isinstance(dimension, Choice):
        plain = {label: _plain(value) for label, value in dimension.options}
        if all(label == value for label, value in plain.items()):
            return {"choices": list(plain.values())}
        return {"choices": plain}
    if isinstance(dimension, Kinds):
        kinds = {
            kind: {name: _written(inner) for name, inner in fields.items()}
            for kind, fields in dimension.kinds
        }
        return {"kinds": kinds}
    return list(dimension) if isinstance(dimension, tuple) else dimension


def _plain(value: Any) -> Any:
    return value.to_dict() if hasattr(value, "to_dict") else value


def _chain(line: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in str(line).replace("<=", "<").split("<"))
    if len(names) < 2 or not all(names) or len(set(names)) < len(names):
        allowed = "must be paths with <= between them, e.g. `gateway.guard.floor <= …ceiling`"
        raise config_error([("order", repr(line), allowed)])
    return names


def _numeric(
    name: str, field: Mapping[str, Any], dimension: Any, opens_with: tuple[str, str] | None
) -> Parameter:
    if field["type"] not in ("int", "float") or field.get("sequence"):
        allowed = "not a number; give it choices, or kinds if it is a policy"
        raise config_error([(f"space.{name}", "", allowed)])
    search = field.get("search")
    if dimension == "auto":
        if search is None:
            allowed = "has no default search range; give it one, e.g. [1, 10]"
            raise config_error([(f"space.{name}", "auto", allowed)])
        dimension = Range(search["low"], search["high"])
    low, high, step, log = dimension.low, dimension.high, dimension.step, dimension.log
    if log is None:
        log = bool(search and search["log"]) and low > 0 and step is None
    is_int = field["type"] == "int"
    is_range = math.isfinite(low) and math.isfinite(high) and low < high
    rules = {
        "low must be less than high": is_range,
        "low must be > 0 on a log scale": not log or low > 0,
        "a log scale must not have a step": not log or step is None,
        "step must be > 0": step is None or step > 0,
        "low, high and step must be whole numbers": not is_int
        or all(v is None or v == int(v) for v in (low, high, step)),
    }
    if not all(rules.values()):
        problems = "; ".join(rule for rule, holds in rules.items() if not holds)
        raise config_error([(f"space.{name}", f"[{low:g}, {high:g}]", problems)])
    return Parameter(
        name,
        field["type"],
        unit=field.get("unit", ""),
        low=int(low) if is_int else float(low),
        high=int(high) if is_int else float(high),
        log=log,
        step=step,
        opens_with=opens_with,
        valid_low=field.get("at_least", field.get("more_than", -math.inf)),
        valid_high=field.get("at_most", field.get("less_than", math.inf)),
    )
