"""Slow reference implementation of replicas of the gateway that crash.

Several replicas, each with a queue, a number of permits and turns of its own, in front of instances
of `support.twins.instance`; clients that wait and try again. From the contract in
`cpp/cluster/README.md`, "Replicas of the gateway that crash". All times are integer nanoseconds.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from support.twins.instance import Outcome, Request, Server, _Instance, _Live

if TYPE_CHECKING:
    from collections.abc import Sequence

# The order of events of one instant.
(STEP_END, RELEASE, REACTION, FAULT, DRAIN, ARRIVAL, RETRY, ADMISSION, ROUTING, INGRESS) = range(10)


@dataclass(frozen=True)
class Crash:
    at_ns: int
    gateway: int
    for_ns: int | None = None


@dataclass
class Report:
    """What became of a crash."""

    gateway: int
    began_ns: int
    ended_ns: int | None = None
    lost_requests: int = 0
    lost_ns: int = 0


@dataclass(frozen=True)
class Setup:
    servers: Sequence[Server]
    gateways: int = 1
    permits: int | None = None
    queue_places: int | None = None
    admission_ns: int = 0
    routing_ns: int = 0
    timeout_ns: int | None = None
    wait_ns: int = 0
    max_attempts: int = 1
    retries_on: tuple[str, ...] = ("timeout", "gateway_lost", "queue_full")


@dataclass(eq=False)
class Process:
    """A replica from its start until it crashes."""

    replica: int
    queue: list[Job] = field(default_factory=list)
    in_flight: int = 0
    turn: int = 0
    crash: Report | None = None


@dataclass(eq=False)
class Job:
    """A request, and its current attempt."""

    row: int
    request: Request
    live: _Live = field(init=False)
    process: Process = field(init=False)
    attempts: int = 0
    arrival_ns: int = 0
    instance: int = -1
    where: str = ""  # at_admission, queued, in_transit, inside, or empty
    leaves_as: str = ""  # the reason why it leaves its instance
    outcome: str = "pending"
    reason: str = ""


class _Server(_Instance):
    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.left: list[_Live] = []  # withdrawn, in this order

    def leave(self, live: _Live, now_ns: int) -> None:
        super().leave(live, now_ns)
        self.left.append(live)


class GatewayFailures:
    """The run of a fleet behind replicas that crash."""

    def __init__(self, setup: Setup, crashes: Sequence[Crash]) -> None:
        self.setup = setup
        self.instances = [_Server(server) for server in setup.servers]
        self.replicas = [Process(i) for i in range(setup.gateways)]
        self.events: list[tuple[int, int, int, int, Any]] = []
        self.serial = 0
        self.awaits_start = False  # whether an instance begins a step after the events due now
        self.jobs: list[Job] = []
        self.reports: list[Report] = []
        self.failed_before = 0
        self.failed_queued = 0
        self.seen: Counter[str] = Counter()
        for crash in crashes:
            self.push(crash.at_ns, FAULT, crash.gateway, crash)

    def push(self, at_ns: int, phase: int, tie: int, subject: Any) -> None:
        self.serial += 1
        heapq.heappush(self.events, (at_ns, phase, tie, self.serial, subject))

    # Clients

    def arrive(self, job: Job, now_ns: int) -> None:
        job.attempts += 1
        job.arrival_ns = now_ns
        job.outcome = job.reason = job.leaves_as = ""
        job.instance = -1
        job.live = _Live(replace(job.request, arrival_ns=now_ns), Outcome())
        job.process = self.choose(job.row)
        job.where = "at_admission"
        if self.setup.timeout_ns is not None:
            at_ns = now_ns + self.setup.timeout_ns
            self.push(at_ns, REACTION, job.row, (job, job.attempts))
        if job.process.crash is not None:
            self.seen["no replica"] += 1
            self.lose(job, now_ns)
        else:
            self.push(now_ns + self.setup.admission_ns, ADMISSION, 0, job)

    def choose(self, row: int) -> Process:
        """The replica whose turn it is, or one of the others if it is down."""
        n = len(self.replicas)
        own = self.replicas[row % n]
        up = [process for process in self.replicas if process.crash is None]
        if own.crash is None or not up:
            return own
        self.seen["another replica"] += 1
        return up[row // n % len(up)]

    def is_late(self, job: Job, now_ns: int) -> bool:
        timeout_ns = self.setup.timeout_ns
        return timeout_ns is not None and job.arrival_ns + timeout_ns <= now_ns

    def withdraw(self, job: Job, now_ns: int) -> None:
        if job.where == "queued":
            job.process.queue.remove(job)
            self.leave(job, "cancelled", "client_timeout", now_ns)
            self.push(now_ns, DRAIN, job.process.replica, job.process)
        elif job.where == "inside":
            self.cancel(job, "client_timeout", now_ns)

    def leave(self, job: Job, outcome: str, reason: str, now_ns: int) -> None:
        job.where = ""
        job.outcome, job.reason = outcome, reason
        cause = {"client_timeout": "timeout"}.get(reason, reason)
        if cause in self.setup.retries_on and job.attempts < self.setup.max_attempts:
            self.push(now_ns + self.setup.wait_ns, RETRY, 0, job)

    # The gateway

    def admit(self, job: Job, now_ns: int) -> None:
        process = job.process
        if process.crash is not None:
            self.seen["lost at admission"] += 1
            return self.lose(job, now_ns)
        places = self.setup.queue_places
        if places is not None and len(process.queue) >= places:
            return self.leave(job, "rejected", "queue_full", now_ns)
        job.where = "queued"
        process.queue.append(job)
        if self.is_late(job, now_ns):
            self.withdraw(job, now_ns)
        return self.drain(process, now_ns)

    def drain(self, process: Process, now_ns: int) -> None:
        permits = self.setup.permits
        while process.queue and (permits is None or process.in_flight < permits):
            job = process.queue.pop(0)
            process.in_flight += 1
            job.where = "in_transit"
            self.push(now_ns + self.setup.routing_ns, ROUTING, 0, job)

    def route(self, job: Job, now_ns: int) -> None:
        process = job.process
        if process.crash is not None:
            self.seen["lost before routing"] += 1
            self.push(now_ns, RELEASE, 0, (job, "failed", "gateway_lost"))
            return
        job.instance = process.turn % len(self.instances)
        process.turn += 1
        at_ns = now_ns + self.instances[job.instance].entry_delay_ns(job.request)
        self.push(at_ns, INGRESS, job.instance, job)

    def release(self, job: Job, outcome: str, reason: str, now_ns: int) -> None:
        process = job.process
        process.in_flight -= 1
        if reason == "gateway_lost":
            self.note_loss(job)
        if reason in ("gateway_lost", "client_timeout") and job.instance >= 0:
            self.push(now_ns, INGRESS, job.instance, None)  # a place may have become free
        self.leave(job, outcome, reason, now_ns)
        self.push(now_ns, DRAIN, process.replica, process)

    # Crashes

    def crash(self, crash: Crash, now_ns: int) -> None:
        process = self.replicas[crash.gateway]
        if process.crash is not None:
            self.seen["crash while down"] += 1
            return
        process.crash = Report(crash.gateway, now_ns)
        self.reports.append(process.crash)
        self.seen["crash"] += 1
        if crash.for_ns is not None:
            self.push(now_ns + crash.for_ns, FAULT, crash.gateway, process)
        for job in self.jobs:
            if job.where in ("queued", "inside") and job.process is process:
                self.lose(job, now_ns)

    def revive(self, old: Process, now_ns: int) -> None:
        assert old.crash is not None
        old.crash.ended_ns = now_ns
        self.replicas[old.replica] = Process(old.replica)
        self.seen["return"] += 1
        self.seen["return before the last has left"] += old.in_flight > 0

    def lose(self, job: Job, now_ns: int) -> None:
        if job.where == "inside":
            self.seen["lost in an instance"] += not job.live.leaves
            return self.cancel(job, "gateway_lost", now_ns)
        if job.where == "queued":
            self.seen["lost in a queue"] += 1
            job.process.queue.remove(job)
            self.failed_queued += 1
        else:
            self.failed_before += 1
        self.note_loss(job)
        return self.leave(job, "failed", "gateway_lost", now_ns)

    @staticmethod
    def note_loss(job: Job) -> None:
        report = job.process.crash
        assert report is not None
        report.lost_requests += 1
        report.lost_ns += max(0, report.began_ns - job.arrival_ns)

    # Instances

    def enter(self, job: Job, now_ns: int) -> None:
        one = self.instances[job.instance]
        one.enter_queue(job.live, now_ns)
        job.where = "inside"
        if job.live.outcome.outcome == "rejected":
            self.seen["refused after a crash"] += job.process.crash is not None
            self.push(now_ns, RELEASE, job.instance, (job, "rejected", "unservable"))
            job.where = "in_transit"
            return
        self.request_step(job.instance, now_ns)
        is_lost = job.process.crash is not None
        if not is_lost and not self.is_late(job, now_ns):
            return
        self.seen["lost on the way"] += is_lost
        self.lose(job, now_ns) if is_lost else self.withdraw(job, now_ns)

    def cancel(self, job: Job, reason: str, now_ns: int) -> None:
        if job.live.leaves:
            self.seen["had left"] += reason == "gateway_lost"
            return
        job.leaves_as = reason
        one = self.instances[job.instance]
        one.cancel(job.live, now_ns)
        self.collect(one, now_ns)

    def collect(self, one: _Server, now_ns: int) -> None:
        """Of the requests of an instance, those that have left it."""
        inside = [
            job
            for job in self.jobs
            if job.where == "inside" and self.instances[job.instance] is one
        ]
        left, one.left = one.left, []
        for live in left:
            job = next(job for job in inside if job.live is live)
            inside.remove(job)
            outcome = "failed" if job.leaves_as == "gateway_lost" else "cancelled"
            self.end(job, outcome, job.leaves_as, now_ns)
        for job in inside:
            if job.live.outcome.outcome == "completed":
                self.end(job, "completed", "", now_ns)

    def end(self, job: Job, outcome: str, reason: str, now_ns: int) -> None:
        job.where = "in_transit"
        self.push(now_ns, RELEASE, job.instance, (job, outcome, reason))

    # Time

    def run(self, requests: Sequence[Request]) -> list[Job]:
        self.jobs = [Job(row, request) for row, request in enumerate(requests)]
        for job in self.jobs:
            self.push(job.request.arrival_ns, ARRIVAL, 0, job)
        while self.events:
            now_ns = self.events[0][0]
            while self.events and self.events[0][0] == now_ns:
                _, phase, tie, _, subject = heapq.heappop(self.events)
                self.take(phase, tie, subject, now_ns)
            self.start_steps(now_ns)
        return self.jobs

    def take(self, phase: int, tie: int, subject: Any, now_ns: int) -> None:
        if phase == STEP_END:
            one = self.instances[tie]
            one.end_step()
            self.collect(one, now_ns)
            self.request_step(tie, now_ns)
        elif phase == RELEASE:
            job, outcome, reason = subject
            self.release(job, outcome, reason, now_ns)
        elif phase == REACTION:
            job, attempt = subject
            if job.attempts == attempt and job.where:
                self.withdraw(job, now_ns)
        elif phase == FAULT:
            if isinstance(subject, Crash):
                self.crash(subject, now_ns)
            else:
                self.revive(subject, now_ns)
        elif phase == DRAIN:
            if subject.crash is None:
                self.drain(subject, now_ns)
        elif phase in (ARRIVAL, RETRY):
            self.arrive(subject, now_ns)
        elif phase == ADMISSION:
            self.admit(subject, now_ns)
        elif phase == ROUTING:
            self.route(subject, now_ns)
        elif phase == INGRESS and subject is not None:
            self.enter(subject, now_ns)

    def request_step(self, i: int, now_ns: int) -> None:
        """When nothing else is due, an instance begins, maybe before it knows of a departure."""
        instance = self.instances[i]
        if instance.step is not None or not (instance.running or instance.waiting):
            return
        if self.awaits_start or (self.events and self.events[0][0] == now_ns):
            self.awaits_start = True
        else:
            self.start_steps(now_ns)

    def start_steps(self, now_ns: int) -> None:
        self.awaits_start = False
        for i, instance in enumerate(self.instances):
            if instance.step is None and (instance.running or instance.waiting):
                instance.start_step(now_ns, instance.form_batch(now_ns))
                assert instance.step is not None
                self.push(instance.step.end_ns, STEP_END, i, instance.step)
