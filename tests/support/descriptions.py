"""The descriptions of classes of settings, and all alternatives in them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway import Simulation

if TYPE_CHECKING:
    from collections.abc import Mapping


ELSEWHERE = {"python", "compiled"}
"""Kinds that settings alone do not make; they have tests of their own."""
Force = dict[str, str]
"""Seam → the alternative that must occur there at least once."""

DESCRIPTION = Simulation._describe()
PRESENT = "(present)"


@dataclass(frozen=True)
class Alternative:
    """One value of a seam (a variant) or of a choice, e.g. `Gateway.admission` = `token_bucket`."""

    seam: str
    name: str

    def __str__(self) -> str:
        return f"{self.seam}={self.name}"


@dataclass(frozen=True)
class Way:
    """How to get to an alternative."""

    force: Force
    path: str
    """As `spillway describe` takes it."""
    policy: str = ""
    """The class of the alternative."""


def _found() -> tuple[dict[Alternative, Way], dict[Alternative, Way]]:
    """Every alternative of a variant, and every value of a choice."""
    variants: dict[Alternative, Way] = {}
    choices: dict[Alternative, Way] = {}
    places: deque[tuple[Mapping[str, Any], Way]] = deque([(DESCRIPTION, Way({}, ""))])
    while places:  # breadth first: the shortest way to each
        noun, way = places.popleft()
        for field in noun["fields"]:
            seam = f"{noun['name']}.{field['name']}"
            path = f"{way.path}.{field['name']}".lstrip(".")
            names = {"choice": field.get("choices", ()), "bool": ("True", "False")}
            for name in names.get(field["type"], ()):
                choices.setdefault(Alternative(seam, name), Way({**way.force, seam: name}, path))
            if field["type"] == "struct":
                places.append((field["of"], Way({**way.force, seam: PRESENT}, path)))
            elif field["type"] == "variant":
                for alternative in field["alternatives"]:
                    if alternative["kind"] in ELSEWHERE:
                        continue
                    here = Way(
                        {**way.force, seam: alternative["kind"]},
                        f"{path}.{alternative['kind']}",
                        alternative["name"],
                    )
                    variants.setdefault(Alternative(seam, alternative["kind"]), here)
                    places.append((alternative, here))
    return variants, choices


VARIANTS, CHOICES = _found()


# Rules that require effects at the end of a step, and the values of those that are no switches.
OF_STEPS = (
    "self_preemption",
    "keeps_share",
    "first_equal_victim",
    "skips_after_victim",
    "counts_finishing_victims",
    "aborts_before_tokens",
    "equal_blocks",
    "free_blocks",
    "registers_when_known",
)
DEFAULTS = ("continues", "last", "oldest_first")
_DECODES_LATER = ("prefill_first", "after_prefill")
_TRIES_AGAIN = ("decode_first", "after_prefill")


def agree(name: str, drawn: dict[str, Any]) -> None:
    """Changes drawn settings of a structure that contradict each other."""
    if name == "InstanceGroup":
        kv_cache = drawn["kv_cache"]
        drafts = drawn["speculative_decoding"]["num_drafts"]
        needs_causality = (
            drawn["async_scheduling"]
            or kv_cache["generated_tokens"]
            or drafts
            or any(drawn["engine_rules"][rule] not in (False, *DEFAULTS) for rule in OF_STEPS)
        )
        if needs_causality:
            drawn |= {"completion": "step_end", "preemption": "keep_emitted"}
        if needs_causality or kv_cache["reserve_full_prompt"] or kv_cache["watermark"]:
            kv_cache["allocation"] = "check_then_act"
        if drafts:
            kv_cache["stores_last_token"] = False
            taken = drawn["max_num_seqs"] if drawn["max_num_seqs"] < 1e6 else 0
            drawn["max_num_batched_tokens"] = max(drawn["max_num_batched_tokens"], taken + 1)
            if not taken:
                drawn["speculative_decoding"]["method"] = "ngram"
        if drawn["plant"]["kind"] != "step_loop":
            drawn["lockstep_ranks"] = False
    if name == "Disaggregation" and drawn["decider"]["kind"] == "uncached_tokens":
        drawn["order"] = "decode_first"
    if name == "Disaggregation" and (drawn["order"], drawn["handoff"]) != _DECODES_LATER:
        drawn["ends_at_first_token"] = False
    if name == "Disaggregation" and (drawn["order"], drawn["handoff"]) != _TRIES_AGAIN:
        drawn["prefill_max_retries"] = 0
    if name == "Conditional" and drawn["prefill_busy_threshold"] is None:
        drawn["rule"] = "isl_bounding"
    if name == "Client":
        is_closed = drawn["arrivals"]["kind"] == "closed_loop"
        drawn["requests_per_s"] = None if is_closed else drawn["requests_per_s"]
        if is_closed or drawn["requests_per_s"]:
            drawn["rate_fraction"] = 1.0
    if name == "ContextRange" and drawn["max_tokens"] is not None:
        drawn["max_tokens"] = max(drawn["max_tokens"], drawn["min_tokens"])
    if name == "RateLimit":
        outputs = {entry["slo_class"]: entry for entry in drawn["reserved_of_class"]}
        drawn["reserved_of_class"] = list(outputs.values())
        for key in drawn["own"]:
            key["tenant"] = key["tenant"] if "tenant" in drawn["key"] else None
            key["slo_class"] = key["slo_class"] if "class" in drawn["key"] else None
            key["model"] = key["model"] if "model" in drawn["key"] else None
