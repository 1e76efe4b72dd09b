"""Slow reference implementation of the gateway: queues, charging, fairness, a number of permits.

Its server takes a time for each request that depends on its output alone, at any load. All instants
are whole nanoseconds.
"""

# ruff: noqa: ARG002 (policies share one signature)

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

SECOND = 10**9


@dataclass
class Request:
    arrival: int
    tenant: int
    prompt: int = 16
    output: int = 10
    priority: int = 3
    target: int | None = None
    # The outcome.
    outcome: str = "queued"
    reason: str = ""
    dispatched: int | None = None
    ended: int | None = None
    # The charge, estimated on admission.
    cost_prompt: float = 0
    cost_output: float = 0

    @property
    def tokens(self) -> int:
        """Even an empty answer has a first token."""
        return max(self.output, 1)


@dataclass(frozen=True)
class Server:
    """Takes so long per output token, and at most so long until the first."""

    token_ns: int = 10_000_000
    first_ns: int = 23_700_000

    def end(self, request: Request) -> int:
        return request.dispatched + request.tokens * self.token_ns

    def first(self, request: Request) -> int:
        return min(request.dispatched + self.first_ns, self.end(request))

    def emitted(self, request: Request, now: int) -> int:
        """Tokens up to `now`. Raises if that hangs on the rounding of the simulator."""
        if request.dispatched is None or now < self.first(request):
            return 0
        span = self.end(request) - self.first(request)
        if now >= self.end(request) or span == 0:
            return request.tokens
        later = Fraction((request.tokens - 1) * (now - self.first(request)), span)
        if request.tokens > 1 and abs(later - round(later)) < Fraction(1, 10**6):
            raise AmbiguousError
        return 1 + math.floor(later)


class AmbiguousError(Exception):
    """A token comes at the very instant at which it is asked for."""


@dataclass
class Queues:
    """The tenants' queues. Entries are (serial, entered, request)."""

    ordering: str = "fcfs"
    drop: str = "tail"
    most: list[int | None] = field(default_factory=list)  # by tenant
    timeout: int | None = None
    target: int | None = None
    interval: int = 0
    flows: list[list[tuple[int, int, Request]]] = field(default_factory=list)
    serial: int = 0
    takes_newest: bool = False
    overloaded: bool = False
    interval_end: int = 0
    shortest: float = math.inf

    def push(self, request: Request, now: int) -> None:
        self.serial += 1
        self.flows[request.tenant].append((self.serial, now, request))

    def head(self, tenant: int) -> tuple[int, int, Request]:
        flow = self.flows[tenant]
        if self.ordering == "lifo" or self.takes_newest:
            return flow[-1]
        if self.ordering == "slo_deadline":
            return min(flow, key=lambda entry: (deadline(entry[2]), entry[0]))
        if self.ordering == "shortest_output":
            return min(flow, key=lambda entry: (entry[2].tokens, entry[0]))
        return flow[0]

    def pop(self, tenant: int) -> Request:
        entry = self.head(tenant)
        self.flows[tenant].remove(entry)
        self.takes_newest = False
        return entry[2]

    def backlogged(self) -> list[int]:
        return [tenant for tenant, flow in enumerate(self.flows) if flow]

    def victim(self, newcomer: Request) -> Request:
        """The request that is dropped from the newcomer's full queue."""
        flow = self.flows[newcomer.tenant]
        if self.drop == "tail":
            return newcomer
        if self.drop == "head":
            return self.head(newcomer.tenant)[2]
        least = min([*flow, (self.serial + 1, 0, newcomer)], key=lambda e: (e[2].priority, -e[0]))
        return least[2]

    def is_too_late(self, tenant: int, now: int) -> bool:
        """Folly's Codel: the first dispatch of an interval judges the one before."""
        if self.target is None:
            return False
        waited = now - self.head(tenant)[1]
        if now >= self.interval_end:
            self.overloaded = math.isfinite(self.shortest) and self.shortest > self.target
            self.interval_end = now + self.interval
            self.shortest = waited
            return False
        self.shortest = min(self.shortest, waited)
        return self.overloaded and waited > 2 * self.target


def deadline(request: Request) -> float:
    return math.inf if request.target is None else request.arrival + request.target


# --- fairness -------------------------------------------------------------------------------------


class GlobalFifo:
    tells_tokens = True
    """Whether it equals the core where every token is charged by itself."""

    def joined(self, tenant: int, queues: Queues, now: int) -> None: ...
    def left(self, tenant: int, queues: Queues) -> None: ...
    def dispatched(self, tenant: int, queues: Queues) -> None: ...
    def charge(self, tenant: int, amount: float, now: int) -> None: ...

    def next(self, queues: Queues, now: int) -> int | None:
        return min(queues.backlogged(), key=lambda t: queues.head(t)[0], default=None)


# --- charging -------------------------------------------------------------------------------------


@dataclass
class Cost:
    unit: str = "requests"
    prompt_weight: float = 1
    output_weight: float = 2
    output_estimate: str = "none"
    estimate_bias: float = 1
    charge_at: str = "dispatch"
    settles: bool = False

    def of_prompt(self, request: Request) -> float:
        if self.unit == "requests":
            return 1
        weight = self.prompt_weight if self.unit == "weighted_tokens" else 1
        return weight * request.prompt

    @property
    def of_token(self) -> float:
        return self.output_weight if self.unit == "weighted_tokens" else 0


class Gateway:
    """`permits` of them; everything else is what the simulator's gateway has."""

    def __init__(
        self,
        queues: Queues,
        fairness: GlobalFifo,
        permits: int,
        server: Server,
        *,
        cost: Cost | None = None,
        drain_latency: int = 0,
    ) -> None:
        self.queues, self.fairness, self.server = queues, fairness, server
        self.free, self.drain_latency = permits, drain_latency
        self.cost = cost or Cost(charge_at="never")
        self.drain_due: int | None = None
        self.inside: list[Request] = []
        self.told_first: set[int] = set()
        self.finished: list[list[int]] = [[] for _ in queues.flows]
        self.metered = [0] * len(queues.flows)
        self.served: list[Request] = []

    def run(self, requests: list[Request]) -> None:
        coming = sorted(requests, key=lambda request: request.arrival)
        while coming or self.inside or self.drain_due is not None or self.timeouts():
            instants = [coming[0].arrival] if coming else []
            instants += [self.server.end(request) for request in self.inside]
            instants += [self.server.first(o) for o in self.inside if id(o) not in self.told_first]
            instants += self.timeouts()
            if self.drain_due is not None:
                instants.append(self.drain_due)
            now = min(instants)
            self.first_tokens(now)
            self.releases(now)
            if self.drain_due == now:
                self.drain(now)
            self.expire(now)
            while coming and coming[0].arrival == now:
                self.admit(coming.pop(0), now)

    def timeouts(self) -> list[int]:
        if self.queues.timeout is None:
            return []
        return [e[1] + self.queues.timeout for flow in self.queues.flows for e in flow]

    def first_tokens(self, now: int) -> None:
        for request in self.inside:
            if self.server.first(request) == now and id(request) not in self.told_first:
                self.told_first.add(id(request))
                if self.cost.charge_at == "first_token":
                    self.charge(request.tenant, request.cost_prompt + request.cost_output, now)

    def releases(self, now: int) -> None:
        for request in [request for request in self.inside if self.server.end(request) == now]:
            self.inside.remove(request)
            self.free += 1
            request.outcome, request.ended = "completed", now
            self.finished[request.tenant].append(request.output)
            actual = request.cost_prompt + self.cost.of_token * request.output
            if self.cost.charge_at == "completion":
                self.charge(request.tenant, actual, now)
            elif self.cost.settles and self.cost.charge_at not in {"token", "never"}:
                self.charge(request.tenant, actual - request.cost_prompt - request.cost_output, now)
            if self.queues.backlogged():
                self.request_drain(now)

    def request_drain(self, now: int) -> None:
        if self.drain_due is None:
            self.drain_due = now + self.drain_latency

    def expire(self, now: int) -> None:
        for entry in sorted([e for flow in self.queues.flows for e in flow], key=lambda e: e[0]):
            if self.queues.timeout is None or entry[1] + self.queues.timeout > now:
                continue
            self.queues.flows[entry[2].tenant].remove(entry)
            self.queues.takes_newest = self.queues.ordering == "adaptive_lifo"
            self.lose(entry[2], "expired", "queue_timeout", now)

    def lose(self, request: Request, outcome: str, reason: str, now: int) -> None:
        request.outcome, request.reason = outcome, reason
        self.fairness.left(request.tenant, self.queues)
        if self.cost.charge_at == "enqueue":
            self.charge(request.tenant, -(request.cost_prompt + request.cost_output), now)

    def admit(self, request: Request, now: int) -> None:
        most = self.queues.most[request.tenant]
        flow = self.queues.flows[request.tenant]
        if most is not None and len(flow) >= most:
            victim = self.queues.victim(request)
            if victim is request:
                request.outcome, request.reason = "rejected", "queue_full"
                return
            flow[:] = [entry for entry in flow if entry[2] is not victim]
            self.lose(victim, "evicted", "queue_full", now)
        self.estimate(request)
        self.charge_tokens(now)
        self.queues.push(request, now)
        self.fairness.joined(request.tenant, self.queues, now)
        if self.cost.charge_at == "enqueue":
            self.charge(request.tenant, request.cost_prompt + request.cost_output, now)
        self.request_drain(now)
        if self.drain_latency == 0:
            self.drain(now)

    def estimate(self, request: Request) -> None:
        cost = self.cost
        request.cost_prompt = cost.of_prompt(request)
        if cost.charge_at == "token":
            return
        known = self.finished[request.tenant]
        expected = {
            "none": 0,
            "oracle": request.output,
            "predicted": request.tokens,
            "mean": sum(known) / len(known) if known else 0,
        }[cost.output_estimate]
        request.cost_output = cost.of_token * cost.estimate_bias * expected

    def charge(self, tenant: int, amount: float, now: int) -> None:
        if amount:
            self.fairness.charge(tenant, amount, now)

    def charge_tokens(self, now: int) -> None:
        """What the tenants' requests have emitted since they were charged last."""
        if self.cost.charge_at != "token" or not self.cost.of_token:
            return
        emitted = [0] * len(self.metered)
        for request in self.served:
            emitted[request.tenant] += self.server.emitted(request, now)
        for tenant, (before, tokens) in enumerate(zip(self.metered, emitted, strict=True)):
            self.charge(tenant, self.cost.of_token * (tokens - before), now)
        self.metered = emitted

    def drain(self, now: int) -> None:
        self.drain_due = None
        self.charge_tokens(now)
        while self.free > 0:
            tenant = self.fairness.next(self.queues, now)
            if tenant is None:
                return
            is_too_late = self.queues.is_too_late(tenant, now)
            request = self.queues.pop(tenant)
            if is_too_late:
                self.lose(request, "expired", "queue_delay", now)
                continue
            self.free -= 1
            request.outcome, request.dispatched = "running", now
            self.fairness.dispatched(tenant, self.queues)
            if self.cost.charge_at in {"dispatch", "token"}:
                self.charge(tenant, request.cost_prompt + request.cost_output, now)
            self.inside.append(request)
            self.served.append(request)
