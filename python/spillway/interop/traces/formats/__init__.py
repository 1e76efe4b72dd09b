"""The trace formats: one file each, listed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.interop.traces.formats import (
    aiperf,
    azure,
    bailian,
    blis,
    blis_reference,
    burstgpt,
    dynamo,
    dynamo_wrapped,
    mooncake,
    mooncake_lengths,
    openai,
    spillway_csv,
    weka,
)

if TYPE_CHECKING:
    from spillway.interop.traces.format import Format, Option

__all__ = ["FORMATS", "options_by_name"]


def __dir__() -> list[str]:
    return __all__


# The first format that detects its columns is chosen, so the more specific ones come first.
FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        azure.FORMAT,
        burstgpt.FORMAT,
        blis.FORMAT,
        blis_reference.FORMAT,
        spillway_csv.FORMAT,
        bailian.FORMAT,
        aiperf.FORMAT,
        mooncake.FORMAT,
        mooncake_lengths.FORMAT,
        dynamo.FORMAT,
        dynamo_wrapped.FORMAT,
        weka.FORMAT,
        openai.FORMAT,
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
