"""Public threads as runs: the effect that was reported, and what the agreed remedy gains."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

import spillway
from spillway import Result, Simulation

FOLDER = Path(__file__).parent
THREADS = sorted(path.parent for path in FOLDER.glob("*/thread.yaml"))
NUMBERS = range(1, 31)
FIRST = 3
"""The cause is among this many findings of the situation."""


WITHOUT_REMEDY: dict[int, str] = {
    13: "the maintainers' answer is not known",
    25: "nothing has to be cured",
}


def check_share(what: str, count: int, of: int, least: float) -> None:
    """Prints a share, which `make shares` shows, and checks it."""
    print(f"\n{what}: {count:,} of {of:,}, {count / of:.1%}, at least {least:.0%}")
    assert count >= least * of


def number_of(folder: Path) -> int:
    return int(folder.name.partition("-")[0])


def read(folder: Path) -> dict[str, Any]:
    thread: dict[str, Any] = yaml.safe_load((folder / "thread.yaml").read_text())
    return thread


def figure(result: Result, name: str, of: dict[str, str] | None) -> float:
    if name == "instances_used":
        sent = Counter(result.requests["instance"][result.requests["instance"] >= 0].tolist())
        return sum(count > 0.05 * sent.total() for count in sent.values())
    if name == "attempts":
        return float(result.ledger["attempts"])
    figures = result.summary()
    for group, value in (of or {}).items():
        figures = result.by_tenant()[value] if group == "tenant" else result.by_class()[value]
    if name == "refused":
        return 1 - figures["completed"] / figures["offered"]
    value = figures[name]
    return math.nan if value is None else float(value)


def misses(thread: dict[str, Any], result: Result, which: str) -> list[str]:
    """The figures that are outside of their bounds."""
    found = []
    for expected in thread["expect"]:
        if which not in expected:
            continue
        least, most = (bound if bound is not None else None for bound in expected[which])
        value = figure(result, expected["figure"], expected.get("of"))
        is_within = (least is None or value >= least) and (most is None or value <= most)
        if not is_within:
            of = expected.get("of") or ""
            found.append(
                f"{which}: {expected['figure']} {of} = {value:.5g}, not in {least}..{most}"
            )
    return found


@pytest.mark.parametrize("folder", THREADS, ids=lambda folder: folder.name)
def test_the_thread_shows_what_was_reported_and_what_the_remedy_gains(folder: Path) -> None:
    thread = read(folder)
    assert (
        {"source", "asked", "shows", "expect"}
        <= thread.keys()
        <= {
            *("source", "asked", "shows", "cause", "remedy", "expect", "findings", "seed"),
        }
    )
    simulation = spillway.load(folder / "configuration.yaml")
    seed = thread.get("seed", 1)
    result = spillway.simulate(simulation, seed)
    found = misses(thread, result, "base")
    if "cause" in thread:
        assert thread["cause"] in [finding.name for finding in result.findings()[:FIRST]]
    findings = [str(finding) for finding in spillway.check(simulation)]
    for text in thread.get("findings", ()):
        assert any(text in finding for finding in findings), findings
    remedy = thread.get("remedy")
    assert (remedy is None) == (number_of(folder) in WITHOUT_REMEDY)
    if remedy is not None:
        cured = simulation.with_(remedy)
        assert any("remedy" in expected for expected in thread["expect"])
        found += misses(thread, spillway.simulate(cured, seed), "remedy")
    assert found == []


def test_findings_name_most_causes() -> None:
    """Those that state a cause; the test above has it among the first findings of each."""
    named = sum("cause" in read(folder) for folder in THREADS)
    check_share("threads with the cause among the findings", named, len(THREADS), LEAST_CAUSES)


# ---- siblings, and what is tried -----------------------------------------------------------------

LEAST_CAUSES = 0.85
SIBLINGS = 20
LEAST_NAMED = 0.8
LEAST_REMEDIES = 0.75
LARGE_FLEET = 4


def fleet_size(groups: list[dict[str, Any]]) -> int:
    return sum(group.get("count", 1) for group in groups)


def sibling(folder: Path, number: int) -> tuple[Simulation, int]:
    """The situation with other rates, lengths and servers, each by up to 15%, and its seed."""
    rng = random.Random(f"{folder.name} {number}")
    settings = yaml.safe_load((folder / "configuration.yaml").read_text())
    rate, *lengths = (rng.uniform(0.85, 1.15) for _ in range(3))
    groups = settings["instances"]
    count = fleet_size(groups)
    for group in groups:
        of_group = group.get("count", 1)
        group["count"] = of_group + rng.choice((-1, 0, 1)) * (of_group >= LARGE_FLEET)
    for client in settings["workload"]["clients"]:
        for name, factor in zip(("input_tokens", "output_tokens"), lengths, strict=True):
            client[name]["tokens"] = max(1, round(client[name]["tokens"] * factor))
        if "requests_per_s" in client:
            client["requests_per_s"] *= rate * fleet_size(groups) / count
        arrivals = client.get("arrivals", {})
        if "users" in arrivals:
            arrivals["users"] = round(arrivals["users"] * rate)
    return spillway.loading.from_settings(settings), rng.randrange(1000)


@pytest.mark.slow
def test_the_cause_is_named_in_siblings_too() -> None:
    named = 0
    for folder in THREADS:
        cause = read(folder).get("cause")
        for number in range(SIBLINGS):
            simulation, seed = sibling(folder, number)
            findings = spillway.simulate(simulation, seed).findings()
            named += cause in [finding.name for finding in findings[:FIRST]]
    check_share("the same of siblings", named, SIBLINGS * len(THREADS), LEAST_NAMED)


@pytest.mark.slow
def test_the_agreed_remedy_is_among_the_best_that_are_tried() -> None:
    found = {}
    for folder in THREADS:
        thread = read(folder)
        if thread.get("remedy") is None:
            continue
        simulation = spillway.load(folder / "configuration.yaml")
        diagnosis = spillway.diagnose(simulation, thread.get("seed", 1), tries=True)
        tried = {path for trial in diagnosis.trials[:FIRST] for path in trial.settings}
        found[folder.name] = any(
            same_setting(path, known) for path in thread["remedy"] for known in tried
        )
    best = sum(found.values())
    check_share("remedies among the best of --try", best, len(found), LEAST_REMEDIES)


def same_setting(first: str, second: str) -> bool:
    """Whether two paths name one setting, or one names a part of the other."""
    parts = [path.replace("[0]", "") for path in (first, second)]
    return parts[0].startswith(parts[1]) or parts[1].startswith(parts[0])


def test_every_number_is_a_thread() -> None:
    assert [number_of(folder) for folder in THREADS] == list(NUMBERS)


def test_the_page_lists_every_thread() -> None:
    page = (FOLDER / "README.md").read_text()
    rows = re.findall(r"^\| (\d+) \|", page, re.MULTILINE)
    assert [int(row) for row in rows] == list(NUMBERS)
    for folder in THREADS:
        assert f"[{folder.name}]({folder.name}/thread.yaml)" in page
