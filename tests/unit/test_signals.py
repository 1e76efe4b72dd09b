"""What decisions see of the instances, against what the requests' own stamps say."""

from __future__ import annotations

import numpy as np
import pytest

import spillway
from spillway import instance, router, signals, workload


def simulation(transport: object, **settings: object) -> spillway.Simulation:
    return spillway.Simulation(
        workload=workload.Synthetic(
            requests_per_s=60,
            num_requests=300,
            clients=[
                workload.Client(
                    input_tokens=workload.Lognormal(mu=5, sigma=1, max_tokens=3000),
                    output_tokens=workload.Exponential(mean_tokens=40, max_tokens=300),
                )
            ],
        ),
        router=router.Weighted(scorers=[router.RunningRequests(), router.KvUtilization()]),
        signals=transport,
        instances=[
            instance.InstanceGroup(
                count=3,
                max_num_seqs=8,
                latency=instance.Linear(alpha0_us=1500, alpha_input_us=0, beta_context_us=0.01),
            )
        ],
        metrics={"traced_candidates": 3},
        **settings,
    )


@pytest.mark.parametrize("period_s", [0.0013, 0.05, 1.0])
@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.7])
def test_scrape_shows_the_instance_as_it_was(period_s: float, delay_s: float) -> None:
    transport = signals.Scraped(period_s=period_s, phase_s=0.0004, delay_s=delay_s)
    result = spillway.simulate(simulation(transport), 3)
    assert result.summary()["preemptions"] == 0
    log = result.decisions
    requests = result.requests
    entered = requests["arrival_s"] + 0.0015
    scheduled = requests["arrival_s"] + requests["scheduling_delay_s"]
    finished = requests["arrival_s"] + requests["e2e_s"]
    seen = 0
    for at, ages, instances, waiting, running in zip(
        log["time_s"],
        log["candidate_age_s"],
        log["candidate_instance"],
        log["candidate_waiting"],
        log["candidate_running"],
        strict=True,
    ):
        scrapes = np.floor((at - delay_s - 0.0004) / period_s + 1e-9)
        if scrapes < 0:
            assert np.isnan(ages).all()
            assert not waiting.any()
            assert not running.any()
            continue
        assert ages == pytest.approx(at - (0.0004 + scrapes * period_s), abs=1e-8)
        measured = at - ages[0]
        for k, one in enumerate(instances):
            here = requests["instance"] == one
            # Nothing else happens within a nanosecond of a scrape in this workload.
            began = (scheduled[here] < measured).sum()
            assert waiting[k] == (entered[here] < measured).sum() - began
            assert running[k] == began - (finished[here] <= measured).sum()
            seen += waiting[k] + running[k]
    assert seen > 100


@pytest.mark.parametrize(
    "transport", [signals.Scraped(period_s=0.01), signals.Scraped(period_s=0.3, delay_s=0.1)]
)
def test_scrapes_do_not_depend_on_the_stepping(transport: signals.Scraped) -> None:
    one = simulation(transport)
    log = spillway.simulate(one, 1).decisions
    plain = spillway.simulate(one, 1, reference=True).decisions
    for name in log:
        assert np.array_equal(log[name], plain[name], equal_nan=True), name


def test_reading_does_not_change_a_run() -> None:
    quiet = {"router": "round_robin", "metrics.traced_candidates": 0}
    digests = set()
    for transport in (signals.Live(), signals.Scraped(period_s=0.001), signals.OnRead()):
        base = simulation(transport)
        digests.add(spillway.simulate(base.with_(quiet), 1).digest)
        traced = base.with_({"router": "round_robin"})
        assert (
            spillway.simulate(traced, 1).requests["e2e_s"]
            == spillway.simulate(base.with_(quiet), 1).requests["e2e_s"]
        ).all()
    assert len(digests) == 1


def test_why_tells_what_was_seen() -> None:
    result = spillway.simulate(simulation(signals.Scraped(period_s=0.5)), 1)
    text = result.why("200")
    assert "request 200 of tenant default, class standard: completed" in text
    assert "kv utilization" in text
    assert text.count("\n") == 9
    with pytest.raises(KeyError):
        result.why("no such request")
    untraced = spillway.simulate(simulation(signals.Live()).with_({"metrics": {}}), 1)
    with pytest.raises(spillway.UsageError, match="traced_candidates"):
        untraced.why("200")


def test_decisions_survive_a_file(tmp_path: object) -> None:
    result = spillway.simulate(simulation(signals.Live()), 1)
    result.save(f"{tmp_path}/run.npz")
    again = spillway.Result.load(f"{tmp_path}/run.npz")
    assert again.why("5") == result.why("5")
