"""What a fit is worth: its verdict, likely causes of a misfit, and what it refuses."""

from __future__ import annotations

import csv
import dataclasses
import json
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.measured_runs import FACTS, LATENCY, measured_run, server, three_runs

from spillway import ConfigError, calibrate, cli, instance, simulate
from spillway.calibration import Profile, UnidentifiedError, Verdict
from spillway.calibration.latencies import simulated
from spillway.calibration.profile import HOST
from spillway.calibration.replay import Replay
from spillway.validation import real

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.data.recording import Recording

NORMS = (4.0,)  # that of these servers

TABLE = instance.StepTable(
    alpha0_us=4000, decode_requests=(0, 64), prefill_tokens=(0, 2048), context_tokens=(64, 2048),
    step_us=(6000, 6000, 66_000, 66_000, 10_000, 20_000, 70_000, 80_000), prefill_context_us=0,
)  # fmt: skip


@cache
def profile() -> Profile:
    return calibrate(three_runs(), norms=NORMS)


def late(run: Recording, s: float) -> Recording:
    """The run with first tokens that came later, for a reason that no step time has."""
    return dataclasses.replace(run, ttft_s=run.ttft_s + s, e2e_s=run.e2e_s + s)


def written(folder: Path, runs: list[Recording]) -> Path:
    folder.mkdir()
    for run in runs:
        with (folder / f"{run.name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["send_s", "input_tokens", "output_tokens", "ttft_s", "e2e_s"])
            columns = (run.send_s, run.input_tokens, run.output_tokens, run.ttft_s, run.e2e_s)
            rows.writerows(zip(*columns, strict=True))
    facts = {
        "vllm_version": "0.20.0", "max_num_seqs": 64, "max_num_batched_tokens": 2048,
        "block_size": 16, "num_gpu_blocks": 20_000,
    }  # fmt: skip
    described = {"server": facts, "runs": [{"run": run.name} for run in runs]}
    (folder / "runs.json").write_text(json.dumps(described))
    return folder


def test_three_loads_identify_a_server(tmp_path: Path) -> None:
    verdict = profile().verdict
    assert verdict is not None
    assert verdict.kind == "identified"
    assert verdict.is_server
    assert verdict.ranges is not None
    assert verdict.ranges["input_tokens"][1] == pytest.approx(3000, rel=0.05)
    assert set(verdict.ranges) == {
        "requests_per_s", "input_tokens", "output_tokens", "in_flight", "cached_share"
    }  # fmt: skip
    assert Verdict.from_dict(verdict.to_dict()) == verdict
    path = tmp_path / "server.yaml"
    profile().save(path)
    assert Profile.load(path) == profile()
    text = profile().text()
    assert "verdict: identified" in text
    assert "num_kv_blocks = 20000: stated" in text


def test_an_unexplained_ttft_is_not_bought_with_step_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one run in three, first tokens come half a second later: no server does that."""
    slow, short, long = three_runs()
    runs = [slow, late(short, 0.5), long]
    with pytest.raises(UnidentifiedError, match="verdict: poor") as error:
        calibrate(runs, norms=NORMS)
    found = error.value.profile
    assert found.verdict is not None
    assert any(text.startswith("short: mean TTFT") for text in found.verdict.misfits)
    for run in found.runs:
        assert abs(run.errors_percent["mean_itl"]) < 3
    folder, file = written(tmp_path / "runs", runs), tmp_path / "server.yaml"
    command = ["calibrate", str(folder), "-o", str(file)]
    assert cli.main(command) == 3
    shown = capsys.readouterr()
    assert "does not fit: short: mean TTFT" in shown.out
    assert "is not written: the fit is no server" in shown.err
    assert not file.exists()
    assert cli.main([*command, "--allow-unidentified"]) == 0
    loaded = Profile.load(file).verdict
    assert loaded is not None
    assert loaded.kind == "poor"


def test_more_runs_do_not_make_a_fit_worse() -> None:
    """A client at its limit near saturation leaves the step times where other runs put them."""
    runs = three_runs()
    full = measured_run("full", 90, (100, 300), (30, 60), max_in_flight=60, seed=8)
    few, many = profile(), calibrate([*runs, full], norms=NORMS)
    for name, ours, theirs, width in zip(
        few.coefficients, few.theta, many.theta, np.sqrt(np.diag(few.covariance)), strict=True
    ):
        assert abs(ours - theirs) < 2 * max(width, 0.02), name


def cached(run: Recording) -> Recording:
    return dataclasses.replace(run, cached_tokens=np.maximum(run.input_tokens - 16, 0))


def of_cached_prompts() -> list[Recording]:
    """Runs whose prompts were in the cache, which the recordings do not say."""
    found = []
    for rate in (1.0, 3.0):
        run = measured_run(f"rate {rate:g}", rate, (4000, 9000), (60, 120), requests=150, seed=3)
        result = simulate(Replay(cached(run)).simulation(server()))
        got = simulated(result, np.ones(run.num_requests, dtype=bool))
        found.append(dataclasses.replace(run, ttft_s=got.ttft_s, e2e_s=got.e2e_s))
    return found


def test_cached_prompts_are_the_likely_cause() -> None:
    with pytest.raises(UnidentifiedError) as error:
        calibrate(of_cached_prompts(), norms=NORMS)
    verdict = error.value.profile.verdict
    assert verdict is not None
    assert verdict.causes[0].startswith("prompts were probably cached")
    again = calibrate([cached(run) for run in of_cached_prompts()], norms=NORMS)
    assert all(abs(run.errors_percent["mean_ttft"]) < 5 for run in again.runs)


def test_the_kv_memory_is_found_where_requests_wait_for_it() -> None:
    facts = dataclasses.replace(FACTS, num_kv_blocks=None)
    group = server().replace(num_kv_blocks=700)
    runs = [
        measured_run(f"rate {rate:g}", rate, (200, 900), (100, 300), seed=4, group=group,
                     facts=facts)
        for rate in (1.0, 2.0, 4.5)
    ]  # fmt: skip
    found = calibrate(runs, norms=NORMS)
    assert found.group.num_kv_blocks == pytest.approx(700, rel=0.06)
    assert found.sources["num_kv_blocks"][1].startswith("fitted, ±")
    assert all(abs(run.errors_percent["mean_ttft"]) < 10 for run in found.runs)


def test_a_memory_that_does_not_bind_is_said_to_be_unknown() -> None:
    facts = dataclasses.replace(FACTS, num_kv_blocks=None)
    found = calibrate(three_runs(facts=facts), norms=NORMS)
    assert found.verdict is not None
    assert found.verdict.kind == "usable"
    assert any("KV memory" in text for text in found.verdict.open)
    assert any(text.startswith("num_kv_blocks") for text in found.verdict.measure)
    assert "num_kv_blocks = 132139: default" in found.text()


def test_a_fact_that_the_data_contradict_is_named() -> None:
    facts = dataclasses.replace(FACTS, max_num_seqs=8)
    runs = [measured_run("busy", 14, (100, 900), (60, 200), seed=1, facts=facts)]
    with pytest.raises(UnidentifiedError) as error:
        calibrate(runs, norms=NORMS)
    verdict = error.value.profile.verdict
    assert verdict is not None
    assert verdict.causes[0].startswith("a fact contradicts the data: max_num_seqs = 8 (stated)")


def test_experts_of_a_mixture_are_fitted() -> None:
    """A mixture reads more of its experts, the more tokens are in a step."""
    facts = dataclasses.replace(FACTS, model="qwen3-30b-a3b")
    latency = LATENCY.replace(
        weights_us=2000, expert_weights_us=14_000, expert_share=8 / 128, token_us=20
    )
    group = server(latency)
    few = [
        measured_run(f"rate {rate:g}", rate, (100, 900), (50, 150), seed=2, group=group,
                     facts=facts)
        for rate in (0.3, 1.0, 2.0)
    ]  # fmt: skip
    found = calibrate(few, norms=NORMS)
    assert found.coefficients["expert_weights_us"] == pytest.approx(14_000, rel=0.15)
    busy = measured_run("busy", 8, (100, 900), (50, 150), seed=5, group=group, facts=facts)
    predicted = real.predict(Replay(busy), found, None)
    assert abs(predicted.error_percent("itl", "mean")) < 4


@pytest.mark.parametrize("kind", [{"kind": "good"}, {}])
def test_a_malformed_verdict_is_refused(kind: dict[str, Any]) -> None:
    document = profile().to_dict()
    document["verdict"] = {**({} if not kind else document["verdict"]), **kind}
    if kind:
        with pytest.raises(ConfigError, match="is missing or malformed"):
            Profile.from_dict(document)
    else:
        assert Profile.from_dict(document).verdict is None


def test_an_accelerator_moves_to_another_host() -> None:
    """As far as a fit distinguishes host and accelerator, which it says."""
    slow_host = LATENCY.replace(constant_us=9000, decode_us=120, alpha0_us=20_000)
    other = calibrate(three_runs(group=server(slow_host)), norms=NORMS)
    with pytest.warns(UserWarning, match="constant_us and weights_us: only together known"):
        moved = profile().on_host_of(other)
    for name, value in moved.coefficients.items():
        assert value == (other if name in HOST else profile()).coefficients[name]
    spread = moved.relative_errors()
    assert spread["constant_us"] == other.relative_errors()["constant_us"]
    assert spread["token_us"] == profile().relative_errors()["token_us"]
    assert moved.verdict is None
    assert moved.coefficients["alpha0_us"] > 3 * profile().coefficients["alpha0_us"]
    run = measured_run("a", 3, (20, 90), (5, 20), requests=60)
    table = calibrate(run, table=TABLE, allow_unidentified=True)
    with pytest.raises(ConfigError, match="must be a roofline in both fits"):
        profile().on_host_of(table)


def test_a_wait_outside_of_the_engine_is_no_entry_delay() -> None:
    """Every first token comes a minute late: a delay could explain it, and none is so long."""
    runs = [late(run, 60) for run in three_runs(requests=150)]
    with pytest.raises(UnidentifiedError) as error:
        calibrate(runs, norms=NORMS)
    verdict = error.value.profile.verdict
    assert verdict is not None
    assert any("pass before the first step" in text for text in verdict.misfits)
    assert verdict.causes[0].startswith("requests waited outside of the engine")


def test_one_load_says_nothing_of_another() -> None:
    found = calibrate(three_runs()[2], norms=NORMS)
    assert found.verdict is not None
    assert found.verdict.kind == "usable"
    assert any("another load" in text for text in found.verdict.open)


def test_what_the_data_do_not_determine_keeps_its_prior() -> None:
    """Prompts of a few tokens cost nothing that is seen: their coefficients are not identified."""
    short = measured_run("short", 2, (4, 8), (50, 90), requests=150)
    found = calibrate(short, norms=NORMS, allow_unidentified=True)
    assert found.relative_errors()["prefill_context_us"] > 1
    assert "prefill_context_us" in found.text()
    (line,) = [line for line in found.text().splitlines() if line.startswith("prefill_context")]
    assert "not identified" in line
