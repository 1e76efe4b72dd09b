"""Spillway's own CSV, which includes the requests.csv of a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spillway.config.limits import MAX_TOKENS
from spillway.files.format import Format
from spillway.files.traces.rows import ATTRIBUTE, Rows

if TYPE_CHECKING:
    from spillway.files.states import Failed
    from spillway.files.traces.csv_table import CsvTable
    from spillway.files.traces.table import Int64s


def rows(
    table: CsvTable,
    arrival_ns: Int64s | None = None,  # instead of `arrival_s`
    failed: Failed | None = None,
) -> Rows:
    """`arrival_s` is in decimal seconds, exact to the nanosecond; further digits are rounded.

    `input_tokens` is the whole prompt. Every `request_id` is unique. The prompts of a
    `prefix_group` begin with the same `prefix_tokens` tokens; two with different numbers share the
    smaller one. The first `warm_tokens` of these are in every prefix cache from the start. The
    prompts of a `session` begin with the prompt and the answer of the turn before. An output ends
    at the request's `max_tokens`; empty or 0: it states none. `model` is the model that a request
    names, whose instances alone serve it; empty: that of its tenant. Columns named
    `attribute.NAME` go with the requests: policies see them, and figures can be grouped by them.
    Further columns such as `success`, `error` or `http_code` say which calls failed: they have no
    output.
    """
    from spillway.files import export, states

    if arrival_ns is None and len(table) and _DATE.match(table.shown(0, "arrival_s")):
        names = ",".join(f"{name}={name}" for name in table.columns if name in _NAMES)
        table.refuse(0, "arrival_s", f"must be seconds; for times of day: --columns {names}")
    # The outcome in a result of Spillway says nothing of a request that is to be replayed.
    used = export.REQUEST_COLUMNS
    if failed is None and (columns := states.columns_among(table.columns, used)):
        failed = states.failed_in(columns, table.texts, len(table))
    prompt, output, notes = _lengths(table, failed)
    shared = _shared(table, prompt) if "prefix_group" in table.columns else None
    return Rows(
        arrival_ns=table.seconds_ns("arrival_s") if arrival_ns is None else arrival_ns,
        input_tokens=prompt,
        output_tokens=output,
        tenant=table.texts("tenant"),
        slo_class=table.texts("slo_class"),
        request_id=table.ids("request_id"),
        prefix_group=table.texts("prefix_group"),
        prefix_tokens=shared,
        session=table.texts("session") if "session" in table.columns else (),
        warm_tokens=_warm(table, shared) if "warm_tokens" in table.columns else None,
        attributes={
            name.removeprefix(ATTRIBUTE): table.texts(name)
            for name in table.columns
            if name.startswith(ATTRIBUTE)
        },
        model=table.texts("model") if "model" in table.columns else (),
        max_tokens=_limits(table, output) if "max_tokens" in table.columns else None,
        notes=notes,
    )


def _lengths(table: CsvTable, failed: Failed | None) -> tuple[Int64s, Int64s, dict[str, int]]:
    """Return the lengths of prompts and outputs, those of failed calls included, and notes."""
    from spillway.files import states

    notes = {} if failed is None else states.notes_of(failed)
    if failed is None or not failed.rows.any():
        return table.whole("input_tokens", at_least=1), table.whole("output_tokens"), notes
    prompt = table.whole("input_tokens", empty="0").copy()
    if (empty := (prompt == 0) & ~failed.rows).any():
        table.refuse(int(empty.argmax()), "input_tokens", f"must be >= 1 and <= {MAX_TOKENS}")
    if unknown := int((prompt == 0).sum()):
        notes["{n} failed calls have no recorded prompt, and are read with a prompt of 1 token"] = (
            unknown
        )
        prompt[prompt == 0] = 1
    output = table.whole("output_tokens", empty="0").copy()
    output[failed.rows] = 0
    return prompt, output, notes


def _shared(table: CsvTable, prompt: Int64s) -> Int64s:
    shared = table.shared_tokens("prefix_group", "prefix_tokens")
    if (too_long := shared > prompt).any():
        row = int(too_long.argmax())
        table.refuse(row, "prefix_tokens", f"must be <= input_tokens ({prompt[row]})")
    return shared


def _warm(table: CsvTable, shared: Int64s | None) -> Int64s:
    warm = table.whole("warm_tokens", empty="0")
    most = 0 if shared is None else shared
    if (too_long := warm > most).any():
        row = int(too_long.argmax())
        at_most = 0 if shared is None else shared[row]
        table.refuse(row, "warm_tokens", f"must be <= prefix_tokens ({at_most})")
    return warm


def _limits(table: CsvTable, output: Int64s) -> Int64s:
    most = table.whole("max_tokens", empty="0")
    if (too_short := (most > 0) & (most < output)).any():
        row = int(too_short.argmax())
        table.refuse(row, "max_tokens", f"must be >= output_tokens ({output[row]}), or 0")
    return most


_DATE = re.compile(r"['\"]?\s*[0-9]{4}-[0-9]{2}-[0-9]{2}")

FORMAT = Format(
    name="columns",
    doc="arrival_s,input_tokens,output_tokens and optionally request_id, tenant, slo_class, "
    "prefix_group, prefix_tokens, session, warm_tokens, max_tokens, model, attribute.…",
    layout="csv",
    required=("arrival_s", "input_tokens", "output_tokens"),
    optional=(
        "request_id",
        "tenant",
        "slo_class",
        "prefix_group",
        "prefix_tokens",
        "session",
        "warm_tokens",
        "max_tokens",
        "model",
    ),
    arrival="arrival_s",
    rows=rows,
)
_NAMES = (*FORMAT.required, *(FORMAT.optional or ()))
