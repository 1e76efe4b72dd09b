"""Measured means of AIConfigurator: TTFT and TPOT at fixed concurrency."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from spillway.data.recording import LatencyPoints
from spillway.files.error import TraceError
from spillway.files.format import Format
from spillway.files.recordings.server import facts
from spillway.files.traces.csv_table import csv_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source
    from spillway.files.traces.csv_table import CsvTable


_GROUP = (
    "model_path",
    "system",
    "backend",
    "backend_version",
    "precision",
    "gemm_quant_mode",
    "moe_quant_mode",
    "tp_size",
    "pp_size",
    "attention_dp_size",
    "moe_tp_size",
    "moe_ep_size",
    "isl",
    "osl",
)
_REQUIRED = (
    *_GROUP,
    "mode",
    "batch_size",
    "silicon_data_source",
    "silicon_ttft_ms",
    "silicon_tpot_ms",
)
_CONCURRENCY = re.compile(r"\bsilicon_concurrency=([0-9]{1,9})\b")


@dataclass
class _Points:
    """The points of one group."""

    concurrency: list[int] = field(default_factory=list)
    ttft_ms: list[float] = field(default_factory=list)
    tpot_ms: list[float] = field(default_factory=list)


def _read(source: Source, _settings: Settings) -> list[LatencyPoints]:
    """Only points of the mode `agg` are read, not those of disaggregated serving.

    The concurrency is `silicon_concurrency` of the data source, else the batch size times the ranks
    of data-parallel attention.
    """
    groups: dict[tuple[str, ...], _Points] = {}
    with contextlib.closing(csv_tables(source.path)) as tables:
        next(tables)
        for table in tables:
            for row in range(len(table)):
                if table.cell(row, "mode") == "agg":
                    _add(table, row, groups)
    if not groups:
        raise TraceError(f"{source.path}: holds no points of the mode agg")
    return [
        _points(source, dict(zip(_GROUP, key, strict=True)), points)
        for key, points in groups.items()
    ]


def _add(table: CsvTable, row: int, groups: dict[tuple[str, ...], _Points]) -> None:
    key = tuple(table.cell(row, name) for name in _GROUP)
    for name in ("isl", "osl", "tp_size"):
        _whole(table, row, name, at_least=1)
    # 0 and an empty cell stand for attention without data parallelism.
    ranks = _whole(table, row, "attention_dp_size", empty="0") or 1
    found = _CONCURRENCY.search(table.cell(row, "silicon_data_source"))
    # Elsewhere the batch size is that of one rank of data-parallel attention.
    concurrency = int(found[1]) if found else _whole(table, row, "batch_size") * ranks
    points = groups.setdefault(key, _Points())
    points.concurrency.append(concurrency)
    points.ttft_ms.append(_ms(table, row, "silicon_ttft_ms"))
    points.tpot_ms.append(_ms(table, row, "silicon_tpot_ms"))


def _whole(table: CsvTable, row: int, name: str, *, at_least: int = 0, empty: str = "") -> int:
    text = table.cell(row, name) or empty
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < at_least:
        table.refuse(row, name, f"must be a whole number >= {at_least}")
    return int(text)


def _ms(table: CsvTable, row: int, name: str) -> float:
    text = table.cell(row, name)
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        table.refuse(row, name, "must be a number of milliseconds > 0")
    return value


def _points(source: Source, group: Mapping[str, str], points: _Points) -> LatencyPoints:
    reported = {
        "model": group["model_path"],
        "gpu": group["system"],
        "engine": group["backend"],
        "engine_version": group["backend_version"],
        "tensor_parallel_size": int(group["tp_size"]),
        "data_parallel_size": int(group["attention_dp_size"] or 0) or None,
    }
    order = np.argsort(np.array(points.concurrency), kind="stable")
    return LatencyPoints(
        server=facts(str(source.path), {name: value or None for name, value in reported.items()}),
        group=group,
        input_tokens=int(group["isl"]),
        output_tokens=int(group["osl"]),
        concurrency=np.array(points.concurrency)[order],
        ttft_s=np.array(points.ttft_ms)[order] / 1e3,
        itl_s=np.array(points.tpot_ms)[order] / 1e3,
    )


FORMAT = Format(
    name="silicon",
    doc="CSV of AIConfigurator with silicon_ttft_ms and silicon_tpot_ms at fixed concurrency",
    gives=("points",),
    layout="csv",
    required=_REQUIRED,
    read=_read,
)
