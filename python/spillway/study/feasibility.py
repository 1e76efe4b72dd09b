"""Configurations that run, but whose control loop cannot work as intended."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from spillway._core.instance import ProcessorSharing
from spillway._core.sim import ConfigError
from spillway._core.workload import Synthetic

if TYPE_CHECKING:
    from spillway._core.cluster import Simulation
    from spillway.study.space import BoundSpace


_SAMPLES = 10
"""Fewer samples in a window give no quantile."""


def caveats(simulation: Simulation) -> tuple[str, ...]:
    """The caveats about a configuration, as text; most configurations have none.

    Rules of thumb for a gateway with a controller: the window holds at least two ticks and ten
    samples at the offered rate; cooldown outlasts the window; the floor lies below the knee of the
    fleet; the queue's timeout stays below the controller's band and does not exceed the targets of
    the classes.
    """
    found = [*_queue_caveats(simulation)]
    if simulation.gateway.controller.kind != "static":
        found += _window_caveats(simulation)
        found += _floor_caveats(simulation)
    return tuple(found)


def shares_with_caveats(bound: BoundSpace, n: int = 128) -> dict[str, float]:
    """See `Study.caveats`."""
    random = np.random.default_rng(0)
    counts: Counter[str] = Counter()
    n_valid = 0
    for shares in random.random((n, len(bound))):
        with contextlib.suppress(ConfigError):
            simulation = bound.apply(bound.at(shares.tolist()))
            n_valid += 1
            counts.update({text.split(" =")[0] for text in caveats(simulation)})
    return {setting: count / n_valid for setting, count in sorted(counts.items())}


def _queue_caveats(simulation: Simulation) -> list[str]:
    gateway = simulation.gateway
    controller, sensor = gateway.controller, gateway.sensor
    targets = [known.target_ttft_s for known in simulation.slo_classes if known.target_ttft_s]
    found = []
    for i, band in enumerate(gateway.bands):
        timeout_s = band.queue.timeout_s
        if timeout_s is None:
            continue
        where = f"gateway.bands[{i}].queue.timeout_s = {timeout_s:.4g}"
        if targets and timeout_s > max(targets):
            found.append(
                f"{where} exceeds every target_ttft_s: a request that waits this long is late"
            )
        edge = getattr(controller, "target_s", math.nan) * (1 - getattr(controller, "band", 0))
        if sensor.source == "ttft" and timeout_s >= edge:
            found.append(
                f"{where} reaches into the controller's band, which begins at {edge:.4g} s: such "
                "waits can freeze the limit at any value"
            )
    return found


def _window_caveats(simulation: Simulation) -> list[str]:
    sensor, guard = simulation.gateway.sensor, simulation.gateway.guard
    tick_s = sensor.tick_s + sensor.tick_drift_s
    window_s = sensor.window_s
    if sensor.aggregation == "bucketed_quantile":
        window_s = math.floor(sensor.window_s / tick_s + 1e-9) * tick_s
    shown = f"gateway.sensor.window_s = {sensor.window_s:.4g} spans {window_s:.4g} s"
    found = []
    if window_s < 2 * tick_s:
        found.append(f"{shown}, less than two ticks of {sensor.tick_s:.4g} s")
    samples = offered_per_s(simulation) * window_s
    least = max(_SAMPLES, sensor.min_samples)
    if samples < least:
        found.append(
            f"{shown}, in which only {samples:.3g} requests arrive: fewer than {least} samples"
        )
    if guard.cooldown_ticks * tick_s < window_s:
        found.append(
            f"gateway.guard.cooldown_ticks = {guard.cooldown_ticks} ends within the window of "
            f"{window_s:.4g} s: the same samples can cut the limit twice"
        )
    return found


def _floor_caveats(simulation: Simulation) -> list[str]:
    floor = simulation.gateway.guard.floor
    count = sum(group.count for group in simulation.instances)
    workers = 1
    for limit in simulation.gateway.limit:
        if limit.kind == "worker_budget":
            workers = count if limit.workers is None else limit.workers
    knee = sum(group.count * _knee(group) for group in simulation.instances)
    if floor * workers <= knee:
        return []
    lets_in = f"gateway.guard.floor = {floor:.4g} lets {floor * workers:.4g} requests in"
    return [f"{lets_in}, more than the {knee:g} at which throughput is highest"]


def _knee(group: object) -> float:
    plant = getattr(group, "plant", None)
    if isinstance(plant, ProcessorSharing):
        rates = [n / e2e_s for n, e2e_s in zip(plant.concurrency, plant.e2e_s, strict=True)]
        best = rates.index(max(rates))
        return math.inf if best == len(rates) - 1 else plant.concurrency[best]
    return float(getattr(group, "max_num_seqs", math.inf))


def offered_per_s(simulation: Simulation) -> float:
    """Requests per second while all clients of the workload send."""
    workload = simulation.workload
    if not isinstance(workload, Synthetic):
        return math.inf  # a trace has no stated rate
    if not workload.clients:
        return workload.requests_per_s
    return math.fsum(
        workload.requests_per_s * client.rate_fraction
        if client.requests_per_s is None
        else client.requests_per_s
        for client in workload.clients
    )
