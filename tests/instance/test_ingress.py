"""Admission by an instance, against a plain model, request by request."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import flat, run

from spillway import ConfigError, Result, Simulation, instance, signals, simulate
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Sequence

# Requests arrive in whole hundredths of a second, and no sum of these spans is one.
E2E_S = 1.0037
TTFT_S = 0.3019
DELAY_S = 0.7013

arrivals = st.lists(st.integers(0, 300), min_size=1, max_size=60).map(
    lambda ticks: [tick / 100 for tick in sorted(ticks)]
)


def behind(ingress: Any, **server: Any) -> instance.InstanceGroup:
    return flat(**({"e2e_s": E2E_S, "ttft_s": TTFT_S} | server)).replace(ingress=ingress)


@dataclass
class Rules:
    """The limits of an ingress; None: none."""

    unfinished: int
    queue: int
    awaiting: int | None = None
    delay_s: float | None = None
    lifo: bool = False


def twin(arrival_s: Sequence[float], rules: Rules) -> list[str | float]:
    """For each request, when it enters the engine, or why it does not."""
    fates: list[str | float] = ["" for _ in arrival_s]
    waiting: list[tuple[float, int]] = []  # (deadline, request)
    tokens: list[float] = []  # first tokens to come
    ends: list[float] = []
    newest_next = False

    def enter(request: int, now: float) -> None:
        fates[request] = now
        heapq.heappush(tokens, now + TTFT_S)
        heapq.heappush(ends, now + E2E_S)

    def may_enter() -> bool:
        return len(ends) < rules.unfinished and (
            rules.awaiting is None or len(tokens) < rules.awaiting
        )

    def until(time: float) -> None:
        """Everything that happens up to `time`, event by event."""
        nonlocal newest_next
        while True:
            due = [heap[0] for heap in (tokens, ends) if heap]
            if rules.delay_s is not None and waiting:
                due.append(waiting[0][0])
            if not due or min(due) > time:
                return
            now = min(due)
            for heap in (tokens, ends):
                while heap and heap[0] <= now:
                    heapq.heappop(heap)
            while rules.delay_s is not None and waiting and waiting[0][0] <= now:
                fates[waiting.pop(0)[1]] = "expired"
                newest_next = rules.lifo
            while waiting and may_enter():
                _, request = waiting.pop(-1 if newest_next else 0)
                newest_next = False
                enter(request, now)

    for request, now in enumerate(arrival_s):
        until(now)
        if not waiting and may_enter():
            enter(request, now)
        elif len(waiting) < rules.queue:
            waiting.append((now + (rules.delay_s or 0), request))
        else:
            fates[request] = "full"
    until(float("inf"))
    return fates


def fates(result: Result, reasons: dict[str, str]) -> list[str | float]:
    requests = result.requests
    return [
        reasons[str(reason)] if reason else float(arrival + ttft - TTFT_S)
        for reason, arrival, ttft in zip(
            requests["reason"], requests["arrival_s"], requests["ttft_s"], strict=True
        )
    ]


def assert_equal(ours: list[str | float], theirs: list[str | float]) -> None:
    assert [answer if isinstance(answer, str) else "" for answer in ours] == [
        answer if isinstance(answer, str) else "" for answer in theirs
    ]
    assert [answer for answer in ours if not isinstance(answer, str)] == pytest.approx(
        [answer for answer in theirs if not isinstance(answer, str)], abs=1e-6
    )


def occupancies(result: Result) -> list[int]:
    """How many requests were in the worker when each arrived."""
    requests = result.requests
    inside = [
        (arrival, arrival + e2e)
        for arrival, e2e, outcome in zip(
            requests["arrival_s"], requests["e2e_s"], requests["outcome"], strict=True
        )
        if outcome == "completed"
    ]
    before = 0
    counts = []
    for arrival, outcome in zip(requests["arrival_s"], requests["outcome"], strict=True):
        counts.append(sum(end > arrival for _, end in inside[:before]))
        before += outcome == "completed"
    return counts


# ---- engine_request_limit: N + Q -----------------------------------------------------------------


def limited(n: int, q: int) -> instance.EngineRequestLimit:
    return instance.EngineRequestLimit(max_requests=n, queue_size=q)


@given(arrival_s=arrivals, n=st.integers(1, 6), q=st.integers(2, 6))
def test_no_more_than_n_plus_q_and_no_less(arrival_s: list[float], n: int, q: int) -> None:
    result = run(arrival_s, instances=behind(limited(n, q)))
    refused = [str(reason) == "worker_at_capacity" for reason in result.requests["reason"]]
    assert refused == [inside == n + q for inside in occupancies(result)]
    (ingress,) = result.ingresses
    assert ingress["most_unfinished"] <= n
    assert ingress["most_queued"] <= q
    assert ingress["refused"] == sum(refused)
    assert ingress["unfinished"] == ingress["queued"] == 0


@given(
    arrival_s=arrivals,
    n=st.integers(1, 5),
    q=st.integers(2, 5),
    ranks=st.integers(1, 3),
    transport=st.sampled_from([signals.Live(), signals.Scraped(period_s=0.3), signals.OnRead()]),
)
def test_the_cap_holds_before_a_real_engine(
    arrival_s: list[float], n: int, q: int, ranks: int, transport: Any
) -> None:
    """With batches, steps and ranks; every request needs the same time to reach the engine."""
    server = BLIS_SERVER.replace(
        ingress=limited(n, q), max_num_seqs=2, data_parallel_size=ranks, num_kv_blocks=40
    )
    result = run(arrival_s, input_tokens=200, output_tokens=60, instances=server, signals=transport)
    refused = [str(reason) == "worker_at_capacity" for reason in result.requests["reason"]]
    (ingress,) = result.ingresses
    assert ingress["most_unfinished"] <= n
    assert ingress["most_queued"] <= q
    assert ingress["most_unfinished"] + ingress["most_queued"] >= min(
        n + q, 1 + max(occupancies(result), default=0)
    )
    if any(refused):
        assert (ingress["most_unfinished"], ingress["most_queued"]) == (n, q)
    # Of two that come at once, the first is never worse off.
    for i in range(1, len(arrival_s)):
        if arrival_s[i] == arrival_s[i - 1]:
            assert refused[i] or not refused[i - 1]


def test_the_cap_is_reached() -> None:
    """Twenty at once: three run, four wait, thirteen are rejected; the four follow in order."""
    result = run([0.0] * 20, instances=behind(limited(3, 4)))
    assert list(result.requests["outcome"]) == ["completed"] * 7 + ["rejected"] * 13
    rounds = np.array([1, 1, 1, 2, 2, 2, 3])
    assert result.requests["e2e_s"][:7] == pytest.approx(rounds * E2E_S)
    assert result.ledger["worker_rejected"] == {"worker_at_capacity": 13}


def test_an_overflow_queue_of_one_holds_two() -> None:
    """The one in the dispatcher's hands; larger queues make room for it."""
    for q, most in ((1, 2), (2, 2), (3, 3), (16, 16)):
        assert run([0.0] * 30, instances=behind(limited(4, q))).ledger["completed"] == 4 + most


def test_waiting_requests_precede_arrivals_of_the_same_instant() -> None:
    """One leaves at second 1: the one that waits gets its place, its own goes to the newcomer."""
    result = run([0, 0.5, 0.6, 1.0], instances=behind(limited(1, 2), e2e_s=1, ttft_s=0.25))
    assert list(result.requests["outcome"]) == ["completed"] * 4
    assert list(result.requests["e2e_s"]) == pytest.approx([1, 1.5, 2.4, 3])


def test_waiting_requests_count_as_running_when_a_run_ends() -> None:
    result = run([0.0] * 9, instances=behind(limited(2, 3)), horizon_s=0.5)
    assert result.ledger["running"] == 5
    assert result.ledger["worker_rejected"] == {"worker_at_capacity": 4}
    (ingress,) = result.ingresses
    assert (ingress["unfinished"], ingress["queued"]) == (2, 3)


def test_what_the_engine_could_never_hold_takes_no_place() -> None:
    """An unservable request may wait, but it releases its place as soon as it is rejected."""
    server = BLIS_SERVER.replace(ingress=limited(1, 4), num_kv_blocks=10)
    result = run([0.0, 0.001, 0.002, 0.003], input_tokens=[64, 999, 999, 64], instances=server)
    assert list(result.requests["reason"]) == ["", "unservable", "unservable", ""]
    assert list(result.requests["outcome"]) == ["completed", "rejected", "rejected", "completed"]


def test_a_limit_that_never_binds_changes_nothing() -> None:
    """But that its load events are followed."""
    arrival_s = [0.05 * i for i in range(80)]
    for completion in ("step_end", "step_start"):
        group = BLIS_SERVER.replace(
            count=2, max_num_seqs=4, num_kv_blocks=64, completion=completion
        )
        open_, gated = (
            run(arrival_s, input_tokens=100, output_tokens=100, instances=servers)
            for servers in (group, group.replace(ingress=limited(1000, 2)))
        )
        assert open_.digest == gated.digest
        assert open_.ingresses == []
        assert open_.ranks == []


# ---- the others ----------------------------------------------------------------------------------


@given(
    arrival_s=arrivals,
    n=st.integers(1, 5),
    queue=st.integers(0, 12),
    has_delay=st.booleans(),
    lifo=st.booleans(),
)
def test_controlled_delay(
    arrival_s: list[float], n: int, queue: int, has_delay: bool, lifo: bool
) -> None:
    delay_s = DELAY_S if has_delay else None
    gate = instance.ControlledDelay(
        max_requests=n, queue_size=queue, delay_s=delay_s, adaptive_lifo=lifo
    )
    result = run(arrival_s, instances=behind(gate))
    reasons = {"controlled_delay_full": "full", "controlled_delay_expired": "expired"}
    assert_equal(
        fates(result, reasons), twin(arrival_s, Rules(n, queue, delay_s=delay_s, lifo=lifo))
    )


def test_after_an_expiry_the_newest_goes_first_once() -> None:
    """Two wait too long; of the others the last goes first, then the order is that of arrival."""
    arrival_s = [0, 0.1, 0.2, 0.5, 0.6, 0.7]
    outcomes = {}
    for lifo in (True, False):
        gate = instance.ControlledDelay(max_requests=1, delay_s=0.8, adaptive_lifo=lifo)
        result = run(arrival_s, instances=behind(gate, e2e_s=1.05, ttft_s=0.01))
        outcomes[lifo] = list(result.requests["reason"])
    expired = "controlled_delay_expired"
    assert outcomes[True] == ["", expired, expired, expired, expired, ""]
    assert outcomes[False] == ["", expired, expired, "", expired, expired]


def test_the_limit_follows_the_batch_if_none_is_given() -> None:
    """One and a half times the seats of all ranks, rounded up."""
    for seats, ranks, limit in ((4, 1, 6), (3, 1, 5), (3, 3, 14)):
        server = behind(instance.ControlledDelay()).replace(
            max_num_seqs=seats, data_parallel_size=ranks
        )
        assert run([0.0] * 50, instances=server).ingresses[0]["most_unfinished"] == limit


@given(
    arrival_s=arrivals, n=st.integers(1, 6), awaiting=st.integers(1, 6), queue=st.integers(0, 40)
)
def test_dual_limit(arrival_s: list[float], n: int, awaiting: int, queue: int) -> None:
    gate = instance.DualLimitGate(request_limit=n, wait_limit=awaiting, queue_size=queue)
    result = run(arrival_s, instances=behind(gate))
    rules = Rules(n, queue, awaiting=awaiting)
    assert_equal(fates(result, {"dual_limit_full": "full"}), twin(arrival_s, rules))


def test_dual_limit_needs_first_tokens_when_they_come() -> None:
    with pytest.raises(ConfigError, match="step_end"):
        BLIS_SERVER.replace(ingress=instance.DualLimitGate(), completion="step_start")


def test_vllm_refuses_by_the_length_of_its_queue() -> None:
    """One seat: the first runs from its step on, the queue fills to three, the rest is rejected."""
    server = BLIS_SERVER.replace(
        ingress=instance.VllmQueueLimits(max_num_queued_reqs=3), max_num_seqs=1
    )
    arrival_s = [0.0, *(0.05 + 0.001 * i for i in range(8))]
    result = run(arrival_s, input_tokens=64, output_tokens=200, instances=server)
    assert list(result.requests["reason"]) == [""] * 4 + ["queued_requests"] * 5


def test_vllm_refuses_by_the_prompts_in_its_queue() -> None:
    """The prompt that crosses the limit is admitted: 64 + 64 < 150 <= 192."""
    server = BLIS_SERVER.replace(
        ingress=instance.VllmQueueLimits(max_num_queued_tokens=150), max_num_seqs=1
    )
    arrival_s = [0.0, *(0.05 + 0.001 * i for i in range(8))]
    result = run(arrival_s, input_tokens=64, output_tokens=200, instances=server)
    assert list(result.requests["reason"]) == [""] * 4 + ["queued_tokens"] * 5


def test_vllm_limits_of_zero_refuse_everything() -> None:
    for name in ("max_num_queued_reqs", "max_num_queued_tokens"):
        server = BLIS_SERVER.replace(ingress=instance.VllmQueueLimits(**{name: 0}))
        assert set(run([0, 0, 5], instances=server).requests["outcome"]) == {"rejected"}


def test_a_run_may_be_streamed_and_made_of_replicas() -> None:
    """The ledger, which is checked at the end of every run, balances there too."""
    for ingress in (
        limited(2, 3),
        instance.ControlledDelay(max_requests=2, delay_s=0.5),
        instance.DualLimitGate(request_limit=3, wait_limit=1, queue_size=2),
        instance.VllmQueueLimits(max_num_queued_reqs=2),
    ):
        group = BLIS_SERVER.replace(
            count=2, data_parallel_size=2, max_num_seqs=2, num_kv_blocks=60, ingress=ingress
        )
        simulation = Simulation(instances=group).with_(
            {"workload.num_requests": 300, "gateway.replicas": 2}
        )
        kept = simulate(simulation, 1)
        assert kept.ledger == simulate(simulation.with_({"metrics.streaming": True}), 1).ledger
        assert kept.ledger["worker_rejected"]


def test_vllm_also_counts_the_batch() -> None:
    """One runs and two wait: with the batch, that is a queue of three."""
    server = BLIS_SERVER.replace(
        ingress=instance.VllmQueueLimits(max_num_queued_reqs=3, counts_running=True), max_num_seqs=1
    )
    arrival_s = [0.0, *(0.05 + 0.001 * i for i in range(8))]
    result = run(arrival_s, input_tokens=64, output_tokens=200, instances=server)
    assert list(result.requests["reason"]) == [""] * 3 + ["queued_requests"] * 6
