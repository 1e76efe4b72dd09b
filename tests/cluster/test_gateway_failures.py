"""Replicas of the gateway that crash: cases by hand, laws, and a slow twin on random cases."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.effort import in_parts, often, trials
from support.engine_trials import group_of, plain_trace_of
from support.runs import fixed, flat, ns, run, steady
from support.twins.gateway_failures import Crash, GatewayFailures, Report, Setup
from support.twins.instance import PLAIN, Request

import spillway
from spillway import (
    ConfigError,
    Result,
    Simulation,
    fleet,
    gateway,
    instance,
    metrics,
    router,
    signals,
    simulate,
    traffic,
    workload,
)
from spillway.report.plots import faults
from spillway.report.tables import fault_rows
from spillway.testing import check_conservation

MS = 10**6
SERVER = instance.InstanceGroup(latency=steady(10), async_scheduling=False, max_num_seqs=4)


def crashing(
    arrival_s: list[float],
    *crashes: tuple[float, int, float | None],
    permits: int = 1,
    replicas: int = 1,
    instances: Any = SERVER,
    own: dict[str, Any] | None = None,
    **settings: Any,
) -> Result:
    """Prompts of one step and outputs of ten, each of 10 ms: a request alone takes 100 ms."""
    return run(
        arrival_s,
        instances=instances,
        gateway=gateway.Gateway(replicas=replicas, limit=[fixed(permits)], **(own or {})),
        changes=[
            {"at_s": at_s, "faults": [fleet.GatewayCrash(gateway=number, for_s=for_s)]}
            for at_s, number, for_s in crashes
        ],
        **{"router": router.RoundRobin(), **settings},
    )


def test_crash_loses_queue_and_streams_and_refuses_arrivals() -> None:
    """At 25 ms the first is in its third step, which ends at 30 ms; the second waits for it."""
    result = crashing([0, 0.01, 0.03, 0.2], (0.025, 0, 0.1))
    assert list(result.requests["outcome"]) == ["failed"] * 3 + ["completed"]
    assert list(result.requests["reason"]) == ["gateway_lost"] * 3 + [""]
    assert ns(result.requests["e2e_s"])[3] == 100 * MS
    (crash,) = result.faults
    assert (crash["kind"], crash["instance"], crash["gateway"]) == ("gateway_crash", None, 0)
    assert crash["began_s"] == crash["detected_s"] == 0.025
    assert crash["ended_s"] == pytest.approx(0.125)
    assert (crash["lost_requests"], crash["lost_tokens"]) == (3, 0)
    assert crash["lost_time_s"] == pytest.approx(0.025 + 0.015)
    assert result.ledger["failed"] == 3
    assert result.ledger["failed_in_queue"] == result.ledger["failed_at_admission"] == 1
    assert result.summary()["wasted_tokens"] == 16 + 2  # its prompt, and two tokens in memory
    assert result.activity["not_completed"] == {"gateway_lost": 3}


def test_return_has_all_permits_before_the_last_stream_has_ended() -> None:
    """The instance notices at 30 ms; the new process dispatches at 27 ms."""
    result = crashing([0, 0.027], (0.025, 0, 0.001))
    assert list(result.requests["outcome"]) == ["failed", "completed"]
    assert ns(result.requests["queue_s"])[1] == 0
    assert ns(result.requests["ttft_s"])[1] == (40 - 27) * MS


@pytest.mark.parametrize(
    ("input_tokens", "output_tokens", "ending"),
    [
        (16, 5, ("failed", "gateway_lost")),
        (10**6, 5, ("rejected", "unservable")),
        (16, 0, ("failed", "")),
    ],
)
def test_what_its_instance_refuses_after_the_crash_ends_as_that(
    input_tokens: int, output_tokens: int, ending: tuple[str, str]
) -> None:
    simulation = crashing(
        [0.0],
        (0.01, 0, None),
        instances=instance.InstanceGroup(latency=steady(10, entry_ms=20)),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    ).simulation
    result = simulate(simulation.with_({"workload.empty_outputs": "failed"}))
    assert [*result.requests["outcome"], *result.requests["reason"]] == [*ending]
    assert result.faults[0]["lost_requests"] == (ending[1] == "gateway_lost")


def test_front_end_works_on_what_the_crash_has_lost() -> None:
    """Of two prompts of 30 ms in the front end, the second reaches the engine at 60 ms."""
    server = SERVER.replace(front_end=instance.FrontEnd(us_per_request=30_000))
    result = crashing([0.0, 0.0, 0.02], (0.01, 0, 0.001), instances=server, permits=9)
    assert list(result.requests["outcome"]) == ["failed", "failed", "completed"]
    assert result.faults[0]["lost_requests"] == 2
    assert ns(result.requests["ttft_s"])[2] == (90 + 10 - 20) * MS


def test_other_replicas_take_arrivals_and_keep_their_own() -> None:
    """Rows alternate; from 25 ms on all go to the second one, until 125 ms."""
    result = crashing([0, 0.01, 0.03, 0.05, 0.2, 0.21], (0.025, 0, 0.1), replicas=2, permits=10)
    assert list(result.requests["outcome"]) == ["failed"] + ["completed"] * 5
    assert "failed_at_admission" not in result.ledger


def test_clients_try_again() -> None:
    """Refused at 30, 40, 60 ms; the fourth attempt comes at 100 ms, after the return."""
    retries = [workload.Retry(on=["gateway_lost"], max_attempts=4, backoff_s=0.01, jitter="none")]
    result = crashing([0.03], (0.025, 0, 0.05), reaction=workload.Reaction(retries=retries))
    assert list(result.requests["outcome"]) == ["completed"]
    assert list(result.requests["attempts"]) == [4]
    assert ns(result.requests["e2e_s"])[0] == (10 + 20 + 40 + 100) * MS
    causes = result.time_by_cause()
    assert causes.ns[0, causes.names.index("client")] == 70 * MS


def test_decision_of_a_crashed_gateway_is_forgotten() -> None:
    """Lost at the end of its decision, at 20 ms; the second attempt waits for one of its own."""
    retries = [workload.Retry(on=["gateway_lost"], backoff_s=0.01, jitter="none")]
    result = crashing(
        [0.0],
        (0.01, 0, 0.005),
        own={"decision_latency_s": 0.02},
        reaction=workload.Reaction(retries=retries),
    )
    assert list(result.requests["outcome"]) == ["completed"]
    assert ns(result.requests["e2e_s"])[0] == (20 + 10 + 20 + 100) * MS


def test_streaming_run_reuses_what_lost_requests_leave() -> None:
    """Their numbers are those of later requests, which are routed by the router's next process."""
    arrival_s = [0.001 * i for i in range(200)]
    settings = {"router": router.KvCost(), "permits": 100}
    own = {"decision_latency_s": 0.02, "routing_latency_s": 0.005}
    ledgers = [
        crashing(
            arrival_s,
            (0.03, 0, 0.05),
            own=own,
            metrics=metrics.Metrics(streaming=streams),
            **settings,
        ).ledger
        for streams in (False, True)
    ]
    assert ledgers[0] == ledgers[1]
    assert ledgers[0]["failed"] > 0


def test_step_that_ends_at_the_crash_has_ended() -> None:
    """So the request of its batch leaves before that which waits, as in every other order."""
    retries = [workload.Retry(on=["gateway_lost"], backoff_s=0.01, jitter="none")]
    server = SERVER.replace(max_num_seqs=1)
    result = crashing(
        [0, 0.005],
        (0.03, 0, 0.001),
        instances=server,
        permits=2,
        reaction=workload.Reaction(retries=retries),
    )
    assert list(result.requests["instance"]) == [0, 0]
    assert ns(result.requests["e2e_s"]) == [140 * MS, 235 * MS]


def test_controllers_buckets_and_turns_begin_anew() -> None:
    bucket = gateway.TokenBucket(capacity_tokens=32, refill_tokens_per_s=0)
    arrivals = [0.0, 0.001, 0.002, 0.3, 0.301, 0.302]
    result = crashing(arrivals, (0.2, 0, 0.05), permits=10, own={"admission": bucket})
    whole = crashing(arrivals, permits=10, own={"admission": bucket})
    assert list(whole.requests["outcome"]) == ["completed"] * 2 + ["rejected"] * 4
    once = ["completed", "completed", "rejected"]
    assert list(result.requests["outcome"]) == once + once


def test_new_process_knows_the_load_that_it_sends() -> None:
    """Of prompts of 80 tokens without a first token, two are more than a worker may have."""
    settings: dict[str, Any] = {
        "instances": flat(e2e_s=100, ttft_s=50),
        "input_tokens": 80,
        "busy_monitor": signals.BusyMonitor(active_prefill_tokens_threshold=100),
    }
    arrivals = [0, 0.5, 1, 2, 2.5, 3]

    def refused(*crashes: tuple[float, int, float | None]) -> Result:
        changes = [
            {"at_s": at_s, "faults": [fleet.GatewayCrash(gateway=number, for_s=for_s)]}
            for at_s, number, for_s in crashes
        ]
        own = gateway.Gateway(admission=gateway.BusyThreshold())
        return run(arrivals, gateway=own, changes=changes, **settings)

    completed, rejected, failed = "completed", "rejected", "failed"
    assert list(refused().requests["outcome"]) == [completed] * 2 + [rejected] * 4
    result = refused((1.2, 0, 0.1))
    once = [completed, completed, rejected]
    assert list(result.requests["outcome"]) == [failed, failed, rejected, *once]
    (rank,) = result.ranks
    assert rank["active_decode_blocks"] == rank["active_prefill_tokens"] == 0


def test_settings_in_force_are_those_of_the_return() -> None:
    """Two permits from 10 ms on, also for the process that begins at 60 ms."""
    base = crashing([0.1, 0.1], (0.05, 0, 0.01)).simulation
    changes = [{"at_s": 0.01, "set": {"gateway.limit[0].max_in_flight": 2}}, *base.changes]
    result = simulate(base.replace(changes=changes))
    assert ns(result.requests["queue_s"]) == [0, 0]
    assert ns(simulate(base).requests["queue_s"])[1] > 0


def test_tenants_of_other_replicas_stay_where_they_are() -> None:
    tenants = [f"tenant {i}" for i in range(12)]
    rows = [0.001 * i for i in range(240)]
    own = {"split": "tenant_hash", "admission": gateway.TokenBucket(refill_tokens_per_s=0)}

    def served(*crashes: tuple[float, int, float | None]) -> Result:
        return crashing(rows, *crashes, replicas=3, permits=10**6, own=own, tenant=tenants * 20)

    whole = served()
    for number in range(3):
        result = served((0.1, number, None))
        moved = set(result.requests["tenant"][result.requests["outcome"] == "failed"].tolist())
        assert 0 < len(moved) < 12
        assert whole.ledger["failed"] == 0


def test_session_whatifs_and_views() -> None:
    base = Simulation(
        workload=workload.Synthetic(requests_per_s=20, num_requests=100),
        instances=[instance.InstanceGroup(count=2, latency=steady(10))],
        gateway=gateway.Gateway(replicas=2),
        metrics=metrics.Metrics(timeline_step_s=0.5),
    )
    session = spillway.start(base).advance(1)
    session.fail(fleet.GatewayCrash(gateway=1, for_s=0.5)).advance(1.2)
    session.fail({"kind": "gateway_crash", "gateway": 0})
    result = session.finish()
    assert result.digest == simulate(result.simulation).digest
    assert [fault["gateway"] for fault in result.faults] == [1, 0]
    session = spillway.start(base)
    with pytest.raises(ConfigError, match="must be one of the 2 replicas of the gateway"):
        session.fail(fleet.GatewayCrash(gateway=2))
    assert session.finish().digest == simulate(base).digest
    said = traffic.changed(base, "gateway 1 crashes at 1s for 500ms")
    assert list(said.changes[0].faults) == [fleet.GatewayCrash(gateway=1, for_s=0.5)]
    with pytest.raises(ConfigError, match="the only fault of a gateway"):
        traffic.changed(base, "gateway 1 hangs")
    assert [span.look for span in faults.spans(result)] == ["gateway failed"] * 2
    header, first, _ = fault_rows(result)
    shown = dict(zip(header, first, strict=True))
    assert (shown["fault"], shown["instance"]) == ("gateway_crash", "gateway 1")
    (found,) = [known for known in result.findings() if known.name == "gateways_failed"]
    lost = sum(fault["lost_requests"] for fault in result.faults)
    assert lost == result.ledger["failed"] > 0
    assert f"{lost:,} requests" in str(found)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"fleet.migration.limit": 1}, "migration"),
        ({"instances[0].notices_departure_after_s": 1.0}, "notices_departure_after_s"),
        ({"gateway.replicas": 1}, "replicas of the gateway"),
        ({"reaction.hedge": {"after_s": 1.0}}, "have no faults"),
    ],
)
def test_what_cannot_fail_says_so(changes: dict[str, Any], what: str) -> None:
    crash = fleet.GatewayCrash(gateway=1)
    simulation = Simulation(
        gateway=gateway.Gateway(replicas=2), changes=[{"at_s": 1, "faults": [crash]}]
    )
    with pytest.raises(ConfigError, match=what):
        simulation.with_(changes)


# --- against the twin -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    setup: Setup
    crashes: list[Crash]
    requests: list[Request]

    def simulation(self, **settings: Any) -> Simulation:
        own = self.setup
        rule = workload.Retry(
            on=list(own.retries_on),
            max_attempts=own.max_attempts,
            backoff_s=own.wait_ns / 1e9,
            multiplier=1,
            jitter="none",
        )
        limit = gateway.FixedLimit(max_in_flight=own.permits) if own.permits else "unlimited"
        queue = gateway.Queue(max_requests=own.queue_places)
        return Simulation(
            workload=plain_trace_of(self.requests),
            instances=[group_of(server) for server in own.servers],
            router=router.RoundRobin(),
            gateway=gateway.Gateway(
                replicas=own.gateways,
                limit=[limit],
                bands=[gateway.Band(queue=queue)],
                admission_latency_s=own.admission_ns / 1e9,
                routing_latency_s=own.routing_ns / 1e9,
            ),
            reaction=workload.Reaction(
                timeout_s=None if own.timeout_ns is None else own.timeout_ns / 1e9, retries=[rule]
            ),
            changes=[
                {
                    "at_s": crash.at_ns / 1e9,
                    "faults": [
                        fleet.GatewayCrash(
                            gateway=crash.gateway,
                            for_s=None if crash.for_ns is None else crash.for_ns / 1e9,
                        )
                    ],
                }
                for crash in self.crashes
            ],
        ).replace(**settings)


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    server = replace(
        PLAIN,
        quantum_ns=1,
        max_num_seqs=rng.randint(1, 6),
        max_num_batched_tokens=rng.choice((8, 32, 256)),
        num_kv_blocks=rng.randint(24, 60),
        scheduler=rng.choice(("fcfs", "sjf")),
        alpha0_us=rng.choice((0.0, 0.0, 1500.0, 30_000.0)),
        beta0_us=rng.choice((700.0, 7000.0)),
        async_scheduling=rng.random() < 0.5,
        prefix_caching=rng.random() < 0.5,
    )
    span_us = rng.choice((100_000, 400_000))

    def some_ns(most_us: int) -> int:
        # Half of them fall on ends of steps.
        return rng.choice((rng.randint(1, most_us), 700 * rng.randint(1, most_us // 700))) * 1000

    gateways = rng.randint(1, 3)
    requests = [
        Request(
            f"request_{row}",
            at_us * 1000,
            rng.choice((rng.randint(1, 50), rng.randint(1, 50), rng.randint(1, 600))),
            rng.choice((0, 1, 5, 20, 40)),
        )
        for row, at_us in enumerate(
            sorted(rng.randrange(span_us) for _ in range(rng.randint(5, 25)))
        )
    ]
    setup = Setup(
        servers=[server] * rng.randint(1, 3),
        gateways=gateways,
        permits=rng.choice((None, 1, 2, 4)),
        queue_places=rng.choice((None, None, 1, 3)),
        admission_ns=rng.choice((0, 0, some_ns(span_us // 20))),
        routing_ns=rng.choice((0, 0, some_ns(span_us // 20))),
        timeout_ns=rng.choice((None, some_ns(span_us // 4))),
        wait_ns=some_ns(span_us // 10),
        max_attempts=rng.randint(1, 4),
        retries_on=rng.choice(
            (("gateway_lost",), ("timeout", "gateway_lost", "queue_full"), ("timeout",))
        ),
    )
    crashes = [
        Crash(
            some_ns(span_us),
            rng.randrange(gateways),
            rng.choice((None, 1000, some_ns(span_us // 4), some_ns(span_us // 4))),
        )
        for _ in range(rng.randint(1, 5))
    ]
    return Case(setup, crashes, requests)


def same_as_twin(case: Case, seed: int) -> Counter[str]:
    twin = GatewayFailures(case.setup, case.crashes)
    jobs = twin.run(case.requests)
    result = simulate(case.simulation())
    requests = result.requests
    for row, job in enumerate(jobs):
        at = (seed, row)
        assert requests["outcome"][row] == job.outcome, at
        assert requests["reason"][row] == job.reason, at
        assert requests["attempts"][row] == job.attempts, at
        if job.outcome == "completed":
            assert requests["instance"][row] == job.instance, at
            finished_ns = job.live.outcome.finished_ns
            assert finished_ns is not None
            assert ns(requests["e2e_s"])[row] == finished_ns - job.request.arrival_ns, at
    for i, (known, seen) in enumerate(zip(twin.instances, result.instances, strict=True)):
        assert seen["steps"] == known.steps, (seed, i)
        assert seen["tokens_wasted"] == known.wasted, (seed, i)
    assert result.faults == [fault_of(report) for report in twin.reports], seed
    ledger = result.ledger
    assert ledger["attempts"] == sum(job.attempts for job in jobs), seed
    assert ledger["failed"] == sum(report.lost_requests for report in twin.reports), seed
    assert ledger.get("failed_at_admission", 0) == twin.failed_before, seed
    assert ledger.get("failed_in_queue", 0) == twin.failed_queued, seed
    check_conservation(result)
    same_otherwise(case, result, seed)
    return twin.seen


def fault_of(report: Report) -> dict[str, Any]:
    """The crash as a result lists it."""
    ended_s = None if report.ended_ns is None else report.ended_ns / 1e9
    return {
        "kind": "gateway_crash",
        "instance": None,
        "gateway": report.gateway,
        "began_s": pytest.approx(report.began_ns / 1e9, abs=1e-12),
        "detected_s": pytest.approx(report.began_ns / 1e9, abs=1e-12),
        "ended_s": None if ended_s is None else pytest.approx(ended_s, abs=1e-12),
        "lost_requests": report.lost_requests,
        "lost_tokens": 0,
        "lost_time_s": pytest.approx(report.lost_ns / 1e9, abs=1e-12),
    }


def same_otherwise(case: Case, result: Result, seed: int) -> None:
    """Step by step, and with rows that are reused, the run is the same."""
    plain = simulate(case.simulation(), reference=True)
    assert plain.digest == result.digest, seed
    assert plain.ledger == result.ledger, seed
    assert plain.faults == result.faults, seed
    streamed = simulate(case.simulation(metrics=metrics.Metrics(streaming=True)))
    assert streamed.ledger == result.ledger, seed
    assert streamed.faults == result.faults, seed
    causes = result.time_by_cause()
    completed = result.requests["outcome"] == "completed"
    assert (causes.ns >= 0).all(), seed
    whole = np.array(ns(result.requests["e2e_s"]))[completed]
    assert (causes.ns.sum(axis=1)[completed] == whole).all(), seed


@pytest.mark.parametrize("part", range(3))
def test_crashes_are_those_of_the_twin(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in in_parts(trials(3600), 3)[part]:
        seen += same_as_twin(random_case(seed), seed)
    for what in ("crash", "return", "lost in an instance", "lost in a queue", "no replica"):
        assert seen[what] >= often(90), (what, seen)
    for what in (
        "another replica",
        "return before the last has left",
        "crash while down",
        "lost at admission",
        "lost before routing",
        "lost on the way",
        "had left",
        "refused after a crash",
    ):
        assert seen[what] >= often(12), (what, seen)
