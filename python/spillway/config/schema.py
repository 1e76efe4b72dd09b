"""The JSON Schema of configuration files, from the field descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway._core.cluster import Simulation
from spillway.config import profiles
from spillway.config.files import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping


_JSON_TYPES = {
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "str": "string",
    "mapping": "object",
}


def file_schema(*, presets: Mapping[str, Any], server: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema (2020-12) of a configuration file.

    `presets`, `server`: the schemas of the file's key `presets`, and of the key `server` of
    instances.
    """
    schema = _object_schema(Simulation._describe())
    for alternative in schema["properties"]["instances"]["anyOf"]:
        alternative.get("items", alternative)["properties"]["server"] = server
    schema["properties"] = {
        "schema": {"const": SCHEMA, "description": "Version of the file format."},
        "profile": {
            "enum": list(profiles.NAMES),
            "description": "Profile of the simulation's semantics.",
        },
        "presets": presets,
        "traffic": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": "Changes of the traffic, e.g. 'B: rate x5 from 60s to 120s'.",
        },
        **schema["properties"],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Spillway",
        **schema,
    }


def _field_schema(field: Mapping[str, Any]) -> dict[str, Any]:
    kind = field["type"]
    schema: dict[str, Any]
    if kind in _JSON_TYPES:
        schema = {"type": _JSON_TYPES[kind]}
        for key, word in (
            ("at_least", "minimum"),
            ("more_than", "exclusiveMinimum"),
            ("at_most", "maximum"),
            ("less_than", "exclusiveMaximum"),
        ):
            if key in field:
                schema[word] = field[key]
    elif kind == "choice":
        schema = {"enum": field["choices"]}
    elif kind == "struct":
        schema = _object_schema(field["of"])
    else:
        kinds = [alternative["kind"] for alternative in field["alternatives"]]
        schema = {"anyOf": [{"enum": kinds}, *map(_object_schema, field["alternatives"])]}
    if field.get("sequence"):
        listed = {"type": "array", "items": schema}
        schema = {"anyOf": [listed, schema]} if kind in ("struct", "variant") else listed
    if field.get("optional"):
        schema = {"anyOf": [schema, {"type": "null"}]}
    unit = f" [{field['unit']}]" if field["unit"] else ""
    description = field["doc"] + unit
    return {**schema, "description": description, "default": field["default"]}


def _object_schema(description: Mapping[str, Any]) -> dict[str, Any]:
    properties = {field["name"]: _field_schema(field) for field in description["fields"]}
    schema: dict[str, Any] = {"type": "object", "description": description["doc"]}
    if "presets" in description:
        properties["preset"] = {
            "enum": description["presets"],
            "description": "Values to start from.",
        }
    if "kind" in description:
        properties = {"kind": {"const": description["kind"]}, **properties}
        schema["required"] = ["kind"]
    return {**schema, "properties": properties, "additionalProperties": False}
