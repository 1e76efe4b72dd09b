"""Admission policies: what follows from their rules."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest
from support.changes import targets
from support.effort import trials
from support.runs import fixed, flat, outcomes, run, ways
from support.specimens import at
from support.twins import admission as plain

from spillway import ConfigError, fleet, gateway, instance, signals, workload


@pytest.mark.parametrize(
    ("k", "power", "s"), [(300, 5, 0.15), (300, 5, 0.25), (1, 1, 0.3), (2, 2, 0.5), (300, 5, 0.4)]
)
def test_probabilistic_refuses_its_share(k: float, power: float, s: float) -> None:
    """100 long streams keep the saturation constant; short ones are served one by one."""
    n, long = 4000, 100
    result = run(
        [0.0] * long + [1 + 0.02 * i for i in range(n)],
        output_tokens=[10**7] * long + [1] * n,
        slo_class=["critical"] * long + ["sheddable"] * n,
        seed=7,
        instances=flat(reference_output_tokens=100),
        gateway=gateway.Gateway(
            admission=gateway.Probabilistic(
                k=k, power=power, detector="concurrency", max_concurrency=long / s
            )
        ),
        horizon_s=100,
    )
    refused = np.array(outcomes(result)[long:]) == "rejected"
    p = min(1, k * s**power)
    assert abs(refused.mean() - p) <= 4 * (p * (1 - p) / n) ** 0.5


def test_presets_are_the_published_variants() -> None:
    thresholds = {
        name: (preset.signal, preset.standard_threshold, preset.sheddable_threshold)
        for name, preset in gateway.SloGated.presets().items()
    }
    assert thresholds == {
        "max_waiting": ("max_waiting", 10, 5),
        "mean_effective_load": ("mean_effective_load", None, 8),
        "total_waiting": ("total_waiting", None, 100),
    }


def test_stale_signals_saturate() -> None:
    """Before the first scrape there are none; a stale instance counts as saturated."""
    result = run(
        [0.1, 0.9, 1.5],
        slo_class="batch",
        gateway=gateway.Gateway(admission=gateway.GaieLegacy()),
        signals=signals.Scraped(period_s=10, phase_s=0.8, stale_after_s=0.5),
    )
    assert outcomes(result) == ["rejected", "completed", "rejected"]


def test_system_is_empty_once_clients_have_withdrawn_all() -> None:
    """An impossible target: only an empty system admits, once anything is known."""
    result = run(
        [0, 0.1, 0.2, 0.3, 10, 10.1, 20],
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=1e-3)],
        reaction=workload.Reaction(timeout_s=0.5),
        gateway=gateway.Gateway(admission=gateway.EarlyRejection(), limit=fixed(1)),
    )
    # Before the first token all are admitted, two of them to the queue.
    assert outcomes(result) == [
        *("cancelled", "cancelled", "cancelled"),
        *("rejected", "cancelled", "rejected", "cancelled"),
    ]


def test_retries_draw_anew() -> None:
    """Half are rejected, and half of those again."""
    n, long = 2000, 100
    result = run(
        [0.0] * long + [1 + 0.02 * i for i in range(n)],
        output_tokens=[10**7] * long + [1] * n,
        slo_class=["critical"] * long + ["sheddable"] * n,
        instances=flat(reference_output_tokens=1000),
        reaction=workload.Reaction(retries=[workload.Retry(max_attempts=2, jitter="none")]),
        gateway=gateway.Gateway(
            admission=gateway.Probabilistic(
                k=1, power=1, detector="concurrency", max_concurrency=2 * long
            )
        ),
        horizon_s=100,
    )
    again = result.requests["attempts"][long:] == 2
    refused = np.array(outcomes(result)[long:]) == "rejected"
    assert abs(again.mean() - 0.5) < 4 * (0.25 / n) ** 0.5
    assert abs(refused[again].mean() - 0.5) < 4 * (0.25 / again.sum()) ** 0.5


@pytest.mark.parametrize(
    ("policy", "arrivals"),
    [specimen.recovers for specimen in at("Gateway.admission") if specimen.recovers],
)
def test_lone_client_gets_in_once_the_overload_is_over(policy: Any, arrivals: list[float]) -> None:
    """No other arrival updates the state of the policy."""
    result = run(
        arrivals,
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=0.3)],
        reaction=workload.Reaction(retries=[workload.Retry(backoff_s=2, jitter="none")]),
        gateway=gateway.Gateway(admission=policy, limit=fixed(1)),
    )
    assert set(outcomes(result)) == {"completed"}
    assert result.requests["attempts"].tolist() == [1] * (len(arrivals) - 1) + [2]


@pytest.mark.parametrize("detector", ["utilization", "concurrency"])
@pytest.mark.parametrize("policy", [gateway.GaieLegacy(), gateway.Probabilistic(k=1)])
def test_empty_fleet_is_saturated(policy: Any, detector: str) -> None:
    """No instance is ready from second 5 to second 20."""
    result = run(
        [0, 6, 7, 19, 21],
        slo_class=["batch", "batch", "standard", "batch", "batch"],
        gateway=gateway.Gateway(admission=policy.replace(detector=detector)),
        fleet=fleet.Fleet(startup_s=5),
        changes=targets((5, 0), (15, 1)),
    )
    assert outcomes(result) == ["completed", "rejected", "completed", "rejected", "completed"]


@pytest.mark.parametrize("seed", trials(5))
@pytest.mark.parametrize(
    "policy", [gateway.EarlyRejection(decode_load="current"), gateway.LatencySlo()]
)
def test_time_per_token_is_a_line_over_the_streams(policy: Any, seed: int) -> None:
    """Every verdict from the stamps of what went before, with many streams on two instances."""
    rng = random.Random(seed)
    n, target_s = 300, 0.05
    half_life, cold = rng.choice((5, 100)), {"cold_kv_utilization": 0}
    is_early = isinstance(policy, gateway.EarlyRejection)
    result = run(
        np.cumsum([rng.randrange(1, 10**8) / 1e9 for _ in range(n)]).tolist(),
        output_tokens=[rng.choice((1, 20, 60, 100)) for _ in range(n)],
        slo_classes=[workload.SloClass(name="standard", priority=-1, target_tpot_s=target_s)],
        instances=instance.InstanceGroup(
            count=2,
            plant=instance.ProcessorSharing(
                concurrency=[0, 100], e2e_s=[2, 22], ttft_s=[0.2, 1], reference_output_tokens=100
            ),
        ),
        router="round_robin",
        gateway=gateway.Gateway(
            admission=policy.replace(half_life_samples=half_life, **({} if is_early else cold))
        ),
    )
    them = ways(result)
    of = result.requests["instance"].tolist()

    def streams(i: int, now: int) -> list[int]:
        mine = [k for k in range(n) if of[k] == i and them[k].first_token is not None]
        return [k for k in mine if them[k].first_token <= now < them[k].ended]

    @functools.cache
    def load_seen(k: int) -> tuple[float, float]:
        """Streams beside it, on average over its own, and its time per token."""
        began, ended = them[k].first_token, them[k].ended
        shared = sum(
            max(0, min(ended, other.ended) - max(began, other.first_token))
            for j, other in enumerate(them)
            if of[j] == of[k]
        )
        return shared / (ended - began), (ended - began) / 1e9 / (them[k].output_tokens - 1)

    for row, way in enumerate(them):
        now = way.arrived
        before = [k for k in range(row) if them[k].outcome == "completed"]
        done = sorted((k for k in before if them[k].ended < now), key=lambda k: them[k].ended)
        line = plain.Line(half_life)
        line.samples = [load_seen(k) for k in done if them[k].output_tokens > 1]
        inside = [k for k in before if them[k].ended > now]
        running = [len(streams(i, now)) for i in (0, 1)]
        if is_early:
            predicted = [line.at((sum(running) + 1) / 2)]
            is_idle = not inside
        else:
            predicted = [line.at(count + 1) for count in running]
            is_idle = len({of[k] for k in inside}) < 2
        goes = is_idle or any(ttft_s is None or ttft_s <= target_s for ttft_s in predicted)
        assert way.outcome == ("completed" if goes else "rejected"), row
    assert 20 < outcomes(result).count("rejected") < 280


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        (
            {"kind": "tenant_budget", "budgets": [{"tenant": "a"}, {"tenant": "a"}]},
            "budgets[1].tenant",
        ),
        (
            {"kind": "tenant_token_bucket", "own": [{"tenant": "a"}, {"tenant": "a"}]},
            "own[1].tenant",
        ),
        ({"kind": "tenant_token_bucket", "reserves": [{}, {}]}, "reserves[1].slo_class"),
    ],
)
def test_names_are_unique(settings: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        gateway.Gateway(admission=settings)
    assert caught.value.violations[0][0] == f"admission[0].{path}"
