"""The scheduling of BLIS's strategy experiments."""

from __future__ import annotations

from typing import Any

import numpy as np

from spillway import Simulation, instance, simulate, trace
from spillway.systems.blis import presets as blis

PARAMETERS: dict[str, dict[str, Any]] = {
    "blis-iteration-14": {"age_weight_per_s": 1, "preemption_margin": 5}
}
OUT_OF_RANGE: list[tuple[str, str, Any]] = [
    ("blis-iteration-14", "age_weight_per_s", -1),
    ("blis-iteration-14", "preemption_margin", 0),
]


def test_a_sheddable_request_passes_a_fresh_critical_one_after_700_ms() -> None:
    """Behind one that holds the only seat for 2 s; the classes' own priorities say otherwise."""
    for later_s, first in ((0.69, "critical"), (0.71, "sheddable")):
        simulation = Simulation(
            workload=trace(
                arrival_s=[0, 0.01, 0.01 + later_s],
                input_tokens=[10] * 3,
                output_tokens=[250, 1, 1],
                slo_class=["critical", "sheddable", "critical"],
            ),
            instances=instance.InstanceGroup(
                max_num_seqs=1, scheduler=blis.iteration_14().scheduler
            ),
        )
        _, sheddable, critical = simulate(simulation).requests["ttft_s"] + np.array(
            [0, 0.01, 0.01 + later_s]
        )
        assert ("critical" if critical < sheddable else "sheddable") == first
