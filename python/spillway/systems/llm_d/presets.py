"""llm-d: the flow control of its endpoint picker, and its prefill and decode pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from spillway._core.gateway import (
    Band,
    Eviction,
    Gateway,
    GlobalFifo,
    LeastAttainedService,
    PriorityHoldback,
    Queue,
    Saturation,
    SoftReflective,
    StaticCeilings,
    TenantRoundRobin,
)
from spillway._core.router import (
    AlwaysRemote,
    Best,
    Disaggregation,
    PrefixAffinity,
    QueueDepth,
    UncachedTokens,
    Weighted,
)
from spillway._core.signals import PrefixIndex, Scraped
from spillway.presets.preset import Preset, check, is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["PRESETS", "Version", "flow_control", "prefill_decode"]


Version = Literal["2026-05", "2026-08"]
"""Releases of the flow control, by month."""


def flow_control(
    *,
    version: Version = "2026-08",
    priorities: Sequence[int] = (4, 3, -1, -2, -3),
    detector: Literal["utilization", "concurrency"] = "utilization",
    fairness: GlobalFifo | TenantRoundRobin | LeastAttainedService | None = None,
    ordering: Literal["fcfs", "edf", "slo_deadline"] = "fcfs",
    usage_limit: StaticCeilings | PriorityHoldback | SoftReflective | None = None,
    evicts_in_flight: bool = False,
) -> Preset:
    """Flow control of llm-d's endpoint picker (feature gate `flowControl`), with its defaults.

    A band per priority holds up to 5,000 requests. One request is dispatched whenever one joins,
    and one every millisecond: the oldest of the highest band with a waiting request
    (`global-strict`), if saturation is below that band's ceiling; otherwise none is dispatched from
    any band. Instances are scraped every 50 ms; an instance whose metrics are older than 200 ms
    counts as saturated. For each instance the router remembers 31,250 blocks of 16 tokens.

    Not modeled: the bounds in bytes, the time to live while no endpoint is ready, and bands that
    are created and removed with the priorities of the requests, which shifts the ceilings that
    depend on the rank of a band.

    Parameters
    ----------
    version
        "2026-08": llm-d-router @ ebab6879, in which a request waits for up to 60 s and is then
        answered with 429. Expired requests are looked for once a second and keep their places until
        then; cycles go on while no request waits; the strict policy compares the heads of tenants'
        queues by their ordering; the service of the program-aware policy decays all the time and
        counts in all bands; there is always a band 0. "2026-05": the endpoint picker of the Gateway
        API inference extension, before it became part of llm-d-router, in which a request without a
        timeout of its own waits indefinitely; a timeout is answered with 503.
    priorities
        Priorities of the bands; the lowest band also takes all lower priorities. Default: those of
        the default classes. "2026-08" adds band 0 if it is missing.
    detector
        `utilization`: the mean over instances of max(waiting / 5, KV use / 0.8); `concurrency`:
        requests in flight / (100 x instances).
    fairness
        The fairness policy between the tenants of a band. Default: `GlobalFifo`; `TenantRoundRobin`
        is llm-d's round-robin, `LeastAttainedService` its program-aware policy.
    ordering
        The order of a tenant's requests.
    usage_limit
        Ceilings of the bands. Default: 1 for each.
    evicts_in_flight
        Whether sheddable requests are evicted from the instances, up to two per decision.
    """
    newer = version == "2026-08"
    check(newer or version == "2026-05", "version", version, "must be '2026-05' or '2026-08'")
    check(
        isinstance(priorities, list | tuple),
        "priorities",
        priorities,
        "must be a list of whole numbers",
    )
    check(
        isinstance(evicts_in_flight, bool),
        "evicts_in_flight",
        evicts_in_flight,
        "must be true or false",
    )
    queue = Queue(timeout_s=60 if newer else None, ordering=ordering)
    bands = [*priorities, *([0] if newer and 0 not in priorities else [])]
    return Preset(
        name="llm-d-flow-control",
        kind="gateway",
        doc="Bands by priority, closed while the fleet is saturated.",
        source=(
            "llm-d-router @ ebab6879 (version 2026-08); endpoint picker of the Gateway API "
            "inference extension (version 2026-05)"
        ),
        settings={
            "gateway": Gateway(
                bands=[
                    Band(
                        priority=priority,
                        max_requests=5000,
                        fairness=_of_version(fairness, newer=newer),
                        queue=queue,
                    )
                    for priority in bands
                ],
                dispatch="one_per_cycle" if newer else "one_per_attempt",
                expiry_period_s=1 if newer else 0,
                limit=Saturation(detector=detector),
                usage_limit=StaticCeilings() if usage_limit is None else usage_limit,
                eviction=Eviction(max_victims=2 if evicts_in_flight else 0),
            ),
            "signals": Scraped(period_s=0.05, stale_after_s=0.2, when_stale="fail_closed"),
            "prefix_index": PrefixIndex(capacity_blocks=31_250),
        },
    )


def _of_version(given: Any, *, newer: bool) -> Any:
    """A fairness policy with the rules of a version."""
    policy = Band(fairness=GlobalFifo() if given is None else given).fairness
    if isinstance(policy, GlobalFifo):
        return policy.replace(order="ordering" if newer else "entry")
    if isinstance(policy, LeastAttainedService):
        return policy.replace(
            decay="always" if newer else "idle", scope="gateway" if newer else "band"
        )
    return policy


def prefill_decode(*, min_uncached_tokens: int | None = 16, min_prompt_tokens: int = 0) -> Preset:
    """Two pools behind llm-d's endpoint picker, as its sample configuration routes to them.

    The decode instance is chosen first, then the decider says whether a prefill instance is to
    compute the prompt. Both are chosen by twice the cached share of the prompt plus the depth of
    the queue, from metrics that are scraped every 50 ms; the router remembers 31,250 blocks of 16
    tokens per instance. The instances' roles are not set: give groups `role: prefill` and `role:
    decode`. The preset `llm-d-flow-control` goes with it.

    Parameters
    ----------
    min_uncached_tokens
        The prompt is computed by a prefill instance if at least this many of its tokens are not
        cached in the decode instance (`nonCachedTokens` of `prefix-based-pd-decider`), >= 0; 0:
        never. None: always (`always-disagg-pd-decider`).
    min_prompt_tokens
        And if it has at least this many tokens (`promptTokens`), >= 0.
    """
    at_least = "must be a whole number >= 0"
    check(is_whole(min_prompt_tokens, 0), "min_prompt_tokens", min_prompt_tokens, at_least)
    check(
        min_uncached_tokens is None or is_whole(min_uncached_tokens, 0),
        "min_uncached_tokens",
        min_uncached_tokens,
        f"{at_least}, or None",
    )
    decider: AlwaysRemote | UncachedTokens = AlwaysRemote()
    if min_uncached_tokens is not None:
        decider = UncachedTokens(
            min_uncached_tokens=min_uncached_tokens, min_prompt_tokens=min_prompt_tokens
        )
    return Preset(
        name="llm-d-prefill-decode",
        kind="gateway",
        doc="Prefill and decode pools, the decode instance first.",
        source="llm-d-router @ ebab6879, deploy/config/pd-epp-config.yaml",
        settings={
            "router": Weighted(
                scorers=[PrefixAffinity(weight=2), QueueDepth(weight=1)],
                picker=Best(ties="random"),
            ),
            "disaggregation": Disaggregation(order="decode_first", decider=decider),
            "signals": Scraped(period_s=0.05, stale_after_s=0.2, when_stale="fail_closed"),
            "prefix_index": PrefixIndex(capacity_blocks=31_250),
        },
    )


PRESETS: tuple[Callable[..., Preset], ...] = (flow_control, prefill_decode)
"""The functions of the presets."""
