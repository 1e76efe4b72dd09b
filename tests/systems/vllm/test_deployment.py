"""Command lines of vLLM."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from support.deployments import refused, written

from spillway import ConfigError, Simulation, instance
from spillway.files.deployments import Import, export, import_
from spillway.files.deployments.flag_table import number
from spillway.instance import Server
from spillway.systems.vllm.rules import applied

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.* is newer than the rules for its defaults")


def expressible(name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    engine = name.replace("@", "-")
    version = number(name)
    server = Server(model="llama-3.3-70b", gpu="h100", tp=4, engine=engine).group
    limited = {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 4096,
        "long_prefill_token_threshold": 1024,
        "max_model_len": 16384,
        "block_size_tokens": 32,
        "data_parallel_size": 2,
        "kv_cache": {"prefix_caching": False, "reserve_full_prompt": version >= (0, 19)},
        "async_scheduling": False,
        "scheduler": {"kind": "priority_fcfs", "victim": "lowest_priority"},
        "speculative_decoding": {"num_drafts": 3, "method": "eagle"},
        "front_end": {"workers": 4},
    }
    if version >= (0, 29):
        limited["ingress"] = {
            "kind": "vllm_queue_limits",
            "max_num_queued_reqs": 200,
            "max_num_queued_tokens": 400_000,
        }
    if version >= (0, 24):
        limited["prefill_schedule_interval"] = 2
    if version >= (0, 33):
        limited |= {"long_prefill_token_threshold_adaptive": True, "max_num_active_seqs": 48}
    rules = engine.removeprefix("vllm-") if version >= (0, 19) else "0.19"
    groups = (instance.InstanceGroup.from_dict(group) for group in (server.to_dict(), limited))
    return {"instances": [applied(group, rules) for group in groups]}


def test_vllm_as_in_production(tmp_path: Path) -> None:
    files = written(
        tmp_path,
        a__sh="# started by systemd\nvllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2 \\\n"
        "  --max-model-len=8K --max_num_seqs 96 --no-enable-prefix-caching --seed 7 \\\n"
        "  --api-server-count 3",
    )
    found = import_(files, system="vllm@0.19")
    (group,) = found.simulation.instances
    assert (group.max_model_len, group.max_num_seqs) == (8192, 96)
    assert group.front_end.workers == 3
    assert not group.kv_cache.prefix_caching
    assert group.async_scheduling  # the default of that version
    assert group.num_kv_blocks == Simulation().instances[0].num_kv_blocks
    assert [(unread.field.partition(": ")[2], unread.value) for unread in found.unread] == [
        ("model", "meta-llama/Llama-3.1-8B-Instruct"),
        ("tensor-parallel-size", 2),
        ("seed", 7),
    ]


def test_vllm_servers_are_computed(tmp_path: Path) -> None:
    text = "model: meta-llama/Llama-3.1-8B-Instruct\ntensor_parallel_size: 2\nmax-num-seqs: 96\n"
    found = import_(written(tmp_path, a__yaml=text), system="vllm@0.19", gpu="h100")
    model = "meta-llama/Llama-3.1-8B-Instruct"
    server = Server(model=model, gpu="h100", tp=2, max_num_seqs=96, engine="vllm-0.19")
    assert found.simulation.instances == (applied(server.group, "0.19"),)
    assert found.unread == ()


REFUSED = {
    "a.sh": [
        ("vllm serve x --max-num-seqs many", "a.sh: max-num-seqs = 'many': must be a whole number"),
        ("vllm serve x --max-num-seqs 0", "max_num_seqs = 0: must be >= 1"),
        ("vllm serve x --scheduling-policy lifo", "'lifo': must be one of fcfs, priority"),
        ("vllm serve 'x", "a.sh: not a command line"),
    ]
}


def gate(limit: int) -> instance.DualLimitGate:
    return instance.DualLimitGate(request_limit=limit, wait_limit=limit, queue_size=0)


REQUESTS, TOKENS = "--max-num-queued-reqs", "--max-num-queued-tokens"
LIMITS = instance.VllmQueueLimits


@pytest.mark.parametrize(
    ("flags", "expected", "unread"),
    [
        ("", instance.Open(), 0),
        (f"{REQUESTS} 40", gate(40), 0),
        (f"{TOKENS} 9K", LIMITS(max_num_queued_tokens=9216), 0),
        (
            f"{REQUESTS} 40 {TOKENS} 900",
            LIMITS(max_num_queued_reqs=8, max_num_queued_tokens=900),
            0,
        ),
        (f"{REQUESTS} 30 {TOKENS} 900", gate(30), 1),
        (f"{REQUESTS} 0", LIMITS(max_num_queued_reqs=0), 0),
    ],
)
def test_limits_of_the_queue_count_running_requests(
    tmp_path: Path, flags: str, expected: Any, unread: int
) -> None:
    """32 seats: 2 ranks of 16."""
    text = f"vllm serve $MODEL --max-num-seqs 16 --data-parallel-size 2 {flags}"
    found = import_(written(tmp_path, a__sh=text), system="vllm@0.29")
    assert found.simulation.instances[0].ingress == expected
    assert len(found.unread) == unread


def test_a_limit_of_waiting_requests_is_a_loss() -> None:
    """vLLM counts the running ones too, also where memory and not seats bounds the batch."""
    gate = instance.VllmQueueLimits(max_num_queued_reqs=8)
    simulation = Simulation(instances=instance.InstanceGroup(max_num_seqs=16, ingress=gate))
    found = export(simulation, to="vllm@0.29", allow_lossy=True)
    assert "--max-num-queued-reqs 24" in found.files["vllm-0.sh"]
    (loss,) = found.losses
    assert (loss.path, loss.deployed["request_limit"]) == ("instances[0].ingress", 24)


def test_several_command_lines_are_several_groups(tmp_path: Path) -> None:
    texts = {f"vllm-{i}__sh": f"vllm serve x --max-num-seqs {i + 1}" for i in (10, 2)}
    found = import_(written(tmp_path, **texts), system="vllm")
    assert [group.max_num_seqs for group in found.simulation.instances] == [3, 11]
    assert "must be as many as the groups of instances: 2" in refused(
        written(tmp_path, a__sh="vllm serve x"), system="vllm", onto=found.simulation
    )


def test_the_version_of_a_servers_defaults_is_noted() -> None:
    described = {"model": "llama-3.1-8b", "gpu": "h100"}
    simulation = Simulation(instances=Server(**described).group)
    (note, _) = export(simulation, to="vllm@0.29").notes
    assert "has the defaults of vllm-0.19, and is written for 0.29" in note
    (rules,) = export(simulation, to="vllm@0.19").notes
    assert rules.endswith("deployed has those of vllm 0.19")
    same = Simulation(instances=applied(Server(**described, engine="vllm-0.29").group, "0.29"))
    assert export(same, to="vllm@0.29").notes == ()


def read(folder: Path, text: str, **options: Any) -> Import:
    """The import of a command line."""
    (folder / "a.sh").write_text(text)
    return import_(folder / "a.sh", system=options.pop("system", "vllm"), **options)


def test_short_forms_beginnings_and_dots(tmp_path: Path) -> None:
    text = (
        "vllm serve -tp 2 -dp=2 -O3 --max-num-se 96 --no_enable_prefix_caching --port 1 "
        "--compilation-config.mode 3 --api-key a b -- Qwen/Qwen3-8B"
    )
    found = read(tmp_path, text)
    (group,) = found.simulation.instances
    assert (group.max_num_seqs, group.data_parallel_size) == (96, 2)
    assert not group.kv_cache.prefix_caching
    listed = {entry.field.rpartition(": ")[2]: entry.value for entry in found.unread}
    assert listed == {
        "model": "Qwen/Qwen3-8B",
        "tensor-parallel-size": 2,
        "optimization-level": 3,
        "compilation-config": {"mode": 3},
    }
    assert [entry.value for entry in found.irrelevant] == [1, ["***", "***"]]


def test_an_ambiguous_beginning_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--max-num: is the beginning of .*--max-num-seqs"):
        read(tmp_path, "vllm serve m --max-num 64")


def test_unknown_flags_are_listed_with_the_nearest(tmp_path: Path) -> None:
    found = read(tmp_path, "vllm serve m --max-num-sequences 64 --frobnicate")
    reasons = {entry.field.rpartition(": ")[2]: str(entry) for entry in found.unread}
    assert '= "64": is no flag of vllm 0.33' in reasons["--max-num-sequences"]
    assert "--frobnicate" in reasons
    old = read(tmp_path, "vllm serve m --max-num-queued-reqs 8", system="vllm@0.19")
    assert "is no flag of vllm 0.19" in str(old.unread)


def test_a_flag_that_is_given_twice(tmp_path: Path) -> None:
    found = read(tmp_path, "vllm serve m --max-num-seqs 8 --max-num-seqs 9")
    assert found.simulation.instances[0].max_num_seqs == 9
    assert "max-num-seqs = 8: is given again later" in str(found.irrelevant[0])


@pytest.mark.parametrize("value", ["auto", "-1"])
def test_the_longest_request_that_fits(tmp_path: Path, value: str) -> None:
    text = f"vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len {value}"
    (group,) = read(tmp_path, text, gpu="h100").simulation.instances
    assert group.max_model_len == Server(model="llama-3.1-8b", gpu="h100").group.max_model_len
    small = Simulation().with_({"instances[0].num_kv_blocks": 100})
    (group,) = read(tmp_path, text, onto=small).simulation.instances
    assert group.max_model_len == 1600


@pytest.mark.parametrize(
    ("model", "flags", "dtype"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "-q fp8", "fp8"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "", "fp8"),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "", "nvfp4"),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "", "int4"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "", "int8"),
        ("Qwen/Qwen3-32B-FP8", "", "fp8"),
        ("/models/Qwen3-32B-GPTQ-Int4", "--quantization gptq_marlin", "int4"),
        ("/models/Qwen3-32B", "", None),
    ],
)
def test_quantized_checkpoints_are_not_bf16(
    tmp_path: Path, model: str, flags: str, dtype: str | None
) -> None:
    found = read(tmp_path, f"vllm serve {model} -tp 8 {flags}", gpu="h100")
    provenance = found.simulation.instances[0].provenance
    assert (f"dtype: {dtype}" in provenance) == (dtype is not None)
    if not model.startswith("meta-llama"):
        assert any("is computed as" in unread.reason for unread in found.unread)


def test_unknown_quantizations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="would be in bf16"):
        read(tmp_path, "vllm serve Qwen/Qwen3-8B -q torchao", gpu="h100")


def test_a_pipeline_is_computed_and_read_back(tmp_path: Path) -> None:
    text = "vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 4 -pp 2 --max-num-seqs 65"
    found = read(tmp_path, text, gpu="h100")
    (group,) = found.simulation.instances
    assert (group.max_num_seqs, group.data_parallel_size) == (33, 2)
    written_ = export(found.simulation, to="vllm").files["vllm-0.sh"]
    assert "--pipeline-parallel-size 2" in written_
    assert "--data-parallel-size" not in written_
    again = read(tmp_path, written_, onto=found.simulation)
    assert again.simulation == found.simulation
    with pytest.raises(ConfigError, match="pipeline parallelism is not modeled unless gpu"):
        read(tmp_path, text)


def test_the_image_says_the_version(tmp_path: Path) -> None:
    found = read(tmp_path, "docker run vllm/vllm-openai:v0.14.1 --model m")
    assert not found.simulation.instances[0].async_scheduling  # of 0.12
    assert found.notes[0] == "vllm: read as 0.12, because the image is 0.14.1"


def test_a_file_of_flags_is_overridden_by_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("max-num-seqs: 8\nmax_model_len: 4096\n")
    (tmp_path / "a.sh").write_text("vllm serve m --config c.yaml --max-num-seqs 9")
    found = import_(tmp_path, system="vllm")
    (group,) = found.simulation.instances
    assert (group.max_num_seqs, group.max_model_len) == (9, 4096)
    assert "is overridden by the command line" in str(found.irrelevant[0])


def test_nodes_of_a_server_are_one_server(tmp_path: Path) -> None:
    text = "vllm serve m -dp 4 --headless -dpl 2 &\nvllm serve m -dp 4 -dpl 2\n"
    found = read(tmp_path, text)
    (group,) = found.simulation.instances
    assert group.data_parallel_size == 4


@pytest.mark.parametrize(
    ("flags", "drafts"),
    [
        ("-sc '{\"method\": \"ngram\", \"num_speculative_tokens\": 4}'", (4, "ngram")),
        ("-sc.model m --speculative-config.num_speculative_tokens 2", (2, "draft_model")),
        ("--spec-method eagle3 --spec-model m --spec-tokens 3", (3, "eagle")),
        ("--spec-method deepseek_mtp --spec-tokens 1", (1, "eagle")),
    ],
)  # fmt: skip
def test_speculative_decoding(tmp_path: Path, flags: str, drafts: tuple[int, str]) -> None:
    found = import_(written(tmp_path, a__sh=f"vllm serve $MODEL {flags}"), system="vllm@0.33")
    decoding = found.simulation.instances[0].speculative_decoding
    assert (decoding.num_drafts, decoding.method) == drafts
    assert decoding.acceptance == (0.7,)
    assert "acceptance 0.7 and draft_us 0 are those of the simulation" in str(found.notes)
    assert found.unread == ()


def test_versions_have_their_rules(tmp_path: Path) -> None:
    files = [*written(tmp_path, a__sh="vllm serve $MODEL --no-enable-chunked-prefill")]
    for version, preset in {"0.19": "0.19", "0.24": "0.23", "0.29": "0.23", "0.33": "0.33"}.items():
        found = import_(files, system=f"vllm@{version}")
        (group,) = found.simulation.instances
        assert group.engine_rules == instance.EngineRules.preset(f"vllm-{preset}")
        assert group.kv_cache.generated_tokens
        assert not group.chunked_prefill
        assert found.notes == found.unread == ()
    found = import_(files, system="vllm@0.12")
    assert found.simulation.instances[0].engine_rules == instance.EngineRules.preset("vllm-0.19")
    assert "rules of the scheduler of 0.19" in str(found.notes)


def test_rules_of_no_version_are_a_note_of_the_export() -> None:
    found = export(Simulation(), to="vllm@0.33")
    assert found.losses == ()
    assert "instances[].engine_rules, instances[].kv_cache.generated_tokens: " in str(found)
    older = applied(Simulation().instances[0], "0.19")
    lost = {loss.path for loss in export(Simulation(instances=older), to="vllm@0.33").losses}
    assert "instances[0].engine_rules.self_preemption" in lost


def test_a_script_stops_without_its_model() -> None:
    """The words of the command line are those that a shell gives to the program."""
    simulation = Simulation().with_(
        {"instances[0].speculative_decoding": {"num_drafts": 2, "method": "eagle"}}
    )
    (text,) = export(simulation, to="vllm@0.33").files.values()
    script = "vllm() { printf '%s\\n' \"$@\"; }\n" + text
    shell = shutil.which("bash") or "sh"

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], **variables}
        return subprocess.run(
            [shell, "-c", script], capture_output=True, text=True, env=environment, check=False
        )

    assert run().returncode != 0
    assert "MODEL" in run().stderr
    words = run(MODEL="org/model", DRAFT_MODEL="org/draft").stdout.splitlines()
    assert words[:2] == ["serve", "org/model"]
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config == {"method": "eagle", "model": "org/draft", "num_speculative_tokens": 2}
