"""The way of a configuration file to a simulation: its settings, presets, servers, trace, traffic.

Whatever takes a simulation or the path of a file enters by `as_simulation`: `simulate`, `check`,
sessions, studies, comparisons. `from_settings` shows the stages.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway._core.cluster import Simulation
from spillway.config import acceptance, files, profiles, schema
from spillway.config.classes import config_error
from spillway.config.messages import checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


Configuration = Simulation | str | os.PathLike[str]
"""A simulation, or the path of a configuration file that describes it."""


def as_simulation(given: Configuration) -> Simulation:
    """The simulation itself, or the one that a file describes.

    Raises TypeError for anything else.
    """
    if isinstance(given, str | os.PathLike):
        return load(Path(given))
    allowed = "a Simulation, or the path of a configuration file"
    return checked("simulation", given, Simulation, allowed)


def load(path: str | Path) -> Simulation:
    """Reads a configuration file; a trace that it names is read too, relative to the file.

    Raises ConfigError with all violations, and TraceError for a trace that cannot be read. Warns if
    the file is empty. A file that does not state its `schema` has the present one.

    Examples
    --------
    >>> import spillway
    >>> spillway.dump(spillway.Simulation(router="least_loaded"), "experiment.yaml")
    >>> spillway.load("experiment.yaml").router
    LeastLoaded()
    """
    return from_settings(Path(path))


def from_settings(
    given: Path | Mapping[str, Any], *, base: Path = Path(), read_trace: bool = True
) -> Simulation:
    """A simulation from a configuration file, or from settings as they stand in one.

    Paths in settings are relative to the folder `base`, those in a file to its own. With
    `read_trace=False` the trace's requests are not read, nor the changes of its traffic made, for a
    caller that replaces them.
    """
    if isinstance(given, Path):
        settings, base = files.read_settings(given, "configuration"), given.parent
    else:
        settings = dict(given)
    files.check_schema("schema", settings.get("schema", files.SCHEMA))
    if "presets" in settings:  # most files have none, and do not wait for these imports
        from spillway.presets import by_name

        settings = by_name.resolve(settings)
    if any("server" in group for group in files.instances(settings)):
        from spillway.servers import with_servers

        settings = with_servers(settings, base)
    changes = traffic_changes(settings)
    simulation = profiles.to_simulation({k: v for k, v in settings.items() if k != "traffic"})
    if not read_trace:
        return simulation
    if isinstance(given, Path):
        simulation = _judged(simulation, acceptance.file_of(given))
    if isinstance(simulation.workload, _core.workload.Trace):
        simulation = _with_requests(simulation, simulation.workload, base, changes=changes)
    return with_traffic(simulation, changes)


def _judged(simulation: Simulation, verdicts: Path) -> Simulation:
    """The simulation with what recordings say of servers that its file states."""
    if not verdicts.is_file():
        return simulation
    return simulation.replace(
        instances=[acceptance.marked(group, verdicts) for group in simulation.instances]
    )


def traffic_changes(given: Path | Mapping[str, Any]) -> Sequence[str]:
    """The changes of traffic in the settings of a file, its key `traffic`: a text or a list."""
    settings = files.read_settings(given, "configuration") if isinstance(given, Path) else given
    found = settings.get("traffic", [])
    texts = [found] if isinstance(found, str) else found
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        allowed = "must be a text such as 'B: rate x5 from 60s to 120s', or a list of such"
        raise config_error([("traffic", f"{found!r:.60}", allowed)])
    return texts


def with_traffic(simulation: Simulation, changes: Sequence[str]) -> Simulation:
    """The simulation with changes of its traffic (`traffic.changed`)."""
    if not changes:
        return simulation
    from spillway import traffic

    return traffic.changed(simulation, *changes)


def _with_requests(
    simulation: Simulation, trace: _core.workload.Trace, base: Path, *, changes: Sequence[str]
) -> Simulation:
    """The simulation with the requests of the file that its trace names."""
    if not trace.file:
        return simulation
    from spillway.files.traces import format_of, read_trace

    streams = simulation.metrics.streaming and not trace.transforms and not changes
    # The stated digest proves that sorting restores the original requests.
    found = read_trace(
        base / trace.file, sort=bool(trace.sha256), stream="auto" if streams else False
    )
    if trace.sha256 and trace.sha256 != found.sha256:
        allowed = f"is not that of {trace.file}: {found.sha256}"
        if options := format_of(base / trace.file).options:
            allowed += (
                f"; a trace that was read with other options ({', '.join(o.name for o in options)})"
                " must be written first, with spillway.traffic.write"
            )
        raise config_error([("workload.sha256", trace.sha256, allowed)])
    return simulation.replace(workload=found.replace(**trace._replayed()))


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a configuration file, with the names of all presets."""
    from spillway.presets import by_name
    from spillway.servers import server

    return schema.file_schema(presets=by_name.json_schema(), server=server.json_schema())
