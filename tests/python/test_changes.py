"""Settings that change during a run: at its start, in its middle, in files and in sessions."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.changes import another, runtime_fields
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
    verbatim = [one for one in simulation.gateway.limit if getattr(one, "resize", "") == "verbatim"]
    return bool(verbatim) and ("cap_per_worker" in path)


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
        at_start = simulation.replace(changes=[{"at_s": 0, "set": values}])
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
        **{
            "gateway.controller": gateway.Aimd(target_s=0.5),
            "gateway.sensor.tick_s": 0.5,
        }
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
        gold, other = (after[one]["dispatched"] - before[one]["dispatched"] for one in after)
        return float(gold / other)

    assert served(12) == pytest.approx(4, rel=0.2)


def test_a_target_of_instances_and_thresholds_are_changes_too() -> None:
    simulation = busy(**{"fleet.startup_s": 0.5, "gateway.admission": "busy_threshold"})
    changes = [
        {"at_s": 3, "set": {"fleet.target_instances": 1}},
        {"at_s": 6, "set": {"busy_monitor.active_prefill_tokens_threshold": 1}},
    ]
    changed = spillway.simulate(simulation.replace(changes=changes))
    scheduled = spillway.simulate(
        simulation.with_(
            {
                "fleet.schedule": [{"at_s": 3, "instances": 1}],
                "busy_monitor.schedule": [{"at_s": 6, "active_prefill_tokens_threshold": 1}],
            }
        )
    )
    assert changed.outcome_digest == scheduled.outcome_digest
    assert (changed.requests["outcome"] == "rejected").any()


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


def test_without_changes_a_simulation_is_what_it_was() -> None:
    assert spillway.fingerprint(busy()) == spillway.fingerprint(busy().replace(changes=[]))


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


def test_a_threshold_cannot_be_taken_away() -> None:
    path = "busy_monitor.active_prefill_tokens_threshold"
    with pytest.raises(ConfigError, match="can be raised, not removed"):
        busy(**{path: 100}).replace(changes=[{"at_s": 1, "set": {path: None}}])
