"""Folders of runs with an index."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from support.recordings import FILES, run_of, values

from spillway.data.recording import ServerFacts
from spillway.files.recordings import TraceError, read_recordings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*unused columns")


def test_list_of_runs() -> None:
    chat, code = read_recordings(FILES / "list_of_runs")
    assert (chat.name, code.name) == ("chat", "code")
    assert values(chat.send_s) == [0, 0.074788, 0.180654, 0.256515]
    assert values(chat.input_tokens) == [571, 571, 0, 578]
    assert values(chat.output_tokens) == [251, 252, 0, 250]
    assert values(chat.ttft_s) == [0.072754, 0.391959, None, 0.21023]
    assert values(chat.e2e_s) == [4.632085, 4.603483, None, 4.421914]
    assert values(chat.failed) == [False, False, True, False]
    assert values(chat.failure_s) == [None, None, 300.58895, None]
    assert values(code.itl_s) == [pytest.approx(0.02), None]
    assert chat.server == ServerFacts(
        model="meta-llama/Llama-2-7b-hf",
        gpu="H100 SXM 80GB",
        tensor_parallel_size=1,
        max_num_seqs=128,
        max_num_batched_tokens=2048,
        block_size_tokens=16,
        num_kv_blocks=7462,
    )
    assert code.server.key != chat.server.key
    assert chat.source == str(FILES / "list_of_runs" / "chat.csv")
    assert chat.sha256 != code.sha256
    assert (chat.tenant, chat.token_gaps, chat.client_max_in_flight) == (None, None, None)


def test_object_of_runs() -> None:
    run = run_of("object_of_runs")
    assert values(run.send_s) == [0, 0.280739, 1.980036]  # sorted
    assert values(run.input_tokens) == [1010, 987, 996]
    assert values(run.ttft_s) == [0.072784, 0.059438, None]
    assert values(run.e2e_s) == [1.652685, 1.615632, None]
    assert run.tenant == ("a", "b", "b")
    assert run.client_max_in_flight == 2
    assert run.in_flight() == 2
    assert run.server == ServerFacts(
        model="Qwen/Qwen3-14B",
        gpu="H100 80GB HBM3",
        engine="vllm",
        engine_version="0.23.0",
        tensor_parallel_size=1,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        block_size_tokens=16,
        num_kv_blocks=18038,
        max_model_len=40960,
        prefix_caching=True,
    )


def test_engine_timestamps() -> None:
    run = run_of("engine_timestamps")
    assert values(run.send_s) == [0, 0.265091]
    assert values(run.ttft_s) == pytest.approx([0.691279, 0.691279 - 0.265091])
    assert values(run.e2e_s) == pytest.approx([17.572162, 25.621038 - 0.265091])
    assert run.server == ServerFacts(
        model="Qwen/Qwen3-32B",
        gpu="RTXPRO6000",
        engine="vllm",
        engine_version="0.19.0",
        tensor_parallel_size=2,
        data_parallel_size=1,
        max_num_seqs=128,
        max_num_batched_tokens=2048,
        block_size_tokens=16,
        num_kv_blocks=2588,
        prefix_caching=True,
        async_scheduling=True,
    )


def test_several_wrong_facts_are_one_line(tmp_path: Path) -> None:
    for path in (FILES / "list_of_runs").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    runs = json.loads((tmp_path / "runs.json").read_text())
    runs[0]["model"] = ""
    runs[0]["config"]["tensor_parallelism"] = 0
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    with pytest.raises(TraceError) as caught:
        read_recordings(tmp_path)
    assert "model = '': must be text that is not empty; tensor_parallel_size" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"requests": 3', '"requests": 4', r"runs\[0\]\.requests = 4: must be 3, as in two_tenant"),
        ('"ok": 2', '"ok": 3', r"runs\[0\]\.ok = 3: must be 2"),
        ('"two_tenants"', '"../x"', r"runs\[0\]\.run = '\.\./x': must be the name of a CSV file"),
        ('"two_tenants"', '"three"', r"three\.csv: cannot be read"),
        ('"max_num_seqs": 256', '"max_num_seqs": -1', r"runs\[0\]: max_num_seqs = -1: must be"),
        ('_in_flight": 2', '_in_flight": "a"', r"client_max_in_flight = 'a': must be a whole"),
        ('"runs"', '"rows"', "of the format folder .a folder with runs.json .a list of runs"),
    ],
)
def test_invalid_index_is_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    folder = shutil.copytree(FILES / "object_of_runs", tmp_path / "runs")
    index = folder / "runs.json"
    assert old in index.read_text()
    index.write_text(index.read_text().replace(old, new))
    with pytest.raises(TraceError, match=message):
        read_recordings(folder)


def test_a_file_alone_is_the_run_that_the_index_beside_describes(tmp_path: Path) -> None:
    alone = run_of("object_of_runs/two_tenants.csv")
    (same,) = read_recordings(FILES / "object_of_runs")
    assert alone.server == same.server
    assert alone.client_max_in_flight == same.client_max_in_flight == 2
    folder = shutil.copytree(FILES / "object_of_runs", tmp_path / "runs")
    path = folder / "two_tenants.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(TraceError, match=r"runs\[0\]\.requests = 3: must be 2, as in two_tenants"):
        read_recordings(path)
    path.rename(folder / "another.csv")
    assert read_recordings(folder / "another.csv")[0].client_max_in_flight is None


def test_an_index_that_is_no_json_after_its_beginning_is_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(FILES / "object_of_runs", tmp_path / "runs")
    index = folder / "runs.json"
    index.write_text(index.read_text() + "}")
    for path in (index, folder, folder / "two_tenants.csv"):
        with pytest.raises(TraceError, match=r"runs\.json: not valid JSON, though it begins so"):
            read_recordings(path)
