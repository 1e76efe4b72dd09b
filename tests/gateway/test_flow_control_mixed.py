"""Flow control beside everything else that ends a request: impatient clients that retry, closed
loops, workers that reject, horizons, instances that start later."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.changes import targets
from support.effort import often, trials
from support.runs import SECOND, concurrency, fixed, flat, ns, outcomes, retry, run, ways

from spillway import Result, Simulation, gateway, instance, signals, simulate, workload
from spillway.config.profiles import BLIS_SERVER

PREDICTIVE = gateway.PredictiveTtft(
    budgets=[gateway.TtftBudget(slo_class="standard", budget_s=0.5)]
)
TWO = [gateway.Band(priority=0), gateway.Band()]


def evicting(most: float, **settings: Any) -> gateway.Gateway:
    changes: dict[str, Any] = {"dispatch": "one_per_attempt", "limit": [concurrency(most)]}
    changes["eviction"] = gateway.Eviction(max_victims=2, grace_s=0.1)
    return gateway.Gateway(bands=TWO, **(changes | settings))


# --- one after the other --------------------------------------------------------------------------


def test_evicted_requests_may_retry() -> None:
    """Refused or taken out of an instance, clients see the same status. A second later there is
    room again."""
    mixed: dict[str, Any] = {
        "arrival_s": [0.0, 0.1],
        "slo_class": ["batch", "critical"],
        "gateway": evicting(1),
    }
    assert outcomes(run(**mixed)) == ["evicted", "completed"]
    for on in ([], ["saturated"]):
        again = run(**mixed, reaction=retry(on=on, backoff_s=2))
        assert outcomes(again) == ["completed", "completed"]
        assert again.requests["attempts"].tolist() == [2, 1]
        assert again.requests["e2e_s"][0] == pytest.approx(0.1 + 2 + 1)
        assert again.ledger["evicted_in_flight"] == again.ledger["evicted"] == 1
        assert again.ledger["attempts"] == 3
    other = run(**mixed, reaction=retry(on=["queue_full", "timeout"]))
    assert other.requests["attempts"].tolist() == [1, 1]


def test_what_is_doomed_under_way_is_so_once() -> None:
    """Half a second to the instance, where the victim ends as it enters, withdrawn by its client or
    not. Its next attempt is another matter."""
    settings: dict[str, Any] = {
        "arrival_s": [0.0, 0.1],
        "slo_class": ["batch", "critical"],
        "gateway": evicting(1, routing_latency_s=0.5),
    }
    patient = retry(on=["saturated"], backoff_s=2)
    for timeout_s in (None, 0.2):
        result = run(**settings, reaction=patient.with_({"timeout_s": timeout_s}), horizon_s=0.5)
        assert outcomes(result)[0] == "evicted"
        assert result.ledger["cancelled_in_flight"] == 0
    whole = run(**settings, reaction=patient)
    assert outcomes(whole) == ["completed", "completed"]
    assert whole.requests["attempts"].tolist() == [2, 1]
    # Evicted at 0.5 s, retried at 2.5 s.
    assert ns(whole.requests["e2e_s"])[0] == 4 * SECOND


def test_victim_that_waits_before_its_worker_leaves_at_once() -> None:
    """One inside and two that wait before the worker's gate; the newest of them is evicted."""
    result = run(
        [0.0, 0.1, 0.2, 0.3],
        slo_class=["batch"] * 3 + ["critical"],
        gateway=evicting(3),
        instances=flat().replace(ingress=instance.ControlledDelay(max_requests=1, queue_size=10)),
    )
    assert outcomes(result) == ["completed", "completed", "evicted", "completed"]
    assert result.ledger["evicted_in_flight"] == 1
    # The eviction frees a place in the gateway's count, not in the worker.
    assert [way.ended for way in ways(result)] == [SECOND, 2 * SECOND, None, 3 * SECOND]
    assert result.requests["queue_s"][3] == pytest.approx(0.001)


def test_attempts_resume_once_there_are_workers() -> None:
    for limit in (gateway.Unlimited(), concurrency(10)):
        result = run(
            [0.0, 0.1003, 0.2],
            changes=targets((0, 0), (1, 1)),
            gateway=gateway.Gateway(dispatch="one_per_attempt", limit=limit),
        )
        # A worker takes 40 s to start.
        at = [way.dispatched for way in ways(result)]
        assert at == [41 * SECOND, 41_001_000_000, 41_002_000_000]


@pytest.mark.parametrize("dispatch", ["all", "one_per_attempt"])
@pytest.mark.parametrize("detector", ["utilization", "concurrency"])
@pytest.mark.parametrize("transport", ["live", "scraped"])
def test_ticks_and_samples_end_though_a_request_waits_forever(
    dispatch: str, detector: str, transport: str
) -> None:
    result = run(
        [0.0, 0.1],
        slo_class=["critical", "batch"],
        gateway=gateway.Gateway(
            dispatch=dispatch,
            bands=[gateway.Band(priority=0), gateway.Band(ceiling=0)],
            limit=[gateway.Saturation(detector=detector, max_concurrency=1), fixed(3)],
            controller="aimd",
        ),
        signals=signals.Scraped(period_s=0.05) if transport == "scraped" else signals.Live(),
        metrics={"timeline_step_s": 0.1},
    )
    assert outcomes(result) == ["completed", "queued"]
    assert result.events < 20_000
    assert result.timeline["time_s"][-1] < 60


def test_victim_that_has_ended_dooms_no_other_request() -> None:
    """If tokens arrive as a step starts, a request is complete before its permit is released. The
    next request in its row of the table is unaffected."""
    taken = 0
    for seed in trials(20):
        clients = [
            workload.Client(
                name=name,
                tenant=name,
                slo_class=slo_class,
                num_requests=300,
                requests_per_s=rate,
                input_tokens=workload.Fixed(tokens=1000),
                output_tokens=workload.Fixed(tokens=1),
            )
            for name, slo_class, rate in (("a", "critical", 40), ("b", "batch", 80))
        ]
        simulation = Simulation(
            workload=workload.Synthetic(clients=clients),
            gateway=evicting(3, eviction=gateway.Eviction(max_victims=1, grace_s=0)),
            instances=BLIS_SERVER.replace(completion="step_start"),
        )
        result = simulate(simulation, seed)
        taken += result.ledger["evicted_in_flight"]
        streamed = simulate(simulation.with_({"metrics.streaming": True}), seed)
        assert streamed.ledger == result.ledger, seed
    assert taken > often(100)


# --- all together ---------------------------------------------------------------------------------


def random_ingress(rng: random.Random) -> Any:
    return rng.choice(
        (
            "open",
            "open",
            instance.ControlledDelay(max_requests=2, queue_size=6, delay_s=0.3),
            instance.EngineRequestLimit(max_requests=2, queue_size=2),
        )
    )


COMES_AND_GOES = {"fleet": {"startup_s": 0.1}, "changes": targets((0.2, 0), (0.5, 1))}


def random_mixture(seed: int) -> Simulation:
    rng = random.Random(seed)
    lengths = workload.Gaussian(mean_tokens=30, std_dev_tokens=15, min_tokens=1, max_tokens=60)
    plain: dict[str, Any] = {"num_requests": 40, "input_tokens": lengths, "output_tokens": lengths}
    clients = [
        workload.Client(
            name=name,
            tenant=name,
            slo_class=slo_class,
            arrivals=workload.ClosedLoop(
                users=rng.choice((2, 6, 15)),
                think_time_s=rng.choice((0, 0.05)),
                turns=rng.choice((1, 3)),
            )
            if name == "closed"
            else "poisson",
            requests_per_s=None if name == "closed" else rng.choice((5, 20, 100)),
            **plain,
        )
        for name, slo_class in (
            ("closed", rng.choice(("critical", "batch"))),
            ("urgent", "critical"),
            ("spare", "batch"),
            ("scrap", "sheddable"),
        )
    ]
    patience = {
        name: rng.choice((None, None, 0.1, 0.5, 2))
        for name in ("timeout_s", "first_token_timeout_s", "deadline_s")
    }
    rule = workload.Retry(
        on=rng.choice(([], [], ["saturated", "queue_full"])),
        max_attempts=rng.choice((1, 2, 4)),
        backoff_s=rng.choice((0, 0.05)),
    )
    queue = gateway.Queue(timeout_s=rng.choice((None, 0.3)), max_requests=rng.choice((None, 4)))
    more = rng.choice(([], [], [fixed(6)]))
    return Simulation(
        workload=workload.Synthetic(clients=clients),
        reaction=workload.Reaction(**patience, retries=[rule]),
        gateway=gateway.Gateway(
            admission=rng.choice(("always_admit", "always_admit", PREDICTIVE, "dagor")),
            admission_latency_s=rng.choice((0, 0.01)),
            routing_latency_s=rng.choice((0, 0.003, 0.05)),
            dispatch=rng.choice(("all", "one_per_attempt")),
            bands=[gateway.Band(priority=priority, queue=queue) for priority in (0, -1, -5)],
            max_queued=rng.choice((None, 8)),
            queue_shedding=rng.random() < 0.5,
            limit=[
                gateway.Saturation(
                    detector=rng.choice(("utilization", "concurrency")),
                    max_concurrency=rng.choice((3, 8)),
                    queue_depth_threshold=rng.choice((1, 3)),
                ),
                *more,
            ],
            usage_limit=rng.choice(
                (gateway.StaticCeilings(), gateway.PriorityHoldback(), gateway.SoftReflective())
            ),
            eviction=gateway.Eviction(
                max_victims=rng.choice((1, 3)),
                grace_s=rng.choice((0, 0.02)),
                timeout_s=rng.choice((0.01, 10)),
            ),
            controller="aimd" if more and rng.random() < 0.5 else "static",
            replicas=rng.choice((1, 1, 2)),
        ),
        signals=rng.choice((signals.Live(), signals.Scraped(period_s=0.02))),
        instances=BLIS_SERVER.replace(
            count=rng.choice((1, 2)),
            data_parallel_size=rng.choice((1, 1, 2)),
            max_num_seqs=rng.choice((2, 8, 32)),
            num_kv_blocks=rng.choice((30, 400)),
            ingress=random_ingress(rng),
            completion=rng.choice(("step_end", "step_end", "step_start")),
        ),
        **rng.choice(({}, {}, COMES_AND_GOES)),
        horizon_s=rng.choice((None, None, 1.0)),
        metrics={"timeline_step_s": rng.choice((None, 0.05))},
    )


def check(result: Result) -> None:
    requests = result.requests
    reasons = requests["reason"]
    taken = reasons == "in_flight_eviction"
    ends = np.asarray(outcomes(result))
    assert (ends[taken] == "evicted").all()
    assert (ends[reasons == "client_timeout"] == "cancelled").all()
    # Only sheddable requests are evicted.
    assert not (requests["slo_class"][taken] == "critical").any()
    if result.simulation.horizon_s is None:
        assert set(ends.tolist()) <= {"completed", "rejected", "expired", "evicted", "cancelled"}


def test_jumps_streaming_and_samples_change_nothing() -> None:
    seen: Counter[str] = Counter()
    for seed in trials(200):
        simulation = random_mixture(seed)
        result = simulate(simulation, seed)
        assert simulate(simulation, seed, reference=True).digest == result.digest, seed
        watched = simulate(simulation.with_({"metrics.timeline_step_s": 0.007}), seed)
        assert watched.digest == result.digest, seed
        streamed = simulate(simulation.with_({"metrics.streaming": True}), seed)
        assert streamed.ledger == result.ledger, seed
        for name in ("offered", "completed", "evicted", "cancelled", "total_output_tokens"):
            assert streamed.summary()[name] == result.summary()[name], (seed, name)
        check(result)
        seen.update(outcomes(result))
        seen["taken"] += result.ledger["evicted_in_flight"]
        seen["withdrawn inside"] += result.ledger["cancelled_in_flight"]
        seen["rejected by a worker"] += sum(result.ledger["worker_rejected"].values())
        seen["retried"] += int((result.requests["attempts"] > 1).sum())
    inside = ("taken", "withdrawn inside", "rejected by a worker")
    for word in ("completed", *inside, "retried", "expired"):
        assert seen[word] > often(100), (word, seen)
