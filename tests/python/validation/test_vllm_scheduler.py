"""Comparison with recordings of a scheduler, which here are those of the slow twin."""

from __future__ import annotations

import gzip
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from support.twins import vllm
from support.vllm_cases import random_case

from spillway.cli import main
from spillway.files.error import TraceError
from spillway.validation import vllm_scheduler

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ("0.19.1", "0.33.0")


def cases() -> list[dict[str, Any]]:
    return [random_case(random.Random(seed)) | {"id": f"case-{seed}"} for seed in range(3)]


def recording(case: dict[str, Any], version: str) -> dict[str, Any]:
    run = vllm.run_case(case, version)
    return {"id": case["id"], "vllm": version, "steps": run.steps, "requests": run.requests}


def lines(values: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cases.jsonl.gz").write_bytes(gzip.compress(lines(cases()).encode()))
    for version in VERSIONS:
        path = tmp_path / f"recordings-vllm-{version}.jsonl"
        path.write_text(lines([recording(case, version) for case in cases()]))
    return tmp_path


def test_all_cases_agree(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = vllm_scheduler.validate(folder)
    assert report.agrees, report.table()
    assert report.counts() == dict.fromkeys(VERSIONS, (3, 3))
    assert main(["validate", "vllm-scheduler", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"vLLM {version}: 3 of 3 cases agree in every step" for version in VERSIONS
    ]


def test_the_first_difference_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = [recording(case, "0.33.0") for case in cases()]
    changed[1]["steps"][2]["free_blocks"] += 1
    changed[1]["steps"][3]["waiting"] += 1
    changed[2]["steps"].pop()
    (folder / "recordings-vllm-0.33.0.jsonl").write_text(lines(changed))
    assert main(["validate", "vllm-scheduler", str(folder), "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["versions"]["0.33.0"] == {"agreeing": 1, "cases": 3}
    of_case = {case["case"]: case["difference"] for case in shown["cases"] if not case["agrees"]}
    first = of_case["case-1"]
    assert (first["step"], first["field"]) == (2, "free_blocks")
    assert int(first["expected"]) == int(first["found"]) + 1
    assert of_case["case-2"]["field"] == "steps"
    main(["validate", "vllm-scheduler", str(folder)])
    assert "case-1: step 2, free_blocks: " in capsys.readouterr().out


@pytest.mark.parametrize("field", ["first_token_ns", "num_tokens"])
def test_tokens_of_requests_are_compared(folder: Path, field: str) -> None:
    changed = [recording(case, "0.33.0") for case in cases()]
    name, figures = next(iter(changed[0]["requests"].items()))
    tokens = figures["tokens_ns"]
    figures["tokens_ns"] = [tokens[0] + 1, *tokens[1:]] if field == "first_token_ns" else tokens[:1]
    (folder / "recordings-vllm-0.33.0.jsonl").write_text(lines(changed))
    (found,) = [case for case in vllm_scheduler.validate(folder).cases if not case.agrees]
    assert found.difference is not None
    assert found.difference.field == f"{field} of {name}"


def test_what_the_simulator_lacks_is_no_agreement(folder: Path) -> None:
    unknown = cases()
    unknown[0]["engine"]["extra"] = {"kv_sharing": True}
    (folder / "cases.jsonl.gz").write_bytes(gzip.compress(lines(unknown).encode()))
    report = vllm_scheduler.validate(folder)
    assert not report.agrees
    assert {case.unsupported for case in report.cases} == {None, "kv_sharing"}


def test_folders_that_hold_no_recordings_are_refused(folder: Path) -> None:
    path = folder / "recordings-vllm-0.19.1.jsonl"
    path.write_text("{\n")
    with pytest.raises(TraceError, match=r"0\.19\.1\.jsonl, line 1: no JSON"):
        vllm_scheduler.validate(folder)
    path.write_text(lines([{"id": "case-0", "steps": []}]))
    with pytest.raises(TraceError, match=r"0\.19\.1\.jsonl, line 1: lacks requests"):
        vllm_scheduler.validate(folder)
    path.write_text(lines([{"id": "other", "steps": [], "requests": {}}]))
    with pytest.raises(TraceError, match="'other' is not among the cases"):
        vllm_scheduler.validate(folder)
    whole = (folder / "cases.jsonl.gz").read_bytes()
    (folder / "cases.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match=r"cases\.jsonl\.gz: cannot be read: "):
        vllm_scheduler.validate(folder)
    (folder / "cases.jsonl.gz").unlink()
    with pytest.raises(TraceError, match=r"must hold cases\.jsonl"):
        vllm_scheduler.validate(folder)
