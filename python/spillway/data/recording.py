"""Measured runs of real servers: what was sent, and how long it took."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Recording", "ServerFacts", "StepLog", "most_in_flight"]


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class ServerFacts:
    """Settings of a server, as far as a recording states them; None: not stated.

    Attributes
    ----------
    model, gpu, engine, engine_version : str or None
        E.g. "Qwen/Qwen3-14B", "H100 80GB HBM3", "vllm", "0.23.0".
    tensor_parallel_size, data_parallel_size, max_num_seqs, max_num_batched_tokens, \
block_size_tokens, num_kv_blocks, max_model_len : int or None
        The engine's settings; `num_kv_blocks` of one data-parallel rank.
    prefix_caching : bool or None

    """

    model: str | None = None
    gpu: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    tensor_parallel_size: int | None = None
    data_parallel_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size_tokens: int | None = None
    num_kv_blocks: int | None = None
    max_model_len: int | None = None
    prefix_caching: bool | None = None

    @property
    def key(self) -> str:
        """The stated facts as text: equal for runs of one server."""
        stated = {k: v for k, v in dataclasses.asdict(self).items() if v is not None}
        return ", ".join(f"{name}={value}" for name, value in stated.items()) or "unnamed server"


@dataclass(frozen=True, eq=False)
class Recording:
    """One measured run, a row per request in order of sending.

    Attributes
    ----------
    name : str
        Name of the run.
    server : ServerFacts
    send_s : float array
        Send times, from the first one on.
    input_tokens, output_tokens : int array
        Lengths; 0 where a failed request has none.
    ttft_s, e2e_s : float array
        From sending to the first and to the last token; NaN: not measured.
    failed : bool array
    client_max_in_flight : int or None
        Maximum number of requests that the client kept in flight.
    source, sha256 : str
        The file and its digest.

    """

    name: str
    server: ServerFacts
    send_s: npt.NDArray[np.float64]
    input_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    ttft_s: npt.NDArray[np.float64]
    e2e_s: npt.NDArray[np.float64]
    failed: npt.NDArray[np.bool_]
    client_max_in_flight: int | None = None
    source: str = ""
    sha256: str = field(default="", repr=False)

    @property
    def num_requests(self) -> int:
        """Number of requests, failed ones included."""
        return len(self.send_s)

    @cached_property
    def itl_s(self) -> npt.NDArray[np.float64]:
        """Mean gap between tokens of each request; NaN with fewer than two tokens."""
        gaps = self.output_tokens - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(gaps > 0, (self.e2e_s - self.ttft_s) / gaps, np.nan)

    @cached_property
    def most_in_flight(self) -> int:
        """Maximum number of requests in flight at once, without those that failed."""
        return most_in_flight(self.send_s[self._done], self._ends_s)

    @cached_property
    def limited_from(self) -> int | None:
        """First request sent after the client's limit had been reached; None: it never was."""
        limit = self.client_max_in_flight
        if limit is None or self.most_in_flight < limit:
            return None
        ends_s = np.sort(np.round(self._ends_s, 9))
        ended = np.searchsorted(ends_s, np.round(self.send_s, 9), side="right")
        in_flight = np.cumsum(self._done) - ended
        return int(np.argmax(in_flight >= limit)) + 1

    @property
    def is_limited_by_client(self) -> bool:
        """Whether the client's limit on requests in flight was reached."""
        return self.limited_from is not None

    @property
    def _done(self) -> npt.NDArray[np.bool_]:
        done: npt.NDArray[np.bool_] = ~self.failed & np.isfinite(self.e2e_s)
        return done

    @property
    def _ends_s(self) -> npt.NDArray[np.float64]:
        return (self.send_s + self.e2e_s)[self._done]


@dataclass(frozen=True, eq=False)
class StepLog:
    """The steps of an engine, a row per step.

    Attributes
    ----------
    name : str
    prefill_requests, prefill_tokens : int array
        Requests of which the step computes a part of the prompt, and the tokens of these parts.
    decode_requests : int array
        Requests for which it computes an output token.
    step_s : float array
        Duration.
    context_tokens : int array or None
        Tokens in the KV cache after the step; None: not known.
    source : str
        The file.

    """

    name: str
    prefill_requests: npt.NDArray[np.int64]
    prefill_tokens: npt.NDArray[np.int64]
    decode_requests: npt.NDArray[np.int64]
    step_s: npt.NDArray[np.float64]
    context_tokens: npt.NDArray[np.int64] | None = None
    source: str = ""


def most_in_flight(begin_s: npt.NDArray[np.float64], end_s: npt.NDArray[np.float64]) -> int:
    """Maximum number of overlapping spans; one that ends frees its place for one that begins."""
    # Sums of floats differ in their last digits where instants are the same.
    at = np.round(np.concatenate([end_s, begin_s]), 9)
    change = np.repeat([-1, 1], [len(end_s), len(begin_s)])
    return int(np.cumsum(change[np.argsort(at, kind="stable")]).max(initial=0))
