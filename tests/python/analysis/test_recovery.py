"""Whether goodput left its band and recovered, in runs with a known answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.runs import flat, run

from spillway import Result, Simulation, UsageError, instance, simulate, workload
from spillway.analysis.recovery import _at_least
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

TRIGGER_S = (30.0, 40.0)
CLASSES = [
    workload.SloClass(name="met", target_ttft_s=1),
    workload.SloClass(name="missed", target_ttft_s=0.001),
    workload.SloClass(name="unpromised"),
]


def result_of(good: NDArray[np.bool_], arrival_s: NDArray[np.float64]) -> Result:
    """A run in which exactly these requests meet their targets."""
    names = ["met" if is_good else "missed" for is_good in good]
    return run(
        arrival_s, slo_class=names, slo_classes=CLASSES, instances=flat(e2e_s=0.1, ttft_s=0.01)
    )


def chance(
    goodput: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    seed: int,
    *,
    rate: float = 20,
    duration_s: float = 180,
) -> Result:
    """Poisson arrivals, each of which meets its target with a probability that depends on time."""
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1 / rate, int(1.2 * rate * duration_s)))
    arrival_s = arrival_s[arrival_s < duration_s]
    return result_of(rng.random(len(arrival_s)) < goodput(arrival_s), arrival_s)


@pytest.mark.parametrize("level", [0.98, 0.82, 1.0])
@pytest.mark.parametrize("rate", [5, 20])
def test_without_a_trigger_goodput_never_left(level: float, rate: float) -> None:
    runs = [chance(lambda t: np.full(len(t), level), seed, rate=rate) for seed in range(60)]
    recoveries = [result.recovery(*TRIGGER_S) for result in runs]
    assert sum(recovered.left for recovered in recoveries) <= 2
    still = next(recovered for recovered in recoveries if not recovered.left)
    assert still.recovered_after_s == 0
    assert not still.is_metastable
    assert "never left" in str(still)


def test_without_a_trigger_a_queue_never_left_either() -> None:
    """A fleet at a fifth of its capacity that misses 2 % of its targets, late ones in bursts."""
    client = workload.Client(
        requests_per_s=20,
        input_tokens=workload.Fixed(tokens=768),
        output_tokens=workload.Fixed(tokens=32),
    )
    latency = instance.Linear(preset="llama-3.1-8b-h100-tp2")
    simulation = Simulation(
        workload=workload.Synthetic(clients=[client], duration_s=180),
        slo_classes=[workload.SloClass(target_ttft_s=0.05)],
        router="least_loaded",
        instances=BLIS_SERVER.replace(count=2, latency=latency),
    )
    recoveries = [simulate(simulation, seed).recovery(*TRIGGER_S) for seed in range(60)]
    assert np.mean([recovered.before for recovered in recoveries]) == pytest.approx(0.98, abs=0.005)
    assert sum(recovered.left for recovered in recoveries) <= 3


@pytest.mark.parametrize("lasts_s", [0, 7, 60])
@pytest.mark.parametrize("step_s", [1, 5])
def test_end_of_a_collapse_is_found_within_a_step_or_two(lasts_s: float, step_s: float) -> None:
    end_s = TRIGGER_S[1] + lasts_s
    for seed in range(10):
        result = chance(lambda t: np.where((t >= 30) & (t < end_s), 0.1, 0.98), seed)
        recovery = result.recovery(*TRIGGER_S, step_s=step_s)
        assert recovery.left
        assert recovery.recovered_after_s == pytest.approx(lasts_s, abs=2 * step_s)
        assert recovery.during == pytest.approx(0.1, abs=0.1)


@pytest.mark.parametrize("after", [0.0, 0.5, 0.8])
def test_collapse_that_stays_is_metastable(after: float) -> None:
    # A loss to 0.8 is too small to be seen in most single steps.
    for seed in range(10):
        result = chance(lambda t: np.where(t < 30, 0.98, np.where(t < 40, 0, after)), seed)
        recovery = result.recovery(*TRIGGER_S)
        assert recovery.is_metastable
        assert recovery.recovered_after_s is None
        assert recovery.after == pytest.approx(after, abs=0.05)
        assert "never recovered" in str(recovery)


def test_single_burst_long_after_the_trigger_does_not_count() -> None:
    def burst(t: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(((t >= 30) & (t < 45)) | ((t >= 120) & (t < 121)), 0, 1)

    recovery = chance(burst, 0).recovery(*TRIGGER_S)
    assert recovery.recovered_after_s == 5
    again = chance(lambda t: burst(t) * np.where((t >= 121) & (t < 125), 0, 1), 0)
    assert again.recovery(*TRIGGER_S).recovered_after_s == 85


def test_requests_without_targets_do_not_count() -> None:
    arrival_s = np.arange(0, 100, 0.05)
    names = np.where(np.arange(len(arrival_s)) % 2, "unpromised", "met").tolist()
    result = run(arrival_s, slo_class=names, slo_classes=CLASSES, instances=flat(e2e_s=0.1))
    assert result.recovery(*TRIGGER_S).before == 1


def test_requests_under_way_at_the_end_may_yet_be_good() -> None:
    arrival_s = np.arange(0, 100, 0.05)
    slow = {"slo_classes": CLASSES, "instances": flat(e2e_s=20, ttft_s=0.5), "horizon_s": 100}
    recovery = run(arrival_s, slo_class="met", **slow).recovery(*TRIGGER_S)
    assert (recovery.after, recovery.left) == (1, False)
    # Requests that are late already are known to be bad.
    names = ["met" if arrival < 60 else "missed" for arrival in arrival_s]
    late = run(arrival_s, slo_class=names, **slow)
    assert late.recovery(*TRIGGER_S).is_metastable


def test_undecidable_questions_are_refused() -> None:
    steady = chance(np.ones_like, 0)
    with pytest.raises(UsageError, match=r"warm_up_s \(0\) < start_s < end_s"):
        steady.recovery(40, 30)
    with pytest.raises(UsageError, match="at least 20 are needed"):
        steady.recovery(0.1, 40)
    with pytest.raises(UsageError, match=r"no request arrives after end_s \(200\)"):
        steady.recovery(30, 200)
    with pytest.raises(UsageError, match="step_s = 0"):
        steady.recovery(30, 40, step_s=0)
    with pytest.raises(UsageError, match="share = 2"):
        steady.recovery(30, 40, share=2)
    unpromised = run([1, 2, 3], slo_classes=CLASSES, slo_class="unpromised")
    with pytest.raises(UsageError, match="no request is of a class with latency targets"):
        unpromised.recovery(1.5, 2)
    unfinished = run(
        [1, 2, 3], slo_classes=CLASSES, slo_class="met", instances=flat(9, 9), horizon_s=1.9
    )
    with pytest.raises(UsageError, match="were unfinished at the end of the run"):
        unfinished.recovery(1.5, 2)


@pytest.mark.parametrize(
    ("bad", "drawn", "others_bad", "others"),
    [(3, 10, 2, 100), (20, 20, 0, 600), (5, 20, 12, 600), (7, 7, 3, 5), (1, 4, 0, 0)],
)
def test_tail_is_that_of_fishers_test(bad: int, drawn: int, others_bad: int, others: int) -> None:
    from scipy.stats import hypergeom

    expected = hypergeom.sf(bad - 1, drawn + others, bad + others_bad, drawn)
    assert _at_least(bad, drawn, others_bad, others) == pytest.approx(expected, rel=1e-9)
