"""A run that is held, looked at, acted upon, and continued."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway._core.cluster import Change
from spillway._core.sim import Calls, Exclusive, UsageError
from spillway._core.workload import HandOff, PromptSegment, Submission
from spillway.config import memory
from spillway.config.classes import config_error
from spillway.config.exclusive import exclusive
from spillway.config.limits import LONGEST_SPAN_S
from spillway.session_record import Record, checked_changes, recorded
from spillway.session_status import Event, Status
from spillway.simulate import _checked_seed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from spillway._core.cluster import Simulation
    from spillway.loading import Configuration
    from spillway.result import Result

__all__ = ["Event", "Session", "Status", "Submitted", "recorded", "start"]


_NS = 1e-9
_MOST_REQUESTS = 2**62


def start(
    simulation: Configuration,
    seed: int = 0,
    *,
    open_ended: bool = False,
    record: str | int | Path = "all",
    may_fail: bool = False,
) -> Session:
    """Begins a run that can be held at any instant.

    Parameters
    ----------
    simulation : Simulation or path
        What to run, or the path of a configuration file.
    seed : int
        Seed of every random stream, 0 <= seed < 2**64.
    open_ended : bool
        Whether another request is always expected, until `finish`. What is periodic (ticks,
        scrapes, samples) then continues while the system is empty, so a request never replays the
        past, whatever has been observed. The workload may be empty (`num_requests=0`).
    record : "all", "none", int or path
        What is kept of the changes that the session makes. "all": everything; memory grows with
        each request. Otherwise a request is forgotten once `take_events` has returned its end, and
        nothing can be replayed, so there is no `fork`. "none": no change is kept; a number: the
        last ones, as `recent_changes`; a path: each is appended to that file, and `recorded` reads
        the simulation back. With `metrics.streaming` the memory of the run is bounded, too.
    may_fail : bool
        Whether `fail` acts immediately, also where the simulation states no fault. What becomes of
        requests does not depend on it.

    Returns
    -------
    Session
        Held at time 0, before the first event.

    Raises
    ------
    ConfigError
        If the simulation cannot be run, or `may_fail` and its instances cannot fail.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
    >>> session = spillway.start(simulation)
    >>> session.advance(until_s=1.0)
    <Session of seed 0 at 1 s>
    >>> session.finish().digest == spillway.simulate(simulation).digest
    True

    """
    from spillway import loading

    return Session(
        loading.as_simulation(simulation),
        _checked_seed(seed),
        open_ended=open_ended,
        record=record,
        may_fail=may_fail,
    )


class Submitted:
    """A request from outside the workload, which `Session.submit` returns.

    It stays valid to the end of its session and beyond, also where a run in streaming mode has
    forgotten the request.

    Attributes
    ----------
    number : int
        Its position among the submitted requests of its session: `session.submitted[number]`. A
        fork has the same request under the same number.

    """

    def __init__(self, session: Session, number: int) -> None:
        self._session = session
        self.number = number

    @property
    def state(self) -> str:
        """See `Status`."""
        return self.status().state

    def status(self) -> Status:
        """How far it has come at the instant at which its session is held.

        Raises UsageError while its session is inside a call.
        """
        return self._session._status(self.number)

    def cancel(self) -> bool:
        """See `Session.cancel`."""
        return self._session.cancel(self.number)

    def __repr__(self) -> str:
        try:
            return f"<Submitted request {self.number}: {self.state}>"
        except UsageError:
            return f"<Submitted request {self.number}>"


class Session:
    """A run under one seed, held at an instant.

    Advanced in whatever pieces, it has the result of `simulate`. `set` changes what a running
    deployment can change, `submit` adds a request; both are part of `simulation` from then on, as
    entries of its `changes`, so the finished result says what was done and can be run again.

    A session takes one call at a time. While it is inside one, every other call raises UsageError
    and has no effect: calls of policies, callbacks and signal handlers of its own run, and of other
    threads. Only `seed` and `now_s` can be read at any time.

    After an error in its run, e.g. of a policy, a session takes no further calls, but for `fork`,
    which gives the session as it was at `now_s`. One that Ctrl-C has interrupted between two events
    is held at the instant that it has reached. A session is not copied or pickled.

    Attributes
    ----------
    seed : int

    """

    def __init__(
        self,
        simulation: Simulation,
        seed: int,
        *,
        open_ended: bool = False,
        record: str | int | Path = "all",
        may_fail: bool = False,
    ) -> None:
        self._calls = (Exclusive("session", "now_s and seed"),)
        memory.check([simulation])
        if may_fail:
            crash = {"kind": "crash", "instance": 0}
            checked_changes(simulation, [{"at_s": _NS, "faults": [crash]}])
        self._start = simulation
        self._changes: list[dict[str, Any]] = []
        self.seed = seed
        self._open_ended = open_ended
        self._may_fail = may_fail
        self._record = Record(record, simulation)
        self._num_instances = sum(group.count for group in simulation.instances)
        self._core: Any = _core.cluster.Session(
            simulation, seed, open_ended=open_ended, may_fail=may_fail
        )
        self._hands_off = False  # it was found that requests can be
        self._last: list[Status] = []  # of the submitted requests, once the session is over

    @property
    @exclusive
    def simulation(self) -> Simulation:
        """The configuration, with the changes so far.

        Raises UsageError if they are not kept (`record`).
        """
        return self._stated()

    @property
    @exclusive
    def recent_changes(self) -> list[dict[str, Any]]:
        """The changes that the session keeps: as many as its `record` states, the latest last."""
        return list(self._record.recent if self._record.keeps_some else self._changes)

    @property
    def now_s(self) -> float:
        """The instant up to which everything has happened."""
        return float(self._running.now_s)

    @property
    @exclusive
    def is_over(self) -> bool:
        """Whether all requests have arrived and ended, until another one is submitted.

        Never of an open-ended session.
        """
        return not self._running.has_pending_work

    @property
    @exclusive
    def next_due_s(self) -> float | None:
        """When something happens next, if nothing comes from outside (s): an event or a token.

        None: nothing will. Up to this instant the state is as it is now.
        """
        due_s: float | None = self._running.next_due_s
        return due_s

    @exclusive
    def advance(
        self,
        until_s: float | None = None,
        *,
        requests: int | None = None,
        max_events: int | None = None,
    ) -> Session:
        """Runs up to an instant, whose events happen; returns itself.

        Parameters
        ----------
        until_s : float
            The instant (s), >= `now_s`. The horizon of the simulation is the last one.
        requests : int
            Instead of `until_s`: up to the instant at which this many more requests (>= 1) have
            arrived at the gateway. Requests of the workload and submitted ones count once, at their
            first attempt; retries do not count. Several may arrive at that instant. If fewer come,
            the session runs to the end: the last event, or the horizon. Not of an open-ended
            session, which has no end.
        max_events : int
            With `until_s`: ends before it after about this many events (>= 1; a multiple of 64, and
            whole instants). `now_s` is then what has been reached.

        Raises
        ------
        ConfigError
            For neither of the two, both, or one out of its range.

        """
        if (until_s is None) == (requests is None):
            given = "neither" if until_s is None else "both"
            raise config_error([("advance", given, "must be given until_s or requests")])
        if requests is not None:
            if isinstance(requests, bool) or not isinstance(requests, int) or requests < 1:
                raise config_error([("requests", repr(requests), "must be a whole number >= 1")])
            if self._open_ended:
                allowed = "an open-ended session has no last request: state until_s"
                raise config_error([("requests", repr(requests), allowed)])
            if max_events is not None:
                raise config_error([("max_events", repr(max_events), "goes with until_s")])
            self._running.advance_by(min(requests, _MOST_REQUESTS))
            return self
        if not (isinstance(until_s, int | float) and until_s >= self.now_s):
            allowed = f"must be >= now_s = {self.now_s:g} (s)"
            raise config_error([("until_s", repr(until_s), allowed)])
        until_s = min(float(until_s), LONGEST_SPAN_S)
        if max_events is None:
            self._running.advance(until_s)
            return self
        if isinstance(max_events, bool) or not isinstance(max_events, int) or max_events < 1:
            raise config_error([("max_events", repr(max_events), "must be a whole number >= 1")])
        self._running.advance(until_s, min(max_events, _MOST_REQUESTS))
        return self

    @exclusive
    def observe(self, *, oracle: bool = False) -> dict[str, Any]:
        """State of the gateway and the fleet now, as a decision of the gateway sees it.

        Parameters
        ----------
        oracle : bool
            The true state of the fleet instead, which no gateway knows.

        Returns
        -------
        dict
            time_s; what the gateway itself counts, and is always fresh: in_flight, permits (None:
            the limit does not count requests), ready_instances, and per tenant, as a dict under
            `tenants`, submitted, dispatched, shed, completed, emitted_tokens (since the start),
            queued, and good (completed within the targets of their class; 0 without targets).

            Of the fleet, as the signals of the simulation report it: `instances`, a dict by number
            of waiting, running, kv_utilization, age_s (of this report; None: there is none yet, so
            the values are zero) and in_flight (the gateway's own count, fresh) of each ready
            instance; their totals waiting and running, and the mean kv_utilization.

            With `oracle`, waiting, running and kv_utilization are the true ones of all instances,
            as in `Timeline`. `instances` has them of every instance, with in_flight, is_ready,
            state (up, hung, restarting: from its crash until it serves again, or down for good),
            prefill_tokens (still to be computed) and what it has counted since the start: requests
            entered, refused, completed and cancelled, preemptions, steps, tokens_emitted, kv_hits
            and kv_lookups (blocks of prompts).

        """
        state: dict[str, Any] = self._running.observe(oracle)
        return state

    @exclusive
    def activity(self) -> list[tuple[str, int, int]]:
        """Of each instance its state, as `observe(oracle=True)` has it, steps and output tokens.

        Both are counted since the start. It costs less than `observe`.
        """
        found: list[tuple[str, int, int]] = self._running.activity()
        return found

    @exclusive
    def submit(
        self,
        *,
        input_tokens: int,
        output_tokens: int,
        max_tokens: int | None = None,
        model: str = "",
        tenant: str = "default",
        slo_class: str = "standard",
        segments: Iterable[tuple[int, int]] = (),
        instance: int | None = None,
        prefill_only: bool = False,
    ) -> Submitted:
        """Sends a request from outside the workload, after the events of this instant.

        To gateway, fleet and figures it is a request like any other; if it fails, its client
        reacts as the tenant's clients do. It is part of `simulation` from then on, as an entry of
        its `changes`.

        A tenant that no other request has, the first segments in a run whose prompts share none, or
        a request after all others had ended and the session was observed, replay the run up to now,
        which takes as long as the run so far. In an open-ended session whose workload is empty
        nothing does.

        Parameters
        ----------
        input_tokens, output_tokens : int
            Lengths of prompt (>= 1) and output (>= 0).
        max_tokens : int
            Maximum of its output that the client states, at least `output_tokens`; None: none.
        model : str
            Model that it names: one of `instances[].models`; "": that of its tenant, if any.
        tenant, slo_class : str
            A tenant and a class that the simulation or its workload names.
        segments : sequence of pairs
            What the prompt begins with: pairs of a number (>= 1), equal for equal content, and a
            length (tokens). Prompts that begin with the same segments share them in prefix caches;
            the rest of the prompt is shared with no other.
        instance : int
            The only instance that the router may choose, by position in the fleet. If it is not in
            service, the request is rejected. The gateway treats it as any other request. With
            prefill and decode pools it serves the whole request, whatever its role.
        prefill_only : bool
            With pools: `instance` only computes the prompt and holds it until `hand_off`, which
            also states the lengths of the output.

        Returns
        -------
        Submitted
            The request, whose `status()` says how far it has come.

        Raises
        ------
        ConfigError
            For an unknown tenant, class, model or instance, a length out of its range, or at the
            horizon. The session is as before.

        """
        horizon_s = self._start.horizon_s
        if horizon_s is not None and self.now_s >= horizon_s:
            allowed = "must be later than now_s: no request arrives after the end of the run"
            raise config_error([("horizon_s", f"{horizon_s:g}", allowed)])
        request = Submission(
            tenant=tenant,
            slo_class=slo_class,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            max_tokens=max_tokens,
            model=model,
            segments=[
                PromptSegment(content=content, tokens=tokens) for content, tokens in segments
            ],
            instance=instance,
            prefill_only=prefill_only,
        )
        if instance is not None and instance >= self._num_instances:
            allowed = f"must be one of the {self._num_instances} instances, from 0"
            raise config_error([("instance", str(instance), allowed)])
        change = {"at_s": self.now_s + _NS, "submit": [request]}
        if prefill_only and not (self._hands_off and instance is not None):
            checked_changes(self._start, [change])
            self._hands_off = True
        number = self._running.submit(request, change["at_s"])
        if number is None:
            if not self._running.knows(request):  # without the changes so far: they may be many
                checked_changes(self._start, [change])
            self._replay_with(change)
            number = self._core.num_submitted - 1
        self._note(change)
        return Submitted(self, number)

    @exclusive
    def cancel(self, request: Submitted | int) -> bool:
        """The client of a submitted request withdraws it, after the events of this instant.

        What happens is as if its patience ended then (`reaction`): queued, it leaves its queue; in
        the batch, it leaves at the end of the step; on its way, it leaves as it arrives. Its client
        sends no further attempt. It is part of `simulation`, as an entry of its `changes`.

        Parameters
        ----------
        request : Submitted or int
            The request, or its number.

        Returns
        -------
        bool
            False: it had ended before.

        Raises
        ------
        UsageError
            For a number that no request has, or a request that arrives later.

        """
        number = request if isinstance(request, int) else request.number
        at_s = self._running.cancel(number)
        if at_s is None:
            return False
        self._note({"at_s": at_s, "cancel": [number]})
        return True

    @exclusive
    def hand_off(
        self,
        request: Submitted | int,
        *,
        instance: int,
        output_tokens: int,
        max_tokens: int | None = None,
    ) -> bool:
        """Says where a request with `prefill_only` goes on, after the events of this instant.

        Its decode leg is sent to the instance, which reads the prompt over the link of
        `disaggregation`; if the prompt has not been computed yet, once it has. The request is the
        same, with other lengths of its output. It is part of `simulation`, as an entry of its
        `changes`. If the session has been observed while it waited for nothing but this, the run is
        replayed up to now, unless the session is open-ended.

        Parameters
        ----------
        request : Submitted or int
            The request, or its number.
        instance : int
            The instance of its decode leg, by position in the fleet. If it is not in service, the
            request is rejected.
        output_tokens, max_tokens : int
            As of `submit`; output_tokens >= 1.

        Returns
        -------
        bool
            False: it had ended before.

        Raises
        ------
        ConfigError
            For an unknown instance, or a length out of its range.
        UsageError
            For a number that no request has, or a request that arrives later, has no
            `prefill_only`, or was handed off before.

        """
        if instance >= self._num_instances:
            allowed = f"must be one of the {self._num_instances} instances, from 0"
            raise config_error([("instance", str(instance), allowed)])
        to = HandOff(
            request=request if isinstance(request, int) else request.number,
            instance=instance,
            output_tokens=output_tokens,
            max_tokens=max_tokens,
        )
        found = self._running.hand_off(to)
        if found is None:
            return False
        at_s, is_taken = found
        change = {"at_s": at_s, "hand_off": [to]}
        if not is_taken:
            self._replay_with(change)
        self._note(change)
        return True

    @exclusive
    def take_events(self) -> list[Event]:
        """What has happened to submitted requests since the last call, in order of time.

        Of a request whose client has sent another attempt, the events of the attempt before it are
        only those that an earlier call has returned. Its end is that of the last attempt.
        """
        return [Event._make(event) for event in self._running.take_events(self._record.forgets)]

    @exclusive
    def progress(self, requests: Iterable[Submitted | int]) -> list[int]:
        """Output tokens of submitted requests up to now; those of a step count from its end."""
        numbers = [item if isinstance(item, int) else item.number for item in requests]
        tokens: list[int] = self._running.progress(numbers)
        return tokens

    @property
    @exclusive
    def submitted(self) -> tuple[Submitted, ...]:
        """The requests from outside the workload, those of the simulation's `changes` included."""
        count = len(self._last) if self._core is None else self._core.num_submitted
        return tuple(Submitted(self, number) for number in range(count))

    @exclusive
    def _status(self, number: int) -> Status:
        if self._core is None:
            if number >= len(self._last):
                raise UsageError(f"status: forgotten, because it has ended: request {number}")
            return self._last[number]
        return Status(**self._core.status(number))

    @exclusive
    def set(self, changes: Mapping[str, Any]) -> Session:
        """Changes settings from now on, after the events of this instant; returns itself.

        A change that needs what the run has not measured so far replays the run up to now, which
        takes as long as the run so far: the first threshold of busy workers where nothing else
        asked for their loads, or one that makes policies look at what they ignored before. All
        others act immediately.

        Parameters
        ----------
        changes : mapping
            Values by path: those of `Simulation.changes`. They are the settings that
            `spillway describe` marks as changeable: limits, thresholds, rates, weights, bounds and
            time-outs of queues, targets and gains of controllers, `fleet.target_instances`.

        Raises
        ------
        ConfigError
            For another path, or a value out of its range. The session is as before.

        """
        self._set(dict(changes))
        return self

    @exclusive
    def fail(self, *faults: Any) -> Session:
        """Lets instances and gateways fail now, after the events of this instant; returns itself.

        The faults are part of `simulation` from then on, as an entry of its `changes`. The first
        one of the gateway, and one of an instance unless the session began with `may_fail`, of a
        simulation without such faults replays the run up to now, which takes as long as the run so
        far; all others act immediately.

        Parameters
        ----------
        faults : fleet.Crash, Hang, Slowdown, KvLoss or GatewayCrash, or mapping
            What fails, and for how long, as in `Simulation.changes`, e.g. `{"kind": "crash",
            "instance": 3, "for_s": 200}`.

        Raises
        ------
        ConfigError
            For what does not exist or cannot fail. The session is as before.

        """
        change = Change(at_s=self.now_s + _NS, faults=list(faults))
        checked_changes(self._start, [change])
        noted = {"at_s": change.at_s, "faults": list(change.faults)}
        if not self._running.fail(change, change.at_s):
            self._replay_with(noted)
        self._note(noted)
        return self

    @exclusive
    def fork(self) -> Session:
        """An independent session with the same past, held at the same instant.

        Its past is replayed, which takes as long as the run so far.
        """
        self._record.must_be_whole("fork")
        return self._replayed(self._stated())

    @exclusive
    def finish(self) -> Result:
        """Runs to the end and returns the result. The session is over then.

        Raises UsageError if the changes that led to it are not kept (`record`).
        """
        from spillway.result import Result

        running = self._running
        simulation = self._stated()
        running.close()
        running.advance(LONGEST_SPAN_S)
        count = 0 if self._record.forgets else running.num_submitted
        last = [Status(**running.status(i)) for i in range(count)]
        output = running.finish()
        self._last, self._core = last, None
        self._record.close()
        return Result(simulation, self.seed, output)

    def _stated(self) -> Simulation:
        if self._record.path is not None:
            return recorded(self._record.path)
        self._record.must_be_whole("simulation")
        if self._changes:
            self._start, self._changes = self._with([]), []
        return self._start

    def _set(self, values: dict[str, Any]) -> None:
        change = {"at_s": self.now_s + _NS, "set": values}
        if not self._running.set(values, change["at_s"]):
            self._replay_with(change)
        self._note(change)

    def _note(self, change: dict[str, Any]) -> None:
        if self._record.is_whole:
            self._changes.append(change)
        else:
            self._record.add(change)

    def _replay_with(self, change: dict[str, Any]) -> None:
        self._record.must_be_whole("a change that replays the run")
        self._core = self._replayed(self._with([change]))._core

    def _with(self, further: list[dict[str, Any]]) -> Simulation:
        return checked_changes(self._start, [*self._start.changes, *self._changes, *further])

    def _replayed(self, simulation: Simulation) -> Session:
        now_s = self.now_s
        return Session(
            simulation, self.seed, open_ended=self._open_ended, may_fail=self._may_fail
        ).advance(now_s)

    @property
    def _running(self) -> Any:
        if self._core is None:
            raise UsageError("the session is over: finish() was called")
        return self._core

    def __getstate__(self) -> dict[str, Any]:
        if self._core is not None:
            raise TypeError("a session cannot be copied or pickled before it is over: see fork()")
        return self.__dict__

    def __repr__(self) -> str:
        if self._core is None:
            return f"<Session of seed {self.seed}, finished>"
        return f"<Session of seed {self.seed} at {self.now_s:g} s>"


def _advance_by(
    span_s: float, steps: Sequence[tuple[Session, dict[str, Any]]], threads: int
) -> None:
    """`set` (without values: nothing), and `advance` by a span (s), of several sessions at once.

    On at most this many threads. After an error, some sessions may have advanced.
    """
    sessions = [session for session, _ in steps]
    with Calls("advance", [call for session in sessions for call in session._calls]):
        before_s = [session.now_s for session in sessions]
        until_s = [min(now_s + span_s, LONGEST_SPAN_S) for now_s in before_s]
        counts = [session._running.num_changes for session in sessions]
        left = []
        try:
            _core.cluster.advance_all(
                [
                    (session._running, values, at_s + _NS, until)
                    for (session, values), at_s, until in zip(steps, before_s, until_s, strict=True)
                ],
                threads,
            )
        finally:  # an interrupted run has the change
            for i, (session, values) in enumerate(steps):
                if session._running.num_changes > counts[i]:
                    session._note({"at_s": before_s[i] + _NS, "set": values})
                elif values:
                    left.append(i)
        for i in left:
            session, values = steps[i]
            session._set(values)
            session._running.advance(until_s[i])
