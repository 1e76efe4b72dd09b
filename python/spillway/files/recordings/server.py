"""Statements about servers under the names that tools use for them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from spillway._core.sim import ConfigError
from spillway.config.messages import note
from spillway.data.recording import ServerFacts
from spillway.files.error import TraceError, in_a_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


# Fact → the names under which files state it, the preferred one first.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "model_id"),
    "gpu": ("gpu", "hardware", "device_name"),
    "engine": ("engine",),
    "engine_version": ("engine_version", "vllm_version"),
    "tensor_parallel_size": ("tensor_parallel_size", "tensor_parallelism", "tensor_parallel", "tp"),
    "data_parallel_size": ("data_parallel_size", "dp"),
    "max_num_seqs": ("max_num_seqs",),
    "max_num_batched_tokens": ("max_num_batched_tokens",),
    "block_size_tokens": ("block_size_tokens", "block_size"),
    "num_kv_blocks": ("num_kv_blocks", "num_gpu_blocks", "kv_blocks_total_gpu"),
    "max_model_len": ("max_model_len", "max_seq_len"),
    "prefix_caching": ("prefix_caching", "enable_prefix_caching"),
    "async_scheduling": ("async_scheduling",),
    "role": ("server_role",),
}

FACT_NAMES = frozenset(name for names in _NAMES.values() for name in names)
"""All names of facts in files."""

_TEXTS = frozenset(
    name for fact in ("model", "gpu", "engine", "engine_version", "role") for name in _NAMES[fact]
)


def fact_of(name: str, text: str) -> str | int | bool | None:
    """Return the value of a fact that a file states as text; None if it is none of its kind."""
    text = text.strip()
    if name in _TEXTS:
        return text or None
    whole = text.removesuffix(".0")
    if whole.isdecimal() and len(whole) < 10:
        return int(whole)
    return {"true": True, "false": False}.get(text.lower())


def facts(place: str, *mappings: Mapping[str, Any]) -> ServerFacts:
    """Return the facts that mappings state, the first mapping that states one decides.

    A nested mapping is searched only if it is given itself. Raises TraceError with `place` if a
    value is invalid.
    """
    found: dict[str, Any] = {}
    for fact, names in _NAMES.items():
        values = (mapping.get(name) for mapping in mappings for name in names)
        value = next(
            (value for value in values if value is not None and not _is_nested(value)), None
        )
        if value is not None:
            found[fact] = value
    if "engine" not in found and any("vllm_version" in mapping for mapping in mappings):
        found["engine"] = "vllm"
    return _checked(place, found)


def vllm_facts(place: str, *mappings: Mapping[str, Any]) -> ServerFacts:
    """Return the facts of a server that is known to run vLLM."""
    return facts(place, *mappings, {"engine": "vllm"})


def merged(
    reported: ServerFacts, given: ServerFacts | Mapping[str, Any] | None, path: Path | str
) -> ServerFacts:
    """Return the facts of a file with those that the caller gives, which take precedence.

    Warns of a fact that the file states otherwise. Raises TraceError for an unknown fact or an
    invalid value.
    """
    given = dict(_stated(given)) if isinstance(given, ServerFacts) else dict(given or {})
    known = [field.name for field in dataclasses.fields(ServerFacts)]
    for name, value in given.items():
        if name not in known:
            raise TraceError(
                f"{path}, server.{name} = {value!r:.40}: not a fact; must be one of "
                f"{', '.join(known)}"
            )
    found = _checked(f"{path}, server", dict(_stated(reported)) | given)
    replaced(f"{path}, server", dict(_stated(reported)), given)
    return found


def replaced(place: str, reported: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Warn of what a file states and the caller gives otherwise, in one note."""
    names = [
        name
        for name, value in given.items()
        if value is not None and reported.get(name) not in (None, value)
    ]
    if names:
        shown = [", ".join(f"{name} = {of[name]!r}" for name in names) for of in (reported, given)]
        note(f"{place}: states {shown[0]}; what the caller gives replaces that: {shown[1]}")


def _checked(place: str, found: Mapping[str, Any]) -> ServerFacts:
    try:
        return ServerFacts(**found)
    except ConfigError as error:
        raise TraceError(f"{place}: {in_a_line(error)}") from error


def _stated(server: ServerFacts) -> Iterator[tuple[str, Any]]:
    for each in dataclasses.fields(server):
        if (value := getattr(server, each.name)) is not None:
            yield each.name, value


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)
