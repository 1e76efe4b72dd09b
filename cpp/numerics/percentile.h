#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace spillway::numerics {

/// Where the p-th percentile (0 ≤ p ≤ 100) of n values in ascending order lies by NumPy's "linear"
/// definition: at p/100·(n − 1), split into its whole part and the rest.
struct PercentileRank {
  std::int64_t below;
  double fraction;
};
PercentileRank percentile_rank(double p, std::int64_t n);

/// NumPy's interpolation between adjacent values, exact at both ends and monotone.
inline double interpolate(double a, double b, double t) {
  return t < 0.5 ? a + (b - a) * t : b - (b - a) * (1.0 - t);
}

/// The percentiles `ps` (ascending) of `values`; reorders `values`. Precondition: `values` is not
/// empty.
std::vector<double> percentiles(std::span<double> values, std::span<const double> ps);
/// The same for values between `least` and `largest`, which occur.
void find_percentiles(std::span<double> values, double least, double largest,
                      std::span<const double> ps, std::span<double> percentiles);

/// One quantile (0 ≤ q ≤ 1) by the same definition, at q·(n − 1); reorders `values` and allocates
/// nothing. Precondition: `values` is not empty.
double quantile(std::span<double> values, double q);

}  // namespace spillway::numerics
