"""What real files hold: command lines, environments and documents, wherever they are.

Files are shell scripts, `docker run`, compose files, Kubernetes manifests of any kind, values of
Helm charts, several documents in one file, and texts within all of these: scripts of `sh -c`, the
data of ConfigMaps, here-documents. Whatever is neither part of a piece nor a part of what holds
it is listed.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import yaml

from spillway.config.classes import config_error
from spillway.config.yaml import ManifestLoader, parse
from spillway.files.deployments import leftovers, shell, surroundings
from spillway.files.deployments.commands import Commands, Found
from spillway.files.deployments.surroundings import ROLES, SIZES, Context, is_scalar, repository
from spillway.files.deployments.surroundings import word as word_of
from spillway.files.deployments.surroundings import words as words_of
from spillway.files.deployments.target import Effect, Piece, Unread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from spillway.files.deployments.target import Target


def find(texts: Mapping[str, str], targets: Iterable[Target], only: Target | None) -> Found:
    """The pieces in files by name; what only one system can mean is of `only`, if it is given."""
    return _Finder(texts, tuple(targets), only).found()


_SHELL_NAMES = re.compile(r"\.(?:sh|bash|args|env|txt)$|(?:^|/)[^/.]+$")
_YAML_NAMES = (".yaml", ".yml", ".json")
_ENVIRONMENTS = ("env", "envs", "environment", "extraEnv")
_MOST_NODES = 200_000


class _Finder(Commands):
    """Finds pieces in documents, too."""

    def __init__(
        self, texts: Mapping[str, str], targets: Sequence[Target], only: Target | None
    ) -> None:
        super().__init__(texts, targets, only)
        self.texts = texts
        self.configs: dict[str, dict[str, str]] = {}  # data of ConfigMaps, by their name
        self.nodes = 0

    def found(self) -> Found:
        documents = {name: self.documents(name, text) for name, text in self.texts.items()}
        for contents in documents.values():
            for content in contents or ():
                self.collect(content)
        scripts = [name for name, contents in documents.items() if contents is None]
        for name in sorted(self.texts, key=lambda name: name not in scripts):
            contents = documents[name]
            left = (
                self.script(name, self.texts[name], Context(name))
                if contents is None
                else self.all_documents(name, contents)
            )
            if left is None:
                self.result.unknown.append(name)
            else:
                self.result.unread += left
        self.result.pieces = [
            piece
            for piece in self.result.pieces
            if piece.content is None or piece.where.rpartition("/")[2] not in self.referred
        ]
        self.result.unknown = [
            name for name in self.result.unknown if name.rpartition("/")[2] not in self.referred
        ]
        return self.result

    # --- documents ----------------------------------------------------------------------------

    def documents(self, name: str, text: str) -> list[Any] | None:
        """The documents of a text; None if it is a script, or neither."""
        is_yaml = name.endswith(_YAML_NAMES)
        if text.startswith("#!") or (
            not is_yaml and _SHELL_NAMES.search(name) and self.calls_in(text)
        ):
            return None
        if name.endswith(".json"):
            return [parse(text, name, is_json=True)]
        try:
            found = [_merged(document) for document in yaml.load_all(text, Loader=ManifestLoader)]
        except (yaml.YAMLError, RecursionError) as error:
            if self.calls_in(text) or not is_yaml:
                return None
            if "{{" in text:
                reason = "is a template: render it, as `helm template` does"
                raise config_error([(name, "", reason)]) from error
            parse(text, name)
            raise
        if any(isinstance(content, str) for content in found):
            return None
        return found

    def collect(self, content: Any) -> None:
        """Notes the data of ConfigMaps, to which commands can refer."""
        for document in _items(content):
            if document.get("kind") == "ConfigMap" and isinstance(document.get("data"), dict):
                data = {key: str(value) for key, value in document["data"].items()}
                metadata = document.get("metadata")
                name = metadata.get("name") if isinstance(metadata, dict) else None
                self.configs[str(name)] = data
                self.files = {**data, **self.files}

    def all_documents(self, name: str, contents: Sequence[Any]) -> list[Unread] | None:
        many = len([content for content in contents if content is not None]) > 1
        found: list[Unread] = []
        others: list[Unread] = []
        for i, content in enumerate(contents):
            where = f"{name} document {i + 1}" if many else name
            left = self.document(where, content)
            if left is None and content is not None:
                others.append(leftovers.document(where, content))
            found += left or []
            if left is not None:
                many = many or True
        is_known = len(others) < sum(content is not None for content in contents) or any(
            entry.reason != leftovers.UNKNOWN for entry in others
        )
        return [*found, *others] if is_known else None

    def document(self, where: str, content: Any) -> list[Unread] | None:
        items = list(_items(content))
        if isinstance(content, dict) and items and items[0] is not content:
            lists = [self.document(f"{where}: items[{i}]", item) for i, item in enumerate(items)]
            if all(left is None for left in lists):
                return None
            return [
                unread
                for i, left in enumerate(lists)
                for unread in (
                    [leftovers.document(f"{where}: items[{i}]", items[i])] if left is None else left
                )
            ]
        return self.walk(where, content, Context(where))

    # --- a tree -------------------------------------------------------------------------------

    def walk(self, where: str, value: Any, context: Context) -> list[Unread] | None:
        """Finds the pieces below a place: the fields that are left; None if there are no pieces."""
        self.nodes += 1
        if self.nodes > _MOST_NODES:
            raise config_error([(where.partition(":")[0], "", "is too large")])
        if context.is_text:
            return None
        if isinstance(value, dict):
            return self.mapping(where, value, context)
        if isinstance(value, list):
            if value and all(is_scalar(word) for word in value):
                words = [word_of(word) for word in value]
                inside = _within(where, context)
                return self.command(where, words, inside) if self.program_in(words) else None
            below = {f"{where}[{i}]": (str(i), entry) for i, entry in enumerate(value)}
            return self.children(below, context, set())
        if isinstance(value, str):
            return self.text(where, value, context)
        return None

    def children(
        self, below: Mapping[str, tuple[str, Any]], context: Context, used: set[str]
    ) -> list[Unread] | None:
        keys = {key for key, _ in below.values()}
        context = replace(context, is_root=False)
        found = {
            where: self.walk(where, value, surroundings.inside(key, keys, context))
            for where, (key, value) in below.items()
        }
        if all(left is None for left in found.values()):
            return None
        unread: list[Unread] = []
        for where, left in found.items():
            key, value = below[where]
            if left is not None:
                unread += left
            elif key not in used:
                unread.append(leftovers.field(where, key, value))
        return unread

    def text(self, where: str, text: str, context: Context) -> list[Unread] | None:
        """A text within a file, if it holds something."""
        if "\n" not in text.strip() and not self.calls_in(text):
            return None
        inside = _within(where, context)
        if self.calls_in(text) and not re.match(r"\s*(?:---|\w+:\s|[{\[])", text):
            return self.script(where, text, inside)
        try:
            contents = [_merged(content) for content in yaml.load_all(text, Loader=ManifestLoader)]
        except (yaml.YAMLError, RecursionError):
            return self.script(where, text, inside) if self.calls_in(text) else None
        return self.roots(
            {where if len(contents) == 1 else f"{where} document {i + 1}": (str(i), content)
             for i, content in enumerate(contents)
             if not isinstance(content, str)},
            replace(context, label=where, is_root=True),
        )  # fmt: skip

    def roots(self, below: Mapping[str, tuple[str, Any]], context: Context) -> list[Unread] | None:
        """Documents within a text."""
        found = {where: self.walk(where, value, context) for where, (_, value) in below.items()}
        if all(left is None for left in found.values()):
            return None
        return [
            unread
            for where, left in found.items()
            for unread in ([leftovers.document(where, below[where][1])] if left is None else left)
        ]

    def mapping(self, where: str, value: dict[str, Any], context: Context) -> list[Unread] | None:
        for target in self.targets:
            is_place = context.is_root or not target.programs
            if is_place and target.documents is not None and target.documents(value):
                self.piece(Piece(where=where, system=target.name, content=value))
                size = context.replicas
                effect: Effect = "irrelevant" if size == 1 else "not_simulated"
                reason = "of what reads the document"
                return [] if size is None else [Unread(f"{where}: replicas", size, reason, effect)]
        if value.get("kind") == "Secret":
            return None
        context, used = surroundings.below(value, context)
        left = self.container(where, value, context, used)
        if left is None:
            left = self.model_spec(where, value, context)
        if left is None:
            left = self.predictor(where, value, context)
        if left is not None:
            return left
        below = {f"{where}: {key}": (key, entry) for key, entry in value.items()}
        if context.model or any(isinstance(value.get(key), dict) for key in ROLES):
            left = self.sections(where, value, context, used)
        else:
            left = self.children(below, context, used)
        if left is None and surroundings.component(value) == "frontend":
            self.add_program("dynamo.frontend", where, [], context)
            left = [
                leftovers.field(at, key, entry)
                for at, (key, entry) in below.items()
                if key not in used
            ]
        return left

    def sections(
        self, where: str, value: dict[str, Any], context: Context, used: set[str]
    ) -> list[Unread] | None:
        """The sections of a mapping that are servers, each with a role of its own."""
        unread: list[Unread] = []
        is_found = has_server = False
        if _is_created(value.get("prefill")) and "decode" not in value:
            context = replace(context, role="decode")  # what the servers beside it are
        for key, entry in value.items():
            at = f"{where}: {key}"
            if key in ROLES and isinstance(entry, dict):
                if not _is_created(entry):
                    unread.append(Unread(at, entry, "is not created", "irrelevant"))
                    continue
                inside = replace(context, role=key, label=f"{context.label}: {key}", replicas=None)
                if context.model and not context.default:
                    inside = replace(inside, default="vllm")
                left = self.walk(at, {k: v for k, v in entry.items() if k != "create"}, inside)
                if left is None and inside.default:
                    below, taken = surroundings.below(entry, inside)
                    self.add_program(inside.default, at, [], below)
                    left = [
                        leftovers.field(f"{at}: {k}", k, v)
                        for k, v in entry.items()
                        if k not in taken and k != "create"
                    ]
                unread += [leftovers.field(at, key, entry)] if left is None else left
                is_found = is_found or left is not None
                continue
            before = len(self.result.pieces)
            left = self.walk(at, entry, surroundings.inside(key, set(value), context))
            has_server |= any(
                piece.program == context.default for piece in self.result.pieces[before:]
            )
            if left is not None:
                unread += left
                is_found = True
            elif key not in used:
                unread.append(leftovers.field(at, key, entry))
        if context.default and not has_server and isinstance(value.get("model"), dict):
            self.add_program(context.default, where, [], context)
            is_found = True
        return unread if is_found else None

    # --- containers ---------------------------------------------------------------------------

    def container(
        self, where: str, value: dict[str, Any], context: Context, used: set[str]
    ) -> list[Unread] | None:
        """A mapping with an image or a command: of Kubernetes, of compose, of a chart."""
        image = value.get("image")
        command = words_of(value.get("command"))
        if isinstance(image, dict):
            command = command or words_of(image.get("command"))
            image = ":".join(str(image[key]) for key in ("repository", "tag") if image.get(key))
        entry = words_of(value.get("entrypoint"))
        arguments = words_of(value.get("args"))
        is_server = context.default and "name" in value and ("env" in value or "resources" in value)
        is_container = (
            isinstance(image, str) or command is not None or arguments is not None or entry
            or is_server
        ) and not any(isinstance(value.get(key), dict) for key in ("spec", "template"))  # fmt: skip
        if not is_container:
            return None
        place = where.rpartition(": ")[2] if ": " in where else ""
        name = value.get("name", value.get("container_name", place))
        inside = replace(context, label=f"{context.label}: {name}" if name else context.label)
        environment, other = self.environment(where, value, inside)
        inside = replace(inside, environment=environment)
        words = [*(entry or []), *(command or []), *(arguments or [])]
        words = [_dollars(word, environment) for word in words]
        if value.get("modelCommand") == "vllmServe":
            words = ["vllm", "serve", context.model, *context.flags, *words]
        elif value.get("modelCommand") == "imageDefault" and context.model:
            words = ["--model", context.model, *context.flags, *words]
        # A command of compose is an argument of what the image starts; others replace that.
        is_replaced = entry is not None or (
            command is not None and ("args" in value or "ontainer" in where.rpartition(": ")[2])
        )
        image = image if isinstance(image, str) else ""
        inside = replace(inside, image=image)
        left = self.started(where, "" if is_replaced else image, words, inside)
        if left is None and not command and not entry and words[:1] and words[0][:1] == "-":
            left = self.named(where, str(name), words, inside)
        if left is None and context.default and not command and not entry:
            extra = shlex.split(environment.get("VLLM_ADDITIONAL_ARGS", ""))
            known = {k: v for k, v in environment.items() if k != "VLLM_ADDITIONAL_ARGS"}
            self.add_program(
                context.default, where, [*words, *extra], replace(inside, environment=known)
            )
            left = []
        if left is None:
            return None
        names = {"command", "entrypoint", "args", *_ENVIRONMENTS, "envFrom", "env_file", *used}
        return [
            *left,
            *other,
            *(leftovers.field(f"{where}: {key}", key, entry) for key, entry in value.items()
              if key not in names),
        ]  # fmt: skip

    def named(
        self, where: str, name: str, words: list[str], context: Context
    ) -> list[Unread] | None:
        """The program of a container that has flags and no command, by its name."""
        for _, program, call in self.calls:
            if call == program.calls[0] and re.fullmatch(program.containers, name):
                reason = f"has no command and is taken for {' '.join(call)}"
                left = self.command(where, [*call, *words], context)
                return [*(left or []), Unread(f"{where}: container", name, reason, "assumed")]
        return None

    def environment(
        self, where: str, value: Mapping[str, Any], context: Context
    ) -> tuple[dict[str, str], list[Unread]]:
        """The variables of a container, and the references that are not resolved."""
        found = dict(context.environment)
        unread: list[Unread] = []
        for source in value.get("envFrom") or []:
            reference = source.get("configMapRef") if isinstance(source, dict) else None
            data = (
                self.configs.get(str(reference.get("name")))
                if isinstance(reference, dict)
                else None
            )
            if data is None:
                unread.append(Unread(f"{where}: envFrom", source, "is not among the files"))
            else:
                found |= data
        files = value.get("env_file") or []
        for name in [files] if isinstance(files, str) else files:
            base = str(name.get("path") if isinstance(name, dict) else name).rpartition("/")[2]
            if base in self.files:
                self.referred.add(base)
                found |= shell.script(self.files[base], base).variables
            else:
                unread.append(Unread(f"{where}: env_file", name, "is not among the files"))
        for key in _ENVIRONMENTS:
            given, problems = self.given_variables(f"{where}: {key}", value.get(key))
            found |= given
            unread += problems
        return found, unread

    def given_variables(self, where: str, entries: Any) -> tuple[dict[str, str], list[Unread]]:
        """Variables as Kubernetes and as compose state them."""
        if isinstance(entries, dict):
            return {key: word_of(entry) for key, entry in entries.items()}, []
        found: dict[str, str] = {}
        unread = []
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, str):
                name, given, text = entry.partition("=")
                found[name] = text if given else f"${name}"
                continue
            if not isinstance(entry, dict) or "name" not in entry:
                unread.append(Unread(where, entry, "is not a variable"))
                continue
            name = str(entry["name"])
            source = entry.get("valueFrom")
            reference = source.get("configMapKeyRef") if isinstance(source, dict) else None
            if isinstance(reference, dict):
                data = self.configs.get(str(reference.get("name")), {})
                found[name] = data.get(str(reference.get("key")), f"${name}")
            elif source is not None:
                found[name] = json.dumps(source)
            else:
                found[name] = word_of(entry.get("value", ""))
            unread += [
                Unread(f"{where}: {name}: {key}", value, "is not a variable")
                for key, value in entry.items()
                if key not in ("name", "value", "valueFrom")
            ]
        return found, unread

    def started(
        self, where: str, image: str, words: list[str], context: Context
    ) -> list[Unread] | None:
        """The program of a container with these words; None if it is unknown."""
        context = replace(context, image=image or context.image)
        if words and (self.program_in(words) or shell.inner_script(words) is not None):
            return self.command(where, words, context)
        last = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
        path = image.partition("@")[0].rpartition(":")[0] or image
        for target in self.targets:
            for program in target.programs:
                if re.fullmatch(program.images, last) or re.fullmatch(program.images, path):
                    return self.command(where, [*program.calls[0], *words], context)
        found = [left for word in words if (left := self.text(where, word, context)) is not None]
        if found:  # a configuration as an argument
            rest = [word for word in words if "\n" not in word]
            return [*found[0], Unread(f"{where}: args", rest, "has no counterpart in a simulation")]
        return None

    def model_spec(
        self, where: str, value: dict[str, Any], context: Context
    ) -> list[Unread] | None:
        """An entry of `modelSpec` of the production stack."""
        if not isinstance(value.get("modelURL"), str):
            return None
        words = ["vllm", "serve", value["modelURL"]]
        given = value.get("vllmConfig")
        config = given if isinstance(given, dict) else {}
        unread = []
        for key, entry in config.items():
            flag = re.sub(r"([A-Z])", lambda found: f"-{found[1].lower()}", key).replace("_", "-")
            if key in ("v0", "v1"):
                unread.append(leftovers.field(f"{where}: vllmConfig: {key}", key, entry))
            elif key == "extraArgs":
                words += words_of(entry) or []
            elif isinstance(entry, bool):
                words.append(f"--{'' if entry else 'no-'}{flag}")
            elif entry is not None:
                words.append(f"--{flag}={word_of(entry)}")
        environment, other = self.environment(where, value, context)
        inside = replace(
            context, label=f"{context.label}: {value.get('name', 'modelSpec')}",
            environment=environment,
        )  # fmt: skip
        image = f"{value.get('repository', '')}:{value.get('tag', '')}"
        left = self.command(where, words, replace(inside, image=image))
        used = {"modelURL", "vllmConfig", *SIZES, *_ENVIRONMENTS, "envFrom"}
        rest = [
            leftovers.field(f"{where}: {key}", key, entry)
            for key, entry in value.items()
            if key not in used
        ]
        return [*(left or []), *unread, *other, *rest]

    def predictor(self, where: str, value: dict[str, Any], context: Context) -> list[Unread] | None:
        """The model of an InferenceService, which the runtime of Hugging Face serves with vLLM."""
        format_ = value.get("modelFormat")
        if not isinstance(format_, dict) or format_.get("name") not in (
            "huggingface",
            "vLLM",
            "vllm",
        ):
            return None
        environment, other = self.environment(where, value, context)
        uri = value.get("storageUri")
        model = [f"--model={repository(uri)}"] if isinstance(uri, str) else []
        words = ["python", "-m", "huggingfaceserver", *model, *(words_of(value.get("args")) or [])]
        inside = replace(context, environment=environment)
        left = self.command(where, words, inside)
        used = {"modelFormat", "storageUri", "args", *SIZES, *_ENVIRONMENTS}
        rest = [
            leftovers.field(f"{where}: {key}", key, entry)
            for key, entry in value.items()
            if key not in used
        ]
        return [*(left or []), *other, *rest]


# --- helpers --------------------------------------------------------------------------------------


def _within(where: str, context: Context) -> Context:
    """The context of what stands in a field whose name does not say that it is a command."""
    return replace(context, label=f"{context.label}: {where.rpartition(': ')[2]}")


def _items(content: Any) -> Iterator[dict[str, Any]]:
    """A document, or those of a List of Kubernetes."""
    if isinstance(content, dict):
        if str(content.get("kind", "")).endswith("List") and isinstance(content.get("items"), list):
            yield from (item for item in content["items"] if isinstance(item, dict))
        else:
            yield content


def _merged(content: Any, count: list[int] | None = None) -> Any:
    """A document with its merge keys (`<<`) resolved, so that nothing in it is shared."""
    count = [0] if count is None else count
    count[0] += 1
    if count[0] > _MOST_NODES:
        raise config_error([("aliases", "", "make the document too large")])
    if isinstance(content, list):
        return [_merged(entry, count) for entry in content]
    if not isinstance(content, dict):
        return content
    found: dict[str, Any] = {}
    merged = content.get("<<")
    for source in merged if isinstance(merged, list) else [merged]:
        found = {**_merged(source, count), **found} if isinstance(source, dict) else found
    return found | {k: _merged(v, count) for k, v in content.items() if k != "<<"}


def _dollars(word: str, environment: Mapping[str, str]) -> str:
    """A word with the variables of Kubernetes, $(NAME), and of compose, ${NAME:-default}."""
    word = re.sub(
        r"(?<!\$)\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), word
    ).replace("$$", "$")
    return word if "\n" in word else shell.expand(word, environment)


def _is_created(section: Any) -> bool:
    """Whether a section of a mapping is that of servers, some of which run."""
    return (
        isinstance(section, dict)
        and section.get("create") is not False
        and section.get("replicas") != 0
    )
