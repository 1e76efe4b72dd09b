"""Every verdict of an admission policy by a plain restatement of its rule."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from support.effort import often, scaled, trials
from support.runs import MS, SECOND, fixed, ns, steady
from support.specimens import Specimen, at
from support.twins import admission as plain

from spillway import Result, Simulation, gateway, instance, metrics, simulate, workload
from spillway import trace as recorded
from spillway.config.profiles import BLIS_SERVER

STEP = SECOND // 100
BLOCKS = 100
TENANTS = [
    workload.Tenant(name="a", weight=1),
    workload.Tenant(name="b", weight=2.5),
    workload.Tenant(name="c", weight=0.5),
]
CLASSES = [
    plain.Class("critical", 4, ttft_s=0.5, e2e_s=1.2),
    plain.Class("standard", 3, ttft_s=0.9, tpot_s=0.0101),
    plain.Class("open", 0),
    plain.Class("batch", -1, ttft_s=0.4, tpot_s=0.019, e2e_s=1.0),
    plain.Class("sheddable", -2, ttft_s=0.25),
]
SLO_CLASSES = [
    workload.SloClass(
        name=slo_class.name,
        priority=slo_class.priority,
        target_ttft_s=slo_class.ttft_s,
        target_tpot_s=slo_class.tpot_s,
        target_e2e_s=slo_class.e2e_s,
    )
    for slo_class in CLASSES
]


def one_seat(count: int) -> instance.InstanceGroup:
    """What the oracle's fleet is: one request at a time, a hundredth of a second per token."""
    return BLIS_SERVER.replace(
        count=count, max_num_seqs=1, num_kv_blocks=BLOCKS, latency=steady(STEP / MS)
    )


class Trial:
    """A random overload of a random gateway with one policy: as simulated and as restated."""

    def __init__(self, specimen: Specimen, seed: int) -> None:
        rng = random.Random(seed)
        self.policy = specimen.random(rng)
        n, count = 150, rng.choice((1, 2, 3))
        # Nothing else happens at an instant of these.
        mean_gap = rng.choice((0.05, 0.1)) / count * SECOND
        arrivals = np.cumsum([rng.randrange(1, int(2 * mean_gap)) for _ in range(n)]).tolist()
        self.requests = [
            plain.Request(
                row=row,
                arrival=at,
                prompt=rng.choice((1, 60, 300, 900)),
                output=rng.choice((1, 2, 10, 30)),
                tenant=rng.randrange(len(TENANTS)),
                slo_class=k,
                priority=CLASSES[k].priority,
            )
            for row, at in enumerate(arrivals)
            for k in [rng.randrange(len(CLASSES))]
        ]
        permits = 3 if specimen.queues else rng.choice((None, None, 4))
        timeout_s = rng.choice((None, 0.31)) if permits else None
        self.simulation = Simulation(
            workload=recorded(
                arrival_s=[request.arrival / SECOND for request in self.requests],
                input_tokens=[request.prompt for request in self.requests],
                output_tokens=[request.output for request in self.requests],
                tenant=[TENANTS[request.tenant].name for request in self.requests],
                slo_class=[CLASSES[request.slo_class].name for request in self.requests],
            ),
            tenants=TENANTS,
            slo_classes=SLO_CLASSES,
            gateway=gateway.Gateway(
                admission=self.policy,
                bands=gateway.Band(queue=gateway.Queue(timeout_s=timeout_s)),
                limit=fixed(permits) if permits else "unlimited",
            ),
            router="round_robin",
            instances=one_seat(count),
            metrics=metrics.Metrics(traced_candidates=count),
        )
        self.fleet = plain.Fleet(count, STEP, BLOCKS)
        rule = specimen.rule(self.policy, self.fleet, TENANTS, CLASSES)
        timeout = None if timeout_s is None else round(timeout_s * SECOND)
        self.gateway = plain.Gateway(rule, permits, timeout, seed)
        self.seed = seed

    def compare(self) -> Counter[str] | None:
        """The outcomes of the requests; None if a verdict depends on rounding."""
        try:
            self.gateway.run(self.requests)
        except plain.UnclearError:
            return None
        result = simulate(self.simulation, self.seed)
        columns = result.requests
        assert columns["outcome"].tolist() == [request.outcome for request in self.requests]
        assert ns(columns["ttft_s"]) == [
            -1 if request.dispatched is None else request.first_token - request.arrival
            for request in self.requests
        ]
        reasons = {reason["name"] for reason in type(self.policy)._describe()["reasons"]}
        refused = columns["outcome"] == "rejected"
        assert set(columns["reason"][refused].tolist()) <= reasons
        self.check_fleet(result)
        return Counter(columns["outcome"].tolist())

    def check_fleet(self, result: Result) -> None:
        """The oracle's fleet is in the state that routing saw, where nothing else happens then."""
        seen = result.decisions
        for k, row in enumerate(seen["row"].tolist()):
            now = self.requests[row].dispatched
            assert now is not None
            if now != self.requests[row].arrival:
                continue
            for c in range(self.fleet.count):
                i = int(seen["candidate_instance"][k][c])
                there = [request for request in self.fleet.sent[i] if request.dispatched < now]
                before = plain.Fleet(self.fleet.count, STEP, BLOCKS)
                before.sent[i] = there
                assert seen["candidate_waiting"][k][c] == len(before.waiting(i, now))
                assert seen["candidate_running"][k][c] == len(before.running(i, now))
                assert seen["candidate_in_flight"][k][c] == before.in_flight(i, now)
                assert seen["candidate_kv_utilization"][k][c] == before.kv_utilization(i, now)


RULES = [specimen for specimen in at("Gateway.admission") if specimen.rule]


@pytest.mark.parametrize("specimen", RULES, ids=lambda specimen: specimen.policy.kind)
def test_verdicts_are_those_of_the_rule(specimen: Specimen) -> None:
    compared = [Trial(specimen, seed).compare() for seed in trials(25)]
    assert compared.count(None) < max(2, scaled(5))
    total = sum((counts for counts in compared if counts is not None), Counter[str]())
    assert total["rejected"] > often(100)
    assert total["completed"] > often(500)
