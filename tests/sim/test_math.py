"""The core's own elementary functions against values with 40 digits."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING

import pytest
from support.effort import scaled
from support.paths import ROOT

from spillway._core import sim

if TYPE_CHECKING:
    from collections.abc import Callable

DIGITS = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def _series(first: Decimal, ratio: Callable[[int], Decimal]) -> Decimal:
    """first · (1 + ratio(1) · (1 + ratio(2) · …))."""
    total = term = first
    n = 0
    while abs(term) > abs(total) * Decimal(10) ** -DIGITS:
        n += 1
        term *= ratio(n)
        total += term
    return total


def _expm1(x: Decimal) -> Decimal:
    return x.exp() - 1 if abs(x) > 1 else _series(x, lambda n: x / (n + 1))


def _log1p(x: Decimal) -> Decimal:
    if abs(x) > Decimal("1e-9"):
        return (1 + x).ln()
    return x - x**2 / 2 + x**3 / 3 - x**4 / 4 + x**5 / 5


def _sin(x: Decimal) -> Decimal:
    return _series(x, lambda n: -x * x / (2 * n * (2 * n + 1)))


def _normal(z: Decimal) -> Decimal:
    density = (-z * z / 2).exp() / (2 * PI).sqrt()
    return Decimal("0.5") + density * _series(z, lambda n: z * z / (2 * n + 1))


EXACT: dict[str, Callable[[Decimal], Decimal]] = {
    "exp": Decimal.exp,
    "exp2": lambda x: (x * Decimal(2).ln()).exp(),
    "expm1": _expm1,
    "log": Decimal.ln,
    "log1p": _log1p,
    "sin": _sin,
    "normal_probability": _normal,
}
RANGES = {
    "exp": [(-745, -700), (-700, 709.7), (-1, 1), (-1e-9, 1e-9)],
    "exp2": [(-1074, 1023.9), (-2, 2)],
    "expm1": [(-50, 700), (-1, 1), (-0.51, -0.49), (0.49, 0.51), (-1e-9, 1e-9)],
    "log": [(0, 1), (0.95, 1.05), (0.9687, 0.9689), (1.0312, 1.0313), (1, 1e300)],
    "log1p": [(-1, 1), (-0.04, 0.04), (1, 1e300), (-1e-9, 1e-9)],
    "sin": [(-1, 1), (-1e-9, 1e-9)],
    "normal_probability": [(-9.5, 9.5), (-1, 1)],
}
LARGEST_ERROR = {"normal_probability": 16.0}


def ulps(value: float, exact: Decimal) -> float:
    """The error in units of the last place of the nearest double."""
    return abs(float((Decimal(value) - exact) / Decimal(math.ulp(float(exact)))))


def draws(name: str, low: float, high: float, count: int) -> list[float]:
    rng = random.Random(f"{name} {low}")
    if high > 1e10:  # uniform in the logarithm
        return [math.exp(rng.uniform(math.log(low), math.log(high))) for _ in range(count)]
    return [rng.uniform(low, high) for _ in range(count)]


@pytest.mark.parametrize("name", EXACT)
def test_functions_are_within_an_ulp(name: str) -> None:
    function = getattr(sim, name)
    with localcontext(prec=DIGITS):
        for low, high in RANGES[name]:
            for x in draws(name, low, high, scaled(1500)):
                assert ulps(function(x), EXACT[name](Decimal(x))) <= LARGEST_ERROR.get(name, 1.0), x


def _bases_and_exponents(count: int) -> list[tuple[float, float]]:
    rng = random.Random("pow")
    kinds: list[Callable[[], tuple[float, float]]] = [
        lambda: (rng.random(), rng.uniform(0, 10)),
        lambda: (rng.uniform(0.99, 1.01), rng.uniform(-30_000, 30_000)),
        lambda: (math.ldexp(rng.uniform(1, 2), rng.randrange(-1070, 1020)), rng.uniform(-0.9, 0.9)),
        lambda: (rng.uniform(1, 2), rng.uniform(-700, 700)),
    ]
    return [kinds[i % len(kinds)]() for i in range(count)]


def test_powers_are_within_an_ulp() -> None:
    with localcontext(prec=DIGITS):
        for x, y in _bases_and_exponents(scaled(6000)):
            assert ulps(sim.pow(x, y), (Decimal(x).ln() * Decimal(y)).exp()) <= 1.0, (x, y)


def test_powers_that_are_exact_are_exact() -> None:
    for base in range(1, 200):
        for exponent in range(40):
            if base**exponent < 2**53:
                assert sim.pow(base, exponent) == base**exponent
        assert sim.pow(base * base, 0.5) == base
    assert [sim.pow(1.5, n) for n in range(8)] == [1.5**n for n in range(8)]


def test_gamma_is_that_of_factorials_and_of_the_library() -> None:
    for n in range(1, 23):
        assert sim.gamma(n) == pytest.approx(math.factorial(n - 1), rel=16 * 2**-53)
    for x in draws("gamma", 1, 22, scaled(6000)):
        assert sim.gamma(x) == pytest.approx(math.gamma(x), rel=24 * 2**-53)


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log1p", "expm1"])
def test_functions_are_monotonic(name: str) -> None:
    """Among neighbors, also where tables and series meet."""
    function, rng = getattr(sim, name), random.Random(name)
    seams = [0.6875, 0.96875, 1.0, 1.03125, 1.375, 0.5, 2**-5, 2**-8, 2**-9, math.log(2) / 256]
    seams += [rng.uniform(1e-3, 20) for _ in range(scaled(600))]
    for seam in seams + [-x for x in seams if name not in ("log", "log1p")]:
        x = seam
        for _ in range(20):
            x = math.nextafter(x, -math.inf)
        last = function(x)
        for _ in range(40):
            x = math.nextafter(x, math.inf)
            assert function(x) >= last, x
            last = function(x)


def test_special_values_are_those_of_c() -> None:
    infinity, nan = math.inf, math.nan
    assert [sim.exp(x) for x in (0.0, -infinity, -750.0)] == [1, 0, 0]
    assert [sim.exp(x) for x in (711.0, infinity)] == [infinity, infinity]
    assert [sim.exp2(x) for x in (0.0, 10.0, -1074.0, -1100.0)] == [1, 1024, 2**-1074, 0]
    assert sim.exp2(1024.0) == infinity
    assert [sim.log(x) for x in (1.0, 0.0, infinity)] == [0, -infinity, infinity]
    assert sim.log(5e-324) == math.log(5e-324)
    assert [sim.log1p(x) for x in (0.0, -1.0, infinity)] == [0, -infinity, infinity]
    assert [sim.expm1(x) for x in (0.0, -infinity, infinity)] == [0, -1, infinity]
    for name in ("exp", "exp2", "expm1", "log", "log1p"):
        assert math.isnan(getattr(sim, name)(nan)), name
    assert math.isnan(sim.log(-1.0))
    assert math.isnan(sim.log1p(-2.0))
    assert [sim.normal_probability(z) for z in (-infinity, 0.0, infinity)] == [0, 0.5, 1]


def test_powers_of_special_values_are_those_of_c() -> None:
    values = (0.0, 5e-324, 0.5, 1.0, 2.0, 1e308, math.inf)
    exponents = (-math.inf, -1e300, -2.0, -0.5, 0.0, 0.5, 2.0, 1e300, math.inf)
    for x in values:
        for y in exponents:
            try:
                expected = math.pow(x, y)
            except (OverflowError, ValueError):  # where C gives infinity
                expected = math.inf
            assert sim.pow(x, y) == expected, (x, y)
    assert sim.pow(math.nan, 0.0) == sim.pow(1.0, math.nan) == 1
    assert math.isnan(sim.pow(math.nan, 1.0))
    assert math.isnan(sim.pow(2.0, math.nan))


def test_decimal_exponents() -> None:
    for n in range(1, 23):
        assert sim.decimal_exponent(10.0**n) == n
        assert sim.decimal_exponent(math.nextafter(10.0**n, 0)) == n - 1
    assert [sim.decimal_exponent(x) for x in (0.0, 0.5, 9.9, math.inf)] == [0, 0, 0, 308]


def test_the_tables_are_those_of_their_script() -> None:
    script = ROOT / "tools" / "make_math_tables.py"
    subprocess.run([sys.executable, script, "--check"], check=True)
