"""Commands that read files of others: their options, warnings and exit status."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import DATA, ROOT

import spillway
from spillway import cli
from spillway.files.formats import options_by_name
from spillway.files.options import READING, Option
from spillway.files.recordings import reconciliation, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Called = Callable[..., tuple[int, str, str]]

FILES = ROOT / "python" / "spillway" / "files"
READERS = (
    "read",
    "run",
    "check",
    "compare",
    "diagnose",
    "why",
    "export",
    "calibrate",
    "validate real",
    "validate recording",
    "traffic describe",
    "traffic fit",
    "advise",
    "curve",
    "serve",
)
"""The commands that take a trace or a recording, whose format the files do not state."""


def parser_of(command: str) -> argparse.ArgumentParser:
    name, _, action = command.partition(" ")
    parser = argparse.ArgumentParser()
    importlib.import_module(f"spillway.cli.{name}").add_arguments(parser)
    if action:
        (actions,) = (
            known for known in parser._actions if isinstance(known, argparse._SubParsersAction)
        )
        parser = actions.choices[action]
    return parser


def flags_of(command: str) -> set[str]:
    return set(parser_of(command)._option_string_actions)


def commands() -> Iterator[str]:
    for name in cli.COMMANDS:
        parser = argparse.ArgumentParser()
        importlib.import_module(f"spillway.cli.{name}").add_arguments(parser)
        known = [at for at in parser._actions if isinstance(at, argparse._SubParsersAction)]
        yield from (f"{name} {action}" for at in known for action in at.choices)
        if not known:
            yield name


def test_no_other_command_reads_such_files() -> None:
    flags = {command: flags_of(command) for command in commands()}
    assert {command for command in flags if "--trace-columns" in flags[command]} == set(READERS)


@pytest.mark.parametrize("command", READERS)
def test_every_reader_has_every_option_of_reading(command: str) -> None:
    wanted = {flag for option in READING for flag in option.flags}
    wanted |= {
        flag
        for by_format in options_by_name().values()
        for option in by_format.values()
        for flag in option.flags
    }
    assert wanted <= flags_of(command)


def test_keywords_of_python_are_the_names_of_the_options() -> None:
    names = {option.name for option in READING}
    for function in (spillway.read, spillway.read_trace):
        parameters = inspect.signature(function).parameters
        assert names <= set(parameters), function.__name__
        for option in READING:
            assert parameters[option.name].default == option.default, option.name


def texts_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_messages_name_options_that_exist() -> None:
    known = {flag for command in READERS for flag in flags_of(command)}
    named = {
        flag: path.name
        for path in sorted(FILES.rglob("*.py"))
        if path.parent.name != "deployments"  # the options of other systems
        for text in texts_of(path)
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text)
    }
    assert "--trace-columns" in named
    assert {flag: name for flag, name in named.items() if flag not in known} == {}


LOG = "time,key,prompt,completion\n" + "".join(
    f"2026-03-02T10:00:{second:02d}Z,team-{second % 2},{800 + second},{60 + second}\n"
    for second in range(28)
)
OBJECTS = "".join(
    json.dumps({"ts": 1000 + at, "usage": {"prompt_tokens": 5 + at, "completion_tokens": 3}}) + "\n"
    for at in range(12)
)
LOGS = {
    "a CSV file": (
        LOG,
        "arrival_s=time,input_tokens=prompt,output_tokens=completion,tenant=key",
        "28 requests in 27.0 s: 1/s",
    ),
    "semicolons": (
        LOG.replace(",", ";"),
        "arrival_s=time,input_tokens=prompt,output_tokens=completion",
        "28 requests in 27.0 s: 1/s",
    ),
    "objects": (
        OBJECTS,
        "arrival_s=ts,input_tokens=usage.prompt_tokens,output_tokens=usage.completion_tokens",
        "12 requests in 11.0 s: 1/s",
    ),
    "a single request": (
        "\n".join(LOG.splitlines()[:2]) + "\n",
        "arrival_s=time,input_tokens=prompt,output_tokens=completion",
        "1 request in 0.0 s",
    ),
}


@pytest.mark.parametrize("flag", ["--trace-columns", "--columns"])
@pytest.mark.parametrize("name", LOGS)
def test_a_short_log_is_described_and_not_fitted(
    name: str, flag: str, called: Called, tmp_path: Path
) -> None:
    text, columns, first = LOGS[name]
    path = tmp_path / "mine.csv"
    path.write_text(text)
    status, out, _ = called("traffic", "describe", path, flag, columns)
    assert status == 0
    assert out.splitlines()[0] == first
    assert out.splitlines()[-1].startswith("withheld: burstiness and rank correlation, which take")
    status, out, err = called(
        "traffic", "fit", path, flag, columns, "-o", tmp_path / "workload.yaml"
    )
    assert (status, out) == (2, "")
    totals, refusal = err.splitlines()[-2:]
    assert totals.startswith(f"spillway: {path}: {first.split()[0]} requests in ")
    assert refusal.endswith("; a fit takes at least 100")
    assert not (tmp_path / "workload.yaml").exists()


MISSPELLED = "arrival_s,input_tokens,output_tokens,tennant\n0,5,1,a\n1,6,1,b\n"


@pytest.mark.parametrize(
    "command",
    [
        "traffic describe FILE",
        "traffic fit FILE",
        "check CONFIG --trace FILE",
        "run CONFIG --trace FILE",
    ],
)
def test_warnings_are_lines(command: str, called: Called, tmp_path: Path) -> None:
    path, config = tmp_path / "mine.csv", tmp_path / "config.yaml"
    path.write_text(MISSPELLED)
    config.write_text("schema: 1\n")
    words = {"FILE": path, "CONFIG": config}
    _, _, err = called(*(words.get(word, word) for word in command.split()))
    (warning,) = (line for line in err.splitlines() if line.startswith("spillway: warning:"))
    assert warning.startswith(f"spillway: warning: {path}: unused columns: tennant")


# --- read -----------------------------------------------------------------------------------------


def test_read_says_what_a_file_is(called: Called) -> None:
    status, out, err = called("read", ROOT / "examples" / "requests.csv")
    assert (status, err) == (0, "")
    assert "requests: 2,000" in out


def test_read_of_several_files_as_json(called: Called) -> None:
    files = [ROOT / "examples" / "requests.csv", ROOT / "examples" / "measured_runs" / "chat.csv"]
    status, out, _ = called("read", *files, "--json")
    first, second = json.loads(out)
    assert status == 0
    assert first["offers"] == ["trace"]
    assert second["offers"] == ["trace", "recording"]
    assert second["runs"][0]["requests"] > 0


RUN = DATA / "recordings" / "vllm_bench.json"


@pytest.fixture
def _tool_reports_other_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool of every recording says that the mean TTFT was 0.4 s."""
    figures = {"mean_ttft_s": 0.4}
    monkeypatch.setattr(rows, "reconcile", lambda run, _: reconciliation.reconcile(run, figures))


def test_read_of_a_run(called: Called) -> None:
    status, out, err = called("read", RUN)
    assert (status, err) == (0, "")
    assert out.splitlines()[1:5] == [
        "gives: trace, recording",
        "",
        "run vllm_bench",
        "requests: 3, 1 failed",
    ]


@pytest.mark.usefixtures("_tool_reports_other_figures")
def test_a_tool_that_reports_other_figures_is_the_status_of_read(called: Called) -> None:
    status, out, err = called("read", RUN)
    assert (status, err) == (1, "")
    assert out.count("the tool reports other figures: mean TTFT: 0.4 s reported") == 1
    status, out, _ = called("read", ROOT / "examples" / "requests.csv", RUN, "--json")
    assert status == 1
    trace, run = json.loads(out)
    assert trace["mismatches"] == []
    assert "mean TTFT" in run["mismatches"][0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RUN.read_text().replace("0.072", '"x"'), "ttfts"),
        ("no measurements\n", "unknown format: no measurements"),
        ("", "empty"),
    ],
)
def test_read_refuses(text: str, message: str, called: Called, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    status, out, err = called("read", path)
    assert (status, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("read", RUN, "--units", "t0=min", "--columns", "send_s=t0,input_tokens=a"),
        ("read", RUN, "--columns", "at=t0"),
        ("traffic", "describe", RUN, "--columns", "arrival=t0"),
        ("traffic", "describe", RUN.parent / "metrics.prom"),
        ("traffic", "describe", RUN.parent / "list_of_runs"),
        ("read", RUN.parent / "gateway.csv"),
    ],
)
def test_messages_in_a_shell_speak_of_the_shell(arguments: Any, called: Called) -> None:
    status, _, err = called(*arguments)
    assert status == 2
    assert not re.search(r"in Python|\w=(True|False|\{)|\['|read_\w+\(|to_trace", err), err


@pytest.mark.parametrize("command", READERS)
def test_help_says_nothing_twice(command: str) -> None:
    for action in parser_of(command)._actions:
        phrases = re.split(r"; | \(", action.help or "")
        long = [phrase for phrase in phrases if len(phrase) > 25]
        assert len(long) == len(set(long)), action.option_strings


@pytest.mark.usefixtures("_tool_reports_other_figures")
@pytest.mark.parametrize("command", [("calibrate",), ("validate", "real", "--fit")])
def test_a_run_with_other_figures_is_not_fitted(command: tuple[str, ...], called: Called) -> None:
    status, _, err = called(*command, RUN)
    assert status == 2
    assert "mean TTFT" in err
    assert err.endswith("; --allow-mismatch uses it all the same\n")
    assert err.count("mean TTFT") == 1
    _, _, err = called(*command, RUN, "--allow-mismatch")
    assert "uses it all the same" not in err


@pytest.mark.parametrize(
    "command", ["read FILE", "traffic describe FILE", "run CONFIG --trace FILE"]
)
def test_a_misspelled_format_is_refused(command: str, called: Called, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("schema: 1\n")
    words = {"FILE": ROOT / "examples" / "requests.csv", "CONFIG": config}
    arguments = [words.get(word, word) for word in command.split()]
    status, _, err = called(*arguments, "--format", "blys")
    assert status == 2
    assert err.endswith("; did you mean 'blis'?\n")


CONFIG = ROOT / "examples" / "noisy_neighbor.yaml"


@pytest.mark.parametrize(
    "command",
    [
        ("run", CONFIG),
        ("check", CONFIG),
        ("check", ROOT / "examples" / "noisy_neighbor_study.yaml"),
        ("diagnose", CONFIG),
        ("compare", CONFIG, ROOT / "examples" / "long_prompts.yaml"),
        ("export", CONFIG, "--to", "vllm"),
    ],
    ids=lambda command: " ".join(str(part).rpartition("/")[2] for part in command[:2]),
)
def test_options_of_reading_without_a_file_are_refused(
    command: tuple[Any, ...], called: Called
) -> None:
    every = {
        option: ([option.flags[0]] if option.type is bool else [option.flags[0], _value(option)])
        for option in READING
    }
    for option, arguments in every.items():
        status, out, err = called(*command, *arguments)
        assert (status, out) == (2, "")
        assert err.startswith(f"spillway: {option.flags[-1]}: is for the file of --trace FILE"), err
    flags = " ".join(option.flags[-1] for option in every)
    status, _, err = called(*command, *(word for words in every.values() for word in words))
    assert status == 2
    assert err.startswith(f"spillway: {flags}: is for the file of --trace FILE")


def _value(option: Option) -> str:
    if option.choices:
        return option.choices[0]
    return "3" if option.type is int else "a=b"
