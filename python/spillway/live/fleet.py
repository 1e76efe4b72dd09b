"""A simulated fleet that follows the clock of an event loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spillway.live.histogram import Histogram
from spillway.session import start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from spillway._core.cluster import Simulation
    from spillway.session import Event, Submitted

_MOST_EVENTS = 20_000
_COALESCED_S = 0.001
_LATE_S = 0.05
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
    dispatched_s: float | None = None
    is_inside: bool = False  # its instance has let it in
    first_token_s: float | None = None
    end: Event | None = None
    is_gone: bool = False
    is_stopped: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def number(self) -> int:
        """Its number in the session."""
        return self.request.number

    @property
    def finish_reason(self) -> str:
        """As the API states it."""
        return "length" if self.output_tokens >= self.max_tokens else "stop"


class Fleet:
    """A session, advanced with the clock: its requests wake their handlers."""

    def __init__(
        self,
        simulation: Simulation,
        *,
        seed: int,
        speed: float,
        record: str | Path,
        ended: Callable[[Served], None],
    ) -> None:
        self.session = start(simulation, seed, open_ended=True, record=record)
        self.speed = speed
        self.served: dict[int, Served] = {}
        self._on_the_way: set[int] = set()
        self._ended = ended
        self.lateness = Histogram(_LATENESS_S)
        self.times_late = 0
        self.late_s = 0.0
        self._timer: asyncio.Handle | None = None
        self._due_s: float | None = None
        self._began: float | None = None
        self._last = 0.0
        self._is_closed = False

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
    ) -> Served:
        """Sends a request now, to any or one instance. Raises ConfigError for an unknown class."""
        self._catch_up()
        request = self.session.submit(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            tenant=tenant,
            slo_class=slo_class,
            segments=segments,
            instance=instance,
        )
        served = Served(
            request, input_tokens, output_tokens, max_tokens, tenant, self.session.now_s
        )
        self.served[served.number] = served
        self._schedule()
        return served

    def cancel(self, served: Served) -> None:
        """Its client has gone."""
        if served.end is None and served.number in self.served:
            self._catch_up()
            if served.end is None:
                self.session.cancel(served.number)
            self._schedule()

    def observe(self) -> dict[str, Any]:
        """The true state now."""
        self._catch_up()
        self._schedule()
        return self.session.observe(oracle=True)

    def stop(self) -> None:
        """Ends all streams: their handlers say so."""
        for served in self.served.values():
            served.is_stopped = True
            served.changed.set()

    def close(self) -> None:
        """The clock stands still from now on, and the record is complete."""
        self._is_closed = True
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
                served.emitted = tokens
                served.changed.set()

    def _note(self, happened: Event) -> None:
        served = self.served.get(happened.number)
        if served is None:  # of the configuration's own changes
            return
        if happened.kind == "dispatched":
            served.dispatched_s = happened.time_s
            self._on_the_way.add(happened.number)
        elif happened.kind == "first_token":
            served.first_token_s = happened.time_s
        else:
            served.end = happened
            served.emitted = happened.output_tokens
            del self.served[happened.number]
            self._ended(served)
        served.changed.set()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_s = None if self._is_closed else self.session.next_due_s
        if self._due_s is None:
            return
        loop = asyncio.get_running_loop()
        if not self.speed:
            if self.served:
                self._timer = loop.call_soon(self._tick)
            return
        assert self._began is not None
        at = max(self._began + self._due_s / self.speed, self._last + _COALESCED_S)
        self._timer = loop.call_at(at, self._tick)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        self._last = loop.time()
        if self._due_s is None:
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
