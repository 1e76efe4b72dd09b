"""The server process: sockets, signals, the end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import TYPE_CHECKING, Any

from spillway.config.extras import require
from spillway.live.app import App
from spillway.live.connections import limited

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.live.settings import LiveSettings


def run(
    settings: LiveSettings,
    *,
    host: str,
    port: int,
    grace_s: float,
    duration_s: float | None,
    ready: Callable[[str], None] | None,
) -> App:
    """Serves until a signal or for a time; returns the application, whose clock stands still."""
    uvicorn: Any = require("uvicorn", "live")
    require("httptools", "live")
    uvloop: Any = require("uvloop", "live")
    protocols: Any = require("uvicorn.protocols.http.httptools_impl", "live")

    loops: list[asyncio.AbstractEventLoop] = []

    class Server(uvicorn.Server):  # type: ignore[misc]
        """Lets streams end before it stops."""

        app: App
        drain: asyncio.Task[None] | None = None

        def handle_exit(self, sig: int, frame: Any) -> None:
            if self.drain is not None or not self.started:
                super().handle_exit(sig, frame)
                return
            if sig == signal.SIGINT:
                self._captured_signals.append(sig)  # raised at the end: KeyboardInterrupt
            loops[0].call_soon_threadsafe(self.begin_drain)

        def begin_drain(self) -> None:
            if self.drain is None:
                self.drain = asyncio.ensure_future(self.drained())

        async def drained(self) -> None:
            self.app.is_draining = True
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.app.is_quiet.wait(), grace_s)
            self.app.fleet.stop()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.app.is_quiet.wait(), 1)
            self.should_exit = True

    async def serve() -> App:
        loop = asyncio.get_running_loop()
        loops.append(loop)
        with contextlib.ExitStack() as opened:
            listeners = [
                opened.enter_context(_listener(host, number)) for number in _ports(settings, port)
            ]
            numbers = [listener.getsockname()[1] for listener in listeners]
            app = App(settings, numbers)  # its record begins once its ports are known to be free
            opened.callback(app.fleet.close)
            server = Server(
                uvicorn.Config(
                    app,
                    http=limited(protocols.HttpToolsProtocol, settings),
                    ws="none",
                    lifespan="off",
                    log_level="warning",
                    access_log=False,
                    proxy_headers=False,
                    server_header=False,
                    limit_concurrency=2 * settings.most_requests,
                    timeout_keep_alive=30,
                    timeout_graceful_shutdown=2,
                )
            )
            server.app = app
            if ready is not None:
                for number in numbers:
                    ready(f"http://{f'[{host}]' if ':' in host else host}:{number}")
            if duration_s is not None:
                loop.call_later(duration_s, server.begin_drain)
            await server.serve(sockets=listeners)
        return app

    served: App = uvloop.run(serve())
    return served


def _ports(settings: LiveSettings, first: int) -> list[int]:
    """The ports to listen on: one, or one per instance from the first on; 0: any free one."""
    count = len(settings.max_model_lens) if settings.mode == "servers" else 1
    return [first + i if first else 0 for i in range(count)]


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        error.filename = f"{host}:{port}"
        raise
    return listener
