"""Mean latencies at other numbers of concurrent requests, from two measured ones.

Writes README.md. `--data` is a file of mean TTFT and TPOT at fixed concurrency
(`spillway.interop.recordings.read_points`). The measurements are not part of this repository.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments import common
from spillway import Simulation, instance, workload
from spillway.calibration.refinement import COEFFICIENTS, descend, latency_of, scaled_prior
from spillway.calibration.replay import group_of, plans_ahead
from spillway.data.recording import LatencyPoints, ServerFacts
from spillway.interop.recordings import read_points
from spillway.simulate import run_many

if TYPE_CHECKING:
    from collections.abc import Sequence

_NORM = 4.0
_REQUESTS_PER_USER = 10
_LENGTH_RATIO = 0.8
_MOST_USERS = 512

INTRODUCTION = """# Silicon points

Published mean latencies of vLLM at several numbers of concurrent requests. A server is fitted to
the lowest and the middle one, and predicts the others. Groups (model, GPU, engine version,
parallelism, lengths) are drawn by a seed from those with at least three numbers of up to 512
requests.

The protocol is that of the measurements: all users start at once and send {per_user} requests each;
lengths are uniform between {ratio:g} and 1 times the nominal ones. KV memory and batch limits are
not published: 1,024 sequences, 8,192 tokens and unlimited memory are assumed, so points at which
memory binds are missed. The norm is 4, not chosen. For mixtures of experts the step time has no
term for the experts that a batch reads, which grow in number up to all of them: beyond the middle
point it is too long.
"""


class Points:
    """Residuals of TPOT (weight 2) and TTFT (weight 1) at some of a group's points."""

    def __init__(self, group: LatencyPoints, chosen: Sequence[int]) -> None:
        self._users, self._ttft_s, self._itl_s = averaged(group)
        self._group = group
        self._chosen = list(chosen)

    def residuals(self, thetas: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One row of residuals per point."""
        found = self.predicted(thetas)
        rows = []
        for ttft_s, itl_s in found:
            tpot = 2 * np.log(itl_s / self._itl_s[self._chosen])
            rows.append(np.stack([tpot, np.log(ttft_s / self._ttft_s[self._chosen])], axis=1))
        return rows

    def predicted(self, thetas: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Mean TTFT and TPOT at the points, for each of some coefficients."""
        ahead = plans_ahead(self._group.server) is not False
        simulations = []
        for theta in thetas:
            server = group_of(self._group.server, latency_of(theta, _NORM), ahead=ahead).replace(
                max_num_seqs=1024, max_num_batched_tokens=8192, num_kv_blocks=10**9,
                data_parallel_size=1,
            )  # fmt: skip
            simulations += [self._simulation(int(self._users[i]), server) for i in self._chosen]
        summaries = [one[0].summary() for one in run_many(simulations)]
        values = np.array(
            [[one["mean_ttft_ms"], one["mean_tpot_ms"]] for one in summaries], dtype=float
        )
        shaped = values.reshape(len(thetas), len(self._chosen), 2) / 1e3
        return [(one[:, 0], one[:, 1]) for one in shaped]

    def _simulation(self, users: int, server: instance.InstanceGroup) -> Simulation:
        client = workload.Client(
            arrivals=workload.ClosedLoop(users=users),
            num_requests=_REQUESTS_PER_USER * users,
            input_tokens=lengths(self._group.input_tokens),
            output_tokens=lengths(self._group.output_tokens),
        )
        return Simulation(workload=workload.Synthetic(clients=[client]), instances=[server])


def lengths(nominal: int) -> workload.Uniform:
    """Random lengths of the measurements."""
    return workload.Uniform(min_tokens=round(_LENGTH_RATIO * nominal), max_tokens=nominal)


def averaged(group: LatencyPoints) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of users up to the limit, with the means of repeated points."""
    users = np.unique(group.concurrency[group.concurrency <= _MOST_USERS])
    means = [
        [float(values[group.concurrency == one].mean()) for one in users]
        for values in (group.ttft_s, group.itl_s)
    ]
    return users, np.array(means[0]), np.array(means[1])


def simulated_group() -> LatencyPoints:
    """Points of a server with the default coefficients."""
    users = np.array([2, 4, 8])
    unknown = LatencyPoints(
        server=ServerFacts(model="simulated", engine="vllm", engine_version="0.20.0"),
        group={},
        input_tokens=200,
        output_tokens=20,
        concurrency=users,
        ttft_s=np.ones(3),
        itl_s=np.ones(3),
    )
    latency = instance.Roofline()
    theta = np.log([getattr(latency, name) for name in COEFFICIENTS])
    ((ttft_s, itl_s),) = Points(unknown, range(3)).predicted([theta])
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
    eligible = [
        one
        for one in ([simulated_group()] if options.smoke else read_points(options.data))
        if one.server.engine == "vllm" and len(averaged(one)[0]) >= 3
    ]
    rng = np.random.default_rng(options.seed)
    drawn = rng.choice(len(eligible), min(options.groups, len(eligible)), replace=False)
    rows, errors, of_groups = [], [], []
    for which in sorted(drawn.tolist()):
        group = eligible[which]
        users, ttft_s, itl_s = averaged(group)
        middle = len(users) // 2
        fitted = Points(group, [0, middle])
        theta, _ = descend(fitted, scaled_prior(fitted))
        others = [i for i in range(len(users)) if i not in (0, middle)]
        ((ttft, itl),) = Points(group, others).predicted([theta])
        tpot_error = 100 * (itl / itl_s[others] - 1)
        ttft_error = 100 * (ttft / ttft_s[others] - 1)
        errors += list(zip(tpot_error, ttft_error, strict=True))
        of_groups.append([float(np.median(np.abs(one))) for one in (tpot_error, ttft_error)])
        server = group.server
        where = f"{server.gpu} TP{server.tensor_parallel_size}"
        name = f"{server.model} {where} {server.engine_version or 'version not stated'}"
        common.say(f"{name}: {np.round(tpot_error, 1)} {np.round(ttft_error, 1)}")
        rows.append([
            name, f"{group.input_tokens}/{group.output_tokens}",
            " ".join(str(users[i]) for i in (0, middle)),
            " ".join(str(users[i]) for i in others),
            " ".join(f"{one:+.1f}" for one in tpot_error),
            " ".join(f"{one:+.1f}" for one in ttft_error),
        ])  # fmt: skip
    tpot, ttft = np.abs(np.array(errors)).T
    medians = np.median(np.array(of_groups), axis=0)
    summary = (
        f"{len(rows)} groups of {len(eligible)} (seed {options.seed}), {len(errors)} predicted "
        f"points. Median over groups of their median error: TPOT {medians[0]:.1f}%, TTFT "
        f"{medians[1]:.1f}%. Median over points: TPOT {np.median(tpot):.1f}%, TTFT "
        f"{np.median(ttft):.1f}%; within 10%: TPOT {np.mean(tpot < 10):.0%}, TTFT "
        f"{np.mean(ttft < 10):.0%} of the points.\n"
    )
    text = [
        INTRODUCTION.format(per_user=_REQUESTS_PER_USER, ratio=_LENGTH_RATIO),
        summary,
        common.markdown(
            ("server", "tokens", "fitted at", "predicted at", "TPOT error in %", "TTFT error in %"),
            rows,
        ),
    ]
    common.publish("\n".join(text), options.output)


if __name__ == "__main__":
    main()
