#include "sim/rng.h"

#include <cmath>

#include "sim/math.h"

namespace spillway::sim {

namespace {

__extension__ using uint128 = unsigned __int128;

struct Product {
  std::uint64_t high;
  std::uint64_t low;
};

Product multiply(std::uint64_t a, std::uint64_t b) {
  const uint128 product = static_cast<uint128>(a) * b;
  return {static_cast<std::uint64_t>(product >> 64), static_cast<std::uint64_t>(product)};
}

// Coefficients of algorithm AS 241 (PPND16), lowest order first.
constexpr double kCentralP[] = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                                1.9715909503065514427e+3, 1.3731693765509461125e+4,
                                4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr double kCentralQ[] = {1.0,
                                4.2313330701600911252e+1,
                                6.8718700749205790830e+2,
                                5.3941960214247511077e+3,
                                2.1213794301586595867e+4,
                                3.9307895800092710610e+4,
                                2.8729085735721942674e+4,
                                5.2264952788528545610e+3};
constexpr double kMiddleP[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                               5.76949722146069140550e0,  3.64784832476320460504e0,
                               1.27045825245236838258e0,  2.41780725177450611770e-1,
                               2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double kMiddleQ[] = {1.0,
                               2.05319162663775882187e0,
                               1.67638483018380384940e0,
                               6.89767334985100004550e-1,
                               1.48103976427480074590e-1,
                               1.51986665636164571966e-2,
                               5.47593808499534494600e-4,
                               1.05075007164441684324e-9};
constexpr double kTailP[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                             1.78482653991729133580e0,  2.96560571828504891230e-1,
                             2.65321895265761230930e-2, 1.24266094738807843860e-3,
                             2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double kTailQ[] = {1.0,
                             5.99832206555887937690e-1,
                             1.36929880922735805310e-1,
                             1.48753612908506148525e-2,
                             7.86869131145613259100e-4,
                             1.84631831751005468180e-5,
                             1.42151175831644588870e-7,
                             2.04426310338993978564e-15};

double horner(const double (&c)[8], double x) {
  double sum = c[7];
  for (int i = 6; i >= 0; --i) sum = sum * x + c[i];
  return sum;
}

}  // namespace

double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * horner(kCentralP, r) / horner(kCentralQ, r);
  }
  double r = std::sqrt(-log(q < 0 ? p : 1.0 - p));
  double z = 0;
  if (r <= 5.0) {
    r -= 1.6;
    z = horner(kMiddleP, r) / horner(kMiddleQ, r);
  } else {
    r -= 5.0;
    z = horner(kTailP, r) / horner(kTailQ, r);
  }
  return q < 0 ? -z : z;
}

std::array<std::uint64_t, 4> philox4x64(std::array<std::uint64_t, 4> counter,
                                        std::array<std::uint64_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const Product a = multiply(0xD2E7470EE14C6C93u, counter[0]);
    const Product b = multiply(0xCA5A826395121157u, counter[2]);
    counter = {b.high ^ counter[1] ^ key[0], b.low, a.high ^ counter[3] ^ key[1], a.low};
    key[0] += 0x9E3779B97F4A7C15u;
    key[1] += 0xBB67AE8584CAA73Bu;
  }
  return counter;
}

std::uint64_t Draws::bits() {
  if (used_ == block_.size()) {
    // NumPy increments before it generates; an entity never needs 2^64 blocks, so there is no
    // carry.
    ++counter_[0];
    block_ = philox4x64(counter_, key_);
    used_ = 0;
  }
  return block_[used_++];
}

double Draws::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Draws::uniform_open() {
  // 52 bits: with 53 the largest value would round to 1.
  return (static_cast<double>(bits() >> 12) + 0.5) * 0x1p-52;
}

std::uint64_t Draws::below(std::uint64_t n) {
  // Lemire's multiplication method, redrawing the few values that would bias the result.
  const std::uint64_t threshold = (0 - n) % n;
  for (;;) {
    const Product product = multiply(bits(), n);
    if (product.low >= threshold) return product.high;
  }
}

double Draws::exponential() { return -log(uniform_open()); }

double Draws::normal() { return normal_quantile(uniform_open()); }

double Draws::gamma(double shape) {
  // For shape < 1: the boost of Marsaglia & Tsang, gamma(shape + 1) · u^(1/shape).
  const double boost = shape < 1.0 ? pow(uniform_open(), 1.0 / shape) : 1.0;
  const double d = (shape < 1.0 ? shape + 1.0 : shape) - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = normal();
    const double t = 1.0 + c * x;
    const double u = uniform_open();
    if (t <= 0.0) continue;
    const double v = t * t * t;
    if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return boost * d * v;
  }
}

}  // namespace spillway::sim
