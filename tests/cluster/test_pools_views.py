"""What views show of prefill and decode pools: both legs, each in its pool."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.pools import group
from support.runs import ns

from spillway import Result, Simulation, UsageError, instance, metrics, router, simulate, workload
from spillway.report import plots

if TYPE_CHECKING:
    from pathlib import Path

POOLS = ("prefill", "decode")
LINK = router.KvLink(bandwidth_gb_per_s=0.0001, base_latency_s=0.0003)
ORDERS = [
    {"order": "prefill_first"},
    {"order": "prefill_first", "handoff": "at_dispatch"},
    {"order": "decode_first", "decider": router.UncachedTokens(min_uncached_tokens=40)},
]


def run(
    pools: dict[str, Any] | None = None,
    *,
    instances: Any = None,
    num_requests: int = 120,
    requests_per_s: float = 400,
    output_tokens: Any = None,
    **settings: Any,
) -> Result:
    """Prompts of 8 to 80 tokens in two pools of two, unless other instances are given."""
    lengths = {"kind": "uniform", "min_tokens": 8, "max_tokens": 80}
    client = workload.Client(
        input_tokens=lengths, output_tokens=output_tokens or {"kind": "fixed", "tokens": 30}
    )
    simulation = Simulation(
        workload=workload.Synthetic(
            requests_per_s=requests_per_s, num_requests=num_requests, clients=[client]
        ),
        instances=instances or [group(role, count=2) for role in POOLS],
        router="least_loaded",
        disaggregation={"link": LINK, **(pools or {})},
        metrics=metrics.Metrics(timeline_step_s=0.00173, traced_candidates=3),
        **settings,
    )
    return simulate(simulation, 5)


def spans(result: Result, name: str) -> np.ndarray[Any, Any]:
    return np.array([-1 if at is None else at for at in ns(result.requests[name])], dtype=np.int64)


# --- timeline -------------------------------------------------------------------------------------


def count_at(times: list[int], begins: Any, ends: Any) -> list[int]:
    """Of spans, those that hold each instant; at their ends they do not."""
    return [int(((begins < at) & (at < ends)).sum()) for at in times]


@pytest.mark.parametrize("pools", ORDERS, ids=range(len(ORDERS)))
def test_legs_and_transfers_follow_from_the_timestamps(pools: dict[str, Any]) -> None:
    room = {"count": 2, "max_num_seqs": 200, "num_kv_blocks": 5000}
    result = run(pools, instances=[group(role, **room) for role in POOLS])
    requests, timeline = result.requests, result.timeline
    assert set(requests["outcome"]) == {"completed"}
    arrived = spans(result, "arrival_s")
    dispatched, ended = arrived + spans(result, "queue_s"), arrived + spans(result, "e2e_s")
    remote = requests["prefill_instance"] >= 0
    assert remote.any()
    computed = spans(result, "prefill_end_s")
    times = ns(timeline["time_s"])
    prefill = count_at(times, dispatched[remote], computed[remote])
    assert timeline["prefill_in_flight"].tolist() == prefill
    at_once = pools["order"] == "decode_first" or "handoff" in pools
    chosen = dispatched if at_once else np.where(remote, computed, dispatched)
    assert timeline["decode_in_flight"].tolist() == count_at(times, chosen, ended)
    arrives = computed + spans(result, "transfer_s")
    transfers = count_at(times, computed[remote], arrives[remote])
    assert max(transfers) > 2
    if "decider" in pools:  # prompts may wait behind local ones for the tokens of a step
        assert (timeline["transfers"] <= transfers).all()
    else:  # there are memory and seats for all
        assert timeline["transfers"].tolist() == transfers


@pytest.mark.parametrize("pools", ORDERS, ids=range(len(ORDERS)))
def test_pools_add_up_to_the_fleet(pools: dict[str, Any]) -> None:
    result = run(pools, instances=[group("prefill", count=1), group("decode", count=3)])
    timeline = result.timeline
    assert timeline.pools == POOLS
    for name in ("waiting", "running"):
        both = timeline[f"prefill_{name}"] + timeline[f"decode_{name}"]
        assert timeline[name].tolist() == both.tolist(), name
        assert all(timeline[f"{pool}_{name}"].any() for pool in POOLS), name
    used = timeline["prefill_kv_utilization"] + 3 * timeline["decode_kv_utilization"]
    assert timeline["kv_utilization"] == pytest.approx(used / 4, rel=1e-12)
    again = simulate(result.simulation, 5, reference=True).timeline
    for name, column in timeline.items():
        assert np.array_equal(column, again[name], equal_nan=True), name


def test_a_mixed_group_counts_in_both_pools() -> None:
    mixed = [group("both", count=2), group("prefill"), group("decode")]
    timeline = run(instances=mixed).timeline
    over = timeline["prefill_running"] + timeline["decode_running"] - timeline["running"]
    assert over.min() >= 0
    assert over.any()


def test_without_pools_there_are_no_columns_of_them() -> None:
    result = run(instances=[group("both", count=2)])
    assert result.timeline.pools == ()
    assert "transfers" not in result.timeline
    assert "is_prefill" not in result.decisions
    with pytest.raises(ValueError, match="needs prefill and decode pools"):
        result.plot.over_time("transfers")


# --- decisions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pools", ORDERS, ids=range(len(ORDERS)))
def test_each_leg_has_its_decision(pools: dict[str, Any]) -> None:
    result = run(pools)
    log, requests = result.decisions, result.requests
    is_prefill = log["is_prefill"]
    assert is_prefill.dtype == bool
    remote = np.flatnonzero(requests["prefill_instance"] >= 0)
    assert sorted(log["row"][is_prefill].tolist()) == remote.tolist()
    assert sorted(log["row"][~is_prefill].tolist()) == list(range(120))
    chosen = requests["prefill_instance"][log["row"][is_prefill]]
    assert log["instance"][is_prefill].tolist() == chosen.tolist()
    last = requests["instance"][log["row"][~is_prefill]]
    assert log["instance"][~is_prefill].tolist() == last.tolist()
    # The candidates are those of the pool: two, and no third.
    candidates = log["candidate_instance"]
    assert set(candidates[is_prefill][:, :2].ravel().tolist()) <= {0, 1}
    assert set(candidates[~is_prefill][:, :2].ravel().tolist()) <= {2, 3}
    assert set(candidates[:, 2].tolist()) == {-1}
    assert (np.diff(log["time_s"]) >= 0).all()


def test_why_shows_both_decisions() -> None:
    result = run(ORDERS[0])
    text = str(result.why(7))
    requests = result.requests
    first, second = requests["prefill_instance"][7], requests["instance"][7]
    assert f"to instance {first} of the prefill pool" in text
    assert f"to instance {second} of the decode pool" in text


# --- files and figures ----------------------------------------------------------------------------


# --- causes ---------------------------------------------------------------------------------------


def test_causes_add_up_whatever_follows_a_prefill() -> None:
    """It is moved, stays where it was computed, or is all that was asked for."""
    mixed = [group("prefill"), group("both", count=2), group("decode")]
    lengths = {"kind": "empirical", "values": [1, 1, 12, 30]}
    result = run(
        {"ends_at_first_token": True, "decider": "always"},
        instances=mixed,
        requests_per_s=900,
        output_tokens=lengths,
    )
    causes = result.time_by_cause()
    assert (causes.ns >= 0).all()
    assert causes.ns.sum(axis=1).tolist() == ns(result.requests["e2e_s"])

    remote = result.requests["prefill_instance"] >= 0
    ends_there = result.requests["prefill_instance"] == result.requests["instance"]
    is_answered = result.requests["output_tokens"] == 1
    moved_ns, waited_ns = (
        causes.ns[:, causes.names.index(name)] for name in ("transfer", "handoff")
    )
    kept = remote & ends_there & ~is_answered
    assert kept.sum() >= 5
    assert (remote & is_answered).sum() >= 20
    assert not moved_ns[ends_there].any()
    assert not waited_ns[is_answered].any()
    assert (moved_ns[remote & ~ends_there] > 0).all()
    # A prompt that stays waits for the decision on its decode leg alone.
    assert not waited_ns[kept].any()


def test_saved_results_keep_both_pools(tmp_path: Path) -> None:
    result = run()
    result.save(tmp_path / "run.npz")
    again = Result.load(tmp_path / "run.npz")
    for table in ("timeline", "decisions", "requests"):
        before, after = getattr(result, table), getattr(again, table)
        assert list(before) == list(after)
        for name in before:
            assert np.array_equal(before[name], after[name], equal_nan=before[name].dtype == float)


def test_requests_csv_has_the_columns_of_legs(tmp_path: Path) -> None:
    result = run(ORDERS[2])
    result.write(tmp_path)
    with (tmp_path / "requests.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    requests = result.requests
    for row, number, transfer_s in zip(
        rows, requests["prefill_instance"], requests["transfer_s"], strict=True
    ):
        assert row["prefill_instance"] == ("" if number < 0 else str(number))
        assert row["transfer_s"] == ("" if np.isnan(transfer_s) else f"{transfer_s:.9f}")
    assert {"prefill_end_s", "decode_queue_s", "wasted_tokens"} <= set(rows[0])


def test_figures_show_both_pools() -> None:
    result = run(ORDERS[2])
    figure = plots.gateway(result)
    panels = {axes.get_label(): axes for axes in figure.axes}
    for panel, lines in (("batch", POOLS), ("waiting", (*POOLS, "transfers")), ("kv", POOLS)):
        assert tuple(line.get_label() for line in panels[panel].get_lines()) == lines
    axes = plots.requests(result)
    assert "handoff and transfer" in axes.get_legend_handles_labels()[1]
    line = plots.over_time(result, "decode_waiting").get_lines()[0]
    assert np.array_equal(line.get_ydata(), result.timeline["decode_waiting"])


def test_bars_of_a_request_end_where_its_legs_do() -> None:
    result = run(ORDERS[0], num_requests=5, requests_per_s=1000)
    axes = plots.requests(result)
    requests = result.requests
    ends: dict[str, list[float]] = {
        bars.get_label(): [bar.get_x() + bar.get_width() for bar in bars]
        for bars in axes.containers
    }
    assert ends["prefill"] == pytest.approx(requests["prefill_end_s"])
    seated = requests["prefill_end_s"] + requests["transfer_s"] + requests["decode_queue_s"]
    assert ends["handoff and transfer"] == pytest.approx(seated)
    assert ends["decode"] == pytest.approx(requests["arrival_s"] + requests["e2e_s"])


def test_the_instances_of_both_legs_hold_a_request() -> None:
    result = run(ORDERS[0])
    requests = result.requests
    whole_s = float((requests["e2e_s"] - requests["queue_s"]).sum())
    last_s = float((requests["arrival_s"] + requests["e2e_s"]).max())
    figure = plots.instances(result, bins=7)
    held = figure.axes[0].collections[0].get_array()
    assert held.sum() * last_s / 7 == pytest.approx(whole_s)
    assert (held.sum(axis=1) > 0).all()
    shares = plots.placement(result).images[0].get_array()
    assert shares.sum() == pytest.approx(1)
    assert shares[0, :2].sum() == pytest.approx(0.5)


def test_a_page_has_charts_of_the_pools(tmp_path: Path) -> None:
    run().report(tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "Requests waiting in the pools" in page
    assert "prefill pool" in page


def test_streaming_shows_pools_without_requests() -> None:
    settings = run(ORDERS[0]).simulation.with_(
        {"metrics.streaming": True, "metrics.traced_candidates": 0}
    )
    result = simulate(settings, 5)
    expected = run(ORDERS[0]).timeline
    for name, column in result.timeline.items():
        assert np.array_equal(column, expected[name], equal_nan=True), name
    with pytest.raises(UsageError):
        _ = result.decisions


# --- diagnoses ------------------------------------------------------------------------------------


def test_why_counts_the_requests_ahead_where_the_prompt_is_computed() -> None:
    result = run(ORDERS[0])
    requests = result.requests
    sent_s = requests["arrival_s"] + requests["queue_s"]
    seated_s = requests["arrival_s"] + requests["scheduling_delay_s"]
    waited = 0
    for row in range(0, 120, 10):
        instance = requests["prefill_instance"][row]
        there = (requests["prefill_instance"] == instance) & (sent_s <= sent_s[row])
        there &= requests["prefill_end_s"] > sent_s[row]
        there[row] = False
        waiting = int((there & (seated_s > sent_s[row])).sum())
        waited += waiting
        ahead = f"{int(there.sum()) - waiting} running and {waiting} waiting"
        assert f"sent to instance {instance}, that had {ahead}" in str(result.why(row))
    assert waited > 0


def names_of_findings(shares: dict[int, float], decider: Any) -> set[str]:
    """Of a prefill pool of two that is loaded, by the lengths of prompts and their shares."""
    clients = [
        workload.Client(
            name=str(tokens),
            rate_fraction=share,
            input_tokens=workload.Fixed(tokens=tokens),
            output_tokens=workload.Fixed(tokens=20),
        )
        for tokens, share in shares.items()
    ]
    latency = instance.Linear(
        alpha0_us=0, alpha_input_us=0, alpha_output_us=0, beta0_us=1000, beta_prefill_us=100,
        beta_decode_us=1, beta_context_us=0,
    )  # fmt: skip
    servers = {"max_num_batched_tokens": 1024, "num_kv_blocks": 50_000, "latency": latency}
    simulation = Simulation(
        workload=workload.Synthetic(requests_per_s=30, num_requests=900, clients=clients),
        instances=[group(role, count=2, max_num_seqs=64, **servers) for role in POOLS],
        disaggregation={"order": "decode_first", "decider": decider},
    )
    return {finding.name for finding in simulate(simulation, 2).findings()}


def test_long_prompts_delay_those_that_are_computed_beside_them() -> None:
    shares = {100: 0.97, 6000: 0.03}
    assert "long_prompts" in names_of_findings(shares, router.AlwaysRemote())
    apart = router.UncachedTokens(min_uncached_tokens=500)
    assert "long_prompts" not in names_of_findings(shares, apart)


def test_seats_of_the_prefill_pool_bind_beside_free_ones_of_the_decode_pool() -> None:
    room = {"count": 2, "num_kv_blocks": 50_000}
    for seats, is_found in ((1, True), (200, False)):
        result = run(
            {"link": router.KvLink()},
            instances=[
                group("prefill", max_num_seqs=seats, **room),
                group("decode", max_num_seqs=200, **room),
            ],
            num_requests=3000,
            requests_per_s=8000,
        )
        names = {finding.name for finding in result.findings()}
        assert ("seats_binding" in names) == is_found
