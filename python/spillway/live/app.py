"""The server's answers, as an ASGI application."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway._core.sim import ConfigError
from spillway.live import errors, tokens, transfers, wire
from spillway.live.admin import Admin
from spillway.live.errors import Errors
from spillway.live.fleet import Fleet, Served
from spillway.live.metrics import CONTENT_TYPE, Metrics
from spillway.live.transfers import Kept, Transfers
from spillway.live.wire import CutError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence

    from spillway.live.settings import LiveSettings
    from spillway.session import Event

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Headers = Mapping[bytes, bytes]
    At = int | None  # the instance whose port it is; None: the front port of the fleet

_OVERLOADED = (429, 529)
_LLMD_REASONS = {"queue_timeout": "rejected-ttl-expired", "in_flight_eviction": "evicted-priority"}
_BUSY = (
    "The engine is currently busy and cannot accept new requests. "
    "Please try again later or on a different instance."
)
_LOST = "instance_lost"
_DRAINING = "The server is shutting down."


class App:
    """A simulated fleet behind vLLM's API; in mode servers, `ports` has one of each instance."""

    def __init__(
        self, settings: LiveSettings, ports: Sequence[int] = (), admin_port: int | None = None
    ) -> None:
        self.settings = settings
        self.metrics = Metrics(
            settings.simulation,
            settings.model,
            settings.max_model_len(None),
            settings.version,
        )
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
            metrics=self.metrics,
            may_fail=settings.may_fail,
            runs_on=settings.mode == "servers",
            lease_s=settings.kv_lease_s,
        )
        groups = [group for group in settings.simulation.instances for _ in range(group.count)]
        self.transfers = Transfers(
            [group.num_kv_blocks for group in groups],
            [group.block_size_tokens for group in groups],
            settings.salt,
        )
        self.metrics.transfers = self.transfers
        self.fleet.drops = self.transfers.end
        self.errors = Errors(settings.errors, settings.seed)
        self._admin_port = admin_port
        self._admin = Admin(settings.admin_token or "", self.fleet, self.errors, settings.num_ports)
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

    def port_of(self, instance: int) -> int:
        """The port of an instance, in mode servers."""
        return next(port for port, number in self._instances.items() if number == instance)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        at = self._instances.get(scope["server"][1]) if self._instances else None
        sent: list[Message] = []

        async def sends(message: Message) -> None:
            await self._reach(at)
            sent.append(message) if not sent else None
            await send(message)

        try:
            await self._answer(at, scope, receive, sends, sent)
        except CutError:
            scope["spillway.abort"]()
            while (await receive())["type"] != "http.disconnect":
                pass

    async def _reach(self, at: At, served: Served | None = None) -> None:
        """Waits while an instance hangs; CutError if it has crashed, or the client leaves."""
        if at is not None and not await self.fleet.answers(at, served):
            raise CutError

    async def _answer(
        self, at: At, scope: Mapping[str, Any], receive: Receive, send: Send, sent: list[Message]
    ) -> None:
        try:
            await self._route(at, scope, receive, send)
        except RefusedError as error:
            if not sent:
                await _json(send, error.status, error.body, self._reasons(error.reason))
        except ConfigError as error:
            if not sent:
                await _json(send, 400, wire.error_body(400, str(error)))

    async def _route(self, at: At, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size > self.settings.most_header_bytes:
            raise RefusedError(431, "the headers are too large")
        if self._admin_port is not None and scope["server"][1] == self._admin_port:
            await self._administrate(scope, receive, send)
            return
        route = self._routes.get((scope["method"], scope["path"]))
        if route is None:
            is_known = any(path == scope["path"] for _, path in self._routes)
            raise RefusedError(
                405 if is_known else 404, "Method Not Allowed" if is_known else "Not Found"
            )
        await route(at, dict(scope["headers"]), receive, send)

    async def _administrate(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        self._admin.check(dict(scope["headers"]), method, path)
        body = await self._body(receive)
        await _json(send, 200, self._admin.answer(method, path, body))

    # ---- generation ------------------------------------------------------------------------

    async def _completions(self, at: At, headers: Headers, receive: Receive, send: Send) -> None:
        await self._generate(at, headers, receive, send, is_chat=False)

    async def _chat(self, at: At, headers: Headers, receive: Receive, send: Send) -> None:
        await self._generate(at, headers, receive, send, is_chat=True)

    async def _generate(
        self, at: At, headers: Headers, receive: Receive, send: Send, *, is_chat: bool
    ) -> None:
        body = await self._body(receive)
        longest = self.settings.max_model_len(at)
        ask = wire.ask_of(body, is_chat=is_chat, model=self.settings.model, longest=longest)
        if self.is_draining:
            raise RefusedError(503, _DRAINING, reason="shutting_down")
        if self._open.total() >= self.settings.most_requests:
            raise RefusedError(503, _BUSY, reason="too_many_connections")
        if at is not None and self.fleet.is_gone(at):
            raise CutError
        is_cut = self._inject(at, headers)
        served = self._begin(at, ask, headers)
        self._open[at] += 1
        self.is_quiet.clear()
        leaving = asyncio.ensure_future(self._leaves(receive, lambda: served))

        async def sends(message: Message) -> None:
            await self._reach(at, served)
            await send(message)

        try:
            answer = wire.Answer(ask, self._numbers, int(time.time()))
            self._numbers += 1
            if served.reads and await self._has_lost_prompt(at, served):
                served = self._recompute(at, ask, headers, "lost")
            if ask.streams:
                await self._stream(ask, served, answer, sends, is_cut=is_cut)
            else:
                await self._whole(ask, served, answer, sends, is_cut=is_cut)
        finally:
            leaving.cancel()
            self.fleet.cancel(served)
            self._open[at] -= 1
            if self._open.total() == 0:
                self.is_quiet.set()

    def _inject(self, at: At, headers: Headers) -> bool:
        """Whether the answer is to be cut; raises the error that the request gets on purpose."""
        name: str | None = _text(headers, b"x-return-error")
        if name:
            name, status = errors.asked(name)
        elif self.errors.rules and (name := self.errors.drawn(self.fleet.now_s(), at)):
            status = errors.STATUSES[name]
        else:
            return False
        self.metrics.injected[name] += 1
        if status is not None:
            raise RefusedError(status, f"Injected error: {name}.", reason="injected")
        if name == "drop":
            raise CutError
        return True

    # ---- prompts that go from server to server ---------------------------------------------

    def _begin(self, at: At, ask: wire.Ask, headers: Headers) -> Served:
        if ask.transfer is None:
            return self._submit(at, ask, headers)
        if at is None or not self.settings.hands_over:
            return self._recompute(at, ask, headers, "ignored")
        asked = transfers.wanted(ask.transfer, self.transfers.most_blocks)
        if asked is None:
            return self._submit(at, ask, headers)
        if asked.keeps:
            return self._keep(at, ask, headers)
        self.fleet.now_s()  # what has expired by now is not there
        kept = self.transfers.find(asked)
        if isinstance(kept, Kept):
            if kept.digest != self.transfers.digest(ask.prompt):
                self.transfers.results[at, "other_prompt"] += 1
                message = "the prompt is not that of the request whose blocks are to be read"
                raise RefusedError(400, f"kv_transfer_params: {message}", "kv_transfer_params")
            if served := self._read(at, ask, headers, kept):
                return served
            kept = self.transfers.find(asked)
            assert isinstance(kept, str)
        if kept == "unknown_engine":
            self._check_may_recompute(at, kept)
        return self._recompute(at, ask, headers, kept)

    def _keep(self, at: int, ask: wire.Ask, headers: Headers) -> Served:
        for name, value, is_right, allowed in (
            ("max_tokens", ask.max_tokens, ask.max_tokens == 1, "must be 1"),
            ("stream", True, not ask.streams, "must be false, as the answer has parameters"),
        ):
            if not is_right:
                message = f"{name} = {value}: {allowed} with do_remote_decode"
                raise RefusedError(400, message, name)
        return self._submit(at, ask, headers, keeps=True)

    def _read(self, at: int, ask: wire.Ask, headers: Headers, kept: Kept) -> Served | None:
        tenant = self._tenant_of(headers)
        output, most = self._lengths(at, ask, headers, tenant)
        served = self.fleet.go_on(kept.number, instance=at, output_tokens=output, max_tokens=most)
        if served is not None:
            served.transfer = "read"
            self.transfers.results[at, "read"] += 1
        return served

    def _recompute(self, at: At, ask: wire.Ask, headers: Headers, why: str) -> Served:
        served = self._submit(at, ask, headers)
        served.transfer = why
        self.transfers.results[at or 0, why] += 1
        return served

    def _check_may_recompute(self, at: int, why: str) -> None:
        if self.settings.kv_load_failure_policy == "fail":
            self.transfers.results[at, why] += 1
            raise RefusedError(500, f"The KV load failed: {why}.", reason="kv_load_failed")

    async def _has_lost_prompt(self, at: At, served: Served) -> bool:
        """Waits for the prompt; whether it was lost at its other server, and not this one."""
        while not (served.is_inside or served.is_gone or served.is_stopped or served.end):
            served.changed.clear()
            await served.changed.wait()
        if served.end is None or served.end.reason != _LOST:
            return False
        assert at is not None
        if self.fleet.state_of(at) != "up":
            return False
        self._check_may_recompute(at, "lost")
        return True

    def _submit(self, at: At, ask: wire.Ask, headers: Headers, *, keeps: bool = False) -> Served:
        tenant = self._tenant_of(headers)
        output, most = (1, 1) if keeps else self._lengths(at, ask, headers, tenant)
        served = self.fleet.submit(
            input_tokens=len(ask.prompt),
            output_tokens=output,
            max_tokens=most,
            tenant=tenant,
            slo_class=_text(headers, b"x-spillway-class") or self.settings.slo_class_of(tenant),
            segments=tokens.segments(ask.prompt, self.settings.block_tokens, self.settings.salt),
            instance=at,
            keeps=keeps,
        )
        served.transfer = "kept" if keeps else ""
        return served

    def _tenant_of(self, headers: Headers) -> str:
        settings = self.settings
        return settings.tenant_of(
            _text(headers, b"x-spillway-tenant")
            or _text(headers, b"x-llm-d-inference-fairness-id")
            or settings.tenant_keys.tenant(headers.get(b"authorization", b""))
            or "default"
        )

    def _lengths(self, at: At, ask: wire.Ask, headers: Headers, tenant: str) -> tuple[int, int]:
        """The output tokens of a request, and their maximum. Raises RefusedError."""
        longest = self.settings.max_model_len(at)
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
        given = _text(headers, b"x-spillway-output-tokens")
        if not given:
            drawn = most if ask.ignores_eos else self.settings.draw_output(tenant)
            return min(drawn, most), most
        if not given.isascii() or not given.isdigit() or not 1 <= int(given[:10]) <= most:
            allowed = f"must be a whole number >= 1 and <= {most}"
            raise RefusedError(400, f"x-spillway-output-tokens = {given[:40]}: {allowed}")
        return int(given), most

    # ---- answers ---------------------------------------------------------------------------

    async def _whole(
        self, ask: wire.Ask, served: Served, answer: wire.Answer, send: Send, *, is_cut: bool
    ) -> None:
        while not (served.end or served.is_kept or served.is_gone or served.is_stopped):
            served.changed.clear()
            await served.changed.wait()
            if is_cut and served.first_token_s is not None:
                raise CutError
        if served.is_kept:
            return await self._hand_over(ask, served, answer, send, is_cut=is_cut)
        if served.is_gone:
            return None
        if served.end is None:
            raise RefusedError(503, _DRAINING, reason="shutting_down")
        if served.end.state != "completed":
            return await self._refuse(served, send)
        found = answer.whole(served.emitted, served.finish_reason)
        await _json(send, 200, found, self._headers(served))
        return None

    async def _hand_over(
        self, ask: wire.Ask, served: Served, answer: wire.Answer, send: Send, *, is_cut: bool
    ) -> None:
        number, instance = served.number, served.instance
        given = self.transfers.keep(number, instance, answer.name, ask.prompt)
        if number not in self.fleet.kept:  # any more
            self.transfers.end(number, "lost")
        if is_cut:
            raise CutError
        if not served.is_gone:
            found = answer.whole(1, served.finish_reason) | {"kv_transfer_params": given}
            await _json(send, 200, found, self._headers(served))

    async def _stream(
        self, ask: wire.Ask, served: Served, answer: wire.Answer, send: Send, *, is_cut: bool
    ) -> None:
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
                await _begin(send, 200, b"text/event-stream; charset=utf-8", self._headers(served))
            emitted = served.emitted
            is_whole = end is not None and end.state == "completed"
            if is_cut and emitted:
                await _more(send, answer.chunks(written, emitted, None))
                raise CutError
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
                if end is not None and end.reason == _LOST and self._instances:
                    raise CutError
                if not has_begun:
                    raise RefusedError(503, _DRAINING, reason="shutting_down")
                why = _DRAINING if end is None else _why(served)
                error = wire.event(wire.error_body(500, why))
                return await _more(send, error + wire.DONE, is_last=True)
            await served.changed.wait()

    async def _leaves(self, receive: Receive, served: Callable[[], Served]) -> None:
        """Waits until the client has gone."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.fleet.leave(served())

    async def _refuse(self, served: Served, send: Send) -> None:
        end = served.end
        assert end is not None
        if end.reason == _LOST and self._instances:
            raise CutError
        by_system = _core.metrics.statuses.get(end.reason, {})
        status = by_system.get(self.settings.status_profile, 500)
        if end.reason == "unservable":
            status = 400
        elif status in _OVERLOADED and self._has_no_worker(end):
            status = 503
        headers = self._reasons(end.reason or end.state)
        if self.settings.status_profile == "llm-d":
            why = _LLMD_REASONS.get(end.reason, "rejected-saturated")
            headers.append((b"x-llm-d-request-dropped-reason", why.encode()))
        if status == 429:
            headers.append((b"retry-after", b"1"))
        body = wire.error_body(status, _why(served))
        await _json(send, status, body, [*headers, *self._headers(served)])

    # A gateway without workers is unavailable, not overloaded (llm-d-router#2046).
    def _has_no_worker(self, end: Event) -> bool:
        if end.reason == "no_workers":
            return True
        return end.reason == "queue_timeout" and not self.fleet.observe()["ready_instances"]

    @staticmethod
    def _reasons(reason: str | None) -> list[tuple[bytes, bytes]]:
        return [] if reason is None else [(b"x-spillway-reason", reason.encode())]

    def _headers(self, served: Served) -> list[tuple[bytes, bytes]]:
        headers = self._lateness()
        if served.transfer:
            headers.append((b"x-spillway-kv-transfer", served.transfer.encode()))
        return headers

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
        model, created = self.settings.model, int(time.time())
        card = {
            "id": model,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": model,
            "parent": None,
            "max_model_len": self.settings.max_model_len(at),
            "permission": [wire.permission(created)],
        }
        await _json(send, 200, {"object": "list", "data": [card]})

    async def _health(self, _at: At, _headers: Headers, _receive: Receive, send: Send) -> None:
        await _at_once(send, 503 if self.is_draining else 200, b"text/plain", b"")

    async def _version(self, _at: At, _headers: Headers, _receive: Receive, send: Send) -> None:
        await _json(send, 200, {"version": self.settings.vllm_version})

    async def _load(self, at: At, _headers: Headers, _receive: Receive, send: Send) -> None:
        await _json(send, 200, {"server_load": self._open[at]})

    async def _metrics(self, at: At, _headers: Headers, _receive: Receive, send: Send) -> None:
        page = self.metrics.page(self.fleet, at).encode()
        await _at_once(send, 200, CONTENT_TYPE.encode(), page)


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
    body = json.dumps(value, separators=(",", ":")).encode()
    await _at_once(send, status, b"application/json", body, headers)


async def _at_once(
    send: Send,
    status: int,
    content_type: bytes,
    body: bytes,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await _begin(send, status, content_type, [length, *(headers or [])])
    await _more(send, body, is_last=True)
