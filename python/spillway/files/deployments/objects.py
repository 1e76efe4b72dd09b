"""The objects of Kubernetes that patches change: names, namespaces, selectors and contexts.

A patch finds its object by kind and content: the filter, the entry of a ConfigMap, the program of a
container. Objects of Istio are patched as a whole, so all that the patch does not change is kept.
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from spillway.config.yaml import ManifestLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_IDENTITY = ("name", "namespace", "labels")
_ROUTER = r"sglang[_-]router|sgl-model-gateway|sgl-router"
_PROGRAMS = {  # of the name of a file: what the container that runs it has in its image or words
    "vllm": r"vllm",
    "sglang": rf"(?s)^(?!.*(?:{_ROUTER})).*sglang",
    "router": _ROUTER,
    "trtllm": r"trtllm|tensorrt",
    "frontend": r"dynamo.frontend",
    "worker": r"dynamo\.(?:vllm|sglang|trtllm)",
}
_WORKLOADS = ("Deployment", "StatefulSet")
_BUCKET = ("max_tokens", "tokens_per_fill")
POOL = {
    "max_connections": ("tcp", "maxConnections"),
    "max_pending_requests": ("http", "http1MaxPendingRequests"),
    "max_requests": ("http", "http2MaxRequests"),
}
"""The limits of a cluster of Envoy in the connection pool of a DestinationRule of Istio."""
INBOUND = "SIDECAR_INBOUND"
"""The context of filters that count in the pod of each server."""


def objects(texts: Mapping[str, str]) -> list[dict[str, Any]]:
    """The objects in manifests by name, those of lists among them; other files are left out."""
    found = []
    for text in texts.values():
        try:
            documents = list(yaml.load_all(text, Loader=ManifestLoader))
        except (yaml.YAMLError, RecursionError):
            continue
        for document in documents:
            if isinstance(document, dict):
                items = document.get("items")
                inside = items if isinstance(items, list) else [document]
                found += [entry for entry in inside if isinstance(entry, dict) and "kind" in entry]
    return found


def completed(
    name: str, patch: dict[str, Any], known: Sequence[dict[str, Any]], pods: int
) -> tuple[dict[str, Any], str]:
    """The patch with what its object has, and a note: what it keeps, or why it is as it was.

    `name`: of the file; `known`: all objects; `pods`: how many servers there are, among which a
    limit for all is divided if it is of their sidecars.
    """
    kind = patch["kind"]
    complete, own = _COMPLETIONS.get(kind, _named), _Patch(name, patch, pods)
    found = [(entry, done) for entry in known if (done := complete(own, entry))]
    number = re.match(r"[a-z]+-([0-9]+)\.", name)
    if number and int(number[1]) < len(found):
        found = [found[int(number[1])]]
    if len(found) != 1:
        how_many = f"{len(found)} objects" if found else "no object"
        fit = "fit" if found else "fits"
        return (
            patch,
            f"{name}: {how_many} of the manifests {fit} this {kind}: fill in its variables",
        )
    ((entry, (completed_patch, what)),) = found
    where = "/".join(str(part) for part in _identity(entry).values() if isinstance(part, str))
    return completed_patch, f"{name}: is {entry['kind']} {where} with {what}"


def _identity(entry: Mapping[str, Any]) -> dict[str, Any]:
    metadata = entry.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    return {key: given[key] for key in ("namespace", "name") if key in given}


class _Patch(NamedTuple):
    """A patch: the name of its file, its content, and how many servers there are."""

    name: str
    content: dict[str, Any]
    pods: int


Done = tuple[dict[str, Any], str]


def _named(own: _Patch, entry: dict[str, Any]) -> Done | None:
    """An object of the same kind; one that has a name in the patch must have the same."""
    wanted = own.content["metadata"]["name"]
    if entry["kind"] != own.content["kind"] or not (
        wanted.startswith("$") or wanted == _identity(entry).get("name")
    ):
        return None
    done = copy.deepcopy(own.content)
    done["metadata"] |= _identity(entry)
    for key in ("scaleTargetRef", "poolRef"):
        reference = _at(entry, "spec", key)
        if reference and key in done["spec"]:
            done["spec"][key] = reference
    return done, "its name"


def _workload(own: _Patch, entry: dict[str, Any]) -> Done | None:
    if entry["kind"] not in _WORKLOADS:
        return None
    program = _PROGRAMS.get(re.split(r"[-.]", own.name)[0], r"(?!)")
    containers = _at(entry, "spec", "template", "spec", "containers") or []
    running = [
        container
        for container in containers
        if re.search(program, " ".join(_texts([container.get(key) for key in _WORDS])))
    ]
    if len(running) != 1 or "name" not in running[0]:
        return None
    done = copy.deepcopy(own.content)
    done |= {
        "apiVersion": entry.get("apiVersion", own.content["apiVersion"]),
        "kind": entry["kind"],
    }
    done["metadata"] = _identity(entry)
    (written,) = done["spec"]["template"]["spec"]["containers"]
    written["name"] = running[0]["name"]
    line = "\n".join(_texts([running[0].get(key) for key in _WORDS]))
    if model := re.search(r"(?:--model(?:-path)?[=\s]|\bserve\s)([^\s-]\S*)", line):
        written["args"] = [model[1] if word == "$MODEL" else word for word in written["args"]]
    if "$WORKER_URLS" in written["args"] and (found := _workers(running[0])):
        at = written["args"].index("$WORKER_URLS")
        written["args"][at - 1 : at + 1] = found
    return done, f"its container {written['name']}"


_WORDS = ("image", "command", "args")
_FINDS_WORKERS = re.compile(r"--(?:worker-urls|service-discovery|selector)")


def _workers(container: Mapping[str, Any]) -> list[str]:
    """The words by which a router finds its workers."""
    found, is_taken = [], False
    for word in _texts([container.get("command"), container.get("args")]):
        if word.startswith("-"):
            is_taken = bool(_FINDS_WORKERS.match(word))
        if is_taken:
            found.append(word)
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for entry in value:
            yield from _texts(entry)
    elif isinstance(value, str):
        yield value


def _config_map(own: _Patch, entry: dict[str, Any]) -> Done | None:
    ((file, text),) = own.content["data"].items()
    kind = re.search(r"(?m)^kind: .*$", text)
    data = entry.get("data")
    if entry["kind"] != "ConfigMap" or not isinstance(data, dict):
        return None
    keys = [key for key, value in data.items() if key == file or (kind and kind[0] in str(value))]
    if len(keys) != 1:
        return None
    done = {**own.content, "metadata": _identity(entry), "data": {keys[0]: text}}
    return done, f"its entry {keys[0]}"


def _envoy_filter(own: _Patch, entry: dict[str, Any]) -> Done | None:
    (written,) = own.content["spec"]["configPatches"]
    value = written["patch"]["value"]
    kind = value["typed_config"]["@type"]
    if entry["kind"] != "EnvoyFilter":
        return None
    done = copy.deepcopy(entry)
    places = [
        place
        for place in _at(done, "spec", "configPatches") or []
        if kind in _strings(_at(place, "patch", "value", "typed_config"))
    ]
    if len(places) != 1:
        return None
    context = _at(places[0], "match", "context") or "ANY"
    new, shared = copy.deepcopy(value), ""
    if context == INBOUND and "token_bucket" in new["typed_config"]:
        bucket = new["typed_config"]["token_bucket"]
        whole = bucket["max_tokens"]
        bucket |= {key: max(1, bucket[key] // own.pods) for key in _BUCKET}
        shared = f", and its share of the limit for {own.pods} pods{_rounded(bucket, whole, own)}"
    places[0]["patch"]["value"] = new
    return _cleaned(done), f"all else of it, such as its context {context}{shared}"


def _rounded(bucket: Mapping[str, Any], whole: int, own: _Patch) -> str:
    """What all pods together have, if their equal shares are not the whole limit."""
    together = bucket["max_tokens"] * own.pods
    if together == whole:
        return ""
    return f", {bucket['max_tokens']} each: {together} in all instead of {whole}"


def _strings(value: Any) -> list[str]:
    """The type of a filter, which may be that of a TypedStruct."""
    return [str(value.get(key)) for key in ("@type", "type_url")] if isinstance(value, dict) else []


def _destination_rule(own: _Patch, entry: dict[str, Any]) -> Done | None:
    if entry["kind"] == "ConfigMap":
        return _cluster(own, entry)
    if entry["kind"] != "DestinationRule":
        return None
    done = copy.deepcopy(entry)
    pool = done.setdefault("spec", {}).setdefault("trafficPolicy", {}).setdefault(_POOL, {})
    written = own.content["spec"]["trafficPolicy"][_POOL]
    for part in dict.fromkeys(part for part, _ in POOL.values()):
        known = [name for of, name in POOL.values() if of == part]
        kept = {key: value for key, value in (pool.get(part) or {}).items() if key not in known}
        pool[part] = kept | written.get(part, {})
        if not pool[part]:
            del pool[part]
    return _cleaned(done), "all else of it, such as its host"


_POOL = "connectionPool"


def _cluster(own: _Patch, entry: dict[str, Any]) -> Done | None:
    """The only cluster of an Envoy whose configuration is an entry of a ConfigMap."""
    data = entry.get("data")
    texts = data.items() if isinstance(data, dict) else ()
    found = [(key, content) for key, text in texts if (content := _with_a_cluster(text))]
    if len(found) != 1:
        return None
    ((key, content),) = found
    (cluster,) = content["static_resources"]["clusters"]
    written = own.content["spec"]["trafficPolicy"][_POOL]
    limits = {
        limit: written[part][name]
        for limit, (part, name) in POOL.items()
        if name in written.get(part, {})
    }
    breakers = cluster.setdefault("circuit_breakers", {})
    known = breakers.get("thresholds") or [{}]
    usual = [limit for limit in known if limit.get("priority", "DEFAULT") == "DEFAULT"]
    kept = {name: value for name, value in (usual or [{}])[0].items() if name not in POOL}
    breakers["thresholds"] = [{**kept, **limits}, *(of for of in known if of not in usual)]
    done = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _identity(entry),
        "data": {key: yaml.safe_dump(content, sort_keys=False)},
    }
    return (
        done,
        f"the limits of its only cluster replaced, and all else of its entry {key} but comments",
    )


def _with_a_cluster(text: object) -> dict[str, Any] | None:
    """The configuration of an Envoy with one cluster; None: it is another text."""
    try:
        content = yaml.load(str(text), Loader=ManifestLoader)
    except (yaml.YAMLError, RecursionError):
        return None
    clusters = _at(content, "static_resources", "clusters")
    is_one = isinstance(clusters, list) and len(clusters) == 1 and isinstance(clusters[0], dict)
    return content if is_one else None


def _cleaned(entry: dict[str, Any]) -> dict[str, Any]:
    """The object without what the cluster adds to it."""
    entry.pop("status", None)
    metadata = entry.get("metadata") or {}
    entry["metadata"] = {key: metadata[key] for key in _IDENTITY if key in metadata}
    return entry


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


_COMPLETIONS: Mapping[str, Callable[[_Patch, dict[str, Any]], Done | None]] = {
    **dict.fromkeys(_WORKLOADS, _workload),
    "ConfigMap": _config_map,
    "EnvoyFilter": _envoy_filter,
    "DestinationRule": _destination_rule,
}
