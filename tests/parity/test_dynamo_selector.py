"""Agreement with the worker selection of Dynamo 1.6.1, as its own code answered.

`selector`: the costs of workers with given loads, and the choice; `selector_temperature`: how often
each is drawn; `router_trace`: costs and choices while requests come and go.

Loads are what requests leave behind that the router has sent. Where it would send one elsewhere,
the request is ended and another one is tried, which draws anew. Loads are scripted with a constant
excess of blocks and requests, which the costs then contain as well.

The rule stands here once more, in the terms of the recording (`rule`). Both reproduce all records.
A worker whose load is not stated is one that the router of Dynamo never has: it knows the load of
all, and that of an idle one with the prompt that is to come. What such a record lacks is added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.paths import vectors

from spillway import Simulation, gateway, router, testing
from spillway.testing import InstanceSignals, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

SELECTIONS = vectors("dynamo/selector")
DRAWS = vectors("dynamo/selector_temperature")
TRACES = vectors("dynamo/router_trace")

pytestmark = pytest.mark.skipif(not SELECTIONS, reason="needs recorded answers of Dynamo")

Case = dict[str, Any]

WITHIN = 6e-4
"""Recorded costs have three decimals."""
ANYWHERE = 1000
"""A temperature at which all workers are about equally likely."""
EXCESS_BLOCKS = 10_000
EXCESS_REQUESTS = 2
TIERS = {"host_cache_hit_weight": "host_blocks", "disk_cache_hit_weight": "disk_blocks"}
NO_TIERS = dict.fromkeys(TIERS, 0.0)


class Selector:
    """A built router, whose requests go where they are wanted."""

    def __init__(self, policy: router.KvCost, block_size: int, workers: int) -> None:
        around = Simulation().with_({"prefix_index.block_size_tokens": block_size})
        self.router = testing.build(policy, simulation=around)
        self.block_size = block_size
        self.idle = [InstanceSignals()] * workers

    def send(
        self, tokens: int, to: set[int], signals: Sequence[InstanceSignals] = ()
    ) -> tuple[Request, int, list[float]]:
        """The request that went to one of these workers, the worker, and the costs before."""
        seen = signals or self.idle
        for _ in range(10_000):
            request = Request(input_tokens=tokens)
            decision = self.router.decide(request, instances=seen)
            if decision.instance in to:
                return request, decision.instance, [-score for score in decision.scores]
            self.router.finished(request)
        raise AssertionError("it never goes there")

    def load(
        self, blocks: Sequence[int], prefill_tokens: Sequence[int], requests: Sequence[int]
    ) -> None:
        """Gives each worker requests with these sums, beside the constant excess."""
        rest = [count + EXCESS_REQUESTS for count in requests]
        left = [count + EXCESS_BLOCKS for count in blocks]
        for worker, tokens in enumerate(prefill_tokens):
            if tokens == 0:
                continue
            self.send(tokens, {worker})
            rest[worker] -= 1
            left[worker] -= -(-tokens // self.block_size)
        while needy := {worker for worker, count in enumerate(rest) if count > 1}:
            request, worker, _ = self.send(1, needy)
            self.router.first_token(request)
            rest[worker] -= 1
            left[worker] -= 1
        for worker, count in enumerate(left):
            request, _, _ = self.send(count * self.block_size, {worker})
            self.router.first_token(request)


def policy(config: Case, **others: Any) -> router.KvCost:
    return router.KvCost(
        overlap_credit=config["overlap_score_credit"],
        overlap_decay=config["overlap_score_credit_decay"],
        prefill_load_scale=config["prefill_load_scale"],
        request_weight=config["decode_active_request_weight"],
        **{name: config[name] for name in TIERS if name in config},
        prefill_unit="tokens",
        track_prefill=config.get("track_prefill_tokens", True),
        **({"temperature": ANYWHERE} | others),
    )


def candidates(case: Case) -> list[Case]:
    """Overloaded workers are none."""
    return [worker for worker in case["workers"] if not worker["overloaded"]]


def signals_of(worker: Case) -> InstanceSignals:
    """What the worker holds of the prompt; records with tiers state those of all workers."""
    if "host_blocks" not in worker:
        return InstanceSignals(cached_blocks=worker.get("effective_overlap_blocks", 0))
    return InstanceSignals(
        cached_blocks=worker["device_blocks"],
        host_blocks=worker["host_blocks"],
        disk_blocks=worker["disk_blocks"],
    )


def rule(case: Case, worker: Case) -> float:
    """The cost of a worker as the recording states it."""
    config, block = case["config"], case["block_size"]
    pending = worker.get("active_prefill_tokens", 0) / block
    device = worker.get("device_blocks", worker.get("effective_overlap_blocks", 0))
    lower = sum(config[weight] * worker.get(tier, 0) for weight, tier in TIERS.items())
    decode = worker.get("active_decode_blocks", 0) + worker.get("additional_active_blocks", 0)
    decode += config["decode_active_request_weight"] * worker.get("active_requests", 0)
    credit = config["overlap_score_credit"]
    if not case["track_prefill_tokens"]:
        return max(0, decode - (credit * device + lower if credit else 0))
    least = min(other.get("active_prefill_tokens", 0) for other in candidates(case)) / block
    excess = (pending - least) / -(-case["prompt_tokens"] // block)
    saved = credit / (1 + config["overlap_score_credit_decay"] * excess) * device + lower
    to_compute = pending + case["prompt_tokens"] / block + held_beyond_prompt(case, worker)
    return config["prefill_load_scale"] * max(0, to_compute - saved) + decode


def held_beyond_prompt(case: Case, worker: Case) -> float:
    """In blocks: by how much the worker is said to hold more than the prompt, if its load is."""
    if is_unknown(worker):
        return 0
    more = worker.get("effective_cached_tokens", 0) - case["prompt_tokens"]
    return max(0, more) / case["block_size"]


def is_unknown(worker: Case) -> bool:
    """Whether the load of the worker is not stated."""
    return "active_requests" not in worker


def not_counted(case: Case, worker: Case) -> float:
    """What the cost of a worker would also contain if its load were stated to be none.

    Here the load of all workers is known.
    """
    known = worker | {"active_requests": 0}
    if not is_unknown(worker) or not case["track_prefill_tokens"]:
        return 0
    return rule(case, known) - rule(case, worker)


@pytest.mark.parametrize("case", SELECTIONS, ids=lambda case: f"selection-{case['id']}")
def test_the_rule_is_that_of_the_recording(case: Case) -> None:
    if "error" in case["selected"]:
        assert not candidates(case)
        return
    found = {str(worker["worker"]): rule(case, worker) for worker in candidates(case)}
    assert found == pytest.approx(case["costs_3_decimals"], rel=0, abs=WITHIN)
    chosen = case["workers"][case["selected"]["worker"]]
    assert found[str(chosen["worker"])] == pytest.approx(min(found.values()), rel=0, abs=1e-6)
    assert case["selected"]["cached_tokens"] == chosen.get("effective_cached_tokens", 0)


def test_the_router_of_dynamo_knows_the_load_of_idle_workers() -> None:
    """At the first arrival the cost contains the decode blocks of the prompt, on all workers."""
    assert TRACES
    for case in TRACES:
        first = case["events"][0]
        for worker, cost in first["costs_3_decimals"].items():
            idle = {"effective_overlap_blocks": first["overlap_blocks"][int(worker)]}
            known = {"active_requests": 0, "additional_active_blocks": first["prompt_blocks"]}
            tokens = first["prompt_blocks"] * case["block_size"]
            around = case | {"prompt_tokens": tokens, "track_prefill_tokens": True}
            around |= {"workers": [{"overloaded": False}], "config": NO_TIERS | case["config"]}
            assert rule(around, idle | known) == pytest.approx(cost, rel=0, abs=WITHIN)
            assert rule(around, idle) < cost - WITHIN


@pytest.mark.parametrize("case", SELECTIONS, ids=lambda case: f"selection-{case['id']}")
def test_costs_of_workers_with_given_loads(case: Case) -> None:
    workers = candidates(case)
    if "error" in case["selected"]:
        busy = [InstanceSignals(is_busy=True)] * len(case["workers"])
        answer = testing.build(gateway.BusyThreshold()).decide(Request(), instances=busy)
        assert not answer.admitted
        return
    blocks = -(-case["prompt_tokens"] // case["block_size"])
    config = case["config"] | {"track_prefill_tokens": case["track_prefill_tokens"]}
    selector = Selector(policy(config), case["block_size"], len(workers))
    of = lambda name: [worker.get(name, 0) for worker in workers]  # noqa: E731
    selector.load(
        [
            active + added - blocks
            for active, added in zip(
                of("active_decode_blocks"), of("additional_active_blocks"), strict=True
            )
        ],
        of("active_prefill_tokens"),
        of("active_requests"),
    )
    _, _, costs = selector.send(
        case["prompt_tokens"], set(range(len(workers))), [*map(signals_of, workers)]
    )
    excess = EXCESS_BLOCKS + EXCESS_REQUESTS * config["decode_active_request_weight"]
    least = 0 if not config["track_prefill_tokens"] else -excess  # what the excess hides
    ours = {
        str(worker["worker"]): max(cost - excess, least) - not_counted(case, worker)
        for worker, cost in zip(workers, costs, strict=True)
    }
    assert ours == pytest.approx(case["costs_3_decimals"], rel=0, abs=WITHIN)
    selected = case["selected"]
    assert ours[str(selected["worker"])] == pytest.approx(min(ours.values()), rel=0, abs=1e-6)
    assert selected["cost"] == pytest.approx(min(ours.values()), rel=0, abs=1e-6)


@pytest.mark.parametrize("case", DRAWS, ids=lambda case: f"draws-{case['id']}")
def test_draws_at_a_temperature(case: Case) -> None:
    """Within five standard deviations. Prompts of a block without prefill cost, so loads alone."""
    costs = [worker["cost"] for worker in case["workers"]]
    chosen = router.KvCost(prefill_load_scale=0, temperature=case["temperature"])
    selector = Selector(chosen, 16, len(costs))
    scale = 1000  # loads are whole blocks
    for worker in sorted(range(len(costs)), key=costs.__getitem__):
        # Workers without a load are the best, so those to come are drawn.
        request, _, _ = selector.send((EXCESS_BLOCKS + round(costs[worker] * scale)) * 16, {worker})
        selector.router.first_token(request)
    trials = 4000
    counts = [0] * len(costs)
    for _ in range(trials):
        request, worker, _ = selector.send(1, set(range(len(costs))))
        counts[worker] += 1
        selector.router.finished(request)
    for ours, theirs in zip(counts, case["counts"], strict=True):
        share = (ours + theirs) / (trials + case["trials"])
        spread = (share * (1 - share) * (1 / trials + 1 / case["trials"])) ** 0.5
        assert abs(ours / trials - theirs / case["trials"]) <= 5 * spread + 1e-12


@pytest.mark.parametrize("case", TRACES, ids=lambda case: f"trace-{case['id']}")
def test_costs_while_requests_come_and_go(case: Case) -> None:
    block = case["block_size"]
    selector = Selector(policy(case["config"]), block, case["workers"])
    sent: dict[int, Request] = {}
    for event in case["events"]:
        if "first_token" in event:
            selector.router.first_token(sent[event["first_token"]])
        elif "finished" in event:
            selector.router.finished(sent[event["finished"]])
        else:
            request, _, costs = selector.send(
                event["prompt_blocks"] * block,
                {event["chosen"]},
                [InstanceSignals(cached_blocks=blocks) for blocks in event["overlap_blocks"]],
            )
            sent[event["arrives"]] = request
            there = event["costs_3_decimals"]
            assert {str(i): cost for i, cost in enumerate(costs)} == pytest.approx(
                there, rel=0, abs=WITHIN
            )
            assert there[str(event["chosen"])] == min(there.values())
