"""API keys that name tenants: a file of salted hashes."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.live import TEXT, application, call, fleet, run, serving

import spillway
from spillway import ConfigError, workload

if TYPE_CHECKING:
    from pathlib import Path

SALT = "00112233445566778899aabbccddeeff"
KEY = "sk-a-key-that-nothing-may-show"
ASKED = {"prompt": TEXT, "max_tokens": 3}
TENANTS = [workload.Tenant(name=name) for name in ("default", "A", "B")]


def hashed(key: str, salt: str = SALT) -> str:
    return hashlib.sha256((salt + key).encode()).hexdigest()


def written(folder: Path, given: Any = None) -> Path:
    tenants = {"A": [hashed(KEY), hashed("second")], "B": [hashed("other")]}
    text = (
        given if isinstance(given, str) else json.dumps(given or {"salt": SALT, "tenants": tenants})
    )
    (folder / "keys.yaml").write_text(text)
    return folder / "keys.yaml"


@pytest.mark.parametrize(
    ("headers", "tenant"),
    [
        ({"authorization": f"Bearer {KEY}"}, "A"),
        ({"authorization": f"bearer  {KEY} "}, "A"),
        ({"authorization": "Bearer second"}, "A"),
        ({"authorization": "Bearer other"}, "B"),
        ({"authorization": f"Bearer {KEY}", "x-spillway-tenant": "B"}, "B"),
        ({"authorization": f"Bearer {KEY}", "x-llm-d-inference-fairness-id": "B"}, "B"),
        ({"authorization": "Bearer unknown"}, "default"),
        ({"authorization": f"Basic {KEY}"}, "default"),
        ({"authorization": KEY}, "default"),
        ({"authorization": f"Bearer {KEY}x"}, "default"),
        ({"authorization": f"Bearer {hashed(KEY)}"}, "default"),
        ({"authorization": "Bearer " + "x" * 9000}, "default"),
        ({"x-api-key": KEY}, "default"),
        ({}, "default"),
    ],
)
def test_the_tenant_is_that_of_the_key(
    tmp_path: Path, headers: dict[str, str], tenant: str
) -> None:
    async def work() -> None:
        keys = written(tmp_path)
        app = application(fleet(tenants=TENANTS), tenant_keys=keys)
        assert (await call(app, "/v1/completions", ASKED, headers=headers)).status == 200
        seen = app.fleet.observe()["tenants"]
        assert {name for name, counts in seen.items() if counts["submitted"]} == {tenant}

    run(work)


def test_without_a_file_keys_name_no_tenant() -> None:
    async def work() -> None:
        app = application(fleet(tenants=TENANTS))
        headers = {"authorization": f"Bearer {KEY}"}
        await call(app, "/v1/completions", ASKED, headers=headers)
        assert app.fleet.observe()["tenants"]["default"]["submitted"] == 1

    run(work)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{", "must be a YAML or JSON file"),
        (f"{KEY}: [", "must be a YAML or JSON file"),
        (KEY, "must be a YAML or JSON file"),
        ({"A": KEY}, "must be a YAML or JSON file"),
        ({"salt": SALT, "tenants": {}, KEY: 1}, "must be a YAML or JSON file"),
        ({"salt": SALT, "tenants": {"A": KEY}}, "tenant_keys.tenants.A: must be a list"),
        ({"salt": SALT, "tenants": {"A": [KEY]}}, "tenants.A[0]: must be the SHA-256"),
        ({"salt": KEY, "tenants": {"A": []}}, "tenant_keys.salt: must be 32 to 128"),
        ({"salt": 12, "tenants": {"A": []}}, "tenant_keys.salt: must be 32 to 128"),
        ({"salt": SALT, "tenants": {"C": []}}, "must be a tenant of the simulation: A, B, default"),
        (
            {"salt": SALT, "tenants": {"A": [hashed("k")], "B": [hashed("k")]}},
            "tenants.B[0]: is a key of A, too",
        ),
    ],
)
def test_a_file_of_something_else_is_refused_and_not_shown(
    tmp_path: Path, given: Any, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        application(fleet(tenants=TENANTS), tenant_keys=written(tmp_path, given))
    assert says in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("authorization", [f"Bearer {KEY}", f"Basic {KEY}", KEY])
def test_a_key_is_shown_nowhere(tmp_path: Path, authorization: str) -> None:
    """Neither known keys nor unknown ones: in answers, errors, metrics, records and logs."""
    for module in ("uvicorn", "uvloop", "httptools"):
        pytest.importorskip(module, reason="needs the extra live")
    spillway.dump(fleet(tenants=TENANTS), tmp_path / "fleet.yaml")
    written(tmp_path)
    more = ("--tenant-keys", "keys.yaml", "--record", "live.yaml", "--speed", "0")
    headers = {"authorization": authorization, "content-type": "application/json"}
    seen = []
    with serving(tmp_path / "fleet.yaml", *more) as server:
        for method, path, body in (
            ("POST", "/v1/completions", ASKED),
            ("POST", "/v1/completions", {"prompt": ""}),
            ("GET", "/nowhere", None),
            ("GET", "/metrics", None),
            ("GET", "/v1/models", None),
        ):
            connection = server.connection()
            connection.request(method, path, body and json.dumps(body), headers)
            reply = connection.getresponse()
            seen += [str(reply.getheaders()), reply.read().decode()]
            connection.close()
        seen.append((tmp_path / "live.yaml.jsonl").read_text())
        server.process.terminate()
        seen.append(server.ended()[1])
    seen.append((tmp_path / "live.yaml").read_text())
    assert all(seen)
    for text in seen:
        for shown in (KEY, hashed(KEY), SALT):
            assert shown not in text
