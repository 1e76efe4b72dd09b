"""The reference: pages from descriptors, parsers, registries and the pages of the rooms.

It needs the package `spillway` and the repository, and nothing of Sphinx.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from documentation import formats, interfaces, results, settings
from documentation.markdown import label, page, table
from spillway import cli
from spillway._core.cluster import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

ROOT = Path(__file__).resolve().parents[2]

_PARTS = (
    ("[Settings](settings/index.md)", "every setting: meaning, unit, range, default"),
    (
        "[Policies and models](policies/index.md)",
        "admission, fairness, limits, controllers, routers, schedulers, latency models",
    ),
    ("[Figures](figures.md)", "what a result reports, with unit and population"),
    ("[Findings](notes.md)", "what a result and `spillway check` remark on"),
    ("[Reasons of rejections](reasons.md)", "with the status that each system answers with"),
    ("[Commands](commands/index.md)", "the command line: every command and flag"),
    ("[Python](python/index.md)", "the public names"),
    ("[Files](formats/index.md)", "traces, measurements, loads, deployments, results"),
    ("[Presets](presets.md)", "published settings by name"),
    ("[Systems and versions](systems/index.md)", "what Spillway knows of other tools"),
)


def pages(
    *,
    root: Path = ROOT,
    description: Mapping[str, Any] | None = None,
    commands: Mapping[str, str] = cli.COMMANDS,
    carriers: Callable[[str], Iterable[object] | None] = lambda _: None,
) -> dict[str, str]:
    """All generated pages in Markdown, by their names in the site.

    `carriers`: the systems that carry the policy at a path (`files.deployments.carriers`, which
    takes half a minute for all of them); by default the pages do not say it.

    Raises settings.MissingTextError for a policy, command or system without the text that the
    repository must hold for it.
    """
    carriers = functools.cache(carriers)
    described = Simulation._describe() if description is None else description
    return {
        "reference/index": page(
            label("reference"),
            "# Reference",
            "Generated from the program: descriptors of settings, the parser of the command line, "
            "the registries of formats, and the tables of the rooms' pages.",
            table(["part", "holds"], _PARTS),
        ),
        **settings.pages(described, root, carriers),
        **results.pages(described, root),
        **interfaces.command_pages(commands, root),
        **interfaces.python_pages(),
        **formats.pages(root, carriers),
    }
