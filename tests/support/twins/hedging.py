"""Slow reference implementation of hedged requests.

Several instances of `support.twins.instance` behind a gateway with one queue and a limit, which
sends requests to them in turn; clients that time out, and send second copies. From the contract in
`cpp/cluster/README.md`, "Hedged requests". All times are integer nanoseconds.
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
STEP_END, RELEASE, REACTION, DRAIN, ARRIVAL, ADMISSION, ROUTING, INGRESS = range(8)


@dataclass(frozen=True)
class Setup:
    servers: Sequence[Server]
    notices_ns: Sequence[int | None]  # of each server; None: never
    after_ns: int
    budget_ratio: float | None = None
    budget_burst: float = 10
    timeout_ns: int | None = None
    first_token_timeout_ns: int | None = None
    permits: int | None = None
    queue_places: int | None = None
    horizon_ns: int | None = None


@dataclass(eq=False)
class Copy:
    job: Job
    number: int
    live: _Live
    where: str = "queued"  # or in_transit, running; empty: it has ended
    outcome: str = ""
    reason: str = ""
    instance: int = -1
    avoided: int | None = None
    is_out: bool = False  # does not stand for the request any more
    is_unwanted: bool = False  # its client has left, or has the answer of the other copy
    is_unnoticed: bool = False  # and its server has not noticed that
    has_token: bool = False


@dataclass(eq=False)
class Job:
    row: int
    request: Request
    copies: list[Copy] = field(default_factory=list)
    answer: Copy | None = None  # the copy that won against another one

    def rival(self, copy: Copy) -> Copy | None:
        """The other copy, if both may answer."""
        if self.answer is not None or len(self.copies) < 2:
            return None
        other = self.copies[2 - copy.number]
        return None if copy.is_out or other.is_out else other

    @property
    def standing(self) -> Copy:
        return next(copy for copy in self.copies if not copy.is_out)

    @property
    def hedge(self) -> str:
        if len(self.copies) < 2:
            return ""
        if self.answer is None:
            return "unanswered"
        return ("first", "second")[self.answer.number - 1]


class _Server(_Instance):
    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.left: list[_Live] = []  # withdrawn, in this order

    def leave(self, live: _Live, now_ns: int) -> None:
        super().leave(live, now_ns)
        self.left.append(live)


class Hedging:
    """The run of a fleet whose clients hedge."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.instances = [_Server(server) for server in setup.servers]
        self.events: list[tuple[int, int, int, int, Any]] = []
        self.serial = 0
        self.turn = 0
        self.in_flight = 0
        self.budget = setup.budget_burst
        self.queue: list[Copy] = []
        self.jobs: list[Job] = []
        self.inside: list[Copy] = []
        self.in_vain = 0
        self.seen: Counter[str] = Counter()

    def push(self, at_ns: int, phase: int, tie: int, subject: Any) -> None:
        self.serial += 1
        heapq.heappush(self.events, (at_ns, phase, tie, self.serial, subject))

    # Clients

    def arrive(self, job: Job, now_ns: int) -> None:
        self.budget = min(self.setup.budget_burst, self.budget + (self.setup.budget_ratio or 0))
        self.send(job, now_ns)

    def send(self, job: Job, now_ns: int) -> None:
        request = replace(job.request, arrival_ns=now_ns)
        copy = Copy(job, len(job.copies) + 1, _Live(request, Outcome()))
        job.copies.append(copy)
        setup = self.setup
        for span_ns in (setup.after_ns, setup.first_token_timeout_ns, setup.timeout_ns):
            if span_ns is not None:
                self.push(job.request.arrival_ns + span_ns, REACTION, job.row, ("timer", copy))
        self.push(now_ns, ADMISSION, 0, copy)

    def react(self, kind: str, copy: Copy, now_ns: int) -> None:
        if kind == "notice":
            if copy.where == "running":
                self.cancel(copy, now_ns)
        elif kind == "lost" or self.is_late(copy, now_ns):
            self.withdraw(copy, now_ns)
        elif self.hedges(copy, now_ns):
            self.send(copy.job, now_ns)

    def is_late(self, copy: Copy, now_ns: int) -> bool:
        setup, since_ns = self.setup, copy.job.request.arrival_ns
        if copy.is_unwanted:
            return True
        if setup.timeout_ns is not None and since_ns + setup.timeout_ns <= now_ns:
            return True
        limit_ns = setup.first_token_timeout_ns
        return limit_ns is not None and not copy.has_token and since_ns + limit_ns <= now_ns

    def hedges(self, copy: Copy, now_ns: int) -> bool:
        job = copy.job
        if job.request.arrival_ns + self.setup.after_ns > now_ns:
            return False
        if not copy.where or len(job.copies) > 1 or copy.has_token:
            return False
        if self.setup.budget_ratio is not None:
            if self.budget < 1:
                self.seen["over budget"] += 1
                return False
            self.budget -= 1
        self.seen["hedge while " + copy.where] += 1
        return True

    def withdraw(self, copy: Copy, now_ns: int) -> None:
        if copy.where == "queued":
            self.queue.remove(copy)
            self.end(copy, "cancelled", "client_timeout")
            self.push(now_ns, DRAIN, 0, None)
        elif copy.where == "running":
            delay_ns = self.setup.notices_ns[copy.instance]
            if delay_ns == 0:
                self.cancel(copy, now_ns)
            elif not copy.is_unnoticed:
                copy.is_unwanted = copy.is_unnoticed = True
                self.give_up(copy)
                if delay_ns is not None:
                    self.push(now_ns + delay_ns, REACTION, copy.job.row, ("notice", copy))

    def give_up(self, copy: Copy) -> None:
        if copy.job.rival(copy) is not None:
            copy.is_out = True

    def answered(self, copy: Copy, now_ns: int) -> None:
        copy.has_token = True
        loser = copy.job.rival(copy)
        if loser is None:
            return
        copy.job.answer = copy
        self.seen[f"copy {copy.number} won"] += 1
        loser.is_out = loser.is_unwanted = True
        loser.avoided = copy.instance
        self.seen["lost while " + loser.where] += 1
        self.push(now_ns, REACTION, copy.job.row, ("lost", loser))

    def end(self, copy: Copy, outcome: str, reason: str) -> None:
        copy.where = ""
        copy.outcome, copy.reason = outcome, reason
        if outcome != "completed" and copy.job.rival(copy) is not None:
            self.seen[f"{outcome}, and the other goes on"] += 1
        self.give_up(copy)

    # The gateway

    def admit(self, copy: Copy, now_ns: int) -> None:
        if self.setup.queue_places is not None and len(self.queue) >= self.setup.queue_places:
            self.end(copy, "rejected", "queue_full")
            return
        copy.where = "queued"
        self.queue.append(copy)
        if copy.is_unwanted:
            self.withdraw(copy, now_ns)
        self.drain(now_ns)

    def drain(self, now_ns: int) -> None:
        permits = self.setup.permits
        while self.queue and (permits is None or self.in_flight < permits):
            copy = self.queue.pop(0)
            self.in_flight += 1
            copy.where = "in_transit"
            self.push(now_ns, ROUTING, 0, copy)

    def route(self, copy: Copy, now_ns: int) -> None:
        rival = copy.job.rival(copy)
        avoided = copy.avoided
        if rival is not None and rival.instance >= 0:
            avoided = rival.instance
        choices = [i for i in range(len(self.instances)) if i != avoided]
        copy.instance = choices[self.turn % len(choices)]
        self.turn += 1
        at_ns = now_ns + self.instances[copy.instance].entry_delay_ns(copy.live.request)
        self.push(at_ns, INGRESS, copy.instance, copy)

    def enter(self, copy: Copy, now_ns: int) -> None:
        one = self.instances[copy.instance]
        one.enter_queue(copy.live, now_ns)
        copy.where = "running"
        if copy.live.outcome.outcome == "rejected":
            self.push(now_ns, RELEASE, 0, (copy, "rejected", "unservable"))
            return
        self.inside.append(copy)
        if self.is_late(copy, now_ns):
            self.seen["late when it entered"] += 1
            if not self.events or self.events[0][0] > now_ns:
                self.start_steps(now_ns)  # an idle instance begins before it knows
            self.withdraw(copy, now_ns)

    # Instances

    def cancel(self, copy: Copy, now_ns: int) -> None:
        if copy.live.leaves:
            return
        one = self.instances[copy.instance]
        one.cancel(copy.live, now_ns)
        self.collect(one, now_ns)

    def collect(self, one: _Server, now_ns: int) -> None:
        """Of the requests of an instance, those that have left it."""
        left, one.left = one.left, []
        for live in left:
            copy = next(copy for copy in self.inside if copy.live is live)
            self.inside.remove(copy)
            self.push(now_ns, RELEASE, 0, (copy, "cancelled", "client_timeout"))
        for copy in [c for c in self.inside if self.instances[c.instance] is one]:
            if copy.live.outcome.outcome == "completed":
                self.inside.remove(copy)
                self.push(now_ns, RELEASE, 0, (copy, "completed", ""))

    def end_step(self, one: _Server, now_ns: int) -> None:
        one.end_step()
        for copy in self.inside:
            first_ns = copy.live.outcome.first_token_ns
            if first_ns == now_ns and not copy.has_token:
                self.answered(copy, now_ns)
        self.collect(one, now_ns)

    def release(self, copy: Copy, outcome: str, reason: str, now_ns: int) -> None:
        self.in_flight -= 1
        if outcome == "completed" and copy.is_unwanted:
            self.in_vain += 1
            request = copy.live.request
            self.instances[copy.instance].wasted += request.input_tokens + copy.live.goal - 1
            self.seen["in vain"] += 1
            outcome, reason = "cancelled", "client_timeout"
        self.end(copy, outcome, reason)
        self.push(now_ns, DRAIN, 0, None)

    # Time

    def run(self, requests: Sequence[Request]) -> list[Job]:
        self.jobs = [Job(row, request) for row, request in enumerate(requests)]
        for job in self.jobs:
            self.push(job.request.arrival_ns, ARRIVAL, 0, job)
        last_ns = self.setup.horizon_ns
        while self.events and (last_ns is None or self.events[0][0] <= last_ns):
            now_ns = self.events[0][0]
            while self.events and self.events[0][0] == now_ns:
                _, phase, tie, _, subject = heapq.heappop(self.events)
                self.take(phase, tie, subject, now_ns)
            self.start_steps(now_ns)
        self.jobs = [job for job in self.jobs if job.copies]
        for job in self.jobs:
            for copy in job.copies:
                copy.outcome = copy.outcome or copy.where
            rival = job.rival(job.copies[0])
            if rival is not None:  # the first one stands for the request
                rival.is_out = True
        return self.jobs

    def take(self, phase: int, tie: int, subject: Any, now_ns: int) -> None:
        if phase == STEP_END:
            self.end_step(self.instances[tie], now_ns)
        elif phase == RELEASE:
            copy, outcome, reason = subject
            self.release(copy, outcome, reason, now_ns)
        elif phase == REACTION:
            kind, copy = subject
            self.react(kind, copy, now_ns)
        elif phase == DRAIN:
            self.drain(now_ns)
        elif phase == ARRIVAL:
            self.arrive(subject, now_ns)
        elif phase == ADMISSION:
            self.admit(subject, now_ns)
        elif phase == ROUTING:
            self.route(subject, now_ns)
        elif phase == INGRESS:
            self.enter(subject, now_ns)

    def start_steps(self, now_ns: int) -> None:
        for i, instance in enumerate(self.instances):
            if instance.step is None and (instance.running or instance.waiting):
                instance.start_step(now_ns, instance.form_batch(now_ns))
                assert instance.step is not None
                self.push(instance.step.end_ns, STEP_END, i, instance.step)
