"""The documentation site: its reference has every entry of the program, and none besides.

The generator runs without Sphinx; `make docs` builds the site and checks its links.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from support.descriptions import DESCRIPTION
from support.paths import ROOT, importing_from

from spillway import _core, cli, presets
from spillway.config.describe import descriptor, paths
from spillway.data.figures import FIGURES
from spillway.files import deployments, export, recordings, traces
from spillway.study.files import KEYS
from spillway.traffic import loads

if TYPE_CHECKING:
    from pathlib import Path

with importing_from(ROOT / "tools"):
    from documentation import (
        build,
        formats,
        interfaces,
        reference,
        results,
        settings,
        site,
        versions,
    )

SYSTEMS = ROOT / "python" / "spillway" / "systems"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference.pages()


def labels(pages: dict[str, str], kind: str) -> list[str]:
    """The targets of a kind in all pages, without the kind."""
    text = "\n".join(pages.values())
    return re.findall(rf"^\({kind}-(.*)\)=$", text, re.MULTILINE)


def same(found: list[str], expected: Any) -> None:
    """Asserts that there is one entry for each of what is expected, and no other."""
    assert sorted(found) == sorted(set(expected))


def nouns() -> list[Any]:
    """Every structure of settings and every policy."""
    found = [DESCRIPTION]
    for noun in found:
        for field in noun["fields"]:
            found += field.get("alternatives", [field["of"]] if "of" in field else [])
    return found


def test_every_setting(pages: dict[str, str]) -> None:
    same(
        labels(pages, "setting"),
        (f"{noun['name']}.{field['name']}" for noun in nouns() for field in noun["fields"]),
    )
    same(labels(pages, "class"), (noun["name"] for noun in nouns()))
    index = pages["reference/settings/index"]
    rows = re.findall(r"^- \[`(.*?)`\]", index, re.MULTILINE)
    assert rows == [path for path, is_kind in paths() if not is_kind]


def test_a_setting_states_its_facts(pages: dict[str, str]) -> None:
    page = pages["reference/policies/admission/token_bucket"]
    entry = page.partition("(setting-TokenBucket.capacity_tokens)=")[2].partition("(setting-")[0]
    field = descriptor("gateway.admission.token_bucket.capacity_tokens")
    assert field["doc"] in entry
    for fact in ("**unit** tokens", f"**default** `{field['default']}`", "**range**", "**search**"):
        assert fact in entry
    assert "defined in `cpp/gateway/admission/token_bucket.h`" in page
    classes = re.findall(r" · class `(\w+)`( · defined in `cpp/)?", "\n".join(pages.values()))
    assert classes
    assert [name for name, has_source in classes if not has_source] == []


def test_every_policy_has_a_page(pages: dict[str, str]) -> None:
    found = re.findall(r"^reference/policies/(\w+)/(?!index)(\w+)$", "\n".join(pages), re.MULTILINE)
    kinds = [path.rpartition(".")[2] for path, is_kind in paths() if is_kind]
    assert {kind for _, kind in found} == set(kinds)
    same(labels(pages, "policy"), (f"{seam}-{kind}" for seam, kind in found))
    for seam, kind in found:
        assert "\n## Scope and limits\n" in pages[f"reference/policies/{seam}/{kind}"]


def test_every_reason_with_the_status_of_every_system(pages: dict[str, str]) -> None:
    same(labels(pages, "reason"), filter(None, _core.metrics.reasons))
    words = {reason["word"] for noun in nouns() for reason in noun.get("reasons", ())}
    statuses = results.statuses(ROOT)
    assert words <= statuses.keys()
    assert statuses["ttl_expired"]["llm_d_may_2026"] == "503"
    assert statuses["rate_limited"] == {
        "vllm": "503",
        "llm_d": "429",
        "dynamo": "529",
        "envoy": "429",
        "vllm_on_eks": "429",
        "llm_d_may_2026": "429",
    }


def test_every_figure(pages: dict[str, str]) -> None:
    same(labels(pages, "figure"), [*FIGURES, "shed"])


def test_every_command_and_flag(pages: dict[str, str]) -> None:
    same(labels(pages, "command"), cli.COMMANDS)
    flags = []
    for name in cli.COMMANDS:
        for parser in interfaces.parsers_below(interfaces.parser_of(name)):
            for action in parser._actions:
                if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
                    own = parser.prog.removeprefix("spillway ")
                    flags.append(interfaces.flag_label(own, action).removeprefix("flag-"))
                    shown = pages[f"reference/commands/{name}"]
                    assert all(f"`{flag}" in shown for flag in action.option_strings)
    same(labels(pages, "flag"), flags)


def test_every_public_name(pages: dict[str, str]) -> None:
    listed = (ROOT / "tests" / "contract" / "public_names.txt").read_text(encoding="utf-8")
    lines = (line.split(": ") for line in listed.splitlines())
    names = {f"{module}.{name}" for module, rest in lines for name in rest.split(", ")}
    same([label.removesuffix("-class") for label in labels(pages, "python")], names)


def test_every_public_name_is_described() -> None:
    silent = []
    for name, module in interfaces.public_modules().items():
        for public in module.__all__:
            value = getattr(module, public)
            if inspect.ismodule(value):
                continue
            has_own_text = inspect.isclass(value) or inspect.isroutine(value)
            text = value.__doc__ if has_own_text else interfaces.doc_of_data(name, public)
            if not text:
                silent.append(f"{name}.{public}")
    assert silent == ["spillway.build_info"]  # of the compiled core


def test_every_format(pages: dict[str, str]) -> None:
    same(labels(pages, "trace"), traces.FORMATS)
    same(labels(pages, "recording"), recordings.FORMATS)
    same(labels(pages, "load"), (form.name for form in loads.FORMATS))
    same(labels(pages, "deployment"), deployments.TARGETS)
    same(labels(pages, "result"), export.FILES)
    same(labels(pages, "study"), KEYS["study"])
    same(labels(pages, "sweep"), KEYS["sweep"])
    same(labels(pages, "preset"), presets.names())


def test_who_carries_a_policy_and_what_no_system_decides() -> None:
    found = {
        "gateway.limit.fixed": (deployments.Carrier("envoy@v3", ()),),
        "instances.scheduler.priority_fcfs": (
            deployments.Carrier("vllm@0.29", ("victim",)),
            deployments.Carrier("vllm@0.33", ("victim",)),
        ),
        "router.cache_aware": (),
    }
    text = formats.pages(ROOT, found.get)["reference/formats/deployments"]
    rows = [
        line
        for line in text.splitlines()
        if line.startswith(("| `gateway", "| `router", "| `inst"))
    ]
    carried = [row for row in rows if row.split("`")[1] in found]
    assert sorted(carried) == [
        "| `gateway.limit.fixed` | envoy v3 |  |",
        "| `instances.scheduler.priority_fcfs` |  | vllm without victim 0.29, 0.33 |",
        "| `router.cache_aware` |  |  |",
    ]
    (line,) = (line for line in text.splitlines() if "`instances[].plant`" in line)
    assert "`instances[].scheduler`" not in line
    assert "`instances[].ingress`" not in line


def test_every_system_with_its_versions(pages: dict[str, str]) -> None:
    modules = [path for path in SYSTEMS.glob("*/*.py") if path.stem != "__init__"]
    rows = re.findall(
        r"^\| \[(\w+)\]\(\w+\.md\) \| `(\w+)\.py`", pages["reference/systems/index"], re.M
    )
    assert sorted(rows) == sorted((path.parent.name, path.stem) for path in modules)


def test_notes_and_findings_are_quoted(pages: dict[str, str]) -> None:
    text = pages["reference/notes"]
    assert "p99 is unreliable with fewer than {" in text
    assert "so there is no goodput" in text
    assert "controllers that never acted" in text
    assert "A client timeout below the latency of a request alone" in text


# ---- what a new part must bring ------------------------------------------------------------------


def test_a_new_policy_needs_its_row_in_the_page_of_its_room() -> None:
    description = copy.deepcopy(DESCRIPTION)
    gateway = next(field for field in description["fields"] if field["name"] == "gateway")
    admission = next(field for field in gateway["of"]["fields"] if field["name"] == "admission")
    new = {"name": "SoftCeiling", "kind": "soft_ceiling", "doc": "Rejects.", "fields": []}
    admission["alternatives"] = [*admission["alternatives"], new]
    with pytest.raises(settings.MissingTextError, match="no row for the admission `soft_ceiling`"):
        reference.pages(description=description)


def test_a_new_kind_of_policy_needs_a_page_of_the_background() -> None:
    description = copy.deepcopy(DESCRIPTION)
    new = {"name": "Off", "kind": "off", "doc": "Does nothing.", "fields": []}
    field = {"name": "tracer", "type": "variant", "doc": "A tracer.", "unit": ""}
    field |= {"default": {"kind": "off"}, "alternatives": [new]}
    description["fields"] = [*description["fields"], field]
    with pytest.raises(settings.MissingTextError, match="is about the setting `tracer`"):
        reference.pages(description=description)


def test_a_new_command_needs_an_example() -> None:
    with pytest.raises(settings.MissingTextError, match="no example of the command `forecast`"):
        interfaces.command_pages({**cli.COMMANDS, "forecast": "predict a run"}, ROOT)


def test_a_new_system_needs_its_page(tmp_path: Path) -> None:
    copied = tmp_path / SYSTEMS.relative_to(ROOT)
    shutil.copytree(SYSTEMS, copied, ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "ticker").mkdir()
    (copied / "ticker" / "__init__.py").write_text('"""Ticker: its traces."""\n')
    with pytest.raises(settings.MissingTextError, match="the system `ticker` has no page"):
        formats.pages(tmp_path)


def test_every_version_of_a_load_generator(pages: dict[str, str]) -> None:
    """Each folder of specimens is in a row, and what its tool states of the client is read."""
    specimens = ROOT / "tests" / "data" / "specimens"
    folders = {path.name for path in specimens.iterdir() if path.is_dir()}
    found = versions.rows(ROOT)
    assert {f"{tool}-{version}" for tool, version, *_ in found} == folders
    page = pages["reference/formats/versions"]
    for tool, version, cases, gives, client, requests, figures in found:
        assert f"| {tool} | {version} | {cases} | {gives} |" in page
        assert "recording" in gives, (tool, version)
        assert "limit in flight" in client, (tool, version)
        assert (tool != "aiperf") or "token gaps" in requests
        assert "completed" in figures, (tool, version)


# ---- the site ------------------------------------------------------------------------------------


def test_targets_of_the_reference_that_documents_link_exist(pages: dict[str, str]) -> None:
    known = set(re.findall(r"^\((.*)\)=$", "\n".join(pages.values()), re.MULTILINE))
    linked = {
        (path, target)
        for path in site.documents(ROOT)
        if re.match("docs/(background/|decisions/|index|tutorials|glossary)", path)
        for target in re.findall(r"\]\(#([\w.-]+)\)", (ROOT / path).read_text(encoding="utf-8"))
    }
    assert {target for _, target in linked} <= known
    generated = "\n".join(pages.values())
    assert set(re.findall(r"\]\(#([\w.-]+)\)", generated)) <= known


def test_every_document_has_a_page_of_its_own(pages: dict[str, str]) -> None:
    documents = site.documents(ROOT)
    names = [*documents.values(), *pages]
    assert len(set(names)) == len(names)
    assert {"index", "tutorials/index", "guides/index", "background/index"} <= set(names)


def test_decisions_are_numbered_and_short() -> None:
    folder = ROOT / "docs" / "decisions"
    records = sorted(folder.glob("[0-9]*.md"))
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^(\d+)\. \[.*\]\((.*)\)$", index, re.MULTILINE) == [
        (str(i), path.name) for i, path in enumerate(records, 1)
    ]
    for i, path in enumerate(records, 1):
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {i}. ")
        parts = re.findall(r"^\*\*(\w+)\.\*\* ", text, re.MULTILINE)
        assert parts == ["Context", "Decision", "Consequence"]
        assert len(text.splitlines()) <= 16


def test_a_page_about_a_model_states_limits_and_validation() -> None:
    folder = ROOT / "docs" / "background"
    for path in folder.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        if path.name != "README.md":
            assert "\n## Scope and limits\n" in text, path.name
            assert "\n## Validation\n" in text or path.name == "validation.md", path.name


def test_files_that_the_background_names_exist() -> None:
    for path in (ROOT / "docs").glob("background/*.md"):
        for name in re.findall(r"`((?:tests|cpp)/[\w/.]+)`", path.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{path.name}: {name}"


def test_pictures_are_part_of_the_site(pages: dict[str, str], tmp_path: Path) -> None:
    sources = site.Sources(ROOT, pages)
    for name in ("index.md", "overview.md"):
        shown = re.findall(
            r"^```\{image\} (\S+)\n:alt: \w.*\n:class: only-(light|dark)\n```$",
            str(sources.files[name]),
            re.MULTILINE,
        )
        assert [theme for _, theme in shown] == ["light", "dark"]
        assert {picture for picture, _ in shown} <= sources.files.keys()
    (tmp_path / "page.html").write_text('<img alt="" src="here.svg"><img src="data:image/png,">')
    assert build.without_picture(tmp_path) == ["page.html: here.svg"]
    (tmp_path / "here.svg").touch()
    assert build.without_picture(tmp_path) == []
