"""Policies in C functions: of ctypes, of cffi, and of a shared library that a compiler makes."""

from __future__ import annotations

import ctypes
import functools
import pickle
import re
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.c_functions import c_library

from spillway import (
    ConfigError,
    Simulation,
    UsageError,
    fingerprint,
    gateway,
    instance,
    policies,
    router,
    run_many,
    simulate,
    testing,
    trace,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = policies.include_dir() / "spillway_policy.h"
LOADED = Simulation(
    tenants=[{"name": "gold"}, {"name": "free"}],
    instances=[
        {
            "count": 3,
            "max_num_seqs": 8,
            "num_kv_blocks": 2000,
            "latency": instance.Linear(beta0_us=7000, beta_prefill_us=17, beta_decode_us=3),
        }
    ],
    workload={
        "kind": "synthetic",
        "requests_per_s": 60,
        "num_requests": 400,
        "clients": [{"name": "a", "tenant": "gold"}, {"name": "b", "tenant": "free"}],
    },
)

SOURCE = """
#include <string.h>
#include "spillway_policy.h"

/* state: capacity, refill per second, tokens, last */
int32_t bucket(const spillway_request *request, const spillway_instance *instances,
               int64_t num_instances, double now_s, double *state) {
  double tokens = state[2] + state[1] * (now_s - state[3]);
  state[2] = tokens < state[0] ? tokens : state[0];
  state[3] = now_s;
  return state[2] >= request->input_tokens ? SPILLWAY_ADMIT : SPILLWAY_REJECT_RATE_LIMITED;
}

void charge(const spillway_request *request, double now_s, double *state) {
  state[2] -= request->input_tokens;
}

int32_t few(const spillway_request *request, const spillway_instance *instances,
            int64_t num_instances, double now_s, double *state) {
  int64_t in_flight = 0;
  for (int64_t i = 0; i < num_instances; ++i) in_flight += instances[i].in_flight;
  return in_flight < state[0];
}

int32_t only_ann(const spillway_request *request, const spillway_instance *instances,
                 int64_t num_instances, double now_s, double *state) {
  for (int64_t i = 0; i < request->num_attributes; ++i) {
    const spillway_attribute *one = &request->attributes[i];
    if (!strcmp(one->name, "user")) return !strcmp(one->value, "ann");
  }
  return SPILLWAY_REJECT_UNSERVABLE;
}

int32_t admit(const spillway_request *request, const spillway_instance *instances,
              int64_t num_instances, double now_s, double *state) {
  return SPILLWAY_ADMIT;
}

int64_t call_often(spillway_decide volatile decide, int64_t calls) {
  spillway_request request = {0};
  int64_t sum = 0;
  for (int64_t i = 0; i < calls; ++i) sum += decide(&request, 0, 0, 1.0, 0);
  return sum;
}

void shortest(const spillway_request *request, const spillway_instance *instances,
              int64_t num_instances, double now_s, double *state, double *scores) {
  int64_t most = instances[0].waiting, least = most;
  for (int64_t i = 1; i < num_instances; ++i) {
    int64_t waiting = instances[i].waiting;
    if (waiting > most) most = waiting;
    if (waiting < least) least = waiting;
  }
  for (int64_t i = 0; i < num_instances; ++i) {
    scores[i] = most == least ? 1 : (double)(most - instances[i].waiting) / (most - least);
  }
}
"""


class Attribute(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("value", ctypes.c_char_p),
        ("number", ctypes.c_int64),
    ]


class Request(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("id", "input_tokens", "tenant", "slo_class")),
        ("priority", ctypes.c_int64),
        ("arrival_s", ctypes.c_double),
        ("uniform", ctypes.c_double),
        ("max_tokens", ctypes.c_int64),
        ("predicted_output_tokens", ctypes.c_int64),
        ("model", ctypes.c_int64),
        ("model_name", ctypes.c_char_p),
        ("num_attributes", ctypes.c_int64),
        ("attributes", ctypes.POINTER(Attribute)),
    ]


_STATE = ctypes.POINTER(ctypes.c_double)
DECIDE = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.POINTER(Request),
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_double,
    _STATE,
)
NOTIFY = ctypes.CFUNCTYPE(None, ctypes.POINTER(Request), ctypes.c_double, _STATE)


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    """The functions of SOURCE."""
    made = c_library(SOURCE)
    if made is None:
        pytest.skip("there is no C compiler")
    return made


def admitted_by(policy: Any, seed: int = 1) -> Any:
    return simulate(LOADED.with_({"gateway.admission": policy}), seed)


def made(decide: Any, **more: Any) -> gateway.CompiledAdmission:
    return policies.compiled_admission(decide, name="mine", version="1", **more)


# ---- what C code sees ----------------------------------------------------------------------------


@functools.cache
def declarations() -> Any:
    """The header, for cffi."""
    cffi = pytest.importorskip("cffi")
    text = HEADER.read_text()
    text = re.sub(r'extern "C" {|^}$', "", text, flags=re.MULTILINE)
    ffi = cffi.FFI()
    ffi.cdef("\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return ffi


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("spillway_request", policies.request_dtype()),
        ("spillway_instance", policies.instance_dtype()),
        ("spillway_legs", policies.legs_dtype()),
    ],
)
def test_header_has_the_layout_of_the_core(name: str, dtype: np.dtype[Any]) -> None:
    kinds = {
        "int64_t": np.dtype(np.int64),
        "double": np.dtype(np.float64),
        **dict.fromkeys(("char *", "spillway_attribute *"), np.dtype(np.uint64)),  # addresses
    }
    type_ = declarations().typeof(name)
    in_header = [(name, each.offset, kinds[each.type.cname]) for name, each in type_.fields]
    assert dtype.fields is not None
    assert dtype.names is not None
    assert in_header == [
        (field, dtype.fields[field][1], dtype.fields[field][0]) for field in dtype.names
    ]
    assert declarations().sizeof(name) == dtype.itemsize


def test_policy_sees_what_one_in_python_sees() -> None:
    seen: list[Any] = []

    class Looking:
        def decide(self, request: policies.Request, view: policies.View) -> bool:
            keys = ("instances", "waiting", "running", "in_flight", "free_blocks")
            more = ("prefill_tokens", "num_kv_blocks", "max_num_seqs", "kv_utilization", "age_s")
            seen.append(
                (
                    (request.id, request.input_tokens, request.priority, request.arrival_s),
                    view.now_s,
                    [getattr(view, key).tolist() for key in keys + more],
                )
            )
            return True

    def look(request: Any, instances: int, count: int, now_s: float, _state: Any) -> int:
        one = request[0]
        size = count * policies.instance_dtype().itemsize
        rows = np.frombuffer(ctypes.string_at(instances, size), policies.instance_dtype())
        seen.append(
            (
                (one.id, one.input_tokens, one.priority, one.arrival_s),
                now_s,
                [rows[key].tolist() for key in rows.dtype.names or ()],
            )
        )
        return 1

    around = LOADED.with_({"signals": {"kind": "scraped", "period_s": 0.5}})
    for policy in (Looking, made(DECIDE(look))):
        simulate(around.with_({"gateway.admission": policy}), 1)
    assert len(seen) == 800
    np.testing.assert_equal(seen[:400], seen[400:])
    assert {len(columns[0]) for _, _, columns in seen} == {3}
    assert any(max(columns[1]) > 0 for _, _, columns in seen)


NAMED = trace(
    arrival_s=np.arange(40) / 10,
    input_tokens=[20] * 40,
    output_tokens=[30] * 40,
    max_tokens=[0, 100] * 20,
    model=["large", "", "small", "large"] * 10,
    attributes={"user": ["ann", "", "Zoë", "bob"] * 10, "region": ["eu", "us"] * 20},
)


def test_policy_sees_models_attributes_and_predictions() -> None:
    """As one in Python does, also in a trace of which requests are moved and streamed."""
    seen: list[Any] = []

    class Looking:
        def decide(self, request: policies.Request, view: policies.View) -> bool:  # noqa: ARG002
            lengths = request.max_tokens, request.predicted_output_tokens
            seen.append((request.id, request.model, request.attributes, lengths))
            return True

    def look(request: Any, _instances: int, _count: int, _now_s: float, _state: Any) -> int:
        one = request[0]
        values = [one.attributes[i] for i in range(one.num_attributes)]
        attributes = {each.name.decode(): each.value.decode() for each in values}
        for each in values:
            assert (each.number == -1) == (each.value == b"")
        assert (one.model == 0) == (one.model_name == b"")
        lengths = one.max_tokens, one.predicted_output_tokens
        seen.append((one.id, one.model_name.decode(), attributes, lengths))
        return 1

    submitted = {"input_tokens": 7, "output_tokens": 5, "model": "third"}
    around = LOADED.with_(
        {
            "workload": NAMED,
            "tenants": [{"name": "default", "model": "usual"}],
            "length_prediction": {"model": "class_mean", "prior_tokens": 44},
        }
    )
    for more in (
        {},
        {"metrics.streaming": True},
        {"changes": [{"at_s": 1.25, "submit": [submitted]}]},
    ):
        seen.clear()
        for policy in (Looking, made(DECIDE(look))):
            simulate(around.with_({"gateway.admission": policy, **more}), 1)
        half = len(seen) // 2
        assert half == 40 + ("changes" in more)
        assert seen[:half] == seen[half:]
        assert {model for _, model, _, _ in seen} >= {"large", "usual", "small"}
        assert {found["user"] for _, _, found, _ in seen} == {"ann", "", "Zoë", "bob"}
        assert {lengths[0] for _, _, _, lengths in seen} == {0, 100}
        assert 44 in {lengths[1] for _, _, _, lengths in seen}


def test_compiled_code_reads_attributes(library: ctypes.CDLL) -> None:
    around = LOADED.with_({"workload": NAMED})
    result = simulate(around.with_({"gateway.admission": made(library.only_ann)}), 1)
    users = result.requests["attribute.user"]
    assert set(users[result.requests["outcome"] == "completed"]) == {"ann"}
    assert (result.requests["outcome"] == "completed").sum() == 10


def test_instances_are_left_out_on_request() -> None:
    counts = set()

    def look(_request: Any, _instances: Any, count: int, _now_s: float, _state: Any) -> int:
        counts.add(count)
        return 1

    admitted_by(made(DECIDE(look), reads_instances=False))
    assert counts == {0}


def test_answers_and_random_numbers() -> None:
    def decide(request: Any, _instances: Any, _count: int, _now_s: float, _state: Any) -> int:
        return int(request[0].uniform * 4) - 2

    result = admitted_by(made(DECIDE(decide), is_random=True))
    reasons = result.requests["reason"]
    names, counts = np.unique(reasons, return_counts=True)
    assert {str(name) for name in names} == {
        *("", "compiled_saturated", "compiled_rate_limited", "compiled_unservable")
    }
    assert min(counts) > 60
    assert admitted_by(made(DECIDE(decide), is_random=True)).digest == result.digest

    def nan(request: Any, _instances: Any, _count: int, _now_s: float, _state: Any) -> int:
        return int(np.isnan(request[0].uniform))

    assert admitted_by(made(DECIDE(nan))).ledger["completed"] == 400


def test_notifications_follow_the_life_of_a_request() -> None:
    seen: list[tuple[str, int, float]] = []

    def notifying(verb: str) -> Any:
        return NOTIFY(lambda request, now_s, _: seen.append((verb, request[0].id, now_s)))

    verbs = ("commit", "dispatched", "first_token", "finished")
    decide = DECIDE(lambda request, *_: request[0].id != 1)
    policy = made(decide, **{verb: notifying(verb) for verb in verbs})
    result = simulate(LOADED.with_({"gateway.admission": policy, "workload.num_requests": 3}), 1)
    assert [verb for verb, row, _ in seen if row == 0] == list(verbs)
    assert {row for _, row, _ in seen} == {0, 2}
    instants = [now_s for verb, _, now_s in seen if verb == "first_token"]
    expected = (result.requests["arrival_s"] + result.requests["ttft_s"])[[0, 2]]
    assert sorted(instants) == pytest.approx(sorted(expected))


# ---- compiled code -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_token_bucket_decides_like_that_of_the_core(library: ctypes.CDLL, seed: int) -> None:
    rates = {"capacity_tokens": 4000, "refill_tokens_per_s": 5000}
    mine = made(library.bucket, commit=library.charge, state=[4000, 5000, 4000, 0])
    one, other = (admitted_by(each, seed) for each in (gateway.TokenBucket(**rates), mine))
    assert 0 < one.ledger["completed"] < 400
    for column in ("admitted", "outcome", "instance", "e2e_s"):
        np.testing.assert_array_equal(one.requests[column], other.requests[column])


def test_scorer_scores_like_that_of_the_core(library: ctypes.CDLL) -> None:
    mine = policies.compiled_scorer(library.shortest, name="shortest", version="1", weight=2)
    one, other = (
        simulate(LOADED.replace(router=router.Weighted(scorers=[each])), 1)
        for each in ("queue_depth", mine)
    )
    assert one.outcome_digest == other.outcome_digest
    assert one.outcome_digest != simulate(LOADED, 1).outcome_digest


def test_runs_begin_with_the_same_state_on_all_threads(library: ctypes.CDLL) -> None:
    mine = made(library.bucket, commit=library.charge, state=[4000, 5000, 4000, 0])
    chosen = [LOADED.with_({"gateway.admission": mine, "gateway.replicas": n}) for n in (1, 2)]
    one, two = (run_many(chosen, range(3), threads=n, keep_requests=True) for n in (1, 3))
    digests = [[[run.digest for run in each] for each in many] for many in (one, two)]
    assert digests[0] == digests[1]


def test_functions_of_ctypes_cffi_and_addresses_are_the_same(library: ctypes.CDLL) -> None:
    ffi = declarations()
    address = ctypes.cast(library.few, ctypes.c_void_p).value
    assert address is not None
    digests = {
        admitted_by(made(function, state=[9])).digest
        for function in (library.few, address, ffi.cast("spillway_decide", address))
    }
    assert len(digests) == 1
    assert digests != {admitted_by(made(library.few, state=[8])).digest}


def test_callback_of_cffi() -> None:
    ffi = declarations()

    def decide(_request: Any, instances: Any, count: int, _now_s: float, state: Any) -> int:
        return int(sum(instances[i].in_flight for i in range(count)) < state[0])

    class AtMost:
        def decide(self, _request: policies.Request, view: policies.View) -> bool:
            return int(view.in_flight.sum()) < 9

    mine = made(ffi.callback("spillway_decide", decide), state=[9])
    one, other = admitted_by(mine), admitted_by(AtMost)
    np.testing.assert_array_equal(one.requests["admitted"], other.requests["admitted"])
    assert 0 < one.requests["admitted"].sum() < 400


def test_function_of_numba() -> None:
    numba = pytest.importorskip("numba")
    types = numba.types
    request = types.CPointer(numba.from_dtype(policies.request_dtype()))
    rows = types.CPointer(numba.from_dtype(policies.instance_dtype()))
    signature = types.int32(
        request, rows, types.int64, types.float64, types.CPointer(types.float64)
    )

    @numba.cfunc(signature)  # type: ignore[untyped-decorator]
    def decide(_request: Any, instances: Any, count: int, _now_s: float, state: Any) -> int:
        total = 0
        for candidate in numba.carray(instances, count):
            total += candidate.in_flight
        return 1 if total < state[0] else 0

    assert 0 < admitted_by(made(decide, state=[9])).ledger["completed"] < 400


# ---- settings ------------------------------------------------------------------------------------


ADMIT = DECIDE(lambda *_: 1)


def test_it_compares_by_name_version_and_settings() -> None:
    one = made(ADMIT)
    assert one == made(DECIDE(lambda *_: 1))
    others = [
        policies.compiled_admission(ADMIT, name="other", version="1"),
        policies.compiled_admission(ADMIT, name="mine", version="2"),
        made(ADMIT, state=[1]),
        made(ADMIT, reads_instances=False),
    ]
    all_of_them = [LOADED.with_({"gateway.admission": each}) for each in (one, *others)]
    assert len({fingerprint(each) for each in all_of_them}) == 5
    assert one.to_dict() == {
        "kind": "compiled",
        "name": "mine",
        "version": "1",
        "state": [],
        "reads_instances": True,
        "is_random": False,
    }


def test_functions_do_not_travel() -> None:
    simulation = LOADED.with_({"gateway.admission": made(ADMIT)})
    for copy in (
        pickle.loads(pickle.dumps(simulation)),
        Simulation.from_dict(simulation.to_dict()),
    ):
        assert copy == simulation
        with pytest.raises(ConfigError, match=r"gateway\.admission.* 'mine': must be given again"):
            simulate(copy)


def test_state_is_a_setting_like_others() -> None:
    decide = DECIDE(lambda request, _i, _n, _now_s, state: request[0].input_tokens < state[0])
    simulation = LOADED.with_({"gateway.admission": made(decide, state=[1e9])})
    assert simulate(simulation, 1).ledger["completed"] == 400
    none = simulation.with_({"gateway.admission[0].state": [0]})
    assert simulate(none, 1).ledger["completed"] == 0


def test_compiled_code_passes_all_checks(library: ctypes.CDLL) -> None:
    state = [4000, 5000, 4000, 0]
    testing.check_policy(made(library.bucket, commit=library.charge, state=state))
    testing.check_policy(policies.compiled_scorer(library.shortest, name="s", version="1"))


def test_decisions_by_themselves() -> None:
    built = testing.build(made(DECIDE(lambda request, *_: request[0].input_tokens < 10)))
    assert built.decide(testing.Request(input_tokens=9)).admitted
    assert built.decide(testing.Request(input_tokens=10)).reason == "compiled_saturated"


@pytest.mark.parametrize("answer", [2, -3, 100])
def test_a_wrong_answer_ends_the_run(answer: int) -> None:
    message = rf"'mine' returned {answer} for request 0 at .* s: must be 1 \(admit\), 0, -1 or -2"
    with pytest.raises(UsageError, match=message):
        admitted_by(made(DECIDE(lambda *_: answer)))


def test_a_wrong_score_ends_the_run() -> None:
    score = ctypes.CFUNCTYPE(
        None, *(ctypes.c_void_p,) * 2, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p, _STATE
    )

    def write(_r: Any, _i: Any, count: int, _now_s: float, _s: Any, scores: Any) -> None:
        scores[count - 1] = np.nan

    mine = policies.compiled_scorer(score(write), name="mine", version="1")
    with pytest.raises(UsageError, match=r"'mine' wrote NaN as score 2 for request 0 at"):
        simulate(LOADED.replace(router=router.Weighted(scorers=[mine])))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"decide": 0}, "decide = 0: must be a C function"),
        ({"decide": True}, "decide = True: must be a C function"),
        ({"decide": lambda *_: 1}, "decide = .*: must be a C function: an address, or one of"),
        ({"decide": NOTIFY(lambda *_: None)}, "decide = a function of 3 arguments: must take 5"),
        ({"commit": ADMIT}, "commit = a function of 5 arguments: must take 3"),
        ({"name": ""}, "name = '': must be a text"),
        ({"version": 1}, "version = 1: must be a text"),
        ({"abi": 2}, "abi = 2: must be 1"),
        ({"state": [np.nan]}, r"state\[0\]"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        policies.compiled_admission(**{"decide": ADMIT, "name": "n", "version": "1", **wrong})


# ---- speed ---------------------------------------------------------------------------------------


@pytest.mark.long  # a ratio of timings: on a machine without other work
def test_decision_costs_at_most_five_indirect_calls(library: ctypes.CDLL) -> None:
    requests, chained = 10_000, 20
    nothing = Simulation(
        instances=LOADED.instances,
        workload={"kind": "synthetic", "requests_per_s": 1e5, "num_requests": requests},
        gateway={"admission": ["reject_all"]},
    )
    mine = made(library.admit, reads_instances=False)
    asked = nothing.with_({"gateway.admission": [mine] * chained + ["reject_all"]})
    library.call_often.argtypes = [ctypes.c_void_p, ctypes.c_int64]

    def seconds(timed: Callable[[], object]) -> float:
        began = time.perf_counter()
        timed()
        return time.perf_counter() - began

    # In turns, so that a busy machine slows all of them down.
    times = [
        [
            seconds(lambda: simulate(nothing)),
            seconds(lambda: simulate(asked)),
            seconds(lambda: library.call_often(library.admit, requests * chained)),
        ]
        for _ in range(100)
    ]
    plain_s, asked_s, calls_s = np.min(times, axis=0)
    assert (asked_s - plain_s) / calls_s <= 5
