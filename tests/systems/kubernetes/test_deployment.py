"""The horizontal pod autoscaler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.deployments import GOLDEN, written

from spillway import Simulation, fleet, gateway
from spillway.files.deployments import export, import_

if TYPE_CHECKING:
    from pathlib import Path


def expressible(_name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    scaler = fleet.TargetScaler(
        metric="kv_utilization",
        target=0.75,
        tolerance=0.05,
        min_instances=2,
        max_instances=6,
        up_stabilization_s=30,
        up_instances=2,
        up_share=0.5,
        down_stabilization_s=120,
        down_share=0.25,
    )
    return {"fleet": fleet.Fleet(autoscaler=scaler), "instances[0].count": 6}


HEAD = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: llm, namespace: serving}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: llm}
  maxReplicas: 8
  metrics:
  - type: Pods
    pods:
      metric: {name: vllm_num_requests_waiting}
      target: {type: AverageValue, averageValue: "4"}
"""
CPU = """\
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}
"""


def listed(entries: Any) -> dict[str, Any]:
    return {entry.field.rpartition(": ")[2]: entry.value for entry in entries}


def test_defaults_are_those_of_kubernetes(tmp_path: Path) -> None:
    onto = Simulation().with_({"instances[0].count": 3})
    found = import_(written(tmp_path, a__yaml=HEAD + CPU), system="kubernetes", onto=onto)
    # A step doubles or adds 4, down after 5 minutes: the defaults of the setting, too.
    assert found.simulation.fleet == fleet.Fleet(
        initial_instances=3,
        autoscaler=fleet.TargetScaler(metric="waiting", target=4, max_instances=8),
    )
    assert found.simulation.instances[0].count == 8
    assert "fleet.initial_instances" in str(found.notes)
    assert [str(entry).rpartition(": ")[2] for entry in found.unread] == ["one metric is simulated"]
    assert listed(found.irrelevant).keys() == {"metadata", "scaleTargetRef"}


def test_what_is_not_simulated_is_listed(tmp_path: Path) -> None:
    text = (
        HEAD
        + """\
  behavior:
    scaleUp:
      selectPolicy: Min
      policies:
      - {type: Pods, value: 2, periodSeconds: 60}
      - {type: Percent, value: 10, periodSeconds: 15}
    scaleDown: {policies: [{type: Pods, value: 3, periodSeconds: 15}], tolerance: 50m}
"""
    )
    found = import_(written(tmp_path, a__yaml=text), system="kubernetes")
    scaler = found.simulation.fleet.autoscaler
    assert (scaler.up_instances, scaler.up_share, scaler.down_share) == (2, 0.1, 0)
    assert scaler.tolerance == 0.1  # of the controller, where the direction states none
    assert listed(found.unread) == {
        "tolerance": 0.05,
        "periodSeconds": 60,
        "selectPolicy": "Min",
        "policies": {"Pods": 3},
    }


@pytest.mark.parametrize(
    ("behavior", "tolerance", "other"),
    [
        ("{scaleUp: {tolerance: 50m}}", 0.05, 0.1),
        ("{scaleDown: {tolerance: 50m}}", 0.1, 0.05),
        ("{scaleUp: {tolerance: 50m}, scaleDown: {tolerance: 0.05}}", 0.05, None),
        ("{}", 0.1, None),
    ],
)
def test_a_tolerance_is_of_its_direction(
    tmp_path: Path, behavior: str, tolerance: float, other: float | None
) -> None:
    text = f"{HEAD}  behavior: {behavior}\n"
    found = import_(written(tmp_path, a__yaml=text), system="kubernetes")
    assert found.simulation.fleet.autoscaler.tolerance == tolerance
    assert listed(found.unread).get("tolerance") == other


def test_a_scaler_whose_controller_is_lost_is_lost_too() -> None:
    simulation = Simulation(
        gateway=gateway.Gateway(limit=gateway.FixedLimit(), controller=gateway.Aimd()),
        fleet=fleet.Fleet(autoscaler=fleet.TargetScaler(metric="limit_decreases", max_instances=1)),
    )
    found = export(simulation, to="vllm", allow_lossy=True)
    (loss,) = (loss for loss in found.losses if loss.path == "fleet.autoscaler")
    assert loss.reason == "the metric is of the controller, which is lost"
    assert found.deployed.fleet.autoscaler == fleet.NoAutoscaler()


def test_other_metrics_scale_nothing(tmp_path: Path) -> None:
    text = HEAD[: HEAD.index("  - type: Pods")] + CPU
    found = import_(written(tmp_path, a__yaml=text), system="kubernetes")
    assert found.simulation == Simulation()
    assert "nothing scales here" in str(found.unread[-1])


def test_a_deployment_and_its_autoscaler_are_read_together(tmp_path: Path) -> None:
    server = """\
kind: Deployment
spec:
  replicas: 2
  template: {spec: {containers: [{name: a, command: [vllm, serve, m, --max-num-seqs=64]}]}}
"""
    found = import_(written(tmp_path, a__yaml=f"{HEAD}---\n{server}"))
    assert found.simulation.fleet.initial_instances == 2
    assert found.simulation.instances[0].count == 8
    assert found.simulation.instances[0].max_num_seqs == 64


@pytest.mark.parametrize(
    ("metric", "kind", "name"),
    [
        ("queued", "external", "llm_d_epp_flow_control_queue_size"),
        ("in_flight", "external", "llm_d_epp_request_running"),
        ("running", "pods", "vllm:num_requests_running"),
    ],
)
def test_metrics_have_a_source(metric: Any, kind: str, name: str) -> None:
    scaler = fleet.TargetScaler(metric=metric, max_instances=1, poll_s=30)
    found = export(Simulation(fleet=fleet.Fleet(autoscaler=scaler)), to="kubernetes")
    (source,) = yaml.safe_load(found.files["autoscaler.yaml"])["spec"]["metrics"]
    assert source[kind]["metric"] == {"name": name}
    assert [loss.path for loss in found.losses] == ["fleet.autoscaler.poll_s"]


def test_the_golden_file_is_valid() -> None:
    """With the package kubernetes-validate."""
    validation = pytest.importorskip("kubernetes_validate")
    content = yaml.safe_load((GOLDEN / "kubernetes_v2" / "autoscaler.yaml").read_text())
    content["metadata"]["name"] = "llm"
    validation.validate(content, validation.latest_version(), strict=True)


REFUSED = {
    "a.yaml": [
        (HEAD.replace("  maxReplicas: 8\n", ""), "maxReplicas: is missing"),
        (HEAD.replace('"4"', "many"), "averageValue = 'many': must be a number"),
        (HEAD.replace('"4"', '"."'), "averageValue = '.': must be a number"),
        (f"{HEAD}---\n{HEAD}", "must contain one HorizontalPodAutoscaler"),
        (
            f"{HEAD}  behavior: {{scaleUp: {{policies: [{{type: Pods, value: 0}}]}}}}",
            "value = 0: must be >= 1",
        ),
    ]
}


def test_autoscaler_stays_where_a_change_of_something_else_goes() -> None:
    scaler = fleet.TargetScaler(metric="queued", max_instances=1)
    simulation = Simulation(
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=9)),
        fleet=fleet.Fleet(autoscaler=scaler),
        changes=[{"at_s": 1, "set": {"gateway.limit[0].max_in_flight": 4}}],
    )
    exported = export(simulation, to="kubernetes", allow_lossy=True)
    assert exported.deployed.changes == ()
    assert exported.deployed.fleet.autoscaler.metric == "queued"
