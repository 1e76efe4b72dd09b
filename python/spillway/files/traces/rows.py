"""The requests of a trace as a format reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    from spillway.files.traces.table import Int64s


HIGHEST_ID = 2**64 - 1
BLOCK_SIZE_TOKENS = 512  # that of the published Mooncake traces


class Lists(NamedTuple):
    """Lists of whole numbers as arrays: the numbers of all lists, and how many each list has."""

    values: np.ndarray[tuple[int], np.dtype[np.uint64]]
    counts: Int64s


@dataclass(frozen=True)
class Rows:
    """The requests of consecutive rows of a file, in the order of the file.

    Attributes
    ----------
    arrival_ns : array of int64
        Arrivals in nanoseconds.
    input_tokens, output_tokens : array of int64
        Length of the whole prompt (>= 1) and of the output (>= 0; 0: the call failed), in tokens.
    tenant, slo_class : sequence of str
        "" is the default tenant or class; an empty sequence is the default for all rows.
    request_id : sequence of str
        Names of the requests; all "", or an empty sequence, if they have no names.
    prefix_group, prefix_tokens : sequence of str, array of int64
        The prompts of a group begin with the same `prefix_tokens` tokens, two with different
        numbers with the smaller one; "" is no group.
    hash_ids : sequence of sequences of int, or Lists
        The content of each prompt in blocks of `block_size_tokens`, instead of prefix groups.
    block_size_tokens : int
        Tokens per hash id; the last block of a prompt may be shorter.

    """

    arrival_ns: Int64s
    input_tokens: Int64s
    output_tokens: Int64s
    tenant: Sequence[str] = ()
    slo_class: Sequence[str] = ()
    request_id: Sequence[str] = ()
    prefix_group: Sequence[str] = ()
    prefix_tokens: Int64s | None = None
    hash_ids: Sequence[Sequence[int]] | Lists = ()
    block_size_tokens: int = 0


def since_first(_path: Path, arrival_ns: Int64s, **_options: Any) -> Int64s:
    """Return arrivals since the first one; the `retime` of formats."""
    first: Int64s = arrival_ns - arrival_ns[0]
    return first
