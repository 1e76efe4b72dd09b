"""Measurements of real servers: requests with latencies, engine steps, histograms, mean points."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spillway import _core
from spillway.config.classes import config_error
from spillway.data.shared_prompts import (
    Beginnings,
    conversation_segments,
    group_segments,
    no_segments,
    warm_column,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.data.arrays import Booleans, Floats, Ints

_ROLES = ("prefill", "decode", "both")


@dataclass(frozen=True)
class ServerFacts:
    """The statements of a recording about its server; None where it makes none.

    Attributes
    ----------
    name : str, optional
        A name that identifies the server, given by its operator.
    model : str, optional
        The model, e.g. "Qwen/Qwen3-14B".
    gpu : str, optional
        The kind of GPU, as the recording names it.
    engine, engine_version : str, optional
        The inference engine, e.g. "vllm", and its version, e.g. "0.23.0".
    tensor_parallel_size, data_parallel_size : int, optional
        GPUs that share each layer, and replicas of the engine, >= 1.
    max_num_seqs, max_num_batched_tokens : int, optional
        Limits of one step: running sequences and tokens, >= 1.
    block_size_tokens, num_kv_blocks : int, optional
        Tokens of a KV block and KV blocks of one engine, >= 1.
    max_model_len : int, optional
        Longest context in tokens, >= 1.
    prefix_caching, async_scheduling : bool, optional
        Whether prompts share cached prefixes, and whether a step is scheduled during the previous
        one.
    role : str, optional
        What it does for a request: "prefill" or "decode", one of its two legs, or "both", all.

    """

    name: str | None = None
    model: str | None = None
    gpu: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    tensor_parallel_size: int | None = None
    data_parallel_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size_tokens: int | None = None
    num_kv_blocks: int | None = None
    max_model_len: int | None = None
    prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    role: str | None = None

    def __post_init__(self) -> None:
        violations = []
        for fact in dataclasses.fields(self):
            value = getattr(self, fact.name)
            if value is None:
                continue
            kind = str(fact.type).partition(" ")[0]
            if kind == "str":
                valid, allowed = isinstance(value, str) and value != "", "text that is not empty"
            elif kind == "bool":
                valid, allowed = isinstance(value, bool), "True or False"
            else:
                valid = isinstance(value, int) and not isinstance(value, bool) and value >= 1
                allowed = "a whole number >= 1"
            if not valid:
                violations.append((fact.name, f"{value!r:.40}", f"must be {allowed}"))
        if isinstance(self.role, str) and self.role not in _ROLES:
            violations.append(("role", f"{self.role!r:.40}", f"must be one of {', '.join(_ROLES)}"))
        if violations:
            raise config_error(violations)

    @property
    def key(self) -> str:
        """An identifier of the server: its name, else all that is stated about it."""
        if self.name is not None:
            return self.name
        facts = [
            f"{fact.name}={value}"
            for fact in dataclasses.fields(self)
            if (value := getattr(self, fact.name)) is not None
        ]
        return " ".join(facts)

    def replace(self, **facts: Any) -> ServerFacts:
        """The server with other facts.

        Raises ConfigError if a value is invalid, TypeError if there is no such fact.
        """
        return dataclasses.replace(self, **facts)


class TokenGaps(NamedTuple):
    """The gaps between the tokens of each request, one request after the other.

    Attributes
    ----------
    values_s : array of float
        The gaps in seconds.
    offsets : array of int
        The gaps of request `i` are `values_s[offsets[i]:offsets[i + 1]]`.

    """

    values_s: Floats
    offsets: Ints

    def of(self, request: int) -> Floats:
        """The gaps of one request in seconds."""
        return self.values_s[self.offsets[request] : self.offsets[request + 1]]


@dataclass(frozen=True)
class RequestCounts:
    """What became of the requests of a run that are not in its recording.

    Attributes
    ----------
    warm_up : int
        Requests in the file that the tool's own rule leaves out: its warm-up and cool-down.
    cut_off : int
        Requests that the end of the run cut off; they are in the recording, as failed.
    never_sent : int
        Requests in the file that were never sent.
    unlisted : int
        Requests that the tool counts and the file does not list: then the recording is a sample.
    skipped : int
        Malformed requests that were left out, with `skip_bad`.

    """

    warm_up: int = 0
    cut_off: int = 0
    never_sent: int = 0
    unlisted: int = 0
    skipped: int = 0


class ReportedFigure(NamedTuple):
    """A figure in the tool's own report of a run, and what the requests of the recording give.

    Attributes
    ----------
    name : str
        What it is, e.g. "mean TTFT".
    unit : str
        "s", "requests", "requests/s" or "tokens".
    reported, recomputed : float
        The tool's value, and that of the recording's requests.
    cause : str
        The likely cause of a difference beyond rounding; "" where the two agree.

    """

    name: str
    unit: str
    reported: float
    recomputed: float
    cause: str = ""

    def __str__(self) -> str:
        unit = self.unit if self.unit in ("requests", "tokens") else f" {self.unit}"
        unit = f" {unit.strip()}"
        text = f"{self.name}: {self.reported:.6g}{unit} reported, {self.recomputed:.6g}{unit} here"
        return f"{text}: {self.cause}" if self.cause else text


@dataclass(frozen=True, eq=False)
class Recording:
    """The requests of one measured run, in order of sending.

    Attributes
    ----------
    name : str
        The name of the run.
    server : ServerFacts
        The statements about the server.
    send_s : array of float
        Times of sending in seconds since the first one, ascending.
    input_tokens, output_tokens : array of int
        Lengths of prompts and outputs, in tokens; 0 where a failed request has none recorded.
    ttft_s, e2e_s : array of float
        Time to the first and to the last token, in seconds since sending. NaN for failed requests,
        and where the file has none.
    failed : array of bool
        Whether the request failed, e.g. by an error or a timeout of the client.
    failure_s : array of float
        Time from sending to the failure, in seconds; NaN for completed requests and where unknown.
    token_gaps : TokenGaps, optional
        The gaps between tokens.
    tenant : tuple of str, optional
        The tenant of each request.
    client_max_in_flight : int, optional
        The most requests that the client has in flight; it delays further ones.
    num_replicas : int, optional
        Replicas of the server that shared the requests, >= 1; None if the file does not say.
    cached_tokens : array of int, optional
        Tokens of each prompt that the server found in its cache; None if the file does not say.
    session : tuple of str, optional
        The conversation of each request, whose prompts each begin with the prompt and the answer
        before; "" is none.
    counts : RequestCounts
        What became of the requests that are not among these.
    reported : tuple of ReportedFigure
        The figures that the tool itself reports, compared with those of these requests.
    units : mapping of str
        The fields of the file that hold times, and the unit of each: s, ms, us or ns.
    source, format : str
        The path of the file, and the name of its format.
    sha256 : str
        The SHA-256 of the bytes of the files of the run, one after the other.

    """

    name: str
    server: ServerFacts
    send_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    ttft_s: Floats
    e2e_s: Floats
    failed: Booleans
    failure_s: Floats
    token_gaps: TokenGaps | None = None
    tenant: tuple[str, ...] | None = None
    client_max_in_flight: int | None = None
    num_replicas: int | None = None
    cached_tokens: Ints | None = None
    session: tuple[str, ...] | None = None
    counts: RequestCounts = RequestCounts()
    reported: tuple[ReportedFigure, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    format: str = ""
    sha256: str = ""

    def __post_init__(self) -> None:
        _freeze(self, _RECORDING_COLUMNS)
        rows = len(self.send_s)
        if self.cached_tokens is not None:
            _freeze(self, {"cached_tokens": np.int64})
        names = (*_RECORDING_COLUMNS, "tenant", "cached_tokens", "session")
        violations = _of_other_length(self, names, "send_s")
        if rows == 0:
            violations.append(("send_s", "[]", "must hold at least one request"))
        elif not (self.send_s[0] == 0 and np.all(np.diff(self.send_s) >= 0)):  # false for NaN
            violations.append(("send_s", str(self.send_s[0]), "must begin with 0 and ascend"))
        if self.num_replicas is not None and self.num_replicas < 1:
            violations.append(("num_replicas", str(self.num_replicas), "must be >= 1"))
        if self.token_gaps is not None and not _are_offsets(self.token_gaps, rows):
            shown = f"{len(self.token_gaps.offsets)} offsets"
            violations.append(("token_gaps", shown, f"must be {rows + 1} that ascend from 0"))
        if violations:
            raise config_error(violations)

    def __repr__(self) -> str:
        return (
            f"<Recording {self.name!r}: {self.num_requests} requests in "
            f"{self.send_s[-1]:.1f} s, {int(self.failed.sum())} failed, "
            f"{self.server.key or 'unknown server'}>"
        )

    @property
    def num_requests(self) -> int:
        """Number of requests, failed ones included."""
        return len(self.send_s)

    @functools.cached_property
    def itl_s(self) -> Floats:
        """Mean time between the tokens of each request, in seconds.

        NaN for outputs of fewer than 2 tokens, and where a latency is NaN.
        """
        itl_s = np.full(self.num_requests, np.nan)
        several = self.output_tokens >= 2
        decode_s = self.e2e_s[several] - self.ttft_s[several]
        itl_s[several] = decode_s / (self.output_tokens[several] - 1)
        itl_s.setflags(write=False)
        return itl_s

    @property
    def is_sample(self) -> bool:
        """Whether the file lists only some of the requests: then neither load nor rate is known."""
        return self.counts.unlisted > 0

    @property
    def mismatches(self) -> tuple[ReportedFigure, ...]:
        """The figures of the tool from which those of the requests differ beyond rounding."""
        return tuple(figure for figure in self.reported if figure.cause)

    def in_flight(self) -> int:
        """The most requests in flight at once; requests of unknown duration do not count."""
        duration_s = np.where(self.failed, self.failure_s, self.e2e_s)
        known = ~np.isnan(duration_s)
        begin_s = self.send_s[known]
        end_s = np.sort(begin_s + duration_s[known])
        # Requests end before others begin at the same instant.
        ended = np.searchsorted(end_s, begin_s + _INSTANT_S, side="right")
        return int((np.arange(1, len(begin_s) + 1) - ended).max(initial=0))

    def to_trace(self, *, keep_failed: bool = False) -> _core.workload.Trace:
        """The requests as a trace, which arrives at the times of sending.

        A limit of the client is the trace's `max_in_flight`. Turns of a `session` begin with the
        conversation before. Prompts of which the server had `cached_tokens`, other than later turns
        of sessions, begin alike, for that length, and every instance has these tokens in its cache
        from the start.

        Parameters
        ----------
        keep_failed : bool
            Whether failed requests are part of it, with the lengths that are recorded for them.

        Raises
        ------
        ConfigError
            A request has no recorded prompt (0 tokens), or no requests remain; or the recording is
            a sample, whose times of sending are not those of the load.

        """
        if self.is_sample:
            listed, unlisted = self.num_requests, self.counts.unlisted
            shown = f"{listed:,} of {listed + unlisted:,} requests"
            allowed = "must be a recording of all requests; the load of a sample is not known"
            raise config_error([("recording", shown, allowed)])
        kept = np.ones(self.num_requests, dtype=bool) if keep_failed else ~self.failed
        if not kept.any():
            raise config_error([("recording", self.name, "must hold a completed request")])
        if (empty := kept & (self.input_tokens < 1)).any():
            row = int(empty.argmax())
            allowed = "must be >= 1 in a trace"
            if self.failed[row]:
                allowed += "; keep_failed=False leaves out failed requests"
            raise config_error([(f"input_tokens[{row}]", str(self.input_tokens[row]), allowed)])
        names = list(itertools.compress(self.tenant or ("default",) * self.num_requests, kept))
        tenants = {name: code for code, name in enumerate(dict.fromkeys(names))}
        trace = _core.workload.make_trace(
            arrival_ns=np.rint(self.send_s[kept] * 1e9).astype(np.int64),
            input_tokens=self.input_tokens[kept].astype(np.int32),
            output_tokens=self.output_tokens[kept].astype(np.int32),
            tenant=np.array([tenants[name] for name in names], dtype=np.uint16),
            tenants=list(tenants),
            slo_class=np.zeros(len(names), dtype=np.uint16),
            slo_classes=["standard"],
            **self._shared(kept),
            request_id=[],
            file=self.source,
        )
        limit = self.client_max_in_flight
        return trace if limit is None else trace.replace(max_in_flight=limit)

    def _shared(self, kept: Booleans) -> dict[str, Any]:
        """The beginnings that the prompts share, as the core's columns."""
        group = np.zeros(int(kept.sum()), np.int64)
        cached = None if self.cached_tokens is None else self.cached_tokens[kept]
        if self.session is not None:
            sessions = list(itertools.compress(self.session, kept))
            lengths = (self.input_tokens[kept].tolist(), self.output_tokens[kept].tolist())
            beginnings = None if cached is None else Beginnings(group, cached, cached)
            return conversation_segments(sessions, *lengths, beginnings)
        if cached is not None:
            return group_segments(group, cached) | warm_column(cached)
        return no_segments()


@dataclass(frozen=True, eq=False)
class StepLog:
    """The steps of one engine, one row per step in the order of the log.

    Attributes
    ----------
    name : str
        The name of the engine in the log.
    server : ServerFacts
        The statements about the server.
    prefill_requests, prefill_tokens : array of int
        Requests in prefill, and the prompt tokens that the step computes for them.
    decode_requests, decode_tokens : array of int
        Requests in decode, and the tokens that the step computes for them.
    step_s : array of float
        Duration of the step as the engine measures it, in seconds.
    context_tokens : array of int, optional
        Tokens in the KV cache, from its logged usage; None if usage or capacity are unknown.
    source, format, sha256 : str
        The path of the file, the name of its format, and the SHA-256 of its bytes.

    """

    name: str
    server: ServerFacts
    prefill_requests: Ints
    prefill_tokens: Ints
    decode_requests: Ints
    decode_tokens: Ints
    step_s: Floats
    context_tokens: Ints | None = None
    source: str = ""
    format: str = ""
    sha256: str = ""

    def __post_init__(self) -> None:
        columns = dict(_STEP_COLUMNS)
        if self.context_tokens is None:
            del columns["context_tokens"]
        _freeze(self, columns)
        if violations := _of_other_length(self, columns, "step_s"):
            raise config_error(violations)

    def __repr__(self) -> str:
        return f"<StepLog {self.name!r}: {self.num_steps} steps, {self.server.key}>"

    @property
    def num_steps(self) -> int:
        """Number of steps."""
        return len(self.step_s)


@dataclass(frozen=True, eq=False)
class Histogram:
    """A cumulative histogram of Prometheus.

    Attributes
    ----------
    upper : array of float
        Upper bounds of the buckets, inclusive and ascending; the last one is infinite.
    cumulative : array of int
        Observations at or below each bound.
    sum : float
        Sum of all observations.

    """

    upper: Floats
    cumulative: Ints
    sum: float

    def __post_init__(self) -> None:
        _freeze(self, {"upper": np.float64, "cumulative": np.int64})
        if len(self.upper) != len(self.cumulative) or len(self.upper) == 0:
            shown = f"{len(self.upper)} bounds, {len(self.cumulative)} counts"
            raise config_error([("histogram", shown, "must be equally many, at least one")])
        if not (np.all(np.diff(self.upper) > 0) and self.upper[-1] == np.inf):
            allowed = "must ascend and end with +Inf"
            raise config_error([("histogram.upper", f"{self.upper.tolist()!r:.40}", allowed)])
        if np.any(np.diff(self.cumulative, prepend=0) < 0):
            shown = f"{self.cumulative.tolist()!r:.40}"
            raise config_error([("histogram.cumulative", shown, "must not decrease")])

    @property
    def count(self) -> int:
        """Number of observations."""
        return int(self.cumulative[-1])

    @property
    def mean(self) -> float:
        """Mean of the observations; NaN if there are none."""
        return self.sum / self.count if self.count else float("nan")

    def quantile(self, share: float) -> float:
        """A quantile by linear interpolation within its bucket, as Prometheus does; NaN if empty.

        The highest finite bound stands for values in the last bucket. Raises ConfigError if `share`
        is not between 0 and 1.
        """
        if not 0 <= share <= 1:
            raise config_error([("share", f"{share!r}", "must be >= 0 and <= 1")])
        if self.count == 0:
            return float("nan")
        rank = share * self.count
        bucket = int(np.searchsorted(self.cumulative, rank, side="left"))
        low = float(self.upper[bucket - 1]) if bucket else 0.0
        if self.upper[bucket] == np.inf:
            return low
        below = int(self.cumulative[bucket - 1]) if bucket else 0
        within = int(self.cumulative[bucket]) - below
        part = (rank - below) / within if within else 0.0
        return low + (float(self.upper[bucket]) - low) * part


@dataclass(frozen=True, eq=False)
class LatencyHistograms:
    """The metrics of one engine at one instant, all counted since its start.

    Attributes
    ----------
    name : str
        The name of the engine in the metrics.
    server : ServerFacts
        The statements about the server.
    histograms : mapping of Histogram
        `ttft_s`, `itl_s`, `e2e_s`, `queue_s`, `prefill_s`, `decode_s` in seconds and `step_tokens`
        in tokens, as far as the engine reports them.
    gauges : mapping of float
        `running`, `waiting` (requests), `kv_usage` (0 to 1).
    counters : mapping of float
        `prefix_cache_hits`, `prefix_cache_queries`, `prompt_tokens`, `generation_tokens` (tokens),
        `preemptions`.
    source, format, sha256 : str
        The path of the file, the name of its format, and the SHA-256 of its bytes.

    """

    name: str
    server: ServerFacts
    histograms: Mapping[str, Histogram]
    gauges: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    format: str = ""
    sha256: str = ""

    def __repr__(self) -> str:
        return f"<LatencyHistograms {self.name!r}: {', '.join(self.histograms)}>"

    @property
    def prefix_hit_rate(self) -> float:
        """Share of the prompt tokens that the prefix cache held; NaN if unknown or no queries."""
        queries = self.counters.get("prefix_cache_queries", 0.0)
        hits = self.counters.get("prefix_cache_hits", float("nan"))
        return hits / queries if queries else float("nan")

    def since(self, earlier: LatencyHistograms) -> LatencyHistograms:
        """The observations since an earlier scrape of the same engine.

        Gauges are those of the later scrape. Raises ConfigError if the scrapes have other metrics
        or bounds, or a counter has decreased, e.g. by a restart.
        """
        histograms = {}
        for name, late in self.histograms.items():
            early = earlier.histograms.get(name)
            if early is None or not np.array_equal(early.upper, late.upper):
                raise config_error([(f"earlier.{name}", "", "must have the same buckets")])
            if np.any(early.cumulative > late.cumulative):
                allowed = "must not exceed that of the later scrape"
                raise config_error([(f"earlier.{name}.count", str(early.count), allowed)])
            histograms[name] = Histogram(
                late.upper, late.cumulative - early.cumulative, late.sum - early.sum
            )
        counters = {}
        for name, value in self.counters.items():
            before = earlier.counters.get(name, 0.0)
            if before > value:
                allowed = f"must be <= {value}, that of the later scrape"
                raise config_error([(f"earlier.{name}", str(before), allowed)])
            counters[name] = value - before
        return dataclasses.replace(self, histograms=histograms, counters=counters)


@dataclass(frozen=True, eq=False)
class LatencyPoints:
    """Mean latencies of one server at several numbers of concurrent requests.

    Attributes
    ----------
    server : ServerFacts
        The statements about the server.
    group : mapping of str
        The columns of the file that the points have in common.
    input_tokens, output_tokens : int
        Nominal lengths of prompts and outputs, in tokens.
    concurrency : array of int
        Requests that the client keeps in flight, ascending; several points may share a value. 0
        where it sends at a rate without a limit.
    ttft_s, itl_s : array of float
        Mean time to the first token and mean time per further token, in seconds; NaN where only
        the other is known.
    requests_per_s : array of float, optional
        The rate at which the client sends, infinite where it sends all at once or as fast as its
        limit allows. None if that is so at all points.
    source, format, sha256 : str
        The path of the file, the name of its format, and the SHA-256 of its bytes.

    """

    server: ServerFacts
    group: Mapping[str, str]
    input_tokens: int
    output_tokens: int
    concurrency: Ints
    ttft_s: Floats
    itl_s: Floats
    requests_per_s: Floats | None = None
    source: str = ""
    format: str = ""
    sha256: str = ""

    def __post_init__(self) -> None:
        _freeze(self, {"concurrency": np.int64, "ttft_s": np.float64, "itl_s": np.float64})
        if self.requests_per_s is not None:
            _freeze(self, {"requests_per_s": np.float64})
        object.__setattr__(self, "group", MappingProxyType(dict(self.group)))

    def __repr__(self) -> str:
        return (
            f"<LatencyPoints: {len(self.concurrency)} points, {self.input_tokens} → "
            f"{self.output_tokens} tokens, {self.server.key}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        values = {fact.name: getattr(self, fact.name) for fact in dataclasses.fields(self)}
        return LatencyPoints, tuple((values | {"group": dict(self.group)}).values())


_INSTANT_S = 1e-6  # seconds since 1970 as floats are hardly more exact

_RECORDING_COLUMNS: Mapping[str, type[np.generic]] = {
    "send_s": np.float64,
    "input_tokens": np.int64,
    "output_tokens": np.int64,
    "ttft_s": np.float64,
    "e2e_s": np.float64,
    "failed": np.bool_,
    "failure_s": np.float64,
}
_STEP_COLUMNS: Mapping[str, type[np.generic]] = {
    **dict.fromkeys(
        ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens"), np.int64
    ),
    "step_s": np.float64,
    "context_tokens": np.int64,
}


def _freeze(holder: object, columns: Mapping[str, type[np.generic]]) -> None:
    """Replaces arrays of a frozen object by read-only copies, unless they are read-only."""
    for name, kind in columns.items():
        given = getattr(holder, name)
        is_own = isinstance(given, np.ndarray) and given.flags.owndata and given.dtype == kind
        copy = given if is_own and not given.flags.writeable else np.array(given, dtype=kind)
        if copy.ndim != 1:
            raise config_error([(name, f"{copy.ndim} dimensions", "must have one dimension")])
        copy.setflags(write=False)
        object.__setattr__(holder, name, copy)


def _of_other_length(holder: object, names: Iterable[str], key: str) -> list[tuple[str, str, str]]:
    """The violations by columns that are not as long as one of them."""
    rows = len(getattr(holder, key))
    columns = {name: getattr(holder, name) for name in names}
    return [
        (name, f"{len(column)} values", f"must hold {rows}, as {key} does")
        for name, column in columns.items()
        if column is not None and len(column) != rows
    ]


def _are_offsets(gaps: TokenGaps, rows: int) -> bool:
    offsets = gaps.offsets
    return (
        len(offsets) == rows + 1
        and offsets[0] == 0
        and offsets[-1] == len(gaps.values_s)
        and bool(np.all(np.diff(offsets) >= 0))
    )
