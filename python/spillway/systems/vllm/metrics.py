"""Metrics of vLLM in the text format of Prometheus."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import numpy as np

from spillway._core.sim import ConfigError
from spillway.config.formatting import quoted
from spillway.data.recording import Histogram, LatencyHistograms
from spillway.files.error import TraceError, in_a_line
from spillway.files.format import Format
from spillway.files.recordings.server import vllm_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


_SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+([-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|Inf|NaN))"
    r"(?:\s+-?[0-9]+)?\s*"
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"\s*(?:,|$)')

_MOST = 2**53  # of observations; a float counts no further

# Name here → metrics of vLLM, the preferred one first. Some versions report an older name too.
_HISTOGRAMS: Mapping[str, tuple[str, ...]] = {
    "ttft_s": ("vllm:time_to_first_token_seconds",),
    "itl_s": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "e2e_s": ("vllm:e2e_request_latency_seconds",),
    "queue_s": ("vllm:request_queue_time_seconds",),
    "prefill_s": ("vllm:request_prefill_time_seconds",),
    "decode_s": ("vllm:request_decode_time_seconds",),
    "step_tokens": ("vllm:iteration_tokens_total",),
}
_GAUGES: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
}
_COUNTERS: Mapping[str, tuple[str, ...]] = {
    "prefix_cache_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "prefix_cache_queries": (
        "vllm:prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries_total",
    ),
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "generation_tokens": ("vllm:generation_tokens_total",),
    "preemptions": ("vllm:num_preemptions_total",),
}
_HISTOGRAM_METRICS = frozenset(itertools.chain(*_HISTOGRAMS.values()))
_VALUE_METRICS = frozenset(itertools.chain(*_GAUGES.values(), *_COUNTERS.values()))


class _Engine:
    """The samples of one engine, by metric."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[float, tuple[float, int]]] = {}
        self.sums: dict[str, float] = {}
        self.values: dict[str, float] = {}

    def chosen(self, names: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
        """Return the values of the preferred metrics that the engine reports."""
        found = {
            name: next((metric for metric in metrics if metric in self.values), None)
            for name, metrics in names.items()
        }
        return {name: self.values[metric] for name, metric in found.items() if metric}


def _detect(source: Source) -> bool:
    return any(
        f"{metric}_bucket{{" in source.text or f"{metric}_bucket {{" in source.text
        for metric in _HISTOGRAM_METRICS
    )


def _read(source: Source, _settings: Settings) -> list[LatencyHistograms]:
    """`late.since(early)` gives the observations between two scrapes."""
    engines: dict[tuple[str, str], _Engine] = {}
    for number, line in enumerate(source.text.splitlines(), start=1):
        if not line.startswith("vllm:"):
            continue
        found = _SAMPLE.fullmatch(line)
        labels = _labels(found[2] or "") if found else None
        if not found or labels is None:
            raise TraceError(f"{source.path} line {number}: not a sample: {quoted(line)}")
        key = labels.get("model_name", ""), labels.get("engine", "")
        # A metric that is not read makes no engine.
        engine = engines.get(key, _Engine())
        if _add(source, number, engine, found[1], labels, float(found[3])):
            engines[key] = engine
    read = [
        _histograms(source, model, name, engine)
        for (model, name), engine in sorted(engines.items())
        if engine.buckets
    ]
    if not read:
        raise TraceError(f"{source.path}: holds no histograms of vLLM ({FORMAT.doc})")
    return read


def _add(  # noqa: PLR0917
    source: Source,
    number: int,
    engine: _Engine,
    metric: str,
    labels: Mapping[str, str],
    value: float,
) -> bool:
    """Add a sample; whether its metric is read."""
    if metric in _VALUE_METRICS:
        engine.values[metric] = engine.values.get(metric, 0.0) + value
    elif (name := metric.removesuffix("_sum")) in _HISTOGRAM_METRICS:
        engine.sums[name] = engine.sums.get(name, 0.0) + value
    elif (name := metric.removesuffix("_bucket")) in _HISTOGRAM_METRICS:
        place = f"{source.path} line {number}"
        try:
            upper = float(labels["le"])
        except (KeyError, ValueError) as error:
            shown = f"{labels.get('le', '')!r:.40}"
            raise TraceError(f"{place}, {metric}, le = {shown}: must be a number") from error
        if not (0 <= value <= _MOST and value % 1 == 0):
            allowed = f"must be a whole number >= 0 and <= {_MOST}"
            raise TraceError(f"{place}, {metric} = {value!r}: {allowed}")
        buckets = engine.buckets.setdefault(name, {})
        if upper in buckets:
            first = buckets[upper][1]
            raise TraceError(f"{place}, {metric}, le = {upper}: twice; it is also on line {first}")
        buckets[upper] = value, number
    else:
        return False
    return True


def _histograms(source: Source, model: str, name: str, engine: _Engine) -> LatencyHistograms:
    histograms = {}
    for short, metrics in _HISTOGRAMS.items():
        metric = next((metric for metric in metrics if metric in engine.buckets), None)
        if metric is None:
            continue
        buckets = engine.buckets[metric]
        uppers = sorted(buckets)
        if metric not in engine.sums:
            source.refuse_missing(f"{metric}_sum")
        try:
            histograms[short] = Histogram(
                np.array(uppers),
                np.array([buckets[upper][0] for upper in uppers]).astype(np.int64),
                engine.sums[metric],
            )
        except ConfigError as error:
            line = buckets[uppers[-1]][1]
            raise TraceError(f"{source.path} line {line}, {metric}: {in_a_line(error)}") from error
    return LatencyHistograms(
        name=name or "engine",
        server=vllm_facts(str(source.path), {"model": model or None}),
        histograms=histograms,
        gauges=engine.chosen(_GAUGES),
        counters=engine.chosen(_COUNTERS),
    )


def _labels(text: str) -> dict[str, str] | None:
    """Return the labels of a sample; None if they are malformed."""
    labels, at = {}, 0
    while at < len(text.rstrip()):
        found = _LABEL.match(text, at)
        if not found:
            return None
        labels[found[1]] = found[2]
        at = found.end()
    return labels


FORMAT = Format(
    name="prometheus",
    doc="the page /metrics of vLLM, in the text format of Prometheus, one result per engine",
    gives=("histograms",),
    detect=_detect,
    read=_read,
)
