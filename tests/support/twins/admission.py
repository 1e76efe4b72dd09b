"""A slow reference implementation of admission, with a fleet whose state is simple.

An instance serves one request at a time, first come, first served, each token in one step of the
same length. All instants are whole nanoseconds.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import random

SECOND = 10**9
FIRST_TOKEN, END, TIMEOUT = range(3)


@dataclass
class Class:
    name: str
    priority: int
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


@dataclass(eq=False)
class Request:
    row: int
    arrival: int
    prompt: int
    output: int
    tenant: int
    slo_class: int
    priority: int
    # The outcome.
    outcome: str = "queued"
    dispatched: int | None = None
    instance: int = -1
    start: int = -1
    first_token: int = -1
    end: int = -1


@dataclass
class Fleet:
    """Round robin over instances of one seat."""

    count: int
    step: int
    blocks: int
    block: int = 16
    sent: list[list[Request]] = field(init=False)
    total: int = 0

    def __post_init__(self) -> None:
        self.sent = [[] for _ in range(self.count)]

    def route(self, request: Request, now: int) -> None:
        request.instance = self.total % self.count
        self.total += 1
        others = self.sent[request.instance]
        request.start = max([now, *(other.end for other in others)])
        request.first_token = request.start + self.step
        request.end = request.start + request.output * self.step
        others.append(request)

    def waiting(self, i: int, now: int) -> list[Request]:
        return [request for request in self.sent[i] if now < request.start]

    def running(self, i: int, now: int) -> list[Request]:
        return [request for request in self.sent[i] if request.start <= now < request.end]

    def in_flight(self, i: int, now: int) -> int:
        return sum(now < request.end for request in self.sent[i])

    def effective_load(self, i: int, now: int) -> int:
        return len(self.waiting(i, now)) + len(self.running(i, now)) + self.in_flight(i, now)

    def kv_utilization(self, i: int, now: int) -> float:
        used = sum(
            -(-(request.prompt + (now - request.start) // self.step) // self.block)
            for request in self.running(i, now)
        )
        return used / self.blocks

    def prefill_tokens(self, i: int, now: int) -> int:
        waiting = sum(request.prompt for request in self.waiting(i, now))
        return waiting + sum(
            request.prompt for request in self.running(i, now) if now < request.start + self.step
        )

    def saturation(self, now: int, settings: Any) -> float:
        each = range(self.count)
        if settings.detector == "concurrency":
            in_flight = sum(self.in_flight(i, now) for i in each)
            return in_flight / (settings.max_concurrency * self.count)
        total = 0.0
        for i in each:
            queue = len(self.waiting(i, now)) / settings.queue_depth_threshold
            total += max(queue, self.kv_utilization(i, now) / settings.kv_utilization_threshold)
        return total / self.count


def detector(rng: random.Random) -> dict[str, Any]:
    """Settings of the detectors of `Fleet.saturation`."""
    return {
        "detector": rng.choice(("utilization", "concurrency")),
        "queue_depth_threshold": rng.choice((1, 2, 5)),
        "kv_utilization_threshold": rng.choice((0.8, 0.2)),
        "max_concurrency": rng.choice((2, 5, 10)),
    }


class Rule:
    """The rule of a policy with the settings `c`; the methods are those of `admission.h`.

    `admits` gets the request, the time in ns and the random number of the attempt in [0, 1).
    `prepare` creates the state.
    """

    def __init__(self, c: Any, fleet: Fleet, tenants: list[Any], classes: list[Class]) -> None:
        self.c, self.fleet, self.tenants, self.classes = c, fleet, tenants, classes
        self.prepare()

    def prepare(self) -> None:
        pass

    def admits(self, request: Request, now: int, uniform: float) -> bool:
        raise NotImplementedError

    def commit(self, request: Request, now: int) -> None:
        pass

    def dispatched(self, request: Request, now: int) -> None:
        pass

    def first_token(self, request: Request, now: int) -> None:
        pass

    def finished(self, request: Request, now: int) -> None:
        pass


class Line:
    """Least squares with weights that halve with every `half_life` samples, in one go."""

    def __init__(self, half_life: float) -> None:
        self.half_life = half_life
        self.samples: list[tuple[float, float]] = []

    def at(self, x: float) -> float | None:
        if not self.samples:
            return None
        xs, ys = np.array(self.samples).T
        w = np.exp2(-np.arange(len(xs))[::-1] / self.half_life)
        mean_x, mean_y = np.average(xs, weights=w), np.average(ys, weights=w)
        spread = np.average((xs - mean_x) ** 2, weights=w)
        common = np.average((xs - mean_x) * (ys - mean_y), weights=w)
        slope = common / spread if spread > 1e-12 * np.average(xs**2, weights=w) else 0
        slope = max(slope, 0)
        if mean_y < slope * mean_x:
            return float(x * np.sum(w * xs * ys) / np.sum(w * xs * xs))
        return float(mean_y + slope * (x - mean_x))


class Observing(Rule):
    """Learns the lines of first tokens and of tokens per second."""

    def prepare(self) -> None:
        self.to_first, self.per_token, self.decoding = (
            Line(self.c.half_life_samples) for _ in range(3)
        )
        self.tokens: dict[int, float] = {}
        self.inside: list[Request] = []
        self.began: list[Request] = []

    def commit(self, request: Request, now: int) -> None:
        each = range(self.fleet.count)
        ahead = sum(self.fleet.prefill_tokens(i, now) for i in each) / self.fleet.count
        self.tokens[request.row] = ahead + request.prompt
        self.inside.append(request)

    def first_token(self, request: Request, now: int) -> None:
        self.to_first.samples.append((self.tokens[request.row], (now - request.dispatched) / 1e9))
        self.began.append(request)

    def finished(self, request: Request, now: int) -> None:
        self.inside.remove(request)
        if request.outcome != "completed":
            return
        self.decoding.samples.append((0, (now - request.first_token) / 1e9))
        if request.output > 1:
            # One seat: the stream was alone all the time.
            self.per_token.samples.append(
                (1, (now - request.first_token) / 1e9 / (request.output - 1))
            )

    def streams(self, now: int) -> list[Request]:
        return [request for request in self.began if now < request.end]


class UnclearError(Exception):
    """A verdict depends on the last bits of an estimate."""


def check_clear(value: float, other: float) -> None:
    if abs(value - other) < 1e-9 * abs(other):
        raise UnclearError


class Gateway:
    """One rule, one queue, a fixed number of permits, a timeout."""

    def __init__(self, rule: Rule, permits: int | None, timeout: int | None, seed: int) -> None:
        self.rule, self.fleet, self.seed = rule, rule.fleet, seed
        self.permits, self.timeout = permits, timeout
        self.queue: deque[Request] = deque()
        self.in_flight = 0
        self.events: list[tuple[int, int, int, Request]] = []

    def run(self, requests: list[Request]) -> None:
        instants = [request.arrival for request in requests]
        assert instants == sorted(instants)
        for request in requests:
            self.happen(request.arrival)
            self.arrive(request, request.arrival)
        self.happen(math.inf)

    def arrive(self, request: Request, now: int) -> None:
        bits = np.random.Philox(key=[self.seed, 4], counter=[0, request.row, 0, 0])
        uniform = float(np.random.Generator(bits).random())
        if not self.rule.admits(request, now, uniform):
            request.outcome = "rejected"
            return
        self.rule.commit(request, now)
        self.queue.append(request)
        if self.timeout is not None:
            heapq.heappush(self.events, (now + self.timeout, TIMEOUT, request.row, request))
        self.drain(now)

    def drain(self, now: int) -> None:
        while self.queue and (self.permits is None or self.in_flight < self.permits):
            request = self.queue.popleft()
            self.in_flight += 1
            request.dispatched = now
            self.rule.dispatched(request, now)
            self.fleet.route(request, now)
            heapq.heappush(
                self.events, (request.first_token, FIRST_TOKEN, request.instance, request)
            )
            heapq.heappush(self.events, (request.end, END, request.instance, request))

    def happen(self, until: float) -> None:
        """First tokens, ends, dispatches, timeouts: at one instant in this order."""
        while self.events and self.events[0][0] <= until:
            now, what, _, request = heapq.heappop(self.events)
            assert now != until, "an arrival at the instant of an event"
            if what == FIRST_TOKEN:
                self.rule.first_token(request, now)
            elif what == END:
                self.in_flight -= 1
                request.outcome = "completed"
                self.rule.finished(request, now)
                if not self.events or self.events[0][:2] != (now, END):
                    self.drain(now)
            elif request.dispatched is None:
                self.queue.remove(request)
                request.outcome = "expired"
                self.rule.finished(request, now)
