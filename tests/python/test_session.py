"""Sessions: runs in pieces are runs; changes and forks are exact."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from support.effort import trials
from support.random_simulations import random_simulation

import spillway
from spillway import ConfigError, Simulation, gateway, instance, signals, workload


def busy(**settings: object) -> Simulation:
    return Simulation(
        workload=workload.Synthetic(
            requests_per_s=60,
            num_requests=1500,
            clients=[workload.Client(name="a", tenant="gold"), workload.Client(name="b")],
        ),
        tenants=[workload.Tenant(name="gold"), workload.Tenant(name="default")],
        gateway=gateway.Gateway(limit=gateway.FixedLimit()),
        instances=instance.InstanceGroup(count=3, num_kv_blocks=600, max_num_seqs=24),
        router="least_loaded",
    ).with_(settings)


@pytest.mark.parametrize(
    "seeds", [trials(60), pytest.param(range(60, 560), marks=pytest.mark.long)], ids=["few", "500"]
)
def test_any_pieces_give_the_digest_of_the_run(seeds: range) -> None:
    """Random configurations of all seams, cut at random instants and looked at."""
    for seed in seeds:
        rng = random.Random(seed)
        simulation = random_simulation(seed).simulation
        whole = spillway.simulate(simulation, seed)
        session = spillway.start(simulation, seed)
        end_s = whole.summary()["duration"] or 1.0
        for until_s in sorted(rng.uniform(0, 1.2 * end_s) for _ in range(rng.randint(1, 6))):
            if rng.random() < 0.3:
                session.advance(requests=rng.randint(1, 20))
            session.advance(max(until_s, session.now_s))
            if rng.random() < 0.5:
                session.observe(oracle=rng.random() < 0.5)
        assert session.finish().digest == whole.digest, seed


def test_what_is_seen_is_the_timeline_of_the_run() -> None:
    simulation = busy()
    timeline = spillway.simulate(simulation.with_({"metrics.timeline_step_s": 2.5})).timeline
    session = spillway.start(simulation)
    for row, time_s in enumerate(timeline["time_s"][:10]):
        seen = session.advance(time_s).observe(oracle=True)
        # A sample is taken among the events of its instant, and the session after them: they meet
        # where no other event has that instant.
        assert seen["time_s"] == time_s
        for name in ("in_flight", "running", "waiting", "ready_instances", "kv_utilization"):
            assert seen[name] == pytest.approx(timeline[name][row])
        for tenant, counts in seen["tenants"].items():
            for name, column in timeline.of(tenant).items():
                assert counts[name] == column[row]


def test_it_runs_to_the_arrival_of_requests() -> None:
    simulation = busy()
    whole = spillway.simulate(simulation)
    arrival_s = whole.requests["arrival_s"]
    session = spillway.start(simulation)
    arrived = 0
    for requests in (1, 7, 500):
        arrived += requests
        session.advance(requests=requests)
        assert session.now_s == arrival_s[arrived - 1]
        tenants = session.observe()["tenants"].values()
        assert sum(tenant["submitted"] for tenant in tenants) == arrived
    assert session.advance(requests=10_000).is_over
    assert session.now_s == pytest.approx(max(arrival_s + whole.requests["e2e_s"]))
    assert session.advance(requests=1).finish().digest == whole.digest


def test_all_that_arrive_at_one_instant_arrive() -> None:
    requests = spillway.trace(
        arrival_s=[1, 2, 2, 2, 9], input_tokens=[10] * 5, output_tokens=[5] * 5
    )
    session = spillway.start(busy(workload=requests, horizon_s=6.0)).advance(requests=2)
    assert session.now_s == 2
    assert session.observe()["tenants"]["default"]["submitted"] == 4
    assert session.advance(requests=1).now_s == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "^advance = neither: must be given until_s or requests$"),
        ({"until_s": 5, "requests": 5}, "^advance = both: must be given until_s or requests$"),
        ({"requests": 0}, "^requests = 0: must be a whole number >= 1$"),
        ({"requests": 2.5}, "^requests = 2.5: must be a whole number >= 1$"),
    ],
)
def test_how_far_it_advances_is_stated_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        spillway.start(busy()).advance(**arguments)


def test_the_gateway_sees_reports_and_its_own_counts() -> None:
    """It sees an instance as it was `age_s` ago; its own counts are those of now."""
    simulation = busy(signals=signals.Scraped(period_s=1, delay_s=0.25))
    session = spillway.start(simulation)
    first = session.observe()
    assert first["waiting"] == 0
    assert first["instances"][0]["age_s"] is None
    scraped = session.advance(7).observe(oracle=True)
    now = session.advance(7.75).observe()
    true = session.observe(oracle=True)
    assert {observed["age_s"] for observed in now["instances"].values()} == {0.75}
    for name in ("waiting", "running"):
        assert (
            sum(observed[name] for observed in now["instances"].values())
            == now[name]
            == scraped[name]
        )
        assert now[name] != true[name]
    assert now["kv_utilization"] == pytest.approx(scraped["kv_utilization"])
    assert sum(observed["in_flight"] for observed in now["instances"].values()) == now["in_flight"]
    own = ("time_s", "in_flight", "permits", "ready_instances", "tenants")
    assert {name: now[name] for name in own} == {name: true[name] for name in own}
    assert set(now) == set(true)
    assert sum(held["waiting"] for held in true["instances"].values()) == true["waiting"]
    assert sum(held["running"] for held in true["instances"].values()) == true["running"]


def test_looking_renews_no_reading() -> None:
    simulation = busy(signals=signals.OnRead(period_s=0.7))
    session = spillway.start(simulation)
    while not session.is_over:
        seen = session.advance(session.now_s + 0.3).observe()
        assert all(observed["age_s"] < 0.7 for observed in seen["instances"].values())
    assert session.finish().digest == spillway.simulate(simulation).digest


def test_only_ready_instances_are_seen() -> None:
    session = spillway.start(busy(**{"fleet.initial_instances": 2, "fleet.startup_s": 1}))
    assert list(session.advance(5).observe()["instances"]) == [0, 1]
    with_none = spillway.start(busy(**{"fleet.initial_instances": 0, "fleet.startup_s": 1}))
    seen = with_none.advance(0.5).observe()
    assert (seen["instances"], seen["waiting"], seen["kv_utilization"]) == ({}, 0, 0)


def test_tenants_of_the_workload_are_seen() -> None:
    seen = spillway.start(busy(tenants=[])).advance(3).observe()["tenants"]
    assert list(seen) == ["gold", "default"]
    assert seen["gold"]["submitted"] > 0


@pytest.mark.parametrize("streaming", [False, True])
def test_what_is_good_met_the_targets(streaming: bool) -> None:
    simulation = busy(
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=3)],
        **{"metrics.streaming": streaming},
    )
    session = spillway.start(simulation).advance(1000)
    good = sum(counts["good"] for counts in session.observe()["tenants"].values())
    assert session.is_over
    goodput = session.finish().summary()["goodput"]
    assert 0.1 < goodput < 0.9
    assert good == round(goodput * 1500)
    assert spillway.start(busy()).advance(20).observe()["tenants"]["gold"]["good"] == 0


def test_two_forks_have_one_future_and_leave_the_session_alone() -> None:
    session = spillway.start(busy(), seed=3).advance(8)
    one, other = session.fork(), session.fork()
    assert one.advance(15).observe() == other.advance(15).observe()
    assert session.now_s == 8
    assert one.finish().digest == other.finish().digest == session.finish().digest


def test_a_change_acts_from_its_instant_on_and_is_kept() -> None:
    simulation = busy(**{"fleet.startup_s": 0.5})
    session = spillway.start(simulation).advance(5)
    before = session.observe()
    smaller = session.fork().set({"fleet.target_instances": 1})
    assert smaller.observe() == before
    assert session.advance(12).observe()["ready_instances"] == 3
    assert smaller.advance(12).observe()["ready_instances"] == 1
    result = smaller.finish()
    assert result.summary()["mean_ttft_ms"] > 2 * session.finish().summary()["mean_ttft_ms"]
    # The result says what was done, and can be run again.
    (change,) = result.simulation.changes
    assert (change.set, change.at_s) == ({"fleet.target_instances": 1}, pytest.approx(5))
    assert spillway.simulate(result.simulation).digest == result.digest


def test_thresholds_change_as_in_dynamo() -> None:
    simulation = busy(
        **{
            "gateway.admission": "busy_threshold",
            "busy_monitor.active_decode_blocks_threshold": 1.0,
            "signals": "live",
        }
    )
    session = spillway.start(simulation).advance(6)
    strict = session.fork().set({"busy_monitor.active_decode_blocks_threshold": 0.3})
    shed = [sum(tenant["shed"] for tenant in s.advance(20).observe()["tenants"].values())
            for s in (session, strict)]  # fmt: skip
    assert shed[1] > shed[0]
    again = strict.set({"busy_monitor.active_decode_blocks_threshold": 1.0})
    assert len(again.simulation.changes) == 2


def test_is_over_once_all_requests_have_ended() -> None:
    session = spillway.start(busy())
    assert not session.is_over
    assert session.advance(1e6).is_over
    assert session.observe()["in_flight"] == 0
    assert repr(session) == "<Session of seed 0 at 1e+06 s>"
    session.finish()
    assert repr(session) == "<Session of seed 0, finished>"
    with pytest.raises(RuntimeError, match=r"finish\(\) was called"):
        session.advance(2e6)


def test_the_horizon_ends_a_session() -> None:
    simulation = busy(horizon_s=7)
    session = spillway.start(simulation).advance(100)
    assert session.now_s == 7
    assert session.finish().digest == spillway.simulate(simulation).digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gateway.replicas": 3}, "^gateway.replicas: cannot change during a run$"),
        ({"fleet.target_instances": -1}, "^fleet.target_instances = -1: must be >= 0"),
        ({"busy_monitor.active_decode_blocks_threshold": 2}, "^busy_mon.*= 2: must be >= 0"),
    ],
)
def test_what_cannot_be_changed_is_named(changes: dict[str, float], message: str) -> None:
    session = spillway.start(busy()).advance(3)
    with pytest.raises(ConfigError, match=message):
        session.set(changes)
    assert session.simulation == busy()
    assert session.now_s == 3


@pytest.mark.parametrize("until_s", [2, -1, np.nan, "5"])
def test_time_does_not_run_backward(until_s: object) -> None:
    session = spillway.start(busy()).advance(3)
    with pytest.raises(ConfigError, match=r"must be >= now_s = 3 \(s\)"):
        session.advance(until_s)  # type: ignore[arg-type]
