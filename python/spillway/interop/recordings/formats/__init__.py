"""The formats of recordings: one file each, listed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.interop.recordings.formats import (
    aiperf,
    blis,
    column_map,
    folder,
    guidellm,
    inference_perf,
    prometheus,
    requests_csv,
    silicon,
    vllm_bench,
    vllm_steps,
)

if TYPE_CHECKING:
    from spillway.interop.recordings.format import Format

__all__ = ["FORMATS"]


def __dir__() -> list[str]:
    return __all__


FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        folder.FORMAT,
        requests_csv.FORMAT,
        column_map.FORMAT,
        vllm_bench.FORMAT,
        aiperf.FORMAT,
        guidellm.FORMAT,
        inference_perf.FORMAT,
        blis.FORMAT,
        vllm_steps.FORMAT,
        prometheus.FORMAT,
        silicon.FORMAT,
    )
}
"""The formats by name. Their files differ, so at most one format detects a file."""
