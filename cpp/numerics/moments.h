#pragma once

#include <span>

namespace spillway::numerics {

/// Mean, population standard deviation and range of a sample.
struct Moments {
  double mean = 0;
  double std_dev = 0;
  double least = 0;
  double largest = 0;
};

/// The moments of `values`, and in `percentiles` their percentiles `ps`. Precondition: `values` is
/// not empty; `ps` ascend, and `percentiles` is as long. Reorders the values.
Moments moments_of(std::span<double> values, std::span<const double> ps,
                   std::span<double> percentiles);

}  // namespace spillway::numerics
