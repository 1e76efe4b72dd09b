"""Command lines of vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.deployments import refused, written

from spillway import Simulation, instance
from spillway.files.deployments import export, import_
from spillway.files.deployments.flag_table import number
from spillway.instance import Server

if TYPE_CHECKING:
    from pathlib import Path


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
    }
    if version >= (0, 29):
        limited["ingress"] = {
            "kind": "vllm_queue_limits",
            "max_num_queued_reqs": 200,
            "max_num_queued_tokens": 400_000,
        }
    return {"instances": [server.to_dict(), limited]}


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
    assert found.simulation.instances == (server.group,)
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
    (note,) = export(simulation, to="vllm@0.29").notes
    assert "has the defaults of vllm-0.19, and is written for 0.29" in note
    assert export(simulation, to="vllm@0.19").notes == ()
    same = Simulation(instances=Server(**described, engine="vllm-0.29").group)
    assert export(same, to="vllm@0.29").notes == ()
    assert export(Simulation(), to="vllm@0.29").notes == ()
