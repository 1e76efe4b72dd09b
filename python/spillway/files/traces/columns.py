"""The columns of a trace in the core's form."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from spillway.config.limits import MAX_NAMES, MAX_TOKENS
from spillway.config.messages import note
from spillway.data.shared_prompts import (
    Beginnings,
    Turns,
    attribute_columns,
    conversation_segments,
    group_segments,
    limit_column,
    model_column,
    no_segments,
    segments,
    turn_segments,
    turns_before,
    warm_column,
)
from spillway.files.error import TraceError
from spillway.files.traces.rows import Lists

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from spillway.data.shared_prompts import Parts
    from spillway.files.format import Format
    from spillway.files.traces.rows import Rows
    from spillway.files.traces.table import Int64s, Table


Codes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint16]]

DEFAULT_TENANT = "default"
DEFAULT_CLASS = "standard"


_TURNS = "{n} prompts follow another turn, and are read as beginning with its prompt and its answer"
_UNLIKE = "{n} turns do not begin with the blocks of the turn before, and are read as first turns"


class Names:
    """Names as indices in order of first appearance."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def codes(self, names: Sequence[str], default: str) -> Int64s:
        """Return the index of each name; an empty name is the default."""
        index = self.index
        code = {
            name: index.setdefault(name or default, len(index)) for name in dict.fromkeys(names)
        }
        if len(code) == 1:
            return np.zeros(len(names), dtype=np.int64) + next(iter(code.values()))
        return np.fromiter(map(code.__getitem__, names), np.int64, len(names))

    def group_codes(self, names: Iterable[str]) -> list[int]:
        """Return the index of each name; -1 for an empty name."""
        index = self.index
        return [index.setdefault(name, len(index)) if name else -1 for name in names]


class Columns:
    """The columns of a trace, collected piece by piece.

    Parameters
    ----------
    path : Path
        The file.
    form : Format
        Its format.
    sort : bool
        Whether to sort the requests by arrival; otherwise the arrivals must ascend.

    """

    def __init__(self, path: Path, form: Format, *, sort: bool) -> None:
        self._path = path
        self._form = form
        self._sort = sort
        self._last: tuple[int, Table] | None = None  # arrival, of the last row of a table
        self._arrival_ns: list[Int64s] = []
        self._input_tokens: list[Int64s] = []
        self._output_tokens: list[Int64s] = []
        self._tenant: list[Codes] = []
        self._slo_class: list[Codes] = []
        self._prefix_group: list[Int64s] = []
        self._prefix_tokens: list[Int64s] = []
        self._warm_tokens: list[Int64s] = []
        self._max_tokens: list[Int64s] = []
        self._model: list[str] = []
        self._attributes: dict[str, list[str]] = {}
        self._hash_ids: list[np.ndarray[tuple[int], np.dtype[np.uint64]]] = []
        self._blocks: list[Int64s] = []  # how many hash ids each prompt has
        self._block_size_tokens = 0
        self._tenants, self._slo_classes, self._prefix_groups = Names(), Names(), Names()
        self._line_of: dict[str, int] = {}  # of each request_id
        self._cached_tokens = 0
        self._session: list[str] = []
        self._turn: list[str] = []
        self._follows: list[str] = []
        self._adds_to_session = False
        self._notes: Counter[str] = Counter()

    def add(self, table: Table, rows: Rows) -> None:
        """Add the requests of a piece of the file."""
        if not self._sort:
            self._check_order(table, rows.arrival_ns)
        self._add_ids(table, rows.request_id)
        self._tenant.append(self._codes(rows.tenant, self._tenants, DEFAULT_TENANT, len(table)))
        self._slo_class.append(
            self._codes(rows.slo_class, self._slo_classes, DEFAULT_CLASS, len(table))
        )
        if rows.prefix_tokens is not None:
            groups = self._prefix_groups.group_codes(rows.prefix_group)
            self._prefix_group.append(np.array(groups, dtype=np.int64))
            self._prefix_tokens.append(rows.prefix_tokens)
        elif rows.cached_tokens is not None:
            is_cached = rows.cached_tokens > 0
            if is_cached.any():
                self._prefix_groups.group_codes(["cached"])
            self._prefix_group.append(is_cached.astype(np.int64) - 1)
            self._prefix_tokens.append(rows.cached_tokens)
            self._cached_tokens += int(rows.cached_tokens.sum())
        warm = rows.cached_tokens if rows.warm_tokens is None else rows.warm_tokens
        self._warm_tokens.append(np.zeros(len(table), np.int64) if warm is None else warm)
        none = np.zeros(len(table), np.int64)
        self._max_tokens.append(none if rows.max_tokens is None else rows.max_tokens)
        self._model += rows.model
        for name, texts in rows.attributes.items():
            self._attributes.setdefault(name, []).extend(texts)
        self._session += rows.session
        self._turn += rows.turn
        self._follows += rows.follows
        self._adds_to_session |= rows.adds_to_session
        self._notes.update(rows.notes)
        if rows.hash_ids:
            ids, counts = _lists_of(rows.hash_ids)
            self._hash_ids.append(ids)
            self._blocks.append(counts)
        blocks = self._block_size_tokens if self._arrival_ns else rows.block_size_tokens
        if blocks != rows.block_size_tokens:
            raise TraceError(
                f"{self._path} line {table.lines[0]}: has blocks of {rows.block_size_tokens} "
                f"tokens, earlier lines of {blocks}"
            )
        self._block_size_tokens = blocks
        self._arrival_ns.append(rows.arrival_ns)
        self._input_tokens.append(rows.input_tokens)
        self._output_tokens.append(rows.output_tokens)

    def as_arguments(self) -> dict[str, Any]:
        """Return the arguments of the core's make_trace.

        Raises TraceError if there are no requests.
        """
        if not self._arrival_ns:
            raise TraceError(f"{self._path}: holds no requests")
        columns: dict[str, Any] = {
            "arrival_ns": np.concatenate(self._arrival_ns),
            "input_tokens": np.concatenate(self._input_tokens).astype(np.int32),
            "output_tokens": np.concatenate(self._output_tokens).astype(np.int32),
            "tenant": np.concatenate(self._tenant),
            "slo_class": np.concatenate(self._slo_class),
            **limit_column(np.concatenate(self._max_tokens)),
        }
        tenants, slo_classes = list(self._tenants.index), list(self._slo_classes.index)
        request_id = list(self._line_of)
        order = None
        if self._sort:
            order = np.argsort(columns["arrival_ns"], kind="stable")
            columns = {name: column[order] for name, column in columns.items()}
            request_id = [request_id[row] for row in order] if request_id else []
            # A trace's digest depends on the order of its names: the order of the requests in
            # sorted JSONL, the order of the file in CSV.
            if self._form.layout == "jsonl":
                columns["tenant"], tenants = _reordered(columns["tenant"], tenants)
                columns["slo_class"], slo_classes = _reordered(columns["slo_class"], slo_classes)
        if any(self._session):
            columns = self._conversations(order, columns)
        else:
            columns |= self._segments(order, columns)
        self.tell()
        attributes, model = self._attributes, self._model
        if order is not None:
            attributes = {name: [texts[row] for row in order] for name, texts in attributes.items()}
            model = [model[row] for row in order] if model else []
        models = model_column(model)
        if len(models.get("models", ())) > MAX_NAMES:
            raise TraceError(f"{self._path}: model has more than {MAX_NAMES} different values")
        return {
            **columns,
            **attribute_columns(attributes),
            **models,
            "tenants": tenants,
            "slo_classes": slo_classes,
            "request_id": request_id,
            "file": str(self._path),
        }

    def tell(self) -> None:
        """Warn of what was assumed."""
        notes = [text.format(n=f"{number:,}") for text, number in self._notes.items()]
        if self._cached_tokens:
            share = self._cached_tokens / sum(int(part.sum()) for part in self._input_tokens)
            notes.append(
                f"{share:.0%} of the prompt tokens were in the cache of the recorded server; the "
                "prompts are read as sharing their beginnings, as long as those were, which every "
                "instance has in its cache from the start"
            )
        for text in notes:
            note(f"{self._path}: {text}")

    def _codes(self, texts: Sequence[str], names: Names, default: str, rows: int) -> Codes:
        """Return the index of the name of each row."""
        if any(texts):
            codes = names.codes(texts, default)
        else:
            codes = np.repeat(names.codes([""], default), rows)
        if len(names.index) > MAX_NAMES:
            name = "tenant" if names is self._tenants else "slo_class"
            raise TraceError(f"{self._path}: {name} has more than {MAX_NAMES} different values")
        return codes.astype(np.uint16)

    def _check_order(self, table: Table, arrival_ns: Int64s) -> None:
        """Check that no request is earlier than the previous one."""
        first = [] if self._last is None else [self._last[0]]
        backward = np.diff(arrival_ns, prepend=np.array(first, dtype=np.int64)) < 0
        if backward.any():
            at = int(backward.argmax())
            row = at if self._last is not None else at + 1
            if self._last and row == 0:
                other, last = self._last[1], -1
            else:
                other, last = table, row - 1
            before, line = other.shown(last, self._form.arrival), other.lines[last]
            table.refuse(
                row,
                self._form.arrival,
                f"is earlier than {before} on {table.unit} {line}; --sort (sort=True in Python) "
                "sorts the requests by time",
            )
        self._last = int(arrival_ns[-1]), table

    def _add_ids(self, table: Table, ids: Sequence[str]) -> None:
        has_ids = bool(self._line_of) if self._arrival_ns else any(ids[:1])
        if not has_ids and not any(ids):
            if self._line_of and len(table):
                self._refuse_ids(table.lines[0])
            return
        if has_ids and len(ids) == len(table) and all(ids):
            found = dict(zip(ids, table.lines, strict=True))
            if len(found) == len(ids) and self._line_of.keys().isdisjoint(found):
                self._line_of.update(found)
                return
        for row, (name, line) in enumerate(zip(ids, table.lines, strict=False)):
            if (name != "") != has_ids:
                self._refuse_ids(line)
            if has_ids and (first := self._line_of.setdefault(name, line)) != line:
                allowed = f"must be unique; it is also on {table.unit} {first}"
                table.refuse(row, "request_id", allowed, shown=repr(name))

    def _refuse_ids(self, line: int) -> NoReturn:
        raise TraceError(f"{self._path} line {line}: request_id must be on every line or on none")

    def _segments(self, order: Int64s | None, columns: dict[str, Any]) -> dict[str, Any]:
        warm = np.concatenate(self._warm_tokens)
        if order is not None:
            warm = warm[order]
        if self._turn:
            turns = self._turns(order, columns["input_tokens"], warm)
            if any(before is not None for before in turns.before):
                lengths = columns["input_tokens"].tolist(), columns["output_tokens"].tolist()
                return turn_segments(turns, *lengths, self._highest_id())
        return self._shared(order, columns["input_tokens"]) | warm_column(warm)

    def _blocks_of(self, order: Int64s | None) -> Lists:
        ids, counts = np.concatenate(self._hash_ids), np.concatenate(self._blocks)
        if order is None:
            return Lists(ids, counts)
        pieces = np.split(ids, np.cumsum(counts)[:-1])
        return Lists(np.concatenate([pieces[row] for row in order]), counts[order])

    def _turns(self, order: Int64s | None, input_tokens: Int64s, warm: Int64s) -> Turns:
        """Return which prompts follow which, as they say and as their blocks confirm."""
        ids, counts = self._blocks_of(order)
        blocks = [part.tolist() for part in np.split(ids, np.cumsum(counts)[:-1])]
        size, prompts = self._block_size_tokens, input_tokens.tolist()
        rows = range(len(prompts)) if order is None else order.tolist()
        names, wanted = ([of[row] for row in rows] for of in (self._turn, self._follows))
        before: list[int | None] = []
        known: dict[str, int] = {}
        first: dict[tuple[int, int], int] = {}  # prompt that has a block beyond the turn before it
        unlike = 0
        for row, (name, follows) in enumerate(zip(names, wanted, strict=True)):
            earlier = known.get(follows)
            if earlier is not None:
                full = prompts[earlier] // size
                if blocks[earlier][:full] != blocks[row][:full]:
                    earlier, unlike = None, unlike + 1
            own = list(enumerate(blocks[row]))
            if earlier is None and first:
                # A prompt with the same blocks continues the same turn.
                for at, block in reversed(own):
                    like = first.get((at, block))
                    if like is not None and blocks[like][: at + 1] == blocks[row][: at + 1]:
                        earlier = before[like]
                        break
            if earlier is not None:
                for place in own[prompts[earlier] // size :]:
                    first.setdefault(place, row)
            before.append(earlier)
            known[name] = row
        followed = set(before)
        for row, earlier in enumerate(before):
            if earlier is None and row in followed:
                before[row] = -1
        if unlike:
            self._notes[_UNLIKE] += unlike
        if turns := sum(earlier is not None and earlier >= 0 for earlier in before):
            self._notes[_TURNS] += turns
        return Turns(before, self._heads(order, input_tokens), warm, has_later=True)

    def _heads(self, order: Int64s | None, input_tokens: Int64s) -> list[Parts]:
        """Return the blocks of each prompt, with their lengths."""
        ids, counts = self._blocks_of(order)
        found = _block_segments(ids, counts, input_tokens, self._block_size_tokens)
        parts = list(zip(ids.tolist(), found["segment_tokens"].tolist(), strict=True))
        return [parts[a:b] for a, b in itertools.pairwise(found["segment_begin"].tolist())]

    def _highest_id(self) -> int:
        """Return a number above the ids, or in the middle of those that are hashes."""
        return min(2**62, max(int(ids.max(initial=0)) for ids in self._hash_ids))

    def _shared(self, order: Int64s | None, input_tokens: Int64s) -> dict[str, Any]:
        if self._hash_ids:
            ids, counts = self._blocks_of(order)
            return _block_segments(ids, counts, input_tokens, self._block_size_tokens)
        if not self._prefix_groups.index:
            return no_segments()
        groups = np.concatenate(self._prefix_group)
        shared = np.concatenate(self._prefix_tokens)
        if order is not None:
            groups, shared = groups[order], shared[order]
        return group_segments(groups, shared)

    def _conversations(self, order: Int64s | None, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the columns, with the whole prompts of sessions and what they share."""
        rows = len(self._session)
        if order is None:
            order = np.arange(rows)
        groups, shared = np.full(rows, -1), np.zeros(rows, dtype=np.int64)
        if self._prefix_group:
            groups = np.concatenate(self._prefix_group)[order]
            shared = np.concatenate(self._prefix_tokens)[order]
        sessions = [self._session[row] for row in order.tolist()]
        prompts, outputs = columns["input_tokens"].tolist(), columns["output_tokens"].tolist()
        if self._adds_to_session:
            before: dict[str, int] = {}
            for row, name in enumerate(sessions):
                if name:
                    own = prompts[row] + outputs[row] - int(shared[row])
                    prompts[row] += before.get(name, 0)
                    before[name] = before.get(name, 0) + own
            if max(prompts) > MAX_TOKENS:
                raise TraceError(
                    f"{self._path}: a session grows to prompts of {max(prompts):,} tokens: must be "
                    f"<= {MAX_TOKENS:,}"
                )
        warm = np.concatenate(self._warm_tokens)[order]
        if self._hash_ids:
            heads = self._heads(order, np.array(prompts))
            turns = Turns(turns_before(sessions), heads, warm)
            segments = turn_segments(turns, prompts, outputs, self._highest_id())
        else:
            beginnings = Beginnings(groups, shared, warm)
            segments = conversation_segments(sessions, prompts, outputs, beginnings)
        return columns | {"input_tokens": np.array(prompts, dtype=np.int32)} | segments


def _reordered(codes: Codes, names: Sequence[str]) -> tuple[Codes, list[str]]:
    """Return codes and names, the names in order of first appearance."""
    found, first = np.unique(codes, return_index=True)
    by_appearance = found[np.argsort(first)]
    new = np.argsort(by_appearance).astype(np.uint16)
    return new[codes], [names[code] for code in by_appearance]


def _lists_of(lists: Sequence[Sequence[int]] | Lists) -> Lists:
    """Return lists of whole numbers as arrays."""
    if isinstance(lists, Lists):
        return lists
    values = np.array(list(itertools.chain.from_iterable(lists)), dtype=np.uint64)
    return Lists(values, np.array(list(map(len, lists)), dtype=np.int64))


def block_segments(
    hash_ids: Sequence[Sequence[int]], input_tokens: Sequence[int] | Int64s, block_size_tokens: int
) -> dict[str, Any]:
    """Return the shared segments of prompts cut into blocks; only the last may be shorter.

    What a prompt has beyond its blocks is not shared.
    """
    ids, counts = _lists_of(hash_ids)
    return _block_segments(ids, counts, input_tokens, block_size_tokens)


def _block_segments(
    ids: npt.ArrayLike, counts: Int64s, input_tokens: Sequence[int] | Int64s, block_size_tokens: int
) -> dict[str, Any]:
    begin = np.append(0, np.cumsum(counts))
    tokens = np.full(begin[-1], block_size_tokens, dtype=np.int64)
    last = np.asarray(input_tokens) - block_size_tokens * (counts - 1)
    has_ids = counts > 0
    tokens[begin[1:][has_ids] - 1] = np.minimum(last, block_size_tokens)[has_ids]
    return segments(begin, ids, tokens)


def num_blocks(tokens: int, block_size_tokens: int) -> int:
    """Return the number of blocks of a prompt, the last of which may be shorter."""
    return -(-tokens // block_size_tokens)
