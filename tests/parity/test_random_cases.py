"""Random cases for recordings are of the form that the recordings state."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

_FOLDER = str(Path(__file__).parent / "live")
sys.path.insert(0, _FOLDER)
try:
    import random_cases
    import sglang_cases
finally:
    sys.path.remove(_FOLDER)

_CASES = random_cases.cases(300, seed=5)
_SGLANG = sglang_cases.cases(250, seed=5)


def tokens(request: dict[str, Any]) -> int:
    return sum(size for _, size in request["prompt"]) + request["output"]


@pytest.mark.parametrize("module", [random_cases, sglang_cases])
def test_a_seed_gives_the_same_cases_whatever_their_number(module: Any) -> None:
    assert module.cases(40, seed=5) == module.cases(80, seed=5)[:40]
    assert module.cases(40, seed=6) != module.cases(40, seed=5)


@pytest.mark.parametrize(
    ("cases", "features"), [(_CASES, random_cases.NAMES), (_SGLANG, sglang_cases.NAMES)]
)
def test_every_feature_has_as_many_cases(
    cases: list[dict[str, Any]], features: tuple[str, ...]
) -> None:
    names = [case["id"].rpartition("-")[0] for case in cases]
    assert {names.count(name) for name in features} == {10}
    assert names == [case["feature"] for case in cases]
    assert len({case["id"] for case in cases}) == len(cases)


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
    for case in [*_CASES, *_SGLANG]:
        arrivals_ns = [request["arrival_ns"] for request in case["requests"]]
        assert arrivals_ns == sorted(arrivals_ns)
        engine = case["engine"]
        if engine.get("policy") == "priority" or engine.get("priority_scheduling"):
            assert len(set(arrivals_ns)) == len(arrivals_ns), case["id"]
        aborts_ns = [each["abort_ns"] for each in case["requests"] if "abort_ns" in each]
        assert len(set(aborts_ns)) == len(aborts_ns), case["id"]


def test_answers_in_prompts_are_those_of_earlier_requests() -> None:
    num_answers = 0
    for case in [*_CASES, *_SGLANG]:
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


def test_settings_of_sglang_fit_together() -> None:
    for case in _SGLANG:
        engine, page = case["engine"], case["engine"]["page_size"]
        assert engine["max_total_num_tokens"] % page == 0, case["id"]
        longest = max(map(tokens, case["requests"]))
        assert longest < engine["context_length"], case["id"]
        assert longest + page <= engine["max_total_num_tokens"], case["id"]
        if engine["chunked_prefill_size"] is None:
            assert not engine["mixed_chunk"], case["id"]
            assert longest <= engine["max_prefill_tokens"], case["id"]
        else:
            assert engine["chunked_prefill_size"] % page == 0, case["id"]
