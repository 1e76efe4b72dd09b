"""Figures: what is drawn, and how it is labelled."""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

mpl.use("Agg")

import spillway
from spillway import gateway, workload
from spillway.report import plots


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def simulation():
    """Two tenants, the one with a target, behind a bucket that rejects about a third."""
    return spillway.Simulation(
        workload=workload.Synthetic(
            requests_per_s=20,
            num_requests=300,
            clients=(
                workload.Client(name="a", tenant="gold", slo_class="critical"),
                workload.Client(
                    name="b",
                    tenant="bronze",
                    slo_class="batch",
                    input_tokens=workload.Fixed(tokens=2000),
                ),
            ),
        ),
        slo_classes=(
            workload.SloClass(name="critical", target_ttft_s=0.05),
            workload.SloClass(name="batch", priority=-1),
        ),
        gateway={"admission": gateway.TokenBucket(refill_tokens_per_s=15_000)},
    )


@pytest.fixture(scope="module")
def result(simulation):
    result = spillway.simulate(simulation)
    assert 0 < result.summary()["rejected"] < 300
    return result


def legend_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def labelled(axes, prefix):
    return next(line for line in axes.get_lines() if line.get_label().startswith(prefix))


# --- distributions of latencies -----------------------------------------------------------------


def test_cdf_has_a_line_per_class_and_per_target(result):
    axes = result.plot.latency_cdf()
    assert axes.get_xlabel() == "time to first token (s)"
    assert axes.get_ylabel() == "share of measured requests"
    figures = result.by_class()
    assert legend_of(axes) == [
        f"critical: {figures['critical']['num_ttft']} of {figures['critical']['offered']}",
        f"batch: {figures['batch']['num_ttft']} of {figures['batch']['offered']}",
        "target of critical: 0.05 s",
    ]
    assert list(labelled(axes, "target of critical").get_xdata()) == [0.05, 0.05]


def test_cdf_values(result):
    line = labelled(result.plot.latency_cdf("e2e_s", by="tenant"), "gold")
    requests = result.requests
    values = np.sort(
        requests["e2e_s"][(requests["tenant"] == "gold") & ~np.isnan(requests["e2e_s"])]
    )
    x, y = line.get_data()
    assert (y[0], y[-1]) == (0, 1)
    for share in (0.1, 0.5, 0.99):
        value = values[int(share * len(values))]
        drawn = y[np.searchsorted(x, value, side="right") - 1]
        assert drawn == pytest.approx((values <= value).mean(), abs=1e-12)


def test_cdf_of_offered_requests_reads_as_goodput_at_the_target(result):
    axes = result.plot.latency_cdf(population="offered")
    assert axes.get_ylabel() == "share of offered requests"
    figures = result.by_class()["critical"]
    x, y = labelled(axes, "critical").get_data()
    assert y[-1] == pytest.approx(figures["num_ttft"] / figures["offered"])
    assert y[np.searchsorted(x, 0.05, side="right") - 1] == pytest.approx(figures["goodput"])
    # The lines end together, so that each of them can be read at every target.
    assert len({line.get_xdata()[-1] for line in axes.get_lines()[:2]}) == 1


def test_cdf_leaves_the_warm_up_out(simulation):
    result = spillway.simulate(simulation.replace(warm_up_s=5))
    figures = result.by_tenant()["gold"]
    assert figures["offered"] < (result.requests["tenant"] == "gold").sum()
    assert legend_of(result.plot.latency_cdf(by="tenant"))[0] == (
        f"gold: {figures['num_ttft']} of {figures['offered']}"
    )


def test_cdf_pools_seeds(simulation):
    results = spillway.simulate(simulation, seeds=range(3))
    axes = plots.latency_cdf(results, by="tenant")
    figures = [one.by_tenant()["gold"] for one in results]
    measured = sum(one["num_ttft"] for one in figures)
    assert legend_of(axes)[0] == f"gold: {measured} of {sum(one['offered'] for one in figures)}"


def test_cdf_of_nothing(result):
    simulation = result.simulation.with_({"gateway.admission": "reject_all"})
    axes = spillway.simulate(simulation).plot.latency_cdf(population="offered", log=True)
    assert legend_of(axes)[0].startswith("critical: 0 of ")
    assert not labelled(axes, "critical").get_ydata().any()
    plots.latency_cdf(spillway.simulate(simulation), by="tenant").figure.canvas.draw()


def test_logarithmic_axis_has_plain_numbers(result):
    axes = result.plot.latency_cdf(log=True)
    axes.figure.canvas.draw()
    assert axes.get_xscale() == "log"
    assert "0.05" in [label.get_text() for label in axes.get_xticklabels()]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("metric", plots.METRICS)
def test_every_metric_is_a_column_with_a_unit(result, metric, log):
    axes = result.plot.latency_cdf(metric, log=log)
    assert axes.get_xlabel().endswith(" (s)")
    axes.figure.canvas.draw()


def test_nothing_to_draw(simulation):
    result = spillway.simulate(simulation.replace(warm_up_s=1000))
    for draw in (
        result.plot.latency_cdf,
        result.plot.outcomes_over_time,
        result.plot.admission_by_length,
    ):
        with pytest.raises(ValueError, match="no request arrives after the warm-up"):
            draw()
    result = spillway.simulate(simulation.replace(horizon_s=1e-9))
    assert legend_of(result.plot.admitted_tokens())[0] == "offered: 0 requests"


def test_cdf_refuses_unknown_words(result):
    with pytest.raises(ValueError, match="metric = 'ttft': must be one of ttft_s, e2e_s"):
        result.plot.latency_cdf("ttft")
    with pytest.raises(ValueError, match="by = 'instance': must be slo_class or tenant"):
        result.plot.latency_cdf(by="instance")
    with pytest.raises(ValueError, match="population = 'all': must be measured or offered"):
        result.plot.latency_cdf(population="all")
    assert plt.get_fignums() == []


def test_figures_can_share_given_axes(result):
    _, (left, right) = plt.subplots(1, 2)
    assert result.plot.latency_cdf(ax=left) is left
    assert result.plot.admitted_tokens(ax=right) is right
    assert len(plt.get_fignums()) == 1


# --- outcomes over time -------------------------------------------------------------------------


def test_outcomes_over_time_add_up(result):
    edges = [0, 5, 10, 20]
    figure = result.plot.outcomes_over_time(bins=edges)
    requests = result.requests
    assert [axes.get_title(loc="left").split(" ")[0] for axes in figure.axes] == ["gold", "bronze"]
    for axes, tenant in zip(figure.axes, ("gold", "bronze"), strict=True):
        assert axes.get_ylabel() == "requests/s"
        areas = {area.get_label(): area.get_data() for area in axes.patches}
        assert list(areas) == ["completed", "rejected", "offered"]
        for label in ("completed", "rejected"):
            mine = (requests["tenant"] == tenant) & (requests["outcome"] == label)
            expected = np.histogram(requests["arrival_s"][mine], edges)[0] / np.diff(edges)
            assert areas[label].values - areas[label].baseline == pytest.approx(expected)
        assert areas["rejected"].values == pytest.approx(areas["offered"].values)
        population = f"({(requests['tenant'] == tenant).sum()} requests)"
        assert axes.get_title(loc="left").endswith(population)
    assert figure.axes[-1].get_xlabel() == "time of arrival (s)"
    assert legend_of(figure.axes[0]) == ["completed", "rejected", "offered"]


def test_outcomes_over_time_are_averaged_over_seeds(simulation):
    results = spillway.simulate(simulation, seeds=range(2))
    axes = plots.outcomes_over_time(results, by="slo_class", bins=[0, 4]).axes[0]
    offered = next(area for area in axes.patches if area.get_label() == "offered").get_data()
    arrived = [
        ((one.requests["slo_class"] == "critical") & (one.requests["arrival_s"] < 4)).sum()
        for one in results
    ]
    assert offered.values == pytest.approx([np.mean(arrived) / 4])
    assert axes.get_title(loc="left").endswith("requests, 2 seeds)")


def test_outcomes_over_time_show_what_has_not_ended(simulation):
    cut = simulation.replace(horizon_s=6, warm_up_s=2)
    figure = spillway.simulate(cut).plot.outcomes_over_time(figure=plt.figure())
    assert legend_of(figure.axes[0]) == [
        "completed",
        "unfinished",
        "rejected",
        "offered",
        "end of warm-up",
    ]


def test_outcomes_of_one_instant():
    trace = spillway.trace(arrival_s=[0, 0], input_tokens=[1, 1], output_tokens=[1, 1])
    figure = spillway.simulate(spillway.Simulation(workload=trace)).plot.outcomes_over_time()
    assert figure.axes[0].get_xlim() == (0, 1)


@pytest.mark.parametrize("bins", [0, [1], [2, 1], [[0, 1]]])
def test_bins_must_be_intervals(result, bins):
    with pytest.raises(ValueError, match="must be >= 1 or at least two ascending edges"):
        result.plot.outcomes_over_time(bins=bins)


# --- what a token bucket lets in ----------------------------------------------------------------


def test_admitted_tokens_stay_below_the_bound(result):
    axes = result.plot.admitted_tokens()
    assert axes.get_xlabel() == "time of arrival (s)"
    assert axes.get_ylabel() == "prompt tokens, accumulated"
    requests = result.requests
    completed = requests["outcome"] == "completed"
    admitted = labelled(axes, "admitted")
    assert admitted.get_label() == f"admitted: {completed.sum()} requests"
    assert admitted.get_ydata()[-1] == requests["input_tokens"][completed].sum()
    assert labelled(axes, "offered").get_ydata()[-1] == requests["input_tokens"].sum()
    bound = labelled(axes, "at most")
    assert bound.get_label() == "at most: 10,000 + 15,000/s · time"
    times, tokens = admitted.get_data()
    assert (tokens <= np.interp(times, *bound.get_data()) + 1e-6).all()


def test_bound_of_a_given_bucket(result):
    bucket = gateway.TokenBucket(capacity_tokens=5, refill_tokens_per_s=7)
    assert labelled(result.plot.admitted_tokens(bucket), "at most").get_ydata()[0] == 5


def test_no_bound_without_a_bucket(simulation):
    open_gateway = simulation.with_({"gateway.admission": "always_admit"})
    axes = spillway.simulate(open_gateway).plot.admitted_tokens()
    assert len(axes.get_lines()) == 2


def test_admitted_is_not_what_a_worker_took(simulation):
    narrow = simulation.with_({"instances[0].max_model_len": 1000})
    result = spillway.simulate(narrow)
    assert result.ledger["worker_rejected"]
    axes = result.plot.admitted_tokens()
    assert (
        labelled(axes, "admitted").get_label() == f"admitted: {result.ledger['admitted']} requests"
    )


def test_undecided_requests_are_not_admitted(simulation):
    slow = simulation.with_({"gateway.admission_latency_s": 1, "horizon_s": 5})
    result = spillway.simulate(slow)
    assert result.ledger["at_admission"]
    axes = result.plot.admitted_tokens()
    assert (
        labelled(axes, "admitted").get_label() == f"admitted: {result.ledger['admitted']} requests"
    )


def test_admission_by_length(result):
    axes = result.plot.admission_by_length()
    line = axes.get_lines()[0]
    requests = result.requests
    assert list(line.get_xdata()) == [512, 2000]
    for length, share in zip(*line.get_data(), strict=True):
        outcomes = requests["outcome"][requests["input_tokens"] == length]
        assert share == pytest.approx((outcomes == "completed").mean())
    assert axes.get_xlabel() == "length of the prompt (tokens)"
    assert axes.get_ylabel() == "share admitted"
    assert legend_of(axes) == ["300 requests"]


def test_admission_by_length_in_groups(simulation):
    lengths = workload.Lognormal(mu=6, sigma=1)
    results = spillway.simulate(
        simulation.with_({"workload.clients[0].input_tokens": lengths}), seeds=range(2)
    )
    axes = plots.admission_by_length(results, bins=8, label="before")
    plots.admission_by_length(results[0], bins=8, label="after", ax=axes)
    first, second = axes.get_lines()
    assert len(first.get_xdata()) <= 8
    assert (np.diff(first.get_xdata()) > 0).all()
    assert legend_of(axes) == ["before: 600 requests", "after: 300 requests"]
    assert first.get_linestyle() != second.get_linestyle()


# --- the extra ----------------------------------------------------------------------------------


def test_missing_matplotlib_names_the_extra(result, monkeypatch):
    for module in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'spillway-sim\[plot\]'"):
        result.plot.latency_cdf()
    with pytest.raises(ImportError, match=r"pip install 'spillway-sim\[plot\]'"):
        result.plot.outcomes_over_time()


def test_drawing_shows_nothing(result, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda: pytest.fail("show was called"))
    result.plot.latency_cdf()
    result.plot.outcomes_over_time()
    result.plot.admitted_tokens()
    result.plot.admission_by_length()
