"""Configuration files: simulations from settings, and back.

A configuration file is YAML or JSON with the keys of `Simulation`, plus `schema` (1) and `profile`
(vllm or blis_0_6). A setting that it omits takes the profile's value, or else the default.

YAML is read by the core schema of version 1.2 (see `spillway.config.yaml`): `1:30`, `1_000` and
`yes` are text, `0x10` is 16, and there are no aliases. `spillway.loading` makes the simulation.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway._core.cluster import Simulation
from spillway.config import yaml
from spillway.config.classes import config_error
from spillway.config.filesystem import cannot, open_text, replacing
from spillway.config.messages import checked_simulation, note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


SCHEMA = 1
"""Version of the form of configuration files and study files."""

KINDS = {
    "study": ("space", "maximize", "minimize"),
    "sweep": (
        "grid",
        "isolation",
        "sobol",
        "one_at_a_time",
        "max_rate_under_slo",
        "min_instances_for_rate",
    ),
}
"""Files that vary a simulation, and the keys that only they have."""
_COMMANDS = {"configuration": "run", "study": "optimize", "sweep": "sweep"}


_TOP_LEVEL = frozenset(
    field["name"] for field in Simulation._describe()["fields"] if field["name"] != "metrics"
)  # a study has metrics of its own


def read_settings(path: str | Path, kind: str | None = None) -> dict[str, Any]:
    """The content of a configuration file as plain dicts, lists and numbers.

    Raises ConfigError if it cannot be read, is not a mapping in YAML or JSON, or is of another
    `kind` than this: `configuration`, `study` or `sweep`. Warns if a configuration is empty.
    """
    path = Path(path)
    try:
        with open_text(path) as stream:
            text = stream.read()
    except OSError as error:
        raise cannot("read", path, error) from error
    except UnicodeDecodeError as error:
        raise config_error(
            [(str(path), "", "not a text file; a configuration is YAML or JSON")]
        ) from error
    settings = yaml.parse(text, str(path), is_json=path.name.endswith(".json"))
    if settings is None:
        settings = {}
    if not isinstance(settings, dict):
        allowed = (
            f"must be a mapping of settings such as `router: round_robin`, not {settings!r:.40}"
        )
        raise config_error([(str(path), "", allowed)])
    if kind is not None:
        _check_kind(settings, path, kind)
    if kind == "configuration" and not settings:
        note(f"{path}: empty, so every setting has its default")
    return settings


def kind_of(settings: Mapping[str, Any]) -> str:
    """What a file is by its keys: a configuration, a study or a sweep."""
    return next((kind for kind, own in KINDS.items() if not settings.keys().isdisjoint(own)),
                "configuration")  # fmt: skip


def _check_kind(settings: Mapping[str, Any], path: Path, wanted: str) -> None:
    """Raises ConfigError, with the command that takes it, if a file is of another kind."""
    found = kind_of(settings)
    is_configuration = found == "configuration" and not settings.keys().isdisjoint(_TOP_LEVEL)
    if found == wanted or (found == "configuration" and not is_configuration):
        return
    command = f"spillway {_COMMANDS[found]} {path}"
    raise config_error([(str(path), "", f"a {found} file, not a {wanted} file; use: {command}")])


def check_schema(path: str, value: Any) -> None:
    """Raises ConfigError for any other version of a file than the present one."""
    if value != SCHEMA or isinstance(value, bool):
        raise config_error([(path, repr(value), f"must be {SCHEMA}")])


def save_results(path: str | os.PathLike[str], kind: str, content: Mapping[str, Any]) -> None:
    """Writes results of this kind as JSON. Raises ConfigError if the file cannot be written."""
    with replacing(Path(path)) as temporary:
        document = {"schema": SCHEMA, "kind": kind, **content}
        text = json.dumps(document, indent=2, ensure_ascii=False)
        temporary.write_text(f"{text}\n", encoding="utf-8")


def load_results(path: str | os.PathLike[str], kind: str, writer: str) -> dict[str, Any]:
    """Reads what `save_results` wrote; `writer` is the public call. ConfigError for other files."""
    content = read_settings(Path(path))
    if content.get("kind") != kind:
        raise config_error([(str(path), "", f"must be a file of {writer}")])
    check_schema("schema", content.get("schema"))
    return content


def instances(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The instances of a configuration file that are mappings; a single one may stand alone."""
    given = settings.get("instances")
    groups = given if isinstance(given, list) else [given]
    return [group for group in groups if isinstance(group, dict)]


def dump(simulation: Simulation, path: str | Path, *, brief: bool = False) -> None:
    """Writes a configuration file: JSON if `path` ends in .json, else YAML.

    With all settings, or with `brief` names and those without which it would be another simulation.

    Raises ConfigError for a policy written in Python that no module defines at its top level,
    because the file could not be run.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(router="least_loaded")
    >>> spillway.dump(simulation, "experiment.yaml")
    >>> spillway.load("experiment.yaml") == simulation
    True
    """
    checked_simulation(simulation)
    path = Path(path)
    settings = to_settings(simulation, path.parent, brief=brief)
    if local := list(_local_policies(settings)):
        allowed = "must be defined at the top level of a module, so that a run can import it"
        raise config_error([(where, repr(policy), allowed) for where, policy in local])
    if path.suffix == ".json":
        text = json.dumps(settings, indent=2) + "\n"
    else:
        text = yaml.to_yaml(settings)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def to_settings(simulation: Simulation, folder: Path, *, brief: bool = False) -> dict[str, Any]:
    """The settings in the form of a configuration file in `folder`: all, or as `dump` has them."""
    own = simulation.to_dict()
    if brief:
        described = Simulation._describe()
        own = _without_defaults(own, described, _defaults(described))
    settings = {"schema": SCHEMA, **own}
    file = settings.get("workload", {}).get("file")
    if file and not Path(file).is_absolute():
        # Paths in a configuration file are relative to that file.
        settings["workload"]["file"] = os.path.relpath(file, folder)
    return settings


def _defaults(described: Mapping[str, Any]) -> dict[str, Any]:
    return {field["name"]: field["default"] for field in described["fields"]}


def _without_defaults(
    settings: Mapping[str, Any], described: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a structure that are not its `defaults`, at any depth, and its name."""
    fields = {field["name"]: field for field in described["fields"]}
    return {
        name: value if name == "kind" else _brief(value, fields[name], defaults[name])
        for name, value in settings.items()
        if name in ("kind", "name") or value != defaults[name]
    }


def _brief(value: Any, field: Mapping[str, Any], default: Any) -> Any:
    """A value of a field with what differs from the defaults of the structures in it."""
    if isinstance(value, list):
        return [_brief(entry, field, None) for entry in value]
    if not isinstance(value, dict) or field["type"] not in ("struct", "variant"):
        return value
    if field["type"] == "variant":
        kinds = {noun["kind"]: noun for noun in field["alternatives"]}
        described = kinds[value["kind"]]
    else:
        described = field["of"]
    is_within = field["type"] == "struct" and isinstance(default, dict)
    return _without_defaults(value, described, default if is_within else _defaults(described))


def _local_policies(settings: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and name of the policies written in Python that cannot be imported."""
    if isinstance(settings, dict):
        if settings.get("kind") == "python" and "<" in settings["policy"]:
            yield f"{path}.policy", settings["policy"]
        for key, value in settings.items():
            yield from _local_policies(value, f"{path}.{key}" if path else key)
    elif isinstance(settings, list):
        for i, value in enumerate(settings):
            yield from _local_policies(value, f"{path}[{i}]")


def fingerprint(simulation: Simulation) -> str:
    """SHA-256 of the canonical JSON form and Spillway's version; equal ones give equal runs.

    Examples
    --------
    >>> import spillway
    >>> one, other = spillway.Simulation(), spillway.Simulation(router="least_loaded")
    >>> spillway.fingerprint(one) == spillway.fingerprint(other)
    False
    """
    checked_simulation(simulation)
    canonical = json.dumps(
        {"settings": simulation._identity(), "version": _core.sim.build_info["version"]},
        sort_keys=True,
        separators=(",", ":"),
    )
    return hashlib.sha256(canonical.encode()).hexdigest()
