"""Outcomes are the same on every machine: the digests of `digests.json`."""

from __future__ import annotations

import pytest
from golden import digests
from support.effort import few_of

RANDOM = [name for name in digests.NAMES if name.startswith("random ")]
OTHERS = [name for name in digests.NAMES if not name.startswith("random ")]


@pytest.mark.parametrize("name", [*OTHERS, *few_of(RANDOM, 15)])
def test_digests_are_the_recorded_ones(name: str) -> None:
    assert digests.digest(name) == digests.recorded()[name], (
        "If this is meant: `make golden`, and say why in the commit."
    )


def test_every_digest_is_recorded() -> None:
    assert list(digests.recorded()) == digests.NAMES
