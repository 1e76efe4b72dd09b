"""NVIDIA Dynamo: flags of the frontend, the body of `/busy_threshold`, and flags of workers.

Flags: https://docs.nvidia.com/dynamo/ (frontend configuration, router configuration, request
rejection), by version. `router_config.json` holds the same settings under the names of
aiconfigurator's `DynConfig`. Not written, because its name could not be verified: the environment
variable with the length of the queue before an engine (16 by default).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from spillway._core.gateway import BusyThreshold, Gateway
from spillway._core.instance import EngineRequestLimit
from spillway._core.router import KvCost
from spillway._core.signals import BusyMonitor
from spillway.config.classes import config_error
from spillway.config.yaml import parse
from spillway.files.deployments.fields import Fields, flags
from spillway.files.deployments.shares import limit_per_instance
from spillway.files.deployments.target import GATEWAY, Target, Unread, unrecognized

if TYPE_CHECKING:
    from collections.abc import Mapping


_THRESHOLDS = {
    "active_decode_blocks_threshold": "float",
    "active_prefill_tokens_threshold": "int",
    "active_prefill_tokens_threshold_frac": "float",
}
_FILLED = (1.0, 10_000_000, 64.0)  # Dynamo 1.2, for those that are not given
_KV_FLAGS = {
    "router-kv-overlap-score-credit": ("overlap_credit", 1.0),
    "router-kv-overlap-score-credit-decay": ("overlap_decay", 0.0),
    "router-prefill-load-scale": ("prefill_load_scale", 1.0),
    "router-temperature": ("temperature", 0.0),
}
_CONFIG_KEYS = {
    "overlap_score_credit": "router-kv-overlap-score-credit",
    "prefill_load_scale": "router-prefill-load-scale",
    "router_temperature": "router-temperature",
    "router_track_output_blocks": "router-track-output-blocks",
    **{name: name.replace("_", "-") for name in (*_THRESHOLDS, "admission_control")},
}
_RANDOM = {
    "kind": "weighted",
    "filters": [],
    "scorers": [{"kind": "load_balance", "weight": 1.0}],
    "picker": {"kind": "random"},
}
_STATUS = "DYN_HTTP_OVERLOAD_STATUS_CODE"
_FLAGS = {
    *("router-mode", "router-kv-events", "http-host", "http-port"),
    *_KV_FLAGS,
    *_CONFIG_KEYS.values(),
}
_EXPECTED = (
    "a command line of dynamo.frontend, its router_config.json, a body of /busy_threshold, or a "
    "command line of a worker with --engine-request-limit"
)


# --- writing --------------------------------------------------------------------------------------


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:
    """The frontend's command line, its thresholds as JSON, and workers that have a gate."""
    options = _options(settings, version)
    rule = _rejection(settings)
    words = ["python -m dynamo.frontend"]
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{name}")
        else:
            words.append(f"--{name} {value}")
    text = " \\\n  ".join(words) + "\n"
    named = {key: options[flag] for key, flag in _CONFIG_KEYS.items() if flag in options}
    thresholds = {name: named[name] for name in _THRESHOLDS if name in named}
    if thresholds and version != "1.2" and rule["overload_status"] != _status(version):
        text = f"export {_STATUS}={rule['overload_status']}\n{text}"
    files = {"frontend.sh": text}
    if named:
        files["router_config.json"] = _json(named)
    if thresholds:
        files["busy_threshold.json"] = _json({"model": "$MODEL", **thresholds})
    for i, group in enumerate(settings["instances"]):
        if group["ingress"]["kind"] == "engine_request_limit":
            limit = group["ingress"]["max_requests"]
            files[f"worker-{i}.sh"] = (
                f"python -m dynamo.vllm \\\n  --model $MODEL \\\n  --engine-request-limit {limit}\n"
            )
    return files


def absorb(settings: dict[str, Any], version: str) -> dict[str, str]:  # noqa: ARG001
    """A fixed limit of the gateway is that of the workers, behind which up to 16 wait."""
    share = limit_per_instance(settings)
    open_ = [
        (i, group)
        for i, group in enumerate(settings["instances"])
        if group["ingress"]["kind"] == "open" and group["completion"] == "step_end"
    ]
    if share is None or len(open_) < len(settings["instances"]):
        return {}
    gate = EngineRequestLimit(max_requests=share)
    for _, group in open_:
        group["ingress"] = gate.to_dict()
    queued = settings["gateway"]["max_queued"]
    wanted = "all others" if queued is None else f"{queued} for all workers"
    waits = f"behind it {gate.queue_size} wait per worker, not {wanted}"
    return {
        "gateway.limit": f"--engine-request-limit {share} of each worker holds it",
        **{f"instances[{i}].ingress": f"holds the limit of the gateway; {waits}" for i, _ in open_},
    }


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def _rejection(settings: Mapping[str, Any]) -> Any:
    rules = settings["gateway"]["admission"]
    return next((rule for rule in rules if rule["kind"] == "busy_threshold"), None)


def _status(version: str) -> int:
    return 503 if version == "1.2" else 529


def _options(settings: Mapping[str, Any], version: str) -> dict[str, Any]:
    router, monitor = settings["router"], settings["busy_monitor"]
    options: dict[str, Any] = {"router-mode": "round-robin"}
    if router["kind"] == "kv_cost":
        options["router-mode"] = "kv"
        for name, (setting, _) in _KV_FLAGS.items():
            options[name] = router[setting]
        options["router-kv-overlap-score-credit"] = min(1.0, router["overlap_credit"])
        options["router-kv-events"] = router["overlap"] == "kv_events"
    elif router["kind"] == "weighted" and router["picker"]["kind"] == "random":
        options["router-mode"] = "random"
    given = {name: monitor[name] for name in _THRESHOLDS}
    if not _rejection(settings) or set(given.values()) == {None}:
        return options
    if version == "1.2":
        options["admission-control"] = "token-capacity"
        for name, value in zip(given, _FILLED, strict=True):
            given[name] = value if given[name] is None else given[name]
    if monitor["track_output_blocks"]:
        options["router-track-output-blocks"] = True
    for name, value in given.items():
        if value is not None:
            options[name.replace("_", "-")] = value
    return options


# --- reading --------------------------------------------------------------------------------------


def read(files: Mapping[str, str], settings: dict[str, Any], version: str) -> list[Unread]:
    """Changes gateway, router, busy monitor and the gates of workers to those of the files."""
    unread: list[Unread] = []
    found: dict[str, Any] = {}
    where = ", ".join(files)
    status = None
    known = {}
    for name, text in files.items():
        if "engine-request-limit" in text:
            unread += _worker(name, text, settings["instances"])
            known[name] = True
        elif name.endswith(".json") or text.lstrip().startswith("{"):
            values = parse(text, name, is_json=True)
            Fields(name, values)  # checks that it is a mapping
            values = {key: value for key, value in values.items() if key != "model"}
            values = {_CONFIG_KEYS.get(key, key): value for key, value in values.items()}
            known[name] = not _FLAGS.isdisjoint(values)
            found |= values
        else:
            words, given = flags(text, name, {})
            code = next((word for word in words if word.startswith(_STATUS)), None)
            is_frontend = "dynamo.frontend" in words or code is not None
            known[name] = is_frontend or not _FLAGS.isdisjoint(given)
            if not known[name]:
                continue
            where = name
            found = given | found
            status = code or status
    unread += unrecognized(known, _EXPECTED)
    return unread + _frontend(Fields(where, found), settings, version, status)


def _worker(name: str, text: str, groups: list[dict[str, Any]]) -> list[Unread]:
    fields = Fields(name, flags(text, name, {})[1])
    limit = EngineRequestLimit(max_requests=fields.take("engine-request-limit", "int")).to_dict()
    number = re.search(r"worker-([0-9]+)[^/]*$", name)
    if number and int(number[1]) >= len(groups):
        allowed = f"must belong to one of {len(groups)} groups of instances, from worker-0 on"
        raise config_error([(name, "", allowed)])
    for group in [groups[int(number[1])]] if number else groups:
        group["ingress"] = dict(limit)
    fields.drop("model")
    return fields.rest("belongs to the engine: import it with vllm")


def _frontend(
    fields: Fields, settings: dict[str, Any], version: str, status: str | None
) -> list[Unread]:
    fields.drop("http-host", "http-port")
    unread = []
    mode = fields.take("router-mode", "str", "round-robin")
    values = {
        setting: fields.take(flag, "float", default)
        for flag, (setting, default) in _KV_FLAGS.items()
    }
    events = fields.take("router-kv-events", "bool", default=True)
    if mode == "kv":
        settings["router"] = KvCost(overlap="kv_events" if events else "sent", **values).to_dict()
    elif mode == "random":
        settings["router"] = dict(_RANDOM)
    else:
        settings["router"] = {"kind": "round_robin"}
        if mode != "round-robin":
            reason = "has no counterpart in a simulation; round-robin here"
            unread.append(Unread(f"{fields.where}: router-mode", mode, reason))
    gateway = settings["gateway"]
    defaults = Gateway().to_dict()
    gateway |= {name: defaults[name] for name in GATEWAY}
    thresholds = {
        name: fields.take(name.replace("_", "-"), kind) for name, kind in _THRESHOLDS.items()
    }
    is_on = any(threshold is not None for threshold in thresholds.values())
    control = fields.take("admission-control", "str", "none")
    if version == "1.2" and (is_on or control == "token-capacity"):
        is_on = True
        for name, value in zip(thresholds, _FILLED, strict=True):
            thresholds[name] = value if thresholds[name] is None else thresholds[name]
    tracks = fields.take("router-track-output-blocks", "bool", default=False)
    settings["busy_monitor"] = BusyMonitor().to_dict()
    if is_on:
        code = _code(status.partition("=")[2]) if status else _status(version)
        gateway["admission"] = [BusyThreshold(overload_status=code).to_dict()]
        settings["busy_monitor"] = BusyMonitor(
            **thresholds, decode_latch=version != "1.2", track_output_blocks=tracks
        ).to_dict()
    return [*unread, *fields.rest()]


def _code(text: str) -> int:
    if not text.isdigit():
        raise config_error([(_STATUS, repr(text), "must be a status, e.g. 529")])
    return int(text)


TARGET = Target(
    name="dynamo",
    versions=("1.2", "1.3"),
    doc="flags of the frontend and of workers, and the body of POST /busy_threshold",
    covers=(
        *(f"gateway.{name}" for name in GATEWAY),
        "router",
        "busy_monitor",
        "instances[].ingress",
    ),
    reasons=(
        ("gateway.admission", "Dynamo rejects by the thresholds of busy workers only"),
        ("gateway.bands", "the frontend has no queues per tenant or priority"),
        ("gateway", "the frontend rejects or dispatches at once"),
        ("router.overlap_credit", "the credit is at most 1"),
        ("router", "of the modes of Dynamo's router, kv, round-robin and random are written"),
        ("busy_monitor", "thresholds are written with the admission policy busy_threshold"),
        ("instances[].ingress.queue_size", "its environment variable could not be verified"),
        ("instances[].ingress", "of the gates of workers, engine_request_limit is written"),
    ),
    write=write,
    read=read,
    absorb=absorb,
)
