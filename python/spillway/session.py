"""A run that is held, looked at, acted upon, and continued."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway._core.sim import Calls, ConfigError, Exclusive, UsageError
from spillway._core.workload import Submission
from spillway.config import memory
from spillway.config.classes import config_error
from spillway.config.exclusive import exclusive
from spillway.config.limits import LONGEST_SPAN_S
from spillway.simulate import _checked_seed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway._core.cluster import Simulation
    from spillway.loading import Configuration
    from spillway.result import Result

__all__ = ["Session", "Status", "Submitted", "start"]


_NS = 1e-9
_MOST_REQUESTS = 2**62


def start(simulation: Configuration, seed: int = 0) -> Session:
    """Begins a run that can be held at any instant.

    Parameters
    ----------
    simulation : Simulation or path
        What to run, or the path of a configuration file.
    seed : int
        Seed of every random stream, 0 <= seed < 2**64.

    Returns
    -------
    Session
        Held at time 0, before the first event.

    Raises
    ------
    ConfigError
        If the simulation cannot be run.

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

    return Session(loading.as_simulation(simulation), _checked_seed(seed))


@dataclass(frozen=True)
class Status:
    """How far a submitted request has come.

    Attributes
    ----------
    state : str
        "submitted" before its arrival, "awaiting_retry" while its client is about to send another
        attempt, otherwise as `outcome` in `Result.requests`: queued, in_transit, running (in an
        instance, waiting or in the batch), completed, rejected, expired, evicted, failed or
        cancelled.
    has_ended : bool
        Whether this is how it ended.
    reason : str
        Why it was not completed, as in `Result.requests`; empty: no reason.
    row : int or None
        Its row in `Result.requests`; None before its arrival.
    attempts, instance, output_tokens : int
        Attempts so far; the instance, -1: none; output tokens delivered, known once it has ended.
    arrival_s, ttft_s, tpot_s, e2e_s, queue_s : float
        As in `Result.requests` (s); NaN where it has not come that far.

    """

    state: str
    has_ended: bool
    reason: str
    row: int | None
    attempts: int
    instance: int
    output_tokens: int
    arrival_s: float
    ttft_s: float
    tpot_s: float
    e2e_s: float
    queue_s: float


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

    def __init__(self, simulation: Simulation, seed: int) -> None:
        self._calls = (Exclusive("session", "now_s and seed"),)
        memory.check([simulation])
        self._start = simulation
        self._changes: list[dict[str, Any]] = []
        self.seed = seed
        self._core: Any = _core.cluster.Session(simulation, seed)
        self._last: list[Status] = []  # of the submitted requests, once the session is over

    @property
    @exclusive
    def simulation(self) -> Simulation:
        """The configuration, with the changes so far."""
        return self._stated()

    @property
    def now_s(self) -> float:
        """The instant up to which everything has happened."""
        return float(self._running.now_s)

    @property
    @exclusive
    def is_over(self) -> bool:
        """Whether all requests have arrived and ended, until another one is submitted."""
        return not self._running.has_pending_work

    @exclusive
    def advance(self, until_s: float | None = None, *, requests: int | None = None) -> Session:
        """Runs up to an instant, whose events happen; returns itself.

        Parameters
        ----------
        until_s : float
            The instant (s), >= `now_s`. The horizon of the simulation is the last one.
        requests : int
            Instead of `until_s`: up to the instant at which this many more requests (>= 1) have
            arrived at the gateway. Requests of the workload and submitted ones count once, at their
            first attempt; retries do not count. Several may arrive at that instant. If fewer come,
            the session runs to the end: the last event, or the horizon.

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
            self._running.advance_by(min(requests, _MOST_REQUESTS))
            return self
        if not (isinstance(until_s, int | float) and until_s >= self.now_s):
            allowed = f"must be >= now_s = {self.now_s:g} (s)"
            raise config_error([("until_s", repr(until_s), allowed)])
        self._running.advance(min(float(until_s), LONGEST_SPAN_S))
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
            as in `Timeline`, and there is no `instances`.

        """
        state: dict[str, Any] = self._running.observe(oracle)
        return state

    @exclusive
    def submit(
        self,
        *,
        input_tokens: int,
        output_tokens: int,
        tenant: str = "default",
        slo_class: str = "standard",
    ) -> Submitted:
        """Sends a request from outside the workload, after the events of this instant.

        To gateway, fleet and figures it is a request like any other; if it fails, its client
        reacts as the tenant's clients do. It is part of `simulation` from then on, as an entry of
        its `changes`.

        A tenant that no other request has, or a request after all others had ended and the session
        was observed, replays the run up to now, which takes as long as the run so far.

        Parameters
        ----------
        input_tokens, output_tokens : int
            Lengths of prompt (>= 1) and output (>= 0).
        tenant, slo_class : str
            A tenant and a class that the simulation or its workload names.

        Returns
        -------
        Submitted
            The request, whose `status()` says how far it has come.

        Raises
        ------
        ConfigError
            For an unknown tenant or class, a length out of its range, or at the horizon. The
            session is as before.

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
        )
        change = {"at_s": self.now_s + _NS, "submit": [request]}
        number = self._running.submit(request, change["at_s"])
        if number is None:
            self._core = self._replayed(self._with([change]))._core
            number = self._core.num_submitted - 1
        self._changes.append(change)
        return Submitted(self, number)

    @property
    @exclusive
    def submitted(self) -> tuple[Submitted, ...]:
        """The requests from outside the workload, those of the simulation's `changes` included."""
        count = len(self._last) if self._core is None else self._core.num_submitted
        return tuple(Submitted(self, number) for number in range(count))

    @exclusive
    def _status(self, number: int) -> Status:
        if self._core is None:
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
    def fork(self) -> Session:
        """An independent session with the same past, held at the same instant.

        Its past is replayed, which takes as long as the run so far.
        """
        return self._replayed(self._stated())

    @exclusive
    def finish(self) -> Result:
        """Runs to the end and returns the result. The session is over then."""
        from spillway.result import Result

        running = self._running
        running.advance(LONGEST_SPAN_S)
        last = [Status(**running.status(i)) for i in range(running.num_submitted)]
        output = running.finish()
        self._last, self._core = last, None
        return Result(self._stated(), self.seed, output)

    def _stated(self) -> Simulation:
        if self._changes:
            self._start, self._changes = self._with([]), []
        return self._start

    def _set(self, values: dict[str, Any]) -> None:
        change = {"at_s": self.now_s + _NS, "set": values}
        if not self._running.set(values, change["at_s"]):
            self._core = self._replayed(self._with([change]))._core
        self._changes.append(change)

    def _with(self, further: list[dict[str, Any]]) -> Simulation:
        before = self._start.changes
        try:
            return self._start.replace(changes=[*before, *self._changes, *further])
        except ConfigError as error:
            place = re.compile(r"changes\[\d+\]\.(?:set\[(.*)\]|submit\[\d+\]\.(\w+))")
            raise config_error(
                [(place.sub(r"\1\2", path), value, why) for path, value, why in error.violations]
            ) from None

    def _replayed(self, simulation: Simulation) -> Session:
        now_s = self.now_s
        return Session(simulation, self.seed).advance(now_s)

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
                    session._changes.append({"at_s": before_s[i] + _NS, "set": values})
                elif values:
                    left.append(i)
        for i in left:
            session, values = steps[i]
            session._set(values)
            session._running.advance(until_s[i])
