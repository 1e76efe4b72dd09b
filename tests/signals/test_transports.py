"""The signals that decisions see, against the requests' timestamps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.effort import few_of
from support.runs import ns

import spillway
from spillway import _core, instance, router, signals, workload

SCRAPE_STREAM = 8


def simulation(transport: Any, **settings: Any) -> spillway.Simulation:
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
        for k, server in enumerate(instances):
            here = requests["instance"] == server
            # Nothing else happens within a nanosecond of a scrape in this workload.
            began = (scheduled[here] < measured).sum()
            assert waiting[k] == (entered[here] < measured).sum() - began
            assert running[k] == began - (finished[here] <= measured).sum()
            seen += waiting[k] + running[k]
    assert seen > 100


# --- scrapes that are late or lost ----------------------------------------------------------------


def scrapes_ns(transport: signals.Scraped, seed: int, server: int, until_ns: int) -> list[int]:
    """When the scrapes of an instance are made, without those that are lost."""
    period_ns, phase_ns = round(transport.period_s * 1e9), round(transport.phase_s * 1e9)
    made = []
    for k in range((until_ns - phase_ns) // period_ns + 1):
        draws = _core.sim.Draws(seed=seed, stream=SCRAPE_STREAM, entity=server, sub_entity=k)
        late, luck = draws.uniform(), draws.uniform()
        if luck >= transport.loss_probability:
            made.append(phase_ns + k * period_ns + int(late * transport.jitter * period_ns))
    return made


class Truth:
    """What the instances held, by the stamps of the requests, which need 1.5 ms to get there."""

    def __init__(self, result: spillway.Result) -> None:
        requests = result.requests
        arrival = np.array(ns(requests["arrival_s"]))
        self._instance = requests["instance"]
        self._entered = arrival + 1_500_000
        self._scheduled = arrival + ns(requests["scheduling_delay_s"])
        self._finished = arrival + ns(requests["e2e_s"])
        assert result.summary()["preemptions"] == 0

    def at(self, server: int, measured_ns: int) -> tuple[int, int]:
        """Waiting and running: the end of a step precedes a scrape, the start of one follows."""
        here = self._instance == server
        began = int((self._scheduled[here] < measured_ns).sum())
        entered = int((self._entered[here] < measured_ns).sum())
        return entered - began, began - int((self._finished[here] <= measured_ns).sum())


UNRELIABLE = {
    "late": signals.Scraped(period_s=0.02, jitter=1),
    "late and slow": signals.Scraped(period_s=0.3, jitter=0.6, phase_s=0.05, delay_s=0.02),
    "lost": signals.Scraped(period_s=0.05, loss_probability=0.6),
    "both": signals.Scraped(
        period_s=0.013, jitter=0.4, loss_probability=0.9, phase_s=0.1, delay_s=0.05
    ),
    "hold": signals.Scraped(
        period_s=0.05, jitter=0.5, loss_probability=0.5, stale_after_s=0.1, phase_s=0.3
    ),
    "fail_open": signals.Scraped(
        period_s=0.05,
        jitter=0.5,
        loss_probability=0.5,
        stale_after_s=0.1,
        phase_s=0.3,
        when_stale="fail_open",
    ),
    "fail_closed": signals.Scraped(
        period_s=0.05,
        jitter=0.5,
        loss_probability=0.5,
        stale_after_s=0.1,
        phase_s=0.3,
        when_stale="fail_closed",
    ),
    "mostly stale": signals.Scraped(
        period_s=0.05, loss_probability=0.9, stale_after_s=0.05, when_stale="fail_closed"
    ),
    "never late": signals.Scraped(
        period_s=0.05, delay_s=0.01, stale_after_s=0.06, when_stale="fail_closed"
    ),
}


@pytest.mark.parametrize("name", UNRELIABLE)
@pytest.mark.parametrize("ranks", [1, 2])
def test_decisions_see_the_scrapes_that_were_made(name: str, ranks: int) -> None:
    """Every value and age of every decision, and the candidates."""
    transport, seed = UNRELIABLE[name], 3
    stale_ns = np.inf if transport.stale_after_s is None else round(transport.stale_after_s * 1e9)
    fleet = simulation(transport).instances[0].replace(data_parallel_size=ranks, max_num_seqs=4)
    one_run = simulation(transport).replace(instances=fleet)
    result = spillway.simulate(one_run, seed)
    plain = spillway.simulate(one_run, seed, reference=True).decisions
    truth, log = Truth(result), result.decisions
    for column in log:
        assert np.array_equal(log[column], plain[column], equal_nan=True)
    times_ns = ns(log["time_s"])
    made = [scrapes_ns(transport, seed, server, times_ns[-1]) for server in range(3)]
    counts = dict.fromkeys(("fresh", "missing", "shunned", "held"), 0)
    for at, row in enumerate(log["row"].tolist()):
        now = times_ns[at]
        known = now - round(transport.delay_s * 1e9)
        measured = [max((m for m in scrapes if m <= known), default=None) for scrapes in made]
        missing = [m is None or now - m >= stale_ns for m in measured]
        shuns = transport.when_stale == "fail_closed" and np.isfinite(stale_ns)
        candidates = [i for i in range(3) if not (shuns and missing[i])] or [0, 1, 2]
        seen = log["candidate_instance"][at]
        assert sorted(seen[: len(candidates)]) == candidates
        assert (seen[len(candidates) :] == -1).all()
        assert result.requests["instance"][row] in candidates
        for k, server in enumerate(seen[: len(candidates)].tolist()):
            here = measured[server]
            waiting, running = (0, 0) if here is None else truth.at(server, here)
            kv = log["candidate_kv_utilization"][at, k]
            if here is None:
                assert np.isnan(log["candidate_age_s"][at, k])
            else:
                assert ns(log["candidate_age_s"][at, k]) == now - here
            acts_as = transport.when_stale if missing[server] and np.isfinite(stale_ns) else "hold"
            if acts_as == "fail_open":
                waiting, running = 0, 0
            assert (kv > 0) == (running > 0 or acts_as == "fail_closed")
            assert (kv == 1) == (acts_as == "fail_closed")
            assert log["candidate_waiting"][at, k] == waiting
            assert log["candidate_running"][at, k] == running
            counts["fresh"] += not missing[server]
            counts["missing"] += missing[server]
            counts["held"] += waiting + running
        counts["shunned"] += 3 - len(candidates)
    assert counts["fresh"] > 50
    assert counts["held"] > 50
    if name in ("fail_closed", "mostly stale"):
        assert counts["shunned"] > 50
    if name in ("hold", "fail_open", "mostly stale"):
        assert counts["missing"] > 50


def test_punctual_scrapes_need_no_luck() -> None:
    """Written out or not, without jitter and loss the log is that of the regular scrapes."""
    transport = signals.Scraped(period_s=0.05, phase_s=0.01, delay_s=0.02)
    regular = spillway.simulate(simulation(transport), 3)
    # Too little to delay a scrape by a nanosecond, or to lose one.
    hardly = transport.replace(jitter=1e-9, loss_probability=1e-15, stale_after_s=1000)
    irregular = spillway.simulate(simulation(hardly), 3)
    for name in regular.decisions:
        assert np.array_equal(regular.decisions[name], irregular.decisions[name], equal_nan=True)


HOLD = signals.Scraped(period_s=0.05, loss_probability=0.7, stale_after_s=0.12)
MISSING = {
    "hold": HOLD,
    "fail_open": HOLD.replace(when_stale="fail_open"),
    "fail_closed": HOLD.replace(when_stale="fail_closed"),
}


@pytest.mark.parametrize("seed", few_of(range(5), 3))
def test_missing_instances_get_all_some_or_no_requests(seed: int) -> None:
    """Of the requests that met both missing instances and others."""
    share = {}
    for name, transport in MISSING.items():
        log = spillway.simulate(simulation(transport), seed).decisions
        gone_to_missing = []
        for at, now in enumerate(ns(log["time_s"])):
            made = [scrapes_ns(transport, seed, server, now) for server in range(3)]
            is_missing = [not scrapes or now - scrapes[-1] >= 120_000_000 for scrapes in made]
            if len(set(is_missing)) == 2:
                gone_to_missing.append(is_missing[log["instance"][at]])
        assert len(gone_to_missing) > 100
        share[name] = np.mean(gone_to_missing)
    assert 0 == share["fail_closed"] < share["hold"] < share["fail_open"]
    # An idle instance is as good as one that is taken for idle.
    assert share["fail_open"] > 0.8


def test_outage_of_all_closes_all_and_stops_no_request() -> None:
    """One scrape at the start, of empty instances; no other follows."""
    scores = {}
    for name, unreliable in MISSING.items():
        transport = unreliable.replace(period_s=1000, loss_probability=0, stale_after_s=0.2)
        memory_only = {
            "kind": "weighted",
            "scorers": ["kv_utilization"],
            "filters": ["utilization"],
        }
        result = spillway.simulate(simulation(transport).with_({"router": memory_only}), 3)
        log = result.decisions
        later = log["time_s"] >= 0.2
        assert later.sum() > 200
        assert (np.sort(log["candidate_instance"][later], axis=1) == [0, 1, 2]).all()
        scores[name] = np.unique(log["candidate_score"][later]).tolist()
        # All instances have equal scores, so the first one gets all requests.
        assert (log["instance"][later] == 0).all()
        assert result.ledger["completed"] == 300
    assert scores == {"hold": [1], "fail_open": [1], "fail_closed": [0]}


@pytest.mark.parametrize(
    "policy",
    [
        "round_robin",
        "least_loaded",
        "always_busiest",
        "kv_cost",
        router.Weighted(),
        router.Weighted(
            filters=[router.PrefixCacheAffinity(), router.UtilizationFilter()],
            scorers=["no_hit_lru", "active_requests"],
            picker=router.Softmax(temperature=0.2),
        ),
    ],
    ids=["turns", "least", "busiest", "cost", "weighted", "filtered"],
)
def test_every_policy_avoids_missing_instances(policy: Any) -> None:
    transport = MISSING["fail_closed"]
    log = spillway.simulate(simulation(transport).with_({"router": policy}), 1).decisions
    shunned = 0
    for at, now in enumerate(ns(log["time_s"])):
        made = [scrapes_ns(transport, 1, server, now) for server in range(3)]
        fresh = {i for i, scrapes in enumerate(made) if scrapes and now - scrapes[-1] < 120_000_000}
        assert int(log["instance"][at]) in (fresh or {0, 1, 2})
        asked = [server for server in log["candidate_instance"][at].tolist() if server >= 0]
        assert set(asked) == (fresh or {0, 1, 2})
        shunned += 3 - len(asked)
    assert shunned > 100


@pytest.mark.parametrize(
    "transport",
    [
        signals.Scraped(period_s=0.01),
        signals.Scraped(period_s=0.3, delay_s=0.1),
        *UNRELIABLE.values(),
    ],
)
def test_scrapes_do_not_depend_on_the_stepping(transport: signals.Scraped) -> None:
    measured = simulation(transport)
    result = spillway.simulate(measured, 1)
    plain = spillway.simulate(measured, 1, reference=True)
    assert result.digest == plain.digest
    for name in result.decisions:
        assert np.array_equal(result.decisions[name], plain.decisions[name], equal_nan=True), name


@pytest.mark.parametrize(
    "setting",
    [
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"loss_probability": 1},
        {"loss_probability": -0.1},
        {"stale_after_s": 0},
        {"when_stale": "guess"},
    ],
)
def test_settings_of_scrapes_are_checked(setting: dict[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(spillway.ConfigError, match=rf"signals\.{name}"):
        spillway.Simulation(signals={"kind": "scraped"} | setting)


def test_reading_does_not_change_a_run() -> None:
    quiet = {"router": "round_robin", "metrics.traced_candidates": 0}
    digests = set()
    for transport in (
        signals.Live(),
        signals.Scraped(period_s=0.001),
        UNRELIABLE["both"],
        signals.OnRead(),
    ):
        base = simulation(transport)
        digests.add(spillway.simulate(base.with_(quiet), 1).digest)
        traced = base.with_({"router": "round_robin"})
        assert (
            spillway.simulate(traced, 1).requests["e2e_s"]
            == spillway.simulate(base.with_(quiet), 1).requests["e2e_s"]
        ).all()
    assert len(digests) == 1


def test_why_shows_the_signals_seen() -> None:
    result = spillway.simulate(simulation(signals.Scraped(period_s=0.5)), 1)
    text = result.why("200")
    assert "request 200 of tenant default, class standard: completed" in text
    assert "kv utilization" in text
    assert "idle" not in text
    with pytest.raises(KeyError):
        result.why("no such request")
    untraced = spillway.simulate(simulation(signals.Live()).with_({"metrics": {}}), 1)
    assert "kv utilization" not in untraced.why("200")


def test_decisions_survive_a_file(tmp_path: object) -> None:
    result = spillway.simulate(simulation(signals.Live()), 1)
    result.save(f"{tmp_path}/run.npz")
    assert spillway.Result.load(f"{tmp_path}/run.npz").why("5") == result.why("5")
