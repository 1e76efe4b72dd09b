"""The formats of files, those of the systems and Spillway's own: by name, and of a file."""

from __future__ import annotations

import difflib
import functools
import inspect
import textwrap
from typing import TYPE_CHECKING, Any, get_args

from spillway import _registry
from spillway.config.formatting import sample
from spillway.files.error import TraceError
from spillway.files.format import Content, Format
from spillway.files.traces import access_log, spillway_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.files.head import Head
    from spillway.files.options import Option


_MOST_KEYS = 20  # that an error names


@functools.cache
def formats(*contents: Content) -> dict[str, Format]:
    """Return the formats that give any of these, by name, in the order in which they are tried.

    A format that gives a trace is in a module `trace`. The others are imported when something else
    is asked for.
    """
    found = [spillway_csv.FORMAT, *_registry.found(Format, "trace")]
    if contents != ("trace",):
        from spillway.files.recordings import column_map, folder, points_csv, requests_csv

        found += [folder.FORMAT, requests_csv.FORMAT, column_map.FORMAT, points_csv.FORMAT]
        found += _registry.found(Format, "recording", "step_log", "metrics", "points")
    found.sort(key=lambda form: (-form.precedence, -len(form.required)))
    return {form.name: form for form in found if set(contents) & set(form.gives)}


def alternatives(content: Content) -> dict[str, Format]:
    """Return the formats among which one is chosen: of traces, or of all measurements."""
    contents = get_args(Content)
    return formats("trace") if content == "trace" else formats(*contents[1:])


def options_by_name() -> dict[str, dict[str, Option]]:
    """Return the options of all formats: by their name, then by the format's."""
    found: dict[str, dict[str, Option]] = {}
    for form in formats("trace").values():
        for option in form.options:
            found.setdefault(option.name, {})[form.name] = option
    return found


def named(name: str, content: Content) -> Format:
    """Return the format of a name. Raises TraceError if there is none, or it gives other things."""
    forms = alternatives(content)
    if name not in forms:
        near = difflib.get_close_matches(name, forms, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise TraceError(f"format = {name!r}: must be one of {', '.join(sorted(forms))}{meant}")
    if content not in forms[name].gives:
        raise TraceError(f"format = {name!r}: {instead(forms[name], content)}")
    return forms[name]


def instead(form: Format, content: Content) -> str:
    """Return what files of a format give that do not give this, and how they are read."""
    gives = " and ".join(_WORDS[given] for given in form.gives)
    readers = " or ".join(f"read_{given}" for given in form.gives)
    return f"gives {gives}, not {_WORDS[content]}; `spillway read` shows them ({readers} in Python)"


_WORDS: Mapping[Content, str] = {
    "trace": "a trace",
    "recordings": "recordings",
    "step_logs": "logs of steps",
    "histograms": "histograms",
    "points": "points",
}


def by_content(file: Head, content: Content) -> Format | None:
    """Return the format that detects a file, if there is one."""
    return next(
        (form for form in alternatives(content).values() if form.detects(file, content)), None
    )


def detected(file: Head, content: Content) -> Format:
    """Return the format that detects a file. Raises TraceError if there is none."""
    path = file.path
    if found := by_content(file, content):
        return found
    if file.is_empty:
        must = "; must hold a header row and requests" if content == "trace" else ""
        raise TraceError(f"{path}: empty{must}")
    raise TraceError(
        f"{path}: unknown format: {sample(file.first_line) or 'not a text file'}\n"
        f"{_keys(file)}{_closest(file, content)}{tried()}\n"
        "Or name the columns: --columns arrival_s=…,input_tokens=…,output_tokens=… of a trace, "
        "send_s=…,…,ttft_s=…,e2e_s=… of a recording (columns in Python)"
    )


def tried() -> str:
    """Return the lines of an error that name all formats."""
    lines = ["Formats tried:"]
    for given in get_args(Content):
        names = ", ".join(sorted(formats(given)))
        lines += textwrap.wrap(
            f"  {_WORDS[given].removeprefix('a ')}: {names}", 96, subsequent_indent="    "
        )
    return "\n".join(lines)


def _keys(file: Head) -> str:
    """Return a line that names the keys of a JSON object, or the fields of an access log."""
    if access_log.is_line(file.first_line):
        return f"{access_log.explained(file.first_line)}\n"
    keys = list(file.columns["jsonl"])
    if not keys:
        return ""
    what = file.holds or "JSON"
    more = f" … and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
    return f"It holds {what}, with {', '.join(map(sample, keys[:_MOST_KEYS]))}{more}\n"


def _closest(file: Head, content: Content) -> str:
    """Return a line that names the format with the fewest columns missing, if it has others."""
    partly = [
        (len(missing), name, missing)
        for name, form in alternatives(content).items()
        if form.detect is None
        and (missing := form.missing(form.columns_of(file, content), content))
        and len(missing) < len(form.missing((), content))
    ]
    if not partly:
        return ""
    _, name, missing = min(partly, key=lambda entry: entry[0])
    return f"Closest: {name}, without {', '.join(missing)}\n"


def document(reader: Callable[..., Any], content: Content) -> None:
    """Add the formats and their options to a reader's docstring."""
    lines = [inspect.cleandoc(reader.__doc__ or ""), "", "Notes", "-----", "The formats:"]
    for form in formats(content).values():
        text = " ".join(part for part in (f"{form.doc}.", form.notes) if part)
        lines += ["", *_filled(f"- `{form.name}`: {text}", 2)]
        for option in form.options:
            kind = option.type.__name__
            if option.choices:
                kind = f"{{{', '.join(map(repr, option.choices))}}}"
            allowed = f", {option.allowed}" if option.allowed and not option.choices else ""
            facts = f"{kind}{allowed}, default {option.default!r}"
            lines += _filled(f"  - `{option.name}` ({facts}): {option.doc}", 4)
    reader.__doc__ = "\n".join([*lines, ""])


def _filled(text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        text,
        96,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
