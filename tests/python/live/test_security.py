"""Each sentence of SECURITY.md on the server, attacked."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.live import TEXT, application, call, fleet, run

from spillway import workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.live.app import App

for module in ("uvicorn", "uvloop", "httptools"):
    pytest.importorskip(module, reason="needs the extra live")


HEAD_TIMEOUT_S = 1.0
SERVER = f"""
import sys
sys.path[:0] = {sys.path!r}
from support.live import fleet
from spillway.live import server, settings

simulation = fleet(1, **{{"instances[0].max_model_len": 0, "instances[0].num_kv_blocks": 4000}})
live = settings.served(
    simulation, mode="fleet", seed=1, speed=100, model="m", status_profile=None, record=None
)
live.most_header_bytes, live.most_body_bytes = 10_000, 100_000
live.head_timeout_s, live.read_timeout_s = {HEAD_TIMEOUT_S}, 1.0
server.run(
    live, host="127.0.0.1", port=0, grace_s=0, duration_s=300,
    ready=lambda address: print(address, flush=True),
)
"""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a server with small limits."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline().rsplit(":", 1)[1])
        process.kill()


def asked(port: int, path: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
        return everything(connection)


def everything(connection: socket.socket) -> str:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            found += part
    return found.decode()


# --- what it trusts, and what it does -------------------------------------------------------------


def test_there_is_no_administrative_interface() -> None:
    paths = [
        "/admin", "/admin/config", "/admin/set", "/sleep", "/wake_up", "/reset_prefix_cache",
        "/server_info", "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/docs",
        "/openapi.json", "/debug/ledger", "/collective_rpc", "/../etc/passwd", "/v1/../admin",
        "/METRICS", "/health/", "//health",
    ]  # fmt: skip

    async def work() -> None:
        app = application()
        for path in paths:
            for body in (None, {"a": 1}):
                assert (await call(app, path, body)).status == 404, path
        assert (await call(app, "/metrics", {"set": {"gateway": 1}})).status == 405

    run(work)


_ACTS = ("open", "socket.connect", "subprocess.Popen", "os.system", "exec", "compile", "os.remove")
_watched: list[str] | None = None


def _note_act(event: str, _arguments: Any) -> None:
    if _watched is not None and event in _ACTS:
        _watched.append(event)


def test_nothing_that_a_request_names_is_read_run_or_sent() -> None:
    global _watched  # noqa: PLW0603
    sys.addaudithook(_note_act)
    bait = "file:///etc/passwd"
    bodies: list[tuple[str, Any]] = [
        ("/v1/completions", {"prompt": bait, "suffix": bait, "model": "/etc/passwd"}),
        ("/v1/completions", {"prompt": "__import__('os').system('id')", "echo": True}),
        ("/v1/completions", {"prompt": "a", "tokenizer": bait, "chat_template": "{{ 7 * 7 }}"}),
        ("/v1/completions", b"!!python/object/apply:os.system ['id']"),
        (
            "/v1/chat/completions",
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9"}}
                        ],
                    }
                ]
            },
        ),
        ("/tokenize", {"prompt": bait, "model": bait}),
    ]

    async def work(app: App) -> list[int]:
        return [(await call(app, path, body)).status for path, body in bodies]

    async def watched() -> list[int]:
        global _watched  # noqa: PLW0603
        app = application()
        await work(app)  # what is imported and built once
        _watched = []
        return await work(app)

    try:
        statuses = run(watched)
        acts = _watched
    finally:
        _watched = None
    assert statuses == [404, 200, 200, 400, 400, 200]
    assert acts == []


def test_other_addresses_of_the_machine_do_not_reach_it(port: int) -> None:
    assert asked(port, "/health").startswith("HTTP/1.1 200")
    with pytest.raises(OSError, match=r"refused|unreachable|assign"):
        socket.create_connection(("127.0.0.2", port), timeout=1)


# --- sizes and times ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /", b"a" * 500),
        (b"GET / HTTP/1.1\r\n", b"x-a: b\r\n" * 60),
        (b"GET / HTTP/1.1\r\nx-a: ", b"a" * 500),
    ],
)
def test_headers_without_end_are_refused(port: int, begin: bytes, more: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        sent = 0
        with contextlib.suppress(OSError):
            connection.sendall(begin)
            while sent < 10_000_000:
                connection.sendall(more)
                sent += len(more)
        assert sent < 10_000_000
        assert everything(connection)[:12] in ("HTTP/1.1 431", "")
    assert asked(port, "/health").startswith("HTTP/1.1 200")


@pytest.mark.parametrize(
    ("begin", "more"),
    [(b"", b""), (b"\r\n", b"\r\n"), (b"GET /h", b"a"), (b"GET / HTTP/1.1\r\nx", b"a")],
)
def test_slow_headers_are_cut(port: int, begin: bytes, more: bytes) -> None:
    """Some bytes at a time, so that the connection is never idle."""
    with socket.create_connection(("127.0.0.1", port), timeout=0.05) as connection:
        began_s = time.monotonic()
        with contextlib.suppress(ConnectionError):
            connection.sendall(begin)
            while time.monotonic() < began_s + 20:
                with contextlib.suppress(TimeoutError):
                    if connection.recv(100) == b"":
                        break
                connection.sendall(more)
        assert HEAD_TIMEOUT_S / 2 < time.monotonic() - began_s < 20


def test_slow_headers_of_a_second_request_are_cut(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"GET /ping HTTP/1.1\r\nhost: a\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /ping HTTP/1.1\r\nhos")
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(100) != b"":  # ends before the server's 30 s for idle ones
                pass


def test_a_body_without_end_is_refused(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        head = "POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 50_000_000:
                connection.sendall(b"2710\r\n" + b"a" * 10_000 + b"\r\n")
                sent += 10_000
        assert sent < 50_000_000
    assert asked(port, "/health").startswith("HTTP/1.1 200")


def test_a_client_that_reads_nothing_holds_no_place_and_is_cut(port: int) -> None:
    body = {"prompt": "a", "max_tokens": 10_000, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}}  # fmt: skip
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {len(data)}\r\n\r\n"
    with contextlib.ExitStack() as held:
        for _ in range(4):
            connection = held.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", port))
            connection.sendall(head.encode() + data)
        ends_s, states = time.monotonic() + 60, []
        while time.monotonic() < ends_s:
            in_flight = re.search(r"^spillway_in_flight\{.*\} (\d+)", asked(port, "/metrics"), re.M)
            load = re.search(r'server_load":(\d+)', asked(port, "/load"))
            assert in_flight is not None
            assert load is not None
            states.append((int(in_flight[1]), int(load[1])))
            if len(states) > 3 and states[-1] == (0, 0):
                break
            time.sleep(0.1)
        assert states[-1] == (0, 0)
        assert (4, 4) in states


def test_a_large_text_is_read_only_as_far_as_the_longest_prompt() -> None:
    async def work() -> None:
        app = application()
        text = "".join(chr(0x4E00 + i % 5000) for i in range(500_000))
        began_s = time.process_time()
        for path in ("/v1/completions", "/tokenize"):
            reply = await call(app, path, {"prompt": text})
            assert reply.status == 400
            assert "maximum context length is 2048" in reply.json["error"]["message"]
        assert time.process_time() - began_s < 2

    run(work)


# --- tenants --------------------------------------------------------------------------------------


def test_metrics_show_256_tenants_and_unknown_ones_are_default() -> None:
    names = [f"tenant-{i}" for i in range(300)]
    tenants = [workload.Tenant(name=name) for name in names]

    async def work() -> str:
        app = application(
            fleet(tenants=tenants, workload=workload.Synthetic(clients=[{"tenant": names[0]}]))
        )
        for name in [*names, *(f"guess-{i}" for i in range(50)), 'a"} 1\nfake_metric 1']:
            given = {"x-spillway-tenant": name}
            asked = {"prompt": "a", "max_tokens": 1}
            assert (await call(app, "/v1/completions", asked, headers=given)).status == 200
        return (await call(app, "/metrics")).parts[0].decode()

    page = run(work)
    shown = re.findall(r'^spillway_requests_total\{.*tenant="([^"]*)".*\} (\d+)$', page, re.M)
    counts = {tenant: int(count) for tenant, count in shown}
    assert len(counts) == 257
    assert sum(counts.values()) == 351
    assert counts["other"] == 351 - 256
    assert "guess" not in page
    assert "fake_metric" not in page


def test_a_tenant_of_the_configuration_cannot_break_the_page() -> None:
    name = 'a"} 1\nfake_metric 1'

    async def work() -> str:
        app = application(
            fleet(
                tenants=[workload.Tenant(name=name)],
                workload=workload.Synthetic(clients=[{"tenant": name}]),
            ),
            model=name,
        )
        await call(app, "/v1/completions", {"prompt": TEXT}, headers={"x-spillway-tenant": name})
        return (await call(app, "/metrics")).parts[0].decode()

    assert not re.search(r"^fake_metric", run(work), re.MULTILINE)
