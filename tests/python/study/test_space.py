"""Spaces: the source of ranges, the meaning of points, and invalid spaces."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import examples
from support.study_problems import overloaded

from spillway import ConfigError, Space, gateway, instance, presets, router
from spillway.config.profiles import BLIS_SERVER
from spillway.study import Choice, Kinds, Range
from spillway.study.feasibility import caveats, offered_per_s
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

ORDER = "gateway.guard.floor <= gateway.limit[0].cap_per_worker <= gateway.guard.ceiling"
CAPS = {
    "gateway.guard.floor": (1, 64),
    "gateway.limit[0].cap_per_worker": (1, 256),
    "gateway.guard.ceiling": (32, 512),
}


def budgeted() -> Any:
    return vllm_on_eks.post5().apply(presets.get("noisy-neighbor").apply())


def asked(space: Any, number: int = 1) -> list[dict[str, Any]]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3))
    return [space.ordered(space.ask(study.ask())) for _ in range(number)]


@pytest.mark.parametrize(
    ("path", "dimension", "expected"),
    [
        ("gateway.controller.band", "auto", ("float", 0, 0.5, False)),
        ("gateway.controller.target_s", "auto", ("float", 0.1, 10, True)),
        ("gateway.guard.cooldown_ticks", "auto", ("int", 0, 10, False)),
        ("gateway.limit[0].cap_per_worker", "auto", ("int", 1, 1024, True)),
        ("gateway.limit[worker_budget].cap_per_worker", (4, 8), ("int", 4, 8, True)),
        ("gateway.limit.cap_per_worker", {"low": 4, "high": 8, "log": False}, ("int", 4, 8, False)),
        ("tenants[B].weight", Range(0.5, 2, log=True), ("float", 0.5, 2, True)),
        ("gateway.bands[0].queue.timeout_s", (0, 5), ("float", 0, 5, False)),
    ],
)
def test_ranges(path: str, dimension: Any, expected: tuple[str, float, float, bool]) -> None:
    (parameter,) = Space({path: dimension}).bind(budgeted())
    assert (parameter.kind, parameter.low, parameter.high, parameter.log) == expected
    for share in (0, 0.3, 1):
        assert parameter.has(parameter.at(share))
    assert (parameter.at(0), parameter.at(1)) == expected[1:3]


def test_point_is_what_with_would_make_of_it() -> None:
    space = Space(
        {
            "gateway.controller.band": "auto",
            "router": ["round_robin", router.LeastLoaded()],
            "tenants[A].queue_max": [None, 4, 16],
            "gateway.guard.demand_gate": "auto",
            "gateway.sensor.source": "auto",
        }
    ).bind(budgeted())
    for point in asked(space, 20):
        made = space.apply(point)
        assert made.gateway.controller.band == point["gateway.controller.band"]
        assert made.router.kind == point["router"]
        assert made.tenants[0].queue_max == point["tenants[A].queue_max"]
        assert made.gateway.guard.demand_gate is point["gateway.guard.demand_gate"]
        assert made.gateway.sensor.source == point["gateway.sensor.source"]
    assert space.current() == {
        "gateway.controller.band": 0.2,
        "router": "round_robin",
        "gateway.guard.demand_gate": True,
        "gateway.sensor.source": "ttft",
    }
    assert space.outside() == {"tenants[A].queue_max": 2}


def test_current_point_gives_the_same_simulation() -> None:
    base = budgeted()
    space = Space({**CAPS, "gateway.controller": Kinds({"aimd": {"band": "auto"}})}).bind(base)
    assert space.apply(space.current()) == base


# --- conditional ----------------------------------------------------------------------------------


def test_kind_of_policy_opens_its_own_parameters() -> None:
    base = budgeted().with_({"gateway.controller.increase_step": 3})
    kinds = Kinds(
        {
            "aimd": {"band": "auto", "decrease": Choice(["factor", "step"])},
            "pid": {"kp": (0, 1), "target_s": 1.5},
            "static": {},
        }
    )
    space = Space({"gateway.controller": kinds, "gateway.guard.floor": (1, 8)}).bind(base)
    assert space.is_conditional
    seen = set()
    for point in asked(space, 40):
        kind = point["gateway.controller"]
        seen.add(kind)
        opened = {name for name in point if name.startswith("gateway.controller[")}
        controller = space.apply(point).gateway.controller
        assert controller.kind == kind
        if kind == "aimd":
            assert isinstance(controller, gateway.Aimd)
            assert opened == {"gateway.controller[aimd].band", "gateway.controller[aimd].decrease"}
            assert controller.band == point["gateway.controller[aimd].band"]
            assert controller.increase_step == 3  # what is not varied stays
        elif kind == "pid":
            assert isinstance(controller, gateway.Pid)
            assert opened == {"gateway.controller[pid].kp"}
            assert controller.target_s == 1.5  # fixed by the space
        else:
            assert opened == set()
    assert seen == {"aimd", "pid", "static"}


def test_kinds_of_a_chain_of_one() -> None:
    space = Space({"gateway.limit": {"kinds": {"fixed": {"max_in_flight": "auto"}}}})
    bound = space.bind(overloaded())
    assert bound.current()["gateway.limit[fixed].max_in_flight"] == 32
    made = bound.apply({"gateway.limit": "fixed", "gateway.limit[fixed].max_in_flight": 7})
    assert made.gateway.limit == (gateway.FixedLimit(max_in_flight=7),)


# --- order ----------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3))
@examples(100)
def test_order_is_kept_and_costs_no_point(shares: list[float]) -> None:
    bound = Space(CAPS, ORDER).bind(budgeted())
    places = zip(bound, shares, strict=True)
    free = {parameter.name: parameter.at(share) for parameter, share in places}
    point = bound.ordered(free)
    values = [point[name] for name in CAPS]
    assert values == sorted(values)
    for parameter in bound:
        assert parameter.has(point[parameter.name])
    if list(free.values()) == sorted(free.values()):
        assert point == free
    bound.apply(point)


def test_order_with_a_path_that_is_not_searched_narrows_the_range() -> None:
    base = budgeted()  # cap_per_worker is 64
    bound = Space({"gateway.guard.floor": (1, 100), "gateway.guard.ceiling": (2, 512)}, ORDER)
    floor, ceiling = bound.bind(base)
    assert (floor.low, floor.high) == (1, 64)
    assert (ceiling.low, ceiling.high) == (64, 512)


# --- paths ----------------------------------------------------------------------------------------


def test_entry_of_a_tenant_and_preset_are_paths() -> None:
    policy = gateway.TenantTokenBucket(own=[gateway.TenantRate(tenant="A")])
    base = budgeted().with_({"gateway.admission": policy, "instances": [BLIS_SERVER]})
    own = "gateway.admission[0].own[A].refill_tokens_per_s"
    names = list(instance.Linear.presets())[:3]
    preset = "instances[0].latency.preset"
    bound = Space({own: (1, 1e6), preset: names}).bind(base)
    assert bound.current() == {own: policy.own[0].refill_tokens_per_s, preset: names[0]}
    applied = bound.apply({own: 4, preset: names[2]})
    assert applied.gateway.admission[0].own[0].refill_tokens_per_s == 4
    assert applied.instances[0].latency == instance.Linear.preset(names[2])
    every = Space({preset: "auto"}).bind(base.with_({"instances[0].latency.beta0_us": 1.5}))
    assert [parameter.labels for parameter in every] == [tuple(instance.Linear.presets())]
    assert every.outside() == {preset: None}


# --- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "order", "message"),
    [
        ({}, None, "at least one path"),
        ({"gateway.controler.band": "auto"}, None, "unknown setting 'controler'"),
        ({"gateway.controller.kp": "auto"}, None, "unknown setting 'kp'; one of target_s"),
        ({"tenants[Z].weight": "auto"}, None, r"no such setting .* '\[Z\]'; one of \[A\], \[B\]"),
        ({"tenants.weight": "auto"}, None, "must select one of the 3 entries"),
        ({"gateway.sensor.tick_drift_s": "auto"}, None, "no default search range"),
        ({"gateway.guard.floor": "some"}, None, "must be auto, two numbers"),
        ({"gateway.guard.floor": (5, 5)}, None, "low must be less than high"),
        ({"gateway.guard.floor": Range(0, 5, log=True)}, None, "low must be > 0 on a log scale"),
        ({"gateway.guard.cooldown_ticks": (0, 1.5)}, None, "must be whole numbers"),
        ({"gateway.controller": (1, 2)}, None, "not a number; give it choices, or kinds"),
        ({"gateway.controller": Kinds({"pidd": {}})}, None, "unknown kind; one of static"),
        ({"gateway.guard.floor": Kinds({"a": {}})}, None, "has no kinds"),
        (CAPS, "gateway.guard.floor", "must be paths with <= between"),
        (CAPS, "gateway.guard.floor <= router", "not a number"),
        (
            {"gateway.guard.floor": (100, 200), "gateway.guard.ceiling": (10, 20)},
            "gateway.guard.floor <= gateway.guard.ceiling",
            "always exceeds",
        ),
    ],
)
def test_what_a_space_cannot_be(space: Any, order: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Space(space, order).bind(budgeted())


def test_written_space_reads_back() -> None:
    space = Space(
        {
            **CAPS,
            "gateway.controller": Kinds({"aimd": {"band": "auto"}, "pid": {"kp": Range(0, 1)}}),
            "router": Choice(["round_robin", "least_loaded"]),
            "gateway.sensor.window_s": Range(1, 60, log=True),
        },
        ORDER,
    )
    again = Space(space.to_dict(), space.order_lines())
    base = budgeted()
    assert again.to_dict() == space.to_dict()
    assert again.bind(base).parameters == space.bind(base).parameters


# --- caveats --------------------------------------------------------------------------------------


SOUND = {
    "gateway.sensor.window_s": 20,
    "gateway.sensor.tick_drift_s": 0,
    "gateway.guard.cooldown_ticks": 4,
}


def test_sound_configuration_has_no_caveats() -> None:
    assert caveats(budgeted().with_(SOUND)) == ()
    assert caveats(overloaded(gateway=gateway.Gateway())) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gateway.bands[0].queue.timeout_s": 1.7}, "reaches into the controller's band"),
        ({"gateway.bands[0].queue.timeout_s": 3}, "exceeds every target_ttft_s"),
        ({"gateway.sensor.window_s": 9}, "less than two ticks"),
        ({"gateway.sensor.min_samples": 2000}, "fewer than 2000 samples"),
        ({"gateway.guard.cooldown_ticks": 3}, "the same samples can cut the limit twice"),
        ({"gateway.guard.floor": 200}, "lets 400 requests in"),
    ],
)
def test_caveats_name_the_setting(change: dict[str, Any], message: str) -> None:
    base = budgeted().with_(SOUND).replace(instances=(vllm_on_eks.toy_plant().instances,))
    assert caveats(base) == ()
    texts = caveats(base.with_(change))
    assert any(message in text for text in texts)
    assert all(next(iter(change)) in text or "window_s" in text for text in texts)


def test_offered_rate_is_that_of_all_clients() -> None:
    assert offered_per_s(budgeted()) == 38
    assert offered_per_s(overloaded()) == 12
