"""What tests know of the policies of the core: one specimen of each, beside its test.

`cpp/gateway/admission/X.h` has `tests/gateway/admission/specimen_X.py`; kinds that
share a header share a file. `specimens()` collects them, and what goes through all policies asks
there: random simulations, oracles, golden logs, contracts. No other list names them.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from support.descriptions import VARIANTS
from support.paths import TESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from support.random_simulations import Drawing


@dataclass(frozen=True)
class Specimen:
    """What tests know of one policy. A setting of a structure within it is `Struct.setting`."""

    policy: type[Any]
    examples: Sequence[Any] = ()
    """Policies for tests of every alternative, if the one with default settings is not enough."""

    # Random simulations.
    weight: float = 1
    """How often it is drawn; more than once where there are many alternatives below it."""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Where the range of the search, or one around the default, makes a run long."""
    inside: Collection[str] = ()
    """Settings that at their lower bound make a run long, or ask for another mechanism."""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """How often an optional setting is stated, where that is not one in two."""
    own: Mapping[str, Callable[[Drawing], Any]] = field(default_factory=dict)
    """Settings that follow from what else there is."""
    together: Callable[[dict[str, Any], Drawing], object] | None = None
    """Makes drawn settings valid that are so only together."""
    strict: Mapping[str, Any] = field(default_factory=dict)
    """Settings with which it refuses nearly everything, if it can."""
    wall: Mapping[str, Any] | None = None
    """Settings with which it refuses nearly everything, whatever there is around it."""
    late: tuple[float, float, int] | None = None
    """If it refuses only after a while: least and most requests per second, and their number."""
    movable: bool = False
    """Whether it is a limit that a controller can move."""

    # The rule in plain Python.
    random: Callable[..., Any] | None = None
    """A policy with random settings, for `random_gateways.py` and oracles, from a source of random
    numbers; of fairness: and a cost."""
    rule: Callable[..., Any] | None = None
    """Of admission: a `Rule` of `twins/admission.py`; of fairness: a `GlobalFifo` of
    `twins/gateway.py`, of the policy and the tenants' weights; of a scorer: the scores of the
    instances, of the policy and what it has `Seen`. Oracles compare every decision."""
    queues: bool = False
    """Whether a rule of admission depends on queued requests, so that its trials have a limit."""

    # Cases.
    golden: Mapping[str, Any] = field(default_factory=dict)
    """Policies by the name of their golden log: see `golden/regenerate.py`."""
    by_events: Any = None
    """A policy that reads no instance, and admits and rejects some in `python/test_testing.py`."""
    cutting: Sequence[Any] = ()
    """Controllers that cut the limit in the overload of `gateway/limit/test_limits.py`."""
    recovers: tuple[Any, list[float]] | None = None
    """A policy, and arrivals of a lone client, the last of which gets in at its second attempt."""

    def all_examples(self) -> Sequence[Any]:
        return self.examples or [self.policy()]


@functools.cache
def files() -> dict[str, list[Specimen]]:
    """The specimens in each file of `tests/`, by its path there."""
    by_file = {}
    for path in sorted(TESTS.rglob("specimen*_*.py")):
        place = path.relative_to(TESTS).with_suffix("")
        module = importlib.import_module(".".join(place.parts))
        held = [value for value in vars(module).values() if isinstance(value, Specimen)]
        by_file[f"{place.as_posix()}.py"] = held
    return by_file


@functools.cache
def specimens() -> dict[str, Specimen]:
    """Each specimen by the class of its policy."""
    return {specimen.policy.__name__: specimen for held in files().values() for specimen in held}


def at(seam: str) -> list[Specimen]:
    """The specimens of the alternatives of a seam, e.g. `Gateway.admission`, in their order."""
    names = [way.policy for variant, way in VARIANTS.items() if variant.seam == seam]
    return [specimens()[name] for name in names if name in specimens()]


def examples(seam: str) -> list[Any]:
    """Policies of every alternative of a seam."""
    return [policy for specimen in at(seam) for policy in specimen.all_examples()]


def rules(seam: str) -> list[tuple[Any, Callable[..., Any]]]:
    """The policies that have a rule, each with its rule."""
    return [
        (policy, specimen.rule)
        for specimen in at(seam)
        if specimen.rule
        for policy in specimen.all_examples()
    ]


def drawable(seam: str) -> list[Callable[..., Any]]:
    """What draws policies of a seam at random: see `Specimen.random`."""
    return [specimen.random for specimen in at(seam) if specimen.random]


def merged(table: str) -> dict[str, Any]:
    """One of the tables of settings, of all specimens together, by `Class.setting`."""
    return {
        name if "." in name else f"{specimen.policy.__name__}.{name}": value
        for specimen in specimens().values()
        for name, value in getattr(specimen, table).items()
    }
