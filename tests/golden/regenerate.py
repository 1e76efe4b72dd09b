"""Writes the golden decision logs, requests.csv of small fixed runs, and `digests.json`.

    make golden

A change of behavior then shows as a difference in these files, request by request.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.specimens import at

from spillway import (
    Simulation,
    fleet,
    gateway,
    instance,
    router,
    signals,
    simulate,
    trace,
    workload,
)
from spillway.config.profiles import BLIS_SERVER
from spillway.systems.llm_d import presets as llm_d

FOLDER = Path(__file__).parent / "decisions"
SEED = 20260101
NUM_REQUESTS = 60


def requests(**prompts: Any) -> workload.Trace:
    """From whole-number formulas, so that nothing depends on a platform's logarithm."""
    rows = range(NUM_REQUESTS)
    return trace(
        # Bursts of five, 3 ms apart, every 150 ms.
        arrival_s=[(150 * (row // 5) + 3 * (row % 5)) / 1000 for row in rows],
        input_tokens=[1441 if row % 15 == 5 else 40 + 97 * row * row % 700 for row in rows],
        output_tokens=[41 * row * row % 37 for row in rows],
        tenant=[("gold", "silver", "bronze")[row % 3] for row in rows],
        slo_class=[("critical", "standard", "batch", "sheddable")[row % 4] for row in rows],
        request_id=[f"r{row:02d}" for row in rows],
        **prompts,
    ).replace(empty_outputs="served")


def token_bucket_least_loaded() -> Simulation:
    """A bucket, a limit with two bands, stale signals, three unequal servers with little memory."""
    return Simulation(
        workload=requests(),
        tenants=[workload.Tenant(name="gold", weight=2)],
        gateway=gateway.Gateway(
            admission=gateway.TokenBucket(capacity_tokens=2500, refill_tokens_per_s=12_000),
            admission_latency_s=0.001,
            bands=[gateway.Band(priority=0), gateway.Band()],
            limit=gateway.FixedLimit(max_in_flight=5),
            routing_latency_s=0.0005,
        ),
        router=router.LeastLoaded(ties="random"),
        signals=signals.OnRead(period_s=0.02),
        instances=[
            BLIS_SERVER.replace(count=2, num_kv_blocks=90, max_num_seqs=2),
            BLIS_SERVER.replace(
                num_kv_blocks=60,
                scheduler="priority_fcfs",
                latency=instance.Linear.preset("llama-3.1-8b-h100-tp1"),
            ),
        ],
        horizon_s=1.8,
    )


def fair_queueing(fairness: object) -> Simulation:
    """Bounded queues with a timeout and four permits, under AIMD on the first tokens."""
    return Simulation(
        workload=requests(),
        tenants=[workload.Tenant(name="gold", weight=2, queue_max=4)],
        gateway=gateway.Gateway(
            bands=gateway.Band(
                fairness=fairness, queue=gateway.Queue(max_requests=3, timeout_s=0.25)
            ),
            limit=gateway.WorkerBudget(cap_per_worker=2),
            controller=gateway.Aimd(target_s=0.2),
            sensor=signals.Sensor(window_s=0.5, tick_s=0.1, min_samples=3),
        ),
        router=router.KvCost(overlap="sent"),
        instances=[BLIS_SERVER.replace(count=2, num_kv_blocks=120)],
    )


def busy_threshold() -> Simulation:
    """Dynamo's rejection by late load events and N + Q, two ranks and a queue with a delay."""
    return Simulation(
        workload=requests(),
        gateway=gateway.Gateway(admission=gateway.BusyThreshold()),
        router=router.KvCost(),
        signals=signals.Scraped(period_s=0.1, delay_s=0.02),
        busy_monitor=signals.BusyMonitor(
            active_decode_blocks_threshold=0.6,
            active_prefill_tokens_threshold_frac=0.4,
            track_output_blocks=True,
        ),
        changes=[{"at_s": 1, "set": {"busy_monitor.active_prefill_tokens_threshold_frac": 0.2}}],
        instances=[
            BLIS_SERVER.replace(
                num_kv_blocks=90,
                max_num_seqs=2,
                data_parallel_size=2,
                ingress=instance.EngineRequestLimit(max_requests=2, queue_size=2),
            ),
            BLIS_SERVER.replace(
                num_kv_blocks=60, ingress=instance.ControlledDelay(max_requests=1, delay_s=0.05)
            ),
        ],
    )


def overload_cooldown() -> Simulation:
    """The same with rare events: a worker that has refused is tried again before its next event."""
    changes = {"signals.period_s": 2, "busy_monitor.overload_cooldown_s": 0.15}
    return busy_threshold().with_(changes)


def predictive() -> Simulation:
    """Three prefix groups, the last of which starts late, on two slow servers by priority."""
    rows = range(NUM_REQUESTS)
    groups = [("system", "agent", None)[row % 3] if row < 30 else "late" for row in rows]
    return Simulation(
        workload=requests(
            prefix_group=groups, prefix_tokens=[32 if group else 0 for group in groups]
        ),
        gateway=gateway.Gateway(
            admission=gateway.PredictiveTtft(
                estimator="seats_and_memory",
                beta0_us=6910.42,
                beta_prefill_us=17.67,
                beta_decode_us=2.84,
                budgets=[
                    gateway.TtftBudget(slo_class="standard", budget_s=0.06),
                    gateway.TtftBudget(slo_class="batch", budget_s=0.04),
                    gateway.TtftBudget(slo_class="sheddable", budget_s=0.03),
                ],
                margin=gateway.TtftMargin(quantile=0.75, step_s=0.002),
                cold_start=gateway.ColdStart(floor_per_s=0.5, bonus_requests=1, largest_share=0.3),
            )
        ),
        router=router.LeastLoaded(),
        signals=signals.Scraped(period_s=0.1),
        instances=[BLIS_SERVER.replace(count=2, max_num_seqs=4, scheduler="priority_fcfs")],
    )


def longest_prefix() -> Simulation:
    """Two prefix groups and cold prompts, on a server with few seats that sorts a short queue."""
    rows = range(NUM_REQUESTS)
    groups = [("system", "agent", None)[row % 3] for row in rows]
    return Simulation(
        workload=requests(
            prefix_group=groups, prefix_tokens=[32 if group else 0 for group in groups]
        ),
        instances=[
            BLIS_SERVER.replace(
                num_kv_blocks=120,
                max_num_seqs=2,
                scheduler=instance.LongestPrefix(aging_tokens_per_step=2, max_sorted_requests=20),
            )
        ],
    )


def _grouped(groups: tuple[str | None, ...]) -> workload.Trace:
    """Prompts of these groups in turn, which share two blocks."""
    rows = range(NUM_REQUESTS)
    names = [groups[row % len(groups)] for row in rows]
    return requests(prefix_group=names, prefix_tokens=[32 if name else 0 for name in names])


def pools() -> Simulation:
    """Two pools; short prompts, and all while the prefill pool is busy, stay out of it."""
    small = BLIS_SERVER.replace(num_kv_blocks=120, max_num_batched_tokens=512)
    return Simulation(
        workload=_grouped(("system", None)),
        router=router.KvCost(overlap="sent"),
        disaggregation=router.Disaggregation(
            decider=router.Conditional(
                rule="isl_or_load",
                uncached_tokens_threshold=150,
                uncached_share_threshold=0.9,
                prefill_busy_threshold=2,
                decode_busy_threshold=0.8,
            )
        ),
        instances=[small.replace(role="prefill"), small.replace(role="decode", count=2)],
    )


def failing_pools() -> Simulation:
    """Two pools of two; in each an instance crashes, one hangs and is killed, one is slow."""
    small = BLIS_SERVER.replace(num_kv_blocks=120, max_num_batched_tokens=512)
    faults = [
        (0.155, fleet.Crash(instance=0, for_s=0.3)),
        (0.2, fleet.Slowdown(instance=1, for_s=0.5)),
        (0.61, fleet.Crash(instance=2, for_s=0.4)),
        (1.2, fleet.Hang(instance=3)),
        (1.5, fleet.Crash(instance=1)),
        (1.52, fleet.Crash(instance=0)),
    ]
    return Simulation(
        workload=_grouped(("system", None)),
        fleet=fleet.Fleet(startup_s=0.05, health=fleet.Health(detected_after_s=0.02)),
        changes=[{"at_s": at_s, "faults": [fault]} for at_s, fault in faults],
        disaggregation=router.Disaggregation(link=router.KvLink(base_latency_s=0.01)),
        instances=[small.replace(role="prefill", count=2), small.replace(role="decode", count=2)],
    )


def routed_by(policy: object) -> Simulation:
    """Decisions that overlap, by old metrics, before three servers of which one is small."""
    return Simulation(
        workload=_grouped(("system", "agent", "system", None)),
        gateway=gateway.Gateway(
            limit=gateway.FixedLimit(max_in_flight=9), decision_latency_s=0.002
        ),
        router=policy,
        signals=signals.Scraped(period_s=0.05),
        instances=[
            BLIS_SERVER.replace(count=2, num_kv_blocks=120, max_num_seqs=2),
            BLIS_SERVER.replace(num_kv_blocks=60, max_num_seqs=4),
        ],
    )


def router_queue() -> Simulation:
    """Dynamo's queue in the router: two classes wait while both workers compute prompts."""
    return Simulation(
        workload=_grouped(("system", None)),
        gateway=gateway.Gateway(
            admission=gateway.BusyThreshold(),
            bands=gateway.Band(
                fairness=gateway.PolicyClasses(
                    classes=[
                        gateway.PolicyClass(
                            name="short", quantum_tokens=300, max_requests_per_worker=1
                        ),
                        gateway.PolicyClass(
                            name="long",
                            min_uncached_tokens=256,
                            quantum_tokens=500,
                            order="wspt",
                            max_prompt_tokens_per_worker=500,
                        ),
                    ],
                    requests=[
                        gateway.PolicyRequest(slo_class="critical", strict_priority=1),
                        gateway.PolicyRequest(slo_class="batch", priority_jump_s=0.1),
                    ],
                )
            ),
            limit=gateway.PrefillBusy(threshold=0.1),
        ),
        busy_monitor=signals.BusyMonitor(active_decode_blocks_threshold=1),
        router=router.KvCost(prefill_unit="tokens", overlap_refresh_after_s=0.05),
        instances=[BLIS_SERVER.replace(count=2, num_kv_blocks=120, max_num_batched_tokens=512)],
    )


_CLASSES = [
    workload.SloClass(name="critical", priority=4, target_ttft_s=0.1),
    workload.SloClass(name="standard", priority=3, target_ttft_s=0.3, target_e2e_s=0.5),
    workload.SloClass(name="batch", priority=-1, target_ttft_s=0.15, target_tpot_s=0.0091),
    workload.SloClass(name="sheddable", priority=-2, target_ttft_s=0.05, target_e2e_s=0.3),
]


def admitted_by(admission: object) -> Simulation:
    """One policy with two servers of two seats each, in overload."""
    return Simulation(
        workload=requests(),
        tenants=[workload.Tenant(name="gold", weight=2)],
        slo_classes=_CLASSES,
        gateway=gateway.Gateway(admission=admission, limit=gateway.FixedLimit(max_in_flight=9)),
        router=router.LeastLoaded(),
        instances=[BLIS_SERVER.replace(count=2, num_kv_blocks=120, max_num_seqs=2)],
    )


def flow_control() -> Simulation:
    """llm-d's flow control with little room, ceilings and evictions."""
    preset = llm_d.flow_control(
        detector="concurrency",
        fairness=gateway.TenantRoundRobin(),
        usage_limit=gateway.PriorityHoldback(min_ceiling=0.4),
        evicts_in_flight=True,
    )
    changes = {
        "gateway.limit[0].max_concurrency": 3,
        "gateway.max_queued": 9,
        "gateway.queue_shedding": True,
        "gateway.eviction.grace_s": 0.05,
        "gateway.bands": [
            band.with_({"queue.timeout_s": 0.4, "max_requests": 4}) for band in preset.gateway.bands
        ],
    }
    instances = BLIS_SERVER.replace(count=2, num_kv_blocks=120)
    return preset.apply(Simulation(workload=requests(), instances=instances)).with_(changes)


RUNS = {
    "busy_threshold": busy_threshold,
    "longest_prefix": longest_prefix,
    "overload_cooldown": overload_cooldown,
    "pools": pools,
    "pools_failing": failing_pools,
    "router_queue": router_queue,
    "predictive_ttft": predictive,
    "token_bucket_least_loaded": token_bucket_least_loaded,
    "flow_control": flow_control,
    **{
        name: functools.partial(run, policy)
        for seam, run in {
            "Band.fairness": fair_queueing,
            "Gateway.admission": admitted_by,
            "Simulation.router": routed_by,
        }.items()
        for specimen in at(seam)
        for name, policy in specimen.golden.items()
    },
}


def decision_log(name: str) -> str:
    """Content of requests.csv with plain line ends."""
    with tempfile.TemporaryDirectory() as folder:
        simulate(RUNS[name](), SEED).write(folder)
        return (Path(folder) / "requests.csv").read_bytes().decode().replace("\r\n", "\n")


def main() -> None:
    """Command line."""
    FOLDER.mkdir(exist_ok=True)
    for name in RUNS:
        (FOLDER / f"{name}.csv").write_text(decision_log(name), encoding="utf-8", newline="\n")
    subprocess.run([sys.executable, Path(__file__).with_name("digests.py"), "--renew"], check=True)


if __name__ == "__main__":
    main()
