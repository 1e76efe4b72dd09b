"""What the compiled configuration classes get on the Python side.

The classes and everything they know (fields, units, ranges, documentation) come from the core's
field descriptors. Here they get typed signatures, NumPy-style docstrings and the protocol of
`dataclasses`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway._messages import checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import ModuleType

CORE_MODULES = (
    "workload",
    "signals",
    "gateway",
    "router",
    "fleet",
    "instance",
    "metrics",
    "cluster",
)

_METHODS = ("replace", "with_", "to_dict", "from_dict", "preset", "presets")
#: How a field's description names the bounds of its range; the open ones exclude their number.
BOUNDS = ("more_than", "at_least", "at_most", "less_than")

_SCALARS = {"bool": "bool", "int": "int", "float": "float", "str": "str"}


def config_error(violations: Sequence[tuple[str, str, str]]) -> _core.sim.ConfigError:
    """A `ConfigError` as the core makes them, from (path, value, allowed) triples."""
    lines = [
        f"{path}{f' = {value}' if value else ''}: {allowed}" for path, value, allowed in violations
    ]
    error = _core.sim.ConfigError("\n".join(lines))
    error.violations = tuple(violations)
    return error


def rebuild(cls: type[Any], fields: Mapping[str, Any]) -> Any:
    """Unpickles a configuration object."""
    return cls(**fields)


def rebuild_trace(columns: Mapping[str, Any]) -> _core.workload.Trace:
    """Unpickles a trace with its requests."""
    return _core.workload.make_trace(**columns)


def public_names(module: ModuleType) -> list[str]:
    """The configuration classes of a core module, for `__all__`."""
    return [cls.__name__ for cls in config_classes(module)]


def config_classes(module: ModuleType) -> list[type[Any]]:
    """The configuration classes of a core module, in the order in which they were bound."""
    return [
        cls for cls in vars(module).values() if isinstance(cls, type) and hasattr(cls, "_describe")
    ]


def annotation(field: Mapping[str, Any]) -> str:
    """The type of a field as Python source."""
    kind = field["type"]
    if kind in _SCALARS:
        text = _SCALARS[kind]
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
    """The valid values of a field in words, or nothing if its type says it all."""
    parts = []
    if "more_than" in field:
        parts.append(f"> {field['more_than']:g}")
    if "at_least" in field:
        parts.append(f">= {field['at_least']:g}")
    if "at_most" in field:
        parts.append(f"<= {field['at_most']:g}")
    if "less_than" in field:
        parts.append(f"< {field['less_than']:g}")
    return " and ".join(parts)


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


def _with_messages(cls: type[Any], fields: Sequence[inspect.Parameter]) -> None:
    """Gives the methods of a class Python's own signatures, and messages for wrong arguments."""
    native = {name: getattr(cls, name) for name in ("__init__", *_METHODS) if hasattr(cls, name)}
    example = fields[0].name if fields else None

    def __init__(self: Any, *values: Any, **settings: Any) -> None:  # noqa: N807
        if values:
            how = f"by name: {cls.__name__}({example}=…)" if example else "by name; it has none"
            raise TypeError(f"{cls.__name__} takes its settings {how}")
        native["__init__"](self, **settings)

    def replace(self: Any, **settings: Any) -> Any:
        return native["replace"](self, **settings)

    def with_(self: Any, changes: Mapping[str, Any]) -> Any:
        allowed = "a mapping of dotted paths to values, e.g. {'router': 'least_loaded'}"
        return native["with_"](self, dict(checked("changes", changes, Mapping, allowed)))

    def to_dict(self: Any) -> Any:
        return native["to_dict"](self)

    def from_dict(settings: Any) -> Any:
        return native["from_dict"](settings)

    def preset(name: str) -> Any:
        return native["preset"](checked("name", name, str, "text"))

    def presets() -> Any:
        return native["presets"]()

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [one.replace(default=...) for one in fields]
    methods: list[Any] = [__init__, replace, with_, to_dict, from_dict, preset, presets]
    for method in methods[:2]:
        method.__signature__ = inspect.Signature([itself, *named])
    for method in methods:
        name = method.__name__
        if name in native:
            # Without the signature that the core writes above it.
            method.__doc__ = (native[name].__doc__ or "").partition("\n\n")[2].strip()
            method.__qualname__ = f"{cls.__name__}.{name}"
            is_static = name in ("from_dict", "preset", "presets")
            setattr(cls, name, staticmethod(method) if is_static else method)


def _complete(cls: type[Any], module: str) -> None:
    description = cls._describe()
    names = [field["name"] for field in description["fields"]]
    annotations = {field["name"]: annotation(field) for field in description["fields"]}
    defaults = cls()
    cls.__module__ = module
    cls.__doc__ = _docstring(description)
    cls.__annotations__ = annotations
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(defaults, name),
            annotation=annotations[name],
        )
        for name in names
    ]
    cls.__signature__ = inspect.Signature(parameters)
    twin = dataclasses.make_dataclass(
        cls.__name__,
        [
            (
                field["name"],
                annotations[field["name"]],
                dataclasses.field(
                    default=getattr(defaults, field["name"]),
                    metadata={
                        key: field[key]
                        for key in ("doc", "unit", *BOUNDS, "search")
                        if key in field
                    },
                ),
            )
            for field in description["fields"]
        ],
        frozen=True,
    )
    for name in ("__dataclass_fields__", "__dataclass_params__"):
        setattr(cls, name, getattr(twin, name))
    if "presets" in description:
        parameters.append(inspect.Parameter("preset", inspect.Parameter.KEYWORD_ONLY))
    _with_messages(cls, parameters)
    cls.__replace__ = cls.replace


def _install(modules: Iterable[str]) -> None:
    for name in modules:
        for cls in config_classes(getattr(_core, name)):
            _complete(cls, "spillway" if cls.__name__ == "Simulation" else f"spillway.{name}")


_install(CORE_MODULES)
