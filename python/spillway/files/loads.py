"""Loads of load generators: the formats, their fields, and rates in stages."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway._core.workload import Client, Constant, Poisson, RatePoint, Synthetic
from spillway.config.classes import config_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Block:
    """A mapping of the file, whose errors name file and field."""

    def __init__(self, file: str, place: str, values: dict[str, Any]) -> None:
        self._file = file
        self._place = place
        self.values = values

    def refuse(self, name: str, allowed: str) -> Exception:
        """Return the error of a field."""
        value = f"{self.values[name]!r:.40}" if name in self.values else "missing"
        return config_error([(f"{self._file}, {self._at(name)}", value, allowed)])

    def block(self, name: str) -> Block:
        """Return a mapping within."""
        if not isinstance(self.values.get(name), dict):
            raise self.refuse(name, "must be a mapping")
        return Block(self._file, self._at(name), self.values[name])

    def blocks(self, name: str) -> list[Block]:
        """Return a list of mappings, of which there is at least one."""
        found = self.values.get(name)
        if not (
            isinstance(found, list)
            and found
            and all(isinstance(mapping, dict) for mapping in found)
        ):
            raise self.refuse(name, "must be a list of mappings, at least one")
        return [
            Block(self._file, f"{self._at(name)}[{i}]", mapping) for i, mapping in enumerate(found)
        ]

    def choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        """Return a text, one of some."""
        found = self.values.get(name, default)
        if found not in allowed:
            others = ", ".join(allowed[:-1])
            raise self.refuse(name, f"must be {others}{' or ' if others else ''}{allowed[-1]}")
        return str(found)

    def number(
        self,
        name: str,
        low: float,
        high: float,
        *,
        above: bool = False,
        default: float | None = None,
    ) -> float:
        """Return a number from `low` (`above`: excluded) to `high`; the default if it is null."""
        found = self.values.get(name)
        found = default if found is None else found
        if (
            isinstance(found, bool)
            or not isinstance(found, int | float)
            or not low <= found <= high
            or (above and found == low)
        ):
            sign = ">" if above else ">="
            raise self.refuse(name, f"must be a number {sign} {low:g} and <= {high:g}")
        return float(found)

    def whole(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """Return a whole number; the default if it is null."""
        found = self.values.get(name)
        found = default if found is None else found
        if type(found) is not int or not low <= found <= high:
            raise self.refuse(name, f"must be a whole number >= {low} and <= {high}")
        return found

    def numbers(self, name: str, low: float, high: float) -> list[float]:
        """Return a number above `low`, or a list of such, as a list."""
        found = self.values.get(name)
        numbers = found if isinstance(found, list) and found else [found]
        within = Block(
            self._file, self._at(name), {str(i): number for i, number in enumerate(numbers)}
        )
        if not isinstance(found, list):
            return [self.number(name, low, high, above=True)]
        return [within.number(str(i), low, high, above=True) for i in range(len(numbers))]

    def forbid(self, name: str, why: str) -> None:
        """Refuse a field that is set."""
        if self.values.get(name):
            raise self.refuse(name, why)

    def only(self, names: Sequence[str]) -> None:
        """Refuse fields that are set and not among `names`."""
        for name in self.values:
            if name not in names and self.values[name] is not None:
                allowed = f"not known or not supported; must be one of {', '.join(sorted(names))}"
                raise self.refuse(name, allowed)

    def replaced(self, values: dict[str, Any]) -> Block:
        """Return a block of the same place with other values."""
        return Block(self._file, self._place, values)

    def _at(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name


@dataclass(frozen=True)
class LoadFormat:
    """The configuration files of a load generator.

    `name`: the tool; `keys`: what such a file holds, for errors; `detect`: whether the content of a
    file is one of these; `workload`: its generator, or a ConfigError; its docstring says what is
    read.
    """

    name: str
    keys: str
    detect: Callable[[Mapping[str, Any]], bool]
    workload: Callable[[Block], Synthetic]


def staged(
    rates: Sequence[float],
    durations: Sequence[float],
    settings: Sequence[dict[str, Any]],
    *,
    constant: bool,
) -> Synthetic:
    """Return clients that share rates (requests/s), one after the other for `durations` (s).

    `settings` are those of each client apart from its arrivals; constant ones take turns.
    """
    ends = list(itertools.accumulate(durations))
    requests = math.fsum(rate * length for rate, length in zip(rates, durations, strict=True))
    mean = requests / ends[-1]
    clients = []
    for k, client in enumerate(settings):
        start_s = min(k / rates[0], durations[0] / 2) if constant else 0.0
        points = [
            RatePoint(at_s=max(at_s - start_s, 0.0), factor=rate / mean)
            for rate, begin_s, end_s in zip(rates, [0.0, *ends], ends, strict=False)
            for at_s in (begin_s, end_s)
        ]
        arrivals = Constant() if constant else Poisson()
        profile = points if len(set(rates)) > 1 else []
        clients.append(Client(**client, start_s=start_s, rate_profile=profile, arrivals=arrivals))
    return Synthetic(requests_per_s=mean, duration_s=ends[-1], clients=clients)
