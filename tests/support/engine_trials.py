"""Parts of random cases for one engine, and how its run is compared with that of its slow twin."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.specimens import drawable
from support.twins import instance as oracle

from spillway import Result, Simulation, instance, simulate, trace, workload

if TYPE_CHECKING:
    import random


# Equal priorities, zero and negative ones all occur.
CLASSES = tuple(
    workload.SloClass(name=name, priority=priority)
    for name, priority in (("chat", 7), ("api", 0), ("bulk", -2), ("spare", -2))
)
PRIORITY = {slo_class.name: slo_class.priority for slo_class in CLASSES}
ADDED = (
    "hits",
    "misses",
    "lookups",
    "recomputed",
    "wasted",
    "evictions",
    "rolled_back",
    "whole_prompts",
    "yielded",
    "unfinished_victims",
    "reordered",
)


Latency = instance.Linear | instance.Roofline | instance.StepTable


def random_step_table(rng: random.Random, **overheads: float) -> instance.StepTable:
    """Axes within and beyond the loads of a run, and durations that need not ascend."""

    def axis(most: int) -> list[float]:
        return sorted(rng.sample(range(most), rng.randint(1, 4)))

    decodes, tokens, contexts = axis(12), axis(400), axis(900)
    return instance.StepTable(
        **overheads,
        decode_requests=decodes,
        prefill_tokens=tokens,
        context_tokens=contexts,
        step_us=[
            rng.choice((rng.uniform(1, 3000), float(rng.randint(0, 5000))))
            for _ in range(len(decodes) * len(tokens) * len(contexts))
        ],
        prefill_context_us=rng.choice((0.0, 0.0017, 0.1)),
        decode_scale=rng.choice((1, 1, 0.9, 1.3)),
        prefill_scale=rng.choice((1, 1, 0.7, 1.1)),
    )


def random_latency(rng: random.Random) -> Latency:
    # Sums of tenths are whole nanoseconds or just below, as the order of summation has it.
    style = rng.choice(("published", "any", "tenths"))

    def some(published: float) -> float:
        other = {
            "published": published,
            "any": rng.uniform(0, 40),
            "tenths": rng.randint(1, 99) / 10,
        }
        return rng.choice((0.0, other[style], other[style], other[style]))

    default = instance.Linear()
    overheads = {
        "alpha0_us": rng.choice((0.0, some(default.alpha0_us), 1e6)),
        "alpha_input_us": rng.choice((0.0, 0.1, some(default.alpha_input_us), 1e4)),
        "alpha_output_us": rng.choice((0.0, some(default.alpha_output_us), 1e5)),
    }
    kind = rng.random()
    if kind < 0.15:
        return random_step_table(rng, **overheads)
    if kind < 0.5:
        roofline = instance.Roofline()
        return instance.Roofline(
            **overheads,
            constant_us=some(roofline.constant_us),
            weights_us=some(roofline.weights_us),
            expert_weights_us=rng.choice((0.0, some(roofline.weights_us))),
            expert_share=rng.choice((0, 1 / 32, 0.25, 1)),
            token_us=some(rng.choice((roofline.token_us, 3000))),
            norm=rng.choice((None, 1, 1.5, 2, 4)),
            decode_us=some(roofline.decode_us),
            decode_context_us=rng.choice((0.0, some(roofline.decode_context_us))),
            prefill_context_us=rng.choice((0.0, some(roofline.prefill_context_us))),
            chunk_us=some(100.0),
        )
    return instance.Linear(
        **overheads,
        beta0_us=some(default.beta0_us),
        beta_prefill_us=some(default.beta_prefill_us),
        beta_decode_us=some(default.beta_decode_us),
        beta_context_us=rng.choice((0.0, some(0.3))),
    )


def random_scheduler(rng: random.Random) -> Any:
    return rng.choice(drawable("InstanceGroup.scheduler"))(rng)


def random_preemption(rng: random.Random, margins: tuple[int, ...]) -> dict[str, Any]:
    """Of PriorityFcfs."""
    margin = rng.choice((None, None, *margins))
    victims = (
        ("last", "lowest_priority") if margin else ("least_computed", "least_computed", "last")
    )
    return {"victim": rng.choice(victims), "preemption_margin": margin}


def random_kv_cache(rng: random.Random) -> dict[str, Any]:
    return {
        "instances[0].kv_cache.prefix_caching": rng.choice((True, True, True, False)),
        "instances[0].kv_cache.allocation": rng.choice(("check_then_act", "roll_back")),
        "instances[0].kv_cache.stores_last_token": rng.choice((True, False)),
    }


def trace_of(requests: list[oracle.Request], rng: random.Random) -> workload.Trace:
    names = [
        rng.choice(
            [slo_class.name for slo_class in CLASSES if slo_class.priority == request.priority]
        )
        for request in requests
    ]
    # A trace knows at most one group, whose prompts share the shorter beginning.
    groups = [request.shared[0] if request.shared else ("", 0) for request in requests]
    groups = [(name and f"{name} of {tokens}", tokens) for name, tokens in groups]
    return trace(
        arrival_s=[request.arrival_ns * 1e-9 for request in requests],
        input_tokens=[request.input_tokens for request in requests],
        output_tokens=[request.output_tokens for request in requests],
        slo_class=names,
        request_id=[request.request_id for request in requests],
        prefix_group=[name for name, _ in groups],
        prefix_tokens=[tokens for _, tokens in groups],
        warm_tokens=[request.warm_tokens for request in requests],
    ).replace(empty_outputs="served")


def with_async_scheduling(simulation: Simulation, rng: random.Random) -> Simulation:
    """With batches that are fixed a step ahead, at random, in groups that allow it."""
    if simulation.metrics.accounting == "blis":
        return simulation
    return simulation.replace(
        instances=[
            group.replace(async_scheduling=rng.random() < 0.5)
            if (group.completion, group.preemption) == ("step_end", "keep_emitted")
            and group.kv_cache.allocation == "check_then_act"
            else group
            for group in simulation.instances
        ]
    )


def with_spare_memory(simulation: Simulation, rng: random.Random) -> Simulation:
    """With memory kept free at random, in groups that allow it."""
    return simulation.replace(
        instances=[
            group.replace(
                kv_cache=group.kv_cache.replace(
                    reserve_full_prompt=rng.random() < 0.4,
                    watermark=rng.choice((0, 0, 0, 0.1, rng.random() * 0.9)),
                )
            )
            if group.kv_cache.allocation == "check_then_act"
            else group
            for group in simulation.instances
        ]
    )


BETAS = ("beta0_us", "beta_prefill_us", "beta_decode_us", "beta_context_us")


def step_time_of(latency: Latency) -> dict[str, Any]:
    if isinstance(latency, instance.Linear):
        return {name: getattr(latency, name) for name in BETAS}
    curve: oracle.Roofline | oracle.StepTable
    if isinstance(latency, instance.Roofline):
        names = [field.name for field in dataclasses.fields(oracle.Roofline)]
        curve = oracle.Roofline(**{name: getattr(latency, name) for name in names})
    else:
        names = [field.name for field in dataclasses.fields(oracle.StepTable)]
        settings = {name: getattr(latency, name.removesuffix("_of")) for name in names}
        curve = oracle.StepTable(**settings)
    return {**dict.fromkeys(BETAS, 0.0), "curve": curve}


def depends_on_context(latency: Latency) -> bool:
    """Whether the step time changes while the batch does not."""
    if isinstance(latency, instance.Linear):
        return latency.beta_context_us > 0
    if isinstance(latency, instance.StepTable):
        return len(latency.context_tokens) > 1 or latency.prefill_context_us > 0
    return latency.decode_context_us > 0 or latency.prefill_context_us > 0


def server_of(simulation: Simulation) -> oracle.Server:
    (group,) = simulation.instances
    latency = group.latency
    return oracle.Server(
        **step_time_of(latency),
        max_num_seqs=group.max_num_seqs,
        max_num_batched_tokens=group.max_num_batched_tokens,
        long_prefill_token_threshold=group.long_prefill_token_threshold,
        max_model_len=group.max_model_len,
        block_size_tokens=group.block_size_tokens,
        num_kv_blocks=group.num_kv_blocks,
        scheduler=group.scheduler.kind,
        priority=getattr(group.scheduler, "priority", "constant"),
        alpha0_us=latency.alpha0_us,
        alpha_input_us=latency.alpha_input_us,
        alpha_output_us=latency.alpha_output_us,
        completion=group.completion,
        preemption=group.preemption,
        output_overhead=group.output_overhead,
        async_scheduling=group.async_scheduling,
        lockstep_ranks=group.lockstep_ranks,
        reserve_full_prompt=group.kv_cache.reserve_full_prompt,
        watermark=group.kv_cache.watermark,
        accounting=simulation.metrics.accounting,
        quantum_ns=simulation.quantum_ns,
        prefix_caching=group.kv_cache.prefix_caching,
        allocation=group.kv_cache.allocation,
        stores_last_token=group.kv_cache.stores_last_token,
        age_weight_per_s=getattr(group.scheduler, "age_weight_per_s", 0),
        victim=getattr(group.scheduler, "victim", "last"),
        preemption_margin=getattr(group.scheduler, "preemption_margin", None),
        max_preemptions_per_step=getattr(group.scheduler, "max_preemptions_per_step", 3),
        aging_tokens_per_step=getattr(group.scheduler, "aging_tokens_per_step", 0),
        max_sorted_requests=getattr(group.scheduler, "max_sorted_requests", 128),
    )


def group_of(server: oracle.Server) -> instance.InstanceGroup:
    """The inverse of `server_of`, of the fields that cases with several servers draw."""
    betas = ("beta0_us", "beta_prefill_us", "beta_decode_us", "beta_context_us")
    alphas = ("alpha0_us", "alpha_input_us", "alpha_output_us")
    same = (
        "max_num_seqs",
        "max_num_batched_tokens",
        "long_prefill_token_threshold",
        "max_model_len",
        "block_size_tokens",
        "num_kv_blocks",
        "async_scheduling",
    )
    return instance.InstanceGroup(
        **{name: getattr(server, name) for name in same},
        latency=instance.Linear(**{name: getattr(server, name) for name in betas + alphas}),
        scheduler=instance.Sjf() if server.scheduler == "sjf" else instance.Fcfs(),
        kv_cache=instance.KvCache(
            prefix_caching=server.prefix_caching,
            reserve_full_prompt=server.reserve_full_prompt,
            watermark=server.watermark,
        ),
    )


def plain_trace_of(requests: list[oracle.Request]) -> workload.Trace:
    """The requests with at most one shared prefix each."""
    groups = [request.shared[0] if request.shared else ("", 0) for request in requests]
    return trace(
        arrival_s=np.array([request.arrival_ns for request in requests]) / 1e9,
        input_tokens=[request.input_tokens for request in requests],
        output_tokens=[request.output_tokens for request in requests],
        prefix_group=[name for name, _ in groups],
        prefix_tokens=[tokens for _, tokens in groups],
    ).replace(empty_outputs="served")


def with_priorities(simulation: Simulation, requests: list[oracle.Request]) -> list[oracle.Request]:
    """The requests with the priorities that their classes have in the scheduler."""
    named = getattr(simulation.instances[0].scheduler, "class_priorities", ())
    priorities = {PRIORITY[slo_class.name]: slo_class.priority for slo_class in named}
    return [
        dataclasses.replace(request, priority=priorities.get(request.priority, request.priority))
        for request in requests
    ]


# Comparison


def expected_row(
    request: oracle.Request, outcome: oracle.Outcome, accounting: str
) -> dict[str, Any]:
    if outcome.outcome == "rejected":
        return {
            "outcome": "rejected",
            "reason": "unservable",
            "preemptions": 0,
            "output_tokens": 0,
            "scheduling_delay_ns": None,
            "ttft_ns": None,
            "e2e_ns": None,
            "tpot_ns": None,
            "itl_mean_ns": None,
        }
    assert outcome.scheduled_ns is not None
    assert outcome.first_token_ns is not None
    assert outcome.finished_ns is not None
    gaps = request.output_tokens - 1
    if accounting == "clock":
        ttft = outcome.first_token_ns - request.arrival_ns
        decode = outcome.finished_ns - outcome.first_token_ns
        itl_mean = decode / gaps if gaps > 0 else None
    else:
        ttft = outcome.reported_ttft_ns
        decode = outcome.reported_decode_ns
        itl_mean = decode / max(gaps, 1)
    return {
        "outcome": "completed",
        "reason": "",
        "preemptions": outcome.preemptions,
        "output_tokens": request.output_tokens,
        "scheduling_delay_ns": outcome.scheduled_ns - request.arrival_ns,
        "ttft_ns": ttft,
        "e2e_ns": ttft + decode,
        "tpot_ns": decode / gaps if gaps > 0 else None,
        "itl_mean_ns": itl_mean,
    }


def reported_row(result: Result, row: int) -> dict[str, Any]:
    requests = result.requests
    reported: dict[str, Any] = {
        name: requests[name][row].item()
        for name in ("outcome", "reason", "preemptions", "output_tokens")
    }
    for name in ("scheduling_delay", "ttft", "e2e", "tpot", "itl_mean"):
        seconds = requests[f"{name}_s"][row].item()
        reported[f"{name}_ns"] = None if math.isnan(seconds) else seconds * 1e9
    return reported


def approximately(row: dict[str, Any]) -> dict[str, Any]:
    """`row` with room for the rounding of seconds: the spans here stay far below 2**50 ns."""
    return {
        name: pytest.approx(value, rel=1e-15, abs=1e-4)
        if name.endswith("_ns") and value is not None
        else value
        for name, value in row.items()
    }


def assert_same_gaps(summary: Any, gaps: Counter[int]) -> None:
    assert summary["num_itl"] == gaps.total()
    names = ("mean_itl_ms", "std_itl_ms", *(f"p{p}_itl_ms" for p in (50, 90, 95, 99)))
    if not gaps:
        assert {summary[name] for name in names} == {None}
        return
    every = np.repeat(np.array(list(gaps), dtype=float), list(gaps.values()))
    expected = (every.mean(), every.std(), *np.percentile(every, (50, 90, 95, 99)))
    for name, value_ns in zip(names, expected, strict=True):
        assert summary[name] == pytest.approx(value_ns / 1e6, rel=1e-12, abs=1e-9), name


def sum_of(runs: list[oracle.Run]) -> oracle.Run:
    total = oracle.Run([], Counter(), 0, 0)
    for run in runs:
        total.outcomes += run.outcomes
        total.gaps += run.gaps
        total.steps += run.steps
        total.end_ns = max(total.end_ns, run.end_ns)
        for name in ADDED:
            setattr(total, name, getattr(total, name) + getattr(run, name))
    return total


def assert_same(simulation: Simulation, requests: list[oracle.Request]) -> oracle.Run:
    """Runs both, compares what both know; returns the oracle's run, of all instances together."""
    result = simulate(simulation)
    server = server_of(simulation)
    requests = with_priorities(simulation, requests)
    whole = oracle.Run([], Counter(), 0, 0)
    ran_on, ranks = result.requests["instance"], result.requests["rank"]
    # The default router takes turns.
    assert ran_on.tolist() == [i % len(result.instances) for i in range(len(requests))]
    waited_s = 0.0
    shares = []
    for index, report in enumerate(result.instances):
        rows = np.flatnonzero(ran_on == index).tolist()
        by_rank = [
            [row for row in rows if ranks[row] == rank]
            for rank in range(simulation.instances[0].data_parallel_size)
        ]
        runs = oracle.simulate_ranks(
            server, [[requests[row] for row in rows] for rows in by_rank], requests
        )
        for of_rank, run in zip(by_rank, runs, strict=True):
            for row, outcome in zip(of_rank, run.outcomes, strict=True):
                expected = expected_row(requests[row], outcome, server.accounting)
                assert reported_row(result, row) == approximately(expected), requests[row]
        run = sum_of(runs)
        outcomes = Counter(outcome.outcome for outcome in run.outcomes)
        assert report["completed"] == outcomes["completed"]
        assert report["refused"] == outcomes["rejected"]
        assert report["preemptions"] == sum(outcome.preemptions for outcome in run.outcomes)
        assert report["steps"] == run.steps
        for name in ("hits", "misses", "lookups"):
            assert report[f"kv_{name}"] == getattr(run, name), name
        for name in ("recomputed", "wasted"):
            assert report[f"tokens_{name}"] == getattr(run, name), name
        waited_s += report["mean_waiting"]
        whole = sum_of([whole, run])
        shares.append(run.hits / max(run.hits + run.misses, 1))

    summary = result.summary()
    if server.accounting == "blis":
        assert summary["cache_hit_rate"] == pytest.approx(sum(shares) / len(shares), rel=1e-12)
    elif whole.lookups > 0:
        assert summary["cache_hit_rate"] == pytest.approx(whole.hits / whole.lookups, rel=1e-12)
    else:
        assert summary["cache_hit_rate"] is None
    assert result.steps == whole.steps
    assert summary["preemptions"] == sum(outcome.preemptions for outcome in whole.outcomes)
    assert_same_gaps(summary, whole.gaps)
    if all(outcome.outcome == "completed" for outcome in whole.outcomes):
        if server.accounting == "blis":
            assert summary["duration"] == pytest.approx(whole.end_ns * 1e-9, rel=1e-15)
            assert summary["total_output_tokens"] == whole.gaps.total()
        if summary["preemptions"] == 0:
            # The only trace that the entry to the engine's queue leaves: the time spent in it.
            waited_ns = sum(
                outcome.scheduled_ns - outcome.enqueued_ns
                for outcome in whole.outcomes
                if outcome.scheduled_ns is not None and outcome.enqueued_ns is not None
            )
            assert waited_s * whole.end_ns == pytest.approx(waited_ns, rel=1e-9, abs=1e-3)
    return whole
