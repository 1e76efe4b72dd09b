"""The truth table of prefill and decode pools: what Dynamo and llm-d decide, row by row.

`CELLS` names the test of every cell that states something. What a system is not known to do, but
must by its rules, is marked as inferred; what is not simulated says so.
"""

from __future__ import annotations

import ast
import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.paths import ROOT
from support.pools import group

from spillway import (
    ConfigError,
    LivelockError,
    Simulation,
    fleet,
    gateway,
    instance,
    router,
    signals,
    simulate,
    trace,
)
from spillway.testing import check_conservation

if TYPE_CHECKING:
    from spillway import Result

_HERE = "tests/cluster/test_pools_table.py"
_TWIN = "tests/cluster/test_pools_twin.py"
NOT_SIMULATED = "not simulated: "

# A row, and whether the cell is that of Dynamo (D) or of llm-d (L).
CELLS = {
    "1 D": f"{_HERE}::test_groups_of_role_both_alone_are_no_pools",
    "1 L": f"{_HERE}::test_groups_of_role_both_alone_are_no_pools",
    "2 D": f"{_HERE}::test_without_a_prefill_pool_requests_are_local",
    "2 L": f"{_HERE}::test_without_a_prefill_pool_requests_are_local",
    "3 D": f"{_HERE}::test_requests_are_local_once_the_prefill_worker_has_left",
    "3 L": f"{_HERE}::test_requests_are_local_once_the_prefill_worker_has_left",
    "4 L": f"{_HERE}::test_uncached_tokens_decide_inclusively",
    "5 L": f"{_HERE}::test_uncached_tokens_decide_inclusively",
    "12 D": f"{_HERE}::test_busy_prefill_pool_rejects_before_anything_is_computed",
    "12 L": f"{_HERE}::test_saturated_prefill_pool_keeps_requests_queued",
    "13 D": f"{_HERE}::test_busy_prefill_worker_is_skipped",
    "13 L": f"{_HERE}::test_full_prefill_pod_is_filtered_out",
    "14 D": f"{_HERE}::test_busy_decode_pool_rejects_what_was_prefilled",
    "14 L": f"{_HERE}::test_saturated_decode_pool_keeps_requests_queued",
    "15 D": f"{_HERE}::test_decode_threshold_holds_for_the_prefill_pool_too",  # inferred
    "16 D": f"{_HERE}::test_prefill_tokens_count_where_the_prompt_is_computed",  # inferred
    "17 D": f"{_HERE}::test_worker_with_a_free_rank_is_not_overloaded",
    "18 D": f"{_HERE}::test_changed_thresholds_bite_at_the_next_load_event",
    "19 D": "tests/signals/test_busy_monitor.py::test_the_latch_also_uses_what_the_engine_reports",
    "20 D": f"{_HERE}::test_answer_of_one_token_ends_with_its_prefill",
    "20 L": f"{_HERE}::test_decode_leg_follows_an_answer_of_one_token",
    "21 D": f"{_HERE}::test_prompt_is_read_although_its_client_has_left",
    "21 L": f"{_HERE}::test_client_that_leaves_frees_both_sides",  # inferred
    "22 L": f"{_HERE}::test_saturated_prefill_pool_keeps_local_requests_queued",
    "23 L": f"{_HERE}::test_mixed_instances_are_part_of_both_pools",
    "24 D": f"{_HERE}::test_request_fails_with_its_prefill",
    "24 L": f"{_HERE}::test_prefill_is_tried_again_at_the_same_pod",
    "25 D": f"{_HERE}::test_request_goes_on_when_its_decode_worker_dies",
    "25 L": f"{_HERE}::test_request_fails_with_its_decode_worker",
    "26 D": f"{_HERE}::test_transfer_takes_its_bytes_and_the_latency",
    "26 L": f"{_HERE}::test_transfer_takes_its_bytes_and_the_latency",
    "27 D": f"{_HERE}::test_blocks_of_the_decode_leg_precede_the_prefill",
}


@cache
def _tests_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("cell", [cell for cell in CELLS if "::" in CELLS[cell]])
def test_cells_have_tests(cell: str) -> None:
    path, name = CELLS[cell].split("::")
    assert name in _tests_of(path)


US = 1e-6


def run(
    arrival_us: list[float],
    input_tokens: list[int],
    output_tokens: int | list[int] = 1,
    groups: tuple[instance.InstanceGroup, ...] = (),
    **settings: Any,
) -> Result:
    """Each prompt token takes 10 us, each step 100 us and 1 us for each decoding request."""
    if isinstance(output_tokens, int):
        output_tokens = [output_tokens] * len(arrival_us)
    pools: dict[str, Any] = {}
    for name in router.Disaggregation().to_dict():
        if name in settings:
            pools[name] = settings.pop(name)
    workload = settings.pop("prefixes", {})
    result = simulate(
        Simulation(
            workload=trace(
                arrival_s=[at * US for at in arrival_us],
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                **workload,
            ),
            instances=groups or (group("prefill"), group("decode")),
            disaggregation=router.Disaggregation(**pools),
            **settings,
        )
    )
    check_conservation(result)
    return result


def outcomes(result: Result) -> list[str]:
    requests = result.requests
    rows = zip(requests["outcome"], requests["reason"], strict=True)
    return [str(reason or outcome) for outcome, reason in rows]


# ---- rows 1 to 5 ---------------------------------------------------------------------------------


def test_groups_of_role_both_alone_are_no_pools() -> None:
    both = (group("both", count=2),)
    settings: dict[str, Any] = {"order": "decode_first", "handoff": "at_dispatch"}
    plain = run([0, 10, 20], [30, 8, 9], 4, both)
    assert plain.digest == run([0, 10, 20], [30, 8, 9], 4, both, **settings).digest
    assert "legs" not in plain.ledger


@pytest.mark.parametrize("order", ["prefill_first", "decode_first"])
def test_without_a_prefill_pool_requests_are_local(order: str) -> None:
    result = run([0, 10], [30, 8], 4, (group("decode", count=2),), order=order)
    assert outcomes(result) == ["completed"] * 2
    assert result.ledger["legs"]["local"] == 2


@pytest.mark.parametrize(
    ("prompt", "shared", "least", "is_local"),
    [
        (2047, 0, 2048, True),
        (2048, 0, 2048, False),
        (4096, 3072, 1024, False),
        (4096, 3072, 1025, True),
    ],
)
def test_uncached_tokens_decide_inclusively(
    prompt: int, shared: int, least: int, is_local: bool
) -> None:
    server = {"max_num_batched_tokens": 8192, "num_kv_blocks": 10_000, "block_size_tokens": 16}
    result = run(
        [0, 500_000],
        [prompt, prompt],
        groups=(group("prefill", **server), group("decode", **server)),
        order="decode_first",
        decider=router.UncachedTokens(min_uncached_tokens=least),
        prefixes={"prefix_group": ["system"] * 2, "prefix_tokens": [shared] * 2} if shared else {},
    )
    assert outcomes(result) == ["completed"] * 2
    assert (result.requests["prefill_instance"][1] == -1) == is_local


def crash(at_us: float, number: int, **settings: Any) -> dict[str, Any]:
    """A change by which an instance crashes."""
    return {"at_s": at_us * US, "faults": [fleet.Crash(instance=number, **settings)]}


@pytest.mark.parametrize("order", ["prefill_first", "decode_first"])
def test_requests_are_local_once_the_prefill_worker_has_left(order: str) -> None:
    """The first is served, the second loses its prompt, the third finds no prefill worker."""
    result = run([0, 5000, 6000], [30, 30, 30], 4, order=order, changes=[crash(5200, 0)])
    assert outcomes(result) == ["completed", "instance_lost", "completed"]
    assert list(result.requests["prefill_instance"]) == [0, 0, -1]
    assert result.ledger["legs"]["local"] == 1


# ---- rows 12 to 19: Dynamo's busy workers --------------------------------------------------------

BUSY = gateway.Gateway(admission=gateway.BusyThreshold())


def test_busy_prefill_pool_rejects_before_anything_is_computed() -> None:
    result = run(
        [0, 1, 2],
        [60, 60, 60],
        4,
        (group("prefill", count=2), group("decode")),
        gateway=BUSY,
        busy_monitor=signals.BusyMonitor(active_prefill_tokens_threshold=10),
    )
    assert outcomes(result) == ["completed", "completed", "all_workers_busy"]
    assert result.ledger["legs"]["prefill_entered"] == 2
    assert result.summary()["wasted_tokens"] == 0


def test_busy_prefill_worker_is_skipped() -> None:
    """It is the first one's turn again while its long prompt is computed."""
    settings: dict[str, Any] = {"groups": (group("prefill", count=2), group("decode"))}
    plain = run([0, 1, 200], [60, 5, 5], **settings)
    busy = signals.BusyMonitor(active_prefill_tokens_threshold=10)
    skipped = run([0, 1, 200], [60, 5, 5], **settings, busy_monitor=busy)
    assert list(plain.requests["prefill_instance"]) == [0, 1, 0]
    assert list(skipped.requests["prefill_instance"]) == [0, 1, 1]


def decode_is_full(**settings: Any) -> Result:
    """The second prompt arrives while the first request's answer is computed."""
    roomy = group("prefill", num_kv_blocks=1000)
    return run([0, 800], [60, 60], [12, 1], (roomy, group("decode")), **settings)


def test_busy_decode_pool_rejects_what_was_prefilled() -> None:
    busy = signals.BusyMonitor(active_decode_blocks_threshold=0.1)
    result = decode_is_full(gateway=BUSY, busy_monitor=busy)
    assert outcomes(result) == ["completed", "decode_overloaded"]
    assert list(result.requests["wasted_tokens"]) == [0, 60]
    assert result.summary()["wasted_tokens"] == 60
    assert result.ledger["handoff_rejected"] == {"decode_overloaded": 1}
    assert result.ledger["legs"]["prefill_ended"] == 2


def test_own_thresholds_replace_the_shared_ones() -> None:
    """Beyond the systems: of each pool."""
    of_decode = signals.BusyMonitor(decode_pool_decode_blocks_threshold=0.1)
    assert outcomes(decode_is_full(gateway=BUSY, busy_monitor=of_decode))[1] == "decode_overloaded"
    lenient = signals.BusyMonitor(
        active_decode_blocks_threshold=0.1, decode_pool_decode_blocks_threshold=0.9
    )
    assert outcomes(decode_is_full(gateway=BUSY, busy_monitor=lenient)) == ["completed"] * 2
    of_prefill = signals.BusyMonitor(prefill_pool_prefill_tokens_threshold=10)
    result = run([0, 100], [60, 60], gateway=BUSY, busy_monitor=of_prefill)
    assert outcomes(result) == ["completed", "all_workers_busy"]


def test_decode_threshold_holds_for_the_prefill_pool_too() -> None:
    """A prompt that was computed and not read yet counts there."""
    result = run(
        [0, 5000],
        [60, 8],
        gateway=BUSY,
        busy_monitor=signals.BusyMonitor(active_decode_blocks_threshold=0.1),
        link=router.KvLink(base_latency_s=0.01),
    )
    assert result.requests["prefill_end_s"][0] < 0.005
    assert outcomes(result) == ["completed", "all_workers_busy"]


def test_prefill_tokens_count_where_the_prompt_is_computed() -> None:
    """A decode worker is never busy with remote prompts, and with local ones it is."""
    settings: dict[str, Any] = {
        "gateway": BUSY,
        "busy_monitor": signals.BusyMonitor(active_prefill_tokens_threshold=10),
    }
    # The second leg of the first request gets its seat while that of the second one is chosen.
    remote = run([0, 701], [60, 60], 12, **settings)
    assert outcomes(remote) == ["completed"] * 2
    local = run([0, 10], [60, 60], 12, **settings, decider=router.NeverRemote())
    assert outcomes(local) == ["completed", "all_workers_busy"]


@pytest.mark.parametrize("policy", [router.RoundRobin(), router.KvCost()])
def test_worker_with_a_free_rank_is_not_overloaded(policy: Any) -> None:
    """The second prompt goes to the other rank; then both are over."""
    result = run(
        [0, 10, 20],
        [60, 60, 60],
        4,
        (group("prefill", data_parallel_size=2), group("decode")),
        gateway=BUSY,
        busy_monitor=signals.BusyMonitor(active_prefill_tokens_threshold=10),
        router=policy,
    )
    assert outcomes(result) == ["completed", "completed", "all_workers_busy"]
    computed_s = (result.requests["prefill_end_s"] - result.requests["arrival_s"])[:2]
    assert computed_s == pytest.approx([700 * US] * 2, abs=1e-9)


def test_changed_thresholds_bite_at_the_next_load_event() -> None:
    """The third request is the first one after such an event; a decode worker changes, too."""
    change = {"at_s": 0.001, "set": {"busy_monitor.active_prefill_tokens_threshold": 10}}
    arrival_us = [900.0, 1200.0, 1250.0]
    result = run(arrival_us, [60, 60, 60], gateway=BUSY, changes=[change])
    assert outcomes(result) == ["completed", "completed", "all_workers_busy"]
    change = {"at_s": 0.0001, "set": {"busy_monitor.active_decode_blocks_threshold": 0.1}}
    result = decode_is_full(gateway=BUSY, changes=[change])
    assert outcomes(result) == ["completed", "decode_overloaded"]


# ---- rows 12 to 22: llm-d's saturation -----------------------------------------------------------


def gate(**settings: Any) -> gateway.Gateway:
    return gateway.Gateway(limit=gateway.Saturation(**settings))


def queued_us(result: Result) -> list[float]:
    return [round(float(queued) / US, 3) for queued in result.requests["queue_s"]]


def with_waiting_prompt(across: str = "max", **settings: Any) -> Result:
    """The second prompt waits for the first one's seat when the third request arrives."""
    one_seat = group("prefill", max_num_seqs=1)
    return run(
        [0, 10, 20],
        [60, 60, 5],
        4,
        (one_seat, group("decode")),
        gateway=gate(queue_depth_threshold=1, across=across),
        **settings,
    )


def test_saturated_prefill_pool_keeps_requests_queued() -> None:
    result = with_waiting_prompt()
    assert outcomes(result) == ["completed"] * 3
    queued = queued_us(result)
    assert queued[:2] == [0, 0]
    assert queued[2] >= 680


def test_saturated_prefill_pool_keeps_local_requests_queued() -> None:
    """llm-d's maximum over the pools starves local work; that of the decode pool alone does not."""
    settings: dict[str, Any] = {
        "order": "decode_first",
        "decider": router.UncachedTokens(min_uncached_tokens=50),
    }
    starved = with_waiting_prompt(**settings)
    assert starved.requests["prefill_instance"][2] == -1
    assert queued_us(starved)[2] >= 680
    assert queued_us(with_waiting_prompt("prefill", **settings))[2] >= 680
    assert queued_us(with_waiting_prompt("decode", **settings))[2] == 0
    # Of both instances together: half as saturated.
    assert queued_us(with_waiting_prompt("any", **settings))[2] == 0


def test_saturated_decode_pool_keeps_requests_queued() -> None:
    kept = decode_is_full(gateway=gate(kv_utilization_threshold=0.1))
    assert outcomes(kept) == ["completed"] * 2
    assert queued_us(kept)[1] > 500
    assert kept.summary()["wasted_tokens"] == 0
    sent = decode_is_full(gateway=gate(kv_utilization_threshold=0.1, across="prefill"))
    assert queued_us(sent)[1] == 0


def test_concurrency_counts_requests_in_their_pools() -> None:
    """Two per instance of the prefill pool: the third waits until the first prompt is computed."""
    result = run(
        [0, 0, 0], [60, 60, 60], 12, gateway=gate(detector="concurrency", max_concurrency=2)
    )
    assert outcomes(result) == ["completed"] * 3
    assert queued_us(result)[:2] == [0, 0]
    assert queued_us(result)[2] > 0


def test_full_prefill_pod_is_filtered_out() -> None:
    """By the filter, although it would be scored best."""
    best_first = router.Weighted(
        filters=[router.ConcurrencyFilter(max_concurrency=1)],
        scorers=[router.QueueDepth()],
    )
    prefill = group("prefill", count=2)
    result = run([0, 10], [60, 60], groups=(prefill, group("decode")), router=best_first)
    assert list(result.requests["prefill_instance"]) == [0, 1]


# ---- rows 20 to 27 -------------------------------------------------------------------------------


def test_decode_leg_follows_an_answer_of_one_token() -> None:
    result = run([0], [8], 1)
    assert outcomes(result) == ["completed"]
    assert result.ledger["legs"]["transfers_ended"] == 1


def test_answer_of_one_token_ends_with_its_prefill() -> None:
    result = run([0, 5000], [8, 8], [1, 2], ends_at_first_token=True)
    requests, legs = result.requests, result.ledger["legs"]
    assert outcomes(result) == ["completed"] * 2
    assert list(requests["instance"]) == [0, 1]
    assert list(requests["prefill_instance"]) == [0, 0]
    assert requests["ttft_s"][0] == requests["e2e_s"][0] == requests["prefill_end_s"][0]
    assert requests["ttft_s"][0] == pytest.approx(180 * US, abs=1e-9)
    assert (legs["answered"], legs["transfers_begun"], legs["decode_entered"]) == (1, 1, 1)


@pytest.mark.parametrize("setting", [{"order": "decode_first"}, {"handoff": "at_dispatch"}])
def test_decode_leg_that_is_chosen_first_is_not_left_out(setting: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="chosen after the prefill"):
        router.Disaggregation(ends_at_first_token=True, **setting)


@pytest.mark.parametrize("timeout_us", [300, 720])
@pytest.mark.parametrize("order", ["prefill_first", "decode_first"])
def test_prompt_is_read_although_its_client_has_left(order: str, timeout_us: float) -> None:
    """During the prefill of 700 us, and during the transfer."""
    for reads_on in (True, False):
        result = run(
            [0], [60], 5, order=order, reads_on=reads_on, reaction={"timeout_s": timeout_us * US}
        )
        legs = result.ledger["legs"]
        assert outcomes(result) == ["client_timeout"]
        assert result.requests["wasted_tokens"][0] == 60
        assert legs["transfers_ended"] == legs["prefill_ended"] * reads_on
        assert legs["prefill_ended"] == (reads_on or timeout_us > 700)


def test_prompt_of_a_client_that_has_left_may_get_no_instance() -> None:
    """It is withdrawn all the same, and not rejected."""
    busy = signals.BusyMonitor(active_decode_blocks_threshold=0.1)
    result = decode_is_full(
        gateway=BUSY, busy_monitor=busy, reads_on=True, reaction={"timeout_s": 0.0005}
    )
    assert outcomes(result) == ["client_timeout"] * 2


def test_choice_that_is_not_used_counts_for_nothing() -> None:
    """Both pools choose the same instance; what the prefill router booked there is taken back."""
    result = run(
        [5000.0 * i for i in range(40)],
        [8] * 40,
        groups=(group("both"), group("prefill")),
        order="decode_first",
        router=router.KvCost(),
    )
    assert 5 < result.ledger["legs"]["local"] < 35


@pytest.mark.parametrize("timeout_us", [300, 720])
def test_client_that_leaves_frees_both_sides(timeout_us: float) -> None:
    """During the prefill of 700 us, and during the transfer."""
    result = run(
        [0, 2000],
        [60, 60],
        [5, 1],
        reaction={"timeout_s": timeout_us * US},
        link=router.KvLink(base_latency_s=0.001),
    )
    assert outcomes(result)[0] == "client_timeout"
    assert result.requests["wasted_tokens"][0] == 60
    assert result.ledger["legs"]["decode_waiting"] == 0


def test_mixed_instances_are_part_of_both_pools() -> None:
    """Two mixed ones, one for prompts and one for answers: three are in each pool."""
    groups = (group("both", count=2), group("prefill"), group("decode"))
    result = run([5000.0 * i for i in range(9)], [8] * 9, 3, groups)
    requests = result.requests
    assert outcomes(result) == ["completed"] * 9
    assert list(requests["prefill_instance"]) == [0, 1, 2] * 3
    assert list(requests["instance"]) == [0, 1, 3] * 3
    # Where both pools choose the same instance, the prompt stays.
    assert result.ledger["legs"]["kept"] == 6
    assert list(np.isnan(requests["transfer_s"])) == [True, True, False] * 3


def test_mixed_instances_count_in_the_saturation_of_both_pools() -> None:
    """A prompt on each of the mixed instances: two thirds of a request each in both pools."""
    groups = (group("both", count=2), group("prefill"), group("decode"))
    for across in ("max", "prefill", "decode"):
        for most, is_queued in ((1, False), (0.6, True)):
            limit = gate(detector="concurrency", max_concurrency=most, across=across)
            result = run([0, 10, 20], [60, 60, 60], 3, groups, gateway=limit)
            assert (queued_us(result)[2] > 0) == is_queued, (across, most)


def test_transfer_takes_its_bytes_and_the_latency() -> None:
    server = {
        "kv_bytes_per_token": 128_000,
        "num_kv_blocks": 1000,
        "max_num_batched_tokens": 1000,
    }
    groups = (group("prefill", **server), group("decode", **server))
    result = run([0], [1000], groups=groups)
    assert result.requests["transfer_s"][0] == pytest.approx(0.00512 + 0.00005, abs=1e-9)


def test_blocks_of_the_decode_leg_precede_the_prefill() -> None:
    """And mixed instances that hold what the other one needs are named."""
    small = group("decode", num_kv_blocks=15)
    result = run([0, 10], [57, 57], 2, (group("prefill"), small), handoff="at_dispatch")
    ends = result.requests["arrival_s"] + result.requests["e2e_s"]
    # The second prompt is not computed before the decode instance has blocks for it.
    assert result.requests["prefill_end_s"][1] >= ends[0] + 670 * US
    mixed = (group("both", count=2, num_kv_blocks=3),)
    with pytest.raises(LivelockError, match="request 0 holds blocks of instance 0"):
        run([0, 0], [9, 8], 1, (*mixed, group("prefill", num_kv_blocks=1)))


# ---- rows 24 and 25: failures --------------------------------------------------------------------


@pytest.mark.parametrize("order", ["prefill_first", "decode_first"])
def test_request_fails_with_its_prefill(order: str) -> None:
    """It reaches a prefill worker that has crashed, and works again when the next one does."""
    result = run(
        [1000, 5000],
        [30, 30],
        4,
        order=order,
        changes=[crash(500, 0, for_s=1000 * US)],
        fleet=fleet.Fleet(health=fleet.Health(detected_after_s=1)),
    )
    assert outcomes(result) == ["instance_lost", "completed"]
    assert result.requests["wasted_tokens"][0] == 0
    assert result.faults[0]["lost_requests"] == 1


def prefill_refuses(for_us: float, retries: int, **settings: Any) -> Result:
    """The first of two prefill pods refuses what reaches it from 500 us on, for this long."""
    return run(
        [1000],
        [30],
        4,
        (group("prefill", count=2), group("decode")),
        order="decode_first",
        prefill_max_retries=retries,
        changes=[crash(500, 0, for_s=for_us * US)],
        fleet=fleet.Fleet(health=fleet.Health(detected_after_s=10), startup_s=0),
        **settings,
    )


def test_prefill_is_tried_again_at_the_same_pod() -> None:
    """Refused at 1,000 us, sent again 0.2 s later; the prompt takes 400 us."""
    result = prefill_refuses(1000, 1)
    assert outcomes(result) == ["completed"]
    assert list(result.requests["prefill_instance"]) == [0]
    assert result.requests["prefill_end_s"][0] == pytest.approx(0.2014, abs=1e-9)
    assert result.ledger["legs"]["lost"]["prefill_retries"] == 1
    assert result.time_by_cause().ns[0][-1] == 200_000_000


@pytest.mark.parametrize(("retries", "outcome"), [(0, "instance_lost"), (1, "instance_lost"),
                                                  (2, "completed")])  # fmt: skip
def test_error_of_the_last_try_is_that_of_the_request(retries: int, outcome: str) -> None:
    """The pod works again after the second try, at 201 ms, and before the third one, at 401 ms."""
    result = prefill_refuses(300_000, retries)
    assert outcomes(result) == [outcome]
    assert result.faults[0]["lost_requests"] == min(retries, 1) + 1


def test_client_that_leaves_between_two_tries_withdraws_the_request() -> None:
    """At 51 ms: its permit returns, and the second request is dispatched then."""
    result = run(
        [1000, 2000],
        [30, 30],
        4,
        (group("prefill"), group("decode")),
        order="decode_first",
        prefill_max_retries=1,
        changes=[crash(500, 0, for_s=2000 * US)],
        fleet=fleet.Fleet(health=fleet.Health(detected_after_s=10), startup_s=0),
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=1)),
        tenants=[{"name": "default", "reaction": {"timeout_s": 0.05}}],
    )
    assert outcomes(result)[0] == "client_timeout"
    assert queued_us(result)[1] == 49_000


@pytest.mark.parametrize("setting", [{"order": "prefill_first"}, {"handoff": "at_dispatch"}])
def test_prefill_that_no_sidecar_sends_is_not_tried_again(setting: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="has the prompt computed"):
        router.Disaggregation(**({"order": "decode_first"} | setting), prefill_max_retries=1)


def test_prefill_is_not_tried_again_where_requests_migrate() -> None:
    with pytest.raises(ConfigError, match="prefill_max_retries"):
        run(
            [0],
            [30],
            order="decode_first",
            prefill_max_retries=1,
            changes=[crash(500, 0)],
            fleet=fleet.Fleet(migration=fleet.Migration(limit=1)),
        )


@pytest.mark.parametrize(
    ("at_us", "detected_us", "outcome", "wasted", "lost_legs"),
    [
        (300, 0, "no_decode_instance", 30, 0),
        (300, 1000, "instance_lost", 30, 0),
        (420, 0, "instance_lost", 30, 1),
        (750, 0, "instance_lost", 31, 0),
    ],
    ids=["known", "refuses", "in the transfer", "after two tokens"],
)
def test_request_fails_with_its_decode_worker(
    at_us: float, detected_us: float, outcome: str, wasted: int, lost_legs: int
) -> None:
    """The prompt takes 400 us, the transfer 93 us, the first token 110 us, the next ones 101 us."""
    result = run(
        [0],
        [30],
        9,
        link=router.KvLink(bandwidth_gb_per_s=0.75),
        changes=[crash(at_us, 1)],
        fleet=fleet.Fleet(health=fleet.Health(detected_after_s=detected_us * US)),
    )
    assert outcomes(result) == [outcome]
    assert list(result.requests["wasted_tokens"]) == [wasted]
    legs = result.ledger["legs"]
    assert legs["lost"]["decode"] == legs["transfers_cut"] == lost_legs


def test_request_goes_on_when_its_decode_worker_dies() -> None:
    """Two tokens, at 602.67 and 703.67 us, are part of the prompt of the next pass.

    That takes 420 us from 750 us on, 92.67 us to the other decode worker, and a step of 101 us for
    each of the seven tokens that are left.
    """
    result = run(
        [0],
        [30],
        9,
        (group("prefill"), group("decode", count=2)),
        link=router.KvLink(bandwidth_gb_per_s=0.75),
        changes=[crash(750, 1)],
        fleet=fleet.Fleet(migration=fleet.Migration(limit=1)),
    )
    requests = result.requests
    assert outcomes(result) == ["completed"]
    assert (requests["prefill_instance"][0], requests["instance"][0]) == (0, 2)
    assert requests["prefill_end_s"][0] == pytest.approx(1170 * US, abs=1e-9)
    assert requests["ttft_s"][0] == pytest.approx(602.667 * US, abs=1e-9)
    assert requests["e2e_s"][0] == pytest.approx((1262.667 + 7 * 101) * US, abs=1e-9)
    assert result.summary()["mean_itl_ms"] == pytest.approx((0.66 + 7 * 0.101) / 8)
    for name, known in (
        ("migrations", 1), ("recomputed_tokens", 31), ("wasted_tokens", 31), ("output_tokens", 9),
    ):  # fmt: skip
        assert requests[name][0] == known, name
    assert result.ledger["migrations"] == {"new_request": 0, "ongoing_request": 1}
    legs = result.ledger["legs"]
    assert (legs["prefill_entered"], legs["transfers_ended"], legs["moved_blocks"]) == (2, 2, 16)
    (fault,) = result.faults
    assert (fault["lost_requests"], fault["migrated_requests"]) == (1, 1)
    causes = result.time_by_cause()
    assert causes.seconds(0)["failure"] == pytest.approx(420 * US, abs=1e-9)
    again = "\n".join(result.why(0).splitlines())
    assert "31 of its tokens were computed again" in again


def test_kept_prompt_has_no_transfer_and_its_queue_ends_at_its_seat() -> None:
    result = run([0], [8], 3, (group("both"), group("prefill", num_kv_blocks=1)))
    requests = result.requests
    assert outcomes(result) == ["completed"]
    assert math.isnan(requests["transfer_s"][0])
    assert requests["decode_queue_s"][0] == 0
    assert requests["ttft_s"][0] == pytest.approx((180 + 110) * US, abs=1e-9)
