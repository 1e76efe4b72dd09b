"""Comparisons: verdicts, error rates, power, populations, and messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.paths import ROOT

import spillway
from spillway import ConfigError, Simulation, compare, gateway, instance, simulate, workload
from spillway.comparison import Comparison
from spillway.config.files import fingerprint
from spillway.data.figures import FIGURES
from spillway.data.intervals import interval

if TYPE_CHECKING:
    from pathlib import Path

MIXED = ROOT / "examples" / "mixed_targets.yaml"


@pytest.fixture(scope="module")
def systems() -> dict[str, Simulation]:
    today = spillway.load(MIXED).with_({"workload.num_requests": 1000})
    return {
        "today": today,
        "gated": today.with_({"gateway.admission": gateway.SloGated()}),
        "shed": today.with_({"gateway.admission": gateway.TierShed(max_load=60)}),
    }


def test_differences_are_paired_with_an_adjusted_level(systems: dict[str, Simulation]) -> None:
    comparison = compare(systems, seeds=5, figures=["goodput", "rejected"])
    assert comparison.level == pytest.approx(1 - 0.05 / 4)
    assert comparison.seeds == (0, 1, 2, 3, 4)
    assert [(verdict.challenger, verdict.figure) for verdict in comparison.verdicts] == [
        (name, figure) for name in ("gated", "shed") for figure in ("goodput", "rejected")
    ]
    runs = {name: spillway.simulate(systems[name], seeds=range(5)) for name in systems}
    for verdict in comparison.verdicts:
        gaps = [
            float(b.summary()[verdict.figure] or 0) - float(a.summary()[verdict.figure] or 0)
            for a, b in zip(runs["today"], runs[verdict.challenger], strict=True)
        ]
        assert verdict.difference == interval(gaps, comparison.level)
        excluded = verdict.difference.low > 0 or verdict.difference.high < 0
        higher_is_better = verdict.figure == "goodput"
        expected = "better" if (verdict.difference.mean > 0) == higher_is_better else "worse"
        assert verdict.outcome == (expected if excluded else "undecided")
        assert (verdict.more_seeds is not None) == (verdict.outcome == "undecided")


def test_shares_that_differ_equally_under_every_seed_have_no_interval() -> None:
    classes = [{"name": "standard", "target_ttft_s": 1000}]
    served = Simulation(slo_classes=classes)
    refused = served.with_({"gateway.admission": "reject_all"})
    systems = {"served": served, "again": served.replace(warm_up_s=0), "refused": refused}
    comparison = compare(systems, seeds=12, figures=["goodput"])
    worse, same = comparison["refused", "goodput"], comparison["again", "goodput"]
    assert (worse.outcome, worse.difference.mean) == ("worse", -1)
    assert (worse.difference.low, worse.difference.high) == (None, None)
    assert (same.outcome, same.difference.mean, same.difference.low) == ("same", 0, None)
    assert worse.seeds_for(0.1) is None
    rows = [line for line in str(comparison).splitlines() if line.startswith("goodput")]
    (row,) = (row for row in rows if "-1" in row)
    assert row.split()[4:6] == ["-", "-"]
    # The signs of three pairs show nothing.
    few = compare(systems, seeds=3, figures=["goodput"])
    assert few["refused", "goodput"].outcome == "undecided"
    twins = {"served": served, "again": served}
    narrow = compare(twins, seeds=4, figures=["goodput"], half_width=0.01)
    assert (narrow.seeds, narrow.reached_half_width) == ((0, 1, 2, 3), True)


def test_all_pairs_share_the_error(systems: dict[str, Simulation]) -> None:
    pytest.importorskip("matplotlib").use("agg")
    comparison = compare(systems, seeds=4, figures=["goodput", "rejected"], all_pairs=True)
    assert comparison.pairs == (("today", "gated"), ("today", "shed"), ("gated", "shed"))
    assert comparison.level == pytest.approx(1 - 0.05 / 6)
    assert len(comparison.verdicts) == 6
    gated, shed = (spillway.simulate(systems[name], seeds=4) for name in ("gated", "shed"))
    verdict = comparison["shed", "gated", "goodput"]
    assert verdict.difference == shed.minus(gated, comparison.level)["goodput"]
    assert verdict.before == pytest.approx(gated.summary()["goodput"].mean)
    assert comparison["shed", "goodput"] == comparison["shed", "today", "goodput"]
    assert comparison["shed", "goodput"].baseline == "today"
    with pytest.raises(KeyError):
        _ = comparison["gated", "shed", "goodput"]
    shown = str(comparison)
    assert shown.startswith("all pairs, 4 seeds")
    assert "shed against gated  " in shown
    axes = comparison.plot()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[-2].endswith(", shed against gated")
    assert axes.get_xlabel() == "difference from the baseline of each pair (%)"
    # Of two systems there is one pair, and the default is against the first alone.
    pair = {name: systems[name] for name in ("today", "shed")}
    assert str(compare(pair, seeds=2, all_pairs=True)) == str(compare(pair, seeds=2))
    with pytest.raises(TypeError, match="all_pairs must be True or False"):
        compare(pair, all_pairs="best")


def test_a_system_is_the_same_as_itself(systems: dict[str, Simulation]) -> None:
    comparison = compare({"a": systems["today"], "b": systems["today"]}, seeds=3)
    assert {verdict.outcome for verdict in comparison.verdicts} == {"same"}


def test_latencies_of_different_populations_are_not_compared(
    systems: dict[str, Simulation],
) -> None:
    pair = {name: systems[name] for name in ("today", "gated")}
    verdict = compare(pair, seeds=4, figures=["p99_ttft_ms"])["gated", "p99_ttft_ms"]
    assert verdict.outcome == "not comparable"
    assert verdict.populations[0] != verdict.populations[1]
    assert "per run in today and of" in verdict.note
    allowed = compare(pair, seeds=4, figures=["p99_ttft_ms"], allow_different_populations=True)
    assert allowed["gated", "p99_ttft_ms"].outcome == "better"
    assert "that of the populations" in str(allowed)


def test_different_workloads_have_no_verdict_unless_asked() -> None:
    calm = Simulation().with_({"workload.num_requests": 300})
    pair = {"calm": calm, "busy": calm.with_({"workload.requests_per_s": 10_000.0})}
    comparison = compare(pair, seeds=3, figures=["mean_e2el_ms"])
    assert comparison["busy", "mean_e2el_ms"].outcome == "not comparable"
    assert "allow_different_workloads" in comparison.notes[0]
    asked = compare(pair, seeds=3, figures=["mean_e2el_ms"], allow_different_workloads=True)
    assert asked["busy", "mean_e2el_ms"].outcome == "worse"


def test_a_sequential_comparison_stops_at_its_half_width(systems: dict[str, Simulation]) -> None:
    pair = {name: systems[name] for name in ("today", "shed")}
    wide = compare(pair, seeds=4, figures=["goodput"], half_width=10.0)
    assert (len(wide.seeds), wide.reached_half_width, wide.looks) == (4, True, (4, 8, 16, 32))
    narrow = compare(pair, seeds=range(10, 14), figures=["goodput"], half_width=1e-6, max_seeds=10)
    assert (narrow.seeds, narrow.reached_half_width) == (tuple(range(10, 20)), False)
    assert narrow.looks == (4, 8, 10)
    assert narrow.level == pytest.approx(1 - 0.05 / 3)
    plain = compare(pair, seeds=range(10, 20), figures=["goodput"])
    assert narrow["shed", "goodput"].difference.mean == plain["shed", "goodput"].difference.mean


def test_forms(systems: dict[str, Simulation]) -> None:
    pytest.importorskip("matplotlib").use("agg")
    comparison = compare(systems, seeds=4, figures=["goodput", "rejected"])
    document = json.loads(json.dumps(comparison.to_dict()))
    verdicts = comparison.verdicts
    outcomes = [verdict.outcome for verdict in verdicts]
    assert [verdict["outcome"] for verdict in document["verdicts"]] == outcomes
    frame = comparison.to_frame()
    assert frame["value"].tolist() == [verdict.difference.mean for verdict in verdicts]
    assert frame["unit"].tolist() == [FIGURES[verdict.figure].unit for verdict in verdicts]
    prints = [fingerprint(simulation) for simulation in systems.values()]
    assert frame.attrs["fingerprint"] == document["fingerprint"] == prints
    assert (frame.attrs["seeds"], document["schema"]) == ([0, 1, 2, 3], 1)
    axes = comparison.plot()
    assert len(axes.containers) == len(comparison.verdicts)
    assert (len(axes.texts), comparison.unvalidated) == (0, ())
    with pytest.raises(KeyError):
        comparison["today", "goodput"]


def test_a_comparison_is_saved_and_loaded(systems: dict[str, Simulation], tmp_path: Path) -> None:
    comparison = compare(systems, seeds=4, all_pairs=True)
    comparison.save(tmp_path / "comparison.json")
    assert Comparison.load(tmp_path / "comparison.json") == comparison
    (tmp_path / "other.json").write_text('{"kind": "curve"}')
    with pytest.raises(spillway.ConfigError, match=r"must be a file of Comparison.save"):
        Comparison.load(tmp_path / "other.json")


def test_unvalidated_servers_are_named_and_marked(systems: dict[str, Simulation]) -> None:
    pytest.importorskip("matplotlib").use("agg")
    server = instance.Server(model="llama-3.1-8b", gpu="mi300x")
    today = systems["today"]
    pair = {"today": today, "mi300x": today.replace(instances=[server.group])}
    comparison = compare(pair, seeds=2, figures=["goodput"])
    assert comparison.unvalidated == ("mi300x",)
    assert "computed, not measured (unvalidated): mi300x." in str(comparison)
    assert [label.get_text() for label in comparison.plot().texts] == ["step times: unvalidated"]


def test_without_randomness_there_is_no_verdict() -> None:
    trace = spillway.trace(arrival_s=[0, 0.1, 0.2], input_tokens=[100] * 3, output_tokens=[5] * 3)
    simulation = Simulation(workload=trace)
    larger = simulation.with_({"instances[0].count": 2})
    comparison = compare({"a": simulation, "b": larger}, seeds=3)
    assert {v.outcome for v in comparison.verdicts} == {"undecided"}
    assert "nothing in the configuration is random" in str(comparison)


def test_a_saturated_system_is_named() -> None:
    calm = Simulation().with_({"workload.num_requests": 10_000})
    busy = calm.with_({"workload.requests_per_s": 10_000.0})
    pair = {"calm": calm, "busy": busy}
    comparison = compare(pair, seeds=2, figures=["mean_e2el_ms"], allow_different_workloads=True)
    assert comparison["busy", "mean_e2el_ms"].outcome == "worse"
    (note,) = (text for text in comparison.notes if "seed 0" in text)
    assert note.startswith("busy, seed 0: saturated: the requests in the system grow by")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": 1}, "seeds = 1: must be at least 2 seeds"),
        ({"figures": ["p98"]}, r"figures\[0\] = 'p98': must be one of completed"),
        ({"figures": ["offered"]}, r"figures\[0\] = 'offered': must be one of"),
        ({"figures": []}, "figures = .*must name at least one"),
        ({"confidence": 1.0}, "confidence = 1: must be >= 0.5 and < 1"),
        ({"half_width": 0.0}, "half_width = 0: must be > 0"),
        ({"half_width": 0.1, "max_seeds": 3}, "max_seeds = 3: must be >= 16"),
        ({"max_seeds": 3}, "max_seeds = 3: must be None without half_width"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(spillway.ConfigError, match=message):
        compare({"a": Simulation(), "b": Simulation()}, **arguments)


def test_one_system_is_not_a_comparison() -> None:
    with pytest.raises(spillway.ConfigError, match="systems = 1 systems: must be at least two"):
        compare({"a": Simulation()})


# --- error rates ----------------------------------------------------------------------------------


NO_COSTS = dict.fromkeys(
    ("alpha0_us", "alpha_input_us", "alpha_output_us", "beta_prefill_us", "beta_decode_us"), 0
)


def mirrored(slower: float = 1) -> dict[str, Simulation]:
    """Two systems that prefer one or the other of two equal classes.

    By symmetry their figures over all requests have the same distribution, but their paths differ.
    In the second all times are `slower` times as long, and with them all latencies.
    """

    def system(first: int, second: int, factor: float) -> Simulation:
        priorities = {"x": first, "y": second}
        classes = [{"name": name, "priority": priorities[name]} for name in priorities]
        return Simulation.from_dict(
            {
                "workload": {
                    "kind": "synthetic",
                    "num_requests": 300,
                    "requests_per_s": 20 / factor,
                    "clients": [
                        {
                            "name": name,
                            "slo_class": name,
                            "rate_fraction": 0.5,
                            "input_tokens": {"kind": "fixed", "tokens": 16},
                            "output_tokens": {"kind": "exponential", "mean_tokens": 15},
                        }
                        for name in ("x", "y")
                    ],
                },
                "slo_classes": classes,
                "warm_up_s": 2 * factor,
                "instances": {
                    "scheduler": "priority_fcfs",
                    "max_num_seqs": 4,
                    "latency": {"kind": "linear", **NO_COSTS, "beta0_us": 10_000 * factor},
                },
            }
        )

    return {"x first": system(1, 0, 1), "y first": system(0, 1, slower)}


@pytest.mark.long
def test_equal_systems_with_different_paths_are_rarely_distinguished() -> None:
    pair = mirrored()
    errors = looks = 0
    for i in range(1000):
        comparison = compare(
            pair,
            seeds=range(100 * i, 100 * i + 8),
            figures=["mean_e2el_ms", "p90_e2el_ms"],
            half_width=0.04,
            max_seeds=32,
            allow_different_workloads=True,
            allow_different_populations=True,
        )
        errors += any(verdict.outcome in ("better", "worse") for verdict in comparison.verdicts)
        looks += len(comparison.seeds) > 8
    print(f"errors {errors} of 1000; {looks} went on after the first look")
    assert errors <= 60
    assert looks > 100


@pytest.mark.long
def test_a_difference_of_two_percent_is_found_within_the_announced_seeds() -> None:
    pair = mirrored(1.02)
    num_found = 0
    announced = []
    for i in range(200):
        first = 10_000 * i
        options = {"figures": ["mean_e2el_ms"], "allow_different_workloads": True}
        pilot = compare(pair, seeds=range(first, first + 16), **options)
        count = pilot["y first", "mean_e2el_ms"].seeds_for(0.02)
        announced.append(count)
        run = compare(pair, seeds=range(first, first + count), **options)
        num_found += run["y first", "mean_e2el_ms"].outcome == "worse"
    print(f"found {num_found} of 200; announced seeds: {np.percentile(announced, [5, 50, 95])}")
    assert num_found >= 160


def test_a_figure_that_is_not_compared_and_worsens_is_said() -> None:
    """Fewer permits: first tokens come later, tokens after them sooner."""
    arrivals = workload.Synthetic(requests_per_s=40, num_requests=600)
    base = Simulation(workload=arrivals)
    limited = base.with_({"gateway.limit": {"kind": "fixed", "max_in_flight": 8}})
    pair = {"open": base, "limited": limited}

    def said(**options: Any) -> list[str]:
        found = compare(pair, seeds=6, **options).notes
        return [note.partition(" is worse")[0] for note in found if " is worse with " in note]

    assert "p99_ttft_ms" in said(figures=["mean_tpot_ms"])
    assert "p99_ttft_ms" not in said(figures=["mean_tpot_ms", "p99_ttft_ms"])
    (note,) = (
        note
        for note in compare(pair, seeds=6, figures=["mean_tpot_ms"]).notes
        if note.startswith("p99_ttft_ms")
    )
    assert "{p99_ttft_ms: '<=" in note
    same = compare({"open": base, "same": base}, seeds=4, figures=["mean_tpot_ms"])
    assert not any(" is worse with " in note for note in same.notes)


def test_all_pairs_begin_with_a_ranking() -> None:
    arrivals = workload.Synthetic(requests_per_s=20, num_requests=400)
    systems = {
        f"limit {permits}": Simulation(workload=arrivals).with_(
            {"gateway.limit": {"kind": "fixed", "max_in_flight": permits}}
        )
        for permits in (2, 4, 64)
    }
    shown = str(compare(systems, seeds=6, figures=["mean_ttft_ms"], all_pairs=True))
    lines = shown.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("ranking"))
    places = [line[: len("limit 64")].strip() for line in lines[start + 2 : start + 5]]
    assert places == ["limit 64", "limit 4", "limit 2"]
    assert start < next(i for i, line in enumerate(lines) if " against " in line)


def test_the_verdict_of_a_comparison_is_a_sentence_per_pair() -> None:
    base = Simulation(workload=workload.Synthetic(requests_per_s=40, num_requests=400))
    limited = base.with_({"gateway.limit": {"kind": "fixed", "max_in_flight": 4}})
    found = compare(
        {"open": base, "limited": limited, "same": base}, seeds=4, figures=["mean_ttft_ms"]
    )
    worse, same = found.verdicts
    assert (worse.outcome, same.outcome) == ("worse", "same")
    assert found.verdict.startswith("limited against open: worse in mean_ttft_ms, ")
    assert f"({worse.relative:+.1%})" in found.verdict
    assert found.verdict.endswith(". same is not shown to differ from open.")


def test_figures_of_a_class_or_tenant_are_compared_as_those_of_all() -> None:
    clients = [
        {"name": name, "tenant": name, "requests_per_s": 4, "slo_class": name}
        for name in ("gold", "bronze")
    ]
    base = Simulation(
        tenants=[{"name": "gold"}, {"name": "bronze"}],
        slo_classes=[{"name": "gold"}, {"name": "bronze"}],
        workload={"kind": "synthetic", "duration_s": 10, "clients": clients},
    )
    systems = {"one": base, "two": base.with_({"instances[0].count": 2})}
    found = compare(systems, seeds=4, figures=["p99_ttft_ms[tenant=gold]", "p99_ttft_ms"])
    of_gold, of_all = found.verdicts
    assert (of_gold.figure, of_all.figure) == ("p99_ttft_ms[tenant=gold]", "p99_ttft_ms")
    for verdict, name in ((of_gold, "gold"), (of_all, None)):
        runs = [simulate(base, seed) for seed in range(4)]
        known = [run.summary() if name is None else run.by_tenant()[name] for run in runs]
        mean = sum(float(figures["p99_ttft_ms"]) for figures in known) / 4
        assert verdict.before == pytest.approx(mean)
    assert of_gold.populations != of_all.populations
    assert found.plot() is not None
    with pytest.raises(ConfigError, match=r"\[silver\]: no such class or tenant; one of gold, "):
        compare(systems, seeds=2, figures=["p99_ttft_ms[silver]"])
    with pytest.raises(ConfigError, match=r"a class and a tenant; use \[class=gold\] or "):
        compare(systems, seeds=2, figures=["p99_ttft_ms[gold]"])
