"""The reference of load generators: what is read of the files of each version, by its specimens."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import spillway
from documentation.markdown import label, page, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from spillway.data.recording import Recording
    from spillway.files.evidence import Evidence

HEAD = ("tool", "version", "cases", "gives", "of the client", "of requests", "own figures compared")


def versions_page(root: Path) -> str:
    """The page with a row per tool and version."""
    return page(
        label("reference-versions"),
        "# Load generators and versions",
        "What is read of the files of load generators. Each row is computed from small files that "
        "the tool itself wrote against a stub server ([specimens](/tests/data/specimens/README.md))"
        "; the tests compare every figure named in the last column with the tool's own.",
        table(HEAD, rows(root)),
    )


def rows(root: Path) -> list[list[str]]:
    """A row per tool and version."""
    found: dict[tuple[str, str], dict[str, list[Evidence]]] = defaultdict(dict)
    for folder in folders(root):
        facts = json.loads((folder / "specimen.json").read_text(encoding="utf-8"))
        key = facts["tool"], facts["version"]
        found[key][folder.name] = list(_read(folder, facts["files"]))
    return [
        [tool, version, *_cells(cases)]
        for (tool, version), cases in sorted(found.items(), key=lambda item: item[0])
    ]


def folders(root: Path) -> list[Path]:
    """The folders of all specimens."""
    return sorted(path.parent for path in root.glob("tests/data/specimens/*/*/specimen.json"))


def _read(folder: Path, files: Sequence[str]) -> Iterable[Evidence]:
    """Yield what the files of a specimen give, as far as they are evidence by themselves."""
    for name in files:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield spillway.read(folder / name)
            except spillway.TraceError:
                continue


def _cells(cases: Mapping[str, Sequence[Evidence]]) -> list[str]:
    everything = [evidence for found in cases.values() for evidence in found]
    runs = [run for evidence in everything for run in evidence.recordings]
    gives = dict.fromkeys(offer for evidence in everything for offer in evidence.offers)
    figures = dict.fromkeys(figure.name for run in runs for figure in run.reported)
    return [
        ", ".join(f"`{name}`" for name in cases),
        ", ".join(gives),
        _known(runs, _OF_CLIENT),
        _known(runs, _OF_REQUESTS),
        ", ".join(figures),
    ]


def _known(runs: Sequence[Recording], facts: Mapping[str, Any]) -> str:
    return ", ".join(name for name, known in facts.items() if any(map(known, runs)))


_OF_CLIENT = {
    "limit in flight": lambda run: run.client_max_in_flight is not None,
    "warm-up left out": lambda run: run.counts.warm_up > 0,
    "cut off": lambda run: run.counts.cut_off > 0,
}
_OF_REQUESTS = {
    "failures": lambda run: run.failed.any(),
    "token gaps": lambda run: run.token_gaps is not None,
    "conversations": lambda run: run.session is not None,
    "cached tokens": lambda run: run.cached_tokens is not None,
}
