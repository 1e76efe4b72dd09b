"""NVIDIA Dynamo: the file of `--router-policy-config`, the classes of the queue in its router.

Fields, and what is refused: recorded answers of dynamo-kv-router 1.6.1. A request is of the family
that it asks for, and of the class of that family whose bucket has its uncached prompt tokens.
Which families the requests ask for is in no file; here all are of the default one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway._core.gateway import PolicyClass, PolicyClasses, PolicyRequest
from spillway.config.classes import config_error
from spillway.files.deployments.fields import Fields
from spillway.files.deployments.target import Unread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILE = "router_policy.yaml"
_ROOT = ("default_policy_family", "uncached_isl_buckets", "policy_classes")
_OTHERS = ("models", "worker_selection", "request_classifier")
_ORDERS = {"fcfs": "fcfs", "wspt": "wspt"}
_THRESHOLD = "prefill_busy_threshold_frac"
_LIMITS = {
    "request_queue_limit_per_worker": "max_requests_per_worker",
    "raw_isl_token_queue_limit_per_worker": "max_prompt_tokens_per_worker",
}


def written(fairness: Mapping[str, Any], threshold: float) -> dict[str, Any]:
    """The content of the file; empty for a single class that flags state, or that no file can."""
    classes = fairness["classes"]
    least = sorted({policy["min_uncached_tokens"] for policy in classes})
    orders = {policy["order"] for policy in classes}
    plain = PolicyClass(order=classes[0]["order"]).to_dict()
    if classes == [plain] or least[0] != 0 or not orders <= _ORDERS.keys():
        return {}
    return {
        "default_policy_family": classes[0]["family"],
        "uncached_isl_buckets": [{"min_tokens": n, "bucket": f"from_{n}"} for n in least],
        "policy_classes": [
            {
                "name": policy["name"],
                "policy_family": policy["family"],
                "cache_bucket": f"from_{policy['min_uncached_tokens']}",
                "quantum": policy["quantum_tokens"],
                "queue_policy": policy["order"],
                _THRESHOLD: threshold,
                **{
                    name: policy[setting]
                    for name, setting in _LIMITS.items()
                    if policy[setting] is not None
                },
            }
            for policy in classes
        ],
    }


def read(
    content: Any, where: str, slo_classes: Sequence[Mapping[str, Any]]
) -> tuple[PolicyClasses | None, float | None, list[Unread]]:
    """The classes, their threshold if they state one, and what is not simulated.

    Raises ConfigError where the router refuses the file.
    """
    fields = Fields(where, content)
    given = [name for name in _ROOT if name in fields]
    if not given and not any(name in fields for name in _OTHERS):
        allowed = f"must have {', '.join(_ROOT)}, or one of {', '.join(_OTHERS)}"
        raise config_error([(where, "", allowed)])
    if not given:
        return None, None, fields.rest()
    if len(given) < len(_ROOT):
        allowed = f"must have all of {', '.join(_ROOT)}, or none"
        raise config_error([(where, ", ".join(given), allowed)])
    default = fields.required("default_policy_family", "str")
    least = {
        bucket.required("bucket", "str"): bucket.required("min_tokens")
        for bucket in fields.maps("uncached_isl_buckets")
    }
    entries = fields.maps("policy_classes")
    if not entries:
        raise config_error([(f"{where}: policy_classes", "[]", "must not be empty")])
    if 0 not in least.values():
        allowed = "must start at min_tokens 0"
        raise config_error([(f"{where}: uncached_isl_buckets", f"{least}", allowed)])
    unread: list[Unread] = []
    thresholds = [_threshold(entry) for entry in entries]
    classes = [_class(entry, least, unread) for entry in entries]
    if len(set(thresholds)) > 1:
        reason = "differs between the classes, which wait for one threshold here"
        unread.append(Unread(f"{where}: {_THRESHOLD}", thresholds, reason, "not_modeled"))
    requests = []
    if default != classes[0].family:
        requests = [PolicyRequest(slo_class=each["name"], family=default) for each in slo_classes]
    reason = "is the family of all requests here: the files say of none what it asks for"
    unread.append(Unread(f"{where}: default_policy_family", default, reason, "assumed"))
    found = PolicyClasses(classes=classes, requests=requests)
    return found, thresholds[0], [*unread, *fields.rest()]


def _threshold(entry: Fields) -> float | None:
    value: float | None = entry.take(_THRESHOLD, "float")
    if value is not None and value < 0:
        place = f"{entry.where}: {_THRESHOLD}"
        raise config_error([(place, f"{value:g}", "must be >= 0")])
    return value


def _class(entry: Fields, least: Mapping[str, int], unread: list[Unread]) -> PolicyClass:
    quantum = entry.required("quantum")
    if quantum < 1:
        raise config_error([(f"{entry.where}: quantum", f"{quantum}", "must be > 0")])
    limits: dict[str, int] = {}
    for name, setting in _LIMITS.items():
        limit = entry.take(name, "int")
        if limit:
            limits[setting] = limit
        elif limit == 0:
            reason = "lets no request of the class wait, which is not modeled"
            unread.append(Unread(f"{entry.where}: {name}", 0, reason, "not_modeled"))
    return PolicyClass(
        name=entry.required("name", "str"),
        family=entry.required("policy_family", "str"),
        min_uncached_tokens=entry.choice("cache_bucket", least, ""),
        quantum_tokens=quantum,
        order=entry.choice("queue_policy", _ORDERS, "fcfs"),
        **limits,
    )
