"""What the surroundings of a place in a manifest say about the programs that it starts."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ROLES = ("prefill", "decode")
"""The sections and names of workers that share the work on a request."""

SIZES = ("replicas", "replicaCount", "minReplicas", "scale")
"""The keys with a number of replicas."""

_PARALLEL = {
    "tensor": "--tensor-parallel-size",
    "data": "--data-parallel-size",
    "dataLocal": "--data-parallel-size-local",
    "pipeline": "--pipeline-parallel-size",
}


@dataclass(frozen=True)
class Context:
    """What the surroundings of a place say about it."""

    label: str  # of a piece
    replicas: int | None = None
    role: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    flags: tuple[str, ...] = ()
    image: str = ""
    default: str = ""  # the program of a container that names none
    is_helper: bool = False
    is_root: bool = True  # of a document
    is_text: bool = False  # what is said there starts nothing


def below(value: Mapping[str, Any], context: Context) -> tuple[Context, set[str]]:
    """The context of what a mapping holds, and the keys that made it."""
    used: set[str] = set()
    context = _labeled(value, context)
    for key in SIZES:
        size = value.get(key)
        if isinstance(size, int) and not isinstance(size, bool):
            outer = 1 if context.replicas is None else context.replicas
            context = replace(context, replicas=outer * size)
            used.add(key)
            break
    deploy = value.get("deploy")
    if isinstance(deploy, dict) and isinstance(deploy.get("replicas"), int):
        context = replace(context, replicas=deploy["replicas"])
    for part in (_with_variables, _with_model, _with_parallelism):
        context = part(value, context, used)
    return context, used


def _labeled(value: Mapping[str, Any], context: Context) -> Context:
    """The context with kind, name and role of a mapping."""
    kind, metadata = value.get("kind"), value.get("metadata")
    if isinstance(kind, str) and "apiVersion" in value:
        name = metadata.get("name") if isinstance(metadata, dict) else None
        file = context.label.partition(" document ")[0]
        context = replace(context, label=f"{file}: {kind} {name}" if name else f"{file}: {kind}")
    role = value.get("subComponentType", value.get("name"))
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    if isinstance(labels, dict) and "llm-d.ai/role" in labels:
        role = labels["llm-d.ai/role"]
    if role in ROLES:
        context = replace(context, role=str(role))
    kind = component(value)
    if kind:
        context = replace(context, label=f"{context.label}: {value.get('name') or kind}")
    return replace(context, default="dynamo.frontend") if kind == "frontend" else context


def _with_variables(value: Mapping[str, Any], context: Context, used: set[str]) -> Context:
    """The context with the variables that all containers below have."""
    entries = value.get("envs")
    if not isinstance(entries, list):
        return context
    given = {
        str(entry["name"]): word(entry.get("value", ""))
        for entry in entries
        if isinstance(entry, dict) and entry.keys() <= {"name", "value"} and "name" in entry
    }
    if len(given) == len(entries):
        used.add("envs")
    return replace(context, environment={**context.environment, **given})


def _with_model(value: Mapping[str, Any], context: Context, used: set[str]) -> Context:
    """The context with the model that all servers below have."""
    for key, default in (("modelArtifacts", ""), ("model", "vllm")):
        model = value.get(key)
        if isinstance(model, dict) and isinstance(model.get("uri"), str):
            used |= {key} if set(model) == {"uri"} else set()
            return replace(context, model=repository(model["uri"]), default=default)
    return context


def _with_parallelism(value: Mapping[str, Any], context: Context, used: set[str]) -> Context:
    parallelism = value.get("parallelism")
    if not isinstance(parallelism, dict):
        return context
    flags = [f"{_PARALLEL[key]}={size}" for key, size in parallelism.items() if key in _PARALLEL]
    if parallelism.get("expert") is True:
        flags.append("--enable-expert-parallel")
    if set(parallelism) <= {*_PARALLEL, "expert"}:
        used.add("parallelism")
    return replace(context, flags=tuple(flags))


def inside(key: str, siblings: set[str], context: Context) -> Context:
    """The context of a field of a mapping."""
    if key in ("initContainers", "worker") or (
        key == "workerTemplate" and "leaderTemplate" in siblings
    ):
        return replace(context, is_helper=True)
    if key == "router":  # of an LLMInferenceService
        return replace(context, default="", model="", replicas=None)
    if key in ("metadata", "description", "status") or key.startswith("x-"):
        return replace(context, is_text=True)
    return context


def component(value: Mapping[str, Any]) -> str:
    """The type of a component of Dynamo."""
    found = value.get("componentType", value.get("type") if "podTemplate" in value else None)
    return found if isinstance(found, str) else ""


def is_scalar(value: Any) -> bool:
    """Whether a value can be a word of a command."""
    return value is None or isinstance(value, str | int | float)


def word(value: Any) -> str:
    """A value as the text that a program sees."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value)
    return "" if value is None else str(value)


def words(value: Any) -> list[str] | None:
    """The words of a command, which is a list or a text."""
    if isinstance(value, str):
        try:
            return shlex.split(value.replace("\\\n", " "), comments=False)
        except ValueError:
            return value.split()
    if isinstance(value, list) and all(is_scalar(entry) for entry in value):
        return [word(entry) for entry in value]
    return None


def repository(uri: str) -> str:
    """The repository of an address such as hf://Qwen/Qwen3-8B; others stay."""
    return uri.removeprefix("hf://").removeprefix("huggingface://")
