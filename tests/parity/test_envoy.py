"""Agreement with circuit breakers of Envoy, recorded from the proxy: what waits, what is rejected.

`SPILLWAY_REFERENCE` names another folder of recordings.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.paths import SHARED

from spillway.systems.envoy.deployment import in_force

PATH = (
    Path(os.environ.get("SPILLWAY_REFERENCE", SHARED / "reference"))
    / "envoy"
    / "circuit_breakers.jsonl.gz"
)
LINES = gzip.decompress(PATH.read_bytes()).splitlines() if PATH.exists() else []
RECORDS = [record for line in LINES if "thresholds" in (record := json.loads(line))]
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
