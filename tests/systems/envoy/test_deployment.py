"""Filters of Envoy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.deployments import GOLDEN, written

from spillway import Simulation, gateway, signals
from spillway.files.deployments import import_

if TYPE_CHECKING:
    from pathlib import Path


def expressible(_name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    controller = gateway.EnvoyGradient(min_concurrency=8, jitter=0.1, buffer=0.4, request_count=80)
    return {
        "gateway": gateway.Gateway(
            admission=gateway.EnvoyAdmission(success_threshold=0.97, window_s=12.5, aggression=2),
            limit=gateway.FixedLimit(max_in_flight=8),
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


@pytest.mark.filterwarnings("ignore::DeprecationWarning:envoy_data_plane")
def test_envoy_files_parse_with_its_protos() -> None:
    """With the package envoy-data-plane, which refuses unknown fields."""
    pytest.importorskip("envoy_data_plane")
    for name, message in {
        "admission_control": "AdmissionControl",
        "adaptive_concurrency": "AdaptiveConcurrency",
    }.items():
        protos = importlib.import_module(
            f"envoy_data_plane.envoy.extensions.filters.http.{name}.v3"
        )
        content = yaml.safe_load((GOLDEN / "envoy_v3" / f"{name}.yaml").read_text())
        config = content["typed_config"]
        assert config.pop("@type").endswith(f"{name}.v3.{message}")
        assert bytes(getattr(protos, message).from_dict(config))


REFUSED = {
    "a.yaml": [
        (
            f"typed_config: {{'@type': {FILTERS}.adaptive_concurrency.v3.AdaptiveConcurrency}}",
            "concurrency_update_interval: is missing",
        ),
        ("typed_config: [", "not valid YAML"),
    ]
}
