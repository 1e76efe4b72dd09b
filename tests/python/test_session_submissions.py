"""Requests from outside the workload: they are requests like any other, and part of the result."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import often, trials
from support.random_simulations import random_simulation

import spillway
from spillway import ConfigError, Simulation, gateway, instance, signals, workload

if TYPE_CHECKING:
    from spillway.session import Submitted

REQUEST = {"input_tokens": 100, "output_tokens": 50}


def arriving(arrival_s: list[float], **settings: object) -> Simulation:
    """Requests of two tenants in turn at these times."""
    return Simulation(
        workload=spillway.trace(
            arrival_s=arrival_s,
            input_tokens=[100] * len(arrival_s),
            output_tokens=[50] * len(arrival_s),
            tenant=["gold" if i % 2 else "default" for i in range(len(arrival_s))],
        ),
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=40)),
        instances=instance.InstanceGroup(count=2, latency=instance.Linear()),
    ).with_(settings)


STEADY_S = [0.05 * i for i in range(200)]
PERIODIC = {
    "metrics.timeline_step_s": 0.1,
    "gateway.controller": gateway.Aimd(target_s=0.05),
    "gateway.sensor.tick_s": 0.2,
    "signals": signals.Scraped(period_s=0.3),
    "fleet.autoscaler": {"kind": "queue", "max_instances": 2, "poll_s": 0.4},
    "fleet.startup_s": 0.5,
}


def submit_at_random(session: spillway.Session, rng: random.Random) -> None:
    simulation = session.simulation
    tenants = session.observe()["tenants"] if rng.random() < 0.5 else ["default"]
    request = {
        "input_tokens": rng.randint(1, 400),
        "output_tokens": rng.randint(0, 150),
        "tenant": rng.choice(list(tenants)),
        "slo_class": rng.choice(simulation.slo_classes).name,
    }
    for _ in range(rng.randint(1, 3)):
        session.submit(**request)


def test_a_session_that_submits_is_a_run_with_these_requests() -> None:
    """Random configurations of all seams: streaming, closed loops, retries, traces, horizons."""
    submitted = after_the_end = 0
    for seed in trials(120):
        rng = random.Random(seed)
        simulation = random_simulation(seed).simulation
        end_s = spillway.simulate(simulation, seed).summary()["duration"] or 1.0
        session = spillway.start(simulation, seed)
        for until_s in sorted(rng.uniform(0, 1.5 * end_s) for _ in range(rng.randint(1, 4))):
            session.advance(until_s)
            after_the_end += session.is_over
            try:
                submit_at_random(session, rng)
            except ConfigError as error:
                if "horizon_s" not in str(error) and "tenant" not in str(error):
                    raise
                continue
            if rng.random() < 0.3:
                session = session.fork()
        submitted += len(session.submitted)
        handles = session.submitted
        result = session.finish()
        again = spillway.simulate(result.simulation, seed)
        assert again.digest == result.digest, seed
        if not simulation.metrics.streaming:
            check_handles(handles, result)
    assert submitted > often(200)
    assert after_the_end > often(20)


def check_handles(handles: tuple[Submitted, ...], result: spillway.Result) -> None:
    for handle in handles:
        found = handle.status()
        if found.row is None:  # beyond the horizon
            assert found.state == "submitted"
            continue
        row = {name: column[found.row] for name, column in result.requests.items()}
        if found.state != "awaiting_retry":
            assert found.state == row["outcome"]
        assert (found.attempts, found.instance) == (row["attempts"], row["instance"])
        if found.has_ended:
            assert found.reason == row["reason"]
            assert found.output_tokens == row["output_tokens"]
        for name in ("arrival_s", "ttft_s", "tpot_s", "e2e_s", "queue_s"):
            assert np.array_equal(getattr(found, name), row[name], equal_nan=True)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_submitted_request_is_as_one_of_the_trace(streaming: bool) -> None:
    """One in the middle, one long after the others: what is periodic continues until then."""
    settings = {**PERIODIC, "metrics.streaming": streaming}
    session = spillway.start(arriving(STEADY_S, **settings))
    for at_s in (4.0, 30.0):
        session.advance(at_s - 1e-9).submit(**REQUEST, tenant="gold")
    submitted = session.finish()
    arrival_s = sorted([*STEADY_S, 4.0, 30.0])
    in_trace = arriving(arrival_s, **settings)
    tenants = ["gold" if i % 2 else "default" for i in range(200)]
    # At 4 s it follows the request of the trace.
    tenants.insert(STEADY_S.index(4.0) + 1, "gold")
    traced = spillway.simulate(
        in_trace.replace(
            workload=spillway.trace(
                arrival_s=arrival_s,
                input_tokens=[100] * 202,
                output_tokens=[50] * 202,
                tenant=[*tenants, "gold"],
            )
        )
    )
    assert submitted.digest == traced.digest
    for name, column in traced.timeline.items():
        assert np.array_equal(submitted.timeline[name], column, equal_nan=True), name
    assert submitted.timeline["time_s"][-1] > 30


def test_it_is_part_of_the_simulation_and_of_the_ledger(tmp_path: Any) -> None:
    simulation = arriving(STEADY_S)
    session = spillway.start(simulation).advance(3)
    session.submit(**REQUEST, tenant="gold", slo_class="critical")
    result = session.finish()
    (change,) = result.simulation.changes
    assert change.at_s == pytest.approx(3, abs=1e-8)
    assert change.submit == (workload.Submission(tenant="gold", slo_class="critical", **REQUEST),)
    assert result.ledger["attempts"] == 201
    result.save(tmp_path / "result.npz")
    loaded = spillway.Result.load(tmp_path / "result.npz")
    assert loaded.digest == result.digest
    assert loaded.simulation.changes == result.simulation.changes


def test_it_is_written_to_files(tmp_path: Any) -> None:
    simulation = Simulation(
        workload=workload.Synthetic(num_requests=50),
        changes=[{"at_s": 0.25, "submit": [REQUEST, {**REQUEST, "slo_class": "batch"}]}],
    )
    spillway.dump(simulation, tmp_path / "simulation.yaml")
    loaded = spillway.load(tmp_path / "simulation.yaml")
    assert loaded == simulation
    assert "slo_class: batch" in (tmp_path / "simulation.yaml").read_text()
    assert spillway.simulate(loaded).ledger["attempts"] == 52


def test_submissions_are_part_of_the_fingerprint() -> None:
    change = {"at_s": 3, "set": {"gateway.limit.max_in_flight": 8}}
    changed = arriving(STEADY_S).replace(changes=[change])
    with_request = arriving(STEADY_S).replace(changes=[{**change, "submit": [REQUEST]}])
    assert spillway.fingerprint(with_request) != spillway.fingerprint(changed)


def test_its_life_can_be_followed() -> None:
    limited = arriving([0.0, 1.0], **{"gateway.limit.max_in_flight": 1})
    session = spillway.start(limited).advance(0.01)
    one, other = session.submit(**REQUEST), session.submit(**REQUEST, slo_class="batch")
    assert (one.state, one.status().row) == ("submitted", None)
    assert np.isnan(one.status().arrival_s)
    session.advance(0.02)
    assert (one.state, other.state) == ("queued", "queued")
    assert (one.status().row, other.status().row) == (1, 2)
    assert one.status().arrival_s == pytest.approx(0.01)
    while one.state != "running":
        session.advance(session.now_s + 0.01)
    assert not one.status().has_ended
    while one.state == "running":
        session.advance(session.now_s + 0.01)
    done = one.status()
    assert (done.state, done.has_ended, done.output_tokens) == ("completed", True, 50)
    assert done.arrival_s + done.e2e_s <= session.now_s
    assert 0 < done.ttft_s < done.e2e_s
    assert repr(one) == "<Submitted request 0: completed>"
    result = session.finish()
    check_handles((one, other), result)
    assert other.state == "completed"


def test_a_handle_outlives_the_reuse_of_its_id() -> None:
    session = spillway.start(arriving(STEADY_S, **{"metrics.streaming": True})).advance(1.01)
    one = session.submit(**REQUEST, tenant="gold")
    while not one.status().has_ended:
        session.advance(session.now_s + 0.02)
    ended = one.status()
    assert ended.state == "completed"
    session.advance(9)  # further requests have its id
    assert one.status() == ended
    assert session.set({"gateway.limit.max_in_flight": 2}).submitted[0].status() == ended
    session.finish()
    assert one.status() == ended


def test_its_client_retries() -> None:
    reaction = workload.Reaction(
        retries=[workload.Retry(on=["queue_full"], max_attempts=3, backoff_s=0.5, jitter="none")]
    )
    full = {"gateway.limit.max_in_flight": 1, "gateway.max_queued": 1, "reaction": reaction}
    session = spillway.start(arriving([0.0, 0.0, 0.0], **full)).advance(0.001)
    one = session.submit(**REQUEST)
    session.advance(0.002)
    assert (one.state, one.status().attempts) == ("awaiting_retry", 1)
    session.advance(20)
    assert one.status().has_ended
    assert one.status().attempts > 1
    again = spillway.simulate(session.simulation)
    assert session.finish().digest == again.digest


def test_a_fork_has_the_same_requests() -> None:
    session = spillway.start(arriving(STEADY_S)).advance(1)
    one = session.submit(**REQUEST)
    fork = session.fork()
    assert len(fork.submitted) == 1
    session.advance(2)
    assert (one.state, fork.submitted[0].state) == ("completed", "submitted")
    fork.submit(**REQUEST)
    assert len(session.submitted) == 1
    alone = spillway.simulate(arriving(STEADY_S).replace(changes=session.simulation.changes))
    assert session.finish().digest == alone.digest != fork.finish().digest


def test_a_capped_trace_keeps_its_places() -> None:
    """A request from outside takes none of the places of the trace's client."""
    capped = arriving([0.0] * 40)
    capped = capped.replace(workload=capped.workload.replace(max_in_flight=2))
    session = spillway.start(capped).advance(0.05)
    session.submit(**REQUEST)
    while not session.advance(session.now_s + 0.01).is_over:
        seen = session.observe()
        assert seen["in_flight"] + sum(tenant["queued"] for tenant in seen["tenants"].values()) <= 3
    result = session.finish()
    assert result.ledger["attempts"] == 41
    assert spillway.simulate(result.simulation).digest == result.digest


def test_requests_with_names_keep_them() -> None:
    named = arriving(STEADY_S)
    ids = [f"r{i}" for i in range(200)]
    requests = spillway.trace(
        arrival_s=STEADY_S, input_tokens=[100] * 200, output_tokens=[50] * 200, request_id=ids
    )
    session = spillway.start(named.replace(workload=requests)).advance(5.01)
    session.submit(**REQUEST)
    names = list(session.finish().requests["request_id"])
    assert names[:101] == ids[:101]
    assert names[101:] == ["submitted-0", *ids[101:]]


def test_nothing_is_missed_after_the_end() -> None:
    """What is periodic waits for the next request, or for `observe`."""
    simulation = arriving(STEADY_S, **PERIODIC)
    for looks in (False, True):
        session = spillway.start(simulation).advance(100)
        assert session.is_over
        if looks:
            session.observe()
        session.submit(**REQUEST)
        assert not session.is_over
        again = spillway.simulate(session.simulation)
        assert session.finish().digest == again.digest
        assert len(again.timeline["time_s"]) > 1000


REFUSED = [
    ({**REQUEST, "tenant": "gld"}, r"^tenant = 'gld': must be one of the tenants.*gold"),
    ({**REQUEST, "slo_class": "urgent"}, r"^slo_class = 'urgent': must be one of the"),
    ({**REQUEST, "input_tokens": 0}, r"^input_tokens = 0: must be >= 1"),
    ({**REQUEST, "output_tokens": -1}, r"^output_tokens = -1: must be >= 0"),
]


@pytest.mark.parametrize(("request_", "message"), REFUSED)
def test_what_cannot_be_submitted_is_named(request_: dict[str, Any], message: str) -> None:
    simulation = arriving(STEADY_S)
    session = spillway.start(simulation).advance(3)
    with pytest.raises(ConfigError, match=message):
        session.submit(**request_)
    assert (session.simulation, session.now_s, session.submitted) == (simulation, 3, ())
    assert session.finish().digest == spillway.simulate(simulation).digest


def test_what_files_cannot_submit_is_named() -> None:
    with pytest.raises(ConfigError, match=r"changes\[0\].submit\[0\].tenant = 'gld'"):
        arriving(STEADY_S, changes=[{"at_s": 1, "submit": [{"tenant": "gld"}]}])
    with pytest.raises(
        ConfigError, match=r"changes\[0\].submit\[0\].input_tokens = 0: must be >= 1"
    ):
        arriving(STEADY_S, changes=[{"at_s": 1, "submit": [{"input_tokens": 0}]}])


def test_nothing_is_submitted_at_the_horizon() -> None:
    session = spillway.start(arriving(STEADY_S, horizon_s=4.0)).advance(10)
    with pytest.raises(ConfigError, match=r"^horizon_s = 4: must be later than now_s"):
        session.submit(**REQUEST)
