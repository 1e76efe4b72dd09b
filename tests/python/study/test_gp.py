"""The Optuna sampler on a Gaussian process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

optuna = pytest.importorskip("optuna")


from optuna.distributions import CategoricalDistribution, FloatDistribution  # noqa: E402

from spillway.study import gp  # noqa: E402
from spillway.study.gp import GpSampler  # noqa: E402
from spillway.study.gp_space import Space  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from optuna.trial import Trial

optuna.logging.set_verbosity(optuna.logging.WARNING)


def quadratic(trial: Trial, noise: np.random.Generator | None = None) -> float:
    x = trial.suggest_float("x", -1.0, 3.0)
    y = trial.suggest_float("y", 1e-3, 10.0, log=True)
    value = (x - 0.7) ** 2 + math.log10(y) ** 2
    trial.set_user_attr("objective_se", [0.3 if noise else 0.0])
    return value + (0.3 * noise.normal() if noise else 0.0)


def batches(
    sampler: GpSampler, objective: Callable[[Trial], Any], n: int, size: int, **study: Any
) -> Any:
    """A study that asks for `size` trials before it reports the value of any."""
    made = optuna.create_study(sampler=sampler, **study)
    for _ in range(n):
        trials = [made.ask() for _ in range(size)]
        values = [objective(trial) for trial in trials]
        for trial, value in zip(trials, values, strict=True):
            made.tell(trial, value)
    return made


def parameters(study: Any) -> list[dict[str, Any]]:
    return [trial.params for trial in study.trials]


def test_optimum_is_found() -> None:
    study = batches(GpSampler(seed=1), quadratic, 25, 1)
    assert study.best_value < 1e-3


def finished(
    points: dict[float, float], se: float, sure: float = math.nan, **attributes: Any
) -> Any:
    """A study of finished trials: x → value; the one at `sure` has a hundredth of the error."""
    study = optuna.create_study()
    for x, value in points.items():
        study.add_trial(
            optuna.create_trial(
                params={"x": x},
                distributions={"x": optuna.distributions.FloatDistribution(0.0, 1.0)},
                value=value,
                user_attrs={"objective_se": [se / 100 if x == sure else se], **attributes},
            )
        )
    return study


VALLEY = {i / 40: (i / 40 - 0.3) ** 2 for i in range(41)}


def test_recommended_is_not_the_luckiest() -> None:
    points = VALLEY | {0.7: -0.05}  # by chance lower than all others
    study = finished(points, se=0.1)
    assert study.best_params["x"] == 0.7
    assert GpSampler(seed=0).recommend(study).params["x"] == pytest.approx(0.3, abs=0.1)


def test_error_of_few_runs_is_not_taken_at_its_word() -> None:
    points = VALLEY | {0.7: -0.05}  # by chance low, and its runs by chance alike

    def recommended(**attributes: Any) -> float:
        study = finished(points, se=0.1, sure=0.7, **attributes)
        return float(GpSampler(seed=0).recommend(study).params["x"])

    assert recommended() == 0.7
    assert recommended(num_runs=3) == pytest.approx(0.3, abs=0.1)
    assert recommended(num_runs=10_000) == 0.7


def test_a_single_run_is_as_noisy_as_the_runs_of_others() -> None:
    study = finished(VALLEY, se=0.1, num_runs=4)
    for trial in finished({0.7: -0.05}, se=math.nan, num_runs=1).trials:
        study.add_trial(trial)
    assert GpSampler(seed=0).recommend(study).params["x"] == pytest.approx(0.3, abs=0.1)


def noisy_quadratic(trial: Trial) -> float:
    return quadratic(trial, np.random.default_rng(trial.number))


def test_how_bad_a_disaster_is_does_not_matter() -> None:
    """Beyond a cliff everything is bad; the search looks elsewhere whatever the depth."""

    def beside_a_cliff(depth: float) -> Callable[[optuna.Trial], float]:
        def value(trial: optuna.Trial) -> float:
            x = trial.suggest_float("x", 0, 1)
            return depth if x > 0.7 else (x - 0.4) ** 2

        return value

    proposed = []
    for depth in (100.0, 1e6):
        study = optuna.create_study(sampler=GpSampler(seed=3))
        study.optimize(beside_a_cliff(depth), n_trials=20)
        proposed.append([trial.params["x"] for trial in study.trials])
    assert proposed[0] == proposed[1]
    late = np.array(proposed[0][10:])
    assert (late < 0.7).mean() >= 0.9
    assert np.abs(late - 0.4).min() < 0.01


def test_batches_are_distinct_and_reproducible_bit_for_bit() -> None:
    first = batches(GpSampler(seed=4), noisy_quadratic, 4, 6)
    second = batches(GpSampler(seed=4), noisy_quadratic, 4, 6)
    assert parameters(first) == parameters(second)
    assert parameters(first) != parameters(batches(GpSampler(seed=5), noisy_quadratic, 4, 6))
    points = np.array(
        [[params["x"] / 4, math.log10(params["y"]) / 4] for params in parameters(first)]
    )
    for batch in points.reshape(4, 6, 2):
        apart = np.linalg.norm(batch[:, None] - batch[None], axis=2)[~np.eye(6, dtype=bool)]
        assert apart.min() > 1e-4


def test_order_of_reports_within_a_batch_changes_nothing() -> None:
    studies = []
    for backwards in (False, True):
        study = optuna.create_study(sampler=GpSampler(seed=4))
        for _ in range(4):
            trials = [study.ask() for _ in range(5)]
            outcomes = [(trial, quadratic(trial)) for trial in trials]
            for trial, value in reversed(outcomes) if backwards else outcomes:
                study.tell(trial, value)
        studies.append(study)
    assert parameters(studies[0]) == parameters(studies[1])


def test_start_is_spread_over_the_space() -> None:
    study = batches(GpSampler(seed=2, n_startup_trials=8), quadratic, 1, 8)
    cells = sorted(int((params["x"] + 1) / 4 * 8) for params in parameters(study))
    assert cells == list(range(8))  # one of eight Sobol points in each eighth


def test_every_kind_of_parameter_stays_in_its_range() -> None:
    def objective(trial: Trial) -> float:
        kind = trial.suggest_categorical("kind", ["a", "b", None])
        few = trial.suggest_int("few", 2, 8, step=3)
        many = trial.suggest_int("many", 1, 5000, log=True)
        half = trial.suggest_float("half", 0.0, 2.0, step=0.5)
        trial.suggest_float("only", 1.0, 1.0)
        return abs(math.log(many / 300)) + (kind != "b") + abs(few - 5) / 3 + abs(half - 1.5)

    study = batches(GpSampler(seed=3), objective, 40, 1)
    for params in parameters(study):
        assert params["few"] in (2, 5, 8)
        assert type(params["few"]) is type(params["many"]) is int
        assert 1 <= params["many"] <= 5000
        assert params["half"] in (0.0, 0.5, 1.0, 1.5, 2.0)
        assert params["only"] == 1.0
    best = study.best_params
    assert (best["kind"], best["few"], best["half"]) == ("b", 5, 1.5)
    assert abs(math.log(best["many"] / 300)) < 0.2


def test_small_discrete_space_is_exhausted() -> None:
    def objective(trial: Trial) -> float:
        return float(trial.suggest_int("i", 0, 11) * (-1) ** trial.suggest_int("j", 0, 1))

    study = batches(GpSampler(seed=0, n_startup_trials=4), objective, 24, 1)
    # The start may repeat points; from then on none comes twice.
    proposed = [tuple(params.values()) for params in parameters(study)[4:]]
    assert len(set(proposed)) >= 20


def test_conditional_parameters_are_searched_where_they_apply() -> None:
    def objective(trial: Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        if trial.suggest_categorical("kind", ["plain", "deep"]) == "plain":
            return (x - 0.2) ** 2 + 0.1
        depth = trial.suggest_float("depth", 0.0, 1.0)
        loss = (x - 0.2) ** 2 + (depth - 0.7) ** 2
        if trial.suggest_categorical("way", ["slow", "fast", "none"]) == "fast":
            return loss + (trial.suggest_int("speed", 1, 9) - 4) ** 2 / 100
        return loss + 0.2

    study = batches(GpSampler(seed=3), objective, 20, 2)
    for params in parameters(study):
        assert ("depth" in params) == ("way" in params) == (params["kind"] == "deep")
        assert ("speed" in params) == (params.get("way") == "fast")
    best = study.best_params
    assert (best["kind"], best["way"], best["speed"]) == ("deep", "fast", 4)
    assert best["x"] == pytest.approx(0.2, abs=0.03)
    assert best["depth"] == pytest.approx(0.7, abs=0.03)


def test_conditions_follow_from_the_trials() -> None:
    numbers = FloatDistribution(0.0, 1.0)
    kinds = CategoricalDistribution(["a", "b", "c"])

    def space_of(*trials: dict[str, Any]) -> Space:
        return Space.of(
            [
                optuna.trial.create_trial(
                    params=params,
                    distributions={
                        name: kinds if isinstance(value, str) else numbers
                        for name, value in params.items()
                    },
                    value=0.0,
                )
                for params in trials
            ]
        )

    space = space_of({"k": "a", "x": 0.1}, {"k": "b"}, {"k": "c", "x": 0.4, "z": 0.2})
    assert list(space.distributions) == ["k", "x", "z"]
    assert space.common == {"k"}
    assert {name: set(condition.choices) for name, condition in space.conditions.items()} == {
        "x": {"a", "c"},
        "z": {"c"},
    }
    assert space.decode(space.encode({"k": "a", "x": 0.25})) == {"k": "a", "x": 0.25}
    assert space.decode(np.array([1.0, 0.3, 0.3])) == {"k": "b"}
    # The same choice with and without a parameter: it is none that the choice decides.
    assert list(space_of({"k": "a", "x": 0.1}, {"k": "a"}).distributions) == ["k"]
    for points, allowed in space.branches(np.array([[0.0, 0.3, 0.5], [1.0, 0.5, 0.5]])):
        (kind,) = allowed[0]
        assert points[:, 0].tolist() == [kind]
        assert allowed[1] == (() if kind == 0 else (0.5,))
        assert allowed[2] == (0.5,)


def test_an_optimum_at_the_ends_of_the_ranges_is_found_under_noise() -> None:
    losses = []
    for seed in range(5):
        rng = np.random.default_rng(seed)

        def objective(trial: Trial, rng: np.random.Generator = rng) -> float:
            point = [trial.suggest_float(f"x{i}", 0.0, 1.0) for i in range(4)]
            trial.set_user_attr("objective_se", [0.2])
            return sum(abs(at - i % 2) for i, at in enumerate(point)) + 0.2 * float(rng.normal())

        sampler = GpSampler(seed=seed)
        study = batches(sampler, objective, 30, 1)
        found = sampler.recommend(study).params.values()
        losses.append(sum(abs(at - i % 2) for i, at in enumerate(found)))
    assert float(np.median(losses)) < 0.25


def test_many_trials_are_represented_by_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gp, "_MOST_TRIALS", 40)
    monkeypatch.setattr(gp, "_MORE_TRIALS", 10)
    rng = np.random.default_rng(1)

    def objective(trial: Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        trial.set_user_attr("objective_se", [0.3])
        trial.set_user_attr("constraints", [0.5 - x])
        return (x - 0.3) ** 2 + 0.3 * float(rng.normal())

    sampler = GpSampler(seed=2)
    study = batches(sampler, objective, 60, 2)
    model = sampler._model_of(study)
    numbers = [trial.number for trial in model.data.trials]
    assert 40 <= len(numbers) <= 50
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 119  # the last trials always count
    assert sampler.recommend(study).params["x"] == pytest.approx(0.5, abs=0.1)
    # Without a model to begin with, too.
    assert GpSampler(seed=2).recommend(study).params["x"] == pytest.approx(0.5, abs=0.1)


def test_constraint_is_kept() -> None:
    def objective(trial: Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        y = trial.suggest_float("y", 0.0, 1.0)
        trial.set_user_attr("constraints", [0.9 - x - y])
        trial.set_user_attr("constraints_se", [0.01])
        trial.set_user_attr("objective_se", [0.01])
        return x + 2 * y

    sampler = GpSampler(seed=6)
    study = batches(sampler, objective, 10, 3)
    recommended = sampler.recommend(study)
    assert recommended.user_attrs["constraints"][0] <= 0.02
    assert recommended.value == pytest.approx(0.9, abs=0.1)  # x = 0.9, y = 0
    assert study.best_value < 0.5  # without the constraint it would be another


def test_impossible_constraint_leads_to_the_nearest() -> None:
    def objective(trial: Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        trial.set_user_attr("constraints", [2.0 - x])
        return x

    sampler = GpSampler(seed=6)
    study = batches(sampler, objective, 20, 1)
    assert sampler.recommend(study).params["x"] > 0.95


def test_maximisation_is_minimisation_of_the_negative() -> None:
    low = batches(GpSampler(seed=7), quadratic, 5, 4)
    high = batches(GpSampler(seed=7), lambda trial: -quadratic(trial), 5, 4, direction="maximize")
    assert parameters(low) == parameters(high)


def test_several_objectives_spread_along_the_front() -> None:
    def objective(trial: Trial) -> tuple[float, float]:
        x = trial.suggest_float("x", -1.0, 2.0)
        y = trial.suggest_float("y", -1.0, 2.0)
        return x**2 + y**2, (x - 1) ** 2 + y**2

    sampler = GpSampler(seed=8)
    study = batches(sampler, objective, 15, 3, directions=["minimize", "minimize"])
    front = np.array([trial.values for trial in study.best_trials])
    # On the front the roots of both add up to 1.
    assert np.quantile(np.sqrt(front).sum(axis=1), 0.5) < 1.1
    assert front[:, 0].min() < 0.1
    assert front[:, 1].min() < 0.1
    with pytest.raises(ValueError, match="several objectives"):
        sampler.recommend(study)


def test_failed_trials_are_left_out() -> None:
    def objective(trial: Trial) -> float | None:
        return quadratic(trial) if trial.number % 3 else None

    sampler = GpSampler(seed=9)
    study = optuna.create_study(sampler=sampler)
    for _ in range(30):
        trial = study.ask()
        value = objective(trial)
        if value is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, value)
    assert sampler.recommend(study).value == pytest.approx(0.0, abs=0.05)


def test_misuse_of_the_sampler_is_refused() -> None:
    with pytest.raises(ValueError, match="n_startup_trials = 1: must be >= 2"):
        GpSampler(n_startup_trials=1)
    with pytest.raises(ValueError, match="n_candidates"):
        GpSampler(n_candidates=1)
    with pytest.raises(ValueError, match="seed"):
        GpSampler(seed=-1)
    with pytest.raises(ValueError, match="two finished trials"):
        GpSampler(seed=1).recommend(optuna.create_study())

    def wrong(trial: Trial) -> float:
        trial.set_user_attr("objective_se", [0.1, 0.2])
        return trial.suggest_float("x", 0.0, 1.0)

    with pytest.raises(ValueError, match=r"objective_se.*2 entries, not 1"):
        batches(GpSampler(seed=1, n_startup_trials=2), wrong, 4, 1)


# Regret: Branin with noise of a tenth of its range


def branin(u: np.ndarray) -> float:
    x, y = 15 * u[0] - 5, 15 * u[1]
    bowl = (y - 5.1 * x * x / (4 * math.pi**2) + 5 * x / math.pi - 6) ** 2
    return float(bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


def regrets(sampler: Callable[[int], Any], trials: int) -> Iterator[float]:
    for seed in range(8):
        rng = np.random.default_rng([seed, 77])
        made = sampler(seed)
        study = optuna.create_study(sampler=made)
        for _ in range(trials):
            trial = study.ask()
            point = np.array([trial.suggest_float(name, 0.0, 1.0) for name in "uv"])
            trial.set_user_attr("objective_se", [30.8])
            study.tell(trial, branin(point) + 30.8 * rng.normal())
        best = made.recommend(study) if isinstance(made, GpSampler) else study.best_trial
        yield branin(np.array([best.params[name] for name in "uv"])) - 0.397887


def test_noisy_branin_is_solved_better_than_by_chance() -> None:
    ours = list(regrets(lambda seed: GpSampler(seed=seed), 30))
    chance = list(regrets(lambda seed: optuna.samplers.RandomSampler(seed=seed), 30))
    assert np.median(ours) < 12
    assert np.median(ours) < np.median(chance)
