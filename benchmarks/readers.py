"""CPU time of `read_trace`: `python benchmarks/readers.py --against OTHER/bin/python`.

Each file is read in a fresh process, by this Python and the other one in turn; the time is that of
the fastest round. Every file holds the same requests, a million, with whole milliseconds in JSONL
and microseconds in CSV.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_READ = """
import sys, time
from spillway.files.traces import read_trace
start_s = time.process_time()
trace = read_trace(sys.argv[1])
print(time.process_time() - start_s, trace.sha256)
"""

_BLOCK_TOKENS = 512
_LONGEST_TOKENS = 8 * _BLOCK_TOKENS


class _Requests:
    """Requests that arrive at random."""

    def __init__(self, rows: int) -> None:
        rng = np.random.default_rng(1)
        self.arrival_us = np.cumsum(rng.exponential(2000, rows)).astype(np.int64).tolist()
        self.tokens = [
            rng.lognormal(mean, 1, rows).astype(int).clip(1, _LONGEST_TOKENS).tolist()
            for mean in (6.5, 5)
        ]
        self.tenant = rng.choice([f"tenant-{i}" for i in range(8)], rows).tolist()
        self.slo_class = rng.choice(["interactive", "standard", "batch"], rows).tolist()
        self.ids = rng.integers(0, 200_000, (rows, 8)).tolist()

    def seconds(self) -> list[str]:
        """The arrivals as text."""
        return [f"{us // 1_000_000}.{us % 1_000_000:06d}" for us in self.arrival_us]

    def columns(self) -> Iterator[str]:
        """The lines of Spillway's CSV."""
        yield "arrival_s,input_tokens,output_tokens"
        yield from map("{},{},{}".format, self.seconds(), *self.tokens)

    def named(self) -> Iterator[str]:
        """The same with tenants and classes."""
        yield "arrival_s,input_tokens,output_tokens,tenant,slo_class"
        rows = (self.seconds(), *self.tokens, self.tenant, self.slo_class)
        yield from map("{},{},{},{},{}".format, *rows)

    def azure(self) -> Iterator[str]:
        """The lines of an Azure trace."""
        yield "TIMESTAMP,ContextTokens,GeneratedTokens"
        start = np.datetime64("2023-11-16T18:15:46.000000")
        instants = np.datetime_as_string(start + np.array(self.arrival_us, "timedelta64[us]"))
        stamps = (f"{instant.replace('T', ' ')}0" for instant in instants.tolist())
        yield from map("{},{},{}".format, stamps, *self.tokens)

    def mooncake_lengths(self) -> Iterator[str]:
        """The lines of Mooncake JSONL without hash ids."""
        for us, prompt, output in zip(self.arrival_us, *self.tokens, strict=True):
            yield json.dumps(
                {"timestamp": us // 1000, "input_length": prompt, "output_length": output}
            )

    def mooncake(self) -> Iterator[str]:
        """The lines of Mooncake JSONL."""
        blocks = (
            ids[: -(-prompt // _BLOCK_TOKENS)]
            for ids, prompt in zip(self.ids, self.tokens[0], strict=True)
        )
        for line, ids in zip(self.mooncake_lengths(), blocks, strict=True):
            yield f'{line[:-1]}, "hash_ids": {json.dumps(ids)}}}'


_FILES: dict[str, tuple[str, Callable[[_Requests], Iterator[str]]]] = {
    "columns": ("csv", _Requests.columns),
    "columns, tenants": ("csv", _Requests.named),
    "azure": ("csv", _Requests.azure),
    "mooncake": ("jsonl", _Requests.mooncake),
    "mooncake_lengths": ("jsonl", _Requests.mooncake_lengths),
}


def _read(python: Path, path: Path) -> tuple[float, str] | None:
    """CPU seconds and digest of reading a file once; None if the other Python cannot read it."""
    command = [str(python), "-W", "ignore", "-c", _READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        if python == Path(sys.executable) or "TraceError" not in done.stderr:
            sys.exit(done.stderr)
        return None
    seconds, digest = done.stdout.split()
    return float(seconds), digest


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path, help="another Python that has a Spillway")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--file", choices=_FILES, action="append", help="default: all")
    options = parser.parse_args()
    pythons = [Path(sys.executable), *([options.against] if options.against else [])]
    requests = _Requests(options.rows)
    print(f"{'file':<20}{'CPU s':>8}{'other, CPU s':>14}{'ratio':>8}  same digest")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.file or _FILES:
            suffix, lines = _FILES[name]
            path = Path(folder, f"trace.{suffix}")
            path.write_text("".join(f"{line}\n" for line in lines(requests)))
            rounds = [[_read(python, path) for python in pythons] for _ in range(options.rounds)]
            digests = {found[1] for row in rounds for found in row if found}
            times = [
                min((found[0] for found in column if found), default=None)
                for column in zip(*rounds, strict=True)
            ]
            own, other = times[0], times[-1]
            if own is None or other is None or len(times) == 1:
                print(f"{name:<20}{own:>8.3f}{'-':>14}{'-':>8}", flush=True)
                continue
            same = "yes" if len(digests) == 1 else "NO"
            print(f"{name:<20}{own:>8.3f}{other:>14.3f}{other / own:>8.2f}  {same}", flush=True)


if __name__ == "__main__":
    main()
