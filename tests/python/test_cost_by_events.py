"""Time and memory grow with the events of a run, not with its span or its instances."""

from __future__ import annotations

import hashlib
import json
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import spillway
from spillway import ConfigError, Simulation, UsageError, instance, simulate, traffic, workload
from spillway.report import plots

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
APART_S = 5.9e7


def far_apart(rows: int = 2) -> Simulation:
    """Two bursts, nearly two years apart."""
    trace = spillway.trace(
        arrival_s=np.sort(np.concatenate([np.arange(rows // 2), APART_S + np.arange(rows // 2)])),
        input_tokens=[10] * rows,
        output_tokens=[5] * rows,
        prefix_group=["g"] * rows,
        prefix_tokens=[4] * rows,
    )
    classes = [workload.SloClass(name="standard", target_ttft_s=1)]
    return Simulation(workload=trace, slo_classes=classes)


def cost(what: Callable[[], Any]) -> tuple[float, float]:
    """Processor time in seconds, and the peak of allocated memory in bytes.

    Of two calls, the first of which also imports; tracing makes the second slow.
    """
    begin_s = time.process_time()
    what()
    took_s = time.process_time() - begin_s
    tracemalloc.start()
    try:
        what()
        return took_s, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


VIEWS: dict[str, Callable[[spillway.Result], Any]] = {
    "group age": lambda result: result.admission_by_group_age(0.01),
    "group age, tiny steps": lambda result: result.admission_by_group_age(1e-9),
    "recovery": lambda result: result.recovery(30, 60, step_s=0.01),
    "saturation": lambda result: result.saturation(),
    "steady state": lambda result: result.steady_state(),
    "notes": lambda result: result.notes(),
    "repr": repr,
    "html": lambda result: result._repr_html_(),
    "outcomes": plots.outcomes_over_time,
    "instances": plots.instances,
    "latencies": plots.latency_cdf,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_a_long_span(name: str) -> None:
    result = simulate(far_apart(200))
    took_s, peak_bytes = cost(lambda: VIEWS[name](result))
    assert took_s < 10
    assert peak_bytes < 64 * MIB


def test_group_age_has_the_occupied_intervals() -> None:
    ages = simulate(far_apart()).admission_by_group_age(0.01)
    assert ages["start_s"].tolist() == [0, APART_S]
    assert ages["new_offered"].tolist() == [1, 0]
    assert ages["established_offered"].tolist() == [0, 1]
    assert ages["new_ratio"].tolist()[0] == 1
    result = simulate(far_apart())
    for step_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match=r"step_s = .*must be finite and > 0"):
            result.admission_by_group_age(step_s)
    with pytest.raises(UsageError, match="step_s = 1e-310: too short"):
        result.admission_by_group_age(1e-310)


def test_recovery_is_that_of_all_steps() -> None:
    """Steps without a request change nothing."""
    from spillway.analysis import recovery

    rng = np.random.default_rng(1)
    for _ in range(200):
        arrival_s = np.sort(np.concatenate([rng.uniform(0, 40, 90), rng.uniform(70, 90, 60)]))
        met = rng.random(150) < 0.8
        low_s, high_s = rng.uniform(0, 20), rng.uniform(30, 95)
        step_s = rng.choice([0.1, 0.5, 1.0, 3.0])
        found = recovery._steps(arrival_s, met, low_s, high_s, step_s)
        every = np.append(np.arange(low_s, high_s, step_s), high_s)
        near = recovery._edges(arrival_s, low_s, high_s, step_s)
        assert np.isin(near, every).all()
        assert (
            sum(result.requests for result in found)
            == ((arrival_s >= low_s) & (arrival_s < high_s)).sum()
        )
        counts = np.histogram(arrival_s, every)[0]
        assert np.isin(every[1:][counts > 0], near).all()


@pytest.mark.slow
def test_the_digest_of_a_large_fleet() -> None:
    simulation = Simulation(
        workload=workload.Synthetic(requests_per_s=100, num_requests=100),
        instances=instance.InstanceGroup(count=100_000),
    )
    result = simulate(simulation)
    begin_s = time.process_time()
    digest = result.digest
    assert time.process_time() - begin_s < 1
    # The text is that of all instances.
    hasher = hashlib.sha256()
    for name, column in result._output["columns"].items():
        hasher.update(name.encode())
        hasher.update(np.ascontiguousarray(column).tobytes())
    instances = [
        {key: value for key, value in figures.items() if key != "stepping"}
        for figures in result.instances
    ]
    keys = ("ledger", "summary", "by_class", "by_tenant", "steps", "end_s")
    figures = [instances, *(result._output[key] for key in keys)]
    hasher.update(json.dumps(figures, default=dict).encode())
    assert digest == hasher.hexdigest()


@pytest.mark.slow
def test_the_load_of_a_large_fleet_is_drawn_by_requests() -> None:
    pytest.importorskip("matplotlib")
    simulation = Simulation(
        workload=workload.Synthetic(requests_per_s=1000, num_requests=5000),
        instances=instance.InstanceGroup(count=5000),
    )
    result = simulate(simulation)
    begin_s = time.process_time()
    plots.instances(result)
    assert time.process_time() - begin_s < 10


@pytest.mark.slow
def test_the_number_of_tenants_is_checked_before_requests_are_generated() -> None:
    clients = [workload.Client(name=f"c{i}", tenant=f"t{i}") for i in range(65_536)]
    endless = workload.Synthetic(clients=clients, num_requests=10**9)
    begin_s = time.process_time()
    with pytest.raises(ConfigError, match="tenants = 65536 names: must be <= 65535"):
        traffic.generated(endless)
    with pytest.raises(ConfigError, match=r"would need about .* of memory"):
        traffic.generated(workload.Synthetic(num_requests=10**9))
    with pytest.raises(ConfigError, match="count = 1000000000: must be >= 1 and <= 65535"):
        traffic.zipf_clients(10**9)
    assert time.process_time() - begin_s < 5


MANY = 20_000


@pytest.mark.slow
def test_many_unknown_keys_give_one_summary() -> None:
    def refusal(what: Callable[[], Any]) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            what()
        return caught.value

    keys = {f"routr{i}": 1 for i in range(MANY)}
    clients = [{"name": f"c{i}", "rate_fracton": 1} for i in range(MANY)]
    tenants = [{"name": f"tenant-{i}"} for i in range(MANY)]
    strangers = [{"name": f"c{i}", "tenant": f"tennant-{i}"} for i in range(MANY)]
    begin_s = time.process_time()
    errors = [
        refusal(lambda: Simulation.from_dict(keys)),
        refusal(lambda: Simulation().with_(keys)),
        refusal(
            lambda: Simulation.from_dict({"workload": {"kind": "synthetic", "clients": clients}})
        ),
        refusal(
            lambda: Simulation.from_dict(
                {"tenants": tenants, "workload": {"kind": "synthetic", "clients": strangers}}
            )
        ),
    ]
    assert time.process_time() - begin_s < 10
    for error in errors:
        lines = str(error).splitlines()
        assert len(lines) == 21
        assert "did you mean" in lines[0]
        assert lines[-1] == f"… and {MANY - 20:d} more, {MANY} in all"
        assert len(error.violations) == MANY
        assert len(str(error)) < 20_000
