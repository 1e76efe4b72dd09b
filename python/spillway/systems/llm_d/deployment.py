"""llm-d: the `EndpointPickerConfig` of its router, and an `InferenceObjective` per class.

Fields and defaults: `apix/config/v1alpha1` and the READMEs of the plugins in llm-d/llm-d-router at
0.10, https://llm-d.ai/docs/0.10. Not written, because a simulation has no counterpart: bounds in
bytes, the time to live while no endpoint is ready, `dataLayer`, `requestHandler`. Not written,
because their names could not be verified: parameters of prefix-cache-scorer and of
prefix-cache-affinity-filter.

A priority of the classes without a band of its own gets one, as llm-d creates it when the first
request arrives. So no band takes several priorities.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from spillway._core.gateway import (
    Band,
    Eviction,
    GaieLegacy,
    Gateway,
    GlobalFifo,
    LatencySlo,
    LeastAttainedService,
    PriorityHoldback,
    Probabilistic,
    Queue,
    Saturation,
    TenantRoundRobin,
)
from spillway._core.router import Weighted
from spillway._core.signals import Scraped
from spillway._core.workload import SloClass
from spillway.config.classes import config_error
from spillway.config.yaml import parse, to_yaml
from spillway.files.deployments.fields import Fields, duration, no_counterpart, seconds
from spillway.files.deployments.target import GATEWAY, Target, Unread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_API = "llm-d.ai/v1alpha1"
_FILE = "endpointpickerconfig.yaml"
_TTL_S = 60.0
_STALE_S = 0.2
_PERIOD_S = 0.05
_VICTIMS = 2
_BAND = 5000
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_SCORERS = {
    "prefix_affinity": "prefix-cache-scorer",
    "precise_prefix_cache": "precise-prefix-cache-scorer",
    "queue_depth": "queue-scorer",
    "kv_utilization": "kv-cache-utilization-scorer",
    "active_requests": "active-request-scorer",
    "running_requests": "running-requests-size-scorer",
    "load_aware": "load-aware-scorer",
    "no_hit_lru": "no-hit-lru-scorer",
}
_SCORER_OF = {name: kind for kind, name in _SCORERS.items()}
_PICKERS = {
    "best": "max-score-picker",
    "random": "random-picker",
    "weighted_random": "weighted-random-picker",
}
_PICKER_OF = {
    "max-score-picker": {"kind": "best", "ties": "random"},
    "random-picker": {"kind": "random"},
    "weighted-random-picker": {"kind": "weighted_random"},
}
_AFFINITY = "prefix-cache-affinity-filter"
_AFFINITY_FILTER = {"kind": "prefix_cache_affinity", "threshold": 0.8, "exploration": 0.01}
_DEFAULT_PROFILE = (
    ("queue-scorer", 2),
    ("kv-cache-utilization-scorer", 2),
    ("prefix-cache-scorer", 3),
)
_ORDERINGS: Mapping[Literal["fcfs", "edf", "slo_deadline"], str] = {
    "fcfs": "fcfs-ordering-policy",
    "edf": "edf-ordering-policy",
    "slo_deadline": "slo-deadline-ordering-policy",
}
_ORDERING_OF = {name: kind for kind, name in _ORDERINGS.items()}
_LAS = {
    "lasWeightService": "service_weight",
    "lasWeightHeadWait": "head_wait_weight",
    "lasHalfLifeSeconds": "half_life_s",
}
_GATE = "flowControl"
_NEGATIVE = "defaultNegativePriorityBand"
_LOAD_AWARE = 128


# --- writing --------------------------------------------------------------------------------------


class _Plugins:
    """The `plugins` of a file: equal ones share a name."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def add(self, kind: str, parameters: Mapping[str, Any] | None = None) -> str:
        """The name of a plugin of this type with these parameters."""
        entry = {"type": kind} | ({"parameters": dict(parameters)} if parameters else {})
        for plugin in self.entries:
            if {key: value for key, value in plugin.items() if key != "name"} == entry:
                return str(plugin["name"])
        others = sum(plugin["type"] == kind for plugin in self.entries)
        name = f"{kind}-{others + 1}" if others else kind
        self.entries.append({"name": name} | entry)
        return name


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:  # noqa: ARG001
    """The configuration of the endpoint picker, and an objective per class."""
    plugins = _Plugins()
    gateway = settings["gateway"]
    content: dict[str, Any] = {"apiVersion": _API, "kind": "EndpointPickerConfig"}
    limit = next((policy for policy in gateway["limit"] if policy["kind"] == "saturation"), None)
    legacy = next(
        (policy for policy in gateway["admission"] if policy["kind"] == "gaie_legacy"), None
    )
    _write_admitters(gateway["admission"], plugins)
    profile = _profile(settings["router"], plugins)
    signals = settings["signals"]
    stale_s = (signals.get("stale_after_s") or _STALE_S) if signals["kind"] == "scraped" else None
    detector = plugins.add(*_detector(limit or legacy or GaieLegacy().to_dict(), stale_s))
    if limit:
        content["featureGates"] = [_GATE]
        content["flowControl"] = _flow_control(settings, detector, plugins)
    else:
        content["saturationDetector"] = {"pluginRef": detector}
    content["plugins"] = plugins.entries
    content["schedulingProfiles"] = [{"name": "default", "plugins": profile}]
    return {_FILE: to_yaml(content)} | dict(_objectives(settings["slo_classes"]))


def _objectives(classes: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for slo_class in classes:
        name = slo_class["name"]
        if not _DNS_LABEL.fullmatch(name):
            allowed = "cannot be the name of an InferenceObjective: must be a-z, 0-9 and -"
            raise config_error([(f"slo_classes[{name}].name", repr(name), allowed)])
        yield (
            f"inferenceobjective-{name}.yaml",
            to_yaml(
                {
                    "apiVersion": "llm-d.ai/v1alpha2",
                    "kind": "InferenceObjective",
                    "metadata": {"name": name},
                    "spec": {"priority": slo_class["priority"], "poolRef": {"name": "$POOL"}},
                }
            ),
        )


def _detector(rule: Mapping[str, Any], stale_s: float | None) -> tuple[str, dict[str, Any]]:
    if rule["detector"] == "concurrency":
        return "concurrency-detector", {"maxConcurrency": max(1, round(rule["max_concurrency"]))}
    return "utilization-detector", {
        "queueDepthThreshold": max(1, round(rule["queue_depth_threshold"])),
        "kvCacheUtilThreshold": rule["kv_utilization_threshold"],
        "metricsStalenessThreshold": duration(_STALE_S if stale_s is None else stale_s),
    }


def _write_admitters(admission: list[dict[str, Any]], plugins: _Plugins) -> None:
    for policy in admission:
        if policy["kind"] == "probabilistic":
            parameters = {
                "queueDepthThreshold": max(1, round(policy["queue_depth_threshold"])),
                "kvCacheUtilThreshold": policy["kv_utilization_threshold"],
                "power": policy["power"],
                "k": policy["k"],
            }
            plugins.add("probabilistic-admitter", parameters)
        elif policy["kind"] == "latency_slo":
            plugins.add("latency-slo-admitter")


def _profile(router: Mapping[str, Any], plugins: _Plugins) -> list[dict[str, Any]]:
    scorers: list[tuple[str, Any]] = list(_DEFAULT_PROFILE)
    filters: list[str] = []
    picker = _PICKERS["best"]
    if router["kind"] == "weighted":
        known = [scorer for scorer in router["scorers"] if scorer["kind"] in _SCORERS]
        scorers = [
            (_SCORERS[scorer["kind"]], _number(scorer["weight"])) for scorer in known
        ] or scorers
        filters = [_AFFINITY for policy in router["filters"] if policy == _AFFINITY_FILTER][:1]
        picker = _PICKERS.get(router["picker"]["kind"], picker)
    return [
        *({"pluginRef": plugins.add(plugin)} for plugin in filters),
        *(
            {"pluginRef": plugins.add(plugin), "weight": weight}
            for plugin, weight in _summed(scorers)
        ),
        {"pluginRef": plugins.add(picker)},
    ]


def _summed(scorers: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """One entry per scorer, with the sum of its weights, which has the same effect."""
    found: dict[str, Any] = {}
    for name, weight in scorers:
        found[name] = found.get(name, 0) + weight
    return list(found.items())


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def _flow_control(settings: Mapping[str, Any], detector: str, plugins: _Plugins) -> dict[str, Any]:
    gateway = settings["gateway"]
    content: dict[str, Any] = {"saturationDetector": {"pluginRef": detector}}
    if gateway["max_queued"]:
        content["maxRequests"] = gateway["max_queued"]
    timeout_s = gateway["bands"][0]["queue"]["timeout_s"]
    content["defaultRequestTTL"] = duration(_TTL_S if timeout_s is None else timeout_s)
    content["usageLimitPolicyPluginRef"] = plugins.add(*_usage_limit(gateway))
    content["enableEviction"] = gateway["eviction"]["max_victims"] > 0
    content["priorityBands"] = [
        {
            "priority": priority,
            "maxRequests": band["max_requests"] or _BAND,
            "fairnessPolicyRef": plugins.add(*_fairness(band["fairness"])),
            "orderingPolicyRef": plugins.add(
                _ORDERINGS.get(band["queue"]["ordering"], _ORDERINGS["fcfs"])
            ),
        }
        for priority, band in _bands(gateway["bands"], settings["slo_classes"])
    ]
    return content


def _bands(
    bands: list[dict[str, Any]], classes: list[dict[str, Any]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The bands, then one more for each other priority, like the one that it joins."""
    own = {band["priority"]: band for band in bands}
    yield from own.items()
    lowest = own[min(own)]
    for priority in _others(own, classes):
        reached = [known for known in own if known <= priority]
        yield priority, own[max(reached)] if reached else lowest


def _others(own: Mapping[int, Any], classes: list[dict[str, Any]]) -> list[int]:
    return sorted({slo_class["priority"] for slo_class in classes} - own.keys(), reverse=True)


def _usage_limit(gateway: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The policy with ceilings that llm-d takes: up to 1, the lowest of a holdback below 1."""
    rule = gateway["usage_limit"]
    if rule["kind"] == "soft_reflective":
        return "soft-reflective-ceiling-policy", {}
    if rule["kind"] == "priority_holdback" and rule["min_ceiling"] < 1:
        return "priority-holdback-policy", {
            "minCeiling": rule["min_ceiling"],
            "maxCeiling": min(1.0, rule["max_ceiling"]) or 1.0,
            "domain": rule["domain"],
        }
    ceiling = min(1.0, gateway["bands"][0]["ceiling"]) or 1.0
    return "static-usage-limit-policy", {"threshold": ceiling}


def _fairness(rule: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if rule["kind"] == "least_attained_service":
        return "program-aware-fairness", {name: rule[setting] for name, setting in _LAS.items()}
    if rule["kind"] == "round_robin":
        return "round-robin-fairness-policy", {}
    return "global-strict-fairness-policy", {}


# --- reading --------------------------------------------------------------------------------------


def read(files: Mapping[str, str], settings: dict[str, Any], version: str) -> list[Unread]:  # noqa: ARG001
    """Changes gateway, router, signals and priorities to those of the files."""
    configs: list[Fields] = []
    unread: list[Unread] = []
    for document in _documents(files):
        kind = document.take("kind", "str", "")
        if kind == "EndpointPickerConfig":
            configs.append(document)
        elif kind == "InferenceObjective":
            unread += _objective(document, settings["slo_classes"])
        else:
            unread.append(Unread(f"{document.where}: kind", kind, no_counterpart))
    if len(configs) != 1:
        allowed = "must contain one EndpointPickerConfig, also as the data of a ConfigMap"
        raise config_error([(", ".join(files), f"{len(configs)}", allowed)])
    return unread + _picker(configs[0], settings)


def _documents(files: Mapping[str, str]) -> Iterator[Fields]:
    for name, text in files.items():
        documents = [
            document for document in re.split(r"(?m)^---[ \t]*$", text) if document.strip()
        ]
        for i, document in enumerate(documents):
            where = f"{name} document {i + 1}" if len(documents) > 1 else name
            content = parse(document, where)
            if content is None:
                continue
            fields = Fields(where, content)
            if fields.values.get("kind") == "ConfigMap":
                data = fields.take("data", "map", {})
                texts = {f"{where}: {key}": value for key, value in data.items()}
                yield from _documents({k: v for k, v in texts.items() if isinstance(v, str)})
            else:
                yield fields


def _objective(fields: Fields, classes: list[dict[str, Any]]) -> list[Unread]:
    fields.drop("apiVersion", "status")
    metadata, spec = fields.map("metadata"), fields.map("spec")
    name = metadata.required("name", "str")
    metadata.drop("namespace", "labels", "annotations")
    spec.drop("poolRef")
    priority = spec.take("priority", "int", 0)
    for slo_class in classes:
        if slo_class["name"] == name:
            slo_class["priority"] = priority
            break
    else:
        classes.append(SloClass(name=name, priority=priority).to_dict())
    return fields.rest()


class _Known:
    """The plugins of a file by name; a reference may also name a type of plugin."""

    def __init__(self, entries: list[Fields]) -> None:
        self._found: dict[str, tuple[str, Fields]] = {}
        for entry in entries:
            kind = entry.required("type", "str")
            self._found[entry.take("name", "str", kind)] = kind, entry.map("parameters")
        self._used: set[str] = set()

    def get(self, name: str) -> tuple[str, Fields]:
        """Type and parameters."""
        self._used.add(name)
        return self._found.get(name) or (name, Fields(name, {}))

    def of_type(self, kind: str) -> list[Fields]:
        """The parameters of all plugins of a type."""
        return [
            self.get(name)[1]
            for name, (plugin_kind, _) in self._found.items()
            if plugin_kind == kind
        ]

    def unused(self) -> list[Unread]:
        """The plugins that nothing refers to."""
        return [
            Unread(f"{parameters.where.removesuffix(': parameters')}: type", kind, no_counterpart)
            for name, (kind, parameters) in self._found.items()
            if name not in self._used and kind != "single-profile-handler"
        ]


def _picker(fields: Fields, settings: dict[str, Any]) -> list[Unread]:
    fields.drop("apiVersion")
    gates = fields.take("featureGates", "list", [])
    unread = [
        Unread(f"{fields.where}: featureGates", gate, no_counterpart)
        for gate in gates
        if gate != _GATE
    ]
    flow = Fields(fields.where, {})
    if _GATE in gates:
        flow = fields.map("flowControl")
    elif ignored := fields.take("flowControl", "map"):
        reason = f"is ignored without the feature gate {_GATE}"
        unread.append(Unread(f"{fields.where}: flowControl", ignored, reason))
    plugins = _Known(fields.maps("plugins"))
    top = fields.map("saturationDetector").take("pluginRef", "str", "utilization-detector")
    detector = flow.map("saturationDetector").take("pluginRef", "str", top)
    rule, stale_s = _rule(*plugins.get(detector))
    signals = Scraped(period_s=_PERIOD_S, stale_after_s=stale_s, when_stale="fail_closed")
    settings["signals"] = signals.to_dict()
    settings["router"] = _router(fields.maps("schedulingProfiles"), plugins, unread)
    gateway = settings["gateway"]
    defaults = Gateway().to_dict()
    gateway |= {name: defaults[name] for name in GATEWAY}
    gateway["admission"] = [
        *([] if _GATE in gates else [GaieLegacy(**rule).to_dict()]),
        *(_probabilistic(parameters) for parameters in plugins.of_type("probabilistic-admitter")),
        *(LatencySlo().to_dict() for _ in plugins.of_type("latency-slo-admitter")),
    ] or defaults["admission"]
    if _GATE in gates:
        gateway["dispatch"] = "one_per_attempt"
        gateway["limit"] = [Saturation(**rule).to_dict()]
        unread += _read_flow_control(flow, settings, plugins)
    return [*unread, *plugins.unused(), *fields.rest()]


def _rule(kind: str, parameters: Fields) -> tuple[dict[str, Any], float]:
    """The settings of a saturation detector, and the age at which a metric is stale."""
    if kind == "concurrency-detector":
        most = parameters.take("maxConcurrency", "int", 100)
        return {"detector": "concurrency", "max_concurrency": most}, _STALE_S
    if kind != "utilization-detector":
        allowed = "must be a utilization-detector or a concurrency-detector"
        raise config_error([(f"{parameters.where}: saturationDetector", repr(kind), allowed)])
    stale = parameters.take("metricsStalenessThreshold", "str", duration(_STALE_S))
    return {
        "detector": "utilization",
        "queue_depth_threshold": parameters.take("queueDepthThreshold", "float", 5.0),
        "kv_utilization_threshold": parameters.take("kvCacheUtilThreshold", "float", 0.8),
    }, seconds(stale, f"{parameters.where}: metricsStalenessThreshold")


def _probabilistic(parameters: Fields) -> dict[str, Any]:
    return Probabilistic(
        queue_depth_threshold=parameters.take("queueDepthThreshold", "float", 5.0),
        kv_utilization_threshold=parameters.take("kvCacheUtilThreshold", "float", 0.8),
        power=parameters.take("power", "float", 5.0),
        k=parameters.take("k", "float", 300.0),
    ).to_dict()


def _router(profiles: list[Fields], plugins: _Known, unread: list[Unread]) -> dict[str, Any]:
    """The router of the first profile; the others stay unread."""
    filters: list[dict[str, Any]] = []
    scorers: list[dict[str, Any]] = []
    picker = _PICKER_OF["max-score-picker"]
    chosen = profiles[0] if profiles else None
    if chosen:
        chosen.drop("name")
    for plugin in chosen.maps("plugins") if chosen else []:
        reference = plugin.take("pluginRef", "str", "")
        kind, parameters = plugins.get(reference)
        if kind in _SCORER_OF:
            weight = plugin.take("weight", "float", 1.0)
            defaults = _scorer(_SCORER_OF[kind])
            scorers.append(defaults | {"weight": weight})
            _threshold(kind, parameters)
        elif kind in _PICKER_OF:
            picker = _PICKER_OF[kind]
        elif kind == _AFFINITY:
            filters.append(dict(_AFFINITY_FILTER))
        else:
            unread.append(Unread(f"{plugin.where}: pluginRef", kind, no_counterpart))
    if not scorers:
        scorers = [
            _scorer(_SCORER_OF[name]) | {"weight": float(weight)}
            for name, weight in _DEFAULT_PROFILE
        ]
    return {"kind": "weighted", "filters": filters, "scorers": scorers, "picker": dict(picker)}


def _scorer(kind: str) -> dict[str, Any]:
    """A scorer with its defaults."""
    given = {"kind": kind}
    return Weighted.from_dict({"kind": "weighted", "scorers": [given]}).to_dict()["scorers"][0]  # type: ignore[no-any-return]


def _threshold(kind: str, parameters: Fields) -> None:
    """Takes the threshold of the load-aware scorer if it is the one that is simulated."""
    if kind == "load-aware-scorer" and parameters.values.get("threshold") == _LOAD_AWARE:
        parameters.drop("threshold")


def _read_flow_control(flow: Fields, settings: dict[str, Any], plugins: _Known) -> list[Unread]:
    gateway = settings["gateway"]
    unread = []
    gateway["max_queued"] = flow.take("maxRequests", "int")
    ttl = flow.take("defaultRequestTTL", "str", duration(_TTL_S))
    timeout_s = seconds(ttl, f"{flow.where}: defaultRequestTTL")
    if not timeout_s:
        unread.append(Unread(f"{flow.where}: defaultRequestTTL", ttl, "must be positive; 60s here"))
    if flow.take("enableEviction", "bool", default=False):
        gateway["eviction"] = Eviction(max_victims=_VICTIMS).to_dict()
    kind, parameters = plugins.get(
        flow.take("usageLimitPolicyPluginRef", "str", "static-usage-limit-policy")
    )
    ceiling = 1.0
    if kind == "static-usage-limit-policy":
        ceiling = parameters.take("threshold", "float", 1.0)
    elif kind == "priority-holdback-policy":
        gateway["usage_limit"] = PriorityHoldback(
            min_ceiling=parameters.required("minCeiling", "float"),
            max_ceiling=parameters.take("maxCeiling", "float", 1.0),
            domain=parameters.choice("domain", {"rank": "rank", "value": "value"}, "rank"),
        ).to_dict()
    elif kind == "soft-reflective-ceiling-policy":
        gateway["usage_limit"] = {"kind": "soft_reflective"}
    else:
        unread.append(Unread(f"{flow.where}: usageLimitPolicyPluginRef", kind, no_counterpart))

    def band(fields: Fields, priority: int) -> dict[str, Any]:
        ordering = plugins.get(fields.take("orderingPolicyRef", "str", _ORDERINGS["fcfs"]))[0]
        if ordering not in _ORDERING_OF:
            where = f"{fields.where}: orderingPolicyRef"
            unread.append(Unread(where, ordering, no_counterpart))
        return Band(
            priority=priority,
            ceiling=ceiling,
            max_requests=fields.take("maxRequests", "int", _BAND),
            fairness=_read_fairness(fields, plugins, unread),
            queue=Queue(timeout_s=timeout_s or _TTL_S, ordering=_ORDERING_OF.get(ordering, "fcfs")),
        ).to_dict()

    def template(name: str) -> dict[str, Any]:
        below = flow.map(name)
        below.drop("priority")
        return band(below, 0)

    found = [band(entry, entry.take("priority", "int", 0)) for entry in flow.maps("priorityBands")]
    positive = template("defaultPriorityBand")
    negative = template("defaultNegativePriorityBand") if _NEGATIVE in flow else positive
    own = {entry["priority"]: entry for entry in found}
    found += [
        (negative if priority < 0 else positive) | {"priority": priority}
        for priority in _others(own, settings["slo_classes"])
    ]
    gateway["bands"] = found or [positive]
    return unread


def _read_fairness(fields: Fields, plugins: _Known, unread: list[Unread]) -> Any:
    strict = "global-strict-fairness-policy"
    kind, parameters = plugins.get(fields.take("fairnessPolicyRef", "str", strict))
    if kind == "program-aware-fairness":
        defaults = LeastAttainedService()
        given = {
            setting: parameters.take(name, "float", getattr(defaults, setting))
            for name, setting in _LAS.items()
        }
        return LeastAttainedService(**given)
    if kind == "round-robin-fairness-policy":
        return TenantRoundRobin()
    if kind != strict:
        unread.append(Unread(f"{fields.where}: fairnessPolicyRef", kind, no_counterpart))
    return GlobalFifo()


TARGET = Target(
    name="llm-d",
    versions=("0.10",),
    doc="the EndpointPickerConfig of the router, and an InferenceObjective per class",
    covers=(
        *(f"gateway.{name}" for name in GATEWAY),
        "router",
        "signals",
        "slo_classes[].priority",
    ),
    reasons=(
        ("gateway.admission", "llm-d has its saturation check and the admitters of its plugins"),
        ("gateway.limit", "llm-d limits by saturation only, with the feature gate flowControl"),
        ("gateway.dispatch", "the flow control of llm-d dispatches one request per attempt"),
        ("gateway.attempt_period_s", "the flow control of llm-d attempts every millisecond"),
        ("gateway.max_queued", "flow control bounds its queue, by at least 1"),
        ("gateway.bands[].queue.timeout_s", "there is one time to live for all bands"),
        ("gateway.bands[].ceiling", "there is one threshold for all bands, above 0 and up to 1"),
        ("gateway.usage_limit", "ceilings of llm-d are at most 1, with flow control only"),
        ("gateway.bands[].queue", "queues of llm-d have an order and a time to live only"),
        ("gateway.bands[].max_requests", "a band without a bound holds 5,000"),
        ("gateway.bands[].fairness", "llm-d is strict, takes turns, or prefers little service"),
        ("gateway.bands", "every priority has a band of its own, with flow control only"),
        ("gateway.controller", "llm-d does not move its limits"),
        ("gateway.guard", "llm-d does not move its limits"),
        ("gateway.sensor", "llm-d does not move its limits"),
        ("gateway.eviction", "llm-d evicts up to 2 requests per decision, or none"),
        ("router", "its parameters are not among those of llm-d's plugins"),
        ("signals", "llm-d scrapes every 50 ms; an old metric counts as saturated"),
    ),
    write=write,
    read=read,
)
