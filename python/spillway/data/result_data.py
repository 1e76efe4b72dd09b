"""The data of one run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import _core
from spillway._core.cluster import Simulation
from spillway._core.workload import LengthPrediction
from spillway.config import files, profiles
from spillway.data.figures import Figures, FiguresByName, Groups
from spillway.data.requests import ATTRIBUTE, CODED, Columns, RequestIds, Requests

# Each method imports the view that it makes: most scripts need only a few of them.
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self

    from spillway.data.decisions import Decisions
    from spillway.data.timeline import Control, Timeline


_SUMMARY_SCHEMA = 1  # version of summary.json


def _columns_of(record: _core.cluster.RequestRecord) -> Columns:
    names, further = _core.cluster.columns, record.further_columns
    return Columns(
        (*names, *further),
        lambda name: record.further_column(name) if name in further else record.column(name),
    )


def _offered_of(record: _core.cluster.RequestRecord) -> Columns:
    names = [f"{ATTRIBUTE}{name}" for name, _ in record.attributes]
    return Columns(
        (*_core.cluster.offered_columns, *names),
        lambda name: (
            record.attribute_codes(names.index(name))
            if name in names
            else record.offered_column(name)
        ),
    )


class ResultData:
    """One run: the outcome and latencies of every request, and the figures over all of them.

    The input of analyses, tables and figures; `Result` adds those as methods.
    """

    def __init__(self, simulation: Simulation, seed: int, output: Mapping[str, Any]) -> None:
        self.simulation = simulation
        self.seed = seed
        self._output = dict(output)
        self._token_gaps: Columns | None = None
        record = self._output.pop("record", None)
        if record is not None:
            self._output["columns"] = _columns_of(record)
            self._output["offered"] = _offered_of(record)
            self._output["attributes"] = dict(record.attributes)
            self._output["models"] = record.models
            self._output["request_id"] = RequestIds(record)
            self._token_gaps = Columns(("gap_s", "count"), record.token_gaps)
        groups = self._output.pop("groups", None)
        if groups is not None:
            self._output["by_class"] = FiguresByName(groups.by_class)
            self._output["by_tenant"] = FiguresByName(groups.by_tenant)

    @property
    def has_requests(self) -> bool:
        """Whether the requests were kept."""
        return "columns" in self._output

    def _columns(self) -> Mapping[str, NDArray[Any]]:
        if not self.has_requests:
            is_streamed = self.simulation.metrics.streaming
            why = "metrics.streaming is on" if is_streamed else "give run_many keep_requests=True"
            raise _core.sim.UsageError(f"the requests of this run were not kept: {why}")
        columns: Mapping[str, NDArray[Any]] = self._output["columns"]
        return columns

    def _offered(self) -> Mapping[str, NDArray[Any]]:
        """The requested output_tokens, and the number of the prefix_group (-1: none)."""
        self._columns()
        offered: Mapping[str, NDArray[Any]] = self._output["offered"]
        return offered

    def _attributes(self) -> Mapping[str, Sequence[str]]:
        attributes: Mapping[str, Sequence[str]] = self._output["attributes"]
        return {f"{ATTRIBUTE}{name}": values for name, values in attributes.items()}

    def _optional(self) -> list[str]:
        """The columns of `requests` that only some runs have."""
        found = list(self._attributes())
        if self.simulation.length_prediction != LengthPrediction():
            found.insert(0, "predicted_output_tokens")
        if len(self._output["models"]) > 1 and self._offered()["model"].any():
            found.insert(0, "model")
        if self._offered()["max_tokens"].any():
            found.insert(0, "max_tokens")
        return found

    def _names(self) -> dict[str, Sequence[str]]:
        return {
            **self._attributes(),
            "outcomes": _core.cluster.outcomes,
            "copies": _core.cluster.copies,
            "reasons": _core.metrics.reasons,
            "tenants": self._output["tenants"],
            "slo_classes": self._output["slo_classes"],
            "models": self._output["models"],
            "request_id": self._output["request_id"],
        }

    def summary(self) -> Figures:
        """Figures over all requests that arrive in the measured window.

        `priority_inversions` counts, over the whole run, the pairs of requests that wait in the
        queue of one instance at the same time and in which the request of the class with the lower
        priority is scheduled first. A request waits from its entry into the engine's queue until it
        is first scheduled, or leaves; later preemptions do not count. The figure is None in
        streaming mode. With `metrics.accounting: blis` it is the number of pairs of one class and
        instance in which the earlier request took more than twice as long as the later one, on
        instances that schedule by priority.
        """
        return Figures(self._output["summary"])

    def by_class(self) -> Groups:
        """The figures of `summary` per class of service."""
        return self._groups("by_class")

    def by_tenant(self) -> Groups:
        """The figures of `summary` per tenant."""
        return self._groups("by_tenant")

    def _groups(self, table: str) -> Groups:
        return Groups((name, Figures(figures)) for name, figures in self._output[table].items())

    @property
    def requests(self) -> Requests:
        """One row per offered request.

        Raises UsageError if they were not kept: in streaming mode, or by `run_many` without
        `keep_requests`.
        """
        return Requests(self._columns(), self._names(), self._offered(), self._optional())

    @property
    def decisions(self) -> Decisions:
        """Routing decisions with their best candidates.

        Raises UsageError unless `metrics.traced_candidates` is set.
        """
        if not self.simulation.metrics.traced_candidates:
            raise _core.sim.UsageError(
                "decisions were not logged: set metrics.traced_candidates, e.g. to 4"
            )
        from spillway.data.decisions import Decisions

        return Decisions(self._output["decisions"])

    @property
    def token_gaps(self) -> Mapping[str, NDArray[Any]]:
        """All times between consecutive tokens of a request: the inter-token latencies.

        gap_s: the distinct ones in seconds, ascending; count: how often each occurs. Those of the
        whole run and of all requests.

        Raises UsageError if the requests were not kept (see `requests`), or the result is from a
        file.
        """
        if self._token_gaps is None:
            self._columns()
            raise _core.sim.UsageError("a saved result does not hold token gaps: simulate again")
        return self._token_gaps

    def refusal_detail(self, row: int) -> str:
        """What the rejection of a request compared, e.g. a prediction and a budget; empty: nothing.

        Of the policies of admission that say it, in runs that log decisions
        (`metrics.traced_candidates`).
        """
        found = (text for at, text in self._output.get("refusal_details", ()) if at == row)
        return str(next(found, ""))

    @property
    def timeline(self) -> Timeline:
        """State of the gateway and the fleet over time.

        Raises UsageError unless `metrics.timeline_step_s` is set.
        """
        if self.simulation.metrics.timeline_step_s is None:
            raise _core.sim.UsageError(
                "there is no timeline: set metrics.timeline_step_s, e.g. to 1"
            )
        from spillway.data.timeline import Timeline

        return Timeline(self._output["timeline"], self._output["tenants"])

    @property
    def control(self) -> Control:
        """Inputs and actions of the limit's controller; empty without one."""
        from spillway.data.timeline import Control

        return Control(self._output["control"])

    @property
    def ledger(self) -> dict[str, Any]:
        """Requests by outcome and reason; every run checks that they add up."""
        return dict(self._output["ledger"])

    @property
    def activity(self) -> dict[str, Any]:
        """Activity of the mechanisms of the run, which shows those that never acted.

        not_completed: attempts by the reason for which they were not completed; peak_in_flight:
        maximum number of requests between dispatch and last token, in the busiest gateway replica;
        limit_held: for each `gateway.limit`, whether it kept any request waiting;
        tenant_limit_stopped_others: whether a request that every limit let start waited behind
        those of a tenant at its own limit (never seen with a limit in Python or of saturation);
        prefix_index_forgot: whether the gateway's record of prompts was full;
        busy_threshold_exceeded: whether any rank exceeded a threshold of `busy_monitor`;
        peak_kv_utilization: maximum share (0 to 1) of a rank's KV blocks in use.
        """
        return dict(self._output["activity"])

    @property
    def instances(self) -> list[dict[str, Any]]:
        """Per instance: counts, queue lengths, KV blocks, stepping.

        completed, refused, cancelled (withdrawn after they entered, for any reason), preemptions,
        tokens_recomputed (in KV memory when their request was preempted, and not in the cache when
        it returned), tokens_wasted (in KV memory when their request was withdrawn), steps;
        mean_waiting (over time), mean_waiting_at_step (over steps); kv_hits (cached blocks reused),
        kv_misses (blocks allocated), kv_lookups (full prompt blocks of the requests that entered
        the batch).

        `stepping` is "jumps", "plain" if every step was simulated separately, or "reference" if
        `reference` requested that.
        """
        return list(self._output["instances"])

    @property
    def fitted_states(self) -> list[dict[str, Any]]:
        """How far the batches of fitted servers were outside those of the fit.

        One entry per group with `fitted_states`, which profiles of `spillway calibrate` state:
        group (position in `instances`); states (sampled instants of its instances with a request in
        the batch) and outside (those outside the fitted states); most_running_requests and
        most_kv_tokens of a rank. `notes` warns above 5%.
        """
        return list(self._output["fitted_states"])

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """The last load that the gateway knew of each rank of each worker.

        instance, rank; active_decode_blocks, active_prefill_tokens; worker_is_busy. Empty unless
        the run uses load events: with thresholds of `busy_monitor`, the admission policy
        `busy_threshold` or an ingress that is not open.
        """
        return list(self._output["ranks"])

    @property
    def ingresses(self) -> list[dict[str, Any]]:
        """Counts of the ingress of each instance, for instances whose ingress is not open.

        instance; entered_at_once, entered_from_queue, refused; unfinished, awaiting_response (of a
        `dual_limit_gate`), queued at the end; most_unfinished, most_queued. All in requests.
        """
        return list(self._output["ingresses"])

    @property
    def faults(self) -> list[dict[str, Any]]:
        """The faults of instances and gateways, in the order in which they began.

        kind (crash, hang, slowdown, kv_loss or gateway_crash), instance (of a gateway_crash None:
        it has `gateway`, the number of the replica); began_s, detected_s (None: it was not),
        ended_s (when the instance served again, went on, or had its speed again; None: not by the
        end; of a kv_loss began_s); lost_requests (that were in the instance, or reached it in
        vain), lost_tokens (in KV memory; of a kv_loss those of the batch) and lost_time_s (since
        they had entered the engine, over these requests). A hang that was detected has the losses
        of the crash that ended it. Of a gateway_crash the lost requests are those in its queues and
        streams and those that found no replica, their time is that since they had arrived, and no
        KV memory is lost. Where requests migrate also migrated_requests: those of the lost ones
        that went on at other instances; of a kv_loss preempted_requests: those of its batch.
        """
        return list(self._output.get("faults", ()))

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
        """Digest of the results: equal if every request and figure is equal.

        Unlike `fingerprint` it does not cover the settings, and it does not depend on the stepping
        or the number of threads. It covers the requests if they were kept.
        """
        hasher = hashlib.sha256()
        for name, column in self._output.get("columns", {}).items():
            hasher.update(name.encode())
            hasher.update(np.ascontiguousarray(column).tobytes())
        keys = ("ledger", "summary", "by_class", "by_tenant", "steps", "end_s")
        figures = json.dumps([self._output[key] for key in keys], default=dict)
        hasher.update(f"[[{', '.join(self._instances_as_json())}], {figures[1:]}".encode())
        return hasher.hexdigest()

    def _instances_as_json(self) -> Iterator[str]:
        """The instances without their stepping; most of a large fleet are equal."""
        known: dict[tuple[Any, ...], str] = {}
        for instance in self._output["instances"]:
            values = tuple(instance.values())
            if values not in known:
                shown = {key: value for key, value in instance.items() if key != "stepping"}
                known[values] = json.dumps(shown)
            yield known[values]

    @property
    def outcome_digest(self) -> str:
        """Digest of the outcomes: the ledger and, if kept, the columns of the requests.

        Equal if every request has the same outcome at the same instants, whatever figures are
        derived from them: a new or redefined figure changes only `digest`.
        """
        hasher = hashlib.sha256(json.dumps(self.ledger, sort_keys=True).encode())
        for name, column in self._output.get("columns", {}).items():
            hasher.update(name.encode())
            values = column
            if name in CODED:
                # Names, because the codes are numbered as the core lists them.
                labels, values = np.unique(self.requests[name], return_inverse=True)
                hasher.update(json.dumps(labels.tolist()).encode())
            hasher.update(np.ascontiguousarray(values).tobytes())
        return hasher.hexdigest()

    @property
    def fingerprint(self) -> str:
        """Digest of the simulation and Spillway's version; with the seed it identifies a run."""
        return files.fingerprint(self.simulation)

    @property
    def profile(self) -> str:
        """The profile of the simulation: vllm, blis_0_6 or custom."""
        return profiles.name_of(self.simulation)

    def to_dict(self) -> dict[str, Any]:
        """The content of summary.json."""
        return {
            "schema": _SUMMARY_SCHEMA,
            "version": _core.sim.build_info["version"],
            "profile": self.profile,
            "seed": self.seed,
            "fingerprint": self.fingerprint,
            "ledger": self.ledger,
            "metrics": dict(self._output["summary"]),
            "by_class": dict(self._output["by_class"]),
            "by_tenant": dict(self._output["by_tenant"]),
        }

    def save(self, path: str | Path) -> None:
        """Saves everything into one .npz file, except a trace, of which only the digest is saved.

        Raises UsageError if the requests were not kept, ConfigError if it cannot be written.
        """
        from spillway.data import archive

        self._columns()  # raises if they were not kept
        content = {
            "version": _core.sim.build_info["version"],
            "fingerprint": self.fingerprint,
            "seed": self.seed,
            "simulation": self.simulation.to_dict(),
        }
        output = {**self._output, "request_id": list(self._output["request_id"])}
        archive.write(Path(path), content, output)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a file that `save` wrote.

        Raises ValueError if the file does not hold a result as it was saved: names, types, lengths
        and a digest of the content are checked. OSError if it cannot be opened.
        """
        from spillway.data import archive

        with Path(path).open("rb") as stream:
            try:
                document = archive.read(stream)
                simulation = Simulation.from_dict(document["simulation"])
                return cls(simulation, document["seed"], document["output"])
            except Exception as error:
                raise ValueError(
                    f"{path} holds no result that this version can read: {error}"
                ) from error
