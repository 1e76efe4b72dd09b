"""Results as files of AIPerf and of llm-d-benchmark."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml
from support.paths import DATA

from spillway import Result, Simulation, UsageError, cli, instance, metrics, simulate, trace
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOLDEN = DATA / "results"


def run(**changes: Any) -> Result:
    """Sixty requests to one slow instance, of which the bucket refuses some."""
    no_time = dict.fromkeys((field.name for field in dataclasses.fields(instance.Linear)), 0)
    step_time = {"beta0_us": 5000, "beta_prefill_us": 100, "beta_decode_us": 100}
    latency = instance.Linear(**no_time | step_time)
    settings: dict[str, Any] = {
        "workload": trace(
            arrival_s=[0.02 * at for at in range(60)],
            input_tokens=[50 + at * 37 % 101 for at in range(60)],
            output_tokens=[1 + at * 5 % 9 for at in range(60)],
        ),
        "instances": BLIS_SERVER.replace(latency=latency, num_kv_blocks=1000),
        "gateway": {
            "admission": {
                "kind": "token_bucket",
                "refill_tokens_per_s": 3000,
                "capacity_tokens": 1000,
            }
        },
    }
    return simulate(Simulation(**(settings | changes)), seed=3)


@pytest.fixture(scope="module")
def result() -> Result:
    return run()


def masked(found: dict[str, Any]) -> dict[str, Any]:
    """Without what a new setting or version changes."""
    found = json.loads(json.dumps(found))
    for key in ("benchmark_id", "spillway_version"):
        found.pop(key, None)
    found.get("run_info", {}).pop("benchmark_id", None)
    if "scenario" in found:
        found["run"].pop("uid")
        (component,) = found["scenario"]["stack"]
        load = found["scenario"]["load"]
        for part in (component, load):
            part["metadata"].pop("cfg_id")
            part["native"].pop("config")
            part["standardized"].pop("tool_version")
    return found


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from leaves(below, f"{path}.{key}")
    elif isinstance(value, list):
        for at, below in enumerate(value):
            yield from leaves(below, f"{path}[{at}]")
    else:
        yield path, value


@pytest.mark.parametrize("name", ["aiperf", "benchmark_report"])
def test_the_files_are_as_before(result: Result, name: str, tmp_path: Path) -> None:
    result.write(tmp_path, requests=name)
    files = {
        "aiperf": "profile_export_aiperf.json",
        "benchmark_report": "benchmark_report_v0.2.yaml",
    }
    text = (tmp_path / files[name]).read_text()
    found = masked(yaml.safe_load(text))
    assert found == masked(getattr(result, name)())
    golden = GOLDEN / files[name]
    if os.environ.get("SPILLWAY_WRITE_GOLDEN"):
        dumped = (
            yaml.safe_dump(found) if name == "benchmark_report" else json.dumps(found, indent=2)
        )
        golden.write_text(dumped.rstrip() + "\n")
    expected = dict(leaves(yaml.safe_load(golden.read_text())))
    actual = dict(leaves(found))
    assert actual.keys() == expected.keys()
    for path, value in expected.items():
        assert actual[path] == (
            pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
        ), path


def test_figures_are_those_of_the_run(result: Result) -> None:
    requests = result.requests
    done = requests["outcome"] == "completed"
    assert 0 < done.sum() < 60
    report, profile = result.benchmark_report(), result.aiperf()
    aggregate = report["results"]["request_performance"]["aggregate"]
    count = aggregate["requests"]
    assert (count["total"], count["failures"], count["incomplete"]) == (60, (~done).sum(), 0)
    assert report["results"]["observability"]["drop_rate"]["mean"] == (~done).mean()
    ttft, tpot = requests["ttft_s"][done], requests["tpot_s"][done]
    latency = aggregate["latency"]
    assert latency["time_to_first_token"]["p99"] == pytest.approx(np.percentile(ttft, 99))
    assert latency["time_per_output_token"]["mean"] == pytest.approx(np.nanmean(tpot))
    per_token = requests["e2e_s"][done] / requests["output_tokens"][done]
    assert latency["normalized_time_per_output_token"]["max"] == pytest.approx(per_token.max())
    assert profile["time_to_first_token"]["p99"] == pytest.approx(np.percentile(ttft, 99) * 1e3)
    assert profile["inter_token_latency"]["avg"] == pytest.approx(np.nanmean(tpot) * 1e3)
    assert profile["request_latency"]["count"] == profile["request_count"]["avg"] == done.sum()
    assert profile["error_request_count"]["avg"] == (~done).sum()
    rate = aggregate["throughput"]["request_rate"]["mean"]
    assert (
        profile["request_throughput"]["avg"]
        == rate
        == pytest.approx(done.sum() / profile["benchmark_duration"]["avg"])
    )
    bench = result.vllm_bench()
    assert profile["output_token_throughput"]["avg"] == pytest.approx(bench["output_throughput"])
    assert profile["total_osl"]["avg"] == bench["total_output_tokens"]


STATISTICS = {"units", "mean", "mode", "stddev", "min", "max"} | {
    f"p{percent}" for percent in ("0p1", "1", "5", "10", "25", "50", "75", "90", "95", "99", "99p9")
}
UNITS = {
    "input_length": "count",
    "output_length": "count",
    "time_to_first_token": "s",
    "normalized_time_per_output_token": "s/token",
    "time_per_output_token": "s/token",
    "request_latency": "s",
    "input_token_rate": "tokens/s",
    "output_token_rate": "tokens/s",
    "total_token_rate": "tokens/s",
    "request_rate": "queries/s",
}


def test_the_report_has_only_fields_of_its_schema(result: Result) -> None:
    """The schema forbids others; these are those of llm-d-benchmark's schema_v0_2.py."""
    report = result.benchmark_report()
    assert report.keys() == {"version", "run", "scenario", "results"}
    assert report["run"].keys() <= {"uid", "eid", "cid", "pid", "time", "user", "description"}
    (component,) = report["scenario"]["stack"]
    assert component.keys() == {"metadata", "standardized", "native"}
    assert component["standardized"]["kind"] == "generic"
    load = report["scenario"]["load"]
    assert load.keys() == {"metadata", "standardized", "native"}
    known = {"tool", "tool_version", "source", "input_seq_len", "output_seq_len", "rate_qps"}
    assert load["standardized"].keys() <= known
    for name in ("input_seq_len", "output_seq_len"):
        assert load["standardized"][name].keys() <= {"distribution", "value", "min", "max"}
    aggregate = report["results"]["request_performance"]["aggregate"]
    assert aggregate.keys() == {"requests", "latency", "throughput"}
    found = {
        name: figure
        for group in aggregate.values()
        for name, figure in group.items()
        if isinstance(figure, dict)
    }
    assert {name: figure["units"] for name, figure in found.items()} == UNITS
    assert all(figure.keys() <= STATISTICS for figure in found.values())


def test_runs_without_completed_requests() -> None:
    refused = run(gateway={"admission": "reject_all"})
    report, profile = refused.benchmark_report(), refused.aiperf()
    aggregate = report["results"]["request_performance"]["aggregate"]
    assert aggregate["requests"] == {"total": 60, "failures": 60, "incomplete": 0}
    assert aggregate["latency"] == {}
    assert aggregate["throughput"]["request_rate"]["mean"] == 0
    assert "request_latency" not in profile
    for found in (report, profile):
        json.dumps(found, allow_nan=False)
    streamed = run(metrics=metrics.Metrics(streaming=True))
    for method in (streamed.aiperf, streamed.benchmark_report):
        with pytest.raises(UsageError, match="were not kept"):
            method()


def test_the_command(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("schema: 1\nworkload: {kind: synthetic, num_requests: 20}\n")
    command = ["run", str(config), "--out", str(tmp_path / "out"), "--out-format"]
    for name, file in (
        ("aiperf", "profile_export_aiperf.json"),
        ("benchmark_report", "benchmark_report_v0.2.yaml"),
    ):
        assert cli.main([*command, name]) == 0
        assert (tmp_path / "out" / file).exists()
