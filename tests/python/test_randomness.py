"""If seeds change nothing, there is no interval."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml
from support.runs import flat
from support.study_problems import SMALL_SPACE, overloaded

from spillway import (
    Results,
    Simulation,
    Study,
    UsageError,
    cli,
    dump,
    gateway,
    instance,
    run_many,
    simulate,
    trace,
    workload,
)
from spillway.config.randomness import random_streams
from spillway.report import plots
from spillway.report.plots.counted_runs import distinct_runs
from spillway.study import grid, max_rate_under_slo, min_instances_for_rate

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = "seeds change nothing: nothing in the configuration is random, so there is one run"


def recorded(n: int = 200, **settings: Any) -> Simulation:
    """A recorded workload of two tenants on a gateway that sheds some of it."""
    rng = np.random.default_rng(3)
    requests = trace(
        arrival_s=np.cumsum(rng.exponential(0.08, n)),
        input_tokens=rng.integers(10, 900, n),
        output_tokens=rng.integers(1, 90, n),
        tenant=["a" if draw < 0.5 else "b" for draw in rng.random(n)],
        slo_class="critical",
    )
    return overloaded(workload=requests).with_(settings)


def test_streams_are_named() -> None:
    assert random_streams(recorded()) == ()
    assert random_streams(Simulation()) == ("arrivals",)
    several = recorded().with_({"instances[0].count": 2, "router": "kv_cost"})
    several = several.with_({"instances[0].plant": "step_loop", "instances[0].latency": "jittered"})
    assert random_streams(several) == ("router", "step_durations")


def test_results_of_a_trace_are_one_run() -> None:
    results = simulate(recorded(), seeds=range(8))
    assert [result.seed for result in results] == list(range(8))
    assert not results.is_replicated
    assert results.distinct == (results[0],)
    assert len({result.digest for result in results}) == 1
    assert results.notes() == [f"{NOTHING}."]
    figures = results.summary()
    for found in (figures, results.by_class()["critical"], results.by_tenant()["a"]):
        one = found["goodput"]
        assert one is not None
        assert (one.low, one.high, one.half_width, one.n) == (None, None, None, 1)
    assert figures["goodput"].mean == results[0].summary()["goodput"]  # type: ignore[union-attr]
    own = results.interval(lambda result: float(result.requests["attempts"].mean()))
    assert (own.mean, own.low, own.n) == (1, None, 1)
    other = simulate(recorded(**{"gateway.limit[0].max_in_flight": 4}), seeds=range(8))
    gap = results.minus(other)["goodput"]
    assert gap is not None
    assert gap.mean != 0
    assert (gap.low, gap.n) == (None, 1)
    shown = repr(results)
    assert shown.startswith(NOTHING)
    assert "confidence" not in shown


def test_a_random_router_makes_replications_of_a_trace() -> None:
    changes = {"instances[0].count": 3, "router": {"kind": "least_loaded", "ties": "random"}}
    results = simulate(recorded(**changes), seeds=range(4))
    assert results.is_replicated
    assert len(results.distinct) == 4
    assert results.notes() == []
    assert results.summary()["mean_ttft_ms"].half_width is not None  # type: ignore[union-attr]
    # Against one run the differences still spread.
    gap = results.minus(simulate(recorded(), seeds=range(4)))["mean_ttft_ms"]
    assert gap is not None
    assert gap.n == 4
    assert gap.half_width


def test_random_numbers_without_consequence_make_no_interval() -> None:
    retry = workload.Retry(on=["timeout"], jitter="full")
    idle = recorded(reaction=workload.Reaction(timeout_s=1e6, retries=[retry]))
    assert random_streams(idle) == ("retries",)
    results = simulate(idle, seeds=range(3))
    assert not results.is_replicated
    assert "although random numbers could change retries" in results.notes()[0]
    assert results.summary()["goodput"].low is None  # type: ignore[union-attr]


def test_constant_arrivals_and_lengths_are_one_run() -> None:
    clients = [workload.Client(arrivals="constant")]
    constant = Simulation(workload=workload.Synthetic(num_requests=50, clients=clients))
    assert not simulate(constant, seeds=range(3)).is_replicated
    both = run_many([constant, Simulation()], range(3))
    assert [results.is_replicated for results in both] == [False, True]


def test_one_seed_is_no_interval_and_no_note() -> None:
    one = simulate(Simulation(), seeds=[5])
    assert not one.is_replicated
    assert one.notes() == []
    assert repr(one).startswith("1 seed: no confidence interval")
    assert Results([]).notes() == []


@pytest.mark.parametrize("seeds", [(1, 1), (0, 3, 0)])
def test_a_seed_twice_is_refused(seeds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must differ"):
        simulate(Simulation(), seeds=seeds)
    with pytest.raises(ValueError, match="must differ"):
        run_many([Simulation()], seeds)


def test_progress_counts_every_seed() -> None:
    reports: list[tuple[int, int]] = []
    run_many([recorded(), overloaded()], range(3), progress=lambda *report: reports.append(report))
    assert reports[-1] == (6, 6)


def test_figures_do_not_pool_copies() -> None:
    results = simulate(recorded(), seeds=range(4))
    assert distinct_runs(results) == (results[0],)
    axes = plots.sweep({1.0: results, 2.0: results}, "goodput")
    assert axes.get_title(loc="right") == "1 seed"


# --- studies --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study() -> Study:
    found = Study(recorded(), SMALL_SPACE, "goodput", {"shed": "<=0.9"}, seeds=3, sampler="tpe")
    return found.optimize(8, check=False)


def test_study_on_a_trace_says_so(study: Study) -> None:
    assert study.notes() == [f"{NOTHING}."]
    assert f"note: {NOTHING}" in repr(study)
    for row, trial in zip(study.rows(), study.records, strict=True):
        assert row["n"] == 1
        assert len(row["goodput_per_seed"]) == 1
        assert np.isnan(row["goodput_se"])
        assert trial.ses == (0,)
        assert row["goodput"] == simulate(study.simulation_of(trial)).summary()["goodput"]
    assert {trial.user_attrs.get("num_runs") for trial in study.optuna.get_trials()} == {None}


def test_a_search_on_one_run_says_before_it_begins_what_a_confirmation_needs() -> None:
    study = Study(recorded(), SMALL_SPACE, "goodput", seeds=1, sampler="random")
    with pytest.warns(RuntimeWarning, match="`confirm` needs runs that differ") as caught:
        study.optimize(1)
    (message,) = [str(warning.message) for warning in caught]
    assert message.startswith(NOTHING)
    for word in ("spillway.traffic.resampled", "spillway.traffic.halves", "jittered"):
        assert word in message
    # Seeds that do change the runs are silent, also where there is only one: warnings are errors.
    Study(overloaded(), SMALL_SPACE, "goodput", seeds=1, sampler="random").optimize(1)


def test_fresh_seeds_confirm_nothing_on_a_trace(study: Study) -> None:
    with pytest.raises(UsageError, match="To replicate: a block bootstrap") as caught:
        study.confirm(2, 4)
    for word in ("nothing in the configuration is random", "block bootstrap", "jittered"):
        assert word in str(caught.value)


def test_trials_without_randomness_are_distinguished() -> None:
    base = recorded(**{"instances[0].count": 2, "router": "least_loaded"})
    space = {**SMALL_SPACE, "router.ties": ["first", "random"]}
    mixed = Study(base, space, "goodput", seeds=3, sampler="random").optimize(12, check=False)
    replicated = {record.is_replicated for record in mixed.records}
    assert replicated == {True, False}
    for record in mixed.records:
        first = record.point["router.ties"] == "first"
        assert record.num_runs in ((1,) if first else (1, 3))
    assert "of 12 trials: seeds change nothing" in mixed.notes()[0]


def test_study_from_the_shell_ends_without_a_confirmation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clients = [
        workload.Client(name=name, tenant=name, slo_class="critical", arrivals="constant")
        for name in ("a", "b")
    ]
    constant = overloaded(
        workload=workload.Synthetic(requests_per_s=30, num_requests=200, clients=clients)
    )
    dump(constant, tmp_path / "base.yaml")
    settings = {
        "simulation": "base.yaml", "space": {path: list(v) for path, v in SMALL_SPACE.items()},
        "maximize": "goodput", "seeds": 3, "trials": 6, "sampler": "random", "check": False,
    }  # fmt: skip
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(settings))
    out = tmp_path / "out"
    assert cli.main(["optimize", str(tmp_path / "study.yaml"), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert f"note: {NOTHING}" in shown
    assert "not confirmed: fresh seeds confirm nothing" in shown
    assert not (out / "confirmation.json").exists()
    assert (out / "best.yaml").exists()
    with (out / "trials.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["n"] for row in rows} == {"1"}
    assert {row["goodput_se"] for row in rows} == {""}


def test_sweep_on_a_trace_has_no_intervals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = grid(recorded(), {"gateway.limit[0].max_in_flight": [4, 16]}, seeds=4)
    names = [row.name for row in found.rows]
    for interval in (found.interval(names[0], "shed"), found.difference(names[1], "shed")):
        assert interval is not None
        assert (interval.low, interval.n) == (None, 1)
    assert f"note: {NOTHING}" in repr(found)
    assert "±" not in repr(found)
    assert len(found.to_rows()[0]["shed_per_seed"]) == 1
    mixed = grid(
        recorded(**{"instances[0].count": 3}),
        {"router": ["round_robin", {"kind": "least_loaded", "ties": "random"}]},
        seeds=4,
    )
    assert "1 of 2 rows: seeds change nothing" in mixed.notes()[0]
    one = mixed.difference(mixed.rows[1].name, "p99_ttft_ms")
    assert one is not None
    assert one.n == 4
    dump(overloaded().with_({"workload.clients": [
        workload.Client(tenant="a", slo_class="critical", arrivals="constant")
    ]}), tmp_path / "base.yaml")  # fmt: skip
    settings = {"simulation": "base.yaml", "seeds": 2, "grid": {"horizon_s": [5, 9]}}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(settings))
    assert cli.main(["sweep", str(tmp_path / "sweep.yaml")]) == 0
    assert f"note: {NOTHING}" in capsys.readouterr().out


def test_solvers_say_so() -> None:
    server = Simulation(
        workload=workload.Synthetic(
            requests_per_s=2, num_requests=400, clients=[workload.Client(arrivals="constant")]
        ),
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=8)),
        instances=flat(e2e_s=0.5, ttft_s=0.1),
    )
    slo = {"mean_queue_ms": "<=50", "shed": "<=0"}
    found = max_rate_under_slo(server, slo, tolerance=0.02, seeds=4, max_requests=4000)
    assert found.feasible == pytest.approx(16, rel=0.03)
    assert NOTHING in found.notes[0]
    assert NOTHING in json.dumps(found.to_dict())
    replay = recorded(
        instances=instance.InstanceGroup(
            plant=instance.ProcessorSharing(
                concurrency=[0, 8, 80], e2e_s=[0.5, 0.5, 5], ttft_s=[0.1] * 3
            )
        )
    )
    fewest = min_instances_for_rate(replay, {"goodput": ">=0.9"}, seeds=4)
    assert any(NOTHING in note for note in fewest.notes)
    assert any("no run was lengthened: the trace is finite" in note for note in fewest.notes)
