"""Traces at other rates, in halves, merged and resampled; intervals and studies over resamples."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.study_problems import SMALL_SPACE, overloaded

import spillway
from spillway import ConfigError, Simulation, Study, UsageError, simulate, traffic, workload
from spillway.config.randomness import blocks
from spillway.data.intervals import of_resamples
from spillway.study import grid, max_rate_under_slo, min_instances_for_rate

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.data.intervals import Interval


def recorded(n: int = 600, seed: int = 0, **columns: Any) -> workload.Trace:
    """Poisson arrivals, 10 per second, of two tenants."""
    rng = np.random.default_rng(seed)
    settings: dict[str, Any] = {
        "arrival_s": np.cumsum(rng.exponential(0.1, n)),
        "input_tokens": rng.integers(10, 900, n),
        "output_tokens": rng.integers(1, 90, n),
        "tenant": ["a" if share < 0.5 else "b" for share in rng.random(n)],
        "slo_class": "critical",
        **columns,
    }
    return spillway.trace(**settings)


def modulated(rng: np.random.Generator, horizon_s: float, dwell_s: float) -> np.ndarray:
    """Arrivals at 4 or 16 per second, switching after exponential times: correlated counts."""
    arrivals, start, is_high = [np.zeros(0)], 0.0, bool(rng.random() < 0.5)
    while start < horizon_s:
        end = start + rng.exponential(dwell_s)
        until = min(end, horizon_s)
        count = rng.poisson((16 if is_high else 4) * (until - start))
        arrivals.append(np.sort(rng.uniform(start, until, count)))
        start, is_high = end, not is_high
    return np.concatenate(arrivals)


def gaps_of(results: Any, others: Any, figure: str) -> list[float]:
    pairs = zip(results, others, strict=True)
    return [run.summary()[figure] - other.summary()[figure] for run, other in pairs]


def ends_of(interval: Interval | None) -> tuple[float | None, float | None]:
    assert interval is not None
    return interval.low, interval.high


def from_zero(ends: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
    """The interval of a figure that is never negative."""
    low, high = ends
    return None if low is None else max(low, 0.0), high


def test_rate_of_a_trace() -> None:
    trace = recorded(4000)
    assert traffic.rate_per_s(trace) == pytest.approx(10, rel=0.05)
    faster = traffic.transformed(trace, workload.ScaleRate(factor=3))
    assert traffic.rate_per_s(faster) == pytest.approx(3 * traffic.rate_per_s(trace))
    resampled = traffic.resampled(trace, 10)
    assert traffic.rate_per_s(resampled) == traffic.rate_per_s(trace)


def test_another_rate_replaces_the_last_one() -> None:
    twice = traffic.at_rate(traffic.at_rate(Simulation(workload=recorded()), 2), 3)
    assert twice.workload.transforms == (workload.ScaleRate(factor=6),)
    clients = [workload.Client(requests_per_s=3), workload.Client(name="rest")]
    synthetic = Simulation(workload=workload.Synthetic(requests_per_s=5, clients=clients))
    faster = traffic.at_rate(synthetic, 2).workload
    assert (faster.requests_per_s, faster.clients[0].requests_per_s) == (10, 6)
    with pytest.raises(ConfigError, match=r"factor = 0: must be >= 1e-06"):
        traffic.at_rate(synthetic, 0)
    waiting = Simulation(workload=recorded().replace(max_in_flight=3))
    with pytest.raises(ConfigError, match=r"transforms\[0\].*max_in_flight"):
        traffic.at_rate(waiting, 2)


def test_halves_are_the_trace() -> None:
    trace = recorded(601)
    first, second = (traffic.applied(half)._columns() for half in traffic.halves(trace))
    outputs = np.concatenate([first["output_tokens"], second["output_tokens"]])
    np.testing.assert_array_equal(outputs, trace._columns()["output_tokens"])
    at = trace._columns()["arrival_ns"]
    middle = (at[0] + at[-1] + (at[-1] - at[0]) / 600) / 2
    assert len(first["arrival_ns"]) == (at < middle).sum()


def test_merged_traces_keep_their_requests() -> None:
    shared = {"prefix_group": ["g"] * 50, "prefix_tokens": [8] * 50}
    first = recorded(50, tenant="x", request_id=[f"r{i}" for i in range(50)], **shared)
    second = recorded(50, seed=1, tenant="y", **shared)
    plain = recorded(30, seed=2)
    merged = traffic.merged(first, second, plain)
    columns = merged._columns()
    assert (merged.rows, merged.file) == (130, "")
    assert (np.diff(columns["arrival_ns"]) >= 0).all()
    row = columns["arrival_ns"].tolist().index(first._columns()["arrival_ns"][0])
    assert columns["request_id"][row] == "0:r0"
    names = np.array(columns["tenants"])[columns["tenant"]]
    begin, content = columns["segment_begin"], columns["segment_content"]
    own = {name: {int(content[begin[i]]) for i in np.flatnonzero(names == name)} for name in "xy"}
    assert len(own["x"]) == len(own["y"]) == 1
    assert own["x"] != own["y"]
    assert all(begin[i] == begin[i + 1] for i in np.flatnonzero(names == "a"))
    tokens = sum(part._columns()["input_tokens"].sum() for part in (first, second, plain))
    assert columns["input_tokens"].sum() == tokens
    simulate(Simulation(workload=merged))


def test_what_cannot_be_merged_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one trace"):
        traffic.merged()
    with pytest.raises(UsageError, match=r"traces\[1\] has transforms"):
        traffic.merged(recorded(), traffic.resampled(recorded(), 10))
    with pytest.raises(UsageError, match="holds no requests"):
        traffic.merged(workload.Trace())
    with pytest.raises(TypeError, match="a Trace"):
        traffic.rate_per_s("mine.csv")  # type: ignore[arg-type]


def test_the_block_length_follows_the_correlation() -> None:
    """Blocks are a fortieth of the trace, and longer if the traffic is correlated for longer."""
    rng = np.random.default_rng(5)

    def length_s(dwell_s: float) -> float:
        at = modulated(rng, 4000, dwell_s)
        tokens = np.full(len(at), 10)
        trace = spillway.trace(arrival_s=at, input_tokens=tokens, output_tokens=tokens)
        return traffic.block_length_s(trace)

    quick, slow, slower = length_s(0.5), length_s(40), length_s(160)
    assert quick == pytest.approx(4000 / 40, rel=0.01)
    assert 1.2 * quick < slow < 0.8 * slower
    assert slower < 4000 / 3 + 1
    assert traffic.block_length_s(recorded(4000)) == pytest.approx(10, rel=0.05)


def test_short_traces_have_no_block_length() -> None:
    with pytest.raises(UsageError, match="at least 100: state block_s"):
        traffic.resampled(recorded(50))
    with pytest.raises(ConfigError, match=r"block_s = 40: must be > 0 and <= 31.9637 s, half"):
        traffic.resampled(recorded(), 40)
    block = traffic.resampled(recorded(2000)).transforms[-1]
    assert block == workload.BlockResample(block_s=traffic.block_length_s(recorded(2000)))


def test_intervals_over_resamples_do_not_shrink() -> None:
    simulation = overloaded(workload=traffic.resampled(recorded(), 5))
    results = simulate(simulation, seeds=range(12))
    values = [result.summary()["mean_ttft_ms"] for result in results]
    interval = results.summary()["mean_ttft_ms"]
    assert interval is not None
    assert values.count(None) == 0
    assert results.num_blocks == pytest.approx(12, rel=0.1)
    expected = of_resamples(values, 0.95, results.num_blocks, 0.5)  # type: ignore[arg-type]
    assert ends_of(interval) == from_zero(ends_of(expected))
    assert interval.half_width > 2 * np.std(values, ddof=1)  # type: ignore[operator,arg-type]
    assert results.by_tenant()["a"]["offered"].half_width > 0  # type: ignore[union-attr,operator]
    own = results.interval(lambda result: float(result.summary()["mean_ttft_ms"]))  # type: ignore[arg-type]
    expected = of_resamples(values, 0.95, results.num_blocks)  # type: ignore[arg-type]
    assert ends_of(own) == ends_of(expected)
    other = simulate(simulation.with_({"gateway.limit[0].max_in_flight": 4}), seeds=range(12))
    gaps = gaps_of(results, other, "p50_ttft_ms")
    gap = results.minus(other)["p50_ttft_ms"]
    expected = of_resamples(gaps, 0.95, results.num_blocks)  # type: ignore[arg-type]
    assert ends_of(gap) == ends_of(expected)
    assert repr(results).startswith(
        "12 resamples of the trace, 95% confidence intervals of the mean over traces of this length"
    )


def test_too_few_blocks_are_noted() -> None:
    few = overloaded(workload=traffic.resampled(recorded(), 15))
    held = blocks(few)
    assert held is not None
    count, length_s = held
    assert (count, length_s) == (pytest.approx(4, rel=0.15), 15)
    results = simulate(few, seeds=range(3))
    (remark,) = results.notes()
    assert remark == (
        f"the intervals are doubtful: the trace holds only {count:.1f} blocks of the bootstrap, "
        "and 10 are the least: use shorter blocks, or a longer trace if it is correlated for so "
        "long."
    )
    assert remark in repr(results)


def test_doubtful_figures_are_noted() -> None:
    """600 requests are too few for percentiles; under overload all are late together."""
    calm = simulate(Simulation(workload=traffic.resampled(recorded(), 5)), seeds=range(3))
    (note,) = calm.notes()
    assert note.startswith("the intervals of p99_ttft_ms, ")
    assert note.endswith("200 requests of the trace are beyond the percentile: use a longer trace.")
    assert "mean" not in note
    crowded = simulate(overloaded(workload=traffic.resampled(recorded(), 5)), seeds=range(6))
    figures = crowded.summary()
    assert "independent" in figures["mean_ttft_ms"].caveat  # type: ignore[union-attr]
    assert figures["request_throughput"].caveat == ""  # type: ignore[union-attr]
    assert any("independent" in note for note in crowded.notes())


def chats(n: int = 400) -> workload.Trace:
    """Conversations of three requests, 2 s apart."""
    starts = np.sort(np.random.default_rng(2).uniform(0, 100, n))
    at, session = (starts[:, None] + [0, 2, 4]).ravel(), np.repeat(np.arange(n), 3)
    order = np.argsort(at, kind="stable")
    return spillway.trace(
        arrival_s=at[order],
        input_tokens=np.full(3 * n, 20),
        output_tokens=np.full(3 * n, 2),
        prefix_group=[str(number) for number in session[order]],
        prefix_tokens=np.full(3 * n, 16),
    ).replace(session_segments=1)


def test_resamples_begin_in_the_midst_of_sessions() -> None:
    """As a recording does: otherwise the rate is low at first, and the last sessions run on."""
    trace = chats()
    length_s = 1200 / traffic.rate_per_s(trace)
    resampled = traffic.resampled(trace, 5)
    bootstrap, window = resampled.transforms
    assert (window.start_s, window.duration_s) == (4, pytest.approx(length_s))
    assert (bootstrap.block_s, bootstrap.duration_s) == (5, pytest.approx(length_s + 4))
    assert traffic.rate_per_s(resampled) == traffic.rate_per_s(trace)
    assert blocks(Simulation(workload=resampled)) == (pytest.approx(length_s / 5), 5)
    early, count = 0, 0
    for seed in range(40):
        arrival_s = traffic.applied(resampled, seed)._columns()["arrival_ns"] / 1e9
        assert arrival_s[-1] < length_s
        early += (arrival_s < 4).sum()
        count += len(arrival_s)
    assert count / 40 == pytest.approx(1200, rel=0.05)
    assert early / 40 == pytest.approx(1200 * 4 / length_s, rel=0.15)
    whole = traffic.resampled(chats().replace(session_segments=0), 5)
    assert whole.transforms == (workload.BlockResample(block_s=5),)


def test_blocks_shorter_than_congestion_are_noted() -> None:
    """Their length counts in the time of the run, after a later change of the rate."""
    simulation = overloaded(workload=traffic.resampled(recorded(), 5))
    faster = traffic.at_rate(simulation, 4)
    assert blocks(faster) == (blocks(simulation)[0], 1.25)  # type: ignore[index]
    *_, note = simulate(faster, seeds=range(3)).notes()
    assert note.startswith("blocks of 1.25 s are short beside the mean latency of ")
    assert blocks(overloaded()) is None
    assert blocks(overloaded(workload=recorded())) is None


def test_one_run_of_a_trace_is_as_before() -> None:
    plain = overloaded(workload=recorded())
    assert not simulate(plain, seeds=range(3)).is_resampled
    assert simulate(plain, 5).digest == simulate(plain, 6).digest


def test_sweeps_and_confirmations_use_resamples() -> None:
    simulation = overloaded(workload=traffic.resampled(recorded(200), 2))
    limits = {"gateway.limit[0].max_in_flight": [4, 64]}
    sweep = grid(simulation, limits, seeds=6, metrics=["p99_ttft_ms"])
    row = sweep.rows[0]
    interval = sweep.interval(row.name, "p99_ttft_ms")
    assert interval is not None
    assert row.num_blocks == pytest.approx(10, rel=0.2)
    expected = of_resamples(row.values[0], 0.95, row.num_blocks, 0.5)  # type: ignore[arg-type]
    assert ends_of(interval) == from_zero(ends_of(expected))
    assert "beyond the percentile" in interval.caveat
    assert any("beyond the percentile" in note for note in sweep.notes())
    (line, _) = sweep.to_rows()
    assert line["p99_ttft_ms_se"] == pytest.approx(np.std(row.values[0], ddof=1))
    gap = sweep.difference(sweep.rows[1].name, "p99_ttft_ms")
    assert gap is not None
    assert gap.caveat == interval.caveat
    study = Study(simulation, SMALL_SPACE, objective="request_throughput", seeds=2)
    study.optimize(4)
    confirmed = study.confirm(top=1, seeds=range(10, 14), within=0)
    value = confirmed.candidates[0].value
    point = study.simulation_of(confirmed.candidates[0].number)
    values = [simulate(point, seed).summary()["request_throughput"] for seed in range(10, 14)]
    expected = of_resamples(values, 0.95, row.num_blocks)  # type: ignore[arg-type]
    assert ends_of(value) == from_zero(ends_of(expected))


def test_tables_of_studies_state_errors_of_traces() -> None:
    simulation = overloaded(workload=traffic.resampled(recorded(200), 2))
    settings = {"metrics": ["request_throughput"], "seeds": 5}
    study = Study(simulation, SMALL_SPACE, "mean_ttft_ms", {"shed": "<=1"}, **settings)
    study.optimize(2)
    held = blocks(simulation)
    assert held is not None
    lines = study.to_frame().set_index(["trial", "figure"])
    for _, trial in study.trials.iterrows():
        for figure, skewness in (("mean_ttft_ms", 0.5), ("request_throughput", 0.0)):
            values = trial[f"{figure}_per_seed"]
            assert len(values) == 5
            assert trial[f"{figure}_se"] == pytest.approx(np.std(values, ddof=1))
            expected = of_resamples(values, 0.95, held[0], skewness)
            line = lines.loc[trial["trial"], figure]
            assert (line["low"], line["high"]) == from_zero(ends_of(expected))
    assert f"{study.trials['mean_ttft_ms_se'].iloc[0]:.2g}" in repr(study)


def test_confirmations_and_comparisons_say_what_is_doubtful() -> None:
    simulation = overloaded(workload=traffic.resampled(recorded(200), 2))
    study = Study(simulation, SMALL_SPACE, "p99_ttft_ms", {"shed": "<=1"}, seeds=2)
    study.optimize(4)
    confirmed = study.confirm(top=1, seeds=range(10, 14), within=0)
    assert "beyond" in confirmed.candidates[0].value.caveat  # type: ignore[union-attr]
    assert any("beyond" in caveat for caveat in confirmed.caveats)
    assert "note: the intervals" in repr(confirmed)
    systems = {"one": simulation, "other": simulation.with_({"gateway.limit[0].max_in_flight": 4})}
    compared = spillway.compare(systems, seeds=6, figures=["p99_ttft_ms", "request_throughput"])
    latency, throughput = compared.verdicts
    assert latency.note.startswith("the interval of p99_ttft_ms is doubtful: fewer than 200")
    assert throughput.difference.caveat == ""
    ours, others = (simulate(system, seeds=range(6)) for system in systems.values())
    gaps = gaps_of(others, ours, "request_throughput")
    held = blocks(simulation)
    assert held is not None
    expected = of_resamples(gaps, throughput.level, held[0])
    assert ends_of(throughput.difference) == pytest.approx(ends_of(expected))


def test_a_study_is_confirmed_on_the_other_half() -> None:
    search, hold_out = traffic.halves(recorded(400))
    simulation = overloaded(workload=traffic.resampled(search, 2))
    study = Study(simulation, SMALL_SPACE, objective="request_throughput", seeds=2)
    study.optimize(4)
    held = traffic.resampled(hold_out, 2)
    confirmed = study.confirm(top=1, seeds=range(4), within=0, workload=held)
    baseline = simulate(simulation.replace(workload=held), seeds=range(4)).summary()
    assert confirmed.baseline.value == baseline["request_throughput"]
    assert confirmed.best.workload == simulation.workload


def test_a_searched_workload_cannot_be_held_out() -> None:
    trace = traffic.transformed(traffic.resampled(recorded(200), 2), workload.ScaleRate())
    space = {"workload.transforms[1].factor": (0.5, 1)}
    study = Study(overloaded(workload=trace), space, objective="request_throughput", seeds=2)
    study.optimize(4)
    with pytest.raises(UsageError, match="searched settings of the workload"):
        study.confirm(workload=traffic.resampled(recorded(200, seed=1), 2))


def test_workers_replay_the_same_transforms() -> None:
    trace = traffic.transformed(traffic.resampled(recorded(200), 2), workload.ScaleRate())
    space = {"workload.transforms[1].factor": (0.5, 3)}
    rates = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        for how in ({"threads": 1}, {"executor": executor}):
            study = Study(overloaded(workload=trace), space, "request_throughput", seeds=2)
            study.optimize(4, **how)  # type: ignore[arg-type]
            rates.append([row["request_throughput"] for row in study.rows()])
    assert rates[0] == rates[1]
    assert len(set(rates[0])) > 1


def test_solvers_take_a_trace() -> None:
    simulation = overloaded(workload=traffic.resampled(recorded(400), 4))
    slo = {"mean_e2el_ms": "<=1500", "shed": "<=0.01"}
    best = max_rate_under_slo(simulation, slo, seeds=3, tolerance=0.2)
    assert best.feasible is not None
    assert best.infeasible is not None
    assert best.simulation is not None
    assert isinstance(best.simulation.workload.transforms[-1], workload.ScaleRate)
    assert traffic.rate_per_s(best.simulation.workload) == pytest.approx(best.feasible)
    assert "no run was lengthened: the trace is finite." in best.notes
    fleet = min_instances_for_rate(simulation, slo, 4 * best.feasible, seeds=3)
    assert fleet.feasible is not None
    assert fleet.feasible >= 3


@pytest.mark.parametrize("name", ["merged.csv", "merged.jsonl"])
def test_a_merged_trace_is_written_as_its_path_ends(name: str, tmp_path: Path) -> None:
    first = spillway.trace(arrival_s=[0, 2], input_tokens=[600, 70], output_tokens=[5, 6])
    second = spillway.trace(arrival_s=[1], input_tokens=[80], output_tokens=[7])
    traffic.write(traffic.merged(first, second), tmp_path / name)
    columns = spillway.read_trace(tmp_path / name)._columns()
    assert columns["arrival_ns"].tolist() == [0, 10**9, 2 * 10**9]
    assert columns["input_tokens"].tolist() == [600, 80, 70]
    assert columns["output_tokens"].tolist() == [5, 7, 6]
    with pytest.raises(spillway.ConfigError, match=r"must end in \.csv or \.jsonl"):
        traffic.write(first, tmp_path / "merged.txt")


def test_a_description_prints_as_text() -> None:
    n = 100
    at_s = np.arange(n) ** 1.1
    trace = spillway.trace(arrival_s=at_s, input_tokens=[6] * n, output_tokens=[5] * n)
    described = traffic.describe(trace)
    assert str(described) == described.text()


def test_unusable_loads(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        traffic.read_load(path)
    for content, words in (
        (b"\xff\xfe", "not a text file"),
        (b"[1]", "must be a mapping: .*load and data"),
        (b"load: !!python/object/apply:os.abort []\n", "config.yml"),
        (b"load: {", "config.yml"),
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=words):
            traffic.read_load(path)
