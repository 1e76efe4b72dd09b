"""A fixed limit of the gateway as that of each instance, for systems that limit these.

`limit_per_instance` is its share, and `hold_in_seats` the `absorb` of an engine: see `Target`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.files.deployments.target import has_pools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def limit_per_instance(settings: Mapping[str, Any]) -> int | None:
    """The share of each instance, rounded down, so that all together never have more.

    None if the gateway has no such limit, or another one beside it.
    """
    rules = settings["gateway"]["limit"]
    instances = sum(group["count"] for group in settings["instances"])
    if not instances or {rule["kind"] for rule in rules} != {"fixed"}:
        return None
    return max(1, int(min(rule["max_in_flight"] for rule in rules) // instances))


def hold_in_seats(
    settings: dict[str, Any],
    flag: str,
    queue: Callable[[Mapping[str, Any], int], Mapping[str, Any]] | None = None,
) -> dict[str, str]:
    """Moves a fixed limit to the seats of the instances, and its queue to their gates.

    `flag`: the flag of the seats, for the reasons. `queue`: the gate of a group of instances behind
    which this number of requests waits in each; None if the engine has none. Instances of prefill
    and decode pools have no gates.
    """
    share = limit_per_instance(settings)
    if share is None:
        return {}
    queued = settings["gateway"]["max_queued"]
    instances = sum(group["count"] for group in settings["instances"])
    has_gates = not has_pools(settings)
    moved = {"gateway.limit": f"the seats of the instances, {flag}, hold it"}
    for i, group in enumerate(settings["instances"]):
        seats = max(1, share // group["data_parallel_size"])
        if seats < group["max_num_seqs"]:
            group["max_num_seqs"] = seats
            moved[f"instances[{i}].max_num_seqs"] = "holds the limit of the gateway"
        if queued and queue and has_gates and group["ingress"]["kind"] == "open":
            group["ingress"] = dict(queue(group, max(1, queued // instances)))
            moved[f"instances[{i}].ingress"] = "holds the bound of the gateway's queue"
            moved["gateway.max_queued"] = "the gates of the instances hold it"
    return moved
