"""The sources of the site: pages of the repository and of the reference, in one folder.

A document of the repository becomes a page; its links, which lead to files of the repository,
become links between pages. Any other file that a page links becomes a page that shows it, or a
download. An index lists the pages of its folder in the order in which it links them.
"""

from __future__ import annotations

import json
import posixpath
import re
from typing import TYPE_CHECKING

from documentation.markdown import fence, page
from spillway.loading import json_schema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FENCE = re.compile(r"^(`{3,}).*?^\1`*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img src="(?P<light>[^"]+)" alt="(?P<alt>[^"]+)">\s*</picture>'
)
_ROOTED = re.compile(r"\]\(/([^)#\s]+)")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".sh": "bash", ".cff": "yaml", ".h": "cpp"}
_FOLDERS = (
    (r"docs/guides/README", "guides/index"),
    (r"docs/decisions/README", "decisions/index"),
    (r"docs/README", "contributing/documentation"),
    (r"docs/tutorials", "tutorials/index"),
    (r"docs/background/README", "background/index"),
    (r"docs/(.+)", r"\1"),
    (r"notebooks/(.+)", r"tutorials/\1"),
    (r"README", "overview"),
    (r"CHANGELOG", "changelog"),
    (r"CONTRIBUTING", "contributing/index"),
    (r"SECURITY", "contributing/security"),
    (r"tests/data/recordings/README", "contributing/recordings"),
    (r"tests/data/specimens/README", "contributing/specimens"),
    (r"tests/data/vllm_answers/README", "contributing/vllm_answers"),
    (r"tests/parity/live/README", "contributing/scheduler_recordings"),
    (r"tests/threads/README", "contributing/threads"),
    (r"(cpp|python|tests)/README", r"contributing/\1"),
    (r"python/spillway/systems/README", "contributing/systems"),
    (r"python/spillway/systems/(\w+)/README", r"reference/systems/\1"),
    (r"python/spillway/(\w+)/README", r"contributing/\1"),
    (r"cpp/(.+)/README", r"contributing/cpp/\1"),
    (r"benchmarks/README", "evidence/benchmarks"),
    (r"experiments/README", "evidence/index"),
    (r"experiments/(\w+)/README", r"evidence/\1"),
    (r"examples/README", "examples/index"),
    (r"(.+)/README", r"\1/index"),
    (r"(.+)", r"\1"),
)
"""Where a document of the repository stands in the site; the first pattern that fits counts."""

_SECTIONS = {
    "Tutorials": ("tutorials/index",),
    "How-to guides": ("guides/index",),
    "Reference": ("reference/index",),
    "Background": ("background/index", "evidence/index", "decisions/index", "glossary"),
    "Project": ("overview", "examples/index", "contributing/index", "changelog"),
}
_CHILDREN = {"contributing/index": ("contributing/cpp/",)}


def documents(root: Path) -> dict[str, str]:
    """The documents of the repository and the pages that they become."""
    rooms = ("docs", "notebooks", "cpp", "python", "tests", "benchmarks", "experiments", "examples")
    found = [*root.glob("*.md"), *(path for room in rooms for path in (root / room).rglob("*"))]
    names = (path.relative_to(root) for path in found if path.suffix in {".md", ".ipynb"})
    shown = sorted(str(name) for name in names if not any(part[0] == "." for part in name.parts))
    return {name: _page_of(name.rpartition(".")[0]) for name in shown}


def _page_of(stem: str) -> str:
    for pattern, name in _FOLDERS:
        if re.fullmatch(pattern, stem):
            return re.sub(f"^{pattern}$", name, stem)
    raise AssertionError(stem)


class Sources:
    """The sources of the site, made from a repository and generated pages."""

    def __init__(self, root: Path, generated: Mapping[str, str]) -> None:
        self._root = root
        self._documents = documents(root)
        self._shown: dict[str, str] = {}  # other files, and the pages that show them
        self.files: dict[str, str | bytes] = {}
        for name, text in generated.items():
            self.files[f"{name}.md"] = _ROOTED.sub(
                lambda found, name=name: f"]({self._place(found[1], name)}", text
            )
        for path, name in self._documents.items():
            suffix = path.rpartition(".")[2]
            text = (root / path).read_text(encoding="utf-8")
            if path == "README.md":
                text = text.replace("# Spillway\n", "# Overview\n", 1)
            self.files[f"{name}.{suffix}"] = self._linked(
                text, path, name, escaped=suffix == "ipynb"
            )
        self._show_files()
        self.files["reference/spillway.schema.json"] = json.dumps(json_schema(), indent=2)
        self._add_trees()

    def write(self, folder: Path) -> None:
        """Writes what has changed, and removes what is no longer part of the site."""
        for name, content in self.files.items():
            path = folder / name
            data = content.encode() if isinstance(content, str) else content
            if not path.exists() or path.read_bytes() != data:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        for path in folder.rglob("*"):
            if path.is_file() and str(path.relative_to(folder)) not in self.files:
                path.unlink()

    def _linked(self, text: str, path: str, name: str, *, escaped: bool = False) -> str:
        """A document with the links of the site in place of those of the repository."""

        def place(link: str) -> str:
            goal = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
            return self._place(goal, name)

        def target(found: re.Match[str]) -> str:
            return f"]({place(found[1])}{found[2] or ''})"

        def picture(found: re.Match[str]) -> str:
            """Both pictures; the theme shows the one that fits it."""
            return "\n\n".join(
                f"```{{image}} {place(found[theme])}\n"
                f":alt: {found['alt']}\n:class: only-{theme}\n```"
                for theme in ("light", "dark")
            )

        text = _PICTURE.sub(picture, text)
        kept, end = [], 0
        for block in () if escaped else _FENCE.finditer(text):
            kept += [_LINK.sub(target, text[end : block.start()]), block[0]]
            end = block.end()
        return "".join([*kept, _LINK.sub(target, text[end:])])

    def _place(self, goal: str, name: str) -> str:
        """The link from a page to a file of the repository."""
        if not (self._root / goal).exists():
            raise FileNotFoundError(f"{name}: links {goal}, which does not exist")
        for document in (goal, f"{goal}/README.md"):
            if document in self._documents:
                page_name = self._documents[document]
                suffix = document.rpartition(".")[2]
                return posixpath.relpath(f"{page_name}.{suffix}", posixpath.dirname(name) or ".")
        if goal == "notebooks":
            shown = "tutorials/index.md"
        elif (self._root / goal).is_dir() or (self._root / goal).suffix in _LANGUAGES:
            shown = self._shown.setdefault(goal, f"files/{goal.replace('.', '_')}") + ".md"
        else:
            shown = f"files/{goal}"
            self.files[shown] = (self._root / goal).read_bytes()
        return posixpath.relpath(shown, posixpath.dirname(name) or ".")

    def _show_files(self) -> None:
        """Pages of files that are linked, and of what folders hold."""
        done: set[str] = set()
        while more := self._shown.keys() - done:
            for goal in sorted(more):
                done.add(goal)
                name, path = self._shown[goal], self._root / goal
                if path.is_dir():
                    inside = sorted(entry.name for entry in path.iterdir() if entry.is_file())
                    links = [
                        f"- [{entry}]({self._place(f'{goal}/{entry}', name)})" for entry in inside
                    ]
                    body = "\n".join(links)
                else:
                    body = fence(path.read_text(encoding="utf-8"), _LANGUAGES[path.suffix])
                self.files[f"{name}.md"] = page("---\norphan: true\n---", f"# `{goal}`", body)

    def _add_trees(self) -> None:
        """Adds the tables of contents: of the front page its sections, of an index its folder."""
        names = {name.rpartition(".")[0] for name in self.files if name.endswith((".md", ".ipynb"))}
        for name in sorted(names):
            if name == "index":
                trees = [_tree(entries, caption) for caption, entries in _SECTIONS.items()]
                self.files["index.md"] = page(str(self.files["index.md"]), *trees)
            elif name.endswith("/index") and not name.startswith("files/"):
                folder = posixpath.dirname(name)
                text = str(self.files[f"{name}.md"])
                below = [other for other in names if _is_child(other, folder)]
                for extra in _CHILDREN.get(name, ()):
                    below += [other for other in names if other.startswith(extra)]
                order = [
                    posixpath.normpath(posixpath.join(folder, goal)).rpartition(".")[0]
                    for goal, _ in _LINK.findall(text)
                ]
                below.sort(
                    key=lambda entry: (order.index(entry) if entry in order else len(order), entry)
                )
                self.files[f"{name}.md"] = page(text, _tree([f"/{entry}" for entry in below]))


def _is_child(name: str, folder: str) -> bool:
    rest = name.removeprefix(f"{folder}/")
    return rest not in (name, "index") and (
        "/" not in rest or re.fullmatch(r"[^/]+/index", rest) is not None
    )


def _tree(entries: tuple[str, ...] | list[str], caption: str = "") -> str:
    head = ["```{toctree}", ":hidden:"] + ([f":caption: {caption}"] if caption else [])
    return "\n".join([*head, "", *entries, "```"])
