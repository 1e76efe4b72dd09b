"""Ctrl-C ends every long call with KeyboardInterrupt, at any instant and within two seconds."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random
import sys
from typing import TYPE_CHECKING

import pytest
from support.effort import trials
from support.interrupting import MOST_CPU_S, child

import spillway

pytest.importorskip("gymnasium")
pytest.importorskip("optuna")
from support.long_calls import CASES, CASES_OF, SCRIPT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MARKS = {"threads", "executor", "progress", "report"}


def long_functions() -> Iterator[str]:
    """The public functions and methods that take threads, an executor, or a listener."""
    for found in pkgutil.walk_packages(spillway.__path__, "spillway."):
        names = found.name.split(".")
        if any(name.startswith("_") for name in names) or names[1] in ("cli", "config"):
            continue
        module = importlib.import_module(found.name)
        for name in [name for name in vars(module) if not name.startswith("_")]:
            one = getattr(module, name, None)
            if getattr(one, "__module__", None) != found.name:
                continue
            parts = {name: one}
            if inspect.isclass(one):
                parts = {f"{name}.{key}": method for key, method in vars(one).items()
                         if not key.startswith("_")}  # fmt: skip
            for key, part in parts.items():
                if inspect.isfunction(part) and MARKS & set(inspect.signature(part).parameters):
                    yield f"{found.name}.{key}"


@pytest.mark.slow
def test_every_long_function_has_a_case() -> None:
    assert sorted(long_functions()) == sorted(CASES_OF)
    assert set(CASES_OF.values()) <= set(CASES)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("name", CASES)
def test_call_is_interrupted_at_random_instants(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    draws = random.Random(name)
    times = len(trials(9))
    with child(SCRIPT, [str(times), name], folder) as process:
        for number in range(times):
            if number > 0:
                assert process.next_byte() == b"."
            process.wait_until_cpu_s(process.cpu_s() + draws.uniform(0, 0.5))
            ended, cpu_s = process.interrupt_until_it_says()
            assert ended == b"i", (number, process.output())
            assert cpu_s < MOST_CPU_S
