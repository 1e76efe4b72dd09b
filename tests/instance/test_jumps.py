"""The engine with jumps equals plain stepping: every request, figure and report, bit for bit."""

from __future__ import annotations

import functools
import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from support.effort import in_parts, often, trials
from support.engine_trials import (
    Latency,
    depends_on_context,
    random_preemption,
    random_step_table,
    with_async_scheduling,
    with_spare_memory,
)
from support.specimens import drawable

import spillway
from spillway import (
    Result,
    Simulation,
    gateway,
    instance,
    metrics,
    profiles,
    router,
    signals,
    simulate,
    workload,
)
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = trials(480)
JITTERED_SEEDS = trials(60)
PRIORITY_SEEDS = trials(240)
STREAMED_SEEDS = trials(48)
RULES_SEEDS = trials(300)

CLASSES = ("critical", "standard", "batch", "sheddable")
TENANTS = ("gold", "silver", "bronze")
# The share of the seeds that must show a feature; the others must occur in 3 %.
SHARES = {
    "preempted": 0.2,
    "jumped": 0.5,
    "horizon": 0.25,
    "horizon cuts running": 0.1,
    "blis_0_6": 0.02,
}
FEATURES = (
    *SHARES,
    "vllm",
    "custom",
    "preempted with jumps",
    "horizon cuts running with jumps",
    "horizon cuts running at step_start with jumps",
    "horizon cuts running under blis with jumps",
    "warm-up",
    "two groups",
    "refused",
    "rejected by gateway",
    "simultaneous",
    "no output",
    "one output token",
    "long output",
    "budget below seats",
    "capped prefill",
    "chunked prefill",
    "max_model_len",
    "context",
    "roofline",
    "step table",
    "async",
    "overloaded",
    "hardly loaded",
    "limit",
    "stale signals",
    "least loaded",
    *(f"{kind} quantum" for kind in (1, 1000, 1_000_000)),
    *(f"{block} tokens per block" for block in (1, 3, 16, 64)),
    *(
        f"{completion}, {preemption}"
        for completion in ("step_end", "step_start")
        for preemption in ("keep_emitted", "restart")
    ),
    *(
        f"{overhead}, {accounting}"
        for overhead in ("in_step", "reported")
        for accounting in ("clock", "blis")
    ),
    *("fcfs", "sjf", "priority_fcfs", "reverse_priority", "longest_prefix"),
)


# Configurations


def random_arrivals(rng: random.Random) -> Any:
    return rng.choice(
        (
            workload.Poisson(),
            workload.Constant(),
            workload.Gamma(cv=rng.choice((0.3, 2, 6))),
            workload.Weibull(cv=2),
        )
    )


def random_client(rng: random.Random, name: str) -> workload.Client:
    inputs = rng.choice(
        (
            workload.Fixed(tokens=rng.choice((1, 16, 48, 300))),
            workload.Empirical(values=(1, 15, 16, 17, 64, rng.randint(1, 400))),
            workload.Exponential(mean_tokens=rng.choice((10, 60, 200)), max_tokens=600),
        )
    )
    outputs = rng.choice(
        (
            workload.Fixed(tokens=rng.choice((0, 1, 2, 17, 80))),
            workload.Empirical(
                values=(0, 1, 2, rng.randint(3, 40), rng.randint(40, 400)), weights=(1, 1, 1, 4, 2)
            ),
            workload.Exponential(mean_tokens=rng.choice((10, 50, 120)), max_tokens=500),
            workload.Gaussian(
                mean_tokens=60, std_dev_tokens=rng.choice((5, 40)), min_tokens=1, max_tokens=200
            ),
        )
    )
    return workload.Client(
        name=name,
        tenant=rng.choice(TENANTS),
        slo_class=rng.choice(CLASSES),
        # Equal shares of constant arrivals come at the same instants.
        rate_fraction=rng.choice((1, 1, 1, 0.3)),
        arrivals=random_arrivals(rng),
        input_tokens=inputs,
        output_tokens=outputs,
    )


def random_latency(rng: random.Random) -> Latency:
    kind = rng.random()
    if kind < 0.15:
        return random_step_table(rng)
    if kind < 0.4:
        return instance.Roofline(
            constant_us=rng.choice((0, 1000, 2800)),
            expert_weights_us=rng.choice((0, 0, 5000)),
            expert_share=rng.choice((1 / 32, 0.25)),
            token_us=rng.choice((10, 50, 500)),
            norm=rng.choice((None, 1, 1.5, 2, 4)),
            decode_us=rng.choice((0, 30)),
            decode_context_us=rng.choice((0, 0, 0.06)),
            prefill_context_us=rng.choice((0, 0, 0.0017, 0.1)),
            chunk_us=rng.choice((0, 100)),
        )
    default = instance.Linear()
    return rng.choice(
        (
            default,
            instance.Linear.preset("llama-3.1-8b-h100-tp1"),
            # Whole microseconds, for events at one instant.
            default.replace(
                alpha0_us=rng.choice((0, 1000)),
                alpha_input_us=rng.choice((0, 10)),
                alpha_output_us=rng.choice((0, 500)),
                beta0_us=rng.choice((0, 1000, 5000)),
                beta_prefill_us=rng.choice((0, 10)),
                beta_decode_us=rng.choice((0, 10, 100)),
            ),
        )
    ).replace(beta_context_us=rng.choice((0, 0, 0.01, 0.3)))


def random_scheduler(rng: random.Random) -> Any:
    """Twice as often `fcfs` as any other."""
    return rng.choice([lambda _: instance.Fcfs(), *drawable("InstanceGroup.scheduler")])(rng)


def random_group(rng: random.Random, count: int) -> instance.InstanceGroup:
    block = rng.choice((1, 3, 16, 64))
    # Tokens that fit: of a few requests at most, or of all there can be.
    memory = rng.choice((*[rng.randint(150, 700)] * 2, rng.randint(600, 1600), 400_000))
    seats = rng.choice((1, rng.randint(2, 8), rng.randint(4, 40), 256))
    budget = rng.choice(
        (2048, 2048, 512, rng.randint(1, 12), rng.randint(16, 100), max(1, seats // 2))
    )
    return BLIS_SERVER.replace(
        count=count,
        max_num_seqs=seats,
        max_num_batched_tokens=budget,
        long_prefill_token_threshold=rng.choice((0, 0, 0, rng.randint(1, 8), rng.randint(8, 64))),
        max_model_len=rng.choice((0, 0, 0, 0, rng.randint(100, 500))),
        block_size_tokens=block,
        num_kv_blocks=math.ceil(memory / block),
        scheduler=random_scheduler(rng),
        latency=random_latency(rng),
    )


def random_gateway(rng: random.Random) -> gateway.Gateway:
    return gateway.Gateway(
        admission=rng.choice(
            [gateway.AlwaysAdmit()] * 5
            + [gateway.TokenBucket(capacity_tokens=2000, refill_tokens_per_s=5000)]
        ),
        admission_latency_s=rng.choice((0, 0, 1e-3)),
        bands=(gateway.Band(priority=0), gateway.Band(priority=-1000)),
        limit=rng.choice(
            [gateway.Unlimited()] * 3 + [gateway.FixedLimit(max_in_flight=rng.randint(1, 40))]
        ),
        routing_latency_s=rng.choice((0, 0, 1e-3)),
    )


def with_random_semantics(simulation: Simulation, rng: random.Random) -> Simulation:
    """Under a profile, or with independent choices; the schedulers do not change."""
    profile = rng.choice((*profiles.NAMES, None, None))
    if profile is not None:
        schedulers = {
            f"instances[{i}].scheduler": group.scheduler
            for i, group in enumerate(simulation.instances)
        }
        return profiles.apply(profile, simulation).with_(schedulers)
    return simulation.replace(
        instances=[
            group.replace(
                completion=rng.choice(("step_end", "step_start")),
                preemption=rng.choice(("keep_emitted", "restart")),
                output_overhead=rng.choice(("in_step", "reported")),
            )
            for group in simulation.instances
        ],
        metrics=metrics.Metrics(accounting=rng.choice(("clock", "blis"))),
    )


def configuration(seed: int) -> Simulation:
    rng = random.Random(seed)
    n = rng.choice((rng.randint(30, 80), rng.randint(30, 150), rng.randint(30, 300)))
    rate = 10 ** rng.uniform(-0.3, 3.3)
    span_s = n / rate
    clients = [random_client(rng, f"client{i}") for i in range(rng.randint(1, 3))]
    counts = rng.choice(((1,), (1,), (2,), (1, 1), (1, 2), (3, 1)))
    simulation = Simulation(
        workload=workload.Synthetic(requests_per_s=rate, num_requests=n, clients=clients),
        gateway=random_gateway(rng),
        router=rng.choice(("round_robin", "least_loaded", router.LeastLoaded(ties="random"))),
        signals=rng.choice(
            (signals.Live(), signals.Live(), signals.OnRead(period_s=rng.choice((0.01, 0.2))))
        ),
        instances=[random_group(rng, count) for count in counts],
        warm_up_s=rng.choice((0, 0, 0.15 * span_s)),
    )
    simulation = with_async_scheduling(with_random_semantics(simulation, rng), rng)
    simulation = with_spare_memory(simulation, rng)
    # Classes whose goals are met by some, so that there is a goodput.
    targets = {"target_ttft_s": 0.2, "target_e2e_s": 2.0}
    return simulation.replace(
        slo_classes=[slo_class.replace(**targets) for slo_class in simulation.slo_classes],
        # Whole milliseconds, so that steps end at the horizon where the quantum is as coarse.
        horizon_s=rng.choice((None, None, max(0.05, round(span_s * rng.uniform(0.2, 1.5), 3)))),
        quantum_ns=rng.choice((1, 1, 1000, 1_000_000)),
    )


# Comparison


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The figures of nested reports, each with its place."""
    if hasattr(value, "items"):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from flat(inner, f"{name}[{i}]")
    else:
        yield name, value


def reports(result: Result) -> dict[str, Any]:
    """Everything that a result reports except its requests."""
    nested = {
        "instances": [
            {name: value for name, value in server.items() if name != "stepping"}
            for server in result.instances
        ],
        "ledger": result.ledger,
        "steps": result.steps,
        "summary": result.summary(),
        "by_class": result.by_class(),
        "by_tenant": result.by_tenant(),
    }
    return dict(flat(nested))


def first_difference(result: Result, other: Result) -> str:
    for name, column in result.requests.items():
        values, others = column.tolist(), other.requests[name].tolist()
        for row, (a, b) in enumerate(zip(values, others, strict=True)):
            if a != b and not (a != a and b != b):  # noqa: PLR0124
                return f"{name} of request {row}: {a!r} and {b!r}"
    figures, others = reports(result), reports(other)
    for name in figures | others:
        if figures.get(name) != others.get(name):
            return f"{name}: {figures.get(name)!r} and {others.get(name)!r}"
    return "nothing that has a name"


@functools.cache
def run(seed: int) -> tuple[Result, Result]:
    """A configuration with jumps and without."""
    simulation = configuration(seed)
    return simulate(simulation, seed), simulate(simulation, seed, reference=True)


@pytest.mark.parametrize("seeds", in_parts(SEEDS, 12))
def test_jumps_equal_plain_stepping(seeds: range) -> None:
    for seed in seeds:
        jumping, plain = run(seed)
        if jumping.digest != plain.digest:
            pytest.fail(f"seed {seed}: {first_difference(jumping, plain)}")
        # An order that is taken anew at every step needs every step.
        assert [server["stepping"] for server in jumping.instances] == [
            "plain" if group.scheduler.kind == "longest_prefix" else "jumps"
            for group in jumping.simulation.instances
            for _ in range(group.count)
        ]
        assert {server["stepping"] for server in plain.instances} == {"reference"}


def with_priorities(simulation: Simulation, seed: int) -> Simulation:
    """With priorities that may grow and preempt in place of the schedulers; few seats at times."""
    rng = random.Random(f"priorities {seed}")
    changes: dict[str, Any] = {
        f"instances[{i}].scheduler": instance.PriorityFcfs(
            age_weight_per_s=rng.choice((0, 0, 1, 10)),
            **random_preemption(rng, (1, 1, 1, 1, 4, 4)),
            max_preemptions_per_step=rng.choice((1, 3, 1000)),
        )
        for i in range(len(simulation.instances))
    }
    if rng.random() < 0.4:
        for i in range(len(simulation.instances)):
            changes[f"instances[{i}].num_kv_blocks"] = 400_000
            changes[f"instances[{i}].max_num_seqs"] = rng.randint(1, 6)
    return simulation.with_(changes)


def test_jumps_equal_plain_stepping_where_priorities_preempt() -> None:
    reached: Counter[str] = Counter()
    for seed in PRIORITY_SEEDS:
        simulation = with_priorities(configuration(seed), seed)
        jumping, plain = simulate(simulation, seed), simulate(simulation, seed, reference=True)
        if jumping.digest != plain.digest:
            pytest.fail(f"seed {seed}: {first_difference(jumping, plain)}")
        preempted = jumping.summary()["preemptions"] > 0
        reached["preempted"] += preempted
        reached["preempted with jumps"] += preempted and jumping.events < plain.steps
        roomy = all(
            group.num_kv_blocks * group.block_size_tokens >= 400_000
            for group in simulation.instances
        )
        reached["preempted for a seat"] += preempted and roomy
    assert len(reached) == 3
    assert min(reached.values()) >= often(12), reached


# Coverage


def features_of(jumping: Result, plain: Result) -> Iterator[str]:
    simulation = jumping.simulation
    summary, requests, ledger = jumping.summary(), jumping.requests, jumping.ledger
    groups = simulation.instances
    accounting = simulation.metrics.accounting
    jumped = jumping.events < plain.steps
    preempted = summary["preemptions"] > 0
    is_cut = simulation.horizon_s is not None and ledger["running"] > 0
    served = requests["outcome"] == "completed"
    longest = requests["input_tokens"][served].max(initial=0)
    output = requests["output_tokens"][served]
    arrivals = requests["arrival_s"].tolist()
    queue = max(server["mean_waiting"] for server in jumping.instances)
    reached = {
        "jumped": jumped,
        "preempted": preempted,
        "preempted with jumps": preempted and jumped,
        "horizon": simulation.horizon_s is not None,
        "horizon cuts running": is_cut,
        "horizon cuts running with jumps": is_cut and jumped,
        "horizon cuts running at step_start with jumps": is_cut
        and jumped
        and "step_start" in {group.completion for group in groups},
        "horizon cuts running under blis with jumps": is_cut and jumped and accounting == "blis",
        "warm-up": simulation.warm_up_s > 0,
        "two groups": len(groups) > 1,
        "refused": bool(ledger["worker_rejected"]),
        "rejected by gateway": bool(ledger["rejected"]),
        "simultaneous": len(set(arrivals)) < len(arrivals),
        "no output": (output == 0).any(),
        "one output token": (output == 1).any(),
        "long output": (output > 200).any(),
        "budget below seats": any(
            group.max_num_batched_tokens < group.max_num_seqs for group in groups
        ),
        "capped prefill": any(longest > group.long_prefill_token_threshold > 0 for group in groups),
        "chunked prefill": any(longest > group.max_num_batched_tokens for group in groups),
        "max_model_len": any(group.max_model_len > 0 for group in groups),
        "context": any(depends_on_context(group.latency) for group in groups),
        "async": any(group.async_scheduling for group in groups),
        "roofline": any(isinstance(group.latency, instance.Roofline) for group in groups),
        "step table": any(isinstance(group.latency, instance.StepTable) for group in groups),
        "overloaded": queue > 5,
        "hardly loaded": queue < 0.05,
        "limit": simulation.gateway.limit[0].kind == "fixed",
        "stale signals": simulation.signals.kind == "on_read",
        "least loaded": simulation.router.kind == "least_loaded",
    }
    yield from (name for name, is_reached in reached.items() if is_reached)
    yield jumping.profile
    yield f"{simulation.quantum_ns} quantum"
    yield from {f"{group.block_size_tokens} tokens per block" for group in groups}
    yield from {f"{group.completion}, {group.preemption}" for group in groups}
    yield from {f"{group.output_overhead}, {accounting}" for group in groups}
    yield from {group.scheduler.kind for group in groups}


def test_configurations_reach_what_they_are_meant_to() -> None:
    reached = Counter(feature for seed in SEEDS for feature in features_of(*run(seed)))
    rare = {
        name: reached[name]
        for name in FEATURES
        if reached[name] < often(SHARES.get(name, 0.03) * 480)
    }
    assert not rare, reached


# Where there are no jumps


def with_linear_times(simulation: Simulation) -> Simulation:
    return simulation.replace(
        instances=[
            group
            if isinstance(group.latency, instance.Linear)
            else group.replace(latency=instance.Linear())
            for group in simulation.instances
        ]
    )


def with_jitter(simulation: Simulation, cv: float) -> Simulation:
    """With random step times around those of the linear models."""
    return simulation.replace(
        instances=[
            group.replace(latency={"kind": "jittered", "mean": group.latency.to_dict(), "cv": cv})
            for group in simulation.instances
        ]
    )


def test_random_step_times_are_made_one_by_one() -> None:
    differing = 0
    for seed in JITTERED_SEEDS:
        linear = simulate(with_linear_times(configuration(seed)), seed)
        steady, jittered = (simulate(with_jitter(linear.simulation, cv), seed) for cv in (0, 0.1))
        for result in (steady, jittered):
            assert {server["stepping"] for server in result.instances} == {"plain"}
        if steady.digest != linear.digest:
            pytest.fail(f"seed {seed}: {first_difference(steady, linear)}")
        differing += jittered.digest != linear.digest
    # A coarse quantum can hide the noise.
    assert differing >= 0.9 * len(JITTERED_SEEDS)


def test_one_jittered_group_leaves_the_others_their_jumps() -> None:
    mean = {"preset": "llama-3.1-8b-h100-tp1"}
    result = simulate(
        Simulation(
            instances=[
                BLIS_SERVER.replace(latency={"kind": "jittered", "mean": mean, "cv": 0.1}),
                BLIS_SERVER,
            ]
        )
    )
    assert [server["stepping"] for server in result.instances] == ["plain", "jumps"]


# Streaming


def is_percentile(name: str) -> bool:
    return name.startswith(("p50_", "p90_", "p95_", "p99_"))


def assert_same_figures(exact: Any, streamed: Any, where: str) -> None:
    for name, value in exact.items():
        approximate = streamed[name]
        if name == "priority_inversions":
            assert approximate is None
        elif isinstance(value, float):
            # The histograms hold whole nanoseconds.
            absolute = 1e-6 if name.endswith("_ms") else 0
            # The fitness is made of percentiles.
            relative = 0.005 if is_percentile(name) or name == "fitness" else 1e-9
            expected = pytest.approx(value, rel=relative, abs=absolute)
            assert approximate == expected, f"{where}: {name}"
        else:
            assert approximate == value, f"{where}: {name}"


def test_streaming_agrees_with_the_exact_figures() -> None:
    cut = 0
    for seed in STREAMED_SEEDS:
        exact, _ = run(seed)
        streamed = simulate(exact.simulation.with_({"metrics.streaming": True}), seed)
        where = f"seed {seed}"
        assert streamed.ledger == exact.ledger, where
        assert streamed.instances == exact.instances, where
        assert streamed.steps == exact.steps, where
        assert_same_figures(exact.summary(), streamed.summary(), where)
        for name, figures in exact.by_class().items():
            assert_same_figures(figures, streamed.by_class()[name], f"{where}, {name}")
        for name, figures in exact.by_tenant().items():
            assert_same_figures(figures, streamed.by_tenant()[name], f"{where}, {name}")
        cut += exact.ledger["running"] > 0
    assert cut >= often(4.8)


def shared_prompts(
    arrival_s: list[float],
    input_tokens: list[int],
    output_tokens: list[int],
    prefix_group: list[str],
    prefix_tokens: list[int],
    **group: object,
) -> spillway.Simulation:
    trace = spillway.trace(
        arrival_s=arrival_s,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        prefix_group=prefix_group,
        prefix_tokens=prefix_tokens,
    )
    latency = {"alpha0_us": 0, "alpha_input_us": 0, "alpha_output_us": 0, "beta0_us": 1000}
    return spillway.Simulation.from_dict(
        {
            "workload": trace,
            "instances": BLIS_SERVER.replace(
                block_size_tokens=4,
                long_prefill_token_threshold=1,
                latency={"kind": "linear", **latency, "beta_prefill_us": 10, "beta_decode_us": 10},
                **group,
            ),
        }
    )


def test_prompt_in_parts_can_help_a_blocked_head() -> None:
    """The blocks that it fills are found by the head, which then needs fewer of its own."""
    cases = [
        shared_prompts(
            [0.0015, 0.002], [14, 12], [2, 1], ["a", "a"], [12, 12],
            num_kv_blocks=4, kv_cache={"allocation": "roll_back", "reserve_full_prompt": False},
        ),
        shared_prompts(
            [0.005, 0.055, 0.055, 0.055, 0.055, 0.075], [21, 12, 16, 20, 16, 17],
            [4, 1, 3, 1, 2, 1], list("bbbabb"), [16, 12, 16, 16, 12, 12], num_kv_blocks=8,
        ),
    ]  # fmt: skip
    for simulation in cases:
        jumping = spillway.simulate(simulation)
        assert jumping.digest == spillway.simulate(simulation, reference=True).digest


def test_steps_beyond_the_end_of_time_are_not_reached() -> None:
    for context_us in (0.0, 1.0):
        simulation = spillway.Simulation.from_dict(
            {
                "workload": {
                    "kind": "synthetic",
                    "num_requests": 1,
                    "clients": [{"output_tokens": {"kind": "fixed", "tokens": 20_000}}],
                },
                "instances": [
                    {"latency": {"kind": "linear", "beta0_us": 1e12, "beta_context_us": context_us}}
                ],
            }
        )
        jumping = spillway.simulate(simulation)
        assert jumping.ledger["running"] == 1
        assert jumping.digest == spillway.simulate(simulation, reference=True).digest


def under_rules(seed: int) -> Simulation:
    """Short of memory, with any rules of a version; prompts in parts, some with a shared prefix."""
    rng = random.Random(seed)
    flags = ("keeps_share", "first_equal_victim", "skips_after_victim", "counts_finishing_victims")
    flags += ("aborts_before_tokens", "registers_when_known", "null_block", "caps_lone_requests")
    rules: dict[str, Any] = {name: rng.random() < 0.5 for name in flags}
    rules["self_preemption"] = rng.choice(("continues", "ends_step"))
    rules["equal_blocks"] = rng.choice(("first", "last"))
    rules["free_blocks"] = rng.choice(("oldest_first", "blank_first"))
    group = instance.InstanceGroup(
        max_num_seqs=rng.randint(3, 8),
        max_num_batched_tokens=rng.randint(60, 400),
        long_prefill_token_threshold=rng.choice((0, rng.randint(8, 40), rng.randint(8, 40))),
        block_size_tokens=4,
        num_kv_blocks=rng.randint(90, 160),
        kv_cache={"generated_tokens": rng.random() < 0.5},
        async_scheduling=rng.random() < 0.5,
        engine_rules=rules,
        speculative_decoding={"num_drafts": rng.choice((0, 0, 0, 2))},
    )
    client = workload.Client(
        requests_per_s=rng.choice((5, 20, 50)),
        input_tokens={"kind": "uniform", "min_tokens": 20, "max_tokens": 300},
        output_tokens={"kind": "uniform", "min_tokens": 2, "max_tokens": 50},
    )
    if rng.random() < 0.3:
        client = client.replace(prefix_group="shared", prefix_tokens=rng.randint(4, 60))
    load = workload.Synthetic(num_requests=rng.randint(10, 50), clients=[client])
    return Simulation(workload=load, instances=[group])


def test_jumps_equal_plain_stepping_under_the_rules_of_versions() -> None:
    preempted = 0
    for seed in RULES_SEEDS:
        simulation = under_rules(seed)
        jumping, plain = simulate(simulation, seed), simulate(simulation, seed, reference=True)
        assert jumping.digest == plain.digest, seed
        preempted += jumping.requests["preemptions"].sum() > 0
    assert preempted > often(60)
