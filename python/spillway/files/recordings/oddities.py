"""What the requests of a run say of each other: that some are listed twice, or of other runs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from spillway.config.messages import note

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from spillway.data.recording import Recording


def note_oddities(run: Recording, place: str) -> None:
    """Warn of requests that are listed twice, and of times that are not those of one run."""
    _note_repeated(run, place)
    _note_pauses(run, place)
    _note_latencies(run, place)


def note_equal_runs(path: Path, runs: Sequence[Recording]) -> None:
    """Warn of runs that have the same requests."""
    first: dict[bytes, str] = {}
    for run in runs if len(runs) > 1 else ():
        content = hashlib.sha256()
        for column in (run.send_s, run.ttft_s, run.e2e_s, run.input_tokens, run.output_tokens):
            content.update(np.ascontiguousarray(column).data)
        other = first.get(content.digest())
        if other is not None and run.num_requests > 1:
            note(f"{path}: run {run.name} has the requests of run {other}, so they count twice")
        first.setdefault(content.digest(), run.name)


_NO_LATENCY_S = 1e-3  # shorter than any server answers
_USUAL_S = 1e-2
_FEW = 0.01


def _note_latencies(run: Recording, place: str) -> None:
    """Warn of latencies that some completed requests lack, or have in another unit."""
    done = ~run.failed
    for name, latency_s in (("TTFT", run.ttft_s), ("E2E", run.e2e_s)):
        known_s = latency_s[done & ~np.isnan(latency_s)]
        lack = int(done.sum()) - len(known_s)
        if len(known_s) and lack > max(1, _FEW * int(done.sum())):
            note(f"{place}: {lack:,} of {int(done.sum()):,} completed requests have no {name}")
        short = int((known_s < _NO_LATENCY_S).sum())
        if short > max(1, _FEW * len(known_s)) and np.median(known_s) > _USUAL_S:
            note(
                f"{place}: {name} of {short:,} of {len(known_s):,} requests is less than 1 ms: it "
                "was not measured, or has another unit than the others"
            )


_REPEATED = 0.01  # the share of requests from which those that are listed twice are noted
_FEWEST = 20  # requests, of which equal ones are no chance, even if times are whole milliseconds


def _note_repeated(run: Recording, place: str) -> None:
    """Warn of requests of which all times and lengths are those of the request before."""
    same = run.e2e_s[1:] == run.e2e_s[:-1]  # false for NaN
    for values in (run.send_s, run.ttft_s, run.input_tokens, run.output_tokens):
        same &= (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
    repeated = int(same.sum())
    latencies_ms = 1_000 * run.e2e_s[1:][same]
    is_chance = run.num_requests < _FEWEST and np.allclose(latencies_ms, np.rint(latencies_ms))
    known_s = run.e2e_s[np.isfinite(run.e2e_s)]
    is_chance &= 2 * repeated < len(known_s)
    # Where most requests take as long as others, equal ones are no sign.
    is_chance |= 3 * len(np.unique(known_s)) < len(known_s)
    if repeated > _REPEATED * run.num_requests and not is_chance:
        note(
            f"{place}: {repeated:,} of {run.num_requests:,} requests are sent at the time of "
            "another with the same lengths and latencies: the file probably lists requests twice"
        )


_LONGEST_PAUSE = 0.5  # share of the span
_LEAST_PAUSE_S = 60.0


def _note_pauses(run: Recording, place: str) -> None:
    """Warn of a run that is sent at one instant, or that a long pause splits."""
    if run.num_requests < _FEWEST:
        return
    span_s = float(run.send_s[-1])
    pauses_s = np.diff(run.send_s)
    if not span_s:
        if run.client_max_in_flight is None:
            note(
                f"{place}: all {run.num_requests:,} requests are sent at the same instant, by a "
                "client without a limit, or the times have lost digits, as in a spreadsheet"
            )
    elif pauses_s.max() > max(_LONGEST_PAUSE * span_s, _LEAST_PAUSE_S):
        before = int(pauses_s.argmax()) + 1
        note(
            f"{place}: no request is sent for {pauses_s.max():,.0f} of {span_s:,.0f} s, after the "
            f"first {before:,} of {run.num_requests:,}: the file probably holds several runs, or "
            "warm-up"
        )
