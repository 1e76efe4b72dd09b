"""Prefill and decode servers behind ports of their own, for routers that hand prompts over."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.live import TEXT, Reply, application, call, run, serving

import spillway
from spillway import Simulation, instance, session, workload
from spillway.live import transfers
from spillway.testing import check_conservation

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.live.app import App
    from spillway.live.fleet import Served
    from spillway.session import Event

KEEP = {
    "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
    "remote_block_ids": None, "remote_host": None, "remote_port": None,
}  # fmt: skip
COMPLETIONS = "/v1/completions"
ASKED = {"prompt": TEXT, "max_tokens": 9, "ignore_eos": True}
P, D = 0, 2  # the first instance of each role


def group(role: str, **settings: Any) -> instance.InstanceGroup:
    plain = {"count": 2, "latency": instance.Linear(), "max_num_seqs": 4, "num_kv_blocks": 400,
             "max_model_len": 2048, "kv_bytes_per_token": 1000}  # fmt: skip
    return instance.InstanceGroup(role=role, **(plain | settings))


def pools(*groups: instance.InstanceGroup, **changes: Any) -> Simulation:
    return Simulation(
        workload=workload.Synthetic(clients=[{"output_tokens": {"kind": "fixed", "tokens": 12}}]),
        instances=list(groups) or [group("prefill"), group("decode")],
    ).with_(changes)


def servers(simulation: Simulation | None = None, **given: Any) -> App:
    return application(simulation or pools(), mode="servers", **given)


async def prefilled(app: App, asked: dict[str, Any] = ASKED, port: int = P, **more: Any) -> Any:
    """The parameters that a prefill server answers with."""
    path = "/v1/chat/completions" if "messages" in asked else COMPLETIONS
    reply = await call(app, path, asked | {"max_tokens": 1, "kv_transfer_params": KEEP},
                       port=port, **more)  # fmt: skip
    assert (reply.status, reply.headers["x-spillway-kv-transfer"]) == (200, "kept")
    return reply.json["kv_transfer_params"]


async def decoded(
    app: App, given: Any, asked: dict[str, Any] = ASKED, port: int = D, **more: Any
) -> Reply:
    path = "/v1/chat/completions" if "messages" in asked else COMPLETIONS
    return await call(app, path, asked | {"kv_transfer_params": given}, port=port, **more)


def held(app: App) -> list[float]:
    instances = app.fleet.observe()["instances"]
    return [instances[i]["kv_utilization"] for i in sorted(instances)]


async def figures(app: App, port: int) -> dict[str, float]:
    page = (await call(app, "/metrics", port=port)).parts[0].decode()
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            for label in ("result", "source", "finished_reason", "reason"):
                if label in sample.labels:
                    name = f"{sample.name} {sample.labels[label]}"
                    found[name] = found.get(name, 0) + sample.value
            found.setdefault(sample.name, sample.value)
    return found


def is_repeated(app: App, record: Path) -> spillway.Result:
    """Whether `simulate` has the requests of the live run, in every column."""
    app.fleet.close()
    kept = session.recorded(record.with_name(record.name + ".jsonl"))
    result = app.fleet.session.finish()
    again = spillway.simulate(kept, app.settings.seed)
    for name, column in result.requests.items():
        same = np.array_equal(column, again.requests[name], equal_nan=column.dtype.kind == "f")
        assert same, name
    assert again.ledger == result.ledger
    check_conservation(again)
    return again


# --- the wire -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_chat", [False, True])
@pytest.mark.parametrize("streams", [False, True])
def test_a_prompt_goes_from_server_to_server(is_chat: bool, streams: bool) -> None:
    asked = {"messages": [{"role": "user", "content": TEXT}]} if is_chat else {"prompt": TEXT}
    asked |= {"max_tokens": 9, "ignore_eos": True}

    async def work() -> None:
        app = servers()
        given = await prefilled(app, asked)
        length = -(-(await tokens_of(app, asked)) // 16)
        assert set(given) == {"do_remote_prefill", "do_remote_decode", "remote_block_ids",
                              "remote_engine_id", "remote_request_id", "remote_host",
                              "remote_port", "tp_size"}  # fmt: skip
        assert (given["do_remote_prefill"], given["do_remote_decode"]) == (True, False)
        assert len(given["remote_block_ids"]) == length
        assert held(app) == [length / 400, 0, 0, 0]
        reply = await decoded(app, given, asked | {"stream": streams})
        assert (reply.status, reply.headers["x-spillway-kv-transfer"]) == (200, "read")
        if streams:
            texts = [event["choices"][0] for event in reply.events[:-1]]
            assert texts[-1]["finish_reason"] == "length"
        else:
            assert reply.json["usage"]["completion_tokens"] == 9
            assert reply.json["kv_transfer_params"] is None
        assert held(app)[P] == 0

    run(work)


async def tokens_of(app: App, asked: dict[str, Any]) -> int:
    return int((await call(app, "/tokenize", asked)).json["count"])


def test_the_prefill_server_answers_one_token() -> None:
    async def work() -> None:
        app = servers()
        asked = ASKED | {"max_tokens": 1, "kv_transfer_params": KEEP}
        headers = {"x-spillway-output-tokens": "9"}  # of the client, for the decode server
        reply = await call(app, COMPLETIONS, asked, port=P, headers=headers)
        assert reply.json["usage"]["completion_tokens"] == 1
        assert reply.json["choices"][0]["finish_reason"] == "length"
        assert reply.json["kv_transfer_params"]["remote_request_id"] == reply.json["id"]

    run(work)


@pytest.mark.parametrize("port", range(4))
def test_any_server_serves_whole_requests(port: int) -> None:
    async def work() -> None:
        app = servers()
        asked = ASKED | {"kv_transfer_params": None}
        reply = await call(app, COMPLETIONS, asked, port=port)
        assert (reply.status, reply.json["usage"]["completion_tokens"]) == (200, 9)
        assert "x-spillway-kv-transfer" not in reply.headers
        neither = {"do_remote_decode": False, "do_remote_prefill": False}
        assert (await decoded(app, neither, port=port)).status == 200
        assert (await figures(app, port))["vllm:generation_tokens_total"] == 18

    run(work)


def test_a_server_goes_on_with_a_prompt_of_its_own() -> None:
    async def work() -> None:
        app = servers()
        reply = await decoded(app, await prefilled(app, port=D), port=D)
        assert reply.headers["x-spillway-kv-transfer"] == "read"
        assert reply.json["usage"]["completion_tokens"] == 9

    run(work)


def test_blocks_name_a_prompt_for_routers_that_pass_no_name_on() -> None:
    async def work() -> None:
        app = servers()
        given = await prefilled(app)
        del given["remote_request_id"]
        given["remote_block_ids"] = [given["remote_block_ids"]]  # per group of layers
        assert (await decoded(app, given)).headers["x-spillway-kv-transfer"] == "read"

    run(work)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("yes", "kv_transfer_params = 'yes': must be an object"),
        ({str(i): 0 for i in range(33)}, "must be an object of at most 32 fields"),
        ({"do_remote_decode": 1}, "kv_transfer_params.do_remote_decode = 1: must be of type bool"),
        ({**KEEP, "do_remote_prefill": True}, "must be false with do_remote_decode"),
        ({"do_remote_prefill": True, "remote_engine_id": 5}, "remote_engine_id = 5: must be of"),
        ({"do_remote_prefill": True, "remote_request_id": "a" * 257}, "at most 256 characters"),
        ({"do_remote_prefill": True, "remote_block_ids": [0] * 401}, "must be at most 400 numbers"),
        ({"do_remote_prefill": True, "remote_block_ids": ["a"]}, "must be numbers of blocks"),
        ({"do_remote_prefill": True, "remote_block_ids": [True]}, "must be numbers of blocks"),
    ],
)
def test_parameters_that_are_none_are_refused(given: Any, says: str) -> None:
    async def work() -> None:
        app = servers()
        reply = await decoded(app, given)
        assert reply.status == 400
        assert says in reply.json["error"]["message"]
        assert reply.json["error"]["param"] == "kv_transfer_params"
        assert not app.fleet.served

    run(work)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_tokens": 2}, "max_tokens = 2: must be 1 with do_remote_decode"),
        ({"stream": True}, "stream = True: must be false, as the answer has parameters"),
    ],
)
def test_a_prompt_is_kept_for_plain_requests_of_one_token(
    change: dict[str, Any], says: str
) -> None:
    async def work() -> None:
        app = servers()
        asked = ASKED | {"max_tokens": 1, "kv_transfer_params": KEEP} | change
        reply = await call(app, COMPLETIONS, asked, port=P)
        assert reply.status == 400
        assert says in reply.json["error"]["message"]

    run(work)


@pytest.mark.parametrize("mode", ["fleet", "servers"])
def test_fleets_without_roles_ignore_parameters_and_say_so(mode: str) -> None:
    async def work() -> None:
        app = application(mode=mode)
        reply = await call(app, COMPLETIONS, ASKED | {"kv_transfer_params": KEEP})
        assert (reply.status, reply.headers["x-spillway-kv-transfer"]) == (200, "ignored")
        assert reply.json["kv_transfer_params"] is None
        assert (await figures(app, 0))["spillway_kv_transfers_total ignored"] == 1

    run(work)


# --- prompts that are not there -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({"remote_request_id": "cmpl-none"}, "unknown_request"),
        ({"remote_engine_id": "another"}, "unknown_engine"),
        ({"remote_host": None}, "invalid"),
    ],
)
def test_a_prompt_that_is_not_there_is_computed(change: dict[str, Any], result: str) -> None:
    async def work() -> None:
        app = servers()
        given = await prefilled(app)
        reply = await decoded(app, given | change)
        assert (reply.status, reply.headers["x-spillway-kv-transfer"]) == (200, result)
        assert reply.json["usage"]["completion_tokens"] == 9
        found = await figures(app, D)
        assert found[f"spillway_kv_transfers_total {result}"] == 1
        assert found["vllm:nixl_num_failed_transfers_total"] == (result == "unknown_engine")
        assert found["vllm:prompt_tokens_by_source_total external_kv_transfer"] == 0
        assert held(app)[P] > 0  # it stays for the next one
        assert (await decoded(app, given)).headers["x-spillway-kv-transfer"] == "read"
        again = await decoded(app, given)
        assert (again.status, again.headers["x-spillway-kv-transfer"]) == (200, "read_before")

    run(work)


def test_a_prompt_of_a_server_that_is_gone_may_be_an_error() -> None:
    """As vLLM's setting of this name has it."""

    async def work() -> None:
        app = servers(kv_load_failure_policy="fail")
        given = await prefilled(app)
        reply = await decoded(app, given | {"remote_engine_id": "another"})
        assert (reply.status, reply.headers["x-spillway-reason"]) == (500, "kv_load_failed")
        assert reply.json["error"]["message"] == "The KV load failed: unknown_engine."
        unknown = await decoded(app, given | {"remote_request_id": "cmpl-none"})
        assert (unknown.status, unknown.headers["x-spillway-kv-transfer"]) == (
            200,
            "unknown_request",
        )
        assert not app.fleet.served

    run(work)


def test_another_prompt_is_an_error() -> None:
    """vLLM would answer from the wrong blocks."""

    async def work() -> None:
        app = servers()
        given = await prefilled(app)
        reply = await decoded(app, given, ASKED | {"prompt": TEXT + "More."})
        assert reply.status == 400
        assert "the prompt is not that of the request" in reply.json["error"]["message"]
        assert (await figures(app, D))["spillway_kv_transfers_total other_prompt"] == 1
        assert (await decoded(app, given)).headers["x-spillway-kv-transfer"] == "read"

    run(work)


def test_a_prompt_that_no_server_asks_for_expires() -> None:
    async def work() -> None:
        app = servers(kv_lease_s=0.5)
        given = await prefilled(app)
        await call(app, COMPLETIONS, ASKED | {"max_tokens": 40}, port=1)
        assert held(app)[P] > 0
        app.fleet.kept = dict.fromkeys(app.fleet.kept, app.fleet.now_s() + 0.1)
        await call(app, COMPLETIONS, ASKED | {"max_tokens": 40}, port=1)
        assert held(app) == [0, 0, 0, 0]
        reply = await decoded(app, given)
        assert (reply.status, reply.headers["x-spillway-kv-transfer"]) == (200, "expired")
        found = await figures(app, P)
        assert found["vllm:nixl_num_kv_expired_reqs_total"] == 1
        assert (await figures(app, D))["spillway_kv_transfers_total expired"] == 1

    run(work)


def test_the_lease_is_that_of_the_version() -> None:
    leases = [servers(vllm_version=v).settings.kv_lease_s for v in ("0.21.0", "0.22.0", "0.33.0")]
    assert leases == [480, 30, 30]
    assert servers(kv_lease_s=7).settings.kv_lease_s == 7
    assert transfers.lease_s((0, 10)) == 480


def test_names_that_have_ended_are_forgotten_in_time() -> None:
    known = transfers.Transfers([10], [16], b"salt")
    for number in range(5000):
        given = known.keep(number, 0, f"cmpl-{number}", [1, 2])
        known.end(number, "expired")
    asked = transfers.wanted(given, 10)
    assert asked is not None
    assert known.find(asked) == "expired"
    first = transfers.wanted(given | {"remote_request_id": "cmpl-0"}, 10)
    assert first is not None
    assert known.find(first) == "unknown_request"
    assert len(known._ended) <= 4096
    assert not known._kept
    assert not known._numbers


# --- clients and servers that leave ---------------------------------------------------------------

SLOW = {"disaggregation.link": {"base_latency_s": 5.0}}


def test_a_client_that_leaves_during_the_transfer_frees_both_sides() -> None:
    async def work() -> None:
        app = servers(pools(**SLOW), speed=50)
        given = await prefilled(app)
        gone = asyncio.Event()
        reading = asyncio.ensure_future(decoded(app, given, leave=gone))
        while held(app)[D] == 0:
            await asyncio.sleep(0.001)
        assert held(app)[P] > 0
        found = await figures(app, D)
        assert found["vllm:num_requests_waiting_by_reason deferred"] == 1
        gone.set()
        await reading
        app.fleet._advance(app.fleet.now_s() + 0.1)
        assert held(app) == [0, 0, 0, 0]

    run(work)


def test_the_client_of_a_prompt_may_leave_once_it_has_its_answer(tmp_path: Path) -> None:
    async def work() -> App:
        app = servers(record=tmp_path / "live.yaml")
        given = await prefilled(app)
        assert (await decoded(app, given)).headers["x-spillway-kv-transfer"] == "read"
        await prefilled(app)  # which no server asks for
        return app

    again = is_repeated(run(work), tmp_path / "live.yaml")
    assert list(again.requests["outcome"]) == ["completed", "cancelled"]


CRASH = {"kind": "crash", "instance": P, "for_s": 1}
ADMIN = {"admin_token": "0123456789abcdef", "admin_port": 99}


def test_a_server_that_crashes_loses_its_prompts_and_its_name(tmp_path: Path) -> None:
    async def work() -> App:
        app = servers(**ADMIN, record=tmp_path / "live.yaml")
        given = await prefilled(app)
        app.fleet.fail([spillway.fleet.Crash.from_dict({"instance": P, "for_s": 1})])
        reply = await decoded(app, given)
        assert reply.headers["x-spillway-kv-transfer"] == "unknown_engine"
        assert app.transfers.results[P, "lost"] == 1
        while app.fleet.is_gone(P):
            await asyncio.sleep(0)
        assert (await prefilled(app))["remote_engine_id"] != given["remote_engine_id"]
        return app

    again = is_repeated(run(work), tmp_path / "live.yaml")
    assert list(again.requests["outcome"]) == ["failed", "completed", "cancelled"]


@pytest.mark.parametrize("policy", ["recompute", "fail"])
def test_a_prompt_that_is_lost_on_its_way_is_computed_or_an_error(
    policy: str, tmp_path: Path
) -> None:
    async def work() -> App:
        record = tmp_path / "live.yaml"
        app = servers(
            pools(**SLOW), **ADMIN, speed=50, kv_load_failure_policy=policy, record=record
        )
        given = await prefilled(app)
        reading = asyncio.ensure_future(decoded(app, given))
        while held(app)[D] == 0:
            await asyncio.sleep(0.001)
        app.fleet.fail([spillway.fleet.Crash.from_dict({"instance": P, "for_s": 1})])
        reply = await reading
        if policy == "fail":
            assert (reply.status, reply.headers["x-spillway-reason"]) == (500, "kv_load_failed")
        else:
            assert (reply.status, reply.headers["x-spillway-kv-transfer"]) == (200, "lost")
            assert reply.json["usage"]["completion_tokens"] == 9
        return app

    again = is_repeated(run(work), tmp_path / "live.yaml")
    assert again.requests["outcome"][0] == "failed"
    assert again.ledger["completed"] == (policy == "recompute")


# --- times ----------------------------------------------------------------------------------------


def test_times_are_those_of_the_pools_to_the_nanosecond(tmp_path: Path) -> None:
    """One request after the other: a router whose decisions take 1 ns."""
    lengths = [(1, 5), (3, 1), (2, 30), (9, 12), (1, 1), (6, 25)]

    async def work() -> App:
        app = servers(pools(group("prefill", count=1), group("decode", count=1)),
                      record=tmp_path / "live.yaml")  # fmt: skip
        for times, tokens in lengths:
            asked = {"prompt": TEXT * times, "max_tokens": tokens, "ignore_eos": True}
            await decoded(app, await prefilled(app, asked), asked, port=1)
        return app

    found = is_repeated(run(work), tmp_path / "live.yaml")
    changes = []
    for change in found.simulation.changes:
        for request in change.submit:
            output = lengths[len(changes)][1]
            there = request.replace(
                instance=None, prefill_only=False, output_tokens=output, max_tokens=output
            )
            changes.append({"at_s": change.at_s - 1e-9, "submit": [there]})
    simulated = spillway.simulate(
        found.simulation.with_({"changes": changes, "gateway.routing_latency_s": 1e-9}), 1
    )
    arrivals = [np.asarray(r.requests["arrival_s"]) for r in (found, simulated)]
    for name in ("ttft_s", "e2e_s"):
        ours, theirs = (np.asarray(r.requests[name]) for r in (found, simulated))
        ours, theirs = arrivals[0] + ours, arrivals[1] + theirs
        assert list(np.round(ours * 1e9)) == list(np.round(theirs * 1e9))
    for name in ("prefill_end_s", "transfer_s", "decode_queue_s", "tpot_s"):
        ours, theirs = (np.round(np.asarray(r.requests[name]) * 1e9) for r in (found, simulated))
        assert np.array_equal(ours, theirs, equal_nan=True), name
    assert np.all(np.asarray(found.requests["transfer_s"]) > 5e-5)


@pytest.mark.parametrize("speed", [0, 20])
def test_a_router_of_many_requests_is_repeated_by_its_record(tmp_path: Path, speed: float) -> None:
    first_s: dict[int, float] = {}

    async def work() -> App:
        app = servers(
            pools(group("prefill", num_kv_blocks=60), group("decode", num_kv_blocks=80)),
            speed=speed,
            record=tmp_path / "live.yaml",
        )
        note = app.metrics.note_first_token

        def noted(served: Served, happened: Event) -> None:
            if served.reads:
                first_s[served.number] = happened.time_s
            note(served, happened)

        app.metrics.note_first_token = noted  # type: ignore[method-assign]

        async def routed(i: int) -> None:
            asked = {"prompt": TEXT * (1 + i % 3), "max_tokens": 5 + i, "ignore_eos": True}
            asked["stream"] = bool(i % 2)
            given = await prefilled(app, asked | {"stream": False}, port=i % 2)
            reply = await decoded(app, given, asked, port=2 + i // 2 % 2)
            assert reply.headers["x-spillway-kv-transfer"] == "read"

        await asyncio.gather(*(routed(i) for i in range(16)))
        assert held(app)[:2] == [0, 0]
        page = [await figures(app, port) for port in range(4)]
        assert [found["vllm:request_success_total length"] for found in page] == [8, 8, 8, 8]
        assert [found["vllm:generation_tokens_total"] for found in page[:2]] == [8, 8]
        sources = [
            found["vllm:prompt_tokens_by_source_total external_kv_transfer"] for found in page
        ]
        prompts = [found["vllm:prompt_tokens_total"] for found in page]
        assert sources == [0, 0, *prompts[2:]]
        assert sum(prompts[2:]) == sum(prompts[:2])
        outputs = [found["vllm:generation_tokens_total"] for found in page[2:]]
        assert sum(outputs) == sum(5 + i for i in range(16))
        return app

    again = is_repeated(run(work), tmp_path / "live.yaml")
    assert set(again.requests["outcome"]) == {"completed"}
    rows = np.asarray(again.requests["arrival_s"]) + np.asarray(again.requests["ttft_s"])
    noted = [first_s[number] for number in range(16)]
    assert np.allclose(np.sort(rows), np.sort(noted), rtol=0, atol=5e-10)
    transfer_s = np.asarray(again.requests["transfer_s"])
    assert np.all(transfer_s > 5e-5)


def test_what_is_left_out_is_said() -> None:
    link = {"bandwidth_gb_per_s": 3}
    settings = {"disaggregation.link": link, "disaggregation.order": "decode_first"}
    app = servers(pools(**settings))
    assert app.settings.simulation.disaggregation.link.bandwidth_gb_per_s == 3
    assert app.settings.simulation.disaggregation.order == "prefill_first"
    assert any("`disaggregation` left out" in note for note in app.settings.notes)
    assert any("over `disaggregation.link`" in note for note in app.settings.notes)
    notes = servers(pools(**{"disaggregation.link": link})).settings.notes
    assert not any("left out" in note and "disaggregation" in note for note in notes)


# --- as a process ---------------------------------------------------------------------------------


def test_a_router_in_front_of_processes(tmp_path: Path) -> None:
    """Over sockets, to a record that `spillway run` takes."""
    spillway.dump(pools(), tmp_path / "pools.yaml")
    more = ("--mode", "servers", "--record", "live.yaml", "--kv-lease", "600")
    with serving(tmp_path / "pools.yaml", *more, count=4) as server:
        asked = ASKED | {"kv_transfer_params": KEEP, "max_tokens": 1}
        status, text = server.post(COMPLETIONS, asked, P)
        assert status == 200
        given = json.loads(text)["kv_transfer_params"]
        status, text = server.post(COMPLETIONS, ASKED | {"kv_transfer_params": given}, D)
        assert (status, json.loads(text)["usage"]["completion_tokens"]) == (200, 9)
        assert server.post(COMPLETIONS, asked, P)[0] == 200
        server.process.terminate()
        code, said = server.ended()
    assert code == 0, said
    assert "prompts go from server to server" in said
    result = spillway.simulate(spillway.load(tmp_path / "live.yaml"))
    assert list(result.requests["outcome"]) == ["completed", "cancelled"]
    assert result.requests["prefill_instance"][0] == P
