#include "numerics/moments.h"

#include <algorithm>
#include <cmath>

#include "numerics/percentile.h"

namespace spillway::numerics {

Moments moments_of(std::span<double> values, std::span<const double> ps,
                   std::span<double> percentiles) {
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  double least = values.front();
  double largest = values.front();
#pragma GCC unroll 4
  for (const double value : values) {
    sum += value;
    least = std::min(least, value);
    largest = std::max(largest, value);
  }
  const double mean = sum / n;
  double squares = 0;
#pragma GCC unroll 4
  for (const double value : values) squares += (value - mean) * (value - mean);
  find_percentiles(values, least, largest, ps, percentiles);
  return {mean, std::sqrt(squares / n), least, largest};
}

}  // namespace spillway::numerics
