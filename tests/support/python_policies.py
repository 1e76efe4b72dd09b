"""Policies written in Python: one of every seam with every method of its contract, and others."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import Simulation, policies, router

if TYPE_CHECKING:
    from collections.abc import Callable


class Admission:
    """Admits while few requests are in flight, and counts what it admits."""

    def __init__(self, in_flight: int = 20) -> None:
        self.in_flight, self.charged, self.ended = in_flight, 0, 0

    def decide(self, request: Any, view: Any) -> bool | policies.Reject:
        if request.input_tokens > 550:
            return policies.Reject("unservable")
        return int(view.in_flight.sum()) < self.in_flight

    def commit(self, request: Any, now_s: float) -> None:
        self.charged += 1

    def dispatched(self, request: Any, now_s: float) -> None: ...
    def first_token(self, request: Any, now_s: float) -> None: ...

    def finished(self, request: Any, now_s: float) -> None:
        self.ended += 1
        assert self.ended <= self.charged


class Sometimes:
    """Draws."""

    def decide(self, request: Any, view: Any) -> bool | policies.Reject:
        return view.rng.uniform() < 0.7 or policies.Reject("rate_limited")


class Fairness:
    def next(self, queues: Any) -> int:
        return int(np.where(queues.may_start, queues.lengths, -1).argmax())

    def joined(self, tenant: int, queues: Any) -> None: ...
    def left(self, tenant: int, queues: Any) -> None: ...
    def dispatched(self, tenant: int, queues: Any) -> None: ...
    def charge(self, tenant: int, amount: float, now_s: float) -> None: ...


class Limit:
    """A controller can move it."""

    def __init__(self, permits: float = 10.0) -> None:
        self.permits, self.taken = permits, 0

    def may_start(self, request: Any, view: Any) -> bool:
        return self.taken < self.permits

    def started(self, request: Any) -> None:
        self.taken += 1

    def first_token(self, request: Any) -> None: ...

    def ended(self, request: Any) -> None:
        self.taken -= 1
        assert self.taken >= 0

    def saturation(self, view: Any) -> float:
        return float(view.waiting.mean() / 8)

    def setting(self) -> float:
        return self.permits

    def resize(self, setting: float) -> None:
        self.permits = setting


class UsageLimit:
    def ceilings(self, saturation: float, priorities: tuple[int, ...]) -> list[float]:
        return [1 / (1 + i) for i in range(len(priorities))]


class Controller:
    def tick(self, reading: Any, limit: float, now_s: float) -> float:
        return limit * 0.8 if reading.value > 0.5 else limit + 0.5

    def sample(self, value: float, dispatched_s: float, now_s: float) -> None: ...


class Router:
    def pick(self, request: Any, view: Any) -> int:
        return int((view.waiting + view.running + view.in_flight).argmin())


class Anywhere:
    """Draws."""

    def pick(self, request: Any, view: Any) -> int:
        return int(view.rng.below(len(view)))


class Scorer:
    def score(self, request: Any, view: Any) -> Any:
        return 1 / (1 + view.in_flight)


class Filter:
    def keep(self, request: Any, view: Any) -> Any:
        return view.waiting <= view.waiting.mean()


class Picker:
    def choose(self, scores: Any, rng: Any) -> int:
        return int(rng.below(len(scores)))


class Decider:
    """Computes short prompts in the decode pool, and more while the prefill pool is busy."""

    def __init__(self, tokens: int = 100) -> None:
        self.tokens = tokens

    def is_local(self, request: Any, legs: Any) -> bool:
        assert legs.prompt_tokens >= request.input_tokens
        uncached = legs.prompt_tokens - legs.decode_cached_tokens
        return uncached < self.tokens + legs.prefill_pending_tokens // 2


class Scheduler:
    def rank(self, request: Any) -> int:
        return int(request.input_tokens)


#: One of every seam, with the path of the setting that takes it.
PLACES: dict[str, tuple[str, type]] = {
    "Admission": ("gateway.admission", Admission),
    "Fairness": ("gateway.bands[0].fairness", Fairness),
    "Limit": ("gateway.limit", Limit),
    "UsageLimit": ("gateway.usage_limit", UsageLimit),
    "Controller": ("gateway.controller", Controller),
    "Router": ("router", Router),
    "Scorer": ("router.scorers", Scorer),
    "Filter": ("router.filters", Filter),
    "Picker": ("router.picker", Picker),
    "Decider": ("disaggregation.decider", Decider),
    "Scheduler": ("instances[0].scheduler", Scheduler),
}
#: Those and others.
ALL = (*PLACES.values(), ("gateway.admission", Sometimes), ("router", Anywhere))
_LISTS = ("gateway.admission", "gateway.limit", "router.scorers", "router.filters")
TOKENS = {"kind": "fixed", "tokens": 30}
BUSY = Simulation(
    tenants=[{"name": "gold"}, {"name": "default"}],
    instances=[{"count": 2, "max_num_seqs": 4, "num_kv_blocks": 2000}],
    workload={
        "kind": "synthetic",
        "requests_per_s": 40,
        "num_requests": 60,
        "clients": [
            {"name": "a", "tenant": "gold", "output_tokens": TOKENS},
            {"name": "b", "tenant": "default", "output_tokens": TOKENS},
        ],
    },
)


def methods() -> list[tuple[str, str]]:
    """Every method of every contract in `spillway.policies`, as (seam, method)."""
    pairs = []
    for seam in PLACES:
        contract = getattr(policies, seam)
        required = [name for name, _ in inspect.getmembers(contract, inspect.isfunction)]
        listed = (inspect.getdoc(contract) or "").partition("-------\n")[2]
        optional = re.findall(r"^(\w+(?:, \w+)*)$", listed, re.MULTILINE)
        names = [name for name in required if not name.startswith("_")]
        names += [name for group in optional for name in group.split(", ")]
        pairs += [(seam, name) for name in names]
    return pairs


def loaded(seam: str, policy: type | None = None) -> Simulation:
    """A short run in which every method of the seam is called; `policy` instead of its own."""
    around: dict[str, Any] = {"gateway.sensor.tick_s": 0.2, "reaction.timeout_s": 2}
    if seam == "Fairness":
        around["gateway.limit"] = [{"kind": "fixed", "max_in_flight": 2}]
    if seam in ("Scorer", "Filter", "Picker"):
        around["router"] = router.Weighted(scorers=["queue_depth"])
    if seam == "Decider":
        servers = BUSY.instances[0].replace(count=1)
        around["instances"] = [servers.replace(role=role) for role in ("prefill", "decode")]
    others = {"UsageLimit": "Limit", "Controller": "Limit", "Limit": "Controller"}
    if seam in others:
        around.update(_placed(*PLACES[others[seam]]))
    place, default = PLACES[seam]
    around.update(_placed(place, policy or default))
    return BUSY.with_(around)


def _placed(path: str, policy: type) -> dict[str, Any]:
    return {path: [policy] if path in _LISTS else policy}


def acting(seam: str, method: str, act: Callable[[], object]) -> type:
    """The policy of the seam, which acts at every call of the method before it answers."""
    base = PLACES[seam][1]

    def call(self: Any, *arguments: Any) -> Any:
        act()
        return getattr(base, method)(self, *arguments)

    return type("Acting", (base,), {method: call})
