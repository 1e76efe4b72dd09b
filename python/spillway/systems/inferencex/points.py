"""Results of InferenceX: mean latencies by concurrency, per GPU, engine and model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from spillway.config.messages import note
from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.recordings.objects import Object, results
from spillway.files.recordings.points import Point, points_of
from spillway.files.recordings.server import facts

if TYPE_CHECKING:
    from spillway.data.recording import LatencyPoints
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source


_KEYS = ("hw", "conc", "isl", "osl")

# What else tells servers apart.
_GROUP = (
    "hw",
    "model",
    "framework",
    "precision",
    "tp",
    "ep",
    "dp_attention",
    "spec_decoding",
    "image",
    "infmax_model_prefix",
    "isl",
    "osl",
)


def _results(source: Source) -> list[Object]:
    if not set(_KEYS) <= set(source.first_keys):
        return []
    found = results(source)
    return found if all(set(_KEYS) <= result.values.keys() for result in found) else []


def _read(source: Source, settings: Settings) -> list[LatencyPoints]:
    """A point per result; a file may hold a result, a list of them, or a result per line.

    Times are seconds (`mean_ttft`, `mean_tpot`), or milliseconds if the key ends in `_ms`. Lengths
    are the nominal ones, `isl` and `osl`; the benchmark draws from 80% of them to all. Results of
    disaggregated serving are left out.
    """
    found = _results(source)
    whole = [result for result in found if not _is_true(result.values.get("disagg"))]
    if left := len(found) - len(whole):
        note(f"{source.path}: {left} results of disaggregated serving are left out")
    if not whole:
        raise TraceError(f"{source.path}: holds only results of disaggregated serving")
    return points_of(source, [_point(result) for result in whole], settings)


def _point(result: Object) -> Point:
    values = result.values
    reported = {
        "model": result.text("model"),
        "gpu": result.text("hw"),
        "engine": result.text("framework"),
        "tensor_parallel_size": _count(result, "tp") or None,
    }
    return Point(
        result.place or result.source.path.name,
        _at_least_1(result, "isl"),
        _at_least_1(result, "osl"),
        _at_least_1(result, "conc"),
        None,
        _mean_s(result, "mean_ttft"),
        _mean_s(result, "mean_tpot") or _mean_s(result, "mean_itl"),
        facts(f"{result.source.path} {result.place}".strip(), reported),
        {key: str(values[key]) for key in _GROUP if values.get(key) not in (None, "")},
    )


def _count(result: Object, key: str) -> int | None:
    """Return a whole number, which may be written as text."""
    text = result.values.get(key)
    if isinstance(text, str) and text.strip().isdecimal() and len(text) < 10:
        return int(text)
    return result.whole(key)


def _at_least_1(result: Object, key: str) -> int:
    number = _count(result, key)
    if not number:
        result.source.refuse(result.at(key), number, "must be a whole number >= 1")
    return number


def _mean_s(result: Object, name: str) -> float | None:
    for key, per_second in ((name, 1.0), (f"{name}_ms", 1e3)):
        mean = result.number(key)
        if mean is not None and not 0 <= mean < math.inf:
            result.source.refuse(result.at(key), mean, "must be a number >= 0")
        if mean:
            return mean / per_second
    return None


def _is_true(value: Any) -> bool:
    return value is True or str(value).lower() == "true"


FORMAT = Format(
    name="inferencex",
    doc="results of InferenceX (InferenceMAX): JSON with hw, conc, isl, osl, mean_ttft, mean_tpot",
    gives=("points",),
    detect=lambda source: bool(_results(source)),
    read=_read,
)
