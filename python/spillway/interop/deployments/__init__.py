"""Configuration files of real systems: written from simulations, and read as simulations.

    export = deployments.export(simulation, to="llm-d@0.10")
    export.write("deploy/")
    for loss in export.losses:
        print(loss)

`export.deployed` is the simulation of what the files say, so what the losses cost can be simulated.
A loss is every setting in which the two differ: the files are read back, so no list of losses has
to be kept by hand. `import_` reads the files of a production system:

    imported = deployments.import_("epp.yaml", system="llm-d", onto=simulation)
    imported.simulation, imported.unread

`TARGETS` lists the systems; each is a module here.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._core.cluster import Simulation
from spillway._core.workload import Tenant
from spillway.config.classes import config_error
from spillway.config.differences import differences
from spillway.config.filesystem import cannot, replacing
from spillway.config.messages import checked_simulation
from spillway.interop.deployments import dynamo, envoy, llm_d, vllm, vllm_on_eks
from spillway.interop.deployments.target import Loss, Target, Unread, base_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["TARGETS", "Export", "Import", "Loss", "Target", "Unread", "export", "import_"]


def __dir__() -> list[str]:
    return __all__


TARGETS: Mapping[str, Target] = {
    one.name: one
    for one in (vllm.TARGET, llm_d.TARGET, dynamo.TARGET, envoy.TARGET, vllm_on_eks.TARGET)
}
"""The systems by name."""

_TRAFFIC = ("workload", "reaction", "metrics", "horizon_s", "warm_up_s", "quantum_ns")


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
        The settings that the system would not run with, of those that it decides.
    outside
        Parts of the simulation that differ from their defaults and that the system has no say in,
        e.g. `instances` for a gateway: export them to another system.
    deployed
        The simulation of the system as these files configure it: `simulation` but for the losses.
    """

    target: str
    files: Mapping[str, str]
    losses: tuple[Loss, ...]
    outside: tuple[str, ...]
    deployed: Simulation

    def write(self, folder: str | Path) -> list[Path]:
        """Writes the files into a folder, which is created; returns their paths.

        Raises ConfigError if one cannot be written.
        """
        folder = Path(folder)
        written = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in self.files.items():
                with replacing(folder / name) as temporary:
                    temporary.write_text(text, encoding="utf-8")
                written.append(folder / name)
        except OSError as error:
            raise cannot("write", folder, error) from error
        return written


@dataclass(frozen=True)
class Import:
    """A simulation with the settings of configuration files.

    Parameters
    ----------
    simulation
        The simulation.
    unread
        The fields of the files without a counterpart in it.
    """

    simulation: Simulation
    unread: tuple[Unread, ...]


def export(simulation: Simulation, to: str) -> Export:
    """The configuration files of a system that has the settings of a simulation.

    Parameters
    ----------
    simulation
        The simulation, e.g. the best one of a study.
    to
        A name of `TARGETS`, alone for its newest version, or with one: `llm-d@0.10`.

    Raises
    ------
    ConfigError
        For an unknown system or version.
    """
    target, version = _target(to, "to")
    settings = checked_simulation(simulation).to_dict()
    files = target.write(settings, version)
    deployed = _with(simulation, _read_back(target, version, settings, files))
    losses = tuple(
        Loss(one.path, one.before, one.after, target.reason(one.path))
        for one in differences(settings, deployed.to_dict())
        if not _is_rounding(one.before, one.after)
    )
    outside = _outside(target, settings)
    return Export(f"{target.name}@{version}", files, losses, outside, deployed)


def import_(
    files: str | Path | Iterable[str | Path],
    *,
    system: str,
    onto: Simulation | None = None,
    gpu: str | None = None,
) -> Import:
    """The simulation of a system with these configuration files.

    Everything that the system decides gets the files' values, or the system's defaults; traffic and
    all else stays as in `onto`.

    Parameters
    ----------
    files
        Path of a file or a folder, or several paths.
    system
        A name of `TARGETS`, with or without a version; see `export`.
    onto
        The simulation that is changed. Default: all defaults.
    gpu
        An accelerator of the catalog, for `vllm` only: the instances are then computed from the
        model and the flags, as `Server` does. Otherwise they keep latencies and KV memory of
        `onto`.

    Raises
    ------
    ConfigError
        For an unknown system or version, a file that cannot be read, and invalid values.
    """
    target, version = _target(system, "system")
    texts = _texts(files)
    simulation = checked_simulation(Simulation() if onto is None else onto)
    settings = simulation.to_dict()
    if gpu is None:
        unread = target.read(texts, settings, version)
    elif target is vllm.TARGET:
        unread = vllm.read(texts, settings, version, gpu)
    else:
        raise config_error([("gpu", repr(gpu), "is an option of vllm")])
    return Import(_with(simulation, settings), tuple(unread))


def _target(stated: str, name: str) -> tuple[Target, str]:
    system, _, version = stated.partition("@")
    if system not in TARGETS:
        raise config_error([(name, repr(stated), f"must be one of {', '.join(TARGETS)}")])
    target = TARGETS[system]
    if version and version not in target.versions:
        allowed = f"must be one of {', '.join(f'{system}@{one}' for one in target.versions)}"
        raise config_error([(name, repr(stated), allowed)])
    return target, version or target.versions[-1]


def _read_back(
    target: Target, version: str, settings: Mapping[str, Any], files: Mapping[str, str]
) -> dict[str, Any]:
    """The settings with which the system runs; nothing that it decides is left of `settings`."""
    read = copy.deepcopy(dict(settings))
    defaults = Simulation(tenants=[Tenant()]).to_dict()
    for path in target.covers:
        base_settings(path, read, defaults)
    target.read(files, read, version)
    return read


def _with(simulation: Simulation, settings: Mapping[str, Any]) -> Simulation:
    before = simulation.to_dict()
    changes = {key: value for key, value in settings.items() if value != before[key]}
    return simulation.with_(changes)


def _is_rounding(before: Any, after: Any) -> bool:
    """Whether two numbers differ only by the conversion of units."""
    both = all(isinstance(one, int | float) for one in (before, after))
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
    paths = [Path(files)] if isinstance(files, str | Path) else [Path(one) for one in files]
    texts: dict[str, str] = {}
    for path in paths:
        texts |= _texts_at(path)
    if not texts:
        where = ", ".join(str(one) for one in paths)
        raise config_error([("files", where, "must name at least one file")])
    return texts


def _texts_at(path: Path) -> dict[str, str]:
    """The text of a file, or of the files in a folder."""
    try:
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        shown = [one for one in inside if one == path or (one.is_file() and one.name[0] != ".")]
        return {str(one): one.read_text(encoding="utf-8") for one in shown}
    except OSError as error:
        raise cannot("read", path, error) from error
    except UnicodeDecodeError as error:
        raise config_error([(str(path), "", "must be a text file in UTF-8")]) from error
