"""Predicted output lengths and max_tokens: their errors, their readers, and what they change."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from support.runs import fixed, flat, order, outcomes, run, simulated, ways

import spillway
from spillway import (
    ConfigError,
    Simulation,
    TraceError,
    gateway,
    instance,
    simulate,
    traffic,
    workload,
)
from spillway.config.randomness import random_streams
from spillway.testing import Request, build

SEEN: dict[int, tuple[int, int]] = {}
"""What a policy has seen of each request: its prediction and its max_tokens."""


class Sees:
    """Admits all."""

    def decide(self, request: Any, view: Any) -> bool:  # noqa: ARG002
        SEEN[request.id] = request.predicted_output_tokens, request.max_tokens
        return True


SEES: Any = Sees


def seen_in(seed: int = 0, **settings: Any) -> tuple[spillway.Result, np.ndarray, np.ndarray]:
    """A run, the predictions and the max_tokens of its requests."""
    SEEN.clear()
    result = simulated(seed, gateway=gateway.Gateway(admission=SEES), **settings)
    columns = np.array([SEEN[row] for row in sorted(SEEN)])
    return result, columns[:, 0], columns[:, 1]


def clients(**settings: Any) -> workload.Synthetic:
    one = workload.Client(
        output_tokens=workload.Lognormal(mu=5, sigma=0.5, max_tokens=100_000), **settings
    )
    return workload.Synthetic(num_requests=2000, requests_per_s=50, clients=[one])


def predicted(**settings: Any) -> workload.LengthPrediction:
    return workload.LengthPrediction(**settings)


FLEET = flat(0.5, 0.1)


# --- the error ------------------------------------------------------------------------------------


def test_predictions_are_exact_by_default() -> None:
    result, guesses, limits = seen_in(workload=clients(), instances=FLEET)
    assert guesses.tolist() == result.requests["requested_output_tokens"].tolist()
    assert not limits.any()


@pytest.mark.parametrize("factor", [0.5, 2])
def test_a_biased_prediction_is_off_by_its_factor(factor: float) -> None:
    result, guesses, _ = seen_in(
        workload=clients(), instances=FLEET, length_prediction=predicted(factor=factor)
    )
    true = result.requests["requested_output_tokens"]
    assert guesses.tolist() == np.maximum(np.floor(true * factor + 0.5), 1).tolist()
    assert "predictions" not in random_streams(result.simulation)


def test_errors_are_lognormal_and_independent_of_the_lengths() -> None:
    result, guesses, _ = seen_in(
        workload=clients(), instances=FLEET, length_prediction=predicted(factor=1.5, sigma=0.4)
    )
    true = result.requests["requested_output_tokens"]
    errors = np.log(guesses / true)
    n = len(errors)
    assert abs(errors.mean() - np.log(1.5)) < 4 * 0.4 / np.sqrt(n)
    assert abs(errors.std() - 0.4) < 4 * 0.4 / np.sqrt(2 * n)
    assert abs(np.corrcoef(errors, np.log(true))[0, 1]) < 4 / np.sqrt(n)
    ranks = np.sort((errors - np.log(1.5)) / 0.4)
    share = np.searchsorted(ranks, 1.0) / n  # of a normal law: 0.8413
    assert abs(share - 0.8413) < 4 * np.sqrt(0.84 * 0.16 / n)


def test_an_error_belongs_to_the_request_and_the_seed() -> None:
    """A policy that rejects or a fleet that is slow changes no other number."""
    error = predicted(sigma=1)
    _, first, _ = seen_in(workload=clients(), instances=FLEET, length_prediction=error)
    _, slow, _ = seen_in(workload=clients(), instances=flat(2, 1), length_prediction=error)
    _, other, _ = seen_in(1, workload=clients(), instances=FLEET, length_prediction=error)
    assert first.tolist() == slow.tolist()
    assert first.tolist() != other.tolist()


def test_predictions_that_no_policy_reads_change_nothing() -> None:
    plain = Simulation(workload=clients(), instances=FLEET)
    for prediction in (predicted(sigma=1), predicted(model="learned"), predicted(factor=3)):
        noisy = plain.replace(length_prediction=prediction)
        assert simulate(noisy).digest == simulate(plain).digest
        assert random_streams(noisy) == random_streams(plain)


def test_the_stream_of_predictions_is_drawn_where_they_are_read() -> None:
    base = Simulation(length_prediction=predicted(sigma=0.5))
    assert "predictions" not in random_streams(base)
    by_output = [instance.InstanceGroup(scheduler=instance.Sjf(length="output"))]
    by_prompt = [instance.InstanceGroup(scheduler=instance.Sjf())]
    assert "predictions" in random_streams(base.replace(instances=by_output))
    assert "predictions" not in random_streams(base.replace(instances=by_prompt))
    budget = gateway.Gateway(limit=gateway.TokenBudget(output_length="predicted"))
    assert "predictions" in random_streams(base.replace(gateway=budget))
    exact = base.replace(gateway=budget, length_prediction=predicted())
    assert "predictions" not in random_streams(exact)


def test_a_retry_keeps_its_error() -> None:
    reaction = workload.Reaction(
        timeout_s=0.3, retries=[workload.Retry(max_attempts=3, jitter="none", backoff_s=0.1)]
    )
    settings = {
        "workload": clients(),
        "length_prediction": predicted(sigma=1),
        "gateway": gateway.Gateway(admission=SEES),
    }
    SEEN.clear()
    simulated(instances=FLEET, reaction=reaction, **settings)
    last_attempts = dict(SEEN)
    SEEN.clear()
    result = simulated(instances=flat(0.1, 0.05), **settings)
    assert result.ledger["attempts"] == len(SEEN)
    assert last_attempts == SEEN


# --- models that learn ----------------------------------------------------------------------------


def by_hand(result: spillway.Result, prior: int) -> list[int]:
    """The mean output of the completed requests of the class before each arrival."""
    requests = result.requests
    true = requests["requested_output_tokens"]
    ends = requests["arrival_s"] + requests["e2e_s"]
    found = []
    for row, at in enumerate(requests["arrival_s"]):
        before = (ends < at) & (requests["slo_class"] == requests["slo_class"][row])
        mean = true[before].mean() if before.any() else prior
        found.append(max(int(np.floor(mean + 0.5)), 1))
    return found


def test_class_mean_is_that_of_completed_requests() -> None:
    two = workload.Synthetic(
        num_requests=400,
        requests_per_s=20,
        clients=[
            workload.Client(
                name="short", output_tokens=workload.Uniform(min_tokens=1, max_tokens=9)
            ),
            workload.Client(
                name="long",
                slo_class="batch",
                output_tokens=workload.Uniform(min_tokens=100, max_tokens=900),
            ),
        ],
    )
    result, guesses, _ = seen_in(
        workload=two,
        instances=flat(0.5, 0.1),
        length_prediction=predicted(model="class_mean", prior_tokens=77),
    )
    assert guesses.tolist() == by_hand(result, 77)
    assert (guesses == 77).sum() > 2


def test_a_regression_learns_how_outputs_follow_prompts() -> None:
    rng = np.random.default_rng(1)
    prompt = rng.integers(100, 3000, 600)
    output = np.rint(40 + 0.25 * prompt).astype(int)
    trace = spillway.trace(
        arrival_s=np.arange(600) * 0.1, input_tokens=prompt, output_tokens=output
    )
    _, guesses, _ = seen_in(
        workload=trace,
        instances=flat(0.5, 0.1),
        length_prediction=predicted(model="learned", prior_tokens=1000),
    )
    assert set(guesses[:5]) == {1000}
    errors = np.abs(guesses - output) / output
    assert errors[300:].max() < 0.02


def test_a_model_that_learns_sees_the_short_outputs_first() -> None:
    """Under overload the completed requests are the short ones, so predictions are too low."""
    lengths = workload.Lognormal(mu=5, sigma=1.2, max_tokens=20_000)
    client = workload.Client(input_tokens=workload.Fixed(tokens=50), output_tokens=lengths)
    load = workload.Synthetic(num_requests=600, requests_per_s=40, clients=[client])
    result, guesses, _ = seen_in(
        workload=load,
        instances=instance.InstanceGroup(max_num_seqs=512),
        length_prediction=predicted(model="class_mean"),
    )
    mean = result.requests["requested_output_tokens"].mean()
    settled = guesses[guesses != 256]
    assert settled[:50].mean() < 0.75 * mean


def test_predictions_that_learn_are_those_of_streaming_runs() -> None:
    settings = {
        "workload": clients(),
        "instances": FLEET,
        "length_prediction": predicted(model="learned", sigma=0.3, forgetting=0.9),
    }
    _, kept, _ = seen_in(**settings)
    SEEN.clear()
    simulated(
        gateway=gateway.Gateway(admission=SEES),
        metrics=spillway.metrics.Metrics(streaming=True),
        **settings,
    )
    assert [SEEN[row][0] for row in sorted(SEEN)] == kept.tolist()


# --- max_tokens -----------------------------------------------------------------------------------


def test_outputs_of_a_client_end_at_its_max_tokens() -> None:
    free, _, _ = seen_in(workload=clients(), instances=FLEET)
    cut, guesses, limits = seen_in(
        workload=clients(max_tokens=150),
        instances=FLEET,
        length_prediction=predicted(factor=10),
    )
    wanted = free.requests["requested_output_tokens"]
    assert cut.requests["requested_output_tokens"].tolist() == np.minimum(wanted, 150).tolist()
    assert set(limits) == {150}
    assert guesses.max() == 150


def test_max_tokens_of_users_and_streams() -> None:
    users = workload.ClosedLoop(users=5, think_time_s=0.1)
    loop = clients(max_tokens=150, arrivals=users, num_requests=200)
    result, _, limits = seen_in(workload=loop.replace(num_requests=None), instances=FLEET)
    assert set(limits) == {150}
    assert result.requests["requested_output_tokens"].max() == 150
    kept = simulated(workload=clients(max_tokens=150), instances=FLEET)
    streamed = simulated(
        workload=clients(max_tokens=150),
        instances=FLEET,
        metrics=spillway.metrics.Metrics(streaming=True),
    )
    assert kept.summary()["completed"] == 2000
    name = "total_output_tokens"
    assert kept.summary()[name] == streamed.summary()[name]


RECORDED: dict[str, Any] = {
    "arrival_s": [0, 1, 2, 3],
    "input_tokens": [10, 20, 30, 40],
    "output_tokens": [5, 6, 7, 0],
    "max_tokens": [100, 6, 0, 50],
}


def test_a_trace_has_max_tokens(tmp_path: Any) -> None:
    trace = spillway.trace(**RECORDED)
    _, _, limits = seen_in(workload=trace, instances=FLEET)
    assert limits.tolist() == RECORDED["max_tokens"]
    path = tmp_path / "trace.csv"
    traffic.write(trace, path)
    assert path.read_text().splitlines()[0].endswith(",max_tokens")
    again = spillway.read_trace(path)
    assert again.sha256 == trace.sha256
    without = spillway.trace(**{**RECORDED, "max_tokens": None})
    assert trace != without
    assert spillway.trace(**{**RECORDED, "max_tokens": [0] * 4}) == without
    path.write_text("arrival_s,input_tokens,output_tokens,max_tokens\n0,1,5,\n1,1,5,4\n")
    with pytest.raises(TraceError, match=r"line 3, max_tokens = '4': must be >= output_tokens \(5"):
        spillway.read_trace(path)
    with pytest.raises(ConfigError, match=r"max_tokens\[1\] = 5: must be 0, or >= output_tokens"):
        spillway.trace(**{**RECORDED, "max_tokens": [100, 5, 0, 50]})


def test_transforms_keep_max_tokens() -> None:
    trace = spillway.trace(**RECORDED)

    def after(*transforms: Any) -> dict[str, list[int]]:
        columns = traffic.applied(trace.replace(transforms=transforms))._columns()
        return {name: columns[name].tolist() for name in ("output_tokens", "max_tokens")}

    assert after(workload.Window(start_s=1))["max_tokens"] == [6, 0, 50]
    scaled = after(workload.ScalePart(output_factor=2))
    assert scaled == {"output_tokens": [10, 12, 14, 0], "max_tokens": [200, 12, 0, 100]}
    capped = after(workload.CapLengths(output_tokens=6))
    assert capped == {"output_tokens": [5, 6, 6, 0], "max_tokens": [6, 6, 0, 6]}
    drawn = after(workload.DrawLengths(output_tokens=workload.Fixed(tokens=60)))
    assert drawn == {"output_tokens": [60, 6, 60, 50], "max_tokens": [100, 6, 0, 50]}
    both = traffic.merged(trace, spillway.trace(**{**RECORDED, "max_tokens": None}))
    assert both._columns()["max_tokens"].tolist() == [100, 0, 6, 0, 0, 0, 50, 0]


def test_a_request_from_outside_may_state_max_tokens() -> None:
    one = {"input_tokens": 10, "output_tokens": 5, "max_tokens": 9}
    trace = spillway.trace(arrival_s=[0, 2], input_tokens=[1, 1], output_tokens=[1, 1])
    changes = [spillway.Change(at_s=1, submit=[one])]
    _, _, limits = seen_in(workload=trace, instances=FLEET, changes=changes)
    assert limits.tolist() == [0, 9, 0]
    with pytest.raises(ConfigError, match=r"max_tokens = 4: must be >= output_tokens \(5\)"):
        spillway.Change(at_s=1, submit=[{**one, "max_tokens": 4}])


# --- what uses them -------------------------------------------------------------------------------


LENGTHS = [50, 500, 20, 20]


def waiting(**settings: Any) -> list[int]:
    """The order in which one server takes requests that come while it is busy."""
    first, *others = range(5)
    result = run(
        [0, 0.1, 0.2, 0.3, 0.4],
        output_tokens=[1, *LENGTHS],
        input_tokens=[1, 10, 1, 100, 90],
        **settings,
    )
    found: list[int] = order(result)
    assert found[0] == first
    assert sorted(found[1:]) == others
    return found[1:]


def queued(ordering: Any) -> gateway.Gateway:
    band = gateway.Band(queue=gateway.Queue(ordering=ordering))
    return gateway.Gateway(limit=fixed(1), bands=[band])


def test_a_queue_takes_the_shortest_output_first() -> None:
    assert waiting(gateway=queued("fcfs")) == [1, 2, 3, 4]
    assert waiting(gateway=queued("shortest_output")) == [3, 4, 1, 2]
    unknown = predicted(model="class_mean", prior_tokens=9)
    assert waiting(gateway=queued("shortest_output"), length_prediction=unknown) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("length", "expected"),
    [("prompt", [2, 1, 4, 3]), ("output", [3, 4, 1, 2]), ("total", [1, 4, 3, 2])],
)
def test_a_scheduler_takes_the_shortest_job_first(length: Any, expected: list[int]) -> None:
    server = instance.InstanceGroup(max_num_seqs=1, scheduler=instance.Sjf(length=length))
    result = run(
        [0, 1e-4, 2e-4, 3e-4, 4e-4],
        output_tokens=[100, *LENGTHS],
        input_tokens=[1, 10, 1, 100, 90],
        instances=server,
    )
    began = result.requests["ttft_s"] + result.requests["arrival_s"]
    assert np.argsort(began).tolist() == [0, *expected]


def test_shortest_first_follows_cobham_until_predictions_fail() -> None:
    """Two lengths, one server: Cobham (1954) for exact predictions, FCFS for useless ones.

    The mean wait of the class with priority is W0 / (1 - its load), that of the other class is
    W0 / ((1 - load of the first) (1 - whole load)); without order it is W0 / (1 - whole load).
    """
    short, long, share = 10, 90, 0.8
    token_s, rate = 0.01, 2.8
    lengths = workload.Empirical(values=[short, long], weights=[share, 1 - share])
    client = workload.Client(input_tokens=workload.Fixed(tokens=1), output_tokens=lengths)
    load = workload.Synthetic(num_requests=40_000, requests_per_s=rate, clients=[client])
    server = instance.InstanceGroup(
        max_num_seqs=1,
        scheduler=instance.Sjf(length="output"),
        latency=instance.Linear(
            alpha0_us=0, alpha_input_us=0, alpha_output_us=0, beta0_us=1e6 * token_s,
            beta_prefill_us=0, beta_decode_us=0,
        ),
    )  # fmt: skip
    services = np.array([short, long]) * token_s
    shares = np.array([share, 1 - share])
    loads = rate * shares * services
    residual = rate * (shares * services**2).sum() / 2

    def waits(**error: Any) -> dict[int, float]:
        result = simulated(workload=load, instances=server, length_prediction=predicted(**error))
        requests = result.requests
        wait = requests["scheduling_delay_s"]
        return {
            tokens: float(wait[requests["output_tokens"] == tokens].mean())
            for tokens in (short, long)
        }

    exact = waits()
    assert exact[short] == pytest.approx(residual / (1 - loads[0]), rel=0.06)
    first_come = residual / (1 - loads.sum())
    assert exact[long] == pytest.approx(first_come / (1 - loads[0]), rel=0.15)
    useless = waits(sigma=10)
    assert useless[short] == pytest.approx(first_come, rel=0.15)
    assert useless[long] == pytest.approx(first_come, rel=0.15)
    between = waits(sigma=1)[short]
    assert exact[short] < between < useless[short]


def test_a_token_budget_counts_what_is_predicted_or_stated() -> None:
    def starts(length: Any, prediction: workload.LengthPrediction | None = None) -> list[bool]:
        policy = build(
            gateway.TokenBudget(
                max_tokens_in_flight=300, assumed_output_tokens=20, output_length=length
            ),
            simulation=Simulation(length_prediction=prediction or predicted()),
        )
        found = []
        for tokens, most in ((80, 0), (80, 200), (60, 120)):
            request = Request(input_tokens=50, output_tokens=tokens, max_tokens=most)
            found.append(policy.decide(request).may_start)
            if found[-1]:
                policy.started(request)
        return found

    assert starts("fixed") == [True, True, True]  # 70 each
    assert starts("predicted") == [True, True, False]  # 130 + 130 + 110
    assert starts("max_tokens") == [True, False, True]  # 70, then 250 or 170
    assert starts("predicted", predicted(factor=2)) == [True, False, False]  # 210 + 210


def test_a_rate_limit_reserves_what_is_stated_or_predicted() -> None:
    def reasons(length: Any, **prediction: Any) -> list[str]:
        policy = build(
            gateway.RateLimit(
                max_requests=None,
                max_tokens=300,
                reserved_output_tokens=20,
                output_length=length,
            ),
            simulation=Simulation(length_prediction=predicted(**prediction)),
        )
        return [
            policy.decide(
                Request(input_tokens=50, output_tokens=60, max_tokens=most), now_s=0
            ).reason.removeprefix("rate_limit_")
            for most in (0, 150, 0)
        ]

    assert reasons("fixed") == ["", "", ""]  # 70 each
    assert reasons("max_tokens") == ["", "", "tokens"]  # 70 + 200 + 70
    assert reasons("predicted") == ["", "", "tokens"]  # 110 each
    assert reasons("predicted", factor=3) == ["", "tokens", "tokens"]  # 230, then 50 + 150 at most


def test_charges_may_be_those_of_predictions() -> None:
    """A tenant whose outputs are predicted half as long is served twice as much."""

    def served(factor: float) -> dict[str, int]:
        cost = gateway.Cost(
            unit="weighted_tokens",
            prompt_weight=0,
            output_weight=1,
            output_estimate="predicted",
        )
        band = gateway.Band(fairness=gateway.StartTimeFair(cost=cost))
        n = 400
        result = run(
            np.zeros(n),
            tenant=["a", "b"] * (n // 2),
            output_tokens=[10, 20] * (n // 2),
            gateway=gateway.Gateway(limit=fixed(1), bands=[band]),
            length_prediction=predicted(factor=factor),
            horizon_s=150,
        )
        counts: dict[str, int] = defaultdict(int)
        for way in ways(result):
            counts[way.tenant] += way.ended is not None
        return counts

    exact = served(1)
    assert abs(exact["a"] - 2 * exact["b"]) <= 3
    assert served(2) == exact  # a common factor is no unfairness


def test_outcomes_stay_when_a_prediction_is_only_seen() -> None:
    plain = simulated(workload=clients(), instances=FLEET)
    watched, _, _ = seen_in(
        workload=clients(), instances=FLEET, length_prediction=predicted(sigma=2)
    )
    assert outcomes(watched) == outcomes(plain)
    assert watched.requests["e2e_s"].tolist() == plain.requests["e2e_s"].tolist()
