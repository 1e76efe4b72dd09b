"""The named workloads, against the published tables, transcribed independently."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest

import spillway
from spillway import Simulation, gateway, presets, simulate, workload

# bench/scenarios of Nicolas-Richard/vllm-on-eks:
# total in s, and per client: tenant, requests/s, start in s, duration in s, prompts.
Clients = list[tuple[str, float, float, float, int]]
PUBLISHED: dict[str, tuple[float, Clients]] = {
    "baseline": (60, [("A", 2, 0, 60, 120), ("C", 1, 0, 60, 60)]),
    "noisy-neighbor": (
        360,
        [("A", 5, 0, 360, 1800), ("B", 30, 120, 60, 1800), ("C", 3, 0, 360, 1080)],
    ),
    "noisy-neighbor-small": (
        300,
        [("A", 1.5, 0, 300, 450), ("B", 30, 90, 15, 450), ("C", 0.5, 0, 300, 150)],
    ),
    "work-conservation": (180, [("B", 7.5, 0, 180, 1350), ("A", 7.5, 60, 60, 450)]),
    "work-conservation-priority": (240, [("B", 6, 0, 240, 1440), ("A", 4, 60, 60, 240)]),
    "aimd-baseline": (180, [("A", 0.5, 0, 180, 90)]),
    "aimd-sustained-pressure": (300, [("A", 0.5, 0, 300, 150), ("B", 8, 60, 90, 720)]),
    # C's prompts last for half of the 900 s that the file states.
    "sustained-15min": (900, [("A", 5, 0, 900, 4500), ("C", 4, 0, 450, 1800)]),
    "tenant-a-20rps": (900, [("A", 20, 0, 900, 18000)]),
    "autoscale-demo": (
        1410,
        [
            ("A", 2, 0, 30, 60),
            ("A", 6, 30, 180, 1080),
            ("A", 9, 210, 30, 270),
            ("A", 12, 240, 300, 3600),
            ("A", 14, 540, 30, 420),
            ("A", 16, 570, 180, 2880),
            ("A", 11, 750, 30, 330),
            ("A", 8, 780, 30, 240),
            ("A", 6, 810, 600, 3600),
        ],
    ),
    "autoscale-demo-128": (
        1410,
        [
            ("A", 5, 0, 30, 150),
            ("A", 12, 30, 180, 2160),
            ("A", 18, 210, 30, 540),
            ("A", 24, 240, 300, 7200),
            ("A", 28, 540, 30, 840),
            ("A", 32, 570, 180, 5760),
            ("A", 22, 750, 30, 660),
            ("A", 16, 780, 30, 480),
            ("A", 12, 810, 600, 7200),
        ],
    ),
    # The blog's post of 2026-05-02: 240, 450 and 120 requests.
    "static-caps": (120, [("A", 2, 0, 120, 240), ("B", 30, 40, 15, 450), ("C", 1, 0, 120, 120)]),
}
# Clients that stop at an instant: tenant, requests/s, start in s, duration in s.
WINDOWS = {"toy-plant": (300, [("B", 6, 0, 300), ("A", 4, 60, 240)])}
each_scenario = pytest.mark.parametrize("name", presets.names("scenario"))


def offered(name: str, seed: int = 1) -> spillway.Result:
    """The scenario's requests, rejected on arrival."""
    scenario = presets.get(name)
    return simulate(
        scenario.apply(Simulation(gateway=gateway.Gateway(admission=gateway.RejectAll()))), seed
    )


def test_names() -> None:
    names = presets.names("scenario")
    assert sorted(names) == sorted([*PUBLISHED, *WINDOWS])  # none twice
    for name in names:
        scenario = presets.get(name)
        assert scenario.name == name
        assert scenario.workload != presets.get(names[names.index(name) - 1]).workload


@pytest.mark.parametrize("name", PUBLISHED)
def test_clients_are_those_that_were_published(name: str) -> None:
    total_s, clients = PUBLISHED[name]
    scenario = presets.get(name)
    assert scenario.duration_s == total_s
    assert [
        (client.tenant, client.requests_per_s, client.start_s, client.num_requests)
        for client in scenario.workload.clients
    ] == [(tenant, rate, start, prompts) for tenant, rate, start, _, prompts in clients]
    assert all(client.duration_s is None for client in scenario.workload.clients)
    # The published durations are those of the prompts at their rate.
    assert [prompts / rate for _, rate, _, _, prompts in clients] == [
        duration for _, _, _, duration, _ in clients
    ]
    assert max(start + duration for _, _, start, duration, _ in clients) == total_s


@pytest.mark.parametrize("name", PUBLISHED)
def test_requests_are_those_that_were_published(name: str) -> None:
    _, clients = PUBLISHED[name]
    requests = offered(name).requests
    assert requests.num_rows == sum(prompts for *_, prompts in clients)
    of_tenant: dict[str, Clients] = defaultdict(list)
    for client in clients:
        of_tenant[client[0]].append(client)
    for tenant, phases in of_tenant.items():
        arrival_s = requests["arrival_s"][requests["tenant"] == tenant]
        assert len(arrival_s) == sum(prompts for *_, prompts in phases)
        assert arrival_s[0] >= phases[0][2]
        _, rate, start_s, duration_s, prompts = phases[-1]
        # The last of n arrivals is Gamma(n, rate): four standard deviations around its mean.
        assert abs(arrival_s[-1] - (start_s + duration_s)) <= 4 * math.sqrt(prompts) / rate
    assert set(requests["input_tokens"].tolist()) == {128 if name.endswith("-128") else 512}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str) -> None:
    total_s, clients = WINDOWS[name]
    scenario = presets.get(name)
    assert scenario.duration_s == total_s
    requests = offered(name).requests
    for tenant, rate, start_s, duration_s in clients:
        arrival_s = requests["arrival_s"][requests["tenant"] == tenant]
        assert start_s <= arrival_s[0] < start_s + 10 / rate
        assert start_s + duration_s - 10 / rate < arrival_s[-1] < start_s + duration_s
        assert abs(len(arrival_s) - rate * duration_s) <= 4 * math.sqrt(rate * duration_s)
    # One run of the source's had 2,758.
    assert abs(requests.num_rows - 2760) <= 4 * math.sqrt(2760)


@each_scenario
def test_lengths_arrivals_tenants_and_classes(name: str) -> None:
    scenario = presets.get(name)
    prompt = 128 if name == "autoscale-demo-128" else 512
    classes = {"A": "critical", "B": "sheddable", "C": "standard"}
    for client in scenario.workload.clients:
        assert client.input_tokens == workload.Fixed(tokens=prompt)
        assert client.output_tokens == workload.Fixed(tokens=128)
        assert client.arrivals == workload.Poisson()
        assert client.slo_class == classes[client.tenant]
    assert {tenant.name: tenant.weight for tenant in scenario.tenants} == {"A": 2, "B": 1, "C": 1}
    assert all(slo_class.target_ttft_s == 2 for slo_class in scenario.slo_classes)
    assert scenario.doc.endswith(".")
    assert "  " not in scenario.doc


@each_scenario
def test_apply_changes_nothing_else(name: str) -> None:
    scenario = presets.get(name)
    before = Simulation(router="least_loaded", warm_up_s=5)
    after = scenario.apply(before)
    assert after.workload == scenario.workload
    assert after.tenants == scenario.tenants
    assert after.slo_classes == scenario.slo_classes
    assert (
        after.replace(
            workload=before.workload, tenants=before.tenants, slo_classes=before.slo_classes
        )
        == before
    )
    assert scenario.apply() == Simulation.from_dict(scenario.to_dict())


def test_a_scenario_runs() -> None:
    result = simulate(presets.get("baseline").apply(), 0)
    assert result.ledger["completed"] == 180
    assert list(result.by_tenant()) == ["A", "B", "C"]
    assert result.summary()["goodput"] is not None


def test_scenarios_in_words() -> None:
    text = presets.descriptions.scenarios()
    for name in presets.names("scenario"):
        assert f"{name} (" in text
    assert "    B: 30 requests/s from 120 s until 1,800 requests" in text
    assert "    A: 4 requests/s from 60 s for 240 s" in text
    assert all(len(line) <= 100 for line in text.splitlines())
