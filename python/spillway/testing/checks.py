"""Checks that every policy and every result must pass."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import _core
from spillway._core.cluster import Simulation
from spillway.config.classes import CORE_MODULES, config_classes
from spillway.config.messages import checked_simulation
from spillway.simulate import run_many, simulate
from spillway.testing._lines import Lines
from spillway.testing._seams import as_settings, placed, seam_of
from spillway.testing.policies import (
    BUILT,
    Admission,
    Controller,
    Fairness,
    Filter,
    Limit,
    Picker,
    Router,
    UsageLimit,
    build,
)
from spillway.testing.values import Decision, InstanceSignals, Reading, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from spillway.result import Result

    _Fleet = list[InstanceSignals]


_SEED = 1
_ROUNDING_S = 1e-8

# The kinds of decisions of each seam; a policy of which none of a kind is seen is checked in part.
_KINDS = {
    "Gateway.admission": ("admitted", "rejected"),
    "Gateway.limit": ("started", "held"),
    "Weighted.filters": ("kept", "removed"),
}


@dataclass(frozen=True)
class PolicyReport:
    """What the checks of a policy saw, all of which it has passed. Prints as text.

    Attributes
    ----------
    policy
        The policy that was checked.
    seen
        The number of decisions of each kind, in all builds and runs: "admitted" and "rejected" by
        an admission policy, "started" and "held" by a limit, "kept" and "removed" (instances) by a
        filter. Empty for other policies.
    notes
        What the checks did not exercise: kinds of decisions that never occurred, and lines of a
        policy written in Python that never ran. An error there stays unnoticed.
    """

    policy: Any
    seen: Mapping[str, int]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        decided = ", ".join(f"{count:,} {kind}" for kind, count in self.seen.items())
        first = f"{self.policy!r} passes all checks{f' ({decided})' if decided else ''}"
        return "\n".join([first, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return str(self)


def check_policy(policy: Any, *, simulation: Simulation | None = None) -> PolicyReport:
    """Runs all the checks that every policy must pass.

    The policy has a description; its repr is code that recreates it; copies by pickling and by its
    file form compare equal and have equal hashes. Two builds of it (if `build` accepts it) make the
    same valid decisions about the same random requests and signals, with prompts of 1 to 32,768
    tokens; an admission policy also while nothing leaves the queue for half a minute and all memory
    is full, and when the requests then leave in every possible way. Small simulations run, print
    and conserve requests: one with a light load, in which nothing else sheds; one with an extreme
    load, in which nearly everything is shed; for policies of the gateway, one with a backlog, in
    which requests wait for seconds; and the first 1,000 requests of the `simulation`.
    Each has the same digest when it is run again, with every step simulated separately, and on two
    threads.

    Parameters
    ----------
    policy
        A policy of any seam: an admission policy, a router, a scorer, a scheduler, a latency model,
        an arrival process, …; or the class of a policy written in Python (`spillway.policies`).
    simulation
        The surroundings. They are run as they are, and with another rate and length of a synthetic
        workload. None: six tenants, two classes, four instances with little KV memory (for a
        decider, two of them with the role prefill and two with the role decode).

    Returns
    -------
    A report. Its notes say what was not exercised, e.g. that an admission policy never rejected a
    request; a `simulation` in which it does closes the gap.

    Raises
    ------
    AssertionError
        At the first check that fails; the message names the check and the reason.
    ConfigError
        If it is not a policy.

    Examples
    --------
    >>> from spillway import gateway, testing
    >>> report = testing.check_policy(gateway.TokenBucket())
    """
    policy = as_settings(policy)
    seam = seam_of(policy).name
    around = _default_surroundings(seam) if simulation is None else checked_simulation(simulation)
    seen = Counter(dict.fromkeys(_KINDS.get(seam, ()), 0))
    checks: list[tuple[str, Callable[[Any, Simulation, Counter[str]], None]]] = [
        ("it has a description", _check_description),
        ("its repr is code that recreates it", _check_repr),
        ("its copies by pickling and by its file form are equal", _check_copies),
        ("two builds of it make the same decisions", _check_decisions),
        ("it runs with a light load", _check_light_load),
        ("it runs with an extreme load", _check_extreme_load),
    ]
    if seam.startswith(("Gateway.", "Band.")):
        checks.append(("it runs with a backlog", _check_backlog))
    if simulation is not None:
        checks.append(("it runs in the simulation as given", _check_as_given))
    with Lines(policy) as lines:
        for name, check in checks:
            with _named(f"{policy!r} fails the check that {name}"):
                check(policy, around, seen)
    remedy = "such decisions are not checked; give simulation=… in which it does"
    never = [f"it never {kind} a request: {remedy}" for kind, count in seen.items() if not count]
    return PolicyReport(policy, dict(seen), (*never, *lines.notes()))


def check_conservation(result: Result) -> None:
    """Checks that the ledger and the requests of a result agree.

    Every request has one outcome, and the ledger counts the same; no request gets more tokens than
    requested, and a completed one gets all of them; instants are in order. Without requests, only
    the ledger is checked.

    Raises
    ------
    AssertionError
        The message lists all disagreements.
    """
    found = list(_ledger_errors(result.ledger))
    if result.has_requests:
        found += _column_errors(result)
    if found:
        raise AssertionError("\n".join(["the result does not add up:", *found]))


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """Turns any exception into an AssertionError that names the check."""
    try:
        yield
    except Exception as error:
        how = str(error) if isinstance(error, AssertionError) else repr(error)
        raise AssertionError(f"{what}: {how}") from error


def _require(holds: object, what: str) -> None:
    # Unlike an `assert`, this also works with `python -O`.
    if not holds:
        raise AssertionError(what)


# ---- a policy by itself --------------------------------------------------------------------------


def _check_description(policy: Any, _around: Simulation, _seen: Counter[str]) -> None:
    description = type(policy)._describe()
    _require(description["doc"], "it has no documentation")
    for field in description["fields"]:
        _require(field["doc"], f"its setting {field['name']} has no documentation")


def _check_repr(policy: Any, _around: Simulation, _seen: Counter[str]) -> None:
    classes = {
        cls.__name__: cls for name in CORE_MODULES for cls in config_classes(getattr(_core, name))
    }
    code = repr(policy)
    made = eval(code, classes)
    _require(made == policy, f"{code} creates {made!r}")


def _check_copies(policy: Any, _around: Simulation, _seen: Counter[str]) -> None:
    written = json.loads(json.dumps(policy.to_dict()))
    for how, copy in (
        ("pickling", pickle.loads(pickle.dumps(policy))),
        ("its file form", type(policy).from_dict(written)),
    ):
        _require(copy == policy, f"its copy by {how} is {copy!r}")
        _require(hash(copy) == hash(policy), f"its copy by {how} has a different hash")


def _check_decisions(policy: Any, around: Simulation, seen: Counter[str]) -> None:
    if seam_of(policy).name not in BUILT:
        return
    # A controller needs an adjustable limit, which the defaults of `build` have.
    of_policy = None if seam_of(policy).name == "Gateway.controller" else around
    twice = [_decisions(build(policy, simulation=of_policy), around, seen) for _ in range(2)]
    for i, (decision, repeated) in enumerate(zip(*twice, strict=True)):
        _require(decision == repeated, f"decision {i} differs: {decision} and {repeated}")


def _decisions(built: Any, around: Simulation, seen: Counter[str]) -> list[Any]:
    """Decisions about random requests and signals."""
    draws = random.Random(_SEED)
    requests = [_random_request(draws, around) for _ in range(50)]
    if isinstance(built, UsageLimit):
        ceilings = [built.decide(draws.uniform(0, 2)) for _ in requests]
        _require(not np.isnan(ceilings).any(), "a ceiling is NaN")
        return ceilings
    if isinstance(built, Picker):
        scores = [[draws.random() for _ in range(3)] for _ in requests]
        return [built.decide(row) for row in scores]
    if isinstance(built, Controller):
        return [built.decide(_random_reading(draws), now_s=i) for i in range(len(requests))]
    if isinstance(built, Fairness):
        for request in requests:
            built.joined(request)
        return [_values_of(built.decide(now_s=i)) for i in range(len(requests) + 1)]
    decided = [
        _decision(built, request, [_random_signals(draws) for _ in range(3)], now_s, seen)
        for now_s, request in enumerate(requests)
    ]
    if isinstance(built, Admission):
        decided += _decisions_of_a_stall(built, around, draws, len(requests), seen)
    return decided


def _decisions_of_a_stall(
    built: Admission, around: Simulation, draws: random.Random, now_s: float, seen: Counter[str]
) -> list[Any]:
    """Decisions while nothing leaves and all memory is full, and after all has left somehow."""
    full = [InstanceSignals(waiting=200, running=256, kv_utilization=1.0, free_blocks=0,
                            prefill_tokens=500_000, in_flight=456, is_busy=True)] * 3  # fmt: skip
    decided: list[Any] = []
    inside = []
    for _ in range(60):
        now_s += draws.random()
        request = _random_request(draws, around)
        decision = _admitted(built, request, full, now_s, seen)
        decided.append(decision)
        if decision.admitted:
            inside.append(request)
    for i, request in enumerate(inside):
        outcome = ("completed", "expired", "cancelled", "evicted", "failed")[i % 5]
        if outcome in ("completed", "evicted", "failed"):
            built.dispatched(request, now_s=now_s)
        if outcome == "completed":
            built.first_token(request, now_s=now_s)
        built.finished(request, outcome=outcome, now_s=now_s)
    for _ in range(20):
        now_s += 1
        request = _random_request(draws, around)
        decided.append(_decision(built, request, [InstanceSignals()] * 3, now_s, seen))
    return decided


def _admitted(
    built: Admission, request: Request, instances: _Fleet, now_s: float, seen: Counter[str]
) -> Decision:
    decision = built.decide(request, now_s=now_s, instances=instances, next_choice=0)
    seen["admitted" if decision.admitted else "rejected"] += 1
    return decision


def _decision(
    built: Any, request: Request, instances: _Fleet, now_s: float, seen: Counter[str]
) -> object:
    """The decision about a request, which then passes through its phases."""
    if isinstance(built, Admission):
        decision = _admitted(built, request, instances, now_s, seen)
        if decision.admitted:
            built.dispatched(request, now_s=now_s + 0.1)
            built.first_token(request, now_s=now_s + 0.2)
            built.finished(request, now_s=now_s + 0.3)
        return decision
    if isinstance(built, Limit):
        allowed = built.decide(request, now_s=now_s, instances=instances)
        _require(allowed.is_open or not allowed.may_start, "a closed limit lets a request start")
        seen["started" if allowed.may_start else "held"] += 1
        if allowed.may_start:
            built.started(request)
        return allowed
    if isinstance(built, Router):
        choice = built.decide(request, now_s=now_s, instances=instances)
        _require(0 <= choice.instance < len(instances), f"it chooses instance {choice.instance}")
        _require(not any(math.isnan(score) for score in choice.scores), "a score is NaN")
        built.first_token(request)
        built.finished(request)
        return choice
    decided: tuple[float, ...] = built.decide(request, now_s=now_s, instances=instances)
    _require(len(decided) > 0, "it keeps no instance")
    _require(not any(math.isnan(score) for score in decided), "a score is NaN")
    if isinstance(built, Filter):
        seen["kept"] += len(decided)
        seen["removed"] += len(instances) - len(decided)
    return decided


def _values_of(request: Request | None) -> tuple[Any, ...] | None:
    return None if request is None else tuple(vars(request).values())


def _random_request(draws: random.Random, around: Simulation) -> Request:
    tenants = [tenant.name for tenant in around.tenants] or ["default"]
    input_tokens = round(2 ** draws.uniform(0, 15))
    prefix = {"prefix_group": draws.choice("ab"), "prefix_tokens": min(100, input_tokens)}
    return Request(
        input_tokens=input_tokens,
        output_tokens=draws.randint(0, 1000),
        tenant=draws.choice(tenants),
        slo_class=draws.choice([slo_class.name for slo_class in around.slo_classes]),
        **(prefix if draws.random() < 0.5 else {}),  # type: ignore[arg-type]
    )


def _random_signals(draws: random.Random) -> InstanceSignals:
    return InstanceSignals(
        waiting=draws.randint(0, 20),
        running=draws.randint(0, 20),
        kv_utilization=draws.random(),
        prefill_tokens=draws.randint(0, 10_000),
        in_flight=draws.randint(0, 40),
        is_busy=draws.random() < 0.3,
        cached_blocks=draws.randint(0, 6),
    )


def _random_reading(draws: random.Random) -> Reading:
    return Reading(
        value=draws.uniform(0, 5) if draws.random() < 0.9 else None,
        samples=draws.randint(0, 100),
        in_flight=draws.randint(0, 100),
        queued=draws.randint(0, 10),
        shed=draws.randint(0, 3),
        kv_utilization=draws.random(),
        hit_rate=draws.random(),
    )


# ---- a policy in runs ----------------------------------------------------------------------------


def _default_surroundings(seam: str) -> Simulation:
    server: dict[str, Any] = {"num_kv_blocks": 1000}
    groups = [{"count": 4, **server}]
    order: dict[str, Any] = {}
    if seam == "Disaggregation.decider":
        groups = [{"count": 2, "role": role, **server} for role in ("prefill", "decode")]
        order = {"disaggregation": {"order": "decode_first"}}
    lights: list[dict[str, Any]] = [{"name": f"light {i}"} for i in range(1, 6)]
    tenants = [{"name": "heavy", "weight": 2}, *lights]
    lengths = {"kind": "lognormal", "mu": 6.0, "sigma": 1.2, "max_tokens": 8000}
    clients = [
        {
            "name": tenant["name"],
            "tenant": tenant["name"],
            "slo_class": ("standard", "sheddable")[i % 2],
            "input_tokens": lengths,
        }
        for i, tenant in enumerate(tenants)
    ]
    return Simulation(
        tenants=tenants,
        instances=groups,
        workload={"kind": "synthetic", "clients": clients},
        **order,
    )


def _check_light_load(policy: Any, around: Simulation, seen: Counter[str]) -> None:
    _check_runs(policy, _with_load(around, requests_per_s=1, num_requests=20), {}, seen)


def _check_extreme_load(policy: Any, around: Simulation, seen: Counter[str]) -> None:
    # Queues are short, and clients time out early.
    changes = {
        "gateway.limit": [{"kind": "fixed", "max_in_flight": 8}],
        "gateway.bands[0].queue.max_requests": 5,
        "gateway.bands[0].queue.timeout_s": 0.05,
        "reaction.timeout_s": 0.1,
        "instances[0].max_num_seqs": 2,
    }
    loaded = _with_load(around, requests_per_s=5000, num_requests=300)
    _check_runs(policy, loaded, changes, seen)


def _check_backlog(policy: Any, around: Simulation, seen: Counter[str]) -> None:
    # No client gives up, so requests wait for many seconds.
    changes = {
        "gateway.limit": [{"kind": "fixed", "max_in_flight": 32}],
        "gateway.bands[0].queue.max_requests": None,
        "gateway.bands[0].queue.timeout_s": None,
        "reaction.timeout_s": None,
    }
    loaded = _with_load(around, requests_per_s=100, num_requests=300)
    _check_runs(policy, loaded, changes, seen)


def _check_as_given(policy: Any, around: Simulation, seen: Counter[str]) -> None:
    if not isinstance(around.workload, _core.workload.Synthetic):
        return  # a trace has the same load in every check
    first = min(1000, around.workload.num_requests or 1000)
    _check_runs(policy, around.with_({"workload.num_requests": first}), {}, seen)


def _with_load(around: Simulation, *, requests_per_s: float, num_requests: int) -> Simulation:
    """The simulation with this load if its workload is synthetic, else as it is."""
    if not isinstance(around.workload, _core.workload.Synthetic):
        return around
    return around.with_(
        {
            "workload.requests_per_s": requests_per_s,
            "workload.num_requests": num_requests,
            "workload.duration_s": 2 * num_requests / requests_per_s,  # users stop as well
        }
    )


def _check_runs(
    policy: Any, around: Simulation, changes: Mapping[str, Any], seen: Counter[str]
) -> None:
    if seam_of(policy).name == "Gateway.controller":
        changes = {"gateway.limit": [{"kind": "fixed"}], **changes}
    simulation = placed([policy], around, changes)
    result = simulate(simulation, _SEED)
    _require(repr(result), "the repr of the result is empty")
    check_conservation(result)
    if seam_of(policy).name == "Gateway.limit":
        seen["started"] += result.ledger["dispatched"]
        seen["held"] += int(np.count_nonzero(result.requests["queue_s"] > 0))
    if seam_of(policy).name == "Gateway.admission":
        rejected = result.ledger["rejected"]
        reasons = [reason["name"] for reason in type(policy)._describe().get("reasons", ())]
        seen["admitted"] += result.ledger["admitted"]
        seen["rejected"] += sum(rejected.get(reason, 0) for reason in reasons)
    on_threads = run_many([simulation] * 2, [_SEED], threads=2, keep_requests=True)
    for how, digest in (
        ("again", simulate(simulation, _SEED).digest),
        ("step by step", simulate(simulation, _SEED, reference=True).digest),
        *(("on two threads", results[0].digest) for results in on_threads),
    ):
        _require(digest == result.digest, f"run {how}, it gives a different result")


# ---- results -------------------------------------------------------------------------------------


def _ledger_errors(ledger: Mapping[str, Any]) -> Iterator[str]:
    """Conservation: what enters either is inside or has left."""
    evicted_inside = ledger.get("evicted_in_flight", 0)
    cancelled_inside = ledger.get("cancelled_in_flight", 0)
    refused = sum(ledger["worker_rejected"].values())
    unrouted = sum(ledger.get("router_rejected", {}).values())
    stranded = sum(ledger.get("handoff_rejected", {}).values())
    failed_before = ledger.get("failed_at_admission", 0)
    failed_waiting = ledger.get("failed_in_queue", 0)
    sums = {
        "attempts": {
            "at admission": ledger["at_admission"],
            "admitted": ledger["admitted"],
            "rejected": sum(ledger["rejected"].values()),
            "failed": failed_before,
        },
        "admitted": {
            "queued": ledger["queued"],
            "dispatched": ledger["dispatched"],
            "expired": ledger["expired"],
            "evicted from a queue": ledger["evicted"] - evicted_inside,
            "cancelled in a queue": ledger["cancelled"] - cancelled_inside,
            "failed in a queue": failed_waiting,
        },
        "dispatched": {
            "in transit": ledger["in_transit"],
            "running": ledger["running"],
            "completed": ledger["completed"],
            "failed": ledger["failed"] - failed_before - failed_waiting,
            "evicted from an instance": evicted_inside,
            "cancelled in an instance": cancelled_inside,
            "rejected by a worker": refused,
            "rejected by the router": unrouted,
            "rejected after their prefill": stranded,
        },
    }
    for whole, parts in sums.items():
        total = sum(parts.values())
        if total != ledger[whole]:
            listed = " + ".join(f"{count} {name}" for name, count in parts.items() if count)
            yield f"ledger: {ledger[whole]} {whole}, but {listed or 'nothing'} make {total}"
    if ledger["attempts"] < ledger["logical_requests"]:
        yield f"ledger: {ledger['attempts']} attempts at {ledger['logical_requests']} requests"


def _column_errors(result: Result) -> Iterator[str]:
    requests, ledger = result.requests, result.ledger
    outcome, reason = requests["outcome"], requests["reason"]
    if len(outcome) != ledger["logical_requests"]:
        yield f"{len(outcome)} requests, but {ledger['logical_requests']} in the ledger"
    attempts = int(requests["attempts"].sum())
    if attempts != ledger["attempts"]:
        yield f"{attempts} attempts of all requests, but {ledger['attempts']} in the ledger"
    yield from _outcome_errors(outcome, reason, ledger)
    yield from _hedge_errors(result)
    is_completed = outcome == "completed"
    yield from _listed("are completed and have a reason", is_completed & (reason != ""))
    yield from _listed("are rejected without a reason", (outcome == "rejected") & (reason == ""))
    # Outcomes that are impossible before admission or routing.
    later = np.isin(outcome, ("completed", "expired", "queued", "running"))
    later |= (outcome == "failed") & (reason != "gateway_lost")
    yield from _listed("went on without being admitted", later & ~requests["admitted"])
    is_routed = requests["instance"] >= 0
    yield from _listed("are completed and were never routed", is_completed & ~is_routed)
    served = requests["instance"][is_completed & is_routed]
    counts = np.bincount(served, minlength=len(result.instances))
    for i, instance in enumerate(result.instances):
        if (completed := instance["completed"]) != counts[i]:
            yield f"instance {i} completed {completed} requests, but {counts[i]} name it"
    yield from _token_errors(result, is_completed)
    yield from _time_errors(result, is_completed)


def _outcome_errors(
    outcome: NDArray[Any], reason: NDArray[Any], ledger: Mapping[str, Any]
) -> Iterator[str]:
    """The last attempts by outcome and reason; earlier attempts have no columns."""
    reasons = {
        **ledger["rejected"],
        **ledger["worker_rejected"],
        **ledger.get("router_rejected", {}),
        **ledger.get("handoff_rejected", {}),
    }
    booked = {
        **{name: ledger[name] for name in _core.cluster.outcomes if name in ledger},
        "rejected": sum(reasons.values()),
        "in_transit": ledger["in_transit"] + ledger["at_admission"],
    }
    is_all = ledger["attempts"] == ledger["logical_requests"]
    for what, column, known in (
        ("", outcome, booked),
        ("rejected by ", reason[outcome == "rejected"], reasons),
    ):
        names, counts = np.unique(column, return_counts=True)
        seen = dict(zip(names.tolist(), counts.tolist(), strict=True))
        for name in sorted({*seen, *known}):
            count, expected = seen.get(name, 0), known.get(name, 0)
            if count > expected or (is_all and count < expected):
                yield f"{count} requests are {what}{name}, but {expected} in the ledger"


def _hedge_errors(result: Result) -> Iterator[str]:
    if "hedge" not in result.requests:
        return
    hedge, ledger = result.requests["hedge"], result.ledger
    for name, count in (("hedges", (hedge != "").sum()), ("hedge_wins", (hedge == "second").sum())):
        if ledger[name] != count:
            yield f"ledger: {ledger[name]} {name}, but {count} in the requests"
    is_hedged = hedge != ""
    yield from _listed(
        "are hedged and made other than 2 attempts", is_hedged & (result.requests["attempts"] != 2)
    )
    has_token = ~np.isnan(result.requests["ttft_s"])
    yield from _listed("are unanswered and have a token", (hedge == "unanswered") & has_token)
    yield from _listed(
        "have a winner without a token", np.isin(hedge, ("first", "second")) & ~has_token
    )


def _token_errors(result: Result, is_completed: NDArray[Any]) -> Iterator[str]:
    got, asked = result.requests["output_tokens"], result._offered()["output_tokens"]
    yield from _listed("got more tokens than requested", got > asked)
    yield from _listed("are completed without all their tokens", is_completed & (got < asked))
    if "legs" in result.ledger:
        wasted, total = result.requests["wasted_tokens"].sum(), result.summary()["wasted_tokens"]
        if wasted != total:
            yield f"the requests wasted {wasted} tokens, but {total} in the summary"


def _time_errors(result: Result, is_completed: NDArray[Any]) -> Iterator[str]:
    requests = result.requests
    arrival_s, ttft_s, e2e_s = (requests[name] for name in ("arrival_s", "ttft_s", "e2e_s"))
    yield from _listed("arrived before the one above", np.diff(arrival_s, prepend=0.0) < 0)
    for name in ("ttft_s", "e2e_s", "tpot_s", "queue_s", "scheduling_delay_s", "itl_mean_s"):
        yield from _listed(f"have a negative {name}", requests[name] < 0)
    yield from _listed("are completed without e2e_s", is_completed & np.isnan(e2e_s))
    if result.simulation.metrics.accounting == "blis":
        return  # BLIS's latencies are sums of parts that do not add up
    yield from _listed("ended before their first token", ttft_s > e2e_s + _ROUNDING_S)
    is_early = ttft_s + _ROUNDING_S < requests["queue_s"]
    yield from _listed("got their first token before dispatch", is_early)
    if all(group.output_overhead == "in_step" for group in result.simulation.instances):
        late = arrival_s + e2e_s > result.end_s + _ROUNDING_S
        yield from _listed("ended after the run", late)


def _listed(what: str, is_wrong: NDArray[Any]) -> Iterator[str]:
    rows = np.flatnonzero(is_wrong)
    if rows.size:
        yield f"{rows.size} requests {what}, the first in row {rows[0]}"
