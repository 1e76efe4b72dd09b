"""Traces with transforms, and replications of a trace."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import _core
from spillway._core.sim import UsageError
from spillway._core.workload import BlockResample, ScaleRate, Synthetic, Trace, Window
from spillway.config.classes import config_error
from spillway.config.messages import checked
from spillway.data.shared_prompts import (
    attribute_columns,
    limit_column,
    model_column,
    models_of,
    texts_of,
    warm_column,
)

if TYPE_CHECKING:
    from spillway._core.cluster import Simulation
    from spillway._core.workload import (
        CapLengths,
        DrawLengths,
        Relabel,
        ScalePart,
        Shift,
        Superpose,
        Thin,
        Upsample,
    )
    from spillway.data.arrays import Floats, Ints

    Transform = (ScaleRate | Thin | Superpose | Upsample | Window | Shift | Relabel | CapLengths
                 | DrawLengths | ScalePart | BlockResample)  # fmt: skip


_KEPT = ("max_in_flight", "open_loop_requests", "turnaround_s", "session_segments", "empty_outputs")
"""Settings of a trace that `applied` leaves as they are."""

_MOST_BLOCKS = 40
"""Most blocks of a bootstrap whose block length is not stated."""


def transformed(trace: Trace, *transforms: Transform) -> Trace:
    """The trace with further transforms, applied in order after those that it has.

    Raises ConfigError for a transform of arrivals if the trace has `max_in_flight`, because its
    arrivals then follow the served requests.
    """
    return _trace(trace).replace(transforms=[*trace.transforms, *transforms])


def applied(trace: Trace, seed: int = 0) -> Trace:
    """The requests that the runs under `seed` see, as a trace without transforms.

    It has no file; `traffic.write` writes one if its prompts share whole blocks.

    Raises UsageError if the trace holds no requests, only their digest, and ConfigError if a
    transform cannot be applied.
    """
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed = {seed}: must be >= 0 and < 2**64")
    found: Trace = _core.workload._transformed(_trace(trace), seed)  # type: ignore[attr-defined]
    return found.replace(**{name: getattr(trace, name) for name in _KEPT})


def merged(*traces: Trace) -> Trace:
    """The requests of several traces as one, in order of arrival.

    Prompts of different traces share nothing. `request_id` becomes the position of the trace and
    its id there, such as `1:17`. The merged trace has no file: a saved configuration holds its
    digest only.

    Raises UsageError without traces, for a trace that holds no requests, for one with transforms or
    `max_in_flight`: apply them first (see `applied`), and for traces that differ in
    `empty_outputs`.
    """
    if not traces:
        raise UsageError("merged needs at least one trace")
    columns = []
    for i, trace in enumerate(traces):
        if _trace(trace).transforms or trace.max_in_flight:
            raise UsageError(
                f"traces[{i}] has transforms or max_in_flight; merge plain traces, see "
                "spillway.traffic.applied"
            )
        columns.append(_columns(trace))
    if len({trace.empty_outputs for trace in traces}) > 1:
        raise UsageError("the traces differ in empty_outputs: replace it in some of them")
    tenants = list(dict.fromkeys(name for own in columns for name in own["tenants"]))
    classes = list(dict.fromkeys(name for own in columns for name in own["slo_classes"]))

    def joined(name: str) -> Ints:
        return np.concatenate([own[name] for own in columns])

    def recoded(name: str, names: str, known: list[str]) -> Ints:
        return np.concatenate(
            [np.array([known.index(key) for key in own[names]])[own[name]] for own in columns]
        )

    ids = [
        f"{i}:{name}"
        for i, own in enumerate(columns)
        for name in own["request_id"] or range(len(own["arrival_ns"]))
    ]
    order = np.argsort(joined("arrival_ns"), kind="stable")
    found: Trace = _core.workload.make_trace(
        arrival_ns=joined("arrival_ns")[order],
        input_tokens=joined("input_tokens")[order],
        output_tokens=joined("output_tokens")[order],
        tenant=recoded("tenant", "tenants", tenants)[order].astype(np.uint16),
        tenants=tenants,
        slo_class=recoded("slo_class", "slo_classes", classes)[order].astype(np.uint16),
        slo_classes=classes,
        **_merged_segments(columns, order),
        **attribute_columns(_merged_attributes(columns, order)),
        **_merged_models(columns, order),
        **limit_column(
            np.concatenate(
                [
                    own.get("max_tokens", np.zeros(len(own["arrival_ns"]), np.int32))
                    for own in columns
                ]
            )[order]
        ),
        request_id=[ids[row] for row in order],
        file="",
    )
    return found.replace(empty_outputs=traces[0].empty_outputs)


def at_rate(simulation: Simulation, factor: float) -> Simulation:
    """The simulation with `factor` times the request rate.

    The rates of all clients change, or the arrival times of the trace: the same requests, closer
    together for a factor > 1. `duration_s`, `horizon_s` and `warm_up_s` stay.

    Raises ConfigError unless 1e-6 <= factor <= 1e6, and for a trace with `max_in_flight`.
    """
    if not 1e-6 <= factor <= 1e6:
        raise config_error([("factor", f"{factor:g}", "must be >= 1e-06 and <= 1e+06")])
    workload = simulation.workload
    if isinstance(workload, Synthetic):
        clients = tuple(
            client
            if client.requests_per_s is None
            else client.replace(requests_per_s=client.requests_per_s * factor)
            for client in workload.clients
        )
        rate = workload.requests_per_s * factor
        return simulation.replace(workload=workload.replace(requests_per_s=rate, clients=clients))
    before = list(workload.transforms)
    if before and isinstance(last := before[-1], ScaleRate):
        factor *= last.factor
        before.pop()
    scaled = [*before, ScaleRate(factor=factor)]
    return simulation.replace(workload=workload.replace(transforms=scaled))


def rate_per_s(trace: Trace) -> float:
    """Requests per second from the first arrival to the last, after the transforms under seed 0.

    A bootstrap does not count, nor a window of its result, because they keep the rate on average.

    Raises UsageError if the trace holds no requests.
    """
    kept: list[Transform] = []
    before: Transform | None = None
    for transform in _trace(trace).transforms:
        is_of_bootstrap = isinstance(transform, Window) and isinstance(before, BlockResample)
        if not (is_of_bootstrap or isinstance(transform, BlockResample)):
            kept.append(transform)
        before = transform
    outline = _outline(trace.replace(transforms=kept), len(kept))
    return float(outline["rows"] / outline["length_s"])


def halves(trace: Trace) -> tuple[Trace, Trace]:
    """The first and the second half of a trace by time, as windows: to search on, and to confirm.

    The first window begins with the first arrival. A session in progress at the middle has requests
    in both, as if the recording had ended there: the halves are traffic as it was, and their
    resamples keep what each holds of a session whole. See `Study.confirm(workload=…)`.

    Raises UsageError if the trace holds no requests, and ConfigError if it has `max_in_flight`.
    """
    outline = _outline(_trace(trace), len(trace.transforms))
    start_s = outline["first_s"]
    half_s = outline["length_s"] / 2
    return (
        transformed(trace, Window(start_s=start_s, duration_s=half_s)),
        transformed(trace, Window(start_s=start_s + half_s)),
    )


def resampled(trace: Trace, block_s: float | None = None) -> Trace:
    """The trace with a block bootstrap in time: every seed replays another resample of it.

    Results over several seeds then estimate a figure's mean over traces of this length, with
    intervals that include how much such traces differ (see `workload.BlockResample`, and
    `data.intervals.of_resamples` for the interval). A resample starts in the midst of its traffic,
    as a recording does: with sessions, it is a window of a longer one that begins earlier by the
    longest session.

    Parameters
    ----------
    trace
        The trace; its traffic must be stationary. Set `session_segments` to keep sessions whole.
    block_s
        Length of a block in seconds; None: `block_length_s(trace)`. State more where the served
        system remembers longer than the traffic, e.g. if a backlog takes minutes to drain.

    Raises ConfigError if the trace is shorter than two blocks, or has `max_in_flight`.
    """
    length_s = _outline(_trace(trace), len(trace.transforms))["length_s"]
    if block_s is None:
        block_s = block_length_s(trace)
    if not 0 < block_s <= length_s / 2:
        allowed = f"must be > 0 and <= {length_s / 2:g} s, half the length of the trace"
        raise config_error([("block_s", f"{block_s:g}", allowed)])
    lead_s = _longest_session_s(trace)
    if lead_s == 0:
        return transformed(trace, BlockResample(block_s=block_s))
    return transformed(
        trace,
        BlockResample(block_s=block_s, duration_s=lead_s + length_s),
        Window(start_s=lead_s, duration_s=length_s),
    )


def block_length_s(trace: Trace) -> float:
    """The default length of the blocks of a bootstrap, in seconds.

    Blocks must be longer than the traffic is correlated: as long as by the rule of Politis and
    White (2004, with the correction of 2009) for the circular bootstrap, applied to the requests
    and to the tokens that arrive in intervals of about ten requests; the longer one counts, up to a
    third of the trace. Blocks are at least a fortieth of the trace: the longer they
    are, the fewer queues their ends break up, and from about 40 blocks on more of them hardly make
    a variance better known (Schmeiser 1982).

    Raises UsageError if the trace holds fewer than 100 requests.
    """
    columns = applied_columns(trace)
    arrival_s = columns["arrival_ns"] / 1e9
    count = len(arrival_s)
    if count < 100:
        raise UsageError(
            f"the trace holds {count} requests; a block length takes at least 100: state block_s"
        )
    bins = count // 10
    edges = np.linspace(arrival_s[0], arrival_s[-1], bins + 1)
    tokens = columns["input_tokens"].astype(float) + columns["output_tokens"]
    blocks = [
        _politis_white(np.histogram(arrival_s, edges, weights=weights)[0].astype(float))
        for weights in (None, tokens)
    ]
    length_s = float(arrival_s[-1] - arrival_s[0])
    return max(max(blocks) * length_s / bins, length_s / _MOST_BLOCKS)


def _longest_session_s(trace: Trace) -> float:
    """The longest time within a session, between its first and last request, under seed 0."""
    depth = trace.session_segments
    if not depth:
        return 0.0
    columns = applied_columns(trace)
    begin = columns["segment_begin"].astype(np.int64)
    rows = np.flatnonzero(np.diff(begin) >= depth)
    if not len(rows):
        return 0.0
    where = begin[rows][:, None] + np.arange(depth)
    keys = np.hstack([columns["segment_content"][where], columns["segment_tokens"][where]])
    _, sessions = np.unique(keys, axis=0, return_inverse=True)
    sessions = sessions.ravel()
    arrival_ns = columns["arrival_ns"][rows].astype(np.int64)
    ends = np.zeros(sessions.max() + 1, np.int64)
    starts = np.full(len(ends), np.iinfo(np.int64).max)
    np.maximum.at(ends, sessions, arrival_ns)
    np.minimum.at(starts, sessions, arrival_ns)
    return float((ends - starts).max() / 1e9)


def _politis_white(series: Floats) -> float:
    """The block length of a circular bootstrap of the mean, in entries of the series."""
    n = len(series)
    centered = series - series.mean()
    variance = float(centered @ centered) / n
    longest = min(math.ceil(3 * math.sqrt(n)), n // 3)
    if variance == 0 or longest < 1:
        return 1.0
    quiet = max(5, math.ceil(math.sqrt(math.log10(n))))
    most = min(math.ceil(math.sqrt(n)) + quiet, n - 1)
    lags_known = min(2 * most, n - 1)
    covariances = np.array([centered[: n - k] @ centered[k:] for k in range(lags_known + 1)]) / n
    correlations = np.abs(covariances / variance)
    bound = 2 * math.sqrt(math.log10(n) / n)
    # The smallest lag after which `quiet` correlations in a row are insignificant.
    last = next(
        (m for m in range(most - quiet + 1) if (correlations[m + 1 : m + 1 + quiet] < bound).all()),
        int(np.flatnonzero(correlations[: most + 1] >= bound)[-1]),
    )
    reach = min(2 * max(last, 1), len(covariances) - 1)
    lags = np.arange(1, reach + 1)
    window = np.minimum(1, 2 * (1 - lags / reach))
    weighted = window * covariances[1 : reach + 1]
    spread = covariances[0] + 2 * weighted.sum()
    if spread <= 0:
        return 1.0
    slope = 2 * (weighted * lags).sum()
    length = (1.5 * slope**2 / spread**2 * n) ** (1 / 3)
    return float(min(max(length, 1.0), longest))


def _merged_attributes(columns: list[dict[str, Any]], order: Ints) -> dict[str, list[str]]:
    """The further columns of all traces; "" where a trace has none of that name."""
    texts = [
        {name: texts_of(code, values) for name, code, values in own.get("attributes", ())}
        for own in columns
    ]
    merged = {}
    for name in dict.fromkeys(name for of_trace in texts for name in of_trace):
        joined: list[str] = []
        for of_trace, own in zip(texts, columns, strict=True):
            joined += of_trace.get(name) or [""] * len(own["arrival_ns"])
        merged[name] = [joined[row] for row in order.tolist()]
    return merged


def _merged_models(columns: list[dict[str, Any]], order: Ints) -> dict[str, Any]:
    """The models of all traces."""
    texts = [name for own in columns for name in models_of(own)]
    return model_column([texts[row] for row in order.tolist()])


def _merged_segments(columns: list[dict[str, Ints]], order: Ints) -> dict[str, Any]:
    """The shared segments of all traces, with contents of their own."""
    counts, contents, tokens, answers, warm = [], [], [], [], []
    number = int(any("answer" in own for own in columns))  # the content 0 is no answer
    for own in columns:
        begin = own["segment_begin"]
        rows = len(own["arrival_ns"])
        counts.append(np.diff(begin.astype(np.int64)) if len(begin) else np.zeros(rows, np.int64))
        answer = own.get("answer", np.zeros(rows, np.uint64)).copy()
        both = np.concatenate([own["segment_content"], answer[answer > 0]])
        known, codes = np.unique(both, return_inverse=True)
        numbers = codes.astype(np.uint64) + np.uint64(number)
        content, answer[answer > 0] = np.split(numbers, [len(own["segment_content"])])
        contents.append(content)
        answers.append(answer)
        warm.append(own.get("warm_tokens", np.zeros(rows, np.int32)))
        tokens.append(own["segment_tokens"])
        number += len(known)
    lengths = np.concatenate(counts)
    if not lengths.any():
        return {
            "segment_begin": np.zeros(0, np.uint32),
            "segment_content": np.zeros(0, np.uint64),
            "segment_tokens": np.zeros(0, np.uint32),
        }
    begins = np.append(0, np.cumsum(lengths))
    picked = np.concatenate([np.arange(begins[row], begins[row + 1]) for row in order])
    answer = np.concatenate(answers)[order]
    return warm_column(np.concatenate(warm)[order]) | {
        **({"answer": answer} if answer.any() else {}),
        "segment_begin": np.append(0, np.cumsum(lengths[order])).astype(np.uint32),
        "segment_content": np.concatenate(contents)[picked],
        "segment_tokens": np.concatenate(tokens)[picked].astype(np.uint32),
    }


def applied_columns(trace: Trace) -> dict[str, Any]:
    """The columns of the requests that the runs under seed 0 see."""
    return _columns(applied(trace) if _trace(trace).transforms else trace)


def _trace(trace: Trace) -> Trace:
    return checked("trace", trace, Trace, "a Trace, e.g. from spillway.read_trace")


def _columns(trace: Trace) -> dict[str, Ints]:
    if not trace.has_requests:
        raise UsageError("the trace holds no requests, only their digest: read it again")
    return trace._columns()


def _outline(trace: Trace, num_transforms: int) -> dict[str, float]:
    """`rows`, `first_s`, `last_s` and `length_s` after the first transforms, under seed 0."""
    found: dict[str, float] = _core.workload._outline(  # type: ignore[attr-defined]
        trace, num_transforms
    )
    return found
