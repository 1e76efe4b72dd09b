"""Routing decisions: the signals seen, and the cost of the choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.routing import WORKLOADS

from spillway import ConfigError, Result, Simulation, router, simulate

SEEN = ("waiting", "running", "in_flight", "kv_utilization", "age_s")
COLUMNS = [
    *("row", "time_s", "instance", "rank", "score", "regret"),
    *(f"candidate_{name}" for name in ("instance", "rank", "score", *SEEN)),
]
INSTANCES = 5

SCORERS: list[Any] = [
    ["prefix_affinity", "queue_depth", "kv_utilization"],
    ["load_balance"],
    [{"kind": "no_hit_lru", "weight": 0.1}, "precise_prefix_cache", "vllm_dp"],
    ["active_requests", "running_requests", "load_aware"],
]
POLICIES: dict[str, Any] = {
    "round_robin": "round_robin",
    "least_loaded": "least_loaded",
    "always_busiest": "always_busiest",
    "best": router.Weighted(),
    "softmax": router.Weighted(picker=router.Softmax(temperature=0.3)),
    "random": router.Weighted(picker="random"),
}


def run(
    name: str, policy: Any, candidates: int = INSTANCES, *, instances: Any = None, **settings: Any
) -> Result:
    simulation = Simulation(
        workload=WORKLOADS[name],
        router=policy,
        instances={"count": INSTANCES} if instances is None else instances,
        metrics={"traced_candidates": candidates},
        **settings,
    )
    return simulate(simulation, seed=11)


def log_of(result: Result) -> dict[str, np.ndarray[Any, Any]]:
    return dict(result._output["decisions"])


# --- regret ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("scorers", SCORERS, ids=range(len(SCORERS)))
@pytest.mark.parametrize("ties", ["first", "random"])
@pytest.mark.parametrize("transport", ["live", {"kind": "on_read", "period_s": 0.1}])
def test_no_regret_with_the_best_score(name: str, scorers: Any, ties: Any, transport: Any) -> None:
    policy = router.Weighted(scorers=scorers, picker=router.Best(ties=ties))
    result = run(name, policy, signals=transport)
    log = log_of(result)
    assert (log["regret"] == 0).all()
    assert (log["score"] == log["candidate_score"][:, 0]).all()
    assert (result.summary()["mean_regret"], result.summary()["max_regret"]) == (0, 0)


def test_least_loaded_regrets_nothing() -> None:
    assert run("skewed", "least_loaded").summary()["max_regret"] == 0


def test_round_robin_regrets_on_a_skewed_workload() -> None:
    summary = run("skewed", "round_robin").summary()
    mean, most = summary["mean_regret"], summary["max_regret"]
    assert 0 < mean < most


def test_no_regret_without_a_choice() -> None:
    result = run("burst", "round_robin", instances={"count": 1})
    assert result.summary()["max_regret"] == 0
    assert log_of(result)["candidate_instance"].shape == (200, 1)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_regret_is_what_the_best_candidate_had_in_advance(name: str, policy: str) -> None:
    result = run(name, POLICIES[policy])
    log = log_of(result)
    is_chosen = log["candidate_instance"] == log["instance"][:, None]
    assert (is_chosen.sum(axis=1) == 1).all()
    own = log["candidate_score"][is_chosen]
    assert (log["score"] == own).all()
    expected = np.maximum(0, log["candidate_score"].max(axis=1) - own)
    assert (log["regret"] == expected).all()
    summary = result.summary()
    assert summary["max_regret"] == expected.max()
    assert summary["mean_regret"] == pytest.approx(expected.mean(), rel=1e-12)


# --- what is logged -------------------------------------------------------------------------------


def test_every_decision_is_logged_when_it_is_taken() -> None:
    result = run(
        "skewed", "round_robin", gateway={"admission_latency_s": 0.25, "routing_latency_s": 0.125}
    )
    log = log_of(result)
    assert sorted(log) == sorted(COLUMNS)
    assert log["row"].tolist() == list(range(200))
    assert log["instance"].tolist() == result.requests["instance"].tolist()
    assert log["time_s"] == pytest.approx(result.requests["arrival_s"] + 0.375, abs=1e-9)


def test_rejected_requests_are_not_in_the_log() -> None:
    bucket = {"kind": "token_bucket", "capacity_tokens": 3000, "refill_tokens_per_s": 3000}
    result = run("skewed", "round_robin", gateway={"admission": bucket})
    log = log_of(result)
    routed = np.flatnonzero(result.requests["instance"] >= 0)
    assert 0 < len(routed) < 200
    assert log["row"].tolist() == routed.tolist()
    assert len(log["candidate_score"]) == len(routed)


def test_requests_that_waited_are_logged_in_the_order_of_dispatch() -> None:
    result = run("skewed", "least_loaded", gateway={"limit": {"kind": "fixed", "max_in_flight": 8}})
    log = log_of(result)
    assert (np.diff(log["time_s"]) >= 0).all()
    dispatched = result.requests["arrival_s"] + result.requests["queue_s"]
    assert log["time_s"] == pytest.approx(dispatched[log["row"]], abs=1e-9)
    assert log["time_s"].max() > result.requests["arrival_s"].max()
    assert (log["candidate_in_flight"].sum(axis=1) < 8).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_candidates_stand_in_order_of_score_then_of_the_fleet(policy: str) -> None:
    log = log_of(run("skewed", POLICIES[policy]))
    assert (np.sort(log["candidate_instance"], axis=1) == np.arange(INSTANCES)).all()
    steps = np.diff(log["candidate_score"], axis=1)
    assert (steps <= 0).all()
    ahead = np.diff(log["candidate_instance"], axis=1) > 0
    assert ahead[steps == 0].all()
    assert (steps == 0).any()
    assert (steps < 0).any()


@pytest.mark.parametrize("candidates", [1, 2, 4])
def test_fewer_candidates_are_the_best_of_all(candidates: int) -> None:
    for policy in ("round_robin", "softmax"):
        whole, best = (log_of(run("skewed", POLICIES[policy], k)) for k in (INSTANCES, candidates))
        for column in COLUMNS:
            expected = whole[column]
            if column.startswith("candidate_"):
                expected = expected[:, :candidates]
            assert (best[column] == expected).all()


def test_there_are_no_more_candidates_than_instances() -> None:
    log = log_of(run("skewed", "round_robin", 1000))
    assert log["candidate_instance"].shape == (200, INSTANCES)


@pytest.mark.parametrize("policy", ["round_robin", "least_loaded", "always_busiest"])
def test_score_without_ratings_is_minus_the_load(policy: str) -> None:
    log = log_of(run("skewed", policy))
    load = log["candidate_waiting"] + log["candidate_running"] + log["candidate_in_flight"]
    assert (log["candidate_score"] == -load).all()
    assert load.max() > 10


@pytest.mark.parametrize("policy", POLICIES)
def test_log_changes_nothing(policy: str) -> None:
    with_log, without = (run("groups", POLICIES[policy], k) for k in (INSTANCES, 0))
    assert log_of(with_log)
    assert all(
        np.array_equal(with_log.requests[name], without.requests[name], equal_nan=True)
        for name in ("instance", "ttft_s", "e2e_s", "itl_mean_s")
    )
    assert with_log.instances == without.instances


def test_nothing_is_logged_unless_asked_for() -> None:
    result = run("skewed", "round_robin", 0)
    assert all(len(column) == 0 for column in log_of(result).values())
    assert result.summary()["mean_regret"] is None
    assert result.summary()["max_regret"] is None


def test_streaming_keeps_no_log() -> None:
    message = r"metrics\.traced_candidates = 3: must be 0 in streaming mode"
    with pytest.raises(ConfigError, match=message):
        Simulation(metrics={"streaming": True, "traced_candidates": 3})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("candidates", [1, 2, INSTANCES])
def test_places_of_instances_that_were_shunned_stay_empty(policy: str, candidates: int) -> None:
    """Where fewer than the asked for came into question, the columns are as wide as ever."""
    stale = {"stale_after_s": 0.1, "when_stale": "fail_closed"}
    transport = {"kind": "scraped", "loss_probability": 0.8, **stale}
    result = run("skewed", POLICIES[policy], candidates, signals=transport)
    log = log_of(result)
    is_empty = log["candidate_instance"] == -1
    assert is_empty.shape == (200, candidates)
    assert not is_empty[:, 0].any()
    assert (np.diff(is_empty * 1, axis=1) >= 0).all()
    assert is_empty.any() == (candidates > 1)
    assert (log["candidate_score"][is_empty] == -np.inf).all()
    assert (log["candidate_rank"][is_empty] == -1).all()
    assert np.isfinite(log["candidate_score"][~is_empty]).all()
    for name in SEEN[:-1]:
        assert (log[f"candidate_{name}"][is_empty] == 0).all()
    assert np.isfinite(log["regret"]).all()
    whole = log_of(run("skewed", POLICIES[policy], INSTANCES, signals=transport))
    for column in COLUMNS:
        expected = whole[column][:, :candidates] if "candidate" in column else whole[column]
        assert np.array_equal(log[column], expected, equal_nan=True)


# --- ages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORKLOADS)
def test_live_signals_have_no_age(name: str) -> None:
    assert (log_of(run(name, "least_loaded"))["candidate_age_s"] == 0).all()


@pytest.mark.parametrize("period_s", [0.001, 0.05, 0.7])
def test_signals_are_younger_than_their_period(period_s: float) -> None:
    log = log_of(run("skewed", "least_loaded", signals={"kind": "on_read", "period_s": period_s}))
    ages = log["candidate_age_s"]
    assert ages.min() >= 0
    assert ages.max() < period_s
    early = log["time_s"] < period_s
    assert (log["time_s"][early, None] == ages[early]).all()
    # Renewed now and then, and no sooner than they are a period old.
    renewed = log["time_s"][ages[:, 0] == 0]
    assert len(renewed) > 2
    assert (np.diff(renewed) >= period_s - 1e-9).all()


def test_signals_are_zero_until_the_first_period_has_passed() -> None:
    log = log_of(run("skewed", "round_robin", signals={"kind": "on_read", "period_s": 0.5}))
    early = log["time_s"] < 0.5
    for name in ("waiting", "running", "kv_utilization"):
        assert (log[f"candidate_{name}"][early] == 0).all()
    assert log["candidate_in_flight"][early].max() > 0
    assert log["candidate_running"][~early].max() > 0
