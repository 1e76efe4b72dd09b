"""Writes the constants of `cpp/sim/math.cpp` into `cpp/sim/math_tables.h`.

python tools/make_math_tables.py [--check]

Every constant is computed with 80 digits and rounded once. `--check` only compares.
"""

from __future__ import annotations

import argparse
import math
import sys
from decimal import Decimal, getcontext
from fractions import Fraction
from pathlib import Path

getcontext().prec = 80
_FILE = Path(__file__).resolve().parents[1] / "cpp" / "sim" / "math_tables.h"
_LN2 = Decimal(2).ln()
_EXP_SIZE = 128
_LOG_SIZE = 128
_FIRST_LOG = Decimal("0.6875")
_NORMAL_STEPS_PER_UNIT = 4
_NORMAL_SIZE = 39
_GAMMA_DEGREE = 24


def rounded(value: Decimal, step: int) -> Decimal:
    """The nearest multiple of 2**-step."""
    scale = Decimal(2) ** step
    return (value * scale).to_integral_value() / scale


def parts(value: Decimal, step: int | None = None) -> tuple[float, float]:
    """A value as the sum of two doubles, of which the first is a multiple of 2**-step."""
    high = float(value if step is None else rounded(value, step))
    return high, float(value - Decimal(high))


def power_of_two(index: int) -> tuple[float, float]:
    """2**(index / 128): the nearest double, and what is missing relative to it."""
    value = (_LN2 * index / _EXP_SIZE).exp()
    high = float(value)
    return float((value - Decimal(high)) / Decimal(high)), high


def log_row(index: int) -> tuple[float, ...]:
    """Center of an interval, its inverse, and the logarithm of the center in two parts."""
    first = Fraction(_FIRST_LOG) + Fraction(index, 256)
    width = Fraction(1, 256)
    if first >= 1:
        position = index - int((1 - Fraction(_FIRST_LOG)) * 256)
        first, width = 1 + Fraction(position, 128), Fraction(1, 128)
    center = first + width / 2
    exact = Decimal(center.numerator) / Decimal(center.denominator)
    return (float(center), float(1 / exact), *parts(exact.ln(), 42))


def inverse_row(index: int) -> tuple[float, ...]:
    """The inverse of a center in 9 bits, and minus its logarithm in two parts."""
    center = log_row(index)[0]
    inverse = 1.0 if abs(center - 1) < 2**-7 else round(256 / center) / 256
    return (inverse, *parts(-Decimal(inverse).ln(), 42))


def arctan_of_inverse(n: int) -> Decimal:
    """The arctangent of 1 / n."""
    total, power, k = Decimal(0), Decimal(1) / n, 0
    while abs(power) > Decimal(10) ** -78:
        total += power / (2 * k + 1) * (-1) ** k
        power /= n * n
        k += 1
    return total


_PI = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))


def normal_row(index: int) -> tuple[float, float]:
    """The normal distribution function and density at minus index / 4."""
    z = Decimal(index) / _NORMAL_STEPS_PER_UNIT
    density = (-z * z / 2).exp() / (2 * _PI).sqrt()
    # P(0 < Z < z) = density · (z + z³/3 + z⁵/(3·5) + …)
    term = inside = z
    k = 1
    while term > Decimal(10) ** -75:
        k += 2
        term = term * z * z / k
        inside += term
    return float(Decimal("0.5") - density * inside), float(density)


def bernoulli(count: int) -> list[Fraction]:
    """The first Bernoulli numbers, B_0 to B_(count - 1)."""
    numbers = [Fraction(1)]
    for m in range(1, count):
        numbers.append(-sum(math.comb(m + 1, k) * numbers[k] for k in range(m)) / (m + 1))
    return numbers


_BERNOULLI = bernoulli(62)


def gamma(x: Decimal) -> Decimal:
    """Stirling's series at x + 60, divided by the factors between."""
    divisor = Decimal(1)
    for _ in range(60):
        divisor *= x
        x += 1
    log = (x - Decimal("0.5")) * x.ln() - x + (2 * _PI).ln() / 2
    for k in range(1, 30):
        one = _BERNOULLI[2 * k] / (2 * k * (2 * k - 1))
        log += Decimal(one.numerator) / Decimal(one.denominator) / x ** (2 * k - 1)
    return log.exp() / divisor


def gamma_coefficients() -> list[float]:
    """Of the polynomial in x less 1.5 that is Γ at Chebyshev's nodes of [1, 2], lowest first."""
    size = _GAMMA_DEGREE + 1
    # A rough position of the nodes suffices: without the last bits of the cosines.
    nodes = [
        Decimal(round(2**20 * math.cos(math.pi * (i + 0.5) / size))) / 2**21 for i in range(size)
    ]
    divided = [gamma(Decimal("1.5") + node) for node in nodes]
    for order in range(1, size):
        for i in range(size - 1, order - 1, -1):
            divided[i] = (divided[i] - divided[i - 1]) / (nodes[i] - nodes[i - order])
    found = [divided[-1]]
    for i in range(size - 2, -1, -1):  # times (t - nodes[i]), plus divided[i]
        found = [Decimal(0), *found]
        for j in range(len(found) - 1):
            found[j] -= nodes[i] * found[j + 1]
        found[0] += divided[i]
    return [float(value) for value in found]


def table(name: str, comment: str, rows: list[tuple[float, ...]]) -> str:
    """A two-dimensional array, a row a line."""
    lines = [f"    {{{', '.join(map(float.hex, row))}}}," for row in rows]
    head = f"/// {comment}\ninline constexpr double {name}[{len(rows)}][{len(rows[0])}] = {{\n"
    return head + "\n".join(lines) + "\n};\n"


def text() -> str:
    """The header."""
    numbers = {
        "kLn2High": parts(_LN2, 42)[0],
        "kLn2Low": parts(_LN2, 42)[1],
        "kStepsPerLn2": float(_EXP_SIZE / _LN2),
        "kLn2StepHigh": parts(_LN2 / _EXP_SIZE, 42)[0],
        "kLn2StepLow": parts(_LN2 / _EXP_SIZE, 42)[1],
        "kLn2": float(_LN2),
    }
    coefficients = ",\n    ".join(map(float.hex, gamma_coefficients()))
    sections = [
        "\n".join(
            f"inline constexpr double {name} = {number.hex()};" for name, number in numbers.items()
        )
        + "\n",
        table(
            "kPowersOfTwo",
            "Of 2^(i/128): what is missing, relative to the nearest double, and that double.",
            [power_of_two(i) for i in range(_EXP_SIZE)],
        ),
        table(
            "kLogs",
            "Of each interval from 0.6875 to 1.375: center c, 1/c, ln c in two parts.",
            [log_row(i) for i in range(_LOG_SIZE)],
        ),
        table(
            "kInverses",
            "Of the same intervals: a number of 9 bits near 1/c, minus its logarithm in two parts.",
            [inverse_row(i) for i in range(_LOG_SIZE)],
        ),
        table(
            "kNormal",
            "The normal distribution function and density at -i/4.",
            [normal_row(i) for i in range(_NORMAL_SIZE)],
        ),
        f"""/// Of Γ(1.5 + t), |t| <= 0.5, lowest order first.
inline constexpr double kGamma[{_GAMMA_DEGREE + 1}] = {{
    {coefficients}}};
""",
    ]
    return (
        "#pragma once\n\n"
        "// Written by tools/make_math_tables.py.\n"
        "// clang-format off\n"
        "// NOLINTBEGIN(modernize-use-std-numbers)\n\n"
        "namespace spillway::sim::math_tables {\n\n"
        + "\n".join(sections)
        + "\n}  // namespace spillway::sim::math_tables\n"
        + "// NOLINTEND(modernize-use-std-numbers)\n"
    )


def main() -> int:
    """Command line; 1 if `--check` finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args().check:
        _FILE.write_text(text(), encoding="utf-8")
    elif _FILE.read_text(encoding="utf-8") != text():
        print("cpp/sim/math_tables.h is not what tools/make_math_tables.py writes")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
