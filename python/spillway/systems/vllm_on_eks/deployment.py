"""vllm-on-eks: `tenants.yaml` of its multi-tenant gateway, with the block `aimd`.

Fields and defaults: `app/tenants.py` and `config/tenants.yaml` of
https://github.com/Nicolas-Richard/vllm-on-eks at two commits. At 2dca487 a cut is a number of
permits (AISD) and the timeout of the queue an environment variable, at 0c78403 a cut is a factor
and the timeout a field. What that code does apart from its settings is in the
presets beside this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway._core.gateway import Gateway
from spillway._core.workload import Tenant
from spillway.config.classes import config_error
from spillway.config.yaml import parse, to_yaml
from spillway.files.deployments.fields import Fields
from spillway.files.deployments.target import GATEWAY, Target, Unread
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

if TYPE_CHECKING:
    from collections.abc import Mapping


_STEP, _FACTOR = "2dca487", "0c78403"
_FILE, _ENVIRONMENT = "tenants.yaml", "gateway.env"
_TIMEOUTS = {_STEP: 30.0, _FACTOR: 1.0}
_UNBOUNDED = 10**9
_CAP = 64
# Field of the block `aimd` → part of the gateway, its setting, and the default; None: required.
_AIMD = {
    "target_p99_ttft_s": ("controller", "target_s", None),
    "tick_s": ("sensor", "tick_s", None),
    "window_s": ("sensor", "window_s", None),
    "cap_per_worker_min": ("guard", "floor", None),
    "cap_per_worker_max": ("guard", "ceiling", None),
    "target_band_pct": ("controller", "band", 0.0),
    "cooldown_ticks": ("guard", "cooldown_ticks", 0),
}
_CUTS = {
    _STEP: {"decrease_step": ("controller", "decrease_step", 1.0)},
    _FACTOR: {"decrease_factor": ("controller", "decrease_factor", 0.5)},
}


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:
    """The file, and at 2dca487 the environment variable with the timeout."""
    gateway = settings["gateway"]
    limit = next((policy for policy in gateway["limit"] if policy["kind"] == "worker_budget"), None)
    queue = gateway["bands"][0]["queue"]
    timeout_s = _TIMEOUTS[version] if queue["timeout_s"] is None else queue["timeout_s"]
    content: dict[str, Any] = {"caps_enabled": limit is not None, "num_workers": 1}
    content["cap_per_worker"] = limit["cap_per_worker"] if limit else _CAP
    if limit:
        ready = sum(group["count"] for group in settings["instances"])
        content["num_workers"] = ready if limit["workers"] is None else limit["workers"]
        if version == _FACTOR:
            content["acquire_timeout_s"] = timeout_s
        if gateway["controller"]["kind"] == "aimd":
            content["aimd"] = _aimd(gateway, version)
    content["tenants"] = [
        {
            "id": tenant["name"],
            "name": tenant["name"],
            "weight": max(1, round(tenant["weight"])),
            "queue_max": _queue_max(tenant, queue) if limit else _UNBOUNDED,
            "key_env": f"TENANT_KEY_{i + 1}",
        }
        for i, tenant in enumerate(_tenants(settings))
    ]
    files = {_FILE: to_yaml(content)}
    if limit and version == _STEP:
        files[_ENVIRONMENT] = f"ACQUIRE_TIMEOUT_S={timeout_s:g}\n"
    return files


def _queue_max(tenant: Mapping[str, Any], queue: Mapping[str, Any]) -> int:
    most = queue["max_requests"] if tenant["queue_max"] is None else tenant["queue_max"]
    return _UNBOUNDED if most is None else int(most)


def _tenants(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tenants, or if there are none, those of the clients."""
    return settings["tenants"] or [Tenant(name=name).to_dict() for name in _clients(settings)]


def _clients(settings: Mapping[str, Any]) -> list[str]:
    clients = settings["workload"].get("clients", [])
    return list(dict.fromkeys(client["tenant"] for client in clients))


def _aimd(gateway: Mapping[str, Any], version: str) -> dict[str, Any]:
    fields = (_AIMD | _CUTS[version]).items()
    values = {name: gateway[part][setting] for name, (part, setting, _) in fields}
    for name in ("cap_per_worker_min", "cap_per_worker_max"):
        values[name] = round(values[name])
    if version == _STEP:
        values["decrease_step"] = max(1, round(values["decrease_step"]))
    return {"enabled": True} | values


def read(files: Mapping[str, str], settings: dict[str, Any], version: str) -> list[Unread]:
    """Changes the gateway, and weights and queues of the tenants, to those of the files."""
    timeout_s = _TIMEOUTS[version]
    content: dict[str, str] = {}
    for name, text in files.items():
        if "ACQUIRE_TIMEOUT_S" in text:
            timeout_s = _timeout(name, text)
        else:
            content[name] = text
    if len(content) != 1:
        allowed = "must contain one tenants.yaml, and at most one file with ACQUIRE_TIMEOUT_S"
        raise config_error([(", ".join(files), "", allowed)])
    ((name, text),) = content.items()
    fields = Fields(name, parse(text, name))
    gateway = settings["gateway"]
    defaults = Gateway().to_dict()
    gateway |= {key: defaults[key] for key in GATEWAY}
    is_on = fields.take("caps_enabled", "bool", default=False)
    workers, cap = (fields.required(key) for key in ("num_workers", "cap_per_worker"))
    timeout_s = fields.take("acquire_timeout_s", "float", timeout_s)
    watcher = fields.map("worker_watcher")
    watcher.drop("namespace", "service_name")
    if watcher.take("enabled", "bool", default=False):
        workers = None
    if is_on:
        preset = (vllm_on_eks.post4 if version == _STEP else vllm_on_eks.post5)(workers=workers)
        gateway |= {key: preset.gateway.to_dict()[key] for key in GATEWAY}
        gateway["limit"][0]["cap_per_worker"] = cap
        gateway["bands"][0]["queue"]["timeout_s"] = timeout_s
        _read_aimd(fields.map("aimd"), gateway, version, defaults)
    _read_tenants(fields, settings, is_on=is_on)
    return fields.rest()


def _timeout(name: str, text: str) -> float:
    value = text.partition("ACQUIRE_TIMEOUT_S=")[2].split()
    found = parse(value[0].strip("\"'"), name) if value else None
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise config_error([(f"{name}: ACQUIRE_TIMEOUT_S", f"{found!r}", "must be a number")])
    return float(found)


def _read_aimd(
    fields: Fields, gateway: dict[str, Any], version: str, defaults: Mapping[str, Any]
) -> None:
    if not fields.take("enabled", "bool", default=False):
        gateway |= {key: defaults[key] for key in ("controller", "guard", "sensor")}
        return
    for name, (part, setting, default) in (_AIMD | _CUTS[version]).items():
        kind = "int" if name == "cooldown_ticks" else "float"
        is_required = default is None
        gateway[part][setting] = (
            fields.required(name, kind) if is_required else fields.take(name, kind, default)
        )


def _read_tenants(fields: Fields, settings: dict[str, Any], *, is_on: bool) -> None:
    """Tenants in the order of the file, then the others."""
    before = {tenant["name"]: tenant for tenant in settings["tenants"]}
    if not before:
        before = {name: Tenant(name=name).to_dict() for name in _clients(settings)}
    found = {}
    for tenant in fields.maps("tenants"):
        tenant.drop("name", "key_env")
        name = tenant.required("id", "str")
        weight, most = (tenant.required(key) for key in ("weight", "queue_max"))
        found[name] = (before.get(name) or Tenant(name=name).to_dict()) | {
            "weight": float(weight),
            "queue_max": most if is_on else None,
            "max_in_flight": None,
        }
    settings["tenants"] = list(
        (found | {k: v for k, v in before.items() if k not in found}).values()
    )


TARGET = Target(
    name="vllm-on-eks",
    versions=(_STEP, _FACTOR),
    doc="tenants.yaml of the multi-tenant gateway, with the block aimd",
    covers=(
        *(f"gateway.{name}" for name in GATEWAY),
        "tenants[].weight",
        "tenants[].queue_max",
        "tenants[].max_in_flight",
    ),
    reasons=(
        ("tenants[].weight", "weights are whole numbers"),
        ("tenants[].queue_max", "every tenant has a queue_max"),
        ("tenants[].max_in_flight", "tenants share one budget"),
        ("tenants", "the gateway serves the tenants that it lists"),
        ("gateway.admission", "the gateway has no admission policy but its queues"),
        ("gateway.limit[].workers", "the number of ready workers comes from worker_watcher"),
        ("gateway.limit[].resize", "the code is simulated as it is, quirks included"),
        ("gateway.limit", "the gateway has a budget of workers x cap_per_worker, or none"),
        ("gateway.bands[].queue.timeout_s", "every request has a timeout"),
        ("gateway.bands", "the gateway has one band with deficit round robin, by requests"),
        ("gateway.controller", "the gateway adds 1 and cuts, by a step or by a factor, or holds"),
        ("gateway.guard.clamps", "the code is simulated as it is, quirks included"),
        ("gateway.sensor", "the signal is the p99 of the time to first token from a histogram"),
    ),
    write=write,
    read=read,
)
