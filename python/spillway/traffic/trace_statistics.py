"""Statistics of traffic: what a trace shows, and what a generator must reproduce."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway._core.sim import UsageError
from spillway.config.classes import config_error
from spillway.data.requests import ATTRIBUTE
from spillway.traffic.replication import applied_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway._core.workload import Trace
    from spillway.data.arrays import Booleans, Floats, Ints


_SHARES = np.array([0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99])
_LAGS = 20
_INTERVALS = 20
_BAD = 0.05
_FEWEST = 100
_FEWEST_RESAMPLES = 199


@dataclass(frozen=True)
class Requests:
    """The requests of a trace as arrays, in order of arrival.

    `spread_s` is the resolution of the timestamps if many requests share one: they are then spread
    at random between it and the next. `reused` is the share of all prompt tokens that an earlier
    request of the trace has sent. `failed` calls have the output lengths of others, of which
    `total_output_tokens` holds none.
    """

    arrival_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    client: Ints
    names: list[tuple[str, str]]
    spread_s: float | None
    reused: float
    failed: int = 0
    total_output_tokens: int = 0
    not_generated: tuple[str, ...] = ()  # columns of the requests that generators do not have


def requests_of(trace: Trace) -> Requests:
    """The requests of a trace after its transforms, under seed 0.

    Raises UsageError if they are too few to fit a generator to: fewer than 100, or all at one
    instant.
    """
    requests = _all_requests_of(trace)
    arrival_s = requests.arrival_s
    if len(arrival_s) < _FEWEST:
        raise UsageError(
            f"the trace holds {len(arrival_s)} requests; a fit takes at least {_FEWEST}"
        )
    if arrival_s[0] == arrival_s[-1]:
        raise UsageError("all requests of the trace arrive at one instant; a fit takes a rate")
    return requests


def _all_requests_of(trace: Trace) -> Requests:
    columns = applied_columns(trace)
    arrival_s = columns["arrival_ns"] / 1e9
    if not len(arrival_s):
        raise UsageError("the trace holds no requests")
    arrival_s, spread_s = _spread(arrival_s)
    classes = len(columns["slo_classes"])
    codes = columns["tenant"].astype(np.int64) * classes + columns["slo_class"]
    known, client = np.unique(codes, return_inverse=True)
    names = [
        (columns["tenants"][code // classes], columns["slo_classes"][code % classes])
        for code in known
    ]
    output = columns["output_tokens"].astype(np.int64)
    has_failed = (output == 0) & (trace.empty_outputs == "failed")
    return Requests(
        arrival_s=arrival_s,
        input_tokens=columns["input_tokens"].astype(np.int64),
        output_tokens=_with_lengths(output, has_failed, client),
        client=client,
        names=names,
        spread_s=spread_s,
        reused=_reused(columns),
        failed=int(has_failed.sum()),
        total_output_tokens=int(output.sum()),
        not_generated=(
            *(name for name in ("model", "max_tokens") if name in columns),
            *(f"{ATTRIBUTE}{name}" for name, _, _ in columns.get("attributes", ())),
        ),
    )


def _with_lengths(output: Ints, has_failed: Booleans, client: Ints) -> Ints:
    """Output lengths in which failed calls have those of the others of their client.

    If all calls of a client failed, they have those of the other clients.
    """
    if has_failed.all():
        raise UsageError("all requests of the trace failed: it records no output")
    found = output.copy()
    rng = np.random.default_rng(0)
    for code in np.unique(client[has_failed]):
        rows = np.flatnonzero(has_failed & (client == code))
        others = output[~has_failed & (client == code)]
        shares = (rng.permutation(len(rows)) + 0.5) / len(rows)
        of = others if len(others) else output[~has_failed]
        found[rows] = np.quantile(of, shares, method="nearest")
    return found


def column_note(names: Sequence[str]) -> str:
    """Says which columns of a trace its generator does not have."""
    return (
        f"generated requests have no {', '.join(names)}: clients state one model and one "
        "max_tokens each; replay or resample the trace where these matter"
    )


def failure_note(count: int, requests: int) -> str:
    """Says how calls that failed count."""
    return (
        f"{count:,} of {requests:,} requests have no output: calls that failed. They count as "
        "arrivals, and the lengths of outputs are those of the others"
    )


def _spread(arrival_s: Floats) -> tuple[Floats, float | None]:
    """Arrivals at distinct times, and the typical distance of the instants if many coincide."""
    instants, counts = np.unique(arrival_s, return_counts=True)
    if len(instants) in (1, len(arrival_s)):
        return arrival_s, None
    distance = float(np.median(np.diff(instants)))
    # The last instant is as long as a typical one; no other reaches beyond the next.
    room = np.minimum(np.append(np.diff(instants), distance), distance)
    # Poisson arrivals lie so within an interval, given their number.
    rng = np.random.Generator(np.random.Philox(0))
    spread = np.sort(
        arrival_s + np.repeat(np.where(counts > 1, room, 0.0), counts) * rng.random(len(arrival_s))
    )
    return spread, distance if len(instants) < 0.9 * len(arrival_s) else None


def _reused(columns: dict[str, Ints]) -> float:
    content, tokens = columns["segment_content"], columns["segment_tokens"].astype(np.int64)
    if len(content) == 0:
        return 0.0
    first = np.unique(content, return_index=True)[1]
    again = tokens.sum() - tokens[first].sum()
    return float(again / columns["input_tokens"].sum(dtype=np.int64))


@dataclass(frozen=True)
class Statistics:
    """The statistics that are compared, with grids that follow from one trace."""

    length_s: float
    bin_s: float
    windows_s: Floats

    @classmethod
    def of(cls, requests: Requests, length_s: float) -> Statistics:
        """Bins of about ten requests; windows from two mean gaps to a twentieth of the trace."""
        bins = min(max(len(requests.arrival_s) // 10, 3 * _LAGS), 20_000)
        gap_s = length_s / len(requests.arrival_s)
        longest = max(length_s / 20, 4 * gap_s)
        return cls(length_s, length_s / bins, np.geomspace(2 * gap_s, longest, 12))

    def grids(self) -> dict[str, Floats]:
        """The places of the values of each statistic."""
        return {
            "gaps_s": _SHARES,
            "requests_per_s": (np.arange(_INTERVALS) + 0.5) * self.length_s / _INTERVALS,
            "autocorrelation": np.arange(1, _LAGS + 1) * self.bin_s,
            "dispersion": self.windows_s,
            "input_tokens": _SHARES,
            "output_tokens": _SHARES,
            "length_correlation": np.zeros(1),
            "input_serial": np.arange(1, 6).astype(float),
            "output_serial": np.arange(1, 6).astype(float),
        }

    def values(self, times: Floats, input_tokens: Ints, output_tokens: Ints) -> dict[str, Floats]:
        """The statistics of requests at these times with these lengths, by name."""
        span = (0.0, self.length_s)

        def counts(intervals: int) -> Floats:
            return np.histogram(times, intervals, span)[0].astype(float)

        def dispersion(window_s: float) -> float:
            found = counts(max(2, int(self.length_s / window_s)))
            return float(found.var(ddof=1) / max(found.mean(), 1e-12))

        ranks = [_ranks(tokens) for tokens in (input_tokens, output_tokens)]
        shortest_s = 1e-3 * self.length_s / len(times)
        bins = max(round(self.length_s / self.bin_s), 2)
        return {
            # Shorter gaps are one burst: how short they are is a matter of the clock.
            "gaps_s": np.maximum(np.quantile(np.diff(times), _SHARES), shortest_s),
            "requests_per_s": counts(_INTERVALS) * _INTERVALS / self.length_s,
            "autocorrelation": _autocorrelation(counts(bins), _LAGS),
            "dispersion": np.array([dispersion(window_s) for window_s in self.windows_s]),
            "input_tokens": np.quantile(input_tokens, _SHARES),
            "output_tokens": np.quantile(output_tokens, _SHARES),
            "length_correlation": np.array([_correlation(*ranks)]),
            "input_serial": _autocorrelation(ranks[0], 5),
            "output_serial": _autocorrelation(ranks[1], 5),
        }


TITLES = {
    "gaps_s": "gaps between requests",
    "requests_per_s": "rate over time",
    "autocorrelation": "autocorrelation of counts",
    "dispersion": "index of dispersion",
    "input_tokens": "input lengths",
    "output_tokens": "output lengths",
    "length_correlation": "rank correlation of input and output",
    "input_serial": "rank correlation of successive input lengths",
    "output_serial": "rank correlation of successive output lengths",
}
"""The statistics in words, by name."""


def _ranks(values: Ints) -> Floats:
    """Ranks, the mean rank for ties."""
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts - 1) / 2)[codes]
    return ranks


def _correlation(a: Floats, b: Floats) -> float:
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else 0.0


def rank_correlation(a: Ints, b: Ints) -> float:
    """Spearman's coefficient."""
    return min(max(_correlation(_ranks(a), _ranks(b)), -1.0), 1.0)


def _autocorrelation(series: Floats, lags: int) -> Floats:
    centered = series - series.mean()
    variance = float(centered @ centered)
    if variance == 0:
        return np.zeros(lags)
    return np.array([centered[:-k] @ centered[k:] / variance for k in range(1, lags + 1)])


@dataclass(frozen=True)
class Check:
    """A statistic of the trace and of many traces from the generator.

    Attributes
    ----------
    name : str
        `gaps_s`, `requests_per_s`, `autocorrelation` (of counts), `dispersion` (variance over mean
        of counts), `input_tokens`, `output_tokens`, `length_correlation` (rank correlation of input
        and output), `input_serial`, `output_serial` (rank correlation of a length with the one some
        requests later).
    grid : array
        Where it is measured: probabilities of the quantiles of gaps and lengths; times in s of the
        rate; lags in s; windows in s; distances in requests.
    trace, low, middle, high : array
        Its values for the trace; the 2.5, 50 and 97.5 % quantiles over the generated traces.
    p_value : float
        The share of traces, generated ones and this one, whose largest deviation from the
        generator's median, in units of its band, is at least that of this trace.
    """

    name: str
    grid: Floats
    trace: Floats
    low: Floats
    middle: Floats
    high: Floats
    p_value: float

    @property
    def is_bad(self) -> bool:
        """Whether hardly any generated trace deviates as much as the trace.

        p_value <= 0.05 / 9: by chance, at most one in 20 fits has a bad check among its nine.
        """
        return self.p_value <= _BAD / len(TITLES)

    @property
    def deviations(self) -> Floats:
        """Distances from the median in units of the band on that side: 1 lies on its edge."""
        return _deviations(self.trace, self.low, self.middle, self.high)

    @property
    def outside(self) -> Booleans:
        """Where the trace lies outside of [low, high]; about 5 % do by chance."""
        return (self.trace < self.low) | (self.trace > self.high)

    def worst(self, places: Mapping[str, str]) -> str:
        """Where the trace deviates most, and what both have there, as text.

        `places`: words for a value of the grid, as a format, by the name of the check.
        """
        at = int(self.deviations.argmax())
        return (
            f"{places[self.name].format(self.grid[at])}: trace {self.trace[at]:.4g}, "
            f"generator {self.low[at]:.4g} to {self.high[at]:.4g}"
        )


class Compared:
    """A fit whose statistics were compared with those of its trace."""

    checks: tuple[Check, ...]

    def check(self, name: str) -> Check:
        """The check of one statistic; KeyError if there is none of that name."""
        by_name = {check.name: check for check in self.checks}
        if name not in by_name:
            raise KeyError(f"no statistic {name!r}; one of {', '.join(by_name)}")
        return by_name[name]


def _deviations(values: Floats, low: Floats, middle: Floats, high: Floats) -> Floats:
    """Distances from the median in units of the band on that side; 1 lies on its edge."""
    # Where the generator hardly varies, a difference of a percent is none.
    least = np.maximum(0.01 * np.abs(middle), 1e-12)
    above = (values - middle) / np.maximum(high - middle, least)
    below = (middle - values) / np.maximum(middle - low, least)
    return np.maximum(above, below)


def check_resamples(violations: list[tuple[str, str, str]], resamples: int, seed: int) -> None:
    """Raises ConfigError with the violations, and those of the generated traces."""
    if resamples < _FEWEST_RESAMPLES:
        violations.append(("resamples", str(resamples), f"must be >= {_FEWEST_RESAMPLES}"))
    if not 0 <= seed < 2**63:
        violations.append(("seed", str(seed), "must be >= 0 and < 2**63"))
    if violations:
        raise config_error(violations)


def compare(
    grids: Mapping[str, Floats],
    observed: Mapping[str, Floats],
    generated: Sequence[Mapping[str, Floats]],
) -> tuple[Check, ...]:
    """The statistics of the trace against those of generated traces."""
    return tuple(
        _compared(name, grids[name], values, [sample[name] for sample in generated])
        for name, values in observed.items()
    )


def _compared(name: str, grid: Floats, observed: Floats, generated: Sequence[Floats]) -> Check:
    """A statistic of the trace against those of generated traces.

    Deviations are in units of the generator's own, above and below the median apart, because many
    statistics are skewed: the directional quantile test of Myllymäki et al. (2017).
    """
    sample = np.array(generated)
    low, middle, high = np.quantile(sample, [0.025, 0.5, 0.975], axis=0)
    largest = _deviations(sample, low, middle, high).max(axis=1)
    found = _deviations(observed, low, middle, high).max()
    p_value = (1 + int((largest >= found).sum())) / (len(sample) + 1)
    return Check(name, grid, observed, low, middle, high, p_value)


@dataclass(frozen=True)
class Description:
    """What a trace shows; see `describe`.

    Attributes
    ----------
    requests : int
    total_input_tokens, total_output_tokens : int
        As recorded.
    length_s : float
        From the first request to the last.
    requests_per_s : float or None
        None if all requests arrive at one instant.
    gap_cv : float or None
        Coefficient of variation of the gaps: 1 for Poisson arrivals. None if `withheld`.
    dispersion : dict
        Variance over mean of the counts in windows, by the length of the window in s: 1 for Poisson
        arrivals. Empty if `withheld`.
    input_tokens, output_tokens : dict
        Quantiles of the lengths by their probabilities: the median, and those beyond which the
        trace has a request.
    length_correlation : float or None
        Rank correlation (Spearman) of input and output lengths. None if `withheld`.
    reused_share : float
        Share of all prompt tokens that an earlier request has sent, by the shared segments of the
        trace; 0 if it states none.
    tenants : dict
        Share of the requests, by tenant.
    spread_s : float or None
        Typical distance of the timestamps, if more than a tenth of the requests share one with
        others; they are spread at random for `gap_cv` and `dispersion`.
    failed : int
        Number of requests without output: calls that failed where they were recorded. They count as
        arrivals, and the lengths of outputs are those of the others.
    withheld : str
        The statistics that are not given, and the reason; empty if all are.
    """

    requests: int
    total_input_tokens: int
    total_output_tokens: int
    length_s: float
    requests_per_s: float | None
    gap_cv: float | None
    dispersion: dict[float, float]
    input_tokens: dict[float, float]
    output_tokens: dict[float, float]
    length_correlation: float | None
    reused_share: float
    tenants: dict[str, float]
    spread_s: float | None
    failed: int = 0
    withheld: str = ""

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """The description as lines of text."""
        rate = "" if self.requests_per_s is None else f": {self.requests_per_s:.4g}/s"
        several = "" if self.requests == 1 else "s"
        lines = [
            f"{self.requests:,} request{several} in {self.length_s:,.1f} s{rate}",
            f"{self.total_input_tokens:,} input tokens, {self.total_output_tokens:,} output tokens",
        ]
        if self.gap_cv is not None:
            lines.append(f"gaps: coefficient of variation {self.gap_cv:.2f} (Poisson: 1)")
        if self.dispersion:
            windows = (f"{value:.3g} in {at:.3g} s" for at, value in self.dispersion.items())
            lines.append(f"variance / mean of counts (Poisson: 1): {', '.join(windows)}")
        for name, found in (("input", self.input_tokens), ("output", self.output_tokens)):
            values = ", ".join(f"p{100 * p:g} {value:,.0f}" for p, value in found.items())
            lines.append(f"{name} tokens: {values}")
        if self.length_correlation is not None:
            lines.append(f"rank correlation of input and output: {self.length_correlation:.2f}")
        lines.append(f"prompt tokens sent before by another request: {self.reused_share:.0%}")
        largest = sorted(self.tenants.items(), key=lambda pair: -pair[1])
        shown = ", ".join(f"{name} {share:.1%}" for name, share in largest[:5])
        lines.append(f"{len(largest)} tenants: {shown}{', …' if len(largest) > 5 else ''}")
        if self.spread_s is not None:
            lines.append(rounding_note(self.spread_s))
        if self.failed:
            lines.append(failure_note(self.failed, self.requests))
        if self.withheld:
            lines.append(f"withheld: {self.withheld}")
        return "\n".join(lines)


def rounding_note(spread_s: float) -> str:
    """Says how requests of one instant are spread."""
    return (
        f"many timestamps are equal, as if rounded to about {spread_s:.3g} s; such requests are "
        "spread at random, so shorter bursts are not visible"
    )


def describe(trace: Trace) -> Description:
    """The statistics of a trace after its transforms: rate, burstiness, lengths, tenants.

    Of fewer than 100 requests, and of requests at one instant, those that need more are withheld.
    Raises UsageError if the trace holds no requests, or all of them failed.

    Examples
    --------
    >>> import spillway
    >>> trace = spillway.trace(arrival_s=[0, 4], input_tokens=[10, 50], output_tokens=[5, 5])
    >>> spillway.traffic.describe(trace).total_input_tokens
    60
    """
    requests = _all_requests_of(trace)
    times = requests.arrival_s - requests.arrival_s[0]
    length_s = float(times[-1])
    tenants = Counter[str]()
    counts = np.bincount(requests.client, minlength=len(requests.names)).tolist()
    for (tenant, _), count in zip(requests.names, counts, strict=True):
        tenants[tenant] += count
    withheld = _withheld(len(times), length_s)
    return Description(
        requests=len(times),
        total_input_tokens=int(requests.input_tokens.sum()),
        total_output_tokens=requests.total_output_tokens,
        length_s=length_s,
        requests_per_s=(len(times) - 1) / length_s if length_s > 0 else None,
        input_tokens=_quantiles(requests.input_tokens),
        output_tokens=_quantiles(requests.output_tokens),
        **_burstiness(requests, times, length_s, is_withheld=bool(withheld)),
        reused_share=requests.reused,
        tenants={name: count / len(times) for name, count in tenants.items()},
        spread_s=requests.spread_s,
        failed=requests.failed,
        withheld=withheld,
    )


def _withheld(count: int, length_s: float) -> str:
    if count >= _FEWEST and length_s > 0:
        return ""
    reason = f"take at least {_FEWEST} requests" if count < _FEWEST else "take times that differ"
    return f"burstiness and rank correlation, which {reason}"


def _quantiles(lengths: Ints) -> dict[float, float]:
    known = [p for p in (0.05, 0.5, 0.95, 0.99) if len(lengths) * min(p, 1 - p) >= 1 or p == 0.5]
    return dict(zip(known, np.quantile(lengths, known).tolist(), strict=True))


def _burstiness(
    requests: Requests, times: Floats, length_s: float, *, is_withheld: bool
) -> dict[str, Any]:
    """The statistics of a description that a few requests do not show."""
    if is_withheld:
        return {"gap_cv": None, "dispersion": {}, "length_correlation": None}
    counted = Statistics.of(requests, length_s)
    counted = replace(counted, windows_s=counted.windows_s[[0, 4, 8, 11]])
    values = counted.values(times, requests.input_tokens, requests.output_tokens)
    gaps = np.diff(times)
    return {
        "gap_cv": float(gaps.std() / gaps.mean()),
        "dispersion": dict(
            zip(counted.windows_s.tolist(), values["dispersion"].tolist(), strict=True)
        ),
        "length_correlation": float(values["length_correlation"][0]),
    }
