"""Flags and thresholds of Dynamo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.deployments import refused, written

from spillway import ConfigError, Simulation, fleet, gateway, instance, router, simulate
from spillway.files.deployments import export, import_
from spillway.systems.dynamo import presets as dynamo

if TYPE_CHECKING:
    from pathlib import Path


def expressible(name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    thresholds = {
        "active_decode_blocks_threshold": 0.85,
        "active_prefill_tokens_threshold": 10_000,
        "active_prefill_tokens_threshold_frac": 1.5 if name == "dynamo@1.2" else None,
    }
    makes = {"dynamo@1.2": dynamo.v1_2, "dynamo@1.3": dynamo.v1_3}
    make = makes.get(name, dynamo.v1_4)
    preset = make(  # type: ignore[operator]
        **thresholds, engine_request_limit=200, track_output_blocks=True, router_queue_threshold=16
    )
    later: dict[str, Any] = {  # flags from 1.3 on
        "overlap_decay": 0.5, "host_cache_hit_weight": 0.6, "disk_cache_hit_weight": 0
    }  # fmt: skip
    router_ = router.KvCost(
        overlap_credit=0.9,
        temperature=0.2,
        prefill_unit="tokens" if name == "dynamo@1.6" else "blocks",
        track_prefill=name not in ("dynamo@1.2", "dynamo@1.6"),
        overlap_refresh_after_s=0 if name == "dynamo@1.2" else 0.25,
        **({} if name == "dynamo@1.2" else later),
    )
    migration = fleet.Migration(limit=3, max_seq_len_tokens=4096)
    return preset.apply().replace(router=router_, fleet=fleet.Fleet(migration=migration)).to_dict()


DYNAMO = "python -m dynamo.frontend"


def test_dynamo_as_in_production(tmp_path: Path) -> None:
    files = {
        "frontend__sh": "python -m dynamo.frontend --http-port 8000 --router-mode kv "
        "--router-kv-overlap-score-credit 0.5 --router-queue-threshold 2",
        "busy__json": '{"model": "m", "active_prefill_tokens_threshold": 5000}',
        "worker__sh": "python -m dynamo.vllm --engine-request-limit 32 --max-num-seqs 8",
    }
    found = import_(written(tmp_path, **files), system="dynamo@1.2")
    assert found.simulation.router == router.KvCost(overlap_credit=0.5)
    filled = dynamo.v1_2(active_prefill_tokens_threshold=5000)
    assert found.simulation.busy_monitor == filled.busy_monitor
    assert found.simulation.gateway.admission[0].overload_status == 503
    assert found.simulation.instances[0].ingress.max_requests == 32
    assert found.simulation.instances[0].max_num_seqs == 8  # the engine's reader has it
    assert found.simulation.gateway.limit == (gateway.PrefillBusy(threshold=2),)
    assert found.simulation.gateway.bands[0].fairness == gateway.PolicyClasses()
    assert found.unread == ()


def test_weights_of_tiers_are_kept_from_the_version_that_knows_them(tmp_path: Path) -> None:
    text = (
        "export DYN_ROUTER_DISK_CACHE_HIT_WEIGHT=0.1\n"
        f"{DYNAMO} --router-mode kv --router-host-cache-hit-weight 0.5"
    )
    found = import_(written(tmp_path, a__sh=text), system="dynamo@1.6")
    assert found.simulation.router.host_cache_hit_weight == 0.5
    assert found.simulation.router.disk_cache_hit_weight == 0.1
    plain = import_(written(tmp_path, a__sh=f"{DYNAMO} --router-mode kv"), system="dynamo@1.6")
    assert plain.simulation.router.host_cache_hit_weight == 0.75
    assert plain.simulation.router.disk_cache_hit_weight == 0.25
    weighted = Simulation(router=router.KvCost(host_cache_hit_weight=0.5))
    losses = export(weighted, to="dynamo@1.2", allow_lossy=True).losses
    assert "router.host_cache_hit_weight" in [loss.path for loss in losses]


def test_a_flag_overrides_its_variable(tmp_path: Path) -> None:
    text = (
        "export DYN_ROUTER_MODE=random DYN_ROUTER_TEMPERATURE=0.3 DYN_ROUTER_USE_KV_EVENTS=false\n"
        "export DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD=None DYN_LOG=info\n"
        f"{DYNAMO} --router-mode kv"
    )
    found = import_(written(tmp_path, a__sh=text), system="dynamo")
    assert found.simulation.router == router.KvCost(
        temperature=0.3, overlap="sent", prefill_unit="tokens"
    )
    assert found.simulation.gateway.admission[0].to_dict()["kind"] == "always_admit"
    assert {entry.field.rpartition("$")[2] for entry in found.irrelevant} == {
        "DYN_ROUTER_MODE",
        "DYN_LOG",
    }


def test_prompts_are_counted_as_in_the_version(tmp_path: Path) -> None:
    files = list(written(tmp_path, a__sh=f"{DYNAMO} --router-mode kv"))
    units = {
        version: import_(files, system=f"dynamo@{version}").simulation.router.prefill_unit
        for version in ("1.2", "1.5", "1.6")
    }
    assert units == {"1.2": "blocks", "1.5": "blocks", "1.6": "tokens"}
    assert dynamo.v1_6().apply().router.prefill_unit == "tokens"
    simulation = Simulation(router=router.KvCost(prefill_unit="tokens"))
    (loss,) = export(simulation, to="dynamo@1.5").losses
    assert (loss.path, loss.deployed) == ("router.prefill_unit", "blocks")


def test_migration_is_that_of_the_frontend(tmp_path: Path) -> None:
    text = f"export DYN_MIGRATION_MAX_SEQ_LEN=8192\n{DYNAMO} --migration-limit 3"
    found = import_(written(tmp_path, a__sh=text), system="dynamo")
    assert found.simulation.fleet.migration == fleet.Migration(limit=3, max_seq_len_tokens=8192)
    assert found.unread == ()
    unanswered = Simulation(fleet={"migration": {"limit": 1, "answered": False}})
    losses = export(unanswered, to="dynamo@1.6").losses
    assert [loss.path for loss in losses] == ["fleet.migration.limit", "fleet.migration.answered"]


def test_overlaps_are_refreshed_after_the_time_of_a_variable(tmp_path: Path) -> None:
    text = f"export DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS=0.5\n{DYNAMO}"
    files = list(written(tmp_path, a__sh=f"{text} --router-mode kv"))
    found = import_(files, system="dynamo@1.3")
    assert found.simulation.router.overlap_refresh_after_s == 0.5
    assert found.unread == ()
    old = import_(files, system="dynamo@1.2")
    assert old.simulation.router == router.KvCost()
    assert "$DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS" in str(old.unread[0])
    other = import_(list(written(tmp_path, a__sh=text)), system="dynamo@1.3")
    assert any("OVERLAP_REFRESH" in entry.field for entry in other.irrelevant)
    wrong = [*written(tmp_path, a__sh=text.replace("0.5", "1s"))]
    assert "AFTER_SECS = '1s': must be a number of seconds >= 0" in refused(wrong, system="dynamo")


def test_a_cooldown_has_no_flag() -> None:
    preset = dynamo.v1_6(active_prefill_tokens_threshold=9)
    simulation = preset.apply().with_({"busy_monitor.overload_cooldown_s": 1.0})
    (loss,) = export(simulation, to="dynamo@1.6").losses
    assert str(loss).endswith("becomes null; no flag states it: 1 s in versions after 1.6")


def test_the_router_queues_where_that_is_the_default(tmp_path: Path) -> None:
    files = list(written(tmp_path, a__sh=f"{DYNAMO} --router-mode kv"))
    limits = [import_(files, system=f"dynamo@{version}") for version in ("1.2", "1.3", "1.4")]
    assert [found.simulation.gateway.limit for found in limits] == [
        (gateway.PrefillBusy(threshold=4),),
        (gateway.PrefillBusy(threshold=16),),
        (gateway.Unlimited(),),
    ]
    off = [*written(tmp_path, a__sh=f"{DYNAMO} --router-mode kv --router-queue-threshold None")]
    assert import_(off, system="dynamo@1.3").simulation.gateway.limit == (gateway.Unlimited(),)
    assert "whose router always queues" in refused(off, system="dynamo@1.2")
    bare = import_(off, system="dynamo@1.3").simulation
    assert export(bare, to="dynamo@1.3").losses == ()
    assert export(bare, to="dynamo@1.2").deployed.gateway.limit[0].threshold == 4


@pytest.mark.parametrize(
    ("version", "flags", "thresholds"),
    [
        ("1.2", "", (1, 10_000_000, 10)),
        ("1.2", "--active-prefill-tokens-threshold-frac None", (1, 10_000_000, None)),
        ("1.3", "", (None, None, None)),
        ("1.3", "--admission-control token-capacity", (1, 10_000_000, 64)),
        ("1.3", "--active-decode-blocks-threshold .5", (0.5, 10_000_000, 64)),
        (
            "1.3",
            "--active-decode-blocks-threshold .5 --active-prefill-tokens-threshold None",
            (0.5, None, 64),
        ),
        ("1.4", "--active-decode-blocks-threshold .5", (0.5, None, None)),
        ("1.4", "--admission-control token-capacity", (None, None, None)),
    ],
)
def test_thresholds_that_are_not_stated(
    tmp_path: Path, version: str, flags: str, thresholds: tuple[float | None, ...]
) -> None:
    files = written(tmp_path, a__sh=f"{DYNAMO} --router-mode kv {flags}")
    found = import_(files, system=f"dynamo@{version}")
    monitor = found.simulation.busy_monitor
    assert thresholds == (
        monitor.active_decode_blocks_threshold,
        monitor.active_prefill_tokens_threshold,
        monitor.active_prefill_tokens_threshold_frac,
    )
    rule = found.simulation.gateway.admission[0].to_dict()["kind"]
    assert rule == ("always_admit" if set(thresholds) == {None} else "busy_threshold")
    assert found.unread == ()


def test_thresholds_without_their_control_are_refused(tmp_path: Path) -> None:
    text = f"export DYN_ADMISSION_CONTROL=none\n{DYNAMO} --active-prefill-tokens-threshold 5"
    files = [*written(tmp_path, a__sh=text)]
    assert "contradicts the thresholds" in refused(files, system="dynamo@1.3")
    assert import_(files, system="dynamo@1.4").simulation.gateway.admission != ()


GRAPH = """\
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: disagg}
spec:
  services:
    Frontend:
      componentType: frontend
      replicas: 1
      extraPodSpec:
        mainContainer:
          command: [python3, -m, dynamo.frontend]
          args: [--router-mode, kv, --router-conditional-disagg,
                 --router-conditional-disagg-config,
                 '{"policy": "isl_or_load", "prefill_busy_threshold": 1.5}']
    VllmPrefillWorker:
      componentType: worker
      subComponentType: prefill
      replicas: 2
      extraPodSpec:
        mainContainer:
          command: [python3, -m, dynamo.vllm]
          args: [--model, Qwen/Qwen3-8B, --max-num-batched-tokens, "8192",
                 --disaggregation-mode, prefill]
    VllmDecodeWorker:
      componentType: worker
      subComponentType: decode
      replicas: 3
      extraPodSpec:
        mainContainer:
          command: [python3, -m, dynamo.vllm]
          args: [--model, Qwen/Qwen3-8B, --disaggregation-mode, decode]
"""


@pytest.mark.filterwarnings("ignore:vllm-.* is newer than the rules")
def test_a_graph_with_two_pools(tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text(GRAPH)
    found = import_(tmp_path / "graph.yaml", gpu="h100")
    groups = [(group.role, group.count) for group in found.simulation.instances]
    assert sorted(groups) == [("decode", 3), ("prefill", 2)]
    assert found.simulation.disaggregation == router.Disaggregation(
        decider=router.Conditional(rule="isl_or_load", prefill_busy_threshold=1.5),
        ends_at_first_token=True,
        reads_on=True,
    )
    result = simulate(found.simulation.with_({"workload.num_requests": 20}))
    assert result.ledger["legs"]["transfers_ended"] > 0


def test_pools_come_back(tmp_path: Path) -> None:
    """Workers by their flags, without a description of their surroundings."""
    pools = [instance.InstanceGroup(role=role) for role in ("prefill", "decode")]
    simulation = Simulation(
        instances=pools,
        router=router.KvCost(prefill_unit="tokens"),
        disaggregation=router.Disaggregation(ends_at_first_token=True, reads_on=True),
    )
    files = export(simulation, to="dynamo").files
    assert "--disaggregation-mode prefill" in files["worker-0.sh"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    onto = Simulation(router=router.KvCost())
    found = import_([tmp_path / name for name in files], onto=onto)
    assert [group.role for group in found.simulation.instances] == ["prefill", "decode"]
    assert found.simulation.disaggregation == simulation.disaggregation


def test_a_prefill_pool_alone_is_refused(tmp_path: Path) -> None:
    text = "python -m dynamo.vllm --model m --disaggregation-mode prefill --max-num-seqs 8"
    (tmp_path / "a.sh").write_text(text)
    with pytest.raises(ConfigError, match="must hold a group with role: decode"):
        import_(tmp_path / "a.sh", system="dynamo")
    text = text.replace("prefill", "encode")
    (tmp_path / "a.sh").write_text(text)
    with pytest.raises(ConfigError, match="encode images"):
        import_(tmp_path / "a.sh", system="dynamo")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[1]", "must be a JSON object"),
        ("{", "not valid JSON"),
        ('{"policy": "isl_or_load"}', "prefill_busy_threshold: must be set"),
        ('{"policy": "sometimes"}', "rule = 'sometimes'"),
    ],
)
def test_wrong_conditions_are_refused(config: str, message: str, tmp_path: Path) -> None:
    flags = f"--router-conditional-disagg --router-conditional-disagg-config='{config}'"
    (tmp_path / "a.sh").write_text(f"{DYNAMO} --router-mode kv {flags}")
    with pytest.raises(ConfigError, match=message):
        import_(tmp_path / "a.sh", system="dynamo")


def test_conditions_without_pools_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(f"{DYNAMO} --router-mode kv --router-conditional-disagg")
    (entry,) = import_(tmp_path / "a.sh", system="dynamo").unread
    assert entry.reason == "no worker is of a prefill pool"


@pytest.mark.parametrize(
    ("worker", "seats"),
    [
        ("dynamo.sglang --model-path m --max-running-requests 24", 24),
        ("dynamo.trtllm --model-path m --max-batch-size 24", 24),
        ("dynamo.vllm --model m --max-num-seqs 24 --no-enable-prefix-caching", 24),
    ],
)
def test_workers_of_every_engine(tmp_path: Path, worker: str, seats: int) -> None:
    found = import_(written(tmp_path, a__sh=f"python3 -m {worker}"), system="dynamo")
    assert found.simulation.instances[0].max_num_seqs == seats


REFUSED = {
    "a.yaml": [
        ("python -m dynamo.frontend --router-temperature hot", "must be a finite number"),
        (
            f"export DYN_HTTP_OVERLOAD_STATUS_CODE=x\n{DYNAMO} --active-prefill-tokens-threshold 5",
            "DYN_HTTP_OVERLOAD_STATUS_CODE = 'x': must be a status",
        ),
    ]
}
