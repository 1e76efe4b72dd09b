"""Measured points of AIConfigurator."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from support.recordings import FILES, MEASURED, values

from spillway.data.recording import ServerFacts
from spillway.files.recordings import read_points


def test_points() -> None:
    short, long = read_points(FILES / "silicon.csv")
    assert (short.input_tokens, short.output_tokens) == (1024, 1024)
    assert values(short.concurrency) == [16, 64]
    assert values(short.ttft_s) == [0.1055, 0.2055]
    assert values(short.itl_s) == [0.0125, 0.01775]
    assert values(long.concurrency) == [4]
    assert short.server == ServerFacts(
        model="Qwen/Qwen3-32B",
        gpu="h100_sxm",
        engine="vllm",
        engine_version="0.19.0",
        tensor_parallel_size=4,
        data_parallel_size=4,
    )
    assert long.server.data_parallel_size is None


def test_measured_points_are_read() -> None:
    path = MEASURED / "silicon_sample.csv"
    if not path.is_file():
        pytest.skip(f"{path} is missing: it is not part of the repository")
    points = read_points(path)
    with path.open(newline="") as file:
        aggregated = [row for row in csv.DictReader(file) if row["mode"] == "agg"]
    assert sum(len(group.concurrency) for group in points) == len(aggregated)
    assert all((np.diff(group.concurrency) >= 0).all() for group in points)
    assert sum(group.ttft_s.sum() for group in points) == pytest.approx(
        sum(float(row["silicon_ttft_ms"]) for row in aggregated) / 1e3
    )
