"""Loads of GuideLLM as generators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spillway import ConfigError, traffic, workload

if TYPE_CHECKING:
    from pathlib import Path

DATA = {"kind": "synthetic_text", "prompt_tokens": 256, "output_tokens": 128}
SECONDS = {"kind": "max_duration", "seconds": 30}
REQUESTS = {"kind": "max_requests", "count": 100}
POISSON: dict[str, Any] = {
    "backend": {"kind": "openai_http", "target": "http://localhost:8000"},
    "profile": {"kind": "poisson", "rate": [10, 40], "warmup": {"value": None}},
    "constraints": [SECONDS, {"kind": "max_errors", "count": 10}],
    "data": [DATA],
}


def read(folder: Path, found: Any) -> workload.Synthetic:
    path = folder / "scenario.json"
    path.write_text(json.dumps(found))
    return traffic.read_load(path)


def scenario(**changes: Any) -> dict[str, Any]:
    return {"spec": POISSON | changes}


def arrivals_s(found: workload.Synthetic, seed: int = 1) -> Any:
    return traffic.generated(found, seed=seed)._columns()["arrival_ns"] / 1e9


def test_rates_follow_each_other(tmp_path: Path) -> None:
    found = read(tmp_path, scenario())
    assert (found.requests_per_s, found.duration_s) == (25, 60)
    assert found.clients[0].input_tokens == workload.Fixed(tokens=256)
    assert found.clients[0].output_tokens == workload.Fixed(tokens=128)
    counts = [np.histogram(arrivals_s(found, seed), [0, 30, 60])[0] for seed in range(20)]
    assert np.mean(counts, axis=0) == pytest.approx([300, 1200], rel=0.05)
    by_requests = read(tmp_path, scenario(constraints=[REQUESTS]))
    assert by_requests.duration_s == 100 / 10 + 100 / 40


def test_a_constant_rate_has_equal_gaps(tmp_path: Path) -> None:
    for kind in ("constant", "async"):
        found = read(tmp_path, scenario(profile={"kind": kind, "rate": 4, "rampup_duration": 0.0}))
        assert np.diff(arrivals_s(found)) == pytest.approx(0.25)
        assert found.duration_s == 30


@pytest.mark.parametrize(
    ("profile", "users"),
    [
        ({"kind": "synchronous"}, 1),
        ({"kind": "concurrent", "streams": 8}, 8),
        ({"kind": "concurrent", "streams": [8]}, 8),
        ({"kind": "throughput", "max_concurrency": 64}, 64),
    ],
)
def test_users_wait_for_their_answers(profile: Any, users: int, tmp_path: Path) -> None:
    (client,) = read(tmp_path, scenario(profile=profile, constraints=[SECONDS, REQUESTS])).clients
    assert client.arrivals == workload.ClosedLoop(users=users, think_time_s=0)
    assert (client.num_requests, client.duration_s) == (100, 30)


def test_lengths(tmp_path: Path) -> None:
    def drawn(**changes: Any) -> Any:
        return read(tmp_path, scenario(data=[DATA | changes])).clients[0].input_tokens

    normal = {"mean_tokens": 256, "std_dev_tokens": 32}
    assert drawn(prompt_tokens_stdev=32) == workload.Gaussian(
        **normal, min_tokens=1, max_tokens=256 + 5 * 32
    )
    ends = {"prompt_tokens_min": 128, "prompt_tokens_max": 384}
    expected = workload.Gaussian(**normal, min_tokens=128, max_tokens=384)
    assert drawn(prompt_tokens_stdev=32, **ends) == expected
    assert drawn(**ends) == workload.Uniform(min_tokens=128, max_tokens=384)


def test_prefixes_become_groups(tmp_path: Path) -> None:
    buckets = [
        {"bucket_weight": 60, "prefix_count": 2, "prefix_tokens": 100},
        {"bucket_weight": 40, "prefix_count": 1, "prefix_tokens": 50},
    ]
    found = read(tmp_path, scenario(data=[DATA | {"prefix_buckets": buckets}]))
    assert [client.rate_fraction for client in found.clients] == [30, 30, 40]
    columns = traffic.generated(found, seed=1)._columns()
    content, counts = np.unique(columns["segment_content"], return_counts=True)
    assert len(content) == 3
    assert np.sort(counts / counts.sum()) == pytest.approx([0.3, 0.3, 0.4], abs=0.05)
    assert set(columns["input_tokens"].tolist()) == {306, 356}
    simple = read(tmp_path, scenario(data=[DATA | {"prefix_tokens": 7, "prefix_count": 5}]))
    assert {(client.prefix_tokens, client.rate_fraction) for client in simple.clients} == {(7, 0.2)}
    assert len({client.prefix_group for client in simple.clients}) == 5


OLD = {
    "profile": "constant",
    "rate": [4.0],
    "max-seconds": "30",
    "max_requests": 50,
    "data": "prompt_tokens=256,output_tokens=128",
}


def test_scenarios_of_other_versions_and_reports(tmp_path: Path) -> None:
    constant = {"kind": "constant", "rate": 4.0}
    limits = [SECONDS, REQUESTS | {"count": 50}]
    expected = read(tmp_path, scenario(profile=constant, constraints=limits))
    assert expected.duration_s == 12.5
    assert read(tmp_path, OLD) == expected
    assert (
        read(tmp_path, {"args": OLD | {"data": [json.dumps(DATA)]}, "benchmarks": []}) == expected
    )
    new = scenario(profile=constant, constraints=[SECONDS])
    assert read(tmp_path, {"config": new, "benchmarks": [{}]}) == read(tmp_path, new)
    streams = read(tmp_path, OLD | {"profile": "concurrent", "rate": [3]}).clients[0]
    assert streams.arrivals == workload.ClosedLoop(users=3, think_time_s=0)


def profile(**changes: Any) -> dict[str, Any]:
    return scenario(profile=POISSON["profile"] | changes)


def data(**changes: Any) -> dict[str, Any]:
    return scenario(data=[DATA | changes])


MALFORMED = [
    ({"spec": 3}, "spec = 3: must be a mapping"),
    ({"spec": {}}, "spec.profile = missing: must be a mapping"),
    (profile(kind="sweep"), "spec.profile.kind = 'sweep': must be constant, async, poisson, conc"),
    (profile(kind=["poisson"]), "spec.profile.kind = ['poisson']: must be constant, async"),
    (profile(rate=0), "spec.profile.rate = 0: must be a number > 0"),
    (profile(rate=[1, "x"]), "spec.profile.rate.1 = 'x': must be a number > 0"),
    (profile(rate=[]), "spec.profile.rate.0 = []: must be a number > 0"),
    (profile(rampup_duration=5), "spec.profile.rampup_duration = 5: not supported"),
    (profile(max_concurrency=9), "spec.profile.max_concurrency = 9: not supported"),
    (profile(max_concurency=9), "spec.profile.max_concurency = 9: not known or not supported"),
    (scenario(constraints=[]), "spec.constraints = []: must hold max_duration or max_requests"),
    (scenario(constraints=[{"kind": "over_saturation"}]), "spec.constraints[0].kind = 'over_satur"),
    (scenario(constraints=[{"kind": "max_duration", "seconds": -1}]), "spec.constraints[0].sec"),
    (scenario(profile={"kind": "throughput"}), "spec.profile.max_concurrency = missing: must be"),
    (scenario(profile={"kind": "concurrent", "streams": [1, 2]}), "spec.profile.streams = [1, 2]:"),
    (scenario(data=[DATA, DATA]), "spec.data = [{'kind': 'synthetic_text'"),
    (data(kind="huggingface"), "spec.data[0].kind = 'huggingface': must be synthetic_text"),
    (data(turns=3), "spec.data[0].turns = 3: must be 1"),
    (data(branches=[{"at_turn": 1}]), "spec.data[0].branches = [{'at_turn': 1}]: not known"),
    (data(prompt_tokens=0), "spec.data[0].prompt_tokens = 0: must be a whole number >= 1"),
    (data(prompt_tokens_stdev=-1), "spec.data[0].prompt_tokens_stdev = -1: must be a number >= 0"),
    (data(output_tokens_max=9), "spec.data[0].output_tokens_min = missing: must be a whole"),
    (data(output_tokens=None), "spec.data[0].output_tokens = None: must be the mean"),
    (
        {
            "spec": data(prefix_tokens=5, prefix_count=2)["spec"]
            | {"profile": {"kind": "synchronous"}}
        },
        "spec.profile.kind = 'synchronous': must be constant or poisson for several prefixes",
    ),
    (OLD | {"data": "prompt_tokens"}, "data = ['prompt_tokens']: must be a list of mappings"),
    (OLD | {"data": "{broken"}, "data = ['{broken']: must be a list of mappings"),
    (OLD | {"rate": "1; import os"}, "profile.rate = '1; import os': must be a number > 0"),
    ({"args": None, "benchmarks": []}, "args = None: must be a mapping"),
]


@pytest.mark.parametrize(("found", "message"), MALFORMED)
def test_a_malformed_file_gives_one_clear_error(found: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, found)
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / 'scenario.json'}, ")
    assert message in text
    assert "\n" not in text
