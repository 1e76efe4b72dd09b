"""Slow reference implementation of predictive admission, from the requests' timestamps."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from support.runs import instants_ns, ns

from spillway import Result, Simulation, gateway, instance, router, signals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BLOCK = 16
PRIORITY = {slo_class.name: slo_class.priority for slo_class in Simulation().slo_classes}


# --- what a gateway knows, by the stamps ----------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One request, in nanoseconds; None: it did not come so far."""

    row: int
    slo_class: str
    group: str | None
    prefix_tokens: int
    input_tokens: int
    admitted: bool
    instance: int
    arrived: int
    sent: int | None
    scheduled: int | None
    first: int | None
    ended: int | None
    lost: int | None

    @property
    def priority(self) -> int:
        return PRIORITY[self.slo_class]


def ways(
    result: Result, groups: list[str | None], prefix_tokens: list[int], timeout_s: float | None
) -> list[Way]:
    requests = result.requests
    arrived = ns(requests["arrival_s"])
    spans = ("queue_s", "scheduling_delay_s", "ttft_s", "e2e_s")
    expired = requests["outcome"] == "expired"
    timeout = round((timeout_s or 0) * 1e9)
    return [
        Way(*columns)
        for columns in zip(
            range(len(arrived)),
            requests["slo_class"].tolist(),
            groups,
            prefix_tokens,
            requests["input_tokens"].tolist(),
            requests["admitted"].astype(bool).tolist(),
            requests["instance"].tolist(),
            arrived,
            *(instants_ns(result, span) for span in spans),
            [
                at + timeout if is_late else None
                for at, is_late in zip(arrived, expired, strict=True)
            ],
            strict=True,
        )
    ]


def before(instant: int | None, now: int) -> bool:
    return instant is not None and instant < now


@dataclass
class Twin:
    """The policy as documented, called in order of arrival."""

    simulation: Simulation
    them: list[Way]
    seed: int
    margin_s: float = 0.0
    regression: Any = None
    open: dict[int, tuple[float, int, list[float]]] = field(default_factory=dict)
    learnt: int = -1  # up to this instant
    passed: int = 0
    total: int = 0
    groups: dict[str, dict[str, float]] = field(default_factory=dict)
    rejected: int = 0  # in a row

    def __post_init__(self) -> None:
        (self.policy,) = self.simulation.gateway.admission
        self.count = sum(group.count for group in self.simulation.instances)
        self.fleet = self.simulation.instances[0]
        self.routed_to: defaultdict[int, list[Way]] = defaultdict(list)
        for way in self.them:
            self.routed_to[way.instance].append(way)
        self.served: dict[tuple[int, int], list[Way]] = {}

    # Knowledge at an instant.

    def sent_to(self, i: int, now: int) -> Iterator[Way]:
        return (way for way in self.routed_to[i] if before(way.sent, now))

    def awaiting(self, i: int, now: int) -> list[Way]:
        return [way for way in self.sent_to(i, now) if not before(way.first, now)]

    def in_flight(self, i: int, now: int) -> list[Way]:
        if (i, now) not in self.served:
            self.served[i, now] = [
                way for way in self.sent_to(i, now) if way.ended is None or way.ended > now
            ]
        return self.served[i, now]

    def uncached(self, way: Way, i: int, now: int) -> int:
        if way.group is None:
            return way.input_tokens
        known = any(
            other.group == way.group and (other.sent, other.row) < (now, way.row)
            for other in self.sent_to(i, now + 1)
        )
        return way.input_tokens - (way.prefix_tokens // BLOCK * BLOCK if known else 0)

    def fewest(self, way: Way) -> int:
        return min(self.uncached(way, i, way.arrived) for i in range(self.count))

    def queued(self, way: Way) -> list[Way]:
        now = way.arrived
        return [
            other
            for other in self.them[: way.row]
            if other.admitted and not before(other.sent, now) and not before(other.lost, now)
        ]

    def is_ahead(self, other: Way, way: Way) -> bool:
        return self.policy.ahead == "all" or other.priority >= way.priority

    def measured(self, now: int) -> int:
        if not isinstance(self.simulation.signals, signals.Scraped):
            return now
        period = round(self.simulation.signals.period_s * 1e9)
        return now // period * period

    def waiting(self, i: int, at: int) -> int:
        sent = (way for way in self.them if way.instance == i and way.sent is not None)
        return sum(way.sent < at and (way.scheduled or 10**18) > at for way in sent)

    def news(self, i: int, now: int) -> int:
        instants = []
        for way in self.sent_to(i, now):
            assert way.sent is not None
            if not self.in_flight(i, way.sent):
                instants.append(way.sent)
            instants += [at for at in (way.first, way.ended) if at is not None and at < now]
        return max(instants)

    def releases(self, i: int, now: int) -> tuple[float, int | None]:
        """Mean gap in s and the last release of this busy period."""
        events = []
        for way in self.sent_to(i, now):
            events.append((way.sent, 1, way))
            if before(way.ended, now):
                events.append((way.ended, 0, way))
        gap_s, last = 0.0, None
        for at, kind, _ in sorted(events, key=lambda event: event[:2]):
            if kind == 1:
                last = last if self.in_flight(i, at) else None
                continue
            if last is not None:
                gap_s += (1 if gap_s == 0 else 0.1) * ((at - last) / 1e9 - gap_s)
            last = at
        return gap_s, last

    # The estimate.

    def rest_s(self, i: int, step_s: float, now: int) -> float:
        step = int(step_s * 1e9 + 0.5)
        if not step or not self.in_flight(i, now):
            return 0.0
        return (step - (now - self.news(i, now)) % step) / 1e9

    def estimate(self, way: Way, i: int) -> tuple[float, list[float]]:
        policy, now = self.policy, way.arrived
        queued = self.queued(way)
        uncached = self.uncached(way, i, now)
        prefill_s = (policy.beta0_us + policy.beta_prefill_us * uncached) / 1e6
        if policy.estimator == "queue_depth":
            seen = self.measured(now)
            depth: float = self.waiting(i, seen)
            if policy.corrects_staleness:
                depth += sum(other.sent > seen for other in self.awaiting(i, now))
                depth += len(queued) / self.count
            return depth * policy.avg_step_s + prefill_s, []
        queued = [other for other in queued if self.is_ahead(other, way)]
        ahead = [other for other in self.awaiting(i, now) if self.is_ahead(other, way)]
        requests = len(ahead) + len(queued) / self.count
        if policy.estimator == "priority_aware":
            return (
                self.rest_s(i, policy.avg_step_s, now) + requests * policy.avg_step_s + prefill_s,
                [],
            )
        tokens = sum(self.uncached(other, i, other.sent or 0) for other in ahead)
        tokens_ahead = tokens + sum(self.fewest(other) for other in queued) / self.count
        decodes = len(self.in_flight(i, now)) - len(self.awaiting(i, now))
        x = [1, 1e-3 * uncached, 1e-3 * tokens_ahead, 1e-2 * decodes]
        if policy.calibration.forgetting:
            found_s = float(self.regression.theta @ np.array(x))
        else:
            step_us = policy.beta0_us + policy.beta_decode_us * decodes
            room = max(self.fleet.max_num_batched_tokens - decodes, 1)
            steps = max(math.ceil((tokens_ahead + uncached) / room), 1)
            found_s = (
                self.rest_s(i, step_us / 1e6, now)
                + (steps * step_us + policy.beta_prefill_us * (tokens_ahead + uncached)) / 1e6
            )
        if policy.estimator == "seats_and_memory":
            need = requests + decodes - self.fleet.max_num_seqs + 1
            gap_s, last = self.releases(i, now)
            if need > 0 and gap_s:
                passed_s = (now - last) / 1e9 if last is not None else 0
                found_s += max(need * gap_s - passed_s, 0)
        return found_s, x

    def routed(self, way: Way) -> int:
        """Where the router would send it as it arrives."""
        if way.sent == way.arrived:
            return way.instance
        assert isinstance(self.simulation.router, router.RoundRobin), "its choice is known"
        return sum(before(other.sent, way.arrived) for other in self.them) % self.count

    # Learning, in order of time.

    def learn(self, now: int) -> None:
        news = []
        for way in self.them:
            at = way.lost if way.first is None else way.first
            if at is not None and self.learnt < at < now:
                news.append((at, *self.place(way), way))
        self.learnt = now - 1
        for at, *_, way in sorted(news, key=lambda event: event[:-1]):
            estimate_s, best, x = self.open.pop(way.row)
            is_protected = (
                self.policy.protected_priority is not None
                and way.priority >= self.policy.protected_priority
            )
            kept = (at - way.arrived) / 1e9 <= estimate_s + self.margin_s
            # A lost request does not show whether it would have kept within the estimate.
            is_told = way.first is not None or not kept
            if self.policy.margin.quantile and not is_protected and is_told:
                self.margin_s += self.policy.margin.step_s * (self.policy.margin.quantile - kept)
            if way.first is not None and self.regression and way.instance == best:
                self.regression.update(np.array(x), (way.first - way.sent) / 1e9)

    def place(self, way: Way) -> tuple[int, int, int, int]:
        """Order of events at one instant: instances, and their batches in order of entry."""
        by_priority = not isinstance(self.fleet.scheduler, instance.Fcfs)
        rank = -way.priority if by_priority else 0
        return (way.instance, way.scheduled or 0, rank, way.row)

    # The verdict.

    def admits(self, way: Way) -> bool:
        policy, cold, now = self.policy, self.policy.cold_start, way.arrived
        self.learn(now)
        if policy.calibration.forgetting and self.regression is None:
            self.regression = Regression(policy, self.fleet.max_num_batched_tokens)
        priced = [self.routed(way)] if policy.instance == "routed" else range(self.count)
        estimates = [(*self.estimate(way, i), i) for i in priced]
        estimate_s, x, best = min(estimates, key=lambda estimate: estimate[0])
        is_protected = (
            policy.protected_priority is not None and way.priority >= policy.protected_priority
        )
        budgets = {budget.slo_class: budget.budget_s for budget in policy.budgets}
        targets = {
            slo_class.name: slo_class.target_ttft_s for slo_class in self.simulation.slo_classes
        }
        limit_s = budgets.get(way.slo_class, targets[way.slo_class] or math.inf) * policy.headroom
        if cold.warming_share:
            blocks = way.input_tokens // BLOCK
            match = (blocks - self.fewest(way) // BLOCK) / max(blocks, 1)
            if match >= cold.warming_match:
                limit_s *= 1 - cold.warming_share
        passes = is_protected or estimate_s + self.margin_s <= limit_s
        passed = None
        if not passes and way.group and self.passed <= cold.largest_share * self.total:
            passed = self.passes(self.known(way.group, now), now)
        admits = passes or passed is not None
        if not admits and policy.exploration:
            draws = np.random.Philox(key=[self.seed, 4], counter=[0, way.row, 0, 0])
            admits = np.random.Generator(draws).random() < policy.exploration
        if not admits and (policy.calibration.forgetting or policy.margin.quantile):
            # A probe, if no admitted request awaits its first token.
            admits = self.rejected >= 20 and not self.open
        self.rejected = 0 if admits else self.rejected + 1
        if admits:
            self.total += 1
            self.passed += passed is not None
            self.open[way.row] = (estimate_s, best, x)
            if way.group:
                record = self.known(way.group, now)
                record["admitted"] += 1
                record["last"] = now
                if passed == "floor":
                    record["tokens"], record["at"] = self.tokens(record, now) - 1, now
                self.groups[way.group] = record
        return admits

    def known(self, group: str, now: int) -> dict[str, float]:
        cold = self.policy.cold_start
        record = self.groups.get(group)
        if record is None or now - record["last"] >= cold.group_memory_s * 1e9:
            return {"admitted": 0, "last": now, "tokens": cold.floor_burst, "at": now}
        return record

    def tokens(self, group: Mapping[str, float], now: int) -> float:
        cold = self.policy.cold_start
        return min(cold.floor_burst, group["tokens"] + cold.floor_per_s * (now - group["at"]) / 1e9)

    def passes(self, group: Mapping[str, float], now: int) -> str | None:
        cold = self.policy.cold_start
        if group["admitted"] < cold.bonus_requests:
            return "bonus"
        return "floor" if cold.floor_per_s and self.tokens(group, now) >= 1 else None


class Regression:
    """Weighted least squares over all observations, solved anew with each; none is negative."""

    def __init__(self, policy: gateway.PredictiveTtft, tokens_per_step: int) -> None:
        per_token = policy.beta_prefill_us + policy.beta0_us / tokens_per_step
        self.first = self.theta = np.array(
            [
                policy.beta0_us / 1e6,
                policy.beta_prefill_us / 1e3,
                per_token / 1e3,
                policy.beta_decode_us / 1e4,
            ]
        )
        self.rules = policy.calibration
        self.x: list[Any] = []
        self.y: list[float] = []
        self.weight = self.mean_square = 0.0

    def update(self, x: Any, y: float) -> None:
        error = y - float(self.theta @ x)
        usual = self.rules.outlier_sigmas * math.sqrt(self.mean_square)
        is_outlier = len(self.y) >= 20 and abs(error) > usual
        self.weight = self.rules.forgetting * self.weight + 1
        self.mean_square += (error**2 - self.mean_square) / self.weight
        if is_outlier:
            return
        self.x.append(x)
        self.y.append(y)
        remains = self.rules.forgetting ** np.arange(len(self.y) - 1, -1, -1)
        # The weight of the configured coefficients, which count as one observation each.
        forgotten = self.rules.forgetting ** len(self.y)
        kept = len(self.first) / self.rules.largest_trace * (1 - forgotten)
        weight = math.sqrt(forgotten / self.rules.initial_variance + kept)
        rows = np.vstack([np.sqrt(remains)[:, None] * np.array(self.x), weight * np.eye(4)])
        self.theta = nonnegative(rows, np.append(np.sqrt(remains) * self.y, weight * self.first))


def nonnegative(rows: Any, values: Any) -> Any:
    """The best non-negative solution: that of the best set of coefficients that are not 0."""
    best, least = np.zeros(4), float(values @ values)
    for size in range(1, 5):
        for chosen in itertools.combinations(range(4), size):
            solution = np.zeros(4)
            solution[list(chosen)] = np.linalg.lstsq(rows[:, chosen], values, rcond=None)[0]
            distance = float(((rows @ solution - values) ** 2).sum())
            if solution.min() >= 0 and distance < least:
                best, least = solution, distance
    return best
