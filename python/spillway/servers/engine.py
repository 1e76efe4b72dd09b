"""What `vllm serve` chooses where no flag says otherwise, by version.

Sources: `get_batch_defaults` in vllm/engine/arg_utils.py (0.11 to 0.27: the larger limits on
accelerators with at least 70 GiB that are not A100), vllm/config/cache.py and the start-up log
(CUDA graphs are part of the memory profile since 0.21.0, and the default utilization rose from 0.90
to 0.92), vLLM's release notes (one step ahead by default from 0.15 on, full-prompt reservation from
0.19 on).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.config.classes import config_error

if TYPE_CHECKING:
    from spillway.servers.accelerator import Accelerator


DEFAULT_ENGINE = "vllm-0.19"
"""The engine of servers that name none."""

_LARGE_GIB = 70
_FIRST = (0, 8)

NEWEST = (0, 27)
"""The newest version whose rules are known; newer ones are taken to have the same."""


@dataclass(frozen=True)
class Engine:
    """A version of vLLM: its major and minor number."""

    version: tuple[int, int]

    @property
    def name(self) -> str:
        """The name as in `engine="vllm-0.19"`."""
        return f"vllm-{self.version[0]}.{self.version[1]}"

    @property
    def gpu_memory_utilization(self) -> float:
        """Share of the memory that the engine takes."""
        return 0.92 if self.version >= (0, 21) else 0.9

    @property
    def counts_graphs(self) -> bool:
        """Whether the memory profile contains CUDA graphs."""
        return self.version >= (0, 21)

    @property
    def async_scheduling(self) -> bool:
        """Whether the engine schedules one step ahead."""
        return self.version >= (0, 15)

    @property
    def reserve_full_prompt(self) -> bool:
        """Whether a request waits until its whole prompt has memory."""
        return self.version >= (0, 19)

    def batch_limits(self, accelerator: Accelerator) -> tuple[int, int]:
        """Maximum number of sequences, and of tokens in a step."""
        if accelerator.memory_gib < _LARGE_GIB or "a100" in accelerator.name.lower():
            return 256, 2048
        return (1024 if self.version >= (0, 10) else 256), 8192


def engine(name: str) -> Engine:
    """The engine of a name such as vllm-0.19; ConfigError for others."""
    found = re.fullmatch(r"vllm-v?(\d+)\.(\d+)(?:\..*)?", str(name))
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < _FIRST:
        raise config_error([("engine", repr(name), "must be vllm-X.Y, from vllm-0.8 on")])
    return Engine(version)
