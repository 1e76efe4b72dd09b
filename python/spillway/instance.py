"""Model servers: schedulers, latency models, KV memory, and `Server`, which sets all of them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from spillway.config import classes

if TYPE_CHECKING:
    from spillway._core.instance import *  # noqa: F403
    from spillway.servers import Server

__all__ = ["Server", *classes.names_of("instance")]  # noqa: PLE0604

_settings, _ = classes.lazy("instance", globals())


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "Server":
            globals()[name] = importlib.import_module("spillway.servers").Server
            return globals()[name]
        return _settings(name)
