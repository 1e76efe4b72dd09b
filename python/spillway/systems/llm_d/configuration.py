"""llm-d: an `EndpointPickerConfig` as its router loads it.

The order and the rules are those of llm-d-router @ ebab6879: strict decoding, feature gates,
plugins, profiles with what the router adds to them, and the flow control. What the router refuses
is a ConfigError. An empty text is not the same as one that states nothing: only with the empty one
does the default profile have scorers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.config.classes import config_error
from spillway.config.yaml import parse
from spillway.files.deployments.fields import Fields
from spillway.systems.llm_d import plugins
from spillway.systems.llm_d.plugins import Plugin, duration_s, plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway._core.sim import ConfigError


KIND = "EndpointPickerConfig"
_VERSIONS = (
    "llm-d.ai/v1",
    "llm-d.ai/v1alpha1",
    "inference.networking.x-k8s.io/v1alpha1",
    "config.apix.gateway-api-inference-extension.sigs.k8s.io/v1alpha1",
)
GATE = "flowControl"
_TRUTHS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
DEFAULT_TTL_S = 60.0
DEFAULT_BAND_REQUESTS = 5000
BAND_BYTES = 1_000_000_000
_SCALES: Mapping[str, Fraction] = {
    **{name: Fraction(1000) ** i for i, name in enumerate("num", -3)},
    **{name: Fraction(1000) ** i for i, name in enumerate("kMGTPE", 1)},
    "": Fraction(1),
    **{f"{name}i": Fraction(1024) ** i for i, name in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(
    r"([-+]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([eE][-+]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i)?)"
)
DEFAULT_PROFILE = (
    ("queue-scorer", 2.0),
    ("kv-cache-utilization-scorer", 2.0),
    ("prefix-cache-scorer", 3.0),
)
_PICKER, _HANDLER = "max-score-picker", "single-profile-handler"


class _Role(NamedTuple):
    """The types of plugins that a reference may name, and the one that it names by default."""

    types: frozenset[str]
    default: str


_FAIRNESS = _Role(plugins.FAIRNESS, "global-strict-fairness-policy")
_ORDERING = _Role(plugins.ORDERINGS, "fcfs-ordering-policy")
_USAGE_LIMIT = _Role(plugins.USAGE_LIMITS, "static-usage-limit-policy")
_DETECTOR = _Role(plugins.DETECTORS, "utilization-detector")


@dataclass(frozen=True)
class Entry:
    """A plugin in a profile; the weight is None unless the plugin is a scorer."""

    plugin: Plugin
    weight: float | None = None


@dataclass(frozen=True)
class Profile:
    """A scheduling profile with its plugins, those that the router adds included."""

    name: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class FlowBand:
    """The limits and policies of a band, those that are not stated included."""

    priority: int
    max_requests: int
    max_bytes: int
    fairness: Plugin
    ordering: Plugin


@dataclass(frozen=True)
class FlowControl:
    """The flow control. 0 is no limit, and no time to live; band 0 always exists.

    `default` and `negative` are what bands of other priorities are made of.
    """

    max_requests: int
    max_bytes: int
    default_ttl_s: float
    no_endpoint_ttl_s: float
    enable_eviction: bool
    usage_limit: Plugin
    bands: tuple[FlowBand, ...]
    default: FlowBand
    negative: FlowBand


@dataclass(frozen=True)
class Configuration:
    """A configuration as it is in force.

    `flow_control`: None without its feature gate. `ignored`: the section of that name which is then
    not in force. `sections`: the sections that schedule nothing, by name.
    """

    gates: Mapping[str, bool]
    plugins: Mapping[str, Plugin]
    profiles: tuple[Profile, ...]
    detector: Plugin
    flow_control: FlowControl | None
    ignored: Mapping[str, Any]
    sections: Mapping[str, Any]


def load(text: str, where: str) -> Configuration:
    """The configuration of a text; raises ConfigError where the router refuses it."""
    return _default() if not text else decode(Fields(where, parse(text, where)))


def decode(fields: Fields, *, is_strict: bool = True) -> Configuration:
    """The configuration of a document; raises ConfigError where the router refuses it.

    `is_strict`: without it, plugins and parameters that the router does not know are kept.
    """
    kind, version = fields.required("kind", "str"), fields.required("apiVersion", "str")
    for name, value, allowed in (("kind", kind, (KIND,)), ("apiVersion", version, _VERSIONS)):
        if value not in allowed:
            raise _refusal(fields, name, value, f"must be one of {', '.join(allowed)}")
    gates = _gates(fields)
    entries = _entries(fields)
    profiles = [
        (profile, profile.take("name", "str", ""), _references(profile))
        for profile in fields.maps("schedulingProfiles")
    ]
    top = fields.map("saturationDetector").take("pluginRef", "str", "")
    section = fields.map("flowControl")
    build = _flow_control(section)
    detector = section.map("saturationDetector").take("pluginRef", "str", "") or top
    sections = {
        name: fields.values[name]
        for name in ("dataLayer", "parser", "requestHandler")
        if fields.take(name, "map") is not None
    }
    if unknown := fields.rest():
        raise config_error([(field.field, "", "is an unknown field") for field in unknown])
    known = _instances(entries, is_strict=is_strict)
    return Configuration(
        gates=gates,
        plugins=known,
        profiles=_profiles(profiles, known, fields),
        detector=_resolved(section, "saturationDetector", detector, _DETECTOR, known),
        flow_control=build(known) if gates[GATE] else None,
        ignored={}
        if gates[GATE]
        else {key: value for key, value in section.values.items() if key != "saturationDetector"},
        sections=sections,
    )


def _default() -> Configuration:
    """What runs with an empty text."""
    used = [*((kind, weight) for kind, weight in DEFAULT_PROFILE), (_PICKER, None)]
    entries = tuple(Entry(_implied(kind), weight) for kind, weight in used)
    return Configuration(
        gates={GATE: False},
        plugins={entry.plugin.name: entry.plugin for entry in entries},
        profiles=(Profile("default", entries),),
        detector=_implied(_DETECTOR.default),
        flow_control=None,
        ignored={},
        sections={},
    )


def _refusal(fields: Fields, name: str, value: Any, allowed: str) -> ConfigError:
    return config_error([(f"{fields.where}: {name}", f"{value!r:.60}", allowed)])


def _implied(kind: str) -> Plugin:
    """A plugin that the router makes by itself."""
    return plugin(kind, kind, None, kind)


def _gates(fields: Fields) -> dict[str, bool]:
    gates = {GATE: False}
    for entry in fields.take("featureGates", "list", []):
        name, separator, value = entry.partition("=") if isinstance(entry, str) else ("", "", "")
        if name not in gates or (separator and value not in _TRUTHS):
            allowed = f"must be {GATE}, {GATE}=true or {GATE}=false"
            raise _refusal(fields, "featureGates", entry, allowed)
        gates[name] = _TRUTHS[value] if separator else True
    return gates


def _entries(fields: Fields) -> list[tuple[Fields, str, str, Any]]:
    """Place, name, type and parameters of each plugin, decoded."""
    found = []
    for entry in fields.maps("plugins"):
        kind = entry.required("type", "str")
        parameters = entry.take("parameters", "map")
        found.append((entry, entry.take("name", "str", "") or kind, kind, parameters))
    return found


def _instances(
    entries: list[tuple[Fields, str, str, Any]], *, is_strict: bool
) -> dict[str, Plugin]:
    known: dict[str, Plugin] = {}
    for entry, name, kind, parameters in entries:
        if name in known:
            raise _refusal(entry, "name", name, "must not be the name of two plugins")
        known[name] = plugin(kind, name, parameters, entry.where, is_strict=is_strict)
    programs = [name for name, found in known.items() if found.type == "program-aware-fairness"]
    if len(programs) > 1:
        allowed = "must be one at most: with two of program-aware-fairness the router panics"
        raise config_error([("plugins", ", ".join(programs), allowed)])
    return known


def _references(profile: Fields) -> list[tuple[Fields, str, float | None]]:
    return [
        (entry, entry.take("pluginRef", "str", ""), entry.take("weight", "float"))
        for entry in profile.maps("plugins")
    ]


def _profiles(
    listed: Sequence[tuple[Fields, str, list[tuple[Fields, str, float | None]]]],
    known: dict[str, Plugin],
    fields: Fields,
) -> tuple[Profile, ...]:
    """The profiles, with what the router adds: a profile, scorers' weights, a picker."""
    handlers = [found.name for found in known.values() if found.type in plugins.HANDLERS]
    if len(handlers) > 1:
        allowed = "must be one profile handler at most"
        raise config_error([(f"{fields.where}: plugins", ", ".join(handlers), allowed)])
    single = not handlers or known[handlers[0]].type == _HANDLER
    if len(listed) > 1 and single:
        allowed = "must be one, or need a profile handler for several"
        raise config_error([(f"{fields.where}: schedulingProfiles", f"{len(listed)}", allowed)])
    names: set[str] = set()
    profiles = []
    for profile, name, references in listed:
        if not name or name in names:
            raise _refusal(profile, "name", name, "must be a name, different for each profile")
        names.add(name)
        entries = []
        for place, reference, weight in references:
            if reference not in known:
                raise _refusal(place, "pluginRef", reference, "must be a plugin under `plugins`")
            entries.append(_entry(known[reference], weight))
        profiles.append(_completed(Profile(name, tuple(entries)), known, profile))
    if profiles:
        return tuple(profiles)
    used = plugins.FILTERS | plugins.SCORERS | plugins.PICKERS
    entered = tuple(_entry(found, None) for found in known.values() if found.type in used)
    return (_completed(Profile("default", entered), known, fields),)


def _entry(found: Plugin, weight: float | None) -> Entry:
    if found.type not in plugins.SCORERS:
        return Entry(found)
    return Entry(found, 1.0 if weight is None else weight)


def _completed(profile: Profile, known: dict[str, Plugin], place: Fields) -> Profile:
    """The profile with a picker: its own, or a listed one, or the default."""
    pickers = [
        entry.plugin.name for entry in profile.entries if entry.plugin.type in plugins.PICKERS
    ]
    if len(pickers) > 1:
        raise _refusal(place, "plugins", ", ".join(pickers), "must have one picker at most")
    if pickers:
        return profile
    listed = next((found for found in known.values() if found.type in plugins.PICKERS), None)
    picker = listed or _implied(_PICKER)
    return replace(profile, entries=(*profile.entries, Entry(picker)))


def _resolved(
    fields: Fields, field: str, reference: str, role: _Role, known: Mapping[str, Plugin]
) -> Plugin:
    """The plugin of a reference; the default one exists even if it is not listed."""
    name = reference or role.default
    found = known.get(name)
    if found is None:
        if name == role.default:
            return _implied(name)
        raise _refusal(fields, field, name, "must be a plugin under `plugins`")
    if found.type not in role.types:
        raise _refusal(fields, field, name, f"must be one of {', '.join(sorted(role.types))}")
    return found


def _flow_control(section: Fields) -> Callable[[Mapping[str, Plugin]], FlowControl]:
    """Decodes the section; what it returns resolves and checks it, with the gate only."""
    max_requests, max_bytes = _quantity(section, "maxRequests"), _quantity(section, "maxBytes")
    ttl_s = _ttl(section, "defaultRequestTTL")
    empty_ttl_s = _ttl(section, "noEndpointRequestTTL")
    evicts = section.take("enableEviction", "bool", default=False)
    usage_limit = section.take("usageLimitPolicyPluginRef", "str", "")
    bands = [_band(entry) for entry in section.maps("priorityBands")]
    default = _band(section.map("defaultPriorityBand"))
    below = "defaultNegativePriorityBand"
    negative = _band(section.map(below)) if section.values.get(below) is not None else default

    def build(known: Mapping[str, Plugin]) -> FlowControl:
        for name, value in (
            ("maxRequests", max_requests),
            ("maxBytes", max_bytes),
            ("defaultRequestTTL", ttl_s),
            ("noEndpointRequestTTL", empty_ttl_s),
        ):
            if value is not None and value < 0:
                raise _refusal(section, name, section.values[name], "must not be negative")
        template = default(known)
        found: dict[int, FlowBand] = {}
        for band in bands:
            built = band(known)
            if built.priority in found:
                raise _refusal(section, "priorityBands", built.priority, "must differ by priority")
            found[built.priority] = built
        found.setdefault(0, replace(template, priority=0))
        life_s = DEFAULT_TTL_S if ttl_s is None else ttl_s
        return FlowControl(
            max_requests=int(max_requests or 0),
            max_bytes=int(max_bytes or 0),
            default_ttl_s=life_s,
            no_endpoint_ttl_s=life_s if empty_ttl_s is None else empty_ttl_s,
            enable_eviction=evicts,
            usage_limit=_resolved(
                section,
                "usageLimitPolicyPluginRef",
                usage_limit,
                _USAGE_LIMIT,
                known,
            ),
            bands=tuple(found.values()),
            default=template,
            negative=negative(known),
        )

    return build


def _band(fields: Fields) -> Callable[[Mapping[str, Plugin]], FlowBand]:
    priority = fields.take("priority", "int", 0)
    limits = {name: _quantity(fields, name) for name in ("maxRequests", "maxBytes")}
    fairness = fields.take("fairnessPolicyRef", "str", "")
    ordering = fields.take("orderingPolicyRef", "str", "")

    def build(known: Mapping[str, Plugin]) -> FlowBand:
        for name, value in limits.items():
            if value is not None and value < 0:
                raise _refusal(fields, name, fields.values[name], "must not be negative")
        return FlowBand(
            priority=priority,
            max_requests=limits["maxRequests"] or DEFAULT_BAND_REQUESTS,
            max_bytes=limits["maxBytes"] or BAND_BYTES,
            fairness=_resolved(fields, "fairnessPolicyRef", fairness, _FAIRNESS, known),
            ordering=_resolved(fields, "orderingPolicyRef", ordering, _ORDERING, known),
        )

    return build


def _ttl(fields: Fields, name: str) -> float | None:
    text = fields.take(name, "str")
    return None if text is None else duration_s(text, f"{fields.where}: {name}")


def _quantity(fields: Fields, name: str) -> int | None:
    """A number as Kubernetes writes it, rounded up to a whole one: 5, "1k", 1Ki, "2.5", 500m."""
    fields.drop(name)
    value = fields.values.get(name)
    if value is None:
        return None
    text = str(value)
    found = None if isinstance(value, bool) else _QUANTITY.fullmatch(text)
    if found is None:
        raise _refusal(fields, name, value, 'must be a quantity such as 500, "1k" or 1Gi')
    sign, digits, exponent, suffix = found.groups()
    scale = Fraction(10) ** int(exponent[1:]) if exponent else _SCALES[suffix or ""]
    size = math.ceil(Fraction(digits) * scale)
    return -size if sign == "-" else size
