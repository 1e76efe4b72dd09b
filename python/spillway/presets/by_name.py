"""Presets by name, in Python and in the key `presets` of configuration files.

    presets: [noisy-neighbor, {name: llm-d-flow-control, version: 2026-05}]

They are applied in order, each over the previous ones. The file's own settings override all of
them: a mapping changes the settings that it names; entries with names, such as tenants, change the
entry of that name or add one; entries without a name change the only entry, if the presets have
one. Any other list replaces that of the presets, and so does a policy of another kind.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from typing import TYPE_CHECKING, Any

from spillway import _registry
from spillway._core.sim import ConfigError
from spillway.config.classes import config_error
from spillway.config.merging import merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spillway._core.cluster import Simulation
    from spillway.presets.preset import Preset


KINDS = {
    "scenario": "a workload with its tenants and classes",
    "gateway": "admission, queues and limits in front of the fleet",
    "server": "the instances of a fleet",
    "scheduler": "the scheduling of each instance",
}
"""The kinds of presets, and what each sets."""


@functools.cache
def _made() -> Mapping[str, tuple[Preset, Callable[..., Preset]]]:
    """The preset with default parameters and its function, by name."""
    functions = (
        function for module in _registry.modules("presets").values() for function in module.PRESETS
    )
    return {preset.name: (preset, function) for function in functions for preset in [function()]}


def names(kind: str | None = None) -> tuple[str, ...]:
    """The names of all presets, or of those of one kind (see `KINDS`)."""
    if kind is not None and kind not in KINDS:
        raise config_error([("kind", repr(kind), f"must be one of {', '.join(KINDS)}")])
    return tuple(name for name, (preset, _) in _made().items() if kind in (None, preset.kind))


def get(name: str, /, **parameters: Any) -> Preset:
    """The preset with this name.

    `parameters`: the arguments of its function; `spillway describe presets.NAME` explains them.

    Raises ConfigError for an unknown name, an unknown parameter and a value that is not allowed.

    Examples
    --------
    >>> import spillway
    >>> noisy = spillway.presets.get("noisy-neighbor").apply(spillway.Simulation())
    >>> [tenant.name for tenant in noisy.tenants]
    ['A', 'B', 'C']
    """
    return _named("preset", name, parameters)


def function_of(name: str) -> Callable[..., Preset]:
    """The function that makes the preset with this name."""
    return _made()[get(name).name][1]


def apply(presets: Any, simulation: Simulation) -> Simulation:
    """`simulation` with presets in order, given as under `presets` in a configuration file."""
    for preset in _listed(presets):
        simulation = preset.apply(simulation)
    return simulation


def resolve(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a configuration file with those of its `presets`, without that key."""
    found: dict[str, Any] = {}
    for preset in _listed(settings.get("presets", [])):
        preset.put_into(found)
    return merged(found, {key: value for key, value in settings.items() if key != "presets"})


def json_schema() -> dict[str, Any]:
    """JSON Schema of the key `presets`."""
    entry = {
        "anyOf": [
            {"enum": list(names())},
            *(
                {
                    "type": "object",
                    "properties": {
                        "name": {"const": name},
                        **{key: {} for key in inspect.signature(function).parameters},
                    },
                    "required": ["name"],
                    "additionalProperties": False,
                    "description": preset.doc,
                }
                for name, (preset, function) in _made().items()
            ),
        ]
    }
    return {
        "anyOf": [{"type": "array", "items": entry}, entry],
        "description": "Presets to start from, in order; the settings of the file win over them.",
    }


def _listed(presets: Any) -> Iterator[Preset]:
    entries = presets if isinstance(presets, list | tuple) else [presets]
    for i, entry in enumerate(entries):
        path = "presets" if entries is not presets else f"presets[{i}]"
        if not isinstance(entry, dict):
            entry = {"name": entry}  # noqa: PLW2901
        if not isinstance(entry.get("name"), str):
            raise config_error([(path, repr(entry.get("name", entry)), _FORMS)])
        parameters = {key: value for key, value in entry.items() if key != "name"}
        yield _named(path, entry["name"], parameters)


_FORMS = "must be the name of a preset, or a mapping of `name` and parameters, or a list of these"


def _named(path: str, name: str, parameters: Mapping[str, Any]) -> Preset:
    if name not in names():
        raise config_error([(path, repr(name), f"unknown preset; {_nearest(name, names())}")])
    _, function = _made()[name]
    known = list(inspect.signature(function).parameters)
    for key, value in parameters.items():
        if key not in known:
            hint = f"; {_nearest(key, known)}" if known else ", which has no parameters"
            raise config_error(
                [(f"{path}.{key}", repr(value), f"unknown parameter of {name}{hint}")]
            )
    try:
        return function(**parameters)
    except ConfigError as error:
        raise config_error(
            [(f"{path}.{place}", value, allowed) for place, value, allowed in error.violations]
        ) from error


def _nearest(name: object, among: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(name), among, n=1)
    return f"did you mean {near[0]!r}?" if near else f"one of {', '.join(among)}"
