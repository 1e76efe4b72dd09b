"""Modules of optional extras."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from spillway.config import interruption


class MissingExtraError(ImportError):
    """An optional extra is not installed."""


def require(module: str, extra: str) -> Any:
    """Imports a module of an optional extra; ImportError names the missing extra."""
    try:
        # A half imported package could not be imported again.
        with interruption.deferred(), warnings.catch_warnings():
            # Optuna's progress bar for notebooks, which Spillway does not use.
            warnings.filterwarnings("ignore", "IProgress not found")
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"this needs {module}; install it with: pip install 'spillway-sim[{extra}]'"
        ) from error
