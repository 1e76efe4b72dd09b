"""Instances that crash, hang and slow down: cases by hand, laws, theory."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import scaled
from support.runs import ns, run, steady

import spillway
from spillway import (
    ConfigError,
    Result,
    Simulation,
    fleet,
    gateway,
    instance,
    router,
    simulate,
    workload,
)
from spillway.findings.run import Run
from spillway.report.plots import faults
from spillway.report.tables import fault_rows

if TYPE_CHECKING:
    from pathlib import Path

MS = 10**6


def failing(
    arrival_s: list[float],
    *faults: tuple[float, dict[str, Any]],
    count: int = 1,
    own: dict[str, Any] | None = None,
    **settings: Any,
) -> Result:
    """Prompts of one step and outputs of ten, each of 10 ms: a request alone takes 100 ms."""
    server = instance.InstanceGroup(
        count=count, latency=steady(10), async_scheduling=False, max_num_seqs=4
    )
    return run(
        arrival_s,
        instances=server,
        fleet={"startup_s": 0.02} | (own or {}),
        changes=[{"at_s": at_s, "faults": [fault]} for at_s, fault in faults],
        router=router.RoundRobin(),
        **settings,
    )


def crash(instance: int = 0, for_s: float | None = 0.1) -> dict[str, Any]:
    return {"kind": "crash", "instance": instance, "for_s": for_s}


def test_crash_breaks_streams_and_the_queue_waits_for_the_restart() -> None:
    """Of the first, two steps are done at 25 ms: its prompt, and one token in memory."""
    result = failing([0, 0.05], (0.025, crash()))
    assert list(result.requests["outcome"]) == ["failed", "completed"]
    assert list(result.requests["reason"]) == ["instance_lost", ""]
    # Started again at 125 ms, serves from 145 ms on.
    assert ns(result.requests["e2e_s"])[1] == (145 + 100 - 50) * MS
    (fault,) = result.faults
    assert fault["ended_s"] == pytest.approx(0.145)
    assert fault["detected_s"] == fault["began_s"] == 0.025
    assert (fault["lost_requests"], fault["lost_tokens"]) == (1, 17)
    assert fault["lost_time_s"] == pytest.approx(0.025)
    assert result.summary()["wasted_tokens"] == 17
    assert result.ledger["failed"] == 1


@pytest.mark.parametrize("undetected", ["refused", "swallowed"])
def test_until_the_detection_requests_go_to_a_dead_instance(undetected: str) -> None:
    """At 30 ms the turn is that of the dead one; refused, also at 31 ms."""
    health = {"detected_after_s": 0.05, "undetected": undetected}
    patient = workload.Reaction(
        retries=[workload.Retry(on=["instance_lost"], backoff_s=0.001, jitter="none")]
    )
    result = failing(
        [0.03, 0.031, 0.1],
        (0.02, crash(for_s=None)),
        count=2,
        own={"health": health},
        reaction=patient,
    )
    assert list(result.requests["outcome"]) == ["completed"] * 3
    # The last attempt comes at 33 or 71 ms, and joins the step that begins at 41 or 71 ms.
    lost, end_ms = (2, 141) if undetected == "refused" else (1, 171)
    assert list(result.requests["attempts"]) == [1 + lost, 1, 1]
    assert list(result.requests["instance"]) == [1, 1, 1]
    assert ns(result.requests["e2e_s"])[0] == (end_ms - 30) * MS
    (fault,) = result.faults
    assert fault["detected_s"] == pytest.approx(0.07)
    assert (fault["lost_requests"], fault["lost_tokens"]) == (lost, 0)


def test_hang_delays_what_is_inside_and_what_arrives() -> None:
    """It stands still from 25 ms to 65 ms, within the third step."""
    result = failing(
        [0, 0.03],
        (0.025, {"kind": "hang", "instance": 0, "for_s": 0.04}),
        own={"health": {"detected_after_s": 1}},
    )
    assert ns(result.requests["e2e_s"])[0] == 140 * MS
    # Enters at 65 ms, joins the step that begins at 70 ms.
    assert ns(result.requests["ttft_s"])[1] == (80 - 30) * MS
    assert result.faults[0]["detected_s"] is None
    assert result.faults[0]["ended_s"] == pytest.approx(0.065)
    assert result.faults[0]["lost_requests"] == 0


def test_detected_hang_is_a_crash_and_a_restart() -> None:
    result = failing(
        [0], (0.025, {"kind": "hang", "instance": 0}), own={"health": {"detected_after_s": 0.1}}
    )
    assert result.requests["outcome"][0] == "failed"
    assert result.faults[0]["detected_s"] == pytest.approx(0.125)
    assert result.faults[0]["ended_s"] == pytest.approx(0.145)
    assert result.faults[0]["lost_time_s"] == pytest.approx(0.125)


def test_hang_before_the_report_of_readiness_is_detected() -> None:
    """Restarted at 125 ms, it serves from 145 ms on; a report at 325 ms would have said so."""
    health = {"health": {"detected_after_s": 0.2}, "reported_ready_after_s": 0.2}
    hang = {"kind": "hang", "instance": 0}
    result = failing([0.15], (0.025, crash()), (0.175, hang), own=health)
    assert list(result.requests["reason"]) == ["instance_lost"]
    assert [fault["detected_s"] for fault in result.faults] == [None, 0.375]


def test_patience_ends_a_request_of_a_hung_instance() -> None:
    result = failing(
        [0, 0.03],
        (0.025, {"kind": "hang", "instance": 0, "for_s": 10}),
        own={"health": {"detected_after_s": 100}},
        reaction=workload.Reaction(timeout_s=0.2),
        metrics={"timeline_step_s": 0.01},
    )
    assert list(result.requests["reason"]) == ["client_timeout"] * 2
    timeline = result.timeline
    held = timeline["in_flight"][(timeline["time_s"] > 0.205) & (timeline["time_s"] < 0.225)]
    assert set(held) <= {1}
    assert result.end_s == pytest.approx(10.03)  # when the step under way ends, without them


def test_slow_steps_are_those_that_begin_in_the_span() -> None:
    """From 25 ms to 60 ms: the steps that begin at 30 and 50 ms take 20 ms."""
    fault = {"kind": "slowdown", "instance": 0, "for_s": 0.035, "factor": 2}
    assert ns(failing([0], (0.025, fault)).requests["e2e_s"])[0] == 120 * MS


def test_cache_is_cold_after_a_crash() -> None:
    warm: dict[str, Any] = {"prefixes": [("system", 64)] * 2, "input_tokens": 80}
    assert failing([0, 0.5], **warm).instances[0]["kv_hits"] == 4
    assert failing([0, 0.5], (0.2, crash()), **warm).instances[0]["kv_hits"] == 0


def kv_loss(*, cached_only: bool = False) -> dict[str, Any]:
    return {"kind": "kv_loss", "instance": 0, "cached_only": cached_only}


def test_lost_memory_is_computed_again() -> None:
    """At 30 ms the request has three tokens; one step computes all 18 and gives it the next one."""
    result = failing([0], (0.025, kv_loss()))
    assert ns(result.requests["e2e_s"]) == [100 * MS]
    assert list(result.requests["preemptions"]) == [1]
    assert result.instances[0]["tokens_recomputed"] == 18
    (fault,) = result.faults
    assert fault["began_s"] == fault["ended_s"] == 0.025
    assert fault["detected_s"] is None
    assert (fault["lost_requests"], fault["preempted_requests"]) == (0, 1)
    assert fault["lost_tokens"] == 17
    assert fault_rows(result)[1][5] == "-"  # it was never out of service


def test_loss_of_what_is_cached_spares_the_batch() -> None:
    warm: dict[str, Any] = {"prefixes": [("system", 64)] * 3, "input_tokens": 80}
    arrival_s = [0, 0.3, 0.35]
    assert failing(arrival_s, **warm).instances[0]["kv_hits"] == 8
    result = failing(arrival_s, (0.2, kv_loss(cached_only=True)), **warm)
    assert result.instances[0]["kv_hits"] == 4
    # The second one holds the prefix while the third one comes.
    result = failing(arrival_s, (0.33, kv_loss(cached_only=True)), **warm)
    assert result.instances[0]["kv_hits"] == 8
    assert not result.requests["preemptions"].any()
    assert failing(arrival_s, (0.33, kv_loss()), **warm).instances[0]["kv_hits"] == 8


def test_pools_do_not_lose_their_memory_alone() -> None:
    pools = [instance.InstanceGroup(role=role) for role in ("prefill", "decode")]
    with pytest.raises(ConfigError, match=r"faults\[0\] = kv_loss: cannot be where"):
        Simulation(instances=pools, changes=[{"at_s": 1, "faults": [kv_loss()]}])


def test_dead_fleet_keeps_its_queue() -> None:
    result = failing([0.05], (0.02, crash(for_s=None)))
    assert result.requests["outcome"][0] == "queued"


@pytest.mark.parametrize(
    ("scaler", "outcome"),
    [
        # No room: polls bring nothing.
        ({"kind": "target", "max_instances": 1}, "queued"),
        ({"kind": "planner", "max_instances": 1}, "queued"),
        # Room, but ten requests per instance are fewer than what wait: settled after a while.
        ({"kind": "queue", "max_instances": 2, "queue_threshold": 10}, "queued"),
        # The second instance is added once the recommendation has held.
        ({"kind": "queue", "max_instances": 2, "queue_threshold": 0.5}, "completed"),
        ({"kind": "target", "metric": "queued", "target": 0.5, "max_instances": 2}, "completed"),
    ],
)
def test_polls_of_a_dead_fleet_end(scaler: dict[str, Any], outcome: str) -> None:
    own = {"initial_instances": 1, "autoscaler": scaler | {"poll_s": 1}}
    result = failing([0.05], (0.02, crash(for_s=None)), count=2, own=own)
    assert result.requests["outcome"][0] == outcome
    assert simulate(result.simulation, reference=True).digest == result.digest


def test_an_instance_out_of_service_that_breaks_down_is_not_awaited() -> None:
    own = {"initial_instances": 1, "breakdowns": {"mttf_s": 1, "mttr_s": 1}}
    result = failing([0.05], (0.02, crash(for_s=None)), count=2, own=own)
    assert result.requests["outcome"][0] == "queued"


def test_same_run_whether_faults_are_known_or_come_from_a_session() -> None:
    server = instance.InstanceGroup(count=2, latency=steady(10))
    traffic = workload.Synthetic(requests_per_s=20, num_requests=100)
    simulation = Simulation(workload=traffic, instances=[server])
    session = spillway.start(simulation).advance(1)
    session.fail(fleet.Crash(instance=1, for_s=0.5)).advance(1.2)
    session.fail({"kind": "slowdown", "instance": 0, "factor": 3})
    result = session.finish()
    assert result.digest == simulate(result.simulation).digest
    assert [fault["kind"] for fault in result.faults] == ["crash", "slowdown"]
    session = spillway.start(simulation)
    with pytest.raises(ConfigError, match="must be one of the 2 instances"):
        session.fail(fleet.Crash(instance=2))
    assert session.finish().digest == simulate(simulation).digest


def test_breakdowns_have_their_own_stream() -> None:
    """The faults are the same whatever the load, and differ from seed to seed."""
    own = fleet.Fleet(startup_s=0, breakdowns=fleet.Breakdowns(mttf_s=5, mttr_s=1))
    base = Simulation(
        workload=workload.Synthetic(requests_per_s=20, duration_s=60),
        instances=[instance.InstanceGroup(count=2, latency=steady(10))],
        fleet=own,
    )
    began = [[fault["began_s"] for fault in simulate(base, seed).faults] for seed in (1, 1, 2)]
    assert began[0] == began[1] != began[2]
    busier = simulate(base.with_({"workload.requests_per_s": 40.0}), 1)
    shared = min(len(began[0]), len(busier.faults)) - 2
    assert [fault["began_s"] for fault in busier.faults][:shared] == began[0][:shared]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"instances[0].plant": {"kind": "processor_sharing"}}, "plant"),
        ({"instances[0].completion": "step_start"}, "completion"),
        ({"instances[0].front_end.us_per_request": 5.0}, "front_end"),
        ({"fleet.health.detected_after_s": -1.0}, "detected_after_s"),
    ],
)
def test_what_cannot_fail_says_so(changes: dict[str, Any], what: str) -> None:
    simulation = Simulation(changes=[{"at_s": 1, "faults": [crash()]}])
    with pytest.raises(ConfigError, match=what):
        simulation.with_(changes)


# Theory


def stationary(rate: float, service: float, failure: float, repair: float, servers: int) -> Any:
    """Of an M/M/c queue whose servers break down, busy or idle, and lose the request in service.

    The states are (requests, servers that work); the queue is cut where it is never that long.
    """
    longest = 200
    states = list(itertools.product(range(longest + 1), range(servers + 1)))
    index = {state: i for i, state in enumerate(states)}
    flow = np.zeros((len(states), len(states)))
    for (n, up), i in index.items():
        busy = min(n, up)
        moves = {
            (n + 1, up): rate,
            (n - 1, up): service * busy,
            (n - 1, up - 1): failure * busy,
            (n, up - 1): failure * (up - busy),
            (n, up + 1): repair * (servers - up),
        }
        for to, speed in moves.items():
            if to in index and speed > 0:
                flow[i, index[to]] += speed
                flow[i, i] -= speed
    flow[:, 0] = 1
    target = np.zeros(len(states))
    target[0] = 1
    return states, np.linalg.solve(flow.T, target)


@pytest.mark.parametrize("servers", [1, 3])
def test_queue_whose_servers_break_down(servers: int) -> None:
    """Loss and mean number of waiting requests within four standard errors."""
    mean_s, mttf_s, mttr_s = 0.5, 10.0, 2.0
    rate = 0.6 * servers / mean_s * mttf_s / (mttf_s + mttr_s)
    simulation = Simulation(
        workload=workload.Synthetic(
            requests_per_s=rate,
            num_requests=20_000,
            clients=[
                workload.Client(
                    input_tokens=workload.Fixed(tokens=1),
                    output_tokens=workload.Exponential(mean_tokens=50),
                )
            ],
        ),
        gateway=gateway.Gateway(limit=gateway.WorkerBudget(cap_per_worker=1)),
        router=router.LeastLoaded(),
        instances=[instance.InstanceGroup(count=servers, max_num_seqs=1, latency=steady(10))],
        fleet=fleet.Fleet(startup_s=0, breakdowns=fleet.Breakdowns(mttf_s=mttf_s, mttr_s=mttr_s)),
    )
    states, shares = stationary(rate, 1 / mean_s, 1 / mttf_s, 1 / mttr_s, servers)
    busy = sum(share * min(state) for state, share in zip(states, shares, strict=True))
    waiting = sum(
        share * max(0, state[0] - state[1]) for state, share in zip(states, shares, strict=True)
    )
    lost, queue = [], []
    for seed in range(2 + scaled(36)):
        result = simulate(simulation, seed)
        requests = result.requests
        lost.append(np.mean(requests["outcome"] == "failed"))
        queue.append(np.mean(requests["queue_s"]) * rate)
    for seen, expected in ((lost, busy / mttf_s / rate), (queue, waiting)):
        error = np.std(seen, ddof=1) / np.sqrt(len(seen))
        assert abs(np.mean(seen) - expected) < 4 * error + 0.01 * expected, (seen, expected)


# --- requests that go on at another instance ------------------------------------------------------

MIGRATES = {"migration": {"limit": 1}}


def test_request_goes_on_with_its_tokens_at_another_instance() -> None:
    """Two tokens at 20 ms; at 25 ms its prompt and these are computed again, in one step."""
    alone = failing([0], count=2)
    result = failing([0], (0.025, crash()), count=2, own=MIGRATES)
    requests = result.requests
    assert (requests["outcome"][0], requests["attempts"][0]) == ("completed", 1)
    assert (requests["instance"][0], requests["migrations"][0]) == (1, 1)
    assert requests["ttft_s"][0] == alone.requests["ttft_s"][0]
    # A step of 10 ms gives the third token at 35 ms; seven more follow.
    assert ns(requests["e2e_s"])[0] == (35 + 70) * MS
    assert requests["output_tokens"][0] == 10
    assert requests["recomputed_tokens"][0] == 17
    assert result.summary()["mean_itl_ms"] == pytest.approx((10 + 15 + 7 * 10) / 9)
    assert result.ledger["migrations"] == {"new_request": 0, "ongoing_request": 1}
    assert result.ledger["failed"] == 0
    (fault,) = result.faults
    assert (fault["lost_requests"], fault["migrated_requests"]) == (1, 1)
    assert requests["scheduling_delay_s"][0] == alone.requests["scheduling_delay_s"][0]


@pytest.mark.parametrize(
    ("own", "outcome"),
    [
        ({"limit": 0}, "failed"),
        ({"limit": 1}, "completed"),
        ({"limit": 1, "max_seq_len_tokens": 18}, "completed"),
        ({"limit": 1, "max_seq_len_tokens": 17}, "failed"),
        ({"limit": 1, "answered": False}, "failed"),
    ],
)
def test_what_keeps_a_request_from_going_on(own: dict[str, Any], outcome: str) -> None:
    """It has 16 tokens of prompt and two of output, which is not above 18."""
    result = failing([0], (0.025, crash()), count=2, own={"migration": own})
    assert result.requests["outcome"][0] == outcome
    assert result.requests["reason"][0] == ("" if outcome == "completed" else "instance_lost")


def test_request_fails_if_no_other_instance_is_ready() -> None:
    result = failing([0], (0.025, crash()), own=MIGRATES)
    assert result.requests["reason"][0] == "instance_lost"
    assert result.requests["migrations"][0] == 0
    assert result.ledger["migrations"] == {"new_request": 0, "ongoing_request": 0}


def test_retry_before_the_first_token_hides_a_dead_instance() -> None:
    """At 30 ms it is the turn of the dead one, which refuses until 70 ms."""
    own = {"health": {"detected_after_s": 0.05}, "migration": {"limit": 1, "answered": False}}
    result = failing([0.03], (0.02, crash(for_s=None)), count=2, own=own)
    assert result.requests["outcome"][0] == "completed"
    assert ns(result.requests["e2e_s"])[0] == 100 * MS
    assert result.ledger["migrations"] == {"new_request": 1, "ongoing_request": 0}
    assert result.requests["recomputed_tokens"][0] == 0


def test_permit_is_kept_while_a_request_goes_on() -> None:
    """One permit: the second request is dispatched when the first has ended, not when it breaks."""
    result = failing(
        [0, 0.001],
        (0.025, crash()),
        count=2,
        own=MIGRATES,
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=1)),
    )
    assert list(result.requests["outcome"]) == ["completed", "completed"]
    assert ns(result.requests["queue_s"])[1] == (105 - 1) * MS


def test_client_that_has_left_does_not_go_on() -> None:
    result = failing(
        [0],
        (0.02, {"kind": "hang", "instance": 0}),
        count=2,
        own=MIGRATES | {"health": {"detected_after_s": 1}},
        reaction=workload.Reaction(timeout_s=0.5),
    )
    assert result.requests["reason"][0] == "client_timeout"
    assert result.requests["migrations"][0] == 0


def causes_ms(result: Result, row: int) -> dict[str, float]:
    own = result.time_by_cause().seconds(row)
    return {name: round(value * 1e3, 6) for name, value in own.items()}


def test_failure_is_the_time_until_a_request_is_as_far_as_before() -> None:
    """A step of 5 ms is in vain; another of 10 ms computes prompt and answer again."""
    result = failing([0], (0.025, crash()), count=2, own=MIGRATES)
    assert causes_ms(result, 0) == {"prefill_own": 10, "decode": 15 + 70, "failure": 10}
    why = result.why(0)
    assert "it went on at another one, 1 times; 17 of its tokens were computed again" in why
    assert "when it was sent to" not in why
    assert why.causes_s["failure"] == pytest.approx(0.01)


def test_failure_lasts_until_a_hang_is_detected() -> None:
    own = MIGRATES | {"health": {"detected_after_s": 0.1}}
    result = failing([0], (0.025, {"kind": "hang", "instance": 0}), count=2, own=own)
    assert causes_ms(result, 0) == {"prefill_own": 10, "decode": 85, "failure": 100 + 10}


def test_failure_is_a_hang_for_all_that_are_there() -> None:
    """The second one reaches the instance 20 ms after the hang has begun."""
    hang = {"kind": "hang", "instance": 0, "for_s": 0.1}
    result = failing([0, 0.045], (0.025, hang), own={"health": {"detected_after_s": 1}})
    assert causes_ms(result, 0) == {"prefill_own": 10, "decode": 90, "failure": 100}
    # Then the step under way ends.
    assert causes_ms(result, 1) == {
        "prefill_own": 10, "decode": 90, "failure": 80, "step_under_way": 5
    }  # fmt: skip


def test_a_request_without_tokens_is_as_far_as_before_in_another_queue() -> None:
    """The first one was in its first step, the last one waited; the way takes 3 ms again."""
    own = {"gateway": {"routing_latency_s": 0.003}}
    result = failing([0, 0, 0.001], (0.005, crash()), count=2, own=MIGRATES, **own)
    assert result.requests["migrations"].tolist() == [1, 0, 1]
    ways = {"ingress": 3, "failure": 3, "decode": 90}
    assert causes_ms(result, 0) == {**ways, "prefill_own": 2 + 10, "step_under_way": 5}
    assert causes_ms(result, 2) == {**ways, "prefill_own": 10, "step_under_way": 1 + 5}


def test_a_slow_instance_has_not_failed() -> None:
    slow = {"kind": "slowdown", "instance": 0, "factor": 3, "for_s": 1}
    result = failing([0], (0.025, slow))
    assert causes_ms(result, 0) == {"prefill_own": 10, "decode": 20 + 7 * 30}


def test_reasons_name_failures_among_what_made_a_request_late() -> None:
    result = failing(
        [0],
        (0.025, crash()),
        count=2,
        own=MIGRATES,
        slo_classes=[{"name": "standard", "target_ttft_s": 0.5, "target_tpot_s": 0.0101}],
    )
    assert "without failure it would have met it" in result.why(0)


def test_servers_that_break_down_are_no_equal_fleet() -> None:
    steady_fleet = failing([0], count=2)
    assert Run(steady_fleet).is_equal_fleet
    breaking = failing([0], count=2, own={"breakdowns": {"mttf_s": 1e6}})
    assert not Run(breaking).is_equal_fleet


def test_migration_without_faults_changes_nothing() -> None:
    plain = failing([0, 0.01, 0.02], count=2)
    ready = failing([0, 0.01, 0.02], count=2, own={"migration": {"limit": 3}})
    assert ready.outcome_digest == plain.outcome_digest
    assert "migrations" not in ready.requests


def test_emitted_tokens_must_be_kept_to_go_on() -> None:
    with pytest.raises(ConfigError, match="keep_emitted where requests migrate"):
        Simulation(
            instances=instance.InstanceGroup(count=2, preemption="restart", async_scheduling=False),
            fleet={"migration": {"limit": 1}, "breakdowns": {}},
        )


# --- views ----------------------------------------------------------------------------------------


def test_spans_of_faults_are_those_of_the_figures() -> None:
    own = {"health": {"detected_after_s": 0.05}}
    slow = {"kind": "slowdown", "instance": 1, "factor": 2, "for_s": 0.01}
    result = failing(
        [0.0, 0.4], (0.1, crash()), (0.2, slow), (0.3, crash(1, None)), count=2, own=own
    )
    assert [tuple(span) for span in faults.spans(result)] == [
        ("failed, unnoticed", 0, pytest.approx(0.1), pytest.approx(0.15)),
        ("failed", 0, pytest.approx(0.15), pytest.approx(0.22)),
        ("slow", 1, pytest.approx(0.2), pytest.approx(0.21)),
        ("failed, unnoticed", 1, pytest.approx(0.3), pytest.approx(0.35)),
        ("failed", 1, pytest.approx(0.35), pytest.approx(result.end_s)),
    ]
    lost = failing([0.0], (0.02, kv_loss()))
    assert list(faults.spans(lost)) == [("KV memory lost", 0, 0.02, 0.02)]
    at_once = failing([0.0, 0.1], (0.0, crash()), count=2)
    assert [span.look for span in faults.spans(at_once)] == ["failed"]


def test_figures_shade_faults_without_moving_their_axes() -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    timeline = {"metrics": {"timeline_step_s": 0.01}}
    result = failing([0, 0.05], (0.025, crash()), count=2, own=MIGRATES, **timeline)
    plain = failing([0, 0.05], count=2, **timeline)
    for drawn, labels in ((result, ["failed"]), (plain, [])):
        axes = drawn.plot.over_time("in_flight")
        assert axes.get_legend_handles_labels()[1] == labels
        panels = {panel.get_label(): panel for panel in drawn.plot.gateway().axes}
        assert panels["submitted"].get_legend_handles_labels()[1] == ["a", *labels]
        assert panels["limit"].get_xlim() == (0, drawn.timeline["time_s"][-1])
        rows = drawn.plot.instances().axes[0]
        assert rows.get_legend_handles_labels()[1] == labels
        assert rows.get_ylim() == (1.5, -0.5)


def test_table_of_faults_states_what_each_cost(tmp_path: Path) -> None:
    result = failing([0, 0.05], (0.025, crash()), (0.3, crash(1, None)), count=2, own=MIGRATES)
    header, first, second = fault_rows(result)
    assert dict(zip(header, first, strict=True)) == {
        "fault": "crash", "instance": "0", "began s": "0.0250", "noticed s": "0.0250",
        "served again s": "0.1450", "out of service s": "0.1200", "requests lost": "1",
        "of these went on": "1", "tokens lost": "17",
    }  # fmt: skip
    assert second[4:6] == ["-", "> 0"]  # all requests have ended before
    assert "of these went on" in repr(result)
    result.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Failures of instances" in page
    assert "shaded: an instance" in page
    assert "of these went on" not in repr(failing([0]))
    assert fault_rows(result, most=1)[-1][0] == "and 1 more"
