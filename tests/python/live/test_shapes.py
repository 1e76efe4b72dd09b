"""Answers against those that vLLM's own handlers gave: `tests/data/vllm_answers`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.live import Reply, application, call, run
from support.paths import ROOT

RECORDED = json.loads((ROOT / "tests/data/vllm_answers/vllm_0_33.json").read_text())
STATED = {"object", "role", "owned_by", "finish_reason", "index", "completion_tokens"}


def shape(value: Any, name: str = "") -> Any:
    """Names in their order; of values that differ from run to run, the type alone."""
    if isinstance(value, dict):
        return [(key, shape(each, key)) for key, each in value.items()]
    if isinstance(value, list):
        return [shape(each) for each in value]
    return value if value is None or name in STATED else type(value).__name__


def documents(body: str) -> list[Any]:
    """The JSON of an answer or of the events of a stream, which is compact; [DONE] as it is."""
    parts = [body]
    if body.startswith("data: "):
        assert body.endswith("\n\n")
        parts = [line.removeprefix("data: ") for line in body[:-2].split("\n\n")]
    found = [part if part == "[DONE]" else json.loads(part) for part in parts]
    for part, value in zip(parts, found, strict=True):
        assert part in ("[DONE]", json.dumps(value, separators=(",", ":")))
    return found


def named(recorded: dict[str, Any]) -> str:
    asked = recorded["asked"] or {}
    options = asked.get("stream_options", {})
    return "-".join([recorded["path"], *(["stream"] if "stream" in asked else []), *options])


@pytest.mark.parametrize("recorded", RECORDED, ids=named)
def test_an_answer_has_the_fields_of_vllm_in_its_order(recorded: dict[str, Any]) -> None:
    async def work() -> Reply:
        asked = recorded["asked"]
        forced = {} if asked is None else {"x-spillway-output-tokens": "3"}
        return await call(application(), recorded["path"], asked, headers=forced)

    reply = run(work)
    assert reply.status == recorded["status"]
    own, theirs = b"".join(reply.parts).decode(), recorded["body"]
    assert shape(documents(own)) == shape(documents(theirs))
    assert reply.headers["content-type"] == recorded["headers"]["content-type"]
    assert ("content-length" in reply.headers) == ("content-length" in recorded["headers"])


def test_what_is_recorded_is_there() -> None:
    streams = [each["asked"].get("stream_options") for each in RECORDED if each["asked"]]
    assert [each["path"] for each in RECORDED].count("/v1/models") == 1
    assert len(streams) == 10
    assert streams.count({"include_usage": True, "continuous_usage_stats": True}) == 2
