"""vllm-on-eks: its workloads, three states of its gateway, and the workers behind it.

The FastAPI gateway of https://github.com/Nicolas-Richard/vllm-on-eks has one queue per tenant,
deficit round robin by requests over one budget of workers x cap_per_worker streams, and a
controller that moves cap_per_worker so that the p99 of the time to first token, estimated from a
histogram, stays near 2 s. Its blog is https://nicolas-richard.github.io.

Gateways
--------
`semantics="verbatim"` has that code's quirks: credit that accumulates while all queues are empty,
permits committed to a tenant before they are free, a reduced budget that does not bind while
permits are idle and an increased one that is added to it, floor and ceiling that pull an outside
limit onto themselves. `corrected` has none of them; every value stays. The sensor's own behavior
(buckets, late ticks that shorten the window, refusals by workers that count as responses) belongs
to the values. A queue that overflows in a burst at one instant although permits are free is
neither: set the gateway's `drain_latency_s` for that.

Scenarios
---------
Unless a scenario names another source it is a file of `bench/scenarios/` (commits 2dca487 and
0c78403): three tenants A, B and C with weights 2:1:1 in front of two L4 GPUs, Poisson arrivals in
an open loop, prompts of 512 and outputs of 128 tokens. There `vllm bench serve` sends all of a
client's prompts from its start, however long that takes: the duration in the file is only
informative (`bench/run_scenario.sh`). So a client here ends with its number of requests. vLLM also
stretches the gaps so that the last one ends exactly at number / rate; here they stay as drawn, and
the time for n requests has a standard deviation of sqrt(n) / rate.

That gateway has no classes. Here each tenant has one, so that policies can distinguish them: A
pays and is `critical`, C is the `standard` background, B is the free tier and `sheddable`. Each
class has a target of 2 s for the time to first token, the target of that gateway's controller.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

from spillway._core.gateway import (
    Aimd,
    Band,
    DeficitRoundRobin,
    Gateway,
    Guard,
    PerTenant,
    Queue,
    TenantRoundRobin,
    WorkerBudget,
)
from spillway._core.instance import InstanceGroup, KvCache, Linear, ProcessorSharing
from spillway._core.signals import Sensor
from spillway._core.workload import Client, Fixed, SloClass, Synthetic, Tenant
from spillway.presets.preset import Preset, check, is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "CLASS_OF",
    "PRESETS",
    "SLO_CLASSES",
    "TARGET_TTFT_S",
    "TENANTS",
    "WEIGHTS",
    "Semantics",
    "l4",
    "post4",
    "post5",
    "pre",
    "static_caps",
    "toy_plant",
]


Semantics = Literal["verbatim", "corrected"]
"""The published code with its quirks, or without them."""

TARGET_TTFT_S = 2.0
"""The target of the controller, and of every class."""
WEIGHTS = {"A": 2, "B": 1, "C": 1}
"""Weights by tenant."""
CLASS_OF = {"A": "critical", "B": "sheddable", "C": "standard"}
"""SLO classes by tenant."""
TENANTS = tuple(Tenant(name=name, weight=weight) for name, weight in WEIGHTS.items())
"""The tenants with their weights."""
SLO_CLASSES = (
    SloClass(name="critical", priority=4, target_ttft_s=TARGET_TTFT_S),
    SloClass(name="standard", priority=3, target_ttft_s=TARGET_TTFT_S),
    SloClass(name="sheddable", priority=-2, target_ttft_s=TARGET_TTFT_S),
)
"""The classes with their targets."""

_aimd = functools.partial(Aimd, target_s=TARGET_TTFT_S, increase_step=1)

_CODE = "https://github.com/Nicolas-Richard/vllm-on-eks"
_BLOG = "https://nicolas-richard.github.io"

# --- gateways -------------------------------------------------------------------------------------


def pre(*, semantics: Semantics = "verbatim", workers: int | None = 2) -> Preset:
    """The first deployment, whose limit spirals down to its floor.

    The limit starts at 16 streams per worker, rises by 1 and is halved, between 1 and 64, without a
    deadband around the target and without cooldown; queues hold 16 requests for up to 30 s. The
    values are reconstructed from the text of the post, and from comments in tests and scenarios of
    the commit; these only show that the floor was between 1 and 4.

    Parameters
    ----------
    semantics
        `verbatim`: with the quirks of that code; `corrected`: without.
    workers
        Workers that share the budget, >= 0; None: the instances that are ready.
    """
    return _budgeted(
        "pre",
        "First deployment: halves the limit; up to 30 s in queues of 16.",
        f"{_BLOG}, post of 2026-05-04; {_CODE} @ 2dca487",
        semantics=semantics,
        workers=workers,
        cap_per_worker=16,
        acquire_timeout_s=30,
        queue_max=(16, 16, 16),
        controller=_aimd(band=0, decrease="factor", decrease_factor=0.5),
        guard=Guard(floor=1, ceiling=64, cooldown_ticks=0),
        window_s=30,
    )


def post4(*, semantics: Semantics = "verbatim", workers: int | None = 2) -> Preset:
    """Additive increase, subtractive decrease (AISD).

    The limit starts at 64 streams per worker, rises by 1 and falls by 4, between 16 and 128, with a
    deadband of 20% around the target and 3 ticks of cooldown; queues hold 8, 2 and 2 requests for
    up to 30 s (config/tenants.yaml; the timeout was an environment variable). That gateway routed
    by the longest known prefix; set `router` accordingly where it matters.

    Parameters
    ----------
    semantics
        `verbatim`: with the quirks of that code; `corrected`: without.
    workers
        Workers that share the budget, >= 0; None: the instances that are ready.
    """
    return _budgeted(
        "post4",
        "Cuts the limit by 4 (AISD); up to 30 s in queues of 8, 2 and 2.",
        f"{_CODE} @ 2dca487; {_BLOG}, post of 2026-05-04",
        semantics=semantics,
        workers=workers,
        cap_per_worker=64,
        acquire_timeout_s=30,
        queue_max=(8, 2, 2),
        controller=_aimd(band=0.2, decrease="step", decrease_step=4),
        guard=Guard(floor=16, ceiling=128, cooldown_ticks=3),
        window_s=30,
    )


def post5(*, semantics: Semantics = "verbatim", workers: int | None = 2) -> Preset:
    """Short waits, and cuts to 0.75 of the limit.

    The limit starts at 64 streams per worker, rises by 1 and falls to 0.75 of itself, between 32
    and 256, with a deadband of 20% around the target and 3 ticks of cooldown; queues hold 2, 1 and
    1 requests for up to 1 s; the window is 10 s (config/tenants.yaml). That gateway routed round
    robin: `router="round_robin"`.

    Parameters
    ----------
    semantics
        `verbatim`: with the quirks of that code; `corrected`: without.
    workers
        Workers that share the budget, >= 0; None: the ready instances, as with that gateway's
        endpoint watcher, which saw 2 to 4.
    """
    return _budgeted(
        "post5",
        "Cuts the limit to 0.75 of itself; up to 1 s in queues of 2, 1 and 1.",
        f"{_CODE} @ 0c78403; {_BLOG}, post of 2026-05-11",
        semantics=semantics,
        workers=workers,
        cap_per_worker=64,
        acquire_timeout_s=1,
        queue_max=(2, 1, 1),
        controller=_aimd(band=0.2, decrease="factor", decrease_factor=0.75),
        guard=Guard(floor=32, ceiling=256, cooldown_ticks=3),
        window_s=10,
    )


def static_caps(*, caps: Sequence[int] = (64, 8, 64), timeout_s: float = 30) -> Preset:
    """Only a semaphore per tenant.

    The paying tenants A and C have 64 streams each, B has 8; a request without a free stream waits
    for up to 30 s in an unbounded queue.

    Parameters
    ----------
    caps
        Streams of A, B and C, each >= 1.
    timeout_s
        Longest wait in s, > 0.
    """
    check(
        isinstance(caps, list | tuple) and len(caps) == 3 and all(is_whole(cap, 1) for cap in caps),
        "caps",
        caps,
        "must be three whole numbers >= 1, for A, B and C",
    )
    return Preset(
        name="vllm-on-eks-static-caps",
        kind="gateway",
        doc="A semaphore per tenant; a request waits up to 30 s for it.",
        source=f"{_BLOG}, post of 2026-05-02",
        settings={
            # A taken semaphore delays only its own tenant, so the order of tenants does not matter.
            "gateway": Gateway(
                bands=Band(fairness=TenantRoundRobin(), queue=Queue(timeout_s=timeout_s)),
                limit=PerTenant(),
            ),
            "tenants": tuple(
                tenant.replace(max_in_flight=cap) for tenant, cap in zip(TENANTS, caps, strict=True)
            ),
        },
    )


def _budgeted(
    name: str,
    doc: str,
    source: str,
    *,
    semantics: Semantics,
    workers: int | None,
    cap_per_worker: int,
    acquire_timeout_s: float,
    queue_max: Sequence[int],
    controller: Aimd,
    guard: Guard,
    window_s: float,
) -> Preset:
    gateway = Gateway(
        bands=Band(
            fairness=DeficitRoundRobin(quantum=1, semantics=semantics),
            queue=Queue(timeout_s=acquire_timeout_s),
        ),
        limit=WorkerBudget(cap_per_worker=cap_per_worker, workers=workers, resize=semantics),
        controller=controller,
        guard=guard.replace(
            demand_gate=True, demand="in_flight_or_queued", rounding="floor", clamps=semantics
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
    )
    tenants = tuple(
        tenant.replace(queue_max=most) for tenant, most in zip(TENANTS, queue_max, strict=True)
    )
    return Preset(
        name=f"vllm-on-eks-{name}",
        kind="gateway",
        doc=doc,
        source=source,
        settings={"gateway": gateway, "tenants": tenants},
    )


# --- servers --------------------------------------------------------------------------------------


def toy_plant() -> Preset:
    """The two workers as one instance with the latencies of the blog's posts.

    Requests share it: 7.6 s each on an idle fleet, 14.4 s among 64, 75 s among 400; the highest
    throughput, 5.9 requests/s, is at about 160. The gateway in front of it must count two workers,
    as the presets do.
    """
    return Preset(
        name="vllm-on-eks-toy-plant",
        kind="server",
        doc="Two L4 GPUs as one instance with the published latencies.",
        source=f"{_BLOG}, figures of the posts",
        settings={"instances": InstanceGroup(plant=ProcessorSharing())},
    )


def l4(*, workers: int = 2) -> Preset:
    """The two workers as engines that run steps: L4 with 24 GB, Qwen2.5-7B in BF16, vLLM 0.19.1.

    Latencies are the preset `qwen2.5-7b-l4` of `Linear`: 55 ms for a step (reading 15 GB of weights
    at 300 GB/s takes 51), 0.345 ms per prompt token (44 TFLOP/s), 0.285 ms per request that decodes
    and 0.19 us per token of context (57,344 bytes at that speed). The first three are a fit to
    throughputs in the posts, the 2,400 blocks of memory one to times to first token of their sweep
    over budgets; `tools/fit_l4.py` makes both. Limits of tokens and requests are defaults of vLLM;
    the fit assumes that it neither schedules one step ahead nor reserves whole prompts.

    Memory is the least certain value. The GPU has 22 GiB, of which 90% may be used; that is 5.6 GiB
    more than the weights. 2,400 blocks take 2.1 and leave 3.5 for activations and graphs, which is
    a lot; with 1.4 for these there would be 4,800. Under `static_caps` the posts saw less than a
    fifth in use, which suggests the larger number (here 0.41 at the peak; 0.21 with 4,600), but
    with that number no request would wait for half a minute behind a budget of 256.

    Two more figures differ. On an idle fleet the first token takes 0.23 s; the posts report 0.19 s
    even with other requests running. The step time here is linear, although reading weights and
    computing prompts could overlap. In a burst of 450 without any caps the last requests wait for
    twice the 34 s of the posts.

    Parameters
    ----------
    workers
        Instances, >= 1.
    """
    check(is_whole(workers, 1), "workers", workers, "must be a whole number >= 1")
    return Preset(
        name="vllm-on-eks-l4",
        kind="server",
        doc="Two L4 GPUs as engines: Qwen2.5-7B in BF16, vLLM 0.19.1.",
        source=f"fit to {_BLOG}, defaults of vLLM 0.19.1",
        settings={
            "instances": InstanceGroup(
                count=workers,
                max_num_seqs=256,
                max_num_batched_tokens=2048,
                max_model_len=8192,
                block_size_tokens=16,
                num_kv_blocks=2400,
                kv_cache=KvCache(reserve_full_prompt=False),
                latency=Linear.preset("qwen2.5-7b-l4"),
                async_scheduling=False,
            )
        },
    )


# --- scenarios ------------------------------------------------------------------------------------


def _scenario(
    name: str,
    duration_s: float,
    doc: str,
    *clients: Client,
    source: str = f"{_CODE}, bench/scenarios @ 2dca487 and 0c78403",
) -> Callable[[], Preset]:
    def make() -> Preset:
        return Preset(
            name=name,
            kind="scenario",
            doc=doc,
            source=source,
            settings={
                "workload": Synthetic(clients=clients),
                "tenants": TENANTS,
                "slo_classes": SLO_CLASSES,
            },
            duration_s=duration_s,
        )

    return make


def _client(
    tenant: str,
    requests_per_s: float,
    start_s: float,
    num_requests: int | None = None,
    *,
    duration_s: float | None = None,
    input_tokens: int = 512,
    name: str = "",
) -> Client:
    return Client(
        name=name or tenant,
        tenant=tenant,
        slo_class=CLASS_OF[tenant],
        requests_per_s=requests_per_s,
        start_s=start_s,
        num_requests=num_requests,
        duration_s=duration_s,
        input_tokens=Fixed(tokens=input_tokens),
        output_tokens=Fixed(tokens=128),
    )


def _phases(
    requests_per_s: Sequence[float], duration_s: float, input_tokens: int
) -> tuple[Client, ...]:
    """Tenant A at a sequence of rates; each phase sends rate x length prompts."""
    starts_s = (0, 30, 210, 240, 540, 570, 750, 780, 810)
    ends_s = (*starts_s[1:], duration_s)
    return tuple(
        _client(
            "A",
            rate,
            start_s,
            round(rate * (end_s - start_s)),
            input_tokens=input_tokens,
            name=f"A from {start_s} s",
        )
        for rate, start_s, end_s in zip(requests_per_s, starts_s, ends_s, strict=True)
    )


PRESETS: tuple[Callable[..., Preset], ...] = (
    _scenario(
        "baseline",
        60,
        "A and C, far below the capacity of the fleet.",
        _client("A", 2, 0, 120),
        _client("C", 1, 0, 60),
    ),
    _scenario(
        "noisy-neighbor",
        360,
        "B bursts for a minute between two steady tenants.",
        _client("A", 5, 0, 1800),
        _client("B", 30, 120, 1800),
        _client("C", 3, 0, 1080),
    ),
    _scenario(
        "noisy-neighbor-small",
        300,
        "A shorter burst of B between two tenants with low rates.",
        _client("A", 1.5, 0, 450),
        _client("B", 30, 90, 450),
        _client("C", 0.5, 0, 150),
    ),
    _scenario(
        "work-conservation",
        180,
        "B has the fleet to itself, then shares it with A for a minute.",
        _client("B", 7.5, 0, 1350),
        _client("A", 7.5, 60, 450),
    ),
    _scenario(
        "work-conservation-priority",
        240,
        "B, then B and A with twice its weight for a minute, then B. The sweeps over budgets in "
        "the blog's post of 2026-05-04 have this shape.",
        _client("B", 6, 0, 1440),
        _client("A", 4, 60, 240),
    ),
    _scenario(
        "aimd-baseline",
        180,
        "A low rate, at which the controller is expected to hold.",
        _client("A", 0.5, 0, 90),
    ),
    _scenario(
        "aimd-sustained-pressure",
        300,
        "B overloads the fleet for 90 s while A stays at a low rate. The limit must fall and climb "
        "back.",
        _client("A", 0.5, 0, 150),
        _client("B", 8, 60, 720),
    ),
    _scenario(
        "sustained-15min",
        900,
        "Two steady tenants. The file gives C 1,800 prompts at 4 requests/s and states 900 s: C "
        "stops after 450 s.",
        _client("A", 5, 0, 4500),
        _client("C", 4, 0, 1800),
    ),
    _scenario(
        "tenant-a-20rps",
        900,
        "One tenant with several times the capacity of two L4 GPUs.",
        _client("A", 20, 0, 18_000),
    ),
    _scenario(
        "autoscale-demo",
        1410,
        "One tenant's rate climbs in steps, peaks and falls again.",
        *_phases((2, 6, 9, 12, 14, 16, 11, 8, 6), 1410, 512),
    ),
    _scenario(
        "autoscale-demo-128",
        1410,
        "The same with prompts of 128 tokens and about twice the rates.",
        *_phases((5, 12, 18, 24, 28, 32, 22, 16, 12), 1410, 128),
    ),
    _scenario(
        "static-caps",
        120,
        "B bursts between A and C. The post has caps per tenant of 64, 8 and 64. It states a "
        "burst of 30 s but counts 450 requests, that is 15 s, and does not state when the burst "
        "began: this scenario has the 450 requests, after a third as in noisy-neighbor.",
        _client("A", 2, 0, 240),
        _client("B", 30, 40, 450),
        _client("C", 1, 0, 120),
        source=f"{_BLOG}, post of 2026-05-02",
    ),
    _scenario(
        "toy-plant",
        300,
        "B from the start, A from 60 s on, until 300 s. Under this load that gateway's scheduler "
        "and controller were run on a virtual clock in front of a plant whose service time was "
        "interpolated from the blog's figures.",
        _client("B", 6, 0, duration_s=300),
        _client("A", 4, 60, duration_s=240),
        source=f"{_CODE}, its scheduler and controller on a virtual clock",
    ),
    pre,
    post4,
    post5,
    static_caps,
    toy_plant,
    l4,
)
"""The functions of the presets."""
