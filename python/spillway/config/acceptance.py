"""Verdicts of recordings on servers: a file beside the server, and its words in the provenance.

`spillway validate recording` writes the file, and whatever reads a configuration reads it. A
verdict is of a server as it was judged: other settings of the instance are another server.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from spillway.config.classes import config_error
from spillway.config.files import read_settings
from spillway.config.filesystem import replacing
from spillway.config.yaml import to_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from spillway._core.instance import InstanceGroup

NOT_MET = "not met"
VERDICTS = ("met", NOT_MET, "undecided")
_KIND = "acceptance"
_VERSION = 1
_NOT_OF_SERVER = (
    "count",
    "cost_per_hour",
    "models",
    "transfer_domain",
    "provenance",
    "fitted_states",
)
_WORDS = "; acceptance: "
_RANKS = {"undecided": 0, "met": 1, NOT_MET: 2}
_TEXTS = ("verdict", "date", "server", "configuration", "reason")


def file_of(server: Path) -> Path:
    """The file of verdicts on a server, beside its own: server.yaml → server.acceptance.yaml."""
    return server.with_name(f"{server.stem}.acceptance.yaml")


def fingerprint(group: InstanceGroup) -> str:
    """SHA-256 of the settings of an instance that decide how it serves."""
    settings = {key: of for key, of in group.to_dict().items() if key not in _NOT_OF_SERVER}
    canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def read(file: Path) -> list[dict[str, Any]]:
    """The verdicts of a file; none if there is no file. Raises ConfigError for another file."""
    if not file.is_file():
        return []
    document = read_settings(file)
    found = document.get("verdicts")
    is_valid = (
        document.get("kind") == _KIND
        and document.get("version") == _VERSION
        and isinstance(found, list)
        and all(map(_is_entry, found))
    )
    if not is_valid:
        allowed = "must be a file of spillway validate recording; delete it, and judge again"
        raise config_error([(str(file), "", allowed)])
    return list(found)  # type: ignore[arg-type]


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(name), str) for name in _TEXTS)
        and entry["reason"].isprintable()
        and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", entry["date"]) is not None
        and entry["verdict"] in VERDICTS
        and isinstance(entry.get("recording"), dict)
        and isinstance(entry["recording"].get("sha256"), str)
    )


def write(file: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Adds verdicts on the servers of one file.

    A verdict replaces an older one of the same recording on the same server. An undecided one does
    not replace a decided one. Verdicts on servers that are no longer there are left out.
    """
    servers = {entry["server"] for entry in entries}
    kept = {_key(entry): entry for entry in read(file) if entry["server"] in servers}
    for entry in entries:
        known = kept.get(_key(entry))
        if known is None or entry["verdict"] != "undecided" or known["verdict"] == "undecided":
            kept[_key(entry)] = dict(entry)
    document = {"kind": _KIND, "version": _VERSION, "verdicts": list(kept.values())}
    with replacing(file) as temporary:
        temporary.write_text(to_yaml(document), encoding="utf-8")


def _key(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry["server"], entry["recording"]["sha256"]


def marked(group: InstanceGroup, file: Path) -> InstanceGroup:
    """The group, whose provenance says what recordings say of it; the worst verdict decides."""
    own = fingerprint(group)
    found = [entry for entry in read(file) if entry["server"] == own]
    if not found:
        return group
    worst = max(found, key=lambda entry: (_RANKS[entry["verdict"]], entry["date"]))
    reason = f" ({worst['reason']})" if worst["reason"] else ""
    words = f"{_WORDS}{worst['verdict']} on {worst['date']}{reason}"
    origin = group.provenance.partition(_WORDS)[0] or "settings of the configuration"
    return group.replace(provenance=origin + words)


def is_judged(group: InstanceGroup) -> bool:
    """Whether its provenance states a verdict."""
    return _WORDS in group.provenance


def rejection(group: InstanceGroup) -> str:
    """The server and its negative verdict, in words; empty if there is none."""
    origin, _, words = group.provenance.partition(_WORDS)
    return f"{origin}: {words}" if words.startswith(NOT_MET) else ""
