"""Failures of instances and gateways in words: `instance 3 crashes at 300s for 200s`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spillway._core.cluster import Change
from spillway._core.fleet import Crash, GatewayCrash, Hang, KvLoss, Slowdown
from spillway.traffic.words import refusal, time_s, with_joined_units

if TYPE_CHECKING:
    from spillway._core.cluster import Simulation

_VERBS: dict[str, type] = {
    "crashes": Crash,
    "hangs": Hang,
    "slows": Slowdown,
    "loses its KV": KvLoss,
}
_WORDS = re.compile(rf"\s*(instance|gateway)\s+(\S+)\s+({'|'.join(_VERBS)})(?:\s+(.*))?", re.DOTALL)
_FACTOR = re.compile(r"x([0-9]*\.?[0-9]+)")
_SHAPE = (
    "must be instance N crashes, instance N hangs, instance N slows xF or gateway N crashes, at "
    "TIME, for TIME, or instance N loses its KV at TIME, e.g. instance 3 crashes at 300s for 200s"
)


def is_failure(text: str) -> bool:
    """Whether a change in words begins as one of an instance or of the gateway does."""
    return re.match(r"\s*(instance|gateway)\s", text) is not None


def with_failure(simulation: Simulation, text: str) -> Simulation:
    """The simulation with a failure of an instance, or of a replica of the gateway.

    Parameters
    ----------
    simulation : Simulation
        What fails in part.
    text : str
        `instance N crashes [at TIME] [for TIME]`, `instance N hangs …`, `instance N slows xF …`,
        `gateway N crashes …` or `instance N loses its KV [at TIME]`: a fault of
        `Simulation.changes`. N counts from 0. Without `at` it begins with the run, without `for` it
        does not end by itself.

    Raises
    ------
    ConfigError
        If the text is not of this form, or what fails does not exist or cannot fail.

    """
    at_s, fault = _parsed(text)
    changes = [*simulation.changes, Change(at_s=at_s, faults=[fault])]
    return simulation.replace(changes=changes)


def _parsed(text: str) -> tuple[float, Any]:
    match = _WORDS.fullmatch(text)
    if not match:
        raise refusal(text, "", _SHAPE)
    what, number, verb = match[1], match[2], match[3]
    rest = with_joined_units((match[4] or "").split())
    if what == "gateway" and verb != "crashes":
        raise refusal(text, verb, "must be crashes, the only fault of a gateway")
    if not re.fullmatch(r"[0-9]{1,6}", number):
        owner = "an instance" if what == "instance" else "a replica of the gateway"
        raise refusal(text, number, f"must be the number of {owner}, from 0")
    found: dict[str, Any] = {what: int(number)}
    at_s = 0.0
    if verb == "slows":
        shown = rest.pop(0) if rest else ""
        factor = _FACTOR.fullmatch(shown)
        if not factor:
            raise refusal(text, shown, "must be slows xF: the factor of the times of steps")
        found["factor"] = float(factor[1])
    is_instant = _VERBS[verb] is KvLoss
    allowed = {"at"} if is_instant else {"at", "for"}
    if len(rest) % 2 or set(rest[::2]) - allowed or len(set(rest[::2])) < len(rest) // 2:
        needed = "at TIME, or nothing" if is_instant else "at TIME, for TIME, or both"
        raise refusal(text, " ".join(rest), f"must be {needed}")
    for word, shown in zip(rest[::2], rest[1::2], strict=True):
        value_s = time_s(text, word, shown)
        if word == "at":
            at_s = value_s
        else:
            found["for_s"] = value_s
    return at_s, (GatewayCrash if what == "gateway" else _VERBS[verb])(**found)
