"""The experiments on admission run, at a minimal size."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spillway import simulate
from spillway.data.intervals import Interval

_ROOT = str(Path(__file__).parents[2])
sys.path.insert(0, _ROOT)
try:
    from experiments import common
    from experiments.head_to_head import run as head_to_head
    from experiments.iteration_14 import run as iteration_14
    from experiments.predictive_vs_gated import run as predictive_vs_gated
    from experiments.server_failure import run as server_failure
    from experiments.two_pools import run as two_pools
finally:
    sys.path.remove(_ROOT)

pytest.importorskip("optuna")


def test_experiments_workloads_have_the_published_shape() -> None:
    requests = simulate(
        common.simulation(common.orthogonal(900, 20_000), routing="round_robin"), 1
    ).requests
    assert requests["input_tokens"].mean() == pytest.approx(770, rel=0.01)
    assert requests["input_tokens"].min() == 512 + 64
    assert requests["input_tokens"].max() == 512 + 512
    assert requests["output_tokens"].mean() == pytest.approx(129, rel=0.03)
    names, counts = np.unique(requests["slo_class"], return_counts=True)
    shares = dict(zip(names.tolist(), counts / 20_000, strict=True))
    assert shares == pytest.approx(
        {"critical": 0.33, "standard": 0.34, "sheddable": 0.33}, abs=0.02
    )


def test_experiments_prefix_groups_follow_zipf() -> None:
    load = common.prefix_groups(1600, 1000)
    by_group: dict[str, float] = {}
    for client in load.clients:
        by_group[client.prefix_group] = by_group.get(client.prefix_group, 0) + client.rate_fraction
    assert len(by_group) == 24
    assert sum(by_group.values()) == pytest.approx(1)
    assert by_group["group 1"] == pytest.approx(24 * by_group["group 24"])
    assert {client.prefix_tokens for client in load.clients} == {2048}


def test_verdict_needs_the_whole_interval() -> None:
    assert common.exceeds(Interval(1, 0.5, 1.5, 10)) == "confirmed"
    assert common.exceeds(Interval(-1, -1.5, -0.5, 10)) == "refuted"
    assert common.exceeds(Interval(0.1, -0.5, 0.7, 10)) == "undecided"
    assert common.exceeds(Interval(1, None, None, 1)) == "undecided"
    assert common.exceeds(Interval(0, 0, 0, 10)) == "confirmed"
    assert common.all_of("confirmed", "undecided") == "undecided"
    assert common.all_of("undecided", "refuted") == "refuted"
    assert common.all_of("confirmed", "confirmed") == "confirmed"


def test_prediction_interval_holds_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(2000):
        low, high = iteration_14.prediction_interval(rng.normal(5, 2, size=12).tolist(), 3)
        inside += low <= rng.normal(5, 2, size=3).mean() <= high
    # Binomial with p = 0.99: a deviation of four sigmas is 0.9 %.
    assert inside / 2000 == pytest.approx(0.99, abs=0.009)


def _fake(**columns: Any) -> Any:
    return SimpleNamespace(
        requests={name: np.array(values) for name, values in columns.items()}, instances=[{}, {}]
    )


def test_max_p99_is_the_largest_of_any_instance() -> None:
    result = _fake(ttft_s=[0.1, 0.1, 0.5, 0.7, np.nan], instance=[0, 0, 1, 1, -1])
    assert iteration_14.max_p99_ms(result) == pytest.approx(500 + 0.99 * 200)


def test_wasted_tokens_are_those_of_requests_that_missed() -> None:
    result = _fake(
        ttft_s=[0.1, 0.25, 0.25, 0.1, np.nan],
        slo_class=["critical", "critical", "standard", "standard", "critical"],
        outcome=["completed", "completed", "completed", "cancelled", "rejected"],
        input_tokens=[100, 100, 100, 100, 100],
        output_tokens=[10, 20, 30, 5, 0],
    )
    # The second came late, the fourth was withdrawn; the fifth was never served.
    assert head_to_head.wasted_share(result) == pytest.approx((120 + 105) / (110 + 120 + 130 + 105))


def test_iteration_14_settles_every_hypothesis() -> None:
    cell = iteration_14.Cell("tiny", common.orthogonal(2000, 120), 2000)
    published = tuple(
        rows[:1]
        for rows in (
            iteration_14.reported_rows(),
            iteration_14.corrected_rows(),
            iteration_14.group_rows(),
        )
    )
    text = iteration_14.report([cell], published, num_seeds=2, num_theirs=3, threads=1)
    configurations = [f"| {number} " for number in range(1, 8)]
    assert all(configuration in text for configuration in configurations)
    verdicts = [line for line in text.splitlines() if line.startswith("| tiny | E")]
    assert len(verdicts) == 2
    for line in verdicts:
        rejected, *words = [cell.strip() for cell in line.split("|")[3:9]]
        assert rejected == "0.0%"  # 3 is 6 then, so nothing is said of prediction
        assert words[1] in ("confirmed", "refuted", "undecided", "not applicable")
        assert words[:1] + words[2:] == ["not applicable"] * 4


def test_iteration_14_says_where_a_hypothesis_is_not_applicable() -> None:
    load = common.orthogonal(2000, 3000)
    cell = iteration_14.Cell("overload", load, 2000)
    simulations = iteration_14.matrix(cell, ["seats_and_memory"])
    tight = common.predictive("seats_and_memory", standard_s=0.02, sheddable_s=0.02)
    simulations["3 predictive E3"] = simulations["3 predictive E3"].with_(
        {"gateway.admission": tight}
    )
    runs = iteration_14.run_matrix(simulations, range(2), threads=1)
    row = iteration_14.verdict_row(cell, "seats_and_memory", runs)
    assert row[2] != "0.0%"
    # All prompts share one prefix, which is warm at once: no hit rate is left to gain.
    assert row[5] == "not applicable"
    assert "not applicable" not in row[6:8]
    calm = iteration_14.run_matrix(
        iteration_14.matrix(iteration_14.Cell("calm", common.orthogonal(50, 50), 50), []),
        range(2),
        threads=1,
    )
    assert not iteration_14.can_complete_more(calm["2 SLO-gated"])


def test_published_rows_are_all_there() -> None:
    assert len(iteration_14.reported_rows()) == 20
    assert len(iteration_14.corrected_rows()) == 9
    semantics = iteration_14.reported_rows()[0].simulation()
    assert semantics.instances[0].completion == "step_start"
    compound = iteration_14.reported_rows()[2].simulation()
    assert compound.instances[0].scheduler.priority == "slo_class"
    assert compound.router.picker.ties == "first"


def test_two_pools_wastes_prefills_only_if_prefill_is_first(tmp_path: Path) -> None:
    text = two_pools.report(
        [2, 40], [3, 30], num_requests=400, num_seeds=2, threads=1, folder=tmp_path
    )
    for name in ("goodput.svg", "shared_gate.svg"):
        assert (tmp_path / name).is_file()
    rows = [line.split(" | ") for line in text.splitlines()]
    low, high = (row for row in rows if row[0] in ("| 2", "| 40"))
    assert low[-1].startswith("0.000")
    assert not high[-1].startswith("0.000")
    assert two_pools.wasted(simulate(two_pools.simulation("decode_first", 40, 400), 0)) == 0
    # A saturated prefill pool holds back what it would not serve, unless its saturation is ignored.
    low, high = (row for row in rows if row[0] in ("| 3", "| 30"))
    chats = [[float(cell.split()[0]) for cell in row[1:5]] for row in (low, high)]
    assert min(chats[0]) > 0.99
    assert max(chats[1][:2]) < 0.5
    assert min(chats[1][2:]) > 0.9
    assert (low[6], high[6]) == ("refuted", "confirmed")


@pytest.mark.slow
def test_migration_saves_requests_only_where_servers_have_room() -> None:
    tried = [server_failure.NOTHING, server_failure.MIGRATED]
    tried += [server_failure.LIMITED, server_failure.BOTH]
    kind = server_failure.Fleet(4, "least requests", (0.8, 1.25))
    low, high = (
        server_failure.measure(kind, tried, load, seeds=range(2), num_requests=8000, threads=1)
        for load in kind.loads
    )
    assert all(cell.peace == [0, 0] for found in (low, high) for cell in found.values())
    for seed in range(2):
        below, above = ({name: found[name].crash[seed] for name in found} for found in (low, high))
        assert below["migration"] == 0 < below["nothing"]
        assert above["migration"] > above["nothing"] > above["limit"] > above["migration and limit"]


def test_predictive_vs_gated_reports_every_contender() -> None:
    text = predictive_vs_gated.report(
        {"tiny": common.orthogonal(2000, 120)}, trials=2, num_seeds=2, threads=1
    )
    for name in predictive_vs_gated.contenders():
        assert f"- {name}: router = " in text
    # The fleet serves so few requests without rejecting any.
    assert text.count("| not applicable |") == 3
    assert text.count("| no admission control, ") == 3
    assert text.count("(the best)") == 1


@pytest.mark.slow
def test_head_to_head_reports_every_contender() -> None:
    text = head_to_head.report(150, loads=(2.0,), trials=2, num_seeds=2, threads=1)
    for name in head_to_head.contenders():
        assert f"| {name} |" in text
