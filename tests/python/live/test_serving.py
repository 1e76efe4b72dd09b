"""The server as a process: sockets, signals, clients, and records that a run repeats."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.live import bare_loop, serving, written_fleet

import spillway
from spillway import instance

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

for module in ("uvicorn", "uvloop", "httptools"):
    pytest.importorskip(module, reason="needs the extra live")

LONG = {"prompt": "a b c", "max_tokens": 400, "ignore_eos": True, "stream": True}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return written_fleet(tmp_path, count=2)


def test_sigterm_lets_streams_end_and_the_record_is_repeated(config: Path) -> None:
    with serving(config, "--record", "live.yaml", "--seed", "5") as server:
        bodies: list[str] = []
        threads = [
            threading.Thread(target=lambda: bodies.append(server.post("/v1/completions", LONG)[1]))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        while 'server_load":20' not in server.get("/load")[1]:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert len(bodies) == 20
        assert all(body.endswith("data: [DONE]\n\n") and "error" not in body for body in bodies)
        status, said = server.ended()
    assert status in (0, -signal.SIGTERM), said
    kept = spillway.load(config.parent / "live.yaml")
    assert "wrote live.yaml: spillway run live.yaml --seed 5" in said
    outcomes = spillway.simulate(kept, 5).requests
    assert list(outcomes["outcome"]) == ["completed"] * 20
    assert list(outcomes["output_tokens"]) == [400] * 20
    assert not (config.parent / "live.yaml.jsonl").exists()


def test_streams_that_outlast_the_grace_end_with_an_error(config: Path) -> None:
    with serving(config, "--speed", "0.01", "--grace", "0.2") as server:
        bodies: list[str] = []
        thread = threading.Thread(
            target=lambda: bodies.append(server.post("/v1/completions", LONG)[1])
        )
        thread.start()
        while 'server_load":1' not in server.get("/load")[1]:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        thread.join()
        assert "shutting down" in bodies[0]
        server.ended()


def test_a_cut_connection_gives_its_place_back(config: Path) -> None:
    with serving(config) as server:
        body = json.dumps(LONG | {"max_tokens": 4000}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
        cut = []
        for _ in range(30):
            connection = socket.create_connection(("127.0.0.1", server.port))
            connection.sendall(head.encode() + body)
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            cut.append(connection)
        for connection in cut:
            connection.close()
        ends, page = time.monotonic() + 3, ""
        while time.monotonic() < ends and 'outcome="cancelled"} 30' not in page:
            time.sleep(0.02)
            page = server.get("/metrics")[1]
        assert 'outcome="cancelled"} 30' in page, page[-800:]
        assert re.search(r"^spillway_in_flight\{.*\} 0$", page, re.MULTILINE), page[-800:]
        assert 'server_load":0' in server.get("/load")[1]


def test_time_runs_at_the_stated_speed(config: Path) -> None:
    """Simulated latencies are equal at any speed; at ten times, the wall clock shows a tenth."""
    took_s = {}
    for speed in ("1", "10"):
        with serving(config, "--speed", speed) as server:
            server.post("/v1/completions", LONG | {"max_tokens": 2})
            began_s = time.perf_counter()
            assert server.post("/v1/completions", LONG | {"max_tokens": 100})[0] == 200
            took_s[speed] = time.perf_counter() - began_s
    assert took_s["10"] < 0.5 * took_s["1"]


def test_the_client_of_openai_is_served(config: Path) -> None:
    openai = pytest.importorskip("openai", reason="the client of OpenAI is not installed")
    with serving(config, "--speed", "0", "--model", "llama") as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="-")
        assert [model.id for model in client.models.list()] == ["llama"]
        asked = {"model": "llama", "messages": [{"role": "user", "content": "Hello there"}]}
        whole = client.chat.completions.create(**asked)
        assert whole.usage.completion_tokens == 9
        stream = client.chat.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}
        )
        *chunks, usage = stream
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == whole.choices[0].message.content
        assert usage.usage == whole.usage
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="other", prompt="a")
        with pytest.raises(openai.BadRequestError):
            client.completions.create(model="llama", prompt="a", n=3)
        client.close()


LOCUST = """
import json
import random
from locust import FastHttpUser, constant, events, task


@events.init.add_listener
def begin(environment, **_):
    def count(**_):
        if environment.stats.total.num_requests >= 100:
            environment.runner.quit()

    environment.events.request.add_listener(count)


@events.quitting.add_listener
def end(environment, **_):
    total = environment.stats.total
    with open("found.json", "w") as out:
        json.dump([total.num_requests, total.num_failures], out)


class Client(FastHttpUser):
    wait_time = constant(0.01)

    @task
    def complete(self):
        streams = random.random() < 0.5
        asked = {"prompt": "Once upon a time", "max_tokens": 20, "stream": streams}
        with self.client.post("/v1/completions", json=asked, catch_response=True) as reply:
            end = "[DONE]\\n\\n" if streams else "}"
            if reply.status_code != 200 or not reply.text.endswith(end):
                reply.failure(reply.text)
"""


@pytest.mark.slow
def test_locust_is_served(config: Path) -> None:
    if importlib.util.find_spec("locust") is None:  # its import would patch this process
        pytest.skip("locust is not installed")
    (config.parent / "locustfile.py").write_text(LOCUST)
    with serving(config, "--speed", "10") as server:
        command = [
            sys.executable, "-m", "locust", "--headless", "--users", "10", "--spawn-rate", "10",
            "--run-time", "50s", "--host", f"http://127.0.0.1:{server.port}",
            "--exit-code-on-error", "1",
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=config.parent, capture_output=True, text=True, timeout=100, check=False
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    requests, failures = json.loads((config.parent / "found.json").read_text())
    assert requests >= 100
    assert failures == 0


STEP_S = 0.02
WINDOW_S = 5.0


@pytest.mark.long
def test_two_hundred_streams_are_on_time(tmp_path: Path) -> None:
    """50 tokens a second each, for 20 s, beside a bare event loop.

    The clock does not drift: of the tokens of the last 5 s, the most punctual one comes within 1 ms
    as late after its simulated instant as that of the 5 s before. On a busy machine it does so once
    in three times, as it would never with a clock that drifts. The
    p99 of the server's lateness is within 5 ms of the bare loop's; where even that loop is late
    (p99 > 10 ms), lateness is not judged.
    """
    config, drifts_s = steady_fleet(tmp_path), []
    for attempt in range(3):
        with serving(config, "--record", f"{attempt}.yaml") as server, bare_loop() as reference:
            received = asyncio.run(two_hundred_streams(server.port))
            reference_s = reference.ended()
            page = server.get("/metrics")[1]
            server.process.terminate()
            server.ended()
        kept = spillway.load(tmp_path / f"{attempt}.yaml")
        before_s, last_s = lags_of_the_end(received, spillway.simulate(kept).requests)
        drifts_s.append(abs(last_s - before_s))
        print(
            f"drift {1e3 * (last_s - before_s):.2f} ms; bare loop {1e3 * reference_s:.1f} ms late"
        )
        if reference_s <= 0.010 and drifts_s[-1] <= 0.001:
            break
    assert min(drifts_s) <= 0.001
    if reference_s > 0.010:
        pytest.skip(f"lateness not judged: a bare event loop is {reference_s * 1e3:.1f} ms late")
    counts = {
        float(bound): int(count)
        for bound, count in re.findall(r'lateness_seconds_bucket\{.*le="([\d.]+)"\} (\d+)', page)
    }
    total = int(re.findall(r"lateness_seconds_count\{.*\} (\d+)", page)[0])
    within = min(bound for bound in counts if bound >= reference_s + 0.005)
    assert counts[within] >= 0.99 * total


def steady_fleet(folder: Path) -> Path:
    """A server whose steps last 20 ms, whatever is in them."""
    steady = instance.Linear(
        alpha0_us=0, alpha_input_us=0, alpha_output_us=0, beta0_us=1e6 * STEP_S,
        beta_prefill_us=0, beta_decode_us=0, beta_context_us=0,
    )  # fmt: skip
    changes = {"instances[0].max_num_seqs": 256, "instances[0].latency": steady}
    config = written_fleet(folder, count=1)
    spillway.dump(spillway.load(config).with_(changes), config)
    return config


async def two_hundred_streams(port: int) -> dict[int, list[tuple[float, int]]]:
    """By the length of the prompt: the instants of reading (s), and the tokens so far."""

    async def stream(length: int) -> list[tuple[float, int]]:
        asked = LONG | {
            "prompt": [1] * length,
            "max_tokens": 1000,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        body = json.dumps(asked).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode() + body)
        found, seen = b"", []
        while b"[DONE]" not in found[-60:]:
            found = found[-60:] + await reader.read(65_536)
            if counts := re.findall(rb'"completion_tokens":(\d+)', found):
                seen.append((time.perf_counter(), int(counts[-1])))
        writer.close()
        assert seen[-1][1] == 1000
        return seen

    found = await asyncio.gather(*(stream(length) for length in range(1, 201)))
    return dict(zip(range(1, 201), found, strict=True))


def lags_of_the_end(
    received: dict[int, list[tuple[float, int]]], rows: Mapping[str, np.ndarray]
) -> tuple[float, float]:
    """How long after its instant the most punctual token was read, but for a constant (s).

    Of the tokens of the last 5 simulated s but one, and of the last 5 s. Of tokens that were read
    together, the last one counts.
    """
    first_s = dict(zip(rows["input_tokens"], rows["arrival_s"] + rows["ttft_s"], strict=True))
    due_s, at_s = np.array(
        [
            (first_s[length] + STEP_S * (count - 1), at_s)
            for length, seen in received.items()
            for at_s, count in seen
        ]
    ).T
    age = (due_s.max() - due_s) // WINDOW_S
    lag_s = at_s - due_s
    return float(lag_s[age == 1].min()), float(lag_s[age == 0].min())


def test_a_drifting_clock_is_found() -> None:
    """By the measure above: a clock 1 in 2,000 slow, read by a client with random delays."""
    rng = np.random.default_rng(1)
    rows = {"input_tokens": np.array([1]), "arrival_s": np.zeros(1), "ttft_s": np.array([STEP_S])}
    counts = np.arange(1, 1001)
    for slow, drift_s in ((0.0, 0.0), (1 / 2000, 0.0025)):
        at_s = STEP_S * counts * (1 + slow) + rng.exponential(0.005, 1000)
        received = {1: list(zip(at_s.tolist(), counts.tolist(), strict=True))}
        before_s, last_s = lags_of_the_end(received, rows)
        assert last_s - before_s == pytest.approx(drift_s, abs=0.0009)
