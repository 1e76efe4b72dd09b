"""Instances that join and leave: schedule, readiness, autoscaler."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.changes import targets
from support.runs import flat, simulated, steady
from support.scaling import recommended

import spillway
from spillway import ConfigError, Result, Simulation, fleet, gateway, instance, simulate, workload

STEP = steady(50)


def simulation(count: int = 3, requests_per_s: float = 10, **settings: Any) -> Simulation:
    return Simulation(
        workload=workload.Synthetic(
            requests_per_s=requests_per_s,
            duration_s=100,
            clients=[workload.Client(output_tokens=workload.Fixed(tokens=20))],
        ),
        instances=[instance.InstanceGroup(count=count, latency=STEP)],
        **settings,
    )


def run(**settings: Any) -> Result:
    return simulate(simulation(**settings))


def test_constant_fleet_is_the_default() -> None:
    assert simulate(simulation()).digest == simulate(simulation(fleet={"startup_s": 7})).digest


def test_targets_add_after_the_startup_and_remove_at_once() -> None:
    result = run(
        fleet=fleet.Fleet(initial_instances=1, startup_s=10),
        changes=targets((60, 2), (20, 3)),
        metrics={"timeline_step_s": 0.5},
    )
    routed = result.requests["arrival_s"] + result.requests["queue_s"]
    where = result.requests["instance"]
    assert set(where[routed < 30]) == {0}
    assert set(where[(routed >= 30) & (routed < 60)]) == {0, 1, 2}
    assert set(where[routed >= 60]) == {0, 1}
    times, ready = result.timeline["time_s"], result.timeline["ready_instances"]
    assert (ready == np.select([times < 30, times < 60], [1, 3], 2)).all()
    # An instance that leaves finishes its requests.
    assert result.ledger["completed"] == result.ledger["attempts"]
    last = (where == 2) & (routed > 59)
    assert last.any()
    assert (result.requests["arrival_s"] + result.requests["e2e_s"])[last].max() > 60


def test_cost_counts_the_time_in_service() -> None:
    """From the decision to start an instance until it is no longer wanted, or the horizon."""
    group = instance.InstanceGroup(latency=STEP)
    scaled = simulation(
        fleet=fleet.Fleet(initial_instances=1, startup_s=10),
        changes=targets((20, 3), (60, 2), (80, 3)),
        horizon_s=90,
    ).replace(
        instances=[
            group.replace(cost_per_hour=2),
            group.replace(cost_per_hour=3, count=2),
        ]
    )
    hours = (2 * 90 + 3 * 70 + 3 * (40 + 10)) / 3600
    assert simulate(scaled).summary()["cost"] == pytest.approx(hours, rel=1e-12)
    whole = scaled.replace(fleet=fleet.Fleet(), changes=[], horizon_s=None)
    result = simulate(whole)
    assert result.summary()["cost"] == pytest.approx(8 * result.end_s / 3600, rel=1e-12)
    free = whole.with_({f"instances[{i}].cost_per_hour": 0 for i in (0, 1)})
    assert simulate(free).summary()["cost"] is None
    assert simulate(free).outcome_digest == result.outcome_digest


def test_instance_that_is_reported_ready_too_early_keeps_its_requests_waiting() -> None:
    early = fleet.Fleet(initial_instances=1, startup_s=40, reported_ready_after_s=3)
    second = targets((20, 2))
    result = run(count=2, fleet=early, changes=second)
    routed = result.requests["arrival_s"] + result.requests["queue_s"]
    there = result.requests["instance"] == 1
    assert 23 <= routed[there].min() < 24
    first_token = result.requests["arrival_s"] + result.requests["ttft_s"]
    waited = there & (routed < 60)
    assert waited.sum() > 100
    assert first_token[waited].min() == pytest.approx(60.05, abs=1e-9)
    late = early.replace(reported_ready_after_s=None)
    truthful = run(count=2, fleet=late, changes=second)
    assert result.summary()["p99_ttft_ms"] > 30_000
    assert truthful.summary()["p99_ttft_ms"] < 200


def test_budget_follows_the_instances_that_are_ready() -> None:
    """P13: an instance that counts as ready too early raises the budget without effect."""

    def reported(after_s: float | None) -> Result:
        return run(
            count=4,
            requests_per_s=40,
            gateway=gateway.Gateway(
                bands=[gateway.Band(queue=gateway.Queue(max_requests=8, timeout_s=1))],
                limit=[gateway.WorkerBudget(cap_per_worker=16)],
            ),
            router="least_loaded",
            fleet=fleet.Fleet(initial_instances=2, startup_s=40, reported_ready_after_s=after_s),
            changes=targets((20, 4)),
            metrics={"timeline_step_s": 1},
        )

    early, truthful = reported(3), reported(None)
    for result, joined in ((early, 23), (truthful, 60)):
        times, permits = result.timeline["time_s"], result.timeline["permits"]
        assert (permits == np.where(times < joined, 32, 64)).all()
    slow = [
        ((result.requests["ttft_s"] > 5) & (result.requests["arrival_s"] < 60)).sum()
        for result in (early, truthful)
    ]
    assert slow[0] >= 32 - 1
    assert slow[1] == 0


# The published gateway does not net a growth against permits that are still to be swallowed.
@pytest.mark.parametrize(("resize", "permits_after"), [("corrected", 8), ("verbatim", 16)])
def test_a_fleet_of_zero_reaches_the_budget(resize: str, permits_after: int) -> None:
    """Two workers, none from 10 s to 20 s, two again; what they serve outlasts the gap."""
    server = flat(30, 30, reference_output_tokens=20).replace(count=2)
    described = simulation(
        requests_per_s=20,
        gateway=gateway.Gateway(limit=gateway.WorkerBudget(cap_per_worker=4, resize=resize)),
        fleet=fleet.Fleet(startup_s=0),
        changes=targets((10, 0), (20, 2)),
        metrics={"timeline_step_s": 0.5},
        horizon_s=25,
    )
    result = simulate(described.replace(instances=server))
    at, permits = result.timeline["time_s"], result.timeline["permits"]
    assert (permits == np.where((at >= 10) & (at < 20), 0, 8)).all()
    assert result.timeline["in_flight"][at < 20].max() == 8
    assert result.timeline["in_flight"][at >= 20].max() == permits_after


def test_the_budget_of_a_fleet_that_starts_empty() -> None:
    result = run(
        count=2,
        gateway=gateway.Gateway(limit=gateway.WorkerBudget(cap_per_worker=4)),
        fleet=fleet.Fleet(initial_instances=0, startup_s=0),
        changes=targets((3, 2)),
        metrics={"timeline_step_s": 1},
    )
    at, permits = result.timeline["time_s"], result.timeline["permits"]
    assert (permits == np.where(at < 3, 0, 8)).all()


def test_an_idle_fleet_scales_to_zero_and_back() -> None:
    clients = [
        workload.Client(name=name, requests_per_s=5, start_s=start_s, duration_s=20)
        for name, start_s in (("early", 0), ("late", 200))
    ]
    result = simulate(
        simulation().with_(
            {
                "workload": workload.Synthetic(clients=clients),
                "fleet": fleet.Fleet(
                    initial_instances=1,
                    autoscaler=fleet.QueueScaler(
                        min_instances=0,
                        max_instances=3,
                        up_stabilization_s=0,
                        up_period_s=5,
                        down_stabilization_s=30,
                        down_period_s=5,
                    ),
                    startup_s=10,
                ),
                "metrics": {"timeline_step_s": 1},
            }
        )
    )
    at, ready = result.timeline["time_s"], result.timeline["ready_instances"]
    assert ready[(at > 100) & (at < 200)].max() == 0
    assert result.summary()["completed"] == result.summary()["offered"]
    assert result.requests["queue_s"].max() > 10


def test_order_of_jumps_makes_no_difference() -> None:
    described = simulation(
        requests_per_s=30,
        gateway=gateway.Gateway(
            bands=[gateway.Band(queue=gateway.Queue(timeout_s=0.5))],
            limit=[gateway.WorkerBudget(cap_per_worker=8)],
        ),
        fleet=fleet.Fleet(
            initial_instances=1,
            autoscaler=fleet.QueueScaler(
                max_instances=3, up_stabilization_s=5, up_period_s=5, down_stabilization_s=20
            ),
            startup_s=7,
        ),
    )
    assert simulate(described).digest == simulate(described, reference=True).digest


def expected_instances(
    config: fleet.QueueScaler, times: list[float], queued: list[int], shed: list[int]
) -> list[int]:
    """The autoscaler's rule, written down plainly; `times` are its polls."""
    instances, wishes, history = config.min_instances, [], [(0.0, 0)]
    added = removed = -np.inf
    result = []
    for now, waiting, lost in zip(times, queued, shed, strict=True):
        past = [entry for entry in history if now - entry[0] >= config.shed_window_s]
        since, before = past[-1] if past else history[0]
        history.append((now, lost))
        rate = (lost - before) / (now - since)
        wish = np.ceil(max(waiting / config.queue_threshold, rate / config.shed_per_s_threshold))
        wishes.append((now, min(max(wish, config.min_instances), config.max_instances)))
        up = min(w for t, w in wishes if now - t <= config.up_stabilization_s)
        down = max(w for t, w in wishes if now - t <= config.down_stabilization_s)
        adds = up > instances and now >= config.up_stabilization_s
        removes = down < instances and now >= config.down_stabilization_s
        if adds and now - added >= config.up_period_s:
            instances, added = instances + 1, now
        elif removes and now - removed >= config.down_period_s:
            instances, removed = instances - 1, now
        result.append(instances)
    return result


@pytest.mark.parametrize("seed", range(4))
def test_autoscaler_follows_its_rule(seed: int) -> None:
    config = fleet.QueueScaler(
        poll_s=5,
        queue_threshold=3,
        shed_per_s_threshold=2,
        shed_window_s=20,
        max_instances=4,
        up_stabilization_s=15,
        up_period_s=10,
        down_stabilization_s=40,
        down_period_s=20,
    )
    clients = [
        workload.Client(name="steady", output_tokens=workload.Fixed(tokens=20), requests_per_s=2),
        workload.Client(
            name="burst",
            output_tokens=workload.Fixed(tokens=20),
            requests_per_s=25,
            start_s=30,
            duration_s=90,
        ),
    ]
    result = simulated(
        seed,
        workload=workload.Synthetic(clients=clients, duration_s=400),
        instances=[instance.InstanceGroup(count=4, latency=STEP)],
        gateway=gateway.Gateway(
            bands=[gateway.Band(queue=gateway.Queue(max_requests=9, timeout_s=2))],
            limit=[gateway.WorkerBudget(cap_per_worker=4)],
            drain_latency_s=1e-6,  # so a sample shows the queues as the poll saw them
        ),
        fleet=fleet.Fleet(initial_instances=1, autoscaler=config, startup_s=0),
        metrics={"timeline_step_s": 5},
    )
    timeline = result.timeline
    polls = slice(1, None)  # there is none at the start
    times = timeline["time_s"][polls].tolist()
    queued = timeline["queued"][polls].sum(axis=1).tolist()
    shed = timeline["shed"][polls].sum(axis=1).tolist()
    expected = expected_instances(config, times, queued, shed)
    assert timeline["ready_instances"][polls].tolist() == expected
    assert max(expected) >= 3
    assert expected[-1] == 1


# --- Kubernetes' rule -----------------------------------------------------------------------------


BURST = workload.Synthetic(
    clients=[
        workload.Client(name="steady", output_tokens=workload.Fixed(tokens=20), requests_per_s=2),
        workload.Client(
            name="burst",
            output_tokens=workload.Fixed(tokens=100),
            requests_per_s=25,
            start_s=30,
            duration_s=90,
        ),
    ],
    duration_s=300,
)


def scaled(scaler: Any, latency: instance.Linear = STEP, **settings: Any) -> Result:
    """A burst on a fleet of at most six, sampled at every poll (5 s)."""
    group = instance.InstanceGroup(count=6, latency=latency, num_kv_blocks=4000)
    return simulated(
        1,
        workload=BURST,
        instances=[group],
        router="least_loaded",
        fleet=fleet.Fleet(initial_instances=1, autoscaler=scaler, startup_s=0),
        metrics={"timeline_step_s": 5},
        **settings,
    )


@pytest.mark.parametrize("metric", ["in_flight", "running", "seats", "kv_utilization"])
@pytest.mark.parametrize("settings", [{}, {"up_instances": 1, "up_share": 0.5, "down_share": 0.4}])
def test_target_scaler_follows_its_rule(metric: str, settings: dict[str, Any]) -> None:
    config = fleet.TargetScaler(
        metric=metric,
        target={"kv_utilization": 0.05, "seats": 0.03}.get(metric, 6),
        poll_s=5,
        max_instances=6,
        up_stabilization_s=10 if settings else 0,
        down_stabilization_s=30,
        **settings,
    )
    timeline = scaled(config).timeline
    polls = slice(1, None)
    seen = {
        "in_flight": timeline["in_flight"],
        "running": timeline["running"],
        "seats": timeline["running"] / instance.InstanceGroup().max_num_seqs,
        "kv_utilization": timeline["kv_utilization"] * 6,  # the mean over all instances
    }[metric][polls]
    expected = recommended(config, seen.tolist(), 5)
    found = timeline["ready_instances"][polls].tolist()
    assert found == expected
    assert max(found) >= 3
    assert found[-1] < max(found)


CONTROLLED = gateway.Gateway(
    limit=gateway.FixedLimit(max_in_flight=16),
    controller=gateway.Aimd(target_s=1),
    guard={"floor": 8},
    bands=[gateway.Band(queue=gateway.Queue(timeout_s=1))],
    sensor={"source": "ttft", "tick_phase_s": 0.3},
)


@pytest.mark.parametrize(("metric", "target"), [("sensor", 0.5), ("limit_decreases", 0.3)])
def test_target_scaler_reads_the_controller(metric: str, target: float) -> None:
    config = fleet.TargetScaler(
        metric=metric, target=target, poll_s=5, max_instances=6, down_stabilization_s=30
    )
    result = scaled(config, gateway=CONTROLLED)
    times, control = result.timeline["time_s"][1:], result.control
    decrease = control["action"] == control.actions.index("decrease")
    instances, wishes, expected = 1, [], []
    for now in times.tolist():
        ticks = (control["time_s"] > now - 5) & (control["time_s"] <= now)
        last = ([math.nan, *control["value"][control["time_s"] <= now]])[-1]
        share = decrease[ticks].mean() if ticks.any() else math.nan
        ratio = (last if metric == "sensor" else share) / target
        wish = instances if math.isnan(ratio) else math.ceil(instances * ratio)
        if abs(ratio - 1) <= config.tolerance:
            wish = instances
        wishes.append((now, min(max(wish, 1), 6)))
        down = max(wish for at, wish in wishes if now - at <= 30)
        if wishes[-1][1] > instances:
            instances = min(wishes[-1][1], max(2 * instances, instances + 4))
        elif down < instances and now >= 30:
            instances = down
        expected.append(instances)
    assert result.timeline["ready_instances"][1:].tolist() == expected
    assert max(expected) >= 3
    assert expected[-1] < max(expected)


def test_wva_scaler_follows_its_rule() -> None:
    config = fleet.WvaScaler(poll_s=5, max_instances=6, queued_tokens=2000, up_threshold=0.1)
    config = config.replace(down_threshold=0.05)
    timeline = scaled(config).timeline
    capacity = 4000 * 16
    each = config.kv_utilization_threshold * capacity
    instances, expected = 1, []
    for used, waiting in zip(timeline["kv_utilization"][1:], timeline["waiting"][1:], strict=True):
        demand = used * 6 * capacity + config.queued_tokens * waiting
        supply = each * instances
        if demand / config.up_threshold > supply:
            instances += math.ceil((demand / config.up_threshold - supply) / each)
        else:
            instances -= math.floor(max(0, supply - demand / config.down_threshold) / each)
        instances = min(max(instances, 1), 6)
        expected.append(instances)
    assert timeline["ready_instances"][1:].tolist() == expected
    assert max(expected) >= 3
    assert expected[-1] == 1


def test_planner_scaler_grows_in_a_burst_and_shrinks_after_it() -> None:
    config = fleet.PlannerScaler(
        poll_s=5, max_instances=6, prefill_tokens_threshold=1000, kv_utilization_threshold=0.08
    )
    ready = scaled(config).timeline["ready_instances"]
    assert max(ready) >= 3
    assert ready[-1] == 1
    assert np.abs(np.diff(ready)).max() == 1


@pytest.mark.parametrize("target", ["ttft_s", "itl_s"])
def test_planner_scaler_meets_the_latency_that_it_is_given(target: str) -> None:
    busy = instance.Linear(beta0_us=20_000, beta_prefill_us=100, beta_decode_us=1000)

    def most(**targets: float) -> int:
        loose = {"ttft_s": 1e6, "itl_s": 1e6}
        config = fleet.PlannerScaler(
            optimization_target="sla", poll_s=5, max_instances=6, **loose | targets
        )
        result = scaled(config, latency=busy)
        ready = result.timeline["ready_instances"]
        assert ready[-1] == 1
        assert np.abs(np.diff(ready)).max() <= 1
        assert simulate(result.simulation, 1, reference=True).digest == result.digest
        return int(max(ready))

    tight = {"ttft_s": 0.4, "itl_s": 0.06}[target]
    assert most() == 1
    assert most(**{target: tight}) == 6


def test_target_scaler_starts_from_zero() -> None:
    scaler = fleet.TargetScaler(min_instances=0, max_instances=2, poll_s=1)
    result = simulated(
        workload=workload.Synthetic(num_requests=20, requests_per_s=10),
        instances=[instance.InstanceGroup(count=2, latency=STEP)],
        fleet=fleet.Fleet(initial_instances=0, autoscaler=scaler, startup_s=3),
    )
    assert result.ledger["completed"] == 20
    assert result.requests["queue_s"].max() > 3


@pytest.mark.parametrize("kind", ["queue", "target", "wva", "planner"])
def test_run_goes_on_for_a_late_request_at_an_empty_fleet(kind: str) -> None:
    """What is periodic goes on, too, while the next poll is still to come."""
    scaler = {"kind": kind, "min_instances": 0, "max_instances": 1, "poll_s": 15}
    simulation = Simulation(
        workload=spillway.trace(
            arrival_s=[0.5, 5000.5], input_tokens=[20, 20], output_tokens=[2, 2]
        ),
        instances=[instance.InstanceGroup(latency=STEP)],
        fleet={"autoscaler": scaler, "startup_s": 10},
        metrics={"timeline_step_s": 1},
    )
    result = simulate(simulation)
    assert result.ledger["completed"] == 2
    times, ready = result.timeline["time_s"], result.timeline["ready_instances"]
    ended_s = result.requests["arrival_s"][1] + result.requests["e2e_s"][1]
    assert ended_s > 5010
    assert 0 in ready[(times > 4000) & (times < 5000)]
    assert ready[times <= ended_s][-1] == 1
    session = spillway.start(simulation).advance(5002)
    assert not session.is_over


@pytest.mark.parametrize(
    ("settings", "clue"),
    [
        ({"initial_instances": 4}, "fleet.initial_instances = 4: must be <= the number"),
        ({"target_instances": 9}, "fleet.target_instances = 9: must be <= the number"),
        (
            {"autoscaler": {"kind": "queue", "max_instances": 5}},
            "fleet.autoscaler.max_instances = 5: must be <= the number of instances (3)",
        ),
        (
            {"autoscaler": {"kind": "queue", "min_instances": 3, "max_instances": 2}},
            "fleet.autoscaler.min_instances = 3: must be <= max_instances (2)",
        ),
        (
            {"autoscaler": {"kind": "target", "max_instances": 5}},
            "fleet.autoscaler.max_instances = 5: must be <= the number of instances (3)",
        ),
        (
            {"autoscaler": {"kind": "target", "min_instances": 3, "max_instances": 2}},
            "fleet.autoscaler.min_instances = 3: must be <= max_instances (2)",
        ),
        (
            {"autoscaler": {"kind": "wva", "max_instances": 5}},
            "fleet.autoscaler.max_instances = 5: must be <= the number of instances (3)",
        ),
        (
            {"autoscaler": {"kind": "target", "metric": "sensor", "max_instances": 3}},
            "fleet.autoscaler.metric = sensor: needs a gateway.controller",
        ),
    ],
)
def test_number_that_the_simulation_does_not_have(settings: dict[str, Any], clue: str) -> None:
    with pytest.raises(ConfigError) as caught:
        simulation(fleet=settings)
    assert clue in str(caught.value)
