"""The trace formats: those of the systems, and Spillway's own."""

from __future__ import annotations

from spillway import _registry
from spillway.files.traces import spillway_csv
from spillway.files.traces.format import Format, Option

# The first format that detects its columns is chosen, so the more specific ones come first.
FORMATS: dict[str, Format] = {
    form.name: form
    for form in sorted(
        (spillway_csv.FORMAT, *_registry.found(Format, "trace")),
        key=lambda form: (-form.precedence, -len(form.required)),
    )
}
"""The formats by name."""


def options_by_name() -> dict[str, dict[str, Option]]:
    """Return the options of all formats: by their name, then by the format's."""
    found: dict[str, dict[str, Option]] = {}
    for form in FORMATS.values():
        for option in form.options:
            found.setdefault(option.name, {})[form.name] = option
    return found
