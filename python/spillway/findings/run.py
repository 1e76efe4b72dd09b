"""A run as diagnoses see it: its figures, and its requests as arrays, each derived on first use."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spillway.analysis.stationarity import Saturation, saturation
from spillway.data.targets import compare_with_targets
from spillway.findings.parts import Parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spillway.data.arrays import Booleans, Floats
    from spillway.data.figures import Figures
    from spillway.data.result_data import ResultData

_UNDER_WAY = ("completed", "queued", "running", "in_transit", "at_admission")
_HARMED = 0.05


class Stays(NamedTuple):
    """The stays of requests at instances: two of one that passes through both pools.

    `row`: of the request. Instants in s: when it was sent there, got its seat, and left.
    """

    row: NDArray[np.int64]
    instance: NDArray[np.int64]
    sent_s: Floats
    seated_s: Floats
    left_s: Floats


class Run:
    """A result, and what diagnoses derive from it.

    The arrays have a row per offered request, in seconds; NaN: it did not come that far. They need
    requests that were kept, and latencies that are differences of timestamps (`has_times`).
    """

    def __init__(self, result: ResultData) -> None:
        self.result = result
        self.simulation = result.simulation
        self.summary: Figures = result.summary()
        self.activity = result.activity
        self.ledger = result.ledger
        self.has_times = result.has_requests and self.simulation.metrics.accounting == "clock"

    @functools.cached_property
    def parts(self) -> Parts:
        """The structures of the simulation, by path."""
        return Parts(self.simulation)

    @functools.cached_property
    def saturation(self) -> Saturation | None:
        """Whether the system kept up; None if the requests were not kept."""
        return saturation(self.result) if self.result.has_requests else None

    @property
    def is_saturated(self) -> bool:
        """Whether the backlog grew until the end, or filled."""
        return self.saturation is not None and self.saturation.verdict == "saturated"

    # ---- requests ----

    def column(self, name: str) -> Any:
        """A column of `Result.requests`; names are codes."""
        return self.result._columns()[name]

    @functools.cached_property
    def counts(self) -> Booleans:
        """The requests that arrived in the measured window, with a single attempt."""
        in_window = self.column("arrival_s") >= self.simulation.warm_up_s
        found: Booleans = in_window & (self.column("attempts") <= 1)
        return found

    @functools.cached_property
    def arrival_s(self) -> Floats:
        """Instants of arrival."""
        found: Floats = self.column("arrival_s")
        return found

    @functools.cached_property
    def queue_s(self) -> Floats:
        """From arrival to dispatch; NaN also where a later attempt was dispatched."""
        found: Floats = np.where(self.column("attempts") <= 1, self.column("queue_s"), np.nan)
        return found

    @functools.cached_property
    def dispatched_s(self) -> Floats:
        """Instants of dispatch; NaN also where a later attempt was dispatched."""
        return self.arrival_s + self.queue_s

    @functools.cached_property
    def scheduled_s(self) -> Floats:
        """Instants at which an engine first scheduled the request."""
        found: Floats = self.arrival_s + self.column("scheduling_delay_s")
        return found

    @functools.cached_property
    def first_token_s(self) -> Floats:
        """Instants of the first token."""
        found: Floats = self.arrival_s + self.column("ttft_s")
        return found

    @functools.cached_property
    def left_s(self) -> Floats:
        """Instants at which the request left its server; the end of the run if it did not."""
        end = self.arrival_s + self.column("e2e_s")
        found: Floats = np.where(np.isnan(end), self.result.end_s, end)
        return found

    @functools.cached_property
    def computed_at(self) -> NDArray[np.int64]:
        """The instance that computes the prompt; -1: never routed."""
        instance: NDArray[np.int64] = self.column("instance").astype(np.int64)
        if "prefill_instance" not in self.result._columns():
            return instance
        return np.where(self._has_legs, self.column("prefill_instance"), instance)

    @functools.cached_property
    def computed_s(self) -> Floats:
        """Instants at which the prompt is computed; NaN: it was not."""
        if "prefill_instance" not in self.result._columns():
            return self.first_token_s
        return np.where(self._has_legs, self.column("prefill_end_s"), self.first_token_s)

    @property
    def _has_legs(self) -> Booleans:
        found: Booleans = self.column("prefill_instance") >= 0
        return found

    @functools.cached_property
    def stays(self) -> Stays:
        """The stays of all requests that were routed, the first ones first.

        Those of requests that went on at other instances have no known instants, but with pools the
        last one has.
        """
        rows = np.arange(len(self.arrival_s))
        if "prefill_instance" not in self.result._columns():
            instants_s = (self.dispatched_s, self.scheduled_s, self.left_s)
            known_s = (np.where(self.moved, np.nan, instant_s) for instant_s in instants_s)
            return Stays(rows, self.computed_at, *known_s)
        ends = self.column("prefill_end_s")
        continues = self._has_legs & ~np.isnan(ends)
        first_left = np.where(continues, ends, self.left_s)
        seated = ends + self.column("transfer_s") + self.column("decode_queue_s")
        moved = self.moved
        pairs = (
            (rows, rows[continues]),
            (self.computed_at, self.column("instance")[continues]),
            (np.where(moved, np.nan, self.dispatched_s), ends[continues]),
            (np.where(moved, np.nan, self.scheduled_s), seated[continues]),
            (np.where(moved, np.nan, first_left), self.left_s[continues]),
        )
        return Stays(*map(np.concatenate, pairs))

    @functools.cached_property
    def moved(self) -> Booleans:
        """The requests that went on at other instances: only the last one is recorded."""
        if "migrations" not in self.result._columns():
            return np.zeros(len(self.arrival_s), dtype=bool)
        found: Booleans = self.column("migrations") > 0
        return found

    @functools.cached_property
    def lost(self) -> Booleans:
        """The requests that were refused, dropped, evicted, withdrawn, or failed."""
        outcomes = self.result._names()["outcomes"]
        kept = [name in _UNDER_WAY for name in outcomes]
        found: Booleans = ~np.array(kept)[self.column("outcome")]
        return found

    @functools.cached_property
    def missed(self) -> Booleans:
        """The requests that were lost, or that completed and missed a target of their class."""
        return self._missed(np.zeros(len(self.arrival_s)))

    @functools.cached_property
    def missed_by_queue(self) -> Booleans:
        """The requests that missed a target only because of their wait in the gateway."""
        waits_s = np.nan_to_num(self.queue_s)
        found: Booleans = self.missed & ~self._missed(waits_s)
        return found

    def _missed(self, less_s: Floats) -> Booleans:
        """The requests that were lost, or late even if they had waited this much less."""
        names = np.array(self.result._names()["slo_classes"])[self.column("slo_class")]
        latencies_s = [
            self.column("ttft_s") - less_s, self.column("tpot_s"), self.column("e2e_s") - less_s
        ]  # fmt: skip
        promised, meets = compare_with_targets(
            self.simulation.slo_classes, names, *(of_s * 1e9 for of_s in latencies_s)
        )
        waits = np.isnan(self.column("e2e_s")) & ~self.lost
        found: Booleans = self.lost | (promised & ~meets & ~waits)
        return found

    def harm(self, rows: Booleans | None = None) -> float:
        """The share of the requests that were lost or late; 0 if there are none."""
        if not self.result.has_requests:
            goodput = self.summary["goodput"]
            return 0.0 if goodput is None else 1 - float(goodput)
        rows = self.counts if rows is None else rows & self.counts
        return float(self.missed[rows].mean()) if rows.any() else 0.0

    @property
    def is_harmed(self) -> bool:
        """Whether more than a twentieth of the requests was lost or late, or the backlog grows."""
        return self.harm() > _HARMED or self.is_saturated

    def severity_of(self, rows: Booleans | None = None) -> Any:
        """High if the requests are harmed, otherwise medium."""
        return "high" if self.harm(rows) > _HARMED or self.is_saturated else "medium"

    @property
    def lost_share(self) -> float:
        """The share of the attempts that were not completed for a reason."""
        attempts = self.ledger["attempts"]
        return sum(self.activity["not_completed"].values()) / attempts if attempts else 0.0

    # ---- classes ----

    @functools.cached_property
    def priorities(self) -> NDArray[np.int64]:
        """The priority of the class of each request."""
        of_name = {known.name: known.priority for known in self.simulation.slo_classes}
        names = self.result._names()["slo_classes"]
        default = of_name.get("standard", 0)
        of_code = np.array([of_name.get(name, default) for name in names], dtype=np.int64)
        found: NDArray[np.int64] = of_code[self.column("slo_class")]
        return found

    def class_names(self, rows: Booleans) -> str:
        """The classes of these requests, as text."""
        names = self.result._names()["slo_classes"]
        codes = np.unique(self.column("slo_class")[rows])
        return ", ".join(str(names[code]) for code in codes)

    # ---- servers ----

    @functools.cached_property
    def num_instances(self) -> int:
        """Number of instances that the fleet may have."""
        return sum(group.count for group in self.simulation.instances)

    @functools.cached_property
    def num_choices(self) -> int:
        """Number of these that a request may be continued at: without the prefill pool."""
        return sum(group.count for group in self.simulation.instances if group.role != "prefill")

    @functools.cached_property
    def engine_wait_s(self) -> Floats:
        """From dispatch to the first step: routing, ingress, the queue of the engine."""
        found: Floats = self.column("scheduling_delay_s") - self.queue_s
        return found

    @functools.cached_property
    def is_equal_fleet(self) -> bool:
        """Whether all servers are alike, and there at all times."""
        fleet = self.simulation.fleet
        fixed = fleet.autoscaler.kind == "none" and (
            (fleet.initial_instances, fleet.target_instances, fleet.breakdowns) == (None,) * 3
        )
        kinds = {group.replace(count=1) for group in self.simulation.instances}
        return fixed and len(kinds) == 1 and not self.simulation.changes

    def running_at(self, instants_s: Floats, rows: Booleans | None = None) -> Floats:
        """How many requests (of these rows) were in batches at each of the instants."""
        known = ~np.isnan(self.scheduled_s) & ~(self.lost & np.isnan(self.column("e2e_s")))
        if rows is not None:
            known &= rows
        starts = np.sort(self.scheduled_s[known])
        ends = np.sort(self.left_s[known])
        began = np.searchsorted(starts, instants_s, side="right")
        found: Floats = (began - np.searchsorted(ends, instants_s, side="right")).astype(float)
        return found
