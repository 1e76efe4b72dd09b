"""Errors on purpose: by rules, by a header, and broken connections."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.live import Reply, application, call, fleet, run, serving, written_fleet

import spillway
from spillway import ConfigError, live
from spillway.live import errors

if TYPE_CHECKING:
    from pathlib import Path

ASKED = {"prompt": "a b c", "max_tokens": 3, "ignore_eos": True}


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("rate_limit", 429, "TooManyRequestsError"),
        ("invalid_api_key", 401, "AuthenticationError"),
        ("context_length", 400, "BadRequestError"),
        ("invalid_request", 400, "BadRequestError"),
        ("model_not_found", 404, "NotFoundError"),
        ("server_error", 500, "InternalServerError"),
        ("unavailable", 503, "ServiceUnavailableError"),
    ],
)
def test_a_rule_answers_with_the_status_of_its_error(name: str, status: int, kind: str) -> None:
    async def work() -> None:
        app = application(errors=[{"error": name}])
        for path, more in (("completions", {}), ("completions", {"stream": True})):
            reply = await call(app, f"/v1/{path}", ASKED | more)
            assert reply.status == status
            assert reply.json["error"]["type"] == kind
            assert reply.headers["x-spillway-reason"] == "injected"
        assert (await call(app, "/health")).status == 200
        assert app.fleet.observe()["tenants"]["default"]["submitted"] == 0
        page = (await call(app, "/metrics")).parts[0].decode()
        assert f'spillway_injected_errors_total{{model_name="m",error="{name}"}} 2' in page

    run(work)


def test_every_error_is_named_in_the_tests_above_or_breaks_the_connection() -> None:
    assert {name for name, status in errors.STATUSES.items() if status is None} == {"drop", "cut"}
    assert len(errors.STATUSES) == 9


def test_a_rule_hits_its_share_of_its_span_by_a_stream_of_its_own() -> None:
    rules = errors.rules_of(
        [
            {"error": "drop", "share": 0.25, "from_s": 10, "to_s": 20},
            {"error": "server_error", "share": 0.5, "from_s": 15},
        ],
        instances=None,
    )

    def drawn(seed: int, now_s: float) -> list[str | None]:
        found = errors.Errors(rules, seed)
        return [found.drawn(now_s, None) for _ in range(20_000)]

    assert set(drawn(1, 9.999)) == {None}
    first = drawn(1, 10)
    assert set(first) == {None, "drop"}
    assert 0.235 < first.count("drop") / 20_000 < 0.265  # 4.9 standard deviations
    both = drawn(1, 15)
    assert 0.357 < both.count("server_error") / 20_000 < 0.393  # half of the rest
    assert set(drawn(1, 20)) == {None, "server_error"}
    assert drawn(1, 10) == first
    assert drawn(2, 10) != first


def test_a_rule_of_an_instance_hits_no_other() -> None:
    async def work() -> None:
        rule = {"error": "unavailable", "instance": 1}
        app = application(mode="servers", errors=[rule])
        replies = [await call(app, "/v1/completions", ASKED, port=port) for port in (0, 1)]
        assert [reply.status for reply in replies] == [200, 503]

    run(work)


@pytest.mark.parametrize(
    ("value", "status"), [("429", 429), ("503", 503), ("599", 599), ("server_error", 500)]
)
def test_a_header_asks_for_an_error(value: str, status: int) -> None:
    async def work() -> None:
        app = application()
        given = {"x-return-error": value}
        reply = await call(app, "/v1/completions", ASKED, headers=given)
        assert reply.status == status
        assert reply.json["error"]["code"] == status
        assert (await call(app, "/v1/completions", ASKED)).status == 200

    run(work)


@pytest.mark.parametrize("value", ["200", "399", "600", "4290", "teapot", "-1", "٤٢٩"])
def test_a_header_with_another_value_is_refused(value: str) -> None:
    async def work() -> None:
        given = {"x-return-error": value}
        reply = await call(application(), "/v1/completions", ASKED, headers=given)
        assert reply.status == 400
        assert "must be a status from 400 to 599, or one of" in reply.json["error"]["message"]

    run(work)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("error", ["drop", "cut"])
def test_connections_break(error: str, streams: bool) -> None:
    """A cut gives the place in the fleet back, and a dropped request never takes it."""

    async def work() -> None:
        app = application(speed=1)
        aborted = asyncio.Event()
        long = ASKED | {"max_tokens": 1500, "stream": streams}
        given = {"x-return-error": error}
        reply = await call(
            app, "/v1/completions", long, headers=given, leave=aborted, abort=aborted.set
        )
        assert aborted.is_set()
        state = app.fleet.observe()["tenants"]["default"]
        assert state["submitted"] == (error == "cut")
        if error == "cut" and streams:
            text = b"".join(reply.parts)
            assert text.count(b"data: ") == 1
            assert b"DONE" not in text
        else:
            assert reply == Reply()
        while app.fleet.observe()["in_flight"] > 0:
            await asyncio.sleep(0.01)

    run(work)


def test_sockets_break(tmp_path: Path) -> None:
    for module in ("uvicorn", "uvloop", "httptools"):
        pytest.importorskip(module, reason="needs the extra live")
    config = written_fleet(tmp_path, count=1)
    (tmp_path / "errors.yaml").write_text("- {error: drop, share: 1, to_s: 1e9}\n")
    with serving(config, "--errors", "errors.yaml", "--record", "live.yaml") as server:
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            server.post("/v1/completions", ASKED)
        assert server.get("/health")[0] == 200
        server.process.terminate()
        _, said = server.ended()
    assert "injected errors are answered before the fleet" in said
    assert "no request came: nothing is recorded" in said
    assert "Traceback" not in said
    assert "ERROR" not in said


def test_a_stream_is_cut_at_the_socket(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra live")
    with serving(written_fleet(tmp_path, count=1), "--record", "live.yaml") as server:
        connection = server.connection()
        body = json.dumps(ASKED | {"max_tokens": 1000, "stream": True})
        connection.request("POST", "/v1/completions", body, {"x-return-error": "cut"})
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            connection.getresponse().read()
        connection.close()
        server.process.terminate()
        _, said = server.ended()
    assert "Traceback" not in said
    kept = spillway.load(tmp_path / "live.yaml")
    outcomes = spillway.simulate(kept).requests
    assert list(outcomes["outcome"]) == ["cancelled"]  # the record has the cut


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({}, "errors = {}: must be a list of rules"),
        (["drop"], "errors[0] = 'drop': must be a mapping with `error`"),
        ([{"share": 1}], "errors[0] = {'share': 1}: must be a mapping with `error`"),
        ([{"error": "fire"}], "errors[0].error = 'fire': must be one of rate_limit, "),
        ([{"error": "drop", "rate": 1}], "errors[0].'rate': must be one of error, share, "),
        ([{"error": "drop"}, {"error": "drop", "share": 0}], "errors[1].share = 0: must be > 0"),
        ([{"error": "drop", "share": 1.5}], "errors[0].share = 1.5: must be > 0 and <= 1"),
        ([{"error": "drop", "share": float("nan")}], "errors[0].share = nan"),
        ([{"error": "drop", "share": True}], "errors[0].share = True"),
        ([{"error": "drop", "from_s": -1}], "errors[0].from_s = -1: must be >= 0 (s)"),
        ([{"error": "drop", "from_s": 5, "to_s": 5}], "errors[0].to_s = 5: must be > from_s = 5"),
        ([{"error": "drop", "instance": 0}], "errors[0].instance = 0: goes with mode servers"),
    ],
)
def test_wrong_rules_are_refused(rules: Any, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        live.serve(fleet(), errors=rules)
    assert says in str(caught.value)


@pytest.mark.parametrize("instance", [2, -1, 1.0, True])
def test_rules_of_instances_that_are_not_there_are_refused(instance: Any) -> None:
    with pytest.raises(ConfigError, match=r"instance = .*must be one of the 2 instances, from 0"):
        live.serve(fleet(2), mode="servers", errors=[{"error": "drop", "instance": instance}])


def test_a_file_of_rules_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        live.serve(fleet(), errors=tmp_path / "none.yaml")
    (tmp_path / "bad.json").write_text("[")
    with pytest.raises(ConfigError, match=r"bad\.json"):
        live.serve(fleet(), errors=tmp_path / "bad.json")
