"""The catalog of servers as text."""

from __future__ import annotations

import dataclasses
from typing import Any

from spillway.servers.accelerator import accelerator, accelerators
from spillway.servers.data_files import entries
from spillway.servers.model import Model, model, models


def table() -> str:
    """All models and accelerators, and which pairs were measured."""
    lines = ["models"]
    width = max(map(len, models()))
    for name in models():
        shown = model(name)
        lines.append(f"  {name:<{width}}  {_size(shown):>14}  {shown.dtype:<5}  {shown.repository}")
    lines += ["", "accelerators"]
    width = max(map(len, accelerators()))
    for name in accelerators():
        device = accelerator(name)
        flops = ", ".join(f"{value:g} {dtype}" for dtype, value in device.dense_tflops.items())
        lines.append(
            f"  {name:<{width}}  {device.memory_gib:6.1f} GiB  {device.bandwidth_tb_s:5.2f} TB/s  "
            f"TFLOP/s: {flops}"
        )
    lines += ["", "step times fitted to measurements; all others are unvalidated"]
    for known in entries("efficiencies.yaml").values():
        kind = "mixtures of experts" if known["is_mixture"] else "dense models"
        lines.append(f"  {known['gpu']}, {known['dtype']}, {kind}: {known['fitted']}")
    lines += [
        "",
        "Another model: the path of its config.json. Another accelerator, in a file:",
        "gpu: {memory_gib: …, bandwidth_tb_s: …, dense_tflops: {bf16: …}, link_gb_s: …}.",
        "`spillway servers MODEL --gpu GPU --tp N` shows one.",
    ]
    return "\n".join(lines)


def catalog() -> dict[str, Any]:
    """The models and accelerators as plain values, by name."""
    return {
        "models": {name: dataclasses.asdict(model(name)) for name in models()},
        "accelerators": {name: dataclasses.asdict(accelerator(name)) for name in accelerators()},
    }


def _size(shown: Model) -> str:
    billions = shown.parameters.total / 1e9
    if not shown.is_mixture:
        return f"{billions:.1f}B"
    count = shown.parameters
    active = (count.total - count.experts + shown.expert_share * count.experts) / 1e9
    return f"{billions:.0f}B, {active:.0f}B active"
