"""Configuration files as patches of Kubernetes objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.deployments import written

from spillway import ConfigError, Simulation, gateway, signals
from spillway.files.deployments import export, import_

if TYPE_CHECKING:
    from pathlib import Path

LIMITED = Simulation(gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=60))).with_(
    {"instances[0].count": 3}
)


def contents(files: dict[str, str]) -> dict[str, Any]:
    return {name: yaml.safe_load(text) for name, text in files.items()}


def test_a_deployment_has_the_command_line_in_its_container(tmp_path: Path) -> None:
    found = export(LIMITED, to="vllm")
    (patch,) = contents(dict(found.as_patches("deployment").files)).values()
    assert (patch["kind"], patch["spec"]["replicas"]) == ("Deployment", 3)
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["vllm", "serve"]
    assert container["args"][:3] == ["$MODEL", "--max-num-seqs", "20"]
    assert all(isinstance(word, str) for word in container["args"])
    line = " ".join([*container["command"], *container["args"]])
    read = import_(written(tmp_path, serve__sh=line), system="vllm", onto=found.deployed)
    assert read.simulation == found.deployed


def test_a_service_of_kserve_takes_the_flags() -> None:
    (patch,) = contents(dict(export(LIMITED, to="vllm").as_patches("kserve").files)).values()
    predictor = patch["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (3, 3)
    assert predictor["model"]["args"][:2] == ["--max-num-seqs", "20"]
    with pytest.raises(ConfigError, match="must be a command line of `vllm serve`"):
        export(LIMITED, to="dynamo").as_patches("kserve")
    with pytest.raises(ConfigError, match="patch = 'pod': must be one of deployment, kserve"):
        export(LIMITED, to="vllm").as_patches("pod")  # type: ignore[arg-type]


def test_variables_of_a_frontend_are_those_of_its_container() -> None:
    simulation = Simulation(
        gateway=gateway.Gateway(admission=gateway.BusyThreshold(overload_status=503)),
        busy_monitor=signals.BusyMonitor(active_prefill_tokens_threshold=10_000),
    )
    files = contents(dict(export(simulation, to="dynamo@1.3").as_patches("deployment").files))
    frontend = files["frontend.patch.yaml"]["spec"]
    (container,) = frontend["template"]["spec"]["containers"]
    assert "replicas" not in frontend
    assert container["command"] == ["python", "-m", "dynamo.frontend"]
    assert container["env"] == [{"name": "DYN_HTTP_OVERLOAD_STATUS_CODE", "value": "503"}]


def test_other_files_are_objects_or_entries_of_a_config_map(tmp_path: Path) -> None:
    found = export(LIMITED, to="llm-d")
    patched = found.as_patches("deployment")
    files = contents(dict(patched.files))
    assert files["endpointpickerconfig.patch.yaml"]["kind"] == "ConfigMap"
    assert files["inferenceobjective-critical.patch.yaml"]["kind"] == "InferenceObjective"
    patched.write(tmp_path)
    assert import_(tmp_path, system="llm-d", onto=found.deployed).simulation == found.deployed


def test_what_configures_an_envoy_is_an_object_of_istio(tmp_path: Path) -> None:
    limit = gateway.FixedLimit(max_in_flight=40)
    shedding = gateway.EnvoyAdmission(success_threshold=0.9)
    simulation = Simulation(gateway=gateway.Gateway(admission=shedding, limit=limit, max_queued=9))
    patched = export(simulation, to="envoy").as_patches("deployment")
    files = contents(dict(patched.files))
    assert files["admission_control.patch.yaml"]["kind"] == "EnvoyFilter"
    rule = files["circuit_breakers.patch.yaml"]
    assert rule["kind"] == "DestinationRule"
    assert rule["spec"]["trafficPolicy"]["connectionPool"] == {
        "tcp": {"maxConnections": 40},
        "http": {"http1MaxPendingRequests": 9, "http2MaxRequests": 40},
    }
    patched.write(tmp_path)
    assert import_(tmp_path, system="envoy").simulation == simulation


def test_a_completed_patch_is_a_valid_object() -> None:
    """With the package kubernetes-validate."""
    validation = pytest.importorskip("kubernetes_validate")
    files = contents(dict(export(LIMITED, to="vllm").as_patches("deployment").files))
    deployment = files["vllm-0.patch.yaml"]
    deployment["metadata"]["name"] = "vllm"
    labels = {"app": "vllm"}
    deployment["spec"]["selector"] = {"matchLabels": labels}
    template = deployment["spec"]["template"]
    template["metadata"] = {"labels": labels}
    template["spec"]["containers"][0] |= {"name": "vllm", "image": "vllm/vllm-openai"}
    validation.validate(deployment, "1.31", strict=True)
