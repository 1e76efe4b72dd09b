"""Decision logs of small fixed runs do not change; a change shows as a readable difference."""

from __future__ import annotations

import csv
import difflib
import io
from collections import Counter

import pytest
from golden import regenerate
from support.settings import fields_of

from spillway import gateway


def difference(expected: str, found: str) -> str:
    """The lines that differ, with the header above them."""
    before, after = expected.splitlines(), found.splitlines()
    lines = [
        line
        for line in difflib.unified_diff(before, after, "golden", "found", n=0, lineterm="")
        if not line.startswith("@@")
    ]
    return "\n".join([" " + before[0], *lines])


@pytest.mark.parametrize("name", regenerate.RUNS)
def test_decisions_are_the_recorded_ones(name: str) -> None:
    recorded = (regenerate.FOLDER / f"{name}.csv").read_text(encoding="utf-8")
    found = regenerate.decision_log(name)
    if found != recorded:
        pytest.fail(
            f"{difference(recorded, found)}\n\n"
            "If this is meant: python tests/golden/regenerate.py, and say why in the commit.",
            pytrace=False,
        )


def test_every_recording_belongs_to_a_run() -> None:
    assert {path.stem for path in regenerate.FOLDER.iterdir()} == set(regenerate.RUNS)


def test_every_policy_is_recorded() -> None:
    admission = fields_of(gateway.Gateway)["admission"]["alternatives"]
    fairness = fields_of(gateway.Band)["fairness"]["alternatives"]
    recorded = {policy.kind for policy in (regenerate.ADMISSION | regenerate.FAIRNESS).values()}
    elsewhere = {
        *("always_admit", "reject_all"),  # no state
        *("busy_threshold", "predictive_ttft", "token_bucket"),  # in runs of their own
        *("python", "compiled"),  # of no code of their own
    }
    assert recorded | elsewhere == {one["kind"] for one in (*admission, *fairness)}


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


@pytest.mark.parametrize("kind", regenerate.ADMISSION)
def test_admission_policies_refuse_some_and_admit_some(kind: str) -> None:
    rows = list(csv.DictReader(io.StringIO(regenerate.decision_log(kind))))
    reasons = {reason["name"] for reason in type(regenerate.ADMISSION[kind])._describe()["reasons"]}
    refused = [row["reason"] in reasons for row in rows]
    assert 5 <= sum(refused) <= 50
    assert sum(row["outcome"] == "completed" for row in rows) >= 5


def test_a_difference_is_readable() -> None:
    text = difference("id,instance\na,0\nb,1\nc,2\n", "id,instance\na,0\nb,2\nc,2\n")
    assert text.splitlines() == [" id,instance", "--- golden", "+++ found", "-b,1", "+b,2"]
