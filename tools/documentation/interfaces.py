"""The reference of the command line and of the public names in Python."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import itertools
import pkgutil
import re
from typing import TYPE_CHECKING, Any

import spillway
from documentation.markdown import code, fence, label, link, page, prose, sentence, table
from documentation.settings import MissingTextError
from spillway.cli import STATUSES, output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import ModuleType


_LONGEST_VALUE = 300


def command_pages(commands: Mapping[str, str], root: Path) -> dict[str, str]:
    """The pages of the commands, by their names in the site.

    Raises MissingTextError for a command without an example in docs/guides/tour.md.
    """
    text = (root / "docs" / "guides" / "tour.md").read_text(encoding="utf-8")
    lines = "\n".join(
        re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ).splitlines()
    found = {}
    for name, summary in commands.items():
        examples = [line for line in lines if line.startswith(f"spillway {name} ")]
        if not examples and f"spillway {name} " not in " ".join(text.split()):
            raise MissingTextError(f"docs/guides/tour.md: no example of the command `{name}`")
        found[f"reference/commands/{name}"] = _command(name, summary, examples)
    rows = [[link(f"`{name}`", f"command-{name}"), prose(text)] for name, text in commands.items()]
    found["reference/commands/index"] = page(
        "# Commands",
        "`spillway COMMAND`; `spillway COMMAND --help` prints the same. Every command that prints "
        "a result has `--json`.",
        table(["command", "what it does"], rows),
        "The exit status is the same for all of them:",
        table(["status", "when"], [[str(key), prose(text)] for key, text in STATUSES.items()]),
    )
    return found


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of a command, as `spillway NAME` builds it."""
    parser = argparse.ArgumentParser(prog=f"spillway {name}", allow_abbrev=False)
    importlib.import_module(f"spillway.cli.{name}").add_arguments(parser)
    output.add_color(parser, argparse.SUPPRESS)
    return parser


def parsers_below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its actions."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers_below(below)


def _command(name: str, summary: str, examples: list[str]) -> str:
    blocks = [
        label(f"command-{name}"),
        f"# spillway {name}",
        prose(f"{summary[0].upper()}{summary[1:]}."),
    ]
    for parser in parsers_below(parser_of(name)):
        own = parser.prog.removeprefix("spillway ")
        if own != name:
            blocks += [f"## {parser.prog}"]
        blocks += [prose(parser.description or ""), fence(_usage(parser), "none")]
        entries = {"Arguments": [], "Options": []}
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
                continue
            entries["Options" if action.option_strings else "Arguments"].append(
                _argument(own, parser, action)
            )
        for title, of_kind in entries.items():
            if of_kind:
                blocks += [f"##{'#' * (own != name)} {title}", *of_kind]
        if own == name and examples:
            blocks += ["## Examples", fence("\n".join(examples), "bash")]
    return page(*blocks)


def _usage(parser: argparse.ArgumentParser) -> str:
    return re.sub(r"^usage: ", "", parser.format_usage())


def flag_label(command: str, action: argparse.Action) -> str:
    """The target of an argument: `flag-run-seeds`, `flag-traffic-fit-trace`."""
    name = (action.option_strings or [action.dest])[-1].lstrip("-")
    return f"flag-{command.replace(' ', '-')}-{name}"


def _argument(command: str, parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = parser._get_formatter()
    values = formatter._format_args(action, str(action.metavar or action.dest).upper())
    names = [f"{name} {values}".strip() for name in action.option_strings]
    words = formatter._expand_help(action) if action.help else ""
    unnamed = [str(alias) for alias in action.choices or () if str(alias) not in words]
    choices = f" One of {', '.join(map(code, map(str, action.choices or ())))}." if unnamed else ""
    head = ", ".join(map(code, names or [values]))
    return page(label(flag_label(command, action)), f"{head}\n: {sentence(prose(words))}{choices}")


# ---- Python ----


def public_modules() -> dict[str, ModuleType]:
    """The public modules: those with `__all__` whose names have no underscore in front."""
    names = [found.name for found in pkgutil.walk_packages(spillway.__path__, "spillway.")]
    visible = [name for name in names if not any(part[0] == "_" for part in name.split("."))]
    modules = map(importlib.import_module, ["spillway", *visible])
    return {module.__name__: module for module in modules if hasattr(module, "__all__")}


def python_pages() -> dict[str, str]:
    """The pages of the public modules, by their names in the site."""
    modules = public_modules()
    homes = _homes(modules)
    found = {f"reference/python/{name}": _module(module, homes) for name, module in modules.items()}
    rows = [
        [f"[`{name}`]({name}.md)", prose(_first_line(module))]
        for name, module in sorted(modules.items())
    ]
    found["reference/python/index"] = page(
        "# Python",
        "The public modules and their names. All others may change without notice. "
        "Classes of settings are documented with the [settings](../settings/index.md) and "
        "[policies](../policies/index.md).",
        table(["module", "holds"], rows),
    )
    return found


def is_setting(value: Any) -> bool:
    """Whether a public name is a class of settings, which the core describes."""
    return inspect.isclass(value) and hasattr(value, "_describe")


def _homes(modules: Mapping[str, ModuleType]) -> dict[int, str]:
    """The module that documents each function and class: the one nearest to its definition."""
    homes: dict[int, tuple[bool, int, str]] = {}
    for name, module in modules.items():
        for public in module.__all__:
            value = getattr(module, public)
            if inspect.isclass(value) or inspect.isroutine(value):
                is_inside = f"{value.__module__}.".startswith(f"{name}.")
                rank = (is_inside, len(name), name)
                homes[id(value)] = max(homes.get(id(value), rank), rank)
    return {key: name for key, (_, _, name) in homes.items()}


def python_label(module: str, name: str, value: Any) -> str:
    """The target of a public name; targets ignore case, so those of classes have an ending."""
    return f"python-{module}.{name}{'-class' if inspect.isclass(value) else ''}"


def _module(module: ModuleType, homes: Mapping[int, str]) -> str:
    name = module.__name__
    blocks = [f"# {name}", fence(f".. automodule:: {name}\n   :no-members:", "{eval-rst}")]
    settings = [public for public in sorted(module.__all__) if is_setting(getattr(module, public))]
    for public in sorted(set(module.__all__) - {*settings}):
        value = getattr(module, public)
        blocks += [
            label(python_label(name, public, value)),
            f"## {prose(public) if inspect.ismodule(value) else code(public)}",
        ]
        home = homes.get(id(value), name)
        if inspect.ismodule(value):
            known = hasattr(value, "__all__")
            blocks.append(
                f"The module [`{value.__name__}`]({value.__name__}.md)."
                if known
                else _first_line(value)
            )
        elif home != name:
            blocks.append(
                f"See {link(f'`{home}.{public}`', python_label(home, value.__name__, value))}."
            )
        else:
            blocks.append(_autodoc(name, public, value))
    if settings:
        links = ", ".join(
            link(f"`{public}`", f"class-{_noun_of(module, public)}") for public in settings
        )
        blocks += ["## Classes of settings", links]
    return page(*blocks)


def _noun_of(module: ModuleType, public: str) -> str:
    return str(getattr(module, public)._describe()["name"])


def _autodoc(module: str, name: str, value: Any) -> str:
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        shown = "" if isinstance(value, dict) else repr(value)
        is_short = 0 < len(shown) < _LONGEST_VALUE and " at 0x" not in shown
        return page(
            f"`{type(value).__name__}`" if "Alias" not in type(value).__name__ else "",
            prose(doc_of_data(module, name)),
            fence(shown.replace("typing.", ""), "python") if is_short else "",
        )
    kind = "class" if inspect.isclass(value) else "function"
    members = "\n   :members:" if kind == "class" else ""
    return fence(f".. auto{kind}:: {module}.{name}{members}", "{eval-rst}")


def doc_of_data(module: str, name: str) -> str:
    """The text below the assignment of a name, in the module that defines it."""
    defining = importlib.import_module(module)
    if not (getattr(defining, "__file__", None) or "").endswith(".py"):
        return ""
    tree = ast.parse(inspect.getsource(defining))
    for node, below in itertools.pairwise([*tree.body, ast.Pass()]):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            return inspect.cleandoc(str(below.value.value)) if is_text else ""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return doc_of_data(str(node.module), name)
    return ""


def _first_line(module: ModuleType) -> str:
    return (inspect.getdoc(module) or "").split("\n")[0]
