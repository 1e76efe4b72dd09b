"""Pickers choose each instance with the documented probability."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.routing import APART, FOUR, UNEQUAL, chosen, drawn, watched, weighted
from support.runs import MS, ROUTER_STREAM, run_ns
from support.specimens import rules

from spillway import Simulation, _core, router, simulate, workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


MANY: dict[str, Any] = {
    "arrival_ns": np.cumsum([(row * 7919) % 40 * MS for row in range(3000)]).tolist(),
    "input_tokens": 16,
    "output_tokens": [1 + (row * 101) % 60 for row in range(3000)],
}


@pytest.mark.parametrize("scorer", ["load_balance", "active_requests"])
@pytest.mark.parametrize(
    ("picker", "shares"), rules("Weighted.picker"), ids=lambda policy: getattr(policy, "kind", "")
)
def test_picker_takes_everyone_as_often_as_it_says(
    picker: Any, shares: Callable[[Any, Floats], Floats], scorer: str
) -> None:
    """Given the scores of every decision, the picks are independent."""
    _, now = watched(weighted(scorer, picker=picker), seed=3, **MANY)
    expected = shares(picker, now.score)
    taken = np.eye(expected.shape[1])[now.instance]
    assert (expected[taken > 0] > 0).all()
    sigma = np.sqrt((expected * (1 - expected)).sum(axis=0))
    assert (np.abs((taken - expected).sum(axis=0)) < 4 * sigma).all()
    # The same with regard to the better half of the decisions' candidates.
    good = expected > 1 / expected.shape[1] + 1e-9
    if good.any():
        sigma_good = np.sqrt((expected * (1 - expected))[good].sum())
        assert abs((taken - expected)[good].sum()) < 4 * sigma_good
    assert len(np.unique(now.score)) > 3


def test_power_of_two_never_takes_the_worst() -> None:
    _, now = watched(weighted("load_balance", picker="power_of_two"), seed=5, **MANY)
    scores = now.score[np.arange(len(now.instance)), now.instance]
    is_alone_at_the_end = (now.score == now.score.min(axis=1, keepdims=True)).sum(axis=1) == 1
    assert is_alone_at_the_end.sum() > 1000
    assert (scores > now.score.min(axis=1))[is_alone_at_the_end].all()


def test_power_of_two_of_two_is_the_best() -> None:
    _, now = watched(weighted("load_balance", picker="power_of_two"), UNEQUAL[:2])
    scores = now.score[np.arange(len(now.instance)), now.instance]
    assert (scores == now.score.max(axis=1)).all()


@pytest.mark.parametrize("picker", ["best", "random", "weighted_random", "softmax", "power_of_two"])
def test_single_instance_is_everyones_pick(picker: str) -> None:
    result = run_ns(APART, router=weighted("queue_depth", picker=picker), instances={"count": 1})
    assert set(chosen(result)) == {0}


def test_very_cold_softmax_takes_the_best() -> None:
    _, now = watched(weighted("load_balance", picker=router.Softmax(temperature=1e-9)), **MANY)
    scores = now.score[np.arange(len(now.instance)), now.instance]
    assert (scores == now.score.max(axis=1)).all()


def test_very_hot_softmax_is_even() -> None:
    _, now = watched(weighted("load_balance", picker=router.Softmax(temperature=1e6)), **MANY)
    counts = np.bincount(now.instance, minlength=4)
    assert np.abs(counts - 750).max() < 4 * math.sqrt(3000 * 0.25 * 0.75)
    assert len(np.unique(now.score)) > 3


def test_best_resolves_ties() -> None:
    first = run_ns(APART, router=weighted("queue_depth", picker=router.Best(ties="first")), **FOUR)
    assert set(chosen(first)) == {0}
    tied = weighted("queue_depth", picker=router.Best(ties="random"))
    assert chosen(run_ns(APART, router=tied, seed=8, **FOUR)) == drawn(8, range(60))


def test_best_draws_among_the_best_alone() -> None:
    _, now = watched(weighted("active_requests", picker=router.Best(ties="random")), seed=8)
    several = 0
    for row, (scores, choice) in enumerate(zip(now.score, now.instance, strict=True)):
        best = np.flatnonzero(scores == scores.max()).tolist()
        draws = _core.sim.Draws(seed=8, stream=ROUTER_STREAM, entity=row)
        assert choice == (best[0] if len(best) == 1 else best[draws.below(len(best))])
        several += len(best) > 1
    assert 10 < several < 140


def test_random_is_one_draw_of_the_request() -> None:
    result = run_ns(APART, router=weighted("queue_depth", picker="random"), seed=4, **FOUR)
    assert chosen(result) == drawn(4, range(60))


def test_pickers_leave_the_workload_alone() -> None:
    """Common random numbers: all policies see identical requests."""
    client = workload.Client(
        input_tokens=workload.Exponential(mean_tokens=300),
        output_tokens=workload.Exponential(mean_tokens=40),
    )
    requests = workload.Synthetic(requests_per_s=40, num_requests=300, clients=[client])

    def offered(picker: str) -> tuple[list[Any], list[int]]:
        policy = weighted("load_balance", picker=picker)
        result = simulate(Simulation(workload=requests, router=policy, **FOUR), 6)
        columns = ("arrival_s", "input_tokens", "output_tokens")
        return [result.requests[name].tolist() for name in columns], chosen(result)

    runs = [
        offered(picker)
        for picker in ("best", "random", "weighted_random", "softmax", "power_of_two")
    ]
    assert all(columns == runs[0][0] for columns, _ in runs)
    assert len({tuple(instances) for _, instances in runs}) == len(runs)
