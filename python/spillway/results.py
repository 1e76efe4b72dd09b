"""What a run leaves behind."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from spillway import _core, files, profiles
from spillway._core.cluster import Simulation
from spillway._extras import require
from spillway._messages import checked
from spillway._statistics import Interval, interval
from spillway.randomness import note_on_copies
from spillway.report import tables

# Views of a result are imported by the method that makes them: few of them are asked for.
if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from spillway._core.cluster import RequestRecord
    from spillway._counters import Version
    from spillway.decisions import AdmissionByGroupAge, AdmissionRegret, Decisions
    from spillway.overload import Recovery
    from spillway.report.plots import Plots
    from spillway.timeline import Control, Timeline

Figure = float | int | None

_CODED = {
    "outcome": "outcomes",
    "reason": "reasons",
    "tenant": "tenants",
    "slo_class": "slo_classes",
}


class Figures(Mapping[str, Figure]):
    """Named figures of one population; None where a figure has no population.

    Keys follow `vllm bench serve`: `p99_ttft_ms`, `mean_tpot_ms`, `request_throughput`, `goodput`.
    `num_ttft` and its like count the requests (for `itl`: the gaps) behind a percentile.
    """

    def __init__(self, values: Mapping[str, Figure]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Figure:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return tables.figures(self._values)


class Columns(Mapping[str, "NDArray[Any]"]):
    """Coded columns of a run's requests, each derived when it is first asked for."""

    def __init__(self, names: tuple[str, ...], derive: Callable[[str], NDArray[Any]]) -> None:
        self._names = names
        self._derive = derive
        self._known: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._known:
            self._known[name] = self._derive(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __reduce__(self) -> tuple[type, tuple[dict[str, NDArray[Any]]]]:
        return dict, (dict(self),)


class RequestIds(Sequence[str]):
    """The names that a trace gives its requests, fetched when they are first asked for.

    Empty where the row numbers stand for them.
    """

    def __init__(self, record: RequestRecord) -> None:
        self._record = record

    @functools.cached_property
    def _known(self) -> list[str]:
        return self._record.request_id

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._known[index]

    def __len__(self) -> int:
        return len(self._known)

    def __reduce__(self) -> tuple[type, tuple[list[str]]]:
        return list, (self._known,)


class Requests(Mapping[str, "NDArray[Any]"]):
    """One row per offered request in order of arrival, as read-only columns.

    request_id, tenant, slo_class, outcome, reason (text; reason is empty unless the request was
    rejected); admitted (bool, by the gateway); instance (int, -1: never routed); input_tokens,
    output_tokens (delivered so far), attempts, preemptions (int); arrival_s, ttft_s, e2e_s, tpot_s,
    queue_s, scheduling_delay_s, itl_mean_s (seconds, NaN: not applicable). Where clients retry, the
    row tells of the last attempt, but arrival is that of the first, from which latencies count;
    queue_s is the last attempt's own.
    """

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], names: Mapping[str, Sequence[str]]
    ) -> None:
        self._columns = columns
        self._names = names

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name == "request_id":
            ids = self._names["request_id"]
            return np.array(ids[: self.num_rows] if ids else [str(i) for i in range(self.num_rows)])
        if name in _CODED:
            return np.array(self._names[_CODED[name]]).take(self._columns[name])
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(("request_id", *self._columns))

    def __len__(self) -> int:
        return 1 + len(self._columns)

    def __repr__(self) -> str:
        return f"<Requests: {self.num_rows} rows, columns {', '.join(self)}>"

    @property
    def num_rows(self) -> int:
        """Number of requests."""
        return len(self._columns["arrival_s"])

    def to_frame(self) -> pd.DataFrame:
        """The columns as a pandas DataFrame (extra `frames`)."""
        pandas = require("pandas", "frames")
        frame: pd.DataFrame = pandas.DataFrame({name: self[name] for name in self})
        return frame


class Result:
    """One run: where every request went, what it met, and the figures over all of them."""

    def __init__(self, simulation: Simulation, seed: int, output: Mapping[str, Any]) -> None:
        self.simulation = simulation
        self.seed = seed
        self._output = dict(output)
        self._regret: AdmissionRegret | None = None
        record = self._output.pop("record", None)
        if record is not None:
            self._output["columns"] = Columns(_core.cluster.columns, record.column)
            self._output["offered"] = Columns(_core.cluster.offered_columns, record.offered_column)
            self._output["request_id"] = RequestIds(record)

    @property
    def has_requests(self) -> bool:
        """Whether the requests were kept."""
        return "columns" in self._output

    def _columns(self) -> Mapping[str, NDArray[Any]]:
        if not self.has_requests:
            raise _core.sim.UsageError(
                "the requests of this run were not kept: "
                + (
                    "metrics.streaming is on"
                    if self.simulation.metrics.streaming
                    else "give run_many keep_requests=True"
                )
            )
        columns: Mapping[str, NDArray[Any]] = self._output["columns"]
        return columns

    def _offered(self) -> Mapping[str, NDArray[Any]]:
        """What was asked for: output_tokens, and the number of the prefix_group (-1: none)."""
        self._columns()
        offered: Mapping[str, NDArray[Any]] = self._output["offered"]
        if not offered:
            raise _core.sim.UsageError(
                "this result was saved by an earlier version, without what its requests asked for: "
                "simulate again"
            )
        return offered

    def _names(self) -> dict[str, Sequence[str]]:
        return {
            "outcomes": _core.cluster.outcomes,
            "reasons": _core.metrics.reasons,
            "tenants": self._output["tenants"],
            "slo_classes": self._output["slo_classes"],
            "request_id": self._output["request_id"],
        }

    def summary(self) -> Figures:
        """Figures over all requests that arrived in the window.

        `priority_inversions` counts, over the whole run, the pairs of requests that wait in the
        queue of one instance at the same time and of which the one whose class has the lower
        priority is scheduled first. Waiting lasts from the entry to the engine's queue until the
        request is first scheduled, or leaves; a later preemption counts for nothing. It is None in
        streaming mode. With `metrics.accounting: blis` it is the number of pairs of one class and
        instance of which the earlier took more than twice as long as the later, on instances that
        schedule by priority.
        """
        return Figures(self._output["summary"])

    def by_class(self) -> dict[str, Figures]:
        """The same per class of service."""
        return {name: Figures(values) for name, values in self._output["by_class"].items()}

    def by_tenant(self) -> dict[str, Figures]:
        """The same per tenant."""
        return {name: Figures(values) for name, values in self._output["by_tenant"].items()}

    @property
    def requests(self) -> Requests:
        """One row per offered request.

        Raises UsageError if they were not kept: in streaming mode, or by `run_many` unless it was
        told to.
        """
        return Requests(self._columns(), self._names())

    @property
    def decisions(self) -> Decisions:
        """Routing decisions with their best candidates.

        Raises UsageError unless `metrics.traced_candidates` is set.
        """
        if not self.simulation.metrics.traced_candidates:
            raise _core.sim.UsageError(
                "decisions were not logged: set metrics.traced_candidates, e.g. to 4"
            )
        from spillway.decisions import Decisions

        return Decisions(self._output["decisions"])

    @property
    def timeline(self) -> Timeline:
        """How gateway and fleet went over time.

        Raises UsageError unless `metrics.timeline_step_s` is set.
        """
        if self.simulation.metrics.timeline_step_s is None:
            raise _core.sim.UsageError(
                "there is no timeline: set metrics.timeline_step_s, e.g. to 1"
            )
        from spillway.timeline import Timeline

        return Timeline(self._output["timeline"], self._output["tenants"])

    @property
    def control(self) -> Control:
        """What the controller of the gateway's limit saw and did; empty without one."""
        from spillway.timeline import Control

        return Control(self._output["control"])

    def admission_regret(self) -> AdmissionRegret:
        """What each rejected request would have met on an idle fleet.

        Found by simulation: the rejected requests once more, too far apart to meet, on one instance
        of each group, which is idle, has nothing cached and has an open ingress. Of the gateway
        only its latencies remain (admission, drain, routing); there is no admission policy, queue
        bound, limit, client time-out, retry, schedule of the fleet or horizon. The latencies of the
        group with the shortest time to first token count. With `jittered` step times every request
        draws factors of its own under the seed of the run, in the order of the rows. A rejection of
        a request that would have met its class's targets on an idle fleet may still have been
        right: it protected those that were admitted.

        Raises UsageError if the requests were not kept (see `requests`), if the result was saved by
        a version that did not save what its requests asked for, or if one of n rejected requests
        takes longer than 3.2e9 / (n + 1) s, so that the clock does not reach far enough for all.
        """
        if self._regret is None:
            from spillway.decisions import admission_regret

            self._regret = admission_regret(self)
        return self._regret

    def recovery(
        self, start_s: float, end_s: float, *, step_s: float = 1.0, share: float = 0.9
    ) -> Recovery:
        """Whether the system comes back from a trigger that lasted from `start_s` to `end_s`.

        Goodput is taken over the requests that arrive in a step: `step_s`, or as many of these as
        it takes to hold 20 requests. It has left the band of the time between `warm_up_s` and the
        trigger where it is below `share` of the goodput then, and lower than chance would have it:
        Fisher's exact test against that time, with requests that are late together counted as one
        (by the variance between its steps), at a level of 1 % for all steps together. A single such
        step long after the trigger does not count: requests are late in bursts. The system has
        recovered at the end of the last step that counts, provided that the rest of the run, taken
        as one step, is within the band and better than the steps that left it. Longer steps show
        smaller losses, shorter ones when they end.

        Requests that were under way at the end of the run and could still have met their targets do
        not count.

        Raises UsageError if the requests were not kept, none is of a class with latency targets,
        fewer than 20 arrive before the trigger or none after it, or unless `warm_up_s` < `start_s`
        < `end_s`, `step_s` > 0 and 0 < `share` <= 1.
        """
        from spillway.overload import recovery

        return recovery(self, start_s, end_s, step_s=step_s, share=share)

    def admission_by_group_age(self, step_s: float, new_for_s: float = 60) -> AdmissionByGroupAge:
        """How many requests of new and of established prefix groups were admitted over time.

        A prefix group is the requests whose prompts begin with the same shared segment; it is new
        for the first `new_for_s` seconds from its first request on. Requests that share nothing
        count in neither. `step_s` is the length of a row's span of time in seconds.

        Raises UsageError if the requests were not kept (see `requests`), or if the result was saved
        by a version that did not save what its requests asked for.
        """
        from spillway.decisions import admission_by_group_age

        return admission_by_group_age(self, step_s, new_for_s)

    def why(self, request_id: str | int) -> str:
        """What became of a request, where it was sent and what the alternatives were, as text.

        Of a rejected request also what it would have met on an idle fleet, beside the targets of
        its class (see `admission_regret`). A row (int) may stand in place of the id.

        Raises KeyError if there is no such request, UsageError unless requests and decisions were
        kept.
        """
        from spillway.decisions import explain

        return explain(self, request_id)

    @property
    def ledger(self) -> dict[str, Any]:
        """Where every request went, by outcome and reason; its identities were checked."""
        return dict(self._output["ledger"])

    @property
    def activity(self) -> dict[str, Any]:
        """How far the mechanisms of the run went: what shows that one never acted.

        not_completed: attempts by the reason for which they were not completed; peak_in_flight:
        most requests between dispatch and last token at once, of the gateway's replica with the
        most; limit_held: for each `gateway.limit`, whether it kept any request waiting;
        busy_threshold_exceeded: whether any rank exceeded a threshold of `busy_monitor`;
        peak_kv_utilization: largest share (0 to 1) of a rank's KV blocks in use at once.

        Of a result that an earlier version saved, only `not_completed`, without what expired, was
        evicted or cancelled.
        """
        ledger = self.ledger
        known = {"not_completed": {**ledger["rejected"], **ledger["worker_rejected"]}}
        return dict(self._output.get("activity", known))

    @property
    def instances(self) -> list[dict[str, Any]]:
        """Per instance: counts, queue lengths, KV blocks, stepping.

        completed, refused, cancelled (withdrawn after they had entered, for whatever reason),
        preemptions, steps; mean_waiting (over time), mean_waiting_at_step (over steps); kv_hits
        (cached blocks used again), kv_misses (blocks taken), kv_lookups (full prompt blocks of the
        requests that entered the batch).

        `stepping` is "jumps", "plain" where every step had to be made by itself, or "reference"
        where that was asked for.
        """
        return list(self._output["instances"])

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """What the gateway was last told of the load of each rank of each worker.

        instance, rank; active_decode_blocks, active_prefill_tokens; worker_is_busy. Empty unless
        load events are followed: with thresholds of `busy_monitor`, the admission policy
        `busy_threshold` or an ingress that is not open.
        """
        return list(self._output.get("ranks", ()))

    @property
    def ingresses(self) -> list[dict[str, Any]]:
        """What the ingress of each instance saw, of those whose ingress is not open.

        instance; entered_at_once, entered_from_queue, refused; unfinished, awaiting_response (of a
        `dual_limit_gate`), queued at the end; most_unfinished, most_queued. All in requests.
        """
        return list(self._output.get("ingresses", ()))

    def counters(self, version: Version) -> dict[str, int]:
        """The run's figures under the names of Dynamo's metrics at its end, with their labels.

        `version`: "dynamo_1_2", "dynamo_1_3" (to 1.5), "dynamo_dev_b" or "dynamo_dev_c". Beside
        them stands `spillway_responses_total`, by the HTTP status that clients were answered with.
        """
        from spillway import _counters

        return _counters.counters(self, version)

    @property
    def steps(self) -> int:
        """Engine steps simulated."""
        return int(self._output["steps"])

    @property
    def events(self) -> int:
        """Events taken from the queue."""
        return int(self._output["events"])

    @property
    def end_s(self) -> float:
        """Instant of the last event, in seconds."""
        return float(self._output["end_s"])

    @property
    def digest(self) -> str:
        """Digest of the results themselves: equal if every request and figure is equal.

        Unlike `fingerprint` it says nothing of the settings, and it does not depend on the stepping
        or the number of threads. The requests are part of it if they were kept.
        """
        hasher = hashlib.sha256()
        for name, column in self._output.get("columns", {}).items():
            hasher.update(name.encode())
            hasher.update(np.ascontiguousarray(column).tobytes())
        instances = [
            {key: value for key, value in one.items() if key != "stepping"}
            for one in self.instances
        ]
        keys = ("ledger", "summary", "by_class", "by_tenant", "steps", "end_s")
        figures = [instances, *(self._output[key] for key in keys)]
        hasher.update(json.dumps(figures).encode())
        return hasher.hexdigest()

    @property
    def outcome_digest(self) -> str:
        """Digest of what happened to the requests: the ledger and, if kept, their columns.

        Equal if every request has the same outcome at the same instants, whatever figures are
        derived from them: a figure that is added or defined anew changes `digest` alone.
        """
        hasher = hashlib.sha256(json.dumps(self.ledger, sort_keys=True).encode())
        for name, column in self._output.get("columns", {}).items():
            hasher.update(name.encode())
            values = column
            if name in _CODED:
                # By the names in use, as another version may number them otherwise.
                labels, values = np.unique(self.requests[name], return_inverse=True)
                hasher.update(json.dumps(labels.tolist()).encode())
            hasher.update(np.ascontiguousarray(values).tobytes())
        return hasher.hexdigest()

    @property
    def fingerprint(self) -> str:
        """Digest of the simulation and Spillway's version; with the seed it names this result."""
        return files.fingerprint(self.simulation)

    @property
    def profile(self) -> str:
        """The profile whose semantics were followed: vllm, blis_0_6 or custom."""
        return profiles.name_of(self.simulation)

    @property
    def plot(self) -> Plots:
        """Figures of this result (extra `plot`)."""
        from spillway.report.plots import Plots

        return Plots(self)

    def notes(self) -> list[str]:
        """What a reader ought to know, the most important first.

        Heavy shedding and the settings that decided it, classes without targets, mechanisms that
        never acted, small populations.
        """
        from spillway.report import notes

        return notes.notes(self)

    def __repr__(self) -> str:
        return tables.result(self)

    def to_dict(self) -> dict[str, Any]:
        """The content of summary.json."""
        return {
            "schema": files.SCHEMA,
            "profile": self.profile,
            "seed": self.seed,
            "fingerprint": self.fingerprint,
            "ledger": self.ledger,
            "metrics": dict(self._output["summary"]),
            "by_class": self._output["by_class"],
            "by_tenant": self._output["by_tenant"],
        }

    def write(self, directory: str | Path) -> None:
        """Writes summary.json and requests.csv (RFC 4180) into `directory`, made if missing.

        Without requests.csv if the requests were not kept (see `requests`).
        """
        files.write_result(self, Path(directory))

    def save(self, path: str | Path) -> None:
        """Saves everything into one .npz file, but of a trace itself only the digest.

        Raises UsageError if the requests were not kept, ConfigError if it cannot be written.
        """
        from spillway import _archive

        self._columns()  # or there is nothing to save
        _archive.write(
            Path(path),
            {"seed": self.seed, "simulation": self.simulation.to_dict()},
            {**self._output, "request_id": list(self._output["request_id"])},
        )

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Reads what `save` wrote, also that of Spillway 0.1.0.

        Raises ValueError if the file holds no result, or not what was saved: names, types, lengths
        and a digest of the content are checked. OSError if it cannot be opened.
        """
        from spillway import _archive

        with Path(path).open("rb") as stream:
            try:
                document = _archive.read(stream)
                simulation = Simulation.from_dict(document["simulation"])
                return cls(simulation, document["seed"], document["output"])
            except Exception as error:
                raise ValueError(
                    f"{path} holds no result that this version can read: {error}"
                ) from error


def _difference(a: Figures, b: Figures) -> dict[str, Figure]:
    """The figures of `a` less those of `b`; None where one of them has none."""
    both = ((name, a[name], b.get(name)) for name in a)
    return {name: None if x is None or y is None else float(x) - float(y) for name, x, y in both}


# What a run came to, of its output.
_OUTCOME = ("summary", "by_class", "by_tenant", "ledger", "instances", "steps", "events", "end_s")


class Results(Sequence[Result]):
    """Runs of one simulation under several seeds, in the order of the seeds.

    Where seeds change nothing all of them are one run; then figures have no interval.
    """

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = tuple(results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Result | Results:
        if isinstance(index, slice):
            return Results(self._results[index])
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, in order."""
        return tuple(result.seed for result in self._results)

    @property
    def is_replicated(self) -> bool:
        """Whether the runs differ; if they are all the same, they are one observation.

        They are where nothing in the configuration is random (see `randomness.random_streams`).
        """
        first = self._results[0]._output if self._results else {}
        return any(one._output[key] != first[key] for one in self._results[1:] for key in _OUTCOME)

    @property
    def distinct(self) -> tuple[Result, ...]:
        """All runs, or the first if they are all the same."""
        return self._results if self.is_replicated else self._results[:1]

    def notes(self) -> list[str]:
        """What a reader ought to know of the intervals."""
        if len(self) < 2 or self.is_replicated:
            return []
        return [note_on_copies([self._results[0].simulation])]

    def summary(self, confidence: float = 0.95) -> dict[str, Interval | None]:
        """Mean over the seeds with its interval per figure; None where no seed has one."""
        return self._intervals([result.summary() for result in self.distinct], confidence)

    def by_class(self, confidence: float = 0.95) -> dict[str, dict[str, Interval | None]]:
        """The same per class of service."""
        return self._grouped([result.by_class() for result in self.distinct], confidence)

    def by_tenant(self, confidence: float = 0.95) -> dict[str, dict[str, Interval | None]]:
        """The same per tenant."""
        return self._grouped([result.by_tenant() for result in self.distinct], confidence)

    def interval(self, figure: Callable[[Result], float], confidence: float = 0.95) -> Interval:
        """Mean over the seeds, with its confidence interval, of a figure of your own."""
        return interval([figure(result) for result in self.distinct], confidence)

    def minus(self, other: Results, confidence: float = 0.95) -> dict[str, Interval | None]:
        """Mean difference from `other` per figure, paired by seed: both met the same requests.

        Raises ValueError unless both have the same seeds in the same order.
        """
        if self.seeds != checked("other", other, Results, "Results").seeds:
            raise ValueError(f"the seeds differ: {self.seeds} and {other.seeds}")
        pairs = zip(self, other, strict=True)
        gaps = [_difference(a.summary(), b.summary()) for a, b in pairs]
        if not (self.is_replicated or other.is_replicated):
            gaps = gaps[:1]
        return self._intervals(gaps, confidence)

    def _grouped(
        self, groups: Sequence[Mapping[str, Figures]], confidence: float
    ) -> dict[str, dict[str, Interval | None]]:
        names = dict.fromkeys(name for group in groups for name in group)
        return {
            name: self._intervals([group[name] for group in groups if name in group], confidence)
            for name in names
        }

    @staticmethod
    def _intervals(
        populations: Sequence[Mapping[str, Figure]], confidence: float
    ) -> dict[str, Interval | None]:
        result: dict[str, Interval | None] = {}
        for name in populations[0] if populations else ():
            if name == "approximate":
                continue
            values = [float(v) for p in populations if (v := p[name]) is not None]
            result[name] = interval(values, confidence) if values else None
        return result

    def __repr__(self) -> str:
        return tables.results(self)
