"""Writing traces to files."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from spillway import _core
from spillway._core.sim import ConfigError
from spillway.config import filesystem
from spillway.interop.traces.columns import DEFAULT_CLASS, DEFAULT_TENANT, num_blocks
from spillway.interop.traces.error import TraceError
from spillway.interop.traces.format import BLOCK_SIZE_TOKENS
from spillway.interop.traces.formats.mooncake import BLOCK_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["write_csv", "write_mooncake"]


def __dir__() -> list[str]:
    return __all__


def write_mooncake(
    trace: _core.workload.Trace,
    path: str | Path,
    *,
    block_size_tokens: int = BLOCK_SIZE_TOKENS,
) -> None:
    """Write a trace as Mooncake JSONL, with exact timestamps in milliseconds.

    Parameters
    ----------
    trace : Trace
        Its prompts share whole blocks, like those of a Mooncake trace, or nothing. The rest of each
        prompt gets unique ids.
    path : str or Path
        The file, which is replaced if it exists.
    block_size_tokens : int
        Tokens per hash id, >= 1.

    A line also has `tenant` and `slo_class` unless they are "default" and "standard", and
    `request_id` if the trace names its requests; other readers of the format ignore them.

    Raises
    ------
    UsageError
        The trace holds no requests, only their digest.
    TraceError
        A prompt shares a segment other than whole blocks of that size (the message names the
        request), or the file cannot be written.

    """
    BLOCK_SIZE.checked(block_size_tokens)
    lines = _mooncake_lines(_columns(trace), block_size_tokens)
    with _written(Path(path)) as stream:
        stream.writelines(lines)


def write_csv(trace: _core.workload.Trace, path: str | Path) -> None:
    """Write a trace as CSV of the format `columns`, with exact times in seconds.

    Parameters
    ----------
    trace : Trace
        Each of its prompts shares at most its beginning, like those of prefix groups.
    path : str or Path
        The file, which is replaced if it exists.

    A prefix group is named by its number. `read_trace` reads the same requests.

    Raises
    ------
    UsageError
        The trace holds no requests, only their digest.
    TraceError
        A prompt shares several segments (the message names the request; `write_mooncake` writes
        them), or the file cannot be written.

    """
    columns = _columns(trace)
    header = ["arrival_s", "input_tokens", "output_tokens", "tenant", "slo_class"]
    cells: list[list[Any]] = [
        [_decimal(ns, 9) for ns in columns["arrival_ns"].tolist()],
        columns["input_tokens"].tolist(),
        columns["output_tokens"].tolist(),
        [columns["tenants"][code] for code in columns["tenant"].tolist()],
        [columns["slo_classes"][code] for code in columns["slo_class"].tolist()],
    ]
    if columns["request_id"]:
        header.append("request_id")
        cells.append(columns["request_id"])
    if len(columns["segment_content"]):
        header += ["prefix_group", "prefix_tokens"]
        cells += _prefixes(columns)
    names = [*columns["tenants"], *columns["slo_classes"], *columns["request_id"]]
    plain = all(map(_PLAIN.fullmatch, names))
    with _written(Path(path)) as stream:
        csv.writer(stream, lineterminator="\n").writerow(header)
        quoting: Literal[0, 1] = csv.QUOTE_MINIMAL if plain else csv.QUOTE_ALL
        csv.writer(stream, lineterminator="\n", quoting=quoting).writerows(zip(*cells, strict=True))


_PLAIN = re.compile(r"[\w.:/-]+")


def _prefixes(columns: Mapping[str, Any]) -> list[list[Any]]:
    """Return the group of each prompt and the tokens that it shares; empty without a group."""
    content, tokens = columns["segment_content"].tolist(), columns["segment_tokens"].tolist()
    groups: list[Any] = []
    shared: list[Any] = []
    for row, (begin, end) in enumerate(itertools.pairwise(columns["segment_begin"].tolist())):
        if len(set(content[begin:end])) > 1:
            raise TraceError(
                f"request {row} shares {end - begin} segments: must be <= 1; write_mooncake writes "
                "traces of blocks"
            )
        groups.append(content[begin] if end > begin else "")
        shared.append(sum(tokens[begin:end]) if end > begin else "")
    return [groups, shared]


def _columns(trace: _core.workload.Trace) -> Mapping[str, Any]:
    if not trace.has_requests:
        raise _core.sim.UsageError("the trace holds no requests, only their digest: read it again")
    return trace._columns()


@contextlib.contextmanager
def _written(path: Path) -> Iterator[TextIO]:
    try:
        with (
            filesystem.replacing(path) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as stream,
        ):
            yield stream
    except ConfigError as error:
        raise TraceError(str(error)) from error


def _mooncake_lines(columns: Mapping[str, Any], block_size_tokens: int) -> Iterator[str]:
    contents = columns["segment_content"].tolist()
    lengths = columns["segment_tokens"].tolist()
    used = set(contents)
    unused = (number for number in itertools.count() if number not in used)
    arrivals, prompts, outputs = (
        columns[name].tolist() for name in ("arrival_ns", "input_tokens", "output_tokens")
    )
    begin = columns["segment_begin"].tolist() or [0] * (len(prompts) + 1)
    for row, prompt in enumerate(prompts):
        shared = slice(begin[row], begin[row + 1])
        ids, tokens = contents[shared], lengths[shared]
        count = num_blocks(prompt, block_size_tokens)
        whole = [min(block_size_tokens, prompt - block_size_tokens * i) for i in range(len(tokens))]
        if tokens != whole:
            raise TraceError(
                f"request {row} shares segments of {', '.join(map(str, tokens[:8]))} tokens: must "
                f"be blocks of {block_size_tokens}; only the last of a prompt may be shorter"
            )
        ids += itertools.islice(unused, count - len(ids))
        tenant = columns["tenants"][columns["tenant"][row]]
        slo_class = columns["slo_classes"][columns["slo_class"][row]]
        names = {}
        if columns["request_id"]:
            names["request_id"] = columns["request_id"][row]
        if tenant != DEFAULT_TENANT:
            names["tenant"] = tenant
        if slo_class != DEFAULT_CLASS:
            names["slo_class"] = slo_class
        values = {"input_length": prompt, "output_length": outputs[row], "hash_ids": ids, **names}
        yield f'{{"timestamp": {_decimal(arrivals[row], 6)}, {json.dumps(values)[1:]}\n'


def _decimal(ns: int, places: int) -> str:
    """Return nanoseconds in units of 10**places ns."""
    whole, rest = divmod(ns, 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0") if rest else str(whole)
