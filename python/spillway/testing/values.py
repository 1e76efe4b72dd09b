"""What a policy is asked and what it answers: requests, signals, measurements, decisions."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.config.classes import config_error
from spillway.testing._arguments import LONGEST_S, check_real, check_text, check_whole

__all__ = [
    "ControlDecision",
    "Decision",
    "InstanceSignals",
    "LimitDecision",
    "Reading",
    "Request",
    "RoutingDecision",
]


def __dir__() -> list[str]:
    return __all__


_MOST_TOKENS = 100_000_000


@dataclass(frozen=True, eq=False)
class Request:
    """A request as a policy sees it.

    Each object is a request of its own, so two objects are never equal. An object that a policy
    decides on again stands for a new request with the same values.

    Attributes
    ----------
    input_tokens
        Tokens of the prompt, 1 to 1e8.
    output_tokens
        Tokens of the answer, 0 to 1e8. Policies see them only where they may: once the request has
        completed, or where a cost assumes the true length.
    tenant, slo_class
        Names of a tenant and of an SLO class of the surroundings.
    arrival_s
        When it reached the gateway, in seconds; None: at the call that first mentions it.
    prefix_group, prefix_tokens
        The prompt begins with `prefix_tokens` tokens that all requests of the group share;
        None: it shares nothing.
    """

    input_tokens: int = 100
    output_tokens: int = 100
    tenant: str = "default"
    slo_class: str = "standard"
    arrival_s: float | None = None
    prefix_group: str | None = None
    prefix_tokens: int = 0

    def __post_init__(self) -> None:
        """Raises ConfigError for values that no request can have."""
        check_whole("input_tokens", self.input_tokens, 1, _MOST_TOKENS)
        check_whole("output_tokens", self.output_tokens, 0, _MOST_TOKENS)
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


@dataclass(frozen=True)
class InstanceSignals:
    """What a policy sees of an instance; by default an idle one.

    Its capacity (KV blocks, sequences, tokens per step) is that of `instances` in the surroundings.

    Attributes
    ----------
    waiting, running
        Requests in the engine's queue and in its batch, as the instance reports.
    kv_utilization
        Share of KV blocks in use, 0 to 1, as the instance reports.
    free_blocks
        Free KV blocks, as the instance reports; None: those that are not in use.
    prefill_tokens
        Prompt tokens of waiting and running requests that are not computed yet, as the instance
        reports.
    prefix_hits, prefix_lookups
        KV blocks found again and looked up since the start, as the instance reports.
    measured_s
        When the instance measured all this, in seconds; None: at the instant of the decision.
    in_flight
        Requests that the gateway has sent there and that have not finished.
    is_busy
        Whether the gateway considers the worker busy.
    cached_blocks
        KV blocks of the request's prompt, from the first on, that the instance holds.
    exact_first_token_s
        Instant of the request's first token if it went there, in seconds, for policies that study
        exact knowledge; None: the instance would refuse the request.
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

    def __post_init__(self) -> None:
        """Raises ConfigError for values that no instance can have."""
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


@dataclass(frozen=True)
class Reading:
    """What a controller of a limit sees at a tick.

    Attributes
    ----------
    value
        The sensor's aggregate, in the unit of its source (seconds for latencies); None: too few
        samples.
    samples
        Samples behind the value.
    in_flight, queued
        Requests in flight and in the gateway's queues now. A guard with a demand gate raises no
        limit while both are 0.
    max_in_flight
        Most requests in flight since the last tick; None: as many as now.
    shed
        Requests refused or expired since the last tick.
    kv_utilization, hit_rate
        Means over the instances, 0 to 1: KV memory in use, and prefix blocks found again.
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
        """Raises ConfigError for values that no tick can have."""
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
        The reason of the first rejection, as results name it; empty if it is admitted.
    """

    admitted: bool
    reason: str = ""


@dataclass(frozen=True)
class RoutingDecision:
    """Where a request goes.

    Attributes
    ----------
    instance
        Index of the instance.
    rank
        Its data-parallel rank, where the policy chooses one; else None.
    scores
        How the policy rates each instance, higher is better, minus infinity for one that a filter
        left out; empty if the policy does not rate them.
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
        Whether every limit lets this request go.
    is_open
        Whether every limit lets any request go.
    setting
        What a controller would move, of the first limit that can be moved; None: none can.
    permits
        Most requests in flight, of the tightest limit that counts requests; None: none does.
    saturation
        Highest saturation of the fleet that a limit computes; 0 if none does.
    """

    may_start: bool
    is_open: bool
    setting: float | None
    permits: float | None
    saturation: float


@dataclass(frozen=True)
class ControlDecision:
    """What a tick of a controller did.

    Attributes
    ----------
    action
        "hold", "increase", "decrease", "cooldown" or "no_signal".
    limit
        The limit that is then in force.
    """

    action: str
    limit: float
