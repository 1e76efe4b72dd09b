"""`spillway describe [PATH]`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from spillway.catalog import text
from spillway.config.describe import describe
from spillway.loading import json_schema

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def __dir__() -> list[str]:
    return __all__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "path",
        nargs="?",
        default="",
        help="e.g. gateway.admission.token_bucket, presets, presets.noisy-neighbor, or scenarios",
    )
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of configuration files"
    )


def run(options: argparse.Namespace) -> int:
    """Prints the description of a setting, a preset or the whole schema."""
    if options.schema:
        print(json.dumps(json_schema(), indent=2))
    else:
        print(text.describe(options.path) or describe(options.path))
    return 0
