"""Single policies, built as in a run: their decisions and their notifications.

Methods have the names of the contracts in `cpp/gateway` and `cpp/router`. Their `now_s` is the
instant of the call in seconds, which never decreases; None: the instant of the previous call, or
the start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from spillway import _core
from spillway._core import gateway, signals
from spillway._core.cluster import Simulation
from spillway._core.workload import SloClass, Tenant
from spillway.config.classes import config_error
from spillway.config.messages import checked, checked_simulation
from spillway.testing._arguments import LONGEST_S, check_real, check_whole
from spillway.testing._seams import as_settings, placed, seam_of
from spillway.testing.values import (
    ControlDecision,
    Decision,
    InstanceSignals,
    LimitDecision,
    RankLoad,
    Reading,
    Request,
    RoutingDecision,
)

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import TypedDict

    from typing_extensions import Unpack

    from spillway._core.testing import (
        _AdmissionPolicy,
        _ControllerPolicy,
        _FairnessPolicy,
        _FilterPolicy,
        _LimitPolicy,
        _PickerPolicy,
        _RouterPolicy,
        _ScorerPolicy,
        _UsageLimitPolicy,
    )

    class _Surroundings(TypedDict, total=False):
        tenants: Sequence[Tenant] | None
        slo_classes: Sequence[SloClass] | None
        simulation: Simulation | None
        seed: int


_MOST = 1e9
_ADMITTED = Decision(admitted=True)
_REQUEST = attrgetter(*Request.__dataclass_fields__)
_SIGNALS = attrgetter(*InstanceSignals.__dataclass_fields__)
_READING = attrgetter(*Reading.__dataclass_fields__)
_LOAD = attrgetter(*RankLoad.__dataclass_fields__)


def _values(request: Request) -> tuple[Any, ...]:
    return tuple(_REQUEST(checked("request", request, Request, "a Request")))


def _when(now_s: float | None) -> float | None:
    return None if now_s is None else checked("now_s", now_s, Real, "a number of seconds")


def _scripts(instances: Sequence[InstanceSignals] | None) -> list[tuple[Any, ...]] | None:
    if instances is None:
        return None
    try:
        return [_SIGNALS(instance) for instance in instances]
    except (AttributeError, TypeError):
        allowed = f"several InstanceSignals, not {instances!r:.60}"
        raise TypeError(f"instances must be {allowed}") from None


class _Built:
    """A policy in its surroundings."""

    _core: ClassVar[type[Any]]

    def __init__(self, simulation: Simulation, seed: int, policy: object) -> None:
        self._native = self._core(simulation, seed)
        self._policy = policy

    def __repr__(self) -> str:
        return f"<testing.{type(self).__name__} of {self._policy!r}>"


class _WithRequests(_Built):
    """A policy that receives notifications about requests."""

    def __init__(self, simulation: Simulation, seed: int, policy: object) -> None:
        super().__init__(simulation, seed, policy)
        self._ids: dict[Request, int] = {}

    def _id(self, request: Request) -> int:
        known = self._ids.get(checked("request", request, Request, "a Request"))
        if known is None:
            raise _core.sim.UsageError(f"this policy has not seen the request before: {request}")
        return known


class Admission(_WithRequests):
    """An admission policy, or a chain of several."""

    _core = _core.testing.Admission

    def decide(
        self,
        request: Request,
        *,
        now_s: float | None = None,
        instances: Sequence[InstanceSignals] | None = None,
        has_workers: bool = True,
        next_choice: int | None = None,
        commit: bool = True,
    ) -> Decision:
        """Whether the request is admitted.

        Parameters
        ----------
        request
            The request to admit.
        now_s
            Instant of the decision in seconds.
        instances
            The report of each instance, the same number in every call; None: unchanged, at first
            idle instances.
        has_workers
            Whether any instance is ready.
        next_choice
            Index of the instance that the router would choose, for policies that look at it.
        commit
            Whether there is room for an admitted request, so that the policies commit to it: a
            token bucket, for example, is charged.

        Raises
        ------
        ConfigError
            If an argument is invalid; the message names it.
        """
        id_, reason, retry_after_s, detail = self._native.decide(
            _values(request), _when(now_s), _scripts(instances), has_workers, next_choice, commit
        )
        self._ids[request] = id_
        return Decision(False, reason, retry_after_s, detail) if reason else _ADMITTED

    def dispatched(
        self, request: Request, *, instance: int = 0, now_s: float | None = None
    ) -> None:
        """An admitted request leaves its queue for an instance.

        Raises UsageError if it was not admitted or has left before.
        """
        self._native.dispatched(self._id(request), instance, _when(now_s))

    def first_token(self, request: Request, *, now_s: float | None = None) -> None:
        """A dispatched request gets its first token.

        Raises UsageError if it was not dispatched or has a first token already.
        """
        self._native.first_token(self._id(request), _when(now_s))

    def finished(
        self, request: Request, *, outcome: str = "completed", now_s: float | None = None
    ) -> None:
        """An admitted request leaves the system, from its queue or from its instance.

        `outcome`: how, e.g. "completed", "rejected" (by its worker), "expired", "evicted" or
        "cancelled". Raises UsageError if the request is not inside.
        """
        self._native.finished(self._id(request), outcome, _when(now_s))


class Limit(_WithRequests):
    """A concurrency limit, or several that apply together."""

    _core = _core.testing.Limit

    def _id(self, request: Request) -> int:
        if request not in self._ids:
            self._ids[request] = self._native.offer(_values(request), None)
        return self._ids[request]

    def decide(
        self,
        request: Request,
        *,
        now_s: float | None = None,
        instances: Sequence[InstanceSignals] | None = None,
        ceiling: float = 1.0,
    ) -> LimitDecision:
        """Whether the request may start; this takes no permit.

        `instances`: the report of each instance, for a saturation limit; None: unchanged, at first
        idle instances. `ceiling`: the saturation at which the request's band stops.
        """
        check_real("ceiling", ceiling, 0, _MOST)
        return LimitDecision(
            *self._native.decide(self._id(request), ceiling, _scripts(instances), _when(now_s))
        )

    def started(self, request: Request) -> None:
        """The request takes its permit.

        Raises UsageError if it has one.
        """
        self._native.started(self._id(request))

    def first_token(self, request: Request) -> None:
        """A request in flight gets its first token.

        Raises UsageError if it is not in flight or has a first token already.
        """
        self._native.first_token(self._id(request))

    def ended(self, request: Request) -> None:
        """Releases the permit of a request in flight.

        Raises UsageError if it has none.
        """
        self._native.ended(self._id(request))

    def resize(self, setting: float) -> None:
        """Sets the limit, like a controller.

        Raises UsageError if it cannot be moved.
        """
        check_real("setting", setting, 0, _MOST)
        self._native.resize(setting)

    def set_workers(self, workers: int) -> None:
        """Sets the number of ready instances to `workers`; at first all are ready."""
        check_whole("workers", workers, 0)
        self._native.set_workers(workers)


class Fairness(_WithRequests):
    """The tenants' queues of one band and the policy that selects the next tenant.

    The policy's `cost` decides what requests are charged. All dispatched requests go to one
    instance, which matters if the cost counts uncached tokens.
    """

    _core = _core.testing.Fairness

    def __init__(self, simulation: Simulation, seed: int, policy: object) -> None:
        super().__init__(simulation, seed, policy)
        self._requests: dict[int, Request] = {}

    def joined(
        self,
        request: Request,
        *,
        now_s: float | None = None,
        instances: Sequence[InstanceSignals] | None = None,
    ) -> bool:
        """A request joins the queue of its tenant, or of its policy class; False: that is full.

        `instances`: as for an `Admission`, for costs and classes by uncached tokens.
        """
        id_ = self._native.joined(_values(request), _scripts(instances), _when(now_s))
        if id_ is None:
            return False
        self._ids[request] = id_
        self._requests[id_] = request
        return True

    def decide(
        self, *, now_s: float | None = None, may_start: Collection[str] | None = None
    ) -> Request | None:
        """Dispatches and returns the next request; None if none may start.

        `may_start`: the tenants, or the policy classes, whose requests may start; None: all.
        """
        tenants = None if may_start is None else list(may_start)
        id_ = self._native.decide(tenants, _when(now_s))
        return None if id_ is None else self._requests.pop(id_)

    def left(self, request: Request, *, now_s: float | None = None) -> None:
        """A request leaves its queue without being served.

        Raises UsageError if it is not waiting.
        """
        id_ = self._id(request)
        self._native.left(id_, _when(now_s))
        del self._requests[id_]

    def first_token(self, request: Request, *, now_s: float | None = None) -> None:
        """A dispatched request gets its first token.

        Raises UsageError if it was not dispatched or has a first token already.
        """
        self._native.first_token(self._id(request), _when(now_s))

    def emitted(self, request: Request, *, tokens: int = 1) -> None:
        """A dispatched request gets `tokens` output tokens, for costs charged at `token`.

        Raises UsageError if it was not dispatched or has finished.
        """
        check_whole("tokens", tokens, 0)
        self._native.emitted(self._id(request), tokens)

    def finished(
        self, request: Request, *, outcome: str = "completed", now_s: float | None = None
    ) -> None:
        """A dispatched request leaves its instance.

        `outcome`: how, e.g. "completed" or "cancelled". Raises UsageError if the request was not
        dispatched or has finished.
        """
        self._native.finished(self._id(request), outcome, _when(now_s))


class UsageLimit(_Built):
    """A policy that sets the ceilings of a gateway's bands."""

    _core = _core.testing.UsageLimit

    def decide(self, saturation: float) -> tuple[float, ...]:
        """The ceiling of each band, highest priority first, at a given saturation of the fleet.

        Every drain of the queues with waiting requests makes one such call.
        """
        check_real("saturation", saturation, 0, _MOST)
        return tuple(self._native.decide(saturation))


class Controller(_Built):
    """A controller of a limit with its guard."""

    _core = _core.testing.Controller

    def decide(self, reading: Reading, *, now_s: float | None = None) -> ControlDecision:
        """One tick."""
        value, samples, in_flight, queued, most, *others = _READING(
            checked("reading", reading, Reading, "a Reading")
        )
        value = math.nan if value is None else value
        most = in_flight if most is None else most
        return ControlDecision(
            *self._native.decide(value, samples, in_flight, queued, most, *others, _when(now_s))
        )

    def sample(
        self, value: float, *, dispatched_s: float | None = None, now_s: float | None = None
    ) -> None:
        """One measurement of the sensor's source, for controllers that look at each.

        `dispatched_s`: when its request was dispatched, in seconds; None: now.
        """
        check_real("value", value, 0, LONGEST_S)
        self._native.sample(value, dispatched_s, _when(now_s))

    @property
    def limit(self) -> float:
        """The limit in force."""
        return float(self._native.limit)

    def resize(self, limit: float) -> None:
        """Sets the limit from which the controller continues."""
        check_real("limit", limit, 0, _MOST)
        self._native.resize(limit)


class Router(_WithRequests):
    """A routing policy; a weighted one with its filters, scorers and picker."""

    _core = _core.testing.Router

    def decide(
        self,
        request: Request,
        *,
        instances: Sequence[InstanceSignals] | None = None,
        now_s: float | None = None,
        learn: bool = True,
    ) -> RoutingDecision:
        """Chooses the instance for a request.

        Parameters
        ----------
        request
            The request to route.
        instances
            The signals of each instance, the same number in every call; None: unchanged, at first
            idle instances.
        now_s
            Instant of the decision in seconds.
        learn
            Whether the request is sent to the chosen instance, so that the policy and the gateway's
            prefix index record it.
        """
        id_, instance, rank, scores = self._native.decide(
            _values(request), _when(now_s), _scripts(instances), learn
        )
        self._ids[request] = id_
        return RoutingDecision(instance, rank, tuple(scores))

    def first_token(self, request: Request, *, now_s: float | None = None) -> None:
        """A routed request gets its first token.

        Raises UsageError if it was not routed or has a first token already.
        """
        self._native.first_token(self._id(request), _when(now_s))

    def finished(self, request: Request, *, now_s: float | None = None) -> None:
        """A routed request leaves its instance.

        Raises UsageError if it was not routed or has finished.
        """
        self._native.finished(self._id(request), _when(now_s))


_Value = TypeVar("_Value", int, float)


class _OfRouter(_WithRequests, Generic[_Value]):
    """A part of a weighted router."""

    def decide(
        self,
        request: Request,
        *,
        instances: Sequence[InstanceSignals] | None = None,
        now_s: float | None = None,
    ) -> tuple[_Value, ...]:
        """What the part says of the instances; see its class.

        `instances`: as for a `Router`.
        """
        self._ids[request], values = self._native.decide(
            _values(request), _when(now_s), _scripts(instances)
        )
        return tuple(values)

    def learn(self, request: Request, *, instance: int) -> None:
        """The request of the last decision goes to an instance.

        Raises UsageError if it has gone to one already.
        """
        self._native.learn(self._id(request), instance)


class Scorer(_OfRouter[float]):
    """One scorer of a weighted router.

    It decides on the score of each instance, higher is better; a router clamps it to [0, 1].
    """

    _core = _core.testing.Scorer


class Filter(_OfRouter[int]):
    """One filter of a weighted router.

    It decides on the indices of the instances that pass; a router ignores a filter that no instance
    passes.
    """

    _core = _core.testing.Filter


class Picker(_Built):
    """The picker of a weighted router."""

    _core = _core.testing.Picker

    def decide(self, scores: Sequence[float]) -> int:
        """Index of the picked instance, given the scores of all, each >= 0."""
        return int(self._native.decide(list(scores)))


class BusyMonitor:
    """The busy monitor of a worker: its load events, and whether it is busy.

    `settings`: the thresholds.
    """

    def __init__(self, settings: signals.BusyMonitor) -> None:
        wanted = checked("settings", settings, signals.BusyMonitor, "a signals.BusyMonitor")
        self._native = _core.testing.BusyMonitor(Simulation(busy_monitor=wanted), 0)
        self._now_s = 0.0

    def report(self, ranks: Sequence[RankLoad], *, now_s: float | None = None) -> bool:
        """Whether the worker is busy after a load event with its ranks, by position."""
        loads = [_LOAD(checked("ranks", rank, RankLoad, "several RankLoad")) for rank in ranks]
        self._native.report(loads)
        return self.is_busy(now_s=now_s)

    def mark_overloaded(self, *, now_s: float | None = None) -> bool:
        """Whether the worker is busy after it has refused a request."""
        self._advance(now_s)
        self._native.mark_overloaded(self._now_s)
        return self.is_busy()

    def is_busy(self, *, now_s: float | None = None) -> bool:
        """Whether the worker is busy at this instant; None: as late as at the last call."""
        self._advance(now_s)
        return bool(self._native.is_busy(self._now_s))

    def _advance(self, now_s: float | None) -> None:
        self._now_s = max(self._now_s, _when(now_s) or 0.0)


class Eviction:
    """The choice of the requests in flight that are evicted.

    `settings`: how many, and when.
    """

    def __init__(self, settings: gateway.Eviction) -> None:
        wanted = checked("settings", settings, gateway.Eviction, "a gateway.Eviction")
        changes = {"gateway.limit": [{"kind": "saturation"}], "gateway.eviction": wanted}
        self._native = _core.testing.Eviction(Simulation().with_(changes), 0)

    def dispatched(self, priority: int) -> int:
        """A request of this priority is dispatched; its number."""
        check_whole("priority", priority, -1000, 1000)
        return int(self._native.dispatched(priority))

    def ended(self, request: int, *, now_s: float | None = None) -> None:
        """A request has left the system, evicted or not."""
        self._native.ended(request, _when(now_s))

    def relieve(
        self, saturation: float, *, ceiling: float = 1.0, below: int = 0, now_s: float | None = None
    ) -> tuple[int, ...]:
        """The requests that are evicted because saturation keeps a band waiting, in their order.

        `ceiling`: that of the band; `below`: only requests of lower priority are evicted.
        """
        check_real("saturation", saturation, 0, _MOST)
        check_real("ceiling", ceiling, 0, _MOST)
        check_whole("below", below, -1000, 1000)
        return tuple(self._native.relieve(saturation, ceiling, below, _when(now_s)))


#: The class that `build` returns for each seam.
BUILT: dict[str, type[_Built]] = {
    "Gateway.admission": Admission,
    "Gateway.limit": Limit,
    "Band.fairness": Fairness,
    "Gateway.usage_limit": UsageLimit,
    "Gateway.controller": Controller,
    "Simulation.router": Router,
    "Weighted.scorers": Scorer,
    "Weighted.filters": Filter,
    "Weighted.picker": Picker,
}


@overload
def build(
    policy: _AdmissionPolicy | Sequence[_AdmissionPolicy], **around: Unpack[_Surroundings]
) -> Admission: ...
@overload
def build(
    policy: _LimitPolicy | Sequence[_LimitPolicy], **around: Unpack[_Surroundings]
) -> Limit: ...
@overload
def build(policy: _FairnessPolicy, **around: Unpack[_Surroundings]) -> Fairness: ...
@overload
def build(policy: _UsageLimitPolicy, **around: Unpack[_Surroundings]) -> UsageLimit: ...
@overload
def build(policy: _ControllerPolicy, **around: Unpack[_Surroundings]) -> Controller: ...
@overload
def build(policy: _RouterPolicy, **around: Unpack[_Surroundings]) -> Router: ...
@overload
def build(policy: _ScorerPolicy, **around: Unpack[_Surroundings]) -> Scorer: ...
@overload
def build(policy: _FilterPolicy, **around: Unpack[_Surroundings]) -> Filter: ...
@overload
def build(policy: _PickerPolicy, **around: Unpack[_Surroundings]) -> Picker: ...
def build(
    policy: Any,
    *,
    tenants: Sequence[Tenant] | None = None,
    slo_classes: Sequence[SloClass] | None = None,
    simulation: Simulation | None = None,
    seed: int = 0,
) -> Any:
    """Builds a policy as a run does, so that it can decide without a run.

    Parameters
    ----------
    policy
        An admission policy, limit, fairness policy, usage limit, controller, router, scorer, filter
        or picker; or several admission policies or limits. Also the class of an admission policy,
        router or scorer written in Python (`spillway.policies`).
    tenants, slo_classes
        Replacements for those of `simulation`.
    simulation
        The surroundings, from which everything except the policy comes: tenants, classes, bands,
        guard, the initial limit of a controller, prefix index, the number and the capacity of the
        instances. None: the defaults, and for a controller a `FixedLimit`.
    seed
        Seed of the policy's random draws, 0 <= seed < 2**64. The n-th request of a built policy has
        the draws of the n-th request of a run with this seed.

    Returns
    -------
    `Admission`, `Limit`, `Fairness`, `UsageLimit`, `Controller`, `Router`, `Scorer`, `Filter` or
    `Picker`, by the class of the policy.

    Raises
    ------
    ConfigError
        If the policy does not fit its surroundings, or if they contain what a test cannot script:
        data-parallel ranks of an instance.

    Examples
    --------
    >>> from spillway import gateway, testing
    >>> bucket = testing.build(gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=10))
    >>> bucket.decide(testing.Request(input_tokens=80))
    Decision(admitted=True, reason='', retry_after_s=0.0, detail='')
    """
    policies = list(map(as_settings, policy if isinstance(policy, Sequence) else [policy]))
    if not policies:
        raise config_error([("policy", "[]", "must hold at least one policy")])
    seam = seam_of(policies[0])
    if seam.name not in BUILT:
        allowed = f"cannot decide without a run; only policies of {', '.join(BUILT)} can"
        raise config_error([("policy", repr(policies[0]), allowed)])
    check_whole("seed", seed, 0, 2**64 - 1)
    around = _around(seam.name, tenants, slo_classes, simulation)
    return BUILT[seam.name](placed(policies, *around), seed, policy)


def _around(
    seam: str,
    tenants: Sequence[Tenant] | None,
    slo_classes: Sequence[SloClass] | None,
    simulation: Simulation | None,
) -> tuple[Simulation, dict[str, Any]]:
    """The simulation around a policy, and the settings that change with the policy."""
    changes: dict[str, Any] = {}
    if simulation is None and seam == "Gateway.controller":
        changes["gateway.limit"] = [{"kind": "fixed"}]
    around = Simulation() if simulation is None else checked_simulation(simulation)
    if tenants is None and slo_classes is None:
        return around, changes
    # Clients must name existing tenants and classes.
    changes["tenants"] = around.tenants if tenants is None else _all("tenants", tenants, Tenant)
    changes["slo_classes"] = (
        around.slo_classes if slo_classes is None else _all("slo_classes", slo_classes, SloClass)
    )
    names = (("tenant", "tenants"), ("slo_class", "slo_classes"))
    client = {setting: changes[name][0].name for setting, name in names if changes[name]}
    changes["workload"] = {"kind": "synthetic", "clients": [client]}
    return around, changes


def _all(name: str, given: Sequence[Any], wanted: type[Any]) -> list[Any]:
    allowed = f"several {wanted.__name__}"
    return [
        checked(name, item, wanted, allowed) for item in checked(name, given, Sequence, allowed)
    ]
