"""The reference of what a run reports: figures, notes, findings, reasons of rejections."""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, Any

from documentation.markdown import code, facts, label, link, page, prose, sentence, table
from documentation.settings import catalog
from spillway import checking
from spillway.cli import explanations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_SYSTEMS = {
    "vllm": "vLLM",
    "llm_d": "llm-d",
    "dynamo": "Dynamo",
    "envoy": "Envoy",
    "vllm_on_eks": "vllm-on-eks",
    "llm_d_may_2026": "llm-d, May 2026",
}
_CATEGORIES = "cpp/workload/outcome.h"
_NOTES = ("python/spillway/report/notes.py", "python/spillway/config/provenance.py",
          "python/spillway/data/extrapolation.py")  # fmt: skip


def pages(description: Mapping[str, Any], root: Path) -> dict[str, str]:
    """The pages of what a run reports, by their names in the site."""
    return {
        "reference/figures": _figures(),
        "reference/notes": _notes(root),
        "reference/reasons": _reasons(description, root),
    }


def _figures() -> str:
    blocks = [
        "# Figures",
        (
            "The figures of a run, as `result.summary()`, `summary.json`, `--figures`, objectives "
            "and constraints have them. The window is from `warm_up_s` to the end of the run. In "
            "studies and sweeps a selector may follow: `p99_ttft_ms[critical]` is that of a class "
            "or a tenant, `goodput[worst tenant]` the worst of them."
        ),
    ]
    for figure in explanations.document("figures"):
        blocks += [
            label(f"figure-{figure['name']}"),
            f"## `{figure['name']}`",
            prose(figure["doc"]),
            facts(
                ("unit", prose(figure["unit"]) or "a number"),
                ("population", prose(figure["population"])),
                ("better", figure["better"].replace("neither", "")),
                ("needs", "latency targets" if figure["needs_targets"] else ""),
            ),
        ]
    return page(*blocks)


def _notes(root: Path) -> str:
    blocks = [
        "# Notes and findings",
        (
            "Notes stand below a printed result and in reports: why requests were lost, which "
            "figures are uncertain, which mechanisms never acted. Findings come from `spillway "
            "check` and `spillway.check`, before a run. Braces stand for values."
        ),
        "## Notes on a result",
    ]
    for file in _NOTES:
        for doc, messages in _messages((root / file).read_text(encoding="utf-8")):
            quoted = "\n".join(f"- {prose(message)}" for message in messages)
            blocks += [f"**{prose(doc)}**" if doc else "**Others.**", quoted]
    blocks += ["## Findings on a configuration", _check_list()]
    return page(*blocks)


def _check_list() -> str:
    doc = inspect.getdoc(checking.check) or ""
    first, _, rest = doc.partition("The checks cover")
    items = re.split(r"^- ", re.sub(r"\n +", " ", rest), flags=re.MULTILINE)[1:]
    intro = prose(" ".join(first.split("\n\n", 1)[-1].split()))
    texts = [prose(" ".join(item.split("\n\n")[0].split())) for item in items]
    return page(intro, "\n".join(f"- {text}" for text in texts))


def _messages(source: str) -> Iterator[tuple[str, list[str]]]:
    """Docstring and messages of each function that yields or appends text."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        values: list[ast.AST | None] = []
        for inner in ast.walk(node):
            if isinstance(inner, ast.Yield):
                values.append(inner.value)
            elif isinstance(inner, ast.Call) and getattr(inner.func, "attr", "") == "append":
                values += inner.args
        messages = [text for value in values if len((text := _template(value)).split()) > 3]
        if messages:
            yield (ast.get_docstring(node) or "").split("\n")[0], messages


def _template(node: ast.AST | None) -> str:
    """The text of a string or f-string, with `{name}` for its values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{node.value.id if isinstance(node.value, ast.Name) else '…'}}}"
    if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") == "_Idle":
        what, never = map(_template, node.args)
        return f"{what or '{…}'} never {never}"
    return ""


def statuses(root: Path) -> dict[str, dict[str, str]]:
    """The HTTP status of each category of rejection in each system that Spillway knows."""
    text = (root / _CATEGORIES).read_text(encoding="utf-8")
    fields = re.findall(r"^  int (\w+)", text, re.MULTILINE)
    found = {}
    for name, numbers in re.findall(r'ReasonCategory k\w+\{"(\w+)", ([\d, ]+)\}', text):
        given = numbers.split(", ")
        given += [given[fields.index("llm_d")]] * (len(fields) - len(given))
        found[name] = dict(zip(fields, given, strict=True))
    return found


def _reasons(description: Mapping[str, Any], root: Path) -> str:
    by_category = statuses(root)
    heads = [_SYSTEMS[name] for name in next(iter(by_category.values()))]
    blocks = [
        "# Reasons of rejections",
        (
            "A policy rejects, drops or evicts a request for one of its reasons, which the column "
            "`reason` of `result.requests` holds. Each reason belongs to a category."
        ),
        "## Categories and statuses",
        "The HTTP status that each system answers with, as far as its category goes. Settings can "
        "change it, as `overload_status` of "
        + link("`busy_threshold`", "policy-admission-busy_threshold")
        + " does; the pages of the [systems](systems/index.md) have more.",
        table(
            ["category", *heads], ([code(name), *row.values()] for name, row in by_category.items())
        ),
        "## Reasons",
    ]
    seams = catalog(description)
    owners: dict[str, list[str]] = {}
    docs: dict[str, Mapping[str, Any]] = {}
    for name, (noun, _) in seams.nouns.items():
        for reason in noun.get("reasons", ()):
            owners.setdefault(reason["name"], []).append(link(f"`{name}`", f"class-{name}"))
            docs.setdefault(reason["name"], reason)
    for name, reason in docs.items():
        blocks += [label(f"reason-{name}"), f"### `{name}`", sentence(prose(reason["doc"]))]
        decided_by = ", ".join(map(code, reason["decided_by"]))
        of = ", ".join(owners[name])
        blocks.append(
            facts(("category", code(reason["word"])), ("of", of), ("also decided by", decided_by))
        )
    return page(*blocks)
