"""Requests of a trace without output: calls that failed where they were recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import spillway
from spillway import Simulation, gateway, instance, router, simulate, traffic, workload
from spillway.testing import check_conservation

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 60
OUTPUTS = [0 if row % 3 == 0 else 5 + row % 7 for row in range(ROWS)]
FAILED = OUTPUTS.count(0)


def requests(**changes: Any) -> workload.Trace:
    return spillway.trace(
        arrival_s=np.arange(ROWS) / 20,
        input_tokens=[200] * ROWS,
        output_tokens=OUTPUTS,
        tenant=["a" if row % 2 else "b" for row in range(ROWS)],
    ).replace(**changes)


def test_three_calls_of_which_two_failed() -> None:
    trace = spillway.trace(arrival_s=[0, 1, 2], input_tokens=[10] * 3, output_tokens=[0, 1, 0])
    result = simulate(Simulation(workload=trace))
    assert result.ledger["failed"] == 2
    assert result.ledger["completed"] == 1
    assert result.requests["outcome"].tolist() == ["failed", "completed", "failed"]
    assert np.isnan(result.requests["ttft_s"]).tolist() == [True, False, True]
    assert result.summary()["num_ttft"] == 1
    (note,) = (note for note in result.notes() if "failed" in note)
    assert note.startswith("2 of 3 requests failed: the trace records no output")
    served = simulate(Simulation(workload=trace.replace(empty_outputs="served")))
    assert served.ledger["completed"] == 3
    assert not any("failed" in note for note in served.notes())


SYSTEMS = {
    "default": {},
    "controlled": {
        "gateway": gateway.Gateway(
            admission=gateway.TokenBucket(capacity_tokens=2000, refill_tokens_per_s=3000),
            limit=gateway.FixedLimit(max_in_flight=4),
            controller="aimd",
            sensor={"tick_s": 0.5},
            bands=[gateway.Band(fairness="deficit_round_robin")],
        ),
        "router": "least_loaded",
        "instances": instance.InstanceGroup(count=3),
        "signals": {"kind": "scraped", "period_s": 0.1},
    },
    "ranks": {
        "router": router.KvCost(),
        "instances": instance.InstanceGroup(count=2, data_parallel_size=2),
    },
    "gate": {"instances": instance.InstanceGroup(ingress=instance.EngineRequestLimit())},
    "sharing": {"instances": instance.InstanceGroup(plant=instance.ProcessorSharing())},
    "retries": {
        "reaction": workload.Reaction(
            first_token_timeout_s=0.5, retries=[workload.Retry(max_attempts=3)]
        )
    },
    "predictive": {"gateway": gateway.Gateway(admission=gateway.PredictiveTtft(budgets=[]))},
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_they_fail_in_every_system_and_the_books_balance(name: str) -> None:
    simulation = Simulation(
        workload=requests(),
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=1)],
        **SYSTEMS[name],
    )
    result = simulate(simulation)
    check_conservation(result)
    outcome = result.requests["outcome"]
    admitted = result.requests["admitted"].astype(bool)
    empty = np.array(OUTPUTS) == 0
    assert (outcome[empty & admitted] == "failed").all()
    assert (outcome[~empty] != "failed").all()
    assert result.ledger["failed"] == (empty & admitted).sum() > 0
    assert result.digest == simulate(simulation, reference=True).digest
    assert (result.requests["attempts"][empty] == 1).all()
    assert simulate(simulation.with_({"metrics.streaming": True})).ledger == result.ledger


def test_they_take_no_time_of_the_servers() -> None:
    """The others are served as if the failed calls had not been there."""
    with_failed = simulate(Simulation(workload=requests())).requests
    others = np.array(OUTPUTS) > 0
    alone = spillway.trace(
        arrival_s=(np.arange(ROWS) / 20)[others],
        input_tokens=[200] * int(others.sum()),
        output_tokens=[output for output in OUTPUTS if output],
    )
    without = simulate(Simulation(workload=alone)).requests
    for name in ("ttft_s", "e2e_s"):
        assert np.array_equal(with_failed[name][others], without[name])


def test_a_client_at_its_limit_sends_the_next_request() -> None:
    result = simulate(Simulation(workload=requests(max_in_flight=2)))
    assert result.ledger["failed"] == FAILED
    assert result.ledger["completed"] == ROWS - FAILED


def test_requests_from_outside_without_output_are_served() -> None:
    session = spillway.start(Simulation(workload=requests()))
    submitted = session.submit(tenant="a", input_tokens=10, output_tokens=0)
    result = session.finish()
    assert submitted.status().state == "completed"
    assert result.ledger["failed"] == FAILED
    assert result.ledger["completed"] == ROWS - FAILED + 1


def test_every_way_into_a_trace(tmp_path: Path) -> None:
    """Files of several formats, streamed ones, transforms, merged ones, saved settings."""
    path = tmp_path / "log.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,10,0\n1,10,1\n2,10,0\n")
    burst = tmp_path / "burst.csv"
    burst.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n"
    )
    lines = tmp_path / "log.jsonl"
    lines.write_text(
        '{"timestamp": 0, "input_length": 5, "output_length": 0, "hash_ids": [1]}\n'
        '{"timestamp": 9, "input_length": 5, "output_length": 2, "hash_ids": [1]}\n'
    )
    log = spillway.read_trace(path)
    ways: dict[str, tuple[workload.Trace, int]] = {
        "csv": (log, 2),
        "burstgpt": (spillway.read_trace(burst), 1),
        "mooncake": (spillway.read_trace(lines), 1),
        "transformed": (traffic.applied(log.replace(transforms=[workload.Superpose(copies=3)])), 6),
        "merged": (traffic.merged(log, log), 4),
    }
    for name, (trace, failed) in ways.items():
        assert simulate(Simulation(workload=trace)).ledger["failed"] == failed, name
    streamed = Simulation(workload=spillway.read_trace(path, stream=True)).with_(
        {"metrics.streaming": True}
    )
    assert simulate(streamed).ledger["failed"] == 2
    served = log.replace(empty_outputs="served")
    assert traffic.applied(served).empty_outputs == "served"
    assert traffic.merged(served, served).empty_outputs == "served"
    with pytest.raises(spillway.UsageError, match="differ in empty_outputs"):
        traffic.merged(served, log)
    assert served != log
    assert workload.Trace.from_dict(served.to_dict()) == served


def test_in_the_books_of_blis_they_complete() -> None:
    changes = {"metrics.accounting": "blis", "instances[0].async_scheduling": False}
    assert simulate(Simulation(workload=requests()).with_(changes)).ledger["completed"] == ROWS


@pytest.mark.slow
def test_a_generator_fitted_to_a_log_has_the_lengths_of_the_others() -> None:
    rng = np.random.default_rng(2)
    rows = 900
    outputs = rng.integers(50, 90, rows)
    outputs[rng.random(rows) < 0.4] = 0
    failed = int((outputs == 0).sum())
    log = spillway.trace(
        arrival_s=np.cumsum(rng.exponential(0.1, rows)),
        input_tokens=rng.integers(10, 90, rows),
        output_tokens=outputs,
        tenant=["a" if is_first else "b" for is_first in rng.random(rows) < 0.9],
    )
    description = traffic.describe(log)
    assert description.failed == failed
    assert description.requests == rows
    assert description.output_tokens[0.05] >= 50
    assert f"{failed} of 900 requests have no output: calls that failed" in description.text()
    served = traffic.describe(log.replace(empty_outputs="served"))
    assert (served.failed, served.output_tokens[0.05]) == (0, 0)
    fitted = traffic.fit(log, resamples=199)
    assert not fitted.check("output_tokens").is_bad
    assert any("calls that failed" in note for note in fitted.notes)
    assert traffic.generated(fitted.workload)._columns()["output_tokens"].min() >= 40
    none = spillway.trace(
        arrival_s=np.arange(200.0), input_tokens=[5] * 200, output_tokens=[0] * 200
    )
    with pytest.raises(spillway.UsageError, match="all requests of the trace failed"):
        traffic.describe(none)
