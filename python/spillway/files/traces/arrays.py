"""Traces from arrays."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import _core
from spillway.config.classes import config_error
from spillway.config.limits import LONGEST_SPAN_S, MAX_NAMES, MAX_TOKENS
from spillway.config.yaml import is_unicode
from spillway.data.shared_prompts import (
    attribute_columns,
    group_segments,
    limit_column,
    model_column,
    no_segments,
    warm_column,
)
from spillway.files.traces.columns import (
    DEFAULT_CLASS,
    DEFAULT_TENANT,
    Names,
    block_segments,
    num_blocks,
)
from spillway.files.traces.rows import BLOCK_SIZE_TOKENS, HIGHEST_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    from spillway.files.traces.table import Int64s


Violation = tuple[str, str, str]  # path, value, what is allowed


def trace(
    *,
    arrival_s: npt.ArrayLike,
    input_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    tenant: str | Iterable[str] | None = None,
    slo_class: str | Iterable[str] | None = None,
    request_id: Iterable[str] | None = None,
    prefix_group: Iterable[str | None] | None = None,
    prefix_tokens: npt.ArrayLike | None = None,
    hash_ids: Iterable[Sequence[int]] | None = None,
    block_size_tokens: int = BLOCK_SIZE_TOKENS,
    warm_tokens: npt.ArrayLike | None = None,
    max_tokens: npt.ArrayLike | None = None,
    model: str | Iterable[str] | None = None,
    attributes: Mapping[str, Iterable[str]] | None = None,
) -> _core.workload.Trace:
    """Build a trace from arrays, one entry per request in order of arrival.

    `trace(**frame)` takes the columns of a data frame, where all of them are among these.

    Parameters
    ----------
    arrival_s : array-like of float
        Arrivals in seconds, ascending; rounded to the nanosecond.
    input_tokens, output_tokens : array-like of int
        Length of the whole prompt (>= 1) and of the output (>= 0), in tokens. A request without
        output is a call that failed where it was recorded: it fails here, too, unless the trace's
        `empty_outputs` is "served".
    tenant, slo_class : str or sequence of str, optional
        One for all requests or one each; by default, and if empty, "default" and "standard".
    request_id : sequence of str, optional
        Names of the requests, all different; by default their positions.
    prefix_group, prefix_tokens : sequences, optional
        The prompts of a group begin with the same `prefix_tokens` tokens; None or "" is no group.
        Two prompts of a group whose `prefix_tokens` differ share the smaller number; of a group
        with more than 64 different numbers, the largest of 64 of them that both reach.
    hash_ids : sequence of sequences of int, optional
        The content of each prompt, block by block, as an alternative to prefix groups: prompts that
        begin with the same ids begin with the same tokens.
    block_size_tokens : int
        Tokens per hash id, >= 1; the last block of a prompt may be shorter.
    warm_tokens : array-like of int, optional
        How much of the shared beginning of each prompt is in the prefix cache of every instance
        when a run starts; by default nothing.
    max_tokens : array-like of int, optional
        Maximum of each output that its client stated, at least `output_tokens`; 0, and by default:
        none.
    model : str or sequence of str, optional
        The model that requests name, one for all or one each: instances that serve it (see
        `instances[].models`) alone get them. "", and by default: that of the tenant.
    attributes : mapping of str to sequence of str, optional
        Further columns by name, which go with the requests: the user, a region, an experiment. ""
        is no value. Policies see them, and `Result.by` groups figures by them.

    Raises
    ------
    ConfigError
        A value is out of range, not whole, not finite or earlier than the previous one, or an array
        differs in length from `arrival_s`.
    TypeError
        An argument is not one-dimensional or not of the type given above.

    Examples
    --------
    >>> import spillway
    >>> recorded = spillway.trace(
    ...     arrival_s=[0.0, 0.5], input_tokens=[100, 200], output_tokens=[10, 20]
    ... )
    >>> recorded.rows
    2

    """
    arrival = _numbers("arrival_s", arrival_s).astype(np.float64)
    rows = len(arrival)
    if rows == 0:
        raise config_error([("arrival_s", "[]", "must hold at least one request")])
    violations: list[Violation] = []
    violations += _first_outside("arrival_s", arrival, 0, LONGEST_SPAN_S, whole=False)
    prompt = _tokens("input_tokens", input_tokens, 1, rows, violations)
    output = _tokens("output_tokens", output_tokens, 0, rows, violations)
    tenants, tenant_codes = _coded("tenant", tenant, DEFAULT_TENANT, rows, violations)
    classes, class_codes = _coded("slo_class", slo_class, DEFAULT_CLASS, rows, violations)
    ids = [] if request_id is None else _unique("request_id", request_id, rows, violations)
    segments = no_segments()
    if (prefix_group is None) != (prefix_tokens is None):
        raise TypeError("prefix_group and prefix_tokens belong together: give both or neither")
    if prefix_group is not None and hash_ids is not None:
        raise TypeError("give prefix_group or hash_ids, not both")
    if hash_ids is not None:
        blocks = _blocks(hash_ids, prompt, block_size_tokens, violations)
        if not violations:
            segments = block_segments(blocks, prompt, block_size_tokens)
    if prefix_group is not None and prefix_tokens is not None:
        names = _texts(
            "prefix_group",
            ["" if name is None else name for name in prefix_group],
            rows,
            violations,
        )
        groups = np.array(Names().group_codes(names), dtype=np.int64)
        shared = _tokens("prefix_tokens", prefix_tokens, 0, rows, violations)
        if not violations and (too_long := (groups >= 0) & (shared > prompt)).any():
            row = int(too_long.argmax())
            violations.append(
                (
                    f"prefix_tokens[{row}]",
                    str(shared[row]),
                    f"must be <= input_tokens[{row}] ({prompt[row]})",
                )
            )
        if not violations:
            segments = group_segments(groups, shared)
    if warm_tokens is not None:
        warm = _tokens("warm_tokens", warm_tokens, 0, rows, violations)
        segments |= warm_column(warm)
    if max_tokens is not None:
        segments |= limit_column(_limits(max_tokens, output, violations))
    segments |= _models(model or "", rows, violations)
    further = _attributes(attributes or {}, rows, violations)
    backward = np.diff(arrival) < 0
    if not violations and backward.any():
        row = int(backward.argmax()) + 1
        violations.append(
            (
                f"arrival_s[{row}]",
                str(arrival[row]),
                f"must be >= arrival_s[{row - 1}] ({arrival[row - 1]})",
            )
        )
    if violations:
        raise config_error(violations)
    return _core.workload.make_trace(
        arrival_ns=np.rint(arrival * 1e9).astype(np.int64),
        input_tokens=prompt.astype(np.int32),
        output_tokens=output.astype(np.int32),
        tenant=np.array(tenant_codes, dtype=np.uint16),
        tenants=tenants,
        slo_class=np.array(class_codes, dtype=np.uint16),
        slo_classes=classes,
        **segments,
        **attribute_columns(further),
        request_id=ids,
        file="",
    )


def _limits(max_tokens: npt.ArrayLike, output: Int64s, violations: list[Violation]) -> Int64s:
    """Return the max_tokens of each request; 0: none."""
    most = _tokens("max_tokens", max_tokens, 0, len(output), violations)
    if not violations and (too_short := (most > 0) & (most < output)).any():
        row = int(too_short.argmax())
        allowed = f"must be 0, or >= output_tokens[{row}] ({output[row]})"
        violations.append((f"max_tokens[{row}]", str(most[row]), allowed))
    return most


def _models(given: str | Iterable[str], rows: int, violations: list[Violation]) -> dict[str, Any]:
    """Return the columns of the models that requests name."""
    texts = [given] * rows if isinstance(given, str) else _texts("model", given, rows, violations)
    found = model_column(texts)
    if len(found.get("models", ())) > MAX_NAMES:
        number = f"{len(found['models'])} different values"
        violations.append(("model", number, f"must be <= {MAX_NAMES}"))
    return found


def _attributes(
    given: Mapping[str, Iterable[str]], rows: int, violations: list[Violation]
) -> dict[str, list[str]]:
    """Return the texts of further columns."""
    violations += [
        ("attributes", repr(name), "must be a printable name")
        for name in given
        if not name or not name.isprintable()
    ]
    return {
        name: _texts(f"attributes.{name}", texts, rows, violations) for name, texts in given.items()
    }


def _blocks(
    hash_ids: Iterable[Sequence[int]],
    prompt: Int64s,
    block_size_tokens: int,
    violations: list[Violation],
) -> list[list[int]]:
    """Return the hash ids of each prompt as lists of int."""
    if not 1 <= block_size_tokens <= MAX_TOKENS:
        allowed = f"must be >= 1 and <= {MAX_TOKENS}"
        violations.append(("block_size_tokens", str(block_size_tokens), allowed))
    try:
        blocks = [[operator.index(block) for block in ids] for ids in hash_ids]
    except TypeError as error:
        raise TypeError("hash_ids must be a sequence of sequences of int") from error
    if not _check_length("hash_ids", len(blocks), len(prompt), violations) or violations:
        return []
    for row, ids in enumerate(blocks):
        needed = num_blocks(int(prompt[row]), block_size_tokens)
        if not all(0 <= block <= HIGHEST_ID for block in ids):
            allowed = f"must be >= 0 and <= {HIGHEST_ID} each"
        elif len(ids) != needed:
            allowed = (
                f"must have {needed}, one per {block_size_tokens} tokens of input_tokens[{row}] "
                f"({prompt[row]})"
            )
        else:
            continue
        violations.append((f"hash_ids[{row}]", f"{ids!r:.40}", allowed))
        break
    return blocks


def _numbers(name: str, values: npt.ArrayLike) -> np.ndarray[tuple[int], np.dtype[Any]]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise TypeError(f"{name} must be a one-dimensional sequence of numbers") from error
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise TypeError(
            f"{name} must be a one-dimensional sequence of numbers, not {array.ndim}-dimensional "
            f"of {array.dtype}"
        )
    return array


def _check_length(name: str, length: int, rows: int, violations: list[Violation]) -> bool:
    if length != rows:
        violations.append(
            (name, f"{length} values", f"must be as long as arrival_s ({rows} values)")
        )
    return length == rows


def _first_outside(
    name: str,
    values: np.ndarray[tuple[int], np.dtype[Any]],
    lowest: int,
    highest: int,
    *,
    whole: bool,
) -> list[Violation]:
    good = (values >= lowest) & (values <= highest)  # false for NaN
    if whole:
        good &= values == np.floor(values)
    if good.all():
        return []
    row = int((~good).argmax())
    allowed = f"must be {'whole, ' if whole else ''}>= {lowest} and <= {highest}"
    return [(f"{name}[{row}]", str(values[row]), allowed)]


def _tokens(
    name: str, values: npt.ArrayLike, lowest: int, rows: int, violations: list[Violation]
) -> Int64s:
    array = _numbers(name, values)
    before = len(violations)
    if _check_length(name, len(array), rows, violations):
        violations += _first_outside(name, array, lowest, MAX_TOKENS, whole=True)
    return np.zeros(rows, dtype=np.int64) if len(violations) > before else array.astype(np.int64)


def _texts(name: str, values: Iterable[str], rows: int, violations: list[Violation]) -> list[str]:
    if isinstance(values, str):
        raise TypeError(f"{name} must be a sequence of str, not one str")
    texts = list(values)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{row}] must be a str, not {text!r}")
        if not text.isascii() and not is_unicode(text):
            violations.append((f"{name}[{row}]", ascii(text), "must be valid Unicode"))
    _check_length(name, len(texts), rows, violations)
    return [str(text) for text in texts]  # converts NumPy's str type to Python's


def _unique(name: str, values: Iterable[str], rows: int, violations: list[Violation]) -> list[str]:
    texts = _texts(name, values, rows, violations)
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        if (before := first.setdefault(text, row)) != row:
            allowed = f"must be unique; {name}[{before}] is the same"
            violations.append((f"{name}[{row}]", repr(text), allowed))
            break
    return texts


def _coded(
    name: str,
    values: str | Iterable[str] | None,
    default: str,
    rows: int,
    violations: list[Violation],
) -> tuple[list[str], list[int]]:
    if values is None or isinstance(values, str):
        return [values or default], [0] * rows
    names = Names()
    codes = names.codes(_texts(name, values, rows, violations), default).tolist()
    if len(names.index) > MAX_NAMES:
        violations.append((name, f"{len(names.index)} different values", f"must be <= {MAX_NAMES}"))
        codes = [0] * rows
    return list(names.index), codes
