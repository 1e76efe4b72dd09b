"""Servers fitted to histograms of Prometheus under a stated workload."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.measured_runs import FACTS, LATENCY
from support.scrapes import BUCKETS, histograms_of, load, page, served

from spillway import ConfigError, TraceError, calibrate
from spillway.calibration import Profile, Scraped
from spillway.calibration.histograms import HistogramPart
from spillway.cli import main
from spillway.config.yaml import to_yaml
from spillway.data.recording import Histogram, LatencyHistograms
from spillway.traffic.generation import generated

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.data.result_data import ResultData
    from spillway.workload import Trace


@cache
def requests() -> Trace:
    return generated(load(4, 300, 60, requests=150), 1)


@cache
def measured() -> ResultData:
    return served(requests())


def changed(name: str, **values: object) -> LatencyHistograms:
    scraped = histograms_of(measured())
    histogram = dataclasses.replace(scraped.histograms[name], **values)  # type: ignore[arg-type]
    return dataclasses.replace(scraped, histograms={**scraped.histograms, name: histogram})


def test_the_truth_has_no_residuals() -> None:
    part = HistogramPart(Scraped(histograms_of(measured()), requests()))
    assert part.residuals([measured()]) == pytest.approx(0, abs=1e-12)
    errors = part.report([measured()])
    assert set(errors.errors_percent.values()) == {0.0}
    assert errors.requests == 150
    rng = np.random.default_rng(0)
    assert part.resampler([measured()])(rng) == pytest.approx(0, abs=1e-12)
    slower = served(requests(), latency=LATENCY.replace(constant_us=6000))
    assert np.abs(part.residuals([slower])).max() > 0.1


def test_a_bucket_does_not_say_where_its_observations_lie() -> None:
    """Without sums, any values in the same buckets fit equally well; nothing is interpolated."""
    scraped = histograms_of(measured())
    blind = {
        name: Histogram(histogram.upper, histogram.cumulative, float("nan"))
        for name, histogram in scraped.histograms.items()
    }
    part = HistogramPart(Scraped(dataclasses.replace(scraped, histograms=blind), requests()))
    assert part.residuals([measured()]) == pytest.approx(0, abs=1e-12)
    # A server that is 0.5% slower moves no token across the bounds of 10 and 25 ms.
    gaps = measured().token_gaps
    assert ((gaps["gap_s"] > 0.0102) | (gaps["gap_s"] < 0.0095)).all()
    only = {"itl_s": blind["itl_s"]}
    tokens = HistogramPart(Scraped(dataclasses.replace(scraped, histograms=only), requests()))
    tokens.check([measured()])
    slower = served(requests(), latency=LATENCY.replace(constant_us=2020))
    assert tokens.residuals([slower]) == pytest.approx(0, abs=0.01)
    assert len(tokens.residuals([slower])) < len(BUCKETS["itl_s"])


def test_what_identifies_nothing_is_refused() -> None:
    scraped = histograms_of(measured())
    few = served(generated(load(4, 300, 60, requests=40), 1))
    with pytest.raises(ConfigError, match=r"histograms.count = 40: must be >= 100"):
        Scraped(histograms_of(few), requests())
    with pytest.raises(ConfigError, match=r"must hold observations of one of ttft_s, itl_s, e2e_s"):
        Scraped(dataclasses.replace(scraped, histograms={}), requests())
    single = Histogram(np.array([60.0, np.inf]), np.array([150, 150]), float("nan"))
    blind = dict.fromkeys(("ttft_s", "e2e_s"), single)
    with pytest.raises(ConfigError, match=r"ttft_s, e2e_s: identify nothing: each has all"):
        Scraped(dataclasses.replace(scraped, histograms=blind), requests())
    with pytest.raises(ConfigError, match=r"histograms.ttft_s.sum = 9e\+06: must be between"):
        Scraped(changed("ttft_s", sum=9e6), requests())


def test_the_generatoris_that_of_the_interval() -> None:
    scraped = histograms_of(measured())
    fewer = generated(load(4, 300, 60, requests=120), 1)
    with pytest.raises(ConfigError, match=r"serves 120 requests, but the histograms hold 150"):
        calibrate(Scraped(scraped, fewer, "morning"))
    longer = generated(load(4, 300, 90, requests=150), 1)
    with pytest.raises(ConfigError, match=r"morning: serves 13,\d+ output tokens, but the hist"):
        calibrate(Scraped(scraped, longer, "morning"))


def test_scrapes_are_of_one_server(tmp_path: Path) -> None:
    early, late = tmp_path / "early.txt", tmp_path / "late.txt"
    early.write_text(page(None))
    late.write_text(page(histograms_of(measured())))
    scraped = Scraped.read(early, late, requests())
    assert scraped.requests == 150
    assert scraped.name == "late"
    histograms = scraped.histograms.histograms
    ttft, itl, e2e = (histograms[name] for name in ("ttft_s", "itl_s", "e2e_s"))
    assert ttft.mean == pytest.approx(np.mean(measured().requests["ttft_s"]))
    assert (ttft.count, e2e.count) == (150, 150)
    assert itl.count == measured().requests["output_tokens"].sum() - 150
    # The ranks of a server count together.
    for file in (early, late):
        text = file.read_text()
        file.write_text(text + text.replace('engine="0"', 'engine="1"'))
    both = Scraped.read(early, late, requests())
    assert both.requests == 300
    assert both.histograms.server.data_parallel_size == 2
    assert both.histograms.counters["generation_tokens"] == 2 * (itl.count + 150)
    early.write_text(page(None))
    with pytest.raises(TraceError, match=r"has the engines \['0'\], but .* has \['0', '1'\]"):
        Scraped.read(early, late, requests())


@pytest.mark.slow
def test_three_intervals_give_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Buckets and sums are enough to predict a load between those that were measured."""
    loads = (load(1.5, 500, 100), load(8, 100, 70), load(3, 1900, 60))
    traces = {f"{i}": generated(generator, 9) for i, generator in enumerate(loads)}
    scraped = [Scraped(histograms_of(served(trace)), trace, i) for i, trace in traces.items()]
    profile = calibrate(scraped, norms=(4.0,), server={"max_num_seqs": 64})
    assert [run.name for run in profile.runs] == ["0", "1", "2"]
    assert Profile.from_dict(profile.to_dict()) == profile
    other = generated(load(3, 700, 80), 5)
    real = served(other).summary()
    figures = served(other, latency=profile.latency).summary()
    for figure in ("mean_ttft_ms", "mean_itl_ms", "mean_e2el_ms", "p99_ttft_ms"):
        assert figures[figure] == pytest.approx(real[figure], rel=0.03)
    # On the command line one interval, with the generator instead of its requests.
    loaded = load(1.5, 500, 100)
    early, late = tmp_path / "early.txt", tmp_path / "late.txt"
    early.write_text(page(None))
    late.write_text(page(histograms_of(served(loaded, seed=7))))
    (tmp_path / "load.yaml").write_text(to_yaml({"workload": loaded.to_dict()}))
    facts = [f"--server={name}={getattr(FACTS, name)}" for name in (
        "max_num_seqs", "num_kv_blocks", "block_size_tokens", "engine_version")]  # fmt: skip
    files = [str(early), str(late), str(tmp_path / "load.yaml")]
    output = str(tmp_path / "server.yaml")
    assert main(["calibrate", "--scrapes", *files, *facts, "-o", output]) == 0
    assert "share_ttft" in capsys.readouterr().out
    single = Profile.load(output)
    simulated = served(loaded, seed=7, latency=single.latency).summary()
    truth = served(loaded, seed=7).summary()
    assert simulated["mean_itl_ms"] == pytest.approx(truth["mean_itl_ms"], rel=0.03)
    assert simulated["mean_ttft_ms"] == pytest.approx(truth["mean_ttft_ms"], rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to fit"),
        (["run.csv", "--columns", "send_s"], "--columns = 'send_s': must be MEANING=COLUMN,…"),
        (["run.csv", "--units", "t0="], "--units = 't0=': must be COLUMN=UNIT,…"),
        (["--scrapes", "no.prom", "late.prom", "load.yaml"], "no.prom"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
