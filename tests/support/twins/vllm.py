"""Slow twin of vLLM's scheduler with the rules that the versions have.

One rank, every token and every block by itself, in vLLM's own terms: `computed` rises when a step
is scheduled, and a sampled token that is not delivered yet is a placeholder. The core has other
terms for the same decisions, so that their agreement is a proof of both. Times are nanoseconds.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True)
class Server:
    """The settings of an engine, under the names of `InstanceGroup` and of its parts."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size_tokens: int
    num_kv_blocks: int
    by_priority: bool = False
    prefix_caching: bool = True
    async_scheduling: bool = False
    reserve_full_prompt: bool = True
    watermark: float = 0.0
    long_prefill_token_threshold: int = 0
    adaptive_prefill_threshold: bool = False
    chunked_prefill: bool = True
    prefill_schedule_interval: int = 1
    max_num_active_seqs: int | None = None
    # Speculative decoding.
    num_drafts: int = 0
    method: str = "ngram"
    # Rules of versions.
    caps_lone_requests: bool = True
    self_preemption: str = "ends_step"
    keeps_share: bool = True
    skips_after_victim: bool = True
    counts_finishing_victims: bool = True
    aborts_before_tokens: bool = True  # no other rule is known here
    equal_blocks: str = "first"
    free_blocks: str = "oldest_first"
    registers_when_known: bool = True
    null_block: bool = True
    first_equal_victim: bool = True
    lookahead_at_admission: bool = False
    draft_slots: str = "all_seats"
    registers_accepted: bool = False
    eagle_blocks: str = "drop_last"
    pads_drafts: bool = False

    @property
    def lookahead(self) -> int:
        return 0 if self.method == "ngram" else self.num_drafts


@dataclass(frozen=True)
class Request:
    """A request as its client sends it; a smaller `priority` is more urgent.

    Prompts are equal as far as their tokens are. `output_name`: token k of the answer is the token
    (output_name, k), which later prompts may contain.
    """

    request_id: str
    arrival_ns: int
    prompt: tuple[tuple[str, int], ...]
    output_tokens: int
    output_name: str
    priority: int = 0
    cancelled_ns: int | None = None
    accepted: tuple[int, ...] = ()


@dataclass(eq=False)
class _Block:
    references: int = 0
    content: object = None


@dataclass(eq=False)
class _Live:
    request: Request
    emitted: int = 0
    computed: int = 0
    placeholders: int = 0
    drafts: int = 0
    blocks: list[_Block] = field(default_factory=list)
    registered: int = 0
    is_running: bool = False
    is_gone: bool = False
    was_preempted: bool = False
    samples: bool = False
    finishes: bool = False  # preempted, and its last token is under way
    accepted: Iterator[int] = field(default_factory=lambda: iter(()))
    tokens_ns: list[int] = field(default_factory=list)
    finished_ns: int | None = None
    aborted_ns: int | None = None

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt)

    @property
    def known(self) -> int:
        return self.prompt_tokens + self.emitted

    @property
    def limit(self) -> int:
        return self.prompt_tokens + max(1, self.request.output_tokens)

    def token(self, k: int) -> tuple[str, int]:
        if k < self.prompt_tokens:
            return self.request.prompt[k]
        return (self.request.output_name, k - self.prompt_tokens)

    @property
    def urgency(self) -> tuple[int, int, str]:
        return (self.request.priority, self.request.arrival_ns, self.request.request_id)


@dataclass(eq=False)
class _Part:
    live: _Live
    tokens: int
    drafts: int
    samples: bool
    enters: bool
    is_stale: bool = False


@dataclass(eq=False)
class _Step:
    parts: list[_Part]
    record: dict[str, Any]


@dataclass
class Run:
    """`steps` and `requests` have the form of the recordings of vLLM."""

    steps: list[dict[str, Any]]
    requests: dict[str, dict[str, Any]]
    hits: int = 0
    lookups: int = 0
    stuck: bool = False


class _Pool:
    """The KV blocks: each is in use, or in the queue of the free ones."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.free: deque[_Block] = deque(_Block() for _ in range(server.num_kv_blocks))
        self.registry: dict[object, list[_Block]] = {}

    def take(self) -> _Block:
        block = self.free.popleft()
        self.forget(block)
        block.references = 1
        return block

    def forget(self, block: _Block) -> None:
        if block.content is None:
            return
        same = self.registry[block.content]
        same.remove(block)
        if not same:
            del self.registry[block.content]
        block.content = None

    def register(self, block: _Block, content: object) -> None:
        assert block.content is None
        if self.server.equal_blocks == "last":
            # The former block keeps its place, but is not found any more.
            for former in self.registry.pop(content, ()):
                former.content = (former,)
                self.registry[former.content] = [former]
        block.content = content
        self.registry.setdefault(content, []).append(block)

    def find(self, content: object) -> _Block | None:
        same = self.registry.get(content)
        return same[0] if same else None

    def reference(self, block: _Block) -> None:
        if block.references == 0:
            self.free.remove(block)
        block.references += 1

    def release(self, blocks: list[_Block]) -> None:
        """Returns a request's blocks, from the last to the first."""
        free = []
        for block in reversed(blocks):
            block.references -= 1
            if block.references == 0:
                free.append(block)
        if self.server.free_blocks == "blank_first":
            blank = [block for block in free if block.content is None]
            self.free.extendleft(reversed(blank))
            free = [block for block in free if block.content is not None]
        self.free.extend(free)


class _Engine:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.pool = _Pool(server)
        self.waiting: list[_Live] = []
        self.running: list[_Live] = []
        self.steps: list[dict[str, Any]] = []
        self.hits = 0
        self.lookups = 0
        self.steps_since_prefill = 10**9
        self.left_none_waiting = False

    # Queue

    def enqueue(self, live: _Live) -> None:
        self.waiting.append(live)
        if self.server.by_priority:
            self.waiting.sort(key=lambda other: other.urgency)

    def requeue(self, live: _Live) -> None:
        self.waiting.insert(0, live)
        if self.server.by_priority:
            self.waiting.sort(key=lambda other: other.urgency)

    # Blocks

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.server.block_size_tokens)

    def content(self, live: _Live, k: int) -> object:
        """Of block `k`: all tokens up to its end; with EAGLE's later rule also the next one."""
        size = self.server.block_size_tokens
        end = (k + 1) * size
        if self.covers_next_token:
            end += 1
        return tuple(live.token(i) for i in range(end)), k

    @property
    def covers_next_token(self) -> bool:
        server = self.server
        return (
            server.num_drafts > 0
            and server.method == "eagle"
            and server.eagle_blocks == "next_token"
        )

    def register(self, live: _Live, tokens: int) -> None:
        if not self.server.prefix_caching:
            return
        size = self.server.block_size_tokens
        full = tokens // size
        if self.covers_next_token:
            full = min(full, (live.known - 1) // size)
        for k in range(live.registered, full):
            if live.blocks[k].content is None:
                self.pool.register(live.blocks[k], self.content(live, k))
        live.registered = max(live.registered, full)

    def lookup(self, live: _Live) -> list[_Block]:
        if not self.server.prefix_caching:
            return []
        limit = (live.known - 1) // self.server.block_size_tokens
        found: list[_Block] = []
        while len(found) < limit:
            block = self.pool.find(self.content(live, len(found)))
            if block is None:
                break
            found.append(block)
        server = self.server
        if server.num_drafts and server.method == "eagle" and not self.covers_next_token:
            found = found[:-1]
        return found

    def extend(self, live: _Live, tokens: int) -> bool:
        """Blocks for `tokens` more tokens of a running request."""
        covered = min(live.computed + tokens + self.server.lookahead, self.server.max_model_len)
        missing = self.blocks_for(covered) - len(live.blocks)
        if missing > len(self.pool.free):
            return False
        live.blocks += [self.pool.take() for _ in range(missing)]
        self.register(live, self.findable(live, live.computed + tokens))
        return True

    def findable(self, live: _Live, tokens: int) -> int:
        """Of these tokens, those that may be found."""
        is_known = self.server.registers_when_known or self.server.num_drafts > 0
        return min(tokens, live.known if is_known else live.limit)

    def admit(self, live: _Live, cached: list[_Block], tokens: int) -> bool:
        server = self.server
        start = len(cached) * server.block_size_tokens
        lookahead = server.lookahead if server.lookahead_at_admission else 0
        needed = self.blocks_for(min(start + tokens + lookahead, server.max_model_len))
        reserved = needed
        if server.reserve_full_prompt:
            reserved = max(needed, self.blocks_for(live.known))
        idle = sum(1 for block in cached if block.references == 0)
        spare = 0
        if self.running:
            spare = int(server.watermark * (server.num_kv_blocks + server.null_block))
        if reserved - len(cached) + idle + spare > len(self.pool.free):
            return False
        for block in cached:
            self.pool.reference(block)
        live.blocks = list(cached)
        live.registered = len(cached)
        live.blocks += [self.pool.take() for _ in range(needed - len(cached))]
        live.computed = start
        self.register(live, self.findable(live, start + tokens))
        self.hits += len(cached)
        self.lookups += live.prompt_tokens // server.block_size_tokens
        return True

    def release(self, live: _Live) -> None:
        self.pool.release(live.blocks)
        live.blocks = []
        live.registered = 0

    # Schedule

    def threshold(self) -> int | None:
        server = self.server
        if server.long_prefill_token_threshold == 0:
            return None
        requests = len(self.running) + self.num_waiting
        if not server.caps_lone_requests and requests <= 1:
            return None
        cap = server.long_prefill_token_threshold
        if server.adaptive_prefill_threshold and requests > 0:
            cap = max(cap, server.max_num_batched_tokens // requests)
        return cap

    @property
    def num_waiting(self) -> int:
        if self.server.counts_finishing_victims:
            return len(self.waiting)
        return sum(1 for live in self.waiting if not live.finishes)

    def preempt(self, live: _Live, under_way: list[_Step]) -> None:
        self.running.remove(live)
        live.is_running = False
        self.release(live)
        live.computed = 0
        live.drafts = 0
        live.placeholders = 0
        live.was_preempted = True
        live.samples = False
        for step in under_way:
            for part in step.parts:
                if part.live is live:
                    part.is_stale = True
                    live.finishes = part.samples and live.known + 1 == live.limit
        self.requeue(live)

    def victim(self) -> _Live:
        if not self.server.by_priority:
            return self.running[-1]
        running = self.running if self.server.first_equal_victim else reversed(self.running)
        return max(running, key=lambda live: live.urgency[:2])

    def is_throttled(self) -> bool:
        """Whether prompts pause, for requests that decode."""
        return (
            self.left_none_waiting
            and self.steps_since_prefill + 1 < self.server.prefill_schedule_interval
            and any(live.samples for live in self.running)
        )

    def schedule(self, now_ns: int, under_way: list[_Step]) -> _Step:
        server = self.server
        parts: dict[_Live, _Part] = {}
        preempted: list[_Live] = []
        admitted: list[tuple[_Live, int]] = []
        resumed: list[tuple[_Live, int]] = []
        budget = server.max_num_batched_tokens
        uses_draft_model = server.num_drafts > 0 and server.method == "draft_model"
        slot = 0
        if uses_draft_model and server.draft_slots == "all_seats":
            budget -= server.max_num_seqs
        elif uses_draft_model:
            slot = 1
        cap = self.threshold()
        throttled = self.is_throttled()

        def capped(tokens: int) -> int:
            return tokens if cap is None else min(tokens, cap)

        i = 0
        while i < len(self.running) and budget - slot > 0:
            live = self.running[i]
            if live.placeholders > 0 and live.computed + 2 - live.placeholders >= live.limit:
                i += 1
                continue
            need = live.known + live.drafts + live.placeholders - live.computed
            if throttled and not live.samples:
                i += 1
                continue
            most = min(capped(need), server.max_model_len - 1 - live.computed)
            tokens = min(most, budget - slot)
            if tokens <= 0:
                i += 1
                continue
            fits = self.extend(live, tokens)
            while not fits:
                victim = self.victim()
                position = self.running.index(victim)
                part = parts.pop(victim, None)
                if part is not None:
                    budget += part.tokens + slot
                if position < i and (part is not None or not server.skips_after_victim):
                    i -= 1
                self.preempt(victim, under_way)
                preempted.append(victim)
                if victim is live:
                    break
                if not server.keeps_share:
                    tokens = min(most, budget - slot)
                fits = self.extend(live, tokens)
            if not fits:
                if server.self_preemption == "ends_step":
                    break
                continue
            drafts = max(0, tokens + live.computed - live.known - live.placeholders)
            parts[live] = _Part(live, tokens, drafts, samples=False, enters=False)
            budget -= tokens + slot
            i += 1

        has_prefill = any(not live.samples for live in parts)
        seats = min(server.max_num_seqs, server.max_num_active_seqs or server.max_num_seqs)
        while not preempted and self.waiting and budget - slot > 0 and len(self.running) < seats:
            live = self.waiting[0]
            cached = self.lookup(live)
            need = live.known - len(cached) * server.block_size_tokens
            if throttled and need > 1:
                break
            tokens = capped(need)
            drafts = 0
            if not server.chunked_prefill and tokens > budget - slot:
                break
            tokens = min(tokens, budget - slot)
            if (
                server.pads_drafts
                and server.num_drafts > 0
                and need == 1
                and not has_prefill
                and (parts or cached)
            ):
                drafts = min(server.num_drafts, server.max_model_len - 1 - (live.known - 1) - 1)
                drafts = max(0, drafts)
                tokens = 1 + drafts
                if tokens > budget - slot:
                    break
            if not self.admit(live, cached, tokens):
                break
            self.waiting.pop(0)
            self.running.append(live)
            live.is_running = True
            group = resumed if live.was_preempted else admitted
            group.append((live, len(cached) * server.block_size_tokens))
            parts[live] = _Part(live, tokens, drafts, samples=False, enters=True)
            budget -= tokens + slot

        prefills = False
        for live, part in parts.items():
            starts = part.enters and live.computed < live.known - 1
            prefills = prefills or starts or not (part.enters or live.samples)
            live.computed += part.tokens
            known = live.known + live.placeholders
            live.samples = part.samples = live.computed >= known
            if server.async_scheduling:
                live.drafts = 0
                if part.samples:
                    live.placeholders += 1 + part.drafts
                    live.drafts = server.num_drafts
            elif part.samples:
                live.drafts = 0
        if parts:
            self.steps_since_prefill += 1
        if prefills:
            self.steps_since_prefill = 0
        if not throttled:
            self.left_none_waiting = self.num_waiting == 0
        record: dict[str, Any] = {
            "planned_ns": now_ns,
            "scheduled": [[live.request.request_id, part.tokens] for live, part in parts.items()],
            "admitted": [[live.request.request_id, tokens] for live, tokens in admitted + resumed],
            "preempted": [live.request.request_id for live in preempted],
            "free_blocks": len(self.pool.free),
            "waiting": self.num_waiting,
            "running": [live.request.request_id for live in self.running],
            "finished": [],
        }
        if server.num_drafts:
            record["drafts"] = {
                live.request.request_id: part.drafts for live, part in parts.items() if part.drafts
            }
        if parts or preempted:
            self.steps.append(record)
        return _Step(list(parts.values()), record)

    # Effects

    def update(self, step: _Step, now_ns: int) -> None:
        for part in step.parts:
            live = part.live
            if live.is_gone or not part.samples:
                continue
            sampled = 1
            if part.drafts:
                accepted = 0 if part.enters else next(live.accepted, 0)
                sampled += min(part.drafts, accepted)
            if not part.is_stale:
                rejected = part.drafts - (sampled - 1)
                live.computed -= rejected
                if self.server.async_scheduling:
                    live.placeholders -= rejected + sampled
            kept = min(sampled, live.limit - live.known)
            live.emitted += kept
            live.tokens_ns += [now_ns] * kept
            if live.is_running and not part.is_stale:
                if self.server.async_scheduling or self.server.registers_accepted:
                    in_flight = live.placeholders if self.server.async_scheduling else 0
                    self.register(live, min(live.computed - in_flight, live.known - 1))
                if not self.server.async_scheduling:
                    live.drafts = self.server.num_drafts
            if live.known == live.limit:
                live.finished_ns = now_ns
                live.is_gone = True
                step.record["finished"].append(live.request.request_id)
                self.leave(live)

    def leave(self, live: _Live) -> None:
        if live.is_running:
            self.running.remove(live)
            live.is_running = False
        elif live in self.waiting:
            self.waiting.remove(live)
        self.release(live)

    def abort(self, live: _Live, now_ns: int) -> None:
        live.is_gone = True
        live.aborted_ns = now_ns
        self.leave(live)

    @property
    def has_requests(self) -> bool:
        return bool(self.running or self.waiting)


def simulate(server: Server, requests: Sequence[Request], duration_ns: Callable[[int], int]) -> Run:
    """Runs the requests to their end; a step with t tokens takes `duration_ns(t)`."""
    engine = _Engine(server)
    lives = {request.request_id: _Live(request) for request in requests}
    for live in lives.values():
        live.accepted = cycle(live.request.accepted)
    arrivals = deque(sorted(lives.values(), key=lambda live: live.request.arrival_ns))
    aborts = [
        (live.request.cancelled_ns, k, live)
        for k, live in enumerate(lives.values())
        if live.request.cancelled_ns is not None
    ]
    heapq.heapify(aborts)
    arrived: set[str] = set()

    def apply_aborts(now_ns: int) -> None:
        early = []
        while aborts and aborts[0][0] <= now_ns:
            abort = heapq.heappop(aborts)
            live = abort[2]
            if live.request.request_id not in arrived:
                early.append(abort)
            elif not live.is_gone:
                engine.abort(live, now_ns)
        for abort in early:
            heapq.heappush(aborts, abort)

    def take_arrivals(now_ns: int) -> None:
        while arrivals and arrivals[0].request.arrival_ns <= now_ns:
            live = arrivals.popleft()
            arrived.add(live.request.request_id)
            engine.enqueue(live)
        apply_aborts(now_ns)

    now_ns = 0
    device_free_ns = 0
    under_way: deque[_Step] = deque()
    depth = 2 if server.async_scheduling else 1
    idle_calls = 0
    stuck = False
    while True:
        take_arrivals(now_ns)
        if len(under_way) < depth and engine.has_requests:
            step = engine.schedule(now_ns, list(under_way))
            if step.parts:
                start_ns = max(now_ns, device_free_ns)
                end_ns = start_ns + duration_ns(sum(part.tokens for part in step.parts))
                device_free_ns = end_ns
                step.record |= {"start_ns": start_ns, "end_ns": end_ns}
                under_way.append(step)
                idle_calls = 0
                if len(under_way) < depth:
                    continue
            elif step.record["preempted"] and not under_way:
                idle_calls += 1
                if idle_calls < 1000:
                    continue
            elif not under_way and engine.is_throttled():
                continue
        if under_way:
            step = under_way.popleft()
            now_ns = step.record["end_ns"]
            apply_aborts(now_ns)
            engine.update(step, now_ns)
            continue
        coming = [arrivals[0].request.arrival_ns] if arrivals else []
        coming += [abort[0] for abort in aborts[:1]]
        if not coming:
            stuck = engine.has_requests
            break
        now_ns = max(now_ns, min(coming))
    return Run(
        steps=engine.steps,
        requests={
            name: {
                key: value
                for key, value in {
                    "tokens_ns": live.tokens_ns,
                    "finished_ns": live.finished_ns,
                    "aborted_ns": live.aborted_ns,
                }.items()
                if value is not None
            }
            for name, live in lives.items()
        },
        hits=engine.hits,
        lookups=engine.lookups,
        stuck=stuck,
    )


RULES: dict[str, dict[str, Any]] = {
    "0.19": {},
    "0.33": {
        "caps_lone_requests": False,
        "free_blocks": "blank_first",
        "self_preemption": "continues",
        "skips_after_victim": False,
        "lookahead_at_admission": True,
        "draft_slots": "scheduled",
        "registers_accepted": True,
        "eagle_blocks": "next_token",
        "pads_drafts": True,
    },
}


def server_of(case: dict[str, Any], version: str) -> Server:
    """The server of a recorded case; `version` has the form 0.33.0."""
    engine = case["engine"]
    extra = engine.get("extra", {})
    server = Server(
        max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        max_model_len=engine["max_model_len"],
        block_size_tokens=engine["block_size"],
        num_kv_blocks=engine["num_gpu_blocks"] - 1,
        by_priority=engine["policy"] == "priority",
        prefix_caching=engine["prefix_caching"],
        async_scheduling=engine["async_scheduling"],
        reserve_full_prompt=engine["reserve_full_isl"],
        watermark=engine["watermark"],
        long_prefill_token_threshold=engine["long_prefill_token_threshold"],
        chunked_prefill=engine["chunked_prefill"],
        num_drafts=engine["num_spec_tokens"],
        method=engine["spec_method"] or "ngram",
        adaptive_prefill_threshold=extra.get("long_prefill_token_threshold_adaptive", False),
        prefill_schedule_interval=extra.get("prefill_schedule_interval", 1),
        max_num_active_seqs=extra.get("max_num_active_seqs"),
    )
    return replace(server, **RULES[".".join(version.split(".")[:2])])


def requests_of(case: dict[str, Any]) -> list[Request]:
    """The requests of a recorded case."""
    return [
        Request(
            request_id=request["id"],
            arrival_ns=request["arrival_ns"],
            prompt=tuple((name, k) for name, n in request["prompt"] for k in range(n)),
            output_tokens=request["output"],
            output_name=f"out:{request['id']}",
            priority=request.get("priority", 0),
            cancelled_ns=request.get("abort_ns"),
            accepted=tuple(request.get("accept", ())),
        )
        for request in case["requests"]
    ]


def run_case(case: dict[str, Any], version: str) -> Run:
    """A recorded case."""
    per_step, per_token = case["step_ns"]["constant"], case["step_ns"]["per_token"]
    return simulate(
        server_of(case, version), requests_of(case), lambda tokens: per_step + per_token * tokens
    )
