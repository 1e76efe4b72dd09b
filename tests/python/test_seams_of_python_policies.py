"""Limits, usage limits, filters, pickers and schedulers that are written in Python."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest

from spillway import ConfigError, Simulation, gateway, instance, policies, router, simulate, testing

LATENCY = instance.Linear(beta0_us=7000, beta_prefill_us=17, beta_decode_us=3)
LENGTHS = {"kind": "uniform", "min_tokens": 100, "max_tokens": 2000}
LOADED = Simulation(
    tenants=[{"name": "gold", "weight": 3}, {"name": "free"}],
    slo_classes=[
        {"name": "critical", "priority": 10},
        {"name": "standard"},
        {"name": "sheddable", "priority": -10},
    ],
    instances=[{"count": 3, "max_num_seqs": 8, "num_kv_blocks": 2000, "latency": LATENCY}],
    workload={
        "kind": "synthetic",
        "requests_per_s": 60,
        "num_requests": 400,
        "clients": [
            {"name": "a", "tenant": "gold", "slo_class": "critical", "input_tokens": LENGTHS},
            {"name": "b", "tenant": "free", "slo_class": "sheddable", "input_tokens": LENGTHS},
        ],
    },
)


class AtMost(policies.Limit):
    def __init__(self, most: int = 12) -> None:
        self.most = most
        self.in_flight = 0

    def may_start(self, request: policies.Request, view: policies.View) -> bool:
        return self.in_flight < self.most

    def started(self, request: policies.Request) -> None:
        self.in_flight += 1

    def ended(self, request: policies.Request) -> None:
        self.in_flight -= 1


class TokenBudget(AtMost):
    """As `gateway.TokenBudget` does."""

    def __init__(self, most: int = 4000) -> None:
        super().__init__(most)

    def may_start(self, request: policies.Request, view: policies.View) -> bool:
        return self.in_flight == 0 or (
            self.in_flight < self.most and self.in_flight + request.input_tokens <= self.most
        )

    def started(self, request: policies.Request) -> None:
        self.in_flight += request.input_tokens

    def ended(self, request: policies.Request) -> None:
        self.in_flight -= request.input_tokens


class BatchHasRoom(policies.Limit):
    """Follows the metrics of the instances."""

    def may_start(self, request: policies.Request, view: policies.View) -> bool:
        return bool((view.waiting == 0).any())


class Running(policies.Limit):
    """Has a saturation."""

    def may_start(self, request: policies.Request, view: policies.View) -> bool:
        return True

    def saturation(self, view: policies.View) -> float:
        return float((view.waiting + view.running).mean() / 8)


class Reflective(policies.UsageLimit):
    """The lower half of the bands waits from a saturation of one half."""

    def ceilings(self, saturation: float, priorities: tuple[int, ...]) -> list[float]:
        return [1.0 if priority > 0 else 0.5 for priority in priorities]


class NotFull(policies.Filter):
    """As `router.UtilizationFilter` does."""

    def keep(self, request: policies.Request, view: policies.View) -> Any:
        return (view.waiting < 5) & (view.kv_utilization < 0.8)


class Highest(policies.Picker):
    def choose(self, scores: Any, rng: Any) -> int:
        return int(scores.argmax())


class TwoChoices(policies.Picker):
    """The better of two that may be the same."""

    def choose(self, scores: Any, rng: Any) -> int:
        one, other = rng.below(len(scores)), rng.below(len(scores))
        return int(one if scores[one] >= scores[other] else other)


class Shortest(policies.Scheduler):
    def rank(self, request: policies.Request) -> int:
        return request.input_tokens


class GoldFirst(policies.Scheduler):
    def rank(self, request: policies.Request) -> int:
        return 0 if request.tenant == "gold" else 1


BANDS = [{"priority": 1, "ceiling": 1.0}, {"priority": -1000, "ceiling": 0.5}]
SATURATION: dict[str, Any] = {"gateway.bands": BANDS, "gateway.limit": [{"kind": "saturation"}]}
ALL = [AtMost, BatchHasRoom, Running, Reflective, NotFull, Highest, TwoChoices, Shortest]


def weighted(**parts: Any) -> Simulation:
    return LOADED.replace(
        router=router.Weighted(scorers=["queue_depth", "kv_utilization"], **parts)
    )


def bound(policy: Any, **parameters: Any) -> Any:
    return functools.partial(policy, **parameters)


@pytest.mark.parametrize(
    ("around", "path", "compiled", "written"),
    [
        (LOADED, "gateway.limit", gateway.FixedLimit(max_in_flight=12), AtMost),
        (LOADED, "gateway.limit", gateway.TokenBudget(max_tokens_in_flight=4000), TokenBudget),
        (
            LOADED.with_({"gateway.bands[0].fairness": "deficit_round_robin"}),
            "gateway.limit",
            gateway.FixedLimit(max_in_flight=7),
            bound(AtMost, most=7),
        ),
        (LOADED.with_(SATURATION), "gateway.usage_limit", gateway.StaticCeilings(), Reflective),
        (weighted(picker="random"), "router.filters", router.UtilizationFilter(), NotFull),
        (weighted(), "router.picker", router.Best(), Highest),
        (LOADED, "instances[0].scheduler", instance.Sjf(), Shortest),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_it_decides_like_the_compiled_one(
    around: Simulation, path: str, compiled: Any, written: Any
) -> None:
    is_list = path.endswith(("limit", "filters")) and "usage" not in path
    one, other = (
        simulate(around.with_({path: [each] if is_list else each}), 1)
        for each in (compiled, written)
    )
    assert one.outcome_digest == other.outcome_digest
    if path != "router.picker":  # the default is the compiled one
        unlike = {"gateway.usage_limit": {"gateway.bands": BANDS}}.get(path, {})
        plain = (LOADED if unlike or "limit" in path else around).with_(unlike)
        assert one.outcome_digest != simulate(plain, 1).outcome_digest


def test_a_limit_may_follow_the_instances() -> None:
    result = simulate(LOADED.with_({"gateway.limit": [BatchHasRoom]}), 1)
    free = simulate(LOADED, 1)
    assert result.ledger["completed"] == free.ledger["completed"] == 400
    assert np.nanmax(result.requests["queue_s"]) > 0 == np.nanmax(free.requests["queue_s"])


def test_a_limit_may_have_a_saturation() -> None:
    built = testing.build(Running, simulation=LOADED)
    half = [testing.InstanceSignals(running=4)] * 3
    decision = built.decide(
        testing.Request(input_tokens=10, tenant="gold"), instances=half, ceiling=0.5
    )
    assert (decision.is_open, decision.may_start, decision.saturation) == (False, False, 0.5)
    assert built.decide(testing.Request(input_tokens=10, tenant="gold"), ceiling=0.6).may_start
    result = simulate(LOADED.with_({"gateway.limit": [Running], "gateway.bands": BANDS}), 1)
    waits = {
        name: np.nanmean(result.requests["queue_s"][result.requests["tenant"] == name])
        for name in ("gold", "free")
    }
    assert waits["gold"] < waits["free"]


def test_a_usage_limit_gets_saturation_and_priorities() -> None:
    seen = []

    class Looking:
        def ceilings(self, saturation: float, priorities: tuple[int, ...]) -> Any:
            seen.append((saturation, priorities))
            return np.array([0.75, 0.25])

    around = LOADED.with_({"gateway.bands": BANDS[::-1]})
    assert testing.build(Looking, simulation=around).decide(0.5) == (0.75, 0.25)
    assert seen == [(0.5, (1, -1000))]


def test_filters_follow_each_other() -> None:
    class First:
        def keep(self, request: policies.Request, view: policies.View) -> list[bool]:
            return [True, True, False]

    class Odd:
        def keep(self, request: policies.Request, view: policies.View) -> Any:
            return view.instances % 2 == 1

    class NoneOfThem:
        def keep(self, request: policies.Request, view: policies.View) -> Any:
            return np.zeros(len(view), bool)

    around = weighted(filters=[First, Odd, NoneOfThem])
    assert set(simulate(around, 1).requests["instance"]) == {1}


def test_draws_of_a_picker_are_those_of_its_decision() -> None:
    class Uniform:
        def choose(self, scores: Any, rng: Any) -> int:
            drawn: int = rng.below(len(scores))
            return drawn

    one, other = (simulate(weighted(picker=each), 3) for each in (router.Random(), Uniform))
    assert one.outcome_digest == other.outcome_digest
    assert simulate(weighted(picker=Uniform), 4).outcome_digest != other.outcome_digest


def test_a_scheduler_knows_tenants_by_name_and_is_asked_once() -> None:
    asked: list[int] = []

    class Counting(GoldFirst):
        def rank(self, request: policies.Request) -> int:
            asked.append(request.id)
            return super().rank(request)

    chosen = LOADED.with_({"instances[0].scheduler": Counting})
    result = simulate(chosen, 1)
    assert sorted(asked) == list(range(400))
    ttft_s, tenant = result.requests["ttft_s"], result.requests["tenant"]
    assert ttft_s[tenant == "gold"].mean() < ttft_s[tenant == "free"].mean()
    assert simulate(chosen, 1, reference=True).digest == result.digest


@pytest.mark.parametrize("policy", ALL, ids=lambda cls: cls.__name__)
def test_it_passes_all_checks(policy: Any) -> None:
    testing.check_policy(policy)


@pytest.mark.slow
def test_it_is_stored_and_loaded_wherever_it_stands() -> None:
    group = {"num_kv_blocks": 2000, "latency": LATENCY}
    chosen = LOADED.replace(
        gateway=gateway.Gateway(
            limit=["unlimited", AtMost, bound(TokenBudget, most=3000)], usage_limit=Reflective
        ),
        router=router.Weighted(filters=[NotFull], scorers=["queue_depth"], picker=TwoChoices),
        instances=[group, {**group, "scheduler": GoldFirst}],
    )
    stored = Simulation.from_dict(chosen.to_dict())
    assert stored == chosen
    loaded = policies.load(stored)
    assert simulate(loaded, 1).digest == simulate(chosen, 1).digest


def made(method: str, answer: Any) -> Any:
    """A policy whose method returns this, or raises it."""

    def call(*_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return type("Made", (), {method: call})


@pytest.mark.parametrize(
    ("path", "policy", "message"),
    [
        ("gateway.limit", made("may_start", 1), "for request 0 at .* s: must be True or False"),
        ("gateway.limit", made("may_start", ZeroDivisionError()), "may_start raised Zero.* at "),
        (
            "gateway.limit",
            type("Made", (Running,), {"saturation": lambda *_: -1.0}),
            "saturation returned -1.0 at .* s: must be a finite number >= 0",
        ),
        (
            "gateway.limit",
            type("Made", (AtMost,), {"ended": lambda *_: 1 / 0}),
            r"ended raised ZeroDivisionError for request \d+$",
        ),
        ("gateway.usage_limit", made("ceilings", [1.0]), "an array of 2 numbers, one per band"),
        ("gateway.usage_limit", made("ceilings", [1, np.nan]), "none of them NaN"),
        ("router.filters", made("keep", [True]), "an array of 3 bools, one per candidate"),
        ("router.filters", made("keep", [1, 0, 1]), "an array of 3 bools, one per candidate"),
        ("router.filters", made("keep", None), "an array of 3 bools, one per candidate"),
        ("router.picker", made("choose", 3), "position of a candidate, >= 0 and < 3"),
        ("router.picker", made("choose", ValueError()), "choose raised ValueError"),
        ("instances[0].scheduler", made("rank", 0.5), r"for request \d+: must be a whole number"),
        ("instances[0].scheduler", made("rank", 2**63), "a whole number of at most 64 bits"),
        ("instances[0].scheduler", type("Made", (), {}), "must have a method rank"),
    ],
)
def test_a_wrong_answer_ends_the_run(path: str, policy: Any, message: str) -> None:
    is_list = path in ("gateway.limit", "router.filters")
    around = weighted() if path.startswith("router") else LOADED.with_(SATURATION)
    chosen = around.with_({path: [policy] if is_list else policy})
    with pytest.raises(policies.PolicyError) as raised:
        simulate(chosen, 1)
    assert re.search(message, str(raised.value)), raised.value


class Movable(AtMost):
    """As `gateway.FixedLimit` does."""

    def setting(self) -> float:
        return self.most

    def resize(self, setting: float) -> None:
        self.most = int(np.floor(setting + 0.5))


@pytest.mark.parametrize("controller", ["mimd", "aimd"])
def test_a_controller_moves_a_limit_that_has_a_setting(controller: str) -> None:
    moved = {"gateway.controller": {"kind": controller, "target_s": 0.3}}
    compiled = gateway.FixedLimit(max_in_flight=12)
    one, other = (
        simulate(LOADED.with_({"gateway.limit": [each], **moved}), 1)
        for each in (compiled, Movable)
    )
    assert one.outcome_digest == other.outcome_digest
    plain = simulate(LOADED.with_({"gateway.limit": [compiled]}), 1)
    assert one.outcome_digest != plain.outcome_digest


def test_a_controller_needs_a_limit_to_move() -> None:
    moved = {"gateway.controller": "aimd"}
    with pytest.raises(ConfigError, match="'aimd': requires a limit that can be moved"):
        simulate(LOADED.with_({"gateway.limit": [AtMost], **moved}))
    both = {"gateway.limit": [AtMost, {"kind": "fixed", "max_in_flight": 50}], **moved}
    assert simulate(LOADED.with_(both), 1).ledger["completed"] == 400
