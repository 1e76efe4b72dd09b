"""Random cases for the rules of vLLM's scheduler, in the form of the recordings."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from support.twins import vllm

if TYPE_CHECKING:
    from pathlib import Path


def random_case(rng: random.Random, *, drafts: bool = False) -> dict[str, Any]:
    """An engine that is short of something, and requests that share prompts and answers."""
    block = rng.choice((1, 2, 4, 8, 16))
    longest = rng.choice((4, 12, 40, 100))
    requests = _requests(rng, block, longest)
    totals = [
        sum(tokens for _, tokens in request["prompt"]) + request["output"] for request in requests
    ]
    needs = [-(-total // block) for total in totals]
    is_async = rng.random() < 0.5
    limit = max(totals) + rng.choice((0, 1, 8))
    chunked = rng.random() < 0.85
    budget = rng.choice((rng.randint(1, 12), rng.randint(8, 64), 256))
    num_drafts = rng.choice((1, 2, 3, 4)) if drafts else 0
    method = rng.choice(("ngram", "eagle", "draft_model")) if drafts else None
    seats = rng.choice((1, 2, 4, 16))
    if not chunked:
        budget = max(budget, limit)
    if drafts:
        budget = max(budget, 2 + num_drafts) + seats
    extra: dict[str, Any] = {}
    if rng.random() < 0.15:
        extra["prefill_schedule_interval"] = rng.randint(2, 6)
    if rng.random() < 0.15:
        extra["max_num_active_seqs"] = rng.randint(1, 4)
    threshold = rng.choice((0, 0, rng.randint(1, 24)))
    if threshold and rng.random() < 0.5:
        extra["long_prefill_token_threshold_adaptive"] = True
    spare = rng.choice((0, 0, 1, 2, rng.randint(0, 1 + sum(needs) // 4)))
    by_priority = rng.random() < 0.4
    case = {
        "engine": {
            "block_size": block,
            "num_gpu_blocks": 1 + max(needs) + spare + (num_drafts + block if drafts else 0),
            "max_num_seqs": seats,
            "max_num_batched_tokens": budget,
            "max_model_len": limit,
            "long_prefill_token_threshold": threshold,
            "policy": "priority" if by_priority else "fcfs",
            "prefix_caching": rng.random() < 0.8,
            "chunked_prefill": chunked,
            "async_scheduling": is_async,
            "reserve_full_isl": rng.random() < 0.5,
            "watermark": rng.choice((0.0, 0.0, 0.05, 0.3)),
            "num_spec_tokens": num_drafts,
            "spec_method": method,
            "extra": extra,
        },
        "step_ns": {
            "constant": rng.choice((1_000, 4_000_000, 10_000_000)),
            "per_token": rng.choice((0, 1_000, 50_000)),
        },
        "requests": requests,
    }
    if drafts:
        for request in requests:
            request["accept"] = [rng.randint(0, 5) for _ in range(rng.randint(1, 7))]
    return case


def _requests(rng: random.Random, block: int, longest: int) -> list[dict[str, Any]]:
    now_ns = rng.randint(0, 10**7)
    gap_ns = rng.choice((0, 100_000, 5_000_000, 30_000_000))
    shared = [(f"p{i}", rng.choice((block * rng.randint(1, 4), rng.randint(1, 4 * block))))
              for i in range(rng.randint(1, 3))]  # fmt: skip
    abort_share = rng.choice((0.0, 0.0, 0.2))
    follow_share = rng.choice((0.0, 0.0, 0.5))
    distinct = rng.random() < 0.5
    requests: list[dict[str, Any]] = []
    for number in rng.sample(range(100), rng.randint(2, 14)):
        name = f"r{number}"
        prompt: list[list[Any]] = []
        parents = [other for other in requests if sum(n for _, n in other["prompt"]) < 6 * longest]
        if parents and rng.random() < follow_share:
            parent = rng.choice(parents)
            prompt = [*map(list, parent["prompt"]), [f"out:{parent['id']}", parent["output"]]]
        elif rng.random() < 0.5:
            prompt = [list(rng.choice(shared))]
        if not prompt or rng.random() < 0.8:
            prompt.append([f"u{name}", rng.randint(1, longest)])
        request: dict[str, Any] = {
            "id": name,
            "arrival_ns": now_ns,
            "prompt": prompt,
            "output": rng.choice((1, rng.randint(1, 8), rng.randint(1, longest))),
            "priority": rng.choice((0, 0, 1, 2)),
        }
        if rng.random() < abort_share:
            # Never at the end of a step.
            request["abort_ns"] = now_ns + rng.randint(1, 10**8) // 1000 * 1000 + 337
        requests.append(request)
        now_ns += rng.randint(1 if distinct else 0, max(1, gap_ns))
    return requests


def random_rules(rng: random.Random) -> dict[str, Any]:
    """Rules by the names of `EngineRules`, among those that the twin knows both ways."""
    return {
        "caps_lone_requests": rng.random() < 0.5,
        "self_preemption": rng.choice(("continues", "ends_step")),
        "keeps_share": rng.random() < 0.7,
        "first_equal_victim": rng.random() < 0.7,
        "skips_after_victim": rng.random() < 0.5,
        "counts_finishing_victims": rng.random() < 0.7,
        "aborts_before_tokens": True,
        "equal_blocks": rng.choice(("first", "first", "last")),
        "free_blocks": rng.choice(("oldest_first", "blank_first")),
        "registers_when_known": rng.random() < 0.7,
        "null_block": rng.random() < 0.5,
        "lookahead_at_admission": rng.random() < 0.5,
        "draft_slots": rng.choice(("all_seats", "scheduled")),
        "registers_accepted": rng.random() < 0.5,
        "eagle_blocks": rng.choice(("drop_last", "next_token")),
        "pads_drafts": rng.random() < 0.5,
    }


def write_recordings(folder: Path, cases: int) -> None:
    """Random cases, and what the twin does in them, as files of recordings of vLLM 0.33.0."""
    given = [random_case(random.Random(seed)) | {"id": str(seed)} for seed in range(cases)]
    steps = [{"id": case["id"], **asdict(vllm.run_case(case, "0.33.0"))} for case in given]
    for name, values in (("cases", given), ("recordings-vllm-0.33.0", steps)):
        text = "".join(json.dumps(value) + "\n" for value in values)
        (folder / f"{name}.jsonl").write_text(text)
