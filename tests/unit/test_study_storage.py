"""Studies that outlive their process, share a file with another, or run elsewhere."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
import pytest
from study_problems import SMALL_SPACE, overloaded

import spillway
from spillway import Simulation, Study, UsageError, instance, trace
from spillway.study import evaluation

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).parents[1]
SCRIPT = """
import sys
from study_problems import SMALL_SPACE, overloaded
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
        stderr=subprocess.PIPE,
    )


def small(**settings: Any) -> Study:
    stated: dict[str, Any] = {"constraints": {"shed": "<=0.9"}, "seeds": 2}
    return Study(overloaded(), SMALL_SPACE, "goodput", **(stated | settings))


def finished_in(journal: Path) -> set[int]:
    """Numbers of the trials that a journal says are complete."""
    numbers = set()
    for line in journal.read_text().splitlines():
        entry = json.loads(line)
        if entry.get("state") == optuna.trial.TrialState.COMPLETE and "trial_id" in entry:
            numbers.add(entry["trial_id"])
    return numbers


def trials_of(study: Study) -> list[Any]:
    return [(one.number, one.point, one.objectives, one.state) for one in study.records]


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
    assert [one.is_baseline for one in again.records] == [True] + [False] * 11


def test_killed_study_loses_no_finished_trial(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    process = started(journal, 10_000)
    try:
        deadline = time.monotonic() + 120
        while not journal.exists() or len(finished_in(journal)) < 9:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    before = finished_in(journal)
    study = small(storage=journal)
    kept = {one.number for one in study.records if one.has_values}
    assert kept >= before
    assert len(kept - before) <= 4  # evaluated, but killed before it could be told
    n = len(study.records)
    study.optimize(4)
    assert len(study.records) == n + 4
    # What was running when the process died does not look as if it still were.
    running = optuna.trial.TrialState.RUNNING
    assert study.optuna.get_trials(states=(running,)) == []
    for one in study.records:
        assert one.has_values or one.failure == "it was abandoned"


@pytest.mark.parametrize("at", [0, 6])
def test_study_killed_while_it_asks_leaves_nothing_running(tmp_path: Path, at: int) -> None:
    journal = tmp_path / "journal.log"
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
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, errors.decode()
    study = small(storage=journal)
    killed = study.optuna.trials[at]
    assert killed.state == optuna.trial.TrialState.FAIL
    assert [one.failure for one in study.records if one.number == at] == ["it was abandoned"]
    study.optimize(4)
    assert not [one for one in study.optuna.trials if not one.state.is_finished()]
    # The baseline is there in any case, if not as the first.
    assert study.baseline.has_values
    assert study.baseline.number == (1 if at == 0 else 0)
    assert [one.number for one in study.records if one.is_baseline] == ([0, 1] if at == 0 else [0])


def test_two_processes_share_a_journal(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    processes = [started(journal, 24) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors.decode()
    study = small(storage=journal)
    # Each looks before a batch, so that together they make a batch too many at most.
    assert 24 <= len(study.records) <= 28
    assert all(one.has_values for one in study.records)
    owners = [one.user_attrs["owner"] for one in study.optuna.trials]
    assert len(set(owners)) == 2
    points = [tuple(one.point.values()) for one in study.records if not one.is_baseline]
    assert len(set(points)) == len(points)
    first = spillway.run_many([study.simulation_of(one) for one in study.records], range(2))
    for one, results in zip(study.records, first, strict=True):
        assert one.objectives[0] == tuple(result.summary()["goodput"] for result in results)


def test_other_problem_in_the_same_file_is_refused(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    small(storage=journal).optimize(2)
    with pytest.raises(UsageError, match="objectives differ"):
        Study(overloaded(), SMALL_SPACE, "shed", {"shed": "<=0.9"}, seeds=2, storage=journal)
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


def test_processes_give_the_same_trials() -> None:
    here = small().optimize(8)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        study = small().optimize(8, executor=executor)
        confirmation = study.confirm(2, 4, executor=executor)
    assert trials_of(study) == trials_of(here)
    assert confirmation == here.confirm(2, 4)


def test_dask_gives_the_same_trials() -> None:
    distributed = pytest.importorskip("distributed")
    here = small().optimize(8)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        study = small().optimize(8, executor=client.get_executor())
    assert trials_of(study) == trials_of(here)


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
    assert all(one.has_values for one in study.records)
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
