"""State of the gateway and the fleet over time, and the actions of the limit's controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import _core
from spillway._core.sim import UsageError
from spillway.config import memory
from spillway.data.column_table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray


class Timeline(Table):
    """Gateway and fleet at one instant per row, as read-only columns.

    time_s; in_flight (requests between dispatch and last token), permits (of the tightest limit,
    over all replicas of the gateway; NaN: the limit does not count requests), waiting and running
    (requests in the engines' queues and batches), kv_utilization (mean over the instances),
    ready_instances.

    With prefill and decode pools also, of the instances of each: prefill_in_flight and
    decode_in_flight (legs from the choice of their instance to their end), prefill_waiting,
    prefill_running, prefill_kv_utilization, prefill_ready_instances, decode_waiting (with those
    whose prompts are on the way), decode_running, decode_kv_utilization, decode_ready_instances;
    transfers (prompts on the way from one pool to the
    other, or waiting for the link). An instance of role both counts in both pools.

    Columns of shape (rows, tenants), in the order of `tenants`: submitted, dispatched, shed
    (refused, expired or evicted by the gateway) and completed requests and emitted_tokens, all
    cumulative; queued requests at that instant.
    """

    _key = "time_s"

    def __init__(self, columns: Mapping[str, NDArray[Any]], tenants: Sequence[str]) -> None:
        super().__init__(columns)
        self.tenants = tuple(tenants)

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools that have columns: prefill and decode, or none."""
        return ("prefill", "decode") if "transfers" in self else ()

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

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        own = {name: column for name, column in columns.items() if name not in _OF_REPEATS}
        super().__init__(own)
        # Ticks of an idle gateway that are alike are recorded once; they become rows when a column
        # is read.
        self._repeated = dict(columns) if "repeats" in columns else None

    def __getitem__(self, name: str) -> NDArray[Any]:
        if self._repeated is not None:
            self._columns = _in_full(self._repeated)
            self._repeated = None
        return super().__getitem__(name)

    def num_ticks(self, where: Callable[[Mapping[str, NDArray[Any]]], Any] | None = None) -> int:
        """Number of ticks, or of those that a function of the columns selects.

        It takes no memory for the rows of an idle gateway, unlike reading a column.
        """
        columns = self._columns if self._repeated is None else self._repeated
        ticks = np.ones(len(columns["time_s"]), np.int64)
        ticks += columns.get("repeats", 0)
        return int(ticks.sum() if where is None else ticks[where(columns)].sum())

    def count(self, action: str) -> int:
        """Number of ticks with an action. Raises ValueError for one that does not exist."""
        code = self.actions.index(action)
        return self.num_ticks(lambda columns: columns["action"] == code)


_OF_REPEATS = ("repeats", "time_ns", "interval_ns")


def _in_full(columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The rows with those that repeat others, in order of time, then of replicas."""
    times = columns["repeats"] + 1
    total = int(times.sum())
    needed = total * sum(column.itemsize for column in columns.values())
    if needed > memory.available_bytes():
        raise UsageError(
            f"result.control has {total:,} rows, one per tick (gateway.sensor.tick_s), which take "
            f"{memory.shown(needed)} of memory; {memory.shown(memory.available_bytes())} are "
            "available. num_ticks and count need none."
        )
    first = np.cumsum(times) - times
    number = np.arange(total) - np.repeat(first, times)
    full = {
        name: np.repeat(column, times)
        for name, column in columns.items()
        if name not in _OF_REPEATS
    }
    time_ns, interval_ns = (np.repeat(columns[name], times) for name in ("time_ns", "interval_ns"))
    time_ns = time_ns + number * interval_ns
    order = np.lexsort((full["replica"], time_ns))
    full["time_s"] = time_ns / 1e9
    for name, column in full.items():
        full[name] = column[order]
        full[name].setflags(write=False)
    return full
