"""Limits of LiteLLM's proxy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.deployments import written

from spillway import ConfigError, Simulation, gateway, workload
from spillway.files.deployments import export, import_
from spillway.systems.litellm import presets as litellm

if TYPE_CHECKING:
    from pathlib import Path


def limits(**settings: Any) -> gateway.RateLimit:
    """The limits of keys, without any but these."""
    fixed: dict[str, Any] = {
        "window": "first_request",
        "output_length": "max_tokens",
        "retry_after": "window",
    }
    return gateway.RateLimit(**({"max_requests": None} | fixed | settings))


def expressible(_name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    own = [
        gateway.KeyRate(tenant="a", max_requests=60, max_tokens=20_000),
        gateway.KeyRate(tenant="b", max_parallel=4),
    ]
    return {
        "gateway": gateway.Gateway(
            admission=limits(own=own, reserved_output_tokens=5000),
            limit=gateway.FixedLimit(max_in_flight=12),
        ),
        "tenants": [workload.Tenant(name=name) for name in ("a", "b", "default")],
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
    keys = [{"key_alias": "team", "max_parallel_requests": 5, "rpm_limit": 60, "models": ["llama"]}]
    found = import_(
        written(tmp_path, config__yaml=config, keys__json=json.dumps(keys)), system="litellm"
    )
    assert found.simulation.gateway.limit == (gateway.FixedLimit(max_in_flight=50),)
    team = gateway.KeyRate(tenant="team", max_requests=60, max_parallel=5)
    assert found.simulation.gateway.admission == (limits(own=[team]),)
    assert [tenant.name for tenant in found.simulation.tenants] == ["default", "team"]
    listed = {unread.field.rpartition(": ")[2]: unread.value for unread in found.unread}
    assert listed == {
        "rpm": 600,
        "router_settings": {"routing_strategy": "least-busy"},
        "models": ["llama"],
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


TENANTS = [workload.Tenant(), workload.Tenant(name="b", max_in_flight=2, queue_max=9)]


def test_a_limit_per_tenant_is_that_of_its_key() -> None:
    both = gateway.Gateway(
        admission=limits(max_requests=30), limit=gateway.PerTenant(max_in_flight=8)
    )
    found = export(Simulation(gateway=both, tenants=TENANTS), to="litellm")
    assert json.loads(found.files["keys.json"]) == [
        {"key_alias": "default", "rpm_limit": 30, "max_parallel_requests": 8},
        {"key_alias": "b", "rpm_limit": 30, "max_parallel_requests": 2},
    ]
    assert found.lost_guards == ()
    assert "above which nothing waits" in str(found)
    assert found.deployed.gateway.admission[0].own == (
        gateway.KeyRate(tenant="default", max_requests=30, max_parallel=8),
        gateway.KeyRate(tenant="b", max_requests=30, max_parallel=2),
    )


def test_limits_of_all_keys_are_written_for_each() -> None:
    simulation = litellm.rate_limits(rpm=60, tpm=9000, max_parallel_requests=4).apply(
        Simulation(tenants=TENANTS)
    )
    found = export(simulation, to="litellm")
    assert [key["tpm_limit"] for key in json.loads(found.files["keys.json"])] == [9000, 9000]
    assert {loss.path for loss in found.losses} == {
        "tenants[b].max_in_flight",
        "tenants[b].queue_max",
    }
    assert found.deployed.gateway == simulation.gateway
    other = simulation.with_({"gateway.admission[0].window": "aligned"})
    reasons = {loss.path: loss.reason for loss in export(other, to="litellm").losses}
    reason = reasons["gateway.admission[0].window"]
    assert reason == "a window of LiteLLM begins with the first request"


@pytest.mark.parametrize("limit", [0, 10**12])
@pytest.mark.parametrize("key", ["rpm_limit", "tpm_limit", "max_parallel_requests"])
def test_other_limits_are_refused(tmp_path: Path, limit: int, key: str) -> None:
    text = json.dumps([{"key_alias": "a", key: limit}])
    with pytest.raises(ConfigError, match="must be between 1 and 999999999999"):
        import_(written(tmp_path, keys__json=text), system="litellm")


REFUSED = {
    "a.yaml": [
        ("general_settings: {master_key: x}", "nothing in it is known: must be config.yaml"),
        (
            "model_list: [{litellm_params: {max_parallel_requests: many}}]",
            "max_parallel_requests = 'many': must be a whole number",
        ),
        ("[{key_alias: a, rpm_limit: 1}, {key_alias: a, tpm_limit: 2}]", "must not occur twice"),
    ]
}
