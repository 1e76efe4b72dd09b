"""llm-d: the `EndpointPickerConfig` of its router, and an `InferenceObjective` per class.

`configuration` loads a file as the router does; this module says what a simulation has of it. Not
written, because a simulation has no counterpart: bounds in bytes, the time to live while no
endpoint is ready, `dataLayer`, `requestHandler`.

The rules of all versions are those of 0.10, but for two: up to 0.8 the precise scorer relates
blocks to their range over the endpoints, and plugins and parameters that 0.10 refuses are listed in
older versions, because what these know is not recorded.

A priority of the classes without a band of its own gets one, as llm-d creates it when the first
request arrives, and band 0 always exists. So no band takes several priorities.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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
from spillway._core.router import AlwaysRemote, NeverRemote, UncachedTokens, Weighted
from spillway._core.signals import Scraped
from spillway._core.workload import SloClass
from spillway.config.classes import config_error
from spillway.files.deployments.fields import (
    Fields,
    documents_of,
    duration,
    no_counterpart,
    within,
)
from spillway.files.deployments.target import GATEWAY, Target, Unread, has_pools
from spillway.systems.llm_d import configuration as epp
from spillway.systems.llm_d import parameters
from spillway.systems.llm_d import plugins as types
from spillway.systems.llm_d.writing import (
    AFFINITY,
    ALWAYS_DECIDER,
    DISAGGREGATION,
    HEADROOM,
    LAS,
    ORDERINGS,
    PD_DECIDER,
    SCORERS,
    STAGES,
    STALE_S,
    UNBOUNDED,
    absorb,
    others,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.systems.llm_d.configuration import (
        Configuration,
        FlowBand,
        FlowControl,
        Profile,
    )
    from spillway.systems.llm_d.plugins import Plugin


_PERIOD_S = 0.05
_VICTIMS = 2
_NEVER_S = 3.2e9
_SCORER_OF = {name: kind for kind, name in SCORERS.items()}
_PICKER_OF = {
    "max-score-picker": {"kind": "best", "ties": "random"},
    "random-picker": {"kind": "random"},
    "weighted-random-picker": {"kind": "weighted_random"},
}
_CONCURRENCY = ("maxConcurrency", "concurrencyMode", "maxTokenConcurrency")
_UTILIZATION = ("queueDepthThreshold", "kvCacheUtilThreshold", "metricsStalenessThreshold")
_PRECISE = "precise-prefix-cache-producer"
_HANDLER = "single-profile-handler"
_LEGS = {
    "ends_at_first_token": False,
    "reads_on": False,
    "prefill_max_retries": 0,
    "prefill_retry_after_s": 0.2,
}
_ORDERING_OF = {name: kind for kind, name in ORDERINGS.items()}


_VERSIONS = ("0.8", "0.9", "0.10")


def read(files: Mapping[str, str], settings: dict[str, Any], version: str) -> list[Unread]:
    """Changes gateway, router, signals and priorities to those of the files."""
    configs: list[tuple[str, Configuration]] = []
    unread: list[Unread] = []
    for document in _documents(files):
        kind = document.values.get("kind")
        if kind == epp.KIND:
            configs.append(
                (document.where, epp.decode(document, is_strict=version == _VERSIONS[-1]))
            )
        elif kind == "InferenceObjective":
            with within(document.where):
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
    if version != _VERSIONS[-1]:
        reason = f"has the rules of {_VERSIONS[-1]}, but for the precise scorer of 0.8"
        unread.append(Unread(f"{configs[0][0]}: version", version, reason, "assumed"))
    with within(configs[0][0]):
        unread += _picker(*configs[0], settings, version)
        Weighted.from_dict(settings["router"])  # refuses weights that no simulation has
    return unread


def _documents(files: Mapping[str, str]) -> Iterator[Fields]:
    for name, text in files.items():
        for where, content in documents_of(text, name):
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


def _picker(
    where: str, config: Configuration, settings: dict[str, Any], version: str
) -> list[Unread]:
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
    handler = next(
        (plugin for plugin in config.plugins.values() if plugin.type == DISAGGREGATION), None
    )
    settings["router"] = _routers(where, config, handler, used, unread, version=version)
    _read_stages(handler, config, settings, used, unread)
    gateway = settings["gateway"]
    defaults = Gateway().to_dict()
    gateway |= {name: defaults[name] for name in GATEWAY}
    flow = config.flow_control
    gateway["admission"] = [
        *([] if flow else [GaieLegacy(**rule).to_dict()]),
        *_admitters(config, used),
    ] or defaults["admission"]
    if flow:
        gateway["dispatch"] = "one_per_cycle"
        gateway["expiry_period_s"] = 1.0
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
        used.take(detector, *_CONCURRENCY, "headroom")  # which is that of the filter
        return {"detector": "concurrency", **parameters.concurrency(values)}, STALE_S
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


def _routers(
    where: str,
    config: Configuration,
    handler: Plugin | None,
    used: _Used,
    unread: list[Unread],
    *,
    version: str,
) -> dict[str, Any]:
    """The router of the first profile, of two stages that of decode; others stay unread."""
    at = f"{where}: schedulingProfiles"
    profiles = {profile.name: profile for profile in config.profiles}
    if handler is not None and STAGES.keys() <= profiles.keys():
        own: list[Unread] = []
        found, prefill = (
            _router(at, profiles[stage], config, used, entries, version=version)
            for stage, entries in (("decode", unread), ("prefill", own))
        )
        unread += [entry for entry in own if entry not in unread]
        if found != prefill:
            reason = "both pools are routed by one profile here, that of decode"
            unread.append(Unread(at, "prefill", reason))
        simulated, left = "those of both pools are", profiles.keys() - STAGES.keys()
    else:
        first, *_ = profiles
        found = _router(at, profiles[first], config, used, unread, version=version)
        simulated, left = f"the first is simulated, {first}", profiles.keys() - {first}
    reason = f"of several profiles {simulated}"
    unread += [Unread(at, name, reason) for name in profiles if name in left]
    return found


def _read_stages(
    handler: Plugin | None,
    config: Configuration,
    settings: dict[str, Any],
    used: _Used,
    unread: list[Unread],
) -> None:
    """Which prompts the prefill pool computes."""
    if handler is None:
        if has_pools(settings):
            settings["disaggregation"] |= {
                "order": "decode_first",
                "decider": NeverRemote().to_dict(),
                **_LEGS,
            }
            reason = "without it no prompt is sent to the prefill pool"
            unread.append(Unread(f"plugins: {DISAGGREGATION}", None, reason, "assumed"))
        return
    used.take(handler, "deciders")
    asked = handler.parameters.get("deciders")
    deciders = dict(asked) if isinstance(asked, dict) else {}
    name = deciders.pop("prefill", None)
    unread += [
        Unread(f"{handler.where}: parameters: deciders: {key}", value, no_counterpart)
        for key, value in deciders.items()
    ]
    decider: dict[str, Any] = NeverRemote().to_dict()
    if name is not None:
        found = config.plugins.get(name) if isinstance(name, str) else None
        if found is None or found.type not in (PD_DECIDER, ALWAYS_DECIDER):
            allowed = f"must be a plugin of type {PD_DECIDER} or {ALWAYS_DECIDER}"
            place = f"{handler.where}: parameters: deciders: prefill"
            raise config_error([(place, repr(name), allowed)])
        used.take(found, "nonCachedTokens", "promptTokens")
        decider = AlwaysRemote().to_dict()
        if found.type == PD_DECIDER:
            decider = UncachedTokens(
                min_uncached_tokens=found.parameters["nonCachedTokens"],
                min_prompt_tokens=found.parameters["promptTokens"],
            ).to_dict()
    if has_pools(settings):
        settings["disaggregation"] |= {
            "order": "decode_first",
            "handoff": "after_prefill",
            "decider": decider,
            **_LEGS,
        }
    else:
        reason = "no server is of a prefill pool: every request is served by one"
        unread.append(Unread(f"{handler.where}: type", handler.type, reason))


def _router(
    at: str,
    profile: Profile,
    config: Configuration,
    used: _Used,
    unread: list[Unread],
    *,
    version: str,
) -> dict[str, Any]:
    """The router of a profile."""
    filters: list[dict[str, Any]] = []
    scorers: list[dict[str, Any]] = []
    picker = _PICKER_OF["max-score-picker"]
    for entry in profile.entries:
        plugin = entry.plugin
        if scorer := _scorer_of(plugin, config):
            weight = entry.weight or 0.0
            if weight < 0:
                reason = "a simulation has no negative weights: left out"
                unread.append(
                    Unread(f"{at}: {plugin.name}: weight", parameters.number(weight), reason)
                )
            elif weight > 0:
                settings = parameters.scorer(scorer, plugin.parameters, version)
                scorers.append(parameters.default_scorer(scorer) | {"weight": weight} | settings)
            simulated = parameters.scorer_parameters(scorer)
            used.take(plugin, "prefixMatchInfoProducerName", *simulated)
            if scorer == "precise_prefix_cache":
                used.take_producer(_PRECISE)
        elif plugin.type in _PICKER_OF:
            picker = _PICKER_OF[used.take(plugin, "maxNumOfEndpoints").type]
            unread += _fallbacks(plugin)
        elif plugin.type == STAGES.get(profile.name):  # the pool of the stage
            used.take(plugin)
        elif found := _filter(plugin, used):
            filters.append(found)
        else:
            used.lacks(plugin)
    if not scorers:  # all scores are equal
        scorers, picker = [parameters.default_scorer("load_balance")], _PICKER_OF["random-picker"]
    return {"kind": "weighted", "filters": filters, "scorers": scorers, "picker": dict(picker)}


def _fallbacks(plugin: Plugin) -> Iterator[Unread]:
    """The endpoints behind the first one that a picker names."""
    number = plugin.parameters["maxNumOfEndpoints"]
    if number > 1:
        reason = "the first one gets the request; the proxy's fallback to the others is not modeled"
        yield Unread(f"{plugin.where}: parameters: maxNumOfEndpoints", number, reason)


def _filter(plugin: Plugin, used: _Used) -> dict[str, Any] | None:
    """The filter of a simulation; None: there is no counterpart."""
    if plugin.type == AFFINITY:
        return parameters.affinity(used.take(plugin, *parameters.AFFINITY).parameters)
    if plugin.type == "utilization-detector":
        return _utilization(used.take(plugin, *_UTILIZATION, "headroom"))
    if plugin.type == "concurrency-detector":
        values = used.take(plugin, *_CONCURRENCY, "headroom").parameters
        limits = parameters.concurrency(values) | {"headroom": values["headroom"]}
        return {"kind": "concurrency", "if_none": "reject", **limits}
    if plugin.type == "utilization-filter":
        values = used.take(plugin, "conditions", "fallbackOnEmpty").parameters
        return parameters.thresholds(values)
    if plugin.type == HEADROOM:
        values = used.take(plugin, "epsilonExploreNeg").parameters
        return {"kind": "slo_headroom", "exploration": values["epsilonExploreNeg"]}
    return None


def _scorer_of(plugin: Plugin, config: Configuration) -> str | None:
    """The scorer of a simulation; that of prefixes depends on the producer of matches."""
    if plugin.type != "prefix-cache-scorer":
        return _SCORER_OF.get(plugin.type)
    name = plugin.parameters["prefixMatchInfoProducerName"]
    producer = config.plugins[name].type if name in config.plugins else name
    return "precise_prefix_cache" if producer == _PRECISE else "prefix_affinity"


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
    if flow.max_bytes:
        unread.append(Unread(f"{where}: maxBytes", flow.max_bytes, no_counterpart))
    for each in flow.bands:
        if each.max_bytes != epp.BAND_BYTES:
            name = f"priority band {each.priority}: maxBytes"
            unread.append(Unread(f"{where}: {name}", each.max_bytes, no_counterpart))
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
    further = others(own, settings["slo_classes"])
    gateway["bands"] = [
        *(band(found, priority) for priority, found in own.items()),
        *(band(flow.negative if each < 0 else flow.default, each) for each in further),
    ]


def _bound(requests: int) -> int | None:
    """A bound of a queue: 0 is none, and so are those beyond all requests of a run."""
    return requests if 0 < requests < UNBOUNDED else None


def _read_fairness(plugin: Plugin, used: _Used) -> Any:
    values = plugin.parameters
    if plugin.type == "program-aware-fairness":
        used.take(plugin, *LAS, "lasDecayFactor")
        given = {setting: values[name] for name, setting in LAS.items()}
        given["half_life_s"] = given["half_life_s"] or _half_life_s(values["lasDecayFactor"])
        return LeastAttainedService(**given, decay="always", scope="gateway")
    used.take(plugin)
    return (
        TenantRoundRobin()
        if plugin.type == "round-robin-fairness-policy"
        else GlobalFifo(order="ordering")
    )


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
    versions=_VERSIONS,
    doc="the EndpointPickerConfig of the router, and an InferenceObjective per class",
    covers=(
        *(f"gateway.{name}" for name in GATEWAY),
        "router",
        "signals",
        "slo_classes[].priority",
        "disaggregation.order",
        "disaggregation.handoff",
        "disaggregation.topology",
        "disaggregation.decider",
        "disaggregation.ends_at_first_token",
        "disaggregation.reads_on",
        "disaggregation.prefill_max_retries",
        "disaggregation.prefill_retry_after_s",
    ),
    reasons=(
        ("gateway.admission", "llm-d has its saturation check and the admitters of its plugins"),
        ("gateway.limit[].staleness_policy", "llm-d counts an old metric as saturated"),
        ("gateway.limit[].across", "llm-d takes the saturation of the more saturated pool"),
        ("gateway.limit", "llm-d limits by saturation only, with the feature gate flowControl"),
        ("gateway.dispatch", "the flow control of llm-d dispatches one request per attempt"),
        ("gateway.attempt_period_s", "the flow control of llm-d attempts every millisecond"),
        ("gateway.expiry_period_s", "flow control looks for expired requests once a second"),
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
        (
            "router.scorers[].scale",
            "the version decides it: the range of the endpoints in 0.8, then the prompt",
        ),
        ("router", "its parameters are not among those of llm-d's plugins"),
        ("disaggregation.order", "only that of llm-d's default is written: the decode pod first"),
        ("disaggregation.handoff", "the prefill pod is asked first, and the decode pod after it"),
        ("disaggregation.topology", "plugins that know the racks of pods are not written"),
        ("disaggregation.decider", "llm-d decides by the prompt, or always or never"),
        ("disaggregation.ends_at_first_token", "the decode pod gets every request"),
        ("disaggregation.reads_on", "a request whose client leaves is cancelled on both pods"),
        (
            "disaggregation.prefill_max_retries",
            "it is the flag prefill-max-retries of the sidecars of decode pods; their default is 0",
        ),
        ("disaggregation.prefill_retry_after_s", "the sidecars wait 200 ms"),
        ("signals", "llm-d scrapes every 50 ms; an old metric counts as saturated"),
    ),
    write=write,
    read=read,
    absorb=absorb,
    documents=is_document,
    expected="an EndpointPickerConfig, and an InferenceObjective per class",
)
