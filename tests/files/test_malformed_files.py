"""Malformed files over all readers: one clear error each, and no code of the file runs."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from spillway import ConfigError, read_recordings, read_trace, traffic
from spillway.files import deployments
from spillway.files.traces import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TAG = b"!!python/object/apply:os._exit [7]\n"
EVIL = "__import__('os')._exit(7)"
HEADER = b"arrival_s,input_tokens,output_tokens\n"
DEEP = b"[" * 100_000
MOONCAKE = {"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}
UNLIMITED = {"kind": "constant", "rate": float("nan")}
TEXT = {"kind": "synthetic_text", "prompt_tokens": 5, "output_tokens": 5}
TURN = {"session_id": "a", "timestamp": 0, "input_length": 9, "output_length": 1}
BENCH = {"ttfts": [0.1], "itls": [[0.1]], "input_lens": [5], "output_lens": [2], "errors": [""]}
DATASET = {"0": {"input_tokens": "{5: 1.0}", "output_tokens": "{5: 1.0}"}}


def line(found: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps(found | changes).encode() + b"\n"


def _pool(path: Path) -> Any:
    """A client pool with the file as its windows, or as its lengths."""
    folder = path.parent / "pool"
    folder.mkdir()
    windows, lengths = folder / "chunk-1-trace.csv", folder / "chunk-1-dataset.json"
    windows.write_bytes(b"0,1.0,1.0,Gamma,1.0,1.0\n")
    lengths.write_bytes(json.dumps(DATASET).encode())
    (lengths if path.suffix == ".json" else windows).write_bytes(path.read_bytes())
    return traffic.read_client_pool(folder)


def _deployment(path: Path) -> Any:
    return deployments.import_(path, system="llm-d")


READERS: dict[str, Callable[[Any], Any]] = {
    "trace": read_trace,
    "recording": read_recordings,
    "load": traffic.read_load,
    "pool": _pool,
    "deployment": _deployment,
}
FILES: list[tuple[str, str, bytes]] = [
    ("trace", "cut.jsonl", line(MOONCAKE)[:-9]),
    ("trace", "types.jsonl", line(MOONCAKE, input_length="9")),
    ("trace", "nan.jsonl", b'{"timestamp": NaN, "input_length": 9, "output_length": 1}\n'),
    ("trace", "negative.jsonl", line(MOONCAKE, output_length=-1)),
    ("trace", "huge.jsonl", line(MOONCAKE, hash_ids=[2**70])),
    ("trace", "deep.jsonl", line(MOONCAKE) + DEEP),
    ("trace", "binary.jsonl", bytes(range(256)) * 20),
    ("trace", "latin.csv", HEADER + b"0,1,\xe9\n"),
    ("trace", "nul.csv", HEADER + b"0,\x00,1\n"),
    ("trace", "code.csv", HEADER + f"{EVIL},1,1\n".encode()),
    ("trace", "tag.yaml", TAG),
    ("trace", "empty.csv", b""),
    ("trace", "cut.csv.gz", gzip.compress(HEADER + b"0,1,1\n")[:-8]),
    ("trace", "session.jsonl", line(TURN) + line(TURN, session_id=None)),
    ("trace", "delay.jsonl", line(TURN) + line({**TURN, "timestamp": None}, delay=-5)),
    ("trace", "infinite.jsonl", line(TURN, timestamp=float("inf"))),
    ("recording", "cut.json", line(BENCH)[:-9]),
    ("recording", "types.json", line(BENCH, ttfts="fast")),
    ("recording", "nan.json", line(BENCH, ttfts=[float("nan")])),
    ("recording", "negative.json", line(BENCH, input_lens=[-5])),
    ("recording", "lengths.json", line(BENCH, output_lens=[2, 3])),
    ("recording", "deep.json", DEEP),
    ("recording", "binary.bin", bytes(range(256))),
    ("recording", "tag.yaml", TAG),
    ("recording", "guidellm.json", b'{"benchmarks": [{"requests": {"successful": 3}}]}'),
    ("load", "tag.yaml", b"spec: " + TAG),
    ("load", "alias.yaml", b"load: &a {type: poisson}\ndata: *a\n"),
    ("load", "cut.json", b'{"load": {"type": "poisson"'),
    ("load", "latin.yaml", "load: é".encode("latin-1")),
    ("load", "deep.json", b'{"spec": ' + DEEP),
    ("load", "digits.json", b'{"load": {"type": ' + b"9" * 5000 + b"}}"),
    ("load", "twice.json", b'{"load": 1, "load": 2}'),
    ("load", "nan.json", line({"spec": {"profile": UNLIMITED, "data": [TEXT]}})),
    ("load", "code.json", json.dumps({"profile": EVIL, "data": EVIL}).encode()),
    ("pool", "windows.csv", b"0,1.0\n"),
    ("pool", "windows.csv", b"0,-1.0,1.0,Gamma,1.0,1.0\n"),
    ("pool", "windows.csv", b"0,nan,1.0,Gamma,1.0,1.0\n"),
    ("pool", "windows.csv", b"\xff\xfe\x00"),
    ("pool", "lengths.json", line({"0": DATASET["0"] | {"input_tokens": EVIL}})),
    ("pool", "lengths.json", line({"0": DATASET["0"] | {"input_tokens": "(" * 5000}})),
    ("pool", "lengths.json", b'{"0": {"input_tokens"'),
    ("deployment", "tag.yaml", TAG),
    ("deployment", "latin.yaml", "kind: é".encode("latin-1")),
    ("deployment", "cut.yaml", b"kind: {"),
    ("deployment", "types.yaml", b"- 1\n- 2\n"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "name", "content"), FILES, ids=[f"{i}-{file[0]}" for i, file in enumerate(FILES)]
)
def test_a_malformed_file_gives_one_clear_error(
    reader: str, name: str, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises((ConfigError, TraceError)) as caught:
        READERS[reader](path)
    text = str(caught.value)
    # An unknown format lists the formats tried.
    assert "\n" not in text or "unknown format" in text
    assert ("chunk-1" if reader == "pool" else name) in text
    assert len(text) < 6000


def test_there_are_enough_of_them() -> None:
    assert len(FILES) >= 30
    assert {file[0] for file in FILES} == READERS.keys()


def _bomb(folder: Path) -> Path:
    """A file of 200 KB that unpacks to one line of 200 MB."""
    path = folder / "bomb.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=9) as stream:
        for _ in range(200):
            stream.write(b" " * 1_000_000)
    return path


@pytest.mark.slow
def test_a_gzip_bomb_is_an_error(tmp_path: Path) -> None:
    path = _bomb(tmp_path)
    assert path.stat().st_size < 300_000
    code = f"""
        import re, spillway
        from pathlib import Path
        try:
            spillway.read_trace({str(path)!r})
        except spillway.files.traces.TraceError as error:
            print(str(error)[:200])
        # The peak of the process alone: `ru_maxrss` begins with that of its parent.
        status = Path("/proc/self/status").read_text()
        print(int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) // 1024)
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True
    )
    message, peak_mib = found.stdout.splitlines()
    assert "bomb.jsonl.gz: a line unpacks to more: must be <= 64 MiB" in message
    assert int(peak_mib) < 330
