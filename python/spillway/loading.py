"""Configuration files together with the presets and the trace that they name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway._core.cluster import Simulation
from spillway.config import files, schema
from spillway.config.classes import config_error
from spillway.config.messages import checked, note

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


Configuration = Simulation | str | os.PathLike[str]
"""A simulation, or the path of a configuration file that describes it."""


def from_settings(
    settings: Mapping[str, Any], *, base: Path | None = None, read_trace: bool = True
) -> Simulation:
    """A simulation from the settings of a configuration file.

    The path of a trace is relative to the folder `base`. With `read_trace=False` the trace's
    requests are not read, for a caller that replaces them.
    """
    if "presets" in settings:
        from spillway.presets import by_name

        settings = by_name.resolve(settings)
    groups = _groups(settings)
    if any("server" in group for group in groups):
        from spillway.servers import with_servers

        settings = with_servers(settings, base or Path())
    simulation = files.to_simulation(settings)
    if settings.get("profile", "vllm") == "vllm":
        _note_half_servers(groups)
    workload = simulation.workload
    if read_trace and isinstance(workload, _core.workload.Trace) and workload.file:
        streams = simulation.metrics.streaming and not workload.transforms
        found = _resolved(workload, base or Path(), streams=streams)
        simulation = simulation.replace(workload=found)
    return simulation


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
    settings = files.read_settings(path)
    files.check_kind(settings, path, "configuration")
    simulation = from_settings(settings, base=Path(path).parent)
    files.note_empty(settings, path)
    return simulation


def as_simulation(given: Configuration) -> Simulation:
    """The simulation itself, or the one that a file describes.

    Raises TypeError for anything else.
    """
    if isinstance(given, str | os.PathLike):
        return load(Path(given))
    allowed = "a Simulation, or the path of a configuration file"
    return checked("simulation", given, Simulation, allowed)


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a configuration file, with the names of all presets."""
    from spillway.presets import by_name
    from spillway.servers import server

    return schema.file_schema(presets=by_name.json_schema(), server=server.json_schema())


def _groups(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The instances of a configuration file that are mappings."""
    given = settings.get("instances")
    return [
        group
        for group in (given if isinstance(given, list) else [given])
        if isinstance(group, dict)
    ]


def _note_half_servers(groups: Iterable[Mapping[str, Any]]) -> None:
    """Warns of coefficients of BLIS that stand for a server without its memory."""
    for group in groups:
        latency = group.get("latency")
        if isinstance(latency, dict) and "preset" in latency and "num_kv_blocks" not in group:
            note(
                f"latency preset {latency['preset']}: coefficients of BLIS, without the KV memory "
                "of that server (num_kv_blocks keeps its default) and mostly without a cost of "
                "context; state num_kv_blocks, or take server: {model: …, gpu: …} instead "
                "(spillway describe servers)"
            )


def _resolved(trace: _core.workload.Trace, base: Path, *, streams: bool) -> _core.workload.Trace:
    from spillway.files.traces import format_of, read_trace

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
    return found.replace(**trace._replayed())
