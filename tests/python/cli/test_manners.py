"""The command line in a terminal: JSON, colors, progress, completion, explanations, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import ROOT

import spillway
from spillway import cli, load, simulate
from spillway.cli import output
from spillway.config import progress, yaml
from spillway.data.figures import FIGURES
from spillway.study import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONFIG = """\
schema: 1
workload: {kind: synthetic, num_requests: 40, requests_per_s: 20}
slo_classes: [{name: standard, target_ttft_s: 1}]
gateway: {limit: {kind: fixed, max_in_flight: 16}}
"""
STUDY = """\
simulation: config.yaml
space: {"gateway.limit[0].max_in_flight": [4, 32]}
maximize: goodput
seeds: 2
trials: 2
check: false
confirm: {top: 1, seeds: 2, within: 0}
"""
SWEEP = """\
simulation: config.yaml
grid: {"gateway.limit[0].max_in_flight": [8, 16]}
seeds: 2
metrics: [goodput]
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name, text in (("config", CONFIG), ("study", STUDY), ("sweep", SWEEP)):
        Path(f"{name}.yaml").write_text(text)
    yield
    output.use_color("auto")


# --- the kinds of files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "file", "kind", "takes"),
    [
        ("run", "study", "study", "optimize"),
        ("run", "sweep", "sweep", "sweep"),
        ("optimize", "config", "configuration", "run"),
        ("optimize", "sweep", "sweep", "sweep"),
        ("sweep", "config", "configuration", "run"),
        ("sweep", "study", "study", "optimize"),
    ],
)
def test_other_files_name_their_command(
    called: Callable[..., Any], command: str, file: str, kind: str, takes: str
) -> None:
    status, out, err = called(command, f"{file}.yaml")
    wanted = {"run": "configuration", "optimize": "study", "sweep": "sweep"}[command]
    assert (status, out) == (2, "")
    assert err == (
        f"spillway: {file}.yaml: a {kind} file, not a {wanted} file; "
        f"use: spillway {takes} {file}.yaml\n"
    )


def test_the_base_of_a_study_is_a_configuration(called: Callable[..., Any]) -> None:
    Path("study.yaml").write_text(STUDY.replace("config.yaml", "sweep.yaml"))
    wanted = "spillway: sweep.yaml: a sweep file, not a configuration file; use: spillway sweep "
    for command in ("check", "optimize"):
        status, _, err = called(command, "study.yaml")
        assert (status, err) == (2, f"{wanted}sweep.yaml\n")


def test_kinds_of_files_follow_the_tables_that_parse_them() -> None:
    own = {kind: set(known) for kind, known in files.KEYS.items()}
    assert set(spillway.config.files.KINDS["sweep"]) == own["sweep"] - own["study"]
    assert set(spillway.config.files.KINDS["study"]) < own["study"] - own["sweep"]


def test_check_of_studies_and_sweeps(
    called: Callable[..., Any], printed: Callable[..., str]
) -> None:
    digest = spillway.fingerprint(load("config.yaml"))
    base = f"base: profile vllm, fingerprint {digest[:12]}\n"
    assert printed("check", "study.yaml") == (
        f"study.yaml: ok, study of 1 parameter, 2 trials x 2 seeds, {base}"
    )
    assert printed("check", "sweep.yaml") == (f"sweep.yaml: ok, grid of 2 configurations, {base}")
    found = json.loads(printed("check", "study.yaml", "--json"))
    assert (found["kind"], found["fingerprint"]) == ("study", digest)
    assert found["parameters"] == ["gateway.limit[0].max_in_flight"]
    for old, new, message in (
        ("goodput", "godput", "unknown figure"),
        ("[4, 32]", "[32, 4]", "low"),
        ("max_in_flight", "max_in_fligh", "unknown setting 'max_in_fligh'"),
        ("trials: 2", "constraints: {goodput: much}", "must be"),
    ):
        Path("wrong.yaml").write_text(STUDY.replace(old, new))
        status, out, err = called("check", "wrong.yaml")
        assert (status, out) == (2, ""), new
        assert message in err
    Path("wrong.yaml").write_text(SWEEP.replace("[8, 16]", "[8, -1]"))
    status, out, err = called("check", "wrong.yaml")
    assert status == 0
    assert err.startswith("spillway: warning: gateway.limit[0].max_in_flight = -1: ")
    Path("wrong.yaml").write_text(SWEEP.replace("[8, 16]", "[-2, -1]"))
    assert called("check", "wrong.yaml")[0] == 2
    # The settings of the base simulation that cannot work.
    Path("config.yaml").write_text(CONFIG.replace("max_in_flight: 16", "max_in_flight: 40"))
    status, out, err = called("check", "sweep.yaml", "--json")
    assert "the limit cannot bind" in err
    assert [finding["path"] for finding in json.loads(out)["findings"]] == [
        "gateway.limit[0].max_in_flight"
    ]
    status, out, err = called("check", "study.yaml", "--set", "warm_up_s=1")
    assert (status, err) == (2, "spillway: --set: is for configuration files, not for a study\n")


# --- explanations ---------------------------------------------------------------------------------


def test_describe_figures(printed: Callable[..., str]) -> None:
    text = printed("describe", "figures")
    names = re.findall(r"[a-z0-9_]+", text)
    assert set(FIGURES) <= set(names)
    assert max(map(len, text.splitlines())) <= 80
    goodput = printed("describe", "goodput")
    assert "higher is better" in goodput
    assert "needs latency targets" in goodput
    assert "Jain's fairness index" in printed("describe", "jain")
    entries = json.loads(printed("describe", "figures", "--json"))
    assert {entry["name"] for entry in entries} == {*FIGURES, "shed"}
    one = FIGURES["p99_ttft_ms"]
    assert json.loads(printed("describe", "p99_ttft_ms", "--json")) == {
        "name": one.name,
        "doc": one.doc,
        "unit": "ms",
        "population": one.population,
        "better": "lower",
        "needs_targets": False,
    }


def test_describe_finds_settings_by_their_name(printed: Callable[..., str]) -> None:
    found = printed("describe", "refill_tokens_per_s").splitlines()
    assert "  gateway.admission.token_bucket.refill_tokens_per_s" in found


@pytest.mark.parametrize("word", ["drr", "deficit"])
def test_describe_finds_kinds_by_initials_and_words(printed: Callable[..., str], word: str) -> None:
    assert "  gateway.bands.fairness.deficit_round_robin" in printed("describe", word)


def test_describe_the_server(printed: Callable[..., str]) -> None:
    text = printed("describe", "instances.server")
    assert "server: {model: llama-3.1-8b, gpu: h100" in text
    assert "gpu_memory_utilization : float, optional" in text
    settings = json.loads(printed("describe", "instances.server", "--json"))
    assert settings["model"] is None
    assert settings["tp"] == 1


@pytest.mark.parametrize("kind", ["study", "sweep"])
def test_describe_files(called: Callable[..., Any], printed: Callable[..., str], kind: str) -> None:
    text = printed("describe", kind)
    for name, key in files.KEYS[kind].items():
        assert f"\n{name}    [default: {key.default}]\n" in text
        separator = "\n" if "\n" in key.example else " "
        example = yaml.parse(f"{name}:{separator}{key.example}", "example")
        key(name, example[name])
    # The file at the end works.
    Path("whole.yaml").write_text(
        "\n".join(line[4:] for line in text.partition("A whole file:\n")[2].splitlines())
    )
    Path("experiment.yaml").write_text(CONFIG)
    assert "whole.yaml: ok" in printed("check", "whole.yaml")
    status, _, err = called("describe", f"{kind}.nothing")
    assert status == 2
    assert "unknown key; one of schema, simulation" in err


def test_guide_names_every_key_of_the_files() -> None:
    guide = (ROOT / "docs" / "guides" / "search_from_a_shell.md").read_text()
    for known in files.KEYS.values():
        for name in known:
            assert f"`{name}`" in guide, name


def test_unknown_figures_suggest_one() -> None:
    with pytest.raises(KeyError, match="did you mean 'p99_ttft_ms'"):
        simulate(load("config.yaml")).summary()["p99_ttft"]


def test_alternatives_of_one_setting_are_not_combined() -> None:
    routers = {kind: {"router": kind} for kind in ("round_robin", "least_loaded", "random")}
    found = spillway.study.isolation(load("config.yaml"), routers, seeds=1, metrics=["goodput"])
    assert [row.name for row in found.rows] == ["base", *routers]
    study = spillway.Study(
        load("config.yaml"), {"gateway.limit[0].max_in_flight": [4, 32]}, "goodput", seeds=1
    )
    assert "nan" not in str(study.optimize(2, check=False))  # one seed has no standard error


# --- JSON -----------------------------------------------------------------------------------------


def test_json_of_searches(called: Callable[..., Any], printed: Callable[..., str]) -> None:
    sweep = json.loads(printed("sweep", "sweep.yaml", "--json"))
    assert sweep["metrics"] == ["goodput"]
    assert [row["gateway.limit[0].max_in_flight"] for row in sweep["rows"]] == [8, 16]
    found = json.loads(printed("optimize", "study.yaml", "--json", "--out", "out"))
    assert [row["trial"] for row in found["trials"]] == [0, 1]
    assert found["confirmation"] == json.loads(Path("out/confirmation.json").read_text())
    best = spillway.Simulation.from_dict(found["best"]["simulation"])
    assert (
        best.gateway.limit[0].max_in_flight
        == found["best"]["point"]["gateway.limit[0].max_in_flight"]
    )
    # A second call says that it resumes; another study needs --force.
    status, _, err = called("optimize", "study.yaml", "--out", "out")
    assert (status, err) == (0, "spillway: out: resumes the study after 2 trials\n")
    Path("study.yaml").write_text(STUDY.replace("[4, 32]", "[4, 64]"))
    before = Path("out/study.yaml").read_text()
    status, _, err = called("optimize", "study.yaml", "--out", "out")
    assert status == 2
    assert "holds another study" in err
    assert Path("out/study.yaml").read_text() == before
    assert called("optimize", "study.yaml", "--out", "out", "--force")[0] == 0


def test_json_of_other_commands(called: Callable[..., Any], printed: Callable[..., str]) -> None:
    trace = str(ROOT / "examples" / "requests.csv")
    found = json.loads(printed("traffic", "describe", trace, "--json"))
    assert found["requests"] == 2000
    assert set(found["tenants"]) == {"gold", "silver", "bronze"}
    catalog = json.loads(printed("servers", "--json"))
    assert catalog == json.loads(printed("describe", "servers", "--json"))
    assert {"llama-3.3-70b", "h100"} <= catalog["models"].keys() | catalog["accelerators"].keys()
    exported = json.loads(printed("export", "config.yaml", "--to", "vllm", "--json"))
    assert exported["target"].startswith("vllm@")
    (text,) = exported["files"].values()
    assert text.startswith("vllm serve ")
    presets = json.loads(printed("describe", "presets", "--json"))
    assert presets["noisy-neighbor"]["kind"] == "scenario"
    field = json.loads(printed("describe", "gateway.limit.fixed.max_in_flight", "--json"))
    assert field["unit"] == "requests"
    status, out, err = called("check", "gone.yaml", "--json")
    assert (status, out) == (2, "")
    assert err.startswith("spillway: gone.yaml: cannot be read")


def test_every_command_with_a_result_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    others = {"init", "examples", "completion", "traffic", "validate", "serve"}
    for command in cli.COMMANDS.keys() - others:
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        assert "--json" in capsys.readouterr().out, command


# --- colors ---------------------------------------------------------------------------------------


class Terminal:
    """A stream that is a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return True


def taken(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in the place of both streams; not as a fixture, because capturing resets them."""
    found = Terminal()
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", found)
    monkeypatch.setattr("sys.stderr", found)
    return found


def test_colors_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = taken(monkeypatch)

    def text(*arguments: str) -> str:
        terminal.text = ""
        cli.main(["check", "config.yaml", *arguments])
        return terminal.text

    plain = "config.yaml: ok, profile vllm"
    colored = "config.yaml\x1b[32m: ok\x1b[0m, profile vllm"
    assert text().startswith(colored)
    assert text("--color", "never").startswith(plain)
    monkeypatch.setenv("NO_COLOR", "1")
    assert text().startswith(plain)
    assert text("--color", "always").startswith(colored)
    assert "\x1b" not in text("--json", "--color", "always")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert text().startswith(plain)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert text().startswith(colored)
    terminal.text = ""
    assert cli.main(["--color", "always", "check", "gone.yaml"]) == 2
    assert terminal.text.startswith("\x1b[31mspillway:\x1b[0m gone.yaml: cannot be read")


def test_no_colors_in_a_pipe(printed: Callable[..., str]) -> None:
    assert "\x1b" not in printed("check", "config.yaml")


# --- progress -------------------------------------------------------------------------------------


def test_progress_is_a_line_that_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = taken(monkeypatch)
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("COLUMNS", "60")
    with progress.reporting(True, "runs") as report:
        assert report is not None
        report(1, 8)
        assert terminal.text == ""  # it may be over soon
        now[0] = 2.0
        report(2, 8, "of this batch")
        report(3, 8)  # not ten times a second
        assert terminal.text == "\rruns 2 of 8 (25%), 0:06 left, of this batch\x1b[K"
        now[0] = 3.0
        report(4, 0, "x" * 100)
        assert terminal.text.endswith("…\x1b[K")
        assert len(terminal.text.rpartition("\r")[2]) == 59 + len("\x1b[K")
        output.warn("wait")
        assert terminal.text.endswith("\r\x1b[Kspillway: \x1b[33mwarning:\x1b[0m wait\n")
    assert terminal.text.endswith("\r\x1b[K")


def test_no_progress_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.reporting(True, "runs") as report:
        assert report is None
    simulate(load("config.yaml"), progress=True)
    assert capsys.readouterr() == ("", "")


def test_progress_of_one_run_changes_nothing() -> None:
    simulation = load(ROOT / "examples" / "noisy_neighbor.yaml")
    reports: list[tuple[int, int]] = []
    watched = simulate(simulation, 3, progress=lambda *report: reports.append(report))
    assert watched.digest == simulate(simulation, 3).digest
    dones = [done for done, _ in reports]
    assert dones == sorted(dones)
    assert reports[-1] == (8000, 8000) == (watched.summary()["offered"],) * 2
    timed = simulation.with_({"horizon_s": 20, "workload.num_requests": None})
    reports.clear()
    assert simulate(timed, progress=lambda *report: reports.append(report)).digest == (
        simulate(timed).digest
    )
    assert reports[-1][1] == 20
    with pytest.raises(TypeError, match="give progress or reference"):
        simulate(simulation, reference=True, progress=True)


def test_progress_of_searches() -> None:
    reports: list[tuple[int, int]] = []

    def note(*report: int) -> None:
        reports.append(report)  # type: ignore[arg-type]

    base = load("config.yaml")
    path = "gateway.limit[0].max_in_flight"
    spillway.study.grid(base, {path: [8, 16]}, seeds=2, metrics=["goodput"], progress=note)
    assert reports[-1] == (4, 4)
    spillway.compare({"a": base, "b": base.with_({path: 8})}, seeds=3, progress=note)
    assert reports[-1] == (6, 6)
    spillway.study.min_instances_for_rate(
        base, {"goodput": ">=0.1"}, seeds=2, max_requests=40, progress=note
    )
    assert reports[-1][0] == reports[-1][1] >= 2
    simulate(base, seeds=range(3), progress=note)
    assert reports[-1] == (3, 3)
    study = spillway.Study(base, {path: [4, 32]}, "goodput", seeds=2)
    study.optimize(2, check=False, progress=note)
    assert reports[-1] == (2, 2)
    study.confirm(1, 2, within=0, progress=note)
    assert reports[-1][0] == reports[-1][1]


# --- completion -----------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="there is no bash")
def test_completion_in_bash(tmp_path: Path, printed: Callable[..., str]) -> None:
    pytest.importorskip("argcomplete")
    program = tmp_path / "bin" / "spillway"
    program.parent.mkdir()
    program.write_text(f'#!/bin/bash\nexec {sys.executable} -m spillway.cli "$@"\n')
    program.chmod(0o755)
    lines = [
        "spillway swe",
        "spillway run conf",
        "spillway describe gateway.limit.fix",
        "spillway run config.yaml --set gateway.guard.cei",
    ]
    script = printed("completion", "bash") + (
        'for line in "$@"; do COMP_LINE=$line; COMP_POINT=${#line}; COMP_TYPE=9\n'
        "COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()\n"
        '_python_argcomplete spillway; echo "${COMPREPLY[*]}"; done\n'
    )
    ended = subprocess.run(
        ["/bin/bash", "-c", script, "bash", *lines],
        env=environment(PATH=f"{program.parent}:{os.environ['PATH']}"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert [line.split() for line in ended.stdout.splitlines()] == [
        ["sweep"],
        ["config.yaml"],
        ["gateway.limit.fixed", "gateway.limit.fixed.max_in_flight"],
        ["gateway.guard.ceiling="],
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_of_other_shells(printed: Callable[..., str], shell: str) -> None:
    pytest.importorskip("argcomplete")
    assert "spillway" in printed("completion", shell)


def test_missing_extra_is_an_error(
    called: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert called("completion", "bash") == (
        2,
        "",
        (
            "spillway: this needs argcomplete; install it with: "
            "pip install 'spillway-sim[completion]'\n"
        ),
    )


# --- Ctrl-C ---------------------------------------------------------------------------------------


def environment(**more: str) -> dict[str, str]:
    root = str(Path(spillway.__file__).parents[1])
    paths = [root, os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


@pytest.mark.slow
def test_interruption_within_a_second_of_generation() -> None:
    # 30 million requests are being generated when the signal arrives.
    changes = ["--set", "workload.num_requests=30000000", "--set", "workload.requests_per_s=1000"]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "spillway.cli", "run", "config.yaml", *changes]
    with subprocess.Popen(command, env=environment(), **options) as started:
        time.sleep(2.5)
        assert started.poll() is None
        sent = time.monotonic()
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=30)
        took_s = time.monotonic() - sent
    assert (started.returncode, out) == (130, "")
    assert err.endswith("spillway: interrupted\n")
    assert took_s < 1
