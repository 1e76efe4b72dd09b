"""LiteLLM: the requests in parallel of a deployment, and the limits of a key of its proxy.

`config.yaml` holds a deployment per instance. Its `max_parallel_requests` is a semaphore: others
wait, without a bound. The limits of a key are the body of `POST /key/generate`, those of a tenant
here: `rpm_limit`, `tpm_limit` and `max_parallel_requests`, above which the proxy answers 429. Names
after the documentation of the proxy; what a key does was recorded from 1.110.2.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from spillway._core.gateway import FixedLimit, Gateway, RateLimit
from spillway.config.classes import config_error
from spillway.config.yaml import parse, to_yaml
from spillway.files.deployments import keys
from spillway.files.deployments.fields import Fields
from spillway.files.deployments.shares import limit_per_instance
from spillway.files.deployments.target import GATEWAY, Target, Unread, unrecognized

if TYPE_CHECKING:
    from collections.abc import Mapping


_PARALLEL = "max_parallel_requests"
_UNBOUNDED = 10**9
_NAME = "key_alias"
_LIMITS = {"max_requests": "rpm_limit", "max_tokens": "tpm_limit", "max_parallel": _PARALLEL}
_FIXED: dict[str, Any] = {
    "window_s": 60.0,
    "window": "first_request",
    "charge": "reserve",
    "output_length": "max_tokens",
    "retry_after": "window",
}
_EXPECTED = (
    "config.yaml of the proxy with a model_list, or bodies of /key/generate with key_alias and "
    f"{', '.join(_LIMITS.values())}"
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
    if limited := keys.bodies(settings, _NAME, _LIMITS):
        files["keys.json"] = json.dumps(limited, indent=2) + "\n"
    return files


def absorb(settings: dict[str, Any], version: str) -> dict[str, str]:  # noqa: ARG001
    """A limit per tenant is that of its key."""
    gateway = settings["gateway"]
    own = next((rule for rule in gateway["limit"] if rule["kind"] == "per_tenant"), None)
    names = keys.tenants(settings)
    if own is None or not names:
        return {}
    given = {tenant["name"]: tenant["max_in_flight"] for tenant in settings["tenants"]}
    rules = [rule for rule in gateway["admission"] if rule["kind"] != "always_admit"]
    place = next((i for i, rule in enumerate(rules) if keys.is_of_keys(rule)), len(rules))
    rule = rules[place] if place < len(rules) else RateLimit(max_requests=None, **_FIXED).to_dict()
    entries = []
    for name in names:
        limit = own["max_in_flight"] if given.get(name) is None else given[name]
        entry = {"slo_class": None, **{key: keys.own(rule, name)[key] for key in keys.LIMITS}}
        parallel = limit if limit < _UNBOUNDED else None
        entries.append({**entry, "tenant": name, "max_parallel": parallel})
    rules[place : place + 1] = [{**rule, **keys.limits_of(entries, names)}]
    gateway["admission"] = rules
    rest = [rule for rule in gateway["limit"] if rule["kind"] != "per_tenant"]
    gateway["limit"] = rest or Gateway().to_dict()["limit"]
    moved = "max_parallel_requests of each key holds it, above which nothing waits"
    return {
        "gateway.limit": moved,
        "gateway.admission": "holds the limit of each tenant",
        **{f"tenants[{name}].max_in_flight": moved for name in given},
    }


# --- reading --------------------------------------------------------------------------------------


def read(files: Mapping[str, str], settings: dict[str, Any], version: str) -> list[Unread]:  # noqa: ARG001
    """Changes limits of the gateway, and of tenants, to those of the files."""
    known = dict.fromkeys(files, False)
    unread: list[Unread] = []
    limits: list[int] = []
    entries: list[dict[str, Any]] = []
    for name, text in files.items():
        content = parse(text, name, is_json=name.endswith(".json"))
        for i, piece in enumerate(content if isinstance(content, list) else [content]):
            fields = Fields(f"{name}[{i}]" if isinstance(content, list) else name, piece)
            if "model_list" in fields:
                limits += _deployments(fields, unread)
            elif _is_key(piece):
                entries.append(keys.read(fields, _NAME, _LIMITS, entries))
            else:
                continue
            known[name] = True
            unread += fields.rest()
    gateway = settings["gateway"]
    defaults = Gateway().to_dict()
    gateway |= {key: defaults[key] for key in GATEWAY}
    if limits:
        gateway["limit"] = [FixedLimit(max_in_flight=sum(limits)).to_dict()]
    if entries:
        rule = keys.apply(settings, entries, **_FIXED)
        tokens = [entry["max_tokens"] for entry in entries if entry["max_tokens"] is not None]
        if tokens:
            rule["reserved_output_tokens"] = min(tokens) // 4
            reason = (
                "reserved for each request, a quarter of the smallest tpm_limit; one that states "
                "its max_tokens reserves these: reserved_output_tokens, reserved_of_class"
            )
            unread.append(Unread("max_tokens", min(tokens) // 4, reason, "assumed"))
    return [*unrecognized(known, _EXPECTED), *unread]


def _is_key(piece: Any) -> bool:
    return (
        isinstance(piece, dict) and _NAME in piece and not piece.keys().isdisjoint(_LIMITS.values())
    )


def is_configuration(content: Any) -> bool:
    """Whether a document is that of a proxy, or the body of a key with a limit, or a list of it."""
    return any(
        _is_key(piece) or (isinstance(piece, dict) and "model_list" in piece)
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


_REQUESTS_STATE = "requests state their max_tokens; else LiteLLM reserves a quarter of tpm_limit"

TARGET = Target(
    name="litellm",
    versions=("1.110",),
    doc="config.yaml with a limit per deployment, and bodies of /key/generate with those of keys",
    covers=tuple(f"gateway.{name}" for name in GATEWAY),
    reasons=(
        ("gateway.admission[].reserved_output_tokens", _REQUESTS_STATE),
        ("gateway.admission[].reserved_of_class", _REQUESTS_STATE),
        ("gateway.admission[].output_length", _REQUESTS_STATE),
        ("gateway.admission[].window_s", "a window is 60 s, or LITELLM_RATE_LIMIT_WINDOW_SIZE"),
        ("gateway.admission[].window", "a window of LiteLLM begins with the first request"),
        ("gateway.admission", "LiteLLM limits requests, tokens and parallel requests of a key"),
        ("gateway.max_queued", "what waits for a deployment has no bound"),
        ("gateway.limit", "LiteLLM limits the requests of each deployment, and of each key"),
        ("gateway.bands", "the proxy has no queues by tenant or priority"),
        ("gateway", "the proxy dispatches at once, or when another request has ended"),
    ),
    write=write,
    read=read,
    documents=is_configuration,
    expected=_EXPECTED,
    absorb=absorb,
)
