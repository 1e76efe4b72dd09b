"""Slow reference implementation of prefill and decode pools whose instances fail.

The pools of `support.twins.pools` with the faults of `support.twins.failures`. From the contracts
in `cpp/instance/README.md`, "Faults" and "Migration", and `cpp/cluster/README.md`, "Pools whose
instances fail". All times are integer nanoseconds.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from support.twins.failures import Condition, Health, slowed_ns
from support.twins.instance import _Instance
from support.twins.pools import (
    _PHASE,
    DeadlockError,
    Job,
    Pools,
    PoolsRun,
    _Leg,
    _PoolInstance,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.twins.failures import Fault, Fleet
    from support.twins.instance import Request, Server, _Live, _Part, _Scheduled
    from support.twins.pools import Link


_LAST = 2**32  # behind the legs that reach instances at an instant


@dataclass(eq=False)
class _Job(Job):
    """A request that may lose instances."""

    migrations: int = 0
    recomputed: int = 0
    first_token_ns: int | None = None
    lost_at: _Worker | None = None  # the first that failed with a leg of it, since it was routed
    is_due: bool = False  # it is to be routed again
    was_inside: bool = False  # an instance, before that
    released_as: int | None = None  # position of what releases its permit: an engine
    owed: int | None = None  # tokens that it has lost, until it is served as far as before
    most_owed: int = 0
    failure_ns: int = 0  # for instances that have failed
    retries: int = 0  # of its prefill leg
    routed_ns: int = 0

    def take_along(self) -> None:
        """What it has emitted belongs to its prompt from now on."""
        for leg in (self.prefill_leg, self.decode_leg):
            if leg is not None and leg.kind != "prefill" and leg.emitted > self.emitted:
                self.emitted = leg.emitted
                self.last_token_ns = leg.last_token_ns
                self.first_token_ns = self.first_token_ns or leg.outcome.first_token_ns


class _Worker(Condition):
    """What fails as a whole: an engine, or several ranks."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.engines: list[_FailingEngine] = []


class _FailingEngine(_PoolInstance):
    """An engine whose process may end."""

    host: _Worker

    def duration_ns(self, batch: list[_Scheduled]) -> int:
        return slowed_ns(self, batch, self.host.factor)

    def admit(self, live: _Live, budget: int) -> _Part | None:
        part = super().admit(live, budget)
        if part is not None:
            assert isinstance(live, _Leg)
            assert isinstance(live.job, _Job)
            live.job.recomputed += max(0, live.job.lost_tokens - live.computed)
            live.job.lost_tokens = 0
        return part

    def end_step(self) -> None:
        """It may bring requests as far as before they lost instances."""
        assert self.step is not None
        for part in self.step.batch:
            assert isinstance(part.live, _Leg)
            job = part.live.job
            assert isinstance(job, _Job)
            if job.owed is not None and part.computed_before + part.tokens >= job.owed:
                job.owed = None
        super().end_step()

    def lose_all(self, now_ns: int) -> list[_Leg]:
        """The process ends: those with something inside, in this order."""
        self.order_waiting()
        inside: list[Any] = [*self.running, *self.limbo, *self.ready, *self.waiting]
        for leg in self.ready:
            leg.computed = leg.prompt
        for leg in inside:
            self.leave(leg, now_ns)
        for leg in self.held:
            self.wasted += leg.prompt
            assert leg.job is not None
            leg.job.waste(leg.prompt)
        inside += [*self.receiving, *self.held]
        for names in (
            self.waiting, self.running, self.limbo, self.leaving, self.plan, self.batch,
            self.ready, self.receiving, self.held, self.reserved, self.handed_over, self.gone,
        ):  # fmt: skip
            names.clear()  # type: ignore[attr-defined]
        self.step = None
        self.stands = False
        self.free.clear()
        self.registry.clear()
        self.free.extend(_Instance(self.server).free)
        return inside


class FailingPools(Health, Pools):
    """One run. The gateway holds requests while it knows of no decode instance that works.

    `prefill_max_retries`: how often a prefill leg that is refused by its instance, or lost in its
    queue or batch, is sent there again, `prefill_retry_after_ns` later. From
    `cpp/cluster/README.md`, "Prefill legs that are sent again".
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, Server] | tuple[str, Server, int]],
        link: Link,
        fleet: Fleet,
        faults: Sequence[Fault],
        *,
        prefill_max_retries: int = 0,
        prefill_retry_after_ns: int = 200_000_000,
        **settings: Any,
    ) -> None:
        Health.__init__(self, fleet)
        self.prefill_max_retries = prefill_max_retries
        self.prefill_retry_after_ns = prefill_retry_after_ns
        self.workers = [_Worker(index) for index in range(len(servers))]
        Pools.__init__(self, servers, link, **settings)
        self.queue: list[Job] = []
        self.migrations: Counter[str] = Counter()
        self.avoided: int | None = None  # the worker that the request which is routed has lost
        for fault in faults:
            one = self.workers[fault.instance]
            self.push_timer(fault.at_ns, one, ("begins", fault, 0))

    def engine(self, server: Server, *, index: int, worker: int) -> _PoolInstance:
        engine = _FailingEngine(server, index=index, worker=worker)
        engine.host = self.workers[worker]
        engine.host.engines.append(engine)
        return engine

    def ready(self, pool: str) -> list[list[_PoolInstance]]:
        return [
            ranks
            for ranks in super().ready(pool)
            if not self.workers[ranks[0].worker].is_known and ranks[0].worker != self.avoided
        ]

    @staticmethod
    def host_of(engine: _PoolInstance) -> _Worker:
        assert isinstance(engine, _FailingEngine)
        return engine.host

    # The way of a request

    def arrive(self, job: Job, now_ns: int) -> None:
        job.stage = "queued"
        self.queue.append(job)
        self.dispatch(now_ns)

    def dispatch(self, now_ns: int) -> None:
        while self.queue and self.ready("decode"):
            job = self.queue.pop(0)
            job.stage = "transit"
            super().arrive(job, now_ns)

    def route(self, job: Job, now_ns: int) -> None:
        assert isinstance(job, _Job)
        if not job.is_due:
            self.route_once(job, now_ns)
            return
        assert job.lost_at is not None
        self.avoided = job.lost_at.index
        self.route_once(job, now_ns)
        self.avoided = None
        job.is_due = False
        if job.stage == "ended":
            self.seen["no other instance"] += 1
            return
        assert job.lost_at.failure is not None
        job.lost_at.failure.migrated_requests += 1
        self.migrations["ongoing_request" if job.was_inside else "new_request"] += 1
        job.lost_at = None
        job.migrations += 1

    def route_once(self, job: Job, now_ns: int) -> None:
        assert isinstance(job, _Job)
        job.routed_ns = now_ns
        is_first = job.prefill is None
        if is_first and job.remote and not self.ready("prefill"):
            self.seen["local for want of prefill"] += 1
            job.remote = False
        begins = is_first and job.remote and self.order == "prefill_first"
        if self.ready("decode") or (begins and self.handoff == "after_prefill"):
            super().route(job, now_ns)
            return
        if begins:
            self.next_of("prefill")
        self.end_unserved(job, now_ns)

    def end_unserved(self, job: Job, now_ns: int) -> None:
        assert isinstance(job, _Job)
        self.seen["no decode instance"] += 1
        outcome = "failed" if job.is_due else "rejected"
        self.end(job, "cancelled" if job.is_unread else outcome, now_ns)

    def is_bypassed(self, job: Job) -> bool:
        return bool(self.ready("decode")) and super().is_bypassed(job)

    def reach(self, instance: _PoolInstance, leg: _Leg, now_ns: int) -> None:
        one = self.host_of(instance)
        job = leg.job
        assert isinstance(job, _Job)
        if one.state == "up":
            super().reach(instance, leg, now_ns)
            if leg.kind != "decode" and job.owed == 0:
                job.owed = None
        elif one.state == "down" and (one.is_known or not self.fleet.swallows):
            self.seen["refused"] += 1
            self.lose(one, 1)
            if self.tries_again(leg, now_ns):
                return
            if leg.kind == "whole":
                job.released_as = one.engines[0].index
            self.end_lost(job, one, now_ns)
        else:
            self.seen[f"held {one.state}"] += 1
            one.held.append((instance, leg))

    def withdraw(self, job: Job, now_ns: int) -> None:
        if job.stage == "queued":
            self.queue.remove(job)
            job.stage, job.outcome, job.ended_ns = "ended", "cancelled", now_ns
            return
        if job.is_lost:
            job.is_unread = self.reads_on
            return
        inside = {"prefill": job.prefill, "decode": job.decode}.get(job.stage)
        super().withdraw(job, now_ns)
        if inside is not None and not job.is_unread:
            self.let_leave(inside, now_ns)
        for engine in (job.prefill, job.decode):
            if engine is not None:
                self.note(engine, now_ns)

    def let_leave(self, engine: _PoolInstance, now_ns: int) -> None:
        """Nothing else happens in one that stands still."""
        if engine.stands and engine.leaving:
            self.seen["left while hung"] += 1
            engine.take_out_leaving(now_ns)
        self.note(engine, now_ns)

    def leave_if_read(self, job: Job, now_ns: int) -> None:
        super().leave_if_read(job, now_ns)
        if job.decode is not None:
            self.let_leave(job.decode, now_ns)

    # A prefill leg is sent again

    def tries_again(self, leg: _Leg, now_ns: int) -> bool:
        """Whether the request, whose leg an instance has refused or lost, waits for another try."""
        job = leg.job
        assert isinstance(job, _Job)
        if leg.kind != "prefill" or self.prefill_max_retries == 0:
            return False
        if job.is_unread:
            self.seen["no retry of one that has left"] += 1
            return False
        if job.retries == self.prefill_max_retries:
            self.seen["retried in vain"] += 1
            return False
        job.retries += 1
        self.seen["retried"] += 1
        self.seen["retried again"] += job.retries > 1
        self.seen["retried after entry"] += job.entered_ns is not None
        # All since it was routed is time of the failure, until a try enters.
        job.failure_ns = now_ns - job.routed_ns
        job.owed = 0
        job.entered_ns = job.prefill_leg = None
        job.stage = "waits"
        self.push(now_ns + self.prefill_retry_after_ns, "ingress", _LAST, (job, None))
        return True

    def prefill_ended(self, job: Job, now_ns: int) -> None:
        assert isinstance(job, _Job)
        self.seen["retried and computed"] += job.retries > 0
        super().prefill_ended(job, now_ns)

    def send_again(self, job: _Job, now_ns: int) -> None:
        if job.stage != "waits":
            self.seen["withdrawn before its retry"] += 1
            return
        assert job.prefill is not None
        job.stage = "transit"
        self.send(job, "prefill", job.prefill, now_ns)

    # An instance fails

    def end_lost(self, job: _Job, one: _Worker, now_ns: int) -> None:
        """The request has lost an instance: it ends now, or as soon as that is possible."""
        job.lost_at = job.lost_at or one
        outcome = "cancelled" if job.is_unread else "failed"
        leg = job.prefill_leg
        if job.in_transit > 0:
            self.seen["lost in transit"] += 1
            job.leaves_as = job.leaves_as or outcome
        elif leg is not None and job.stage == "prefill" and self.is_inside(leg, job.prefill):
            # A prompt that is being computed for no reader is withdrawn.
            self.seen["prompt without a reader"] += 1
            assert job.prefill is not None
            if not leg.leaves:
                job.is_lost = True
                job.prefill.cancel(leg, now_ns)
                self.let_leave(job.prefill, now_ns)
        else:
            self.end(job, outcome, now_ns)

    @staticmethod
    def is_inside(leg: _Leg, engine: _PoolInstance | None) -> bool:
        assert engine is not None
        return leg in engine.waiting or leg in engine.running or leg in engine.limbo

    def end(self, job: Job, outcome: str, now_ns: int) -> None:
        assert isinstance(job, _Job)
        for worker in self.workers:
            for entry in list(worker.held):
                if entry[1].job is job:
                    self.seen["left while held"] += 1
                    worker.held.remove(entry)
        if job.is_lost:
            outcome = "cancelled" if job.is_unread else "failed"
        super().end(job, outcome, now_ns)
        if outcome == "failed" and not job.is_due:
            tie = self.position_of(job) if job.released_as is None else job.released_as
            self.push(now_ns, "release", tie, job)
        job.released_as = None

    @staticmethod
    def position_of(job: Job) -> int:
        """Of what releases the permit of a request that ends outside batches and queues."""
        where = job.prefill
        if where is None or job.transfer_end_ns is not None:
            where = job.decode
        assert where is not None
        return where.worker

    def note(self, instance: _PoolInstance, now_ns: int) -> None:
        for leg in instance.gone:
            assert isinstance(leg.job, _Job)
            leg.job.released_as = instance.index
        super().note(instance, now_ns)

    # Migration

    def may_migrate(self, job: _Job, now_ns: int) -> bool:
        fleet = self.fleet
        leaves_ns = job.request.cancelled_ns
        if job.migrations == fleet.migration_limit:
            self.seen["above the limit"] += job.migrations > 0
            return False
        if leaves_ns is not None and leaves_ns <= now_ns:
            return False
        if job.emitted > 0 and not fleet.migrates_answered:
            self.seen["answered"] += 1
            return False
        longest = fleet.migration_max_seq_len
        if longest is not None and job.prompt > longest:
            self.seen["too long"] += 1
            return False
        return True

    def release(self, job: _Job, now_ns: int) -> None:
        """The request, which has failed, ends, or is sent through both stages again."""
        before = job.emitted
        job.take_along()
        if not self.may_migrate(job, now_ns):
            job.emitted = before  # as its legs began
            return
        stage = "between legs" if job.prefill_end_ns and not job.transfer_end_ns else "in a leg"
        self.seen[f"migrated {stage}"] += 1
        self.seen["migrated with tokens"] += job.emitted > 0
        self.seen["migrated again"] += job.migrations > 0
        job.was_inside = job.entered_ns is not None
        job.prefill = job.decode = None
        job.prefill_leg = job.decode_leg = None
        job.entered_ns = job.prefill_end_ns = None
        job.transfer_begin_ns = job.transfer_end_ns = job.ended_ns = None
        job.outcome, job.stage = "pending", "transit"
        job.is_answered = job.is_lost = job.is_unread = False
        job.leaves_as = None
        job.moved_blocks = 0
        job.remote = self.is_remote(replace(job.request, input_tokens=job.prompt))
        job.is_due = True
        job.owed = job.most_owed = max(job.most_owed, job.lost_tokens)
        job.in_transit += 1
        self.push(now_ns, "routing", 0, job)

    # What instances lose

    def lose_inside(self, one: Condition, now_ns: int) -> None:
        assert isinstance(one, _Worker)
        wasted = sum(engine.wasted for engine in one.engines)
        for engine in one.engines:
            in_queues = [*engine.running, *engine.limbo, *engine.ready]
            in_queues += [leg for leg in engine.waiting if leg.kind != "decode" or leg.has_prompt]
            for leg in engine.lose_all(now_ns):
                self.lose_leg(one, engine, leg, now_ns, is_queued=leg in in_queues)
        self.lose(one, 0, sum(engine.wasted for engine in one.engines) - wasted)

    def lose_leg(
        self, one: Condition, engine: _FailingEngine, leg: _Leg, now_ns: int, *, is_queued: bool
    ) -> None:
        job = leg.job
        assert isinstance(job, _Job)
        assert isinstance(one, _Worker)
        if leg.leaves:
            self.seen["left with the process"] += 1
            job.released_as = engine.index
            self.end(job, "cancelled", now_ns)
            return
        self.seen[f"lost {leg.kind} in {job.stage}"] += 1
        self.lose(one, 1, 0, 0 if job.entered_ns is None else now_ns - job.entered_ns)
        if is_queued and self.tries_again(leg, now_ns):
            return
        if is_queued:
            job.released_as = engine.index
        self.end_lost(job, one, now_ns)

    def fail_held(self, one: Condition, now_ns: int) -> None:
        assert isinstance(one, _Worker)
        held, one.held = one.held, []
        for _, leg in held:
            self.seen["swallowed"] += 1
            self.lose(one, 1)
            if self.tries_again(leg, now_ns):
                continue
            if leg.kind == "whole":
                leg.job.released_as = one.engines[0].index
            self.end_lost(leg.job, one, now_ns)

    def enter_held(self, one: Condition, now_ns: int) -> None:
        held, one.held = one.held, []
        for instance, leg in held:
            self.reach(instance, leg, now_ns)
            self.note(instance, now_ns)

    def stand(self, one: Condition) -> None:
        assert isinstance(one, _Worker)
        for engine in one.engines:
            engine.stands = True
            self.seen["hang in a step"] += engine.step is not None

    def walk_on(self, one: Condition, stood_ns: int) -> None:
        assert isinstance(one, _Worker)
        for engine in one.engines:
            engine.stands = False
            if engine.step is not None:
                engine.step.duration_ns += stood_ns

    # Time

    def charge(self, jobs: Sequence[_Job], span_ns: int) -> None:
        """Adds the time to the requests whose instance has failed."""
        for job in jobs:
            if job.outcome != "pending":
                continue
            where = job.decode if job.stage == "decode" or job.prefill is None else job.prefill
            is_there = job.stage in ("transit", "prefill", "decode") and where is not None
            stands = is_there and self.host_of(where).state != "up"
            if stands or job.owed is not None:
                job.failure_ns += span_ns

    def push_timer(self, at_ns: int, one: Condition, subject: Any) -> None:
        self.push(at_ns, "fault", 1 + one.index, (one, subject))

    def take(self, phase: int, subject: object, now_ns: int) -> None:
        if isinstance(subject, tuple) and isinstance(subject[0], _Worker):
            self.handle_fault(*subject, now_ns)
            return
        if isinstance(subject, tuple) and isinstance(subject[0], _Job):
            self.send_again(subject[0], now_ns)
            return
        if phase == _PHASE["release"]:
            assert isinstance(subject, _Job)
            self.release(subject, now_ns)
            return
        super().take(phase, subject, now_ns)

    def run(self, requests: Sequence[Request]) -> PoolsRun:
        jobs = [_Job(request, remote=self.is_remote(request)) for request in requests]
        for row, job in enumerate(jobs):
            self.push(job.request.arrival_ns, "arrival", 0, job)
            if job.request.cancelled_ns is not None:
                self.push(job.request.cancelled_ns, "reaction", row, job)
        past_ns = 0
        for _ in itertools.count():
            now_ns = self.next_instant()
            if now_ns is None:
                break
            self.charge(jobs, now_ns - past_ns)
            past_ns = now_ns
            self.handle(now_ns)
        for job in self.queue:
            job.outcome = "queued"
        waits = [job.request.request_id for job in jobs if job.outcome == "pending"]
        if waits:
            raise DeadlockError(waits)
        for instance in self.instances:
            assert len(instance.free) == instance.server.num_kv_blocks
        return PoolsRun(jobs, self.instances, self.transfers, self.moved_bytes)
