"""LiteLLM: the requests in parallel, of a deployment and of a key of its proxy.

`config.yaml` holds a deployment per instance. Its `max_parallel_requests` is a semaphore: others
wait, without a bound. That of a key is the body of `POST /key/generate`: others are answered with
429 at once, whereas a tenant here has a queue, which then holds one request. Names after the
documentation of the proxy; what a key does was recorded from 1.110.2.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from spillway._core.gateway import FixedLimit, Gateway, PerTenant
from spillway._core.workload import Tenant
from spillway.config.classes import config_error
from spillway.config.yaml import parse, to_yaml
from spillway.files.deployments.fields import Fields
from spillway.files.deployments.shares import limit_per_instance
from spillway.files.deployments.target import GATEWAY, Target, Unread, unrecognized

if TYPE_CHECKING:
    from collections.abc import Mapping


_PARALLEL = "max_parallel_requests"
_UNBOUNDED = 10**9
_EXPECTED = (
    "config.yaml of the proxy with a model_list, or bodies of /key/generate with key_alias and "
    f"{_PARALLEL}"
)


# --- writing --------------------------------------------------------------------------------------


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:  # noqa: ARG001
    """A deployment per instance if there is a fixed limit, a key per tenant with a limit."""
    files = {}
    rules = settings["gateway"]["limit"]
    fixed = [rule for rule in rules if rule["kind"] == "fixed"]
    share = limit_per_instance({**settings, "gateway": {"limit": fixed}})
    if share is not None:
        instances = sum(group["count"] for group in settings["instances"])
        deployments = [
            {
                "model_name": "$MODEL",
                "litellm_params": {
                    "model": "hosted_vllm/$MODEL",
                    "api_base": f"$URL_{i}",
                    _PARALLEL: share,
                },
            }
            for i in range(instances)
        ]
        files["config.yaml"] = to_yaml({"model_list": deployments})
    own = next((rule for rule in rules if rule["kind"] == "per_tenant"), None)
    keys = [] if own is None else _keys(_tenants(settings), own["max_in_flight"])
    if keys:
        files["keys.json"] = json.dumps(keys, indent=2) + "\n"
    return files


def _tenants(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tenants, or if there are none, those of the clients."""
    clients = settings["workload"].get("clients", [])
    names = dict.fromkeys(client["tenant"] for client in clients)
    return settings["tenants"] or [Tenant(name=name).to_dict() for name in names]


def _keys(tenants: list[dict[str, Any]], default: int) -> list[dict[str, Any]]:
    found = [
        (tenant["name"], default if tenant["max_in_flight"] is None else tenant["max_in_flight"])
        for tenant in tenants
    ]
    for name, limit in found:
        if limit < 1:
            allowed = f"cannot be the {_PARALLEL} of a key: must be >= 1"
            raise config_error([(f"tenants[{name}].max_in_flight", f"{limit}", allowed)])
    return [{"key_alias": name, _PARALLEL: limit} for name, limit in found if limit < _UNBOUNDED]


# --- reading --------------------------------------------------------------------------------------


def read(files: Mapping[str, str], settings: dict[str, Any], version: str) -> list[Unread]:  # noqa: ARG001
    """Changes limits of the gateway, and of tenants, to those of the files."""
    known = dict.fromkeys(files, False)
    unread: list[Unread] = []
    limits: list[int] = []
    keys: dict[str, int] = {}
    for name, text in files.items():
        content = parse(text, name, is_json=name.endswith(".json"))
        for i, piece in enumerate(content if isinstance(content, list) else [content]):
            fields = Fields(f"{name}[{i}]" if isinstance(content, list) else name, piece)
            if "model_list" in fields:
                limits += _deployments(fields, unread)
            elif _PARALLEL in fields and "key_alias" in fields:
                keys[fields.required("key_alias", "str")] = _limit(fields) or 0
            else:
                continue
            known[name] = True
            unread += fields.rest()
    gateway = settings["gateway"]
    defaults = Gateway().to_dict()
    gateway |= {key: defaults[key] for key in GATEWAY}
    rules = [FixedLimit(max_in_flight=sum(limits)).to_dict()] if limits else []
    for tenant in settings["tenants"]:
        tenant["max_in_flight"] = tenant["queue_max"] = None
    if keys:
        rules.append(PerTenant(max_in_flight=_UNBOUNDED).to_dict())
        settings["tenants"] = _tenants(settings)
        _limit_tenants(settings["tenants"], keys)
    gateway["limit"] = rules or defaults["limit"]
    return [*unrecognized(known, _EXPECTED), *unread]


def is_configuration(content: Any) -> bool:
    """Whether a document is that of a proxy, or the body of a key with a limit, or a list of it."""
    return any(
        isinstance(piece, dict)
        and ("model_list" in piece or {_PARALLEL, "key_alias"} <= piece.keys())
        for piece in (content if isinstance(content, list) else [content])
    )


def _deployments(fields: Fields, unread: list[Unread]) -> list[int]:
    """The limits of the deployments; none unless all have one."""
    found = []
    for entry in fields.maps("model_list"):
        entry.drop("model_name", "model_info")
        parameters = entry.map("litellm_params")
        parameters.drop("model", "api_base", "api_key")
        found.append(_limit(parameters))
    limits = [limit for limit in found if limit is not None]
    if len(limits) == len(found):
        return limits
    if limits:
        where = f"{fields.where}: model_list"
        reason = "one without a limit takes all others: no limit is simulated"
        unread.append(Unread(where, f"{len(found) - len(limits)} of {len(found)}", reason))
    return []


def _limit(fields: Fields) -> int | None:
    limit: int | None = fields.take(_PARALLEL, "int")
    if limit is not None and not 0 < limit < _UNBOUNDED:
        allowed = f"must be between 1 and {_UNBOUNDED - 1}"
        raise config_error([(f"{fields.where}: {_PARALLEL}", f"{limit}", allowed)])
    return limit


def _limit_tenants(tenants: list[dict[str, Any]], keys: Mapping[str, int]) -> None:
    known = {tenant["name"] for tenant in tenants}
    tenants += [Tenant(name=name).to_dict() for name in keys if name not in known]
    for tenant in tenants:
        if tenant["name"] in keys:
            tenant["max_in_flight"], tenant["queue_max"] = keys[tenant["name"]], 1


TARGET = Target(
    name="litellm",
    versions=("1.110",),
    doc="config.yaml with a limit per deployment, and bodies of /key/generate with one per key",
    covers=(
        *(f"gateway.{name}" for name in GATEWAY),
        "tenants[].max_in_flight",
        "tenants[].queue_max",
    ),
    reasons=(
        ("gateway.admission", "of the limits of keys, those of parallel requests are written"),
        ("gateway.max_queued", "what waits for a deployment has no bound"),
        ("gateway.limit", "LiteLLM limits the requests of each deployment, and of each key"),
        ("gateway.bands", "the proxy has no queues by tenant or priority"),
        ("tenants[].queue_max", "a key is refused at once; here one request waits"),
        ("tenants", "only beside a limit per tenant"),
        ("gateway", "the proxy dispatches at once, or when another request has ended"),
    ),
    write=write,
    read=read,
    documents=is_configuration,
    expected=_EXPECTED,
)
