"""The command line: its commands, and its messages for invalid input."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.blis_scenario import SCENARIO
from support.paths import ROOT, TESTS

import spillway
from spillway import (
    Simulation,
    cli,
    fingerprint,
    gateway,
    load,
    presets,
    profiles,
    read_trace,
    simulate,
)
from spillway.comparison import Comparison
from spillway.files.export import SUMMARIES

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = ROOT / "examples" / "noisy_neighbor.yaml"
SMALLEST = TESTS / "golden" / "configs" / "smallest.yaml"

CONFIG = """\
schema: 1
workload: {kind: synthetic, num_requests: 50, requests_per_s: 20}
tenants: [{name: default}, {name: gold}]
gateway: {admission: {kind: token_bucket, capacity_tokens: 5000}}
instances: {count: 2}
"""
HEADER = "arrival_s,input_tokens,output_tokens,request_id\n"
TRACE = HEADER + "0,400,3,first\n0.25,500,2,second\n0.5,9999,1,third\n"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG)
    Path("requests.csv").write_text(TRACE)


# The line about a trace that was read.
TOTALS = re.compile(r"spillway: .*: [0-9,]+ requests in [0-9,.]+ s, [0-9,]+ input .* tokens\n")


@pytest.fixture
def run(called: Callable[..., Any]) -> Callable[..., str]:
    """Calls a command that succeeds and returns what it prints."""

    def succeed(*arguments: str | Path) -> str:
        status, out, err = called(*arguments)
        assert (status, TOTALS.sub("", err)) == (0, "")
        return str(out)

    return succeed


@pytest.fixture
def refused(called: Callable[..., Any]) -> Callable[..., str]:
    """Calls a command that is refused and returns its message."""

    def fail(*arguments: str | Path) -> str:
        status, out, err = called(*arguments)
        assert (status, out) == (2, "")
        assert err.startswith("spillway: ")
        assert err.endswith("\n")
        assert err.count("spillway: ") == 1
        assert "Traceback" not in err
        return str(err).removeprefix("spillway: ").removesuffix("\n")

    return fail


# --- run ------------------------------------------------------------------------------------------


def test_run_prints_tables(run: Callable[..., str]) -> None:
    out = run("run", "config.yaml")
    assert out == f"{simulate(load('config.yaml'))}\n"
    assert "50 requests: " in out
    assert f"profile vllm, seed 0, fingerprint {fingerprint(load('config.yaml'))[:12]}" in out
    assert run("run", "config.yaml") == out


def test_run_of_the_example(run: Callable[..., str]) -> None:
    out = run("run", EXAMPLE, "--set", "workload.num_requests=300")
    for word in ("gold", "silver", "bronze", "critical", "sheddable", "ttft", "goodput"):
        assert word in out


def test_seed(run: Callable[..., str]) -> None:
    outs = {seed: run("run", "config.yaml", "--seed", seed) for seed in ("0", "7", str(2**64 - 1))}
    assert outs["0"] == run("run", "config.yaml")
    assert len(set(outs.values())) == 3
    assert json.loads(run("run", "config.yaml", "--seed", "7", "--json"))["seed"] == 7


def test_out_and_json_hold_the_same(
    run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = run("run", "config.yaml", "--seed", "4", "--json", "--out", "results/deep")
    summary = json.loads(Path("results/deep/summary.json").read_text())
    assert json.loads(printed) == summary == simulate(load("config.yaml"), 4).to_dict()
    with Path("results/deep/requests.csv").open(newline="") as stream:
        assert len(list(csv.reader(stream))) == 51
    # Again into the same folder; tables instead of JSON change nothing about the files.
    capsys.readouterr()
    assert cli.main(["run", "config.yaml", "--seed", "4", "--out", "results/deep"]) == 0
    assert capsys.readouterr().err == (
        "spillway: replaces results/deep/summary.json, results/deep/requests.csv\n"
    )
    assert json.loads(Path("results/deep/summary.json").read_text()) == summary
    assert sorted(path.name for path in Path("results/deep").iterdir()) == [
        "requests.csv",
        "summary.json",
    ]


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        (["warm_up_s=0.5"], "warm_up_s", 0.5),
        (["warm_up_s=1e-1"], "warm_up_s", 0.1),
        (["horizon_s=2"], "horizon_s", 2),
        (["horizon_s=null"], "horizon_s", None),
        (["workload.num_requests=7"], "workload.num_requests", 7),
        (["workload.num_requests=7", "workload.num_requests=8"], "workload.num_requests", 8),
        (["gateway.admission=reject_all"], "gateway.admission", "reject_all"),
        (["gateway.limit={kind: fixed, max_in_flight: 3}"], "gateway.limit",
         {"kind": "fixed", "max_in_flight": 3}),
        (["gateway.admission=[token_bucket, reject_all]"], "gateway.admission",
         ["token_bucket", "reject_all"]),
        (["gateway.admission[0].capacity_tokens=700"],
         "gateway.admission[0].capacity_tokens", 700),
        (["gateway.admission[token_bucket].capacity_tokens= 700 "],
         "gateway.admission[0].capacity_tokens", 700),
        (["tenants[gold].weight=2"], "tenants[1].weight", 2),
        (["tenants[gold].name=a=b"], "tenants[1].name", "a=b"),
        (["tenants[gold].name='12'"], "tenants[1].name", "12"),
    ],
)  # fmt: skip
def test_set(run: Callable[..., str], changes: list[str], path: str, value: Any) -> None:
    options = [word for change in changes for word in ("--set", change)]
    found = json.loads(run("run", "config.yaml", "--json", *options))
    assert found["fingerprint"] == fingerprint(load("config.yaml").with_({path: value}))


def test_several_changes_at_once(run: Callable[..., str]) -> None:
    out = run("check", "config.yaml", "--set", "router=least_loaded", "--set", "warm_up_s=1")
    expected = load("config.yaml").with_({"router": "least_loaded", "warm_up_s": 1})
    assert fingerprint(expected)[:12] in out


def test_later_changes_build_on_earlier_ones(run: Callable[..., str]) -> None:
    out = run("check", "config.yaml", "--set", "router=least_loaded", "--set", "router.ties=random")
    expected = load("config.yaml").with_({"router": {"kind": "least_loaded", "ties": "random"}})
    assert fingerprint(expected)[:12] in out


def test_trace_replaces_the_workload(run: Callable[..., str]) -> None:
    for out, config in (("first", "config.yaml"), ("second", SMALLEST)):
        run("run", config, "--trace", "requests.csv", "--out", out)
        with Path(out, "requests.csv").open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert [row["request_id"] for row in rows] == ["first", "second", "third"]
        assert [row["outcome"] for row in rows][:2] == ["completed", "completed"]
    expected = simulate(load("config.yaml").replace(workload=read_trace("requests.csv")))
    printed = run("run", "config.yaml", "--trace", "requests.csv", "--json")
    assert json.loads(printed)["metrics"] == dict(expected.summary())


def test_trace_of_the_file_is_not_read_in_vain(run: Callable[..., str]) -> None:
    Path("trace.yaml").write_text("schema: 1\nworkload: {kind: trace, file: gone.csv}\n")
    assert "3 requests" in run("run", "trace.yaml", "--trace", "requests.csv")


def test_mooncake_traces(
    run: Callable[..., str], refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    def line(timestamp: float, tokens: int, ids: list[int]) -> str:
        keys = ("timestamp", "input_length", "output_length", "hash_ids")
        return json.dumps(dict(zip(keys, (timestamp, tokens, 2, ids), strict=True))) + "\n"

    Path("m.jsonl").write_text(line(0, 600, [1, 2]) + line(40, 700, [1, 3]))
    arguments = ("run", "config.yaml", "--json", "--trace", "m.jsonl", "--trace-format", "mooncake")
    expected = simulate(load("config.yaml").replace(workload=read_trace("m.jsonl")))
    assert json.loads(run(*arguments)) == expected.to_dict()
    Path("m.jsonl").write_text(line(0, 30, [1, 2]) + line(4, 20, [1, 3]))
    options = ("--trace-unit", "s", "--trace-block-size-tokens", 16, "--trace-spread-s", 0.5)
    trace = read_trace("m.jsonl", unit="s", block_size_tokens=16, spread_s=0.5)
    found = json.loads(run(*arguments, *options))
    assert found["fingerprint"] == fingerprint(load("config.yaml").replace(workload=trace))
    assert "m.jsonl line 1, hash_ids = 2 ids: must be 1" in refused(*arguments)
    Path("m.jsonl").write_text(line(0, 30, [1]) * 100)
    assert cli.main(list(map(str, arguments))) == 0
    warning = capsys.readouterr().err
    assert warning.startswith("spillway: warning: m.jsonl: its 100 requests arrive at only 1 inst")
    assert warning.endswith(
        "m.jsonl: 100 requests in 0.000 s, 3,000 input tokens, 200 output tokens\n"
    )
    assert warning.count("\n") == 2


def test_trace_formats_and_sorting(run: Callable[..., str], refused: Callable[..., str]) -> None:
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    late, early = "2023-11-16 18:15:47,300,2\n", "2023-11-16 18:15:46,200,1\n"
    Path("azure.csv").write_text(azure + early + late)
    assert "2 requests" in run("run", "config.yaml", "--trace", "azure.csv")
    assert "2 requests" in run(
        "run", "config.yaml", "--trace", "azure.csv", "--trace-format", "azure"
    )
    wrong = refused("run", "config.yaml", "--trace", "azure.csv", "--trace-format", "columns")
    assert wrong.startswith(
        "azure.csv: not of the format columns: arrival_s, input_tokens, output_tokens missing"
    )
    Path("azure.csv").write_text(azure + late + early)
    unsorted = refused("run", "config.yaml", "--trace", "azure.csv")
    assert unsorted.startswith("azure.csv line 3, TIMESTAMP = '2023-11-16 18:15:46': is earlier")
    assert "--sort" in unsorted
    assert "2 requests" in run("run", "config.yaml", "--trace", "azure.csv", "--sort")


def test_heavy_shedding_is_explained(run: Callable[..., str]) -> None:
    out = run("run", "config.yaml", "--set", "gateway.admission.refill_tokens_per_s=1")
    share = "82.0% of the requests were not completed: insufficient_tokens"
    assert f"note: {share}, decided by gateway.admission[0] = token_bucket " in out
    assert "(capacity_tokens = 5000, refill_tokens_per_s = 1)" in out
    refusing = run("run", "config.yaml", "--set", "gateway.admission=[always_admit, reject_all]")
    assert (
        "note: 100.0% of the requests were not completed: reject_all, decided by "
        "gateway.admission[1] = reject_all." in refusing
    )
    admitting = ("--set", "gateway.admission=always_admit")
    assert "not completed" not in run("run", "config.yaml", *admitting)
    small = run("run", "config.yaml", *admitting, "--set", "instances.num_kv_blocks=2")
    assert (
        "100.0% of the requests were not completed: unservable, decided by "
        "instances[0].num_kv_blocks = 2, instances[0].max_model_len = 131072." in small
    )


def test_notes_on_files_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.yaml").write_text("")
    Path("users.csv").write_text("arrival_s,input_tokens,output_tokens,user\n0,5,5,a\n")
    for arguments, expected in (
        (["empty.yaml"], ["empty.yaml: empty, so every setting has its default"]),
        (
            ["config.yaml", "--trace", "users.csv"],
            [
                (
                    "users.csv: unused columns: user; optional columns are request_id, tenant, "
                    "slo_class, prefix_group, prefix_tokens, session, warm_tokens, max_tokens, "
                    "model"
                )
            ],
        ),
    ):
        for command in ("run", "check"):
            assert cli.main([command, *arguments]) == 0
            err = TOTALS.sub("", capsys.readouterr().err)
            assert err.splitlines() == [f"spillway: warning: {line}" for line in expected]


def test_refused_run_writes_nothing(refused: Callable[..., str]) -> None:
    Path("taken").mkdir()
    Path("taken/summary.json").mkdir()
    wrong = refused("run", "config.yaml", "--out", "taken")
    assert wrong == "taken/summary.json: cannot be written: Is a directory"
    assert [path.name for path in Path("taken").iterdir()] == ["summary.json"]


def test_unfinished_requests_are_explained(run: Callable[..., str]) -> None:
    out = run(
        "run", "config.yaml", "--set", "horizon_s=0.2", "--set", "gateway.admission_latency_s=1"
    )
    assert "note: 100.0% of the requests had not finished when the run ended" in out
    assert "horizon_s = 0.2" in out


# --- compare --------------------------------------------------------------------------------------


def test_compare_prints_verdicts(run: Callable[..., str]) -> None:
    Path("larger.yaml").write_text(CONFIG.replace("count: 2", "count: 3"))
    arguments = ("compare", "config.yaml", "larger.yaml", "--seeds", "3")
    figures = ("--figures", "mean_ttft_ms,rejected", "--allow-different-populations")
    systems = {name: load(f"{name}.yaml") for name in ("config", "larger")}
    found = spillway.compare(
        systems, seeds=3, figures=["mean_ttft_ms", "rejected"], allow_different_populations=True
    )
    assert run(*arguments, *figures) == f"{found}\n"
    assert json.loads(run(*arguments, *figures, "--json")) == json.loads(
        json.dumps(found.to_dict())
    )
    sequential = run(*arguments, *figures, "--half-width", "1000%", "--max-seeds", "6", "--json")
    assert json.loads(sequential)["looks"] == [3, 6]


def test_compare_judges_all_pairs(run: Callable[..., str]) -> None:
    names = [f"{count}.yaml" for count in (2, 3, 4)]
    for name in names:
        Path(name).write_text(CONFIG.replace("count: 2", f"count: {name[0]}"))
    arguments = ("compare", *names, "--seeds", "2", "--figures", "rejected", "--json")
    for extra, pairs in ((), ["2 3", "2 4"]), (("--all-pairs",), ["2 3", "2 4", "3 4"]):
        verdicts = json.loads(run(*arguments, *extra))["verdicts"]
        assert [f"{verdict['baseline']} {verdict['challenger']}" for verdict in verdicts] == pairs


def test_compare_replays_a_trace(run: Callable[..., str]) -> None:
    Path("mine.csv").write_text("at_s;prompt;output\n2;100;5\n1;200;7\n")
    Path("larger.yaml").write_text(CONFIG.replace("count: 2", "count: 3"))
    columns = "arrival_s=at_s,input_tokens=prompt,output_tokens=output"
    arguments = ("compare", "config.yaml", "larger.yaml", "--seeds", "2", "--trace", "mine.csv")
    found = json.loads(run(*arguments, "--columns", columns, "--sort", "--json"))
    trace = spillway.read_trace(
        "mine.csv",
        columns={"arrival_s": "at_s", "input_tokens": "prompt", "output_tokens": "output"},
        sort=True,
    )
    systems = {name: load(f"{name}.yaml").replace(workload=trace) for name in ("config", "larger")}
    assert found == json.loads(json.dumps(spillway.compare(systems, seeds=2).to_dict()))


def test_compare_changes_the_traffic_of_all_systems(run: Callable[..., str]) -> None:
    Path("larger.yaml").write_text(CONFIG.replace("count: 2", "count: 3"))
    change = "all: prompts x3"
    arguments = ("compare", "config.yaml", "larger.yaml", "--seed", "5", "--seeds", "2", "--json")
    systems = {
        name: spillway.traffic.changed(load(f"{name}.yaml"), change)
        for name in ("config", "larger")
    }
    expected = spillway.compare(systems, seeds=[5, 6]).to_dict()
    assert json.loads(run(*arguments, "--traffic", change)) == json.loads(json.dumps(expected))
    Path("larger.yaml").write_text(f"{CONFIG.replace('count: 2', 'count: 3')}traffic: '{change}'")
    Path("config.yaml").write_text(f"{CONFIG}traffic: '{change}'")
    traced = [*arguments[:3], "--trace", "requests.csv", "--seeds", "2", "--json"]
    twice = json.loads(run(*traced))
    assert json.loads(run(*traced, "--traffic", "all: prompts x2")) != twice


def test_compare_writes_a_figure_and_a_file(called: Callable[..., Any]) -> None:
    pytest.importorskip("matplotlib").use("agg")
    Path("larger.yaml").write_text(CONFIG.replace("count: 2", "count: 3"))
    pair = ("compare", "config.yaml", "larger.yaml", "--seeds", "2")
    status, out, err = called(*pair, "--plot", "forest.png", "--out", "compared.json")
    assert (status, err) == (0, "spillway: wrote compared.json\n")
    assert Path("forest.png").read_bytes().startswith(b"\x89PNG")
    assert f"{Comparison.load('compared.json')}\n" == out


def test_compare_names_what_is_wrong(refused: Callable[..., str]) -> None:
    assert refused("compare", "config.yaml") == "systems = 1 systems: must be at least two"
    pair = ("compare", "config.yaml", EXAMPLE)
    assert refused("compare", "config.yaml", "config.yaml").endswith("must be different files")
    assert refused(*pair, "--half-width", "x").startswith("--half-width = 'x': must be a share")
    assert refused(*pair, "--threads", "0") == "--threads = 0: must be >= 1"
    assert refused(*pair, "--seeds", "1") == "seeds = 1: must be at least 2 seeds"
    assert "must be one of completed" in refused(*pair, "--figures", "nothing")


def test_run_several_seeds(run: Callable[..., str], refused: Callable[..., str]) -> None:
    run("init", "new.yaml")
    settings = ("--set", "workload.duration_s=30", "--seeds", "3")
    assert run("run", "new.yaml", *settings).startswith("3 seeds, 95% confidence intervals")
    figures = json.loads(run("run", "new.yaml", "--json", *settings))["figures"]
    assert figures["goodput"]["low"] < figures["goodput"]["mean"] < figures["goodput"]["high"]
    assert "must be >= 2" in refused("run", "new.yaml", "--seeds", "1")
    assert refused("run", "new.yaml", "--seeds", "3", "--html", "out.html") == (
        "--html: is of one run: not together with --seeds"
    )


def test_several_seeds_leave_a_folder(run: Callable[..., str]) -> None:
    arguments = ("run", "config.yaml", "--seed", "5", "--seeds", "2", "--out", "out")
    run(*arguments)
    assert {path.name for path in Path("out").iterdir()} == set(SUMMARIES)
    assert json.loads(Path("out/summary.json").read_text())["seeds"] == [5, 6]
    shutil.rmtree("out")
    run(*arguments, "--out-format", "csv")
    assert Path("out/seed_6/requests.csv").is_file()


@pytest.mark.slow
def test_run_draws_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert cli.main(["init", "new.yaml"]) == 0
    arguments = ["run", "new.yaml", "--set", "workload.duration_s=30"]
    assert cli.main([*arguments, "--plot", "out.png", "--html", "out.html"]) == 0
    assert "wrote out.png" in capsys.readouterr().err
    assert Path("out.png").read_bytes().startswith(b"\x89PNG")
    assert "Gateway and fleet over time" in Path("out.html").read_text()


# --- check, describe, init, validate --------------------------------------------------------------


def test_check(run: Callable[..., str]) -> None:
    for path, name in (("config.yaml", "vllm"), (EXAMPLE, "vllm"), (SMALLEST, "vllm")):
        digest = fingerprint(load(path))[:12]
        assert run("check", path) == f"{path}: ok, profile {name}, fingerprint {digest}\n"
    Path("blis.yaml").write_text("profile: blis_0_6\n" + CONFIG)
    assert "profile blis_0_6" in run("check", "blis.yaml")
    assert "profile custom" in run("check", "blis.yaml", "--set", "quantum_ns=1")
    run("check", SMALLEST, "--trace", "requests.csv")


def test_settings_that_cannot_work(capsys: pytest.CaptureFixture[str]) -> None:
    cap = "gateway.limit={kind: fixed, max_in_flight: 50}"
    for command in ("check", "run"):
        assert cli.main([command, "config.yaml", "--set", cap]) == 0
        printed = capsys.readouterr()
        assert printed.err == (
            "spillway: warning: gateway.limit[0].max_in_flight: the limit cannot bind: it is 50, "
            "and the workload has 50 requests.\n"
        )
        assert "cannot bind" not in printed.out
        assert cli.main([command, "config.yaml", "--set", cap.replace("50", "49")]) == 0
        assert not capsys.readouterr().err


def test_describe(run: Callable[..., str], refused: Callable[..., str]) -> None:
    whole = run("describe")
    for name in Simulation().to_dict():
        assert f"  {name} = " in whole
    bucket = run("describe", "gateway.admission.token_bucket")
    details = "[tokens; >= 0; search 1000 to 1e+06 (log); can change during a run]"
    assert f"capacity_tokens = 10000.0    {details}" in bucket
    assert "insufficient_tokens: the bucket holds fewer tokens than the prompt" in bucket
    one = run("describe", "gateway.admission[0].token_bucket.capacity_tokens")
    assert one.startswith("gateway.admission[0].token_bucket.capacity_tokens: float = 10000.0")
    kinds = run("describe", "gateway.admission")
    assert kinds.startswith("gateway.admission: a list of policies = always_admit\n")
    assert "more: spillway describe gateway.admission.KIND" in kinds
    for kind in ("always_admit", "reject_all", "token_bucket"):
        assert f"  {kind}: " in kinds
    assert "llama-3.1-8b-h100-tp2" in run("describe", "instances.latency.linear")
    assert refused("describe", "gateway.admision") == (
        "gateway.admision: unknown setting 'admision' in gateway; one of admission, "
        "admission_latency_s, bands, max_queued, queue_shedding, retry_after_s, drain_latency_s, "
        "dispatch, attempt_period_s, expiry_period_s, limit, usage_limit, eviction, controller, "
        "guard, sensor, routing_latency_s, decision_latency_s, replicas, split"
    )
    assert json.loads(run("describe", "--schema")) == spillway.loading.json_schema()


def test_init_writes_a_short_file_with_something_to_decide(run: Callable[..., str]) -> None:
    text = run("init")
    assert text.startswith("# yaml-language-server: $schema=")
    assert len(text.splitlines()) < 40
    run("init", "new.yaml")
    simulation = load("new.yaml")
    assert [tenant.name for tenant in simulation.tenants] == ["gold", "free"]
    assert all(slo_class.target_ttft_s for slo_class in simulation.slo_classes)
    short = run("run", "new.yaml", "--json", "--set", "workload.duration_s=120")
    wide = run(
        "run", "new.yaml", "--json", "--set", "workload.duration_s=120",
        "--set", "gateway.limit.max_in_flight=128",
    )  # fmt: skip
    goodput = [json.loads(text)["metrics"]["goodput"] for text in (short, wide)]
    assert goodput[0] < 0.9
    assert goodput[1] > 0.99


def test_init_full_writes_a_file_that_means_the_defaults(
    run: Callable[..., str], refused: Callable[..., str]
) -> None:
    text = run("init", "--full")
    assert (
        run("init", "--full", "new.yaml") == "wrote new.yaml; run it with: spillway run new.yaml\n"
    )
    assert Path("new.yaml").read_text() == text
    assert load("new.yaml") == Simulation()
    Path("blis.yaml").write_text(text.replace("profile: vllm", "profile: blis_0_6"))
    assert load("blis.yaml") == profiles.blis_0_6(Simulation())
    run("run", "new.yaml", "--set", "workload.num_requests=5")
    assert max(map(len, text.splitlines())) <= 100

    # Every setting stands there with its documentation, also those that the profile decides.
    settings = yaml.safe_load(text)
    assert settings["gateway"] == gateway.Gateway().to_dict()
    assert "# quantum_ns: 1  # (set by the profile)" in text

    Path("new.yaml").write_text("mine")
    assert refused("init", "new.yaml") == (
        "new.yaml: already exists; not overwritten (--force replaces it)"
    )
    assert Path("new.yaml").read_text() == "mine"
    run("init", "--full", "--force", "new.yaml")
    assert Path("new.yaml").read_text() == text
    assert refused("init", "no/such/folder.yaml") == (
        "no/such/folder.yaml: cannot be written: No such file or directory"
    )


def test_validate(
    run: Callable[..., str], refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("recorded") / "tiny"
    folder.mkdir(parents=True)
    for name, content in SCENARIO.items():
        (folder / name).write_text(content)
    out = run("validate", "blis", "recorded")
    assert out.splitlines()[1].split() == ["tiny", "1", "1", "agrees"]
    (scenario,) = json.loads(run("validate", "blis", "recorded", "--json"))["scenarios"]
    assert (scenario["requests"], scenario["exact"]) == (1, 1)

    requests = folder / "requests.csv"
    requests.write_text(SCENARIO["requests.csv"].replace("7500", "7501"))
    assert cli.main(["validate", "blis", "recorded"]) == 1
    out, err = capsys.readouterr()
    assert "differs" in out
    assert "7501" in out
    assert err == ""

    requests.write_text(SCENARIO["requests.csv"])
    summary = folder / "summary.json"
    summary.write_text(SCENARIO["summary.json"].replace("Max Regret: 0", "Max Regret: 1"))
    assert cli.main(["validate", "blis", "recorded"]) == 1
    assert "Max Regret: 1.000000 recorded, 0.000000 here" in capsys.readouterr().out

    requests.unlink()
    assert refused("validate", "blis", "recorded").startswith(f"{requests}: cannot be read")
    assert refused("validate", "blis", "elsewhere") == "elsewhere: not a folder"


FLEET = """
workload: {kind: synthetic, requests_per_s: 14, num_requests: 1200}
instances:
  count: 2
  latency: {kind: linear, beta0_us: 6000, beta_prefill_us: 30, beta_decode_us: 150}
"""


def test_validate_recording(
    run: Callable[..., str], refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("fleet.yaml").write_text(FLEET)
    Path("slow.yaml").write_text(FLEET.replace("6000", "7500"))
    run("run", "fleet.yaml", "--seed", "9", "--out", "out")
    command = ("validate", "recording", "fleet.yaml", "out/requests.csv")
    unjudged = ("--unjudged", "beta_decode_us", "--unjudged", "beta_prefill_us")
    text = run(*command, *unjudged, "--no-store")
    assert text.rstrip().endswith("verdict: met")
    assert not Path("fleet.acceptance.yaml").exists()
    document = json.loads(run(*command, *unjudged, "--no-store", "--json", "--seeds", "2"))
    assert document["verdict"] == "met"
    assert document["figures"]["p50_tpot_ms"]["tolerance"] == 0.05
    assert document["recording"]["requests"] == 1200
    assert cli.main([*command, *unjudged]) == 0
    assert capsys.readouterr().err == "spillway: wrote fleet.acceptance.yaml\n"
    assert Path("fleet.acceptance.yaml").read_text().startswith("kind: acceptance\n")
    assert "refutes" not in run("run", "fleet.yaml")

    wrong = ["validate", "recording", "slow.yaml", "out/requests.csv"]
    assert cli.main(wrong) == 1
    out, err = capsys.readouterr()
    assert "verdict: not met (p50_tpot_ms +" in out
    assert err == "spillway: wrote slow.acceptance.yaml\n"
    assert "refutes the servers" in run("run", "slow.yaml")
    assert cli.main([*wrong, "--tolerance", "p50_tpot_ms=60%", "--no-store"]) == 1

    lines = Path("out/requests.csv").read_text().splitlines(keepends=True)
    Path("short.csv").write_text("".join(lines[:100]))
    assert cli.main(["validate", "recording", "fleet.yaml", "short.csv", "--no-store"]) == 3
    assert "verdict: undecided" in capsys.readouterr().out

    assert refused(*command, "--tolerance", "shed=x") == (
        "--tolerance = 'shed=x': must be FIGURE=ERROR, e.g. p90_ttft_ms=20% or p90_ttft_ms=0.2"
    )
    assert refused(*command, "--seeds", "1") == "seeds = 1: must be >= 2 and <= 100"
    assert refused(*command, "--trace-time-unit", "ms").startswith("out/requests.csv: time_unit: ")
    assert refused(*command[:3], "gone.csv").startswith("gone.csv: cannot be read")
    assert refused(*command, "--workers", "gone.csv").startswith("gone.csv: cannot be read")


# --- wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("routr: round_robin\n", "routr = 'round_robin': unknown setting; did you mean 'router'?"),
        ("workload: {kind: synthetic, requests_per_s: -1}\n",
         "workload.requests_per_s = -1: must be > 0 and <= 1000000000 (requests/s)"),
        ("gateway: {admission: {kind: token_bucket, refill_tokens_per_s: -5}}\n",
         "gateway.admission[0].refill_tokens_per_s = -5: must be >= 0 (tokens/s)"),
        ("instances: [{}, {num_kv_blocks: 0}]\n",
         "instances[1].num_kv_blocks = 0: must be >= 1 and <= 1000000000000 (blocks)"),
        ("router: lest_loaded\n",
         "router.kind = 'lest_loaded': unknown kind; did you mean 'least_loaded'?"),
        ("instances: {latency: {kind: linear, preset: llama-8b}}\n",
         "instances[0].latency.preset = 'llama-8b': unknown preset; one of llama-3.1-8b-"),
        ("warm_up_s: ten\n", "warm_up_s = 'ten': must be a number"),
        ("warm_up_s: .inf\n", "warm_up_s = inf: must be a finite number >= 0 and <= 3200000000"),
        ("schema: 2\n", "schema = 2: must be 1"),
        ("profile: sglang\n", "profile = 'sglang': must be one of vllm, blis_0_6"),
        ("a: [1\n", "bad.yaml line 2: not valid YAML or JSON: "),
        ("just words\n", "bad.yaml: must be a mapping of settings such as `router: round_robin`"),
        (TRACE, "bad.yaml: must be a mapping of settings such as `router: round_robin`"),
        (b"\x00\xff\xfe", "bad.yaml: not a text file; a configuration is YAML or JSON"),
        ("workload: {kind: trace, file: gone.csv}\n",
         "gone.csv: cannot be read: No such file or directory"),
        ("workload: {kind: trace, file: requests.csv, sha256: abc}\n",
         "workload.sha256 = abc: is not that of requests.csv: "),
        ("horizon_s: 1\nwarm_up_s: 1\n", "warm_up_s = 1: must be < horizon_s (1)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["run", "check"])
def test_bad_configuration(
    refused: Callable[..., str], command: str, config: str | bytes, expected: str
) -> None:
    Path("bad.yaml").write_bytes(config if isinstance(config, bytes) else config.encode())
    found = refused(command, "bad.yaml")
    assert found.startswith(expected)
    assert "\n" not in found


def test_no_number(refused: Callable[..., str]) -> None:
    Path("bad.yaml").write_text("warm_up_s: .nan\n")
    assert (
        refused("run", "bad.yaml")
        == "warm_up_s = nan: must be a finite number >= 0 and <= 3200000000 (s)"
    )


def test_every_violation_has_a_line(refused: Callable[..., str]) -> None:
    Path("bad.yaml").write_text("routr: a\nquantum_ns: 0\ninstances: {count: x}\n")
    assert refused("check", "bad.yaml").splitlines() == [
        "routr = 'a': unknown setting; did you mean 'router'?",
        "instances[0].count = 'x': must be a whole number",
        "quantum_ns = 0: must be >= 1 and <= 1000000000 (ns)",
    ]


def test_missing_files(refused: Callable[..., str]) -> None:
    assert refused("run", "gone.yaml") == "gone.yaml: cannot be read: No such file or directory"
    assert refused("run", ".") == ".: cannot be read: Is a directory"
    assert refused("run", "config.yaml", "--trace", "gone.csv") == (
        "gone.csv: cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ("", "bad.csv: empty; must hold a header row and requests"),
        (HEADER, "bad.csv: holds no requests, only a header row"),
        (HEADER + "1,5,1,a\n0.5,5,1,b\n",
         "bad.csv line 3, arrival_s = '0.5': is earlier than '1' on line 2; --sort "),
        (HEADER + "0,5,1,a\nsoon,5,1,b\n",
         "bad.csv line 3, arrival_s = 'soon': must be a decimal number of seconds >= 0 and <= "),
        (HEADER + "nan,5,1,a\n", "bad.csv line 2, arrival_s = 'nan': must be a decimal number"),
        (HEADER + "-1,5,1,a\n", "bad.csv line 2, arrival_s = '-1': must be a decimal number"),
        (HEADER + "0,many,1,a\n",
         "bad.csv line 2, input_tokens = 'many': must be a whole number >= 1 and <= 100000000"),
        (HEADER + "0,0,1,a\n", "bad.csv line 2, input_tokens = '0': must be a whole number >= 1"),
        (HEADER + "0,5,1.5,a\n",
         "bad.csv line 2, output_tokens = '1.5': must be a whole number >= 0"),
        (HEADER + "0,5,,a\n", "bad.csv line 2, output_tokens = '': must be a whole number >= 0"),
        (HEADER + "0,5,1\n", "bad.csv line 2: holds 3 fields; the header row names 4"),
        ("time,in,out\n0,1,1\n", "bad.csv: unknown format: time,in,out"),
        (CONFIG, "bad.csv: unknown format: "),
        (b"PK\x03\x04\xff\xfe", "bad.csv: not a text file; must be CSV or JSON in UTF-8"),
    ],
)  # fmt: skip
def test_bad_trace(refused: Callable[..., str], trace: str | bytes, expected: str) -> None:
    Path("bad.csv").write_bytes(trace if isinstance(trace, bytes) else trace.encode())
    found = refused("run", "config.yaml", "--trace", "bad.csv", "--out", "out")
    assert found.startswith(expected)
    assert not Path("out").exists()


def test_trace_configuration_needs_a_trace(refused: Callable[..., str]) -> None:
    assert refused("run", SMALLEST) == (
        "workload = an empty trace: holds no requests; read some with --trace FILE, or in "
        "Python with spillway.read_trace(FILE)"
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("foo", "--set = 'foo': must be PATH=VALUE"),
        ("=3", "--set = '=3': must be PATH=VALUE"),
        ("", "--set = '': must be PATH=VALUE"),
        ("gatway.limit=fixed",
         "gatway.limit: unknown setting 'gatway'; did you mean 'gateway'?"),
        ("gateway.admission.capacity=1",
         "gateway.admission.capacity: unknown setting 'capacity'; one of "),
        ("router.scorers=[]", "router.scorers: a setting of weighted; set the kind too: --set 'ro"),
        ("tenants[gld].weight=1",
         "tenants[gld].weight: unknown entry 'gld'; did you mean 'gold'?"),
        ("instances[5].count=1", "instances[5].count: unknown entry '5'"),
        ("instances.count=many", "instances[0].count = 'many': must be a whole number"),
        ("instances.count=0", "instances[0].count = 0: must be >= 1 and <= 100000 (instances)"),
        ("instances.count=", "instances[0].count = null: must be a whole number"),
        ("router={kind: x", "--set router line 1: not valid YAML or JSON: "),
        ("warm_up_s=2024-01-01", "warm_up_s = '2024-01-01': must be a number"),
        ("warm_up_s=1:30", "warm_up_s = '1:30': must be a number"),
        ("router=round_robin\nother: 1", "--set router line 2: not valid YAML or JSON: "),
        ("router: round_robin\nother=1", "router: round_robin\nother: "),
        ("router=[", "--set router line 1: not valid YAML or JSON: "),
        ("a..b=1", "a..b: not a dotted path such as gateway.admission[0].capacity_tokens"),
    ],
)  # fmt: skip
def test_bad_changes(refused: Callable[..., str], change: str, expected: str) -> None:
    assert refused("run", "config.yaml", "--set", change).startswith(expected)


@pytest.mark.parametrize("seed", ["-1", str(2**64)])
def test_bad_seed(refused: Callable[..., str], seed: str) -> None:
    expected = f"--seed = {seed}: must be >= 0 and < 2**64"
    assert refused("run", "config.yaml", "--seed", seed) == expected


def test_results_that_cannot_be_written(refused: Callable[..., str]) -> None:
    expected = "cannot be written: "
    assert refused("run", "config.yaml", "--out", "requests.csv") == (
        f"requests.csv: {expected}File exists"
    )
    assert refused("run", "config.yaml", "--out", "requests.csv/below") == (
        f"requests.csv/below: {expected}Not a directory"
    )
    assert Path("requests.csv").read_text() == TRACE


def test_place_of_a_result_is_taken(refused: Callable[..., str]) -> None:
    Path("out/summary.json").mkdir(parents=True)
    assert refused("run", "config.yaml", "--out", "out").startswith("out/summary.json: ")


def test_traffic_rate_scales_clients_and_traces(
    run: Callable[..., str], refused: Callable[..., str]
) -> None:
    plain = json.loads(run("run", "config.yaml", "--json"))["metrics"]
    faster = json.loads(run("run", "config.yaml", "--traffic-rate", "2", "--json"))["metrics"]
    assert faster["offered"] == plain["offered"]
    expected = simulate(load("config.yaml").with_({"workload.requests_per_s": 40})).summary()
    assert faster["mean_ttft_ms"] == expected["mean_ttft_ms"]
    traced = ("--trace", "requests.csv", "--traffic-rate", "0.5")
    run("run", "config.yaml", *traced, "--out", "out")
    with Path("out/requests.csv").open() as file:
        assert [float(row["arrival_s"]) for row in csv.DictReader(file)] == [0, 0.5, 1]
    assert refused("run", "config.yaml", "--traffic-rate", "-1") == (
        "--traffic-rate = -1: must be >= 1e-06 and <= 1e+06"
    )


def test_transforms_in_a_file(run: Callable[..., str]) -> None:
    Path("traced.yaml").write_text(
        "schema: 1\nworkload:\n  kind: trace\n  file: requests.csv\n"
        "  transforms: [{kind: window, start_s: 0.2}, {kind: cap_lengths, input_tokens: 600}]\n"
    )
    run("run", "traced.yaml", "--out", "out")
    with Path("out/requests.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["request_id"] for row in rows] == ["second", "third"]
    assert [float(row["arrival_s"]) for row in rows] == [0.05, 0.3]
    assert [row["input_tokens"] for row in rows] == ["500", "600"]


def test_presets_replace_workload_tenants_and_classes(run: Callable[..., str]) -> None:
    def offered(*changes: str) -> int:
        changed = [text for change in changes for text in ("--set", change)]
        count: int = json.loads(run("run", "config.yaml", *changed, "--json"))["metrics"]["offered"]
        return count

    assert offered("presets=baseline") == 180
    change = "workload.clients[B].num_requests=100"
    assert offered(change, "presets=noisy-neighbor-small") == 700


def test_servers(run: Callable[..., str], refused: Callable[..., str]) -> None:
    catalog = run("servers")
    assert run("describe", "servers") == catalog
    for name in ("llama-3.3-70b", "mi300x", "gpt-oss-120b"):
        assert f"  {name} " in catalog
    small = ("--input-tokens", "100", "--output-tokens", "20", "--max-num-seqs", "8")
    text = run("servers", "llama-3.1-8b", "--gpu", "l4", *small)
    assert re.search(r"^  max_num_seqs +8  given$", text, re.MULTILINE)
    assert "step times: unvalidated" in text
    assert text.endswith("instances: {server: {model: llama-3.1-8b, gpu: l4, max_num_seqs: 8}}\n")
    document = json.loads(run("servers", "llama-3.1-8b", "--gpu", "l4", "--json", *small))
    light, full = document["loads"]["light load"], document["loads"]["saturated"]
    assert (light["users"], full["users"]) == (1, 8)
    assert light["mean_tpot_ms"]["low"] < light["mean_tpot_ms"]["value"]
    assert full["output_throughput"]["value"] > light["output_throughput"]["value"]
    assert refused("servers", "llama-3.1-8b").startswith("--gpu: is missing")
    assert refused("servers", "llama-3.1-8b", "--gpu", "l4", "--input-tokens", "900000").startswith(
        "--input-tokens = 900000: with the output must be <= "
    )
    assert "it fits with tp >= 4" in refused("servers", "llama-3.1-70b", "--gpu", "l40s")


def test_describe_scenarios(run: Callable[..., str]) -> None:
    assert run("describe", "scenarios") == f"{presets.descriptions.scenarios()}\n"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["walk"], "walk"),
        ([], "required: COMMAND; spillway --help lists the commands"),
        (["chek", "config.yaml"], "did you mean 'check'?"),
        (["run"], "CONFIG"),
        (["run", "config.yaml", "--seed", "1.5"], "--seed"),
        (["run", "config.yaml", "--sed", "1"], "--sed"),
        (["run", "config.yaml", "--trace-time-unit", "m"], "--trace-time-unit"),
        (["validate", "other", "."], "other"),
    ],
)
def test_bad_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str], word: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert word in err.splitlines()[-1]


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["run", "--help"], ["--version"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        assert caught.value.code == 0
    out = capsys.readouterr().out
    assert f"spillway {spillway.__version__}\n" in out
    for word in (*cli.COMMANDS, "--set", "--trace", "--out"):
        assert word in out


# --- as a program ---------------------------------------------------------------------------------


def program(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "spillway.cli", *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(spillway.__file__).parents[1])},
        text=True,
        check=False,
        **options,
    )


def test_program(run: Callable[..., str]) -> None:
    good = program("run", "config.yaml", "--json", capture_output=True)
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout == run("run", "config.yaml", "--json")
    bad = program("run", "gone.yaml", capture_output=True)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "spillway: gone.yaml: cannot be read: No such file or directory\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["run", "config.yaml"], ["describe", "--schema"]])
def test_output_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = program(*arguments, stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == cli.BAD_INPUT
    assert ended.stderr == "spillway: the output: cannot be written: No space left on device\n"


@pytest.mark.parametrize("module", ["numpy", "yaml", "spillway"])
def test_interruption_while_it_is_imported_is_quiet(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt\n")
    root = str(Path(spillway.__file__).parents[1])
    code = "import sys, spillway_cli; sys.exit(spillway_cli.main())"
    ended = subprocess.run(
        [sys.executable, "-c", code, "run", str(EXAMPLE)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), root])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == "spillway: interrupted\n"


def test_reader_of_the_output_may_go() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ended = program("describe", "--schema", stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (0, "")
