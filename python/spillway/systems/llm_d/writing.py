"""llm-d: the configuration of the endpoint picker, and an objective per class, as files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from spillway._core.gateway import (
    GaieLegacy,
    Saturation,
)
from spillway.config.classes import config_error
from spillway.config.yaml import to_yaml
from spillway.files.deployments.fields import duration
from spillway.files.deployments.shares import limit_per_instance
from spillway.files.deployments.target import has_pools
from spillway.systems.llm_d import configuration as epp
from spillway.systems.llm_d import parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_API = "llm-d.ai/v1alpha1"
_FILE = "endpointpickerconfig.yaml"
STALE_S = 0.2
UNBOUNDED = 10**9
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SCORERS = {
    "prefix_affinity": "prefix-cache-scorer",
    "precise_prefix_cache": "precise-prefix-cache-scorer",
    "queue_depth": "queue-scorer",
    "kv_utilization": "kv-cache-utilization-scorer",
    "active_requests": "active-request-scorer",
    "running_requests": "running-requests-size-scorer",
    "load_aware": "load-aware-scorer",
    "no_hit_lru": "no-hit-lru-scorer",
    "token_load": "token-load-scorer",
    "lora_affinity": "lora-affinity-scorer",
    "predicted_latency": "latency-scorer",
    "session_affinity": "session-affinity-scorer",
}
_PICKERS = {
    "best": "max-score-picker",
    "random": "random-picker",
    "weighted_random": "weighted-random-picker",
}
AFFINITY = "prefix-cache-affinity-filter"
_FILTERS = ("prefix_cache_affinity", "utilization", "concurrency", "slo_headroom", "thresholds")
DISAGGREGATION = "disagg-profile-handler"
PD_DECIDER, ALWAYS_DECIDER = "prefix-based-pd-decider", "always-disagg-pd-decider"
STAGES = {"prefill": "prefill-filter", "decode": "decode-filter"}
HEADROOM = "slo-headroom-tier-filter"
ORDERINGS: Mapping[Literal["fcfs", "edf", "slo_deadline"], str] = {
    "fcfs": "fcfs-ordering-policy",
    "edf": "edf-ordering-policy",
    "slo_deadline": "slo-deadline-ordering-policy",
}
LAS = {
    "lasWeightService": "service_weight",
    "lasWeightHeadWait": "head_wait_weight",
    "lasHalfLifeSeconds": "half_life_s",
}


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
    stale_s = (signals.get("stale_after_s") or STALE_S) if signals["kind"] == "scraped" else None
    profile = _profile(settings["router"], plugins, stale_s)
    detector = plugins.add(*_detector(limit or legacy or GaieLegacy().to_dict(), stale_s))
    if limit:
        content["featureGates"] = [epp.GATE]
        content["flowControl"] = _flow_control(settings, detector, plugins)
    else:
        content["saturationDetector"] = {"pluginRef": detector}
    profiles = {"default": profile}
    if has_pools(settings):
        profiles = {
            stage: [{"pluginRef": plugins.add(own)}, *profile] for stage, own in STAGES.items()
        }
        _write_decider(settings["disaggregation"]["decider"], plugins)
    content["plugins"] = plugins.entries
    content["schedulingProfiles"] = [
        {"name": name, "plugins": entries} for name, entries in profiles.items()
    ]
    return {_FILE: to_yaml(content)} | dict(_objectives(settings["slo_classes"]))


def _write_decider(decider: Mapping[str, Any], plugins: _Plugins) -> None:
    """The handler of both stages, and what it asks."""
    if decider["kind"] == "never":
        plugins.add(DISAGGREGATION)
        return
    name = ALWAYS_DECIDER
    if decider["kind"] == "uncached_tokens":
        given = {
            "nonCachedTokens": decider["min_uncached_tokens"],
            "promptTokens": decider["min_prompt_tokens"],
        }
        name = plugins.add(PD_DECIDER, {key: value for key, value in given.items() if value})
    else:
        plugins.add(ALWAYS_DECIDER)
    plugins.add(DISAGGREGATION, {"deciders": {"prefill": name}})


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
        return "concurrency-detector", parameters.of_concurrency(rule)
    return "utilization-detector", {
        "queueDepthThreshold": max(1, round(rule["queue_depth_threshold"])),
        "kvCacheUtilThreshold": rule["kv_utilization_threshold"],
        "metricsStalenessThreshold": duration(STALE_S if stale_s is None else stale_s),
    }


def _write_admitters(admission: list[dict[str, Any]], plugins: _Plugins) -> None:
    for i, policy in enumerate(admission):
        if policy["kind"] == "probabilistic" and policy["k"] > 0:  # 0 admits all, and is refused
            for name in ("power", "kv_utilization_threshold"):
                if policy[name] <= 0:
                    path = f"gateway.admission[{i}].{name}"
                    allowed = "cannot be that of a probabilistic-admitter: must be > 0"
                    raise config_error([(path, f"{policy[name]:g}", allowed)])
            given = {
                "queueDepthThreshold": max(1, round(policy["queue_depth_threshold"])),
                "kvCacheUtilThreshold": policy["kv_utilization_threshold"],
                "power": policy["power"],
                "k": policy["k"],
            }
            plugins.add("probabilistic-admitter", given)
        elif policy["kind"] == "latency_slo":
            plugins.add("latency-slo-admitter")


def _profile(
    router: Mapping[str, Any], plugins: _Plugins, stale_s: float | None
) -> list[dict[str, Any]]:
    scorers: list[tuple[str, Any]] = [
        (kind, parameters.number(weight)) for kind, weight in epp.DEFAULT_PROFILE
    ]
    filters: list[str] = []
    given: dict[str, dict[str, Any]] = {}
    picker = _PICKERS["best"]
    if router["kind"] == "weighted":
        picker = _PICKERS.get(router["picker"]["kind"], picker)
        written = [scorer for scorer in router["scorers"] if scorer["kind"] in SCORERS]
        known = [
            (SCORERS[scorer["kind"]], parameters.number(scorer["weight"])) for scorer in written
        ]
        given = {
            SCORERS[scorer["kind"]]: parameters.of_scorer(
                scorer, parameters.default_scorer(scorer["kind"])
            )
            for scorer in written
        }
        scorers = known if known or picker == _PICKERS["random"] else scorers
        filters = [
            plugins.add(*_filter(policy, stale_s))
            for policy in router["filters"]
            if policy["kind"] in _FILTERS
            and (policy["kind"] != "thresholds" or parameters.conditions(policy))
        ]
    return [
        *({"pluginRef": name} for name in filters),
        *(
            {"pluginRef": plugins.add(plugin, given.get(plugin)), "weight": weight}
            for plugin, weight in _summed(scorers)
        ),
        {"pluginRef": plugins.add(picker)},
    ]


def _filter(policy: Mapping[str, Any], stale_s: float | None) -> tuple[str, dict[str, Any]]:
    if policy["kind"] == "utilization":
        kind, limits = _detector({**policy, "detector": "utilization"}, stale_s)
        return kind, limits | {"headroom": policy["headroom"]}
    if policy["kind"] == "concurrency":
        return "concurrency-detector", parameters.of_concurrency(policy) | {
            "headroom": policy["headroom"]
        }
    if policy["kind"] == "thresholds":
        falls_back = policy["if_none"] == "keep_all"
        written = {"conditions": parameters.conditions(policy)}
        return "utilization-filter", written | ({"fallbackOnEmpty": True} if falls_back else {})
    if policy["kind"] == "slo_headroom":
        return HEADROOM, {"epsilonExploreNeg": policy["exploration"]}
    return AFFINITY, parameters.of_affinity(policy)


def _summed(scorers: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """One entry per scorer, with the sum of its weights, which has the same effect."""
    found: dict[str, Any] = {}
    for name, weight in scorers:
        found[name] = found.get(name, 0) + weight
    return list(found.items())


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
                ORDERINGS.get(band["queue"]["ordering"], ORDERINGS["fcfs"])
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
    return UNBOUNDED if requests is None else requests or epp.DEFAULT_BAND_REQUESTS


def _bands(
    bands: list[dict[str, Any]], classes: list[dict[str, Any]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The bands, then one more for each other priority, like the one that it joins."""
    own = {band["priority"]: band for band in bands}
    yield from own.items()
    lowest = own[min(own)]
    for priority in others(own, classes):
        reached = [known for known in own if known <= priority]
        yield priority, own[max(reached)] if reached else lowest


def others(own: Mapping[int, Any], classes: list[dict[str, Any]]) -> list[int]:
    """The priorities without a band of their own, 0 among them."""
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
        return "program-aware-fairness", {name: rule[setting] for name, setting in LAS.items()}
    if rule["kind"] == "round_robin":
        return "round-robin-fairness-policy", {}
    return "global-strict-fairness-policy", {}
