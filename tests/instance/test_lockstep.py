"""Ranks in lockstep: their steps start and end together and last as long as the longest of them.

The twin of `tests/instance/test_step_loop_oracle.py` compares random runs; here are those that can
be calculated by hand.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from support.effort import in_parts, often, trials
from support.engine_trials import server_of
from support.runs import MS, instants_ns
from support.twins import instance as oracle

from spillway import ConfigError, Result, Simulation, fingerprint, instance, simulate, trace
from spillway.config.profiles import BLIS_SERVER

LATENCY = instance.Linear(
    alpha0_us=0,
    alpha_input_us=0,
    alpha_output_us=0,
    beta0_us=5000,
    beta_prefill_us=20,
    beta_decode_us=0,
)
"""Requests enter at once. A step takes 5 ms, and 20 µs more for every prompt token."""


def run(
    arrival_ms: list[float],
    input_tokens: list[int],
    output_tokens: list[int],
    *,
    ranks: int = 2,
    lockstep: bool = True,
    seed: int = 0,
    reference: bool = False,
    more: dict[str, Any] | None = None,
    **group: Any,
) -> Result:
    """A run before one instance; requests that come one at a time go to the ranks in turn."""
    settings: dict[str, Any] = {"latency": LATENCY, "data_parallel_size": ranks} | group
    simulation = Simulation(
        workload=trace(
            arrival_s=[ms / 1e3 for ms in arrival_ms],
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        ),
        instances=BLIS_SERVER.replace(**settings, lockstep_ranks=lockstep),
        **(more or {}),
    )
    return simulate(simulation, seed, reference=reference)


SPANS = {"scheduled": "scheduling_delay_s", "first_token": "ttft_s", "finished": "e2e_s"}


def ns_of(result: Result, stamp: str) -> list[int]:
    instants = instants_ns(result, SPANS[stamp])
    assert None not in instants
    return [at for at in instants if at is not None]


def ms_of(result: Result, stamp: str) -> list[float]:
    return [at / MS for at in ns_of(result, stamp)]


def test_a_common_step_lasts_as_long_as_the_longest() -> None:
    requests = [0, 0], [100, 500], [3, 2]
    apart = run(*requests, lockstep=False)
    # Rank 0: 5 + 2 = 7, then 5 each. Rank 1: 5 + 10 = 15, then 5.
    assert ms_of(apart, "first_token") == [7, 15]
    assert ms_of(apart, "finished") == [17, 20]
    together = run(*requests)
    assert together.requests["rank"].tolist() == [0, 1]
    # The first step lasts 15 ms, the next two 5 ms; rank 1 has no work in the last one.
    assert ms_of(together, "first_token") == [15, 15]
    assert ms_of(together, "finished") == [25, 20]
    (report,) = together.instances
    assert report["steps"] == apart.instances[0]["steps"] == 5
    assert report["stepping"] == "plain"


def test_an_idle_rank_delays_nothing() -> None:
    requests = [0, 3, 400], [100, 30, 700], [30, 7, 1]
    alone = run(*requests, ranks=1)
    everywhere = run(*requests, ranks=8)
    assert everywhere.requests["rank"].tolist() == [0, 1, 0]
    first, last = ([ms_of(run, "finished")[row] for run in (alone, everywhere)] for row in (0, 2))
    assert last == [419, 419]
    # The second prompt is computed in a step of the first, or beside it.
    assert first == [7 + 5 * 29 + 0.6, 7 + 5 * 29 + 0.6]
    # Between two busy times no rank steps.
    assert everywhere.instances[0]["steps"] == 30 + 7 + 1


@pytest.mark.parametrize("completion", ["step_end", "step_start"])
def test_a_request_at_an_idle_rank_joins_at_the_next_common_step(completion: str) -> None:
    result = run([0, 3, 30], [500, 100, 50], [2, 2, 1], completion=completion)
    assert result.requests["rank"].tolist() == [0, 1, 0]
    # 0 to 15: the first prompt. 15 to 22: the second one beside a token of the first. 22 to 27: a
    # token of the second. 30: a step starts at once, since no rank has work.
    assert ms_of(result, "scheduled") == [0, 15, 30]
    assert ms_of(result, "first_token") == [15, 22, 36]
    assert ms_of(result, "finished") == [22, 27, 36]


def test_entries_of_the_instant_at_which_a_step_ends_join_the_next_one() -> None:
    result = run([0, 15, 15], [500, 100, 200], [3, 1, 1])
    # 15: the second and third prompt, 7 and 9 ms, on the idle rank and on either.
    assert ms_of(result, "scheduled") == [0, 15, 15]
    by_rank = result.requests["rank"].tolist()
    assert by_rank[:2] == [0, 1]
    # The third has 200 tokens, alone (9 ms) or with the 100 of the second (11 ms).
    length = 11 if by_rank[2] == 1 else 9
    assert ms_of(result, "finished") == [15 + length + 5, 15 + length, 15 + length]


def test_a_request_leaves_the_queue_of_an_idle_rank_at_once() -> None:
    result = run([0, 3], [500, 100], [2, 2], more={"reaction": {"timeout_s": 0.01, "retries": []}})
    # The first is in the batch until the step ends at 15; the second waits at the idle rank.
    assert result.requests["outcome"].tolist() == ["cancelled", "cancelled"]
    assert result.requests["output_tokens"].tolist() == [1, 0]
    assert np.isnan(result.requests["scheduling_delay_s"][1])
    (report,) = result.instances
    assert report["steps"] == 1
    # The second request waited from 3 to 13; the last event is the end of the step.
    assert report["mean_waiting"] == pytest.approx(10 / 15)


def test_a_request_of_the_batch_leaves_with_the_common_step() -> None:
    """A request whose own step would end at 7 ms is withdrawn at 10 and leaves at 15."""
    reaction = {"reaction": {"timeout_s": 0.01, "retries": []}}
    result = run([0, 0], [100, 500], [9, 9], more=reaction)
    assert result.requests["output_tokens"].tolist() == [1, 1]
    apart = run([0, 0], [100, 500], [9, 9], more=reaction, lockstep=False)
    assert apart.requests["output_tokens"].tolist() == [2, 1]


@pytest.mark.parametrize("seeds", in_parts(trials(300), 2))
def test_withdrawals_are_those_of_the_twin(seeds: range) -> None:
    """Clients that give up, at instants at which other things happen, too."""
    shown = dict.fromkeys(("cancelled", "cancelled with tokens", "completed", "preempted"), 0)
    for seed in seeds:
        rng = random.Random(seed)
        n, timeout_ms = rng.randint(5, 30), rng.choice([5, 20, 80, 150])
        arrival_ms = np.cumsum([rng.choice([0, 1, 5, 7, 30]) for _ in range(n)]).tolist()
        lengths = [
            [rng.choice(choices) for _ in range(n)] for choices in ([50, 100, 325], [1, 5, 20])
        ]
        simulation = Simulation(
            workload=trace(
                arrival_s=[ms / 1e3 for ms in arrival_ms],
                input_tokens=lengths[0],
                output_tokens=lengths[1],
            ),
            reaction={"timeout_s": timeout_ms / 1e3, "retries": []},
            instances=BLIS_SERVER.replace(
                data_parallel_size=rng.randint(2, 4),
                lockstep_ranks=True,
                latency=LATENCY,
                max_num_batched_tokens=rng.choice([64, 500, 2048]),
                num_kv_blocks=rng.choice([24, 40, 1000]),
                async_scheduling=rng.random() < 0.5,
            ),
        )
        result = simulate(simulation)
        assert result.digest == simulate(simulation, reference=True).digest
        requests = [
            oracle.Request(str(row), at * MS, inputs, outputs, cancelled_ns=(at + timeout_ms) * MS)
            for row, (at, inputs, outputs) in enumerate(zip(arrival_ms, *lengths, strict=True))
        ]
        of_rank = result.requests["rank"].tolist()
        ranks = range(simulation.instances[0].data_parallel_size)
        rows = [[row for row in range(n) if of_rank[row] == rank] for rank in ranks]
        runs = oracle.simulate_ranks(
            server_of(simulation),
            [[requests[row] for row in rows_of_rank] for rows_of_rank in rows],
        )
        first_token = instants_ns(result, "ttft_s")
        for rows_of_rank, its in zip(rows, runs, strict=True):
            for row, twin in zip(rows_of_rank, its.outcomes, strict=True):
                assert result.requests["outcome"][row] == twin.outcome
                assert result.requests["output_tokens"][row] == twin.emitted
                assert result.requests["preemptions"][row] == twin.preemptions
                assert first_token[row] == twin.first_token_ns
                shown[twin.outcome] += 1
                shown["cancelled with tokens"] += twin.outcome == "cancelled" and twin.emitted > 0
                shown["preempted"] += twin.preemptions
        assert result.instances[0]["steps"] == sum(its.steps for its in runs)
    assert min(shown.values()) >= often(30), shown


def test_a_plan_is_made_when_the_common_step_starts() -> None:
    """One step ahead: an arrival at an idle rank still joins the next common step."""
    result = run([0, 3], [500, 100], [4, 2], async_scheduling=True)
    assert ms_of(result, "first_token") == [15, 22]
    assert ms_of(result, "finished") == [15 + 7 + 5 + 5, 27]
    # At a busy rank it joins one step later: the next one is planned.
    result = run([0, 3, 4], [500, 100, 100], [9, 9, 1], async_scheduling=True, ranks=2)
    assert result.requests["rank"].tolist() == [0, 1, 0]
    assert ms_of(result, "first_token") == [15, 22, 29]


def test_noise_is_that_of_the_slowest_rank() -> None:
    """A common step lasts the maximum of what the ranks' steps last apart, step by step."""
    noisy = instance.Jittered(mean=LATENCY, cv=0.5)

    def ends_ns(tokens: int, *, lockstep: bool) -> list[int]:
        result = run([0, 0], [16, 16], [tokens] * 2, latency=noisy, lockstep=lockstep, seed=5)
        assert result.requests["rank"].tolist() == [0, 1]
        return ns_of(result, "finished")

    apart = np.array([ends_ns(tokens, lockstep=False) for tokens in range(1, 9)])
    steps = np.diff(apart, axis=0, prepend=0)
    assert {0, 1} == set(steps.argmax(axis=1).tolist())
    expected = np.cumsum(steps.max(axis=1))
    for tokens in range(1, 9):
        assert ends_ns(tokens, lockstep=True) == [expected[tokens - 1]] * 2


def test_one_rank_is_no_different() -> None:
    requests = [0, 3, 30], [500, 100, 50], [200, 20, 100]
    with_it, without = (run(*requests, ranks=1, lockstep=lockstep) for lockstep in (True, False))
    assert with_it.digest == without.digest
    assert with_it.instances[0]["stepping"] == "jumps"


def test_step_by_step_and_request_by_request() -> None:
    rng = np.random.default_rng(7)
    requests: Any = (
        np.cumsum(rng.exponential(8, 80)).tolist(),
        rng.integers(1, 400, 80).tolist(),
        rng.integers(1, 90, 80).tolist(),
    )
    for ranks in (2, 5):
        result = run(*requests, ranks=ranks, num_kv_blocks=60)
        assert result.digest == run(*requests, ranks=ranks, num_kv_blocks=60, reference=True).digest
        assert result.summary()["preemptions"] > 0


def test_it_is_part_of_a_simulation_only_where_it_is_set() -> None:
    plain = Simulation(instances=BLIS_SERVER.replace(data_parallel_size=2))
    same = plain.with_({"instances[0].lockstep_ranks": False})
    other = plain.with_({"instances[0].lockstep_ranks": True})
    assert fingerprint(plain) == fingerprint(same) != fingerprint(other)


def test_other_plants_have_no_steps() -> None:
    plant = instance.ProcessorSharing(concurrency=[0], e2e_s=[1], ttft_s=[0.1])
    with pytest.raises(ConfigError, match=r"lockstep_ranks = true: must be false without plant"):
        Simulation(instances=BLIS_SERVER.replace(plant=plant, lockstep_ranks=True))
