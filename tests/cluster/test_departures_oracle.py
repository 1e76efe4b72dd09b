"""Servers that notice late that clients have left, against runs of all attempts as requests.

A server that notices nothing serves an attempt as if its client were there. So a run without any
reaction of clients, to which every attempt is submitted, and withdrawn when it is noticed, must do
the same. What clients do is found attempt by attempt, in order of their timeouts: what happens up
to a timeout does not depend on what follows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
from support.effort import often, trials
from support.runs import fixed, ns, run, steady

from spillway import ConfigError, Result, Simulation, gateway, instance, metrics, simulate, workload

MS = 1_000_000


@dataclass(frozen=True)
class Attempt:
    row: int
    number: int
    arrival_ns: int
    is_settled: bool = False
    withdrawn_ns: int | None = None
    is_held: bool = False


@dataclass(frozen=True)
class Case:
    arrivals_ns: list[int]
    tokens: list[tuple[int, int]]
    timeout_ns: int
    wait_ns: int
    max_attempts: int
    delay_ns: int | None
    servers: instance.InstanceGroup
    gateway: gateway.Gateway

    def simulated(self, **settings: object) -> Result:
        rule = workload.Retry(
            max_attempts=self.max_attempts,
            backoff_s=self.wait_ns / 1e9,
            multiplier=1,
            jitter="none",
        )
        return run(
            [at / 1e9 for at in self.arrivals_ns],
            input_tokens=[tokens[0] for tokens in self.tokens],
            output_tokens=[tokens[1] for tokens in self.tokens],
            tenant="default",
            gateway=self.gateway,
            instances=self.servers.replace(
                notices_departure_after_s=None if self.delay_ns is None else self.delay_ns / 1e9
            ),
            reaction=workload.Reaction(timeout_s=self.timeout_ns / 1e9, retries=[rule]),
            **settings,
        )

    def explicit(self, attempts: list[Attempt]) -> Result:
        """A run of these attempts as requests, in this order."""
        changes = []
        for attempt in attempts:
            prompt, output = self.tokens[attempt.row]
            one = workload.Submission(input_tokens=prompt, output_tokens=output)
            changes.append({"at_s": attempt.arrival_ns / 1e9, "submit": [one]})
        for number, attempt in enumerate(attempts):
            if attempt.withdrawn_ns is not None:
                changes.append({"at_s": attempt.withdrawn_ns / 1e9, "cancel": [number]})
        simulation = Simulation(
            workload=workload.Synthetic(num_requests=0),
            gateway=self.gateway,
            instances=self.servers,
            slo_classes=[workload.SloClass()],
            tenants=[workload.Tenant()],
            changes=changes,
        )
        return simulate(simulation)

    def attempts(self) -> tuple[list[Attempt], Result]:
        """What the clients do, and the run of it."""
        known = [Attempt(row, 1, at) for row, at in enumerate(self.arrivals_ns)]
        while True:
            known.sort(key=lambda attempt: attempt.arrival_ns)
            result = self.explicit(known)
            open_ones = [i for i, attempt in enumerate(known) if not attempt.is_settled]
            if not open_ones:
                return known, result
            i = min(open_ones, key=lambda i: known[i].arrival_ns)
            attempt = known[i]
            timeout_ns = attempt.arrival_ns + self.timeout_ns
            requests = result.requests
            if requests["outcome"][i] == "completed" and (
                attempt.arrival_ns + ns(requests["e2e_s"])[i] <= timeout_ns
            ):
                known[i] = replace(attempt, is_settled=True)
                continue
            queue_ns = ns(requests["queue_s"])[i]
            is_held = queue_ns >= 0 and attempt.arrival_ns + queue_ns <= timeout_ns
            withdrawn_ns: int | None = timeout_ns
            if is_held:
                withdrawn_ns = None if self.delay_ns is None else timeout_ns + self.delay_ns
            known[i] = replace(attempt, is_settled=True, withdrawn_ns=withdrawn_ns, is_held=is_held)
            if attempt.number < self.max_attempts:
                known.append(Attempt(attempt.row, attempt.number + 1, timeout_ns + self.wait_ns))


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    n = rng.randint(4, 10)
    servers = instance.InstanceGroup(
        count=rng.choice((1, 1, 2)),
        latency=steady(7, beta_decode_us=500),
        max_num_seqs=rng.randint(1, 4),
        num_kv_blocks=rng.randint(8, 30),
        max_num_batched_tokens=rng.choice((32, 256)),
        kv_cache=instance.KvCache(prefix_caching=False),
    )
    limit = [fixed(rng.randint(2, 6))] if rng.random() < 0.5 else "unlimited"
    return Case(
        arrivals_ns=sorted(rng.randrange(500_000) * 1000 + 1 for _ in range(n)),
        tokens=[(rng.randint(1, 60), rng.randint(1, 40)) for _ in range(n)],
        timeout_ns=rng.randrange(50_000, 400_000) * 1000 + 77,
        wait_ns=rng.randrange(1, 200_000) * 1000 + 13,
        max_attempts=rng.randint(1, 4),
        delay_ns=rng.choice((None, rng.randrange(1, 300_000) * 1000 + 5)),
        servers=servers,
        gateway=gateway.Gateway(limit=limit),
    )


def test_attempts_are_served_as_if_their_clients_were_there() -> None:
    seen = {"beside": 0, "in_vain": 0, "noticed": 0, "in_queue": 0, "preempted": 0}
    for seed in trials(240):
        case = random_case(seed)
        attempts, expected = case.attempts()
        result = case.simulated()
        served = expected.requests
        held = [i for i, attempt in enumerate(attempts) if attempt.is_held]
        in_vain = [i for i in held if served["outcome"][i] == "completed"]
        ledger = result.ledger
        assert ledger["attempts"] == len(attempts), seed
        assert ledger.get("completed_in_vain", 0) == len(in_vain), seed
        assert ledger["completed"] == expected.ledger["completed"] - len(in_vain), seed
        wasted = sum(served["input_tokens"][i] + served["output_tokens"][i] - 1 for i in in_vain)
        for name in ("steps", "preemptions", "tokens_recomputed", "mean_waiting"):
            assert [server[name] for server in result.instances] == pytest.approx(
                [server[name] for server in expected.instances], abs=1e-12
            ), (seed, name)
        assert result.summary()["wasted_tokens"] == expected.summary()["wasted_tokens"] + wasted
        for row, arrival_ns in enumerate(case.arrivals_ns):
            own = [i for i, attempt in enumerate(attempts) if attempt.row == row]
            last = max(own, key=lambda i: attempts[i].number)
            answered = next(
                (i for i in own if i not in held and served["outcome"][i] == "completed"), None
            )
            assert result.requests["attempts"][row] == len(own), seed
            assert result.requests["instance"][row] == served["instance"][last], seed
            assert result.requests["input_tokens"][row] == case.tokens[row][0]
            if answered is None:
                assert result.requests["outcome"][row] == "cancelled", seed
                assert result.requests["reason"][row] == "client_timeout", seed
                continue
            assert answered == last
            since_ns = attempts[last].arrival_ns - arrival_ns
            assert ns(result.requests["e2e_s"])[row] == since_ns + ns(served["e2e_s"])[last], seed
            assert ns(result.requests["ttft_s"])[row] == since_ns + ns(served["ttft_s"])[last], seed
        streamed = case.simulated(metrics=metrics.Metrics(streaming=True))
        assert streamed.ledger == ledger, seed
        assert streamed.instances == result.instances, seed
        arrivals = {(attempt.row, attempt.number): attempt.arrival_ns for attempt in attempts}
        for i in held:
            next_ns = arrivals.get((attempts[i].row, attempts[i].number + 1))
            left_ns = attempts[i].arrival_ns + max(ns(served["e2e_s"])[i], 0)
            seen["beside"] += next_ns is not None and (i in in_vain and next_ns < left_ns)
        seen["in_vain"] += len(in_vain)
        seen["noticed"] += len(held) - len(in_vain)
        seen["in_queue"] += sum(
            attempt.withdrawn_ns is not None and not attempt.is_held for attempt in attempts
        )
        seen["preempted"] += result.summary()["preemptions"] > 0
    for what, count in seen.items():
        assert count >= often(6), (what, count)


def test_a_server_that_notices_at_once_is_the_default() -> None:
    case = replace(random_case(3), delay_ns=0)
    at_once = case.simulated()
    assert "completed_in_vain" not in at_once.ledger
    assert case.servers.notices_departure_after_s == 0


def test_an_attempt_beside_a_held_one_needs_rows() -> None:
    """In a closed loop more requests may come behind it, unless the run keeps none."""
    users = workload.Synthetic(
        duration_s=20, clients=[workload.Client(arrivals=workload.ClosedLoop(users=2))]
    )
    late = Simulation(
        workload=users,
        instances=instance.InstanceGroup(notices_departure_after_s=None),
        reaction=workload.Reaction(timeout_s=1, retries=[workload.Retry()]),
        metrics=metrics.Metrics(streaming=True),
    )
    assert simulate(late).ledger["attempts"] >= 4
    with pytest.raises(ConfigError, match=r"metrics\.streaming = false"):
        late.with_({"metrics.streaming": False})
