"""Users of AIBrix."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from support.deployments import written

import spillway
from spillway import Simulation, gateway, workload
from spillway.files.deployments import export, import_
from spillway.systems.aibrix import presets as aibrix

if TYPE_CHECKING:
    from pathlib import Path


def expressible(_name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    (policy,) = aibrix.rate_limits().apply(Simulation()).gateway.admission
    own = [
        gateway.KeyRate(tenant="a", max_requests=60, max_tokens=20_000),
        gateway.KeyRate(tenant="b", max_requests=5, max_tokens=5000),
    ]
    return {
        "gateway.admission": policy.replace(max_requests=None, max_tokens=None, own=own),
        "tenants": [workload.Tenant(name=name) for name in ("a", "b", "default")],
    }


def test_users_as_in_production(tmp_path: Path) -> None:
    users = [{"name": "a", "rpm": 10, "tpm": 1000}, {"name": "b", "rpm": 7, "team": "x"}]
    found = import_(written(tmp_path, users__json=json.dumps(users)), system="aibrix")
    (policy,) = found.simulation.gateway.admission
    assert policy.own == (
        gateway.KeyRate(tenant="a", max_requests=10, max_tokens=1000),
        gateway.KeyRate(tenant="b", max_requests=7, max_tokens=7000),
    )
    assert [(entry.field.rpartition(": ")[2], entry.value) for entry in found.unread] == [
        ("team", "x")
    ]


def test_the_only_known_tenant_of_a_trace(tmp_path: Path) -> None:
    recorded = spillway.trace(arrival_s=[0], input_tokens=[9], output_tokens=[9], tenant=["a"])
    (policy,) = aibrix.rate_limits().apply(Simulation()).gateway.admission
    own = [gateway.KeyRate(tenant="a", max_requests=60, max_tokens=20_000)]
    limited = policy.replace(max_requests=None, max_tokens=None, own=own)
    exported = export(Simulation(workload=recorded, gateway={"admission": limited}), to="aibrix")
    exported.write(tmp_path)
    imported = import_(tmp_path, system="aibrix", onto=exported.deployed)
    assert imported.simulation == exported.deployed


def test_the_preset_is_written_for_every_tenant() -> None:
    tenants = [workload.Tenant(name="default"), workload.Tenant(name="b")]
    simulation = aibrix.rate_limits(rpm=30).apply(Simulation(tenants=tenants))
    found = export(simulation, to="aibrix")
    assert json.loads(found.files["users.json"]) == [
        {"name": name, "rpm": 30, "tpm": 30_000} for name in ("default", "b")
    ]
    assert found.losses == ()
    other = simulation.with_({"gateway.admission[0].max_tokens": None})
    (loss,) = export(other, to="aibrix").losses
    assert loss.deployed == 30_000


REFUSED = {
    "a.yaml": [
        ("[{name: a, rpm: many}]", "rpm = 'many': must be a whole number"),
        ("{name: a, tpm: 0}", "tpm = 0: must be between 1"),
        ("[{name: a, rpm: 1}, {name: a, rpm: 2}]", "must not occur twice"),
    ]
}
