"""Sweeps against single runs, and solvers against known answers."""

from __future__ import annotations

import csv
import itertools
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats
from support.changes import targets
from support.study_problems import SMALL_SPACE, overloaded

import spillway
from spillway import ConfigError, Simulation, UsageError, gateway, instance, simulate, workload
from spillway.config.files import fingerprint
from spillway.data.figures import FIGURES
from spillway.study import evaluation, grid, isolation, one_at_a_time, sobol
from spillway.study.solvers import max_rate_under_slo, min_instances_for_rate

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.study.sweeps import Sweep

LIMIT, TIMEOUT = SMALL_SPACE
RATE = "workload.requests_per_s"
QUEUE_SLO = {"mean_queue_ms": "<=50", "shed": "<=0"}


def test_sweep_without_metrics_needs_no_targets() -> None:
    simulation = Simulation(workload=workload.Synthetic(num_requests=50))
    values = {"router": ["round_robin", "least_loaded"]}
    sweep = grid(simulation, values, seeds=2)
    assert "weighted_goodput" in sweep.metrics
    assert [row.failure for row in sweep.rows] == [None, None]
    assert math.isnan(sweep.to_rows()[0]["weighted_goodput"])
    with pytest.raises(ConfigError, match="no class of these requests has a target"):
        grid(simulation, values, seeds=2, metrics=["weighted_goodput"])


def test_grid_runs_every_combination_under_the_same_seeds() -> None:
    sweep = grid(
        overloaded(), {LIMIT: [4, 16], TIMEOUT: [1, 5]}, seeds=[2, 7], metrics=["goodput", "shed"]
    )
    assert [row.settings for row in sweep.rows] == [
        {LIMIT: limit, TIMEOUT: timeout} for limit, timeout in itertools.product((4, 16), (1, 5))
    ]
    for row, simulation in zip(sweep.rows, sweep.simulations, strict=True):
        assert simulation == overloaded().with_(row.settings)
        goodput = [simulate(simulation, seed).summary()["goodput"] for seed in (2, 7)]
        assert row.values[0] == tuple(goodput)


def test_differences_are_paired() -> None:
    sweep = grid(overloaded(), {LIMIT: [4, 16]}, seeds=4, metrics=["goodput"])
    names = [row.name for row in sweep.rows]
    gaps = np.subtract(sweep.rows[1].values[0], sweep.rows[0].values[0])
    difference = sweep.difference(names[1], "goodput")
    low, high = stats.t.interval(0.95, 3, gaps.mean(), stats.sem(gaps))
    assert (difference.mean, difference.low, difference.high) == pytest.approx(
        (gaps.mean(), low, high)
    )
    with pytest.raises(KeyError, match="unknown row"):
        sweep.difference("unknown", "goodput")
    with pytest.raises(KeyError, match="was not recorded"):
        sweep.interval(names[0], "shed")


def test_sobol_fills_the_space_evenly() -> None:
    sweep = sobol(overloaded(), SMALL_SPACE, 16, seeds=1, metrics=["shed"])
    shares = [math.log(row.settings[TIMEOUT] / 0.05) / math.log(200) for row in sweep.rows]
    # Each sixteenth of a dimension holds exactly one of sixteen points.
    assert sorted(int(share * 16) for share in shares) == list(range(16))
    again = sobol(overloaded(), SMALL_SPACE, 16, seeds=1, metrics=["shed"])
    assert [row.settings for row in again.rows] == [row.settings for row in sweep.rows]
    other = sobol(overloaded(), SMALL_SPACE, 16, seed=1, seeds=1, metrics=["shed"])
    assert [row.settings for row in other.rows] != [row.settings for row in sweep.rows]


def test_one_at_a_time_changes_one_thing() -> None:
    space = {**SMALL_SPACE, "router": ["round_robin", "least_loaded"]}
    sweep = one_at_a_time(overloaded(), space, 3, seeds=1, metrics=["goodput"])
    changed = [row.settings for row in sweep.rows]
    assert changed[0] == {}
    assert [settings[LIMIT] for settings in changed if LIMIT in settings] == [1, 8, 64]
    assert [settings["router"] for settings in changed if "router" in settings] == [
        "round_robin",
        "least_loaded",
    ]
    for row, simulation in zip(sweep.rows, sweep.simulations, strict=True):
        assert simulation == overloaded().with_(row.settings)


def test_isolation_matrix() -> None:
    components: dict[str, Any] = {
        "limit": {LIMIT: 8},
        "timeout": {TIMEOUT: 0.5},
        "turns": {"gateway.bands[0].fairness": "deficit_round_robin"},
    }
    sweep = isolation(overloaded(), components, seeds=2, metrics=["goodput"])
    assert [row.name for row in sweep.rows] == [
        "base", "limit", "timeout", "turns",
        "all", "all but limit", "all but timeout", "all but turns",
    ]  # fmt: skip
    by_name = dict(zip([row.name for row in sweep.rows], sweep.simulations, strict=True))
    everything = {path: v for component in components.values() for path, v in component.items()}
    assert by_name["all"] == overloaded().with_(everything)
    without = overloaded().with_({**components["limit"], **components["turns"]})
    assert by_name["all but timeout"] == without
    whole = isolation(overloaded(), {"default": Simulation()}, seeds=1, metrics=["shed"])
    assert [row.name for row in whole.rows] == ["base", "default"]


def test_invalid_row_is_marked_and_the_others_run(tmp_path: Path) -> None:
    sweep = grid(overloaded(), {LIMIT: [-1, 4]}, seeds=2, metrics=["goodput", "p99_tpot_ms"])
    assert sweep.simulations[0] is None
    assert "must be >= 0" in str(sweep.rows[0].failure)
    assert sweep.rows[1].failure is None
    assert "failed" in repr(sweep)
    sweep.write(tmp_path / "sweep.csv")
    with (tmp_path / "sweep.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert rows[0]["goodput"] == ""
    assert float(rows[1]["goodput"]) == sum(sweep.rows[1].values[0]) / 2
    seeds = [float(text) for text in rows[1]["goodput_per_seed"].split()]
    assert tuple(seeds) == sweep.rows[1].values[0]
    assert [line["fingerprint"] is None for line in sweep.to_rows()] == [True, False]
    frame = sweep.to_frame()
    assert frame["figure"].tolist() == ["goodput", "p99_tpot_ms"]  # of the row that ran
    assert frame[LIMIT].tolist() == [4, 4]
    assert frame["unit"].tolist() == [FIGURES[name].unit for name in sweep.metrics]
    interval = sweep.interval(sweep.rows[1].name, "goodput")
    assert frame.loc[0, ["value", "low", "high", "n"]].tolist() == [
        interval.mean, interval.low, interval.high, 2
    ]  # fmt: skip
    assert frame.attrs["fingerprint"] == [None, fingerprint(overloaded().with_({LIMIT: 4}))]


def test_a_sweep_draws_itself() -> None:
    pytest.importorskip("matplotlib").use("agg")
    sweep = grid(
        overloaded(), {LIMIT: [4, 16], "router": ["round_robin", "least_loaded"]}, seeds=2,
        metrics=["goodput", "shed"],
    )  # fmt: skip
    axes = sweep.plot("shed")
    assert (axes.get_xlabel(), axes.get_ylabel()) == (LIMIT, "shed")
    assert axes.get_title(loc="right") == "mean of 2 seeds, 95% interval"
    assert axes.get_ylim()[0] == 0
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["router = round_robin", "router = least_loaded"]
    for container, router in zip(axes.containers, ("round_robin", "least_loaded"), strict=True):
        x, y = container.lines[0].get_data()
        rows = [row for row in sweep.rows if row.settings["router"] == router]
        intervals = [sweep.interval(row.name, "shed") for row in rows]
        assert (list(x), list(y)) == (
            [4, 16],
            [interval.mean for interval in intervals if interval],
        )
    named = isolation(overloaded(), {"small": {LIMIT: 4}}, seeds=2, metrics=["goodput"])
    lines = named.plot()
    assert [label.get_text() for label in lines.get_yticklabels()] == ["base", "small"]
    assert lines.get_xlabel() == FIGURES["goodput"].label
    with pytest.raises(KeyError, match="'speed' was not recorded"):
        sweep.plot("speed")
    with pytest.raises(ValueError, match="no row ran with a number for 'router'"):
        sweep.plot("shed", "router")


def test_values_of_a_grid_must_be_lists() -> None:
    with pytest.raises(ConfigError, match="must be a list"):
        grid(overloaded(), {"router": "round_robin"})


# --- solvers --------------------------------------------------------------------------------------


def server(
    rate: float, *, e2e_s: float = 0.5, permits: int = 8, num_requests: int = 3000
) -> Simulation:
    """A server of `permits` places, each of which takes `e2e_s`; nothing is ever shed."""
    plant = instance.ProcessorSharing(concurrency=[0], e2e_s=[e2e_s], ttft_s=[0.1])
    return Simulation(
        workload=workload.Synthetic(requests_per_s=rate, num_requests=num_requests),
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=permits)),
        instances=instance.InstanceGroup(plant=plant),
    )


def erlang_wait_s(places: int, rate: float, service_s: float) -> float:
    load = rate * service_s
    terms = [load**k / math.factorial(k) for k in range(places)]
    full = load**places / math.factorial(places) * places / (places - load)
    return full / (sum(terms) + full) / (places / service_s - rate)


@pytest.mark.slow
@pytest.mark.parametrize("start", [2, 40])
def test_highest_rate_is_where_the_queue_grows_too_long(start: float) -> None:
    # 8 places of 0.5 s: the mean wait of M/D/8 is about half of that of M/M/8, which Erlang knows.
    solution = max_rate_under_slo(server(start), QUEUE_SLO, tolerance=0.02, seeds=4)
    low, high = solution.feasible, solution.infeasible
    assert low < high <= low * 1.02
    assert erlang_wait_s(8, low, 0.5) / 2 == pytest.approx(0.05, rel=0.25)
    assert re.fullmatch(r"mean_queue_ms = \S+, must be <= 50", solution.first_breach)
    assert solution.simulation.workload.requests_per_s == pytest.approx(low)
    assert solution.simulation.workload.num_requests == 3000
    waits = [
        np.mean([
            simulate(server(r, num_requests=100_000), s).summary()["mean_queue_ms"]
            for s in range(100, 132)
        ])
        for r in (low, high)
    ]  # fmt: skip
    assert waits[0] <= 50 < waits[1]


# A place is free again after 0.5 s, so the capacity is 16 requests/s; but arrivals within the first
# half minute of a slight overload are served in time.
CAPACITY_PER_S = 16
PATIENT = {"slo_classes[standard].target_ttft_s": 4}
PROMISE = {"goodput": ">=0.99"}


@pytest.mark.slow
@pytest.mark.parametrize("start", [4, 17])
def test_what_only_short_runs_sustain_is_no_capacity(start: float) -> None:
    short = server(start, num_requests=500).with_(PATIENT)
    at_capacity = short.with_({"workload.requests_per_s": 1.05 * CAPACITY_PER_S})
    goodput = simulate(at_capacity, seeds=range(4)).summary()["goodput"]
    assert goodput.mean > 0.99
    solution = max_rate_under_slo(short, PROMISE, tolerance=0.02, max_requests=50_000)
    assert 0.95 * CAPACITY_PER_S < solution.feasible < 1.005 * CAPACITY_PER_S
    assert solution.infeasible < 1.05 * CAPACITY_PER_S
    ends = {
        probe.value: probe
        for probe in solution.probes
        if probe.value in (solution.feasible, solution.infeasible)
    }
    assert ends[solution.feasible].num_requests == 50_000
    assert not ends[solution.feasible].growth.is_growing
    assert all(solution.feasible < rate < solution.infeasible for rate in solution.undecided)
    assert ends[solution.infeasible].verdict == "breaks"
    assert solution.interval == (solution.feasible, solution.infeasible)
    assert "50,000" in repr(solution)


@pytest.mark.slow
def test_what_the_budget_cannot_decide_is_undecided() -> None:
    short = server(4, num_requests=500).with_(PATIENT)
    solution = max_rate_under_slo(short, PROMISE, tolerance=0.02, max_requests=500)
    assert solution.undecided
    assert (
        solution.feasible < min(solution.undecided) <= max(solution.undecided) < solution.infeasible
    )
    assert all(probe.num_requests == 500 for probe in solution.probes)
    assert any("a larger max_requests would decide" in note for note in solution.notes)
    assert "undecided at" in repr(solution)
    more = max_rate_under_slo(short, PROMISE, tolerance=0.02, max_requests=50_000)
    assert more.infeasible / more.feasible < solution.infeasible / solution.feasible


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"horizon_s": 60}, "horizon_s = 60 ends it"),
        ({"workload.clients[0].num_requests": 500}, "clients have their own duration_s or"),
        (
            {"changes": targets((1000, 1)), "instances[0].count": 2},
            "settings change at stated times",
        ),
    ],
)  # fmt: skip
def test_workloads_that_end_by_themselves_are_not_lengthened(
    changes: dict[str, Any], reason: str
) -> None:
    short = server(4, num_requests=500).with_({**PATIENT, **changes})
    solution = max_rate_under_slo(short, PROMISE, tolerance=0.1, seeds=2, high=64)
    assert {probe.num_requests for probe in solution.probes} == {500}
    assert any(f"no run was lengthened: {reason}" in note for note in solution.notes)


def test_a_rate_whose_backlog_grows_until_the_end_is_not_feasible() -> None:
    # The horizon ends the runs before the queue is too long.
    short = server(4, num_requests=4000).with_({"horizon_s": 120})
    slo = {"mean_queue_ms": "<=10000", "shed": "<=0"}
    solution = max_rate_under_slo(short, slo, tolerance=0.1, seeds=4, high=64)
    assert solution.undecided
    verdicts = {probe.value: probe.saturation for probe in solution.probes}
    assert verdicts[solution.feasible] != "saturated"
    assert {verdicts[value] for value in solution.undecided} == {"saturated"}
    assert any("the runs are saturated" in note for note in solution.notes)
    assert "saturated" in repr(solution)
    assert "saturated" in {probe["saturation"] for probe in solution.to_dict()["probes"]}


def test_rows_carry_the_verdict() -> None:
    slow, fast = 4.0, 40.0
    metrics = ["request_throughput"]
    sweep = grid(server(4, num_requests=1000), {RATE: [slow, fast]}, seeds=2, metrics=metrics)
    assert [row.saturation for row in sweep.rows] == ["unsaturated", "saturated"]
    assert [line["saturation"] for line in sweep.to_rows()] == ["unsaturated", "saturated"]
    assert "1 of 2 configurations are saturated" in repr(sweep)
    assert repr(sweep).splitlines()[2].split()[-1] == "saturation"
    calm = grid(server(4, num_requests=1000), {RATE: [slow]}, seeds=2, metrics=metrics)
    assert "satur" not in repr(calm)
    streamed = server(4).with_({"metrics.streaming": True})
    few = server(4, num_requests=200)
    for unknown in (streamed, few):
        sweep = grid(unknown, {RATE: [fast]}, seeds=2, metrics=metrics)
        assert sweep.rows[0].saturation is None


def test_verdicts_of_large_runs_take_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    base = server(4, num_requests=400)
    values = {RATE: [2.0, 4.0, 40.0]}
    whole = grid(base, values, seeds=3, metrics=["mean_queue_ms"], threads=1)
    for limit in (100e3, 10e3):  # some configurations at a time, then some of their runs
        monkeypatch.setattr(evaluation, "_MOST_KEPT_BYTES", limit)
        calls = []

        def counted(simulations: Any, seeds: Any, calls: Any = calls, **options: Any) -> Any:
            calls.append((len(simulations), len(seeds)))
            return spillway.run_many(simulations, seeds, **options)

        monkeypatch.setattr(evaluation, "finished_runs", counted)
        assert grid(base, values, seeds=3, metrics=["mean_queue_ms"], threads=1) == whole
        assert len(calls) > 1


def test_duration_is_lengthened_as_well() -> None:
    load = {"kind": "synthetic", "requests_per_s": 4, "duration_s": 100}
    timed = server(4).with_({**PATIENT, "workload": load})
    solution = max_rate_under_slo(timed, PROMISE, tolerance=0.1, seeds=2, max_requests=10_000)
    assert solution.feasible < CAPACITY_PER_S
    ends = [probe for probe in solution.probes if probe.value == solution.feasible]
    assert ends[0].num_requests == 10_000
    assert solution.simulation.workload.duration_s == 100


def test_budget_must_be_positive() -> None:
    with pytest.raises(ValueError, match="max_requests = 0"):
        max_rate_under_slo(server(4), PROMISE, max_requests=0)


@pytest.mark.slow
def test_all_clients_grow_by_the_same_factor() -> None:
    base = overloaded().with_({"gateway.limit[0].max_in_flight": 16})
    solution = max_rate_under_slo(
        base, {"goodput": ">=0.9", "shed": "<=0.1"}, tolerance=0.1, seeds=2
    )
    shares = [client.rate_fraction for client in solution.simulation.workload.clients]
    assert shares == [0.5, 0.5]
    clients = [
        workload.Client(name=name, tenant=name, slo_class="critical", requests_per_s=rate)
        for name, rate in (("a", 9), ("b", 3))
    ]
    explicit = base.replace(workload=workload.Synthetic(num_requests=200, clients=clients))
    scaled = max_rate_under_slo(explicit, {"goodput": ">=0.9"}, tolerance=0.1, seeds=2)
    rates = [client.requests_per_s for client in scaled.simulation.workload.clients]
    assert rates[0] == pytest.approx(3 * rates[1])
    assert sum(rates) == pytest.approx(scaled.feasible)


def test_bounds_of_the_rate_are_kept() -> None:
    slo = QUEUE_SLO
    easy = max_rate_under_slo(server(2), slo, high=4, seeds=1)
    assert (easy.feasible, easy.infeasible, easy.first_breach) == (4, None, None)
    hard = max_rate_under_slo(server(100), slo, low=50, seeds=1)
    assert hard.feasible is None
    assert hard.infeasible == 50
    assert hard.simulation is None


@pytest.mark.slow
@pytest.mark.parametrize("rate", [5, 60, 200])
def test_fewest_instances(rate: float) -> None:
    # An instance's places are its own; the gateway has permits for all.
    plant = instance.ProcessorSharing(concurrency=[0, 8, 80], e2e_s=[0.5, 0.5, 5], ttft_s=[0.1] * 3)
    group = instance.InstanceGroup(plant=plant)
    base = server(rate, permits=10_000).replace(instances=group, router="least_loaded")
    slo = {"mean_e2el_ms": "<=520", "shed": "<=0"}
    solution = min_instances_for_rate(base, slo, seeds=2)
    assert solution.infeasible in (None, solution.feasible - 1)

    def mean_ms(count: float) -> float:
        there = base.with_({"instances[0].count": int(count)})
        return float(np.mean([simulate(there, s).summary()["mean_e2el_ms"] for s in range(2)]))

    assert mean_ms(solution.feasible) <= 520
    if solution.infeasible is not None:
        assert mean_ms(solution.infeasible) > 520
    else:
        assert solution.feasible == 1
    slow = server(1, permits=10_000).replace(instances=group, router="least_loaded")
    again = min_instances_for_rate(slow, slo, rate, seeds=2)
    assert again.feasible == solution.feasible


def test_fewest_instances_with_one_less() -> None:
    """What crashes before the first request, noticed at once, is an instance more."""
    server = instance.InstanceGroup(latency=instance.Linear(beta0_us=20_000), max_num_seqs=4)
    base = Simulation(
        workload=workload.Synthetic(requests_per_s=12, num_requests=400),
        instances=server,
        router="least_loaded",
    )
    slo = {"mean_ttft_ms": "<=200", "shed": "<=0"}
    enough = min_instances_for_rate(base, slo, seeds=2, max_requests=400)
    spare = min_instances_for_rate(base, slo, seeds=2, max_requests=400, survive=1)
    assert spare.feasible == enough.feasible + 1
    assert "arrived before warm_up_s" in spare.notes[-1]
    with pytest.raises(ValueError, match="survive = -1"):
        min_instances_for_rate(base, slo, survive=-1)


def test_solvers_need_promises_about_who_got_through() -> None:
    with pytest.raises(UsageError, match="at least one constraint"):
        max_rate_under_slo(server(1), {})
    with pytest.warns(RuntimeWarning, match="these constraints apply only to served requests"):
        max_rate_under_slo(server(1), {"p99_ttft_ms": "<=1000"}, high=2, seeds=1)


SMALL = Simulation(workload=workload.Synthetic(num_requests=60))


def grid_of_two(**options: Any) -> Sweep:
    values = {"workload.requests_per_s": [5, 10], "instances[0].count": [1, 2, 4]}
    return grid(SMALL, values, metrics=["completed", "p99_ttft_ms"], seeds=2, **options)


def test_a_grid_is_an_array_with_coordinates() -> None:
    sweep = grid_of_two()
    coordinates, means = sweep.array("p99_ttft_ms")
    assert coordinates == {"workload.requests_per_s": [5, 10], "instances[0].count": [1, 2, 4]}
    assert means.shape == (2, 3)
    for row in sweep.rows:
        cell = [known.index(row.settings[path]) for path, known in coordinates.items()]
        interval = sweep.interval(row.name, "p99_ttft_ms")
        assert interval is not None
        assert means[tuple(cell)] == interval.mean
    left, line = sweep.array("p99_ttft_ms", at={"instances[0].count": 4})
    assert left == {"workload.requests_per_s": [5, 10]}
    assert line.tolist() == means[:, 2].tolist()
    with pytest.raises(ValueError, match="no row has"):
        sweep.array(at={"instances[0].count": 3})
    with pytest.raises(KeyError, match="was not recorded"):
        sweep.array("goodput")


def test_an_array_leaves_invalid_combinations_blank_and_refuses_what_is_no_grid() -> None:
    values = {"instances[0].num_kv_blocks": [-1, 5000], "workload.requests_per_s": [5]}
    _, means = grid(SMALL, values, metrics=["completed"], seeds=1).array()
    assert np.isnan(means[0, 0])
    assert means[1, 0] > 0
    components = {"a": {"router": "least_loaded"}, "b": {"instances[0].count": 2}}
    sides = isolation(SMALL, components, metrics=["completed"], seeds=1)
    with pytest.raises(ValueError, match="other settings"):
        sides.array()


def test_a_heat_map_has_the_cells_of_the_array() -> None:
    sweep = grid_of_two()
    axes = sweep.heat_map("p99_ttft_ms")
    (image,) = axes.images
    assert image.get_array().tolist() == sweep.array("p99_ttft_ms")[1].T.tolist()
    assert axes.get_xlabel() == "workload.requests_per_s"
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["1", "2", "4"]
    with pytest.raises(ValueError, match="a heat map has two settings"):
        sweep.heat_map(at={"instances[0].count": 4})


def test_what_is_printed_of_a_large_sweep_fits_a_screen() -> None:
    rates = [5 + i / 100 for i in range(100)]
    sweep = grid(SMALL, {RATE: rates}, metrics=["completed"], seeds=1)
    assert len(repr(sweep).splitlines()) < 60
    assert "60 more rows: to_frame() and write() have them" in repr(sweep)
    assert len(sweep.to_rows()) == 100
