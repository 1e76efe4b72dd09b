"""A run as the client of a benchmark sees it, which sends each request when it arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from spillway.data.arrays import Booleans, Floats, Ints
    from spillway.data.result_data import ResultData


_CUT_OFF = ("queued", "running", "in_transit")


@dataclass(frozen=True)
class ClientView:
    """The requests of a run and their latencies.

    Attributes
    ----------
    done, failed : array of bool
        Whether a request completed; whether the system refused or dropped it. Neither holds for
        requests that the end of the run cut off.
    arrival_s : array of float
        Arrivals at the gateway in seconds.
    input_tokens, output_tokens, requested_output_tokens : array of int
        Lengths in tokens: of the prompt, as delivered, as asked for.
    ttft_s, e2e_s : array of float
        Seconds from arrival to the first and the last token, of the completed requests.
    tpot_s : array of float
        (E2E - TTFT) / (tokens - 1), of the completed requests with at least two tokens.
    ntpot_s : array of float
        E2E / tokens, of the completed requests with tokens.
    duration_s : float
        From the first arrival to the last completion; 0 if no request completed.

    """

    done: Booleans
    failed: Booleans
    arrival_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    requested_output_tokens: Ints
    ttft_s: Floats
    e2e_s: Floats
    tpot_s: Floats
    ntpot_s: Floats
    duration_s: float

    @classmethod
    def of(cls, result: ResultData) -> ClientView:
        """Return the view of a run; UsageError if its requests were not kept."""
        requests = result.requests
        done = requests["outcome"] == "completed"
        output = requests["output_tokens"]
        arrival_s = requests["arrival_s"]
        ttft_s, e2e_s, tokens = requests["ttft_s"][done], requests["e2e_s"][done], output[done]
        several = tokens > 1
        return cls(
            done=done,
            failed=~done & ~np.isin(requests["outcome"], _CUT_OFF),
            arrival_s=arrival_s,
            input_tokens=requests["input_tokens"],
            output_tokens=output,
            requested_output_tokens=requests.get("requested_output_tokens", output),
            ttft_s=ttft_s[tokens > 0],
            e2e_s=e2e_s,
            tpot_s=(e2e_s - ttft_s)[several] / (tokens[several] - 1),
            ntpot_s=e2e_s[tokens > 0] / tokens[tokens > 0],
            duration_s=float(np.max(arrival_s[done] + e2e_s) - arrival_s[0]) if done.any() else 0.0,
        )

    @property
    def total_input_tokens(self) -> int:
        """Tokens of the prompts of completed requests."""
        return int(self.input_tokens[self.done].sum())

    @property
    def total_output_tokens(self) -> int:
        """Tokens that completed requests received."""
        return int(self.output_tokens[self.done].sum())

    @property
    def arrivals_per_s(self) -> float | None:
        """Mean rate of arrivals; None if all arrive at once."""
        span_s = float(self.arrival_s[-1] - self.arrival_s[0]) if self.arrival_s.size else 0.0
        return (len(self.done) - 1) / span_s if span_s else None

    def per_second(self, count: int) -> float:
        """Return a count per second of `duration_s`; 0 if no request completed."""
        return count / self.duration_s if self.duration_s else 0.0
