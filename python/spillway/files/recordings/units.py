"""Units: the names that files use, and rules that find values in another unit than stated.

A rule compares a statistic of a whole run with a range that every server keeps. A value outside of
it most likely has another unit, which the error names.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from spillway.config.messages import note
from spillway.files.error import TraceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from spillway.data.recording import Recording


PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Units of time by name: how many of them are a second."""

_WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}

MEDIAN_TTFT_S = (1e-4, 600.0)
"""Range of the median time to the first token."""

MEDIAN_ITL_S = (2e-4, 2.0)
"""Range of the median time between tokens; the fastest servers need 1 ms, slow ones 0.3 s."""

MOST_TTFT_ABOVE_E2E = 0.01
"""Share of the completed requests whose first token may come after their last one."""

LEAST_TTFT_OVER_ITL = 0.05
"""Least ratio of the medians of TTFT and ITL: the first token takes at least one step."""

GAPS_OVER_DECODE = (0.5, 2.0)
"""Range of the median ratio of the sum of a request's token gaps and E2E - TTFT."""

MOST_PREFILL_TOKENS_PER_S = 1_000_000.0
"""Highest median of prompt tokens per second of TTFT without a note; fast servers do 100,000."""

LONGEST_SPAN_S = 31 * 86_400.0
"""Longest time between the first and the last request of a run."""

LONGEST_CLOCK_S = 10 * 365 * 86_400.0
"""Times after this count from 1970. They are accepted if all of a run do."""

LEAST_CONCURRENCY = 0.005
"""Least mean number of requests in flight in a run of more than a day and 20 requests."""

MOST_REQUESTS_PER_S = 100_000.0
"""Highest mean rate at which a client sends 100 or more requests, unless all at one instant."""

OVER_CLIENT_LIMIT = 1.1
"""The requests in flight may exceed the client's limit by this factor, and by one request."""


def check_units(
    run: Recording,
    path: Path,
    fields: Mapping[str, tuple[str, str]],
    *,
    is_stated: bool = False,
) -> None:
    """Refuse a run whose times probably have another unit than stated.

    `fields`: attribute → name and unit of the field in the file that holds it. Raises TraceError
    with file, field, statistic and suspected unit. With `is_stated` units, which the file states
    beside each value, a median outside of the range is a warning; a contradiction remains an error.
    """
    _Rules(run, path, fields, is_stated=is_stated).check()


class _Rules:
    """The rules, applied to one run."""

    def __init__(
        self,
        run: Recording,
        path: Path,
        fields: Mapping[str, tuple[str, str]],
        *,
        is_stated: bool,
    ) -> None:
        self.run = run
        self.path = path
        self.fields = fields
        self.is_stated = is_stated

    def check(self) -> None:
        self._check_sending()
        self._check_ttft_above_e2e()
        itl_s = _median(self.run.itl_s)
        streamed = "; or the answers are not streamed" if itl_s < MEDIAN_ITL_S[0] else ""
        self._check_range("e2e_s", "median time between tokens", itl_s, MEDIAN_ITL_S, streamed)
        self._check_range("ttft_s", "median TTFT", _median(self.run.ttft_s), MEDIAN_TTFT_S)
        self._check_ttft_over_itl(itl_s)
        self._check_gaps()
        self._check_client_limit()
        self._check_prefill()

    def _check_sending(self) -> None:
        run = self.run
        span_s = float(run.send_s[-1])
        if span_s > LONGEST_SPAN_S:
            mixed = "; or some times count from 1970 and others from the start of the run"
            also = mixed if span_s > LONGEST_CLOCK_S else ""
            allowed_s = (1.0, LONGEST_SPAN_S)
            self._refuse_range("send_s", "span of all requests", span_s, allowed_s, also)
        lasted_s = float(np.nan_to_num([run.failure_s, run.e2e_s]).max())
        if lasted_s > LONGEST_SPAN_S:
            self._refuse_range("e2e_s", "the longest request", lasted_s, (1e-3, LONGEST_SPAN_S))
        several = run.num_requests >= 100
        if several and 0 < span_s * MOST_REQUESTS_PER_S < run.num_requests:
            least_s = run.num_requests / MOST_REQUESTS_PER_S
            self._refuse_range("send_s", "span of all requests", span_s, (least_s, LONGEST_SPAN_S))
        busy_s = float(np.nansum(np.where(run.failed, run.failure_s, run.e2e_s)))
        idle = 0 < busy_s < LEAST_CONCURRENCY * span_s
        if run.num_requests >= 20 and span_s > 86_400 and idle:
            longest_s = busy_s / LEAST_CONCURRENCY
            self._refuse_range("send_s", "span of all requests", span_s, (1.0, longest_s))

    def _check_ttft_above_e2e(self) -> None:
        above = self.run.ttft_s > self.run.e2e_s  # False for NaN
        compared = int(np.sum(~np.isnan(self.run.ttft_s) & ~np.isnan(self.run.e2e_s)))
        if not above.any() or above.sum() <= MOST_TTFT_ABOVE_E2E * compared:
            return
        ttft_s, e2e_s = _median(self.run.ttft_s), _median(self.run.e2e_s)
        field, unit = self.fields["ttft_s"]
        guess = _suspected(unit, ttft_s, MEDIAN_TTFT_S[0], e2e_s)
        self._refuse(
            field,
            f"{ttft_s:.4g} s (median)",
            f"exceeds {self.fields['e2e_s'][0]} ({e2e_s:.4g} s, median) in {int(above.sum())} of "
            f"{compared} requests; {guess}; at most {MOST_TTFT_ABOVE_E2E:.0%} may",
        )

    def _check_ttft_over_itl(self, itl_s: float) -> None:
        ttft_s = _median(self.run.ttft_s[~np.isnan(self.run.itl_s)])
        least_s = LEAST_TTFT_OVER_ITL * itl_s
        if ttft_s < least_s:
            self._refuse_range("ttft_s", "median TTFT", ttft_s, (least_s, MEDIAN_TTFT_S[1]))

    def _check_gaps(self) -> None:
        gaps = self.run.token_gaps
        if gaps is None:
            return
        sums = np.full(self.run.num_requests, np.nan)
        has_gaps = np.diff(gaps.offsets) > 0
        if has_gaps.any():
            sums[has_gaps] = np.add.reduceat(gaps.values_s, gaps.offsets[:-1][has_gaps])
        decode_s = self.run.e2e_s - self.run.ttft_s
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = sums / decode_s
        median = _median(ratio[np.isfinite(ratio)])
        low, high = GAPS_OVER_DECODE
        if median < low or median > high:
            field, unit = self.fields["token_gaps"]
            guess = _suspected(unit, median, low, high)
            self._refuse(
                field,
                f"{median:.4g} of E2E - TTFT (median of the sums)",
                f"{guess}; must be >= {low:g} and <= {high:g}",
            )

    def _check_prefill(self) -> None:
        run = self.run
        is_known = run.ttft_s > 0  # false for NaN
        computed = run.input_tokens if run.cached_tokens is None else self._uncached()
        rate = _median(computed[is_known] / run.ttft_s[is_known])
        if rate > MOST_PREFILL_TOKENS_PER_S:
            note(
                f"{self.path}: {rate:,.0f} tokens of the prompt per second of "
                f"{self.fields['ttft_s'][0]} (median), which no server computes: the prompts were "
                "cached, or one of the two columns holds something else"
            )

    def _uncached(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The tokens of each prompt that were not in the server's cache."""
        cached = self.run.cached_tokens
        assert cached is not None
        found: np.ndarray[tuple[int], np.dtype[np.int64]] = self.run.input_tokens - cached
        return found

    def _check_client_limit(self) -> None:
        limit = self.run.client_max_in_flight
        if limit is None:
            return
        found = self.run.in_flight()
        if found > OVER_CLIENT_LIMIT * limit + 1:
            field, unit = self.fields["send_s"]
            raise TraceError(
                f"{self.path}, {field}: {found} requests are in flight at once, but the client "
                f"limits them to {limit}; the unit of the times of sending ({_WORDS[unit]}) or of "
                f"the latencies ({_WORDS[self.fields['e2e_s'][1]]}) is probably another one"
                f"{ESCAPE}"
            )

    def _check_range(
        self, name: str, statistic: str, value_s: float, range_s: Sequence[float], also: str = ""
    ) -> None:
        if not (value_s < range_s[0] or value_s > range_s[1]):  # false for NaN
            return
        if self.is_stated:
            field, unit = self.fields[name]
            note(
                f"{self.path}, {field}: {statistic} {value_s:.4g} s, which is unusual; the file "
                f"states {_WORDS[unit]}"
            )
            return
        self._refuse_range(name, statistic, value_s, range_s, also)

    def _refuse_range(
        self, name: str, statistic: str, value_s: float, range_s: Sequence[float], also: str = ""
    ) -> NoReturn:
        field, unit = self.fields[name]
        low, high = range_s
        guess = _suspected(unit, value_s, low, high)
        allowed = f"{guess}{also}; must be >= {low:g} s and <= {high:g} s"
        self._refuse(field, f"{value_s:.4g} s ({statistic})", allowed)

    def _refuse(self, field: str, value: str, allowed: str) -> NoReturn:
        raise TraceError(f"{self.path}, {field} = {value}: {allowed}{ESCAPE}")


ESCAPE = "; --no-check-units (check_units=False in Python) accepts it"


def _median(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _suspected(assumed: str, value: float, low: float, high: float) -> str:
    """Name the unit in which a value, as the stated unit says, would be between two bounds.

    If several are, it is the one that brings the value nearest to the middle of the range.
    """
    middle = math.sqrt(low * high)
    distances = {}
    for unit, per_second in PER_SECOND.items():
        other = value * PER_SECOND[assumed] / per_second
        if unit != assumed and low <= other <= high:
            distances[unit] = abs(math.log(other / middle))
    if not distances:
        return f"read as {_WORDS[assumed]}, which it probably is not"
    found = min(distances, key=lambda unit: distances[unit])
    return f"looks like {_WORDS[found]}, read as {_WORDS[assumed]}"
