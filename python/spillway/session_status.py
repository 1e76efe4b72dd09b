"""How far the requests of a session have come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Event(NamedTuple):
    """What has happened to a submitted request, whose `number` is as in `Submitted`.

    `kind` is dispatched (by the gateway), prompt_computed (of a request with `prefill_only`),
    first_token or ended, at `time_s` (s); `instance` is -1
    without one. `state` and `reason` are as in `Status` when the event was taken, and at the end
    how the request ended and why; counts and `scheduled_s` are as in `Status`, and final at the
    end.
    """

    kind: str
    number: int
    time_s: float
    instance: int
    state: str
    reason: str
    output_tokens: int
    cached_tokens: int
    preemptions: int
    scheduled_s: float


@dataclass(frozen=True)
class Status:
    """How far a submitted request has come.

    Attributes
    ----------
    state : str
        "submitted" before its arrival, "awaiting_retry" while its client is about to send another
        attempt, otherwise as `outcome` in `Result.requests`: queued, in_transit, running (in an
        instance, waiting or in the batch), completed, rejected, expired, evicted, failed or
        cancelled.
    has_ended : bool
        Whether this is how it ended.
    reason : str
        Why it was not completed, as in `Result.requests`; empty: no reason.
    row : int or None
        Its row in `Result.requests`; None before its arrival.
    attempts, instance, output_tokens : int
        Attempts so far; the instance, -1: none; output tokens delivered, known once it has ended or
        its `progress` was asked for.
    arrival_s, ttft_s, tpot_s, e2e_s, queue_s : float
        As in `Result.requests` (s); NaN where it has not come that far.
    cached_tokens, preemptions : int
        Tokens of its prompt that the prefix cache of its instance held; how often it was preempted.
    scheduled_s : float
        When it first entered the batch (s); NaN: it has not.

    """

    state: str
    has_ended: bool
    reason: str
    row: int | None
    attempts: int
    instance: int
    output_tokens: int
    arrival_s: float
    ttft_s: float
    tpot_s: float
    e2e_s: float
    queue_s: float
    cached_tokens: int
    preemptions: int
    scheduled_s: float
