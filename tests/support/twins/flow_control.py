"""Slow reference implementation of llm-d's flow control, with one server.

The server takes a time for each request that follows from its output alone. Saturation is what is
in flight over a capacity. All instants are whole nanoseconds; every attempt of a series is made,
even if it dispatches nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

SECOND = 10**9
TOKEN_NS = 10_000_000


@dataclass
class Request:
    row: int
    arrival: int
    tenant: int
    priority: int
    tokens: int
    outcome: str = "queued"
    reason: str = ""
    dispatched: int | None = None
    ended: int | None = None
    order: int = 0  # of dispatch
    is_inside: bool = False
    is_victim: bool = False


@dataclass
class Band:
    priority: int
    ceiling: float = 1
    most: int | None = None
    most_of_tenant: int | None = None
    timeout: int | None = None
    in_turns: bool = False
    last_served: int = 0
    waiting: list[Request] = field(default_factory=list)  # in order of entry

    def next(self, num_tenants: int) -> Request:
        if not self.in_turns:
            return self.waiting[0]
        tenants = {request.tenant for request in self.waiting}
        turns = [(self.last_served + i) % num_tenants for i in range(1, num_tenants + 1)]
        tenant = next(tenant for tenant in turns if tenant in tenants)
        return next(request for request in self.waiting if request.tenant == tenant)


@dataclass
class FlowControl:
    bands: list[Band]  # highest first
    num_tenants: int
    capacity: float  # in flight at a saturation of 1
    permits: int | None = None
    one_per_attempt: bool = True
    period: int = 1_000_000
    most: int | None = None
    sheds: bool = False
    usage_limit: str = "static"  # holdback_rank, holdback_value, soft
    lowest_ceiling: float = 1
    max_victims: int = 0
    grace: int = 0
    timeout: int = 0

    def __post_init__(self) -> None:
        self.inside: list[Request] = []  # dispatched and not ended
        self.transit: list[Request] = []  # dispatched, not yet with the server
        self.attempt_at: int | None = None
        self.calls = 0
        self.dispatches = 0
        self.next_decision = 0
        self.doomed: list[Request] = []
        for band in self.bands:
            band.last_served = self.num_tenants - 1

    # --- what is seen ---

    @property
    def queued(self) -> int:
        return sum(len(band.waiting) for band in self.bands)

    @property
    def saturation(self) -> float:
        return len(self.inside) / self.capacity

    def is_open(self, ceiling: float) -> bool:
        within = self.permits is None or len(self.inside) < self.permits
        return within and self.saturation < ceiling

    def ceilings(self) -> list[float]:
        n = len(self.bands)
        if self.usage_limit == "static" or (n == 1 and self.usage_limit != "soft"):
            return [b.ceiling if self.usage_limit == "static" else 1 for b in self.bands]
        if self.usage_limit == "soft":
            return self.soft_ceilings()
        low = self.lowest_ceiling
        if self.usage_limit == "holdback_rank":
            return [1 - i / (n - 1) * (1 - low) for i in range(n)]
        first, last = self.bands[0].priority, self.bands[-1].priority
        return [1 - (first - b.priority) / (first - last) * (1 - low) for b in self.bands]

    def soft_ceilings(self) -> list[float]:
        n, s = len(self.bands), self.saturation
        ceilings = [1 - i * s / (n - 1) if i else 1.0 for i in range(n)]
        gated = [i for i in range(n) if s >= ceilings[i]]
        if s >= 1 or not gated or not self.queued:
            return ceilings
        self.calls += 1
        if self.calls % max(1, math.floor(s / (1 - s) + 0.5)) == 0:
            return [1.0] * n
        return ceilings

    # --- the cycle ---

    def cycle(self, now: int) -> None:
        """One attempt, or as many dispatches as are allowed."""
        ceilings = self.ceilings()
        for i, band in enumerate(self.bands):
            if self.one_per_attempt:
                if self.is_open(ceilings[i]):
                    if not band.waiting:
                        continue
                    self.dispatch(band, now)
                else:
                    self.blocked(i, min(ceilings[: i + 1]), ceilings, now)
                return
            while band.waiting and self.is_open(ceilings[i]):
                self.dispatch(band, now)
            if band.waiting:
                self.relieve(i, ceilings[i], now)
                return

    def blocked(self, at: int, ceiling: float, ceilings: list[float], now: int) -> None:
        """The cycle has stopped at a band; only requests of this band or below may be waiting."""
        for i in range(at, len(self.bands)):
            ceiling = min(ceiling, ceilings[i])
            if self.bands[i].waiting:
                self.relieve(i, ceiling, now)
                return

    def dispatch(self, band: Band, now: int) -> None:
        request = band.next(self.num_tenants)
        band.waiting.remove(request)
        band.last_served = request.tenant
        self.dispatches += 1
        request.order, request.dispatched, request.outcome = self.dispatches, now, "running"
        self.inside.append(request)
        self.transit.append(request)

    def relieve(self, at: int, ceiling: float, now: int) -> None:
        s = self.saturation
        if not self.max_victims or at == len(self.bands) - 1:
            return
        if s < ceiling or now < self.next_decision or not self.inside:
            return
        pending = [request for request in self.inside if request.is_victim]
        credit = s / len(self.inside)
        wanted = math.ceil((s - ceiling - len(pending) * credit) / credit)
        below = min(self.bands[at].priority, 0)
        able = [
            request for request in self.inside if request.priority < below and not request.is_victim
        ]
        able.sort(key=lambda request: (request.priority, -request.order))
        for request in able[: max(1, min(wanted, self.max_victims))]:
            request.is_victim = True
            self.doomed.append(request)
            self.next_decision = now + self.timeout

    # --- the clock ---

    def drain(self, now: int) -> None:
        self.cycle(now)
        # A victim inside the server leaves at once, which may wake the gateway's drain loop.
        leaving = [request for request in self.doomed if request.is_inside]
        self.doomed = [request for request in self.doomed if not request.is_inside]
        if self.attempt_at is None and self.queued:
            self.attempt_at = now + self.period
        for request in leaving:
            self.end(request, "evicted", now)
        if leaving:
            self.news(now)

    def news(self, now: int) -> None:
        if not self.one_per_attempt and self.queued:
            self.drain(now)

    def end(self, request: Request, outcome: str, now: int) -> None:
        self.inside.remove(request)
        request.outcome, request.ended = outcome, now
        if outcome == "evicted":
            request.reason = "in_flight_eviction"
        if request.is_victim and not any(other.is_victim for other in self.inside):
            self.next_decision = now + self.grace

    def attempt(self, now: int) -> None:
        self.attempt_at = None
        if self.queued or not self.one_per_attempt:
            self.drain(now)

    def expire(self, now: int) -> None:
        lost = False
        for band in self.bands:
            for request in list(band.waiting):
                if band.timeout is not None and request.arrival + band.timeout <= now:
                    band.waiting.remove(request)
                    request.outcome, request.reason, lost = "expired", "queue_timeout", True
        if lost and len(self.bands) > 1:
            self.news(now)

    def admit(self, request: Request, now: int) -> None:
        band = next((b for b in self.bands if request.priority >= b.priority), self.bands[-1])
        if self.has_room(band, request):
            band.waiting.append(request)
            self.drain(now)
        else:
            request.outcome, request.reason = "rejected", "queue_full"

    def has_room(self, band: Band, request: Request) -> bool:
        queued = sum(other.tenant == request.tenant for other in band.waiting)
        if band.most_of_tenant is not None and queued >= band.most_of_tenant:
            return False
        if band.most is not None and len(band.waiting) >= band.most:
            return False
        if self.most is None or self.queued < self.most:
            return True
        waiting = [(other, b) for b in self.bands for other in b.waiting]
        # The newest of equals has the highest row.
        least, its_band = min(waiting, key=lambda pair: (pair[0].priority, -pair[0].row))
        if not self.sheds or least.priority >= min(request.priority, 0):
            return False
        its_band.waiting.remove(least)
        least.outcome, least.reason = "evicted", "queue_full"
        return True

    def arrive_at_server(self, now: int) -> None:
        coming = sorted(self.transit, key=lambda request: request.row)
        while coming:
            self.transit = []
            request = coming.pop(0)
            request.is_inside = True
            if request in self.doomed:
                self.doomed.remove(request)
                self.end(request, "evicted", now)
                self.news(now)
            coming += sorted(self.transit, key=lambda other: other.row)

    def run(self, requests: list[Request]) -> None:
        coming = sorted(requests, key=lambda request: (request.arrival, request.row))
        while coming or self.inside or self.queued:
            instants = [request.dispatched + request.tokens * TOKEN_NS for request in self.inside]
            if coming:
                instants.append(coming[0].arrival)
            if self.attempt_at is not None:
                instants.append(self.attempt_at)
            instants += [
                request.arrival + band.timeout
                for band in self.bands
                for request in band.waiting
                if band.timeout is not None
            ]
            now = min(instants)
            done = [o for o in self.inside if o.dispatched + o.tokens * TOKEN_NS == now]
            for request in done:
                self.end(request, "completed", now)
            if done:
                self.news(now)
            if self.attempt_at == now:
                self.attempt(now)
            self.expire(now)
            while coming and coming[0].arrival == now:
                self.admit(coming.pop(0), now)
            self.arrive_at_server(now)
