"""What `spillway describe` explains beside settings: figures, and the keys of files."""

from __future__ import annotations

import inspect
import itertools
import textwrap
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from spillway.config.classes import config_error
from spillway.config.formatting import wrapped
from spillway.data.figures import FIGURES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_WIDTH = 80
_SHED = {
    "name": "shed",
    "doc": "Requests that were rejected, expired or evicted, as a share of those offered. In "
    "studies, sweeps and constraints only.",
    "unit": "share of offered requests",
    "population": "requests that arrived in the window",
    "better": "lower",
    "needs_targets": False,
}
_WHERE = (
    "The figures of a run, as summary.json, --figures, objectives and constraints have them. The "
    "window is from warm_up_s to the end of the run."
)
_SELECTORS = (
    "In studies and sweeps a selector may follow: p99_ttft_ms[critical] is that of a class or a "
    "tenant, goodput[worst tenant] the worst of them."
)


def explain(path: str) -> str | None:
    """The text of `figures`, `study`, `sweep`, a key such as `study.space`, or a figure."""
    topic, _, key = path.partition(".")
    if path in TOPICS:
        return TOPICS[path]()
    if topic in _FILES and key:
        return _key(topic, key)
    known = _figures()
    return _figure([known[path]]) if path in known else None


def document(path: str) -> Any:
    """The explanation of `path` as plain values."""
    topic, _, key = path.partition(".")
    if topic in _FILES:
        entries = {
            name: {"doc": entry.doc, "default": entry.default, "example": entry.example}
            for name, entry in _keys(topic).items()
        }
        return entries[key] if key else entries
    if path == _SERVER:
        from spillway.instance import Server

        return {
            field.name: None if field.default is MISSING else field.default
            for field in fields(Server)
        }
    known = _figures()
    return list(known.values()) if path == "figures" else known[path]


def found(word: str) -> str | None:
    """Figures and settings whose names hold a word, or None."""
    from spillway.config.describe import paths

    if not word.isidentifier():
        return None
    figures = (figure for figure in _figures().values() if word in figure["name"].split("_"))
    blocks = [_figure(list(group)) for _, group in itertools.groupby(figures, _family)]
    all_paths = [(path, path.rpartition(".")[2], is_kind) for path, is_kind in paths()]
    if settings := [path for path, name, _ in all_paths if name == word]:
        blocks.append("\n  ".join([f"{word} is the name of:", *settings]))
    if kinds := [
        path for path, name, is_kind in all_paths if is_kind and name != word and _holds(name, word)
    ]:
        blocks.append("\n  ".join(["kinds with this word or these initials:", *kinds]))
    return "\n\n".join(blocks) or None


def _holds(kind: str, word: str) -> bool:
    """Whether a kind has this word or these initials, as deficit_round_robin has drr."""
    words = kind.split("_")
    return len(words) > 1 and (word in words or word == "".join(part[0] for part in words))


def _server() -> str:
    from spillway.instance import Server

    given = ", ".join(
        field.name if field.default is MISSING else f"{field.name}={field.default!r}"
        for field in fields(Server)
    )
    example = "instances:\n  - server: {model: llama-3.1-8b, gpu: h100, tp: 1}\n    count: 4"
    return "\n\n".join(
        [
            "instances.server: Server, in files in place of the settings that follow from it",
            textwrap.indent(example, "    "),
            wrapped(f"Server({given})", width=_WIDTH),
            inspect.getdoc(Server) or "",
        ]
    )


def _figures() -> dict[str, dict[str, Any]]:
    names = ("name", "doc", "unit", "population", "better", "needs_targets")
    known = {
        key: {name: getattr(figure, name) for name in names} for key, figure in FIGURES.items()
    }
    return {**known, "shed": _SHED}


def _family(figure: Mapping[str, Any]) -> str:
    """What the statistics of one latency share; the name of any other figure."""
    known = FIGURES.get(figure["name"])
    is_statistic = known is not None and known.latency and known.statistic != "num"
    return f"{known.latency}" if known is not None and is_statistic else f"={figure['name']}"


def _all_figures() -> str:
    groups = itertools.groupby(_figures().values(), _family)
    blocks = (_figure(list(group)) for _, group in groups)
    where, selectors = (wrapped(text, width=_WIDTH) for text in (_WHERE, _SELECTORS))
    return "\n\n".join([where, *blocks, selectors])


def _figure(group: Sequence[Mapping[str, Any]]) -> str:
    """A figure, or the statistics of a latency."""
    first = group[0]
    better = "" if first["better"] == "neither" else f"; {first['better']} is better"
    facts = f"{first['unit'] or 'a number'}{better}; of {first['population']}"
    if first["needs_targets"]:
        facts += "; needs latency targets"
    names = ", ".join(figure["name"] for figure in group)
    return "\n".join(
        [
            wrapped(names, width=_WIDTH),
            wrapped(first["doc"], "    ", _WIDTH),
            wrapped(f"[{facts}]", "    ", _WIDTH),
        ]
    )


def _keys(kind: str) -> Mapping[str, Any]:
    from spillway.study.files import KEYS  # slow to import

    return KEYS[kind]


def _key(kind: str, name: str) -> str:
    known = _keys(kind)
    if name not in known:
        raise config_error([(f"{kind}.{name}", "", f"unknown key; one of {', '.join(known)}")])
    entry = known[name]
    separator = "\n" if "\n" in entry.example else " "
    return "\n".join(
        [
            f"{name}    [default: {entry.default}]",
            wrapped(entry.doc, "    ", _WIDTH),
            "    Example:",
            textwrap.indent(f"{name}:{separator}{entry.example}", "        "),
        ]
    )


def _file(kind: str, head: str, example: str) -> str:
    blocks = [wrapped(head, width=_WIDTH), *(_key(kind, name) for name in _keys(kind))]
    return "\n\n".join([*blocks, "A whole file:\n" + textwrap.indent(example.rstrip(), "    ")])


def _study() -> str:
    return _file(
        "study",
        "A study file (YAML or JSON) searches for better settings: `spillway optimize FILE`. "
        "space and one of maximize and minimize are required. Values of a parameter and selectors "
        "of figures: the guide Search from a shell.",
        "simulation: experiment.yaml\n"
        "space:\n"
        "  gateway.limit[0].max_in_flight: [16, 256]\n"
        "  router: {choices: [round_robin, least_loaded]}\n"
        "maximize: goodput\n"
        'constraints: {shed: "<=0.05"}\n'
        "seeds: 3\n"
        "trials: 30\n",
    )


def _sweep() -> str:
    return _file(
        "sweep",
        "A sweep file (YAML or JSON) lists configurations or solves for one number: `spillway "
        "sweep FILE`. Exactly one of grid, isolation, sobol, one_at_a_time, max_rate_under_slo "
        "and min_instances_for_rate is required. The last two solve and take no metrics.",
        "simulation: experiment.yaml\n"
        "grid:\n"
        "  gateway.limit[0].max_in_flight: [32, 64, 128]\n"
        "  router: [round_robin, least_loaded]\n"
        "seeds: 4\n"
        "metrics: [goodput, p99_ttft_ms, shed]\n",
    )


_FILES = ("study", "sweep")
_SERVER = "instances.server"
TOPICS: Mapping[str, Callable[[], str]] = {
    "figures": _all_figures,
    "study": _study,
    "sweep": _sweep,
    _SERVER: _server,
}
"""Topics of their own."""
