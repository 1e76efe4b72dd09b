"""Changes of traffic in words: what they say, and what becomes of the requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import spillway
from spillway import ConfigError, Simulation, fleet, instance, traffic, workload
from spillway.cli import main
from spillway.traffic.changes import parsed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TENANTS, CLASSES = ["A", "B", "team a"], ["standard", "batch"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B: rate x5 from 60s to 120s", ("B", "", 5, 1, 1, 60, 120)),
        ("tenant B: rate x5 from 1min to 2min", ("B", "", 5, 1, 1, 60, 120)),
        ("B: rate x5 from 1min for 90s", ("B", "", 5, 1, 1, 60, 150)),
        ("B: rate x5 for 60s", ("B", "", 5, 1, 1, 0, 60)),
        ("all: lengths x1.5", ("", "", 1, 1.5, 1.5, 0, None)),
        ("class batch: outputs x2 from 500ms", ("", "batch", 1, 1, 2, 0.5, None)),
        ("tenant A class batch: prompts x0.5 to 1h", ("A", "batch", 1, 0.5, 1, 0, 3600)),
        ('"team a": rate x 0', ("team a", "", 0, 1, 1, 0, None)),
        ('tenant "team a": to 90s rate x1e1 prompts x2', ("team a", "", 10, 2, 1, 0, 90)),
    ],
)
def test_a_change_is_read(text: str, expected: tuple[Any, ...]) -> None:
    found = parsed(text, TENANTS, CLASSES)
    fields = ("tenant", "slo_class", "rate", "prompts", "outputs", "from_s", "to_s")
    assert tuple(getattr(found, name) for name in fields) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("C: rate x5", "tenant C: must be one of the traffic's: A, B, team a"),
        ("batch: rate x5", "tenant batch: .* A, B, team a; class batch is one"),
        ("class gold: rate x5", "class gold: must be one of the traffic's: standard, batch"),
        ("rate x5", "must be WHOSE: rate xF.*e.g. B: rate x5 from 60s to 120s"),
        ("B: speed x5", "speed: must be one of rate, prompts, outputs, lengths, from, to, for"),
        ("B: rate x5 to 9s for 5s", "must have to or for, not both"),
        ("B: rate 5", "rate 5: must be a factor such as x5, >= 0, <= 10000"),
        ("B: rate x20000", "rate x20000: must be a factor"),
        ("B: prompts x0", "prompts x0: must be a factor such as x5, >= 0.001, <= 1000"),
        ("B: rate x5 from 60", "from 60: must be a time with its unit, such as 90s"),
        ("B: rate x5 from 2min to 60s", "to 60 s: must be > 120 s"),
        ("B: from 60s", "must change something"),
        ("B A: rate x5", "B A: must be all, the name of a tenant"),
        ("tenant A tenant B: rate x5", "must be all, the name of a tenant"),
        (": rate x5", "must be all, the name of a tenant"),
        ("B: rate", "rate : must be a factor"),
    ],
)
def test_a_change_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^traffic .*{message}"):
        parsed(text, TENANTS, CLASSES)


# --- recorded traffic -----------------------------------------------------------------------------


def recorded(count: int = 3000) -> workload.Trace:
    """Requests of tenants A and B in turn, ten per second."""
    return spillway.trace(
        arrival_s=np.arange(count) / 10,
        input_tokens=np.full(count, 100),
        output_tokens=np.full(count, 10),
        tenant=["AB"[at % 2] for at in range(count)],
    )


def in_span(trace: workload.Trace, tenant: str, begin_s: float, end_s: float) -> int:
    columns = traffic.applied(trace)._columns()
    at_s = columns["arrival_ns"] / 1e9
    is_own = columns["tenant"] == columns["tenants"].index(tenant)
    return int((is_own & (at_s >= begin_s) & (at_s < end_s)).sum())


def test_a_burst_of_a_tenant() -> None:
    burst = traffic.changed(recorded(), "B: rate x5 from 60s to 120s")
    (part,) = burst.transforms
    assert part == workload.ScalePart(tenant="B", start_s=60, duration_s=60, rate_factor=5)
    assert in_span(burst, "B", 60, 120) == 5 * in_span(recorded(), "B", 60, 120)
    assert in_span(burst, "B", 120, 300) == in_span(recorded(), "B", 120, 300)
    assert in_span(burst, "A", 0, 300) == in_span(recorded(), "A", 0, 300)


def test_changes_follow_each_other() -> None:
    simulation = Simulation(workload=recorded())
    both = traffic.changed(simulation, "B: rate x3 from 60s to 120s", "all: outputs x2 from 90s")
    assert [part.rate_factor for part in both.workload.transforms] == [3, 1]
    columns = traffic.applied(both.workload)._columns()
    assert set(columns["output_tokens"][columns["arrival_ns"] >= 90e9]) == {20}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("B: rate x5 from 10min", "tenant B, from 600 s: the trace has none there; it lasts until"),
        ("C: rate x5", "must be one of the traffic's: A, B$"),
    ],
)
def test_a_change_of_no_request_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        traffic.changed(recorded(), text)


def test_a_client_at_its_limit_keeps_its_arrivals() -> None:
    limited = recorded().replace(max_in_flight=4)
    with pytest.raises(ConfigError, match="max_in_flight"):
        traffic.changed(limited, "B: rate x5")
    assert traffic.changed(limited, "B: prompts x5").transforms


# --- generated traffic ----------------------------------------------------------------------------


def generated(**settings: Any) -> workload.Synthetic:
    """Clients A and B, 20 requests per second each for 300 s."""
    clients = [workload.Client(name=name, tenant=name) for name in "AB"]
    return workload.Synthetic(requests_per_s=40, duration_s=300, clients=clients).replace(
        **settings
    )


def arrivals(synthetic: workload.Synthetic, tenant: str) -> Any:
    columns = traffic.generated(synthetic, 3)._columns()
    return columns["arrival_ns"][columns["tenant"] == columns["tenants"].index(tenant)] / 1e9


def test_a_burst_of_a_client() -> None:
    burst = traffic.changed(generated(), "B: rate x5 from 60s to 120s")
    np.testing.assert_array_equal(arrivals(burst, "A"), arrivals(generated(), "A"))
    at_s = arrivals(burst, "B")
    spans = np.histogram(at_s, [0, 60, 120, 300])[0]
    expected = np.array([60 * 20, 60 * 100, 180 * 20])
    assert (abs(spans - expected) < 5 * np.sqrt(expected)).all()


@pytest.mark.parametrize("factor", ["x3", "x0.25"])
def test_a_client_at_another_rate(factor: str) -> None:
    other = traffic.changed(generated(), f"B: rate {factor}")
    np.testing.assert_array_equal(arrivals(other, "A"), arrivals(generated(), "A"))
    expected = float(factor[1:]) * 20 * 300
    assert abs(len(arrivals(other, "B")) - expected) < 5 * np.sqrt(expected)
    alone = traffic.changed(generated(), "A: rate x0")
    assert [client.name for client in alone.clients] == ["B"]
    with pytest.raises(ConfigError, match="would leave no traffic"):
        traffic.changed(alone, "B: rate x0")


def profile(points: Sequence[tuple[float, float]]) -> list[workload.RatePoint]:
    return [workload.RatePoint(at_s=at_s, factor=factor) for at_s, factor in points]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([], [(60, 1), (60, 5), (120, 5), (120, 1)]),
        (
            [(0, 0), (100, 1)],
            [(0, 0), (60, 0.6), (60, 3), (100, 5), (120, 5), (120, 1)],
        ),
        (
            [(0, 2), (60, 2), (60, 4), (200, 4)],
            [(0, 2), (60, 2), (60, 20), (120, 20), (120, 4), (200, 4)],
        ),
    ],
)
def test_a_rate_over_time_is_multiplied_within_the_span(
    points: Sequence[tuple[float, float]], expected: Sequence[tuple[float, float]]
) -> None:
    client = workload.Client(tenant="B", rate_profile=profile(points))
    changed = traffic.changed(generated(clients=[client]), "B: rate x5 from 60s to 120s")
    found = [(point.at_s, point.factor) for point in changed.clients[0].rate_profile]
    known = [pair for pair in found if pair != (0, 1)]
    np.testing.assert_allclose(known, expected)


def test_a_rate_that_repeats_is_written_out() -> None:
    client = workload.Client(
        tenant="B", rate_profile=profile([(10, 1), (40, 3)]), rate_period_s=60.0
    )
    daily = generated(clients=[client])
    burst = traffic.changed(daily, "B: rate x4 from 100s to 200s")
    was, now = (np.histogram(arrivals(each, "B"), [0, 100, 200, 300])[0] for each in (daily, burst))
    np.testing.assert_allclose(now, was * [1, 4, 1], rtol=0.08)
    with pytest.raises(ConfigError, match="repeats, so that the traffic must have a duration_s"):
        traffic.changed(
            daily.replace(duration_s=None, num_requests=100), "B: rate x4 from 100s to 200s"
        )


def test_lengths_of_a_client() -> None:
    longer = traffic.changed(generated(), "B: prompts x2 outputs x3")
    assert longer.clients[1].input_tokens == workload.Fixed(tokens=1024)
    assert longer.clients[1].output_tokens == workload.Fixed(tokens=384)
    assert longer.clients[0] == generated().clients[0]


@pytest.mark.parametrize(
    "lengths",
    [
        workload.Uniform(min_tokens=10, max_tokens=300),
        workload.Gaussian(mean_tokens=200, std_dev_tokens=40),
        workload.Exponential(mean_tokens=200),
        workload.Lognormal(mu=5, sigma=0.5),
        workload.Pareto(alpha=3, min_tokens=100, max_tokens=5000),
        workload.Empirical(values=[10, 200, 700], weights=[1, 2, 1]),
    ],
    ids=lambda lengths: lengths.kind,
)
def test_every_distribution_is_scaled(lengths: Any) -> None:
    one = generated(clients=[workload.Client(tenant="B", output_tokens=lengths)])
    twice = traffic.changed(one, "B: outputs x2")
    was, now = (traffic.generated(each, 1)._columns()["output_tokens"] for each in (one, twice))
    np.testing.assert_allclose(now, 2 * was.astype(float), rtol=0.02, atol=1)


def test_lengths_change_for_a_time() -> None:
    longer = traffic.changed(generated(), "B: rate x2 prompts x2 from 60s to 120s")
    columns = traffic.generated(longer, 3)._columns()
    is_own = columns["tenant"] == columns["tenants"].index("B")
    at_s = columns["arrival_ns"][is_own] / 1e9
    in_span = (at_s >= 60) & (at_s < 120)
    np.testing.assert_array_equal(columns["input_tokens"][is_own], np.where(in_span, 1024, 512))
    assert abs(in_span.sum() - 2400) < 5 * np.sqrt(2400)
    np.testing.assert_array_equal(arrivals(longer, "A"), arrivals(generated(), "A"))


def test_what_a_generator_cannot_do_is_refused() -> None:
    users = workload.Client(tenant="B", arrivals=workload.ClosedLoop())
    with pytest.raises(ConfigError, match="the rate of users follows what is served"):
        traffic.changed(generated(clients=[users]), "B: rate x5")
    assert traffic.changed(generated(clients=[users]), "B: prompts x2")
    with pytest.raises(ConfigError, match="tenant B, from 600 s: the traffic has none there"):
        traffic.changed(generated(), "B: rate x5 from 10min")
    counted = workload.Client(tenant="B", num_requests=5)
    with pytest.raises(ConfigError, match="num_requests = 5: must be unset"):
        traffic.changed(generated(clients=[counted]), "B: prompts x2 from 60s")


def test_a_number_of_requests_is_noted() -> None:
    counted = generated(duration_s=None, num_requests=100)
    with pytest.warns(UserWarning, match="ends after a number of requests"):
        traffic.changed(counted, "B: rate x5")


# --- files and the command line -------------------------------------------------------------------


def test_a_file_states_changes(tmp_path: Path) -> None:
    path = tmp_path / "wave.yaml"
    path.write_text(
        "workload: {kind: synthetic, duration_s: 300}\n"
        "traffic: 'default: rate x5 from 60s to 120s'\n"
    )
    (client,) = spillway.load(path).workload.clients
    assert [point.factor for point in client.rate_profile] == [1, 1, 5, 5, 1]
    traffic.write(recorded(), tmp_path / "trace.csv")
    path.write_text(
        "workload: {kind: trace, file: trace.csv}\n"
        "traffic:\n  - 'B: rate x5 from 60s to 120s'\n  - 'all: lengths x2'\n"
    )
    loaded = spillway.load(path)
    assert len(loaded.workload.transforms) == 2
    saved = tmp_path / "saved.yaml"
    spillway.dump(loaded, saved)
    assert spillway.fingerprint(spillway.load(saved)) == spillway.fingerprint(loaded)
    path.write_text("traffic: {B: 5}\n")
    with pytest.raises(ConfigError, match=r"traffic = .*: must be a text such as"):
        spillway.load(path)


def test_the_command_line_changes_traffic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, log = tmp_path / "config.yaml", tmp_path / "trace.csv"
    config.write_text("schema: 1\n")
    traffic.write(recorded(300), log)
    arguments = ["run", str(config), "--trace", str(log), "--traffic"]
    assert main([*arguments, "B: rate x5 from 10s to 20s"]) == 0
    assert "500 requests" in capsys.readouterr().out
    assert main([*arguments, "C: rate x5"]) == 2
    assert "tenant C: must be one of the traffic's: A, B" in capsys.readouterr().err
    config.write_text("schema: 1\ntraffic: 'B: rate x2 from 10s to 20s'\n")
    assert main(arguments[:-1]) == 0
    assert "350 requests" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "at_s", "fault"),
    [
        ("instance 3 crashes at 300s for 200s", 300, fleet.Crash(instance=3, for_s=200)),
        ("instance 3 crashes at 5 min for 200 s", 300, fleet.Crash(instance=3, for_s=200)),
        ("instance 0 hangs for 1.5min", 0, fleet.Hang(instance=0, for_s=90)),
        ("instance 1 slows x2.5 at 500ms", 0.5, fleet.Slowdown(instance=1, factor=2.5)),
        (" instance 2 crashes", 0, fleet.Crash(instance=2)),
        ("instance 2 loses its KV at 5s", 5, fleet.KvLoss(instance=2)),
    ],
)
def test_an_instance_fails(text: str, at_s: float, fault: Any) -> None:
    simulation = Simulation(instances=instance.InstanceGroup(count=4))
    (change,) = traffic.changed(simulation, text).changes
    assert change.at_s == at_s
    assert change.faults == (fault,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("instance 4 crashes", "must be one of the 4 instances"),
        ("instance one crashes", "must be the number of an instance"),
        ("instance 1 explodes", "must be instance N crashes"),
        ("instance 1 crashes at noon", "must be a time with its unit"),
        ("instance 1 crashes at 1s at 2s", "must be at TIME, for TIME, or both"),
        ("instance 1 slows", "must be slows xF"),
        ("instance 1 loses its KV for 5s", "must be at TIME, or nothing"),
    ],
)
def test_a_failure_is_refused(text: str, message: str) -> None:
    simulation = Simulation(instances=instance.InstanceGroup(count=4))
    with pytest.raises(ConfigError, match=message):
        traffic.changed(simulation, text)
    with pytest.raises(ConfigError, match="requests alone have no instances"):
        traffic.changed(workload.Synthetic(), text)
