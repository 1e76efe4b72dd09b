"""Properties of a result other than its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway import Result, Simulation, gateway, simulate, workload

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
