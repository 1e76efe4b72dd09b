"""Limits of LiteLLM's proxy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.deployments import written

from spillway import ConfigError, Simulation, gateway, workload
from spillway.files.deployments import export, import_

if TYPE_CHECKING:
    from pathlib import Path


def expressible(_name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    return {
        "gateway": gateway.Gateway(
            limit=[
                gateway.FixedLimit(max_in_flight=12),
                gateway.PerTenant(max_in_flight=10**9),
            ]
        ),
        "tenants": [
            workload.Tenant(name="a", max_in_flight=4, queue_max=1),
            workload.Tenant(name="default"),
        ],
        "instances[0].count": 3,
    }


def test_a_proxy_as_in_production(tmp_path: Path) -> None:
    config = """\
model_list:
- model_name: llama
  litellm_params: {model: hosted_vllm/llama, api_base: http://a, max_parallel_requests: 30}
- model_name: llama
  litellm_params: {model: llama, api_base: http://b, max_parallel_requests: 20, rpm: 600}
router_settings: {routing_strategy: least-busy}
"""
    keys = [{"key_alias": "team", "max_parallel_requests": 5, "rpm_limit": 60}]
    found = import_(
        written(tmp_path, config__yaml=config, keys__json=json.dumps(keys)), system="litellm"
    )
    assert found.simulation.gateway.limit == (
        gateway.FixedLimit(max_in_flight=50),
        gateway.PerTenant(max_in_flight=10**9),
    )
    assert {tenant.name: tenant.max_in_flight for tenant in found.simulation.tenants} == {
        "team": 5,
        "default": None,
    }
    listed = {unread.field.rpartition(": ")[2]: unread.value for unread in found.unread}
    assert listed == {
        "rpm": 600,
        "router_settings": {"routing_strategy": "least-busy"},
        "rpm_limit": 60,
    }


def test_a_deployment_without_a_limit_takes_all(tmp_path: Path) -> None:
    config = """\
model_list:
- {model_name: m, litellm_params: {model: m, max_parallel_requests: 30}}
- {model_name: m, litellm_params: {model: m}}
"""
    found = import_(written(tmp_path, config__yaml=config), system="litellm")
    assert found.simulation == Simulation()
    assert str(found.unread[0]).endswith(
        'model_list = "1 of 2": one without a limit takes all others: no limit is simulated'
    )


def test_shares_are_rounded_down() -> None:
    simulation = Simulation(
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=50))
    ).with_({"instances[0].count": 3})
    found = export(simulation, to="litellm")
    assert found.files["config.yaml"].count("max_parallel_requests: 16") == 3
    assert {loss.path: loss.deployed for loss in found.losses} == {
        "gateway.limit[0].max_in_flight": 48
    }


def test_a_default_of_all_tenants_is_written_for_each() -> None:
    simulation = Simulation(
        gateway=gateway.Gateway(limit=gateway.PerTenant(max_in_flight=8)),
        tenants=[workload.Tenant(), workload.Tenant(name="b", max_in_flight=2)],
    )
    keys = json.loads(export(simulation, to="litellm").files["keys.json"])
    assert keys == [
        {"key_alias": "default", "max_parallel_requests": 8},
        {"key_alias": "b", "max_parallel_requests": 2},
    ]


@pytest.mark.parametrize("limit", [0, 10**9])
def test_other_limits_are_refused(tmp_path: Path, limit: int) -> None:
    text = json.dumps([{"key_alias": "a", "max_parallel_requests": limit}])
    with pytest.raises(ConfigError, match="must be between 1 and 999999999"):
        import_(written(tmp_path, keys__json=text), system="litellm")


REFUSED = {
    "a.yaml": [
        ("general_settings: {master_key: x}", "nothing in it is known: must be config.yaml"),
        (
            "model_list: [{litellm_params: {max_parallel_requests: many}}]",
            "max_parallel_requests = 'many': must be a whole number",
        ),
    ]
}
