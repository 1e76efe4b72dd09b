"""Storage of the trials of a study."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend
from optuna.trial import TrialState, create_trial

from spillway._core.sim import ConfigError
from spillway.config import filesystem
from spillway.config.classes import config_error
from spillway.config.messages import note
from spillway.study.json_lines import JsonLines

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from optuna.trial import FrozenTrial


OWNER = "owner"
"""The user attribute of a trial that names the process that runs it."""

ABANDONED = "abandoned"
"""The user attribute of a trial whose process died during its run."""

RUNNING: set[tuple[str, int]] = set()
"""The trials that this process runs: names of studies, and numbers."""

_BETWEEN_LOOKS_S = 0.2


def resolve(storage: Any) -> BaseStorage:
    """An Optuna storage: a journal for a path, memory for None, a URL or a storage unchanged.

    Raises ConfigError if a journal cannot be read.
    """
    if storage is None:
        return Memory()
    if not isinstance(storage, str | Path) or "://" in str(storage):
        return optuna.storages.get_storage(storage)
    journal = Journal(Path(storage))
    try:
        return JournalStorage(journal)
    except ConfigError:
        raise
    except Exception as error:  # whatever Optuna makes of entries that it did not write
        allowed = "not the journal of a study, or modified: its entries are inconsistent"
        raise config_error([(filesystem.shown(journal.path), "", allowed)]) from error


def process_name() -> str:
    """The name of this process among those that share a storage."""
    return f"{socket.gethostname()}:{os.getpid()}"


@contextlib.contextmanager
def exclusive(storage: BaseStorage) -> Iterator[None]:
    """Excludes other processes that use the same file, for steps of milliseconds.

    Optuna's storages hand out queued trials one by one, but not what is done in several steps;
    SQLite not even these.
    """
    if isinstance(storage, JournalStorage) and isinstance(storage._backend, Journal):
        with storage._backend.held():
            yield
        return
    path = _file_of(storage)
    if path is None:
        yield
        return
    # The lock is not beside the file: it would be left behind, and SQLite locks its file itself.
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:24]
    with (Path(tempfile.gettempdir()) / f"spillway-{os.getuid()}-{name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _file_of(storage: BaseStorage) -> Path | None:
    """The file of one of Optuna's storages; None: it has no file."""
    backend = getattr(storage, "_backend", storage)  # an RDB storage may lie behind a cache
    if isinstance(backend, JournalFileBackend):
        return Path(backend._file_path)
    engine = getattr(backend, "engine", None)
    if engine is not None and engine.dialect.name == "sqlite" and engine.url.database:
        return Path(engine.url.database)
    return None


def ask(study: optuna.Study, storage: BaseStorage, limit: int | None) -> optuna.Trial | None:
    """The next trial, with its owner recorded before the storage shows it as running.

    None if all processes together have begun `limit` trials.
    """
    owner = process_name()
    with exclusive(storage):
        trials = study.get_trials(deepcopy=False)
        num_waiting = sum(trial.state == TrialState.WAITING for trial in trials)
        if limit is not None and len(trials) - num_waiting >= limit:
            return None
        if num_waiting == 0:
            study.add_trial(create_trial(state=TrialState.WAITING, user_attrs={OWNER: owner}))
        trial = study.ask()
        if trial.user_attrs.get(OWNER) != owner:  # another process had queued it
            trial.set_user_attr(OWNER, owner)
        return trial


def wait_for_others(study: optuna.Study, storage: BaseStorage) -> bool:
    """Waits a moment for the trials that other processes run; False if there is no use in that.

    Trials of processes that died on this machine are queued again. Whether processes on other
    machines still run is not known.
    """
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    here = [trial for trial in running if _owner(trial) is not None]
    if any(not _is_abandoned(study, trial) for trial in here):
        time.sleep(_BETWEEN_LOOKS_S)
        return True
    if here:
        release_abandoned(study, storage)
        return True
    if running:
        note(
            f"{len(running)} trials of processes on other machines are not over yet: they are "
            "missing here",
            RuntimeWarning,
        )
    return False


def _owner(trial: FrozenTrial) -> int | None:
    """The process on this machine that runs a trial; None: it is on another machine."""
    host, _, process = trial.user_attrs.get(OWNER, "").rpartition(":")
    return int(process) if host == socket.gethostname() else None


def _is_abandoned(study: optuna.Study, trial: FrozenTrial) -> bool:
    """Whether nothing on this machine runs a trial any more that began here."""
    process = _owner(trial)
    if process == os.getpid():
        return (study.study_name, trial.number) not in RUNNING
    return process is not None and not _is_alive(process)


def release_abandoned(study: optuna.Study, storage: BaseStorage) -> None:
    """Queues trials of processes that died on this machine again, so that none is missing.

    A trial whose process died twice fails: it may be the cause.
    """
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if not _is_abandoned(study, trial):
            continue
        if trial.user_attrs.get(ABANDONED):
            study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
        else:
            storage.set_trial_user_attr(trial._trial_id, ABANDONED, True)
            requeue(storage, trial)


def requeue(storage: BaseStorage, trial: optuna.Trial | FrozenTrial) -> None:
    """Queues a running trial as the next one, with its present values."""
    storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)


class Memory(InMemoryStorage):
    """Optuna's storage in memory, which otherwise overlooks trials that are queued again."""

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """The trials of a study that are in one of the states."""
        # Optuna tracks the first waiting trial only in calls with the tuple of that state.
        if states is not None:
            states = frozenset(state for state in TrialState if state in states)
        return super().get_all_trials(study_id, deepcopy, states)


class Journal(BaseJournalBackend):
    """Optuna's journal, one JSON object per line, in a crash-safe file.

    Optuna's own lock files would remain when a process is killed, and block all others for half a
    minute.

    Raises ConfigError if the file cannot be read or written, with the line if one is unreadable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = JsonLines(path, "op_code", "an entry of a study's journal")

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The entries from a number on."""
        for number, entry in self._lines.read(log_number_from):
            if not isinstance(entry["op_code"], int):
                raise self._lines.unreadable(number)
            yield entry

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds entries, all or none."""
        self._lines.append(logs)

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Locks the file against other processes for several entries."""
        return self._lines.held()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
