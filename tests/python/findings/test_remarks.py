"""Notes of a result: why requests were lost, and which mechanisms never acted."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from support.effort import trials
from support.random_gateways import random_simulation
from support.runs import fixed, flat, peak, run

from spillway import (
    Result,
    Simulation,
    _core,
    fleet,
    gateway,
    instance,
    signals,
    simulate,
    workload,
)
from spillway.config.profiles import BLIS_SERVER, blis_0_6
from spillway.findings.parts import Parts, deciders

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# --- the settings that decide a reason ------------------------------------------------------------

# Reasons of parts that are not policies: settings with which one occurs.
OF_SETTINGS: Mapping[str, list[dict[str, Any]]] = {
    "queue_full": [
        {"gateway.bands[0].queue.max_requests": 3},
        {"gateway.bands[0].max_requests": 3},
        {"gateway.max_queued": 3},
        {"tenants": [{"name": "default", "queue_max": 3}]},
    ],
    "queue_timeout": [{"gateway.bands[0].queue.timeout_s": 3}],
    "queue_delay": [{"gateway.bands[0].queue.codel_target_s": 3}],
    "in_flight_eviction": [{"gateway.limit": "saturation", "gateway.eviction.max_victims": 3}],
    "unservable": [{"instances[0].num_kv_blocks": 3}, {"instances[0].max_model_len": 3}],
    "client_timeout": [
        {"reaction.timeout_s": 3},
        {"reaction.first_token_timeout_s": 3},
        {"reaction.deadline_s": 3},
        {"tenants": [{"name": "default", "reaction": {"deadline_s": 3}}]},
    ],
}

# Of faults, with the settings that decide them.
OF_FAULTS: Mapping[str, dict[str, Any]] = {
    "instance_lost": {"fleet.breakdowns": {"mttf_s": 3.0, "mttr_s": 3.0}},
    "gateway_lost": {"changes": [{"at_s": 0.0, "faults": ["gateway_crash"]}]},
}

# Of legs, with the settings that decide them.
OF_HANDOFF: Mapping[str, dict[str, Any]] = {
    "no_decode_instance": {"router": "round_robin"},
    "decode_overloaded": {"busy_monitor.active_decode_blocks_threshold": 0.5},
}


def policies() -> Iterator[tuple[str, str, str]]:
    """Path, kind and reason of every policy that lists one."""

    def below(description: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
        for field in description["fields"]:
            at = f"{path}{field['name']}{'[0]' if field.get('sequence') else ''}"
            if field["type"] == "struct":
                yield from below(field["of"], f"{at}.")
            for alternative in field.get("alternatives", ()):
                for reason in alternative.get("reasons", ()):
                    yield at, alternative["kind"], reason["name"]
                yield from below(alternative, f"{at}.")

    yield from below(Simulation._describe(), "")


POLICIES = list(policies())


BASE = Simulation()


def shedding(simulation: Simulation, reason: str, base: Simulation = BASE) -> Result:
    """A result whose every attempt ended for this reason; its other figures are those of `base`."""
    result = simulate(base.replace(workload=workload.Synthetic(num_requests=20)))
    output = result._output
    activity = output["activity"] | {"not_completed": {reason: output["ledger"]["attempts"]}}
    return Result(simulation, 0, output | {"activity": activity})


def test_every_reason_is_tried() -> None:
    names = list(_core.metrics.reasons[1:])
    assert len(set(names)) == len(names)
    tried = {reason for *_, reason in POLICIES} | {*OF_SETTINGS, *OF_HANDOFF, *OF_FAULTS}
    assert tried == set(names)


@pytest.mark.parametrize(("path", "kind", "reason"), POLICIES)
def test_policy_that_sheds_everything_is_named(path: str, kind: str, reason: str) -> None:
    result = shedding(Simulation().with_({path: kind}), reason)
    (note,) = [note for note in result.notes() if "not completed" in note]
    assert note.startswith(f"100.0% of the requests were not completed: {reason}, decided by ")
    assert f"{path} = {kind}" in note
    assert f"note: {note}" in repr(result)


@pytest.mark.parametrize(
    ("reason", "changes"),
    [(reason, changes) for reason, cases in OF_SETTINGS.items() for changes in cases],
)
def test_setting_that_sheds_everything_is_named(reason: str, changes: dict[str, Any]) -> None:
    result = shedding(Simulation().with_(changes), reason)
    (note,) = [note for note in result.notes() if "not completed" in note]
    decided = {"queue_max": "tenants[0].queue_max", "reaction": "tenants[0].reaction.deadline_s"}
    (path, value) = list(changes.items())[-1]
    if path == "tenants":
        path = decided[list(value[0])[-1]]
    assert f"{path} = 3" in note
    # What is not set has decided nothing.
    assert "null" not in note
    if reason != "unservable":
        assert note.count(" = ") == 1


@pytest.mark.parametrize("reason", OF_FAULTS)
def test_what_ends_a_request_with_what_serves_it_is_named(reason: str) -> None:
    result = shedding(Simulation().with_(OF_FAULTS[reason]), reason)
    (note,) = [note for note in result.notes() if "not completed" in note]
    (path,) = OF_FAULTS[reason]
    assert f"{reason}, decided by {path}" in note


@pytest.mark.parametrize("reason", OF_HANDOFF)
def test_what_refuses_a_decode_leg_is_named(reason: str) -> None:
    pools = [instance.InstanceGroup(role=role) for role in ("prefill", "decode")]
    simulation = Simulation(instances=pools).with_(OF_HANDOFF[reason])
    result = shedding(simulation, reason, base=simulation)
    (note,) = [note for note in result.notes() if "not completed" in note]
    ((path, value),) = OF_HANDOFF[reason].items()
    assert f"{reason}, decided by {path} = {value}" in note


def test_settings_that_reasons_name_exist() -> None:
    simulation = Simulation(
        tenants=[workload.Tenant(reaction=workload.Reaction())],
        gateway=gateway.Gateway(),
        changes=[{"at_s": 1.0}],
    )
    known = re.sub(r"\[\d+\]", "[]", "\n".join(paths(simulation.to_dict()))).splitlines()
    for description in nouns(Simulation._describe()):
        for reason in description.get("reasons", ()):
            assert set(reason["decided_by"]) <= set(known), reason["name"]


def nouns(description: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield description
    for field in description["fields"]:
        for inner in [field["of"]] if "of" in field else field.get("alternatives", ()):
            yield from nouns(inner)


def paths(settings: Any, path: str = "") -> Iterator[str]:
    if path:
        yield path
    if isinstance(settings, dict):
        for name, value in settings.items():
            yield from paths(value, f"{path}.{name}" if path else name)
    elif isinstance(settings, list):
        for i, value in enumerate(settings):
            yield from paths(value, f"{path}[{i}]")


def test_all_that_may_have_decided_are_named() -> None:
    chain = Simulation(gateway=gateway.Gateway(admission=["token_bucket", "token_bucket"]))
    who = [text.partition(" = ")[0] for text in deciders(Parts(chain), "insufficient_tokens")]
    assert who == ["gateway.admission[0]", "gateway.admission[1]"]
    bands = [gateway.Band(priority=i, queue=gateway.Queue(timeout_s=1)) for i in range(7)]
    many = shedding(Simulation(gateway=gateway.Gateway(bands=bands)), "queue_timeout")
    assert "decided by gateway.bands[].queue.timeout_s = [1, 1, 1, 1, 1, 1, 1]." in many.notes()[0]
    busy = Simulation(
        gateway=gateway.Gateway(admission="busy_threshold"),
        busy_monitor=signals.BusyMonitor(active_decode_blocks_threshold=0.5),
    )
    assert deciders(Parts(busy), "all_workers_busy") == [
        "gateway.admission[0] = busy_threshold (proportional = false, overload_status = 529)",
        "busy_monitor.active_decode_blocks_threshold = 0.5",
    ]


def test_what_was_changed_comes_first() -> None:
    changed = Simulation(gateway={"admission": gateway.PredictiveTtft(headroom=0.7)})
    (text,) = deciders(Parts(changed), "predicted_ttft")
    assert text.startswith("gateway.admission[0] = predictive_ttft (headroom = 0.7, ")
    assert text.endswith(", …)")


def notes_of_losses(result: Result) -> list[str]:
    return [note for note in result.notes() if "not completed" in note]


def test_expiry_eviction_and_withdrawal_are_explained() -> None:
    def together(reaction: dict[str, Any] | None = None, **settings: Any) -> Result:
        limited = gateway.Gateway(limit=fixed(1), **settings)
        return run([0.0] * 10, gateway=limited, reaction=reaction or {})

    expired = together(bands={"queue": {"timeout_s": 0.5}})
    assert expired.activity["not_completed"] == {"queue_timeout": 9}
    assert notes_of_losses(expired) == [
        (
            "90.0% of the requests were not completed: queue_timeout, decided by "
            "gateway.bands[0].queue.timeout_s = 0.5."
        )
    ]
    full = together(max_queued=2)
    assert notes_of_losses(full)[0].endswith("queue_full, decided by gateway.max_queued = 2.")
    evicted = together(bands={"queue": {"max_requests": 2, "drop": "head"}})
    assert evicted.ledger["evicted"] == 7
    assert notes_of_losses(evicted)[0].endswith("gateway.bands[0].queue.max_requests = 2.")
    impatient = together({"timeout_s": 1.5, "retries": [{"max_attempts": 2}]})
    assert notes_of_losses(impatient)[0].endswith("decided by reaction.timeout_s = 1.5.")
    assert "of the attempts were not completed: client_timeout" in notes_of_losses(impatient)[0]


def test_ingress_is_named_not_the_memory() -> None:
    ingress = instance.EngineRequestLimit(max_requests=1, queue_size=2)
    result = run([0.0] * 10, slo_class="standard", instances=flat().replace(ingress=ingress))
    assert set(result.ledger["worker_rejected"]) == {"worker_at_capacity"}
    (note,) = notes_of_losses(result)
    assert note.endswith(
        "worker_at_capacity, decided by instances[0].ingress = "
        "engine_request_limit (max_requests = 1, queue_size = 2)."
    )


def test_several_causes_together_are_heavy() -> None:
    bands = {"queue": {"timeout_s": 0.5}}
    result = run([0.0] * 10, gateway={"limit": fixed(3), "max_queued": 4, "bands": bands})
    losses = notes_of_losses(result)
    assert [note.partition(":")[0][:5] for note in losses] == ["40.0%", "30.0%"]
    assert "queue_timeout" in losses[0]
    assert "queue_full" in losses[1]


# --- where the requests went ----------------------------------------------------------------------


def parts_of(line: str) -> tuple[list[int], list[int]]:
    whole, _, parts = line.partition(": ")
    numbers = re.compile(r"[\d,]+(?= )")
    return (
        [int(digits.replace(",", "")) for digits in numbers.findall(whole)],
        [int(numbers.match(part)[0].replace(",", "")) for part in parts.split(", ")],  # type: ignore[index]
    )


@pytest.mark.parametrize("seed", trials(40))
def test_parts_add_up_to_the_attempts(seed: int) -> None:
    rng = random.Random(seed)
    retries = [workload.Retry(max_attempts=3, backoff_s=0.1)]
    simulation = random_simulation(seed).replace(
        reaction=workload.Reaction(timeout_s=rng.choice((None, 0.5)), retries=retries),
        horizon_s=rng.choice((None, 2.0)),
    )
    result = simulate(simulation, seed)
    line = repr(result).splitlines()[1]
    whole, parts = parts_of(line)
    ledger = result.ledger
    assert whole[0] == ledger["logical_requests"]
    assert whole[-1] == sum(parts) == ledger["attempts"]
    assert len(whole) == 1 + (ledger["attempts"] != ledger["logical_requests"])


def test_headline() -> None:
    reaction = {"timeout_s": 1.5, "retries": [{"max_attempts": 2}]}
    storm = run([0.0] * 4, gateway={"limit": fixed(1)}, reaction=reaction)
    assert repr(storm).splitlines()[1].startswith("4 requests in 7 attempts: ")
    assert repr(run([0.0])).splitlines()[1] == "1 request: 1 completed"
    assert "fitness" not in repr(storm)


# --- mechanisms that never acted ------------------------------------------------------------------


def idle(result: Result) -> str:
    return "\n".join(result.notes())


AT_EASE = [0.0, 5.0, 10.0]
IN_A_ROW = [0.0] * 10


@pytest.mark.parametrize(
    ("settings", "never"),
    [
        (
            {"gateway": gateway.Gateway(limit=fixed(4))},
            ("gateway.limit[0] = fixed (max_in_flight = 4) never held a request back: "
            "at most 1 were in flight at once."),
        ),
        (
            {"gateway": gateway.Gateway(max_queued=3, limit=fixed(1))},
            "gateway.max_queued = 3 never shed a request.",
        ),
        (
            {"gateway": gateway.Gateway(bands=gateway.Band(queue=gateway.Queue(timeout_s=0.1)),
                                        limit=fixed(1))},
            "gateway.bands[0].queue.timeout_s = 0.1 never shed a request.",
        ),
        (
            {"gateway": gateway.Gateway(
                admission=gateway.TokenBucket(capacity_tokens=20, refill_tokens_per_s=10))},
            ("gateway.admission[0] = token_bucket (capacity_tokens = 20, refill_tokens_per_s = 10) "
            "never refused a request."),
        ),
        (
            {"instances": flat().replace(
                ingress=instance.EngineRequestLimit(max_requests=2, queue_size=2))},
            ("instances[0].ingress = engine_request_limit (max_requests = 2, queue_size = 2) "
            "never refused a request."),
        ),
        (
            {
                "gateway": gateway.Gateway(admission="busy_threshold"),
                "busy_monitor": signals.BusyMonitor(active_prefill_tokens_threshold=20),
            },
            "busy_monitor.active_prefill_tokens_threshold = 20 never was exceeded.",
        ),
        (
            {"gateway": gateway.Gateway(
                limit=fixed(4), controller=gateway.Aimd(), sensor=signals.Sensor(tick_s=1))},
            "gateway.controller = aimd ",
        ),
    ],
)  # fmt: skip
def test_what_never_acted_is_said(settings: dict[str, Any], never: str) -> None:
    assert never in idle(run(AT_EASE, slo_class="standard", **settings))
    busy = run(IN_A_ROW, slo_class="standard", **settings)
    assert busy.ledger["attempts"] == 10
    if "controller" not in never:
        assert f"{never.partition(' never ')[0]} never" not in idle(busy)


def test_controller_that_moves() -> None:
    sensor = signals.Sensor(tick_s=1, min_samples=1, window_s=5)
    control = {"limit": fixed(4), "controller": gateway.Aimd(target_s=0.1), "sensor": sensor}
    moved = run([i / 2 for i in range(40)], gateway=control)
    assert moved.control.count("decrease") > 0
    assert " never moved the limit" not in idle(moved)


def test_ingress_that_only_holds_has_acted() -> None:
    ingress = instance.EngineRequestLimit(max_requests=1, queue_size=20)
    result = run(IN_A_ROW, instances=flat().replace(ingress=ingress))
    assert result.ledger["completed"] == 10
    assert "ingress" not in idle(result)


def test_plain_run_claims_nothing_to_be_idle() -> None:
    result = run(AT_EASE, slo_classes=[workload.SloClass(target_ttft_s=1)])
    assert [note for note in result.notes() if "never" in note] == []


def test_few_notes() -> None:
    bands = [
        gateway.Band(priority=i, queue=gateway.Queue(timeout_s=9, max_requests=9), max_requests=9)
        for i in range(4)
    ]
    result = run(AT_EASE, gateway=gateway.Gateway(bands=bands, limit=fixed(9), max_queued=99))
    assert len(result.notes()) <= 6
    assert "also without effect: gateway.max_queued, " in idle(result)


def test_a_tenant_behind_the_percentile_of_all_is_named() -> None:
    # 8 of 1,000 prompts are long, all of one tenant in five.
    rows = range(1000)
    settings: dict[str, Any] = {
        "tenant": ["code" if row % 5 == 0 else "chat" for row in rows],
        "input_tokens": [900 if row % 125 == 0 else 100 for row in rows],
        "slo_class": "standard",
        "instances": instance.InstanceGroup(latency=instance.Linear(beta_prefill_us=1000)),
    }
    at = [row * 2.0 for row in rows]
    late = run(at, slo_classes=[workload.SloClass(target_ttft_s=0.5)], **settings)
    ours, all_ms = late.by_tenant()["code"], late.summary()["p99_ttft_ms"]
    assert ours["p99_ttft_ms"] > 500 > all_ms
    note = re.search("p99_ttft_ms of all requests, .*, but that of tenant code is ", idle(late))
    assert note
    assert "p99_ttft_ms[worst tenant]" in idle(late)
    in_time = run(at, slo_classes=[workload.SloClass(target_ttft_s=5)], **settings)
    missed_by_all = run(at, slo_classes=[workload.SloClass(target_ttft_s=0.05)], **settings)
    assert "worst tenant" not in idle(in_time) + idle(missed_by_all)


def test_a_tenant_whose_requests_are_lost_is_named() -> None:
    settings: dict[str, Any] = {
        "tenant": ["a", "b", "a", "a"] * 5,
        "slo_class": "standard",
        "slo_classes": [workload.SloClass(target_ttft_s=0.5, target_e2e_s=5)],
    }
    at = [row * 2.0 for row in range(20)]
    starved = run(at, tenants=[workload.Tenant(name="b", queue_max=0)], **settings)
    said = "goodput of tenant b is 0, of all requests 0.7500, whose p99 meets the targets"
    assert said in idle(starved)
    assert "worst tenant" not in idle(run(at, **settings))


def test_no_target() -> None:
    for classes, is_said in (
        ([workload.SloClass()], True),
        ([workload.SloClass(), workload.SloClass(name="gold", target_ttft_s=1)], True),
        ([workload.SloClass(target_ttft_s=1)], False),
    ):
        result = run([0.0], slo_class="standard", slo_classes=classes)
        assert ("no class with traffic has a latency target" in idle(result)) == is_said
        assert (result.summary()["goodput"] is None) == is_said


def test_servers_without_measurements() -> None:
    server = instance.Server(model="llama-3.1-8b", gpu="l4")
    simulation = Simulation(instances=server)
    note = "computed, not measured (unvalidated)"
    assert any(note in other for other in simulate(simulation).notes())
    assert not any(note in other for other in simulate(Simulation()).notes())


def test_servers_that_were_not_chosen() -> None:
    default, named = "Spillway's default, an H100", instance.Server(model="qwen3-14b", gpu="h200")
    for servers, said in (
        (instance.InstanceGroup(count=2), default),
        (instance.InstanceGroup(num_kv_blocks=100), None),
        (instance.Server(model="llama-3.1-8b", gpu="h100"), None),  # the same, but chosen
        (named, None),
        (BLIS_SERVER, "those of BLIS's experiments"),
        ([named.group, BLIS_SERVER], "those of BLIS's experiments"),
    ):
        notes = simulate(Simulation(instances=servers)).notes()
        unnamed = [note for note in notes if "state yours" in note]
        assert len(unnamed) == (said is not None)
        assert all(str(said) in note for note in unnamed)
    assert not any("state yours" in note for note in simulate(blis_0_6()).notes())


def test_unused_memory() -> None:
    workload_ = workload.Synthetic(num_requests=30, requests_per_s=20)
    server = instance.InstanceGroup(num_kv_blocks=100_000)
    ample = simulate(Simulation(workload=workload_, instances=server))
    assert 0 < ample.activity["peak_kv_utilization"] < 0.03
    assert "of the KV blocks were in use" in idle(ample)
    scarce = simulate(Simulation(workload=workload_).with_({"instances[0].num_kv_blocks": 300}))
    assert scarce.activity["peak_kv_utilization"] > 0.1
    assert "KV blocks" not in idle(scarce)
    assert "KV blocks" not in idle(run([0.0]))  # a plant without memory


# --- what a run reports about its mechanisms ------------------------------------------------------


@pytest.mark.parametrize("seed", trials(60))
def test_activity(seed: int) -> None:
    simulation = random_simulation(seed)
    result = simulate(simulation, seed)
    activity = result.activity
    reasons = Counter(reason for reason in result.requests["reason"].tolist() if reason)
    assert activity["not_completed"] == dict(reasons)
    is_clock = simulation.metrics.accounting == "clock"
    if is_clock and simulation.gateway.replicas == 1 and result.ledger["dispatched"]:
        assert activity["peak_in_flight"] == peak(result)
    assert len(activity["limit_held"]) == len(simulation.gateway.limit)
    assert activity == simulate(simulation, seed, reference=True).activity
    assert result.notes()
    assert repr(result)


def test_noise_costs_time_but_lockstep_hardly_any() -> None:
    def says_so(**group: Any) -> bool:
        result = simulate(Simulation(instances=[{"data_parallel_size": 2}, group]))
        assert result.instances[1]["stepping"] == "plain"
        return any("1 of 2 instances simulated every step" in note for note in result.notes())

    assert says_so(latency={"kind": "jittered"})
    assert says_so(latency={"kind": "jittered"}, data_parallel_size=2, lockstep_ranks=True)
    assert not says_so(data_parallel_size=2, lockstep_ranks=True)


def test_peak_of_memory_is_that_of_every_step() -> None:
    for seed in range(8):
        rng = random.Random(seed)
        group = BLIS_SERVER.replace(
            num_kv_blocks=rng.choice((200, 500)),
            data_parallel_size=rng.choice((1, 2)),
            preemption=rng.choice(("keep_emitted", "restart")),
            max_num_seqs=rng.choice((8, 64)),
        )
        simulation = Simulation(
            workload=workload.Synthetic(num_requests=60, requests_per_s=rng.choice((5, 80))),
            instances=group,
            metrics={"timeline_step_s": 0.01},
        )
        result = simulate(simulation, seed)
        reference = simulate(simulation, seed, reference=True)
        peak_share = result.activity["peak_kv_utilization"]
        assert peak_share == reference.activity["peak_kv_utilization"]
        assert peak_share >= result.timeline["kv_utilization"].max() - 1e-12
        assert peak_share <= 1


def test_limit_that_held() -> None:
    limits = [fixed(2), gateway.PerTenant(max_in_flight=1)]
    held = run([0.0, 0.0], gateway=gateway.Gateway(limit=limits)).activity["limit_held"]
    assert held == [False, True]
    held = run(
        [0.0, 0.0, 0.0], tenant=["a", "b", "c"], gateway=gateway.Gateway(limit=limits),
        tenants=[workload.Tenant(name=name) for name in "abc"],
    ).activity["limit_held"]  # fmt: skip
    assert held == [True, False]


def test_saved_results_keep_their_notes(tmp_path: Any) -> None:
    result = run(IN_A_ROW, gateway=gateway.Gateway(limit=fixed(20), max_queued=3))
    result.save(tmp_path / "result.npz")
    assert Result.load(tmp_path / "result.npz").notes() == result.notes()


def test_streaming_reports_the_same() -> None:
    simulation = Simulation(
        workload=workload.Synthetic(num_requests=200, requests_per_s=100),
        gateway=gateway.Gateway(limit=fixed(3), bands={"queue": {"timeout_s": 0.2}}),
        fleet=fleet.Fleet(),
    )
    exact = simulate(simulation)
    streamed = simulate(simulation.with_({"metrics.streaming": True}))
    assert streamed.activity == exact.activity
    assert notes_of_losses(streamed) == notes_of_losses(exact) != []


def test_a_policy_that_has_stopped_learning_is_noted() -> None:
    def learning(min_share: float) -> list[str]:
        result = run(
            [0.01 * i for i in range(400)],
            slo_classes=[workload.SloClass(name="standard", target_ttft_s=0.1)],
            gateway=gateway.Gateway(admission=gateway.Bouncer(min_share=min_share)),
        )
        return [note for note in result.notes() if "has stopped learning" in note]

    (note,) = learning(0)
    assert note.startswith("gateway.admission[0] = bouncer has stopped learning")
    assert "requests since 0." in note
    assert not learning(0.05)
