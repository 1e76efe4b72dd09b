"""What a file of measurements or requests is, holds and lacks: `spillway.read`."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from spillway.files.error import TraceError
from spillway.files.formats import alternatives, by_content, named
from spillway.files.head import Head
from spillway.files.options import AUTO
from spillway.files.recordings.points_csv import LOADS
from spillway.files.recordings.reading import MEASUREMENTS, mapping, measurements_of, run_of
from spillway.files.recordings.rows import OTHER_FIGURES, Settings
from spillway.files.recordings.source import Source
from spillway.files.traces.lines import opened
from spillway.files.traces.reading import LATENCIES, format_of, read_trace, refuse_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway._core.workload import Trace
    from spillway.data.recording import (
        LatencyHistograms,
        LatencyPoints,
        Recording,
        ServerFacts,
        StepLog,
    )
    from spillway.files.format import Content, Format


T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """What is read from a file, and what was assumed for that.

    Attributes
    ----------
    path : Path
        The file or folder.
    format, doc : str
        The name of the format, and its description.
    recordings : tuple of Recording
        The runs whose requests have latencies.
    step_logs, histograms : tuple
        The steps and the metrics of engines.
    points_of_servers : tuple of LatencyPoints
        Mean latencies of servers at fixed loads.
    trace_only : Trace, optional
        The requests of a file that is a trace.
    notes : tuple of str
        What was assumed, left out or looks wrong, in sentences.

    """

    path: Path
    format: str
    doc: str
    recordings: tuple[Recording, ...] = ()
    step_logs: tuple[StepLog, ...] = ()
    histograms: tuple[LatencyHistograms, ...] = ()
    points_of_servers: tuple[LatencyPoints, ...] = ()
    trace_only: Trace | None = None
    notes: tuple[str, ...] = ()
    _reading: Mapping[str, Any] | None = None  # of the trace of a file that is a recording, too

    @property
    def recording(self) -> Recording:
        """The only run. Raises TraceError if there is none, or there are several."""
        return self._only("recording", "recordings", self.recordings)

    @property
    def points(self) -> LatencyPoints:
        """The only points. Raises TraceError if there are none, or those of several servers."""
        return self._only("points", "points_of_servers", self.points_of_servers)

    @property
    def trace(self) -> Trace:
        """The requests, to be replayed: those of the trace, or of the only run.

        Raises TraceError if the file lists none, and ConfigError if they are not the whole load.
        """
        if self.trace_only is not None:
            return self.trace_only
        if self._reading is not None:
            return read_trace(self.path, **self._reading)
        return self.recording.to_trace()

    @property
    def offers(self) -> tuple[str, ...]:
        """What the file gives: trace, recording, points, step log, histograms."""
        replayed = [run for run in self.recordings if not run.is_sample]
        kinds = {
            "trace": self.trace_only is not None or self._reading is not None or replayed,
            "recording": self.recordings,
            "points": self.points_of_servers,
            "step log": self.step_logs,
            "histograms": self.histograms,
        }
        return tuple(name for name, found in kinds.items() if found)

    @property
    def mismatches(self) -> tuple[str, ...]:
        """The tool's own figures from which those of the requests differ, as sentences."""
        return tuple(
            f"{run.name}: {figure}" for run in self.recordings for figure in run.mismatches
        )

    def _only(self, name: str, attribute: str, found: tuple[T, ...]) -> T:
        if len(found) == 1:
            return found[0]
        if found:
            several = f"holds several: {len(found)}; take one of `.{attribute}`"
            raise TraceError(f"{self.path}, {name}: {several}")
        offers = ", ".join(self.offers) or "nothing"
        raise TraceError(f"{self.path}: gives no {name}; it gives {offers} ({self.format})")

    def __repr__(self) -> str:
        return f"<Evidence {self.path.name!r}: {self.format}, {', '.join(self.offers)}>"

    def text(self) -> str:
        """What the file is, holds and lacks, in lines."""
        lines = [
            f"{self.path}: {self.format} (in general: {self.doc})",
            f"gives: {', '.join(self.offers)}",
        ]
        if self.trace_only is not None:
            lines += _of_trace(self.trace_only)
        for run in self.recordings:
            lines += ["", f"run {run.name}", *_of_run(run)]
        for points in self.points_of_servers:
            lines += _of_points(points)
        lines += [f"steps: {log.num_steps:,} of {log.name}" for log in self.step_logs]
        lines += [f"histograms: {', '.join(page.histograms)}" for page in self.histograms]
        # Mismatches are among the lines of their runs.
        lines += [f"note: {text}" for text in self.notes if f": {OTHER_FIGURES}: " not in text]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The facts of `text` as plain values."""
        return {
            "path": str(self.path),
            "format": self.format,
            "offers": list(self.offers),
            "runs": [_facts(run) for run in self.recordings],
            "points": [_values(points) for points in self.points_of_servers],
            "notes": list(self.notes),
            "mismatches": list(self.mismatches),
        }


def read(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    columns: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    time_unit: str = AUTO,
    sort: bool = False,
    skip_bad: bool = False,
    server: ServerFacts | Mapping[str, Any] | None = None,
    client_max_in_flight: int | None = None,
    num_replicas: int | None = None,
    check_units: bool = True,
    run: str | int | None = None,
    **options: Any,
) -> Evidence:
    """Read a file of requests or measurements, whatever it is.

    Parameters
    ----------
    path : str or Path
        A trace, a benchmark's result, a log of steps, a page of metrics, or a folder of such.
    format : str, optional
        The name of a format; by default the content selects it.
    columns, units, time_unit, sort, skip_bad, server
        As in `read_trace` and `read_recordings`. `columns` with a latency describe a recording,
        with `concurrency` or `requests_per_s` a table of points.
    client_max_in_flight, num_replicas, check_units, run
        As in `read_recordings`.
    **options
        Options of the format, see `read_trace`.

    Returns
    -------
    Evidence
        What the file gives; its `notes` say what was assumed.

    Raises
    ------
    TraceError
        The file cannot be read, has an unknown format, or a value is invalid.

    Examples
    --------
    >>> import spillway
    >>> from spillway import traffic
    >>> calls = spillway.trace(arrival_s=[0, 0.5], input_tokens=[100, 200], output_tokens=[10, 20])
    >>> traffic.write(calls, "calls.csv")
    >>> spillway.read("calls.csv").offers
    ('trace',)

    """
    path = Path(path)
    measuring: dict[str, Any] = {
        "units": units,
        "client_max_in_flight": client_max_in_flight,
        "num_replicas": num_replicas,
    }
    settings = Settings(
        columns, server=server, check_units=check_units, skip_bad=skip_bad, **measuring
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        form = _form(path, format, columns)
        gives = set(MEASUREMENTS if form is None else form.gives)
        if form is not None and gives > {"trace"} and _lacks_latencies(path, form):
            gives = {"trace"}
        if "trace" not in gives:
            refuse_options(path, "a recording", {"time_unit": time_unit, **options})
        if not gives & set(MEASUREMENTS):
            refuse_options(path, "a trace", {"run": run, **measuring})
        found: dict[str, Any] = {}
        if gives & set(MEASUREMENTS):
            if columns is None:
                mapping("columns", format, settings)
            measured = measurements_of(path, form, settings)
            found = {_HOLDS[content]: tuple(items) for content, items in measured.items()}
            if run is not None:
                found["recordings"] = (run_of(path, found.get("recordings", ()), run),)
        if form is not None and "trace" in gives:
            reading: dict[str, Any] = {"format": format, "columns": columns, "time_unit": time_unit}
            reading |= {"sort": sort, "skip_bad": skip_bad, **options}
            if found:
                found["_reading"] = reading
            else:
                found["trace_only"] = read_trace(path, **reading)
    notes = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    name, doc = (
        ("folder", "measurements of several files") if form is None else (form.name, form.doc)
    )
    return Evidence(path, name, doc, notes=notes, **found)


_HOLDS: Mapping[Content, str] = {
    "recordings": "recordings",
    "step_logs": "step_logs",
    "histograms": "histograms",
    "points": "points_of_servers",
}


def _form(path: Path, name: str | None, columns: Mapping[str, str] | None) -> Format | None:
    """Return the format of a file; None of a folder."""
    if name is not None:
        content: Content = "trace" if name in alternatives("trace") else "recordings"
        return named(name, content)
    if columns is not None:
        if not LOADS.isdisjoint(columns):
            return named("points", "points")
        return named("columns", "trace" if LATENCIES.isdisjoint(columns) else "recordings")
    if path.is_dir():
        return None
    with opened(path) as lines:
        if form := by_content(Head(path, lines.head), "trace"):
            return form
    return by_content(Source(path), "recordings") or format_of(path)


def _lacks_latencies(path: Path, form: Format) -> bool:
    """Whether a file of a format that gives a trace and measurements is a trace alone."""
    with opened(path) as lines:
        columns = form.columns_of(Head(path, lines.head), "trace")
    return bool(form.missing(columns, "recordings"))


def _of_trace(trace: Trace) -> Iterator[str]:
    columns = trace._columns() if trace.has_requests and trace.rows else None
    empty = 0 if columns is None else int((columns["output_tokens"] == 0).sum())
    yield f"requests: {trace.rows:,}" + (f", {empty:,} without output, which fail" if empty else "")
    if columns is not None:
        span_s = float(columns["arrival_ns"][-1] - columns["arrival_ns"][0]) / 1e9
        prompt, output = (columns[name].mean() for name in ("input_tokens", "output_tokens"))
        yield _span(trace.rows, span_s)
        yield f"tokens: mean prompt {prompt:,.1f}, mean output {output:,.1f}"
    yield _client(trace.max_in_flight or None)


def _span(requests: int, span_s: float) -> str:
    rate = f"{(requests - 1) / span_s:.4g} requests/s" if span_s > 0 else "all at once"
    return f"span: {span_s:,.3f} s, {rate}"


def _client(limit: int | None) -> str:
    if limit is None:
        return "client: no limit on requests in flight is stated"
    return f"client: at most {limit:,} request{'' if limit == 1 else 's'} in flight"


def _of_run(run: Recording) -> Iterator[str]:
    counts = run.counts
    left_out = {
        "warm-up": counts.warm_up,
        "cut off": counts.cut_off,
        "never sent": counts.never_sent,
        "not listed": counts.unlisted,
        "malformed": counts.skipped,
    }
    parts = [f"{number:,} {name}" for name, number in left_out.items() if number]
    failed = int(run.failed.sum())
    yield ", ".join([f"requests: {run.num_requests:,}, {failed:,} failed", *parts])
    yield _span(run.num_requests, float(run.send_s[-1]))
    yield f"server: {run.server.key or 'not described'}"
    at_once = run.in_flight()
    yield _client(run.client_max_in_flight) + (f"; {at_once:,} at once here" if at_once else "")
    if run.num_replicas is not None:
        yield f"replicas of the server: {run.num_replicas:,}"
    if run.session is not None:
        named_sessions = {name for name in run.session if name}
        yield f"sessions: {len(named_sessions):,} conversations"
    done = ~run.failed
    if run.cached_tokens is not None and done.any():
        share = run.cached_tokens[done].sum() / max(1, run.input_tokens[done].sum())
        yield f"cached: {share:.0%} of the prompt tokens"
    if done.any():
        prompt, output = run.input_tokens[done].mean(), run.output_tokens[done].mean()
        yield f"tokens: mean prompt {prompt:,.1f}, mean output {output:,.1f}"
    latencies = {"TTFT": run.ttft_s, "ITL": run.itl_s, "E2E": run.e2e_s}
    known = {name: values[~np.isnan(values)] for name, values in latencies.items()}
    shown = [f"{name} {values.mean():.4g} s" for name, values in known.items() if len(values)]
    yield f"means: {', '.join(shown) or 'no latencies'}"
    if run.units:
        yield "units: " + ", ".join(f"{field} in {unit}" for field, unit in run.units.items())
    if same := [figure.name for figure in run.reported if not figure.cause]:
        yield f"as the tool reports: {', '.join(same)}"
    yield from (f"{OTHER_FIGURES}: {figure}" for figure in run.mismatches)
    if lacks := [name for name, values in known.items() if not len(values)]:
        yield f"missing: {', '.join(lacks)}; `calibrate` and `validate` need TTFT and E2E"


def _of_points(points: LatencyPoints) -> Iterator[str]:
    yield ""
    yield f"points of {points.server.key or 'a server that is not described'}"
    yield f"tokens: prompt {points.input_tokens:,}, output {points.output_tokens:,}"
    rates = points.requests_per_s
    for at, concurrency in enumerate(points.concurrency.tolist()):
        loads = [f"{concurrency:,} in flight"] if concurrency else []
        if rates is not None and (np.isfinite(rates[at]) or not concurrency):
            loads.append(f"{rates[at]:g} requests/s" if np.isfinite(rates[at]) else "all at once")
        latencies = {"TTFT": points.ttft_s[at], "ITL": points.itl_s[at]}
        known = [f"{name} {value:.4g} s" for name, value in latencies.items() if np.isfinite(value)]
        yield f"{' and '.join(loads)}: {', '.join(known)}"


def _facts(run: Recording) -> dict[str, Any]:
    done = ~run.failed
    return {
        "name": run.name,
        "requests": run.num_requests,
        "failed": int(run.failed.sum()),
        "counts": run.counts,
        "client_max_in_flight": run.client_max_in_flight,
        "num_replicas": run.num_replicas,
        "sessions": None if run.session is None else len(set(run.session) - {""}),
        "cached_tokens": None if run.cached_tokens is None else int(run.cached_tokens[done].sum()),
        "input_tokens": int(run.input_tokens[done].sum()),
        "output_tokens": int(run.output_tokens[done].sum()),
        "mean_ttft_s": _mean(run.ttft_s),
        "mean_itl_s": _mean(run.itl_s),
        "mean_e2e_s": _mean(run.e2e_s),
        "units": dict(run.units),
        "reported": [figure._asdict() for figure in run.reported],
    }


def _values(points: LatencyPoints) -> dict[str, Any]:
    rates = points.requests_per_s
    return {
        "server": points.server.key,
        "group": dict(points.group),
        "input_tokens": points.input_tokens,
        "output_tokens": points.output_tokens,
        "concurrency": points.concurrency.tolist(),
        "requests_per_s": None if rates is None else [_number(rate) for rate in rates.tolist()],
        "ttft_s": [_number(value) for value in points.ttft_s.tolist()],
        "itl_s": [_number(value) for value in points.itl_s.tolist()],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
