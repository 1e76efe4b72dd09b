"""Batches of runs have the same results as single runs, for any number of threads."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spillway import (
    ConfigError,
    Result,
    Results,
    Simulation,
    UsageError,
    gateway,
    metrics,
    router,
    run_many,
    simulate,
    trace,
    workload,
)
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SEEDS = (3, 0, 2**64 - 1)


def served(requests: Any, **changes: Any) -> Simulation:
    return Simulation(workload=requests, instances=BLIS_SERVER, **changes)


def small(num_requests: int = 80, **changes: Any) -> Simulation:
    client = workload.Client(output_tokens=workload.Exponential(mean_tokens=40))
    requests = workload.Synthetic(requests_per_s=20, num_requests=num_requests, clients=[client])
    return served(requests, **changes)


def recorded(first_tokens: int) -> workload.Trace:
    return trace(
        arrival_s=[0, 0.1, 0.25],
        input_tokens=[first_tokens, 200, 300],
        output_tokens=[10, 20, 30],
        request_id=["c", "b", "a"],
    )


def several() -> list[Simulation]:
    """Workloads that are equal, equal but written differently, and different."""
    plain = small()
    clients = (workload.Client(name="a"), workload.Client(name="b", tenant="gold"))
    return [
        plain,
        plain.replace(instances=(BLIS_SERVER.replace(count=2, max_num_seqs=4),)),
        Simulation.from_dict(plain.to_dict()).replace(router=router.LeastLoaded()),
        small(81),
        plain.replace(quantum_ns=1_000_000),
        plain.replace(warm_up_s=1),
        plain.replace(horizon_s=2),
        plain.with_({"workload.requests_per_s": 25}),
        served(workload.Synthetic(num_requests=50, clients=clients)),
        served(workload.Synthetic(num_requests=50, clients=clients[::-1])),
        served(recorded(100)),
        served(recorded(100), gateway=gateway.Gateway(admission=gateway.RejectAll())),
        served(recorded(150)),
        plain.replace(metrics=metrics.Metrics(accounting="blis")),
        plain.replace(metrics=metrics.Metrics(streaming=True)),
    ]


def digests(results: Iterable[Results]) -> list[list[str]]:
    return [[result.digest for result in runs] for runs in results]


@pytest.fixture(scope="module")
def singly() -> list[list[Result]]:
    return [[simulate(simulation, seed) for seed in SEEDS] for simulation in several()]


# Results


@pytest.mark.parametrize("threads", [1, 2, 4, None])
def test_batch_equals_single_runs(threads: int | None, singly: list[list[Result]]) -> None:
    simulations = several()
    many = run_many(simulations, SEEDS, threads=threads, keep_requests=True)
    assert [results.seeds for results in many] == [SEEDS] * len(simulations)
    for simulation, results, expected in zip(simulations, many, singly, strict=True):
        assert [result.digest for result in results] == [run.digest for run in expected]
        assert [result.fingerprint for result in results] == [run.fingerprint for run in expected]
        for result, alone in zip(results, expected, strict=True):
            assert result.simulation == simulation
            assert result.to_dict() == alone.to_dict()
            assert (result.events, result.steps) == (alone.events, alone.steps)


@pytest.mark.parametrize("threads", [1, 2, 4, None])
def test_several_seeds_equal_single_runs(threads: int | None, singly: list[list[Result]]) -> None:
    for simulation, expected in zip(several(), singly, strict=True):
        results = simulate(simulation, seeds=SEEDS, threads=threads)
        assert results.seeds == SEEDS
        assert [result.digest for result in results] == [run.digest for run in expected]


def test_simulations_of_the_batch_differ(singly: list[list[Result]]) -> None:
    """Otherwise the comparisons would miss runs that are mixed up."""
    plain, fleet, busiest, *others = ({run.digest for run in runs} for runs in singly)
    assert len(plain) == len(SEEDS)
    assert not plain & fleet
    assert plain == busiest  # the same settings but for a router that has no choice
    assert all(not plain & other for other in others)
    of_traces = [runs[0].digest for runs in singly[10:13]]
    assert len(set(of_traces)) == 3


def test_figures_without_requests_are_the_same(singly: list[list[Result]]) -> None:
    for results, expected in zip(run_many(several(), SEEDS, threads=4), singly, strict=True):
        for result, alone in zip(results, expected, strict=True):
            assert result.to_dict() == alone.to_dict()
            assert result.instances == alone.instances
            assert repr(result) == repr(alone)


def test_digests_without_requests_do_not_depend_on_threads() -> None:
    expected = digests(run_many(several(), SEEDS, threads=1))
    assert digests(run_many(several(), SEEDS, threads=2)) == expected
    assert digests(run_many(several(), SEEDS, threads=4)) == expected


def test_reference_runs_equal_others(singly: list[list[Result]]) -> None:
    many = run_many(several()[:4], SEEDS, keep_requests=True, reference=True)
    assert digests(many) == [[run.digest for run in runs] for runs in singly[:4]]
    assert many[0][0].instances[0]["stepping"] != "jumps"


def test_one_seed_by_default() -> None:
    (results,) = run_many([small()])
    assert results.seeds == (0,)
    assert results[0].to_dict() == simulate(small()).to_dict()


def test_generators_are_taken() -> None:
    many = run_many((small(n) for n in (5, 6)), (seed for seed in (1, 2)))
    assert [[r.summary()["offered"] for r in results] for results in many] == [[5, 5], [6, 6]]


def test_nothing_to_run() -> None:
    assert run_many([]) == []


# Requests


def test_requests_are_kept_on_demand() -> None:
    (results,) = run_many([small()], SEEDS, keep_requests=True)
    for seed, result in zip(SEEDS, results, strict=True):
        expected = simulate(small(), seed).requests
        assert list(result.requests) == list(expected)
        for name, values in expected.items():
            np.testing.assert_array_equal(result.requests[name], values)


def test_requests_that_were_not_kept(tmp_path: Path) -> None:
    (results,) = run_many([small()])
    for action in (lambda: results[0].requests, lambda: results[0].save(tmp_path / "result.npz")):
        with pytest.raises(UsageError, match="give run_many keep_requests=True"):
            action()
    results[0].write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_requests_outlive_the_batch() -> None:
    requests = run_many([small(), small()], threads=2, keep_requests=True)[1][0].requests
    assert requests.num_rows == 80
    assert requests["request_id"].tolist() == [str(i) for i in range(80)]
    assert requests["arrival_s"][-1] > 0


def test_results_of_batches_pickle() -> None:
    for keep in (False, True):
        many = run_many(several(), (1, 2), keep_requests=keep)
        again: list[Results] = pickle.loads(pickle.dumps(many))
        assert digests(again) == digests(many)
        assert [results.seeds for results in again] == [(1, 2)] * len(many)
    assert again[0][0].requests["ttft_s"].tolist() == many[0][0].requests["ttft_s"].tolist()


def test_names_of_a_trace_outlast_the_run() -> None:
    result = simulate(served(recorded(100)))
    again: Result = pickle.loads(pickle.dumps(result))
    for same in (result, again, copy.deepcopy(result)):
        assert same.requests["request_id"].tolist() == ["c", "b", "a"]


def test_results_of_batches_are_saved(tmp_path: Path) -> None:
    (results,) = run_many([served(recorded(100))], keep_requests=True)
    results[0].save(tmp_path / "result.npz")
    loaded = Result.load(tmp_path / "result.npz")
    assert loaded.digest == results[0].digest
    assert loaded.requests["request_id"].tolist() == ["c", "b", "a"]


def test_several_seeds_are_saved(tmp_path: Path) -> None:
    for result in simulate(small(), seeds=(0, 1)):
        result.save(tmp_path / "result.npz")
        assert Result.load(tmp_path / "result.npz").digest == result.digest


# Progress and errors


@pytest.mark.parametrize("threads", [1, 4])
def test_progress_ends_with_all(threads: int) -> None:
    reported: list[tuple[int, int]] = []
    caller = threading.get_ident()

    def progress(done: int, total: int) -> None:
        assert threading.get_ident() == caller
        reported.append((done, total))

    run_many([small(4000)] * 10, (0, 1), threads=threads, progress=progress)
    done = [done for done, _ in reported]
    assert {total for _, total in reported} == {20}
    assert done == sorted(done)
    assert done[-1] == 20


def test_exception_of_progress_passes() -> None:
    class EnoughError(Exception):
        pass

    def progress(done: int, total: int) -> None:
        raise EnoughError(f"{done} of {total}")

    threads_before = threading.active_count()
    for _ in range(3):
        with pytest.raises(EnoughError, match="of 40"):
            run_many([small(20_000)] * 20, (0, 1), threads=2, progress=progress)
    assert threading.active_count() == threads_before
    assert digests(run_many([small()], keep_requests=True)) == [[simulate(small()).digest]]


def test_simulation_that_cannot_run_ends_the_batch() -> None:
    empty = served(workload.Trace())
    reported: list[int] = []
    with pytest.raises(ConfigError, match="holds no requests"):
        run_many([empty, small()], SEEDS, progress=lambda done, _: reported.append(done))
    for simulations in ([empty], [small(), empty], [small(), empty, small()]):
        with pytest.raises(ConfigError, match="holds no requests"):
            run_many(simulations, SEEDS, threads=2)
    with pytest.raises(ConfigError, match="holds no requests"):
        simulate(empty, seeds=SEEDS)


def test_nothing_runs_if_one_simulation_cannot() -> None:
    reported: list[int] = []
    simulations = [*[small(100_000)] * 4, served(workload.Trace())]
    with pytest.raises(ConfigError, match="holds no requests"):
        run_many(simulations, threads=1, progress=lambda done, _: reported.append(done))
    assert not any(reported)


@pytest.mark.parametrize("threads", [0, -1])
def test_bad_threads(threads: int) -> None:
    with pytest.raises(ValueError, match=rf"threads = {threads}: must be >= 1"):
        run_many([small()], threads=threads)
    with pytest.raises(ValueError, match=rf"threads = {threads}: must be >= 1"):
        simulate(small(), seeds=(0,), threads=threads)


@pytest.mark.parametrize("seeds", [(), (-1,), (0, 2**64)])
def test_bad_seeds(seeds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="seed"):
        run_many([small()], seeds)
    with pytest.raises(ValueError, match="seed"):
        simulate(small(), seeds=seeds)


def test_seeds_are_whole_numbers() -> None:
    with pytest.raises(TypeError):
        run_many([small()], [1.5])  # type: ignore[list-item]


# Interruption

# Ctrl-C comes from an alarm that looks, now and then, whether it is time, so that nothing depends
# on how fast the machine is. What follows the interruption is bounded in work, not in seconds.
INTERRUPTED = """
    import signal, time
    from spillway import Simulation, run_many, simulate, workload

    large = Simulation(workload=workload.Synthetic(num_requests=500_000))
    little = Simulation(workload=workload.Synthetic(num_requests=10))
    done = [0]
    cpu_s = []
    # Shells start jobs in the background with this signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def progress(now_done, total):
        done[0] = now_done

    def interrupt_within(function, ready=lambda looks: looks >= 3):
        looks = [0]

        def look(_signal, frame):
            # A signal that the core notices is handled on top of the function that called it.
            looks[0] += frame.f_code.co_name == function
            if frame.f_code.co_name == function and ready(looks[0]):
                signal.setitimer(signal.ITIMER_REAL, 0)
                cpu_s.append(time.process_time())
                signal.raise_signal(signal.SIGINT)

        signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
"""

needs_signals = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")


def run_script(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED) + textwrap.dedent(script)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@needs_signals
def test_interrupted_batch_raises() -> None:
    out = run_script("""
        interrupt_within("finished_runs", lambda _: done[0] >= 2)
        try:
            run_many([little, *[large] * 40], (0, 1), threads=2, progress=progress)
        except KeyboardInterrupt:
            print("interrupted")
        assert len(cpu_s) == 1
        (many,) = run_many([little], (0, 1))
        assert many[1].to_dict() == simulate(little, 1).to_dict()
    """)
    assert out == "interrupted\n"


@needs_signals
def test_finished_runs_of_an_interrupted_batch() -> None:
    out = run_script("""
        from spillway.simulate import finished_runs

        interrupt_within("finished_runs", lambda _: done[0] >= 2)
        many = finished_runs([little, *[large] * 40], (0, 1), threads=2, progress=progress)
        assert len(cpu_s) == 1
        assert len(many) == 41
        assert many[0].seeds == (0, 1)
        assert many[0][1].to_dict() == simulate(little, 1).to_dict()
        assert many.count(None) >= 38
        assert all(results is None or len(results) == 2 for results in many)
        print("fine")
    """)
    assert out == "fine\n"


@needs_signals
def test_interruption_as_the_last_run_ends_is_not_lost() -> None:
    """Signals are asked for after the last run, too, when progress says that all are over."""
    out = run_script("""
        from spillway.simulate import finished_runs

        def interrupting(now_done, total):
            if now_done == total:
                signal.raise_signal(signal.SIGINT)

        for call in (run_many, finished_runs):
            try:
                call([little] * 2, (0, 1), threads=2, progress=interrupting)
            except KeyboardInterrupt:
                print("interrupted")
    """)
    assert out == 2 * "interrupted\n"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("simulate", "simulate(huge)"),
        ("finished_runs", "simulate(huge, seeds=range(4), threads=2)"),
    ],
)
def test_the_generation_of_requests_is_interrupted(function: str, call: str) -> None:
    """All of them take 600 MB, so a small peak shows that most were never made."""
    # The peak of the process alone: `ru_maxrss` begins with that of its parent.
    out = run_script(f"""
        import re
        from pathlib import Path

        huge = Simulation(workload=workload.Synthetic(num_requests=30_000_000))
        interrupt_within("{function}")
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted")
        peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
        assert int(peak[1]) < 400_000
    """)
    assert out == "interrupted\n"


@pytest.mark.slow
@needs_signals
def test_interrupted_seeds_raise() -> None:
    out = run_script("""
        interrupt_within("finished_runs")
        try:
            simulate(large, seeds=range(80), threads=2)
        except KeyboardInterrupt:
            print("interrupted")
        assert len(simulate(little, seeds=(0, 1))) == 2
    """)
    assert out == "interrupted\n"


@needs_signals
def test_interrupted_run_raises() -> None:
    out = run_script("""
        interrupt_within("simulate")
        try:
            simulate(large.with_({"workload.num_requests": 20_000_000, "metrics.streaming": True}))
        except KeyboardInterrupt:
            # All of it takes several times as much.
            assert time.process_time() - cpu_s[0] < 1.5
            print("interrupted")
        assert simulate(little).ledger["completed"] == 10
    """)
    assert out == "interrupted\n"


@needs_signals
def test_interruption_within_progress_ends_the_batch() -> None:
    out = run_script("""
        def interrupting(now_done, total):
            reported.append(now_done)
            if now_done >= 2:
                signal.raise_signal(signal.SIGINT)

        reported = []
        try:
            run_many([little, *[large] * 40], (0, 1), threads=2, progress=interrupting)
        except KeyboardInterrupt:
            print("interrupted")
        assert 2 <= reported[-1] <= 42, reported
        assert len(run_many([little], (0, 1))[0]) == 2
    """)
    assert out == "interrupted\n"
