"""Values accepted as numbers, and as lists of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.settings import SCALAR_NUMBERS, built, each_number, fields_of

from spillway import ConfigError, workload


@each_number(SCALAR_NUMBERS)
def test_what_passes_for_a_number(cls: type[Any], name: str) -> None:
    field = fields_of(cls)[name]
    low = field.get("at_least", field.get("more_than", 0))
    high = field.get("at_most", field.get("less_than", math.inf))
    good: float = int(min(low + 2, high))  # 1 is not for max_model_len
    kind = int if field["type"] == "int" else float
    given_values: list[Any] = [np.int32(good)]
    if good < low or good == field.get("less_than"):  # no whole number will do
        good, given_values = (low + high) / 2, []
    for given_value in (good, float(good), np.float64(good), np.array(good), *given_values):
        value = getattr(built(cls, name, given_value), name)
        assert type(value) is kind
        assert value == good
    refused: list[Any] = [True, False, np.True_, "3", b"3", [good], {}, np.array([good])]
    refused += [math.nan, math.inf, -math.inf, np.float32("nan")]
    if kind is int:
        refused += [good + 0.5, np.float64(good + 0.5), 1e30, 10**30]
    if not field.get("optional"):
        refused.append(None)
    for bad in refused:
        with pytest.raises(ConfigError) as caught:
            built(cls, name, bad)
        assert any(path == name and allowed for path, _, allowed in caught.value.violations), bad
    for bad in (1j, object(), print):
        with pytest.raises(ConfigError) as caught:
            built(cls, name, bad)
        ((path, value, allowed),) = caught.value.violations
        assert (path, value) == (name, repr(bad))
        assert allowed.startswith("must be a number, text, ")


@pytest.mark.parametrize("digits", [18, 19, 20, 30, 400])
def test_huge_whole_numbers_are_out_of_range(digits: int) -> None:
    for name in ("num_requests", "requests_per_s"):
        for huge in (10**digits, -(10**digits)):
            with pytest.raises(ConfigError, match=f"{name} = .*must be"):
                workload.Synthetic(**{name: huge})


def test_message_about_infinity_is_true() -> None:
    with pytest.raises(ConfigError) as caught:
        workload.Tenant(weight=math.inf)  # inf > 0, so "must be > 0" alone says nothing
    assert "finite" in str(caught.value)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_text_that_is_no_unicode_is_refused(text: str) -> None:
    for attempt in (
        lambda: workload.Tenant(name=text),
        lambda: workload.Tenant.from_dict({text: 1}),
        lambda: workload.Tenant().with_({text: 1}),
    ):
        with pytest.raises(ConfigError, match="Unicode"):
            attempt()


def test_lists_of_numbers() -> None:
    assert workload.Empirical(values=np.arange(3), weights=(1, 2.5, np.float32(0.5))).weights == (
        1.0, 2.5, 0.5,
    )  # fmt: skip
    assert workload.Empirical(values=range(3)).values == (0, 1, 2)
    with pytest.raises(ConfigError) as caught:
        workload.Empirical(values=[1, 2.5, "3", None, True, -1])
    assert [path for path, _, _ in caught.value.violations] == [
        "values[1]", "values[2]", "values[3]", "values[4]", "values[5]",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="must be a list"):
        workload.Empirical(values=5)
