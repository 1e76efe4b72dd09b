"""The reference of settings and policies, from descriptors and the pages of the rooms."""

from __future__ import annotations

import functools
import json
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from documentation.markdown import (
    code,
    facts,
    fence,
    label,
    link,
    page,
    prose,
    rooted,
    sentence,
    table,
)
from spillway.config.classes import allowed_values, annotation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

Description: TypeAlias = "Mapping[str, Any]"

ROOMS = {
    "admission": ("cpp/gateway/admission/README.md", "Admission policies"),
    "fairness": ("cpp/gateway/fairness/README.md", "Fairness policies"),
    "limit": ("cpp/gateway/limit/README.md", "Limits"),
    "usage_limit": ("cpp/gateway/usage_limit/README.md", "Usage limits"),
    "controller": ("cpp/gateway/controller/README.md", "Limit controllers"),
    "router": ("cpp/router/README.md", "Routers"),
    "filters": ("cpp/router/README.md", "Filters"),
    "scorers": ("cpp/router/README.md", "Scorers"),
    "picker": ("cpp/router/README.md", "Pickers"),
    "decider": ("cpp/router/README.md", "Deciders"),
}
"""Seams whose alternatives the page of a room compares: the page, and the heading of the table."""

BACKGROUND = {
    "workload": "traffic",
    "arrivals": "traffic",
    "lengths": "traffic",
    "transforms": "traffic",
    "signals": "routing",
    "ingress": "engine",
    "scheduler": "engine",
    "plant": "engine",
    "latency": "latency_models",
    "autoscaler": "fleet",
    "faults": "fleet",
    "processor_sharing": "processor_sharing",
}
"""Seams and kinds without such a table: the page of the background with scope and limits."""

_SEAM_OF = {"input_tokens": "lengths", "output_tokens": "lengths"}
_PROOFS = (
    ("pathologies/", "pathologies and their cures"),
    ("parity/", "parity with another system"),
    ("_oracle.py", "oracle"),
    ("_theory.py", "theory"),
    ("_quirks.py", "faults of a published system, reproduced"),
    ("specimen", "reference rule, random settings and golden logs"),
    ("test_", "unit tests"),
)


class MissingTextError(Exception):
    """A part of the program lacks the text that its page of the reference is made of."""


@dataclass(frozen=True)
class Row:
    """A row of the table of a room: what the page says of a policy, by column."""

    columns: Mapping[str, str]
    variants: Sequence[tuple[str, Mapping[str, str]]] = ()


@dataclass
class Seam:
    """A setting that takes one of several policies."""

    name: str
    doc: str
    paths: list[str]
    alternatives: Sequence[Description]
    is_list: bool


@dataclass
class Catalog:
    """All structures by the name of their class, each with its first path, and all seams."""

    nouns: dict[str, tuple[Description, str]] = field(default_factory=dict)
    seams: dict[tuple[str, ...], Seam] = field(default_factory=dict)

    def seam_of(self, setting: Description) -> Seam:
        """The seam of a setting of type `variant`."""
        return self.seams[_key(setting)]


def catalog(description: Description) -> Catalog:
    """The structures and seams below a description, breadth first: the shortest path counts."""
    found = Catalog({description["name"]: (description, "")})
    places = [(description, "")]
    for noun, path in places:
        for setting in noun["fields"]:
            here = f"{path}.{setting['name']}".lstrip(".")
            if setting["type"] == "struct":
                below = [(setting["of"], here)]
            elif setting["type"] == "variant":
                name = _SEAM_OF.get(setting["name"], setting["name"])
                seam = Seam(
                    name, setting["doc"], [], setting["alternatives"], "sequence" in setting
                )
                found.seams.setdefault(_key(setting), seam).paths.append(here)
                below = [(policy, f"{here}.{policy['kind']}") for policy in setting["alternatives"]]
            else:
                continue
            for entry in below:
                if entry[0]["name"] not in found.nouns:
                    found.nouns[entry[0]["name"]] = entry
                    places.append(entry)
    return found


def room_rows(text: str, heading: str) -> dict[str, Row]:
    """The rows of the table below a heading, by kind."""
    section = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL
    )
    lines = re.findall(r"^\| (.*) \|$", section[1] if section else "", re.MULTILINE)
    head: list[str] = []
    rows: dict[str, Row] = {}
    for line in lines:
        cells = re.split(r"(?<!\\) \| ", line)
        if cells[0] == "kind":
            head = cells[1:]
        elif head and (kind := re.fullmatch(r"`(\w+)`", cells[0])):
            rows[kind[1]] = Row(dict(zip(head, cells[1:], strict=True)))
        elif head and cells[0].startswith("— "):
            last = [*rows][-1]
            variant = (cells[0].removeprefix("— "), dict(zip(head, cells[1:], strict=True)))
            rows[last] = Row(rows[last].columns, (*rows[last].variants, variant))
        elif "kind" not in line and not line.startswith("-"):
            head = []
    return rows


def pages(
    description: Description, root: Path, carriers: Callable[[str], Iterable[object] | None]
) -> dict[str, str]:
    """The pages of all settings and policies, by their names in the site.

    `carriers`: the systems that carry the policy at a path, as `files.deployments.carriers`.

    Raises MissingTextError for a policy that the page of its room does not describe.
    """
    return _Reference(description, root, carriers).pages()


class _Reference:
    def __init__(
        self,
        description: Description,
        root: Path,
        carriers: Callable[[str], Iterable[object] | None],
    ) -> None:
        self._root = root
        self._carriers = carriers
        self._description = description
        self._catalog = catalog(description)
        self._seam_of_class = {
            policy["name"]: seam
            for seam in self._catalog.seams.values()
            for policy in seam.alternatives
        }
        self._nested: dict[str, list[str]] = {}  # the structures on each page
        for name, (_, path) in self._catalog.nouns.items():
            self._nested.setdefault(self._page_of(path), []).append(name)

    def pages(self) -> dict[str, str]:
        found = {"reference/settings/index": self._settings_index()}
        found["reference/policies/index"] = self._policies_index()
        for seam in self._catalog.seams.values():
            folder = f"reference/policies/{seam.name}"
            rows = self._rows_of(seam)
            found[f"{folder}/index"] = self._seam(seam, rows)
            for policy in seam.alternatives:
                found[f"{folder}/{policy['kind']}"] = self._policy(
                    seam, policy, rows.get(policy["kind"])
                )
        for place, names in self._nested.items():
            if place.startswith("reference/settings/"):
                found[place] = page(
                    f"# {prose(_words(place.rpartition('/')[2]))}",
                    *(self._noun(name, level=2) for name in names),
                )
        return found

    def _page_of(self, path: str) -> str:
        """The page of a structure: that of its policy, or else of its setting at the root."""
        nouns = self._catalog.nouns
        steps = path.split(".")
        for end in range(len(steps), 0, -1):
            prefix = ".".join(steps[:end])
            for other, (noun, at) in nouns.items():
                if at == prefix and "kind" in noun:
                    return f"reference/policies/{self._seam_of_class[other].name}/{noun['kind']}"
        return f"reference/settings/{steps[0] or 'simulation'}"

    def _rows_of(self, seam: Seam) -> Mapping[str, Row]:
        if seam.name not in ROOMS:
            return {}
        file, heading = ROOMS[seam.name]
        text = (self._root / file).read_text(encoding="utf-8")
        rows = room_rows(rooted(text, posixpath.dirname(file)), heading)
        for policy in seam.alternatives:
            if policy["kind"] not in rows:
                text = (
                    f"the table under '{heading}' has no row for the {seam.name} `{policy['kind']}`"
                )
                raise MissingTextError(f"{file}: {text}")
        return rows

    # ---- pages ----

    def _settings_index(self) -> str:
        rows = []
        for path, noun, setting in _all_settings(self._description):
            at = link(f"`{path}`", _setting_label(noun, setting))
            unit = f" ({prose(setting['unit'])})" if setting["unit"] else ""
            rows.append(f"- {at}: {prose(_first_sentence(setting['doc']))}{unit}")
        return page(
            "# Settings",
            "Every setting of a simulation, by its path. A configuration file, `--set` and "
            "`Simulation.with_` use these paths; below a list stands an index or the name of an "
            "entry, as in `gateway.bands[0].queue.timeout_s`. `spillway describe PATH` prints the "
            "same in a shell. The {download}`JSON Schema <../spillway.schema.json>` lets editors "
            "complete configuration files.",
            "\n".join(rows),
        )

    def _policies_index(self) -> str:
        rows = [
            [
                f"[{seam.name}]({seam.name}/index.md)",
                prose(seam.doc),
                ", ".join(
                    link(f"`{policy['kind']}`", f"policy-{seam.name}-{policy['kind']}")
                    for policy in seam.alternatives
                ),
            ]
            for seam in self._seams_in_order()
        ]
        return page(
            label("reference-policies"),
            "# Policies and models",
            "A setting with a `kind` takes one of several policies. Each has a page with its rule, "
            "its settings, its trade-offs, the reasons for which it rejects, the systems that its "
            "settings can be exported to, and its tests.",
            table(["setting", "meaning", "kinds"], rows),
        )

    def _seams_in_order(self) -> list[Seam]:
        """The seams in the order of a simulation's settings: that of a request's life."""
        paths = [path for path, _, _ in _all_settings(self._description)]
        return sorted(self._catalog.seams.values(), key=lambda seam: paths.index(seam.paths[0]))

    def _seam(self, seam: Seam, rows: Mapping[str, Row]) -> str:
        lines = []
        for policy in seam.alternatives:
            at = link(f"`{policy['kind']}`", f"policy-{seam.name}-{policy['kind']}")
            columns = [*rows[policy["kind"]].columns.values()] if rows else [prose(policy["doc"])]
            lines.append([at, *map(sentence, [columns[0], *columns[1:][-1:]])])
        head = ["rule", "trade-offs"] if rows else ["rule"]
        return page(
            label(f"seam-{seam.name}"),
            f"# {_words(seam.name)}",
            prose(seam.doc),
            facts(
                ("setting", ", ".join(map(code, seam.paths))),
                ("a list", "all entries apply, in order" if seam.is_list else ""),
            ),
            table(["kind", *head], lines),
        )

    def _policy(self, seam: Seam, noun: Description, row: Row | None) -> str:
        name = noun["name"]
        blocks = [label(f"policy-{seam.name}-{noun['kind']}"), f"# `{noun['kind']}`"]
        blocks += [f"A kind of {link(code(seam.name), f'seam-{seam.name}')}.", prose(noun["doc"])]
        if row is not None:
            blocks += ["## Scope and limits", _facts_of(row.columns)]
            for words, columns in row.variants:
                blocks += [f"### With {words}", _facts_of(columns)]
        elif about := BACKGROUND.get(noun["kind"], BACKGROUND.get(seam.name, "")):
            words = f"[{_words(about)}](/docs/background/{about}.md)"
            blocks += ["## Scope and limits", f"{words} has those of all alternatives together."]
        else:
            raise MissingTextError(f"no page of the background is about the setting `{seam.name}`")
        blocks += ["## Settings"]
        blocks.append(
            fence(f"{seam.paths[0]}: {'[' if seam.is_list else ''}{{kind: {noun['kind']}}}"
                  f"{']' if seam.is_list else ''}", "yaml")
        )  # fmt: skip
        blocks.append("" if noun["fields"] else "It has none.")
        blocks += [self._noun(name, level=2, is_policy=True)]
        place = f"reference/policies/{seam.name}/{noun['kind']}"
        blocks += [
            self._noun(other, level=2) for other in self._nested.get(place, []) if other != name
        ]
        blocks += [self._tests(name)]
        return page(*blocks)

    def _noun(self, name: str, *, level: int, is_policy: bool = False) -> str:
        noun, path = self._catalog.nouns[name]
        mark = "#" * level
        blocks = (
            [] if is_policy else [label(f"class-{name}"), f"{mark} `{name}`", prose(noun["doc"])]
        )
        where = [f"`{path or 'the root of a simulation'}`", f"class `{name}`"]
        if source := self._source_of(name):
            where.append(f"defined in `{source}`")
        if "kind" in noun and (carried := self._carriers(path)) is not None:
            where.append(f"exported to {', '.join(map(code, map(str, carried))) or 'no system'}")
        if is_policy:
            blocks.append(label(f"class-{name}"))
        blocks.append(f"{{.facts}}\n{' · '.join(where)}")
        for setting in noun["fields"]:
            blocks += [
                label(_setting_label(noun, setting)),
                f"{mark}# `{setting['name']}`",
                prose(setting["doc"]),
                self._facts(setting),
            ]
        if noun.get("reasons"):
            rows = [
                [
                    link(f"`{reason['name']}`", f"reason-{reason['name']}"),
                    reason["word"],
                    sentence(prose(reason["doc"])),
                ]
                for reason in noun["reasons"]
            ]
            blocks += [f"{mark} Rejects with", table(["reason", "category", "meaning"], rows)]
        if noun.get("presets"):
            blocks += [f"{mark} Presets", ", ".join(map(code, noun["presets"]))]
        return page(*blocks)

    def _facts(self, setting: Description) -> str:
        pairs = [("type", self._type_of(setting)), ("default", code(_default(setting)))]
        pairs += [("unit", prose(setting["unit"])), ("range", prose(allowed_values(setting)))]
        if "search" in setting:
            search = setting["search"]
            scale = ", logarithmic" if search["log"] else ""
            pairs.append(("search", f"{search['low']:g} to {search['high']:g}{scale}"))
        if "runtime" in setting:
            pairs.append(("during a run", "can change"))
        return facts(*pairs)

    def _type_of(self, setting: Description) -> str:
        if setting["type"] == "choice":
            text = "one of " + ", ".join(map(code, setting["choices"]))
        elif setting["type"] == "struct":
            text = link(f"`{setting['of']['name']}`", f"class-{setting['of']['name']}")
        elif setting["type"] == "variant":
            seam = self._catalog.seam_of(setting)
            text = link(code(seam.name), f"seam-{seam.name}")
        else:
            return code(annotation(setting))
        text = f"list of {text}" if "sequence" in setting else text
        return f"{text}, optional" if setting.get("optional") else text

    def _source_of(self, name: str) -> str:
        return _sources(self._root).get(name, "")

    def _tests(self, name: str) -> str:
        rows = []
        for file, (doc, words) in _test_files(self._root).items():
            if name in words:
                proof = next(kind for mark, kind in _PROOFS if mark in file)
                rows.append([f"`tests/{file}`", proof, prose(doc)])
        if not rows:
            return ""
        return page("## Validation", table(["test", "proof", "subject"], rows))


def _facts_of(columns: Mapping[str, str]) -> str:
    return "\n\n".join(
        f"**{name[0].upper()}{name[1:]}.** {sentence(text)}" for name, text in columns.items()
    )


def _all_settings(description: Description) -> Iterator[tuple[str, Description, Description]]:
    """Path, structure and description of every setting."""

    def walk(noun: Description, path: str) -> Iterator[tuple[str, Description, Description]]:
        for setting in noun["fields"]:
            here = f"{path}.{setting['name']}".lstrip(".")
            yield here, noun, setting
            if setting["type"] == "struct":
                yield from walk(setting["of"], here)
            elif setting["type"] == "variant":
                for policy in setting["alternatives"]:
                    yield from walk(policy, f"{here}.{policy['kind']}")

    return walk(description, "")


def _setting_label(noun: Description, setting: Description) -> str:
    return f"setting-{noun['name']}.{setting['name']}"


def _key(setting: Description) -> tuple[str, ...]:
    return tuple(policy["name"] for policy in setting["alternatives"])


def _default(setting: Description) -> str:
    default = setting["default"]
    if setting["type"] == "variant" and default is not None:
        policies = default if isinstance(default, list) else [default]
        return ", ".join(policy["kind"] for policy in policies)
    text = json.dumps(default)
    return text if len(text) <= 60 else ""


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:;]) ", text, maxsplit=1)[0].rstrip(".:;")


def _words(name: str) -> str:
    text = re.sub(r"\bslo\b", "SLO", name.replace("_", " "))
    return text[0].upper() + text[1:]


@functools.cache
def _sources(root: Path) -> dict[str, str]:
    """The header that defines each structure of settings."""
    found = {}
    for file in sorted((root / "cpp").rglob("*.h")):
        for name in re.findall(r'type_name = "(\w+)"', file.read_text(encoding="utf-8")):
            found[name] = str(file.relative_to(root))
    return found


@functools.cache
def _test_files(root: Path) -> dict[str, tuple[str, set[str]]]:
    """The tests that may concern one policy: their subject and the words in them."""
    found = {}
    for file in sorted((root / "tests").rglob("*.py")):
        name = str(file.relative_to(root / "tests"))
        if any(mark in name for mark, _ in _PROOFS) and not name.startswith(("fuzz", "contract")):
            text = file.read_text(encoding="utf-8")
            doc = re.match(r'"""(.*?)(?:"""|\n)', text)
            found[name] = (doc[1] if doc else "", set(re.findall(r"\w+", text)))
    return found
