"""Every figure of a summary has a descriptor, and what derives from the descriptors agrees."""

from __future__ import annotations

import pytest
from support.study_problems import overloaded

from spillway import ConfigError, Result, Simulation, simulate
from spillway.data.figures import FIGURES, LATENCIES, STATISTICS
from spillway.study import Figure, Objective, sweeps
from spillway.validation import blis

DIRECTIONS = {"higher": "maximize", "lower": "minimize", "neither": None}


@pytest.fixture(scope="module", params=[False, True], ids=["exact", "streaming"])
def result(request: pytest.FixtureRequest) -> Result:
    return simulate(overloaded().with_({"metrics.streaming": request.param}))


def test_a_summary_has_the_described_figures_in_their_order(result: Result) -> None:
    streaming = result.simulation.metrics.streaming
    described = [figure for figure in FIGURES.values() if streaming or not figure.streaming_only]
    assert list(result.summary()) == [figure.name for figure in described]
    of_groups = [figure.name for figure in described if figure.by_group]
    groups = [*result.by_class().values(), *result.by_tenant().values()]
    assert [list(figures) for figures in groups] == [of_groups] * len(groups)
    assert 0 < len(of_groups) < len(described)


def test_the_values_are_of_the_described_kind(result: Result) -> None:
    for name, value in result.summary().items():
        one = FIGURES[name]
        if value is None:
            assert not one.is_count or name == "priority_inversions"
        elif one.streaming_only:
            assert value is True
        else:
            assert isinstance(value, int if one.is_count else float), name


@pytest.mark.parametrize("name", FIGURES)
def test_a_descriptor_is_complete(name: str) -> None:
    one = FIGURES[name]
    assert one.name == name
    assert one.doc[0] == one.doc[0].upper()
    assert one.doc.endswith(".")
    assert one.population
    assert one.better in DIRECTIONS
    assert one.unit or not one.is_count
    assert (one.unit == "ms") == name.endswith("_ms") == (one.statistic not in ("", "num"))
    assert bool(one.latency) == bool(one.statistic)
    shows_unit = one.unit and not one.is_count
    assert one.label.endswith(f" ({one.unit})") if shows_unit else "(" not in one.label


def test_what_needs_targets_has_no_value_without() -> None:
    summary = simulate(Simulation()).summary()
    assert all(summary[name] is None for name, figure in FIGURES.items() if figure.needs_targets)


def test_every_latency_has_every_statistic() -> None:
    found = [(figure.latency, figure.statistic) for figure in FIGURES.values() if figure.latency]
    assert found == [(latency, statistic) for latency in LATENCIES for statistic in STATISTICS]


@pytest.mark.parametrize("name", FIGURES)
def test_an_objective_goes_where_its_figure_is_better(name: str) -> None:
    direction = DIRECTIONS[FIGURES[name].better]
    assert Figure(name).direction == direction
    if direction is None:
        with pytest.raises(ConfigError, match="must state a direction"):
            Objective(name)
    else:
        assert Objective(name).direction == direction


@pytest.mark.parametrize(
    ("metric", "near"),
    [("godput", "goodput"), ("p99_tfft_ms[critical]", "p99_ttft_ms"), ({"shead": 1}, "shed")],
)
def test_an_objective_of_an_unknown_figure_names_a_near_one(metric: object, near: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown figure; did you mean '{near}'"):
        Objective(metric)  # type: ignore[arg-type]


def test_names_of_other_systems_are_unique() -> None:
    described = [figure.blis for figure in FIGURES.values() if figure.blis]
    assert len(set(described)) == len(described) == len(blis._AGGREGATE)


def test_what_a_sweep_notes_exists() -> None:
    assert {*sweeps.DEFAULT_METRICS} <= {*FIGURES, "shed"}
