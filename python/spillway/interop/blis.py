"""Comparison with recorded results of BLIS v0.6.14, request by request.

A scenario is a folder with

- `trace.csv`: the offered requests, in the format `reference` of `spillway.interop.traces`;
- `requests.csv`: `request_id, ttft_us, e2e_us, scheduling_delay_us, itl_mean_us, instance`, one row
  per completed request;
- `summary.json`: `instances`, `total_kv_blocks`, `alpha`, `beta` (coefficients of its blackbox
  latency model, µs), `options` (command-line options that differ from their defaults, `_` for `-`),
  `aggregate` (its metrics as JSON) and `text` (the lines it printed about fitness, anomalies and
  decisions).

Recordings must break ties in routing by the first index; that simulator's random draws are not
reproduced.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway import _core, _yaml, files
from spillway._core.sim import ConfigError
from spillway._figures import FIGURES
from spillway.interop.formats import TraceError
from spillway.interop.traces import Table, read_columns, tables
from spillway.results import Result

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spillway._core.cluster import Simulation

_MOST_DIFFERENCES = 5
_CANDIDATES = 4
"""Candidates of the recorded decision traces; the regret does not depend on it."""
_RELATIVE_TOLERANCE = 1e-9  # means are summed in another order there

_ROUTERS = {
    "round-robin": "round_robin",
    "least-loaded": "least_loaded",
    "always-busiest": "always_busiest",
    "weighted": "weighted",
}
_SCORERS = ("prefix-affinity", "queue-depth", "kv-utilization", "load-balance")
_ADMISSIONS = {
    "always-admit": "always_admit",
    "token-bucket": "token_bucket",
    "reject-all": "reject_all",
}
_SCHEDULERS = {
    "fcfs": "fcfs",
    "priority-fcfs": "priority_fcfs",
    "sjf": "sjf",
    "reverse-priority": "reverse_priority",
}
_PRIORITIES = {"constant": "constant", "slo-based": "age", "inverted-slo": "inverted_age"}

# Key of `aggregate` → key of the summary.
_AGGREGATE = {one.blis: name for name, one in FIGURES.items() if one.blis}

# Figure of requests.csv → column of the run in seconds, tolerance in microseconds. A whole number
# of microseconds survives the way through seconds to far less than the first tolerance; the second
# is half of the last digit that is recorded.
_FIGURES = {
    "ttft_us": ("ttft_s", 1e-3),
    "e2e_us": ("e2e_s", 1e-3),
    "scheduling_delay_us": ("scheduling_delay_s", 1e-3),
    "itl_mean_us": ("itl_mean_s", 5e-4 + 1e-6),
}


@dataclass(frozen=True)
class ScenarioReport:
    """How one scenario compares.

    Attributes
    ----------
    name : str
        The folder, relative to the one that was asked for.
    requests, exact : int
        Offered requests, and those among them that fare the same in both: completed with equal
        figures on the same instance, or not completed.
    unsupported : str or None
        What the scenario needs and Spillway lacks; it was not run then.
    aggregate_mismatches : tuple of str
        Aggregate figures that differ, in words.
    first_differences : tuple of str
        The first requests that differ, in words.

    """

    name: str
    requests: int
    exact: int
    unsupported: str | None = None
    aggregate_mismatches: tuple[str, ...] = ()
    first_differences: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether the scenario was run and everything is equal."""
        return (
            self.unsupported is None
            and self.exact == self.requests
            and not self.aggregate_mismatches
        )


@dataclass(frozen=True)
class Report:
    """How all scenarios compare."""

    scenarios: tuple[ScenarioReport, ...]

    @property
    def agrees(self) -> bool:
        """Whether every scenario was run and agrees entirely."""
        return bool(self.scenarios) and all(scenario.agrees for scenario in self.scenarios)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts and lists."""
        return {
            "scenarios": [
                {
                    "name": scenario.name,
                    "requests": scenario.requests,
                    "exact": scenario.exact,
                    "unsupported": scenario.unsupported,
                    "aggregate_mismatches": list(scenario.aggregate_mismatches),
                }
                for scenario in self.scenarios
            ]
        }

    def table(self) -> str:
        """Return the report as text: one line per scenario, what differs below."""
        width = max(len(name) for name in ("scenario", *(one.name for one in self.scenarios)))
        lines = [f"{'scenario':<{width}}  {'requests':>8}  {'exact':>8}  result"]
        for scenario in self.scenarios:
            if scenario.unsupported is not None:
                exact, result = "-", f"unsupported: {scenario.unsupported}"
            else:
                exact, result = str(scenario.exact), "agrees" if scenario.agrees else "differs"
            lines.append(f"{scenario.name:<{width}}  {scenario.requests:>8}  {exact:>8}  {result}")
            lines += [f"    {text}" for text in scenario.first_differences]
            lines += [f"    {text}" for text in scenario.aggregate_mismatches]
        return "\n".join(lines)


def validate(directory: str | Path) -> Report:
    """Run every scenario in a folder, at any depth, and compare the results with the recorded ones.

    Latencies must be equal to the microsecond (mean gaps between tokens to a nanosecond), instances
    equal, aggregate figures equal to 1e-9 of their value.

    Raises
    ------
    TraceError
        The folder holds no scenario, or one of them is incomplete or cannot be read.

    """
    directory = Path(directory)
    folders = _folders(directory)
    return Report(tuple(_validate_scenario(folder, directory) for folder in folders))


def simulations(directory: str | Path) -> Iterator[Simulation]:
    """The recorded scenarios in a folder, at any depth, as simulations; TraceError as `validate`.

    Scenarios that need what is not supported are left out.
    """
    for folder in _folders(Path(directory)):
        settings, unsupported = _Recording(folder).settings()
        if not unsupported:
            columns = read_columns(folder / "trace.csv", format="reference")
            yield _simulation(folder, settings, columns)


def _folders(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise TraceError(f"{directory}: is no folder")
    folders = sorted(path.parent for path in directory.rglob("trace.csv"))
    if not folders:
        raise TraceError(
            f"{directory}: holds no scenario; one is a folder with trace.csv, requests.csv and "
            "summary.json"
        )
    return folders


def _simulation(
    folder: Path, settings: Mapping[str, Any], columns: Mapping[str, Any]
) -> Simulation:
    # That simulator's names: ties in its queues go by their text.
    names = [f"request_{one}" for one in columns["request_id"]]
    try:
        trace = _core.workload.make_trace(**{**columns, "request_id": names})
        return files.from_settings(settings).replace(workload=trace)
    except ConfigError as error:
        raise TraceError(f"{folder / 'summary.json'}: is of no use to the core: {error}") from error


def _validate_scenario(folder: Path, directory: Path) -> ScenarioReport:
    name = folder.resolve().name if folder == directory else str(folder.relative_to(directory))
    recording = _Recording(folder)
    columns = read_columns(folder / "trace.csv", format="reference")
    expected = _read_requests(folder / "requests.csv")
    if unknown := set(expected) - set(columns["request_id"]):
        raise TraceError(f"{folder / 'requests.csv'}: request {min(unknown)} is not in trace.csv")

    settings, unsupported = recording.settings()
    rows = len(columns["arrival_ns"])
    if unsupported:
        return ScenarioReport(name, rows, 0, unsupported="; ".join(unsupported))

    ids = columns["request_id"]
    simulation = _simulation(folder, settings, columns)
    result = Result(simulation, 0, _core.cluster.run(simulation, 0))
    differences = list(_differences(ids, expected, result))
    return ScenarioReport(
        name,
        rows,
        rows - len(differences),
        aggregate_mismatches=tuple(_aggregate_mismatches(recording, result)),
        first_differences=tuple(differences[:_MOST_DIFFERENCES]),
    )


class _Recording:
    """A scenario's summary.json."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "summary.json"
        try:
            with files.open_text(self.path) as stream:
                content = _yaml.parse(stream.read(), str(self.path), is_json=True)
        except OSError as error:
            raise TraceError(str(files.cannot("read", self.path, error))) from error
        except UnicodeDecodeError as error:
            raise TraceError(f"{self.path}: is no text file; JSON in UTF-8 is needed") from error
        except ConfigError as error:
            raise TraceError(str(error)) from error
        if not isinstance(content, dict):
            raise TraceError(f"{self.path}: must be an object, not {content!r:.60}")
        self._content: dict[str, Any] = content
        self.options: dict[str, Any] = self._get("options", dict, "an object")
        self.aggregate: dict[str, Any] = self._get("aggregate", dict, "an object")
        lines: list[Any] = self._get("text", list, "a list of lines")
        parts = (str(line).partition(":") for line in lines)
        self.text: dict[str, str] = {key.strip(): value.strip() for key, _, value in parts}

    def _get(self, key: str, kind: type[Any], meaning: str) -> Any:
        value = self._content.get(key)
        if not isinstance(value, kind):
            raise TraceError(f"{self.path}, {key} = {value!r:.60}: must be {meaning}")
        return value

    def _number(self, place: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TraceError(f"{self.path}, {place} = {value!r:.60}: must be a number")
        return value

    def _coefficients(self, key: str) -> list[Any]:
        values = self._get(key, list, "a list of three numbers")
        if len(values) != 3:
            raise TraceError(
                f"{self.path}, {key} = {values!r:.60}: must be a list of three numbers"
            )
        return [self._number(f"{key}[{i}]", value) for i, value in enumerate(values)]

    def _scorers(self, text: Any) -> list[dict[str, Any]]:
        scorers = []
        for entry in str(text).split(","):
            name, _, weight = entry.partition(":")
            if name not in _SCORERS:
                known = ", ".join(_SCORERS)
                raise TraceError(
                    f"{self.path}, options.routing_scorers: {name!r} is none of {known}"
                )
            try:
                scorers.append({"kind": name.replace("-", "_"), "weight": float(weight)})
            except ValueError:
                raise TraceError(
                    f"{self.path}, options.routing_scorers: {entry!r} must be NAME:WEIGHT"
                ) from None
        return scorers

    def settings(self) -> tuple[dict[str, Any], list[str]]:
        """Return the scenario as a configuration, and what it needs beyond."""
        left = dict(self.options)
        unsupported: list[str] = []

        def number(name: str, default: float) -> Any:
            return self._number(f"options.{name}", left.pop(name, default))

        def seconds(name: str) -> float:
            return float(number(name, 0)) * 1e-6

        def choice(name: str, default: str, known: Mapping[str, str]) -> str:
            value = left.pop(name, default)
            if isinstance(value, str) and value in known:
                return known[value]
            unsupported.append(f"{name} {value}")
            return known[default]

        alpha = self._coefficients("alpha")
        beta = self._coefficients("beta")
        group: dict[str, Any] = {
            "count": self._get("instances", int, "a whole number"),
            "num_kv_blocks": self._get("total_kv_blocks", int, "a whole number"),
            "max_num_seqs": number("max_num_running_reqs", 256),
            "max_num_batched_tokens": number("max_num_scheduled_tokens", 2048),
            "long_prefill_token_threshold": number("long_prefill_token_threshold", 0),
            "max_model_len": number("max_model_len", 0),
            "block_size_tokens": number("block_size_in_tokens", 16),
            "scheduler": {"kind": choice("scheduler", "fcfs", _SCHEDULERS)},
            "latency": {
                "kind": "linear",
                "alpha0_us": alpha[0],
                "alpha_input_us": alpha[1],
                "alpha_output_us": alpha[2],
                "beta0_us": beta[0],
                "beta_prefill_us": beta[1],
                "beta_decode_us": beta[2],
            },
        }
        priority = choice("priority_policy", "constant", _PRIORITIES)
        if group["scheduler"]["kind"] in ("priority_fcfs", "reverse_priority"):
            group["scheduler"]["priority"] = priority
        admission: dict[str, Any] = {
            "kind": choice("admission_policy", "always-admit", _ADMISSIONS)
        }
        bucket = {
            "capacity_tokens": number("token_bucket_capacity", 10000),
            "refill_tokens_per_s": number("token_bucket_refill_rate", 1000),
        }
        if admission["kind"] == "token_bucket":
            admission |= bucket
        settings: dict[str, Any] = {
            "gateway": {
                "admission": admission,
                "admission_latency_s": seconds("admission_latency"),
                "routing_latency_s": seconds("routing_latency"),
            },
            "profile": "blis_0_6",
            "router": {"kind": choice("routing_policy", "round-robin", _ROUTERS)},
            "metrics": {"traced_candidates": _CANDIDATES},
            "signals": {"kind": "live"},
            "instances": [group],
        }
        if settings["router"]["kind"] == "least_loaded":
            settings["router"]["ties"] = "first"
        if settings["router"]["kind"] == "weighted":
            settings["router"]["picker"] = {"kind": "best", "ties": "first"}
            scorers = left.pop(
                "routing_scorers", "prefix-affinity:3,queue-depth:2,kv-utilization:2"
            )
            settings["router"]["scorers"] = self._scorers(scorers)
            settings["prefix_index"] = {"block_size_tokens": group["block_size_tokens"]}
        if (period_s := seconds("snapshot_refresh_interval")) > 0:
            settings["signals"] = {"kind": "on_read", "period_s": period_s}
        if "horizon" in left:
            settings["horizon_s"] = seconds("horizon")
        return settings, unsupported + [f"option {name}" for name in sorted(left)]


def _read_requests(path: Path) -> dict[str, dict[str, Any]]:
    """Return the figures of the completed requests by request id."""
    required = ("request_id", *_FIGURES, "instance")
    requests: dict[str, dict[str, Any]] = {}
    for table in tables(path):
        if missing := [name for name in required if name not in table.header]:
            raise TraceError(f"{path}: lacks the columns {', '.join(missing)}")
        for row, request_id in enumerate(table.texts("request_id")):
            if request_id in requests:
                table.refuse(row, "request_id", "occurs twice")
            requests[request_id] = {
                "instance": table.texts("instance")[row],
                **{name: _microseconds(table, row, name) for name in _FIGURES},
            }
    return requests


def _microseconds(table: Table, row: int, column: str) -> float:
    try:
        return float(table.texts(column)[row])
    except ValueError:
        table.refuse(row, column, "must be a number of microseconds")


def _differences(
    ids: Sequence[str], expected: Mapping[str, Mapping[str, Any]], result: Result
) -> Iterator[str]:
    """One text per request that differs."""
    columns = result.requests
    outcomes = columns["outcome"].tolist()
    for row, request_id in enumerate(ids):
        # A horizon may end the run before the last arrival.
        outcome = outcomes[row] if row < len(outcomes) else "not offered"
        recorded = expected.get(request_id)
        if outcome != "completed" or recorded is None:
            if outcome == "completed":
                yield f"request {request_id}: completed here, but not in the recording"
            elif recorded is not None:
                yield f"request {request_id}: completed in the recording, {outcome} here"
            continue
        parts = []
        for name, (column, tolerance_us) in _FIGURES.items():
            value_us = float(columns[column][row]) * 1e6
            if not abs(value_us - recorded[name]) <= tolerance_us:
                parts.append(f"{name} {recorded[name]:.12g} recorded, {value_us:.12g} here")
        instance = f"instance_{columns['instance'][row]}"
        if instance != recorded["instance"]:
            parts.append(f"{recorded['instance']} recorded, {instance} here")
        if parts:
            yield f"request {request_id}: {'; '.join(parts)}"


def _aggregate_mismatches(recording: _Recording, result: Result) -> Iterator[str]:
    """One text per aggregate figure that differs."""
    for name, value in _aggregate_of(result).items():
        recorded = recording.aggregate.get(name)
        if isinstance(recorded, bool) or not isinstance(recorded, (int, float)):
            yield f"{name}: {recorded!r} recorded, {value} here"
        elif not math.isclose(recorded, value, rel_tol=_RELATIVE_TOLERANCE, abs_tol=0):
            yield f"{name}: {recorded} recorded, {value} here"
    # Printed only where they are not zero.
    if (failures := recording.aggregate.get("kv_allocation_failures", 0)) != 0:
        yield f"kv_allocation_failures: {failures} recorded, 0 here"

    text = recording.text
    for name, printed in _printed_of(result).items():
        # Blocks of figures that are all zero are not printed.
        absent = None
        if name in _ANOMALIES and "=== Anomaly Counters ===" not in text:
            absent = "0"
        elif name == "Cache Hit Rate" and "=== KV Cache Metrics ===" not in text:
            absent = "0.0000"
        if text.get(name, absent) != printed:
            yield f"{name}: {text.get(name)} recorded, {printed} here"
    targets = {name: count for name, count in text.items() if name.startswith("instance_")}
    routed = Counter(
        f"instance_{instance}" for instance in result.requests["instance"].tolist() if instance >= 0
    )
    ours = {name: str(count) for name, count in routed.items()}
    if targets != ours:
        yield f"target distribution: {_words(targets)} recorded, {_words(ours)} here"


def _aggregate_of(result: Result) -> dict[str, float]:
    """Return the run's figures under the names of `aggregate`; those of nothing are 0 there."""
    summary = result.summary()
    columns = result.requests
    figures = {name: summary[key] or 0 for name, key in _AGGREGATE.items()}
    in_engine = columns["outcome"] == "running"
    scheduled = columns["scheduling_delay_s"] >= 0  # NaN: never
    running = int((in_engine & scheduled).sum())
    queued = int((in_engine & ~scheduled).sum())
    unservable = result.ledger["worker_rejected"].get("unservable", 0)
    return figures | {
        "still_queued": queued,
        "still_running": running,
        "dropped_unservable": unservable,
        "injected_requests": result.ledger["completed"] + queued + running + unservable,
        "length_capped_requests": 0,
        "timed_out_requests": 0,
    }


_ANOMALIES = (
    "Priority Inversions",
    "HOL Blocking Events",
    "Rejected Requests (Admission)",
    "Rejected Requests (Routing)",
    "Dropped Unservable",
    "Length-Capped Requests",
)


def _printed_of(result: Result) -> dict[str, str]:
    """Return the run's figures as that simulator prints them."""
    summary = result.summary()
    ledger = result.ledger
    rejected = sum(ledger["rejected"].values())
    counters = (
        summary["priority_inversions"],
        summary["head_of_line_blocking"],
        rejected,
        0,
        ledger["worker_rejected"].get("unservable", 0),
        0,
    )
    return {
        "Score": f"{summary['fitness']:.6f}",
        **{name: str(count) for name, count in zip(_ANOMALIES, counters, strict=True)},
        "Cache Hit Rate": f"{summary['cache_hit_rate'] or 0:.4f}",
        "Mean Regret": f"{summary['mean_regret'] or 0:.6f}",
        "Max Regret": f"{summary['max_regret'] or 0:.6f}",
        "Total Decisions": str(ledger["admitted"] + rejected),
        "Admitted": str(ledger["admitted"]),
        "Rejected": str(rejected),
    }


def _words(counts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {counts[name]}" for name in sorted(counts)) or "nothing"
