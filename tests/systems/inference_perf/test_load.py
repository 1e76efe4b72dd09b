"""Loads of inference-perf as generators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spillway import ConfigError, traffic, workload

if TYPE_CHECKING:
    from pathlib import Path

NORMAL = {"min": 10, "max": 100, "mean": 50, "std_dev": 10, "total_count": 100}
DATA = {"type": "synthetic", "input_distribution": NORMAL, "output_distribution": NORMAL}
SHARED = {
    "num_groups": 3,
    "num_prompts_per_group": 10,
    "system_prompt_len": 100,
    "question_len": 50,
    "output_len": 20,
}
PREFIXES = {"type": "shared_prefix", "shared_prefix": SHARED}
STAGES: list[dict[str, Any]] = [{"rate": 10, "duration": 30}, {"rate": 40, "duration": 10}]
USERS = [{"concurrency_level": 3, "num_requests": 40}]
POISSON = {"type": "poisson", "interval": 1.0, "stages": STAGES}
CLOSED = {"type": "concurrent", "stages": USERS}


def read(folder: Path, load: Any, data: Any, **more: Any) -> workload.Synthetic:
    path = folder / "config.json"
    path.write_text(json.dumps({"load": load, "data": data, **more}))
    return traffic.read_load(path)


def arrivals_s(found: workload.Synthetic, seed: int = 1) -> Any:
    return traffic.generated(found, seed=seed)._columns()["arrival_ns"] / 1e9


def test_stages_are_a_rate_profile(tmp_path: Path) -> None:
    found = read(tmp_path, POISSON, DATA, server={"type": "vllm"})
    (client,) = found.clients
    assert (found.requests_per_s, found.duration_s) == (17.5, 40)
    assert client.input_tokens == workload.Gaussian(
        mean_tokens=50, std_dev_tokens=10, min_tokens=10, max_tokens=100
    )
    counts = [np.histogram(arrivals_s(found, seed), [0, 30, 40])[0] for seed in range(20)]
    assert np.mean(counts, axis=0) == pytest.approx([300, 400], rel=0.05)


def test_a_constant_load_has_equal_gaps(tmp_path: Path) -> None:
    load = {"type": "constant", "stages": [{"rate": 4, "duration": 10}]}
    times_s = arrivals_s(read(tmp_path, load, DATA))
    assert np.diff(times_s) == pytest.approx(0.25)
    assert len(times_s) in (39, 40)
    taking_turns = arrivals_s(read(tmp_path, load, PREFIXES))
    assert np.diff(taking_turns) == pytest.approx(0.25, abs=1e-6)


def test_groups_share_their_prefixes(tmp_path: Path) -> None:
    found = read(tmp_path, POISSON, PREFIXES)
    assert [client.prefix_group for client in found.clients] == ["group-0", "group-1", "group-2"]
    assert {client.prefix_tokens for client in found.clients} == {100}
    trace = traffic.generated(found, seed=1)._columns()
    assert set(trace["input_tokens"].tolist()) == {150}
    assert set(trace["output_tokens"].tolist()) == {20}
    question = {"type": "uniform", "min": 5, "max": 9}
    answer = {"type": "fixed", "min": 0, "max": 9, "mean": 7.0}
    drawn = SHARED | {"question_distribution": question, "output_distribution": answer}
    (first, *_) = read(tmp_path, POISSON, PREFIXES | {"shared_prefix": drawn}).clients
    assert first.input_tokens == workload.Uniform(min_tokens=5, max_tokens=9)
    assert first.output_tokens == workload.Fixed(tokens=7)


def test_concurrent_users_wait_for_their_answers(tmp_path: Path) -> None:
    (client,) = read(tmp_path, CLOSED, DATA).clients
    assert client.arrivals == workload.ClosedLoop(users=3, think_time_s=0)
    assert client.num_requests == 40


def stage(**changes: Any) -> dict[str, Any]:
    return POISSON | {"stages": [STAGES[0], STAGES[1] | changes]}


def lengths(**changes: Any) -> dict[str, Any]:
    return DATA | {"output_distribution": NORMAL | changes}


def shared(**changes: Any) -> dict[str, Any]:
    return PREFIXES | {"shared_prefix": SHARED | changes}


MALFORMED = [
    ({"load": 3}, "load = 3: must be a mapping"),
    ({"data": None}, "data = None: must be a mapping"),
    ({"load": POISSON | {"type": "trace_replay"}}, "load.type = 'trace_replay': must be constant,"),
    ({"load": POISSON | {"sweep": {"type": "linear"}}}, "load.sweep = {'type': 'linear'}: a sweep"),
    ({"load": {"type": "poisson"}}, "load.stages = missing: must be a list of mappings"),
    ({"load": POISSON | {"stages": []}}, "load.stages = []: must be a list of mappings"),
    ({"load": POISSON | {"stages": [1]}}, "load.stages = [1]: must be a list of mappings"),
    ({"load": stage(rate=0)}, "load.stages[1].rate = 0: must be a number > 0 and <= 1e+09"),
    ({"load": stage(rate="__import__('os').abort()")}, "load.stages[1].rate = "),
    ({"load": stage(duration=True)}, "load.stages[1].duration = True: must be a number > 0"),
    ({"load": stage(duration=3.2e9)}, "load.stages = [{'rate': 10"),
    ({"load": CLOSED | {"stages": USERS * 2}}, "load.stages = [{'concurrency_level'"),
    ({"load": CLOSED | {"stages": STAGES[:1]}}, "load.stages[0].concurrency_level = missing"),
    ({"load": CLOSED, "data": PREFIXES}, "load.type = 'concurrent': must be constant or poisson"),
    ({"data": DATA | {"type": "shareGPT"}}, "data.type = 'shareGPT': must be synthetic, random or"),
    ({"data": DATA | {"multimodal": {"image": {}}}}, "data.multimodal = {'image': {}}: not suppor"),
    ({"data": {"type": "random"}}, "data.input_distribution = missing: must be a mapping"),
    ({"data": lengths(type="lognormal")}, "data.output_distribution.type = 'lognormal': must be"),
    ({"data": lengths(min=-1)}, "data.output_distribution.min = -1: must be a whole number >= 0"),
    ({"data": lengths(max=9)}, "data.output_distribution.max = 9: must be a whole number >= 10"),
    ({"data": lengths(mean="x")}, "data.output_distribution.mean = 'x': must be a number >= 0"),
    ({"data": lengths(std_dev=None)}, "data.output_distribution.std_dev = None: must be a number"),
    ({"data": shared(num_groups=0)}, "data.shared_prefix.num_groups = 0: must be a whole number"),
    ({"data": shared(question_len=0)}, "data.shared_prefix.question_len = 0: must be a whole"),
    ({"data": shared(enable_multi_turn_chat=True)}, "data.shared_prefix.enable_multi_turn_chat ="),
]


@pytest.mark.parametrize(("changes", "message"), MALFORMED)
def test_a_malformed_file_gives_one_clear_error(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, **({"load": POISSON, "data": DATA} | changes))
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / 'config.json'}, {message}")
    assert "\n" not in text
