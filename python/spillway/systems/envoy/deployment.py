"""Envoy: the HTTP filters `admission_control` and `adaptive_concurrency`.

Fields and defaults: the v3 protos at
https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/filters/http/. The filters are found
at any depth, so a whole Envoy configuration can be read; fields outside of them are not listed.

Envoy rejects the requests above its limit. A gateway here has a queue, which then holds at most one
request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway._core.gateway import EnvoyAdmission, EnvoyGradient, FixedLimit, Gateway, Guard
from spillway._core.signals import Sensor
from spillway.config.classes import config_error
from spillway.config.yaml import parse, to_yaml
from spillway.files.deployments.fields import Fields, duration, seconds
from spillway.files.deployments.target import GATEWAY, Target, Unread, unrecognized

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_TYPE = "type.googleapis.com/envoy.extensions.filters.http.{0}.v3.{1}"
_FILTERS = {
    _TYPE.format("admission_control", "AdmissionControl"): "admission_control",
    _TYPE.format("adaptive_concurrency", "AdaptiveConcurrency"): "adaptive_concurrency",
}
_TYPES = {name: kind for kind, name in _FILTERS.items()}
_SUCCESS = {"http_criteria": {"http_success_status": [{"start": 200, "end": 300}]}}
_CONTROLLER = "gradient_controller_config"
_EXPECTED = f"YAML or JSON with a filter whose @type is {' or '.join(_FILTERS)}"


# --- writing --------------------------------------------------------------------------------------


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:  # noqa: ARG001
    """A file per filter that the simulation has."""
    gateway = settings["gateway"]
    files: dict[str, str] = {}
    for policy in gateway["admission"]:
        if policy["kind"] == "envoy_admission":
            files.setdefault(
                "admission_control.yaml", _filter("admission_control", _shedder(policy))
            )
    if gateway["controller"]["kind"] == "envoy_gradient":
        content = _concurrency(gateway)
        files["adaptive_concurrency.yaml"] = _filter("adaptive_concurrency", content)
    return files


def _filter(name: str, content: dict[str, Any]) -> str:
    enabled = {"default_value": True, "runtime_key": f"{name}.enabled"}
    config = {"@type": _TYPES[name], "enabled": enabled, **content}
    return to_yaml({"name": f"envoy.filters.http.{name}", "typed_config": config})


def _percent(share: float) -> dict[str, float]:
    return {"value": round(100 * share, 9)}


def _shedder(rule: Mapping[str, Any]) -> dict[str, Any]:
    values = {
        "aggression": rule["aggression"],
        "sr_threshold": _percent(rule["success_threshold"]),
        "rps_threshold": round(rule["rps_threshold"]),
        "max_rejection_probability": _percent(rule["max_rejection_probability"]),
    }
    return {
        "sampling_window": duration(rule["window_s"]),
        "success_criteria": _SUCCESS,
        **{
            name: {"default_value": value, "runtime_key": f"admission_control.{name}"}
            for name, value in values.items()
        },
    }


def _concurrency(gateway: Mapping[str, Any]) -> dict[str, Any]:
    rule = gateway["controller"]
    minimum = rule["fixed_min_rtt_s"]
    floor = max(1, round(rule["min_concurrency"]))
    return {
        _CONTROLLER: {
            "sample_aggregate_percentile": {"value": rule["percentile"]},
            "concurrency_limit_params": {
                "max_concurrency_limit": max(floor, round(gateway["guard"]["ceiling"])),
                "concurrency_update_interval": duration(gateway["sensor"]["tick_s"]),
            },
            "min_rtt_calc_params": {
                **(
                    {"fixed_value": duration(minimum)}
                    if minimum
                    else {"interval": duration(rule["interval_s"])}
                ),
                "request_count": rule["request_count"],
                "jitter": _percent(rule["jitter"]),
                "min_concurrency": floor,
                "buffer": _percent(rule["buffer"]),
            },
        }
    }


# --- reading --------------------------------------------------------------------------------------


def read(files: Mapping[str, str], settings: dict[str, Any], version: str) -> list[Unread]:  # noqa: ARG001
    """Changes admission, limit and controller of the gateway to those of the filters."""
    found: dict[str, Fields] = {}
    known = dict.fromkeys(files, False)
    for name, text in files.items():
        for fields in _filters(name, parse(text, name, is_json=name.endswith(".json"))):
            kind = _FILTERS[fields.take("@type", "str")]
            known[name] = True
            if kind in found:
                allowed = f"must not contain the filter {kind} twice"
                raise config_error([(fields.where, "", allowed)])
            found[kind] = fields
    gateway = settings["gateway"]
    defaults = Gateway().to_dict()
    gateway |= {name: defaults[name] for name in GATEWAY}
    unread = unrecognized(known, _EXPECTED)
    for kind, fields in found.items():
        enabled = fields.map("enabled")
        enabled.drop("runtime_key")
        if not enabled.take("default_value", "bool", default=True):
            unread.append(Unread(f"{fields.where}: enabled", value=False, reason="is switched off"))
            continue
        (_read_shedder if kind == "admission_control" else _read_concurrency)(fields, gateway)
        unread += fields.rest()
    return unread


def _filters(where: str, content: Any) -> Iterator[Fields]:
    """The filters in a configuration, at any depth."""
    if isinstance(content, dict):
        kind = content.get("@type")
        if isinstance(kind, str) and kind in _FILTERS:
            yield Fields(where, content)
        else:
            for key, value in content.items():
                yield from _filters(f"{where}: {key}", value)
    elif isinstance(content, list):
        for i, value in enumerate(content):
            yield from _filters(f"{where}[{i}]", value)


def _share(fields: Fields, name: str, default: float) -> float:
    value: float = fields.map(name).take("value", "float", 100 * default)
    return value / 100


def _seconds(fields: Fields, name: str, default: str) -> float:
    return seconds(fields.take(name, "str", default), f"{fields.where}: {name}")


def _read_shedder(fields: Fields, gateway: dict[str, Any]) -> None:
    runtime = {
        name: fields.map(name)
        for name in ("aggression", "sr_threshold", "rps_threshold", "max_rejection_probability")
    }
    for value in runtime.values():
        value.drop("runtime_key")
    if fields.values.get("success_criteria") == _SUCCESS:
        fields.drop("success_criteria")
    gateway["admission"] = [
        EnvoyAdmission(
            window_s=_seconds(fields, "sampling_window", "30s"),
            aggression=max(1.0, runtime["aggression"].take("default_value", "float", 1.0)),
            success_threshold=_share(runtime["sr_threshold"], "default_value", 0.95),
            rps_threshold=runtime["rps_threshold"].take("default_value", "float", 0.0),
            max_rejection_probability=_share(
                runtime["max_rejection_probability"], "default_value", 0.8
            ),
        ).to_dict()
    ]


def _read_concurrency(fields: Fields, gateway: dict[str, Any]) -> None:
    config = fields.map(_CONTROLLER)
    bounds, minimum = config.map("concurrency_limit_params"), config.map("min_rtt_calc_params")
    for block, name in ((bounds, "concurrency_update_interval"), (minimum, "interval")):
        if name not in block and "fixed_value" not in block:
            raise config_error([(f"{block.where}: {name}", "", "is missing")])
    floor = minimum.take("min_concurrency", "int", 3)
    gateway["controller"] = EnvoyGradient(
        request_count=minimum.take("request_count", "int", 50),
        min_concurrency=floor,
        percentile=config.map("sample_aggregate_percentile").take("value", "float", 50.0),
        buffer=_share(minimum, "buffer", 0.25),
        interval_s=_seconds(minimum, "interval", "60s"),
        jitter=_share(minimum, "jitter", 0.15),
        fixed_min_rtt_s=_seconds(minimum, "fixed_value", "0s"),
    ).to_dict()
    gateway["limit"] = [FixedLimit(max_in_flight=floor).to_dict()]
    gateway["max_queued"] = 1
    gateway["guard"] = Guard(
        floor=floor, ceiling=bounds.take("max_concurrency_limit", "int", 1000), demand_gate=False
    ).to_dict()
    tick_s = _seconds(bounds, "concurrency_update_interval", "0s")
    gateway["sensor"] = Sensor(source="e2e", tick_s=tick_s).to_dict()


TARGET = Target(
    name="envoy",
    versions=("v3",),
    doc="the HTTP filters admission_control and adaptive_concurrency",
    covers=tuple(f"gateway.{name}" for name in GATEWAY),
    reasons=(
        ("gateway.admission[].success", "Envoy judges by status, when the response has ended"),
        ("gateway.admission", "Envoy has the filter admission_control"),
        ("gateway.max_queued", "Envoy rejects above its limit; here one request waits"),
        ("gateway.limit", "Envoy has the limit of adaptive_concurrency, from min_concurrency on"),
        ("gateway.controller", "Envoy has the gradient controller"),
        ("gateway.guard", "the bounds are min_concurrency and max_concurrency_limit"),
        ("gateway.sensor", "Envoy measures the time of whole responses"),
        ("gateway.bands", "Envoy has no queues"),
    ),
    write=write,
    read=read,
)
