"""Failures of llm-d's flow control, each with its cure and with what does not cure it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.runs import MS, SECOND, flat, outcomes, run, ways

from spillway import Result, gateway, instance, signals, workload
from spillway.systems.llm_d import presets as llm_d

if TYPE_CHECKING:
    from collections.abc import Sequence

CLASSES = [workload.SloClass(name="high", priority=4), workload.SloClass(name="low", priority=3)]


def preset(**arguments: Any) -> dict[str, Any]:
    """Settings of a simulation: llm-d's gateway and its signals from the instances."""
    flow_control = llm_d.flow_control(**arguments)
    return {"gateway": flow_control.gateway, "signals": flow_control.signals}


def dispatches(result: Result) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Instants, in order."""
    at = [way.dispatched for way in ways(result) if way.dispatched is not None]
    return np.sort(np.array(at, dtype=np.int64))


# --- P17: between two scrapes ---------------------------------------------------------------------

BURST = [0.0] * 30 + [0.11] * 600
ENGINES = instance.InstanceGroup(count=2, max_num_seqs=8)


def waiting_at_engines(result: Result) -> int:
    """Most that wait in an engine, after the first 30, which no signal could have shown."""
    timeline = result.timeline
    after = timeline["time_s"] > 0.2
    return int(timeline["waiting"][after].max())


def test_a_fleet_that_looks_idle_for_50_ms_gets_50_requests() -> None:
    """600 requests wait at the gateway until the queues of both engines are short at a scrape."""
    settings = {"output_tokens": 40, "instances": ENGINES, "metrics": {"timeline_step_s": 0.005}}
    herd = run(BURST, **preset(), **settings)
    assert set(outcomes(herd)) == {"completed"}
    at = dispatches(herd)
    per_refresh = Counter((at[30:] // (50 * MS)).tolist())
    # All or nothing: a gate that has opened stays so until the next scrape, for an attempt a
    # millisecond, whatever has gone since.
    sizes = list(per_refresh.values())
    assert max(sizes) == 50
    assert sum(size == 50 for size in sizes) >= len(sizes) - 2
    # Two queues of 5 are what the detector calls saturated.
    assert waiting_at_engines(herd) > 3 * 2 * 5

    counted = preset(detector="concurrency")
    counted["gateway"] = counted["gateway"].with_({"limit[0].max_concurrency": 8 + 5})
    cured = run(BURST, **counted, **settings)
    assert set(outcomes(cured)) == {"completed"}
    # The first 30 were 4 too many: they wait at the gateway.
    assert waiting_at_engines(cured) <= 2 * 5
    assert max(Counter((dispatches(cured)[26:] // (50 * MS)).tolist()).values()) < 45


def test_overshoot_is_what_goes_between_two_scrapes() -> None:
    """Half the period, half the herd."""

    def largest(period_s: float) -> int:
        settings = preset()
        settings["signals"] = settings["signals"].replace(period_s=period_s)
        result = run(BURST, output_tokens=40, instances=ENGINES, **settings)
        herds = dispatches(result)[30:] // round(period_s * SECOND)
        return max(Counter(herds.tolist()).values())

    assert [largest(span_s) for span_s in (0.025, 0.05, 0.1)] == [25, 50, 100]


# --- P18: a blocked band blocks those below -------------------------------------------------------


def served(result: Result, slo_class: str, until_s: float) -> int:
    classes = result.requests["slo_class"].tolist()
    return sum(
        way.dispatched is not None and way.dispatched < until_s * SECOND
        for way, name in zip(ways(result), classes, strict=True)
        if name == slo_class
    )


def contest(settings: dict[str, Any], high_per_s: float, horizon_s: float = 30) -> Result:
    """Ten places of a second each; a low request every tenth of a second, and high ones."""
    n = round(high_per_s * horizon_s)
    arrivals = [*np.arange(n) / high_per_s, *np.arange(round(10 * horizon_s)) / 10 + 0.0503]
    classes = ["high"] * n + ["low"] * (len(arrivals) - n)
    rows = np.argsort(arrivals, kind="stable")
    return run(
        [arrivals[row] for row in rows],
        slo_class=[classes[row] for row in rows],
        tenant=[classes[row] for row in rows],
        slo_classes=CLASSES,
        instances=flat(1),
        horizon_s=horizon_s,
        **settings,
    )


def with_ten_places(**arguments: Any) -> dict[str, Any]:
    settings = preset(detector="concurrency", priorities=(4, 3), **arguments)
    settings["gateway"] = settings["gateway"].with_({"limit[0].max_concurrency": 10})
    return settings


def test_a_high_band_that_always_waits_starves_the_low() -> None:
    """12 high requests/s at a fleet for 10: those below never go. Holding back makes it no better,
    it keeps the low band out sooner; what helps is one band for both, served in turns."""
    strict = contest(with_ten_places(), 12)
    # Before the high band had a queue.
    assert served(strict, "low", 30) == served(strict, "low", 5) <= 10
    held = contest(with_ten_places(usage_limit=gateway.PriorityHoldback(min_ceiling=0.5)), 12)
    assert served(held, "low", 30) <= served(strict, "low", 30)

    one_band = with_ten_places(fairness=gateway.TenantRoundRobin())
    bands = [one_band["gateway"].bands[1]]
    cured = contest({**one_band, "gateway": one_band["gateway"].replace(bands=bands)}, 12)
    # Half of 10 per s.
    assert served(cured, "low", 30) == pytest.approx(150, abs=10)
    assert served(cured, "high", 30) == pytest.approx(150, abs=10)


def high_waits_s(result: Result) -> float:
    requests = result.requests
    waits = requests["queue_s"][requests["slo_class"] == "high"]
    return float(np.nanpercentile(waits, 99))


def test_holdback_keeps_room_for_the_high_band() -> None:
    """The other way round: low requests fill the fleet, and high ones that come now and then wait
    for one of them to end. With half of the fleet held back they never do."""
    strict = with_ten_places()
    flood = contest_of_low(strict)
    assert high_waits_s(flood) > 0.09
    # The minimum is that of band 0, which always exists; the low band is halfway, at 0.5.
    held = contest_of_low(with_ten_places(usage_limit=gateway.PriorityHoldback(min_ceiling=0)))
    assert high_waits_s(held) == 0
    # The ceiling costs throughput. It limits all that is in flight, so the low band has its half
    # less what the high ones take: 5 places in one second, 1 in the next.
    assert served(held, "low", 30) == pytest.approx(15 * (5 + 1), abs=5)
    # All that 10 places serve in 30 s, less 60 high ones.
    assert served(flood, "low", 30) == pytest.approx(300 - 60, abs=5)


def contest_of_low(settings: dict[str, Any]) -> Result:
    """20 low requests/s, and 4 high ones together every other second."""
    arrivals: Sequence[float] = [*np.arange(600) / 20]
    high = np.repeat(np.arange(15) * 2 + 1.013, 4)
    together = np.concatenate([arrivals, high])
    rows = np.argsort(together, kind="stable")
    return run(
        together[rows].tolist(),
        slo_class=["low" if row < 600 else "high" for row in rows],
        slo_classes=CLASSES,
        instances=flat(1),
        horizon_s=30,
        **settings,
    )


# --- P19: an outage of the scrapes ----------------------------------------------------------------


def outage(version: str, **changes: Any) -> Result:
    """A request every 0.1 s to an idle fleet, whose scrapes fail between 0.05 and 100.05 s."""
    settings = preset(version=version)
    settings["signals"] = settings["signals"].replace(period_s=100, phase_s=0.05, **changes)
    arrivals = [i / 10 for i in range(1, 1100)]
    return run(arrivals, instances=flat(0.05), horizon_s=150, **settings)


def test_outage_of_the_scrapes_stops_everything() -> None:
    """An instance without a scrape for 0.2 s counts as full, though all instances are idle."""
    waits = outage("2026-05")
    stop, resume = round(0.25 * SECOND), round(100.05 * SECOND)
    at = dispatches(waits)
    assert not ((at >= stop) & (at < resume)).any()
    assert (at < stop).sum() == 2
    # The next scrape counts for 0.2 s only, in which one request is dispatched per millisecond.
    again = (at >= resume) & (at < resume + 200 * MS)
    assert again.sum() == pytest.approx(200, abs=3)
    assert waits.ledger["queued"] == len(outcomes(waits)) - len(at)

    # With August's time to live they are lost after a minute, as many as came before it was over.
    lost = outage("2026-08")
    assert lost.ledger["expired"] > 400
    assert lost.ledger["completed"] < 0.65 * len(outcomes(lost))


def test_the_last_value_held_bridges_the_outage() -> None:
    for version in ("2026-05", "2026-08"):
        cured = outage(version, stale_after_s=None, when_stale="hold")
        assert set(outcomes(cured)) == {"completed"}
        queued = cured.requests["queue_s"]
        assert float(queued.max()) == 0


def test_no_request_is_dispatched_before_the_first_scrape() -> None:
    settings = preset()
    settings["signals"] = signals.Scraped(period_s=1, phase_s=0.5, stale_after_s=2)
    result = run([0.0, 0.1, 0.2], instances=flat(0.05).replace(count=4), **settings)
    assert dispatches(result).tolist() == [500 * MS, 501 * MS, 502 * MS]
