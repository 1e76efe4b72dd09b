"""docs/guides/measurement_sources.md and the files that its commands read.

`test_guides` follows the page. Here: each tool has its command, and `measure_with_tools.py` writes
what the tools write, by their own specimens.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import DATA, ROOT, importing_from

import spillway

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GUIDE = ROOT / "docs" / "guides" / "measurement_sources.md"
SPECIMENS = DATA / "specimens"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example has written its files."""
    path = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch, importing_from(ROOT / "examples"):
        patch.chdir(path)
        import measure_with_tools

        measure_with_tools.main()
    for name in ("measure_with_tools", "measure_a_server"):
        sys.modules.pop(name, None)
    return path


def test_every_tool_is_measured_and_fitted() -> None:
    _, *sections = re.split(r"^## ", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(sections) == 9
    for section in sections:
        assert re.search(r"^```bash\n(?:.*\n)*?spillway calibrate ", section, re.MULTILINE), section


def test_the_files_are_read_as_they_are_meant(folder: Path) -> None:
    """With the figures of the tools, and without a note but that of SGLang's missing times."""
    names = ("rate4.json", "benchmarks.json", "per_request_lifecycle_metrics.json", "trace.csv")
    for name in (*names, "artifacts/profile_export.jsonl", "users16.jsonl"):
        found = spillway.read(folder / name)
        assert len(found.notes) == (name == "users16.jsonl"), found.notes
        assert found.mismatches == ()
        for run in found.recordings:
            assert run.num_requests == 300
            assert run.reported or name == "trace.csv"
    assert spillway.read(folder / "users16.jsonl").recording.client_max_in_flight == 16


@cache
def of_specimen(path: str) -> Any:
    text = (SPECIMENS / path).read_text(encoding="utf-8")
    return json.loads(text.splitlines()[0] if path.endswith("jsonl") else text)


def of_example(folder: Path, name: str) -> Any:
    text = (folder / name).read_text(encoding="utf-8")
    return json.loads(text.splitlines()[0] if name.endswith("jsonl") else text)


INFERENCE_PERF = "inference-perf-0.7.0/poisson/reports"
FILES = {
    "rate4.json": "vllm-0.33.0/rate/result.json",
    "users16.jsonl": "sglang-0.5.23/concurrency/result.jsonl",
    "artifacts/profile_export.jsonl": "aiperf-0.13.0/request_rate/profile_export.jsonl",
    "artifacts/profile_export_aiperf.json": "aiperf-0.13.0/request_rate/profile_export_aiperf.json",
    "benchmarks.json": "guidellm-0.8.1/constant/benchmarks.json",
    **{
        f"{part}_lifecycle_metrics.json": f"{INFERENCE_PERF}/{part}_lifecycle_metrics.json"
        for part in ("per_request", "summary", "stage_0")
    },
}

TRIMMED = ".benchmarks[0].metrics"  # of GuideLLM: the specimen has the totals alone


def unlike(ours: Any, own: Any, place: str = "") -> Iterator[str]:
    """The places of a file that the tool's own file lacks, or that hold something else there."""
    if isinstance(ours, dict) and isinstance(own, dict):
        for key, value in ours.items():
            if f"{place}.{key}" == TRIMMED:
                continue
            if key not in own:
                yield f"{place}.{key}"
            else:
                yield from unlike(value, own[key], f"{place}.{key}")
    elif isinstance(ours, list) and isinstance(own, list):
        if ours and own:
            yield from unlike(ours[0], own[0], f"{place}[0]")
    elif not (isinstance(ours, int | float) and isinstance(own, int | float)) and not (
        None in (ours, own) or type(ours) is type(own)
    ):
        yield f"{place} = {ours!r}"


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_like_those_of_the_tools(name: str, folder: Path) -> None:
    assert list(unlike(of_example(folder, name), of_specimen(FILES[name]))) == []
