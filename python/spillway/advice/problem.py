"""What `advise` is given, as simulations and files: traffic, servers, SLO, what-ifs, the search."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from spillway import loading, traffic
from spillway._core.sim import ConfigError, UsageError
from spillway.config import files
from spillway.config.classes import config_error
from spillway.config.messages import note
from spillway.files.error import TraceError
from spillway.files.evidence import read
from spillway.files.formats import options_by_name
from spillway.files.options import READING
from spillway.files.traces.lines import opened
from spillway.study.objective import Figure, as_constraints, check_figures, rewards_shedding

if TYPE_CHECKING:
    from spillway._core.cluster import Simulation
    from spillway._core.workload import Synthetic, Trace
    from spillway.study.objective import Constraint

Replicate = Literal["resample", "replay", "fit"]
"""How the runs get their requests from the log."""

FOLDER = Path("advice")
"""Where the files are, if they are not written."""
SHED = "shed <= 0.01"
"""What the solver adds to bounds that hold if nothing is served."""
MOST_TIMES = 8
"""The most servers that are tried, as a multiple of today's."""

_TRIALS = 16
_TRIALS_OF_TWO_KINDS = 24
_MOST_COLUMNS = 40
_LONGEST_NAME = 40
_LONGEST_HEADER = 10_000  # characters
_MARGIN = 0.8
_MOST_TENANTS = 20
_MOST_LOST = 0.01  # share of those that the SLO names
_TARGETS = {"ttft": "target_ttft_s", "tpot": "target_tpot_s", "e2el": "target_e2e_s"}
_LATENCY = re.compile(r"p99_(ttft|tpot|e2el)_ms")
_TRACE = ("arrival_s", "input_tokens", "output_tokens")
_LONGEST_WAIT_S = 300.0
_WAIT = 0.05  # the shortest time-out that is searched, as a share of the target


@dataclasses.dataclass(frozen=True)
class Problem:
    """The simulation of today's settings under today's traffic, and what is asked of it.

    `settings` are those of `today` as a file in `folder` states them.
    """

    log: Path
    reading: Mapping[str, Any]
    folder: Path
    trace: Trace
    replicate: Replicate
    today: Simulation
    settings: Mapping[str, Any]
    slo: Sequence[Constraint]
    what_if: Sequence[str]
    server: str

    @property
    def is_random(self) -> bool:
        """Whether seeds give other requests."""
        return self.replicate != "replay"

    @property
    def num_tenants(self) -> int:
        """The number of tenants in the log."""
        return len(self.trace._columns()["tenants"])

    @property
    def groups(self) -> list[str]:
        """The selectors of classes and tenants that the SLO names."""
        figures = [of.metric for of in self.slo if isinstance(of.metric, Figure)]
        found = dict.fromkeys(figure.parts[1] for figure in figures)
        return [group for group in found if group is not None and group != "tenant"]

    @property
    def _named(self) -> set[str]:
        """The names of the classes and tenants in the SLO."""
        return {group.rpartition("=")[2].strip() for group in self.groups}

    @property
    def slo_with_margin(self) -> list[Constraint]:
        """The SLO with latencies a fifth below their bounds."""
        return [_with_margin(constraint) for constraint in self.slo]

    @property
    def served(self) -> list[str]:
        """Bounds on what is rejected of the groups that the SLO names, if there are others."""
        columns, named = self.trace._columns(), self._named
        if not named or {*columns["tenants"]} <= named or {*columns["slo_classes"]} <= named:
            return []
        return [f"shed[{group}] <= {_MOST_LOST:g}" for group in self.groups]

    @property
    def others(self) -> list[str]:
        """Selectors of the tenants that the SLO does not name, if they are not too many."""
        tenants = self.trace._columns()["tenants"]
        found = [f"tenant={name}" for name in tenants if name not in self._named]
        return found if 1 < len(tenants) <= _MOST_TENANTS else []

    def stressed(self) -> Simulation:
        """Today's settings under all what-ifs together."""
        return loading.with_traffic(self.today, self.what_if)

    def scenarios(self, simulation: Simulation) -> dict[str, Simulation]:
        """A simulation under today's traffic, and under each what-if."""
        found = {"": simulation.replace(workload=self.today.workload)}
        for change in self.what_if:
            found[change] = loading.with_traffic(found[""], [change])
        return found

    def study(self, target: str | None) -> tuple[dict[str, Any], list[str]]:
        """The settings of the search, and lines of what the target cannot carry.

        It rejects as little as possible while the SLO holds, latencies with a margin: at the bound
        itself every second result would break it under other seeds. With a limit per tenant it
        rejects hardly any of those that the SLO names. Raises ConfigError if the target carries no
        limit.
        """
        space, left_out = self._space(target)
        served = self.served if "per_tenant" in space["gateway.limit"]["kinds"] else []
        found: dict[str, Any] = {
            "schema": files.SCHEMA,
            "simulation": "stressed.yaml" if self.what_if else "today.yaml",
            "space": space,
            "minimize": "shed",
            "constraints": [*map(str, self.slo_with_margin), *served],
            "seeds": 4 if self.is_random else 1,
            "trials": _TRIALS if self.num_tenants == 1 else _TRIALS_OF_TWO_KINDS,
            "check": False,
            "confirm": False,
        }
        return found, left_out

    def solver(self) -> dict[str, Any]:
        """The settings of the search for the fewest servers, with the settings of today."""
        slo = [str(constraint) for constraint in self.slo]
        if rewards_shedding((), self.slo):
            slo.append(SHED)
        return {
            "schema": files.SCHEMA,
            "simulation": "stressed.yaml" if self.what_if else "today.yaml",
            "seeds": 4 if self.is_random else 2,
            "min_instances_for_rate": {
                "slo": slo,
                "most": MOST_TIMES * self.today.instances[0].count,
                "max_seeds": 8 if self.is_random else 2,
            },
        }

    def _space(self, target: str | None) -> tuple[dict[str, Any], list[str]]:
        group = self.today.instances[0]
        count = sum(group.count for group in self.today.instances)
        seats = max(2, group.max_num_seqs or 2)
        of_tenants: dict[str, Any] = {}
        if self.num_tenants > 1:
            of_tenants = {"per_tenant": {"max_in_flight": _log(1, count * seats)}}
        limits: list[dict[str, Any]] = [
            {"fixed": {"max_in_flight": _log(count, count * seats)}, **of_tenants},
            {"worker_budget": {"cap_per_worker": _log(1, seats)}},
        ]
        space: dict[str, Any] = {"gateway.max_queued": _log(1, 4 * count * seats)}
        waits_s = [
            constraint.bound / 1e3
            for constraint in self.slo
            if constraint.relation == "<=" and "ttft_ms" in constraint.name
        ]
        if waits_s:
            longest_s = max(waits_s)
            if self.others:  # some may wait, without a bound
                longest_s = max(_LONGEST_WAIT_S, longest_s)
            wait_s = _log(_WAIT * min(waits_s), longest_s)
            space["gateway.bands[0].queue.timeout_s"] = wait_s
        if target is None:
            found = {"gateway.limit": {"kinds": limits[0]}, **space}
            return _without_second_bound(found), []
        return self._carried(limits, space, target)

    def _carried(
        self, limits: Sequence[Mapping[str, Any]], space: Mapping[str, Any], target: str
    ) -> tuple[dict[str, Any], list[str]]:
        from spillway.study.carried import carried
        from spillway.study.space import Space

        for kinds in limits:
            dimensions = {"gateway.limit": {"kinds": kinds}, **space}
            try:
                found = carried(Space(dimensions), self.stressed(), target)
            except ConfigError as error:
                if error.violations[0][0] != "space":
                    raise
                continue
            kept = found.space.to_dict()
            if "gateway.limit" in kept:
                return _without_second_bound(kept), list(found.left_out)
        allowed = "has no limit on requests in flight; export the limit of another system"
        raise config_error([("target", target, allowed)])


def posed(
    log: Path,
    *,
    slo: Sequence[str],
    server: Mapping[str, Any] | None,
    calibrated: Path | None,
    count: int,
    today: Path | None,
    what_if: Sequence[str],
    replicate: Replicate,
    folder: Path,
    reading: Mapping[str, Any],
) -> Problem:
    """The problem. Raises ConfigError or TraceError for what cannot be understood or run."""
    if replicate not in get_args(Replicate):
        allowed = f"must be one of {', '.join(get_args(Replicate))}"
        raise config_error([("replicate", repr(replicate), allowed)])
    bounds = [*{str(known): known for known in as_constraints(list(slo), "slo")}.values()]
    if not bounds:
        allowed = "must be given, e.g. 'gold: p99 ttft < 2 s, p99 tpot < 80 ms'; or goodput"
        raise config_error([("slo", "", allowed)])
    check_figures(constraint.metric for constraint in bounds)
    given = _today(today)
    given |= _instances(given, server, calibrated, count, folder)
    trace = _requests(log, reading).replace(file=str(folder / "trace.csv"))
    columns = traffic.applied(trace)._columns()
    _check_groups(bounds, columns["tenants"], columns["slo_classes"])
    given["slo_classes"] = _classes(given, bounds, columns)
    simulation = loading.from_settings(
        given | {"workload": _workload_for(given)}, base=folder, read_trace=False
    )
    replicate, workload = _workload(trace, replicate)
    simulation = simulation.replace(workload=workload)
    written = files.to_settings(simulation, folder, brief=True)
    settings = {"schema": files.SCHEMA, "workload": written["workload"]}
    settings |= {key: value for key, value in given.items() if key not in settings}
    problem = Problem(
        log, reading, folder, trace, replicate, simulation, settings, bounds, tuple(what_if),
        _named(given["instances"]),
    )  # fmt: skip
    problem.scenarios(simulation)  # refuses a what-if that cannot be made
    return problem


def reading_options(reading: Mapping[str, Any]) -> list[str]:
    """Options of reading as they are written on a command line."""
    known = {option.name: option for option in READING}
    known |= {name: next(iter(of.values())) for name, of in options_by_name().items()}
    words: list[str] = []
    for name, value in reading.items():
        option = known[name]
        words.append(option.flags[-1])
        text = str(value)
        if isinstance(value, Mapping):
            text = ",".join(f"{key}={column}" for key, column in value.items())
        if option.type is not bool:
            words.append(shlex.quote(text))
    return words


def _requests(log: Path, reading: Mapping[str, Any]) -> Trace:
    """The requests of the log. Raises TraceError that names the columns that are missing."""
    try:
        return read(log, **reading).trace
    except TraceError as error:
        if "columns" in reading or "unknown format" not in str(error):
            raise
        known = _columns_of(log)
        names = [name for name in _TRACE if name not in known]
        raise TraceError(
            f"{log}: no column is known as {', '.join(names)}; it has: {', '.join(known)}. Name "
            f"them: --columns {','.join(f'{name}=…' for name in names)} (and tenant=…, if bounds "
            "are those of tenants); a log without tokens cannot be replayed"
        ) from error


def _columns_of(log: Path) -> list[str]:
    """The columns in the first line of a table, or the keys of the first object of a JSON file."""
    with opened(log) as lines:
        first = lines.read_at_least(_LONGEST_HEADER).partition("\n")[0].strip()
    try:
        found = list(_paths(json.loads(first)))
    except ValueError:
        found = re.split(r"[,;\t]", first)
    return [f"{name.strip():.{_LONGEST_NAME}}" for name in found[:_MOST_COLUMNS]]


def _paths(value: object, path: str = "") -> Iterator[str]:
    if not isinstance(value, dict):
        yield path
        return
    for key, inner in value.items():
        yield from _paths(inner, f"{path}.{key}" if path else str(key))


def _today(today: Path | None) -> dict[str, Any]:
    """The settings that run today, without traffic."""
    if today is None:
        return {}
    given = files.read_settings(today, "configuration")
    replaced = [key for key in ("workload", "traffic") if key in given]
    if replaced:
        note(f"{today}: the log replaces its {' and '.join(replaced)}")
    kept = {key: value for key, value in given.items() if key not in replaced}
    simulation = loading.from_settings(
        kept | {"workload": _workload_for(kept)}, base=today.parent, read_trace=False
    )
    settings = files.to_settings(simulation, Path(), brief=True)
    settings.pop("workload", None)
    if "instances" not in given and "presets" not in given:
        settings.pop("instances", None)
    elif "instances" not in settings:
        settings["instances"] = simulation.to_dict()["instances"]
    return settings


def _workload_for(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A workload whose tenant and class the settings know."""
    client = {}
    for key, name in (("tenants", "tenant"), ("slo_classes", "slo_class")):
        known = settings.get(key)
        if isinstance(known, list) and known and isinstance(known[0], dict):
            client[name] = known[0].get("name", "standard" if name == "slo_class" else "default")
    return {"kind": "synthetic", "clients": [client]}


def _instances(
    given: Mapping[str, Any],
    server: Mapping[str, Any] | None,
    calibrated: Path | None,
    count: int,
    folder: Path,
) -> dict[str, Any]:
    """The servers. Raises ConfigError if none are given: there is no default."""
    if server is not None and calibrated is not None:
        raise config_error([("calibrated", str(calibrated), "must not be given beside server")])
    if server is None and calibrated is None:
        if "instances" in given:
            return {}
        allowed = (
            "must be given, e.g. model=llama-3.1-8b,gpu=h100, or calibrated, a file of spillway "
            "calibrate, or today with instances: there is no default server"
        )
        raise config_error([("server", "", allowed)])
    if "instances" in given:
        note("the servers that are given replace those of the settings of today")
    if not 1 <= count <= 100_000:
        raise config_error([("count", str(count), "must be >= 1 and <= 100000")])
    known: Any = dict(server or {})
    if calibrated is not None:
        known = os.path.relpath(calibrated, folder)
    return {"instances": [{"server": known, "count": count}]}


def _classes(
    given: Mapping[str, Any], slo: Sequence[Constraint], columns: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The classes of the log; bounds of a class, or of all, become its targets.

    So do those of a tenant whose requests are a class of their own.
    """
    names, tenants = columns["slo_classes"], columns["tenants"]
    classes = {entry["name"]: dict(entry) for entry in given.get("slo_classes", ())}
    found = [classes.pop(name, {"name": name}) for name in names]
    pairs = np.unique(np.stack([columns["slo_class"], columns["tenant"]]), axis=1).T.tolist()
    for constraint in slo:
        assert isinstance(constraint.metric, Figure)
        figure, selector = constraint.metric.parts
        latency = _LATENCY.fullmatch(figure)
        if latency is None or constraint.relation != "<=":
            continue
        for code, entry in enumerate(found):
            own = {None, entry["name"], f"class={entry['name']}"}
            users = [tenant for of, tenant in pairs if of == code]
            if len(users) == 1 and sum(tenant == users[0] for _, tenant in pairs) == 1:
                own |= {tenants[users[0]], f"tenant={tenants[users[0]]}"}
            if selector in own:
                entry[_TARGETS[latency[1]]] = constraint.bound / 1e3
    return [*found, *classes.values()]


def _check_groups(slo: Sequence[Constraint], tenants: list[str], classes: list[str]) -> None:
    """Raises ConfigError for a bound of a group that the log does not have."""
    for constraint in slo:
        assert isinstance(constraint.metric, Figure)
        _, selector = constraint.metric.parts
        if selector in (None, "tenant", "worst class", "worst tenant"):
            continue
        kind, _, name = selector.rpartition("=")
        known = {"class": classes, "tenant": tenants, "": [*tenants, *classes]}.get(kind, [])
        if name.strip() not in known:
            allowed = (
                f"no such class or tenant in the log; tenants: {', '.join(tenants)}; classes: "
                f"{', '.join(classes)}"
            )
            raise config_error([("slo", str(constraint), allowed)])


def _workload(trace: Trace, replicate: Replicate) -> tuple[Replicate, Trace | Synthetic]:
    if replicate == "fit":
        return replicate, traffic.fit(trace).workload
    if replicate == "resample":
        try:
            return replicate, traffic.resampled(trace)
        except (ConfigError, UsageError) as error:
            note(f"the log is replayed as it is, one run without intervals: {error}")
    return "replay", trace


def _with_margin(constraint: Constraint) -> Constraint:
    is_latency = constraint.relation == "<=" and constraint.name.partition("[")[0].endswith("_ms")
    return (
        dataclasses.replace(constraint, bound=_MARGIN * constraint.bound)
        if is_latency
        else constraint
    )


def _log(low: float, high: float) -> dict[str, Any]:
    return {"low": low, "high": high, "log": True}


def _without_second_bound(space: dict[str, Any]) -> dict[str, Any]:
    """A time-out bounds the queue already."""
    if "gateway.bands[0].queue.timeout_s" in space:
        space.pop("gateway.max_queued", None)
    return space


def _named(instances: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> str:
    """The servers in words."""
    groups = [instances] if isinstance(instances, Mapping) else instances
    texts = []
    for group in groups:
        known = group.get("server", group.get("provenance") or "servers")
        if isinstance(known, Mapping):
            known = " on ".join(str(known[key]) for key in ("model", "gpu"))
        texts.append(f"{group.get('count', 1)} x {known}")
    return ", ".join(texts)
