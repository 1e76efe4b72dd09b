"""Recordings as data: what holds for every one, whatever its file."""

from __future__ import annotations

import copy
import math
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spillway
from spillway import ConfigError
from spillway.data.recording import (
    Histogram,
    LatencyHistograms,
    LatencyPoints,
    Recording,
    ServerFacts,
    StepLog,
    TokenGaps,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def recording(**columns: Any) -> Recording:
    """A run of three requests, the second of which fails."""
    content: dict[str, Any] = {
        "name": "run",
        "server": ServerFacts(model="m"),
        "send_s": [0, 1, 2],
        "input_tokens": [10, 0, 30],
        "output_tokens": [11, 0, 1],
        "ttft_s": [0.5, math.nan, 0.25],
        "e2e_s": [1.5, math.nan, 0.25],
        "failed": [False, True, False],
        "failure_s": [math.nan, 3, math.nan],
    }
    return Recording(**(content | columns))


def gap_of(offsets: list[int]) -> TokenGaps:
    """A gap of 1 s."""
    return TokenGaps(np.array([1.0]), np.array(offsets))


def test_columns_are_read_only_copies() -> None:
    send_s = np.array([0.0, 1, 2])
    run = recording(send_s=send_s)
    send_s[0] = 7
    assert run.send_s.tolist() == [0, 1, 2]
    assert run.send_s.dtype == np.float64
    assert run.input_tokens.dtype == np.int64
    for column in (run.send_s, run.failed, run.itl_s):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1
    assert repr(run) == "<Recording 'run': 3 requests in 2.0 s, 1 failed, model=m>"


def test_derived_columns() -> None:
    run = recording()
    assert run.num_requests == 3
    assert run.itl_s.tolist() == pytest.approx([0.1, math.nan, math.nan], nan_ok=True)
    assert run.in_flight() == 2  # the failed request ends after 3 s
    gaps = TokenGaps(np.array([0.1, 0.2, 0.3]), np.array([0, 2, 2, 3]))
    known = recording(token_gaps=gaps).token_gaps
    assert [known.of(row).tolist() for row in range(3)] == [[0.1, 0.2], [], [0.3]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"ttft_s": [1]}, "ttft_s = 1 values: must hold 3, as send_s does"),
        ({"tenant": ("a",)}, "tenant = 1 values: must hold 3"),
        ({"send_s": [0, 2, 1]}, r"send_s = 0\.0: must begin with 0 and ascend"),
        ({"send_s": [1, 2, 3]}, r"send_s = 1\.0: must begin with 0 and ascend"),
        ({"send_s": [0, math.nan, 3]}, "must begin with 0 and ascend"),
        ({"send_s": [[0, 1, 2]]}, "send_s = 2 dimensions: must have one dimension"),
        ({"token_gaps": gap_of([0, 1])}, "token_gaps = 2 offsets: must be 4 that ascend from 0"),
        ({"token_gaps": gap_of([0, 1, 0, 1])}, "token_gaps = 4 offsets"),
    ],
)
def test_invalid_columns(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        recording(**columns)


def test_a_recording_holds_requests() -> None:
    names = ("send_s", "input_tokens", "output_tokens", "ttft_s", "e2e_s", "failed", "failure_s")
    empty: dict[str, Any] = {name: [] for name in names}
    with pytest.raises(ConfigError, match="must hold at least one request"):
        recording(**empty)


REQUEST = st.tuples(st.integers(0, 20), st.integers(0, 10), st.booleans(), st.booleans())


@given(st.lists(REQUEST, min_size=1, max_size=30))
def test_in_flight_is_that_of_a_count_at_every_instant(
    requests: Sequence[tuple[int, int, bool, bool]],
) -> None:
    """Against a count: a request is in flight from its sending until just before its end."""
    rows = sorted(requests)
    first = rows[0][0]
    failed = [fails for _, _, fails, _ in rows]
    ends = [duration if known else math.nan for _, duration, _, known in rows]
    run = recording(
        send_s=[send - first for send, *_ in rows],
        input_tokens=[1] * len(rows),
        output_tokens=[1] * len(rows),
        ttft_s=[math.nan] * len(rows),
        e2e_s=[math.nan if fails else end for end, fails in zip(ends, failed, strict=True)],
        failed=failed,
        failure_s=[end if fails else math.nan for end, fails in zip(ends, failed, strict=True)],
    )
    known = [(send - first, duration) for send, duration, _, is_known in rows if is_known]
    counts = [
        sum(send <= instant < send + duration for send, duration in known) for instant in range(31)
    ]
    # Requests without a duration are never in flight between instants, but one is while it begins.
    assert run.in_flight() in (max(counts), max(counts) + 1)
    if all(duration > 0 for _, duration in known):
        assert run.in_flight() == max(counts)


def test_traces() -> None:
    run = recording(tenant=("a", "b", "c"))
    columns = run.to_trace()._columns()
    assert columns["arrival_ns"].tolist() == [0, 2 * 10**9]
    assert columns["input_tokens"].tolist() == [10, 30]
    assert columns["tenants"] == ["a", "c"]
    with pytest.raises(ConfigError, match=r"input_tokens\[1\] = 0: must be >= 1 in a trace; keep"):
        run.to_trace(keep_failed=True)
    kept = recording(input_tokens=[10, 20, 30]).to_trace(keep_failed=True)._columns()
    assert kept["input_tokens"].tolist() == [10, 20, 30]
    assert kept["tenants"] == ["default"]
    with pytest.raises(ConfigError, match="recording = run: must hold a completed request"):
        recording(failed=[True] * 3).to_trace()
    same = spillway.trace(arrival_s=[0, 2], input_tokens=[10, 30], output_tokens=[11, 1])
    assert recording().to_trace() == same
    simulation = spillway.Simulation(workload=recording().to_trace())
    assert spillway.simulate(simulation).summary()["offered"] == 2


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_data_can_be_pickled(clone: Any) -> None:
    run = clone(recording(token_gaps=gap_of([0, 1, 1, 1])))
    assert run.send_s.tolist() == [0, 1, 2]
    assert run.token_gaps.of(0).tolist() == [1]
    facts = ServerFacts(model="m")
    points = clone(LatencyPoints(facts, {"isl": "8"}, 8, 4, [1, 2], [0.1, 0.2], [0.01, 0.02]))
    assert (points.group["isl"], points.concurrency.tolist()) == ("8", [1, 2])
    assert repr(points) == "<LatencyPoints: 2 points, 8 → 4 tokens, model=m>"


def test_servers() -> None:
    first = ServerFacts(model="m", gpu="H100", max_num_seqs=128)
    assert first.key == "model=m gpu=H100 max_num_seqs=128"
    assert first.replace(max_num_seqs=256).key != first.key
    assert first.replace(name="mine").key == "mine"
    assert ServerFacts(model="m") == ServerFacts(model="m")
    assert ServerFacts().key == ""
    with pytest.raises(ConfigError, match="max_num_seqs = True: must be a whole number >= 1"):
        ServerFacts(max_num_seqs=True)
    with pytest.raises(ConfigError, match="model = '': must be text that is not empty"):
        ServerFacts(model="")
    with pytest.raises(TypeError, match="gpus"):
        first.replace(gpus=2)


def test_step_logs() -> None:
    names = ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens")
    columns: dict[str, Any] = {name: [1, 2] for name in names}
    log = StepLog("0", ServerFacts(model="m"), **columns, step_s=[0.1, 0.2])
    assert repr(log) == "<StepLog '0': 2 steps, model=m>"
    with pytest.raises(ConfigError, match="context_tokens = 1 values: must hold 2, as step_s does"):
        StepLog("0", ServerFacts(), **columns, step_s=[0.1, 0.2], context_tokens=[1])


def test_histograms() -> None:
    histogram = Histogram([0.1, 0.2, math.inf], [2, 6, 8], 1.2)
    assert histogram.count == 8
    assert histogram.mean == pytest.approx(0.15)
    quantiles = [histogram.quantile(share) for share in (0, 0.125, 0.5, 0.75, 1)]
    assert quantiles == pytest.approx([0, 0.05, 0.15, 0.2, 0.2])  # the highest finite bound
    empty = Histogram([math.inf], [0], 0)
    assert math.isnan(empty.mean)
    assert math.isnan(empty.quantile(0.5))
    for upper, counts, message in (
        ([0.1], [1], r"upper = \[0\.1\]: must ascend and end with \+Inf"),
        ([0.2, 0.1, math.inf], [1, 2, 3], "must ascend"),
        ([0.1, math.inf], [2, 1], r"cumulative = \[2, 1\]: must not decrease"),
        ([0.1, math.inf], [2], "2 bounds, 1 counts: must be equally many"),
        ([], [], "must be equally many, at least one"),
    ):
        with pytest.raises(ConfigError, match=message):
            Histogram(upper, counts, 0)
    with pytest.raises(ConfigError, match=r"share = 1\.5: must be >= 0 and <= 1"):
        histogram.quantile(1.5)


def test_the_difference_of_two_scrapes() -> None:
    def scrape(counts: Sequence[int], **counters: float) -> LatencyHistograms:
        ttft_s = Histogram([0.1, math.inf], counts, sum(counts) / 10)
        return LatencyHistograms("0", ServerFacts(), {"ttft_s": ttft_s}, {"running": 1}, counters)

    early = scrape([1, 2], prefix_cache_queries=10, prefix_cache_hits=10)
    late = scrape([4, 9], prefix_cache_queries=30, prefix_cache_hits=15)
    between = late.since(early)
    assert between.histograms["ttft_s"].cumulative.tolist() == [3, 7]
    assert between.histograms["ttft_s"].sum == pytest.approx(1.0)
    assert between.prefix_hit_rate == 0.25
    assert math.isnan(scrape([1, 2]).prefix_hit_rate)
    with pytest.raises(ConfigError, match=r"earlier\.ttft_s\.count = 9: must not exceed"):
        early.since(late)
    with pytest.raises(ConfigError, match=r"earlier\.prompt_tokens = 5: must be <= 4"):
        scrape([1, 2], prompt_tokens=4).since(scrape([1, 2], prompt_tokens=5))
    other = LatencyHistograms("0", ServerFacts(), {})
    with pytest.raises(ConfigError, match=r"earlier\.ttft_s: must have the same buckets"):
        late.since(other)
