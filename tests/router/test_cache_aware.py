"""SGLang's cache-aware routing: the longest match while loads are balanced."""

from __future__ import annotations

import random

import pytest
from support.effort import trials
from support.routing import chosen
from support.runs import MS, run_ns, steady

from spillway import Simulation, router, simulate, testing, workload
from spillway.testing import InstanceSignals, Request

BLOCK = 16


def expected(
    policy: router.CacheAware,
    tokens: int,
    in_flight: list[int],
    sent_tokens: list[int],
    remembered: list[int],
) -> int:
    """The rule in plain words."""
    most, least = max(in_flight), min(in_flight)
    if most - least > policy.balance_abs_threshold and most > policy.balance_rel_threshold * least:
        return in_flight.index(least)
    longest = max(sent_tokens)
    if longest > policy.cache_threshold * tokens:
        return sent_tokens.index(longest)
    return remembered.index(min(remembered))


@pytest.mark.parametrize("seed", trials(120))
def test_choice_is_that_of_the_rule(seed: int) -> None:
    rng = random.Random(seed)
    policy = router.CacheAware(
        cache_threshold=rng.choice((0, 0.3, 0.5, 1)),
        balance_abs_threshold=rng.choice((0, 2, 64)),
        balance_rel_threshold=rng.choice((1, 1.5, 4)),
    )
    around = Simulation().with_({"prefix_index.capacity_blocks": 10**6})
    built = testing.build(policy, simulation=around)
    count = rng.randint(1, 4)
    remembered = [0] * count
    sent: list[dict[str, int]] = [{} for _ in range(count)]
    for _ in range(40):
        group = rng.choice("ABC")
        shared = {"A": 2, "B": 5, "C": 9}[group] * BLOCK
        tokens = shared + BLOCK * rng.randint(0, 12) + rng.randint(0, 15)
        in_flight = [rng.choice((0, 1, 3, 10, 80)) for _ in range(count)]
        decision = built.decide(
            Request(input_tokens=tokens, prefix_group=group, prefix_tokens=shared),
            instances=[InstanceSignals(in_flight=load) for load in in_flight],
        )
        matches = [there.get(group, 0) for there in sent]
        assert decision.instance == expected(policy, tokens, in_flight, matches, remembered)
        # Shared blocks are remembered once, those of a prompt alone each time.
        new = shared // BLOCK if group not in sent[decision.instance] else 0
        remembered[decision.instance] += new + tokens // BLOCK - shared // BLOCK
        sent[decision.instance][group] = shared


def hot(policy: router.CacheAware, share: float = 1.0) -> list[int]:
    """Requests that each of four servers completes, of a load that one of them cannot serve."""
    groups = [("hot", share), ("cold", 1 - share)]
    clients = [
        workload.Client(
            name=name,
            rate_fraction=part,
            prefix_group=name,
            prefix_tokens=480,
            input_tokens=workload.Fixed(tokens=40),
        )
        for name, part in groups
        if part
    ]
    simulation = Simulation(
        workload=workload.Synthetic(clients=clients, requests_per_s=40, num_requests=400),
        instances={"count": 4, "max_num_seqs": 1, "latency": steady(50)},
        router=policy,
    )
    return [instance["completed"] for instance in simulate(simulation).instances]


def test_longest_prefix_match_alone_starves_the_other_servers() -> None:
    """One popular prefix: without its gate on loads one server gets everything."""
    longest = router.CacheAware(balance_abs_threshold=10**9)
    assert hot(longest) == [400, 0, 0, 0]
    gated = hot(router.CacheAware(balance_abs_threshold=8))
    assert min(gated) > 50


def test_longest_prefix_match_makes_cold_prompts_wait_for_no_one() -> None:
    """Prompts of another prefix have a server of their own, and most servers nothing to do."""
    served = hot(router.CacheAware(balance_abs_threshold=10**9), share=0.9)
    assert sorted(served)[:2] == [0, 0]
    assert max(served) > 300


def test_loads_are_the_requests_in_flight() -> None:
    result = run_ns(
        [0, 1, 2, 3, 40 * MS],
        input_tokens=64,
        prefixes=[("A", 64)] * 5,
        instances={"count": 2, "latency": steady(10)},
        router=router.CacheAware(balance_abs_threshold=1),
    )
    # Two in flight on the first exceed none on the second by more than one.
    assert chosen(result) == [0, 0, 1, 0, 0]
