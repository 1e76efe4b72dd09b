"""NVIDIA Dynamo: the flags of conditional disaggregation, which prompts bypass the prefill pool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from spillway._core.router import AlwaysRemote, Conditional
from spillway.config.classes import config_error
from spillway.config.yaml import parse
from spillway.files.deployments.fields import no_counterpart
from spillway.files.deployments.target import Unread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.files.deployments.fields import Fields

FLAG, _CONFIG = "router-conditional-disagg", "router-conditional-disagg-config"
_KEYS = {
    "policy": "rule",
    "eff_isl_threshold": "uncached_tokens_threshold",
    "eff_isl_ratio_threshold": "uncached_share_threshold",
    "prefill_busy_threshold": "prefill_busy_threshold",
    "decode_busy_threshold": "decode_busy_threshold",
}


def options(decider: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of conditional disaggregation."""
    if decider["kind"] != "conditional":
        return {}
    given = {key: decider[name] for key, name in _KEYS.items() if decider[name] is not None}
    return {FLAG: True, _CONFIG: f"'{json.dumps(given)}'"}


def read(
    fields: Fields, mode: str, queue_threshold: float | None
) -> tuple[dict[str, Any], list[Unread]]:
    """The decider: every prompt passes through the prefill pool but for conditional ones."""
    place = f"{fields.where}: {_CONFIG}"
    is_on = fields.take(FLAG, "bool", default=False)
    fields.drop(_CONFIG)
    given = fields.values.get(_CONFIG)
    content = parse(given, _CONFIG, is_json=True) if isinstance(given, str) else given or {}
    if not isinstance(content, dict):
        raise config_error([(place, repr(given), "must be a JSON object")])
    if not is_on or mode != "kv":
        reason = "is of the mode kv" if is_on else f"has no effect without --{FLAG}"
        is_given = is_on or _CONFIG in fields.values
        entry = Unread(f"{fields.where}: {FLAG}", given or True, reason, "irrelevant")
        return AlwaysRemote().to_dict(), [entry] if is_given else []
    known = {name: content[key] for key, name in _KEYS.items() if key in content}
    if known.get("prefill_busy_threshold") is None and queue_threshold is not None:
        known["prefill_busy_threshold"] = queue_threshold
    reads_load = known.get("rule") in ("prefill_load", "isl_or_load")
    if reads_load and known.get("prefill_busy_threshold") is None:
        allowed = "must be set, or else --router-queue-threshold: the policy reads the load"
        raise config_error([(f"{place}: prefill_busy_threshold", "", allowed)])
    unread = [
        Unread(f"{place}: {key}", value, no_counterpart)
        for key, value in content.items()
        if key not in _KEYS
    ]
    return Conditional(**known).to_dict(), unread
