"""The lines of a policy written in Python that ran."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway import _core

if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType

    from typing_extensions import Self


class Lines:
    """Notes which lines of a policy's methods run in this thread, as a context manager.

    A policy that is no class written in Python has none. A debugger or a tool for coverage that
    traces the same thread is back afterwards, and misses what runs inside.
    """

    def __init__(self, policy: Any) -> None:
        is_python = getattr(policy, "kind", None) == "python"
        target = _core.policies.target_of(policy) if is_python else None
        self._missing = {code: _lines_of(code) for code in _codes(target)}

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        if self._missing:
            sys.settrace(self._enters)
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._missing:
            sys.settrace(self._before)

    def notes(self) -> list[str]:
        """A note for each line that never ran, with its file, number and text."""
        return [
            f"{Path(code.co_filename).name}:{line} never ran: "
            f"{linecache.getline(code.co_filename, line).strip()}"
            for code, lines in self._missing.items()
            for line in sorted(lines)
        ]

    def _enters(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        return self._steps if self._missing.get(frame.f_code) else None

    def _steps(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            self._missing[frame.f_code].discard(frame.f_lineno)
        return self._steps


def _codes(target: Any) -> list[CodeType]:
    """The code of the methods of a class and its bases, as far as the files of these hold it."""
    if not inspect.isclass(target):
        return []
    codes = []
    for cls in target.__mro__:
        if cls.__module__.partition(".")[0] in ("builtins", "typing", "spillway"):
            continue  # the contracts have nothing to run
        with contextlib.suppress(OSError, TypeError):  # a class from a prompt has no file
            file = inspect.getsourcefile(cls)
            methods = [method for method in vars(cls).values() if inspect.isfunction(method)]
            codes += [method.__code__ for method in methods if method.__code__.co_filename == file]
    return codes


def _lines_of(code: CodeType) -> set[int]:
    """The lines of its statements; not that of `def`, which runs when the class is made."""
    return {line for _, _, line in code.co_lines() if line and line > code.co_firstlineno}
