"""Descriptions of the settings, and a commented starter file, from the field descriptors."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

from spillway._core.cluster import Simulation
from spillway.config import files, profiles
from spillway.config.classes import allowed_values, annotation, config_error
from spillway.config.formatting import wrapped
from spillway.config.kinds import alternative

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_WIDTH = 100
_OF_PROFILE = {path for path, _, _ in profiles.SETTINGS}.union(
    *profiles.RULED_OUT.values(), profiles.NUMBERS
)


def describe(path: str = "") -> str:
    """The description of the setting, structure or policy at a dotted path.

    For example `gateway.admission.token_bucket`; indices are optional. Raises ConfigError for an
    unknown path.
    """
    place = descriptor(path)
    if place["type"] == "struct" and "name" not in place:
        return _noun(place["of"], path)
    return _setting(place, path)


def descriptor(path: str = "") -> Mapping[str, Any]:
    """The core's descriptor at a dotted path. Raises ConfigError for an unknown path."""
    place: Mapping[str, Any] = {"type": "struct", "of": Simulation._describe()}
    walked: list[str] = []
    for step in path.replace("[", ".").replace("]", "").split(".") if path else []:
        if step.isdigit():
            continue
        choices = _below(place)
        if step not in choices:
            where = f" in {'.'.join(walked)}" if walked else ""
            allowed = ", ".join(choices) or "none"
            raise config_error([(path, "", f"unknown setting {step!r}{where}; one of {allowed}")])
        place = choices[step]
        walked.append(step)
    return place


def paths(*, kinds: bool = True) -> Iterator[tuple[str, bool]]:
    """The dotted paths of all settings, and whether each ends in the kind of a policy.

    With `kinds=False` the paths leave out kinds, as they do in a simulation: a setting that several
    kinds have occurs several times.
    """

    def walk(place: Mapping[str, Any], path: str) -> Iterator[tuple[str, bool]]:
        is_variant = place["type"] == "variant"
        for step, below in _below(place).items():
            if is_variant and not kinds:
                yield from walk(below, path)
                continue
            further = f"{path}.{step}".lstrip(".")
            yield further, is_variant
            yield from walk(below, further)

    return walk({"type": "struct", "of": Simulation._describe()}, "")


_STARTER = """\
# yaml-language-server: $schema=spillway.schema.json
# Two tenants share two servers behind a gateway. `spillway run FILE` simulates it, `spillway check
# FILE` checks it, `spillway describe PATH` explains a setting, `spillway init --full` shows all.
# `spillway describe --schema > spillway.schema.json` lets editors complete this file.
schema: {schema}
profile: vllm

workload:
  kind: synthetic
  duration_s: 300
  clients:
    - {{name: chat, tenant: gold, slo_class: interactive, requests_per_s: 20,
       input_tokens: {{kind: lognormal, mu: 6.5, sigma: 0.8, max_tokens: 8000}},
       output_tokens: {{kind: lognormal, mu: 5.0, sigma: 0.6, max_tokens: 1000}}}}
    - {{name: crawler, tenant: free, slo_class: background, requests_per_s: 12,
       input_tokens: {{kind: lognormal, mu: 7.5, sigma: 0.6, max_tokens: 12000}},
       output_tokens: {{kind: fixed, tokens: 64}}}}

tenants:
  - {{name: gold, weight: 3}}
  - {{name: free, weight: 1}}
slo_classes:  # time to the first token that counts as good; a higher priority is served first
  - {{name: interactive, priority: 1, target_ttft_s: 0.5}}
  - {{name: background, priority: 0, target_ttft_s: 5}}

gateway:  # the limit that protects the servers; requests above it wait, by priority
  limit: {{kind: fixed, max_in_flight: 64}}  # the result says whether it is right
  bands: [{{priority: 1}}, {{priority: 0}}]
router: least_loaded
instances:
  - server: {{model: llama-3.1-8b, gpu: h100, max_model_len: 16384}}
    count: 2
"""


def starter() -> str:
    """A short configuration file to start from: tenants, targets, a limit, servers."""
    return _STARTER.format(schema=files.SCHEMA)


def all_settings() -> str:
    """A commented configuration file with the default of every setting.

    Settings that belong to a profile are commented out, so that `profile` decides them.
    """
    lines = [
        "# Spillway configuration. Every setting has its default: delete those you do not change.",
        "# `spillway describe PATH` explains a setting, `spillway check FILE` checks the file.",
        f"schema: {files.SCHEMA}",
        f"profile: {profiles.NAMES[0]}  # {' or '.join(profiles.NAMES)}",
    ]
    lines += _yaml(Simulation._describe(), Simulation().to_dict(), "", "")
    return "\n".join(lines) + "\n"


def _below(place: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The next steps of a path: the fields of a struct, the alternatives of a variant."""
    if place["type"] == "struct":
        return {field["name"]: field for field in place["of"]["fields"]}
    if place["type"] == "variant":
        return {kind["kind"]: {"type": "struct", "of": kind} for kind in place["alternatives"]}
    return {}


def _details(field: Mapping[str, Any]) -> str:
    parts = [field["unit"], allowed_values(field)]
    choices = field.get("choices", [kind["kind"] for kind in field.get("alternatives", ())])
    if choices:
        parts.append(f"one of {', '.join(choices)}")
    if field.get("optional"):
        parts.append("optional")
    if search := field.get("search"):
        scale = " (log)" if search["log"] else ""
        parts.append(f"search {search['low']:g} to {search['high']:g}{scale}")
    if "runtime" in field:
        parts.append("can change during a run")
    return "; ".join(part for part in parts if part)


def _short_default(field: Mapping[str, Any]) -> str:
    default = field["default"]
    if field["type"] == "variant" and default is not None:
        kinds = [policy["kind"] for policy in (default if isinstance(default, list) else [default])]
        return ", ".join(kinds)
    text = json.dumps(default)
    if len(text) <= 40:
        return text
    return f"{len(default)} entries" if isinstance(default, list) else "a group of settings"


def _noun(description: Mapping[str, Any], path: str) -> str:
    kind = f" (kind: {description['kind']})" if "kind" in description else ""
    blocks = [f"{path or 'simulation'}: {description['name']}{kind}", wrapped(description["doc"])]
    for field in description["fields"]:
        head = f"  {field['name']} = {_short_default(field)}"
        if details := _details(field):
            head += f"    [{details}]"
        blocks.append(f"{head}\n{wrapped(field['doc'], '      ')}")
    if reasons := description.get("reasons"):
        lines = [f"  {reason['name']}: {reason['doc']}" for reason in reasons]
        blocks.append("\n".join(["Rejects with:", *lines]))
    if "presets" in description:
        blocks.append("\n  ".join(["Presets:", *description["presets"]]))
    return "\n\n".join(blocks)


def _setting(field: Mapping[str, Any], path: str) -> str:
    is_variant = field["type"] == "variant"
    kind = annotation(field)
    if is_variant:
        kind = "a list of policies" if field.get("sequence") else "a policy"
    blocks = [f"{path}: {kind} = {_short_default(field)}", wrapped(field["doc"])]
    if not is_variant and (details := _details(field)):
        blocks.append(details)
    if field["type"] == "struct":
        blocks.append(_noun(field["of"], path))
    if is_variant:
        kinds = [wrapped(f"{kind['kind']}: {kind['doc']}", "  ") for kind in field["alternatives"]]
        blocks.append("\n".join([f"Kinds (more: spillway describe {path}.KIND):", *kinds]))
    return "\n\n".join(blocks)


def _yaml(
    description: Mapping[str, Any], values: Mapping[str, Any], indent: str, path: str
) -> list[str]:
    """The values of a structure as YAML lines, with a description above each setting."""
    lines = []
    for field in description["fields"]:
        details = _details(field)
        comment = field["doc"] + (f" [{details}]" if details else "")
        if not indent:
            lines.append("")
        lines += textwrap.wrap(
            comment,
            _WIDTH,
            initial_indent=f"{indent}# ",
            subsequent_indent=f"{indent}#   ",
            break_long_words=False,
        )
        here = f"{path}.{field['name']}".lstrip(".")
        entry = _yaml_entry(field, values[field["name"]], indent, here)
        if here in _OF_PROFILE:
            entry = [
                line
                if line.lstrip().startswith("#")
                else f"{indent}# {line.removeprefix(indent)}  # (set by the profile)"
                for line in entry
            ]
        lines += entry
    return lines


def _yaml_entry(field: Mapping[str, Any], value: Any, indent: str, path: str) -> list[str]:
    name = field["name"]
    if field["type"] not in ("struct", "variant") or value is None or value == []:
        return [f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}"]
    if not isinstance(value, list):
        return [f"{indent}{name}:", *_yaml_noun(field, value, indent + "  ", path)]
    lines = [f"{indent}{name}:"]
    for item in value:
        block = _yaml_noun(field, item, indent + "    ", path + "[]")
        first = next(i for i, line in enumerate(block) if not line.lstrip().startswith("#"))
        # The dash precedes the first setting; descriptions above it stay comments.
        block[first] = f"{indent}  - {block[first].lstrip()}"
        lines += block
    return lines


def _yaml_noun(
    field: Mapping[str, Any], value: Mapping[str, Any], indent: str, path: str
) -> list[str]:
    if field["type"] == "struct":
        return _yaml(field["of"], value, indent, path)
    chosen = _yaml(alternative(field, value["kind"]), value, indent, path)
    return [f"{indent}kind: {value['kind']}", *chosen]
