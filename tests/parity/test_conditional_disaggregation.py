"""Agreement with Dynamo 1.6.1: which prompts conditional disaggregation keeps from prefill.

`conditional_disagg` holds answers of its policies, `disagg_busy` whether a worker of a given load
counts as busy.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.paths import vectors

from spillway import Simulation, router
from spillway._core.testing import is_local

POLICIES = vectors("dynamo/conditional_disagg")
LOADS = vectors("dynamo/disagg_busy")
RULES = {"IslBounding": "isl_bounding", "PrefillLoad": "prefill_load", "IslOrLoad": "isl_or_load"}

pytestmark = pytest.mark.skipif(not (POLICIES and LOADS), reason="needs recorded answers of Dynamo")


def with_decider(decider: Any) -> Simulation:
    return Simulation(disaggregation=router.Disaggregation(decider=decider))


def test_policies() -> None:
    """A busy prefill worker is one above a threshold of 0."""
    for case in POLICIES:
        decider: Any = router.Conditional(
            rule=RULES[case["policy"]],
            uncached_tokens_threshold=case["eff_isl_threshold"],
            uncached_share_threshold=case["eff_isl_ratio_threshold"],
            prefill_busy_threshold=0,
        )
        if not case["enabled"]:
            decider = router.AlwaysRemote()
        reads_load = case["policy"] != "IslBounding" and case["enabled"]
        assert case["needs_prefill_worker_busy"] == reads_load, case
        found = is_local(
            with_decider(decider),
            case["prompt_tokens"],
            case["cached_tokens"],
            prefill_tokens=1 if reads_load and case["prefill_worker_busy"] else 0,
        )
        assert found == case["bypass_remote_prefill"], case
    assert len(POLICIES) > 200


def test_loads() -> None:
    """Of a prefill worker, the rule; of a decode worker, the veto on a prompt that it passes."""
    for case in LOADS:
        busy = router.Conditional(rule="prefill_load", prefill_busy_threshold=case["threshold"])
        load = {
            "prefill_tokens": case["active_prefill_tokens"],
            "max_batched_tokens": case["prefill_token_capacity"],
        }
        assert is_local(with_decider(busy), 100, 0, **load) == case["prefill_busy"], case
        veto = router.Conditional(
            rule="prefill_load", prefill_busy_threshold=0, decode_busy_threshold=case["threshold"]
        )
        total = case["total_kv_blocks"]
        assert (case["decode_busy"] is None) == (total is None), case
        found = is_local(
            with_decider(veto),
            100,
            0,
            prefill_tokens=1,
            decode_blocks=case["potential_decode_blocks"],
            total_blocks=total,
        )
        # Of unknown capacity: no bypass.
        assert found == (case["decode_busy"] is False), case
    assert len(LOADS) > 100
