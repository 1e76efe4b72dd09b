"""`spillway check FILE`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.cli import configuration, output, reading
from spillway.config import files
from spillway.config.classes import config_error
from spillway.config.profiles import name_of

if TYPE_CHECKING:
    import argparse

    from spillway._core.cluster import Simulation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    configuration.add_arguments(parser)
    output.add_json(
        parser,
        "file, kind, profile, fingerprint, findings [{path, text, name, severity, evidence, "
        "remedies, is_refused}]; of a study or sweep also configurations and invalid",
    )


def run(options: argparse.Namespace) -> int:
    """Checks a configuration, a study or a sweep; prints its fingerprint and warnings."""
    kind = files.kind_of(files.read_settings(options.config))
    more: dict[str, Any] = {}
    if kind == "configuration":
        simulation, what = configuration.load(options), ""
    else:
        _refuse_changes(options, kind)
        simulation, what, more = (_study if kind == "study" else _sweep)(options)
    findings = configuration.report_findings(simulation)
    is_refused = any(finding.is_refused for finding in findings)
    profile, digest = name_of(simulation), files.fingerprint(simulation)
    verdict = "refused" if is_refused else "ok"
    text = f"{options.config}: {verdict}, {what}profile {profile}, fingerprint {digest[:12]}"
    document: dict[str, Any] = {"file": str(options.config), "kind": kind, "profile": profile}
    document |= {"fingerprint": digest, "findings": findings, **more}
    output.show(options, text, lambda: document)
    return 1 if is_refused else 0


def _study(options: argparse.Namespace) -> tuple[Simulation, str, dict[str, Any]]:
    from spillway.study.files import read_study

    study_file = read_study(options.config)
    study = study_file.study()
    if outside := study.bound.outside():
        where = ", ".join(f"{name} = {value}" for name, value in outside.items())
        output.warn(f"the current configuration lies outside the space: {where}")
    names = list(study.bound.parameters)
    what = f"study of {_number(names, 'parameter')}, {study_file.trials} trials x "
    what += f"{_number(study.seeds, 'seed')}, base: "
    more = {"configurations": study_file.trials, "parameters": names, "invalid": []}
    return study.simulation, what, more


def _sweep(options: argparse.Namespace) -> tuple[Simulation, str, dict[str, Any]]:
    from spillway.study.files import read_sweep

    sweep_file = read_sweep(options.config)
    count, invalid = sweep_file.check()
    for message in invalid:
        output.warn(message)
    if count and len(invalid) == count:
        raise config_error([(sweep_file.kind, "", "has no valid configuration")])
    how_many = f" of {count} configuration{'s' * (count != 1)}" if count else ""
    more = {"configurations": count or None, "invalid": invalid}
    return sweep_file.simulation, f"{sweep_file.kind}{how_many}, base: ", more


def _number(values: Any, noun: str) -> str:
    return f"{len(values)} {noun}{'s' * (len(values) != 1)}"


def _refuse_changes(options: argparse.Namespace, kind: str) -> None:
    for name, flag in (
        ("trace", "--trace"),
        ("traffic_rate", "--traffic-rate"),
        ("changes", "--set"),
    ):
        if getattr(options, name) not in (None, []):
            raise config_error([(flag, "", f"is for configuration files, not for a {kind}")])
    reading.refuse_without_file(options)
