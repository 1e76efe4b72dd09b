"""Configuration files of real systems: written from simulations, and read as simulations.

    export = deployments.export(simulation, to="llm-d@0.10")
    print(export)
    export.write("deploy/")

`export.deployed` is the simulation of what the files say, so what the losses cost can be simulated.
A loss is every setting in which the two differ: the files are read back, so no list of losses has
to be kept by hand. Policies that the system has no say in are lost too, unless `rest="kept"` says
that something else deploys them. A policy that rejects or holds requests is not lost unless asked
for: `allow_lossy`. `carriers` shows beforehand which systems carry a policy.
`import_` reads the files of a production system:

    imported = deployments.import_("epp.yaml", system="llm-d", onto=simulation)
    imported.simulation, imported.unread, imported.irrelevant

Its files are whatever holds the configuration: manifests, charts, scripts (`finding`). Without
`system` each piece goes to the system that knows it.

`TARGETS` lists the systems; each has a module `systems/<tool>/deployment.py`.
"""

from __future__ import annotations

import copy
import functools
import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from spillway import _registry
from spillway._core.cluster import Simulation
from spillway._core.signals import BusyMonitor
from spillway._core.sim import ConfigError
from spillway._core.workload import Tenant
from spillway.config.classes import config_error
from spillway.config.describe import descriptor
from spillway.config.differences import differences, in_words
from spillway.config.filesystem import cannot, make_folder, read_text, replacing, together
from spillway.config.messages import checked_simulation
from spillway.config.yaml import to_yaml
from spillway.files.deployments import applying, patches, places
from spillway.files.deployments.finding import find
from spillway.files.deployments.flag_table import nearest_version, number
from spillway.files.deployments.target import (
    Loss,
    Target,
    Unread,
    notes_on_pools,
    pattern_of,
    reset,
    unrecognized,
)
from spillway.presets import by_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spillway.files.deployments.commands import Found
    from spillway.files.deployments.target import Piece

__all__ = [
    "TARGETS",
    "Carrier",
    "Export",
    "Import",
    "Loss",
    "Rest",
    "Target",
    "Unread",
    "carriers",
    "export",
    "import_",
]


TARGETS: Mapping[str, Target] = {
    target.name: target for target in _registry.found(Target, "deployment")
}
"""The systems by name."""

Rest = Literal["absent", "kept"]
"""What becomes of the policies that a system has no say in; see `export`."""

_TRAFFIC = ("workload", "reaction", "metrics", "horizon_s", "warm_up_s", "quantum_ns")
# Exists only if something configures it; servers, signals, tenants and classes exist anyway.
_POLICIES = (
    "gateway",
    "router",
    "busy_monitor",
    "tenants[].queue_max",
    "tenants[].max_in_flight",
    "instances[].ingress",
    "instances[].scheduler",
)
_MOST_FILES, _MOST_LOSSES, _MOST_NOTES = 6, 12, 4
_WIDTH = 120  # columns of a printed export
_GUARDS = ("gateway.admission", "gateway.limit", "gateway.controller", "instances[].ingress")


@dataclass(frozen=True)
class Export:
    """The configuration files of a system, and what they do not carry.

    Parameters
    ----------
    target
        Name and version: `llm-d@0.10`.
    files
        The files by name.
    losses
        Every setting in which `deployed` differs, with its value in both and why.
    outside
        Parts of `deployed` that differ from their defaults and that the files do not carry, e.g.
        `instances` for a gateway: they are there as the simulation states them.
    deployed
        The simulation of the system as these files configure it: `simulation` but for the losses.
    notes
        What to know about the values in the files.
    moved
        Paths among the losses whose policy the system has in another form, e.g. a limit of the
        gateway as that of its engines.
    """

    target: str
    files: Mapping[str, str]
    losses: tuple[Loss, ...]
    outside: tuple[str, ...]
    deployed: Simulation
    notes: tuple[str, ...] = ()
    moved: frozenset[str] = frozenset()

    def __str__(self) -> str:
        names = list(self.files)
        shown = ", ".join(names[:_MOST_FILES])
        more = f" and {len(names) - _MOST_FILES} more" if len(names) > _MOST_FILES else ""
        lines = [f"{self.target}: {shown}{more}"]
        if self.losses:
            lines.append(f"does not carry {len(self.losses)} settings:")
            lines += [f"  {loss}" for loss in self.losses[:_MOST_LOSSES]]
            if (rest := len(self.losses) - _MOST_LOSSES) > 0:
                lines.append(f"  and {rest} more: losses")
        else:
            lines.append("carries every setting that it decides")
        if self.outside:
            lines.append(f"kept as stated: {', '.join(self.outside)}")
        lines += [f"note: {note}" for note in self.notes[:_MOST_NOTES]]
        return "\n".join(
            line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in lines
        )

    __repr__ = __str__

    @property
    def lost_guards(self) -> tuple[Loss, ...]:
        """The losses of whole policies that reject or hold requests.

        Those of admission, limit, controller, and of the gates of instances, without those that the
        system has in another form.
        """
        return tuple(
            loss for loss in self.losses if loss.path not in self.moved and _is_lost_guard(loss)
        )

    def as_patches(
        self, kind: patches.Kind, manifests: str | Path | Iterable[str | Path] = ()
    ) -> Export:
        """The same with patches of Kubernetes objects as files.

        Command lines become arguments of containers, and other files entries of ConfigMaps.

        Parameters
        ----------
        kind
            `deployment`, or `kserve` for the InferenceService of a vLLM.
        manifests
            Files or folders with the objects that are patched: the patches have their names,
            namespaces, selectors and contexts. Without them these are variables.

        Raises
        ------
        ConfigError
            For another kind, for a command line that such an object has not, and for a file that
            cannot be read.
        """
        groups = self.deployed.to_dict()["instances"]
        given = {} if manifests == () else _texts(manifests)
        files, notes = patches.patches(self.files, groups, kind, given)
        return replace(self, files=files, notes=(*self.notes, *notes))

    def write(self, folder: str | Path) -> list[Path]:
        """Writes the files into a folder, which is created; returns their paths.

        Raises ConfigError if one cannot be written; none is written then.
        """
        paths = [Path(folder) / name for name in self.files]
        with together():
            make_folder(Path(folder))
            for path, text in zip(paths, self.files.values(), strict=True):
                with replacing(path) as temporary:
                    temporary.write_text(text, encoding="utf-8")
        return paths


@dataclass(frozen=True)
class Import:
    """A simulation with the settings of configuration files.

    Parameters
    ----------
    simulation
        The simulation.
    unread
        The fields of the files without a counterpart in it.
    irrelevant
        The fields that do not concern a simulation, such as ports.
    notes
        What was chosen where the files leave a choice, such as the version of a system.
    undecided
        What no system in the files decides, with its value, which is that of `onto`.
    """

    simulation: Simulation
    unread: tuple[Unread, ...]
    irrelevant: tuple[Unread, ...] = ()
    notes: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()


def export(
    simulation: Simulation, to: str, *, rest: Rest = "absent", allow_lossy: bool = False
) -> Export:
    """The configuration files of a system that has the settings of a simulation.

    The files carry what the system decides. Servers, tenants and classes, and how old the signals
    are, stay as the simulation states them: they exist in every deployment. A fixed limit of the
    gateway that the system has in another place only is written there, e.g. for `vllm` as seats of
    the instances.

    Parameters
    ----------
    simulation
        The simulation, e.g. the best one of a study.
    to
        A name of `TARGETS`, alone for its newest version, or with one: `llm-d@0.10`.
    rest
        What becomes of the policies that the system has no say in, e.g. of the gateway and the
        router for `vllm`: `"absent"`: nothing deploys them, so `deployed` is without them, and
        they are losses. `"kept"`: something else deploys them as the simulation states them.
    allow_lossy
        Whether a policy that rejects or holds requests may be lost.

    Raises
    ------
    ConfigError
        For an unknown system or version, and another value of `rest`; for models; if nothing of the
        simulation can be written; if such a policy is lost, unless `allow_lossy`.

    Examples
    --------
    >>> import spillway
    >>> from spillway.files import deployments
    >>> simulation = spillway.Simulation(instances={"max_num_seqs": 64})
    >>> exported = deployments.export(simulation, "vllm")
    >>> list(exported.files)
    ['vllm-0.sh']
    """
    found = unchecked(simulation, to, rest=rest)
    if not found.files:
        doc = _target(to, "to")[0].doc
        allowed = f"would be empty: nothing of the simulation is in {doc}"
        raise config_error([(f"export to {found.target}", "", allowed)])
    if found.lost_guards and not allow_lossy:
        raise config_error([_refusal(loss, found.target) for loss in found.lost_guards])
    return found


def unchecked(simulation: Simulation, to: str, *, rest: Rest = "absent") -> Export:
    """`export`, whatever is lost, and even if there are no files."""
    target, version = _target(to, "to")
    if rest not in get_args(Rest):
        raise config_error([("rest", repr(rest), f"must be one of {', '.join(get_args(Rest))}")])
    settings = checked_simulation(simulation).to_dict()
    for i, tenant in enumerate(settings["tenants"]):
        if tenant["model"]:
            where = f"tenants[{i}].model"
            raise config_error([(where, tenant["model"], "cannot be exported yet")])
    wanted, moved = settings, dict[str, str]()
    if target.absorb and rest == "absent":
        settings = copy.deepcopy(settings)
        moved = target.absorb(settings, version)
    files = target.write(settings, version)
    absent = (
        tuple(policy for policy in _POLICIES if not target.decides(policy))
        if rest == "absent"
        else ()
    )
    deployed = applying.deployed(simulation, _read_back(target, version, settings, files, absent))
    after = deployed.to_dict()
    changed = [
        difference
        for difference in differences(wanted, after)
        if not _is_rounding(difference.before, difference.after)
    ]
    followed = {
        difference.path
        for difference in changed
        if target.follows_version(difference.path, difference.before)
    }
    losses = tuple(
        Loss(
            difference.path,
            difference.before,
            difference.after,
            moved.get(difference.path) or _reason(target, difference.path),
        )
        for difference in changed
        if difference.path not in followed
    )
    notes = tuple(target.notes(settings, version)) if target.notes else ()
    if followed:
        paths = [
            prefix
            for prefix in target.follows
            if any(pattern_of(path).startswith(prefix) for path in followed)
        ]
        notes = (*notes, f"{', '.join(paths)}: deployed has those of {target.name} {version}")
    name = f"{target.name}@{version}"
    outside = _outside(target, after)
    return Export(name, files, losses, outside, deployed, notes, frozenset(moved))


def _refusal(loss: Loss, target: str) -> tuple[str, str, str]:
    """Path, value and what is wrong with a policy that would be lost."""
    decides = TARGETS[target.partition("@")[0]].decides(loss.path)
    known = kinds_carried(loss.path, target)
    carried = f"; it carries {', '.join(known)}" if known else ""
    kept = "" if decides else "; rest=kept, if something else deploys it"
    allowed = f"is lost with {target}: {loss.reason}{carried}{kept}; allow_lossy exports the rest"
    return loss.path, ", ".join(loss.kinds), allowed


def kinds_carried(path: str, to: str) -> list[str]:
    """The kinds of policies that a system carries at a path, but those that do nothing."""
    field_ = descriptor(path)
    default = field_["default"]
    neutral = [policy["kind"] for policy in (default if isinstance(default, list) else [default])]
    kinds = (
        alternative["kind"]
        for alternative in field_["alternatives"]
        if alternative["kind"] not in neutral
    )
    return [kind for kind in kinds if carriers(f"{path}.{kind}", to=to)]


class Carrier(NamedTuple):
    """A system that carries a policy.

    `target`: name and version; `lost`: the settings of the policy that it does not carry as they
    were tried.
    """

    target: str
    lost: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.target} (not {', '.join(self.lost)})" if self.lost else self.target


def carriers(path: str, to: str | None = None) -> tuple[Carrier, ...] | None:
    """The systems that carry a policy, e.g. `gateway.limit.saturation`.

    Found by exports of the policy with its defaults: alone, or where that fails, within the
    gateways of the presets, because some systems have a policy only beside others; then with the
    least values of its numbers, because some defaults set no limit, and with each of its choices.

    Parameters
    ----------
    path
        The policy by its dotted path, as `spillway describe` takes it.
    to
        The only system to try, as in `export`. Default: every version of every system.

    Returns
    -------
    The systems; empty if none carries it. None if the path is not that of a policy, or if
    deployments do not decide it, such as the arrivals of a client.

    Raises
    ------
    ConfigError
        For an unknown path, system or version.
    """
    policy = places.policy_at(path)
    if policy is None:
        return None
    field = policy.field
    if not field.startswith("fleet.") and not any(
        target.decides(field) for target in TARGETS.values()
    ):
        return None
    every = [(target, version) for target in TARGETS.values() for version in target.versions]
    found = [
        Carrier(f"{target.name}@{version}", lost)
        for target, version in (every if to is None else [_target(to, "to")])
        if target.decides(field) and (lost := _lost_of(policy, target, version)) is not None
    ]
    return tuple(found)


def _lost_of(policy: places.Policy, target: Target, version: str) -> tuple[str, ...] | None:
    """The settings of a policy that a system does not carry; None if it carries none of it."""
    bases = _bases()
    attempts: list[tuple[Simulation, Mapping[str, Any]]] = [(base, {}) for base in bases]
    attempts += [(bases[0], policy.smallest), *((bases[0], choice) for choice in policy.choices)]
    for base, numbers in attempts:
        try:
            settings = base.with_(policy.put_into(base.to_dict(), numbers)).to_dict()
            read = _read_back(target, version, settings, target.write(settings, version))
        except ConfigError:  # the policy needs more than its defaults, or does not fit there
            continue
        if found := policy.found_in(read):
            before = policy.found_in(settings)[0]
            return tuple(key for key, value in before.items() if found[0].get(key) != value)
    return None


@functools.cache
def _bases() -> tuple[Simulation, ...]:
    # Dynamo writes its rejection only where a threshold is given.
    busy = BusyMonitor(active_prefill_tokens_threshold=10_000)
    alone = Simulation(tenants=[Tenant()], busy_monitor=busy)
    return (alone, *(by_name.get(name).apply(alone) for name in by_name.names("gateway")))


def import_(
    files: str | Path | Iterable[str | Path],
    *,
    system: str | None = None,
    onto: Simulation | None = None,
    gpu: str | None = None,
    allow_lossy: bool = False,
) -> Import:
    """The simulation of a system with these configuration files.

    Everything that the system decides gets the files' values, or the system's defaults; traffic and
    all else stays as in `onto`.

    Parameters
    ----------
    files
        Path of a file or a folder, or several paths.
    system
        A name of `TARGETS`, with or without a version; see `export`. Without a version, that of a
        container image that the files name, or the newest. Default: all systems that know
        something in the files.
    onto
        The simulation that is changed. Default: all defaults.
    gpu
        An accelerator of the catalog, for engines only: the instances are then computed from the
        model and the flags, as `Server` does. Otherwise they keep latencies and KV memory of
        `onto`.
    allow_lossy
        Whether to import a system that works in another way than the simulation, without what is
        not modeled: pipelines, LoRA …

    Raises
    ------
    ConfigError
        For an unknown system or version, a file that cannot be read or in which nothing is known,
        invalid values, and what is not modeled.
    """
    texts = _texts(files)
    only = None if system is None else _target(system, "system")[0]
    found = find(texts, TARGETS.values(), only)
    simulation = checked_simulation(Simulation() if onto is None else onto)
    settings = simulation.to_dict()
    targets = _targets_of(found, texts) if only is None else [only]
    if gpu is not None and not any(_computes(target, found) for target in targets):
        others = ", ".join(target.name for target in TARGETS.values() if target.computes_servers)
        raise config_error([("gpu", repr(gpu), f"is an option of {others}")])
    reading = _Reading(found, texts, settings, gpu)
    given = "" if system is None else system.partition("@")[2]
    unread = [entry for target in targets for entry in reading.read(target, given)]
    names = {target.name for target in targets}
    if only is None or only.read_pieces is not None or only.documents is not None:
        unread += found.unread
        unread += [
            Unread(piece.where, None, f"is of {piece.system}: import it with that")
            for piece in found.pieces
            if piece.system not in names
        ]
        expected = " or ".join(target.expected for target in targets)
        unread += unrecognized({name: name not in found.unknown for name in texts}, expected)
    _refuse_lossy(unread, allow_lossy=allow_lossy)
    reading.notes += notes_on_pools(settings, targets)
    return Import(
        applying.with_settings(simulation, settings),
        tuple(entry for entry in unread if entry.effect in ("not_simulated", "not_modeled")),
        tuple(entry for entry in unread if entry.effect == "irrelevant"),
        (*reading.notes, *(str(entry) for entry in unread if entry.effect == "assumed")),
        _undecided(targets, reading.engines, settings),
    )


def _undecided(
    targets: Iterable[Target], engines: Iterable[Target], settings: Mapping[str, Any]
) -> tuple[str, ...]:
    """The parts of a deployment of which no file says anything, with their kinds."""
    deciding = (*targets, *engines)
    found = []
    for path in ("gateway.admission", "gateway.limit", "router", "instances[]"):
        if any(target.decides(path) for target in deciding):
            continue
        if path == "instances[]":
            groups = settings["instances"]
            found.append(f"instances ({sum(group['count'] for group in groups)})")
        else:
            value: Any = settings
            for name in path.split("."):
                value = value[name]
            rules = value if isinstance(value, list) else [value]
            found.append(f"{path} ({', '.join(rule['kind'] for rule in rules)})")
    return tuple(found)


def _targets_of(found: Found, texts: Mapping[str, str]) -> list[Target]:
    """The systems that know a piece, engines first."""
    names = {piece.system for piece in found.pieces}
    targets = [target for target in TARGETS.values() if target.name in names]
    if not targets:
        allowed = f"nothing in it is known: must hold a configuration of {', '.join(TARGETS)}"
        raise config_error([(name, "", allowed) for name in texts])
    for path in ("gateway.admission", "instances[].max_num_seqs"):
        rivals = [target.name for target in targets if target.decides(path)]
        if len(rivals) > 1:
            allowed = f"must be one of {', '.join(rivals)}: each of them decides {path}"
            raise config_error([("system", "", allowed)])
    after = ("gateway.admission", "fleet.autoscaler")
    return sorted(targets, key=lambda target: [target.decides(path) for path in after])


def _computes(target: Target, found: Found) -> bool:
    """Whether an accelerator says something about the pieces of a system."""
    parts = [target.hands_on(piece) for piece in found.pieces] if target.hands_on else []
    return target.computes_servers or any(part is not None for part in parts)


@dataclass
class _Reading:
    """The pieces and texts of files, and the settings that they change."""

    found: Found
    texts: Mapping[str, str]
    settings: dict[str, Any]
    gpu: str | None = None
    notes: list[str] = field(default_factory=list)
    engines: list[Target] = field(default_factory=list)

    def read(self, target: Target, given: str) -> list[Unread]:
        """Changes the settings to those of the pieces of a system in a version, if it is given."""
        pieces = [piece for piece in self.found.pieces if piece.system == target.name]
        version = given or _version_of(target, pieces, self.notes)
        unread: list[Unread] = []
        parts = [part for piece in pieces if target.hands_on and (part := target.hands_on(piece))]
        for name in dict.fromkeys(part.system for part in parts):
            engine, own = TARGETS[name], [part for part in parts if part.system == name]
            self.engines.append(engine)
            unread += self.apply(engine, _version_of(engine, own, self.notes), own)
        if not pieces and (target.read_pieces is not None or target.documents is not None):
            if target.read is not None:  # says what it misses, and knows an empty file
                self.found.unknown.clear()
                return target.read(self.texts, self.settings, version)
            unrecognized(dict.fromkeys(self.texts, False), target.expected)
        return [*unread, *self.apply(target, version, pieces)]

    def apply(self, target: Target, version: str, pieces: Sequence[Piece]) -> list[Unread]:
        """Lets a system read pieces, or else texts."""
        if target.read_pieces is not None:
            return target.read_pieces(pieces, self.settings, version, self.gpu)
        assert target.read is not None
        if target.documents is None:
            return target.read(self.texts, self.settings, version)
        documents = {
            piece.where: json.dumps(piece.content)
            if piece.where.endswith(".json")
            else to_yaml(piece.content)
            for piece in pieces
        }
        return target.read(documents, self.settings, version)


def _version_of(target: Target, pieces: Sequence[Piece], notes: list[str]) -> str:
    """The version of the images of pieces, or the newest."""
    tags = sorted({piece.version for piece in pieces if piece.version}, key=number)
    if not tags:
        return target.versions[-1]
    version = nearest_version(tags[-1], target.versions)
    notes.append(f"{target.name}: read as {version}, because the image is {', '.join(tags)}")
    return version


def _refuse_lossy(unread: Iterable[Unread], *, allow_lossy: bool) -> None:
    """Raises ConfigError for what works in another way than a simulation."""
    lost = [entry for entry in unread if entry.effect == "not_modeled"]
    if lost and not allow_lossy:
        hint = "; --allow-lossy (allow_lossy=True) imports the rest"
        raise config_error(
            [
                (
                    entry.field,
                    "" if entry.value is None else in_words(entry.value),
                    entry.reason + hint,
                )
                for entry in lost
            ]
        )


def _target(text: str, name: str) -> tuple[Target, str]:
    """The system and the version that a text names; `name`: of the argument, for errors."""
    system, _, version = text.partition("@")
    if system not in TARGETS:
        raise config_error([(name, repr(text), f"must be one of {', '.join(TARGETS)}")])
    target = TARGETS[system]
    if version and version not in target.versions:
        allowed = f"must be one of {', '.join(f'{system}@{known}' for known in target.versions)}"
        raise config_error([(name, repr(text), allowed)])
    return target, version or target.versions[-1]


def _read_back(
    target: Target,
    version: str,
    settings: Mapping[str, Any],
    files: Mapping[str, str],
    absent: Sequence[str] = (),
) -> dict[str, Any]:
    """The settings with which the system runs; nothing that it decides is left of `settings`."""
    read = copy.deepcopy(dict(settings))
    reset(read, (*target.covers, *absent), Simulation(tenants=[Tenant()]).to_dict())
    reading = _Reading(find(files, [target], target), files, read)
    if reading.found.pieces or target.read_pieces is None:
        reading.apply(target, version, reading.found.pieces)
    return read


def _reason(target: Target, path: str) -> str:
    if path.startswith("changes"):
        return "the system lacks the setting that changes"
    if path.startswith("fleet.autoscaler") and not target.decides(path):
        return "the metric is of the controller, which is lost"
    return target.reason(path) if target.decides(path) else f"not up to {target.name}"


def _is_lost_guard(loss: Loss) -> bool:
    if pattern_of(loss.path) not in _GUARDS:
        return False
    default = descriptor(loss.path)["default"]
    neutral = {policy["kind"] for policy in (default if isinstance(default, list) else [default])}
    return not neutral.issuperset(loss.kinds)


def _is_rounding(before: Any, after: Any) -> bool:
    """Whether two numbers differ only by the conversion of units."""
    both = all(isinstance(value, int | float) for value in (before, after))
    return both and math.isclose(before, after, rel_tol=1e-9, abs_tol=1e-9)


def _outside(target: Target, settings: Mapping[str, Any]) -> tuple[str, ...]:
    covered = {path.partition(".")[0].removesuffix("[]") for path in target.covers}
    defaults = Simulation().to_dict()
    return tuple(
        name
        for name in settings
        if name not in covered and name not in _TRAFFIC and settings[name] != defaults[name]
    )


def _texts(files: str | Path | Iterable[str | Path]) -> dict[str, str]:
    paths = [Path(files)] if isinstance(files, str | Path) else [Path(file) for file in files]
    texts: dict[str, str] = {}
    for path in paths:
        texts |= _texts_at(path)
    if not texts:
        where = ", ".join(str(path) for path in paths)
        raise config_error([("files", where, "must name at least one file")])
    return texts


def _texts_at(path: Path) -> dict[str, str]:
    """The text of a file, or of the files in a folder."""
    try:
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
    except OSError as error:
        raise cannot("read", path, error) from error
    shown = (file for file in inside if file == path or (file.is_file() and file.name[0] != "."))
    return {str(file): read_text(file) for file in shown}
