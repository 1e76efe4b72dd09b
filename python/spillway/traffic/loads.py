"""The load of an inference-perf configuration as a generator."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._core.workload import (
    Client,
    ClosedLoop,
    Constant,
    Fixed,
    Gaussian,
    Poisson,
    RatePoint,
    Synthetic,
    Uniform,
)
from spillway.config import filesystem, yaml
from spillway.config.classes import config_error
from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["read_load"]


def __dir__() -> list[str]:
    return __all__


_MOST = 1_000_000_000  # requests per second, and in all
_MOST_USERS = 1_000_000
_MOST_GROUPS = 10_000
_LOADS = ("constant", "poisson", "concurrent")
_DATA = ("synthetic", "random", "shared_prefix")
_LAWS = ("normal", "uniform", "fixed")


def read_load(path: str | Path) -> Synthetic:
    """Read the blocks `load` and `data` of a configuration file of inference-perf.

    `load.type` is constant, poisson or concurrent. The stages of the first two become the rate
    profile of the clients: each `rate` (requests/s) holds for its `duration` (seconds). Stages
    follow each other at once, whereas inference-perf waits for the answers of a stage before the
    next. A concurrent load has one stage, whose `concurrency_level` users send `num_requests`
    requests without thinking.

    `data.type` is synthetic, random or shared_prefix. Lengths in tokens are normal between `min`
    and `max` with `mean` and `std_dev`, or as `type` says: uniform or fixed (at `mean`). Of
    shared_prefix, each of the `num_groups` becomes a client with a prefix of `system_prompt_len`
    tokens of its own; prompts within a group share nothing else. Other blocks are ignored.

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
        raise config_error([(name, f"{root!r:.60}", "must be a mapping with load and data")])
    whole = _Block(name, "", root)
    return _workload(whole.block("load"), whole.block("data"))


class _Block:
    """A mapping of the file, whose errors name file and field."""

    def __init__(self, file: str, place: str, values: dict[str, Any]) -> None:
        self._file = file
        self._place = place
        self.values = values

    def refuse(self, name: str, allowed: str) -> Exception:
        """Return the error of a field."""
        value = f"{self.values[name]!r:.60}" if name in self.values else "missing"
        return config_error([(f"{self._file}, {self._at(name)}", value, allowed)])

    def block(self, name: str) -> _Block:
        """Return a mapping within."""
        if not isinstance(self.values.get(name), dict):
            raise self.refuse(name, "must be a mapping")
        return _Block(self._file, self._at(name), self.values[name])

    def blocks(self, name: str) -> list[_Block]:
        """Return a list of mappings, of which there is at least one."""
        found = self.values.get(name)
        if not (isinstance(found, list) and found and all(isinstance(one, dict) for one in found)):
            raise self.refuse(name, "must be a list of mappings, at least one")
        return [_Block(self._file, f"{self._at(name)}[{i}]", one) for i, one in enumerate(found)]

    def choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        """Return a text, one of some."""
        found = self.values.get(name, default)
        if found not in allowed:
            raise self.refuse(name, f"must be {', '.join(allowed[:-1])} or {allowed[-1]}")
        return str(found)

    def number(self, name: str, low: float, high: float, *, above: bool = False) -> float:
        """Return a number from `low` (`above`: excluded) to `high`."""
        found = self.values.get(name)
        if (
            isinstance(found, bool)
            or not isinstance(found, int | float)
            or not low <= found <= high
            or (above and found == low)
        ):
            sign = ">" if above else ">="
            raise self.refuse(name, f"must be a number {sign} {low:g} and <= {high:g}")
        return float(found)

    def whole(self, name: str, low: int, high: int) -> int:
        """Return a whole number."""
        found = self.values.get(name)
        if type(found) is not int or not low <= found <= high:
            raise self.refuse(name, f"must be a whole number >= {low} and <= {high}")
        return found

    def forbid(self, name: str, why: str) -> None:
        """Refuse a field that is set."""
        if self.values.get(name):
            raise self.refuse(name, why)

    def _at(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name


def _workload(load: _Block, data: _Block) -> Synthetic:
    load.forbid("sweep", "a sweep measures its rates; state stages instead")
    kind = load.choice("type", _LOADS)
    stages = load.blocks("stages")
    settings = _prompts(data)
    if kind == "concurrent":
        return _concurrent(load, stages, settings)
    rates = [one.number("rate", 0, _MOST, above=True) for one in stages]
    durations = [one.number("duration", 0, LONGEST_SPAN_S, above=True) for one in stages]
    ends = list(itertools.accumulate(durations))
    if ends[-1] > LONGEST_SPAN_S:
        raise load.refuse("stages", f"must last <= {LONGEST_SPAN_S:g} s in all")
    requests = math.fsum(rate * length for rate, length in zip(rates, durations, strict=True))
    mean = requests / ends[-1]
    clients = []
    for k, one in enumerate(settings):
        # Clients of a constant load take turns.
        start_s = min(k / rates[0], durations[0] / 2) if kind == "constant" else 0.0
        points = [
            RatePoint(at_s=max(at_s - start_s, 0.0), factor=rate / mean)
            for rate, begin_s, end_s in zip(rates, [0.0, *ends], ends, strict=False)
            for at_s in (begin_s, end_s)
        ]
        arrivals = Constant() if kind == "constant" else Poisson()
        profile = points if len(set(rates)) > 1 else []
        clients.append(Client(**one, start_s=start_s, rate_profile=profile, arrivals=arrivals))
    return Synthetic(requests_per_s=mean, duration_s=ends[-1], clients=clients)


def _concurrent(load: _Block, stages: list[_Block], settings: list[dict[str, Any]]) -> Synthetic:
    if len(stages) > 1:
        allowed = "must be one stage of a concurrent load: the next would begin when it ends"
        raise load.refuse("stages", allowed)
    users = stages[0].whole("concurrency_level", 1, _MOST_USERS)
    requests = stages[0].whole("num_requests", 1, _MOST)
    if len(settings) > 1:
        allowed = "must be constant or poisson for data with several shared prefixes"
        raise load.refuse("type", allowed)
    loop = ClosedLoop(users=users, think_time_s=0)
    return Synthetic(clients=[Client(**settings[0], num_requests=requests, arrivals=loop)])


def _prompts(data: _Block) -> list[dict[str, Any]]:
    """Return name, lengths and prefix of each client."""
    data.forbid("multimodal", "not supported: prompts are text")
    if data.choice("type", _DATA) != "shared_prefix":
        lengths = {
            f"{name}_tokens": _lengths(data.block(f"{name}_distribution"))
            for name in ("input", "output")
        }
        return [{"name": "inference-perf", **lengths}]
    shared = data.block("shared_prefix")
    shared.forbid("enable_multi_turn_chat", "not supported: prompts of other turns are answers")
    shared.forbid("multimodal", "not supported: prompts are text")
    lengths = {
        f"{target}_tokens": _lengths(shared.block(f"{name}_distribution"))
        if f"{name}_distribution" in shared.values
        else Fixed(tokens=shared.whole(f"{name}_len", low, MAX_TOKENS))
        for target, name, low in (("input", "question", 1), ("output", "output", 0))
    }
    prefix = shared.whole("system_prompt_len", 0, MAX_TOKENS)
    return [
        {"name": name, "prefix_group": name, "prefix_tokens": prefix, **lengths}
        for name in (f"group-{k}" for k in range(shared.whole("num_groups", 1, _MOST_GROUPS)))
    ]


def _lengths(block: _Block) -> Fixed | Uniform | Gaussian:
    kind = block.choice("type", _LAWS, _LAWS[0])
    if kind == "fixed":
        return Fixed(tokens=round(block.number("mean", 0, MAX_TOKENS)))
    low = block.whole("min", 0, MAX_TOKENS)
    high = block.whole("max", low, MAX_TOKENS)
    if kind == "uniform":
        return Uniform(min_tokens=low, max_tokens=high)
    return Gaussian(
        mean_tokens=block.number("mean", 0, MAX_TOKENS),
        std_dev_tokens=block.number("std_dev", 0, MAX_TOKENS),
        min_tokens=low,
        max_tokens=high,
    )
