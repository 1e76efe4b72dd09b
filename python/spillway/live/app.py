"""The server's answers, as an ASGI application."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway._core.sim import ConfigError
from spillway.live import tokens, wire
from spillway.live.fleet import Fleet, Served
from spillway.live.metrics import CONTENT_TYPE, Metrics
from spillway.live.wire import RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence

    from spillway.live.settings import LiveSettings

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Headers = Mapping[bytes, bytes]
    At = int | None  # the instance whose port it is; None: the front port of the fleet

_LLMD_REASONS = {"queue_timeout": "rejected-ttl-expired", "in_flight_eviction": "evicted-priority"}
_BUSY = (
    "The engine is currently busy and cannot accept new requests. "
    "Please try again later or on a different instance."
)


class App:
    """A simulated fleet behind vLLM's API; in mode servers, `ports` has one of each instance."""

    def __init__(self, settings: LiveSettings, ports: Sequence[int] = ()) -> None:
        self.settings = settings
        self.metrics = Metrics(settings.simulation, settings.model, settings.max_model_len(None))
        self._instances: dict[int, At] = {}
        if settings.mode == "servers":
            self._instances = {port: i for i, port in enumerate(ports)}
        self.is_draining = False
        self.is_quiet = asyncio.Event()
        self.fleet = Fleet(
            settings.simulation,
            seed=settings.seed,
            speed=settings.speed,
            record=settings.journal or "none",
            ended=self.metrics.note,
        )
        self._open: Counter[At] = Counter()
        self._numbers = 0
        self.is_quiet.set()
        self._routes: Mapping[tuple[str, str], Callable[[At, Headers, Receive, Send], Any]] = {
            ("POST", "/v1/completions"): self._completions,
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/detokenize"): self._detokenize,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/ping"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/load"): self._load,
            ("GET", "/metrics"): self._metrics,
        }

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        sent: list[Message] = []

        async def sends(message: Message) -> None:
            sent.append(message) if not sent else None
            await send(message)

        try:
            route = self._routes.get((scope["method"], scope["path"]))
            if route is None:
                is_known = any(path == scope["path"] for _, path in self._routes)
                raise RefusedError(
                    405 if is_known else 404, "Method Not Allowed" if is_known else "Not Found"
                )
            size = sum(len(name) + len(value) for name, value in scope["headers"])
            if size > self.settings.most_header_bytes:
                raise RefusedError(431, "the headers are too large")
            at = self._instances.get(scope["server"][1]) if self._instances else None
            await route(at, dict(scope["headers"]), receive, sends)
        except RefusedError as error:
            if not sent:
                await _json(send, error.status, error.body)
        except ConfigError as error:
            if not sent:
                await _json(send, 400, wire.error_body(400, str(error)))

    # ---- generation ------------------------------------------------------------------------

    async def _completions(self, at: At, headers: Headers, receive: Receive, send: Send) -> None:
        await self._generate(at, headers, receive, send, is_chat=False)

    async def _chat(self, at: At, headers: Headers, receive: Receive, send: Send) -> None:
        await self._generate(at, headers, receive, send, is_chat=True)

    async def _generate(
        self, at: At, headers: Headers, receive: Receive, send: Send, *, is_chat: bool
    ) -> None:
        if b"x-return-error" in headers:
            raise RefusedError(501, "x-return-error: failures are not simulated by this server")
        body = await self._body(receive)
        longest = self.settings.max_model_len(at)
        ask = wire.ask_of(body, is_chat=is_chat, model=self.settings.model, longest=longest)
        if self.is_draining:
            raise RefusedError(503, "The server is shutting down.")
        if self._open.total() >= self.settings.most_requests:
            raise RefusedError(503, _BUSY)
        served = self._submit(at, ask, headers)
        self._open[at] += 1
        self.is_quiet.clear()
        leaving = asyncio.ensure_future(_leaves(receive, served))
        try:
            answer = wire.Answer(ask, self._numbers, int(time.time()))
            self._numbers += 1
            if ask.streams:
                await self._stream(ask, served, answer, send)
            else:
                await self._whole(served, answer, send)
        finally:
            leaving.cancel()
            self.fleet.cancel(served)
            self._open[at] -= 1
            if self._open.total() == 0:
                self.is_quiet.set()

    def _submit(self, at: At, ask: wire.Ask, headers: Headers) -> Served:
        settings = self.settings
        longest = settings.max_model_len(at)
        room = longest - len(ask.prompt)
        most = room if ask.max_tokens is None else ask.max_tokens
        if most > room or room < 1:
            raise RefusedError(
                400,
                f"This model's maximum context length is {longest} tokens. However, "
                f"your request has {len(ask.prompt)} input tokens and asks for {max(most, 1)} "
                "output tokens.",
                "max_tokens",
            )
        tenant = settings.tenant_of(
            _text(headers, b"x-spillway-tenant")
            or _text(headers, b"x-llm-d-inference-fairness-id")
            or "default"
        )
        given = _text(headers, b"x-spillway-output-tokens")
        if given:
            if not given.isascii() or not given.isdigit() or not 1 <= int(given[:10]) <= most:
                allowed = f"must be a whole number >= 1 and <= {most}"
                raise RefusedError(400, f"x-spillway-output-tokens = {given[:40]}: {allowed}")
            output = int(given)
        else:
            output = most if ask.ignores_eos else min(settings.draw_output(tenant), most)
        return self.fleet.submit(
            input_tokens=len(ask.prompt),
            output_tokens=output,
            max_tokens=most,
            tenant=tenant,
            slo_class=_text(headers, b"x-spillway-class") or settings.slo_class_of(tenant),
            segments=tokens.segments(ask.prompt, settings.block_tokens, settings.salt),
            instance=at,
        )

    async def _whole(self, served: Served, answer: wire.Answer, send: Send) -> None:
        while served.end is None and not served.is_gone and not served.is_stopped:
            served.changed.clear()
            await served.changed.wait()
        if served.is_gone:
            return None
        if served.end is None:
            raise RefusedError(503, "The server is shutting down.")
        if served.end.state != "completed":
            return await self._refuse(served, send)
        found = answer.whole(served.emitted, served.finish_reason)
        await _json(send, 200, found, self._lateness())
        return None

    async def _stream(self, ask: wire.Ask, served: Served, answer: wire.Answer, send: Send) -> None:
        has_begun, written = False, 0
        while True:
            served.changed.clear()
            if served.is_gone:
                return None
            end = served.end
            if end is not None and end.state != "completed" and not has_begun:
                return await self._refuse(served, send)
            if not has_begun and (served.is_inside or end is not None):
                has_begun = True
                await _begin(send, 200, b"text/event-stream; charset=utf-8", self._lateness())
            emitted = served.emitted
            is_whole = end is not None and end.state == "completed"
            if emitted > written or is_whole:
                reason = served.finish_reason if is_whole else None
                await _more(send, answer.chunks(written, emitted, reason))
                written = emitted
                if not is_whole:
                    continue
            if is_whole:
                usage = answer.last_usage(written) if ask.includes_usage else b""
                return await _more(send, usage + wire.DONE, is_last=True)
            if end is not None or served.is_stopped:
                if not has_begun:
                    raise RefusedError(503, "The server is shutting down.")
                why = "The server is shutting down." if end is None else _why(served)
                error = wire.event(wire.error_body(500, why))
                return await _more(send, error + wire.DONE, is_last=True)
            await served.changed.wait()

    async def _refuse(self, served: Served, send: Send) -> None:
        end = served.end
        assert end is not None
        by_system = _core.metrics.statuses.get(end.reason, {})
        status = by_system.get(self.settings.status_profile, 500)
        if end.reason == "unservable":
            status = 400
        headers = [(b"x-spillway-reason", (end.reason or end.state).encode())]
        if self.settings.status_profile == "llm-d":
            why = _LLMD_REASONS.get(end.reason, "rejected-saturated")
            headers.append((b"x-llm-d-request-dropped-reason", why.encode()))
        if status == 429:
            headers.append((b"retry-after", b"1"))
        body = wire.error_body(status, _why(served))
        await _json(send, status, body, [*headers, *self._lateness()])

    def _lateness(self) -> list[tuple[bytes, bytes]]:
        return [(b"x-spillway-lateness-ms", f"{self.fleet.late_s * 1e3:.3f}".encode())]

    async def _body(self, receive: Receive) -> bytes:
        """The body; RefusedError if it is too large or too slow."""
        parts, size = [], 0
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.settings.body_timeout_s
        while True:
            try:
                message = await asyncio.wait_for(receive(), max(0.0, ends - loop.time()))
            except asyncio.TimeoutError:
                raise RefusedError(408, "the body came too slowly") from None
            if message["type"] == "http.disconnect":
                raise RefusedError(400, "the client has gone")
            part = message.get("body", b"")
            size += len(part)
            if size > self.settings.most_body_bytes:
                raise RefusedError(413, "the body is too large")
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    # ---- the rest --------------------------------------------------------------------------

    async def _tokenize(self, at: At, _headers: Headers, receive: Receive, send: Send) -> None:
        longest = self.settings.max_model_len(at)
        found = wire.prompt_of(wire.document(await self._body(receive)), longest)
        count = {"count": len(found), "max_model_len": longest}
        await _json(send, 200, {**count, "tokens": found, "token_strs": None})

    async def _detokenize(self, _at: At, _headers: Headers, receive: Receive, send: Send) -> None:
        given = wire.document(await self._body(receive)).get("tokens")
        if not isinstance(given, list):
            raise RefusedError(400, "tokens must be a list of token numbers", "tokens")
        found = wire.prompt_of({"prompt": given}, len(given)) if given else []
        await _json(send, 200, {"prompt": tokens.decode(found)})

    async def _models(self, at: At, _headers: Headers, _receive: Receive, send: Send) -> None:
        model = self.settings.model
        card = {
            "id": model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "vllm",
            "root": model,
            "parent": None,
            "max_model_len": self.settings.max_model_len(at),
            "permission": [],
        }
        await _json(send, 200, {"object": "list", "data": [card]})

    async def _health(self, _at: At, _headers: Headers, _receive: Receive, send: Send) -> None:
        await _begin(send, 503 if self.is_draining else 200, b"text/plain", [])
        await _more(send, b"", is_last=True)

    async def _version(self, _at: At, _headers: Headers, _receive: Receive, send: Send) -> None:
        await _json(send, 200, {"version": wire.VLLM})

    async def _load(self, at: At, _headers: Headers, _receive: Receive, send: Send) -> None:
        await _json(send, 200, {"server_load": self._open[at]})

    async def _metrics(self, at: At, _headers: Headers, _receive: Receive, send: Send) -> None:
        page = self.metrics.page(self.fleet, at).encode()
        await _begin(send, 200, CONTENT_TYPE.encode(), [])
        await _more(send, page, is_last=True)


async def _leaves(receive: Receive, served: Served) -> None:
    """Waits until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    served.is_gone = True
    served.changed.set()


def _why(served: Served) -> str:
    end = served.end
    assert end is not None
    if end.reason in ("queued_requests", "queue_full"):
        return _BUSY
    return f"The request was {end.state}" + (f" ({end.reason})." if end.reason else ".")


def _text(headers: Headers, name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1").strip()


async def _begin(
    send: Send, status: int, content_type: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    named = [(b"content-type", content_type), *headers]
    await send({"type": "http.response.start", "status": status, "headers": named})


async def _more(send: Send, part: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": part, "more_body": not is_last})


async def _json(
    send: Send, status: int, value: Any, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    await _begin(send, status, b"application/json", headers or [])
    await _more(send, json.dumps(value).encode(), is_last=True)
