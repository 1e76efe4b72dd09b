"""Synthetic requests: distributions, common random numbers, order, truncation.

The seeds are fixed, so a failure is no fluke but a change. A band of four standard deviations or a
p-value of 1e-4 would refuse a true distribution once in some 10,000 cases.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import optimize, special, stats

from spillway import ConfigError, Result, Simulation, gateway, instance, simulate, workload

if TYPE_CHECKING:
    from collections.abc import Callable

SIGMAS = 4.0
SMALLEST_P = 1e-4
SAMPLE = 100_000

Row = tuple[int, int, int]


def offered(synthetic: workload.Synthetic, seed: int = 1, quantum_ns: int = 1) -> Result:
    """The requests, rejected on arrival: they need no service to be observed."""
    return simulate(
        Simulation(
            workload=synthetic,
            gateway=gateway.Gateway(admission=gateway.RejectAll()),
            quantum_ns=quantum_ns,
        ),
        seed,
    )


def served(synthetic: workload.Synthetic, seed: int = 1) -> Result:
    """The requests, all served at once, so that the output lengths can be seen."""
    roomy = instance.InstanceGroup(
        max_num_seqs=10**6,
        max_num_batched_tokens=10**9,
        num_kv_blocks=10**9,
        latency=instance.Linear(
            alpha0_us=0, alpha_input_us=0, alpha_output_us=0, beta_prefill_us=0, beta_decode_us=0
        ),
    )
    result = simulate(Simulation(workload=synthetic, instances=(roomy,)), seed)
    assert result.ledger["completed"] == result.requests.num_rows
    return result


def arrivals_ns(result: Result) -> np.ndarray:
    return np.rint(result.requests["arrival_s"] * 1e9).astype(np.int64)


def rows(result: Result, tenant: str | None = None) -> list[Row]:
    """(arrival in ns, input tokens, output tokens), in order; of one tenant if one is given."""
    requests = result.requests
    columns = zip(
        arrivals_ns(result).tolist(),
        requests["input_tokens"].tolist(),
        requests["output_tokens"].tolist(),
        requests["tenant"].tolist(),
        strict=True,
    )
    return [row[:3] for row in columns if tenant in (None, row[3])]


def assert_moments(sample: np.ndarray, moment: Callable[[int], float]) -> None:
    """Mean and coefficient of variation within four standard errors of those of raw moments."""
    m1, m2, m3, m4 = (moment(k) for k in (1, 2, 3, 4))
    n = len(sample)
    assert abs(sample.mean() - m1) <= SIGMAS * math.sqrt((m2 - m1**2) / n)
    true_cv = math.sqrt(m2 - m1**2) / m1
    # Delta method for sqrt(m2/m1² - 1).
    by_m1 = -m2 / (m1**3 * true_cv)
    by_m2 = 1 / (2 * m1**2 * true_cv)
    variance = (
        by_m1**2 * (m2 - m1**2) + 2 * by_m1 * by_m2 * (m3 - m1 * m2) + by_m2**2 * (m4 - m2**2)
    )
    cv = sample.std() / sample.mean()
    assert abs(cv - true_cv) <= SIGMAS * math.sqrt(variance / n)


# Arrivals


def gaps_s(arrivals: Any, rate: float) -> np.ndarray:
    client = workload.Client(arrivals=arrivals)
    synthetic = workload.Synthetic(requests_per_s=rate, num_requests=SAMPLE, clients=(client,))
    return np.diff(offered(synthetic).requests["arrival_s"], prepend=0)


def weibull_of(cv: float) -> Any:
    def excess(shape: float) -> float:
        log_square = special.gammaln(1 + 2 / shape) - 2 * special.gammaln(1 + 1 / shape)
        return math.expm1(log_square) - cv**2

    shape = optimize.brentq(excess, 0.1, 100, xtol=1e-14)
    return stats.weibull_min(shape, scale=1 / special.gamma(1 + 1 / shape))


PROCESSES = [
    (workload.Poisson(), stats.expon()),
    *[
        (workload.Gamma(cv=cv), stats.gamma(1 / cv**2, scale=cv**2))
        for cv in (0.1, 0.5, 1.0, 1.5, 3.0)
    ],
    *[(workload.Weibull(cv=cv), weibull_of(cv)) for cv in (0.1, 0.5, 1.0, 1.5, 3.0)],
]


@pytest.mark.parametrize(("arrivals", "gap"), PROCESSES, ids=[repr(law) for law, _ in PROCESSES])
def test_gaps_have_their_distribution(arrivals: Any, gap: Any) -> None:
    """`gap` is the distribution of the gaps in units of their mean."""
    rate = 20.0
    sample = gaps_s(arrivals, rate) * rate
    assert_moments(sample, gap.moment)
    # Bursts have gaps of nanoseconds, which the clock cannot show: they are only counted.
    shortest = 1e-4
    share = gap.sf(shortest)
    longer = sample[sample > shortest]
    spread = math.sqrt(len(sample) * share * (1 - share))
    assert abs(len(longer) - len(sample) * share) <= SIGMAS * spread + 1e-6
    assert stats.kstest(longer, lambda x: 1 - gap.sf(x) / share).pvalue > SMALLEST_P
    # Gaps are independent of the gap before.
    assert abs(np.corrcoef(sample[1:], sample[:-1])[0, 1]) < SIGMAS / math.sqrt(len(sample))


@pytest.mark.parametrize("cv", [0.1, 0.5, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("process", [workload.Gamma, workload.Weibull])
def test_cv_is_the_gaps_coefficient_of_variation(process: Any, cv: float) -> None:
    sample = gaps_s(process(cv=cv), rate=5)
    # Without the theory above: the heaviest tail here has a standard error of 1.5 %.
    assert sample.mean() == pytest.approx(0.2, rel=0.05)
    assert sample.std() / sample.mean() == pytest.approx(cv, rel=0.06)


def test_constant_arrivals_are_evenly_spaced() -> None:
    client = workload.Client(arrivals=workload.Constant())
    synthetic = workload.Synthetic(requests_per_s=8, num_requests=1000, clients=(client,))
    assert arrivals_ns(offered(synthetic)).tolist() == [125_000_000 * k for k in range(1, 1001)]


def test_rate_is_shared_by_fractions() -> None:
    fractions = {"a": 1.0, "b": 2.0, "c": 5.0}
    synthetic = workload.Synthetic(
        requests_per_s=100,
        num_requests=10**6,
        duration_s=1000,
        clients=tuple(
            workload.Client(name=name, tenant=name, rate_fraction=fraction)
            for name, fraction in fractions.items()
        ),
    )
    tenant = offered(synthetic).requests["tenant"]
    for name, fraction in fractions.items():
        expected = 100 * 1000 * fraction / 8
        assert abs((tenant == name).sum() - expected) <= SIGMAS * math.sqrt(expected)  # Poisson


# Lengths


def rounded(law: Any, low: int, high: int) -> dict[int, float]:
    """Probabilities of a continuous law clamped to [low, high] and rounded half away from zero."""
    edges = [-math.inf, *(k + 0.5 for k in range(low, high)), math.inf]
    return {low + i: float(law.cdf(b) - law.cdf(a)) for i, (a, b) in enumerate(pairwise(edges))}


LENGTHS = [
    (
        workload.Gaussian(mean_tokens=100, std_dev_tokens=40, min_tokens=20, max_tokens=150),
        rounded(stats.norm(100, 40), 20, 150),
    ),
    (
        workload.Gaussian(mean_tokens=5, std_dev_tokens=30, min_tokens=1, max_tokens=400),
        rounded(stats.norm(5, 30), 1, 400),
    ),
    (
        workload.Exponential(mean_tokens=30, min_tokens=5, max_tokens=80),
        rounded(stats.expon(scale=30), 5, 80),
    ),
    (
        workload.Exponential(mean_tokens=3, min_tokens=1, max_tokens=1000),
        rounded(stats.expon(scale=3), 1, 1000),
    ),
    (
        workload.Lognormal(mu=3, sigma=1, min_tokens=2, max_tokens=200),
        rounded(stats.lognorm(1, scale=math.exp(3)), 2, 200),
    ),
    (workload.Empirical(values=(5, 900, 7, 5), weights=(1, 0, 2.5, 0.5)), {5: 1.5 / 4, 7: 2.5 / 4}),
    (workload.Empirical(values=(3, 1, 2)), {1: 1 / 3, 2: 1 / 3, 3: 1 / 3}),
]


@pytest.mark.parametrize(("lengths", "law"), LENGTHS, ids=[repr(law) for law, _ in LENGTHS])
@pytest.mark.parametrize("column", ["input_tokens", "output_tokens"])
def test_lengths_have_their_distribution(column: str, lengths: Any, law: dict[int, float]) -> None:
    other = {"input_tokens": "output_tokens", "output_tokens": "input_tokens"}[column]
    client = workload.Client(**{column: lengths, other: workload.Fixed(tokens=1)})
    synthetic = workload.Synthetic(num_requests=SAMPLE, clients=(client,))
    result = offered(synthetic) if column == "input_tokens" else served(synthetic)
    sample = result.requests[column]
    assert set(sample.tolist()) <= set(law)
    assert_moments(sample, lambda k: math.fsum(p * x**k for x, p in law.items()))

    # Chi-square over cells of at least ten expected requests.
    observed, expected, cell = [0], [0.0], 0.0
    counts = np.bincount(sample, minlength=max(law) + 1)
    for length, probability in law.items():
        if cell >= 10:
            observed.append(0)
            expected.append(0.0)
            cell = 0.0
        observed[-1] += counts[length]
        expected[-1] += probability * SAMPLE
        cell += probability * SAMPLE
    if cell < 10 and len(observed) > 1:
        observed[-2:] = [sum(observed[-2:])]
        expected[-2:] = [sum(expected[-2:])]
    assert len(observed) > 1
    assert stats.chisquare(observed, expected, sum_check=False).pvalue > SMALLEST_P


def test_fixed_lengths_are_fixed() -> None:
    client = workload.Client(
        input_tokens=workload.Fixed(tokens=17), output_tokens=workload.Fixed(tokens=3)
    )
    result = served(workload.Synthetic(num_requests=50, clients=(client,)))
    assert {row[1:] for row in rows(result)} == {(17, 3)}


def test_a_prompt_has_at_least_one_token_and_an_answer_may_have_none() -> None:
    nothing = workload.Fixed(tokens=0)
    empty = workload.Client(input_tokens=nothing, output_tokens=nothing)
    result = offered(workload.Synthetic(num_requests=50, clients=(empty,)))
    assert {row[1] for row in rows(result)} == {1}
    silent = workload.Client(input_tokens=workload.Fixed(tokens=1), output_tokens=nothing)
    result = served(workload.Synthetic(num_requests=50, clients=(silent,)))
    assert {row[2] for row in rows(result)} == {0}


@pytest.mark.parametrize(
    "lengths",
    [
        workload.Gaussian(mean_tokens=10, std_dev_tokens=10, min_tokens=4, max_tokens=4),
        workload.Gaussian(mean_tokens=4.4, std_dev_tokens=0, min_tokens=1, max_tokens=9),
        workload.Gaussian(mean_tokens=3.5, std_dev_tokens=0, min_tokens=1, max_tokens=9),
        workload.Exponential(mean_tokens=1e6, min_tokens=1, max_tokens=4),
        workload.Lognormal(mu=math.log(4), sigma=0, min_tokens=1, max_tokens=9),
        workload.Empirical(values=(4,)),
    ],
    ids=repr,
)
def test_degenerate_lengths(lengths: Any) -> None:
    result = offered(
        workload.Synthetic(num_requests=50, clients=(workload.Client(input_tokens=lengths),))
    )
    assert set(result.requests["input_tokens"].tolist()) == {4}


def test_gaps_and_lengths_of_all_clients_are_independent() -> None:
    clients = tuple(
        workload.Client(
            name=name,
            tenant=name,
            input_tokens=workload.Exponential(mean_tokens=1000),
            output_tokens=workload.Exponential(mean_tokens=20),
        )
        for name in ("a", "b")
    )
    result = served(workload.Synthetic(num_requests=20_000, clients=clients))
    columns = []
    for name in ("a", "b"):
        arrival, prompt, answer = np.array(rows(result, name)).T[:, :9000]
        columns += [np.diff(arrival, prepend=0), prompt, answer]
    correlation = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(correlation).max() < SIGMAS / math.sqrt(9000)


# Common random numbers

MIXED = (
    workload.Client(
        name="first",
        tenant="first",
        arrivals=workload.Gamma(cv=2),
        input_tokens=workload.Gaussian(mean_tokens=50, std_dev_tokens=20),
        output_tokens=workload.Exponential(mean_tokens=5),
    ),
    workload.Client(
        name="second",
        tenant="second",
        slo_class="batch",
        input_tokens=workload.Lognormal(mu=3, sigma=1, max_tokens=500),
        output_tokens=workload.Gaussian(mean_tokens=8, std_dev_tokens=4),
    ),
)
SPAN_S = 60.0


def both(clients: tuple[workload.Client, ...], rate: float = 20) -> Result:
    """All requests of a minute."""
    return served(
        workload.Synthetic(
            requests_per_s=rate, num_requests=10**6, duration_s=SPAN_S, clients=clients
        )
    )


def test_a_further_client_leaves_the_others_requests_as_they_were() -> None:
    before = both(MIXED)
    # The third takes its third of a rate that is larger by as much: the others' own rates stay.
    after = both((*MIXED, workload.Client(name="third", tenant="third")), rate=30)
    for tenant in ("first", "second"):
        assert rows(after, tenant) == rows(before, tenant)
        assert len(rows(before, tenant)) > 400
    assert len(rows(after, "third")) > 400


@pytest.mark.parametrize(
    "change",
    [
        {"arrivals": workload.Weibull(cv=3)},
        {"arrivals": workload.Constant()},
        {"input_tokens": workload.Fixed(tokens=1)},
        {"output_tokens": workload.Fixed(tokens=40)},
        {"slo_class": "critical"},
        {"name": "another"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("changed", [0, 1])
def test_changing_a_client_leaves_the_other_as_it_was(changed: int, change: dict[str, Any]) -> None:
    clients = list(MIXED)
    clients[changed] = clients[changed].replace(**change)
    before, after = both(MIXED), both(tuple(clients))
    other = MIXED[1 - changed].tenant
    assert rows(after, other) == rows(before, other)
    # And of the changed one, only what was changed differs.
    tenant = MIXED[changed].tenant
    column = {"arrivals": 0, "input_tokens": 1, "output_tokens": 2}.get(next(iter(change)))
    old, new = rows(before, tenant), rows(after, tenant)
    shared = min(len(old), len(new))
    assert shared > 300
    for i in range(3):
        is_same = [row[i] for row in old[:shared]] == [row[i] for row in new[:shared]]
        assert is_same == (i != column)


def test_what_the_fleet_does_leaves_the_requests_as_they_are() -> None:
    synthetic = workload.Synthetic(num_requests=500, clients=MIXED)
    free = rows(served(synthetic))
    assert [row[:2] for row in free] == [row[:2] for row in rows(offered(synthetic))]


# Order and truncation


def test_num_requests_keeps_the_earliest() -> None:
    every = offered(workload.Synthetic(num_requests=5000, clients=MIXED))
    few = offered(workload.Synthetic(num_requests=200, clients=MIXED))
    assert few.requests.num_rows == 200
    assert rows(few) == rows(every)[:200]
    assert few.requests["tenant"].tolist() == every.requests["tenant"][:200].tolist()


def test_duration_ends_the_arrivals() -> None:
    every = offered(workload.Synthetic(requests_per_s=50, num_requests=5000, clients=MIXED))
    until_end = offered(
        workload.Synthetic(requests_per_s=50, num_requests=5000, duration_s=20, clients=MIXED)
    )
    until = arrivals_ns(every) < 20 * 10**9
    assert 0 < until.sum() < 5000
    assert rows(until_end) == rows(every)[: until.sum()]
    both_limits = offered(
        workload.Synthetic(requests_per_s=50, num_requests=30, duration_s=20, clients=MIXED)
    )
    assert rows(both_limits) == rows(every)[:30]


def test_requests_are_in_order_of_arrival_and_ties_in_order_of_the_clients() -> None:
    clients = tuple(
        workload.Client(name=name, tenant=name, arrivals=workload.Constant())
        for name in ("z", "a", "m")
    )
    result = offered(workload.Synthetic(requests_per_s=30, num_requests=300, clients=clients))
    assert result.requests["tenant"].tolist() == ["z", "a", "m"] * 100
    assert len(set(arrivals_ns(result).tolist())) == 100
    mixed = arrivals_ns(offered(workload.Synthetic(num_requests=5000, clients=MIXED)))
    assert (np.diff(mixed) >= 0).all()


@pytest.mark.parametrize("quantum_ns", [1000, 7])
def test_arrivals_are_whole_quanta(quantum_ns: int) -> None:
    synthetic = workload.Synthetic(num_requests=5000, clients=MIXED)
    fine = arrivals_ns(offered(synthetic))
    coarse = arrivals_ns(offered(synthetic, quantum_ns=quantum_ns))
    assert (coarse % quantum_ns == 0).all()
    assert (coarse == fine // quantum_ns * quantum_ns).all()


def test_a_shared_prefix_comes_on_top_of_the_prompt() -> None:
    prefixed = tuple(client.replace(prefix_group="system", prefix_tokens=1000) for client in MIXED)
    plain = rows(served(workload.Synthetic(num_requests=300, clients=MIXED)))
    longer = rows(served(workload.Synthetic(num_requests=300, clients=prefixed)))
    assert longer == [(at, prompt + 1000, answer) for at, prompt, answer in plain]


# Clients of their own rate and time


def only(client: workload.Client, seed: int = 1, **settings: Any) -> list[Row]:
    return rows(offered(workload.Synthetic(clients=(client,), **settings), seed))


LATE = workload.Client(name="late", tenant="late", requests_per_s=40, start_s=20, duration_s=15)


def test_a_start_shifts_the_arrivals() -> None:
    client = MIXED[0].replace(requests_per_s=8)
    early = only(client, num_requests=500)
    late = only(client.replace(start_s=30), num_requests=500)
    assert [row[1:] for row in late] == [row[1:] for row in early]
    # Seconds are added up in floating point: the last digit of a nanosecond may differ.
    shifts = np.array(late)[:, 0] - np.array(early)[:, 0]
    assert np.abs(shifts - 30 * 10**9).max() <= 1


def test_the_first_gap_counts_from_the_start() -> None:
    client = workload.Client(requests_per_s=4, start_s=2.5, duration_s=1, arrivals="constant")
    # 3.5 s is the end, at which nothing arrives any more.
    assert [row[0] for row in only(client)] == [2_750_000_000, 3_000_000_000, 3_250_000_000]


def test_a_client_that_ends_is_one_that_goes_on_cut_short() -> None:
    endless = only(LATE.replace(duration_s=None), num_requests=5000)
    until = [row for row in endless if row[0] < 35 * 10**9]
    assert 500 < len(until) < 700
    assert only(LATE) == until
    assert only(LATE.replace(num_requests=100)) == endless[:100]
    assert only(LATE.replace(num_requests=5000)) == until
    assert only(LATE.replace(duration_s=None, num_requests=2000)) == endless[:2000]


def test_the_limits_of_the_workload_hold_as_well() -> None:
    every = only(LATE)
    assert only(LATE, num_requests=50) == every[:50]
    assert only(LATE, duration_s=25) == [row for row in every if row[0] < 25 * 10**9]
    assert only(LATE, duration_s=20) == []
    assert only(LATE, num_requests=10**6) == every


def test_a_workload_ends_by_itself_if_each_client_does() -> None:
    finite = LATE.replace(requests_per_s=100, duration_s=30)
    assert len(only(finite)) > 2500
    assert len(only(finite.replace(duration_s=None, num_requests=1500))) == 1500
    # A client that goes on keeps the limit of 1,000.
    both_kinds = workload.Synthetic(clients=(finite, workload.Client(name="endless")))
    assert offered(both_kinds).requests.num_rows == 1000


def test_own_rates_stand_beside_shares() -> None:
    synthetic = workload.Synthetic(
        requests_per_s=30,
        duration_s=1000,
        clients=(
            workload.Client(name="a", tenant="a", rate_fraction=2),
            workload.Client(name="own", tenant="own", requests_per_s=70),
            workload.Client(name="b", tenant="b", rate_fraction=1),
        ),
    )
    tenant = offered(synthetic).requests["tenant"]
    for name, rate in {"a": 20, "own": 70, "b": 10}.items():
        assert abs((tenant == name).sum() - rate * 1000) <= SIGMAS * math.sqrt(rate * 1000)


def test_the_rate_of_the_workload_is_nothing_to_clients_of_their_own() -> None:
    clients = tuple(client.replace(requests_per_s=5) for client in MIXED)
    slow, fast = (
        rows(offered(workload.Synthetic(requests_per_s=rate, num_requests=300, clients=clients)))
        for rate in (0.1, 1000)
    )
    assert slow == fast


def test_an_own_rate_equals_the_same_share() -> None:
    # 20 requests/s in equal shares are 10 each.
    shared = both(MIXED)
    separate = both(tuple(client.replace(requests_per_s=10) for client in MIXED), rate=3)
    assert rows(separate) == rows(shared)


def test_a_client_of_its_own_rate_leaves_the_others_as_they_were() -> None:
    before = both(MIXED)
    after = both((*MIXED, LATE))
    for tenant in ("first", "second"):
        assert rows(after, tenant) == rows(before, tenant)
    late = rows(after, "late")
    assert len(late) > 500
    assert all(20 * 10**9 <= arrival < 35 * 10**9 for arrival, _, _ in late)


@pytest.mark.parametrize(
    "change",
    [{"requests_per_s": 80}, {"start_s": 1}, {"duration_s": 5}, {"num_requests": 3}],
    ids=repr,
)
def test_changing_when_a_client_asks_leaves_the_others_as_they_were(change: dict[str, Any]) -> None:
    before, after = both((LATE, *MIXED)), both((LATE.replace(**change), *MIXED))
    for tenant in ("first", "second"):
        assert rows(after, tenant) == rows(before, tenant)
    # The lengths of its n-th request stay, too.
    shared = [
        [row[1:] for row in rows(result, "late")[: min(3, len(rows(after, "late")))]]
        for result in (before, after)
    ]
    assert shared[0] == shared[1]


def test_steps_of_a_rate_are_clients_of_one_tenant() -> None:
    steps = {0: 20.0, 100: 80.0, 150: 5.0}
    ends = dict(zip(steps, (100, 150, 400), strict=True))
    clients = tuple(
        workload.Client(
            name=f"from {start}", requests_per_s=rate, start_s=start, duration_s=ends[start] - start
        )
        for start, rate in steps.items()
    )
    arrival_s = offered(workload.Synthetic(clients=clients)).requests["arrival_s"]
    assert (np.diff(arrival_s) >= 0).all()
    for start, rate in steps.items():
        count = ((arrival_s >= start) & (arrival_s < ends[start])).sum()
        expected = rate * (ends[start] - start)
        assert abs(count - expected) <= SIGMAS * math.sqrt(expected)


@pytest.mark.parametrize("quantum_ns", [1, 1000])
def test_streamed_clients_are_those_that_are_kept(quantum_ns: int) -> None:
    """Requests are drawn one at a time in streaming mode, and all at once otherwise."""
    clients = (
        *MIXED,
        LATE,
        LATE.replace(name="counted", tenant="counted", duration_s=None, num_requests=70),
        LATE.replace(name="never", tenant="never", start_s=100),
    )
    kept = Simulation(
        workload=workload.Synthetic(requests_per_s=20, duration_s=60, clients=clients),
        gateway=gateway.Gateway(admission=gateway.TokenBucket(capacity_tokens=3000)),
        quantum_ns=quantum_ns,
    )
    results = [simulate(setup, 3) for setup in (kept, kept.with_({"metrics.streaming": True}))]
    assert results[0].ledger == results[1].ledger
    counts = [{name: row["offered"] for name, row in run.by_tenant().items()} for run in results]
    assert counts[0] == counts[1]
    assert counts[0]["counted"] == 70
    assert counts[0].get("never", 0) == 0
    assert (results[0].steps, results[0].events) == (results[1].steps, results[1].events)


def test_a_client_has_a_share_or_a_rate() -> None:
    with pytest.raises(ConfigError) as caught:
        workload.Client(requests_per_s=3, rate_fraction=2)
    assert caught.value.violations == (
        ("rate_fraction", "2", "must be 1, because requests_per_s is given"),
    )
    with pytest.raises(ConfigError, match=r"clients\[1\]\.rate_fraction"):
        workload.Synthetic(
            clients=[{"name": "a"}, {"name": "b", "requests_per_s": 1, "rate_fraction": 0.5}]
        )


# Labels and seeds


def test_requests_carry_their_clients_tenant_and_class() -> None:
    requests = offered(workload.Synthetic(num_requests=1000, clients=MIXED)).requests
    pairs = set(zip(requests["tenant"].tolist(), requests["slo_class"].tolist(), strict=True))
    assert pairs == {("first", "standard"), ("second", "batch")}


def test_clients_of_one_tenant_are_counted_together() -> None:
    clients = tuple(client.replace(tenant="shared") for client in MIXED)
    result = offered(workload.Synthetic(num_requests=100, clients=clients))
    assert result.by_tenant()["shared"]["offered"] == 100
    assert result.by_class()["standard"]["offered"] + result.by_class()["batch"]["offered"] == 100


def test_a_seed_names_the_requests() -> None:
    synthetic = workload.Synthetic(num_requests=300, clients=MIXED)
    seeds = (0, 1, 2, 2**63, 2**64 - 1)
    runs = [rows(served(synthetic, seed)) for seed in seeds]
    assert [rows(served(synthetic, seed)) for seed in seeds] == runs
    for column in range(3):
        assert len({tuple(row[column] for row in run) for run in runs}) == len(seeds)
