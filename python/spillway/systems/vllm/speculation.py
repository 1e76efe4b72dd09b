"""Speculative decoding of vLLM: `--speculative-config`, `--spec-method` and `--spec-tokens`.

What a file does not state, because it depends on the traffic, is how many drafts are accepted, and
how long it takes to propose them: both stay those of the simulation, which a note says.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from spillway.config.classes import config_error
from spillway.config.yaml import parse
from spillway.files.deployments.fields import Fields
from spillway.files.deployments.target import Unread

if TYPE_CHECKING:
    from collections.abc import Mapping

_METHODS = {"ngram": "ngram", "eagle": "eagle", "eagle3": "eagle", "draft_model": "draft_model"}
_CONFIG = "speculative-config"
_FLAGS = {"spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens"}
_PROPOSAL = ("model", "prompt_lookup_max", "prompt_lookup_min", "draft_tensor_parallel_size")


def written(drafts: Mapping[str, Any]) -> str:
    """The value of the flag, quoted for a shell; empty without drafts."""
    if not drafts["num_drafts"]:
        return ""
    model = {} if drafts["method"] == "ngram" else {"model": "${DRAFT_MODEL:?}"}
    config = {"method": drafts["method"], **model, "num_speculative_tokens": drafts["num_drafts"]}
    text = json.dumps(config)
    if not model:
        return f"'{text}'"
    quoted = text.replace('"', '\\"')  # within double quotes, where the shell knows variables
    return f'"{quoted}"'


def taken(fields: Fields, drafts: dict[str, Any]) -> list[Unread]:
    """Changes number and method of drafts to those of the flags; returns what is not simulated."""
    drafts |= {"num_drafts": 0, "method": "ngram"}
    where = f"{fields.where}: {_CONFIG}"
    given = fields.values.get(_CONFIG)
    fields.drop(_CONFIG, *_FLAGS)
    config = parse(given, where, is_json=True) if isinstance(given, str) else given
    if not isinstance(config, dict | None):
        raise config_error([(where, str(given), "must be a JSON object")])
    flags = {key: fields.values[flag] for flag, key in _FLAGS.items() if flag in fields}
    own = Fields(where, {**(config or {}), **flags})
    if not own.values:
        return []
    method = own.take("method", "str", "draft_model" if "model" in own else "ngram")
    kind = "eagle" if re.fullmatch(r"(?:\w+_)?mtp", method) else _METHODS.get(method)
    number = own.take("num_speculative_tokens", "int")
    if kind is None or number is None:
        what = f"by {method}" if kind is None else "without num_speculative_tokens"
        reason = f"speculative decoding {what} is not modeled"
        return [Unread(where, own.values, reason, "not_modeled")]
    drafts |= {"num_drafts": number, "method": kind}
    own.drop(*_PROPOSAL)
    accepted = ", ".join(f"{share:g}" for share in drafts["acceptance"])
    reason = (
        f"acceptance {accepted} and draft_us {drafts['draft_us']:g} are those of the simulation: "
        "no file has them"
    )
    return [Unread(where, own.values, reason, "assumed"), *own.rest()]
