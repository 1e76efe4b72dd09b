#pragma once

#include <span>
#include <vector>

namespace spillway::numerics {

/// Mean, population standard deviation and percentiles of a sample.
struct Moments {
  double mean;
  double std_dev;
  std::vector<double> percentiles;
};

/// Precondition: `values` is not empty; `ps` ascend. Reorders the values.
Moments moments_of(std::span<double> values, std::span<const double> ps);

}  // namespace spillway::numerics
