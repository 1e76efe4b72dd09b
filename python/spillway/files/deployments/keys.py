"""The limits of a gateway's keys or users, one per tenant, as a rate limit of the gateway.

`rule_of` finds the rate limit that a gateway of keys has, `bodies` are its limits by key, and
`apply` sets the rate limit with those that were read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway._core.gateway import RateLimit
from spillway._core.workload import Tenant
from spillway.config.classes import config_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.files.deployments.fields import Fields

LIMITS = ("max_requests", "max_tokens", "max_parallel")
_MOST = 10**12


def rule_of(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first rate limit per tenant."""
    return next(filter(is_of_keys, settings["gateway"]["admission"]), None)


def is_of_keys(rule: Mapping[str, Any]) -> bool:
    """Whether a rule of admission limits the rates of tenants."""
    return bool(rule["kind"] == "rate_limit" and rule["key"] == "tenant")


def tenants(settings: Mapping[str, Any]) -> list[str]:
    """The tenants, or if there are none, those of the clients."""
    clients = settings["workload"].get("clients", [])
    names = [tenant["name"] for tenant in settings["tenants"]]
    return names or [*dict.fromkeys(client["tenant"] for client in clients)]


def own(rule: Mapping[str, Any], tenant: str) -> Mapping[str, Any]:
    """The limits of a tenant."""
    for entry in rule["own"]:
        if entry["tenant"] in (None, tenant):
            return entry  # type: ignore[no-any-return]
    return rule


def bodies(
    settings: Mapping[str, Any], name: str, names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The limits of each tenant that has any; `name` and `names`: of its and of the limits' fields.

    Raises ConfigError for a limit of 0.
    """
    rule = rule_of(settings)
    if rule is None:
        return []
    others = [entry["tenant"] for entry in rule["own"] if entry["tenant"] is not None]
    found = []
    for tenant in dict.fromkeys([*tenants(settings), *others]):
        entry = own(rule, tenant)
        given = {key: entry[limit] for limit, key in names.items() if entry[limit] is not None}
        for key, value in given.items():
            if value < 1:
                allowed = f"cannot be the {key} of a key: must be >= 1"
                raise config_error([(f"limit of tenant {tenant}", f"{value}", allowed)])
        if given:
            found.append({name: tenant, **given})
    return found


def read(
    fields: Fields, name: str, names: Mapping[str, str], known: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The limits of one key; ConfigError if its name is among the known ones."""
    tenant = fields.required(name, "str")
    if any(entry["tenant"] == tenant for entry in known):
        raise config_error([(f"{fields.where}: {name}", repr(tenant), "must not occur twice")])
    found: dict[str, Any] = {"tenant": tenant, "slo_class": None, **dict.fromkeys(LIMITS)}
    for limit, key in names.items():
        value = fields.take(key, "int")
        if value is not None and not 0 < value < _MOST:
            allowed = f"must be between 1 and {_MOST - 1}"
            raise config_error([(f"{fields.where}: {key}", f"{value}", allowed)])
        found[limit] = value
    return found


def limits_of(entries: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Limits of keys as settings: as those of all where every tenant has the same."""
    limits = [{limit: entry[limit] for limit in LIMITS} for entry in entries]
    is_alike = all(entry == limits[0] for entry in limits)
    if is_alike and sorted(names) == sorted(entry["tenant"] for entry in entries):
        return {**limits[0], "own": []}
    return {**dict.fromkeys(LIMITS), "own": [*entries]}


def apply(
    settings: dict[str, Any], entries: Sequence[Mapping[str, Any]], **fixed: Any
) -> dict[str, Any]:
    """Sets the rate limit with the limits of keys, and adds their tenants; returns it."""
    names, limited = tenants(settings), [entry["tenant"] for entry in entries]
    rule: dict[str, Any] = {**RateLimit(**fixed).to_dict(), **limits_of(entries, names or limited)}
    settings["gateway"]["admission"] = [rule]
    if rule["own"] or not names:  # none are stated before a trace
        known = {tenant["name"]: tenant for tenant in settings["tenants"]}
        every = dict.fromkeys([*names, *limited])
        settings["tenants"] = [known.get(name) or Tenant(name=name).to_dict() for name in every]
    return rule
