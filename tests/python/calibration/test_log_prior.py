"""Servers fitted to logs of steps, alone and together with requests."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.measured_runs import FACTS, LATENCY, measured_run
from support.step_logs import step_log, text_of

from spillway import ConfigError, TraceError, calibrate, instance, load, simulate
from spillway.calibration import Profile
from spillway.calibration.latencies import measured, simulated
from spillway.calibration.log_prior import LogPrior, logged_states, prior_of
from spillway.calibration.refinement import COEFFICIENTS
from spillway.calibration.replay import Replay
from spillway.calibration.start import START
from spillway.cli import main
from spillway.data.recording import ServerFacts

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.data.recording import Recording, StepLog

TRUTH = np.array([getattr(LATENCY, name) for name in COEFFICIENTS])


@cache
def known() -> LogPrior:
    return prior_of([step_log(requests=60)])


def steps_of(log: StepLog, rows: Any) -> StepLog:
    """Some of the steps of a log."""
    names = ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens", "step_s",
             "context_tokens")  # fmt: skip
    return dataclasses.replace(log, **{name: getattr(log, name)[rows] for name in names})


def test_exact_steps_give_the_coefficients() -> None:
    """All but the entry delay, which no step contains."""
    coefficients = np.exp(known().theta)
    assert coefficients[:-1] == pytest.approx(TRUTH[:-1], rel=0.01)
    assert known().latency.norm == LATENCY.norm
    assert coefficients[-1] == pytest.approx(START.alpha0_us)
    spread = np.sqrt(np.diag(known().covariance))
    assert spread[:-1] == pytest.approx(0.02, rel=0.01)
    assert spread[-1] == 1


def test_the_prior_contains_what_the_steps_leave_open() -> None:
    log = step_log(requests=60, noise=0.1)
    prior = prior_of([log])
    spread = np.sqrt(np.diag(prior.covariance))
    assert spread[COEFFICIENTS.index("weights_us")] > 0.02
    assert abs(prior.theta - np.log(TRUTH))[:-1] == pytest.approx(0, abs=4 * spread[:-1].max())
    assert np.linalg.eigvalsh(prior.covariance).min() > 0
    # Steps without prompts say nothing about prompts.
    alone = prior_of([steps_of(log, log.prefill_tokens == 0)])
    at = COEFFICIENTS.index("prefill_context_us")
    assert alone.theta[at] == pytest.approx(np.log(START.prefill_context_us))
    assert alone.covariance[at, at] >= 1


def test_a_log_alone_gives_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "serve.log").write_text(text_of(step_log(requests=60)))
    path = tmp_path / "server.yaml"
    facts = ["--server", "max_num_seqs=64", "--server", "engine_version=0.20.0"]
    assert main(["calibrate", str(tmp_path / "serve.log"), *facts, "-o", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "serve.log" not in shown
    assert "steps, errors of 0.0%" in shown
    profile = Profile.load(path)
    assert profile.runs == ()
    assert [log.steps for log in profile.logs] == [step_log(requests=60).num_steps]
    assert np.exp(profile.theta)[:-1] == pytest.approx(TRUTH[:-1], rel=0.01)
    assert (profile.group.num_kv_blocks, profile.group.block_size_tokens) == (20_000, 16)
    assert profile.async_scheduling
    assert Profile.from_dict(profile.to_dict()) == profile
    config = tmp_path / "run.yaml"
    config.write_text(
        "workload: {kind: synthetic, requests_per_s: 4, num_requests: 30}\n"
        "instances: [{server: server.yaml}]"
    )
    assert load(config).instances[0].provenance.endswith("fitted to 1 step log")
    low, high = simulate(config, uncertainty=2)["mean_tpot_ms"]
    assert low <= high


@pytest.mark.slow
def test_the_hull_needs_the_usage_of_the_cache() -> None:
    log = step_log(requests=60)
    states = logged_states([log], FACTS)
    assert len(states) == log.num_steps
    assert states[:, 0].max() == (log.prefill_requests + log.decode_requests).max()
    assert calibrate(log).hull.share_inside(states) == 1
    blind = dataclasses.replace(log, context_tokens=None)
    profile = calibrate(blind)
    assert profile.hull.vertices == ()
    assert np.isnan(profile.hull.share_inside(states))
    assert profile.group.fitted_states == ()
    assert "not known: the batch states" in profile.text()


def test_runs_and_logs_are_of_one_server() -> None:
    run = measured_run("run", 5, (100, 900), (20, 200), requests=30)
    other = dataclasses.replace(step_log(requests=60), server=ServerFacts(max_num_seqs=32))
    with pytest.raises(TraceError, match=r"steps\.log: its server has max_num_seqs = 32, but"):
        calibrate([run, other])
    with pytest.raises(ConfigError, match=r"table = given: fits runs alone"):
        calibrate([run, step_log(requests=60)], table=instance.StepTable())
    with pytest.raises(ConfigError, match="must hold at least 50 steps"):
        calibrate(steps_of(step_log(requests=1), slice(10)))


def test_a_folder_holds_both(tmp_path: Path) -> None:
    from spillway.calibration.server_measurements import facts_of, read

    (tmp_path / "serve.log").write_text(text_of(step_log(requests=60)))
    given = read(tmp_path, None)
    assert (given.runs, len(given.logs), given.scraped, given.points) == ([], 1, [], [])
    (tmp_path / "run.csv").write_text(
        "send_s,input_tokens,output_tokens,ttft_s,e2e_s\n0,9,5,0.1,0.2\n1,8,5,0.1,0.2\n"
    )
    given = read(tmp_path, {"max_num_seqs": 8})
    assert (len(given.runs), len(given.logs)) == (1, 1)
    assert facts_of(given).num_kv_blocks == 20_000
    assert facts_of(given).max_num_seqs == 8
    with pytest.raises(TraceError, match="'nodes' is not one of"):
        read(tmp_path, {"nodes": 8})


def errors(profile: Profile, run: Recording) -> np.ndarray:
    """Of the logarithms of means and percentiles and of the capacity."""
    replay = Replay(run)
    result = simulate(replay.simulation(profile.group))
    rows = replay.compared
    return np.abs(simulated(result, rows).logs() - measured(replay, rows).logs())


@pytest.mark.slow
def test_with_a_log_one_run_is_enough() -> None:
    """One run of little load leaves open what the log states; two other loads are predicted."""
    run = measured_run("slow", 1.5, (100, 900), (20, 200), requests=150, seed=1)
    others = [
        measured_run("short", 8, (20, 200), (20, 120), seed=2),
        measured_run("long", 3, (800, 3000), (10, 120), seed=3),
    ]
    plain = calibrate(run)
    both = calibrate([run, step_log(noise=0.05)])
    assert both.latency.norm == LATENCY.norm
    assert [run.name for run in both.runs] == ["slow"]
    assert [log.name for log in both.logs] == ["steps"]
    without, with_log = (
        float(np.mean([errors(profile, other).mean() for other in others]))
        for profile in (plain, both)
    )
    assert with_log <= without
    assert with_log < 0.02
    # The entry delay, which is in no log, is that of the run.
    assert both.latency.alpha0_us == pytest.approx(LATENCY.alpha0_us, rel=0.25)
