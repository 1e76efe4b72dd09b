"""The wait of an M/G/1 queue to one per cent."""

from __future__ import annotations

import numpy as np
import pytest
from cluster.test_queueing_theory import SINGLE, Queue, pollaczek_khinchine
from scipy import stats

from spillway import simulate

REQUESTS = 200_000
FEWEST, MOST = 20, 300
CONFIDENCE = 0.99
HALF_WIDTH = 0.01


@pytest.mark.long
@pytest.mark.parametrize("queue", SINGLE, ids=str)
def test_pollaczek_khinchine_lies_within_one_per_cent(queue: Queue) -> None:
    """Replications until the 99 % interval of the mean wait is narrow; the formula must lie inside.

    The formula takes the rate and the moments of all replications together. The queue starts empty,
    so the first tenth of every replication, many relaxation times, is left out.
    Stopping at the first interval that is narrow enough covers a little less than 99 %; a formula
    that takes the same arrivals and services follows the mean, which covers more.
    """
    mean_gap_s = queue.mean_service_s / queue.utilization
    warm_up_s = 0.1 * REQUESTS * mean_gap_s
    simulation = queue.simulation(REQUESTS, warm_up_s)
    waits: list[float] = []
    customers = 0
    observed_s = total_s = squares_s2 = 0.0
    half_width = np.inf
    while len(waits) < FEWEST or half_width > HALF_WIDTH * np.mean(waits):
        assert len(waits) < MOST
        result = simulate(simulation, seed=1_000_000 * SINGLE.index(queue) + len(waits))
        waits.append(result.summary()["mean_scheduling_delay_ms"] * 1e-3)
        requests = result.requests
        counted = requests["arrival_s"] >= warm_up_s
        service = (requests["e2e_s"] - requests["scheduling_delay_s"])[counted]
        customers += service.size
        observed_s += requests["arrival_s"][-1] - warm_up_s
        total_s += service.sum()
        squares_s2 += np.square(service).sum()
        if len(waits) >= FEWEST:
            t = stats.t.ppf(0.5 + CONFIDENCE / 2, len(waits) - 1)
            half_width = t * stats.sem(waits)

    mean = np.mean(waits)
    theory = pollaczek_khinchine(
        customers / observed_s, total_s / customers, squares_s2 / customers
    )
    print(  # shown by pytest -rP
        f"{queue}: {len(waits)} replications, mean wait {mean:.6g} s +- {half_width / mean:.2%}, "
        f"Pollaczek-Khinchine {theory:.6g} s ({theory / mean - 1:+.2%})"
    )
    assert half_width <= HALF_WIDTH * mean
    assert abs(theory - mean) <= half_width
