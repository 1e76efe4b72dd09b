"""The class of presets, and the checks of their parameters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from spillway._core.cluster import Simulation
from spillway.config import profiles, yaml
from spillway.config.classes import config_error
from spillway.config.formatting import wrapped
from spillway.config.messages import checked_simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset:
    """The settings of a published system or experiment under one name.

    Each value is also an attribute, named after the end of its path: `preset.gateway`,
    `preset.ingress`.

    Parameters
    ----------
    name
        As in `presets.get(name)` and in the `presets` of a configuration file.
    kind
        One of `presets.KINDS`.
    doc
        A description in sentences. The first one appears in `presets.table()`.
    source
        Where the values were published: system and version or commit, paper or post.
    settings
        The values by dotted path from the simulation; `[]` stands for every entry of a list:
        `{"gateway": Gateway(…), "instances[].ingress": Open()}`.
    duration_s
        How long the requests of a scenario arrive according to its source, in s. A run ends when
        the last of them has left. None if the preset is not a scenario.
    """

    name: str
    kind: str
    doc: str
    source: str
    settings: Mapping[str, Any] = dataclasses.field(hash=False)
    duration_s: float | None = None

    def apply(self, simulation: Simulation | None = None) -> Simulation:
        """`simulation` (default: all defaults) with the settings of this preset.

        A preset without a workload keeps the tenants that it does not name, after those that it
        names. A preset with a workload replaces all tenants.

        Raises ConfigError if the result is not a valid simulation, e.g. if the preset names tenants
        and the workload has others that the simulation does not list.
        """
        before = checked_simulation(Simulation() if simulation is None else simulation)
        changes = {}
        for path, value in self.settings.items():
            for place in profiles.paths(path, before) if "[]" in path else [path]:
                changes[place] = value
        if self._keeps_tenants:
            changes["tenants"] = _with_others(
                changes["tenants"], before.tenants, lambda tenant: tenant.name
            )
        return before.with_(changes)

    def to_dict(self) -> dict[str, Any]:
        """The settings in the form of a configuration file."""
        return self.put_into({})

    def put_into(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The `settings` of a configuration file, changed to those of this preset."""
        others = settings.get("tenants", [])
        for path, value in self.settings.items():
            _put(settings, path, _plain(value))
        if self._keeps_tenants:
            settings["tenants"] = _with_others(
                settings["tenants"], others, lambda tenant: tenant["name"]
            )
        return settings

    @property
    def _keeps_tenants(self) -> bool:
        return "tenants" in self.settings and "workload" not in self.settings

    def __getattr__(self, name: str) -> Any:
        # Looked up in `vars`, because a copy has no settings while it is being created.
        for path, value in vars(self).get("settings", {}).items():
            if path.rpartition(".")[2] == name:
                return value
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}", name=name)

    def __str__(self) -> str:
        return self.in_words(wrapped(self.doc))

    def in_words(self, doc: str) -> str:
        """Name, kind, `doc`, source, and every setting as YAML."""
        duration = "" if self.duration_s is None else f", {self.duration_s:g} s"
        return "\n\n".join(
            [
                f"{self.name} ({self.kind}{duration})",
                doc,
                wrapped(f"Source: {self.source}"),
                yaml.to_yaml(self.to_dict()).rstrip(),
            ]
        )


def check(is_valid: bool, name: str, value: object, allowed: str) -> None:
    """Raises ConfigError about the parameter `name` unless its value is valid."""
    if not is_valid:
        raise config_error([(name, repr(value), allowed)])


def is_whole(value: object, at_least: int) -> bool:
    """Whether a value is a whole number, and large enough."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least


def _with_others(named: Iterable[Any], before: Iterable[Any], name: Callable[[Any], Any]) -> Any:
    named = list(named)
    known = {name(entry) for entry in named}
    return named + [entry for entry in before if name(entry) not in known]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(element) for element in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


def _put(settings: dict[str, Any], path: str, value: Any) -> None:
    key, _, below = path.partition(".")
    name = key.removesuffix("[]")
    if not below:
        settings[name] = value
        return
    places = settings.setdefault(name, {})
    for place in places if isinstance(places, list) else [places]:
        _put(place, below, value)
