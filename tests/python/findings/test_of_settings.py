"""Settings that cannot work: each finding with the setting beside it that works, and its run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.paths import ROOT

import spillway
from spillway import Simulation, check, presets, simulate
from spillway.checking import BUCKET_EDGES_S
from spillway.cli import main
from spillway.config.yaml import to_yaml
from spillway.loading import from_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BASE: dict[str, Any] = {
    "workload": {
        "kind": "synthetic",
        "requests_per_s": 20,
        "num_requests": 600,
        "clients": {
            "input_tokens": {"kind": "fixed", "tokens": 512},
            "output_tokens": {"kind": "fixed", "tokens": 128},
        },
    },
    "gateway": {"limit": {"kind": "fixed", "max_in_flight": 64}},
}
AIMD = {"gateway.controller": "aimd"}
# A request of BASE that is alone.
ALONE = simulate(Simulation(**BASE).with_({"workload.num_requests": 1}))
TTFT_S, TPOT_S, E2E_S = (float(ALONE.requests[name][0]) for name in ("ttft_s", "tpot_s", "e2e_s"))
SAMPLES_OF_ONE = int(30 / E2E_S) + 1


def changed(changes: Mapping[str, Any]) -> Simulation:
    simulation = Simulation(**BASE)
    for path, value in changes.items():
        simulation = simulation.with_({path: value})
    return simulation


# Path of the finding, part of its sentence, settings, and the change that removes it.
FOUND: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "predictions without a reader": (
        "length_prediction",
        "no policy reads predicted output lengths",
        {"length_prediction.sigma": 0.5},
        {"instances[0].scheduler": {"kind": "sjf", "length": "output"}},
    ),
    "window": (
        "gateway.sensor.window_s",
        "tick_s + tick_drift_s = 5.001 s",
        AIMD | {"gateway.sensor.window_s": 5, "gateway.sensor.min_samples": 1},
        {"gateway.sensor.tick_drift_s": 0},
    ),
    "band above the histogram": (
        "gateway.controller.target_s",
        "its highest edge, 600 s",
        AIMD | {"gateway.controller.target_s": 500},
        {"gateway.controller.band": 0.19},
    ),
    "band within a bucket": (
        "gateway.controller.band",
        "one bucket of the histogram, 2 to 3 s",
        AIMD | {"gateway.controller": {"kind": "aimd", "target_s": 2.5, "band": 0.19}},
        {"gateway.controller.band": 0.2},
    ),
    "floor of 0": (
        "gateway.guard.floor",
        "let the limit fall to 0",
        AIMD | {"gateway.guard.floor": 0.9},
        {"gateway.guard.floor": 1},
    ),
    "too few samples at the floor": (
        "gateway.guard.floor",
        f"at most {SAMPLES_OF_ONE} samples",
        AIMD | {"gateway.sensor.min_samples": SAMPLES_OF_ONE + 1},
        {"gateway.sensor.min_samples": SAMPLES_OF_ONE},
    ),
    "target of the controller": (
        "gateway.controller.target_s",
        "always cuts the limit",
        AIMD
        | {
            "gateway.sensor.source": "e2e",
            "gateway.sensor.aggregation": "mean",
            "gateway.controller": {"kind": "aimd", "target_s": E2E_S * 0.83, "band": 0.2},
        },
        {"gateway.controller.target_s": E2E_S * 0.84},
    ),
    "timeout of the queue": (
        "gateway.controller.target_s",
        "and requests wait up to gateway.bands[0].queue.timeout_s = 2 s",
        {
            "workload.requests_per_s": 60,
            "workload.num_requests": 3000,
            "gateway.controller": {"kind": "aimd", "target_s": 0.3},
            "gateway.guard.floor": 8,
            "gateway.sensor": {"tick_s": 1, "window_s": 5},
            "gateway.bands[0].queue.timeout_s": 2,
        },
        {"gateway.bands[0].queue.timeout_s": 0.36},
    ),
    "ttft of a class": (
        "slo_classes[standard].target_ttft_s",
        f"{TTFT_S:.4g} s",
        {"slo_classes[standard].target_ttft_s": TTFT_S * 0.99},
        {"slo_classes[standard].target_ttft_s": TTFT_S},
    ),
    "tpot of a class": (
        "slo_classes[standard].target_tpot_s",
        "no request meets the target",
        {"slo_classes[standard].target_tpot_s": TPOT_S * 0.5},
        {"slo_classes[standard].target_tpot_s": TPOT_S},
    ),
    "e2e of a class": (
        "slo_classes[standard].target_e2e_s",
        f"{E2E_S:.4g} s",
        {"slo_classes[standard].target_e2e_s": E2E_S * 0.99},
        {"slo_classes[standard].target_e2e_s": E2E_S},
    ),
    "budget of a predictor": (
        "gateway.admission[0].budgets[standard].budget_s",
        "to its first token",
        {
            "gateway.admission": {
                "kind": "predictive_ttft",
                "budgets": [{"slo_class": "standard", "budget_s": TTFT_S * 0.99}],
            }
        },
        {"gateway.admission[0].budgets": [{"slo_class": "standard", "budget_s": TTFT_S}]},
    ),
    "predictor without any budget": (
        "gateway.admission[0].budgets",
        "every request is admitted: no class with requests has a budget",
        {"gateway.admission": {"kind": "predictive_ttft"}},
        {"gateway.admission[0].budgets": [{"slo_class": "standard", "budget_s": 2 * TTFT_S}]},
    ),
    "timeout of a client": (
        "reaction.timeout_s",
        "every client of tenant default gives up",
        {"reaction.timeout_s": E2E_S * 0.99},
        {"reaction.timeout_s": E2E_S * 1.01},
    ),
    "limit": (
        "gateway.limit[0].max_in_flight",
        "the workload has 600 requests",
        {"gateway.limit": {"kind": "fixed", "max_in_flight": 600}},
        {"gateway.limit[0].max_in_flight": 599},
    ),
    "limit of closed loops": (
        "gateway.limit[0].max_in_flight",
        "have 16 users",
        {
            "horizon_s": 10,
            "workload.clients[0].arrivals": {"kind": "closed_loop", "users": 16},
            "gateway.limit[0].max_in_flight": 16,
        },
        {"gateway.limit[0].max_in_flight": 15},
    ),
    "limit of prompts": (
        "gateway.limit[0].max_awaiting_first_token",
        "it is 64, and max_in_flight is 64",
        {
            "gateway.limit": {
                "kind": "dual_limit",
                "max_in_flight": 64,
                "max_awaiting_first_token": 64,
            }
        },
        {"gateway.limit[0].max_awaiting_first_token": 63},
    ),
    "dual limit": (
        "gateway.limit[0].max_in_flight",
        "it is 600, and the workload has 600 requests",
        {
            "gateway.limit": {
                "kind": "dual_limit",
                "max_in_flight": 600,
                "max_awaiting_first_token": 20,
            }
        },
        {"gateway.limit[0].max_in_flight": 599},
    ),
    "limit per worker": (
        "gateway.limit[0].cap_per_worker",
        "it is 300 x 2 workers, and the workload has 600 requests",
        {"gateway.limit": {"kind": "worker_budget", "cap_per_worker": 300, "workers": 2}},
        {"gateway.limit[0].cap_per_worker": 299},
    ),
    "limit of tokens": (
        "gateway.limit[0].max_tokens_in_flight",
        "it is 444000 tokens for requests of at most 740",
        {
            "gateway.limit": {
                "kind": "token_budget",
                "max_tokens_in_flight": 600 * 740,
                "assumed_output_tokens": 100,
            }
        },
        {"gateway.limit[0].max_tokens_in_flight": 600 * 740 - 1},
    ),
    "saturation by concurrency": (
        "gateway.limit[0].max_concurrency",
        "it is 600 x 1 instance,",
        {
            "gateway.limit": {
                "kind": "saturation",
                "detector": "concurrency",
                "max_concurrency": 600,
            }
        },
        {"gateway.limit[0].max_concurrency": 599},
    ),
    "busy threshold": (
        "busy_monitor.active_decode_blocks_threshold",
        "is 20, and 20 requests of at most 640 tokens are at most 40.0% of 2,000 blocks",
        {
            "gateway.limit[0].max_in_flight": 20,
            "instances[0].num_kv_blocks": 2000,
            "busy_monitor.track_output_blocks": True,
            "busy_monitor.active_decode_blocks_threshold": 0.4,
        },
        {"busy_monitor.active_decode_blocks_threshold": 0.399},
    ),
    "changed busy threshold": (
        "changes[0].set[busy_monitor.active_decode_blocks_threshold]",
        "no rank ever exceeds the threshold 0.4: gateway.limit[0].max_in_flight is 20",
        {
            "gateway.limit[0].max_in_flight": 20,
            "instances[0].num_kv_blocks": 2000,
            "busy_monitor.track_output_blocks": True,
            "changes": [{"at_s": 1, "set": {"busy_monitor.active_decode_blocks_threshold": 0.4}}],
        },
        {"changes": [{"at_s": 1, "set": {"busy_monitor.active_decode_blocks_threshold": 0.3}}]},
    ),
    "KV threshold": (
        "gateway.limit[0].kv_utilization_threshold",
        "max_num_seqs 32 x 40 blocks (at most 640 tokens in blocks of 16) fill at most 64.0%",
        {
            "gateway.limit": "saturation",
            "instances[0].max_num_seqs": 32,
            "instances[0].num_kv_blocks": 2000,
        },
        {"instances[0].num_kv_blocks": 1600},
    ),
    "weight of a tier": (
        "router.host_cache_hit_weight",
        "simulated instances hold no blocks in the memory of their host or on disk",
        {"router": {"kind": "kv_cost", "host_cache_hit_weight": 0.5}},
        {"router.host_cache_hit_weight": 0.75},
    ),
    "adapters": (
        "router.scorers[1]",
        "the scorer gives every instance 0",
        {"router": {"kind": "weighted", "scorers": ["queue_depth", "lora_affinity"]}},
        {"router": {"kind": "weighted", "scorers": ["queue_depth"]}},
    ),
    "changed weight of a tier": (
        "changes[0].set[router.disk_cache_hit_weight]",
        "the weight has no effect",
        {
            "router": "kv_cost",
            "changes": [{"at_s": 1, "set": {"router.disk_cache_hit_weight": 0.5}}],
        },
        {"changes": []},
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_each_finding_and_the_setting_beside_it(name: str) -> None:
    path, text, settings, remedy = FOUND[name]
    found = check(changed(settings))
    assert [finding.path for finding in found] == [path]
    assert text in found[0].text
    assert str(found[0]) == f"{path}: {found[0].text}"
    assert check(changed(settings | remedy)) == []


def settings_of(name: str) -> Simulation:
    return changed(FOUND[name][2])


def test_runs_confirm_the_findings_on_controllers() -> None:
    window = simulate(settings_of("window")).control
    assert window.count("no_signal") == len(window["action"]) > 3
    assert simulate(changed(FOUND["window"][2] | FOUND["window"][3])).control.count("no_signal") < 3
    target = simulate(settings_of("target of the controller")).control
    assert target.count("decrease") > 1
    assert target.count("increase") == target.count("hold") == 0
    # A limit of 0 stays, although requests wait.
    strict = {"kind": "aimd", "target_s": 0.02, "decrease_factor": 0.1}
    fallen = simulate(
        settings_of("floor of 0").with_(
            {"gateway.controller": strict, "workload.num_requests": 3000}
        )
    ).control
    assert fallen["setting"][-1] == 0
    assert fallen.count("increase") == 0
    assert fallen.count("no_signal") > 10


def test_a_run_confirms_the_finding_on_the_timeout_of_the_queue() -> None:
    spiral = settings_of("timeout of the queue")
    control = simulate(spiral).control
    assert control["setting"][-1] == 8
    assert control.count("increase") == 0
    note = "the limit was at gateway.guard.floor = 8 after "
    assert any(remark.startswith(note) for remark in simulate(spiral).notes())
    # The same servers, whose own latency is the signal: they are fast enough.
    engines = spiral.with_({"gateway.sensor.source": "engine_ttft"})
    assert check(engines) == []
    result = simulate(engines)
    assert result.control.count("decrease") == 0
    assert not any(remark.startswith(note) for remark in result.notes())


@pytest.mark.parametrize("bound", [
    {"gateway.max_queued": 4},
    {"gateway.bands[0].queue.max_requests": 4},
    {"gateway.bands[0].queue.codel_target_s": 0.1},
    {"gateway.bands[0].queue.ordering": "lifo"},
    {"gateway.sensor.aggregation": "min"},
    {"gateway.controller.target_s": 1.7},
    {"gateway.controller": "static"},
    {"gateway.limit": "unlimited"},
])  # fmt: skip
def test_other_bounds_on_the_wait_leave_the_target_within_reach(bound: dict[str, Any]) -> None:
    settings = FOUND["timeout of the queue"][2]
    if "gateway.limit" in bound:
        settings = {path: value for path, value in settings.items() if "controller" not in path}
    assert check(changed(settings | bound)) == []


@pytest.mark.parametrize("metric", ["ttft", "tpot", "e2e"])
def test_runs_confirm_the_findings_on_targets(metric: str) -> None:
    result = simulate(settings_of(f"{metric} of a class"))
    assert result.summary()["goodput"] == 0


def test_runs_confirm_the_findings_on_limits() -> None:
    assert simulate(settings_of("timeout of a client")).summary()["completed"] == 0
    limits = [
        *("limit", "limit of closed loops", "limit per worker", "limit of tokens"),
        "saturation by concurrency",
    ]
    for name in limits:
        assert simulate(settings_of(name)).activity["limit_held"] == [0]
    crowd = {"workload.requests_per_s": 100_000, "workload.num_requests": 100}
    for threshold, exceeds in ((0.4, False), (0.38, True)):
        threshold_of = {"busy_monitor.active_decode_blocks_threshold": threshold}
        busy = changed(FOUND["busy threshold"][2] | crowd | threshold_of)
        assert simulate(busy).activity["busy_threshold_exceeded"] is exceeds
    crowded = settings_of("KV threshold").with_({"workload.requests_per_s": 1000})
    bound = float(re.findall(r"at most ([0-9.]+)%", check(crowded)[0].text)[0]) / 100
    assert 0.5 < simulate(crowded).activity["peak_kv_utilization"] <= bound + 1e-3


def test_the_buckets_are_those_of_the_core() -> None:
    """Samples within one bucket read between its edges, whatever the quantile."""
    for quantile in (1e-9, 1):
        readings = simulate(
            changed(AIMD | {"gateway.sensor.quantile": quantile, "gateway.sensor.source": "e2e"})
        ).control["value"]
        known = readings[~np.isnan(readings)]
        assert known.size
        edges = np.array([0, *BUCKET_EDGES_S])
        nearest = np.abs(edges[:, None] - known).min(axis=0)
        assert (nearest < 1e-6).all(), known


def test_a_trace_is_checked_by_its_rows() -> None:
    trace = spillway.trace(arrival_s=[0.0, 1.0], input_tokens=[512, 900], output_tokens=[128, 200])
    simulation = changed({"slo_classes[standard].target_e2e_s": E2E_S * 0.99}).replace(
        workload=trace
    )
    assert [finding.path for finding in check(simulation)] == [
        "slo_classes[standard].target_e2e_s",
        "gateway.limit[0].max_in_flight",
    ]
    assert "the trace has 2 requests" in check(simulation)[1].text


def test_a_trace_whose_requests_were_not_read_bounds_nothing() -> None:
    trace = spillway.trace(arrival_s=[0.0], input_tokens=[512], output_tokens=[128])
    settings = changed({}).replace(workload=trace).to_dict()
    unread = from_settings(settings, read_trace=False)
    assert check(unread) == []


def test_random_step_times_bound_nothing() -> None:
    jittered = {"instances[0].latency": "jittered", "slo_classes[standard].target_e2e_s": 1e-3}
    assert check(changed(jittered)) == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.stem)
def test_examples_have_no_findings(path: Path) -> None:
    if path.stem.endswith(("_study", "_sweep")):
        pytest.skip("a file of a study or sweep; its simulation is another example")
    assert check(path) == []


def test_published_scenarios_have_no_findings() -> None:
    for name in presets.names():
        if presets.get(name).kind == "scenario":
            assert check(from_settings({"presets": [name]})) == [], name


def test_a_scheduler_in_python_is_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "simulation.yaml"
    path.write_text('instances: [{scheduler: {kind: python, policy: "no_such_module:Own"}}]\n')
    assert check(spillway.load(path)) == check(Simulation())


# --- limits per tenant in a queue that all tenants share ------------------------------------------


def two_keys(
    *, fairness: Any = "global_fifo", limit: Any = "per_tenant", **more: Any
) -> Simulation:
    """Key a sends more than its limit allows; key b sends one request per second."""
    clients = [
        {
            "name": name,
            "tenant": name,
            "requests_per_s": requests_per_s,
            "duration_s": 40,
            "input_tokens": {"kind": "fixed", "tokens": 500},
            "output_tokens": {"kind": "fixed", "tokens": 150},
        }
        for name, requests_per_s in (("a", 40), ("b", 1))
    ]
    if limit == "per_tenant":
        limit = {"kind": "per_tenant", "max_in_flight": 24}
    return Simulation(
        workload={"kind": "synthetic", "clients": clients},
        slo_classes=[{"name": "standard", "target_ttft_s": 1}],
        gateway={"limit": limit, "bands": [{"fairness": fairness}]},
        instances={"count": 2},
    ).with_(more)


def refused(simulation: Simulation) -> list[str]:
    return [str(finding) for finding in check(simulation) if finding.is_refused]


def waited_behind(simulation: Simulation) -> list[str]:
    return [note for note in simulate(simulation).notes() if "waited behind a tenant" in note]


def goodput_of_b(simulation: Simulation) -> float:
    value: float = simulate(simulation).by_tenant()["b"]["goodput"]
    return value


def test_a_limit_per_tenant_gives_each_tenant_a_queue() -> None:
    simulation = two_keys()
    assert not refused(simulation)
    assert goodput_of_b(simulation) == 1
    assert not waited_behind(simulation)
    own = simulate(simulation).by_tenant()
    assert own["a"]["goodput"] < 0.1


def test_a_policy_that_waits_for_a_tenant_in_turn_is_noted() -> None:
    verbatim = two_keys(fairness={"kind": "deficit_round_robin", "semantics": "verbatim"})
    assert not refused(verbatim)
    (note,) = waited_behind(verbatim)
    assert "(gateway.limit[0] = per_tenant): gateway.bands[0].fairness" in note


def test_limits_per_tenant_among_others_isolate_too() -> None:
    fixed, own = {"kind": "fixed", "max_in_flight": 500}, {"kind": "per_tenant"}
    assert goodput_of_b(two_keys(limit=[fixed, own | {"max_in_flight": 24}])) == 1
    # The limit of one tenant is enough.
    tenants = [{"name": "a", "max_in_flight": 5}, {"name": "b"}]
    simulation = two_keys(limit={"kind": "per_tenant", "max_in_flight": 10**9}, tenants=tenants)
    assert goodput_of_b(simulation) == 1
    assert not waited_behind(simulation)


@pytest.mark.parametrize(
    "fairness",
    [
        "round_robin",
        "deficit_round_robin",
        "start_time_fair",
        "virtual_token_counter",
        "least_attained_service",
    ],
)
def test_with_a_fairness_in_which_tenants_overtake_a_key_waits_for_its_own_limit(
    fairness: str,
) -> None:
    simulation = two_keys(fairness=fairness)
    assert not refused(simulation)
    assert goodput_of_b(simulation) == 1
    assert not waited_behind(simulation)


def test_a_tenant_at_its_limit_in_a_higher_band_does_not_stop_those_below() -> None:
    classes = [{"name": "high", "priority": 5}, {"name": "standard", "priority": 0}]
    simulation = two_keys(
        **{
            "slo_classes": classes,
            "workload.clients[0].slo_class": "high",
            "gateway.bands": [
                {"priority": 5, "fairness": "round_robin"},
                {"priority": -10, "fairness": "round_robin"},
            ],
        }
    )
    assert not waited_behind(simulation)
    figures = simulate(simulation).by_tenant()
    assert figures["a"]["p50_ttft_ms"] > 5000
    assert figures["b"]["p99_ttft_ms"] < 200


def test_check_fails_on_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bucket.yaml"
    bucket = {"kind": "token_bucket", "capacity_tokens": 400}
    file.write_text(to_yaml({"schema": 1} | with_admission(bucket).to_dict()))
    assert main(["check", str(file)]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{file}: refused, ")
    assert "gateway.admission[0].capacity_tokens: no request is admitted" in printed.err
    larger = "gateway.admission[token_bucket].capacity_tokens=500"
    assert main(["check", str(file), "--set", larger]) == 0
    assert main(["run", str(file)]) == 0


# --- token limits ---------------------------------------------------------------------------------


def with_admission(*admission: Any) -> Simulation:
    prompt = {"kind": "fixed", "tokens": 500}
    clients = [{"name": "a", "tenant": "a", "requests_per_s": 20, "input_tokens": prompt}]
    workload = {"kind": "synthetic", "duration_s": 5, "clients": clients}
    return Simulation(workload=workload, gateway={"admission": list(admission)})


@pytest.mark.parametrize(
    ("policy", "path"),
    [
        (
            {"kind": "token_bucket", "capacity_tokens": 400, "refill_tokens_per_s": 50_000},
            "capacity_tokens",
        ),
        (
            {"kind": "tenant_token_bucket", "own": [{"tenant": "a", "capacity_tokens": 499}]},
            "own[0].capacity_tokens",
        ),
        (
            {"kind": "rate_limit", "max_tokens": 700, "reserved_output_tokens": 201},
            "max_tokens",
        ),
    ],
)
def test_a_limit_below_every_prompt_is_refused(policy: Any, path: str) -> None:
    simulation = with_admission(policy)
    (finding,) = check(simulation)
    assert (finding.path, finding.is_refused) == (f"gateway.admission[0].{path}", True)
    assert simulate(simulation).ledger["admitted"] == 0


def test_a_limit_that_some_prompts_pass_is_not_refused() -> None:
    bucket = {"kind": "token_bucket", "capacity_tokens": 500, "refill_tokens_per_s": 50_000}
    exact = {"kind": "rate_limit", "max_tokens": 700, "reserved_output_tokens": 200}
    at_end = {"kind": "rate_limit", "max_tokens": 1, "charge": "at_end"}
    own = {"kind": "tenant_token_bucket", "own": [{"tenant": "a", "capacity_tokens": 500}]}
    assert check(with_admission(bucket, exact, at_end, own)) == []
