"""Where the trials of a study are kept."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState, create_trial

if TYPE_CHECKING:
    import optuna

OWNER = "owner"
"""The user attribute of a trial that names the process which runs it."""


def resolve(storage: Any) -> Any:
    """A storage of Optuna's: a journal for a path; None (memory), a URL or a storage as it is."""
    if not isinstance(storage, str | Path) or "://" in str(storage):
        return storage
    path = str(storage)
    return JournalStorage(JournalFileBackend(path, lock_obj=FileLock(path)))


def process_name() -> str:
    """Names this process among those that may share a storage."""
    return f"{socket.gethostname()}:{os.getpid()}"


def ask(study: optuna.Study) -> optuna.Trial:
    """The next trial, of which the storage knows at no time that it runs, but not where."""
    owner = process_name()
    if not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        study.add_trial(create_trial(state=TrialState.WAITING, user_attrs={OWNER: owner}))
    trial = study.ask()
    if trial.user_attrs.get(OWNER) != owner:  # another process had queued it
        trial.set_user_attr(OWNER, owner)
    return trial


def release_abandoned(study: optuna.Study) -> None:
    """Ends trials whose process has died on this machine, so that nothing waits for them."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        host, _, process = trial.user_attrs.get(OWNER, "").rpartition(":")
        if host == socket.gethostname() and not _is_alive(int(process)):
            study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


class FileLock(JournalFileOpenLock):
    """A lock on the journal itself, which the system takes back from a process that is killed.

    Optuna's own locks are files that stay behind then, and hold everybody up for half a minute.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1

    def acquire(self) -> bool:
        """Waits for the lock."""
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        """Gives the lock back."""
        os.close(self._handle)


def _is_alive(process: int) -> bool:
    if process == os.getpid():
        return False  # a study that is just being opened has asked for nothing
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
