"""Prefill and decode pools: equal to their twin to the nanosecond, conserved, and as in theory."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import in_parts, trials
from support.engine_trials import CLASSES, server_of, trace_of
from support.pools import LATENCY, group
from support.runs import steady
from support.twins.instance import Request
from support.twins.pools import Conditional, DeadlockError, Link, Pools, PoolsRun

from spillway import (
    LivelockError,
    Simulation,
    check,
    gateway,
    instance,
    router,
    simulate,
    trace,
    workload,
)
from spillway.testing import check_conservation

if TYPE_CHECKING:
    from spillway import Result

US = 1000


def link_of(simulation: Simulation) -> Link:
    link = simulation.disaggregation.link

    def per_s(gb_per_s: float | None) -> float | None:
        return None if gb_per_s is None else gb_per_s * 1e9

    return Link(
        bytes_per_token=simulation.instances[0].kv_bytes_per_token,
        pair_bytes_per_s=per_s(link.bandwidth_gb_per_s),
        shared_bytes_per_s=per_s(link.shared_bandwidth_gb_per_s),
        sharing=link.sharing,
        latency_ns=round(link.base_latency_s * 1e9),
        max_transfers=link.max_transfers,
    )


def is_remote(simulation: Simulation, request: Request) -> bool:
    decider = simulation.disaggregation.decider
    if decider.kind == "uncached_tokens":
        least = max(decider.min_uncached_tokens, decider.min_prompt_tokens)
        return decider.min_uncached_tokens > 0 and request.input_tokens >= least
    return bool(decider.kind in ("always", "conditional"))


def conditional_of(simulation: Simulation) -> Conditional | None:
    decider = simulation.disaggregation.decider
    if decider.kind != "conditional":
        return None
    return Conditional(
        rule=decider.rule,
        uncached_tokens=decider.uncached_tokens_threshold,
        uncached_share=decider.uncached_share_threshold,
        prefill_busy=decider.prefill_busy_threshold,
        decode_busy=decider.decode_busy_threshold,
        index_tokens=simulation.prefix_index.block_size_tokens,
    )


def twin(simulation: Simulation, requests: list[Request]) -> PoolsRun:
    servers: list[tuple[str, Any]] = []
    for member in simulation.instances:
        server = server_of(simulation.replace(instances=(member.replace(role="both"),)))
        servers += [(member.role, server, member.data_parallel_size)] * member.count
    has_prefill = any(role != "decode" for role, _, _ in servers)
    pools = Pools(
        servers,
        link_of(simulation),
        handoff=simulation.disaggregation.handoff,
        order=simulation.disaggregation.order,
        is_remote=lambda request: has_prefill and is_remote(simulation, request),
        conditional=conditional_of(simulation),
        ends_at_first_token=simulation.disaggregation.ends_at_first_token,
        reads_on=simulation.disaggregation.reads_on,
        topology=simulation.disaggregation.topology,
        domains=[it.transfer_domain for it in simulation.instances for _ in range(it.count)],
    )
    return pools.run(requests)


def nanoseconds(seconds: float) -> int | None:
    return None if math.isnan(seconds) else round(seconds * 1e9)


def assert_same(simulation: Simulation, requests: list[Request]) -> PoolsRun | None:
    """Runs both, and compares what both know of each request. None: they deadlock."""
    try:
        expected = twin(simulation, requests)
    except DeadlockError:
        for reference in (False, True):
            with pytest.raises(LivelockError, match="wait for each other's memory"):
                simulate(simulation, reference=reference)
        return None
    for reference in (False, True):
        result = simulate(simulation, reference=reference)
        check_conservation(result)
        assert_same_rows(result, requests, expected)
        steps = [report["steps"] for report in result.instances]
        assert steps == by_worker(expected, "steps")
        wasted = [report["tokens_wasted"] for report in result.instances]
        assert wasted == by_worker(expected, "wasted")
        legs = result.ledger["legs"]
        assert legs["transfers_begun"] == expected.transfers
        moved = legs["moved_blocks"] * simulation.instances[0].block_size_tokens
        assert moved * simulation.instances[0].kv_bytes_per_token == expected.moved_bytes
    return expected


def by_worker(run: PoolsRun, count: str) -> list[int]:
    sums: Counter[int] = Counter()
    for engine in run.instances:
        sums[engine.worker] += getattr(engine, count)
    return [sums[worker] for worker in sorted(sums)]


def assert_same_rows(result: Result, requests: list[Request], expected: PoolsRun) -> None:
    columns = result.requests
    for row, (request, job) in enumerate(zip(requests, expected.jobs, strict=True)):
        leg = job.prefill_leg if job.is_answered else job.decode_leg
        outcome = leg.outcome if leg else None
        first_ns = getattr(job, "first_token_ns", None)  # by an instance that it has lost
        if first_ns is None and outcome:
            first_ns = outcome.first_token_ns
        finished_ns = outcome.finished_ns if outcome else None
        stays = outcome is not None and job.decode_leg is job.prefill_leg
        has_prompt = job.transfer_end_ns is not None or stays
        scheduled_ns = outcome.scheduled_ns if outcome and has_prompt else None
        last = job.prefill if job.is_answered else job.decode
        is_done = job.outcome == "completed"
        transfer_ns = None
        if job.transfer_end_ns is not None and job.transfer_begin_ns is not None:
            transfer_ns = job.transfer_end_ns - job.transfer_begin_ns
        queue_ns = None
        if scheduled_ns is not None and job.prefill_end_ns is not None:
            assert transfer_ns is not None or stays
            queue_ns = scheduled_ns - job.prefill_end_ns - (transfer_ns or 0)
        want = {
            "outcome": job.outcome,
            "ttft": first_ns - request.arrival_ns if first_ns is not None else None,
            "e2e": finished_ns - request.arrival_ns if is_done and finished_ns else None,
            "prefill_end": job.prefill_end_ns,
            "transfer": transfer_ns,
            "decode_queue": queue_ns,
            "prefill_instance": job.prefill.worker if job.prefill else -1,
            "wasted_tokens": job.wasted_tokens,
        }
        got = {
            "outcome": str(columns["outcome"][row]),
            "prefill_instance": int(columns["prefill_instance"][row]),
            "wasted_tokens": int(columns["wasted_tokens"][row]),
        }
        for name in ("ttft", "e2e", "prefill_end", "transfer", "decode_queue"):
            got[name] = nanoseconds(float(columns[f"{name}_s"][row]))
        assert got == want, request
        if is_done:
            assert last is not None
            assert int(columns["instance"][row]) == last.worker
            if "rank" in columns:
                first = next(it.index for it in expected.instances if it.worker == last.worker)
                assert int(columns["rank"][row]) == last.index - first


def random_case(rng: random.Random) -> tuple[Simulation, list[Request]]:
    size = rng.choice((1, 2, 4))

    def random_group(role: str) -> instance.InstanceGroup:
        latency = LATENCY
        if rng.random() < 0.3:
            latency = instance.Linear(
                alpha0_us=rng.choice((0, 70)), alpha_input_us=rng.choice((0, 3)),
                alpha_output_us=rng.choice((0, 11)), beta0_us=90, beta_prefill_us=7,
                beta_decode_us=2, beta_context_us=rng.choice((0, 0.3)),
            )  # fmt: skip
        return group(
            role,
            count=rng.randint(1, 3),
            data_parallel_size=rng.choice((1, 1, 1, 2, 3) if may_have_ranks else (1,)),
            max_num_seqs=rng.randint(1, 5),
            max_num_batched_tokens=rng.choice((3, 8, 64)),
            max_model_len=rng.choice((0, 0, 0, 35)),
            long_prefill_token_threshold=rng.choice((0, 0, 5)),
            block_size_tokens=size,
            num_kv_blocks=rng.choice((10, 12, 20, 60)) * 4 // size,
            kv_bytes_per_token=1000,
            async_scheduling=rng.random() < 0.5,
            scheduler=rng.choice((instance.Fcfs(), instance.PriorityFcfs(), instance.Sjf())),
            kv_cache=instance.KvCache(
                reserve_full_prompt=rng.random() < 0.5,
                watermark=rng.choice((0.0, 0.0, 0.1)),
                prefix_caching=rng.random() < 0.7,
            ),
            latency=latency,
        )

    link = router.KvLink(
        bandwidth_gb_per_s=rng.choice((None, 1, 0.25, 0.015625)),
        shared_bandwidth_gb_per_s=rng.choice((None, None, 1, 0.75)),
        sharing=rng.choice(("fixed_share", "max_min")),
        base_latency_s=rng.choice((0, 5e-5)),
        max_transfers=rng.choice((0, 0, 1, 2)),
    )
    order = rng.choice(("prefill_first", "decode_first"))
    deciders: list[Any] = [router.AlwaysRemote()] * 3 + [router.NeverRemote()]
    if order == "decode_first":
        by_length = router.UncachedTokens(
            min_uncached_tokens=rng.choice((0, 4, 9)), min_prompt_tokens=rng.choice((0, 12))
        )
        deciders += [by_length] * 3
    deciders += [
        router.Conditional(
            rule=rng.choice(("isl_bounding", "prefill_load", "isl_or_load")),
            uncached_tokens_threshold=rng.choice((8, 16, 2048)),
            uncached_share_threshold=rng.choice((0.5, 0.75, 1.0)),
            prefill_busy_threshold=rng.choice((0, 0.25, 1, 4)),
            decode_busy_threshold=rng.choice((None, 0.25, 0.5, 1)),
        )
    ] * 3
    decider = rng.choice(deciders)
    may_have_ranks = decider.kind != "conditional"
    handoff = rng.choice(("after_prefill", "after_prefill", "at_dispatch"))
    may_end = handoff == "after_prefill" and order == "prefill_first"
    knows_prompts = decider.kind == "uncached_tokens"
    at_ns = 0
    requests = []
    patience_ns = rng.choice((None, None, rng.randint(100, 4000) * US))
    for i in range(rng.randint(1, 25)):
        at_ns += rng.choice((0, 0, rng.randint(0, 600) * US))
        tokens = rng.randint(1, 30)
        is_shared = rng.random() < 0.4 and tokens >= 8 and not knows_prompts
        shared = (("system", rng.choice((4, 8))),) if is_shared else ()
        shared = tuple((f"{name} of {length}", length) for name, length in shared)
        cancelled = None if patience_ns is None else at_ns + patience_ns
        priority = CLASSES[i % 3].priority
        requests.append(
            Request(
                f"r{i:02}", at_ns, tokens, rng.randint(0, 12), priority, shared,
                cancelled_ns=cancelled,
            )
        )  # fmt: skip
    simulation = Simulation(
        workload=trace_of(requests, rng),
        slo_classes=CLASSES,
        instances=[random_group("prefill"), random_group("decode")],
        disaggregation=router.Disaggregation(
            order=order,
            handoff=handoff,
            ends_at_first_token=may_end and rng.random() < 0.4,
            reads_on=rng.random() < 0.4,
            decider=decider,
            link=link,
        ),
        prefix_index={"block_size_tokens": 4, "capacity_blocks": 10**6},
    )
    if patience_ns is not None:
        simulation = simulation.with_({"reaction.timeout_s": patience_ns / 1e9})
    if rng.random() < 0.1:
        return simulation.replace(instances=simulation.instances[1:]), requests
    roles = rng.choice(
        (None, None, ("both", "decode"), ("prefill", "both"), ("prefill", "decode", "both"))
    )
    if roles is not None:
        groups = [random_group(role) for role in roles]
        rng.shuffle(groups)
        simulation = simulation.replace(instances=groups)
    apart = random.Random(at_ns)  # whose draws do not move the others
    topology = apart.choice(("any", "any", "any", "any", "any", "prefer", "require"))
    if topology != "any":
        groups = [*simulation.instances, random_group("prefill"), random_group("decode")]
        domains = ("rack 1", "rack 2", *([""] if topology == "prefer" else []))
        simulation = simulation.replace(
            instances=[group.replace(transfer_domain=apart.choice(domains)) for group in groups],
            disaggregation=simulation.disaggregation.replace(topology=topology),
        )
    return simulation, requests


@pytest.mark.parametrize("seed", trials(300))
def test_twin(seed: int) -> None:
    assert_same(*random_case(random.Random(seed)))


@pytest.mark.long
@pytest.mark.parametrize("seeds", in_parts(range(300, 1500), 12), ids=str)
def test_twin_of_many(seeds: range) -> None:
    for seed in seeds:
        assert_same(*random_case(random.Random(seed)))


@pytest.mark.parametrize("seed", [761, 1249, 1309, 1721])
def test_twin_of_simultaneous_withdrawals(seed: int) -> None:
    """An idle engine sees that its queue has lost its head; blocks are freed in one order."""
    assert_same(*random_case(random.Random(seed)))


def test_withdrawn_requests_that_are_read_on_may_wait_for_each_other() -> None:
    """A prompt preempts itself at each step: all clients have left, so no one frees memory."""
    prompts = [1, 1, 1, 1, 1, 1, 20, 13, 18, 19, 1, 1, 1, 1, 1, 1, 16]
    at_us = [200] * 5 + [600, 1000] + [1200] * 4 + [1700] + [2200] * 5
    answers = [1, 4, 4, 6, 10, 2, 0, 0, 1, 0, 0, 0, 2, 0, 2, 0, 0]
    cold = instance.KvCache(prefix_caching=False, reserve_full_prompt=False)
    small = {"num_kv_blocks": 24, "block_size_tokens": 2, "kv_cache": cold, "scheduler": "sjf"}
    steps = {"latency": steady(0.1), "max_num_seqs": 64, "kv_bytes_per_token": 1000}
    mixed = instance.InstanceGroup(count=2, max_num_batched_tokens=4, **small, **steps)
    decode = instance.InstanceGroup(role="decode", max_num_batched_tokens=64, **small, **steps)
    simulation = Simulation(
        workload=trace(
            arrival_s=np.array(at_us) / 1e6, input_tokens=prompts, output_tokens=answers
        ).replace(empty_outputs="served"),
        reaction=workload.Reaction(timeout_s=0.001),
        gateway=gateway.Gateway(replicas=2),
        instances=[mixed, decode],
        disaggregation=router.Disaggregation(
            order="decode_first",
            decider=router.Conditional(rule="prefill_load", prefill_busy_threshold=1),
            link=router.KvLink(bandwidth_gb_per_s=None),
            reads_on=True,
        ),
    )
    report = simulate(simulation.replace(horizon_s=0.5)).instances[1]
    assert report["preemptions"] > 1000
    with pytest.raises(LivelockError, match="wait for each other's memory"):
        simulate(simulation)


# Theory: one seat per pool, so that each is a queue of its own.

REQUESTS = 60_000
STEP_US = 100.0


def tandem(
    utilization: float, *, output_tokens: Any, transfer_s: float = 0, seats: int = 1
) -> Result:
    """Prompts of exponential length, 100 tokens of 100 us on average."""
    one_seat = {
        "max_num_seqs": 1,
        "max_num_batched_tokens": 10**6,
        "num_kv_blocks": 10**9,
        "async_scheduling": False,
        "kv_cache": instance.KvCache(prefix_caching=False),
    }

    def linear(**us: float) -> instance.Linear:
        idle = dict.fromkeys(
            ("alpha0_us", "alpha_input_us", "alpha_output_us", "beta0_us", "beta_prefill_us",
             "beta_decode_us", "beta_context_us"), 0.0,
        )  # fmt: skip
        return instance.Linear(**(idle | us))

    prompts = linear(beta_prefill_us=STEP_US)
    client = workload.Client(
        arrivals=workload.Poisson(),
        input_tokens=workload.Exponential(mean_tokens=100, min_tokens=1, max_tokens=10**6),
        output_tokens=output_tokens,
        requests_per_s=utilization / (100 * STEP_US / 1e6),
        num_requests=REQUESTS,
    )
    simulation = Simulation(
        workload=workload.Synthetic(clients=[client]),
        instances=[
            group("prefill", **one_seat, latency=prompts),
            group("decode", **one_seat | {"max_num_seqs": seats}, latency=linear(beta0_us=STEP_US)),
        ],
        disaggregation=router.Disaggregation(
            link=router.KvLink(bandwidth_gb_per_s=None, base_latency_s=transfer_s)
        ),
    )
    return simulate(simulation, 3)


def mean(values: Any) -> float:
    return float(np.mean(values[REQUESTS // 10 :]))


@pytest.mark.parametrize("utilization", [0.3, 0.6, 0.8])
def test_departures_of_the_prefill_queue_are_the_arrivals_of_the_next(utilization: float) -> None:
    """M/M/1 → M/M/1: the first queue passes on a Poisson process."""
    result = tandem(
        utilization,
        output_tokens=workload.Exponential(mean_tokens=100, min_tokens=1, max_tokens=10**6),
    )
    wait_s = utilization / (1 - utilization) * 0.01
    requests = result.requests
    assert mean(requests["scheduling_delay_s"]) == pytest.approx(wait_s, rel=0.1)
    assert mean(requests["decode_queue_s"]) == pytest.approx(wait_s, rel=0.1)


def test_transfer_is_a_delay_while_there_are_seats() -> None:
    """M/M/1, a constant, and a server of steps that any number shares."""
    result = tandem(0.6, output_tokens=workload.Fixed(tokens=10), transfer_s=0.25, seats=10**4)
    requests = result.requests
    assert mean(requests["scheduling_delay_s"]) == pytest.approx(0.015, rel=0.1)
    assert requests["transfer_s"] == pytest.approx(0.25, rel=1e-9)
    # Until the step under way ends, if there is any: when blocks are taken, and at the arrival.
    assert requests["decode_queue_s"].max() <= 2 * STEP_US / 1e6 * (1 + 1e-9)
    service_s = requests["e2e_s"] - requests["prefill_end_s"] + requests["arrival_s"]
    waited_s = requests["transfer_s"] + requests["decode_queue_s"]
    assert service_s - waited_s == pytest.approx(10 * STEP_US / 1e6, rel=1e-6)


@pytest.mark.parametrize("answer", [1, 90, 110])
def test_the_slower_pool_limits_the_fleet(answer: int) -> None:
    """At twice the load that either can take: one output token, and 10 % around the balance."""
    result = tandem(2, output_tokens=workload.Fixed(tokens=answer))
    duration_s = result.summary()["duration"]
    slower_s = max(100, answer) * STEP_US / 1e6
    assert REQUESTS / duration_s == pytest.approx(1 / slower_s, rel=0.02)


@pytest.mark.parametrize(
    ("until", "column"), [("prompt", "prefill_end_s"), ("first_token", "ttft_s")]
)
def test_permit_of_the_prefill_stage(until: str, column: str) -> None:
    """One request at a time is before the end of that stage."""
    limit = gateway.DualLimit(max_in_flight=5, max_awaiting_first_token=1, until=until)
    simulation = Simulation(
        workload=trace(arrival_s=[0] * 5, input_tokens=[8] * 5, output_tokens=[2, 40, 2, 2, 2]),
        instances=[group("prefill"), group("decode")],
        gateway={"limit": limit},
    )
    result = simulate(simulation)
    columns = result.requests
    ends_s = columns["arrival_s"] + columns[column]
    assert columns["queue_s"][1:].tolist() == pytest.approx(ends_s[:-1].tolist())
    assert simulate(simulation, reference=True).digest == result.digest


def test_early_rejection_knows_the_streams_of_the_decode_pool() -> None:
    """Ten streams take 10 ms per token. Prefill instances have no share of them."""
    steps = instance.Linear(
        alpha0_us=0, alpha_input_us=0, alpha_output_us=0, beta0_us=100, beta_decode_us=1000
    )
    simulation = Simulation(
        workload=workload.Synthetic(
            requests_per_s=200,
            num_requests=3000,
            clients=[
                workload.Client(
                    input_tokens=workload.Fixed(tokens=8), output_tokens=workload.Fixed(tokens=20)
                )
            ],
        ),
        slo_classes=[workload.SloClass(name="standard", target_tpot_s=0.01)],
        instances=[
            group("prefill", count=4),
            group("decode", latency=steps, max_num_seqs=256, num_kv_blocks=10_000),
        ],
    )
    early = simulation.with_({"gateway.admission": [gateway.EarlyRejection()]})
    tpot_s = [
        float(np.nanquantile(simulate(it, 1).requests["tpot_s"], 0.9)) for it in (simulation, early)
    ]
    assert tpot_s[0] > 0.05
    assert 0.005 < tpot_s[1] < 0.012


def test_without_an_instance_of_its_domain_a_request_is_rejected_or_served_by_one() -> None:
    instances = [
        group("prefill", transfer_domain="rack 1"),
        group("decode", transfer_domain="rack 2"),
    ]
    requests = trace(arrival_s=[0], input_tokens=[8], output_tokens=[2])
    outcomes, said = {}, {}
    for topology in ("require", "prefer"):
        for order in ("prefill_first", "decode_first"):
            simulation = Simulation(
                workload=requests,
                instances=instances,
                disaggregation=router.Disaggregation(order=order, topology=topology),
            )
            result = simulate(simulation)
            found = [at for at in check(simulation) if at.name == "domain_of_one_role"]
            said[topology, order] = [(at.path, at.remedies) for at in found]
            legs = result.ledger["legs"]
            outcome, reason = (str(result.requests[name][0]) for name in ("outcome", "reason"))
            outcomes[topology, order] = (outcome, reason, legs["local"], legs["transfers_begun"])
    assert outcomes == {
        ("require", "prefill_first"): ("rejected", "no_decode_instance", 0, 0),
        ("require", "decode_first"): ("completed", "", 1, 0),
        ("prefer", "prefill_first"): ("completed", "", 0, 1),
        ("prefer", "decode_first"): ("completed", "", 0, 1),
    }
    remedies = ({"disaggregation.topology": "prefer"},)
    assert said == {
        ("require", "prefill_first"): [("instances[0].transfer_domain", remedies)],
        ("require", "decode_first"): [("instances[1].transfer_domain", remedies)],
        ("prefer", "prefill_first"): [],
        ("prefer", "decode_first"): [],
    }
