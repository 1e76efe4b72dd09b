"""Fits the engines of vllm_on_eks.l4() to published measurements, and shows the errors.

    python tools/fit_l4.py

Two NVIDIA L4 serve Qwen2.5-7B in BF16 with vLLM 0.19.1 (https://nicolas-richard.github.io, posts of
2026-04-28, 05-02 and 05-04). Only aggregates are published, so the fit has two parts.

Coefficients of the step time, from throughputs. An engine that always holds n requests gives each
of them a token per step and computes a prompt whenever one replaces another. With N output tokens
and prompts of P tokens, of which U are not cached, it spends per request

    1/X = N·beta0/n + N·(beta_decode + beta_context·(P + N/2)) + beta_prefill·U

That is linear in the coefficients, which cannot be negative. beta_context is not fitted but is the
time to read a token's KV. The output length of the capacity sweep is unknown; it is assumed to
be the same in all its rows and fitted with the rest.

Blocks of memory, from times to first token. These are taken as the maximum over time of a
minute's p99 as the histogram of the gateway shows it: most are right below an edge (4.9, 29.9,
44, 59, 88), as if all requests of the minute were in that bucket. Each number of blocks is
simulated and judged by the logarithms of the ratios.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import nnls

from spillway import Simulation, metrics, presets, simulate, workload
from spillway.gateway import Band, FixedLimit, Gateway, Queue
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from spillway import Result
    from spillway.instance import InstanceGroup

WORKERS = 2
PROMPT = 512
BETA_CONTEXT_US = 57_344 / 300e9 * 1e6  # 28 layers, 4 KV heads of 128, 2 bytes; 300 GB/s


class Capacity(NamedTuple):
    """A throughput of the whole fleet with a constant number of requests inside."""

    name: str
    inside: int
    requests_per_s: float
    uncached: int = PROMPT
    outputs: int | None = None  # tokens; None: unknown


# The sweep over budgets reports output tokens/s. In the others 384 tokens of a prompt were one of
# eight prefixes, unless they were random.
CAPACITIES = (
    *(
        Capacity("budget", budget, tokens_per_s / 128, outputs=128)
        for budget, tokens_per_s in ((8, 124), (16, 235), (32, 390), (64, 565), (128, 750))
    ),
    Capacity("capacity sweep", 4, 0.74, uncached=128),
    Capacity("capacity sweep", 16, 2.55, uncached=128),
    Capacity("capacity sweep", 64, 7.66, uncached=128),
    Capacity("capacity sweep", 128, 11.06, uncached=128),
    Capacity("sustained, shared prefixes", 128, 13.0, uncached=128),
    Capacity("sustained, random", 128, 6.7),
)


def rounded_fit() -> tuple[dict[str, float], int, float]:
    """Coefficients in us to three digits, the unknown length and the fit's relative rms error."""
    best: tuple[float, NDArray[np.float64], int] | None = None
    for outputs in range(32, 257):
        rows = []
        rest = []
        for capacity in CAPACITIES:
            n, rate = capacity.inside / WORKERS, capacity.requests_per_s / WORKERS
            length = capacity.outputs or outputs
            context_us = length * BETA_CONTEXT_US * (PROMPT + length / 2)
            # In parts of the whole, so that all throughputs count alike.
            rows.append(np.array([length / n, capacity.uncached, length]) * rate / 1e6)
            rest.append(1 - context_us * rate / 1e6)
        found, error = nnls(np.array(rows), np.array(rest))
        if best is None or error < best[0]:
            best = (error, found, outputs)
    assert best is not None
    error, found, outputs = best
    names = ("beta0_us", "beta_prefill_us", "beta_decode_us")
    values = {name: _rounded(value) for name, value in zip(names, found, strict=True)}
    values["beta_context_us"] = _rounded(BETA_CONTEXT_US)
    return values, outputs, error / math.sqrt(len(CAPACITIES))


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def saturated(one: Capacity, outputs: int, fleet: InstanceGroup) -> float:
    """Requests/s of the simulated fleet with `one.inside` requests inside."""
    clients = [
        workload.Client(
            name=f"prefix {i}",
            requests_per_s=10,
            duration_s=200,
            input_tokens=workload.Fixed(tokens=one.uncached),
            output_tokens=workload.Fixed(tokens=one.outputs or outputs),
            prefix_group=f"prefix {i}" if one.uncached < PROMPT else "",
            prefix_tokens=PROMPT - one.uncached,
        )
        for i in range(8)
    ]
    simulation = Simulation(
        workload=workload.Synthetic(clients=clients),
        gateway=Gateway(limit=FixedLimit(max_in_flight=one.inside), bands=Band(queue=Queue())),
        instances=fleet,
        metrics=metrics.Metrics(timeline_step_s=1),
        horizon_s=200,
    )
    timeline = simulate(simulation).timeline
    done = timeline["completed"].sum(axis=1)
    start = np.searchsorted(timeline["time_s"], 50)
    return float((done[-1] - done[start]) / (timeline["time_s"][-1] - timeline["time_s"][start]))


# --- times to first token -------------------------------------------------------------------------

# s; upper edges of the gateway's histogram.
EDGES = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30)
EDGES += (45, 60, 90, 120, 180, 240, 300, 450, 600)


class Swept(NamedTuple):
    """Published values of a static budget, or of one from which AISD started; None: unknown."""

    tokens_per_s: float
    kept_s: tuple[float, float] | None  # p99 time to first token of A and B
    started_s: tuple[float, float]


# By cap per worker; the budget is that of two workers.
SWEEP = {
    4: Swept(124, None, (19.5, 10)),
    8: Swept(235, None, (9.9, 7.4)),
    16: Swept(390, (6, 3), (7.4, 4.9)),
    32: Swept(565, (4, 2.5), (4.9, 4.5)),
    64: Swept(750, (4, 2.5), (4.9, 4.3)),
    128: Swept(700, (44, 30), (29.9, 29.7)),
    256: Swept(700, (59, 88), (29.9, 29.7)),
}


def swept(cap: int, *, controlled: bool, fleet: InstanceGroup | None = None) -> Simulation:
    """A static cap per worker, or AISD from there, under the load of the published sweep.

    Runs that started below the floor of 16 had a lower floor: they stayed where they started.
    """
    loaded = presets.get("work-conservation-priority").apply(
        Simulation(
            instances=fleet or vllm_on_eks.l4().instances,
            metrics=metrics.Metrics(timeline_step_s=1),
        )
    )
    simulation = vllm_on_eks.post4().apply(loaded)
    simulation = simulation.with_({"gateway.limit[0].cap_per_worker": cap})
    if controlled:
        return simulation.with_({"gateway.guard.floor": min(cap, 16)})
    return simulation.with_({"gateway.controller": "static"})


def bucketed_p99(values: NDArray[np.float64]) -> float:
    """The p99 that a histogram shows: linear within its bucket."""
    counts = np.histogram(np.minimum(values, EDGES[-1]), (0, *EDGES))[0]
    return float(np.interp(0.99 * len(values), (0, *counts.cumsum()), (0, *EDGES)))


def shown_p99_s(result: Result, tenant: str, window_s: float = 60) -> float:
    """The maximum p99 time to first token on a dashboard with a window of a minute."""
    requests = result.requests
    mine = (requests["tenant"] == tenant) & np.isfinite(requests["ttft_s"])
    ttft_s = requests["ttft_s"][mine]
    first_s = requests["arrival_s"][mine] + ttft_s
    windows = [
        ttft_s[(end_s - window_s < first_s) & (first_s <= end_s)]
        for end_s in np.arange(window_s / 2, first_s.max() + window_s, 5)
    ]
    return max(bucketed_p99(window) for window in windows if len(window) >= 20)


def p99s_s(
    cap: int, *, controlled: bool, fleet: InstanceGroup | None = None, seeds: Sequence[int]
) -> tuple[float, float]:
    """Medians over the seeds of the dashboard's values for A and B."""
    results = list(simulate(swept(cap, controlled=controlled, fleet=fleet), seeds=seeds))
    a, b = (
        float(np.median([shown_p99_s(result, tenant) for result in results])) for tenant in "AB"
    )
    return a, b


def misfit(fleet: InstanceGroup, seeds: Sequence[int] = range(5)) -> float:
    """Root mean square of the log ratios of simulated to published times, from 64 per worker on.

    Smaller caps leave the memory half empty.
    """
    logs = []
    for cap in (64, 128, 256):
        for controlled in (False, True):
            published = SWEEP[cap].started_s if controlled else SWEEP[cap].kept_s
            assert published is not None
            ours = p99s_s(cap, controlled=controlled, fleet=fleet, seeds=seeds)
            logs += [math.log(a / b) for a, b in zip(ours, published, strict=True)]
    return math.sqrt(np.mean(np.square(logs)))


def _text(pair: tuple[float, float] | None) -> str:
    return f"{pair[0]:6.1f} {pair[1]:5.1f}" if pair else f"{'-':>12}"


def main() -> None:
    """Prints the fit and its errors against the published values."""
    values, outputs, error = rounded_fit()
    print(f"{values}\n{outputs} output tokens in the capacity sweep, rms error {error:.1%}\n")
    fleet = vllm_on_eks.l4().instances.with_(
        {f"latency.{name}": value for name, value in values.items()}
    )
    print(f"{'requests/s':26} inside  published simulated")
    for capacity in CAPACITIES:
        ours = saturated(capacity, outputs, fleet)
        print(
            f"{capacity.name:26} {capacity.inside:6} {capacity.requests_per_s:10.2f} {ours:9.2f} "
            f"{ours / capacity.requests_per_s - 1:+6.1%}"
        )
    print("\nblocks misfit")
    for blocks in (*range(1600, 3600, 200), 4000, 4600, 5200):
        print(f"{blocks:6} {misfit(fleet.replace(num_kv_blocks=blocks)):6.2f}")
    print("\np99 time to first token of A and B, s")
    print(f"{'cap':>4}  {'kept':>12}  {'ours':>12}  {'AISD':>12}  {'ours':>12}")
    for cap, row in SWEEP.items():
        kept, started = (
            p99s_s(cap, controlled=controlled, fleet=fleet, seeds=range(20))
            for controlled in (False, True)
        )
        print("  ".join((f"{cap:4}", *map(_text, (row.kept_s, kept, row.started_s, started)))))


if __name__ == "__main__":
    main()
