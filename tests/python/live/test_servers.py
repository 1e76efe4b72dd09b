"""Mode `servers`: a port per instance, for a gateway or router in front."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.live import TEXT, application, call, fleet, run, serving, written_fleet

import spillway
from spillway import ConfigError, gateway, instance, live

if TYPE_CHECKING:
    from pathlib import Path

ASKED = {"prompt": TEXT, "max_tokens": 9, "ignore_eos": True}

POOLS = [instance.InstanceGroup(role=role) for role in ("prefill", "decode")]


def value(page: str, name: str) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    )


def test_each_port_has_an_instance_of_its_own() -> None:
    async def work() -> None:
        app = application(fleet(3), mode="servers")
        for port, times in ((0, 1), (2, 4)):
            for _ in range(times):
                assert (await call(app, "/v1/completions", ASKED, port=port)).status == 200
        for port, times in enumerate((1, 0, 4)):
            page = (await call(app, "/metrics", port=port)).parts[0].decode()
            assert value(page, "vllm:request_success_total") == times
            assert value(page, "vllm:generation_tokens_total") == times * 9
            assert value(page, "vllm:time_to_first_token_seconds_count") == times
            assert set(re.findall(r'engine="(\d+)"', page)) == {"0"}
            assert "spillway_queue_length" not in page
            assert "spillway_lateness_seconds_bucket" in page

    run(work)


def test_the_load_is_that_of_the_instance() -> None:
    async def work() -> None:
        app = application(fleet(2), mode="servers", speed=1)
        began = asyncio.Event()
        long = ASKED | {"max_tokens": 300, "stream": True}
        running = asyncio.ensure_future(
            call(app, "/v1/completions", long, port=1, seen=lambda _: began.set())
        )
        await began.wait()
        assert [(await call(app, "/load", port=port)).json for port in (0, 1)] == [
            {"server_load": 0},
            {"server_load": 1},
        ]
        await running

    run(work)


def test_the_longest_request_is_that_of_the_instance() -> None:
    groups = [
        instance.InstanceGroup(count=1, latency=instance.Linear(), max_model_len=longest)
        for longest in (64, 2048)
    ]

    async def work() -> None:
        app = application(fleet(instances=groups), mode="servers")
        lengths = [(await call(app, "/v1/models", port=port)).json for port in (0, 1)]
        assert [found["data"][0]["max_model_len"] for found in lengths] == [64, 2048]
        asked = ASKED | {"max_tokens": 60}
        replies = [await call(app, "/v1/completions", asked, port=port) for port in (0, 1)]
        assert [reply.status for reply in replies] == [400, 200]

    run(work)


@pytest.mark.parametrize("streams", [False, True])
def test_a_full_server_refuses_as_vllm_does(streams: bool) -> None:
    async def work() -> None:
        limits = instance.VllmQueueLimits(max_num_queued_reqs=2, counts_running=True)
        app = application(fleet(2, **{"instances[0].ingress": limits}), mode="servers", speed=1)
        long = ASKED | {"max_tokens": 30, "stream": streams}
        replies = await asyncio.gather(*(call(app, "/v1/completions", long) for _ in range(5)))
        assert sorted(reply.status for reply in replies) == [200, 200, 503, 503, 503]
        refused = next(reply for reply in replies if reply.status == 503)
        assert "The engine is currently busy" in refused.json["error"]["message"]
        assert "retry-after" not in refused.headers
        assert (await call(app, "/v1/completions", long, port=1)).status == 200
        page = (await call(app, "/metrics")).parts[0].decode()
        rejected = 'admission_rejections_total{model_name="m",engine="0",'
        assert f'{rejected}reason="max_num_queued_reqs"}} 3.0' in page

    run(work)


def test_what_is_in_front_of_the_servers_is_left_out_and_said() -> None:
    in_front = fleet(
        **{
            "gateway.admission": "reject_all",
            "router": "least_loaded",
            "fleet.initial_instances": 1,
            "changes": [
                {"at_s": 5, "set": {"fleet.target_instances": 2}},
                {"at_s": 6, "faults": [{"kind": "gateway_crash"}]},
            ],
        }
    )

    async def work() -> None:
        app = application(in_front, mode="servers")
        assert (await call(app, "/v1/completions", ASKED, port=1)).status == 200
        assert app.settings.simulation.gateway == gateway.Gateway()
        assert not app.settings.simulation.changes
        (said,) = (note for note in app.settings.notes if "mode servers" in note)
        for name in ("`gateway`", "`router`", "`fleet.initial_instances`", "`changes at 5 s`"):
            assert name in said
        assert "`changes at 6 s`" in said

    run(work)


@pytest.mark.parametrize(
    ("changes", "given", "says"),
    [
        ({}, {"mode": "routers"}, "mode = 'routers': must be one of fleet, servers"),
        ({}, {"status_profile": "llm-d"}, "status_profile = 'llm-d': must be vllm"),
        ({}, {"port": 65_535}, "port = 65535: must be <= 65534: a port per instance"),
        ({"instances": POOLS}, {"kv_lease_s": 0}, "kv_lease_s = 0: must be > 0"),
        (
            {"instances": POOLS},
            {"kv_load_failure_policy": "abort"},
            "kv_load_failure_policy = 'abort': must be one of recompute, fail",
        ),
    ],
)
def test_what_mode_servers_cannot_be(
    changes: dict[str, Any], given: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        live.serve(fleet(2, **changes), **{"mode": "servers", **given})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("models", "name"),
    [
        (["llama-3.1-8b"], "llama-3.1-8b"),
        (["llama-3.1-8b", "llama-3.1-8b"], "llama-3.1-8b"),
        (["llama-3.1-8b", "qwen2.5-7b"], "spillway"),
        ([], "spillway"),
    ],
)
def test_the_model_is_the_one_that_the_servers_name(models: list[str], name: str) -> None:
    groups = [instance.Server(model=model, gpu="h100").group for model in models]
    app = application(fleet(instances=groups) if groups else None, model=None)
    assert app.settings.model == name
    said = any("several models" in note for note in app.settings.notes)
    assert said == (len(set(models)) > 1)
    assert application(model="mine").settings.model == "mine"


def test_a_process_serves_every_instance_and_its_record_is_repeated(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra live")
    spillway.dump(fleet(3), tmp_path / "fleet.yaml")
    more = ("--mode", "servers", "--speed", "0", "--record", "live.yaml")
    with serving(tmp_path / "fleet.yaml", *more, count=3) as server:
        assert len(set(server.ports)) == 3
        for i in (0, 2, 2):
            assert server.post("/v1/completions", ASKED, i)[0] == 200
            assert server.get("/health", i)[0] == 200
        server.process.terminate()
        _, said = server.ended()
    assert "serves instance 2 at http://127.0.0.1:" in said
    assert "the model is called 'spillway'" in said
    kept = spillway.load(tmp_path / "live.yaml")
    assert list(spillway.simulate(kept).requests["instance"]) == [0, 2, 2]


def test_a_port_in_use_leaves_no_record_behind(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra live")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            live.serve(fleet(), port=port, record=tmp_path / "live.yaml")
        assert not list(tmp_path.iterdir())
        config = written_fleet(tmp_path, count=1)
        command = [sys.executable, "-m", "spillway.cli", "serve", config, "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"spillway: 127.0.0.1:{port}: cannot listen there: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_faults_without_requests_are_no_record(tmp_path: Path) -> None:
    """A run needs requests, so there would be nothing that `spillway run` repeats."""
    pytest.importorskip("uvicorn", reason="needs the extra live")
    crash = {"at_s": 0.01, "faults": [{"kind": "crash", "instance": 0, "for_s": 1}]}
    spillway.dump(fleet(changes=[crash]), tmp_path / "fleet.yaml")
    with serving(tmp_path / "fleet.yaml", "--record", "live.yaml", "--for", "0.3") as server:
        status, said = server.ended()
    assert status == 0
    assert "no request came: nothing is recorded" in said
    assert [file.name for file in tmp_path.iterdir()] == ["fleet.yaml"]
