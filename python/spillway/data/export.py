"""Files for other programs: summary.json and requests.csv."""

from __future__ import annotations

import csv
import json
import math
from typing import TYPE_CHECKING

from spillway.config.filesystem import make_folder, replacing_all

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.data.result import ResultData

__all__ = ["REQUEST_COLUMNS", "write_result"]


def __dir__() -> list[str]:
    return __all__


REQUEST_COLUMNS = (
    "request_id",
    "tenant",
    "slo_class",
    "outcome",
    "reason",
    "instance",
    "arrival_s",
    "ttft_s",
    "e2e_s",
    "queue_s",
    "scheduling_delay_s",
    "itl_mean_s",
    "input_tokens",
    "output_tokens",
)
"""Columns of requests.csv, in order."""


def write_result(result: ResultData, directory: Path) -> None:
    """Writes summary.json of a run, and requests.csv if its requests were kept.

    Raises ConfigError if they cannot be written.
    """
    summary, requests = directory / "summary.json", directory / "requests.csv"
    text = json.dumps(result.to_dict(), indent=2) + "\n"
    make_folder(directory)
    with replacing_all([requests, summary]) as (new_requests, new_summary):
        if result.has_requests:
            _write_requests(result, new_requests)
        else:
            new_requests.unlink()
        new_summary.write_text(text, encoding="utf-8")


def _write_requests(result: ResultData, path: Path) -> None:
    def cells(name: str) -> list[str]:
        values = result.requests[name].tolist()
        if name.endswith("_s"):
            return ["" if math.isnan(value) else f"{value:.9f}" for value in values]
        if name == "instance":
            return ["" if value < 0 else str(value) for value in values]
        return [str(value) for value in values]

    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(REQUEST_COLUMNS)
        writer.writerows(zip(*(cells(name) for name in REQUEST_COLUMNS), strict=True))
