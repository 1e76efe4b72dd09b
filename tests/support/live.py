"""A live fleet in tests: its application called as a server calls it, and its process."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import spillway
from spillway import Simulation, gateway, instance, workload
from spillway.live import settings
from spillway.live.app import App

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

TEXT = "We hold these truths to be self-evident, that all men are created equal. " * 4


def fleet(count: int = 2, **changes: Any) -> Simulation:
    return Simulation(
        workload=workload.Synthetic(clients=[{"output_tokens": {"kind": "fixed", "tokens": 12}}]),
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=12)),
        instances=instance.InstanceGroup(
            count=count,
            latency=instance.Linear(),
            max_num_seqs=4,
            num_kv_blocks=400,
            max_model_len=2048,
        ),
    ).with_(changes)


def written_fleet(folder: Path, count: int) -> Path:
    """The file of a fleet without limits, with memory for all that tests send."""
    simulation = Simulation(
        workload=workload.Synthetic(clients=[{"output_tokens": {"kind": "fixed", "tokens": 9}}]),
        instances=instance.InstanceGroup(
            count=count, latency=instance.Linear(), max_num_seqs=64, num_kv_blocks=4000
        ),
    )
    spillway.dump(simulation, folder / "fleet.yaml")
    return folder / "fleet.yaml"


def application(simulation: Simulation | None = None, **given: Any) -> App:
    """In mode servers, instance i is at port i."""
    defaults: dict[str, Any] = {
        "mode": "fleet", "seed": 1, "speed": 0, "model": "m", "status_profile": None, "record": None
    }  # fmt: skip
    admin_port = given.pop("admin_port", None)
    served = settings.served(simulation or fleet(), **(defaults | given))
    return App(served, range(len(served.max_model_lens)), admin_port)


@dataclass
class Reply:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(b"".join(self.parts))

    @property
    def events(self) -> list[Any]:
        text = b"".join(self.parts).decode()
        assert text.endswith("\n\n")
        lines = text[:-2].split("\n\n")
        assert all(line.startswith("data: ") for line in lines)
        return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


async def call(
    app: App,
    path: str,
    body: Any = None,
    *,
    port: int = 0,
    headers: dict[str, str] | None = None,
    leave: asyncio.Event | None = None,
    seen: Callable[[Reply], None] | None = None,
    abort: Callable[[], None] | None = None,
) -> Reply:
    """A request; `leave`: when its client goes; `abort`: breaks its connection."""
    reply = Reply()
    data = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
    messages = [{"type": "http.request", "body": data, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await (leave or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            reply.parts.append(message["body"])
        if seen is not None:
            seen(reply)

    pairs = [(k.encode(), v.encode()) for k, v in (headers or {}).items()]
    method = "GET" if body is None else "POST"
    scope = {"type": "http", "method": method, "path": path, "headers": pairs, "server": ("", port),
             "spillway.abort": abort}  # fmt: skip
    await app(scope, receive, send)
    return reply


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(work(), 60))


_BARE_LOOP = """
import asyncio, sys

async def work():
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    late_s = []
    while not ended.done():
        due_s = loop.time() + 0.02
        await asyncio.sleep(0.02)
        late_s.append(loop.time() - due_s)
    print(sorted(late_s)[int(0.99 * len(late_s))])

asyncio.run(work())
"""


class BareLoop:
    """How late an event loop that does nothing else is beside the test, in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BARE_LOOP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ended(self) -> float:
        """Ends it; returns the p99 of its lateness (s)."""
        out, _ = self._process.communicate("", timeout=30)
        return float(out)


@contextlib.contextmanager
def bare_loop() -> Iterator[BareLoop]:
    loop = BareLoop()
    try:
        yield loop
    finally:
        loop._process.kill()
        loop._process.communicate()


class LateLoop(asyncio.SelectorEventLoop):
    """An event loop on a virtual clock that jumps to the next timer, and beyond by `late_s()`."""

    def __init__(self, late_s: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        look = selector.select

        def select(timeout: float | None) -> Any:
            assert timeout is not None, "nothing is due, and nothing can arrive"
            if timeout > 0:
                self._now_s += timeout + late_s()
            return look(0)

        selector.select = select

    def time(self) -> float:
        return self._now_s


class Server:
    """A process of `spillway serve` at free ports, that many."""

    def __init__(self, config: Path, *more: str, count: int = 1) -> None:
        command = [sys.executable, "-m", "spillway.cli", "serve", str(config), "--port", "0", *more]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, cwd=config.parent
        )
        self.said: list[str] = []
        self.ports: list[int] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(r"serves .* at http://[\d.]+:(\d+)/v1", line):
                self.ports.append(int(found[1]))
                if len(self.ports) == count:
                    return
        raise AssertionError("".join(self.said))

    @property
    def port(self) -> int:
        return self.ports[0]

    def connection(self, i: int = 0) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.ports[i], timeout=30)

    def get(self, path: str, i: int = 0) -> tuple[int, str]:
        with contextlib.closing(self.connection(i)) as connection:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()

    def post(self, path: str, body: Any, i: int = 0) -> tuple[int, str]:
        with contextlib.closing(self.connection(i)) as connection:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read().decode()

    def ended(self) -> tuple[int, str]:
        _, rest = self.process.communicate(timeout=30)
        return self.process.returncode, "".join(self.said) + rest


@contextlib.contextmanager
def serving(config: Path, *more: str, count: int = 1) -> Iterator[Server]:
    server = Server(config, *more, count=count)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()
