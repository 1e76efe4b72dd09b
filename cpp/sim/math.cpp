#include "sim/math.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

#include "sim/math_tables.h"

namespace spillway::sim {

namespace {

namespace tables = math_tables;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }
constexpr double double_of(std::uint64_t bits) { return std::bit_cast<double>(bits); }

/// A number as the unevaluated sum of two doubles.
struct Pair {
  double high;
  double low;
};

Pair exact_sum(double a, double b) {
  const double sum = a + b;
  const double rest = sum - a;
  return {sum, (a - (sum - rest)) + (b - rest)};
}

/// The leading 26 bits, and the others.
Pair halves(double x) {
  const double high = double_of(bits_of(x) & ~((std::uint64_t{1} << 27) - 1));
  return {high, x - high};
}

Pair exact_product(double a, double b) {
  const Pair x = halves(a);
  const Pair y = halves(b);
  const double product = a * b;
  return {product, ((x.high * y.high - product) + x.high * y.low + x.low * y.high) + x.low * y.low};
}

// --- exponentials
// ---------------------------------------------------------------------------------

/// 2^(steps / 128) · e^r. Precondition: |r| < 0.003.
double scaled_exp(std::int64_t steps, double r) {
  const auto& [missing, power] = tables::kPowersOfTwo[static_cast<std::size_t>(steps & 127)];
  const double square = r * r;
  const double change =
      missing + r + square * (0.5 + r * (1.0 / 6)) + square * square * (1.0 / 24 + r * (1.0 / 120));
  const std::int64_t exponent = steps >> 7;
  if (exponent > -1022 && exponent < 1023) [[likely]] {
    const double scale = double_of(bits_of(power) + (static_cast<std::uint64_t>(exponent) << 52));
    return scale + scale * change;
  }
  return std::ldexp(power + power * change, static_cast<int>(exponent));
}

/// The nearest integer, as a double and as such. Precondition: |x| < 2^50.
struct Nearest {
  double value;
  std::int64_t integer;
};
Nearest nearest(double x) {
  constexpr double kShift = 0x1.8p52;
  const double shifted = x + kShift;
  return {shifted - kShift, static_cast<std::int64_t>(bits_of(shifted) - bits_of(kShift))};
}

/// e^(x + low). Precondition: |x| < 1100, low small against it.
double finite_exp(double x, double low) {
  const Nearest steps = nearest(x * tables::kStepsPerLn2);
  const double r =
      (x - steps.value * tables::kLn2StepHigh) - steps.value * tables::kLn2StepLow + low;
  return scaled_exp(steps.integer, r);
}

// --- logarithms
// -----------------------------------------------------------------------------------

/// ln(1 + r) by its series. Precondition: |r| < 2^-5 (1 + 2^-40).
double log_near_1(double r) {
  const double square = r * r;
  const double fourth = square * square;
  const double a = (1.0 / 3 - r * (1.0 / 4)) + square * (1.0 / 5 - r * (1.0 / 6));
  const double b = (1.0 / 7 - r * (1.0 / 8)) + square * (1.0 / 9 - r * (1.0 / 10));
  const double c = 1.0 / 11 - r * (1.0 / 12);
  return r - (0.5 * square - r * square * (a + fourth * (b + fourth * c)));
}

/// A number as 2^exponent · fraction, 0.6875 <= fraction < 1.375, in one of 128 intervals.
struct Scaled {
  std::int64_t exponent;
  double fraction;
  std::size_t interval;
};
/// Precondition: `bits` are of a positive normal number.
Scaled scaled(std::uint64_t bits) {
  constexpr std::uint64_t kFirst = 0x3fe6000000000000;  // 0.6875
  const std::uint64_t above = bits - kFirst;
  return {static_cast<std::int64_t>(above) >> 52, double_of(bits - (above & (0xfffULL << 52))),
          static_cast<std::size_t>((above >> 45) & 127)};
}

/// ln(2^exponent · fraction), and what is added to its smaller part. Precondition: not within 2^-5
/// of 1.
template <class... Low>
double log_of(const Scaled& x, Low... low) {
  const auto& [center, inverse, log_high, log_low] = tables::kLogs[x.interval];
  const auto exponent = static_cast<double>(x.exponent);
  const double r = (x.fraction - center) * inverse;
  const double high = exponent * tables::kLn2High + log_high;  // exact
  const double sum = high + r;
  const double rest = (high - sum) + r + ((exponent * tables::kLn2Low + log_low) + ... + low);
  // For |r| <= 2^-8 the term r⁷/7 is nearly a polynomial of degree 5 (Chebyshev).
  constexpr double kThird = 1.0 / 3 - 0x1p-35;
  constexpr double kFifth = 1.0 / 5 + 0x1p-18;
  const double series =
      ((((1.0 / -6) * r + kFifth) * r + (1.0 / -4)) * r + kThird) * r + (1.0 / -2);
  return sum + (rest + series * (r * r));
}

/// The logarithm of a positive normal number in two parts, with 66 bits.
Pair long_log(std::uint64_t bits) {
  const Scaled x = scaled(bits);
  const auto& [inverse, log_high, log_low] = tables::kInverses[x.interval];
  const auto exponent = static_cast<double>(x.exponent);
  const Pair z = halves(x.fraction);
  const Pair r = exact_sum(z.high * inverse - 1, z.low * inverse);
  const Pair square = exact_product(r.high, r.high);
  const Pair first = exact_sum(exponent * tables::kLn2High + log_high, r.high);
  const Pair second = exact_sum(first.high, -0.5 * square.high);
  const double s = square.high;
  const double series =
      (1.0 / 3 - r.high * (1.0 / 4)) + s * (1.0 / 5 - r.high * (1.0 / 6)) +
      s * s * ((1.0 / 7 - r.high * (1.0 / 8)) + s * (1.0 / 9 - r.high * (1.0 / 10)));
  const double low = first.low + second.low - 0.5 * square.low + r.low * (1 - r.high) +
                     (exponent * tables::kLn2Low + log_low) + r.high * s * series;
  const double sum = second.high + low;
  return {sum, (second.high - sum) + low};
}

constexpr std::uint64_t kLeastNormal = 0x0010000000000000;
constexpr std::uint64_t kInfinityBits = 0x7ff0000000000000;

/// Whether the bits are those of a positive, finite, normal number.
constexpr bool is_ordinary(std::uint64_t bits) {
  return bits - kLeastNormal < kInfinityBits - kLeastNormal;
}

/// The bits of a positive number with the exponent range extended below; not those of a number.
std::uint64_t normal_bits(double x) {
  const std::uint64_t bits = bits_of(x);
  return is_ordinary(bits) ? bits : bits_of(x * 0x1p52) - (std::uint64_t{52} << 52);
}

}  // namespace

double exp(double x) {
  if (!(std::abs(x) < 700)) {
    if (x > 710) return kInfinity;
    if (x < -746) return 0;
    if (std::isnan(x)) return x;
  }
  return finite_exp(x, 0);
}

double exp2(double x) {
  if (!(std::abs(x) < 1000)) {
    if (x >= 1024) return kInfinity;
    if (x < -1080) return 0;
    if (std::isnan(x)) return x;
  }
  const Nearest steps = nearest(x * 128);
  return scaled_exp(steps.integer, (x - steps.value * 0x1p-7) * tables::kLn2);
}

double expm1(double x) {
  if (std::abs(x) < 0.5) {
    double series = 0;  // of (e^x − 1 − x − x²/2) / x³, by Horner's rule: 1/3! + x/4! + …
    for (int n = 17; n > 3; --n) series = (series + 1) * x / n;
    series = (series + 1) / 6;
    return x + x * x * (0.5 + x * series);
  }
  if (!(x < 40)) return exp(x);
  if (x < -40) return -1;
  const Nearest steps = nearest(x * tables::kStepsPerLn2);
  const double r = (x - steps.value * tables::kLn2StepHigh) - steps.value * tables::kLn2StepLow;
  const auto& [missing, power] =
      tables::kPowersOfTwo[static_cast<std::size_t>(steps.integer & 127)];
  const double square = r * r;
  const double change =
      missing + r + square * (0.5 + r * (1.0 / 6)) + square * square * (1.0 / 24 + r * (1.0 / 120));
  const double scale =
      double_of(bits_of(power) + (static_cast<std::uint64_t>(steps.integer >> 7) << 52));
  const Pair whole = exact_sum(scale, -1);
  return whole.high + (whole.low + scale * change);
}

double log(double x) {
  const std::uint64_t bits = bits_of(x);
  if (is_ordinary(bits)) [[likely]] {
    if (bits - bits_of(1 - 0x1p-5) < bits_of(1 + 0x1p-5) - bits_of(1 - 0x1p-5)) {
      return log_near_1(x - 1);
    }
    return log_of(scaled(bits));
  }
  if (x == 0) return -kInfinity;
  if (!(x > 0)) return std::isnan(x) ? x : kNaN;
  if (x == kInfinity) return x;
  return log_of(scaled(normal_bits(x)));
}

double log1p(double x) {
  if (std::abs(x) < 0x1p-5) return log_near_1(x);
  if (!(x > -1)) return x == -1 ? -kInfinity : std::isnan(x) ? x : kNaN;
  if (x == kInfinity) return x;
  const double sum = 1 + x;
  const double missing = x < 1 ? x - (sum - 1) : 1 - (sum - x);
  return log_of(scaled(bits_of(sum)), missing / sum);
}

double pow(double x, double y) {
  if (y == 0 || x == 1) return 1;
  if (!(x >= 0) || std::isnan(y)) return kNaN;
  if (x == 0 || x == kInfinity) return (x == 0) == (y > 0) ? 0 : kInfinity;
  if (!(std::abs(y) < 0x1p70)) return (x > 1) == (y > 0) ? kInfinity : 0;
  const Pair log = long_log(normal_bits(x));
  const Pair product = exact_product(y, log.high);
  if (product.high > 710) return kInfinity;
  if (product.high < -746) return 0;
  return finite_exp(product.high, product.low + y * log.low);
}

double sin(double x) {
  const double square = x * x;
  double series = 0;  // of (sin x / x − 1) / x²
  for (int n = 21; n >= 5; n -= 2) series = (1 + series) * -square / (n * (n - 1));
  return x - x * square * ((1 + series) / 6);
}

double gamma(double x) {
  double factors = 1;
  while (x > 2) {
    x -= 1;
    factors *= x;
  }
  double sum = 0;
  for (std::size_t i = std::size(tables::kGamma); i-- > 0;)
    sum = sum * (x - 1.5) + tables::kGamma[i];
  return factors * sum;
}

double normal_probability(double z) {
  if (z > 0) return 1 - normal_probability(-z);
  if (!(z >= -9.5)) return std::isnan(z) ? z : 0;
  // Taylor's series at the nearest −i/4: the n-th derivative of the density is (−1)^n times
  // Hermite's n-th polynomial times the density.
  const std::int64_t index = nearest(z * -4).integer;
  const double at = -0.25 * static_cast<double>(index);
  const double step = z - at;
  double sum = 0;
  double before = 0;
  double hermite = 1;
  double power = step;
  for (int n = 0; n < 24; ++n) {
    sum += hermite * power;
    const double next = at * hermite - n * before;
    before = hermite;
    hermite = next;
    power *= -step / (n + 2);
  }
  const auto& [probability, density] = tables::kNormal[static_cast<std::size_t>(index)];
  return probability + density * sum;
}

std::int64_t decimal_exponent(double x) {
  std::int64_t exponent = 0;
  double power = 10;
  while (power <= x && power < kInfinity) {
    power *= 10;
    ++exponent;
  }
  return exponent;
}

}  // namespace spillway::sim
