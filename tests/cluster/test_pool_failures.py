"""Pools whose instances crash, hang and slow down: equal to their twin, and conserved."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cluster.test_failures_oracle import fault_of, setting_of
from cluster.test_pools import (
    assert_same_rows,
    by_worker,
    conditional_of,
    is_remote,
    link_of,
    random_case,
)
from support.effort import in_parts, often, trials
from support.engine_trials import server_of
from support.pools import group
from support.runs import ns
from support.twins.failures import Fault, Fleet
from support.twins.pool_failures import FailingPools
from support.twins.pools import DeadlockError, PoolsRun

from spillway import (
    LivelockError,
    Session,
    Simulation,
    fleet,
    gateway,
    metrics,
    router,
    simulate,
    trace,
)
from spillway.testing import check_conservation

if TYPE_CHECKING:
    from support.twins.instance import Request

    from spillway import Result

US = 1000


@dataclass(frozen=True)
class Case:
    simulation: Simulation
    requests: list[Request]
    fleet: Fleet
    faults: list[Fault]

    def twin(self) -> FailingPools:
        servers: list[tuple[str, Any, int]] = []
        for member in self.simulation.instances:
            alone = {"instances": (member.replace(role="both"),), "changes": ()}
            server = server_of(self.simulation.replace(**alone))
            servers += [(member.role, server, member.data_parallel_size)] * member.count
        pools = self.simulation.disaggregation
        return FailingPools(
            servers,
            link_of(self.simulation),
            self.fleet,
            self.faults,
            handoff=pools.handoff,
            order=pools.order,
            is_remote=lambda request: is_remote(self.simulation, request),
            conditional=conditional_of(self.simulation),
            ends_at_first_token=pools.ends_at_first_token,
            reads_on=pools.reads_on,
            topology=pools.topology,
            domains=[
                it.transfer_domain for it in self.simulation.instances for _ in range(it.count)
            ],
            prefill_max_retries=pools.prefill_max_retries,
            prefill_retry_after_ns=round(pools.prefill_retry_after_s * 1e9),
        )


def failing(rng: random.Random) -> Case:
    simulation, requests = random_case(rng)
    count = sum(group.count for group in simulation.instances)
    span_ns = requests[-1].arrival_ns + 3000 * US

    def some_ns(most_ns: int) -> int:
        # Many fall on ends of steps.
        return rng.randint(1, max(1, most_ns // (100 * US))) * 100 * US + rng.choice((0, 0, 10, 57))

    own = Fleet(
        detected_after_ns=rng.choice((0, some_ns(span_ns // 3), some_ns(span_ns))),
        swallows=rng.random() < 0.5,
        startup_ns=rng.choice((0, some_ns(span_ns // 5))),
        reported_after_ns=rng.choice((None, None, some_ns(span_ns // 5))),
    )
    faults = [
        Fault(
            some_ns(span_ns),
            rng.choice(("crash", "crash", "crash", "hang", "hang", "slowdown")),
            rng.randrange(count),
            rng.choice((None, some_ns(span_ns // 3), some_ns(span_ns // 3), some_ns(span_ns // 3))),
            rng.choice((0.5, 1.5, 3)),
        )
        for _ in range(rng.randint(1, 6))
    ]
    # Half of them migrate; what is drawn for it comes last.
    if rng.random() < 0.5:
        own = replace(
            own,
            migration_limit=rng.choice((1, 1, 2, 5)),
            migration_max_seq_len=rng.choice((None, None, None, rng.randint(5, 40))),
            migrates_answered=rng.random() < 0.8,
        )
    reported_s = None if own.reported_after_ns is None else own.reported_after_ns / 1e9
    simulation = simulation.replace(
        fleet=fleet.Fleet(
            startup_s=own.startup_ns / 1e9,
            reported_ready_after_s=reported_s,
            health=fleet.Health(
                detected_after_s=own.detected_after_ns / 1e9,
                undetected="swallowed" if own.swallows else "refused",
            ),
            migration=fleet.Migration(
                limit=own.migration_limit,
                max_seq_len_tokens=own.migration_max_seq_len,
                answered=own.migrates_answered,
            ),
        ),
        changes=[{"at_s": f.at_ns / 1e9, "faults": [setting_of(f)]} for f in faults],
    )
    return Case(simulation, requests, own, faults)


def retrying(rng: random.Random) -> Case:
    """Prefill legs that are sent again, most of them to instances that fail for a while."""
    case = failing(rng)
    prefill = []
    number = 0
    for member in case.simulation.instances:
        prefill += [] if member.role == "decode" else range(number, number + member.count)
        number += member.count
    # A hang for good that overtakes a report of readiness is never detected, and ends no request.
    faults = [
        replace(fault, for_ns=fault.for_ns or 700 * US) if fault.kind == "hang" else fault
        for fault in case.faults
    ]
    if prefill:
        span_ns = case.requests[-1].arrival_ns + 1000 * US
        faults += [
            Fault(
                rng.randint(1, max(1, span_ns // (50 * US))) * 50 * US,
                "crash",
                rng.choice(prefill),
                rng.choice((None, 200 * US, 500 * US, 1000 * US)),
            )
            for _ in range(rng.randint(1, 4))
        ]
    pools = case.simulation.disaggregation
    is_never = pools.decider.kind == "never"
    simulation = case.simulation.replace(
        disaggregation=pools.replace(
            order="decode_first",
            handoff="after_prefill",
            ends_at_first_token=False,
            decider=router.AlwaysRemote() if is_never else pools.decider,
            prefill_max_retries=rng.choice((1, 1, 2, 3)),
            prefill_retry_after_s=rng.choice((0, 1e-4, 2e-4, 5e-4, 1e-3, 0.2)),
        ),
        fleet=case.simulation.fleet.replace(migration=fleet.Migration()),
        changes=[{"at_s": f.at_ns / 1e9, "faults": [setting_of(f)]} for f in faults],
    )
    return Case(simulation, case.requests, replace(case.fleet, migration_limit=0), faults)


def assert_same(case: Case) -> Counter[str]:
    twin = case.twin()
    try:
        expected = twin.run(case.requests)
    except DeadlockError:
        with pytest.raises(LivelockError, match="wait for each other's memory"):
            simulate(case.simulation)
        return twin.seen + Counter({"deadlock": 1})
    results = [simulate(case.simulation, reference=reference) for reference in (False, True)]
    for result in results:
        check_conservation(result)
        assert_same_rows(result, case.requests, expected)
        assert_same_fleet(case, result, twin, expected)
    assert_same_causes(results[0], expected)
    streamed = simulate(case.simulation.replace(metrics=metrics.Metrics(streaming=True)))
    assert streamed.ledger == results[0].ledger == results[1].ledger
    assert streamed.faults == results[0].faults == results[1].faults
    return twin.seen


def assert_same_fleet(case: Case, result: Result, twin: FailingPools, expected: PoolsRun) -> None:
    for count, name in (("steps", "steps"), ("wasted", "tokens_wasted"), ("hits", "kv_hits"),
                        ("misses", "kv_misses"), ("lookups", "kv_lookups")):  # fmt: skip
        assert [report[name] for report in result.instances] == by_worker(expected, count), name
    legs = result.ledger["legs"]
    assert legs["transfers_begun"] == expected.transfers
    moved = legs["moved_blocks"] * case.simulation.instances[0].block_size_tokens
    assert moved * case.simulation.instances[0].kv_bytes_per_token == expected.moved_bytes
    migrates = case.fleet.migration_limit > 0
    assert result.faults == [
        fault_of(report) | ({"migrated_requests": report.migrated_requests} if migrates else {})
        for report in twin.reports
    ]
    if migrates:
        named = {name: twin.migrations[name] for name in ("new_request", "ongoing_request")}
        assert result.ledger["migrations"] == named
        for name in ("migrations", "recomputed"):
            column = {"recomputed": "recomputed_tokens"}.get(name, name)
            known = [getattr(job, name) for job in expected.jobs]
            assert result.requests[column].tolist() == known, name
    if case.simulation.disaggregation.prefill_max_retries > 0:
        assert legs["lost"]["prefill_retries"] == twin.seen["retried"]
    outcomes = Counter(job.outcome for job in expected.jobs)
    assert result.ledger["failed"] == outcomes["failed"]
    reasons = result.requests["reason"][np.asarray(result.requests["outcome"]) == "failed"]
    assert set(reasons) <= {"instance_lost"}


def assert_same_causes(result: Result, expected: PoolsRun) -> None:
    """The causes of each latency add up to it, and `failure` is that of the twin."""
    causes = result.time_by_cause()
    assert (causes.ns >= 0).all()
    of_failure = causes.ns[:, causes.names.index("failure")]
    for row, job in enumerate(expected.jobs):
        if job.outcome == "completed":
            assert causes.ns[row].sum() == ns(result.requests["e2e_s"])[row], row
            assert of_failure[row] == job.failure_ns, row


@pytest.mark.parametrize("part", range(3))
def test_failures_are_those_of_the_twin(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in in_parts(trials(600), 3)[part]:
        seen += assert_same(failing(random.Random(seed)))
    for what in (
        "lost whole in decode",
        "lost prefill in prefill",
        "lost prefill in handoff",
        "lost decode in transit",
        "lost decode in handoff",
        "prompt without a reader",
        "local for want of prefill",
        "refused",
        "swallowed",
        "held hung",
        "killed",
        "went on",
        "migrated in a leg",
        "migrated between legs",
        "migrated with tokens",
        "migrated again",
        "above the limit",
        "no other instance",
    ):
        assert seen[what] >= often(12), (what, seen)
    for rare in ("too long", "answered"):
        assert seen[rare] >= often(6), (rare, seen)


@pytest.mark.parametrize("part", range(3))
def test_retries_are_those_of_the_twin(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in in_parts(trials(600), 3)[part]:
        seen += assert_same(retrying(random.Random(seed)))
    for what in (
        "retried after entry",
        "retried again",
        "retried in vain",
        "retried and computed",
        "withdrawn before its retry",
    ):
        assert seen[what] >= often(10), (what, seen)


def test_withdrawals_with_their_last_tokens_are_those_of_the_twin() -> None:
    """Of several that leave with one step, the blocks are freed in list order."""
    assert_same(failing(random.Random(1001)))


# By hand: a prompt token takes 10 us, a step 100 us, a decoding request 1 us in a step.


def run(
    arrival_us: list[float],
    *faults: tuple[float, Any],
    tokens: int = 30,
    groups: tuple[Any, ...] = (),
    **settings: Any,
) -> Result:
    """Prompts of 400 us each, in pools of two."""
    result = simulate(
        Simulation(
            workload=trace(
                arrival_s=[at / 1e6 for at in arrival_us],
                input_tokens=[tokens] * len(arrival_us),
                output_tokens=[4] * len(arrival_us),
            ),
            instances=groups or [group(role, count=2) for role in ("prefill", "decode")],
            changes=[{"at_s": at_us / 1e6, "faults": [fault]} for at_us, fault in faults],
            **settings,
        )
    )
    check_conservation(result)
    return result


@pytest.mark.parametrize("crashed", [0, 2])
def test_transfer_that_is_cut_leaves_its_bandwidth_to_the_others(crashed: int) -> None:
    """Two of 32,000 bytes from 400 us on at 0.5 GB/s for each: 64 us. One is cut after 32 us.

    The other one has 16,000 bytes left then, which take 16 us.
    """
    link = router.KvLink(
        bandwidth_gb_per_s=None,
        shared_bandwidth_gb_per_s=1,
        sharing="max_min",
        base_latency_s=0,
    )
    pools = router.Disaggregation(link=link)
    result = run([0, 0], (432, fleet.Crash(instance=crashed)), disaggregation=pools)
    requests = result.requests
    assert list(requests["outcome"]) == ["failed", "completed"]
    assert requests["transfer_s"][1] == pytest.approx(48e-6, abs=1e-9)
    assert list(requests["wasted_tokens"]) == [30, 0]
    legs = result.ledger["legs"]
    assert (legs["transfers_cut"], legs["transfers_ended"]) == (1, 1)
    assert legs["lost"]["decode"] == 1


def test_requests_wait_while_no_decode_instance_is_ready() -> None:
    """The second one arrives while none is, and is dispatched when it is reported ready again."""
    groups = (group("prefill"), group("decode"))
    crash = (2000, fleet.Crash(instance=1, for_s=0.001))
    result = run([0, 2500], crash, groups=groups, fleet=fleet.Fleet(startup_s=0))
    assert list(result.requests["outcome"]) == ["completed"] * 2
    assert result.requests["queue_s"] == pytest.approx([0, 500e-6], abs=1e-9)
    for_good = run([0, 2500], (2000, fleet.Crash(instance=1)), groups=groups)
    assert list(for_good.requests["outcome"]) == ["completed", "queued"]


def test_pool_without_ready_instances_does_not_count_in_the_saturation() -> None:
    """The saturation of the failed prefill instance, which reported a waiting prompt, is gone."""
    groups = (group("prefill", max_num_seqs=1), group("decode"))
    limit = gateway.Gateway(limit=gateway.Saturation(queue_depth_threshold=1))
    arrival_us = [0.0, 10.0, 20.0]
    kept = run(arrival_us, groups=groups, gateway=limit)
    assert kept.requests["queue_s"][2] > 300e-6
    crashed = run(arrival_us, (100, fleet.Crash(instance=0)), groups=groups, gateway=limit)
    assert list(crashed.requests["outcome"]) == ["failed", "failed", "completed"]
    assert crashed.requests["queue_s"][2] == pytest.approx(80e-6, abs=1e-9)
    assert crashed.requests["prefill_instance"][2] == -1


@pytest.mark.parametrize(("crashed", "leaves_us"), [(0, 250), (1, 400)])
def test_request_at_both_instances_fails_with_either(crashed: int, leaves_us: float) -> None:
    """At dispatch; the prompt of a reader that has failed leaves its batch with the step.

    The second request has the permit of the first one then.
    """
    result = run(
        [0, 10],
        (250, fleet.Crash(instance=crashed)),
        groups=(group("prefill"), group("decode", count=2)),
        disaggregation=router.Disaggregation(handoff="at_dispatch"),
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=1)),
    )
    requests = result.requests
    assert list(requests["outcome"]) == ["failed", "completed"]
    assert requests["queue_s"][1] == pytest.approx((leaves_us - 10) / 1e6, abs=1e-9)
    assert requests["wasted_tokens"][0] == (0 if crashed == 0 else 30)
    assert result.ledger["legs"]["lost"]["withdrawn"] == crashed


def test_session_lets_an_instance_of_a_pool_fail() -> None:
    simulation = Simulation(
        workload=trace(arrival_s=[0.0, 0.005], input_tokens=[30, 30], output_tokens=[4, 4]),
        instances=[group("prefill"), group("decode")],
        fleet=fleet.Fleet(breakdowns=fleet.Breakdowns(mttf_s=1e6, mttr_s=1)),
    )
    session = Session(simulation, 1)
    session.advance(0.001)
    session.fail(fleet.Crash(instance=0))
    result = session.finish()
    assert list(result.requests["outcome"]) == ["completed"] * 2
    assert list(result.requests["prefill_instance"]) == [0, -1]
