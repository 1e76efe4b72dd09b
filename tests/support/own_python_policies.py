"""Policies in Python for every seam, of all kinds of behavior; they hold their own identities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway import policies

if TYPE_CHECKING:
    from collections.abc import Mapping


class AtMost:
    """Admits while few requests are in flight, and charges what it admits."""

    def __init__(self, in_flight: int = 20) -> None:
        self.in_flight, self.charged, self.ended = in_flight, 0, 0

    def decide(self, request: policies.Request, view: policies.View) -> bool | policies.Reject:
        if request.input_tokens > 350:
            return policies.Reject("unservable")
        return int(view.in_flight.sum()) < self.in_flight

    def commit(self, request: policies.Request, now_s: float) -> None:
        self.charged += 1

    def finished(self, request: policies.Request, now_s: float) -> None:
        self.ended += 1
        assert self.ended <= self.charged


class Sometimes:
    """Draws."""

    def __init__(self, probability: float = 0.7) -> None:
        self.probability = probability

    def decide(self, request: policies.Request, view: policies.View) -> bool | policies.Reject:
        return view.rng.uniform() < self.probability or policies.Reject("rate_limited")


class OldestHead:
    def next(self, queues: policies.Queues) -> int | None:
        may_start = queues.may_start.tolist()
        turns = [i for i, may in enumerate(may_start) if may]
        return min(turns, key=queues.head_serials.tolist().__getitem__, default=None)


class Few:
    """A limit that a controller can move."""

    def __init__(self, permits: float = 12.0) -> None:
        self.permits, self.taken = permits, 0

    def may_start(self, request: policies.Request, view: policies.View) -> bool:
        return self.taken < self.permits

    def started(self, request: policies.Request) -> None:
        self.taken += 1

    def ended(self, request: policies.Request) -> None:
        self.taken -= 1
        assert self.taken >= 0

    def setting(self) -> float:
        return self.permits

    def resize(self, setting: float) -> None:
        self.permits = setting


class Steps:
    def tick(self, reading: policies.Reading, limit: float, now_s: float) -> float:
        return limit * 0.8 if reading.value > 0.5 else limit + 0.5


class Falling:
    def ceilings(self, saturation: float, priorities: tuple[int, ...]) -> list[float]:
        return [1 / (1 + i) for i in range(len(priorities))]


class Shortest:
    def pick(self, request: policies.Request, view: policies.View) -> int:
        return int((view.waiting + view.running + view.in_flight).argmin())


class Anywhere:
    def pick(self, request: policies.Request, view: policies.View) -> int:
        return int(view.rng.below(len(view)))


class Free:
    def score(self, request: policies.Request, view: policies.View) -> Any:
        return 1 - view.kv_utilization


class NotTheBusiest:
    def keep(self, request: policies.Request, view: policies.View) -> Any:
        return view.waiting <= view.waiting.mean()


class Lottery:
    def choose(self, scores: Any, rng: Any) -> int:
        return int(rng.below(len(scores)))


class ShortestPrompt:
    def rank(self, request: policies.Request) -> int:
        return int(request.input_tokens)


IN_PYTHON: Mapping[str, tuple[type, ...]] = {
    "gateway.admission": (AtMost, Sometimes),
    "gateway.bands[0].fairness": (OldestHead,),
    "gateway.limit": (Few,),
    "gateway.controller": (Steps,),
    "gateway.usage_limit": (Falling,),
    "router": (Shortest, Anywhere),
    "router.scorers": (Free,),
    "router.filters": (NotTheBusiest,),
    "router.picker": (Lottery,),
    "instances[0].scheduler": (ShortestPrompt,),
}
"""By the place of the setting."""
