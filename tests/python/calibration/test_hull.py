"""Batch states of runs."""

from __future__ import annotations

import pytest

from spillway import Simulation, instance, simulate, workload
from spillway.calibration.hull import states_of


def test_states_of_a_fleet_are_those_of_one_server() -> None:
    """Four servers with four times the traffic: each server's batch is alike."""
    means = []
    for count in (1, 4):
        simulation = Simulation(
            workload=workload.Synthetic(requests_per_s=20.0 * count, num_requests=400 * count),
            instances=instance.InstanceGroup(count=count, num_kv_blocks=5000),
            router="round_robin",
            metrics={"timeline_step_s": 0.05},
        )
        means.append(states_of(simulate(simulation)).mean(axis=0))
    assert means[1] == pytest.approx(means[0], rel=0.2)
