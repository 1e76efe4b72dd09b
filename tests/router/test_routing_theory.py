"""Known results on routing by score: concentration, stale signals, and reuse of prefixes.

The settings of the experiments are those of BLIS's hypotheses (H3, H6, H7, H9, H21, H29), whose
own figures are quoted where ours must be near them.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.runs import simulated

from spillway import Result, Simulation, instance, profiles, router, simulate, trace, workload
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = 16
SEEDS = (42, 123, 456)


def constant(requests_per_s: float, num_requests: int, output_tokens: int) -> workload.Synthetic:
    """Poisson arrivals of prompts of 512 tokens."""
    return workload.Synthetic(
        requests_per_s=requests_per_s,
        num_requests=num_requests,
        clients=[
            workload.Client(
                input_tokens=workload.Fixed(tokens=512),
                output_tokens=workload.Fixed(tokens=output_tokens),
            )
        ],
    )


def figure(result: Result, name: str) -> float:
    value = result.summary()[name]
    assert value is not None
    return float(value)


def counts(result: Result) -> list[int]:
    """Requests per instance."""
    numbers = np.bincount(result.requests["instance"], minlength=len(result.instances))
    return [int(number) for number in numbers]


def jain(numbers: Sequence[int]) -> float:
    return sum(numbers) ** 2 / (len(numbers) * sum(number**2 for number in numbers))


def on_read(period_ms: float) -> Any:
    return {"kind": "on_read", "period_s": period_ms / 1000} if period_ms else "live"


def affinity(prefix_weight: float, queue_weight: float) -> router.Weighted:
    """Prefix affinity against the shortest queue, the queue being all that an instance has."""
    return router.Weighted(
        scorers=[
            router.PrefixAffinity(weight=prefix_weight),
            router.QueueDepth(weight=queue_weight, load="effective"),
        ]
    )


# --- affinity against the queue (H21) -------------------------------------------------------------

GROUPS = workload.Synthetic(
    requests_per_s=100,
    num_requests=200,
    clients=[
        workload.Client(
            name=f"client {i}",
            input_tokens=workload.Fixed(tokens=64),
            output_tokens=workload.Fixed(tokens=64),
            prefix_group=f"group {i}",
            prefix_tokens=256,
        )
        for i in range(10)
    ],
)


def test_affinity_alone_sends_all_to_one_instance() -> None:
    for requests in (GROUPS, constant(100, 200, 64)):
        alone = router.Weighted(scorers=["prefix_affinity"])
        result = simulated(
            42, workload=requests, router=alone, instances=BLIS_SERVER.replace(count=4)
        )
        assert counts(result) == [200, 0, 0, 0]
        assert jain(counts(result)) == 0.25


def test_any_weight_of_the_queue_spreads_unseen_prompts() -> None:
    """Only the first of each group is free to go; how small the weight is does not matter."""
    runs = [
        simulated(42, workload=GROUPS, router=policy, instances=BLIS_SERVER.replace(count=4))
        for policy in (affinity(100, 1), affinity(100, 0.001), affinity(100, 1e-9))
    ]
    first = runs[0].requests["instance"].tolist()
    assert min(counts(runs[0])) > 0
    assert jain(counts(runs[0])) > 0.6
    assert all(result.requests["instance"].tolist() == first for result in runs[1:])


# --- the concentration law ------------------------------------------------------------------------


def goes_to_the_warm_instance(
    prefix_weight: float,
    queue_weight: float,
    shared_blocks: int,
    total_blocks: int,
    *,
    warm: int,
    count: int,
) -> bool:
    """Whether the second request of a group follows the first, which runs on instance `warm`.

    Before it, strangers go to the instances before `warm`, one each, and are done in time.
    """
    tokens = [BLOCK] * warm + [shared_blocks * BLOCK, total_blocks * BLOCK]
    requests = trace(
        arrival_s=[*[0.0] * warm, 0.0, 10.0],
        input_tokens=tokens,
        output_tokens=[*[1] * warm, 5000, 1],
        prefix_group=[*[""] * warm, "A", "A"],
        prefix_tokens=[*[0] * warm, shared_blocks * BLOCK, shared_blocks * BLOCK],
    )
    result = simulated(
        workload=requests,
        router=affinity(prefix_weight, queue_weight),
        instances=BLIS_SERVER.replace(count=count),
        metrics={"traced_candidates": count},
    )
    chosen = result.requests["instance"].tolist()
    assert chosen[: warm + 1] == list(range(warm + 1))
    log = result._output["decisions"]
    loads = {
        int(candidate): int(waiting + running + in_flight)
        for candidate, waiting, running, in_flight in zip(
            log["candidate_instance"][-1],
            log["candidate_waiting"][-1],
            log["candidate_running"][-1],
            log["candidate_in_flight"][-1],
            strict=True,
        )
    }
    assert loads == {i: 2 if i == warm else 0 for i in range(count)}
    assert chosen[-1] in (warm, 0 if warm > 0 else 1)
    return bool(chosen[-1] == warm)


@pytest.mark.parametrize(("warm", "count"), [(0, 2), (0, 4), (1, 2), (3, 4)])
def test_requests_stick_if_the_shared_part_outweighs_the_queue(warm: int, count: int) -> None:
    """With the warm instance's queue score 0 and all others' 1, w_p f against w_q."""
    weights = (0.5, 1, 2, 3, 4, 5, 100)
    total = 8
    ties = sticky = 0
    for prefix_weight in weights:
        for queue_weight in weights:
            for shared in range(1, total + 1):
                pull = Fraction(prefix_weight) * Fraction(shared, total)
                push = Fraction(queue_weight)
                if pull == push:
                    # Exact in floating point too if halves are all there is; else rounding decides.
                    if shared & (shared - 1):
                        continue
                    ties += 1
                is_warm = goes_to_the_warm_instance(
                    prefix_weight, queue_weight, shared, total, warm=warm, count=count
                )
                # Equal scores: the first instance.
                assert is_warm == (pull > push or (pull == push and warm == 0))
                sticky += is_warm
    assert ties > 5
    assert sticky > 50


@pytest.mark.parametrize(
    ("prefix_weight", "queue_weight", "sticky_below"), [(4, 2, 512), (4, 3, 171), (5, 4, 128)]
)
def test_long_prompts_of_their_own_loosen_the_tie(
    prefix_weight: float, queue_weight: float, sticky_below: int
) -> None:
    """512 shared tokens and u others: sticky for u below 512 w_p / w_q - 512, up to a block."""
    for own_blocks in range(1, 40):
        total = 512 // BLOCK + own_blocks
        if Fraction(int(prefix_weight) * 512 // BLOCK, total) == int(queue_weight):
            continue
        is_warm = goes_to_the_warm_instance(
            prefix_weight, queue_weight, 512 // BLOCK, total, warm=0, count=2
        )
        assert is_warm == (own_blocks * BLOCK < sticky_below)


# --- reuse of a shared beginning (H9) -------------------------------------------------------------

PROMPT = 768
PREFIXES = (0, 64, 128, 256, 512)


def shared_beginning(prefix: int, output_tokens: int, num_requests: int = 200) -> workload.Trace:
    """100 requests per second, which differ in what follows the first `prefix` tokens alone."""
    return trace(
        arrival_s=np.cumsum(np.random.default_rng(9).exponential(0.01, num_requests)),
        input_tokens=[PROMPT] * num_requests,
        output_tokens=[output_tokens] * num_requests,
        prefix_group=["A" if prefix else ""] * num_requests,
        prefix_tokens=[prefix] * num_requests,
    )


@pytest.mark.parametrize("prefix", [*PREFIXES, 15, 16, 17, 500])
def test_all_but_the_first_request_hit_the_shared_blocks(prefix: int) -> None:
    result = simulate(Simulation(workload=shared_beginning(prefix, 64), instances=BLIS_SERVER))
    (report,) = result.instances
    assert report["preemptions"] == 0
    assert report["kv_hits"] == 199 * (prefix // BLOCK)
    assert report["kv_lookups"] == 200 * (PROMPT // BLOCK)
    rate = Fraction(199 * (prefix // BLOCK), 200 * (PROMPT // BLOCK))
    assert figure(result, "cache_hit_rate") == pytest.approx(float(rate), abs=1e-15)


@pytest.mark.parametrize("output_tokens", [1, 2, 16, 17, 18, 64, 100])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_all_blocks_count_in_the_accounting_of_blis(prefix: int, output_tokens: int) -> None:
    """Blocks of the answer too: its last token's is taken only to be given back.

    `P + N - 1` tokens fill `(P + N - 1) // 16` blocks, and there is always one more, be it for the
    rest or for the last token.
    """
    simulation = profiles.blis_0_6(
        Simulation(workload=shared_beginning(prefix, output_tokens), instances=BLIS_SERVER)
    )
    result = simulate(simulation)
    (report,) = result.instances
    hits = 199 * (prefix // BLOCK)
    blocks = 200 * ((PROMPT + output_tokens - 1) // BLOCK + 1)
    assert report["preemptions"] == 0
    assert (report["kv_hits"], report["kv_misses"]) == (hits, blocks - hits)
    assert figure(result, "cache_hit_rate") == hits / blocks


def test_hit_rates_are_near_those_of_blis() -> None:
    for prefix, known in zip(PREFIXES, (0.0, 0.0754, 0.1511, 0.3032, 0.6071), strict=True):
        simulation = profiles.blis_0_6(
            Simulation(workload=shared_beginning(prefix, 64), instances=BLIS_SERVER)
        )
        assert figure(simulate(simulation), "cache_hit_rate") == pytest.approx(known, rel=0.02)


@pytest.mark.parametrize("profile", profiles.NAMES)
def test_ttft_falls_with_the_shared_beginning(profile: str) -> None:
    """728, 572, 429, 185 and 30 ms there."""
    ttft_ms = [
        figure(
            simulate(
                profiles.apply(
                    profile,
                    Simulation(workload=shared_beginning(prefix, 64), instances=BLIS_SERVER),
                )
            ),
            "mean_ttft_ms",
        )
        for prefix in PREFIXES
    ]
    assert all(later < earlier for earlier, later in pairwise(ttft_ms))
    assert ttft_ms[-1] < ttft_ms[0] / 10


# --- more instances (H7) --------------------------------------------------------------------------


def p99_of_fleet(requests_per_s: float, count: int, seed: int) -> float:
    simulation = Simulation(
        workload=constant(requests_per_s, 500, 512),
        router="least_loaded",
        instances=BLIS_SERVER.replace(count=count),
    )
    return figure(simulate(simulation, seed), "p99_ttft_ms")


@pytest.mark.parametrize("seed", SEEDS)
def test_overload_falls_faster_than_instances_are_added(seed: int) -> None:
    """1786, 441 and 60 ms there."""
    two, four, eight = (p99_of_fleet(500, count, seed) for count in (2, 4, 8))
    assert two / four > 2
    assert four / eight > 4


@pytest.mark.parametrize("seed", SEEDS)
def test_without_overload_instances_do_not_help(seed: int) -> None:
    """A ratio of 1.06 there."""
    assert 0.95 < p99_of_fleet(100, 4, seed) / p99_of_fleet(100, 8, seed) < 1.25


# --- the age of the signals (H3, H29) -------------------------------------------------------------

ONLY_MEMORY = router.Weighted(scorers=["kv_utilization"])
PERIODS_MS = (0, 1, 5, 10, 50, 100, 500)


def mean_p99(policy: Any, period_ms: float, profile: str | None = None) -> float:
    """Over seeds; a profile would replace what the policy takes for the queue."""
    simulation = Simulation(
        workload=constant(195, 500, 512),
        router=policy,
        signals=on_read(period_ms),
        instances=BLIS_SERVER.replace(count=4),
    )
    if profile:
        simulation = profiles.apply(profile, simulation)
    return float(np.mean([figure(simulate(simulation, seed), "p99_ttft_ms") for seed in range(8)]))


@pytest.mark.parametrize("profile", profiles.NAMES)
def test_memory_alone_gets_worse_with_its_age(profile: str) -> None:
    """64 ms up to a period of 5 ms there, then 73, 230, 415 and 1163 ms."""
    p99_ms = [mean_p99(ONLY_MEMORY, period, profile) for period in PERIODS_MS]
    # Below a step's duration the age is noise.
    fresh = p99_ms[:4]
    assert max(fresh) < 1.5 * min(fresh)
    assert all(later > 1.2 * earlier for earlier, later in pairwise(p99_ms[3:]))
    assert p99_ms[-1] > 5 * max(p99_ms[0], p99_ms[3])


def test_requests_in_flight_keep_the_queue_score_good() -> None:
    """The router counts them itself, without delay; those waiting are as reported."""
    counted, reported = (
        router.Weighted(scorers=[router.QueueDepth(load=load)]) for load in ("effective", "waiting")
    )
    for policy in (counted, "least_loaded"):
        assert mean_p99(policy, 500) < 1.5 * mean_p99(policy, 0)
    assert mean_p99(reported, 500) > 5 * mean_p99(reported, 0)
    assert mean_p99(ONLY_MEMORY, 500) > 5 * mean_p99(counted, 500)


def largest_share(policy: Any, period_ms: float, seed: int) -> float:
    simulation = Simulation(
        workload=constant(1000, 400, 64),
        router=policy,
        signals=on_read(period_ms),
        instances=BLIS_SERVER.replace(count=4),
    )
    return max(counts(simulate(simulation, seed))) / 400


@pytest.mark.parametrize("seed", SEEDS)
def test_stale_memory_makes_a_herd(seed: int) -> None:
    """A burst of 0.4 s: all decisions follow the same reading until there is a new one."""
    shares = [largest_share(ONLY_MEMORY, period, seed) for period in (0, 300, 1000)]
    assert shares[0] < 0.6
    assert shares[1] > shares[0]
    # Zeros until the first period has passed: equal scores, the first instance.
    assert shares[2] == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_least_loaded_makes_no_herd(seed: int) -> None:
    """The router's count of requests in flight includes its decisions since the last reading."""
    for period_ms in (0, 10, 100, 300, 1000):
        assert largest_share("least_loaded", period_ms, seed) < 0.27


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scorer", ["vllm_dp", "running_requests"])
def test_stale_counts_of_the_instances_make_a_herd(scorer: str, seed: int) -> None:
    reported = router.Weighted(scorers=[scorer])
    assert largest_share(reported, 0, seed) < 0.5
    assert largest_share(reported, 300, seed) > 0.7


# --- regret (H6) ----------------------------------------------------------------------------------


@pytest.mark.parametrize("requests_per_s", [100, 200])
def test_only_round_robin_regrets(requests_per_s: float) -> None:
    """Short and long requests, 70 to 30."""
    requests = workload.Synthetic(
        requests_per_s=requests_per_s,
        num_requests=200,
        clients=[
            workload.Client(
                name=name,
                rate_fraction=fraction,
                input_tokens=workload.Fixed(tokens=tokens),
                output_tokens=workload.Fixed(tokens=answer),
            )
            for name, fraction, tokens, answer in (("short", 0.7, 64, 32), ("long", 0.3, 1024, 512))
        ],
    )

    def regret(policy: Any) -> float:
        simulation = Simulation(
            workload=requests,
            router=policy,
            instances=BLIS_SERVER.replace(count=4, latency=instance.Linear()),
            metrics={"traced_candidates": 4},
        )
        return figure(simulate(simulation, 42), "mean_regret")

    assert regret(router.Weighted()) == 0
    assert regret("least_loaded") == 0
    assert regret("round_robin") > 1


# --- cost by blocks -------------------------------------------------------------------------------

HEAVY_TAILED = workload.Client(
    input_tokens=workload.Lognormal(mu=6, sigma=1.5, max_tokens=20_000),
    output_tokens=workload.Fixed(tokens=1),
)
BY_BLOCKS = router.KvCost(overlap_credit=0)


@pytest.mark.parametrize("seed", range(8))
def test_burst_is_spread_to_within_one_prompt(seed: int) -> None:
    """The least loaded machine is never off by more than one job (Graham 1966)."""
    burst = workload.Synthetic(requests_per_s=1e6, num_requests=400, clients=[HEAVY_TAILED])
    unevenness = []
    for policy in (BY_BLOCKS, "round_robin"):
        result = simulated(
            seed, workload=burst, router=policy, instances=BLIS_SERVER.replace(count=4)
        )
        # No request has a first token before all are routed.
        assert result.requests["arrival_s"][-1] < result.requests["ttft_s"].min()
        blocks = np.ceil(result.requests["input_tokens"] / BLOCK)
        assert blocks.max() > 300
        unevenness.append(np.ptp(np.bincount(result.requests["instance"], weights=blocks)))
    by_blocks, in_turns = unevenness
    assert by_blocks <= blocks.max()
    assert by_blocks < 0.5 * in_turns


@pytest.mark.parametrize("seed", range(8))
def test_cost_by_blocks_keeps_short_prompts_from_queueing_behind_long_ones(seed: int) -> None:
    """At a load where round robin has some instance busy while another is idle."""
    requests = workload.Synthetic(requests_per_s=24, num_requests=1000, clients=[HEAVY_TAILED])
    by_blocks, in_turns = (
        simulated(seed, workload=requests, router=policy, instances=BLIS_SERVER.replace(count=4))
        for policy in (BY_BLOCKS, "round_robin")
    )
    for name in ("mean_ttft_ms", "p90_ttft_ms", "p99_ttft_ms"):
        assert figure(by_blocks, name) < figure(in_turns, name)
    assert figure(by_blocks, "mean_ttft_ms") < 0.9 * figure(in_turns, "mean_ttft_ms")


# --- held by a filter -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_affinity_filter_raises_the_hit_rate_of_many_groups(seed: int) -> None:
    """60 groups of 50 blocks on four instances that hold 30 of them each."""
    requests = workload.Synthetic(
        requests_per_s=40,
        num_requests=1500,
        clients=[
            workload.Client(
                name=f"client {i}",
                input_tokens=workload.Exponential(mean_tokens=100),
                output_tokens=workload.Fixed(tokens=20),
                prefix_group=f"group {i}",
                prefix_tokens=800,
            )
            for i in range(60)
        ],
    )

    def served(*filters: Any) -> Result:
        policy = router.Weighted(
            filters=filters, scorers=["load_balance"], picker=router.Best(ties="first")
        )
        fleet = {"count": 4, "num_kv_blocks": 1500}
        return simulate(Simulation(workload=requests, router=policy, instances=fleet), seed)

    free = served()
    held, loose, let_go = (
        served(router.PrefixCacheAffinity(exploration=exploration))
        for exploration in (0.01, 0.3, 1)
    )
    rates = [figure(result, "cache_hit_rate") for result in (free, loose, held)]
    assert rates[0] < rates[1] < rates[2]
    assert rates[2] > 1.5 * rates[0]
    assert figure(held, "mean_ttft_ms") < figure(free, "mean_ttft_ms")
    # The groups are many enough to be spread without looking at the load.
    assert jain(counts(held)) > 0.95
    assert let_go.digest == free.digest
