"""Properties of a result other than its figures."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spillway import Result, Simulation, UsageError, gateway, simulate, workload

if TYPE_CHECKING:
    from pathlib import Path

SHEDDING = Simulation(
    workload=workload.Synthetic(requests_per_s=200, num_requests=300),
    gateway=gateway.Gateway(
        admission=gateway.TokenBucket(capacity_tokens=20_000, refill_tokens_per_s=20_000)
    ),
)


def test_outcome_digest_leaves_figures_out() -> None:
    plain = simulate(SHEDDING, 1)
    fewer_counted = simulate(SHEDDING.replace(warm_up_s=0.5), 1)
    assert fewer_counted.digest != plain.digest
    assert fewer_counted.outcome_digest == plain.outcome_digest


def test_outcome_digest_tells_outcomes_and_instants_apart() -> None:
    plain = simulate(SHEDDING, 1).outcome_digest
    path = "gateway.admission[token_bucket].capacity_tokens"
    assert simulate(SHEDDING.with_({path: 20_600}), 1).outcome_digest != plain
    assert simulate(SHEDDING.with_({"quantum_ns": 1000}), 1).outcome_digest != plain
    assert simulate(SHEDDING, 2).outcome_digest != plain


def test_outcome_digest_survives_a_file(tmp_path: Path) -> None:
    result = simulate(SHEDDING, 1)
    result.save(tmp_path / "result.npz")
    assert Result.load(tmp_path / "result.npz").outcome_digest == result.outcome_digest


def test_outcome_digest_without_requests_is_that_of_the_ledger() -> None:
    streamed = SHEDDING.with_({"metrics.streaming": True})
    assert simulate(streamed, 1).outcome_digest != simulate(SHEDDING, 1).outcome_digest
    assert (
        simulate(streamed.replace(warm_up_s=0.5), 1).outcome_digest
        == simulate(streamed, 1).outcome_digest
    )


def test_token_gaps_are_the_inter_token_latencies(tmp_path: Path) -> None:
    simulation = Simulation(workload=workload.Synthetic(requests_per_s=8, num_requests=60))
    result = simulate(simulation)
    gaps = result.token_gaps
    assert list(gaps) == ["gap_s", "count"]
    assert (np.diff(gaps["gap_s"]) > 0).all()
    assert (gaps["count"] > 0).all()
    tokens = result.requests["output_tokens"]
    assert gaps["count"].sum() == (tokens - 1).sum()
    mean_s = gaps["gap_s"] @ gaps["count"] / gaps["count"].sum()
    assert 1000 * mean_s == pytest.approx(result.summary()["mean_itl_ms"])
    again = pickle.loads(pickle.dumps(result))
    assert (again.token_gaps["count"] == gaps["count"]).all()
    result.save(tmp_path / "run.npz")
    with pytest.raises(UsageError, match="a saved result does not hold token gaps"):
        _ = Result.load(tmp_path / "run.npz").token_gaps
    with pytest.raises(UsageError, match="were not kept"):
        _ = simulate(simulation.with_({"metrics.streaming": True})).token_gaps
