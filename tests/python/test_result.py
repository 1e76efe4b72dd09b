"""Properties of a result other than its figures."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spillway import Result, Simulation, UsageError, gateway, run_many, simulate, workload
from spillway.study.objective import Figure

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


# --- what a session prints and how it names mistakes ----------------------------------------------


def test_a_number_of_seeds_stands_for_the_first() -> None:
    assert simulate(SHEDDING, seeds=3).seeds == (0, 1, 2)
    assert run_many([SHEDDING], np.int64(2))[0].seeds == (0, 1)
    for wrong in (0, -1, 10**12):
        with pytest.raises(ValueError, match=f"seeds = {wrong}: their number must be >= 1 and <="):
            simulate(SHEDDING, seeds=wrong)


def test_figures_that_a_summary_lacks_are_found() -> None:
    results = simulate(SHEDDING, seeds=2)
    for figures in (results[0].summary(), results.summary()):
        with pytest.raises(KeyError, match=r"\(rejected \+ expired \+ evicted\) / offered"):
            _ = figures["shed"]
        with pytest.raises(KeyError, match="did you mean 'goodput'"):
            _ = figures["godput"]
    shed = Figure("shed").of
    assert results.interval(shed).mean == pytest.approx(sum(map(shed, results)) / 2)


def test_differences_print_those_that_differ() -> None:
    base = Simulation()
    fewer = simulate(base.with_({"workload.num_requests": 50}), seeds=2)
    other = simulate(base.with_({"workload.num_requests": 60}), seeds=2)
    same = fewer.minus(fewer)
    assert repr(same).splitlines()[0].split() == ["figure", "difference", "low", "high", "runs"]
    assert len(repr(same).splitlines()) == 2
    gap = other.minus(fewer)
    line = next(line for line in repr(gap).splitlines() if line.startswith("offered "))
    assert line.split() == ["offered", "10.00", "10.00", "10.00", "2"]
    assert "rejected" not in repr(gap)
    assert gap["rejected"] is not None
    assert len(repr(other.summary()).splitlines()) > len(repr(gap).splitlines())


def test_groups_print_a_table() -> None:
    clients = [workload.Client(name=name, tenant=name) for name in ("gold", "silver")]
    synthetic = workload.Synthetic(requests_per_s=50, num_requests=40, clients=clients)
    result = simulate(Simulation(workload=synthetic))
    lines = repr(result.by_tenant()).splitlines()
    assert lines[0].startswith("name ")
    assert [line.split()[0] for line in lines[2:]] == ["gold", "silver"]
    assert copy.deepcopy(result.by_tenant()) == result.by_tenant()
    with pytest.raises(KeyError, match="unknown class or tenant 'bronze'; one of gold, silver"):
        _ = result.by_tenant()["bronze"]
