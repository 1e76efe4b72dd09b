"""Agreement with llm-d's own loader: acceptances, refusals and values in force, as recorded.

The recordings are of llm-d-router @ ebab6879.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
from support.deployments import written
from support.paths import vectors

from spillway import ConfigError
from spillway.files.deployments import import_
from spillway.systems.llm_d.configuration import Configuration, load
from spillway.systems.llm_d.plugins import PARAMETERS, TYPES, Plugin, duration_s, plugin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = vectors("llm_d/defaults.config")
PLUGINS = [record for record in vectors("llm_d/defaults.plugin") if "type" in record]
pytestmark = pytest.mark.skipif(not FILES, reason="needs the recordings of llm-d")

# Names of values that the router derives, or keeps for itself.
INTERNAL = {"name", "typename", "cost", "stopped", "sema", "v", "cleanupinterval",
            "stalenessthreshold"}  # fmt: skip
RENAMED = {
    "cmax": "maxceiling",
    "cmin": "minceiling",
    "mode": "concurrencymode",
}


def in_force(found: Plugin) -> dict[str, Any]:
    return {name.lower(): value for name, value in found.parameters.items()}


def compare(found: Plugin, effective: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, our value and the recorded value, of each recorded one."""
    ours = in_force(found)
    for path, value in effective.items():
        name = path.rpartition(".")[2].lower()
        name = RENAMED.get(name, name)
        if found.type == "load-aware-scorer" and name == "queuethreshold":
            name = "threshold"
        if name in INTERNAL or found.type not in PARAMETERS:
            continue
        is_duration = name == "metricsstalenessthreshold"
        yield name, ours[name], duration_s(value, name) if is_duration else value


@pytest.mark.parametrize("record", PLUGINS, ids=lambda record: f"{record['id']}-{record['type']}")
def test_a_plugin_has_the_recorded_values_or_is_refused(record: dict[str, Any]) -> None:
    try:
        found = plugin(record["type"], "x", record["parameters"], "x")
    except ConfigError:
        assert "error" in record
    else:
        assert "error" not in record
        for name, ours, theirs in compare(found, record["effective"]):
            assert ours == theirs, name


def test_every_registered_type_is_known() -> None:
    for record in vectors("llm_d/defaults.plugin"):
        if "registered_plugin_types" in record:
            assert set(record["registered_plugin_types"]) == TYPES


def ceilings(limit: Plugin, priorities: tuple[int, ...], saturation: float) -> list[float]:
    """The ceilings of bands, highest priority first, at the first attempt."""
    if limit.type == "static-usage-limit-policy":
        return [limit.parameters["threshold"]] * len(priorities)
    last = len(priorities) - 1
    if limit.type == "soft-reflective-ceiling-policy":  # open or closed
        return [float(saturation < 1 - saturation * i / last) for i in range(last + 1)]
    low, high = limit.parameters["minCeiling"], limit.parameters["maxCeiling"]
    if limit.parameters["domain"] == "rank":
        return [high - i * (high - low) / last for i in range(last + 1)]
    span = priorities[0] - priorities[-1]
    return [low + (each - priorities[-1]) / span * (high - low) for each in priorities]


def same_detector(found: Configuration, record: dict[str, Any]) -> None:
    assert found.detector.type == record["saturation_detector"]["type"]
    for name, ours, theirs in compare(found.detector, record["saturation_detector"]["effective"]):
        assert ours == theirs, name


def same_profiles(found: Configuration, record: dict[str, Any]) -> None:
    """The order of plugins in a profile says nothing: the router keeps them by role."""
    ours = {
        profile.name: sorted(
            (entry.plugin.name, -1.0 if entry.weight is None else entry.weight)
            for entry in profile.entries
        )
        for profile in found.profiles
    }
    theirs = {
        profile["name"]: sorted(
            (entry["ref"], float(entry.get("weight", -1))) for entry in profile["plugins"]
        )
        for profile in record["profiles_effective"]
    }
    assert ours == theirs


def same_flow_control(found: Configuration, record: dict[str, Any]) -> None:
    flow = found.flow_control
    if "flow_control" not in record:
        assert flow is None
        return
    assert flow is not None
    controller = record["flow_control"]["controller"]
    assert flow.default_ttl_s == duration_s(controller["DefaultRequestTTL"], "")
    assert flow.no_endpoint_ttl_s == duration_s(controller["NoEndpointRequestTTL"], "")
    assert flow.enable_eviction == controller["EnableEviction"]
    assert flow.max_requests == record["flow_control"]["max_requests"]
    assert flow.max_bytes == record["flow_control"]["max_bytes"]
    ours = {
        key: {
            "fairness": band.fairness.type,
            "max_bytes": band.max_bytes,
            "max_requests": band.max_requests,
            "ordering": band.ordering.type,
            "priority": band.priority,
        }
        for key, band in [
            *((str(band.priority), band) for band in flow.bands),
            ("default", flow.default),
        ]
    }
    assert ours == record["bands"]
    assert ceilings(flow.usage_limit, (10, 0, -5), 0.6) == pytest.approx(
        record["ceilings_10_0_-5_at_0.6"]
    )


@functools.cache
def loaded(text: str) -> Configuration | None:
    try:
        return load(text, "epp.yaml")
    except ConfigError:
        return None


@pytest.mark.parametrize("record", FILES, ids=lambda record: record["name"])
def test_a_file_is_in_force_as_recorded_or_refused(record: dict[str, Any]) -> None:
    found = loaded(record["file"])
    if "error" in record:
        assert found is None
        return
    assert found is not None
    assert dict(found.gates) == record["gates"]
    same_detector(found, record)
    same_profiles(found, record)
    same_flow_control(found, record)


@pytest.mark.parametrize("record", FILES, ids=lambda record: record["name"])
def test_the_simulation_is_that_of_the_recorded_values(
    record: dict[str, Any], tmp_path: Path
) -> None:
    """Detector, bands, times to live and bounds of the imported simulation."""
    path = next(iter(written(tmp_path, epp__yaml=record["file"])))
    if "error" in record:
        with pytest.raises(ConfigError):
            import_(path, system="llm-d")
        return
    simulation = import_(path, system="llm-d").simulation
    gateway = simulation.gateway
    effective = record["saturation_detector"]["effective"]
    rule: Any = gateway.limit[0] if "flow_control" in record else gateway.admission[0]
    if record["saturation_detector"]["type"] == "concurrency-detector":
        assert (rule.detector, rule.max_concurrency) == (
            "concurrency",
            effective["config.maxConcurrency"],
        )
    else:
        assert (rule.detector, rule.queue_depth_threshold, rule.kv_utilization_threshold) == (
            "utilization",
            effective["config.QueueDepthThreshold"],
            effective["config.KVCacheUtilThreshold"],
        )
    if "flow_control" not in record:
        return
    flow = record["flow_control"]
    assert (gateway.max_queued or 0) == flow["max_requests"]
    timeout_s = duration_s(flow["controller"]["DefaultRequestTTL"], "") or None
    assert {band.queue.timeout_s for band in gateway.bands} == {timeout_s}
    priorities = {known.priority for known in simulation.slo_classes}
    bands = {int(key): value for key, value in record["bands"].items() if key != "default"}
    others = dict.fromkeys(priorities - bands.keys(), record["bands"]["default"])
    assert {band.priority: band.max_requests for band in gateway.bands} == {
        priority: band["max_requests"] for priority, band in (bands | others).items()
    }
