"""What a report of GuideLLM states of each benchmark: strategy, counts and means."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from spillway.files.recordings.objects import Object
from spillway.files.recordings.server import facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.data.recording import ServerFacts
    from spillway.files.recordings.source import Source


_RATES = ("async", "constant", "poisson")


class Report:
    """A report of any version.

    `document`: all of it but the requests, or its beginning.
    """

    def __init__(self, source: Source, document: Any) -> None:
        whole = Object(source, "", document)
        benchmarks = whole.objects("benchmarks")
        # Since version 2 of the report the arguments are in `config`.
        arguments, spec = whole.object("args"), whole.object("config").object("spec")
        models = [
            arguments.values.get("model"),
            spec.object("backend").values.get("model"),
            _value(arguments, "backend_kwargs", "model"),
        ]
        self.benchmarks = [
            Benchmark(values, models, f"{source.path.stem}[{at}]" if benchmarks[1:] else "")
            for at, values in enumerate(benchmarks)
        ]


class Benchmark:
    """One benchmark of a report.

    Parameters
    ----------
    values : Object
        The benchmark.
    models : sequence
        What the report may state as its model.
    name : str
        The name of its run; a report of one benchmark has the name of its file.

    """

    def __init__(self, values: Object, models: Sequence[Any], name: str) -> None:
        self.values = values
        self.models = models
        self.name = name
        self.place = f"{values.source.path}{f', {values.place}' if name else ''}"
        self.metrics = values.object("metrics")

    @property
    def server(self) -> ServerFacts:
        """The statements about the server."""
        own = (
            _value(self.values, "config", "backend", "model"),
            _value(self.values, "worker", "backend_model"),  # until 0.3
        )
        # Others are the server's default, or described otherwise.
        names = (name for name in (*self.models, *own) if isinstance(name, str) and name)
        model = next(names, None)
        return facts(str(self.values.source.path), {"model": model})

    @property
    def max_in_flight(self) -> int | None:
        """The client's limit on requests in flight; None if it has none of its own.

        A strategy with a rate has a limit on what the tool itself can do, e.g. 512, in its
        `max_concurrency`; a limit that the user states is in the profile.
        """
        # In `args` until 0.3, in `scheduler` and `benchmarker` in 0.4.
        blocks = [self.values.object(name) for name in ("config", "args", "scheduler")]
        found = next((block for block in blocks if "strategy" in block.values), blocks[0])
        if isinstance(found.values.get("strategy"), str):
            return 1 if found.values["strategy"] == "synchronous" else None
        strategy, profile = found.object("strategy"), found.object("profile")
        kind = _kind(strategy)
        if kind == "synchronous":
            return 1
        if kind in _RATES:
            return profile.whole("max_concurrency") if _kind(profile) in _RATES else None
        return strategy.whole("streams") or strategy.whole("max_concurrency") or None

    @property
    def totals(self) -> Object:
        """The numbers of requests by status that the tool counts."""
        within = self.metrics if "request_totals" in self.metrics.values else self.values
        return within.object("request_totals")

    @property
    def counted(self) -> int:
        """How many requests the tool counts; 0 if it does not say."""
        states = ("successful", "errored", "incomplete")
        return sum(self.totals.whole(status) or 0 for status in states)

    @functools.cached_property
    def first(self) -> Mapping[str, Any]:
        """The first request; empty if there is none."""
        listed = self.values.object("requests")
        found = (entry for status in listed.values for entry in listed.items(status))
        first: Any = next(found, {})
        return first if isinstance(first, dict) else {}

    @property
    def has_point(self) -> bool:
        """Whether it states a number of requests in flight, and mean latencies at it."""
        known = (self.max_in_flight, self.mean("time_to_first_token_ms"))
        return None not in (*known, self.mean("inter_token_latency_ms"))

    def mean(self, name: str) -> float | None:
        """Return the tool's mean over the completed requests; None if it states none."""
        return self.metrics.object(name).object("successful").number("mean")


def is_report(source: Source) -> bool:
    """Whether a file is a report."""
    outline = source.outline
    benchmarks = outline.get("benchmarks") if isinstance(outline, dict) else None
    return (
        isinstance(benchmarks, list)
        and bool(benchmarks)
        and all(
            isinstance(benchmark, dict) and _is_benchmark(benchmark) for benchmark in benchmarks
        )
    )


def _is_benchmark(values: Mapping[str, Any]) -> bool:
    metrics = values.get("metrics")
    return isinstance(values.get("requests"), dict) or (
        isinstance(metrics, dict) and "time_to_first_token_ms" in metrics
    )


def gives_points(source: Source) -> bool:
    """Whether a file is a report that lists no requests, but means at stated concurrency."""
    if not is_report(source):
        return False
    benchmarks = Report(source, source.outline).benchmarks
    return not any(b.first for b in benchmarks) and any(b.has_point for b in benchmarks)


def _kind(settings: Object) -> str | None:
    # The key is `kind` since version 2 of the report, at least in profiles.
    found = settings.values.get("type_", settings.values.get("kind"))
    return found if isinstance(found, str) else None


def _value(values: Object, *path: str) -> Any:
    """Return a value that may have another form; None if there is none."""
    found: Any = values.values
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found
