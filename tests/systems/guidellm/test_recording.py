"""Reports of GuideLLM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.guidellm import START, TEN, benchmark_of, entry, mean, report_of
from support.recordings import FILES, run_of, values

from spillway import ConfigError, TraceError
from spillway.files.recordings import read_recordings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*count twice"),
    pytest.mark.filterwarnings("ignore:.*malformed requests? left out"),
    pytest.mark.filterwarnings("ignore:.*a latency below 0 is taken as unknown"),
]


def test_guidellm() -> None:
    run = run_of("benchmarks.json")
    assert values(run.send_s) == [0, 1, 2]
    assert values(run.input_tokens) == [1000, 1010, 0]
    assert values(run.ttft_s) == [0.09, 0.1, None]
    assert values(run.e2e_s) == [1.5, 1.6, None]
    assert values(run.failed) == [False, False, True]  # the request that was never sent is not here
    assert run.server.model == "Qwen/Qwen3-14B"


def test_output_of_guidellm() -> None:
    run = run_of("guidellm_0_8.json")
    assert np.diff(run.send_s).tolist() == pytest.approx([0.25] * 4, abs=0.01)
    assert values(run.output_tokens[~run.failed]) == [9] * 4
    assert values(run.failed).count(True) == 1
    assert 0.06 < np.nanmin(run.ttft_s) <= np.nanmax(run.ttft_s) < 0.1
    assert np.nanmedian(run.itl_s) == pytest.approx(0.0122, abs=0.0005)
    assert run.server.model == "stub"
    assert run.failure_s[run.failed][0] < 0.05


def test_guidellm_names_several_benchmarks(tmp_path: Path) -> None:
    report = json.loads((FILES / "benchmarks.json").read_text())
    report["benchmarks"] *= 2
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(report))
    assert [run.name for run in read_recordings(path)] == ["sweep[0]", "sweep[1]"]


def test_fields_of_0_3(tmp_path: Path) -> None:
    """Until 0.3 times have other names, and counts, strategy and model other places."""
    requests = [
        {
            "start_time": START + at,
            "end_time": START + at + 1.1,
            "request_latency": 1.1,
            "time_to_first_token_ms": 50.0,
            "prompt_tokens": 100,
            "output_tokens": 50,
        }
        for at in range(5)
    ]
    old = {
        "args": {"strategy": {"type_": "concurrent", "streams": 3}},
        "run_stats": {"requests_made": {"successful": 7, "total": 7}},
        "request_totals": {"successful": 5, "errored": 0, "incomplete": 0, "total": 5},
        "worker": {"backend_model": "acme/m"},
        "metrics": {"time_to_first_token_ms": mean(50.0), "prompt_token_count": mean(100.0)},
        "requests": {"successful": requests, "errored": [], "incomplete": [], "total": None},
    }
    with pytest.warns(UserWarning, match="2 requests of its warm-up and cool-down are not in"):
        run = run_of(report_of(tmp_path / "old.json", old))
    assert (run.num_requests, run.send_s[-1], run.client_max_in_flight) == (5, 4, 3)
    assert run.server.model == "acme/m"
    assert "start_time" in run.units
    assert [figure.name for figure in run.reported] == [
        *("completed", "failed", "mean TTFT", "mean prompt")
    ]
    assert run.mismatches == ()


@pytest.mark.parametrize(
    ("strategy", "profile", "limit"),
    [
        ({"type_": "concurrent", "max_concurrency": 2, "streams": 2}, {}, 2),
        ({"type_": "concurrent", "streams": 3}, {}, 3),  # until 0.4
        ({"type_": "synchronous"}, {}, 1),
        ({"type_": "throughput", "max_concurrency": 64}, {"kind": "sweep"}, 64),
        ({"type_": "throughput", "max_concurrency": None}, {}, None),
        ({"type_": "poisson", "max_concurrency": 512}, {"type_": "poisson"}, None),
        (
            {"type_": "constant", "max_concurrency": 7},
            {"kind": "constant", "max_concurrency": 7},
            7,
        ),
        (
            {"type_": "constant", "max_concurrency": 512},
            {"kind": "sweep", "max_concurrency": 512},
            None,
        ),
    ],
)
def test_the_strategy_limits_the_client(
    strategy: dict[str, Any], profile: dict[str, Any], limit: int | None, tmp_path: Path
) -> None:
    """A limit that the tool sets itself beside a rate is not one of the load."""
    benchmark = benchmark_of(TEN, strategy=strategy, profile=profile)
    run = run_of(report_of(tmp_path / "run.json", benchmark))
    assert run.client_max_in_flight == limit
    assert run.to_trace().max_in_flight == (limit or 0)


def test_the_strategy_of_0_4(tmp_path: Path) -> None:
    """It is in `scheduler`."""
    strategy = {"type_": "concurrent", "streams": 3}
    benchmark = benchmark_of(TEN) | {"scheduler": {"strategy": strategy}}
    del benchmark["config"]
    path = tmp_path / "run.json"
    assert run_of(report_of(path, benchmark)).client_max_in_flight == 3
    benchmark["scheduler"]["strategy"] = "synchronous"
    assert run_of(report_of(path, benchmark)).client_max_in_flight == 1


@pytest.mark.parametrize(
    "others",
    [
        {"args": {"model": "acme/m"}},
        {"args": {"backend_kwargs": {"model": "acme/m"}}},
        {"config": {"spec": {"backend": {"model": "acme/m"}}}},
        {"args": {"model": {"path": "m"}}, "config": {"spec": {"backend": {"model": "acme/m"}}}},
    ],
)
def test_the_model(others: dict[str, Any], tmp_path: Path) -> None:
    assert run_of(report_of(tmp_path / "r.json", [benchmark_of(TEN)], **others)).server.model == (
        "acme/m"
    )
    benchmark = benchmark_of(TEN)
    benchmark["config"]["backend"] = {"model": "acme/m"}
    assert run_of(report_of(tmp_path / "r.json", benchmark)).server.model == "acme/m"


@pytest.mark.filterwarnings("ignore:.*lists requests twice")
def test_users_who_send_on_at_once_keep_the_limit(tmp_path: Path) -> None:
    """An end and the next start are one instant, but for the rounding of seconds since 1970."""
    listed = [entry(START + 1.1 * (at // 2)) for at in range(10)]
    strategy = {"type_": "concurrent", "streams": 2}
    run = run_of(report_of(tmp_path / "run.json", benchmark_of(listed, strategy=strategy)))
    assert run.in_flight() == 2


def test_requests_outside_of_the_measurement_are_left_out(tmp_path: Path) -> None:
    """Those count that overlap the time of measurement, as in the tool's own figures."""
    listed = [entry(START, ttft_ms=170.0), *TEN[1:9], entry(START + 90, ttft_ms=60.0)]
    benchmark = benchmark_of(
        listed,
        counts=(8, 0, 0),
        metrics={"time_to_first_token_ms": mean(50.0), "requests_per_second": mean(9.0)},
        scheduler_metrics={
            "measure_start_time": START + 11.1,  # the end of the second request, which counts
            "measure_end_time": START + 80,  # the start of the ninth
        },
    )
    with pytest.warns(UserWarning, match="2 requests of its warm-up and cool-down are left out"):
        run = run_of(report_of(tmp_path / "run.json", benchmark))
    assert (run.num_requests, run.counts.warm_up) == (8, 2)
    assert np.nanmean(run.ttft_s) == pytest.approx(0.05)
    assert run.mismatches == ()
    assert "rate" not in [figure.name for figure in run.reported]  # its span is another


def test_mean_ttft_of_first_tokens_within_the_measurement(tmp_path: Path) -> None:
    """Since 0.7 a request may count whose first token came before the time of measurement."""
    listed = [entry(START, ttft_ms=10.0), entry(START + 0.5, ttft_ms=30.0), *TEN[1:]]
    metrics = {"time_to_first_token_ms": mean(50.0), "request_latency": mean(1.1)}
    timing = {"measure_start_time": START + 1, "measure_end_time": START + 1000}
    benchmark = benchmark_of(listed, metrics=metrics, scheduler_metrics=timing)
    run = run_of(report_of(tmp_path / "run.json", benchmark))
    assert run.num_requests == 11
    assert run.mismatches == ()
    assert [figure.name for figure in run.reported] == ["completed", "failed", "mean E2E"]
    benchmark["metrics"]["time_to_first_token_ms"] = mean(45.0)  # of neither rule
    with pytest.warns(UserWarning, match="mean TTFT: 0.045 s reported"):
        run_of(report_of(tmp_path / "run.json", benchmark))


def test_a_sample_is_no_load(tmp_path: Path) -> None:
    benchmark = benchmark_of(TEN[:4], counts=(190, 6, 4))
    with pytest.warns(UserWarning, match="a sample: the file lists 4 of 200 requests"):
        run = run_of(report_of(tmp_path / "run.json", benchmark))
    assert run.is_sample
    assert run.counts.unlisted == 196
    with pytest.raises(ConfigError, match="4 of 200 requests: must be a recording of all"):
        run.to_trace()


def test_a_sample_with_warm_up(tmp_path: Path) -> None:
    """The tool counts the requests of the measurement alone, and lists some of all."""
    timing = {"measure_start_time": START + 15, "measure_end_time": START + 1000}
    benchmark = benchmark_of(TEN[:4], counts=(5, 0, 0), scheduler_metrics=timing)
    with pytest.warns(UserWarning, match="lists 4 of 7 requests|warm-up") as notes:
        run = run_of(report_of(tmp_path / "run.json", benchmark))
    assert len(notes) == 2
    assert run.is_sample
    assert (run.counts.warm_up, run.counts.unlisted) == (2, 3)


@pytest.mark.parametrize("version", ["args", "config"])
def test_a_report_that_lists_no_requests(version: str, tmp_path: Path) -> None:
    benchmark = benchmark_of([], counts=(2, 0, 0))
    path = report_of(tmp_path / "run.json", [benchmark], **{version: {}})
    with pytest.raises(TraceError, match=r"counts 2 requests and lists none.*--sample-requests"):
        read_recordings(path)
    with pytest.raises(TraceError, match="holds no requests"):
        read_recordings(report_of(path, benchmark_of([])))


def test_one_benchmark_of_several_lists_no_requests(tmp_path: Path) -> None:
    path = report_of(tmp_path / "run.json", [benchmark_of([], counts=(2, 0, 0)), benchmark_of(TEN)])
    with pytest.warns(UserWarning, match=r"benchmarks\[0\]: no run: the report counts 2 requests"):
        runs = read_recordings(path)
    assert [run.name for run in runs] == ["run[1]"]


def test_a_negative_ttft_is_unknown(tmp_path: Path) -> None:
    listed = [*TEN[:9], entry(START + 90, ttft_ms=-3.0)]
    with pytest.warns(UserWarning, match=r"time_to_first_token_ms = -3: a latency below 0"):
        run = run_of(report_of(tmp_path / "run.json", benchmark_of(listed)))
    assert values(run.ttft_s)[-1] is None
    assert run.num_requests == 10


def test_what_became_of_requests(tmp_path: Path) -> None:
    """Failed ones, those that the end cut off, and those never sent, which the tool counts too."""
    unsent = {"request_start_time": None, "request_end_time": START + 95}
    failed = entry(START + 92, ttft_ms=None, request_latency=None, output_tokens=None)
    benchmark = benchmark_of(TEN, errored=[failed], incomplete=[entry(START + 95), unsent])
    run = run_of(report_of(tmp_path / "run.json", benchmark))
    assert (run.num_requests, int(run.failed.sum())) == (12, 2)
    assert (run.counts.cut_off, run.counts.never_sent, run.counts.unlisted) == (1, 1, 0)
    assert run.failure_s[run.failed][0] == pytest.approx(1.1)
    assert run.mismatches == ()


def test_figures_that_the_requests_do_not_give(tmp_path: Path) -> None:
    metrics = {
        "time_to_first_token_ms": mean(44.0),
        "request_latency": mean(1.1),
        "output_token_count": mean(50.0),
        "requests_per_second": mean(0.109),
    }
    path = report_of(tmp_path / "run.json", benchmark_of(TEN, metrics=metrics))
    with pytest.warns(UserWarning, match="mean TTFT: 0.044 s reported, 0.05 s here"):
        run = run_of(path)
    assert [figure.name for figure in run.mismatches] == ["mean TTFT"]
    assert len(run.reported) == 6


def test_conversations_and_cached_tokens(tmp_path: Path) -> None:
    """Since 0.8; a conversation of one turn is none."""
    turns = [("a", 100, 0), ("b", 100, 0), ("a", 250, 96), ("a", 400, 240)]
    listed = [
        entry(
            START + 10 * at,
            prompt_tokens=prompt,
            input_metrics={"total_tokens": prompt, "cached_tokens": cached},
            info={"conversation_id": name},
        )
        for at, (name, prompt, cached) in enumerate(turns)
    ]
    run = run_of(report_of(tmp_path / "run.json", benchmark_of(listed)))
    assert run.session == ("a", "", "a", "a")
    assert run.cached_tokens is not None
    assert values(run.cached_tokens) == [0, 0, 96, 240]


def test_lengths_in_metrics_of_the_request(tmp_path: Path) -> None:
    others = {"input_metrics": {"total_tokens": 70}, "output_metrics": {"total_tokens": 7}}
    listed = [entry(START, prompt_tokens=None, output_tokens=None, **others)]
    run = run_of(report_of(tmp_path / "run.json", benchmark_of(listed)))
    assert (values(run.input_tokens), values(run.output_tokens)) == ([70], [7])


def test_malformed_requests_are_skipped(tmp_path: Path) -> None:
    listed = [*TEN[:9], entry(START + 90, prompt_tokens="many")]
    path = report_of(tmp_path / "run.json", benchmark_of(listed))
    with pytest.raises(TraceError, match=r"successful\[9\]\.prompt_tokens = 'many'"):
        run_of(path)
    run = run_of(path, skip_bad=True)
    assert (run.num_requests, run.counts.skipped, run.is_sample) == (9, 1, False)


@pytest.mark.filterwarnings("ignore:.*request_latency is not the time")
def test_overload_is_read(tmp_path: Path) -> None:
    """The report states the unit in the name of the field, whatever the value."""
    listed = [entry(START + at, ttft_ms=8e5, request_latency=801.0) for at in range(5)]
    with pytest.warns(UserWarning, match="median TTFT 800 s, which is unusual"):
        run = run_of(report_of(tmp_path / "run.json", benchmark_of(listed)))
    assert values(run.ttft_s) == [800.0] * 5


REFUSED = {
    "benchmarks.json": [
        ('"prompt_tokens": 1010, ', "", r"successful\[0\]\.prompt_tokens: missing"),
        ("101,", "10.5,", r"requests\.successful\[0\]\.output_tokens = 10\.5: must"),
        ('"errored": [', '"errored": [1, ', r"errored\[0\] = 1: must be an object"),
    ]
}


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"request_end_time": START - 1}, "the request ends before it starts"),
        ({"request_latency": 2.2}, "request_latency is not the time from start to end"),
        ({"total_tokens": 50}, "total_tokens is not the sum of prompt and output"),
        (
            {"inter_token_latency_ms": 60.0},
            "TTFT and the times between tokens do not add up to the latency",
        ),
    ],
)
def test_fields_that_contradict_each_other_are_said(
    changes: dict[str, Any], wrong: str, tmp_path: Path
) -> None:
    listed = [entry(START + 10 * at, **changes) for at in range(5)]
    with pytest.warns(UserWarning, match=rf"successful\[0\]: {wrong}, as in 5 of 5 requests"):
        run_of(report_of(tmp_path / "run.json", benchmark_of(listed)))
    agreeing = {"total_tokens": 150, "inter_token_latency_ms": 1050 / 49}
    run_of(report_of(tmp_path / "run.json", benchmark_of([entry(START, **agreeing)])))
