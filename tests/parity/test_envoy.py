"""Agreement with circuit breakers of Envoy, recorded from the proxy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.paths import vectors

from spillway.systems.envoy.deployment import in_force

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
