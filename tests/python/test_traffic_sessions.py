"""Users fitted to the sessions and shared prefixes of a trace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import spillway
from spillway import ConfigError, Simulation, UsageError, cli, traffic
from spillway.traffic.sessions import structure_of

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 16
THINK_S = 20.0
EXPONENT = 1.2
PREFIXES = [320, 160, 640, 480]
TURNS = (1, 3)  # equally often


def sent(users: int = 50, length_s: float = 600.0, seed: int = 1) -> list[dict[str, Any]]:
    """Requests of users in closed loop, in order of arrival: times, lengths and blocks."""
    rng = np.random.default_rng(seed)
    popularity = np.arange(1, len(PREFIXES) + 1) ** -EXPONENT
    requests: list[dict[str, Any]] = []
    for user in range(users):
        at_s, session = float(rng.exponential(THINK_S)), 0
        while at_s < length_s:
            own = (user * 1000 + session + 1) * 10**6
            group = int(rng.choice(len(PREFIXES), p=popularity / popularity.sum()))
            tokens = PREFIXES[group]
            shared = tokens // BLOCK
            for turn in range(int(rng.choice(TURNS))):
                tokens += int(rng.integers(50, 150))
                whole = tokens // BLOCK
                ids = [group * 1000 + block for block in range(shared)]
                ids += [own + block for block in range(shared, whole)]
                if tokens % BLOCK:
                    ids.append(own + 500_000 + turn)
                answer = int(rng.integers(20, 60))
                if at_s < length_s:
                    requests.append({"at_s": at_s, "input": tokens, "output": answer, "ids": ids})
                tokens += answer
                at_s += float(rng.exponential(THINK_S))
            session += 1
    return sorted(requests, key=lambda request: request["at_s"])


def trace_of(requests: list[dict[str, Any]]) -> Any:
    def column(name: str) -> list[Any]:
        return [request[name] for request in requests]

    lengths = {"input_tokens": column("input"), "output_tokens": column("output")}
    prompts = {"hash_ids": column("ids"), "block_size_tokens": BLOCK}
    return spillway.trace(arrival_s=column("at_s"), **lengths, **prompts)


@pytest.fixture(scope="module")
def fitted() -> traffic.SessionFit:
    return traffic.fit_sessions(trace_of(sent()))


@pytest.mark.slow
def test_known_parameters_are_recovered(fitted: traffic.SessionFit) -> None:
    assert fitted.requests / fitted.sessions == pytest.approx(2, abs=0.15)
    assert fitted.think_s == pytest.approx(THINK_S, rel=0.1)
    assert [group.tokens for group in fitted.groups] == PREFIXES
    assert fitted.zipf_exponent == pytest.approx(EXPONENT, abs=0.2)
    clients = fitted.workload.clients
    assert {client.prefix_tokens for client in clients} == set(PREFIXES)
    assert {1, 3} <= {client.arrivals.turns for client in clients} <= {1, 2, 3}
    assert sum(client.arrivals.users for client in clients) == pytest.approx(50, rel=0.15)
    plain = {"arrivals": "poisson", "num_requests": 400, "prefix_group": "", "prefix_tokens": 0}
    for client in clients:
        alone = client.replace(**plain)
        drawn = traffic.generated(spillway.workload.Synthetic(clients=[alone]))
        added = drawn._columns()["input_tokens"].mean()
        assert added == pytest.approx(99.5, rel=0.15)  # of 50 to 149


@pytest.mark.slow
def test_structure_and_reuse_are_reproduced(fitted: traffic.SessionFit) -> None:
    # The last sessions are cut off, so the shares of the turns differ a little.
    for name, most in (("turns", 0.03), ("reused", 0.01)):
        check = fitted.check(name)
        assert check.middle == pytest.approx(check.trace, abs=most)
    check = fitted.check("input_by_turn")
    assert check.middle == pytest.approx(check.trace, rel=0.03)
    assert not fitted.check("think_s").is_bad
    assert fitted.generated_reused_share == pytest.approx(fitted.reused_share, abs=0.02)
    assert fitted.reused_share > 0.5
    text = fitted.text()
    assert f"{fitted.sessions:,} sessions" in text
    assert "reproduced: think times" in text
    with pytest.raises(KeyError, match="no statistic 'gaps'"):
        fitted.check("gaps")


@pytest.mark.slow
def test_the_users_send_the_rate_of_the_trace(fitted: traffic.SessionFit) -> None:
    result = spillway.simulate(Simulation(workload=fitted.workload, instances={"count": 4}))
    served = result.requests["arrival_s"]
    steady = (served > 50) & (served < 590)
    times = np.array([request["at_s"] for request in sent()])
    expected = ((times > 50) & (times < 590)).sum()
    assert steady.sum() == pytest.approx(expected, rel=0.15)


@pytest.mark.slow
def test_the_figure_shows_every_check(fitted: traffic.SessionFit) -> None:
    pytest.importorskip("matplotlib")
    panels = fitted.plot().axes
    assert len(panels) == len(fitted.checks)
    for panel, check in zip(panels, fitted.checks, strict=True):
        drawn = {line.get_label(): line for line in panel.get_lines()}["trace"]
        shown = drawn.get_xdata() if check.name == "think_s" else drawn.get_ydata()
        assert list(shown) == pytest.approx(list(check.trace))
        verdict = "differs" if check.is_bad else "reproduced"
        assert panel.get_title(loc="left").endswith(verdict)


@pytest.mark.slow
def test_a_burden_that_users_cannot_have_is_named() -> None:
    requests = sent(seed=2)
    for request in requests:  # answers leave no trace in the next prompt
        request["output"] += 400
    fitted = traffic.fit_sessions(trace_of(requests))
    assert fitted.check("input_by_turn").is_bad
    assert any("shorter than the conversation before them" in note for note in fitted.notes)
    early = traffic.fit_sessions(trace_of(requests), ttft_s=100)
    assert any("come before the assumed answer" in note for note in early.notes)


def test_a_prompt_is_continued_once() -> None:
    def prompt(at_s: float, ids: list[int]) -> dict[str, Any]:
        return {"at_s": at_s, "input": BLOCK * len(ids), "output": 1, "ids": ids}

    requests = [prompt(0, [1, 2]), prompt(1, [1, 2, 3]), prompt(2, [1, 2, 4]), prompt(3, [5])]
    structure = structure_of(trace_of(requests)._columns())
    assert structure.previous.tolist() == [-1, 0, -1, -1]
    assert structure.turn.tolist() == [0, 1, 0, 0]
    assert structure.shared_tokens.tolist() == [0, 32, 32, 0]
    assert structure.group.tolist() == [-1] * 4


@pytest.mark.slow
def test_prefix_groups_without_blocks_are_found() -> None:
    rng = np.random.default_rng(3)
    groups = [["a", "b", ""][code] for code in rng.choice(3, 600, p=[0.6, 0.3, 0.1])]
    fitted = traffic.fit_sessions(
        spillway.trace(
            arrival_s=np.sort(rng.uniform(0, 100, 600)),
            input_tokens=rng.integers(200, 300, 600),
            output_tokens=rng.integers(1, 50, 600),
            prefix_group=groups,
            prefix_tokens=[{"a": 128, "b": 64, "": 0}[name] for name in groups],
        )
    )
    assert [group.tokens for group in fitted.groups] == [128, 64]
    assert [group.sessions for group in fitted.groups] == [groups.count("a"), groups.count("b")]
    assert "every session has one turn" in fitted.text()
    assert not fitted.check("reused").is_bad


def test_what_cannot_be_fitted_is_refused() -> None:
    lengths = {"input_tokens": [9] * 200, "output_tokens": [1] * 200}
    alone = spillway.trace(arrival_s=np.arange(200.0), **lengths)
    with pytest.raises(UsageError, match="share nothing that it states: no hash ids"):
        traffic.fit_sessions(alone)
    for changes, message in (
        ({"ttft_s": -1}, "ttft_s = -1: must be finite and >= 0"),
        ({"tpot_s": float("nan")}, "tpot_s = nan: must be finite"),
        ({"resamples": 9}, "resamples = 9: must be >= 199"),
        ({"seed": -1}, "seed = -1: must be >= 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            traffic.fit_sessions(alone, **changes)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*turns of its sessions wait")
def test_delays_of_aiperf_sessions_are_think_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(4)
    lines = [
        {"session_id": f"s{k}", "input_length": int(rng.integers(50, 150)), "output_length": 20}
        | ({"timestamp": 500.0 * k} if turn == 0 else {"delay": 3000})
        for k in range(100)
        for turn in range(4)
    ]
    path, out = tmp_path / "sessions.jsonl", tmp_path / "workload.yaml"
    path.write_text("\n".join(map(json.dumps, lines)))
    command = ["traffic", "fit", str(path), "--sessions", "-o", str(out)]
    assert cli.main([*command, "--plot", str(tmp_path / "fit.png")]) == 0
    assert "100 sessions, 4.00 turns on average\nthink time: 3 s" in capsys.readouterr().out
    (client,) = spillway.load(out).workload.clients
    assert (client.arrivals.turns, client.arrivals.think_time) == (4, "constant")
    assert client.arrivals.think_time_s == pytest.approx(3, rel=0.1)
    assert (tmp_path / "fit.png").stat().st_size > 0
    assert cli.main([*command, "--arrivals", "poisson"]) == 2
    assert "--arrivals = poisson: not together with --sessions" in capsys.readouterr().err
