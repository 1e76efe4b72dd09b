"""Configuration files as patches of Kubernetes objects.

A command line is the command, the arguments and the environment of a container; a filter of Envoy
is an EnvoyFilter of Istio, limits of a cluster are a DestinationRule, or the cluster in an entry of
a ConfigMap if the manifests have that; another file that is no object by itself is an entry of a
ConfigMap. `kubectl patch` finds a container by its name, and
replaces its arguments as a whole.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Literal, get_args

from spillway.config.classes import config_error
from spillway.config.yaml import parse, to_yaml
from spillway.files.deployments import objects

if TYPE_CHECKING:
    from collections.abc import Mapping


Kind = Literal["deployment", "kserve"]
"""The object of a command line: `apps/v1` Deployment, or KServe's InferenceService."""

_OWN = ("EndpointPickerConfig",)  # no objects, for all their `kind`
_PROGRAM = re.compile(r"vllm serve |python -m [\w.]+ ?")


def patches(
    files: Mapping[str, str],
    groups: list[dict[str, Any]],
    kind: Kind,
    manifests: Mapping[str, str],
) -> tuple[dict[str, str], list[str]]:
    """The patches of files by name, and what to know about them.

    `groups`: the instances, whose counts are the replicas; `manifests`: files with the objects that
    are patched.

    Raises ConfigError for another kind, and if the object has no place for a command line.
    """
    if kind not in get_args(Kind):
        allowed = f"must be one of {', '.join(get_args(Kind))}"
        raise config_error([("patch", repr(kind), allowed)])
    found = {_name(name): _patch(name, text, groups, kind) for name, text in files.items()}
    if not manifests:
        return {name: to_yaml(patch) for name, patch in found.items()}, []
    known = objects.objects(manifests)
    pods = sum(group["count"] for group in groups)
    both = {name: objects.completed(name, patch, known, pods) for name, patch in found.items()}
    return (
        {name: to_yaml(patch) for name, (patch, _) in both.items()},
        [note for _, note in both.values()],
    )


def _name(name: str) -> str:
    return re.sub(r"\.[a-z]+$", "", name) + ".patch.yaml"


def _patch(name: str, text: str, groups: list[dict[str, Any]], kind: Kind) -> dict[str, Any]:
    if not name.endswith(".sh"):
        content = parse(text, name) if name.endswith(".yaml") else None
        if isinstance(content, dict):
            if "apiVersion" in content and content["kind"] not in _OWN:
                return content
            if "typed_config" in content:
                return _envoy_filter(content)
            if "circuit_breakers" in content:
                return _destination_rule(content)
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "$CONFIG_MAP"},
            "data": {name: text},
        }
    number = re.search(r"-([0-9]+)\.sh$", name)
    replicas = groups[int(number[1])]["count"] if number else None
    container = _container(text)
    return (
        _service(name, container, replicas) if kind == "kserve" else _workload(container, replicas)
    )


def _envoy_filter(content: dict[str, Any]) -> dict[str, Any]:
    """An HTTP filter in the gateways of Istio."""
    patch = {"operation": "INSERT_BEFORE", "value": content}
    place = {"applyTo": "HTTP_FILTER", "match": {"context": "GATEWAY"}}
    return {
        "apiVersion": "networking.istio.io/v1alpha3",
        "kind": "EnvoyFilter",
        "metadata": {"name": "$ENVOY_FILTER"},
        "spec": {"configPatches": [{**place, "patch": patch}]},
    }


def _destination_rule(content: dict[str, Any]) -> dict[str, Any]:
    """The limits of a cluster as Istio states them.

    An EnvoyFilter would add its thresholds behind those that Istio gives every cluster, and Envoy
    applies the first ones of a priority.
    """
    (limits,) = content["circuit_breakers"]["thresholds"]
    pool: dict[str, dict[str, int]] = {}
    for limit, (part, name) in objects.POOL.items():
        if limit in limits:
            pool.setdefault(part, {})[name] = limits[limit]
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "DestinationRule",
        "metadata": {"name": "$DESTINATION_RULE"},
        "spec": {"host": "$HOST", "trafficPolicy": {"connectionPool": pool}},
    }


def _container(text: str) -> dict[str, Any]:
    """Command, arguments and environment of a command line."""
    exports = re.findall(r"(?m)^export (\w+)=(.*)$", text)
    line = re.sub(r"(?m)^export .*\n", "", text).replace("\\\n", " ")
    program = _PROGRAM.match(line)
    start = program.end() if program else 0
    args = [re.sub(r"\$\{(\w+):\?\}", r"$\1", word) for word in shlex.split(line[start:])]
    return {
        "name": "$CONTAINER",
        "command": shlex.split(line[:start]),
        "args": args,
        **({"env": [{"name": key, "value": value} for key, value in exports]} if exports else {}),
    }


def _workload(container: dict[str, Any], replicas: int | None) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "$DEPLOYMENT"},
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "template": {"spec": {"containers": [container]}},
        },
    }


def _service(name: str, container: dict[str, Any], replicas: int | None) -> dict[str, Any]:
    """The predictor runs vLLM on a model that the service names; it takes the flags."""
    if container["command"] != ["vllm", "serve"] or replicas is None:
        allowed = "must be a command line of `vllm serve`: an InferenceService has no other"
        raise config_error([(f"patch: {name}", "kserve", allowed)])
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "$SERVICE"},
        "spec": {
            "predictor": {
                "minReplicas": replicas,
                "maxReplicas": replicas,
                "model": {"args": container["args"][1:]},
            }
        },
    }
