"""A simulation with what was read from the files of a deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway._core.fleet import NoAutoscaler
from spillway._core.sim import ConfigError
from spillway.policies import with_code_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway._core.cluster import Simulation


def with_settings(simulation: Simulation, settings: Mapping[str, Any]) -> Simulation:
    """The simulation with all these settings, and the Python code that it has imported."""
    before = simulation.to_dict()
    changes = {key: value for key, value in settings.items() if value != before[key]}
    return with_code_of(simulation.with_(changes), simulation)


def deployed(simulation: Simulation, settings: Mapping[str, Any]) -> Simulation:
    """The simulation with these settings, without the changes of settings that are gone."""
    try:
        return with_settings(simulation, settings)
    except ConfigError:
        if _scales_by_controller(settings) and not _is_moved(settings):
            # The controller is lost, and with it the metric.
            fleet = {**settings["fleet"], "autoscaler": NoAutoscaler().to_dict()}
            return deployed(simulation, {**settings, "fleet": fleet})
        if not settings["changes"]:
            raise
    bare = with_settings(simulation, {**settings, "changes": []})

    def fits(path: str, value: Any) -> bool:
        try:
            return bool(bare.with_({"changes": [{"at_s": 0.0, "set": {path: value}}]}))
        except ConfigError:
            return False

    kept = [
        {
            **change,
            "set": {path: value for path, value in change["set"].items() if fits(path, value)},
        }
        for change in settings["changes"]
    ]
    return bare.with_({"changes": [change for change in kept if change["set"] or change["submit"]]})


def _scales_by_controller(settings: Mapping[str, Any]) -> bool:
    return settings["fleet"]["autoscaler"].get("metric") in ("sensor", "limit_decreases")


def _is_moved(settings: Mapping[str, Any]) -> bool:
    return bool(settings["gateway"]["controller"]["kind"] != "static")
