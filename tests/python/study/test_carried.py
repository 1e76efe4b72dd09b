"""Searches of what a system can carry."""

from __future__ import annotations

import pytest

from spillway import ConfigError, Simulation, gateway
from spillway.study import Kinds, Space
from spillway.study.carried import carried

BASE = Simulation(
    gateway=gateway.Gateway(
        admission=gateway.TokenBucket(), limit=gateway.FixedLimit(max_in_flight=16), max_queued=8
    )
)
SPACE = Space(
    {
        "gateway.limit[0].max_in_flight": (8, 64),
        "gateway.max_queued": (1, 100),
        "gateway.bands[0].queue.timeout_s": (0.1, 10),
        "gateway.admission[token_bucket].capacity_tokens": (100, 10_000),
        "instances[0].max_num_seqs": (32, 512),
        "router": ["round_robin", "least_loaded"],
    }
)


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("envoy", {"gateway.limit[0].max_in_flight", "gateway.max_queued"}),
        (
            "llm-d",
            {
                "gateway.limit[0].max_in_flight",
                "gateway.max_queued",
                "gateway.bands[0].queue.timeout_s",
            },
        ),
        (
            "vllm@0.29",
            {"gateway.limit[0].max_in_flight", "gateway.max_queued", "instances[0].max_num_seqs"},
        ),
        ("vllm@0.19", {"gateway.limit[0].max_in_flight", "instances[0].max_num_seqs"}),
        ("dynamo", {"gateway.limit[0].max_in_flight", "router"}),
    ],
)
def test_only_what_changes_the_files_is_searched(system: str, expected: set[str]) -> None:
    found = carried(SPACE, BASE, system)
    assert found.space.dimensions.keys() == expected
    left_out = "\n".join(found.left_out)
    for path in SPACE.dimensions.keys() - expected - {"router"}:
        assert f"not searched: {path}: " in left_out
    # The token bucket, which no system carries, is not there either.
    assert found.simulation.gateway.admission == Simulation().gateway.admission
    assert "searched without: gateway.admission = token_bucket: " in left_out


def test_options_and_kinds_that_are_lost_are_left_out() -> None:
    space = Space(
        {
            "router": ["round_robin", "least_loaded"],
            "gateway.limit": Kinds(
                {
                    "fixed": {"max_in_flight": (8, 64)},
                    "dual_limit": {"max_in_flight": (8, 64)},
                    "saturation": {"queue_depth_threshold": (2, 20)},
                }
            ),
        }
    )
    found = carried(space, Simulation(), "llm-d")
    assert found.space.to_dict() == {
        "gateway.limit": {
            "kinds": {
                "fixed": {"max_in_flight": [8, 64]},
                "saturation": {"queue_depth_threshold": [2, 20]},
            }
        }
    }
    assert [line.partition(": ")[2].partition(":")[0] for line in found.left_out] == [
        "router = round_robin",
        "router = least_loaded",
        "gateway.limit = dual_limit",
    ]
    dynamo = carried(space, Simulation(), "dynamo")
    assert dynamo.space.to_dict()["router"] == {"choices": ["round_robin"]}


def test_a_space_of_which_nothing_is_left_is_refused() -> None:
    space = Space({"instances[0].max_num_seqs": (8, 64)})
    with pytest.raises(ConfigError, match="space: holds nothing that envoy can carry") as caught:
        carried(space, BASE, "envoy")
    assert "not searched: instances[0].max_num_seqs: not up to envoy" in str(caught.value)
    with pytest.raises(ConfigError, match="to = 'nginx': must be one of"):
        carried(space, BASE, "nginx")
