"""Step times of rooflines and tables, read from the engine's stamps."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from support.runs import run

from spillway import instance
from spillway.config.profiles import BLIS_SERVER

QUIET = dict.fromkeys(
    ("alpha0_us", "alpha_input_us", "alpha_output_us", "constant_us", "weights_us",
     "expert_weights_us", "token_us", "decode_us", "decode_context_us", "prefill_context_us",
     "chunk_us"), 0.0,
)  # fmt: skip


def steps_us(input_tokens: int, output_tokens: int, **latency: Any) -> tuple[float, float]:
    """Time to the first token of a lone request, and from there to its last one."""
    group = BLIS_SERVER.replace(
        latency=instance.Roofline(**QUIET | latency), max_num_batched_tokens=400
    )
    result = run([0.0], input_tokens=input_tokens, output_tokens=output_tokens, instances=group)
    (ttft_s,), (e2e_s,) = result.requests["ttft_s"], result.requests["e2e_s"]
    return ttft_s * 1e6, (e2e_s - ttft_s) * 1e6


@pytest.mark.parametrize(
    ("norm", "matrices_us"),
    [(1, 700), (2, 500), (4, (300**4 + 400**4) ** 0.25), (3, (300**3 + 400**3) ** (1 / 3)),
     (None, 400)],
)  # fmt: skip
def test_reading_weights_and_computing_tokens_overlap(norm: Any, matrices_us: float) -> None:
    first, rest = steps_us(
        40, 3, constant_us=1000, weights_us=300, token_us=10, norm=norm, decode_us=7
    )
    assert first == pytest.approx(1000 + matrices_us, abs=2e-3)
    p = math.inf if norm is None else norm
    combined_us = max(300, 10) if p == math.inf else (300**p + 10**p) ** (1 / p)
    assert rest == pytest.approx(2 * (1000 + combined_us + 7), abs=4e-3)


def test_attention_counts_pairs_of_tokens() -> None:
    # Two chunks of 400 tokens and one of 200: the pairs are those of the whole prompt.
    first, rest = steps_us(1000, 2, prefill_context_us=0.01, norm=None)
    assert first == pytest.approx(0.01 * 1000**2 / 2, abs=2e-3)
    assert rest == pytest.approx(0, abs=2e-3)


def test_decodes_read_their_context() -> None:
    first, rest = steps_us(100, 4, decode_context_us=0.5, norm=None)
    assert first == pytest.approx(0, abs=2e-3)
    assert rest == pytest.approx(0.5 * (100 + 101 + 102), abs=4e-3)


def test_each_chunk_costs() -> None:
    first, rest = steps_us(1000, 2, chunk_us=50, norm=None)
    assert first == pytest.approx(150, abs=4e-3)
    assert rest == pytest.approx(0, abs=2e-3)


def test_a_step_reads_the_experts_that_its_tokens_use() -> None:
    # Each token uses one of four experts: 60 tokens use practically all of them, one token one.
    first, rest = steps_us(
        60, 3, weights_us=100, expert_weights_us=400, expert_share=0.25, norm=None
    )
    assert first == pytest.approx(100 + 400, abs=1e-2)
    assert rest == pytest.approx(2 * (100 + 100), abs=4e-3)


@pytest.mark.parametrize("norm", [1, 2])
def test_without_experts_their_share_does_not_matter(norm: float) -> None:
    settings = {"weights_us": 300, "token_us": 10, "norm": norm}
    assert steps_us(40, 3, **settings) == steps_us(40, 3, expert_share=0.1, **settings)
    all_at_once = settings | {"weights_us": 100, "expert_weights_us": 200, "expert_share": 1}
    assert steps_us(40, 3, **settings) == steps_us(40, 3, **all_at_once)


def test_norm_1_is_linear_bit_for_bit() -> None:
    linear = instance.Linear(
        beta0_us=2801.3 + 977.7, beta_prefill_us=17.67, beta_decode_us=17.67 + 2.84
    )
    roofline = instance.Roofline(
        **{name: getattr(linear, name) for name in ("alpha0_us", "alpha_input_us")},
        alpha_output_us=linear.alpha_output_us,
        constant_us=2801.3,
        weights_us=977.7,
        token_us=17.67,
        norm=1,
        decode_us=2.84,
        decode_context_us=0,
        prefill_context_us=0,
    )
    digests = {
        run(
            [0.003 * i for i in range(200)],
            input_tokens=[10 + 37 * i % 1500 for i in range(200)],
            output_tokens=[1 + 11 * i % 90 for i in range(200)],
            instances=BLIS_SERVER.replace(latency=latency, num_kv_blocks=900),
        ).digest
        for latency in (linear, roofline)
    }
    assert len(digests) == 1


def test_the_largest_coefficients_end_the_clock_instead_of_overflowing() -> None:
    limits = dict.fromkeys(QUIET, 1e12) | {
        "alpha0_us": 0.0,
        "alpha_input_us": 0.0,
        "alpha_output_us": 6e7,
    }
    group = BLIS_SERVER.replace(latency=instance.Roofline(**limits, norm=1.5))
    result = run([0.0], input_tokens=2000, output_tokens=3, instances=group, horizon_s=1e6)
    assert result.ledger["running"] == 1


def table_steps_us(prompt: int, outputs: int, **settings: Any) -> tuple[float, float]:
    """Time to the first token of a lone request, and from there to its last one."""
    table = instance.StepTable(
        alpha0_us=0, prefill_context_us=settings.pop("prefill_context_us", 0), **settings
    )
    group = BLIS_SERVER.replace(latency=table, max_num_batched_tokens=400)
    result = run([0.0], input_tokens=prompt, output_tokens=outputs, instances=group)
    (ttft_s,), (e2e_s,) = result.requests["ttft_s"], result.requests["e2e_s"]
    return ttft_s * 1e6, (e2e_s - ttft_s) * 1e6


GRID = {
    "decode_requests": [0, 1, 4],
    "prefill_tokens": [0, 100],
    "context_tokens": [100, 300],
    "step_us": [500, 500, 1500, 1500, 600, 800, 1700, 2100, 900, 1700, 2400, 3600],
}  # fmt: skip


@pytest.mark.parametrize(
    ("prompt", "first_us", "second_us"),
    [
        (100, 1500, 600),
        (300, 3500, 800),  # beyond the last prompt length: 500 + 3 x 1,000
        (200, 2500, 700),  # halfway between the contexts
        (50, 1000, 550),  # before the first context
    ],
)
def test_a_table_is_linear_between_and_beyond_its_values(
    prompt: int, first_us: float, second_us: float
) -> None:
    first, second = table_steps_us(prompt, 2, **GRID)
    assert first == pytest.approx(first_us, abs=2e-3)
    assert second == pytest.approx(second_us, abs=2e-3)


def test_a_table_is_scaled_for_decoding_and_for_what_prompts_add() -> None:
    first, second = table_steps_us(100, 2, **GRID, decode_scale=1.5, prefill_scale=0.5)
    assert first == pytest.approx(1.5 * 500 + 0.5 * 1000, abs=2e-3)
    assert second == pytest.approx(1.5 * 600, abs=2e-3)


def test_a_table_never_falls_below_zero() -> None:
    falling = {"decode_requests": [0, 1], "prefill_tokens": [0], "context_tokens": [0, 10]}
    _, second = table_steps_us(100, 2, **falling, step_us=[5, 5, 100, 50])
    assert second == pytest.approx(1e-3, abs=1e-6)  # one tick of the clock


def test_chunks_behind_a_prefix_cost_on_top_of_the_table() -> None:
    flat = {"decode_requests": [0], "prefill_tokens": [0], "context_tokens": [0], "step_us": [10]}
    first, _ = table_steps_us(1000, 1, **flat, prefill_context_us=0.01)
    # Chunks of 400, 400 and 200 tokens behind 0, 400 and 800.
    assert first == pytest.approx(3 * 10 + 0.01 * (400 * 400 + 200 * 800), abs=6e-3)


def test_the_default_table_has_the_corners_of_the_default_roofline() -> None:
    table, roofline = instance.StepTable(), instance.Roofline()
    corners = itertools.product(table.decode_requests, table.prefill_tokens, table.context_tokens)
    for (decodes, tokens, context), step_us in zip(corners, table.step_us, strict=True):
        matrices = (roofline.weights_us**4 + (roofline.token_us * (decodes + tokens)) ** 4) ** 0.25
        expected = roofline.constant_us + matrices + roofline.decode_us * decodes
        expected += roofline.decode_context_us * decodes * context
        expected += roofline.prefill_context_us * tokens**2 / 2
        assert step_us == pytest.approx(expected, abs=0.6)
