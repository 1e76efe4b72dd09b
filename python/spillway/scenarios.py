"""Deprecated names of published workloads, which are now in `spillway.catalog`."""

from __future__ import annotations

import warnings
from typing import Any

from spillway.catalog import Preset, by_name, text, vllm_on_eks


def _scenario(
    *,
    name: str,
    doc: str,
    duration_s: float,
    workload: Any,
    tenants: Any = vllm_on_eks.TENANTS,
    slo_classes: Any = vllm_on_eks.SLO_CLASSES,
) -> Preset:
    return Preset(
        name=name,
        kind="scenario",
        doc=doc,
        source="",
        settings={"workload": workload, "tenants": tenants, "slo_classes": slo_classes},
        duration_s=duration_s,
    )


def _names() -> tuple[str, ...]:
    return by_name.names("scenario")


# Former name → the object, and its name in the catalog.
_FORMER = {
    "CLASS_OF": (vllm_on_eks.CLASS_OF, "vllm_on_eks.CLASS_OF"),
    "SLO_CLASSES": (vllm_on_eks.SLO_CLASSES, "vllm_on_eks.SLO_CLASSES"),
    "Scenario": (_scenario, "Preset"),
    "TARGET_TTFT_S": (vllm_on_eks.TARGET_TTFT_S, "vllm_on_eks.TARGET_TTFT_S"),
    "TENANTS": (vllm_on_eks.TENANTS, "vllm_on_eks.TENANTS"),
    "get": (by_name.scenario, "get"),
    "names": (_names, "names('scenario')"),
    "table": (text.scenarios, "text.scenarios"),
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
