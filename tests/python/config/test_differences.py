"""What differs between two sets of settings."""

from __future__ import annotations

from typing import Any

import pytest
from support.random_simulations import random_simulation

from spillway import Simulation
from spillway.config.differences import ABSENT, differences


def changed(changes: dict[str, Any], before: dict[str, Any] | None = None) -> list[str]:
    old = Simulation().with_(before or {})
    return [
        str(difference) for difference in differences(old.to_dict(), old.with_(changes).to_dict())
    ]


def test_equal_settings_have_none() -> None:
    assert changed({}) == []


def test_numbers_and_kinds() -> None:
    assert changed({"gateway.max_queued": 5, "router": "least_loaded"}) == [
        "gateway.max_queued: null -> 5",
        "router: {kind: round_robin, per_model: true} -> {kind: least_loaded, ties: first}",
    ]


def test_lists_by_name_and_by_position() -> None:
    tenants = [{"name": "default"}, {"name": "gold"}]
    assert changed(
        {"tenants": [{"name": "gold", "weight": 2}, {"name": "default"}]}, {"tenants": tenants}
    ) == ["tenants[gold].weight: 1.0 -> 2.0", 'tenants: ["default", "gold"] -> ["gold", "default"]']
    (band,) = changed({"gateway.bands": [{"priority": 3}, {"priority": -1000}]})[1:]
    assert band.startswith("gateway.bands[1]: (absent) -> {priority: -1000, ceiling: 1.0,")


def test_other_kinds_in_a_list_are_one_difference() -> None:
    chain = ["token_bucket", "tier_shed"]
    (one,) = changed({"gateway.admission": chain[::-1]}, {"gateway.admission": chain})
    assert one.startswith("gateway.admission: [{kind: token_bucket, ")
    before = {"gateway.admission": chain}
    assert changed({"gateway.admission[1].max_load": 7}, before) == [
        "gateway.admission[1].max_load: 0 -> 7"
    ]


@pytest.mark.parametrize("seed", range(20))
def test_differences_are_symmetric_and_complete(seed: int) -> None:
    one, other = (
        random_simulation(f"differences {seed} {i}").simulation.to_dict() for i in range(2)
    )
    there, back = differences(one, other), differences(other, one)
    assert {(d.path, str(d.before), str(d.after)) for d in there} == {
        (d.path, str(d.after), str(d.before)) for d in back
    }
    assert there
    assert differences(one, one) == []
    assert all(d.before is not ABSENT or d.after is not ABSENT for d in there)
