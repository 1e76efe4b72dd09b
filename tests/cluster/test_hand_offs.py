"""Requests whose prefill and decode instances are chosen outside: `prefill_only` and `hand_off`."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from support.effort import trials
from support.pools import group

import spillway
from spillway import ConfigError, Result, Session, Simulation, UsageError, workload
from spillway.testing import check_conservation

PROMPT = {"input_tokens": 40, "output_tokens": 1, "max_tokens": 1}
TICKS = {"gateway.limit": {"kind": "fixed", "max_in_flight": 50},
         "gateway.sensor.tick_s": 0.01,
         "gateway.controller": {"kind": "aimd"}}  # fmt: skip


def fleet(*groups: Any, **changes: Any) -> Simulation:
    return Simulation(
        instances=list(groups) or [group("prefill", count=2), group("decode", count=2)],
        workload=workload.Synthetic(num_requests=0),
    ).with_(changes)


def requests_of(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Of lengths and shared beginnings that make them wait for memory, seats and transfers."""
    at_ns, found = 0, []
    for _ in range(count):
        at_ns += rng.randint(1_000, 2_000_000)
        tokens = rng.randint(5, 150)
        shared = [(rng.randint(1, 4), 8 * rng.randint(1, tokens // 8))] if tokens > 8 else []
        found.append(
            {"at_ns": at_ns, "input_tokens": tokens, "output_tokens": rng.randint(1, 40),
             "segments": shared}
        )  # fmt: skip
    return found


def in_pools(requests: list[dict[str, Any]], simulation: Simulation, seed: int) -> Result:
    """Sent through the simulator's own gateway, whose decisions take 1 ns as those outside do."""
    changes = []
    for request in requests:
        lengths = {name: request[name] for name in ("input_tokens", "output_tokens")}
        segments = [{"content": number, "tokens": tokens} for number, tokens in request["segments"]]
        submitted = lengths | {"segments": segments}
        changes.append({"at_s": request["at_ns"] / 1e9, "submit": [submitted]})
    front = {"gateway.routing_latency_s": 1e-9, "router": "least_loaded", "changes": changes}
    return spillway.simulate(simulation.with_(front), seed)


def from_outside(
    requests: list[dict[str, Any]], chosen: Result, simulation: Simulation, seed: int
) -> Session:
    """The same requests at the same instances, as they are sent by a router in front."""
    session = spillway.start(simulation, seed, open_ended=True)
    prefill = np.asarray(chosen.requests["prefill_instance"])
    decode = np.asarray(chosen.requests["instance"])
    sent = handed_off = 0
    while handed_off < len(requests):
        due_s = session.next_due_s
        arrival_s = requests[sent]["at_ns"] / 1e9 if sent < len(requests) else 1e9
        session.advance(arrival_s if due_s is None else min(arrival_s, due_s))
        for event in session.take_events():
            if event.kind == "prompt_computed":
                session.hand_off(
                    event.number,
                    instance=int(decode[event.number]),
                    output_tokens=requests[event.number]["output_tokens"],
                )
                handed_off += 1
        if session.now_s == arrival_s:
            request = {name: requests[sent][name] for name in ("input_tokens", "segments")}
            session.submit(
                **request, output_tokens=1, instance=int(prefill[sent]), prefill_only=True
            )
            sent += 1
    return session


def instants_ns(result: Result, name: str) -> np.ndarray:
    requests = result.requests
    seconds = np.asarray(requests["arrival_s"]) + np.asarray(requests[name])
    return np.round(seconds * 1e9).astype(np.int64)


@pytest.mark.parametrize("seed", trials(60))
def test_they_are_those_of_the_pools_to_the_nanosecond(seed: int) -> None:
    rng = random.Random(seed)
    link = {"bandwidth_gb_per_s": rng.choice([0.01, 1, None]), "base_latency_s": 1e-4,
            "max_transfers": rng.choice([0, 1])}  # fmt: skip
    settings = {"disaggregation.link": link}
    groups = [
        group(role, count=2, num_kv_blocks=rng.choice([60, 200])) for role in ("prefill", "decode")
    ]
    simulation = fleet(*groups, **settings)
    requests = requests_of(rng, 60)
    expected = in_pools(requests, simulation, seed)
    assert set(expected.requests["outcome"]) == {"completed"}
    session = from_outside(requests, expected, simulation, seed)
    found = session.finish()
    for name in ("ttft_s", "e2e_s", "prefill_end_s"):
        if name == "prefill_end_s":
            ends = [np.round(np.asarray(r.requests[name]) * 1e9) for r in (found, expected)]
            assert (ends[0] == ends[1]).all()
        else:
            assert (instants_ns(found, name) == instants_ns(expected, name)).all()
    for name in ("instance", "prefill_instance", "output_tokens", "preemptions"):
        assert list(found.requests[name]) == list(expected.requests[name])
    for name in ("tpot_s", "transfer_s", "decode_queue_s"):
        there, here = (np.asarray(r.requests[name]) for r in (expected, found))
        assert np.array_equal(np.round(there * 1e9), np.round(here * 1e9), equal_nan=True)
    check_conservation(found)
    assert spillway.simulate(found.simulation, seed).digest == found.digest


def kept(simulation: Simulation, **given: Any) -> tuple[Session, Any]:
    """A session in which an instance keeps a prompt."""
    session = spillway.start(simulation, open_ended=True, **given)
    one = session.submit(**PROMPT, instance=0, prefill_only=True)
    session.advance(1)
    (happened,) = (e for e in session.take_events() if e.kind == "prompt_computed")
    assert (happened.number, happened.instance) == (one.number, 0)
    return session, one


def held(session: Session) -> list[float]:
    instances = session.observe(oracle=True)["instances"]
    return [instances[i]["kv_utilization"] for i in sorted(instances)]


def test_the_prompt_stays_until_it_is_read() -> None:
    session, one = kept(fleet(**{"disaggregation.link.base_latency_s": 0.5}))
    assert held(session) == [10 / 100, 0, 0, 0]
    assert one.state == "in_transit"
    assert session.hand_off(one, instance=3, output_tokens=200)
    session.advance(1.2)
    assert held(session) == [10 / 100, 0, 0, 10 / 100]
    session.advance(1.505)
    there, *_, here = held(session)
    assert (there, here > 10 / 100) == (0, True)
    assert one.status().instance == 3


def test_a_prompt_that_no_one_reads_is_free_once_it_is_withdrawn() -> None:
    for settings in ({}, {"disaggregation.reads_on": True}):
        session, one = kept(fleet(**settings))
        assert one.cancel()
        session.advance(2)
        assert held(session) == [0, 0, 0, 0]
        assert one.state == "cancelled"
        assert not session.hand_off(one, instance=2, output_tokens=5)
        result = session.finish()
        check_conservation(result)
        assert spillway.simulate(result.simulation).digest == result.digest


def test_where_it_goes_on_may_be_said_before() -> None:
    session = spillway.start(fleet(), open_ended=True)
    one = session.submit(**PROMPT, instance=1, prefill_only=True)
    session.advance(1e-4)
    assert session.hand_off(one, instance=2, output_tokens=7, max_tokens=9)
    result = session.finish()
    assert list(result.requests["outcome"]) == ["completed"]
    assert list(result.requests["output_tokens"]) == [7]
    assert (result.requests["prefill_instance"][0], result.requests["instance"][0]) == (1, 2)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_any_instance_serves_a_whole_request(role: str) -> None:
    """As a server does that is asked without transfer parameters."""
    session = spillway.start(fleet(), open_ended=True)
    at = 0 if role == "prefill" else 2
    session.submit(input_tokens=40, output_tokens=9, instance=at)
    result = session.finish()
    assert list(result.requests["instance"]) == [at]
    assert list(result.requests["output_tokens"]) == [9]
    alone = spillway.start(
        Simulation(instances=group("both"), workload=workload.Synthetic(num_requests=0)),
        open_ended=True,
    )
    alone.submit(input_tokens=40, output_tokens=9, instance=0)
    assert list(result.requests["e2e_s"]) == list(alone.finish().requests["e2e_s"])


def test_an_instance_that_has_the_prompt_moves_nothing() -> None:
    groups = [group("both", count=1), group("prefill"), group("decode")]
    session, one = kept(fleet(*groups))
    session.hand_off(one, instance=0, output_tokens=3)
    result = session.finish()
    assert list(result.requests["output_tokens"]) == [3]
    assert math.isnan(result.requests["transfer_s"][0])
    assert list(result.requests["instance"]) == [0]


def test_an_instance_that_crashes_loses_what_it_keeps() -> None:
    session, one = kept(fleet(), may_fail=True)
    session.fail({"kind": "crash", "instance": 0, "for_s": 5})
    session.advance(2)
    assert (one.state, one.status().reason) == ("failed", "instance_lost")
    assert not session.hand_off(one, instance=2, output_tokens=5)


def test_a_run_ends_though_a_prompt_is_never_handed_off() -> None:
    """What is periodic does not go on for it: it is unfinished."""
    simulation = fleet(**TICKS)
    session, _ = kept(simulation)
    result = session.finish()
    assert list(result.requests["outcome"]) == ["in_transit"]
    assert spillway.simulate(result.simulation).digest == result.digest


def test_a_session_that_has_wound_down_replays() -> None:
    changes = [{"at_s": 0.1, "submit": [{**PROMPT, "instance": 0, "prefill_only": True}]}]
    session = spillway.start(fleet(**TICKS, changes=changes)).advance(2)
    session.observe()
    session.advance(3)
    (one,) = session.submitted
    assert session.hand_off(one, instance=2, output_tokens=6)
    result = session.finish()
    assert list(result.requests["output_tokens"]) == [6]
    assert result.simulation.changes[-1].hand_off[0].instance == 2
    assert spillway.simulate(result.simulation).digest == result.digest


def test_its_client_tries_both_legs_again() -> None:
    """A request that failed has been handed off before: it goes on there at once."""
    again = {"on": ["instance_lost"], "max_attempts": 2, "backoff_s": 900, "jitter": "none"}
    reaction = workload.Reaction(retries=[workload.Retry.from_dict(again)])
    session, one = kept(fleet(reaction=reaction), may_fail=True)
    session.hand_off(one, instance=2, output_tokens=200)
    session.advance(1.01)
    session.fail({"kind": "crash", "instance": 2, "for_s": 1})
    session.advance(2)
    assert one.state == "awaiting_retry"
    session.advance(1000)
    done = one.status()
    assert (done.state, done.attempts, done.instance) == ("completed", 2, 2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"instance": 4}, "instance = 4: must be one of the 4 instances, from 0"),
        ({"output_tokens": 0}, "output_tokens = 0: must be >= 1"),
        ({"max_tokens": 2}, "max_tokens = 2: must be >= output_tokens (5)"),
    ],
)
def test_what_is_no_place_to_go_on(change: dict[str, int], says: str) -> None:
    session, one = kept(fleet())
    with pytest.raises(ConfigError) as caught:
        session.hand_off(one, **({"instance": 2, "output_tokens": 5} | change))
    assert says in str(caught.value)
    assert session.hand_off(one, instance=2, output_tokens=5)
    with pytest.raises(UsageError, match="request 0 is handed off already"):
        session.hand_off(one, instance=2, output_tokens=5)
    whole = session.submit(input_tokens=9, output_tokens=9)
    with pytest.raises(UsageError, match=r"arrives later|has no prefill_only"):
        session.hand_off(whole, instance=2, output_tokens=5)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"instances": [group("both", count=2)]}, "must be false without prefill and decode pools"),
        ({"disaggregation.handoff": "at_dispatch"}, "needs disaggregation.handoff: after_prefill"),
        (
            {"gateway.limit": {"kind": "token_budget", "output_length": "max_tokens"}},
            "must be false where a policy counts output tokens",
        ),
        (
            {"gateway.bands[0].queue.ordering": "shortest_output"},
            "must be false where a policy counts output tokens",
        ),
        ({"fleet.migration.limit": 1, "fleet.breakdowns": {}}, "needs fleet.migration.limit: 0"),
    ],
)
def test_what_keeps_requests_from_being_handed_off(settings: dict[str, Any], says: str) -> None:
    session = spillway.start(fleet(**settings), open_ended=True)
    with pytest.raises(ConfigError) as caught:
        session.submit(**PROMPT, instance=0, prefill_only=True)
    assert says in str(caught.value)
    with pytest.raises(ConfigError, match="must be false without instance"):
        spillway.start(fleet(), open_ended=True).submit(**PROMPT, prefill_only=True)


def test_a_fork_knows_what_is_kept() -> None:
    session, one = kept(fleet())
    fork = session.fork()
    fork.hand_off(one.number, instance=2, output_tokens=4)
    assert list(fork.finish().requests["output_tokens"]) == [4]
    assert one.state == "in_transit"
