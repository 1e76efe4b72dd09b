"""Prompts whose beginnings are in the prefix cache when a run starts.

That the cache then behaves as its contract says is in `tests/instance/test_prefix_cache_oracle.py`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.runs import steady
from support.traces import written

import spillway
from spillway import ConfigError, Simulation, UsageError, instance, simulate, traffic, workload
from spillway.data.recording import Recording, ServerFacts
from spillway.files.traces import TraceError

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 16
COLD = {
    "arrival_s": [0.0, 10.0, 20.0],
    "input_tokens": [100, 200, 300],
    "output_tokens": [5, 5, 5],
    "prefix_group": ["a", "b", "a"],
    "prefix_tokens": [64, 160, 96],
}
WARM = [64, 80, 0]


def trace(**changes: Any) -> workload.Trace:
    return spillway.trace(**{**COLD, "warm_tokens": WARM, **changes})


def hits(of: workload.Trace, *, num_kv_blocks: int = 1000, **settings: Any) -> list[int]:
    """Cached blocks that the requests of each instance reused."""
    group = instance.InstanceGroup(
        num_kv_blocks=num_kv_blocks,
        block_size_tokens=BLOCK,
        latency=steady(10, beta_prefill_us=100),
        kv_cache=instance.KvCache(prefix_caching=settings.pop("prefix_caching", True)),
        count=settings.pop("count", 1),
    )
    result = simulate(Simulation(workload=of, instances=group, **settings))
    return [int(report["kv_hits"]) for report in result.instances]


def test_a_request_finds_what_is_cached_at_the_start() -> None:
    assert hits(trace(warm_tokens=None)) == [64 // BLOCK]
    # The third prompt finds the blocks of the first one, and none beyond.
    assert hits(trace()) == [(64 + 80 + 64) // BLOCK]
    assert hits(trace(), prefix_caching=False) == [0]
    first = simulate(Simulation(workload=trace())).requests["ttft_s"][0]
    assert first < simulate(Simulation(workload=trace(warm_tokens=None))).requests["ttft_s"][0]


def test_every_instance_begins_warm() -> None:
    # The default router takes turns.
    assert hits(trace(), count=3) == [64 // BLOCK, 80 // BLOCK, 64 // BLOCK]


def test_no_tokens_are_no_change() -> None:
    assert trace(warm_tokens=[0, 0, 0]) == trace(warm_tokens=None)
    assert trace() != trace(warm_tokens=None)


@pytest.mark.parametrize("blocks", [20, 21, 25, 1000])
def test_what_does_not_fit_is_not_cached(blocks: int) -> None:
    """The beginnings that the run needs first stay; room is made where they end."""
    both = trace(
        input_tokens=[16 * 16, 17 * 16, 3 * 16],
        prefix_tokens=[15 * 16, 16 * 16, 2 * 16],
        warm_tokens=[15 * 16, 16 * 16, 0],
    )
    found = min(blocks, 15 + 16)
    second = found - 15
    # The first prompt and its output take 2 new blocks of the head of the list.
    second = min(second, max(0, blocks - 15 - 2))
    assert hits(both, num_kv_blocks=blocks) == [15 + second + 2]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("limit", [0, 1])
def test_streams_and_limited_clients_begin_warm(streaming: bool, limit: int) -> None:
    settings = {"metrics": {"streaming": streaming}}
    assert hits(trace().replace(max_in_flight=limit), **settings) == [13]


def test_transforms_keep_what_is_cached() -> None:
    def columns(of: workload.Trace) -> dict[str, Any]:
        return traffic.applied(of)._columns()

    given = trace()
    late = columns(given.replace(transforms=[workload.Window(start_s=5)]))
    assert late["warm_tokens"].tolist() == [80, 0]
    capped = columns(given.replace(transforms=[workload.CapLengths(input_tokens=70)]))
    assert capped["warm_tokens"].tolist() == [64, 70, 0]
    longer = columns(given.replace(transforms=[workload.ScalePart(input_factor=2)]))
    assert longer["warm_tokens"].tolist() == [128, 160, 0]
    twice = given.replace(transforms=[workload.Superpose(copies=2)])
    assert sorted(columns(twice)["warm_tokens"].tolist()) == [0, 0, 64, 64, 80, 80]
    merged = traffic.merged(given, trace(warm_tokens=None))._columns()
    assert merged["warm_tokens"].tolist() == [64, 0, 80, 0, 0, 0]


def test_merged_conversations_keep_their_answers(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    lines = ["arrival_s,input_tokens,output_tokens,session", "0,40,24,u", "5,100,3,u", "6,9,1,"]
    path.write_text("\n".join(lines))
    talk = spillway.read_trace(path)
    settings = {"instances[0].kv_cache.generated_tokens": True}

    def found(of: workload.Trace) -> int:
        one = simulate(Simulation(workload=of).with_(settings))
        return int(one.instances[0]["kv_hits"])

    assert found(talk) == (40 + 24 - 1) // BLOCK
    assert found(traffic.merged(talk, talk)) == 2 * found(talk)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_files_hold_it(ending: str, tmp_path: Path) -> None:
    blocks = {
        "input_tokens": [40, 33, 16],
        "prefix_group": None,
        "prefix_tokens": None,
        "hash_ids": [[1, 2, 3], [4, 5, 6], [4]],
        "warm_tokens": [40, 17, 0],
        "block_size_tokens": 16,
    }
    given = trace() if ending == "csv" else trace(**blocks)
    path = tmp_path / f"trace.{ending}"
    if ending == "csv":
        traffic.write(given, path)
        assert path.read_text().splitlines()[0].endswith("prefix_group,prefix_tokens,warm_tokens")
        again = spillway.read_trace(path)
    else:
        from spillway.systems.mooncake.write import write_mooncake

        write_mooncake(given, path, block_size_tokens=16)
        again = spillway.read_trace(path, block_size_tokens=16)
    assert again._columns()["warm_tokens"].tolist() == given._columns()["warm_tokens"].tolist()
    assert hits(again) == hits(given)


def test_conversations_are_written_with_their_answers(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,session\n0,40,24,u\n5,100,3,u\n6,9,1,")
    talk = spillway.read_trace(path)
    assert "answer" in talk._columns()
    traffic.write(talk, tmp_path / "again.csv")
    assert spillway.read_trace(tmp_path / "again.csv") == talk


def test_more_than_is_shared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"row 2, warm_tokens = 97: must be >= 0 and <= the shar"):
        trace(warm_tokens=[0, 0, 97])
    with pytest.raises(ConfigError, match=r"warm_tokens\[0\] = -1: must be whole, >= 0"):
        trace(warm_tokens=[-1, 0, 0])
    with pytest.raises(ConfigError, match=r"warm_tokens = 1: must be >= 0 and <= the shared"):
        trace(prefix_group=None, prefix_tokens=None, warm_tokens=[1, 0, 0])
    header = "arrival_s,input_tokens,output_tokens,prefix_group,prefix_tokens,warm_tokens"
    (tmp_path / "a.csv").write_text(f"{header}\n0,10,1,a,5,6\n")
    with pytest.raises(
        TraceError, match=r"line 2, warm_tokens = '6': must be <= prefix_tokens \(5"
    ):
        spillway.read_trace(tmp_path / "a.csv")
    line = {"timestamp": 0, "input_length": 20, "output_length": 1, "hash_ids": [1]}
    path = written(tmp_path, line | {"warm_tokens": 21})
    with pytest.raises(ConfigError, match=r"warm_tokens = 21: must be >= 0 and <= the shared"):
        spillway.read_trace(path)
    (tmp_path / "b.csv").write_text(f"{header}\n0,10,1,a,5,5\n")
    with pytest.raises(TraceError, match="shared beginnings of prompts cannot be streamed"):
        spillway.read_trace(tmp_path / "b.csv", stream=True)


# --- recordings and logs --------------------------------------------------------------------------


def recording(cached: list[int], session: tuple[str, ...] | None = None) -> Recording:
    rows = len(cached)
    return Recording(
        name="run",
        server=ServerFacts(),
        send_s=10.0 * np.arange(rows),
        input_tokens=np.full(rows, 320),
        output_tokens=np.full(rows, 4),
        ttft_s=np.full(rows, 0.1),
        e2e_s=np.full(rows, 0.2),
        failed=np.zeros(rows, dtype=bool),
        failure_s=np.full(rows, np.nan),
        cached_tokens=np.array(cached),
        session=session,
    )


@pytest.mark.parametrize("cached", [[160, 160, 160], [0, 304, 160], [32, 160, 304], [0, 0, 16]])
def test_a_replay_finds_the_tokens_that_the_server_had(cached: list[int]) -> None:
    assert hits(recording(cached).to_trace()) == [sum(cached) // BLOCK]


def test_first_turns_of_sessions_begin_warm() -> None:
    """Later turns find the conversation before instead."""
    run = recording([160, 160, 320, 0], ("u", "v", "u", "w"))
    run = dataclasses.replace(run, input_tokens=np.array([320, 320, 400, 320]))
    found = run.to_trace()
    assert found._columns()["warm_tokens"].tolist() == [160, 160, 0, 0]
    assert hits(found) == [(160 + 160 + 320) // BLOCK]


def test_a_log_with_cached_tokens_begins_warm(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("ts,prompt,output,cached\n0,320,4,160\n10,320,4,304\n20,320,4,0\n")
    columns = {
        "arrival_s": "ts",
        "input_tokens": "prompt",
        "output_tokens": "output",
        "cached_tokens": "cached",
    }
    with pytest.warns(UserWarning, match="which every instance has in its cache from the start"):
        found = spillway.read_trace(path, columns=columns, time_unit="s")
    assert hits(found) == [(160 + 304) // BLOCK]
    late_first = path.read_text().splitlines()
    path.write_text("\n".join([late_first[0], *late_first[:0:-1]]))
    with pytest.warns(UserWarning, match="48% of the prompt tokens"):
        again = spillway.read_trace(path, columns=columns, time_unit="s", sort=True)
    assert again._columns()["warm_tokens"].tolist() == [160, 304, 0]


def test_sessions_of_a_mapped_log_are_said(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("ts,prompt,output,chat\n0,320,4,a\n10,400,4,a\n")
    columns = {
        "arrival_s": "ts",
        "input_tokens": "prompt",
        "output_tokens": "output",
        "session": "chat",
    }
    with pytest.warns(UserWarning, match="2 requests are turns of sessions: their prompts are rea"):
        found = spillway.read_trace(path, columns=columns, time_unit="s")
    assert hits(found) == [320 // BLOCK]


def test_requests_that_are_not_at_hand_cannot_be_merged() -> None:
    bare = workload.Trace.from_dict(trace().to_dict())
    with pytest.raises(UsageError):
        traffic.merged(bare)
