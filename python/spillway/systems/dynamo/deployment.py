"""NVIDIA Dynamo: flags of the frontend, the body of `/busy_threshold`, and flags of workers.

Flags and the variables that stand for them: `flags.csv`, by version, from the parsers in its wheels
(`tools/generate_flag_tables.py`); a flag overrides its variable. Their meaning:
https://docs.nvidia.com/dynamo/ (frontend configuration, router configuration, request rejection).
The flags of an engine on the command line of a worker are handed to the reader of that engine.
`router_config.json` holds the same settings under the names of aiconfigurator's `DynConfig`. Not
written, because its name could not be verified: the environment
variable with the length of the queue before an engine (16 by default).
"""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._core.fleet import Migration
from spillway._core.gateway import (
    Band,
    BusyThreshold,
    Gateway,
    PolicyClass,
    PolicyClasses,
    PrefillBusy,
)
from spillway._core.instance import EngineRequestLimit
from spillway._core.router import KvCost
from spillway._core.signals import BusyMonitor
from spillway.config.classes import config_error
from spillway.config.yaml import parse, to_yaml
from spillway.files.deployments.engines import by_name, classified
from spillway.files.deployments.fields import Fields, no_counterpart, within
from spillway.files.deployments.flag_table import Line, scalar, table
from spillway.files.deployments.shares import limit_per_instance
from spillway.files.deployments.target import (
    GATEWAY,
    MODEL,
    Piece,
    Program,
    Target,
    Unread,
    has_pools,
)
from spillway.files.deployments.variables import irrelevant, variables
from spillway.systems.dynamo import bypass, policies
from spillway.systems.dynamo.presets import filled, prefill_unit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_TABLE = Path(__file__).with_name("flags.csv")
_VERSIONS = ("1.2", "1.3", "1.4", "1.5", "1.6")
_THRESHOLDS = {
    "active_decode_blocks_threshold": "float",
    "active_prefill_tokens_threshold": "int",
    "active_prefill_tokens_threshold_frac": "float",
}
_THRESHOLDS_1_2 = (1.0, 10_000_000, 10.0)  # the defaults of Dynamo 1.2; later there are none
_KV_FLAGS = {
    "router-kv-overlap-score-credit": ("overlap_credit", 1.0),
    "router-kv-overlap-score-credit-decay": ("overlap_decay", 0.0),
    "router-prefill-load-scale": ("prefill_load_scale", 1.0),
    "router-decode-active-request-weight": ("request_weight", 0.0),
    "router-temperature": ("temperature", 0.0),
    "router-host-cache-hit-weight": ("host_cache_hit_weight", 0.75),
    "router-disk-cache-hit-weight": ("disk_cache_hit_weight", 0.25),
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
_REFRESH = "DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS"  # has no flag
_FRONTEND, _ROUTER = "dynamo.frontend", "dynamo.router"
ENGINES = {"dynamo.vllm": "vllm", "dynamo.sglang": "sglang", "dynamo.trtllm": "tensorrt-llm"}
"""The workers, and the system of the engine of each."""

ENGINE_FLAGS = {
    *("model", "model-path", "config", "headless", "max-batch-size", "max-num-tokens"),
    *("max-seq-len", "tensor-parallel-size", "pipeline-parallel-size", "kv-block-size"),
    *("expert-parallel-size", "free-gpu-memory-fraction", "extra-engine-args", "max-beam-width"),
}
"""The flags of workers that are those of the engine."""

_LIMIT = "engine-request-limit"
_REFRESHING = _VERSIONS[1:]  # the versions that know `_REFRESH`
_QUEUES = {"1.2": 4.0, "1.3": 16.0}  # the default of --router-queue-threshold
_ORDERS = {order: order for order in ("fcfs", "lcfs", "wspt")}
_MODE = "disaggregation-mode"
_ROLE_FLAGS = {"is-prefill-worker": "prefill", "is-decode-worker": "decode"}
_ROLES = ("prefill", "decode")
_IRRELEVANT = re.compile(
    r"http-.*|tls-.*|tcp-.*|nats-.*|namespace.*|discovery-backend|store-kv|request-plane|event-plane"
    r"|response-plane|metrics-.*|grpc-.*|kserve-.*|dump-config-to|interactive|version|model-name"
    r"|model-path|served-model-name|dyn-.*|chat-.*|trust-.*|tokenizer.*|custom-.*|debug-perf"
    r"|enable-anthropic-api|strip-.*|.*tool.*|.*reasoning.*|preprocess-workers|exp-.*|endpoint"
    r"|frontend-.*|router-min-initial-workers|router-event-threads|connector|store-.*"
    r"|use-.*tokenizer|benchmark-.*|dump-.*|multimodal-.*|mm-.*|route-to-encoder|enable-multimodal"
)
_EXPECTED = (
    "a command line of dynamo.frontend, its router_config.json, a body of /busy_threshold, or a "
    "command line of a worker with --engine-request-limit"
)


# --- writing --------------------------------------------------------------------------------------


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:
    """The frontend's command line, its thresholds as JSON, and workers that have a gate."""
    known = table(_TABLE, _FRONTEND, version)
    options = {
        name: value
        for name, value in _options(settings, version).items()
        if known.get(f"--{name}") is not None
    }
    rule = _rejection(settings)
    words = ["python -m dynamo.frontend"]
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{name}")
        else:
            words.append(f"--{name} {value}")
    text = " \\\n  ".join(words) + "\n"
    refresh_s = settings["router"].get("overlap_refresh_after_s", 0)
    if refresh_s and version in _REFRESHING:
        text = f"export {_REFRESH}={refresh_s:.15g}\n{text}"
    named = {
        key: options[flag]
        for key, flag in _CONFIG_KEYS.items()
        if options.get(flag, "None") != "None"
    }
    thresholds = {name: named[name] for name in _THRESHOLDS if name in named}
    if thresholds and version != "1.2" and rule["overload_status"] != _status(version):
        text = f"export {_STATUS}={rule['overload_status']}\n{text}"
    files = {"frontend.sh": text}
    if "router-policy-config" in options:
        files[policies.FILE] = to_yaml(_policy_file(settings["gateway"]))
    if named:
        files["router_config.json"] = _json(named)
    if thresholds:
        files["busy_threshold.json"] = _json({"model": "$MODEL", **thresholds})
    for i, group in enumerate(settings["instances"]):
        words = [f"--{_MODE} {group['role']}"] if group["role"] in _ROLES else []
        if group["ingress"]["kind"] == "engine_request_limit":
            words.append(f"--{_LIMIT} {group['ingress']['max_requests']}")
        if words:
            lines = ["python -m dynamo.vllm", f"--model {MODEL}", *words]
            files[f"worker-{i}.sh"] = " \\\n  ".join(lines) + "\n"
    return files


def absorb(settings: dict[str, Any], version: str) -> dict[str, str]:  # noqa: ARG001
    """A fixed limit of the gateway is that of the workers, behind which up to 16 wait.

    Instances of prefill and decode pools have no gates.
    """
    share = limit_per_instance(settings)
    open_ = [
        (i, group)
        for i, group in enumerate(settings["instances"])
        if group["ingress"]["kind"] == "open" and group["completion"] == "step_end"
    ]
    if share is None or has_pools(settings) or len(open_) < len(settings["instances"]):
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


def _queue_options(gateway: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The queue in the router, with its single class; without one, that of the version."""
    fairness = gateway["bands"][0]["fairness"]
    limit = next((limit for limit in gateway["limit"] if limit["kind"] == "prefill_busy"), None)
    if not limit or fairness["kind"] != "policy_classes":
        if version == "1.2":
            return {"router-queue-threshold": _QUEUES[version], "router-queue-policy": "fcfs"}
        return {"router-queue-threshold": "None"} if version in _QUEUES else {}
    return {
        "router-queue-threshold": limit["threshold"],
        "router-queue-policy": fairness["classes"][0]["order"],
        **({"router-policy-config": policies.FILE} if _policy_file(gateway) else {}),
    }


def _policy_file(gateway: Mapping[str, Any]) -> dict[str, Any]:
    """The content of the file with policy classes; empty without one."""
    fairness = gateway["bands"][0]["fairness"]
    limit = next((limit for limit in gateway["limit"] if limit["kind"] == "prefill_busy"), None)
    if not limit or fairness["kind"] != "policy_classes":
        return {}
    return policies.written(fairness, limit["threshold"])


def _options(settings: Mapping[str, Any], version: str) -> dict[str, Any]:
    router, monitor = settings["router"], settings["busy_monitor"]
    options: dict[str, Any] = {"router-mode": "round-robin"}
    if router["kind"] == "kv_cost":
        options["router-mode"] = "kv"
        for name, (setting, _) in _KV_FLAGS.items():
            options[name] = router[setting]
        options["router-kv-overlap-score-credit"] = min(1.0, router["overlap_credit"])
        options["router-kv-events"] = router["overlap"] == "kv_events"
        if not router["track_prefill"]:
            options["router-track-prefill-tokens"] = False
        options |= _queue_options(settings["gateway"], version)
    elif router["kind"] == "weighted" and router["picker"]["kind"] == "random":
        options["router-mode"] = "random"
    if has_pools(settings) and router["kind"] == "kv_cost":
        if version == "1.2":
            allowed = "cannot be that of 1.2 with two pools: its router always queues"
            raise config_error([("router", "kv_cost", allowed)])
        options |= bypass.options(settings["disaggregation"]["decider"])
    migration = settings["fleet"]["migration"]
    if migration["limit"] > 0 and migration["answered"]:
        options["migration-limit"] = migration["limit"]
        if migration["max_seq_len_tokens"] is not None:
            options["migration-max-seq-len"] = migration["max_seq_len_tokens"]
    given = {name.replace("_", "-"): monitor[name] for name in _THRESHOLDS}
    is_on = _rejection(settings) and set(given.values()) != {None}
    if is_on and monitor["track_output_blocks"]:
        options["router-track-output-blocks"] = True
    if version == "1.2" or (version == "1.3" and is_on):  # a threshold that is absent has a default
        shown = given if is_on else dict.fromkeys(given)
        options |= {name: "None" if value is None else value for name, value in shown.items()}
    elif is_on:
        options |= {name: value for name, value in given.items() if value is not None}
    return options


# --- reading --------------------------------------------------------------------------------------


def apply(
    pieces: Sequence[Piece],
    settings: dict[str, Any],
    version: str,
    gpu: str | None = None,  # noqa: ARG001
) -> list[Unread]:
    """Changes gateway, router, busy monitor and the gates of workers to those of the pieces."""
    unread: list[Unread] = []
    found: dict[str, Any] = {}
    where, status = pieces[0].where if pieces else "dynamo", None
    refresh_s, texts = 0.0, dict[str, str]()
    workers = [piece for piece in by_name(pieces) if piece.program in ENGINES]
    _add_groups(workers, settings)
    for i, piece in enumerate(workers):
        unread += _worker(piece, i, len(workers), settings["instances"], version)
    frontends = [piece for piece in pieces if piece.program not in ENGINES]
    for piece in sorted(frontends, key=lambda piece: piece.content is None):
        if piece.content is not None:
            given, own = _content(piece)
        else:
            given, own = _command(piece, version)
            where, texts = piece.where, {**texts, **piece.files}
            if (piece.replicas or 1) > 1:
                reason = "one frontend decides here"
                own.append(Unread(f"{where}: replicas", piece.replicas, reason))
            status = piece.environment.get(_STATUS, status)
            if version in _REFRESHING and (text := piece.environment.get(_REFRESH)):
                refresh_s = _seconds(text, f"{where}: ${_REFRESH}")
        unread += [
            Unread(f"{piece.where}: {name}", found[name], "is stated again elsewhere", "irrelevant")
            for name in found.keys() & given.keys()
            if found[name] != given[name]
        ]
        found |= given
        unread += own
    with within(where):
        fields = Fields(where, found)
        settings["fleet"]["migration"] = Migration(
            limit=fields.take("migration-limit", "int", 0),
            max_seq_len_tokens=fields.take("migration-max-seq-len", "int"),
        ).to_dict()
        unread += _frontend(fields, settings, version, status, texts)
    pulls = all(piece.program == "dynamo.vllm" for piece in workers)
    if has_pools(settings):
        settings["disaggregation"] |= {
            "order": "prefill_first",
            "handoff": "after_prefill" if pulls else "at_dispatch",
            "ends_at_first_token": pulls,
            "reads_on": True,
            "prefill_max_retries": 0,
        }
    if settings["router"]["kind"] == "kv_cost":
        settings["router"]["overlap_refresh_after_s"] = refresh_s
    elif refresh_s:
        reason = "is of the mode kv"
        unread.append(Unread(f"{where}: ${_REFRESH}", refresh_s, reason, "irrelevant"))
    return classified(unread, _IRRELEVANT)


def _add_groups(workers: Sequence[Piece], settings: dict[str, Any]) -> None:
    """Gives each worker a group if there are two pools, and one group stands for all of them."""
    groups = settings["instances"]
    if len(workers) < 2 or len(groups) != 1 or "prefill" not in map(_role_of, workers):
        return
    settings["instances"] = [copy.deepcopy(groups[0]) for _ in workers]
    for group, piece in zip(settings["instances"], workers, strict=True):
        group["count"] = piece.replicas or group["count"]


def _role_of(piece: Piece) -> str:
    """The pool of a worker: by its flags, or by what its surroundings say."""
    words = [word.replace("_", "-") for word in piece.words]
    for i, word in enumerate(words):
        name, is_given, text = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in _ROLE_FLAGS:
            return _ROLE_FLAGS[name]
        if word.startswith("--") and name == _MODE:
            mode = text if is_given else words[i + 1] if i + 1 < len(words) else ""
            return mode if mode in _ROLES else ""
    return piece.role


def _content(piece: Piece) -> tuple[dict[str, Any], list[Unread]]:
    """The flags that a document stands for."""
    content = {_CONFIG_KEYS.get(key, key): value for key, value in piece.content.items()}
    model = content.pop("model", None)
    reason = "does not concern a simulation"
    own = [Unread(f"{piece.where}: model", model, reason, "irrelevant")] if model else []
    return content, own


def _command(piece: Piece, version: str) -> tuple[dict[str, Any], list[Unread]]:
    """The flags of a command line, those that variables stand for among them."""
    known = table(_TABLE, piece.program or _FRONTEND, version)
    line = known.line(piece.words, piece.where)
    unread = [*line.unread]
    unread += [Unread(f"{piece.where}: words", word, "is not a flag") for word in line.words]
    found: dict[str, Any] = {}
    taken = {_STATUS, _REFRESH} if version in _REFRESHING else {_STATUS}
    for flag in known.all:
        if not flag.variable or flag.variable not in piece.environment:
            continue
        taken.add(flag.variable)
        text = piece.environment[flag.variable]
        place = f"{piece.where}: ${flag.variable}"
        if flag.name in line.values:
            unread.append(Unread(place, text, f"is overridden by --{flag.name}", "irrelevant"))
        elif text == "None":
            found[flag.name] = None
        elif text:
            found[flag.name] = scalar(text, place)
            if flag.kind in ("pair", "switch"):
                found[flag.name] = text.strip().lower() in ("true", "1", "yes", "on")
        else:
            unread.append(Unread(place, text, "is empty", "irrelevant"))
    found |= {name: None if value == "None" else value for name, value in line.values.items()}
    return found, [*unread, *variables(piece, *taken)]


def hands_on(piece: Piece) -> Piece | None:
    """The command line of the engine in that of a worker, if it states more than the model."""
    if piece.program not in ENGINES:
        return None
    tables = [table(_TABLE, piece.program, version) for version in _VERSIONS]
    words, left = [], list(piece.words)
    num_given = 0
    while left:
        word = left.pop(0)
        name = word.partition("=")[0]
        positive = f"--{name[5:]}" if name[:5] in ("--no-", "--no_") else name
        found = (own.exactly(spelling) for own in tables for spelling in (name, positive))
        flag = next(filter(None, found), None)
        is_limit = name.replace("_", "-") == f"--{_LIMIT}"
        is_own = is_limit or (flag is not None and flag.name not in ENGINE_FLAGS)
        taken = [word]
        while left and not re.match(r"--?[a-zA-Z]", left[0]):
            taken.append(left.pop(0))
        if not is_own:
            words += taken
            num_given += name.startswith("-") and name not in ("--model", "--model-path")
    if not num_given:
        return None
    return dataclasses.replace(
        piece,
        system=ENGINES[piece.program],
        program="",
        words=tuple(words),
        role=_role_of(piece),
        environment={},
        version=None,
    )


def _worker(
    piece: Piece, i: int, of: int, groups: list[dict[str, Any]], version: str
) -> list[Unread]:
    """Sets the gate of a worker; returns what of it is Dynamo's own."""
    known = table(_TABLE, piece.program, version)
    line = known.line(piece.words, piece.where, is_part=True)
    limit = _limit_of(piece)
    gate = (
        EngineRequestLimit(max_requests=limit).to_dict() if limit is not None else {"kind": "open"}
    )
    number = re.search(r"worker-([0-9]+)[^/]*$", piece.where)
    if number and int(number[1]) >= len(groups):
        allowed = f"must belong to one of {len(groups)} groups of instances, from worker-0 on"
        raise config_error([(piece.where, "", allowed)])
    own = [groups[int(number[1])]] if number else [groups[i]] if of == len(groups) else groups
    for group in own:
        if role := _role_of(piece):
            group["role"] = role
        group["ingress"] = dict(gate) if limit is not None else group["ingress"]
    handed = hands_on(piece)
    engine = {word.partition("=")[0] for word in handed.words} if handed else set()
    unread = [*_own(piece, line, engine), *variables(piece)]
    if handed is None:
        unread += [Unread(f"{piece.where}: words", word, "is not a flag") for word in line.words]
    return unread


def _own(piece: Piece, line: Line, engine: set[str]) -> list[Unread]:
    """The flags of a worker that are not handed to its engine."""
    entries = [Unread(f"{piece.where}: {name}", value, "") for name, value in line.values.items()]
    unread = []
    for entry in [*entries, *line.unread]:  # those of the engine, or of another version
        name = entry.field.rpartition(": ")[2].lstrip("-")
        if name == _LIMIT or not engine.isdisjoint({f"--{name}", f"-{name}"}):
            continue
        reason, effect = entry.reason or no_counterpart, "not_simulated"
        if name in _ROLE_FLAGS or (name == _MODE and entry.value in _ROLES):
            continue
        if name == _MODE and entry.value == "encode":
            reason, effect = "workers that encode images are not modeled", "not_modeled"
        elif name in ENGINE_FLAGS:
            reason, effect = irrelevant, "irrelevant"
        unread.append(Unread(entry.field, entry.value, reason, effect))  # type: ignore[arg-type]
    return unread


def _limit_of(piece: Piece) -> int | None:
    """The value of --engine-request-limit."""
    for i, word in enumerate(piece.words):
        name, is_given, text = word.partition("=")
        if name.replace("_", "-") == f"--{_LIMIT}":
            value = text if is_given else piece.words[i + 1] if i + 1 < len(piece.words) else ""
            if not value.isdigit():
                place = f"{piece.where}: {_LIMIT}"
                raise config_error([(place, repr(value), "must be a whole number")])
            return int(value)
    return None


def _frontend(
    fields: Fields,
    settings: dict[str, Any],
    version: str,
    status: str | None,
    texts: Mapping[str, str],
) -> list[Unread]:
    unread: list[Unread] = []
    mode = fields.take("router-mode", "str", "round-robin")
    values = {
        setting: fields.take(flag, "float", default)
        for flag, (setting, default) in _KV_FLAGS.items()
    }
    events = fields.take("router-kv-events", "bool", default=True)
    if mode == "kv":
        settings["router"] = KvCost(
            overlap="kv_events" if events else "sent",
            prefill_unit=prefill_unit(version),
            track_prefill=fields.take("router-track-prefill-tokens", "bool", default=True),
            **values,
        ).to_dict()
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
    thresholds = _thresholds(fields, version)
    is_on = any(threshold is not None for threshold in thresholds.values())
    tracks = fields.take("router-track-output-blocks", "bool", default=False)
    threshold = fields.take("router-queue-threshold", "float")
    if "router-queue-threshold" not in fields:
        threshold = _QUEUES.get(version)
    elif threshold is None and version == "1.2":
        allowed = "must be a number in 1.2, whose router always queues"
        raise config_error([(f"{fields.where}: router-queue-threshold", "None", allowed)])
    order = fields.choice("router-queue-policy", _ORDERS, "fcfs")
    classes = PolicyClasses(classes=[PolicyClass(order=order)])
    if mode == "kv" and (path := fields.take("router-policy-config", "str")):
        known, own, left = _policies(path, fields.where, settings, texts)
        classes, threshold = known or classes, threshold if own is None else own
        unread += left
    if mode == "kv" and threshold is not None and has_pools(settings):
        reason = "the queue of a router by prefill load is not modeled with two pools"
        place = f"{fields.where}: router-queue-threshold"
        unread.append(Unread(place, threshold, reason, "not_modeled"))
    elif mode == "kv" and threshold is not None:
        gateway["limit"] = [PrefillBusy(threshold=threshold).to_dict()]
        gateway["bands"] = [Band(fairness=classes).to_dict()]
    decider, left = bypass.read(fields, mode, threshold)
    unread += left
    if has_pools(settings):
        settings["disaggregation"]["decider"] = decider
    elif decider["kind"] == "conditional":
        reason = "no worker is of a prefill pool"
        unread.append(Unread(f"{fields.where}: {bypass.FLAG}", True, reason))
    settings["busy_monitor"] = BusyMonitor().to_dict()
    if is_on:
        code = _code(status) if status else _status(version)
        gateway["admission"] = [BusyThreshold(overload_status=code).to_dict()]
        settings["busy_monitor"] = BusyMonitor(
            **thresholds, decode_latch=version != "1.2", track_output_blocks=tracks
        ).to_dict()
    return [*unread, *fields.rest()]


def _policies(
    path: str, where: str, settings: Mapping[str, Any], texts: Mapping[str, str]
) -> tuple[PolicyClasses | None, float | None, list[Unread]]:
    """Classes and threshold of a file with policy classes, if it is among the texts."""
    name = path.rpartition("/")[2]
    if name not in texts:
        reason = "is not among the files, so its classes are not known"
        place = f"{where}: router-policy-config"
        return None, None, [Unread(place, path, reason, "not_modeled")]
    return policies.read(parse(texts[name], name), name, settings["slo_classes"])


def _thresholds(fields: Fields, version: str) -> dict[str, Any]:
    """The thresholds of busy workers in force; None is not checked.

    1.2 has defaults; 1.3 fills in those that are not stated once another is, or with
    `--admission-control token-capacity`; from 1.4 on each stands alone, and that flag is ignored.
    """
    flags = {name: name.replace("_", "-") for name in _THRESHOLDS}
    given = {name: fields.take(flags[name], kind) for name, kind in _THRESHOLDS.items()}
    control = fields.take("admission-control", "str", "")
    defaults: tuple[float | None, ...] = (None, None, None)
    if version == "1.2":
        defaults = _THRESHOLDS_1_2
    elif version == "1.3":
        is_stated = any(value is not None for value in given.values())
        if control == "none" and is_stated:
            allowed = "contradicts the thresholds: Dynamo 1.3 refuses both"
            raise config_error([(f"{fields.where}: admission-control", "none", allowed)])
        if control == "token-capacity" or is_stated:
            defaults = filled(1.0, None, None)
    return {
        name: given[name] if flags[name] in fields else default
        for name, default in zip(given, defaults, strict=True)
    }


def _seconds(text: str, where: str) -> float:
    if not re.fullmatch(r"[0-9]+\.?[0-9]*|\.[0-9]+", text):
        raise config_error([(where, repr(text), "must be a number of seconds >= 0")])
    return float(text)


def _code(text: str) -> int:
    if not text.isdigit():
        raise config_error([(_STATUS, repr(text), "must be a status, e.g. 529")])
    return int(text)


def is_settings(content: Any) -> bool:
    """Whether a document is a body of /busy_threshold, a router_config.json, or an environment."""
    if not isinstance(content, dict):
        return False
    if content.keys() == {"environment"}:
        known = {flag.variable for flag in table(_TABLE, _FRONTEND, _VERSIONS[-1]).all}
        return bool((known | {_STATUS}) & content["environment"].keys())
    return bool(_CONFIG_KEYS.keys() & content.keys())


TARGET = Target(
    name="dynamo",
    versions=_VERSIONS,
    doc="flags of the frontend and of workers, and the body of POST /busy_threshold",
    covers=(
        *(f"gateway.{name}" for name in GATEWAY),
        "router",
        "busy_monitor",
        "fleet.migration",
        "instances[].ingress",
        "instances[].role",
        "disaggregation.order",
        "disaggregation.handoff",
        "disaggregation.topology",
        "disaggregation.decider",
        "disaggregation.ends_at_first_token",
        "disaggregation.reads_on",
        "disaggregation.prefill_max_retries",
    ),
    reasons=(
        ("gateway.admission", "Dynamo rejects by the thresholds of busy workers only"),
        ("gateway.bands[].fairness.requests", "families are asked for by each request"),
        ("gateway.bands", "the queue in the router has no tenants or priorities"),
        ("gateway.limit", "in 1.2, the router always has a queue"),
        ("gateway", "the frontend rejects, or the router queues by prefill load"),
        ("router.overlap_credit", "the credit is at most 1"),
        ("router.overlap_refresh_after_s", f"{_REFRESH} is known from 1.3 on"),
        ("router.host_cache_hit_weight", "its flag is known from 1.3 on"),
        ("router.disk_cache_hit_weight", "its flag is known from 1.3 on"),
        ("router.prefill_unit", "the version decides it: tokens from 1.6 on, blocks before"),
        ("router", "of the modes of Dynamo's router, kv, round-robin and random are written"),
        ("busy_monitor.overload_cooldown_s", "no flag states it: 1 s in versions after 1.6"),
        ("busy_monitor", "thresholds are written with the admission policy busy_threshold"),
        ("fleet.migration", "a frontend of Dynamo sends on requests with tokens, too"),
        ("disaggregation.order", "Dynamo chooses the prefill worker first"),
        (
            "disaggregation.handoff",
            "decode workers with vLLM, which are written, read blocks later",
        ),
        ("disaggregation.topology", "the transfer domains of workers are not written"),
        (
            "disaggregation.decider",
            "every prompt is remote, or, from 1.5 on and in the mode kv, conditional",
        ),
        ("disaggregation.ends_at_first_token", "an answer that ends in the prefill ends there"),
        ("disaggregation.reads_on", "a prompt is read also if its client has left"),
        ("disaggregation.prefill_max_retries", "a request fails with its prefill"),
        ("instances[].ingress.queue_size", "its environment variable could not be verified"),
        ("instances[].ingress", "of the gates of workers, engine_request_limit is written"),
    ),
    write=write,
    programs=(
        *(
            Program(name, (("-m", name),), tagged=r"[\w-]+-runtime|dynamo-frontend|frontend")
            for name in (_FRONTEND, _ROUTER, *ENGINES)
        ),
    ),
    documents=is_settings,
    expected=_EXPECTED,
    read_pieces=apply,
    hands_on=hands_on,
    absorb=absorb,
    approximated=(
        ("router-mode", "kv, round-robin and random; other modes are listed, and round-robin"),
        ("router-policy-config", "from 1.3 on; all requests are of the default family"),
        ("router-kv-events", "without events: the requests that the router has sent"),
        ("router-track-prefill-tokens", "recorded of decode workers alone; for all workers here"),
        ("router-host-cache-hit-weight", "also of the disk: kept, but workers have no such tiers"),
    ),
)
