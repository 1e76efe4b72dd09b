"""The settings of a live server, and what follows from its simulation."""

from __future__ import annotations

import ipaddress
import itertools
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from spillway import workload
from spillway._core.sim import ConfigError
from spillway.config.classes import config_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway._core.cluster import Simulation

STATUS_PROFILES = ("llm-d", "vllm", "dynamo")
_DRAWN = 4096
_UNSTATED_OUTPUT = 128
_UNBOUNDED = 131_072


@dataclass
class LiveSettings:
    """How a simulation is served; `served` makes one."""

    simulation: Simulation
    seed: int
    speed: float
    model: str
    status_profile: str
    record: Path | None
    max_model_len: int
    block_tokens: int
    tenants: frozenset[str]
    notes: list[str]
    outputs: dict[str, Iterator[int]]
    classes: dict[str, str]
    most_requests: int = 4096
    most_body_bytes: int = 8 * 2**20
    most_header_bytes: int = 64 * 2**10
    body_timeout_s: float = 30.0
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(32))

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
    seed: int,
    speed: float,
    model: str,
    status_profile: str,
    record: str | Path | None,
) -> LiveSettings:
    """The settings under which a simulation is served. Raises ConfigError."""
    violations = []
    if not (isinstance(speed, int | float) and (speed == 0 or 1e-3 <= speed <= 1e3)):
        violations.append(("speed", repr(speed), "must be 0, or >= 0.001 and <= 1000"))
    if status_profile not in STATUS_PROFILES:
        violations.append(
            ("status_profile", repr(status_profile), f"must be one of {', '.join(STATUS_PROFILES)}")
        )
    if not model:
        violations.append(("model", repr(model), "must not be empty"))
    if record is not None and Path(record).suffix not in (".yaml", ".yml", ".json"):
        violations.append(("record", str(record), "must end in .yaml, .yml or .json"))
    if violations:
        raise config_error(violations)
    notes: list[str] = []
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
    limits = [group.max_model_len for group in simulation.instances if group.max_model_len > 0]
    return LiveSettings(
        simulation=open_ended,
        seed=seed,
        speed=float(speed),
        model=model,
        status_profile=status_profile,
        record=None if record is None else Path(record),
        max_model_len=min(limits, default=_UNBOUNDED),
        block_tokens=max(group.block_size_tokens for group in simulation.instances),
        tenants=frozenset(tenant.name for tenant in tenants),
        notes=notes,
        outputs=outputs,
        classes=classes,
    )


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
            "must be an address of this machine, such as 127.0.0.1; the server limits neither the "
            "time of headers nor its callers: put a proxy in front and state --behind-proxy "
            "(behind_proxy=True in Python)"
        )
        raise config_error([("host", repr(host), allowed)])
