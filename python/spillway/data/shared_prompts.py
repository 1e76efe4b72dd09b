"""Beginnings that prompts share, as the core's columns: the segments of each request.

Two segments are the same if their content and their length are; a prompt shares the segments up to
the first that differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from spillway.data.arrays import Ints


_MOST_CUTS = 64


def segments(begin: npt.ArrayLike, content: npt.ArrayLike, tokens: npt.ArrayLike) -> dict[str, Any]:
    """Return the columns; `begin[i]` is the first segment of request `i`, and there is an end."""
    return {
        "segment_begin": np.asarray(begin, dtype=np.uint32),
        "segment_content": np.asarray(content, dtype=np.uint64),
        "segment_tokens": np.asarray(tokens, dtype=np.uint32),
    }


def no_segments() -> dict[str, Any]:
    """Return the core's columns of shared segments for prompts that share nothing."""
    return segments([], [], [])


def warm_column(tokens: Ints) -> dict[str, Any]:
    """Return the column of the tokens of each prompt that are cached at the start, if any are."""
    return {"warm_tokens": tokens.astype(np.int32)} if tokens.any() else {}


def group_segments(groups: Ints, shared: Ints) -> dict[str, Any]:
    """Return the same for prompts that begin with `shared` tokens of their group; -1: no group.

    Two prompts of a group share the shorter of their beginnings. A beginning is therefore cut where
    the shorter ones of its group end; in a group of more than `_MOST_CUTS` lengths, at as many of
    them, so that prompts of unequal lengths share up to the last cut within both.
    """
    found = (groups >= 0) & (shared > 0)
    pairs, pair_of_row = np.unique(
        np.stack([groups[found], shared[found]]), axis=1, return_inverse=True
    )
    parts: list[Ints] = []  # by pair of group and length
    for lengths in np.split(pairs[1], np.flatnonzero(np.diff(pairs[0])) + 1):
        cuts = lengths
        if len(lengths) > _MOST_CUTS:
            cuts = lengths[np.linspace(0, len(lengths) - 1, _MOST_CUTS).round().astype(int)]
        parts += [np.diff([0, *cuts[cuts < length], length]) for length in lengths]
    counts = np.zeros(len(groups), dtype=np.int64)
    counts[found] = np.array([len(part) for part in parts], dtype=np.int64)[pair_of_row.ravel()]
    tokens = [parts[pair] for pair in pair_of_row.ravel()]
    return segments(
        np.append(0, np.cumsum(counts)),
        np.repeat(groups, counts),
        np.concatenate(tokens) if tokens else [],
    )


class Beginnings(NamedTuple):
    """Groups of prompts that begin alike; -1: no group."""

    groups: Ints
    shared: Ints  # tokens
    warm: Ints  # tokens of these that are cached at the start


def conversation_segments(
    sessions: Sequence[str],
    input_tokens: Sequence[int],
    output_tokens: Sequence[int],
    beginnings: Beginnings | None = None,
) -> dict[str, Any]:
    """Return the columns for turns of conversations; "" is none.

    A prompt begins with the prompt and the answer of the turn before. If it is shorter than the
    prompt before, the conversation began anew. An answer that a later prompt repeats has the
    content of that part. `beginnings` are those of conversations, and of requests in none, that
    others of the same length share.
    """
    none = np.full(len(sessions), -1)
    groups, shared, warm = beginnings or Beginnings(none, none, none)
    known: dict[str, list[tuple[int, int]]] = {}  # content and length of a conversation's parts
    begin, content, tokens, contents = [0], [], [], int(groups.max(initial=0))
    answers = np.zeros(len(sessions), dtype=np.uint64)
    warm_tokens = np.zeros(len(sessions), dtype=np.int64)
    latest: dict[str, tuple[int, int]] = {}  # row and content of a conversation's last answer
    for row, (name, prompt, output) in enumerate(
        zip(sessions, input_tokens, output_tokens, strict=True)
    ):
        is_in_group = groups[row] >= 0 and shared[row] > 0
        first = [(int(groups[row]), int(shared[row]))] if is_in_group else []
        begins = True
        if not name:
            content += [group for group, _ in first]
            tokens += [length for _, length in first]
        if name:
            repeated = _cut(known.get(name, []), prompt)
            begins = not repeated
            parts = repeated or first
            before = latest.get(name)
            if before is not None and any(part == before[1] for part, _ in parts):
                answers[before[0]] = before[1]
            rest = prompt - sum(length for _, length in parts)
            if rest:
                contents += 1
                parts.append((contents, rest))
            content += [part for part, _ in parts]
            tokens += [length for _, length in parts]
            if output:
                contents += 1
                parts = [*parts, (contents, output)]
                latest[name] = (row, contents)
            known[name] = parts
        if begins and is_in_group:
            warm_tokens[row] = min(warm[row], shared[row])
        begin.append(len(content))
    found = segments(begin, content, tokens) | warm_column(warm_tokens)
    return found | {"answer": answers} if answers.any() else found


def _cut(parts: list[tuple[int, int]], prompt: int) -> list[tuple[int, int]]:
    """Return the parts that a prompt of this length begins with; none if it is a shorter one."""
    before = sum(length for _, length in parts[:-1])
    if not parts or prompt < before:
        return []
    return list(parts) if prompt >= before + parts[-1][1] else list(parts[:-1])
