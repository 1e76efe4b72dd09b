"""Agreement with circuit breakers and filters of Envoy, recorded from the proxy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.paths import vectors

from spillway import gateway, testing
from spillway.files.deployments import import_
from spillway.systems.envoy.deployment import in_force
from spillway.testing import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECORDS = [record for record in vectors("envoy/circuit_breakers") if "thresholds" in record]
pytestmark = pytest.mark.skipif(not RECORDS, reason="needs the recordings of Envoy")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: json.dumps(record["thresholds"]))
def test_the_limit_and_the_queue_explain_every_event(record: dict[str, Any]) -> None:
    limit, places = in_force(record["thresholds"])
    served: list[int] = []
    waiting: list[int] = []
    for event in record["events"]:
        answers = {}
        if "arrives" in event:
            request = event["arrives"]
            if len(served) < limit:
                served.append(request)
            elif len(waiting) < places:
                waiting.append(request)
            else:
                answers[request] = 503
        else:
            served.remove(event["ends"])
            answers[event["ends"]] = 200
            if waiting:
                served.append(waiting.pop(0))
        assert answers == {answer["request"]: answer["status"] for answer in event["answered"]}
        assert sorted(served) == sorted(event["at_upstream"])
        assert waiting == event["held_by_envoy"]


# --- admission control ----------------------------------------------------------------------------

SHEDDING = [record for record in vectors("envoy/circuit_breakers") if "admission_control" in record]


def rejected(policy: gateway.EnvoyAdmission, events: list[list[Any]], seed: int) -> list[int]:
    """How many of the requests that would succeed are rejected, and how many of the others."""
    built = testing.build(policy, seed=seed)
    counts = [0, 0]
    for at_s, status, _ in events:
        request = Request()
        if built.decide(request, now_s=at_s).admitted:
            built.dispatched(request, now_s=at_s)
            outcome = "completed" if status == 200 else "rejected"
            built.finished(request, outcome=outcome, now_s=at_s)
        else:
            counts[status != 200] += 1
    return counts


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., Any]:
    """The policy of a filter."""

    def policy(name: str, kind: str, config: dict[str, Any]) -> Any:
        at = f"type.googleapis.com/envoy.extensions.filters.http.{name}.v3.{kind}"
        path = tmp_path / "filter.json"
        path.write_text(json.dumps({"typed_config": {"@type": at, **config}}))
        (found,) = import_(path, system="envoy").simulation.gateway.admission
        return found

    return policy


@pytest.mark.parametrize("record", SHEDDING, ids=lambda record: f"shedding-{record['id']}")
def test_as_many_are_shed(record: dict[str, Any], imported: Callable[..., Any]) -> None:
    """Within five standard deviations of the runs with other draws."""
    policy = imported("admission_control", "AdmissionControl", record["admission_control"])
    events = record["at_s_wanted_got"]
    runs = np.array([rejected(policy, events, seed) for seed in range(40)])
    shed = sum(wanted == 200 and got != 200 for _, wanted, got in events)
    every = int(record["stats_at_end"]["http.s.admission_control.rq_rejected"])
    for found, there in ((runs[:, 0], shed), (runs.sum(axis=1), every)):
        assert abs(found.mean() - there) <= 5 * found.std()
        assert found.std() < 0.2 * there


# --- local rate limit -----------------------------------------------------------------------------

BUCKETS = [record for record in vectors("envoy/circuit_breakers") if "local_ratelimit" in record]


@pytest.mark.parametrize("record", BUCKETS, ids=lambda record: f"bucket-{record['id']}")
def test_every_request_gets_its_status(
    record: dict[str, Any], imported: Callable[..., Any]
) -> None:
    whole = {"default_value": {"numerator": 100}}
    parts = {"filter_enabled": whole, "filter_enforced": whole}
    config = {"token_bucket": record["local_ratelimit"], **parts}
    policy = imported("local_ratelimit", "LocalRateLimit", config)
    events = record["at_s_and_status"]
    built = testing.build(policy)
    for at_s, status in events:
        assert built.decide(Request(), now_s=at_s).admitted == (status == 200), at_s
