"""A measured run as the workload of a simulation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import instance
from spillway._core.cluster import Simulation
from spillway.files.recordings.repeats import repeat_period
from spillway.files.traces import trace

if TYPE_CHECKING:
    from spillway._core.workload import Trace
    from spillway.data.arrays import Booleans, Ints
    from spillway.data.recording import Recording, ServerFacts


_COLD_PERIODS = 1.5
_MISCOUNT = 0.8
_USUAL_SHARE = 0.6


@dataclass(frozen=True, eq=False)
class Replay:
    """A measured run, and what of it is replayed and compared.

    Recordings state neither which prompts repeat nor how long the outputs really were:

    - Prompts that repeat (`files.recordings.repeats`) become prefix groups, so that the prefix
      cache holds them. The first 1.5 periods are cold, and not compared.
    - Where at least 60% of the output lengths lie within 20% of their median, the client asked for
      a fixed length, and shorter counts are counting errors: they become the median.
    - Failed requests are replayed with the median lengths, and not compared.

    A run in which the client's limit on requests in flight was reached is replayed in a closed loop
    from there on. Nothing else depends on latencies, but for `turnaround_s`, which is measured on
    runs to fit.
    """

    recording: Recording
    turnaround_s: float = 0.0
    repeats: bool = True

    @cached_property
    def period(self) -> int | None:
        """Number of requests after which the prompts repeat; None: never, or not to be seen."""
        return repeat_period(self.recording.input_tokens) if self.repeats else None

    @cached_property
    def input_tokens(self) -> Ints:
        """Lengths of the replayed prompts."""
        tokens = self.recording.input_tokens
        return _with_median(tokens, (tokens < 1) | self.recording.failed)

    @cached_property
    def output_tokens(self) -> Ints:
        """Lengths of the replayed outputs."""
        tokens = self.recording.output_tokens
        served = tokens[~self.recording.failed]
        usual = float(np.median(served)) if len(served) else 0.0
        near = np.abs(served - usual) <= (1 - _MISCOUNT) * usual
        is_fixed = len(served) > 0 and near.mean() >= _USUAL_SHARE
        short = tokens < _MISCOUNT * usual if is_fixed else np.zeros(len(tokens), dtype=bool)
        return _with_median(tokens, short | self.recording.failed)

    @cached_property
    def compared(self) -> Booleans:
        """The requests to compare: served, and not at the cold start."""
        run = self.recording
        rows = ~run.failed & np.isfinite(run.e2e_s) & np.isfinite(run.ttft_s)
        if self.period is not None:
            rows &= np.arange(run.num_requests) >= _COLD_PERIODS * self.period
        return rows

    @cached_property
    def limited_from(self) -> int | None:
        """First request sent after the client's limit had been reached; None: it never was."""
        return limited_from(self.recording)

    @property
    def is_closed_loop(self) -> bool:
        """Whether arrivals depend on the service."""
        return self.limited_from is not None

    @cached_property
    def trace(self) -> Trace:
        """The workload."""
        prompts, period = self.input_tokens, self.period
        columns: dict[str, Any] = {"input_tokens": prompts, "output_tokens": self.output_tokens}
        if period is not None:
            groups = [f"{i % period}/{tokens}" for i, tokens in enumerate(prompts)]
            columns |= {"prefix_group": groups, "prefix_tokens": prompts}
        found = trace(arrival_s=self.recording.send_s, **columns)
        limit = self.recording.client_max_in_flight
        if not self.is_closed_loop or limit is None:
            return found
        return found.replace(
            max_in_flight=limit,
            open_loop_requests=self.limited_from,
            turnaround_s=self.turnaround_s,
        )

    def simulation(self, group: instance.InstanceGroup, **settings: Any) -> Simulation:
        """The replay on one instance, with other settings of the simulation."""
        return Simulation(workload=self.trace, instances=[group], **settings)


def limited_from(run: Recording) -> int | None:
    """First request sent after the client's limit on requests in flight had been reached.

    None: there is no limit, or it was never reached.
    """
    limit = run.client_max_in_flight
    if limit is None or run.in_flight() < limit:
        return None
    done = ~run.failed & np.isfinite(run.e2e_s)
    # Sums of floats differ in their last digits where instants are the same.
    ends_s = np.sort(np.round((run.send_s + run.e2e_s)[done], 9))
    ended = np.searchsorted(ends_s, np.round(run.send_s, 9), side="right")
    reached = np.cumsum(done) - ended >= limit
    return int(np.argmax(reached)) + 1 if reached.any() else None


def measured_turnaround_s(runs: list[Recording]) -> float:
    """Median time from the end of a request to the next one, while the client was at its limit."""
    spans: list[float] = []
    for run in runs:
        limit = run.client_max_in_flight
        if limit is None or limited_from(run) is None:
            continue
        ends_s = np.sort((run.send_s + run.e2e_s)[~run.failed])
        ended = np.searchsorted(ends_s, run.send_s, side="right")
        full = np.arange(run.num_requests) - ended >= limit - 1
        full &= ended > 0
        spans.extend((run.send_s[full] - ends_s[ended[full] - 1]).tolist())
    return float(np.median(spans)) if spans else 0.0


def _with_median(tokens: Ints, wrong: Booleans) -> Ints:
    if not wrong.any() or wrong.all():
        return np.maximum(tokens, 1)
    return np.where(wrong, int(np.median(tokens[~wrong])), tokens)


def version_of(server: ServerFacts) -> tuple[int, int] | None:
    """Major and minor version of the engine; None: not stated."""
    found = re.match(r"v?(\d+)\.(\d+)", server.engine_version or "")
    return (int(found[1]), int(found[2])) if found else None


def plans_ahead(server: ServerFacts) -> bool | None:
    """Whether the engine schedules one step ahead by default; None: it depends, or is not known.

    vLLM up to 0.10 does not, vLLM from 0.15 on does.
    """
    if server.async_scheduling is not None:
        return server.async_scheduling
    version = version_of(server)
    if version is None or (0, 10) < version < (0, 15):
        return None
    return version >= (0, 15)


def group_of(
    server: ServerFacts, latency: instance.Roofline | instance.StepTable, *, ahead: bool
) -> Any:
    """The server with these step times.

    Where the facts state no limits, they are vLLM's on a small accelerator; memory and context
    that they do not state hardly ever bind.
    """
    version = version_of(server)
    limits: dict[str, Any] = {
        "data_parallel_size": 1,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "max_model_len": 0,
        "block_size_tokens": 16,
        "num_kv_blocks": 132_139,
    }
    facts = {name: getattr(server, name) for name in limits}
    limits |= {name: limit for name, limit in facts.items() if limit is not None}
    return instance.InstanceGroup(
        **limits,
        kv_cache=instance.KvCache(
            prefix_caching=server.prefix_caching is not False,
            reserve_full_prompt=version is not None and version >= (0, 19),
        ),
        latency=latency,
        async_scheduling=ahead,
    )
