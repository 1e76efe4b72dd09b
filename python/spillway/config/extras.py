"""Modules that come with an optional extra."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

__all__ = ["require"]


def __dir__() -> list[str]:
    return __all__


def require(module: str, extra: str) -> Any:
    """Imports a module of an optional extra; ImportError says which extra is missing."""
    try:
        with warnings.catch_warnings():
            # Optuna's progress bar in a notebook, which nothing here uses.
            warnings.filterwarnings("ignore", "IProgress not found")
            return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module} is needed for this; install it with: pip install 'spillway-sim[{extra}]'"
        ) from error
