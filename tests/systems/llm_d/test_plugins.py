"""Types and parameters of plugins of llm-d's router. Recordings: `parity/test_llm_d.py`."""

from __future__ import annotations

from typing import Any

import pytest

from spillway import ConfigError
from spillway.systems.llm_d.plugins import PARAMETERS, TYPES, duration_s, plugin


@pytest.mark.parametrize("kind", sorted(PARAMETERS.keys() - {"priority-holdback-policy"}))
def test_parameters_that_are_stated_as_by_default_change_nothing(kind: str) -> None:
    given: Any = {}
    if kind == "utilization-filter":
        given = {"conditions": [{"metric": "waiting-queue", "maxValue": 3}]}
    found = plugin(kind, "x", given, "x")
    assert found.changed() == given
    repeated = {
        name: value
        for name, value in found.parameters.items()
        if value is not None and PARAMETERS[kind][name].kind != "duration"
    }
    assert plugin(kind, "x", repeated, "x").parameters == found.parameters


def test_every_type_with_parameters_is_registered() -> None:
    assert PARAMETERS.keys() <= TYPES


def test_parameters_of_other_plugins_are_kept_as_they_are() -> None:
    for kind in ("token-producer", "queue-scorer"):
        assert plugin(kind, "x", {"a": {"b": 1}}, "x").changed() == {"a": {"b": 1}}
    with pytest.raises(ConfigError, match="a: is unknown"):
        plugin("soft-reflective-ceiling-policy", "x", {"a": 1}, "x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1m30s", 90),
        ("-1.5s", -1.5),
        ("+2ms", 0.002),
        ("0", 0),
        (".5h", 1800),
        ("1h1us", 3600.000001),
    ],
)
def test_durations_are_read_as_in_go(text: str, expected: float) -> None:
    assert duration_s(text, "x") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("text", ["", "5", "1 s", "s", "1d", "--1s", "1s "])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a duration such as 60s"):
        duration_s(text, "x")
