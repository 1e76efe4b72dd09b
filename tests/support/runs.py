"""Runs of given requests, simple servers for them, and readings of their timestamps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import Result, Simulation, gateway, instance, simulate, workload
from spillway import trace as recorded
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Sequence

MS = 10**6  # nanoseconds
SECOND = 10**9  # nanoseconds
ROUTER_STREAM = 5
"""The stream from which routers draw, one entity per request."""


def flat(e2e_s: float = 1, ttft_s: float = 0.25, **settings: Any) -> instance.InstanceGroup:
    """A server that takes the same time for every request, at any load."""
    plant = instance.ProcessorSharing(concurrency=[0], e2e_s=[e2e_s], ttft_s=[ttft_s], **settings)
    return instance.InstanceGroup(plant=plant)


def steady(step_ms: float, entry_ms: float = 0, **settings: float) -> instance.Linear:
    """Steps that all take the same time, after a delay that is the same for every request."""
    none = dict.fromkeys(("alpha_input_us", "alpha_output_us", "beta_prefill_us"), 0)
    plain = {"alpha0_us": 1000 * entry_ms, "beta0_us": 1000 * step_ms, "beta_decode_us": 0}
    return instance.Linear(**(none | plain | settings))


def simulated(seed: int = 0, **settings: Any) -> Result:
    """A run of a simulation with these settings."""
    return simulate(Simulation(**settings), seed)


def run(
    arrival_s: Sequence[float],
    *,
    input_tokens: Sequence[int] | int = 16,
    output_tokens: Sequence[int] | int = 10,
    tenant: Sequence[str] | str = "a",
    slo_class: Sequence[str] | str = "standard",
    model: Sequence[str] | None = None,
    prefixes: Sequence[tuple[str, int]] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Result:
    """A run of given requests before a `flat` server; `settings` are those of the simulation.

    `prefixes` are the groups of the requests and how many tokens a group shares.
    """
    n = len(arrival_s)
    requests = recorded(
        arrival_s=np.asarray(arrival_s, dtype=float),
        input_tokens=np.broadcast_to(input_tokens, n),
        output_tokens=np.broadcast_to(output_tokens, n),
        tenant=tenant,
        slo_class=slo_class,
        model=model,
        prefix_group=None if prefixes is None else [group for group, _ in prefixes],
        prefix_tokens=None if prefixes is None else [tokens for _, tokens in prefixes],
    ).replace(empty_outputs="served")
    return simulated(seed, workload=requests, **({"instances": flat()} | settings))


def run_ns(
    arrival_ns: Sequence[int],
    input_tokens: Sequence[int] | int = 16,
    output_tokens: Sequence[int] | int = 1,
    *,
    tenant: Sequence[str] | str = "default",
    **settings: Any,
) -> Result:
    """As `run`, with arrivals in nanoseconds, and before the default instances."""
    return run(
        np.asarray(arrival_ns) / 1e9,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        tenant=tenant,
        **({"instances": BLIS_SERVER} | settings),
    )


def ns(seconds: Any, none: int = -1) -> list[int]:
    """Spans in whole nanoseconds; `none` stands for NaN."""
    spans = np.rint(np.nan_to_num(np.asarray(seconds) * 1e9, nan=none))
    return spans.astype(np.int64).tolist()


def instants_ns(result: Result, span: str, none: int | None = None) -> list[int | None]:
    """When a span of each request that counts from its arrival ends."""
    requests = result.requests
    return [
        none if length < 0 else at + length
        for at, length in zip(ns(requests["arrival_s"]), ns(requests[span]), strict=True)
    ]


def concurrency(most: float) -> gateway.Saturation:
    return gateway.Saturation(detector="concurrency", max_concurrency=most)


def retry(**settings: Any) -> workload.Reaction:
    """Retries, at fixed instants by default."""
    return workload.Reaction(retries=[workload.Retry(**({"jitter": "none"} | settings))])


def fixed(permits: int) -> gateway.FixedLimit:
    return gateway.FixedLimit(max_in_flight=permits)


@dataclass(frozen=True)
class Way:
    """Instants of one request, in nanoseconds; None: it did not come so far."""

    arrived: int
    dispatched: int | None
    first_token: int | None
    ended: int | None
    tenant: str
    outcome: str
    input_tokens: int
    output_tokens: int

    def in_flight(self, now: int) -> bool:
        """A permit returns at the very instant of the last token."""
        if self.dispatched is None or self.dispatched > now:
            return False
        return self.ended is None or now < self.ended


def ways(result: Result) -> list[Way]:
    requests = result.requests
    columns = ("tenant", "outcome", "input_tokens", "output_tokens")
    return [
        Way(*values)
        for values in zip(
            ns(requests["arrival_s"]),
            *(instants_ns(result, name) for name in ("queue_s", "ttft_s", "e2e_s")),
            *(requests[name].tolist() for name in columns),
            strict=True,
        )
    ]


def outcomes(result: Result) -> list[str]:
    return result.requests["outcome"].tolist()


def order(result: Result) -> list[int]:
    """Rows in order of dispatch."""
    dispatched = [(way.dispatched, row) for row, way in enumerate(ways(result))]
    return [row for at, row in sorted(pair for pair in dispatched if pair[0] is not None)]


def peak(result: Result, at_ns: Sequence[int] | None = None) -> int:
    """Most requests in flight, at any instant or at some."""
    them = ways(result)
    instants = [way.dispatched for way in them if way.dispatched is not None]
    return max(sum(way.in_flight(now) for way in them) for now in at_ns or instants)


@dataclass(frozen=True)
class Passage:
    """The instants of one request in the gateway, in nanoseconds."""

    admitted: int
    dispatched: int
    ended: int


def passages(result: Result, admission_latency_ns: int = 0) -> list[Passage]:
    """The ways of the requests, all of which must have been completed."""
    requests = result.requests
    assert set(requests["outcome"]) == {"completed"}
    return [
        Passage(at + admission_latency_ns, at + queue, at + e2e)
        for at, queue, e2e in zip(
            ns(requests["arrival_s"]), ns(requests["queue_s"]), ns(requests["e2e_s"]), strict=True
        )
    ]


def check_limit(ways: list[Passage], limit: int) -> int:
    """Never more than `limit` in flight, and never a request that waits beside a free permit.

    Returns how many requests waited.
    """
    for now in sorted({t for way in ways for t in (way.admitted, way.dispatched, way.ended)}):
        in_flight = sum(way.dispatched <= now < way.ended for way in ways)
        waiting = sum(way.admitted <= now < way.dispatched for way in ways)
        assert in_flight <= limit
        assert waiting == 0 or in_flight == limit
    for way in ways:
        assert way.admitted <= way.dispatched < way.ended
    return sum(way.dispatched > way.admitted for way in ways)


def share_of(result: Result, slo_class: str, after_s: float = 50) -> float:
    columns = result.requests
    mine = (columns["slo_class"] == slo_class) & (columns["arrival_s"] > after_s)
    return float(np.mean(columns["outcome"][mine] == "completed"))
