"""Two times to live: of requests that wait for a permit, and of those that wait for a server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.runs import fixed, flat, outcomes, run

from spillway import Result, fleet, gateway


def started_from_zero(
    arrival_s: list[float],
    *,
    startup_s: float = 20,
    timeout_s: float | None = 5,
    without_s: float | None = None,
    **settings: Any,
) -> Result:
    """A fleet that has no server before `startup_s`, and then takes a request a second."""
    queue = gateway.Queue(timeout_s=timeout_s, timeout_without_servers_s=without_s)
    return run(
        arrival_s,
        gateway=gateway.Gateway(limit=fixed(1), bands=[gateway.Band(queue=queue)]),
        instances=flat(1).replace(count=1),
        fleet=fleet.Fleet(initial_instances=0, target_instances=1, startup_s=startup_s),
        **settings,
    )


def ended_s(result: Result) -> list[float]:
    """When each request was dispatched; NaN: never."""
    requests = result.requests
    return np.round(requests["arrival_s"] + requests["queue_s"], 6).tolist()


def test_one_timeout_loses_what_waits_for_the_fleet() -> None:
    result = started_from_zero([0, 1, 16])
    assert outcomes(result) == ["expired", "expired", "completed"]


def test_with_two_what_waits_for_the_fleet_is_served() -> None:
    result = started_from_zero([0, 1, 16], without_s=60)
    assert outcomes(result) == ["completed"] * 3
    assert ended_s(result) == [20, 21, 22]


def test_both_count_anew_when_the_fleet_is_ready() -> None:
    """One request a second: at 25 s those that are left have waited 5 s with a server."""
    result = started_from_zero([0.1 * i for i in range(10)], without_s=60)
    assert outcomes(result) == ["completed"] * 6 + ["expired"] * 4
    assert ended_s(result)[:6] == [20, 21, 22, 23, 24, 25]


@pytest.mark.parametrize("without_s", [3.0, 19.999])
def test_the_time_without_servers_is_a_time_to_live(without_s: float) -> None:
    result = started_from_zero([0, 18], without_s=without_s, timeout_s=None)
    assert outcomes(result) == ["expired", "completed"]
    assert result.ledger["expired"] == 1
    assert result.requests["reason"].tolist()[0] == "queue_timeout"


def test_it_can_be_the_only_one() -> None:
    result = started_from_zero([0, 1, 2, 3, 4, 5, 6], without_s=60, timeout_s=None)
    assert outcomes(result) == ["completed"] * 7


def test_it_counts_from_when_the_last_server_went() -> None:
    queue = gateway.Queue(timeout_s=100, timeout_without_servers_s=4)
    result = run(
        [0, 0.1, 0.2, 7],
        gateway=gateway.Gateway(limit=fixed(1), bands=[gateway.Band(queue=queue)]),
        instances=flat(2),
        changes=[{"at_s": 3, "set": {"fleet.target_instances": 0}}],
        horizon_s=30,
    )
    # Two were sent before the server was taken out of service; the third waits from 3 to 7 s.
    assert outcomes(result) == ["completed", "completed", "expired", "expired"]


def test_it_may_change() -> None:
    path = "gateway.bands[0].queue.timeout_without_servers_s"
    change = [{"at_s": 2, "set": {path: 3}}]
    result = started_from_zero([0, 18], without_s=60, timeout_s=None, changes=change)
    assert outcomes(result) == ["expired", "completed"]
