"""Writing traces as Mooncake JSONL."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.files.error import TraceError
from spillway.files.traces.columns import DEFAULT_CLASS, DEFAULT_TENANT, num_blocks
from spillway.files.traces.rows import BLOCK_SIZE_TOKENS
from spillway.files.traces.write import columns_of, decimal, written
from spillway.systems.mooncake.trace import BLOCK_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway._core.workload import Trace


def write_mooncake(
    trace: Trace, path: str | Path, *, block_size_tokens: int = BLOCK_SIZE_TOKENS
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

    A line also has `tenant` and `slo_class` unless they are "default" and "standard",
    `request_id` if the trace names its requests, and `warm_tokens` if any of its prompt are cached
    at the start; other readers of the format ignore them.

    Raises
    ------
    UsageError
        The trace holds no requests, only their digest.
    TraceError
        A prompt shares a segment other than whole blocks of that size (the message names the
        request), or the file cannot be written.

    """
    BLOCK_SIZE.checked(block_size_tokens)
    lines = _mooncake_lines(columns_of(trace), block_size_tokens)
    with written(Path(path)) as stream:
        stream.writelines(lines)


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
        names: dict[str, Any] = {}
        if columns["request_id"]:
            names["request_id"] = columns["request_id"][row]
        if tenant != DEFAULT_TENANT:
            names["tenant"] = tenant
        if slo_class != DEFAULT_CLASS:
            names["slo_class"] = slo_class
        if "warm_tokens" in columns:
            names["warm_tokens"] = int(columns["warm_tokens"][row])
        values = {"input_length": prompt, "output_length": outputs[row], "hash_ids": ids, **names}
        yield f'{{"timestamp": {decimal(arrivals[row], 6)}, {json.dumps(values)[1:]}\n'
