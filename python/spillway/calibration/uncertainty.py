"""Answers of a fitted server as intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.config.classes import config_error
from spillway.data.intervals import central_intervals
from spillway.simulate import run_many

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway._core.cluster import Simulation
    from spillway.calibration.profile import Profile


def intervals(
    simulation: Simulation, profile: Profile, *, draws: int = 20, level: float = 0.9, seed: int = 0
) -> Mapping[str, tuple[float, float]]:
    """The figures of a simulation, each as an interval over the uncertainty of a fit.

    The step times of all instances are drawn `draws` times from the profile; the run keeps its
    seed, so that nothing else varies. The interval holds the central `level` of the draws. It does
    not cover errors of the model outside the batch states of the fit (`Profile.share_inside`).

    Parameters
    ----------
    simulation : Simulation
        Its instances must be `profile.group`, in any number, or that group with other limits.
    profile : Profile
        The fitted server.
    draws : int
        Number of runs, >= 2.
    level : float
        In (0, 1).
    seed : int
        Of the draws and of the runs.

    Returns
    -------
    mapping
        Name of each figure of the summary that is a number in every draw → (low, high).

    Raises
    ------
    ConfigError
        `draws` or `level` is out of range, or an instance has another latency model.

    """
    if draws < 2:
        raise config_error([("draws", str(draws), "must be >= 2")])
    if not 0 < level < 1:
        raise config_error([("level", str(level), "must be > 0 and < 1")])
    for i, group in enumerate(simulation.instances):
        if group.latency != profile.group.latency:
            allowed = "must be the latency model of the profile: take profile.group"
            raise config_error([(f"instances[{i}].latency", group.latency.kind, allowed)])
    drawn = [
        simulation.replace(
            instances=[group.replace(latency=draw.latency) for group in simulation.instances]
        )
        for draw in profile.draws(draws, seed)
    ]
    summaries = [results[0].summary() for results in run_many(drawn, seeds=[seed])]
    return central_intervals(summaries, level)
