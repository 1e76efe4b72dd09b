"""Limits on connections that the server library does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from spillway.live.settings import LiveSettings

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


def limited(protocol: Any, settings: LiveSettings) -> Any:
    """The protocol of uvicorn, with limits on the time and size of headers and on slow readers."""

    class Limited(protocol):  # type: ignore[misc]
        """A connection."""

        head: asyncio.TimerHandle | None = None  # while headers are awaited
        head_bytes = 0
        reading: asyncio.TimerHandle | None = None  # while the client does not read

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.await_head()

        def await_head(self) -> None:
            self.head_bytes = 0
            self.head = self.loop.call_later(settings.head_timeout_s, self.transport.abort)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            if self.head is None and (self.cycle is None or self.cycle.response_complete):
                self.await_head()
            self.head_bytes += len(data)
            super().data_received(data)
            if self.head is not None and self.head_bytes > settings.most_header_bytes:
                self.transport.write(_TOO_LARGE)
                self.transport.close()

        def on_headers_complete(self) -> None:
            self.forget_head()
            super().on_headers_complete()
            self.scope["spillway.abort"] = self.transport.abort  # its task begins later

        def forget_head(self) -> None:
            if self.head is not None:
                self.head.cancel()
                self.head = None

        def pause_writing(self) -> None:
            super().pause_writing()
            self.reading = self.loop.call_later(settings.read_timeout_s, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self.reading is not None:
                self.reading.cancel()

        def connection_lost(self, exc: Exception | None) -> None:
            self.forget_head()
            if self.reading is not None:
                self.reading.cancel()
            super().connection_lost(exc)

    return Limited
