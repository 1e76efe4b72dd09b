"""Likely causes of a fit that is poor: facts under which the same runs fit better."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from spillway.calibration.catalog import limits_of
from spillway.calibration.memory import held_blocks, scan
from spillway.calibration.parts import Part
from spillway.calibration.refinement import PRIOR_WEIGHT, fit, soft_cost
from spillway.calibration.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spillway.calibration.parts import Measured
    from spillway.calibration.refinement import Fit
    from spillway.data.arrays import Floats
    from spillway.data.recording import Recording, ServerFacts


_LEAST_GAIN = 0.4
"""Share of the misfit that a cause must explain."""

_NEW_TOKENS = 16
_LIMIT_SHARE = 0.4
_SLACK = 1.05


def contradictions(runs: Sequence[Recording], facts: ServerFacts) -> list[str]:
    """Stated facts that the measurements exceed."""
    limits = limits_of(facts)
    ranks = limits["data_parallel_size"].value
    found = []
    for run in runs:
        running = _running(run)
        most = limits["max_num_seqs"].value * ranks
        if running > _SLACK * most:
            found.append(
                f"a fact contradicts the data: max_num_seqs = {limits['max_num_seqs'].value} "
                f"({limits['max_num_seqs'].source}), but {running} requests of {run.name} had a "
                "first token and no last one at once"
            )
        if facts.num_kv_blocks is not None and facts.prefix_caching is False:
            held = held_blocks(run, facts)
            if held > _SLACK * facts.num_kv_blocks:
                found.append(
                    f"a fact contradicts the data: num_kv_blocks = {facts.num_kv_blocks}, but "
                    f"requests of {run.name} held {held:,.0f} at once"
                )
    return found


def causes_of(facts: ServerFacts, parts: Sequence[Measured], found: Fit) -> tuple[str, ...]:
    """What explains a misfit, the likeliest first: it fits at least 40% better."""
    runs = [part.replay.recording for part in parts if isinstance(part, Part)]
    misfit = _total(found.residuals)
    gains = []
    for text, other, changed in _alternatives(facts, parts, found):
        again = fit(
            other, changed, base=found.base, ahead=found.ahead, prior=found.prior[: _size(found)],
            covariance=_covariance(found), trust=found.trust, is_final=False,
        )  # fmt: skip
        gain = 1 - _total(again.residuals) / misfit if misfit > 0 else 0.0
        if gain >= _LEAST_GAIN:
            gains.append((gain, f"{text}: with that, {gain:.0%} of the misfit is gone"))
    ranked = [text for _, text in sorted(gains, reverse=True)]
    return (*contradictions(runs, facts), *ranked)


def _alternatives(
    facts: ServerFacts, parts: Sequence[Measured], found: Fit
) -> Iterator[tuple[str, ServerFacts, list[Measured]]]:
    runs = [part.replay.recording for part in parts if isinstance(part, Part)]
    silent = [run for run in runs if run.session is None and run.cached_tokens is None]
    if silent and facts.prefix_caching is not False:
        text = "prompts were probably cached (state sessions or cached tokens)"
        yield text, facts, [_changed(part, _cached) for part in parts]
    if facts.num_kv_blocks is not None and runs:
        blocks = scan(facts.replace(num_kv_blocks=None), parts, found).blocks
        if blocks is not None:
            text = f"KV memory binds: {blocks:,} blocks fit better than {facts.num_kv_blocks:,}"
            yield text, facts.replace(num_kv_blocks=blocks), list(parts)
    if any(_plateau(run) for run in runs):
        text = "the client was the limit (state client_max_in_flight)"
        yield text, facts, [_changed(part, _limited) for part in parts]
    if facts.data_parallel_size is None:
        for replicas in (2, 4):
            text = f"replicas? ({replicas} behind one address; state data_parallel_size)"
            yield text, facts.replace(data_parallel_size=replicas), list(parts)


def _changed(part: Measured, change: object) -> Measured:
    if not isinstance(part, Part):
        return part
    replay = part.replay
    run = change(replay.recording)  # type: ignore[operator]
    return Part(Replay(run, replay.turnaround_s, replay.repeats, replay.warms), part.rows)


def _cached(run: Recording) -> Recording:
    if run.session is not None or run.cached_tokens is not None:
        return run
    return dataclasses.replace(run, cached_tokens=np.maximum(run.input_tokens - _NEW_TOKENS, 0))


def _limited(run: Recording) -> Recording:
    return dataclasses.replace(run, client_max_in_flight=run.in_flight()) if _plateau(run) else run


def _plateau(run: Recording) -> bool:
    """Whether the requests in flight are near their maximum at many of the times of sending."""
    if run.client_max_in_flight is not None:
        return False
    done = ~run.failed & np.isfinite(run.e2e_s)
    ends_s = np.sort((run.send_s + run.e2e_s)[done])
    here = np.arange(1, run.num_requests + 1) - np.searchsorted(ends_s, run.send_s, side="right")
    return bool(here.max() > 1 and np.mean(here >= 0.95 * here.max()) >= _LIMIT_SHARE)


def _running(run: Recording) -> int:
    """The most requests between first and last token, but for the highest hundredth of times."""
    done = ~run.failed & np.isfinite(run.e2e_s) & np.isfinite(run.ttft_s)
    if not done.any():
        return 0
    begin_s = np.sort((run.send_s + run.ttft_s)[done])
    end_s = np.sort((run.send_s + run.e2e_s)[done])
    here = np.arange(1, len(begin_s) + 1) - np.searchsorted(end_s, begin_s, side="right")
    return int(np.percentile(here, 99))


def _size(found: Fit) -> int:
    return len(found.theta) - int(found.fits_memory)


def _covariance(found: Fit) -> Floats:
    size = _size(found)
    ridge = found.ridge[:size, :size]
    return np.asarray(np.linalg.inv(ridge) * PRIOR_WEIGHT**2)


def _total(table: Floats) -> float:
    return sum(soft_cost(row) for row in table)
