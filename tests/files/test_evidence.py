"""What a file is, holds and lacks: `spillway.read`, and what the readers of recordings share."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.paths import DATA, ROOT

import spillway
from spillway import ConfigError, TraceError
from spillway.calibration.replay import Replay
from spillway.calibration.server_measurements import check_completeness
from spillway.cli import main
from spillway.cli.output import plain
from spillway.data.recording import RequestCounts
from spillway.data.shared_prompts import conversation_segments
from spillway.files.evidence import Evidence
from spillway.files.recordings import rows
from spillway.files.recordings.reconciliation import FIGURES, reconcile
from spillway.files.recordings.rows import Request, Settings, parsed_requests, rows_of
from spillway.files.recordings.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.data.recording import Recording

pytestmark = pytest.mark.filterwarnings("ignore:.*malformed requests? left out")

FILES = DATA / "recordings"
FIELDS = {"send": ("t", "s"), "ttft": ("ttft", "s"), "e2e": ("e2e", "s"), "gaps": ("gaps", "s")}


def request(at: int, **changes: Any) -> Request:
    """A request a second after the one before: TTFT 50 ms, eleven tokens, 20 ms apart."""
    known: dict[str, Any] = {
        "place": f"line {at + 1}",
        "send": float(at),
        "ttft": 0.05,
        "e2e": 0.25,
        "input_tokens": 100,
        "output_tokens": 11,
        "failed": False,
        "gaps": [0.02] * 10,
    }
    return Request(**known | changes)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    path = tmp_path / "run.txt"
    path.write_text("a run\n")
    return Source(path)


def recorded(
    source: Source, requests: list[Request], settings: Settings | None = None, **others: Any
) -> Recording:
    found = rows_of(source, requests, FIELDS, **others)
    return rows.recording(found, settings or Settings(), "toy")


# --- read -----------------------------------------------------------------------------------------


def test_a_trace() -> None:
    found = spillway.read(ROOT / "examples" / "requests.csv")
    assert (found.format, found.offers, found.notes) == ("columns", ("trace",), ())
    assert found.trace == spillway.read_trace(ROOT / "examples" / "requests.csv")
    assert found.text().splitlines()[2] == "requests: 2,000"
    assert repr(found) == "<Evidence 'requests.csv': columns, trace>"
    with pytest.raises(TraceError, match=r"gives no recording; it gives trace \(columns\)"):
        _ = found.recording
    assert found.to_dict()["runs"] == []


def test_a_recording() -> None:
    found = spillway.read(FILES / "vllm_bench.json")
    assert (found.format, found.offers) == ("vllm_bench", ("trace", "recording"))
    assert found.recording.num_requests == 3
    assert found.trace.rows == 2
    assert found.trace.max_in_flight == 8
    lines = found.text().splitlines()
    assert "requests: 3, 1 failed" in lines
    assert "span: 1.250 s, 1.6 requests/s" in lines
    assert "client: at most 8 requests in flight; 1 at once here" in lines
    (facts,) = found.to_dict()["runs"]
    assert (facts["requests"], facts["failed"], facts["output_tokens"]) == (3, 1, 7)
    assert facts["mean_ttft_s"] == pytest.approx(0.0685)
    json.dumps(plain(found.to_dict()))


def test_columns_with_a_latency_describe_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("t0,prompt,answer,first\n0,5,2,0.1\n1,6,2,0.1\n")
    names = {"input_tokens": "prompt", "output_tokens": "answer"}
    trace = spillway.read(path, columns=names | {"arrival_s": "t0"})
    assert trace.offers == ("trace",)
    measured = {"send_s": "t0", "ttft_s": "first"}
    run = spillway.read(path, columns=names | measured, units={"t0": "s", "first": "s"})
    assert run.offers == ("trace", "recording")
    assert run.trace.rows == trace.trace.rows == 2
    assert "client: no limit on requests in flight is stated\n" in run.text()
    assert "missing: ITL, E2E; `calibrate` and `validate` need TTFT and E2E" in run.text()


def test_a_folder_of_runs() -> None:
    found = spillway.read(FILES / "list_of_runs")
    assert found.format == "folder"
    assert [run.name for run in found.recordings] == ["chat", "code"]
    with pytest.raises(TraceError, match=r"recording: holds several: 2; take one of `.recordings`"):
        _ = found.trace
    assert found.text().count("\nrun ") == 2


def test_other_measurements() -> None:
    points = spillway.read(FILES / "silicon.csv")
    assert points.offers == ("points",)
    with pytest.raises(TraceError, match=r"several: 2; take one of `\.points_of_servers`"):
        _ = points.points
    assert "1,024" in points.text()
    steps = spillway.read(FILES / "serve.log")
    assert steps.offers == ("step log",)
    assert "steps: 3 of 000" in steps.text()
    page = spillway.read(FILES / "metrics.prom")
    assert page.offers == ("histograms",)
    with pytest.raises(TraceError, match="gives no recording; it gives histograms"):
        _ = page.trace


def test_what_is_assumed_is_a_note_and_no_warning(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,tennant\n0,5,1,a\nx,6,1,b\n1,6,1,b\n")
    found = spillway.read(path, skip_bad=True)
    unused, skipped = found.notes
    assert "unused columns: tennant (did you mean tenant?)" in unused
    assert "1 malformed row skipped; the first: " in skipped
    assert found.text().splitlines()[-2:] == [f"note: {note}" for note in found.notes]
    assert found.to_dict()["notes"] == [unused, skipped]


@pytest.mark.parametrize("name", ["trace", "recording"])
def test_a_file_that_is_nothing_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("no measurements\n")
    with pytest.raises(TraceError, match="unknown format: no measurements") as caught:
        spillway.read(path)
    lines = str(caught.value).splitlines()
    kinds = ("trace", "recordings", "logs of steps", "histograms", "points")
    assert all(any(line.startswith(f"  {kind}: ") for line in lines) for kind in kinds)
    assert len(lines) < 16
    assert "send_s=…" in lines[-1]
    with pytest.raises(TraceError, match="did you mean 'blis'"):
        spillway.read(path, format="blys")


# --- a recording as a trace -----------------------------------------------------------------------


def test_a_recording_is_replayed() -> None:
    with pytest.warns(UserWarning, match="a recording of the format vllm_bench, replayed with its"):
        trace = spillway.read_trace(FILES / "vllm_bench.json")
    assert trace == spillway.read(FILES / "vllm_bench.json").recording.to_trace()
    with (
        pytest.warns(UserWarning, match="replayed"),
        pytest.warns(UserWarning, match="states client_max_in_flight = 8; .*: .* = 3$"),
    ):
        limited = spillway.read_trace(FILES / "vllm_bench.json", client_max_in_flight=3)
    assert limited.max_in_flight == 3


@pytest.mark.filterwarnings("ignore::UserWarning")  # notes on what was read
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("aiperf_0_13.jsonl", "aiperf"),
        ("guidellm_0_8.json", "guidellm"),
        ("inference_perf_0_7.json", "inference_perf"),
        ("lmbench.csv", "lmbench"),
        ("requests.csv", "csv"),
    ],
)
def test_a_recording_of_any_tool_is_replayed(
    name: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = spillway.read_recordings(FILES / name)[0]
    trace = spillway.read_trace(FILES / name)
    assert trace == run.to_trace()
    assert trace.rows == int((~run.failed).sum())
    config = tmp_path / "config.yaml"
    config.write_text("schema: 1\n")
    for arguments in (
        ["run", str(config), "--trace", str(FILES / name)],
        ["traffic", "describe", str(FILES / name)],
    ):
        assert main(arguments) == 0
        shown = capsys.readouterr()
        assert f"a recording of the format {form}, replayed" in shown.err
        assert shown.out


def test_options_of_recordings_are_refused_for_traces() -> None:
    options: list[dict[str, Any]] = [
        {"units": {"t": "s"}},
        {"client_max_in_flight": 4},
        {"num_replicas": 2},
        {"run": "chat"},
    ]
    for option in options:
        for reader in (spillway.read_trace, spillway.read):
            with pytest.raises(TraceError, match=r"= .*: only of a recording; .* is a trace"):
                reader(ROOT / "examples" / "requests.csv", **option)


@pytest.mark.parametrize("option", [{"time_unit": "ms"}, {"block_size_tokens": 16}])
def test_options_of_traces_are_refused_for_recordings(option: dict[str, Any]) -> None:
    for reader in (spillway.read_trace, spillway.read):
        with pytest.raises(TraceError, match=r"= .*: only of a trace; .* is a recording"):
            reader(FILES / "vllm_bench.json", **option)


@pytest.mark.parametrize("reader", [spillway.read, spillway.read_recordings])
def test_units_without_columns_are_refused(reader: Any) -> None:
    with pytest.raises(TraceError, match="units: only for files of the format columns"):
        reader(FILES / "vllm_bench.json", units={"ttfts": "ms"})


# --- several runs ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*unused columns. index")
def test_one_of_several_runs_is_chosen() -> None:
    folder = FILES / "list_of_runs"
    with pytest.raises(TraceError, match=r"2 runs \(1 chat; 2 code\); choose one: --trace-run"):
        spillway.read_trace(folder)
    for run in ("code", 2, "2"):
        with pytest.warns(UserWarning, match=r"list_of_runs, run code: a recording of the format"):
            trace = spillway.read_trace(folder, run=run)
        (chosen,) = spillway.read(folder, run=run).recordings
        (same,) = spillway.read_recordings(folder, run=run)
        assert chosen.name == same.name == "code"
        assert trace == chosen.to_trace() == same.to_trace()
    for run in ("cod", 0, 3):
        with pytest.raises(TraceError, match=rf"run = {run!r}: must be the name of a run, or"):
            spillway.read_trace(folder, run=run)


@pytest.mark.filterwarnings(
    "ignore:.*unused columns. index", "ignore:.*no measurements of their own. "
)
@pytest.mark.filterwarnings("ignore:.*traces, each", "ignore:.*count twice")
def test_folders_in_a_folder_are_read(tmp_path: Path) -> None:
    for name in ("a", "b/c", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(FILES / "vllm_bench.json", tmp_path / name / "run.json")
    shutil.copytree(FILES / "list_of_runs", tmp_path / "d")
    shutil.copy(ROOT / "examples" / "requests.csv", tmp_path)
    (tmp_path / "README.md").write_text("Runs.\n")
    found = spillway.read(tmp_path)
    names = ["a/run", "b/c/run", "d/chat", "d/code"]
    assert [run.name for run in found.recordings] == names
    assert f"{tmp_path}: no measurements of their own: README.md" in found.notes
    assert f"{tmp_path}: traces, each to be read by itself: requests.csv" in found.notes
    assert [run.name for run in spillway.read_recordings(tmp_path)] == names
    with pytest.warns(UserWarning, match="run b/c/run: a recording of the format vllm_bench"):
        assert spillway.read_trace(tmp_path, run="b/c/run").rows == 2


# --- replicas -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*unused columns. index")
def test_replicas_are_a_stated_fact(tmp_path: Path) -> None:
    found = spillway.read(FILES / "vllm_bench.json", num_replicas=4)
    assert found.recording.num_replicas == 4
    assert "replicas of the server: 4\n" in found.text()
    assert found.to_dict()["runs"][0]["num_replicas"] == 4
    with pytest.warns(UserWarning, match="4 replicas served it, so give the fleet as many instan"):
        spillway.read_trace(FILES / "vllm_bench.json", num_replicas=4)
    assert spillway.read(FILES / "vllm_bench.json").recording.num_replicas is None
    for wrong in (0, 1.5):
        with pytest.raises(TraceError, match=f"num_replicas = {wrong}: must be a whole number"):
            spillway.read(FILES / "vllm_bench.json", num_replicas=wrong)  # type: ignore[arg-type]
    shutil.copytree(FILES / "list_of_runs", tmp_path / "runs")
    index = tmp_path / "runs" / "runs.json"
    runs = json.loads(index.read_text())
    runs[1]["num_replicas"] = 3
    index.write_text(json.dumps(runs))
    assert [run.num_replicas for run in spillway.read_recordings(index.parent)] == [None, 3]


def test_a_replay_has_a_fleet_of_the_replicas(source: Source) -> None:
    run = recorded(source, [request(at) for at in range(4)], Settings(num_replicas=3))
    group = spillway.instance.InstanceGroup()
    assert Replay(run).simulation(group).instances[0].count == 3


def test_a_warm_cache_at_the_beginning_is_said(tmp_path: Path) -> None:
    lines = (FILES / "profile_export.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row["metrics"]["usage_prompt_cache_read_tokens"] = {"value": 5, "unit": "tokens"}
    path = tmp_path / "profile_export.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (
        pytest.warns(UserWarning, match="its server had cached are in every cache from the start"),
        pytest.warns(UserWarning, match="without its summary profile_export_aiperf.json beside"),
    ):
        spillway.read_trace(path)


# --- the tool's own figures -----------------------------------------------------------------------


@pytest.mark.parametrize("key", FIGURES)
def test_a_figure_agrees_within_rounding(key: str, source: Source) -> None:
    run = recorded(source, [request(at, failed=at == 5) for at in range(40)])
    figure = FIGURES[key]
    value = figure.of(run)
    assert value > 0
    (same,) = reconcile(run, {key: value * (1 + 0.9 * figure.tolerance)})
    assert (same.name, same.recomputed, same.cause) == (figure.name, value, "")
    off = value / (1 - 1.2 * figure.tolerance) + (0 if figure.tolerance > 0.01 else 1e-4)
    (other,) = reconcile(run, {key: off})
    assert other.cause
    assert f"{figure.name}" in str(other)


@pytest.mark.parametrize(
    ("key", "value", "cause"),
    [
        ("completed", 41, "the file does not list all requests"),
        ("completed", 39, "warm-up or failed requests are among the listed ones"),
        ("mean_ttft_s", 50, "another unit, by the factor 0.001"),
        ("mean_ttft_s", 5e-8, "another unit, by the factor 1e+06"),
        ("mean_ttft_s", 0.08, "warm-up is counted, requests are missing, or values were changed"),
    ],
)
def test_the_cause_of_a_difference(key: str, value: float, cause: str, source: Source) -> None:
    (figure,) = reconcile(recorded(source, [request(at) for at in range(40)]), {key: value})
    assert figure.cause == cause


def test_what_is_not_known_is_not_compared(source: Source) -> None:
    run = recorded(source, [request(at, ttft=None, gaps=()) for at in range(40)])
    unknown = {"mean_ttft_s": 1.0, "mean_tpot_s": 1.0, "mean_gap_s": 1.0, "mean_e2e_s": math.nan}
    assert reconcile(run, unknown) == ()


def test_the_clock_of_a_short_run_may_run_longer(source: Source) -> None:
    short = recorded(source, [request(at) for at in range(4)])
    assert reconcile(short, {"duration_s": 6.0})[0].cause == ""
    long = recorded(source, [request(at) for at in range(40)])
    assert reconcile(long, {"duration_s": 73.0})[0].cause


def test_other_figures_are_said(source: Source) -> None:
    figures = {"completed": 3, "mean_ttft_s": 0.4}
    with pytest.warns(UserWarning, match="the tool reports other figures: mean TTFT"):
        run = recorded(source, [request(at) for at in range(3)], reported=figures)
    assert len(run.mismatches) == 1
    notes = (f"run.txt: the tool reports other figures: {run.mismatches[0]}", "another note")
    said = Evidence(source.path, "toy", "", recordings=(run,), notes=notes).text()
    assert "as the tool reports: completed\n" in said
    assert said.count(str(run.mismatches[0])) == 1
    assert said.endswith("note: another note")
    with pytest.raises(TraceError, match="--allow-mismatch"):
        check_completeness([run], allow_mismatch=False)
    with pytest.warns(UserWarning, match="the tool reports other figures: mean TTFT"):
        check_completeness([run], allow_mismatch=True)


def test_a_sample_is_no_load(source: Source) -> None:
    with pytest.warns(UserWarning, match="a sample: the file lists 3 of 10 requests"):
        run = recorded(source, [request(at) for at in range(3)], reported={"completed": 10})
    assert run.is_sample
    assert run.counts.unlisted == 7
    with pytest.raises(ConfigError, match="must be a recording of all requests"):
        run.to_trace()
    for allow_mismatch in (False, True):
        with pytest.raises(TraceError, match="a sample of 3 of 10 requests; its load is not known"):
            check_completeness([run], allow_mismatch=allow_mismatch)


@pytest.mark.filterwarnings("ignore:.* malformed ")
@pytest.mark.parametrize("counts", [RequestCounts(warm_up=7), RequestCounts(skipped=7)])
def test_requests_that_are_left_out_are_no_sample(counts: RequestCounts, source: Source) -> None:
    requests = [request(at) for at in range(3)]
    run = recorded(source, requests, reported={"completed": 10}, counts=counts)
    assert not run.is_sample
    assert run.mismatches == ()
    with pytest.warns(UserWarning, match="2 requests reported, 3 requests here"):
        run = recorded(source, requests, reported={"completed": 2}, counts=counts)
    assert run.mismatches


# --- odd rows -------------------------------------------------------------------------------------


def parse(text: str) -> Request | None:
    if not text:
        return None
    if not text.isdigit():
        raise TraceError(f"{text}: must be a whole number")
    return request(int(text))


@pytest.mark.parametrize(
    ("entries", "kept", "skipped"),
    [([], [], 0), (["1", "", "3"], [1, 3], 0), (["x", "1", "y"], [1], 2), (["x"], [], 1)],
)
def test_malformed_entries_are_skipped_and_counted(
    entries: list[str], kept: list[int], skipped: int
) -> None:
    found, count = parsed_requests(entries, parse, Settings(skip_bad=True))
    assert [known.send for known in found] == kept
    assert count == skipped
    if skipped:
        with pytest.raises(TraceError, match="must be a whole number"):
            parsed_requests(entries, parse, Settings())


@pytest.mark.filterwarnings("ignore:.* malformed ")
@pytest.mark.parametrize(
    "bad",
    [
        {"send": None},
        {"send": math.nan},
        {"ttft": -5.0, "e2e": -4.0},
        {"ttft": math.inf},
        {"input_tokens": 0},
        {"output_tokens": -1},
        {"input_tokens": 10**12},
    ],
)
def test_malformed_requests_are_skipped_and_counted(bad: dict[str, Any], source: Source) -> None:
    requests = [request(0), request(1, **bad), request(2), request(3, **bad)]
    with pytest.raises(TraceError, match="line 2"):
        recorded(source, requests)
    run = recorded(source, requests, Settings(skip_bad=True))
    assert (run.num_requests, run.counts.skipped) == (2, 2)
    with pytest.raises(TraceError, match="holds no requests that are not malformed"):
        recorded(source, requests[1::2], Settings(skip_bad=True))


@pytest.mark.parametrize(("count", "wrong"), [(2, 1), (50, 1), (300, 3)])
def test_a_few_latencies_below_0_are_unknown(count: int, wrong: int, source: Source) -> None:
    requests = [request(at, **({"ttft": -0.001} if at < wrong else {})) for at in range(count)]
    message = rf"run.txt line 1, ttft = -0.001: .* \({wrong} of {count} completed requests\)"
    with pytest.warns(UserWarning, match=message):
        run = recorded(source, requests)
    assert np.isnan(run.ttft_s).sum() == wrong
    assert not np.isnan(run.e2e_s).any()


@pytest.mark.parametrize(("count", "wrong"), [(1, 1), (50, 2), (300, 4)])
def test_many_latencies_below_0_are_refused(count: int, wrong: int, source: Source) -> None:
    requests = [request(at, **({"ttft": -0.001} if at < wrong else {})) for at in range(count)]
    with pytest.raises(TraceError, match=r"line 1, ttft = -0\.001: the latency must be >= 0"):
        recorded(source, requests)


# --- conversations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turns", "tokens"),
    [
        ([("a", 100, 10), ("a", 130, 5)], [[100], [100, 10, 20]]),
        ([("a", 100, 10), ("b", 100, 10)], [[100], [100]]),
        ([("a", 100, 10), ("", 130, 5)], [[100], []]),
        ([("a", 100, 10), ("a", 50, 5)], [[100], [50]]),
        ([("a", 100, 10), ("a", 105, 5)], [[100], [100, 5]]),
        ([("a", 100, 0), ("a", 110, 5)], [[100], [100, 10]]),
    ],
)
def test_turns_begin_with_the_conversation_before(
    turns: list[tuple[str, int, int]], tokens: list[list[int]]
) -> None:
    names, inputs, outputs = zip(*turns, strict=True)
    found = conversation_segments(names, inputs, outputs)
    begin = found["segment_begin"]
    parts = [found["segment_tokens"][a:b] for a, b in itertools.pairwise(begin)]
    assert [list(part) for part in parts] == tokens
    contents = [found["segment_content"][a:b] for a, b in itertools.pairwise(begin)]
    shared = set(contents[0]) & set(contents[1])
    assert bool(shared) is (turns[0][0] == turns[1][0] and turns[1][1] >= turns[0][1])


def test_a_recording_of_conversations_is_replayed_with_them(source: Source) -> None:
    turns = [request(0, session="a"), request(1, session="b"), request(2, session="a")]
    turns[2] = turns[2]._replace(input_tokens=150)
    trace = recorded(source, turns).to_trace()
    assert spillway.traffic.describe(trace).reused_share == pytest.approx(100 / 350)


def test_cached_tokens_are_a_beginning_that_prompts_share(source: Source) -> None:
    requests = [request(at, cached_tokens=at and 64) for at in range(3)]
    run = recorded(source, requests)
    assert run.cached_tokens is not None
    assert run.cached_tokens.tolist() == [0, 64, 64]
    assert spillway.traffic.describe(run.to_trace()).reused_share == pytest.approx(64 / 300)
