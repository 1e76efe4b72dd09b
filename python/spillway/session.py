"""A run that is held, looked at, acted upon, and continued."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from spillway import _core
from spillway._core.sim import ConfigError
from spillway.config import memory
from spillway.config.classes import config_error
from spillway.config.limits import LONGEST_SPAN_S
from spillway.simulate import _checked_seed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway._core.cluster import Simulation
    from spillway.loading import Configuration
    from spillway.result import Result

__all__ = ["Session", "start"]


def __dir__() -> list[str]:
    return __all__


_NS = 1e-9
_COUNTS = ("submitted", "dispatched", "shed", "completed", "queued", "emitted_tokens", "good")


def start(simulation: Configuration, seed: int = 0) -> Session:
    """Begins a run that can be held at any instant.

    Parameters
    ----------
    simulation : Simulation or path
        What to run, or the path of a configuration file.
    seed : int
        Seed of every random stream, 0 <= seed < 2**64.

    Returns
    -------
    Session
        Held at time 0, before the first event.

    Raises
    ------
    ConfigError
        If the simulation cannot be run.

    """
    from spillway import loading

    return Session(loading.as_simulation(simulation), _checked_seed(seed))


class Session:
    """A run under one seed, held at an instant.

    Advanced in whatever pieces, it has the result of `simulate`. `set` changes what a running
    deployment can change; the change is part of `simulation` from then on, as an entry of its
    `changes`, so the finished result says what was done and can be run again.

    Attributes
    ----------
    seed : int

    """

    def __init__(self, simulation: Simulation, seed: int) -> None:
        memory.check([simulation])
        self._start = simulation
        self._changes: list[dict[str, Any]] = []
        self.seed = seed
        self._core: Any = _core.cluster.Session(simulation, seed)

    @property
    def simulation(self) -> Simulation:
        """With the changes so far."""
        if self._changes:
            self._start, self._changes = self._with([]), []
        return self._start

    @property
    def now_s(self) -> float:
        """The instant up to which everything has happened."""
        return float(self._running.now_s)

    @property
    def is_over(self) -> bool:
        """Whether all requests have arrived and ended."""
        return not self._running.has_pending_work

    def advance(self, until_s: float) -> Session:
        """Runs up to an instant, whose events happen; returns itself.

        The horizon of the simulation is the last instant.

        Raises ConfigError for an instant before `now_s`.
        """
        if not (isinstance(until_s, int | float) and until_s >= self.now_s):
            allowed = f"must be >= now_s = {self.now_s:g} (s)"
            raise config_error([("until_s", repr(until_s), allowed)])
        self._running.advance(min(float(until_s), LONGEST_SPAN_S))
        return self

    def observe(self) -> dict[str, Any]:
        """State of the gateway and the fleet now.

        Returns
        -------
        dict
            time_s, and the figures of `Timeline`: in_flight, permits (None: the limit does not
            count requests), waiting, running, kv_utilization, ready_instances; and by tenant
            submitted, dispatched, shed, completed, emitted_tokens (since the start) and queued, and
            good (completed within the targets of their class; 0 without targets), as a dict per
            tenant under `tenants`.

        """
        columns: Mapping[str, Any] = self._running.observe()
        state = {name: column[0].item() for name, column in columns.items() if name not in _COUNTS}
        if math.isnan(state["permits"]):
            state["permits"] = None
        tenants = self._running.tenants
        state["tenants"] = {
            tenant: {name: int(columns[name][0, i]) for name in _COUNTS}
            for i, tenant in enumerate(tenants)
        }
        return state

    def set(self, changes: Mapping[str, Any]) -> Session:
        """Changes settings from now on, after the events of this instant; returns itself.

        A change that needs what the run has not measured so far replays the run up to now, which
        takes as long as the run so far: the first threshold of busy workers where nothing else
        asked for their loads, or one that makes policies look at what they ignored before. All
        others act immediately.

        Parameters
        ----------
        changes : mapping
            Values by path: those of `Simulation.changes`. They are the settings that
            `spillway describe` marks as changeable: limits, thresholds, rates, weights, bounds and
            time-outs of queues, targets and gains of controllers, `fleet.target_instances`.

        Raises
        ------
        ConfigError
            For another path, or a value out of its range. The session is as before.

        """
        change = {"at_s": self.now_s + _NS, "set": dict(changes)}
        if not self._running.set(change["set"], change["at_s"]):
            self._core = self._replayed(self._with([change]))._core
        self._changes.append(change)
        return self

    def fork(self) -> Session:
        """An independent session with the same past, held at the same instant.

        Its past is replayed, which takes as long as the run so far.
        """
        return self._replayed(self.simulation)

    def finish(self) -> Result:
        """Runs to the end and returns the result. The session is over then."""
        from spillway.result import Result

        running, self._core = self._running, None
        return Result(self.simulation, self.seed, running.finish())

    def _with(self, further: list[dict[str, Any]]) -> Simulation:
        before = self._start.changes
        try:
            return self._start.replace(changes=[*before, *self._changes, *further])
        except ConfigError as error:
            place = re.compile(r"changes\[\d+\]\.set\[(.*)\]")
            raise config_error(
                [(place.sub(r"\1", path), value, why) for path, value, why in error.violations]
            ) from None

    def _replayed(self, simulation: Simulation) -> Session:
        now_s = self.now_s
        return Session(simulation, self.seed).advance(now_s)

    @property
    def _running(self) -> Any:
        if self._core is None:
            raise RuntimeError("the session is over: finish() was called")
        return self._core

    def __repr__(self) -> str:
        if self._core is None:
            return f"<Session of seed {self.seed}, finished>"
        return f"<Session of seed {self.seed} at {self.now_s:g} s>"
