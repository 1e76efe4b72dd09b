"""A recording beside simulated runs of its requests: differences, and how well they are known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spillway.validation.errors_of_runs import BLOCKS, LEAST_REQUESTS, Spread, blocks_of, spread_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.data.arrays import Booleans, Floats
    from spillway.data.recording import Recording
    from spillway.data.result_data import ResultData
    from spillway.validation.replayed import Production

DEVIATION = 0.15
"""A coefficient is identified if a recording shows that it is off by this much."""

MISSED = 0.05
"""Probability at which a deviation may be missed."""

_STRATA = 6
_RESOLUTION = 0.001  # relative; latencies of a model without noise are not compared to less


@dataclass(frozen=True, eq=False)
class Run:
    """The recorded requests in a simulated run."""

    served: Booleans
    ttft_s: Floats
    tpot_s: Floats
    done_s: Floats
    hit_rate: float


def run_of(result: ResultData, production: Production) -> Run:
    """The recorded requests in the result of a replay."""
    columns = result.requests
    served = np.asarray(columns["outcome"]) == "completed"
    arrival_s = np.asarray(columns["arrival_s"], dtype=float) - production.begin_s
    e2e_s = np.where(served, columns["e2e_s"], np.nan)
    ttft_s = np.where(served, columns["ttft_s"], np.nan)
    gaps = np.asarray(columns["output_tokens"], dtype=float) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot_s = np.where(gaps > 0, (e2e_s - ttft_s) / gaps, np.nan)
    rate = result.summary()["cache_hit_rate"]
    return Run(
        served,
        ttft_s,
        tpot_s,
        arrival_s + e2e_s,
        math.nan if rate is None else float(rate),
    )


@dataclass(frozen=True)
class Difference:
    """A figure of both, with the difference of simulated and recorded one and its spread."""

    recorded: float
    simulated: float
    difference: float
    spread: Spread


class Deviation(NamedTuple):
    """The logarithm of a deviation and its spread; the wider spread of both directions.

    `effect`: the largest relative effect of `DEVIATION` on latencies; `explains`: the part of the
    differences, in weighted squares, that vanishes with the deviation.
    """

    size: float
    spread: Spread
    widest: Spread
    effect: float
    explains: float


class Comparison:
    """A recording and the simulated runs of its requests."""

    def __init__(
        self,
        production: Production,
        runs: Sequence[Run],
        rows: Booleans,
        begin_s: float,
    ) -> None:
        run = production.recording
        self._production = production
        self._runs = runs
        self._rows = rows
        self._block = blocks_of(rows)
        self._window = (begin_s, float(run.send_s[-1]))
        self._prompts = run.input_tokens
        self._load = _load(run)
        self._recorded = Run(
            ~run.failed,
            np.where(run.failed, np.nan, run.ttft_s),
            np.where(run.failed, np.nan, run.itl_s),
            run.send_s + np.where(run.failed, np.nan, run.e2e_s),
            math.nan,
        )

    def figures(self) -> dict[str, Difference | str]:
        """The figures, or why there is none."""
        found: dict[str, Difference | str] = {}
        for metric in ("ttft", "tpot"):
            for percent in (50, 90):
                name = f"p{percent}_{metric}_ms"
                if not np.isfinite(getattr(self._recorded, f"{metric}_s")[self._rows]).any():
                    found[name] = f"the recording does not state {metric.upper()}"
                    continue
                figure = partial(_percentile, metric=metric, percent=percent)
                found[name] = self._compared(figure, is_share=False)
        found["cache_hit_rate"] = self._hit_rate()
        found["shed"] = self._compared(
            lambda run, rows: 1 - float(run.served[rows].mean()), is_share=True
        )
        if np.isfinite(self._recorded.done_s).any():
            found["requests_per_min"] = self._compared(self._per_min, is_share=False)
        else:
            found["requests_per_min"] = "the recording does not state when requests were complete"
        return found

    def _per_min(self, run: Run, rows: Booleans) -> float:
        """Completed requests per minute while requests are sent.

        Of a closed loop, whose send times follow from the service, from the first decile of
        completions to the last.
        """
        if self._production.is_closed_loop:
            done_s = run.done_s[rows]
            first, last = np.percentile(done_s[np.isfinite(done_s)], (10, 90))
            count = int(((done_s >= first) & (done_s <= last)).sum())
            return float(60 * count / (last - first)) if last > first else math.nan
        first, last = self._window
        done_s = run.done_s[rows]
        count = int(((done_s >= first) & (done_s <= last)).sum())
        return 60 * count / (last - first) if last > first else math.nan

    def _compared(self, figure: Callable[[Run, Booleans], float], *, is_share: bool) -> Difference:
        def difference(rows: Booleans) -> Floats:
            """The difference from each of the runs."""
            values = np.array([figure(run, rows) for run in self._runs])
            recorded = figure(self._recorded, rows)
            if is_share:
                return values - recorded
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.asarray(np.log(values) - np.log(recorded))

        whole = difference(self._rows)
        left = np.array([
            difference(self._rows & (self._block != block)).mean() for block in range(BLOCKS)
        ])  # fmt: skip
        return Difference(
            figure(self._recorded, self._rows),
            float(np.mean([figure(run, self._rows) for run in self._runs])),
            float(whole.mean()),
            spread_of(float(whole.mean()), left, whole),
        )

    def _hit_rate(self) -> Difference | str:
        """The cached share of all prompts, also those of the warm-up."""
        if self._production.no_hit_rate:
            return self._production.no_hit_rate
        rates = np.array([run.hit_rate for run in self._runs])
        if not np.isfinite(rates).all():
            return "no prompt of the replay could be cached"
        run = self._production.recording
        if run.cached_tokens is None:
            recorded = self._production.hit_rate or 0.0
            left = np.full(BLOCKS, rates.mean() - recorded)
        else:
            block = blocks_of(~run.failed)
            cached, prompt = run.cached_tokens, run.input_tokens

            def rate(rows: Booleans) -> float:
                return float(cached[rows].sum() / max(1, prompt[rows].sum()))

            recorded = rate(block >= 0)
            left = np.array([
                rates.mean() - rate((block >= 0) & (block != each)) for each in range(BLOCKS)
            ])  # fmt: skip
        whole = rates - recorded
        spread = spread_of(float(whole.mean()), left, whole)
        return Difference(recorded, float(rates.mean()), float(whole.mean()), spread)

    def deviation(self, changed: Sequence[Sequence[Run]]) -> Deviation:
        """The deviation of a coefficient that explains the latencies best, if it alone were off.

        `changed`: runs in which it is smaller, and larger, by `DEVIATION`. Latencies are compared
        in strata of requests: TTFT by the length of the prompt, time per output token by the load.
        Each has a difference of mean logarithms, which is in proportion to the coefficient's effect
        there. Strata follow from the requests alone: sorted by latencies of a run, those that were
        large by chance would be together, and smaller in any other run.
        """
        parts = [self._strata(metric, changed) for metric in ("ttft", "tpot")]
        whole, left, by_seed, *effects = (
            np.concatenate([part[k] for part in parts], axis=-1) for k in range(5)
        )
        sides = []
        for effect in effects:
            if not len(whole) or not np.abs(effect).max() > 0:
                unknown = Spread(math.inf, 1.0)
                return Deviation(math.nan, unknown, unknown, 0.0, 0.0)
            slope = effect / math.log1p(DEVIATION)
            noise = [
                spread_of(float(whole[j]), left[:, j], by_seed[:, j]).error
                for j in range(len(whole))
            ]
            weights = 1 / (np.nan_to_num(noise, nan=1e3) ** 2 + _RESOLUTION**2)
            mix = weights * slope / (weights * slope**2).sum()
            spread = spread_of(float(whole @ mix), left @ mix, by_seed @ mix)
            least = _RESOLUTION * float(np.abs(mix).sum())
            size = float(whole @ mix)
            total = float((weights * whole**2).sum())
            explains = size**2 * float((weights * slope**2).sum()) / total if total else 0.0
            sides.append((size, spread._replace(error=math.hypot(spread.error, least)), explains))
        # Where the configured value is too large, the right one is below it.
        below, above = sides
        size, spread, explains = below if below[0] + above[0] > 0 else above
        widest = max((below[1], above[1]), key=lambda of: of.reach(MISSED))
        largest = max(float(np.abs(effect).max()) for effect in effects)
        return Deviation(size, spread, widest, math.expm1(largest), explains)

    def _strata(self, metric: str, changed: Sequence[Sequence[Run]]) -> tuple[Floats, ...]:
        """Differences of the strata: of all rows, without each block, of each seed.

        Then the effects of a coefficient that is smaller and larger by `DEVIATION`, per stratum, as
        those of one that grows.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            recorded = np.log(getattr(self._recorded, f"{metric}_s"))
            base = np.log([getattr(run, f"{metric}_s") for run in self._runs])
            moved = [np.log([getattr(run, f"{metric}_s") for run in runs]) for runs in changed]
        known = self._rows & np.isfinite(recorded)
        for values in (base, *moved):
            known &= np.isfinite(values).all(axis=0)
        places = np.flatnonzero(known)
        if len(places) < LEAST_REQUESTS:
            nothing = np.zeros(0)
            seeds = np.zeros((len(self._runs), 0))
            return nothing, np.zeros((BLOCKS, 0)), seeds, nothing, nothing
        mean = base.mean(axis=0)
        key = self._prompts if metric == "ttft" else self._load
        strata = np.array_split(places[np.argsort(key[places], kind="stable")], _STRATA)
        whole, left, by_seed = [], [], []
        for stratum in strata:
            values = mean[stratum] - recorded[stratum]
            sums = np.bincount(self._block[stratum], weights=values, minlength=BLOCKS)
            counts = np.bincount(self._block[stratum], minlength=BLOCKS)
            whole.append(values.mean())
            left.append((sums.sum() - sums) / np.maximum(1, counts.sum() - counts))
            by_seed.append((base[:, stratum] - recorded[stratum]).mean(axis=1))
        below, above = (
            np.array([values[:, stratum].mean() - mean[stratum].mean() for stratum in strata])
            for values in moved
        )
        return np.array(whole), np.array(left).T, np.array(by_seed).T, -below, above


def _load(run: Recording) -> Floats:
    """The tokens of requests that are sent within a usual E2E latency before or after each."""
    known = run.e2e_s[np.isfinite(run.e2e_s) & ~run.failed]
    span_s = float(np.median(known)) if len(known) else 0.0
    tokens = np.append(0, np.cumsum(run.input_tokens + run.output_tokens))
    first = np.searchsorted(run.send_s, run.send_s - span_s, side="left")
    last = np.searchsorted(run.send_s, run.send_s + span_s, side="right")
    return np.asarray(tokens[last] - tokens[first], dtype=float)


def _percentile(run: Run, rows: Booleans, *, metric: str, percent: int) -> float:
    values = getattr(run, f"{metric}_s")[rows]
    values = values[np.isfinite(values)]
    return float(1e3 * np.percentile(values, percent)) if len(values) else math.nan
