"""Diagnoses of runs in which instances and gateways fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.config.formatting import counted
from spillway.findings.finding import Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.findings.run import Run

_NOTEWORTHY = 0.001  # share of the attempts
_TARGET = "fleet.target_instances"


def instances_failed(run: Run) -> Iterator[Finding]:
    """Requests that failed with their instances, or went on at others."""
    faults = [fault for fault in run.result.faults if "gateway" not in fault]
    migrated = sum(fault.get("migrated_requests", 0) for fault in faults)
    hit = sum(fault["lost_requests"] for fault in faults)
    lost = hit - migrated
    attempts = run.ledger["attempts"]
    if hit < max(_NOTEWORTHY * attempts, 1):
        return
    late = sum(
        fault["detected_s"] is None or fault["detected_s"] > fault["began_s"]
        for fault in faults
        if fault["lost_requests"]
    )
    unnoticed = (
        f" {counted(late, 'failure')} went unnoticed for a while (fleet.health.detected_after_s), "
        "in which requests were still sent there."
        if late
        else ""
    )
    gone_on = f" {counted(migrated, 'request')} went on at other instances" if migrated else ""
    if migrated and run.result.has_requests:
        again = int(run.column("recomputed_tokens").sum())
        gone_on += f", which computed {counted(again, 'token')} again"
    gone_on += "." if migrated else ""
    lost_s = sum(fault["lost_time_s"] for fault in faults)
    tokens = sum(fault["lost_tokens"] for fault in faults)
    yield Finding(
        "fleet.health",
        f"Instances that failed lost {counted(lost, 'request')}, {lost / attempts:.2%} of all "
        f"attempts, with {tokens:,} computed tokens.{gone_on}{unnoticed}",
        severity=run.severity_of() if lost or run.is_harmed else "info",
        evidence=(
            Evidence("lost_requests", lost, "requests that were lost with instances"),
            Evidence("migrated_requests", migrated, "requests that went on at other instances"),
            Evidence("lost_tokens", tokens, "their tokens in KV memory"),
            Evidence("lost_time_s", lost_s, "the time since they had entered, summed (s)"),
        ),
        remedies=(
            *(({"fleet.health.detected_after_s": 0.0},) if late else ()),
            *(({"fleet.migration.limit": 3},) if run.simulation.fleet.migration.limit == 0 else ()),
        ),
    )


def gateways_failed(run: Run) -> Iterator[Finding]:
    """Requests that failed with replicas of the gateway."""
    faults = [fault for fault in run.result.faults if "gateway" in fault]
    lost = sum(fault["lost_requests"] for fault in faults)
    attempts = run.ledger["attempts"]
    if lost < max(_NOTEWORTHY * attempts, 1):
        return
    before = run.ledger.get("failed_at_admission", 0)
    waiting = run.ledger.get("failed_in_queue", 0)
    alone = run.simulation.gateway.replicas == 1
    yield Finding(
        "gateway.replicas",
        f"{counted(len(faults), 'failure')} of the gateway lost "
        f"{counted(lost, 'request')}, {lost / attempts:.2%} of all attempts: {before:,} that came "
        f"to it in vain, {waiting:,} in its queues, {lost - before - waiting:,} that it had sent "
        "to instances, whose answers pass through it."
        + (" With one replica there is none that takes new requests meanwhile." if alone else ""),
        severity=run.severity_of() if run.is_harmed else "medium",
        evidence=(
            Evidence("lost_requests", lost, "requests that were lost with replicas of the gateway"),
            Evidence(
                "lost_time_s",
                sum(fault["lost_time_s"] for fault in faults),
                "the time since they had arrived, summed (s)",
            ),
        ),
        remedies=({"gateway.replicas": 2},) if alone else (),
    )


def kv_lost(run: Run) -> Iterator[Finding]:
    """Losses of KV memory, whose tokens are computed again."""
    losses = [fault for fault in run.result.faults if fault["kind"] == "kv_loss"]
    preempted = sum(fault["preempted_requests"] for fault in losses)
    started = run.ledger["dispatched"]
    if preempted < max(_NOTEWORTHY * started, 1):
        return
    tokens = sum(fault["lost_tokens"] for fault in losses)
    yield Finding(
        "changes",
        f"{counted(len(losses), 'fault')} of KV memory (kv_loss) preempted "
        f"{counted(preempted, 'request')}, {preempted / started:.2%} of those dispatched, with "
        f"{tokens:,} computed tokens, which were computed again.",
        severity="medium" if run.is_harmed else "info",
        evidence=(
            Evidence("preempted_requests", preempted, "requests that lost their KV memory"),
            Evidence("lost_tokens", tokens, "their tokens in it"),
        ),
    )


def drained_politely(run: Run) -> Iterator[Finding]:
    """Instances that leave because the target falls, which is no failure."""
    simulation = run.simulation
    if run.result.faults or simulation.fleet.breakdowns is not None:
        return
    target = simulation.fleet.target_instances or run.num_instances
    for i, change in enumerate(simulation.changes):
        to = change.set.get(_TARGET, target)
        if to < target:
            yield Finding(
                f"changes[{i}].set[{_TARGET}]",
                f"changes[{i}] lowers {_TARGET} from {target} to {to}, which is a polite drain: "
                "instances that leave finish their requests, and nothing is lost. A failure is "
                "changes[].faults, e.g. --what-if 'instance 0 crashes at "
                f"{change.at_s:g}s for 60s'.",
                severity="info",
            )
            return
        target = to
