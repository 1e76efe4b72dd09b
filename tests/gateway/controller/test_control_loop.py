"""Measurements, instants and moves of controllers, by the requests' timestamps."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import often, trials
from support.runs import SECOND, fixed, flat, ns, outcomes, run, simulated, ways

from spillway import ConfigError, Result, Simulation, gateway, instance, metrics, signals, trace
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.runs import Way

EDGES = (
    *(0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30),
    *(45, 60, 90, 120, 180, 240, 300, 450, 600),
)
ROUTING_NS, ENTRY_NS = 2_000_000, 3_000_000
DEFAULT = instance.ProcessorSharing()
# No time to first token is the edge of a bucket.
PLANT = DEFAULT.replace(ttft_s=[1.01 * ttft for ttft in DEFAULT.ttft_s])
NEVER = gateway.Aimd(target_s=1000, band=1)  # neither cuts nor climbs


def bucketed_p99(values: list[float], quantile: float = 0.99) -> float:
    """Of a Prometheus histogram: rank q·n, linearly within its bucket."""
    rank = quantile * len(values)
    lower, below = 0.0, 0
    for edge in EDGES:
        count = sum(lower < value <= edge or (lower == 0 == value) for value in values)
        if below + count >= rank:
            return lower + (edge - lower) * ((rank - below) / count)
        lower, below = edge, below + count
    return EDGES[-1]


# --- sources --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    at: int
    value_s: float
    tenant: str


def samples_of(sensor: signals.Sensor, them: list[Way]) -> list[Sample]:
    """A rejection becomes known as the request reaches its engine."""
    samples = []
    for way in them:
        entered = None if way.dispatched is None else way.dispatched + ROUTING_NS + ENTRY_NS
        at, span = {
            "ttft": (way.first_token, lambda way=way: way.first_token - way.arrived),
            "engine_ttft": (way.first_token, lambda way=way, e=entered: way.first_token - e),
            "e2e": (way.ended, lambda way=way: way.ended - way.arrived),
            "e2e_per_token": (
                way.ended,
                lambda way=way: (way.ended - way.arrived) // max(way.output_tokens, 1),
            ),
            "queue_delay": (way.dispatched, lambda way=way: way.dispatched - way.arrived),
        }[sensor.source]
        if at is not None:
            samples.append(Sample(at, span() / 1e9, way.tenant))
        elif sensor.includes_refusals and sensor.source in ("ttft", "e2e") and is_refused(way):
            assert entered is not None
            samples.append(Sample(entered, (entered - way.arrived) / 1e9, way.tenant))
    return samples


def is_refused(way: Way) -> bool:
    return way.dispatched is not None and way.outcome == "rejected"


AGGREGATES: dict[str, Callable[[list[float]], float]] = {
    "exact_quantile": lambda values: float(np.quantile(values, 0.9)),
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "bucketed_quantile": lambda values: bucketed_p99(values, 0.9),
}


def expected_readings(
    samples: list[Sample], sensor: signals.Sensor, ticks: list[int]
) -> list[tuple[float, int]]:
    """Value and number of samples at each tick."""
    tenants = {"pooled": ["abc"], "tenant": [sensor.tenant], "max_over_tenants": list("abc")}
    # A tick precedes the dispatches of its instant.
    late = sensor.source == "queue_delay"
    readings = []
    for i, now in enumerate(ticks):
        start = now - round(sensor.window_s * SECOND)
        if sensor.aggregation == "bucketed_quantile":
            # From the oldest tick within the window on.
            start = next(tick for tick in ticks[: i + 1] if tick >= start) - late
        readings.append((math.nan, 0))
        for group in tenants[sensor.scope]:
            recent = (s for s in samples if start < s.at <= now - late)
            values = [s.value_s for s in recent if s.tenant in group]
            if sensor.scope != "max_over_tenants":
                readings[-1] = (math.nan, len(values))
            if len(values) >= sensor.min_samples:
                value = AGGREGATES[sensor.aggregation](values)
                if math.isnan(readings[-1][0]) or value > readings[-1][0]:
                    readings[-1] = (value, len(values))
    return readings


@pytest.mark.parametrize("aggregation", sorted(AGGREGATES))
@pytest.mark.parametrize("source", ["ttft", "engine_ttft", "e2e", "e2e_per_token", "queue_delay"])
def test_controller_measures_what_the_timestamps_show(source: str, aggregation: str) -> None:
    measured = refused = 0
    for seed in trials(12):
        rng = random.Random(seed)
        sensor = signals.Sensor(
            includes_refusals=seed % 2 == 1,
            source=source,
            aggregation=aggregation,
            quantile=0.9,
            window_s=rng.choice((0.5, 1.5)),
            min_samples=rng.choice((1, 4)),
            tick_s=rng.choice((0.25, 0.5)),
            tick_drift_s=rng.choice((0, 0.001)),
            tick_phase_s=(0, 0, 0.13)[seed % 3],
            scope=rng.choice(("pooled", "tenant", "max_over_tenants")),
            tenant=rng.choice("abc"),
        )
        n = 60
        result = run(
            np.cumsum([rng.choice((0, 0.01, 0.1)) for _ in range(n)]).tolist(),
            input_tokens=[rng.randint(1, 300) for _ in range(n)],
            output_tokens=[rng.randint(0, 40) for _ in range(n)],
            tenant=["a", "b", "c", *(rng.choice("abc") for _ in range(n - 3))],
            instances=instance.InstanceGroup(
                latency=instance.Linear(
                    alpha0_us=ENTRY_NS / 1000,
                    alpha_input_us=0,
                    alpha_output_us=0,
                    beta0_us=9000,
                    beta_prefill_us=20,
                ),
                count=rng.choice((1, 2)),
                max_model_len=rng.choice((0, 250)),
            ),
            gateway=gateway.Gateway(
                limit=fixed(rng.randint(2, 20)),
                controller=NEVER,
                sensor=sensor,
                routing_latency_s=ROUTING_NS / 1e9,
                bands=[gateway.Band(queue=gateway.Queue(timeout_s=rng.choice((None, 0.3))))],
            ),
        )
        control = result.control
        ticks = ns(control["time_s"])
        interval = round((sensor.tick_s + sensor.tick_drift_s) * SECOND)
        phase = round(sensor.tick_phase_s * SECOND)
        assert ticks == [phase + interval * (i + 1) for i in range(len(ticks))]
        readings = expected_readings(samples_of(sensor, ways(result)), sensor, ticks)
        assert control["samples"].tolist() == [count for _, count in readings], seed
        assert control["value"] == pytest.approx([v for v, _ in readings], rel=1e-9, nan_ok=True)
        measured += int((~np.isnan(control["value"])).sum())
        # The last tick is the first after everything has ended.
        last = max(way.ended for way in ways(result) if way.ended is not None)
        assert ticks[-2] < last <= ticks[-1] if len(ticks) > 1 else last <= ticks[-1]
        refused += sensor.includes_refusals * sum(is_refused(way) for way in ways(result))
    assert measured > often(20)
    assert refused > often(20)


def behind_a_gate(**sensor: Any) -> Result:
    """Two places before a worker that takes 10 s; what waits there for 0.5 s is refused.

    One request every 0.1 s: the first two stay, all others are refused half a second after they
    came.
    """
    gate = instance.ControlledDelay(max_requests=2, delay_s=0.5)
    return run(
        [0.1 * i for i in range(90)],
        instances=flat(e2e_s=10, ttft_s=8).replace(ingress=gate),
        gateway=gateway.Gateway(
            limit=fixed(100),
            controller=NEVER,
            sensor=signals.Sensor(
                aggregation="mean", tick_s=1.05, window_s=4, tick_drift_s=0, **sensor
            ),
        ),
    )


@pytest.mark.parametrize("source", ["ttft", "e2e"])
def test_refusals_by_workers_are_samples_if_they_are_to_be(source: str) -> None:
    silent, informed = (
        behind_a_gate(source=source, includes_refusals=includes) for includes in (False, True)
    )
    assert informed.digest == silent.digest
    assert informed.ledger["worker_rejected"] == {"controlled_delay_expired": 88}
    # Up to second 7.35 nothing has been served.
    assert np.isnan(silent.control["value"][:7]).all()
    # Refused from second 0.7 on; a tick precedes the refusals of its instant.
    assert informed.control["samples"][:4].tolist() == [4, 14, 25, 35]
    assert informed.control["value"][1:7] == pytest.approx(0.5)


@pytest.mark.parametrize("source", ["engine_ttft", "e2e_per_token", "queue_delay"])
def test_other_sources_have_nothing_to_measure_of_a_refusal(source: str) -> None:
    silent, informed = (
        behind_a_gate(source=source, includes_refusals=includes) for includes in (False, True)
    )
    for column in ("samples", "value"):
        assert np.array_equal(silent.control[column], informed.control[column], equal_nan=True)


def test_what_the_gateway_sheds_leaves_no_sample() -> None:
    """Neither what finds its queue full nor what waits there for too long."""
    result = run(
        [0.1 * i for i in range(90)],
        instances=flat(e2e_s=10, ttft_s=8),
        gateway=gateway.Gateway(
            bands=gateway.Band(queue=gateway.Queue(max_requests=3, timeout_s=0.5)),
            limit=fixed(2),
            controller=NEVER,
            sensor=signals.Sensor(min_samples=1, includes_refusals=True),
        ),
    )
    assert {"queue_full", "queue_timeout"} <= {*result.requests["reason"]}
    assert result.control["samples"].tolist()[0] == 0
    assert result.control["samples"].max() == 2


def test_early_rejections_look_like_early_answers() -> None:
    """Nothing is served, yet the limit climbs by one at every tick but the first, which only opens
    the window; without these samples it stays where it is."""
    gate = instance.ControlledDelay(max_requests=1, delay_s=0.5)
    preset = vllm_on_eks.post5(workers=1).gateway
    for config, cap in ((preset, 64 + 5), (preset.with_({"sensor.includes_refusals": False}), 64)):
        result = run(
            [0.1 * i for i in range(330)],
            instances=flat(e2e_s=1000, ttft_s=900).replace(ingress=gate),
            gateway=config,
            horizon_s=33,
        )
        assert len(result.control["setting"]) == 6
        assert result.control["setting"][-1] == cap


def test_memory_in_use_is_read_at_ticks() -> None:
    result = run(
        [0.07 * i for i in range(40)],
        input_tokens=200,
        output_tokens=[20 + 7 * (i % 9) for i in range(40)],
        instances=instance.InstanceGroup(num_kv_blocks=300, count=2),
        gateway=gateway.Gateway(
            limit=fixed(100),
            controller=NEVER,
            sensor=signals.Sensor(source="kv_utilization", tick_s=0.1, tick_drift_s=0),
        ),
        metrics=metrics.Metrics(timeline_step_s=0.1),
    )
    seen = result.control["value"]
    assert seen.tolist() == result.timeline["kv_utilization"][1 : len(seen) + 1].tolist()
    assert seen.max() > 0.1
    assert seen[-1] == 0


def test_hit_rate_is_that_of_the_lookups_since_the_last_tick() -> None:
    """Each prompt has five blocks, of which four are shared. No lookup is in the third and fourth
    second."""
    arrivals = [0.1, 0.5, 1.1, 1.5, 4.1, 4.2]
    shared = [64, 64, 64, 64, 64, 0]
    result = simulated(
        workload=trace(
            arrival_s=arrivals,
            input_tokens=[80] * 6,
            output_tokens=[2, 2, 2, 2, 2, 100],
            prefix_group=["P" if tokens else "" for tokens in shared],
            prefix_tokens=shared,
        ),
        instances=instance.InstanceGroup(kv_cache=instance.KvCache(prefix_caching=True)),
        gateway=gateway.Gateway(
            limit=fixed(100),
            controller=NEVER,
            sensor=signals.Sensor(source="hit_rate", tick_s=1, tick_drift_s=0),
        ),
    )
    # While nothing is in flight ticks go on for what is still to arrive.
    assert result.control["value"].tolist()[:5] == [0.4, 0.8, 0.8, 0.8, 0.4]


# --- what it does ---------------------------------------------------------------------------------


@dataclass
class PublishedController:
    """The controller of vllm-on-eks @ 0c78403, restated: one cap per worker."""

    cap: int
    cap_min: int
    cap_max: int
    target_s: float
    band: float
    window: int
    cooldown_ticks: int
    factor: float | None
    step: int
    cooldown: int = 0
    snapshots: list[int] = field(default_factory=list)

    def observe(self, now: int, samples: list[Sample]) -> float:
        self.snapshots.append(now)
        self.snapshots = [at for at in self.snapshots if not at < now - self.window]
        values = [s.value_s for s in samples if self.snapshots[0] < s.at <= now]
        return bucketed_p99(values) if len(values) >= 10 else math.nan

    def tick(self, p99: float, *, has_demand: bool) -> str:
        if math.isnan(p99):
            return "no_signal"
        if self.cooldown > 0:
            self.cooldown -= 1
            return "cooldown"
        if p99 > self.target_s * (1 + self.band):
            cut = self.cap - self.step if self.factor is None else int(self.cap * self.factor)
            self.cap = max(self.cap_min, cut)
            self.cooldown = self.cooldown_ticks
            return "decrease"
        if has_demand and p99 < self.target_s * (1 - self.band):
            self.cap = min(self.cap_max, self.cap + 1)
            return "increase"
        return "hold"


def test_published_controller() -> None:
    seen: dict[str, int] = {}
    for seed in trials(40):
        rng = random.Random(seed)
        factor = rng.choice((0.5, 0.75, None))
        window_s, tick_s = rng.choice(((10, 5), (30, 5), (4, 1)))
        twin = PublishedController(
            cap=rng.choice((4, 16, 64)),
            cap_min=rng.choice((1, 8, 16)),
            cap_max=rng.choice((32, 128)),
            target_s=rng.choice((1, 2)),
            band=rng.choice((0, 0.2)),
            window=window_s * SECOND,
            cooldown_ticks=rng.choice((0, 3)),
            factor=factor,
            step=4,
        )
        timeout_s = rng.choice((1, 8))
        result = run(
            np.cumsum([rng.expovariate(rng.choice((3, 8))) for _ in range(500)]).tolist(),
            tenant=[rng.choice("ab") for _ in range(500)],
            instances=instance.InstanceGroup(plant=PLANT),
            gateway=gateway.Gateway(
                bands=[gateway.Band(queue=gateway.Queue(timeout_s=timeout_s))],
                limit=gateway.WorkerBudget(cap_per_worker=twin.cap, workers=2),
                controller=gateway.Aimd(
                    target_s=twin.target_s,
                    band=twin.band,
                    decrease="step" if factor is None else "factor",
                    decrease_factor=factor or 0.5,
                    decrease_step=twin.step,
                ),
                guard=gateway.Guard(
                    floor=twin.cap_min,
                    ceiling=twin.cap_max,
                    cooldown_ticks=twin.cooldown_ticks,
                    clamps="verbatim",
                ),
                sensor=signals.Sensor(
                    tick_s=tick_s, window_s=window_s, tick_drift_s=rng.choice((0, 0.001))
                ),
            ),
        )
        them, control = ways(result), result.control
        samples = samples_of(signals.Sensor(), them)
        for i, now in enumerate(ns(control["time_s"])):
            before = [way for way in them if way.arrived < now]
            in_flight = sum(way.in_flight(now) and way.dispatched < now for way in before)
            waits = now - round(timeout_s * SECOND)
            queued = sum(
                way.arrived >= waits if way.dispatched is None else way.dispatched >= now
                for way in before
            )
            p99 = twin.observe(now, samples)
            action = twin.tick(p99, has_demand=in_flight > 0 or queued > 0)
            logged = control.actions[control["action"][i]]
            seen[logged] = seen.get(logged, 0) + 1
            assert logged == action, (seed, i)
            assert control["value"][i] == pytest.approx(p99, rel=1e-12, nan_ok=True)
            assert control["setting"][i] == twin.cap
            assert control["permits"][i] == 2 * twin.cap
            assert control["in_flight"][i] == in_flight
    assert min(seen[name] for name in ("increase", "decrease", "cooldown", "no_signal")) > often(50)
    assert seen["hold"] > often(10)


def one_more_permit(**settings: Any) -> gateway.Gateway:
    """One permit, and one more per second while first tokens come quickly."""
    return gateway.Gateway(
        limit=fixed(1),
        controller=gateway.Aimd(target_s=1000),
        sensor=signals.Sensor(
            aggregation="min", tick_s=1, tick_drift_s=0, min_samples=1, window_s=1000
        ),
        **settings,
    )


def test_new_permit_is_used_at_the_instant_of_the_tick() -> None:
    result = run([0.0] * 5, instances=flat(1000, 0.001), gateway=one_more_permit(), horizon_s=3.5)
    assert [way.dispatched for way in ways(result)] == [0, SECOND, 2 * SECOND, 3 * SECOND, None]
    assert result.control["setting"].tolist() == [2, 3, 4]
    assert result.control["in_flight"].tolist() == [1, 2, 3]
    assert result.control.count("increase") == 3


def test_permits_do_not_outgrow_the_guard() -> None:
    gate = one_more_permit(guard=gateway.Guard(ceiling=3))
    result = run([0.0] * 5, instances=flat(1000, 0.001), gateway=gate, horizon_s=5.5)
    assert result.control["setting"].tolist() == [2, 3, 3, 3, 3]
    assert outcomes(result) == ["running"] * 3 + ["queued"] * 2


def test_first_limit_that_can_be_moved_is() -> None:
    limits = [gateway.PerTenant(max_in_flight=100), fixed(1), gateway.DualLimit(max_in_flight=7)]
    result = run(
        [0.0] * 3,
        instances=flat(1000, 0.001),
        gateway=one_more_permit().replace(limit=limits),
        horizon_s=1.5,
        metrics=metrics.Metrics(timeline_step_s=1),
    )
    assert result.control["setting"].tolist() == [2]
    assert result.timeline["permits"].tolist() == [1, 2]


@pytest.mark.parametrize("limits", [[], ["unlimited"], ["per_tenant", "saturation"]])
def test_controller_needs_something_to_move(limits: list[str]) -> None:
    with pytest.raises(ConfigError, match="limit"):
        Simulation(gateway={"limit": limits, "controller": "aimd"})


def test_without_a_controller_nothing_is_logged() -> None:
    assert len(run([0, 0], gateway=gateway.Gateway(limit=fixed(1))).control["time_s"]) == 0


# --- the end --------------------------------------------------------------------------------------


def test_ticks_end_though_requests_wait_forever() -> None:
    """Nothing saturates less than a ceiling of 0, so no permit ever comes."""
    gate = one_more_permit(bands=[gateway.Band(ceiling=0)])
    result = run([0.0] * 5, gateway=gate.replace(limit=[gateway.Saturation(), fixed(1)]))
    assert outcomes(result) == ["queued"] * 5
    assert len(result.control["time_s"]) == 1


def test_ticks_outlast_pauses() -> None:
    result = run([0, 20.5], gateway=one_more_permit())
    assert len(result.control["time_s"]) == 22
    assert set(outcomes(result)) == {"completed"}
    # The limit does not rise while there is no demand: 1 s, and at 21 s.
    assert result.control.count("increase") == 1
    assert result.control.count("hold") == 21


@pytest.mark.parametrize(
    ("controller", "name"),
    [
        (gateway.Aimd, "decrease_factor"),
        (gateway.Concur, "decrease_factor"),
        (gateway.Gradient2, "smallest_gradient"),
    ],
)
def test_a_cut_leaves_less_than_there_was(controller: Any, name: str) -> None:
    controller(**{name: 0.999})
    with pytest.raises(ConfigError, match=f"^{name} = 1: must be > 0 and < 1$"):
        controller(**{name: 1})
