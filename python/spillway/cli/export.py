"""`spillway export CONFIG --to SYSTEM`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.cli import configuration, output
from spillway.config.classes import config_error
from spillway.config.differences import ABSENT

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from spillway._core.cluster import Simulation
    from spillway.comparison import Comparison
    from spillway.files.deployments import Export, Loss


_LEAST_SEEDS = 2  # of a comparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    configuration.add_arguments(parser)
    add_system(parser, "--to")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to write the files (default: print them)"
    )
    parser.add_argument(
        "--rest", choices=("absent", "kept"), default="absent",
        help="policies that the system has no say in: absent (default): nothing deploys them, so "
        "they are lost; kept: something else deploys them",
    )  # fmt: skip
    parser.add_argument(
        "--allow-lossy",
        action="store_true",
        help="export even if a policy that rejects or holds requests is lost; otherwise that is an "
        "error",
    )
    parser.add_argument(
        "--patch", choices=("deployment", "kserve"),
        help="write patches of Kubernetes objects: command lines as arguments of a Deployment, or "
        "of KServe's InferenceService, Envoy's in an EnvoyFilter or a DestinationRule of Istio, "
        "others in a ConfigMap",
    )  # fmt: skip
    parser.add_argument(
        "--manifests", type=Path, nargs="+", metavar="FILE",
        help="with --patch: manifests, or their folder, with the objects that are patched, whose "
        "names, namespaces, selectors and contexts the patches then have",
    )  # fmt: skip
    parser.add_argument(
        "--price", type=int, metavar="N",
        help="simulate what was wanted and what is deployed with N seeds, and compare goodput and "
        "the p99 of TTFT",
    )  # fmt: skip
    output.add_json(
        parser,
        "target, files {NAME: TEXT}, losses, outside, notes, lost_guards, moved (paths of losses "
        "that the system has in another form), price (null without --price)",
    )


def add_system(parser: argparse.ArgumentParser, flag: str, without: str | None = None) -> None:
    """Adds the argument, `system`, that names a system and its version.

    `without`: what happens if it is not given; None: it is required.
    """
    from spillway.files.deployments import TARGETS

    names = [
        f"{system.name}@{version}" for system in TARGETS.values() for version in system.versions
    ]
    default = "" if without is None else f"; without it, {without}"
    parser.add_argument(
        flag, required=without is None, dest="system", metavar="SYSTEM[@VERSION]",
        help=f"the system: {', '.join(names)}; the newest version by default{default}",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Writes the files of a system; prints the settings that they do not carry."""
    from spillway.files import deployments

    output.check_at_least(options, _LEAST_SEEDS, "price")
    wanted = configuration.load(options)
    found = deployments.export(
        wanted, to=options.system, rest=options.rest, allow_lossy=options.allow_lossy
    )
    if options.patch is not None:
        found = found.as_patches(options.patch, options.manifests or ())
    elif options.manifests is not None:
        shown = ", ".join(map(str, options.manifests))
        raise config_error([("--manifests", shown, "needs --patch, which writes patches of them")])
    price = None if options.price is None else _price(wanted, found, options.price)
    lines = [*_lost(found)]
    if options.out is None:
        lines += [f"# --- {name}\n{text}" for name, text in found.files.items()]
    else:
        output.replaced(options.out / name for name in found.files)
        lines += [f"wrote {path}" for path in found.write(options.out)]
    system = found.target.partition("@")[0]
    if found.losses:
        lines.append(f"{found.target} does not carry:")
        lines += [f"  {loss}" for loss in found.losses]
    else:
        lines.append(f"{found.target} carries every setting that it decides")
    if found.outside:
        lines.append(f"not up to {system}, kept as stated: {', '.join(found.outside)}")
    lines += [f"note: {note}" for note in found.notes]
    if price is not None:
        lines.append(f"\n{price}")

    def document() -> dict[str, Any]:
        names = ("target", "files", "outside", "notes")
        losses = {
            name: list(map(_loss, getattr(found, name))) for name in ("losses", "lost_guards")
        }
        known = {name: getattr(found, name) for name in names}
        return known | losses | {"moved": sorted(found.moved), "price": price}

    output.show(options, "\n".join(lines), document)
    return 0


def _loss(loss: Loss) -> dict[str, Any]:
    """A loss for JSON; without the value on the side that does not have the setting."""
    return {name: value for name, value in loss._asdict().items() if value is not ABSENT}


def _lost(found: Export) -> Iterator[str]:
    """A line per policy that rejects or holds requests and is lost, with what the system has."""
    from spillway.files.deployments import kinds_carried

    for loss in found.lost_guards:
        known = kinds_carried(loss.path, found.target)
        carried = f"; it carries {', '.join(known)}" if known else ""
        yield f"lost: {loss.path} ({', '.join(loss.kinds)}): {loss.reason}{carried}"


def _price(wanted: Simulation, found: Export, seeds: int) -> Comparison:
    import spillway
    from spillway.data.targets import has_targets  # imports NumPy

    figures = ["p99_ttft_ms"]
    if any(map(has_targets, wanted.slo_classes)):
        figures.insert(0, "goodput")
    systems = {"wanted": wanted, "deployed": found.deployed}
    return spillway.compare(systems, seeds=seeds, figures=figures, progress=True)
