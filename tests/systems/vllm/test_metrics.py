"""Metrics of vLLM."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from support.recordings import FILES, values

from spillway.data.recording import ServerFacts
from spillway.files.recordings import TraceError, read_histograms

if TYPE_CHECKING:
    from pathlib import Path


def test_histograms(tmp_path: Path) -> None:
    (found,) = read_histograms(FILES / "metrics.prom")
    assert set(found.histograms) == {"ttft_s", "step_tokens"}
    assert values(found.histograms["ttft_s"].upper) == [0.05, 0.1, 0.25, math.inf]
    assert values(found.histograms["ttft_s"].cumulative) == [0, 3, 4, 4]
    assert found.histograms["ttft_s"].mean == pytest.approx(0.09)
    assert found.gauges == {"running": 3, "waiting": 1, "kv_usage": 0.0125}
    assert found.counters == {
        "prefix_cache_queries": 4000,
        "prefix_cache_hits": 1000,
        "preemptions": 0,
    }
    assert found.prefix_hit_rate == 0.25
    assert found.server == ServerFacts(model="Qwen/Qwen3-14B", engine="vllm")
    text = (FILES / "metrics.prom").read_text()
    path = tmp_path / "metrics"
    path.write_text(text + text.replace('engine="0"', 'engine="1"').replace("} 3.0", "} 2.0"))
    first, second = read_histograms(path)
    assert (first.name, second.name) == ("0", "1")
    assert second.gauges["running"] == 2
    for old, new, message in (
        ('le="0.1"', 'le="x"', "le = 'x': must be a number"),
        ('le="0.25"', 'le="0.1"', r"le = 0\.1: twice; it is also on line 20"),
        (
            '0.1",model_name="Qwen/Qwen3-14B"} 3.0',
            '0.1",model_name=""} 3.5',
            "line 20, .* = 3.5: must be a wh",
        ),
        ('"} 0.36', '"} x', "line 24: not a sample"),
        ('engine="0"', "engine=0", "line 3: not a sample"),
        ("_seconds_sum", "_seconds_total", "vllm:time_to_first_token_seconds_sum: missing"),
        (
            '0.25",model_name="Qwen/Qwen3-14B"} 4.0',
            '0.25",model_name="Qwen/Qwen3-14B"} 2.0',
            "decr",
        ),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(TraceError, match=message):
            read_histograms(path)


def test_old_names_of_metrics(tmp_path: Path) -> None:
    """Versions of vLLM that report a metric under two names count it once."""

    def samples(metric: str, value: int) -> str:
        return (
            f'{metric}_bucket{{le="0.1",model_name="m"}} {value}\n'
            f'{metric}_bucket{{le="+Inf",model_name="m"}} {value}\n'
            f'{metric}_sum{{model_name="m"}} 1\n'
        )

    old = samples("vllm:time_per_output_token_seconds", 3) + (
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n'
        'vllm:gpu_prefix_cache_hits_total{model_name="m"} 2\n'
        'vllm:gpu_prefix_cache_queries_total{model_name="m"} 8\n'
    )
    new = samples("vllm:inter_token_latency_seconds", 4) + (
        'vllm:kv_cache_usage_perc{model_name="m"} 0.25\n'
        'vllm:prefix_cache_hits_total{model_name="m"} 3\n'
        'vllm:prefix_cache_queries_total{model_name="m"} 4\n'
    )
    path = tmp_path / "metrics"
    for text, count, usage, rate in ((old, 3, 0.5, 0.25), (old + new, 4, 0.25, 0.75)):
        path.write_text(text)
        (found,) = read_histograms(path)
        assert found.histograms["itl_s"].count == count
        assert found.gauges["kv_usage"] == usage
        assert found.prefix_hit_rate == rate
        assert found.name == "engine"
