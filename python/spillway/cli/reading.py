"""The options of reading files, the same for every command that reads any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.config.classes import config_error
from spillway.files.formats import formats, options_by_name
from spillway.files.options import READING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of reading a file, those of its format included."""
    by_name = {option.name: {"": option} for option in READING} | options_by_name()
    for name, by_format in by_name.items():
        (option, *_) = by_format.values()
        of_doc: dict[str, dict[Any, list[str]]] = {}  # text → default → formats
        for form, known in by_format.items():
            of_doc.setdefault(known.doc, {}).setdefault(known.default, []).append(form)
        texts = [f"{doc}{_of_formats(defaults)}" for doc, defaults in of_doc.items()]
        if name == "format":
            texts = [f"{option.doc}: {', '.join(sorted(formats('trace')))} … (default: detected)"]
        action = "store_false" if option.default else "store_true"
        shown: dict[str, Any] = {"action": action, "default": None}
        if option.type is not bool:
            metavar = option.metavar or (None if option.choices else option.type.__name__.upper())
            shown = {"type": option.type, "choices": option.choices or None, "metavar": metavar}
        parser.add_argument(
            *option.flags,
            dest=f"trace_{name}",
            help="; ".join(texts).replace("%", "%%"),
            **shown,
        )


def _of_formats(defaults: Mapping[Any, list[str]]) -> str:
    """The formats of an option and their defaults; "" for an option of any file."""
    parts = [
        f"{', '.join(forms)} traces; default {default}"
        for default, forms in defaults.items()
        if any(forms)
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def add_mismatch(parser: argparse.ArgumentParser) -> None:
    """Adds --allow-mismatch."""
    parser.add_argument(
        "--allow-mismatch",
        action="store_true",
        help="use measurements whose tool reports other figures than its requests give",
    )


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The options of reading that are given, as arguments of `spillway.read`."""
    names = [*(option.name for option in READING), *options_by_name()]
    found = {name: getattr(options, f"trace_{name}") for name in names}
    found["columns"] = pairs("--columns", found["columns"], "MEANING=COLUMN")
    found["units"] = pairs("--units", found["units"], "COLUMN=UNIT")
    return {name: value for name, value in found.items() if value is not None}


def refuse_without_file(options: argparse.Namespace) -> None:
    """Raises ConfigError if options of reading are given, but --trace is not."""
    if options.trace is not None:
        return
    known = {option.name: option for option in READING}
    known |= {name: next(iter(of.values())) for name, of in options_by_name().items()}
    flags = [
        option.flags[-1]
        for name, option in known.items()
        if getattr(options, f"trace_{name}") is not None
    ]
    if flags:
        allowed = "is for the file of --trace FILE, which is not given; a trace that a "
        allowed += "configuration names is read without options"
        raise config_error([(" ".join(flags), "", allowed)])


def pairs(flag: str, text: str | None, form: str) -> dict[str, str] | None:
    """The value of an option of the form NAME=VALUE,…; `form` has its names for both."""
    if text is None:
        return None
    given = [pair.partition("=") for pair in text.split(",")]
    if not all(map(all, given)):
        raise config_error([(flag, repr(text), f"must be {form},…")])
    found = {name.strip(): value.strip() for name, _, value in given}
    if len(found) < len(given):
        allowed = f"must name each {form.partition('=')[0].lower()} once"
        raise config_error([(flag, repr(text), allowed)])
    return found
