"""Mean latencies of `vllm bench serve` without `--save-detailed`, and of `vllm bench sweep`."""

from __future__ import annotations

import csv
import json
import math
from typing import TYPE_CHECKING, Any

from spillway.config.messages import note
from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.recordings.objects import Object
from spillway.files.recordings.points import Point, points_of
from spillway.files.recordings.server import FACT_NAMES, fact_of, facts
from spillway.systems.vllm.recording import KEYS, has_requests, results_of

if TYPE_CHECKING:
    from spillway.data.recording import LatencyPoints, ServerFacts
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


_NO_GROUP = {"date", "request_rate", "ramp_up_strategy", "model_id"}
"""Texts that tell runs apart, not servers or kinds of requests."""


def _detect(source: Source) -> bool:
    if set(KEYS) <= set(source.columns["csv"]):
        return True
    found = results_of(source)
    return bool(found) and not any(map(has_requests, found))


def _read(source: Source, settings: Settings) -> list[LatencyPoints]:
    """A point per result; `summary.json` and `summary.csv` of a sweep hold several.

    The load is `max_concurrency`, or else the rate. Lengths are the means of the completed
    requests; those of one group differ by at most 5%. Results with another model, other texts
    (`backend`, `label`, metadata) or other limits of the server are another group.
    """
    found = _rows(source) if source.columns["csv"] else results_of(source)
    completed = [result for result in found if result.whole("completed")]
    if not completed:
        raise TraceError(f"{source.path}: no request was completed")
    if left := len(found) - len(completed):
        note(f"{source.path}: {left} results are left out: no request was completed")
    if failures := sum(result.whole("failed") or 0 for result in completed):
        note(f"{source.path}: {failures} failed requests are in none of the means")
    return points_of(source, [_point(result) for result in completed], settings)


def _rows(source: Source) -> list[Object]:
    """Return the rows of a summary.csv as results."""
    rows = csv.DictReader(source.text.splitlines())
    return [
        Object(source, f"line {number}", {key: _value(text) for key, text in row.items() if key})
        for number, row in enumerate(rows, start=2)
    ]


def _value(text: Any) -> Any:
    """Return a cell as JSON would hold it."""
    if not isinstance(text, str) or text in ("", "None", "nan") or text.startswith(("[", "{")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float) else text


def _point(result: Object) -> Point:
    completed = result.whole("completed") or 1
    rate = _rate(result)
    if result.values.get("ramp_up_strategy"):
        note(
            f"{result.source.path} {result.place}: the rate of requests rises during the run; the "
            "point is its mean"
        )
    _check_throughput(result, completed)
    server, group = _common(result)
    if rate == math.inf and not result.whole("max_concurrency"):
        group["num_prompts"] = str(result.whole("num_prompts"))  # are sent at once
    return Point(
        result.place or result.source.path.name,
        _tokens(result, "total_input_tokens") / completed,
        _tokens(result, "total_output_tokens") / completed,
        result.whole("max_concurrency") or None,
        rate,
        _mean_s(result, "mean_ttft_ms"),
        _mean_s(result, "mean_tpot_ms", "mean_itl_ms"),
        server,
        group,
    )


def _check_throughput(result: Object, completed: int) -> None:
    """Warn if the throughput is not that of the completed requests in the duration."""
    duration_s, rate = result.number("duration"), result.number("request_throughput")
    if duration_s and rate and not math.isclose(rate, completed / duration_s, rel_tol=0.05):
        note(
            f"{result.source.path}{f' {result.place}' if result.place else ''}: request_throughput "
            f"= {rate:g}, but {completed:,} completed in {duration_s:g} s: values were changed"
        )


def _rate(result: Object) -> float | None:
    """Return the offered rate; infinite if all requests are sent as the limit allows."""
    rate = result.values.get("request_rate")
    if rate in ("inf", math.inf):
        return math.inf
    number = result.number("request_rate")
    if number is not None and not number > 0:
        result.source.refuse(result.at("request_rate"), number, "must be > 0 or inf")
    return number


def _tokens(result: Object, key: str) -> int:
    total = result.whole(key)
    if total is None:
        result.refuse_missing(key)
    return total


def _mean_s(result: Object, *keys: str) -> float | None:
    """Return the first of some means, which are 0 where there was nothing to measure."""
    for key in keys:
        mean_ms = result.number(key)
        if mean_ms is not None and not 0 <= mean_ms < math.inf:
            result.source.refuse(result.at(key), mean_ms, "must be a number >= 0")
        if mean_ms:
            return mean_ms / 1e3
    return None


def _common(result: Object) -> tuple[ServerFacts, dict[str, str]]:
    """Return what a result says of the server, and what else its group has in common.

    A sweep adds the parameters of `vllm serve` that it varies, e.g. `max_num_seqs`, and
    `--metadata` texts.
    """
    server: dict[str, Any] = {}
    group: dict[str, str] = {}
    for key, value in result.values.items():
        name = key.lstrip("-").replace("-", "_")
        if name in FACT_NAMES and not isinstance(value, dict | list):
            server[name] = fact_of(name, str(value))
        if key not in _NO_GROUP and value and (isinstance(value, str) or name in FACT_NAMES):
            group[key] = str(value)
    return facts(f"{result.source.path} {result.place}".strip(), server), group


FORMAT = Format(
    name="vllm_bench_points",
    doc="the means of `vllm bench serve --save-result` without `--save-detailed`, and summary.json "
    "or summary.csv of `vllm bench sweep`; for requests measure again with `--save-detailed`",
    gives=("points",),
    detect=_detect,
    read=_read,
)
