"""YAML and JSON of configuration files.

Plain values follow the core schema of YAML 1.2: `1e6`, `0x10` and `0o20` are numbers; `1:30`,
`1_000`, `2024-01-01`, `yes` and `no` are text; `010` is ten. Aliases, merge keys, tags of other
types and duplicate keys are errors, so a file is never larger than it looks.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from spillway.config import classes

if TYPE_CHECKING:
    from collections.abc import Mapping


_TAG = "tag:yaml.org,2002:"
_MOST_DIGITS = 309  # of the largest float
# Types of plain scalars: tag, pattern and first characters (YAML 1.2.2, section 10.3.2).
_CORE_SCHEMA = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
)


def parse(text: str, name: str, *, is_json: bool = False) -> Any:
    """The content of a text as dicts, lists, text, numbers, truth values and None.

    Raises ConfigError with the line if it cannot be parsed; errors call the file `name`.
    """
    try:
        if is_json:
            return json.loads(text, object_pairs_hook=unique_keys, parse_int=_int)
        return yaml.load(text, Loader=_Loader)
    except json.JSONDecodeError as error:
        where = f"{name} line {error.lineno}"
        raise classes.config_error([(where, "", f"not valid JSON: {error.msg}")]) from error
    except UnreadableError as error:
        raise classes.config_error([(name, "", f"not valid JSON: {error}")]) from error
    except RecursionError as error:
        raise classes.config_error([(name, "", "nested too deeply")]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name} line {mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise classes.config_error([(where, "", f"not valid YAML or JSON: {problem}")]) from error


def to_yaml(settings: Mapping[str, Any]) -> str:
    """YAML text that `parse` reads back unchanged."""
    return yaml.dump(settings, Dumper=_Dumper, sort_keys=False)


def to_flow(settings: Mapping[str, Any]) -> str:
    """YAML text on one line: {model: llama-3.1-8b, tp: 2}."""
    text: str = yaml.dump(
        settings, Dumper=_Dumper, sort_keys=False, default_flow_style=True, width=float("inf")
    )
    return text.rstrip("\n")


class UnreadableError(Exception):
    """Content that JSON allows and a configuration does not."""


def _int(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    if len(text) > _MOST_DIGITS:
        raise UnreadableError(f"a number of {len(text)} digits; must be <= {_MOST_DIGITS}")
    return int(text, base)


def is_unicode(content: Any) -> bool:
    """Whether all texts of a JSON document are Unicode: an escape may be half of a pair."""
    try:
        json.dumps(content, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict. Raises UnreadableError if a key is given twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise UnreadableError(f"the key {key!r:.40} is given twice")
            seen.add(key)
    return found


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012
    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        tag: yaml.SafeLoader.yaml_constructors[tag]
        for tag in (f"{_TAG}str", f"{_TAG}seq", f"{_TAG}map", None)
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            problem = f"the alias *{event.anchor} is not supported; repeat the value"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            problem = None
            if not isinstance(key, str):
                problem = f"a key must be text, not {key!r:.40}"
            elif key in seen:
                problem = f"the key {key!r:.40} is given twice"
            if problem:
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_plain(self, node: yaml.ScalarNode) -> Any:
        """A value of the core schema other than text; its tag may be explicit."""
        kind = node.tag.removeprefix(_TAG)
        plain = self.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
        if plain != node.tag:
            problem = f"{node.value!r:.40} is not a valid {kind}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        if kind == "int":
            try:
                return _int(node.value)
            except UnreadableError as error:
                raise yaml.constructor.ConstructorError(
                    None, None, str(error), node.start_mark
                ) from error
        return getattr(self, f"construct_yaml_{kind}")(node)


class ManifestLoader(_Loader):
    """Loads documents of other tools, in which aliases are common."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Resolves aliases."""
        return yaml.SafeLoader.compose_node(self, parent, index)


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or 1.2 would read as something else; lines of text stay lines."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True

    def represent_numbers(self, data: Any) -> yaml.Node:
        """A list of numbers on as few lines as possible."""
        is_numeric = bool(data) and all(type(number) in (int, float) for number in data)
        return self.represent_sequence(f"{_TAG}seq", data, flow_style=is_numeric or None)

    def represent_text(self, data: str) -> yaml.Node:
        """A text of several lines as a block."""
        return self.represent_scalar(f"{_TAG}str", data, style="|" if "\n" in data else None)


for _type in (list, tuple):
    _Dumper.add_representer(_type, _Dumper.represent_numbers)
_Dumper.add_representer(str, _Dumper.represent_text)
for _name, _pattern, _first in _CORE_SCHEMA:
    for _user in (_Loader, _Dumper):
        _user.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"^(?:{_pattern})$"), _first)
    _Loader.add_constructor(f"{_TAG}{_name}", _Loader.construct_plain)
