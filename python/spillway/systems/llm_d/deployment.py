"""llm-d: the `EndpointPickerConfig` of its router, and an `InferenceObjective` per class.

`configuration` loads a file as the router does; this module says what a simulation has of it. Not
written, because a simulation has no counterpart: bounds in bytes, the time to live while no
endpoint is ready, `dataLayer`, `requestHandler`.

A priority of the classes without a band of its own gets one, as llm-d creates it when the first
request arrives, and band 0 always exists. So no band takes several priorities.
"""

from __future__ import annotations

import contextlib
import math
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
from spillway._core.sim import ConfigError
from spillway._core.workload import SloClass
from spillway.config.classes import config_error
from spillway.config.yaml import parse, to_yaml
from spillway.files.deployments.fields import Fields, duration, no_counterpart
from spillway.files.deployments.shares import limit_per_instance
from spillway.files.deployments.target import GATEWAY, Target, Unread
from spillway.systems.llm_d import configuration as epp
from spillway.systems.llm_d import plugins as types

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.systems.llm_d.configuration import Configuration, FlowBand, FlowControl
    from spillway.systems.llm_d.plugins import Plugin


_API = "llm-d.ai/v1alpha1"
_FILE = "endpointpickerconfig.yaml"
_STALE_S = 0.2
_PERIOD_S = 0.05
_VICTIMS = 2
_UNBOUNDED = 10**9
_NEVER_S = 3.2e9
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
_AFFINITY_TAKEN = ("affinityThreshold", "explorationProbability", "maxTTFTPenaltyMs")
_UTILIZATION = ("queueDepthThreshold", "kvCacheUtilThreshold", "metricsStalenessThreshold")
_PRECISE = "precise-prefix-cache-producer"
_HANDLER = "single-profile-handler"
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
    content: dict[str, Any] = {"apiVersion": _API, "kind": epp.KIND}
    limit = next((policy for policy in gateway["limit"] if policy["kind"] == "saturation"), None)
    legacy = next(
        (policy for policy in gateway["admission"] if policy["kind"] == "gaie_legacy"), None
    )
    _write_admitters(gateway["admission"], plugins)
    signals = settings["signals"]
    stale_s = (signals.get("stale_after_s") or _STALE_S) if signals["kind"] == "scraped" else None
    profile = _profile(settings["router"], plugins, stale_s)
    detector = plugins.add(*_detector(limit or legacy or GaieLegacy().to_dict(), stale_s))
    if limit:
        content["featureGates"] = [epp.GATE]
        content["flowControl"] = _flow_control(settings, detector, plugins)
    else:
        content["saturationDetector"] = {"pluginRef": detector}
    content["plugins"] = plugins.entries
    content["schedulingProfiles"] = [{"name": "default", "plugins": profile}]
    return {_FILE: to_yaml(content)} | dict(_objectives(settings["slo_classes"]))


def absorb(settings: dict[str, Any], version: str) -> dict[str, str]:  # noqa: ARG001
    """A fixed limit is saturation by the requests in flight."""
    share = limit_per_instance(settings)
    if share is None:
        return {}
    limit = Saturation(detector="concurrency", max_concurrency=share)
    settings["gateway"]["limit"] = [limit.to_dict()]
    return {"gateway.limit": f"a concurrency-detector with {share} requests per endpoint"}


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


def _profile(
    router: Mapping[str, Any], plugins: _Plugins, stale_s: float | None
) -> list[dict[str, Any]]:
    scorers: list[tuple[str, Any]] = [
        (kind, _number(weight)) for kind, weight in epp.DEFAULT_PROFILE
    ]
    filters: list[str] = []
    picker = _PICKERS["best"]
    if router["kind"] == "weighted":
        picker = _PICKERS.get(router["picker"]["kind"], picker)
        known = [
            (_SCORERS[scorer["kind"]], _number(scorer["weight"]))
            for scorer in router["scorers"]
            if scorer["kind"] in _SCORERS
        ]
        scorers = known if known or picker == _PICKERS["random"] else scorers
        filters = [
            plugins.add(*_filter(policy, stale_s))
            for policy in router["filters"]
            if policy["kind"] in ("prefix_cache_affinity", "utilization")
        ]
    return [
        *({"pluginRef": name} for name in filters),
        *(
            {"pluginRef": plugins.add(plugin), "weight": weight}
            for plugin, weight in _summed(scorers)
        ),
        {"pluginRef": plugins.add(picker)},
    ]


def _filter(policy: Mapping[str, Any], stale_s: float | None) -> tuple[str, dict[str, Any]]:
    if policy["kind"] == "utilization":
        kind, parameters = _detector({**policy, "detector": "utilization"}, stale_s)
        return kind, parameters | {"headroom": policy["headroom"]}
    return _AFFINITY, {
        "affinityThreshold": policy["threshold"],
        "explorationProbability": policy["exploration"],
        "maxTTFTPenaltyMs": 0,  # no gate by load
    }


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
    content["defaultRequestTTL"] = duration(timeout_s or 0.0)
    content["usageLimitPolicyPluginRef"] = plugins.add(*_usage_limit(gateway))
    content["enableEviction"] = gateway["eviction"]["max_victims"] > 0
    bands = list(_bands(gateway["bands"], settings["slo_classes"]))
    programs = [band["fairness"] for _, band in bands if _is_program_aware(band)]
    content["priorityBands"] = [
        {
            "priority": priority,
            "maxRequests": _written_bound(band["max_requests"]),
            "fairnessPolicyRef": plugins.add(
                *_fairness(programs[0] if _is_program_aware(band) else band["fairness"])
            ),
            "orderingPolicyRef": plugins.add(
                _ORDERINGS.get(band["queue"]["ordering"], _ORDERINGS["fcfs"])
            ),
        }
        for priority, band in bands
    ]
    return content


def _is_program_aware(band: Mapping[str, Any]) -> bool:
    """Whether a band needs the policy of which the router takes one instance at most."""
    return bool(band["fairness"]["kind"] == "least_attained_service")


def _written_bound(requests: int | None) -> int:
    """The bound of a band: without one the router has its own, and 0 stands for that one."""
    return _UNBOUNDED if requests is None else requests or epp.DEFAULT_BAND_REQUESTS


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
    priorities = {0, *(slo_class["priority"] for slo_class in classes)}
    return sorted(priorities - own.keys(), reverse=True)


def _usage_limit(gateway: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The policy of the ceilings; those of a holdback are at most 1, and fall."""
    rule = gateway["usage_limit"]
    if rule["kind"] == "soft_reflective":
        return "soft-reflective-ceiling-policy", {}
    if rule["kind"] == "priority_holdback":
        highest = min(1.0, rule["max_ceiling"])
        if rule["min_ceiling"] < highest:
            return "priority-holdback-policy", {
                "minCeiling": rule["min_ceiling"],
                "maxCeiling": highest,
                "domain": rule["domain"],
            }
    return "static-usage-limit-policy", {"threshold": gateway["bands"][0]["ceiling"]}


def _fairness(rule: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if rule["kind"] == "least_attained_service":
        return "program-aware-fairness", {name: rule[setting] for name, setting in _LAS.items()}
    if rule["kind"] == "round_robin":
        return "round-robin-fairness-policy", {}
    return "global-strict-fairness-policy", {}


# --- reading --------------------------------------------------------------------------------------


def read(files: Mapping[str, str], settings: dict[str, Any], version: str) -> list[Unread]:  # noqa: ARG001
    """Changes gateway, router, signals and priorities to those of the files."""
    configs: list[tuple[str, Configuration]] = []
    unread: list[Unread] = []
    for document in _documents(files):
        kind = document.values.get("kind")
        if kind == epp.KIND:
            configs.append((document.where, epp.decode(document)))
        elif kind == "InferenceObjective":
            with _within(document.where):
                unread += _objective(document, settings["slo_classes"])
        else:
            document.take("kind", "str")
            unread.append(Unread(f"{document.where}: kind", kind, no_counterpart))
    if list(files.values()) == [""]:
        (name,) = files
        configs.append((name, epp.load("", name)))
        unread.append(Unread(name, None, "is empty: the router runs with its default profile"))
    if len(configs) != 1:
        allowed = f"must contain one {epp.KIND}, also as the data of a ConfigMap"
        raise config_error([(", ".join(files), f"{len(configs)}", allowed)])
    with _within(configs[0][0]):
        unread += _picker(*configs[0], settings)
        Weighted.from_dict(settings["router"])  # refuses weights that no simulation has
    return unread


@contextlib.contextmanager
def _within(where: str) -> Iterator[None]:
    """Names the file in errors of settings: llm-d takes values that no simulation has."""
    try:
        yield
    except ConfigError as error:
        raise config_error(
            [
                (path if path.startswith(where) else f"{where}: {path}", value, allowed)
                for path, value, allowed in error.violations
            ]
        ) from error


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
    fields.drop("apiVersion", "kind", "status")
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


class _Used:
    """What a simulation takes of the plugins; the rest is listed."""

    def __init__(self, config: Configuration) -> None:
        self._plugins = config.plugins
        self._taken: dict[str, set[str]] = {}
        self._known: set[str] = set()

    def take(self, plugin: Plugin, *parameters: str) -> Plugin:
        """Notes that a plugin and these of its parameters are simulated."""
        self._taken.setdefault(plugin.name, set()).update(parameters)
        return plugin

    def take_producer(self, kind: str) -> None:
        """Notes that the listed plugins of a type, which report matches, are simulated."""
        for plugin in self._plugins.values():
            if plugin.type == kind:
                self.take(plugin)

    def lacks(self, plugin: Plugin) -> None:
        """Notes that a plugin is in force and not simulated."""
        self._known.add(plugin.name)

    def unread(self) -> Iterator[Unread]:
        """The plugins, and the parameters of others, that are not simulated."""
        named = (
            types.FAIRNESS
            | types.ORDERINGS
            | types.USAGE_LIMITS
            | types.DETECTORS
            | types.SCORERS
            | types.FILTERS
            | types.PICKERS
        )
        for name, plugin in self._plugins.items():
            if name not in self._taken:
                unused = plugin.type in named and name not in self._known
                reason = "nothing that is simulated refers to it" if unused else no_counterpart
                yield Unread(f"{plugin.where}: type", plugin.type, reason)
                continue
            for parameter, value in plugin.changed().items():
                if parameter not in self._taken[name]:
                    where = f"{plugin.where}: parameters: {parameter}"
                    yield Unread(where, value, no_counterpart)


def _picker(where: str, config: Configuration, settings: dict[str, Any]) -> list[Unread]:
    unread = [
        *(
            Unread(f"{where}: {name}", part, no_counterpart)
            for name, part in config.sections.items()
        ),
    ]
    if config.ignored:
        reason = f"is ignored without the feature gate {epp.GATE}"
        unread.append(Unread(f"{where}: flowControl", dict(config.ignored), reason))
    used = _Used(config)
    rule, stale_s = _rule(config.detector, used)
    signals = Scraped(period_s=_PERIOD_S, stale_after_s=stale_s, when_stale="fail_closed")
    settings["signals"] = signals.to_dict()
    settings["router"] = _router(where, config, used, unread)
    gateway = settings["gateway"]
    defaults = Gateway().to_dict()
    gateway |= {name: defaults[name] for name in GATEWAY}
    flow = config.flow_control
    gateway["admission"] = [
        *([] if flow else [GaieLegacy(**rule).to_dict()]),
        *_admitters(config, used),
    ] or defaults["admission"]
    if flow:
        gateway["dispatch"] = "one_per_attempt"
        gateway["limit"] = [Saturation(**rule).to_dict()]
        _read_flow_control(f"{where}: flowControl", flow, settings, used, unread)
    handlers = [plugin for plugin in config.plugins.values() if plugin.type == _HANDLER]
    for handler in handlers:
        used.take(handler)
    return [*unread, *used.unread()]


def _rule(detector: Plugin, used: _Used) -> tuple[dict[str, Any], float]:
    """The settings of a saturation detector, and the age at which a metric is stale."""
    values = detector.parameters
    if detector.type == "concurrency-detector":
        # In this mode tokens do not count; the headroom is that of the filter.
        tokens = {"maxTokenConcurrency"} if values["concurrencyMode"] == "requests" else set()
        used.take(detector, "maxConcurrency", "headroom", *tokens)
        return {"detector": "concurrency", "max_concurrency": values["maxConcurrency"]}, _STALE_S
    used.take(detector, *_UTILIZATION, "headroom")
    return {
        "detector": "utilization",
        "queue_depth_threshold": values["queueDepthThreshold"],
        "kv_utilization_threshold": values["kvCacheUtilThreshold"],
    }, values["metricsStalenessThreshold"]


def _admitters(config: Configuration, used: _Used) -> Iterator[dict[str, Any]]:
    for plugin in config.plugins.values():
        if plugin.type == "probabilistic-admitter":
            values = used.take(plugin, *plugin.parameters).parameters
            yield Probabilistic(
                queue_depth_threshold=values["queueDepthThreshold"],
                kv_utilization_threshold=values["kvCacheUtilThreshold"],
                power=values["power"],
                k=values["k"],
            ).to_dict()
        elif plugin.type == "latency-slo-admitter":
            used.take(plugin, *plugin.parameters)
            yield LatencySlo().to_dict()


def _router(where: str, config: Configuration, used: _Used, unread: list[Unread]) -> dict[str, Any]:
    """The router of the first profile; the others stay unread."""
    profile, *others = config.profiles
    at = f"{where}: schedulingProfiles"
    unread += [
        Unread(at, other.name, f"of several profiles the first is simulated, {profile.name}")
        for other in others
    ]
    filters: list[dict[str, Any]] = []
    scorers: list[dict[str, Any]] = []
    picker = _PICKER_OF["max-score-picker"]
    for entry in profile.entries:
        plugin = entry.plugin
        if scorer := _scorer_of(plugin, config):
            weight = entry.weight or 0.0
            if weight < 0:
                reason = "a simulation has no negative weights: left out"
                unread.append(Unread(f"{at}: {plugin.name}: weight", _number(weight), reason))
            elif weight > 0:
                scorers.append(_scorer(scorer) | {"weight": weight})
            used.take(plugin, "prefixMatchInfoProducerName")
            if scorer == "precise_prefix_cache":
                used.take_producer(_PRECISE)
        elif plugin.type in _PICKER_OF:
            picker = _PICKER_OF[used.take(plugin).type]
        elif plugin.type == _AFFINITY:
            filters.append(_affinity(used.take(plugin, *_AFFINITY_TAKEN), unread))
        elif plugin.type == "utilization-detector":
            filters.append(_utilization(used.take(plugin, *_UTILIZATION, "headroom")))
        elif plugin.type == "concurrency-detector":
            reason = "is not simulated as a filter of endpoints"
            unread.append(Unread(f"{at}: pluginRef", plugin.name, reason))
            used.lacks(plugin)
        else:
            used.lacks(plugin)
    if not scorers:  # all scores are equal
        scorers, picker = [_scorer("load_balance")], _PICKER_OF["random-picker"]
    return {"kind": "weighted", "filters": filters, "scorers": scorers, "picker": dict(picker)}


def _scorer_of(plugin: Plugin, config: Configuration) -> str | None:
    """The scorer of a simulation; that of prefixes depends on the producer of matches."""
    if plugin.type != "prefix-cache-scorer":
        return _SCORER_OF.get(plugin.type)
    name = plugin.parameters["prefixMatchInfoProducerName"]
    producer = config.plugins[name].type if name in config.plugins else name
    return "precise_prefix_cache" if producer == _PRECISE else "prefix_affinity"


def _scorer(kind: str) -> dict[str, Any]:
    """A scorer with its defaults."""
    given = {"kind": kind}
    return Weighted.from_dict({"kind": "weighted", "scorers": [given]}).to_dict()["scorers"][0]  # type: ignore[no-any-return]


def _affinity(plugin: Plugin, unread: list[Unread]) -> dict[str, Any]:
    values = plugin.parameters
    if values["maxTTFTPenaltyMs"] > 0 and values["affinityThreshold"] > 0:
        where = f"{plugin.where}: parameters: maxTTFTPenaltyMs"
        reason = "the gate by load is not simulated: the filter always holds"
        unread.append(Unread(where, _number(values["maxTTFTPenaltyMs"]), reason))
    return {
        "kind": "prefix_cache_affinity",
        "threshold": max(0.0, values["affinityThreshold"]),
        "exploration": max(0.0, values["explorationProbability"]),
    }


def _utilization(plugin: Plugin) -> dict[str, Any]:
    return {
        "kind": "utilization",
        "queue_depth_threshold": plugin.parameters["queueDepthThreshold"],
        "kv_utilization_threshold": plugin.parameters["kvCacheUtilThreshold"],
        "headroom": plugin.parameters["headroom"],
    }


def _read_flow_control(
    where: str, flow: FlowControl, settings: dict[str, Any], used: _Used, unread: list[Unread]
) -> None:
    gateway = settings["gateway"]
    gateway["max_queued"] = _bound(flow.max_requests)
    for name, value in (
        ("maxBytes", flow.max_bytes),
        *((f"priority band {band.priority}: maxBytes", band.max_bytes) for band in flow.bands),
    ):
        if value not in (0, epp.BAND_BYTES):
            unread.append(Unread(f"{where}: {name}", value, no_counterpart))
    if flow.no_endpoint_ttl_s != flow.default_ttl_s:
        reason = "there is one time to live, defaultRequestTTL, also while no instance is ready"
        shown = duration(flow.no_endpoint_ttl_s)
        unread.append(Unread(f"{where}: noEndpointRequestTTL", shown, reason))
    if flow.enable_eviction:
        gateway["eviction"] = Eviction(max_victims=_VICTIMS).to_dict()
    limit = used.take(flow.usage_limit, *flow.usage_limit.parameters)
    ceiling = 1.0
    if limit.type == "static-usage-limit-policy":
        ceiling = max(0.0, limit.parameters["threshold"])
    elif limit.type == "priority-holdback-policy":
        gateway["usage_limit"] = PriorityHoldback(
            min_ceiling=limit.parameters["minCeiling"],
            max_ceiling=limit.parameters["maxCeiling"],
            domain=limit.parameters["domain"],
        ).to_dict()
    else:
        gateway["usage_limit"] = {"kind": "soft_reflective"}

    def band(found: FlowBand, priority: int) -> dict[str, Any]:
        ordering = used.take(found.ordering)
        return Band(
            priority=priority,
            ceiling=ceiling,
            max_requests=_bound(found.max_requests),
            fairness=_read_fairness(found.fairness, used),
            queue=Queue(timeout_s=flow.default_ttl_s or None, ordering=_ORDERING_OF[ordering.type]),
        ).to_dict()

    own = {found.priority: found for found in flow.bands}
    others = _others(own, settings["slo_classes"])
    gateway["bands"] = [
        *(band(found, priority) for priority, found in own.items()),
        *(band(flow.negative if each < 0 else flow.default, each) for each in others),
    ]


def _bound(requests: int) -> int | None:
    """A bound of a queue: 0 is none, and so are those beyond all requests of a run."""
    return requests if 0 < requests < _UNBOUNDED else None


def _read_fairness(plugin: Plugin, used: _Used) -> Any:
    values = plugin.parameters
    if plugin.type == "program-aware-fairness":
        used.take(plugin, *_LAS, "lasDecayFactor")
        given = {setting: values[name] for name, setting in _LAS.items()}
        given["half_life_s"] = given["half_life_s"] or _half_life_s(values["lasDecayFactor"])
        return LeastAttainedService(**given)
    used.take(plugin)
    return TenantRoundRobin() if plugin.type == "round-robin-fairness-policy" else GlobalFifo()


def _half_life_s(decay_per_s: float) -> float:
    """The half-life of a factor per second; so long that nothing decays for 1."""
    return _NEVER_S if decay_per_s == 1 else min(_NEVER_S, math.log(0.5) / math.log(decay_per_s))


def is_document(content: Any) -> bool:
    """Whether a mapping is a document of the router."""
    return isinstance(content, dict) and content.get("kind") in (
        "EndpointPickerConfig",
        "InferenceObjective",
    )


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
        ("gateway.bands[].ceiling", "there is one threshold for all bands"),
        ("gateway.usage_limit", "ceilings of llm-d are at most 1, with flow control only"),
        ("gateway.bands[].queue", "queues of llm-d have an order and a time to live only"),
        ("gateway.bands[].max_requests", "a bound of 0 is the default of 5,000"),
        (
            "gateway.bands[].fairness",
            "llm-d is strict, takes turns, or prefers little service in one way for all bands",
        ),
        (
            "gateway.bands",
            "every priority has a band of its own, 0 too, with flow control only",
        ),
        ("gateway.controller", "llm-d does not move its limits"),
        ("gateway.guard", "llm-d does not move its limits"),
        ("gateway.sensor", "llm-d does not move its limits"),
        ("gateway.eviction", "llm-d evicts up to 2 requests per decision, or none"),
        ("router", "its parameters are not among those of llm-d's plugins"),
        ("signals", "llm-d scrapes every 50 ms; an old metric counts as saturated"),
    ),
    write=write,
    read=read,
    absorb=absorb,
    documents=is_document,
    expected="an EndpointPickerConfig, and an InferenceObjective per class",
)
