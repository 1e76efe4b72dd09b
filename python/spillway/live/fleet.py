"""A simulated fleet that follows the clock of an event loop."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from spillway.config.limits import LONGEST_SPAN_S
from spillway.live.histogram import Histogram
from spillway.session import start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from spillway._core.cluster import Simulation
    from spillway.session import Event, Submitted

_MOST_EVENTS = 20_000
_COALESCED_S = 0.001
_LATE_S = 0.05
_NS = 1e-9
_NEVER_S = LONGEST_SPAN_S / 2  # an event beyond is that of no end
_LATENESS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


@dataclass(eq=False)
class Served:
    """A request in the fleet."""

    request: Submitted
    input_tokens: int
    output_tokens: int
    max_tokens: int
    tenant: str
    arrived_s: float
    emitted: int = 0
    instance: int = -1
    dispatched_s: float | None = None
    keeps: bool = False  # its instance only computes its prompt, which it keeps then
    reads: bool = False  # its prompt comes from another instance
    transfer: str = ""  # what became of its transfer parameters: one of `transfers.RESULTS`
    is_inside: bool = False  # its instance has let it in
    scheduled_s: float = math.nan
    first_token_s: float | None = None
    last_token_s: float = math.nan
    end: Event | None = None
    is_gone: bool = False
    is_cancelled: bool = False
    is_stopped: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def number(self) -> int:
        """Its number in the session."""
        return self.request.number

    @property
    def is_kept(self) -> bool:
        """Whether its prompt has been computed, and is all that was to be done for now."""
        return self.keeps and self.first_token_s is not None

    @property
    def finish_reason(self) -> str:
        """As the API states it."""
        return "length" if self.output_tokens >= self.max_tokens else "stop"


class Counts(Protocol):
    """What counts the tokens and ends of requests: `metrics.Metrics`."""

    def note_first_token(self, served: Served, happened: Event) -> None:
        """Counts a prompt that has been computed."""

    def note_tokens(self, served: Served, count: int, interval_s: float) -> None:
        """Counts output tokens after the first, with the time that each took (s)."""

    def note_kept(self, served: Served, happened: Event) -> None:
        """Counts a request whose prompt has been computed, and is kept."""

    def note_end(self, served: Served) -> None:
        """Counts a request that has ended."""

    def note_steps(self, instance: int, begun: int, tokens: int) -> None:
        """Counts steps of an instance that have begun, and output tokens of those that ended."""

    def restart(self, instance: int, counted: Mapping[str, float]) -> None:
        """An instance has crashed: its process counts from 0 again; `counted`: so far."""


class Fleet:
    """A session, advanced with the clock: its requests wake their handlers."""

    def __init__(
        self,
        simulation: Simulation,
        *,
        seed: int,
        speed: float,
        record: str | Path,
        metrics: Counts,
        may_fail: bool = False,
        runs_on: bool = False,
        lease_s: float = math.inf,
    ) -> None:
        """`runs_on`: at speed 0, time also goes on while an instance starts again.

        `lease_s`: how long a prompt is kept that no instance goes on with.
        """
        self.session = start(simulation, seed, open_ended=True, record=record, may_fail=may_fail)
        self.speed = speed
        self.served: dict[int, Served] = {}
        self._on_the_way: set[int] = set()
        self._metrics = metrics
        self.lateness = Histogram(_LATENESS_S)
        self.times_late = 0
        self.late_s = 0.0
        self._timer: asyncio.Handle | None = None
        self._due_s: float | None = None
        self._began: float | None = None
        self._last = 0.0
        self._is_closed = False
        self._runs_on = runs_on
        self._seen = self.session.activity()
        self._turned = asyncio.Event()  # until the next change of an instance's state
        self._num_held = 0  # calls that wait for an instance
        self._is_stopped = False
        self._lease_s = lease_s
        #: When the prompts that instances keep expire, by number, in this order.
        self.kept: dict[int, float] = {}
        self._of_kept: dict[int, Served] = {}
        #: Called with the number of a prompt that is not kept any more, and why: read_before,
        #: expired, or lost with its instance.
        self.drops: Callable[[int, str], None] = lambda _, __: None
        #: Called with the number of an instance whose state has changed.
        self.turns: Callable[[int], None] = lambda _: None

    def state_of(self, instance: int) -> str:
        """Of an instance: up, hung, restarting or down."""
        return self._seen[instance][0]

    def is_gone(self, instance: int) -> bool:
        """Whether the process of an instance has ended, and does not serve again yet."""
        return self.state_of(instance) in ("restarting", "down")

    async def answers(self, instance: int, served: Served | None = None) -> bool:
        """Waits while an instance hangs and the client stays; whether it is there then."""
        self._num_held += 1
        try:
            while self.state_of(instance) == "hung" and not self._is_stopped:
                if served is not None and served.is_gone:
                    break
                self._schedule()
                await self._turned.wait()
        finally:
            self._num_held -= 1
        return self.state_of(instance) == "up"

    def begin(self) -> None:
        """Simulated time begins, if it has not."""
        self._catch_up()
        self._schedule()

    def submit(
        self,
        *,
        input_tokens: int,
        output_tokens: int,
        max_tokens: int,
        tenant: str,
        slo_class: str,
        segments: Sequence[tuple[int, int]],
        instance: int | None = None,
        keeps: bool = False,
    ) -> Served:
        """Sends a request now, to any or one instance. Raises ConfigError for an unknown class.

        `keeps`: only its prompt is computed, and kept until `go_on`.
        """
        self._catch_up()
        request = self.session.submit(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            max_tokens=max_tokens,
            tenant=tenant,
            slo_class=slo_class,
            segments=segments,
            instance=instance,
            prefill_only=keeps,
        )
        served = Served(
            request, input_tokens, output_tokens, max_tokens, tenant, self.session.now_s
        )
        served.keeps = keeps
        self.served[served.number] = served
        self._schedule()
        return served

    def go_on(
        self, number: int, *, instance: int, output_tokens: int, max_tokens: int
    ) -> Served | None:
        """An instance goes on now with a request whose prompt is kept; None: it is so no more."""
        self._catch_up()
        if number not in self.kept:
            return None
        before = self._of_kept.pop(number)
        del self.kept[number]
        self.drops(number, "read_before")
        request = before.request
        self.session.hand_off(
            request, instance=instance, output_tokens=output_tokens, max_tokens=max_tokens
        )
        now_s = self.session.now_s
        served = Served(
            request, before.input_tokens, output_tokens, max_tokens, before.tenant, now_s
        )
        served.reads, served.dispatched_s, served.instance = True, now_s, instance
        self.served[number] = served
        self._on_the_way.add(number)
        self._schedule()
        return served

    def leave(self, served: Served) -> None:
        """Its client has gone, also if its handler waits for an instance that hangs."""
        served.is_gone = True
        self.cancel(served)
        served.changed.set()
        self._wake()

    def cancel(self, served: Served) -> None:
        """No client waits for it."""
        if self.served.get(served.number) is served and not served.is_cancelled:
            self._catch_up()
            if self.served.get(served.number) is served:
                self.session.cancel(served.number)
                served.is_cancelled = True
            self._schedule()

    def awaited(self) -> Counter[int]:
        """Requests that wait for prompts of other instances, by instance."""
        found = (served for served in self.served.values() if served.reads)
        return Counter(served.instance for served in found if not served.is_inside)

    def observe(self) -> dict[str, Any]:
        """The true state now."""
        self._catch_up()
        self._schedule()
        return self.session.observe(oracle=True)

    def set(self, values: Mapping[str, Any]) -> float:
        """Changes settings now; returns the instant (s). Raises ConfigError and UsageError."""
        self._catch_up()
        self.session.set(values)
        self._schedule()
        return self.session.now_s

    def fail(self, faults: Sequence[Any]) -> float:
        """Instances fail now; returns the instant (s). Raises ConfigError and UsageError."""
        self._catch_up()
        self.session.fail(*faults)
        self._advance(self.session.now_s + _NS)
        self._schedule()
        return self.session.now_s

    def now_s(self) -> float:
        """The simulated instant now (s)."""
        self._catch_up()
        self._schedule()
        return self.session.now_s

    def stop(self) -> None:
        """Ends all streams: their handlers say so. No call waits for an instance any more."""
        self._is_stopped = True
        self._wake()
        for served in self.served.values():
            served.is_stopped = True
            served.changed.set()

    def close(self) -> None:
        """The clock stands still from now on, and the record is complete.

        In the record, the prompts that instances still keep are given up.
        """
        self._is_closed = True
        for number in self.kept:
            self.session.cancel(number)
        self.session._record.close()
        if self._timer is not None:
            self._timer.cancel()

    def _catch_up(self) -> None:
        loop = asyncio.get_running_loop()
        if self._began is None:
            self._began = loop.time()
        if self.speed:
            self._advance((loop.time() - self._began) * self.speed)

    def _advance(self, until_s: float) -> None:
        while self.kept and (due_s := next(iter(self.kept.values()))) <= until_s:
            self._advance_to(due_s)
            if self.session.now_s < due_s:
                return
            number = next(iter(self.kept), None)
            if number is not None and self.kept[number] <= due_s:
                self.session.cancel(number)
                self._drop(number, "expired")
        self._advance_to(until_s)

    def _drop(self, number: int, why: str) -> None:
        del self.kept[number], self._of_kept[number]
        self.drops(number, why)

    def _advance_to(self, until_s: float) -> None:
        session = self.session
        if until_s > session.now_s:
            session.advance(until_s, max_events=_MOST_EVENTS)
        for happened in session.take_events():
            self._note(happened)
        for number in list(self._on_the_way):
            served = self.served.get(number)
            if served is None or served.request.state != "in_transit":
                self._on_the_way.discard(number)
                if served is not None:
                    served.is_inside = True
                    served.changed.set()
        numbers = [number for number, served in self.served.items() if served.first_token_s]
        for number, tokens in zip(numbers, session.progress(numbers), strict=True):
            served = self.served[number]
            if tokens > served.emitted:
                self._emitted(served, tokens, session.now_s)
                served.changed.set()
        self._look()

    def _look(self) -> None:
        """Counts the steps since the last look; notes instances that have failed or returned."""
        before, self._seen = self._seen, self.session.activity()
        turned = []
        for i, ((was, steps, tokens), (state, all_steps, all_tokens)) in enumerate(
            zip(before, self._seen, strict=True)
        ):
            if all_steps > steps or all_tokens > tokens:
                self._metrics.note_steps(i, all_steps - steps, all_tokens - tokens)
            if state != was:
                turned.append(i)
                if was in ("up", "hung") and self.is_gone(i):
                    self._metrics.restart(i, self.session.observe(oracle=True)["instances"][i])
        if turned:
            self._wake()
        for i in turned:
            self.turns(i)

    def _wake(self) -> None:
        self._turned.set()
        self._turned = asyncio.Event()

    def _note(self, happened: Event) -> None:
        if happened.number in self.kept:
            self._drop(happened.number, "lost")
        served = self.served.get(happened.number)
        if served is None:  # of the configuration's own changes, or not kept any more
            return
        if happened.kind == "dispatched":
            served.dispatched_s = happened.time_s
            served.instance = happened.instance
            self._on_the_way.add(happened.number)
        elif happened.kind == "prompt_computed":
            served.first_token_s = served.last_token_s = happened.time_s
            served.scheduled_s = happened.scheduled_s
            served.instance, served.emitted = happened.instance, 1
            del self.served[served.number]
            self.kept[served.number] = happened.time_s + self._lease_s
            self._of_kept[served.number] = served
            self._metrics.note_first_token(served, happened)
            self._metrics.note_kept(served, happened)
        elif happened.kind == "first_token":
            served.first_token_s = served.last_token_s = happened.time_s
            served.scheduled_s = happened.scheduled_s
            served.instance = happened.instance
            served.emitted = 1
            self._metrics.note_first_token(served, happened)
        else:
            served.end = happened
            served.instance = happened.instance
            self._emitted(served, happened.output_tokens, happened.time_s)
            del self.served[happened.number]
            self._metrics.note_end(served)
        served.changed.set()

    # Of tokens that were sent together, the intervals are taken as equal.
    def _emitted(self, served: Served, tokens: int, at_s: float) -> None:
        more = tokens - served.emitted
        if more > 0 and served.first_token_s is not None:
            self._metrics.note_tokens(served, more, (at_s - served.last_token_s) / more)
            served.last_token_s = at_s
        served.emitted = tokens

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_s = None if self._is_closed else self.session.next_due_s
        if self.kept and not self._is_closed:
            expires_s = next(iter(self.kept.values()))
            self._due_s = expires_s if self._due_s is None else min(self._due_s, expires_s)
        if self._due_s is None or self._due_s > _NEVER_S:
            return
        loop = asyncio.get_running_loop()
        if not self.speed:
            is_starting = self._runs_on and any(seen[0] == "restarting" for seen in self._seen)
            if self.served or self._num_held or is_starting:
                self._timer = loop.call_soon(self._tick)
            return
        assert self._began is not None
        at = max(self._began + self._due_s / self.speed, self._last + _COALESCED_S)
        self._timer = loop.call_at(at, self._tick)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        self._last = loop.time()
        if self._due_s is None or self._is_closed:
            return
        if not self.speed:
            self._advance(self._due_s)
        else:
            assert self._began is not None
            now_s = (self._last - self._began) * self.speed
            self.late_s = max(0.0, (now_s - self._due_s) / self.speed)
            self.lateness.add(self.late_s)
            self.times_late += self.late_s > _LATE_S
            self._advance(now_s)
        self._schedule()
