"""Scripts and command lines as pieces."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from spillway._core.sim import ConfigError
from spillway.files.deployments import leftovers, shell
from spillway.files.deployments.target import Piece, Unread
from spillway.files.deployments.variables import irrelevant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.files.deployments.surroundings import Context
    from spillway.files.deployments.target import Program, Target


_PREFIX = re.compile(r"(?:/usr(?:/local)?/bin/)?python3?|-u|exec")
_ASSIGNED = re.compile(r"^\s*(?:export\s+)?[A-Z][A-Z0-9_]*=", re.MULTILINE)


@dataclass
class Found:
    """The pieces, the fields that belong to none, and the files in which nothing is known."""

    pieces: list[Piece] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class Commands:
    """Finds the command lines of known programs.

    `texts`: files by name; `targets`: the systems; `only`: the one that is asked for, if any.
    """

    def __init__(
        self, texts: Mapping[str, str], targets: Sequence[Target], only: Target | None
    ) -> None:
        self.only = only
        self.targets = sorted(targets, key=lambda target: target is not only)
        self.result = Found()
        self.files = {name.rpartition("/")[2]: text for name, text in texts.items()}
        self.referred: set[str] = set()
        self.calls = [
            (target, program, call)
            for target in self.targets
            for program in target.programs
            for call in program.calls
        ]

    def text(self, where: str, text: str, context: Context) -> list[Unread] | None:
        """A text within a file, if it holds something."""
        raise NotImplementedError

    def started(
        self, where: str, image: str, words: list[str], context: Context
    ) -> list[Unread] | None:
        """The program of a container with these words; None if it is unknown."""
        raise NotImplementedError

    def calls_in(self, text: str) -> bool:
        """Whether a text contains the words that start a program."""
        return any(
            re.search(
                r"(?<![\w.-])" + r"[\s\"',]+".join(map(re.escape, call)) + r"(?![\w.-])", text
            )
            for _, _, call in self.calls
        )

    def script(self, where: str, text: str, context: Context) -> list[Unread] | None:
        """The commands of a script; None if none of them is known."""
        if self.only is not None and self.only.programs and text.lstrip().startswith("-"):
            lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
            text = " ".join([*self.only.programs[0].calls[0], *lines])
        is_script = self.calls_in(text) or _runs_container(text) or _ASSIGNED.search(text)
        if not is_script and "<<" not in text:
            return None
        try:
            found = shell.script(text, where, context.environment)
        except ConfigError:
            if is_script:
                raise
            return None
        before = len(self.result.pieces)
        unread: list[Unread] = []
        is_found = False
        for name, body in found.documents.items():
            self.files.setdefault(name.rpartition("/")[2], body)
        for words, environment in found.commands:
            inside = replace(context, environment=environment)
            left = self.command(where, words, inside)
            is_found = is_found or left is not None
            unread += leftovers.command(where, words) if left is None else left
        for name, body in found.documents.items():
            left = self.text(f"{where}: {name}", body, context)
            is_found = is_found or left is not None
            unread += (
                [Unread(f"{where}: {name}", body, "nothing in it is known")]
                if left is None
                else left
            )
        outputs = [name for name in found.redirections if not name.isdigit() and name != "-"]
        if outputs:
            unread.append(Unread(f"{where}: outputs", outputs, irrelevant, "irrelevant"))
        used = {name for piece in self.result.pieces[before:] for name in piece.environment}
        loose = {name: value for name, value in found.variables.items() if name not in used}
        if (
            not is_found
            and self.only is not None
            and self.only.programs
            and self.only.documents is not None
            and self.only.documents({"environment": loose})
        ):
            self.piece(
                Piece(
                    where=where,
                    system=self.only.name,
                    program=self.only.programs[0].name,
                    environment=loose,
                )
            )
            return unread
        return [
            *unread,
            *(Unread(f"{where}: ${name}", value, "is a variable of the script", "irrelevant")
              for name, value in loose.items()),
        ] if is_found else None  # fmt: skip

    def command(self, where: str, words: list[str], context: Context) -> list[Unread] | None:
        """A command line; None if its program is unknown."""
        container = shell.container_of(words)
        if container is not None:
            return self.run_container(where, container, context)
        inner = shell.inner_script(words)
        if inner is not None:
            return self.script(where, inner, context) if self.calls_in(inner) else None
        match = self.program_in(words)
        if match is None:
            return None
        target, program, start, end = match
        unread = []
        prefix = [word for word in words[:start] if not _PREFIX.fullmatch(word)]
        if prefix:
            place = f"{where}: before {program.name}"
            unread.append(Unread(place, prefix, irrelevant, "irrelevant"))
        if context.is_helper or context.replicas == 0:
            reason = "is a further node, or a helper" if context.is_helper else "has no replicas"
            return [
                *unread,
                Unread(f"{where}: {program.name}", words[end:], reason, "irrelevant"),
            ]
        self.piece(
            Piece(
                where=self.label(context.label),
                system=target.name,
                program=program.name,
                words=tuple(words[end:]),
                environment=context.environment,
                replicas=context.replicas,
                role=context.role,
                version=_version(context.image, program),
                files=self.files,
            )
        )
        names = {(word.partition("=")[2] or word).rpartition("/")[2] for word in words[end:]}
        self.referred |= names & self.files.keys()
        return unread

    def run_container(
        self, where: str, container: shell.Container, context: Context
    ) -> list[Unread] | None:
        """The program of `docker run`; None if it is unknown."""
        environment: dict[str, str] = {}
        unread = []
        for name in container.env_files:
            base = name.rpartition("/")[2]
            if base in self.files:
                self.referred.add(base)
                environment |= shell.script(self.files[base], base).variables
            else:
                unread.append(Unread(f"{where}: --env-file", name, "is not among the files"))
        environment |= container.environment
        known = context.environment
        environment = {k: shell.expand(v, known) for k, v in environment.items()}
        inside = replace(context, environment=environment)
        left = self.started(where, container.image, container.words, inside)
        if left is None:
            return None
        options = [
            Unread(f"{where}: docker {name}", values, irrelevant, "irrelevant")
            for name, values in container.options.items()
        ]
        image = Unread(f"{where}: image", container.image, irrelevant, "irrelevant")
        return [*left, *unread, image, *options]

    def add_program(self, name: str, where: str, words: list[str], context: Context) -> None:
        """A program that is implied: by the kind of a component, or of a service."""
        call = next(call for _, program, call in self.calls if program.name == name)
        model = [context.model] if context.model and name == "vllm" else []
        reason = "is what runs where no command is given"
        self.result.unread.append(Unread(f"{where}: command", list(call), reason, "irrelevant"))
        self.result.unread += (
            self.command(where, [*call, *model, *context.flags, *words], context) or []
        )

    def program_in(self, words: Sequence[str]) -> tuple[Target, Program, int, int] | None:
        """The system and the program of a command, and where its words begin and end."""
        for start in range(len(words)):
            for target, program, call in self.calls:
                end = start + len(call)
                given = list(words[start:end])
                if given and given[0].startswith("/"):
                    given[0] = given[0].rpartition("/")[2]
                if tuple(given) == call:
                    return target, program, start, end
        return None

    def label(self, label: str) -> str:
        """A name of the place of a piece that no other piece has."""
        taken = {piece.where for piece in self.result.pieces}
        number = 2
        name = label
        while name in taken:
            name = f"{label} ({number})"
            number += 1
        return name

    def piece(self, piece: Piece) -> None:
        """Adds a piece."""
        self.result.pieces.append(piece)


def _version(image: str, program: Program) -> str | None:
    """The version of a program in an image whose tag states it."""
    name, _, tag = image.rpartition("/")[2].partition(":")
    found = re.match(r"v?(\d+\.\d+(?:\.\d+)?)(?=$|[-.+@a-z])", tag)
    return found[1] if found and re.fullmatch(program.tagged, name) else None


def _runs_container(text: str) -> bool:
    return bool(re.search(r"\b(?:docker|podman|nerdctl)\s+(?:container\s+)?(?:run|create)\b", text))
