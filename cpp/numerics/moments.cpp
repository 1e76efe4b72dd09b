#include "numerics/moments.h"

#include <cmath>
#include <numeric>

#include "numerics/percentile.h"

namespace spillway::numerics {

Moments moments_of(std::span<double> values, std::span<const double> ps) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / n), percentiles(values, ps)};
}

}  // namespace spillway::numerics
