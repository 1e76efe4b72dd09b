"""The settings of a live server, and what follows from its simulation."""

from __future__ import annotations

import ipaddress
import itertools
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from spillway import fleet, workload
from spillway._core.cluster import Change, Simulation
from spillway._core.sim import ConfigError
from spillway.config.classes import config_error
from spillway.config.limits import LONGEST_SPAN_S
from spillway.live import errors as injection
from spillway.live import fidelity, keys, transfers
from spillway.live.keys import TenantKeys
from spillway.servers.server import model_named_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spillway.live.errors import Rule

MODES = ("fleet", "servers")
STATUS_PROFILES = ("llm-d", "vllm", "dynamo")
FEWEST_TOKEN_CHARACTERS = 16
VLLM_VERSION = "0.33.0"
_FIRST_VERSION, _LAST_VERSION = 10, 33  # of vLLM 0.x
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
)
_OF_FAULTS = ("breakdowns", "startup_s")


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
    vllm_version: str = VLLM_VERSION
    errors: list[Rule] = field(default_factory=list)
    may_fail: bool = False
    tenant_keys: TenantKeys = field(default_factory=TenantKeys)
    admin_token: str | None = None
    most_requests: int = 4096
    most_body_bytes: int = 8 * 2**20
    most_header_bytes: int = 64 * 2**10
    body_timeout_s: float = 30.0
    head_timeout_s: float = 30.0
    read_timeout_s: float = 30.0
    kv_lease_s: float = transfers.lease_s((0, _LAST_VERSION))
    kv_load_failure_policy: str = "recompute"
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    @property
    def version(self) -> tuple[int, int]:
        """The version of vLLM whose names the metrics have."""
        major, minor = self.vllm_version.split(".")[:2]
        return int(major), int(minor)

    @property
    def num_ports(self) -> int | None:
        """How many instances have a port of their own; None: they have none."""
        return len(self.max_model_lens) if self.mode == "servers" else None

    @property
    def hands_over(self) -> bool:
        """Whether an instance may go on with a prompt that another one has computed."""
        has_roles = any(group.role != "both" for group in self.simulation.instances)
        return self.mode == "servers" and has_roles

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
    vllm_version: str = VLLM_VERSION,
    errors: str | Path | Sequence[Mapping[str, object]] = (),
    admin_token: str | None = None,
    tenant_keys: str | Path | None = None,
    kv_lease_s: float | None = None,
    kv_load_failure_policy: str = "recompute",
) -> LiveSettings:
    """The settings under which a simulation is served. Raises ConfigError."""
    if status_profile is None:
        status_profile = "vllm" if mode == "servers" else "llm-d"
    _check(
        mode=mode,
        speed=speed,
        model=model,
        status_profile=status_profile,
        record=record,
    )
    _check_version(vllm_version)
    _check_transfers(kv_lease_s, kv_load_failure_policy)
    if admin_token is not None and not re.fullmatch(
        rf"[!-~]{{{FEWEST_TOKEN_CHARACTERS},}}", admin_token
    ):  # the error does not show it
        allowed = f"must have at least {FEWEST_TOKEN_CHARACTERS} characters, ASCII without spaces"
        raise config_error([("admin_token", "", allowed)])
    count = sum(group.count for group in simulation.instances)
    rules = injection.rules_of(
        injection.read(errors) if isinstance(errors, str | Path) else errors,
        instances=count if mode == "servers" else None,
    )
    notes = fidelity.notes(simulation)
    if rules:
        notes.append("injected errors are answered before the fleet: the record has none of them")
    if model is None:
        model = _model(simulation, notes)
    if mode == "servers":
        simulation = _without_front(simulation, notes)
    may_fail = _may_fail(simulation, notes, is_asked=admin_token is not None)
    if may_fail and mode == "servers":
        # What is in front notices failures, and no health check ends a hang.
        health = fleet.Health(detected_after_s=LONGEST_SPAN_S)
        simulation = simulation.replace(fleet=simulation.fleet.replace(health=health))
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
    live = LiveSettings(
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
        vllm_version=vllm_version,
        errors=rules,
        may_fail=may_fail,
        tenant_keys=TenantKeys()
        if tenant_keys is None
        else keys.read(tenant_keys, {tenant.name for tenant in tenants}),
        admin_token=admin_token,
        kv_load_failure_policy=kv_load_failure_policy,
    )
    if kv_lease_s is None:
        kv_lease_s = transfers.lease_s(live.version)
    live.kv_lease_s = float(kv_lease_s)
    if live.hands_over:
        notes.append(
            "prompts go from server to server by `kv_transfer_params`, as vLLM's NIXL connector "
            "has them, over `disaggregation.link`; a server keeps a prompt that none asks for "
            f"{live.kv_lease_s:g} s"
        )
    return live


def _check(
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
    if model == "":
        violations.append(("model", repr(model), "must not be empty"))
    if record is not None and Path(record).suffix not in (".yaml", ".yml", ".json"):
        violations.append(("record", str(record), "must end in .yaml, .yml or .json"))
    if violations:
        raise config_error(violations)


def _check_version(version: str) -> None:
    found = re.fullmatch(r"0\.(\d{1,3})(\.\d{1,3})?", version)
    if found is None or not _FIRST_VERSION <= int(found[1]) <= _LAST_VERSION:
        allowed = f"must be from 0.{_FIRST_VERSION} to 0.{_LAST_VERSION}"
        raise config_error([("vllm_version", f"{version!r:.40}", allowed)])


def _check_transfers(lease_s: float | None, policy: str) -> None:
    violations = []
    if lease_s is not None and not 0 < lease_s <= LONGEST_SPAN_S:
        allowed = f"must be > 0 and <= {LONGEST_SPAN_S:g} (s)"
        violations.append(("kv_lease_s", f"{lease_s:g}", allowed))
    if policy not in transfers.POLICIES:
        allowed = f"must be one of {', '.join(transfers.POLICIES)}"
        violations.append(("kv_load_failure_policy", repr(policy), allowed))
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
    link = simulation.disaggregation.link
    front = {name: getattr(usual, name) for name in _IN_FRONT}
    front["disaggregation"] = usual.disaggregation.replace(link=link)
    left_out = [name for name in _IN_FRONT if getattr(simulation, name) != front[name]]
    settings = simulation.fleet.to_dict()
    kept = {name: settings[name] for name in _OF_FAULTS if name in settings}
    usual_fleet = usual.fleet.to_dict()
    left_out += [
        f"fleet.{name}"
        for name, value in settings.items()
        if name not in kept and value != usual_fleet.get(name)
    ]
    changes = []
    for change in simulation.changes:
        still_set = {
            path: value
            for path, value in change.set.items()
            if path.partition(".")[0].partition("[")[0] not in (*_IN_FRONT, "fleet")
        }
        faults = [each for each in change.faults if not isinstance(each, fleet.GatewayCrash)]
        if len(still_set) < len(change.set) or len(faults) < len(change.faults):
            left_out.append(f"changes at {change.at_s:g} s")
        has_requests = change.submit or change.cancel or change.hand_off
        if still_set or has_requests or faults:
            changes.append(change.replace(set=still_set, faults=faults))
    if left_out:
        names = ", ".join(f"`{name}`" for name in left_out)
        notes.append(f"{names} left out: mode servers has the servers alone, all in service")
    return simulation.replace(**front, fleet=fleet.Fleet.from_dict(kept), changes=changes)


def _states_faults(simulation: Simulation) -> bool:
    return simulation.fleet.breakdowns is not None or any(
        change.faults for change in simulation.changes
    )


def _may_fail(simulation: Simulation, notes: list[str], *, is_asked: bool) -> bool:
    """Whether instances fail, or can be asked to."""
    if _states_faults(simulation):
        return True
    if not is_asked:
        return False
    crash = Change(at_s=1, faults=[fleet.Crash(instance=0)])
    try:
        simulation.replace(changes=[*simulation.changes, crash])
    except ConfigError as error:
        notes.append(f"instances cannot be asked to fail: {error}")
        return False
    return True


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


def has_requests(simulation: Simulation) -> bool:
    """Whether a record has requests, and can be repeated."""
    return any(change.submit for change in simulation.changes)
