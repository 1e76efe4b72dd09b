"""Mean latencies at other numbers of concurrent requests, from two measured ones.

Writes README.md. `--data` is a file of mean TTFT and TPOT at fixed concurrency
(`spillway.files.recordings.read_points`). The measurements are not part of this repository.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np

from experiments import common
from experiments.common.points import Measured, Points
from spillway import ConfigError
from spillway.calibration.refinement import descend
from spillway.data.recording import LatencyPoints, ServerFacts
from spillway.files.recordings import read_points
from spillway.servers import physics

INTRODUCTION = """# Silicon points

Published mean latencies of vLLM at several numbers of concurrent requests. A server is fitted to
the lowest and the middle one, and predicts the others. Groups (model, GPU, engine version,
parallelism, lengths) are drawn by a seed from those with at least three numbers of up to 512
requests.

Fitted are the eight efficiencies of the catalog's physics (`servers.physics`), from its
prior for what was not measured, so that points at which memory binds, or a mixture of experts reads
more of its experts, follow from the model's architecture. Memory limits, batch limits and lengths
are those of the scripts that InferenceMAX publishes for these measurements
(`experiments/common/points.py`). *Prior*: the same without any fit.

The groups and the split have not changed since the first version of this page. The method has,
after its errors were known: that version fitted seven free coefficients of a step time without
experts and without memory limits, and was off by 8.6% in TPOT and 13.0% in TTFT.
"""


def simulated_group() -> LatencyPoints:
    """Points of a server of the catalog as it is."""
    users = np.array([2, 4, 8])
    unknown = LatencyPoints(
        server=ServerFacts(
            model="llama-3.1-8b", gpu="h100", engine="vllm", engine_version="0.20.0"
        ),
        group={},
        input_tokens=200,
        output_tokens=20,
        concurrency=users,
        ttft_s=np.ones(3),
        itl_s=np.ones(3),
    )
    points = Points([(Measured.of(unknown), range(3))])
    ((ttft_s, itl_s),) = points.predicted([physics.PRIOR.logs])
    return dataclasses.replace(unknown, ttft_s=ttft_s, itl_s=itl_s)


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="a CSV file of points")
    source.add_argument("--smoke", action="store_true", help="one simulated group")
    parser.add_argument("--groups", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("README.md"))
    options = parser.parse_args()
    found = [simulated_group()] if options.smoke else read_points(options.data)
    eligible = [
        point for point in map(Measured.of, found)
        if point.group.server.engine == "vllm" and len(point.users) >= 3
    ]  # fmt: skip
    rng = np.random.default_rng(options.seed)
    drawn = rng.choice(len(eligible), min(options.groups, len(eligible)), replace=False)
    covariance = np.diag(np.square(dataclasses.astuple(physics.WIDTHS)))
    rows, left_out = [], []
    errors: list[np.ndarray] = []  # of a group: TPOT and TTFT, then those of the prior
    for which in sorted(drawn.tolist()):
        measured = eligible[which]
        middle = len(measured.users) // 2
        others = [i for i in range(len(measured.users)) if i not in (0, middle)]
        try:
            fitted, scored = Points([(measured, [0, middle])]), Points([(measured, others)])
        except ConfigError as error:
            left_out.append(f"- {measured.name}: {error}")
            continue
        theta, _ = descend(fitted, physics.PRIOR.logs, covariance=covariance)
        errors.append(
            np.array([*scored.errors_percent(theta), *scored.errors_percent(physics.PRIOR.logs)])
        )
        tpot, ttft = errors[-1][:2]
        common.say(f"{measured.name}: {np.round(tpot, 1)} {np.round(ttft, 1)}")
        rows.append([
            measured.name, f"{measured.group.input_tokens}/{measured.group.output_tokens}",
            " ".join(str(measured.users[i]) for i in (0, middle)),
            " ".join(str(measured.users[i]) for i in others),
            " ".join(f"{error:+.1f}" for error in tpot),
            " ".join(f"{error:+.1f}" for error in ttft),
        ])  # fmt: skip
    of_groups = np.median([np.median(np.abs(group), axis=1) for group in errors], axis=0)
    points = np.abs(np.concatenate(errors, axis=1))
    of_points, near = np.median(points, axis=1), (points < 10).mean(axis=1)
    table = [
        [name, *(f"{medians[i]:.1f}" for medians in (of_groups, of_points)), f"{near[i]:.0%}"]
        for i, name in enumerate(("TPOT", "TTFT", "TPOT, prior", "TTFT, prior"))
    ]
    summary = common.markdown(
        ("absolute error in %", "median over groups", "median over points", "within 10%"), table
    )
    text = [
        INTRODUCTION,
        (
            f"{len(rows)} groups of {len(eligible)} (seed {options.seed}), {points.shape[1]} "
            "predicted points. The error of a group is the median over its points.\n"
        ),
        summary,
        "",
        common.markdown(
            ("server", "tokens", "fitted at", "predicted at", "TPOT error in %", "TTFT error in %"),
            rows,
        ),
    ]
    if left_out:
        text += ["Left out:\n", "\n".join(left_out)]
    common.publish("\n".join(text), options.output)


if __name__ == "__main__":
    main()
