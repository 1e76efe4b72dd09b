"""A trace as a setting: copies keep its requests, and its digest represents it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

import spillway
from spillway import ConfigError, Simulation, workload

TRACE = spillway.trace(
    arrival_s=[0, 0.5, 0.5],
    input_tokens=[10, 20, 30],
    output_tokens=[1, 2, 0],
    tenant=["gold", "free", "gold"],
    slo_class=["critical", "batch", "batch"],
    request_id=["a", "b", "c"],
    prefix_group=["system", None, "system"],
    prefix_tokens=[5, 0, 5],
    warm_tokens=[5, 0, 0],
)


@pytest.mark.parametrize(
    "way",
    [copy.copy, copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_of_a_trace_keep_its_requests(way: Any) -> None:
    for copied in (way(TRACE), way(Simulation(workload=TRACE)).workload):
        assert copied == TRACE
        assert copied.has_requests
        before, after = TRACE._columns(), copied._columns()
        assert list(after) == list(before)
        for name, column in before.items():
            assert np.array_equal(after[name], column), name


def test_changed_simulations_keep_the_requests_of_their_trace() -> None:
    one = Simulation(workload=TRACE)
    for other in (
        one.replace(warm_up_s=0.1),
        one.with_({"router": "least_loaded"}),
        dataclasses.replace(one, quantum_ns=1000),
    ):
        assert other.workload.has_requests
        assert other.workload == TRACE


def test_written_form_of_a_trace_is_its_digest() -> None:
    assert TRACE.to_dict() == {
        "kind": "trace",
        "file": "",
        "sha256": TRACE.sha256,
        "rows": 3,
        "max_in_flight": 0,
        "open_loop_requests": None,
        "turnaround_s": 0.0,
        "session_segments": 0,
        "empty_outputs": "failed",
        "transforms": [],
    }
    assert len(TRACE.sha256) == 64
    bare = workload.Trace.from_dict(TRACE.to_dict())
    assert bare == TRACE
    assert hash(bare) == hash(TRACE)
    assert not bare.has_requests
    with pytest.raises(ConfigError, match="holds no requests"):
        spillway.simulate(Simulation(workload=bare))
