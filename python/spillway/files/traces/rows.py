"""The requests of a trace as a format reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from spillway.files.traces.table import Int64s


HIGHEST_ID = 2**64 - 1
ATTRIBUTE = "attribute."
"""What the names of further columns begin with, which a trace carries without reading them."""
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
        Tokens per hash id; the last block of a prompt may be shorter. What a prompt has beyond its
        blocks is not shared.
    cached_tokens : array of int64, optional
        Tokens of each prompt that the recorded server had in its cache, instead of prefix groups:
        the prompts begin alike, for that length, and are in the cache from the start. Of all rows
        of a file, or of none.
    warm_tokens : array of int64, optional
        Tokens at the shared beginning of each prompt that every cache holds from the start. Of all
        rows of a file, or of none.
    max_tokens : array of int64, optional
        Maximum of each output that its client stated, at least `output_tokens`; 0: none. Of all
        rows of a file, or of none.
    model : sequence of str
        The model that each request names; "" is none. Of all rows of a file, or of none.
    attributes : mapping of str to sequence of str
        Further columns by name, which the requests carry: the user, a region, an experiment. "" is
        no value. Of all rows of a file, or of none.
    session : sequence of str
        The conversation of each request, whose prompts each begin with the prompt and the answer
        before; "" is none. Of all rows of a file, or of none.
    turn, follows : sequence of str
        Names of the requests, and of the turn of the conversation before it, if prompts have
        `hash_ids`: a prompt that follows another begins with its blocks and its answer. A name that
        is none of these is no turn. Of all rows of a file, or of none.
    adds_to_session : bool
        Whether `input_tokens` are only what a turn adds, so that the prompt of a later turn is the
        conversation before and them.
    notes : mapping of str to int
        What was assumed, for warnings at the end of the file: a text, and a number that is added up
        over the file and replaces "{n}" in it.

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
    cached_tokens: Int64s | None = None
    warm_tokens: Int64s | None = None
    max_tokens: Int64s | None = None
    model: Sequence[str] = ()
    attributes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    session: Sequence[str] = ()
    turn: Sequence[str] = ()
    follows: Sequence[str] = ()
    adds_to_session: bool = False
    notes: Mapping[str, int] = field(default_factory=dict)


def since_first(_path: Path, arrival_ns: Int64s, **_options: Any) -> Int64s:
    """Return arrivals since the first one; the `retime` of formats."""
    first: Int64s = arrival_ns - arrival_ns[0]
    return first
