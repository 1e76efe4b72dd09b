"""Small problems to search: quick to run, and with more than one parameter that matters."""

from __future__ import annotations

from typing import Any

from spillway import Simulation, gateway, instance, workload

SMALL_SPACE: dict[str, Any] = {
    "gateway.limit[0].max_in_flight": (1, 64),
    "gateway.bands[0].queue.timeout_s": (0.05, 10),
}


def overloaded(**settings: Any) -> Simulation:
    """A gateway with a fixed limit and a queue before a plant that slows down when it is full."""
    plant = instance.ProcessorSharing(
        concurrency=[0, 4, 16, 64], e2e_s=[0.5, 0.6, 1.5, 8], ttft_s=[0.1, 0.2, 0.5, 4]
    )
    defaults: dict[str, Any] = {
        "workload": workload.Synthetic(
            requests_per_s=12,
            num_requests=200,
            clients=(
                workload.Client(name="a", tenant="a", slo_class="critical", rate_fraction=0.5),
                workload.Client(name="b", tenant="b", slo_class="sheddable", rate_fraction=0.5),
            ),
        ),
        "slo_classes": (
            workload.SloClass(name="critical", priority=4, target_ttft_s=1),
            workload.SloClass(name="sheddable", priority=-2, target_ttft_s=1),
        ),
        "tenants": (workload.Tenant(name="a"), workload.Tenant(name="b")),
        "gateway": gateway.Gateway(
            bands=gateway.Band(queue=gateway.Queue(timeout_s=5)),
            limit=gateway.FixedLimit(max_in_flight=32),
        ),
        "instances": instance.InstanceGroup(plant=plant),
    }
    return Simulation(**(defaults | settings))
