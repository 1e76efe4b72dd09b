"""Decision logs of small fixed runs do not change; a change shows as a readable difference."""

from __future__ import annotations

import csv
import difflib
import io
from collections import Counter
from typing import Any

import pytest
from golden import regenerate
from support.random_simulations import VARIANTS, alternatives_of
from support.specimens import at

from spillway import simulate
from spillway.config import describe


def difference(expected: str, rerun: str) -> str:
    """The lines that differ, with the header above them."""
    before, after = expected.splitlines(), rerun.splitlines()
    lines = [
        line
        for line in difflib.unified_diff(before, after, "golden", "found", n=0, lineterm="")
        if not line.startswith("@@")
    ]
    return "\n".join([" " + before[0], *lines])


@pytest.mark.parametrize("name", regenerate.RUNS)
def test_decisions_are_the_recorded_ones(name: str) -> None:
    recorded = (regenerate.FOLDER / f"{name}.csv").read_text(encoding="utf-8")
    rerun = regenerate.decision_log(name)
    if rerun != recorded:
        pytest.fail(
            f"{difference(recorded, rerun)}\n\n"
            "If this is meant: `make golden`, and say why in the commit.",
            pytrace=False,
        )


def test_every_recording_belongs_to_a_run() -> None:
    assert {path.stem for path in regenerate.FOLDER.iterdir()} == set(regenerate.RUNS)


def test_every_policy_is_recorded() -> None:
    """But those without settings, which have no state."""
    recorded = {variant for make in regenerate.RUNS.values() for variant in alternatives_of(make())}
    for variant in VARIANTS:
        if variant.seam in ("Gateway.admission", "Band.fairness"):
            has_settings = describe.descriptor(VARIANTS[variant].path)["of"]["fields"]
            assert variant in recorded or not has_settings, variant


def test_the_run_shows_what_it_is_for() -> None:
    rows = list(csv.DictReader(io.StringIO(regenerate.decision_log("token_bucket_least_loaded"))))
    reasons = Counter(row["reason"] for row in rows)
    outcomes = Counter(row["outcome"] for row in rows)
    assert len(rows) == regenerate.NUM_REQUESTS
    assert reasons["insufficient_tokens"] >= 5
    assert reasons["unservable"] >= 2
    assert outcomes["completed"] >= 30
    assert set(outcomes) > {"completed", "rejected"}, "the horizon leaves some unfinished"
    assert {row["instance"] for row in rows} == {"", "0", "1", "2"}
    assert sum(float(row["queue_s"] or 0) > 0.001 for row in rows) >= 5, "the limit makes some wait"
    assert {row["output_tokens"] for row in rows} > {"0", "1"}


def test_prefixes_overtake_others_until_these_have_aged() -> None:
    ordered = regenerate.longest_prefix()
    ways = [
        {},
        {"instances[0].scheduler.aging_tokens_per_step": 0},
        {"instances[0].scheduler": "fcfs"},
    ]
    delays = [
        tuple(simulate(ordered.with_(way), regenerate.SEED).requests["scheduling_delay_s"])
        for way in ways
    ]
    assert len(set(delays)) == 3
    assert max(delays[0]) < max(delays[1])


@pytest.mark.parametrize(
    ("name", "policy"),
    [golden for specimen in at("Gateway.admission") for golden in specimen.golden.items()],
)
def test_admission_policies_refuse_some_and_admit_some(name: str, policy: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(regenerate.decision_log(name))))
    reasons = {reason["name"] for reason in type(policy)._describe()["reasons"]}
    refused = [row["reason"] in reasons for row in rows]
    assert 5 <= sum(refused) <= 50
    assert sum(row["outcome"] == "completed" for row in rows) >= 5


def test_a_difference_is_readable() -> None:
    text = difference("id,instance\na,0\nb,1\nc,2\n", "id,instance\na,0\nb,2\nc,2\n")
    assert text.splitlines() == [" id,instance", "--- golden", "+++ found", "-b,1", "+b,2"]
