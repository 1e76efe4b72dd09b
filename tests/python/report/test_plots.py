"""Figures: what is drawn, and how it is labeled."""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

mpl.use("Agg")

import spillway
from spillway import gateway, instance, metrics, signals, workload
from spillway.report import plots
from spillway.report.plots.causes import causes as draw_causes


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def simulation():
    """Two tenants, the one with a target, behind a bucket that rejects about a third."""
    long = workload.Fixed(tokens=2000)
    return spillway.Simulation(
        workload=workload.Synthetic(
            requests_per_s=20,
            num_requests=300,
            clients=(
                workload.Client(name="a", tenant="gold", slo_class="critical"),
                workload.Client(name="b", tenant="bronze", slo_class="batch", input_tokens=long),
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


def labels_of(axes):
    return axes.get_xlabel(), axes.get_ylabel()


def labelled(axes, prefix):
    return next(line for line in axes.get_lines() if line.get_label().startswith(prefix))


# --- causes ---------------------------------------------------------------------------------------


def test_causes_have_a_bar_per_group_and_add_up_to_its_latency(result):
    axes = result.plot.causes()
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names[0] == "all"
    assert names[-1] == "slowest 1%"
    assert {"slo_class critical", "tenant bronze"} <= set(names)
    ends = {
        round(bar.get_y() + bar.get_height() / 2): bar.get_x() + bar.get_width()
        for container in axes.containers
        for bar in container
    }
    mean_s = result.summary()["mean_e2el_ms"] / 1e3
    assert ends[0] == pytest.approx(mean_s, rel=0.02)  # parts that are too thin are left out
    assert "decode" in legend_of(axes)
    assert labels_of(axes)[0] == "mean latency of completed requests (s)"
    assert draw_causes({"all": {"decode": 1.0}}, ax=axes) is axes
    with pytest.raises(ValueError, match="no request completed"):
        draw_causes({"all": {"decode": 0.0}})


# --- distributions of latencies -----------------------------------------------------------------


def test_cdf_has_a_line_per_class_and_per_target(result):
    axes = result.plot.latency_cdf()
    assert labels_of(axes) == ("time to first token (s)", "share of measured requests")
    figures = result.by_class()
    assert legend_of(axes) == [
        f"critical: {figures['critical']['num_ttft']} of {figures['critical']['offered']}",
        f"batch: {figures['batch']['num_ttft']} of {figures['batch']['offered']}",
        "target of critical: 0.05 s",
    ]
    assert list(labelled(axes, "target of critical").get_xdata()) == [0.05, 0.05]


def test_cdf_values(result):
    line = labelled(result.plot.latency_cdf("e2e_s", by="tenant"), "gold")
    e2e_s = result.requests["e2e_s"][result.requests["tenant"] == "gold"]
    values = np.sort(e2e_s[~np.isnan(e2e_s)])
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
    figures = [result.by_tenant()["gold"] for result in results]
    measured = sum(figure["num_ttft"] for figure in figures)
    offered = sum(figure["offered"] for figure in figures)
    assert legend_of(axes)[0] == f"gold: {measured} of {offered}"


def test_cdf_of_systems_has_a_line_each(simulation):
    results = spillway.simulate(simulation, seeds=range(2))
    axes = plots.latency_cdf({"today": results[0], "both": results})
    served = [result.summary()["num_ttft"] for result in results]
    offered = [result.summary()["offered"] for result in results]
    assert legend_of(axes) == [
        f"today: {served[0]} of {offered[0]}",
        f"both: {sum(served)} of {sum(offered)}",
    ]
    assert axes.get_legend().get_title().get_text() == "system: measured of offered"


def test_cdf_of_nothing(result):
    simulation = result.simulation.with_({"gateway.admission": "reject_all"})
    axes = spillway.simulate(simulation).plot.latency_cdf(population="offered", log=True)
    assert legend_of(axes)[0].startswith("critical: 0 of ")
    assert not labelled(axes, "critical").get_ydata().any()
    plots.latency_cdf(spillway.simulate(simulation), by="tenant").figure.canvas.draw()


def test_cdf_of_a_class_that_comes_only_during_the_warm_up():
    recorded = spillway.trace(
        arrival_s=[0, 1, 2], input_tokens=[9] * 3, output_tokens=[9] * 3, tenant=["early", "b", "b"]
    )
    result = spillway.simulate(spillway.Simulation(workload=recorded, warm_up_s=0.5))
    axes = result.plot.latency_cdf(by="tenant", population="offered")
    assert legend_of(axes) == ["early: 0 of 0", "b: 2 of 2"]
    assert not labelled(axes, "early").get_ydata().any()


def test_logarithmic_axis_has_plain_numbers(result):
    axes = result.plot.latency_cdf(log=True)
    axes.figure.canvas.draw()
    assert axes.get_xscale() == "log"
    assert "0.05" in [label.get_text() for label in axes.get_xticklabels()]


def test_logarithmic_axis_of_a_single_value():
    alone = spillway.Simulation(workload=spillway.workload.Synthetic(num_requests=1))
    axes = spillway.simulate(alone).plot.latency_cdf(log=True)
    (low, high), ttft_s = axes.get_xlim(), axes.get_lines()[0].get_xdata()[0]
    assert low < ttft_s < high


def test_a_name_with_an_underscore_is_in_the_legend():
    recorded = spillway.trace(
        arrival_s=[0, 1], input_tokens=[9] * 2, output_tokens=[9] * 2, tenant=["_a", "b"]
    )
    result = spillway.simulate(
        spillway.Simulation(workload=recorded, metrics={"timeline_step_s": 0.1})
    )
    assert legend_of(result.plot.latency_cdf(by="tenant")) == [" _a: 1 of 1", "b: 1 of 1"]
    assert legend_of(result.plot.over_time("admitted", by="tenant")) == [" _a", "b"]
    gateway = result.plot.gateway()
    assert {" _a", "b"} <= {text.get_text() for text in gateway.legends[0].get_texts()}


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("metric", plots.METRICS)
def test_every_metric_is_a_column_with_a_unit(result, metric, log):
    axes = result.plot.latency_cdf(metric, log=log)
    assert axes.get_xlabel().endswith(" (s)")
    axes.figure.canvas.draw()


def test_nothing_to_draw(simulation):
    result = spillway.simulate(simulation.replace(warm_up_s=1000))
    drawn = result.plot
    for draw in (drawn.latency_cdf, drawn.outcomes_over_time, drawn.admission_by_length):
        with pytest.raises(ValueError, match="no request arrives after the warm-up"):
            draw()
    result = spillway.simulate(simulation.replace(horizon_s=1e-9))
    assert legend_of(result.plot.admitted_tokens())[0] == "offered: 0 requests"


def test_cdf_refuses_unknown_words(result):
    for settings, message in (
        ({"metric": "ttft"}, "metric = 'ttft': must be one of ttft_s, e2e_s"),
        ({"by": "instance"}, "by = 'instance': must be slo_class or tenant"),
        ({"population": "all"}, "population = 'all': must be measured or offered"),
    ):
        with pytest.raises(ValueError, match=message):
            result.plot.latency_cdf(**settings)
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
        ((result.requests["slo_class"] == "critical") & (result.requests["arrival_s"] < 4)).sum()
        for result in results
    ]
    assert offered.values == pytest.approx([np.mean(arrived) / 4])
    assert axes.get_title(loc="left").endswith("requests, 2 seeds)")


def test_outcomes_over_time_show_what_has_not_ended(simulation):
    cut = simulation.replace(horizon_s=6, warm_up_s=2)
    figure = spillway.simulate(cut).plot.outcomes_over_time(figure=plt.figure())
    layers = ["completed", "unfinished", "rejected", "offered"]
    assert legend_of(figure.axes[0]) == [*layers, "end of warm-up"]


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
    assert labels_of(axes) == ("time of arrival (s)", "cumulative prompt tokens")
    requests = result.requests
    completed = requests["outcome"] == "completed"
    admitted = labelled(axes, "admitted")
    assert admitted.get_label() == f"admitted: {completed.sum()} requests"
    assert admitted.get_ydata()[-1] == requests["input_tokens"][completed].sum()
    assert labelled(axes, "offered").get_ydata()[-1] == requests["input_tokens"].sum()
    bound = labelled(axes, "bound")
    assert bound.get_label() == "bound: 10,000 + 15,000/s · time"
    times, tokens = admitted.get_data()
    assert (tokens <= np.interp(times, *bound.get_data()) + 1e-6).all()


def test_bound_of_a_given_bucket(result):
    bucket = gateway.TokenBucket(capacity_tokens=5, refill_tokens_per_s=7)
    assert labelled(result.plot.admitted_tokens(bucket), "bound").get_ydata()[0] == 5


def test_no_bound_without_a_bucket(simulation):
    open_gateway = simulation.with_({"gateway.admission": "always_admit"})
    axes = spillway.simulate(open_gateway).plot.admitted_tokens()
    assert len(axes.get_lines()) == 2


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"instances[0].max_model_len": 1000}, "worker_rejected"),
        ({"gateway.admission_latency_s": 1, "horizon_s": 5}, "at_admission"),
    ],
)
def test_admitted_is_neither_what_a_worker_took_nor_undecided(simulation, changes, outcome):
    result = spillway.simulate(simulation.with_(changes))
    assert result.ledger[outcome]
    label = labelled(result.plot.admitted_tokens(), "admitted").get_label()
    assert label == f"admitted: {result.ledger['admitted']} requests"


def test_admission_by_length(result):
    axes = result.plot.admission_by_length()
    line = axes.get_lines()[0]
    requests = result.requests
    assert list(line.get_xdata()) == [512, 2000]
    for length, share in zip(*line.get_data(), strict=True):
        outcomes = requests["outcome"][requests["input_tokens"] == length]
        assert share == pytest.approx((outcomes == "completed").mean())
    assert labels_of(axes) == ("prompt length (tokens)", "share admitted")
    assert legend_of(axes) == ["300 requests"]


def test_admission_by_length_in_groups(simulation):
    lengths = workload.Lognormal(mu=6, sigma=1)
    varied = simulation.with_({"workload.clients[0].input_tokens": lengths})
    results = spillway.simulate(varied, seeds=range(2))
    axes = plots.admission_by_length(results, bins=8, label="before")
    plots.admission_by_length(results[0], bins=8, label="after", ax=axes)
    first, second = axes.get_lines()
    assert len(first.get_xdata()) <= 8
    assert (np.diff(first.get_xdata()) > 0).all()
    assert legend_of(axes) == ["before: 600 requests", "after: 300 requests"]
    assert first.get_linestyle() != second.get_linestyle()


# --- the gateway over time ----------------------------------------------------------------------


def crowded(**settings):
    """Two tenants that overload a plant, behind an adaptive limit."""
    plant = spillway.Simulation(
        instances=[instance.InstanceGroup(plant=instance.ProcessorSharing())],
        metrics=metrics.Metrics(timeline_step_s=1),
    )
    adaptive = gateway.Gateway(
        bands=[gateway.Band(queue=gateway.Queue(max_requests=8, timeout_s=1))],
        limit=[gateway.WorkerBudget(cap_per_worker=64, workers=2)],
        controller=gateway.Aimd(),
        guard=gateway.Guard(floor=16, cooldown_ticks=3),
        sensor=signals.Sensor(window_s=10),
    )
    toy = spillway.presets.get("toy-plant").apply(plant)
    return toy.replace(gateway=adaptive.replace(**settings))


MOVES = ("increase", "decrease", "cooldown")


@pytest.fixture(scope="module")
def controlled():
    result = spillway.simulate(crowded())
    assert all(map(result.control.count, MOVES))
    return result


def panels_of(figure, *, arranged=False):
    if not arranged:
        figure.set_layout_engine("none")  # which takes longer than to draw
    figure.canvas.draw()
    return {axes.get_label(): axes for axes in figure.axes}


def stairs_of(axes):
    """Values and edges of what is drawn as steps, in the order of the tenants."""
    return [(area.get_data().values, area.get_data().edges) for area in axes.patches]


@pytest.mark.slow
def test_gateway_has_a_panel_for_everything(controlled):
    figure = controlled.plot.gateway()
    panels = panels_of(figure, arranged=True)
    assert list(panels) == [
        "submitted", "limit", "dispatched", "shed", "sensor", "queued", "batch", "tokens",
        "goodput",
    ]  # fmt: skip
    assert {name: axes.get_ylabel() for name, axes in panels.items()} == {
        "submitted": "requests/s",
        "dispatched": "requests/s",
        "shed": "requests/s",
        "queued": "requests",
        "tokens": "tokens/s",
        "goodput": "share",
        "limit": "requests",
        "sensor": "s",
        "batch": "requests",
    }
    assert panels["goodput"].get_xlabel() == panels["batch"].get_xlabel() == "time (s)"
    assert len({axes.get_xlim() for axes in panels.values()}) == 1
    total = controlled.timeline["submitted"][-1].sum()
    assert panels["submitted"].get_title(loc="left") == f"submitted ({total:,} requests)"
    # C sends no requests and has no line.
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["A", "B"]


@pytest.mark.slow
@pytest.mark.parametrize("step_s", [None, 1, 7])
def test_gateway_draws_the_rates_of_the_timeline(controlled, step_s):
    panels = panels_of(controlled.plot.gateway(step_s=step_s))
    timeline = controlled.timeline
    columns = {name: name for name in ("submitted", "dispatched", "shed")}
    columns["tokens"] = "emitted_tokens"
    last = len(timeline["time_s"]) - 1
    rows = np.unique([*range(0, last, step_s or round(last / 100)), last])
    for panel, name in columns.items():
        drawn = stairs_of(panels[panel])
        assert len(drawn) == 2
        for (rates, edges), tenant in zip(drawn, "AB", strict=True):
            counts = timeline.of(tenant)[name]
            assert list(edges) == list(timeline["time_s"][rows])
            assert rates * np.diff(edges) == pytest.approx(np.diff(counts[rows]))
            assert (rates * np.diff(edges)).sum() == pytest.approx(counts[-1])


def test_gateway_draws_the_levels_of_the_timeline(controlled):
    panels = panels_of(controlled.plot.gateway())
    timeline = controlled.timeline
    drawn = {
        ("limit", "in flight"): timeline["in_flight"],
        ("limit", "permits"): timeline["permits"],
        ("batch", "running"): timeline["running"],
        ("batch", "waiting"): timeline["waiting"],
    }
    for (panel, label), values in drawn.items():
        x, y = labelled(panels[panel], label).get_data()
        assert list(x) == list(timeline["time_s"])
        assert list(y) == list(values)
    for line, tenant in zip(panels["queued"].get_lines(), "AB", strict=True):
        assert list(line.get_ydata()) == list(timeline.of(tenant)["queued"])


@pytest.mark.slow
def test_tenants_look_alike_in_every_panel(controlled):
    panels = panels_of(controlled.plot.gateway())
    looks = [
        [(area.get_edgecolor()[:3], area.get_linestyle()) for area in panels[name].patches]
        for name in ("submitted", "dispatched", "shed", "tokens")
    ]
    assert all(look == looks[0] for look in looks)
    colors = [mpl.colors.to_rgb(line.get_color()) for line in panels["queued"].get_lines()]
    assert colors == [color for color, _ in looks[0]]


@pytest.mark.slow
def test_gateway_marks_what_the_controller_did(controlled):
    axes = panels_of(controlled.plot.gateway())["limit"]
    control, timeline = controlled.control, controlled.timeline
    for action in MOVES:
        marks = labelled(axes, action)
        assert marks.get_label() == f"{action} ({control.count(action)})"
        assert marks.get_linestyle() == "None"
        chosen = control["action"] == control.actions.index(action)
        assert list(marks.get_xdata()) == list(control["time_s"][chosen])
        assert list(marks.get_ydata()) == list(control["permits"][chosen])
    assert not {"hold", "no_signal"} & {label.split(" ")[0] for label in legend_of(axes)}
    assert set(timeline["permits"]) >= set(control["permits"])


def test_gateway_draws_the_sensor_against_its_target(controlled):
    axes = panels_of(controlled.plot.gateway())["sensor"]
    assert axes.get_title(loc="left") == "p99 of TTFT"
    assert legend_of(axes) == ["deadband", "target: 2 s", "sensor"]
    line = labelled(axes, "sensor")
    assert list(line.get_xdata()) == list(controlled.control["time_s"])
    np.testing.assert_array_equal(line.get_ydata(), controlled.control["value"])
    assert list(labelled(axes, "target").get_ydata()) == [2, 2]
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (band.y0, band.y1) == pytest.approx((1.6, 2.4))


@pytest.mark.slow
def test_gateway_without_a_deadband():
    bare = crowded(controller=gateway.Aimd(band=0))
    axes = panels_of(spillway.simulate(bare).plot.gateway())["sensor"]
    assert legend_of(axes) == ["target: 2 s", "sensor"]
    sensor = signals.Sensor(source="e2e", aggregation="mean", scope="tenant", tenant="A")
    blind = crowded(controller=gateway.Gradient2(), sensor=sensor)
    axes = panels_of(spillway.simulate(blind).plot.gateway())["sensor"]
    assert axes.get_title(loc="left") == "mean of E2E latency of A"
    assert legend_of(axes) == ["sensor"]


def test_gateway_without_a_controller():
    still = crowded(controller=gateway.StaticLimit())
    panels = panels_of(spillway.simulate(still).plot.gateway())
    assert "sensor" not in panels
    assert legend_of(panels["limit"]) == ["in flight", "permits"]


@pytest.mark.slow
def test_gateway_without_a_limit_or_anything_shed(simulation):
    result = spillway.simulate(simulation.with_({"metrics.timeline_step_s": 0.5}))
    panels = panels_of(result.plot.gateway())
    assert legend_of(panels["limit"]) == ["in flight"]
    kv = panels["kv"]
    assert kv.get_ylabel() == "share"
    assert list(kv.get_lines()[0].get_ydata()) == list(result.timeline["kv_utilization"])
    assert panels["queued"].get_ylim() == (0, 1)
    # One scale, on which nothing shed is next to nothing.
    assert panels["shed"].get_ylim() == panels["submitted"].get_ylim()


def test_gateway_of_several_replicas():
    result = spillway.simulate(crowded(replicas=2))
    axes = panels_of(result.plot.gateway())
    permits = labelled(axes["limit"], "permits").get_ydata()
    assert list(permits) == list(result.timeline["permits"])
    assert permits[0] == 2 * 2 * 64
    sensors = axes["sensor"].get_lines()[1:]
    assert len(sensors) == 2
    assert legend_of(axes["sensor"])[-1] == "2 replicas"
    marks = [line for line in axes["limit"].get_lines() if line.get_linestyle() == "None"]
    moves = sum(map(result.control.count, MOVES))
    assert sum(len(line.get_xdata()) for line in marks) == moves


def test_gateway_needs_no_requests():
    (results,) = spillway.run_many([crowded()])
    assert not results[0].has_requests
    figure = plt.figure()
    assert results[0].plot.gateway(figure=figure) is figure


def test_gateway_needs_a_timeline(result, controlled):
    with pytest.raises(spillway.UsageError, match=r"set metrics\.timeline_step_s"):
        result.plot.gateway()
    with pytest.raises(ValueError, match="step_s = 0: must be > 0"):
        controlled.plot.gateway(step_s=0)
    at_once = controlled.simulation.replace(horizon_s=0.5)
    with pytest.raises(ValueError, match="ended within one step of the timeline"):
        spillway.simulate(at_once).plot.gateway()
    assert plt.get_fignums() == []


# --- a figure over a setting --------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept(simulation):
    refills = (5_000, 10_000, 15_000)
    path = "gateway.admission[token_bucket].refill_tokens_per_s"
    systems = [simulation.with_({path: refill}) for refill in refills]
    runs = spillway.run_many(systems, seeds=range(3))
    return dict(zip(refills, runs, strict=True))


def bars_of(axes):
    """Per line of error bars: its label, points, and lower and upper ends."""
    return [
        (
            bars.get_label(),
            bars.lines[0].get_xydata(),
            np.array([segment[:, 1] for segment in bars.lines[2][0].get_segments()]),
        )
        for bars in axes.containers
    ]


def test_sweep_draws_means_with_intervals(swept):
    backwards = dict(reversed(swept.items()))
    axes = plots.sweep(backwards, "goodput", setting="refill (tokens/s)")
    ((_, points, ends),) = bars_of(axes)
    intervals = [results.summary()["goodput"] for results in swept.values()]
    means = [interval.mean for interval in intervals]
    assert [list(point) for point in points] == [*map(list, zip(swept, means, strict=True))]
    expected = [[interval.low, interval.high] for interval in intervals]
    assert ends == pytest.approx(np.array(expected))
    assert labels_of(axes) == ("refill (tokens/s)", "goodput (share of offered requests)")
    assert axes.get_title(loc="right") == "mean of 3 seeds, 95% interval"


def test_sweep_per_tenant_on_logarithmic_axes(swept):
    axes = plots.sweep(swept, by="tenant", log="xy", label="bucket:")
    axes.figure.canvas.draw()
    assert legend_of(axes) == ["bucket: gold", "bucket: bronze"]
    assert axes.get_ylabel() == "p99 of TTFT (ms)"
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5,000", "10,000", "15,000"]
    for _, points, ends in bars_of(axes):
        assert (ends[:, 0] >= 0.1 * points[:, 1] - 1e-9).all()


def test_sweep_does_not_crowd_its_axis(swept):
    dense = dict(zip((0.9, 1, 1.1), swept.values(), strict=True))
    axes = plots.sweep(dense, log="x")
    axes.figure.canvas.draw()
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1]


def test_sweeps_can_be_compared(swept):
    axes = plots.sweep(swept, label="before")
    assert plots.sweep(swept, label="after", ax=axes) is axes
    assert legend_of(axes) == ["before", "after"]
    first, second = (bars.lines[0] for bars in axes.containers)
    assert first.get_color() != second.get_color()


def test_sweep_of_single_results(swept):
    axes = plots.sweep({value: results[0] for value, results in swept.items()}, "rejected")
    ((_, points, ends),) = bars_of(axes)
    assert list(points[:, 1]) == [results[0].summary()["rejected"] for results in swept.values()]
    assert (ends[:, 0] == ends[:, 1]).all()
    assert axes.get_title(loc="right") == "1 seed"


def test_sweep_leaves_out_what_there_is_not(swept, simulation):
    nothing = spillway.simulate(simulation.replace(warm_up_s=1000))
    axes = plots.sweep({0: nothing, **swept})
    means = axes.containers[0].lines[0].get_ydata().astype(float)
    assert list(np.isnan(means)) == [True, False, False, False]
    assert axes.get_title(loc="right") == "mean of 1 to 3 seeds, 95% interval"


def test_sweep_of_zeros_is_linear_all_the_same(simulation):
    nothing = spillway.simulate(simulation.with_({"gateway.admission": "reject_all"}))
    axes = plots.sweep({1: nothing, 20: nothing}, "completed", log="xy")
    axes.figure.canvas.draw()
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    assert plots.sweep({0: nothing}, "completed", log="x").get_xscale() == "linear"


def test_sweep_refuses_what_it_does_not_know(swept):
    for settings, message in (
        ({"figure": "p99_ttft"}, "figure = 'p99_ttft': must be one of offered, "),
        ({"by": "instance"}, "by = 'instance': must be slo_class or tenant"),
        ({"log": "z"}, "log = 'z': must be x, y, xy or empty"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.sweep(swept, **settings)
    with pytest.raises(ValueError, match="results_by_value is empty"):
        plots.sweep({})
    assert plt.get_fignums() == []


def test_sweeps_have_a_panel_per_figure_and_a_line_per_system(swept):
    def share_rejected(result):
        return result.summary()["rejected"] / result.summary()["offered"]

    curves = {"all": swept, "two": {value: swept[value] for value in (15_000, 5_000)}}
    figure = plots.sweeps(curves, ["p99_ttft_ms", share_rejected], setting="refill", log="xy")
    latency, share = figure.axes
    assert [labels_of(axes)[0] for axes in figure.axes] == ["refill"] * 2
    assert (latency.get_ylabel(), share.get_ylabel()) == ("p99 of TTFT (ms)", "share rejected")
    assert [axes.get_xscale() for axes in figure.axes] == ["log"] * 2
    assert (latency.get_yscale(), share.get_yscale()) == ("log", "linear")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["all", "two"]
    means = {refill: runs.interval(share_rejected).mean for refill, runs in swept.items()}
    for (_, points, _), values in zip(bars_of(share), curves.values(), strict=True):
        assert dict(map(tuple, points)) == {value: means[value] for value in values}
    (axes,) = plots.sweeps({"": swept}).figure.axes[:1]
    assert axes.get_legend() is None
    with pytest.raises(ValueError, match="no curves or no figures"):
        plots.sweeps({})


def test_intervals_have_a_row_per_system(swept):
    systems = {f"{refill:,}": runs for refill, runs in swept.items()}
    axes = plots.intervals(systems)
    assert [label.get_text() for label in axes.get_yticklabels()] == list(systems)
    assert axes.get_xlabel() == "goodput (share of offered requests)"
    assert axes.get_title(loc="right") == "mean of 3 seeds, 95% interval"
    assert axes.get_legend() is None
    (bars,) = axes.containers
    goodput = [runs.summary()["goodput"] for runs in systems.values()]
    assert list(bars.lines[0].get_xdata()) == [interval.mean for interval in goodput]
    ends = [segment[:, 0] for segment in bars.lines[2][0].get_segments()]
    expected = [[interval.low, interval.high] for interval in goodput]
    assert np.array(ends) == pytest.approx(np.array(expected))

    by_tenant = plots.intervals(systems, "p99_ttft_ms", "tenant")
    assert legend_of(by_tenant) == ["gold", "bronze"]
    gold, bronze = (bars.lines[0].get_ydata() for bars in by_tenant.containers)
    assert (gold < bronze).all()
    assert [round(at) for at in gold] == [round(at) for at in bronze] == [0, 1, 2]
    with pytest.raises(ValueError, match="there are no systems"):
        plots.intervals({})
    with pytest.raises(ValueError, match="by = 'tenant': a function is of a whole result"):
        plots.intervals(systems, len, "tenant")


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


def test_unvalidated_servers_are_marked_in_every_figure() -> None:
    server = instance.Server(model="llama-3.1-8b", gpu="mi300x").group
    simulation = spillway.Simulation(
        workload=workload.Synthetic(num_requests=60), instances=server
    ).with_({"metrics.timeline_step_s": 0.5})
    computed = spillway.simulate(simulation)
    known = spillway.simulate(simulation.with_({"instances[0].provenance": ""}))
    for draw in (
        lambda result: result.plot.latency_cdf().figure,
        lambda result: result.plot.outcomes_over_time(),
        lambda result: result.plot.gateway(),
        lambda result: result.plot.admitted_tokens().figure,
        lambda result: result.plot.admission_by_length().figure,
        lambda result: plots.sweep({1: result, 2: [known, result]}).figure,
    ):
        for result, count in ((computed, 1), (known, 0)):
            texts = [text.get_text() for axes in draw(result).axes for text in axes.texts]
            assert sum("unvalidated" in text for text in texts) == count


@pytest.mark.slow
def test_gateway_draws_the_goodput_over_time(simulation):
    result = spillway.simulate(simulation.with_({"metrics.timeline_step_s": 0.5}))
    axes = panels_of(result.plot.gateway(step_s=2))["goodput"]
    assert axes.get_title(loc="left") == "goodput, by time of arrival"
    assert axes.get_ylabel() == "share"
    ((shares, edges),) = stairs_of(axes)  # only one class has a target
    columns = result.requests
    critical = columns["slo_class"] == "critical"
    good = critical & (columns["ttft_s"] <= 0.05)
    for share, low, high in zip(shares, edges, edges[1:], strict=False):
        inside = (columns["arrival_s"] >= low) & (columns["arrival_s"] < high)
        if (inside & critical).any():
            expected = (inside & good).sum() / (inside & critical).sum()
            assert share == pytest.approx(expected)
        else:
            assert np.isnan(share)
    without = result.simulation.with_({"slo_classes[0].target_ttft_s": None})
    assert "goodput" not in panels_of(spillway.simulate(without).plot.gateway())


@pytest.mark.slow
def test_results_have_the_figures_of_a_result(simulation):
    results = spillway.simulate(simulation.with_({"metrics.timeline_step_s": 0.5}), seeds=range(2))
    pooled = legend_of(plots.latency_cdf(results))
    assert legend_of(results.plot.latency_cdf()) == pooled
    assert legend_of(results[0].plot.latency_cdf()) != pooled
    first = results[0].plot.requests(0, 1)
    assert legend_of(results.plot.requests(0, 1)) == legend_of(first)
    assert list(panels_of(results.plot.gateway())) == list(panels_of(results[0].plot.gateway()))


def test_texts_show_on_a_dark_style(simulation, controlled):
    dark = "#000000"
    with plt.style.context("dark_background"):
        drawn = [
            plots.admitted_tokens(spillway.simulate(simulation)).figure,
            plots.gateway(controlled),
            plots.outcomes_over_time(controlled),
            plots.over_time(controlled, "sensor").figure,
            plots.intervals({"one": controlled, "other": busy_run()}, by="tenant").figure,
            plots.sweeps({"": {1: controlled, 2: busy_run()}}),
            plots.placement(busy_run()).figure,
            plots.heat_map({"one": controlled, "other": busy_run()}, "mean_ttft_ms").figure,
        ]
        for figure in drawn:
            for axes in figure.axes:
                assert mpl.colors.to_hex(axes.get_facecolor()) == dark
                lines = [line.get_color() for line in axes.get_lines()]
                assert dark not in map(mpl.colors.to_hex, lines)
        # A cell without a value has no color behind its text.
        (image,) = drawn[-1].axes[0].images
        for text in drawn[-1].axes[0].texts:
            column, row = map(int, text.get_position())
            if np.ma.getmaskarray(image.get_array())[row, column]:
                assert text.get_text() == "-"
                assert mpl.colors.to_hex(text.get_color()) != dark


# --- single requests, instances, systems ----------------------------------------------------------


def busy_run():
    clients = [workload.Client(name="a", tenant="gold"), workload.Client(name="b")]
    simulation = spillway.Simulation(
        workload=workload.Synthetic(requests_per_s=60, num_requests=600, clients=clients),
        gateway=gateway.Gateway(
            limit=gateway.FixedLimit(max_in_flight=24), bands={"queue": {"max_requests": 20}}
        ),
        instances=instance.InstanceGroup(count=3, latency=instance.Linear()),
    )
    return spillway.simulate(simulation)


def test_a_bar_per_request_and_phase():
    run = busy_run()
    axes = run.plot.requests(2, 2.5)
    columns = run.requests
    inside = (columns["arrival_s"] <= 2.5) & ~(columns["arrival_s"] + columns["e2e_s"] < 2)
    done = inside & (columns["outcome"] == "completed")
    labels = legend_of(axes)
    assert labels[-4:] == ["gateway queue", "engine queue", "prefill", "decode"]
    assert labels[0] == "rejected"
    phases = [container.patches for container in axes.containers]
    assert [len(bars) for bars in phases] == [done.sum()] * 4
    ends = sorted(bar.get_x() + bar.get_width() for bar in phases[3])
    assert ends == pytest.approx(sorted((columns["arrival_s"] + columns["e2e_s"])[done]))
    waits = sorted(bar.get_width() for bar in phases[0])
    assert waits == pytest.approx(sorted(columns["queue_s"][done]))
    lost = labelled(axes, "rejected").get_xdata()
    rejected = inside & (columns["outcome"] == "rejected") & (columns["arrival_s"] >= 2)
    assert sorted(lost) == pytest.approx(sorted(columns["arrival_s"][rejected]))
    with pytest.raises(ValueError, match=r"600 requests are in the system from 0 s to 1e\+06 s"):
        run.plot.requests(0, 1e6)
    with pytest.raises(ValueError, match="nothing to draw: no request is in the system"):
        run.plot.requests(1e6, 1e6)
    assert len(run.plot.requests().containers[0].patches) <= 60


def test_requests_in_each_instance_over_time():
    run = busy_run()
    figure = run.plot.instances(bins=50)
    held = figure.axes[0].collections[0].get_array()
    assert held.shape == (3, 50)
    columns = run.requests
    done = ~np.isnan(columns["e2e_s"])
    end_s = (columns["arrival_s"] + columns["e2e_s"])[done].max()
    for i in range(3):
        here = done & (columns["instance"] == i)
        total = (columns["e2e_s"] - columns["queue_s"])[here].sum()
        assert held[i].mean() * end_s == pytest.approx(total)
        tokens = columns["output_tokens"][here].sum() / end_s
        assert figure.axes[1].patches[0].get_data().values[i] == pytest.approx(tokens)
    assert held.max() <= 24


def test_a_heat_map_of_tenants_and_systems():
    today = busy_run()
    twice = [today, today]
    axes = plots.heat_map({"today": today, "twice": twice}, "mean_ttft_ms")
    shown = [text.get_text() for text in axes.texts]
    figures = [today.by_tenant()[name]["mean_ttft_ms"] for name in ("gold", "default")]
    assert [float(text.replace(",", "")) for text in shown] == pytest.approx(
        [figures[0], figures[0], figures[1], figures[1]], rel=1e-3
    )
    assert [label.get_text() for label in axes.get_xticklabels()] == ["today", "twice"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["gold", "default"]
    with pytest.raises(ValueError, match="there are no systems"):
        plots.heat_map({})
    with pytest.raises(ValueError, match="figure = 'speed'"):
        plots.heat_map({"today": today}, "speed")


def test_over_time_by_arrival(simulation, result):
    later = spillway.simulate(simulation, seed=1)
    edges = [0, 5, 10]
    columns = result.requests
    arrival_s, tenants = columns["arrival_s"], columns["tenant"]

    axes = plots.over_time({"one": result, "both": [result, later]}, "offered", bins=edges)
    assert legend_of(axes) == ["one", "both"]
    assert labels_of(axes) == ("time of arrival (s)", "offered (requests/s)")
    one, both = (values for values, _ in stairs_of(axes))
    assert list(one) == [((arrival_s >= 5 * i) & (arrival_s < 5 * i + 5)).sum() / 5 for i in (0, 1)]
    other = plots.over_time(later, "offered", bins=edges)
    assert list(both) == pytest.approx((one + stairs_of(other)[0][0]) / 2)
    assert other.get_legend() is None

    inside = arrival_s < 5
    axes = result.plot.over_time("shed", "tenant", bins=edges)
    assert legend_of(axes) == ["gold", "bronze"]
    for tenant, (values, _) in zip(legend_of(axes), stairs_of(axes), strict=True):
        outcomes = columns["outcome"][inside & (tenants == tenant)]
        assert values[0] == pytest.approx((outcomes == "rejected").mean())
    critical = inside & (columns["slo_class"] == "critical")
    for quantity, expected in (
        ("goodput", (columns["ttft_s"][critical] <= 0.05).mean()),
        ("p95_ttft_ms", 1000 * np.nanpercentile(columns["ttft_s"][inside], 95)),
        ("mean_e2el_ms", 1000 * np.nanmean(columns["e2e_s"][inside])),
        ("admitted", columns["admitted"][inside].sum() / 5),
    ):
        ((values, _),) = stairs_of(result.plot.over_time(quantity, bins=edges))
        assert values[0] == pytest.approx(expected)
    (values, _), _ = stairs_of(result.plot.over_time("p99_ttft_ms", "tenant", bins=[-2, -1, 0]))
    assert np.isnan(values).all()
    assert result.plot.over_time("p99_ttft_ms", log=True).get_yscale() == "log"


def test_over_time_of_the_gateway(controlled):
    timeline, control = controlled.timeline, controlled.control
    for quantity, expected in (
        ("permits", timeline["permits"]),
        ("queued", timeline["queued"].sum(axis=1)),
        ("kv_utilization", timeline["kv_utilization"]),
    ):
        (line,) = controlled.plot.over_time(quantity).get_lines()
        assert line.get_ydata() == pytest.approx(expected, nan_ok=True)
    axes = plots.over_time({"a": controlled, "b": controlled}, "sensor")
    assert legend_of(axes) == ["a", "b", "target"]
    assert axes.get_lines()[0].get_ydata() == pytest.approx(control["value"], nan_ok=True)
    assert axes.get_ylabel() == "p99 of TTFT (s)"


def test_over_time_refuses_what_it_does_not_know(result):
    with pytest.raises(ValueError, match="quantity = 'num_ttft': must be offered, "):
        result.plot.over_time("num_ttft")
    for quantity in ("permits", "sensor"):
        with pytest.raises(ValueError, match="by = 'tenant': only for a quantity by time"):
            result.plot.over_time(quantity, "tenant")
    with pytest.raises(ValueError, match="by = 'tenant': only for"):
        plots.over_time({"a": result, "b": result}, "goodput", "tenant")


def test_placement_is_of_the_requests_that_instances_got():
    run = busy_run()
    axes = run.plot.placement()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["gold", "default"]
    columns = run.requests
    shares = axes.images[0].get_array()
    assert shares.shape == (2, 3)
    for row, tenant in enumerate(("gold", "default")):
        mine = columns["instance"][(columns["tenant"] == tenant) & (columns["instance"] >= 0)]
        assert 0 < len(mine) < (columns["tenant"] == tenant).sum()
        assert list(shares[row]) == pytest.approx([(mine == i).mean() for i in range(3)])
    nothing = spillway.simulate(run.simulation.with_({"gateway.admission": "reject_all"}))
    with pytest.raises(ValueError, match="no instance got a request"):
        nothing.plot.placement()


def test_tokens_of_instances_are_those_of_the_run_in_any_span():
    run = busy_run()
    whole, span = (run.plot.instances(bins=bins).axes[1] for bins in (50, [1, 2, 3]))
    assert list(span.patches[0].get_data().values) == list(whole.patches[0].get_data().values)
