"""The administrative interface: its port, its token, and what it does."""

from __future__ import annotations

import http.client
import json
import re
import socket
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.live import application, call, fleet, run, serving, written_fleet

import spillway
from spillway import ConfigError, live, session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from spillway.live.app import App

TOKEN = "a-token-of-the-tests"
PORT = 9999  # of the interface, for the application
ALLOWED = {"authorization": f"Bearer {TOKEN}"}
ASKED = {"prompt": "a b c", "max_tokens": 3, "ignore_eos": True}


def administered(**given: Any) -> App:
    return application(admin_token=TOKEN, admin_port=PORT, **given)


async def ask(
    app: App, path: str, body: Any = None, headers: Mapping[str, str] = ALLOWED
) -> tuple[int, Any]:
    reply = await call(app, path, body, port=PORT, headers=dict(headers))
    return reply.status, reply.json


# --- the token and the port -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": TOKEN},
        {"x-admin-token": TOKEN},
    ],
)
def test_without_the_token_nothing_is_told_or_done(given: dict[str, str]) -> None:
    async def work() -> None:
        app = administered()
        for path, body in (
            ("/admin/state", None),
            ("/admin/errors", [{"error": "drop"}]),
            ("/admin/set", {"gateway.limit[0].max_in_flight": 1}),
            ("/admin/faults", [{"kind": "crash", "instance": 0}]),
            ("/admin/none", None),
        ):
            status, answer = await ask(app, path, body, given)
            assert status == 401
            assert answer["error"]["message"] == "Unauthorized"
        assert app.errors.rules == []
        assert app.fleet.session.recent_changes == []
        assert app.fleet.state_of(0) == "up"

    run(work)


def test_the_port_of_the_fleet_has_no_administration_and_that_one_has_no_fleet() -> None:
    async def work() -> None:
        app = administered()
        for path in ("/admin/state", "/admin/errors", "/admin/set", "/admin/faults"):
            assert (await call(app, path, {}, headers=ALLOWED)).status == 404
            assert (await call(app, path, headers=ALLOWED)).status == 404
        for path, body in (("/v1/completions", ASKED), ("/metrics", None), ("/health", None)):
            assert (await ask(app, path, body))[0] == 404
        assert (await ask(app, "/admin/state", {}))[0] == 405

    run(work)


def test_without_a_port_there_is_no_administration() -> None:
    async def work() -> None:
        app = application(admin_token=TOKEN)
        for port in (0, PORT):
            reply = await call(app, "/admin/state", port=port, headers=ALLOWED)
            assert reply.status == 404

    run(work)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"admin_port": 0}, "admin_token: goes with admin_port"),
        ({"admin_token": TOKEN}, "admin_token: goes with admin_port"),
        ({"admin_port": 70_000, "admin_token": TOKEN}, "admin_port = 70000: must be >= 0 and"),
        ({"admin_port": 0, "admin_token": "short-secret"}, "admin_token: must have at least 16"),
        ({"admin_port": 0, "admin_token": "with a space in between"}, "admin_token: must have"),
    ],
)
def test_arguments_are_checked_and_the_token_is_not_shown(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        live.serve(fleet(), **given)
    assert says in str(caught.value)
    assert str(given.get("admin_token", "unstated")) not in str(caught.value)


# --- what it does ---------------------------------------------------------------------------------


def test_errors_are_set_and_taken_back() -> None:
    async def work() -> None:
        app = administered()
        status, rules = await ask(app, "/admin/errors", [{"error": "rate_limit"}])
        assert status == 200
        assert rules == [
            {"error": "rate_limit", "share": 1.0, "from_s": 0.0, "to_s": None, "instance": None}
        ]
        assert (await ask(app, "/admin/errors"))[1] == rules
        assert (await call(app, "/v1/completions", ASKED)).status == 429
        status, answer = await ask(app, "/admin/errors", [{"error": "fire"}])
        assert status == 400
        assert "errors[0].error = 'fire'" in answer["error"]["message"]
        assert (await ask(app, "/admin/errors"))[1] == rules  # all or nothing
        assert await ask(app, "/admin/errors", []) == (200, [])
        assert (await call(app, "/v1/completions", ASKED)).status == 200

    run(work)


def test_settings_are_changed_and_the_record_repeats_it(tmp_path: Path) -> None:
    async def work() -> App:
        app = administered(record=tmp_path / "live.yaml")
        await call(app, "/v1/completions", ASKED)
        status, done = await ask(app, "/admin/set", {"gateway.limit[0].max_in_flight": 1})
        assert status == 200
        assert done["set"] == {"gateway.limit[0].max_in_flight": 1}
        assert done["at_s"] == app.fleet.session.now_s
        await call(app, "/v1/completions", ASKED)
        state = (await ask(app, "/admin/state"))[1]
        assert state["fleet"]["permits"] == 1
        assert state["fleet"]["tenants"]["default"]["completed"] == 2
        assert (state["speed"], state["times_late"], state["errors"]) == (0, 0, [])
        return app

    app = run(work)
    kept = session.recorded(tmp_path / "live.yaml.jsonl")
    result = app.fleet.session.finish()
    again = spillway.simulate(kept, 1)
    assert [change.set for change in kept.changes if change.set] == [
        {"gateway.limit[0].max_in_flight": 1}
    ]
    for name, column in result.requests.items():
        same = np.array_equal(column, again.requests[name], equal_nan=column.dtype.kind == "f")
        assert same, name


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"gateway.limit[0].max_in_flight": -1}, "max_in_flight"),
        ({"gateway.limit[0].max_in_flight": 3, "gateway.nothing": 1}, "nothing"),
        ({"workload": {"file": "/etc/passwd"}}, "workload"),
        ({"gateway.admission": {"kind": "python", "policy": "os:system"}}, "gateway.admission"),
        ({"instances[0].server": "/etc/passwd"}, "instances"),
        ([], "must be a JSON object"),
        (b"{", "not JSON"),
    ],
)
def test_settings_that_cannot_be_changed_are_refused_as_a_whole(body: Any, says: str) -> None:
    async def work() -> None:
        app = administered()
        before = app.fleet.observe()["permits"]
        status, answer = await ask(app, "/admin/set", body)
        assert status == 400
        assert says in answer["error"]["message"]
        assert app.fleet.observe()["permits"] == before

    run(work)


# --- the process ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_drawn", [False, True])
def test_the_process_serves_it_on_this_machine_alone(tmp_path: Path, is_drawn: bool) -> None:
    for module in ("uvicorn", "uvloop", "httptools"):
        pytest.importorskip(module, reason="needs the extra live")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    more = () if is_drawn else ("--admin-token-file", "token")
    config = written_fleet(tmp_path, count=1)
    given = ("--admin-port", "0", "--host", "0.0.0.0", "--behind-proxy", *more)
    with serving(config, *given) as server:
        said = "".join(server.said)
        found = re.findall(r"administrative interface at http://127\.0\.0\.1:(\d+)/admin", said)
        token = TOKEN
        if is_drawn:
            token = re.findall(r"token of the administrative interface: (\S+)", said)[0]
            assert len(token) == 32
        else:
            assert TOKEN not in said
        port = int(found[0])
        with pytest.raises(OSError, match=r"refused|unreachable|assign"):
            socket.create_connection(("127.0.0.2", port), timeout=1)
        socket.create_connection(("127.0.0.2", server.port), timeout=1).close()
        for headers, status in (({}, 401), ({"authorization": f"Bearer {token}"}, 200)):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/admin/state", headers=headers)
            reply = connection.getresponse()
            assert reply.status == status
            assert json.loads(reply.read())
            connection.close()


def test_a_file_without_a_port_is_refused(tmp_path: Path) -> None:
    from spillway.cli import main

    spillway.dump(fleet(), tmp_path / "fleet.yaml")
    given = ["serve", str(tmp_path / "fleet.yaml"), "--admin-token-file", "token"]
    assert main(given) != 0
