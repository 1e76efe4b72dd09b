"""Busy workers in a run: what counts, when it becomes known, and the consequences.

The rules themselves are tested case by case in tests/native/signals/busy_monitor_test.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.changes import targets
from support.runs import flat, run

from spillway import ConfigError, Result, fleet, gateway, instance, presets, signals, testing
from spillway.systems.dynamo import presets as dynamo

if TYPE_CHECKING:
    from collections.abc import Sequence

REJECTIONS = 'dynamo_frontend_model_rejection_total{model="simulated",endpoint="completions"}'
BUSY = gateway.BusyThreshold()
SERVER = flat(e2e_s=10, ttft_s=4)


def asked(arrival_s: Sequence[float], *, admission: Any = BUSY, **settings: Any) -> Result:
    """Requests to a worker of 100 blocks of 16 tokens: first token after 4 s, end after 10 s."""
    server = SERVER.replace(num_kv_blocks=100, max_num_batched_tokens=500)
    settings = {"instances": server, "gateway": gateway.Gateway(admission=admission)} | settings
    return run(arrival_s, **settings)


def rejected(result: Result) -> list[int]:
    reasons = result.requests["reason"]
    assert set(reasons) <= {"", "all_workers_busy"}
    return np.flatnonzero(reasons != "").tolist()


# ---- what counts ---------------------------------------------------------------------------------


def test_without_thresholds_no_worker_is_ever_busy() -> None:
    assert rejected(asked([0.01 * i for i in range(200)])) == []


def test_prompts_in_flight_fill_kv_blocks() -> None:
    """Ten blocks each: six in flight exceed half of a hundred, five do not."""
    monitor = signals.BusyMonitor(active_decode_blocks_threshold=0.5)
    # One per second; the first ends at second 10, and one is admitted.
    assert rejected(asked([*range(12)], input_tokens=160, busy_monitor=monitor)) == [6, 7, 8, 9]


def test_a_block_that_is_begun_counts() -> None:
    monitor = signals.BusyMonitor(active_decode_blocks_threshold=0.5)
    assert rejected(asked([*range(6)], input_tokens=161, busy_monitor=monitor)) == [5]


@pytest.mark.parametrize(
    "monitor",
    [
        signals.BusyMonitor(active_prefill_tokens_threshold=500),
        signals.BusyMonitor(active_prefill_tokens_threshold_frac=1),
        signals.BusyMonitor(active_prefill_tokens_threshold_frac=1.0019),
    ],
)
def test_prompts_count_until_their_first_token(monitor: signals.BusyMonitor) -> None:
    """250 tokens each, for 4 s: three exceed 500."""
    # The first one has its first token at second 4, before the request that arrives then.
    assert rejected(asked([0, 1, 2, 3, 4, 5], input_tokens=250, busy_monitor=monitor)) == [3]


def test_generated_tokens_count_if_they_are_tracked() -> None:
    """Eight prompts of two blocks are 16 % of the memory, with what they generate it is full."""
    monitor = signals.BusyMonitor(active_decode_blocks_threshold=0.5, decode_latch=False)
    arrival_s = [*([0.0] * 8), *(0.1 * i for i in range(1, 100))]
    late = {}
    for tracks in (False, True):
        result = asked(
            arrival_s[:30],
            input_tokens=32,
            output_tokens=[160] * 8 + [1] * 22,
            instances=instance.InstanceGroup(num_kv_blocks=100),
            busy_monitor=monitor.replace(track_output_blocks=tracks),
        )
        late[tracks] = rejected(result)
    assert late[False] == []
    assert late[True]
    assert all(row >= 8 for row in late[True])


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_generated_tokens_leave_with_their_requests(replicas: int) -> None:
    monitor = signals.BusyMonitor(active_decode_blocks_threshold=0.5, track_output_blocks=True)
    result = asked(
        [0.2 * i for i in range(50)],
        input_tokens=32,
        output_tokens=200,
        instances=instance.InstanceGroup(num_kv_blocks=60, max_num_seqs=3),
        busy_monitor=monitor,
        gateway=gateway.Gateway(replicas=replicas, admission=BUSY),
    )
    assert rejected(result)
    # Each replica sees its own requests alone, and none that has ended.
    assert result.ledger["completed"] >= 8 * replicas
    (rank,) = result.ranks
    assert rank["active_decode_blocks"] == rank["active_prefill_tokens"] == 0
    assert not rank["worker_is_busy"]


def test_the_latch_also_uses_what_the_engine_reports() -> None:
    """Long outputs behind short prompts: only the engine knows how full it is."""
    monitor = signals.BusyMonitor(active_decode_blocks_threshold=0.5)
    settings = {
        "input_tokens": 16,
        "output_tokens": 300,
        "instances": instance.InstanceGroup(num_kv_blocks=60),
    }
    arrival_s = [0.25 * i for i in range(20)]
    assert rejected(asked(arrival_s, busy_monitor=monitor, **settings))
    without = monitor.replace(decode_latch=False)
    assert rejected(asked(arrival_s, busy_monitor=without, **settings)) == []


def test_restarted_requests_cannot_be_tracked() -> None:
    with pytest.raises(ConfigError, match="keep_emitted"):
        asked(
            [0.0],
            busy_monitor=signals.BusyMonitor(track_output_blocks=True),
            instances=instance.InstanceGroup(preemption="restart"),
        )


SLOW_PREFILL = instance.Linear(beta0_us=6900, beta_prefill_us=400)
PLANTS = {
    "processor_sharing": SERVER,
    "step_loop": instance.InstanceGroup(latency=SLOW_PREFILL),
    "late entry": instance.InstanceGroup(latency=SLOW_PREFILL.replace(alpha0_us=900_000)),
    "a queue before the engine": instance.InstanceGroup(
        latency=SLOW_PREFILL, ingress=instance.EngineRequestLimit(max_requests=1, queue_size=16)
    ),
}


@pytest.mark.parametrize("policy", ["round_robin", "least_loaded", "kv_cost"])
@pytest.mark.parametrize(("share", "per_rank"), [(1, True), (0, False)])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("plant", PLANTS)
def test_a_request_counts_at_its_rank_from_its_routing(
    plant: str, ranks: int, share: float, per_rank: bool, policy: str
) -> None:
    """Each prompt makes its rank busy: admission stops as soon as enough ranks are busy."""
    result = asked(
        [0, 0.1, 0.2, 0.3, 0.4],
        input_tokens=[12_000] * 3 + [10] * 2,
        output_tokens=100,
        instances=PLANTS[plant].replace(num_kv_blocks=100_000, data_parallel_size=ranks),
        router=policy,
        busy_monitor=signals.BusyMonitor(
            active_prefill_tokens_threshold=10_000, busy_rank_share=share
        ),
        horizon_s=0.45,
    )
    admitted = ranks if per_rank else 1
    assert rejected(result) == [*range(admitted, 5)]
    assert len({*result.requests["rank"][:admitted]}) == admitted
    booked = [rank["active_prefill_tokens"] for rank in result.ranks]
    assert sorted(booked, reverse=True) == [12_000] * admitted + [0] * (ranks - admitted)


# ---- when it becomes known -----------------------------------------------------------------------


def test_scraped_loads_are_those_of_the_last_scrape_that_has_arrived() -> None:
    """Every 10 s, known 1 s later: three prompts at second 1 close the gate from 11 to 21."""
    monitor = signals.BusyMonitor(active_decode_blocks_threshold=0.2)
    result = asked(
        [1, 1, 1, 9.5, 10.5, 11, 11.5, 16, 20.5, 21, 22],
        input_tokens=160,
        busy_monitor=monitor,
        signals=signals.Scraped(period_s=10, delay_s=1),
    )
    # At second 10 the first three and the fourth are inside; at 20 the fifth alone.
    assert rejected(result) == [5, 6, 7, 8]


def test_lost_scrapes_have_no_effect() -> None:
    """With almost all of them lost, the gate learns the load late or never."""
    monitor = signals.BusyMonitor(active_decode_blocks_threshold=0.2)
    shed = {}
    for loss in (0, 0.99):
        result = asked(
            [0.05 * i for i in range(400)],
            input_tokens=160,
            busy_monitor=monitor,
            signals=signals.Scraped(period_s=0.1, loss_probability=loss, jitter=0.5),
        )
        shed[loss] = len(rejected(result))
    assert shed[0] > 350
    assert shed[0.99] < shed[0]


def test_readings_on_read_are_made_when_a_decision_is_due() -> None:
    result = asked(
        [1, 1, 1, 4, 4.5, 5, 9, 9.9, 11.5, 14.9, 17],
        input_tokens=160,
        busy_monitor=signals.BusyMonitor(active_decode_blocks_threshold=0.2),
        signals=signals.OnRead(period_s=5),
    )
    # Read at 5 (five inside), and at 11.5 (the two that came at 4 and 4.5: 20 % is not above it).
    assert rejected(result) == [5, 6, 7]


def test_new_thresholds_wait_for_a_load_event() -> None:
    """While the worker is inactive, the previous readings remain."""
    result = asked(
        [0, 2, 3, 4.1, 9.9, 12.5],
        input_tokens=160,
        busy_monitor=signals.BusyMonitor(active_decode_blocks_threshold=1),
        changes=[{"at_s": 1, "set": {"busy_monitor.active_decode_blocks_threshold": 0.05}}],
    )
    # At second 2 it is not known yet, which that request's own dispatch changes.
    assert rejected(result) == [2, 3, 4]


def test_each_gateway_counts_its_own() -> None:
    """Two replicas see half of the prompts each, so twice as many are admitted."""
    monitor = signals.BusyMonitor(active_decode_blocks_threshold=0.5, decode_latch=False)
    counts = []
    for replicas in (1, 2):
        front = gateway.Gateway(admission=BUSY, replicas=replicas)
        result = asked(
            [0.1 * i for i in range(40)], input_tokens=160, busy_monitor=monitor, gateway=front
        )
        counts.append(result.ledger["admitted"])
    assert counts == [6, 12]


def limited(max_requests: int, queue_size: int) -> instance.InstanceGroup:
    ingress = instance.EngineRequestLimit(max_requests=max_requests, queue_size=queue_size)
    return SERVER.replace(ingress=ingress)


# ---- the consequences ----------------------------------------------------------------------------


def test_the_router_passes_over_busy_workers() -> None:
    """The first worker holds a long prompt; in turns it would get every other request."""
    monitor = signals.BusyMonitor(active_prefill_tokens_threshold=1000)
    prompts = [5000, 10, 10, 10, 10, 10]
    chosen = {}
    for skips in (True, False):
        result = asked(
            [0, 1, 2, 3, 3.5, 4],
            input_tokens=prompts,
            instances=SERVER.replace(count=2),
            busy_monitor=monitor.replace(router_skips_busy=skips),
        )
        chosen[skips] = result.requests["instance"].tolist()
    assert chosen[False] == [0, 1, 0, 1, 0, 1]
    assert chosen[True][:5] == [0, 1, 1, 1, 1]  # at second 4 its first token has come


def test_a_refusal_marks_the_worker_until_its_next_load_event() -> None:
    """One worker is full with three; the other takes what comes until something ends there."""
    result = asked(
        [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 3.9, 4.1, 4.2, 4.3],
        admission=gateway.AlwaysAdmit(),
        instances=[limited(1, 2), flat(e2e_s=100, ttft_s=50)],
    )
    chosen = result.requests["instance"].tolist()
    # In turns; the seventh is refused by worker 0, whose next event is a first token at second 4.
    assert chosen[:7] == [0, 1, 0, 1, 0, 1, 0]
    assert result.requests["reason"][6] == "worker_at_capacity"
    assert chosen[7:10] == [1, 1, 1]
    assert 0 in chosen[10:12]


def test_refusals_can_make_all_workers_busy() -> None:
    """Without any threshold: the only worker is marked, and admission knows."""
    result = asked([0, 0.1, 0.2, 0.3, 0.4, 3.9, 4.1], instances=limited(1, 2))
    assert result.requests["reason"].tolist() == [
        "", "", "", "worker_at_capacity", "all_workers_busy", "all_workers_busy",
        "worker_at_capacity",
    ]  # fmt: skip


def test_unservable_requests_mark_no_worker() -> None:
    result = asked(
        [0, 1, 2], input_tokens=[16, 999_999, 16], instances=instance.InstanceGroup(num_kv_blocks=9)
    )
    assert result.requests["reason"].tolist() == ["", "unservable", ""]


def test_no_workers_is_another_reason() -> None:
    """None from second 5 to second 20; without the policy, requests wait for the next worker."""
    settings = {"fleet": fleet.Fleet(startup_s=5), "changes": targets((5, 0), (15, 1))}
    result = asked([0, 4, 6, 19, 21], **settings)
    assert result.requests["reason"].tolist() == ["", "", "no_workers", "no_workers", ""]
    waits = asked([0, 4, 6, 19, 21], admission=gateway.AlwaysAdmit(), **settings)
    assert waits.requests["queue_s"] == pytest.approx([0, 0, 14, 1, 0])


def test_a_fleet_may_start_empty() -> None:
    empty = fleet.Fleet(initial_instances=0, startup_s=1)
    waits = asked([0, 3], admission=gateway.AlwaysAdmit(), fleet=empty, changes=targets((5, 1)))
    assert waits.requests["queue_s"] == pytest.approx([6, 3])
    for_ever = asked(
        [0, 3], admission=gateway.AlwaysAdmit(), fleet=fleet.Fleet(initial_instances=0)
    )
    assert for_ever.ledger["queued"] == 2


# ---- as in Dynamo --------------------------------------------------------------------------------


THRESHOLD = {"active_prefill_tokens_threshold": 500}


@pytest.mark.parametrize(
    ("version", "preset", "status"),
    [
        ("dynamo_1_2", dynamo.v1_2(**THRESHOLD, engine_request_limit=4), 503),
        ("dynamo_1_3", dynamo.v1_3(**THRESHOLD, engine_request_limit=4), 529),
        ("dynamo_dev_b", dynamo.dev_b(**THRESHOLD, engine_request_limit=4), 529),
        ("dynamo_dev_c", dynamo.dev_c(**THRESHOLD, request_limit=4), 529),
    ],
    ids=["1.2", "1.3", "dev b", "dev c"],
)
def test_presets_and_their_counters(version: Any, preset: presets.Preset, status: int) -> None:
    base = asked([0], instances=SERVER).simulation
    simulation = preset.apply(base)
    result = run(
        [0.1 * i for i in range(30)],
        input_tokens=250,
        **{
            name: getattr(simulation, name)
            for name in ("gateway", "router", "busy_monitor", "instances")
        },
    )
    # Three prompts of 250 tokens are above 500, for 4 s; so the limit of 4 is never reached.
    assert rejected(result) == [*range(3, 30)]
    shown = result.counters(version)
    assert shown[REJECTIONS] == 27
    assert shown['dynamo_frontend_worker_active_prefill_tokens{worker_id="0",dp_rank="0"}'] == 0
    assert shown[f'spillway_responses_total{{code="{status}"}}'] == 27
    assert shown['spillway_responses_total{code="200"}'] == 3
    assert ("dynamo_engine_request" in str(shown)) == (version in ("dynamo_1_2", "dynamo_1_3"))
    gate = 'dynamo_backend_admission_request_admit_total{source="direct",worker_id="0"}'
    assert shown.get(gate) == (3 if version == "dynamo_dev_c" else None)


def test_counters_of_a_full_worker() -> None:
    full = limited(2, queue_size=3)
    result = asked([0.0] * 9, admission=gateway.AlwaysAdmit(), instances=full, horizon_s=1)
    shown = result.counters("dynamo_1_3")
    assert shown['dynamo_engine_request{worker_id="0"}'] == 2
    assert shown['dynamo_request_queue{worker_id="0"}'] == 3
    assert shown['dynamo_rejection_request_total{worker_id="0"}'] == 4
    assert shown[REJECTIONS] == 4
    named = result.counters("dynamo_1_3", model="m", endpoint="chat_completions")
    series = 'dynamo_frontend_model_rejection_total{model="m",endpoint="chat_completions"}'
    assert named[series] == 4
    with pytest.raises(ValueError, match="dynamo_1_2"):
        result.counters("dynamo_2")  # type: ignore[arg-type]


def test_counters_survive_saving(tmp_path: Any) -> None:
    result = asked([0, 1, 2], busy_monitor=signals.BusyMonitor(active_prefill_tokens_threshold=1))
    result.save(tmp_path / "run.npz")
    loaded = Result.load(tmp_path / "run.npz")
    assert loaded.counters("dynamo_1_3") == result.counters("dynamo_1_3")
    assert loaded.ranks == result.ranks


# ---- the cooldown of a worker that has refused ---------------------------------------------------


@pytest.mark.parametrize(
    ("cooldown_s", "until_s"), [(None, float("inf")), (1.0, 1.0), (0.25, 0.25)]
)
def test_refusal_counts_until_the_cooldown_is_over(cooldown_s: Any, until_s: float) -> None:
    monitor = testing.BusyMonitor(
        signals.BusyMonitor(active_prefill_tokens_threshold=10, overload_cooldown_s=cooldown_s)
    )
    assert not monitor.report([testing.RankLoad(active_prefill_tokens=3)], now_s=5)
    assert monitor.mark_overloaded(now_s=6)
    for later_s in (0.2, 0.25, 0.9, 1.0, 100):
        assert monitor.is_busy(now_s=6 + later_s) == (later_s < until_s)
    # A load event ends it earlier, and what exceeds a threshold has no end.
    assert monitor.mark_overloaded(now_s=200)
    assert not monitor.report([testing.RankLoad(active_prefill_tokens=4)], now_s=200.1)
    assert monitor.report([testing.RankLoad(active_prefill_tokens=11)], now_s=201)
    assert monitor.is_busy(now_s=10_000)
    # Nor has it one because the worker refuses a request as well.
    assert monitor.mark_overloaded(now_s=10_001)
    assert monitor.is_busy(now_s=20_000)


def test_refused_requests_come_back_to_a_worker_after_its_cooldown() -> None:
    """The fourth request finds the worker full, and so do the next ones unless that is known."""
    full = limited(1, queue_size=1)
    arrivals = [0.0, 0.0, 0.0, 0.0, 0.5, 1.5]

    def reasons(cooldown_s: float | None) -> list[str]:
        monitor = signals.BusyMonitor(overload_cooldown_s=cooldown_s)
        scraped = signals.Scraped(period_s=100)
        result = asked(arrivals, instances=full, busy_monitor=monitor, signals=scraped)
        return result.requests["reason"].tolist()

    by_worker = reasons(None)[3]
    assert by_worker not in ("", "all_workers_busy")
    assert reasons(None) == ["", "", "", by_worker, "all_workers_busy", "all_workers_busy"]
    assert reasons(1) == ["", "", "", by_worker, "all_workers_busy", by_worker]
    assert reasons(0.1) == ["", "", "", by_worker, by_worker, by_worker]
