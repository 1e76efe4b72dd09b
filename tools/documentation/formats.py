"""The reference of files: formats, configuration files of systems, studies, presets."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from documentation import flags
from documentation.markdown import (
    code,
    facts,
    fence,
    label,
    page,
    prose,
    rooted,
    sentence,
    table,
)
from documentation.settings import MissingTextError
from documentation.versions import versions_page
from spillway import presets
from spillway.cli import explanations
from spillway.config.describe import paths
from spillway.files import deployments, export, recordings, traces
from spillway.presets import by_name
from spillway.traffic import loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path


def pages(
    root: Path, carriers: Callable[[str], Iterable[Any] | None] = lambda _: None
) -> dict[str, str]:
    """The pages of formats, presets and systems, by their names in the site.

    `carriers`: the systems that carry the policy at a path, as `files.deployments.carriers`.

    Raises MissingTextError for a system without a page of its own.
    """
    return {
        "reference/formats/index": _index(),
        "reference/formats/traces": _traces(),
        "reference/formats/measurements": _measurements(),
        "reference/formats/loads": _loads(),
        "reference/formats/deployments": _deployments(root, carriers),
        "reference/formats/results": _results(),
        "reference/formats/study": _keys("study"),
        "reference/formats/sweep": _keys("sweep"),
        "reference/presets": _presets(),
        "reference/systems/index": _systems(root),
        "reference/formats/versions": versions_page(root),
    }


def systems(root: Path) -> list[Path]:
    """The folders of the systems that Spillway knows."""
    folder = root / "python" / "spillway" / "systems"
    return sorted(path for path in folder.iterdir() if (path / "__init__.py").exists())


def _index() -> str:
    return page(
        "# Files",
        "Formats are detected by their content. A wrong value is one error, with file, line, "
        "field, value and what is allowed.",
        table(
            ["page", "files"],
            [
                [
                    "[Traces](traces.md)",
                    "requests with arrival and lengths, for `read_trace`, `--trace`",
                ],
                [
                    "[Measurements](measurements.md)",
                    "measured latencies, for `read_recordings`, `spillway calibrate`",
                ],
                ["[Loads](loads.md)", "files of load generators, for `traffic.read_load`"],
                [
                    "[Load generators and versions](versions.md)",
                    "what is read of the files of each version",
                ],
                [
                    "[Deployments](deployments.md)",
                    "configuration files of systems, for `spillway import`, `spillway export`",
                ],
                [
                    "[Results](results.md)",
                    "the requests of a run, for `result.write`, `--out-format`",
                ],
                ["[Study files](study.md)", "`spillway optimize`"],
                ["[Sweep files](sweep.md)", "`spillway sweep`"],
            ],
        ),
    )


def _entry(kind: str, name: str, *blocks: str) -> Iterator[str]:
    yield label(f"{kind}-{name}")
    yield f"## `{name}`"
    yield from blocks


def _codes(names: Sequence[str]) -> str:
    return ", ".join(map(code, names))


def _traces() -> str:
    blocks = [
        "# Traces",
        "Formats of `read_trace` and `--trace`. An option is a keyword and `--trace-…`.",
    ]
    for name, form in traces.FORMATS.items():
        options = [
            [code(option.name), code(str(option.default)), prose(option.allowed), prose(option.doc)]
            for option in form.options
        ]
        blocks += _entry(
            "trace",
            name,
            prose(f"{form.doc[0].upper()}{form.doc[1:]}."),
            facts(
                ("layout", code(form.layout)),
                ("required", _codes(form.required)),
                ("read if present", _codes(form.optional or ())),
            ),
            prose(inspect.getdoc(form.rows or form.read) or ""),
            table(["option", "default", "allowed", "meaning"], options) if options else "",
        )
    return page(*blocks)


def _measurements() -> str:
    blocks = ["# Measurements", "Formats of measured runs of real servers."]
    for name, form in recordings.FORMATS.items():
        reader = f"Read by {', '.join(f'`read_{content}`' for content in form.gives)}."
        blocks += _entry(
            "recording",
            name,
            prose(f"{form.doc[0].upper()}{form.doc[1:]}."),
            reader,
            prose(inspect.getdoc(form.rows or form.read) or ""),
        )
    return page(*blocks)


def _loads() -> str:
    blocks = ["# Loads", "Files of load generators that `traffic.read_load` turns into a workload."]
    for form in loads.FORMATS:
        notes = sentence(inspect.getdoc(form.workload) or "")
        blocks += _entry("load", form.name, facts(("keys", prose(form.keys))), prose(notes))
    return page(*blocks)


def _flags(root: Path, form: deployments.Target) -> Iterator[str]:
    """How every flag of a system is read, by version."""
    if form.read_pieces is None:
        return
    folder = root / "python" / "spillway" / "systems" / form.name.replace("-", "_")
    yield table(["program", "are", "versions", "flags"], flags.rows(folder, form))
    yield table(["approximated flag", "how"], flags.near(form))


def _carried(carriers: Callable[[str], Iterable[Any] | None]) -> list[list[str]]:
    """The systems that carry each policy that one could decide, whole and in part."""
    rows = []
    for path, is_policy in paths():
        found = carriers(path) if is_policy else None
        if found is None:
            continue
        exact: dict[str, list[str]] = {}
        part: dict[str, list[str]] = {}
        for each in found:
            system, _, version = each.target.partition("@")
            if each.lost:
                system = f"{system} without {', '.join(each.lost)}"
            (part if each.lost else exact).setdefault(system, []).append(version)
        rows.append(
            [code(path), *("; ".join(map(_of_versions, ways.items())) for ways in (exact, part))]
        )
    return rows


def _of_versions(item: tuple[str, Sequence[str]]) -> str:
    system, versions = item
    return f"{system} {', '.join(versions)}"


def _undecided() -> str:
    """The settings of deployments that no system decides."""
    of = ("gateway", "router", "busy_monitor", "signals", "fleet", "instances", "tenants")
    every = deployments.TARGETS.values()
    found = [
        path
        for path in dict.fromkeys(_in_lists(path) for path, _ in paths(kinds=False))
        if path.partition(".")[0].removesuffix("[]") in of
        and not any(target.decides(path) for target in every)
    ]
    outer = [path for path in found if path.rpartition(".")[0] not in found]
    return _codes(outer)


def _in_lists(path: str) -> str:
    """A path with `[]` behind the lists at the root."""
    first, point, rest = path.partition(".")
    return f"{first}{'[]' if first in ('instances', 'tenants') else ''}{point}{rest}"


def _deployments(root: Path, carriers: Callable[[str], Iterable[Any] | None]) -> str:
    blocks = [
        "# Deployments",
        (
            "Systems whose configuration files `spillway import` reads and `spillway export` "
            "writes. What files cannot carry is a loss; what has no counterpart in a simulation "
            "is unread. Of flags the tables say which are exact, approximated, not simulated, and "
            "not modeled: an import refuses these unless `--allow-lossy`."
        ),
    ]
    if rows := _carried(carriers):
        blocks += [
            "## Policies",
            "Which policies the systems carry, by exports of each one; nothing: no system.",
            table(["policy", "as it is", "in part"], rows),
        ]
    blocks += ["## Settings that no system decides", sentence(_undecided())]
    for name, form in deployments.TARGETS.items():
        lost = [[code(path), prose(reason)] for path, reason in form.reasons]
        blocks += _entry(
            "deployment",
            name,
            sentence(prose(form.doc)),
            facts(("versions", _codes(form.versions)), ("decides", _codes(form.covers))),
            table(["not expressed", "why"], lost) if lost else "",
            *_flags(root, form),
        )
    return page(*blocks)


def _results() -> str:
    rows = [
        [f"`{name}`", code(getattr(form, "file", f"requests.{name}"))]
        for name, form in _result_files()
    ]
    return page(
        "# Results",
        "Formats of a run's requests: `result.write(folder, requests=NAME)`, `--out-format NAME`. "
        "`result.save` and `load` keep a result; `summary.json` has its [figures](../figures.md).",
        *(label(f"result-{name}") for name, _ in _result_files()),
        table(["format", "file"], rows),
    )


def _result_files() -> Sequence[tuple[str, Any]]:
    return [(name, export.FILES[name]) for name in export.FILES]


def _keys(kind: str) -> str:
    blocks = [
        f"# {kind[0].upper()}{kind[1:]} files",
        " ".join(explanations.TOPICS[kind]().split("\n\n")[0].split()),
    ]
    for name, entry in explanations.document(kind).items():
        separator = "\n" if "\n" in entry["example"] else " "
        blocks += _entry(
            kind,
            name,
            prose(entry["doc"]),
            facts(("default", prose(str(entry["default"])))),
            fence(f"{name}:{separator}{entry['example']}", "yaml"),
        )
    return page(*blocks)


def _presets() -> str:
    blocks = [
        "# Presets",
        (
            "Published workloads, gateways and servers by name: `presets: [NAME]` in a "
            "configuration, `spillway.presets.get(NAME)` in Python."
        ),
    ]
    for name in presets.names():
        preset = presets.get(name)
        doc = inspect.getdoc(by_name.function_of(name)) or ""
        parameters = doc.partition("Parameters\n----------\n")[2]
        blocks += _entry(
            "preset",
            name,
            prose(preset.doc),
            facts(("kind", code(preset.kind)), ("source", prose(preset.source))),
            *_parameters(parameters),
        )
    return page(*blocks)


def _parameters(text: str) -> Iterator[str]:
    """The parameters of a NumPy-style docstring, as definitions."""
    for name, doc in re.findall(r"^(\w.*)\n((?:[ ]+.*\n?)+)", text, re.MULTILINE):
        yield f"`{name}`\n: {prose(' '.join(doc.split()))}"


def _systems(root: Path) -> str:
    rows = []
    for folder in systems(root):
        path = folder / "README.md"
        if not path.exists():
            raise MissingTextError(
                f"{path.relative_to(root)}: the system `{folder.name}` has no page"
            )
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("| `"):
                module, does, versions, checked = map(str.strip, line.strip("|").split("|"))
                at = rooted(checked, str(folder.relative_to(root)))
                rows.append([f"[{folder.name}]({folder.name}.md)", module, does, versions, at])
    return page(
        label("reference-systems"),
        "# Systems and versions",
        "What Spillway knows of other tools, module by module: the versions, and by what it was "
        "checked. The page of a system says what is exact, what is not read and not expressed.",
        table(
            ["system", "module", "what it reads, writes or holds", "versions", "checked by"], rows
        ),
    )
