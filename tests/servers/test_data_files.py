"""The data files of the catalog of servers."""

from __future__ import annotations

import pytest

from spillway.servers import accelerator, accelerators, model, models
from spillway.servers.data_files import entries
from spillway.servers.model import WEIGHT_BYTES
from spillway.servers.physics import Efficiencies

FILES = ("models.yaml", "accelerators.yaml")


@pytest.mark.parametrize("name", models())
def test_an_architecture_has_the_published_number_of_parameters(name: str) -> None:
    entry = entries("models.yaml")[name]
    known = model(name)
    count = known.parameters
    assert count.total / 1e9 == pytest.approx(entry["parameters_b"], rel=0.02)
    assert ("active_parameters_b" in entry) is known.is_mixture
    if known.is_mixture:
        # What counts as active (embedding, head) differs between publications.
        active = count.total - count.experts + known.expert_share * count.experts
        low, high = (0.8 * entry["active_parameters_b"], 1.25 * entry["active_parameters_b"])
        assert low < active / 1e9 < high
    assert known.dtype in WEIGHT_BYTES


@pytest.mark.parametrize("file", FILES)
def test_every_name_means_one_entry_and_every_entry_has_a_source(file: str) -> None:
    seen: dict[str, str] = {}
    for key, entry in entries(file).items():
        assert entry["source"]
        names = [key, entry.get("repository"), entry.get("name"), *entry.get("aliases", [])]
        for name in filter(None, names):
            assert seen.setdefault(name.lower(), key) == key, name
    assert all(entry.get("license") for entry in entries("models.yaml").values())


@pytest.mark.parametrize("name", accelerators())
def test_an_accelerator_is_plausible(name: str) -> None:
    device = accelerator(name)
    assert 10 < device.memory_gib < 300
    assert 0.1 < device.bandwidth_tb_s < 10
    assert device.flops("bf16") <= device.flops("fp8")
    assert device.flops("bf16") <= device.flops("nvfp4")
    balance = device.flops("bf16") / (device.bandwidth_tb_s * 1e12)
    assert 100 < balance < 450  # operations per byte, of all accelerators for these models


def test_fitted_efficiencies_belong_to_accelerators_of_the_catalog() -> None:
    for entry in entries("efficiencies.yaml").values():
        assert entry["gpu"] in accelerators()
        assert entry["dtype"] in WEIGHT_BYTES
        Efficiencies(**entry["efficiencies"])
        assert all(0 < width <= 1 for width in entry["widths"].values())
