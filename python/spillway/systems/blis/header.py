"""The header of a BLIS TraceV2, a YAML file of the same name beside the CSV file."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway._core.sim import ConfigError
from spillway.config import filesystem, yaml
from spillway.config.messages import note
from spillway.files.error import TraceError

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.files.traces.csv_table import CsvTable

_FIRST_LINE = 2  # after the header row


class Header(NamedTuple):
    """The statements of a header about the requests.

    `is_there`: whether there is a header; `accumulates`: whether the prompts of sessions do.
    """

    is_there: bool = False
    accumulates: bool = False
    warm_up_requests: int = 0


def header_of(path: Path) -> Header:
    """Return the header of a CSV file. Raises TraceError if it cannot be read."""
    beside = path.with_suffix(".yaml") if path.suffix else path
    if beside == path or not beside.is_file():
        return Header()
    header = _read(beside, beside.stat().st_mtime_ns)
    if not header.is_there:
        note(f"{beside}: not read, as it is no header of {path.name}: it has no trace_version")
    return header


def is_measured(table: CsvTable) -> list[bool]:
    """Return which requests follow the warm-up of the header."""
    warm_up = header_of(table.path).warm_up_requests
    ids = table.texts("request_id")
    return [
        (int(name) if name.isdecimal() else line - _FIRST_LINE) >= warm_up
        for name, line in zip(ids, table.lines, strict=True)
    ]


@functools.lru_cache(maxsize=4)
def _read(path: Path, _modified_ns: int) -> Header:
    try:
        with filesystem.open_text(path) as stream:
            content: Any = yaml.parse(stream.read(), str(path))
    except OSError as error:
        raise TraceError(str(filesystem.cannot("read", path, error))) from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not a text file") from error
    except ConfigError as error:
        raise TraceError(str(error)) from error
    if not isinstance(content, dict) or "trace_version" not in content:
        return Header()
    warm_up = content.get("warm_up_requests") or 0
    if type(warm_up) is not int or warm_up < 0:
        allowed = "must be a whole number >= 0"
        raise TraceError(f"{path}, warm_up_requests = {warm_up!r:.40}: {allowed}")
    growth = content.get("session_context_growth") or ""
    if growth not in ("", "accumulate"):
        allowed = "must be empty or accumulate"
        raise TraceError(f"{path}, session_context_growth = {growth!r:.40}: {allowed}")
    return Header(is_there=True, accumulates=growth == "accumulate", warm_up_requests=warm_up)
