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
    stated = entries("models.yaml")[name]
    one = model(name)
    count = one.parameters
    assert count.total / 1e9 == pytest.approx(stated["parameters_b"], rel=0.02)
    assert ("active_parameters_b" in stated) is one.is_mixture
    if one.is_mixture:
        # What counts as active (embedding, head) differs between publications.
        active = count.total - count.experts + one.expert_share * count.experts
        low, high = (0.8 * stated["active_parameters_b"], 1.25 * stated["active_parameters_b"])
        assert low < active / 1e9 < high
    assert one.dtype in WEIGHT_BYTES


@pytest.mark.parametrize("file", FILES)
def test_every_name_means_one_entry_and_every_entry_has_a_source(file: str) -> None:
    seen: dict[str, str] = {}
    for key, one in entries(file).items():
        assert one["source"]
        given = [key, one.get("repository"), one.get("name"), *one.get("aliases", [])]
        for name in filter(None, given):
            assert seen.setdefault(name.lower(), key) == key, name
    assert all(one.get("license") for one in entries("models.yaml").values())


@pytest.mark.parametrize("name", accelerators())
def test_an_accelerator_is_plausible(name: str) -> None:
    one = accelerator(name)
    assert 10 < one.memory_gib < 300
    assert 0.1 < one.bandwidth_tb_s < 10
    assert one.flops("bf16") <= one.flops("fp8")
    assert one.flops("bf16") <= one.flops("nvfp4")
    balance = one.flops("bf16") / (one.bandwidth_tb_s * 1e12)
    assert 100 < balance < 450  # operations per byte, of all accelerators for these models


def test_fitted_efficiencies_belong_to_accelerators_of_the_catalog() -> None:
    for one in entries("efficiencies.yaml").values():
        assert one["gpu"] in accelerators()
        assert one["dtype"] in WEIGHT_BYTES
        Efficiencies(**one["efficiencies"])
        assert all(0 < width <= 1 for width in one["widths"].values())
