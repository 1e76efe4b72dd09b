"""State of the gateway and the fleet over time, and the actions of the limit's controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway.data.columns import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Control", "Timeline"]


def __dir__() -> list[str]:
    return __all__


class Timeline(Table):
    """Gateway and fleet at one instant per row, as read-only columns.

    time_s; in_flight (requests between dispatch and last token), permits (of the tightest limit,
    over all replicas of the gateway; NaN: the limit does not count requests), waiting and running
    (requests in the engines' queues and batches), kv_utilization (mean over the instances),
    ready_instances.

    Columns of shape (rows, tenants), in the order of `tenants`: submitted, dispatched, shed
    (refused, expired or evicted by the gateway) and completed requests and emitted_tokens, all
    cumulative; queued requests at that instant.
    """

    _key = "time_s"

    def __init__(self, columns: Mapping[str, NDArray[Any]], tenants: Sequence[str]) -> None:
        super().__init__(columns)
        self.tenants = tuple(tenants)

    def of(self, tenant: str) -> dict[str, NDArray[Any]]:
        """The columns of one tenant, by name. Raises KeyError if there is no such tenant."""
        if tenant not in self.tenants:
            raise KeyError(tenant)
        which = self.tenants.index(tenant)
        return {name: column[:, which] for name, column in self.items() if column.ndim == 2}


class Control(Table):
    """One row per tick of the limit's controller, as read-only columns.

    time_s, replica (of the gateway), action (code into `actions`: hold, increase, decrease,
    cooldown, no_signal), value (of the sensor, in its source's unit; NaN: too few samples), samples
    (behind it), setting (the value that the controller moves, after the tick), permits (the
    resulting limit; NaN: not counted in requests), in_flight.
    """

    _key = "time_s"

    actions: tuple[str, ...] = _core.cluster.control_actions

    def count(self, action: str) -> int:
        """Number of ticks with an action. Raises ValueError for one that does not exist."""
        return int((self["action"] == self.actions.index(action)).sum())
