"""The settings of a live server, and what follows from its simulation."""

from __future__ import annotations

import ipaddress
import itertools
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from spillway import workload
from spillway._core.cluster import Simulation
from spillway._core.sim import ConfigError
from spillway.config.classes import config_error
from spillway.servers.server import model_named_in

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES = ("fleet", "servers")
STATUS_PROFILES = ("llm-d", "vllm", "dynamo")
_DRAWN = 4096
_UNSTATED_OUTPUT = 128
_UNBOUNDED = 131_072
_IN_FRONT = (
    "gateway",
    "router",
    "signals",
    "prefix_index",
    "busy_monitor",
    "disaggregation",
    "fleet",
)


@dataclass
class LiveSettings:
    """How a simulation is served; `served` makes one."""

    simulation: Simulation
    mode: str
    seed: int
    speed: float
    model: str
    status_profile: str
    record: Path | None
    max_model_lens: list[int]
    block_tokens: int
    tenants: frozenset[str]
    notes: list[str]
    outputs: dict[str, Iterator[int]]
    classes: dict[str, str]
    most_requests: int = 4096
    most_body_bytes: int = 8 * 2**20
    most_header_bytes: int = 64 * 2**10
    body_timeout_s: float = 30.0
    head_timeout_s: float = 30.0
    read_timeout_s: float = 30.0
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def max_model_len(self, instance: int | None) -> int:
        """The longest request of an instance, or of the shortest in the fleet."""
        if instance is None:
            return min(self.max_model_lens)
        return self.max_model_lens[instance]

    @property
    def journal(self) -> Path | None:
        """Where the changes are kept while the server runs."""
        return self.record and self.record.with_name(self.record.name + ".jsonl")

    def tenant_of(self, name: str) -> str:
        """The tenant of this name; `default` if the simulation has none of it."""
        return name if name in self.tenants else "default"

    def slo_class_of(self, tenant: str) -> str:
        """The class of the tenant's requests, unless they state another."""
        return self.classes.get(tenant, self.classes["default"])

    def draw_output(self, tenant: str) -> int:
        """The length of an output."""
        return next(self.outputs.get(tenant, self.outputs["default"]))


def served(
    simulation: Simulation,
    *,
    mode: str,
    seed: int,
    speed: float,
    model: str | None,
    status_profile: str | None,
    record: str | Path | None,
) -> LiveSettings:
    """The settings under which a simulation is served. Raises ConfigError."""
    if status_profile is None:
        status_profile = "vllm" if mode == "servers" else "llm-d"
    _check(
        simulation,
        mode=mode,
        speed=speed,
        model=model,
        status_profile=status_profile,
        record=record,
    )
    notes: list[str] = []
    if model is None:
        model = _model(simulation, notes)
    if mode == "servers":
        simulation = _without_front(simulation, notes)
    offered = simulation.workload
    clients = list(offered.clients) if isinstance(offered, workload.Synthetic) else []
    classes = {client.tenant: client.slo_class for client in clients}
    names = [tenant.name for tenant in simulation.tenants] or list(classes)
    tenants = list(simulation.tenants) or [workload.Tenant(name=name) for name in names]
    if "default" not in names:
        tenants.append(workload.Tenant(name="default"))
        notes.append("requests of unknown tenants are those of the tenant 'default', added here")
    known = {slo_class.name for slo_class in simulation.slo_classes}
    usual = "standard" if "standard" in known else simulation.slo_classes[0].name
    classes.setdefault("default", usual)
    outputs = _outputs(offered, seed, notes)
    if simulation.reaction != workload.Reaction() or any(t.reaction for t in tenants):
        notes.append("`reaction` is left out: clients that wait and retry are the real ones")
    if simulation.horizon_s is not None:
        notes.append("`horizon_s` is left out: a server has no end")
    first = workload.Client(tenant="default", slo_class=usual)
    open_ended = simulation.replace(
        workload=workload.Synthetic(num_requests=0, clients=[first]),
        tenants=[tenant.replace(reaction=None) for tenant in tenants],
        reaction=workload.Reaction(),
        horizon_s=None,
    )
    return LiveSettings(
        simulation=open_ended,
        mode=mode,
        seed=seed,
        speed=float(speed),
        model=model,
        status_profile=status_profile,
        record=None if record is None else Path(record),
        max_model_lens=[
            group.max_model_len or _UNBOUNDED
            for group in simulation.instances
            for _ in range(group.count)
        ],
        block_tokens=max(group.block_size_tokens for group in simulation.instances),
        tenants=frozenset(tenant.name for tenant in tenants),
        notes=notes,
        outputs=outputs,
        classes=classes,
    )


def _check(
    simulation: Simulation,
    *,
    mode: str,
    speed: float,
    model: str | None,
    status_profile: str,
    record: str | Path | None,
) -> None:
    violations = []
    if mode not in MODES:
        violations.append(("mode", repr(mode), f"must be one of {', '.join(MODES)}"))
    if not (isinstance(speed, int | float) and (speed == 0 or 1e-3 <= speed <= 1e3)):
        violations.append(("speed", repr(speed), "must be 0, or >= 0.001 and <= 1000"))
    if status_profile not in STATUS_PROFILES:
        violations.append(
            ("status_profile", repr(status_profile), f"must be one of {', '.join(STATUS_PROFILES)}")
        )
    elif mode == "servers" and status_profile != "vllm":
        allowed = "must be vllm in mode servers, which has no gateway"
        violations.append(("status_profile", repr(status_profile), allowed))
    if mode == "servers" and any(group.role != "both" for group in simulation.instances):
        roles = ", ".join(sorted({group.role for group in simulation.instances}))
        allowed = "must all be both in mode servers: what is in front cannot hand a prompt over"
        violations.append(("instances[].role", roles, allowed))
    if model == "":
        violations.append(("model", repr(model), "must not be empty"))
    if record is not None and Path(record).suffix not in (".yaml", ".yml", ".json"):
        violations.append(("record", str(record), "must end in .yaml, .yml or .json"))
    if violations:
        raise config_error(violations)


def _model(simulation: Simulation, notes: list[str]) -> str:
    """The model that the servers name, if it is one."""
    named = {model_named_in(group.provenance) for group in simulation.instances} - {None}
    if len(named) > 1:
        names = ", ".join(sorted(str(name) for name in named))
        notes.append(f"the servers have several models ({names}): served as 'spillway'")
    return str(named.pop()) if len(named) == 1 else "spillway"


def _without_front(simulation: Simulation, notes: list[str]) -> Simulation:
    """Only the servers, all of them in service."""
    usual = Simulation()
    left_out = [name for name in _IN_FRONT if getattr(simulation, name) != getattr(usual, name)]
    changes = []
    for change in simulation.changes:
        kept = {
            path: value
            for path, value in change.set.items()
            if path.partition(".")[0].partition("[")[0] not in _IN_FRONT
        }
        if len(kept) < len(change.set):
            left_out.append(f"changes at {change.at_s:g} s")
        if kept or change.submit or change.cancel:
            changes.append(change.replace(set=kept))
    if left_out:
        names = ", ".join(f"`{name}`" for name in left_out)
        notes.append(f"{names} left out: mode servers has the servers alone, all in service")
    front = {name: getattr(usual, name) for name in _IN_FRONT}
    return simulation.replace(**front, changes=changes)


def _outputs(offered: object, seed: int, notes: list[str]) -> dict[str, Iterator[int]]:
    """By tenant, the lengths that the workload would have, over and over."""
    from spillway import traffic

    drawn: dict[str, list[int]] = {}
    if isinstance(offered, workload.Synthetic):
        try:
            for client in offered.clients:
                alone = client.replace(
                    arrivals={"kind": "poisson"},
                    num_requests=None,
                    duration_s=None,
                    start_s=0,
                    requests_per_s=None,
                    rate_profile=[],
                    rate_period_s=None,
                )
                requests = traffic.generated(
                    workload.Synthetic(num_requests=_DRAWN, clients=[alone]), seed
                )
                lengths = requests._columns()["output_tokens"].tolist()
                drawn.setdefault(client.tenant, []).extend(max(1, length) for length in lengths)
        except ConfigError:
            drawn = {}
    if not drawn:
        notes.append(
            f"outputs have {_UNSTATED_OUTPUT} tokens unless requests say otherwise: "
            "the workload states no distribution"
        )
        drawn = {"default": [_UNSTATED_OUTPUT]}
    drawn.setdefault("default", next(iter(drawn.values())))
    return {tenant: itertools.cycle(lengths) for tenant, lengths in drawn.items()}


def check_address(host: str, *, behind_proxy: bool) -> None:
    """Raises ConfigError for an address that other machines reach, unless a proxy is in front."""
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local and not behind_proxy:
        allowed = (
            "must be an address of this machine, such as 127.0.0.1; the server does not check its "
            "callers: put a proxy in front and state --behind-proxy (behind_proxy=True in Python)"
        )
        raise config_error([("host", repr(host), allowed)])
