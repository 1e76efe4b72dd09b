"""Paths change one setting of a simulation."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from support.settings import RICH, at

from spillway import ConfigError, Simulation, gateway, instance, router, workload
from spillway.config.profiles import BLIS_SERVER


@pytest.mark.parametrize(
    ("path", "value", "changed"),
    [
        ("tenants[gold].weight", 7, "tenants[0].weight"),
        ("tenants[1].weight", 0.5, "tenants[1].weight"),
        ("slo_classes[critical].target_ttft_s", None, "slo_classes[0].target_ttft_s"),
        (
            "gateway.admission[token_bucket].capacity_tokens",
            5000,
            "gateway.admission[0].capacity_tokens",
        ),
        ("gateway.admission[0].refill_tokens_per_s", 1, "gateway.admission[0].refill_tokens_per_s"),
        ("workload.clients[crawl].arrivals.cv", 3, "workload.clients[1].arrivals.cv"),
        ("workload.clients[crawl].output_tokens.values[1]", 9,
         "workload.clients[1].output_tokens.values[1]"),
        ("metrics.fitness[0].weight", -1, "metrics.fitness[0].weight"),
        ("instances[1].latency.beta0_us", 12, "instances[1].latency.beta0_us"),
        ("signals.when_stale", "fail_open", "signals.when_stale"),
        ("horizon_s", None, "horizon_s"),
        ("gateway.limit.max_in_flight", np.int64(3), "gateway.limit[0].max_in_flight"),
    ],
)  # fmt: skip
def test_path_changes_one_setting(path: str, value: Any, changed: str) -> None:
    found = RICH.with_({path: value})
    expected = RICH.to_dict()
    place, _, last = changed.rpartition(".")
    if last.endswith("]"):
        last, _, index = last[:-1].partition("[")
        at(expected, f"{place}.{last}")[int(index)] = value
    else:
        (at(expected, place) if place else expected)[last] = value
    assert found.to_dict() == expected
    assert found != RICH


def test_entries_without_a_name_are_named_by_their_first_setting() -> None:
    policy = gateway.TenantTokenBucket(
        own=[gateway.TenantRate(tenant="gold"), gateway.TenantRate(tenant="silver")],
        reserves=[gateway.ClassReserve(slo_class="standard", share=0.2)],
    )
    base = Simulation(
        workload=workload.Synthetic(clients=[workload.Client(tenant="gold")]),
        tenants=[{"name": "gold"}, {"name": "silver"}],
        gateway=gateway.Gateway(admission=policy),
    )
    changed = base.with_(
        {
            "gateway.admission[0].own[silver].refill_tokens_per_s": 7,
            "gateway.admission[0].reserves[standard].share": 0.3,
            "metrics.fitness[throughput].weight": 9,
        }
    )
    assert [budget.refill_tokens_per_s for budget in changed.gateway.admission[0].own][1] == 7
    assert changed.gateway.admission[0].reserves[0].share == 0.3
    assert changed.metrics.fitness[0].weight == 9
    with pytest.raises(ConfigError, match=r"unknown entry 'chat'; one of gold, silver"):
        base.with_({"gateway.admission[0].own[chat].refill_tokens_per_s": 7})


def test_preset_is_a_path() -> None:
    name = "llama-3.1-8b-h100-tp4"
    wanted = instance.Linear.preset(name)
    base = Simulation(instances=BLIS_SERVER)
    path = "instances[0].latency"
    for changes, latency in (
        ({f"{path}.preset": name}, wanted),
        ({f"{path}.preset": name, f"{path}.beta0_us": 5}, wanted.replace(beta0_us=5)),
        ({f"{path}.beta0_us": 5, f"{path}.preset": name}, wanted.replace(beta0_us=5)),
        ({path: {"kind": "linear", "beta0_us": 5}, f"{path}.preset": name}, wanted),
    ):
        assert base.with_(changes).instances[0].latency == latency
    for changes, message in (
        ({f"{path}.preset": "gpt"}, r"latency.preset = 'gpt': unknown preset; one of llama"),
        ({f"{path}.preset": name, f"{path}.beta": 5}, r"latency.beta = 5: unknown setting"),
        ({"router.preset": name}, "router.preset = .*: unknown setting"),
        ({"slo_classes[batch].presets": name}, "unknown setting 'presets'"),
    ):
        with pytest.raises(ConfigError, match=message):
            base.with_(changes)


@pytest.mark.parametrize(
    ("path", "now", "field", "kinds", "advice"),
    [
        ("gateway.limit.max_inflight", "unlimited", "max_in_flight", "fixed, per_tenant",
         "{'gateway.limit': {'kind': 'fixed', 'max_in_flight': …}}"),
        ("gateway.limit[0].max_in_flight", "unlimited", "max_in_flight", "fixed, per_tenant",
         "{'gateway.limit[0]': {'kind': 'fixed', 'max_in_flight': …}}"),
        ("gateway.admission[always_admit].capacity_tokens", "always_admit", "capacity_tokens",
         "token_bucket", "{'kind': 'token_bucket', 'capacity_tokens': …}}"),
        ("instances[0].latency.preset", "roofline", "preset", "linear",
         "{'instances[0].latency': {'kind': 'linear', 'preset': …}}"),
    ],
)  # fmt: skip
def test_a_setting_of_another_kind_names_the_kinds_that_have_it(
    path: str, now: str, field: str, kinds: str, advice: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Simulation().with_({"warm_up_s": 1, path: 3})
    said = str(refused.value)
    assert said.startswith(f"{path}: unknown setting '{path.rpartition('.')[2]}' of {now}; ")
    assert f"{field} is one of {kinds}" in said
    assert said.endswith(advice)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gateway.limit.nothing", "unknown setting 'nothing'; one of kind"),
        ("gateway.limit[7].max_in_flight", "unknown entry '7'"),
        ("gateway.max_in_flight", "unknown setting 'max_in_flight'; one of admission"),
        ("router.scorers[0].weight", "unknown setting 'scorers'; one of kind"),
    ],
)
def test_other_unknown_settings_are_those_of_their_place(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Simulation().with_({path: 3})


def test_list_of_one_needs_no_index() -> None:
    one = Simulation(gateway=gateway.Gateway(admission="token_bucket"))
    assert one.with_({"instances.count": 3}).instances[0].count == 3
    assert one.with_({"gateway.admission.capacity_tokens": 3}).gateway.admission == (
        gateway.TokenBucket(capacity_tokens=3),
    )


@pytest.mark.parametrize(
    "noun",
    [
        router.LeastLoaded(ties="random"),
        {"kind": "least_loaded", "ties": "random"},
        "least_loaded",
        "always_busiest",
    ],
)
def test_policy_is_replaced_as_a_whole(noun: Any) -> None:
    expected = Simulation(router=noun).router
    assert RICH.with_({"router": noun}).router == expected
    assert RICH.replace(router=noun).router == expected
    changed = RICH.with_({"gateway.admission[1]": "reject_all", "gateway.limit": "unlimited"})
    assert changed.gateway.admission == (gateway.TokenBucket(), gateway.RejectAll())
    assert changed.gateway.limit == (gateway.Unlimited(),)
    whole = RICH.with_({"gateway.admission": [gateway.RejectAll(), "always_admit"]})
    assert [policy.kind for policy in whole.gateway.admission] == ["reject_all", "always_admit"]


def test_changes_apply_in_order() -> None:
    changed = RICH.with_({"router": router.AlwaysBusiest(), "warm_up_s": 2})
    assert (changed.router.kind, changed.warm_up_s) == ("always_busiest", 2.0)
    later = RICH.with_({"gateway.limit": gateway.FixedLimit(), "gateway.limit.max_in_flight": 9})
    assert later.gateway.limit[0].max_in_flight == 9


@pytest.mark.parametrize(
    ("path", "clue"),
    [
        ("gatway", "did you mean 'gateway'?"),
        ("gateway.admision", "did you mean 'admission'?"),
        ("tenants[gld].weight", "did you mean 'gold'?"),
        ("tenants[silver].weight", "gold"),
        ("gateway.admission[reject_all]", "token_bucket"),
        ("gateway.admission[token_bucket].capacity", "capacity_tokens"),
        ("instances[2].count", "'2'"),
        ("instances[-1].count", "'-1'"),
        ("tenants.weight", "'weight'"),
        ("warm_up_s.deeper", "'deeper'"),
        ("", "not a dotted path such as"),
        (".router", "not a dotted path such as"),
        ("gateway..limit", "not a dotted path such as"),
        ("instances[0", "not a dotted path such as"),
        ("instances[]", "not a dotted path such as"),
    ],
)
def test_unknown_paths_are_refused(path: str, clue: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RICH.with_({path: 1})
    ((found, _, allowed),) = caught.value.violations
    assert found == path
    assert clue in allowed


def test_with_reports_every_path_and_value() -> None:
    with pytest.raises(ConfigError) as caught:
        RICH.with_({"gatway": 1, "tenants[gld].weight": 1})
    assert len(caught.value.violations) == 2
    with pytest.raises(ConfigError) as caught:
        RICH.with_({"warm_up_s": -1, "instances[1].count": 0})
    assert {path for path, _, _ in caught.value.violations} == {"warm_up_s", "instances[1].count"}


@pytest.mark.parametrize("bad", [[1], "router", None])
def test_changes_are_a_mapping(bad: Any) -> None:
    with pytest.raises(TypeError):
        RICH.with_(bad)


def test_paths_are_text() -> None:
    for bad in (1, None, ("router",)):
        with pytest.raises(ConfigError, match="a key must be text"):
            RICH.with_({bad: 2})
