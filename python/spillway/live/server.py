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


class ListenError(OSError):
    """An address where the server cannot listen: `filename`."""


_ADMIN_HOST = "127.0.0.1"
_BACKLOG = 2048


def run(
    settings: LiveSettings,
    *,
    host: str,
    port: int,
    grace_s: float,
    duration_s: float | None,
    ready: Callable[[str], None] | None,
    admin_port: int | None = None,
    note: Callable[[str], None] | None = None,
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
        held: dict[int, socket.socket]  # ports of instances that are gone, bound and not listening
        opening: set[asyncio.Task[None]]

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

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if not settings.may_fail:
                return
            if settings.mode == "servers":
                self.app.fleet.turns = self.turns
                for instance in range(len(settings.max_model_lens)):
                    self.turns(instance)
            self.app.fleet.begin()

        # An instance that has crashed refuses connections, as a port without a process does.
        def turns(self, instance: int) -> None:
            if self.app.fleet.is_gone(instance):
                if instance not in self.held:
                    self.refuse(instance)
            elif instance in self.held:
                task = asyncio.ensure_future(self.listen(instance))
                self.opening.add(task)
                task.add_done_callback(self.opening.discard)

        def refuse(self, instance: int) -> None:
            number = self.app.port_of(instance)
            self.servers[instance].close()
            self.held[instance] = _bound(host, number)
            for connection in list(self.server_state.connections):
                if connection.server is not None and connection.server[1] == number:
                    connection.transport.abort()

        async def listen(self, instance: int) -> None:
            if self.should_exit or self.app.fleet.is_gone(instance):
                return
            self.servers[instance] = await loops[0].create_server(
                self.protocol, sock=self.held[instance], backlog=_BACKLOG
            )
            del self.held[instance]
            if self.app.fleet.is_gone(instance):
                self.refuse(instance)

        def release(self) -> None:
            for held in self.held.values():
                held.close()

        def protocol(self) -> asyncio.Protocol:
            made: asyncio.Protocol = self.config.http_protocol_class(
                config=self.config, server_state=self.server_state, app_state={}
            )
            return made

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
            admin: int | None = None
            if admin_port is not None:
                listeners.append(opened.enter_context(_listener(_ADMIN_HOST, admin_port)))
                admin = listeners[-1].getsockname()[1]
            # The record begins once all ports are known to be free.
            app = App(settings, numbers, admin)
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
            server.held, server.opening = {}, set()
            opened.callback(server.release)
            if note is not None and admin is not None:
                note(f"administrative interface at http://{_ADMIN_HOST}:{admin}/admin")
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
    listener = _bound(host, port)
    listener.listen(_BACKLOG)
    return listener


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ListenError(error.errno, error.strerror, f"{host}:{port}") from None
    return bound
