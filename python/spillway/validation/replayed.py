"""A recording as a simulation: the requests of production through a configuration."""

from __future__ import annotations

import dataclasses
import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import _core, loading
from spillway._core.sim import ConfigError
from spillway.calibration.replay import Replay, measured_turnaround_s
from spillway.calibration.server_measurements import check_completeness
from spillway.config.classes import config_error
from spillway.config.files import fingerprint, read_settings
from spillway.data.recording import Recording, ServerFacts
from spillway.files.recordings import read_recordings
from spillway.files.traces import TraceError, read_trace
from spillway.session_record import recorded
from spillway.simulate import simulate

if TYPE_CHECKING:
    import os

    from spillway._core.cluster import Simulation
    from spillway._core.workload import Trace

_CLASS = "standard"
_SAME_INSTANT_S = 1e-3
_RECORDS = (".yaml", ".yml", ".json", ".jsonl")


@dataclass(frozen=True, eq=False)
class Production:
    """What was recorded, and its replay.

    Attributes
    ----------
    recording : Recording
        The run, failed requests included.
    simulation : Simulation
        The configuration with the recorded requests.
    begin_s : float
        Arrival of the first recorded request in the replay.
    is_closed_loop : bool
        Whether requests are sent as others end.
    hit_rate : float, optional
        The recorded share of prompt tokens that were cached, where only the whole run states it.
    no_hit_rate : str
        Why the hit rate is not compared; empty if it is.

    """

    recording: Recording
    simulation: Simulation
    begin_s: float = 0.0
    is_closed_loop: bool = False
    hit_rate: float | None = None
    no_hit_rate: str = ""


def read_recording(
    path: str | os.PathLike[str], *, allow_mismatch: bool, **reading: Any
) -> Recording:
    """The run that a file or folder holds. Raises TraceError unless it is one run of requests."""
    known = inspect.signature(read_recordings).parameters
    if others := [name for name in reading if name not in known]:
        raise TraceError(f"{path}: {', '.join(others)}: must not be stated of a recording")
    runs = read_recordings(Path(path), **reading)
    if len(runs) != 1:
        held = ", ".join(run.name for run in runs)
        raise TraceError(
            f"{path}: must hold one run, not {len(runs)}: {held}; --run NAME (run=NAME in Python) "
            "selects one"
        )
    check_completeness(runs, allow_mismatch=allow_mismatch)
    return runs[0]


def live_record(path: Path) -> Simulation | None:
    """The record of a session or of `spillway serve`, with its requests; None: no such file."""
    if path.suffix not in _RECORDS or not path.is_file():
        return None
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8", errors="replace") as lines:
            first = next(lines, "")
        try:
            is_record = "simulation" in json.loads(first)
        except (ValueError, TypeError):
            return None
        return recorded(path) if is_record else None
    try:
        settings = read_settings(path)
    except ConfigError:
        return None  # which the readers of recordings may know, and else refuse
    return loading.load(path) if settings.get("changes") else None


def of_record(simulation: Simulation, record: Simulation, path: Path, seed: int) -> Production:
    """What a record has recorded, which is what its run repeats, and its requests elsewhere.

    The replay has the workload and all changes of the record: requests, those that clients
    withdrew, settings that operators changed, and faults.
    """
    result = simulate(record, seed)
    columns = result.requests
    failed = np.asarray(columns["outcome"]) != "completed"
    if not len(failed):
        raise TraceError(f"{path}: the record holds no request")
    send_s = np.asarray(columns["arrival_s"], dtype=float)
    e2e_s = np.asarray(columns["e2e_s"], dtype=float)
    recording = Recording(
        name=path.stem,
        server=ServerFacts(),
        send_s=send_s - send_s[0],
        input_tokens=np.asarray(columns["input_tokens"], np.int64),
        output_tokens=np.asarray(columns["output_tokens"], np.int64),
        ttft_s=np.where(failed, np.nan, columns["ttft_s"]),
        e2e_s=np.where(failed, np.nan, e2e_s),
        failed=failed,
        failure_s=np.where(failed, e2e_s, np.nan),
        tenant=tuple(map(str, columns["tenant"])),
        source=str(path),
        format="record",
        sha256=fingerprint(record),
    )
    replay = simulation.replace(
        workload=record.workload,
        changes=record.changes,
        horizon_s=record.horizon_s,
        tenants=_with_names(simulation.tenants, record.tenants),
        slo_classes=_with_names(simulation.slo_classes, record.slo_classes),
    )
    rate = result.summary()["cache_hit_rate"]
    return Production(
        recording,
        replay,
        begin_s=float(send_s[0]),
        hit_rate=None if rate is None else float(rate),
        no_hit_rate="the record has no prompts that share a beginning" if not rate else "",
    )


def _with_names(own: Any, recorded_ones: Any) -> list[Any]:
    names = {found.name for found in own}
    return [*own, *(found for found in recorded_ones if found.name not in names)]


def of_recording(
    simulation: Simulation,
    run: Recording,
    requests: str | Path | None,
    notes: list[str],
) -> Production:
    """A recording through a configuration; `requests`: its requests as a trace.

    Clients do not retry: the recorded requests contain their retries. `notes` gets what is left out
    or assumed.

    Raises ConfigError if the configuration submits further requests, TraceError for a trace of
    other requests.
    """
    for i, change in enumerate(simulation.changes):
        if change.submit:
            allowed = "must be empty: the requests are those of the recording"
            raise config_error([(f"changes[{i}].submit", f"{len(change.submit)}", allowed)])
    simulation = _without_retries(simulation, notes)
    count = sum(group.count for group in simulation.instances)
    if run.num_replicas not in (None, count):
        notes.append(
            f"{run.source} states {run.num_replicas} replicas, the configuration has {count}"
        )
    whole = filled(run)
    replay = Replay(whole, measured_turnaround_s([run]))
    if requests is not None:
        workload = checked_trace(requests, run)
        if replay.is_closed_loop:
            notes.append("the client was at its limit; its requests arrive as recorded")
    else:
        workload = replay.trace
        if replay.period is not None:
            notes.append(
                f"every {replay.period} requests the lengths of prompts repeat: they are replayed "
                "as repeated prompts"
            )
        workload = _with_classes(workload, simulation, notes)
    no_hit_rate = ""
    if run.cached_tokens is None:
        no_hit_rate = "the recording does not state cached tokens"
    elif requests is None and run.session is None:
        no_hit_rate = (
            "prompts are replayed with the cached tokens that the recording states; with their "
            "hashes (--requests FILE) or sessions the rate is predicted"
        )
    begin_s = float(workload._columns()["arrival_ns"][0]) / 1e9
    return Production(
        run,
        simulation.replace(workload=workload, horizon_s=None),
        begin_s=begin_s,
        is_closed_loop=requests is None and replay.is_closed_loop,
        no_hit_rate=no_hit_rate,
    )


def _without_retries(simulation: Simulation, notes: list[str]) -> Simulation:
    """The simulation whose clients send no request twice."""

    def without(reaction: Any) -> Any:
        return reaction and reaction.replace(retries=[], hedge=None)

    found = simulation.replace(
        reaction=without(simulation.reaction),
        tenants=[of.replace(reaction=without(of.reaction)) for of in simulation.tenants],
    )
    if found != simulation:
        notes.append("retries and copies of reaction are left out: they are in the recording")
    return found


def _with_classes(trace: Trace, simulation: Simulation, notes: list[str]) -> Trace:
    """The trace with the class of service that the configuration's clients give each tenant."""
    clients = getattr(simulation.workload, "clients", ())
    classes: dict[str, set[str]] = {}
    for client in clients:
        classes.setdefault(client.tenant, set()).add(client.slo_class)
    columns = trace._columns()
    names = [min(classes.get(name, {_CLASS})) for name in columns["tenants"]]
    if several := [name for name in columns["tenants"] if len(classes.get(name, ())) > 1]:
        notes.append(
            f"tenants of several classes: {', '.join(several)}; their requests get the first one, "
            "unless a trace states it (--requests FILE)"
        )
    if set(names) == {_CLASS}:
        return trace
    known = list(dict.fromkeys(names))
    code = np.array([known.index(name) for name in names], dtype=np.uint16)
    columns |= {"slo_class": code[columns["tenant"]], "slo_classes": known}
    return _core.workload.make_trace(**columns).replace(**trace._replayed())


def filled(run: Recording) -> Recording:
    """The run with the requests that were not served as requests to serve.

    A length that is not recorded is the median of the tenant's served requests, or of all.
    """
    served = ~run.failed
    tenants = np.array(run.tenant or ("",) * run.num_requests)
    lengths = {}
    for name in ("input_tokens", "output_tokens"):
        tokens = getattr(run, name).copy()
        unknown = run.failed & ((tokens < 1) | (name == "output_tokens"))
        for tenant in np.unique(tenants[unknown]):
            rows = unknown & (tenants == tenant)
            like = served & (tenants == tenant)
            known = tokens[like if like.any() else served]
            tokens[rows] = max(1, int(np.median(known))) if len(known) else 1
        lengths[name] = tokens
    return dataclasses.replace(
        run,
        **lengths,
        failed=np.zeros(run.num_requests, dtype=bool),
        e2e_s=np.where(run.failed, run.failure_s, run.e2e_s),
        reported=(),
    )


def checked_trace(path: str | Path, run: Recording) -> Trace:
    """The recorded requests of a trace, which must be those of the recording.

    Raises TraceError unless there are as many, with the same arrivals to 1 ms and the same lengths.
    """
    trace = read_trace(path)
    found = trace._columns()
    arrival_s = found["arrival_ns"] / 1e9
    if len(arrival_s) != run.num_requests:
        raise TraceError(
            f"{path}: must hold the {run.num_requests:,} requests of {run.source}, "
            f"not {len(arrival_s):,}"
        )
    columns = {
        "arrival_s": (arrival_s - arrival_s[0], run.send_s, np.ones(len(arrival_s), dtype=bool)),
        "input_tokens": (found["input_tokens"], run.input_tokens, run.input_tokens > 0),
        "output_tokens": (found["output_tokens"], run.output_tokens, ~run.failed),
    }
    for name, (here, there, known) in columns.items():
        most = _SAME_INSTANT_S if name == "arrival_s" else 0
        differs = known & (np.abs(np.asarray(here, dtype=float) - there) > most)
        if differs.any():
            row = int(differs.argmax())
            raise TraceError(
                f"{path}, request {row}: {name} = {here[row]:g}: must be {there[row]:g}, as in "
                f"{run.source}"
            )
    return trace
