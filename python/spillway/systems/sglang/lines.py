"""The lines of `sglang.bench_serving --output-file`, a JSON object per run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from spillway.config.messages import note
from spillway.files.error import TraceError
from spillway.files.recordings.objects import Object
from spillway.files.recordings.server import facts
from spillway.files.recordings.source import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.data.recording import ServerFacts
    from spillway.files.recordings.source import Source


DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "errors")
"""The lists with a value per request."""

_KEYS = {"backend", "dataset_name", "request_rate", "max_concurrency", "completed", "duration"}


class Line:
    """A run.

    Parameters
    ----------
    values : Object
        Its JSON object.
    name : str
        The name of the run; the only run of a file has the name of the file.

    """

    def __init__(self, values: Object, name: str) -> None:
        self.values = values
        self.name = name
        self.place = f"{values.source.path} {values.place}"

    @property
    def rate(self) -> float | None:
        """The rate of requests; infinite if all are ready at once, None if it is not a number."""
        found = self.values.values.get("request_rate")
        if found in ("inf", "Infinity"):
            return math.inf
        return None if isinstance(found, str) else self.values.number("request_rate")

    @property
    def max_concurrency(self) -> int | None:
        """The client's limit on requests in flight."""
        return self.values.whole("max_concurrency") or None

    @property
    def why_not_replayed(self) -> str:
        """Say why times of sending are not known; "" if they are."""
        lacks = [name for name in DETAILS if self.values.values.get(name) is None]
        if lacks:
            return f"no {', '.join(lacks)} (option `--output-details`)"
        if self.rate != math.inf:
            rate = self.values.values.get("request_rate")
            return f"no times of sending, which do not follow from a request_rate of {rate!r:.40}"
        return ""

    @property
    def server(self) -> ServerFacts:
        """The statements about the server."""
        info = self.values.values.get("server_info")
        info = info if isinstance(info, dict) else {}
        backend = self.values.text("backend") or ""
        engine = backend.partition("-")[0]
        radix = info.get("disable_radix_cache")
        found: Mapping[str, Any] = {
            "model": info.get("model_path"),
            "engine": engine if engine in ("sglang", "vllm", "lmdeploy") else None,
            "engine_version": info.get("version") if engine == "sglang" else None,
            "tensor_parallel_size": info.get("tp_size"),
            "data_parallel_size": info.get("dp_size"),
            "max_num_seqs": info.get("max_running_requests"),
            "prefix_caching": not radix if isinstance(radix, bool) else None,
        }
        return facts(self.place, found)


def is_result(source: Source) -> bool:
    """Whether a file holds such lines, or a list of them, or one that is spread over lines."""
    return source.first_keys >= _KEYS and "model_id" not in source.first_keys


def lines_of(source: Source, *, skip_bad: bool = False) -> Iterator[Line]:
    """Yield the lines.

    Raises TraceError if a line is no JSON object, unless it may be skipped.
    """
    for place, line in _lines(source):
        if line is not None:
            yield line
        elif skip_bad:
            note(f"{source.path} {place}: skipped: not a JSON object")
        else:
            raise TraceError(f"{source.path} {place}: must be a JSON object")


def lists_runs(source: Source) -> bool:
    """Whether a file holds such lines, and the requests of one can be replayed."""
    return is_result(source) and any(
        line is not None and not line.why_not_replayed for _, line in _lines(source)
    )


def _lines(source: Source) -> Iterator[tuple[str, Line | None]]:
    whole = source.json
    if isinstance(whole, list):
        found = [(f"[{at}]", values) for at, values in enumerate(whole)]
    elif isinstance(whole, dict):
        found = [("line 1", whole)]
    else:
        texts = enumerate(source.text.splitlines(), 1)
        found = [(f"line {at}", text) for at, text in texts if text.strip()]
    for run, (place, content) in enumerate(found):
        values = parsed(content) if isinstance(content, str) else content
        name = f"{source.path.stem}[{run}]" if found[1:] else ""
        known = isinstance(values, dict)
        yield place, Line(Object(source, place, values), name) if known else None
