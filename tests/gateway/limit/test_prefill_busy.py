"""The queue in Dynamo's router: requests wait while every instance has prompts enough."""

from __future__ import annotations

from typing import Any

from support.runs import MS, run_ns, steady, ways

from spillway import Result, gateway, instance, workload

SERVERS = instance.InstanceGroup(
    count=2, max_num_batched_tokens=100, latency=steady(10), num_kv_blocks=10_000
)


def queued(
    input_tokens: list[int], threshold: float = 1, classes: Any = (), **settings: Any
) -> Result:
    """All at once, 20 ms after a request on each server that takes three steps."""
    fairness = gateway.PolicyClasses(classes=classes or [gateway.PolicyClass()])
    return run_ns(
        [0, 0, *[20 * MS] * len(input_tokens)],
        input_tokens=[300, 300, *input_tokens],
        output_tokens=1,
        router="least_loaded",
        instances=SERVERS,
        gateway=gateway.Gateway(
            limit=gateway.PrefillBusy(threshold=threshold), bands=[gateway.Band(fairness=fairness)]
        ),
        **settings,
    )


def dispatched_ms(result: Result) -> list[float | None]:
    return [None if way.dispatched is None else way.dispatched / MS for way in ways(result)][2:]


def test_one_is_sent_before_the_next_may_start() -> None:
    """Both first ones have their tokens at 30 ms. The next two make the servers busy for 11 steps,
    one of them also with the small one, which is still within the threshold."""
    sent = dispatched_ms(queued([1100, 1100, 10, 10]))
    assert sent == [30, 30, 140, 140]
    assert dispatched_ms(queued([50, 50, 10, 10])) == [30] * 4
    assert dispatched_ms(queued([50, 50, 10, 10], threshold=3)) == [20, 20, 30, 30]


def test_the_fewest_tokens_go_first() -> None:
    shortest = [gateway.PolicyClass(order="wspt")]
    assert dispatched_ms(queued([1100, 900, 700, 500], classes=shortest)) == [100, 80, 30, 30]


def test_classes_take_turns_by_their_tokens() -> None:
    """Short prompts do not wait behind long ones that came before."""
    classes = [
        gateway.PolicyClass(name="short", quantum_tokens=100),
        gateway.PolicyClass(name="long", min_uncached_tokens=500, quantum_tokens=100),
    ]
    sent = dispatched_ms(queued([1100, 1100, 1100, 80, 80], classes=classes))
    assert sent[3:] == [30, 30]
    plain = dispatched_ms(queued([1100, 1100, 1100, 80, 80]))
    assert plain[:2] == [30, 30]
    assert plain[3] > 100


def test_full_classes_reject() -> None:
    """Two servers, so two requests or two times 1,000 tokens may wait."""
    few = [gateway.PolicyClass(max_requests_per_worker=1)]
    result = queued([10, 10, 10], classes=few)
    assert result.requests["outcome"].tolist()[2:] == ["completed", "completed", "rejected"]
    assert set(result.requests["reason"][4:].tolist()) == {"queue_full"}
    small = [gateway.PolicyClass(max_prompt_tokens_per_worker=1000)]
    result = queued([1500, 1500, 10], classes=small)
    assert result.requests["outcome"].tolist()[2:] == ["completed", "completed", "rejected"]


def test_a_priority_jump_counts_as_an_earlier_arrival() -> None:
    asked = [gateway.PolicyRequest(slo_class="urgent", priority_jump_s=1)]
    result = run_ns(
        [0, 0, 10 * MS, 11 * MS, 12 * MS],
        input_tokens=[300, 300, 1100, 1100, 1100],
        output_tokens=1,
        slo_class=["plain", "plain", "plain", "plain", "urgent"],
        slo_classes=[workload.SloClass(name="plain"), workload.SloClass(name="urgent")],
        router="least_loaded",
        instances=SERVERS,
        gateway=gateway.Gateway(
            limit=gateway.PrefillBusy(threshold=1),
            bands=[gateway.Band(fairness=gateway.PolicyClasses(requests=asked))],
        ),
    )
    sent = dispatched_ms(result)
    assert sent[2] == sent[0] == 30
    assert sent[1] > 30
