"""Paths in the repository."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
DATA = TESTS / "data"
SHARED = ROOT.parent / "shared"
"""Recorded runs and traces that do not belong to the repository; tests that need them skip."""
