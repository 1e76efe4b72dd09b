"""Envoy's admission control by the share of successes."""

from __future__ import annotations

import numpy as np
import pytest
from support.runs import fixed, outcomes, run

from spillway import gateway


def test_envoy_rejects_no_request_while_all_succeed() -> None:
    result = run(
        [0.05 * i for i in range(200)],
        gateway=gateway.Gateway(admission=gateway.EnvoyAdmission(success_threshold=1)),
    )
    assert set(outcomes(result)) == {"completed"}


def test_envoy_lets_some_try_and_recovers() -> None:
    """All requests time out for 60 s, then the load is light; 20 % of the requests reveal that."""
    policy = gateway.EnvoyAdmission(window_s=10)
    heavy = [0.02 * i for i in range(3000)]
    result = run(
        heavy + [60 + 2.0 * i for i in range(100)],
        gateway=gateway.Gateway(
            admission=policy, bands=gateway.Band(queue=gateway.Queue(timeout_s=1)), limit=fixed(1)
        ),
    )
    ends = outcomes(result)
    refused = np.array(ends[500:3000]) == "rejected"
    assert refused.mean() == pytest.approx(0.8, abs=0.03)
    assert set(ends[3030:]) == {"completed"}
