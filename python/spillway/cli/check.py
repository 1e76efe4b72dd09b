"""`spillway check CONFIG`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.cli import configuration
from spillway.config.files import fingerprint
from spillway.config.profiles import name_of

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def __dir__() -> list[str]:
    return __all__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    configuration.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Checks a configuration file; prints its profile, its fingerprint and warnings."""
    simulation = configuration.load(options)
    configuration.report_findings(simulation)
    print(f"{options.config}: ok, profile {name_of(simulation)}, "
          f"fingerprint {fingerprint(simulation)[:12]}")  # fmt: skip
    return 0
