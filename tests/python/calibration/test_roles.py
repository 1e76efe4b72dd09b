"""Servers of a prefill and a decode pool, each fitted to the log of its own steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.measured_runs import FACTS, server

import spillway
from spillway import ConfigError, Simulation, _core, calibrate, instance, simulate, workload
from spillway.config.yaml import to_yaml
from spillway.data.recording import StepLog

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.calibration import Profile

ROLES = ("prefill", "decode")
COMPUTES = instance.Roofline(
    alpha0_us=5000, constant_us=2000, weights_us=12_000, token_us=60, norm=4, decode_us=40,
    decode_context_us=0.08, prefill_context_us=0.003,
)  # fmt: skip
CONTINUES = COMPUTES.replace(weights_us=9000, decode_us=70, decode_context_us=0.05)
TRUTH = Simulation(
    workload=workload.Synthetic(
        requests_per_s=7,
        num_requests=800,
        clients=[
            workload.Client(
                input_tokens=workload.Uniform(min_tokens=50, max_tokens=1800),
                output_tokens=workload.Uniform(min_tokens=20, max_tokens=220),
            )
        ],
    ),
    instances=[server(COMPUTES, role="prefill"), server(CONTINUES, role="decode")],
)


def logs_of(simulation: Simulation, seed: int) -> list[StepLog]:
    """What each engine logs of its steps: a prompt's last token is one, wherever computed."""
    prompts = simulate(simulation, seed).requests["input_tokens"]
    _, engines = _core.cluster.log_steps(simulation, seed)
    logs = []
    for role, steps in zip(ROLES, engines, strict=True):
        computed: dict[int, int] = {}
        rows = []
        for step in steps:
            if "start_ns" not in step:
                continue
            computed.update(step["admitted"])
            row = dict.fromkeys(
                ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens"), 0
            )
            for request, tokens in step["scheduled"]:
                before = computed.setdefault(request, int(prompts[request]) - 1)
                kind = "prefill" if before < prompts[request] else "decode"
                row[f"{kind}_requests"] += 1
                row[f"{kind}_tokens"] += tokens
                computed[request] = before + tokens
            context = sum(computed[request] for request, _ in step["scheduled"])
            span_s = (step["end_ns"] - step["start_ns"]) / 1e9
            rows.append(row | {"context_tokens": context, "step_s": span_s})
        columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        logs.append(StepLog(name=role, server=FACTS.replace(role=role), source=role, **columns))
    return logs


@pytest.fixture(scope="module")
def profiles() -> list[Profile]:
    return [calibrate(log) for log in logs_of(TRUTH, 1)]


def test_each_role_is_known_from_its_own_steps(profiles: list[Profile]) -> None:
    for profile, role, latency in zip(profiles, ROLES, (COMPUTES, CONTINUES), strict=True):
        assert profile.verdict is not None
        assert profile.verdict.is_server
        assert profile.group.role == role
        own = ("token_us",) if role == "prefill" else ("decode_us", "decode_context_us")
        for name in own:
            assert getattr(profile.latency, name) == pytest.approx(getattr(latency, name), rel=0.03)


def test_fitted_pools_have_the_latencies_of_the_measured_ones(
    profiles: list[Profile], tmp_path: Path
) -> None:
    for profile, role in zip(profiles, ROLES, strict=True):
        profile.save(tmp_path / f"{role}.yaml")
    path = tmp_path / "pools.yaml"
    path.write_text(to_yaml({"instances": [{"server": f"{role}.yaml"} for role in ROLES]}))
    fitted = spillway.load(path)
    assert [group.role for group in fitted.instances] == list(ROLES)
    fitted = fitted.replace(workload=TRUTH.workload)
    # Seeds that were not logged.
    for seed in (2, 3):
        true, found = simulate(TRUTH, seed).summary(), simulate(fitted, seed).summary()
        for figure in ("p50_ttft_ms", "p90_ttft_ms", "mean_itl_ms", "mean_e2el_ms"):
            assert found[figure] == pytest.approx(true[figure], rel=0.02), figure


def test_logs_of_both_roles_are_two_servers() -> None:
    with pytest.raises(spillway.TraceError, match="has role = 'decode', but another file"):
        calibrate(logs_of(TRUTH, 1))
    with pytest.raises(ConfigError, match=r"role = 'drafts'.*must be one of prefill, decode, both"):
        FACTS.replace(role="drafts")
