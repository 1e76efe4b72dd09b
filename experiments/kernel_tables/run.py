"""Step tables of measured kernels compared with measured servers, as they are and scaled.

Writes README.md. `--data` is a folder with `silicon_sample.csv` (mean TTFT and TPOT at fixed
concurrency), which is not part of this repository. Needs the extra `aiconfigurator`.
"""

from __future__ import annotations

import argparse
import dataclasses
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments import common
from experiments.common.points import Measured, server_of
from experiments.silicon_points.run import simulated_group
from spillway import ConfigError, instance
from spillway.calibration.refinement import coefficients_of, descend, latency_of
from spillway.files.recordings import read_points
from spillway.servers.kernel_tables import kernel_table
from spillway.simulate import run_many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.servers import Server

_LEAST_POINTS = 10
_BIAS_FREE = 2  # weight of TPOT against TTFT, as in silicon_points


class Scaled:
    """Residuals of TPOT and TTFT at points of servers whose tables share scales and a delay."""

    def __init__(
        self, points: Sequence[Measured], table_of: Callable[[Server], instance.InstanceGroup]
    ) -> None:
        self._points = points
        self._groups = [
            [self._group(point, int(users), table_of) for users in point.users] for point in points
        ]
        self.start = np.log(list(coefficients_of(self._groups[0][0].latency).values()))
        self.ttft_s = np.concatenate([point.ttft_s for point in points])
        self.itl_s = np.concatenate([point.itl_s for point in points])

    @staticmethod
    def _group(
        one: Measured, users: int, table_of: Callable[[Server], instance.InstanceGroup]
    ) -> instance.InstanceGroup:
        server = server_of(one.group, users)
        # The table of a server does not depend on the number of users that a run has.
        table = table_of(dataclasses.replace(server, max_num_seqs=512)).latency
        return server.group.replace(latency=table)

    def ratios(self, thetas: Sequence[np.ndarray]) -> list[np.ndarray]:
        """TPOT and TTFT, predicted by measured, at each point."""
        simulations = [
            point.simulation(int(users), group.replace(latency=latency_of(theta, group.latency)))
            for theta in thetas
            for point, groups in zip(self._points, self._groups, strict=True)
            for users, group in zip(point.users, groups, strict=True)
        ]
        summaries = [found[0].summary() for found in run_many(simulations)]
        values = np.array(
            [[summary["mean_tpot_ms"], summary["mean_ttft_ms"]] for summary in summaries]
        )
        measured = 1e3 * np.stack([self.itl_s, self.ttft_s], axis=1)
        return list(values.astype(float).reshape(len(thetas), -1, 2) / measured)

    def residuals(self, thetas: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One row per point."""
        return [np.log(ratio) * (_BIAS_FREE, 1) for ratio in self.ratios(thetas)]


def rows(
    points: Sequence[Measured], table_of: Callable[[Server], instance.InstanceGroup]
) -> list[list[str]]:
    """A row of errors for each accelerator, type of weights and model."""
    kinds: dict[str, list[Measured]] = {}
    for point in points:
        try:
            server = server_of(point.group, 1)
            table_of(dataclasses.replace(server, max_num_seqs=512))
        except ConfigError:
            continue
        name = f"{server.architecture.name} {server.weight_dtype} {server.accelerator.name}"
        kinds.setdefault(name, []).append(point)
    found = []
    for name, some in sorted(kinds.items()):
        if sum(len(point.users) for point in some) < _LEAST_POINTS:
            continue
        itself = Scaled(some, table_of)
        theta, _ = descend(itself, itself.start)
        shown = [name, str(len(itself.itl_s))]
        for errors in itself.ratios([itself.start, theta]):
            for percent in 100 * (errors.T - 1):
                shown += [f"{np.median(np.abs(percent)):.1f}", f"{np.median(percent):+.1f}"]
        decode, prefill, entry_us = np.exp(theta)
        shown += [f"{decode:.2f}", f"{prefill:.2f}", f"{entry_us / 1e3:.1f} ms"]
        found.append(shown)
    return found


INTRODUCTION = """\
# Step tables of measured kernels

Mean TTFT and TPOT of vLLM servers at fixed concurrency, published with aiconfigurator (Apache-2.0)
and measured by InferenceMAX, against simulations whose step times are tables of the kernel
measurements in aiconfigurator-core {version} (`spillway servers --table aiconfigurator`). *As it
is*: nothing is fitted. *Scaled*: the table's two scales and the entry delay are fitted to all
points of the row, one set for all tensor-parallel sizes and lengths; these are errors of the fit,
not of a prediction. Errors in %, medians over the points.
"""


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="the folder of the measurements")
    source.add_argument("--smoke", action="store_true", help="one simulated group and table")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("README.md"))
    options = parser.parse_args()
    if options.smoke:
        points = [Measured.of(simulated_group())] * _LEAST_POINTS
        package = "(none)"

        def table_of(server: Server) -> instance.InstanceGroup:
            return server.group.replace(latency=instance.StepTable())

    else:
        points = [
            Measured.of(point)
            for point in read_points(options.data / "silicon_sample.csv")
            if point.server.engine == "vllm"
        ]
        package = version("aiconfigurator-core")
        cached: dict[tuple[object, ...], instance.InstanceGroup | ConfigError] = {}

        def table_of(server: Server) -> instance.InstanceGroup:
            key = (server.model, server.gpu, server.layout, server.dtype, server.kv_cache_dtype)
            if key not in cached:
                try:
                    cached[key] = kernel_table(server).group
                except ConfigError as error:
                    cached[key] = error
            found = cached[key]
            if isinstance(found, ConfigError):
                raise found
            return found

    heads = ("server", "points", "TPOT as it is", "bias", "TTFT as it is", "bias", "TPOT scaled",
             "bias", "TTFT scaled", "bias", "decode scale", "prefill scale",
             "entry delay")  # fmt: skip
    table = common.markdown(heads, rows(points, table_of))
    common.publish(f"{INTRODUCTION.format(version=package)}\n{table}", options.output)


if __name__ == "__main__":
    main()
