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


BOOTSTRAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: edge, namespace: llm, resourceVersion: "3"}
data:
  other.txt: not this
  envoy.yaml: |
    # kept but for comments
    static_resources:
      clusters:
      - name: vllm
        lb_policy: LEAST_REQUEST
        circuit_breakers:
          thresholds:
          - {priority: HIGH, max_requests: 7}
          - {max_requests: 4096, max_connections: 5, max_retries: 2}
"""


def test_the_only_cluster_of_an_envoy_is_changed_in_its_config_map(tmp_path: Path) -> None:
    simulation = Simulation(
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=40), max_queued=1)
    )
    found = export(simulation, to="envoy").as_patches(
        "deployment", list(written(tmp_path, a__yaml=BOOTSTRAP))
    )
    (patch,) = contents(dict(found.files)).values()
    assert (patch["kind"], patch["metadata"]) == ("ConfigMap", {"name": "edge", "namespace": "llm"})
    (text,) = patch["data"].values()
    (cluster,) = yaml.safe_load(text)["static_resources"]["clusters"]
    assert cluster["lb_policy"] == "LEAST_REQUEST"
    assert cluster["circuit_breakers"]["thresholds"] == [
        {"max_retries": 2, "max_requests": 40},
        {"priority": "HIGH", "max_requests": 7},
    ]
    assert "is ConfigMap llm/edge with the limits of its only cluster replaced" in str(found)
    two = BOOTSTRAP + "      - name: other\n"
    found = export(simulation, to="envoy").as_patches(
        "deployment", list(written(tmp_path, a__yaml=two))
    )
    assert "no object of the manifests fits" in str(found)


RATE = "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
STACK = f"""
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: llama, namespace: prod, uid: 12}}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - {{name: proxy, image: envoyproxy/envoy}}
      - name: server
        image: vllm/vllm-openai:v0.19.1
        args: [--model, org/model, --max-num-seqs=60]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: limit, namespace: prod, resourceVersion: "7"}}
spec:
  host: llama
  trafficPolicy:
    connectionPool: {{http: {{http2MaxRequests: 200, idleTimeout: 5s}}}}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{name: rate, namespace: mesh}}
spec:
  workloadSelector: {{labels: {{app: llama}}}}
  configPatches:
  - applyTo: HTTP_FILTER
    match: {{context: SIDECAR_INBOUND}}
    patch:
      operation: INSERT_BEFORE
      value:
        typed_config:
          "@type": type.googleapis.com/udpa.type.v1.TypedStruct
          type_url: {RATE}
          value: {{token_bucket: {{max_tokens: 5, fill_interval: 1s}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: picker, namespace: prod}}
data:
  picker.yaml: |
    apiVersion: llm-d.ai/v1alpha1
    kind: EndpointPickerConfig
"""


def test_patches_have_what_identifies_their_objects(tmp_path: Path) -> None:
    stack = list(written(tmp_path, stack__yaml=STACK, notes__txt="no manifest"))
    found = export(LIMITED, to="vllm").as_patches("deployment", stack)
    (server,) = contents(dict(found.files)).values()
    assert (server["kind"], server["metadata"]) == (
        "StatefulSet",
        {"name": "llama", "namespace": "prod"},
    )
    (container,) = server["spec"]["template"]["spec"]["containers"]
    assert (container["name"], container["args"][0]) == ("server", "org/model")
    assert "vllm-0.patch.yaml: is StatefulSet prod/llama with its container server" in found.notes
    picker = contents(dict(export(LIMITED, to="llm-d").as_patches("deployment", stack).files))
    config_map = picker["endpointpickerconfig.patch.yaml"]
    assert config_map["metadata"] == {"name": "picker", "namespace": "prod"}
    assert list(config_map["data"]) == ["picker.yaml"]


def test_objects_of_istio_keep_what_a_patch_does_not_change(tmp_path: Path) -> None:
    stack = list(written(tmp_path, stack__yaml=STACK))
    admission = gateway.RateLimit(
        max_requests=30, window_s=1.0, window="bucket", key="gateway", retry_after="none"
    )
    limited = LIMITED.with_({"gateway.admission": [admission]})
    found = export(limited, to="envoy").as_patches("deployment", stack)
    files = contents(dict(found.files))
    rule = files["circuit_breakers.patch.yaml"]
    assert rule["metadata"] == {"name": "limit", "namespace": "prod"}
    assert rule["spec"]["host"] == "llama"
    pool = rule["spec"]["trafficPolicy"]["connectionPool"]
    assert pool["http"]["idleTimeout"] == "5s"
    assert pool["http"]["http2MaxRequests"] == 60
    limit = files["local_ratelimit.patch.yaml"]
    assert limit["spec"]["workloadSelector"] == {"labels": {"app": "llama"}}
    (patch,) = limit["spec"]["configPatches"]
    assert patch["match"] == {"context": "SIDECAR_INBOUND"}
    assert patch["patch"]["value"]["typed_config"]["token_bucket"]["max_tokens"] == 10
    found.write(tmp_path / "out")
    read = import_(tmp_path / "out", system="envoy", onto=limited).simulation
    assert read == found.deployed


ROUTED = """\
kind: Deployment
metadata: {name: router}
spec: {template: {spec: {containers: [{name: r, image: 'lmsysorg/sglang:v0.5.6',
  command: [python3, -m, sglang_router.launch_router, --policy, random],
  args: [--service-discovery, --selector, app=llama, tier=a, --service-discovery-port=80]}]}}}
---
kind: Deployment
metadata: {name: llama}
spec: {template: {spec: {containers: [{name: s, image: 'lmsysorg/sglang:v0.5.6',
  command: [python3, -m, sglang.launch_server, --model-path, m/m]}]}}}
"""


def test_a_router_keeps_how_it_finds_its_workers(tmp_path: Path) -> None:
    stack = list(written(tmp_path, stack__yaml=ROUTED))
    found = export(LIMITED, to="sglang-router").as_patches("deployment", stack)
    (patch,) = contents(dict(found.files)).values()
    assert patch["metadata"] == {"name": "router"}
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "r"
    assert container["args"][:5] == [
        *("--service-discovery", "--selector", "app=llama", "tier=a"),
        "--service-discovery-port=80",
    ]
    assert "$" not in str(patch)
    servers = export(LIMITED, to="sglang").as_patches("deployment", stack)
    (patch,) = contents(dict(servers.files)).values()
    assert patch["metadata"] == {"name": "llama"}


@pytest.mark.parametrize(
    ("whole", "note"),
    [
        (30, "share of the limit for 3 pods"),
        (32, "share of the limit for 3 pods, 10 each: 30 in all instead of 32"),
        (2, "share of the limit for 3 pods, 1 each: 3 in all instead of 2"),
    ],
)
def test_shares_of_sidecars_that_are_rounded_are_said(
    tmp_path: Path, whole: int, note: str
) -> None:
    stack = list(written(tmp_path, stack__yaml=STACK))
    admission = gateway.RateLimit(
        max_requests=whole, window_s=1.0, window="bucket", key="gateway", retry_after="none"
    )
    limited = LIMITED.with_({"gateway.admission": [admission]})
    notes = export(limited, to="envoy").as_patches("deployment", stack).notes
    (found,) = (text for text in notes if text.startswith("local_ratelimit.patch.yaml"))
    assert found.endswith(note)


def test_a_patch_without_its_object_keeps_its_variables(tmp_path: Path) -> None:
    stack = list(written(tmp_path, stack__yaml="kind: Service\nmetadata: {name: other}\n"))
    found = export(LIMITED, to="envoy").as_patches("deployment", stack)
    assert "circuit_breakers.patch.yaml: no object of the manifests fits this" in found.notes[-1]
    (rule,) = contents(dict(found.files)).values()
    assert rule["metadata"]["name"] == "$DESTINATION_RULE"


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
