"""Dates with times in text."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from spillway.config.limits import LONGEST_SPAN_S

ALLOWED = (
    "must be an instant between 1970 and 2070 such as 2023-11-16 18:15:46.6805900, "
    "with or without a time zone"
)

_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:Z|([-+][0-9]{2}):?([0-9]{2}))?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def timestamp_to_ns(text: str) -> int:
    """Return a date with a time in nanoseconds since 1970, or raise ValueError."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if not match:
        raise ValueError
    date, time, fraction, hours, minutes = match.groups()
    instant = datetime.fromisoformat(f"{date}T{time}{hours or '+00'}:{minutes or '00'}")
    seconds = (instant - _EPOCH) // timedelta(seconds=1)
    if not 0 <= seconds < LONGEST_SPAN_S:
        raise ValueError
    return seconds * 1_000_000_000 + int((fraction or "").ljust(9, "0"))
