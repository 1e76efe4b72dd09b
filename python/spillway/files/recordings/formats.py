"""The formats of recordings: those of the systems, and Spillway's own."""

from __future__ import annotations

from spillway import _registry
from spillway.files.recordings import column_map, folder, requests_csv
from spillway.files.recordings.format import Format

FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        folder.FORMAT,
        requests_csv.FORMAT,
        column_map.FORMAT,
        *_registry.found(Format, "recording", "step_log", "metrics", "points"),
    )
}
"""The formats by name. Their files differ, so at most one format detects a file."""
