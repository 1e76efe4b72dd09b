"""Policies written in Python.

A policy is a class, or a function without required arguments that makes one. A setting takes it as
it is, and each run makes its own:

    from spillway import Simulation, gateway, policies, simulate

    class AtMost(policies.Admission):
        def __init__(self, in_flight=8):
            self.in_flight = in_flight

        def decide(self, request, view):
            return int(view.in_flight.sum()) < self.in_flight

    simulate(Simulation(gateway=gateway.Gateway(admission=AtMost)))

Parameters are bound by `functools.partial(AtMost, in_flight=4)`. The settings of a run hold where
the policy is defined, its parameters and the hash of its source code.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from spillway import _core, gateway, router
from spillway._c_functions import address_of, check_compiled
from spillway._core.policies import Legs, Queues, Reading, Request, View
from spillway._source_code import source_sha256
from spillway.config.classes import config_error
from spillway.config.messages import note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np

    from spillway._core.cluster import Simulation
    from spillway._core.sim import Draws

__all__ = [
    "Admission",
    "Controller",
    "Decider",
    "Fairness",
    "Filter",
    "Legs",
    "Limit",
    "Picker",
    "PolicyError",
    "Queues",
    "Reading",
    "Reject",
    "Request",
    "Router",
    "Scheduler",
    "Scorer",
    "UsageLimit",
    "View",
    "bound",
    "compiled_admission",
    "compiled_decider",
    "compiled_scorer",
    "described",
    "include_dir",
    "instance_dtype",
    "legs_dtype",
    "load",
    "parameter_field",
    "request_dtype",
    "settings",
    "with_parameter",
]


class PolicyError(RuntimeError):
    """A policy raised an exception, which is the cause, or returned what its contract excludes.

    It ends the run. The message names the method, the request and the instant.
    """


@dataclass(frozen=True)
class Reject:
    """Rejects a request for a reason.

    Attributes
    ----------
    reason
        The category of the rejection; `False` in place of a Reject means "saturated". The column
        `reason` of the requests holds it with the prefix `python_`.

    Raises
    ------
    ConfigError
        If it is another reason.
    """

    reason: Literal["saturated", "rate_limited", "unservable"] = "saturated"

    def __post_init__(self) -> None:
        """Refuses other reasons."""
        if self.reason not in _REASONS:
            allowed = f"must be one of {', '.join(map(repr, _REASONS))}"
            raise config_error([("reason", repr(self.reason), allowed)])


_REASONS = ("saturated", "rate_limited", "unservable")


class Admission(Protocol):
    """Decides whether a request enters the queues of the gateway.

    A gateway replica makes one policy per run. Requests and views are valid only during the call
    that gets them; copy what a later call needs. The only source of random numbers is `view.rng`,
    whose draws belong to the decision, so that runs are repeatable. Policies use no clock other
    than `view.now_s`, no globals and no I/O.

    A policy may also have the methods below, each with the arguments `(request, now_s)`; one that
    it lacks is not called. They show what becomes of an admitted request. `request.id` stays
    the same, and each attempt of a client that retries passes through them again. The requests in
    the gateway's queues, for example, are those after `commit` and before `dispatched` or
    `finished`.

    Methods
    -------
    commit
        Every policy of the chain has admitted the request, and its queue has room: charge for it.
    dispatched
        It has left its queue for the router. Without a queue this is the instant of `commit`.
    first_token
        Its first token has arrived.
    finished
        It has left the system in any way: completed, failed, refused or dropped by its instance;
        and also expired, evicted from its queue or cancelled by its client, before or after
        `dispatched`. Once per `commit`; a request that is never committed, because a policy of the
        chain rejects it or its queue is full, has none. Those inside at the end of the run have
        none yet.
    """

    def decide(self, request: Request, view: View) -> bool | Reject:
        """Decides on a request: True, or False or a Reject.

        The reasons of a Reject are "saturated" (the meaning of False), "rate_limited" and
        "unservable"; another raises ConfigError where the Reject is made.

        Called once per attempt, a retry being another attempt. It may advance the state of the
        policy to `view.now_s`, but charges nothing: another policy of the chain may still reject.
        """
        ...


class Fairness(Protocol):
    """Chooses the tenant whose turn it is. Each band of each gateway replica has its own policy.

    Tenants are known by their positions, 0 to len(queues) - 1. Queues are valid only during the
    call that gets them.

    A policy may also have the methods below; one that it lacks is not called.

    Methods
    -------
    joined
        `(tenant, queues)`: a request has joined the queue of the tenant.
    left
        `(tenant, queues)`: one has left it without being dispatched.
    dispatched
        `(tenant, queues)`: the head has been dispatched, and is no longer in `queues`.
    charge
        `(tenant, amount, now_s)`: service in the unit of the setting `cost`, when it is charged; a
        negative amount corrects an overcharge.
    """

    def next(self, queues: Queues) -> int | None:
        """The tenant whose head goes next, one with `queues.may_start`; None: no tenant yet.

        Called at every drain at which a request may start. It must not assume that the dispatch
        succeeds.
        """
        ...


class Limit(Protocol):
    """Decides whether one more request may be in flight. Other limits of the gateway must agree.

    A limit counts the requests itself, by the methods below, which are optional. Lifetimes are
    those of `Admission`. A limit draws no random numbers.

    Methods
    -------
    started
        `(request)`: it has taken a permit.
    first_token
        `(request)`: its first token has arrived.
    ended
        `(request)`: it has left the system, for any outcome.
    saturation
        `(view)`: of the fleet, >= 0. No request starts while it is at or above the ceiling of its
        band, which the usage limit sets; 1 by default.
    setting, resize
        `()` and `(setting)`: the number that a controller moves, >= 0, and what sets it; a
        controller cannot move a limit that lacks one of both.
    """

    def may_start(self, request: Request, view: View) -> bool:
        """Whether the request, the head of its queue, may leave for the router.

        Called at every drain of the queues, and every `attempt_period_s` while requests wait; once
        per tenant, perhaps several times. It must not change the state of the policy.
        """
        ...


class UsageLimit(Protocol):
    """Sets the saturation of the fleet from which each priority band waits.

    The saturation comes from the limits that compute one, such as `gateway.Saturation`.
    """

    def ceilings(
        self, saturation: float, priorities: tuple[int, ...]
    ) -> np.ndarray[Any, Any] | Sequence[float]:
        """The ceiling of each band, in the order of `priorities`, highest first; none is NaN.

        Called at the beginning of every drain with waiting requests.
        """
        ...


class Controller(Protocol):
    """Moves the limit of requests in flight.

    A policy may also have the method below; one that lacks it is not called.

    Methods
    -------
    sample
        `(value, dispatched_s, now_s)`: a measurement of the sensor's source, with the dispatch time
        of its request.
    """

    def tick(self, reading: Reading, limit: float, now_s: float) -> float:
        """The limit that the policy wants, >= 0 and finite; `limit` keeps the current one.

        Called at every tick at which the sensor has a value. The guard then decides whether and how
        far the limit moves. Limits are not rounded here: small steps add up.
        """
        ...


class Router(Protocol):
    """Chooses the instance that takes a request.

    Lifetimes and random numbers are those of `Admission`.
    """

    def pick(self, request: Request, view: View) -> int:
        """The position of the chosen candidate in the view, >= 0 and < len(view)."""
        ...


class Scorer(Protocol):
    """Rates the candidates for a request, as one of the scorers of `router.Weighted`.

    Lifetimes are those of `Admission`. A scorer draws no random numbers.
    """

    def score(self, request: Request, view: View) -> np.ndarray[Any, Any]:
        """One number per candidate, in order; higher is better, clamped to [0, 1], never NaN."""
        ...


class Filter(Protocol):
    """Removes candidates for a request, as one of the filters of `router.Weighted`.

    Lifetimes and random numbers are those of `Admission`.
    """

    def keep(self, request: Request, view: View) -> np.ndarray[Any, Any] | Sequence[bool]:
        """One bool per candidate, in order: whether it stays.

        The view has all candidates; those that an earlier filter removed stay removed. If none
        would be left, the filter removes none.
        """
        ...


class Picker(Protocol):
    """Chooses one of the scored candidates, as the picker of `router.Weighted`."""

    def choose(self, scores: np.ndarray[Any, Any], rng: Draws) -> int:
        """The position of the chosen candidate, >= 0 and < len(scores).

        `scores` are weighted sums, higher is better; read-only, and reused by later calls. `rng`
        draws the random numbers of this decision alone.
        """
        ...


class Decider(Protocol):
    """Decides where the prompt of a request is computed, with a prefill and a decode pool.

    Lifetimes are those of `Admission`. A decider draws no random numbers. Before it is asked, the
    router of each pool says which instance it would choose now, and reserves nothing; with `order:
    decode_first` the decode instance has been chosen. These are the instances of `legs`.
    """

    def is_local(self, request: Request, legs: Legs) -> bool:
        """Whether the prompt is computed by the instance that continues the request.

        Otherwise it is computed in the prefill pool, and its KV blocks are moved. Called at each
        dispatch of a request while an instance of the prefill pool is ready.
        """
        ...


class Scheduler(Protocol):
    """Orders the waiting queue of an engine. Each engine has its own policy."""

    def rank(self, request: Request) -> int:
        """The rank of a request, a whole number of at most 64 bits; the lowest is served first.

        Of equals the earliest arrival is served first. Called when the request joins the queue, and
        again when it returns to it after a preemption. The rank stays while the request waits.
        """
        ...


_Maker = Any  # a class, or a callable without required arguments

# The class of settings of each seam, by the method that its policies must have.
_SEAMS = {
    "decide": gateway.PythonAdmission,
    "next": gateway.PythonFairness,
    "may_start": gateway.PythonLimit,
    "ceilings": gateway.PythonUsageLimit,
    "tick": gateway.PythonController,
    "pick": router.PythonRouter,
    "keep": router.PythonFilter,
    "score": router.PythonScorer,
    "choose": router.PythonPicker,
    "is_local": router.PythonDecider,
    "rank": _core.instance.PythonScheduler,
}


def settings(policy: _Maker) -> Any:
    """The settings of a policy, e.g. a PythonAdmission.

    Parameters
    ----------
    policy
        A class with the method that one of the protocols above requires, such as `decide`, or a
        functools.partial of one. A function that makes policies is called once to see which of them
        its result has.

    Raises
    ------
    ConfigError
        If it is neither, or has none or several of the methods.
    """
    known = described(policy)
    target = policy.func if isinstance(policy, functools.partial) else policy
    if known is None:
        raise config_error([("policy", repr(policy), "must be a class or a function")])
    methods = [name for name in _SEAMS if hasattr(target, name)]
    if not inspect.isclass(target):
        made = policy()
        methods = [name for name in _SEAMS if hasattr(made, name)]
    if len(methods) != 1:
        allowed = f"must have exactly one of the methods {', '.join(_SEAMS)}"
        raise config_error([("policy", repr(policy), allowed)])
    cls: Any = _SEAMS[methods[0]]
    known = {key: value for key, value in known.items() if key != "kind"}
    return cls(**known)


def described(policy: _Maker, path: str = "policy") -> Mapping[str, Any] | None:
    """The fields of the settings of a policy; None if it can be none. The core calls this.

    Raises ConfigError with the `path` of the setting.
    """
    target, parameters = policy, {}
    if isinstance(policy, functools.partial):
        target, parameters = policy.func, policy.keywords
        if policy.args:
            allowed = "must bind its parameters by name"
            raise config_error([(path, repr(policy), allowed)])
    if not (inspect.isclass(target) or inspect.isfunction(target)):
        return None
    if inspect.isclass(target) and hasattr(target, "_type"):
        return None  # settings of a compiled policy: an object is needed
    written = _written(parameters, path, policy)
    name = f"{target.__module__}:{target.__qualname__}"
    return {
        "kind": "python",
        "policy": name,
        "parameters": written,
        "source_sha256": source_sha256(target),
        "factory": _core.policies.Factory(target, target.__qualname__),
    }


def bound(target: _Maker, parameters: str) -> _Maker:
    """A class or function with its parameters. The core calls this for each run.

    Raises ConfigError if `parameters` is not a JSON object.
    """
    return functools.partial(target, **_parameters(parameters, "parameters"))


def with_parameter(parameters: str, path: str, value: Any) -> str:
    """The JSON object `parameters` with a value of the parameter at `path`. The core calls this.

    Raises ConfigError if JSON cannot hold the value.
    """
    whole, _, name = path.rpartition(".")
    changed = _parameters(parameters, whole) | {name: getattr(value, "tolist", lambda: value)()}
    return _written(changed, path, value)


def parameter_field(policy: Any, name: str, path: str) -> tuple[dict[str, Any], Any]:
    """The descriptor and the value of a parameter of a policy written in Python.

    The parameters are those of the class or function. A field of a dataclass may have a `unit` and
    a `search` range in its metadata: `field(default=8, metadata={"search": (1, 64), "log": True})`.

    Raises ConfigError if there is no such parameter or the policy has not been imported.
    """
    target = _core.policies.target_of(policy)
    if target is None:
        allowed = "its Python code must be imported first: spillway.policies.load(simulation)"
        raise config_error([(path, "", allowed)])
    known = inspect.signature(target).parameters
    if name not in known:
        allowed = f"unknown parameter {name!r}; one of {', '.join(known) or 'none'}"
        raise config_error([(path, "", allowed)])
    default = known[name].default
    given = _parameters(policy.parameters, path)
    value = given.get(name, None if default is inspect.Parameter.empty else default)
    annotated = known[name].annotation
    kind = getattr(annotated, "__name__", annotated)
    found: dict[str, Any] = {
        "name": name,
        "type": kind if kind in ("bool", "int", "float", "str") else type(value).__name__,
        "default": value,
    }
    field = getattr(target, "__dataclass_fields__", {}).get(name)
    metadata = field.metadata if field else {}
    if "unit" in metadata:
        found["unit"] = metadata["unit"]
    if "search" in metadata:
        low, high = metadata["search"]
        found["search"] = {"low": low, "high": high, "log": bool(metadata.get("log"))}
    return found, value


def _parameters(text: str, path: str) -> dict[str, Any]:
    """The JSON object in a text."""
    try:
        parameters = json.loads(text)
    except (ValueError, RecursionError):
        parameters = None
    if not isinstance(parameters, dict):
        allowed = 'must be a JSON object, e.g. {"in_flight": 8}'
        raise config_error([(path, repr(text), allowed)])
    return parameters


def _written(parameters: Mapping[str, Any], path: str, shown: Any) -> str:
    try:
        return json.dumps(parameters, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        allowed = "must have parameters that JSON can hold: numbers, text, lists and mappings"
        raise config_error([(path, repr(shown), allowed)]) from error


def compiled_admission(
    decide: Any,
    *,
    name: str,
    version: str,
    commit: Any = None,
    dispatched: Any = None,
    first_token: Any = None,
    finished: Any = None,
    state: Sequence[float] = (),
    reads_instances: bool = True,
    is_random: bool = False,
    abi: int = 1,
) -> gateway.CompiledAdmission:
    """An admission policy in C functions, compiled by whatever means.

    A function is an address, a function of ctypes or cffi, or what `numba.cfunc` returns. It is
    called without the interpreter's lock, by several threads if there are several runs. The header
    `spillway_policy.h` in `include_dir()` documents the types. A function with other types than
    these ends the process, or worse; only the number of its arguments is checked, if it is known.

    Parameters
    ----------
    decide
        A `spillway_decide`.
    name, version
        What the policy compares and is stored by, because a pointer has no source code. Change the
        version with the code.
    commit, dispatched, first_token, finished
        A `spillway_notify` each; None: the policy is not notified.
    state
        Initial values of the policy's memory, parameters included. Each gateway replica of each run
        begins with a copy.
    reads_instances
        Whether `decide` gets the metrics of the instances, which takes time for each of them.
    is_random
        Whether `decide` gets a random number, `uniform` of the request.
    abi
        SPILLWAY_POLICY_ABI of the header that the code was compiled with.

    Raises
    ------
    ConfigError
        If an argument is invalid.
    """
    notified = {
        "commit": commit,
        "dispatched": dispatched,
        "first_token": first_token,
        "finished": finished,
    }
    check_compiled(name, version, abi)
    functions = _core.policies.AdmissionFunctions(
        decide=address_of("decide", decide, 5),
        **{event: 0 if f is None else address_of(event, f, 3) for event, f in notified.items()},
        owner=(decide, *notified.values()),
    )
    fields: dict[str, Any] = {
        "name": name,
        "version": version,
        "state": [*state],
        "reads_instances": reads_instances,
        "is_random": is_random,
        "functions": functions,
    }
    return gateway.CompiledAdmission(**fields)


def compiled_scorer(
    score: Any,
    *,
    name: str,
    version: str,
    state: Sequence[float] = (),
    weight: float = 1.0,
    abi: int = 1,
) -> router.CompiledScorer:
    """A scorer in a C function, a `spillway_score`; otherwise as `compiled_admission`.

    Raises ConfigError if an argument is invalid.
    """
    check_compiled(name, version, abi)
    functions = _core.policies.ScorerFunctions(score=address_of("score", score, 6), owner=score)
    fields: dict[str, Any] = {
        "weight": weight,
        "name": name,
        "version": version,
        "state": [*state],
        "functions": functions,
    }
    return router.CompiledScorer(**fields)


def compiled_decider(
    is_local: Any, *, name: str, version: str, state: Sequence[float] = (), abi: int = 1
) -> router.CompiledDecider:
    """A decider in a C function, a `spillway_is_local`; otherwise as `compiled_admission`.

    Raises ConfigError if an argument is invalid.
    """
    check_compiled(name, version, abi)
    functions = _core.policies.DeciderFunctions(
        is_local=address_of("is_local", is_local, 4), owner=is_local
    )
    fields: dict[str, Any] = {
        "name": name,
        "version": version,
        "state": [*state],
        "functions": functions,
    }
    return router.CompiledDecider(**fields)


def include_dir() -> Path:
    """The folder of `spillway_policy.h`, for `cc -I`."""
    return Path(__file__).parent / "include"


def request_dtype() -> np.dtype[Any]:
    """The NumPy type of a `spillway_request`."""
    dtype: np.dtype[Any] = _core.policies.request_dtype()
    return dtype


def instance_dtype() -> np.dtype[Any]:
    """The NumPy type of a `spillway_instance`."""
    dtype: np.dtype[Any] = _core.policies.instance_dtype()
    return dtype


def legs_dtype() -> np.dtype[Any]:
    """The NumPy type of a `spillway_legs`."""
    dtype: np.dtype[Any] = _core.policies.legs_dtype()
    return dtype


def load(simulation: Simulation) -> Simulation:
    """The simulation with the Python code of its policies imported.

    Configuration files name policies as `module:name`; loading, checking and comparing such files
    never imports them, because an import runs the code. This function does. Those that are imported
    already stay.

    Raises
    ------
    ConfigError
        If a module or a name in it does not exist, or `parameters` is not a JSON object.

    Warns if the source code is not the one that the settings record.
    """
    changes = {path: _loaded(policy, path) for path, policy in _missing(simulation, "")}
    return simulation.with_(changes) if changes else simulation


def with_code_of(simulation: Simulation, other: Simulation) -> Simulation:
    """The simulation with the Python code that another one has imported for the same policies."""
    imported = {policy: policy for _, policy in _in_python(other, "") if not _is_missing(policy)}
    changes = {
        path: imported[policy] for path, policy in _missing(simulation, "") if policy in imported
    }
    return simulation.with_(changes) if changes else simulation


def _missing(held: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The policies in settings whose code has not been imported, with their paths."""
    return ((at, policy) for at, policy in _in_python(held, path) if _is_missing(policy))


def _in_python(held: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The policies in settings that are written in Python, with their paths."""
    if isinstance(held, tuple):
        for i, item in enumerate(held):
            yield from _in_python(item, f"{path}[{i}]")
    elif hasattr(held, "_type"):
        if getattr(held, "kind", None) == "python":
            yield path, held
        for name in type(held)._type.fields:
            yield from _in_python(getattr(held, name), f"{path}.{name}" if path else name)


def _is_missing(policy: Any) -> bool:
    return _core.policies.target_of(policy) is None


def _loaded(policy: Any, path: str) -> Any:
    module, separator, name = policy.policy.partition(":")
    if not (module and separator and name):
        raise config_error([(f"{path}.policy", repr(policy.policy), "must be module:name")])
    try:
        target = operator.attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        allowed = f"cannot be imported: {error}"
        raise config_error([(f"{path}.policy", repr(policy.policy), allowed)]) from error
    _parameters(policy.parameters, f"{path}.parameters")
    known = described(target, path)
    if known is None:
        allowed = "must name a class or a function"
        raise config_error([(f"{path}.policy", repr(policy.policy), allowed)])
    if policy.source_sha256 not in ("", known["source_sha256"]):
        note(f"{path}: the source code of {policy.policy} is not the recorded one")
    return policy.replace(source_sha256=known["source_sha256"], factory=known["factory"])
