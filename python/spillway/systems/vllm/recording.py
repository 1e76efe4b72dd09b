"""Results of `vllm bench serve --save-result --save-detailed`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.config.messages import note
from spillway.files.format import Format
from spillway.files.recordings.objects import Object, results
from spillway.files.recordings.rows import Gaps, Rows, Time
from spillway.files.recordings.server import facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "errors")

KEYS = ("model_id", "num_prompts", "completed", "request_throughput")
"""The keys that every result has."""

# Figure of `reconciliation.FIGURES` → key of the result.
_TIMES_MS = {
    "mean_ttft_s": "mean_ttft_ms",
    "median_ttft_s": "median_ttft_ms",
    "mean_tpot_s": "mean_tpot_ms",
    "mean_gap_s": "mean_itl_ms",
    "mean_e2e_s": "mean_e2el_ms",
    "median_e2e_s": "median_e2el_ms",
}
_TOTALS = {"mean_input_tokens": "total_input_tokens", "mean_output_tokens": "total_output_tokens"}


def results_of(source: Source) -> list[Object]:
    """Return the results in a file; none if it holds anything else."""
    if not set(KEYS) <= set(source.first_keys):
        return []
    found = results(source)
    return found if all(set(KEYS) <= result.values.keys() for result in found) else []


def has_requests(result: Object) -> bool:
    """Whether a result lists its requests: it was saved with `--save-detailed`."""
    return any(name in result.values for name in _LISTS)


def _detect(source: Source) -> bool:
    return any(map(has_requests, results_of(source)))


def _read(source: Source, _settings: Settings) -> list[Rows]:
    """E2E is the TTFT plus the inter-token latencies; `max_concurrency` the client's limit.

    A file to which `--append-result` adds results holds several runs.
    """
    found = results_of(source)
    listing = [result for result in found if has_requests(result)]
    if left := len(found) - len(listing):
        note(
            f"{source.path}: {left} of {len(found)} results are left out: they list no requests, "
            "because they were saved without `--save-detailed`"
        )
    names = [source.path.stem] if len(listing) == 1 else _names(source.path.stem, len(listing))
    return [_run(result, name) for result, name in zip(listing, names, strict=True)]


def _names(stem: str, number: int) -> list[str]:
    return [f"{stem} {run}" for run in range(1, number + 1)]


def _run(result: Object, name: str) -> Rows:
    source = result.source
    for key in _LISTS:
        if key not in result.values:
            source.refuse_missing(
                result.at(key), "measure again with `--save-result --save-detailed`"
            )
    if "start_times" not in result.values:
        source.refuse_missing(
            result.at("start_times"),
            "the times of sending; `vllm bench serve` writes them since 0.11",
        )
    start_s = result.numbers("start_times")
    num = len(start_s)
    for key in _LISTS:
        if len(result.items(key)) != num:
            allowed = f"must hold {num} values, as start_times does"
            source.refuse(result.at(key), f"{len(result.items(key))} values", allowed)
    ttft_s = result.numbers("ttfts")
    gaps_s = result.lists_of_numbers("itls")
    output_tokens = _tokens(result, "output_lens")
    # Of an answer without a token vLLM counts no completion, even if there is no error.
    failed = [
        bool(error) or (tokens == 0 and first == 0)
        for error, tokens, first in zip(result.items("errors"), output_tokens, ttft_s, strict=True)
    ]
    # The file has no end-to-end latency. The tool's own is that of the last token too.
    e2e_s: list[float | None] = [
        None if bad else first + sum(gaps)
        for first, gaps, bad in zip(ttft_s, gaps_s, failed, strict=True)
    ]
    limit = result.whole("max_concurrency")
    return Rows(
        source,
        name=name,
        send=Time("start_times", "s", start_s),
        input_tokens=_tokens(result, "input_lens"),
        output_tokens=output_tokens,
        ttft=Time("ttfts", "s", ttft_s),
        e2e=Time("itls", "s", e2e_s),
        failed=failed,
        places=[result.at(f"request {at}") for at in range(num)],
        server=facts(f"{source.path}", {"model": result.text("model_id")}),
        token_gaps=Gaps("itls", "s", gaps_s),
        client_max_in_flight=limit or None,
        reported=dict(_reported(result, any_failed=any(failed))),
    )


def _reported(result: Object, *, any_failed: bool) -> Iterator[tuple[str, float]]:
    """Yield the tool's own figures."""
    completed = result.whole("completed") or 0
    yield "completed", completed
    if (failures := result.whole("failed")) is not None:
        yield "failed", failures
    figures = {
        **{key: (name, 1e3) for key, name in _TIMES_MS.items()},
        **{key: (name, completed) for key, name in _TOTALS.items()},
    }
    # The file does not say how long failed requests took.
    if any_failed:
        figures["rough_duration_s"] = ("duration", 1)
    else:
        figures |= {"requests_per_s": ("request_throughput", 1), "duration_s": ("duration", 1)}
    for key, (name, divisor) in figures.items():
        value = result.number(name)
        if value is not None and completed:
            yield key, value / divisor


def _tokens(result: Object, key: str) -> list[int]:
    for at, tokens in enumerate(result.items(key)):
        if type(tokens) is not int:
            place = f"{result.at(key)}[{at}]"
            result.source.refuse(place, tokens, "must be a whole number")
    return result.items(key)


FORMAT = Format(
    name="vllm_bench",
    doc="JSON of `vllm bench serve --save-result --save-detailed` (vLLM 0.11 or later)",
    gives=("recordings",),
    detect=_detect,
    read=_read,
)
