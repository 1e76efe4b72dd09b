"""Slow reference implementation of prefill and decode pools, on top of that of one instance.

A remote request has two legs. Its prefill leg computes the prompt in one pool; its blocks stay
held until they were read. Its decode leg takes blocks for the prompt in the order of the other
instance's queue, receives the prompt over the link without a seat, gets a seat before those that
wait for blocks, and then computes the last prompt token and what follows. An instance of role
`both` is part of both pools; a request for which both choose the same one stays there. Requests are
routed in turn, without a gateway. A worker may have several ranks: engines of their own, of which
a request gets the one with the least load. All times are integer nanoseconds.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.twins.instance import Outcome, _Block, _Instance, _Live, _Part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from support.twins.instance import Request, Server, _Step

_HANDOFFS = ("after_prefill", "at_dispatch")
_ORDERS = ("prefill_first", "decode_first")
_SHARINGS = ("fixed_share", "max_min")


class DeadlockError(Exception):
    """Nothing is due, and requests wait for each other's blocks."""


@dataclass(frozen=True)
class Link:
    """Between every instance of one pool and every one of the other.

    `pair_bytes_per_s` is the bandwidth between two instances, `shared_bytes_per_s` that of all
    transfers together; None is unlimited. A transfer waits while `max_transfers` of its pair are
    under way (0: unlimited). Under `fixed_share` its rate is fixed as it starts: each bandwidth
    divided by the transfers under way, itself included, the smaller of the two. Under `max_min`
    those that move bytes share the bandwidths fairly at every instant.
    """

    bytes_per_token: int
    pair_bytes_per_s: float | None = None
    shared_bytes_per_s: float | None = None
    sharing: str = "fixed_share"
    latency_ns: int = 0
    max_transfers: int = 0

    def __post_init__(self) -> None:
        if self.sharing not in _SHARINGS:
            raise ValueError(f"sharing must be one of {_SHARINGS}: {self.sharing!r}")


@dataclass(eq=False)
class _Transfer:
    """The blocks that the reader lacks, on their way."""

    job: Job
    pair: tuple[int, int]
    left_bytes: float
    begun_ns: int | None = None
    rate: float | None = None  # bytes per ns; None: without limit
    end_ns: int | None = None
    moves: bool = False  # its base latency is over


class _Traffic:
    """The transfers of a link: what is under way and what waits."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.waiting: list[_Transfer] = []
        self.active: list[_Transfer] = []
        self.since_ns = 0

    def begin(self, transfer: _Transfer, now_ns: int) -> None:
        self.waiting.append(transfer)
        self.advance(now_ns)
        self.start_waiting(now_ns)

    def drop(self, job: Job, now_ns: int) -> None:
        if all(other.job is not job for other in (*self.waiting, *self.active)):
            return
        self.advance(now_ns)
        self.waiting = [other for other in self.waiting if other.job is not job]
        self.active = [other for other in self.active if other.job is not job]
        self.start_waiting(now_ns)

    def start_waiting(self, now_ns: int) -> None:
        most = self.link.max_transfers
        for transfer in list(self.waiting):
            of_pair = sum(1 for other in self.active if other.pair == transfer.pair)
            if most > 0 and of_pair >= most:
                continue
            self.waiting.remove(transfer)
            self.active.append(transfer)
            transfer.begun_ns = now_ns
            if self.link.sharing == "fixed_share":
                rate = self.share(self.link.pair_bytes_per_s, of_pair + 1)
                shared = self.share(self.link.shared_bytes_per_s, len(self.active))
                rate = min(rate, shared)
                moving_ns = 0.0 if math.isinf(rate) else transfer.left_bytes / rate
                transfer.end_ns = now_ns + max(1, self.link.latency_ns + math.ceil(moving_ns))
        if self.link.sharing == "max_min":
            self.share_fairly(now_ns)

    @staticmethod
    def share(bytes_per_s: float | None, transfers: int) -> float:
        """Bytes per nanosecond of each."""
        return math.inf if bytes_per_s is None else bytes_per_s / 1e9 / transfers

    def advance(self, now_ns: int) -> None:
        """What has moved by now has moved."""
        for transfer in self.active:
            if transfer.rate is not None and transfer.moves:
                moved = transfer.rate * (now_ns - self.since_ns)
                transfer.left_bytes = max(0.0, transfer.left_bytes - moved)
        self.since_ns = now_ns

    def share_fairly(self, now_ns: int) -> None:
        """Fill the bandwidths: the pairs in order, those with the least for each first."""
        for transfer in self.active:
            assert transfer.begun_ns is not None
            transfer.moves = now_ns >= transfer.begun_ns + self.link.latency_ns
        moving = [transfer for transfer in self.active if transfer.moves]
        pairs = Counter(transfer.pair for transfer in moving)
        left = self.share(self.link.shared_bytes_per_s, 1)
        unfilled = len(moving)
        rates: dict[tuple[int, int], float] = {}
        for pair, count in sorted(pairs.items(), key=lambda item: (-item[1], item[0])):
            rate = min(self.share(self.link.pair_bytes_per_s, count), left / unfilled)
            rates[pair] = rate
            if not math.isinf(left):
                left = max(0.0, left - rate * count)
            unfilled -= count
        for transfer in self.active:
            assert transfer.begun_ns is not None
            if not transfer.moves:
                transfer.end_ns = None
                continue
            rate = rates[transfer.pair]
            transfer.rate = rate
            moving_ns = 0.0 if math.isinf(rate) else transfer.left_bytes / rate
            transfer.end_ns = max(transfer.begun_ns + 1, now_ns + math.ceil(moving_ns))

    def next_ns(self) -> int | None:
        """When a transfer ends, or begins to move bytes."""
        instants = [
            transfer.end_ns
            if transfer.end_ns is not None
            else (transfer.begun_ns or 0) + self.link.latency_ns
            for transfer in self.active
        ]
        return min(instants, default=None)

    def ended(self, now_ns: int) -> list[_Transfer]:
        """Take out what ends now, in the order in which it started."""
        self.advance(now_ns)
        ended = [other for other in self.active if other.end_ns == now_ns]
        self.active = [other for other in self.active if other.end_ns != now_ns]
        self.start_waiting(now_ns)
        return ended


@dataclass(eq=False)
class Job:
    """A request in the pools. `stage`: transit, prefill, handoff, decode or ended."""

    request: Request
    remote: bool
    outcome: str = "pending"
    stage: str = "transit"
    prefill: _PoolInstance | None = None
    decode: _PoolInstance | None = None
    prefill_leg: _Leg | None = None
    decode_leg: _Leg | None = None
    entered_ns: int | None = None  # the first instance, to be computed there
    prefill_end_ns: int | None = None
    transfer_begin_ns: int | None = None
    transfer_end_ns: int | None = None
    ended_ns: int | None = None
    is_answered: bool = False  # by the token of its prefill leg, which is the only one
    moved_blocks: int = 0
    wasted_tokens: int = 0  # in memory when it ended without its answer
    booked_tokens: int = 0  # to be computed, in the prefill pool
    booked_blocks: int = 0  # in the decode pool
    is_unread: bool = False  # its client has withdrawn it, and it leaves when its prompt is read
    in_transit: int = 0  # events that carry it to its next stage
    inside: set[str] = field(default_factory=set)  # the pools in which it counts
    leaves_as: str | None = None  # its outcome, at the next stage: it has ended in transit
    is_lost: bool = False  # has lost an instance, and leaves the other one at the end of a step
    emitted: int = 0  # output tokens, by instances that it has lost: part of its prompt
    last_token_ns: int = 0  # of those
    lost_tokens: int = 0  # the most in memory that it has lost since it was last scheduled

    @property
    def prompt(self) -> int:
        return self.request.input_tokens + self.emitted

    def waste(self, tokens: int) -> None:
        self.wasted_tokens += tokens
        self.lost_tokens = max(self.lost_tokens, tokens)

    def leg(self, kind: str) -> _Leg:
        return _Leg(
            self.request,
            Outcome(),
            emitted=self.emitted,
            last_token_ns=self.last_token_ns,
            kind=kind,
            job=self,
        )


@dataclass(eq=False)
class _Leg(_Live):
    """What an instance does for a request: `kind` is whole, prefill or decode."""

    kind: str = "whole"
    job: Job | None = None
    has_prompt: bool = False  # of a decode leg: its prompt has arrived

    @property
    def goal(self) -> int:
        return 1 + self.prior if self.kind == "prefill" else super().goal

    @property
    def prior(self) -> int:
        """Output tokens that it began with."""
        return 0 if self.job is None else self.job.emitted

    @property
    def prompt(self) -> int:
        return self.request.input_tokens + self.prior


@dataclass
class _PoolInstance(_Instance):
    """An engine with legs: some receive a prompt, the prompt of others is not read yet."""

    index: int = 0
    worker: int = 0
    stands: bool = False  # its steps neither start nor end
    inside: int = 0  # requests that were routed to it and have not left
    receiving: list[_Leg] = field(default_factory=list)
    ready: list[_Leg] = field(default_factory=list)  # their prompts have arrived
    held: list[_Leg] = field(default_factory=list)
    reserved: list[_Leg] = field(default_factory=list)  # since the caller last looked
    handed_over: list[_Leg] = field(default_factory=list)  # the same
    has_preempted: bool = False
    gone: list[_Leg] = field(default_factory=list)  # completed or withdrawn, the same

    def refuses(self, leg: _Leg) -> bool:
        total = leg.request.input_tokens + leg.request.output_tokens
        if leg.kind == "prefill":
            total = leg.prompt + 1
        limit = self.server.max_model_len
        return self.blocks_for(total) > self.server.num_kv_blocks or (
            limit > 0 and (leg.request.input_tokens >= limit or total > limit)
        )

    # A decode leg takes its blocks

    def leaves_queue(self, live: _Live) -> bool:
        assert isinstance(live, _Leg)
        if live.kind != "decode" or live.has_prompt:
            return False
        cached = self.cached_blocks(live)
        if not self.reserve_prompt(live, cached):
            return False
        self.hits += len(cached)
        self.lookups += live.request.input_tokens // self.server.block_size_tokens
        self.receiving.append(live)
        self.reserved.append(live)
        assert live.job is not None
        live.job.moved_blocks = len(live.blocks) - len(cached)
        return True

    def reserve_prompt(self, live: _Leg, cached: list[_Block]) -> bool:
        missing = self.blocks_for(live.prompt) - len(cached)
        idle = sum(1 for block in cached if block.references == 0)
        spare = int(self.server.watermark * self.server.num_kv_blocks) if self.running else 0
        if missing + idle + spare > len(self.free):
            return False
        self.reference(live, cached)
        for _ in range(missing):
            self.take_block(live)
        return True

    def arrive(self, leg: _Leg) -> None:
        """The prompt has arrived."""
        self.receiving.remove(leg)
        leg.has_prompt = True
        if self.server.prefix_caching:
            size = self.server.block_size_tokens
            for k in range((leg.prompt - 1) // size):
                block = leg.blocks[k]
                if block.identity is None:
                    block.identity = leg.identity(k, size)
                    self.registry[block.identity] = block
        self.ready.append(leg)

    def keep(self, leg: _Leg) -> None:
        """A prefill leg that has ended is continued here."""
        self.held.remove(leg)
        leg.kind = "decode"
        leg.has_prompt = True
        leg.emitted = leg.prior
        leg.outcome = Outcome()
        self.ready.append(leg)

    def admit(self, live: _Live, budget: int) -> _Part | None:
        assert isinstance(live, _Leg)
        if live.kind == "decode" and not live.has_prompt:
            return None
        return super().admit(live, budget)

    def admit_first(self, budget: int, now_ns: int) -> list[_Part]:
        batch: list[_Part] = []
        while self.ready and len(batch) < budget and len(self.running) < self.server.max_num_seqs:
            leg = self.ready.pop(0)
            leg.computed = leg.prompt - 1
            batch.append(self.give(leg, 1))
            self.running.append(leg)
            leg.outcome.scheduled_ns = now_ns
        return batch

    # A prefill leg ends

    def finish(self, live: _Live, now_ns: int) -> None:
        assert isinstance(live, _Leg)
        if live.kind != "prefill":
            super().finish(live, now_ns)
            self.gone.append(live)
            return
        live.outcome.finished_ns = now_ns
        live.outcome.outcome = "completed"
        self.running.remove(live)
        self.held.append(live)
        self.handed_over.append(live)

    def is_finished(self, live: _Live) -> bool:
        assert isinstance(live, _Leg)
        return live.kind != "prefill" and super().is_finished(live)

    def emit(self, live: _Live, step: _Step, otp_ns: int) -> None:
        # A prompt that was preempted as its last token was computed has to be computed again.
        assert isinstance(live, _Leg)
        if live.kind != "prefill":
            super().emit(live, step, otp_ns)
        elif live in self.running:
            live.emitted += 1  # which no client sees

    def preempt(self, live: _Live) -> None:
        assert isinstance(live, _Leg)
        super().preempt(live)
        self.has_preempted = True
        if live.kind == "prefill" and live in self.limbo:
            self.limbo.remove(live)
            self.waiting.insert(0, live)

    # Withdrawal

    def leave(self, live: _Live, now_ns: int) -> None:
        assert isinstance(live, _Leg)
        super().leave(live, now_ns)
        assert live.job is not None
        live.job.waste(live.computed if live.lost is None else live.lost)
        self.gone.append(live)

    def release(self, leg: _Leg) -> None:
        """The blocks of a leg that is neither queued nor in the batch are free."""
        (self.held if leg in self.held else self.receiving).remove(leg)
        self.release_blocks(leg)

    def cancel(self, live: _Live, now_ns: int) -> None:
        assert isinstance(live, _Leg)
        if live in self.ready:
            live.computed = live.prompt
            self.release_blocks(live)
            self.ready.remove(live)
            self.leave(live, now_ns)
        super().cancel(live, now_ns)

    def try_step(self, now_ns: int) -> bool:
        """Start a step if any request gets tokens."""
        self.has_preempted = True
        while not self.plan and self.has_preempted:
            # A request that preempted itself has left its memory to others.
            self.has_preempted = False
            self.order_waiting()
            self.plan = self.schedule(now_ns)
            self.check(self.plan, None)
        if not self.plan:
            return False
        self.batch = [self.begin(part) for part in self.plan]
        self.plan = []
        self.start_step(now_ns, self.duration_ns(self.batch))
        return True

    def check_blocks(self) -> None:
        owners = [*self.running, *self.ready, *self.receiving, *self.held]
        held = Counter(block for live in owners for block in live.blocks)
        assert all(block.references == count for block, count in held.items())
        assert not any(block.references for block in self.free)
        total = self.server.num_kv_blocks
        assert len({*self.free, *held}) == len(self.free) + len(held) == total
        assert all(block.identity == name for name, block in self.registry.items())
        assert not any(live.blocks for live in self.waiting)


@dataclass(frozen=True)
class Conditional:
    """Dynamo's rule, over which instances are next and what the gateway has booked there.

    `index_tokens`: the block of the gateway's own record of the prompts that it sent.
    """

    rule: str
    uncached_tokens: int
    uncached_share: float
    prefill_busy: float | None
    decode_busy: float | None
    index_tokens: int


@dataclass
class PoolsRun:
    """A drained run."""

    jobs: list[Job]
    instances: list[_PoolInstance]
    transfers: int
    moved_bytes: float


_PHASES = ("release", "reaction", "fault", "arrival", "routing", "ingress")
_PHASE = {name: position for position, name in enumerate(_PHASES)}


class Pools:
    """One run of two pools. `servers`: each with its role, and its ranks if they are several.

    `ends_at_first_token`: the token of a prefill leg is the answer if that has no more tokens.
    `reads_on`: a request that is withdrawn before its prompt has been read leaves only then.
    `topology`: whether the worker that is chosen second has the domain of the first; `domains`:
    those of the workers.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, Server] | tuple[str, Server, int]],
        link: Link,
        *,
        handoff: str = "after_prefill",
        order: str = "prefill_first",
        is_remote: Callable[[Request], bool] = lambda _: True,
        conditional: Conditional | None = None,
        ends_at_first_token: bool = False,
        reads_on: bool = False,
        topology: str = "any",
        domains: Sequence[str] = (),
    ) -> None:
        if handoff not in _HANDOFFS:
            raise ValueError(f"handoff must be one of {_HANDOFFS}: {handoff!r}")
        if order not in _ORDERS:
            raise ValueError(f"order must be one of {_ORDERS}: {order!r}")
        self.instances: list[_PoolInstance] = []
        self.prefill: list[list[_PoolInstance]] = []  # the ranks of each worker
        self.decode: list[list[_PoolInstance]] = []
        for worker, (role, server, *ranks) in enumerate(servers):
            engines = [
                self.engine(server, index=len(self.instances) + i, worker=worker)
                for i in range(*(ranks or (1,)))
            ]
            self.instances += engines
            if role != "decode":
                self.prefill.append(engines)
            if role != "prefill":
                self.decode.append(engines)
        self.link = link
        self.handoff = handoff
        self.order = order
        self.is_remote = is_remote
        self.conditional = conditional
        self.ends_at_first_token = ends_at_first_token
        self.reads_on = reads_on
        self.topology = topology
        self.domains = domains
        self.sent: dict[int, set[object]] = {}  # blocks of prompts, by instance
        self.decode_blocks: Counter[int] = Counter()  # of prompts in flight, by instance
        self.prefill_tokens: Counter[int] = Counter()  # to be computed, by instance
        self.traffic = _Traffic(link)
        self.turns = {"prefill": 0, "decode": 0}
        self.events: list[tuple[int, int, int, int, object]] = []
        self.created = 0
        self.transfers = 0
        self.moved_bytes = 0.0

    def push(self, at_ns: int, phase: str, tie: int, subject: object) -> None:
        heapq.heappush(self.events, (at_ns, _PHASE[phase], tie, self.created, subject))
        self.created += 1

    def engine(self, server: Server, *, index: int, worker: int) -> _PoolInstance:
        return _PoolInstance(server, index=index, worker=worker)

    def ready(self, pool: str) -> list[list[_PoolInstance]]:
        return self.prefill if pool == "prefill" else self.decode

    def near(self, pool: str, first: _PoolInstance | None) -> list[list[_PoolInstance]]:
        """The workers that may be chosen if another one was chosen first."""
        workers = self.ready(pool)
        if first is None or self.topology == "any":
            return workers
        domain = self.domains[first.worker]
        same = [ranks for ranks in workers if self.domains[ranks[0].worker] == domain]
        if self.topology == "require":
            return same
        return same if domain and same else workers

    def next_of(self, pool: str, first: _PoolInstance | None = None) -> _PoolInstance | None:
        workers = self.near(pool, first)
        if not workers:
            return None
        ranks = workers[self.turns[pool] % len(workers)]
        self.turns[pool] += 1
        return min(
            ranks, key=lambda rank: 4 * (rank.inside - len(rank.running)) + len(rank.running)
        )

    # What is known of both pools

    def cached_at(self, request: Request, pool: str, instance: _PoolInstance) -> int:
        assert self.conditional is not None
        size = self.conditional.index_tokens
        blocks = self.blocks_to_send(request)
        known = self.sent.get((pool, instance.index), set())
        found = next((k for k, name in enumerate(blocks) if name not in known), len(blocks))
        return found * size

    def blocks_to_send(self, request: Request) -> list[object]:
        assert self.conditional is not None
        size = self.conditional.index_tokens
        whole = _Leg(request, Outcome())
        return [whole.identity(k, size) for k in range(request.input_tokens // size)]

    def is_bypassed(self, job: Job) -> bool:
        rule = self.conditional
        assert rule is not None
        request = job.request
        workers = self.ready("decode")
        (decode,) = workers[self.turns["decode"] % len(workers)]
        prompts = self.near("prefill", decode if self.order == "decode_first" else None)
        if not prompts:
            return True
        (prefill,) = prompts[self.turns["prefill"] % len(prompts)]
        eff = job.prompt - self.cached_at(request, "decode", decode)
        is_short = eff < rule.uncached_tokens and (eff / job.prompt < rule.uncached_share)
        is_busy = False
        if rule.rule != "isl_bounding":
            assert rule.prefill_busy is not None
            limit = rule.prefill_busy * prefill.server.max_num_batched_tokens
            is_busy = self.prefill_tokens[prefill.index] > limit
        parts = {"isl_bounding": is_short, "prefill_load": is_busy}
        if not parts.get(rule.rule, is_short or is_busy):
            return False
        projected = self.decode_blocks[decode.index] + decode.blocks_for(job.prompt)
        total = decode.server.num_kv_blocks
        return rule.decode_busy is None or projected <= rule.decode_busy * total

    def book(self, job: Job, pool: str, instance: _PoolInstance) -> None:
        if pool == "prefill":
            job.prefill = instance
        else:
            job.decode = instance
        instance.inside += 1
        job.inside.add(pool)
        if self.conditional is None:
            return
        if pool == "prefill":
            job.booked_tokens = job.prompt - self.cached_at(job.request, pool, instance)
            self.prefill_tokens[instance.index] += job.booked_tokens
        else:
            job.booked_blocks = instance.blocks_for(job.prompt)
            self.decode_blocks[instance.index] += job.booked_blocks
        known = self.sent.setdefault((pool, instance.index), set())
        known.update(self.blocks_to_send(job.request))

    def unbook(self, job: Job, pool: str) -> None:
        instance = job.prefill if pool == "prefill" else job.decode
        if instance is not None and pool in job.inside:
            instance.inside -= 1
            job.inside.remove(pool)
        if pool == "prefill" and job.prefill is not None:
            self.prefill_tokens[job.prefill.index] -= job.booked_tokens
            job.booked_tokens = 0
        if pool == "decode" and job.decode is not None:
            self.decode_blocks[job.decode.index] -= job.booked_blocks
            job.booked_blocks = 0

    # Life of a request

    def route(self, job: Job, now_ns: int) -> None:
        if job.prefill is not None:
            self.route_decode(job, now_ns)
            return
        if self.conditional is not None and self.ready("prefill"):
            job.remote = not self.is_bypassed(job)
        if self.order == "decode_first":
            decode = self.next_of("decode")
            prefill = self.next_of("prefill", decode) if job.remote else None
        else:
            prefill = self.next_of("prefill") if job.remote else None
            chooses = not job.remote or self.handoff == "at_dispatch"
            decode = self.next_of("decode", prefill) if chooses else None
            if chooses and decode is None:
                self.end_unserved(job, now_ns)
                return
        job.remote = prefill is not None
        if decode is not None and prefill is not None and decode.worker == prefill.worker:
            job.remote = False
        if decode is not None:
            self.book(job, "decode", decode)
        if not job.remote:
            assert decode is not None
            self.send(job, "whole", decode, now_ns)
            return
        assert prefill is not None
        self.book(job, "prefill", prefill)
        if self.handoff == "at_dispatch":
            assert decode is not None
            self.send(job, "decode", decode, now_ns)
        elif self.ends_at_first_token and job.request.output_tokens <= 1 + job.emitted:
            job.is_answered = True
            self.send(job, "whole", prefill, now_ns)
        else:
            self.send(job, "prefill", prefill, now_ns)

    def route_decode(self, job: Job, now_ns: int) -> None:
        decode = self.next_of("decode", job.prefill)
        if decode is None:
            self.end_unserved(job, now_ns)
            return
        self.book(job, "decode", decode)
        if decode is job.prefill:
            self.stay(job, now_ns)
        else:
            self.send(job, "decode", decode, now_ns)

    def end_unserved(self, job: Job, now_ns: int) -> None:
        """No decode instance may be chosen."""
        self.end(job, "cancelled" if job.is_unread else "rejected", now_ns)

    def stay(self, job: Job, now_ns: int) -> None:
        assert job.decode is not None
        assert job.prefill_leg is not None
        if job.decode.refuses(job.leg("decode")):
            self.end(job, "cancelled" if job.is_unread else "rejected", now_ns)
            return
        job.decode.keep(job.prefill_leg)
        job.decode_leg = job.prefill_leg
        job.stage = "decode"
        self.leave_if_read(job, now_ns)

    def leave_if_read(self, job: Job, now_ns: int) -> None:
        if job.is_unread:
            assert job.decode is not None
            assert job.decode_leg is not None
            job.decode.cancel(job.decode_leg, now_ns)
            self.note(job.decode, now_ns)

    def send(self, job: Job, kind: str, to: _PoolInstance, now_ns: int) -> None:
        leg = job.leg(kind)
        job.in_transit += 1
        self.push(now_ns + to.entry_delay_ns(job.request), "ingress", to.worker, (to, leg))

    def enter(self, instance: _PoolInstance, leg: _Leg, now_ns: int) -> None:
        job = leg.job
        assert job is not None
        job.in_transit -= 1
        if job.leaves_as is not None:
            self.end(job, job.leaves_as, now_ns)
            return
        self.reach(instance, leg, now_ns)

    def reach(self, instance: _PoolInstance, leg: _Leg, now_ns: int) -> None:
        job = leg.job
        assert job is not None
        if instance.refuses(leg):
            self.end(job, "cancelled" if job.is_unread else "rejected", now_ns)
            return
        leg.outcome.enqueued_ns = now_ns
        if leg.kind != "decode":
            job.entered_ns = now_ns
        if leg.kind == "prefill" or job.is_answered:
            job.prefill_leg = leg
            job.stage = "prefill"
        else:
            job.decode_leg = leg
            if leg.kind == "whole":
                job.stage = "decode"
        instance.waiting.append(leg)

    def prefill_ended(self, job: Job, now_ns: int) -> None:
        job.prefill_end_ns = now_ns
        job.stage = "handoff"
        self.unbook(job, "prefill")
        if self.handoff == "at_dispatch":
            self.begin_transfer(job, now_ns)
        elif job.decode is not None:
            self.send(job, "decode", job.decode, now_ns)
        else:
            job.in_transit += 1
            self.push(now_ns, "routing", 0, job)

    def blocks_taken(self, job: Job, now_ns: int) -> None:
        if self.handoff == "after_prefill":
            self.begin_transfer(job, now_ns)
        else:
            assert job.prefill is not None
            self.send(job, "prefill", job.prefill, now_ns)

    def begin_transfer(self, job: Job, now_ns: int) -> None:
        assert job.prefill is not None
        assert job.decode is not None
        size = job.decode.server.block_size_tokens
        moved = float(job.moved_blocks * size * self.link.bytes_per_token)
        self.transfers += 1
        self.moved_bytes += moved
        job.transfer_begin_ns = now_ns
        pair = (job.prefill.worker, job.decode.worker)
        self.traffic.begin(_Transfer(job, pair, moved), now_ns)

    def transfer_ended(self, job: Job, now_ns: int) -> None:
        job.transfer_end_ns = now_ns
        assert job.prefill is not None
        assert job.prefill_leg is not None
        assert job.decode is not None
        assert job.decode_leg is not None
        job.prefill.release(job.prefill_leg)
        job.stage = "decode"
        job.decode.arrive(job.decode_leg)
        self.leave_if_read(job, now_ns)

    def withdraw(self, job: Job, now_ns: int) -> None:
        if job.stage == "ended":
            return
        if self.reads_on and job.stage in ("prefill", "handoff") and not job.is_answered:
            job.is_unread = True
            return
        if job.stage in ("prefill", "decode"):
            # A running request leaves at the end of its step.
            instance = job.prefill if job.stage == "prefill" else job.decode
            leg = job.prefill_leg if job.stage == "prefill" else job.decode_leg
            assert instance is not None
            assert leg is not None
            instance.cancel(leg, now_ns)
            return
        if job.in_transit > 0:
            job.leaves_as = job.leaves_as or "cancelled"
        else:
            self.end(job, "cancelled", now_ns)

    def end(self, job: Job, outcome: str, now_ns: int) -> None:
        """The request ends outside the batches: both sides are free."""
        job.outcome = outcome
        job.stage = "ended"
        job.ended_ns = now_ns
        self.unbook(job, "prefill")
        self.unbook(job, "decode")
        if job.is_answered and outcome == "completed":
            job.prefill_end_ns = now_ns
        self.traffic.drop(job, now_ns)
        if job.prefill is not None and job.prefill_leg in job.prefill.held:
            assert job.prefill_leg is not None
            job.prefill.release(job.prefill_leg)
            job.prefill.wasted += job.prompt
            job.waste(job.prompt)
        leg = job.decode_leg
        if leg is None or job.decode is None:
            return
        if leg in job.decode.waiting:
            job.decode.waiting.remove(leg)
        elif leg in job.decode.receiving:
            job.decode.release(leg)

    # The run

    def run(self, requests: Sequence[Request]) -> PoolsRun:
        jobs = [Job(request, remote=self.is_remote(request)) for request in requests]
        for row, job in enumerate(jobs):
            self.push(job.request.arrival_ns, "arrival", 0, job)
            if job.request.cancelled_ns is not None:
                self.push(job.request.cancelled_ns, "reaction", row, job)
        before: object = None
        for instant in itertools.count(1):
            now_ns = self.next_instant()
            if now_ns is None:
                break
            self.handle(now_ns)
            if instant % 5000 == 0:
                # Requests that preempt themselves without end: their memory holds unread prompts.
                state = [(job.stage, job.outcome, self.emitted(job)) for job in jobs]
                if state == before:
                    break
                before = state
        waits = [job.request.request_id for job in jobs if job.outcome == "pending"]
        if waits:
            raise DeadlockError(waits)
        for instance in self.instances:
            assert len(instance.free) == instance.server.num_kv_blocks
        return PoolsRun(jobs, self.instances, self.transfers, self.moved_bytes)

    @staticmethod
    def emitted(job: Job) -> int:
        return sum(leg.emitted for leg in (job.prefill_leg, job.decode_leg) if leg is not None)

    def next_instant(self) -> int | None:
        instants = [event[0] for event in self.events[:1]]
        instants += [it.step.end_ns for it in self.instances if it.step and not it.stands]
        transfer_ns = self.traffic.next_ns()
        if transfer_ns is not None:
            instants.append(transfer_ns)
        return min(instants, default=None)

    def handle(self, now_ns: int) -> None:
        for instance in self.instances:
            if instance.step and instance.step.end_ns == now_ns and not instance.stands:
                instance.end_step()
                self.note(instance, now_ns)
        self.take_events(now_ns)
        tried: set[int] = set()
        while idle := [
            instance
            for instance in self.instances
            if instance.step is None
            and not instance.stands
            and (instance.waiting or instance.ready or instance.running)
            and instance.index not in tried
        ]:
            tried.add(idle[0].index)
            idle[0].try_step(now_ns)
            self.note(idle[0], now_ns)
            if self.take_events(now_ns):
                tried.clear()
        for instance in self.instances:
            instance.check_blocks()

    def take_events(self, now_ns: int) -> bool:
        """Take what is due now; whether anything was."""
        was_due = self.end_transfers(now_ns)
        while self.events and self.events[0][0] == now_ns:
            _, phase, _, _, subject = heapq.heappop(self.events)
            self.take(phase, subject, now_ns)
            for instance in self.instances:
                self.note(instance, now_ns)
            self.end_transfers(now_ns)
            was_due = True
        return was_due

    def end_transfers(self, now_ns: int) -> bool:
        """Those that end now precede all other events; whether there were any."""
        has_ended = False
        while self.traffic.next_ns() == now_ns:
            for transfer in self.traffic.ended(now_ns):
                self.transfer_ended(transfer.job, now_ns)
            has_ended = True
        return has_ended

    @staticmethod
    def taken(legs: list[_Leg]) -> list[_Leg]:
        now = list(legs)
        legs.clear()
        return now

    def take(self, phase: int, subject: object, now_ns: int) -> None:
        if isinstance(subject, tuple):
            instance, leg = subject
            self.enter(instance, leg, now_ns)
            return
        assert isinstance(subject, Job)
        if phase == _PHASE["reaction"]:
            self.withdraw(subject, now_ns)
            return
        if phase == _PHASE["arrival"]:
            self.arrive(subject, now_ns)
            return
        subject.in_transit -= 1
        if subject.leaves_as is not None and subject.prefill is not None:
            self.end(subject, subject.leaves_as, now_ns)
        else:
            self.route(subject, now_ns)

    def arrive(self, job: Job, now_ns: int) -> None:
        job.in_transit += 1
        self.push(now_ns, "routing", 0, job)

    def note(self, instance: _PoolInstance, now_ns: int) -> None:
        """Pass on what has happened in an instance."""
        for leg in self.taken(instance.handed_over):
            assert leg.job is not None
            self.prefill_ended(leg.job, now_ns)
        for leg in self.taken(instance.reserved):
            assert leg.job is not None
            self.blocks_taken(leg.job, now_ns)
        for leg in self.taken(instance.gone):
            assert leg.job is not None
            leg.job.stage = "handoff"
            self.end(leg.job, leg.outcome.outcome, now_ns)
