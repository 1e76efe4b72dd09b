"""Rate limits: windows, charges, keys, Retry-After."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.runs import flat, outcomes, run

from spillway import ConfigError, Simulation, gateway, workload
from spillway.testing import Admission, Request, build


def limit(**settings: Any) -> gateway.RateLimit:
    return gateway.RateLimit(**({"max_requests": None, "window_s": 10} | settings))


def answers(policy: Admission, times: list[float], **request: Any) -> list[str]:
    """The reasons of the refusals, without the common part; empty: admitted."""
    decisions = [policy.decide(Request(**request), now_s=now_s) for now_s in times]
    return [decision.reason.removeprefix("rate_limit_") for decision in decisions]


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "admitted"),
    [
        ("aligned", [8, 9, 10, 11, 20]),
        ("first_request", [8, 9, 18, 19]),
        ("sliding", [8, 9, 18, 19]),
        ("bucket", [8, 9, 17, 18]),
    ],
)
def test_where_a_window_begins(window: str, admitted: list[int]) -> None:
    policy = build(limit(max_requests=2, window=window))
    times = [8, 9, 10, 11, 12, 17, 18, 19, 20]
    found = answers(policy, [float(at) for at in times])
    assert [at for at, reason in zip(times, found, strict=True) if not reason] == admitted
    assert set(found) == {"", "requests"}


def test_a_sliding_window_forgets_one_at_a_time() -> None:
    policy = build(limit(max_requests=2, window="sliding"))
    assert answers(policy, [0, 6, 9.999, 10, 11, 16]) == ["", "", "requests", "", "requests", ""]


def test_a_window_of_a_key_begins_with_its_own_request() -> None:
    policy = build(
        limit(max_requests=1, window="first_request"),
        tenants=[workload.Tenant(name="a"), workload.Tenant(name="b")],
    )
    assert answers(policy, [0.0], tenant="a") == [""]
    assert answers(policy, [6.0], tenant="b") == [""]
    assert answers(policy, [11.0], tenant="a") == [""]
    assert answers(policy, [12.0], tenant="b") == ["requests"]
    assert answers(policy, [16.0], tenant="b") == [""]


def test_a_bucket_refills_one_by_one() -> None:
    policy = build(limit(max_requests=2, window="bucket"))
    times = [0.0, 0.0, 4.999999, 5.0, 5.0, 9.0, 10.0, 100.0, 100.0, 100.0]
    refused = [2, 4, 5, 9]
    found = answers(policy, times)
    assert [i for i, reason in enumerate(found) if reason] == refused


def test_a_bucket_of_tokens_holds_at_most_its_size() -> None:
    policy = build(limit(max_tokens=1000, reserved_output_tokens=300, window="bucket"))
    first = Request(input_tokens=500, output_tokens=50)
    assert policy.decide(first, now_s=0.0).admitted  # 800 reserved
    assert not policy.decide(Request(input_tokens=1), now_s=1.0).admitted  # 300 left
    assert policy.decide(Request(input_tokens=1), now_s=1.01).admitted  # 301
    policy.dispatched(first, now_s=1.01)
    policy.first_token(first, now_s=2.0)
    policy.finished(first, now_s=9.01)  # 250 come back, of which 49 have room
    assert policy.decide(Request(input_tokens=700), now_s=9.01).admitted
    assert not policy.decide(Request(input_tokens=1, output_tokens=1), now_s=9.01).admitted


def test_a_bucket_may_owe_tokens() -> None:
    policy = build(limit(max_tokens=1000, charge="at_end", window="bucket"))
    request = Request(input_tokens=2000, output_tokens=100)
    assert policy.decide(request, now_s=0.0).admitted
    policy.dispatched(request, now_s=0.0)
    policy.finished(request, now_s=1.0)
    assert answers(policy, [11.0, 12.0, 12.009, 12.01]) == ["tokens", "tokens", "tokens", ""]


# --- tokens ---------------------------------------------------------------------------------------


def test_a_reservation_is_settled() -> None:
    policy = build(limit(max_tokens=1000, reserved_output_tokens=300, window="sliding"))
    first = Request(input_tokens=500, output_tokens=50)
    assert policy.decide(first, now_s=0.0).admitted  # 800 reserved
    assert not policy.decide(Request(input_tokens=1), now_s=1.0).admitted
    policy.dispatched(first, now_s=1.0)
    policy.first_token(first, now_s=2.0)
    policy.finished(first, now_s=3.0)  # 550 used
    assert not policy.decide(Request(input_tokens=151), now_s=4.0).admitted
    second = Request(input_tokens=150)
    assert policy.decide(second, now_s=4.0).admitted  # 1000
    policy.finished(second, outcome="expired", now_s=5.0)  # all back
    assert policy.decide(Request(input_tokens=150), now_s=6.0).admitted


def test_charged_at_the_end_what_is_in_flight_is_invisible() -> None:
    policy = build(limit(max_tokens=1000, charge="at_end"))
    several = [Request(input_tokens=900, output_tokens=900) for _ in range(5)]
    for request in several:
        assert policy.decide(request, now_s=0.0).admitted
    policy.finished(several[0], outcome="cancelled", now_s=1.0)
    assert policy.decide(Request(), now_s=1.0).admitted
    policy.dispatched(several[1], now_s=1.0)
    policy.finished(several[1], now_s=2.0)
    assert policy.decide(Request(), now_s=3.0).reason == "rate_limit_tokens"
    assert policy.decide(Request(), now_s=10.0).admitted


@pytest.mark.parametrize(("tokens", "most"), [("total", 400), ("prompt", 700), ("output", 1000)])
def test_which_tokens_count(tokens: str, most: int) -> None:
    policy = limit(max_tokens=700, reserved_output_tokens=300, tokens=tokens)
    for input_tokens, admits in ((most, True), (most + 1, tokens == "output")):
        decision = build(policy).decide(Request(input_tokens=input_tokens))
        assert decision.admitted == admits


def test_classes_may_reserve_another_output() -> None:
    own = [gateway.ClassOutput(slo_class="batch", output_tokens=2000)]
    policy = limit(max_tokens=1000, reserved_output_tokens=300, reserved_of_class=own)
    assert answers(build(policy), [0.0], slo_class="standard") == [""]
    assert answers(build(policy), [0.0], slo_class="batch") == ["tokens"]


# --- parallel requests and refusals ---------------------------------------------------------------


def test_parallel_requests_are_those_from_admission_to_the_end() -> None:
    policy = build(limit(max_parallel=1))
    first = Request()
    assert policy.decide(first, now_s=0.0).admitted
    assert answers(policy, [1.0]) == ["parallel"]
    policy.finished(first, outcome="expired", now_s=2.0)  # from the queue
    assert answers(policy, [3.0]) == [""]


@pytest.mark.parametrize(("counts", "third"), [(True, "requests"), (False, "")])
def test_a_refused_request_may_use_up_one(counts: bool, third: str) -> None:
    policy = build(limit(max_requests=2, max_parallel=1, counts_refused=counts))
    first = Request()
    assert policy.decide(first, now_s=0.0).admitted
    assert answers(policy, [1.0]) == ["parallel"]
    policy.finished(first, outcome="cancelled", now_s=2.0)
    assert answers(policy, [3.0]) == [third]


@pytest.mark.parametrize(
    ("settings", "retry_after_s"),
    [
        ({"retry_after": "none"}, 0),
        ({"retry_after": "window"}, 10),
        ({"retry_after": "remaining"}, 6),
        ({"retry_after": "remaining", "window": "first_request"}, 9),
        ({"retry_after": "remaining", "window": "sliding"}, 9),
        ({"retry_after": "remaining", "window": "bucket"}, 9),
        ({"retry_after": "remaining", "window": "bucket", "max_requests": 4}, 1.5),
        ({"retry_after": "window", "window": "bucket", "max_requests": 4}, 10),
    ],
)
def test_retry_after(settings: dict[str, Any], retry_after_s: float) -> None:
    policy = build(limit(**({"max_requests": 1} | settings)))
    for _ in range(settings.get("max_requests", 1)):
        assert policy.decide(Request(), now_s=3.0).retry_after_s == 0
    assert policy.decide(Request(), now_s=4.0).retry_after_s == pytest.approx(
        retry_after_s, abs=2e-9
    )


@pytest.mark.parametrize(
    ("settings", "retry_after_s"),
    [
        ({}, 2),  # 500 of 1000 and 300 used, 1000 / 10 s
        ({"max_tokens": 400}, 10 * 300 / 400),  # never room for it: until the bucket is full
        ({"max_tokens": 0}, 10),
    ],
)
def test_retry_after_tokens(settings: dict[str, Any], retry_after_s: float) -> None:
    policy = build(
        limit(**({"max_tokens": 1000} | settings), window="bucket", reserved_output_tokens=0)
    )
    if settings.get("max_tokens") != 0:
        assert policy.decide(Request(input_tokens=300), now_s=0.0).admitted
    if not settings:
        assert policy.decide(Request(input_tokens=400), now_s=0.0).admitted
    refused = policy.decide(Request(input_tokens=500), now_s=0.0)
    assert refused.reason == "rate_limit_tokens"
    assert refused.retry_after_s == retry_after_s
    if not settings:
        assert policy.decide(Request(input_tokens=500), now_s=retry_after_s).admitted


def test_parallel_requests_end_at_an_unknown_time() -> None:
    policy = build(limit(max_parallel=0, retry_after="remaining"))
    assert policy.decide(Request(), now_s=4.0).retry_after_s == 0


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "refused"),
    [
        ("tenant", [0, 1, 1, 0]),
        ("slo_class", [0, 0, 1, 1]),
        ("tenant_and_class", [0, 0, 1, 0]),
        ("gateway", [0, 1, 1, 1]),
    ],
)
def test_which_requests_share_a_limit(key: str, refused: list[int]) -> None:
    result = run(
        [0, 0.1, 0.2, 0.3],
        tenant=["a", "a", "a", "b"],
        slo_class=["standard", "batch", "standard", "standard"],
        gateway=gateway.Gateway(admission=limit(max_requests=1, key=key)),
    )
    assert [outcome == "rejected" for outcome in outcomes(result)] == refused


def test_a_key_may_have_its_own_limits() -> None:
    own = [gateway.KeyRate(tenant="a"), gateway.KeyRate(tenant="b", max_requests=2)]
    result = run(
        [0.01 * i for i in range(9)],
        tenant=["a", "b", "c"] * 3,
        gateway=gateway.Gateway(admission=limit(max_requests=1, own=own)),
    )
    admitted = [outcome == "completed" for outcome in outcomes(result)]
    assert [sum(admitted[i::3]) for i in range(3)] == [3, 2, 1]


def test_limits_of_keys_must_fit_the_key() -> None:
    allowed = "must be unset, because it is not part of the key"
    with pytest.raises(ConfigError, match=rf"own\[0\].slo_class = 'batch': {allowed}"):
        limit(own=[gateway.KeyRate(slo_class="batch")])
    with pytest.raises(ConfigError, match=rf"own\[0\].tenant = 'a': {allowed}"):
        limit(own=[gateway.KeyRate(tenant="a")], key="slo_class")
    with pytest.raises(ConfigError, match=r"own\[0\].tenant = 'x': must be one of"):
        Simulation(gateway={"admission": limit(own=[gateway.KeyRate(tenant="x")])})


# --- clients that obey ----------------------------------------------------------------------------


def attempts_of(settings: dict[str, Any], **rate: Any) -> list[tuple[int, float]]:
    """Attempts of each of three requests at 1 s, of which one a window passes, and its dispatch."""
    rules = workload.Retry(**({"jitter": "none", "max_attempts": 9, "backoff_s": 1} | settings))
    result = run(
        [1, 1, 1],
        gateway=gateway.Gateway(admission=limit(max_requests=1, **rate)),
        reaction=workload.Reaction(retries=[rules]),
    )
    columns = result.requests
    begun = np.round(columns["arrival_s"] + columns["ttft_s"] - 0.25, 6)
    return list(zip(columns["attempts"].tolist(), begun.tolist(), strict=True))


def test_clients_that_obey_come_back_with_the_window() -> None:
    obeying = attempts_of({"obeys_retry_after": True})
    assert obeying == [(1, 1), (2, 10), (3, 20)]
    # Without a Retry-After there is the backoff: 1, 2, 4, 8 s after the failure before.
    assert attempts_of({"obeys_retry_after": True}, retry_after="none") == attempts_of({})
    assert attempts_of({}) == [(1, 1), (5, 16), (6, 32)]
    # LiteLLM states the whole window, whatever remains of it.
    assert attempts_of({"obeys_retry_after": True}, retry_after="window") == [
        (1, 1),
        (2, 11),
        (3, 21),
    ]


def test_a_gateway_may_state_a_retry_after_for_all_that_it_sheds() -> None:
    rules = workload.Retry(jitter="none", obeys_retry_after=True, backoff_s=0.1)
    for queue, permits in ((gateway.Queue(max_requests=1), 1), (gateway.Queue(timeout_s=0.5), 1)):
        result = run(
            [0, 0, 0],
            gateway=gateway.Gateway(
                limit=gateway.FixedLimit(max_in_flight=permits),
                bands=[gateway.Band(queue=queue)],
                retry_after_s=3,
            ),
            instances=flat(1),
            reaction=workload.Reaction(retries=[rules]),
        )
        columns = result.requests
        assert max(columns["attempts"]) > 1
        again = columns["attempts"] > 1
        begun = columns["arrival_s"] + columns["ttft_s"] - 0.25
        assert min(begun[again]) >= 3


def test_a_bucket_that_changes_keeps_what_is_used() -> None:
    path = "gateway.admission[rate_limit].max_requests"
    result = run(
        [0, 0, 0.1, 0.2, 0.3, 0.4, 5.5],
        gateway=gateway.Gateway(admission=limit(max_requests=2, window="bucket", key="gateway")),
        changes=[{"at_s": 0.15, "set": {path: 4}}],
    )
    refused = [outcome == "rejected" for outcome in outcomes(result)]
    assert refused == [False, False, True, False, False, True, False]
