"""What a random simulation is extended by, and what is done with it besides one run.

Extensions: policies in Python and in C functions, servers of the catalog, more changes during the
run. Experiments: a session that is changed and observed, files of a deployment and back, a small
search under a constraint, the HTML page. Each is compared with what it must equal.
"""

from __future__ import annotations

import html.parser
import random
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from support.c_functions import c_library
from support.changes import another, runtime_fields
from support.python_policies import ALL, PLACES
from support.views import Looking

import spillway
from spillway import (
    ConfigError,
    Result,
    Simulation,
    _core,
    fleet,
    instance,
    policies,
    simulate,
    workload,
)
from spillway._core.sim import UsageError
from spillway.config import describe
from spillway.data.shared_prompts import model_column
from spillway.files.deployments import TARGETS, export, import_
from spillway.instance import Server
from spillway.study import Study

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from support.views import Failure


# --- policies in C functions ----------------------------------------------------------------------

_SOURCE = """
#include "spillway_policy.h"
int32_t decide(const spillway_request *request, const spillway_instance *instances,
               int64_t num_instances, double now_s, double *state) {
  int64_t in_flight = 0;
  for (int64_t i = 0; i < num_instances; ++i) in_flight += instances[i].in_flight;
  if (request->uniform < 0.1) return SPILLWAY_REJECT_RATE_LIMITED;
  return in_flight < state[0] && state[1] < 1e9;
}
void commit(const spillway_request *request, double now_s, double *state) {
  state[1] += request->input_tokens;
}
void score(const spillway_request *request, const spillway_instance *instances,
           int64_t num_instances, double now_s, double *state, double *scores) {
  for (int64_t i = 0; i < num_instances; ++i) scores[i] = 1.0 / (1 + instances[i].waiting);
}
int32_t is_local(const spillway_request *request, const spillway_legs *legs, double now_s,
                 double *state) {
  ++state[1];
  if (legs->decode_instance < 0) return SPILLWAY_REMOTE;
  return request->input_tokens - legs->decode_cached_tokens < state[0] || now_s < 0;
}
"""


def _in_c(rng: random.Random, place: str) -> tuple[str, Any] | None:
    """A policy in C functions for the place, or for another one; None without a compiler."""
    library = c_library(_SOURCE)
    if library is None:
        return None
    if place == "disaggregation.decider":
        state = [rng.randint(16, 500), 0]
        decider = policies.compiled_decider(library.is_local, name="s", version="1", state=state)
        return place, decider
    if rng.random() < 0.5:
        policy: Any = policies.compiled_admission(
            library.decide,
            commit=library.commit,
            name="few",
            version="1",
            state=[rng.randint(3, 40), 0],
            is_random=rng.random() < 0.5,
        )
        return "gateway.admission", policy
    return "router.scorers", policies.compiled_scorer(library.score, name="idle", version="1")


# --- extensions -----------------------------------------------------------------------------------


def _if_valid(simulation: Simulation, settings: Mapping[str, Any]) -> Simulation:
    try:
        return simulation.with_(dict(settings))
    except ConfigError:  # it contradicts other settings, or there is no such place
        return simulation


def with_own_policies(simulation: Simulation, rng: random.Random) -> Simulation:
    """With policies in Python or C functions in one to three places, where they are valid."""
    places = rng.sample(ALL, rng.randint(1, 3))
    if rng.random() < 0.5 and any(group.role != "both" for group in simulation.instances):
        places.append(PLACES["Decider"])
    for drawn in places:
        in_c = _in_c(rng, drawn[0]) if rng.random() < 0.3 else None
        place, policy = in_c or drawn
        if place.startswith("router.") and simulation.router.kind != "weighted":
            simulation = _if_valid(simulation, {"router": "weighted"})
        if place in ("router.scorers", "router.filters"):
            policy = [policy]
        simulation = _if_valid(simulation, {place: policy})
    return simulation


def own_policies(simulation: Simulation) -> dict[str, int]:
    """How many policies in Python and in C functions a simulation has."""
    text = repr(simulation.to_dict())
    return {kind: text.count(f"'kind': '{kind}'") for kind in ("python", "compiled")}


def with_catalog_servers(simulation: Simulation, rng: random.Random) -> Simulation:
    """With a server of the catalog in place of the instances."""
    model, gpu, tp = rng.choice(
        (("llama-3.1-8b", "l4", 1), ("llama-3.1-8b", "h100", 1), ("llama-3.3-70b", "h100", 4))
    )
    engine = rng.choice(("vllm-0.19", "vllm-0.29"))
    server = Server(model=model, gpu=gpu, tp=tp, engine=engine, max_num_seqs=rng.choice((2, 8, 64)))
    group = server.group.replace(count=rng.randint(1, 2), num_kv_blocks=rng.choice((200, 5000)))
    return _if_valid(simulation, {"instances": [group]})


def _changed(simulation: Simulation, rng: random.Random) -> dict[str, Any]:
    """New values of up to three settings, valid together."""
    fields = runtime_fields(simulation)
    values: dict[str, Any] = {}
    for path in rng.sample(sorted(fields), min(3, len(fields))):
        more = {**values, path: another(*fields[path], rng)}
        if _if_valid(simulation, more) is not simulation:
            values = more
    return values


def with_changes(simulation: Simulation, rng: random.Random) -> Simulation:
    """With changes of any settings that can change, at random instants."""
    last_s = max(simulation.changes[-1].at_s if simulation.changes else 0.0, 0.01)
    changes = list(simulation.changes)
    for _ in range(rng.randint(1, 3)):
        if values := _changed(simulation, rng):
            changes.append({"at_s": last_s * rng.uniform(1, 3), "set": values})
            last_s = changes[-1]["at_s"]
    return _if_valid(simulation, {"changes": changes})


# --- experiments ----------------------------------------------------------------------------------


def _session(look: Looking, result: Result, rng: random.Random, _folder: Path) -> None:
    """Advanced, observed, changed, forked: its result is that of its own configuration."""
    with look.at("session"):
        session = spillway.start(result.simulation, result.seed, open_ended=rng.random() < 0.5)
        for _ in range(rng.randint(1, 4)):
            session.advance(session.now_s + rng.uniform(0, 0.4) * (result.end_s + 1e-3))
            session.observe(oracle=rng.random() < 0.5)
            _act_from_outside(session, rng)
            if session.is_over:
                break
            if values := _changed(session.simulation, rng):
                try:
                    session.set(values)
                except ConfigError as error:
                    assert "must" in str(error)  # noqa: PT017
        fork = session.fork()
        outcome = session.finish()
        assert fork.finish().digest == outcome.digest
        assert simulate(session.simulation, result.seed).digest == outcome.digest


def _act_from_outside(session: spillway.Session, rng: random.Random) -> None:
    """Requests, and cancellations of some; then what has become of them."""
    simulation = session.simulation
    for _ in range(rng.choice((0, 0, 1, 5))):
        try:
            session.submit(
                input_tokens=rng.randint(16, 300),
                output_tokens=rng.randint(0, 100),
                max_tokens=rng.choice((None, 100)),
                tenant=rng.choice([t.name for t in simulation.tenants] or ["default"]),
                slo_class=rng.choice(simulation.slo_classes).name,
                segments=[(rng.randint(1, 3), 16)] if rng.random() < 0.3 else [],
                instance=0 if rng.random() < 0.3 else None,
            )
        except ConfigError as error:
            assert "must" in str(error)  # noqa: PT017
        if session.submitted and rng.random() < 0.5:
            with suppress(UsageError):  # it arrives later
                session.cancel(rng.randrange(len(session.submitted)))
    events = session.take_events()
    progress = session.progress([event.number for event in events])
    for event, tokens in zip(events, progress, strict=True):
        assert event.output_tokens <= tokens
    due_s = session.next_due_s
    assert due_s is None or due_s >= session.now_s


def _deployment(look: Looking, result: Result, rng: random.Random, folder: Path) -> None:
    """Exported and imported again: the simulation that is deployed, and the same files."""
    target = rng.choice(list(TARGETS.values()))
    name = f"{target.name}@{rng.choice(target.versions)}"
    with look.at(f"export to {target.name}"):
        try:
            exported = export(
                result.simulation, to=name, rest=rng.choice(("absent", "kept")), allow_lossy=True
            )
        except ConfigError as error:
            known = ("cannot be", "would be empty")
            assert any(text in str(error) for text in known), error  # noqa: PT017
            return
        exported.write(folder / "deployed")
        imported = import_(folder / "deployed", system=name, onto=exported.deployed)
        assert imported.unread == ()
        assert imported.simulation == exported.deployed
        assert export(imported.simulation, to=name, rest="kept").files == exported.files
        simulate(imported.simulation, result.seed)


def _study(look: Looking, result: Result, rng: random.Random, _folder: Path) -> None:
    """A small search under a constraint: the same trials on one thread and on two."""
    ranges = {
        path: (field["search"]["low"], field["search"]["high"])
        for path, (field, value) in runtime_fields(result.simulation).items()
        if field.get("search") and value is not None and field["type"] in ("float", "int")
    }
    if not ranges:
        return
    space = {path: ranges[path] for path in rng.sample(sorted(ranges), min(2, len(ranges)))}
    sampler = rng.choice(("random", "tpe", "gp"))
    with look.at(f"study by {sampler}"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # e.g. that nothing is feasible
        study, other = (
            Study(
                result.simulation,
                space,
                "completed",
                {"shed": "<=0.4"},
                seeds=2,
                sampler=sampler,
                seed=result.seed,
            ).optimize(5, threads=threads, check=False)
            for threads in (1, 2)
        )
        assert repr(study.trials.to_dict()) == repr(other.trials.to_dict())
        assert repr(study) == repr(other)


class _Tags(html.parser.HTMLParser):
    """Whether every tag that opens is closed, in order."""

    _VOID = frozenset(("meta", "br", "img", "input", "hr", "link", "col", "wbr"))

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002
        if tag not in self._VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


def _page(look: Looking, result: Result, _rng: random.Random, folder: Path) -> None:
    """One HTML file, whose tags are closed."""
    with look.at("report"):
        result.report(folder / "report.html")
        tags = _Tags()
        tags.feed((folder / "report.html").read_text(encoding="utf-8"))
        tags.close()
        assert not tags.stack


EXPERIMENTS: Mapping[str, tuple[float, Callable[[Looking, Result, random.Random, Path], None]]] = {
    "session": (0.25, _session),
    "deployment": (0.5, _deployment),
    "study": (0.02, _study),
    "report": (0.01, _page),
}
"""Share of the simulations with each, and the experiment."""


def failed_experiments(
    result: Result, rng: random.Random, folder: Path
) -> tuple[list[str], list[Failure]]:
    """The experiments that were made with a result, and what failed in them."""
    look, made = Looking(), []
    for name, (share, experiment) in EXPERIMENTS.items():
        if rng.random() < share:
            made.append(name)
            experiment(look, result, random.Random(rng.random()), folder)
    return made, look.failures


def with_a_scaler(simulation: Simulation, rng: random.Random) -> Simulation:
    """With a scaler to a target of any metric, in place of none."""
    if simulation.fleet.autoscaler.kind != "none":
        return simulation
    scaler = {
        "kind": "target",
        "metric": rng.choice(describe.descriptor("fleet.autoscaler.target.metric")["choices"]),
        "target": rng.choice((0.05, 0.5, 4.0)),
        "poll_s": rng.choice((0.5, 5.0)),
        "max_instances": sum(group.count for group in simulation.instances),
    }
    return _if_valid(simulation, {"fleet.autoscaler": scaler})


def with_late_notices(simulation: Simulation, rng: random.Random) -> Simulation:
    """With servers that notice late, or never, that impatient clients have left."""
    patience_s = rng.choice((0.01, 0.1, 1.0))
    retry = {"max_attempts": rng.randint(1, 4), "backoff_s": patience_s, "jitter": "none"}
    impatient = {
        "reaction": {rng.choice(("timeout_s", "first_token_timeout_s")): patience_s}
        | {"retries": [retry]},
        "instances": [
            group.replace(notices_departure_after_s=rng.choice((None, 0.0, 0.002, 0.05, 2.0)))
            for group in simulation.instances
        ],
    }
    for streaming in (True, False):  # each result is compared with that of the other mode
        changes = {**impatient, "metrics.streaming": streaming, "metrics.traced_candidates": 0}
        if _if_valid(simulation, changes) is simulation:
            return simulation
    return _if_valid(simulation, impatient)


def with_hedges(simulation: Simulation, rng: random.Random) -> Simulation:
    """With clients that send second copies, some within a budget, at times beside time-outs."""
    hedge = workload.Hedge(
        after_s=rng.choice((0.0, 0.001, 0.02, 0.5)),
        budget_ratio=rng.choice((None, None, 0.05, 0.5)),
        budget_burst=rng.choice((1, 5)),
    )
    reaction = simulation.reaction.replace(
        retries=[], hedge=hedge, timeout_s=rng.choice((None, None, 0.1, 2.0))
    )
    groups = [
        group.replace(
            completion="step_end",
            models=[],
            notices_departure_after_s=rng.choice((0.0, 0.0, None, 0.002, 0.5)),
        )
        for group in simulation.instances
    ]
    groups[0] = groups[0].replace(count=groups[0].count + 1)
    tenants = [tenant.replace(model="") for tenant in simulation.tenants]
    if tenants and rng.random() < 0.4:  # some of them alone
        tenants[0] = tenants[0].replace(reaction=reaction)
        reaction = simulation.reaction
    hedged = {
        "reaction": reaction,
        "tenants": tenants,
        "instances": groups,
        "gateway.decision_latency_s": 0,
        "metrics.accounting": "clock",
        "fleet": fleet.Fleet(),
    }
    for streaming in (True, False):  # each result is compared with that of the other mode
        changes = {**hedged, "metrics.streaming": streaming, "metrics.traced_candidates": 0}
        if _if_valid(simulation, changes) is simulation:
            return simulation
    return _if_valid(simulation, hedged)


def with_models(simulation: Simulation, rng: random.Random) -> Simulation:
    """With up to three models, which some tenants and requests name, and groups serve some of."""
    models = ["small", "large", "odd/name"][: rng.randint(1, 3)]
    groups = [
        group.replace(
            models=rng.sample(models, rng.randint(1, len(models))) if rng.random() < 0.7 else [],
            cost_per_hour=rng.choice((0.0, 2.5)),
        )
        for group in simulation.instances
    ]
    served = [model for model in models if any(model in group.models for group in groups)]
    tenants = [tenant.replace(model=rng.choice(("", *served))) for tenant in simulation.tenants]
    router = simulation.router
    if router.kind == "round_robin":
        router = router.replace(per_model=rng.random() < 0.5)
    changes = [
        change.replace(
            submit=[sent.replace(model=rng.choice(("", *served))) for sent in change.submit]
        )
        for change in simulation.changes
    ]
    limits = [
        limit.replace(models=rng.sample(served, rng.randint(0, len(served))))
        if limit.kind == "group"
        else limit
        for limit in simulation.gateway.limit
    ]
    settings = {
        "instances": groups,
        "tenants": tenants,
        "router": router,
        "changes": changes,
        "gateway.limit": limits,
        "workload": _naming(simulation.workload, models, served, rng),
    }
    return _if_valid(simulation, settings)


def _naming(of: Any, models: list[str], served: list[str], rng: random.Random) -> Any:
    """A workload whose requests name models; those of a trace also some that nothing serves."""
    if isinstance(of, workload.Synthetic):
        clients = [client.replace(model=rng.choice(("", *served))) for client in of.clients]
        return of.replace(clients=clients)
    columns = dict(of._columns())
    names = rng.choices(("", *models), k=len(columns["arrival_ns"]))
    made = _core.workload.make_trace(**columns, **model_column(names))
    kept = ("transforms", "session_segments", "empty_outputs", "max_in_flight")
    return made.replace(**{name: getattr(of, name) for name in kept})


def fault_of(kind: str, of: int, rng: random.Random, span_s: float) -> dict[str, Any]:
    """A fault of an instance."""
    fault: dict[str, Any] = {"kind": kind, "instance": of}
    if kind == "kv_loss":
        return fault | {"cached_only": rng.random() < 0.3}
    return fault | {"for_s": rng.choice((None, rng.uniform(0.001, span_s)))}


def with_faults(simulation: Simulation, rng: random.Random) -> Simulation:
    """With instances that fail at stated times, at random, or both, if all of them have steps."""
    if any(group.plant.kind != "step_loop" for group in simulation.instances):
        return simulation
    instances = sum(group.count for group in simulation.instances)
    span_s = rng.choice((0.05, 0.5, 5.0))
    kinds = ["crash", "crash", "hang", "slowdown"]
    if all(group.role == "both" for group in simulation.instances):
        kinds.append("kv_loss")
    changes = [
        {
            "at_s": rng.choice((0.0, rng.uniform(0, span_s), round(rng.uniform(0, span_s), 2))),
            "faults": [
                fault_of(rng.choice(kinds), rng.randrange(instances), rng, span_s)
                for _ in range(rng.choice((1, 1, 3)))
            ],
        }
        for _ in range(rng.choice((0, 1, 4)))
    ]
    breakdowns = None
    if not changes or rng.random() < 0.5:
        breakdowns = fleet.Breakdowns(
            mttf_s=rng.choice((0.2, 2.0)), mttr_s=rng.choice((0.02, 0.5)), hangs=rng.random() < 0.5
        )
    health = fleet.Health(
        detected_after_s=rng.choice((0.0, 0.01, 0.3)),
        undetected=rng.choice(("refused", "swallowed")),
    )
    may_migrate = all(
        group.preemption == "keep_emitted" and group.speculative_decoding.num_drafts == 0
        for group in simulation.instances
    )
    migration = fleet.Migration(
        limit=rng.choice((0, 1, 3)) if may_migrate else 0,
        max_seq_len_tokens=rng.choice((None, None, rng.randint(1, 2000))),
        answered=rng.random() < 0.8,
    )
    own = simulation.fleet.replace(
        startup_s=rng.choice((0.0, 0.05, 1.0)),
        reported_ready_after_s=rng.choice((None, None, 0.02)),
        breakdowns=breakdowns,
        health=health,
        migration=migration,
    )
    groups = [
        group.replace(completion="step_end", front_end=instance.FrontEnd(), lockstep_ranks=False)
        for group in simulation.instances
    ]
    failing = {
        "fleet": own,
        "instances": groups,
        "changes": [*simulation.changes, *changes],
        "metrics.accounting": "clock",
    }
    return _if_valid(simulation, failing)


def with_gateway_crashes(simulation: Simulation, rng: random.Random) -> Simulation:
    """With replicas of the gateway that crash, some of them while they are down."""
    span_s = rng.choice((0.05, 0.5, 5.0))
    crashes = [
        {
            "at_s": rng.choice((0.0, rng.uniform(0, span_s), round(rng.uniform(0, span_s), 2))),
            "faults": [
                {
                    "kind": "gateway_crash",
                    "gateway": rng.randrange(simulation.gateway.replicas),
                    "for_s": rng.choice((None, 1e-9, rng.uniform(0.001, span_s))),
                }
            ],
        }
        for _ in range(rng.choice((1, 1, 4)))
    ]
    groups = [group.replace(notices_departure_after_s=0.0) for group in simulation.instances]
    own = simulation.fleet.replace(migration=fleet.Migration())
    failing = {
        "fleet": own,
        "instances": groups,
        "changes": [*simulation.changes, *crashes],
    }
    return _if_valid(simulation, failing)


EXTENSIONS: Mapping[str, float] = {
    "own policies": 0.2,
    "catalog servers": 0.06,
    "further changes": 0.15,
    "a scaler": 0.12,
    "late notices": 0.15,
    "models": 0.15,
    "faults": 0.2,
    "hedges": 0.15,
    "gateway crashes": 0.15,
}
"""Share of the simulations that are to get each."""


def extended(simulation: Simulation, rng: random.Random) -> tuple[Simulation, list[str]]:
    """The simulation with some extensions where these are valid, and their names."""
    functions = (
        with_own_policies,
        with_catalog_servers,
        with_changes,
        with_a_scaler,
        with_late_notices,
        with_models,
        with_faults,
        with_hedges,
        with_gateway_crashes,
    )
    made = []
    for (name, share), extend in zip(EXTENSIONS.items(), functions, strict=True):
        if rng.random() < share:
            before, simulation = simulation, extend(simulation, rng)
            if simulation is not before:
                made.append(name)
    return simulation, made
