"""Any run, with any share shed, can be printed, queried, saved and plotted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.effort import examples, few_of
from support.random_simulations import (
    CHOICES,
    PRESSURES,
    REFUSING,
    VARIANTS,
    Alternative,
    Pressure,
    alternatives_of,
    random_simulation,
    settings_of,
)
from support.views import CLASSES, failed_checks, failed_views, shed_share
from support.watchdog import watched

from spillway import Result, simulate
from spillway.config import describe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Which share of its requests a run sheds under a pressure.
SHARES: dict[Pressure, tuple[float, float]] = {"none": (0, 0), "half": (0.2, 0.8), "all": (0.9, 1)}

# What cannot be had: these refuse everything.
IMPOSSIBLE = {
    (Alternative("Gateway.admission", "reject_all"), "none"),
    (Alternative("Gateway.admission", "reject_all"), "half"),
}
EACH = [
    (alternative, pressure)
    for i, alternative in enumerate(VARIANTS)
    for pressure in few_of(PRESSURES, 3, start=i % 3)
    if (alternative, pressure) not in IMPOSSIBLE
]


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    with watched(100):  # of which a test needs far less than one
        yield


def reasons_of(alternative: Alternative) -> set[str]:
    """The reasons for which an alternative rejects requests."""
    kinds = (cls for cls in CLASSES.values() if getattr(cls, "kind", "") == alternative.name)
    described = (cls._describe() for cls in kinds if alternative.seam in REFUSING)
    return {reason["name"] for policy in described for reason in policy.get("reasons", ())}


def run_under(alternative: Alternative, pressure: Pressure) -> Result:
    """A small run in which the alternative occurs and that sheds the share of the pressure.

    If nearly all requests are to be shed and the alternative can reject, it rejects most of them.
    """
    low, high = SHARES[pressure]
    own = reasons_of(alternative)
    for seed in range(400):
        simulation = random_simulation(seed, force=alternative, pressure=pressure).simulation
        simulation = simulation.with_({"metrics.streaming": False}) if seed % 8 else simulation
        result = simulate(simulation)
        books = result.ledger
        counts = books["rejected"] | books["worker_rejected"] | books.get("router_rejected", {})
        mine = sum(count for reason, count in counts.items() if reason in own)
        if pressure == "all" and own and 2 * mine < books["attempts"]:
            continue
        if books["attempts"] >= 5 and low <= shed_share(result) <= high:
            return result
    raise AssertionError(
        f"no run with {alternative} sheds {low} to {high} of its requests; list the settings that "
        "do as `strict` in its specimen"
    )


def assert_views(
    result: Result, folder: Path, *, draws: bool = False, configures: bool = True
) -> None:
    failures = failed_checks(result)
    if failures := failures + failed_views(result, folder, draws=draws, configures=configures):
        lines = "\n".join(map(str, failures))
        config = yaml.safe_dump(settings_of(result.simulation), sort_keys=False, allow_unicode=True)
        pytest.fail(f"{lines}\n\nseed {result.seed} of\n{config}", pytrace=False)


@pytest.mark.parametrize(
    ("alternative", "pressure"), EACH, ids=[f"{view}-{pressure}" for view, pressure in EACH]
)
def test_every_alternative_under_every_pressure(
    alternative: Alternative, pressure: Pressure, tmp_path: Path
) -> None:
    result = run_under(alternative, pressure)
    # Plots look alike whatever the alternative: a few suffice here.
    draws = EACH.index((alternative, pressure)) % 200 == 0
    # Files hold the settings, which hardly depend on the pressure: one in three suffices. With
    # profile `dev`, which has one pressure per alternative, they are those of a third of these.
    configures = pressure == PRESSURES[list(VARIANTS).index(alternative) // 3 % len(PRESSURES)]
    assert_views(result, tmp_path, draws=draws, configures=configures)


@pytest.mark.slow
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    choice=st.sampled_from(list(CHOICES)),
    pressure=st.sampled_from(PRESSURES),
)
def test_random_simulations(
    tmp_path: Path, seed: int, choice: Alternative, pressure: Pressure
) -> None:
    simulation = random_simulation(seed, force=choice, pressure=pressure).simulation
    assert_views(simulate(simulation, seed), tmp_path)


def test_every_alternative_is_described() -> None:
    for alternative, way in VARIANTS.items():
        assert f"(kind: {alternative.name})" in describe.describe(way.path), way.path


@pytest.mark.slow
def test_the_generator_reaches_everything() -> None:
    """Equal seeds draw equal simulations, few drawings are refused, and forced ones occur."""
    refused = 0
    for seed, alternative in enumerate([*VARIANTS, *CHOICES]):
        drawn = random_simulation(seed, force=alternative)
        assert drawn == random_simulation(seed, force=alternative)
        assert alternative in alternatives_of(drawn.simulation)
        refused += drawn.refused
    assert refused < 0.1 * len(VARIANTS | CHOICES)
