"""Random admission policies, for tenants a, b, c and classes standard and batch among others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway import gateway

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def detector(rng: random.Random) -> dict[str, Any]:
    return {
        "detector": rng.choice(("utilization", "concurrency")),
        "queue_depth_threshold": rng.choice((1, 2, 5)),
        "kv_utilization_threshold": rng.choice((0.8, 0.2)),
        "max_concurrency": rng.choice((2, 5, 10)),
    }


def slo_gated(rng: random.Random) -> gateway.SloGated:
    signal = rng.choice(("max_waiting", "mean_effective_load", "total_waiting"))
    most = {"max_waiting": 5, "mean_effective_load": 14, "total_waiting": 12}[signal]
    return gateway.SloGated(
        signal=signal,
        critical_priority=rng.choice((4, 3)),
        standard_threshold=rng.choice((None, most)),
        sheddable_threshold=rng.choice((most // 2, most)),
    )


def tenant_token_bucket(rng: random.Random) -> gateway.TenantTokenBucket:
    return gateway.TenantTokenBucket(
        capacity_tokens=rng.choice((2000, 6000)),
        refill_tokens_per_s=rng.choice((1000, 4000)),
        own=rng.choice(
            ([], [gateway.TenantRate(tenant="b", capacity_tokens=900, refill_tokens_per_s=1500)])
        ),
        reserves=rng.choice(
            (
                [],
                [
                    gateway.ClassReserve(slo_class="batch", share=0.4),
                    gateway.ClassReserve(slo_class="standard", share=0.1),
                ],
            )
        ),
    )


def tenant_budget(rng: random.Random) -> gateway.TenantBudget:
    return gateway.TenantBudget(
        default_share=rng.choice((None, 0, 0.5)),
        budgets=[
            gateway.TenantShare(tenant="a", share=rng.choice((0, 0.3, 1))),
            gateway.TenantShare(tenant="b", share=0.1),
        ],
    )


def dagor(rng: random.Random) -> gateway.Dagor:
    return gateway.Dagor(
        signal=rng.choice(("queue_delay", "ttft")),
        threshold_s=rng.choice((0.02, 0.3)),
        window_s=rng.choice((0.3, 1)),
        window_requests=rng.choice((15, 2000)),
        decrease=rng.choice((0.05, 0.5)),
        increase=rng.choice((0.01, 0.3)),
        user=rng.choice(("tenant", "request")),
        user_levels=rng.choice((1, 16, 128)),
        rotation_s=rng.choice((2, 3600)),
    )


def bouncer(rng: random.Random) -> gateway.Bouncer:
    return gateway.Bouncer(
        percentile=rng.choice((50, 90, 99)),
        samples=rng.choice((5, 100)),
        min_samples=rng.choice((1, 4)),
        min_share=rng.choice((0, 0.1, 0.5)),
        share_requests=rng.choice((7, 100)),
    )


def envoy_admission(rng: random.Random) -> gateway.EnvoyAdmission:
    return gateway.EnvoyAdmission(
        success=rng.choice(("completed", "first_token_in_time")),
        window_s=rng.choice((1, 30)),
        success_threshold=rng.choice((0.95, 0.6)),
        aggression=rng.choice((1, 2.5)),
        rps_threshold=rng.choice((0, 4)),
        max_rejection_probability=rng.choice((0.8, 1)),
    )


POLICIES: dict[str, Callable[[random.Random], Any]] = {
    "SloGated": slo_gated,
    "TierShed": lambda rng: gateway.TierShed(
        max_load=rng.choice((0, 6, 12)), min_priority=rng.choice((3, 0, 4))
    ),
    "GaieLegacy": lambda rng: gateway.GaieLegacy(**detector(rng)),
    "Probabilistic": lambda rng: gateway.Probabilistic(
        **detector(rng), k=rng.choice((300, 1, 0.5)), power=rng.choice((5, 1, 2.5))
    ),
    "TenantBudget": tenant_budget,
    "TenantTokenBucket": tenant_token_bucket,
    "EnvoyAdmission": envoy_admission,
    "Dagor": dagor,
    "Bouncer": bouncer,
    "LatencySlo": lambda rng: gateway.LatencySlo(
        headroom_factor=rng.choice((0.5, 1, 2)),
        cold_kv_utilization=rng.choice((0, 0.02, 0.1)),
        half_life_samples=rng.choice((3, 100)),
    ),
    "EarlyRejection": lambda rng: gateway.EarlyRejection(
        decode_load=rng.choice(("current", "predicted")),
        max_load=rng.choice((0.6, 1, 1.5)),
        decode_s=rng.choice((None, 0.3)),
        half_life_samples=rng.choice((3, 100)),
    ),
}
