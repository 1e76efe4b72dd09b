"""Files that are none of the expected kind: an error that names them and shows little of them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

import spillway
from spillway import ConfigError, cli, read_recordings, read_trace, traffic
from spillway.files import recordings
from spillway.files.traces import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "root:$6$abcdefghijklmnop\x1b[31m$" + "0123456789" * 20
FILES = {
    "secret": SECRET.encode(),
    "empty": b"",
    "blank": b"\n \n",
    "binary": b"\xff\xfe\x00\x01",
    "object": b'{"a": 1}\n',
    "objects": b'{"a": 1}\n{"a": 2}\n',
    "no members": b"{}\n{}\n",
    "list": b"[1, 2]\n",
    "text": "Füße,\u202e\x07 and more text than forty characters, certainly\n".encode(),
    "header": b"a,b,c\n1,2,3\n",
    "metrics": b"# TYPE x counter\nx 1\n",
}
READERS: dict[str, Callable[[Any], Any]] = {
    "trace": read_trace,
    "recordings": read_recordings,
    "step logs": recordings.read_step_logs,
    "histograms": recordings.read_histograms,
    "points": recordings.read_points,
    "load": traffic.read_load,
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("reader", READERS)
def test_nothing_known_is_an_error_that_names_the_file(
    tmp_path: Path, reader: str, name: str
) -> None:
    path = tmp_path / "given"
    path.write_bytes(FILES[name])
    with pytest.raises((TraceError, ConfigError)) as caught:
        READERS[reader](path)
    message = str(caught.value)
    assert str(path) in message
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", message)
    content = FILES[name].decode(errors="replace").strip()
    assert content[41:] not in message or len(content) <= 41
    with pytest.raises((TraceError, ConfigError), match=r"cannot be read|no file|holds no"):
        READERS[reader](tmp_path / "missing")


COMMANDS: dict[str, list[str]] = {
    "run": ["run", "CONFIG", "--trace", "GIVEN"],
    "describe": ["traffic", "describe", "GIVEN"],
    "fit": ["traffic", "fit", "GIVEN"],
    "calibrate": ["calibrate", "GIVEN"],
    "validate": ["validate", "real", "--fit", "GIVEN"],
    "blis": ["validate", "blis", "GIVEN"],
    "dynamo": ["import", "GIVEN", "--from", "dynamo"],
    "envoy": ["import", "GIVEN", "--from", "envoy"],
    "vllm": ["import", "GIVEN", "--from", "vllm"],
    "sweep": ["sweep", "GIVEN"],
    "optimize": ["optimize", "GIVEN"],
}


@pytest.mark.parametrize("name", ["secret", "empty", "binary", "object", "folder", "list"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_end_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    path, config = tmp_path / "given", tmp_path / "config.yaml"
    if name == "folder":
        path.mkdir()
    else:
        path.write_bytes(FILES[name])
    config.write_text("router: round_robin\n")
    places = {"CONFIG": str(config), "GIVEN": str(path)}
    status = cli.main([places.get(word, word) for word in COMMANDS[command]])
    out, err = capsys.readouterr()
    assert (status, out) == (2, ""), err
    assert "given" in err
    assert "\x1b" not in err
    assert SECRET[60:] not in err


@pytest.mark.parametrize("key", ["workload", "server", "model", "simulation"])
def test_a_configuration_shows_little_of_what_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    secret = tmp_path / ("secret.json" if key == "model" else "secret")
    secret.write_text(SECRET)
    content: dict[str, Any] = {
        "workload": {"workload": {"kind": "trace", "file": str(secret)}},
        "server": {"instances": [{"server": str(secret)}]},
        "model": {"instances": [{"server": {"model": str(secret), "gpu": "h100"}}]},
        "simulation": {
            "simulation": str(secret),
            "grid": {"router": ["round_robin", "least_loaded"]},
            "metrics": ["goodput"],
        },
    }[key]
    config = tmp_path / "config.json"
    config.write_text(json.dumps(content))
    status = cli.main(["sweep" if key == "simulation" else "run", str(config)])
    err = capsys.readouterr().err
    assert status == 2
    assert str(secret) in err
    assert "\x1b" not in err
    assert SECRET[42:] not in err
    if key == "workload":
        assert "unknown format: root:$6$abcdefghijklmnop\\x1b[31m$" in err
        assert SECRET[:41] not in err.replace("\\x1b", "\x1b")


def test_a_cell_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"arrival_s,input_tokens,output_tokens\n0,{'9' * 500},1\n")
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert f"'{'9' * 40}'…" in str(caught.value)
    assert "9" * 41 not in str(caught.value)


def test_many_unused_columns_are_counted(tmp_path: Path) -> None:
    names = [f"extra_{i}" for i in range(20_000)]
    path = tmp_path / "log.csv"
    path.write_text(
        f"arrival_s,input_tokens,output_tokens,{','.join(names)}\n0,1,1{',x' * len(names)}\n"
    )
    with pytest.warns(UserWarning, match=r"extra_19, … and 19980 more; optional") as caught:
        spillway.read_trace(path)
    assert len(str(caught[0].message)) < 2000
