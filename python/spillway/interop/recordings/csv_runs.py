"""Runs as CSV files, a row per request, alone or in a folder that describes their servers."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.data.recording import Recording, ServerFacts
from spillway.interop.traces import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["facts_of", "read_file", "read_folder"]


def __dir__() -> list[str]:
    return __all__


_SECONDS = {"_s": 1.0, "_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}

# What a column means → its names without a unit.
_TIMES = {
    "send": ("send", "send_time", "arrival", "arrival_time"),
    "ttft": ("ttft",),
    "e2e": ("e2e", "latency"),
    "first_token": ("first_token",),
    "last_token": ("last_token",),
}

# Fact → its names in descriptions of servers.
_FACTS = {
    "model": ("model",),
    "gpu": ("gpu", "hardware"),
    "engine": ("engine",),
    "engine_version": ("vllm_version", "engine_version"),
    "tensor_parallel_size": ("tensor_parallel_size", "tensor_parallelism"),
    "data_parallel_size": ("data_parallel_size",),
    "max_num_seqs": ("max_num_seqs",),
    "max_num_batched_tokens": ("max_num_batched_tokens",),
    "block_size_tokens": ("block_size", "block_size_tokens"),
    "num_kv_blocks": ("num_gpu_blocks", "kv_blocks_total_gpu", "num_kv_blocks"),
    "max_model_len": ("max_model_len", "max_seq_len"),
    "prefix_caching": ("enable_prefix_caching", "prefix_caching"),
}
_TYPES: dict[str, type] = {
    "model": str, "gpu": str, "engine": str, "engine_version": str, "prefix_caching": bool,
}  # fmt: skip


def read_folder(folder: Path) -> list[Recording]:
    """The runs that `runs.json` in `folder` lists: a list of them, or an object with `runs`."""
    described = folder / "runs.json"
    document = _json(described)
    common: dict[str, Any] = {}
    if isinstance(document, dict):
        common = document
        document = document.get("runs")
    if not isinstance(document, list) or not document:
        raise TraceError(f"{described}: must be a list of runs, or an object with `runs`")
    runs = []
    for i, entry in enumerate(document):
        name = entry.get("run") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise TraceError(f"{described}: entry {i} must name its run as text: `run`")
        facts = facts_of([entry, common], str(described))
        limit = entry.get("client_max_in_flight", common.get("client_max_in_flight"))
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise TraceError(
                f"{described}: client_max_in_flight = {limit!r}: must be a whole number >= 1"
            )
        run = read_file(folder / f"{name}.csv", {})
        runs.append(dataclasses.replace(run, name=name, server=facts, client_max_in_flight=limit))
    return runs


def facts_of(descriptions: list[dict[str, Any]], where: str) -> ServerFacts:
    """The facts that nested descriptions state, the earliest and outermost of equal names."""
    stated: dict[str, Any] = {}
    for level in _levels(descriptions):
        for fact, names in _FACTS.items():
            for name in names:
                value = level.get(name)
                if fact in stated or value is None or isinstance(value, dict | list):
                    continue
                wanted = _TYPES.get(fact, int)
                if not isinstance(value, wanted) or (isinstance(value, int) and value < 0):
                    kind = {str: "text", bool: "true or false"}.get(wanted, "a whole number >= 1")
                    raise TraceError(f"{where}: {name} = {value!r}: must be {kind}")
                stated[fact] = value
    return ServerFacts(**stated)


def _levels(descriptions: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    level = descriptions
    while level:
        yield from level
        # A resolved configuration repeats the given one with hundreds of internal settings.
        level = [
            inner
            for outer in level
            for name, inner in outer.items()
            if isinstance(inner, dict) and name not in ("resolved_config", "model_config")
        ]


def read_file(path: Path, columns: Mapping[str, str]) -> Recording:
    """One run; `columns`: meaning → name, where the names are others than the usual ones."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    rows = list(csv.reader(text.decode(errors="replace").splitlines()))
    if len(rows) < 2:
        raise TraceError(f"{path}: holds no requests")
    header, body = [name.strip() for name in rows[0]], rows[1:]
    table = _Table(path, header, body, columns)
    failed = table.failed()
    send_s = table.seconds("send")
    if send_s is None:
        raise table.lacks("send")
    ttft_s = table.spans("ttft", "first_token", send_s, failed)
    e2e_s = table.spans("e2e", "last_token", send_s, failed)
    tokens = {
        name: table.whole(name, 0 if name == "output_tokens" else 1, failed)
        for name in ("input_tokens", "output_tokens")
    }
    order = np.argsort(send_s, kind="stable")
    return Recording(
        name=path.stem,
        server=ServerFacts(),
        send_s=(send_s - send_s.min())[order],
        input_tokens=tokens["input_tokens"][order],
        output_tokens=tokens["output_tokens"][order],
        ttft_s=np.where(failed, np.nan, ttft_s)[order],
        e2e_s=np.where(failed, np.nan, e2e_s)[order],
        failed=failed[order],
        source=str(path),
        sha256=hashlib.sha256(text).hexdigest(),
    )


class _Table:
    """The columns of a file by their meaning."""

    def __init__(
        self, path: Path, header: list[str], body: list[list[str]], columns: Mapping[str, str]
    ) -> None:
        self._path = path
        self._header = header
        self._body = body
        self._columns = columns
        meanings = (*_TIMES, "input_tokens", "output_tokens", "error")
        for meaning, name in columns.items():
            if meaning not in meanings:
                allowed = ", ".join(meanings)
                raise TraceError(f"{path}: columns[{meaning!r}]: must be one of {allowed}")
            if name not in header:
                raise TraceError(
                    f"{path}: columns[{meaning!r}] = {name!r}: not in the header "
                    f"({', '.join(header)})"
                )
        for line, row in enumerate(body, 2):
            if len(row) != len(header):
                raise TraceError(
                    f"{path}, line {line}: {len(row)} fields, but the header has {len(header)}"
                )

    def lacks(self, meaning: str) -> TraceError:
        names = ", ".join(f"{name}_UNIT" for name in _TIMES.get(meaning, (meaning,)))
        return TraceError(
            f"{self._path}: no column for {meaning} ({names}); the header has "
            f"{', '.join(self._header)}"
        )

    def seconds(
        self, meaning: str, missing: npt.NDArray[np.bool_] | None = None
    ) -> npt.NDArray[np.float64] | None:
        found = self._time_column(meaning)
        if found is None:
            return None
        name, unit = found
        return self._numbers(name, missing) * unit

    def _time_column(self, meaning: str) -> tuple[str, float] | None:
        names = [self._columns[meaning]] if meaning in self._columns else self._header
        for name in names:
            stem, _, ending = name.rpartition("_")
            unit = _SECONDS.get(f"_{ending}")
            if meaning in self._columns and unit is None:
                raise TraceError(
                    f"{self._path}, column {name}: its unit is unknown; its name must end in one "
                    f"of {', '.join(_SECONDS)}"
                )
            if unit is not None and (meaning in self._columns or stem in _TIMES[meaning]):
                return name, unit
        return None

    def spans(
        self,
        span: str,
        instant: str,
        send_s: npt.NDArray[np.float64],
        failed: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.float64]:
        """A latency, or the difference between an instant and the time of sending."""
        values = self.seconds(span, failed)
        if values is not None:
            return values
        at = self.seconds(instant, failed)
        if at is None:
            raise self.lacks(span)
        return at - send_s

    def whole(self, name: str, least: int, failed: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        column = self._columns.get(name, name)
        if column not in self._header:
            raise self.lacks(name)
        values = np.nan_to_num(self._numbers(column, failed))
        wrong = ~failed & ((values < least) | (values != np.floor(values)))
        if wrong.any():
            line = int(np.argmax(wrong))
            raise TraceError(
                f"{self._path}, line {line + 2}, {column}: {self._text(column, line)!r} must be a "
                f"whole number >= {least}"
            )
        return values.astype(np.int64)

    def failed(self) -> npt.NDArray[np.bool_]:
        name = self._columns.get("error") or next(
            (one for one in ("error", "status") if one in self._header), None
        )
        if name is None:
            return np.zeros(len(self._body), dtype=bool)
        fine = {"", "0", "ok", "success", "none", "false", "200"}
        place = self._header.index(name)
        return np.array([row[place].strip().lower() not in fine for row in self._body])

    def _text(self, name: str, line: int) -> str:
        return self._body[line][self._header.index(name)]

    def _numbers(self, name: str, missing: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.float64]:
        place = self._header.index(name)
        values = np.full(len(self._body), np.nan)
        for line, row in enumerate(self._body):
            if missing is not None and missing[line] and not row[place].strip():
                continue
            try:
                values[line] = float(row[place])
            except ValueError:
                raise TraceError(
                    f"{self._path}, line {line + 2}, {name}: {row[place]!r} must be a number"
                ) from None
        bad = ~np.isfinite(values)
        if missing is not None:
            bad &= ~missing
        if bad.any():
            line = int(np.argmax(bad))
            raise TraceError(
                f"{self._path}, line {line + 2}, {name}: {self._text(name, line)!r} must be finite"
            )
        return values


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TraceError(f"{path}: is not JSON: {error}") from error
