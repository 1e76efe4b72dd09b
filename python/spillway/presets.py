"""Named gateways: what published systems put before their model servers, value by value.

`gateway_post5().apply(simulation)` puts one before a fleet of your own. With a scenario it comes
second, as it gives the scenario's tenants their bounds:

    presets.gateway_post5().apply(scenarios.get("toy-plant").apply(simulation))

The three `gateway_…` are states of the FastAPI gateway of
https://github.com/Nicolas-Richard/vllm-on-eks: one queue per tenant, deficit round robin by
requests over one budget of workers x cap_per_worker streams, and a controller that moves
cap_per_worker so that the p99 of the time to first token, as a histogram shows it, stays near 2 s.

`semantics="verbatim"` has that code's quirks: credit that is hoarded while all is idle, permits
committed to a tenant before they are there, a shrunk budget that does not bind while permits are
idle and a growth that comes on top of it, floor and ceiling that move a limit from outside to
themselves. `corrected` has none of them; every value stays. What the sensor does (buckets, ticks
that come late and so shorten the window, refusals by workers that count as answers) belongs to the
values. A queue that a burst at one instant overflows though permits are free is neither: give the
gateway a `drain_latency_s` for that.

`llm_d_flow_control` is the flow control of llm-d's endpoint picker: bands by priority, each closed
while the fleet is too saturated for it, and one dispatch per attempt.

To change one, go through the gateway:

    preset = presets.gateway_post4()
    simulation = preset.apply(simulation).with_({"gateway.limit[0].cap_per_worker": 16})

The `dynamo_…` are NVIDIA Dynamo's request rejection and what its workers let in, by version: off
unless thresholds or limits are given, as there. They bring Dynamo's router and leave the rest of
the gateway as it is.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

from spillway._core.gateway import (
    Aimd,
    Band,
    BusyThreshold,
    DeficitRoundRobin,
    Eviction,
    Gateway,
    GlobalFifo,
    Guard,
    LeastAttainedService,
    PerTenant,
    PriorityHoldback,
    Queue,
    Saturation,
    SoftReflective,
    StaticCeilings,
    TenantRoundRobin,
    WorkerBudget,
)
from spillway._core.instance import (
    ClassPriority,
    ControlledDelay,
    DualLimitGate,
    EngineRequestLimit,
    InstanceGroup,
    Linear,
    Open,
    PriorityFcfs,
    ProcessorSharing,
)
from spillway._core.router import KvCost
from spillway._core.signals import BusyMonitor, Scraped, Sensor
from spillway._core.workload import Tenant
from spillway.config.classes import config_error
from spillway.config.messages import checked_simulation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway._core.cluster import Simulation

__all__ = [
    "ITERATION_14_PRIORITIES",
    "TARGET_P99_TTFT_S",
    "WEIGHTS",
    "DynamoPreset",
    "GatewayPreset",
    "LlmDVersion",
    "Semantics",
    "dynamo_1_2",
    "dynamo_1_3",
    "dynamo_dev_b",
    "dynamo_dev_c",
    "gateway_post4",
    "gateway_post5",
    "gateway_pre",
    "iteration_14_scheduler",
    "l4_fleet",
    "llm_d_flow_control",
    "static_caps",
    "toy_plant",
]


def __dir__() -> list[str]:
    return __all__


Semantics = Literal["verbatim", "corrected"]
LlmDVersion = Literal["2026-05", "2026-08"]

TARGET_P99_TTFT_S = 2.0
WEIGHTS = {"A": 2, "B": 1, "C": 1}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GatewayPreset:
    """A named gateway with the tenants that it knows: their weights, bounds and permits."""

    name: str
    doc: str
    gateway: Gateway
    tenants: tuple[Tenant, ...]
    signals: Scraped | None = None

    def apply(self, simulation: Simulation) -> Simulation:
        """`simulation` with this gateway, these tenants and, if it has any, these signals.

        Tenants that the preset does not name stay as they are, after those that it does.
        """
        known = {one.name for one in self.tenants}
        before = checked_simulation(simulation).tenants
        others = tuple(one for one in before if one.name not in known)
        changed = simulation.replace(gateway=self.gateway, tenants=self.tenants + others)
        return changed if self.signals is None else changed.replace(signals=self.signals)


def gateway_pre(*, semantics: Semantics = "verbatim", workers: int | None = 2) -> GatewayPreset:
    """The first deployment, whose limit spirals down to its floor.

    From 16 streams per worker up by 1 and down to a half, between 1 and 64, without a band around
    the target and without cooldown; queues of 16, a wait of up to 30 s. Reconstructed from the
    text of https://nicolas-richard.github.io, post of 2026-05-04, and from comments in the tests
    and scenarios of commit 2dca487: of the floor these only let see that it was between 1 and 4.

    `workers`: how many share the budget; None: as many as there are instances that are ready.
    """
    return _budgeted(
        "pre",
        "The first deployment: halves the limit, waits up to 30 s in queues of 16.",
        semantics=semantics,
        workers=workers,
        cap_per_worker=16,
        acquire_timeout_s=30,
        queue_max=(16, 16, 16),
        controller=Aimd(
            target_s=TARGET_P99_TTFT_S,
            band=0,
            increase_step=1,
            decrease="factor",
            decrease_factor=0.5,
        ),
        cap_min=1,
        cap_max=64,
        cooldown_ticks=0,
        window_s=30,
    )


def gateway_post4(*, semantics: Semantics = "verbatim", workers: int | None = 2) -> GatewayPreset:
    """Additive increase, subtractive decrease (AISD): commit 2dca487, post of 2026-05-04.

    From 64 streams per worker up by 1 and down by 4, between 16 and 128, with a band of 20 % around
    the target and 3 ticks of cooldown; queues of 8, 2 and 2, a wait of up to 30 s
    (config/tenants.yaml; the time-out was an environment variable). Its requests were routed by
    the longest known prefix, which `router` is to be set to where it matters.

    `workers`: how many share the budget; None: as many as there are instances that are ready.
    """
    return _budgeted(
        "post4",
        "AISD: cuts the limit by 4, waits up to 30 s in queues of 8, 2 and 2.",
        semantics=semantics,
        workers=workers,
        cap_per_worker=64,
        acquire_timeout_s=30,
        queue_max=(8, 2, 2),
        controller=Aimd(
            target_s=TARGET_P99_TTFT_S,
            band=0.2,
            increase_step=1,
            decrease="step",
            decrease_step=4,
        ),
        cap_min=16,
        cap_max=128,
        cooldown_ticks=3,
        window_s=30,
    )


def gateway_post5(*, semantics: Semantics = "verbatim", workers: int | None = 2) -> GatewayPreset:
    """Short waits, and cuts to three quarters: commit 0c78403, post of 2026-05-11.

    From 64 streams per worker up by 1 and down to 0.75, between 32 and 256, with a band of 20 %
    around the target and 3 ticks of cooldown; queues of 2, 1 and 1, a wait of up to 1 s, a window
    of 10 s (config/tenants.yaml). Its requests were routed in turns: `router="round_robin"`.

    `workers`: how many share the budget; None: as many as there are instances that are ready, as a
    watcher of endpoints told that gateway, of 2 to 4.
    """
    return _budgeted(
        "post5",
        "Cuts the limit to 0.75, waits up to 1 s in queues of 2, 1 and 1.",
        semantics=semantics,
        workers=workers,
        cap_per_worker=64,
        acquire_timeout_s=1,
        queue_max=(2, 1, 1),
        controller=Aimd(
            target_s=TARGET_P99_TTFT_S,
            band=0.2,
            increase_step=1,
            decrease="factor",
            decrease_factor=0.75,
        ),
        cap_min=32,
        cap_max=256,
        cooldown_ticks=3,
        window_s=10,
    )


def static_caps(*, caps: Sequence[int] = (64, 8, 64), timeout_s: float = 30) -> GatewayPreset:
    """A semaphore per tenant and nothing else: post of 2026-05-02.

    A and C, who pay, may have 64 streams each, B 8; who finds none free waits for up to 30 s, in a
    line without bound. `caps` are those of A, B and C.
    """
    return GatewayPreset(
        name="static-caps",
        doc="A semaphore per tenant, for which a request waits up to 30 s.",
        # Whose semaphore is taken keeps nobody else waiting, so turns do not matter.
        gateway=Gateway(
            bands=Band(fairness=TenantRoundRobin(), queue=Queue(timeout_s=timeout_s)),
            limit=PerTenant(),
        ),
        tenants=tuple(
            Tenant(name=name, weight=WEIGHTS[name], max_in_flight=cap)
            for name, cap in zip("ABC", caps, strict=True)
        ),
    )


def llm_d_flow_control(
    *,
    version: LlmDVersion = "2026-08",
    priorities: Sequence[int] = (4, 3, -1, -2, -3),
    detector: Literal["utilization", "concurrency"] = "utilization",
    fairness: GlobalFifo | TenantRoundRobin | LeastAttainedService | None = None,
    ordering: Literal["fcfs", "edf", "slo_deadline"] = "fcfs",
    usage_limit: StaticCeilings | PriorityHoldback | SoftReflective | None = None,
    evicts_in_flight: bool = False,
) -> GatewayPreset:
    """Flow control of llm-d's endpoint picker (feature gate `flowControl`), with its defaults.

    A band per priority holds up to 5,000 requests. One request goes when one joins, and one every
    millisecond: the oldest of the highest band in which any waits (`global-strict`), as long as
    saturation is below that band's ceiling; else none, whoever waits further down. Instances are
    scraped every 50 ms; one that has not been heard of for 200 ms counts as saturated.

    `version`: "2026-08", as llm-d-router @ ebab6879, where a request waits for up to 60 s and is
    then answered with 429; "2026-05", as the endpoint picker of the Gateway API inference extension
    before it moved there, where it waits for ever unless given a time, and is then answered with
    503.

    Left out: the bounds in bytes, the time to live while no endpoint is ready, the sweep (an
    expired request held its place for up to 1 s), and bands that come and go with the priorities
    seen, which shifts the ceilings that follow the rank of a band.

    Parameters
    ----------
    version
        Whose defaults.
    priorities
        Bands; the lowest takes what lies below it. Default: those of the default classes.
    detector
        `utilization`: the mean over instances of max(waiting / 5, KV use / 0.8); `concurrency`:
        requests in flight / (100 x instances).
    fairness
        Between the tenants of a band. Default: `GlobalFifo`; `TenantRoundRobin` is llm-d's
        round-robin, `LeastAttainedService` its program-aware policy.
    ordering
        Of a tenant's requests.
    usage_limit
        Ceilings of the bands. Default: 1 for each.
    evicts_in_flight
        Whether sheddable requests give way in the instances, up to two per decision.
    """
    newer = version == "2026-08"
    if not newer and version != "2026-05":
        raise config_error([("version", repr(version), "must be '2026-05' or '2026-08'")])
    queue = Queue(timeout_s=60 if newer else None, ordering=ordering)
    return GatewayPreset(
        name=f"llm-d-flow-control-{version}",
        doc="Bands by priority, closed while the fleet is saturated; one dispatch per attempt.",
        gateway=Gateway(
            bands=[
                Band(
                    priority=priority,
                    max_requests=5000,
                    fairness=fairness or GlobalFifo(),
                    queue=queue,
                )
                for priority in priorities
            ],
            dispatch="one_per_attempt",
            limit=Saturation(detector=detector),
            usage_limit=usage_limit or StaticCeilings(),
            eviction=Eviction(max_victims=2 if evicts_in_flight else 0),
        ),
        tenants=(),
        signals=Scraped(period_s=0.05, stale_after_s=0.2, when_stale="fail_closed"),
    )


def toy_plant() -> InstanceGroup:
    """The two workers behind that gateway, as one instance whose figures its posts tell.

    Requests share it: 7.6 s each when alone, 14.4 s among 64, 75 s among 400; most throughput, 5.9
    requests/s, at about 160. A gateway before it is to count two workers, as the presets do.
    """
    return InstanceGroup(plant=ProcessorSharing())


def l4_fleet(*, workers: int = 2) -> InstanceGroup:
    """The same workers as engines that make steps: L4 with 24 GB, Qwen2.5-7B in BF16, vLLM 0.19.1.

    Latencies are the preset `qwen2.5-7b-l4` of `Linear`: 55 ms for a step (reading 15 GB of weights
    at 300 GB/s takes 51), 0.345 ms per prompt token (44 TFLOP/s), 0.285 ms per request that decodes
    and 0.19 us per token of context (57,344 bytes at that speed). The first three are a fit to
    throughputs that the posts tell, the 2,400 blocks of memory one to times to first token of their
    sweep over budgets; `tools/fit_l4.py` makes both. Limits of tokens and requests are defaults of
    vLLM.

    Memory is what is known least. The GPU has 22 GiB, of which 90 % may be used; that is 5.6 GiB
    more than the weights. 2,400 blocks take 2.1 and leave 3.5 for activations and graphs, which is
    much; with 1.4 for these there would be 4,800. Under `static_caps` the posts saw less than a
    fifth in use, which speaks for the larger number (here 0.41 at the peak; 0.21 with 4,600), but
    with that nobody would wait for half a minute behind a budget of 256.

    What else does not fit: a request that is alone has its first token after 0.23 s, in the posts
    0.19 s even beside others. The step is linear, where weights and prompts could overlap. And of
    a burst of 450 without any caps the last ones wait for twice the 34 s of the posts.

    `workers`: how many, from 1 on.
    """
    return InstanceGroup(
        count=workers,
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        max_model_len=8192,
        block_size_tokens=16,
        num_kv_blocks=2400,
        latency=Linear.preset("qwen2.5-7b-l4"),
    )


ITERATION_14_PRIORITIES = {
    "critical": 10,
    "standard": 5,
    "sheddable": 3,
    "batch": 1,
    "background": 0,
}
"""What classes counted in the queues of BLIS's strategy experiments, up to iteration 14."""


def iteration_14_scheduler(
    *, age_weight_per_s: float = 10, preemption_margin: int | None = None
) -> PriorityFcfs:
    """The instances' queues of those experiments: by class and age.

    A sheddable request passes a fresh critical one after 0.7 s. Their notes say 1e-5 per us, which
    is 10 per s; their code says a tenth of that. Iteration 3 preempted running requests by a margin
    of 5, at most 3 in one step. The classes keep their own priorities for the gateway.
    """
    return PriorityFcfs(
        priority="slo_class",
        class_priorities=[
            ClassPriority(name=name, priority=value)
            for name, value in ITERATION_14_PRIORITIES.items()
        ],
        age_weight_per_s=age_weight_per_s,
        preemption_margin=preemption_margin,
        max_preemptions_per_step=3,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamoPreset:
    """A version of Dynamo: who is busy, how clients are told, and what workers let in."""

    name: str
    doc: str
    admission: BusyThreshold
    busy_monitor: BusyMonitor
    ingress: ControlledDelay | DualLimitGate | EngineRequestLimit | Open

    def apply(self, simulation: Simulation) -> Simulation:
        """`simulation` with this admission, Dynamo's router and this ingress on all instances."""
        return checked_simulation(simulation).replace(
            gateway=simulation.gateway.replace(admission=self.admission),
            router=KvCost(),
            busy_monitor=self.busy_monitor,
            instances=tuple(one.replace(ingress=self.ingress) for one in simulation.instances),
        )


def dynamo_1_2(
    *,
    active_decode_blocks_threshold: float | None = None,
    active_prefill_tokens_threshold: int | None = None,
    active_prefill_tokens_threshold_frac: float | None = None,
    engine_request_limit: int | None = None,
    queue_size: int = 16,
    track_output_blocks: bool = False,
) -> DynamoPreset:
    """Dynamo 1.2: status 503; once one threshold is given, the others are 1, 10,000,000 and 64.

    `active_decode_blocks_threshold` is a share (0 to 1) of a rank's KV blocks,
    `active_prefill_tokens_threshold` a number of tokens, `…_frac` a multiple of
    max_num_batched_tokens. Suggested there: 0.7 and 5,000 (conservative), 0.85 and 10,000, 0.95 and
    20,000 (aggressive). `engine_request_limit` (requests, from 1): most in the engine of a worker,
    with `queue_size` more in its overflow queue; None: no limit.
    """
    thresholds = (
        active_decode_blocks_threshold,
        active_prefill_tokens_threshold,
        active_prefill_tokens_threshold_frac,
    )
    if any(one is not None for one in thresholds):
        filled = zip(thresholds, (1.0, 10_000_000, 64.0), strict=True)
        decode, prefill, frac = (preset if one is None else one for one, preset in filled)
    else:
        decode, prefill, frac = None, None, None
    return DynamoPreset(
        name="dynamo_1_2",
        doc="Rejects with 503 while all workers are busy; KV blocks by the frontend's count.",
        admission=BusyThreshold(overload_status=503),
        busy_monitor=BusyMonitor(
            active_decode_blocks_threshold=decode,
            active_prefill_tokens_threshold=None if prefill is None else int(prefill),
            active_prefill_tokens_threshold_frac=frac,
            decode_latch=False,
            track_output_blocks=track_output_blocks,
        ),
        ingress=_request_limit(engine_request_limit, queue_size),
    )


def dynamo_1_3(
    *,
    active_decode_blocks_threshold: float | None = None,
    active_prefill_tokens_threshold: int | None = None,
    active_prefill_tokens_threshold_frac: float | None = None,
    engine_request_limit: int | None = None,
    queue_size: int = 16,
    track_output_blocks: bool = False,
) -> DynamoPreset:
    """Dynamo 1.3 to 1.5: status 529; each threshold by itself; KV blocks by both counts (latch).

    The arguments are those of `dynamo_1_2`; a threshold that is None is not checked.
    """
    return DynamoPreset(
        name="dynamo_1_3",
        doc="Rejects with 529 while all workers are busy; KV blocks by either count.",
        admission=BusyThreshold(),
        busy_monitor=BusyMonitor(
            active_decode_blocks_threshold=active_decode_blocks_threshold,
            active_prefill_tokens_threshold=active_prefill_tokens_threshold,
            active_prefill_tokens_threshold_frac=active_prefill_tokens_threshold_frac,
            track_output_blocks=track_output_blocks,
        ),
        ingress=_request_limit(engine_request_limit, queue_size),
    )


def dynamo_dev_b(
    *,
    engine_request_limit: int | None = None,
    request_queue_timeout_s: float | None = 5,
    adaptive_lifo: bool = True,
    **frontend: Any,
) -> DynamoPreset:
    """A development snapshot after 1.5: a gate with controlled delay before each worker's engine.

    `engine_request_limit` (requests, from 1): most in the engine; None: 1.5 x max_num_seqs of all
    ranks, rounded up. `request_queue_timeout_s` (s, above 0): longest wait; None: any.
    `frontend`: thresholds and `track_output_blocks` as in `dynamo_1_3`.
    """
    return dataclasses.replace(
        dynamo_1_3(**frontend),
        name="dynamo_dev_b",
        doc="As 1.3; before the engine nobody waits longer than 5 s.",
        ingress=ControlledDelay(
            max_requests=engine_request_limit,
            delay_s=request_queue_timeout_s,
            adaptive_lifo=adaptive_lifo,
        ),
    )


def dynamo_dev_c(
    *,
    request_limit: int = 10_000,
    wait_limit: int = 10_000,
    queue_size: int = 40_000,
    **frontend: Any,
) -> DynamoPreset:
    """A development snapshot after 1.5: a gate that counts requests in prefill by themselves.

    `request_limit` and `wait_limit` (requests, from 1): most in the engine, and most of these
    without a first token; `queue_size` (requests, from 0) more wait before it. `frontend`:
    thresholds and `track_output_blocks` as in `dynamo_1_3`.
    """
    return dataclasses.replace(
        dynamo_1_3(**frontend),
        name="dynamo_dev_c",
        doc="As 1.3; before the engine there are limits for all requests and for those in prefill.",
        ingress=DualLimitGate(
            request_limit=request_limit, wait_limit=wait_limit, queue_size=queue_size
        ),
    )


def _request_limit(max_requests: int | None, queue_size: int) -> EngineRequestLimit | Open:
    if max_requests is None:
        return Open()
    return EngineRequestLimit(max_requests=max_requests, queue_size=queue_size)


def _budgeted(
    name: str,
    doc: str,
    *,
    semantics: Semantics,
    workers: int | None,
    cap_per_worker: int,
    acquire_timeout_s: float,
    queue_max: Sequence[int],
    controller: Aimd,
    cap_min: int,
    cap_max: int,
    cooldown_ticks: int,
    window_s: float,
) -> GatewayPreset:
    return GatewayPreset(
        name=name,
        doc=doc,
        gateway=Gateway(
            bands=Band(
                fairness=DeficitRoundRobin(quantum=1, semantics=semantics),
                queue=Queue(timeout_s=acquire_timeout_s),
            ),
            limit=WorkerBudget(cap_per_worker=cap_per_worker, workers=workers, resize=semantics),
            controller=controller,
            guard=Guard(
                floor=cap_min,
                ceiling=cap_max,
                demand_gate=True,
                demand="in_flight_or_queued",
                cooldown_ticks=cooldown_ticks,
                rounding="floor",
                clamps=semantics,
            ),
            sensor=Sensor(
                source="ttft",
                aggregation="bucketed_quantile",
                quantile=0.99,
                window_s=window_s,
                min_samples=10,
                tick_s=5,
                tick_drift_s=0.001,
                scope="pooled",
                includes_refusals=True,
            ),
        ),
        tenants=tuple(
            Tenant(name=tenant, weight=weight, queue_max=most)
            for (tenant, weight), most in zip(WEIGHTS.items(), queue_max, strict=True)
        ),
    )
