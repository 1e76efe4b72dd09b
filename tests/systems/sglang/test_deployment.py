"""Command lines of SGLang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.deployments import refused, written

from spillway import Simulation, instance
from spillway.files.deployments import export, import_

if TYPE_CHECKING:
    from pathlib import Path


def expressible(name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    group = {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 4096,
        "max_model_len": 16384,
        "data_parallel_size": 2,
        "kv_cache": {"prefix_caching": False, "generated_tokens": True},
        "async_scheduling": False,
    }
    if name != "sglang@0.4":
        group["scheduler"] = {"kind": "priority_fcfs", "victim": "lowest_priority"}
        group["ingress"] = {"kind": "vllm_queue_limits", "max_num_queued_reqs": 200}
    method = "eagle" if name == "sglang@0.4" else "draft_model"
    group["speculative_decoding"] = {"num_drafts": 3, "method": method}
    return {"instances": [group]}


def test_sglang_as_in_production(tmp_path: Path) -> None:
    text = (
        "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2 --page-size 1 \\\n"
        "  --max-running-requests 48 --context-length 32768 --max-queued-requests 100 \\\n"
        "  --schedule-policy lpm --port 30000 --api-key sk-secret"
    )
    found = import_(written(tmp_path, a__sh=text), system="sglang")
    (group,) = found.simulation.instances
    assert (group.max_num_seqs, group.max_model_len, group.block_size_tokens) == (48, 32768, 1)
    assert group.ingress == instance.VllmQueueLimits(max_num_queued_reqs=100)
    assert group.scheduler == instance.LongestPrefix()
    assert group.kv_cache.generated_tokens
    assert {unread.field.rpartition(": ")[2] for unread in found.unread} == {
        "model-path",
        "tp-size",
    }
    assert "secret" not in repr(found)


CHAIN = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-draft-model-path org/d"


@pytest.mark.parametrize(
    ("flags", "method"),
    [
        (f"--speculative-algorithm EAGLE3 {CHAIN}", "eagle"),
        (f"--speculative-algorithm NEXTN {CHAIN} --speculative-num-draft-tokens 4", "eagle"),
        (f"--speculative-algorithm STANDALONE {CHAIN}", "draft_model"),
    ],
)
def test_a_chain_of_drafts(tmp_path: Path, flags: str, method: str) -> None:
    found = import_(written(tmp_path, a__sh=f"sglang serve {flags}"), system="sglang")
    drafts = found.simulation.instances[0].speculative_decoding
    assert (drafts.num_drafts, drafts.method) == (3, method)
    assert any("are those of the simulation" in note for note in found.notes)
    assert found.unread == ()


@pytest.mark.parametrize(
    "flags",
    [
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8",
        f"--speculative-algorithm EAGLE {CHAIN.replace('topk 1', 'topk 4')}",
        f"--speculative-algorithm EAGLE {CHAIN} --speculative-num-draft-tokens 9",
        "--speculative-algorithm EAGLE",
    ],
)
def test_trees_of_drafts_are_refused(tmp_path: Path, flags: str) -> None:
    path = written(tmp_path, a__sh=f"sglang serve {flags}")
    assert "speculative decoding is modeled as a chain" in refused(path, system="sglang")


@pytest.mark.parametrize(
    ("flags", "kind", "unread"),
    [
        ("--schedule-policy lpm", "longest_prefix", 0),
        ("--schedule-policy fcfs", "fcfs", 0),
        ("--schedule-policy lpm --enable-priority-scheduling", "priority_fcfs", 1),
        ("--schedule-policy dfs-weight", "fcfs", 1),
    ],
)
def test_the_policy_of_the_queue(tmp_path: Path, flags: str, kind: str, unread: int) -> None:
    found = import_(written(tmp_path, a__sh=f"sglang serve --model-path $MODEL {flags}"))
    assert found.simulation.instances[0].scheduler.kind == kind
    assert sum("schedule-policy" in other.field for other in found.unread) == unread


def test_an_export_states_the_longest_prefix(tmp_path: Path) -> None:
    simulation = Simulation(instances=[{"scheduler": {"kind": "longest_prefix"}}])
    text = export(simulation, to="sglang").files["sglang-0.sh"]
    assert "--schedule-policy lpm" in text
    found = import_(written(tmp_path, a__sh=text))
    assert found.simulation.instances[0].scheduler == instance.LongestPrefix()


def test_sglang_servers_are_computed_as_those_of_vllm(tmp_path: Path) -> None:
    text = "sglang serve --model-path Qwen/Qwen3-32B-FP8 --tp-size 2 --max-running-requests 48"
    found = import_(written(tmp_path, a__sh=text), system="sglang", gpu="h100")
    assert "dtype: fp8" in found.simulation.instances[0].provenance
    reasons = {unread.reason for unread in found.unread}
    assert "step times and KV memory are those of vLLM" in reasons


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--speculative-algorithm EAGLE", "speculative decoding"),
        ("--enable-lora", "LoRA"),
        ("--disaggregation-mode prefill", "prefill and decode"),
        ("--pp-size 2", "pipeline parallelism"),
    ],
)
def test_what_is_not_modeled_is_refused(tmp_path: Path, flags: str, reason: str) -> None:
    path = tmp_path / "a.sh"
    path.write_text(f"python -m sglang.launch_server --model-path m {flags}")
    with pytest.raises(Exception, match=reason):
        import_(path, system="sglang")
    lossy = import_(path, system="sglang", allow_lossy=True)
    assert any(reason in unread.reason for unread in lossy.unread)


REFUSED = {
    "a.sh": [
        (
            "sglang serve --model-path m --max-running-requests many",
            "max-running-requests = 'many': must be a whole number",
        ),
        ("sglang serve --model-path m --max-running-requests 0", "must be >= 1"),
    ]
}
