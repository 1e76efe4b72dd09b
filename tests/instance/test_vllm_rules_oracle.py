"""The rules of vLLM's versions against their slow twin, in every step, and jumps against none."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from support.effort import often, trials
from support.twins import vllm
from support.vllm_cases import random_case, random_rules

from spillway import simulate
from spillway.validation import vllm_scheduler
from spillway.validation.vllm_scheduler import Steps

if TYPE_CHECKING:
    from spillway import Simulation

SEEDS = trials(1800)


def with_rules(case: dict[str, Any], rules: dict[str, Any]) -> tuple[Simulation, vllm.Server]:
    simulation = vllm_scheduler.simulation_of(case, "0.33.0").with_(
        {f"instances[0].engine_rules.{name}": value for name, value in rules.items()}
    )
    return simulation, dataclasses.replace(vllm.server_of(case, "0.33.0"), **rules)


def twin(server: vllm.Server, case: dict[str, Any]) -> vllm.Run:
    per_step, per_token = case["step_ns"]["constant"], case["step_ns"]["per_token"]
    return vllm.simulate(
        server, vllm.requests_of(case), lambda tokens: per_step + per_token * tokens
    )


def compare(seed: int) -> tuple[dict[str, Any], vllm.Server, vllm.Run]:
    rng = random.Random(f"rules of vLLM {seed}")
    case = random_case(rng, drafts=seed % 4 == 0)
    simulation, server = with_rules(case, random_rules(rng))
    expected = twin(server, case)
    assert not expected.stuck, f"seed {seed}"
    steps = vllm_scheduler.logged(simulation, [request["id"] for request in case["requests"]])
    difference = vllm_scheduler.first_difference(
        {"steps": expected.steps, "requests": expected.requests}, steps
    )
    assert difference is None, f"seed {seed}: {difference}"
    jumping = simulate(simulation)
    plain = simulate(simulation, reference=True)
    assert jumping.digest == plain.digest, f"seed {seed}"
    (report,) = jumping.instances
    assert (report["kv_hits"], report["kv_lookups"]) == (expected.hits, expected.lookups)
    return case, server, expected


def test_every_step_equals_the_twin() -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        case, server, run = compare(seed)
        preempted = any(step["preempted"] for step in run.steps)
        reached["preempted"] += preempted
        reached["async and preempted"] += preempted and server.async_scheduling
        reached["hits"] += run.hits > 0
        reached["aborts"] += any("aborted_ns" in request for request in run.requests.values())
        reached["follow-up"] += run.hits > 0 and any(
            name.startswith("out:") for request in case["requests"] for name, _ in request["prompt"]
        )
        reached["empty step"] += any(not step["scheduled"] for step in run.steps)
        reached["interval"] += server.prefill_schedule_interval > 1
        reached["adaptive"] += server.adaptive_prefill_threshold
        reached["no chunks"] += not server.chunked_prefill
        reached["drafts"] += any(step.get("drafts") for step in run.steps)
        reached["drafts and preempted"] += preempted and server.num_drafts > 0
        reached["active seqs"] += server.max_num_active_seqs is not None
    assert len(reached) == 12
    assert min(reached.values()) >= often(30), reached


def test_steps_of_a_run() -> None:
    case = random_case(random.Random("steps"))
    steps = vllm_scheduler.product(case | {"id": "x"}, "0.33.0")
    assert isinstance(steps, Steps)
    assert steps.steps[0]["running"]


def plain_case(requests: list[dict[str, Any]], **engine: Any) -> dict[str, Any]:
    """Steps of 10 ms, blocks of 4 tokens, and memory for all."""
    settings = {
        "block_size": 4, "num_gpu_blocks": 100, "max_num_seqs": 16, "max_num_batched_tokens": 64,
        "max_model_len": 100, "long_prefill_token_threshold": 0, "policy": "fcfs",
        "prefix_caching": True, "chunked_prefill": True, "async_scheduling": False,
        "reserve_full_isl": True, "watermark": 0.0, "num_spec_tokens": 0, "spec_method": None,
    }  # fmt: skip
    return {
        "id": "by hand",
        "engine": settings | engine,
        "step_ns": {"constant": 10_000_000, "per_token": 0},
        "requests": requests,
    }


def admissions(case: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Of each request the step in which it is admitted, and its cached tokens."""
    steps = vllm_scheduler.product(case, "0.33.0")
    assert isinstance(steps, Steps)
    run = vllm.run_case(case, "0.33.0")
    assert steps.steps == run.steps
    return {
        name: (i, cached) for i, step in enumerate(run.steps) for name, cached in step["admitted"]
    }


def test_one_token_of_a_prompt_begins_and_ends_no_pause_of_prompts() -> None:
    """First a prompt of one token: the next follows at once. Then all but one token is cached of
    the third, which enters in the pause; the fourth waits for the third step after the second.
    """
    case = plain_case(
        [
            {"id": "a", "arrival_ns": 0, "prompt": [["w", 1]], "output": 20},
            {"id": "b", "arrival_ns": 5_000_000, "prompt": [["p", 8]], "output": 20},
            {"id": "c", "arrival_ns": 15_000_000, "prompt": [["p", 8], ["x", 1]], "output": 20},
            {"id": "d", "arrival_ns": 25_000_000, "prompt": [["y", 8]], "output": 2},
        ],
        extra={"prefill_schedule_interval": 3},
    )
    assert admissions(case) == {"a": (0, 0), "b": (1, 0), "c": (2, 8), "d": (4, 0)}


@pytest.mark.parametrize(("output", "cached"), [(4, 4), (5, 8)])
def test_last_token_of_an_output_is_never_found(output: int, cached: int) -> None:
    """Of 4 tokens with 3 accepted drafts the last one is computed, too, if the output is short."""
    first = {"id": "a", "arrival_ns": 0, "prompt": [["p", 4]], "output": output, "accept": [3]}
    again = {
        "id": "b",
        "arrival_ns": 50_000_000,
        "prompt": [["p", 4], ["out:a", output], ["x", 4]],
        "output": 1,
        "accept": [0],
    }
    case = plain_case([first, again], num_spec_tokens=3, spec_method="ngram")
    assert admissions(case)["b"][1] == cached
