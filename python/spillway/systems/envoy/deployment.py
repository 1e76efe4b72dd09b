"""Envoy: its filters of rate, success and concurrency, and the circuit breakers of a cluster.

Fields and defaults: the v3 protos at https://www.envoyproxy.io/docs/envoy/latest/api-v3/. Filters
and circuit breakers are found at any depth, also in an `EnvoyFilter` of Istio, and as the
connection pool of its `DestinationRule`, so a whole configuration can be read. Of the rest, other
HTTP filters and the fields in `_RELEVANT` are listed.

The filter and `max_requests` reject at once what is above the limit. A gateway here has a queue,
which then holds at most one request. A queue exists over HTTP/1 alone, behind `max_connections`: it
holds `max_pending_requests`. Every limit of a cluster that is not stated is 1,024. With as many
connections as requests, connections decide (Envoy 1.40).

Every Envoy counts alone. What an EnvoyFilter of Istio puts into the sidecars of the servers
(`SIDECAR_INBOUND`) counts per pod: the limit of all is that of a pod times the instances. Of
gateways, `gateway.replicas` are simulated; the files do not say how many there are.

The bucket of `local_ratelimit` counts requests, and its tokens return one by one, whatever part of
them a fill is (Envoy 1.40). Here they all return in the time in which it fills.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway._core.gateway import (
    EnvoyAdmission,
    EnvoyGradient,
    FixedLimit,
    Gateway,
    Guard,
    RateLimit,
)
from spillway._core.signals import Sensor
from spillway.config.classes import config_error
from spillway.config.yaml import to_yaml
from spillway.files.deployments.fields import (
    Fields,
    documents_of,
    duration,
    no_counterpart,
    seconds,
)
from spillway.files.deployments.objects import POOL
from spillway.files.deployments.target import GATEWAY, Target, Unread, unrecognized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


_TYPE = "type.googleapis.com/envoy.extensions.filters.http.{0}.v3.{1}"
_FILTERS = {
    _TYPE.format("admission_control", "AdmissionControl"): "admission_control",
    _TYPE.format("adaptive_concurrency", "AdaptiveConcurrency"): "adaptive_concurrency",
    _TYPE.format("local_ratelimit", "LocalRateLimit"): "local_ratelimit",
}
_TYPES = {name: kind for kind, name in _FILTERS.items()}
_SUCCESS = {"http_criteria": {"http_success_status": [{"start": 200, "end": 300}]}}
_CONTROLLER = "gradient_controller_config"
_EXPECTED = (
    f"YAML or JSON with circuit_breakers, or with a filter whose @type is {' or '.join(_FILTERS)}"
)
_STRUCTS = (
    "type.googleapis.com/udpa.type.v1.TypedStruct",
    "type.googleapis.com/xds.type.v3.TypedStruct",
)
_HTTP_FILTER = "type.googleapis.com/envoy.extensions.filters.http."
_ROUTER = _TYPE.format("router", "Router")
_RELEVANT = (
    "lb_policy", "load_balancing_policy", "outlier_detection", "overload_manager", "retry_policy",
    "rate_limits", "max_stream_duration", "timeout", "per_host_thresholds", "health_checks",
    "loadBalancer", "outlierDetection",
    "idle_timeout", "max_requests_per_connection", "request_timeout", "preconnect_policy",
)  # fmt: skip
_BALANCERS = ("lb_policy", "load_balancing_policy", "loadBalancer")
_BALANCING = "is not read: state it as router in --onto, e.g. round_robin or least_loaded"
_NEUTRAL = ("ROUND_ROBIN", "0s")
_CLUSTER = "circuit_breakers"
_POOL = "connectionPool"
_LIMITS = ("max_connections", "max_pending_requests", "max_requests")
_UNSET = 1024
_MOST = 2**32 - 1
_UNBOUNDED = 10**9
_PARTS = ("filter_enabled", "filter_enforced")
_ALL = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
_OF = {"HUNDRED": 100, "TEN_THOUSAND": 10_000, "MILLION": 1_000_000}
_SHORTEST_S = 0.05  # of a fill_interval
_INBOUND = "SIDECAR_INBOUND"
_SCOPES = {
    "GATEWAY": "each gateway counts alone",
    "SIDECAR_OUTBOUND": "each pod of a client counts alone",
    "ANY": "each gateway and each sidecar counts alone",
    "DestinationRule": "each gateway, or sidecar of a client, counts alone",
}
"""Where a filter or a limit of Istio counts."""


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
        elif policy["kind"] == "rate_limit" and (content := _bucket(policy)):
            files.setdefault("local_ratelimit.yaml", _filter("local_ratelimit", content))
    if gateway["controller"]["kind"] == "envoy_gradient":
        content = _concurrency(gateway)
        files["adaptive_concurrency.yaml"] = _filter("adaptive_concurrency", content)
    if breakers := _breakers(gateway):
        content = {"name": "$CLUSTER", "circuit_breakers": {"thresholds": [breakers]}}
        files["circuit_breakers.yaml"] = to_yaml(content)
    return files


def _breakers(gateway: Mapping[str, Any]) -> dict[str, int]:
    """The limits of the cluster for the fixed limit that no controller moves."""
    fixed = [rule["max_in_flight"] for rule in gateway["limit"] if rule["kind"] == "fixed"]
    is_moved = gateway["controller"]["kind"] == "envoy_gradient"
    if is_moved:
        fixed = fixed[1:]
    if not fixed:
        return {}
    limit, queued = max(1, round(min(fixed))), gateway["max_queued"]
    if queued == 1 or (is_moved and queued != 0):
        more = {"max_connections": limit + 1} if limit >= _UNSET else {}
        return {**more, "max_requests": limit}
    return {
        "max_connections": limit,
        "max_pending_requests": _MOST if queued is None else queued,
        "max_requests": limit,
    }


def _filter(name: str, content: dict[str, Any]) -> str:
    config = {"@type": _TYPES[name], **content}
    if name != "local_ratelimit":
        enabled = {"default_value": True, "runtime_key": f"{name}.enabled"}
        config = {"@type": _TYPES[name], "enabled": enabled, **content}
    return to_yaml({"name": f"envoy.filters.http.{name}", "typed_config": config})


def _bucket(rule: Mapping[str, Any]) -> dict[str, Any]:
    """The bucket of a limit on the requests of all keys together; empty for other limits."""
    limit, window_s = rule["max_requests"], rule["window_s"]
    is_of_requests = rule["max_tokens"] is None and rule["max_parallel"] is None
    if rule["key"] != "gateway" or not is_of_requests or not limit or limit > _MOST:
        return {}
    bucket = {
        "max_tokens": limit,
        "tokens_per_fill": limit,
        "fill_interval": duration(max(window_s, _SHORTEST_S)),
    }
    return {"stat_prefix": "local_ratelimit", "token_bucket": bucket, **dict.fromkeys(_PARTS, _ALL)}


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
    scopes: dict[str, str] = {}
    known = dict.fromkeys(files, False)
    unread: list[Unread] = []
    for name, text in files.items():
        for _, content in documents_of(text, name):
            for kind, fields, scope in _pieces(name, content, unread):
                known[name] = True
                if kind == "local_ratelimit" and "token_bucket" not in fields:
                    reason = "has no bucket here; those of routes are read where they are"
                    unread.append(Unread(fields.where, fields.values, reason, "irrelevant"))
                    continue
                if kind in found and found[kind].values != fields.values:
                    what = "circuit_breakers" if kind == _CLUSTER else f"the filter {kind}"
                    allowed = f"must not contain {what} twice"
                    raise config_error([(fields.where, "", allowed)])
                if scopes.setdefault(kind, scope) != scope:
                    allowed = f"must be {scopes[kind] or 'of one Envoy'}, as in another place"
                    raise config_error([(f"{fields.where}: context", scope, allowed)])
                found[kind] = fields
    unread = [*unrecognized(known, _EXPECTED), *unread]
    gateway = settings["gateway"]
    defaults = Gateway().to_dict()
    gateway |= {name: defaults[name] for name in GATEWAY}
    readers: dict[str, Callable[[Fields, dict[str, Any]], None]] = {
        "local_ratelimit": lambda fields, gateway: _read_rate(fields, gateway, unread),
        "admission_control": _read_shedder,
        "adaptive_concurrency": _read_concurrency,
        _CLUSTER: lambda fields, gateway: _read_breakers(fields, gateway, unread),
    }
    for kind in sorted(found, key=list(readers).index):
        fields = found[kind]
        if kind not in (_CLUSTER, "local_ratelimit"):
            enabled = fields.map("enabled")
            enabled.drop("runtime_key")
            if not enabled.take("default_value", "bool", default=True):
                where = f"{fields.where}: enabled"
                unread.append(Unread(where, value=False, reason="is switched off"))
                continue
        readers[kind](fields, gateway)
        unread += [*fields.rest(), *_scoped(kind, fields.where, scopes[kind], settings)]
    return unread


def _scoped(kind: str, where: str, scope: str, settings: dict[str, Any]) -> list[Unread]:
    """Says where a limit counts; the limit of all pods together is that of a pod times the pods."""
    gateway = settings["gateway"]
    if scope != _INBOUND:
        if not scope:
            return []
        text = f"{_SCOPES[scope]}; gateway.replicas = {gateway['replicas']} are simulated"
        return [Unread(f"{where}: context", scope, text, "assumed")]
    pods = sum(group["count"] for group in settings["instances"])
    if kind == _CLUSTER:
        rule, name = gateway["limit"][-1], "max_in_flight"
        gateway["max_queued"] = gateway["max_queued"] and gateway["max_queued"] * pods
        rule[name] = min(_UNBOUNDED, rule[name] * pods)
    elif kind == "local_ratelimit" and gateway["admission"][-1]["kind"] == "rate_limit":
        rule, name = gateway["admission"][-1], "max_requests"
        rule[name] *= pods
    else:
        reason = f"each of {pods} pods decides by its own requests; here one decides for all"
        return [Unread(f"{where}: context", scope, reason)]
    reason = f"each pod counts alone; {name} = {rule[name]:g} is that of all pods, here {pods}"
    return [Unread(f"{where}: context", scope, reason, "assumed")]


def is_configuration(content: Any) -> bool:
    """Whether a configuration has a filter or circuit breakers, at any depth."""
    return _has(content, lambda key, value: key in (_CLUSTER, _POOL) or value in _FILTERS)


def _concerns(content: Any) -> bool:
    """Whether there is anything in a part of a configuration that decides about requests."""
    return _has(
        content,
        lambda key, value: (
            key in (_CLUSTER, _POOL, "load_assignment", *_RELEVANT)
            or (isinstance(value, str) and value.startswith(_HTTP_FILTER) and value != _ROUTER)
        ),
    )


def _has(content: Any, is_wanted: Callable[[str, Any], bool]) -> bool:
    if isinstance(content, list):
        return any(_has(value, is_wanted) for value in content)
    return isinstance(content, dict) and any(
        is_wanted(key, value if isinstance(value, str) else None) or _has(value, is_wanted)
        for key, value in content.items()
    )


def _pieces(
    where: str, content: Any, unread: list[Unread], scope: str = ""
) -> Iterator[tuple[str, Fields, str]]:
    """The filters and circuit breakers of a configuration, at any depth; lists what is beside.

    With each of them, where it counts if it is one of Istio: a context, or `DestinationRule`.
    """
    if not _concerns(content):
        unread.append(Unread(where, content, "does not concern a simulation", "irrelevant"))
        return
    if isinstance(content, list):
        for i, value in enumerate(content):
            yield from _pieces(f"{where}[{i}]", value, unread, scope)
        return
    scope = _scope_of(content) or scope
    kind = content.get("@type")
    if kind in _STRUCTS:
        kind, content = content.get("type_url"), content.get("value") or {}
        where = f"{where}: value"
    if isinstance(kind, str) and kind in _FILTERS:
        fields = Fields(where, content)
        fields.drop("@type")
        yield _FILTERS[kind], fields, scope
        return
    if isinstance(kind, str) and kind.startswith(_HTTP_FILTER) and kind != _ROUTER:
        unread.append(Unread(f"{where}: @type", kind, no_counterpart))
        return
    for key, value in content.items():
        yield from _below(f"{where}: {key}", (key, value), content, unread, scope)
    if "load_assignment" in content and _CLUSTER not in content:
        reason = "is Envoy's own 1,024 connections, waiting and active requests; not simulated"
        unread.append(Unread(f"{where}: {_CLUSTER}", None, reason))


def _below(
    where: str,
    field: tuple[str, Any],
    content: Mapping[str, Any],
    unread: list[Unread],
    scope: str,
) -> Iterator[tuple[str, Fields, str]]:
    """`_pieces` of one field of an object: name and value."""
    key, value = field
    if key == _CLUSTER:
        cluster = Fields(where, value)
        if _has_http2(content):
            cluster = Fields(where, {**cluster.values, "http2": True})
        yield _CLUSTER, cluster, scope
    elif key == _POOL and isinstance(value, dict):
        if pool := _pool(where, value, unread):
            yield _CLUSTER, pool, scope
    elif key in _RELEVANT and value not in _NEUTRAL:
        unread.append(Unread(where, value, _BALANCING if key in _BALANCERS else no_counterpart))
    else:
        yield from _pieces(where, value, unread, scope)


def _scope_of(content: Mapping[str, Any]) -> str:
    """Where the filters of an object of Istio, or of a patch in it, count; "" if it is neither."""
    if content.get("kind") == "DestinationRule":
        return "DestinationRule"
    if "applyTo" not in content:
        return ""
    match = content.get("match")
    context = match.get("context", "ANY") if isinstance(match, dict) else "ANY"
    if context not in (_INBOUND, *_SCOPES):
        allowed = f"must be one of {_INBOUND}, {', '.join(list(_SCOPES)[:3])}"
        raise config_error([("match: context", f"{context!r}", allowed)])
    return context


def _pool(where: str, pool: Mapping[str, Any], unread: list[Unread]) -> Fields | None:
    """The circuit breakers that Istio makes of a connection pool; it states every limit."""
    limits: dict[str, Any] = {}
    is_http2 = False
    by_place = {place: limit for limit, place in POOL.items()}
    for part, values in pool.items():
        for key, value in (values or {}).items():
            if (part, key) in by_place:
                limits[by_place[part, key]] = value
            elif (part, key) == ("http", "h2UpgradePolicy"):
                is_http2 = value == "UPGRADE"
            else:
                unread.append(Unread(f"{where}: {part}: {key}", value, no_counterpart))
    if not limits:
        return None
    thresholds = [dict.fromkeys(_LIMITS, _MOST) | limits]
    return Fields(where, {"thresholds": thresholds, **({"http2": True} if is_http2 else {})})


def _has_http2(cluster: Mapping[str, Any]) -> bool:
    """Whether a cluster says that its connections take several requests at a time."""
    return any(
        "http2_protocol_options" in str(cluster.get(key, ""))
        for key in ("typed_extension_protocol_options", "explicit_http_config")
    ) or ("http2_protocol_options" in cluster)


def in_force(thresholds: Mapping[str, int], *, http1: bool = True) -> tuple[int, int]:
    """The requests that a cluster serves at once, and how many wait; those beyond are rejected.

    `thresholds`: those of its circuit breakers, without those that are not stated.
    """
    connections, pending, requests = (thresholds.get(name, _UNSET) for name in _LIMITS)
    if http1 and pending == 0:
        return 0, 0  # a connection begins as a waiting request
    return (connections, pending) if http1 and connections <= requests else (requests, 0)


def _read_breakers(fields: Fields, gateway: dict[str, Any], unread: list[Unread]) -> None:
    """The thresholds of the default priority."""
    is_http1 = not fields.take("http2", "bool", default=False)
    is_moved = gateway["controller"]["kind"] != "static"
    is_unset, thresholds = False, dict[str, int]()
    for entry in fields.maps("thresholds"):
        if entry.values.get("priority") not in (None, "DEFAULT", 0):
            continue
        entry.drop("priority", "track_remaining", "max_retries")
        for name in _LIMITS:
            if is_moved and name == "max_pending_requests" and entry.values.get(name) != 0:
                continue  # listed: the filter rejects before
            value = entry.take(name, "int", _UNSET)
            if not 0 <= value <= _MOST:
                allowed = f"must be between 0 and {_MOST}"
                raise config_error([(f"{entry.where}: {name}", f"{value}", allowed)])
            is_unset |= name == "max_connections" and name not in entry
            thresholds.setdefault(name, value)
    limit, queue = in_force(thresholds, http1=is_http1)
    if is_http1 and is_unset and thresholds["max_requests"] > limit > 0:
        reason = "is Envoy's own where none is given; over HTTP/1 it is the limit"
        unread.append(Unread(f"{fields.where}: max_connections", _UNSET, reason, "assumed"))
    # A limit that serves nothing keeps its other thresholds.
    served = limit or min(thresholds["max_connections"], thresholds["max_requests"])
    fixed = FixedLimit(max_in_flight=min(max(1, served), _UNBOUNDED))
    gateway["limit"] = [*(gateway["limit"] if is_moved else ()), fixed.to_dict()]
    if limit == 0:
        gateway["max_queued"] = 0
    elif not is_moved:
        gateway["max_queued"] = None if queue >= _UNBOUNDED else max(1, queue)


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
    _admit(
        gateway,
        EnvoyAdmission(
            window_s=_seconds(fields, "sampling_window", "30s"),
            aggression=max(1.0, runtime["aggression"].take("default_value", "float", 1.0)),
            success_threshold=_share(runtime["sr_threshold"], "default_value", 0.95),
            rps_threshold=runtime["rps_threshold"].take("default_value", "float", 0.0),
            max_rejection_probability=_share(
                runtime["max_rejection_probability"], "default_value", 0.8
            ),
        ).to_dict(),
    )


def _admit(gateway: dict[str, Any], rule: dict[str, Any]) -> None:
    """Adds a rule of admission."""
    rules = [known for known in gateway["admission"] if known["kind"] != "always_admit"]
    gateway["admission"] = [*rules, rule]


def _read_rate(fields: Fields, gateway: dict[str, Any], unread: list[Unread]) -> None:
    fields.drop("stat_prefix", "status", "response_headers_to_add", "enable_x_ratelimit_headers")
    for name in _PARTS:
        part = fields.map(name)
        part.drop("runtime_key")
        value = part.map("default_value")
        share = value.take("numerator", "int", 0) / value.choice("denominator", _OF, "HUNDRED")
        if share < 1:
            reason = "of the requests, 0% if not given: only a limit of all is simulated"
            unread.append(Unread(f"{fields.where}: {name}", f"{share:.0%}", reason))
            fields.drop("token_bucket")
            return
    bucket = fields.map("token_bucket")
    size, fill = bucket.required("max_tokens"), bucket.take("tokens_per_fill", "int", 1)
    interval_s = _seconds(bucket, "fill_interval", "0s")
    if not (size >= 1 and fill >= 1 and interval_s >= _SHORTEST_S):
        shown = f"{size}, {fill}, {interval_s:g} s"
        allowed = f"must be >= 1 and >= 1 tokens, and an interval of at least {_SHORTEST_S:g} s"
        raise config_error([(bucket.where, shown, allowed)])
    window_s = interval_s * size / fill
    rule = RateLimit(
        max_requests=size, window_s=window_s, window="bucket", key="gateway", retry_after="none"
    )
    _admit(gateway, rule.to_dict())


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
    doc="the HTTP filters admission_control, adaptive_concurrency and local_ratelimit, and "
    "circuit breakers",
    covers=tuple(f"gateway.{name}" for name in GATEWAY),
    reasons=(
        ("gateway.admission[].success", "Envoy judges by status, when the response has ended"),
        ("gateway.admission[].window", "local_ratelimit is a bucket"),
        ("gateway.admission[].window_s", "a bucket of local_ratelimit fills in at least 50 ms"),
        (
            "gateway.admission",
            "Envoy has the filters admission_control and, for the requests of all, local_ratelimit",
        ),
        ("gateway.max_queued", "Envoy queues behind a fixed limit only; here one request waits"),
        (
            "gateway.limit",
            "Envoy has a fixed limit, and that of adaptive_concurrency, from min_concurrency on",
        ),
        ("gateway.controller", "Envoy has the gradient controller"),
        ("gateway.guard", "the bounds are min_concurrency and max_concurrency_limit"),
        ("gateway.sensor", "Envoy measures the time of whole responses"),
        ("gateway.bands", "what waits in Envoy has no priority and no timeout"),
    ),
    write=write,
    read=read,
    documents=is_configuration,
    expected=_EXPECTED,
)
