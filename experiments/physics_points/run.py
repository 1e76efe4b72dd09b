"""Servers from datasheets compared with measurements: what their efficiencies are, and transfer to.

Writes README.md. `--data` is a folder with `silicon_sample.csv` (mean TTFT and TPOT at fixed
concurrency), `vllm_h100/` and `vllm_h100_qwen3_14b/` (requests of real runs). The measurements are
not part of this repository. `--write` also writes the fitted efficiencies into the catalog.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import common
from experiments.common.points import Measured, Points, server_of
from experiments.silicon_points.run import simulated_group
from spillway import ConfigError
from spillway.calibration.latencies import measured, simulated, weights_of
from spillway.calibration.refinement import descend, ridge_of
from spillway.calibration.replay import Replay
from spillway.config.yaml import to_yaml
from spillway.files.recordings import read_points, read_recordings
from spillway.servers import Server, physics
from spillway.simulate import run_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.calibration.refinement import Problem
    from spillway.data.recording import Recording

FIRST_GUESS = physics.Efficiencies(
    memory=0.80,
    arithmetic=0.60,
    kv=0.55,
    constant_us=2800,
    layer_us=1e-6,
    decode_us=30,
    collective_us=14,
    entry_us=5000,
)
"""Committed before any row of the points was read; it had no time per layer."""

RUNS = {
    "vllm_h100": (
        "llama-2-7b-tp1-codegen",
        "llama-2-70b-tp4-general",
        "mixtral-8x7b-v0-1-tp2-codegen",
        "codellama-34b-tp2-general",
    ),
    "vllm_h100_qwen3_14b": ("sweep_rate_agg_2rps", "sweep_rate_agg_6rps", "w7_agg6"),
}
"""Folder -> runs that determine the prior; all in bf16 on H100."""

TRANSFERS = (("h100_sxm", (4,), (2, 8)), ("h200_sxm", (1, 4), (2, 8)), ("b200_sxm", (1, 4), (2, 8)))
"""Accelerator, fitted tensor-parallel sizes, predicted ones."""

_MODEL, _DTYPE = "meta-llama/Llama-3.1-70B", "fp8"
_LEAST_WIDTH = 0.05
_LEAST_POINTS = 15
_DRAWS = 40
_TIGHTER = 3
_MOST_ERROR_PERCENT = np.array([10.0, 20.0])  # TPOT, TTFT
_MOST_WIDTHS = 4
_LEVEL = 90
_STEP = 0.15
_ENGINE = "vllm-0.15"
_WIDTHS = np.array(dataclasses.astuple(physics.WIDTHS))
_COVARIANCE = np.diag(_WIDTHS**2)
_NAMES = [field.name for field in dataclasses.fields(physics.Efficiencies)]

INTRODUCTION = """# Physics points

A server of the catalog computes its step times from datasheets with eight efficiencies
(`servers.physics`). This page says what they are where they were measured, and how far they
carry. Errors are signed, simulated against measured, in percent.

## Five models on H100

Eight numbers shared by five models in bf16 (one of them a mixture of experts, tensor-parallel
sizes 1, 2 and 4, vLLM 0.15 and 0.23), fitted to requests of real runs. They are the source of the
catalog's prior for what was not measured. The first four models' runs repeat 100 prompts, which
requests in a batch then share, so their KV reads look cheaper than they are: the value for KV is
that of Qwen3-14B, and the prior is below the bandwidth.
"""

POINTS = """## Llama-3.1-70B in fp8

Published means of vLLM at 4 to 64 users (see [silicon_points](../silicon_points/README.md) for the
protocol). *First guess*: committed before any of these rows was read. *Prior*: the numbers of the
section above, rounded; no row of this section went into it, but the time per layer was added to the
model after the first guess had been compared with them.
"""

COVERAGE = """How often the measured value lies in the 90% interval over draws from the prior:
"""

TRANSFER = """### From some tensor-parallel sizes to others, and from H100 to others

Fitted with the prior on what stands left of the arrow, predicted for what stands right of it. The
points of H100 have KV in bf16, the others in fp8, so KV stays at the prior from H100 to others.
"""

CATALOG = """### What the catalog takes

All points of an accelerator with models of one kind, fitted with the prior at a third of its width.
Taken are fits that leave a median error of at most 10% in TPOT and 20% in TTFT, with efficiencies
within four standard deviations of the prior: the others make up for something that the model lacks.
For dense models in bf16 on H100 the runs of the first section are taken instead.
"""


class Runs:
    """Residuals of replayed runs on servers of the catalog with shared efficiencies."""

    def __init__(self, runs: Sequence[Recording]) -> None:
        self.replays = [Replay(run) for run in runs]
        self._rows = [replay.compared for replay in self.replays]
        self._measured = [
            measured(replay, rows).logs()
            for replay, rows in zip(self.replays, self._rows, strict=True)
        ]

    def residuals(self, thetas: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One row of residuals per run."""
        simulations = [
            replay.simulation(_server_of(replay.recording).group_with(efficiencies))
            for efficiencies in map(physics.Efficiencies.from_logs, thetas)
            for replay in self.replays
        ]
        results = run_many(simulations, keep_requests=True)
        n = len(self.replays)
        return [
            np.array(
                [
                    weights_of(replay) * (simulated(results[i * n + k][0], rows).logs() - logs)
                    for k, (replay, rows, logs) in enumerate(
                        zip(self.replays, self._rows, self._measured, strict=True)
                    )
                ]
            )
            for i in range(len(thetas))
        ]

    def errors_percent(self, theta: np.ndarray) -> list[np.ndarray]:
        """Signed errors of every run's statistics."""
        (rows,) = self.residuals([theta])
        return [
            100 * np.expm1(row / weights_of(replay))
            for replay, row in zip(self.replays, rows, strict=True)
        ]


def _server_of(run: Recording) -> Server:
    facts = run.server
    version = (facts.engine_version or "").split(".")
    return Server(
        model=facts.model or "",
        gpu=facts.gpu or "",
        tp=facts.tensor_parallel_size or 1,
        engine=f"vllm-{version[0]}.{version[1]}" if len(version) > 1 else _ENGINE,
        max_num_seqs=facts.max_num_seqs,
        max_num_batched_tokens=facts.max_num_batched_tokens,
        num_kv_blocks=facts.num_kv_blocks,
    )


def widths_of(problem: Problem, theta: np.ndarray) -> np.ndarray:
    """Standard deviations of the fitted logarithms: those of the ridge where nothing is known."""
    axes = _STEP * np.eye(len(theta))
    here, *found = problem.residuals([theta, *(theta + s * axis for axis in axes for s in (1, -1))])
    slopes = [
        (up - down).ravel() / (2 * _STEP) for up, down in zip(found[::2], found[1::2], strict=True)
    ]
    known = np.nan_to_num(np.array(slopes).T)
    ridge = ridge_of(theta, _COVARIANCE)
    rest = here[np.isfinite(here)]
    covariance = np.linalg.inv(known.T @ known + ridge) * float(np.mean(rest**2))
    return np.asarray(np.clip(np.sqrt(np.diag(covariance)), _LEAST_WIDTH, _WIDTHS))


def selected(points: Sequence[Measured], gpu: str, sizes: Sequence[int]) -> list[Any]:
    """The points of an accelerator with these tensor-parallel sizes."""
    return [
        (point, range(len(point.users)))
        for point in points
        if point.group.server.gpu == gpu and point.group.server.tensor_parallel_size in sizes
    ]


def _kind(server: Server) -> str:
    kind = "mixture" if server.architecture.is_mixture else "dense"
    return f"{server.accelerator.name}-{server.weight_dtype}-{kind}"


def kinds(points: Sequence[Measured]) -> dict[str, list[Measured]]:
    """The points by accelerator, type of weights and kind of model, of servers in the catalog."""
    found: dict[str, list[Measured]] = {}
    for point in points:
        try:
            server = server_of(point.group, 1)
        except ConfigError:
            continue
        found.setdefault(_kind(server), []).append(point)
    return {
        name: some
        for name, some in sorted(found.items())
        if sum(len(point.users) for point in some) >= _LEAST_POINTS
    }


def _values(theta: np.ndarray) -> list[str]:
    return [f"{value:.3g}" for value in np.exp(theta)]


def _is_plausible(theta: np.ndarray, errors: tuple[np.ndarray, np.ndarray]) -> bool:
    left = np.median(np.abs(np.array(errors)), axis=1)
    far = np.abs(theta - physics.PRIOR.logs) / _WIDTHS
    return bool((left <= _MOST_ERROR_PERCENT).all() and (far <= _MOST_WIDTHS).all())


def _covered(errors: np.ndarray) -> np.ndarray:
    """Whether zero lies within the central 90% of the draws, point by point."""
    tail = (100 - _LEVEL) / 2
    low, high = np.percentile(errors, [tail, 100 - tail], axis=0)
    return np.asarray((low <= 0) & (high >= 0))


def _medians(errors: tuple[np.ndarray, np.ndarray]) -> list[str]:
    shown = [str(len(errors[0]))]
    for error in errors:
        shown += [f"{np.median(np.abs(error)):.1f}", f"{np.median(error):+.1f}"]
    return shown


_ERRORS = ("points", "TPOT median error", "bias", "TTFT median error", "bias")


class Catalog:
    """The fitted efficiencies, as the catalog's data file holds them."""

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}

    def add(self, server: Server, fitted: str, problem: Problem, theta: np.ndarray) -> None:
        """Adds those of one accelerator, type of weights and kind of model, the first ones only."""
        gpu, dtype = server.accelerator.name, server.weight_dtype
        is_mixture = server.architecture.is_mixture
        name = _kind(server)
        if name in self.entries:
            return
        widths = widths_of(problem, theta)
        self.entries[name] = {
            "gpu": gpu,
            "dtype": dtype,
            "is_mixture": is_mixture,
            "kv_cache_dtype": server.kv_cache_dtype,
            "fitted": fitted,
            "efficiencies": {
                name: float(f"{value:.3g}")
                for name, value in zip(_NAMES, np.exp(theta), strict=True)
            },
            "widths": {
                name: float(f"{width:.2g}") for name, width in zip(_NAMES, widths, strict=True)
            },
        }


def shared_numbers(data: Path, catalog: Catalog) -> list[str]:
    """The section on five models on one accelerator."""
    runs = Runs(
        [
            run
            for folder, names in RUNS.items()
            for run in read_recordings(data / folder)
            if run.name in names
        ]
    )
    theta, _ = descend(runs, physics.PRIOR.logs, covariance=_COVARIANCE)
    rows = [
        [replay.recording.name, *(f"{errors[i]:+.1f}" for i in (0, 2, 4, 5, 10, 15))]
        for replay, errors in zip(runs.replays, runs.errors_percent(theta), strict=True)
    ]
    fitted = _values(theta)
    unshared = Runs([replay.recording for replay in runs.replays if replay.period is None])
    kv = _NAMES.index("kv")
    of_unshared, _ = descend(unshared, physics.PRIOR.logs, covariance=_COVARIANCE)
    theta[kv] = of_unshared[kv]
    models = len({replay.recording.server.key for replay in runs.replays})
    catalog.add(_server_of(unshared.replays[0].recording), f"runs of {models} models", runs, theta)
    return [
        INTRODUCTION,
        common.markdown(["", *_NAMES], [["fitted", *fitted],
                                        ["prior", *_values(physics.PRIOR.logs)]]),
        "",
        common.markdown(
            ("run", "TTFT mean", "p50", "p99", "ITL mean", "E2E mean", "capacity"), rows
        ),
        "",
    ]  # fmt: skip


def one_model(points: Sequence[Measured]) -> list[str]:
    """The section on the points of one model: nothing fitted, then from some sizes to others."""
    rows = []
    for name, guess in (("first guess", FIRST_GUESS), ("prior", physics.PRIOR)):
        for gpu, _, _ in TRANSFERS:
            errors = Points(selected(points, gpu, (1, 2, 4, 8))).errors_percent(guess.logs)
            rows.append([f"{name}, {gpu}", *_medians(errors)])
    text = [POINTS, common.markdown(("nothing fitted", *_ERRORS), rows), ""]
    known = physics.Knowledge(physics.PRIOR, physics.WIDTHS, "")
    draws = [draw.logs for draw in physics.drawn(known, _DRAWS, 0)]
    rows = []
    for gpu, _, _ in TRANSFERS:
        errors = Points(selected(points, gpu, (1, 2, 4, 8))).many_errors_percent(draws)
        inside = [_covered(errors[:, k]) for k in range(2)]
        rows.append([gpu, *(f"{share.mean():.0%}" for share in inside)])
    text += [COVERAGE, common.markdown(("accelerator", "TPOT", "TTFT"), rows), ""]
    rows = []
    for gpu, fitted, predicted in TRANSFERS:
        theta, _ = descend(
            Points(selected(points, gpu, fitted)), physics.PRIOR.logs, covariance=_COVARIANCE
        )
        errors = Points(selected(points, gpu, predicted)).errors_percent(theta)
        sizes = " -> ".join(
            " ".join(f"TP{degree}" for degree in some) for some in (fitted, predicted)
        )
        rows.append([f"{gpu} {sizes}", *_medians(errors)])
        common.say(f"{gpu} {sizes}")
    theta, _ = descend(
        Points(selected(points, "h100_sxm", (1, 2, 4, 8))),
        physics.PRIOR.logs,
        covariance=_COVARIANCE,
    )
    theta[_NAMES.index("kv")] = physics.PRIOR.logs[_NAMES.index("kv")]
    for gpu in ("h200_sxm", "b200_sxm"):
        errors = Points(selected(points, gpu, (1, 2, 4, 8))).errors_percent(theta)
        rows.append([f"h100_sxm -> {gpu}", *_medians(errors)])
    return [*text, TRANSFER, common.markdown(("accelerator", *_ERRORS), rows), ""]


def all_kinds(points: Sequence[Measured], catalog: Catalog) -> list[str]:
    """The section on what the catalog takes."""
    rows, values = [], []
    for name, kind in kinds(points).items():
        problem = Points([(point, range(len(point.users))) for point in kind])
        theta, _ = descend(problem, physics.PRIOR.logs, covariance=_COVARIANCE / _TIGHTER**2)
        errors = problem.errors_percent(theta)
        models = sorted({server_of(point.group, 1).architecture.name for point in kind})
        is_taken = _is_plausible(theta, errors)
        if is_taken:
            fitted = f"{len(errors[0])} points of {' and '.join(models)}"
            catalog.add(server_of(kind[0].group, 1), fitted, problem, theta)
        common.say(name)
        rows.append([name, ", ".join(models), "yes" if is_taken else "no", *_medians(errors)])
        values.append([name, *_values(theta)])
    return [
        CATALOG,
        common.markdown(("accelerator, type, kind", *_NAMES), values),
        "",
        common.markdown(("accelerator, type, kind", "models", "taken", *_ERRORS), rows),
    ]


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="the folder of the measurements")
    source.add_argument("--smoke", action="store_true", help="one simulated group of points")
    parser.add_argument("--write", action="store_true", help="write the catalog's efficiencies too")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("README.md"))
    options = parser.parse_args()
    catalog = Catalog()
    if options.smoke:
        text = all_kinds([Measured.of(simulated_group())] * _LEAST_POINTS, catalog)
        common.publish("\n".join(text), options.output)
        return
    points = [
        Measured.of(point)
        for point in read_points(options.data / "silicon_sample.csv")
        if point.server.engine == "vllm"
    ]
    of_model = [
        point
        for point in points
        if point.group.server.model == _MODEL and point.group.group["gemm_quant_mode"] == _DTYPE
    ]
    text = shared_numbers(options.data, catalog) + one_model(of_model) + all_kinds(points, catalog)
    common.publish("\n".join(text), options.output)
    if options.write:
        place = Path(physics.__file__).with_name("efficiencies.yaml")
        place.write_text(_CATALOG_COMMENT + to_yaml(catalog.entries), encoding="utf-8")


_CATALOG_COMMENT = """\
# Written by `make experiments NAME=physics_points ARGS="--data ... --write"`.
# Sources: runs of vLLM on H100 published by the authors of BLIS, and with a study of KV residency;
# mean latencies published with aiconfigurator (Apache-2.0), measured by InferenceMAX.
"""


if __name__ == "__main__":
    main()
