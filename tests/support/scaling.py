"""The rule of an autoscaler."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spillway import fleet


def recommended(
    config: fleet.TargetScaler, loads: list[float], poll_s: float, initial: int = 1
) -> list[int]:
    """The rule of the horizontal pod autoscaler, written down plainly."""
    instances, wishes, result = initial, [], []
    for k, total in enumerate(loads, start=1):
        now = k * poll_s
        wish = math.ceil(total / config.target)
        if instances and abs(total / (config.target * instances) - 1) <= config.tolerance:
            wish = instances
        wishes.append((now, min(max(wish, config.min_instances), config.max_instances)))
        up = min(w for t, w in wishes if now - t <= config.up_stabilization_s)
        down = max(w for t, w in wishes if now - t <= config.down_stabilization_s)
        if up > instances and now >= config.up_stabilization_s:
            most = max(
                math.floor(instances * (1 + config.up_share)), instances + config.up_instances
            )
            instances = min(up, most)
        elif down < instances and now >= config.down_stabilization_s:
            least = math.ceil(instances * (1 - config.down_share))
            instances = max(down, min(least, instances - 1))
        result.append(instances)
    return result
