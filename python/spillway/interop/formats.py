"""What the command line must know of traces before it reads one: their formats and their error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FORMATS", "TraceError"]


def __dir__() -> list[str]:
    return __all__


FORMATS: Mapping[str, str] = {
    "columns": "arrival_s,input_tokens,output_tokens and, if wanted, request_id, tenant, "
    "slo_class, prefix_group, prefix_tokens",
    "azure": "Azure LLM inference traces: TIMESTAMP,ContextTokens,GeneratedTokens",
    "blis": "BLIS TraceV2: request_id,client_id,tenant_id,…,arrival_time_us,send_time_us,…",
    "reference": "BLIS reference runs: request_id,client_id,tenant_id,slo_class,prefix_group,"
    "prefix_length,input_tokens,output_tokens,arrival_time_us",
    "mooncake": "Mooncake JSONL, an object per line: timestamp,input_length,output_length,hash_ids",
}
"""Format of a trace → its meaning and header row or keys, for `read_trace`."""


class TraceError(ValueError):
    """A trace, or another system's recorded results, that cannot be used.

    Names file, line (the header row is line 1), column and value.
    """
