"""Profiles: presets of the settings that define the semantics of a simulation.

`vllm`, the default, is causal, like a real server. `blis_0_6` reproduces BLIS v0.6.14 to the
microsecond. A profile consists only of values of ordinary settings; `SETTINGS` lists them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import yaml

from spillway._core.cluster import Simulation, profile_settings
from spillway._core.instance import InstanceGroup, KvCache, Linear
from spillway.config import files
from spillway.config.classes import config_error
from spillway.config.merging import merged
from spillway.config.messages import checked_simulation, note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["NAMES", "blis_0_6", "name_of", "vllm"]


NAMES = ("vllm", "blis_0_6")
"""The profiles, the default first."""
SETTINGS = profile_settings
"""(path, {profile: value}, reason) of every setting in which the profiles differ."""

RULED_OUT = {
    "blis_0_6": {
        "instances[].async_scheduling": False,
        "instances[].kv_cache.reserve_full_prompt": False,
        "instances[].kv_cache.generated_tokens": False,
    }
}
"""Settings that a profile turns off, because its semantics are not defined with them."""

NUMBERS: Mapping[str, Mapping[str, Any]] = {
    "prefix_index.capacity_blocks": {"vllm": None, "blis_0_6": 10_000}
}
"""Numbers of the profiles by path. A simulation that has none of them has its own, and keeps it."""

BLIS_SERVER = InstanceGroup(
    max_num_seqs=256,
    max_num_batched_tokens=2048,
    max_model_len=0,
    num_kv_blocks=132139,
    kv_cache=KvCache(reserve_full_prompt=False),
    latency=Linear.preset("llama-3.1-8b-h100-tp2"),
    async_scheduling=False,
)
"""The server of BLIS's strategy experiments (Llama 3.1 8B on two H100; coefficients of 2025).

Context costs nothing, and its KV memory is more than two H100 have: it reproduces published
numbers, and describes no real server. Instances of the profile `blis_0_6` are this server where
they do not state otherwise.
"""


def vllm(simulation: Simulation | None = None) -> Simulation:
    """`simulation` (default: all defaults) with the causal semantics of a vLLM server."""
    return apply("vllm", checked_simulation(simulation or Simulation()))


def blis_0_6(simulation: Simulation | None = None) -> Simulation:
    """`simulation` (default: one `BLIS_SERVER`) with the semantics of BLIS v0.6.14."""
    return apply("blis_0_6", checked_simulation(simulation or Simulation(instances=BLIS_SERVER)))


def to_simulation(settings: Mapping[str, Any]) -> Simulation:
    """A simulation from the settings of a configuration file and the values of its profile.

    Raises ConfigError with all violations. The presets and servers of the file have been resolved,
    and its trace is not read.
    """
    given = {key: value for key, value in settings.items() if key != "schema"}
    profile = given.pop("profile", "vllm")
    complete = _on_blis_servers(given) if profile == "blis_0_6" else given
    simulation = apply(profile, Simulation.from_dict(complete), given)
    if profile == "vllm":
        _note_half_servers(given)
    return simulation


def apply(
    profile: str, simulation: Simulation, settings: Mapping[str, Any] | None = None
) -> Simulation:
    """Sets the profile's values, except where the configuration file (`settings`) differs."""
    if profile not in NAMES:
        raise config_error([("profile", repr(profile), f"must be one of {', '.join(NAMES)}")])
    present = simulation.to_dict()
    values = {pattern: parsed(of_profile[profile]) for pattern, of_profile, _ in SETTINGS}
    values |= RULED_OUT.get(profile, {})
    for pattern, numbers in NUMBERS.items():
        if all(value in numbers.values() for _, value in matches(pattern, present)):
            values[pattern] = numbers[profile]
    return simulation.with_(
        {
            path: value
            for pattern, value in values.items()
            for path, _ in matches(pattern, present)
            if not _states(settings or {}, path)
        }
    )


def _on_blis_servers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with instances that are `BLIS_SERVER` unless they state otherwise."""
    server = BLIS_SERVER.to_dict()

    def completed(group: Any) -> Any:
        if not isinstance(group, dict):
            return group
        found = merged(server, group)
        if isinstance(found["latency"], dict):
            found["latency"] = {"kind": server["latency"]["kind"], **found["latency"]}
        return found

    given = settings.get("instances", {})
    found = [completed(group) for group in given] if isinstance(given, list) else completed(given)
    return {**settings, "instances": found}


def _note_half_servers(settings: Mapping[str, Any]) -> None:
    """Warns of coefficients of BLIS that stand for a server without its memory."""
    for group in files.instances(settings):
        latency = group.get("latency")
        if isinstance(latency, dict) and "preset" in latency and "num_kv_blocks" not in group:
            note(
                f"latency preset {latency['preset']}: coefficients of BLIS, without the KV memory "
                "of that server (num_kv_blocks keeps its default) and mostly without a cost of "
                "context; state num_kv_blocks, or take server: {model: …, gpu: …} instead "
                "(spillway describe servers)"
            )


def paths(pattern: str, simulation: Simulation) -> list[str]:
    """Paths of the simulation's settings that match a pattern of `SETTINGS`."""
    return [path for path, _ in matches(pattern, simulation.to_dict())]


@functools.cache
def parsed(value: str) -> Any:
    """A value of `SETTINGS` in the type of the setting."""
    return yaml.safe_load(value)


def name_of(simulation: Simulation) -> str:
    """The profile that matches the simulation's settings, or `custom`."""
    settings = checked_simulation(simulation).to_dict()
    present = [
        (value, values)
        for pattern, values, _ in SETTINGS
        for _, value in matches(pattern, settings)
    ]
    fitting = (
        name for name in NAMES if all(value == parsed(values[name]) for value, values in present)
    )
    return next(fitting, "custom")


def matches(pattern: str, settings: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths in complete settings that match a pattern, and their values.

    `[]` in a pattern matches every entry of a list; a setting that does not occur has no path.
    """
    key, _, rest = pattern.partition(".")
    name = key.removesuffix("[]")
    if not isinstance(settings, dict) or name not in settings:
        return
    path += f".{name}" if path else name
    if key != name:
        for i, entry in enumerate(settings[name]):
            yield from matches(rest, entry, f"{path}[{i}]")
    elif rest:
        yield from matches(rest, settings[name], path)
    else:
        yield path, settings[name]


def _states(settings: Any, path: str) -> bool:
    """Whether a configuration file, with its short forms, mentions the setting at `path`."""
    place = settings
    for key in path.replace("]", "").replace("[", ".").split("."):
        if key.isdigit():
            # A single group may be written without a list.
            if isinstance(place, (list, tuple)):
                place = place[int(key)]
        elif isinstance(place, dict) and key in place:
            place = place[key]
        else:
            return False
    return True
