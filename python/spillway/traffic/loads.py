"""The loads of load generators as generators."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from spillway import _registry
from spillway.config import filesystem, yaml
from spillway.config.classes import config_error
from spillway.files.loads import Block, LoadFormat

if TYPE_CHECKING:
    from spillway._core.workload import Synthetic


FORMATS = _registry.found(LoadFormat, "load")


def read_load(path: str | Path) -> Synthetic:
    """Read the load of a configuration of a load generator, see below.

    The keys of the file say which tool it belongs to. What the generator cannot express is an
    error.

    Parameters
    ----------
    path : str or Path
        The file: YAML, or JSON with the suffix .json.

    Returns
    -------
    Synthetic
        The workload, for example for `Simulation(workload=…)`.

    Raises
    ------
    ConfigError
        The file cannot be read or parsed; a field is missing or invalid; the load or the data are
        of another type, multi-turn or multimodal.

    """
    path = Path(path)
    try:
        with filesystem.open_text(path) as stream:
            text = stream.read()
    except OSError as error:
        raise filesystem.cannot("read", path, error) from error
    except UnicodeDecodeError as error:
        name = filesystem.shown(path)
        raise config_error([(name, "", "not a text file; must be YAML in UTF-8")]) from error
    name = filesystem.shown(path)
    root = yaml.parse(text, name, is_json=path.suffix == ".json")
    for form in FORMATS if isinstance(root, dict) else ():
        if form.detect(root):
            return form.workload(Block(name, "", root))
    known = " or ".join(f"{form.keys} ({form.name})" for form in FORMATS)
    raise config_error([(name, f"{root!r:.40}", f"must be a mapping: {known}")])


_notes = "\n\n".join(
    textwrap.fill(f"*{form.name}*: {' '.join((form.workload.__doc__ or '').split())}", 100)
    for form in FORMATS
)
read_load.__doc__ = f"{inspect.cleandoc(read_load.__doc__ or '')}\n\nNotes\n-----\n{_notes}\n"
