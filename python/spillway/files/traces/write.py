"""Writing traces to files."""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

import numpy as np

from spillway import _core
from spillway._core.sim import ConfigError
from spillway.config import filesystem
from spillway.config.messages import note
from spillway.data.shared_prompts import conversation_segments, models_of, texts_of
from spillway.files.error import TraceError
from spillway.files.traces.rows import ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def write_csv(trace: _core.workload.Trace, path: str | Path) -> None:
    """Write a trace as CSV of the format `columns`, with exact times in seconds.

    Parameters
    ----------
    trace : Trace
        Each of its prompts shares at most its beginning, like those of prefix groups and of
        conversations.
    path : str or Path
        The file, which is replaced if it exists.

    A prefix group is named by its number. `read_trace` reads the same requests.

    Raises
    ------
    UsageError
        The trace holds no requests, only their digest.
    TraceError
        Prompts that begin alike go on differently after some of it, as only Mooncake's format holds
        it (the message names the request), or the file cannot be written.

    """
    columns = columns_of(trace)
    header = ["arrival_s", "input_tokens", "output_tokens", "tenant", "slo_class"]
    cells: list[list[Any]] = [
        [decimal(ns, 9) for ns in columns["arrival_ns"].tolist()],
        columns["input_tokens"].tolist(),
        columns["output_tokens"].tolist(),
        [columns["tenants"][code] for code in columns["tenant"].tolist()],
        [columns["slo_classes"][code] for code in columns["slo_class"].tolist()],
    ]
    if columns["request_id"]:
        header.append("request_id")
        cells.append(columns["request_id"])
    sessions = _sessions(path, columns)
    if sessions:
        header.append("session")
        cells.append(sessions)
    elif len(columns["segment_content"]):
        header += ["prefix_group", "prefix_tokens"]
        cells += _prefixes(columns)
    if "warm_tokens" in columns:
        header.append("warm_tokens")
        cells.append(columns["warm_tokens"].tolist())
    if "max_tokens" in columns:
        header.append("max_tokens")
        cells.append(columns["max_tokens"].tolist())
    names = [*columns["tenants"], *columns["slo_classes"], *columns["request_id"]]
    if "model" in columns:
        header.append("model")
        cells.append(models_of(columns))
        names += columns["models"]
    for name, code, values in columns.get("attributes", ()):
        header.append(f"{ATTRIBUTE}{name}")
        cells.append(texts_of(code, values))
        names += [name, *values]
    plain = all(map(_PLAIN.fullmatch, names))
    with written(Path(path)) as stream:
        csv.writer(stream, lineterminator="\n").writerow(header)
        quoting: Literal[0, 1] = csv.QUOTE_MINIMAL if plain else csv.QUOTE_ALL
        csv.writer(stream, lineterminator="\n", quoting=quoting).writerows(zip(*cells, strict=True))


_PLAIN = re.compile(r"[\w.:/-]+")


def _sessions(path: str | Path, columns: Mapping[str, Any]) -> list[str]:
    """Return the conversation of each request, if the trace consists of conversations."""
    if "answer" not in columns:
        return []
    content, begin = columns["segment_content"].tolist(), columns["segment_begin"].tolist()
    sessions = [
        str(content[first]) if end > first else "" for first, end in itertools.pairwise(begin)
    ]
    lengths = columns["input_tokens"].tolist(), columns["output_tokens"].tolist()
    again = conversation_segments(sessions, *lengths)
    if all(np.array_equal(again.get(name, []), columns[name]) for name in (*again, "answer")):
        return sessions
    note(f"{path}: the file does not say which answers later prompts repeat")
    return []


def _prefixes(columns: Mapping[str, Any]) -> list[list[Any]]:
    """Return the group of each prompt and the tokens that it shares; empty without a group.

    Prompts of a group are the beginnings of its longest one, such as the turns of a conversation.
    """
    content, tokens = columns["segment_content"].tolist(), columns["segment_tokens"].tolist()
    groups: list[Any] = []
    shared: list[Any] = []
    longest: dict[int, list[tuple[int, int]]] = {}  # the segments of a group
    for row, (begin, end) in enumerate(itertools.pairwise(columns["segment_begin"].tolist())):
        groups.append(content[begin] if end > begin else "")
        shared.append(sum(tokens[begin:end]) if end > begin else "")
        parts = list(zip(content[begin:end], tokens[begin:end], strict=True))
        known = longest.setdefault(groups[row], parts)
        if len(parts) > len(known):
            known, parts, longest[groups[row]] = parts, known, parts
        is_one = len({part for part, _ in known + parts}) <= 1  # cut where shorter ones end
        if known[: len(parts)] != parts and not is_one:
            raise TraceError(
                f"request {row} begins like another and shares several segments: must be the "
                "beginning of the other, or its continuation; a file of Mooncake's format "
                "(….jsonl) holds traces of blocks"
            )
    return [groups, shared]


def columns_of(trace: _core.workload.Trace) -> Mapping[str, Any]:
    """Return the requests of a trace as arrays. Raises UsageError if the trace holds none."""
    if not trace.has_requests:
        raise _core.sim.UsageError("the trace holds no requests, only their digest: read it again")
    return trace._columns()


@contextlib.contextmanager
def written(path: Path) -> Iterator[TextIO]:
    """Yield the stream of a file that is replaced at the end. Raises TraceError if it cannot be."""
    try:
        with (
            filesystem.replacing(path) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as stream,
        ):
            yield stream
    except ConfigError as error:
        raise TraceError(str(error)) from error


def decimal(ns: int, places: int) -> str:
    """Return nanoseconds in units of 10**places ns."""
    whole, rest = divmod(ns, 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0") if rest else str(whole)
