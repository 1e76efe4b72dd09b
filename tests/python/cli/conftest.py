"""Commands, called as the shell would."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spillway import cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Calls a command; returns its status, and what it prints to both streams."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = cli.main([str(argument) for argument in arguments])
        return (status, *capsys.readouterr())

    return call


@pytest.fixture
def printed(called: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Calls a command that succeeds without a message; returns what it prints."""

    def succeed(*arguments: str | Path) -> str:
        status, out, err = called(*arguments)
        assert (status, err) == (0, "")
        return out

    return succeed
