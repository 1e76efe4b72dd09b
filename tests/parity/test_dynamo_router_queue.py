"""Agreement with the queue in the router of Dynamo 1.6.1, as its own code answered.

`policy_queue`: what a queue of several policy classes accepts and gives. `scheduler_queue`: the
same before workers, whose loads are kept here; which requests wait, and in which order they leave.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.paths import vectors

from spillway import Simulation, gateway, instance, testing, workload
from spillway.config.yaml import parse
from spillway.testing import InstanceSignals, Request

QUEUES = vectors("dynamo/policy_queue")
SCHEDULERS = vectors("dynamo/scheduler_queue")
BLOCK = 16

pytestmark = pytest.mark.skipif(not QUEUES, reason="needs recorded answers of Dynamo")

Case = dict[str, Any]
Event = dict[str, Any]


def families(case: Case) -> tuple[list[gateway.PolicyClass], str]:
    """The classes of a policy file, or a single one; and the family of requests without one."""
    text = case["classes"]
    if text.startswith("synthetic"):
        return [gateway.PolicyClass(order=text.split()[1])], "default"
    content = parse(text, "classes")
    least = {bucket["bucket"]: bucket["min_tokens"] for bucket in content["uncached_isl_buckets"]}
    return [
        gateway.PolicyClass(
            name=given["name"],
            family=given["policy_family"],
            min_uncached_tokens=least[given["cache_bucket"]],
            quantum_tokens=given["quantum"],
            order=given["queue_policy"],
            max_requests_per_worker=given.get("request_queue_limit_per_worker"),
            max_prompt_tokens_per_worker=given.get("raw_isl_token_queue_limit_per_worker"),
        )
        for given in content["policy_classes"]
    ], content["default_policy_family"]


class Queue:
    """A built queue, with an SLO class for each way in which requests differ."""

    def __init__(self, case: Case, family: str, block: int) -> None:
        self.classes, default = families(case)
        known = {policy.family for policy in self.classes}
        self.asked: dict[tuple[str, int, float], str] = {}
        for event in case["events"]:
            if "enqueue" in event:
                asked = event.get(family)
                key = (
                    asked if asked in known else default,
                    event["strict_priority"],
                    event["priority_jump"],
                )
                self.asked.setdefault(key, f"c{len(self.asked)}")
        self.family, self.default, self.known = family, default, known
        requests = [
            gateway.PolicyRequest(
                slo_class=name, family=of, strict_priority=strict, priority_jump_s=jump_s
            )
            for (of, strict, jump_s), name in self.asked.items()
        ]
        names = [*self.asked.values(), "unused"]
        self.fairness = testing.build(
            gateway.PolicyClasses(classes=self.classes, requests=requests),
            slo_classes=[workload.SloClass(name=name) for name in names],
            simulation=Simulation(instances=[instance.InstanceGroup(block_size_tokens=block)]),
        )
        self.workers = case["workers"]
        self.numbers: dict[Request, int] = {}

    def join(self, event: Event, cached_blocks: int) -> bool:
        of = event.get(self.family)
        of = of if of in self.known else self.default
        request = Request(
            input_tokens=event["prompt_tokens"],
            slo_class=self.asked[of, event["strict_priority"], event["priority_jump"]],
        )
        self.numbers[request] = event["enqueue"]
        return self.fairness.joined(
            request,
            now_s=event["at_s"],
            instances=[InstanceSignals(cached_blocks=cached_blocks)] * self.workers,
        )

    def take(self, now_s: float, may_start: list[str] | None = None) -> int | None:
        request = self.fairness.decide(now_s=now_s, may_start=may_start)
        return None if request is None else self.numbers[request]


@pytest.mark.parametrize("case", QUEUES, ids=lambda case: f"queue-{case['id']}")
def test_queue_accepts_and_gives_the_same_requests(case: Case) -> None:
    queue = Queue(case, "requested", 1)
    now_s = 0.0
    for event in case["events"]:
        if "enqueue" in event:
            now_s = event["at_s"]
            accepted = queue.join(event, event["cached_tokens"])
            assert accepted == (event["rejected"] is None)
        else:
            closed = event["not_dispatchable_class"]
            open_ = [policy.name for policy in queue.classes if policy.name != closed]
            assert queue.take(now_s, open_) == event["pop"]


class Workers:
    """Prompt tokens that each worker has yet to compute."""

    def __init__(self, case: Case) -> None:
        self.loads: list[dict[int, int]] = [{} for _ in range(case["workers"])]
        threshold = case["queue_threshold"]
        self.most = None if threshold is None else threshold * case["max_num_batched_tokens"]

    def are_busy(self) -> bool:
        return self.most is not None and all(sum(load.values()) > self.most for load in self.loads)

    def send(self, event: Event, worker: int) -> None:
        overlap = dict(map(tuple, event["overlap_blocks"])).get(worker, 0) * BLOCK
        self.loads[worker][event["enqueue"]] = max(0, event["prompt_tokens"] - overlap)

    def free(self, request: int) -> None:
        for load in self.loads:
            load.pop(request, None)


@pytest.mark.parametrize("case", SCHEDULERS, ids=lambda case: f"scheduler-{case['id']}")
def test_requests_wait_and_leave_in_the_same_order(case: Case) -> None:
    """Workers are those that its selector chose. An outcome that names none is a refusal."""
    queue = Queue(case, "policy_class", BLOCK)
    workers = Workers(case)
    joined: dict[int, Event] = {}
    pending = 0
    for event in case["events"]:
        went = dict(map(tuple, event["outcomes"]))
        expected = list(went)
        left: list[int] = []
        if "enqueue" in event:
            number = event["enqueue"]
            joined[number] = event
            most = max((blocks for _, blocks in event["overlap_blocks"]), default=0)
            if not queue.join(event, most):
                left.append(number)
            else:
                pending += 1
        else:
            workers.free(event.get("prefill_completed", event.get("freed")))
        while True:
            may_start = [] if workers.are_busy() else None
            request = queue.take(event["at_s"], may_start)
            if request is None:
                break
            left.append(request)
            pending -= 1
            if isinstance(went.get(request), int):
                workers.send(joined[request], went[request])
        assert sorted(left) == sorted(expected)
        assert pending == event["pending"]
