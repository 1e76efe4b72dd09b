"""tenants.yaml of vllm-on-eks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.deployments import written

from spillway import workload
from spillway.files.deployments import import_
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

if TYPE_CHECKING:
    from pathlib import Path


def expressible(name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    make = vllm_on_eks.post4 if name.endswith("2dca487") else vllm_on_eks.post5
    preset = make(workers=3)
    clients = [workload.Client(name=tenant.name, tenant=tenant.name) for tenant in preset.tenants]
    return {
        "gateway": preset.gateway,
        "tenants": preset.tenants,
        "workload": workload.Synthetic(clients=clients),
    }


TENANTS = """\
caps_enabled: true
num_workers: 2
cap_per_worker: 64
aimd: {enabled: true, target_p99_ttft_s: 2.0, tick_s: 5.0, window_s: 30.0, cap_per_worker_min: 16,
  cap_per_worker_max: 128, target_band_pct: 0.2, cooldown_ticks: 3, decrease_step: 4}
worker_watcher: {enabled: true, namespace: vllm, service_name: engine}
tenants:
- {id: A, name: paying, weight: 2, queue_max: 8, key_env: A}
- {id: B, name: free, weight: 1, queue_max: 2, key_env: B}
- {id: C, name: background, weight: 1, queue_max: 2, key_env: C}
"""


def test_the_published_tenants_file_is_the_preset(tmp_path: Path) -> None:
    preset = vllm_on_eks.post4(workers=None)
    files = written(tmp_path, tenants__yaml=TENANTS)
    found = import_(files, system="vllm-on-eks@2dca487")
    assert found.simulation.gateway == preset.gateway
    assert found.simulation.tenants[:3] == preset.tenants
    assert found.simulation.tenants[3].name == "default"  # of the workload
    assert found.unread == ()


REFUSED = {
    "a.yaml": [
        ("caps_enabled: true\nnum_workers: 2", "cap_per_worker: is missing"),
        (
            "num_workers: 2\ncap_per_worker: 4\ntenants: [{id: a, weight: two}]",
            "tenants[0]: weight = 'two': must be a whole number",
        ),
    ]
}
