"""A measured run as the workload of a simulation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import instance
from spillway._core.cluster import Simulation
from spillway.calibration.catalog import architecture_of, limits_of, version_of
from spillway.data.recording import RequestCounts
from spillway.files.recordings.repeats import repeat_period
from spillway.files.traces import trace
from spillway.systems.vllm import rules

if TYPE_CHECKING:
    from spillway._core.workload import Trace
    from spillway.data.arrays import Booleans, Ints
    from spillway.data.recording import Recording, ServerFacts


_COLD_PERIODS = 1.5
_MISCOUNT = 0.8
_USUAL_SHARE = 0.6
_WARM_UP_S = 30.0  # between requests of a warm-up, each of which ends before the next
_NEW_TOKENS = 64  # of a first prompt that its warm-up lacks: the question


@dataclass(frozen=True, eq=False)
class Replay:
    """A measured run, and what of it is replayed and compared.

    Turns of sessions begin with the conversation before, and prompts of which tokens were cached
    begin alike (`Recording.to_trace`). What recordings do not state:

    - Prompts that repeat (`files.recordings.repeats`) become prefix groups, so that the prefix
      cache holds them, where there are neither sessions nor cached tokens. The first 1.5 periods
      are cold, and not compared.
    - Whether the first turns of sessions were in the cache, too, e.g. by a warm-up that is not in
      the file: `warms` of each are sent before the run, one for each replica.
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
    warms: int = 0

    @cached_property
    def period(self) -> int | None:
        """Number of requests after which the prompts repeat; None: never, or not to be seen."""
        run = self.recording
        if not self.repeats or run.session is not None or run.cached_tokens is not None:
            return None
        return repeat_period(run.input_tokens)

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
    def lead(self) -> int:
        """Number of requests before the recorded ones, which warm the cache."""
        return self.warms * len(self._first_turns)

    @cached_property
    def trace(self) -> Trace:
        """The workload: `lead` requests that are not recorded, then the recorded ones."""
        run, lead = self.recording, self.lead
        limit = run.client_max_in_flight
        found = self._requests()
        if not self.is_closed_loop or limit is None:
            return found
        assert self.limited_from is not None
        return found.replace(
            max_in_flight=limit,
            open_loop_requests=lead + self.limited_from,
            turnaround_s=self.turnaround_s,
        )

    def _requests(self) -> Trace:
        run, prompts, period = self.recording, self.input_tokens, self.period
        if period is not None:
            groups = [f"{i % period}/{tokens}" for i, tokens in enumerate(prompts)]
            return trace(
                arrival_s=run.send_s, input_tokens=prompts, output_tokens=self.output_tokens,
                prefix_group=groups, prefix_tokens=prompts,
            )  # fmt: skip
        nothing: dict[str, Any] = {"session": None, "cached_tokens": None}
        replayed = dataclasses.replace(
            run,
            input_tokens=prompts,
            output_tokens=self.output_tokens,
            failed=np.zeros(run.num_requests, dtype=bool),
            client_max_in_flight=None,
            counts=RequestCounts(),
            reported=(),
            token_gaps=None,
            **({} if self.repeats else nothing),
        )
        return (
            _warmed(replayed, self._first_turns, self.warms) if self.lead else replayed
        ).to_trace()

    @cached_property
    def _first_turns(self) -> Ints:
        """The first request of each session."""
        if self.recording.session is None or not self.repeats:
            return np.zeros(0, dtype=np.int64)
        sessions = np.array(self.recording.session)
        names, first = np.unique(sessions, return_index=True)
        return np.sort(first[names != ""]).astype(np.int64)

    def simulation(self, group: instance.InstanceGroup, **settings: Any) -> Simulation:
        """The replay on as many instances as served the run, with other settings."""
        fleet = group.replace(count=self.recording.num_replicas or 1)
        return Simulation(workload=self.trace, instances=[fleet], **settings)


def _warmed(run: Recording, first: Ints, times: int) -> Recording:
    """The run behind a warm-up with the beginnings of its sessions."""
    assert run.session is not None
    warm = np.repeat(first, times)
    gap_s = _WARM_UP_S
    begin_s = np.repeat(np.arange(len(first)) * gap_s, times)
    tokens = np.maximum(run.input_tokens[warm] - _NEW_TOKENS, 1)

    def after(lead: Any, column: Any) -> Any:
        return np.concatenate([lead, column])

    none = np.full(len(warm), np.nan)
    return dataclasses.replace(
        run,
        send_s=after(begin_s, run.send_s + len(first) * gap_s),
        input_tokens=after(tokens, run.input_tokens),
        output_tokens=after(np.ones(len(warm), dtype=np.int64), run.output_tokens),
        ttft_s=after(none, run.ttft_s),
        e2e_s=after(none, run.e2e_s),
        failed=np.zeros(len(warm) + run.num_requests, dtype=bool),
        failure_s=after(none, run.failure_s),
        tenant=None,
        cached_tokens=None,
        session=(*(run.session[row] for row in warm), *run.session),
    )


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
    """The server with these step times; `catalog.limits_of` has what the facts do not state.

    Its scheduler follows the rules of its version, from vLLM 0.19 on. Before, of other engines, and
    of servers of one role, which pools take with the default server's rules only, those hold.
    """
    version = version_of(server)
    is_reserving = version is not None and version >= (0, 19)
    limits: dict[str, Any] = {name: limit.value for name, limit in limits_of(server).items()}
    architecture = architecture_of(server.model)
    group = instance.InstanceGroup(
        **limits,
        lockstep_ranks=limits["data_parallel_size"] > 1
        and architecture is not None
        and architecture.is_mixture,
        kv_cache=instance.KvCache(
            prefix_caching=server.prefix_caching is not False,
            reserve_full_prompt=is_reserving,
            generated_tokens=True,
        ),
        latency=latency,
        async_scheduling=ahead,
    )
    if version is None or not is_reserving or server.role in ("prefill", "decode"):
        return group
    return rules.applied(group, f"{version[0]}.{version[1]}")
