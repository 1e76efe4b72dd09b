"""llm-d: the settings that stand for the parameters of its scorers, filters and detectors.

What a parameter means, and its default, is in `plugins`; here are its names in a simulation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from spillway._core.router import Weighted

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCORERS: Mapping[str, Mapping[str, str]] = {
    "active_requests": {"idleThreshold": "idle_threshold", "maxBusyScore": "max_busy_score"},
    "load_aware": {"threshold": "threshold"},
    "no_hit_lru": {"lruSize": "memory"},
    "predicted_latency": {
        "ttftWeight": "ttft_weight",
        "tpotWeight": "tpot_weight",
        "headroomSelectionStrategy": "strategy",
        "compositeKVWeight": "kv_weight",
        "compositeQueueWeight": "queue_weight",
        "compositePrefixWeight": "prefix_weight",
    },
    "prefix_affinity": {
        "matchLengthWeight": "match_length_weight",
        "matchLengthScaleTokens": "match_length_scale_tokens",
    },
    "token_load": {"queueThresholdTokens": "queue_threshold_tokens"},
}
_POSITIVE = ("memory", "match_length_scale_tokens")
_WHOLE = ("matchLengthScaleTokens", "queueThresholdTokens")
_STRATEGIES = ("least", "most")
_TOKENS = 1_000_000  # the default of maxTokenConcurrency
_TTFT_SOURCES = {"prefillThroughput": "prefill_throughput", "latencyPredictor": "predictor"}

AFFINITY = (
    "affinityThreshold",
    "explorationProbability",
    "maxTTFTPenaltyMs",
    "peakPrefillThroughput",
    "ttftSource",
)
"""The parameters of a prefix-cache-affinity-filter that are simulated."""


def default_scorer(kind: str) -> dict[str, Any]:
    """A scorer with its defaults."""
    given = {"kind": kind}
    return Weighted.from_dict({"kind": "weighted", "scorers": [given]}).to_dict()["scorers"][0]  # type: ignore[no-any-return]


def scorer_parameters(kind: str) -> tuple[str, ...]:
    """The parameters of the scorer of this kind that are simulated."""
    return tuple(_SCORERS.get(kind, ()))


def scorer(kind: str, values: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The settings of a scorer other than its weight."""
    found: dict[str, Any] = {}
    if kind == "precise_prefix_cache":
        found["scale"] = "range" if version == "0.8" else "prompt"
    for name, setting in _SCORERS.get(kind, {}).items():
        value = values.get(name)
        is_default = value is None or (setting in _POSITIVE and value <= 0)
        if not is_default and not (setting == "strategy" and value not in _STRATEGIES):
            found[setting] = value
    return found


def of_scorer(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a scorer that differ from the defaults."""
    return {
        name: round(settings[setting]) if name in _WHOLE else number(settings[setting])
        for name, setting in _SCORERS.get(settings["kind"], {}).items()
        if settings[setting] != defaults[setting]
    }


def number(value: Any) -> Any:
    """A whole number without its decimal point; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def affinity(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a prefix-cache-affinity-filter."""
    penalty_ms, peak = values["maxTTFTPenaltyMs"], values["peakPrefillThroughput"]
    return {
        "kind": "prefix_cache_affinity",
        "threshold": max(0.0, values["affinityThreshold"]),
        "exploration": max(0.0, values["explorationProbability"]),
        "max_ttft_penalty_s": penalty_ms / 1000 if penalty_ms > 0 else None,
        "ttft_source": _TTFT_SOURCES[values["ttftSource"]],
        **({"peak_prefill_tokens_per_s": peak} if peak > 0 else {}),
    }


def of_affinity(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a prefix-cache-affinity-filter."""
    penalty_s = settings["max_ttft_penalty_s"]
    names = {setting: name for name, setting in _TTFT_SOURCES.items()}
    return {
        "affinityThreshold": settings["threshold"],
        "explorationProbability": settings["exploration"],
        "maxTTFTPenaltyMs": 0 if penalty_s is None else number(penalty_s * 1000),
        "ttftSource": names[settings["ttft_source"]],
        "peakPrefillThroughput": number(settings["peak_prefill_tokens_per_s"]),
    }


_THRESHOLDS = {
    "active-requests": "max_in_flight",
    "running-requests": "max_running",
    "waiting-queue": "max_waiting",
    "kv-cache-utilization": "max_kv_utilization",
}
"""Metric of a condition of the utilization-filter → setting."""


def thresholds(values: Mapping[str, Any]) -> dict[str, Any]:
    """The filter of a utilization-filter."""
    falls_back = values["fallbackOnEmpty"]
    found: dict[str, Any] = {
        "kind": "thresholds",
        "if_none": "keep_all" if falls_back else "reject",
    }
    for condition in values["conditions"]:
        name, most = _THRESHOLDS[condition["metric"]], condition["maxValue"]
        most = most if name == "max_kv_utilization" else math.floor(most)
        found[name] = min(most, found.get(name, most))
    return found


def conditions(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conditions of a utilization-filter."""
    return [
        {"metric": metric, "maxValue": settings[name]}
        for metric, name in _THRESHOLDS.items()
        if settings[name] is not None
    ]


def concurrency(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a concurrency-detector, but for the headroom of its filter."""
    return {
        "max_concurrency": values["maxConcurrency"],
        "concurrency_mode": values["concurrencyMode"],
        "max_token_concurrency": values["maxTokenConcurrency"],
    }


def of_concurrency(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a concurrency-detector."""
    found: dict[str, Any] = {"maxConcurrency": max(1, round(settings["max_concurrency"]))}
    if settings["concurrency_mode"] != "requests":
        found["concurrencyMode"] = settings["concurrency_mode"]
    if (tokens := max(1, round(settings["max_token_concurrency"]))) != _TOKENS:
        found["maxTokenConcurrency"] = tokens
    return found
