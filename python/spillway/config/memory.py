"""Estimates of the memory of runs, made before they begin."""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import math
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway.config import classes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spillway._core.cluster import Simulation
    from spillway._core.workload import Client, Synthetic, Trace


LIMIT = "SPILLWAY_MEMORY_GB"
"""Environment variable: memory that runs may use, in GB (10**9 bytes).

It replaces the available memory, and may exceed it.
"""

# Measured as growth of the resident set on 64-bit Linux; constant parts are left out.
_REQUEST_BYTES = 92  # a row of the workload and of the request states
_CANDIDATE_BYTES = 92  # of a logged routing decision
_INSTANCE_BYTES = 2800
_RANK_BYTES = 1400  # each further rank of an instance
_SAMPLE_BYTES = 110  # a sample of the timeline, by tenant
_TICK_BYTES = 140  # a tick of the controller in the log
_USER_BYTES = 260  # a closed-loop user
_REQUESTS_BY_DEFAULT = 1000

_SMALL_BYTES = 64e6
"""Memory assumed to be available: querying the system takes as long as a small run."""


@dataclasses.dataclass(frozen=True)
class Need:
    """Memory that one setting requires, and how to reduce it."""

    num_bytes: float
    path: str
    value: str
    what: str
    remedy: str


def needs(simulation: Simulation) -> list[Need]:
    """The needs of one run; a lower bound if the number of requests is not known in advance."""
    metrics = simulation.metrics
    count = _num_requests(simulation)
    groups = simulation.instances
    num_instances = sum(group.count for group in groups)
    legs = 1 if all(group.role == "both" for group in groups) else 2
    largest = max(groups, key=lambda group: group.count * group.data_parallel_size)
    found = [
        _need_of_requests(simulation, count, 0 if metrics.streaming else count * _REQUEST_BYTES),
        Need(
            count * legs * min(metrics.traced_candidates, num_instances) * _CANDIDATE_BYTES,
            "metrics.traced_candidates",
            str(metrics.traced_candidates),
            f"the log of {_count(count * legs)} routing decisions",
            "log fewer candidates",
        ),
        Need(
            sum(
                group.count * (_INSTANCE_BYTES + (group.data_parallel_size - 1) * _RANK_BYTES)
                for group in groups
            ),
            f"instances[{groups.index(largest)}].count",
            str(largest.count),
            f"instances with {largest.data_parallel_size} ranks each",
            "use fewer instances or a smaller data_parallel_size",
        ),
    ]
    if metrics.timeline_step_s is not None:
        samples = _span_s(simulation, count) / metrics.timeline_step_s
        num_tenants = max(
            1, len(simulation.tenants), len({client.tenant for client in _clients(simulation)})
        )
        found.append(
            Need(
                samples * num_tenants * _SAMPLE_BYTES,
                "metrics.timeline_step_s",
                f"{metrics.timeline_step_s:g}",
                f"{_count(samples)} samples for {num_tenants} tenant{'s' * (num_tenants > 1)}",
                "use a longer step",
            )
        )
    if simulation.gateway.controller.kind != "static":
        tick_s = simulation.gateway.sensor.tick_s
        ticks = _recorded_s(simulation, count) / tick_s
        found.append(
            Need(
                ticks * _TICK_BYTES,
                "gateway.sensor.tick_s",
                f"{tick_s:g}",
                f"{_count(ticks)} ticks of the controller",
                "use longer ticks",
            )
        )
    loops = (client.arrivals for client in _clients(simulation))
    if users := sum(loop.users for loop in loops if isinstance(loop, _core.workload.ClosedLoop)):
        what = f"{_count(users)} users"
        found.append(Need(users * _USER_BYTES, "workload.clients", what, what, "use fewer users"))
    return found


def check(
    simulations: Sequence[Simulation],
    num_seeds: int = 1,
    num_threads: int = 1,
    *,
    keep_requests: bool = True,
) -> None:
    """Raises ConfigError with the estimate if runs would need more memory than is available.

    Each simulation is run under `num_seeds` seeds, `num_threads` runs at a time.
    """
    if not simulations:
        return
    of_each = [needs(simulation) for simulation in simulations]
    totals = [sum(need.num_bytes for need in run_needs) for run_needs in of_each]
    at_a_time = min(num_threads, len(simulations) * num_seeds)
    needed = sum(heapq.nlargest(at_a_time, (total for total in totals for _ in range(
        min(num_seeds, at_a_time)))))  # fmt: skip
    if keep_requests:
        num_kept = len(simulations) * num_seeds - at_a_time
        needed += num_kept * sum(run_needs[0].num_bytes for run_needs in of_each) / len(simulations)
    if needed <= _SMALL_BYTES and LIMIT not in os.environ:
        return
    available = available_bytes()
    if needed <= available:
        return
    worst = max(of_each[totals.index(max(totals))], key=lambda need: need.num_bytes)
    whose, each, remedy = "the run", "", worst.remedy
    if len(simulations) * num_seeds > 1:
        whose = f"{len(simulations) * num_seeds} runs, {at_a_time} at a time,"
        each, remedy = " per run", f"{worst.remedy}, or run fewer at a time (threads)"
    allowed = (
        f"{whose} would need about {shown(needed)} of memory, {shown(worst.num_bytes)} of it{each} "
        f"for {worst.what}, but only {shown(available)} is available; {remedy} ({LIMIT} sets "
        "another limit)"
    )
    raise classes.config_error([(worst.path, worst.value, allowed)])


@contextlib.contextmanager
def explained(simulations: Sequence[Simulation]) -> Iterator[None]:
    """Adds to a MemoryError which setting requires the most memory."""
    try:
        yield
    except MemoryError as error:
        worst = max(
            (need for simulation in simulations for need in needs(simulation)),
            key=lambda need: need.num_bytes,
        )
        raise MemoryError(
            f"not enough memory for the run; {worst.path} = {worst.value} needs the most "
            f"({worst.what}): {worst.remedy}"
        ) from error


def available_bytes() -> float:
    """The memory that runs may use: `LIMIT`, or else the available memory of the system.

    Raises ConfigError if `LIMIT` is not a number.
    """
    limit_gb = os.environ.get(LIMIT)
    if limit_gb is not None:
        try:
            limit = float(limit_gb)
        except ValueError:
            limit = math.nan
        if not limit > 0:
            raise classes.config_error([(LIMIT, repr(limit_gb), "must be a number of GB, > 0")])
        return limit * 1e9
    found: list[float] = [math.inf]
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        found.append(address_space)
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        found.append(int(line.split()[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")  # of a container
        most = int((group / "memory.max").read_text(encoding="ascii"))
        found.append(most - int((group / "memory.current").read_text(encoding="ascii")))
    if len(found) == 1:
        with contextlib.suppress(OSError, ValueError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found)


def shown(num_bytes: float) -> str:
    """A number of bytes as text."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {unit}"
    return f"{num_bytes / 1e6:.3g} MB"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _need_of_requests(simulation: Simulation, count: float, num_bytes: float) -> Need:
    workload = simulation.workload
    path, value = "workload", f"{_count(count)} requests"
    if isinstance(workload, _core.workload.Synthetic):
        if workload.num_requests is not None and workload.num_requests == count:
            path, value = "workload.num_requests", str(workload.num_requests)
        elif workload.duration_s is not None:
            path, value = "workload.duration_s", f"{workload.duration_s:g}"
    remedy = "set metrics.streaming to true, or simulate fewer"
    return Need(num_bytes, path, value, f"{_count(count)} requests", remedy)


def _num_requests(simulation: Simulation) -> float:
    workload = simulation.workload
    if isinstance(workload, _core.workload.Trace):
        return _outline_of(workload)[0]
    duration_s = workload.duration_s
    pairs = zip(workload.clients, _rates_per_s(workload), strict=True)
    count = sum(_num_requests_of(duration_s, client, rate_per_s) for client, rate_per_s in pairs)
    most = workload.num_requests
    if most is None and math.isinf(count):
        most = _REQUESTS_BY_DEFAULT
    return count if most is None else min(count, most)


def _num_requests_of(duration_s: float | None, client: Client, rate_per_s: float) -> float:
    most = math.inf if client.num_requests is None else client.num_requests
    arrivals = client.arrivals
    if isinstance(arrivals, _core.workload.ClosedLoop):
        return most if math.isfinite(most) else arrivals.users
    ends_s = [end_s for end_s in (duration_s, client.duration_s) if end_s is not None]
    span_s = max(0, min(ends_s, default=math.inf) - client.start_s)
    return min(most, span_s * rate_per_s)


def _rates_per_s(workload: Synthetic) -> list[float]:
    """The rate of each client, 0 for closed-loop clients."""
    clients = [
        (client.arrivals.kind == "closed_loop", client.requests_per_s, client.rate_fraction)
        for client in workload.clients
    ]
    shared = [0 if is_closed or own else fraction for is_closed, own, fraction in clients]
    unit_per_s = workload.requests_per_s / (math.fsum(shared) or 1)
    return [
        0 if is_closed else own or fraction * unit_per_s
        for (is_closed, own, _), fraction in zip(clients, shared, strict=True)
    ]


def _span_s(simulation: Simulation, count: float) -> float:
    """Lower bound of the time during which requests arrive."""
    workload = simulation.workload
    if isinstance(workload, _core.workload.Trace):
        span_s = _outline_of(workload)[1]
    else:
        rate_per_s = math.fsum(_rates_per_s(workload))
        span_s = workload.duration_s or math.inf
        if rate_per_s > 0:
            span_s = min(span_s, count / rate_per_s)
        if math.isinf(span_s):
            span_s = 0
    return min(span_s, math.inf if simulation.horizon_s is None else simulation.horizon_s)


def _recorded_s(simulation: Simulation, count: float) -> float:
    """The time whose ticks are recorded one by one, at least.

    While the system is idle and the limit stays, ticks are recorded together. A policy in Python
    may move it at any tick, and metrics that are renewed when a tick reads them follow the ticks.
    """
    span_s, gateway = _span_s(simulation, count), simulation.gateway
    if gateway.controller.kind == "python":
        return span_s
    if gateway.controller.kind == "concur" or gateway.sensor.source in _OF_INSTANCES:
        settles = simulation.signals.kind != "on_read" and gateway.controller.kind != "vegas"
        return 0 if settles else span_s
    return min(span_s, count * gateway.sensor.window_s)


# Sources that are read from the instances at every tick.
_OF_INSTANCES = ("kv_utilization", "hit_rate")

# Requests and time of the last arrival, by digest and transforms.
_OUTLINES: dict[tuple[Any, ...], tuple[float, float]] = {}


def _outline_of(trace: Trace) -> tuple[float, float]:
    key = (trace.sha256, trace.session_segments, tuple(trace.transforms))
    if key not in _OUTLINES:
        found: dict[str, float] = {}
        if trace.has_requests and trace.rows:
            found = _core.workload._outline(trace, len(trace.transforms))  # type: ignore[attr-defined]
        _OUTLINES[key] = (found.get("rows", trace.rows), found.get("last_s", 0))
    return _OUTLINES[key]


def _clients(simulation: Simulation) -> Sequence[Client]:
    """The clients of a workload; none of a trace."""
    workload = simulation.workload
    return () if isinstance(workload, _core.workload.Trace) else workload.clients
