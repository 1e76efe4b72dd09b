"""Agreement with the decider of llm-d-router @ ebab687: which prompts the prefill pool computes.

Its own handler answered which stages a request passes through.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.paths import vectors

from spillway import Simulation, router
from spillway._core.testing import is_local

CASES = vectors("llm_d/pd_decider")

pytestmark = pytest.mark.skipif(not CASES, reason="needs recorded answers of llm-d")


def decider_of(case: dict[str, Any]) -> Any:
    if case["decider"] == "always-disagg-pd-decider":
        return router.AlwaysRemote()
    if case["decider"] == "prefix-based-pd-decider":
        return router.UncachedTokens(
            min_uncached_tokens=case["non_cached_tokens"],
            min_prompt_tokens=case["prompt_tokens_min"],
        )
    return router.NeverRemote()


def test_stages() -> None:
    """Stages by order: prefill first takes no decider, and always has both."""
    compared = 0
    for case in CASES:
        is_prefill_first = case["stage_order"] == "prefill-first"
        assert (case["stages"][0] == "prefill") == is_prefill_first, case
        if is_prefill_first:
            assert "decode" in case["stages"], case
            continue
        if "block_size" not in case:  # what is cached is unknown, which it never is here
            is_always = case["decider"] == "always-disagg-pd-decider"
            assert ("prefill" in case["stages"]) == is_always, case
            continue
        order = router.Disaggregation(order="decode_first", decider=decider_of(case))
        simulation = Simulation(disaggregation=order)
        # Blocks in any tier, if they are counted apart from the match.
        cached = case.get("cached_block_count", case["match_blocks"]) * case["block_size"]
        found = is_local(simulation, case["prompt_tokens"], cached)
        assert found == ("prefill" not in case["stages"]), case
        compared += 1
    assert compared > 100
