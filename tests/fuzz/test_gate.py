"""The gate of the random simulations: what occurred too rarely fails it."""

from __future__ import annotations

from collections import Counter

from support.paths import TESTS, importing_from

with importing_from(TESTS / "fuzz"):
    import fuzz

MADE, LEAST = 10_000, 200


def enough() -> fuzz.Report:
    """The report of simulations in which everything occurred."""
    counts = Counter(
        dict.fromkeys(
            ("configurations", "runs", "shed more than half", "divided into causes"), MADE
        )
    )
    counts.update({f"with {name}": MADE for name in (*fuzz.EXTENSIONS, *fuzz.EXPERIMENTS)})
    return fuzz.Report(counts, Counter(dict.fromkeys(map(str, fuzz.ALTERNATIVES), LEAST)))


def test_simulations_in_which_everything_occurs_pass() -> None:
    assert fuzz.shortage(enough(), MADE) == []


def test_every_alternative_must_occur_two_hundred_times_in_ten_thousand() -> None:
    seams = {alternative.seam for alternative in fuzz.ALTERNATIVES}
    assert {"Simulation.router", "Weighted.scorers", "Gateway.admission", "Gateway.limit"} <= seams
    for alternative in map(str, fuzz.ALTERNATIVES):
        seen = enough()
        seen.alternatives[alternative] -= 1
        assert fuzz.shortage(seen, MADE) == [f"{alternative} occurred 199 times, not 200"]


def test_every_alternative_must_occur_in_a_part() -> None:
    seen = enough()
    first = str(fuzz.ALTERNATIVES[0])
    seen.alternatives[first] = 1
    assert fuzz.shortage(seen, fuzz.CONFIGURATIONS // 10) == []
    seen.alternatives[first] = 0
    assert fuzz.shortage(seen, fuzz.CONFIGURATIONS // 10) == [f"{first} occurred 0 times, not 1"]


def test_latencies_must_be_divided_into_causes() -> None:
    seen = enough()
    seen.counts["divided into causes"] = MADE // 4 - 1
    assert fuzz.shortage(seen, MADE) == ["fewer than 25% of the runs were divided into causes"]
