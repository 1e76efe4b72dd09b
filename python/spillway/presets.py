"""Deprecated names of published gateways and servers, which are now in `spillway.catalog`."""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

from spillway.catalog import Preset, blis, dynamo, llm_d, vllm_on_eks

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway._core.instance import InstanceGroup, PriorityFcfs


def _gateway_preset(
    *, name: str, doc: str, gateway: Any, tenants: Any, signals: Any = None
) -> Preset:
    settings = {"gateway": gateway, "tenants": tenants}
    if signals is not None:
        settings["signals"] = signals
    return Preset(name=name, kind="gateway", doc=doc, source="", settings=settings)


def _dynamo_preset(
    *, name: str, doc: str, admission: Any, busy_monitor: Any, ingress: Any
) -> Preset:
    settings = {
        **dynamo.v1_3().settings,
        "gateway.admission": admission,
        "busy_monitor": busy_monitor,
        "instances[].ingress": ingress,
    }
    return Preset(name=name, kind="gateway", doc=doc, source="", settings=settings)


def _called(name: str, function: Callable[..., Preset]) -> Callable[..., Preset]:
    return lambda **parameters: dataclasses.replace(function(**parameters), name=name)


def _llm_d_flow_control(*, version: llm_d.Version = "2026-08", **parameters: Any) -> Preset:
    preset = llm_d.flow_control(version=version, **parameters)
    return dataclasses.replace(preset, name=f"{preset.name}-{version}")


def _toy_plant() -> InstanceGroup:
    group: InstanceGroup = vllm_on_eks.toy_plant().instances
    return group


def _l4_fleet(*, workers: int = 2) -> InstanceGroup:
    group: InstanceGroup = vllm_on_eks.l4(workers=workers).instances
    return group


def _iteration_14_scheduler(**parameters: Any) -> PriorityFcfs:
    scheduler: PriorityFcfs = blis.iteration_14(**parameters).scheduler
    return scheduler


# Former name → the object, and its name in the catalog.
_FORMER = {
    "DynamoPreset": (_dynamo_preset, "Preset"),
    "GatewayPreset": (_gateway_preset, "Preset"),
    "ITERATION_14_PRIORITIES": (blis.ITERATION_14_PRIORITIES, "blis.ITERATION_14_PRIORITIES"),
    "LlmDVersion": (llm_d.Version, "llm_d.Version"),
    "Semantics": (vllm_on_eks.Semantics, "vllm_on_eks.Semantics"),
    "TARGET_P99_TTFT_S": (vllm_on_eks.TARGET_TTFT_S, "vllm_on_eks.TARGET_TTFT_S"),
    "WEIGHTS": (vllm_on_eks.WEIGHTS, "vllm_on_eks.WEIGHTS"),
    "dynamo_1_2": (_called("dynamo_1_2", dynamo.v1_2), "dynamo.v1_2"),
    "dynamo_1_3": (_called("dynamo_1_3", dynamo.v1_3), "dynamo.v1_3"),
    "dynamo_dev_b": (_called("dynamo_dev_b", dynamo.dev_b), "dynamo.dev_b"),
    "dynamo_dev_c": (_called("dynamo_dev_c", dynamo.dev_c), "dynamo.dev_c"),
    "gateway_post4": (_called("post4", vllm_on_eks.post4), "vllm_on_eks.post4"),
    "gateway_post5": (_called("post5", vllm_on_eks.post5), "vllm_on_eks.post5"),
    "gateway_pre": (_called("pre", vllm_on_eks.pre), "vllm_on_eks.pre"),
    "iteration_14_scheduler": (_iteration_14_scheduler, "blis.iteration_14().scheduler"),
    "l4_fleet": (_l4_fleet, "vllm_on_eks.l4().instances"),
    "llm_d_flow_control": (_llm_d_flow_control, "llm_d.flow_control"),
    "static_caps": (_called("static-caps", vllm_on_eks.static_caps), "vllm_on_eks.static_caps"),
    "toy_plant": (_toy_plant, "vllm_on_eks.toy_plant().instances"),
}


__all__ = list(_FORMER)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _FORMER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    value, now = _FORMER[name]
    warnings.warn(
        f"{__name__}.{name} is now spillway.catalog.{now}", DeprecationWarning, stacklevel=2
    )
    return value
