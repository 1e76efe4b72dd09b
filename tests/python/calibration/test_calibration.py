"""Servers fitted to simulated measurements, whose coefficients are known."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.measured_runs import FACTS, LATENCY, measured_run, server, three_runs
from support.paths import ROOT

from spillway import ConfigError, TraceError, calibrate, fingerprint, instance, simulate
from spillway.calibration import Profile, intervals, procedure
from spillway.calibration.hull import Hull, states_of
from spillway.calibration.latencies import measured, simulated
from spillway.calibration.parts import Part, with_timeline
from spillway.calibration.quantile_plots import quantiles
from spillway.calibration.refinement import COEFFICIENTS, fit, latency_of
from spillway.calibration.replay import Replay, group_of, measured_turnaround_s, plans_ahead
from spillway.data.recording import Recording, ServerFacts

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.instance import InstanceGroup
    from spillway.result import Result


@cache
def profile() -> Profile:
    return calibrate(three_runs())


def outside(result: Result) -> float:
    (states,) = result.fitted_states
    return float(states["outside"] / states["states"])


@pytest.mark.slow
def test_a_run_says_by_itself_that_it_leaves_the_fitted_states(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    profile().save(path)
    settings = (
        "workload: {kind: synthetic, requests_per_s: %s, num_requests: 300}\n"
        "instances: [{server: %s, count: 2%s}]"
    )
    config = tmp_path / "run.yaml"

    def ran(rate: float, own: str = "") -> Result:
        config.write_text(settings % (rate, path, own))
        return simulate(config)

    inside, far = ran(4), ran(400)
    assert outside(inside) == 0
    assert not any("outside" in note for note in inside.notes())
    (note,) = [note for note in far.notes() if "outside" in note]
    assert note.startswith(f"instances[0] ran {outside(far):.0%} of its time outside")
    assert note in str(far)
    # The same sampled states, whatever the stepping; the result does not depend on them.
    assert simulate(config, reference=True).fitted_states == far.fitted_states
    plain = far.simulation.with_({"instances[0].fitted_states": []})
    assert fingerprint(plain) == fingerprint(far.simulation)
    assert simulate(plain).digest == far.digest
    assert simulate(plain).fitted_states == []
    with pytest.warns(UserWarning, match="outside the batches"):
        simulate(config, uncertainty=2)
    assert any("outside" in note for note in simulate(config, seeds=range(2)).notes())
    other = ran(400, ", latency: {kind: linear}")
    assert other.fitted_states == []
    # Share of the time: as often as in a timeline of the same run.
    single = far.simulation.with_({"instances[0].count": 1, "metrics.timeline_step_s": 0.02})
    result = simulate(single)
    share = profile().hull.share_inside(states_of(result))
    assert 1 - share == pytest.approx(outside(result), abs=0.02)


def step_us(latency: instance.Roofline, prefill: int, decode: int, context: int) -> float:
    w, x = latency.weights_us, latency.token_us * (prefill + decode)
    p = latency.norm
    matrices = max(w, x) if p is None else (w**p + x**p) ** (1 / p)
    attention = latency.prefill_context_us * prefill**2 / 2
    decodes = latency.decode_us * decode + latency.decode_context_us * context
    return float(latency.constant_us + matrices + attention + decodes)


@pytest.mark.slow
def test_the_fit_finds_the_step_times() -> None:
    """Of states within those of the runs; the split of the overheads is not identified."""
    latency = profile().group.latency
    for state in ((0, 1, 400), (0, 8, 3000), (0, 20, 8000), (500, 5, 2000), (2048, 0, 0)):
        assert step_us(latency, *state) == pytest.approx(step_us(LATENCY, *state), rel=0.05)
    overheads = ("constant_us", "weights_us")
    ours, truth = (sum(getattr(of, name) for name in overheads) for of in (latency, LATENCY))
    assert ours == pytest.approx(truth, rel=0.02)
    assert latency.token_us == pytest.approx(LATENCY.token_us, rel=0.02)
    assert ("constant_us", "weights_us") in {pair[:2] for pair in profile().correlated()}


@pytest.mark.slow
def test_it_predicts_another_load() -> None:
    run = measured_run("other", 5, (200, 1500), (30, 150), seed=9)
    replay = Replay(run)
    result = simulate(with_timeline(replay, profile().group))
    real, sim = measured(replay, replay.compared), simulated(result, replay.compared)
    errors = np.expm1(sim.logs() - real.logs())
    assert np.abs(errors[[0, 2, 5, 10, 15]]).max() < 0.02  # means, median TTFT, capacity
    assert profile().share_inside(result) > 0.95


@pytest.mark.slow
def test_the_profile_states_what_it_knows(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    profile().save(path)
    assert Profile.load(path) == profile()
    assert {run.name for run in profile().runs} == {"slow", "short", "long"}
    assert all(abs(run.errors_percent["mean_e2e"]) < 2 for run in profile().runs)
    assert len(profile().choices) == len(procedure.NORMS)
    costs = [choice.held_out_cost for choice in profile().choices]
    assert costs == sorted(costs)
    text = profile().text()
    assert "token_us" in text
    assert "only together known" in text
    group = profile().to_dict()["instance"]
    assert instance.InstanceGroup.from_dict(group) == profile().group


@pytest.mark.slow
def test_uncertainty_gives_intervals() -> None:
    run = Replay(measured_run("other", 4, (200, 1500), (30, 150), seed=9))
    simulation = run.simulation(profile().group)
    figures = intervals(simulation, profile(), draws=12)
    truth = simulate(run.simulation(server())).summary()
    low, high = figures["mean_e2el_ms"]
    assert low < high
    assert high < 1.2 * low
    assert 0.98 * low < truth["mean_e2el_ms"] < 1.02 * high
    with pytest.raises(ConfigError, match="must be the latency model of the profile"):
        intervals(run.simulation(server()), profile())
    with pytest.raises(ConfigError, match="draws = 1: must be >= 2"):
        intervals(simulation, profile(), draws=1)


@pytest.mark.slow
def test_a_load_beyond_the_fit_warns() -> None:
    replay = Replay(measured_run("flood", 60, (800, 1500), (30, 150), seed=4))
    result = simulate(with_timeline(replay, profile().group))
    with pytest.warns(UserWarning, match="is outside the batch states that the server was fitted"):
        assert profile().share_inside(result) < 0.95


def test_a_fit_from_the_truth_stays_there() -> None:
    run = measured_run("short", 8, (20, 200), (20, 60), requests=150)
    replay = Replay(run)
    truth = np.log([getattr(LATENCY, name) for name in COEFFICIENTS])
    parts = [Part(replay, replay.compared)]
    fitted = fit(FACTS, parts, base=LATENCY, ahead=True, prior=truth, start=truth)
    assert fitted.cost == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(fitted.theta, truth)
    assert latency_of(fitted.theta, LATENCY) == fitted.latency


def test_a_table_is_scaled_to_measurements() -> None:
    """Recovers the scales by which the server's table was wrong, and its entry delay."""
    grid = list(itertools.product((0, 8, 64), (0, 256, 1024), (64, 2048)))
    table = instance.StepTable(
        alpha0_us=4000,
        decode_requests=(0, 8, 64),
        prefill_tokens=(0, 256, 1024),
        context_tokens=(64, 2048),
        step_us=[6000 + 60 * d + 0.1 * d * c + 30 * n for d, n, c in grid],
        prefill_context_us=0,
    )
    truth = {"decode_scale": 1.2, "prefill_scale": 0.8, "alpha0_us": 7000}
    group = server(table.replace(**truth))
    runs = [
        measured_run(f"run {rate}", rate, (100, 900), (20, 90), requests=300, group=group)
        for rate in (4, 12)
    ]
    fitted = calibrate(runs, table=table, ahead=True)
    assert fitted.coefficients == pytest.approx(truth, rel=0.02)
    assert Profile.from_dict(fitted.to_dict()) == fitted
    assert "step table, scheduling one step ahead" in fitted.text()
    assert fitted.draws(2)[0].latency.step_us == table.step_us


# Replay


def recording(**columns: Any) -> Recording:
    n = len(columns["input_tokens"])
    defaults: dict[str, Any] = {
        "name": "run",
        "server": ServerFacts(),
        "send_s": np.arange(n) * 0.1,
        "output_tokens": np.full(n, 50),
        "ttft_s": np.full(n, 0.1),
        "e2e_s": np.full(n, 1.0),
        "failed": np.zeros(n, dtype=bool),
        "failure_s": np.full(n, np.nan),
    }
    return Recording(**defaults | columns)


def test_miscounted_outputs_become_the_usual_length() -> None:
    """Lengths that differ are kept."""
    prompts, fixed, different = np.full(100, 80), np.full(100, 250), np.arange(1, 101)
    fixed[::7] = 60
    replay = Replay(recording(input_tokens=prompts, output_tokens=fixed))
    assert set(replay.output_tokens) == {250}
    replay = Replay(recording(input_tokens=prompts, output_tokens=different))
    assert replay.output_tokens.tolist() == different.tolist()


def test_failed_requests_are_replayed_but_not_compared() -> None:
    failed = np.zeros(50, dtype=bool)
    failed[10] = True
    lengths = np.where(failed, 0, 300)
    e2e_s = np.where(failed, np.nan, 1)
    run = recording(input_tokens=lengths, output_tokens=lengths, failed=failed, e2e_s=e2e_s)
    replay = Replay(run)
    assert replay.trace.rows == 50
    assert replay.input_tokens[10] == replay.output_tokens[10] == 300
    assert replay.compared.sum() == 49


def test_repeated_prompts_are_cached_after_the_cold_start() -> None:
    lengths = np.tile(np.arange(200, 240), 6)
    replay = Replay(recording(input_tokens=lengths))
    assert replay.period == 40
    assert replay.compared.tolist() == [i >= 60 for i in range(240)]
    result = simulate(replay.simulation(server()))
    (counts,) = result.instances
    assert counts["kv_hits"] > 0.7 * counts["kv_lookups"]


def test_turns_of_a_session_find_the_conversation_in_the_cache() -> None:
    """Without sessions nothing is shared; with a warm-up first turns are, too, on every replica."""
    prompts = np.concatenate([np.full(10, 4000), np.full(10, 4100)])
    run = recording(input_tokens=prompts, send_s=np.arange(20) * 3.0)
    talk = dataclasses.replace(run, session=tuple(f"user {i % 10}" for i in range(20)))

    def hits(replay: Replay, **settings: Any) -> float:
        result = simulate(replay.simulation(server(**settings)))
        (counts,) = result.instances
        return float(counts["kv_hits"] / counts["kv_lookups"])

    assert hits(Replay(run)) == 0
    assert hits(Replay(talk)) == pytest.approx(0.5, abs=0.02)
    assert hits(Replay(talk, repeats=False)) == 0
    warm = Replay(talk, warms=2)
    assert (warm.lead, warm.trace.rows) == (20, 40)
    result = simulate(warm.simulation(server(data_parallel_size=2)))
    first_turns = simulated(result, np.arange(20) < 10).ttft_s
    assert first_turns.max() < 0.1
    assert (
        simulated(simulate(Replay(talk).simulation(server())), np.arange(20) < 10).ttft_s.min()
        > 0.2
    )


def test_cached_tokens_are_not_computed_again() -> None:
    run = recording(input_tokens=np.full(20, 4000), send_s=np.arange(20) * 3.0)
    reused = dataclasses.replace(run, cached_tokens=np.full(20, 3900))
    result = simulate(Replay(reused).simulation(server()))
    assert simulated(result, np.arange(20) >= 0).ttft_s.max() < 0.1


def test_a_limited_client_is_replayed_in_a_closed_loop() -> None:
    run = measured_run("full", 200, (100, 300), (30, 60), max_in_flight=16)
    replay = Replay(run, turnaround_s=measured_turnaround_s([run]))
    assert replay.is_closed_loop
    assert replay.trace.max_in_flight == 16
    result = simulate(replay.simulation(server()))
    real, sim = measured(replay, replay.compared), simulated(result, replay.compared)
    assert sim.capacity_per_s == pytest.approx(real.capacity_per_s, rel=0.02)
    faster = server(LATENCY.replace(constant_us=500, weights_us=4000))
    quick = simulated(simulate(replay.simulation(faster)), replay.compared)
    assert quick.capacity_per_s > 1.5 * real.capacity_per_s


@pytest.mark.parametrize(
    ("engine", "version", "ahead", "preset"),
    [
        (None, "0.8.4", False, None),
        (None, "0.12.1", None, None),
        (None, "0.15.1", True, None),
        ("vLLM", "0.19.0", True, "vllm-0.19"),
        (None, "v0.24.0", True, "vllm-0.23"),
        (None, None, None, None),
        ("sglang", "0.23.0", None, None),
    ],
)
def test_settings_follow_the_version(
    engine: str | None, version: str | None, ahead: Any, preset: str | None
) -> None:
    facts = ServerFacts(engine=engine, engine_version=version, max_num_seqs=7)
    assert plans_ahead(facts) is ahead
    group: InstanceGroup = group_of(facts, LATENCY, ahead=bool(ahead))
    has_rules = preset is not None
    rules = instance.EngineRules.preset(preset) if has_rules else instance.EngineRules()
    assert group.engine_rules == rules
    assert group.kv_cache.generated_tokens
    assert group.kv_cache.reserve_full_prompt is has_rules
    alone = group_of(dataclasses.replace(facts, role="decode"), LATENCY, ahead=bool(ahead))
    assert alone.engine_rules == instance.EngineRules()
    assert (group.max_num_seqs, group.async_scheduling) == (7, bool(ahead))


# Errors


def test_what_cannot_be_fitted_is_refused() -> None:
    def small(requests: int = 30, **settings: Any) -> Recording:
        return measured_run("a", 3, (20, 90), (5, 20), requests=requests, **settings)

    other = dataclasses.replace(FACTS, max_num_seqs=8)
    broken = dataclasses.replace(small(), failed=np.arange(30) < 10)
    for runs, server_facts, message in (
        ([small(), small(facts=other)], {}, "the runs are of several servers"),
        (broken, {}, r"no run is left to fit: a: 33.3% of its requests failed"),
        (
            small(12),
            {},
            "no run is left to fit: .*: too few of its requests can be compared; 5",
        ),
        (small(), {"kv_blocks": 3}, "server: 'kv_blocks' is not one of"),
    ):
        with pytest.raises(TraceError, match=message):
            calibrate(runs, server=server_facts)


def test_a_fact_that_contradicts_the_data_is_said() -> None:
    from spillway.calibration.server_measurements import facts_of, read

    message = r"states max_num_seqs = 64; .* replaces that: max_num_seqs = 8"
    run = measured_run("a", 3, (20, 90), (5, 20), requests=30)
    with pytest.warns(UserWarning, match=rf"a\.csv, server: {message}"):
        assert facts_of(read(run, {"max_num_seqs": 8})).max_num_seqs == 8
    chat = ROOT / "examples" / "measured_runs" / "chat.csv"
    with pytest.warns(UserWarning, match=rf"chat\.csv, server: {message}"):
        assert facts_of(read(chat, {"max_num_seqs": 8})).max_num_seqs == 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            facts_of(read(chat, {"max_num_seqs": 64, "max_model_len": 4096})).max_model_len == 4096
        )


@pytest.mark.slow
def test_a_run_that_is_too_short_is_set_aside() -> None:
    short = measured_run("short", 3, (200, 1500), (30, 150), requests=4)
    whole = [measured_run(name, rate, (200, 1500), (30, 150), requests=60)
             for name, rate in (("a", 2), ("b", 5))]  # fmt: skip
    found = calibrate([*whole, short], norms=(2,), allow_unidentified=True)
    assert [run.name for run in found.runs] == ["a", "b"]
    reason = "short: too few of its requests can be compared; 5 are needed, and 20 of all runs"
    assert found.left_out == (f"{reason} together",)
    assert f"not fitted: {reason}" in found.text()


def test_a_file_that_is_no_profile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("router: round_robin\n")
    with pytest.raises(ConfigError, match="must be a file of spillway calibrate"):
        Profile.load(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"covariance_of_logs": [[0.1]]}, "covariance_of_logs = 1: must be . rows of . numbers"),
        ({"instance": {"count": 0}}, "count = 0: must be >= 1"),
    ],
)
def test_a_malformed_profile_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Profile.from_dict(profile().to_dict() | changes)


# The hull


def test_the_hull_holds_what_it_was_made_of() -> None:
    rng = np.random.default_rng(1)
    states = np.stack([rng.uniform(1, 60, 500), rng.uniform(0.01, 0.9, 500)], axis=1)
    hull = Hull.around(states)
    assert hull.share_inside(states) == 1
    assert hull.share_inside(np.array([[1.0, 0.01], [300.0, 0.5]])) == 0.5
    assert hull.share_inside(np.zeros((0, 2))) == 1


def test_a_line_of_states_stands_for_other_context() -> None:
    running = np.linspace(1, 50, 100)
    hull = Hull.around(np.stack([running, 0.01 * running], axis=1))
    for context, share in ((1.4, 1.0), (0.7, 1.0), (2.0, 0.0), (0.4, 0.0)):
        assert hull.share_inside(np.stack([running, 0.01 * context * running], axis=1)) == share


def test_states_are_those_of_a_busy_server() -> None:
    replay = Replay(measured_run("a", 3, (20, 90), (5, 20), requests=30))
    states = states_of(simulate(with_timeline(replay, server())))
    assert (states[:, 0] > 0).all()
    assert (states[:, 1] > 0).all()


# Figures


@pytest.mark.slow
def test_quantiles_lie_on_the_diagonal() -> None:
    pytest.importorskip("matplotlib")
    runs = [*three_runs()[:2], measured_run("full", 200, (100, 300), (30, 60), max_in_flight=16)]
    figure = quantiles(runs, profile())
    upper, lower = figure.get_axes()[:3], figure.get_axes()[3:]
    for axes in upper:
        lines = axes.get_lines()
        assert [line.get_label() for line in lines[:3]] == ["slow", "short", "full"]
        x, y = lines[1].get_data()
        assert np.median(np.abs(np.asarray(y) / np.asarray(x) - 1)) < 0.02
    # The run in a closed loop has no errors of single requests; the last line is the zero.
    assert [len(axes.get_lines()) for axes in lower] == [3, 3, 3]
