"""Step times fitted to logs whose step times are known."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from support.effort import scaled

from spillway import instance
from spillway._core import numerics
from spillway._core.sim import ConfigError
from spillway.calibration.start import START
from spillway.calibration.step_log import NAMES, StepTimes, fit_step_logs

TRUTH = np.array([3000.0, 9000.0, 55.0, 25.0, 0.07, 0.002, 40.0])


@dataclass(frozen=True)
class Log:
    name: str
    prefill_requests: np.ndarray
    prefill_tokens: np.ndarray
    decode_requests: np.ndarray
    context_tokens: np.ndarray | None
    step_s: np.ndarray


def log_of(
    seed: int,
    norm: float,
    *,
    steps: int = 2000,
    noise: float = 0.0,
    memory: float = 0.0,
    truth: np.ndarray = TRUTH,
) -> Log:
    """A log of random batches; `memory`: correlation of the errors of consecutive steps."""
    rng = np.random.default_rng(seed)
    chunks = (rng.random(steps) < 0.4) * rng.integers(1, 4, steps)
    prompts = chunks * rng.integers(20, 900, steps)
    decodes = rng.integers(1, 200, steps)
    context = decodes * rng.integers(200, 2000, steps)
    attention = 0.5 * prompts**2 / np.maximum(chunks, 1)
    batches = np.stack([prompts, decodes, context, attention, chunks], axis=1).astype(float)
    errors = rng.normal(size=steps)
    for i in range(1, steps if memory else 0):
        errors[i] = memory * errors[i - 1] + math.sqrt(1 - memory**2) * errors[i]
    step_s = numerics.step_times_us(batches, truth, norm) * (1 + noise * errors) / 1e6
    return Log(f"run {seed}", chunks, prompts, decodes, context + prompts, step_s)


def relative(fitted: StepTimes, truth: np.ndarray = TRUTH) -> dict[str, float]:
    """Errors of the coefficients."""
    pairs = zip(NAMES, truth, strict=True)
    return {name: fitted.coefficients[name] / exact - 1 for name, exact in pairs}


@pytest.mark.slow
@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, 4.0, None])
@pytest.mark.parametrize("runs", [1, 3])
def test_exact_logs_give_the_coefficients(norm: float | None, runs: int) -> None:
    power = math.inf if norm is None else norm
    logs = [log_of(seed, power, steps=900 // runs) for seed in range(runs)]
    fitted = fit_step_logs(logs, bootstraps=10)
    assert fitted.norm == norm
    errors = relative(fitted)
    assert {"decode_us", "decode_context_us", "chunk_us"} <= {*fitted.identified}
    assert all(abs(errors[name]) < 0.01 for name in fitted.identified)
    assert abs(errors["token_us"]) < 0.01
    assert fitted.choices[0].norm == norm
    assert len(fitted.choices) == 5
    costs = [choice.held_out_cost for choice in fitted.choices[1:]]
    assert costs == sorted(costs)
    (pair,) = [pair for pair in fitted.merged if pair.names == ("constant_us", "weights_us")]
    assert pair.relative_error < 0.01
    if norm == 1:
        assert pair.together_us == pytest.approx(12_000, rel=1e-3)
        together_us = sum(fitted.coefficients[name] for name in pair.names)
        assert together_us == pytest.approx(12_000, rel=1e-3)
        assert fitted.correlation[0, 1] < -0.999


def test_latency_is_a_setting() -> None:
    prior = instance.Roofline(alpha0_us=123)
    fitted = fit_step_logs(log_of(1, 4.0, steps=600), prior=prior, bootstraps=10)
    assert fitted.latency == prior.replace(norm=4.0, **fitted.coefficients)
    assert fitted.latency.alpha0_us == 123


@pytest.mark.slow
def test_noise_and_interruptions() -> None:
    rng = np.random.default_rng(5)
    log = log_of(5, 2.0, steps=6000, noise=0.03)
    step_s = np.where(rng.random(6000) < 0.05, 20 * log.step_s, log.step_s)
    fitted = fit_step_logs(replace(log, step_s=step_s), bootstraps=20)
    assert fitted.norm == 2.0
    assert 0.025 < fitted.residual_scale < 0.04
    errors = relative(fitted)
    assert abs(errors["token_us"]) < 0.03
    assert abs(errors["decode_context_us"]) < 0.03
    for name in ("token_us", "decode_us", "decode_context_us"):
        low, high = fitted.intervals[name]
        assert low < fitted.coefficients[name] < high


@pytest.mark.slow
def test_what_steps_do_not_show_is_held_by_the_prior() -> None:
    log = log_of(2, 2.0, noise=0.01)
    idle = np.zeros_like(log.prefill_tokens)
    decoding = replace(log, prefill_tokens=idle, prefill_requests=idle)
    truth = TRUTH.copy()
    truth[5:] = 0
    context = log.context_tokens
    assert context is not None
    batches = [idle, log.decode_requests, context, idle, idle]
    step_us = numerics.step_times_us(np.stack(batches, axis=1).astype(float), truth, 2)
    fitted = fit_step_logs(replace(decoding, step_s=step_us / 1e6), bootstraps=10)
    prior = START
    assert {"prefill_context_us", "chunk_us"}.isdisjoint(fitted.identified)
    assert fitted.coefficients["prefill_context_us"] == pytest.approx(prior.prefill_context_us)
    low, high = fitted.intervals["prefill_context_us"]
    assert low == 0
    assert high > 2 * prior.prefill_context_us


@pytest.mark.slow
def test_context_that_is_not_logged_belongs_to_the_requests() -> None:
    log = log_of(3, 2.0, noise=0.01)
    fitted = fit_step_logs(replace(log, context_tokens=None), bootstraps=10)
    assert fitted.coefficients["decode_context_us"] == 0
    assert "decode_context_us" not in fitted.identified
    assert "context_tokens" not in fitted.ranges
    assert fitted.coefficients["decode_us"] > 2 * TRUTH[3]  # about 1,100 tokens each


@pytest.mark.slow
def test_ranges_are_those_of_the_batches() -> None:
    log = log_of(4, 2.0)
    fitted = fit_step_logs(log, bootstraps=10)
    assert fitted.ranges["prefill_tokens"] == (0, log.prefill_tokens.max())
    assert fitted.ranges["decode_requests"] == (1, log.decode_requests.max())
    assert fitted.ranges["requests"][1] == (log.decode_requests + log.prefill_requests).max()
    assert fitted.num_steps == 2000


def test_steps_without_tokens_are_left_out() -> None:
    log = log_of(4, 2.0, steps=600)
    columns = ("prefill_requests", "prefill_tokens", "decode_requests", "context_tokens")
    idle = {name: np.append(getattr(log, name), 0) for name in columns}
    longer = replace(log, step_s=np.append(log.step_s, 9.0), **idle)
    fitted = fit_step_logs(longer, bootstraps=10)
    assert fitted == fit_step_logs(log, bootstraps=10)


@pytest.mark.slow
def test_blocks_account_for_correlated_errors() -> None:
    """Similar errors of consecutive steps say less than independent ones."""
    names = ("token_us", "decode_us", "decode_context_us")
    inside = dict.fromkeys(names, 0)
    runs = scaled(60)
    for seed in range(runs):
        log = log_of(seed, 2.0, noise=0.02, memory=0.9, steps=1500)
        fitted = fit_step_logs(log, norms=[2.0], bootstraps=30, seed=seed)
        for name in names:
            low, high = fitted.intervals[name]
            exact = TRUTH[NAMES.index(name)]
            inside[name] += low <= exact <= high
    # 95% of 60 runs are 57 ± 1.7; intervals that ignore the correlation hold less than half.
    assert all(count >= 0.85 * runs for count in inside.values()), inside


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_s": (7, math.nan)}, r"logs\[0\].step_s\[7\] = nan: must be > 0"),
        ({"step_s": (7, 0.0)}, r"logs\[0\].step_s\[7\] = 0: must be > 0"),
        ({"decode_requests": (3, -1)}, r"logs\[0\].decode_requests\[3\] = -1: must be >= 0"),
        ({"prefill_tokens": (3, -1)}, r"logs\[0\].prefill_tokens\[3\] = -1: must be >= 0"),
    ],
)
def test_invalid_values_are_named(change: dict[str, tuple[int, float]], message: str) -> None:
    log = log_of(0, 2.0, steps=100)
    ((name, (row, value)),) = change.items()
    column = np.array(getattr(log, name))
    column[row] = value
    with pytest.raises(ConfigError, match=message):
        fit_step_logs(replace(log, **{name: column}))


def test_inconsistent_logs_are_refused() -> None:
    log = log_of(0, 2.0, steps=100)
    shorter = replace(log, prefill_tokens=log.prefill_tokens[:99])
    for logs, message in (
        (shorter, "prefill_tokens = 99 values: must hold 100 values"),
        (
            replace(log, prefill_requests=0 * log.prefill_requests),
            r"\[\d+\] = 0: must be > 0 where",
        ),
        (log_of(0, 2.0, steps=20), "logs = 20 steps: must hold at least 50 steps"),
        ([], "logs: must hold at least one log"),
    ):
        with pytest.raises(ConfigError, match=message):
            fit_step_logs(logs)
    for settings, message in (
        ({"norms": [1, 0.5]}, r"norms\[1\] = 0.5: must be between 1 and 64"),
        ({"relative_width": 0}, "relative_width = 0: must be > 0"),
        ({"bootstraps": 1}, "bootstraps = 1: must be >= 10"),
    ):
        with pytest.raises(ConfigError, match=message):
            fit_step_logs(log, **settings)
