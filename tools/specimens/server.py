"""A stub of an LLM server whose latencies, failures and prefix cache follow a fixed pattern."""

from __future__ import annotations

import itertools
import json
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_TOKENS = 16
"""A prompt hits the cache in whole blocks, as in vLLM."""

_METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="stub"} %d
# TYPE vllm:request_success_total counter
vllm:request_success_total{finished_reason="length",model_name="stub"} %d
"""


@dataclass(frozen=True)
class Behavior:
    """What the server does; each tuple is a cycle over the requests in order of arrival."""

    ttft_s: tuple[float, ...] = (0.03, 0.05, 0.04, 0.06)
    itl_s: tuple[float, ...] = (0.008, 0.012, 0.010)
    statuses: tuple[int, ...] = (200,)
    max_output_tokens: int = 12


@dataclass
class Seen:
    """What the server received, for comparison with what a tool reports."""

    statuses: dict[int, int] = field(default_factory=dict)
    max_in_flight: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class Server(ThreadingHTTPServer):
    """Listens on a free port of the loopback interface."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, behavior: Behavior) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behavior = behavior
        self.seen = Seen()
        self._lock = threading.Lock()
        self._arrivals = itertools.count()
        self._in_flight = 0
        self._cache: set[str] = set()

    @property
    def url(self) -> str:
        """Address without a path."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the measurement."""

    def metrics(self) -> str:
        """A page of metrics with the names of vLLM."""
        return _METRICS % (self._in_flight, self.seen.statuses.get(200, 0))

    def did(self) -> dict[str, Any]:
        """The behavior, and what was received."""
        return {
            "behavior": asdict(self.behavior) | {"block_tokens": BLOCK_TOKENS},
            "received": asdict(self.seen),
        }

    def begin(self, prompt: str) -> tuple[int, int]:
        """Counts a request; its number and its cached tokens."""
        with self._lock:
            number = next(self._arrivals)
            self._in_flight += 1
            self.seen.max_in_flight = max(self.seen.max_in_flight, self._in_flight)
            # The last token is always computed.
            ends = range(BLOCK_TOKENS, len(prompt), BLOCK_TOKENS)
            hits = itertools.takewhile(lambda end: prompt[:end] in self._cache, ends)
            return number, max(hits, default=0)

    def end(self, prompt: str, status: int, output_tokens: int, cached_tokens: int) -> None:
        """Counts an answer, whose prompt stays in the cache."""
        with self._lock:
            self._in_flight -= 1
            seen = self.seen
            seen.statuses[status] = seen.statuses.get(status, 0) + 1
            if status == 200:
                seen.input_tokens += len(prompt)
                seen.output_tokens += output_tokens
                seen.cached_tokens += cached_tokens
                ends = range(BLOCK_TOKENS, len(prompt) + 1, BLOCK_TOKENS)
                self._cache.update(prompt[:end] for end in ends)


@contextmanager
def serving(behavior: Behavior) -> Iterator[Server]:
    """A server that answers while the context is open."""
    server = Server(behavior)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Prints nothing."""

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._send(200, self.server.metrics().encode(), "text/plain; version=0.0.4")
        elif self.path.startswith("/v1/models"):
            model = {"id": "stub", "object": "model", "owned_by": "spillway"}
            self._answer(200, {"object": "list", "data": [model | {"max_model_len": 8192}]})
        elif self.path in {"/get_server_info", "/server_info"}:
            self._answer(200, {"internal_states": [{}]})
        elif self.path in {"/get_model_info", "/model_info"}:
            self._answer(200, {"model_path": "stub", "is_generation": True})
        else:
            self._answer(200, {"status": "ok"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = json.loads(body) if body else {}
        path = self.path.partition("?")[0]
        if path == "/v1/chat/completions":
            contents = [message.get("content") for message in asked["messages"]]
            self._generate(asked, "".join(map(_text, contents)), self._chat)
        elif path == "/v1/completions":
            prompt = asked["prompt"]
            self._generate(
                asked, prompt if isinstance(prompt, str) else "".join(prompt), self._completion
            )
        elif path == "/generate":
            self._generate(asked | asked["sampling_params"], asked["text"], self._sglang)
        else:
            self._answer(200, {})

    def _generate(self, asked: dict[str, Any], prompt: str, chunk: Any) -> None:
        behavior = self.server.behavior
        number, cached = self.server.begin(prompt)
        status = behavior.statuses[number % len(behavior.statuses)]
        wanted = next((asked[key] for key in _LENGTHS if asked.get(key)), 16)
        num = min(wanted, behavior.max_output_tokens)
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": num,
            "total_tokens": len(prompt) + num,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        try:
            time.sleep(behavior.ttft_s[number % len(behavior.ttft_s)])
            if status != 200:
                error = {"message": f"status {status} on purpose", "type": "stub", "code": status}
                self._answer(status, {"error": error})
            elif asked.get("stream"):
                self._stream(asked, number, usage, chunk)
            else:
                time.sleep((num - 1) * behavior.itl_s[number % len(behavior.itl_s)])
                self._answer(200, chunk("a" * num, "length", usage, whole=True))
        finally:
            self.server.end(prompt, status, num, cached)

    def _stream(
        self, asked: dict[str, Any], number: int, usage: dict[str, Any], chunk: Any
    ) -> None:
        gap_s = self.server.behavior.itl_s[number % len(self.server.behavior.itl_s)]
        options = asked.get("stream_options") or {}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        num = usage["completion_tokens"]
        # Deadlines, so that delays do not add up.
        start_s = time.monotonic()
        for at in range(num):
            time.sleep(max(0.0, start_s + at * gap_s - time.monotonic()))
            so_far = usage | {
                "completion_tokens": at + 1,
                "total_tokens": usage["prompt_tokens"] + at + 1,
            }
            known = so_far if options.get("continuous_usage_stats") else None
            done = "length" if at + 1 == num else None
            self._event(chunk("a", done, known if chunk != self._sglang else so_far))
        if options.get("include_usage"):
            self._event(chunk(None, None, usage))
        self._event("[DONE]")
        self._write(b"0\r\n\r\n")

    def _chat(
        self, text: str | None, done: str | None, usage: Any, *, whole: bool = False
    ) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message" if whole else "delta": message, "finish_reason": done}
        kind = "chat.completion" if whole else "chat.completion.chunk"
        return _envelope("chatcmpl-stub", kind, choice if text is not None else None, usage)

    def _completion(
        self, text: str | None, done: str | None, usage: Any, *, whole: bool = False
    ) -> dict[str, Any]:
        del whole
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": done}
        return _envelope(
            "cmpl-stub", "text_completion", choice if text is not None else None, usage
        )

    def _sglang(
        self, text: str | None, done: str | None, usage: Any, *, whole: bool = False
    ) -> dict[str, Any]:
        so_far = text if whole else "a" * usage["completion_tokens"]
        meta = {
            "id": "stub",
            "finish_reason": {"type": done} if done else None,
            "prompt_tokens": usage["prompt_tokens"],
            "completion_tokens": usage["completion_tokens"],
            "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
        }
        return {"text": so_far, "meta_info": meta}

    def _event(self, data: dict[str, Any] | str) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        event = f"data: {text}\n\n".encode()
        self._write(b"%x\r\n%s\r\n" % (len(event), event))

    def _write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def _answer(self, status: int, data: dict[str, Any]) -> None:
        self._send(status, json.dumps(data).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self._write(body)


_LENGTHS = ("max_completion_tokens", "max_tokens", "max_new_tokens")


def _text(content: Any) -> str:
    """The text of a message, whose content is a text or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


def _envelope(name: str, kind: str, choice: Any, usage: Any) -> dict[str, Any]:
    found = {"id": name, "object": kind, "created": int(time.time()), "model": "stub"}
    found["choices"] = [choice] if choice else []
    return found | ({"usage": usage} if usage else {})
