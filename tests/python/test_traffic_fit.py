"""Generators fitted to traces: parameters found again, and differences that are reported."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import integrate, linalg, stats
from support.paths import ROOT, SHARED

import spillway
from spillway import ConfigError, UsageError, cli, traffic, workload
from spillway.traffic import laws, processes

if TYPE_CHECKING:
    from pathlib import Path

LENGTHS: dict[str, Any] = {
    "input_tokens": workload.Lognormal(mu=6, sigma=1.1),
    "output_tokens": workload.Exponential(mean_tokens=150),
    "length_correlation": 0.4,
}


def trace_of(arrivals: Any, n: int = 6000, seed: int = 1, **client: Any) -> workload.Trace:
    """Requests at 10/s on average."""
    made = workload.Client(**{"arrivals": arrivals, **LENGTHS, **client})
    synthetic = workload.Synthetic(num_requests=n, requests_per_s=10, clients=[made])
    return traffic.generated(synthetic, seed)


def lengths(n: int) -> dict[str, Any]:
    return {"input_tokens": np.full(n, 100), "output_tokens": np.full(n, 9)}


def mmpp(*states: tuple[float, float]) -> workload.Mmpp:
    return workload.Mmpp(
        states=[workload.MmppState(rate_factor=factor, mean_s=mean_s) for factor, mean_s in states]
    )


@pytest.fixture(scope="module")
def poisson() -> traffic.Fit:
    return traffic.fit(trace_of(workload.Poisson(), seed=3))


@pytest.mark.slow
def test_a_poisson_trace_is_not_bursty(poisson: traffic.Fit) -> None:
    (fitted,) = poisson.clients
    assert fitted.client.arrivals == workload.Poisson()
    assert fitted.client.rate_profile == ()
    assert fitted.client.requests_per_s == pytest.approx(10, rel=4 / np.sqrt(6000))
    assert [check.name for check in poisson.checks if check.is_bad] == []
    assert "DIFFERS" not in poisson.text()


@pytest.mark.slow
def test_lengths_are_found_again(poisson: traffic.Fit) -> None:
    client = poisson.clients[0].client
    assert client.input_tokens.kind == "lognormal"
    assert client.input_tokens.mu == pytest.approx(6, abs=4 * 1.1 / np.sqrt(6000))
    assert client.input_tokens.sigma == pytest.approx(1.1, abs=4 * 1.1 / np.sqrt(12_000))
    assert client.output_tokens.kind == "exponential"
    assert client.output_tokens.mean_tokens == pytest.approx(150, rel=4 / np.sqrt(6000))
    assert client.length_correlation == pytest.approx(0.4, abs=4 / np.sqrt(6000))


@pytest.mark.slow
def test_a_true_generator_rarely_differs() -> None:
    """At most one fit in 20 has a bad check; more than 4 of 20 would be a case in 300."""
    fits = [
        traffic.fit(trace_of(workload.Poisson(), 400, seed), arrivals=["poisson"], seed=1000 * seed)
        for seed in range(20)
    ]
    assert sum(any(check.is_bad for check in fit.checks) for fit in fits) <= 4
    # The tests are exact for a known generator; with a fitted one they are lenient.
    p_values = [check.p_value for fit in fits for check in fit.checks]
    assert np.mean(p_values) > 0.45


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_processes_are_found_again(seed: int) -> None:
    def arrivals(truth: Any) -> Any:
        times = trace_of(truth, seed=seed)._columns()["arrival_ns"] / 1e9
        best = processes.candidates(times, times[-1] + 0.1, tuple(processes.PROCESSES))[0]
        assert best.profile.points == ()
        return best.arrivals

    assert arrivals(workload.Gamma(cv=2)).cv == pytest.approx(2, rel=0.05)
    hawkes = arrivals(workload.Hawkes(branching_ratio=0.6, decay_s=0.5))
    assert hawkes.branching_ratio == pytest.approx(0.6, abs=0.1)
    assert hawkes.decay_s == pytest.approx(0.5, rel=0.3)
    quiet, busy = arrivals(mmpp((1, 10), (5, 4))).states
    assert busy.rate_factor / quiet.rate_factor == pytest.approx(5, rel=0.15)
    assert quiet.mean_s == pytest.approx(10, rel=0.4)
    assert busy.mean_s == pytest.approx(4, rel=0.4)
    off, on = arrivals(mmpp((0, 3), (1, 1))).states
    assert off.rate_factor < 0.02 * on.rate_factor
    assert (off.mean_s, on.mean_s) == pytest.approx((3, 1), rel=0.4)


@pytest.mark.slow
def test_a_rate_over_time_is_found_besides_a_process() -> None:
    profile = [workload.RatePoint(at_s=0, factor=0.2), workload.RatePoint(at_s=600, factor=2)]
    truth = workload.Hawkes(branching_ratio=0.5, decay_s=0.3)
    times = trace_of(truth, rate_profile=profile)._columns()["arrival_ns"] / 1e9
    best = processes.candidates(times, times[-1] + 0.1, tuple(processes.PROCESSES))[0]
    assert best.name == "hawkes"
    assert best.arrivals.branching_ratio == pytest.approx(0.5, abs=0.1)
    at = np.linspace(50, 550, 6)
    expected = np.interp(at, [0, 600], [0.2, 2])
    rate = len(times) / times[-1] * best.profile.factor(at)
    assert rate == pytest.approx(10 * expected, rel=0.3)


def test_likelihoods_are_those_of_the_definition() -> None:
    """MMPP by matrix exponentials, Hawkes by an integral of its intensity."""
    gaps = np.random.default_rng(3).exponential(1, 7)
    q = np.array([[-0.4, 0.4], [1.5, -1.5]])
    rates = np.diag([0.3, 5.0])
    state = np.array([1.5, 0.4]) @ rates
    state /= state.sum()
    for gap in gaps:
        state = state @ linalg.expm((q - rates) * gap) @ rates
    likelihood = processes._mmpp_likelihood(gaps, 0.4, 1.5, 0.3, 5.0)
    assert likelihood == pytest.approx(np.log(state.sum()), rel=1e-9)

    arrivals = np.append(0, np.cumsum(gaps))

    def intensity(t: float) -> float:
        past = arrivals[arrivals < t]
        excess = 0.6 * np.exp(-t / 0.8) + (0.6 / 0.8 * np.exp(-(t - past) / 0.8)).sum()
        return float(0.4 + excess)

    area = sum(integrate.quad(intensity, a, b)[0] for a, b in pairwise(arrivals))
    expected = np.log([intensity(t) for t in arrivals[1:]]).sum() - area
    assert -processes._hawkes_cost(gaps, 0.6, 0.8) == pytest.approx(expected, rel=1e-7)


def test_a_profiles_clock_is_the_integral_of_its_factor() -> None:
    points = tuple(workload.RatePoint(at_s=a, factor=f) for a, f in [(10, 0.5), (40, 2), (70, 1)])
    times = np.linspace(0, 350, 50)
    for period_s in (None, 100.0):
        profile = processes.Profile(points, period_s)
        grid = np.linspace(0, 350, 350_001)
        area = integrate.cumulative_trapezoid(profile.factor(grid), grid, initial=0)
        assert profile.clock(times) == pytest.approx(np.interp(times, grid, area), rel=1e-6)


@pytest.mark.parametrize(
    "law",
    [
        workload.Lognormal(mu=5, sigma=0.7),
        workload.Gaussian(mean_tokens=500, std_dev_tokens=90, max_tokens=2000),
        workload.Exponential(mean_tokens=300),
        workload.Pareto(alpha=1.2, min_tokens=50, max_tokens=50_000),
        workload.Uniform(min_tokens=10, max_tokens=700),
    ],
    ids=lambda law: law.kind,
)
def test_a_law_is_recognized(law: Any) -> None:
    lengths = trace_of(workload.Poisson(), input_tokens=law)._columns()["input_tokens"]
    fitted = laws.fitted(lengths.astype(np.int64))
    assert fitted.kind == law.kind
    assert fitted.ks < 4 * 0.5 / np.sqrt(6000)
    assert fitted.lengths.kind == law.kind
    for name in ("mu", "sigma", "mean_tokens", "std_dev_tokens", "alpha"):
        if hasattr(law, name):
            assert getattr(fitted.lengths, name) == pytest.approx(getattr(law, name), rel=0.06)


def test_lengths_of_no_law_are_drawn_from_the_trace() -> None:
    rng = np.random.default_rng(0)
    lengths = np.where(rng.random(5000) < 0.5, rng.integers(20, 40, 5000), 3000)
    fitted = laws.fitted(lengths)
    assert fitted.ks > 0.05
    assert fitted.lengths.kind == "empirical"
    generated = trace_of(workload.Poisson(), input_tokens=fitted.lengths)._columns()
    assert stats.ks_2samp(lengths, generated["input_tokens"]).pvalue > 1e-4


@pytest.mark.slow
def test_what_a_generator_cannot_do_is_reported() -> None:
    trace = trace_of(mmpp((1, 10), (6, 3)))
    fitted = traffic.fit(trace, arrivals=["poisson"])
    assert fitted.check("dispersion").is_bad
    assert fitted.check("autocorrelation").is_bad
    assert not fitted.check("input_tokens").is_bad
    assert "DIFFERS: index of dispersion in windows of" in fitted.text()
    better = traffic.fit(trace)
    assert better.workload.clients[0].arrivals.kind == "mmpp"
    assert not better.check("dispersion").is_bad
    with pytest.raises(KeyError, match="no statistic 'ttft'"):
        fitted.check("ttft")


@pytest.mark.slow
def test_serial_dependence_of_lengths_is_reported() -> None:
    rng = np.random.default_rng(2)
    walk = np.repeat(rng.normal(6, 1, 500), 4) + rng.normal(0, 0.2, 2000)
    trace = spillway.trace(
        arrival_s=np.cumsum(rng.exponential(0.1, 2000)),
        input_tokens=np.exp(walk).astype(int) + 1,
        output_tokens=rng.integers(1, 90, 2000),
    )
    fitted = traffic.fit(trace)
    assert fitted.check("input_serial").is_bad
    assert not fitted.check("output_serial").is_bad
    assert "rank correlation of successive input lengths 1 requests apart" in fitted.text()


@pytest.mark.slow
def test_tenants_are_fitted_apart() -> None:
    clients = [
        workload.Client(name="a", tenant="a", slo_class="critical", **LENGTHS),
        workload.Client(name="b", tenant="b", rate_fraction=3, arrivals=workload.Gamma(cv=3)),
        workload.Client(name="c", tenant="c", rate_fraction=0.01),
    ]
    synthetic = workload.Synthetic(requests_per_s=40, duration_s=100, clients=clients)
    fitted = traffic.fit(traffic.generated(synthetic))
    by_tenant = {client.client.tenant: client for client in fitted.clients}
    assert by_tenant["a"].client.slo_class == "critical"
    assert by_tenant["a"].client.arrivals.kind == "poisson"
    assert by_tenant["b"].client.arrivals.cv == pytest.approx(3, rel=0.1)
    assert by_tenant["b"].client.input_tokens == workload.Fixed(tokens=512)
    assert by_tenant["c"].bic == {}
    assert sum(client.requests for client in fitted.clients) == pytest.approx(4000, rel=0.1)
    assert fitted.workload.duration_s == pytest.approx(100, rel=0.02)


@pytest.mark.slow
def test_rounded_timestamps_are_spread_and_noted() -> None:
    times = trace_of(workload.Poisson())._columns()["arrival_ns"] / 1e9
    trace = spillway.trace(arrival_s=np.floor(times), **lengths(6000))
    described = traffic.describe(trace)
    assert described.spread_s == 1
    assert described.gap_cv == pytest.approx(1, abs=0.05)
    assert "as if rounded to about 1 s" in described.text()
    fitted = traffic.fit(trace)
    assert fitted.clients[0].client.arrivals.kind == "poisson"
    assert any("as if rounded to" in note for note in fitted.notes)


def test_shared_prompts_are_counted_and_noted() -> None:
    trace = spillway.trace(
        arrival_s=np.arange(200.0), **lengths(200),
        prefix_group=["a", "b"] * 100, prefix_tokens=np.full(200, 50),
    )  # fmt: skip
    described = traffic.describe(trace)
    assert described.reused_share == pytest.approx(198 * 50 / (200 * 100))
    assert described.gap_cv == 0
    assert any("sent before" in note for note in traffic.fit(trace).notes)


def test_a_description_measures_what_it_says() -> None:
    described = traffic.describe(
        trace_of(workload.Hawkes(branching_ratio=0.7, decay_s=0.2), 20_000)
    )
    assert described.requests == 20_000
    assert described.requests_per_s == pytest.approx(10, rel=0.1)
    assert max(described.dispersion.values()) == pytest.approx(1 / 0.3**2, rel=0.35)
    assert described.length_correlation == pytest.approx(0.4, abs=0.03)
    assert described.tenants == {"default": 1}
    assert described.input_tokens[0.5] == pytest.approx(np.exp(6), rel=0.05)


def test_arguments_are_checked() -> None:
    trace = trace_of(workload.Poisson(), 200)
    with pytest.raises(ConfigError, match=r"arrivals\[0\] = 'pareto': must be some of poisson, "):
        traffic.fit(trace, arrivals=["pareto"])
    with pytest.raises(ConfigError, match=r"resamples = 5: must be >= 199"):
        traffic.fit(trace, resamples=5)
    with pytest.raises(UsageError, match="holds 50 requests; a fit takes at least 100"):
        traffic.fit(trace_of(workload.Poisson(), 50))
    at_once = spillway.trace(arrival_s=np.zeros(200), **lengths(200))
    with pytest.raises(UsageError, match="arrive at one instant"):
        traffic.fit(at_once)


@pytest.mark.parametrize("count", [1, 2, 28, 99])
def test_a_few_requests_are_described_without_what_takes_many(count: int) -> None:
    trace = spillway.trace(
        arrival_s=2.0 * np.arange(count),
        input_tokens=np.arange(count) + 1,
        output_tokens=np.full(count, 7),
        tenant=["a"] + ["b"] * (count - 1),
    )
    described = traffic.describe(trace)
    assert (described.gap_cv, described.dispersion, described.length_correlation) == (
        None,
        {},
        None,
    )
    assert described.withheld.endswith("which take at least 100 requests")
    assert described.total_input_tokens == count * (count + 1) / 2
    assert described.total_output_tokens == 7 * count
    assert described.requests_per_s == (None if count == 1 else 0.5)
    assert described.tenants["a"] == 1 / count
    known = {1: {0.5}, 2: {0.5}, 28: {0.05, 0.5, 0.95}, 99: {0.05, 0.5, 0.95}}
    assert set(described.input_tokens) == known[count]
    lines = described.text().splitlines()
    assert lines[0] == f"{count} request{'s' if count > 1 else ''} in {2 * count - 2:.1f} s" + (
        ": 0.5/s" if count > 1 else ""
    )
    assert lines[-1] == f"withheld: {described.withheld}"
    assert "variation" not in described.text()


def test_requests_at_one_instant_have_no_rate() -> None:
    described = traffic.describe(spillway.trace(arrival_s=np.zeros(200), **lengths(200)))
    assert (described.requests, described.requests_per_s, described.gap_cv) == (200, None, None)
    assert "take times that differ" in described.withheld
    assert 0.99 in described.output_tokens


def test_enough_requests_are_described_whole() -> None:
    described = traffic.describe(trace_of(workload.Poisson(), 100))
    assert described.withheld == ""
    assert "withheld" not in described.text()
    assert described.gap_cv is not None


def test_totals_are_those_recorded() -> None:
    output = np.where(np.arange(10) < 3, 0, 50)
    trace = spillway.trace(
        arrival_s=np.arange(10.0), input_tokens=np.full(10, 9), output_tokens=output
    )
    described = traffic.describe(trace)
    assert (described.failed, described.total_output_tokens) == (3, 350)
    assert described.output_tokens[0.5] == 50


@pytest.mark.slow
def test_the_figure_shows_every_statistic_over_a_range(poisson: traffic.Fit) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    figure = poisson.plot()
    assert len(figure.axes) == 6
    for ax in figure.axes:
        assert "reproduced" in ax.get_title(loc="left")
    gaps = figure.axes[0].lines[-1]
    assert gaps.get_xdata() == pytest.approx(poisson.check("gaps_s").trace)


@pytest.mark.slow
def test_azure_code_is_fitted_and_its_bursts_are_reported() -> None:
    path = SHARED / "data" / "traces" / "azure_llm_2023_code.csv"
    if not path.exists():
        pytest.skip(f"no {path.name}: the recorded traces are not part of the repository")
    trace = spillway.read_trace(path)
    assert traffic.describe(trace).gap_cv == pytest.approx(13.15, abs=0.01)
    fitted = traffic.fit(trace)
    (client,) = fitted.workload.clients
    assert client.requests_per_s == pytest.approx(8819 / 3436, rel=0.001)
    assert "poisson" in fitted.clients[0].bic
    assert client.arrivals.kind != "poisson"
    assert fitted.check("dispersion").is_bad
    assert not fitted.check("output_tokens").is_bad
    assert traffic.generated(fitted.workload).rows == pytest.approx(8819, rel=0.2)


@pytest.mark.slow
def test_in_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = ROOT / "examples" / "requests.csv"
    written, figure = tmp_path / "workload.yaml", tmp_path / "fit.png"
    assert cli.main(["traffic", "describe", str(requests)]) == 0
    assert capsys.readouterr().out.startswith("2,000 requests in 31.3 s: 63.82/s\n")
    arguments = ["fit", str(requests), "-o", str(written), "--plot", str(figure), "--seed", "3"]
    assert cli.main(["traffic", *arguments, "--arrivals", "poisson,gamma"]) == 0
    out, err = capsys.readouterr()
    fitted = traffic.fit(spillway.read_trace(requests), arrivals=["poisson", "gamma"], seed=3)
    assert out == f"{fitted.text()}\n"
    first, *others = err.splitlines()
    assert first.startswith(f"spillway: {requests}: 2,000 requests in 31.324 s, ")
    assert others == [f"spillway: wrote {written}", f"spillway: wrote {figure}"]
    assert spillway.load(written).workload == fitted.workload
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert cli.main(["traffic", "fit", str(requests), "--arrivals", "x"]) == 2
    assert "arrivals[0] = 'x': must be some of poisson" in capsys.readouterr().err
