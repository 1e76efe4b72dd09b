"""Which rules of the scheduler hold in a version of vLLM: the presets of `instance.EngineRules`."""

from __future__ import annotations

import re

from spillway._core.instance import EngineRules, InstanceGroup
from spillway.config.classes import config_error

PRESETS = ("vllm-0.19", "vllm-0.23", "vllm-0.31", "vllm-0.33")
"""Each holds from its version up to the next one's."""


def preset_of(version: str) -> str:
    """Return the preset for a version such as 0.32 or 0.33.0; ConfigError before the oldest."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    for preset in reversed(PRESETS):
        first = tuple(int(part) for part in preset.removeprefix("vllm-").split("."))
        if number >= first:
            return preset
    raise config_error(
        [("version", repr(version), f"must be X.Y, from {PRESETS[0].removeprefix('vllm-')} on")]
    )


def applied(group: InstanceGroup, version: str) -> InstanceGroup:
    """Return the group under the rules of a version, with answers in its prefix cache."""
    return group.replace(
        engine_rules=EngineRules.preset(preset_of(version)),
        kv_cache=group.kv_cache.replace(generated_tokens=True),
    )
