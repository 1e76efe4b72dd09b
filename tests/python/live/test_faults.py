"""Instances that crash, hang and slow down while they are served."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.live import TEXT, application, call, fleet, run, serving

import spillway
from spillway import ConfigError, Simulation, session
from spillway.config.limits import LONGEST_SPAN_S

if TYPE_CHECKING:
    from pathlib import Path

    from support.live import Server

    from spillway.live.app import App

TOKEN = "a-token-of-the-tests"
ADMIN = 9999
ASKED = {"prompt": TEXT, "max_tokens": 40, "ignore_eos": True}
STREAM = ASKED | {"stream": True}


def failing(*faults: dict[str, Any], at_s: float = 0.1, **changes: Any) -> Simulation:
    schedule = [{"at_s": at_s, "faults": list(faults)}] if faults else []
    return fleet(**{"count": 2, "fleet.startup_s": 0.2, "changes": schedule} | changes)


def administered(simulation: Simulation | None = None, **given: Any) -> App:
    return application(
        simulation or failing(),
        admin_token=TOKEN,
        admin_port=ADMIN,
        **({"mode": "servers"} | given),
    )


async def fail(app: App, *faults: Any) -> tuple[int, Any]:
    headers = {"authorization": f"Bearer {TOKEN}"}
    reply = await call(app, "/admin/faults", list(faults), port=ADMIN, headers=headers)
    return reply.status, reply.json


async def ended(app: App, path: str, body: Any = None, port: int = 0) -> tuple[Any, bool]:
    """The answer as far as it came, and whether its connection was broken."""
    broken = asyncio.Event()
    reply = await call(app, path, body, port=port, leave=broken, abort=broken.set)
    return reply, broken.is_set()


def is_repeated(app: App, record: Path) -> spillway.Result:
    """Whether `simulate` has the requests of the live run, in every column."""
    kept = session.recorded(record.with_name(record.name + ".jsonl"))
    result = app.fleet.session.finish()
    again = spillway.simulate(kept, app.settings.seed)
    for name, column in result.requests.items():
        same = np.array_equal(column, again.requests[name], equal_nan=column.dtype.kind == "f")
        assert same, name
    assert again.ledger == result.ledger
    return again


def metrics_of(page: str) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if "le" not in sample.labels
    }


# --- mode fleet -----------------------------------------------------------------------------------


def test_a_crash_of_the_configuration_ends_its_streams_with_an_error(tmp_path: Path) -> None:
    crash = {"kind": "crash", "instance": 0, "for_s": 1}

    async def work() -> App:
        app = application(failing(crash), record=tmp_path / "live.yaml")
        replies = await asyncio.gather(*(call(app, "/v1/completions", STREAM) for _ in range(4)))
        ends = [reply.events[-2] for reply in replies]
        lost = [end for end in ends if "error" in end]
        assert len(lost) == 2
        assert all("instance_lost" in end["error"]["message"] for end in lost)
        assert all(reply.events[-1] == "[DONE]" for reply in replies)
        assert (await call(app, "/v1/completions", ASKED)).status == 200
        return app

    again = is_repeated(run(work), tmp_path / "live.yaml")
    assert again.ledger["failed"] == 2
    assert [fault["kind"] for fault in again.faults] == ["crash"]


@pytest.mark.parametrize("speed", [0, 1, 10])
def test_faults_on_demand_are_repeated_at_any_speed(tmp_path: Path, speed: float) -> None:
    async def work() -> App:
        app = administered(mode="fleet", speed=speed, record=tmp_path / "live.yaml", seed=3)
        streams = [asyncio.ensure_future(call(app, "/v1/completions", STREAM)) for _ in range(6)]
        await asyncio.sleep(0.05)
        status, done = await fail(
            app,
            {"kind": "slowdown", "instance": 1, "factor": 3, "for_s": 0.2},
            {"kind": "crash", "instance": 0, "for_s": 0.1},
        )
        assert status == 200
        assert len(done["faults"]) == 2
        await asyncio.gather(*streams)
        await fail(app, {"kind": "hang", "instance": 1, "for_s": 0.1})
        await asyncio.gather(*(call(app, "/v1/completions", ASKED) for _ in range(3)))
        return app

    again = is_repeated(run(work), tmp_path / "live.yaml")
    assert {fault["kind"] for fault in again.faults} == {"slowdown", "crash", "hang"}


# --- mode servers ---------------------------------------------------------------------------------


def test_a_crash_breaks_the_streams_of_its_instance_alone(tmp_path: Path) -> None:
    crash = {"kind": "crash", "instance": 0, "for_s": 1}

    async def work() -> App:
        app = application(failing(crash), mode="servers", record=tmp_path / "live.yaml")
        (lost, is_broken), (whole, is_other_broken) = await asyncio.gather(
            *(ended(app, "/v1/completions", STREAM, port) for port in (0, 1))
        )
        assert is_broken
        assert not is_other_broken
        assert whole.events[-1] == "[DONE]"
        assert b"[DONE]" not in b"".join(lost.parts)
        assert b"error" not in b"".join(lost.parts)
        assert 1 <= len(lost.parts) < 40
        return app

    again = is_repeated(run(work), tmp_path / "live.yaml")
    assert again.ledger["failed"] == 1


def test_an_instance_that_has_crashed_answers_nothing_until_it_has_loaded() -> None:
    async def work() -> None:
        app = administered(speed=1)
        assert (await ended(app, "/health"))[0].status == 200
        assert (await fail(app, {"kind": "crash", "instance": 0, "for_s": 0.1}))[0] == 200
        began = time.monotonic()
        for path, body in (("/health", None), ("/metrics", None), ("/v1/completions", ASKED)):
            reply, is_broken = await ended(app, path, body)
            assert is_broken, path
            assert reply.status == 0
            assert (await ended(app, path, body, port=1))[0].status == 200
        while (await ended(app, "/health"))[1]:
            await asyncio.sleep(0.01)
        assert time.monotonic() - began >= 0.1 + 0.2 - 0.02
        assert (await ended(app, "/v1/completions", ASKED))[0].status == 200

    run(work)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/health", None), ("/metrics", None), ("/v1/completions", ASKED), ("/v1/completions", b"{")],
)
def test_an_instance_that_hangs_answers_when_it_goes_on(path: str, body: Any) -> None:
    async def work() -> None:
        app = administered(speed=1)
        began = time.monotonic()
        assert (await fail(app, {"kind": "hang", "instance": 0, "for_s": 0.4}))[0] == 200
        waiting = asyncio.ensure_future(ended(app, path, body))
        other, _ = await ended(app, path, body, port=1)
        assert time.monotonic() - began < 0.4
        assert not waiting.done()
        reply, is_broken = await waiting
        assert time.monotonic() - began >= 0.4
        assert not is_broken
        assert reply.status == other.status

    run(work)


def test_a_client_that_leaves_an_instance_that_hangs_ends_its_request() -> None:
    async def work() -> None:
        app = administered(speed=1)
        assert (await fail(app, {"kind": "hang", "instance": 0}))[0] == 200
        leaves = asyncio.Event()
        waiting = asyncio.ensure_future(
            call(app, "/v1/completions", STREAM, leave=leaves, abort=leaves.set)
        )
        await asyncio.sleep(0.05)
        assert app.fleet.observe()["in_flight"] == 1
        leaves.set()
        await asyncio.wait_for(waiting, 5)
        await asyncio.sleep(0.02)
        assert app.fleet.observe()["in_flight"] == 0

    run(work)


def test_a_hang_that_does_not_end_holds_a_call_until_the_crash() -> None:
    async def work() -> None:
        app = administered()
        await fail(app, {"kind": "hang", "instance": 0})
        waiting = asyncio.ensure_future(ended(app, "/health"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert app.fleet.session.now_s < 1e6
        await fail(app, {"kind": "crash", "instance": 0})
        assert (await waiting)[1]
        assert app.fleet.state_of(0) == "down"

    run(work)


def test_a_call_ends_with_the_server_while_its_instance_hangs() -> None:
    async def work() -> None:
        app = administered(speed=1)
        await fail(app, {"kind": "hang", "instance": 0})
        waiting = [
            asyncio.ensure_future(ended(app, path, body))
            for path, body in (("/health", None), ("/v1/completions", STREAM))
        ]
        await asyncio.sleep(0.05)
        app.fleet.stop()
        assert all(is_broken for _, is_broken in await asyncio.gather(*waiting))

    run(work)


def test_a_slowdown_multiplies_the_durations_of_steps(tmp_path: Path) -> None:
    async def work() -> App:
        app = administered(record=tmp_path / "live.yaml")
        await call(app, "/v1/completions", ASKED)
        await fail(app, {"kind": "slowdown", "instance": 0, "factor": 5})
        await call(app, "/v1/completions", ASKED)
        return app

    usual, slow = is_repeated(run(work), tmp_path / "live.yaml").requests["tpot_s"]
    assert 4 * usual < slow < 5 * usual  # a part of the time is spent outside the steps


def test_a_process_that_starts_again_counts_from_zero() -> None:
    async def work() -> None:
        app = administered()
        for port in (0, 1):
            await call(app, "/v1/completions", ASKED, port=port)
        await fail(app, {"kind": "crash", "instance": 0, "for_s": 0.1})
        while (await ended(app, "/health"))[1]:
            await asyncio.sleep(0.01)
        counted = []
        for port in (0, 1):
            page = (await call(app, "/metrics", port=port)).parts[0].decode()
            counted.append(metrics_of(page))
        restarted, other = counted
        for name in (
            "vllm:generation_tokens_total",
            "vllm:prompt_tokens_total",
            "vllm:prefix_cache_queries_total",
            "vllm:iteration_tokens_total_count",
            "vllm:e2e_request_latency_seconds_count",
        ):
            assert restarted[name] == 0, name
            assert other[name] > 0, name
        assert (await call(app, "/v1/completions", ASKED)).status == 200
        page = (await call(app, "/metrics")).parts[0].decode()
        for name in ("vllm:generation_tokens_total", "vllm:prefix_cache_queries_total"):
            assert metrics_of(page)[name] == other[name], name

    run(work)


def test_of_the_fleet_mode_servers_keeps_how_it_fails_and_starts() -> None:
    settings: dict[str, Any] = {
        "fleet.breakdowns": {"mttf_s": 50.0, "mttr_s": 2.0},
        "fleet.startup_s": 7.0,
        "fleet.initial_instances": 1,
        "fleet.migration.limit": 2,
        "fleet.health.detected_after_s": 3.0,
    }
    served = application(failing(**settings), mode="servers").settings
    kept = served.simulation.fleet
    assert kept.breakdowns == spillway.fleet.Breakdowns(mttf_s=50, mttr_s=2)
    assert kept.startup_s == 7
    assert kept.initial_instances is None
    assert kept.health.detected_after_s == LONGEST_SPAN_S
    assert kept.migration == spillway.fleet.Migration()
    (said,) = (note for note in served.notes if "left out: mode servers" in note)
    for name in ("`fleet.initial_instances`", "`fleet.migration`", "`fleet.health`"):
        assert name in said
    assert "breakdowns" not in said
    assert served.may_fail


# --- the call -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "not empty"),
        ({"kind": "crash", "instance": 0}, "must be a JSON list"),
        ([{"kind": "crash", "instance": 2}], "instance"),
        ([{"kind": "fire", "instance": 0}], "fire"),
        ([{"kind": "crash", "instance": 0, "for_s": -1}], "for_s"),
        ([{"kind": "crash", "instance": 0}, {"kind": "hang"}, 3], "faults"),
        (b"{", "not JSON"),
    ],
)
def test_faults_that_cannot_be_are_refused_as_a_whole(body: Any, says: str) -> None:
    async def work() -> None:
        app = administered()
        headers = {"authorization": f"Bearer {TOKEN}"}
        reply = await call(app, "/admin/faults", body, port=ADMIN, headers=headers)
        assert reply.status == 400
        assert says in reply.json["error"]["message"]
        assert app.fleet.state_of(0) == "up"
        assert (await call(app, "/admin/faults", [], port=ADMIN)).status == 401
        assert (await call(app, "/admin/faults", [], headers=headers)).status == 404

    run(work)


def test_servers_that_cannot_fail_are_said_and_refuse_faults() -> None:
    app = administered(
        failing(**{"instances[0].lockstep_ranks": True, "instances[0].data_parallel_size": 2})
    )
    assert not app.settings.may_fail
    assert any("instances cannot be asked to fail" in note for note in app.settings.notes)

    async def work() -> None:
        status, answer = await fail(app, {"kind": "crash", "instance": 0})
        assert status == 400
        assert "lockstep_ranks" in answer["error"]["message"]
        assert (await call(app, "/v1/completions", ASKED)).status == 200

    run(work)


# --- the process ----------------------------------------------------------------------------------


def test_the_port_of_an_instance_that_has_crashed_refuses_connections(tmp_path: Path) -> None:
    for module in ("uvicorn", "uvloop", "httptools"):
        pytest.importorskip(module, reason="needs the extra live")
    (tmp_path / "token").write_text(TOKEN)
    spillway.dump(failing(**{"fleet.startup_s": 0.3}), tmp_path / "fleet.yaml")
    more = ("--mode", "servers", "--admin-port", "0", "--admin-token-file", "token")
    with serving(tmp_path / "fleet.yaml", *more, "--record", "live.yaml", count=2) as server:
        found = re.search(
            r"administrative interface at http://127.0.0.1:(\d+)", "".join(server.said)
        )
        assert found is not None

        def crash() -> int:
            with closing(
                http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
            ) as admin:
                body = json.dumps([{"kind": "crash", "instance": 0, "for_s": 0.2}])
                headers = {"authorization": f"Bearer {TOKEN}"}
                admin.request("POST", "/admin/faults", body, headers)
                return admin.getresponse().status

        for _ in range(2):
            with closing(server.connection()) as idle, closing(server.connection()) as inside:
                idle.request("GET", "/health")
                assert idle.getresponse().read() == b""
                inside.request("POST", "/v1/completions", json.dumps(STREAM | {"max_tokens": 1500}))
                with inside.getresponse() as answer:
                    assert answer.readline().startswith(b"data: ")
                    assert crash() == 200
                    with pytest.raises(ConnectionRefusedError):
                        server.get("/health")
                    with pytest.raises((http.client.HTTPException, ConnectionError)):
                        answer.read()
                assert idle.sock is not None
                assert idle.sock.recv(1) == b""
            assert server.get("/health", 1)[0] == 200
            assert until_it_answers(server, 0) == 200
            assert server.post("/v1/completions", ASKED)[0] == 200
        server.process.terminate()
        assert server.ended()[0] == 0
    result = spillway.simulate(spillway.load(tmp_path / "live.yaml"))
    assert (result.ledger["failed"], result.ledger["completed"]) == (2, 2)


def until_it_answers(server: Server, instance: int) -> int:
    began = time.monotonic()
    while True:
        assert time.monotonic() - began < 20
        try:
            return server.get("/health", instance)[0]
        except ConnectionError:
            time.sleep(0.02)


def test_a_fault_on_schedule_happens_while_no_request_comes(tmp_path: Path) -> None:
    for module in ("uvicorn", "uvloop", "httptools"):
        pytest.importorskip(module, reason="needs the extra live")
    crash = {"kind": "crash", "instance": 1}
    spillway.dump(failing(crash, at_s=0.2), tmp_path / "fleet.yaml")
    with serving(tmp_path / "fleet.yaml", "--mode", "servers", count=2) as server:
        began = time.monotonic()
        while True:
            assert time.monotonic() - began < 20
            try:
                server.get("/health", 1)
            except ConnectionError:
                break
            time.sleep(0.02)
        assert server.get("/health", 0)[0] == 200


def test_a_fault_names_an_instance_of_the_fleet() -> None:
    with pytest.raises(ConfigError, match="instance"):
        failing({"kind": "crash", "instance": 5})
