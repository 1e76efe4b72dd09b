"""A system whose configuration files are written and read."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from spillway.config.classes import config_error
from spillway.config.describe import descriptor
from spillway.config.differences import in_words
from spillway.files.deployments.secrets import masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


GATEWAY = (
    "admission", "bands", "max_queued", "queue_shedding", "drain_latency_s", "dispatch",
    "attempt_period_s", "expiry_period_s", "limit", "usage_limit", "eviction", "controller",
    "guard", "sensor",
)  # fmt: skip
"""The settings of the gateway that are rules; the others are latencies and replicas."""


MODEL = "${MODEL:?}"
"""The model in a command line that is written: a shell stops if the variable is not set."""


class Loss(NamedTuple):
    """A setting that the files do not carry.

    `path`: the setting; `value`: its value; `deployed`: its value in the system that runs with the
    files; `reason`: why they differ.
    """

    path: str
    value: Any
    deployed: Any
    reason: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of policies that are lost as a whole; none for the loss of a number."""
        kept = _kinds(self.deployed)
        return tuple(kind for kind in _kinds(self.value) if kind not in kept)

    def __str__(self) -> str:
        return (
            f"{self.path} = {in_words(self.value)}: becomes {in_words(self.deployed)}; "
            f"{self.reason}"
        )


def _kinds(value: Any) -> list[str]:
    entries = value if isinstance(value, list) else [value]
    return [entry["kind"] for entry in entries if isinstance(entry, dict) and "kind" in entry]


Effect = Literal["irrelevant", "assumed", "not_simulated", "not_modeled"]
"""What a field without a counterpart does to a system; see `Unread`."""


@dataclass(frozen=True)
class Unread:
    """A field of a file without a counterpart: file and field, value, and why.

    Of a whole file the value is None. Secrets in the value are masked. `effect`: `irrelevant` to
    what is simulated, such as a port; `assumed`: a default that is worth a note; `not_simulated`;
    `not_modeled`: the system works in another way than the simulation, such as with speculative
    decoding, so that an import is refused unless `allow_lossy`.
    """

    field: str
    value: Any
    reason: str
    effect: Effect = "not_simulated"

    def __post_init__(self) -> None:
        name = self.field.rpartition(": ")[2]
        object.__setattr__(self, "value", masked(self.value, name))

    def __str__(self) -> str:
        shown = "" if self.value is None else f" = {in_words(self.value)}"
        return f"{self.field}{shown}: {self.reason}"


@dataclass(frozen=True)
class Program:
    """A program whose command lines a system reads.

    Parameters
    ----------
    name
        As in `Piece.program`.
    calls
        The words that start it, by which it is recognized; the first ones are those to write.
    images
        A pattern of the container images that start it, of their last name.
    tagged
        A pattern of the last names of images whose tag is its version.
    containers
        A pattern of the names of containers that start it, if they have flags and no command.
    """

    name: str
    calls: tuple[tuple[str, ...], ...]
    images: str = r"(?!)"
    tagged: str = r"(?!)"
    containers: str = r"(?!)"


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A command line, or a document, that a system knows.

    Parameters
    ----------
    where
        File and place, for errors.
    system
        The name of the system.
    program
        Of a command: the name of its `Program`.
    words
        Of a command: the words after those that start the program.
    environment
        The variables that the program sees.
    content
        Of a document: its content.
    replicas
        How many of it run, if that is stated.
    role
        Of a server in one of two pools, if that is stated: prefill or decode.
    version
        That of the image, if it has one: 0.19.1.
    files
        Texts that the command line can refer to, by the last part of their name.
    """

    where: str
    system: str
    program: str = ""
    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    content: Any = None
    replicas: int | None = None
    role: str = ""
    version: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A system, and how its configuration files correspond to settings.

    Parameters
    ----------
    name
        As in `to="llm-d@0.10"`.
    versions
        Its versions, oldest first; the last one is the default.
    doc
        The files, in one sentence.
    covers
        Paths of the settings that the system decides; `[]` stands for every entry of a list. All
        others describe the rest of the deployment, and stay out of the files.
    reasons
        Why settings below a path cannot be written; the first path that fits counts.
    write
        Complete settings and a version → the files by name.
    read
        The files, complete settings and a version: changes the settings that the system decides, in
        place, to what it does with these files, whatever they were before. Returns the fields
        without a counterpart.
    programs
        The programs whose command lines are its configuration.
    documents
        Whether a document, at any depth of a file, is of this system. Its text is then among the
        files of `read`.
    expected
        What a file may hold, in words; for errors.
    read_pieces
        Instead of `read`: the command lines and documents that were found in files, settings, a
        version, and an accelerator of the catalog or None. With an accelerator the instances are
        computed from it.
    computes_servers
        Whether `read_pieces` takes an accelerator.
    hands_on
        A piece of this system → the part of it that another system knows, or None.
    approximated
        The flags whose settings are not exact, and how they are read.
    notes
        Complete settings and a version → what to know about the values in the files. None: nothing.
    follows
        Paths, among `covers`, that the version decides and no flag states. Where a simulation has
        their defaults, that it gets those of the version is no loss, but a note of the export.
    absorb
        Changes complete settings, in place, so that a limit of the gateway which the system lacks
        is where it has one; returns what each setting that is lost thereby has become. None: never.
    """

    name: str
    versions: tuple[str, ...]
    doc: str
    covers: tuple[str, ...]
    reasons: tuple[tuple[str, str], ...]
    write: Callable[[Mapping[str, Any], str], dict[str, str]]
    read: Callable[[Mapping[str, str], dict[str, Any], str], list[Unread]] | None = None
    programs: tuple[Program, ...] = ()
    documents: Callable[[Any], bool] | None = None
    expected: str = ""
    read_pieces: (
        Callable[[Sequence[Piece], dict[str, Any], str, str | None], list[Unread]] | None
    ) = None
    computes_servers: bool = False
    hands_on: Callable[[Piece], Piece | None] | None = None
    approximated: tuple[tuple[str, str], ...] = ()
    notes: Callable[[Mapping[str, Any], str], list[str]] | None = None
    follows: tuple[str, ...] = ()
    absorb: Callable[[dict[str, Any], str], dict[str, str]] | None = None

    def decides(self, path: str) -> bool:
        """Whether the system decides the setting at a path, or one below it."""
        pattern = pattern_of(path)
        return any(
            _is_within(pattern, covered) or _is_within(covered, pattern) for covered in self.covers
        )

    def follows_version(self, path: str, value: Any) -> bool:
        """Whether a setting is one that the version decides, and has its default."""
        pattern = pattern_of(path)
        return any(_is_within(pattern, prefix) for prefix in self.follows) and (
            value == descriptor(pattern.replace("[]", ""))["default"]
        )

    def reason(self, path: str) -> str:
        """Why the setting at a path cannot be written."""
        pattern = pattern_of(path)
        for prefix, text in self.reasons:
            if _is_within(pattern, prefix):
                return text
        return f"{self.name} has no such setting"


def pattern_of(path: str) -> str:
    """A path with `[]` instead of indices and names."""
    return re.sub(r"\[[^\]]*\]", "[]", path)


def _is_within(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))


def reset(settings: dict[str, Any], paths: Iterable[str], defaults: Mapping[str, Any]) -> None:
    """Resets the settings at paths with `[]` to their defaults, in place.

    Without pools, those of disaggregation have no effect, and stay.
    """
    stays = None if has_pools(settings) else copy.deepcopy(settings["disaggregation"])
    for path in paths:
        _reset(path, settings, defaults)
    if stays is not None:
        settings["disaggregation"] = stays


def _reset(covered: str, settings: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Resets the settings at a path with `[]` to their defaults, in place."""
    key, _, below = covered.partition(".")
    name = key.removesuffix("[]")
    if not below:
        settings[name] = defaults[name]
    elif key == name:
        _reset(below, settings[name], defaults[name])
    else:
        for entry in settings[name]:
            _reset(below, entry, defaults[name][0])


def has_pools(settings: Mapping[str, Any]) -> bool:
    """Whether groups of the settings are in a prefill or a decode pool."""
    return any(group["role"] != "both" for group in settings["instances"])


def notes_on_pools(settings: Mapping[str, Any], targets: Iterable[Target]) -> list[str]:
    """Says what is simulated where there are pools, and no file of these systems routes to them."""
    if not has_pools(settings) or any(target.decides("disaggregation") for target in targets):
        return []
    pools = settings["disaggregation"]
    known = f"{pools['order']}, decider {pools['decider']['kind']}"
    return [f"disaggregation: no file states the router of both pools: {known}"]


def unrecognized(files: Mapping[str, bool], expected: str) -> list[Unread]:
    """The files, by name, in which nothing was recognized.

    Raises ConfigError if that is all of them, so that no files at all are not mistaken for a system
    with its defaults. `expected`: what a file may hold.
    """
    unknown = [name for name, is_known in files.items() if not is_known]
    if unknown and len(unknown) == len(files):
        raise config_error(
            [(name, "", f"nothing in it is known: must be {expected}") for name in unknown]
        )
    return [Unread(name, None, f"nothing in it is known: not {expected}") for name in unknown]
