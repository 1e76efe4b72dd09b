"""Slow reference implementation of instances that crash, hang and slow down.

Several instances of `support.twins.instance` behind a gateway without a limit, which sends requests
to those that are ready, in turn, and those whose instance fails to another one; clients that wait
and try again. From the contract in `cpp/instance/README.md`, "Faults" and "Migration". All times
are integer nanoseconds.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from support.twins.instance import Outcome, Request, Server, _Instance, _Live

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.twins.instance import _Part, _Scheduled, _Step

# The order of events of one instant.
STEP_END, REACTION, FAULT, ARRIVAL, RETRY, ROUTING, INGRESS = range(7)


@dataclass(frozen=True)
class Fault:
    at_ns: int
    kind: str
    instance: int
    for_ns: int | None = None
    factor: float = 2
    cached_only: bool = False


@dataclass
class Report:
    """What became of a fault."""

    kind: str
    instance: int
    began_ns: int
    detected_ns: int | None = None
    ended_ns: int | None = None
    lost_requests: int = 0
    lost_tokens: int = 0
    lost_ns: int = 0
    migrated_requests: int = 0
    preempted_requests: int = 0


@dataclass(frozen=True)
class Fleet:
    servers: Sequence[Server] = ()
    detected_after_ns: int = 0
    swallows: bool = False
    startup_ns: int = 0
    reported_after_ns: int | None = None
    timeout_ns: int | None = None
    wait_ns: int = 0
    max_attempts: int = 1
    retries_on: tuple[str, ...] = ("timeout", "instance_lost")
    migration_limit: int = 0
    migration_max_seq_len: int | None = None
    migrates_answered: bool = True


@dataclass(eq=False)
class _Leg(_Live):
    """A request in an instance, which may have begun in another one."""

    broken: int = 0  # its tokens in KV memory that were lost with instances, until it is scheduled
    recomputed: int = 0


@dataclass(eq=False)
class Job:
    """A request, and its current attempt."""

    row: int
    request: Request
    live: _Leg = field(init=False)
    attempts: int = 0
    outcome: str = "pending"
    reason: str = ""
    where: str = ""  # of the attempt: queued, in_transit, held, inside, or empty
    instance: int = -1
    arrival_ns: int = 0
    dispatched_ns: int | None = None
    is_late: bool = False
    # Of the attempt:
    migrations: int = 0
    recomputed: int = 0
    migrates_as: str = ""  # while it has lost its instance and has no other yet
    stamps: tuple[int | None, int | None] | None = None  # of the leg with its first token
    is_sent: bool = False  # to an instance
    owed: int | None = None  # tokens that it has lost, until it is served as far as before
    most_owed: int = 0
    failure_ns: int = 0


class Condition:
    """Whether something that may fail works, and what is known of that."""

    def __init__(self) -> None:
        self.index = 0
        self.state = "up"
        self.is_known = False
        self.factor = 1.0
        self.life = 0
        self.speed = 0
        self.reported_ns: int | None = None
        self.stands_since: int | None = None
        self.held: list[Any] = []
        self.failure: Report | None = None
        self.slowdown: Report | None = None


def slowed_ns(instance: _Instance, batch: list[_Scheduled], factor: float) -> int:
    """The duration of a step that takes `factor` times as long."""
    server = instance.server
    step_us = server.curve.step_us(batch) if server.curve else instance.linear_us(batch)
    step_us = step_us * factor
    if server.output_overhead == "in_step" and any(part.emits for part in batch):
        step_us = step_us + server.alpha_output_us
    return max(1, instance.truncate_ticks(step_us)) * server.quantum_ns


class _Failing(Condition, _Instance):
    """An instance that may fail."""

    def __init__(self, server: Server) -> None:
        Condition.__init__(self)
        _Instance.__init__(self, server)
        self.left: list[_Live] = []  # withdrawn, in this order
        self.kv_losses: list[bool] = []  # that take place with the end of the step: `cached_only`

    def leave(self, live: _Live, now_ns: int) -> None:
        super().leave(live, now_ns)
        self.left.append(live)

    def lose_kv(self, cached_only: bool) -> tuple[int, int]:
        """The memory loses its content; the requests of the batch, and their tokens in it."""
        batch = [] if cached_only else self.running
        held = len(batch), sum(live.computed for live in batch)
        self.kv_losses.append(cached_only)
        if self.step is None:
            self.empty_memory()
        return held

    def empty_memory(self) -> None:
        if False in self.kv_losses:
            for live in reversed(list(self.running)):
                self.preempt(live)
            self.plan.clear()
        if self.kv_losses:
            for block in self.free:
                if self.registry.get(block.identity) is block:
                    del self.registry[block.identity]
                block.identity = None
        self.kv_losses.clear()

    def end_step(self) -> None:
        super().end_step()
        self.empty_memory()

    def admit(self, live: _Live, budget: int) -> _Part | None:
        part = super().admit(live, budget)
        if part is not None:
            assert isinstance(live, _Leg)
            live.recomputed += max(0, live.broken - live.computed)
            live.broken = 0
        return part

    def duration_ns(self, batch: list[_Scheduled]) -> int:
        return slowed_ns(self, batch, self.factor)

    def lose_all(self, now_ns: int) -> list[_Live]:
        """The process ends: those that were inside, the batch first."""
        self.order_waiting()
        inside = [*self.running, *self.limbo, *self.waiting]
        for live in inside:
            assert isinstance(live, _Leg)
            live.broken = max(live.broken, live.computed if live.lost is None else live.lost)
            self.leave(live, now_ns)
        for names in (self.waiting, self.running, self.limbo, self.leaving, self.plan, self.batch):
            names.clear()  # type: ignore[attr-defined]
        self.step = None
        self.kv_losses.clear()
        self.stands_since = None
        self.free.clear()
        self.registry.clear()
        self.left.clear()
        fresh = _Instance(self.server)
        self.free.extend(fresh.free)
        self.factor = 1.0
        return inside


class Health:
    """When instances fail, return, and are missed: from faults that are scheduled."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.reports: list[Report] = []
        self.seen: Counter[str] = Counter()

    def push_timer(self, at_ns: int, one: Condition, subject: Any) -> None:
        raise NotImplementedError

    def lose_inside(self, one: Condition, now_ns: int) -> None:
        raise NotImplementedError

    def lose_kv(self, one: Condition, cached_only: bool) -> tuple[int, int]:
        raise NotImplementedError

    def fail_held(self, one: Condition, now_ns: int) -> None:
        raise NotImplementedError

    def enter_held(self, one: Condition, now_ns: int) -> None:
        raise NotImplementedError

    def stand(self, one: Condition) -> None:
        raise NotImplementedError

    def walk_on(self, one: Condition, stood_ns: int) -> None:
        raise NotImplementedError

    def dispatch(self, now_ns: int) -> None:
        raise NotImplementedError

    def push_fault(self, at_ns: int, one: Condition, kind: str, mark: int) -> None:
        self.push_timer(at_ns, one, (kind, None, mark))

    def report(self, fault: Fault, now_ns: int) -> Report:
        self.reports.append(Report(fault.kind, fault.instance, now_ns))
        self.seen[fault.kind] += 1
        return self.reports[-1]

    @staticmethod
    def lose(one: Condition, requests: int, tokens: int = 0, span_ns: int = 0) -> None:
        assert one.failure is not None
        one.failure.lost_requests += requests
        one.failure.lost_tokens += tokens
        one.failure.lost_ns += span_ns

    def begin(self, fault: Fault, one: Condition, now_ns: int) -> None:
        end_ns = None if fault.for_ns is None else now_ns + fault.for_ns
        if fault.kind == "crash" and one.state != "down":
            self.seen[f"crash while {one.state}"] += 1
            one.failure = self.report(fault, now_ns)
            self.crash(one, end_ns, now_ns)
            if one.is_known:
                one.failure.detected_ns = now_ns
            elif self.fleet.detected_after_ns == 0:
                self.detect(one, now_ns)
            else:
                at_ns = now_ns + self.fleet.detected_after_ns
                self.push_fault(at_ns, one, "detected", one.life)
        elif fault.kind == "hang" and one.state == "up":
            one.life += 1
            one.failure = self.report(fault, now_ns)
            one.state = "hung"
            one.stands_since = now_ns
            self.stand(one)
            if one.reported_ns is not None and one.reported_ns <= now_ns:
                one.reported_ns = None  # of an earlier failure
            if end_ns is not None:
                self.push_fault(end_ns, one, "goes_on", one.life)
            if self.fleet.detected_after_ns == 0:
                self.detect(one, now_ns)
            else:
                at_ns = now_ns + self.fleet.detected_after_ns
                self.push_fault(at_ns, one, "detected", one.life)
        elif fault.kind == "slowdown" and one.state != "down":
            self.restore_speed(one, now_ns)
            one.slowdown = self.report(fault, now_ns)
            one.factor = fault.factor
            if end_ns is not None:
                self.push_fault(end_ns, one, "has_speed", one.speed)

        elif fault.kind == "kv_loss" and one.state in ("up", "hung"):
            loss = self.report(fault, now_ns)
            loss.ended_ns = now_ns
            loss.preempted_requests, loss.lost_tokens = self.lose_kv(one, fault.cached_only)

    def restore_speed(self, one: Condition, now_ns: int) -> None:
        one.speed += 1
        one.factor = 1.0
        if one.slowdown is not None:
            one.slowdown.ended_ns = now_ns
            one.slowdown = None

    def crash(self, one: Condition, restart_ns: int | None, now_ns: int) -> None:
        one.life += 1
        one.reported_ns = None
        self.restore_speed(one, now_ns)
        one.state = "down"
        self.lose_inside(one, now_ns)
        self.fail_held(one, now_ns)
        if restart_ns is not None:
            self.push_fault(restart_ns, one, "restarts", one.life)

    def detect(self, one: Condition, now_ns: int) -> None:
        assert one.failure is not None
        was_reported = one.reported_ns is not None and one.reported_ns <= now_ns
        if one.state == "up" or (one.state != "hung" and was_reported):
            self.seen["not missed"] += 1
            return
        self.seen["hang overtakes a report"] += was_reported
        one.failure.detected_ns = now_ns
        if one.state == "hung":
            self.seen["killed"] += 1
            self.crash(one, now_ns, now_ns)
        one.is_known = True
        if one.state == "down":
            self.fail_held(one, now_ns)

    def handle_fault(self, one: Condition, subject: tuple[str, Any, int], now_ns: int) -> None:
        kind, fault, mark = subject
        startup_ns = self.fleet.startup_ns
        if kind == "begins":
            self.begin(fault, one, now_ns)
        elif kind == "has_speed":
            if mark == one.speed:
                self.restore_speed(one, now_ns)
        elif mark != one.life:
            self.seen["overtaken"] += 1
        elif kind == "restarts":
            one.state = "loading"
            reported_ns = self.fleet.reported_after_ns
            one.reported_ns = now_ns + (startup_ns if reported_ns is None else reported_ns)
            self.fail_held(one, now_ns)
            self.push_fault(now_ns + startup_ns, one, "serves", one.life)
            self.push_fault(one.reported_ns, one, "reported", one.life)
        elif kind == "serves":
            one.state = "up"
            assert one.failure is not None
            one.failure.ended_ns = now_ns
            self.enter_held(one, now_ns)
        elif kind == "reported":
            one.is_known = False
        elif kind == "detected":
            self.detect(one, now_ns)
        elif kind == "goes_on":
            assert one.failure is not None
            assert one.stands_since is not None
            one.state = "up"
            if one.is_known and one.reported_ns is not None:
                self.push_fault(max(now_ns, one.reported_ns), one, "reported", one.life)
            one.failure.ended_ns = now_ns
            self.walk_on(one, now_ns - one.stands_since)
            one.stands_since = None
            self.seen["went on"] += 1
            self.enter_held(one, now_ns)
        self.dispatch(now_ns)


class Failures(Health):
    """The run of a fleet whose instances fail."""

    def __init__(self, fleet: Fleet, faults: Sequence[Fault]) -> None:
        super().__init__(fleet)
        self.instances = [_Failing(server) for server in fleet.servers]
        for index, instance in enumerate(self.instances):
            instance.index = index
        self.events: list[tuple[int, int, int, int, Any]] = []
        self.serial = 0
        self.turn = 0
        self.queue: list[Job] = []
        self.jobs: list[Job] = []
        self.migrations: Counter[str] = Counter()
        for fault in faults:
            self.push(fault.at_ns, FAULT, 1 + fault.instance, ("begins", fault, 0))

    def push(self, at_ns: int, phase: int, tie: int, subject: Any) -> None:
        self.serial += 1
        heapq.heappush(self.events, (at_ns, phase, tie, self.serial, subject))

    # The way of a request

    def arrive(self, job: Job, now_ns: int) -> None:
        job.attempts += 1
        job.arrival_ns = now_ns
        job.dispatched_ns = None
        job.outcome, job.reason = "pending", ""
        job.is_late = False
        job.migrations, job.recomputed, job.stamps = 0, 0, None
        job.is_sent, job.owed, job.most_owed, job.failure_ns = False, None, 0, 0
        job.live = _Leg(replace(job.request, arrival_ns=now_ns), Outcome())
        if self.fleet.timeout_ns is not None:
            at_ns = now_ns + self.fleet.timeout_ns
            self.push(at_ns, REACTION, job.row, (job, job.attempts))
        job.where = "queued"
        self.queue.append(job)
        self.dispatch(now_ns)

    def ready(self) -> list[int]:
        return [i for i, instance in enumerate(self.instances) if not instance.is_known]

    def dispatch(self, now_ns: int) -> None:
        while self.queue and self.ready():
            job = self.queue.pop(0)
            job.dispatched_ns = now_ns
            job.where = "in_transit"
            self.push(now_ns, ROUTING, 0, job)

    def route(self, job: Job, now_ns: int) -> None:
        ready = self.ready()
        if job.migrates_as:
            ready = [i for i in ready if i != job.instance]
            if not ready:
                self.seen["no other instance"] += 1
                job.migrates_as = ""
                return self.leave_system(job, "failed", "instance_lost", now_ns)
            job.migrations += 1
            self.lost_by(job).migrated_requests += 1
            self.migrations[job.migrates_as] += 1
            job.migrates_as = ""
        job.instance = ready[self.turn % len(ready)]
        job.is_sent = True
        self.turn += 1
        at_ns = now_ns + self.instances[job.instance].entry_delay_ns(job.request)
        self.push(at_ns, INGRESS, job.instance, (job, job.attempts))
        return None

    def enter(self, job: Job, now_ns: int) -> None:
        one = self.instances[job.instance]
        if one.state == "down" and (one.is_known or not self.fleet.swallows):
            self.lose(one, 1)
            self.seen["refused"] += 1
            return self.end(job, "failed", "instance_lost", now_ns)
        if one.state != "up":
            job.where = "held"
            one.held.append(job)
            self.seen["held " + one.state] += 1
        else:
            job.where = "inside"
            one.enter_queue(job.live, now_ns)
            if job.live.outcome.outcome == "rejected":
                return self.end(job, "rejected", "unservable", now_ns)
            if job.owed == 0:
                job.owed = None
        if job.is_late:
            self.withdraw(job, now_ns)
        return None

    def withdraw(self, job: Job, now_ns: int) -> None:
        job.is_late = True
        one = self.instances[job.instance]
        if job.where == "queued":
            self.queue.remove(job)
            self.end(job, "cancelled", "client_timeout", now_ns)
        elif job.where == "held":
            one.held.remove(job)
            self.seen["left while held"] += 1
            self.end(job, "cancelled", "client_timeout", now_ns)
        elif job.where == "inside":
            one.cancel(job.live, now_ns)
            if one.stands_since is not None:
                self.seen["left while hung"] += 1
                one.take_out_leaving(now_ns)
            self.collect(one, now_ns)

    def job_of(self, live: _Live) -> Job:
        return next(job for job in self.jobs if job.where == "inside" and job.live is live)

    def collect(self, one: _Failing, now_ns: int) -> None:
        """Ends the attempts that have left the instance."""
        left, one.left = one.left, []
        for live in left:
            self.end(self.job_of(live), "cancelled", "client_timeout", now_ns)
        for job in self.jobs:
            if job.where == "inside" and job.live.outcome.outcome == "completed":
                self.end(job, "completed", "", now_ns)

    def may_migrate(self, job: Job) -> bool:
        fleet = self.fleet
        if job.is_late or job.migrations == fleet.migration_limit:
            self.seen["above the limit"] += 0 < job.migrations == fleet.migration_limit
            return False
        if job.live.emitted > 0 and not fleet.migrates_answered:
            self.seen["answered"] += 1
            return False
        longest = fleet.migration_max_seq_len
        if longest is not None and job.live.known > longest:
            self.seen["too long"] += 1
            return False
        return True

    def migrate(self, job: Job, now_ns: int) -> None:
        """The request goes on elsewhere: what it has emitted belongs to its prompt there."""
        old = job.live
        stamps = old.outcome
        was_inside = stamps.enqueued_ns is not None
        job.migrates_as = "ongoing_request" if was_inside else "new_request"
        self.seen["migrated with tokens"] += old.emitted > 0
        self.seen["migrated again"] += job.migrations > 0
        if old.emitted > 0 and job.stamps is None:
            job.stamps = (stamps.enqueued_ns, stamps.scheduled_ns)
        stamps.outcome = "pending"
        stamps.enqueued_ns = stamps.scheduled_ns = stamps.cancelled_ns = None
        job.live = _Leg(
            old.request,
            stamps,
            emitted=old.emitted,
            last_token_ns=old.last_token_ns,
            broken=old.broken,
            recomputed=old.recomputed,
        )
        job.is_sent = False
        self.seen["lost while behind"] += job.owed is not None
        job.owed = max(job.most_owed, old.broken)
        job.most_owed = job.owed
        job.where = "in_transit"
        self.push(now_ns, ROUTING, 0, job)

    def end(self, job: Job, outcome: str, reason: str, now_ns: int) -> None:
        if reason == "instance_lost" and self.may_migrate(job):
            self.migrate(job, now_ns)
        else:
            self.leave_system(job, outcome, reason, now_ns)

    def leave_system(self, job: Job, outcome: str, reason: str, now_ns: int) -> None:
        if outcome == "completed" and job.stamps is not None:
            job.live.outcome.enqueued_ns, job.live.outcome.scheduled_ns = job.stamps
        job.where = ""
        job.outcome, job.reason = outcome, reason
        cause = {"client_timeout": "timeout"}.get(reason, reason)
        if cause in self.fleet.retries_on and job.attempts < self.fleet.max_attempts:
            self.push(now_ns + self.fleet.wait_ns, RETRY, 0, job)

    def lost_by(self, job: Job) -> Report:
        report = self.instances[job.instance].failure
        assert report is not None
        return report

    # What the instances do

    def push_timer(self, at_ns: int, one: Condition, subject: Any) -> None:
        self.push(at_ns, FAULT, 1 + one.index, subject)

    def lose_inside(self, one: Condition, now_ns: int) -> None:
        assert isinstance(one, _Failing)
        wasted = one.wasted
        for live in one.lose_all(now_ns):
            job = self.job_of(live)
            if live.leaves:
                self.seen["left with the process"] += 1
                self.end(job, "cancelled", "client_timeout", now_ns)
                continue
            enqueued_ns = live.outcome.enqueued_ns
            assert enqueued_ns is not None
            self.lose(one, 1, 0, now_ns - enqueued_ns)
            self.seen["lost"] += 1
            self.seen["lost in the batch"] += live.emitted > 0
            self.end(job, "failed", "instance_lost", now_ns)
        self.lose(one, 0, one.wasted - wasted)

    def lose_kv(self, one: Condition, cached_only: bool) -> tuple[int, int]:
        return self.instances[one.index].lose_kv(cached_only)

    def fail_held(self, one: Condition, now_ns: int) -> None:
        held, one.held = one.held, []
        for job in held:
            self.lose(one, 1)
            self.seen["swallowed"] += 1
            self.end(job, "failed", "instance_lost", now_ns)

    def enter_held(self, one: Condition, now_ns: int) -> None:
        held, one.held = one.held, []
        for job in held:
            self.enter(job, now_ns)

    def stand(self, one: Condition) -> None:
        assert isinstance(one, _Failing)
        self.seen["hang in a step"] += one.step is not None

    def walk_on(self, one: Condition, stood_ns: int) -> None:
        assert isinstance(one, _Failing)
        if one.step is not None:
            one.step.duration_ns += stood_ns
            self.push(one.step.end_ns, STEP_END, one.index, one.step)

    # Time

    def run(self, requests: Sequence[Request]) -> list[Job]:
        self.jobs = [Job(row, request) for row, request in enumerate(requests)]
        for job in self.jobs:
            self.push(job.request.arrival_ns, ARRIVAL, 0, job)
        past_ns = 0
        while self.events:
            now_ns = self.events[0][0]
            self.charge(now_ns - past_ns)
            past_ns = now_ns
            while self.events and self.events[0][0] == now_ns:
                _, phase, tie, _, subject = heapq.heappop(self.events)
                self.take(phase, tie, subject, now_ns)
            self.start_steps(now_ns)
        for job in self.jobs:
            if job.where:
                job.outcome = {"inside": "running", "held": "running"}.get(job.where, job.where)
        return self.jobs

    def charge(self, span_ns: int) -> None:
        """Adds the time to the requests whose instance has failed."""
        for job in self.jobs:
            stands = job.is_sent and self.instances[job.instance].state != "up"
            if job.where in ("in_transit", "held", "inside") and (stands or job.owed is not None):
                job.failure_ns += span_ns

    def catch_up(self, step: _Step) -> None:
        """The requests that the step brings as far as before they lost their instances."""
        for part in step.batch:
            for job in self.jobs:
                is_there = job.where == "inside" and job.live is part.live
                computed = part.computed_before + part.tokens
                if is_there and job.owed is not None and computed >= job.owed:
                    job.owed = None

    def take(self, phase: int, tie: int, subject: Any, now_ns: int) -> None:
        if phase == STEP_END:
            one = self.instances[tie]
            # A fault may have ended or prolonged the step.
            if one.step is subject and one.step.end_ns == now_ns and one.stands_since is None:
                self.catch_up(one.step)
                one.end_step()
                self.collect(one, now_ns)
        elif phase == REACTION:
            job, attempt = subject
            if job.attempts == attempt and job.where:
                self.withdraw(job, now_ns)
        elif phase == FAULT:
            self.handle_fault(self.instances[tie - 1], subject, now_ns)
        elif phase in (ARRIVAL, RETRY):
            self.arrive(subject, now_ns)
        elif phase == ROUTING:
            self.route(subject, now_ns)
        elif phase == INGRESS:
            job, attempt = subject
            if job.attempts == attempt and job.where == "in_transit":
                self.enter(job, now_ns)

    def start_steps(self, now_ns: int) -> None:
        for i, instance in enumerate(self.instances):
            if (
                instance.step is None
                and instance.state == "up"
                and (instance.running or instance.waiting)
            ):
                instance.start_step(now_ns, instance.form_batch(now_ns))
                assert instance.step is not None
                self.push(instance.step.end_ns, STEP_END, i, instance.step)
