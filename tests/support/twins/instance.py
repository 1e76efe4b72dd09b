"""Slow reference implementation of `cpp/instance`, from its contract (`cpp/instance/README.md`).

One model server, no gateway, no routing delay. Everything is recomputed from the README's
definitions at every step; nothing is cached or aggregated. All times are integer nanoseconds.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from spillway._core import sim

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CHOICES = {
    "scheduler": ("fcfs", "priority_fcfs", "reverse_priority", "sjf", "longest_prefix"),
    "priority": ("slo_class", "constant", "age", "inverted_age"),
    "completion": ("step_end", "step_start"),
    "preemption": ("restart", "keep_emitted"),
    "output_overhead": ("in_step", "reported"),
    "accounting": ("clock", "blis"),
    "allocation": ("check_then_act", "roll_back"),
    "victim": ("last", "lowest_priority", "least_computed"),
}


_BLOCKS, _COMPUTED = attrgetter("blocks"), attrgetter("computed")
_REFERENCES, _IDENTITY = attrgetter("references"), attrgetter("identity")


@dataclass(frozen=True)
class Request:
    """One request as the client sends it; a higher `priority` is a more important class.

    The prompt begins with the `shared` segments (content, tokens); the rest of it is its own. The
    first `warm_tokens` of them are cached at the start. At `cancelled_ns` the request is withdrawn,
    if it has entered the engine's queue by then.
    """

    request_id: str
    arrival_ns: int
    input_tokens: int
    output_tokens: int
    priority: int = 0
    shared: tuple[tuple[str, int], ...] = ()
    warm_tokens: int = 0
    cancelled_ns: int | None = None

    def __post_init__(self) -> None:
        # With no input there is nothing to compute, so the request could never get a token.
        if self.input_tokens < 1:
            raise ValueError(f"input_tokens must be at least 1: {self.input_tokens}")
        if self.output_tokens < 0:
            raise ValueError(f"output_tokens must not be negative: {self.output_tokens}")
        if sum(tokens for _, tokens in self.shared) > self.input_tokens:
            raise ValueError(f"shared must fit into the prompt: {self.shared}")


def power_of(base: float, exponent: int) -> float:
    """The power by squares, from the lowest bit on; `**` rounds otherwise."""
    power = 1.0
    while exponent > 0:
        if exponent % 2 == 1:
            power *= base
        base *= base
        exponent //= 2
    return power


@dataclass(frozen=True)
class Roofline:
    """The coefficients of the roofline's step time; `norm` None takes the longer time."""

    constant_us: float
    weights_us: float
    expert_weights_us: float
    expert_share: float
    token_us: float
    norm: float | None
    decode_us: float
    decode_context_us: float
    prefill_context_us: float
    chunk_us: float

    def step_us(self, batch: list[_Scheduled]) -> float:
        prefills = [part for part in batch if not part.decodes and part.tokens > 0]
        decodes = [part for part in batch if part.decodes]
        prefill = sum(part.tokens for part in prefills)
        weights_us = self.weights_us
        if self.expert_weights_us != 0:
            unused = power_of(1 - self.expert_share, prefill + len(decodes))
            weights_us += self.expert_weights_us * (1 - unused)
        if self.norm == 1:
            us = (self.constant_us + weights_us) + self.token_us * prefill
            us += (self.token_us + self.decode_us) * len(decodes)
        else:
            tokens_us = self.token_us * (prefill + len(decodes))
            us = self.constant_us + self.matrices_us(weights_us, tokens_us)
            us += self.decode_us * len(decodes)
        if self.decode_context_us != 0:
            us += self.decode_context_us * sum(part.computed_before for part in decodes)
        if self.prefill_context_us != 0:
            attention = sum(
                part.tokens * (2 * part.computed_before + part.tokens) for part in prefills
            )
            us += self.prefill_context_us * (0.5 * attention)
        if self.chunk_us != 0:
            us += self.chunk_us * len(prefills)
        return us

    def matrices_us(self, weights_us: float, tokens_us: float) -> float:
        longer = max(weights_us, tokens_us)
        if self.norm is None or longer == 0:
            return longer
        ratio = min(weights_us, tokens_us) / longer
        square = ratio * ratio
        if self.norm == 2:
            return longer * math.sqrt(1 + square)
        if self.norm == 4:
            return longer * math.sqrt(math.sqrt(1 + square * square))
        return longer * sim.pow(1 + sim.pow(ratio, self.norm), 1 / self.norm)


def interpolated(axis: tuple[float, ...], at: float, value: Callable[[int], float]) -> float:
    """Linear between, and beyond, the values at the indices of an axis."""
    if len(axis) == 1:
        return value(0)
    cell = max(i for i in range(len(axis) - 1) if i == 0 or axis[i] <= at)
    share = (at - axis[cell]) / (axis[cell + 1] - axis[cell])
    low = value(cell)
    return low if share == 0 else low + share * (value(cell + 1) - low)


@dataclass(frozen=True)
class StepTable:
    """The table of step times and what is added to it."""

    decode_requests: tuple[float, ...]
    prefill_tokens: tuple[float, ...]
    context_tokens: tuple[float, ...]
    step_us_of: tuple[float, ...]
    prefill_context_us: float
    decode_scale: float
    prefill_scale: float

    def step_us(self, batch: list[_Scheduled]) -> float:
        prefills = [part for part in batch if not part.decodes and part.tokens > 0]
        decodes = [part for part in batch if part.decodes]
        context = self.context_tokens[0]
        if decodes:
            context = sum(part.computed_before for part in decodes) / len(decodes)
        alone = self.table(len(decodes), 0, context)
        us = self.decode_scale * alone
        if prefills:
            prefill = sum(part.tokens for part in prefills)
            us += self.prefill_scale * (self.table(len(decodes), prefill, context) - alone)
        if self.prefill_context_us != 0:
            pairs = sum(part.tokens * part.computed_before for part in prefills)
            us += self.prefill_context_us * pairs
        return max(0.0, us)

    def table(self, decodes: float, prefill: float, context: float) -> float:
        def entry(i: int, j: int, k: int) -> float:
            row = i * len(self.prefill_tokens) + j
            return self.step_us_of[row * len(self.context_tokens) + k]

        def over_context(i: int, j: int) -> float:
            return interpolated(self.context_tokens, context, lambda k: entry(i, j, k))

        def over_prefill(i: int) -> float:
            return interpolated(self.prefill_tokens, prefill, lambda j: over_context(i, j))

        return interpolated(self.decode_requests, decodes, over_prefill)


@dataclass(frozen=True)
class Server:
    """The settings of one instance, under the contract's names.

    With a `curve` the step time is its, and the coefficients beta are unused.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    max_model_len: int
    block_size_tokens: int
    num_kv_blocks: int
    scheduler: str
    priority: str
    alpha0_us: float
    alpha_input_us: float
    alpha_output_us: float
    beta0_us: float
    beta_prefill_us: float
    beta_decode_us: float
    beta_context_us: float
    completion: str
    preemption: str
    output_overhead: str
    accounting: str
    quantum_ns: int
    prefix_caching: bool = False
    allocation: str = "check_then_act"
    stores_last_token: bool = False
    age_weight_per_s: float = 0.0
    victim: str = "last"
    preemption_margin: int | None = None
    max_preemptions_per_step: int = 3
    aging_tokens_per_step: int = 0
    max_sorted_requests: int = 128
    curve: Roofline | StepTable | None = None
    async_scheduling: bool = False
    reserve_full_prompt: bool = False
    watermark: float = 0.0
    lockstep_ranks: bool = False

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {choices}: {getattr(self, name)!r}")
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size_tokens", "quantum_ns"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1: {getattr(self, name)}")


PLAIN = Server(
    max_num_seqs=8,
    max_num_batched_tokens=64,
    long_prefill_token_threshold=0,
    max_model_len=0,
    block_size_tokens=4,
    num_kv_blocks=100,
    scheduler="fcfs",
    priority="slo_class",
    alpha0_us=0.0,
    alpha_input_us=0.0,
    alpha_output_us=0.0,
    beta0_us=100.0,
    beta_prefill_us=10.0,
    beta_decode_us=1.0,
    beta_context_us=0.0,
    completion="step_end",
    preemption="keep_emitted",
    output_overhead="in_step",
    accounting="clock",
    quantum_ns=1000,
)
"""A step costs 100 us + 10 us per token of a prompt + 1 us per decoding request; no entry delay."""


@dataclass
class Outcome:
    """The outcome of one request. The `reported_` values stay 0 unless `accounting` is `blis`."""

    outcome: str = "pending"
    enqueued_ns: int | None = None
    scheduled_ns: int | None = None
    first_token_ns: int | None = None
    finished_ns: int | None = None
    cancelled_ns: int | None = None
    emitted: int = 0
    preemptions: int = 0
    reported_ttft_ns: int = 0
    reported_decode_ns: int = 0


@dataclass
class Run:
    """One drained run: outcomes in input order, the pooled inter-token gaps, the counts.

    The last three are not part of the contract: tests of this module read them.
    """

    outcomes: list[Outcome]
    gaps: Counter[int]
    steps: int
    end_ns: int
    hits: int = 0
    misses: int = 0
    lookups: int = 0
    recomputed: int = 0
    wasted: int = 0
    evictions: int = 0
    rolled_back: int = 0
    whole_prompts: int = 0
    yielded: int = 0
    unfinished_victims: int = 0
    reordered: int = 0


@dataclass(eq=False)
class _Block:
    """A KV block. `identity`: what it was registered under since it was last taken."""

    references: int = 0
    identity: object = None


@dataclass(eq=False)
class _Live:
    """A request inside the engine: the contract's per-request state.

    `skipped`: blocks at its beginning that it does not hold, because it joined without tokens.
    """

    request: Request
    outcome: Outcome
    computed: int = 0
    lost: int | None = None  # tokens in memory when it was preempted, until it returns
    emitted: int = 0
    blocks: list[_Block] = field(default_factory=list)
    skipped: int = 0
    current: int = 0  # tokens in the step under way
    last_token_ns: int = 0
    orders: int = 0  # steps that considered it since it joined the queue
    leaves: bool = False

    @property
    def goal(self) -> int:
        return max(self.request.output_tokens, 1)

    @property
    def known(self) -> int:
        return self.request.input_tokens + self.emitted

    @property
    def need(self) -> int:
        return self.known - self.computed

    @property
    def decodes(self) -> bool:
        return self.emitted > 0 and self.need == 1

    # With the effects of the step under way:

    @property
    def emits(self) -> bool:
        return self.current > 0 and self.current == self.need

    @property
    def is_finishing(self) -> bool:
        return self.emits and self.emitted + 1 == self.goal

    @property
    def next_need(self) -> int:
        return 1 if self.emits else self.need - self.current

    @property
    def will_decode(self) -> bool:
        return self.emits or self.decodes

    def identity(self, k: int, block_size: int) -> object:
        """What block `k` of this request is registered under once it is full."""
        end = (k + 1) * block_size
        segments = []
        reached = 0
        for segment in self.request.shared:
            segments.append(segment)
            reached += segment[1]
            if end <= reached:
                return (tuple(segments), k)
        return (self, k)


@dataclass(frozen=True)
class _Scheduled:
    """One request's part in a step, with what the step's duration needs, as of before the step."""

    live: _Live
    tokens: int
    decodes: bool
    computed_before: int
    emits: bool


@dataclass(frozen=True)
class _Part:
    """The tokens that a request gets in a step."""

    live: _Live
    tokens: int


@dataclass
class _Step:
    """The step under way."""

    start_ns: int
    duration_ns: int
    batch: list[_Scheduled]

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


@dataclass
class _Instance:
    """The contract's per-instance state, and one method per section of the contract."""

    server: Server
    waiting: list[_Live] = field(default_factory=list)
    running: list[_Live] = field(default_factory=list)
    free: deque[_Block] = field(default_factory=deque)
    registry: dict[object, _Block] = field(default_factory=dict)
    step: _Step | None = None
    plan: list[_Part] = field(default_factory=list)
    batch: list[_Scheduled] = field(default_factory=list)  # of the step that is about to start
    limbo: list[_Live] = field(default_factory=list)  # preempted while they finish
    leaving: list[_Live] = field(default_factory=list)  # withdrawn, in this order
    steps: int = 0
    end_ns: int = 0
    gaps: Counter[int] = field(default_factory=Counter)
    hits: int = 0
    misses: int = 0
    lookups: int = 0
    recomputed: int = 0
    wasted: int = 0
    evictions: int = 0
    rolled_back: int = 0
    whole_prompts: int = 0
    yielded: int = 0
    unfinished_victims: int = 0
    reordered: int = 0

    def __post_init__(self) -> None:
        self.free.extend(_Block() for _ in range(self.server.num_kv_blocks))

    def warm(self, requests: Sequence[Request]) -> None:
        """Fill the cache before the run."""
        if not self.server.prefix_caching:
            return
        size = self.server.block_size_tokens
        warm = {
            _Live(request, Outcome()).identity(k, size): None
            for request in requests
            for k in range(request.warm_tokens // size)
        }
        for identity in reversed(list(warm)[: len(self.free)]):
            self.free.popleft()
            self.free.append(_Block(identity=identity))
            self.registry[identity] = self.free[-1]

    def blocks_for(self, tokens: int) -> int:
        size = self.server.block_size_tokens
        return (tokens + size - 1) // size

    def truncate_ticks(self, us: float) -> int:
        """The whole quanta in `us`."""
        return math.floor(us * (1000 / self.server.quantum_ns))

    # Ingress

    def entry_delay_ns(self, request: Request) -> int:
        entry_us = self.server.alpha0_us + self.server.alpha_input_us * request.input_tokens
        return self.truncate_ticks(entry_us) * self.server.quantum_ns

    def unservable(self, request: Request) -> bool:
        total = request.input_tokens + request.output_tokens
        if self.blocks_for(total) > self.server.num_kv_blocks:
            return True
        limit = self.server.max_model_len
        return limit > 0 and (request.input_tokens >= limit or total > limit)

    def enter_queue(self, live: _Live, now_ns: int) -> None:
        if self.unservable(live.request):
            live.outcome.outcome = "rejected"
            return
        live.outcome.enqueued_ns = now_ns
        self.waiting.append(live)

    # Withdrawal

    def cancel(self, live: _Live, now_ns: int) -> None:
        if live in self.waiting:
            self.waiting.remove(live)
            self.leave(live, now_ns)
        elif live in self.running or live in self.limbo:
            live.leaves = True
            self.leaving.append(live)
            if self.step is None:
                self.take_out_leaving(now_ns)

    def is_finished(self, live: _Live) -> bool:
        return live.emitted == live.goal

    def take_out(self, live: _Live, now_ns: int) -> None:
        self.release_blocks(live)
        self.running.remove(live)
        self.plan = [part for part in self.plan if part.live is not live]
        self.leave(live, now_ns)

    def take_out_leaving(self, now_ns: int) -> None:
        for live in self.limbo:
            self.leave(live, now_ns)
        self.limbo.clear()
        for live in self.leaving:
            if live in self.running:
                self.take_out(live, now_ns)
        self.leaving.clear()

    def leave(self, live: _Live, now_ns: int) -> None:
        live.outcome.outcome = "cancelled"
        live.outcome.cancelled_ns = now_ns
        live.outcome.emitted = live.emitted
        self.wasted += live.computed if live.lost is None else live.lost
        self.end_ns = max(self.end_ns, now_ns)

    # Step start, 1: order

    def worth(self, priority: int) -> int:
        """A priority in the unit of ranks: itself, or the nanoseconds in which it is gained."""
        weight = self.server.age_weight_per_s
        if weight == 0:
            return priority
        worth_ns = priority / weight * 1e9
        return int(worth_ns + math.copysign(0.5, worth_ns))

    def rank(self, request: Request) -> int:
        if self.server.scheduler == "sjf":
            return request.input_tokens
        ages = self.server.age_weight_per_s > 0
        by_priority = {
            "slo_class": (request.arrival_ns if ages else 0) - self.worth(request.priority),
            "constant": 0,
            "age": request.arrival_ns,
            "inverted_age": -request.arrival_ns,
        }[self.server.priority]
        return by_priority if self.server.scheduler == "priority_fcfs" else -by_priority

    def order_waiting(self) -> None:
        if self.server.scheduler in ("fcfs", "longest_prefix"):
            return
        self.waiting.sort(
            key=lambda live: (
                self.rank(live.request),
                live.request.arrival_ns,
                live.request.request_id,
            )
        )

    # Step start, 3: order by what is cached

    def order_by_prefix(self) -> None:
        if self.server.scheduler != "longest_prefix":
            return
        sorts = len(self.waiting) <= self.server.max_sorted_requests
        before = list(self.waiting)

        def worth(live: _Live) -> int:
            if not sorts:
                return 0
            cached = len(self.cached_blocks(live)) * self.server.block_size_tokens
            return cached + live.orders * self.server.aging_tokens_per_step

        self.waiting.sort(
            key=lambda live: (-worth(live), live.request.arrival_ns, live.request.request_id)
        )
        for live in self.waiting:
            live.orders += 1
        self.reordered += self.waiting != before

    # Step start, 2 and 3: the number of tokens for each request

    def tokens_for(self, live: _Live, budget: int) -> int:
        if live.is_finishing:
            return 0
        n = live.next_need
        threshold = self.server.long_prefill_token_threshold
        if threshold > 0 and not live.will_decode:
            n = min(n, threshold)
        return min(n, budget)

    def give(self, live: _Live, tokens: int) -> _Part:
        """Give `live` these tokens and the blocks for them."""
        # A prompt that is cached to its end gets no tokens and no blocks.
        if tokens > 0:
            for _ in range(self.missing_blocks(live, tokens)):
                self.take_block(live)
            self.register_full_blocks(live, tokens)
        return _Part(live, tokens)

    # KV blocks

    def missing_blocks(self, live: _Live, tokens: int) -> int:
        covered = live.computed + live.current + tokens
        return self.blocks_for(covered) - live.skipped - len(live.blocks)

    def take_block(self, live: _Live) -> None:
        block = self.free.popleft()
        if block.identity is not None:
            registered = self.registry.get(block.identity)
            if registered is not None and (
                registered is block or self.server.allocation == "roll_back"
            ):
                del self.registry[block.identity]
                self.evictions += 1
            block.identity = None
        assert block.references == 0
        block.references = 1
        live.blocks.append(block)
        self.misses += 1

    def register_full_blocks(self, live: _Live, tokens: int) -> None:
        """Register the blocks that these tokens fill."""
        if not self.server.prefix_caching:
            return
        size = self.server.block_size_tokens
        before = live.computed + live.current
        for k in range(before // size, (before + tokens) // size):
            block = live.blocks[k - live.skipped]
            block.identity = live.identity(k, size)
            self.registry[block.identity] = block

    def cached_blocks(self, live: _Live) -> list[_Block]:
        if not self.server.prefix_caching:
            return []
        size = self.server.block_size_tokens
        if self.server.allocation == "check_then_act":
            limit = (live.known - 1) // size
        else:
            limit = live.request.input_tokens // size
        cached: list[_Block] = []
        while len(cached) < limit:
            block = self.registry.get(live.identity(len(cached), size))
            if block is None:
                break
            cached.append(block)
        return cached

    def reference(self, live: _Live, cached: list[_Block]) -> None:
        for block in cached:
            if block.references == 0:
                self.free.remove(block)
            block.references += 1
            live.blocks.append(block)

    def reserve(self, live: _Live, cached: list[_Block], tokens: int) -> bool:
        """Reference the cached blocks if the new ones can be had too; whether they can."""
        new = self.blocks_for(live.computed + tokens) - len(cached)
        if self.server.allocation == "check_then_act":
            idle = sum(1 for block in cached if block.references == 0)
            spare = int(self.server.watermark * self.server.num_kv_blocks) if self.running else 0
            if self.server.reserve_full_prompt:
                spare += self.blocks_for(live.known) - self.blocks_for(live.computed + tokens)
            if new + idle + spare > len(self.free):
                return False
            self.reference(live, cached)
            return True
        if self.blocks_for(tokens) > len(self.free):
            return False
        self.reference(live, cached)
        if new > len(self.free):
            self.release_blocks(live)
            self.rolled_back += 1
            return False
        return True

    def admit(self, live: _Live, budget: int) -> _Part | None:
        """Give tokens to the head of `waiting`, from behind what is cached; None: it must wait."""
        cached = self.cached_blocks(live)
        live.computed = len(cached) * self.server.block_size_tokens
        n = self.tokens_for(live, budget)
        if n > 0:
            if not self.reserve(live, cached, n):
                live.computed = 0
                return None
            self.hits += len(cached)
        else:
            # Later the request needs the blocks behind its prompt.
            live.skipped = len(cached)
            self.whole_prompts += 1
        self.lookups += live.request.input_tokens // self.server.block_size_tokens
        if live.lost is not None:
            self.recomputed += max(0, live.lost - live.computed)
            live.lost = None
        return self.give(live, n)

    def store_last_token(self, live: _Live) -> None:
        if not self.server.stores_last_token or live.request.output_tokens == 0:
            return
        is_full = live.computed % self.server.block_size_tokens == 0
        if (is_full or not live.blocks) and self.free:
            self.take_block(live)

    def release_blocks(self, live: _Live) -> None:
        while live.blocks:
            block = live.blocks.pop()
            block.references -= 1
            if block.references == 0:
                self.free.append(block)
        live.skipped = 0

    def least_urgent(self) -> _Live:
        """Of the running requests; `max` takes the first of equals, here the last to enter."""
        return max(
            reversed(self.running),
            key=lambda live: (self.rank(live.request), live.request.arrival_ns),
        )

    def preempt(self, live: _Live) -> None:
        is_finishing = live.is_finishing
        self.running.remove(live)
        self.release_blocks(live)
        live.lost = live.computed + live.current
        live.orders = 0
        live.computed = 0
        if self.server.preemption == "restart":
            live.emitted = 0
        if is_finishing:
            self.limbo.append(live)
        else:
            self.waiting.insert(0, live)
        live.outcome.preemptions += 1

    def admit_first(self, budget: int, now_ns: int) -> list[_Part]:
        """Requests that join the batch before those of `waiting`: here there are none."""
        del budget, now_ns
        return []

    def leaves_queue(self, live: _Live) -> bool:
        """Whether the head leaves `waiting` without joining the batch: never here."""
        del live
        return False

    def one_to_yield(self, head: _Live) -> _Live | None:
        if self.server.preemption_margin is None or not self.running:
            return None
        live = self.least_urgent()
        below = self.rank(live.request) - self.rank(head.request)
        return live if below >= self.worth(self.server.preemption_margin) else None

    def schedule(self, now_ns: int) -> list[_Part]:
        batch: list[_Part] = []
        budget = self.server.max_num_batched_tokens
        preempted = False

        def take_back(live: _Live) -> int:
            """Preempt a request; the tokens that it was given in this step."""
            part = next((part for part in batch if part.live is live), None)
            self.preempt(live)
            if part is None:
                return 0
            batch.remove(part)
            self.unfinished_victims += 1
            return part.tokens

        i = 0
        while i < len(self.running) and budget > 0:
            live = self.running[i]
            if live.is_finishing:
                i += 1
                continue
            n = self.tokens_for(live, budget)
            if self.missing_blocks(live, n) <= len(self.free):
                batch.append(self.give(live, n))
                budget -= n
                i += 1
                continue
            victim = self.running[-1]
            if self.server.victim == "lowest_priority":
                victim = self.least_urgent()
            elif self.server.victim == "least_computed":
                victim = min(reversed(self.running), key=lambda live: live.computed + live.current)
            if self.running.index(victim) < i:
                i -= 1
            budget += take_back(victim)
            preempted = True

        if preempted:
            return batch

        for part in self.admit_first(budget, now_ns):
            batch.append(part)
            budget -= part.tokens
        self.order_by_prefix()
        yielded: list[_Live] = []
        while self.waiting and budget > 0 and self.waiting[0] not in yielded:
            live = self.waiting[0]
            assert live.computed == 0
            has_seat = len(self.running) < self.server.max_num_seqs
            if has_seat and self.leaves_queue(live):
                self.waiting.pop(0)
                continue
            part = self.admit(live, budget) if has_seat else None
            if part is None:
                loser = self.one_to_yield(live)
                if loser is None or len(yielded) == self.server.max_preemptions_per_step:
                    break
                budget += take_back(loser)
                yielded.append(loser)
                self.yielded += 1
                self.order_waiting()
                continue
            self.waiting.pop(0)
            self.running.append(live)
            batch.append(part)
            budget -= part.tokens
            if self.server.accounting == "blis" or live.outcome.scheduled_ns is None:
                live.outcome.scheduled_ns = now_ns
        return batch

    # Step start, 4: the duration

    def duration_ns(self, batch: list[_Scheduled]) -> int:
        server = self.server
        step_us = server.curve.step_us(batch) if server.curve else self.linear_us(batch)
        if server.output_overhead == "in_step" and any(part.emits for part in batch):
            step_us = step_us + server.alpha_output_us
        return max(1, self.truncate_ticks(step_us)) * server.quantum_ns

    def linear_us(self, batch: list[_Scheduled]) -> float:
        server = self.server
        prefill = sum(part.tokens for part in batch if not part.decodes)
        decode = sum(1 for part in batch if part.decodes)
        context = sum(part.computed_before for part in batch)
        step_us = server.beta0_us + server.beta_prefill_us * prefill
        step_us = step_us + server.beta_decode_us * decode
        if server.beta_context_us != 0:
            step_us = step_us + server.beta_context_us * context
        return step_us

    @property
    def preempts_from_the_tail(self) -> bool:
        return self.server.victim == "last" and self.server.preemption_margin is None

    def form_batch(self, now_ns: int) -> int:
        """Form the batch of the next step; how long the step takes without other ranks."""
        assert self.step is None
        if not self.plan:
            self.order_waiting()
            head = self.running[0] if self.running and self.preempts_from_the_tail else None
            self.plan = self.schedule(now_ns)
            self.check(self.plan, head)
            # An admitted request fits an empty cache, so a step that starts schedules some request.
            assert self.plan
        self.batch = [self.begin(part) for part in self.plan]
        self.plan = []
        return self.duration_ns(self.batch)

    def start_step(self, now_ns: int, duration_ns: int) -> None:
        self.step = _Step(now_ns, duration_ns, self.batch)
        self.batch = []
        self.steps += 1
        if self.server.completion == "step_start":
            self.apply_effects(self.step)
        if self.server.async_scheduling:
            self.order_waiting()
            self.plan = self.schedule(now_ns)
            self.check(self.plan, None)

    def begin(self, part: _Part) -> _Scheduled:
        live = part.live
        live.current = part.tokens
        return _Scheduled(
            live=live,
            tokens=part.tokens,
            decodes=live.decodes,
            computed_before=live.computed,
            emits=live.computed + part.tokens == live.known,
        )

    def end_step(self) -> None:
        assert self.step is not None
        if self.server.completion == "step_end":
            self.apply_effects(self.step)
        self.end_ns = self.step.end_ns
        self.step = None
        self.take_out_leaving(self.end_ns)

    # Effects

    def apply_effects(self, step: _Step) -> None:
        server = self.server
        otp_ns = 0
        if server.output_overhead == "reported":
            otp_ns = self.truncate_ticks(server.alpha_output_us) * server.quantum_ns

        for part in step.batch:
            live = part.live
            live.current = 0
            # A request that was preempted since the step began keeps its token, not its KV.
            if live in self.running:
                live.computed += part.tokens
                assert live.computed <= live.known
            if part.emits and live.outcome.outcome == "pending":
                self.emit(live, step, otp_ns)

        if server.accounting == "blis":
            for live in self.running:
                if live.emitted == 1:
                    ttft_ns = step.start_ns + step.duration_ns + otp_ns - live.request.arrival_ns
                    live.outcome.reported_ttft_ns = ttft_ns

        for part in step.batch:
            live = part.live
            if live.emitted == live.goal and not live.leaves:
                self.finish(live, step.end_ns)
            elif live in self.leaving and live in self.running and self.is_finished(live):
                self.leaving.remove(live)
                self.take_out(live, step.end_ns)
        self.check_blocks()

    def finish(self, live: _Live, now_ns: int) -> None:
        live.outcome.finished_ns = now_ns
        live.outcome.outcome = "completed"
        live.outcome.emitted = live.emitted
        if live in self.limbo:
            self.limbo.remove(live)
            return
        self.store_last_token(live)
        self.release_blocks(live)
        self.running.remove(live)

    def emit(self, live: _Live, step: _Step, otp_ns: int) -> None:
        live.emitted += 1
        assert live.emitted <= live.goal
        if live.outcome.first_token_ns is None:
            live.outcome.first_token_ns = step.end_ns
        if live.emitted > 1:
            if self.server.accounting == "clock":
                self.gaps[step.end_ns - live.last_token_ns] += 1
            else:
                live.outcome.reported_decode_ns += step.duration_ns + otp_ns
                self.gaps[step.duration_ns + otp_ns] += 1
        live.last_token_ns = step.end_ns

    def drained(self, lives: list[_Live]) -> Run:
        assert not self.running
        assert not self.waiting
        assert not self.limbo
        assert len(self.free) == self.server.num_kv_blocks
        assert all(live.outcome.outcome in ("completed", "rejected", "cancelled") for live in lives)
        return Run(
            outcomes=[live.outcome for live in lives],
            gaps=self.gaps,
            steps=self.steps,
            end_ns=self.end_ns,
            hits=self.hits,
            misses=self.misses,
            lookups=self.lookups,
            recomputed=self.recomputed,
            wasted=self.wasted,
            evictions=self.evictions,
            rolled_back=self.rolled_back,
            whole_prompts=self.whole_prompts,
            yielded=self.yielded,
            unfinished_victims=self.unfinished_victims,
            reordered=self.reordered,
        )

    # Invariants

    def check_blocks(self) -> None:
        # At every step of every case, so without a loop in Python.
        held = Counter(chain.from_iterable(map(_BLOCKS, self.running)))
        assert list(map(_REFERENCES, held)) == list(held.values())
        assert not any(map(_REFERENCES, self.free))
        assert len({*self.free, *held}) == len(self.free) + len(held) == self.server.num_kv_blocks
        assert list(map(_IDENTITY, self.registry.values())) == list(self.registry)
        assert not any(map(_BLOCKS, self.waiting))
        assert not any(map(_COMPUTED, self.waiting))

    def check(self, batch: list[_Part], head: _Live | None) -> None:
        """Check a schedule before its effects; `head` was the head of `running` before it."""
        self.check_blocks()
        assert sum(part.tokens for part in batch) <= self.server.max_num_batched_tokens
        no_tokens = [part for part in batch if part.tokens == 0]
        assert all(part.live.next_need == 0 and not part.live.blocks for part in no_tokens)
        assert not no_tokens or self.server.allocation == "roll_back"
        assert all(part.live in self.running for part in batch)
        assert len(self.running) <= self.server.max_num_seqs
        for part in batch:
            covered = part.live.computed + part.live.current + part.tokens
            assert len(part.live.blocks) == self.blocks_for(covered) - part.live.skipped
        if head is not None:
            assert self.running[0] is head
            assert batch[0].live is head


def simulate(
    server: Server, requests: Sequence[Request], everywhere: Sequence[Request] = ()
) -> Run:
    """Run `requests` through one instance until it is drained.

    `everywhere`: those of all instances, in order of arrival, which state what is cached before.
    """
    (run,) = simulate_in_lockstep(server, [requests], everywhere)
    return run


def simulate_ranks(
    server: Server, ranks: Sequence[Sequence[Request]], everywhere: Sequence[Request] = ()
) -> list[Run]:
    """Run the requests of each rank of one instance until all are drained."""
    if server.lockstep_ranks:
        return simulate_in_lockstep(server, ranks, everywhere)
    return [simulate(server, requests, everywhere) for requests in ranks]


def simulate_in_lockstep(
    server: Server, ranks: Sequence[Sequence[Request]], everywhere: Sequence[Request] = ()
) -> list[Run]:
    """Run the requests of each rank; their steps start and end together."""
    instances = [_Instance(server) for _ in ranks]
    for instance in instances:
        instance.warm(everywhere)
    lives = [[_Live(request, Outcome()) for request in requests] for requests in ranks]
    entries = [
        (live.request.arrival_ns + rank.entry_delay_ns(live.request), rank, live)
        for rank, its in zip(instances, lives, strict=True)
        for live in its
    ]
    entries.sort(key=lambda entry: entry[0])  # stable: equal instants keep the input order
    cancels = [
        (live.request.cancelled_ns, rank, live)
        for rank, its in zip(instances, lives, strict=True)
        for live in its
        if live.request.cancelled_ns is not None
    ]
    cancels.sort(key=lambda cancel: cancel[0])

    end_ns: int | None = None  # of the common step
    while entries or end_ns is not None:
        instants = [event[0] for events in (cancels, entries) for event in events[:1]]
        if end_ns is not None:
            instants.append(end_ns)
        now_ns = min(instants)

        if now_ns == end_ns:
            for rank in instances:
                if rank.step is not None:
                    rank.end_step()
            end_ns = None
        while cancels and cancels[0][0] == now_ns:
            _, rank, live = cancels.pop(0)
            rank.cancel(live, now_ns)
        while entries and entries[0][0] == now_ns:
            _, rank, live = entries.pop(0)
            rank.enter_queue(live, now_ns)
        if end_ns is None:
            busy = [rank for rank in instances if rank.running or rank.waiting]
            if busy:
                duration_ns = max(rank.form_batch(now_ns) for rank in busy)
                for rank in busy:
                    rank.start_step(now_ns, duration_ns)
                end_ns = now_ns + duration_ns

    return [rank.drained(its) for rank, its in zip(instances, lives, strict=True)]
