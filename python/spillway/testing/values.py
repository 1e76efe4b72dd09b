"""Inputs and outputs of policies: requests, signals, measurements, decisions."""

from __future__ import annotations

from dataclasses import dataclass, field

from spillway.config.classes import config_error
from spillway.testing._arguments import LONGEST_S, check_real, check_text, check_whole

_MOST_TOKENS = 100_000_000


@dataclass(frozen=True, eq=False)
class Request:
    """A request as a policy sees it.

    Each object is a separate request, so two objects are never equal. If a policy decides on an
    object again, that is a new request with the same values.

    Attributes
    ----------
    input_tokens
        Tokens of the prompt, 1 to 1e8.
    output_tokens
        Tokens of the output, 0 to 1e8. Policies see them only after the request has completed, or
        as the simulation's `length_prediction` predicts them: exactly, unless that is set.
    tenant, slo_class
        Names of a tenant and of an SLO class of the surroundings.
    arrival_s
        When it reached the gateway, in seconds; None: at the first call with it.
    prefix_group, prefix_tokens
        The prompt begins with `prefix_tokens` tokens that all requests of the group share; None: no
        shared prefix.
    adapter
        The LoRA adapter that it asks for; None: none.
    max_tokens
        Maximum of its output that its client states; 0: none, else at least `output_tokens`.
    """

    input_tokens: int = 100
    output_tokens: int = 100
    tenant: str = "default"
    slo_class: str = "standard"
    arrival_s: float | None = None
    prefix_group: str | None = None
    prefix_tokens: int = 0
    adapter: str | None = None
    max_tokens: int = 0

    def __post_init__(self) -> None:
        """Raises ConfigError for invalid values."""
        check_whole("input_tokens", self.input_tokens, 1, _MOST_TOKENS)
        check_whole("output_tokens", self.output_tokens, 0, _MOST_TOKENS)
        if self.max_tokens != 0:
            check_whole("max_tokens", self.max_tokens, max(self.output_tokens, 1), _MOST_TOKENS)
        check_text("tenant", self.tenant)
        check_text("slo_class", self.slo_class)
        if self.arrival_s is not None:
            check_real("arrival_s", self.arrival_s, 0, LONGEST_S)
        if self.prefix_group is not None:
            check_text("prefix_group", self.prefix_group)
            check_whole("prefix_tokens", self.prefix_tokens, 1, self.input_tokens)
        elif self.prefix_tokens != 0:
            allowed = "must be 0 without a prefix_group"
            raise config_error([("prefix_tokens", repr(self.prefix_tokens), allowed)])
        if self.adapter is not None:
            check_text("adapter", self.adapter)


@dataclass(frozen=True)
class InstanceSignals:
    """The signals of an instance as a policy sees them; by default of an idle one.

    `instances` in the surroundings sets its capacity (KV blocks, sequences, tokens per step).

    Attributes
    ----------
    waiting, running
        Requests in the engine's queue and in its batch, as reported by the instance.
    kv_utilization
        Share of KV blocks in use, 0 to 1, as reported by the instance.
    free_blocks
        Free KV blocks, as reported by the instance; None: those that are not in use.
    prefill_tokens
        Prompt tokens of waiting and running requests that are not computed yet, as reported by the
        instance.
    prefix_hits, prefix_lookups
        KV blocks found in the cache and looked up since the start, as reported by the instance.
    measured_s
        When the instance measured all this, in seconds; None: at the instant of the decision.
    in_flight
        Unfinished requests that the gateway has sent to the instance.
    is_busy
        Whether the gateway considers the worker busy.
    cached_blocks
        Leading KV blocks of the request's prompt in the instance's cache.
    exact_first_token_s
        Instant of the request's first token if the instance got it, in seconds, for policies with
        perfect predictions; None: the instance would refuse the request.
    is_stale
        Whether its metrics are stale. With `signals.stale_after_s` in the surroundings, they also
        are that long after `measured_s`.
    sent_blocks
        Leading blocks of the request's prompt that the gateway has sent to the instance before;
        None: those of the requests that were sent there.
    in_flight_tokens
        Prompt tokens of the unfinished requests that the gateway has sent there, without those that
        it had sent there before.
    active_adapters, waiting_adapters, max_adapters
        The LoRA adapters that are active and that wait, and how many can be active.
    predicted_ttft_ms, ttft_headroom_ms, tpot_headroom_ms
        The predicted time to the request's first token, and the targets of its class minus the
        predicted times to the first and per output token; None: nothing is predicted.
    host_blocks, disk_blocks
        Blocks of the request's prompt that the instance holds in the memory of its host and on
        disk, without those in its KV memory (Dynamo's tiers of KV memory); None: it has no such
        tier, like all simulated instances.
    """

    waiting: int = 0
    running: int = 0
    kv_utilization: float = 0.0
    free_blocks: int | None = None
    prefill_tokens: int = 0
    prefix_hits: int = 0
    prefix_lookups: int = 0
    measured_s: float | None = None
    in_flight: int = 0
    is_busy: bool = False
    cached_blocks: int = 0
    exact_first_token_s: float | None = None
    is_stale: bool = False
    sent_blocks: int | None = None
    in_flight_tokens: int = 0
    active_adapters: tuple[str, ...] = ()
    waiting_adapters: tuple[str, ...] = ()
    max_adapters: int = 0
    predicted_ttft_ms: float | None = None
    ttft_headroom_ms: float = 0.0
    tpot_headroom_ms: float = 0.0
    host_blocks: int | None = None
    disk_blocks: int | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for invalid values."""
        check_whole("waiting", self.waiting, 0)
        check_whole("running", self.running, 0)
        check_real("kv_utilization", self.kv_utilization, 0, 1)
        if self.free_blocks is not None:
            check_whole("free_blocks", self.free_blocks, 0, 10**12)
        check_whole("prefill_tokens", self.prefill_tokens, 0, 10**12)
        check_whole("prefix_hits", self.prefix_hits, 0, 10**15)
        check_whole("prefix_lookups", self.prefix_lookups, 0, 10**15)
        if self.measured_s is not None:
            check_real("measured_s", self.measured_s, 0, LONGEST_S)
        check_whole("in_flight", self.in_flight, 0)
        if not isinstance(self.is_busy, bool):
            raise config_error([("is_busy", repr(self.is_busy), "must be True or False")])
        check_whole("cached_blocks", self.cached_blocks, 0, 10**12)
        if self.exact_first_token_s is not None:
            check_real("exact_first_token_s", self.exact_first_token_s, 0, LONGEST_S)
        if not isinstance(self.is_stale, bool):
            raise config_error([("is_stale", repr(self.is_stale), "must be True or False")])
        if self.sent_blocks is not None:
            check_whole("sent_blocks", self.sent_blocks, 0, 10**9)
        check_whole("in_flight_tokens", self.in_flight_tokens, 0, 10**15)
        for name in ("active_adapters", "waiting_adapters"):
            for i, adapter in enumerate(getattr(self, name)):
                check_text(f"{name}[{i}]", adapter)
        check_whole("max_adapters", self.max_adapters, 0, 10**9)
        if self.predicted_ttft_ms is not None:
            check_real("predicted_ttft_ms", self.predicted_ttft_ms, 0, LONGEST_S)
        check_real("ttft_headroom_ms", self.ttft_headroom_ms, -LONGEST_S, LONGEST_S)
        check_real("tpot_headroom_ms", self.tpot_headroom_ms, -LONGEST_S, LONGEST_S)
        for name in ("host_blocks", "disk_blocks"):
            if (blocks := getattr(self, name)) is not None:
                check_whole(name, blocks, 0, 10**12)


@dataclass(frozen=True)
class RankLoad:
    """What a load event says of a rank of a worker; None: the last value stays in force.

    Attributes
    ----------
    active_decode_blocks
        KV blocks in use, by the gateway's own count.
    kv_used_blocks, kv_total_blocks
        KV blocks in use and in all, as reported by the engine.
    active_prefill_tokens
        Prompt tokens in prefill, by the gateway's own count.
    max_num_batched_tokens
        Tokens that a step of the engine takes at most.
    """

    active_decode_blocks: int | None = None
    kv_used_blocks: int | None = None
    kv_total_blocks: int | None = None
    active_prefill_tokens: int | None = None
    max_num_batched_tokens: int | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for invalid values."""
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value is not None:
                check_whole(name, value, 0, 10**12)


@dataclass(frozen=True)
class Reading:
    """The measurements that a limit's controller sees at a tick.

    Attributes
    ----------
    value
        The sensor's aggregate, in the unit of its source (seconds for latencies); None: too few
        samples.
    samples
        Samples behind the value.
    in_flight, queued
        Requests in flight and in the gateway's queues now. A guard with a demand gate does not
        raise the limit while both are 0.
    max_in_flight
        Maximum number of requests in flight since the last tick; None: the current number.
    shed
        Requests refused or expired since the last tick.
    kv_utilization, hit_rate
        Means over the instances, 0 to 1: KV memory in use, and prefix blocks found in the cache.
    """

    value: float | None = None
    samples: int = 1
    in_flight: int = 0
    queued: int = 0
    max_in_flight: int | None = None
    shed: int = 0
    kv_utilization: float = 0.0
    hit_rate: float = 0.0

    def __post_init__(self) -> None:
        """Raises ConfigError for invalid values."""
        if self.value is not None:
            check_real("value", self.value, 0, LONGEST_S)
        check_whole("samples", self.samples, 0)
        check_whole("in_flight", self.in_flight, 0)
        check_whole("queued", self.queued, 0)
        if self.max_in_flight is not None:
            check_whole("max_in_flight", self.max_in_flight, 0)
        check_whole("shed", self.shed, 0)
        check_real("kv_utilization", self.kv_utilization, 0, 1)
        check_real("hit_rate", self.hit_rate, 0, 1)


@dataclass(frozen=True)
class Decision:
    """Whether a request is admitted.

    Attributes
    ----------
    admitted
        Whether every policy of the chain admits it.
    reason
        The reason of the first rejection, as in results; empty if the request is admitted.
    retry_after_s
        The Retry-After of the rejection in seconds; 0: none.
    detail
        What the rejection compared, of a policy that says it, e.g. a predicted latency and its
        instance with the budget. Equality ignores it.
    """

    admitted: bool
    reason: str = ""
    retry_after_s: float = 0.0
    detail: str = field(default="", compare=False)


@dataclass(frozen=True)
class RoutingDecision:
    """A routing decision.

    Attributes
    ----------
    instance
        Index of the instance; -1: the request is rejected.
    rank
        Its data-parallel rank if the policy chooses one, else None.
    scores
        The policy's score of each instance, higher is better; minus infinity for an instance that a
        filter removed; empty if the policy does not rate them.
    """

    instance: int
    rank: int | None
    scores: tuple[float, ...]


@dataclass(frozen=True)
class LimitDecision:
    """Whether a request may start.

    Attributes
    ----------
    may_start
        Whether every limit lets this request start.
    is_open
        Whether every limit lets any request start.
    setting
        The value that a controller would move, of the first adjustable limit; None: no limit is
        adjustable.
    permits
        Maximum number of requests in flight of the tightest limit that counts requests; None: none
        does.
    saturation
        Highest saturation of the fleet that any limit computes; 0 if none does.
    """

    may_start: bool
    is_open: bool
    setting: float | None
    permits: float | None
    saturation: float


@dataclass(frozen=True)
class ControlDecision:
    """The result of a controller's tick.

    Attributes
    ----------
    action
        "hold", "increase", "decrease", "cooldown" or "no_signal".
    limit
        The limit after the tick.
    """

    action: str
    limit: float
