"""A fixed limit of the gateway as that of each instance, for systems that limit these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def limit_per_instance(settings: Mapping[str, Any]) -> int | None:
    """The share of each instance, rounded down, so that all together never have more.

    None if the gateway has no such limit, or another one beside it.
    """
    rules = settings["gateway"]["limit"]
    instances = sum(group["count"] for group in settings["instances"])
    if not instances or {rule["kind"] for rule in rules} != {"fixed"}:
        return None
    return max(1, int(min(rule["max_in_flight"] for rule in rules) // instances))


def queue_per_instance(settings: Mapping[str, Any]) -> int | None:
    """The same of the bound on the waiting requests; None if there is none, or nothing may wait."""
    queued = settings["gateway"]["max_queued"]
    instances = sum(group["count"] for group in settings["instances"])
    return max(1, queued // instances) if queued and instances else None
