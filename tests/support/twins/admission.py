"""Slow reference implementations of all admission rules, with a fleet whose state is simple.

An instance serves one request at a time, first come, first served, each token in one step of the
same length. All instants are whole nanoseconds.
"""

# ruff: noqa: ARG002 (rules share one signature)

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spillway._core import sim

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

    def route(self, one: Request, now: int) -> None:
        one.instance = self.total % self.count
        self.total += 1
        others = self.sent[one.instance]
        one.start = max([now, *(other.end for other in others)])
        one.first_token = one.start + self.step
        one.end = one.start + one.output * self.step
        others.append(one)

    def waiting(self, i: int, now: int) -> list[Request]:
        return [one for one in self.sent[i] if now < one.start]

    def running(self, i: int, now: int) -> list[Request]:
        return [one for one in self.sent[i] if one.start <= now < one.end]

    def in_flight(self, i: int, now: int) -> int:
        return sum(now < one.end for one in self.sent[i])

    def effective_load(self, i: int, now: int) -> int:
        return len(self.waiting(i, now)) + len(self.running(i, now)) + self.in_flight(i, now)

    def kv_utilization(self, i: int, now: int) -> float:
        used = sum(
            -(-(one.prompt + (now - one.start) // self.step) // self.block)
            for one in self.running(i, now)
        )
        return used / self.blocks

    def prefill_tokens(self, i: int, now: int) -> int:
        waiting = sum(one.prompt for one in self.waiting(i, now))
        return waiting + sum(
            one.prompt for one in self.running(i, now) if now < one.start + self.step
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

    def admits(self, one: Request, now: int, uniform: float) -> bool:
        raise NotImplementedError

    def commit(self, one: Request, now: int) -> None:
        pass

    def dispatched(self, one: Request, now: int) -> None:
        pass

    def first_token(self, one: Request, now: int) -> None:
        pass

    def finished(self, one: Request, now: int) -> None:
        pass


class SloGated(Rule):
    def admits(self, one: Request, now: int, uniform: float) -> bool:
        if one.priority >= self.c.critical_priority:
            return True
        threshold = self.c.standard_threshold if one.priority >= 0 else self.c.sheddable_threshold
        if threshold is None:
            return True
        queues = [len(self.fleet.waiting(i, now)) for i in range(self.fleet.count)]
        if self.c.signal == "max_waiting":
            return max(queues) < threshold
        if self.c.signal == "total_waiting":
            return sum(queues) <= threshold
        loads = [self.fleet.effective_load(i, now) for i in range(self.fleet.count)]
        return sum(loads) / len(loads) <= threshold


class TierShed(Rule):
    def admits(self, one: Request, now: int, uniform: float) -> bool:
        load = max(self.fleet.effective_load(i, now) for i in range(self.fleet.count))
        return load <= self.c.max_load or one.priority >= self.c.min_priority


class GaieLegacy(Rule):
    def admits(self, one: Request, now: int, uniform: float) -> bool:
        return one.priority >= 0 or self.fleet.saturation(now, self.c) < 1


class Probabilistic(Rule):
    def admits(self, one: Request, now: int, uniform: float) -> bool:
        if one.priority >= 0:
            return True
        s = self.fleet.saturation(now, self.c)
        return uniform >= min(1, self.c.k * sim.pow(s, self.c.power))


class TenantBudget(Rule):
    def prepare(self) -> None:
        shares = {one.tenant: one.share for one in self.c.budgets}
        self.shares = [shares.get(one.name, self.c.default_share) for one in self.tenants]
        self.inside: list[Request] = []

    def admits(self, one: Request, now: int, uniform: float) -> bool:
        share = self.shares[one.tenant]
        if one.priority >= 0 or share is None:
            return True
        in_flight = sum(other.tenant == one.tenant for other in self.inside)
        return in_flight <= share * self.fleet.count

    def dispatched(self, one: Request, now: int) -> None:
        self.inside.append(one)

    def finished(self, one: Request, now: int) -> None:
        if one in self.inside:
            self.inside.remove(one)


class TenantTokenBucket(Rule):
    def prepare(self) -> None:
        own = {one.tenant: one for one in self.c.own}
        weights = sum(one.weight for one in self.tenants if one.name not in own)
        self.capacity, self.refill = [], []
        for one in self.tenants:
            if one.name in own:
                self.capacity.append(own[one.name].capacity_tokens)
                self.refill.append(own[one.name].refill_tokens_per_s)
            else:
                self.capacity.append(one.weight / weights * self.c.capacity_tokens)
                self.refill.append(one.weight / weights * self.c.refill_tokens_per_s)
        self.tokens, self.at = list(self.capacity), [0] * len(self.tenants)
        reserves = {one.slo_class: one.share for one in self.c.reserves}
        self.reserve = [reserves.get(one.name, 0.0) for one in self.classes]

    def admits(self, one: Request, now: int, uniform: float) -> bool:
        i = one.tenant
        gained = (now - self.at[i]) / 1000 * self.refill[i] / 1e6
        self.tokens[i], self.at[i] = min(self.capacity[i], self.tokens[i] + gained), now
        return self.tokens[i] >= one.prompt + self.reserve[one.slo_class] * self.capacity[i]

    def commit(self, one: Request, now: int) -> None:
        self.tokens[one.tenant] -= one.prompt


class EnvoyAdmission(Rule):
    def prepare(self) -> None:
        self.ends: list[tuple[int, bool]] = []
        self.known: set[int] = set()

    def admits(self, one: Request, now: int, uniform: float) -> bool:
        oldest = now - round(self.c.window_s * SECOND)
        recent = [success for at, success in self.ends if at > oldest]
        n, s = len(recent), sum(recent) / self.c.success_threshold
        if n / self.c.window_s < self.c.rps_threshold:
            return True
        probability = max(0, (n - s) / (n + 1)) ** (1 / self.c.aggression)
        return uniform >= min(probability, self.c.max_rejection_probability)

    def first_token(self, one: Request, now: int) -> None:
        if self.c.success == "first_token_in_time":
            target = self.classes[one.slo_class].ttft_s
            in_time = target is None or now - one.arrival <= round(target * SECOND)
            self.ends.append((now, in_time))
            self.known.add(one.row)

    def finished(self, one: Request, now: int) -> None:
        if one.row not in self.known:
            self.ends.append((now, one.outcome == "completed"))


def mix(x: int) -> int:
    """The finalizer of SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


class Dagor(Rule):
    def prepare(self) -> None:
        self.ranks = sorted({one.priority for one in self.classes}, reverse=True)
        self.levels = len(self.ranks) * self.c.user_levels
        self.limit = self.levels - 1
        self.forget(0)

    def forget(self, now: int) -> None:
        self.start = now
        self.arrivals: list[int] = []
        self.admitted = 0
        self.delays: list[float] = []

    def admits(self, one: Request, now: int, uniform: float) -> bool:
        is_over = now - self.start >= round(self.c.window_s * SECOND)
        if is_over or len(self.arrivals) >= self.c.window_requests:
            self.set_limit()
            self.forget(now)
        user = one.tenant if self.c.user == "tenant" else one.row
        turn = int(now / 1e9 / self.c.rotation_s)
        number = mix((mix(user) + turn) % 2**64) % self.c.user_levels
        level = self.ranks.index(one.priority) * self.c.user_levels + number
        self.arrivals.append(level)
        self.admitted += level <= self.limit
        return level <= self.limit

    def set_limit(self) -> None:
        def comes(level: int) -> int:
            return sum(one <= level for one in self.arrivals)

        delay = sum(self.delays) / len(self.delays) if self.delays else 0
        if delay > self.c.threshold_s:
            most = (1 - self.c.decrease) * self.admitted
            fitting = [level for level in range(self.levels) if comes(level) <= most]
            self.limit = min(self.limit, max(fitting, default=-1))
        else:
            least = max(1, (1 + self.c.increase) * self.admitted)
            enough = [level for level in range(-1, self.levels) if comes(level) >= least]
            self.limit = max(self.limit, min(enough, default=self.levels - 1))

    def dispatched(self, one: Request, now: int) -> None:
        if self.c.signal == "queue_delay":
            self.delays.append((now - one.arrival) / 1e9)

    def first_token(self, one: Request, now: int) -> None:
        if self.c.signal == "ttft":
            self.delays.append((now - one.arrival) / 1e9)


class Bouncer(Rule):
    def prepare(self) -> None:
        each = range(len(self.classes))
        self.to_first: list[list[float]] = [[] for _ in each]
        self.to_end: list[list[float]] = [[] for _ in each]
        self.verdicts: list[list[bool]] = [[] for _ in each]
        self.queued: list[Request] = []
        self.in_flight = 0

    def admits(self, one: Request, now: int, uniform: float) -> bool:
        own = self.classes[one.slo_class]
        goes = self.keeps(own.ttft_s, self.to_first[one.slo_class])
        goes = goes and self.keeps(own.e2e_s, self.to_end[one.slo_class])
        latest = self.verdicts[one.slo_class][-self.c.share_requests :]
        goes = goes or sum(latest) < self.c.min_share * (len(latest) + 1)
        self.verdicts[one.slo_class].append(goes)
        return goes

    def keeps(self, target: float | None, times: list[float]) -> bool:
        times = times[-self.c.samples :]
        if target is None or len(times) < self.c.min_samples:
            return True
        work = 0.0
        for k, ends in enumerate(self.to_end):
            count = sum(one.slo_class == k for one in self.queued)
            if count and ends:
                latest = ends[-self.c.samples :]
                work += count * sum(latest) / len(latest)
        wait = work / max(self.in_flight, 1)
        return wait + float(np.quantile(times, self.c.percentile / 100)) <= target

    def commit(self, one: Request, now: int) -> None:
        self.queued.append(one)

    def dispatched(self, one: Request, now: int) -> None:
        self.queued.remove(one)
        self.in_flight += 1

    def first_token(self, one: Request, now: int) -> None:
        self.to_first[one.slo_class].append((now - one.dispatched) / 1e9)

    def finished(self, one: Request, now: int) -> None:
        if one in self.queued:
            self.queued.remove(one)
        else:
            self.in_flight -= 1
            self.to_end[one.slo_class].append((now - one.dispatched) / 1e9)


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

    def commit(self, one: Request, now: int) -> None:
        each = range(self.fleet.count)
        ahead = sum(self.fleet.prefill_tokens(i, now) for i in each) / self.fleet.count
        self.tokens[one.row] = ahead + one.prompt
        self.inside.append(one)

    def first_token(self, one: Request, now: int) -> None:
        self.to_first.samples.append((self.tokens[one.row], (now - one.dispatched) / 1e9))
        self.began.append(one)

    def finished(self, one: Request, now: int) -> None:
        self.inside.remove(one)
        if one.outcome != "completed":
            return
        self.decoding.samples.append((0, (now - one.first_token) / 1e9))
        if one.output > 1:
            # One seat: the stream was alone all the time.
            self.per_token.samples.append((1, (now - one.first_token) / 1e9 / (one.output - 1)))

    def streams(self, now: int) -> list[Request]:
        return [one for one in self.began if now < one.end]


class LatencySlo(Observing):
    def admits(self, one: Request, now: int, uniform: float) -> bool:
        own = self.classes[one.slo_class]
        if one.priority >= 0 or (own.ttft_s is None and own.tpot_s is None):
            return True
        return any(self.takes(one, own, i, now) for i in range(self.fleet.count))

    def takes(self, one: Request, own: Class, i: int, now: int) -> bool:
        if not self.fleet.running(i, now):
            return True
        if self.fleet.kv_utilization(i, now) < self.c.cold_kv_utilization:
            return True
        here = [other for other in self.streams(now) if other.instance == i]
        first = self.to_first.at(self.fleet.prefill_tokens(i, now) + one.prompt)
        token = self.per_token.at(len(here) + 1)
        others = [self.classes[other.slo_class].tpot_s for other in here]
        strictest = own.tpot_s
        if strictest is not None:
            strictest = min([strictest, *(target for target in others if target is not None)])
        return self.keeps(own.ttft_s, first) and self.keeps(strictest, token)

    def keeps(self, target: float | None, predicted: float | None) -> bool:
        if target is None or predicted is None:
            return True
        check_clear(predicted, target * self.c.headroom_factor)
        return predicted <= target * self.c.headroom_factor


class EarlyRejection(Observing):
    def admits(self, one: Request, now: int, uniform: float) -> bool:
        if not self.inside:
            return True
        own, load = self.classes[one.slo_class], 0.0
        ahead = min(self.fleet.prefill_tokens(i, now) for i in range(self.fleet.count))
        first = self.to_first.at(ahead + one.prompt)
        if first is not None and own.ttft_s is not None:
            load = first / own.ttft_s
        streams = self.streams(now)
        lasts = self.c.decode_s if self.c.decode_s is not None else self.decoding.at(0)
        then = len(streams)
        if self.c.decode_load == "predicted":
            at = now / 1e9 + (first or 0)
            if lasts is not None:
                for other in streams:
                    check_clear(other.first_token / 1e9 + lasts, at)
                streams = [o for o in streams if o.first_token / 1e9 + lasts > at]
            then = len(streams) + sum(o not in self.began for o in self.inside)
        token = self.per_token.at((then + 1) / self.fleet.count)
        if token is not None and own.tpot_s is not None:
            load = max(load, token / own.tpot_s)
        check_clear(load, self.c.max_load)
        return load <= self.c.max_load


class UnclearError(Exception):
    """A verdict depends on the last bits of an estimate."""


def check_clear(one: float, other: float) -> None:
    if abs(one - other) < 1e-9 * abs(other):
        raise UnclearError


RULES = {
    rule.__name__: rule
    for rule in (
        SloGated, TierShed, GaieLegacy, Probabilistic, TenantBudget, TenantTokenBucket,
        EnvoyAdmission, Dagor, Bouncer, LatencySlo, EarlyRejection,
    )
}  # fmt: skip


class Gateway:
    """One rule, one queue, a fixed number of permits, a timeout."""

    def __init__(self, rule: Rule, permits: int | None, timeout: int | None, seed: int) -> None:
        self.rule, self.fleet, self.seed = rule, rule.fleet, seed
        self.permits, self.timeout = permits, timeout
        self.queue: deque[Request] = deque()
        self.in_flight = 0
        self.events: list[tuple[int, int, int, Request]] = []

    def run(self, requests: list[Request]) -> None:
        instants = [one.arrival for one in requests]
        assert instants == sorted(instants)
        for one in requests:
            self.happen(one.arrival)
            self.arrive(one, one.arrival)
        self.happen(math.inf)

    def arrive(self, one: Request, now: int) -> None:
        bits = np.random.Philox(key=[self.seed, 4], counter=[0, one.row, 0, 0])
        uniform = float(np.random.Generator(bits).random())
        if not self.rule.admits(one, now, uniform):
            one.outcome = "rejected"
            return
        self.rule.commit(one, now)
        self.queue.append(one)
        if self.timeout is not None:
            heapq.heappush(self.events, (now + self.timeout, TIMEOUT, one.row, one))
        self.drain(now)

    def drain(self, now: int) -> None:
        while self.queue and (self.permits is None or self.in_flight < self.permits):
            one = self.queue.popleft()
            self.in_flight += 1
            one.dispatched = now
            self.rule.dispatched(one, now)
            self.fleet.route(one, now)
            heapq.heappush(self.events, (one.first_token, FIRST_TOKEN, one.instance, one))
            heapq.heappush(self.events, (one.end, END, one.instance, one))

    def happen(self, until: float) -> None:
        """First tokens, ends, dispatches, timeouts: at one instant in this order."""
        while self.events and self.events[0][0] <= until:
            now, what, _, one = heapq.heappop(self.events)
            assert now != until, "an arrival at the instant of an event"
            if what == FIRST_TOKEN:
                self.rule.first_token(one, now)
            elif what == END:
                self.in_flight -= 1
                one.outcome = "completed"
                self.rule.finished(one, now)
                if not self.events or self.events[0][:2] != (now, END):
                    self.drain(now)
            elif one.dispatched is None:
                self.queue.remove(one)
                one.outcome = "expired"
                self.rule.finished(one, now)
