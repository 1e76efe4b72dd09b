"""Random cases for recordings are of the form that the recordings state."""

from __future__ import annotations

from typing import Any

import pytest
from parity.live import random_cases

_CASES = random_cases.cases(300, seed=5)


def tokens(request: dict[str, Any]) -> int:
    return sum(size for _, size in request["prompt"]) + request["output"]


def test_a_seed_gives_the_same_cases_whatever_their_number() -> None:
    assert random_cases.cases(40, seed=5) == _CASES[:40]
    assert random_cases.cases(40, seed=6) != _CASES[:40]


def test_every_feature_has_as_many_cases() -> None:
    names = [case["id"].rpartition("-")[0] for case in _CASES]
    assert {names.count(name) for name in random_cases.NAMES} == {len(_CASES) // 30}
    assert names == [case["feature"] for case in _CASES]
    assert len({case["id"] for case in _CASES}) == len(_CASES)


@pytest.mark.parametrize("case", _CASES[:60], ids=lambda case: case["id"])
def test_the_longest_request_fits_an_empty_engine(case: dict[str, Any]) -> None:
    engine = case["engine"]
    assert max(map(tokens, case["requests"])) <= engine["max_model_len"]
    usable = engine["num_gpu_blocks"] - 1
    needed = -(
        -(max(map(tokens, case["requests"])) + engine["num_spec_tokens"]) // engine["block_size"]
    )
    assert needed <= usable * (1 - engine["watermark"])


@pytest.mark.parametrize("case", _CASES[:60], ids=lambda case: case["id"])
def test_engines_accept_the_settings(case: dict[str, Any]) -> None:
    engine, extra = case["engine"], case["engine"].get("extra", {})
    assert engine["max_num_seqs"] <= engine["max_num_batched_tokens"]
    assert engine["long_prefill_token_threshold"] <= engine["max_model_len"]
    assert extra.get("max_num_active_seqs", 1) <= engine["max_num_seqs"]
    if not engine["chunked_prefill"]:
        assert engine["max_model_len"] <= engine["max_num_batched_tokens"]
    if engine["spec_method"] == "draft_model":  # one slot of each request is kept for its drafts
        assert engine["max_num_seqs"] < engine["max_num_batched_tokens"]


def test_what_engines_leave_undefined_does_not_occur() -> None:
    for case in _CASES:
        arrivals_ns = [request["arrival_ns"] for request in case["requests"]]
        assert arrivals_ns == sorted(arrivals_ns)
        if case["engine"]["policy"] == "priority":
            assert len(set(arrivals_ns)) == len(arrivals_ns), case["id"]
        aborts_ns = [each["abort_ns"] for each in case["requests"] if "abort_ns" in each]
        assert len(set(aborts_ns)) == len(aborts_ns), case["id"]


def test_answers_in_prompts_are_those_of_earlier_requests() -> None:
    num_answers = 0
    for case in _CASES:
        outputs: dict[str, int] = {}
        for request in case["requests"]:
            for name, size in request["prompt"]:
                assert size > 0
                if name.startswith("out:"):
                    assert size == outputs[name.removeprefix("out:")], case["id"]
                    num_answers += 1
            outputs[request["id"]] = request["output"]
    assert num_answers > 100


def test_cases_have_what_is_special_about_their_features() -> None:
    def some(name: str) -> list[dict[str, Any]]:
        return [case for case in _CASES if case["feature"] == name]

    assert all(case["engine"]["async_scheduling"] for case in some("spec_async"))
    assert all(
        case["engine"]["extra"]["prefill_schedule_interval"] > 1
        for case in some("prefill_interval")
    )
    assert any("abort_ns" in request for case in some("aborts") for request in case["requests"])
    assert all("accept" in request for case in some("spec_ngram") for request in case["requests"])
    assert all(len(case["requests"]) == 40 for case in some("load"))
    ties = [
        case["id"]
        for case in some("base")
        if len({request["arrival_ns"] for request in case["requests"]}) < len(case["requests"])
    ]
    assert ties
