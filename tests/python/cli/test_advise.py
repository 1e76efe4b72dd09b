"""`spillway advise`, and its call in Python."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import spillway
from spillway import traffic
from spillway.advice import Advice
from spillway.config.yaml import to_yaml

if TYPE_CHECKING:
    from collections.abc import Callable

SERVER = {"model": "llama-3.1-8b", "gpu": "l40s", "max_model_len": 4096}
SHELL = ("--server", "model=llama-3.1-8b,gpu=l40s,max_model_len=4096")
SLO = "gold: p90 ttft < 2 s"
WHAT_IF = "bronze: rate x2 for 5s"


def write_log(path: str = "log.csv", rate: float = 14.0, count: int = 800) -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(200, 2000, count)
    calls = spillway.trace(
        arrival_s=np.cumsum(rng.exponential(1 / rate, count)).tolist(),
        input_tokens=lengths.tolist(),
        output_tokens=rng.integers(20, 120, count).tolist(),
        tenant=["gold" if number % 2 else "bronze" for number in range(count)],
    )
    traffic.write(calls, path)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_log()


def advise(*args: Any, **options: Any) -> Advice:
    return spillway.advise("log.csv", *(args or [SLO]), **({"server": SERVER} | options))


@pytest.mark.slow
def test_every_step_is_a_command_that_repeats_it(called: Callable[..., Any]) -> None:
    status, out, err = called(
        "advise",
        "log.csv",
        "--slo",
        SLO,
        *SHELL,
        "--what-if",
        WHAT_IF,
        "--target",
        "envoy",
        "--json",
    )
    assert status == 0, err
    document = json.loads(out)
    found = Advice.load("advice/advice.json")
    assert json.loads(json.dumps(found.to_dict())) == document
    assert found == advise(SLO, what_if=WHAT_IF, target="envoy")
    assert found.outcome == "found"
    assert [of.verdict for of in found.scenarios[2:]] == ["holds", "holds"]

    commands = Path("advice/commands.sh").read_text().splitlines()
    assert commands == list(found.commands)
    before = {path: path.read_bytes() for path in Path("advice").rglob("*") if path.is_file()}
    outputs = {}
    for command in commands:
        words = shlex.split(command)[1:]
        is_run = words[0] == "run"
        status, out, err = called(*words, *(["--json"] * (words[0] != "read")))
        assert status in ((0, 1) if is_run else (0,)), (command, err)
        outputs[command] = json.loads(out) if words[0] != "read" else {}
    assert all(path.read_bytes() == content for path, content in before.items())

    runs = [command for command in commands if command.startswith("spillway run")]
    assert len(runs) == len(found.scenarios) == 4
    for command, scenario in zip(runs, found.scenarios, strict=True):
        name = scenario.figures[0].figure.partition("[")[0]
        assert outputs[command]["seeds"] == scenario.seeds
        assert outputs[command]["figures"][name]["mean"] == pytest.approx(
            scenario.figures[0].value,
            rel=0.3,  # of gold, not of all
        )
    (sweep,) = (outputs[command] for command in commands if command.startswith("spillway sweep"))
    assert (sweep["feasible"], sweep["infeasible"]) == (found.servers.enough, found.servers.too_few)
    (compared,) = (of for command, of in outputs.items() if command.startswith("spillway compare"))
    assert all(of["figure"] in found.comparison for of in compared["verdicts"])
    (exported,) = (of for command, of in outputs.items() if command.startswith("spillway export"))
    assert exported["files"] == dict(found.files)
    page = Path("advice/report.html").read_text()
    assert page.index("Set gateway") < page.index("<table")
    assert len(page) < 1e6


def test_the_advised_figures_are_those_of_its_file() -> None:
    found = advise(SLO, out="out", target="litellm", replicate="fit")
    if found.outcome in ("found", "undecided"):
        advised = spillway.load("out/advised.yaml")
        runs = spillway.simulate(advised, seeds=range(100, 108))
        values = [run.by_tenant()["gold"]["p99_ttft_ms"] for run in runs]
        (scenario,) = (of for of in found.scenarios if of.settings == "advised")
        assert scenario.figures[0].value == pytest.approx(np.mean(values))
    assert Path("out/workload.yaml").exists()


def test_settings_that_hold_stay() -> None:
    with pytest.warns(UserWarning, match="is a target of single requests"):
        found = advise("p99 ttft < 9 s", goodput="ttft:9000 tpot:500", count=4, replicate="replay")
    assert found.slo == ("p99_ttft_ms <= 9000", "p99_tpot_ms <= 500")
    assert (found.outcome, found.settings, found.search) == ("holds", {}, "")
    assert found.verdict.startswith("Nothing has to change")
    assert "servers would be enough" in found.verdict
    assert "one run without intervals" in found.text()
    assert found.scenarios[0].figures[0].low is None
    assert not Path("advice").exists()


def test_a_target_gets_its_files_also_if_nothing_has_to_change(called: Callable[..., Any]) -> None:
    """What llm-d checks by default is judged, too."""
    write_log(rate=2, count=200)
    status, out, err = called("advise", "log.csv", "--slo", SLO, *SHELL, "--target", "llm-d")
    assert status == 0
    assert out.startswith("Nothing has to change")
    assert {path.name for path in Path("advice/deploy").iterdir()} == {
        "endpointpickerconfig.yaml",
        "inferenceobjective-standard.yaml",
    }
    found = Advice.load("advice/advice.json")
    assert {known.settings for known in found.scenarios} == {"today", "advised"}
    assert "wrote advice/report.html, advice/advised.yaml, advice/deploy/endpoint" in err


def test_an_envoy_without_limits_needs_no_file() -> None:
    write_log(rate=2, count=200)
    found = advise(target="envoy")
    assert found.outcome == "holds"
    assert not found.files
    assert "envoy: no file is needed, as nothing is limited" in found.notes


def test_what_cannot_hold_is_said(called: Callable[..., Any]) -> None:
    status, out, _ = called(
        "advise", "log.csv", "--slo", "p50 tpot < 0.01 ms", *SHELL, "--replicate", "replay"
    )
    assert status == 1
    assert out.startswith("p50_tpot_ms <= 0.01 does not hold, with any limit or number of servers")


def test_settings_of_today_are_the_baseline() -> None:
    Path("today.yaml").write_text(
        to_yaml(
            {
                "gateway": {"limit": {"kind": "fixed", "max_in_flight": 3}},
                "instances": [{"server": SERVER, "count": 2}],
                "workload": {"kind": "synthetic"},
            }
        )
    )
    with pytest.warns(UserWarning, match=r"today.yaml: the log replaces its workload"):
        found = advise(
            "p99 ttft < 1 s", server=None, today="today.yaml", replicate="replay", out="o"
        )
    assert spillway.load("o/today.yaml").gateway.limit[0].max_in_flight == 3
    assert found.scenarios[0].verdict == "breaks"


def test_a_log_that_is_too_short_is_replayed() -> None:
    write_log(count=50)
    with pytest.warns(UserWarning, match="the log is replayed as it is"):
        assert "one run" in advise().traffic


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"server": None}, "server: must be given.*there is no default server"),
        ({"calibrated": "server.yaml"}, "calibrated.*must not be given beside server"),
        ({"slo": "platinum: p99 ttft < 1 s"}, "no such class or tenant in the log"),
        ({"slo": []}, "slo: must be given"),
        ({"what_if": "instance 300 crashes at 300s"}, "must be one of the"),
        ({"what_if": "silver: rate x5"}, "tenant silver: must be one of the traffic's"),
        ({"target": "kubernetes"}, "target = kubernetes: has no limit on requests in flight"),
        ({"target": "nginx"}, "nginx"),
        ({"replicate": "guess"}, "replicate = 'guess': must be one of resample, replay, fit"),
        ({"count": 0}, "count = 0: must be >= 1"),
        ({"server": {"model": "llama-3.1-8b"}}, "instances.*server.gpu: is missing"),
    ],
)  # fmt: skip
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(spillway.ConfigError, match=message):
        advise(options.pop("slo", SLO), **options)


def test_a_log_without_tokens_is_refused(called: Callable[..., Any]) -> None:
    Path("log.csv").write_text("time,user\n1,a\n2,b\n")
    options = ("--slo", "p99 ttft < 1 s", *SHELL)
    status, _, err = called("advise", "log.csv", *options)
    assert status == 2
    assert "no column is known as arrival_s, input_tokens, output_tokens; it has: time, user" in err
    status, _, err = called("advise", "log.csv", "--columns", "arrival_s=time", *options)
    assert "columns: input_tokens, output_tokens missing" in err


def test_a_class_of_one_tenant_gets_its_targets() -> None:
    calls = spillway.trace(
        arrival_s=[i / 9 for i in range(200)],
        input_tokens=[100] * 200,
        output_tokens=[5] * 200,
        tenant=["gold", "bronze"] * 100,
        slo_class=["critical", "standard"] * 100,
    )
    traffic.write(calls, "log.csv")
    advise("gold: p99 ttft < 2 s", replicate="replay", out="out")
    today = spillway.load("out/today.yaml")
    targets = {of.name: of.target_ttft_s for of in today.slo_classes}
    assert targets == {"critical": 2.0, "standard": None}


def test_options_of_reading_are_in_the_commands() -> None:
    Path("log.csv").write_text("when;in;out\n" + "".join(f"{i};100;5\n" for i in range(200)))
    columns = {"arrival_s": "when", "input_tokens": "in", "output_tokens": "out"}
    found = advise("p99 ttft < 1 s", columns=columns, sort=True, replicate="replay")
    expected = (
        "spillway read log.csv --columns arrival_s=when,input_tokens=in,output_tokens=out --sort"
    )
    assert found.commands[0] == f"{expected} --write advice/trace.csv"


def test_another_file_is_no_advice() -> None:
    Path("other.json").write_text("{}")
    with pytest.raises(spillway.ConfigError, match=r"must be a file of Advice.save"):
        Advice.load("other.json")


def test_what_is_advised_lies_close_to_what_does_not_hold() -> None:
    """The best of the search breaks a bound under other seeds; the next one rejects much more."""
    write_log(rate=20, count=900)
    found = advise("gold: p99 ttft < 2 s, p99 tpot < 90 ms", target="envoy", count=2)
    assert found.outcome == "found"
    best, *_ = (note for note in found.notes if note.startswith("not advised: the settings of"))
    assert "p99_tpot_ms[gold]" in best
    assert any("between the settings of trial" in note for note in found.notes)
    (advised,) = (known for known in found.scenarios if known.settings == "advised")
    assert advised.verdict == "holds"
    assert advised.shed is not None
    refused = float(best.rpartition("(shed ")[2].rstrip("%).")) / 100
    assert refused < advised.shed < 2 * refused


def test_the_loss_of_the_tenant_that_is_promised_something_is_stated() -> None:
    write_log(rate=20, count=900)
    found = advise("gold: p99 ttft < 2 s, p99 tpot < 90 ms", count=2)
    (advised,) = (known for known in found.scenarios if known.settings == "advised")
    gold = advised.shed_of["gold"]
    assert gold is not None
    bronze = advised.shed_of["bronze"]
    assert bronze is not None
    assert advised.shed is not None
    assert advised.shed_text().endswith(")") == (advised.shed > 0)
    if advised.shed:
        assert f"gold: {gold:.1%}" in found.verdict
        assert f"bronze: {bronze:.1%}" in found.text()
    found.save("advice.json")
    assert Advice.load("advice.json") == found


def test_those_that_are_promised_something_are_not_rejected_for_others() -> None:
    """One tenant floods the fleet: a limit per tenant serves the other."""
    rng = np.random.default_rng(5)
    gold = np.arange(0, 100, 0.25)
    bronze = np.concatenate([np.arange(start, start + 4, 0.025) for start in range(5, 95, 10)])
    calls = sorted([(at, "gold") for at in gold] + [(at, "bronze") for at in bronze])
    log = spillway.trace(
        arrival_s=[at for at, _ in calls],
        input_tokens=rng.integers(200, 2000, len(calls)).tolist(),
        output_tokens=rng.integers(50, 200, len(calls)).tolist(),
        tenant=[name for _, name in calls],
    )
    traffic.write(log, "log.csv")
    found = advise("gold: p90 ttft < 1.5 s", count=2, replicate="replay")
    assert found.outcome == "found"
    assert any("per_tenant" in str(value) for value in found.settings.values())
    (advised,) = (known for known in found.scenarios if known.settings == "advised")
    assert advised.shed is not None
    assert advised.shed > 0.1
    assert advised.shed_of["gold"] == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("name", ["standard", "premium"])
def test_settings_of_today_may_have_any_class(name: str) -> None:
    """The log has requests of another class, or of the one that is there by default."""
    today = {"schema": 1, "slo_classes": [{"name": name, "target_ttft_s": 30}]}
    Path("today.yaml").write_text(to_yaml({**today, "tenants": [{"name": "gold"}]}))
    found = advise("gold: p90 ttft < 60 s", today="today.yaml", count=4)
    assert found.outcome == "holds"


def test_columns_of_a_log_in_json_are_named(called: Callable[..., Any]) -> None:
    Path("log.jsonl").write_text('{"at": 1.5, "usage": {"prompt": 3, "answer": 4}}\n')
    status, _, err = called("advise", "log.jsonl", "--slo", "p90 ttft < 2 s", *SHELL)
    assert status == 2
    assert "it has: at, usage.prompt, usage.answer. Name them: --columns arrival_s=…" in err
