"""Time that passes without requests costs hardly any work, and changes nothing."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.effort import often, trials
from support.settings import fields_of
from support.specimens import examples

from spillway import (
    ConfigError,
    Result,
    Simulation,
    UsageError,
    fleet,
    gateway,
    instance,
    signals,
    simulate,
    start,
    trace,
)

CONTROLLERS = [policy for policy in examples("Gateway.controller") if policy.kind != "static"]
SOURCES = fields_of(signals.Sensor)["source"]["choices"]


def sparse_arrivals(rng: random.Random) -> list[float]:
    """Bursts of requests with idle minutes between them."""
    at_s, arrivals_s = rng.choice((0.0, 40.0)), []
    for _ in range(rng.randint(2, 4)):
        for _ in range(rng.randint(1, 25)):
            arrivals_s.append(at_s)
            at_s += rng.expovariate(20)
        at_s += rng.choice((0.5, 10, 100, 600))
    return arrivals_s


def random_simulation(seed: int) -> Simulation:
    """Everything that happens periodically, in a system that is mostly idle."""
    rng = random.Random(seed)
    arrival_s = sparse_arrivals(rng)
    rows = len(arrival_s)
    controller = CONTROLLERS[seed % len(CONTROLLERS)]
    sensor = signals.Sensor(
        source=rng.choice(SOURCES),
        aggregation=rng.choice(("bucketed_quantile", "exact_quantile", "mean", "min", "ewma")),
        scope=rng.choice(("pooled", "pooled", "max_over_tenants")),
        window_s=rng.choice((0.5, 5, 60)),
        min_samples=rng.choice((1, 3)),
        tick_s=rng.choice((0.05, 0.3, 2)),
        tick_drift_s=rng.choice((0, 0.001)),
        tick_phase_s=rng.choice((0, 0.7)),
    )
    transport = rng.choice(
        (
            signals.Live(),
            signals.Live(),
            signals.OnRead(period_s=0.3),
            signals.Scraped(
                period_s=rng.choice((0.05, 0.4)),
                delay_s=rng.choice((0, 0.1, 1)),
                jitter=rng.choice((0, 0.9)),
                loss_probability=rng.choice((0, 0.5)),
            ),
        )
    )
    count = rng.choice((1, 3))
    scaler = fleet.QueueScaler(
        poll_s=rng.choice((0.2, 1.5)),
        queue_threshold=2,
        min_instances=rng.choice((0, 1)),
        max_instances=count,
        up_stabilization_s=rng.choice((0, 3)),
        down_stabilization_s=rng.choice((2, 30)),
        shed_window_s=rng.choice((2, 20)),
    )
    changes = []
    if rng.random() < 0.4:
        at_s = rng.uniform(0, arrival_s[-1])
        settings: dict[str, Any] = {"gateway.guard.floor": 2.0}
        if rng.random() < 0.5:
            settings = {"busy_monitor.active_decode_blocks_threshold": 0.01}
        changes = [{"at_s": at_s, "set": settings}]
    return Simulation(
        workload=trace(
            arrival_s=arrival_s,
            input_tokens=[rng.randint(1, 2000) for _ in range(rows)],
            output_tokens=[rng.randint(1, 60) for _ in range(rows)],
            tenant=[rng.choice("ab") for _ in range(rows)],
        ),
        gateway=gateway.Gateway(
            admission=rng.choice(("always_admit", "busy_threshold", "busy_threshold")),
            limit=rng.choice(
                (
                    gateway.FixedLimit(max_in_flight=6),
                    gateway.WorkerBudget(cap_per_worker=4),
                    gateway.DualLimit(max_in_flight=8, max_awaiting_first_token=2),
                )
            ),
            controller=controller,
            guard=gateway.Guard(
                floor=1,
                ceiling=rng.choice((8, 500)),
                demand_gate=rng.random() < 0.5,
                cooldown_ticks=rng.choice((0, 3)),
                rounding=rng.choice(("none", "floor")),
            ),
            sensor=sensor,
            dispatch=rng.choice(("all", "one_per_attempt")),
            replicas=rng.choice((1, 1, 2)),
        ),
        signals=transport,
        busy_monitor=signals.BusyMonitor(
            active_decode_blocks_threshold=rng.choice((0.001, 0.05)),
            track_output_blocks=rng.random() < 0.3,
        ),
        instances=instance.InstanceGroup(count=count, num_kv_blocks=500, max_num_seqs=8),
        fleet=fleet.Fleet(autoscaler=scaler, startup_s=1) if rng.random() < 0.4 else {},
        metrics={"timeline_step_s": rng.choice((None, None, 1.7))},
        horizon_s=rng.choice((None, arrival_s[-1] + 100)),
        changes=changes,
    )


def shown(result: Result) -> dict[str, Any]:
    """What a result shows that periodic work may change."""
    tables: dict[str, Any] = {"requests": result.requests, "control": result.control}
    if result.simulation.metrics.timeline_step_s is not None:
        tables["timeline"] = result.timeline
    columns = {
        f"{table}.{name}": values for table, rows in tables.items() for name, values in rows.items()
    }
    actions = {name: result.control.count(name) for name in result.control.actions}
    return columns | actions | {"activity": result.activity, "ticks": result.control.num_ticks()}


def check_equal(quick: Result, plain: Result, what: str) -> None:
    expected, skipped = shown(plain), shown(quick)
    assert skipped.keys() == expected.keys()
    for name, value in skipped.items():
        np.testing.assert_equal(value, expected[name], err_msg=f"{name}, {what}")


def test_idle_spans_are_skipped_and_nothing_else_differs() -> None:
    seen: Counter[str] = Counter()
    for seed in trials(150):
        simulation = random_simulation(seed)
        quick, plain = simulate(simulation, seed), simulate(simulation, seed, reference=True)
        assert quick.digest == plain.digest, seed
        check_equal(quick, plain, f"seed {seed}")
        assert quick.events <= plain.events
        seen["a tenth of the events"] += quick.events < plain.events / 10
        seen["moved"] += len(set(quick.control["setting"].tolist())) > 1
        seen[simulation.gateway.controller.kind] += quick.events < plain.events / 2
        seen["autoscaled"] += quick.events < plain.events / 2 and simulation.fleet != fleet.Fleet()
        seen["scraped"] += quick.events < plain.events / 2 and simulation.signals.kind == "scraped"
    assert seen["a tenth of the events"] > often(15), seen
    assert seen["moved"] > often(30), seen
    # Vegas draws a probe after a number of ticks, and concur reads metrics that may not be steady.
    kinds = {controller.kind for controller in CONTROLLERS} - {"vegas", "concur"}
    for kind in kinds | {"autoscaled", "scraped"}:
        assert seen[kind] >= often(1), (kind, seen)


def test_a_session_that_is_held_in_idle_spans_equals_the_whole_run() -> None:
    for seed in trials(40):
        simulation = random_simulation(seed)
        whole = simulate(simulation, seed)
        rng = random.Random(seed)
        held = start(simulation, seed)
        at_s = 0.0
        for _ in range(30):
            at_s += rng.choice((0.01, 1.3, 47))
            held.advance(until_s=at_s)
            if rng.random() < 0.2:
                held.observe()
        result = held.finish()
        assert result.digest == whole.digest, seed
        for name, values in whole.control.items():
            np.testing.assert_array_equal(result.control[name], values, err_msg=f"{name}, {seed}")


def idle(span_s: float, **settings: Any) -> Simulation:
    """Ten requests, then nothing for a span, then one more."""
    return Simulation(
        workload=trace(
            arrival_s=[*np.arange(10) * 0.1, span_s],
            input_tokens=[500] * 11,
            output_tokens=[20] * 11,
        ),
        **settings,
    )


@pytest.mark.parametrize(
    "settings",
    [
        {
            "gateway": {
                "limit": "fixed",
                "controller": "pid",
                "replicas": 2,
                "sensor": {"tick_s": 0.02},
            }
        },
        {"gateway": {"limit": "fixed", "controller": "concur", "sensor": {"tick_s": 0.02}}},
        {
            "gateway": {"admission": "busy_threshold"},
            "signals": {"kind": "scraped", "period_s": 0.01},
            "busy_monitor": {"active_decode_blocks_threshold": 0.5},
        },
        {"fleet": {"autoscaler": {"kind": "queue", "poll_s": 0.1, "max_instances": 1}}},
    ],
    ids=["ticks", "ticks that read the fleet", "scrapes", "polls"],
)
def test_work_grows_with_events_not_with_the_span(settings: dict[str, Any]) -> None:
    short, long = (simulate(idle(span_s, **settings)) for span_s in (1e3, 1e7))
    assert long.events <= short.events + 20
    assert long.ledger == short.ledger


def test_the_control_log_of_a_long_span_is_counted_without_its_rows() -> None:
    controlled = {"limit": "fixed", "controller": "aimd", "sensor": {"tick_s": 0.01}}
    result = simulate(idle(1e8, gateway=controlled))
    assert result.control.num_ticks() == pytest.approx(1e8 / 0.011, rel=1e-6)
    assert result.control.count("no_signal") > 9e9
    assert "control" not in " ".join(result.notes())


def test_rows_of_long_spans_that_do_not_fit_into_memory_are_refused_by_name() -> None:
    """The samples of a timeline are what it is for; ticks become rows where they are read."""
    simulation = idle(1e9, metrics={"timeline_step_s": 0.1})
    with pytest.raises(ConfigError, match=r"metrics.timeline_step_s = 0.1: the run would need"):
        simulate(simulation)
    controlled = {"limit": "fixed", "controller": "aimd", "sensor": {"tick_s": 0.01}}
    result = simulate(idle(1e8, gateway=controlled))
    with pytest.raises(
        UsageError, match=r"9,090,90\d,\d+ rows, one per tick \(gateway.sensor.tick_s"
    ):
        result.control["setting"]


def test_the_cooldown_after_each_cut_at_the_floor_is_not_skipped() -> None:
    """Envoy's gradient asks for its minimum while it measures, and no request comes to end that."""
    controlled = gateway.Gateway(
        limit=gateway.FixedLimit(max_in_flight=8),
        controller=gateway.EnvoyGradient(interval_s=1, request_count=50, min_concurrency=3),
        guard=gateway.Guard(floor=8, ceiling=9, cooldown_ticks=3),
        sensor=signals.Sensor(tick_s=0.5),
    )
    simulation = idle(1e3, gateway=controlled)
    result = simulate(simulation)
    check_equal(result, simulate(simulation, reference=True), "cuts at the floor")
    cuts = result.control.count("decrease")
    assert cuts > 400
    assert result.control.count("cooldown") == pytest.approx(3 * cuts, abs=3)
