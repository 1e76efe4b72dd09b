"""SGLang's router (Model Gateway): the flags that decide where a request goes and whether it waits.

Flags: `flags.csv`, by version, from the parsers in the wheels of sglang-router
(`tools/generate_flag_tables.py`), with their defaults. Their meaning:
https://docs.sglang.io/advanced_features/sgl_model_gateway.html. Of a command that starts servers,
too, the flags that do not begin with `--router-` are handed to the reader of SGLang.

`--max-concurrent-requests` is a limit on requests in flight, behind which `--queue-size` wait at
most `--queue-timeout-secs`. Its bucket also refills by `--rate-limit-tokens-per-second`, by the
limit where it is not given, whether requests have ended or not. How both work together is not
documented, so the refill is not simulated.
"""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._core.gateway import Band, FixedLimit, Gateway, Queue
from spillway._core.router import ActiveRequests, CacheAware, PowerOfTwo, Random, Weighted
from spillway.config.classes import config_error
from spillway.files.deployments.engines import by_name, classified, count
from spillway.files.deployments.fields import Fields, within
from spillway.files.deployments.flag_table import table
from spillway.files.deployments.target import GATEWAY, Piece, Program, Target, Unread
from spillway.files.deployments.variables import variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TABLE = Path(__file__).with_name("flags.csv")
_VERSIONS = ("0.2", "0.3")
_ROUTER, _WITH_SERVERS = "sglang_router", "sglang_router with servers"
_PREFIX = "--router-"
_RANKS = ("--dp-size", "--data-parallel-size", "--dp")
_SETTINGS = {
    "cache-threshold": "cache_threshold",
    "balance-abs-threshold": "balance_abs_threshold",
    "balance-rel-threshold": "balance_rel_threshold",
}
_QUEUE, _TIMEOUT_S = 100, 60
_UNBOUNDED = 10**9
_POLICIES = {
    "cache_aware": CacheAware().to_dict(),
    "power_of_two": Weighted(scorers=[ActiveRequests()], picker=PowerOfTwo()).to_dict(),
    "random": Weighted(scorers=[ActiveRequests()], picker=Random()).to_dict(),
    "round_robin": {"kind": "round_robin"},
}
_DISAGGREGATED = "prefill and decode on workers of their own are not modeled"
_NOT_MODELED = {
    **dict.fromkeys(("pd-disaggregation", "prefill", "decode", "mini-lb"), _DISAGGREGATED),
    "enable-igw": "several models behind one router are not modeled",
}
_IRRELEVANT = re.compile(
    r"host|port|prometheus-.*|log-.*|max-payload-size|worker-startup-.*|service-discovery.*"
    r"|selector|request-id-headers|shutdown-grace-.*|cors-.*|health-.*|disable-health-check"
    r"|model-path|tokenizer.*|chat-template|reasoning-parser|tool-call-parser|mcp-.*|history-.*"
    r"|oracle-.*|postgres-.*|redis-.*|.*cert.*|tls-.*|client-key-path|enable-trace|otlp-.*"
    r"|api-key|control-plane-.*|jwt-.*|backend|dp-worker-base-port"
)
_REFILL = "the bucket refills at this rate, too; here only requests that end make room"
_EXPECTED = "a command line of `sglang_router.launch_router`, or of `smg launch`"


# --- writing --------------------------------------------------------------------------------------


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:  # noqa: ARG001
    """The command line of the router; it finds its workers by itself."""
    words = ["python -m sglang_router.launch_router", "--worker-urls ${WORKER_URLS:?}"]
    router = settings["router"]
    policy = _policy(router)
    words.append(f"--policy {policy}")
    if policy == "cache_aware":
        words += [f"--{flag} {router[name]:.15g}" for flag, name in _SETTINGS.items()]
    gateway = settings["gateway"]
    fixed = [rule["max_in_flight"] for rule in gateway["limit"] if rule["kind"] == "fixed"]
    limit = max(1, round(min(fixed))) if fixed and gateway["controller"]["kind"] == "static" else -1
    words.append(f"--max-concurrent-requests {limit}")
    if limit > 0:
        queued, timeout_s = gateway["max_queued"], gateway["bands"][0]["queue"]["timeout_s"]
        waits_s = _UNBOUNDED if timeout_s is None else max(1, math.ceil(timeout_s))
        words.append(f"--queue-size {_UNBOUNDED if queued is None else queued}")
        words.append(f"--queue-timeout-secs {waits_s}")
    return {"router.sh": " \\\n  ".join(words) + "\n"}


def _policy(router: Mapping[str, Any]) -> str:
    """The policy of a router; round_robin for others."""
    if router["kind"] == "cache_aware":
        return "cache_aware"
    if router["kind"] == "weighted":
        picker = router["picker"]["kind"]
        return picker if picker in _POLICIES else "round_robin"
    return "round_robin"


# --- reading --------------------------------------------------------------------------------------


def apply(
    pieces: Sequence[Piece],
    settings: dict[str, Any],
    version: str,
    gpu: str | None = None,  # noqa: ARG001
) -> list[Unread]:
    """Changes gateway and router to those of the command line."""
    first, *others = by_name(pieces)
    if others:
        raise config_error([(others[0].where, "", f"is a second router, beside {first.where}")])
    words = _split(first)[0] if first.program == _WITH_SERVERS else first.words
    line = table(_TABLE, _ROUTER, version).line(words, first.where)
    unread = [*line.unread, *variables(first)]
    unread += [Unread(f"{first.where}: words", word, "is not a flag") for word in line.words]
    if (first.replicas or 1) > 1:
        reason = "one router decides here"
        unread.append(Unread(f"{first.where}: replicas", first.replicas, reason))
    with within(first.where):
        unread += _router(Fields(first.where, line.values), settings)
    return classified(unread, _IRRELEVANT)


def _router(fields: Fields, settings: dict[str, Any]) -> list[Unread]:
    unread: list[Unread] = []

    def listed(name: str, reason: str, effect: Any = "not_simulated") -> None:
        value = fields.values[name]
        fields.drop(name)
        unread.append(Unread(f"{fields.where}: {name}", value, reason, effect))

    if "worker-urls" in fields:
        num_workers = len(fields.values["worker-urls"])
        reason = f"are {num_workers} workers; the instances are those of the simulation"
        listed("worker-urls", reason, "assumed")
    name = fields.take("policy", "str", "cache_aware")
    if name not in _POLICIES:
        reason = "has no counterpart in a simulation; round_robin here"
        unread.append(Unread(f"{fields.where}: policy", name, reason))
    settings["router"] = dict(_POLICIES.get(name, _POLICIES["round_robin"]))
    if name == "cache_aware":
        given = {
            setting: fields.take(flag, "int" if "abs" in flag else "float")
            for flag, setting in _SETTINGS.items()
            if flag in fields
        }
        settings["router"] = CacheAware(**given).to_dict()
    else:
        for flag in _SETTINGS.keys() & fields.values.keys():
            listed(flag, "is of the policy cache_aware", "irrelevant")
    unread += _limit(fields, settings["gateway"])
    for flag, reason in _NOT_MODELED.items():
        if fields.values.get(flag) not in (None, False):
            listed(flag, reason, "not_modeled")
    return [*unread, *fields.rest()]


def _limit(fields: Fields, gateway: dict[str, Any]) -> list[Unread]:
    """Sets the limit on requests in flight, and its queue."""
    unread = []
    defaults = Gateway().to_dict()
    gateway |= {name: defaults[name] for name in GATEWAY}
    limit = count(fields, "max-concurrent-requests", -1)
    queued = count(fields, "queue-size", _QUEUE)
    timeout_s = count(fields, "queue-timeout-secs", _TIMEOUT_S)
    rate = count(fields, "rate-limit-tokens-per-second", None)
    given = {"queue-size": (queued, 0), "queue-timeout-secs": (timeout_s, 1)}
    for name, (value, least) in given.items():
        if value < least:
            raise config_error([(f"{fields.where}: {name}", f"{value}", f"must be >= {least}")])
    if limit == 0 or limit < -1:
        allowed = "must be >= 1, or -1 for no limit"
        raise config_error([(f"{fields.where}: max-concurrent-requests", f"{limit}", allowed)])
    if limit == -1:
        reason = "has no effect without --max-concurrent-requests"
        names = ("queue-size", "queue-timeout-secs", "rate-limit-tokens-per-second")
        return [
            Unread(f"{fields.where}: {name}", fields.values[name], reason, "irrelevant")
            for name in names
            if name in fields
        ]
    gateway["limit"] = [FixedLimit(max_in_flight=min(limit, _UNBOUNDED)).to_dict()]
    if queued == 0:
        reason = "one request waits here, where the router has no queue"
        unread.append(Unread(f"{fields.where}: queue-size", 0, reason, "assumed"))
    gateway["max_queued"] = None if queued >= _UNBOUNDED else max(1, queued)
    waits_s = None if timeout_s >= _UNBOUNDED else timeout_s
    gateway["bands"] = [Band(queue=Queue(timeout_s=waits_s)).to_dict()]
    where = f"{fields.where}: rate-limit-tokens-per-second"
    if rate is None:
        unread.append(Unread(where, limit, f"is not given: {_REFILL}", "assumed"))
    else:
        unread.append(Unread(where, rate, _REFILL))
    return unread


# --- routers that start servers -------------------------------------------------------------------


def _split(piece: Piece) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of the router, without their prefix, and those of the servers."""
    own: list[str] = []
    others: list[str] = []
    current = others
    for word in piece.words:
        if word.startswith("-"):
            spelling = word.replace("_", "-")
            current = own if spelling.startswith(_PREFIX) else others
        is_own_flag = current is own and word.startswith("-")
        current.append(f"--{word[len(_PREFIX) :]}" if is_own_flag else word)
    return tuple(own), tuple(others)


def hands_on(piece: Piece) -> Piece | None:
    """The command line of the servers, as many as the router starts."""
    if piece.program != _WITH_SERVERS:
        return None
    left = list(_split(piece)[1])
    words: list[str] = []
    replicas = 1
    while left:
        word = left.pop(0)
        name, is_given, text = word.partition("=")
        if name.replace("_", "-") not in _RANKS:
            words.append(word)
            continue
        text = text if is_given else left.pop(0) if left else ""
        if not text.isdigit() or int(text) < 1:
            raise config_error([(f"{piece.where}: {name}", repr(text), "must be >= 1")])
        replicas = int(text)
    return dataclasses.replace(
        piece,
        system="sglang",
        program="",
        words=tuple(words),
        environment={},
        version=None,
        replicas=replicas,
    )


TARGET = Target(
    name="sglang-router",
    versions=_VERSIONS,
    doc="the command line of SGLang's router",
    covers=(*(f"gateway.{name}" for name in GATEWAY), "router"),
    reasons=(
        ("gateway.admission", "the router rejects what its queue has no room for, nothing else"),
        ("gateway.bands[].queue.timeout_s", "--queue-timeout-secs is whole, and at least 1"),
        ("gateway.bands", "the router has one queue, in the order of arrival"),
        ("gateway.limit", "the router has one limit of whole requests"),
        ("gateway.max_queued", "the router queues behind --max-concurrent-requests only"),
        ("gateway", "the router forwards at once"),
        ("router", "the policies cache_aware, power_of_two, random and round_robin are written"),
    ),
    write=write,
    programs=(
        Program(
            _ROUTER,
            (
                ("-m", "sglang_router.launch_router"),
                ("-m", "sglang_router", "launch"),
                ("smg", "launch"),
                ("sglang-router", "launch"),
                ("amg", "launch"),
                ("sgl-model-gateway",),
            ),
            images=r"sgl-model-gateway|sgl-router",
            tagged=r"sgl-model-gateway|sgl-router",
        ),
        Program(
            _WITH_SERVERS,
            (
                ("-m", "sglang_router.launch_server"),
                ("-m", "sglang_router", "server"),
                ("smg", "server"),
                ("sglang-router", "server"),
                ("amg", "server"),
            ),
        ),
    ),
    expected=_EXPECTED,
    read_pieces=apply,
    hands_on=hands_on,
    approximated=(
        ("policy", "cache_aware by blocks, power_of_two by requests in flight; others round_robin"),
        ("max-concurrent-requests", "a limit in flight; its bucket also refills with time"),
        ("queue-size", "without a queue one request waits"),
    ),
)
