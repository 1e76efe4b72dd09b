"""Step tables from a package's kernel measurements, with a stand-in for the package."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import spillway
from spillway import ConfigError, Simulation, instance, workload
from spillway.cli import main
from spillway.servers import Server
from spillway.servers.kernel_tables import kernel_table

SERVER = Server(
    model="llama-3.1-8b", gpu="h100", max_num_seqs=8, max_num_batched_tokens=512, max_model_len=4096
)


class Steps:
    """Milliseconds by simple formulas, so that each part of a step shows in the sum."""

    @staticmethod
    def decode_step_latency(requests: int, context: int, outputs: int) -> float:
        assert outputs == 2
        return 5 + 0.1 * requests + 1e-4 * requests * context

    @staticmethod
    def mixed_step_breakdown(
        prompt: int, requests: int, context: int, outputs: int
    ) -> tuple[float, float, float, float]:
        assert outputs == 2
        shared = 5 + 0.1 * requests + 0.02 * prompt
        attention, reads = 1e-6 * prompt**2, 1e-4 * requests * context
        return shared + attention + reads, shared, attention, reads

    @staticmethod
    def predict_prefill_latency(requests: int, length: int, prefix: int) -> float:
        assert requests == 1
        new = length - prefix
        return 5 + 0.02 * new + 1e-6 * new**2 + 2e-6 * new * prefix


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Installs the stand-in; what it was asked to compile."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    class Handle:
        @staticmethod
        def compile(path: str, *arguments: str, **layout: Any) -> Steps:
            config = yaml.safe_load((Path(path) / "config.json").read_text())
            calls.append(((config, *arguments), layout))
            return Steps()

    def slots(system: str, backend: str) -> dict[str, str] | None:
        return {"current": "9.9"} if (system, backend) == ("h100_sxm", "vllm") else None

    package = ModuleType("aiconfigurator_core")
    package.__version__ = "0.0"  # type: ignore[attr-defined]
    package.__file__ = __file__
    engine = ModuleType("aiconfigurator_core.sdk.engine")
    engine.EngineHandle = Handle  # type: ignore[attr-defined]
    database = ModuleType("aiconfigurator_core.sdk.perf_database")
    database.get_version_slots = slots  # type: ignore[attr-defined]
    for module in (package, ModuleType("aiconfigurator_core.sdk"), engine, database):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return calls


@pytest.mark.usefixtures("compiled")
def test_a_step_is_the_sum_of_its_kernels() -> None:
    table = kernel_table(SERVER).group.latency
    assert isinstance(table, instance.StepTable)
    assert table.decode_requests == (0, 1, 2, 4, 8)
    assert table.prefill_tokens == (0, 16, 32, 64, 128, 256, 512)
    assert table.context_tokens == (128, 512, 2048, 4096)
    grid = itertools.product(table.decode_requests, table.prefill_tokens, table.context_tokens)
    for (requests, prompt, context), step_us in zip(grid, table.step_us, strict=True):
        if requests or prompt:
            expected = 5 + 0.1 * requests + 1e-4 * requests * context
            expected += 0.02 * prompt + 1e-6 * prompt**2
            assert step_us == pytest.approx(1e3 * expected)
    assert table.prefill_context_us == pytest.approx(2e-3)


def test_the_package_gets_the_architecture_and_the_layout(
    compiled: list[tuple[tuple[Any, ...], dict[str, Any]]],
) -> None:
    kernel_table(Server(model="llama-3.3-70b", gpu="h100", tp=4, dtype="fp8"))
    ((config, system, backend), layout) = compiled[0]
    assert (config["num_hidden_layers"], config["hidden_size"]) == (80, 8192)
    assert (system, backend) == ("h100_sxm", "vllm")
    assert layout == {
        "tp_size": 4, "attention_dp_size": 1, "gemm_quant_mode": "fp8",
        "kvcache_quant_mode": "bfloat16",
    }  # fmt: skip


@pytest.mark.usefixtures("compiled")
def test_the_written_server_is_one_noun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.yaml"
    arguments = ["servers", "llama-3.1-8b", "--gpu", "h100", "--max-num-seqs", "8"]
    assert main([*arguments, "--table", "aiconfigurator", "-o", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "step times: table of aiconfigurator-core" in shown
    assert f"instances: {{server: {file}}}" in shown

    (tmp_path / "run.yaml").write_text("schema: 1\ninstances: {server: server.yaml}\n")
    simulation = spillway.load(tmp_path / "run.yaml")
    (group,) = simulation.instances
    assert "h100_sxm, vllm 9.9, unvalidated" in group.provenance
    expected = kernel_table(Server(model="llama-3.1-8b", gpu="h100", max_num_seqs=8)).group
    assert group == expected
    answers = spillway.simulate(simulation, uncertainty=5)
    low, high = answers["mean_ttft_ms"]
    assert low < high


@pytest.mark.usefixtures("compiled")
def test_what_it_cannot_compute_is_refused() -> None:
    with pytest.raises(ConfigError, match="gpu = l4: is not an accelerator with measurements"):
        kernel_table(Server(model="llama-3.1-8b", gpu="l4"))
    with pytest.raises(ConfigError, match=re.escape("give the path of its config.json")):
        kernel_table(Server(model="mixtral-8x7b", gpu="h100", tp=2))


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk.engine", None)
    with pytest.raises(ImportError, match=r"spillway-sim\[aiconfigurator\]"):
        kernel_table(SERVER)


@pytest.mark.parametrize("arguments", [["--table", "aiconfigurator"], ["-o", "server.yaml"]])
def test_table_and_output_belong_together(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["servers", "llama-3.1-8b", "--gpu", "h100", *arguments]) == 2
    assert "is missing" in capsys.readouterr().err


@pytest.mark.usefixtures("compiled")
def test_a_fleet_of_tables_runs() -> None:
    simulation = Simulation(
        workload=workload.Synthetic(num_requests=300),
        instances=[kernel_table(SERVER).group.replace(count=2)],
    )
    assert spillway.simulate(simulation).summary()["completed"] == 300
