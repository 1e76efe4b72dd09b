"""Bands are served strictly in order of their priority."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.runs import MS, check_limit, passages, run_ns

from spillway import gateway, workload

if TYPE_CHECKING:
    from collections.abc import Sequence


PRIORITIES = {"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}


def band_of(slo_class: str, bands: Sequence[int]) -> int:
    """The highest band whose priority the class reaches; the lowest takes the rest."""
    reached = [band for band in bands if PRIORITIES[slo_class] >= band]
    return max(reached, default=min(bands))


@given(
    gaps_ns=st.lists(st.sampled_from([0]) | st.integers(0, 30 * MS), min_size=5, max_size=30),
    bands=st.lists(st.integers(-4, 5), min_size=1, max_size=4, unique=True),
    limit=st.integers(1, 2),
    data=st.data(),
)
def test_bands_are_strict_and_in_order_within(
    gaps_ns: list[int], bands: list[int], limit: int, data: st.DataObject
) -> None:
    arrival_ns = np.cumsum([0, *gaps_ns]).tolist()
    n = len(arrival_ns)
    classes = data.draw(st.lists(st.sampled_from(sorted(PRIORITIES)), min_size=n, max_size=n))
    result = run_ns(
        arrival_ns,
        output_tokens=3,
        slo_class=classes,
        tenant=data.draw(st.lists(st.sampled_from("ab"), min_size=n, max_size=n)),
        gateway=gateway.Gateway(
            bands=[gateway.Band(priority=band) for band in bands],
            limit=gateway.FixedLimit(max_in_flight=limit),
        ),
    )
    ways = passages(result)
    check_limit(ways, limit)
    rank = [(-band_of(slo_class, bands), row) for row, slo_class in enumerate(classes)]
    for row, way in enumerate(ways):
        # A request that arrived before this dispatch and is dispatched later ranks lower.
        overtaken = [
            other
            for other in range(n)
            if ways[other].admitted < way.dispatched < ways[other].dispatched
        ]
        assert all(rank[row] < rank[other] for other in overtaken)


def test_important_requests_overtake() -> None:
    result = run_ns(
        [0, 1, 2, 3, 4, 5],
        output_tokens=2,
        slo_class=["batch", "batch", "background", "critical", "standard", "critical"],
        gateway=gateway.Gateway(
            bands=[gateway.Band(priority=-2), gateway.Band(priority=4), gateway.Band(priority=0)],
            limit={"kind": "fixed", "max_in_flight": 1},
        ),
    )
    order = np.argsort([way.dispatched for way in passages(result)], kind="stable")
    # Background is below every band and joins the lowest, behind the batch request.
    assert order.tolist() == [0, 3, 5, 4, 1, 2]


def test_one_band_knows_no_priorities() -> None:
    result = run_ns(
        [0, 1, 2],
        output_tokens=2,
        slo_class=["background", "batch", "critical"],
        gateway={"limit": gateway.FixedLimit(max_in_flight=1)},
    )
    dispatched = [way.dispatched for way in passages(result)]
    assert dispatched == sorted(dispatched)


def test_priorities_are_those_of_the_classes() -> None:
    swapped = [
        workload.SloClass(name="batch", priority=9),
        workload.SloClass(name="critical", priority=-9),
    ]
    result = run_ns(
        [0, 1, 2],
        output_tokens=2,
        slo_class=["standard", "critical", "batch"],
        slo_classes=swapped,
        gateway=gateway.Gateway(
            bands=[gateway.Band(priority=5), gateway.Band()],
            limit={"kind": "fixed", "max_in_flight": 1},
        ),
    )
    ways = passages(result)
    assert ways[2].dispatched < ways[1].dispatched
