"""The number of random cases in the tests, by profile.

A test names a number. The profile `ci`, that of continuous integration, tries a third of it,
`dev` a sixth, `nightly` many times as many. The first cases of a larger number are those of a
smaller one, where a test counts seeds. SPILLWAY_TEST_PROFILE names the profile; `dev` is the
default.
"""

from __future__ import annotations

import itertools
import os
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

SHARES = {"dev": Fraction(1, 6), "ci": Fraction(1, 3), "nightly": Fraction(40, 3)}
PROFILE = os.environ.get("SPILLWAY_TEST_PROFILE", "dev")
if PROFILE not in SHARES:
    raise ValueError(f"SPILLWAY_TEST_PROFILE = {PROFILE!r}: must be one of {', '.join(SHARES)}")

EXAMPLES = 150
"""Of a property, unless its test says otherwise: 25, 50 or 2,000."""


def scaled(number: float) -> int:
    """The number for the profile, from that of the test; at least 1."""
    return max(1, round(number * SHARES[PROFILE]))


def trials(number: int) -> range:
    """The seeds of this many random cases, scaled by the profile."""
    return range(scaled(number))


def often(number: float) -> int:
    """How often an event must occur in the random cases: see `scaled`.

    With few cases chance matters more: `dev` requires less than a fifth of that, or nothing.
    """
    return scaled(number) // 5 - 1 if PROFILE == "dev" else scaled(number)


def few_of(cases: Sequence[T], every: int, start: int = 0) -> Sequence[T]:
    """Every n-th of the cases with profile `dev`, all of them otherwise."""
    return cases[start::every] if PROFILE == "dev" else cases


def in_parts(seeds: range, number: int) -> list[range]:
    """The seeds in this many parts, for tests that can run in parallel."""
    ends = [len(seeds) * part // number for part in range(number + 1)]
    return [seeds[first:last] for first, last in itertools.pairwise(ends)]


def examples(number: int, **more: object) -> settings:
    """Settings of a property with a different number of examples."""
    return settings(max_examples=scaled(number), **more)  # type: ignore[arg-type]


def load_profile() -> None:
    """Makes hypothesis try as many examples as the profile says, the same ones every time."""
    settings.register_profile(
        PROFILE,
        max_examples=scaled(EXAMPLES),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.load_profile(PROFILE)
