"""Servers drawn from what is known of their step times."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spillway.config import yaml
from spillway.config.classes import config_error
from spillway.servers.server import Server, read_profile

if TYPE_CHECKING:
    from spillway._core.cluster import Simulation
    from spillway._core.instance import InstanceGroup


def drawn(simulation: Simulation, count: int, seed: int = 0) -> list[Simulation]:
    """The simulation with step times drawn from the uncertainty of its servers.

    Instances with the same server get the same draw, so that the draws are those of one error of
    the model, not of differences between instances.

    Raises ConfigError for an instance that is neither from the catalog nor from a profile of
    `spillway calibrate`, or has other step times than these.
    """
    by_provenance: dict[str, list[InstanceGroup]] = {}
    for i, group in enumerate(simulation.instances):
        if group.provenance not in by_provenance:
            by_provenance[group.provenance] = _draws(group, f"instances[{i}]", count, seed)

    def groups(k: int) -> list[InstanceGroup]:
        return [
            group.replace(latency=by_provenance[group.provenance][k].latency)
            for group in simulation.instances
        ]

    return [simulation.replace(instances=groups(k)) for k in range(count)]


_LEAST = 0.05
"""Share of a coefficient that a draw leaves at least."""


def _draws(group: InstanceGroup, path: str, count: int, seed: int) -> list[InstanceGroup]:
    found = re.fullmatch(r"server (.*): (physics|fitted|table)\b.*", group.provenance)
    if found is None:
        allowed = (
            "has step times of unknown uncertainty; take a Server of the catalog, or "
            "`server: FILE` with a profile of spillway calibrate"
        )
        raise config_error([(path, "", allowed)])
    source, kind = found.groups()
    if kind == "physics":
        server = Server(**yaml.parse(source, path))
        itself, draws = server.group, server.draws(count, seed)
    else:
        itself, draws = _of_profile(Path(source), count, seed)
    if itself.latency != group.latency:
        raise config_error([(f"{path}.latency", "", f"is not that of {source}")])
    return draws


def _of_profile(file: Path, count: int, seed: int) -> tuple[InstanceGroup, list[InstanceGroup]]:
    itself, document = read_profile(file)
    names = list(document["coefficients"])
    logs = np.log([document["coefficients"][name] for name in names])
    covariance = np.array(document["covariance_of_logs"])
    rng = np.random.default_rng(seed)
    moves = rng.multivariate_normal(np.zeros(len(names)), covariance, size=count)
    draws = []
    for move in moves:
        drawn = dict(zip(names, np.exp(logs + moved_logs(move)).tolist(), strict=True))
        draws.append(itself.replace(latency=itself.latency.replace(**drawn)))
    return itself, draws


def moved_logs(moves: np.ndarray) -> np.ndarray:
    """Changes of logarithms for relative changes of coefficients, at most 95% downward.

    Drawn coefficients have normal relative errors: their sums, which is what measurements identify,
    then have the fitted mean. With normal logarithms the mean of a sum would be larger.
    """
    return np.asarray(np.log(np.maximum(1 + moves, _LEAST)))
