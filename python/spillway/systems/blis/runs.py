"""Recorded runs of BLIS v0.6.14: their configurations and results.

A scenario is a folder with

- `trace.csv`: the offered requests, in the format `reference` of `spillway.files.traces`;
- `requests.csv`: `request_id, ttft_us, e2e_us, scheduling_delay_us, itl_mean_us, instance`, one row
  per completed request;
- `summary.json`: `instances`, `total_kv_blocks`, `alpha`, `beta` (coefficients of its blackbox
  latency model, µs), `options` (command-line options that differ from their defaults, `_` for `-`),
  `aggregate` (its metrics as JSON) and `text` (the lines it printed about fitness, anomalies and
  decisions).

Recordings must break ties in routing by the first index; BLIS's random draws are not reproduced.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway._core.sim import ConfigError
from spillway.config import filesystem, profiles, yaml
from spillway.files.traces import TraceError
from spillway.files.traces.csv_table import CsvTable, csv_tables
from spillway.files.traces.reading import read_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway._core.cluster import Simulation


_CANDIDATES = 4
"""Candidates of the recorded decision traces; the regret does not depend on it."""

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

FIGURES = ("ttft_us", "e2e_us", "scheduling_delay_us", "itl_mean_us")
"""Columns of requests.csv with latencies of a request, in microseconds."""


def simulations(directory: str | Path) -> Iterator[Simulation]:
    """The recorded scenarios in a folder, at any depth, as simulations.

    Scenarios that need unsupported features are left out. Raises TraceError like `recordings`.
    """
    for run in recordings(directory):
        settings, unsupported = run.settings()
        if not unsupported:
            yield run.simulation(settings)


def recordings(directory: str | Path) -> Iterator[Recording]:
    """The recorded scenarios in a folder, at any depth.

    Raises TraceError if it holds none, or if one is incomplete or cannot be read.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise TraceError(f"{directory}: not a folder")
    folders = sorted(path.parent for path in directory.rglob("trace.csv"))
    if not folders:
        raise TraceError(
            f"{directory}: no scenario found; a scenario is a folder with trace.csv, requests.csv "
            "and summary.json"
        )
    return map(Recording, folders)


class Recording:
    """A recorded scenario.

    Raises TraceError if its summary.json cannot be read or lacks something.

    Attributes
    ----------
    folder : Path
        Its folder.
    aggregate : dict
        BLIS's metrics over the whole run.
    text : dict of str
        The lines that BLIS printed: text before the colon → text after it.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "summary.json"
        try:
            text = filesystem.read_text(self.path, "must be JSON in UTF-8")
            content = yaml.parse(text, str(self.path), is_json=True)
        except ConfigError as error:
            raise TraceError(str(error)) from error
        if not isinstance(content, dict):
            raise TraceError(f"{self.path}: must be an object, not {content!r:.40}")
        self._content: dict[str, Any] = content
        self.options: dict[str, Any] = self._get("options", dict, "an object")
        self.aggregate: dict[str, Any] = self._get("aggregate", dict, "an object")
        lines: list[Any] = self._get("text", list, "a list of lines")
        parts = (str(line).partition(":") for line in lines)
        self.text: dict[str, str] = {key.strip(): value.strip() for key, _, value in parts}

    def _get(self, key: str, kind: type[Any], meaning: str) -> Any:
        value = self._content.get(key)
        if not isinstance(value, kind):
            raise TraceError(f"{self.path}, {key} = {value!r:.40}: must be {meaning}")
        return value

    def _number(self, place: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TraceError(f"{self.path}, {place} = {value!r:.40}: must be a number")
        return value

    def _coefficients(self, key: str) -> list[Any]:
        values = self._get(key, list, "a list of three numbers")
        if len(values) != 3:
            raise TraceError(
                f"{self.path}, {key} = {values!r:.40}: must be a list of three numbers"
            )
        return [self._number(f"{key}[{i}]", value) for i, value in enumerate(values)]

    def _scorers(self, text: Any) -> list[dict[str, Any]]:
        scorers = []
        for entry in str(text).split(","):
            name, _, weight = entry.partition(":")
            if name not in _SCORERS:
                known = ", ".join(_SCORERS)
                raise TraceError(
                    f"{self.path}, options.routing_scorers: {name!r} must be one of {known}"
                )
            try:
                scorers.append({"kind": name.replace("-", "_"), "weight": float(weight)})
            except ValueError:
                raise TraceError(
                    f"{self.path}, options.routing_scorers: {entry!r} must be NAME:WEIGHT"
                ) from None
        return scorers

    @functools.cached_property
    def columns(self) -> dict[str, Any]:
        """The offered requests, as arguments of the core's `make_trace`."""
        return read_columns(self.folder / "trace.csv", format="reference")

    def requests(self) -> dict[str, dict[str, Any]]:
        """The completed requests by id: their `FIGURES`, and the name of their instance."""
        path = self.folder / "requests.csv"
        required = ("request_id", *FIGURES, "instance")
        found: dict[str, dict[str, Any]] = {}
        with contextlib.closing(csv_tables(path)) as tables:
            for table in tables:
                if missing := [name for name in required if name not in table.columns]:
                    raise TraceError(f"{path}: lacks the columns {', '.join(missing)}")
                for row, request_id in enumerate(table.texts("request_id")):
                    if request_id in found:
                        table.refuse(row, "request_id", "occurs twice")
                    found[request_id] = {
                        "instance": table.cell(row, "instance"),
                        **{name: _microseconds(table, row, name) for name in FIGURES},
                    }
        if unknown := set(found) - set(self.columns["request_id"]):
            raise TraceError(f"{path}: request {min(unknown)} is not in trace.csv")
        return found

    def simulation(self, settings: Mapping[str, Any]) -> Simulation:
        """The scenario with its requests; `settings` are those of `settings()`."""
        # BLIS's names: it breaks ties in its queues by their text.
        names = [f"request_{number}" for number in self.columns["request_id"]]
        try:
            trace = _core.workload.make_trace(**{**self.columns, "request_id": names})
            return profiles.to_simulation(settings).replace(workload=trace)
        except ConfigError as error:
            raise TraceError(f"{self.path}: invalid configuration: {error}") from error

    def settings(self) -> tuple[dict[str, Any], list[str]]:
        """The scenario as a configuration without requests, and its unsupported features."""
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


def _microseconds(table: CsvTable, row: int, column: str) -> float:
    try:
        return float(table.cell(row, column))
    except ValueError:
        table.refuse(row, column, "must be a number of microseconds")
