"""A held run as an environment of Gymnasium, for controllers that learn (extra `rl`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import loading
from spillway._core.sim import Exclusive
from spillway.config.classes import config_error
from spillway.config.exclusive import exclusive
from spillway.config.extras import require
from spillway.data.targets import has_targets
from spillway.session import _advance_by, start
from spillway.simulate import processors
from spillway.study.space import Space

require("gymnasium", "rl")
import gymnasium as gym  # noqa: E402  (named by `require` if it is missing)
from gymnasium.vector import AutoresetMode, VectorEnv  # noqa: E402
from gymnasium.vector.utils import batch_space  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from spillway.loading import Configuration
    from spillway.result import Result
    from spillway.session import Session
    from spillway.study.space import BoundSpace

    Reward = Callable[[Mapping[str, Any], Mapping[str, Any]], float]
    Observation = npt.NDArray[np.float32]
    Action = npt.NDArray[np.float32]

__all__ = ["GatewayEnv", "GatewayVectorEnv", "good_requests"]


_FLEET = ("ready_instances", "running_per_instance", "waiting_per_instance", "kv_utilization")
_RATES = ("submitted", "dispatched", "shed", "completed", "good")
_EXTENT = 1.0


def good_requests(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """Requests of the interval that were completed within the targets of their class.

    The default reward. `before` and `after` are what `Session.observe` gives at both ends.
    """
    return float(
        sum(after["tenants"][tenant]["good"] - now["good"] for tenant, now in _tenants(before))
    )


class GatewayEnv(gym.Env["Observation", "Action"]):
    """One run per episode; an action sets some settings for the next interval.

    It takes one call of `reset`, `step` or `result` at a time. While it is inside one, a policy of
    its run, the reward or another thread that makes another one gets a UsageError, which has no
    effect.

    Parameters
    ----------
    simulation : Simulation or path
        What to run. Its horizon, or its last request, ends an episode (`terminated`).
    actions : Space or mapping
        The settings to act on, by path, each with its range (see `study.Space`): (low, high), a
        `Range` or "auto". They must be among those that `Session.set` can change. A setting that
        has no value in its range begins in the middle.
    interval_s : float
        Simulated time between two actions, > 0.
    episode_s : float, optional
        Simulated time after which an episode is cut off (`truncated`).
    reward : function, optional
        Of what `Session.observe` gives at the start and the end of the interval. Default:
        `good_requests`, which needs targets of latency in some class.
    oracle : bool
        Whether observation and reward show the true state of the fleet. By default they show what a
        gateway sees: its own counts, and the last reports of the instances, which are as old as
        `Simulation.signals` makes them (not at all with `live`). A policy that learns from the
        true state may need what no gateway has.

    Attributes
    ----------
    action_space : gymnasium.spaces.Box
        A number from -1 to 1 per setting, in the order of `actions`: the low and the high end of
        its range, on a log scale where the field has one.
    observation_space : gymnasium.spaces.Box
        The numbers named by `features`, ≥ 0.
    features : tuple of str
        Of the fleet: ready_instances, running and waiting requests of the engines per ready
        instance, kv_utilization. Per tenant: requests submitted, dispatched, shed, completed and
        good in the last interval, per second, and those queued now. Per action: the position of the
        setting in its range, from 0 to 1.

    Raises
    ------
    ConfigError
        If the simulation cannot be run, or an action's path or range is invalid.
    ImportError
        Without Gymnasium (extra `rl`).

    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium's name and form)

    def __init__(
        self,
        simulation: Configuration,
        actions: Space | Mapping[str, Any],
        *,
        interval_s: float = 1.0,
        episode_s: float | None = None,
        reward: Reward | None = None,
        oracle: bool = False,
    ) -> None:
        self._calls = (Exclusive("environment", "its attributes"),)
        self.simulation = loading.as_simulation(simulation)
        self.interval_s = _positive("interval_s", interval_s)
        self.episode_s = None if episode_s is None else _positive("episode_s", episode_s)
        if reward is None and not any(
            has_targets(slo_class) for slo_class in self.simulation.slo_classes
        ):
            allowed = "give some class a target (e.g. target_ttft_s), or a reward of your own"
            raise config_error([("reward", "good_requests", allowed)])
        self._reward = reward or good_requests
        self._oracle = oracle
        self._space = _bound(actions, self.simulation)
        # Paths that cannot change are refused here, not in the first step.
        first = start(self.simulation).set(self._space.complete({}))
        self.action_space = gym.spaces.Box(-_EXTENT, _EXTENT, (len(self._space),), np.float32)
        self.features = (
            *_FLEET,
            *(
                f"{tenant}: {name}"
                for tenant in first.observe()["tenants"]
                for name in (*(f"{rate}_per_s" for rate in _RATES), "queued")
            ),
            *(parameter.name for parameter in self._space),
        )
        self.observation_space = gym.spaces.Box(0, np.inf, (len(self.features),), np.float32)
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """The run of this episode. Raises RuntimeError before the first `reset`."""
        if self._session is None:
            raise RuntimeError("there is no episode yet: call reset()")
        return self._session

    @exclusive
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode, whose run has a seed of its own.

        Parameters
        ----------
        seed : int, optional
            Of the generator from which the seeds of this and the following runs are drawn.
        options : dict, optional
            {"simulation_seed": 7}: run under this seed, e.g. to compare with `simulate`.

        """
        return self._begin(seed, options)

    def _begin(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**63))
        chosen = (options or {}).get("simulation_seed", drawn)
        session = start(self.simulation, chosen)
        settings = self._space.complete({})
        if outside := {path: settings[path] for path in self._space.outside()}:
            session.set(outside)
        self._seen = self._before = session.observe(oracle=self._oracle)
        self._session, self._settings = session, settings
        return self._observation(), self._info()

    @exclusive
    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Sets the settings, runs for an interval, and looks."""
        _advance_by(self.interval_s, [(self.session, self._changed_at(_shares(action)))], threads=1)
        return self._look()

    def _changed_at(self, shares: list[float]) -> dict[str, Any]:
        """The settings that change if they go to these positions in their ranges, as they do."""
        before, self._settings = self._settings, self._space.at(shares)
        return {path: value for path, value in self._settings.items() if value != before[path]}

    def _look(self) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """What `step` returns, after the interval."""
        session = self.session
        self._before, self._seen = self._seen, session.observe(oracle=self._oracle)
        horizon_s = self.simulation.horizon_s
        terminated = session.is_over or (horizon_s is not None and session.now_s >= horizon_s)
        truncated = self.episode_s is not None and session.now_s >= self.episode_s
        reward = float(self._reward(self._before, self._seen))
        return self._observation(), reward, terminated, truncated, self._info()

    @exclusive
    def result(self) -> Result:
        """Finishes the run of this episode, with the settings as they are, and returns its result.

        `reset` must follow.
        """
        result = self.session.finish()
        self._session = None
        return result

    def _observation(self) -> Observation:
        seen, before = self._seen, self._before
        ready = max(seen["ready_instances"], 1)
        found = [
            seen["ready_instances"],
            seen["running"] / ready,
            seen["waiting"] / ready,
            seen["kv_utilization"],
        ]
        for tenant, then in _tenants(before):
            now = seen["tenants"][tenant]
            found += [(now[name] - then[name]) / self.interval_s for name in _RATES]
            found.append(now["queued"])
        found += [
            min(max(parameter.share_of(self._settings[parameter.name]), 0.0), 1.0)
            for parameter in self._space
        ]
        return np.array(found, dtype=np.float32)

    def _info(self) -> dict[str, Any]:
        return {"time_s": self.session.now_s, "settings": dict(self._settings)}


class GatewayVectorEnv(VectorEnv["Observation", "Action", "npt.NDArray[Any]"]):
    """Several runs at once: the core advances them on threads, between their actions.

    Parameters
    ----------
    simulation, actions, **settings
        See `GatewayEnv`.
    num_envs : int
        Runs at a time, ≥ 1.
    threads : int, optional
        ≥ 1; default: one per processor.

    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        simulation: Configuration,
        actions: Space | Mapping[str, Any],
        num_envs: int,
        *,
        threads: int | None = None,
        **settings: Any,
    ) -> None:
        if not (isinstance(num_envs, int) and num_envs >= 1):
            raise config_error([("num_envs", repr(num_envs), "must be >= 1")])
        if threads is not None and not (isinstance(threads, int) and threads >= 1):
            raise config_error(
                [("threads", repr(threads), "must be >= 1, or None: all processors")]
            )
        configured = loading.as_simulation(simulation)
        self.envs = [GatewayEnv(configured, actions, **settings) for _ in range(num_envs)]
        # A run is advanced by all of them together or by its own environment, never by both.
        self._calls = (
            Exclusive("environment", "its attributes"),
            *(call for env in self.envs for call in env._calls),
        )
        self.num_envs = num_envs
        self.features = self.envs[0].features
        self.single_action_space = self.envs[0].action_space
        self.single_observation_space = self.envs[0].observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._ended = np.zeros(num_envs, dtype=bool)
        self._threads = threads or processors()

    @exclusive
    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode in each; `seed`: one per run, or that of the first."""
        if seed is None or isinstance(seed, int):
            seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        self._ended[:] = False
        found = [env._begin(seed, options) for env, seed in zip(self.envs, seeds, strict=True)]
        return np.stack([begun[0] for begun in found]), self._infos([begun[1] for begun in found])

    @exclusive
    def step(
        self, actions: Action
    ) -> tuple[Observation, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """One interval in each. A run that had ended begins anew instead, with reward 0."""
        steps = [
            (env.session, env._changed_at(shares))
            for env, shares, has_ended in zip(self.envs, _shares(actions), self._ended, strict=True)
            if not has_ended
        ]
        _advance_by(self.envs[0].interval_s, steps, self._threads)
        found = [
            _begun(env) if has_ended else env._look()
            for env, has_ended in zip(self.envs, self._ended, strict=True)
        ]
        observations, rewards, terminated, truncated, infos = zip(*found, strict=True)
        self._ended = np.array(terminated) | np.array(truncated)
        return (
            np.stack(observations),
            np.array(rewards, dtype=np.float64),
            np.array(terminated),
            np.array(truncated),
            self._infos(list(infos)),
        )

    def _infos(self, each: list[dict[str, Any]]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for i, info in enumerate(each):
            infos = self._add_info(infos, info, i)
        return infos


def _shares(actions: Action) -> list[Any]:
    """The positions in the ranges of settings, from 0 to 1, for an action or one per run."""
    found: list[Any] = ((np.clip(actions, -_EXTENT, _EXTENT) / _EXTENT + 1) / 2).tolist()
    return found


def _begun(env: GatewayEnv) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
    """The first look at the next episode, as a step without reward."""
    observation, info = env._begin()
    return observation, 0.0, False, False, info


def _tenants(seen: Mapping[str, Any]) -> list[tuple[str, dict[str, int]]]:
    return list(seen["tenants"].items())


def _positive(name: str, value: float) -> float:
    if not (isinstance(value, int | float) and 0 < value < float("inf")):
        raise config_error([(name, repr(value), "must be > 0 (s)")])
    return float(value)


def _bound(actions: Space | Mapping[str, Any], simulation: Any) -> BoundSpace:
    space = (actions if isinstance(actions, Space) else Space(actions)).bind(simulation)
    for parameter in space:
        if not parameter.is_numeric or parameter.opens_with is not None:
            raise config_error([(parameter.name, parameter.kind, "must be a number with a range")])
    return space
