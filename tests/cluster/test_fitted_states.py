"""How often a run is outside the batch states that its step times were fitted to."""

from __future__ import annotations

from typing import Any

import pytest
from support.measured_runs import server

from spillway import ConfigError, Simulation, fingerprint, instance, simulate, workload

SQUARE = [
    {"running_requests": x, "kv_tokens": y}
    for x, y in ((0, 0), (6.5, 0), (6.5, 3000), (0, 3000))
]  # fmt: skip
FAR = [{"running_requests": x, "kv_tokens": y} for x, y in ((0, 0), (1e6, 0), (1e6, 1e9), (0, 1e9))]


def run(
    *groups: instance.InstanceGroup, rate_per_s: float = 10, requests: int = 100, **settings: Any
) -> Simulation:
    synthetic = workload.Synthetic(requests_per_s=rate_per_s, num_requests=requests)
    return Simulation(workload=synthetic, instances=list(groups), **settings)


def test_states_are_counted_at_the_instants_of_a_timeline() -> None:
    """Every 10 ms, as long as a run has fewer than 2049 samples."""
    result = simulate(run(server(fitted_states=SQUARE), metrics={"timeline_step_s": 0.01}))
    timeline = result.timeline
    assert len(timeline["time_s"]) < 2049
    running = timeline["running"]
    tokens = timeline["kv_utilization"] * 20_000 * 16
    inside = (running <= 6.5) & (tokens <= 3000)
    busy = running > 0
    (states,) = result.fitted_states
    assert states == {
        "group": 0,
        "states": busy.sum(),
        "outside": (busy & ~inside).sum(),
        "most_running_requests": running.max(),
        "most_kv_tokens": pytest.approx(tokens.max()),
    }
    assert 0 < states["outside"] < states["states"]


def test_a_long_run_has_as_many_samples() -> None:
    """The interval doubles; the share stays that of the time."""
    group = server(fitted_states=SQUARE)
    result = simulate(run(group, requests=3000, metrics={"timeline_step_s": 0.01}))
    (states,) = result.fitted_states
    assert 900 < states["states"] <= 2049
    timeline = result.timeline
    inside = (timeline["running"] <= 6.5) & (timeline["kv_utilization"] * 320_000 <= 3000)
    busy = timeline["running"] > 0
    share = (busy & ~inside).sum() / busy.sum()
    assert states["outside"] / states["states"] == pytest.approx(share, abs=0.03)
    assert states["most_running_requests"] <= timeline["running"].max()


def test_groups_without_states_and_their_runs_are_untouched() -> None:
    plain = run(server(count=2))
    watched = run(server(count=2, fitted_states=SQUARE))
    mixed = run(server(), server(fitted_states=FAR))
    assert simulate(plain).fitted_states == []
    assert simulate(plain).digest == simulate(watched).digest
    assert fingerprint(plain) == fingerprint(watched)
    assert simulate(plain).events < simulate(watched).events
    (second,) = simulate(mixed).fitted_states
    assert second["group"] == 1
    assert second["outside"] == 0
    assert simulate(watched, reference=True).fitted_states == simulate(watched).fitted_states
    streamed = watched.with_({"metrics.streaming": True})
    assert simulate(streamed).fitted_states == simulate(watched).fitted_states


def test_states_are_those_of_a_rank() -> None:
    single = simulate(run(server(fitted_states=SQUARE), requests=400))
    two = simulate(
        run(server(fitted_states=SQUARE, data_parallel_size=2), rate_per_s=20, requests=800)
    )
    (of_one,), (of_two,) = single.fitted_states, two.fitted_states
    assert of_two["most_running_requests"] % 0.5 == 0
    shares = [states["outside"] / states["states"] for states in (of_one, of_two)]
    assert shares[1] == pytest.approx(shares[0], abs=0.15)


def test_the_note_appears_above_a_share() -> None:
    assert not any("outside" in note for note in simulate(run(server(fitted_states=FAR))).notes())
    (note,) = [
        note for note in simulate(run(server(fitted_states=SQUARE))).notes() if "outside" in note
    ]
    assert "at most 6 requests and 3,000 tokens in KV memory, here" in note


def test_the_corners_are_those_of_a_convex_polygon() -> None:
    for corners in (SQUARE[:2], SQUARE[::-1], [SQUARE[0], SQUARE[2], SQUARE[1], SQUARE[3]]):
        with pytest.raises(ConfigError, match=r"fitted_states = \d corners: must be empty, or"):
            server(fitted_states=corners)
    assert len(server(fitted_states=SQUARE).fitted_states) == 4


def test_other_plants_have_no_batches() -> None:
    group = server().replace(plant=instance.ProcessorSharing(), fitted_states=SQUARE)
    assert simulate(run(group)).fitted_states == []
