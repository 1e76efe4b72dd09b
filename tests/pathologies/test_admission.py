"""Failures of admission control, each with its cure."""

from __future__ import annotations

import numpy as np
import pytest

from spillway import Simulation, gateway, instance, simulate, workload

# A first token takes 5 s, then 100 tokens come, each in 0.05 s + 0.00125 s per request inside.
PLANT = instance.ProcessorSharing(
    concurrency=[0, 1000], e2e_s=[10, 10 + 0.125 * 1000], ttft_s=[5, 5]
)


def early_rejection(decode_load: str, seed: int) -> tuple[float, float, float]:
    """Streams on average and their standard deviation, in the last 200 s; goodput."""
    result = simulate(
        Simulation(
            workload=workload.Synthetic(
                requests_per_s=15,
                duration_s=500,
                clients=[
                    workload.Client(
                        input_tokens=workload.Fixed(tokens=500),
                        output_tokens=workload.Fixed(tokens=101),
                    )
                ],
            ),
            slo_classes=[workload.SloClass(name="standard", target_tpot_s=0.12)],
            gateway=gateway.Gateway(admission=gateway.EarlyRejection(decode_load=decode_load)),
            instances=instance.InstanceGroup(plant=PLANT),
        ),
        seed,
    )
    columns = result.requests
    began = columns["arrival_s"] + columns["ttft_s"]
    ended = columns["arrival_s"] + columns["e2e_s"]
    times = np.arange(300, 500, 0.5)
    streams = np.array([np.sum((began <= t) & (ended > t)) for t in times])
    late = columns["arrival_s"] > 100
    in_time = (columns["outcome"] == "completed") & (columns["tpot_s"] <= 0.12)
    return float(streams.mean()), float(streams.std()), float(in_time[late].mean())


@pytest.mark.parametrize("seed", range(3))
def test_rejection_by_the_present_decode_load_swings(seed: int) -> None:
    """Between admission and the first token, all arrivals are admitted: the streams overshoot, then
    no request is admitted until they have ended. Counting admitted requests that do not decode yet
    damps the swing. Two pools in anti-phase are not needed: one suffices if its decoding lags
    behind admission.
    """
    mean, swing, goodput = early_rejection("current", seed)
    calm_mean, calm_swing, calm_goodput = early_rejection("predicted", seed)
    assert swing > 0.5 * mean
    assert calm_swing < 0.2 * calm_mean
    assert calm_goodput > 1.5 * goodput
