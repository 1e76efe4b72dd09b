"""`spillway curve`, and its call in Python."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from support.runs import steady

import spillway
from spillway import Simulation, cli, workload
from spillway.instance import InstanceGroup
from spillway.study import curve
from spillway.study.rate_curve import Curve

CAPACITY = 10.0  # requests/s: steps of 100 ms, one request at a time
OPEN = Simulation(
    workload=workload.Synthetic(
        requests_per_s=4,
        num_requests=4000,
        clients=[
            workload.Client(
                input_tokens=workload.Fixed(tokens=16), output_tokens=workload.Fixed(tokens=1)
            )
        ],
    ),
    instances=[InstanceGroup(latency=steady(1000 / CAPACITY), max_num_seqs=1)],
)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_knee_of_one_server_with_equal_work_is_that_of_theory() -> None:
    """M/D/1: rho / (1 + rho / (2 (1 - rho))) is largest at 2 - sqrt(2), a load of 59%."""
    found = curve(OPEN, rates=range(1, 13), slo="mean e2e < 0.25 s", seeds=4)
    assert found.knee_per_s == round(CAPACITY * (2 - math.sqrt(2)))
    for point in found.points[:7]:
        rho = point.rate_per_s / CAPACITY
        mean_ms = 1000 / CAPACITY * (1 + rho / (2 * (1 - rho)))
        assert point.figures["mean_e2el_ms"].mean == pytest.approx(mean_ms, rel=0.05)
        assert point.figures["request_throughput"].mean == pytest.approx(point.rate_per_s, rel=0.05)
    assert found.saturated_from_per_s in (11, 12)
    assert found.holds_to_per_s in (6, 7)  # 250 ms at a load of 75%
    assert [of.verdict for of in found.points[-3:]] == ["breaks"] * 3


@pytest.mark.parametrize("rate", [0.02, 4, 300])
def test_the_rates_enclose_the_capacity_whatever_the_rate_is(rate: float) -> None:
    found = curve(OPEN.with_({"workload.requests_per_s": rate}), seeds=1)
    assert len(found.points) == 11
    assert found.points[0].rate_per_s == pytest.approx(0.1 * CAPACITY, rel=0.05)
    assert found.points[-1].rate_per_s == pytest.approx(1.25 * CAPACITY, rel=0.05)


def test_a_trace_is_brought_closer_together() -> None:
    trace = spillway.trace(
        arrival_s=[i / 4 for i in range(400)], input_tokens=[16] * 400, output_tokens=[1] * 400
    )
    found = curve(OPEN.replace(workload=trace), rates=[2, 8], seeds=1)
    assert [round(of.figures["mean_e2el_ms"].mean, 6) for of in found.points] == [100, 100]
    assert (found.knee_per_s, found.slo, found.holds_to_per_s) == (8, (), None)


def test_clients_that_send_part_of_the_time_are_named() -> None:
    short = OPEN.workload.clients[0].replace(name="short", requests_per_s=40.0, duration_s=1.0)  # type: ignore[union-attr]
    clients = [OPEN.workload.clients[0], short]  # type: ignore[union-attr]
    found = curve(OPEN.with_({"workload.clients": clients}), rates=[2, 4], seeds=1)
    assert "some send only part of the time" in found.notes[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rates": [0, 1]}, r"rates\[0\] = 0: must be > 0"),
        ({"rates": []}, "must hold at least one rate"),
        ({"slo": "p99_ttfx <= 1"}, "unknown figure"),
    ],
)
def test_what_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(spillway.ConfigError, match=message):
        curve(OPEN, **options)  # type: ignore[arg-type]


def test_users_that_wait_have_no_rate() -> None:
    users = workload.Client(arrivals=workload.ClosedLoop(users=4), num_requests=9)
    with pytest.raises(spillway.ConfigError, match=r"clients\[0\].arrivals.*sweep the number"):
        curve(OPEN.replace(workload=workload.Synthetic(clients=[users])))


def test_curve_in_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib").use("agg")
    spillway.dump(OPEN.with_({"workload.num_requests": 400}), "open.yaml")
    words = "curve open.yaml --rates 2,6,12 --seeds 2 --goodput e2el:900 --json"
    with pytest.warns(UserWarning, match="is a target of single requests"):
        expected = curve("open.yaml", rates=[2, 6, 12], seeds=2, slo="e2el:900")
    assert cli.main([*words.split(), "--out", "c.json", "--plot", "c.png", "--html", "c.html"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(expected.to_dict()))
    assert Curve.load("c.json") == expected
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    assert "The knee is at" in Path("c.html").read_text()
    assert cli.main(["curve", "open.yaml", "--rates", "2,x"]) == 2
    assert "must be numbers with commas between them" in capsys.readouterr().err


def test_the_figure_has_a_line_per_figure_and_the_knee() -> None:
    pytest.importorskip("matplotlib").use("agg")
    found = curve(OPEN, rates=[2, 6, 12], seeds=2)
    axes = found.plot("p99_e2el_ms")
    assert axes.get_ylabel() == "p99_e2el_ms"
    assert {"knee", "p99_e2el_ms"} <= set(axes.get_legend_handles_labels()[1])
    assert found.plot(ax=axes) is axes
    with pytest.raises(KeyError, match="must be one of request_throughput"):
        found.plot("goodput")


def test_another_file_is_no_curve() -> None:
    Path("other.json").write_text("{}")
    with pytest.raises(spillway.ConfigError, match=r"must be a file of Curve.save"):
        Curve.load("other.json")
