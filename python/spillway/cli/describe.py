"""`spillway describe [PATH]`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from spillway._core.sim import ConfigError
from spillway.cli import completion, explanations, output
from spillway.config.describe import describe, descriptor
from spillway.loading import json_schema
from spillway.presets import descriptions

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    path = parser.add_argument(
        "path", nargs="?", default="",
        help="a setting or policy, e.g. gateway.admission.token_bucket; a figure, e.g. goodput; "
        "figures, study, study.KEY, sweep, presets, presets.NAME or servers",
    )  # fmt: skip
    completion.completes(path, completion.described)
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of configuration files"
    )
    output.add_json(
        parser,
        "of settings their descriptors (name, type, default, unit, doc …), of figures name, doc, "
        "unit, population, better, needs_targets, of files the keys with doc, default, example",
    )


def run(options: argparse.Namespace) -> int:
    """Prints the description of a setting, a figure, a preset, a file, or the whole schema."""
    if options.schema:
        print(json.dumps(json_schema(), indent=2))
        return 0
    path = options.path
    if explained := explanations.explain(path):
        output.show(options, explained, lambda: explanations.document(path))
    elif listed := descriptions.describe(path):
        output.show(options, listed, lambda: descriptions.document(path))
    else:
        try:
            described = describe(path)
        except ConfigError:
            if options.json or not (near := explanations.found(path)):
                raise
            print(near)
        else:
            described += _carriers(path)
            output.show(options, described, lambda: descriptor(path))
    return 0


def _carriers(path: str) -> str:
    """Which systems `spillway export` can write a policy for; empty for other settings."""
    from spillway.files.deployments import carriers

    found = carriers(path)
    if found is None:
        return ""
    return f"\n\nCarried by (spillway export): {', '.join(map(str, found)) or 'none'}"
