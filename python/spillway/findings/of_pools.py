"""Diagnoses of runs with prefill and decode pools."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from spillway.findings.finding import Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.findings.run import Run

_NOTEWORTHY = 0.01  # share of the dispatched requests
_WAITING = 1.0  # requests per instance of the pool that binds
_IDLE = 0.1  # requests that wait at the other pool for one that waits at it


def refused_after_prefill(run: Run) -> Iterator[Finding]:
    """Prompts that are computed for requests that no decode instance takes."""
    ledger = run.ledger
    refused = sum(ledger.get("handoff_rejected", {}).values())
    if refused < max(_NOTEWORTHY * ledger["dispatched"], 1):
        return
    share = refused / ledger["dispatched"]
    yield Finding(
        "disaggregation.order",
        f"The prompts of {share:.0%} of the dispatched requests were computed, and then no decode "
        "instance took the request: the prefill pool works in vain, and others wait for it.",
        severity=run.severity_of(),
        evidence=(
            Evidence("handoff_rejected", refused, "requests that were refused after their prefill"),
            Evidence("share_of_dispatched", share, "their share of the dispatched requests"),
        ),
        remedies=({"disaggregation.order": "decode_first"},),
    )


def unbalanced_pools(run: Run) -> Iterator[Finding]:
    """Requests that wait for one pool while none wait for the other."""
    roles = [group.role for group in run.simulation.instances for _ in range(group.count)]
    if set(roles) != {"prefill", "decode"}:
        return
    waiting = {
        role: statistics.fmean(
            instance["mean_waiting"]
            for instance, known in zip(run.result.instances, roles, strict=True)
            if known == role
        )
        for role in ("prefill", "decode")
    }
    binding, other = sorted(waiting, key=lambda role: -waiting[role])
    if waiting[binding] < _WAITING or waiting[other] > _IDLE * waiting[binding]:
        return
    yield Finding(
        f"instances[{_first(run, binding)}].count",
        f"On average {waiting[binding]:.3g} requests wait at each {binding} instance, and "
        f"{waiting[other]:.2g} at each {other} instance: the {binding} pool is the bottleneck.",
        severity=run.severity_of(),
        evidence=tuple(
            Evidence(f"waiting_{role}", waiting[role], f"requests that wait at a {role} instance")
            for role in (binding, other)
        ),
        remedies=tuple(_more_instances(run, binding, other)),
    )


def _more_instances(run: Run, binding: str, other: str) -> Iterator[dict[str, Any]]:
    """One instance moved from the other pool, if it has another one; one instance more."""
    groups = run.simulation.instances
    i, j = _first(run, binding), _first(run, other)
    more = {f"instances[{i}].count": groups[i].count + 1}
    if groups[j].count > 1:
        yield more | {f"instances[{j}].count": groups[j].count - 1}
    yield more


def _first(run: Run, role: str) -> int:
    return next(i for i, group in enumerate(run.simulation.instances) if group.role == role)
