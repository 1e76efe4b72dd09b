"""llm-d: the types of plugins of its router, their parameters, and the values that are in force.

Names, defaults and rules: recordings of llm-d-router @ ebab6879 and the READMEs of its plugins. A
type without parameters here takes any, and has no use for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.config.classes import config_error
from spillway.files.deployments.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SCORERS = _names(
    "active-request-scorer context-length-aware endpoint-attribute-scorer "
    "header-label-affinity-scorer kv-cache-utilization-scorer latency-scorer load-aware-scorer "
    "lora-affinity-scorer mm-embeddings-cache-scorer multicluster-kv-cache-utilization-scorer "
    "multicluster-prefix-cache-scorer multicluster-queue-scorer no-hit-lru-scorer "
    "precise-prefix-cache-scorer prefix-cache-scorer queue-scorer running-requests-size-scorer "
    "session-affinity-scorer token-load-scorer topology-affinity-scorer"
)
DETECTORS = frozenset({"concurrency-detector", "utilization-detector"})
FILTERS = DETECTORS | _names(
    "by-label by-label-selector context-length-aware decode-filter encode-filter "
    "endpoint-attribute-filter header-based-testing-filter label-selector-filter "
    "multicluster-session-affinity-filter prefill-filter prefix-cache-affinity-filter "
    "session-affinity-filter slo-headroom-tier-filter topology-affinity-filter "
    "utilization-filter"
)
PICKERS = frozenset({"max-score-picker", "random-picker", "weighted-random-picker"})
HANDLERS = _names(
    "data-parallel-profile-handler disagg-profile-handler header-profile-handler "
    "pd-profile-handler single-profile-handler"
)
FAIRNESS = frozenset(
    {"global-strict-fairness-policy", "program-aware-fairness", "round-robin-fairness-policy"}
)
ORDERINGS = frozenset(
    {"edf-ordering-policy", "fcfs-ordering-policy", "slo-deadline-ordering-policy"}
)
USAGE_LIMITS = frozenset(
    {
        "priority-holdback-policy",
        "soft-reflective-ceiling-policy",
        "static-usage-limit-policy",
    }
)
_OTHERS = _names(
    "agent-identity always-disagg-multimodal-decider always-disagg-pd-decider anthropic-parser "
    "approx-prefix-cache-producer burst-prefix-cache-producer core-metrics-extractor "
    "dcgm-data-source dcgm-extractor destination-endpoint-served-verifier disagg-headers-handler "
    "disaggregatedset-rollout-screener endpoint-notification-source file-discovery "
    "inflight-load-producer k8s-notification-source latency-slo-admitter metrics-data-source "
    "mm-embeddings-cache-producer models-data-extractor models-data-source "
    "multicluster-approx-prefix-cache-producer multicluster-file-discovery "
    "multicluster-metrics-data-source multicluster-metrics-extractor openai-parser "
    "p2p-source-producer passthrough-parser precise-prefix-cache-producer "
    "predicted-latency-producer prefill-header-handler prefix-based-pd-decider "
    "priority-then-time-eviction-order-policy probabilistic-admitter request-attribute-reporter "
    "session-id-producer sglanghttp-parser sheddable-eviction-filter token-producer tokenizer "
    "topology-extractor vertexai-parser vllmgrpc-parser vllmhttp-parser"
)
TYPES = SCORERS | FILTERS | PICKERS | HANDLERS | FAIRNESS | ORDERINGS | USAGE_LIMITS | _OTHERS
"""Every registered type."""

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|us|µs|ns|m|s)")


def duration_s(text: str, where: str) -> float:
    """The seconds of a duration as Go reads it, with a sign: 1m30s, -1s, 0."""
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    parts = _DURATION.findall(digits)
    if digits != "0" and (not parts or "".join(n + unit for n, unit in parts) != digits):
        raise config_error([(where, repr(text), "must be a duration such as 60s, 0.5s or 200ms")])
    value_s = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return -value_s if text.startswith("-") else value_s


class Rule(NamedTuple):
    """What a value must be, in words; with `or_default`, another one becomes the default."""

    is_valid: Callable[[Any], bool]
    allowed: str
    or_default: bool = False


_POSITIVE = Rule(lambda value: value > 0, "must be > 0")
_POSITIVE_OR_DEFAULT = Rule(lambda value: value > 0, "", or_default=True)
_NOT_NEGATIVE = Rule(lambda value: value >= 0, "must be >= 0")
_SHARE = Rule(lambda value: 0 <= value <= 1, "must be between 0 and 1")
_UP_TO_1 = Rule(lambda value: value <= 1, "must be <= 1")
_ANY = Rule(lambda _: True, "")


def _one_of(*choices: str) -> Rule:
    return Rule(lambda value: value in choices, f"must be one of {', '.join(choices)}")


@dataclass(frozen=True)
class Parameter:
    """A parameter: its type, as `Fields` names it, or `duration`; its default, and its rule."""

    kind: str
    default: Any = None
    rule: Rule = _ANY


_NAME = Parameter("str", "")
_WITHOUT = "soft-reflective-ceiling-policy"  # refuses parameters
_PRODUCER = "approx-prefix-cache-producer"
_ENDPOINTS = {"maxNumOfEndpoints": Parameter("int", 1, _POSITIVE_OR_DEFAULT)}

PARAMETERS: Mapping[str, Mapping[str, Parameter]] = {
    "active-request-scorer": {
        "idleThreshold": Parameter("int", 0, Rule(lambda v: v >= 0, "", or_default=True)),
        "maxBusyScore": Parameter("float", 1.0, Rule(lambda v: 0 <= v <= 1, "", or_default=True)),
        "inFlightLoadProducerName": _NAME,
        "requestTimeout": Parameter("str"),
    },
    "approx-prefix-cache-producer": {
        "autoTune": Parameter("bool", default=True),
        "blockSize": Parameter("int", 0),
        "blockSizeTokens": Parameter("int", 16),
        "lruCapacityPerServer": Parameter("int", 31_250),
        "maxPrefixBlocksToMatch": Parameter("int", 2048),
        "maxPrefixTokensToMatch": Parameter("int", 131_072),
    },
    "concurrency-detector": {
        "concurrencyMode": Parameter("str", "requests", _one_of("requests", "tokens", "hybrid")),
        "headroom": Parameter("float", 0.0, _NOT_NEGATIVE),
        "inFlightLoadProducerName": _NAME,
        "maxConcurrency": Parameter("int", 100, _POSITIVE),
        "maxTokenConcurrency": Parameter("int", 1_000_000, _POSITIVE),
    },
    "edf-ordering-policy": {},
    "fcfs-ordering-policy": {},
    "global-strict-fairness-policy": {},
    "inflight-load-producer": {
        "addEstimatedOutputTokens": Parameter("bool", default=False),
        "maxEstimatedOutputTokens": Parameter("int", rule=_NOT_NEGATIVE),
        "prefixMatchInfoProducerName": _NAME,
        "syncCrossReplicaState": Parameter("bool", default=True),
    },
    "kv-cache-utilization-scorer": {},
    "latency-scorer": {
        "compositeKVWeight": Parameter("float", 1.0, _NOT_NEGATIVE),
        "compositePrefixWeight": Parameter("float", 1.0, _NOT_NEGATIVE),
        "compositeQueueWeight": Parameter("float", 1.0, _NOT_NEGATIVE),
        "headroomSelectionStrategy": Parameter("str", "least"),
        "latencyPredictionInfoProducerName": _NAME,
        "prefixMatchInfoProducerName": _NAME,
        "tpotWeight": Parameter("float", 0.2, _NOT_NEGATIVE),
        "ttftWeight": Parameter("float", 0.8, _NOT_NEGATIVE),
    },
    "load-aware-scorer": {"threshold": Parameter("int", 128, _POSITIVE_OR_DEFAULT)},
    "max-score-picker": _ENDPOINTS,
    "no-hit-lru-scorer": {
        "lruSize": Parameter("int", 1024),
        "prefixMatchInfoProducerName": _NAME,
        "prefixPluginName": _NAME,
        "prefixPluginType": _NAME,
    },
    "prefix-based-pd-decider": {
        "nonCachedTokens": Parameter("int", 0, _NOT_NEGATIVE),
        "prefixMatchInfoProducerName": _NAME,
        "promptTokens": Parameter("int", 0, _NOT_NEGATIVE),
    },
    "prefix-cache-affinity-filter": {
        "affinityThreshold": Parameter("float", 0.8, _UP_TO_1),
        "explorationProbability": Parameter("float", 0.0, _UP_TO_1),
        "inFlightLoadProducerName": _NAME,
        "latencyPredictionInfoProducerName": _NAME,
        "maxTTFTPenaltyMs": Parameter("float", 18_000.0),
        "peakPrefillThroughput": Parameter("float", 15_928.0),
        "prefixMatchInfoProducerName": _NAME,
        "ttftSource": Parameter(
            "str", "prefillThroughput", _one_of("prefillThroughput", "latencyPredictor")
        ),
    },
    "prefix-cache-scorer": {
        "matchLengthScaleTokens": Parameter("int", 8192),
        "matchLengthWeight": Parameter("float", 0.0, _SHARE),
        "prefixMatchInfoProducerName": _NAME,
    },
    "priority-holdback-policy": {
        "domain": Parameter("str", "rank", _one_of("rank", "value")),
        "maxCeiling": Parameter("float", 1.0, Rule(lambda v: 0 < v <= 1, "must be in (0, 1]")),
        "minCeiling": Parameter("float", None, Rule(lambda v: 0 <= v < 1, "must be in [0, 1)")),
        "shape": Parameter("str", "linear", _one_of("linear")),
    },
    "probabilistic-admitter": {
        "k": Parameter("float", 300.0, _POSITIVE),
        "kvCacheUtilThreshold": Parameter("float", 0.8, _POSITIVE),
        "power": Parameter("float", 5.0, _POSITIVE),
        "queueDepthThreshold": Parameter("float", 5.0, _POSITIVE),
    },
    "program-aware-fairness": {
        "evictionSweepSeconds": Parameter("float", 300.0, _POSITIVE),
        "evictionTtlSeconds": Parameter("float", 3600.0, _NOT_NEGATIVE),
        "lasDecayFactor": Parameter(
            "float", 0.99997, Rule(lambda v: 0 < v <= 1, "must be in (0, 1]")
        ),
        "lasHalfLifeSeconds": Parameter("float", 60.0, _NOT_NEGATIVE),
        "lasWeightHeadWait": Parameter("float", 0.2, _NOT_NEGATIVE),
        "lasWeightService": Parameter("float", 0.8, _NOT_NEGATIVE),
        "strategy": Parameter("str", "las", _one_of("las")),
    },
    "queue-scorer": {},
    "random-picker": _ENDPOINTS,
    "round-robin-fairness-policy": {},
    "running-requests-size-scorer": {},
    "single-profile-handler": {},
    "slo-deadline-ordering-policy": {},
    "slo-headroom-tier-filter": {
        "epsilonExploreNeg": Parameter("float", 0.01, _SHARE),
        "latencyPredictionInfoProducerName": _NAME,
    },
    "soft-reflective-ceiling-policy": {},
    "static-usage-limit-policy": {"threshold": Parameter("float", 1.0)},
    "token-load-scorer": {
        "inFlightLoadProducerName": _NAME,
        "queueThresholdTokens": Parameter("int", 4_194_304, _POSITIVE_OR_DEFAULT),
    },
    "utilization-detector": {
        "headroom": Parameter("float", 0.0, _NOT_NEGATIVE),
        "inFlightLoadProducerName": _NAME,
        "kvCacheUtilThreshold": Parameter(
            "float", 0.8, Rule(lambda v: 0 < v <= 1, "must be in (0, 1]")
        ),
        "metricsStalenessThreshold": Parameter("duration", 0.2, _POSITIVE),
        "queueDepthThreshold": Parameter("int", 5, _POSITIVE),
    },
    "utilization-filter": {
        "conditions": Parameter("list", (), Rule(bool, "must have at least one condition")),
        "fallbackOnEmpty": Parameter("bool", default=False),
    },
    "weighted-random-picker": _ENDPOINTS,
}
"""By type, the parameters that it takes; no others, if there are any."""


@dataclass(frozen=True)
class Plugin:
    """A plugin of a configuration.

    `parameters`: those in force; of a type without parameters, those that the file states.
    `where`: its place, for messages.
    """

    name: str
    type: str
    parameters: Mapping[str, Any]
    where: str

    def changed(self) -> dict[str, Any]:
        """Those of its parameters that differ from the defaults."""
        known = PARAMETERS.get(self.type, {})
        return {
            name: value
            for name, value in self.parameters.items()
            if name not in known or value != known[name].default
        }


def plugin(kind: str, name: str, given: Any, where: str, *, is_strict: bool = True) -> Plugin:
    """The plugin that the router makes of a type and its parameters.

    `is_strict`: without it, types and parameters that the router does not know are kept.

    Raises ConfigError where the router refuses.
    """
    if kind not in TYPES and is_strict:
        allowed = "is not a type of plugin of llm-d 0.10"
        raise config_error([(f"{where}: type", repr(kind), allowed)])
    fields = Fields(f"{where}: parameters", {} if given is None else given)
    known = PARAMETERS.get(kind, {})
    if not known and kind != _WITHOUT:
        return Plugin(name, kind, dict(fields.values), where)
    unknown = [key for key in fields.values if key not in known]
    if unknown and is_strict:
        raise config_error([(f"{fields.where}: {key}", "", _unknown(kind, key)) for key in unknown])
    values = {key: _value(fields, key, parameter) for key, parameter in known.items()}
    if problem := _contradiction(kind, values):
        raise config_error([(fields.where, f"{dict(fields.values)!r:.60}", problem)])
    return Plugin(name, kind, values | {key: fields.values[key] for key in unknown}, where)


def _unknown(kind: str, key: str) -> str:
    """What is wrong with a parameter; in older versions some were those of the scorer."""
    is_moved = kind == "prefix-cache-scorer" and key in PARAMETERS[_PRODUCER]
    return f"is unknown to llm-d 0.10{f': it is one of {_PRODUCER}' if is_moved else ''}"


def _value(fields: Fields, key: str, parameter: Parameter) -> Any:
    value = fields.take(key, "str" if parameter.kind == "duration" else parameter.kind)
    if value is None and parameter.default != ():
        return parameter.default
    where = f"{fields.where}: {key}"
    if parameter.kind == "duration":
        value = duration_s(value, where)
    if parameter.rule.is_valid(value):
        return value
    if parameter.rule.or_default:
        return parameter.default
    raise config_error([(where, f"{fields.values.get(key)!r:.40}", parameter.rule.allowed)])


_METRICS = ("waiting-queue", "running-requests", "kv-cache-utilization", "active-requests")


def _contradiction(kind: str, values: Mapping[str, Any]) -> str | None:
    """What is wrong with parameters that are valid one by one."""
    if kind == "prefix-cache-affinity-filter":
        if values["ttftSource"] == "prefillThroughput" and values["peakPrefillThroughput"] <= 0:
            return "peakPrefillThroughput must be > 0 with ttftSource prefillThroughput"
    elif kind == "prefix-cache-scorer":
        if values["matchLengthWeight"] > 0 and values["matchLengthScaleTokens"] <= 0:
            return "matchLengthScaleTokens must be > 0 if matchLengthWeight is"
    elif kind == "priority-holdback-policy":
        if values["minCeiling"] is None:
            return "minCeiling is required"
        if values["minCeiling"] >= values["maxCeiling"]:
            return "minCeiling must be less than maxCeiling"
    elif kind == "utilization-filter":
        for condition in values["conditions"]:
            metric = condition.get("metric") if isinstance(condition, dict) else None
            most = condition.get("maxValue") if isinstance(condition, dict) else None
            is_number = isinstance(most, int | float) and not isinstance(most, bool)
            if metric not in _METRICS or not is_number:
                names = ", ".join(_METRICS)
                return (
                    f"the metric of a condition must be one of {names}, and its maxValue a number"
                )
    return None
