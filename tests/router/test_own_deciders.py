"""Deciders of prefill and decode pools that are written in Python and in C functions."""

from __future__ import annotations

import ctypes
import functools
import pickle
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cluster.test_pools import random_case
from support.c_functions import c_library
from support.effort import in_parts, often, trials
from support.pools import LATENCY, group

from spillway import (
    ConfigError,
    LivelockError,
    Simulation,
    UsageError,
    policies,
    router,
    run_many,
    simulate,
    testing,
    trace,
)
from spillway.files.deployments import export

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway import Result


@dataclass
class UncachedTokens(policies.Decider):
    """As `router.UncachedTokens` does."""

    min_uncached_tokens: int = 16
    min_prompt_tokens: int = 0

    def is_local(self, request: policies.Request, legs: policies.Legs) -> bool:
        return (
            self.min_uncached_tokens == 0
            or legs.prompt_tokens < self.min_prompt_tokens
            or legs.prompt_tokens - legs.decode_cached_tokens < self.min_uncached_tokens
        )


@dataclass
class Conditional(policies.Decider):
    """As `router.Conditional` does."""

    rule: str = "isl_bounding"
    uncached_tokens_threshold: int = 2048
    uncached_share_threshold: float = 0.7
    prefill_busy_threshold: float = 0
    decode_busy_threshold: float | None = None

    def is_local(self, request: policies.Request, legs: policies.Legs) -> bool:
        if legs.decode_instance is None or not self._bypasses(legs):
            return False
        if self.decode_busy_threshold is None:
            return True
        blocks = legs.decode_blocks_in_flight + legs.prompt_blocks
        return blocks <= self.decode_busy_threshold * legs.decode_num_kv_blocks

    def _bypasses(self, legs: policies.Legs) -> bool:
        uncached = max(legs.prompt_tokens - legs.decode_cached_tokens, 0)
        is_short = (
            uncached < self.uncached_tokens_threshold
            and uncached / max(legs.prompt_tokens, 1) < self.uncached_share_threshold
        )
        most = self.prefill_busy_threshold * legs.prefill_max_num_batched_tokens
        is_busy = legs.prefill_instance is None or legs.prefill_pending_tokens > most
        return {
            "isl_bounding": is_short,
            "prefill_load": is_busy,
            "isl_or_load": is_short or is_busy,
        }[self.rule]


SOURCE = """
#include "spillway_policy.h"

/* state: min_uncached_tokens, min_prompt_tokens */
int32_t uncached_tokens(const spillway_request *request, const spillway_legs *legs, double now_s,
                        double *state) {
  if (state[0] == 0 || legs->prompt_tokens < state[1]) return SPILLWAY_LOCAL;
  if (legs->prompt_tokens - legs->decode_cached_tokens < state[0]) return SPILLWAY_LOCAL;
  return SPILLWAY_REMOTE;
}

/* state: whether the length counts, whether the load does, the thresholds of uncached tokens, of
 * their share, of the prefill instance, of the decode instance (-1: none) */
int32_t conditional(const spillway_request *request, const spillway_legs *legs, double now_s,
                    double *state) {
  double uncached = legs->prompt_tokens - legs->decode_cached_tokens;
  double prompt = legs->prompt_tokens > 1 ? legs->prompt_tokens : 1;
  int bypasses = 0;
  if (uncached < 0) uncached = 0;
  if (legs->decode_instance < 0) return SPILLWAY_REMOTE;
  if (state[0] && uncached < state[2] && uncached / prompt < state[3]) bypasses = 1;
  if (state[1] && (legs->prefill_instance < 0 ||
                   legs->prefill_pending_tokens > state[4] * legs->prefill_max_num_batched_tokens))
    bypasses = 1;
  if (!bypasses) return SPILLWAY_REMOTE;
  return state[5] < 0 || legs->decode_blocks_in_flight + legs->prompt_blocks <=
                             state[5] * legs->decode_num_kv_blocks;
}

/* Every second request of a replica. */
int32_t in_turns(const spillway_request *request, const spillway_legs *legs, double now_s,
                 double *state) {
  state[0] += 1;
  return (int64_t)state[0] % 2 ? SPILLWAY_LOCAL : SPILLWAY_REMOTE;
}
"""


class InTurns(policies.Decider):
    """Every second request of a replica."""

    def __init__(self) -> None:
        self.asked = 0

    def is_local(self, request: policies.Request, legs: policies.Legs) -> bool:
        self.asked += 1
        return self.asked % 2 == 1


@functools.cache
def library() -> ctypes.CDLL:
    made = c_library(SOURCE)
    if made is None:
        pytest.skip("there is no C compiler")
    return made


def copies_of(decider: Any) -> dict[str, Any]:
    """The same decider in Python and in C."""
    if decider.kind == "uncached_tokens":
        fields = decider.to_dict()
        fields.pop("kind")
        written = functools.partial(UncachedTokens, **fields)
        state: list[float] = [decider.min_uncached_tokens, decider.min_prompt_tokens]
    else:
        fields = decider.to_dict()
        fields.pop("kind")
        written = functools.partial(Conditional, **fields)
        veto = decider.decode_busy_threshold
        state = [
            float(decider.rule != "prefill_load"),
            float(decider.rule != "isl_bounding"),
            decider.uncached_tokens_threshold,
            decider.uncached_share_threshold,
            decider.prefill_busy_threshold,
            -1 if veto is None else veto,
        ]
    function = getattr(library(), decider.kind)
    in_c = policies.compiled_decider(function, name="copy", version="1", state=state)
    return {"python": written, "c": in_c}


def outcome_of(simulation: Simulation, seed: int) -> Result | str:
    try:
        return simulate(simulation, seed)
    except LivelockError as error:
        return str(error)


# ---- as those of the core ------------------------------------------------------------------------


def random_pools(rng: random.Random, decider: Any) -> Simulation:
    """Random pools of whole instances, with the decider."""
    simulation, _ = random_case(rng)
    groups = [group.replace(data_parallel_size=1) for group in simulation.instances]
    changes: dict[str, Any] = {
        "instances": groups,
        "disaggregation.decider": decider,
        "gateway.replicas": rng.choice((1, 1, 2)),
    }
    if decider.kind == "uncached_tokens":
        changes |= {
            "disaggregation.order": "decode_first",
            "disaggregation.ends_at_first_token": False,
        }
    return simulation.with_(changes)


def random_decider(rng: random.Random) -> Any:
    if rng.random() < 0.4:
        return router.UncachedTokens(
            min_uncached_tokens=rng.choice((0, 4, 9, 20)), min_prompt_tokens=rng.choice((0, 12))
        )
    return router.Conditional(
        rule=rng.choice(("isl_bounding", "prefill_load", "isl_or_load")),
        uncached_tokens_threshold=rng.choice((8, 16, 2048)),
        uncached_share_threshold=rng.choice((0.5, 0.75, 1.0)),
        prefill_busy_threshold=rng.choice((0, 0.25, 1, 4)),
        decode_busy_threshold=rng.choice((None, 0.25, 0.5, 1)),
    )


@pytest.mark.parametrize("seeds", in_parts(trials(400), 4), ids=str)
def test_copies_decide_as_the_deciders_of_the_core(seeds: range) -> None:
    """In each run all requests of both pools have the same fates, at the same instants."""
    seen = Counter[str]()
    for seed in seeds:
        rng = random.Random(seed)
        decider = random_decider(rng)
        simulation = random_pools(rng, decider)
        expected = outcome_of(simulation, seed)
        for language, copy in copies_of(decider).items():
            found = outcome_of(simulation.with_({"disaggregation.decider": copy}), seed)
            if isinstance(expected, str) or isinstance(found, str):
                assert found == expected, (seed, language)
                continue
            assert found.digest == expected.digest, (seed, language)
            assert found.ledger == expected.ledger, (seed, language)
            is_mixed = 0 < found.ledger["legs"]["local"] < found.ledger["dispatched"]
            seen[f"{decider.kind} in {language}, mixed"] += is_mixed
    for kind in ("uncached_tokens", "conditional"):
        for language in ("python", "c"):
            assert seen[f"{kind} in {language}, mixed"] >= often(10), seen


# ---- what a decider sees -------------------------------------------------------------------------


NAMES = policies.legs_dtype().names or ()
IS_LOCAL = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_double,
    ctypes.POINTER(ctypes.c_double),
)
REQUEST = ("id", "input_tokens", "tenant", "priority", "arrival_s", "max_tokens")


def looking(seen: list[Any], answer: Callable[[Any], bool]) -> dict[str, Any]:
    """Deciders in Python and in C that note what they see, and answer by the request's id."""

    class Looking:
        def is_local(self, request: policies.Request, legs: policies.Legs) -> bool:
            numbers = [getattr(legs, name) for name in NAMES]
            known = [-1 if number is None else number for number in numbers]
            seen.append(([getattr(request, key) for key in REQUEST], known, legs.now_s))
            return answer(request.id)

    def look(request: int, legs: int, now_s: float, _state: Any) -> int:
        records = []
        for at, dtype in ((request, policies.request_dtype()), (legs, policies.legs_dtype())):
            records.append(np.frombuffer(ctypes.string_at(at, dtype.itemsize), dtype)[0])
        one, both = records
        seen.append(([one[key].item() for key in REQUEST], list(both.item()), now_s))
        return int(answer(one["id"].item()))

    in_c = policies.compiled_decider(IS_LOCAL(look), name="looking", version="1")
    return {"python": Looking, "c": in_c}


def test_a_function_in_c_sees_what_a_class_in_python_sees() -> None:
    total = 0
    for seed in range(20):
        rng = random.Random(seed)
        simulation = random_pools(rng, router.AlwaysRemote())
        runs: list[list[Any]] = []
        for language in ("python", "c"):
            runs.append([])
            decider = looking(runs[-1], lambda number: number % 3 == 0)[language]
            outcome_of(simulation.with_({"disaggregation.decider": decider}), seed)
        assert runs[0] == runs[1]
        total += len(runs[0])
    assert total > 100


SHARED = trace(
    arrival_s=[0.0, 0.0005, 0.001, 1.0],
    input_tokens=[16, 16, 12, 20],
    output_tokens=[50, 50, 50, 2],
    prefix_group=["system"] * 4,
    prefix_tokens=[8] * 4,
)


@pytest.mark.parametrize("language", ["python", "c"])
@pytest.mark.parametrize("order", ["prefill_first", "decode_first"])
def test_loads_are_those_in_flight(order: str, language: str) -> None:
    """By hand: 4 tokens per block; a prompt takes milliseconds, and each answer until 0.1 s."""
    seen: list[Any] = []
    decider = looking(seen, lambda number: number == 2)[language]
    latency = LATENCY.replace(beta_prefill_us=1000, beta_decode_us=1000)
    room = {"latency": latency, "num_kv_blocks": 1000}
    simulation = Simulation(
        workload=SHARED,
        instances=[group("prefill", **room), group("decode", max_num_batched_tokens=32, **room)],
        disaggregation=router.Disaggregation(
            order=order, link=router.KvLink(bandwidth_gb_per_s=None, base_latency_s=0)
        ),
        prefix_index={"block_size_tokens": 4},
    )
    simulate(simulation.with_({"disaggregation.decider": decider}))
    rows = [dict(zip(NAMES, numbers, strict=True)) for _, numbers, _ in seen]
    assert [now_s for *_, now_s in seen] == [0.0, 0.0005, 0.001, 1.0]
    assert {(row["decode_instance"], row["prefill_instance"]) for row in rows} == {(1, 0)}
    limits = ("prefill_max_num_batched_tokens", "decode_max_num_batched_tokens")
    assert {tuple(row[name] for name in limits) for row in rows} == {(64, 32)}
    assert {(row["prefill_num_kv_blocks"], row["decode_num_kv_blocks"]) for row in rows} == {
        (1000, 1000)
    }
    assert [row["prompt_tokens"] for row in rows] == [16, 16, 12, 20]
    assert [row["prompt_blocks"] for row in rows] == [4, 4, 3, 5]
    # The first two are computed by the prefill instance, the second without the shared 8 tokens.
    assert [row["prefill_cached_tokens"] for row in rows] == [0, 8, 8, 8]
    assert [row["prefill_pending_tokens"] for row in rows] == [0, 16, 24, 0]
    is_booked = order == "decode_first"  # at dispatch, or when the prompt has been computed
    assert [row["decode_blocks_in_flight"] for row in rows] == (
        [0, 4, 8, 0] if is_booked else [0] * 4
    )
    assert [row["decode_cached_tokens"] for row in rows] == (
        [0, 8, 8, 8] if is_booked else [0, 0, 0, 8]
    )
    for name in ("decode_pending_tokens", "prefill_blocks_in_flight"):
        assert {row[name] for row in rows} == {0}


def test_a_mixed_instance_has_loads_of_both_pools() -> None:
    seen: list[Any] = []
    decider = looking(seen, lambda _: False)["python"]
    latency = LATENCY.replace(beta_prefill_us=1000)
    room = {"latency": latency, "num_kv_blocks": 1000}
    simulation = Simulation(
        workload=SHARED,
        instances=[group("both", **room), group("decode", **room)],
        router=router.RoundRobin(),
        disaggregation=router.Disaggregation(order="decode_first"),
        prefix_index={"block_size_tokens": 4},
    )
    simulate(simulation.with_({"disaggregation.decider": decider}))
    rows = [dict(zip(NAMES, numbers, strict=True)) for _, numbers, _ in seen]
    # In turns; where both choose the same instance, the request is served wholly.
    assert [row["decode_instance"] for row in rows[:3]] == [0, 1, 0]
    assert {row["prefill_instance"] for row in rows} == {0}
    assert [row["prefill_blocks_in_flight"] for row in rows[:3]] == [0, 4, 4]
    # The router of the prefill pool has sent it no prompt before the second one.
    assert [row["decode_pending_tokens"] for row in rows[:3]] == [0, 0, 16]


def test_a_pool_without_an_instance_has_none() -> None:
    """Its router would choose none."""
    seen: list[Any] = []
    decider = looking(seen, lambda _: False)
    full = router.Thresholds(max_in_flight=1, if_none="reject")
    slow = group("prefill", latency=LATENCY.replace(beta_prefill_us=1000))
    simulation = pools(workload=SHARED, instances=[slow, group("decode")]).replace(
        router=router.Weighted(filters=[full], scorers=["queue_depth"])
    )
    for copy in decider.values():
        simulate(simulation.with_({"disaggregation.decider": copy}))
    chosen = [(row[NAMES.index("prefill_instance")], row) for _, row, _ in seen]
    assert {number for number, _ in chosen} == {0, -1}
    at = NAMES.index("prefill_instance")
    assert all(not any(row[at + 1 :]) for number, row in chosen if number < 0)
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def pools(**settings: Any) -> Simulation:
    room = {"num_kv_blocks": 1000}
    defaults: dict[str, Any] = {
        "instances": [group("prefill", **room), group("decode", count=2, **room)],
        "workload": {
            "kind": "synthetic",
            "requests_per_s": 500,
            "num_requests": 100,
            "clients": [{"input_tokens": {"kind": "uniform", "min_tokens": 1, "max_tokens": 40}}],
        },
    }
    return Simulation(**(defaults | settings))


def test_each_replica_of_the_gateway_has_its_own() -> None:
    """Of two replicas, each sends every second of its requests away, from the first one on."""
    in_c = policies.compiled_decider(library().in_turns, name="turns", version="1", state=[0])
    for decider in (InTurns, in_c):
        simulation = pools().with_({"gateway.replicas": 2, "disaggregation.decider": decider})
        result = simulate(simulation, 3)
        local = result.requests["prefill_instance"] < 0
        for replica in (0, 1):
            assert local[replica::2].tolist() == [i % 2 == 0 for i in range(50)]
        (runs,) = run_many([simulation], [3, 4], threads=2, keep_requests=True)
        assert [run.digest for run in runs] == [result.digest, simulate(simulation, 4).digest]


# ---- settings ------------------------------------------------------------------------------------


def with_decider(decider: Any, **more: Any) -> Simulation:
    return pools().with_({"disaggregation.decider": decider, **more})


IN_C = IS_LOCAL(lambda *_: 1)


def test_it_passes_all_checks() -> None:
    testing.check_policy(UncachedTokens)
    testing.check_policy(Conditional)
    for decider in (
        router.UncachedTokens(min_uncached_tokens=400),
        router.Conditional(prefill_busy_threshold=1, rule="isl_or_load"),
    ):
        testing.check_policy(copies_of(decider)["c"])


def test_it_is_described_stored_and_loaded() -> None:
    simulation = with_decider(functools.partial(UncachedTokens, min_uncached_tokens=9))
    decider = simulation.to_dict()["disaggregation"]["decider"]
    assert decider["kind"] == "python"
    assert decider["policy"] == f"{__name__}:UncachedTokens"
    assert decider["parameters"] == '{"min_uncached_tokens": 9}'
    expected = simulate(simulation, 1)
    assert 0 < expected.ledger["legs"]["local"] < 100
    path = "disaggregation.decider.parameters.min_uncached_tokens"
    assert simulate(simulation.with_({path: 0}), 1).ledger["legs"]["local"] == 100
    stored = Simulation.from_dict(simulation.to_dict())
    assert stored == simulation
    with pytest.raises(ConfigError, match=r"disaggregation\.decider\.policy.*imported first"):
        simulate(Simulation.from_dict(with_decider(made(True)).to_dict()), 1)
    for copy in (policies.load(stored), pickle.loads(pickle.dumps(simulation))):
        assert simulate(copy, 1).digest == expected.digest


def test_functions_do_not_travel() -> None:
    simulation = with_decider(policies.compiled_decider(IN_C, name="mine", version="1"))
    kind = {"kind": "compiled", "name": "mine", "version": "1", "state": []}
    assert simulation.to_dict()["disaggregation"]["decider"] == kind
    assert simulate(simulation).ledger["legs"]["local"] == 100
    for copy in (
        pickle.loads(pickle.dumps(simulation)),
        Simulation.from_dict(simulation.to_dict()),
    ):
        assert copy == simulation
        with pytest.raises(
            ConfigError, match=r"disaggregation\.decider\.functions.* 'mine': must be given again"
        ):
            simulate(copy)


def test_it_needs_pools_of_whole_instances() -> None:
    for kind, decider in (
        ("python", UncachedTokens),
        ("compiled", policies.compiled_decider(IN_C, name="n", version="1")),
    ):
        message = rf"data_parallel_size = 2: must be 1 with the decider {kind}"
        with pytest.raises(ConfigError, match=message):
            with_decider(decider, **{"instances[1].data_parallel_size": 2})


@pytest.mark.parametrize("target", ["llm-d", "dynamo"])
@pytest.mark.parametrize("language", ["python", "c"])
def test_exports_say_that_it_is_lost(target: str, language: str) -> None:
    in_c = policies.compiled_decider(IN_C, name="n", version="1")
    simulation = with_decider(UncachedTokens if language == "python" else in_c)
    exported = export(simulation, to=target)
    (loss,) = (each for each in exported.losses if each.path == "disaggregation.decider")
    assert "always" in str(loss)
    assert exported.deployed.disaggregation.decider.kind in ("always", "never")


# ---- errors --------------------------------------------------------------------------------------


def made(answer: Any) -> Any:
    """A decider that returns this, or raises it."""

    class Made:
        def is_local(self, request: policies.Request, legs: policies.Legs) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    return Made


@pytest.mark.parametrize(
    ("decider", "message"),
    [
        (made(None), r"is_local returned None for request 0 at .* s: must be True or False"),
        (made(1), r"is_local returned 1 for request 0 at .* s: must be True or False"),
        (made("yes"), r"is_local returned 'yes' for request 0 at .* s: must be True or False"),
        (made(ZeroDivisionError()), r"is_local raised ZeroDivisionError for request 0 at .* s"),
        (type("Bad", (), {"is_local": 3}), r"Bad.is_local raised TypeError for request 0"),
        (
            type("Bad", (), {"is_local": made(True).is_local, "__init__": lambda _: 1 / 0}),
            r"Bad cannot be made",
        ),
    ],
)
def test_a_wrong_answer_ends_the_run(decider: Any, message: str) -> None:
    with pytest.raises(policies.PolicyError, match=message):
        simulate(with_decider(decider))


def test_what_is_no_decider_is_refused() -> None:
    other = type("Other", (), {"pick": lambda *_: 0})
    with pytest.raises(policies.PolicyError, match="Other must have a method is_local"):
        simulate(with_decider(other))
    with pytest.raises(ConfigError, match=r"exactly one of the methods .*is_local"):
        policies.settings(type("Empty", (), {}))
    with pytest.raises(ConfigError, match=r"disaggregation\.decider"):
        with_decider(InTurns())


def test_flags_of_numpy_are_answers() -> None:
    assert simulate(with_decider(made(np.True_))).ledger["legs"]["local"] == 100


def test_legs_are_valid_during_a_call_only() -> None:
    kept: list[policies.Legs] = []

    class Keeping:
        def is_local(self, request: policies.Request, legs: policies.Legs) -> bool:
            kept.append(legs)
            return True

    simulate(with_decider(Keeping))
    with pytest.raises(UsageError, match="valid only during the call"):
        kept[0].prompt_tokens  # noqa: B018


@pytest.mark.parametrize("answer", [2, -1, 100])
def test_a_wrong_number_ends_the_run(answer: int) -> None:
    mine = policies.compiled_decider(IS_LOCAL(lambda *_: answer), name="mine", version="1")
    message = (
        rf"'mine' returned {answer} for request 0 at .* s: must be 1 \(local\) or 0 \(remote\)"
    )
    with pytest.raises(UsageError, match=message):
        simulate(with_decider(mine))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"is_local": 0}, "is_local = 0: must be a C function"),
        ({"is_local": lambda *_: 1}, "is_local = .*: must be a C function: an address, or one of"),
        (
            {"is_local": ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)},
            "is_local = a function of 1 arguments: must take 4",
        ),
        ({"name": ""}, "name = '': must be a text"),
        ({"abi": 2}, "abi = 2: must be 1"),
        ({"state": [np.nan]}, r"state\[0\]"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        policies.compiled_decider(**{"is_local": IN_C, "name": "n", "version": "1", **wrong})
