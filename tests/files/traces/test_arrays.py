"""Traces from arrays."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.traces import columns_of, written

from spillway import ConfigError, _core
from spillway.files.traces import read_trace, trace

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = "arrival_s,input_tokens,output_tokens"


def test_arrays_and_files_give_the_same_trace(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        COLUMNS + ",tenant,slo_class,request_id,prefix_group,prefix_tokens",
        "0.1,5,1,gold,batch,a,g,4",
        "0.3,6,0,,,b,,",
    )
    built = trace(
        arrival_s=[0.1, 0.3],
        input_tokens=np.array([5, 6], dtype=np.uint8),
        output_tokens=[1.0, 0.0],
        tenant=["gold", ""],
        slo_class=np.array(["batch", "standard"]),
        request_id=("a", "b"),
        prefix_group=["g", None],
        prefix_tokens=[4, 0],
    )
    assert built.sha256 == read_trace(path).sha256
    assert (built.rows, built.file) == (2, "")


def test_one_tenant_and_class_for_all() -> None:
    arguments: dict[str, Any] = {
        "arrival_s": [0, 1],
        "input_tokens": [1, 1],
        "output_tokens": [0, 0],
    }
    found = columns_of(trace(**arguments, tenant="gold", slo_class="batch"))
    assert (found["tenants"], found["slo_classes"]) == (["gold"], ["batch"])
    assert trace(**arguments) == trace(**arguments, tenant="default", slo_class=["standard"] * 2)
    assert trace(**arguments) != trace(**arguments, tenant="gold")


def test_arrivals_are_rounded_to_the_nanosecond() -> None:
    seconds = np.array([0.1 + 0.2, 1e-9, 1e-10, 12345.000000001])
    found = trace(arrival_s=np.sort(seconds), input_tokens=[1] * 4, output_tokens=[1] * 4)
    assert columns_of(found)["arrival_ns"] == [0, 1, 300_000_000, 12_345_000_000_001]


def test_a_trace_can_be_run_and_pickled() -> None:
    found = trace(arrival_s=[0, 0.5], input_tokens=[100, 200], output_tokens=[3, 4])
    simulation = _core.cluster.Simulation(workload=found)
    assert _core.cluster.run(simulation, 0)["summary"]["completed"] == 2
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrival_s": [0, float("nan")]}, r"arrival_s\[1\] = nan: must be >= 0"),
        ({"arrival_s": [0, float("inf")]}, r"arrival_s\[1\] = inf: must be >= 0"),
        ({"arrival_s": [-1, 0]}, r"arrival_s\[0\] = -1\.0: must be >= 0"),
        ({"arrival_s": [1, 0.5]}, r"arrival_s\[1\] = 0\.5: must be >= arrival_s\[0\] \(1\.0\)"),
        ({"arrival_s": []}, r"arrival_s = \[\]: must hold at least one request"),
        ({"input_tokens": [1]}, r"input_tokens = 1 values: must be as long as arrival_s \(2"),
        ({"input_tokens": [1, 0]}, r"input_tokens\[1\] = 0: must be whole, >= 1"),
        ({"input_tokens": [1, 2**40]}, r"input_tokens\[1\] = 1099511627776: must be whole"),
        ({"output_tokens": [1, 1.5]}, r"output_tokens\[1\] = 1\.5: must be whole, >= 0"),
        ({"output_tokens": [1, -1]}, r"output_tokens\[1\] = -1: must be whole, >= 0"),
        ({"output_tokens": [1, float("nan")]}, r"output_tokens\[1\] = nan: must be whole, >= 0"),
        ({"tenant": ["a"]}, r"tenant = 1 values: must be as long as arrival_s"),
        ({"request_id": ["a", "b", "c"]}, r"request_id = 3 values: must be as long as arrival_s"),
        ({"request_id": ["a", "a"]}, r"request_id\[1\] = 'a': must be unique; request_id\[0\] is"),
        (
            {"prefix_group": ["g", "g"], "prefix_tokens": [1, 9]},
            r"prefix_tokens\[1\] = 9: must be <= input_tokens\[1\] \(6\)",
        ),
        ({"hash_ids": [[1]]}, r"hash_ids = 1 values: must be as long as arrival_s \(2"),
        ({"hash_ids": [[1], [-1]]}, r"hash_ids\[1\] = \[-1\]: must be >= 0"),
        (
            {"hash_ids": [[1], [1, 2]]},
            r"hash_ids\[1\] = \[1, 2\]: must have 1, one per 512 tokens of input_tokens\[1\]",
        ),
        ({"hash_ids": [[1], [1]], "block_size_tokens": 0}, "block_size_tokens = 0: must be >= 1"),
    ],
)
def test_wrong_values_in_arrays(changes: dict[str, Any], message: str) -> None:
    arguments = {"arrival_s": [0, 1], "input_tokens": [5, 6], "output_tokens": [1, 1]} | changes
    with pytest.raises(_core.sim.ConfigError, match=message) as caught:
        trace(**arguments)
    assert len(caught.value.violations) == 1


def test_all_wrong_arrays_are_named_at_once() -> None:
    with pytest.raises(_core.sim.ConfigError) as caught:
        trace(arrival_s=[0, -1], input_tokens=[0, 1], output_tokens=[1], tenant=["a"])
    assert [path for path, _, _ in caught.value.violations] == [
        "arrival_s[1]",
        "input_tokens[0]",
        "output_tokens",
        "tenant",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrival_s": 0.5}, "arrival_s must be a one-dimensional sequence of numbers"),
        ({"arrival_s": ["0", "1"]}, "arrival_s must be a one-dimensional sequence of numbers"),
        ({"input_tokens": [[1, 2], [3, 4]]}, "input_tokens must be a one-dimensional sequence"),
        ({"input_tokens": [[1], [2, 3]]}, "input_tokens must be a one-dimensional sequence"),
        ({"output_tokens": [True, False]}, "output_tokens must be a one-dimensional sequence"),
        ({"output_tokens": None}, "output_tokens must be a one-dimensional sequence"),
        ({"tenant": [1, 2]}, r"tenant\[0\] must be a str, not 1"),
        ({"slo_class": ["a", None]}, r"slo_class\[1\] must be a str, not None"),
        ({"request_id": "ab"}, "request_id must be a sequence of str, not one str"),
        ({"prefix_group": ["g", "g"]}, "prefix_group and prefix_tokens belong together"),
        (
            {"prefix_group": ["g", "g"], "prefix_tokens": [1, 1], "hash_ids": [[1], [1]]},
            "give prefix_group or hash_ids, not both",
        ),
        ({"hash_ids": [1, 2]}, "hash_ids must be a sequence of sequences of int"),
        ({"hash_ids": [["a"], ["b"]]}, "hash_ids must be a sequence of sequences of int"),
        ({"prefix_group": [0, 1], "prefix_tokens": [1, 1]}, r"prefix_group\[0\] must be a str"),
    ],
)
def test_wrong_types_in_arrays(changes: dict[str, Any], message: str) -> None:
    arguments = {"arrival_s": [0, 1], "input_tokens": [5, 6], "output_tokens": [1, 1]} | changes
    with pytest.raises(TypeError, match=message):
        trace(**arguments)


@pytest.mark.parametrize("name", ["tenant", "slo_class", "request_id"])
def test_text_that_is_no_unicode_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}\[1\] = .*: must be valid Unicode"):
        trace(
            arrival_s=[0, 1], input_tokens=[1, 1], output_tokens=[1, 1], **{name: ["a", "\ud800"]}
        )
