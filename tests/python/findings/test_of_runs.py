"""Findings on runs: of each, a run in which it is found, and a similar one in which it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml
from support.measured_runs import server
from support.paths import ROOT

import spillway
from spillway import Simulation, simulate, traffic
from spillway.findings import registry
from spillway.findings.finding import MOST_SHOWN, SEVERITIES, Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

THREADS = ROOT / "tests" / "threads"

CLIENT = {
    "input_tokens": {"kind": "fixed", "tokens": 500},
    "output_tokens": {"kind": "fixed", "tokens": 100},
}
HEALTHY: dict[str, Any] = {
    "workload": {
        "kind": "synthetic",
        "requests_per_s": 20,
        "duration_s": 60,
        "clients": [{**CLIENT, "name": "all"}],
    },
    "slo_classes": [{"name": "standard", "target_ttft_s": 1}],
    "instances": {"server": {"model": "llama-3.1-8b", "gpu": "h100"}, "count": 2},
}
TINY = {"running_requests": 1, "kv_tokens": 1}
BESIDE = [{"running_requests": 0, "kv_tokens": 0}, {"running_requests": 1, "kv_tokens": 0}, TINY]


class Case(NamedTuple):
    """A configuration with the finding, and the settings without which it has none."""

    bad: Simulation
    good: Mapping[str, Any]


def healthy(**changes: Any) -> Simulation:
    return spillway.loading.from_settings({"schema": 1, **HEALTHY, **changes})


def thread(name: str, good: Mapping[str, Any] | None = None) -> Case:
    (folder,) = THREADS.glob(f"{name}-*")
    remedy = yaml.safe_load((folder / "thread.yaml").read_text())["remedy"]
    return Case(spillway.load(folder / "configuration.yaml"), good or remedy)


def overloaded(**changes: Any) -> Simulation:
    return healthy(**changes).with_({"workload.requests_per_s": 300, "workload.duration_s": 20})


IMPATIENT = {
    "reaction": {
        "timeout_s": 2,
        "retries": [{"max_attempts": 4, "backoff_s": 0.5}],
    }
}
AIMD = {
    "limit": {"kind": "fixed", "max_in_flight": 20},
    "controller": {"kind": "aimd", "target_s": 100},
    "guard": {"floor": 1, "ceiling": 20},
    "sensor": {"tick_s": 1, "window_s": 10, "min_samples": 1},
}
TWO_KEYS = [
    {**CLIENT, "name": name, "tenant": name, "requests_per_s": rate}
    for name, rate in (("a", 60), ("b", 1))
]
OF_TENANTS = {
    "limit": {"kind": "per_tenant", "max_in_flight": 12},
    "bands": [{"fairness": {"kind": "deficit_round_robin", "semantics": "verbatim"}}],
}
SHARED = [
    {**CLIENT, "name": f"c{i}", "prefix_group": f"p{i}", "prefix_tokens": 4000} for i in range(8)
]
FAILED = spillway.trace(
    arrival_s=[i / 10 for i in range(60)], input_tokens=[100] * 60, output_tokens=[0, 1, 2] * 20
)
COLD, WARM = (
    spillway.trace(
        arrival_s=[0.0, 1.0], input_tokens=[64, 64], output_tokens=[2, 2],
        hash_ids=[[1, 2], [1, 3]], block_size_tokens=32, warm_tokens=tokens,
    )
    for tokens in (None, [32, 0])
)  # fmt: skip
TWO_TENANTS = [
    {**CLIENT, "name": "many", "tenant": "many", "requests_per_s": 20},
    {**CLIENT, "name": "few", "tenant": "few", "requests_per_s": 2},
]

CASES: dict[str, Case] = {
    "priority_blocked": thread("02"),
    "starvation": thread("05"),
    "passed_by_prefixes": thread("23"),
    "long_prompts": thread("06"),
    "stale_signals": thread("19"),
    "hot_spot": thread("09"),
    "concentrated_prompts": thread("09"),
    "busy_ignored": thread("16"),
    "partial_view": thread("17"),
    "probe_refuses": thread("15", {"gateway.controller": "static"}),
    "limit_at_floor": thread("14", {"gateway.controller": "static"}),
    "expired_without_servers": thread("26"),
    "refuses_while_idle": thread("21"),
    "stale_as_saturated": thread("30"),
    "refused_after_front_end": thread("07"),
    "refused_after_prefill": thread("27"),
    "unbalanced_pools": thread("27"),
    "output_uncounted": thread("22"),
    "unbounded_queue": thread("01"),
    "saturated": thread("01"),
    "memory_binding": thread("01"),
    "shedding": thread("24"),
    "preemption_tax": thread("03", {"instances[0].num_kv_blocks": 200_000}),
    "seats_binding": thread("02", {"instances[0].max_num_seqs": 256}),
    "blocked_by_tenant": Case(
        healthy(workload={**HEALTHY["workload"], "clients": TWO_KEYS}, gateway=OF_TENANTS),
        {"gateway.bands[0].fairness": "round_robin"},
    ),
    "stopped_learning": Case(
        overloaded(gateway={"admission": {"kind": "bouncer", "min_share": 0}}).with_(
            {"slo_classes[0].target_ttft_s": 0.1}
        ),
        {"gateway.admission[0].min_share": 0.05},
    ),
    "retry_storm": Case(overloaded(**IMPATIENT), {"workload.requests_per_s": 20}),
    "metastable": Case(
        traffic.changed(
            healthy(**IMPATIENT).with_(
                {"workload.requests_per_s": 25, "reaction.retries[0].backoff_s": 0.2}
            ),
            "all: rate x6 from 15s to 20s",
        ),
        {"reaction.retries": []},
    ),
    "waits_while_idle": Case(
        healthy(gateway={"limit": {"kind": "fixed", "max_in_flight": 10}}).with_(
            {"workload.requests_per_s": 18}
        ),
        {"gateway.limit[0].max_in_flight": 100},
    ),
    "cached_prompts": Case(Simulation(workload=WARM), {"workload": COLD}),
    "instances_failed": Case(
        healthy(changes=[{"at_s": 20, "faults": [{"kind": "crash", "instance": 0, "for_s": 5}]}]),
        {"changes": []},
    ),
    "gateways_failed": Case(
        healthy(changes=[{"at_s": 20, "faults": [{"kind": "gateway_crash", "for_s": 5}]}]),
        {"changes": []},
    ),
    "kv_lost": Case(
        healthy(changes=[{"at_s": 20, "faults": [{"kind": "kv_loss", "instance": 0}]}]),
        {"changes": []},
    ),
    "failed_calls": Case(Simulation(workload=FAILED), {"workload.empty_outputs": "served"}),
    "unfinished": Case(overloaded(horizon_s=4.0), {"workload.requests_per_s": 20}),
    "limit_at_ceiling": Case(
        healthy(gateway=AIMD).with_({"workload.requests_per_s": 60}),
        {"gateway.guard.ceiling": 1000},
    ),
    "small_prefix_index": Case(
        healthy(
            workload={**HEALTHY["workload"], "clients": SHARED},
            prefix_index={"capacity_blocks": 500},
            router="weighted",
        ),
        {"prefix_index.capacity_blocks": None},
    ),
    "hidden_group": Case(
        healthy(
            workload={**HEALTHY["workload"], "clients": TWO_TENANTS},
            tenants=[{"name": "few", "queue_max": 0}, {"name": "many"}],
        ).with_({"slo_classes[0].target_ttft_s": 30}),
        {"tenants[0].queue_max": None},
    ),
    "idle_mechanism": Case(
        healthy(gateway={"limit": {"kind": "fixed", "max_in_flight": 900}}),
        {"gateway.limit": "unlimited"},
    ),
    "unused_memory": Case(healthy(), {"instances[0].num_kv_blocks": 1000}),
    "extrapolated": Case(
        Simulation(workload=healthy().workload, instances=server(fitted_states=BESIDE)),
        {"instances[0].fitted_states": []},
    ),
    "no_targets": Case(
        healthy(slo_classes=[{"name": "standard"}]), {"slo_classes[0].target_ttft_s": 1}
    ),
    "unvalidated_servers": Case(
        healthy(instances={"server": {"model": "llama-3.1-8b", "gpu": "l4"}}),
        {"instances[0].provenance": "measured"},
    ),
    "default_servers": Case(healthy(instances={}), {"instances[0].num_kv_blocks": 1000}),
    "few_values": Case(healthy().with_({"workload.duration_s": 3}), {"workload.duration_s": 60}),
    "approximate": Case(healthy(metrics={"streaming": True}), {"metrics.streaming": False}),
    "slow_stepping": Case(
        Simulation(instances=[{"latency": {"kind": "jittered"}}]),
        {"instances[0].latency": spillway.instance.InstanceGroup().latency},
    ),
    "drained_politely": Case(
        healthy(changes=[{"at_s": 20, "set": {"fleet.target_instances": 1}}]).with_(
            {"instances[0].count": 2}
        ),
        {"changes": [{"at_s": 20, "set": {"fleet.target_instances": 2}}]},
    ),
}


def test_instances_failed_states_what_went_on_elsewhere() -> None:
    crash = {"at_s": 20, "faults": [{"kind": "crash", "instance": 0, "for_s": 5}]}
    bad = healthy(changes=[crash], fleet={"migration": {"limit": 3}})
    result = simulate(bad.with_({"instances[0].count": 2}), 1)
    (found,) = [finding for finding in result.findings() if finding.name == "instances_failed"]
    figures = {known.figure: known.value for known in found.evidence}
    migrated = sum(result.ledger["migrations"].values())
    assert migrated > 0
    assert (figures["lost_requests"], figures["migrated_requests"]) == (0, migrated)
    again = int(result.requests["recomputed_tokens"].sum())
    assert f"which computed {again:,} tokens again" in str(found)


def named(simulation: Simulation, name: str) -> list[Finding]:
    return [finding for finding in simulate(simulation, 1).findings() if finding.name == name]


def test_every_diagnosis_is_tried() -> None:
    assert set(CASES) == {diagnose.__name__ for diagnose in registry.OF_RUNS}
    names = [diagnose.__name__ for diagnose in (*registry.OF_RUNS, *registry.OF_SETTINGS)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", CASES)
def test_it_is_found_where_it_is_and_not_elsewhere(name: str) -> None:
    bad, good = CASES[name]
    found = named(bad, name)
    assert found
    assert not named(bad.with_(good), name)
    for finding in found:
        assert finding.severity in SEVERITIES
        assert finding.text.endswith(".")
        for evidence in finding.evidence:
            assert evidence.value == evidence.value  # not NaN
            assert evidence.meaning
        for remedy in finding.remedies:
            simulate(bad.with_(remedy), 1)


def test_a_healthy_run_has_nothing_to_remedy() -> None:
    severe = [str(found) for found in simulate(healthy(), 1).findings() if found.remedies]
    assert severe == []


@pytest.mark.parametrize(("rate", "is_late"), [(10, False), (13, True)])
def test_a_limit_is_blamed_if_the_late_are_late_for_it_alone(rate: int, is_late: bool) -> None:
    """Half of the requests wait, fewer than in a run where it holds nearly all."""
    simulation = healthy(gateway={"limit": {"kind": "fixed", "max_in_flight": 10}})
    run = spillway.simulate(simulation.with_({"workload.requests_per_s": rate}))
    found = {of.name: of for of in run.findings()}
    assert ("waits_while_idle" in found) == is_late
    if is_late:
        figures = {known.figure: known.value for known in found["waits_while_idle"].evidence}
        assert figures["late_for_it"] == 1
        assert figures["share_waiting"] < 0.9


def test_the_worst_comes_first_and_few_are_shown() -> None:
    gateway: dict[str, Any] = {"limit": {"kind": "fixed", "max_in_flight": 900}, "max_queued": 900}
    gateway["bands"] = [{"max_requests": 900}]
    bad = healthy(gateway=gateway, slo_classes=[{"name": "standard"}]).with_(
        {"workload.duration_s": 3}
    )
    result = simulate(bad, 1)
    findings = result.findings()
    order = [SEVERITIES.index(finding.severity) for finding in findings]
    assert order == sorted(order)
    assert len(result.notes()) > MOST_SHOWN
    shown = [line for line in repr(result).splitlines() if line.startswith("note: ")]
    assert len(shown) == MOST_SHOWN + 1
    assert shown[-1].endswith("more; result.findings() lists all.")


def test_findings_on_settings_are_among_those_of_a_run() -> None:
    result = simulate(thread("24").bad, 1)
    assert result.findings()[0] == spillway.check(result.simulation)[0]
