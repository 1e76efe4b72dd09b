"""Transforms of traces: what each does to the requests; runs of a seed see the same."""

from __future__ import annotations

import itertools
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import trials
from support.specimens import examples

import spillway
from spillway import ConfigError, Simulation, run_many, simulate, traffic, workload
from spillway.systems.mooncake.write import write_mooncake
from spillway.traffic import applied, transformed

if TYPE_CHECKING:
    from pathlib import Path

TENANTS = ("a", "b", "c")


def recorded(n: int = 400, seed: int = 0, **columns: Any) -> workload.Trace:
    """Requests in bursts, in order of arrival, each with an output length of its own."""
    rng = np.random.default_rng(seed)
    generated: dict[str, Any] = {
        "arrival_s": 5 + np.cumsum(rng.gamma(0.3, 1, n)),
        "input_tokens": rng.integers(1, 900, n),
        "output_tokens": np.arange(n),
        "tenant": [TENANTS[index] for index in rng.integers(0, 3, n)],
        "slo_class": ["critical" if draw else "batch" for draw in rng.integers(0, 2, n)],
        **columns,
    }
    return spillway.trace(**generated)


def chats(n_chats: int = 40, turns: int = 4) -> workload.Trace:
    """Conversations: a system prompt that all share, then blocks of each conversation alone."""
    rng = np.random.default_rng(1)
    rows = []
    for chat in range(n_chats):
        start = rng.uniform(0, 100)
        for turn in range(turns):
            blocks = [1000 * (chat + 1) + block for block in range(turn + 1)]
            rows.append((start + 3 * turn, [7, *blocks]))
    rows.sort(key=lambda row: row[0])
    return spillway.trace(
        arrival_s=[at for at, _ in rows],
        input_tokens=[16 * len(ids) for _, ids in rows],
        output_tokens=np.arange(len(rows)),
        hash_ids=[ids for _, ids in rows],
        block_size_tokens=16,
    ).replace(session_segments=2)


def columns(trace: workload.Trace) -> dict[str, Any]:
    """The columns of a trace; tenants and classes by name."""
    table = trace._columns()
    for code, names in (("tenant", "tenants"), ("slo_class", "slo_classes")):
        table[code] = np.array(table[names])[table[code]]
    return table


def prompts(trace: workload.Trace) -> list[list[int]]:
    """The contents of each prompt's shared segments."""
    table = trace._columns()
    content, begin = table["segment_content"], table["segment_begin"]
    return [content[i:j].tolist() for i, j in itertools.pairwise(begin)]


def after(trace: workload.Trace, *transforms: Any, seed: int = 0) -> dict[str, Any]:
    return columns(applied(transformed(trace, *transforms), seed))


each = pytest.mark.parametrize(
    "transform", examples("Trace.transforms"), ids=lambda policy: policy.kind
)


def test_a_trace_without_transforms_is_itself() -> None:
    assert applied(recorded()).sha256 == recorded().sha256


@each
def test_the_seed_decides(transform: Any) -> None:
    """What is random is a function of the seed, and says so."""
    trace = transformed(recorded(), transform)
    digests = {applied(trace, seed).sha256 for seed in (1, 1, 2, 3)}
    is_random = len(digests) == 3
    assert is_random or len(digests) == 1
    streams = spillway.config.randomness.random_streams(Simulation(workload=trace))
    assert streams == (("traffic",) if is_random else ())


@each
def test_every_way_to_run_sees_the_same_requests(transform: Any) -> None:
    simulation = Simulation(workload=transformed(recorded(), transform))
    plain = simulate(Simulation(workload=applied(simulation.workload, 3)), 3)
    single = simulate(simulation, 3)
    batch = run_many([simulation, simulation.with_({"router": "always_busiest"})], [2, 3])
    streamed = simulate(simulation.with_({"metrics.streaming": True}), 3)
    assert single.summary() == plain.summary()
    assert single.outcome_digest == plain.outcome_digest
    assert all(runs[1].summary()["offered"] == plain.summary()["offered"] for runs in batch)
    assert batch[0][1].summary() == plain.summary()
    assert streamed.summary()["output_throughput"] == plain.summary()["output_throughput"]


@each
def test_transforms_survive_files_and_pickling(transform: Any, tmp_path: Path) -> None:
    write_mooncake(recorded(), tmp_path / "mine.jsonl")
    trace = spillway.read_trace(tmp_path / "mine.jsonl").replace(session_segments=2)
    simulation = Simulation(workload=transformed(trace, transform, workload.ScaleRate(factor=3)))
    for name in ("saved.yaml", "saved.json"):
        spillway.dump(simulation, tmp_path / name)
        loaded = spillway.load(tmp_path / name)
        assert loaded.workload.transforms == simulation.workload.transforms
        assert spillway.fingerprint(loaded) == spillway.fingerprint(simulation)
        assert applied(loaded.workload, 5).sha256 == applied(simulation.workload, 5).sha256
    copy = pickle.loads(pickle.dumps(simulation))
    assert copy == simulation
    assert simulate(copy, 4).digest == simulate(simulation, 4).digest


def test_another_file_is_refused(tmp_path: Path) -> None:
    write_mooncake(recorded(), tmp_path / "mine.jsonl")
    trace = spillway.read_trace(tmp_path / "mine.jsonl")
    spillway.dump(Simulation(workload=transformed(trace, workload.Thin())), tmp_path / "saved.yaml")
    write_mooncake(recorded(seed=9), tmp_path / "mine.jsonl")
    with pytest.raises(ConfigError, match=r"workload\.sha256"):
        spillway.load(tmp_path / "saved.yaml")


def test_different_transforms_are_different_simulations() -> None:
    plain = Simulation(workload=recorded())
    fast = Simulation(workload=transformed(recorded(), workload.ScaleRate(factor=2)))
    assert spillway.fingerprint(plain) != spillway.fingerprint(fast)
    slow, quick = run_many([plain, fast])
    assert quick[0].end_s < slow[0].end_s


def test_scale_rate_and_shift_move_every_arrival() -> None:
    was = columns(recorded())
    now = after(recorded(), workload.ScaleRate(factor=4), workload.Shift(by_s=1.5))
    expected = np.floor(was["arrival_ns"] / 4 + 0.5) + 1_500_000_000
    np.testing.assert_array_equal(now["arrival_ns"], expected)
    np.testing.assert_array_equal(now["output_tokens"], was["output_tokens"])


def test_a_window_begins_at_zero() -> None:
    was = columns(recorded())
    now = after(recorded(), workload.Window(start_s=20, duration_s=30))
    inside = (was["arrival_ns"] >= 20e9) & (was["arrival_ns"] < 50e9)
    np.testing.assert_array_equal(now["arrival_ns"], was["arrival_ns"][inside] - 20_000_000_000)
    np.testing.assert_array_equal(now["output_tokens"], was["output_tokens"][inside])


def test_thin_keeps_its_share_in_order() -> None:
    was = columns(recorded(4000))
    now = after(recorded(4000), workload.Thin(keep_share=0.3))
    kept = now["output_tokens"]
    assert (np.diff(kept) > 0).all()
    assert abs(len(kept) - 1200) < 4 * np.sqrt(4000 * 0.3 * 0.7)
    np.testing.assert_array_equal(now["arrival_ns"], was["arrival_ns"][kept])
    np.testing.assert_array_equal(now["tenant"], was["tenant"][kept])


def test_superposed_copies_are_rotated() -> None:
    """Each copy holds every request once, at its time plus one shift, modulo the length."""
    n = 400
    was = columns(recorded())
    length = (was["arrival_ns"][-1] - was["arrival_ns"][0]) * n // (n - 1)
    now = after(recorded(), workload.Superpose(copies=3), seed=2)
    by_row = [now["arrival_ns"][now["output_tokens"] == row] for row in range(n)]
    assert all(len(copies) == 3 for copies in by_row)
    shifts = {
        int(round((at - was["arrival_ns"][row]) % length, -3))
        for row, times in enumerate(by_row)
        for at in times
    }
    assert len({shift % length // 1_000_000 for shift in shifts}) == 3
    assert now["arrival_ns"][0] >= was["arrival_ns"][0]
    assert now["arrival_ns"][-1] < was["arrival_ns"][0] + length


def test_upsampling_keeps_bursts_where_superposition_smooths_them() -> None:
    trace = recorded(4000)
    edges = np.linspace(0, columns(trace)["arrival_ns"][-1], 101)

    def dispersion(table: dict[str, Any]) -> float:
        """The squared coefficient of variation of requests per bin."""
        counts = np.histogram(table["arrival_ns"], edges)[0]
        return float(counts.var() / counts.mean() ** 2)

    now = after(trace, workload.Upsample(factor=3.5, jitter_s=0.2))
    assert len(now["arrival_ns"]) == pytest.approx(3.5 * 4000, rel=0.02)
    recorded_counts = np.histogram(columns(trace)["arrival_ns"], edges)[0]
    counts = np.histogram(now["arrival_ns"], edges)[0]
    assert np.corrcoef(recorded_counts, counts)[0, 1] > 0.98
    was = dispersion(columns(trace))
    assert dispersion(now) == pytest.approx(was, rel=0.1)
    assert dispersion(after(trace, workload.Superpose(copies=4))) < 0.5 * was


def test_relabel_follows_its_conditions() -> None:
    rule = workload.Relabel(
        from_tenant="a",
        from_slo_class="batch",
        min_input_tokens=100,
        max_input_tokens=500,
        tenant="gold",
        slo_class="critical",
    )
    was, now = columns(recorded()), after(recorded(), rule)
    matches = (
        (was["tenant"] == "a")
        & (was["slo_class"] == "batch")
        & (was["input_tokens"] >= 100)
        & (was["input_tokens"] <= 500)
    )
    assert 0 < matches.sum() < 400
    np.testing.assert_array_equal(now["tenant"], np.where(matches, "gold", was["tenant"]))
    np.testing.assert_array_equal(now["slo_class"], np.where(matches, "critical", was["slo_class"]))


def test_relabeled_tenants_replace_those_of_the_record() -> None:
    rules = [workload.Relabel(from_tenant=tenant, tenant="all") for tenant in TENANTS]
    trace = transformed(recorded(), *rules)
    assert applied(trace)._columns()["tenants"] == ["all"]
    assert simulate(Simulation(workload=trace, tenants=[{"name": "all"}])).by_tenant().keys() == {
        "all"
    }


def test_a_share_of_the_sessions_is_relabeled() -> None:
    now = after(chats(400), workload.Relabel(tenant="gold", share=0.25))
    chat_of = [ids[1] // 1000 for ids in prompts(chats(400))]
    tenants: dict[int, set[str]] = {}
    for chat, tenant in zip(chat_of, now["tenant"], strict=True):
        tenants.setdefault(chat, set()).add(tenant)
    assert all(len(names) == 1 for names in tenants.values())
    share = sum(names == {"gold"} for names in tenants.values()) / 400
    assert share == pytest.approx(0.25, abs=4 * np.sqrt(0.25 * 0.75 / 400))


def test_capped_prompts_keep_their_beginning() -> None:
    cap = workload.CapLengths(input_tokens=40, output_tokens=3)
    now = after(chats(), cap)
    assert now["input_tokens"].max() == 40
    assert now["output_tokens"].max() == 3
    for was, ids in zip(prompts(chats()), prompts(applied(transformed(chats(), cap))), strict=True):
        assert ids == was[:3]
    begin = now["segment_begin"]
    tokens = [now["segment_tokens"][i:j].tolist() for i, j in itertools.pairwise(begin)]
    assert {tuple(counts) for counts in tokens} == {(16, 16), (16, 16, 8)}


def test_drawn_prompts_keep_their_shared_part() -> None:
    draw = workload.DrawLengths(
        input_tokens=workload.Fixed(tokens=5), output_tokens=workload.Fixed(tokens=9)
    )
    was, now = columns(chats()), after(chats(), draw)
    np.testing.assert_array_equal(now["input_tokens"], was["input_tokens"] + 5)
    assert set(now["output_tokens"]) == {9}


def test_a_part_is_scaled_and_the_rest_is_not() -> None:
    part = workload.ScalePart(tenant="a", start_s=20, duration_s=60, rate_factor=5, jitter_s=2)
    was, now = columns(recorded(2000)), after(recorded(2000), part)

    def is_in(table: dict[str, Any]) -> Any:
        at = table["arrival_ns"]
        return (table["tenant"] == "a") & (at >= 20e9) & (at < 80e9)

    assert is_in(now).sum() == 5 * is_in(was).sum() > 100
    for name in ("arrival_ns", "tenant", "output_tokens"):
        np.testing.assert_array_equal(now[name][~is_in(now)], was[name][~is_in(was)])
    # Nothing crowds at the ends of the span: repetitions beyond them are reflected.
    edges = np.unique(now["arrival_ns"][is_in(now)], return_counts=True)[1]
    assert edges.max() <= 2


@pytest.mark.parametrize("factor", [0, 0.3])
def test_less_of_a_part_stays(factor: float) -> None:
    part = workload.ScalePart(slo_class="batch", rate_factor=factor)
    was, now = columns(recorded(4000)), after(recorded(4000), part)
    before, stays = ((table["slo_class"] == "batch").sum() for table in (was, now))
    assert abs(stays - factor * before) <= 4 * np.sqrt(before * factor * (1 - factor))
    assert (now["slo_class"] == "critical").sum() == (was["slo_class"] == "critical").sum()


def test_lengths_of_a_part_are_scaled() -> None:
    part = workload.ScalePart(tenant="b", start_s=30, input_factor=2.5, output_factor=0.5)
    was, now = columns(recorded()), after(recorded(), part)
    is_in = (was["tenant"] == "b") & (was["arrival_ns"] >= 30e9)
    np.testing.assert_array_equal(now["arrival_ns"], was["arrival_ns"])
    for name, factor in (("input_tokens", 2.5), ("output_tokens", 0.5)):
        scaled = np.floor(was[name] * factor + 0.5)
        if name == "output_tokens":
            scaled = np.where(was[name] > 0, np.maximum(scaled, 1), 0)
        np.testing.assert_array_equal(now[name], np.where(is_in, scaled, was[name]))


@pytest.mark.parametrize("factor", [0.5, 3])
def test_scaled_prompts_share_as_before(factor: float) -> None:
    part = workload.ScalePart(input_factor=factor)
    trace = applied(transformed(chats(), part))
    assert prompts(trace) == prompts(chats())
    assert set(columns(trace)["segment_tokens"].tolist()) == {round(16 * factor)}
    both = workload.ScalePart(input_factor=factor, rate_factor=2, jitter_s=0)
    assert applied(transformed(chats(), both)).rows == 2 * chats().rows


@pytest.mark.parametrize("seed", trials(60))
def test_a_resample_joins_blocks_of_the_trace(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 200))
    trace = recorded(n, seed)
    was = columns(trace)["arrival_ns"]
    length = was[-1] - was[0] + (was[-1] - was[0]) // (n - 1)
    block = int(rng.uniform(0.02, 0.6) * length) // 1000 * 1000
    now = after(trace, workload.BlockResample(block_s=block / 1e9), seed=seed)
    row, at = now["output_tokens"], now["arrival_ns"] - was[0]
    assert at.min() >= 0
    assert at.max() < length
    for number in range(-(-int(length) // block)):
        inside = (at >= number * block) & (at < (number + 1) * block)
        rows = row[inside]
        # Consecutive rows of the trace, as far apart as there.
        np.testing.assert_array_equal(np.diff(rows) % n, np.ones(max(0, len(rows) - 1)))
        np.testing.assert_array_equal(
            np.diff(at[inside]), np.diff(was[rows]) % length if len(rows) else []
        )


def test_resamples_have_the_rate_of_the_trace() -> None:
    trace = transformed(recorded(2000), workload.BlockResample(block_s=30))
    sizes = [applied(trace, seed).rows for seed in range(200)]
    assert np.mean(sizes) == pytest.approx(2000, abs=4 * np.std(sizes) / np.sqrt(200))


def test_a_resample_may_be_longer() -> None:
    trace = recorded(2000)
    now = after(trace, workload.BlockResample(block_s=30, duration_s=3000))["arrival_ns"]
    assert now[-1] - now[0] == pytest.approx(3000e9, rel=0.01)
    assert len(now) == pytest.approx(3000 * traffic.rate_per_s(trace), rel=0.2)


COPYING = [
    workload.Superpose(copies=3),
    workload.Upsample(factor=3, jitter_s=2),
    workload.ScalePart(rate_factor=3, jitter_s=2),
    workload.BlockResample(block_s=20),
    workload.Thin(keep_share=0.5),
]


@pytest.mark.parametrize("transform", COPYING, ids=[policy.kind for policy in COPYING])
def test_sessions_stay_whole_and_apart(transform: Any) -> None:
    """Copies of a conversation share the system prompt, and nothing else with one another."""
    trace = applied(transformed(chats(), transform), 3)
    at, ids = columns(trace)["arrival_ns"], prompts(trace)
    sessions: dict[int, list[tuple[int, int]]] = {}
    for time, blocks in zip(at, ids, strict=True):
        assert blocks[0] == 7
        sessions.setdefault(blocks[1], []).append((int(time), len(blocks)))
    for turns in sessions.values():
        assert [length for _, length in turns] == [2, 3, 4, 5]
        np.testing.assert_allclose(np.diff([time for time, _ in turns]), 3e9, atol=2)
    chats_of = {blocks[1]: set(blocks[1:]) for blocks in ids if len(blocks) == 5}
    assert sum(map(len, chats_of.values())) == len(set().union(*chats_of.values()))


def test_copies_have_names_of_their_own() -> None:
    trace = recorded(90, request_id=[f"r{i}" for i in range(90)])
    for transform in COPYING:
        copies = applied(transformed(trace, transform), 1)
        names = copies._columns()["request_id"]
        assert len(set(names)) == len(names) == copies.rows
        assert {name.partition("#")[0] for name in names} <= {f"r{i}" for i in range(90)}


def test_copies_of_copies_have_names_of_their_own() -> None:
    trace = recorded(5, request_id=["a", "b#", "b##1", "c", "d"])
    twice = transformed(trace, workload.Superpose(copies=3), workload.Superpose(copies=2))
    names = applied(twice, 1)._columns()["request_id"]
    assert len(set(names)) == len(names) == 30
    assert {"a", "a###1", "a#####1", "a###2#####1"} <= set(names)


@each
def test_arrivals_of_a_waiting_client_are_left_alone(transform: Any) -> None:
    trace = recorded(30).replace(max_in_flight=4)
    if transform.kind in ("relabel", "cap_lengths", "draw_lengths"):
        simulate(Simulation(workload=transformed(trace, transform)))
    else:
        with pytest.raises(ConfigError, match=r"transforms\[0\] = .*must not change arrivals"):
            transformed(trace, transform)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (workload.Window(start_s=1e6), r"transforms\[1\]: leaves no requests"),
        (workload.BlockResample(block_s=1e4), r"transforms\[1\]\.block_s = 10000: must be <= the"),
        (workload.Upsample(factor=300, jitter_s=0), None),
        (workload.BlockResample(block_s=1, duration_s=1e9), r"duration_s = .*: must not make more"),
        (workload.BlockResample(block_s=1e-3, duration_s=2e4), r"block_s = 0\.001: must divide"),
        (workload.Shift(by_s=3.2e9), r"transforms\[1\] row 0, arrival_s"),
    ],
)
def test_what_cannot_be_applied_is_named(transform: Any, message: str | None) -> None:
    simulation = Simulation(workload=transformed(recorded(), workload.Shift(by_s=1), transform))
    if message is None:
        simulate(simulation)
        return
    with pytest.raises(ConfigError, match=message):
        simulate(simulation)
    with pytest.raises(ConfigError, match=message):
        run_many([simulation])


def test_settings_of_transforms_can_be_searched() -> None:
    simulation = Simulation(workload=transformed(recorded(), workload.ScaleRate()))
    faster = simulation.with_({"workload.transforms[scale_rate].factor": 3})
    assert simulate(faster).end_s < simulate(simulation).end_s / 2
