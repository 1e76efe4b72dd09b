"""Dates with times in text."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo

from spillway.config.limits import LONGEST_SPAN_S
from spillway.files.error import TraceError
from spillway.files.options import TIME_ZONE

ALLOWED = (
    "must be an instant between 1970 and 2070 such as 2023-11-16 18:15:46.6805900, "
    "with or without a time zone, or 16/Nov/2023:18:15:46 +0000"
)

# As ISO 8601, PostgreSQL, pandas and Python's logging write it; then as NGINX and Apache do.
_TIMESTAMP = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[ Tt](?P<time>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)"
    r"(?:[.,](?P<fraction>[0-9]{1,9}))?(?P<zone> ?(?:[Zz]|UTC|GMT)| ?[-+][0-9]{2}(?::?[0-9]{2})?)?"
)
_LOGGED = re.compile(
    r"\[?(?P<day>[0-9]{2})/(?P<month>[A-Z][a-z]{2})/(?P<year>[0-9]{4}):"
    r"(?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?"
    r"(?P<zone> [-+][0-9]{4})?\]?"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_OFFSET = re.compile(r"([-+])([0-9]{2})(?::?([0-9]{2}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def timestamp_to_ns(text: str, zone: tzinfo = timezone.utc) -> int:
    """Return a date with a time in nanoseconds since 1970, or raise ValueError.

    `zone`: that of a time that states none.
    """
    text = text.strip()
    if match := _TIMESTAMP.fullmatch(text):
        date = match["date"]
    elif match := _LOGGED.fullmatch(text):
        date = f"{match['year']}-{_MONTHS.index(match['month']) + 1:02d}-{match['day']}"
    else:
        raise ValueError
    instant = datetime.fromisoformat(f"{date}T{match['time']}")
    instant = instant.replace(tzinfo=_stated(match["zone"]) or zone)
    seconds = (instant - _EPOCH) // timedelta(seconds=1)
    if not 0 <= seconds < LONGEST_SPAN_S:
        raise ValueError
    return seconds * 1_000_000_000 + int((match["fraction"] or "").ljust(9, "0"))


def is_timestamp(text: str) -> bool:
    """Whether a text is a date with a time."""
    return _matched(text) is not None


def _matched(text: str) -> re.Match[str] | None:
    return _TIMESTAMP.fullmatch(text.strip()) or _LOGGED.fullmatch(text.strip())


def has_zone(text: str) -> bool:
    """Whether a date with a time states its time zone."""
    match = _matched(text)
    return match is not None and match["zone"] is not None


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a value of `TIME_ZONE`. Raises TraceError if there is none."""
    import zoneinfo

    if name == TIME_ZONE.default:
        return timezone.utc
    try:
        if _OFFSET.fullmatch(name):
            return _offset(name)
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
        allowed = "must be the name of a time zone such as Europe/Berlin, or an offset such as +02"
        raise TraceError(f"{TIME_ZONE.name} = {name!r:.40}: {allowed}") from error


def _stated(text: str | None) -> tzinfo | None:
    zone = (text or "").strip()
    if not zone:
        return None
    return _offset(zone) if _OFFSET.fullmatch(zone) else timezone.utc


def _offset(text: str) -> tzinfo:
    sign, hours, minutes = _OFFSET.fullmatch(text).groups()  # type: ignore[union-attr]
    if int(minutes or 0) >= 60:
        raise ValueError
    offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
    return timezone(-offset if sign == "-" else offset)
