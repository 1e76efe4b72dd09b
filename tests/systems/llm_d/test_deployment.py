"""The endpoint picker of llm-d."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.deployments import written

from spillway import gateway, router
from spillway.files.deployments import export, import_
from spillway.systems.llm_d import presets as llm_d

if TYPE_CHECKING:
    from pathlib import Path


def expressible(_name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    fairness = gateway.LeastAttainedService(service_weight=0.7, half_life_s=30)
    queue = gateway.Queue(timeout_s=20, ordering="slo_deadline")
    preset = llm_d.flow_control(
        detector="utilization",
        usage_limit=gateway.PriorityHoldback(min_ceiling=0.4),
        evicts_in_flight=True,
    )
    bands = [
        band.replace(
            fairness=gateway.TenantRoundRobin() if band.priority < 0 else fairness, queue=queue
        )
        for band in preset.gateway.bands
    ]
    limit = gateway.Saturation(queue_depth_threshold=8, kv_utilization_threshold=0.7)
    return {
        "gateway": preset.gateway.replace(
            admission=gateway.Probabilistic(k=200), bands=bands, limit=limit, max_queued=9000
        ),
        "signals": preset.signals.replace(stale_after_s=0.5),
        "router": {
            "kind": "weighted",
            "filters": [{"kind": "prefix_cache_affinity"}],
            "scorers": [
                {"kind": "precise_prefix_cache", "weight": 3},
                {"kind": "load_aware", "weight": 1.5},
            ],
            "picker": {"kind": "best", "ties": "random"},
        },
    }


EPP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: epp}
data:
  plugins.yaml: |
    apiVersion: llm-d.ai/v1alpha1
    kind: EndpointPickerConfig
    featureGates: [flowControl, prepareDataPlugins]
    plugins:
    - {type: queue-scorer}
    - {type: my-scorer, parameters: {depth: 3}}
    - {type: max-score-picker}
    - {name: detector, type: concurrency-detector, parameters: {maxConcurrency: 24, headroom: 0.1}}
    - {type: holdback, parameters: {}}
    schedulingProfiles:
    - name: default
      plugins:
      - {pluginRef: queue-scorer, weight: 2}
      - {pluginRef: my-scorer}
      - {pluginRef: max-score-picker}
    flowControl:
      maxBytes: 1000
      defaultRequestTTL: 1m30s
      saturationDetector: {pluginRef: detector}
      priorityBands:
      - {priority: 4, maxRequests: 7}
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: premium}
spec: {priority: 9, poolRef: {name: pool}}
"""
GATED = "featureGates: [flowControl]"


def test_llm_d_as_in_production(tmp_path: Path) -> None:
    found = import_(written(tmp_path, epp__yaml=EPP), system="llm-d")
    simulation = found.simulation
    assert simulation.gateway.limit == (
        gateway.Saturation(detector="concurrency", max_concurrency=24),
    )
    assert simulation.gateway.dispatch == "one_per_attempt"
    # A band for every priority: those of the default classes, of the objective, and of the file.
    bands = {band.priority: band.max_requests for band in simulation.gateway.bands}
    assert bands == {4: 7, 9: 5000, 3: 5000, -1: 5000, -2: 5000, -3: 5000}
    assert {band.queue.timeout_s for band in simulation.gateway.bands} == {90}
    priorities = {known.name: known.priority for known in simulation.slo_classes}
    assert priorities["premium"] == 9
    assert simulation.router == router.Weighted(
        scorers=[router.QueueDepth(weight=2)], picker=router.Best(ties="random")
    )
    fields = {unread.field.rpartition("plugins.yaml: ")[2]: unread.value for unread in found.unread}
    assert fields == {
        "featureGates": "prepareDataPlugins",
        "schedulingProfiles[0]: plugins[1]: pluginRef": "my-scorer",
        "plugins[1]: parameters: depth": 3,
        "plugins[3]: parameters: headroom": 0.1,
        "plugins[4]: type": "holdback",
        "flowControl: maxBytes": 1000,
    }


def test_llm_d_without_its_feature_gate(tmp_path: Path) -> None:
    text = """\
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: probabilistic-admitter, parameters: {k: 100}}]
flowControl: {maxRequests: 5}
"""
    found = import_(written(tmp_path, epp__yaml=text), system="llm-d")
    assert found.simulation.gateway == gateway.Gateway(
        admission=[gateway.GaieLegacy(), gateway.Probabilistic(k=100)]
    )
    (unread,) = found.unread
    assert str(unread).endswith(
        "flowControl = {maxRequests: 5}: is ignored without the feature gate flowControl"
    )


def test_the_preset_of_llm_d_is_carried() -> None:
    simulation = (
        llm_d.flow_control()
        .apply()
        .replace(router=router.Weighted(picker=router.Best(ties="random")))
    )
    assert export(simulation, to="llm-d").losses == ()


REFUSED = {
    "a.yaml": [
        ("kind: Service", "must contain one EndpointPickerConfig"),
        ("kind: EndpointPickerConfig\nplugins: [{name: x}]", "plugins[0]: type: is miss"),
        (
            f"kind: EndpointPickerConfig\n{GATED}\nflowControl: {{defaultRequestTTL: soon}}",
            "flowControl: defaultRequestTTL = 'soon': must be a duration such as 60s",
        ),
        (
            "kind: EndpointPickerConfig\nsaturationDetector: {pluginRef: mine}",
            "must be a utilization-detector or a concurrency-detector",
        ),
    ]
}
