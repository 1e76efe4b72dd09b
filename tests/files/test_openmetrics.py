"""The timeline as OpenMetrics text, parsed back."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import pytest

from spillway import ConfigError, Result, Simulation, UsageError, simulate

SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (\S+) (\d+\.\d{3})")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(
        Simulation(
            workload={
                "kind": "synthetic",
                "num_requests": 400,
                "requests_per_s": 80,
                "clients": [{"name": "a"}, {"name": "b", "tenant": 'the "other"\\one'}],
            },
            tenants=[{"name": "default"}, {"name": 'the "other"\\one'}],
            gateway={"limit": {"kind": "fixed", "max_in_flight": 16}},
            instances={"count": 2},
            metrics={"timeline_step_s": 0.5},
        )
    )


def parsed(text: str) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Name → labels → points; checks the order that OpenMetrics demands."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""]
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    family, kind, seen = "", "", set()
    for line in lines[:-2]:
        if line.startswith("# TYPE "):
            family, kind = line.split(" ")[2:]
            assert family not in seen
            seen.add(family)
        elif line.startswith("# HELP "):
            assert line.split(" ")[2] == family
        else:
            name, labels, value, at = SAMPLE.fullmatch(line).groups()  # type: ignore[union-attr]
            assert name == family + ("_total" if kind == "counter" else "")
            assert ",".join(f'{key}="{label}"' for key, label in LABEL.findall(labels)) == labels
            points = found[name][labels]
            assert not points or points[-1][0] < float(at)
            assert kind != "counter" or not points or points[-1][1] <= float(value)
            points.append((float(at), float(value)))
    return found


def test_every_value_reads_back(result: Result) -> None:
    timeline = result.timeline
    found = parsed(result.openmetrics(model="m", start_unix_s=1_800_000_000))
    expected = {
        "vllm:num_requests_running": timeline["running"],
        "vllm:num_requests_waiting": timeline["waiting"],
        "vllm:kv_cache_usage_perc": timeline["kv_utilization"],
        "vllm:generation_tokens_total": timeline["emitted_tokens"].sum(axis=1),
        "vllm:request_success_total": timeline["completed"].sum(axis=1),
        "llm_d_epp_average_queue_size": timeline["waiting"] / 2,
        "llm_d_epp_average_kv_cache_utilization": timeline["kv_utilization"],
        "llm_d_epp_request_running": timeline["in_flight"],
        "llm_d_epp_request_total": timeline["submitted"].sum(axis=1),
        "dynamo_frontend_inflight_requests": timeline["in_flight"] + timeline["queued"].sum(axis=1),
    }
    assert set(found) == {*expected, "llm_d_epp_flow_control_queue_size"}
    for name, values in expected.items():
        ((labels, points),) = found[name].items()
        assert ('="m"' in labels) == ("average" not in name)
        assert [value for _, value in points] == values.tolist()
        at_s = np.array([at for at, _ in points])
        assert at_s == pytest.approx(1_800_000_000 + timeline["time_s"], abs=1e-3)
    queued = found["llm_d_epp_flow_control_queue_size"]
    assert list(queued) == ['fairness_id="default"', r'fairness_id="the \"other\"\\one"']
    for tenant, points in zip(timeline.tenants, queued.values(), strict=True):
        assert [value for _, value in points] == timeline.of(tenant)["queued"].tolist()
        assert max(value for _, value in points) > 0


def test_systems_and_errors(result: Result) -> None:
    assert {name.partition(":")[0] for name in parsed(result.openmetrics(["vllm"]))} == {"vllm"}
    assert result.openmetrics([]) == "# EOF\n"
    with pytest.raises(ConfigError, match="systems = 'sglang': must be one of vllm, llm_d_epp, dy"):
        result.openmetrics(["sglang"])
    with pytest.raises(ConfigError, match="start_unix_s = -1: must be a finite number >= 0"):
        result.openmetrics(start_unix_s=-1)
    with pytest.raises(UsageError, match=r"metrics\.timeline_step_s"):
        simulate(Simulation()).openmetrics()


def test_an_independent_parser_reads_the_same(result: Result) -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    text = result.openmetrics(model='a "model"', start_unix_s=1_800_000_000)
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    timeline = result.timeline
    waiting = families["vllm:num_requests_waiting"]
    assert waiting.type == "gauge"
    assert [sample.value for sample in waiting.samples] == timeline["waiting"].tolist()
    assert {sample.labels["model_name"] for sample in waiting.samples} == {'a "model"'}
    at_s = [float(sample.timestamp) for sample in waiting.samples]
    assert at_s == pytest.approx(1_800_000_000 + timeline["time_s"], abs=1e-3)
    success = families["vllm:request_success"]
    assert success.type == "counter"
    assert {sample.name for sample in success.samples} == {"vllm:request_success_total"}
    completed = timeline["completed"].sum(axis=1)
    assert [sample.value for sample in success.samples] == completed.tolist()
    tenants = [
        sample.labels["fairness_id"]
        for sample in families["llm_d_epp_flow_control_queue_size"].samples
    ]
    assert sorted(set(tenants)) == ["default", 'the "other"\\one']
