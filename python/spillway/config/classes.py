"""The classes of settings, made from the core's tables on first use.

Their fields, units, ranges and documentation come from the core. This module adds typed signatures,
NumPy-style docstrings and the protocol of `dataclasses`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway.config.kinds import of_other_kinds
from spillway.config.messages import checked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


_SHOWN = 20  # violations in a message, as in the core's (`kShownViolations`)
_Settings: Any = _core.sim._Settings  # type: ignore[attr-defined]

_TYPES: dict[str, dict[str, Any]] = {}  # of a core module, by name
for _type in _core.sim._types():  # type: ignore[attr-defined]
    _TYPES.setdefault(_type.module, {})[_type.name] = _type
#: The core modules that define settings.
CORE_MODULES = tuple(_TYPES)

#: Keys of the bounds of a range in a field's description, and what each means.
BOUNDS = {"more_than": ">", "at_least": ">=", "at_most": "<=", "less_than": "<"}

_SCALARS = ("bool", "int", "float", "str")


def config_error(violations: Sequence[tuple[str, str, str]]) -> _core.sim.ConfigError:
    """A `ConfigError` in the core's form, from (path, value, allowed) triples."""
    lines = [
        f"{path}{f' = {value}' if value else ''}: {allowed}"
        for path, value, allowed in violations[:_SHOWN]
    ]
    if len(violations) > _SHOWN:
        lines.append(f"… and {len(violations) - _SHOWN} more, {len(violations)} in all")
    error = _core.sim.ConfigError("\n".join(lines))
    error.violations = tuple(violations)
    return error


def rebuild(cls: type[Any], fields: Mapping[str, Any]) -> Any:
    """Unpickles a configuration object."""
    return cls(**fields)


def rebuild_python(cls: type[Any], fields: Mapping[str, Any], target: Any) -> Any:
    """Unpickles a policy written in Python, whose class or function pickle has imported."""
    if target is None:
        return cls(**fields)
    name = fields["policy"].rpartition(":")[2]
    return cls(**fields, factory=_core.policies.Factory(target, name))


def rebuild_trace(
    columns: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> _core.workload.Trace:
    """Unpickles a trace with its requests; `settings`: how it replays them."""
    return _core.workload.make_trace(**columns).replace(**(settings or {}))


def names_of(module: str) -> list[str]:
    """The names of the classes of settings of a core module."""
    return sorted(_TYPES[module])


def config_classes(module: ModuleType) -> list[type[Any]]:
    """The classes of settings of a core module, by name."""
    name = module.__name__.rpartition(".")[2]
    return [class_of(_TYPES[name][class_name]) for class_name in names_of(name)]


def lazy(
    module: str, namespace: dict[str, Any]
) -> tuple[Callable[[str], type[Any]], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module that offers the classes of a core module.

    `namespace`: the module's own names, which keep a class after its first use.
    """

    def __getattr__(name: str) -> type[Any]:  # noqa: N807
        if name not in _TYPES[module]:
            where = namespace["__name__"]
            raise AttributeError(f"module {where!r} has no attribute {name!r}", name=name)
        found = namespace[name] = class_of(_TYPES[module][name])
        return found

    return __getattr__, lambda: names_of(module)


def annotation(field: Mapping[str, Any]) -> str:
    """The type of a field as Python source."""
    kind: str = field["type"]
    if kind in _SCALARS:
        text = kind
    elif kind == "mapping":
        text = "Mapping[str, Any]"
    elif kind == "choice":
        text = f"Literal[{', '.join(repr(choice) for choice in field['choices'])}]"
    elif kind == "struct":
        text = field["of"]["name"]
    else:
        text = " | ".join(alternative["name"] for alternative in field["alternatives"])
    if field.get("sequence"):
        text = f"tuple[{text}, ...]"
    if field.get("optional"):
        text += " | None"
    return text


def allowed_values(field: Mapping[str, Any]) -> str:
    """The range of a field as text; empty if it has none."""
    return " and ".join(f"{sign} {field[key]:g}" for key, sign in BOUNDS.items() if key in field)


def _docstring(description: Mapping[str, Any]) -> str:
    lines = [description["doc"]]
    if description["fields"]:
        lines += ["", "Parameters", "----------"]
    for field in description["fields"]:
        details = [annotation(field)]
        if field["unit"]:
            details.append(f"in {field['unit']}")
        if allowed := allowed_values(field):
            details.append(allowed)
        lines += [f"{field['name']} : {', '.join(details)}", f"    {field['doc']}"]
    if description.get("reasons"):
        lines += ["", "Reasons for a rejection", "-----------------------"]
        lines += [f"{reason['name']}\n    {reason['doc']}" for reason in description["reasons"]]
    return "\n".join(lines)


# ---- the classes ---------------------------------------------------------------------------------


class _Lazy:
    """A class attribute that is computed on first use."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self._compute = compute

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        value = self._compute(self._owner)
        setattr(self._owner, self._name, value)
        return value


def _signature(cls: Any) -> inspect.Signature:
    defaults = cls()
    annotations = cls.__annotations__.items()
    return inspect.Signature(
        [
            _keyword(name, default=getattr(defaults, name), annotation=text)
            for name, text in annotations
        ]
    )


def _keyword(name: str, **settings: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, **settings)


@functools.cache
def _dataclass(cls: Any) -> type[Any]:
    """A dataclass with the same fields."""
    defaults = cls()
    fields = []
    for field in cls._describe()["fields"]:
        name = field["name"]
        metadata = {key: field[key] for key in ("doc", "unit", *BOUNDS, "search") if key in field}
        default = dataclasses.field(default=getattr(defaults, name), metadata=metadata)
        fields.append((name, annotation(field), default))
    return dataclasses.make_dataclass(cls.__name__, fields, frozen=True)


class FrozenMapping(Mapping[str, Any]):
    """A mapping that cannot be changed, as the value of a setting."""

    __slots__ = ("_entries",)
    _entries: dict[str, Any]

    def __init__(self, entries: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_entries", dict(entries))

    def __getitem__(self, key: str) -> Any:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"{name!r} cannot be set: the mapping is frozen")

    def __hash__(self) -> int:
        return hash(repr(sorted(self._entries.items())))

    def __repr__(self) -> str:
        return repr(self._entries)

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMapping, (self._entries,)


def _property(name: str, is_mapping: bool) -> property:
    if is_mapping:
        return property(lambda self: FrozenMapping(self._field(name)))
    return property(lambda self: self._field(name))


def _set(self: Any, name: str, _value: object) -> None:
    raise AttributeError(
        f"'{self._type.name}' is frozen; make a changed copy with .replace({name}=…)"
    )


def _reduce(self: Any) -> tuple[Any, ...]:
    return rebuild, (type(self), {name: getattr(self, name) for name in self._type.fields})


def _reduce_python(self: Any) -> tuple[Any, ...]:
    fields = {name: getattr(self, name) for name in self._type.fields}
    return rebuild_python, (type(self), fields, _core.policies.target_of(self))


def _reduce_trace(self: Any) -> tuple[Any, ...]:
    if not self.has_requests:
        return _reduce(self)
    return rebuild_trace, (self._columns(), self._replayed())


def _has_requests(self: Any) -> bool:
    """Whether the trace holds its requests, not only their digest."""
    return bool(_core.workload._has_requests(self))  # type: ignore[attr-defined]


def _columns(self: Any) -> dict[str, Any]:
    columns: dict[str, Any] = _core.workload._columns(self)  # type: ignore[attr-defined]
    return columns


def _replayed(self: Any) -> dict[str, Any]:
    """The settings that say how the requests are replayed, not which ones."""
    record = ("file", "sha256", "rows", "requests")
    return {name: getattr(self, name) for name in self._type.fields if name not in record}


_LAZY = {
    "__doc__": lambda cls: _docstring(cls._describe()),
    "__signature__": _signature,
    "__dataclass_fields__": lambda cls: vars(_dataclass(cls))["__dataclass_fields__"],
    "__dataclass_params__": lambda cls: vars(_dataclass(cls))["__dataclass_params__"],
}

_TRACE = {
    "has_requests": property(_has_requests),
    "_columns": _columns,
    "_replayed": _replayed,
    "__reduce__": _reduce_trace,
}


def _methods(type_: Any, annotations: Mapping[str, str]) -> dict[str, Any]:
    """The methods whose signature differs from class to class."""
    example = next(iter(type_.fields), None)

    def __init__(self: Any, *values: Any, **settings: Any) -> None:  # noqa: N807
        if values:
            how = f"by name: {type_.name}({example}=…)" if example else "by name; it has none"
            raise TypeError(f"{type_.name} takes its settings {how}")
        _Settings.__init__(self, type_, settings)

    def replace(self: Any, **settings: Any) -> Any:
        """A copy in which the given fields are replaced."""
        return self._replace(settings)

    def with_(self: Any, changes: Mapping[str, Any]) -> Any:
        """A copy with other settings at dotted paths, e.g. {'tenants[gold].weight': 2}."""
        allowed = "a mapping of dotted paths to values, e.g. {'router': 'least_loaded'}"
        settings = dict(checked("changes", changes, Mapping, allowed))
        try:
            return self._with(settings)
        except _core.sim.ConfigError as error:
            if found := of_other_kinds(self, settings, str(error)):
                raise config_error(found) from None
            raise

    def to_dict(self: Any) -> Any:
        """The settings as plain dicts, lists and numbers, with `kind` tags."""
        return self._to_dict()

    def _repr_html_(self: Any) -> str:
        from spillway.config.html import tree

        return tree(type_.name, type_.describe(), self._to_dict())

    def from_dict(settings: Any) -> Any:
        """Builds one from plain dicts, lists and numbers.

        Raises one ConfigError with all violations.
        """
        return _Settings._from_dict(type_, settings)

    def preset(name: str) -> Any:
        """The published values called `name`; see `presets()`."""
        return _Settings._from_dict(type_, {"preset": checked("name", name, str, "text")})

    def presets() -> Any:
        """All published values by name."""
        return type_.presets()

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [
        _keyword(keyword, default=..., annotation=text) for keyword, text in annotations.items()
    ]
    if type_.has_presets:
        named.append(_keyword("preset", default=...))
    methods: list[Any] = [__init__, replace, with_, to_dict, _repr_html_]
    for method in methods[:2]:
        method.__signature__ = inspect.Signature([itself, *named])
    static: list[Any] = [from_dict, *([preset, presets] if type_.has_presets else [])]
    for method in (*methods, *static):
        method.__qualname__ = f"{type_.name}.{method.__name__}"
    return {method.__name__: method for method in methods} | {
        method.__name__: staticmethod(method) for method in static
    }


def _made(type_: Any) -> type[Any]:
    """The class of a type of settings."""
    fields = {field["name"]: field for field in type_.outline()["fields"]}
    annotations = {name: annotation(field) for name, field in fields.items()}
    methods = _methods(type_, annotations)
    namespace = {
        "__slots__": (),
        "__module__": "spillway" if type_.module == "cluster" else f"spillway.{type_.module}",
        "__annotations__": annotations,
        "_type": type_,
        "_describe": staticmethod(type_.describe),
        "__setattr__": _set,
        "__reduce__": _reduce,
        **methods,
        "__replace__": methods["replace"],
        **{name: _Lazy(compute) for name, compute in _LAZY.items()},
        **{name: _property(name, field["type"] == "mapping") for name, field in fields.items()},
        **(_TRACE if type_.name == "Trace" else {}),
        **({"__reduce__": _reduce_python} if type_.kind == "python" else {}),
    }
    if type_.kind:
        namespace["kind"] = type_.kind
    made: type[Any] = type(_Settings)(type_.name, (_Settings,), namespace)
    return made


_classes: dict[Any, type[Any]] = {}


def class_of(type_: Any) -> type[Any]:
    """The Python class of a core type; the core calls this too."""
    return _classes.get(type_) or _classes.setdefault(type_, _made(type_))


for _name in CORE_MODULES:
    _module = getattr(_core, _name)
    _module.__getattr__, _ = lazy(_name, vars(_module))
