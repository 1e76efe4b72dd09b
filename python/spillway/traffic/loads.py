"""The loads of load generators as generators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillway.config import filesystem, yaml
from spillway.config.classes import config_error
from spillway.traffic import guidellm, inference_perf
from spillway.traffic.load_blocks import Block

if TYPE_CHECKING:
    from spillway._core.workload import Synthetic

__all__ = ["read_load"]


def __dir__() -> list[str]:
    return __all__


def read_load(path: str | Path) -> Synthetic:
    """Read the load of a configuration of inference-perf or GuideLLM.

    The keys of the file say which tool it belongs to. What the generator cannot express is an
    error.

    *inference-perf*: the blocks `load` and `data`; others are ignored. `load.type` is constant,
    poisson or concurrent. The stages of the first two become the rate profile of the clients: each
    `rate` (requests/s) holds for its `duration` (seconds). Stages follow each other at once,
    whereas inference-perf waits for the answers of a stage before the next. A concurrent load has
    one stage, whose `concurrency_level` users send `num_requests` requests without thinking.
    `data.type` is synthetic, random or shared_prefix. Lengths in tokens are normal between `min`
    and `max` with `mean` and `std_dev`, or as `type` says: uniform or fixed (at `mean`). Of
    shared_prefix, each of the `num_groups` becomes a client with a prefix of `system_prompt_len`
    tokens of its own; prompts within a group share nothing else.

    *GuideLLM*: a scenario with `spec` (since 0.7), one with `profile`, `rate`, `data`,
    `max_seconds` and `max_requests` (before), or a report (benchmarks.json), which holds its
    scenario. The profile is constant (also named async), poisson, concurrent, throughput with
    `max_concurrency`, or synchronous. Several rates follow each other at once, each for
    `max_duration`, or as long as `max_requests` take. Limits on errors are ignored, as are warm-up
    and cool-down, which concern its statistics. Data are one `synthetic_text`: lengths are fixed,
    normal (with `_stdev`; by default from 1 to five deviations above the mean), or uniform (with
    `_min` and `_max` alone). Prefixes become clients with prefix groups; prompts share nothing
    else, whatever the number of samples.

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
    if not isinstance(root, dict):
        allowed = "must be a mapping with load and data, or a scenario of GuideLLM"
        raise config_error([(name, f"{root!r:.40}", allowed)])
    whole = Block(name, "", root)
    return guidellm.workload(whole) if guidellm.detect(root) else inference_perf.workload(whole)
