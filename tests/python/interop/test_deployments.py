"""Configuration files of real systems: golden files, round trips, losses."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.paths import TESTS
from support.random_simulations import random_simulation

from spillway import ConfigError, Simulation, gateway, router, signals, workload
from spillway.catalog import dynamo, llm_d, vllm_on_eks
from spillway.config.differences import differences
from spillway.instance import Server
from spillway.interop import deployments
from spillway.interop.deployments import TARGETS, export, import_

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
@pytest.mark.parametrize("seed", range(30))
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
@pytest.mark.parametrize("seed", range(30))
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
    (loss,) = found.losses
    assert str(loss) == (
        "instances[0].scheduler = {kind: sjf}: becomes {kind: fcfs}; "
        "vLLM orders its queue by arrival, or by priority and arrival"
    )
    assert found.outside == ("router",)


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


def test_public_names_exist() -> None:
    assert all(hasattr(deployments, one) for one in deployments.__all__)
