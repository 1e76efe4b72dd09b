"""Settings that change during a run: at its start, in its middle, in files and in sessions."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.changes import another, runtime_fields, targets
from support.effort import often, trials
from support.random_simulations import random_simulation

import spillway
from spillway import ConfigError, Simulation, gateway, instance, workload


def busy(**settings: object) -> Simulation:
    return Simulation(
        workload=workload.Synthetic(
            requests_per_s=60,
            num_requests=1200,
            clients=[workload.Client(name="a", tenant="gold"), workload.Client(name="b")],
        ),
        tenants=[workload.Tenant(name="gold"), workload.Tenant(name="default")],
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=60)),
        instances=instance.InstanceGroup(
            count=3, num_kv_blocks=600, max_num_seqs=24, latency=instance.Linear()
        ),
        router="least_loaded",
    ).with_(settings)


LIMIT = "gateway.limit.max_in_flight"


def drawn(simulation: Simulation, rng: random.Random, most: int) -> dict[str, Any]:
    """New values of some settings, valid together."""
    fields = runtime_fields(simulation)
    paths = rng.sample(sorted(fields), min(most, len(fields)))
    values = {path: another(*fields[path], rng) for path in paths}
    values = {path: value for path, value in values.items() if is_valid(simulation, {path: value})}
    while not is_valid(simulation, values):
        values.popitem()
    return values


def is_valid(simulation: Simulation, values: dict[str, Any]) -> bool:
    try:
        simulation.with_(values)
    except ConfigError:
        return False
    return True


def acts_from_now_on(path: str, before: Any, after: Any, simulation: Simulation) -> bool:
    """Whether a change at the start differs from a start with the new value: state stays."""
    if "capacity_tokens" in path:
        return bool(after > before)  # a larger bucket is not fuller
    verbatim = [
        limit for limit in simulation.gateway.limit if getattr(limit, "resize", "") == "verbatim"
    ]
    return bool(verbatim) and ("cap_per_worker" in path)


@pytest.mark.slow
def test_a_change_at_the_start_is_a_start_with_the_new_values() -> None:
    """All settings that can change do: with one that is ignored, the runs would differ."""
    changed: set[str] = set()
    for seed in trials(240):
        rng = random.Random(seed)
        simulation = random_simulation(seed).simulation
        fields = runtime_fields(simulation)
        values = {
            path: value
            for path, value in drawn(simulation, rng, 4).items()
            if not acts_from_now_on(path, fields[path][1], value, simulation)
        }
        if not values:
            continue
        at_start = simulation.replace(changes=[{"at_s": 0, "set": values}, *simulation.changes])
        expected = spillway.simulate(simulation.with_(values), seed)
        found = spillway.simulate(at_start, seed)
        assert found.outcome_digest == expected.outcome_digest, (seed, values)
        if expected.outcome_digest != spillway.simulate(simulation, seed).outcome_digest:
            changed |= {path.rpartition(".")[2] for path in values}
    assert len(changed) >= often(30)


def test_a_session_that_sets_is_a_run_with_changes() -> None:
    """Whether a change is adopted or replayed, and wherever the run is held in between."""
    for seed in trials(120):
        rng = random.Random(seed)
        simulation = random_simulation(seed).simulation
        end_s = spillway.simulate(simulation, seed).summary()["duration"] or 1.0
        session = spillway.start(simulation, seed)
        for until_s in sorted(rng.uniform(0, 1.1 * end_s) for _ in range(rng.randint(1, 4))):
            session.advance(until_s)
            if values := drawn(session.simulation, rng, 2):
                session.set(values)
            if rng.random() < 0.3:
                session = session.fork()
        result = session.finish()
        again = spillway.simulate(result.simulation, seed)
        assert again.digest == result.digest, seed


def test_a_limit_that_shrinks_and_grows() -> None:
    session = spillway.start(busy()).advance(5)
    assert session.observe()["permits"] == 60
    session.set({LIMIT: 10})
    assert session.advance(12).observe()["in_flight"] == 10
    session.set({LIMIT: 50})
    assert session.advance(12.1).observe()["in_flight"] == 50
    changes = session.finish().simulation.changes
    assert [change.set for change in changes] == [{LIMIT: 10}, {LIMIT: 50}]


def test_a_controller_keeps_the_limit_that_it_has() -> None:
    controlled = busy(
        **{"gateway.controller": gateway.Aimd(target_s=0.5), "gateway.sensor.tick_s": 0.5}
    )
    session = spillway.start(controlled).advance(6)
    permits = session.observe()["permits"]
    assert permits != 60
    session.set({"gateway.controller.target_s": 100}).advance(6.000001)
    assert session.observe()["permits"] == permits
    assert session.advance(9).observe()["permits"] > permits
    session.set({LIMIT: 20}).advance(9.000001)
    assert session.observe()["permits"] == 20


def test_a_time_out_applies_to_those_who_wait() -> None:
    slow = busy(**{LIMIT: 8})
    session = spillway.start(slow).advance(10)
    waiting = session.observe()["tenants"]["gold"]["queued"]
    assert waiting > 100
    session.set({"gateway.bands.queue.timeout_s": 2}).advance(10.01)
    assert session.observe()["tenants"]["gold"]["queued"] < waiting / 2
    requests = session.set({"gateway.bands.queue.timeout_s": None}).finish().requests
    expired = requests["outcome"] == "expired"
    assert (requests["arrival_s"][expired] < 8.1).all()
    assert expired.sum() > 100


def test_weights_move_the_shares() -> None:
    fair = busy(**{"gateway.bands.fairness": gateway.StartTimeFair(), LIMIT: 10})
    session = spillway.start(fair).advance(8).set({"tenants[gold].weight": 4})

    def served(until_s: float) -> float:
        before = session.observe()["tenants"]
        after = session.advance(until_s).observe()["tenants"]
        gold, other = (
            after[tenant]["dispatched"] - before[tenant]["dispatched"] for tenant in after
        )
        return float(gold / other)

    assert served(12) == pytest.approx(4, rel=0.2)


TARGET = "fleet.target_instances"
BUSY_TOKENS = "busy_monitor.active_prefill_tokens_threshold"


@pytest.mark.parametrize("settings", [{}, {"fleet.initial_instances": 2}])
def test_fleet_and_thresholds_change_under_way_without_a_replay(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = busy(**{"fleet.startup_s": 0.5, "gateway.admission": "busy_threshold", **settings})
    session = spillway.start(simulation).advance(3)
    monkeypatch.delattr(type(session), "_replayed")
    session.set({TARGET: 1})
    assert session.advance(3.1).observe()["ready_instances"] == 1
    session.advance(6).set({BUSY_TOKENS: 1}).advance(7)
    session.set({TARGET: 3, BUSY_TOKENS: None})
    assert session.advance(7.49).observe()["ready_instances"] == 1
    assert session.advance(7.51).observe()["ready_instances"] == 3
    result = session.finish()
    assert spillway.simulate(result.simulation).digest == result.digest
    requests = result.requests
    rejected = requests["arrival_s"][requests["outcome"] == "rejected"]
    assert len(rejected) > 30
    assert 6 < rejected.min() < rejected.max() < 7.5


def test_the_first_threshold_replays_where_nothing_measured_loads() -> None:
    simulation = busy(router="round_robin")
    session = spillway.start(simulation).advance(4).set({BUSY_TOKENS: 3000})
    result = session.finish()
    assert spillway.simulate(result.simulation).digest == result.digest
    assert result.outcome_digest != spillway.simulate(simulation).outcome_digest


def test_a_target_is_set_again_after_an_autoscaler_has_left_it() -> None:
    scaler = {"kind": "queue", "poll_s": 1, "up_stabilization_s": 0, "up_period_s": 0}
    simulation = busy(
        **{
            LIMIT: 5,
            "fleet": {"initial_instances": 1, "startup_s": 0, "autoscaler": scaler},
            "instances[0].count": 4,
        }
    )
    session = spillway.start(simulation).set({TARGET: 1}).advance(5.5)
    assert session.observe()["ready_instances"] == 4
    session.set({TARGET: 1})
    assert session.advance(5.6).observe()["ready_instances"] == 1
    assert session.advance(6.1).observe()["ready_instances"] == 2


def test_a_target_before_changes_that_are_to_come_acts_until_they_do() -> None:
    simulation = busy(**{"fleet.startup_s": 0}).replace(changes=targets((4, 2), (8, 3)))
    session = spillway.start(simulation).advance(2).set({TARGET: 1, LIMIT: 40})
    assert session.advance(3).observe()["ready_instances"] == 1
    assert session.advance(5).observe()["ready_instances"] == 2
    result = session.finish()
    assert spillway.simulate(result.simulation).digest == result.digest
    assert [change.at_s for change in result.simulation.changes] == [4, 8, pytest.approx(2)]


def test_requests_that_wait_without_instances_get_the_one_that_is_added() -> None:
    """Ticks and samples had ended, because nothing could become of them."""
    simulation = busy(
        **{
            "fleet.initial_instances": 0,
            "fleet.startup_s": 1,
            "gateway.controller": gateway.Aimd(target_s=0.5),
            "metrics.timeline_step_s": 1,
        }
    )
    session = spillway.start(simulation).advance(100)
    assert session.is_over
    result = session.set({TARGET: 2}).finish()
    assert result.ledger["completed"] == 1200
    assert spillway.simulate(result.simulation).digest == result.digest
    assert 60 in result.timeline["time_s"]


def test_changes_are_read_from_files_and_by_set(tmp_path: Any) -> None:
    simulation = busy().replace(changes=[{"at_s": 60, "set": {LIMIT: 12}}])
    path = tmp_path / "simulation.yaml"
    spillway.dump(simulation, path)
    assert "gateway.limit.max_in_flight: 12" in path.read_text()
    loaded = spillway.load(path)
    assert loaded == simulation
    assert spillway.fingerprint(loaded) == spillway.fingerprint(simulation)
    assert spillway.fingerprint(simulation) != spillway.fingerprint(busy())
    assert simulation.with_({"changes[0].at_s": 30}).changes[0].at_s == 30
    assert (
        eval(repr(simulation.changes[0]), {"Change": type(simulation.changes[0])})
        == (simulation.changes[0])
    )


REFUSED = [
    ({"gateway.limit.max": 8}, r"changes\[0\].set\[gateway.limit.max\]: unknown setting"),
    ({LIMIT: -1}, r"changes\[0\].set\[gateway.limit\[0\].max_in_flight\] = -1: must be >= 0"),
    ({"gateway.replicas": 3}, r"set\[gateway.replicas\]: cannot change during a run"),
    ({"router": "round_robin"}, r"set\[router\]: cannot change during a run"),
    ({"gateway.limit": "unlimited"}, r"set\[gateway.limit\[0\]\]: cannot change"),
    ({"fleet.target_instances": 4}, r"fleet.target_instances.* = 4: must be <= the number"),
    ({"horizon_s": 3}, r"set\[horizon_s\]: cannot change"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_what_cannot_change_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        busy().replace(changes=[{"at_s": 1, "set": values}])
    session = spillway.start(busy()).advance(3)
    before = session.observe()
    with pytest.raises(ConfigError, match=next(iter(values)).split(".")[0]):
        session.set(values)
    assert session.observe() == before
    assert session.simulation == busy()
