"""The requests of reference runs of BLIS."""

from __future__ import annotations

from spillway.interop.traces.format import Format
from spillway.interop.traces.formats import blis

__all__ = ["FORMAT"]


def __dir__() -> list[str]:
    return __all__


FORMAT = Format(
    name="reference",
    doc="BLIS reference runs: request_id,client_id,tenant_id,slo_class,prefix_group,prefix_length,"
    "input_tokens,output_tokens,arrival_time_us",
    layout="csv",
    required=(
        "request_id",
        "tenant_id",
        "slo_class",
        "prefix_group",
        "prefix_length",
        "input_tokens",
        "output_tokens",
        "arrival_time_us",
    ),
    optional=None,
    arrival="arrival_time_us",
    rows=blis.rows,
)
