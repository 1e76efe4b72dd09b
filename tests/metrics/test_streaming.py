"""Streaming mode: the exact run's counts, percentiles to 0.5 %, memory for those in flight only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import trials
from support.specimens import examples

from spillway import (
    Result,
    Simulation,
    UsageError,
    cli,
    gateway,
    instance,
    router,
    run_many,
    simulate,
    trace,
    workload,
)
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ROUNDED = ("min_", "max_", "p50_", "p90_", "p95_", "p99_")
SUMMED = ("mean_", "std_")
# Needs every request's latency at the end, or follows from percentiles.
NOT_COMPARED = ("approximate", "priority_inversions", "fitness")
ONE_NS = 1e-6  # in ms; the histogram takes whole nanoseconds


def streamed(simulation: Simulation) -> Simulation:
    return simulation.with_({"metrics.streaming": True})


def both(simulation: Simulation, seed: int = 0) -> tuple[Result, Result]:
    return simulate(simulation, seed), simulate(streamed(simulation), seed)


def overloaded(num_requests: int = 3000, **changes: Any) -> Simulation:
    """Two tenants of two classes with targets, with more requests than the gateway has permits."""
    lengths = {
        "input_tokens": workload.Lognormal(mu=5.5, sigma=1, max_tokens=3000),
        "output_tokens": workload.Lognormal(mu=4, sigma=0.8, max_tokens=800),
    }
    settings: dict[str, Any] = {
        "workload": workload.Synthetic(
            requests_per_s=30,
            num_requests=num_requests,
            clients=(
                workload.Client(name="a", tenant="gold", slo_class="critical", **lengths),
                workload.Client(name="b", tenant="free", slo_class="standard", **lengths),
            ),
        ),
        "slo_classes": (
            workload.SloClass(name="critical", priority=4, target_ttft_s=0.3),
            workload.SloClass(name="standard", priority=1, target_e2e_s=5),
        ),
        "gateway": gateway.Gateway(
            admission=gateway.TokenBucket(capacity_tokens=20_000, refill_tokens_per_s=9000),
            limit=gateway.FixedLimit(max_in_flight=80),
        ),
        "router": router.LeastLoaded(),
        "instances": (BLIS_SERVER.replace(count=2, max_num_seqs=32, num_kv_blocks=500),),
    }
    return Simulation(**(settings | changes))


def assert_figures(exact: Mapping[str, Any], approximate: Mapping[str, Any]) -> None:
    assert approximate["approximate"] is True
    assert "approximate" not in exact
    assert [name for name in approximate if name != "approximate"] == list(exact)
    for name, value in exact.items():
        estimate = approximate[name]
        if name in NOT_COMPARED:
            continue
        if name.startswith(ROUNDED) and value is not None:
            assert estimate == pytest.approx(value, rel=0.005), name
        elif name.startswith(SUMMED) and value is not None:
            assert estimate == pytest.approx(value, rel=1e-9, abs=ONE_NS), name
        else:
            assert estimate == value, name


def assert_same(exact: Result, approximate: Result) -> None:
    assert_figures(exact.summary(), approximate.summary())
    for ours, theirs in (
        (exact.by_class(), approximate.by_class()),
        (exact.by_tenant(), approximate.by_tenant()),
    ):
        assert list(ours) == list(theirs)
        for name, figures in ours.items():
            assert_figures(figures, theirs[name])
    assert approximate.ledger == exact.ledger
    assert approximate.instances == exact.instances
    assert (approximate.steps, approximate.events) == (exact.steps, exact.events)


# Figures


def test_figures_of_many_requests() -> None:
    exact, approximate = both(overloaded(20_000))
    assert_same(exact, approximate)
    assert min(exact.summary()[name] for name in ("completed", "rejected", "preemptions")) > 50


@pytest.mark.parametrize("seed", trials(5))
@pytest.mark.parametrize(
    "changes",
    [
        {"horizon_s": 20},
        {"warm_up_s": 15},
        {"horizon_s": 40, "warm_up_s": 10},
        {"warm_up_s": 1e6},
        {"horizon_s": 0.001},
        {"metrics.accounting": "blis"},
        {"gateway.admission": "reject_all"},
        {"gateway.admission_latency_s": 0.4, "gateway.routing_latency_s": 0.3, "horizon_s": 30},
        {"instances.completion": "step_start", "instances.preemption": "restart"},
        {"instances.scheduler": "sjf"},
        {"instances.scheduler": "priority_fcfs"},
        {"instances.scheduler": {"kind": "reverse_priority", "priority": "age"}},
        {"instances.max_model_len": 400},
        {"router": {"kind": "least_loaded", "ties": "random"}},
        {"quantum_ns": 1_000_000},
        {"workload.num_requests": 1},
    ],
    ids=str,
)
def test_figures_are_those_of_the_exact_run(changes: dict[str, Any], seed: int) -> None:
    assert_same(*both(overloaded(1000).with_(changes), seed))


def test_step_by_step_run_has_the_same_figures() -> None:
    simulation = streamed(overloaded(1000))
    assert simulate(simulation, reference=True).digest == simulate(simulation).digest


def test_figures_of_extreme_populations() -> None:
    nobody = streamed(
        Simulation(gateway=gateway.Gateway(admission=gateway.RejectAll()), instances=BLIS_SERVER)
    )
    summary = simulate(nobody).summary()
    assert (summary["num_ttft"], summary["p99_ttft_ms"]) == (0, None)
    single = Simulation(workload=workload.Synthetic(num_requests=1), instances=BLIS_SERVER)
    assert_same(*both(single))


# Traces: ties are resolved by the requests' names, which are not in the order of their ids


def tied_trace(with_names: bool) -> workload.Trace:
    rng = np.random.default_rng(5)
    size = 600
    return trace(
        arrival_s=np.repeat(np.arange(size // 20) * 0.5, 20),  # twenty at a time
        input_tokens=rng.choice([50, 100, 400], size),
        output_tokens=rng.integers(0, 80, size),
        tenant=rng.choice(["gold", "free", "new"], size).tolist(),
        slo_class=rng.choice(["critical", "standard"], size).tolist(),
        request_id=[f"r{i}" for i in rng.permutation(size)] if with_names else None,
    )


@pytest.mark.parametrize("with_names", [True, False])
@pytest.mark.parametrize("scheduler", examples("InstanceGroup.scheduler"), ids=repr)
def test_ties_are_resolved_by_name(scheduler: Any, with_names: bool) -> None:
    simulation = Simulation(
        workload=tied_trace(with_names),
        instances=(
            BLIS_SERVER.replace(
                max_num_seqs=6, max_num_batched_tokens=256, num_kv_blocks=80, scheduler=scheduler
            ),
        ),
    )
    exact, approximate = both(simulation)
    assert_same(exact, approximate)
    if with_names and not isinstance(scheduler, instance.Fcfs):
        # The names do matter.
        unnamed = simulate(simulation.replace(workload=tied_trace(with_names=False)))
        assert unnamed.summary()["mean_ttft_ms"] != exact.summary()["mean_ttft_ms"]


# What there is not


def test_requests_are_not_kept(tmp_path: Path) -> None:
    simulation = streamed(Simulation(instances=BLIS_SERVER))
    (of_batch,) = run_many([simulation], keep_requests=True)
    for result in (simulate(simulation), of_batch[0]):
        for action in (
            lambda result=result: result.requests,
            lambda result=result: result.save(tmp_path / "result.npz"),
        ):
            with pytest.raises(UsageError, match=r"metrics\.streaming"):
                action()
        result.write(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_setting_is_part_of_the_simulation() -> None:
    simulation = Simulation(instances=BLIS_SERVER)
    assert simulation.metrics.streaming is False
    assert simulate(streamed(simulation)).fingerprint != simulate(simulation).fingerprint
    assert Simulation.from_dict(streamed(simulation).to_dict()) == streamed(simulation)


# How it is reported


def test_printed_result_says_so() -> None:
    exact, approximate = both(Simulation(instances=BLIS_SERVER))
    assert any("approximate" in note for note in approximate.notes())
    assert "approximate" in str(approximate)
    assert not any("approximate" in note for note in exact.notes())
    assert "approximate" not in str(exact)


def test_results_of_several_seeds() -> None:
    exact = simulate(overloaded(500), seeds=range(4))
    approximate = simulate(streamed(overloaded(500)), seeds=range(4), threads=2)
    assert "approximate" not in approximate.summary()
    for name, interval in exact.summary().items():
        estimate = approximate.summary()[name]
        if interval is None or name in NOT_COMPARED:
            continue
        assert estimate is not None
        assert estimate.mean == pytest.approx(interval.mean, rel=0.005), name
    assert list(approximate.by_class()) == list(exact.by_class())
    assert list(approximate.by_tenant()) == list(exact.by_tenant())
    assert repr(approximate).startswith("4 seeds")
    zero = approximate.minus(approximate)
    assert "approximate" not in zero
    assert {figure.mean for figure in zero.values() if figure is not None} == {0}


def test_streamed_and_exact_runs_compare() -> None:
    exact = simulate(overloaded(500), seeds=range(3))
    approximate = simulate(streamed(overloaded(500)), seeds=range(3))
    for a, b in ((exact, approximate), (approximate, exact)):
        completed = a.minus(b)["completed"]
        assert completed is not None
        assert (completed.mean, completed.n) == (0, 3)


def test_json_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    result = simulate(streamed(overloaded(300)))
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    blocks = [document["metrics"], *document["by_class"].values(), *document["by_tenant"].values()]
    assert len(blocks) == 5
    assert all(block["approximate"] is True for block in blocks)

    config = tmp_path / "config.yaml"
    config.write_text("metrics: {streaming: true}\nworkload: {kind: synthetic, num_requests: 50}\n")
    assert cli.main(["run", str(config), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["approximate"] is True


# Memory

# The peak of the process alone: `ru_maxrss` begins with that of its parent.
MEASURE = """
    import re, sys
    from pathlib import Path
    from spillway import Simulation, instance, simulate, workload

    simulation = Simulation(
        workload=workload.Synthetic(requests_per_s=80, num_requests=int(sys.argv[1])),
        instances=(instance.InstanceGroup(count=8),),
    ).with_({"metrics.streaming": sys.argv[2] == "streaming"})
    result = simulate(simulation)
    assert result.summary()["completed"] == int(sys.argv[1])
    print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.slow
def test_memory_does_not_grow_with_the_run() -> None:
    def growth_mib(mode: str) -> float:
        peaks_kib = [
            int(
                subprocess.run(
                    [sys.executable, "-c", textwrap.dedent(MEASURE), str(num_requests), mode],
                    env=dict(os.environ),
                    capture_output=True,
                    text=True,
                    timeout=600,
                    check=True,
                ).stdout
            )
            for num_requests in (100_000, 800_000)
        ]
        return (peaks_kib[1] - peaks_kib[0]) / 1024

    kept = growth_mib("exact")
    assert kept > 50, "or the measurement shows nothing"
    assert growth_mib("streaming") < 0.25 * kept
