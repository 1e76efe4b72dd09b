"""The reference of what a run reports: figures, findings, reasons of rejections."""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, Any

from documentation.markdown import code, facts, label, link, page, prose, sentence, table
from documentation.settings import catalog
from spillway.cli import explanations
from spillway.findings import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from spillway.findings.finding import Finding

_SYSTEMS = {
    "vllm": "vLLM",
    "llm_d": "llm-d",
    "dynamo": "Dynamo",
    "envoy": "Envoy",
    "vllm_on_eks": "vllm-on-eks",
    "llm_d_may_2026": "llm-d, May 2026",
}
_CATEGORIES = "cpp/workload/outcome.h"


def pages(description: Mapping[str, Any], root: Path) -> dict[str, str]:
    """The pages of what a run reports, by their names in the site."""
    return {
        "reference/figures": _figures(),
        "reference/notes": _notes(),
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


def _notes() -> str:
    return page(
        "# Findings",
        (
            "What `Result.findings`, `spillway diagnose` and the notes below a printed result say "
            "of a run, and `spillway check` and `spillway.check` of settings before a run. Each "
            "has a name, a severity, a sentence, the figures that show it and the settings to try. "
            "Causes come before what follows from them. Braces stand for values."
        ),
        "## Findings on a run",
        *_diagnoses(registry.OF_RUNS),
        "## Findings on a configuration",
        prose("They hold for every run of the simulation, under any seed."),
        *_diagnoses(registry.OF_SETTINGS),
    )


def _diagnoses(diagnoses: Iterable[Callable[[Any], Iterator[Finding]]]) -> Iterator[str]:
    for diagnose in diagnoses:
        name = diagnose.__name__
        doc = (inspect.getdoc(diagnose) or "").replace("\n\n", "\0").replace("\n", " ")
        yield label(f"finding-{name}")
        yield f"### `{name}`"
        yield prose(doc.replace("\0", " "))
        if messages := _messages(inspect.getsource(diagnose)):
            yield "\n".join(f"- {prose(message)}" for message in messages)


def _messages(source: str) -> list[str]:
    """The sentences of the findings that a function yields."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    found = [call.args[1] for call in calls if getattr(call.func, "id", "") == "Finding"]
    return [text for node in found if len((text := _template(node)).split()) > 3]


def _template(node: ast.AST | None) -> str:
    """The text of a string or f-string, with `{name}` for its values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{node.value.id if isinstance(node.value, ast.Name) else '…'}}}"
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
