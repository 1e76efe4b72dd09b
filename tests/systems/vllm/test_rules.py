"""Which rules of the scheduler hold in a version."""

from __future__ import annotations

import pytest

from spillway import ConfigError, Simulation, instance
from spillway.systems.vllm import rules


@pytest.mark.parametrize(
    ("version", "preset"),
    [
        ("0.19", "vllm-0.19"),
        ("v0.22.1", "vllm-0.19"),
        ("0.23.0", "vllm-0.23"),
        ("0.30.0", "vllm-0.23"),
        ("0.32.1", "vllm-0.31"),
        ("0.33.0", "vllm-0.33"),
        ("1.0", "vllm-0.33"),
    ],
)
def test_preset_of_a_version(version: str, preset: str) -> None:
    assert rules.preset_of(version) == preset


@pytest.mark.parametrize("version", ["0.18.1", "latest", ""])
def test_versions_without_rules_are_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=r"must be X\.Y, from 0\.19 on"):
        rules.preset_of(version)


def test_presets_are_those_of_the_settings() -> None:
    assert tuple(instance.EngineRules.presets()) == rules.PRESETS
    given = Simulation.from_dict({"instances": [{"engine_rules": {"preset": "vllm-0.33"}}]})
    assert given.instances[0].engine_rules == instance.EngineRules.preset("vllm-0.33")


def test_rules_that_changed_between_versions() -> None:
    old, new = (instance.EngineRules.preset(name) for name in ("vllm-0.19", "vllm-0.33"))
    assert (old.free_blocks, new.free_blocks) == ("oldest_first", "blank_first")
    assert (old.self_preemption, new.self_preemption) == ("ends_step", "continues")
    assert (old.caps_lone_requests, new.caps_lone_requests) == (True, False)
    assert old.equal_blocks == new.equal_blocks == "first"


def test_a_group_under_the_rules_of_a_version() -> None:
    group = instance.InstanceGroup(max_num_seqs=7)
    applied = rules.applied(group, "0.33.0")
    assert applied.engine_rules == instance.EngineRules.preset("vllm-0.33")
    assert applied.kv_cache.generated_tokens
    assert applied.max_num_seqs == 7
