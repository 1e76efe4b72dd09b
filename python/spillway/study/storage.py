"""Storage of the trials of a study."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import socket
import stat
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

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from optuna.trial import FrozenTrial

__all__ = [
    "ABANDONED",
    "OWNER",
    "RUNNING",
    "Journal",
    "Memory",
    "ask",
    "exclusive",
    "process_name",
    "release_abandoned",
    "requeue",
    "resolve",
    "wait_for_others",
]


def __dir__() -> list[str]:
    return __all__


OWNER = "owner"
"""The user attribute of a trial that names the process that runs it."""

ABANDONED = "abandoned"
"""The user attribute of a trial whose process died during its run."""

RUNNING: set[tuple[str, int]] = set()
"""The trials that this process runs: names of studies, and numbers."""

_BEGIN = b'{"op_code":'
_PIECE = 65536
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
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
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
    # Not beside the file: a lock there would be left behind, and SQLite locks its file itself.
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
        num_waiting = sum(one.state == TrialState.WAITING for one in trials)
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
    here = [one for one in running if _owner(one) is not None]
    if any(not _is_abandoned(study, one) for one in here):
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
        # It tracks the first waiting trial only in calls with the tuple of that state.
        every = None if states is None else frozenset(one for one in TrialState if one in states)
        return super().get_all_trials(study_id, deepcopy, every)


class Journal(BaseJournalBackend):
    """Optuna's journal, one JSON object per line, in a crash-safe file.

    The lock is on the file itself, so the system releases it when a process is killed; Optuna's own
    lock files would remain, and block all processes for half a minute. A torn last line, e.g. from
    a full disk, is removed before the next write; its content was never reported as stored.

    Raises ConfigError if the file cannot be read or written, with the line if one is unreadable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets = [0]  # of the known lines, and of the next one
        self._held: int | None = None
        with self._locked():
            pass

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The entries from a number on."""
        try:
            with self.path.open("rb") as stream:
                start = min(log_number_from, len(self._offsets) - 1)
                stream.seek(self._offsets[start])
                lines = stream.read().splitlines(keepends=True)
        except OSError as error:
            raise filesystem.cannot("read", self.path, error) from error
        for number, line in enumerate(lines, start):
            if not line.endswith(b"\n"):
                return  # still being written, or torn
            if number >= log_number_from:
                yield self._entry(number, line)
            if number + 1 == len(self._offsets):
                self._offsets.append(self._offsets[number] + len(line))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds entries, all or none."""
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        with self._locked() as (handle, end):
            try:
                left = text.encode()
                while left:
                    left = left[os.write(handle, left) :]
                os.fsync(handle)
            except BaseException:
                os.ftruncate(handle, end)
                raise

    def _entry(self, number: int, line: bytes) -> dict[str, Any]:
        entry = _parsed(line)
        if not isinstance(entry, dict) or not isinstance(entry.get("op_code"), int):
            raise self._unreadable(number)
        return entry

    def _unreadable(self, number: int) -> ConfigError:
        where = f"{filesystem.shown(self.path)} line {number + 1}"
        return config_error([(where, "", "not an entry of a study's journal")])

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Locks the file against other processes for several entries."""
        with self._locked() as (handle, _):
            self._held = handle
            try:
                yield
            finally:
                self._held = None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[tuple[int, int]]:
        """The file, open for appending and locked against other processes, and its end."""
        if self._held is not None:
            yield self._held, self._mended(self._held)
            return
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o666)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise OSError(errno.EINVAL, "Not a regular file")
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield handle, self._mended(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise filesystem.cannot("written", self.path, error) from error

    def _mended(self, handle: int) -> int:
        """Removes a torn last line, or ends it if only its end is missing."""
        end = os.fstat(handle).st_size
        start = end
        while start > 0:
            size = min(_PIECE, start)
            newline = os.pread(handle, size, start - size).rfind(b"\n")
            start -= size
            if newline >= 0:
                start += newline + 1
                break
        if start == end:
            return end
        begins = os.pread(handle, len(_BEGIN), start)
        if begins != _BEGIN[: len(begins)]:
            raise self._unreadable(self.path.read_bytes().count(b"\n"))
        if _parsed(os.pread(handle, end - start, start)) is not None:
            return end + os.write(handle, b"\n")
        os.ftruncate(handle, start)
        return start


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
