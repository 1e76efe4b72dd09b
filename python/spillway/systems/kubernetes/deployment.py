"""Kubernetes: a HorizontalPodAutoscaler (autoscaling/v2).

Fields and defaults: https://kubernetes.io/docs/reference/kubernetes-api/ and the walk-through of
the autoscaler. A metric is that of the servers of vLLM or SGLang per pod, or an external one of
llm-d's router divided by the pods; adapters replace the colon of names by an underscore. The
controller polls every 15 s and has a tolerance of 10% (its own flags); limits of a step are those
of a poll here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spillway._core.fleet import NoAutoscaler, TargetScaler
from spillway.config.classes import config_error
from spillway.config.yaml import parse, to_yaml
from spillway.files.deployments.fields import Fields
from spillway.files.deployments.target import Target, Unread

if TYPE_CHECKING:
    from collections.abc import Mapping

_KIND = "HorizontalPodAutoscaler"
_EXPECTED = f"a {_KIND}"
_POLL_S = 15
_TOLERANCE = 0.1
_MOST = 2**31 - 1
_METRICS = {
    "waiting": ("Pods", "vllm:num_requests_waiting", "num_requests_waiting|num_queue_reqs"),
    "running": ("Pods", "vllm:num_requests_running", "num_requests_running|num_running_reqs"),
    "kv_utilization": (
        "Pods",
        "vllm:kv_cache_usage_perc",
        "kv_cache_usage_perc|gpu_cache_usage_perc|token_usage",
    ),
    "queued": ("External", "llm_d_epp_flow_control_queue_size", "flow_control_queue_size"),
    "in_flight": ("External", "llm_d_epp_request_running", "request_running"),
}
"""Of a metric: the type and the name that are written, and the names that are read."""
_PREFIX = r"(?:vllm[:_]|sglang[:_]|llm_d_epp_|inference_extension_)?"
_SUFFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_SUFFIXES |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
_IRRELEVANT = "does not concern a simulation"


# --- writing --------------------------------------------------------------------------------------


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:  # noqa: ARG001
    """The autoscaler, if the fleet has one with a target."""
    scaler = settings["fleet"]["autoscaler"]
    if scaler["kind"] != "target" or scaler["metric"] not in _METRICS:
        return {}
    kind, name, _ = _METRICS[scaler["metric"]]
    target = {"type": "AverageValue", "averageValue": _quantity(scaler["target"])}
    up = [_policy("Pods", scaler["up_instances"])]
    if scaler["up_share"] > 0:
        up.append(_policy("Percent", max(1, round(100 * scaler["up_share"]))))
    down = _policy("Percent", max(1, round(100 * scaler["down_share"])))
    tolerance: dict[str, Any] = {}
    if scaler["tolerance"] != _TOLERANCE:
        tolerance = {"tolerance": _quantity(scaler["tolerance"])}
    content = {
        "apiVersion": "autoscaling/v2",
        "kind": _KIND,
        "metadata": {"name": "$AUTOSCALER"},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": "$DEPLOYMENT",
            },
            "minReplicas": scaler["min_instances"],
            "maxReplicas": scaler["max_instances"],
            "metrics": [{"type": kind, kind.lower(): {"metric": {"name": name}, "target": target}}],
            "behavior": {
                "scaleUp": {
                    "stabilizationWindowSeconds": round(scaler["up_stabilization_s"]),
                    "policies": up,
                    **tolerance,
                },
                "scaleDown": {
                    "stabilizationWindowSeconds": round(scaler["down_stabilization_s"]),
                    "policies": [down if scaler["down_share"] > 0 else _policy("Pods", 1)],
                    **tolerance,
                },
            },
        },
    }
    return {"autoscaler.yaml": to_yaml(content)}


def _policy(kind: str, value: int) -> dict[str, Any]:
    return {"type": kind, "value": value, "periodSeconds": _POLL_S}


def _quantity(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".")


# --- reading --------------------------------------------------------------------------------------


def read(files: Mapping[str, str], settings: dict[str, Any], version: str) -> list[Unread]:  # noqa: ARG001
    """Changes the autoscaler of the fleet to that of the files."""
    found = []
    for name, text in files.items():
        content = parse(text, name, is_json=name.endswith(".json"))
        if is_autoscaler(content):
            found.append(Fields(name, content))
    settings["fleet"]["autoscaler"] = NoAutoscaler().to_dict()
    if len(found) != 1 and files:
        allowed = f"must contain one {_KIND}"
        raise config_error([(", ".join(files), f"{len(found)}", allowed)])
    unread: list[Unread] = []
    for fields in found:
        unread += _read(fields, settings)
    return unread


def _read(fields: Fields, settings: dict[str, Any]) -> list[Unread]:
    fields.drop("apiVersion", "kind")
    unread = [_irrelevant(fields, name) for name in ("metadata", "status") if name in fields]
    spec = fields.map("spec")
    unread.append(_irrelevant(spec, "scaleTargetRef"))
    scaler: dict[str, Any] = {
        "min_instances": spec.take("minReplicas", "int", 1),
        "max_instances": spec.required("maxReplicas"),
    }
    behavior = spec.map("behavior")
    up, down = behavior.map("scaleUp"), behavior.map("scaleDown")
    unread += [*_up(up, scaler), *_down(down, scaler), *_tolerances(up, down, scaler)]
    for metric in spec.maps("metrics"):
        if "metric" in scaler or not _metric(metric, scaler):
            is_other = "metric" in scaler
            reason = "one metric is simulated" if is_other else "is no metric of a simulation"
            unread.append(Unread(metric.where, metric.values, reason))
            metric.drop(*metric.values)
    if "metric" in scaler:
        settings["fleet"]["autoscaler"] = TargetScaler(**scaler).to_dict()
        unread += _room(fields.where, scaler["max_instances"], settings)
    else:
        reason = "without a metric of a simulation, nothing scales here"
        unread.append(Unread(f"{spec.where}: metrics", None, reason))
    return [*unread, *fields.rest()]


def _room(where: str, most: int, settings: dict[str, Any]) -> list[Unread]:
    """Gives a single group as many instances as there can be."""
    groups = settings["instances"]
    if len(groups) > 1 or groups[0]["count"] >= most:
        return []
    if settings["fleet"]["initial_instances"] is None:
        settings["fleet"]["initial_instances"] = groups[0]["count"]
    groups[0]["count"] = most
    reason = "is the number of instances; those at the start are fleet.initial_instances"
    return [Unread(f"{where}: maxReplicas", most, reason, "assumed")]


def _irrelevant(fields: Fields, name: str) -> Unread:
    fields.drop(name)
    return Unread(f"{fields.where}: {name}", fields.values.get(name), _IRRELEVANT, "irrelevant")


def _metric(metric: Fields, scaler: dict[str, Any]) -> bool:
    """Takes metric and target; whether a simulation has them."""
    kind = metric.take("type", "str")
    if kind not in ("Pods", "External", "Object"):
        return False
    source = metric.map(kind.lower())
    name, target = source.map("metric").take("name", "str", ""), source.map("target")
    found = [
        key
        for key, (_, _, names) in _METRICS.items()
        if re.fullmatch(f"{_PREFIX}(?:{names})", name)
    ]
    if not found or target.take("type", "str") != "AverageValue":
        return False
    if kind != "Pods":
        source.drop("describedObject")
    scaler["metric"] = found[0]
    scaler["target"] = _number(target, "averageValue")
    return True


def _number(fields: Fields, name: str) -> float:
    """A quantity: a number, or text such as 500m."""
    value = fields.values.get(name)
    fields.drop(name)
    match = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([a-zA-Z]*)", str(value))
    if not match or match[2] not in _SUFFIXES:
        raise config_error([(f"{fields.where}: {name}", repr(value), "must be a number or 500m")])
    return float(match[1]) * _SUFFIXES[match[2]]


def _up(rule: Fields, scaler: dict[str, Any]) -> list[Unread]:
    limits, unread = _policies(rule, {"Pods": 4, "Percent": 100})
    scaler["up_stabilization_s"] = rule.take("stabilizationWindowSeconds", "float", 0.0)
    scaler["up_instances"] = limits.get("Pods", 1)
    scaler["up_share"] = limits.get("Percent", 0) / 100
    return unread


def _tolerances(up: Fields, down: Fields, scaler: dict[str, Any]) -> list[Unread]:
    """A direction without a tolerance has that of the controller, 10%; one holds in both here."""
    above, below = (
        _number(rule, "tolerance") if "tolerance" in rule else _TOLERANCE for rule in (up, down)
    )
    scaler["tolerance"] = above
    if above == below:
        return []
    reason = f"the tolerance of scaleUp, {above:g}, holds in both directions here"
    return [Unread(f"{down.where}: tolerance", below, reason)]


def _down(rule: Fields, scaler: dict[str, Any]) -> list[Unread]:
    limits, unread = _policies(rule, {"Percent": 100})
    scaler["down_stabilization_s"] = rule.take("stabilizationWindowSeconds", "float", 300.0)
    scaler["down_share"] = min(100, limits.get("Percent", 0)) / 100
    if limits.get("Pods", 1) > 1 or len(limits) > 1:
        reason = "removes a share of the instances here, and at least one"
        unread.append(Unread(f"{rule.where}: policies", limits, reason))
    return unread


def _policies(rule: Fields, default: dict[str, int]) -> tuple[dict[str, int], list[Unread]]:
    """The limits of a step by type, and what of them is not simulated."""
    unread = []
    limits: dict[str, int] = {}
    for policy in rule.maps("policies"):
        kind = policy.choice("type", {"Pods": "Pods", "Percent": "Percent"}, "")
        value = policy.required("value")
        if not 1 <= value <= _MOST:
            raise config_error([(f"{policy.where}: value", f"{value}", "must be >= 1")])
        if kind in limits:
            unread.append(Unread(policy.where, policy.values, "the largest is simulated"))
        limits[kind] = max(value, limits.get(kind, 0))
        period_s = policy.required("periodSeconds")
        if period_s != _POLL_S:
            reason = f"{value} per {period_s} s: here {value} at each poll, every {_POLL_S} s"
            unread.append(Unread(f"{policy.where}: periodSeconds", period_s, reason))
    select = rule.take("selectPolicy", "str", "Max")
    if select == "Disabled" or (select == "Min" and len(limits) > 1):
        unread.append(Unread(f"{rule.where}: selectPolicy", select, "the largest is simulated"))
    return limits or default, unread


def is_autoscaler(content: Any) -> bool:
    """Whether a document is an autoscaler."""
    return isinstance(content, dict) and content.get("kind") == _KIND


TARGET = Target(
    name="kubernetes",
    versions=("v2",),
    doc="a HorizontalPodAutoscaler",
    covers=("fleet.autoscaler",),
    reasons=(
        ("fleet.autoscaler.poll_s", "a flag of the controller manager, 15 s"),
        ("fleet.autoscaler.down_share", "a whole number of percent"),
        ("fleet.autoscaler.up_share", "a whole number of percent"),
        (
            "fleet.autoscaler",
            "an autoscaler of pods has targets of metrics; other scalers have objects of their own",
        ),
    ),
    write=write,
    read=read,
    documents=is_autoscaler,
    expected=_EXPECTED,
)
