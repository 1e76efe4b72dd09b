"""The page of metrics: vLLM's names and labels by version, and values of the run."""

from __future__ import annotations

import asyncio
import random
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.live import TEXT, application, call, fleet, run

import spillway
from spillway import ConfigError, live, session

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.live.app import App

# What the wheel of vLLM 0.33 names, less what the guide says is missing.
GAUGES = {
    "num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason",
    "kv_cache_usage_perc", "engine_sleep_state", "cache_config_info",
}  # fmt: skip
COUNTERS = {
    "prompt_tokens", "generation_tokens", "prompt_tokens_cached", "prompt_tokens_by_source",
    "prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "request_success",
    "admission_rejections",
}  # fmt: skip
HISTOGRAMS = {
    "time_to_first_token_seconds", "inter_token_latency_seconds",
    "request_time_per_output_token_seconds", "e2e_request_latency_seconds",
    "request_queue_time_seconds", "request_inference_time_seconds",
    "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
    "request_generation_tokens", "request_max_num_generation_tokens", "request_params_max_tokens",
    "request_prefill_kv_computed_tokens", "request_params_n", "request_num_preemptions",
    "iteration_tokens_total",
}  # fmt: skip


async def page_of(app: App, port: int = 0) -> str:
    return (await call(app, "/metrics", port=port)).parts[0].decode()


def names(page: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, kind in re.findall(r"^# TYPE vllm:(\S+) (\S+)$", page, re.MULTILINE):
        found.setdefault(kind, set()).add(
            name.removesuffix("_total") if kind == "counter" else name
        )
    return found


def values(page: str, name: str) -> dict[tuple[str, ...], float]:
    """By the values of its labels but the model and the engine."""
    return {
        tuple(v for k, v in sample.labels.items() if k not in ("model_name", "engine")): (
            sample.value
        )
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == f"vllm:{name}"
    }


def test_the_names_are_those_of_the_newest_version() -> None:
    page = run(lambda: page_of(application()))
    assert names(page) == {"gauge": GAUGES, "counter": COUNTERS, "histogram": HISTOGRAMS}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if family.name.startswith("vllm:"):
                assert {"model_name", "engine"} <= sample.labels.keys(), sample


def test_a_type_is_stated_for_each_name_of_a_sample() -> None:
    """In the text format a counter's type names the sample, with `_total`; else it is untyped."""

    async def work() -> str:
        app = application()
        await call(app, "/v1/completions", {"prompt": TEXT}, headers={"x-return-error": "503"})
        await call(app, "/v1/completions", {"prompt": TEXT, "max_tokens": 5})
        return await page_of(app)

    page = run(work)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    samples = set(re.findall(r"^([\w:]+)\{", page, re.MULTILINE))
    of_histograms = {f"{name}_{part}" for name, kind in kinds.items() if kind == "histogram"
                     for part in ("bucket", "sum", "count")}  # fmt: skip
    assert samples - of_histograms <= kinds.keys()
    totals = {name for name in samples if name.endswith("_total")} - {"vllm:iteration_tokens_total"}
    assert totals == {name for name in totals if kinds[name] == "counter"}
    assert {"vllm:request_success_total", "spillway_requests_total"} <= totals


@pytest.mark.parametrize(
    ("version", "more", "fewer"),
    [
        ("0.33", set(), set()),
        ("0.12.0", set(), set()),
        ("0.11", {"time_per_output_token_seconds"}, set()),
        (
            "0.10.1",
            {
                "time_per_output_token_seconds", "gpu_cache_usage_perc",
                "gpu_prefix_cache_queries", "gpu_prefix_cache_hits",
            },
            {"inter_token_latency_seconds"},
        ),
    ],
)  # fmt: skip
def test_older_versions_have_older_names(version: str, more: set[str], fewer: set[str]) -> None:
    async def work() -> tuple[str, Any]:
        app = application(fleet(1), vllm_version=version)
        await call(app, "/v1/completions", {"prompt": TEXT, "max_tokens": 5, "ignore_eos": True})
        return await page_of(app), (await call(app, "/version")).json

    page, version_stated = run(work)
    assert version_stated == {"version": version}
    assert set().union(*names(page).values()) == (GAUGES | COUNTERS | HISTOGRAMS | more) - fewer
    for name in more & {"time_per_output_token_seconds"}:
        assert sum(values(page, f"{name}_count").values()) == 4


@pytest.mark.parametrize("version", ["0.9", "0.34", "1.0", "0", "", "0.33.0rc1", "0.1e1"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=r"vllm_version = .*must be from 0\.10 to 0\.33"):
        live.serve(fleet(), vllm_version=version)


@pytest.mark.parametrize("speed", [0, 20])
def test_sums_are_those_of_the_record(speed: float, tmp_path: Path) -> None:
    """Random requests, some of which leave: counts exactly, times to rounding."""

    async def work() -> tuple[App, str]:
        record = tmp_path / "live.yaml"
        caching = {"instances[0].kv_cache.prefix_caching": True}
        app = application(fleet(1, **caching), mode="servers", speed=speed, record=record)
        rng = random.Random(7)
        calls = []
        for i in range(40):
            leave = asyncio.Event()
            asked = {"prompt": TEXT[: rng.randint(1, 250)], "max_tokens": rng.randint(1, 30),
                     "ignore_eos": True, "stream": bool(i % 2)}  # fmt: skip
            calls.append(asyncio.ensure_future(call(app, "/v1/completions", asked, leave=leave)))
            await asyncio.sleep(rng.expovariate(300))
            if i % 9 == 3:
                leave.set()
        await asyncio.gather(*calls)
        return app, await page_of(app)

    app, page = run(work)
    app.fleet.close()
    rows = spillway.simulate(session.recorded(tmp_path / "live.yaml.jsonl"), 1).requests
    done = rows["outcome"] == "completed"
    assert 30 <= done.sum() <= 40

    def histogram(name: str) -> tuple[float, float]:
        (total,), (count,) = (values(page, f"{name}_{part}").values() for part in ("sum", "count"))
        return total, count

    # The record's queue_s ends when the request is dispatched; here nothing waits before.
    for name, column in (
        ("e2e_request_latency_seconds", rows["e2e_s"][done]),
        ("request_decode_time_seconds", (rows["e2e_s"] - rows["ttft_s"])[done]),
        ("request_prompt_tokens", rows["input_tokens"][done]),
        ("request_generation_tokens", rows["output_tokens"][done]),
        ("request_max_num_generation_tokens", rows["output_tokens"][done]),
        ("request_params_n", np.ones(done.sum())),
    ):
        total, count = histogram(name)
        assert count == done.sum(), name
        assert total == pytest.approx(float(column.sum()), abs=1e-6), name
    inference, queue, prefill, decode, e2e = (
        histogram(f"request_{part}_time_seconds")[0] if part else histogram(
            "e2e_request_latency_seconds")[0]
        for part in ("inference", "queue", "prefill", "decode", "")
    )  # fmt: skip
    assert queue + inference == pytest.approx(e2e)
    assert prefill + decode == pytest.approx(inference)
    assert prefill > 0
    # Tokens between the first and the last of a completed request, at least.
    total, count = histogram("inter_token_latency_seconds")
    assert count >= (rows["output_tokens"][done] - 1).sum()
    spread = float((rows["e2e_s"] - rows["ttft_s"])[done].sum())
    assert spread <= total * (1 + 1e-9) <= spread * 1.5
    by_source = values(page, "prompt_tokens_by_source_total")
    (cached,) = values(page, "prompt_tokens_cached_total").values()
    (prompts,) = values(page, "prompt_tokens_total").values()
    assert 0 < cached < prompts
    assert by_source == {
        ("local_compute",): prompts - cached,
        ("local_cache_hit",): cached,
        ("external_kv_transfer",): 0,
    }
    ended = values(page, "request_success_total")
    assert set(ended) == {("stop",), ("length",), ("abort",), ("error",), ("repetition",)}
    assert ended["length",] == done.sum()
    assert ended["abort",] == len(done) - done.sum()


def test_intervals_between_tokens_are_the_steps_of_the_server() -> None:
    """At speed 0, where each step is seen by itself: alone, every decode step is about as long."""

    async def work() -> str:
        app = application(fleet(1))
        await call(app, "/v1/completions", {"prompt": TEXT, "max_tokens": 200, "ignore_eos": True})
        return await page_of(app)

    page = run(work)
    (total,) = values(page, "inter_token_latency_seconds_sum").values()
    counts = values(page, "inter_token_latency_seconds_bucket")
    upper = {float(bound): count for (bound,), count in counts.items()}
    assert upper[float("inf")] == 199
    mean_s = total / 199
    assert upper[min(bound for bound in upper if bound >= 1.2 * mean_s)] == 199


def test_a_request_that_leaves_the_queue_of_the_gateway_is_of_no_engine() -> None:
    async def work() -> str:
        slow = fleet(1, **{"gateway.limit[0].max_in_flight": 1})
        app = application(slow, speed=1)
        asked = {"prompt": TEXT, "max_tokens": 300, "ignore_eos": True, "stream": True}
        leave, began = asyncio.Event(), asyncio.Event()
        first = asyncio.ensure_future(
            call(app, "/v1/completions", asked, seen=lambda _: began.set())
        )
        await began.wait()
        second = asyncio.ensure_future(call(app, "/v1/completions", asked, leave=leave))
        await asyncio.sleep(0.02)
        leave.set()
        await second
        await first
        return await page_of(app)

    page = run(work)
    ended = values(page, "request_success_total")
    assert ended["abort",] == 0
    assert ended["length",] == 1
    assert 'outcome="cancelled"} 1' in page


@pytest.mark.parametrize("mode", ["fleet", "servers"])
def test_the_tokens_of_all_steps_are_those_of_prompts_and_outputs(mode: str) -> None:
    """At speed 0 each step is looked at by itself, so the histogram has every one as it was."""

    async def work() -> None:
        app = application(fleet(2), mode=mode)
        asked = {"prompt": TEXT, "max_tokens": 30, "ignore_eos": True}
        await asyncio.gather(
            *(call(app, "/v1/completions", asked, port=port) for port in (0, 0, 0, 1, 1))
        )
        seen = app.fleet.observe()["instances"]
        for port in (0, 1) if mode == "servers" else (0,):
            page = await page_of(app, port)
            family = next(
                found
                for found in text_string_to_metric_families(page)
                if found.name == "vllm:iteration_tokens_total"
            )
            assert family.type == "histogram"
            for engine in {sample.labels["engine"] for sample in family.samples}:
                of = {
                    (sample.name.rpartition("_")[2], sample.labels.get("le")): sample.value
                    for sample in family.samples
                    if sample.labels["engine"] == engine
                }
                counted = seen[port if mode == "servers" else int(engine)]
                prompts = value_of(page, "vllm:prompt_tokens_total", engine)
                assert of["count", None] == counted["steps"]
                assert of["sum", None] == counted["tokens_emitted"] + prompts
                # All decode together, after the steps of their prompts.
                assert of["bucket", "1.0"] <= 2
                assert of["bucket", "8.0"] >= 28
                assert [le for part, le in of if part == "bucket"] == [
                    "1.0", "8.0", "16.0", "32.0", "64.0", "128.0", "256.0", "512.0", "1024.0",
                    "2048.0", "4096.0", "8192.0", "16384.0", "+Inf",
                ]  # fmt: skip

    run(work)


def value_of(page: str, name: str, engine: str) -> float:
    (found,) = (
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name and sample.labels["engine"] == engine
    )
    return found
