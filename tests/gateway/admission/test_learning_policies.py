"""Policies that learn from what they admit never shed a lightly loaded fleet.

Each is drawn across its whole search range, at 5 to 30 % of the load that its fleet can serve. An
estimate that such a policy learned from noise would reject what could correct it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from support.descriptions import DESCRIPTION
from support.effort import scaled

from spillway import Simulation, simulate

if TYPE_CHECKING:
    from collections.abc import Mapping

CAPACITY_PER_S = 70.0
"""Requests per second of 500 and 150 tokens that the two servers complete."""
MOST_REFUSED = 0.001

EXEMPT: dict[str, str] = {
    "envoy_gradient": "while it measures the minimum latency, few permits are left for minutes, "
    "and what arrives waits or is refused (envoyproxy/envoy#18152); `probe_concurrency` cures it",
}
"""Faithful imitations that shed such a fleet all the same, each with what it does."""

LEARNERS: dict[str, dict[str, Any]] = {
    "predictive_ttft": {
        "estimator": ("token_backlog", "seats_and_memory"),
        "protected_priority": (None,),
        "budgets": ((),),
    },
    "latency_slo": {},
    "early_rejection": {},
    "bouncer": {},
}
"""Policies of admission that learn, with the values of settings that must hold for it."""
CONTROLLERS = ("vegas", "gradient2", "envoy_gradient")
"""Controllers that learn what the latency of an idle fleet is."""


def described(seam: str, kind: str) -> Mapping[str, Any]:
    gateway_ = next(field for field in DESCRIPTION["fields"] if field["name"] == "gateway")["of"]
    field = next(field for field in gateway_["fields"] if field["name"] == seam)
    return next(way for way in field["alternatives"] if way["kind"] == kind)


def drawn(noun: Mapping[str, Any], rng: random.Random, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Settings across their search ranges; those without one keep their defaults."""
    settings = {"kind": noun["kind"]} if "kind" in noun else {}
    for field in noun["fields"]:
        name = field["name"]
        if name in fixed:
            settings[name] = rng.choice(fixed[name])
        elif field["type"] == "struct" and not field.get("sequence"):
            settings[name] = drawn(field["of"], rng, {})
        elif field["type"] == "choice":
            settings[name] = rng.choice(field["choices"])
        elif "search" in field and not (field.get("optional") and rng.random() < 0.3):
            low, high = field["search"]["low"], field["search"]["high"]
            is_log = field["search"].get("log") and low > 0
            value = low * (high / low) ** rng.random() if is_log else rng.uniform(low, high)
            settings[name] = round(value) if field["type"] == "int" else value
    return settings


def lightly_loaded(rng: random.Random, **gateway_: Any) -> Simulation:
    share = rng.uniform(0.05, 0.3)
    rate = share * CAPACITY_PER_S
    arrivals = rng.choice(("poisson", "poisson", {"kind": "gamma", "cv": 2}))
    client = {
        "slo_class": "sheddable",
        "requests_per_s": rate,
        "arrivals": arrivals,
        "input_tokens": {"kind": "exponential", "mean_tokens": 500, "max_tokens": 4000},
        "output_tokens": {"kind": "exponential", "mean_tokens": 150, "max_tokens": 1000},
    }
    targets = {"target_ttft_s": 1, "target_tpot_s": 0.05, "target_e2e_s": 60}
    return Simulation(
        workload={"kind": "synthetic", "num_requests": 1000, "clients": [client]},
        slo_classes=[{"name": "sheddable", "priority": -2, **targets}],
        gateway=gateway_,
        router="least_loaded",
        instances={"count": 2},
    )


def refused_shares(kind: str) -> list[tuple[float, dict[str, Any]]]:
    """The share that each drawing refuses, with its settings."""
    seam = "admission" if kind in LEARNERS else "controller"
    noun, found = described(seam, kind), []
    for seed in range(scaled(60)):
        rng = random.Random(f"{kind} {seed}")
        settings: dict[str, Any] = {seam: drawn(noun, rng, LEARNERS.get(kind, {}))}
        if seam == "controller":
            settings |= {
                "limit": {"kind": "fixed", "max_in_flight": 64},
                "bands": [{"queue": {"timeout_s": 1}}],
                "sensor": {"source": "e2e"},
            }
        ledger = simulate(lightly_loaded(rng, **settings), seed).ledger
        found.append((1 - ledger["completed"] / ledger["logical_requests"], settings))
    return found


@pytest.mark.parametrize("kind", [kind for kind in (*LEARNERS, *CONTROLLERS) if kind not in EXEMPT])
def test_a_policy_that_learns_does_not_shed_a_lightly_loaded_fleet(kind: str) -> None:
    """A limit may fall, but not so far that requests wait for longer than a second."""
    for share, settings in refused_shares(kind):
        assert share <= MOST_REFUSED, settings


@pytest.mark.parametrize("kind", EXEMPT)
def test_an_exempt_policy_needs_its_exemption(kind: str) -> None:
    assert max(share for share, _ in refused_shares(kind)) > MOST_REFUSED
