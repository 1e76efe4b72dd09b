"""Routing decisions: what was seen, what the choice cost; what rejected requests missed."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from spillway import (
    ConfigError,
    Result,
    Simulation,
    UsageError,
    profiles,
    router,
    run_many,
    simulate,
    trace,
    workload,
)

COLUMNS = [
    "row",
    "time_s",
    "instance",
    "rank",
    "score",
    "regret",
    "candidate_instance",
    "candidate_rank",
    "candidate_score",
    "candidate_waiting",
    "candidate_running",
    "candidate_in_flight",
    "candidate_kv_utilization",
    "candidate_age_s",
]


def client(name: str, fraction: float, tokens: int, answer: int, group: str) -> workload.Client:
    return workload.Client(
        name=name,
        rate_fraction=fraction,
        input_tokens=workload.Exponential(mean_tokens=tokens),
        output_tokens=workload.Exponential(mean_tokens=answer),
        prefix_group=group,
        prefix_tokens=100 if group else 0,
    )


# Short and long requests: turns of equal number are turns of unequal work.
WORKLOADS = {
    "skewed": workload.Synthetic(
        requests_per_s=60,
        num_requests=200,
        clients=[client("short", 0.7, 60, 10, "A"), client("long", 0.3, 1500, 300, "")],
    ),
    "sparse": workload.Synthetic(requests_per_s=1, num_requests=100),
    "burst": workload.Synthetic(requests_per_s=5000, num_requests=200),
    "groups": workload.Synthetic(
        requests_per_s=100,
        num_requests=200,
        clients=[client(name, 1, 200, 50, name) for name in "ABCDE"],
    ),
}
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
    name: str,
    policy: Any,
    candidates: int = INSTANCES,
    *,
    instances: Any = None,
    **settings: Any,
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
def test_who_takes_the_best_score_regrets_nothing(
    name: str, scorers: Any, ties: Any, transport: Any
) -> None:
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
    assert mean is not None
    assert most is not None
    assert 0 < mean < most


def test_nobody_regrets_where_there_is_no_choice() -> None:
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
        "skewed",
        "round_robin",
        gateway={"admission_latency_s": 0.25, "routing_latency_s": 0.125},
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
    result = run(
        "skewed",
        "least_loaded",
        gateway={"limit": {"kind": "fixed", "max_in_flight": 8}},
    )
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
        whole, some = (log_of(run("skewed", POLICIES[policy], k)) for k in (INSTANCES, candidates))
        for column in COLUMNS:
            expected = whole[column]
            if column.startswith("candidate_"):
                expected = expected[:, :candidates]
            assert (some[column] == expected).all()


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
    transport = {
        "kind": "scraped",
        "loss_probability": 0.8,
        "stale_after_s": 0.1,
        "when_stale": "fail_closed",
    }
    result = run("skewed", POLICIES[policy], candidates, signals=transport)
    log = log_of(result)
    is_empty = log["candidate_instance"] == -1
    assert is_empty.shape == (200, candidates)
    assert not is_empty[:, 0].any()
    assert (np.diff(is_empty * 1, axis=1) >= 0).all()
    assert is_empty.any() == (candidates > 1)
    assert (log["candidate_score"][is_empty] == -np.inf).all()
    assert np.isfinite(log["candidate_score"][~is_empty]).all()
    for name in ("waiting", "running", "in_flight", "kv_utilization"):
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


# --- what rejected requests missed ----------------------------------------------------------------

ALPHA0_US, ALPHA_INPUT_US, ALPHA_OUTPUT_US = 1700, 3, 40
BETA0_US, BETA_PREFILL_US, BETA_DECODE_US = 5000, 17, 90
ADMISSION_NS, ROUTING_NS = 2_000_001, 3_000_007
REGRET_COLUMNS = [
    "row",
    "request_id",
    "tenant",
    "slo_class",
    "reason",
    "unloaded_ttft_s",
    "unloaded_tpot_s",
    "unloaded_e2e_s",
    "has_targets",
    "meets_targets",
]


def linear(slower: int = 1) -> dict[str, Any]:
    return {
        "kind": "linear",
        "alpha0_us": ALPHA0_US,
        "alpha_input_us": ALPHA_INPUT_US,
        "alpha_output_us": ALPHA_OUTPUT_US,
        "beta0_us": BETA0_US * slower,
        "beta_prefill_us": BETA_PREFILL_US * slower,
        "beta_decode_us": BETA_DECODE_US * slower,
        "beta_context_us": 0,
    }


def alone_ns(prompt: int, output: int, slower: int = 1) -> tuple[int, int]:
    """TTFT and E2E of a request all alone: one step of the prompt, then the decoding steps."""
    arriving = 1000 * (ALPHA0_US + ALPHA_INPUT_US * prompt) + ADMISSION_NS + ROUTING_NS
    first = 1000 * (slower * (BETA0_US + BETA_PREFILL_US * prompt) + ALPHA_OUTPUT_US)
    later = 1000 * (slower * (BETA0_US + BETA_DECODE_US) + ALPHA_OUTPUT_US)
    return arriving + first, arriving + first + later * max(output - 1, 0)


LENGTHS = [(1000, 20), (37, 1), (64, 3), (999, 200), (512, 0), (1, 2)]


def refused(
    lengths: Any = LENGTHS, *, admission: Any = "reject_all", instances: Any = None, **settings: Any
) -> Result:
    """A run of 60 requests, all within half a second; all are rejected unless told otherwise."""
    count = 60
    prompts, outputs = zip(*(lengths[i % len(lengths)] for i in range(count)), strict=True)
    classes = settings.pop("classes", ("batch",))
    requests = trace(
        arrival_s=np.arange(count) * 0.007_000_003,
        input_tokens=prompts,
        output_tokens=outputs,
        slo_class=[classes[i % len(classes)] for i in range(count)],
        prefix_group=["g"] * count,
        prefix_tokens=np.array(prompts) // 2,
    )
    simulation = Simulation(
        workload=requests,
        gateway={
            "admission": admission,
            "admission_latency_s": ADMISSION_NS / 1e9,
            "routing_latency_s": ROUTING_NS / 1e9,
        },
        instances={"count": 3, "latency": linear()} if instances is None else instances,
        metrics=settings.pop("metrics", {"traced_candidates": 2}),
        **settings,
    )
    return simulate(simulation)


def test_a_rejected_request_alone_takes_one_prompt_and_its_decoding_steps() -> None:
    result = refused(admission={"kind": "token_bucket", "capacity_tokens": 3000})
    regret = result.admission_regret()
    rows = np.flatnonzero(result.requests["outcome"] == "rejected")
    assert 10 < len(rows) < 60
    assert list(regret) == REGRET_COLUMNS
    assert regret["row"].tolist() == rows.tolist()
    assert regret["request_id"].tolist() == [str(row) for row in rows]
    assert set(regret["reason"]) == {"insufficient_tokens"}
    assert set(regret["slo_class"]) == {"batch"}
    for at, row in enumerate(rows):
        prompt, output = LENGTHS[row % len(LENGTHS)]
        ttft_ns, e2e_ns = alone_ns(prompt, output)
        assert regret["unloaded_ttft_s"][at] == ttft_ns / 1e9
        assert regret["unloaded_e2e_s"][at] == e2e_ns / 1e9
        tpot_s = regret["unloaded_tpot_s"][at]
        if output > 1:
            assert tpot_s == (e2e_ns - ttft_ns) / (output - 1) / 1e9
        else:
            assert np.isnan(tpot_s)
    with pytest.raises(ValueError, match="read-only"):
        regret["unloaded_ttft_s"][0] = 0
    assert repr(regret).startswith(f"<AdmissionRegret: {len(rows)} rows, columns row, request_id")
    assert pickle.loads(pickle.dumps(result)).admission_regret().summary() == regret.summary()


def test_the_better_group_counts_where_it_can_serve() -> None:
    slow = {"count": 1, "latency": linear(3), "max_model_len": 10_000}
    fast_but_small = {"count": 5, "latency": linear(), "num_kv_blocks": 10, "block_size_tokens": 16}
    lengths = [(100, 20), (500, 20), (500_000, 1)]
    for groups in ([slow, fast_but_small], [fast_but_small, slow]):
        regret = refused(lengths, instances=groups).admission_regret()
        found = np.rint(regret["unloaded_ttft_s"][:3] * 1e9)
        assert found[:2].tolist() == [alone_ns(100, 20)[0], alone_ns(500, 20, 3)[0]]
        assert np.isnan([regret[f"unloaded_{name}_s"][2] for name in ("ttft", "tpot", "e2e")]).all()


def test_rejection_is_regrettable_if_all_targets_would_have_been_met() -> None:
    ttft_ns, e2e_ns = alone_ns(1000, 20)
    targets = [
        {"target_ttft_s": (ttft_ns + 1) / 1e9},
        {"target_ttft_s": (ttft_ns - 1) / 1e9},
        {"target_e2e_s": (e2e_ns + 1) / 1e9, "target_ttft_s": 100},
        {"target_e2e_s": (e2e_ns - 1) / 1e9, "target_ttft_s": 100},
        {"target_tpot_s": 0.0052},
        {"target_tpot_s": 0.0051},
        {},
    ]
    classes = [{"name": f"c{i}", **target} for i, target in enumerate(targets)]
    names = [*(one["name"] for one in classes), "unknown", "c0"]
    # The last of them fits nowhere.
    lengths = [(1000, 20)] * 8 + [(50_000_000, 1)]
    regret = refused(lengths, classes=names, slo_classes=classes).admission_regret()
    assert regret["has_targets"][:9].tolist() == [True] * 6 + [False, False, True]
    expected = [True, False, True, False, True, False, False, False, False]
    assert regret["meets_targets"][:9].tolist() == expected
    assert np.isnan(regret["unloaded_e2e_s"][8])
    promised = int(np.resize([1] * 6 + [0, 0, 1], 60).sum())
    met = int(np.resize(expected, 60).sum())
    assert regret.summary() == {
        "rejected": 60,
        "with_targets": promised,
        "would_meet_targets": met,
        "regrettable": met / promised,
    }
    # A class's one-token requests have no TPOT to miss, as in goodput.
    single = refused([(100, 1)], classes=["c5"], slo_classes=classes).admission_regret()
    assert single["meets_targets"].all()


def test_nothing_is_regretted_where_nothing_was_rejected_or_promised() -> None:
    served = refused(admission="always_admit").admission_regret()
    assert all(len(column) == 0 for column in served.values())
    assert served.summary() == {
        "rejected": 0,
        "with_targets": 0,
        "would_meet_targets": 0,
        "regrettable": None,
    }
    assert refused().admission_regret().summary()["regrettable"] is None


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("profile", profiles.NAMES)
def test_unloaded_latencies_are_those_of_sparse_requests(name: str, profile: str) -> None:
    simulation = profiles.apply(profile, Simulation(workload=WORKLOADS[name]), {})
    simulation = simulation.with_({"gateway.admission": "reject_all", "horizon_s": 1.5})
    result = simulate(simulation, seed=3)
    regret = result.admission_regret()
    arrived = result.requests.num_rows
    assert regret["row"].tolist() == list(range(arrived))
    # The same requests, so far apart that no two of them meet.
    served = simulate(simulation.replace(gateway={}, horizon_s=None), seed=3).requests
    apart = trace(
        arrival_s=np.arange(arrived) * 1000.0,
        input_tokens=served["input_tokens"][:arrived],
        output_tokens=served["output_tokens"][:arrived],
    )
    lonely = simulate(simulation.replace(workload=apart, gateway={}, horizon_s=None)).requests
    for figure in ("ttft_s", "tpot_s", "e2e_s"):
        assert regret[f"unloaded_{figure}"] == pytest.approx(lonely[figure], nan_ok=True, rel=1e-9)


def test_regret_needs_the_requests() -> None:
    streamed = refused(metrics={"streaming": True})
    with pytest.raises(UsageError, match=r"were not kept: metrics\.streaming is on"):
        streamed.admission_regret()
    result = refused()
    (forgotten,) = run_many([result.simulation])
    with pytest.raises(UsageError, match="keep_requests=True"):
        forgotten[0].admission_regret()


def test_why_says_what_a_rejected_request_missed() -> None:
    first_ms = alone_ns(1000, 20)[0] / 1e6
    text = f"on an idle fleet: ttft {first_ms:.3f} ms"
    lines = refused().why("0").splitlines()
    assert lines[-2].startswith(f"{text}, tpot ")
    assert lines[-1] == "it was never routed"
    classes = [{"name": "hard", "target_ttft_s": 0.001}, {"name": "soft", "target_ttft_s": 10}]
    result = refused(classes=["hard", "soft"], slo_classes=classes)
    assert f"{text} (target 1 ms)" in result.why("0")
    assert "it would have missed its targets" in result.why("0")
    assert "it would have met its targets" in result.why("1")
    unservable = refused([(10_000, 2)], admission="always_admit", instances={"max_model_len": 99})
    why = unservable.why("0")
    assert "rejected (unservable)" in why
    assert "no instance could have served it, not even on an idle fleet" in why
    assert "idle fleet" not in refused(admission="always_admit").why("0")
