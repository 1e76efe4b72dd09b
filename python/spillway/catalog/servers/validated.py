"""Which servers of the catalog were compared with measurements."""

from __future__ import annotations

from spillway.catalog.servers.data import entries

__all__ = ["evidence"]


def __dir__() -> list[str]:
    return __all__


_FILE = "validated.yaml"


def evidence(model: str, accelerator: str, dtype: str) -> str:
    """The errors of the prior against measurements, as text; "unvalidated" without any."""
    for one in entries(_FILE).values():
        if (one["model"], one["gpu"], one["dtype"]) == (model, accelerator, dtype):
            return (
                f"off by {one['tpot_error_percent']:g}% in TPOT and {one['ttft_error_percent']:g}% in "
                f"TTFT (medians of {one['points']} measured points)"
            )
    return "unvalidated"
