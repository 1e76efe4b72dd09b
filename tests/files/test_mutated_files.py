"""Recordings that were changed: what content reveals is said, and harmless changes are read right.

Every specimen is changed in the ways of `HARMFUL` and `HARMLESS`, deterministically. A change is
silent if a figure moves by more than 1% without an error or a note. The table is printed
(`pytest -s`); each silent change must be in `SILENT`, with the reason.
"""

from __future__ import annotations

import collections
import copy
import csv
import functools
import gzip
import io
import itertools
import json
import random
import shutil
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from support.paths import DATA
from support.readers import places_of
from support.recordings import FILES, FORMAT_OF

from spillway.files.recordings import FORMATS, TraceError, read_recordings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from spillway.data.recording import Recording

Row = dict[str, Any]


class Specimen(NamedTuple):
    """A file of requests, and its requests as rows that can be changed."""

    path: str
    name: str
    folder: Path | None
    content: bytes
    rows: list[Row]
    written: Callable[[list[Row]], str]


def _csv(content: bytes) -> tuple[list[Row], Callable[[list[Row]], str]]:
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))

    def written(changed: list[Row]) -> str:
        stream = io.StringIO(newline="")
        writer = csv.DictWriter(stream, list(changed[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(changed)
        return stream.getvalue()

    return rows, written


def _lines(content: bytes) -> tuple[list[Row], Callable[[list[Row]], str]]:
    rows = [json.loads(line) for line in content.decode().splitlines() if line.strip()]
    return rows, lambda changed: "".join(json.dumps(row) + "\n" for row in changed)


def _json(content: bytes) -> tuple[list[Row], Callable[[list[Row]], str]] | None:
    try:
        document = json.loads(content)
    except ValueError:
        return None  # an object per line
    if isinstance(document, list):
        return document, json.dumps
    if benchmarks := document.get("benchmarks"):
        requests = benchmarks[0]["requests"]
        if not isinstance(requests, dict) or not requests.get("successful"):
            return None

        def with_requests(changed: list[Row]) -> str:
            whole = copy.deepcopy(document)
            whole["benchmarks"][0]["requests"]["successful"] = changed
            return json.dumps(whole)

        return requests["successful"], with_requests
    if isinstance(starts := document.get("start_times"), list):
        keys = [k for k, v in document.items() if isinstance(v, list) and len(v) == len(starts)]
        rows = [dict(zip(keys, at, strict=True)) for at in _rows_of(document, keys)]
        return rows, lambda changed: json.dumps(
            document | {key: [row[key] for row in changed] for key in changed[0]}
        )
    return None


def _rows_of(document: Row, keys: list[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(document[key] for key in keys), strict=True)


def _own() -> bytes:
    """A file of one's own load generator."""
    rng = random.Random(0)
    lines = ["id,send_ms,input_tokens,output_tokens,ttft_ms,e2e_ms,success,http_status"]
    at_ms = 1.764e12
    for number in range(60):
        at_ms += rng.uniform(1, 500)
        prompt, output = rng.randrange(200, 900), rng.randrange(30, 90)
        ttft_ms = prompt * 0.1 + rng.uniform(20, 40)
        e2e_ms = ttft_ms + output * rng.uniform(11, 14)
        cells = f"{output},{ttft_ms:.3f},{e2e_ms:.3f},True,200"
        if number % 15 == 7:
            cells = "0,0,0,False,503"
        lines.append(f"r{number},{at_ms:.3f},{prompt},{cells}")
    return ("\n".join(lines) + "\n").encode()


_PARSERS = {".csv": _csv, ".jsonl": _lines, ".json": _json}


@functools.cache
def specimens() -> list[Specimen]:
    """The recordings among the files of the tests, and a larger file of one's own."""
    paths = [
        FILES / name for name, form in FORMAT_OF.items() if "recordings" in FORMATS[form].gives
    ]
    beside = DATA / "specimens"
    paths += sorted(p for p in beside.glob("*/*/*") if p.stem not in ("expected", "specimen"))
    files = [(path, path.read_bytes()) for path in paths if path.suffix in _PARSERS]
    found = []
    for path, content in [*files, (None, _own())]:
        suffix = path.suffix if path else ".csv"
        parsed = _PARSERS[suffix](content) if path is None or path.name != "runs.json" else None
        if parsed and len(parsed[0]) > 1:
            name = path.name if path else "own.csv"
            folder = path.parent if path and path.parent != FILES else None
            if path and path.with_suffix(".yaml").exists():
                folder = FILES  # the file beside holds its header
            shown = str(path.relative_to(DATA)) if path else name
            found.append(Specimen(shown, name, folder, content, *parsed))
    return found


# --- changes --------------------------------------------------------------------------------------


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value in ("", None):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _leaf(row: Row, place: tuple[Any, ...]) -> Any:
    found: Any = row
    for key in place:
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found


def _set(row: Row, place: tuple[Any, ...], value: Any) -> None:
    holder = functools.reduce(lambda found, key: found[key], place[:-1], row)
    holder[place[-1]] = value


def _columns(rows: list[Row], wanted: Callable[[Any], bool]) -> list[tuple[Any, ...]]:
    """The places in a row, not in lists, at which there is such a value."""
    return [
        place
        for place in places_of(rows[0])
        if place and all(isinstance(key, str) for key in place) and wanted(_leaf(rows[0], place))
    ]


def _changed(rows: list[Row], place: tuple[Any, ...], change: Callable[[Any], Any]) -> list[Row]:
    rows = copy.deepcopy(rows)
    for row in rows:
        if (value := _leaf(row, place)) is not None:
            _set(row, place, change(value))
    return rows


def _times(value: Any) -> Any:
    number = _number(value)
    if number is None:
        return value
    number = round(number * 1000, 3)
    number = int(number) if number.is_integer() else number
    return str(number) if isinstance(value, str) else number


_STATES = {
    "ok": "error",
    "completed": "timeout",
    "error": "ok",
    "True": "False",
    "False": "True",
    "200": "500",
    "0": "1",
    "1": "0",
    True: False,
    False: True,
}


_WARM_UP = ("phase", "warm", "cool")  # parts of the names of marks


def harmful(specimen: Specimen) -> Iterator[tuple[str, str]]:
    """What each change is, and the text of the changed file."""
    rows, written = specimen.rows, specimen.written
    numeric = _columns(rows, lambda value: _number(value) is not None)
    for place in numeric[:12]:
        yield f"scale {_name(place)}", written(_changed(rows, place, _times))
    for first, second in itertools.pairwise(numeric[:9]):
        swapped = copy.deepcopy(rows)
        for row, own in zip(swapped, rows, strict=True):
            if (one := _leaf(own, first)) is not None and (other := _leaf(own, second)) is not None:
                _set(row, first, other)
                _set(row, second, one)
        yield f"swap {_name(first)} and {_name(second)}", written(swapped)
    for place in _columns(rows, lambda v: isinstance(v, str | bool) and v in _STATES):
        if specimen.name.endswith(".csv") and _number(rows[0][place[0]]) not in (None, 200.0):
            continue  # a number, not a state
        relabeled = copy.deepcopy(rows)
        for row in relabeled[::2]:
            _set(row, place, _STATES.get(_leaf(row, place), _leaf(row, place)))
        yield f"relabel {_name(place)}", written(relabeled)
        if isinstance(_leaf(rows[0], place), str):
            yield f"remove {_name(place)}", written([_without(row, place) for row in rows])
    for place in places_of(rows[0]):
        if place and isinstance(place[-1], str) and any(w in place[-1] for w in _WARM_UP):
            yield f"remove {_name(place)}", written([_without(row, place) for row in rows])
    for share in (0.3, 0.5, 0.8):
        yield f"drop rows after {share:.0%}", written(rows[: max(1, int(share * len(rows)))])
    for share in (0.35, 0.6, 0.9, 0.97):
        text = specimen.content.decode()
        yield f"cut after {share:.0%}", text[: int(share * len(text))]
    yield "duplicate all rows", written([*rows, *rows])
    yield "duplicate each row", written([row for row in rows for _ in range(2)])


def _name(place: tuple[Any, ...]) -> str:
    return ".".join(map(str, place))


def _without(row: Row, place: tuple[Any, ...]) -> Row:
    row = copy.deepcopy(row)
    holder = functools.reduce(lambda found, key: found[key], place[:-1], row)
    holder.pop(place[-1], None)
    return row


def harmless(specimen: Specimen) -> Iterator[tuple[str, str, bytes]]:
    """The kind of each change, and the name and the content of the changed file."""
    rows, written, name = specimen.rows, specimen.written, specimen.name
    content = specimen.content
    yield "row order", name, written(rows[::-1]).encode()
    yield "row order", name, written(random.Random(1).sample(rows, len(rows))).encode()
    yield "unknown column", name, written([{**row, "x_extra": "7"} for row in rows]).encode()
    yield "white space", name, content.rstrip() + b"\n\n \n"
    yield "byte order mark", name, b"\xef\xbb\xbf" + content
    yield "CRLF", name, content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    yield "gzip", f"{name}.gz", gzip.compress(content)
    if specimen.folder is None:
        stem, _, suffix = name.partition(".")
        yield "renamed", f"my {stem} (1).{suffix}", content


SILENT: dict[str, dict[str, list[str]]] = {
    "no file beside and no field says how many requests it lists": {
        "recordings/engine_timestamps/pro6000.csv": ["cut after 97%"],
        "recordings/requests.csv": [
            "drop rows after 30%",
            "drop rows after 50%",
            "drop rows after 80%",
        ],
        "recordings/profile_export.jsonl": ["drop rows after 80%"],
        "recordings/aiperf_0_13.jsonl": ["drop rows after 50%", "drop rows after 80%"],
        "recordings/benchmarks.json": [
            "drop rows after 30%",
            "drop rows after 50%",
            "drop rows after 80%",
        ],
        "recordings/guidellm_0_8.json": [
            "drop rows after 30%",
            "drop rows after 50%",
            "drop rows after 80%",
        ],
        "recordings/per_request_lifecycle_metrics.json": [
            "drop rows after 30%",
            "drop rows after 50%",
            "drop rows after 80%",
        ],
        "recordings/inference_perf_0_7.json": ["drop rows after 50%", "drop rows after 80%"],
        "recordings/sglang.jsonl": [
            "drop rows after 30%",
            "drop rows after 50%",
            "drop rows after 80%",
        ],
        "recordings/blis.csv": [
            "drop rows after 30%",
            "drop rows after 50%",
            "drop rows after 80%",
        ],
        "recordings/lmbench.csv": [
            "drop rows after 30%",
            "drop rows after 50%",
            "drop rows after 80%",
        ],
        "own.csv": ["drop rows after 30%", "drop rows after 50%", "drop rows after 80%"],
    },
    "lengths are as plausible when they are swapped, and there is no total": {
        "recordings/list_of_runs/chat.csv": ["swap input_tokens and output_tokens"],
        "recordings/list_of_runs/code.csv": ["swap input_tokens and output_tokens"],
        "recordings/object_of_runs/two_tenants.csv": ["swap input_tokens and output_tokens"],
        "recordings/engine_timestamps/pro6000.csv": ["swap input_tokens and output_tokens"],
        "recordings/requests.csv": ["swap input_tokens and output_tokens"],
        "recordings/guidellm_0_8.json": ["swap prompt_tokens and output_tokens"],
        "recordings/per_request_lifecycle_metrics.json": [
            "swap info.input_tokens and info.output_tokens"
        ],
        "own.csv": ["swap input_tokens and output_tokens"],
    },
    "a trickle of requests is as plausible as a load": {
        "recordings/list_of_runs/chat.csv": ["scale arrival_time_us"],
        "recordings/list_of_runs/code.csv": ["scale arrival_time_us"],
        "recordings/object_of_runs/two_tenants.csv": ["scale send_time_us"],
        "recordings/requests.csv": ["scale send_ms"],
        "own.csv": ["scale send_ms"],
    },
    "no sum and no other count of these tokens is in the file": {
        "recordings/per_request_lifecycle_metrics.json": ["scale info.output_tokens"],
        "specimens/guidellm-0.3.1/constant/benchmarks.json": ["scale prompt_tokens"],
        "specimens/guidellm-0.3.1/poisson_warmup/benchmarks.json": ["scale prompt_tokens"],
    },
    "two durations or lengths, each as plausible as the other": {
        "recordings/engine_timestamps/pro6000.csv": ["swap scheduled_s and first_token_s"],
        "recordings/requests.csv": ["swap output_tokens and ttft_ms"],
        "recordings/lmbench.csv": ["swap ttft and generation_time"],
    },
    "a mark or a state is all that the file says of it": {
        "recordings/requests.csv": ["remove status"],
    },
}
"""What no content, file beside or figure of the tool reveals: why → file → changes."""


# --- outcomes -------------------------------------------------------------------------------------


def _figures(run: Recording) -> dict[str, float]:
    known = run.ttft_s[~np.isnan(run.ttft_s)]
    ends_s = run.send_s + np.nan_to_num(np.where(run.failed, run.failure_s, run.e2e_s))
    return {
        "requests": run.num_requests,
        "failed": int(run.failed.sum()),
        "mean TTFT": float(known.mean()) if len(known) else 0.0,
        "rate": run.num_requests / max(float(ends_s.max()), 1e-9),
        "input tokens": float(run.input_tokens.mean()),
        "output tokens": float(run.output_tokens.mean()),
    }


def _read(specimen: Specimen, name: str, content: bytes, folder: Path) -> tuple[Any, set[str]]:
    """The figures of a changed file, and the notes without its path; an error is no figures."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    if specimen.folder is not None:
        for path in specimen.folder.iterdir():
            is_beside = path.suffix == ".yaml" or specimen.folder != FILES
            if path.is_file() and is_beside and path.name != specimen.name:
                shutil.copy(path, folder)
    path = folder / name
    path.write_bytes(content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            runs = read_recordings(path)
        except TraceError as error:
            return None, {str(error)}
    return [_figures(run) for run in runs], {
        str(warning.message).replace(str(path), "") for warning in caught
    }


def _agree(first: Any, second: Any) -> bool:
    return len(first) == len(second) and all(
        abs(request[name] - other[name]) <= 0.01 * abs(request[name])
        for request, other in zip(first, second, strict=True)
        for name in request
    )


def outcome(before: tuple[Any, set[str]], after: tuple[Any, set[str]]) -> str:
    """What became of a change."""
    if after[0] is None:
        return "refused"
    if _agree(before[0], after[0]):
        return "right"
    return "noted" if after[1] - before[1] else "silent"


def _print(table: dict[str, collections.Counter[str]]) -> None:
    print(f"\n{'change':20}{'right':>8}{'refused':>9}{'noted':>8}{'silent':>8}")
    for kind, counts in table.items():
        cells = [counts[name] for name in ("right", "refused", "noted", "silent")]
        print(f"{kind:20}{cells[0]:8}{cells[1]:9}{cells[2]:8}{cells[3]:8}")


def _recordings(folder: Path) -> Iterator[tuple[Specimen, Any]]:
    """The specimens that are recordings, and what is read from them as they are."""
    for specimen in specimens():
        before = _read(specimen, specimen.name, specimen.content, folder)
        if before[0] is not None:
            yield specimen, before


@pytest.mark.slow
def test_only_what_nothing_reveals_is_silent(tmp_path: Path) -> None:
    """Each change that moves a figure is refused or noted, but for those of `SILENT`."""
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    silent = set()
    for specimen, before in _recordings(tmp_path / "file"):
        for what, text in harmful(specimen):
            after = _read(specimen, specimen.name, text.encode(), tmp_path / "file")
            found = outcome(before, after)
            table[what.partition(" ")[0]][found] += 1
            if found == "silent":
                silent.add((specimen.path, what))
    _print(table)
    known = {
        (path, what)
        for files in SILENT.values()
        for path, changes in files.items()
        for what in changes
    }
    assert silent - known == set(), "not said, though it moves a figure"
    assert known - silent == set(), "said by now: take it out of SILENT"
    assert sum(sum(counts.values()) for counts in table.values()) >= 300


@pytest.mark.slow
def test_harmless_changes_are_read_right(tmp_path: Path) -> None:
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    wrong = []
    for specimen, before in _recordings(tmp_path / "file"):
        for kind, name, content in harmless(specimen):
            after = _read(specimen, name, content, tmp_path / "file")
            found = outcome(before, after)
            table[kind][found] += 1
            if found != "right":
                wrong.append((specimen.name, kind, found, after[1]))
    _print(table)
    total = sum(sum(counts.values()) for counts in table.values())
    right = sum(counts["right"] for counts in table.values())
    assert total >= 80
    assert right >= 0.95 * total, wrong


def test_a_mutation_is_seen(tmp_path: Path) -> None:
    """The comparison itself can fail."""
    own = next(specimen for specimen in specimens() if specimen.name == "own.csv")
    before = _read(own, own.name, own.content, tmp_path / "file")
    after = _read(own, own.name, own.written(own.rows[:30]).encode(), tmp_path / "file")
    assert outcome(before, before) == "right"
    assert outcome(before, after) == "silent"
    with pytest.raises(AssertionError):
        assert _agree(before[0], after[0])
