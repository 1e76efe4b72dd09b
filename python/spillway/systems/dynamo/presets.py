"""NVIDIA Dynamo, by version: its request rejection, and the queues before its workers' engines.

As in Dynamo, both are off unless thresholds or limits are given; in 1.2 the rejection has
thresholds by default. The presets also set Dynamo's router, with the queue in it (in 1.2 and 1.3,
later only with a threshold of its own), and leave the rest of the gateway unchanged. Defaults are
those of the parsers in the wheels; the queue's is 4 in 1.2 and 16 in 1.3 (ai-dynamo/dynamo#9547).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from spillway._core.gateway import Band, BusyThreshold, PolicyClass, PolicyClasses, PrefillBusy
from spillway._core.instance import ControlledDelay, DualLimitGate, EngineRequestLimit, Open
from spillway._core.router import AlwaysRemote, Conditional, Disaggregation, KvCost
from spillway._core.signals import BusyMonitor
from spillway.presets.preset import Preset, check, is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["PRESETS", "dev_b", "dev_c", "prefill_decode", "v1_2", "v1_3", "v1_4", "v1_5", "v1_6"]

_EITHER_COUNT = "Rejects with 529 while all workers are busy. KV blocks are those of either count."
_DOC_1_4 = """Dynamo {version}: like 1.3, with thresholds that do not depend on each other.

    A threshold that is None is not checked. There is no queue in the router unless its threshold is
    given.

    Parameters
    ----------
    active_decode_blocks_threshold
        Share of a rank's KV blocks, 0 to 1.
    active_prefill_tokens_threshold
        Tokens in prefill, >= 0.
    active_prefill_tokens_threshold_frac
        The same as a multiple of max_num_batched_tokens, >= 0.
    engine_request_limit
        Most requests in the engine of a worker, >= 1; None: no limit.
    queue_size
        Requests that wait before the engine beyond this limit, >= 1.
    track_output_blocks
        Whether the frontend's count of KV blocks includes generated tokens.
    router_queue_threshold
        Multiple of max_num_batched_tokens: while every worker has more prompt tokens to compute,
        requests wait in the router, >= 0; None: none waits.
    router_queue_policy
        Order of the requests that wait: fcfs, lcfs or wspt.
    """


def v1_2(
    *,
    active_decode_blocks_threshold: float | None = 1,
    active_prefill_tokens_threshold: int | None = 10_000_000,
    active_prefill_tokens_threshold_frac: float | None = 10,
    engine_request_limit: int | None = None,
    queue_size: int = 16,
    track_output_blocks: bool = False,
    router_queue_threshold: float = 4,
    router_queue_policy: Literal["fcfs", "lcfs", "wspt"] = "fcfs",
) -> Preset:
    """Dynamo 1.2: answers with status 503 while all workers are busy.

    A worker is busy if it exceeds any threshold; one that is None is not checked. Dynamo suggests,
    as a share of blocks and in tokens: 0.7 and 5,000 (conservative), 0.85 and 10,000, 0.95 and
    20,000 (aggressive). The queue in the router cannot be switched off.

    Parameters
    ----------
    active_decode_blocks_threshold
        Share of a rank's KV blocks, 0 to 1.
    active_prefill_tokens_threshold
        Tokens in prefill, >= 0.
    active_prefill_tokens_threshold_frac
        The same as a multiple of max_num_batched_tokens, >= 0.
    engine_request_limit
        Most requests in the engine of a worker, >= 1; None: no limit.
    queue_size
        Requests that wait before the engine beyond this limit, >= 1.
    track_output_blocks
        Whether the frontend's count of KV blocks includes generated tokens.
    router_queue_threshold
        Multiple of max_num_batched_tokens: while every worker has more prompt tokens to compute,
        requests wait in the router, >= 0.
    router_queue_policy
        Order of the requests that wait: fcfs, lcfs or wspt.
    """
    check(
        router_queue_threshold is not None,
        "router_queue_threshold",
        router_queue_threshold,
        "must be a number >= 0: the router of 1.2 always queues",
    )
    return _preset(
        "1.2",
        "Rejects with 503 while all workers are busy. KV blocks are those of the frontend's count.",
        "NVIDIA Dynamo 1.2.1, the parser in its wheel",
        _monitor(
            active_decode_blocks_threshold,
            active_prefill_tokens_threshold,
            active_prefill_tokens_threshold_frac,
            tracks=track_output_blocks,
        ).replace(decode_latch=False),
        overload_status=503,
        ingress=_request_limit(engine_request_limit, queue_size),
        queue=_queue(router_queue_threshold, router_queue_policy),
    )


def v1_3(
    *,
    active_decode_blocks_threshold: float | None = None,
    active_prefill_tokens_threshold: int | None = None,
    active_prefill_tokens_threshold_frac: float | None = None,
    engine_request_limit: int | None = None,
    queue_size: int = 16,
    track_output_blocks: bool = False,
    router_queue_threshold: float | None = 16,
    router_queue_policy: Literal["fcfs", "lcfs", "wspt"] = "fcfs",
) -> Preset:
    """Dynamo 1.3: status 529; KV blocks by both counts (latch); no rejection by default.

    If one threshold is given, the others default to 1, 10,000,000 and 64.

    Parameters
    ----------
    active_decode_blocks_threshold
        Share of a rank's KV blocks, 0 to 1.
    active_prefill_tokens_threshold
        Tokens in prefill, >= 0.
    active_prefill_tokens_threshold_frac
        The same as a multiple of max_num_batched_tokens, >= 0.
    engine_request_limit
        Most requests in the engine of a worker, >= 1; None: no limit.
    queue_size
        Requests that wait before the engine beyond this limit, >= 1.
    track_output_blocks
        Whether the frontend's count of KV blocks includes generated tokens.
    router_queue_threshold
        Multiple of max_num_batched_tokens: while every worker has more prompt tokens to compute,
        requests wait in the router, >= 0; None: none waits.
    router_queue_policy
        Order of the requests that wait: fcfs, lcfs or wspt.
    """
    return _preset(
        "1.3",
        _EITHER_COUNT,
        "NVIDIA Dynamo 1.3.1, the parser in its wheel",
        _monitor(
            *filled(
                active_decode_blocks_threshold,
                active_prefill_tokens_threshold,
                active_prefill_tokens_threshold_frac,
            ),
            tracks=track_output_blocks,
        ),
        ingress=_request_limit(engine_request_limit, queue_size),
        queue=_queue(router_queue_threshold, router_queue_policy),
    )


def prefill_unit(version: str) -> Literal["blocks", "tokens"]:
    """In what the router of a version counts prompts that are to be computed."""
    return "tokens" if version == "1.6" else "blocks"


def filled(
    decode: float | None, prefill: int | None, frac: float | None
) -> tuple[float | None, int | None, float | None]:
    """The thresholds of 1.3, which fills in the others if one is given."""
    if decode is prefill is frac is None:
        return None, None, None
    return (
        1 if decode is None else decode,
        10_000_000 if prefill is None else prefill,
        64 if frac is None else frac,
    )


def _from_1_4(version: str) -> Callable[..., Preset]:
    """The function of a version from 1.4 on; they differ in name alone."""

    def make(
        *,
        active_decode_blocks_threshold: float | None = None,
        active_prefill_tokens_threshold: int | None = None,
        active_prefill_tokens_threshold_frac: float | None = None,
        engine_request_limit: int | None = None,
        queue_size: int = 16,
        track_output_blocks: bool = False,
        router_queue_threshold: float | None = None,
        router_queue_policy: Literal["fcfs", "lcfs", "wspt"] = "fcfs",
    ) -> Preset:
        return _preset(
            version,
            _EITHER_COUNT,
            f"NVIDIA Dynamo {version}",
            _monitor(
                active_decode_blocks_threshold,
                active_prefill_tokens_threshold,
                active_prefill_tokens_threshold_frac,
                tracks=track_output_blocks,
            ),
            ingress=_request_limit(engine_request_limit, queue_size),
            queue=_queue(router_queue_threshold, router_queue_policy),
        )

    make.__name__ = make.__qualname__ = f"v{version.replace('.', '_')}"
    make.__doc__ = _DOC_1_4.format(version=version)
    return make


v1_4, v1_5, v1_6 = map(_from_1_4, ("1.4", "1.5", "1.6"))


def dev_b(
    *,
    engine_request_limit: int | None = None,
    request_queue_timeout_s: float | None = 5,
    adaptive_lifo: bool = True,
    active_decode_blocks_threshold: float | None = None,
    active_prefill_tokens_threshold: int | None = None,
    active_prefill_tokens_threshold_frac: float | None = None,
    track_output_blocks: bool = False,
) -> Preset:
    """A development snapshot after 1.5: a gate with controlled delay before each worker's engine.

    A threshold that is None is not checked.

    Parameters
    ----------
    engine_request_limit
        Maximum number of requests in the engine, >= 1; None: 1.5 x max_num_seqs of all ranks,
        rounded up.
    request_queue_timeout_s
        Longest wait before the engine in s, > 0; None: no limit.
    adaptive_lifo
        Whether the newest request enters first after one has waited too long; only one does, then
        the oldest again.
    active_decode_blocks_threshold
        Share of a rank's KV blocks, 0 to 1.
    active_prefill_tokens_threshold
        Tokens in prefill, >= 0.
    active_prefill_tokens_threshold_frac
        The same as a multiple of max_num_batched_tokens, >= 0.
    track_output_blocks
        Whether the frontend's count of KV blocks includes generated tokens.
    """
    return _preset(
        "dev-b",
        "Like 1.3, but no request waits longer than 5 s before the engine.",
        _AFTER_1_5,
        _monitor(
            active_decode_blocks_threshold,
            active_prefill_tokens_threshold,
            active_prefill_tokens_threshold_frac,
            tracks=track_output_blocks,
        ),
        ingress=ControlledDelay(
            max_requests=engine_request_limit,
            delay_s=request_queue_timeout_s,
            adaptive_lifo=adaptive_lifo,
        ),
    )


def dev_c(
    *,
    request_limit: int = 10_000,
    wait_limit: int = 10_000,
    queue_size: int = 40_000,
    active_decode_blocks_threshold: float | None = None,
    active_prefill_tokens_threshold: int | None = None,
    active_prefill_tokens_threshold_frac: float | None = None,
    track_output_blocks: bool = False,
) -> Preset:
    """A development snapshot after 1.5: a gate with a separate limit for requests in prefill.

    A threshold that is None is not checked.

    Parameters
    ----------
    request_limit
        Maximum number of requests in the engine, >= 1.
    wait_limit
        Maximum number of these without a first token, >= 1.
    queue_size
        Requests that wait before the engine, >= 0.
    active_decode_blocks_threshold
        Share of a rank's KV blocks, 0 to 1.
    active_prefill_tokens_threshold
        Tokens in prefill, >= 0.
    active_prefill_tokens_threshold_frac
        The same as a multiple of max_num_batched_tokens, >= 0.
    track_output_blocks
        Whether the frontend's count of KV blocks includes generated tokens.
    """
    return _preset(
        "dev-c",
        "Like 1.3, with limits for requests and for prefills.",
        _AFTER_1_5,
        _monitor(
            active_decode_blocks_threshold,
            active_prefill_tokens_threshold,
            active_prefill_tokens_threshold_frac,
            tracks=track_output_blocks,
        ),
        ingress=DualLimitGate(
            request_limit=request_limit, wait_limit=wait_limit, queue_size=queue_size
        ),
    )


def prefill_decode(
    *,
    policy: Literal["isl_bounding", "prefill_load", "isl_or_load"] | None = None,
    eff_isl_threshold: int = 2048,
    eff_isl_ratio_threshold: float = 0.7,
    prefill_busy_threshold: float | None = None,
    decode_busy_threshold: float | None = None,
    bootstrap: bool = False,
) -> Preset:
    """Two pools behind Dynamo's frontend, the prefill worker first; over one of its versions.

    Without a policy every prompt is computed by a prefill worker. The workers' roles are not set:
    give groups `role: prefill` and `role: decode`. Thresholds of the busy workers, and what is
    answered while all are busy, come from a version's preset: `presets: [dynamo-1.6,
    dynamo-prefill-decode]`.

    Parameters
    ----------
    policy
        Of conditional disaggregation, which computes some prompts in the decode pool; None: off.
    eff_isl_threshold
        With a policy: tokens of a prompt that are not cached in the decode worker below which it
        stays there, >= 0.
    eff_isl_ratio_threshold
        And below this share of the prompt, 0 to 1.
    prefill_busy_threshold
        Multiple of max_num_batched_tokens above which a prefill worker is busy, >= 0. The policies
        by load require it.
    decode_busy_threshold
        Share of a decode worker's KV blocks above which no prompt is computed there, >= 0; None:
        none.
    bootstrap
        Whether the decode worker is chosen and takes its blocks before the prefill runs, as with
        SGLang, TensorRT-LLM and pushed transfers; otherwise after the prefill, as with vLLM's
        connector, which pulls.
    """
    check(isinstance(bootstrap, bool), "bootstrap", bootstrap, "must be true or false")
    decider: AlwaysRemote | Conditional = AlwaysRemote()
    if policy is not None:
        decider = Conditional(
            rule=policy,
            uncached_tokens_threshold=eff_isl_threshold,
            uncached_share_threshold=eff_isl_ratio_threshold,
            prefill_busy_threshold=prefill_busy_threshold,
            decode_busy_threshold=decode_busy_threshold,
        )
    return Preset(
        name="dynamo-prefill-decode",
        kind="gateway",
        doc="Prefill and decode pools, the prefill worker first.",
        source=(
            "ai-dynamo/dynamo, lib/llm/src/kv_router/prefill_router @ 07a6c9c, "
            "lib/kv-router/src/conditional_disagg.rs @ 088ca50"
        ),
        settings={
            "disaggregation": Disaggregation(
                order="prefill_first",
                handoff="at_dispatch" if bootstrap else "after_prefill",
                decider=decider,
            )
        },
    )


PRESETS: tuple[Callable[..., Preset], ...] = (
    *(v1_2, v1_3, v1_4, v1_5, v1_6, dev_b, dev_c),
    prefill_decode,
)
"""The functions of the presets."""
_AFTER_1_5 = "NVIDIA Dynamo, development snapshot after 1.5"


def _preset(
    version: str,
    doc: str,
    source: str,
    busy_monitor: BusyMonitor,
    *,
    ingress: ControlledDelay | DualLimitGate | EngineRequestLimit | Open,
    overload_status: int = 529,
    queue: Mapping[str, Any] | None = None,
) -> Preset:
    return Preset(
        name=f"dynamo-{version}",
        kind="gateway",
        doc=doc,
        source=source,
        settings={
            "gateway.admission": BusyThreshold(overload_status=overload_status),
            "router": KvCost(prefill_unit=prefill_unit(version)),
            "busy_monitor": busy_monitor,
            "instances[].ingress": ingress,
            **(queue or {}),
        },
    )


def _monitor(
    decode: float | None, prefill: int | None, frac: float | None, *, tracks: bool
) -> BusyMonitor:
    return BusyMonitor(
        active_decode_blocks_threshold=decode,
        active_prefill_tokens_threshold=prefill,
        active_prefill_tokens_threshold_frac=frac,
        track_output_blocks=tracks,
    )


def _request_limit(max_requests: int | None, queue_size: int) -> EngineRequestLimit | Open:
    check(is_whole(queue_size, 1), "queue_size", queue_size, "must be a whole number >= 1")
    if max_requests is None:
        return Open()
    return EngineRequestLimit(max_requests=max_requests, queue_size=queue_size)


def _queue(threshold: float | None, order: Literal["fcfs", "lcfs", "wspt"]) -> dict[str, Any]:
    """The queue in the router; nothing without a threshold."""
    check(
        order in {"fcfs", "lcfs", "wspt"},
        "router_queue_policy",
        order,
        "must be 'fcfs', 'lcfs' or 'wspt'",
    )
    if threshold is None:
        return {}
    check(
        isinstance(threshold, int | float) and threshold >= 0,
        "router_queue_threshold",
        threshold,
        "must be a number >= 0",
    )
    single = PolicyClasses(classes=[PolicyClass(order=order)])
    return {
        "gateway.bands": [Band(fairness=single)],
        "gateway.limit": [PrefillBusy(threshold=threshold)],
    }
