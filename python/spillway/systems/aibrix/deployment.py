"""AIBrix: the users of its metadata service, whose requests and tokens per minute it limits.

A file holds bodies of `POST /CreateUser`: `name`, `rpm`, `tpm` (development/README.md of
vllm-project/aibrix). Where a limit is not stated: 100 requests, 1,000 times as many tokens. Its
servers are pods of vLLM, which the reader of vLLM finds in Deployments and StormServices. Not read:
the strategy of routing (`ROUTING_ALGORITHM`), autoscalers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from spillway._core.gateway import Gateway
from spillway.config.yaml import parse
from spillway.files.deployments import keys
from spillway.files.deployments.fields import Fields
from spillway.files.deployments.target import GATEWAY, Target, Unread, unrecognized
from spillway.systems.aibrix.presets import FIXED, RPM, TOKENS_PER_REQUEST

if TYPE_CHECKING:
    from collections.abc import Mapping

_LIMITS = {"max_requests": "rpm", "max_tokens": "tpm"}
_EXPECTED = "bodies of /CreateUser: name, rpm and tpm"


def write(settings: Mapping[str, Any], version: str) -> dict[str, str]:  # noqa: ARG001
    """A user per tenant with a limit."""
    users = [
        {"name": user["name"], **_in_force(user.get("rpm"), user.get("tpm"))}
        for user in keys.bodies(settings, "name", _LIMITS)
    ]
    return {"users.json": json.dumps(users, indent=2) + "\n"} if users else {}


def read(files: Mapping[str, str], settings: dict[str, Any], version: str) -> list[Unread]:  # noqa: ARG001
    """Changes the limits of tenants to those of the users."""
    known = dict.fromkeys(files, False)
    unread: list[Unread] = []
    entries: list[dict[str, Any]] = []
    for name, text in files.items():
        content = parse(text, name, is_json=name.endswith(".json"))
        for i, piece in enumerate(content if isinstance(content, list) else [content]):
            if not _is_user(piece):
                continue
            fields = Fields(f"{name}[{i}]" if isinstance(content, list) else name, piece)
            entry = keys.read(fields, "name", _LIMITS, entries)
            limits = _in_force(entry["max_requests"], entry["max_tokens"])
            entries.append({**entry, **{key: limits[field] for key, field in _LIMITS.items()}})
            known[name] = True
            unread += fields.rest()
    defaults = Gateway().to_dict()
    settings["gateway"] |= {key: defaults[key] for key in GATEWAY}
    if entries:
        keys.apply(settings, entries, **FIXED)
    return [*unrecognized(known, _EXPECTED), *unread]


def _in_force(rpm: int | None, tpm: int | None) -> dict[str, int]:
    """The limits of a user, with the defaults of those that are not given."""
    rpm = RPM if rpm is None else rpm
    return {"rpm": rpm, "tpm": TOKENS_PER_REQUEST * rpm if tpm is None else tpm}


def _is_user(piece: Any) -> bool:
    limits = set(_LIMITS.values())
    return isinstance(piece, dict) and "name" in piece and not limits.isdisjoint(piece)


def is_users(content: Any) -> bool:
    """Whether a document is the body of a user, or a list of bodies."""
    return any(map(_is_user, content if isinstance(content, list) else [content]))


TARGET = Target(
    name="aibrix",
    versions=("e3e10f9",),
    doc="users of the metadata service with their requests and tokens per minute",
    covers=tuple(f"gateway.{name}" for name in GATEWAY),
    reasons=(
        ("gateway.admission[].window", "the windows of AIBrix are minutes, for all users alike"),
        ("gateway.admission[].charge", "AIBrix counts tokens when an answer ends"),
        ("gateway.admission[].max_tokens", "without a tpm AIBrix has 1,000 tokens per request"),
        ("gateway.admission[].max_parallel", "AIBrix does not limit parallel requests"),
        ("gateway.admission", "AIBrix limits requests and tokens of a user per minute"),
        ("gateway", "the gateway dispatches at once"),
    ),
    write=write,
    read=read,
    documents=is_users,
    expected=_EXPECTED,
)
