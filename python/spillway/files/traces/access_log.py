"""Access logs of proxies in text: fields between spaces, in brackets or in quotes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spillway.config.formatting import sample
from spillway.files.traces import timestamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_FIELD = re.compile(r'\[([^\]]*)\]|"((?:[^"\\]|\\.)*)"|(\S+)')
_DATE = r"\[[0-9]{2,4}[-/](?:[0-9]{2}|[A-Z][a-z]{2})[-/][0-9]{2,4}[T: ][^\]]*\]"
_LINE = re.compile(rf'(?:[^\s,;]+ +){{0,4}}{_DATE} +"')


def is_line(text: str) -> bool:
    """Whether a line is one of the default access log of Envoy, NGINX or Apache, or like it."""
    return _LINE.match(text) is not None


def fields(line: str) -> list[str]:
    """Return the fields of a line; "" for one that is not known."""
    found = ("".join(groups) for groups in _FIELD.findall(line))
    return ["" if field == "-" else field for field in found]


def rows(lines: Iterable[str], number: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields of each line that is not empty; `number`: of the first."""
    for at, line in enumerate(lines, start=number):
        if line.strip():
            yield at, fields(line)


def explained(line: str) -> str:
    """Say how the fields of a line are named, and which of them is a time."""
    known = fields(line)
    shown = ", ".join(f"{at} is {sample(text)}" for at, text in enumerate(known, start=1))
    time = next((at for at, text in enumerate(known, 1) if timestamps.is_timestamp(text)), None)
    return (
        "It is an access log, whose fields have numbers: "
        f"--columns arrival_s={time or '…'},input_tokens=…,output_tokens=… (columns in Python); "
        + (f"no field is a time, which {timestamps.ALLOWED}; " if time is None else "")
        + shown
    )
