"""The random streams that can change a run: the declared ones against the runs themselves."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import in_parts, often, trials
from support.random_gateways import random_simulation

from spillway import (
    ConfigError,
    Simulation,
    _core,
    gateway,
    instance,
    router,
    signals,
    simulate,
    trace,
    workload,
)
from spillway.config.randomness import random_streams

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SEEDS = range(3)

# Busy, in bursts, with everything in it that settings of randomness may belong to; nothing random.
BASE = Simulation(
    workload=workload.Synthetic(
        num_requests=150,
        duration_s=3,
        clients=[
            workload.Client(
                name=f"{tenant} {slo_class}",
                tenant=tenant,
                slo_class=slo_class,
                requests_per_s=rate,
                arrivals="constant",
                prefix_group=tenant,
                prefix_tokens=320,
                input_tokens=workload.Fixed(tokens=150),
                output_tokens=workload.Fixed(tokens=30),
            )
            for tenant, slo_class, rate in (
                ("a", "critical", 17.0),
                ("a", "batch", 23.0),
                ("b", "standard", 29.0),
                ("b", "batch", 7.0),
            )
        ],
    ),
    tenants=[
        workload.Tenant(name="a"),
        workload.Tenant(
            name="b",
            reaction=workload.Reaction(
                timeout_s=0.5,
                retries=[workload.Retry(jitter="none", backoff_s=0.1, max_backoff_s=1)],
            ),
        ),
    ],
    slo_classes=[
        workload.SloClass(name="critical", priority=4, target_ttft_s=0.2),
        workload.SloClass(name="standard", priority=3, target_ttft_s=0.3),
        workload.SloClass(name="batch", priority=-1, target_ttft_s=0.4),
    ],
    reaction=workload.Reaction(
        timeout_s=0.8, retries=[workload.Retry(jitter="none", backoff_s=0.05, max_backoff_s=1)]
    ),
    gateway=gateway.Gateway(
        limit=gateway.FixedLimit(max_in_flight=12),
        sensor=signals.Sensor(
            source="e2e", aggregation="mean", tick_s=0.05, window_s=0.2, min_samples=1
        ),
        guard=gateway.Guard(floor=2, ceiling=40, cooldown_ticks=0),
        bands=gateway.Band(queue=gateway.Queue(timeout_s=1, ordering="shortest_output")),
        replicas=2,
    ),
    router=router.Weighted(
        filters=[router.PrefixCacheAffinity(exploration=0, threshold=0.5)],
        scorers=[router.QueueDepth(), router.PrefixAffinity()],
    ),
    signals=signals.Scraped(period_s=0.05),
    busy_monitor=signals.BusyMonitor(active_prefill_tokens_threshold=600),
    instances=instance.InstanceGroup(count=3, max_num_seqs=3),
    horizon_s=20,
)
# What draws only in a setting that no single change of BASE leads to.
FURTHER = {
    "gateway.controller<envoy_gradient>": {"interval_s": 0.1, "request_count": 2, "jitter": 1},
    "gateway.controller<vegas>": {"probe_multiplier": 0.5},
    "gateway.admission[0]<probabilistic>": {"k": 1, "power": 1},
    "gateway.admission[0]<predictive_ttft>": {
        "exploration": 0.5,
        "budgets": [{"slo_class": "standard", "budget_s": 0.001}],
    },
    "workload.clients[3].arrivals<closed_loop>": {"think_time_s": 0.1, "users": 3},
    "workload.clients[3].input_tokens<empirical>": {"values": [50, 400]},
    "workload.clients[3].output_tokens<empirical>": {"values": [5, 40]},
    "workload.clients[3].output_tokens<uniform>": {"max_tokens": 40},
}
STREAM_OF = {
    "workload.clients[3].arrivals": "arrivals",
    "workload.clients[3].input_tokens": "input_lengths",
    "workload.clients[3].output_tokens": "output_lengths",
    "gateway.admission": "admission",
    "router": "router",
    "instances[0].latency": "step_durations",
    "instances[0].speculative_decoding": "drafts",
    "gateway.controller": "controller",
    "signals": "scrapes",
    "gateway.split": "gateways",
    "reaction": "retries",
    "tenants[1].reaction": "retries",
    "length_prediction": "predictions",
}


def digests(simulation: Simulation) -> set[str]:
    """Digests of single runs, so that none can represent another."""
    return {simulate(simulation, seed).digest for seed in SEEDS}


def changes(
    description: Mapping[str, Any], written: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, str, Any]]:
    """A name, the path and a value for every single change of a written configuration."""
    for field in description["fields"]:
        here = f"{path}.{field['name']}".lstrip(".")
        value = written[field["name"]]
        if field["type"] not in ("struct", "variant"):
            for other in values_of(field):
                yield here, here, [other] if field.get("sequence") else other
            continue
        if value is None or value == []:
            continue
        # Of a list, the last entry stands for all.
        place, held = (f"{here}[{len(value) - 1}]", value[-1]) if "sequence" in field else (
            here, value
        )  # fmt: skip
        if field["type"] == "struct":
            yield from changes(field["of"], held, place)
            continue
        for alternative in field["alternatives"]:
            if held["kind"] == alternative["kind"]:
                yield from changes(alternative, held, place)
            elif alternative["kind"] != "trace":
                name = f"{place}<{alternative['kind']}>"
                default = {f["name"]: f["default"] for f in alternative["fields"]} | {
                    "kind": alternative["kind"]
                }
                yield name, place, default
                yield name, place, default | FURTHER.get(name, {})
                for _, inner, other in changes(alternative, default):
                    if "." not in inner and "[" not in inner:
                        yield name, place, default | {inner: other}


def values_of(field: Mapping[str, Any]) -> list[Any]:
    """Values of a field beside its default: options, what is searched, its bounds."""
    if field["type"] == "choice":
        return list(field["choices"])
    if field["type"] == "bool":
        return [True, False]
    if field["type"] not in ("int", "float"):
        return []
    search = field.get("search", {})
    found = {search[end] for end in ("low", "high") if end in search}
    found |= {field["at_least"]} if "at_least" in field else set()
    if field["type"] == "float" and field.get("at_least", 0) <= 0.5 <= field.get("at_most", 1):
        found.add(0.5)
    return [round(value) if field["type"] == "int" else value for value in sorted(found)]


def test_nothing_is_random_in_the_base() -> None:
    assert random_streams(BASE) == ()
    assert len(digests(BASE)) == 1
    result = simulate(BASE)
    assert 0.2 < result.summary()["completed"] / result.summary()["offered"] < 0.9  # type: ignore[operator]


@pytest.mark.slow
def test_every_alternative_says_whether_it_is_random() -> None:
    tried, drew = Counter[str](), Counter[str]()
    declared: dict[str, set[str]] = {}
    for name, path, value in changes(Simulation._describe(), BASE.to_dict()):
        if "<python>" in name or "<compiled>" in name:
            continue  # cannot run without code; see tests/python/test_python_policies.py
        try:
            simulation = BASE.with_({path: value})
            differing = len(digests(simulation)) > 1
        except ConfigError:
            continue
        tried[name] += 1
        streams = random_streams(simulation)
        # A declared stream may be without consequence here; another one may never be.
        assert streams or not differing, (path, value)
        for stream in streams:
            assert any(
                path.startswith(place) and stream == known for place, known in STREAM_OF.items()
            ), (path, value, stream)
            declared.setdefault(name, set()).add(stream)
        drew[name] += differing
    assert {stream for streams in declared.values() for stream in streams} == set(
        STREAM_OF.values()
    )
    idle = sorted(name for name in declared if not drew[name])
    # This filter draws only where some instances are predicted to meet a target and others are not.
    assert idle == ["router.filters[0]<slo_headroom>"], "said to be random, but no run differs"
    assert len(tried) > 200
    kinds = {name for name in tried if "<" in name}
    assert len(kinds) > 70


def replayed(simulation: Simulation) -> Simulation:
    """The same with a recorded workload."""
    requests = simulate(simulation).requests
    order = np.argsort(requests["arrival_s"], kind="stable")
    columns = {name: requests[name][order] for name in ("tenant", "slo_class")}
    recorded = trace(
        arrival_s=requests["arrival_s"][order],
        input_tokens=requests["input_tokens"][order],
        output_tokens=np.full(len(order), 20),
        **{name: list(column) for name, column in columns.items()},
    )
    return simulation.replace(workload=recorded)


@pytest.mark.parametrize("numbers", in_parts(trials(120), 4))
def test_random_configurations_on_a_trace(numbers: range) -> None:
    found = Counter[bool]()
    for number in numbers:
        simulation = replayed(random_simulation(number))
        is_random = bool(random_streams(simulation))
        found[is_random] += 1
        if not is_random:
            assert len(digests(simulation)) == 1, number
    assert min(found[True], found[False]) >= often(3)


def test_one_instance_leaves_nothing_to_draw() -> None:
    alone = BASE.with_({"instances[0].count": 1, "router.picker": "random"})
    assert random_streams(alone) == ()
    assert len(digests(alone)) == 1
    both = BASE.with_({"router.picker": "random", "gateway.split": "random"})
    assert random_streams(both) == ("router", "gateways")


def test_a_run_that_nothing_is_random_in_is_made_once() -> None:
    outputs = _core.cluster.run_batch(
        simulations=[BASE, BASE.with_({"router.picker": "random"})],
        seeds=[0, 1, 2],
        threads=2,
        reference=False,
        keep_requests=True,
        progress=None,
    )
    assert outputs[0] is outputs[1] is outputs[2]
    assert outputs[3] is not outputs[4]
