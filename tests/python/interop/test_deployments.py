"""Configuration files of real systems: golden files, round trips, losses."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.effort import few_of
from support.paths import ROOT, TESTS
from support.random_simulations import random_simulation
from support.readers import places_in, with_changed

from spillway import ConfigError, Simulation, gateway, instance, router, signals, workload
from spillway.catalog import dynamo, llm_d, vllm_on_eks
from spillway.config.differences import differences
from spillway.instance import Server
from spillway.interop.deployments import TARGETS, carriers, export, import_

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOLDEN = TESTS / "data" / "deployments"
NAMES = [f"{one.name}@{version}" for one in TARGETS.values() for version in one.versions]


def expressible(name: str) -> Simulation:
    """A simulation of which a system carries every setting that it decides."""
    return Simulation().with_(EXPRESSIBLE[name.partition("@")[0]](name))


def _vllm(name: str) -> dict[str, Any]:
    engine = name.replace("@", "-")
    server = Server(model="llama-3.3-70b", gpu="h100", tp=4, engine=engine).group
    limited = {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 4096,
        "long_prefill_token_threshold": 1024,
        "max_model_len": 16384,
        "block_size_tokens": 32,
        "data_parallel_size": 2,
        "kv_cache": {"prefix_caching": False, "reserve_full_prompt": True},
        "async_scheduling": False,
        "scheduler": {"kind": "priority_fcfs", "victim": "lowest_priority"},
    }
    if engine == "vllm-0.29":
        limited["ingress"] = {
            "kind": "vllm_queue_limits",
            "max_num_queued_reqs": 200,
            "max_num_queued_tokens": 400_000,
        }
    return {"instances": [server.to_dict(), limited]}


def _llm_d(name: str) -> dict[str, Any]:  # noqa: ARG001
    fairness = gateway.LeastAttainedService(service_weight=0.7, half_life_s=30)
    queue = gateway.Queue(timeout_s=20, ordering="slo_deadline")
    preset = llm_d.flow_control(
        detector="utilization",
        usage_limit=gateway.PriorityHoldback(min_ceiling=0.4),
        evicts_in_flight=True,
    )
    bands = [
        one.replace(
            fairness=gateway.TenantRoundRobin() if one.priority < 0 else fairness, queue=queue
        )
        for one in preset.gateway.bands
    ]
    limit = gateway.Saturation(queue_depth_threshold=8, kv_utilization_threshold=0.7)
    return {
        "gateway": preset.gateway.replace(
            admission=gateway.Probabilistic(k=200), bands=bands, limit=limit, max_queued=9000
        ),
        "signals": preset.signals.replace(stale_after_s=0.5),
        "router": {
            "kind": "weighted",
            "filters": [{"kind": "prefix_cache_affinity"}],
            "scorers": [
                {"kind": "precise_prefix_cache", "weight": 3},
                {"kind": "load_aware", "weight": 1.5},
            ],
            "picker": {"kind": "best", "ties": "random"},
        },
    }


def _dynamo(name: str) -> dict[str, Any]:
    thresholds = {
        "active_decode_blocks_threshold": 0.85,
        "active_prefill_tokens_threshold": 10_000,
        "active_prefill_tokens_threshold_frac": 1.5 if name == "dynamo@1.2" else None,
    }
    make = dynamo.v1_2 if name == "dynamo@1.2" else dynamo.v1_3
    preset = make(**thresholds, engine_request_limit=200, track_output_blocks=True)  # type: ignore[arg-type]
    router_ = router.KvCost(overlap_credit=0.9, overlap_decay=0.5, temperature=0.2)
    return preset.apply().replace(router=router_).to_dict()


def _envoy(name: str) -> dict[str, Any]:  # noqa: ARG001
    controller = gateway.EnvoyGradient(min_concurrency=8, jitter=0.1, buffer=0.4, request_count=80)
    return {
        "gateway": gateway.Gateway(
            admission=gateway.EnvoyAdmission(success_threshold=0.97, window_s=12.5, aggression=2),
            limit=gateway.FixedLimit(max_in_flight=8),
            max_queued=1,
            controller=controller,
            guard=gateway.Guard(floor=8, ceiling=600, demand_gate=False),
            sensor=signals.Sensor(source="e2e", tick_s=0.1),
        )
    }


def _vllm_on_eks(name: str) -> dict[str, Any]:
    make = vllm_on_eks.post4 if name.endswith("2dca487") else vllm_on_eks.post5
    preset = make(workers=3)
    clients = [workload.Client(name=one.name, tenant=one.name) for one in preset.tenants]
    return {
        "gateway": preset.gateway,
        "tenants": preset.tenants,
        "workload": workload.Synthetic(clients=clients),
    }


EXPRESSIBLE = {
    "vllm": _vllm,
    "llm-d": _llm_d,
    "dynamo": _dynamo,
    "envoy": _envoy,
    "vllm-on-eks": _vllm_on_eks,
}


def test_every_system_has_an_example() -> None:
    assert EXPRESSIBLE.keys() == TARGETS.keys()


@pytest.mark.parametrize("name", NAMES)
def test_files_equal_the_golden_ones(name: str) -> None:
    found = export(expressible(name), to=name)
    folder = GOLDEN / name.replace("@", "_")
    if os.environ.get("SPILLWAY_WRITE_GOLDEN"):
        found.write(folder)
    assert found.files == {one.name: one.read_text() for one in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_system_can_express_is_equal(name: str, tmp_path: Path) -> None:
    simulation = expressible(name)
    found = export(simulation, to=name)
    assert found.losses == ()
    assert found.deployed == simulation
    found.write(tmp_path)
    imported = import_(tmp_path, system=name, onto=simulation)
    assert imported.simulation == simulation
    assert imported.unread == ()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", few_of(range(30), 3))
def test_export_import_export_is_a_fixed_point(name: str, seed: int, tmp_path: Path) -> None:
    simulation = random_simulation(f"deployments {seed}").simulation
    try:
        found = export(simulation, to=name)
    except ConfigError as error:
        assert "cannot be" in str(error)  # noqa: PT017
        pytest.skip(str(error))
    if not found.write(tmp_path):
        pytest.skip("the simulation has nothing of this system")
    imported = import_(tmp_path, system=name, onto=found.deployed)
    assert imported.unread == ()
    assert imported.simulation == found.deployed
    assert export(imported.simulation, to=name).files == found.files
    assert export(imported.simulation, to=name).losses == ()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", few_of(range(30), 3))
def test_losses_are_all_that_differs(name: str, seed: int) -> None:
    simulation = random_simulation(f"deployments {seed}").simulation
    try:
        found = export(simulation, to=name)
    except ConfigError as error:
        assert "cannot be" in str(error)  # noqa: PT017
        pytest.skip(str(error))
    lost = {loss.path: loss.deployed for loss in found.losses}
    for one in differences(simulation.to_dict(), found.deployed.to_dict()):
        if isinstance(one.before, float) and one.after == pytest.approx(
            one.before, rel=1e-9, abs=1e-9
        ):
            continue
        assert lost.pop(one.path) == one.after
    assert not lost
    assert all(loss.reason for loss in found.losses)


def test_settings_of_other_systems_are_losses() -> None:
    simulation = Simulation().with_({"instances[0].scheduler": "sjf", "router": "least_loaded"})
    found = export(simulation, to="vllm")
    routed, loss = found.losses
    assert (routed.path, routed.reason) == ("router", "not up to vllm")
    assert str(loss) == (
        "instances[0].scheduler = {kind: sjf}: becomes {kind: fcfs}; "
        "vLLM orders its queue by arrival, or by priority and arrival"
    )
    assert found.outside == ()
    kept = export(simulation, to="vllm", rest="kept")
    assert kept.losses == (loss,)
    assert kept.outside == ("router",)
    assert kept.deployed.router == simulation.router


GUARDED = {
    "gateway": {"admission": [{"kind": "token_bucket"}], "limit": [{"kind": "dual_limit"}]},
    "router": "least_loaded",
    "tenants": [{"name": "default", "max_in_flight": 3}],
    "instances": {"ingress": "engine_request_limit", "num_kv_blocks": 5000},
}


@pytest.mark.parametrize("name", NAMES)
def test_policies_that_nothing_deploys_are_absent(name: str, tmp_path: Path) -> None:
    """Only what the files carry is left of the policies; servers stay."""
    simulation = Simulation().with_(GUARDED)
    found = export(simulation, to=name)
    deployed = found.deployed
    assert deployed.gateway.limit == Simulation().gateway.limit
    assert deployed.tenants[0].max_in_flight is None
    assert deployed.instances[0].num_kv_blocks == 5000
    lost = {one.path: one.kinds for one in found.lost_guards}
    has_gate = name.startswith("dynamo")
    assert lost.keys() == {
        "gateway.admission",
        "gateway.limit",
        *([] if has_gate else ["instances[0].ingress"]),
    }
    assert lost["gateway.limit"] == ("dual_limit",)
    # Files onto the original are the system with the rest kept.
    if found.write(tmp_path):
        imported = import_(tmp_path, system=name, onto=simulation).simulation
        assert imported == export(simulation, to=name, rest="kept").deployed


def test_losses_of_numbers_and_neutral_policies_are_no_lost_guards() -> None:
    limit = gateway.Saturation(queue_depth_threshold=7.5)
    found = export(Simulation(gateway=gateway.Gateway(limit=limit)), to="llm-d")
    assert "gateway.limit[0].queue_depth_threshold" in {one.path for one in found.losses}
    assert found.lost_guards == ()
    # llm-d adds its saturation check to a gateway that always admits.
    bare = export(Simulation(), to="llm-d")
    assert "gateway.admission" in {one.path for one in bare.losses}
    assert bare.lost_guards == ()


def test_changes_of_policies_that_are_gone_are_lost() -> None:
    changes = [{"at_s": 1, "set": {"gateway.limit[0].max_in_flight": 4, "gateway.max_queued": 2}}]
    limit = gateway.FixedLimit(max_in_flight=8)
    simulation = Simulation(gateway=gateway.Gateway(limit=limit, max_queued=5)).with_(
        {"changes": changes}
    )
    found = export(simulation, to="vllm")
    (change,) = found.deployed.to_dict()["changes"]
    assert change["set"] == {"gateway.max_queued": 2}
    assert "the system lacks the setting that changes" in {one.reason for one in found.losses}
    assert export(simulation, to="vllm", rest="kept").deployed == simulation


def test_other_values_of_rest_are_refused() -> None:
    with pytest.raises(ConfigError, match="rest = 'gone': must be one of absent, kept"):
        export(Simulation(), to="vllm", rest="gone")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("gateway.limit.saturation", {"llm-d@0.10"}),
        ("gateway.usage_limit.priority_holdback", {"llm-d@0.10"}),  # beside saturation only
        ("gateway.controller.aimd", {"vllm-on-eks@2dca487", "vllm-on-eks@0c78403"}),
        ("gateway.admission.busy_threshold", {"dynamo@1.2", "dynamo@1.3"}),
        ("instances[0].ingress.vllm_queue_limits", {"vllm@0.29"}),
        ("router.weighted.scorers.queue_depth", {"llm-d@0.10"}),
        ("gateway.limit.dual_limit", set()),
        ("fleet.autoscaler.queue", set()),
        ("gateway.limit", None),
        ("workload.synthetic.clients.arrivals.poisson", None),
    ],
)
def test_carriers_are_the_systems_whose_files_keep_the_policy(
    path: str, expected: set[str] | None
) -> None:
    found = carriers(path)
    assert (found if found is None else {one.target for one in found}) == expected


def test_a_carrier_names_what_it_loses() -> None:
    (old, new) = carriers("gateway.controller.aimd") or ()
    assert str(old) == "vllm-on-eks@2dca487 (not decrease)"  # it cuts by a step only
    assert new.lost == ()
    assert carriers("gateway.limit.saturation", to="envoy") == ()


def test_the_version_of_a_servers_defaults_is_noted() -> None:
    stated = {"model": "llama-3.1-8b", "gpu": "h100"}
    simulation = Simulation(instances=Server(**stated).group)
    (note,) = export(simulation, to="vllm@0.29").notes
    assert "has the defaults of vllm-0.19, and is written for 0.29" in note
    assert export(simulation, to="vllm@0.19").notes == ()
    same = Simulation(instances=Server(**stated, engine="vllm-0.29").group)
    assert export(same, to="vllm@0.29").notes == ()
    assert export(Simulation(), to="vllm@0.29").notes == ()


def refused(*arguments: Any, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        import_(*arguments, **options)
    return str(caught.value)


def test_unknown_systems_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"to = 'k8s': must be one of vllm"):
        export(Simulation(), to="k8s")
    with pytest.raises(ConfigError, match=r"must be one of vllm@0.19, vllm@0.29"):
        export(Simulation(), to="vllm@0.1")
    assert "cannot be read" in refused(tmp_path / "missing.sh", system="vllm")
    assert "at least one file" in refused(tmp_path, system="vllm")


def written(folder: Path, **files: str) -> Iterator[Path]:
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(text)
        yield path


def test_vllm_as_in_production(tmp_path: Path) -> None:
    files = written(
        tmp_path,
        a__sh="# started by systemd\nvllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2 \\\n"
        "  --max-model-len=8K --max_num_seqs 96 --no-enable-prefix-caching --seed 7",
    )
    found = import_(files, system="vllm@0.19")
    (group,) = found.simulation.instances
    assert (group.max_model_len, group.max_num_seqs) == (8192, 96)
    assert not group.kv_cache.prefix_caching
    assert group.async_scheduling  # the default of that version
    assert group.num_kv_blocks == Simulation().instances[0].num_kv_blocks
    assert [(one.field.partition(": ")[2], one.value) for one in found.unread] == [
        ("model", "meta-llama/Llama-3.1-8B-Instruct"),
        ("tensor-parallel-size", 2),
        ("seed", 7),
    ]


def test_vllm_servers_are_computed(tmp_path: Path) -> None:
    text = "model: meta-llama/Llama-3.1-8B-Instruct\ntensor_parallel_size: 2\nmax-num-seqs: 96\n"
    found = import_(written(tmp_path, a__yaml=text), system="vllm@0.19", gpu="h100")
    model = "meta-llama/Llama-3.1-8B-Instruct"
    server = Server(model=model, gpu="h100", tp=2, max_num_seqs=96, engine="vllm-0.19")
    assert found.simulation.instances == (server.group,)
    assert found.unread == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vllm serve x --max-num-seqs many", "a.sh: max-num-seqs = 'many': must be a whole number"),
        ("vllm serve x --max-num-seqs 0", "max_num_seqs = 0: must be >= 1"),
        ("vllm serve x --scheduling-policy lifo", "'lifo': must be one of fcfs, priority"),
        ("vllm serve 'x", "a.sh: not a command line"),
    ],
)
def test_vllm_refuses(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(written(tmp_path, a__sh=text), system="vllm")


@pytest.mark.parametrize(
    ("flags", "gate", "unread"),
    [
        ("", instance.Open(), 0),
        (
            "--max-num-queued-reqs 40",
            instance.DualLimitGate(request_limit=40, wait_limit=40, queue_size=0),
            0,
        ),
        ("--max-num-queued-tokens 9K", instance.VllmQueueLimits(max_num_queued_tokens=9216), 0),
        (
            "--max-num-queued-reqs 40 --max-num-queued-tokens 900",
            instance.VllmQueueLimits(max_num_queued_reqs=8, max_num_queued_tokens=900),
            0,
        ),
        (
            "--max-num-queued-reqs 30 --max-num-queued-tokens 900",
            instance.DualLimitGate(request_limit=30, wait_limit=30, queue_size=0),
            1,
        ),
        ("--max-num-queued-reqs 0", instance.VllmQueueLimits(max_num_queued_reqs=0), 0),
    ],
)
def test_limits_of_the_queue_count_running_requests(
    tmp_path: Path, flags: str, gate: Any, unread: int
) -> None:
    """32 seats: 2 ranks of 16."""
    text = f"vllm serve $MODEL --max-num-seqs 16 --data-parallel-size 2 {flags}"
    found = import_(written(tmp_path, a__sh=text), system="vllm@0.29")
    assert found.simulation.instances[0].ingress == gate
    assert len(found.unread) == unread


def test_a_limit_of_waiting_requests_is_a_loss() -> None:
    """vLLM counts the running ones too, also where memory and not seats bounds the batch."""
    gate = instance.VllmQueueLimits(max_num_queued_reqs=8)
    simulation = Simulation(instances=instance.InstanceGroup(max_num_seqs=16, ingress=gate))
    found = export(simulation, to="vllm@0.29")
    assert "--max-num-queued-reqs 24" in found.files["vllm-0.sh"]
    (loss,) = found.losses
    assert (loss.path, loss.deployed["request_limit"]) == ("instances[0].ingress", 24)


def test_several_command_lines_are_several_groups(tmp_path: Path) -> None:
    texts = {f"vllm-{i}__sh": f"vllm serve x --max-num-seqs {i + 1}" for i in (10, 2)}
    found = import_(written(tmp_path, **texts), system="vllm")
    assert [one.max_num_seqs for one in found.simulation.instances] == [3, 11]
    assert "must be as many as the groups of instances: 2" in refused(
        written(tmp_path, a__sh="vllm serve x"), system="vllm", onto=found.simulation
    )


def test_yaml_of_golden_files_is_read_by_another_parser() -> None:
    for path in GOLDEN.rglob("*.yaml"):
        assert list(yaml.safe_load_all(path.read_text()))


def test_the_guide_names_every_system_and_version() -> None:
    page = (ROOT / "docs" / "guides" / "export_to_production.md").read_text(encoding="utf-8")
    for one in TARGETS.values():
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{one.name}` |"))
        assert row.endswith(f"| {', '.join(one.versions)} |")


EPP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: epp}
data:
  plugins.yaml: |
    apiVersion: llm-d.ai/v1alpha1
    kind: EndpointPickerConfig
    featureGates: [flowControl, prepareDataPlugins]
    plugins:
    - {type: queue-scorer}
    - {type: my-scorer, parameters: {depth: 3}}
    - {type: max-score-picker}
    - {name: detector, type: concurrency-detector, parameters: {maxConcurrency: 24, headroom: 0.1}}
    - {type: holdback, parameters: {}}
    schedulingProfiles:
    - name: default
      plugins:
      - {pluginRef: queue-scorer, weight: 2}
      - {pluginRef: my-scorer}
      - {pluginRef: max-score-picker}
    flowControl:
      maxBytes: 1000
      defaultRequestTTL: 1m30s
      saturationDetector: {pluginRef: detector}
      priorityBands:
      - {priority: 4, maxRequests: 7}
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: premium}
spec: {priority: 9, poolRef: {name: pool}}
"""


def test_llm_d_as_in_production(tmp_path: Path) -> None:
    found = import_(written(tmp_path, epp__yaml=EPP), system="llm-d")
    simulation = found.simulation
    assert simulation.gateway.limit == (
        gateway.Saturation(detector="concurrency", max_concurrency=24),
    )
    assert simulation.gateway.dispatch == "one_per_attempt"
    # A band for every priority: those of the default classes, of the objective, and of the file.
    bands = {one.priority: one.max_requests for one in simulation.gateway.bands}
    assert bands == {4: 7, 9: 5000, 3: 5000, -1: 5000, -2: 5000, -3: 5000}
    assert {one.queue.timeout_s for one in simulation.gateway.bands} == {90}
    assert {one.name: one.priority for one in simulation.slo_classes}["premium"] == 9
    assert simulation.router == router.Weighted(
        scorers=[router.QueueDepth(weight=2)], picker=router.Best(ties="random")
    )
    fields = {one.field.rpartition("plugins.yaml: ")[2]: one.value for one in found.unread}
    assert fields == {
        "featureGates": "prepareDataPlugins",
        "schedulingProfiles[0]: plugins[1]: pluginRef": "my-scorer",
        "plugins[1]: parameters: depth": 3,
        "plugins[3]: parameters: headroom": 0.1,
        "plugins[4]: type": "holdback",
        "flowControl: maxBytes": 1000,
    }


def test_llm_d_without_its_feature_gate(tmp_path: Path) -> None:
    text = """\
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: probabilistic-admitter, parameters: {k: 100}}]
flowControl: {maxRequests: 5}
"""
    found = import_(written(tmp_path, epp__yaml=text), system="llm-d")
    assert found.simulation.gateway == gateway.Gateway(
        admission=[gateway.GaieLegacy(), gateway.Probabilistic(k=100)]
    )
    (unread,) = found.unread
    assert str(unread).endswith(
        "flowControl = {maxRequests: 5}: is ignored without the feature gate flowControl"
    )


GATED = "featureGates: [flowControl]"
DYNAMO = "python -m dynamo.frontend"
FILTERS = "type.googleapis.com/envoy.extensions.filters.http"
ADMISSION = f"'@type': {FILTERS}.admission_control.v3.AdmissionControl"


@pytest.mark.parametrize(
    ("system", "text", "message"),
    [
        ("llm-d", "kind: Service", "must contain one EndpointPickerConfig"),
        ("llm-d", "kind: EndpointPickerConfig\nplugins: [{name: x}]", "plugins[0]: type: is miss"),
        (
            "llm-d",
            f"kind: EndpointPickerConfig\n{GATED}\nflowControl: {{defaultRequestTTL: soon}}",
            "flowControl: defaultRequestTTL = 'soon': must be a duration such as 60s",
        ),
        (
            "llm-d",
            "kind: EndpointPickerConfig\nsaturationDetector: {pluginRef: mine}",
            "must be a utilization-detector or a concurrency-detector",
        ),
        ("dynamo", "python -m dynamo.frontend --router-temperature hot", "must be a finite number"),
        (
            "dynamo",
            f"export DYN_HTTP_OVERLOAD_STATUS_CODE=x\n{DYNAMO} --active-prefill-tokens-threshold 5",
            "DYN_HTTP_OVERLOAD_STATUS_CODE = 'x': must be a status",
        ),
        ("vllm-on-eks", "caps_enabled: true\nnum_workers: 2", "cap_per_worker: is missing"),
        (
            "vllm-on-eks",
            "num_workers: 2\ncap_per_worker: 4\ntenants: [{id: a, weight: two}]",
            "tenants[0]: weight = 'two': must be a whole number",
        ),
        (
            "envoy",
            f"typed_config: {{'@type': {FILTERS}.adaptive_concurrency.v3.AdaptiveConcurrency}}",
            "concurrency_update_interval: is missing",
        ),
        ("envoy", "typed_config: [", "not valid YAML"),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, system: str, text: str, message: str) -> None:
    assert message in refused(written(tmp_path, a__yaml=text), system=system)


WRONG = [None, True, -1, 0, 3, 2.5, float("inf"), "", "x", [], [1], {}, {"a": 1}, "9" * 400]
WORDS = ["-5", "x", "'", "--", "=", "--=", "{}", "[", "1e999", "nan", "", "--max-num-seqs"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", few_of(range(20), 2))
def test_damaged_files_raise_nothing_else(name: str, seed: int, tmp_path: Path) -> None:
    """A value of another type, or another word, at a random place of a golden file."""
    rng = random.Random(f"{name} {seed}")
    texts = {one.name: one.read_text() for one in (GOLDEN / name.replace("@", "_")).iterdir()}
    file = rng.choice(sorted(texts))
    if file.endswith((".yaml", ".json")):
        content = yaml.safe_load(texts[file])
        place = rng.choice(list(places_in(content)))
        texts[file] = yaml.safe_dump(with_changed(content, place, lambda _: rng.choice(WRONG)))
    else:
        words = texts[file].split(" ")
        words[rng.randrange(len(words))] = rng.choice(WORDS)
        texts[file] = " ".join(words)
    for one, text in texts.items():
        (tmp_path / one).write_text(text)
    with contextlib.suppress(ConfigError):
        assert import_(tmp_path, system=name).simulation


def test_dynamo_as_in_production(tmp_path: Path) -> None:
    files = {
        "frontend__sh": "python -m dynamo.frontend --http-port 8000 --router-mode kv "
        "--router-kv-overlap-score-credit 0.5 --router-queue-threshold 2",
        "busy__json": '{"model": "m", "active_prefill_tokens_threshold": 5000}',
        "worker__sh": "python -m dynamo.vllm --engine-request-limit 32 --max-num-seqs 8",
    }
    found = import_(written(tmp_path, **files), system="dynamo@1.2")
    assert found.simulation.router == router.KvCost(overlap_credit=0.5)
    # Dynamo 1.2 fills in the thresholds that are not given.
    filled = dynamo.v1_2(active_prefill_tokens_threshold=5000)
    assert found.simulation.busy_monitor == filled.busy_monitor
    assert found.simulation.gateway.admission[0].overload_status == 503
    assert found.simulation.instances[0].ingress.max_requests == 32
    assert {one.field.rpartition(": ")[2]: one.value for one in found.unread} == {
        "router-queue-threshold": 2,
        "max-num-seqs": 8,
    }


def test_filters_are_found_in_an_envoy_configuration(tmp_path: Path) -> None:
    text = f"""\
static_resources:
  listeners:
  - name: main
    filter_chains:
    - filters:
      - typed_config:
          http_filters:
          - name: envoy.filters.http.admission_control
            typed_config:
              "@type": {FILTERS}.admission_control.v3.AdmissionControl
              sampling_window: 5s
              sr_threshold: {{default_value: {{value: 90}}, runtime_key: a}}
              success_criteria: {{grpc_criteria: {{grpc_success_status: [0]}}}}
"""
    found = import_(written(tmp_path, envoy__yaml=text), system="envoy")
    admission = gateway.EnvoyAdmission(window_s=5, success_threshold=0.9)
    assert found.simulation.gateway == gateway.Gateway(admission=admission)
    (unread,) = found.unread
    assert unread.field.endswith("typed_config: success_criteria")
    off = text.replace("sampling_window: 5s", "enabled: {default_value: false}")
    found = import_(written(tmp_path, envoy__yaml=off), system="envoy")
    assert found.simulation == Simulation()
    assert "is switched off" in str(found.unread[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning:envoy_data_plane")
def test_envoy_files_parse_with_its_protos() -> None:
    """With the package envoy-data-plane, which refuses unknown fields."""
    pytest.importorskip("envoy_data_plane")
    for name, message in {
        "admission_control": "AdmissionControl",
        "adaptive_concurrency": "AdaptiveConcurrency",
    }.items():
        protos = importlib.import_module(
            f"envoy_data_plane.envoy.extensions.filters.http.{name}.v3"
        )
        content = yaml.safe_load((GOLDEN / "envoy_v3" / f"{name}.yaml").read_text())
        config = content["typed_config"]
        assert config.pop("@type").endswith(f"{name}.v3.{message}")
        assert bytes(getattr(protos, message).from_dict(config))


TENANTS = """\
caps_enabled: true
num_workers: 2
cap_per_worker: 64
aimd: {enabled: true, target_p99_ttft_s: 2.0, tick_s: 5.0, window_s: 30.0, cap_per_worker_min: 16,
  cap_per_worker_max: 128, target_band_pct: 0.2, cooldown_ticks: 3, decrease_step: 4}
worker_watcher: {enabled: true, namespace: vllm, service_name: engine}
tenants:
- {id: A, name: paying, weight: 2, queue_max: 8, key_env: A}
- {id: B, name: free, weight: 1, queue_max: 2, key_env: B}
- {id: C, name: background, weight: 1, queue_max: 2, key_env: C}
"""


def test_the_published_tenants_file_is_the_preset(tmp_path: Path) -> None:
    preset = vllm_on_eks.post4(workers=None)
    files = written(tmp_path, tenants__yaml=TENANTS)
    found = import_(files, system="vllm-on-eks@2dca487")
    assert found.simulation.gateway == preset.gateway
    assert found.simulation.tenants[:3] == preset.tenants
    assert found.simulation.tenants[3].name == "default"  # of the workload
    assert found.unread == ()


def test_the_preset_of_llm_d_is_carried() -> None:
    simulation = (
        llm_d.flow_control()
        .apply()
        .replace(router=router.Weighted(picker=router.Best(ties="random")))
    )
    assert export(simulation, to="llm-d").losses == ()


NONSENSE = {
    "text": "hello\n",
    "empty": "",
    "json": '{"a": 1}',
    "yaml": "a: 1\n",
    "list": "- 1\n- 2\n",
    "null": "null\n",
    "script": "#!/bin/sh\necho hello --verbose\n",
}


@pytest.mark.parametrize("system", TARGETS)
@pytest.mark.parametrize("suffix", ["yaml", "json", "sh", "txt"])
@pytest.mark.parametrize("name", NONSENSE)
def test_a_file_in_which_nothing_is_known_is_refused(
    tmp_path: Path, name: str, suffix: str, system: str
) -> None:
    path = tmp_path / f"some.{suffix}"
    path.write_text(NONSENSE[name])
    message = refused(path, system=system)
    assert f"some.{suffix}" in message
    assert "must" in message or "missing" in message or "not valid" in message


@pytest.mark.parametrize(
    ("system", "files", "unknown"),
    [
        ("dynamo", {"a__sh": DYNAMO, "README__md": "read me"}, "README.md"),
        (
            "envoy",
            {
                "a__yaml": ADMISSION,
                "b__yaml": "a: 1",
            },
            "b.yaml",
        ),
    ],
)
def test_files_beside_known_ones_are_listed(
    tmp_path: Path, system: str, files: dict[str, str], unknown: str
) -> None:
    found = import_(written(tmp_path, **files), system=system)
    (one,) = (one for one in found.unread if one.field.endswith(unknown))
    assert str(one).partition(": ")[2].startswith("nothing in it is known: not ")


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "NaN", "1e999"])
@pytest.mark.parametrize(
    ("system", "text", "field"),
    [
        ("dynamo", f"{DYNAMO} --router-mode kv --router-temperature VALUE", "router-temperature"),
        ("dynamo", f"{DYNAMO} --active-prefill-tokens-threshold VALUE", "active-prefill-tokens"),
        ("vllm", "vllm serve m --gpu-memory-utilization VALUE", "gpu-memory-utilization"),
        ("vllm", "vllm serve m --max-num-seqs VALUE", "max-num-seqs"),
        ("vllm-on-eks", "num_workers: VALUE\ncap_per_worker: 4", "num_workers"),
        (
            "envoy",
            f"{ADMISSION}\naggression: {{default_value: VALUE}}",
            "aggression: default_value",
        ),
    ],
)
def test_values_that_are_not_finite_are_refused(
    tmp_path: Path, system: str, text: str, field: str, value: str
) -> None:
    message = refused(written(tmp_path, a__yaml=text.replace("VALUE", value)), system=system)
    assert field in message
    assert "must be a" in message
