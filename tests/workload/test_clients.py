"""Client behavior: retries, timeouts, closed loops."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.effort import often, trials
from support.runs import fixed, flat, ns, outcomes, retry, run, simulated

from spillway import (
    ConfigError,
    LivelockError,
    Result,
    Simulation,
    gateway,
    instance,
    simulate,
    workload,
)

ONE_PERMIT = gateway.Gateway(limit=fixed(1))
NOBODY = gateway.Gateway(admission="reject_all")


def reaction(**settings: Any) -> workload.Reaction:
    return workload.Reaction(**settings)


def gaussian(mean: int) -> workload.Gaussian:
    return workload.Gaussian(
        mean_tokens=mean, std_dev_tokens=mean / 2, min_tokens=1, max_tokens=2 * mean
    )


def uniform(seed: int, row: int, attempt: int) -> float:
    """The draw that spreads a wait, from NumPy's own generator."""
    bits = np.random.Philox(key=[seed, 10], counter=[0, row, attempt, 0])
    return float(np.random.Generator(bits).random())


# --- retries --------------------------------------------------------------------------------------


def test_a_rejected_request_is_asked_again_and_counts_once() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=16, refill_tokens_per_s=16)
    result = run([0, 0], gateway=gateway.Gateway(admission=bucket), reaction=retry())
    requests = result.requests
    assert requests["attempts"].tolist() == [1, 2]
    assert ns(requests["arrival_s"]) == [0, 0]
    assert ns(requests["ttft_s"]) == [250_000_000, 1_250_000_000]  # from the first attempt on
    assert ns(requests["queue_s"]) == [0, 0]  # of the last one
    ledger = result.ledger
    assert ledger["logical_requests"] == 2
    assert ledger["attempts"] == 3
    assert ledger["rejected"] == {"insufficient_tokens": 1}
    assert ledger["completed"] == result.summary()["completed"] == 2
    assert result.summary()["offered"] == 2


@pytest.mark.parametrize(
    ("settings", "waits"),
    [
        ({"max_attempts": 4}, [1, 2, 4]),
        ({"max_attempts": 4, "multiplier": 1}, [1, 1, 1]),
        ({"max_attempts": 5, "backoff_s": 0.5, "max_backoff_s": 1.5}, [0.5, 1, 1.5, 1.5]),
        ({"max_attempts": 1}, []),
    ],
)
def test_waits_grow_up_to_the_longest(settings: dict[str, float], waits: list[float]) -> None:
    result = run([0], gateway=NOBODY, reaction=retry(**settings))
    assert result._output["end_s"] == sum(waits)
    assert result.requests["attempts"].tolist() == [1 + len(waits)]
    assert result.ledger["rejected"] == {"reject_all": 1 + len(waits)}


@pytest.mark.parametrize(
    ("jitter", "spread"),
    [
        ("none", lambda wait, _: wait),
        ("full", lambda wait, u: wait * u),
        ("equal", lambda wait, u: wait * (0.5 + 0.5 * u)),
        ("additive", lambda wait, u: wait + 1 * u),
    ],
)
def test_jitter_spreads_the_waits(jitter: str, spread: Any) -> None:
    result = run([0], gateway=NOBODY, seed=7, reaction=retry(jitter=jitter, max_attempts=3))
    waits = [spread(1, uniform(7, 0, 1)), spread(2, uniform(7, 0, 2))]
    assert result._output["end_s"] == pytest.approx(sum(waits), abs=2e-9)


def test_the_first_rule_that_fits_the_cause_decides() -> None:
    rules = [
        workload.Retry(on=["queue_full"], max_attempts=1),
        workload.Retry(on=["saturated"], max_attempts=5, backoff_s=0.125, jitter="none"),
        workload.Retry(max_attempts=9),
    ]
    assert run([0], gateway=NOBODY, reaction=reaction(retries=rules)).ledger["attempts"] == 5
    full = gateway.Gateway(limit=fixed(1), bands=[gateway.Band(queue={"max_requests": 1})])
    result = run([0, 0, 0], gateway=full, reaction=reaction(retries=rules))
    assert Counter(outcomes(result)) == {"completed": 2, "rejected": 1}
    assert result.ledger["attempts"] == 3


def test_unservable_requests_are_not_retried() -> None:
    tiny = instance.InstanceGroup(num_kv_blocks=2)
    result = run([0], instances=tiny, input_tokens=1000, reaction=retry())
    assert result.requests["reason"].tolist() == ["unservable"]
    assert result.ledger["attempts"] == 1


def test_a_budget_bounds_the_retries() -> None:
    n, ratio, burst = 200, 0.25, 4
    result = run(
        np.arange(n) * 0.1,
        gateway=NOBODY,
        reaction=retry(max_attempts=2, backoff_s=0.05, budget_ratio=ratio, budget_burst=burst),
    )
    budget, retries = float(burst), 0
    for _ in range(n):
        budget = min(burst, budget + ratio)
        if budget >= 1:
            budget -= 1
            retries += 1
    assert n * ratio < retries < n * ratio + burst + 1
    assert result.ledger["attempts"] == n + retries


def test_retries_that_wait_are_limited() -> None:
    """Rejected at once, nothing is under way: as many may wait as in any case."""
    n, wait, most = 200, 0.953, 3
    result = run(
        np.arange(n) * 0.1,
        gateway=NOBODY,
        reaction=retry(
            max_attempts=2, backoff_s=wait, active_share=0.5, min_concurrent_retries=most
        ),
    )
    waiting: list[float] = []
    retries = 0
    for row in range(n):
        waiting = [end for end in waiting if end > 0.1 * row]
        if len(waiting) < most:
            waiting.append(0.1 * row + wait)
            retries += 1
    assert n / 4 < retries < n / 2
    assert result.ledger["attempts"] == n + retries


@pytest.mark.parametrize(
    ("share", "least", "retries"),
    [(0.2, 3, 20), (0.2, 0, 20), (0.2, 30, 30), (1, 0, 50), (0, 0, 0)],
)
def test_retries_are_a_share_of_what_is_under_way(share: float, least: int, retries: int) -> None:
    """A hundred requests take 10 s; fifty others are rejected meanwhile."""
    bucket = gateway.TokenBucket(capacity_tokens=1600, refill_tokens_per_s=0)
    rules = retry(max_attempts=2, active_share=share, min_concurrent_retries=least)
    result = run(
        np.arange(150) * 1e-3,
        gateway=gateway.Gateway(admission=bucket),
        instances=flat(10),
        reaction=rules,
    )
    assert result.ledger["attempts"] == 150 + retries


@pytest.mark.parametrize("notices_after_s", [0, None])
def test_retries_after_time_outs_are_limited(notices_after_s: float | None) -> None:
    """Of a hundred that time out one after the other, k retry while k < 0.2 (99 - k)."""
    rules = workload.Reaction(
        timeout_s=1,
        retries=[
            workload.Retry(
                max_attempts=2, backoff_s=0.5, jitter="none", active_share=0.2,
                min_concurrent_retries=0,
            )
        ],
    )  # fmt: skip
    slow = flat(1000, 900).replace(notices_departure_after_s=notices_after_s)
    result = run(np.arange(100) * 1e-3, instances=slow, reaction=rules, horizon_s=30)
    assert result.ledger["attempts"] == 116


def test_tenants_with_their_own_reaction_have_their_own_budget() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=1600, refill_tokens_per_s=0)
    rules = retry(max_attempts=2, active_share=0.2, min_concurrent_retries=1)
    tenants = [workload.Tenant(name="a"), workload.Tenant(name="b", reaction=rules)]
    result = run(
        np.arange(150) * 1e-3,
        tenant=["a"] * 100 + ["b"] * 50,
        tenants=tenants,
        gateway=gateway.Gateway(admission=bucket),
        instances=flat(10),
        reaction=rules,
    )
    assert result.ledger["attempts"] == 150 + 1


def test_tenants_may_react_in_their_own_way() -> None:
    patient = workload.Tenant(name="b", reaction=retry(max_attempts=5, multiplier=1))
    tenants = [workload.Tenant(name="a"), patient]
    result = run(
        [0, 0], tenant=["a", "b"], tenants=tenants, gateway=NOBODY, reaction=retry(max_attempts=2)
    )
    assert result.requests["attempts"].tolist() == [2, 5]


# --- patience -------------------------------------------------------------------------------------


def test_a_client_that_waits_in_a_queue_withdraws() -> None:
    result = run([0, 0, 0.9], gateway=ONE_PERMIT, reaction=reaction(timeout_s=1.5))
    requests = result.requests
    assert outcomes(result) == ["completed", "cancelled", "cancelled"]
    assert requests["reason"].tolist() == ["", "client_timeout", "client_timeout"]
    # The second is served from 1 to 1.5 s, the third from then on until 2.4 s.
    assert ns(requests["queue_s"]) == [0, 1_000_000_000, 600_000_000]
    assert result._output["end_s"] == 2.4
    short = run([0, 0], gateway=ONE_PERMIT, reaction=reaction(timeout_s=1))
    assert outcomes(short) == ["completed", "cancelled"]
    assert short.ledger["cancelled"] == 1
    assert short.ledger["dispatched"] == 1


def test_what_completes_as_patience_ends_is_complete() -> None:
    assert outcomes(run([0], reaction=reaction(timeout_s=1))) == ["completed"]
    assert outcomes(run([0], reaction=reaction(timeout_s=0.999999999))) == ["cancelled"]


def test_patience_for_the_first_token_ends_with_it() -> None:
    assert outcomes(run([0], reaction=reaction(first_token_timeout_s=0.25))) == ["completed"]
    result = run([0, 0], gateway=ONE_PERMIT, reaction=reaction(first_token_timeout_s=1.1))
    assert outcomes(result) == ["completed", "cancelled"]


def test_a_withdrawn_attempt_may_be_followed_by_another() -> None:
    result = run([0], reaction=retry(on=["timeout"], max_attempts=3).with_({"timeout_s": 0.5}))
    assert outcomes(result) == ["cancelled"]
    assert result.requests["attempts"].tolist() == [3]
    assert result._output["end_s"] == 0.5 + 1 + 0.5 + 2 + 0.5
    assert result.ledger["cancelled"] == 3


def test_a_deadline_covers_all_attempts() -> None:
    result = run([0], gateway=NOBODY, reaction=retry(max_attempts=9).with_({"deadline_s": 4}))
    assert result.requests["attempts"].tolist() == [3]  # at 0, 1 and 3 s; the next would be at 7 s
    late = run([0, 0], gateway=ONE_PERMIT, reaction=reaction(deadline_s=1.75))
    assert outcomes(late) == ["completed", "cancelled"]


def test_requests_behind_a_withdrawn_head_move_up() -> None:
    """With a limit on tokens the head of the queue can block those behind it."""
    result = run(
        [0, 0, 0.1],
        input_tokens=[60, 80, 10],
        output_tokens=1,
        gateway=gateway.Gateway(limit=gateway.TokenBudget(max_tokens_in_flight=100)),
        reaction=reaction(timeout_s=0.5),
        instances=flat(e2e_s=10, ttft_s=10, reference_output_tokens=1),
    )
    assert ns(result.requests["queue_s"]) == [0, -1, 400_000_000]


def test_an_engine_drops_a_withdrawn_request_between_two_steps() -> None:
    settings: dict[str, Any] = {"input_tokens": 64, "output_tokens": 1000}
    engine = instance.InstanceGroup()
    alone = run([0], instances=engine, **settings)
    result = run([0, 0], instances=engine, reaction=reaction(timeout_s=1), **settings)
    assert alone.summary()["mean_e2el_ms"] > 1000
    assert outcomes(result) == ["cancelled", "cancelled"]
    emitted = result.requests["output_tokens"]
    assert 0 < emitted[0] == emitted[1] < 1000
    assert 1 <= result._output["end_s"] < 1.01
    assert result.ledger["cancelled_in_flight"] == 2


# --- closed loops ---------------------------------------------------------------------------------


def loop(users: int = 1, **settings: Any) -> workload.ClosedLoop:
    return workload.ClosedLoop(users=users, **({"think_time": "constant"} | settings))


def users(arrivals: workload.ClosedLoop, **settings: Any) -> workload.Synthetic:
    lengths: dict[str, Any] = {
        "input_tokens": {"kind": "fixed", "tokens": 16},
        "output_tokens": {"kind": "fixed", "tokens": 10},
    }
    return workload.Synthetic(clients=[workload.Client(arrivals=arrivals, **(lengths | settings))])


def test_a_user_waits_for_the_answer_and_thinks() -> None:
    asked = users(loop(think_time_s=2), num_requests=4)
    result = simulate(Simulation(workload=asked, instances=flat()))
    assert ns(result.requests["arrival_s"]) == [2 * 10**9, 5 * 10**9, 8 * 10**9, 11 * 10**9]


def test_throughput_obeys_the_interactive_response_time_law() -> None:
    """X = N / (R + Z), to the request, where all times are constant."""
    asked = users(loop(users=8, think_time_s=3), duration_s=400)
    result = simulate(Simulation(workload=asked, instances=flat()))
    assert result.summary()["completed"] == 8 * 100  # 400 s ÷ (1 s + 3 s)
    queued = simulate(Simulation(workload=asked, instances=flat(), gateway=ONE_PERMIT))
    # One at a time: the server is the bottleneck, R = N·S - Z.
    assert queued.summary()["p50_e2el_ms"] == pytest.approx(5000)


def test_a_refused_user_goes_on() -> None:
    asked = users(loop(think_time_s=1), num_requests=5)
    result = simulate(Simulation(workload=asked, gateway=NOBODY, instances=flat()))
    assert ns(result.requests["arrival_s"]) == [i * 10**9 for i in range(1, 6)]


def closed(**queue: Any) -> gateway.Gateway:
    return gateway.Gateway(limit=fixed(0), bands=[gateway.Band(queue=queue)])


REFUSALS: dict[str, dict[str, Any]] = {
    "admission": {"gateway": NOBODY},
    "full queue": {"gateway": closed(max_requests=0)},
    # Each of two users evicts the other.
    "eviction": {"gateway": closed(max_requests=1, drop="head")},
    "ingress": {
        "instances": flat().replace(ingress=instance.VllmQueueLimits(max_num_queued_reqs=0))
    },
    "unservable": {"instances": instance.InstanceGroup(num_kv_blocks=1)},
    "patience": {"reaction": reaction(timeout_s=1e-12)},
    "retries without a wait": {
        "gateway": NOBODY,
        "reaction": reaction(retries=[workload.Retry(backoff_s=0, max_attempts=20)]),
    },
}


@pytest.mark.parametrize("why", REFUSALS)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_refused_user_takes_a_turnaround(why: str, streaming: bool) -> None:
    asked = users(loop(users=2, refusal_turnaround_s=0.25), duration_s=10)
    settings = {"instances": flat(), "metrics": {"streaming": streaming}, "horizon_s": 12}
    result = simulate(Simulation(workload=asked, **(settings | REFUSALS[why])))
    assert result.summary()["completed"] == 0
    # Entry to the engine takes time as well; of the two that evict each other only one asks.
    most = 41 if why == "eviction" else 80
    assert 0.95 * most <= result.summary()["offered"] <= most


def test_refused_users_behind_a_small_bucket_do_not_stop_the_clock() -> None:
    result = simulated(
        workload=workload.Synthetic(
            duration_s=10, clients=[workload.Client(arrivals=workload.ClosedLoop(users=1))]
        ),
        gateway={"admission": gateway.TokenBucket(capacity_tokens=600, refill_tokens_per_s=100)},
        horizon_s=10,
    )
    assert 0 < result.summary()["completed"] < 10
    assert 500 < result.summary()["offered"] <= 1000


def test_a_turnaround_is_at_least_a_quantum_and_never_adds_to_a_longer_think_time() -> None:
    def offered(**settings: Any) -> int:
        arrivals = loop(
            **{name: settings.pop(name) for name in list(settings) if name.endswith("_s")}
        )
        simulation = Simulation(workload=users(arrivals, duration_s=10), gateway=NOBODY, **settings)
        return simulate(simulation).summary()["offered"]

    assert offered() == 1000  # a hundredth of a second by default
    assert offered(think_time_s=0.5, refusal_turnaround_s=0.2) == 19
    assert offered(think_time_s=0.2, refusal_turnaround_s=0.5) == 20
    # Spans below the quantum are cut to nothing, a turnaround is not.
    assert offered(quantum_ns=10**9, think_time_s=0.5) == 10


def test_a_served_user_takes_no_turnaround() -> None:
    asked = users(loop(refusal_turnaround_s=100), num_requests=4)
    result = simulate(Simulation(workload=asked, instances=flat()))
    assert ns(result.requests["arrival_s"]) == [0, 10**9, 2 * 10**9, 3 * 10**9]


# --- a clock that stands still --------------------------------------------------------------------

NO_TIME = flat(1e-9, 1e-9, reference_output_tokens=10**9)


def test_a_loop_at_one_instant_is_named() -> None:
    """Served in no time, without think time: the user sends requests forever at the start."""
    agents = users(loop(), duration_s=10).clients[0].replace(name="agents")
    simulation = Simulation(workload=workload.Synthetic(clients=[agents]), instances=NO_TIME)
    with pytest.raises(LivelockError) as error:
        simulate(simulation)
    message = str(error.value)
    assert message.startswith("the clock has stopped at 0 s: ")
    assert "arrival of user 0 (client 'agents')" in message
    assert "permit_release of user 0" in message


def test_a_loop_that_begins_later_is_named_too() -> None:
    asked = users(loop(users=3, think_time_s=1.5), num_requests=3, start_s=1).clients[0]
    agents = users(loop(), start_s=2.5, duration_s=10).clients[0].replace(name="agents")
    simulation = Simulation(workload=workload.Synthetic(clients=[asked, agents]), instances=NO_TIME)
    with pytest.raises(LivelockError, match=r"at 2\.5 s: .* user 3 \(client 'agents'\)"):
        simulate(simulation)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gateway": NOBODY},
        {"gateway": NOBODY, "metrics": {"streaming": True}},
        {"instances": instance.InstanceGroup(count=3), "horizon_s": 0.5},
    ],
)
def test_a_burst_of_any_size_is_legal(settings: dict[str, Any]) -> None:
    """More events at one instant than the livelock limit, without a closed loop."""
    burst = run([0.0] * 400_000, **({"instances": flat()} | settings))
    assert burst.summary()["offered"] == 400_000


def test_many_attempts_at_one_instant_are_legal() -> None:
    retries = reaction(retries=[workload.Retry(backoff_s=0, max_attempts=1000)])
    result = run([0.0] * 1500, instances=flat(), gateway=NOBODY, reaction=retries)
    assert result.ledger["attempts"] == 1_500_000


def test_prompts_of_a_conversation_grow_by_question_and_answer() -> None:
    asked = users(loop(turns=3), num_requests=7, prefix_group="system", prefix_tokens=32)
    result = simulate(Simulation(workload=asked, instances=instance.InstanceGroup()))
    first = 32 + 16
    assert result.requests["input_tokens"].tolist() == [
        *(first, first + 26, first + 52),
        *(first, first + 26, first + 52),
        first,
    ]
    # Blocks of 16 tokens: all that a prompt of the conversation filled (48, then 74 tokens) is
    # found again, of an earlier conversation only the system prompt.
    hit_blocks = [0, 3, 4, 2, 3, 4, 2]
    assert result.instances[0]["kv_hits"] == sum(hit_blocks)


def test_what_users_ask_does_not_depend_on_how_fast_they_are_served() -> None:
    lengths = gaussian(200)
    asked = users(loop(users=3), num_requests=60, input_tokens=lengths)
    slow, fast = (
        simulate(Simulation(workload=asked, instances=flat(e2e_s=s, ttft_s=s))) for s in (1, 0.5)
    )
    assert slow.requests["input_tokens"].tolist() == fast.requests["input_tokens"].tolist()
    assert len(set(slow.requests["input_tokens"].tolist())) > 30


def test_open_and_closed_clients_share_a_workload() -> None:
    closed = users(loop(users=2), num_requests=30).clients[0].with_({"name": "closed"})
    opened = workload.Client(name="open", tenant="b", arrivals="constant")
    both = workload.Synthetic(requests_per_s=5, num_requests=40, clients=[closed, opened])
    requests = simulate(Simulation(workload=both, instances=flat(0.1, 0.1))).requests
    assert Counter(requests["tenant"].tolist()) == {"default": 30, "b": 40}
    assert (np.diff(requests["arrival_s"]) >= 0).all()
    mine = requests["arrival_s"][requests["tenant"] == "b"]
    assert np.allclose(mine, np.arange(1, 41) / 5)  # the closed ones take nothing of the rate


def test_closed_loops_need_an_end_and_no_rate() -> None:
    with pytest.raises(ConfigError, match=r"clients\[0\]\.arrivals.*must have an end"):
        simulate(Simulation(workload=users(loop())))
    with pytest.raises(ConfigError, match=r"requests_per_s.*does not apply to closed_loop"):
        Simulation(workload=users(loop(), num_requests=1, requests_per_s=3))
    assert simulate(Simulation(workload=users(loop()), horizon_s=5)).summary()["offered"] > 1


# --- whatever clients do --------------------------------------------------------------------------


def random_clients(seed: int) -> Simulation:
    """A small engine under closed and open load, with impatient clients that retry."""
    rng = random.Random(seed)
    engine = instance.InstanceGroup(
        count=rng.choice([1, 2]),
        data_parallel_size=rng.choice([1, 1, 2]),
        max_num_seqs=rng.choice([2, 8, 64]),
        num_kv_blocks=rng.choice([60, 200, 5000]),
        kv_cache=instance.KvCache(prefix_caching=rng.random() < 0.5),
        scheduler=rng.choice(["fcfs", "priority_fcfs"]),
    )
    lengths = gaussian(60)
    clients = [
        workload.Client(
            name="closed",
            tenant="a",
            num_requests=60,
            arrivals=workload.ClosedLoop(
                users=rng.choice([1, 6, 20]),
                think_time_s=rng.choice([0, 0.05]),
                turns=rng.choice([1, 4]),
            ),
            input_tokens=lengths,
            output_tokens=lengths,
        ),
        workload.Client(
            name="open",
            tenant="b",
            slo_class="critical",
            num_requests=60,
            requests_per_s=rng.choice([5, 40, 200]),
            input_tokens=lengths,
            output_tokens=lengths,
        ),
    ]
    patience = {
        name: rng.choice([None, 0.05, 0.4, 2])
        for name in ("timeout_s", "first_token_timeout_s", "deadline_s")
    }
    rule = workload.Retry(
        max_attempts=rng.choice([1, 3]),
        backoff_s=rng.choice([0, 0.1]),
        budget_ratio=rng.choice([None, 0.2]),
        active_share=rng.choice([None, 0.1]),
    )
    return Simulation(
        workload=workload.Synthetic(clients=clients),
        reaction=workload.Reaction(**patience, retries=[rule]),
        gateway=gateway.Gateway(
            admission_latency_s=rng.choice([0, 0.01]),
            routing_latency_s=rng.choice([0, 0.01]),
            limit=rng.choice(["unlimited", fixed(4)]),
            bands=[gateway.Band(queue={"max_requests": rng.choice([3, None])})],
            replicas=rng.choice([1, 2]),
        ),
        instances=engine,
        horizon_s=rng.choice([None, None, 1.0]),
    )


def test_jumps_and_streaming_change_nothing() -> None:
    seen: Counter[str] = Counter()
    for seed in trials(150):
        simulation = random_clients(seed)
        result = simulate(simulation, seed)
        assert result.digest == simulate(simulation, seed, reference=True).digest, seed
        streamed = simulate(simulation.with_({"metrics.streaming": True}), seed)
        assert streamed.ledger == result.ledger, seed
        for name in ("offered", "completed", "cancelled", "rejected", "total_output_tokens"):
            assert streamed.summary()[name] == result.summary()[name], seed
        check_stamps(result)
        seen.update(outcomes(result))
        seen["retried"] += int((result.requests["attempts"] > 1).sum())
        seen["in flight"] += result.ledger["cancelled_in_flight"]
    assert min(seen[end] for end in ("completed", "cancelled", "rejected")) > often(100), seen
    assert min(seen["retried"], seen["in flight"]) > often(100), seen


def check_stamps(result: Result) -> None:
    requests = result.requests
    done = requests["outcome"] == "completed"
    assert (requests["ttft_s"][done] <= requests["e2e_s"][done]).all()
    assert np.isnan(requests["e2e_s"][~done]).all()
    deadline = result.simulation.reaction.deadline_s
    if deadline is not None:
        assert (requests["e2e_s"][done] <= deadline + 1e-9).all()


def test_passive_clients_cost_nothing() -> None:
    """A reaction that never occurs does not change the result, except the attempts."""
    base = Simulation(workload=workload.Synthetic(num_requests=300, requests_per_s=20))
    plain = simulate(base, 3)
    watched = simulate(base.with_({"reaction": retry().with_({"timeout_s": 1e5})}), 3)
    assert plain.digest == watched.digest
