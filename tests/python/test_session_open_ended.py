"""Sessions to which a server gives requests: what they report, cancel, keep and repeat."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.descriptions import VARIANTS
from support.effort import often, trials
from support.random_simulations import random_simulation

import spillway
from spillway import (
    ConfigError,
    Session,
    Simulation,
    gateway,
    instance,
    router,
    signals,
    workload,
)
from spillway import session as sessions
from spillway._core.sim import UsageError
from spillway.testing import check_conservation

ROUTERS = [alternative for alternative in VARIANTS if alternative.seam == "Simulation.router"]
EMPTY = workload.Synthetic(num_requests=0)
PERIODIC = {
    "metrics.timeline_step_s": 0.1,
    "gateway.controller": gateway.Aimd(target_s=0.05),
    "gateway.sensor.tick_s": 0.2,
    "signals": signals.Scraped(period_s=0.3),
}


def fleet(count: int = 2, **settings: Any) -> Simulation:
    """Servers that decode a few requests at a time, without requests of their own."""
    return Simulation(
        workload=EMPTY,
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=12)),
        instances=instance.InstanceGroup(
            count=count, latency=instance.Linear(), max_num_seqs=4, num_kv_blocks=400
        ),
    ).with_(settings)


def emptied(simulation: Simulation) -> Simulation:
    """The same gateway and fleet under requests from outside alone."""
    tenants = list(simulation.tenants) or [workload.Tenant(name="default")]
    client = workload.Client(tenant=tenants[0].name, slo_class=simulation.slo_classes[0].name)
    return simulation.replace(
        workload=EMPTY.replace(clients=[client]), tenants=tenants, horizon_s=None, changes=[]
    )


def submit_at_random(session: Session, rng: random.Random, tenants: list[str]) -> None:
    for _ in range(rng.randint(2, 8)):
        input_tokens = rng.randint(33, 400)
        shared = [(rng.randint(1, 2), 16), (rng.randint(1, 2), 16)]
        fleet = session.simulation.instances
        fleet_size = sum(group.count for group in fleet)
        chance = 0.2 if all(group.role == "both" for group in fleet) else 0
        session.submit(
            input_tokens=input_tokens,
            output_tokens=rng.randint(0, 80),
            tenant=rng.choice(tenants),
            slo_class=session.simulation.slo_classes[0].name,
            segments=shared[: rng.randint(0, 2)],
            instance=rng.randrange(fleet_size) if rng.random() < chance else None,
        )


def test_what_was_done_from_outside_is_a_run_of_its_own() -> None:
    """Random fleets and gateways: requests, cancellations and looks at random instants."""
    cancelled = reused = targeted = 0
    for seed in trials(180):
        rng = random.Random(seed)
        router = ROUTERS[seed % len(ROUTERS)] if seed % 2 else None
        try:
            simulation = emptied(random_simulation(seed, force=router).simulation)
        except ConfigError:  # its settings name tenants of its workload
            continue
        tenants = [tenant.name for tenant in simulation.tenants]
        session = spillway.start(simulation, seed, open_ended=True)
        for _ in range(rng.randint(2, 8)):
            session.advance(session.now_s + rng.expovariate(2))
            if rng.random() < 0.5:
                session.observe(oracle=rng.random() < 0.5)
            submit_at_random(session, rng, tenants)
            if rng.random() < 0.5:
                cancelled += session.cancel(rng.choice(session.submitted))
            if rng.random() < 0.2:
                session = session.fork()
        events = session.take_events()
        assert [event.time_s for event in events] == sorted(event.time_s for event in events)
        submitted = [request for change in session.simulation.changes for request in change.submit]
        targeted += sum(request.instance is not None for request in submitted)
        handles = session.submitted
        result = session.finish()
        again = spillway.simulate(result.simulation, seed)
        assert again.digest == result.digest, seed
        assert spillway.simulate(result.simulation, seed, reference=True).digest == result.digest
        reused += sum(handle.status().cached_tokens > 0 for handle in handles)
    assert cancelled > often(60)
    assert reused > often(6)
    assert targeted > often(60)


def test_events_and_tokens_agree_with_the_requests() -> None:
    rng = random.Random(5)
    session = spillway.start(fleet(), open_ended=True)
    events: list[sessions.Event] = []
    for _ in range(60):
        submit_at_random(session, rng, ["default"])
        events += session.advance(session.now_s + rng.expovariate(8)).take_events()
    handles = session.submitted
    while not all(handle.status().has_ended for handle in handles):
        events += session.advance(session.now_s + 0.5).take_events()
    assert [event.time_s for event in events] == sorted(event.time_s for event in events)
    assert session.take_events() == []
    requests = session.finish().requests
    for handle in handles:
        own = {event.kind: event for event in events if event.number == handle.number}
        row = {name: column[handle.status().row] for name, column in requests.items()}
        assert own["ended"].state == row["outcome"]
        assert own["ended"].output_tokens == row["output_tokens"]
        assert own["ended"].instance == row["instance"]
        if row["outcome"] != "completed":
            continue
        assert own["first_token"].time_s - row["arrival_s"] == pytest.approx(row["ttft_s"])
        assert own["ended"].time_s - row["arrival_s"] == pytest.approx(row["e2e_s"])
        assert own["dispatched"].time_s <= own["first_token"].time_s <= own["ended"].time_s


def test_progress_is_that_of_a_run_without_shortcuts() -> None:
    """Tokens within jumps, and the next instant, against a core that performs every step singly."""
    from spillway._core.cluster import Session as Core

    seen = 0
    for seed in trials(60):
        rng = random.Random(seed)
        simulation = random_simulation(seed).simulation.with_({"horizon_s": None})
        if any(group.completion == "step_start" for group in simulation.instances):
            continue  # there a token counts from the start of its step
        changes = [
            {
                "at_s": rng.uniform(0, 2),
                "submit": [
                    {
                        "input_tokens": rng.randint(1, 300),
                        "output_tokens": rng.randint(0, 200),
                        "slo_class": simulation.slo_classes[0].name,
                        "tenant": (simulation.tenants or [workload.Tenant(name="default")])[0].name,
                    }
                ],
            }
            for _ in range(20)
        ]
        try:
            simulation = simulation.replace(changes=changes)
        except ConfigError:
            continue
        fast, slow = Core(simulation, seed), Core(simulation, seed, reference=True)
        numbers = list(range(20))
        for until_s in sorted(rng.uniform(0, 6) for _ in range(20)):
            fast.advance(until_s)
            slow.advance(until_s)
            tokens = fast.progress(numbers)
            assert tokens == slow.progress(numbers), (seed, until_s)
            seen += sum(tokens)
            due_s, due_slow_s = fast.next_due_s, slow.next_due_s
            assert due_s is None or due_slow_s is None or due_s >= until_s
    assert seen > often(20_000)


def test_a_token_is_due_at_every_step() -> None:
    """A server that wakes when something is due delivers every token, each at its instant."""
    session = spillway.start(fleet(count=1), open_ended=True)
    handles = [session.submit(input_tokens=100, output_tokens=40) for _ in range(3)]
    arrived_s: list[list[float]] = [[] for _ in handles]
    while not all(handle.status().has_ended for handle in handles):
        due_s = session.next_due_s
        assert due_s is not None
        session.advance(due_s)
        for tokens, times in zip(session.progress(handles), arrived_s, strict=True):
            assert tokens - len(times) in (0, 1)
            times.extend([session.now_s] * (tokens - len(times)))
    requests = session.finish().requests
    for handle, times in zip(handles, arrived_s, strict=True):
        row = handle.status().row
        assert len(times) == 40
        assert times[0] == pytest.approx(requests["arrival_s"][row] + requests["ttft_s"][row])
        assert times[-1] == pytest.approx(requests["arrival_s"][row] + requests["e2e_s"][row])
        assert np.diff(times).mean() == pytest.approx(requests["tpot_s"][row])


def test_a_cancelled_request_is_one_that_timed_out() -> None:
    """Queued, on its way and in the batch: the others are as if its patience had ended."""
    where = set()
    for seed in trials(60):
        rng = random.Random(seed)
        patience_s = rng.choice((0.01, 0.1, 0.5, 1.0))
        tenants = [
            workload.Tenant(name="default"),
            workload.Tenant(name="hasty", reaction=workload.Reaction(timeout_s=patience_s)),
        ]
        calm = [workload.Tenant(name="default"), workload.Tenant(name="hasty")]
        requests = [
            {
                "at_s": round(rng.uniform(0, 2), 3),
                "submit": [
                    {
                        "tenant": rng.choice(("default", "hasty")),
                        "input_tokens": rng.randint(1, 500),
                        "output_tokens": rng.randint(1, 200),
                    }
                ],
            }
            for _ in range(80)
        ]
        requests.sort(key=lambda change: change["at_s"])
        withdrawals = [
            {"at_s": change["at_s"] + patience_s, "cancel": [number]}
            for number, change in enumerate(requests)
            if change["submit"][0]["tenant"] == "hasty"
        ]
        base = fleet(**{"gateway.routing_latency_s": rng.choice((0, 0.02))})
        timed = spillway.simulate(base.with_({"tenants": tenants, "changes": requests}))
        withdrawn = spillway.simulate(
            base.with_({"tenants": calm, "changes": [*requests, *withdrawals]})
        )
        for name, column in timed.requests.items():
            assert np.array_equal(
                column, withdrawn.requests[name], equal_nan=column.dtype.kind == "f"
            ), (seed, name)
        gone = withdrawn.requests["outcome"] == "cancelled"
        where |= set(np.sign(withdrawn.requests["output_tokens"][gone]).tolist())
        where |= set(withdrawn.requests["instance"][gone].tolist())
    assert {0, 1, -1} <= where


def test_scrapes_of_an_idle_fleet_leave_the_next_request_cheap() -> None:
    """With a controller, 20,000 requests and 10,000 looks later (the bound is 1 ms)."""
    session = spillway.start(fleet(**PERIODIC), open_ended=True)
    for _ in range(200):
        for _ in range(10):
            session.submit(input_tokens=10, output_tokens=2)
        session.advance(session.now_s + 1)
    for _ in range(10_000):
        session.observe(oracle=True)
    took_s = []
    for _ in range(5):
        session.observe()
        began_s = time.perf_counter()
        session.submit(input_tokens=10, output_tokens=2)
        took_s.append(time.perf_counter() - began_s)
        session.advance(session.now_s + 1)
    assert min(took_s) <= 1e-3
    ended = session.finish()
    assert spillway.simulate(ended.simulation).digest == ended.digest


@pytest.mark.slow
def test_a_ring_keeps_the_memory_bounded() -> None:
    """100,000 requests after 10,000 (the bound is 5 MiB)."""
    settings = {"metrics.streaming": True}
    session = spillway.start(fleet(**settings), open_ended=True, record=100)
    page = 4096 / 2**20

    def serve(requests: int) -> float:
        for _ in range(requests // 10):
            for _ in range(10):
                session.submit(input_tokens=10, output_tokens=2)
            session.advance(session.now_s + 0.5).take_events()
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    before_mib = serve(10_000)
    assert serve(100_000) - before_mib <= 5
    assert len(session.recent_changes) == 100


@pytest.mark.parametrize("record", ["none", 3])
def test_what_is_not_kept_cannot_be_repeated(record: str | int) -> None:
    session = spillway.start(fleet(), open_ended=True, record=record)
    first = session.submit(input_tokens=10, output_tokens=2)
    for _ in range(4):
        session.submit(input_tokens=10, output_tokens=2)
    assert len(session.recent_changes) == (3 if record == 3 else 0)
    for asks in (session.fork, session.finish, lambda: session.simulation):
        with pytest.raises(UsageError, match="record='all'"):
            asks()
    assert session.advance(5).take_events()[-1].kind == "ended"
    with pytest.raises(UsageError, match="forgotten, because it has ended: request 0"):
        first.status()


def test_a_record_in_a_file_is_the_run(tmp_path: Path) -> None:
    rng = random.Random(3)
    path = tmp_path / "live.jsonl"
    session = spillway.start(fleet(), 4, open_ended=True, record=path)
    for _ in range(20):
        session.submit(
            input_tokens=rng.randint(40, 90), output_tokens=30, segments=[(rng.randint(1, 2), 32)]
        )
        session.advance(session.now_s + rng.expovariate(10))
    assert session.cancel(19)
    session.set({"gateway.limit[0].max_in_flight": 3})
    session.advance(session.now_s + 1).take_events()
    kept = sessions.recorded(path)
    assert len(kept.changes) == 22
    result = session.finish()
    assert result.simulation == kept
    assert spillway.simulate(kept, 4).digest == result.digest


@pytest.mark.parametrize("text", ["", "{}\n", "[1]\n", "no\n"])
def test_another_file_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "other").write_text(text)
    with pytest.raises(ConfigError, match="must be the record of a session"):
        sessions.recorded(tmp_path / "other")


@pytest.mark.parametrize("record", [0, -1, "", True, None])
def test_a_record_is_stated_as_one_of_four(record: Any) -> None:
    with pytest.raises(ConfigError, match=r"record = .*must be all, none, a number"):
        spillway.start(fleet(), open_ended=True, record=record)


def test_a_workload_without_requests_needs_some_from_outside() -> None:
    with pytest.raises(ConfigError, match="num_requests = 0: leaves no request"):
        spillway.simulate(fleet())
    with pytest.raises(ConfigError, match="num_requests = 0: leaves no request"):
        spillway.start(fleet())
    session = spillway.start(fleet(), open_ended=True).advance(3)
    assert not session.is_over
    assert session.next_due_s is None
    with pytest.raises(ConfigError, match="no last request"):
        session.advance(requests=1)


def pools(order: str, handoff: str) -> Simulation:
    """Two prefill servers and one for outputs, with a slow link."""
    group = fleet().instances[0].replace(kv_bytes_per_token=10**6, max_num_batched_tokens=256)
    roles = [group.replace(role="prefill"), group.replace(role="decode", count=1)]
    link = router.KvLink(bandwidth_gb_per_s=2, base_latency_s=0.01)
    return fleet(
        instances=roles,
        disaggregation=router.Disaggregation(order=order, handoff=handoff, link=link),
    )


@pytest.mark.parametrize("order", ["prefill_first", "decode_first"])
@pytest.mark.parametrize("handoff", ["after_prefill", "at_dispatch"])
def test_sessions_with_pools(order: str, handoff: str) -> None:
    """Cancelled on either server, and between them; a token is delivered by the second alone."""
    stages = set()
    for seed in trials(20):
        rng = random.Random(seed)
        session = spillway.start(pools(order, handoff), seed, open_ended=True)
        cancelled = []
        for _ in range(12):
            submit_at_random(session, rng, ["default"])
            session.advance(session.now_s + rng.expovariate(10))
            cancelled += [
                handle for handle in rng.choices(session.submitted, k=2) if handle.cancel()
            ]
            handles = session.submitted
            for handle, tokens in zip(handles, session.progress(handles), strict=True):
                assert tokens == 0 or handle.status().ttft_s >= 0, (seed, handle.number)
                assert handle.status().cached_tokens <= 32  # what its server had, not what arrived
        result = session.finish()
        check_conservation(result)
        assert spillway.simulate(result.simulation, seed).digest == result.digest
        assert spillway.simulate(result.simulation, seed, reference=True).digest == result.digest
        requests = result.requests
        for handle in cancelled:
            row = handle.status().row
            assert requests["outcome"][row] == "cancelled"
            assert requests["output_tokens"][row] == 0 or not np.isnan(requests["ttft_s"][row])
            stages.add(
                (bool(requests["prefill_end_s"][row] > 0), bool(requests["transfer_s"][row] > 0))
            )
    assert stages == {(False, False), (True, False), (True, True)}


def test_unknown_names_are_refused_before_anything_is_replayed() -> None:
    session = spillway.start(fleet(), open_ended=True).advance(1)
    core = session._core
    for request, message in (
        ({"tenant": "unknown"}, "^tenant = 'unknown'"),
        ({"slo_class": "none"}, "^slo_class = 'none'"),
        ({"instance": 2}, "^instance = 2: must be one of the 2 instances"),
        ({"instance": -1}, "^instance = -1"),
        ({"segments": [(1, 200)]}, "^segments = 200 tokens: must be within the prompt"),
        ({"segments": [(0, 2)]}, "^content = 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            session.submit(input_tokens=10, output_tokens=1, **request)
    assert session._core is core
    assert session.submitted == ()


def test_a_request_is_cancelled_once_and_only_after_it_arrived() -> None:
    later = {"at_s": 9, "submit": [{}]}
    session = spillway.start(fleet(changes=[later]), open_ended=True)
    with pytest.raises(UsageError, match="request 0 arrives later, at 9 s"):
        session.cancel(0)
    with pytest.raises(UsageError, match="no request has the number 1"):
        session.cancel(1)
    handle = session.submit(input_tokens=50, output_tokens=500)
    assert handle.cancel()
    assert session.advance(1).take_events()[-1].state == "cancelled"
    assert not handle.cancel()
    for number, message in ((1, "arrives at 9 s"), (7, "must be one of the 1 submitted")):
        with pytest.raises(ConfigError, match=message):
            fleet(changes=[later, {"at_s": 9, "cancel": [number - 1 if number == 1 else number]}])


def test_a_request_awaiting_its_retry_gives_up() -> None:
    retry = workload.Reaction(
        retries=[{"on": ["saturated", "rate_limited"], "backoff_s": 1.0, "max_attempts": 5}]
    )
    full = fleet(**{"gateway.admission": [gateway.RejectAll()], "reaction": retry})
    session = spillway.start(full, open_ended=True)
    handle = session.submit(input_tokens=10, output_tokens=1)
    assert session.advance(0.1).take_events() == []
    assert handle.state == "awaiting_retry"
    assert handle.cancel()
    (end,) = session.advance(20).take_events()
    assert (end.kind, end.state) == ("ended", "rejected")
    assert handle.status().attempts == 1
    result = session.finish()
    assert spillway.simulate(result.simulation).digest == result.digest


def test_a_long_span_is_handled_in_parts() -> None:
    simulation = fleet(changes=[{"at_s": 0.01 * i, "submit": [{}]} for i in range(2_000)])
    session, parts = spillway.start(simulation), 0
    while session.now_s < 100:
        session.advance(100, max_events=200)
        parts += 1
    assert parts > 10
    assert session.finish().digest == spillway.simulate(simulation).digest
    for events in (0, 1.5, True):
        with pytest.raises(ConfigError, match="max_events"):
            spillway.start(simulation).advance(1, max_events=events)  # type: ignore[arg-type]


@pytest.mark.parametrize("overlap", ["kv_events", "sent"])
def test_a_router_that_counts_its_choices_knows_of_stated_ones(overlap: str) -> None:
    """All to one instance: what it is sent there is charged there, and paid back."""
    cost = {"kind": "kv_cost", "overlap": overlap}
    session = spillway.start(fleet(count=3, router=cost), open_ended=True)
    for _ in range(20):
        session.submit(input_tokens=100, output_tokens=30, instance=2)
        session.advance(session.now_s + 0.01)
    first = session.submit(input_tokens=100, output_tokens=5)
    session.advance(60)
    free = [session.submit(input_tokens=100, output_tokens=5) for _ in range(3)]
    session.advance(120)
    assert first.status().instance != 2
    assert {handle.status().instance for handle in free} == {0, 1, 2}
    assert all(handle.state == "completed" for handle in session.submitted)


def test_instances_count_what_they_do() -> None:
    session = spillway.start(fleet(), open_ended=True)
    for number in itertools.islice(itertools.cycle((0, 0, 1)), 30):
        session.submit(input_tokens=64, output_tokens=5, instance=number, segments=[(1, 32)])
    session.advance(60)
    held = session.observe(oracle=True)["instances"]
    assert [held[i]["completed"] for i in (0, 1)] == [20, 10]
    assert [held[i]["entered"] for i in (0, 1)] == [20, 10]
    assert [held[i]["tokens_emitted"] for i in (0, 1)] == [100, 50]
    assert held[0]["kv_hits"] > 0
    assert all(held[i]["is_ready"] for i in (0, 1))
    result = session.finish()
    assert [report["completed"] for report in result.instances] == [20, 10]


# --- faults ---------------------------------------------------------------------------------------


def test_instances_that_may_fail_and_do_not_change_nothing() -> None:
    """Random fleets and gateways; those whose instances cannot fail are refused."""
    num_compared = 0
    for seed in trials(30):
        try:
            begin = emptied(random_simulation(seed).simulation)
            may = spillway.start(begin, 5, open_ended=True, may_fail=True)
        except ConfigError:  # not of servers that cannot fail, or without its tenants
            continue
        plain = spillway.start(begin, 5, open_ended=True)
        for each in (may, plain):
            submit_at_random(each, random.Random(seed), [tenant.name for tenant in begin.tenants])
            each.advance(until_s=0.5)
            submit_at_random(each, random.Random(-seed), [tenant.name for tenant in begin.tenants])
        assert {state for state, _, _ in may.activity()} == {"up"}
        results = [each.finish() for each in (may, plain)]
        for name, column in results[0].requests.items():
            other = results[1].requests[name]
            assert np.array_equal(column, other, equal_nan=column.dtype.kind == "f"), name
        num_compared += 1
    assert num_compared > len(trials(30)) // 4


@pytest.mark.parametrize("record", ["all", "file", "none"])
def test_a_fault_acts_at_once_and_its_record_repeats_it(tmp_path: Path, record: str) -> None:
    path = tmp_path / "run.jsonl"
    begin = fleet(3, **{"fleet.startup_s": 0.3})
    session = spillway.start(
        begin, 1, open_ended=True, record=path if record == "file" else record, may_fail=True
    )
    for _ in range(9):
        session.submit(input_tokens=60, output_tokens=50)
    session.advance(until_s=0.1)
    session.fail(
        {"kind": "crash", "instance": 0, "for_s": 0.2},
        {"kind": "hang", "instance": 1, "for_s": 0.1},
        {"kind": "crash", "instance": 2},
    )
    before = session.activity()
    assert [state for state, _, _ in before] == ["up"] * 3  # not before the next instant
    session.advance(until_s=0.15)
    seen = session.observe(oracle=True)["instances"]
    assert [seen[i]["state"] for i in range(3)] == ["restarting", "restarting", "down"]
    assert session.activity() == [
        (seen[i]["state"], seen[i]["steps"], seen[i]["tokens_emitted"]) for i in range(3)
    ]
    session.advance(until_s=3)
    assert [state for state, _, _ in session.activity()] == ["up", "up", "down"]
    if record == "none":
        return
    result = session.finish()
    kept = result.simulation if record == "all" else sessions.recorded(path)
    assert len(kept.changes[-1].faults) == 3
    assert spillway.simulate(kept, 1).digest == result.digest
    assert result.ledger["failed"] > 0


def test_instances_that_cannot_fail_are_refused_at_the_start() -> None:
    begin = fleet(**{"instances[0].data_parallel_size": 2, "instances[0].lockstep_ranks": True})
    with pytest.raises(ConfigError, match="lockstep_ranks"):
        spillway.start(begin, may_fail=True)
