"""Servers of the catalog: what they hold, how fast they are, and where it is from."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.paths import SHARED

import spillway
from spillway import ConfigError, Simulation, instance
from spillway.calibration import Profile
from spillway.calibration.hull import Hull
from spillway.calibration.profile import FittedRun
from spillway.calibration.refinement import COEFFICIENTS
from spillway.data.recording import ServerFacts
from spillway.files.recordings import read_recordings
from spillway.servers import Server, accelerators, models, uncertainty
from spillway.servers.data_files import entries

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Server(model="llama-3.1-8b", gpu="h100")


def settings_file(folder: Path, text: str) -> Path:
    path = folder / "simulation.yaml"
    path.write_text(f"schema: 1\n{text}\n")
    return path


def test_the_default_instance_is_this_server() -> None:
    assert SMALL.group.replace(provenance="") == instance.InstanceGroup()
    assert SMALL.version.name == "vllm-0.19"  # as its documentation says


RECORDED_FOLDERS = ("vllm_h100", "llmservingsim", "vllm_h100_qwen3_14b")


@pytest.mark.filterwarnings("ignore::UserWarning")  # of columns and requests that are not read
@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason=f"{SHARED / 'data'} is missing")
@pytest.mark.parametrize("folder", RECORDED_FOLDERS)
def test_the_kv_memory_is_that_of_real_servers(folder: str) -> None:
    servers = {recording.server for recording in read_recordings(SHARED / "data" / folder)}
    known = [facts for facts in servers if facts.num_kv_blocks]
    assert known
    for facts in known:
        version = (facts.engine_version or "0.15").split(".")
        server = Server(
            model=facts.model or "",
            gpu=facts.gpu or "",
            tp=facts.tensor_parallel_size or 1,
            engine=f"vllm-{version[0]}.{version[1]}",
            max_num_seqs=facts.max_num_seqs,
            max_num_batched_tokens=facts.max_num_batched_tokens,
        )
        blocks = server.group.num_kv_blocks
        assert blocks == pytest.approx(facts.num_kv_blocks, rel=0.05), facts.key


def server_or_reason(model: str, gpu: str) -> instance.InstanceGroup | str:
    try:
        return Server(model=model, gpu=gpu, tp=8).group
    except ConfigError as error:
        return str(error)


def test_every_pair_of_the_catalog_is_a_server_or_says_what_it_needs() -> None:
    fits = 0
    for model in models():
        for gpu in accelerators():
            group = server_or_reason(model, gpu)
            if isinstance(group, str):
                assert re.search(r"needs [\d.]+ GB|must divide the", group)
                continue
            fits += 1
            assert group.latency.weights_us > 0
            assert "server {model:" in group.provenance
    assert fits > len(models()) * len(accelerators()) / 2


def test_a_larger_server_is_faster_and_holds_more() -> None:
    single, four = SMALL.group, dataclasses.replace(SMALL, tp=4).group
    assert four.num_kv_blocks > 4 * single.num_kv_blocks
    assert four.latency.weights_us == pytest.approx(single.latency.weights_us / 4)
    assert four.latency.decode_context_us == pytest.approx(single.latency.decode_context_us / 4)
    assert four.latency.constant_us > single.latency.constant_us  # all-reduces


def test_a_pipeline_holds_as_much_and_keeps_a_batch_per_stage() -> None:
    large = Server(model="llama-3.3-70b", gpu="h100", tp=4)
    wide, deep = large.group, dataclasses.replace(large, tp=2, pp=2).group
    held = deep.data_parallel_size * deep.num_kv_blocks
    assert held == pytest.approx(wide.num_kv_blocks, rel=0.01)
    assert deep.data_parallel_size * deep.max_num_seqs == wide.max_num_seqs
    two = dataclasses.replace(large, tp=2, dtype="fp8")
    flat, deep = two.group, dataclasses.replace(two, pp=2).group
    assert deep.latency.weights_us == flat.latency.weights_us
    assert 0 < deep.latency.constant_us - flat.latency.constant_us < 100  # one transfer


def test_data_parallel_ranks_share_experts_and_exchange_tokens() -> None:
    sparse = Server(model="qwen3-30b-a3b", gpu="h100")
    single, four = sparse.group, dataclasses.replace(sparse, dp=4).group
    spread = dataclasses.replace(sparse, dp=4, enable_expert_parallel=True).group
    assert spread.replace(provenance="") == four.replace(provenance="")
    assert four.latency.expert_weights_us == pytest.approx(single.latency.expert_weights_us / 4)
    assert four.latency.weights_us == single.latency.weights_us
    assert four.latency.expert_share == pytest.approx(1 - (1 - 8 / 128) ** 4)
    assert four.latency.token_us > single.latency.token_us
    assert four.num_kv_blocks > single.num_kv_blocks
    dense = dataclasses.replace(SMALL, dp=4).group
    assert dense.latency == SMALL.group.latency


def test_fp8_halves_what_weights_take() -> None:
    half = dataclasses.replace(SMALL, dtype="fp8")
    head = 2 * 128256 * 4096  # embedding and output head stay in bf16
    assert SMALL.memory.weights - 2 * head == pytest.approx(2 * (half.memory.weights - 2 * head))


def test_the_engine_decides_what_no_flag_says() -> None:
    def group(**settings: Any) -> instance.InstanceGroup:
        return dataclasses.replace(SMALL, **settings).group

    new = group(engine="vllm-0.23")
    assert (new.max_num_seqs, new.max_num_batched_tokens) == (1024, 8192)
    assert new.async_scheduling
    assert new.kv_cache.reserve_full_prompt
    old = group(engine="vllm-0.9.2")
    assert not old.async_scheduling
    assert not old.kv_cache.reserve_full_prompt
    small = dataclasses.replace(SMALL, gpu="l4", max_model_len=4096).group
    assert (small.max_num_seqs, small.max_num_batched_tokens) == (256, 2048)
    assert group(gpu_memory_utilization=0.95).num_kv_blocks > group().num_kv_blocks
    limited = group(max_num_seqs=7, num_kv_blocks=99, max_model_len=1000)
    assert (limited.max_num_seqs, limited.num_kv_blocks, limited.max_model_len) == (7, 99, 1000)


def test_a_request_is_no_longer_than_the_memory_holds() -> None:
    group = Server(model="llama-3.1-8b", gpu="l4").group
    assert group.max_model_len == group.num_kv_blocks * group.block_size_tokens < 131072


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "lama-3.1-8b"}, "model = 'lama-3.1-8b': is not in the catalog; did you mean"),
        ({"gpu": "h1000"}, "gpu = 'h1000': is not in the catalog; did you mean 'h100'"),
        ({"gpu": {"memory_gib": 3}}, "gpu.bandwidth_tb_s: is missing"),
        ({"gpu": {"flops": 3}}, "gpu.memory_gib: is missing"),
        ({"tp": 3}, "tp = 3: must divide the 32 attention heads"),
        ({"tp": 0}, "tp = 0: must be a whole number >= 1"),
        ({"pp": 33}, "pp = 33: must be <= 32, the layers"),
        ({"model": "qwen3-30b-a3b", "pp": 2, "dp": 2}, "pp = 2: must be 1 for a mixture of expert"),
        ({"dp": True}, "dp = True: must be a whole number >= 1"),
        ({"dtype": "fp5"}, "dtype = 'fp5': must be one of bf16"),
        ({"kv_cache_dtype": "int8"}, "kv_cache_dtype = 'int8': must be one of bf16, fp8"),
        ({"engine": "sglang"}, "engine = 'sglang': must be vllm-X.Y"),
        ({"gpu_memory_utilization": 90}, "gpu_memory_utilization = 90: must be > 0 and <= 1"),
        ({"model": "llama-3.1-70b"}, "it fits with tp >= 2"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], message: str) -> None:
    server = {"model": "llama-3.1-8b", "gpu": "h100", **settings}
    with pytest.raises(ConfigError, match=re.escape(message)):
        _ = Server(**server).group


def test_a_file_names_a_server_and_changes_its_settings(tmp_path: Path) -> None:
    server = "server: {model: llama-3.1-8b, gpu: h100}"
    own = "count: 3, max_num_seqs: 128, latency: {constant_us: 1234}"
    path = settings_file(tmp_path, f"instances: [{{{server}, {own}}}]")
    (group,) = spillway.load(path).instances
    assert (group.count, group.max_num_seqs) == (3, 128)
    assert group.latency == SMALL.group.latency.replace(constant_us=1234)
    assert group.num_kv_blocks == SMALL.group.num_kv_blocks
    again = tmp_path / "again.yaml"
    spillway.dump(spillway.load(path), again)
    assert spillway.load(again) == spillway.load(path)


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        ("[{server: {model: llama-3.1-8b, gpu: h100, tp: 5}}]", "[0].server.tp = 5: must divide"),
        ("{server: {gpu: h100}}", ".server.model: is missing"),
        ("{server: {model: llama-3.1-8b, gpu: h100, tps: 1}}", ".server.tps = 1: must be one of"),
        ("{server: 7}", ".server = 7: must be a mapping"),
    ],
)
def test_errors_in_a_file_name_the_place(instances: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"instances{message}")):
        spillway.load(settings_file(tmp_path, f"instances: {instances}"))


def test_half_a_server_warns(tmp_path: Path) -> None:
    latency = "latency: {kind: linear, preset: llama-3.3-70b-h100-tp4}"
    with pytest.warns(UserWarning, match=r"preset llama-3\.3-70b-h100-tp4: coefficients of BLIS"):
        spillway.load(settings_file(tmp_path, f"instances: {{{latency}}}"))
    spillway.load(settings_file(tmp_path, f"instances: {{{latency}, num_kv_blocks: 9000}}"))
    spillway.load(settings_file(tmp_path, f"profile: blis_0_6\ninstances: {{{latency}}}"))
    server = "server: {model: llama-3.3-70b, gpu: h100, tp: 4}"
    spillway.load(settings_file(tmp_path, f"instances: {{{latency}, {server}}}"))


def test_a_profile_of_measurements_is_a_server(tmp_path: Path) -> None:
    values = (900, 5000, 20, 10, 0.1, 0.01, 3000)
    profile = Profile(
        server=ServerFacts(model="own", num_kv_blocks=900),
        latency=instance.Roofline(norm=2, **dict(zip(COEFFICIENTS, values, strict=True))),
        async_scheduling=True,
        turnaround_s=0.0,
        covariance=tuple(tuple(row) for row in (0.01 * np.eye(len(COEFFICIENTS))).tolist()),
        hull=Hull(((0.0, 0.0), (300.0, 0.0), (300.0, 1.0), (0.0, 1.0))),
        runs=(FittedRun("a", "0", 100, {}), FittedRun("b", "0", 100, {})),
    )
    profile.save(tmp_path / "own.yaml")
    path = settings_file(tmp_path, "instances: [{server: own.yaml, count: 2}]")
    (group,) = spillway.load(path).instances
    assert group.provenance == f"server {tmp_path / 'own.yaml'}: fitted to 2 measured runs"
    assert group.replace(provenance="", count=1) == profile.group
    low, high = spillway.simulate(path, uncertainty=30)["mean_tpot_ms"]
    mean = spillway.simulate(path).summary()["mean_tpot_ms"]
    assert low < mean < high
    drawn = uncertainty.drawn(spillway.load(path), 3)
    latencies = [simulation.instances[0].latency for simulation in drawn]
    assert latencies == [group.latency for group in profile.draws(3)]
    (tmp_path / "own.yaml").write_text("kind: other\n")
    with pytest.raises(ConfigError, match=r"must be a file of spillway calibrate"):
        spillway.load(path)


def test_provenance_changes_neither_fingerprint_nor_result() -> None:
    itself = Simulation(instances=SMALL)
    plain = itself.with_({"instances[0].provenance": ""})
    assert spillway.fingerprint(itself) == spillway.fingerprint(plain)
    assert spillway.simulate(itself).digest == spillway.simulate(plain).digest


def test_every_setting_has_an_origin() -> None:
    def origins(server: Server) -> dict[str, str]:
        return {setting: origin for setting, _, origin in server.origins()}

    assert origins(SMALL)["num_kv_blocks"].startswith("memory: ")
    assert origins(SMALL)["max_num_seqs"] == "default of vllm-0.19 on h100"
    assert origins(dataclasses.replace(SMALL, max_num_seqs=9))["max_num_seqs"] == "given"


def test_ranks_of_a_mixture_step_together() -> None:
    of_experts, dense = (
        Server(model=name, gpu="h100", dp=2, max_model_len=2048)
        for name in ("qwen3-30b-a3b", "llama-3.1-8b")
    )
    assert of_experts.group.lockstep_ranks
    assert "lockstep_ranks" in {origin.setting for origin in of_experts.origins()}
    assert not dense.group.lockstep_ranks
    assert not dataclasses.replace(of_experts, dp=1).group.lockstep_ranks


def test_a_server_without_measurements_says_so() -> None:
    measured = {(entry["gpu"], entry["dtype"]) for entry in entries("efficiencies.yaml").values()}
    for gpu in accelerators():
        server = Server(model="llama-3.1-8b", gpu=gpu, max_model_len=2048)
        is_known = (gpu, "bf16") in measured
        assert ("unvalidated" in server.provenance) is not is_known


def test_uncertain_step_times_give_intervals() -> None:
    simulation = Simulation(instances=SMALL)
    figures = spillway.simulate(simulation).summary()
    intervals = spillway.simulate(simulation, uncertainty=12)
    low, high = intervals["mean_ttft_ms"]
    assert low < figures["mean_ttft_ms"] < high
    assert intervals["offered"] == (figures["offered"], figures["offered"])
    assert spillway.simulate(simulation, uncertainty=12) == intervals
    with pytest.raises(ConfigError, match=r"instances\[0\]: has step times of unknown uncertainty"):
        spillway.simulate(Simulation(), uncertainty=12)
    with pytest.raises(ConfigError, match=r"instances\[0\]\.latency: is not that of"):
        spillway.simulate(simulation.with_({"instances[0].latency.constant_us": 1}), uncertainty=12)
    with pytest.raises(ValueError, match="must be >= 2 runs"):
        spillway.simulate(simulation, uncertainty=1)


def test_draws_have_the_stated_widths() -> None:
    widths = dataclasses.asdict(SMALL.knowledge.widths)
    entry = np.log([group.latency.alpha0_us for group in SMALL.draws(2000)])
    assert entry.std() == pytest.approx(widths["entry_us"], rel=0.1)
    assert entry.mean() == pytest.approx(np.log(SMALL.group.latency.alpha0_us), abs=0.1)


def test_mixtures_of_many_experts_have_their_own_prior() -> None:
    """No measurement says anything about them on this accelerator; few experts act like none."""
    many, few = (Server(model=name, gpu="a100", tp=16) for name in ("deepseek-v3", "mixtral-8x7b"))
    assert many.knowledge.efficiencies.arithmetic < 0.25
    assert few.knowledge.efficiencies.arithmetic > 0.5


def test_an_engine_newer_than_the_rules_says_so() -> None:
    with pytest.warns(UserWarning, match=r"vllm-0\.33 is newer than the rules for its defaults"):
        dataclasses.replace(SMALL, engine="vllm-0.33")


def test_wide_expert_parallelism_is_stated_as_data_parallel_ranks() -> None:
    with pytest.raises(ConfigError, match=r"tp = 36: must divide .*: state these as dp"):
        Server(model="deepseek-v3", gpu="b200", tp=36)
