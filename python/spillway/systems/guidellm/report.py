"""What a report of GuideLLM states of each benchmark: strategy, counts and means."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from spillway.files.recordings.objects import Object
from spillway.files.recordings.server import facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.data.recording import ServerFacts
    from spillway.files.recordings.source import Source


_RATES = ("async", "constant", "poisson")


class Report:
    """A report of any version."""

    def __init__(self, source: Source) -> None:
        whole = Object(source, "", source.json)
        benchmarks = whole.objects("benchmarks")
        # Since version 2 of the report the arguments are in `config`.
        arguments = (whole.object("args"), whole.object("config").object("spec").object("backend"))
        self.benchmarks = [
            Benchmark(values, arguments, f"{source.path.stem}[{at}]" if benchmarks[1:] else "")
            for at, values in enumerate(benchmarks)
        ]


class Benchmark:
    """One benchmark of a report.

    Parameters
    ----------
    values : Object
        The benchmark.
    arguments : tuple of Object
        Where the report may state the model.
    name : str
        The name of its run; a report of one benchmark has the name of its file.

    """

    def __init__(self, values: Object, arguments: tuple[Object, ...], name: str) -> None:
        self.values = values
        self.arguments = arguments
        self.name = name
        self.place = f"{values.source.path}{f', {values.place}' if name else ''}"
        self.metrics = values.object("metrics")

    @property
    def server(self) -> ServerFacts:
        """The statements about the server."""
        worker = self.values.object("worker").values.get("backend_model")  # until 0.3
        models = [_model(found.values.get("model")) for found in self.arguments]
        model = next((found for found in (*models, _model(worker)) if found), None)
        return facts(str(self.values.source.path), {"model": model})

    @property
    def max_in_flight(self) -> int | None:
        """The client's limit on requests in flight; None if it has none of its own.

        A strategy with a rate has a limit on what the tool itself can do, e.g. 512, in its
        `max_concurrency`; a limit that the user states is in the profile.
        """
        # Until 0.3 the strategy is in `args`.
        config = self.values.object("config" if "config" in self.values.values else "args")
        strategy, profile = config.object("strategy"), config.object("profile")
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
    benchmarks = source.json.get("benchmarks") if isinstance(source.json, dict) else None
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
    benchmarks = Report(source).benchmarks
    return not any(b.first for b in benchmarks) and any(b.has_point for b in benchmarks)


def _kind(settings: Object) -> str | None:
    # The key is `kind` since version 2 of the report, at least in profiles.
    found = settings.values.get("type_", settings.values.get("kind"))
    return found if isinstance(found, str) else None


def _model(found: Any) -> str | None:
    """Return the model; None if it is the server's default, or described otherwise."""
    return found if isinstance(found, str) and found else None
