"""Agreement with BLIS v0.6.14, request by request and to the microsecond."""

from __future__ import annotations

import csv
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from support.effort import few_of
from support.paths import REFERENCE as RECORDINGS

from spillway import loading
from spillway.files.traces import TraceError
from spillway.systems.blis.runs import Recording
from spillway.validation import blis

if TYPE_CHECKING:
    from pathlib import Path

REFERENCE = RECORDINGS / "blis"

SCENARIOS = (
    "single_fcfs",
    "single_chunked",
    "single_small_budget",
    "single_kv_pressure",
    "single_prefix_evict",
    "single_sjf",
    "single_priority",
    "single_reverse",
    "rr4",
    "rr4_latencies",
    "rr8_gamma",
    "bucket4",
    "bucket4_wide",
    "reject_all",
    "ll4",
    "ll4_stale50ms",
    "busiest4",
    "weighted4_default",
    "weighted4_qd",
    "weighted4_lb",
    "weighted4_stale_kv",
    "weighted8_pa4qd3",
    "iter14_baseline",
    "iter14_rr",
)


@pytest.mark.parametrize("name", few_of(SCENARIOS, 3))
def test_recorded_runs(name: str) -> None:
    folder = REFERENCE / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing: the recorded runs are not part of the repository")
    (scenario,) = blis.validate(folder).scenarios
    with (folder / "trace.csv").open() as stream:
        offered = sum(1 for _ in stream) - 1
    assert scenario.unsupported is None
    assert scenario.first_differences == ()
    assert (scenario.requests, scenario.exact) == (offered, offered)
    assert scenario.aggregate_mismatches == ()


# One scenario worked out by hand. Two instances in turn; the bucket holds enough for the first and
# the third of four requests, which find idle instances.
#   entry delay        int(1601.35 + 3.51 · 164) = 2176 µs;  int(1601.35 + 3.51 · 36) = 1727 µs
#   prefill step       int(6910.42 + 17.67 · 164) = 9808 µs; int(6910.42 + 17.67 · 36) = 7546 µs
#   decode step        int(6910.42 + 2.84) = 6913 µs
#   delivery           int(1805.54) = 1805 µs per token, not on the clock
# Request 0 (12 tokens out): TTFT 2176 + 9808 + 1805 = 13789; E2E 13789 + 11 · 8718 = 109687.
# Request 2 (1 token out):   TTFT 1727 + 7546 + 1805 = 11078 = E2E; the last event is at
# 500000 + 1727 + 7546 = 509273 µs.
DURATION_S = 0.509273
MEAN_E2E_MS = (109.687 + 11.078) / 2
P99_TTFT_MS = 11.078 + 0.99 * (13.789 - 11.078)
RATE = 2 / DURATION_S
SCORE = 0.4 * RATE / (RATE + 100) + 0.3 / (1 + P99_TTFT_MS) + 0.3 / (1 + MEAN_E2E_MS)

TRACE = """\
request_id,client_id,tenant_id,slo_class,prefix_group,prefix_length,input_tokens,output_tokens,arrival_time_us
0,c,t0,standard,,0,164,12,0
1,c,t0,standard,,0,37,5,1000
2,c,t0,batch,,0,36,1,500000
3,c,t0,batch,,0,36,1,600000
"""
REQUESTS = """\
request_id,ttft_us,e2e_us,scheduling_delay_us,itl_mean_us,instance
0,13789,109687,2176,8718.0,instance_0
2,11078,11078,1727,0.0,instance_1
"""
AGGREGATE: dict[str, Any] = {
    "instance_id": "cluster",
    "completed_requests": 2,
    "still_queued": 0,
    "still_running": 0,
    "injected_requests": 2,
    "total_input_tokens": 200,
    "total_output_tokens": 11,
    "vllm_estimated_duration_s": DURATION_S,
    "responses_per_sec": RATE,
    "tokens_per_sec": 11 / DURATION_S,
    "e2e_mean_ms": MEAN_E2E_MS,
    "e2e_p90_ms": 11.078 + 0.90 * (109.687 - 11.078),
    "e2e_p95_ms": 11.078 + 0.95 * (109.687 - 11.078),
    "e2e_p99_ms": 11.078 + 0.99 * (109.687 - 11.078),
    "ttft_mean_ms": (13.789 + 11.078) / 2,
    "ttft_p90_ms": 11.078 + 0.90 * (13.789 - 11.078),
    "ttft_p95_ms": 11.078 + 0.95 * (13.789 - 11.078),
    "ttft_p99_ms": P99_TTFT_MS,
    "itl_mean_ms": 8.718,
    "itl_p90_ms": 8.718,
    "itl_p95_ms": 8.718,
    "itl_p99_ms": 8.718,
    "scheduling_delay_p99_ms": 1.727 + 0.99 * (2.176 - 1.727),
    "preemption_count": 0,
    "dropped_unservable": 0,
    "length_capped_requests": 0,
    "timed_out_requests": 0,
}
TEXT = [
    "=== Fitness Evaluation ===",
    f"Score: {SCORE:.6f}",
    "=== Anomaly Counters ===",
    "Priority Inversions: 0",
    "HOL Blocking Events: 0",
    "Rejected Requests (Admission): 2",
    "Rejected Requests (Routing): 0",
    "Dropped Unservable: 0",
    "Length-Capped Requests: 0",
    "=== Trace Summary ===",
    "Total Decisions: 4",
    "  Admitted: 2",
    "  Rejected: 2",
    "Target Distribution:",
    "  instance_0: 1",
    "  instance_1: 1",
    "Mean Regret: 0.000000",
    "Max Regret: 0.000000",
]
SUMMARY: dict[str, Any] = {
    "instances": 2,
    "total_kv_blocks": 1000,
    "alpha": [1601.35, 3.51, 1805.54],
    "beta": [6910.42, 17.67, 2.84],
    "options": {
        "admission_policy": "token-bucket",
        "token_bucket_capacity": 200,
        "token_bucket_refill_rate": 0,
    },
    "aggregate": AGGREGATE,
    "text": TEXT,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The scenario above as files."""
    made = tmp_path / "tiny"
    made.mkdir()
    (made / "trace.csv").write_text(TRACE)
    (made / "requests.csv").write_text(REQUESTS)
    write_summary(made)
    return made


def write_summary(folder: Path, **changes: Any) -> None:
    (folder / "summary.json").write_text(json.dumps(SUMMARY | changes))


def only(folder: Path) -> blis.ScenarioReport:
    report = blis.validate(folder)
    (scenario,) = report.scenarios
    assert report.agrees == scenario.agrees
    return scenario


def test_a_scenario_by_hand(folder: Path) -> None:
    scenario = only(folder)
    assert scenario == blis.ScenarioReport("tiny", requests=4, exact=4)
    assert scenario.agrees


@pytest.mark.parametrize(
    ("column", "row", "wrong", "words"),
    [
        ("ttft_us", 0, "13790", "ttft_us 13790 recorded, 13789 here"),
        ("ttft_us", 0, "13789.01", "ttft_us 13789.01 recorded, 13789 here"),
        ("e2e_us", 1, "11077", "e2e_us 11077 recorded, 11078 here"),
        ("scheduling_delay_us", 0, "2175", "scheduling_delay_us 2175 recorded, 2176 here"),
        ("itl_mean_us", 0, "8718.001", "itl_mean_us 8718.001 recorded, 8718 here"),
        ("itl_mean_us", 0, "nan", "itl_mean_us nan recorded, 8718 here"),
        ("instance", 1, "instance_0", "instance_0 recorded, instance_1 here"),
    ],
)
def test_a_wrong_figure_is_reported(
    folder: Path, column: str, row: int, wrong: str, words: str
) -> None:
    path = folder / "requests.csv"
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    rows[row][column] = wrong
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    scenario = only(folder)
    assert (scenario.requests, scenario.exact) == (4, 3)
    assert scenario.first_differences == (f"request {rows[row]['request_id']}: {words}",)
    assert scenario.aggregate_mismatches == ()
    assert not scenario.agrees


def test_another_set_of_completed_requests_is_reported(folder: Path) -> None:
    lines = REQUESTS.splitlines(keepends=True)
    (folder / "requests.csv").write_text("".join([*lines[:2], lines[2].replace("2,", "3,", 1)]))
    scenario = only(folder)
    assert scenario.exact == 2
    assert scenario.first_differences == (
        "request 2: completed here, but not in the recording",
        "request 3: completed in the recording, rejected here",
    )


@pytest.mark.parametrize("key", [key for key in AGGREGATE if key != "instance_id"])
def test_a_wrong_or_missing_aggregate_is_reported(folder: Path, key: str) -> None:
    value = AGGREGATE[key]
    wrong = value * (1 + 1e-8) if isinstance(value, float) else value + 1
    write_summary(folder, aggregate=AGGREGATE | {key: wrong})
    scenario = only(folder)
    assert not scenario.agrees
    assert [text.partition(":")[0] for text in scenario.aggregate_mismatches] == [key]
    write_summary(folder, aggregate={name: AGGREGATE[name] for name in AGGREGATE if name != key})
    assert [text.partition(":")[0] for text in only(folder).aggregate_mismatches] == [key]


def test_failed_allocations_are_reported(folder: Path) -> None:
    write_summary(folder, aggregate=AGGREGATE | {"kv_allocation_failures": 3})
    assert only(folder).aggregate_mismatches == ("kv_allocation_failures: 3 recorded, 0 here",)


@pytest.mark.parametrize("line", [line for line in TEXT if ": " in line])
def test_a_wrong_or_missing_line_is_reported(folder: Path, line: str) -> None:
    name, _, value = line.partition(": ")
    place = TEXT.index(line)
    wrong = f"{float(value) + 1e-6:.6f}" if "." in value else str(int(value) + 1)
    for lines in (
        [*TEXT[:place], f"{name}: {wrong}", *TEXT[place + 1 :]],
        [*TEXT[:place], *TEXT[place + 1 :]],
    ):
        write_summary(folder, text=lines)
        scenario = only(folder)
        assert not scenario.agrees
        assert len(scenario.aggregate_mismatches) == 1
        expected = "target distribution" if "instance_" in name else name.strip()
        assert scenario.aggregate_mismatches[0].startswith(f"{expected}: ")


def test_anomalies_that_are_not_printed_are_zero(folder: Path) -> None:
    start, end = TEXT.index("=== Anomaly Counters ==="), TEXT.index("=== Trace Summary ===")
    write_summary(folder, text=TEXT[:start] + TEXT[end:])
    mismatch = "Rejected Requests (Admission): None recorded, 2 here"
    assert only(folder).aggregate_mismatches == (mismatch,)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"routing_policy": "random"}, "routing_policy random"),
        ({"routing_scorers": "queue-depth:1"}, "option routing_scorers"),
        ({"admission_policy": "tier-shed"}, "admission_policy tier-shed"),
        ({"scheduler": "edf"}, "scheduler edf"),
        ({"priority_policy": ["x"]}, "priority_policy ['x']"),
        ({"kv_cpu_blocks": 10}, "option kv_cpu_blocks"),
    ],
)
def test_what_is_unsupported_is_not_run(folder: Path, changes: dict[str, Any], words: str) -> None:
    write_summary(folder, options=SUMMARY["options"] | changes)
    scenario = only(folder)
    assert scenario.unsupported is not None
    assert words in scenario.unsupported
    assert (scenario.requests, scenario.exact, scenario.agrees) == (4, 0, False)


# Prefixes and scorers worked out by hand. Request 0, which is request 0 of above, meets two idle
# instances and goes to the first; request 1 flees from it to the second; request 2 finds both idle
# and follows its prefix. Of its 36 tokens 4 are left to compute: a step of
# int(6910.42 + 17.67 * 4) = 6981 µs and a TTFT of 1727 + 6981 + 1805 = 10513 µs. Hits per
# lookup: 0 / 11 on the first instance, 2 / (2 + 3 + 1) on the second.
PREFIX_TRACE = f"""\
{TRACE.splitlines()[0]}
0,c,t0,standard,,0,164,12,0
1,c,t0,standard,g,32,4,1,1000
2,c,t0,standard,g,32,4,1,500000
"""
PREFIX_REQUESTS = f"""\
{REQUESTS.splitlines()[0]}
0,13789,109687,2176,8718.0,instance_0
1,11078,11078,1727,0.0,instance_1
2,10513,10513,1727,0.0,instance_1
"""
PREFIX_OPTIONS = {
    "routing_policy": "weighted",
    "routing_scorers": "prefix-affinity:3,queue-depth:2",
}
PREFIX_RATE = 3 / 0.508708
PREFIX_AGGREGATE = AGGREGATE | {
    "completed_requests": 3,
    "injected_requests": 3,
    "total_input_tokens": 236,
    "vllm_estimated_duration_s": 0.508708,
    "responses_per_sec": PREFIX_RATE,
    "tokens_per_sec": 11 / 0.508708,
    "e2e_mean_ms": (109.687 + 11.078 + 10.513) / 3,
    "e2e_p90_ms": 11.078 + 0.80 * (109.687 - 11.078),
    "e2e_p95_ms": 11.078 + 0.90 * (109.687 - 11.078),
    "e2e_p99_ms": 11.078 + 0.98 * (109.687 - 11.078),
    "ttft_mean_ms": (13.789 + 11.078 + 10.513) / 3,
    "ttft_p90_ms": 11.078 + 0.80 * (13.789 - 11.078),
    "ttft_p95_ms": 11.078 + 0.90 * (13.789 - 11.078),
    "ttft_p99_ms": 11.078 + 0.98 * (13.789 - 11.078),
    "scheduling_delay_p99_ms": 1.727 + 0.98 * (2.176 - 1.727),
}
PREFIX_SCORE = (
    0.4 * PREFIX_RATE / (PREFIX_RATE + 100)
    + 0.3 / (1 + PREFIX_AGGREGATE["ttft_p99_ms"])
    + 0.3 / (1 + PREFIX_AGGREGATE["e2e_mean_ms"])
)
PREFIX_TEXT = [
    f"Score: {PREFIX_SCORE:.6f}",
    "=== KV Cache Metrics ===",
    "Cache Hit Rate: 0.1667",
    "Total Decisions: 3",
    "Admitted: 3",
    "Rejected: 0",
    "instance_0: 1",
    "instance_1: 2",
    "Mean Regret: 0.000000",
    "Max Regret: 0.000000",
]


@pytest.fixture
def prefix_folder(folder: Path) -> Path:
    """The scenario above as files."""
    (folder / "trace.csv").write_text(PREFIX_TRACE)
    (folder / "requests.csv").write_text(PREFIX_REQUESTS)
    write_prefix_summary(folder)
    return folder


def write_prefix_summary(folder: Path, text: list[str] = PREFIX_TEXT) -> None:
    write_summary(folder, options=PREFIX_OPTIONS, aggregate=PREFIX_AGGREGATE, text=text)


def test_prefix_groups_and_scorers_by_hand(prefix_folder: Path) -> None:
    assert only(prefix_folder) == blis.ScenarioReport("tiny", requests=3, exact=3)


def test_a_prefix_that_is_not_shared_is_reported(prefix_folder: Path) -> None:
    (prefix_folder / "trace.csv").write_text(PREFIX_TRACE.replace("g,32,4,1,500", "h,32,4,1,500"))
    (difference,) = only(prefix_folder).first_differences
    assert difference == (
        "request 2: ttft_us 10513 recorded, 11078 here; e2e_us 10513 recorded, 11078 here; "
        "instance_1 recorded, instance_0 here"
    )


@pytest.mark.parametrize(
    ("line", "other", "words"),
    [
        ("Cache Hit Rate: 0.1667", "Cache Hit Rate: 0.1668", "0.1668 recorded, 0.1667 here"),
        ("Cache Hit Rate: 0.1667", "", "None recorded, 0.1667 here"),
        # Without its heading the line stands, without both it is zero.
        ("=== KV Cache Metrics ===", "", None),
        ("Mean Regret: 0.000000", "Mean Regret: 0.000001", "0.000001 recorded, 0.000000 here"),
        ("Max Regret: 0.000000", "", "None recorded, 0.000000 here"),
    ],
)
def test_a_wrong_or_missing_cache_or_regret_line_is_reported(
    prefix_folder: Path, line: str, other: str, words: str | None
) -> None:
    write_prefix_summary(prefix_folder, [other if text == line else text for text in PREFIX_TEXT])
    expected = () if words is None else (f"{line.partition(':')[0]}: {words}",)
    assert only(prefix_folder).aggregate_mismatches == expected


def test_a_cache_block_that_is_not_printed_is_zero(folder: Path, prefix_folder: Path) -> None:
    write_prefix_summary(prefix_folder, [line for line in PREFIX_TEXT if "Cache" not in line])
    mismatch = "Cache Hit Rate: None recorded, 0.1667 here"
    assert only(prefix_folder).aggregate_mismatches == (mismatch,)

    (folder / "trace.csv").write_text(TRACE)
    (folder / "requests.csv").write_text(REQUESTS)
    write_summary(folder, text=[*TEXT, "=== KV Cache Metrics ===", "Cache Hit Rate: 0.0000"])
    assert only(folder).agrees
    write_summary(folder, text=[*TEXT, "=== KV Cache Metrics ==="])
    mismatch = "Cache Hit Rate: None recorded, 0.0000 here"
    assert only(folder).aggregate_mismatches == (mismatch,)


def test_regret(folder: Path) -> None:
    # The second and the third request join one and two that are not yet in the queue.
    rows = [f"{i},c,t0,standard,,0,164,1,{i * 1000}" for i in range(3)]
    (folder / "trace.csv").write_text("\n".join([TRACE.splitlines()[0], *rows]))
    (folder / "requests.csv").write_text(REQUESTS.splitlines()[0])
    options = {"routing_policy": "always-busiest"}
    for mean, worst, expected in (
        ("1.000000", "2.000000", []),
        ("1.000001", "2.000000", ["Mean Regret: 1.000001 recorded, 1.000000 here"]),
        ("1.000000", "1.000000", ["Max Regret: 1.000000 recorded, 2.000000 here"]),
    ):
        text = [f"Mean Regret: {mean}", f"Max Regret: {worst}"]
        write_summary(folder, options=options, text=text)
        mismatches = only(folder).aggregate_mismatches
        assert [mismatch for mismatch in mismatches if "Regret" in mismatch] == expected


@pytest.mark.parametrize(
    ("scorers", "expected"),
    [
        (None, [("prefix_affinity", 3), ("queue_depth", 2), ("kv_utilization", 2)]),
        ("load-balance:0.5", [("load_balance", 0.5)]),
        ("queue-depth:1,prefix-affinity:4", [("queue_depth", 1), ("prefix_affinity", 4)]),
    ],
)
def test_scorers_reach_the_configuration(
    folder: Path, scorers: str | None, expected: list[tuple[str, float]]
) -> None:
    options: dict[str, Any] = {"routing_policy": "weighted", "block_size_in_tokens": 32}
    if scorers is not None:
        options["routing_scorers"] = scorers
    write_summary(folder, options=options)
    settings, unsupported = Recording(folder).settings()
    assert unsupported == []
    assert settings["router"] == {
        "kind": "weighted",
        "picker": {"kind": "best", "ties": "first"},
        "scorers": [{"kind": kind, "weight": weight} for kind, weight in expected],
    }
    assert settings["prefix_index"] == {"block_size_tokens": 32}
    assert only(folder).unsupported is None


@pytest.mark.parametrize(
    ("scorers", "words"),
    [
        (
            "queue-depht:1",
            ", options.routing_scorers: 'queue-depht' must be one of prefix-affinity, ",
        ),
        ("queue-depth:1,", ", options.routing_scorers: '' must be one of prefix-affinity, "),
        ("queue-depth", ", options.routing_scorers: 'queue-depth' must be NAME:WEIGHT"),
        ("queue-depth:x", ", options.routing_scorers: 'queue-depth:x' must be NAME:WEIGHT"),
        ("queue-depth:1:2", ", options.routing_scorers: 'queue-depth:1:2' must be NAME:WEIGHT"),
        ("queue-depth:0", ": invalid configuration: router.scorers[0].weight = 0: must be > 0"),
        ("queue-depth:nan", ": invalid configuration: router.scorers[0].weight = nan: must be"),
        (
            "queue-depth:1,queue-depth:2",
            ": invalid configuration: router.scorers[1].kind = 'queue_depth': must not occur twice",
        ),
        (5, ", options.routing_scorers: '5' must be one of prefix-affinity, "),
    ],
)
def test_wrong_scorers_are_an_error(folder: Path, scorers: Any, words: str) -> None:
    write_summary(folder, options={"routing_policy": "weighted", "routing_scorers": scorers})
    with pytest.raises(TraceError) as caught:
        blis.validate(folder)
    assert str(caught.value).startswith(f"{folder / 'summary.json'}{words}")
    assert "\n" not in str(caught.value)


def test_every_option_reaches_the_configuration(folder: Path) -> None:
    write_summary(
        folder,
        options={
            "admission_policy": "reject-all",
            "admission_latency": 5000,
            "routing_policy": "least-loaded",
            "routing_latency": 2000,
            "snapshot_refresh_interval": 50000,
            "max_num_running_reqs": 24,
            "max_num_scheduled_tokens": 512,
            "long_prefill_token_threshold": 128,
            "max_model_len": 4096,
            "block_size_in_tokens": 32,
            "scheduler": "priority-fcfs",
            "priority_policy": "slo-based",
            "horizon": 9_000_000,
        },
    )
    settings, unsupported = Recording(folder).settings()
    assert unsupported == []
    assert settings["gateway"] == {
        "admission": {"kind": "reject_all"},
        "admission_latency_s": pytest.approx(0.005),
        "routing_latency_s": pytest.approx(0.002),
    }
    assert settings["router"] == {"kind": "least_loaded", "ties": "first"}
    assert settings["signals"] == {"kind": "on_read", "period_s": pytest.approx(0.05)}
    assert settings["horizon_s"] == pytest.approx(9)
    assert settings["profile"] == "blis_0_6"
    (group,) = settings["instances"]
    assert group.pop("latency")["beta_decode_us"] == 2.84
    assert group == {
        "count": 2,
        "num_kv_blocks": 1000,
        "max_num_seqs": 24,
        "max_num_batched_tokens": 512,
        "long_prefill_token_threshold": 128,
        "max_model_len": 4096,
        "block_size_tokens": 32,
        "scheduler": {"kind": "priority_fcfs", "priority": "age"},
    }
    simulation = loading.from_settings(settings)
    assert simulation.quantum_ns == 1000
    assert simulation.metrics.accounting == "blis"
    assert simulation.router.to_dict()["ties"] == "first"
    assert simulation.instances[0].completion == "step_start"
    assert simulation.instances[0].scheduler.to_dict()["priority"] == "age"
    assert only(folder).unsupported is None


def test_ties_in_the_queue_follow_the_text_of_its_names(folder: Path) -> None:
    # "request_10" comes before "request_9"; the numbers are the other way round.
    rows = [f"{i},c,t0,standard,,0,1000,1,0" for i in (9, 10)]
    (folder / "trace.csv").write_text("\n".join([TRACE.splitlines()[0], *rows]))
    (folder / "requests.csv").write_text(REQUESTS.splitlines()[0])
    write_summary(folder, instances=1, options={"scheduler": "sjf", "max_num_running_reqs": 1})
    assert len(only(folder).first_differences) == 2  # completed, but recorded as not
    # Entry int(1601.35 + 3510) = 5111, each prefill int(6910.42 + 17670) = 24580, delivery 1805.
    (folder / "requests.csv").write_text(
        f"{REQUESTS.splitlines()[0]}\n"
        "10,31496,31496,5111,0,instance_0\n"
        "9,56076,56076,29691,0,instance_0\n"
    )
    assert only(folder).first_differences == ()


def test_a_tree_of_scenarios(folder: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "deep" / "er" / "wrong"
    shutil.copytree(folder, wrong)
    (wrong / "requests.csv").write_text(REQUESTS.replace("109687", "1"))
    report = blis.validate(tmp_path)
    assert [scenario.name for scenario in report.scenarios] == ["deep/er/wrong", "tiny"]
    assert not report.agrees
    same = {"requests": 4, "unsupported": None, "aggregate_mismatches": ()}
    assert report.to_dict()["scenarios"] == [
        {"name": "deep/er/wrong", "exact": 3} | same,
        {"name": "tiny", "exact": 4} | same,
    ]
    assert report.table().splitlines() == [
        "scenario       requests     exact  result",
        "deep/er/wrong         4         3  differs",
        "    request 0: e2e_us 1 recorded, 109687 here",
        "tiny                  4         4  agrees",
    ]
    (wrong / "requests.csv").write_text(REQUESTS)
    assert blis.validate(str(tmp_path)).agrees
    write_summary(wrong, options={"kv_cpu_blocks": 1})
    report = blis.validate(tmp_path)
    assert not report.agrees
    assert "-  unsupported: option kv_cpu_blocks" in report.table()


def test_a_report_of_nothing_agrees_with_nothing() -> None:
    assert not blis.Report(()).agrees
    assert blis.Report(()).table() == "scenario  requests     exact  result"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"instances": None}, "summary.json, instances = None: must be a whole number"),
        ({"instances": 0}, "summary.json: invalid configuration: instances[0].count = 0"),
        ({"alpha": [1, 2]}, "summary.json, alpha = [1, 2]: must be a list of three numbers"),
        ({"beta": [1, 2, "3"]}, "summary.json, beta[2] = '3': must be a number"),
        ({"aggregate": []}, "summary.json, aggregate = []: must be an object"),
        ({"text": "Score"}, "summary.json, text = 'Score': must be a list of lines"),
        (
            {"options": {"horizon": "long"}},
            "summary.json, options.horizon = 'long': must be a number",
        ),
    ],
)
def test_a_broken_summary_is_an_error(folder: Path, changes: dict[str, Any], words: str) -> None:
    write_summary(folder, **changes)
    with pytest.raises(TraceError) as caught:
        blis.validate(folder)
    assert str(caught.value).startswith(str(folder))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("summary.json", "{", "not valid JSON"),
        ("summary.json", "[1]", "must be an object"),
        ("summary.json", None, "cannot be read"),
        ("requests.csv", None, "cannot be read"),
        ("requests.csv", "", "empty; must hold"),
        ("requests.csv", "request_id,ttft_us\n", "lacks the columns e2e_us, scheduling_delay_us"),
        ("requests.csv", REQUESTS + "9,1,1,1,1,instance_0\n", "request 9 is not in trace.csv"),
        (
            "requests.csv",
            REQUESTS + "2,1,1,1,1,instance_0\n",
            "line 4, request_id = '2': occurs twice",
        ),
        ("requests.csv", REQUESTS.replace("109687", "x"), "line 2, e2e_us = 'x': must be a number"),
        ("trace.csv", "a,b\n1,2\n", "not of the format reference: request_id"),
    ],
)
def test_broken_files_are_errors(folder: Path, name: str, content: str | None, words: str) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(TraceError) as caught:
        blis.validate(folder)
    assert str(caught.value).startswith(str(folder / name))
    assert words in str(caught.value)


def test_no_scenario_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no scenario found"):
        blis.validate(tmp_path)
    with pytest.raises(TraceError, match="not a folder"):
        blis.validate(tmp_path / "missing")
