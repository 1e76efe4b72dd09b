"""Limits of keys: as those of all tenants, of some, and of none."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from support.deployments import refused
from support.effort import trials

from spillway import ConfigError, Simulation, gateway, workload
from spillway.files.deployments import export, import_

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("default", "b", "c")


def random_limits(rng: random.Random) -> dict[str, Any]:
    names = ("max_requests", "max_tokens", "max_parallel")
    return {name: rng.choice([None, rng.randrange(1, 10**6)]) for name in names}


def random_rate_limit(rng: random.Random) -> gateway.RateLimit:
    own = [
        gateway.KeyRate(
            tenant=rng.choice([None, *NAMES]),
            **random_limits(rng),
        )
        for _ in range(rng.randrange(4))
    ]
    return gateway.RateLimit(
        **random_limits(rng),
        window=rng.choice(["aligned", "first_request", "sliding", "bucket"]),
        charge=rng.choice(["reserve", "at_end"]),
        own=own,
    )


@pytest.mark.parametrize("system", ["aibrix", "litellm"])
def test_what_is_deployed_is_a_fixed_point(system: str, tmp_path: Path) -> None:
    rng = random.Random(system)
    limits_of_all = limits_of_some = 0
    for seed in trials(300):
        tenants = [workload.Tenant(name=name) for name in NAMES]
        wanted = Simulation(
            gateway=gateway.Gateway(admission=random_rate_limit(rng)), tenants=tenants
        )
        try:
            found = export(wanted, to=system, allow_lossy=True)
        except ConfigError as error:
            assert "would be empty" in str(error)  # noqa: PT017
            continue
        folder = tmp_path / str(seed)
        found.write(folder)
        imported = import_(folder, system=system, onto=found.deployed)
        assert imported.simulation == found.deployed
        assert imported.unread == ()
        again = export(imported.simulation, to=system)
        assert (again.files, again.losses) == (found.files, ())
        (policy,) = found.deployed.gateway.admission
        limits_of_all += not policy.own
        limits_of_some += bool(policy.own)
    assert limits_of_all
    assert limits_of_some


@pytest.mark.parametrize("system", ["aibrix", "litellm"])
def test_limits_of_classes_and_of_all_together_are_lost(system: str) -> None:
    for key in ("slo_class", "tenant_and_class", "gateway"):
        policy = gateway.RateLimit(key=key)  # type: ignore[arg-type]
        simulation = Simulation(gateway=gateway.Gateway(admission=policy))
        with pytest.raises(ConfigError, match="would be empty"):
            export(simulation, to=system)


def test_keys_of_two_systems_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"name": "a", "rpm": 3}]')
    (tmp_path / "b.json").write_text('[{"key_alias": "a", "rpm_limit": 3}]')
    assert "must be one of aibrix, litellm" in refused(tmp_path)
    found = import_(tmp_path / "a.json")
    assert found.simulation.gateway.admission[0].charge == "at_end"
