"""Results of `vllm bench serve --save-result --save-detailed`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.files.format import Format
from spillway.files.recordings.objects import Object
from spillway.files.recordings.rows import Gaps, Rows, Time
from spillway.files.recordings.server import facts

if TYPE_CHECKING:
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "errors")


def _read(source: Source, _settings: Settings) -> list[Rows]:
    """E2E is the TTFT plus the inter-token latencies; `max_concurrency` the client's limit."""
    result = Object(source, "", source.json)
    for name in _LISTS:
        if name not in result.values:
            source.refuse_missing(name, "measure again with `--save-result --save-detailed`")
    if "start_times" not in result.values:
        source.refuse_missing(
            "start_times", "the times of sending; `vllm bench serve` writes them since 0.11"
        )
    start_s = result.numbers("start_times")
    num = len(start_s)
    for name in _LISTS:
        if len(result.items(name)) != num:
            allowed = f"must hold {num} values, as start_times does"
            source.refuse(name, f"{len(result.items(name))} values", allowed)
    errors = result.items("errors")
    failed = [bool(error) for error in errors]
    ttft_s = result.numbers("ttfts")
    gaps_s = result.lists_of_numbers("itls")
    # The file has no end-to-end latency. The tool's own is that of the last token too.
    e2e_s: list[float | None] = [
        None if bad else first + sum(gaps)
        for first, gaps, bad in zip(ttft_s, gaps_s, failed, strict=True)
    ]
    limit = result.whole("max_concurrency")
    rows = Rows(
        source,
        send=Time("start_times", "s", start_s),
        input_tokens=_tokens(result, "input_lens"),
        output_tokens=_tokens(result, "output_lens"),
        ttft=Time("ttfts", "s", ttft_s),
        e2e=Time("itls", "s", e2e_s),
        failed=failed,
        places=[f"request {at}" for at in range(num)],
        server=facts(f"{source.path}", {"model": result.text("model_id")}),
        token_gaps=Gaps("itls", "s", gaps_s),
        client_max_in_flight=limit or None,
    )
    return [rows]


def _tokens(result: Object, key: str) -> list[int]:
    for at, tokens in enumerate(result.items(key)):
        if type(tokens) is not int:
            result.source.refuse(f"{key}[{at}]", tokens, "must be a whole number")
    return result.items(key)


FORMAT = Format(
    name="vllm_bench",
    doc="JSON of `vllm bench serve --save-result --save-detailed` (vLLM 0.11 or later)",
    gives=("recordings",),
    required=("model_id", "num_prompts", "completed", "request_throughput"),
    read=_read,
)
