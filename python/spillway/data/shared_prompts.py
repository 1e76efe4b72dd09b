"""Beginnings that prompts share, as the core's columns: the segments of each request.

Two segments are the same if their content and their length are; a prompt shares the segments up to
the first that differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def limit_column(tokens: Ints) -> dict[str, Any]:
    """Return the column of the max_tokens of each request, if any states them."""
    return {"max_tokens": tokens.astype(np.int32)} if tokens.any() else {}


NO_VALUE = 2**32 - 1
"""The code of a request without a value of an attribute."""


def attribute_columns(texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the further columns of requests, each with the texts of all of them; "": none."""
    found = []
    for name, of_rows in texts.items():
        known: dict[str, int] = {}
        code = [known.setdefault(text, len(known)) if text else NO_VALUE for text in of_rows]
        found.append((name, np.array(code, dtype=np.uint32), list(known)))
    return {"attributes": found} if found else {}


def model_column(texts: Sequence[str]) -> dict[str, Any]:
    """Return the columns of the models that requests name, if any does; "": none."""
    if not any(texts):
        return {}
    names = list(dict.fromkeys(filter(None, texts)))
    code = {"": 0} | {name: i for i, name in enumerate(names, 1)}
    return {"model": np.array([code[text] for text in texts], dtype=np.uint16), "models": names}


def models_of(columns: Mapping[str, Any]) -> list[str]:
    """Return the model that each request names; "": none."""
    if "model" not in columns:
        return [""] * len(columns["arrival_ns"])
    names = ["", *columns["models"]]
    return [names[code] for code in columns["model"].tolist()]


def texts_of(code: Ints, values: Sequence[str]) -> list[str]:
    """Return the texts of a further column."""
    return ["" if at == NO_VALUE else values[at] for at in code.tolist()]


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

    `beginnings` are those of conversations, and of requests in none, that others of the same length
    share.
    """
    none = np.full(len(sessions), -1)
    groups, shared, warm = beginnings or Beginnings(none, none, none)
    is_in_group = (groups >= 0) & (shared > 0)
    pairs = zip(groups.tolist(), shared.tolist(), is_in_group.tolist(), strict=True)
    turns = Turns(
        turns_before(sessions),
        [[(group, length)] if has_group else [] for group, length, has_group in pairs],
        np.where(is_in_group, np.minimum(warm, shared), 0),
    )
    return turn_segments(turns, input_tokens, output_tokens, int(groups.max(initial=0)))


def turns_before(sessions: Sequence[str]) -> list[int | None]:
    """Return the turn before of each request, as in `Turns`."""
    latest: dict[str, int] = {}
    before: list[int | None] = []
    for row, name in enumerate(sessions):
        before.append(latest.get(name, -1) if name else None)
        latest[name] = row
    return before


Parts: TypeAlias = "list[tuple[int, int]]"
"""The content and the length of the parts of a prompt, from its beginning on."""


class Turns(NamedTuple):
    """What is known of the prompts of conversations."""

    before: Sequence[int | None]  # the turn before; -1: it is the first one, None: in none
    heads: Sequence[Parts]  # what prompts begin with, in first turns and outside conversations
    warm: Ints  # tokens of these that are cached at the start
    has_later: bool = False  # `heads` are also the prompts of later turns, from their beginning on


def turn_segments(
    turns: Turns, input_tokens: Sequence[int], output_tokens: Sequence[int], contents: int
) -> dict[str, Any]:
    """Return the columns for turns of conversations; contents of heads are at most `contents`.

    A prompt begins with the prompt and the answer of the turn before. If it is shorter than the
    prompt before, the conversation began anew. An answer that a later prompt repeats has the
    content of that part.
    """
    begin, content, tokens = [0], [], []
    answers = np.zeros(len(input_tokens), dtype=np.uint64)
    warm = turns.warm.copy()
    known: dict[int, Parts] = {}  # of the conversation up to and including the answer of a turn
    for row, (before, heads, prompt, output) in enumerate(
        zip(turns.before, turns.heads, input_tokens, output_tokens, strict=True)
    ):
        parts = heads
        if before is not None:
            whole = known.get(before, []) if turns.has_later else known.pop(before, [])
            parts = _cut(whole, prompt)
            if parts and len(parts) == len(whole) and output_tokens[before]:
                answers[before] = parts[-1][0]
            if not parts or turns.has_later:
                parts += _beyond(heads, sum(length for _, length in parts))
            else:
                warm[row] = 0
            rest = prompt - sum(length for _, length in parts)
            if rest:
                contents += 1
                parts.append((contents, rest))
            known[row] = parts
            if output:
                contents += 1
                known[row] = [*parts, (contents, output)]
        content += [part for part, _ in parts]
        tokens += [length for _, length in parts]
        begin.append(len(content))
    found = segments(begin, content, tokens) | warm_column(warm)
    return found | {"answer": answers} if answers.any() else found


def _beyond(parts: Parts, covered: int) -> Parts:
    """Return the parts behind the first `covered` tokens, of which the first one may be cut."""
    found, end = [], 0
    for content, length in parts:
        end += length
        if end > covered:
            found.append((content, min(length, end - covered)))
    return found


def _cut(parts: Parts, prompt: int) -> Parts:
    """Return the parts that a prompt of this length begins with; none if it is a shorter one."""
    before = sum(length for _, length in parts[:-1])
    if not parts or prompt < before:
        return []
    return list(parts) if prompt >= before + parts[-1][1] else list(parts[:-1])
