"""Studies that outlive their process, share a file with another, or run elsewhere."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
import pytest
from support.effort import few_of, scaled, trials
from support.interrupting import child
from support.paths import TESTS
from support.study_problems import SMALL_SPACE, overloaded

import spillway
from spillway import ConfigError, Simulation, Study, UsageError, cli, instance, trace
from spillway.study import evaluation, samplers, storage

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = """
import sys
from support.study_problems import SMALL_SPACE, overloaded
from spillway import Study
study = Study(
    overloaded(), SMALL_SPACE, "goodput", {"shed": "<=0.9"}, seeds=2, storage=sys.argv[1]
)
study.optimize(int(sys.argv[2]), total=True, check=False)
"""


def started(
    journal: Path, trials: int, script: str = SCRIPT, *more: str
) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(Path(spillway.__file__).parents[1]), str(TESTS)])
    return subprocess.Popen(
        [sys.executable, "-c", script, str(journal), str(trials), *more],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


BOUNDS = {"shed": "<=0.9"}
small = partial(Study, overloaded(), SMALL_SPACE, objective="goodput", constraints=BOUNDS, seeds=2)


def finished_in(journal: Path) -> set[int]:
    """Numbers of the trials that a journal says are complete."""
    numbers = set()
    for line in journal.read_text().splitlines():
        entry = json.loads(line)
        if entry.get("state") == optuna.trial.TrialState.COMPLETE and "trial_id" in entry:
            numbers.add(entry["trial_id"])
    return numbers


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.log"


def trials_of(study: Study) -> list[Any]:
    return [(trial.number, trial.point, trial.objectives, trial.state) for trial in study.records]


@functools.cache
def uninterrupted(n: int, sampler: str = "tpe") -> list[Any]:
    """The trials of a study that was not interrupted."""
    return trials_of(small(sampler=sampler).optimize(n, check=False))


# --- a file ---------------------------------------------------------------------------------------


def test_nothing_is_written_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = small().optimize(2)
    assert list(tmp_path.iterdir()) == []
    assert isinstance(study.optuna._storage, optuna.storages.InMemoryStorage)


def test_study_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = small(storage=tmp_path / "whole.log").optimize(12, batch_size=4)
    small(storage=tmp_path / "parts.log").optimize(8, batch_size=4)
    again = small(storage=tmp_path / "parts.log")
    assert len(again.records) == 8
    again.optimize(12, batch_size=4, total=True)
    assert trials_of(again) == trials_of(whole) == trials_of(small().optimize(12, batch_size=4))
    assert [trial.is_baseline for trial in again.records] == [True] + [False] * 11


def test_killed_study_loses_no_finished_trial(journal: Path) -> None:
    process = started(journal, 10_000)
    try:
        while not journal.exists() or len(finished_in(journal)) < 9:
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    before = finished_in(journal)
    study = small(storage=journal)
    kept = {trial.number for trial in study.records if trial.has_values}
    assert kept >= before
    assert len(kept - before) <= 4  # evaluated, but killed before the report
    n = len(study.records)
    study.optimize(4)
    assert len(study.records) == n + 4
    # What was running when the process died was run again, so that the trials are those of a study
    # that was never killed.
    finished = [trial for trial in study.optuna.trials if trial.state.is_finished()]
    assert [trial.state for trial in finished] == (n + 4) * [optuna.trial.TrialState.COMPLETE]
    assert [trial.number for trial in finished] == list(range(n + 4))
    assert trials_of(study) == trials_of(small().optimize(n + 4))


@pytest.mark.parametrize("at", [0, 6])
def test_study_killed_while_it_asks_leaves_nothing_running(journal: Path, at: int) -> None:
    script = """
import os, signal, sys
import optuna
class Dying(optuna.samplers.RandomSampler):
    def before_trial(self, study, trial):
        if trial.number == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
"""
    script += SCRIPT.replace("storage=", "sampler=Dying(), storage=")
    process = started(journal, 12, script, str(at))
    _, errors = process.communicate(timeout=600)
    assert process.returncode == -signal.SIGKILL, errors.decode()
    with pytest.warns(RuntimeWarning, match="another sampler than it had: name Dying → tpe"):
        study = small(storage=journal)
    killed = study.optuna.trials[at]
    assert killed.state == optuna.trial.TrialState.WAITING
    n = len(study.records)
    study.optimize(4)
    finished = [trial for trial in study.optuna.trials if trial.state.is_finished()]
    assert [trial.state for trial in finished] == (n + 4) * [optuna.trial.TrialState.COMPLETE]
    assert [trial.number for trial in finished] == list(range(n + 4))
    assert [trial.number for trial in study.records if trial.is_baseline] == [0]
    assert study.baseline.has_values


@pytest.mark.slow
def test_trial_that_kills_its_process_twice_is_given_up(journal: Path) -> None:
    script = (
        """
import os, signal
from spillway.study import evaluation
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
evaluation.finished_runs = die
"""
        + SCRIPT
    )
    for _ in range(2):
        process = started(journal, 4, script)
        process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL
    study = small(storage=journal).optimize(1)
    assert [trial.failure for trial in study.records[:4]] == 4 * ["it was abandoned"]
    assert study.baseline.has_values


class InterruptedOnce:
    """Stands for `finished_runs` and is interrupted in its n-th call, before or within it."""

    def __init__(self, n: int, over: int | None) -> None:
        self.calls_left = n
        self.over = over  # how many simulations are over then; None: it does not come so far

    def __call__(self, simulations: Any, seeds: Any, **options: Any) -> Any:
        self.calls_left -= 1
        if self.calls_left != 0:
            return spillway.run_many(simulations, seeds, **options)
        if self.over is None:
            raise KeyboardInterrupt
        results = spillway.run_many(simulations, seeds, **options)
        return [*results[: self.over], *[None for _ in results[self.over :]]]


@pytest.mark.parametrize("over", few_of([None, 0, 1, 3], 2))
@pytest.mark.parametrize("sampler", [name for name in samplers.SAMPLERS if name != "cmaes"])
@pytest.mark.parametrize("reopened", few_of([True, False], 2))
def test_interrupted_study_equals_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str, over: int | None, reopened: bool
) -> None:
    path = tmp_path / "journal.log" if reopened else None
    study = small(sampler=sampler, storage=path)
    monkeypatch.setattr(evaluation, "finished_runs", InterruptedOnce(4, over))
    with pytest.raises(KeyboardInterrupt):
        study.optimize(18, check=False)
    n = 12 + (over or 0)
    assert trials_of(study) == uninterrupted(18, sampler)[:n]
    if reopened:
        study = small(sampler=sampler, storage=path)
    study.optimize(18, total=True, check=False)
    assert trials_of(study) == uninterrupted(18, sampler)


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from support.study_problems import SMALL_SPACE, overloaded
from spillway import Study
def search(trials, **where):
    study = Study(overloaded(), SMALL_SPACE, "goodput", {"shed": "<=0.9"}, seeds=2, **where)
    study.optimize(trials, total=True, check=False)
search(1)  # imports what is needed
try:
    os.write(int(sys.argv[1]), b".")
    search(16, storage=sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("seed", trials(12))
def test_study_of_interrupted_processes_equals_one_that_was_not(tmp_path: Path, seed: int) -> None:
    journal, folder = tmp_path / "journal.log", tmp_path / "folder"
    folder.mkdir()
    draws = random.Random(seed)
    for number in range(6):
        with child(INTERRUPTED, [str(journal)], folder) as process:
            ended = process.interrupt_at(draws.uniform(0, 0.4)) if number < 5 else process.ended()
        is_done = number == 5 or ended.was_settled
        assert ended.status == (0 if is_done else 130), ended
        assert ended.err == ""
    study = small(storage=journal)
    assert trials_of(study) == uninterrupted(16)
    assert {trial.state for trial in study.optuna.trials} == {optuna.trial.TrialState.COMPLETE}


@pytest.mark.parametrize("halfway", [False, True])
@pytest.mark.parametrize("at", few_of([0, 5, 7, 14], 2))
def test_study_interrupted_while_it_asks_equals_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, halfway: bool
) -> None:
    study = small(storage=tmp_path / "journal.log")
    ask = study.bound.ask

    def interrupted(trial: Any) -> Any:
        if trial.number == at:
            if halfway:
                next(iter(study.bound)).suggest(trial)
            raise KeyboardInterrupt
        return ask(trial)

    monkeypatch.setattr(study.bound, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        study.optimize(16, check=False)
    again = small(storage=tmp_path / "journal.log").optimize(16, total=True, check=False)
    assert trials_of(again) == uninterrupted(16)


# --- what happens to files ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def journal_of_six(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    journal = tmp_path_factory.mktemp("journal") / "journal.log"
    small(storage=journal).optimize(6, check=False)
    return journal.read_bytes()


@pytest.mark.parametrize("cut", range(1, 25, max(1, 24 // scaled(24))))
def test_torn_last_line_is_cut_off(journal: Path, journal_of_six: bytes, cut: int) -> None:
    last = journal_of_six.rstrip().rfind(b"\n") + 1
    ends = last + cut * (len(journal_of_six) - last) // 25
    journal.write_bytes(journal_of_six[:ends])
    again = small(storage=journal)
    assert trials_of(again) == uninterrupted(8)[: len(again.records)]
    assert len(again.records) >= 5
    again.optimize(8, total=True, check=False)
    assert trials_of(again) == trials_of(small(storage=journal)) == uninterrupted(8)


def test_last_line_that_lacks_nothing_but_its_end_is_kept(
    journal: Path, journal_of_six: bytes
) -> None:
    journal.write_bytes(journal_of_six[:-1])
    assert len(small(storage=journal).records) == 6
    assert journal.read_bytes().startswith(journal_of_six)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"garbage\n", "line 1: not an entry of a study's journal"),
        (b"garbage", "line 1: not an entry of a study's journal"),
        (b'{"some": "settings"}', "line 1: not an entry of a study's journal"),
        (b"\x00\xff\xfe\n", "line 1: not an entry of a study's journal"),
        (b"[1]\n", "line 1: not an entry of a study's journal"),
        (b'{"op_code": 4}\n', "not the journal of a study, or modified"),
        (b'{"op_code": 999, "worker_id": "a"}\n', "not the journal of a study, or modified"),
        (9999 * b"[" + b"\n", "line 1: not an entry of a study's journal"),
    ],
)
def test_file_that_is_no_journal_is_refused_and_left(
    journal: Path, content: bytes, expected: str
) -> None:
    journal.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        small(storage=journal)
    assert str(caught.value).startswith(str(journal))
    assert expected in str(caught.value)
    assert journal.read_bytes() == content


def test_torn_line_in_the_middle_is_named(journal: Path, journal_of_six: bytes) -> None:
    lines = journal_of_six.splitlines(keepends=True)
    lines[20] = lines[20][:30] + b"\n"
    journal.write_bytes(b"".join(lines))
    with pytest.raises(ConfigError, match="line 21: not an entry of a study's journal"):
        small(storage=journal)


def test_places_that_cannot_hold_a_journal(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for place, problem in (
        (tmp_path, "Is a directory"),
        (tmp_path / "file" / "below", "Not a directory"),
        (tmp_path / "none" / "journal.log", "No such file or directory"),
        (tmp_path / "pipe", "Not a regular file"),
    ):
        with pytest.raises(ConfigError, match=f"{place}: cannot be written: {problem}"):
            small(storage=place)


def test_full_disk_leaves_a_journal_that_opens(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small(storage=journal).optimize(4, check=False)
    write = os.write
    room = 2000

    def limited(handle: int, data: bytes) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(handle, data[:room])
        room -= written
        return written

    monkeypatch.setattr(storage.os, "write", limited)
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        study.optimize(8, check=False)
    monkeypatch.undo()
    assert journal.read_bytes().endswith(b"\n")
    again = small(storage=journal)
    again.optimize(12, total=True, check=False)
    assert trials_of(again) == uninterrupted(12)


# A process pauses between a look at the trials and what follows from it.
SHARED = """
import json, sys, time
import optuna
from support.study_problems import SMALL_SPACE, overloaded
from spillway import Study
for name in ("enqueue_trial", "add_trial", "ask"):
    def late(*args, method=getattr(optuna.Study, name), **more):
        time.sleep(0.05)
        return method(*args, **more)
    setattr(optuna.Study, name, late)
place, total, kind, highest = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
if kind == "sqlite":
    place = f"sqlite:///{place}"
elif kind == "journal of Optuna":
    backend = optuna.storages.journal.JournalFileBackend(place)
    place = optuna.storages.JournalStorage(backend)
space = SMALL_SPACE | {"gateway.limit[0].max_in_flight": (1, highest)}
study = Study(overloaded(), space, "goodput", seeds=2, storage=place)
if total:
    study.optimize(total, total=True, check=False)
records = [(trial.number, trial.has_values, trial.is_baseline) for trial in study.records]
print(json.dumps([records, [trial.state.name for trial in study.optuna.trials]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("highest", [64, 16])  # with the baseline, which has 32, or without it
@pytest.mark.parametrize("kind", ["journal", "sqlite", "journal of Optuna"])
def test_processes_that_share_a_file_make_the_total_and_one_baseline(
    tmp_path: Path, kind: str, highest: int
) -> None:
    def run(processes: int, trials: int) -> list[Any]:
        more = (kind, str(highest))
        begun = [started(tmp_path / "trials", trials, SHARED, *more) for _ in range(processes)]
        said = []
        for process in begun:
            out, errors = process.communicate(timeout=600)
            assert process.returncode == 0, errors.decode()
            said.append(json.loads(out))
        return said

    assert run(1, 0) == [[[], []]]
    both = run(2, 10)
    whole = [[number, True, number == 0] for number in range(10)]
    # The baseline outside the space is a trial that samplers ignore, and each waits for the other.
    states = ["FAIL" if highest < 32 and number == 0 else "COMPLETE" for number in range(10)]
    assert both == [[whole, states]] * 2
    assert run(1, 13)[0][0] == [[number, True, number == 0] for number in range(13)]


@pytest.mark.slow
def test_two_processes_share_a_journal(journal: Path) -> None:
    processes = [started(journal, 24) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors.decode()
    study = small(storage=journal)
    assert len(study.records) == 24
    assert all(trial.has_values for trial in study.records)
    owners = [trial.user_attrs["owner"] for trial in study.optuna.trials]
    assert len(set(owners)) == 2
    points = [tuple(trial.point.values()) for trial in study.records if not trial.is_baseline]
    assert len(set(points)) == len(points)
    first = spillway.run_many([study.simulation_of(trial) for trial in study.records], range(2))
    for trial, results in zip(study.records, first, strict=True):
        assert trial.objectives[0] == tuple(result.summary()["goodput"] for result in results)


def test_other_problem_in_the_same_file_is_refused(journal: Path) -> None:
    small(storage=journal).optimize(2)
    with pytest.raises(UsageError, match="objectives differ"):
        small(objective="shed", storage=journal)
    with pytest.raises(UsageError, match="seeds differ"):
        small(storage=journal, seeds=3)
    with pytest.raises(UsageError, match="simulation, space differ"):
        Study(
            overloaded(warm_up_s=1),
            {"gateway.limit[0].max_in_flight": (1, 8)},
            "goodput",
            {"shed": "<=0.9"},
            seeds=2,
            storage=journal,
        )
    small(storage=journal, seeds=3, name="another")


def test_storage_of_optuna_is_taken_as_it_is() -> None:
    storage = optuna.storages.InMemoryStorage()
    small(storage=storage).optimize(3)
    assert len(small(storage=storage).records) == 3


# --- executors ------------------------------------------------------------------------------------


class Noting(Executor):
    """Runs tasks at once, after a trip through pickle, and notes their sizes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        import pickle

        packed = pickle.dumps((fn, args, kwargs))
        self.sizes.append(len(packed))
        fn, args, kwargs = pickle.loads(packed)
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_any_executor_gives_the_same_trials() -> None:
    here = small().optimize(8)
    noting = Noting()
    assert trials_of(small().optimize(8, executor=noting)) == trials_of(here)
    assert len(noting.sizes) > 8
    with ThreadPoolExecutor(2) as executor:
        assert trials_of(small().optimize(8, executor=executor)) == trials_of(here)


@pytest.mark.slow
def test_processes_give_the_same_trials() -> None:
    here = small().optimize(8)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        study = small().optimize(8, executor=executor)
        confirmation = study.confirm(2, 4, executor=executor)
    assert trials_of(study) == trials_of(here)
    assert confirmation == here.confirm(2, 4)


@pytest.mark.slow
# What a cluster warns of when it starts and stops is not Spillway's business.
@pytest.mark.filterwarnings("default")
def test_dask_gives_the_same_trials() -> None:
    distributed = pytest.importorskip("distributed")
    here = small().optimize(8)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        study = small().optimize(8, executor=client.get_executor())
    assert trials_of(study) == trials_of(here)


class Deadly:
    """A figure that kills the process of the first worker to compute it."""

    name = "goodput"

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, result: spillway.Result) -> float:
        with contextlib.suppress(FileExistsError):
            self.path.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return float(result.summary()["goodput"] or 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_worker_that_dies_loses_only_its_tasks(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        deadly = spillway.study.Objective(Deadly(tmp_path / "killed"), "maximize", "goodput")
        study = Study(overloaded(), SMALL_SPACE, deadly, BOUNDS, seeds=2)
        study.optimize(8, check=False, executor=client.get_executor())
    assert (tmp_path / "killed").exists()
    assert trials_of(study) == trials_of(small().optimize(8, check=False))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_commands_run_on_the_workers_of_a_scheduler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distributed = pytest.importorskip("distributed")
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("grid: {workload.requests_per_s: [5, 10]}\nseeds: 2\nmetrics: [completed]\n")
    command = ["sweep", str(sweep), "--json"]
    assert cli.main(command) == 0
    here = capsys.readouterr().out
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", protocol="tcp"
    ) as cluster:
        address = cluster.scheduler_address.replace("tcp", "dask")
        assert cli.main([*command, "--executor", address]) == 0
        assert capsys.readouterr().out == here


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--executor", "ray://localhost:1"], "must be dask://HOST:PORT"),
        (["--executor", "dask://localhost"], "must be dask://HOST:PORT"),
        (["--executor", "dask://localhost:1", "--threads", "2"], "not beside --threads"),
        (["--threads", "0"], "--threads = 0: must be >= 1"),
    ],
)
def test_executors_of_commands_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], problem: str
) -> None:
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("grid: {workload.requests_per_s: [5]}\n")
    assert cli.main(["sweep", str(sweep), *options]) == 2
    assert problem in capsys.readouterr().err


def test_trace_does_not_travel_with_every_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_TRACES", {})
    n = 20_000
    requests = trace(
        arrival_s=[i * 0.01 for i in range(n)],
        input_tokens=[100 + i % 7 for i in range(n)],
        output_tokens=[4] * n,
    )
    group = instance.InstanceGroup(max_num_seqs=4)
    base = Simulation(workload=requests, horizon_s=5, instances=group)
    study = Study(
        base, {"instances[0].max_num_seqs": (1, 16)}, "output_throughput", seeds=1, sampler="random"
    )
    noting = Noting()
    study.optimize(12, batch_size=2, check=False, executor=noting)
    assert all(trial.has_values for trial in study.records)
    large = [i for i, size in enumerate(noting.sizes) if size > 100_000]
    assert large == [2, 3]  # the two of the first batch, the second time
    assert len(noting.sizes) > 6
    here = Study(
        base, {"instances[0].max_num_seqs": (1, 16)}, "output_throughput", seeds=1, sampler="random"
    )
    assert trials_of(here.optimize(12, batch_size=2, check=False)) == trials_of(study)


def test_threads_and_executor_exclude_each_other() -> None:
    with pytest.raises(TypeError, match="threads or executor"):
        small().optimize(2, threads=1, executor=Noting())
