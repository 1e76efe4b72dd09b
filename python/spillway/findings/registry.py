"""All diagnoses: functions that yield findings. The name of a function is that of its finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway._core.sim import ConfigError
from spillway.findings import of_faults, of_fleet, of_gateway, of_pools, remarks
from spillway.findings import of_settings as settings
from spillway.findings.finding import in_order
from spillway.findings.plan import Plan
from spillway.findings.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from spillway._core.cluster import Simulation
    from spillway.data.result_data import ResultData
    from spillway.findings.finding import Finding

OF_SETTINGS: tuple[Callable[[Plan], Iterator[Finding]], ...] = (
    settings.bucket_below_prompt,
    settings.targets_out_of_reach,
    settings.clients_give_up,
    settings.budgets_out_of_reach,
    settings.sensor_window,
    settings.band_of_controller,
    settings.absorbing_floor,
    settings.target_below_latency,
    settings.controller_chases_its_queue,
    settings.limit_cannot_bind,
    settings.threshold_out_of_reach,
    settings.busy_threshold_out_of_reach,
    settings.signal_not_simulated,
    settings.unread_predictions,
    settings.model_not_served,
    settings.domain_of_one_role,
)

# Causes come before what follows from them.
OF_RUNS: tuple[Callable[[Run], Iterator[Finding]], ...] = (
    of_faults.instances_failed,
    of_faults.gateways_failed,
    of_faults.kv_lost,
    of_fleet.priority_blocked,
    of_fleet.starvation,
    of_fleet.passed_by_prefixes,
    of_fleet.long_prompts,
    of_fleet.stale_signals,
    of_fleet.hot_spot,
    of_fleet.busy_ignored,
    of_gateway.partial_view,
    of_gateway.stale_as_saturated,
    of_fleet.refused_after_front_end,
    of_pools.refused_after_prefill,
    of_pools.unbalanced_pools,
    of_gateway.probe_refuses,
    of_gateway.limit_at_floor,
    of_gateway.expired_without_servers,
    of_gateway.blocked_by_tenant,
    of_gateway.stopped_learning,
    of_gateway.output_uncounted,
    of_gateway.refuses_while_idle,
    of_gateway.waits_while_idle,
    of_gateway.metastable,
    of_gateway.retry_storm,
    of_fleet.preemption_tax,
    of_gateway.unbounded_queue,
    of_gateway.saturated,
    of_gateway.shedding,
    remarks.failed_calls,
    remarks.cached_prompts,
    of_gateway.unfinished,
    of_fleet.seats_binding,
    of_fleet.memory_binding,
    of_gateway.limit_at_ceiling,
    of_fleet.concentrated_prompts,
    of_fleet.small_prefix_index,
    remarks.hidden_group,
    remarks.idle_mechanism,
    remarks.unused_memory,
    remarks.extrapolated,
    remarks.no_targets,
    remarks.unvalidated_servers,
    remarks.default_servers,
    remarks.few_values,
    remarks.approximate,
    remarks.slow_stepping,
    of_faults.drained_politely,
)


def of_run(result: ResultData) -> list[Finding]:
    """What was wrong in a run, the worst first."""
    return _found(OF_RUNS, Run(result), result.simulation)


def of_both(result: ResultData) -> list[Finding]:
    """What is wrong with a run and with its settings, the worst first."""
    return in_order([*of_settings(result.simulation), *of_run(result)])


def of_settings(simulation: Simulation) -> list[Finding]:
    """What cannot work in a simulation, the worst first."""
    return _found(OF_SETTINGS, Plan(simulation), simulation)


def _found(
    diagnoses: Iterable[Callable[[Any], Iterator[Finding]]], subject: Any, simulation: Simulation
) -> list[Finding]:
    """The findings, with the remedies that change the simulation and that its settings allow."""
    return in_order(
        finding._replace(
            name=diagnose.__name__,
            remedies=tuple(known for known in finding.remedies if _is_valid(simulation, known)),
        )
        for diagnose in diagnoses
        for finding in diagnose(subject)
    )


def _is_valid(simulation: Simulation, remedy: Mapping[str, Any]) -> bool:
    try:
        return simulation.with_(dict(remedy)) != simulation
    except ConfigError:
        return False
