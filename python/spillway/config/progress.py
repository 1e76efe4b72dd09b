"""How far long work is: a line on standard error in a terminal, a bar in a notebook."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

Progress = bool | Callable[[int, int], object] | None
"""An argument `progress`: True shows it, a function gets it as (done, total)."""

Remarks = bool | Callable[[str], object] | None
"""An argument `progress` whose function gets a remark as text."""

_SILENT_S = 1.0
_BETWEEN_S = 0.1


class Report(Protocol):
    """Takes how much is done, of how much (0: unknown), and a remark."""

    def __call__(self, done: float, total: float, remark: str = "", /) -> object:
        """Called about ten times a second."""


@contextlib.contextmanager
def reporting(progress: Any, what: str, *, tells: bool = False) -> Iterator[Report | None]:
    """What work reports to while it goes on; None without a listener. `progress`: see `Progress`.

    With True, work that takes more than a second shows a count of `what` and the time left: a bar
    of tqdm in a notebook that has it, a line that vanishes at the end in a terminal, nothing
    elsewhere. A function gets (done, total) or, with `tells`, each new remark. Raises TypeError for
    anything else.
    """
    if progress is False or progress is None:
        yield None
    elif progress is True:
        shown = _display(what)
        try:
            yield shown
        finally:
            if shown is not None:
                shown.close()
    elif callable(progress):
        yield _remarks(progress) if tells else (lambda done, total, _="", /: progress(done, total))
    else:
        wanted = "(text)" if tells else "(done, total)"
        raise TypeError(f"progress must be True or a function of {wanted}, not {progress!r:.60}")


def _remarks(call: Callable[[str], object]) -> Report:
    last = ""

    def report(_done: float, _total: float, remark: str = "", /) -> None:
        nonlocal last
        if remark and remark != last:
            last = remark
            call(remark)

    return report


def erase() -> None:
    """Removes the line in the terminal, if there is one, before something else is printed."""
    for line in _Line.shown:
        line.erase()


def _display(what: str) -> _Line | _Bar | None:
    if _is_notebook():
        return _Bar(what)
    if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return _Line(what)
    return None


def _is_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


class _Line:
    """One line of a terminal, which is overwritten."""

    shown: list[_Line] = []  # noqa: RUF012

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._next = self._began + _SILENT_S
        self.shown.append(self)

    def __call__(self, done: float, total: float, remark: str = "", /) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _BETWEEN_S
        text = _text(self._what, done, total, remark, now - self._began)
        width = shutil.get_terminal_size().columns - 1
        text = text if len(text) <= width else text[: width - 1] + "…"
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()

    def erase(self) -> None:
        if self._next > self._began + _SILENT_S:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def close(self) -> None:
        self.erase()
        self.shown.remove(self)


def _text(what: str, done: float, total: float, remark: str, elapsed_s: float) -> str:
    parts = [f"{what} {done:,.0f}" if not total else f"{what} {done:,.0f} of {total:,.0f}"]
    if total:
        parts[0] += f" ({min(1.0, done / total):.0%})"
    if 0 < done < total:
        parts.append(f"{_duration(elapsed_s * (total - done) / done)} left")
    else:
        parts.append(_duration(elapsed_s))
    return ", ".join([*parts, remark] if remark else parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Bar:
    """A bar of tqdm; nothing if it is not installed."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._bar: Any = None

    def __call__(self, done: float, total: float, remark: str = "", /) -> None:
        if self._bar is None:
            if time.monotonic() < self._began + _SILENT_S:
                return
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "IProgress not found")
                    from tqdm.auto import tqdm  # type: ignore[import-untyped]
            except ImportError:
                return
            self._bar = tqdm(desc=self._what, total=total or None, leave=False)
        self._bar.total = total or None
        self._bar.n = min(done, total) if total else done
        self._bar.set_postfix_str(remark, refresh=False)
        self._bar.refresh()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
