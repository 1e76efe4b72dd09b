"""The environments of Gymnasium: its own checker, and runs as `simulate` has them."""

from __future__ import annotations

import numpy as np
import pytest

import spillway
from spillway import ConfigError, Simulation, gateway, instance, signals, workload

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env  # noqa: E402

from spillway.envs import GatewayEnv, GatewayVectorEnv, good_requests  # noqa: E402
from spillway.session import _advance_by  # noqa: E402

CAP = "gateway.limit.max_in_flight"
ACTIONS = {CAP: (4, 64)}


def busy(**settings: object) -> Simulation:
    return Simulation(
        workload=workload.Synthetic(
            requests_per_s=40,
            num_requests=800,
            clients=[workload.Client(name="a", tenant="gold"), workload.Client(name="b")],
        ),
        tenants=[workload.Tenant(name="gold"), workload.Tenant(name="default")],
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=1)],
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=40)),
        instances=instance.InstanceGroup(
            count=2, num_kv_blocks=600, max_num_seqs=24, latency=instance.Linear()
        ),
        router="least_loaded",
    ).with_(settings)


@pytest.mark.filterwarnings("ignore:.*observation space maximum value is infinity")
@pytest.mark.filterwarnings("ignore:.*without a spec|.*not having a spec")
def test_it_passes_gymnasium_s_checker() -> None:
    check_env(GatewayEnv(busy(), ACTIONS, episode_s=5))


def test_constant_actions_are_the_run_with_these_settings() -> None:
    env = GatewayEnv(busy(), ACTIONS, interval_s=0.5)
    env.reset(options={"simulation_seed": 11})
    high = np.ones(1, dtype=np.float32)
    total, ended = 0.0, False
    while not ended:
        _, reward, ended, cut, _ = env.step(high)
        total += reward
        assert not cut
    result = env.result()
    # Set before the first event that it could affect.
    plain = spillway.simulate(busy(**{CAP: 64}), seed=11)
    assert np.array_equal(result.requests["ttft_s"], plain.requests["ttft_s"], equal_nan=True)
    assert total == round(plain.summary()["goodput"] * 800)


def test_observations_are_those_of_the_session() -> None:
    env = GatewayEnv(busy(), ACTIONS, interval_s=2)
    first, info = env.reset(seed=1)
    assert info == {"time_s": 0, "settings": {CAP: 40}}
    assert dict(zip(env.features, first, strict=True))["ready_instances"] == 2
    seen, reward, *_, info = env.step(np.array([-1], dtype=np.float32))
    assert info == {"time_s": 2, "settings": {CAP: 4}}
    state = env.session.observe()
    named = dict(zip(env.features, seen, strict=True))
    assert named["running_per_instance"] == pytest.approx(state["running"] / 2)
    for tenant, counts in state["tenants"].items():
        assert named[f"{tenant}: submitted_per_s"] == pytest.approx(counts["submitted"] / 2)
        assert named[f"{tenant}: queued"] == counts["queued"]
    assert named[CAP] == 0
    assert reward == sum(counts["good"] for counts in state["tenants"].values()) > 0
    assert state["in_flight"] <= 4


def test_observations_have_the_age_of_the_signals_unless_an_oracle_is_asked() -> None:
    late = busy(signals=signals.Scraped(period_s=2, delay_s=0.5))
    named = {}
    for oracle in (False, True):
        env = GatewayEnv(late, ACTIONS, interval_s=2, oracle=oracle)
        env.reset(options={"simulation_seed": 1})
        seen = env.step(np.array([1], dtype=np.float32))[0]
        named[oracle] = dict(zip(env.features, seen, strict=True))
    assert named[False]["running_per_instance"] == 0 < named[True]["running_per_instance"]
    assert named[False]["gold: submitted_per_s"] == named[True]["gold: submitted_per_s"] > 0


def test_a_seed_decides_the_episodes() -> None:
    def runs(seed: int) -> list[float]:
        env = GatewayEnv(busy(), ACTIONS, interval_s=4)
        found = []
        for _ in range(2):
            env.reset(seed=seed if not found else None)
            found.append(env.step(np.zeros(1, dtype=np.float32))[0].sum())
        return [float(value) for value in found]

    assert runs(3) == runs(3) != runs(4)
    assert len(set(runs(3))) == 2


def test_an_episode_is_cut_or_ends_at_the_horizon() -> None:
    action = np.zeros(1, dtype=np.float32)
    cut = GatewayEnv(busy(), ACTIONS, episode_s=1)
    cut.reset()
    assert cut.step(action)[2:4] == (False, True)
    short = GatewayEnv(busy(horizon_s=1), ACTIONS)
    short.reset()
    assert short.step(action)[2:4] == (True, False)


def test_a_reward_of_one_s_own() -> None:
    env = GatewayEnv(
        busy(slo_classes=[workload.SloClass(name="standard")]),
        ACTIONS,
        reward=lambda before, after: after["in_flight"] - before["in_flight"],
    )
    env.reset()
    assert env.step(np.zeros(1, dtype=np.float32))[1] == env.session.observe()["in_flight"] > 0


def test_several_runs_are_those_of_single_environments() -> None:
    several = GatewayVectorEnv(busy(), ACTIONS, 3, interval_s=2, episode_s=4)
    seen, infos = several.reset(seed=5)
    assert seen.shape == (3, len(several.features))
    assert list(infos["time_s"]) == [0, 0, 0]
    actions = np.array([[-1], [0], [1]], dtype=np.float32)
    steps = [several.step(actions) for _ in range(3)]
    for i in range(3):
        env = GatewayEnv(busy(), ACTIONS, interval_s=2, episode_s=4)
        first, _ = env.reset(seed=5 + i)
        assert np.array_equal(first, seen[i])
        for observations, rewards, terminated, truncated, _ in steps[:2]:
            one = env.step(actions[i])
            assert np.array_equal(one[0], observations[i])
            assert one[1:4] == (rewards[i], terminated[i], truncated[i])
        # The third step begins the next episode.
        assert np.array_equal(steps[2][0][i], env.reset()[0])
        assert steps[2][1][i] == 0
    several.close()


def test_a_setting_without_a_value_in_its_range_begins_in_the_middle() -> None:
    path = "busy_monitor.active_decode_blocks_threshold"
    several = GatewayVectorEnv(busy(), {path: (0.1, 0.9)}, 2)
    _, infos = several.reset(options={"simulation_seed": 3})
    assert list(infos["settings"][path]) == [0.5, 0.5]
    several.step(np.zeros((2, 1), dtype=np.float32))
    result = several.envs[0].result()
    assert [change.set for change in result.simulation.changes] == [{path: 0.5}]
    assert result.digest == spillway.simulate(busy(**{path: 0.5}), seed=3).digest


def test_sessions_advance_together_as_alone() -> None:
    # The first threshold of busy workers takes a replay; the third session only advances.
    changes = [{"busy_monitor.active_decode_blocks_threshold": 0.5}, {CAP: 5}, {}]
    together = [spillway.start(busy(), seed).advance(2) for seed in range(3)]
    _advance_by(1.5, list(zip(together, changes, strict=True)), threads=2)
    for seed, (session, change) in enumerate(zip(together, changes, strict=True)):
        alone = spillway.start(busy(), seed).advance(2)
        if change:
            alone.set(change)
        alone.advance(3.5)
        assert session.now_s == alone.now_s
        assert session.simulation == alone.simulation
        assert session.finish().digest == alone.finish().digest
    with pytest.raises(RuntimeError, match="over"):
        _advance_by(1, [(together[0], {})], threads=1)
    running = spillway.start(busy())
    with pytest.raises(ConfigError, match="horizon_s"):
        _advance_by(1, [(running, {"horizon_s": 1})], threads=2)
    assert running.now_s == 0


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"interval_s": 0}, "interval_s = 0: must be > 0"),
        ({"episode_s": -1}, "episode_s = -1: must be > 0"),
        ({"actions": {"router": ["least_loaded", "round_robin"]}}, "a number with a range"),
        ({"actions": {"horizon_s": (1, 2)}}, "horizon_s"),
        ({"simulation": Simulation()}, "target_ttft_s"),
    ],
)
def test_what_it_cannot_be_is_refused(form: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GatewayEnv(**{"simulation": busy(), "actions": ACTIONS, **form})  # type: ignore[arg-type]


def test_several_runs_need_at_least_one_and_a_thread() -> None:
    with pytest.raises(ConfigError, match="num_envs = 0: must be >= 1"):
        GatewayVectorEnv(busy(), ACTIONS, 0)
    with pytest.raises(ConfigError, match="threads = 0: must be >= 1"):
        GatewayVectorEnv(busy(), ACTIONS, 2, threads=0)


def test_the_reward_counts_good_requests() -> None:
    before = {"tenants": {"a": {"good": 3}, "b": {"good": 0}}}
    after = {"tenants": {"a": {"good": 5}, "b": {"good": 1}}}
    assert good_requests(before, after) == 3
