"""The answers of a live fleet, without sockets: its application is called as a server calls it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.live import TEXT, LateLoop, Reply, application, call, fleet, run

import spillway
from spillway import ConfigError, gateway, instance, live, session, workload
from spillway.live import settings, tokens

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.live.app import App

EVERY_USAGE = {"include_usage": True, "continuous_usage_stats": True}

# --- what is answered -----------------------------------------------------------------------------


def test_a_completion_ends_with_its_reason_and_usage() -> None:
    async def work() -> tuple[Reply, Reply]:
        app = application()
        whole = await call(app, "/v1/completions", {"prompt": TEXT, "max_tokens": 5})
        asked = {
            "prompt": TEXT,
            "max_tokens": 5,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return whole, await call(app, "/v1/completions", asked)

    whole, stream = run(work)
    assert whole.status == 200
    assert whole.json["object"] == "text_completion"
    assert whole.json["choices"][0]["finish_reason"] == "length"
    assert len(tokens.encode(whole.json["choices"][0]["text"])) == 5
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    *chunks, usage, done = stream.events
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"].items() <= whole.json["usage"].items()
    assert (
        "".join(chunk["choices"][0]["text"] for chunk in chunks)
        == (whole.json["choices"][0]["text"])
    )
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "length"
    assert all("usage" not in chunk for chunk in chunks)
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_a_chat_begins_with_its_role_and_ends_with_its_reason() -> None:
    async def work() -> tuple[Reply, Reply]:
        app = application()
        asked = {"messages": [{"role": "user", "content": [{"type": "text", "text": TEXT}]}]}
        whole = await call(app, "/v1/chat/completions", asked)
        more = {
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        return whole, await call(app, "/v1/chat/completions", asked | more)

    whole, stream = run(work)
    assert whole.json["object"] == "chat.completion"
    assert whole.json["usage"]["completion_tokens"] == 12
    assert whole.json["choices"][0]["finish_reason"] == "stop"
    first, *chunks, usage, done = stream.events
    assert done == "[DONE]"
    assert usage["usage"]["completion_tokens"] == 12
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(list(chunk["choices"][0]["delta"]) == ["content"] for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 12
    assert whole.json["usage"]["prompt_tokens"] == chunks[0]["usage"]["prompt_tokens"]


@pytest.mark.parametrize("text", [TEXT, "Grüße, 世界! \n\t 🙂🙂 a_b  c", "x", " ", "\ud800"])
def test_usage_is_what_tokenize_counts(text: str) -> None:
    async def work() -> None:
        app = application()
        messages = {"messages": [{"role": "user", "content": text}]}
        for path, asked in (("completions", {"prompt": text}), ("chat/completions", messages)):
            counted = (await call(app, "/tokenize", asked)).json
            assert counted["count"] == len(counted["tokens"])
            assert counted["max_model_len"] == 2048
            used = (await call(app, f"/v1/{path}", asked | {"max_tokens": 1})).json["usage"]
            assert used["prompt_tokens"] == counted["count"]
        found = (await call(app, "/tokenize", {"prompt": text})).json["tokens"]
        again = (await call(app, "/detokenize", {"tokens": found})).json["prompt"]
        assert again == text.encode("utf-8", "replace").decode()
        by_number = await call(app, "/v1/completions", {"prompt": found, "max_tokens": 1})
        assert by_number.json["usage"]["prompt_tokens"] == len(found)

    run(work)


def test_the_other_paths() -> None:
    async def work() -> None:
        app = application()
        health = await call(app, "/health")
        assert (health.status, health.parts) == (200, [b""])
        whole = [(path, {"prompt": TEXT}) for path in ("/v1/completions", "/tokenize")]
        for path, asked in (*whole, *((path, None) for path in ("/health", "/metrics", "/a"))):
            reply = await call(app, path, asked)
            (part,) = reply.parts
            assert reply.headers["content-length"] == str(len(part))
            assert reply.headers["content-type"] != "application/json" or b": " not in part
        assert (await call(app, "/version")).json == {"version": "0.33.0"}
        assert (await call(app, "/load")).json == {"server_load": 0}
        (card,) = (await call(app, "/v1/models")).json["data"]
        assert card["id"] == card["root"] == "m"
        assert card["max_model_len"] == 2048
        assert (await call(app, "/nowhere")).status == 404
        assert (await call(app, "/health", {"a": 1})).status == 405

    run(work)


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        (b"{", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b"[]", 400, "must be a JSON object"),
        ({"prompt": ""}, 400, "prompt = ''"),
        ({"prompt": [1, -1]}, 400, "prompt = "),
        ({"prompt": ["a", "b"]}, 400, "prompt = "),
        ({"prompt": "a", "model": "other"}, 404, "The model `other` does not exist."),
        ({"prompt": "a", "n": 2}, 400, "n = 2"),
        ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ({"prompt": "a", "max_tokens": "9"}, 400, "max_tokens = '9': must be of type int"),
        ({"prompt": "a", "max_tokens": 2048}, 400, "maximum context length is 2048"),
        ({"prompt": "a " * 2048}, 400, "maximum context length is 2048"),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, 400, "stream=True"),
        ({"messages": []}, 400, "messages belongs to"),
    ],
)
def test_what_is_not_understood_is_refused(asked: Any, status: int, says: str) -> None:
    async def work() -> None:
        app = application()
        reply = await call(app, "/v1/completions", asked)
        assert reply.status == status
        error = reply.json["error"]
        assert list(error) == ["message", "type", "param", "code"]
        assert says in error["message"]
        assert error["code"] == status
        assert not app.fleet.served

    run(work)


@pytest.mark.parametrize(
    ("header", "value", "says"),
    [
        ("x-spillway-output-tokens", "0", "whole number >= 1"),
        ("x-spillway-output-tokens", "9" * 5000, "whole number >= 1"),
        ("x-spillway-class", "unknown", "slo_class = 'unknown'"),
    ],
)
def test_headers_are_checked(header: str, value: str, says: str) -> None:
    async def work() -> None:
        app = application()
        reply = await call(app, "/v1/completions", {"prompt": "a"}, headers={header: value})
        assert reply.status == 400
        assert says in reply.json["error"]["message"]

    run(work)


def test_headers_state_tenant_class_and_length() -> None:
    async def work() -> None:
        tenants = [workload.Tenant(name="gold"), workload.Tenant(name="silver")]
        offered = workload.Synthetic(clients=[{"tenant": "gold"}])
        app = application(fleet(tenants=tenants, workload=offered))
        for name, header in (("gold", "x-spillway-tenant"),
                             ("silver", "x-llm-d-inference-fairness-id"),
                             ("unknown", "x-spillway-tenant")):  # fmt: skip
            given = {header: name, "x-spillway-output-tokens": "3"}
            reply = await call(app, "/v1/completions", {"prompt": "a"}, headers=given)
            assert reply.json["usage"]["completion_tokens"] == 3
        state = app.fleet.observe()["tenants"]
        assert {name: held["completed"] for name, held in state.items()} == {
            "gold": 1, "silver": 1, "default": 1,
        }  # fmt: skip

    run(work)


# --- overload -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "status"), [("llm-d", 429), ("vllm", 503), ("dynamo", 529)])
def test_a_full_queue_has_the_status_of_its_profile(profile: str, status: int) -> None:
    async def work() -> None:
        full = fleet(**{"gateway.admission": "reject_all"})
        app = application(full, status_profile=profile)
        for streams in (False, True):
            reply = await call(app, "/v1/completions", {"prompt": "a", "stream": streams})
            assert reply.status == status
            assert reply.headers["x-spillway-reason"] == "reject_all"
            assert ("retry-after" in reply.headers) == (status == 429)
            dropped = reply.headers.get("x-llm-d-request-dropped-reason")
            assert dropped == ("rejected-saturated" if profile == "llm-d" else None)
        assert "spillway_refused_total" in app.metrics.page(app.fleet)

    run(work)


def test_a_request_that_waits_too_long_in_the_queue_is_refused() -> None:
    async def work() -> None:
        slow = fleet(1, **{"gateway.limit": [gateway.FixedLimit(max_in_flight=1)],
                           "slo_classes[standard].queue_timeout_s": 0.05})  # fmt: skip
        app = application(slow, speed=1)
        asked = {"prompt": TEXT, "max_tokens": 200, "ignore_eos": True, "stream": True}
        first = asyncio.ensure_future(call(app, "/v1/completions", asked))
        await asyncio.sleep(0.02)
        second = await call(app, "/v1/completions", asked)
        assert second.status == 429
        assert second.headers["x-llm-d-request-dropped-reason"] == "rejected-ttl-expired"
        assert (await first).events[-1] == "[DONE]"

    run(work)


@pytest.mark.parametrize("profile", ["llm-d", "vllm", "dynamo"])
def test_a_fleet_without_workers_is_unavailable(profile: str) -> None:
    async def work() -> None:
        hasty = {"fleet.initial_instances": 0, "slo_classes[standard].queue_timeout_s": 0.05}
        app = application(fleet(1, **hasty), status_profile=profile)
        reply = await call(app, "/v1/completions", {"prompt": "a", "max_tokens": 2})
        assert reply.headers["x-spillway-reason"] == "queue_timeout"
        assert reply.status == 503
        assert "retry-after" not in reply.headers

    run(work)


@pytest.mark.parametrize(("profile", "status"), [("llm-d", 429), ("vllm", 503), ("dynamo", 529)])
@pytest.mark.parametrize("reason", ["queue_full", "queued_requests"])
def test_overload_has_the_status_of_its_profile(profile: str, status: int, reason: str) -> None:
    """Each way in which an overloaded system refuses, from the queue to the server."""
    limits = instance.VllmQueueLimits(max_num_queued_reqs=1, counts_running=True)
    changes: dict[str, Any] = {
        "queue_full": {
            "gateway.limit": [gateway.FixedLimit(max_in_flight=1)],
            "gateway.bands[0].queue.max_requests": 1,
        },
        "queued_requests": {"instances[0].ingress": limits},
    }[reason]

    async def work() -> None:
        app = application(fleet(1, **changes), speed=1, status_profile=profile)
        asked = {"prompt": TEXT, "max_tokens": 200, "ignore_eos": True}
        replies = await asyncio.gather(*(call(app, "/v1/completions", asked) for _ in range(3)))
        served = [reply.status for reply in replies].count(200)
        assert served == (2 if reason == "queue_full" else 1)
        refused = next(reply for reply in replies if reply.status != 200)
        assert refused.status == status
        assert refused.headers["x-spillway-reason"] == reason
        assert ("retry-after" in refused.headers) == (status == 429)

    run(work)


@pytest.mark.parametrize("where", ["queued", "running"])
def test_a_client_that_leaves_cancels_its_request(where: str) -> None:
    async def work() -> None:
        app = application(fleet(1, **{"gateway.limit": [gateway.FixedLimit(max_in_flight=1)]}),
                          speed=1)  # fmt: skip
        long = {"prompt": TEXT, "max_tokens": 1500, "ignore_eos": True, "stream": True}
        leave, began = asyncio.Event(), asyncio.Event()
        first = asyncio.ensure_future(
            call(app, "/v1/completions", long, leave=leave,
                 seen=lambda reply: began.set() if reply.parts else None)
        )  # fmt: skip
        await began.wait()
        gone = leave
        if where == "queued":
            gone = asyncio.Event()
            second = asyncio.ensure_future(call(app, "/v1/completions", long, leave=gone))
            await asyncio.sleep(0.05)
            gone.set()
            assert (await second).status == 0
            assert app.fleet.observe()["in_flight"] == 1
            leave.set()
        leave.set()
        assert (await first).events[-1] != "[DONE]"
        for _ in range(100):
            state = app.fleet.observe()
            if state["in_flight"] == 0:
                break
            await asyncio.sleep(0.01)
        assert state["in_flight"] == 0
        assert state["running"] == state["waiting"] == 0
        assert not app.fleet.served

    run(work)


# --- the record -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fleet", "servers"])
@pytest.mark.parametrize("speed", [0, 1, 10])
def test_a_live_run_is_the_simulation_of_its_record(
    mode: str, speed: float, tmp_path: Path
) -> None:
    """Requests at random instants, some of whose clients leave: equal in every column."""

    async def work() -> tuple[App, list[Reply]]:
        controlled = fleet(**{"gateway.controller": gateway.Aimd(target_s=0.05)})
        record = tmp_path / "live.yaml"
        app = application(controlled, mode=mode, speed=speed, record=record)
        rng = random.Random(3)
        calls = []
        for i in range(30):
            leave = asyncio.Event()
            asked = {"prompt": TEXT[: rng.randint(1, 250)], "max_tokens": rng.randint(1, 30),
                     "ignore_eos": True, "stream": bool(i % 2)}  # fmt: skip
            begun = call(app, "/v1/completions", asked, port=i % 2, leave=leave)
            calls.append(asyncio.ensure_future(begun))
            await asyncio.sleep(rng.expovariate(100))
            if i % 7 == 3:
                leave.set()
            if i % 5 == 0:
                app.metrics.page(app.fleet)
        return app, await asyncio.gather(*calls)

    app, replies = run(work)
    kept = session.recorded(tmp_path / "live.yaml.jsonl")
    result = app.fleet.session.finish()
    again = spillway.simulate(kept, 1)
    assert again.digest == result.digest
    for name, column in result.requests.items():
        same = np.array_equal(column, again.requests[name], equal_nan=column.dtype.kind == "f")
        assert same, name
    assert len(again.requests["outcome"]) == 30
    completed = int((again.requests["outcome"] == "completed").sum())
    assert sum(reply.status == 200 for reply in replies) >= completed >= 20


def test_records_hold_lengths_and_salted_hashes_alone(tmp_path: Path) -> None:
    secret = "the launch code of the rocket is 0451 and nothing else matters to it at all " * 5

    async def work(name: str) -> str:
        app = application(record=tmp_path / f"{name}.json")
        given = {"authorization": "Bearer sk-very-secret"}
        for _ in range(2):
            await call(app, "/v1/completions", {"prompt": secret}, headers=given)
        app.fleet.close()
        return (tmp_path / f"{name}.json.jsonl").read_text()

    first, second = run(lambda: work("a")), run(lambda: work("b"))
    for text in (first, second):
        assert all(word not in text for word in ("launch", "0451", "sk-very", "Bearer"))
        one, two = (json.loads(line)["submit"][0]["segments"] for line in text.splitlines()[1:3])
        assert one == two
        assert len(one) >= 4
    assert first.splitlines()[1] != second.splitlines()[1]


def test_equal_beginnings_of_prompts_are_found_in_the_cache() -> None:
    async def work() -> None:
        app = application(fleet(1, **{"instances[0].kv_cache.prefix_caching": True}))
        for _ in range(2):
            await call(app, "/v1/completions", {"prompt": TEXT, "max_tokens": 2})
        held = app.fleet.observe()["instances"][0]
        assert held["kv_hits"] > 0

    run(work)


# --- time -----------------------------------------------------------------------------------------


def test_a_late_clock_is_counted_and_time_is_not_shifted() -> None:
    async def work() -> None:
        app = application(speed=1)
        asked = {"prompt": TEXT, "max_tokens": 60, "ignore_eos": True, "stream": True}
        began = time.perf_counter()
        running = asyncio.ensure_future(call(app, "/v1/completions", asked))
        await asyncio.sleep(0.05)
        time.sleep(0.2)
        await running
        assert app.fleet.times_late >= 1
        lag_s = time.perf_counter() - began - app.fleet.session.now_s
        assert 0 <= lag_s < 0.1
        page = app.metrics.page(app.fleet)
        assert f'spillway_late_total{{model_name="m"}} {app.fleet.times_late}' in page

    run(work)


def test_no_lateness_shifts_simulated_time() -> None:
    """Streams of 20 s on a virtual clock whose event loop is often late, exactly.

    A token never comes before its instant, and comes at the first turn of the loop after it, but
    for the millisecond within which tokens are sent together; what is late is counted.
    """
    rng = random.Random(5)
    step_s, most_late_s = 0.02, 0.08
    steady = instance.Linear(
        alpha0_us=0, alpha_input_us=0, alpha_output_us=0, beta0_us=1e6 * step_s,
        beta_prefill_us=0, beta_decode_us=0, beta_context_us=0,
    )  # fmt: skip
    delays: list[float] = []

    def late_s() -> float:
        delays.append(rng.uniform(0, most_late_s) if rng.random() < 0.2 else 0.0)
        return delays[-1]

    received: list[list[float]] = []  # by stream: the instant of each token

    async def work() -> App:
        loop = asyncio.get_running_loop()
        changes = {"instances[0].latency": steady, "instances[0].max_num_seqs": 64,
                   "instances[0].num_kv_blocks": 6000, "gateway.limit": "unlimited"}  # fmt: skip
        app = application(fleet(1, **changes), speed=1)
        asked = {"prompt": "a", "max_tokens": 1000, "ignore_eos": True, "stream": True,
                 "stream_options": EVERY_USAGE}  # fmt: skip

        async def stream() -> None:
            times: list[float] = []
            received.append(times)

            def seen(reply: Reply) -> None:
                part = reply.parts[-1] if reply.parts else b""
                if counts := re.findall(rb'"completion_tokens":(\d+)', part):
                    times.extend([loop.time()] * (int(counts[-1]) - len(times)))

            await call(app, "/v1/completions", asked, seen=seen)

        await asyncio.gather(*(stream() for _ in range(20)))
        return app

    with contextlib.closing(LateLoop(late_s)) as loop:
        app = loop.run_until_complete(work())
    assert [len(times) for times in received] == [1000] * 20
    due_s = step_s * np.arange(1, 1001)
    for times in received:
        behind_s = np.array(times) - due_s
        assert behind_s.min() >= -1e-9
        assert behind_s.max() <= most_late_s + 0.001 + 1e-9
        for window in np.split(behind_s, 4):  # of 5 s each: no drift
            assert window.min() <= 1e-3
    lateness = app.fleet.lateness
    assert sum(lateness.counts) >= 500
    assert app.fleet.times_late == sum(lateness.counts[lateness.bounds.index(0.05) + 1 :])
    assert app.fleet.times_late == sum(delay > 0.05 for delay in delays)


def test_scrapes_of_an_idle_server_leave_the_next_request_cheap() -> None:
    async def work() -> None:
        app = application(fleet(**{"gateway.controller": gateway.Aimd(target_s=0.05)}), speed=1)
        await call(app, "/v1/completions", {"prompt": "a", "max_tokens": 2})
        took_s = []
        for _ in range(3):
            for _ in range(10_000):
                app.fleet.observe()
            began_s = time.perf_counter()
            served = app.fleet.submit(
                input_tokens=5,
                output_tokens=1,
                max_tokens=1,
                tenant="default",
                slo_class="standard",
                segments=[],
            )
            took_s.append(time.perf_counter() - began_s)
            while served.end is None:
                served.changed.clear()
                await served.changed.wait()
        assert min(took_s) <= 1e-3

    run(work)


# --- limits ---------------------------------------------------------------------------------------


def test_bodies_and_headers_are_limited() -> None:
    async def work() -> None:
        app = application()
        app.settings.most_body_bytes = 1000
        reply = await call(app, "/v1/completions", {"prompt": "a" * 1001})
        assert reply.status == 413
        reply = await call(app, "/health", headers={"x-long": "a" * 70_000})
        assert reply.status == 431

    run(work)


def test_a_slow_body_is_given_up() -> None:
    async def work() -> None:
        app = application()
        app.settings.body_timeout_s = 0.05
        reply = Reply()

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0.02)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message: Any) -> None:
            reply.status = message.get("status", reply.status)

        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
        await app(scope, receive, send)
        assert reply.status == 408

    run(work)


def test_the_requests_at_a_time_are_limited() -> None:
    async def work() -> None:
        app = application(speed=1)
        app.settings.most_requests = 3
        asked = {"prompt": TEXT, "max_tokens": 20, "ignore_eos": True}
        replies = await asyncio.gather(*(call(app, "/v1/completions", asked) for _ in range(5)))
        assert sorted(reply.status for reply in replies) == [200, 200, 200, 503, 503]
        assert "busy" in next(r for r in replies if r.status == 503).json["error"]["message"]

    run(work)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.4", "::", "example.org", ""])
def test_other_machines_reach_it_only_behind_a_proxy(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^host = '.*must be an address of this machine"):
        live.serve(fleet(), host=host)
    settings.check_address(host, behind_proxy=True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"speed": -1}, "speed = -1: must be 0, or >= 0.001"),
        ({"speed": float("nan")}, "speed = nan"),
        ({"status_profile": "nginx"}, "status_profile = 'nginx': must be one of llm-d"),
        ({"model": ""}, "model = ''"),
        ({"record": "live.txt"}, "record = live.txt: must end in"),
        ({"port": 70_000}, "port = 70000"),
        ({"grace_s": -1.0}, "grace_s = -1"),
        ({"duration_s": 0.0}, "duration_s = 0"),
    ],
)
def test_arguments_are_checked(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        live.serve(fleet(), **given)
    assert says in str(caught.value)


# --- metrics --------------------------------------------------------------------------------------


def test_metrics_count_what_was_served() -> None:
    async def work() -> str:
        app = application()
        prompts = [TEXT[: 60 * i] for i in range(1, 9)]
        for prompt in prompts:
            await call(app, "/v1/completions", {"prompt": prompt, "max_tokens": 12})
        page = await call(app, "/metrics")
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert sum(len(tokens.encode(prompt)) for prompt in prompts) == total(
            page.parts[0].decode(), "vllm:prompt_tokens_total"
        )
        return page.parts[0].decode()

    def total(page: str, name: str) -> float:
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == name
        )

    page = run(work)
    assert total(page, "vllm:generation_tokens_total") == 8 * 12
    assert total(page, "vllm:request_success_total") == 8
    assert total(page, "vllm:time_to_first_token_seconds_count") == 8
    assert total(page, "vllm:e2e_request_latency_seconds_count") == 8
    assert total(page, "vllm:num_requests_running") == 0
    assert total(page, "spillway_requests_total") == 8
    engines = {
        sample.labels["engine"]
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if family.name.startswith("vllm:")
    }
    assert engines == {"0", "1"}


# --- the end --------------------------------------------------------------------------------------


def test_a_server_that_drains_takes_no_request_and_ends_its_streams() -> None:
    async def work() -> None:
        app = application(speed=1)
        asked = {"prompt": TEXT, "max_tokens": 1500, "ignore_eos": True, "stream": True}
        began = asyncio.Event()
        running = asyncio.ensure_future(
            call(app, "/v1/completions", asked, seen=lambda _: began.set())
        )
        await began.wait()
        app.is_draining = True
        assert (await call(app, "/health")).status == 503
        refused = await call(app, "/v1/completions", {"prompt": "a"})
        assert refused.status == 503
        assert refused.headers["x-spillway-reason"] == "shutting_down"
        app.fleet.stop()
        *_, error, done = (await running).events
        assert done == "[DONE]"
        assert "shutting down" in error["error"]["message"]
        await asyncio.wait_for(app.is_quiet.wait(), 1)

    run(work)
