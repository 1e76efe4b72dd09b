"""Drafts: how many tokens a step delivers, what a step costs, and how latencies count it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.runs import run, steady

from spillway import ConfigError, Result, instance
from spillway.config.randomness import random_streams


def drafting(
    acceptance: list[float] | None = None, *, output_tokens: int = 61, **settings: Any
) -> Result:
    """One request; a step takes 10 ms, and 1 ms for each draft."""
    drafts = {"num_drafts": 3, "acceptance": acceptance or [1.0]}
    group = instance.InstanceGroup(
        latency=steady(10, beta_prefill_us=1000),
        speculative_decoding=drafts | settings,
        async_scheduling=False,
    )
    return run([0], input_tokens=5, output_tokens=output_tokens, instances=group)


def test_accepted_drafts_are_delivered_together() -> None:
    result = drafting([1.0])
    # The prompt yields one token; the other 60 come four at a time, in steps of 13 ms.
    assert result.steps == 1 + 15
    row = {name: result.requests[f"{name}_s"][0] for name in ("ttft", "tpot", "e2e")}
    assert row["ttft"] == pytest.approx(0.015)
    assert row["e2e"] == pytest.approx(0.015 + 15 * 0.013)
    assert row["tpot"] == pytest.approx(15 * 0.013 / 60)
    assert result.summary()["num_itl"] == 15
    assert result.summary()["mean_itl_ms"] == pytest.approx(13)
    assert result.summary()["total_output_tokens"] == 61


def test_rejected_drafts_cost_time_alone() -> None:
    result = drafting([0.0])
    assert result.steps == 61
    assert result.requests["tpot_s"][0] == pytest.approx(0.013)


def test_acceptance_by_position() -> None:
    # The first draft is always accepted, the second never.
    assert drafting([1.0, 0.0]).steps == 1 + 30


def test_drafts_beyond_the_end_are_dropped() -> None:
    result = drafting([1.0], output_tokens=4)
    assert result.steps == 2
    assert result.requests["output_tokens"][0] == 4


def test_random_acceptance_has_the_expected_mean() -> None:
    result = drafting([0.5], output_tokens=20_001)
    tokens_per_step = 20_000 / (result.steps - 1)
    assert tokens_per_step == pytest.approx(1 + 0.5 + 0.25 + 0.125, rel=0.02)
    assert random_streams(result.simulation) == ("drafts",)
    assert random_streams(drafting([1.0]).simulation) == ()


@pytest.mark.parametrize("output_tokens", [0, 1])
def test_a_prompt_beyond_the_budget_is_refused_without_parts(output_tokens: int) -> None:
    group = instance.InstanceGroup(
        chunked_prefill=False, max_num_batched_tokens=104, latency=steady(10)
    )
    outcomes = [
        run([0], input_tokens=tokens, output_tokens=output_tokens, instances=group)
        .requests["outcome"]
        .tolist()
        for tokens in (104, 105)
    ]
    assert outcomes == [["completed"], ["rejected"]]


@pytest.mark.parametrize(
    ("settings", "is_served"),
    [
        # With three drafts 18 tokens need two blocks of 20; their two parts never have both.
        ({}, False),
        ({"long_prefill_token_threshold": 18}, True),
        ({"num_kv_blocks": 2}, True),
        ({"block_size_tokens": 10, "num_kv_blocks": 2}, False),
        ({"block_size_tokens": 10, "num_kv_blocks": 3}, True),
        # Requests that wait would lower the threshold to 17.
        ({"long_prefill_token_threshold_adaptive": True}, False),
        ({"engine_rules": {"caps_lone_requests": False}}, False),
    ],
)
def test_a_request_whose_drafts_never_fit_is_refused(
    settings: dict[str, Any], *, is_served: bool
) -> None:
    tight: dict[str, Any] = {
        "num_kv_blocks": 1,
        "block_size_tokens": 20,
        "long_prefill_token_threshold": 17,
        "max_num_batched_tokens": 2000,
        "max_num_seqs": 4,
        "speculative_decoding": {"num_drafts": 3, "method": "eagle"},
    }
    result = run([0], input_tokens=18, output_tokens=1, instances=tight | settings)
    assert result.requests["outcome"].tolist() == ["completed" if is_served else "rejected"]


def test_time_of_the_draft_model() -> None:
    plain, costly = drafting([1.0]), drafting([1.0], draft_us=2000)
    assert costly.requests["e2e_s"][0] - plain.requests["e2e_s"][0] == pytest.approx(16 * 0.002)


def test_what_a_step_without_seats_has() -> None:
    """The model's slots leave the budget: a prompt of 40 tokens needs two steps."""
    steps = {}
    for slots in ("all_seats", "scheduled"):
        group = instance.InstanceGroup(
            max_num_seqs=8,
            max_num_batched_tokens=41,
            latency=steady(10),
            speculative_decoding={"num_drafts": 1, "method": "draft_model", "acceptance": [0]},
            engine_rules={"draft_slots": slots},
        )
        steps[slots] = run([0], input_tokens=40, output_tokens=1, instances=group).steps
    assert steps == {"all_seats": 2, "scheduled": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"completion": "step_start", "async_scheduling": False}, "completion"),
        ({"preemption": "restart", "async_scheduling": False}, "preemption"),
        ({"kv_cache": {"stores_last_token": True}}, "stores_last_token"),
        (
            {
                "max_num_seqs": 8,
                "max_num_batched_tokens": 8,
                "speculative_decoding": {"num_drafts": 1, "method": "draft_model"},
            },
            "above the 8 slots of the draft model",
        ),
        ({"speculative_decoding": {"num_drafts": 1, "acceptance": []}}, "at least one value"),
    ],
)
def test_what_contradicts_drafts_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        instance.InstanceGroup(**({"speculative_decoding": {"num_drafts": 1}} | changes))


def test_jumps_are_taken_without_drafts_alone() -> None:
    assert {server["stepping"] for server in drafting().instances} == {"plain"}
    without = drafting(num_drafts=0)
    assert {server["stepping"] for server in without.instances} == {"jumps"}
    assert without.steps == 61
    assert np.isclose(without.requests["tpot_s"][0], 0.010)
